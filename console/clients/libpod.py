"""Libpod's JSON answers as typed structs, and how an inspect answer becomes a ContainerState (pure).

Fields are those of Podman 4.3.1 and 5.x; whatever a version leaves out, or gives as null, has a default. What is of
another type than expected is a protocol error, raised by the decoder as msgspec.ValidationError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from console.core import triton_command
from console.core.model import ContainerState, KeptContainer, Mount, PortMapping
from console.core.secrets import kept_env, mask_command, mask_labels, mask_text
from console.core.text import one_line, whole_number

UNIT_LABEL = "PODMAN_SYSTEMD_UNIT"
MANAGED_LABEL = "io.gpuconsole.managed"
MAX_ERROR = 2000


class ListedPort(Struct, frozen=True):
    """One entry of a listed container's `Ports`; `range` counts consecutive ports."""

    container_port: int = 0
    host_port: int = 0
    range: int = 1
    protocol: str = "tcp"
    host_ip: str = ""


class Listed(Struct, frozen=True, rename="pascal"):
    """One container of `GET /containers/json?all=true`."""

    id: str
    names: list[str] | None = None
    image: str = ""
    command: list[str] | None = None
    labels: dict[str, str] | None = None
    ports: list[ListedPort] | None = None
    state: str = ""
    started_at: int = 0
    """Unix seconds."""
    exited_at: int = 0
    """Unix seconds; before 1970 for one that never ended."""
    pid: int = 0
    is_infra: bool = False

    @property
    def name(self) -> str:
        """First name, or the short identity of one without."""
        return self.names[0] if self.names else self.id[:12]


class Image(Struct, frozen=True, rename="pascal"):
    """One image of `GET /images/json`."""

    id: str
    names: list[str] | None = None
    repo_tags: list[str] | None = None
    created: int = 0


class Health(Struct, frozen=True, rename="pascal"):
    """Result of the health check; status "" = the container has none."""

    status: str = ""


class State(Struct, frozen=True, rename="pascal"):
    """`State` of an inspect answer. Times are RFC 3339; year 1 = never."""

    status: str = ""
    oom_killed: bool = field(default=False, name="OOMKilled")
    pid: int = 0
    conmon_pid: int = 0
    exit_code: int = 0
    error: str = ""
    started_at: str = ""
    finished_at: str = ""
    health: Health | None = None
    healthcheck: Health | None = None


class InspectMount(Struct, frozen=True, rename="pascal"):
    """One mount."""

    type: str = ""
    source: str = ""
    destination: str = ""
    read_write: bool = field(default=True, name="RW")


class HostBinding(Struct, frozen=True, rename="pascal"):
    """Where a port is published."""

    host_ip: str = ""
    host_port: str = ""


class Device(Struct, frozen=True, rename="pascal"):
    """A device node given to the container."""

    path_on_host: str = ""
    path_in_container: str = ""


class Ulimit(Struct, frozen=True, rename="pascal"):
    """A resource limit; 2**64 - 1 or -1 = unlimited."""

    name: str = ""
    soft: int = 0
    hard: int = 0


class Config(Struct, frozen=True, rename="pascal"):
    """`Config` of an inspect answer."""

    env: list[str] | None = None
    labels: dict[str, str] | None = None
    tty: bool = False
    create_command: list[str] | None = None
    stop_timeout: int | None = None


class LogConfig(Struct, frozen=True, rename="pascal"):
    """Where the container's log goes."""

    type: str = ""


class HostConfig(Struct, frozen=True, rename="pascal"):
    """`HostConfig` of an inspect answer."""

    network_mode: str = ""
    auto_remove: bool = False
    shm_size: int = 0
    cpuset_cpus: str = ""
    devices: list[Device] | None = None
    ulimits: list[Ulimit] | None = None
    port_bindings: dict[str, list[HostBinding] | None] | None = None
    log_config: LogConfig | None = None


class Network(Struct, frozen=True, rename="pascal"):
    """`NetworkSettings` of an inspect answer."""

    ports: dict[str, list[HostBinding] | None] | None = None


class Inspect(Struct, frozen=True, rename="pascal"):
    """`GET /containers/ID/json`."""

    id: str
    name: str = ""
    created: str = ""
    path: str = ""
    args: list[str] | None = None
    state: State = State()
    image: str = ""
    image_name: str = ""
    restart_count: int = 0
    mounts: list[InspectMount] | None = None
    config: Config = Config()
    host_config: HostConfig = HostConfig()
    network_settings: Network = Network()


class ImageInspect(Struct, frozen=True, rename="pascal"):
    """`GET /images/ID/json`."""

    id: str = ""
    created: str | None = None


