"""The composition root: settings -> sources, streams, session -> the console or a headless command."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from console.actions.box import READ_ONLY, BoxSpec
from console.clients.aside import Aside
from console.clients.golden_store import ask_once
from console.clients.host import boot_time
from console.config import Alerts, Settings, state_dir
from console.core.model import Asked, ContainerState, Event, GpuBox, PodmanState, SourceError, TritonStats
from console.core.poller import Source, Stream
from console.core.session import Session
from console.sources.checks import ChecksSource
from console.sources.container import ContainerSettings, ContainerSource
from console.sources.events import Outbox, Past, PodmanEvents
from console.sources.gpu import GpuSource
from console.sources.host import HostSource
from console.sources.kernel_log import KernelLogSource
from console.sources.locator import DEFAULT_PORTS, Locator
from console.sources.logs import LogStream
from console.sources.repository import RepositorySource
from console.sources.triton import ConfigSource, IndexSource, MetricsSource, ServerSource, StatsSource

FIRST_LOOK = 1.0
"""Seconds for which Triton's sources wait for the first word on the container, which tells the ports."""
FIRST_SIMULATED_LOOK = 20.0
"""The same for a simulated box: what answers on the usual ports would be a server of the real machine."""


TRITON_PARTS = ("triton.server", "triton.index", "triton.stats", "triton.metrics", "triton.config")


class Kept:
    """Wraps a source and keeps its newest good value for others to look at (any thread)."""

    def __init__(self, source: Source, changed: Callable[[Any, Any], None] = lambda old, new: None) -> None:
        """`changed` is told the value before and the new one where they are not the same object."""
        self._source = source
        self._changed = changed
        self.name = source.name
        self.value: Any = None
        self.tried = threading.Event()
        """Set after the first read, good or bad."""

    @property
    def interval(self) -> float:
        """Of the source inside (some change it: more often while something is wrong)."""
        return self._source.interval

    def open(self) -> None:
        """Open the source inside."""
        try:
            self._source.open()
        except SourceError:
            self.tried.set()
            raise

    def read(self) -> Any:
        """Read the source inside and keep the value."""
        try:
            value = self._source.read()
        finally:
            self.tried.set()
        old, self.value = self.value, value
        if old is not value and old is not None:
            self._changed(old, value)
        return value

    def close(self) -> None:
        """Close the source inside."""
        self._source.close()


def box_spec(settings: Settings, *, nvml: str = "", root: Path = Path("/"), simulated: str | None = None) -> BoxSpec:
    """What it takes to act on the box of these settings; `nvml` is the path of a simulated card's state. It goes to
    other processes in files, so it does not hold how alerts are told: nothing that acts needs those secrets."""
    settings = msgspec.structs.replace(settings, alerts=Alerts())
    return BoxSpec(settings, simulated=simulated, root=str(root), nvml=nvml)


def build(
    settings: Settings,
    *,
    nvml: Any = None,
    root: Path = Path("/"),
    simulated: str | None = None,
    spec: BoxSpec | None = None,
    checks: bool = False,
) -> Session:
    """All sources and streams of one box, the checklist among them where `checks`; nothing is read before the session
    starts.

    `nvml` stands in for pynvml and `root` for the host's `/`, so that a simulated box shows no fact of this machine;
    `spec` is what acts on such a box.
    """
    spec = spec or box_spec(settings)
    finder = ContainerSource(ContainerSettings.told(settings), root)
    container = Kept(finder, lambda old, new: _after_container(old, new, box))
    locator = Locator(settings, lambda: _state(container, FIRST_LOOK if simulated is None else FIRST_SIMULATED_LOOK))
    interval = settings.triton.interval
    # counters that began anew mean a reload, and a reload may mean a new configuration: both are asked for at once
    read_stats = StatsSource(locator.address, interval)
    stats = Kept(read_stats, lambda old, new: _after_resets(old, new, box))
    configs = Kept(
        ConfigSource(locator.address, lambda: stats.value), lambda old, new: _read(box, "repository", "checks")
    )
    told_by_the_way = Outbox()
    gpu = GpuSource(api=nvml, root=str(root), pcie_counters=settings.gpu.pcie_counters)
    gpu.interval = settings.gpu.interval
    sources: list[Source] = [
        container,
        Kept(gpu, lambda old, new: _after_driver(old, new, box)),
        ServerSource(locator.address, interval),
        IndexSource(locator.address, interval),
        stats,
        MetricsSource(locator.address, interval),
        configs,
        RepositorySource(locator.places, lambda: configs.value),
        HostSource(lambda: _pid(container), root),
        _kernel_log(told_by_the_way, root, simulated),
    ]
    helper = Aside()
    if checks:
        where = spec.state_in(state_dir())
        sources.append(ChecksSource(lambda: helper.call("console.actions.looks", "checks", spec, where)))
    past = Past(finder.target, lambda: _unit(container), root=root)
    streams: list[Stream] = [
        told_by_the_way,
        LogStream(finder.target, told=lambda event: _after_log(event, box, locator)),
        PodmanEvents(finder.target, finder.url, lambda: box.read_now("container")),
    ]

    box = Session(
        sources,
        streams,
        simulated=simulated,
        backfill=past.readers(),
        past=past,
        dropped=lambda: {
            "events that sources found too fast": told_by_the_way.dropped,
            "models' statistics with a figure that cannot be one": read_stats.refused,
        },
        ask=lambda model, version: _ask(spec, locator, model, version),
        spec=spec,
        close=helper.close,
    )
    return box


