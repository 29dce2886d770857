"""The server's ports: do they listen, and who has them where they are wanted (I01, I02)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.checks import box, container, container_settings
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line, whole_number
from console.core.triton_command import (
    DEFAULT_GRPC_PORT,
    DEFAULT_HTTP_PORT,
    DEFAULT_METRICS_PORT,
    is_tritonserver,
)

PORTS = "@ports"
METADATA = "@triton.metadata"
_PROCESSES = "@processes"
_CONTAINERS = "@podman.containers"
_SETTINGS = "@settings"
_FRONT_ENDS = (
    ("http_port", DEFAULT_HTTP_PORT),
    ("grpc_port", DEFAULT_GRPC_PORT),
    ("metrics_port", DEFAULT_METRICS_PORT),
)
"""(setting of the console, default)."""


class Listener(Struct, frozen=True):
    """A listening TCP socket; pid None = whose it is may not be seen."""

    address: str
    port: int
    pid: int | None
    name: str


def listeners(facts: Facts) -> tuple[Listener, ...]:
    """All that listens; Unknowable where that was not told. Needs PORTS."""
    answer = facts.answer(PORTS)
    if not isinstance(answer, list):
        raise Unknowable("listening sockets were not told", "sudo ss -ltnp")
    found: list[Listener] = []
    for row in answer:
        port = row.get("port") if isinstance(row, Mapping) else None
        if not isinstance(port, int):
            continue
        pids = [pid for pid in row.get("pids") or () if isinstance(pid, int)]
        name = one_line(str(row.get("process") or ""), 60)
        found.append(Listener(str(row.get("address") or ""), port, pids[0] if pids else None, name))
    return tuple(found)


def published(found: Mapping[str, Any]) -> tuple[int, ...]:
    """TCP ports of this host that a container takes: those it publishes, or Triton's own in the host's network."""
    if box.at(found, "HostConfig", "NetworkMode") == "host":
        return tuple(container_settings.inside_ports(found).values())
    ports = {whole_number(one.outside) for one in container_settings.published(found)}
    return tuple(sorted(port for port in ports if port))


# ----------------------------------------------------------------------------------------------------------------- I01


@check(
    "I01",
    "the published ports listen",
    group="network",
    slug="ports-listen",
    needs=(PORTS, METADATA, *container.NEEDS),
    why=(
        "Podman holds each published port while the container runs. One that nothing listens on means that its "
        "forwarder died: clients are refused although the server is well."
    ),
    source="podman-run(1) --publish; podman troubleshooting",
)
def listen(facts: Facts) -> Answer:
    if none := box.no_container(facts):
        return skip(none)
    found = box.inspect(facts)
    if not box.runs(found):
        return skip("the container does not run")
    wanted = published(found)
    if not wanted:
        return skip("the container publishes no port (E06)")
    here = listeners(facts)
    evidence = [_line(one) for one in here if one.port in wanted]
    missing = [port for port in wanted if port not in {one.port for one in here}]
    if not missing:
        return ok(f"{_listed(wanted)} listen", evidence)
    if box.at(found, "HostConfig", "NetworkMode") == "host":
        return note(f"{_listed(missing)}: Triton opens them once its models are loaded", evidence)
    if len(missing) == len(wanted) and not facts.why_not(METADATA) and isinstance(facts.answer(METADATA), dict):
        # with enable_port_reservation=false of containers.conf the ports are rules of the firewall alone
        return note(f"nothing listens on {_listed(missing)}, and Triton answers: by rules alone", evidence)
    name = container.name_of(found)
    unit = container.unit_of(facts)
    line = f"{unit.systemctl} restart {shlex.quote(unit.name)}" if unit is not None else ""
    fix = Fix(
        "B",
        (line or container.podman(facts, f"restart {shlex.quote(name)}"),),
        "the server is away until its models are loaded again",
        action="container.restart",
        again=("I02", "E07"),
    )
    text = f"nothing listens on {_listed(missing)}, which {one_line(name, 40)} publishes"
    return fail(text, evidence or [Evidence(PORTS, f"no listener on {_listed(missing)}")], fix, port=str(missing[0]))


def _listed(ports: Sequence[int]) -> str:
    return ", ".join(str(port) for port in ports[:6]) + (f" and {len(ports) - 6} more" if len(ports) > 6 else "")


def _line(one: Listener) -> Evidence:
    address = f"[{one.address}]" if ":" in one.address else one.address
    who = f"{one.name or 'process'} ({one.pid})" if one.pid is not None else "whose it is only root may see"
    return Evidence("$ ss -ltnp", f"{address}:{one.port}  {who}")


# ----------------------------------------------------------------------------------------------------------------- I02


class _Holder(Struct, frozen=True):
    """Who has a port that is wanted. `kind`: service, container, left, triton, other, hidden."""

    port: int
    kind: str
    words: str
    """`podman system service (812)`."""
    pid: int | None = None
    row: Mapping[str, Any] = {}
    """Of `@processes`."""


_FORWARDERS = ("conmon", "rootlessport", "pasta", "slirp4netns")
_AT_REST = frozenset({"exited", "created", "configured", "stopped", "dead", "initialized"})


@check(
    "I02",
    "nobody else has the server's ports",
    group="network",
    slug="port-holder",
    needs=(PORTS, _PROCESSES, _CONTAINERS, _SETTINGS, "@me", *container.NEEDS),
    why=(
        "A container cannot start while another process has one of its ports: address already in use. After a start "
        "that failed Podman's own API service can keep the port for some two minutes, which looks like a riddle."
    ),
    source="podman#20434, #3696, conmon#144; host.md 3.6",
)
def holder(facts: Facts) -> Answer:
    here = listeners(facts)
    blind: Unknowable | None = None
    found: Mapping[str, Any] | None = None
    try:
        found = None if box.no_container(facts) else box.inspect(facts)
    except Unknowable as why:
        blind = why
    wanted = _wanted(facts, found)
    busy = sorted((one for one in here if one.port in wanted), key=lambda one: one.port)
    if not busy:
        return ok(f"{_listed(wanted)} are free")
    if found is not None and box.runs(found):
        return _running(found, busy)
    holders = list({one.port: one for one in (_who(facts, one) for one in busy)}.values())
    evidence = [_line(one) for one in busy]
    leak = next((one for one in holders if one.kind == "service"), None)
    if leak is not None:
        text = f"{leak.port}: {leak.words} keeps it, as after a start that failed"
        return fail(text, evidence, _release(facts, leak), **_data(leak, "podman system service"))
    if blind is not None:
        raise blind
    first = min(holders, key=lambda one: ("container", "left", "other", "hidden", "triton").index(one.kind))
    text = f"{first.port} is held by {first.words}"
    if found is None:
        unit = container.unit_of(facts)
        # Where the unit removes its container nothing tells which ports it publishes: likely, not sure.
        if unit is not None and unit.property("ActiveState") in ("failed", "activating"):
            text = f"{text}; {one_line(unit.name, 40)} may want it and does not come up"
            return warn(text, evidence, _free(facts, first), **_data(first))
        return note(f"{text}; no Triton container wants it now", evidence, **_data(first))
    status = str(box.at(found, "State", "Status") or "")
    if first.kind == "left" and status not in _AT_REST:
        return note(f"{text}; the container is {one_line(status, 20)}", evidence, **_data(first))
    if first.kind == "hidden":
        text = f"{first.port} is held by {first.words}: the container cannot start"
        return fail(
            text, evidence, Fix("S", (f"sudo ss -ltnp 'sport = :{first.port}'",), "names the process"), **_data(first)
        )
    return fail(f"{text}: the container cannot start", evidence, _free(facts, first), **_data(first))


def _data(one: _Holder, name: str = "") -> dict[str, Any]:
    """Typed loosely: it is spread into the keyword arguments of an answer."""
    return {"port": str(one.port), "holder": name or one.words, "pid": "" if one.pid is None else str(one.pid)}


def _wanted(facts: Facts, found: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Ports that the container takes, and those that the console is set to ask; Triton's own where neither is told."""
    try:
        told = facts.answer(_SETTINGS)
    except Unknowable:
        told = None
    ports = set(published(found)) if found is not None else set()
    any_told = bool(ports)
    for setting, default in _FRONT_ENDS:
        port = told.get(setting) if isinstance(told, Mapping) else None
        if isinstance(port, int) and port > 0:
            ports.add(port)
        elif not any_told:
            ports.add(default)
    return tuple(sorted(ports))


