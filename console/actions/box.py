"""One box to act on: fresh looks at it, and the only doors to the clients that change it.

A Box belongs to one thread. Every client that can change something is opened through `changing`, which refuses in
read-only mode: the second of the two guards (the first is at the key and at `do`). Every look is fresh: a plan says
what is so now, not what the screen showed some seconds ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from console.clients import host
from console.clients.podman import user_of
from console.clients.triton import Http, Limits, TritonAddress, server_http
from console.config import Settings
from console.core.facts import Facts
from console.core.golden import Golden
from console.core.model import ContainerState, GpuBox, PodmanState, Repository, Snapshot, SourceError, TritonIndex
from console.core.plan import Refused
from console.core.text import one_line
from console.sources.container import ContainerSettings, ContainerSource
from console.sources.locator import Locator
from console.sources.repository import RepositorySource
from console.sources.triton import IndexSource

if TYPE_CHECKING:
    from console.clients.nvml_control import NvmlControl, NvmlView
    from console.clients.podman_control import PodmanControl
    from console.clients.systemd import Systemd, SystemdView
    from console.clients.triton_control import Route, TritonControl
    from console.clients.triton_settings import TritonSettings, TritonSettingsView
    from console.sources.facts_host import Host

READ_ONLY = "read-only: nothing that changes the box is done; start gpuconsole without --read-only (settings: [safety])"
FACTS_WITHIN = 6.0
"""Seconds that facts for a change are waited for."""


class BoxSpec(Struct, frozen=True):
    """What it takes to open the same box in another process. Holds secrets (headers): only in private files."""

    settings: Settings
    simulated: str | None = None
    root: str = "/"
    nvml: str = ""
    """State file of the simulated card; "" = the real library."""

    @property
    def host(self) -> str:
        """The box's name; a simulated one has its own."""
        return host.hostname(Path(self.root))

    def state_in(self, folder: Path) -> Path:
        """Where the box's journals, audit and backups lie in the console's state folder: what was only simulated stays
        apart from what was really done."""
        return folder / "simulated" if self.simulated is not None else folder

    def nvml_api(self) -> Any:
        """What stands in for pynvml: the simulated card's functions; None = the real module."""
        if not self.nvml:
            return None
        from console.simulator.nvml import SimulatedNvml

        return SimulatedNvml(Path(self.nvml))

    def facts_host(self) -> Host:
        """What facts are collected of. WrongInput where a folder that stands for the box is none."""
        from console.sources import facts_host

        return facts_host.of_box(self.settings, self.root, self.simulated is not None, self.nvml_api())


