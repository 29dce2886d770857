"""The Triton container as Podman tells it, its use of resources, and what is left of one that is not running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from console.clients import cgroup, host, libpod, podman_stream, units
from console.clients.podman import Candidate, Podman, candidates, connect_error, triton_images
from console.config import Settings
from console.core.model import ContainerState, ContainerUsage, PodmanState, SocketTry, SourceError, UnitState
from console.core.secrets import mask_text
from console.core.text import one_line
from console.core.triton_command import DEFAULT_HTTP_PORT

IMAGES_EVERY = 60.0
LOOK_AGAIN = 30.0
"""Seconds after which other sockets are tried again while the present one has no Triton container."""
LAST_LINES = 20


class Target(Struct, frozen=True):
    """Where the Triton container is: what streams follow. A new `id` is a new container, even under the same name."""

    url: str
    id: str
    name: str
    running: bool
    pid: int | None
    started_wall: float | None = None
    log_driver: str = ""
    unit: str | None = None
    """The systemd unit that owns it."""
    user_unit: bool = False
    """True for a unit of the user's own systemd."""


class ContainerSettings(Struct, frozen=True):
    """What the operator told; None = find it."""

    socket: str | None = None
    """Path or URL of Podman's socket; then no other is tried."""
    container: str | None = None
    """Name or identity of the container; then no other will do."""
    port: int | None = 8000
    """Triton's HTTP port on this host."""
    port_told: bool = False
    """True when the operator named the port."""
    unit: str | None = None
    """The systemd unit that owns the container."""

    @classmethod
    def told(cls, settings: Settings) -> ContainerSettings:
        """As the console is set."""
        podman, port = settings.podman, settings.triton.http_port
        return cls(
            socket=podman.socket or None,
            container=podman.container or None,
            port=port or DEFAULT_HTTP_PORT,
            port_told=bool(port),
        )


