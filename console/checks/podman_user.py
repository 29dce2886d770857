"""What rootless Podman needs of its user: subordinate ids, a session that stays, groups of the device nodes; and the
Python that the console runs with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from shlex import quote

from console.checks import box
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.container import name_of, podman
from console.checks.podman_service import is_users
from console.checks.runtime import NODES, shut_nodes
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line, whole_number

_SUB = ("/etc/subuid", "/etc/subgid")
_NSS = "/etc/nsswitch.conf"
_WANTED = 65536
_FIRST = 100_000
_KEEP = "run.oci.keep_original_groups"
_LINGER = "/var/lib/systemd/linger/{user}"


def _no_user(facts: Facts) -> str:
    """Why a check of the user does not apply; "" where it does. Needs PING and PODMAN_FILES."""
    return box.no_podman(facts) or ("" if is_users(facts) else "rootful Podman")


def _is_me(facts: Facts) -> bool:
    return str(box.at(facts.answer("@me"), "uid")) == facts.one("uid")


# ----------------------------------------------------------------------------------------------------------------- D04


@check(
    "D04",
    "the user has subordinate ids",
    group="podman",
    slug="subuid",
    needs=(box.PING, *box.PODMAN_FILES, *_SUB, _NSS, "@me"),
    why="A rootless container maps its users to ids that /etc/subuid and /etc/subgid give its user. Without 65536 of "
    "each Podman can neither unpack nor start an image of many users such as Triton's.",
    source="podman(1), rootless mode; tried with Podman 4.3.1",
)
def subordinate_ids(facts: Facts) -> Answer:
    """Ranges of the user in both files."""
    if why := _no_user(facts):
        return skip(why)
    user, uid = facts.one("user"), facts.one("uid")
    if any(re.search(r"\bsss\b", line.text) for line in facts.lines(_NSS, r"^\s*subid\s*:")):
        raise Unknowable("ids come from a directory service (nsswitch.conf)", f"getsubids {user}")
    counts = {path: _ids(facts, path, user, uid) for path in _SUB}
    low = {path: count for path, count in counts.items() if count < _WANTED}
    if not low:
        return ok(f"{user}: {min(counts.values())} ids", [line for path in _SUB for line in _lines(facts, path, user)])
    path, count = next(iter(low.items()))
    fix = _more_ids(facts, user, tuple(low), may_run=all(counts.values()))
    lines = [line for file in _SUB for line in _lines(facts, file, user)]
    if count == 0:
        return fail(f"{path} has no range for {one_line(user, 40)}", lines, fix, user=user)
    return warn(f"{path} gives {one_line(user, 40)} {count} ids, {_WANTED} are wanted", lines, fix, user=user)


def _lines(facts: Facts, path: str, user: str) -> tuple[Evidence, ...]:
    return facts.lines(path, rf"^{re.escape(user)}:")


def _ranges(text: str) -> Iterable[tuple[str, int, int]]:
    for line in text.splitlines():
        fields = line.strip().split(":")
        start, count = (whole_number(one) for one in fields[1:]) if len(fields) == 3 else (None, None)
        if start is not None and count is not None and start >= 0 and count > 0:
            yield fields[0], start, count


def _ids(facts: Facts, path: str, user: str, uid: str) -> int:
    """Ids that a file gives the user, by name or number."""
    return sum(count for name, _, count in _ranges(facts.maybe(path) or "") if name in (user, uid))


def _more_ids(facts: Facts, user: str, files: tuple[str, ...], *, may_run: bool) -> Fix:
    """A range after all others, the same in both files. `may_run`: a container may run with the ids that there are, and
    `system migrate` stops it: then it is only shown."""
    ends = [start + count for path in _SUB for _, start, count in _ranges(facts.maybe(path) or "")]
    first = max([_FIRST, *ends])
    span = f"{first}-{first + _WANTED - 1}"
    option = {_SUB[0]: "subuids", _SUB[1]: "subgids"}
    add = [("usermod", f"--add-{option[path]}", span, user) for path in files]
    remove = [("usermod", f"--del-{option[path]}", span, user) for path in files]
    migrate = ("podman", "system", "migrate")
    deeds = tuple(Deed("run", argv=argv, path=path) for argv, path in zip(add, files, strict=True))
    return Fix(
        "P",
        (*(f"sudo {' '.join(argv)}" for argv in add), f"{' '.join(migrate)}   # as {user}"),
        "takes effect when Podman's pause process starts anew: `system migrate` stops this user's containers",
        " && ".join(f"sudo {' '.join(argv)}" for argv in remove),
        deeds=(*deeds, Deed("run", argv=migrate, root=False)) if _is_me(facts) and not may_run else (),
        again=("D01",),
    )


# ----------------------------------------------------------------------------------------------------------------- D05


@check(
    "D05",
    "the user's session outlives a logout",
    group="podman",
    slug="linger",
    needs=(box.PING, *box.CONTAINER, _LINGER, "stat /run/user/{uid}", box.INFO),
    why="Without lingering, systemd ends a user's services and containers at the last logout, and starts none at boot. "
    "Podman that was started without the user's own runtime folder (su, sudo -u) loses its state as well.",
    source="loginctl(1); Podman troubleshooting 17, 31",
)
def lingers(facts: Facts) -> Answer:
    """The linger mark and the runtime folder."""
    if why := _no_user(facts) or box.no_container(facts):
        return skip(why)
    user, uid = facts.one("user"), facts.one("uid")
    mark = _LINGER.replace("{user}", user)
    if not facts.exists(mark):
        on, off = ("loginctl", "enable-linger", user), ("loginctl", "disable-linger", user)
        fix = Fix(
            "B",
            (f"sudo {' '.join(on)}",),
            "takes effect now; no container is touched",
            f"sudo {' '.join(off)}",
            deeds=(Deed("run", argv=on),),
            back=(Deed("run", argv=off),),
        )
        lines = (Evidence(mark, "there is no such file"),)
        unit = next(iter(facts.every("unit")), "user:")
        if not unit.startswith("user:"):
            text = f"{one_line(user, 40)} does not linger: /run/user/{uid} goes at logout, {one_line(unit, 60)} stays"
            return warn(text, lines, fix, user=user)
        return fail(f"{one_line(user, 40)} does not linger: Triton ends at logout", lines, fix, user=user)
    folder = f"/run/user/{uid}"
    found = facts.file(folder)
    if not found.is_there or str(found.uid) != uid:
        text = f"{folder} is {'not there' if not found.is_there else f'of user {found.uid}'}"
        return fail(text, fix=Fix("S", (f"sudo machinectl shell {user}@",), "a session with its own runtime folder"))
    run = box.at(facts.answer(box.INFO), "store", "runRoot")
    if isinstance(run, str) and run.startswith("/tmp/"):
        commands = (f"sudo machinectl shell {user}@", "podman system migrate")
        fix = Fix("S", commands, "starts Podman with the user's runtime folder; stops this user's containers")
        return warn(f"Podman's state is in {one_line(run, 60)}", (Evidence("podman info", f"runRoot: {run}"),), fix)
    return ok(f"{one_line(user, 40)} lingers")


# ----------------------------------------------------------------------------------------------------------------- D06


@check(
    "D06",
    "the user may open the device nodes",
    group="podman",
    slug="device-groups",
    needs=(box.BUS, box.PING, *box.CONTAINER, NODES, "/etc/group", "/etc/passwd", "@me", box.INFO),
    why="A rootless container opens /dev/nvidia* as its user. Where the nodes are for a group only, the user must be "
    "in it and the container must keep it, or NVML says `Insufficient Permissions`.",
    source="Podman troubleshooting 20; podman#25897; NVIDIA container toolkit#580",
)
def device_groups(facts: Facts) -> Answer:
    """Nodes that are not for everybody: membership, runtime, annotation."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    if why := _no_user(facts):
        return skip(why)
    shut = shut_nodes(facts)
    if not shut:
        nodes = facts.glob(NODES.removeprefix("stat "))
        return ok("the nodes are for everybody") if nodes else skip("no device nodes (A16)")
    fact = facts.file(shut[0].where)
    user, group = facts.one("user"), _group_name(facts, fact.gid)
    if fact.mode is None or fact.mode & 0o060 != 0o060:
        fix = Fix("S", ("cat /proc/driver/nvidia/params",), "DeviceFileMode of the nvidia module is 0666 by default")
        return fail(f"{shut[0].where} is {shut[0].text}: only its owner may", shut, fix)
    if not _is_member(facts, user, group, fact.gid):
        command = f"sudo usermod -aG {group or fact.gid} {user}"
        fix = Fix("S", (command,), "takes effect when the user logs in anew and Podman's service starts anew")
        return fail(f"{user} is not in {group or fact.gid}, {shut[0].where} is {shut[0].text}", shut, fix, user=user)
    if box.no_container(facts):
        return ok(f"{user} is in {group}", shut)
    found = box.at(box.inspect(facts), "Config", "Annotations", _KEEP)
    if str(found) == "1":
        return ok(f"{user} is in {group}, the container keeps it", shut)
    runtime = box.at(facts.answer(box.INFO), "host", "ociRuntime", "name")
    need = "with crun " if runtime == "runc" else ""
    name = quote(name_of(box.inspect(facts)))
    command = podman(facts, "inspect --format '{{.Config.CreateCommand}}' " + name)
    fix = Fix("S", (command,), f"how it was made; make it anew {need}with --group-add keep-groups")
    return warn(f"the container does not keep {group} ({_KEEP})", shut, fix)


