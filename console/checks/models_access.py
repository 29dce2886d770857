"""Who may read the model files, and who may change what is served: L07 L08."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Literal

from msgspec import Struct

from console.checks.box import INSPECT, PING, argv, at, container_name, flag, no_container, rootless
from console.checks.check import Answer, check, fail, ok, skip, warn
from console.checks.container import NEEDS as OWNER
from console.checks.container import podman, recreate
from console.checks.models_disk import FILES, INDEX, NEEDS, elsewhere, file, ready, repository
from console.core import triton_command
from console.core.facts import Evidence, Facts, FileFact, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line, whole_number

# ----------------------------------------------------------------------------------------------------------------- L07

_IDS = ("/etc/subuid", "/etc/subgid", "/etc/passwd")
TRITON_UID = 1000
"""Of the user `triton-server` in NVIDIA's images."""
MOST_DEEDS = 20
May = Literal["yes", "no", "perhaps"]


class Reader(Struct, frozen=True):
    """The server's process as the host's files see it."""

    uid: int | None
    """On this host; None where it is nobody that this host knows."""
    gid: int | None
    is_root: bool = False
    """Root of its user namespace: it may read all files whose owner and group are of that namespace."""
    uids: tuple[tuple[int, int], ...] | None = None
    """(first, count) of the host's users in the namespace; None = all of them."""
    gids: tuple[tuple[int, int], ...] | None = None
    words: str = ""

    def may(self, fact: FileFact, bits: int) -> May:
        """Whether mode bits let it do `bits` (4 read, 1 enter). perhaps: by a group that is not known here."""
        if fact.mode is None or fact.uid is None or fact.gid is None:
            return "perhaps"
        if self.is_root and _within(fact.uid, self.uids) and _within(fact.gid, self.gids):
            return "yes"
        if self.uid is not None and fact.uid == self.uid:
            return "yes" if fact.mode >> 6 & bits == bits else "no"
        if self.gid is not None and fact.gid == self.gid:
            return "yes" if fact.mode >> 3 & bits == bits else "no"
        if fact.mode & bits == bits:
            return "yes"
        return "perhaps" if fact.mode >> 3 & bits == bits and self.gid is None else "no"


def _within(number: int, ranges: Sequence[tuple[int, int]] | None) -> bool:
    return ranges is None or any(first <= number < first + count for first, count in ranges)


