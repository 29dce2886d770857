"""What is looked at before a running container is touched for a new one: whatever would make the new one fail to start.

After a failed start Podman's service may keep the published ports for two minutes (host.md 3.6), so even going back
takes long: better to know first.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.actions.box import Box
from console.actions.container_spec import UNLIMITED, Body, port_words
from console.actions.powering import port_holder
from console.actions.service_rights import ServiceRights, service_rights
from console.actions.spec_changes import ranges
from console.actions.target import ContainerView
from console.clients import cdi, libpod
from console.core import units
from console.core.model import GpuBox, SourceError
from console.core.plan import Check
from console.core.text import one_line

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CONDITION = re.compile(r"(?P<what>cuda|driver|brand|arch)(?P<sign>>=|<=|=|<|>)(?P<value>[\w.-]+)")
_SELINUX_TYPES = ("container_file_t", "container_ro_file_t", "svirt_sandbox_file_t", "container_share_t")


def preflight(
    box: Box, view: ContainerView, body: Body, held: Sequence[int] = (), holds: str = ""
) -> tuple[Check, ...]:
    """All checks of a body that is to be created and started. `held`: host ports that the container which will be
    stopped has; `holds`: its id (its processes' memory comes free)."""
    found = view.image(body["image"])
    gpus = _gpus(box)
    rights = service_rights(box)
    return (
        _image(body, found),
        *_runnable(found, gpus, body),
        *_devices(box, body),
        *_paths(box, body),
        *_ports(box, body, held, rights),
        *_limits(body, rights),
        *_places(box, body),
        *_memory(gpus, holds),
    )


def first_failure(checks: Sequence[Check]) -> str:
    """The first thing that makes it impossible; "" = none."""
    return next((check.text for check in checks if check.sign == "fail"), "")


# -------------------------------------------------------------------------------------------------------------- image


def _image(body: Body, found: Mapping[str, Any] | None) -> Check:
    name = one_line(body.get("raw_image_name") or body["image"], 120)
    if found is None:
        return Check("fail", f"image {name} is not on this box: pull it first (image.pull)")
    wanted, here = str(found.get("Architecture") or ""), _MACHINES.get(platform.machine(), platform.machine())
    if wanted and wanted != here:
        return Check("fail", f"image {name} is made for {wanted}, this host is {here}")
    return Check("ok", f"image {name} is here ({str(found.get('Id', ''))[:12]})")


def _runnable(found: Mapping[str, Any] | None, gpus: GpuBox | str, body: Body) -> Iterator[Check]:
    own = (found or {}).get("Config") or {}
    env = dict(str(line).partition("=")[::2] for line in own.get("Env") or ()) | (body.get("env") or {})
    rule = env.get("NVIDIA_REQUIRE_CUDA", "")
    if not rule or env.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true"):
        return
    if isinstance(gpus, str):
        yield Check("unknown", f"whether the driver is new enough for the image is not known: {gpus}")
        return
    facts = {"cuda": gpus.cuda, "driver": gpus.driver}
    if requirement(rule, facts):
        yield Check("ok", f"driver {gpus.driver} (CUDA {gpus.cuda}) is new enough for the image")
    else:
        yield Check(
            "fail", f"driver {gpus.driver} (CUDA {gpus.cuda}) is too old for the image: it wants {_least(rule)}"
        )


def requirement(rule: str, facts: Mapping[str, str | None]) -> bool:
    """NVIDIA_REQUIRE_CUDA: blanks mean or, commas and. Conditions on what is not known here (brand) hold."""
    return any(all(_holds(part, facts) for part in group.split(",")) for group in rule.split()) or not rule.split()


def _holds(part: str, facts: Mapping[str, str | None]) -> bool:
    match = _CONDITION.fullmatch(part)
    if match is None or facts.get(match["what"]) is None:
        return True
    have, want = _numbers(facts[match["what"]] or ""), _numbers(match["value"])
    if not have or not want:
        return True
    width = max(len(have), len(want)) if match["sign"] != "=" else len(want)
    have, want = _padded(have, width), _padded(want, width)
    return {">=": have >= want, "<=": have <= want, "=": have == want, "<": have < want, ">": have > want}[
        match["sign"]
    ]


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isascii() and part.isdigit() for part in parts) else ()


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return (numbers + (0,) * width)[:width]


def _least(rule: str) -> str:
    return one_line(rule.split()[0], 80)


# ------------------------------------------------------------------------------------------------------ devices, paths


def _devices(box: Box, body: Body) -> Iterator[Check]:
    version = box.podman_state().api_version
    for one in body.get("devices") or ():
        path = str(one["path"])
        if libpod.cdi_names(("--device", path)):
            resolved = cdi.resolve(path, version, box.root)
            text = (
                f"{one_line(path, 80)}: {resolved.problem}" if resolved.problem else f"{path}, CDI, in {resolved.file}"
            )
            yield Check("fail" if resolved.problem else "ok", text)
        elif not os.path.exists(box.root / path.split(":")[0].lstrip("/")):
            yield Check("fail", f"device {one_line(path, 80)} is not there")


def _paths(box: Box, body: Body) -> Iterator[Check]:
    for one in body.get("mounts") or ():
        if one.get("type") != "bind":
            continue
        source = str(one.get("source") or "")
        if not os.path.exists(box.root / source.lstrip("/")):
            yield Check("fail", f"{one_line(source, 120)}, mounted on {one_line(one['destination'], 80)}, is not there")
            continue
        yield from _label(box, source, one.get("options") or (), body)


