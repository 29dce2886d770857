"""What no file of the simulated host's folder holds: attributes, devices, what programs print, units, ports.

Checks read it as the recording beside the folder (`.gpuconsole/box.json`, sources/facts_host.py); Podman, Triton and
the card answer for themselves. What never differs stands in host.toml; here is what follows from the scene, from the
container that runs, and from the model repository.
"""

from __future__ import annotations

import contextlib
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from console.clients.tree import RECORDING, Told
from console.core.facts import AnswerFact, CommandFact, SpaceFact
from console.simulator.card import DRIVER, NAME, UPDATED_LIBRARY, UUID
from console.simulator.containers import ADDRESS, Container
from console.simulator.host import CARD, CORES, HOSTNAME, KERNEL, LIBRARIES

FILE = f"{RECORDING}/box.json"
MIB = 1024 * 1024
HEAD = 28
"""Bytes of an engine file's beginning that checks look at."""
SEEN = Told("file", size=MIB)
PROGRAM = Told("file", mode=0o755, size=MIB, label="system_u:object_r:bin_t:s0")
LIBRARY = Told("file", mode=0o755, size=2 * MIB, label="system_u:object_r:lib_t:s0")
DEVICE_LABEL = "system_u:object_r:xserver_misc_device_t:s0"
MODEL_LABEL = "system_u:object_r:container_file_t:s0"
CONMON_BEFORE = 3
"""Process ids by which conmon's comes before the container's own."""
Row = dict[str, Any]
"""Of an answer."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What host.toml says, for one driver on disk."""

    files: Mapping[str, Told]
    devices: Mapping[str, tuple[int, int, int, int]]
    """Path below /dev -> major, minor, mode, group."""
    commands: Mapping[str, CommandFact]
    spaces: Mapping[str, SpaceFact]
    units: Mapping[str, Row]


def machine(mismatch: bool) -> Machine:
    """mismatch: the driver on disk is newer than the one that runs."""
    library = UPDATED_LIBRARY if mismatch else DRIVER
    text = Path(__file__).with_name("host.toml").read_text(encoding="utf-8")
    names = {"DRIVER": DRIVER, "LIBRARY": library, "KERNEL": KERNEL, "CARD": CARD, "UUID": UUID}
    told = tomllib.loads(Template(text).safe_substitute(names))
    files = {path: _file(one) for path, one in told["files"].items()}
    files |= dict.fromkeys(told["programs"], PROGRAM)
    files |= dict.fromkeys(told["seen"], SEEN)
    files |= dict.fromkeys((f"/usr/lib64/{name}.{library}" for name in LIBRARIES), LIBRARY)
    for number in range(CORES):
        folder = f"/sys/devices/system/cpu/cpu{number}"
        files |= {f"{folder}/{name}": _file(text) for name, text in told["processor"].items()}
    files["/proc/cpuinfo"] = _file("\n".join(_processor(number) for number in range(CORES)))
    commands = {words: _command(one) for words, one in told["commands"].items()}
    commands["nvidia-smi -q"] = _query(mismatch)
    devices = {name: tuple(numbers) for name, numbers in told["devices"].items()}
    spaces = msgspec.convert(told["spaces"], dict[str, SpaceFact])
    return Machine(files, devices, commands, spaces, dict(_units(told["units"])))


def _file(told: str | Row) -> Told:
    return Told("file", text=told) if isinstance(told, str) else msgspec.convert(told, Told)


def _command(told: str | Row) -> CommandFact:
    return CommandFact(0, told) if isinstance(told, str) else msgspec.convert(told, CommandFact)


def _query(mismatch: bool) -> CommandFact:
    if mismatch:
        return CommandFact(18, "Failed to initialize NVML: Driver/library version mismatch\n")
    return CommandFact(
        0,
        f"Driver Version                            : {DRIVER}\nAttached GPUs                             : 1\n"
        f"GPU 0000{CARD.upper()}\n    Product Name                          : {NAME}\n"
        f"    GPU UUID                              : {UUID}\n    ECC Mode\n"
        "        Current                           : Enabled\n        Pending                           : Enabled\n",
    )


def _processor(number: int) -> str:
    return (
        f"processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
        f"model name\t: Intel(R) Xeon(R) Gold 6234 CPU @ 3.30GHz\nphysical id\t: 0\nsiblings\t: {CORES}\n"
        f"core id\t\t: {number % (CORES // 2)}\ncpu cores\t: {CORES // 2}\nflags\t\t: fpu vme sse2 ht avx2 avx512f\n"
    )


def _units(told: Mapping[str, list[str]]) -> Iterator[tuple[str, Row]]:
    states = {
        "running": ("loaded", "active", "running", "enabled"),
        "stopped": ("loaded", "inactive", "dead", "disabled"),
        "missing": ("not-found", "inactive", "dead", ""),
    }
    for kind, names in told.items():
        load, active, sub, enabled = states[kind]
        for name in names:
            yield (
                name,
                {
                    "Id": name,
                    "LoadState": load,
                    "ActiveState": active,
                    "SubState": sub,
                    "Result": "success",
                    "UnitFileState": enabled,
                    "NeedDaemonReload": "no",
                    "NRestarts": "0",
                    "ExecMainStatus": "0",
                    "FragmentPath": f"/usr/lib/systemd/system/{name}" if load == "loaded" else "",
                },
            )