def _group_name(facts: Facts, gid: int | None) -> str:
    for line in (facts.maybe("/etc/group") or "").splitlines():
        fields = line.split(":")
        if len(fields) >= 3 and fields[2] == str(gid):
            return fields[0]
    return ""


def _is_member(facts: Facts, user: str, group: str, gid: int | None) -> bool:
    """By the session where this user looks, else by /etc/group and /etc/passwd."""
    if _is_me(facts):
        mine = box.at(facts.answer("@me"), "groups")
        if isinstance(mine, list):
            return group in mine or gid in mine or str(gid) in mine
    for line in (facts.maybe("/etc/group") or "").splitlines():
        fields = line.split(":")
        if len(fields) >= 4 and fields[2] == str(gid) and user in fields[3].split(","):
            return True
    own = (line.split(":") for line in (facts.maybe("/etc/passwd") or "").splitlines())
    return any(len(fields) >= 4 and fields[0] == user and fields[3] == str(gid) for fields in own)


# ----------------------------------------------------------------------------------------------------------------- D12


@check(
    "D12",
    "the console's Python is new enough",
    group="podman",
    slug="python",
    needs=("@me", "stat /usr/bin/python3.*"),
    why="The console needs Python 3.11, podman-py 3.9. The python3 of RHEL 8 is 3.6 and stays so for the system: "
    "the newer one lies beside it.",
    source="podman-py pyproject.toml",
)
def python(facts: Facts) -> Answer:
    """What the console runs with; on a recorded box, what is installed."""
    told = None if facts.why_not("@me") else box.at(facts.answer("@me"), "python")
    if isinstance(told, str):
        return note(f"gpuconsole runs with Python {one_line(told, 20)}")
    minors = [
        m[1] for path in facts.glob("/usr/bin/python3.*") if (m := re.fullmatch(r"/usr/bin/python3\.(\d+)", path))
    ]
    newest = max((whole_number(one) or 0 for one in minors), default=0)
    if newest >= 11:
        return note(f"/usr/bin/python3.{newest} is here")
    return note("gpuconsole runs; no Python 3.11 in /usr/bin")
