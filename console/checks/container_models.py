"""Does the container see the model repository, and may it read what lies there?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import escape
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from console.checks.box import argv, at, inspect, no_container, runs
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import NEEDS, is_rootless, number, recreate, seen
from console.core import triton_command
from console.core.facts import Evidence, Facts, FileFact, Unknowable
from console.core.finding import Fix
from console.core.model import Mount
from console.core.text import one_line

DEPTHS = ("stat {models}", "stat {models}/*", "stat {models}/*/*", "stat {models}/*/*/*")
PROCESS = ("/proc/{container_pid}/status", "/proc/{container_pid}/uid_map")
_IMAGE_USERS = {"": 0, "root": 0, "triton-server": 1000}
"""Users of NVIDIA's image."""
_OVERRIDE = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


def mounts_of(found: Mapping[str, Any]) -> tuple[Mount, ...]:
    """The container's mounts."""
    told = found.get("Mounts")
    return tuple(
        Mount(
            str(one.get("Source") or ""),
            str(one.get("Destination") or ""),
            one.get("RW") is False,
            str(one.get("Type")),
        )
        for one in (told if isinstance(told, list) else ())
        if isinstance(one, dict)
    )


# -------------------------------------------------------------------------------------------------------------- rights


class Reader(Struct, frozen=True):
    """Who reads, as the host counts users."""

    uid: int
    groups: frozenset[int]
    overrides: bool
    """It is root of its container, and modes do not count for files of users that it knows."""
    known: tuple[tuple[int, int], ...]
    """(first, count) of the host's users that its user namespace knows."""

    def may(self, fact: FileFact) -> bool | None:
        """Whether it may read (and enter) this; None where that is not told."""
        if fact.mode is None or fact.uid is None:
            return None
        if self.overrides and any(first <= fact.uid < first + count for first, count in self.known):
            return True
        wanted = 0o5 if fact.kind == "dir" else 0o4
        if fact.uid == self.uid:
            return (fact.mode >> 6) & wanted == wanted
        if fact.gid in self.groups:
            return (fact.mode >> 3) & wanted == wanted
        return fact.mode & wanted == wanted


_ALL_USERS = ((0, 2**32),)


def reader(facts: Facts, found: Mapping[str, Any]) -> tuple[Reader, tuple[Evidence, ...]]:
    """The container's first process, else the user that it was made with; Unknowable where neither tells."""
    for pid in facts.every("container_pid"):
        told = _running(facts, pid)
        if told is not None:
            return told
    user = str(at(found, "Config", "User") or "").partition(":")[0]
    uid = _IMAGE_USERS.get(user, number(user))
    evidence = seen(found, "Config.User")
    if uid is None:
        raise Unknowable(f"which number the user {one_line(user, 40)} of the image has is not known", "")
    if not is_rootless(facts):
        return Reader(uid, frozenset({uid}), uid == 0, _ALL_USERS), evidence
    owner = number(next(iter(facts.every("uid")), ""))
    if uid != 0 or owner is None:
        raise Unknowable("it does not run, so which user of the host it would be is not known")
    return Reader(owner, frozenset(), True, ((owner, 1),)), evidence


def _running(facts: Facts, pid: str) -> tuple[Reader, tuple[Evidence, ...]] | None:
    status, mapping = (path.replace("{container_pid}", pid) for path in PROCESS)
    try:
        text, rows = facts.maybe(status) or "", facts.maybe(mapping) or ""
    except Unknowable:
        return None
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in text.splitlines())}
    uids, gids = ([number(word) for word in fields.get(key, [])] for key in ("Uid", "Gid"))
    uid, gid = (row[1] if len(row) > 1 else None for row in (uids, gids))
    if uid is None or gid is None:
        return None
    groups = {group for word in fields.get("Groups", []) if (group := number(word)) is not None}
    known = tuple(
        (int(words[1]), int(words[2]))
        for line in rows.splitlines()
        if len(words := line.split()) == 3 and all(number(word) is not None for word in words)
    )
    try:
        powers = int(fields["CapEff"][0], 16)
    except (KeyError, IndexError, ValueError):
        powers = 0
    evidence = facts.lines(status, "^(?:Uid|Groups):")
    return Reader(uid, frozenset({gid, *groups}), bool(powers & _OVERRIDE), known or _ALL_USERS), evidence


# ---------------------------------------------------------------------------------------------------------- repository