class OnceStats(Struct, frozen=True):
    """One container of `GET /containers/stats`, in Podman's own spelling."""

    cpu_nano: int = field(default=0, name="CPUNano")
    memory: int = field(default=0, name="MemUsage")
    memory_limit: int = field(default=0, name="MemLimit")
    pids: int = field(default=0, name="PIDs")


class StatsAnswer(Struct, frozen=True, rename="pascal"):
    """`GET /containers/stats?stream=false`."""

    error: Any = None
    stats: list[OnceStats] | None = None


class Actor(Struct, frozen=True, rename="pascal"):
    """Whom an event is about."""

    id: str = field(default="", name="ID")
    attributes: dict[str, str] | None = None


class PodmanEvent(Struct, frozen=True):
    """One line of `GET /events`."""

    kind: str = field(default="", name="Type")
    action: str = field(default="", name="Action")
    actor: Actor = field(default=Actor(), name="Actor")
    time_nano: int = field(default=0, name="timeNano")
    time: int = 0
    health_status: str = field(default="", name="HealthStatus")

    @property
    def wall(self) -> float:
        """Unix seconds."""
        return self.time_nano / 1e9 if self.time_nano else float(self.time)


def wall_time(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time (nanoseconds allowed); None for Go's zero time and what is no time."""
    try:
        seconds = datetime.fromisoformat(text or "").timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def container_state(answer: Inspect, found_by: str, image_created: float | None = None) -> ContainerState:
    """An inspect answer as a ContainerState without `usage` and without the cgroup's say on the unit.

    Secrets are masked here, so nothing behind this function ever holds one.
    """
    state, config, host = answer.state, answer.config, answer.host_config
    argv = tuple(arg for arg in (answer.path, *(answer.args or ())) if arg)
    labels = config.labels or {}
    unit = labels.get(UNIT_LABEL) or None
    running = state.status in ("running", "paused", "stopping")
    health = state.health or state.healthcheck
    return ContainerState(
        id=answer.id,
        name=answer.name,
        state=state.status,
        found_by=found_by,
        image=answer.image_name,
        image_id=answer.image,
        image_created_wall=image_created,
        env_versions=kept_env(config.env or (), triton_command.ENV_VERSIONS),
        command=mask_command(argv),
        created_wall=wall_time(answer.created),
        started_wall=wall_time(state.started_at),
        finished_wall=wall_time(state.finished_at),
        exit_code=None if running or not wall_time(state.finished_at) else state.exit_code,
        error=one_line(mask_text(state.error), MAX_ERROR) or None,
        oom_killed=state.oom_killed,
        restarts=answer.restart_count,
        health=(health.status if health else "") or None,
        pid=state.pid or None,
        # Podman lists the ports of the network only while the container runs.
        ports=_ports(answer.network_settings.ports or host.port_bindings or {}),
        mounts=tuple(Mount(m.source, m.destination, not m.read_write, m.type or "bind") for m in answer.mounts or ()),
        devices=tuple(device.path_in_container or device.path_on_host for device in host.devices or ()),
        cdi=cdi_names(config.create_command or ()),
        network=host.network_mode or None,
        shm_size=host.shm_size or None,
        ulimits={limit.name.removeprefix("RLIMIT_").lower(): _limit(limit) for limit in host.ulimits or ()},
        cpuset=host.cpuset_cpus or None,
        stop_timeout=config.stop_timeout,
        auto_remove=host.auto_remove,
        log_driver=(host.log_config.type if host.log_config else "") or None,
        unit=unit,
        unit_origin=f"label {UNIT_LABEL}" if unit else None,
        labels=mask_labels(labels),
        control_mode=triton_command.control_mode(argv),
        strict_readiness=triton_command.strict_readiness(argv),
        exit_timeout=triton_command.exit_timeout(argv),
    )


def _ports(ports: Mapping[str, Sequence[HostBinding] | None]) -> tuple[PortMapping, ...]:
    found = []
    for inside, bindings in ports.items():
        text, _, protocol = inside.partition("/")
        number = whole_number(text)
        for binding in bindings or ():
            host_port = whole_number(binding.host_port)
            if number is not None and host_port is not None:
                address = "" if binding.host_ip in ("0.0.0.0", "::") else binding.host_ip
                found.append(PortMapping(number, protocol or "tcp", address, host_port))
    return tuple(sorted(found, key=lambda port: (port.container_port, port.protocol, port.host_port)))


_UNLIMITED = frozenset({-1, 2**64 - 1, 2**63 - 1})


def _limit(limit: Ulimit) -> str:
    soft, hard = ("unlimited" if value in _UNLIMITED else str(value) for value in (limit.soft, limit.hard))
    return soft if soft == hard else f"{soft}:{hard}"


_CDI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9.-]*/[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")


def cdi_names(create_command: Sequence[str]) -> tuple[str, ...]:
    """CDI device names of `--device`; nothing else in an inspect answer keeps them (host.md 3.2)."""
    found: list[str] = []
    for position, arg in enumerate(create_command):
        if arg == "--device" and position + 1 < len(create_command):
            found.append(create_command[position + 1])
        elif arg.startswith("--device="):
            found.append(arg.removeprefix("--device="))
    return tuple(dict.fromkeys(name for name in found if _CDI_NAME.fullmatch(name)))


# ------------------------------------------------------------------------------------------- which one is the Triton?

_TRITON_NAME = re.compile(r"(?:^|[-_.])triton(?:-?server)?(?:$|[-_.])", re.IGNORECASE)
_TRITON_PORTS = frozenset({8000, 8001, 8002})


class Found(Struct, frozen=True):
    """A container that is, or may be, the Triton one."""

    container: Listed
    found_by: str
    rank: int


def find_triton(
    containers: Sequence[Listed], wanted: str | None = None, port: int | None = None, port_told: bool = False
) -> tuple[Found | None, tuple[str, ...]]:
    """The Triton container and the names of the others that could be meant.

    With `wanted` (a name, or 12 and more digits of an identity) only that one will do. Otherwise by label, name, image
    or command, published port, in this order; a running one goes before a stopped one, a younger before an older.
    A published port counts when the operator named it (`port_told`) or when a second port of Triton's is published too:
    8000 alone may be anybody's.
    """
    found = [hit for listed in containers if (hit := _match(listed, wanted, port, port_told)) is not None]
    found.sort(key=_preference)
    chosen = next((hit for hit in found if hit.rank == 0 or not wanted), None)
    return chosen, tuple(hit.container.name for hit in found if hit is not chosen)


def _preference(hit: Found) -> tuple[bool, bool, int, int]:
    return hit.rank != 0, hit.container.state != "running", hit.rank, -hit.container.started_at


def _match(listed: Listed, wanted: str | None, port: int | None, port_told: bool) -> Found | None:
    if listed.is_infra:
        return None
    labels = listed.labels or {}
    if wanted and (wanted in (listed.names or ()) or (len(wanted) >= 12 and listed.id.startswith(wanted))):
        return Found(listed, "name", 0)
    if MANAGED_LABEL in labels:
        return Found(listed, "label", 1)
    serves = is_triton_image(listed.image) or triton_command.is_tritonserver(listed.command or ())
    if any(_TRITON_NAME.search(name) for name in listed.names or ()) and (serves or not is_sdk_image(listed.image)):
        return Found(listed, "name", 2)
    if serves:
        return Found(listed, "image", 3)
    return Found(listed, "port", 4) if _publishes(listed, port, port_told) else None


def _publishes(listed: Listed, port: int | None, port_told: bool) -> bool:
    pairs = [
        (mapping.host_port + step, mapping.container_port + step)
        for mapping in listed.ports or ()
        for step in range(max(1, min(mapping.range, 1024)))
    ]
    if port is None or port not in (host for host, _ in pairs):
        return False
    return port_told or len(_TRITON_PORTS & {inside for _, inside in pairs}) >= 2


def kept_of(containers: Sequence[Listed], name: str) -> tuple[KeptContainer, ...]:
    """The kept old ones of a container, `NAME-old-N`, the newest first."""
    by_name = {one.name: one for one in containers}
    kept = [by_name[one] for one in kept_names(by_name, name)]
    return tuple(
        KeptContainer(one.name, one.state, float(one.exited_at) if one.exited_at > 0 else None) for one in kept
    )


def kept_names(names: Iterable[str], base: str) -> list[str]:
    """The same of names alone."""
    pattern = re.compile(rf"{re.escape(base)}-old-(\d{{1,9}})")
    found = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [name for _, name in sorted(found, reverse=True)]


def is_sdk_image(name: str) -> bool:
    """True for NVIDIA's client image (`...-py3-sdk`): it has perf_analyzer and no server."""
    return name.rpartition("/")[2].endswith("-sdk")


def is_triton_image(name: str) -> bool:
    """True when the image's repository is called tritonserver, whatever the registry; not for the client image."""
    repository = name.rpartition("/")[2].partition(":")[0].partition("@")[0].lower()
    return "tritonserver" in repository.replace("-", "").replace("_", "") and not is_sdk_image(name)
