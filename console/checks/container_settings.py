"""What the container was made with: ports, shared memory, limits, the time that it gets to stop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from console.checks.box import argv, at, flag, inspect, no_container
from console.checks.check import Answer, check, note, ok, skip, unknown, warn
from console.checks.container import NEEDS, is_rootless, number, recreate, seen, unit_of
from console.checks.tuning_fixes import LIMITS_NEEDS, limits_fix
from console.core import triton_command
from console.core.facts import Evidence, Facts
from console.core.finding import Fix
from console.core.text import one_line
from console.core.units import GIB, KIB, MIB, size

LIMITS = "/proc/{container_pid}/limits"
WANTED_STACK, WANTED_FILES = 67108864, 65536
ENOUGH_LOCKED = 8 * MIB
"""Bytes of memlock: the defaults of kernels and systemd lie at or below it."""
SPARE = 10
"""Seconds that Podman's stop time is to be longer than Triton's drain."""
_ALL = frozenset({"", "0.0.0.0", "::", "*"})
_STOP_OPTION = re.compile(r"(?:--time|--timeout|-t)[= ](\d{1,5})\b")


# --------------------------------------------------------------------------------------------------------------- ports


class Published(Struct, frozen=True):
    """A published port."""

    inside: int
    address: str
    outside: str


def published(found: Mapping[str, Any]) -> tuple[Published, ...]:
    """TCP ports by the network, else by what it was made with (Podman tells the former only while it runs)."""
    ports = at(found, "NetworkSettings", "Ports")
    if not isinstance(ports, dict) or not any(ports.values()):
        ports = at(found, "HostConfig", "PortBindings")
    all_: list[Published] = []
    for key, bindings in ports.items() if isinstance(ports, dict) else ():
        text, _, protocol = str(key).partition("/")
        inside = number(text)
        if inside is None or protocol not in ("", "tcp") or not isinstance(bindings, list):
            continue
        all_ += [
            Published(inside, str(one.get("HostIp") or ""), str(one.get("HostPort") or inside))
            for one in bindings
            if isinstance(one, dict)
        ]
    return tuple(sorted(all_, key=lambda port: port.inside))


def inside_ports(found: Mapping[str, Any]) -> dict[str, int]:
    """Front end -> its port in the container; without those that the command switches off."""
    return triton_command.own_ports(argv(found))


@check(
    "E06",
    "its ports are open, and to the right ones",
    group="container",
    slug="published-ports",
    needs=NEEDS,
    why="Without 8001 there is no gRPC, and a load over HTTP stalls other requests; without 8002 nobody sees its "
    "metrics. Triton asks nobody who they are: what is open to all can be used, and reloaded, by all.",
    source="host.md E06; triton.md 1.5",
)
def published_ports(facts: Facts) -> Answer:
    """Ports that are missing, and those on all addresses."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    mode = str(at(found, "HostConfig", "NetworkMode") or "")
    if mode.startswith(("container:", "ns:")):
        return skip(f"it has another's network ({one_line(mode, 40)})")
    wanted = inside_ports(found)
    if mode == "host":
        return _host_network(found, wanted)
    ports = published(found)
    evidence = seen(found, "HostConfig.PortBindings")
    by_inside = {port.inside: port for port in ports}
    missing = {name: port for name, port in wanted.items() if port not in by_inside}
    opened = [port for port in ports if port.address in _ALL and port.inside in wanted.values()]
    data = {"missing": ",".join(map(str, missing.values())), "open": ",".join(str(port.inside) for port in opened)}
    restricted = _restricted(found)
    words = [f"{port} ({name}) is not published" for name, port in missing.items()]
    if opened:
        names = ", ".join(str(port.inside) for port in opened)
        words.append(
            f"{names} open on all addresses" + (", part of it with a key" if restricted else ", without a login")
        )
    if not words:
        return ok(", ".join(f"{port.address}:{port.outside}" for port in ports), evidence)
    if not missing and restricted:
        return note("; ".join(words), evidence, **data)
    return warn("; ".join(words), evidence, _ports_fix(facts, ports, missing), **data)


def _restricted(found: Mapping[str, Any]) -> bool:
    return any(flag(found, name) is not None for name in ("http-restricted-api", "grpc-restricted-protocol"))


def _host_network(found: Mapping[str, Any], wanted: Mapping[str, int]) -> Answer:
    evidence = seen(found, "HostConfig.NetworkMode")
    addresses = {flag(found, f"{name}-address") or "" for name in ("http", "grpc", "metrics") if name in wanted}
    names = ", ".join(map(str, wanted.values()))
    if not addresses & _ALL:
        return ok(f"{names} in the host's network, on {', '.join(sorted(addresses))}", evidence)
    text = f"in the host's network: {names} open on all addresses"
    if _restricted(found):
        return note(f"{text}, part of it with a key", evidence, open=names)
    return warn(f"{text}, without a login", evidence, open=names)