@check(
    "L07",
    "the server may read the model files",
    group="models",
    slug="models-readable",
    needs=(*NEEDS, *FILES, PING, INDEX, *_IDS),
    why="A file that the server's user cannot read fails its model at the load, often only the one that was copied in "
    "last. Judged by owner and mode bits; SELinux labels are C07's.",
    source="host.md E10; model_server#2944; ultralytics/hub#767; podman troubleshooting",
)
def readable(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    if why := no_container(facts):
        return skip(why)
    reader = _reader(facts)
    serving = ready(facts) or {}
    shut: list[tuple[str, FileFact]] = []
    perhaps: list[str] = []
    blind: Unknowable | None = None
    looked = 0
    for path, bits, version in _paths(facts):
        if version is not None and version[1] in serving.get(version[0], ()):
            continue  # it was read
        try:
            fact = file(facts, path)
        except Unknowable as missing:
            blind = blind or missing
            continue
        if not fact.is_there:
            continue
        looked += 1
        verdict = reader.may(fact, bits)
        shut += [(path, fact)] if verdict == "no" else []
        perhaps += [path] if verdict == "perhaps" else []
    if shut:
        path, fact = shut[0]
        lines = tuple(Evidence(one, _mode(found)) for one, found in shut)
        more = f"; {len(shut) - 1} more so" if len(shut) > 1 else ""
        return fail(f"{path} is {_mode(fact)}: shut to {reader.words}{more}", lines, _open(facts, shut), path=path)
    if blind is not None:
        raise blind
    if perhaps:
        raise Unknowable(
            f"whether a group lets {reader.words} read {perhaps[0]}",
            f"sudo podman exec {container_name(facts)} ls -lR /",
        )
    return ok(f"{looked} files and folders are open to {reader.words}")


def _paths(facts: Facts) -> Iterator[tuple[str, int, tuple[str, int] | None]]:
    """(path, bits that are needed, model and version that it belongs to) of all that was looked at."""
    for folder in facts.every("models"):
        yield folder, 5, None
    for model in repository(facts):
        yield model.path, 5, None
        if "config.pbtxt" in model.names:
            yield f"{model.path}/config.pbtxt", 4, None
        for version in model.versions:
            owner = (model.name, version.number)
            yield version.path, 5, owner
            for name in version.fact.names or ():
                path = f"{version.path}/{name}"
                if name == "__pycache__":
                    continue
                yield path, 5 if _is_dir(facts, path) else 4, owner


def _is_dir(facts: Facts, path: str) -> bool:
    try:
        return file(facts, path).kind == "dir"
    except Unknowable:
        return False


def _reader(facts: Facts) -> Reader:
    """Unknowable where the user of the server's process is not to be told."""
    found = facts.answer(INSPECT)
    user = str(at(found, "Config", "User") or "")
    mode = str(at(found, "HostConfig", "UsernsMode") or "")
    name, _, group = user.partition(":")
    inside = {"": 0, "root": 0, "triton-server": TRITON_UID}.get(name, whole_number(name))
    own = "root" if inside == 0 else f"user {inside}"
    gid = whole_number(group) if group else 0 if inside == 0 else None
    if inside is None:
        raise Unknowable(
            f"which number user {one_line(name, 40)!r} of the image has", f"podman exec {container_name(facts)} id"
        )
    if not rootless(facts):
        if mode not in ("", "host"):
            raise Unknowable(
                f"user namespace {one_line(mode, 40)}: whose files its user may read",
                f"podman exec {container_name(facts)} id",
            )
        return Reader(inside, gid, inside == 0, words=f"{own} of the container")
    return _mapped(facts, inside, gid, mode, own)


def _mapped(facts: Facts, inside: int, gid: int | None, mode: str, own: str) -> Reader:
    """Of a rootless container: its root is the user, all others are of the user's range in /etc/subuid."""
    uid = whole_number(facts.one("uid"))
    user = facts.one("user")
    group = _group(facts, user)
    if uid is None:
        raise Unknowable(f"which number user {user} has", f"id {user}")
    if mode.startswith("keep-id"):
        return Reader(uid, group, words=f"user {user}")
    if mode not in ("", "host"):
        raise Unknowable(
            f"user namespace {one_line(mode, 40)}: whose files its user may read",
            f"podman exec {container_name(facts)} id",
        )
    users, groups = (_ranges(facts, path, user, uid) for path in _IDS[:2])
    words = f"{own} of {user}'s container"
    if inside == 0:
        own_group = ((group, 1),) if group is not None else ()
        return Reader(uid, group, True, ((uid, 1), *users), (*own_group, *groups), words)
    return Reader(_nth(users, inside), None if gid is None else group if gid == 0 else _nth(groups, gid), words=words)


def _ranges(facts: Facts, path: str, user: str, uid: int) -> tuple[tuple[int, int], ...]:
    """(first, count) that the file gives a user."""
    found = []
    for line in (facts.maybe(path) or "").splitlines():
        parts = line.strip().split(":")
        if len(parts) == 3 and parts[0] in (user, str(uid)):
            first, count = whole_number(parts[1]), whole_number(parts[2])
            if first is not None and count is not None:
                found.append((first, count))
    return tuple(found)


def _nth(ranges: Sequence[tuple[int, int]], inside: int) -> int | None:
    """The host's number of a user of the container: 1 is the first of the ranges."""
    left = inside - 1
    for first, count in ranges:
        if left < count:
            return first + left
        left -= count
    return None


def _group(facts: Facts, user: str) -> int | None:
    """The user's own group; None where /etc/passwd does not tell."""
    try:
        text = facts.maybe("/etc/passwd") or ""
    except Unknowable:
        return None
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) >= 4 and parts[0] == user:
            return whole_number(parts[3])
    return None


def _mode(fact: FileFact) -> str:
    return f"{fact.mode:04o} of {fact.uid}:{fact.gid}" if fact.mode is not None else "of unknown mode"


def _open(facts: Facts, shut: Sequence[tuple[str, FileFact]]) -> Fix:
    """Read for all, and enter for folders; each path gets its old mode back."""
    wanted = [
        (path, fact.mode or 0, (fact.mode or 0) | (0o555 if fact.kind == "dir" else 0o444)) for path, fact in shut
    ]
    few = wanted if len(wanted) <= MOST_DEEDS else []
    folder = quote(facts.one("models"))
    lines = [f"sudo chmod {new:04o} {quote(path)}" for path, _, new in few] or [f"sudo chmod -R a+rX {folder}"]
    return Fix(
        "P",
        tuple(lines),
        "every user of this host may read the files then; takes effect at the next load of the model",
        "; ".join(f"sudo chmod {old:04o} {quote(path)}" for path, old, _ in few),
        deeds=tuple(Deed("mode", path=path, mode=new) for path, _, new in few),
        back=tuple(Deed("mode", path=path, mode=old) for path, old, _ in few),
        again=("C07",),
    )