class ContainerSource:
    """Reads PodmanState. A box without Podman is a value (socket None, `tried` says why), not an error.

    Once Podman was reached its silence is an error, so that the last good value stays on screen with its age.
    """

    name = "container"
    interval = 2.0

    def __init__(
        self,
        settings: ContainerSettings = ContainerSettings(),  # noqa: B008 (frozen)
        root: Path = Path("/"),
        find: Callable[[], tuple[list[Candidate], list[SocketTry]]] | None = None,
    ) -> None:
        self._settings = settings
        self._root = root
        self._find = find or (lambda: candidates(settings.socket, root=root))
        self._podman: Podman | None = None
        self._origin: str | None = None
        self._url: str | None = None
        self._tried: tuple[SocketTry, ...] = ()
        self._reached = False
        self._looked = 0.0
        self._listening: tuple[float, str | None] = (float("-inf"), None)
        self._target: Target | None = None
        self._images: tuple[float, tuple[str, ...]] = (float("-inf"), ())
        self._built: dict[str, float | None] = {}
        self._usage = UsageMeter(root)
        self._units: dict[tuple[str, int | None], tuple[str | None, str | None]] = {}
        self._last_unit: str | None = settings.unit
        self._last_log: tuple[str, tuple[str, ...]] = ("", ())
        self._journal: tuple[float, str, UnitState | None, tuple[str, ...]] = (float("-inf"), "", None, ())
        self._unit_file: tuple[float, str | None] = (float("-inf"), None)

    def target(self) -> Target | None:
        """The container found last, for streams and for the host source; safe to call from any thread."""
        return self._target

    def url(self) -> str | None:
        """The Podman service that was reached last, for streams; safe to call from any thread."""
        return self._url

    @property
    def client(self) -> Podman | None:
        """The connection to the service that was taken; None where none answers (`tried` says why)."""
        return self._podman

    @property
    def origin(self) -> str | None:
        """What named that service: rootful, rootless, settings, CONTAINER_HOST, containers.conf."""
        return self._origin

    @property
    def tried(self) -> tuple[SocketTry, ...]:
        """All services that were tried, and those that cannot be used."""
        return self._tried

    def open(self) -> None:
        """Try the sockets in order; the first that knows a Triton container is taken, else the first that answers."""
        self._looked = time.monotonic()
        found, refused = self._find()
        tried: list[SocketTry] = []
        spare: tuple[Podman, str] | None = None
        for candidate in found:
            client, error, has_triton = self._try(candidate)
            tried.append(SocketTry(candidate.path, candidate.origin, error))
            if client is None:
                continue
            if has_triton:
                if spare:
                    spare[0].close()
                spare = (client, candidate.origin)
                break
            if spare is None:
                spare = (client, candidate.origin)
            else:
                client.close()
        self._tried = (*tried, *refused)
        self._podman, self._origin = spare or (None, None)
        self._url = spare[0].url if spare else self._url
        if spare is None and self._reached:
            first = next((one for one in tried), None)
            why = f"{first.path} {first.error}" if first else "no Podman socket"
            message, _, hint = why.partition(": ")
            raise SourceError("unavailable", message, hint)
        self._reached = self._reached or spare is not None

    def _try(self, candidate: Candidate) -> tuple[Podman | None, str | None, bool]:
        error = connect_error(candidate)
        if error is not None:
            return None, error, False
        client = Podman(candidate.url)
        try:
            client.ping()
            found, _ = self.choose(client.containers())
        except SourceError as failure:
            client.close()
            return None, failure.message, False
        return client, None, found is not None

    def close(self) -> None:
        """Let the connection go."""
        if self._podman is not None:
            self._podman.close()
            self._podman = None

    def read(self) -> PodmanState:
        """One PodmanState; SourceError when Podman was there before and does not answer now."""
        if self._should_look_again():
            self.close()
            self.open()
        client = self._podman
        if client is None:
            state, lines = self._from_unit()
            return PodmanState(None, None, tried=self._tried, last_log=lines, unit=state)
        version, latency = client.ping()
        listed = client.containers()
        found, others = self.choose(listed)
        kept = libpod.kept_of(listed, found.container.name) if found else ()
        old = {one.name for one in kept}
        answer = client.inspect(found.container.id) if found else None
        container = self._container(client, answer, found.found_by) if found and answer else None
        self._target = _target(client.url, container)
        unit, lines = self._remains(client, container)
        return PodmanState(
            socket=Candidate(client.url, "").path,
            origin=self._origin,
            api_version=version,
            latency_ms=latency,
            tried=self._tried,
            container=container,
            others=tuple(name for name in others if name not in old),
            images=self._triton_images(client),
            last_log=lines,
            unit=unit,
            kept=kept,
        )

    def _should_look_again(self) -> bool:
        nothing = self._podman is None or self._target is None
        return nothing and time.monotonic() - self._looked > LOOK_AGAIN

    def choose(self, listed: list[libpod.Listed]) -> tuple[libpod.Found | None, tuple[str, ...]]:
        """The Triton container of those listed, and the names of the others that could be meant."""
        told = self._settings
        found, others = libpod.find_triton(listed, told.container, told.port, told.port_told)
        if found is None and told.container is None:
            listening = self._listening_container()
            found = next((libpod.Found(one, "port", 4) for one in listed if one.id == listening), None)
        return found, others

    def _listening_container(self) -> str | None:
        """Identity of the container (in the host's network) whose process listens on the port.

        Looked for now and then only, as it means a walk over all processes' files.
        """
        port, (read, known) = self._settings.port, self._listening
        if port is not None and time.monotonic() - read > LOOK_AGAIN:
            pid = host.listener(port, self._root)
            known = cgroup.container_of(pid, self._root) if pid else None
            self._listening = (time.monotonic(), known)
        return known

    def _container(self, client: Podman, answer: libpod.Inspect, found_by: str) -> ContainerState:
        if answer.image and answer.image not in self._built:
            self._built[answer.image] = client.image_created(answer.image)
        state = libpod.container_state(answer, found_by, self._built.get(answer.image))
        unit, origin = self._unit(state, answer)
        self._last_unit = unit or self._last_unit
        usage = self._usage.read(state, client) if state.state == "running" else ContainerUsage()
        return replace(state, unit=unit, unit_origin=origin, usage=usage)

    def _unit(self, state: ContainerState, answer: libpod.Inspect) -> tuple[str | None, str | None]:
        """The owning unit, searched once per container and start."""
        if state.unit:
            return state.unit, state.unit_origin
        if self._settings.unit:
            return self._settings.unit, "settings"
        key = (state.id, state.pid)
        if key not in self._units:
            command = answer.config.create_command or []
            pids = tuple(pid for pid in (answer.state.conmon_pid, answer.state.pid) if pid)
            unit = units.unit_of_processes(pids, command, self._root)
            named = None if unit else self._unit_that_names(state)
            self._units = {
                key: (unit, "its process's cgroup") if unit else (named, "its unit's file" if named else None)
            }
        return self._units[key]

    def _unit_that_names(self, state: ContainerState) -> str | None:
        """A unit of systemd's whose file names the container. While it runs only one that is up: another one's file
        may name it for a start that never came."""
        user = self._of_user()
        unit = units.unit_naming(state.name, self._root, user)
        told = units.unit_state(unit, user) if unit else None
        if told is None or (state.state == "running" and told.active in ("inactive", "failed")):
            return None
        return unit

    def _of_user(self) -> bool:
        return self._origin == "rootless" and os.getuid() != 0

    def _triton_images(self, client: Podman) -> tuple[str, ...]:
        read, images = self._images
        if time.monotonic() - read > IMAGES_EVERY:
            images = triton_images(client.images())
            self._images = (time.monotonic(), images)
        return images

    def _remains(self, client: Podman, container: ContainerState | None) -> tuple[UnitState | None, tuple[str, ...]]:
        """Last log lines of a container that is not running; the unit's journal where the container is gone."""
        if container is None:
            return self._from_unit()
        unit = self._unit_state(container.unit) if container.unit else None
        if container.state == "running":
            return unit, ()
        key = f"{container.id} {container.finished_wall}"
        if self._last_log[0] != key:
            self._last_log = (key, self._last_words(client, container))
        return unit, self._last_log[1]

    def _last_words(self, client: Podman, container: ContainerState) -> tuple[str, ...]:
        """Why there are none where Podman keeps no log (drivers none and passthrough): the rest of the state stands."""
        try:
            lines = podman_stream.recent_log(client.url, container.id, LAST_LINES, limit_s=2.0)
        except SourceError as error:
            if error.kind != "protocol":
                raise
            return (f"no log: {error.message}",)
        return tuple(one_line(mask_text(raw.data.decode("utf-8", "replace")), 500) for raw in lines)

    def _unit_state(self, unit: str) -> UnitState | None:
        return self._asked_unit(unit)[0]

    def _from_unit(self) -> tuple[UnitState | None, tuple[str, ...]]:
        unit = self._last_unit or self._unit_by_file()
        return self._asked_unit(unit) if unit else (None, ())

    def _unit_by_file(self) -> str | None:
        """Looked for now and then only, as it reads hundreds of files."""
        read, unit = self._unit_file
        if time.monotonic() - read > LOOK_AGAIN:
            unit = units.triton_unit(self._root)
            self._unit_file = (time.monotonic(), unit)
        return unit

    def _asked_unit(self, unit: str) -> tuple[UnitState | None, tuple[str, ...]]:
        read, asked, state, lines = self._journal
        if time.monotonic() - read > units.ASK_EVERY or asked != unit:
            user = self._of_user()
            state = units.unit_state(unit, user)
            lines = units.last_lines(unit, LAST_LINES, user) if state is None or state.active != "active" else ()
            self._journal = (time.monotonic(), unit, state, lines)
        return state, lines