def _ports_fix(facts: Facts, ports: tuple[Published, ...], missing: Mapping[str, int]) -> Fix:
    asked = [_binding(port) for port in ports]
    if missing:
        asked += [f"127.0.0.1:{port}:{port}" for port in missing.values()]
        added = " ".join(f"--publish=127.0.0.1:{port}:{port}" for port in missing.values())
        return recreate(facts, {"ports": ",".join(asked)}, added, ("E07", "I01"))
    local = ",".join(f"127.0.0.1:{port.outside}:{port.inside}" for port in ports)
    shown = recreate(facts, {"ports": local}, f"--publish={local.replace(',', ' --publish=')}")
    return Fix(
        "S",
        shown.commands,
        effect="only where a proxy on this host stands in front: clients of other hosts lose it. Else let the firewall "
        "name them, or --http-restricted-api=model-repository,…:HEADER=KEY keep control to who has the key",
        undo=shown.undo,
    )


def _binding(port: Published) -> str:
    address = f"[{port.address}]" if ":" in port.address else port.address
    return f"{address}:{port.outside}:{port.inside}" if address else f"{port.outside}:{port.inside}"


# ------------------------------------------------------------------------------------------------------- shared memory


@check(
    "E08",
    "shared memory is large enough",
    group="container",
    slug="shm-size",
    needs=NEEDS,
    why="Python models and ensembles pass tensors through /dev/shm, and clients may do so too. Podman's default of "
    "62.5 MiB is full after a few large batches, and their requests fail.",
    source="NVIDIA's image (SHMEM note); triton docs, --shm-size=1g; triton server#1931",
)
def shm_size(facts: Facts) -> Answer:
    """The size that the container was made with."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    ipc = str(at(found, "HostConfig", "IpcMode") or "")
    if ipc == "host":
        return note("it shares the host's /dev/shm (F15)", seen(found, "HostConfig.IpcMode"))
    if ipc.startswith("container:"):
        return skip("it shares another container's /dev/shm")
    held = number(at(found, "HostConfig", "ShmSize"))
    evidence = seen(found, "HostConfig.ShmSize")
    if not held:
        return unknown("the size of its /dev/shm is not told", evidence=evidence)
    if held >= GIB:
        return ok(size(held), evidence, shm=str(held))
    text = f"{size(held)}, where 1 GiB is advised"
    return warn(text, evidence, recreate(facts, {"shm_size": "1g"}, "--shm-size=1g", ("E05",)), shm=str(held))


# -------------------------------------------------------------------------------------------------------------- limits

_ROWS = {"memlock": "Max locked memory", "stack": "Max stack size", "nofile": "Max open files"}


def _limits(facts: Facts, found: Mapping[str, Any]) -> tuple[dict[str, tuple[int, int]], tuple[Evidence, ...]]:
    """Name -> (soft, hard), -1 = none: of the running process, else as it was made."""
    for pid in facts.every("container_pid"):
        path = LIMITS.replace("{container_pid}", pid)
        lines = {name: facts.lines(path, f"^{row} ") for name, row in _ROWS.items()}
        told = {name: _pair(rows[0].text[len(_ROWS[name]) :].split()[:2]) for name, rows in lines.items() if rows}
        limits = {name: pair for name, pair in told.items() if pair is not None}
        if limits:
            return limits, tuple(rows[0] for rows in lines.values() if rows)
    asked = at(found, "HostConfig", "Ulimits")
    limits = {}
    for one in asked if isinstance(asked, list) else ():
        name = str(at(one, "Name") or "").removeprefix("RLIMIT_").lower()
        pair = _pair([str(at(one, "Soft")), str(at(one, "Hard"))])
        if name in _ROWS and pair is not None:
            limits[name] = pair
    return limits, seen(found, "HostConfig.Ulimits")


def _pair(words: list[str]) -> tuple[int, int] | None:
    values = [-1 if word in ("unlimited", "-1") else number(word) for word in words]
    if len(values) != 2 or values[0] is None or values[1] is None:
        return None
    soft, hard = (-1 if value >= 2**63 - 1 else value for value in (values[0], values[1]))
    return soft, hard


def _below(value: int, wanted: int) -> bool:
    return value != -1 and (wanted == -1 or value < wanted)


@check(
    "E09",
    "its limits fit CUDA and many connections",
    group="container",
    slug="ulimits",
    needs=(*NEEDS, LIMITS, *LIMITS_NEEDS),
    why="Locked memory is what fast copies to the GPU and RDMA go through, and each connection is an open file. A "
    "limit that is too low shows as slow copies, or as connections that are refused under load.",
    source="triton docs (--ulimit memlock=-1 --ulimit stack=67108864); podman#19319",
)
def ulimits(facts: Facts) -> Answer:
    """memlock, nofile and stack."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    limits, evidence = _limits(facts, found)
    if not limits:
        return unknown("its limits are not told", "cat /proc/$(pgrep -o tritonserver)/limits", evidence)
    words, asked = [], {}
    memlock, files = limits.get("memlock"), limits.get("nofile")
    if memlock is not None and memlock[0] != -1 and memlock[0] <= ENOUGH_LOCKED:
        words.append(f"memlock {_bytes(memlock[0])}")
        asked["memlock"] = "-1"
    if files is not None and _below(files[0], WANTED_FILES):
        words.append(f"nofile {files[0]}")
        asked["nofile"] = "1048576"
    stack = limits.get("stack")
    if not words:
        text = ", ".join(f"{name} {_shown(name, pair[0])}" for name, pair in limits.items())
        if stack is not None and _below(stack[0], WANTED_STACK):
            return note(f"{text}; NVIDIA advises a stack of 64 MiB", evidence)
        return ok(text, evidence)
    asked["stack"] = str(WANTED_STACK)
    data = {name: str(pair[0]) for name, pair in limits.items()}
    return warn(f"{', '.join(words)}: too low", evidence, _limits_fix(facts, limits, asked), **data)


