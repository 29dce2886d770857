"""Podman's service: whether it answers, whether it is the one that holds the Triton container, start after a boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from msgspec import Struct

from console.checks import box
from console.checks.check import Answer, check, fail, ok, skip, warn
from console.checks.machine import may_have_gpu
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line

PROCESSES = "@processes"
_SOCKET = "podman.socket"
_RESTART = "podman-restart.service"


def is_users(facts: Facts) -> bool:
    """Whether the containers are a user's own: as Podman says, else as far as the facts name their user. Needs PING."""
    try:
        return box.rootless(facts)
    except Unknowable:
        uid = facts.every("uid")
        if not uid:
            raise
        return uid[0] != "0"


# ----------------------------------------------------------------------------------------------------------------- D01


@check(
    "D01",
    "Podman's service answers",
    group="podman",
    slug="podman-socket",
    needs=(box.PING, *box.PODMAN_FILES, box.BUS, "@me", box.UNITS, PROCESSES),
    why="The console sees and changes containers through Podman's service, which systemd starts when something opens "
    "its socket. With the socket off, the container's state, log and actions are missing.",
    source="podman-system-service(1); bollard#790, podman#10714, podman-tui#320",
)
def service_answers(facts: Facts) -> Answer:
    """The one check that says why Podman does not answer."""
    why = facts.why_not(box.PING)
    if not why:
        told = facts.answer(box.PING)
        socket = one_line(str(box.at(told, "socket") or "its socket"), 80)
        rootless = box.at(told, "rootless")
        whose = "" if rootless is None else ", rootless" if rootless else ", rootful"
        return ok(f"{box.podman_version(facts) or 'Podman'}{whose}, at {socket}")
    here = box.podman_is_here(facts)
    cards = may_have_gpu(facts)
    if not here:
        return skip(box.NO_PODMAN + (" (B01)" if cards else ""))
    text, lines, fix = _silent(facts, why)
    return fail(text, lines, fix) if cards else warn(text, lines, fix)


class _Whose(Struct, frozen=True):
    """Whose service is wanted, and whether the one who looks may start it as he is."""

    uid: int
    user: str
    me: int

    @property
    def is_users(self) -> bool:
        return self.uid != 0

    def systemctl(self, *verb: str) -> tuple[str, ...]:
        """For the console; as root where `needs_root`."""
        if not self.is_users:
            return ("systemctl", *verb, _SOCKET)
        own = ("systemctl", "--user", *verb, _SOCKET)
        if self.uid == self.me:
            return own
        return ("runuser", "-u", self.user, "--", "env", f"XDG_RUNTIME_DIR=/run/user/{self.uid}", *own)

    @property
    def needs_root(self) -> bool:
        return not self.is_users or self.uid != self.me


def _whose(facts: Facts) -> _Whose:
    """Of a Triton container that runs, whoever looks; else of the one who looks."""
    told = box.at(facts.answer("@me"), "uid")
    me = told if isinstance(told, int) else 0
    try:
        keeper = next(iter(_keepers(facts)), {})
    except Unknowable:
        keeper = {}
    uid = keeper.get("uid")
    return _Whose(uid if isinstance(uid, int) else me, str(keeper.get("user") or ""), me)


def _silent(facts: Facts, why: str) -> tuple[str, Sequence[Evidence], Fix]:
    """Why the service does not answer, and what makes it."""
    whose = _whose(facts)
    scope = "--user " if whose.is_users else ""
    lines = [Evidence("Podman's sockets", why)]
    try:
        told = box.unit(facts, f"user:{_SOCKET}" if whose.is_users else _SOCKET)
    except Unknowable:
        told = {}
    state = told.get("ActiveState", "")
    if state:
        shown = f"ActiveState={state} UnitFileState={told.get('UnitFileState', '')}"
        lines.append(Evidence(f"$ systemctl {scope}show {_SOCKET}", shown))
    if state and state != "active":
        return f"{_SOCKET} is {state}", lines, _switch(whose, "enable", "--now")
    if "permission" in why.casefold() and whose.me != 0:
        commands = ("sudo gpuconsole", "systemctl --user enable --now podman.socket")
        effect = "root reads the rootful socket; the second line is for containers of your own"
        return f"permission denied: {_short(why)}", lines, Fix("S", commands, effect)
    if state:
        return f"{_SOCKET} is active, but {_short(why)}", lines, _switch(whose, "restart")
    return _short(why), lines, _switch(whose, "enable", "--now")


def _short(why: str) -> str:
    return one_line(why.partition(";")[0], 160)


def _switch(whose: _Whose, *verb: str) -> Fix:
    argv = whose.systemctl(*verb)
    back = whose.systemctl("disable", *verb[1:]) if verb[0] == "enable" else ()
    sudo = "sudo " if whose.needs_root else ""
    return Fix(
        "B",
        (f"{sudo}{' '.join(argv)}",),
        "takes effect now; containers are not touched",
        f"{sudo}{' '.join(back)}" if back else "",
        deeds=(Deed("run", argv=argv, root=whose.needs_root),),
        back=(Deed("run", argv=back, root=whose.needs_root),) if back else (),
        again=("D02", "B01"),
    )


# ----------------------------------------------------------------------------------------------------------------- D02