def _label(box: Box, source: str, options: Sequence[str], body: Body) -> Iterator[Check]:
    """SELinux: a container may read what has a container's type, or what is relabelled for it."""
    if not (box.root / "sys/fs/selinux/enforce").exists() or {"z", "Z"} & set(options):
        return
    if "disable" in (body.get("selinux_opts") or ()) or body.get("privileged"):
        return
    try:
        label = os.getxattr(box.root / source.lstrip("/"), "security.selinux").decode("utf-8", "replace")
    except OSError:
        return
    kind = label.split(":")[2] if label.count(":") >= 2 else label
    if kind not in _SELINUX_TYPES:
        yield Check(
            "warn", f"{one_line(source, 120)} has the SELinux type {one_line(kind, 60)}: the server may not read it"
        )


def _places(box: Box, body: Body) -> Iterator[Check]:
    """CPUs and memory nodes: one that this host has not is refused by the kernel at the start only."""
    cpu = (body.get("resource_limits") or {}).get("cpu") or {}
    for key, what, file in (("cpus", "CPU", "cpu/online"), ("mems", "memory node", "node/online")):
        asked = str(cpu.get(key) or "")
        try:
            here = (box.root / "sys/devices/system" / file).read_text(encoding="ascii").strip()
            known = {number for low, high in ranges(here) for number in range(low, high + 1)}
        except (OSError, ValueError):
            continue
        missing = [number for low, high in ranges(asked) for number in range(low, high + 1)] if asked else []
        if gone := sorted(set(missing) - known):
            yield Check("fail", f"{what} {gone[0]} is not there or off: this host has {one_line(here, 60)}")


# -------------------------------------------------------------------------------------------------------------- ports


def _ports(box: Box, body: Body, held: Sequence[int], rights: ServiceRights | None) -> Iterator[Check]:
    taken: list[str] = []
    lowest = 1 if rights is None else rights.lowest_port
    seen: set[tuple[int, str]] = set()
    for one in body.get("portmappings") or ():
        port, protocol = int(one.get("host_port") or 0), str(one.get("protocol", "tcp"))
        if (port, protocol) in seen and port:
            yield Check("fail", f"port {port} is published twice")
        seen.add((port, protocol))
        if 0 < port < lowest:
            yield Check(
                "fail",
                f"port {port} is below {lowest}, which a user's Podman may not publish: choose a higher one, or lower "
                "net.ipv4.ip_unprivileged_port_start",
            )
        why = _is_taken(str(one.get("host_ip") or ""), port, protocol) if port and port not in held else ""
        if why == NOT_OURS:
            yield Check("fail", f"{port_words(one)}: no network card of this host has that address")
        elif why:
            taken.append(f"{port_words(one)} by {port_holder([port], box.root) or 'another program'}")
    if taken:
        yield Check("fail", f"taken: {', '.join(taken)}")
    elif body.get("portmappings"):
        yield Check("ok", f"ports free: {', '.join(port_words(one) for one in body['portmappings'])}")


NOT_OURS = "not ours"


def _is_taken(address: str, port: int, protocol: str) -> str:
    """Why nobody could listen there; "" = one could, or it cannot be told."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address or "0.0.0.0", port))
        except PermissionError:
            return ""
        except OSError as error:
            return NOT_OURS if error.errno == errno.EADDRNOTAVAIL else "taken"
    return ""


# ------------------------------------------------------------------------------------------------------------- limits


def _limits(body: Body, rights: ServiceRights | None) -> Iterator[Check]:
    asked = body.get("r_limits") or ()
    if not asked:
        return
    if rights is None:
        yield Check("unknown", "whether Podman may set the ulimits is not known: its process cannot be looked at")
        return
    refused = [name for one in asked if (name := _refused(one, rights.limits))]
    if refused:
        yield Check(
            "fail", f"Podman may not raise {', '.join(refused)}: give a smaller ulimit, or raise its hard limit"
        )
    else:
        yield Check("ok", f"ulimits permitted: {', '.join(str(one['type']) for one in asked)}")


def _refused(one: Mapping[str, Any], limits: Mapping[str, int]) -> str:
    name = str(one["type"])
    most = limits.get(name)
    if most is None or int(one["hard"]) <= most:
        return ""
    asked = "unlimited" if int(one["hard"]) == UNLIMITED else str(one["hard"])
    return f"{name} to {asked} (hard limit {most})"


# ------------------------------------------------------------------------------------------------------------- memory


def _gpus(box: Box) -> GpuBox | str:
    """The cards, or why they cannot be seen."""
    try:
        return box.gpus()
    except SourceError as error:
        return error.message


def _memory(gpus: GpuBox | str, holds: str) -> Iterator[Check]:
    if isinstance(gpus, str):
        yield Check("unknown", f"free VRAM is not known: {gpus}")
        return
    for card in gpus.gpus:
        free, mine = card.memory_free, _used(card.processes, holds)
        if free is None or mine is None:
            yield Check("unknown", f"GPU {card.index}: whether the models fit is not known (the driver does not tell)")
        else:
            text = f"GPU {card.index}: {units.size(free)} free, and {units.size(mine)} that this container gives back"
            yield Check("ok" if mine or free > units.GIB else "warn", text)


def _used(processes: Sequence[Any] | None, holds: str) -> int | None:
    if processes is None:
        return None
    told = [one.memory for one in processes if holds and one.container_id == holds]
    return None if any(size is None for size in told) else sum(told)