def _running(found: Mapping[str, Any], busy: Sequence[Listener]) -> Answer:
    own = set(published(found))
    evidence = [_line(one) for one in busy]
    other = next((one for one in busy if one.port not in own), None)
    if other is not None:
        who = f"{other.name or 'a process'} ({other.pid})" if other.pid is not None else "another process"
        return note(f"{other.port} is set here, but {who} has it and the container does not publish it", evidence)
    names = sorted({one.name for one in busy if one.name})
    by = f" through {', '.join(names)}" if names else ""
    return ok(f"the running container has {_listed(sorted({one.port for one in busy}))}{by}", evidence)


def _who(facts: Facts, one: Listener) -> _Holder:
    row = _process(facts, one.pid)
    name = str(row.get("name") or one.name)
    argv = container.strings(row.get("argv"))
    pid = f" ({one.pid})" if one.pid is not None else ""
    if name == "podman" and (not argv or {"system", "service"} <= set(argv)):
        return _Holder(one.port, "service", f"podman system service{pid}", one.pid, row)
    other = _other_container(facts, one.port)
    if other:
        return _Holder(one.port, "container", f"container {other}", one.pid, row)
    if name.startswith(_FORWARDERS):
        whose = _after(argv, "-n", "--name")
        of = f" of {one_line(whose, 40)}" if whose else ""
        return _Holder(one.port, "left", f"{one_line(name, 30)}{pid}{of}, left over", one.pid, row)
    if name == "tritonserver" or is_tritonserver(argv):
        return _Holder(one.port, "triton", f"a tritonserver outside of the container{pid}", one.pid, row)
    if one.pid is None:
        return _Holder(one.port, "hidden", "a process that only root may see")
    return _Holder(one.port, "other", f"{one_line(name, 40) or 'a process'}{pid}", one.pid, row)