# --------------------------------------------------------------------------------------------------------------- moment


def recording(box: Machine, container: Container | None, repository: Path) -> str:
    """The recording's text (sources/facts_host.py, Recording) while this container runs (None = none does)."""
    files = {**box.files, **_devices(box, ""), **dict(_models(repository))}
    if container is not None:
        files |= _devices(box, f"/proc/{container.pid}/root")
    heads = f"find {shlex.quote(str(repository))} -mindepth 3 -maxdepth 3 -name '*.plan'"
    heads += f" -printf '%p\\n' -exec od -A n -t x1 -N {HEAD} {{}} ';'"
    commands = {
        heads: CommandFact(0, "".join(_heads(repository))),
        "iptables-save -t nat": CommandFact(0, _nat_rules(container)),
    }
    told = {
        "host": HOSTNAME,
        "files": files,
        "commands": {**box.commands, **commands},
        "answers": {
            "@me": AnswerFact({"uid": 0, "user": "root", "groups": ["root"], "sudo": True}),
            "@units": AnswerFact(box.units),
            "@ports": AnswerFact(_ports(container)),
            "@processes": AnswerFact(_processes(container)),
        },
        "spaces": box.spaces,
    }
    return msgspec.json.encode(told).decode()


def _devices(box: Machine, root: str) -> dict[str, Told]:
    found = {}
    for name, (major, minor, mode, group) in box.devices.items():
        if root and "dri" in name:
            continue
        node = Told("char", device=(major, minor), mode=mode, gid=group, label=DEVICE_LABEL)
        found[f"{root}/dev/{name}"] = node
        if not root and major != 226:
            found[f"/dev/char/{major}:{minor}"] = Told(target=f"../{name}")
    return found


def _models(repository: Path) -> Iterator[tuple[str, Told]]:
    for path in (repository, *sorted(repository.rglob("*"))):
        with contextlib.suppress(FileNotFoundError):  # somebody changes the repository meanwhile
            yield str(path), Told(label=MODEL_LABEL, mtime=path.stat().st_mtime)


def _heads(repository: Path) -> Iterator[str]:
    for path in sorted(repository.glob("*/*/*.plan")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            head = file.read(HEAD)
            yield f"{path}\n"
            yield from (f" {head[at : at + 16].hex(' ')}\n" for at in range(0, len(head), 16))


def _nat_rules(container: Container | None) -> str:
    """netavark's, which lead the published ports on."""
    rules = [
        f"-A NETAVARK-DN-1D8721804F16F -d {address}/32 -p tcp -m tcp --dport {port} -j DNAT --to-destination "
        f"{ADDRESS}:{inside}\n"
        for inside, (address, port) in (container.ports.items() if container is not None else ())
    ]
    return f"*nat\n:NETAVARK-DN-1D8721804F16F - [0:0]\n{''.join(rules)}COMMIT\n"


def _ports(container: Container | None) -> list[Row]:
    """Listening sockets: conmon holds those that Podman publishes."""
    rows = [{"address": "0.0.0.0", "port": 22, "inode": 31122, "pids": [1390], "process": "sshd"}]
    if container is not None:
        for inode, (address, port) in enumerate(container.ports.values(), start=4_412_210):
            held = {"pids": [container.pid - CONMON_BEFORE], "process": "conmon"}
            rows.append({"address": address, "port": port, "inode": inode, **held})
    return rows


def _processes(container: Container | None) -> list[Row]:
    rows = [
        _process(1402, 1, "nvidia-persistenced", ["/usr/bin/nvidia-persistenced", "--user", "nvidia-persistenced"])
        | {"uid": 989, "user": "nvidia-persistenced"},
        _process(9120, 1, "podman", ["/usr/bin/podman", "system", "service"]),
    ]
    if container is not None:
        conmon = container.pid - CONMON_BEFORE
        scope = f"/machine.slice/libpod-{container.id}.scope"
        argv = ["/usr/bin/conmon", "--api-version", "1", "-c", container.id, "-n", container.name, "-l", "k8s-file"]
        rows.append(_process(conmon, 1, "conmon", argv) | {"cgroup": scope.replace("libpod-", "libpod-conmon-")})
        rows.append(_process(container.pid, conmon, "tritonserver", container.command) | {"cgroup": scope})
    return rows


def _process(pid: int, parent: int, name: str, argv: list[str]) -> Row:
    known = {"pid": pid, "parent": parent, "uid": 0, "user": "root", "name": name, "argv": argv}
    return {**known, "cgroup": f"/system.slice/{name}.service"}