def _target(url: str, container: ContainerState | None) -> Target | None:
    if container is None:
        return None
    running = container.state == "running"
    return Target(
        url,
        container.id,
        container.name,
        running,
        container.pid if running else None,
        container.started_wall,
        container.log_driver or "",
        container.unit,
        "/run/user/" in url and os.getuid() != 0,
    )


class UsageMeter:
    """ContainerUsage from cgroup files; from one Podman sample where they cannot be read."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._before: tuple[str, float, cgroup.CgroupSample] | None = None

    def read(self, container: ContainerState, client: Podman) -> ContainerUsage:
        """One reading; rates are over the time since the last reading of the same container and start."""
        sample = self._sample(container, client)
        now = self._clock()
        key = f"{container.id} {container.pid}"
        before, self._before = self._before, (key, now, sample)
        cores = share = None
        if before is not None and before[0] == key and now > before[1]:
            cores = _cores(before[2], sample, now - before[1])
            share = _share(before[2], sample)
        return ContainerUsage(
            cpu_cores=cores,
            memory=sample.memory,
            memory_limit=sample.memory_limit,
            pids=sample.pids,
            shm_used=self._shm(container.pid),
            oom_kills=sample.oom_kills,
            throttled_share=share,
        )

    def _sample(self, container: ContainerState, client: Podman) -> cgroup.CgroupSample:
        if container.pid:
            try:
                sample = cgroup.container_cgroup(container.pid, self._root).sample()
            except SourceError:
                sample = cgroup.CgroupSample()
            if sample.cpu_seconds is not None or sample.memory is not None:
                return sample
        try:
            once = client.stats(container.id)
        except SourceError:
            return cgroup.CgroupSample()
        if once is None:
            return cgroup.CgroupSample()
        return cgroup.CgroupSample(once.cpu_nano / 1e9, once.memory, None, once.pids)

    def _shm(self, pid: int | None) -> int | None:
        """Bytes used of the container's own /dev/shm; None without the right to look into the process."""
        if pid is None:
            return None
        try:
            shm = os.statvfs(self._root / f"proc/{pid}/root/dev/shm")
        except OSError:
            return None
        return (shm.f_blocks - shm.f_bfree) * shm.f_frsize


def _cores(before: cgroup.CgroupSample, now: cgroup.CgroupSample, span: float) -> float | None:
    if before.cpu_seconds is None or now.cpu_seconds is None or now.cpu_seconds < before.cpu_seconds:
        return None
    return (now.cpu_seconds - before.cpu_seconds) / span


def _share(before: cgroup.CgroupSample, now: cgroup.CgroupSample) -> float | None:
    if None in (before.periods, now.periods, before.throttled, now.throttled):
        return None
    periods = (now.periods or 0) - (before.periods or 0)
    return ((now.throttled or 0) - (before.throttled or 0)) / periods if periods > 0 else None