def _process(facts: Facts, pid: int | None) -> Mapping[str, Any]:
    try:
        rows = facts.answer(_PROCESSES)
    except Unknowable:
        return {}
    if pid is None or not isinstance(rows, list):
        return {}
    return next((row for row in rows if isinstance(row, Mapping) and row.get("pid") == pid), {})


def _after(argv: Sequence[str], *flags: str) -> str:
    return next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in flags), "")


def _other_container(facts: Facts, port: int) -> str:
    """Name of a running container other than Triton's that publishes the port; "" = none that Podman tells of."""
    try:
        rows = facts.answer(_CONTAINERS)
    except Unknowable:
        return ""
    mine = facts.every("container_id")
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, Mapping) or row.get("State") != "running" or row.get("Id") in mine:
            continue
        for mapping in row.get("Ports") or ():
            first = mapping.get("host_port") if isinstance(mapping, Mapping) else None
            span = mapping.get("range") if isinstance(mapping, Mapping) else None
            last = first + (span if isinstance(span, int) and span > 0 else 1) - 1 if isinstance(first, int) else 0
            if isinstance(first, int) and first <= port <= last:
                return one_line(", ".join(container.strings(row.get("Names"))) or str(row.get("Id"))[:12], 40)
    return ""


def _release(facts: Facts, leak: _Holder) -> Fix:
    """End the API service that keeps the port: its unit where it is one, else the process itself."""
    uid = leak.row.get("uid")
    user = str(leak.row.get("user") or "")
    effect = "frees the port at once (by itself in two minutes); API streams end, no container stops, nothing to undo"
    again = ("I01", "E01", "D01")
    cgroup = str(leak.row.get("cgroup") or "")
    if cgroup and "podman.service" not in cgroup:
        sudo = "" if _is_me(facts, uid) else "sudo "
        return Fix(
            "S", (f"{sudo}kill {leak.pid}",), f"{effect}. It is in no podman.service: who started it?", again=again
        )
    restart = ("restart", "podman.service")
    if uid in (None, 0):
        words: tuple[str, ...] = ("systemctl", *restart)
        return Fix("B", (f"sudo {' '.join(words)}",), effect, deeds=(Deed("run", words),), again=again)
    words = ("systemctl", "--user", *restart)
    if _is_me(facts, uid):
        return Fix("B", (" ".join(words),), effect, deeds=(Deed("run", words, root=False),), again=again)
    runtime = f"XDG_RUNTIME_DIR=/run/user/{uid}"
    deeds = (Deed("run", ("runuser", "-u", user, "--", "env", runtime, *words)),) if user else ()
    line = f"sudo -u {shlex.quote(user or f'#{uid}')} {runtime} {' '.join(words)}"
    return Fix("B", (line,), effect, deeds=deeds, again=again)


def _is_me(facts: Facts, uid: Any) -> bool:
    try:
        me = box.at(facts.answer("@me"), "uid")
    except Unknowable:
        return False
    return isinstance(uid, int) and me == uid


def _free(facts: Facts, one: _Holder) -> Fix:
    sudo = "" if _is_me(facts, one.row.get("uid")) else "sudo "
    if one.kind == "container":
        name = one.words.removeprefix("container ")
        return Fix(
            "S", (container.podman(facts, f"stop {shlex.quote(name)}"),), "or publish another port for one of them"
        )
    if one.kind == "left":
        return Fix("S", (f"{sudo}kill {one.pid}",), "ends what a container left behind; no running one is touched")
    return Fix("S", (f"ps -fp {one.pid}", f"{sudo}kill {one.pid}"), "look whose it is first, or publish another port")