@check(
    "E10",
    "the container can read the model repository",
    group="container",
    slug="repository-readable",
    needs=(*NEEDS, *DEPTHS, *PROCESS),
    why="Triton looks only where --model-repository points inside the container. A mount elsewhere, or files that its "
    "user may not read, end the start or make one model fail while the others work.",
    source="ultralytics/hub#767, triton server#1931, #3697",
)
def repository_readable(facts: Facts) -> Answer:
    """Mount, rights of its user, version folders."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    words, mounts = argv(found), mounts_of(found)
    places = triton_command.model_repositories(words, mounts)
    evidence = tuple(Evidence("its command", f"--model-repository={path}") for path, _ in places)
    if not places:
        if triton_command.is_tritonserver(words):
            return fail("its command names no --model-repository", seen(found, "Args"), None, cause="no-flag")
        return unknown("its command does not tell where the models are", "", seen(found, "Path", "Args"))
    local = [(inside, outside) for inside, outside in places if "://" not in inside]
    if not local:
        return note(f"remote: {one_line(places[0][0], 80)}", evidence)
    unheld = [inside for inside, outside in local if outside is None]
    if unheld:
        return _unheld(facts, found, unheld[0], mounts, evidence)
    return _on_disk(facts, found, [outside for _, outside in local if outside is not None], evidence)


def _unheld(
    facts: Facts, found: Mapping[str, Any], inside: str, mounts: tuple[Mount, ...], evidence: tuple[Evidence, ...]
) -> Answer:
    shown = tuple(Evidence("a mount", f"{one.source} at {one.target}") for one in mounts[:6])
    text = f"no mount holds {one_line(inside, 60)}"
    if runs(found):
        return note(f"{text}: the models are in the image", (*evidence, *shown))
    if len(mounts) == 1:
        target = mounts[0].target
        fix = recreate(facts, {"flags": f"--model-repository={target}"}, f"--model-repository={target}")
        return fail(f"{text}; {mounts[0].source} is at {target}", (*evidence, *shown), fix, cause="mount", path=inside)
    return warn(f"{text}, and it does not run", (*evidence, *shown), cause="mount", path=inside)


def _on_disk(facts: Facts, found: Mapping[str, Any], roots: list[str], evidence: tuple[Evidence, ...]) -> Answer:
    missing: Unknowable | None = None
    bare: list[str] = []
    seen_paths = 0
    who: tuple[Reader, tuple[Evidence, ...]] | None = None
    try:
        who = reader(facts, found)
    except Unknowable as error:
        missing = error
    for root in roots:
        if root not in facts.every("models"):
            missing = missing or Unknowable(f"{root} was not looked at", f"sudo ls -lZ {shlex.quote(root)}")
            continue
        try:
            if not facts.exists(root):
                return fail(
                    f"{root} is not there", (*evidence, Evidence(root, "absent")), None, cause="absent", path=root
                )
            for path, fact in _walk(facts, root):
                seen_paths += 1
                if who is not None and who[0].may(fact) is False:
                    return _closed(path, fact, root, who[0], (*evidence, *who[1]))
            bare += _without_version(facts, root)
        except Unknowable as error:
            missing = missing or error
    if bare:
        text = f"{bare[0]} has no version folder (a number)" + (
            f", nor have {len(bare) - 1} more" if len(bare) > 1 else ""
        )
        fix = Fix("S", (f"ls -l {shlex.quote(bare[0])}",), effect="a model's files lie in a folder named 1, 2, …")
        return warn(
            text, tuple(Evidence(path, "no version folder") for path in bare[:6]), fix, cause="version", path=bare[0]
        )
    if missing is not None:
        raise missing
    writable = [one.target for one in mounts_of(found) if not one.read_only and one.source in roots]
    if writable:
        return note(f"{seen_paths} paths readable; {writable[0]} is writable in the container", evidence)
    return ok(f"{seen_paths} paths readable, mounted read-only", evidence)


def _walk(facts: Facts, root: str) -> Iterator[tuple[str, FileFact]]:
    """The repository, its models, and what lies in them, as deep as can be seen; hidden names and loose files beside
    the models left out. Unknowable at the end, where a folder could not be looked into."""
    yield root, facts.file(root)
    missing: Unknowable | None = None
    layer = [root]
    for depth in (1, 2, 3):
        paths, error = _below(facts, root, depth, layer)
        missing = missing or error
        layer = []
        for path in paths:
            parts, fact = PurePosixPath(path).relative_to(root).parts, facts.file(path)
            hidden = any(part.startswith(".") or part == "lost+found" for part in parts)
            if not hidden and (depth > 1 or fact.kind == "dir"):
                yield path, fact
                layer += [path] if fact.kind == "dir" else []
    if missing is not None:
        raise missing


def _below(facts: Facts, root: str, depth: int, layer: list[str]) -> tuple[tuple[str, ...], Unknowable | None]:
    """All paths of a depth; folder by folder only where one of them cannot be looked into."""
    try:
        return facts.glob(f"{escape(root.rstrip('/'))}{'/*' * depth}"), None
    except Unknowable as error:
        missing = error
    found: list[str] = []
    for folder in layer:
        with suppress(Unknowable):
            found += facts.glob(f"{escape(folder.rstrip('/'))}/*")
    return tuple(found), missing


def _without_version(facts: Facts, root: str) -> list[str]:
    """Models (folders with a config.pbtxt) that have no folder with a number for a name."""
    configured: set[str] = set()
    versioned: set[str] = set()
    for path in facts.glob(f"{escape(root.rstrip('/'))}/*/*"):
        model, _, name = path.rpartition("/")
        if name == "config.pbtxt":
            configured.add(model)
        elif name.isdigit() and facts.file(path).kind == "dir":
            versioned.add(model)
    return sorted(configured - versioned)


def _closed(path: str, fact: FileFact, root: str, who: Reader, evidence: tuple[Evidence, ...]) -> Answer:
    mode = f"{fact.mode or 0:04o} {fact.uid}:{fact.gid}"
    folder = shlex.quote(root)
    return fail(
        f"{path} ({mode}) is closed to uid {who.uid}, as which it runs",
        (Evidence(path, mode), *evidence),
        Fix(
            "S",
            (f"sudo chmod -R a+rX {folder}",),
            effect=f"takes effect at once, for all below {root}: everybody on this host may read the models then. To "
            f"keep them closed give them to its user instead: sudo chown -R {who.uid} {folder}",
            undo=f"sudo chmod {fact.mode or 0:04o} {shlex.quote(path)}, for each path",
            again=("C07", "E05"),
        ),
        cause="mode",
        path=path,
        uid=str(who.uid),
    )
