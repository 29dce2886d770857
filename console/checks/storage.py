"""Where the models lie: room, kind of file system, who may read and write there, and room for pulls (H01, H02, H05,
H07)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from console.checks import box
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.core.facts import Evidence, Facts, FileFact, SpaceFact, Unknowable
from console.core.finding import Fix
from console.core.text import one_line
from console.core.units import GIB, percent, size

MODELS = "{models}"
MODELS_SPACE = f"space {MODELS}"
_NO_MODELS = "no model repository on this host is known"
_LITTLE = 20 * GIB
_LITTLE_SHARE = 0.05


@check(
    "H01",
    "the model repository has room",
    group="storage",
    slug="repository-space",
    needs=(MODELS_SPACE,),
    why=(
        "A new version of a model is laid beside the old one, so both need room for a while. "
        "On a full file system half a version arrives, and the server may try to load it."
    ),
    source="statvfs(3)",
)
def room(facts: Facts) -> Answer:
    folders = facts.every("models")
    if not folders:
        return skip(_NO_MODELS)
    spaces, blind = _spaces(facts, folders)
    said: list[str] = []
    for path, one in spaces.items():
        if one.free is None or not one.total:
            blind = blind or Unknowable(f"{path}: its size is not told", f"df {path}")
            continue
        evidence = (
            Evidence(f"$ df {path}", f"{size(one.free)} of {size(one.total)} free on {one_line(one.mount, 60)}"),
        )
        if one.free < _LITTLE and one.free < _LITTLE_SHARE * one.total:
            text = f"{size(one.free)} of {size(one.total)} are free at {one_line(path, 60)}"
            return warn(text, evidence, _look(path), free=str(one.free))
        if one.inodes and one.inodes_free is not None and one.inodes_free < _LITTLE_SHARE * one.inodes:
            left = Evidence(f"$ df -i {path}", f"{one.inodes_free} of {one.inodes} inodes free")
            text = f"{percent(one.inodes_free / one.inodes)} % of the inodes are free at {one_line(path, 60)}"
            return warn(text, (left,), _look(path))
        said.append(f"{size(one.free)} of {size(one.total)} ({percent(one.free / one.total)} %)")
    if blind is not None:
        raise blind
    return ok(
        f"{', '.join(dict.fromkeys(said))} free", [Evidence(f"$ df {path}", one.mount) for path, one in spaces.items()]
    )


def _spaces(facts: Facts, folders: tuple[str, ...]) -> tuple[dict[str, SpaceFact], Unknowable | None]:
    found: dict[str, SpaceFact] = {}
    blind: Unknowable | None = None
    for path in folders:
        try:
            found[path] = facts.space(path)
        except Unknowable as why:
            blind = blind or why
    return found, blind


def _look(path: str) -> Fix:
    return Fix(
        "S", (f"sudo du -xsh {shlex.quote(path)}/*/* | sort -h | tail",), "old versions that are not served may go"
    )


_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "davfs"})
_PARALLEL = frozenset({"lustre", "gpfs", "beegfs", "wekafs", "panfs", "glusterfs"})
_NO_OWNERS = frozenset({"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk", "iso9660"})
_LOCAL = frozenset({"xfs", "ext4", "ext3", "ext2", "btrfs", "zfs", "f2fs", "jfs", "bcachefs"})


@check(
    "H02",
    "models lie on a local file system",
    group="storage",
    slug="repository-filesystem",
    needs=(MODELS_SPACE,),
    why=(
        "From a network file system a model loads as slowly as the network allows, and a server that is away stops "
        "every load. SELinux labels cannot be set there either, so :z and :Z do nothing."
    ),
    source="podman#12492; Podman, option :z on NFS",
)
def filesystem(facts: Facts) -> Answer:
    folders = facts.every("models")
    if not folders:
        return skip(_NO_MODELS)
    spaces, blind = _spaces(facts, folders)
    kinds: list[str] = []
    for path, one in spaces.items():
        kind = one.fs.strip()
        if kind in _NETWORK or kind in _NO_OWNERS or (kind.startswith("fuse.") and kind not in _PARALLEL):
            what = "keeps no owners and labels" if kind in _NO_OWNERS else "goes over the network, no SELinux labels"
            what = "goes through a user's program" if kind.startswith("fuse.") else what
            fix = Fix(
                "S",
                ("sudo mkdir -p /srv/models", f"sudo cp -a --no-preserve=context {shlex.quote(path)}/. /srv/models/"),
                "/srv/models stands for a folder on a local disk with room for them; then label it (C07) and make the "
                "container anew with it",
                again=("C07",),
            )
            text = f"{one_line(path, 60)} is {one_line(kind, 20)}: {what}"
            return warn(text, (_mounted(path, one),), fix, fs=kind)
        if not kind:
            blind = blind or Unknowable(f"{path}: the kind of its file system is not told", f"findmnt -T {path}")
        kinds.append(kind)
    if blind is not None:
        raise blind
    told = tuple(_mounted(path, one) for path, one in spaces.items())
    said = one_line(", ".join(dict.fromkeys(kinds)), 40)
    if _LOCAL.issuperset(kinds):
        return ok(said, told, fs=kinds[0])
    if "tmpfs" in kinds:
        return note(f"{said}: the models are gone after a reboot", told, fs="tmpfs")
    return note(f"{said}: neither a usual local one nor a known slow one", told, fs=kinds[0])


def _mounted(path: str, one: SpaceFact) -> Evidence:
    return Evidence(f"$ findmnt -T {path}", one_line(f"{one.mount} {one.device} {one.fs}", 200))


_TEMPORARY = "/var/tmp"
_PULL = 10 * GIB


@check(
    "H05",
    "/var/tmp has room for a pull",
    group="storage",
    slug="pull-space",
    needs=(f"space {_TEMPORARY}", *box.CONTAINER),
    why=(
        "While it pulls, Podman keeps the compressed layers in /var/tmp; a Triton image has 8 GB and more of them. "
        "A pull that runs full ends with no space left on device, after minutes."
    ),
    source="podman-pull(1), TMPDIR",
)
def pull_room(facts: Facts) -> Answer:
    if facts.why_not(box.INSPECT) and not box.podman_is_here(facts):
        return skip(box.NO_PODMAN)
    one = facts.space(_TEMPORARY)
    if one.free is None:
        return unknown("its size is not told", f"df {_TEMPORARY}")
    evidence = (
        Evidence(f"$ df {_TEMPORARY}", f"{size(one.free)} of {size(one.total)} free on {one_line(one.mount, 60)}"),
    )
    if one.free >= _PULL:
        return ok(f"{size(one.free)} are free", evidence)
    text = f"{size(one.free)} are free; the pull of a Triton image takes {size(_PULL)}"
    if not box.no_container(facts):
        return note(text, evidence)
    effect = "shows what fills it; or pull by hand with TMPDIR set to a folder with room (podman-pull(1))"
    fix = Fix("S", (f"sudo du -xsh {_TEMPORARY}/* | sort -h | tail",), effect)
    return warn(text, evidence, fix)


_READ = 0o5
_WRITE = 0o2
_STICKY = 0o1000


@check(
    "H07",
    "models can be read, not written by all",
    group="storage",
    slug="repository-rights",
    needs=(f"stat {MODELS}", f"stat {MODELS}/*", box.PING, box.INSPECT),
    why=(
        "The server enters the folders of its models as its own user, which in a rootless container is a mapped one. "
        "A folder that everybody may write to lets any user of the host bring code into the server."
    ),
    source="ultralytics/hub#767; podman rootless user mapping",
)
def rights(facts: Facts) -> Answer:
    folders = facts.every("models")
    if not folders:
        return skip(_NO_MODELS)
    paths = [*folders]
    for folder in folders:
        paths += facts.glob(f"{folder}/*")
    known = {path: fact for path in paths if (fact := facts.file(path)).kind == "dir" and fact.mode is not None}
    if not set(folders) <= set(known):
        missing = next(path for path in folders if path not in known)
        raise Unknowable(f"{missing} is no folder whose rights are told", f"sudo ls -ld {missing}")
    closed = {path: fact for path, fact in known.items() if (fact.mode or 0) & _READ != _READ}
    shut = _shut(facts, closed) if closed else {}
    if shut:
        path, fact = next(iter(shut.items()))
        runs = box.runs(box.inspect(facts))
        more = f" and {len(shut) - 1} more" if len(shut) > 1 else ""
        text = f"{one_line(path, 60)}{more}: {_words(fact)}, the server's user may not enter"
        fix = Fix(
            "S", tuple(f"sudo chmod o+rx {shlex.quote(one)}" for one in list(shut)[:5]), "at the next load of the model"
        )
        return (warn if runs else fail)(text, _evidence(shut), fix)
    wide = {path: fact for path, fact in known.items() if (fact.mode or 0) & _WRITE and not (fact.mode or 0) & _STICKY}
    if wide:
        path, fact = next(iter(wide.items()))
        text = f"{one_line(path, 60)} is {_words(fact)}: every user may lay down a model"
        fix = Fix(
            "S",
            tuple(f"sudo chmod o-w {shlex.quote(one)}" for one in list(wide)[:5]),
            "at once; the server is not touched",
        )
        return warn(text, _evidence(wide), fix)
    top, below = known[folders[0]], len(known) - len(folders)
    return ok(f"{_words(top)}, {below} folder{'' if below == 1 else 's'} below", _evidence({folders[0]: top}))


def _shut(facts: Facts, closed: Mapping[str, FileFact]) -> dict[str, FileFact]:
    """Those that the container's user cannot enter, as far as modes tell; access lists may allow more."""
    found = box.inspect(facts)
    as_root = _is_root(found)
    if not box.rootless(facts):
        return {} if as_root else {path: fact for path, fact in closed.items() if not _own(fact, _user(found))}
    uids = facts.every("uid")
    return {path: fact for path, fact in closed.items() if not (as_root and _own(fact, uids[0] if uids else ""))}


def _own(fact: FileFact, uid: str) -> bool:
    return str(fact.uid) == uid and (fact.mode or 0) & 0o500 == 0o500


def _user(found: Mapping[str, Any]) -> str:
    return str(box.at(found, "Config", "User") or "").partition(":")[0]


def _is_root(found: Mapping[str, Any]) -> bool:
    return _user(found) in ("", "0", "root")


def _words(fact: FileFact) -> str:
    return f"{fact.mode or 0:04o} of user {fact.uid}"


def _evidence(facts: Mapping[str, FileFact]) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"$ ls -ld {path}", _words(fact)) for path, fact in list(facts.items())[:5])