def _shown(name: str, value: int) -> str:
    return "unlimited" if value == -1 else str(value) if name == "nofile" else _bytes(value)


def _bytes(value: int) -> str:
    return size(value) if value >= KIB else f"{value} B"


def _limits_fix(facts: Facts, limits: Mapping[str, tuple[int, int]], asked: Mapping[str, str]) -> Fix:
    values = ",".join(f"{name}={value}" for name, value in asked.items())
    options = " ".join(f"--ulimit={name}={value}" for name, value in asked.items())
    change = recreate(facts, {"ulimits": values}, options, ("F13", "F14"))
    capped = [name for name in asked if name in limits and _below(limits[name][1], int(asked[name]))]
    if not is_rootless(facts) or not capped:
        return change
    user = next(iter(facts.every("user")), "USER")
    effect = (
        f"raises the hard limit of {user} from the next login on (all sessions ended, or a reboot). Not before, make "
        f"the container anew: {'; '.join(change.commands)}"
    )
    return limits_fix(facts, user, {name: asked[name] for name in capped}, effect, ("F14",))


# ---------------------------------------------------------------------------------------------------------------- stop


@check(
    "E11",
    "it gets the time that Triton drains for",
    group="container",
    slug="stop-timeout",
    needs=NEEDS,
    why="Triton finishes what it has accepted before it ends, for --exit-timeout-secs. Podman's stop time is 10 s "
    "unless told: then it kills the server in the middle of requests, and the driver may log an Xid 45.",
    source="triton command_line_parser.h, exit_timeout_secs_{30}",
)
def stop_timeout(facts: Facts) -> Answer:
    """Podman's stop time against Triton's exit timeout."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    given = number(at(found, "Config", "StopTimeout"))
    evidence = (*seen(found, "Config.StopTimeout"), *_exit_evidence(found))
    if given is None:
        return unknown("its stop time is not told", evidence=evidence)
    drain = triton_command.exit_timeout(argv(found))
    drain = triton_command.DEFAULT_EXIT_TIMEOUT if drain is None else drain
    data = {"stop": str(given), "drain": str(drain)}
    if given >= drain + SPARE:
        return ok(f"{given} s, Triton drains for up to {drain} s", evidence, **data)
    wanted = max(60, drain + 30)
    owner = unit_of(facts)
    by_unit = max((int(one) for one in _STOP_OPTION.findall(owner.property("ExecStop"))), default=0) if owner else 0
    if owner is not None and by_unit >= drain + SPARE:
        return note(f"{owner.name} stops it with {by_unit} s; a plain podman stop has {given} s", evidence, **data)
    fix = recreate(facts, {"stop_timeout": str(wanted)}, f"--stop-timeout={wanted}")
    what = "every stop becomes a kill" if given < drain else "a slow stop becomes a kill"
    return warn(f"{given} s against {drain} s: {what}", evidence, fix, **data)


def _exit_evidence(found: Mapping[str, Any]) -> tuple[Evidence, ...]:
    given = flag(found, "exit-timeout-secs")
    text = f"--exit-timeout-secs={one_line(given, 20)}" if given is not None else "no --exit-timeout-secs: 30 s"
    return (Evidence("its command", text),)