# ----------------------------------------------------------------------------------------------------------------- L08

_LOCAL = ("127.", "::1", "localhost")
_FRONTS = (
    ("HTTP", "allow-http", "http-port", 8000, "http-address", ("http-restricted-api",)),
    ("gRPC", "allow-grpc", "grpc-port", 8001, "grpc-address", ("grpc-restricted-protocol", "grpc-restricted-api")),
)
_OFF = frozenset({"0", "false", "off", "no"})


@check(
    "L08",
    "only this host can change what is served",
    group="models",
    slug="model-control-exposed",
    needs=OWNER,
    why="In explicit mode whoever reaches the port may unload every model or load another one: Triton asks nobody who "
    "he is. A firewall may stand before it; that is not looked at here.",
    source="Triton inference_protocols.md, limit endpoint access; model_management.md",
)
def exposed(facts: Facts) -> Answer:
    if why := no_container(facts):
        return skip(why)
    found = facts.answer(INSPECT)
    mode = triton_command.control_mode(argv(found))
    open_fronts = list(_open_fronts(found))
    if mode is None:
        raise Unknowable(
            "the server's command line does not tell its control mode",
            f"podman logs {container_name(facts)} | grep model_control",
        )
    lines = tuple(
        Evidence(f"podman inspect {container_name(facts)}", f"{name}: {where}") for name, where, _ in open_fronts
    )
    if mode != "explicit":
        return ok(f"mode {mode}: nobody loads or unloads through the ports", lines, mode=mode)
    if not open_fronts:
        return ok("mode explicit, and model control answers to this host alone", mode=mode)
    fronts = " and ".join(f"{name} {port}" for name, _, port in open_fronts)
    return warn(
        f"mode explicit, and other hosts reach {fronts}: they may unload",
        lines,
        _restrict(facts, found, open_fronts),
        mode=mode,
    )


def _open_fronts(found: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """(front end, where it is open, port) of those that other hosts reach without a key for model control."""
    for name, allow, port_flag, default, address_flag, restricted in _FRONTS:
        words = argv(found)
        allowed = flag(found, allow)
        if allowed is not None and allowed.lower() in _OFF:
            continue
        keyed = triton_command.flag_values(words, *restricted)
        if any("model-repository" in value.partition(":")[0].split(",") for value in keyed):
            continue
        port = whole_number(flag(found, port_flag) or "") or default
        if at(found, "HostConfig", "NetworkMode") == "host":
            address = flag(found, address_flag) or "0.0.0.0"
            if not address.startswith(_LOCAL):
                yield name, f"host network, {one_line(address, 60)}:{port}", port
            continue
        bindings = at(found, "HostConfig", "PortBindings", f"{port}/tcp")
        for one in bindings if isinstance(bindings, list) else ():
            address = str(at(one, "HostIp") or "")
            if not address.startswith(_LOCAL):
                outside = whole_number(str(at(one, "HostPort") or "")) or port
                yield name, f"published on {one_line(address, 60) or 'all addresses'}:{outside}", outside
                break


def _restrict(facts: Facts, found: Mapping[str, Any], fronts: Sequence[tuple[str, str, int]]) -> Fix:
    bindings = at(found, "HostConfig", "PortBindings")
    pairs = {
        str(port).partition("/")[0]: str(at(one, "HostPort") or "")
        for port, ends in (bindings.items() if isinstance(bindings, Mapping) else ())
        for one in (ends if isinstance(ends, list) else ())[:1]
    }
    inside = [f"127.0.0.1:{outside}:{port}" for port, outside in pairs.items()]
    local = recreate(facts, {"ports": ",".join(inside)}, " ".join(f"--publish={one}" for one in inside))
    key = "model-repository:admin-key=SECRET"
    effect = (
        f"the server's flags --http-restricted-api={key} and --grpc-restricted-protocol={key} keep model control to "
        "who has your secret, this console too (triton.headers)"
    )
    if not inside:
        return Fix("S", (podman(facts, f"inspect --format '{{{{.Args}}}}' {quote(container_name(facts))}"),), effect)
    return Fix(
        "S",
        local.commands,
        f"answers pause; this host's own addresses alone are served then, and a proxy lets callers in. Or: {effect}",
        local.undo,
    )