class Box:
    """One box. `snapshot` is what the screen knew, for rates and notes only; identity is always looked up anew."""

    def __init__(self, spec: BoxSpec, state: Path, *, snapshot: Snapshot | None = None) -> None:
        self.spec = spec
        self.settings = spec.settings
        self.root = Path(spec.root)
        self.state = state
        """The console's state folder: journals, audit, golden questions, backups."""
        self.snapshot = snapshot
        self._finder = ContainerSource(ContainerSettings.told(self.settings), self.root)
        self._finder_open = False
        self._podman_state: PodmanState | None = None
        self.locator = Locator(self.settings, lambda: self._container_known())

    def close(self) -> None:
        """Let all connections go."""
        self._finder.close()
        self._finder_open = False

    @property
    def host(self) -> str:
        """The box's name, as plans and audit say it."""
        return self.spec.host

    # --------------------------------------------------------------------------------------------------------- looks

    def podman_state(self) -> PodmanState:
        """Podman and the Triton container now. SourceError when Podman does not answer."""
        if not self._finder_open:
            self._finder.open()
            self._finder_open = True
        self._podman_state = self._finder.read()
        return self._podman_state

    def container(self) -> ContainerState:
        """The Triton container now; Refused where there is none."""
        state = self.podman_state()
        if state.container is None and state.socket is None:
            raise Refused(_no_podman(state))
        if state.container is None:
            raise Refused("there is no Triton container here: name it with --container, or create one")
        return state.container

    @property
    def podman_url(self) -> str:
        """Of the Podman service that knows the container; Refused where none answers."""
        state = self.podman_state()
        url = self._finder.url()
        if not url:
            raise Refused(_no_podman(state))
        return url

    def address(self) -> TritonAddress:
        """Where Triton answers now."""
        return self.locator.address()

    def http(self, limits: Limits | None = None) -> Http:
        """A reading client for Triton's HTTP port; close it."""
        return server_http(self.address(), limits)

    def index(self) -> TritonIndex:
        """The repository index now. SourceError when Triton does not answer."""
        source = IndexSource(self.address)
        source.open()
        try:
            return source.read()
        finally:
            source.close()

    def ready(self) -> tuple[tuple[str, str], ...]:
        """(model, version) of all that is READY now, sorted."""
        return tuple(sorted((e.name, e.version or "") for e in self.index().entries if e.state == "READY"))

    def route(self, wanted: str = "") -> Route:
        """How a load would be sent; `wanted`: `gRPC`, `HTTP`, or "" for the better one. SourceError as `index`."""
        from console.clients.triton_control import find_route

        return find_route(self.address(), wanted)

    def served_config(self, name: str, version: str | None = None) -> str:
        """A configuration as served, JSON text with its secrets. SourceError where the version is not ready."""
        from console.clients.triton_control import served_config

        return served_config(self.address(), name, version)

    def golden(self, model: str) -> Golden | None:
        """The kept question of a model with its answer; None where none is kept. SourceError where its file is bad."""
        from console.clients.golden_store import load

        return load(self.state, model)

    def load_cause(self, model: str, since: float) -> tuple[str, ...]:
        """What the container's log tells since `since` (Unix seconds) of why a load failed; empty where it is silent
        or cannot be read. The load's answer hides a configuration that cannot be parsed."""
        from console.clients.triton_cause import load_cause

        try:
            return load_cause(self.podman_url, self.container().id, model, since)
        except (SourceError, Refused):
            return ()

    def triton_settings_view(self) -> TritonSettingsView:
        """Triton's trace and log settings, to be read."""
        from console.clients.triton_settings import TritonSettingsView

        return TritonSettingsView(self.address())

    def repository(self) -> Repository:
        """The model repository on this host's disk now; SourceError with the reason where it cannot be seen."""
        source = RepositorySource(self.locator.places, lambda: None)
        source.open()
        try:
            return source.read()
        finally:
            source.close()

    def gpus(self) -> GpuBox:
        """The cards now. SourceError where NVML does not answer."""
        from console.sources.gpu import GpuSource

        source = GpuSource(api=self.nvml_api(), root=str(self.root))
        source.open()
        try:
            return source.read()
        finally:
            source.close()

    def facts(self, needs: Sequence[str], slow: bool = False) -> Facts:
        """What checks look at, now; never raises for what the box holds. Waits longer than a report does: what a change
        rests on is to be known, and a box that wants one is often busy."""
        from console.sources.facts import collect

        return collect(needs, self.spec.facts_host(), slow, FACTS_WITHIN)

    def nvml_view(self) -> NvmlView:
        """What a change of a card's settings needs to know first; a context manager."""
        from console.clients.nvml_control import NvmlView

        return NvmlView(self.nvml_api(), str(self.root))

    def nvml_api(self) -> Any:
        """See BoxSpec.nvml_api."""
        return self.spec.nvml_api()

    @property
    def unit_of_user(self) -> bool:
        """True where the container's unit belongs to the user's own systemd (rootless Podman), from its cgroup."""
        from console.clients import units

        container = self.container()
        told = None if container.pid is None else units.in_user_manager((container.pid,), self.root)
        return self.podman_state().origin == "rootless" if told is None else told

    def unit_making(self, container: str) -> tuple[str, bool] | None:
        """The unit whose file makes a container of this name, and whether it is the user's own; None = none is found.
        For a container that is gone, as one made with --rm is while its unit is stopped."""
        from console.clients import units

        user = self.podman_state().origin == "rootless"
        unit = units.unit_naming(container, self.root, user)
        return None if unit is None else (unit, user)

    def units(self) -> SystemdView:
        """What systemd tells; `user=True` means the manager of the user who owns the container."""
        from console.clients.systemd import SystemdView

        return SystemdView(self.owner)

    @property
    def owner(self) -> int | None:
        """Uid of the user who owns the container, where Podman's socket is that user's; None = root's Podman."""
        return user_of(self._finder.url() or "")

    def _container_known(self) -> ContainerState | None:
        if self._podman_state is None:
            self.podman_state()
        return None if self._podman_state is None else self._podman_state.container

    # --------------------------------------------------------------------------------------------------------- doors

    @property
    def read_only(self) -> bool:
        """True when nothing may be changed."""
        return self.settings.safety.read_only

    def changing(self) -> None:
        """The second guard: called by each door below, and by whatever else changes files or processes."""
        if self.read_only:
            raise Refused(READ_ONLY)

    def systemd(self) -> Systemd:
        """systemctl to act with."""
        self.changing()
        from console.clients.systemd import Systemd

        return Systemd(self.owner)

    def nvml_control(self) -> NvmlControl:
        """The card's settings, to change them; a context manager."""
        self.changing()
        from console.clients.nvml_control import NvmlControl

        return NvmlControl(self.nvml_api(), str(self.root))

    def triton_control(self, wanted: str = "") -> TritonControl:
        """The client that loads and unloads models; `wanted` as for `route`."""
        self.changing()
        from console.clients.triton_control import TritonControl

        return TritonControl(self.address(), self.route(wanted))

    def podman(self) -> PodmanControl:
        """Podman's API to act with, where the container is; close it."""
        self.changing()
        from console.clients.podman_control import PodmanControl

        return PodmanControl(self.podman_url)

    def triton_settings(self) -> TritonSettings:
        """Triton's trace and log settings, to be set."""
        self.changing()
        from console.clients.triton_settings import TritonSettings

        return TritonSettings(self.address())


def address(spec: BoxSpec, state: Path) -> TritonAddress:
    """Where Triton answers, from the settings and the container; from the settings alone where Podman does not answer.
    SourceError where they do not tell it."""
    box = Box(spec, state)
    try:
        return box.address()
    except SourceError:
        return Locator(spec.settings, lambda: None).address()
    finally:
        box.close()


def _no_podman(state: PodmanState) -> str:
    """With why each socket is of no use: one that may not be entered is there all the same."""
    tried = "; ".join(f"{one.path} {one.error}" for one in state.tried[:3] if one.error)
    return f"no Podman service answers here ({one_line(tried or 'no socket is known: name it with --socket', 400)})"