@check(
    "D02",
    "this is the store that holds Triton",
    group="podman",
    slug="right-store",
    needs=(*box.CONTAINER, box.PING, box.INFO, PROCESSES),
    why="Root's containers and each user's lie in stores of their own, and none sees another's. Who looks in the wrong "
    "one sees no container while Triton serves.",
    source="podman(1), rootless mode",
)
def right_store(facts: Facts) -> Answer:
    """A Triton process of another user's Podman, where this one has no Triton container."""
    why = box.no_container(facts)
    if why == box.NO_PODMAN:
        return skip(why)
    rootless = box.rootless(facts)
    here = "rootless" if rootless else "rootful"
    if not why:
        root = _graph_root(facts)
        return ok(f"found in the {here} store{f', {root}' if root else ''}")
    found = _elsewhere(facts, facts.one("uid") if rootless else "0")
    if found is None:
        return skip(why)
    owner = "root" if found.get("uid") == 0 else one_line(str(found.get("user") or found.get("uid")), 40)
    # sudo -i leaves no runtime folder, by which the user's socket is found
    runtime = f"XDG_RUNTIME_DIR=/run/user/{found.get('uid')}"
    command = "sudo gpuconsole" if found.get("uid") == 0 else f"sudo -iu {quote(owner)} env {runtime} gpuconsole"
    argv = " ".join(str(word) for word in found.get("argv") or ()) or str(found.get("name"))
    lines = (Evidence(f"process {found.get('pid')}", argv),)
    text = f"none in this {here} store: a Triton runs in {owner}'s (pid {found.get('pid')})"
    return warn(text, lines, Fix("S", (command,), "looks at the other store"), holder=owner)


def _graph_root(facts: Facts) -> str:
    try:
        return one_line(str(box.at(facts.answer(box.INFO), "store", "graphRoot") or ""), 80)
    except Unknowable:
        return ""


def _elsewhere(facts: Facts, here: str) -> Mapping[str, Any] | None:
    """conmon of a Triton container in the store of another user than `here`, a number."""
    found = _keepers(facts)
    return next((one for one in found if isinstance(one.get("uid"), int) and str(one["uid"]) != here), None)


def _keepers(facts: Facts) -> list[Mapping[str, Any]]:
    """Processes conmon of Triton containers: those that hold a tritonserver first. Needs PROCESSES."""
    answer = facts.answer(PROCESSES)
    rows = [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else []
    by_pid = {row.get("pid"): row for row in rows}
    servers = [row for row in rows if row.get("name") == "tritonserver"]
    found = [keeper for row in servers if (keeper := _keeper(row, by_pid)) is not None]
    return found + [row for row in rows if row.get("name") == "conmon" and "triton" in _name(row)]


def _keeper(row: Mapping[str, Any], by_pid: Mapping[Any, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    for _ in range(8):
        if row.get("name") == "conmon":
            return row
        parent = by_pid.get(row.get("parent"))
        if parent is None:
            return None
        row = parent
    return None


def _name(row: Mapping[str, Any]) -> str:
    """The container's name in conmon's command line: `conmon ... -n triton ...`."""
    argv = [str(word) for word in row.get("argv") or ()]
    return argv[argv.index("-n") + 1].casefold() if "-n" in argv[:-1] else ""


# ----------------------------------------------------------------------------------------------------------------- D11


@check(
    "D11",
    "the container comes back after a boot",
    group="podman",
    slug="podman-restart",
    needs=(*box.CONTAINER, box.PING, box.UNITS),
    why="Podman has no daemon: its restart policy counts while the box runs. After a boot it is podman-restart.service "
    "that starts such containers, and only where it is enabled.",
    source="podman-restart.service(7); podman#10539, #28152, #26008",
)
def comes_back(facts: Facts) -> Answer:
    """A restart policy without the service that applies it at boot."""
    why = box.no_container(facts)
    if why:
        return skip(why)
    policy = box.at(box.inspect(facts), "HostConfig", "RestartPolicy", "Name") or "no"
    unit = next(iter(facts.every("unit")), "")
    if unit:
        return skip(f"{one_line(unit, 60)} starts it")
    if policy not in ("always", "unless-stopped"):
        return skip(f"restart policy {one_line(str(policy), 30)}")
    user = box.rootless(facts)
    told = box.unit(facts, f"user:{_RESTART}" if user else _RESTART)
    lines = (Evidence(f"$ systemctl {'--user ' if user else ''}show {_RESTART}", f"UnitFileState={_state(told)}"),)
    if _state(told) == "enabled":
        return ok(f"policy {policy}, {_RESTART} is enabled", lines)
    text = f"policy {policy}, but {_RESTART} is {_state(told)}: no start at boot"
    if told.get("LoadState") == "not-found":
        return warn(text, lines)
    scope = ("--user",) if user else ()
    on, off = ("systemctl", *scope, "enable", _RESTART), ("systemctl", *scope, "disable", _RESTART)
    sudo = "" if user else "sudo "
    fix = Fix(
        "P",
        (f"{sudo}{' '.join(on)}",),
        "takes effect at the next boot; never stop that unit: stopping it stops all such containers",
        f"{sudo}{' '.join(off)}",
        deeds=(Deed("run", argv=on, root=not user),),
        back=(Deed("run", argv=off, root=not user),),
    )
    return warn(text, lines, fix)


def _state(told: Mapping[str, str]) -> str:
    return told.get("UnitFileState") or ("not there" if told.get("LoadState") == "not-found" else "not enabled")
