"""Right pane of Container (design 1.8): what the container uses and what it was given."""

from __future__ import annotations

from collections.abc import Iterator

from console.core import units
from console.core.model import ContainerState, PodmanState, PortMapping, Snapshot
from console.core.text import one_line
from console.core.triton_command import flag_value, model_repositories, mount_of
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import labelled, long_age, not_read, paragraph, sign
from console.tui.widgets.cells import Line, left
from console.tui.widgets.lines import Row

COLUMN = 23
"""Cells of the first of two figures on a line."""
MOST_MOUNTS = 3


class ContainerResources(Pane):
    """CPU, memory, ports, mounts, limits and the socket through which it is seen."""

    FIELDS = ("container", "host", "repository")
    AGE = "container"

    def title(self, view: View) -> Line:
        return (("resources", "title"),)

    def lines(self, view: View) -> list[Row]:
        snapshot = view.snapshot
        podman = snapshot.container.value
        if podman is None:
            return not_read("Podman", (snapshot.container,), view.width)
        made: list[Row] = []
        if podman.container is not None:
            made += [*_usage(podman.container, snapshot), *_ports(podman.container, view.width)]
            made += [*_models(podman.container, snapshot, view.width), *_limits(podman.container)]
        made += [*_kept(podman, view), _socket(podman)]
        return [*made, *(_mounts(podman.container) if podman.container is not None else ())]


def _usage(box: ContainerState, snapshot: Snapshot) -> Iterator[Row]:
    usage, host = box.usage, snapshot.host.value
    of = f" of {host.cpus}" if host and host.cpus else ""
    cores = usage.cpu_cores if usage.cpu_cores is not None else host.triton_cores if host else None
    yield _two("cpu", f"{units.one(cores)} cores{of}", f"pinned to  {one_line(box.cpuset or units.NONE, 20)}")
    limit = f"of {units.size(usage.memory_limit)}" if usage.memory_limit else "no limit"
    kills = usage.oom_kills
    memory = "unknown" if usage.memory is None else f"{units.size(usage.memory)}  {limit}"
    yield _two("memory", memory, f"oom kills {units.whole(kills)}", "fail" if kills else "")
    shm = f"{units.gib(usage.shm_used)} / {units.gib(box.shm_size)} GiB"
    full = bool(usage.shm_used and box.shm_size and usage.shm_used > 0.9 * box.shm_size)
    yield _two("shm", shm, f"tasks {units.whole(usage.pids)}", "", "warn" if full else "")
    if usage.throttled_share:
        share = units.percent(usage.throttled_share)
        yield labelled("", sign("warn"), (f" its CPU quota held it back in {share} % of periods", ""))


def _two(label: str, first: str, second: str, second_style: str = "", first_style: str = "") -> Row:
    return labelled(label, (left(first, COLUMN), first_style), (second, second_style))


def _ports(box: ContainerState, width: int) -> Iterator[Row]:
    if box.network == "host":
        yield labelled("ports", ("those of the host: its own network is not apart", ""))
    elif not box.ports:
        yield labelled("ports", ("– none published", "dim"))
    else:
        yield from paragraph("ports", "; ".join(_by_address(box.ports)), width, most=3)
    if _control_is_open(box):
        yield labelled("", sign("warn"), (" model control open to the network", ""))


def _by_address(ports: tuple[PortMapping, ...]) -> list[str]:
    found: dict[str, list[str]] = {}
    for one in ports:
        name = str(one.host_port) if one.host_port == one.container_port else f"{one.host_port}→{one.container_port}"
        found.setdefault(one.host_ip, []).append(name)
    return [
        f"{' '.join(names)} on {'all addresses' if address in ('', '0.0.0.0', '::') else one_line(address, 40)}"
        for address, names in found.items()
    ]


def _control_is_open(box: ContainerState) -> bool:
    """Anyone who reaches the port may load and unload: explicit mode, all addresses, no restricted API."""
    if box.control_mode != "explicit" or flag_value(box.command, "http-restricted-api"):
        return False
    if box.network == "host":
        return flag_value(box.command, "http-address") not in ("127.0.0.1", "localhost")
    return any(one.host_ip in ("", "0.0.0.0", "::") for one in box.ports)


def _models(box: ContainerState, snapshot: Snapshot, width: int) -> Iterator[Row]:
    named = model_repositories(box.command, box.mounts)
    mount = mount_of(named[0][0], box.mounts) if named else None
    if not named:
        yield labelled("models", ("? its command line names no model repository", "unknown"))
    else:
        inside, outside = named[0]
        rights = "" if mount is None else "  read-only" if mount.read_only else "  writable"
        where = f"{one_line(outside, 120)} → {one_line(inside, 120)}" if outside else one_line(inside, 120)
        yield from paragraph("models", f"{where}{rights}", width, most=2)
    repository = snapshot.repository.value
    if repository is not None and repository.disk_free is not None:
        yield labelled("", (f"{units.size(repository.disk_free)} free", ""))


def _mounts(box: ContainerState) -> Iterator[Row]:
    """Other mounts than that of the models."""
    named = model_repositories(box.command, box.mounts)
    mount = mount_of(named[0][0], box.mounts) if named else None
    others = [one for one in box.mounts if one is not mount]
    for one in others[:MOST_MOUNTS]:
        yield labelled("mount", (f"{one_line(one.source, 80)} → {one_line(one.target, 80)}", "dim"))
    if len(others) > MOST_MOUNTS:
        yield labelled("", (f"… {len(others) - MOST_MOUNTS} more mounts", "dim"))


def _limits(box: ContainerState) -> Iterator[Row]:
    if box.ulimits:
        told = "  ".join(f"{one_line(name, 20)} {_limit(name, value)}" for name, value in sorted(box.ulimits.items()))
        yield labelled("limits", (told, ""))


def _limit(name: str, value: str) -> str:
    """Byte limits in the unit that fits."""
    sized = name.lower().removeprefix("rlimit_") in ("stack", "memlock") and value.isdecimal()
    return units.size(int(value)) if sized else one_line(value, 40)


def _kept(podman: PodmanState, view: View) -> Iterator[Row]:
    """`triton-old-1, stopped, 2 days: b`."""
    if not podman.kept:
        return
    newest, others = podman.kept[0], len(podman.kept) - 1
    state = "stopped" if newest.state == "exited" else one_line(newest.state, 20)
    since = f", {long_age(view.wall - newest.since_wall)}" if newest.since_wall else ""
    more = f"   and {others} older" if others else ""
    yield labelled("kept old", (f"{one_line(newest.name, 60)}, {state}{since}: ", ""), ("b", "key"), (more, "dim"))


def _socket(podman: PodmanState) -> Row:
    if podman.socket is None:
        return labelled("socket", ("– none answered", "dim"))
    told = (
        one_line(podman.socket, 80),
        one_line(podman.api_version or "", 20),
        f"{podman.latency_ms:.0f} ms" if podman.latency_ms is not None else "",
    )
    return labelled("socket", ("  ".join(part for part in told if part), ""))