def _ask(spec: BoxSpec, locator: Locator, model: str, version: str | None) -> Asked:
    """The second guard: in read-only mode no request is sent, whoever asks."""
    if spec.settings.safety.read_only:
        return Asked(model, version, None, time.time(), None, READ_ONLY)
    return ask_once(spec.state_in(state_dir()), locator.address(), model, version)


def _after_log(event: Event, box: Session, locator: Locator) -> None:
    """A server that says that it answers is asked at once: after a silence sources ask only every few seconds. So is
    one that was told to stop: its connections are let go by that."""
    locator.server_told(event.kind)
    whole = event.kind in ("server.start", "server.stop")
    for part in TRITON_PARTS if whole else TRITON_PARTS[:2] if event.kind.startswith("model.") else ():
        box.read_now(part)


def _read(box: Session, *parts: str) -> None:
    for part in parts:
        box.read_now(part)


def _after_container(old: PodmanState, new: PodmanState, box: Session) -> None:
    """Another container, or one that started, ended or changed its settings: the checklist is about it."""
    if _looks_of(old) != _looks_of(new):
        box.read_now("checks")


def _looks_of(state: PodmanState) -> tuple[object, ...]:
    one = state.container
    return (state.socket, *((one.id, one.state, one.pid, one.image_id) if one is not None else ()))


def _after_driver(old: GpuBox, new: GpuBox, box: Session) -> None:
    if (old.driver, len(old.gpus)) != (new.driver, len(new.gpus)):
        box.read_now("checks")


def _after_resets(old: TritonStats, new: TritonStats, box: Session) -> None:
    before = {flow.key: flow.resets for flow in old.flows}
    if any(before.get(flow.key) != flow.resets for flow in new.flows):
        box.read_now("triton.config")


def _kernel_log(outbox: Outbox, root: Path, simulated: str | None) -> KernelLogSource:
    if simulated is None:
        return KernelLogSource(outbox.put)
    return KernelLogSource(outbox.put, root / "dev/kmsg", lambda cursor: [], lambda: boot_time(root))


def _state(container: Kept, patience: float) -> ContainerState | None:
    container.tried.wait(patience)
    value: PodmanState | None = container.value
    return value.container if value else None


def _unit(container: Kept) -> str | None:
    value: PodmanState | None = container.value
    return value.container.unit if value and value.container else None


def _pid(container: Kept) -> int | None:
    value: PodmanState | None = container.value
    state = value.container if value else None
    return state.pid if state is not None and state.state == "running" else None


@contextlib.contextmanager
def session(
    settings: Settings, *, demo: str | None = None, seed: int | None = None, checks: bool = False
) -> Iterator[Session]:
    """The session of this box, or of the simulated one, whose process ends with the `with`.

    SourceError when the simulated box cannot be started.
    """
    if demo is None:
        yield build(settings, checks=checks)
        return
    from console.simulator import launch
    from console.simulator.nvml import SimulatedNvml

    try:
        started = launch.start(demo, seed or 0)
    except (launch.SimulatorError, OSError) as error:
        raise SourceError("unavailable", f"the simulated box cannot be started: {error}") from error
    with started as box:
        told, nvml = box.addresses, SimulatedNvml(Path(box.addresses.nvml))
        box_settings, root = simulated_settings(settings, told), Path(told.root)
        spec = box_spec(box_settings, nvml=told.nvml, root=root, simulated=demo)
        yield build(box_settings, nvml=nvml, root=root, simulated=demo, spec=spec, checks=checks)


def simulated_settings(settings: Settings, addresses: Any) -> Settings:
    """The operator's looks, the simulated box's addresses."""
    from msgspec.structs import replace

    triton = type(settings.triton)()  # the container tells the ports, also after somebody recreated it with others
    podman = replace(settings.podman, socket=addresses.podman, container="")
    repository = replace(settings.repository, path="")
    return replace(settings, triton=triton, podman=podman, repository=repository)


def judge(*, once: bool = False) -> Any:
    """Who says why; `once` judges a single moment, without waiting for a second opinion five seconds later."""
    from console.advisors.why import Why

    return Why(hold=not once)


def nothing_here(settings: Settings) -> bool:
    """True only where there is nothing at all: no NVIDIA device on the bus, no Podman socket (so no container and no
    image), no Triton on its port."""
    from console.clients import nvidia_host
    from console.clients.podman import candidates, connect_error

    if nvidia_host.pci_devices("/"):
        return False
    found, _ = candidates(settings.podman.socket or None)
    if any(connect_error(candidate) is None for candidate in found):
        return False
    return not _answers(settings)


def _answers(settings: Settings) -> bool:
    import socket

    port = settings.triton.http_port or DEFAULT_PORTS[0]
    try:
        with socket.create_connection((settings.triton.host or "127.0.0.1", port), timeout=1.0):
            return True
    except (OSError, UnicodeError):  # UnicodeError: a name that cannot be one
        return False
