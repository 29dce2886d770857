"""What Triton's command line tells about a server: flags, model repository and ports (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from console.core.model import ContainerState, Mount
from console.core.text import whole_number

DEFAULT_EXIT_TIMEOUT = 30
"""Seconds; tritonserver --help, `exit-timeout-secs`."""
DEFAULT_HTTP_PORT = 8000
DEFAULT_GRPC_PORT = 8001
DEFAULT_METRICS_PORT = 8002

_TRUE = frozenset({"1", "true", "on", "yes"})


class ServerPorts(Struct, frozen=True):
    """Where to reach a server from this host; None = that front end is off or not published."""

    host: str = "127.0.0.1"
    http: int | None = None
    grpc: int | None = None
    metrics: int | None = None
    metrics_allowed: bool = True
    """False where the server's command switches its metrics off."""


def flag_value(argv: Sequence[str], *names: str) -> str | None:
    """Last value of a flag written as `--flag=value` or `--flag value`; None when absent (the last one wins)."""
    values = flag_values(argv, *names)
    return values[-1] if values else None


def flag_values(argv: Sequence[str], *names: str) -> tuple[str, ...]:
    """All values of a flag, in order. Command lines given as one shell string are split at blanks."""
    words = _words(argv)
    wanted = frozenset(f"--{name}" for name in names)
    found: list[str] = []
    for position, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag not in wanted:
            continue
        if equals:
            found.append(value)
        elif position + 1 < len(words) and not words[position + 1].startswith("--"):
            found.append(words[position + 1])
    return tuple(found)


def _words(argv: Sequence[str]) -> list[str]:
    """`["sh", "-c", "exec tritonserver --x=1"]` -> its words; quoting is not undone, Triton's flags have no blanks."""
    words: list[str] = []
    for arg in argv:
        words.extend(arg.split() if "tritonserver" in arg and " " in arg else [arg])
    return words


def is_tritonserver(argv: Sequence[str]) -> bool:
    """True when the command line runs tritonserver, directly or through a shell."""
    return any(PurePosixPath(word).name == "tritonserver" for word in _words(argv))


def control_mode(argv: Sequence[str]) -> str | None:
    """none, poll or explicit; None when this is no command line of tritonserver (an entry point may hide it)."""
    told = flag_value(argv, "model-control-mode")
    if told is not None:
        return told.lower()
    return "none" if is_tritonserver(argv) else None


def strict_readiness(argv: Sequence[str]) -> bool:
    """Triton's default is strict: one failed model holds ready at 400."""
    told = flag_value(argv, "strict-readiness")
    return told is None or told.lower() in _TRUE


def exit_timeout(argv: Sequence[str]) -> int | None:
    """Seconds that the server drains for when told to stop; None when this is no command line of tritonserver."""
    told = whole_number(flag_value(argv, "exit-timeout-secs") or "")
    if told is not None:
        return told
    return DEFAULT_EXIT_TIMEOUT if is_tritonserver(argv) else None


def repository_paths(argv: Sequence[str]) -> tuple[str, ...]:
    """Paths of --model-repository and --model-store as the server sees them; remote ones (s3://) included."""
    return flag_values(argv, "model-repository", "model-store")


def model_repositories(argv: Sequence[str], mounts: Sequence[Mount]) -> tuple[tuple[str, str | None], ...]:
    """(path in the container, path on this host) of each model repository that the command names, in its order.

    The second is None where no mount holds it (it lies in the image, in a volume that cannot be seen, or is remote).
    """
    return tuple((path, host_path(path, mounts)) for path in repository_paths(argv))


def mount_of(inside: str, mounts: Sequence[Mount]) -> Mount | None:
    """The longest mount from this host that holds a path in the container; None for a remote path too."""
    if "://" in inside:
        return None
    path = PurePosixPath(inside)
    holding = [mount for mount in mounts if mount.source and path.is_relative_to(mount.target)]
    return max(holding, key=lambda mount: len(PurePosixPath(mount.target).parts), default=None)


def host_path(inside: str, mounts: Sequence[Mount]) -> str | None:
    """Path on the host of a path in the container, through the longest mount that holds it."""
    mount = mount_of(inside, mounts)
    return None if mount is None else str(PurePosixPath(mount.source) / PurePosixPath(inside).relative_to(mount.target))


def own_ports(argv: Sequence[str]) -> dict[str, int]:
    """Front end (http, grpc, metrics) -> the port that it listens on; those that the command switches off left out."""
    told = {
        "http": _port(argv, DEFAULT_HTTP_PORT, "http-port", off="allow-http"),
        "grpc": _port(argv, DEFAULT_GRPC_PORT, "grpc-port", off="allow-grpc"),
        "metrics": _port(argv, DEFAULT_METRICS_PORT, "metrics-port", off="allow-metrics"),
    }
    return {name: port for name, port in told.items() if port is not None}


def http_ports(container: ContainerState) -> ServerPorts:
    """Where this container's front ends are reached from this host: its flags, then its published ports.

    A container in the host's network is reached on its own ports. A port that is not published is None.
    """
    argv = container.command
    inside = own_ports(argv)
    allowed = "metrics" in inside
    if container.network == "host":
        address = flag_value(argv, "http-address")
        return ServerPorts(_reachable(address or ""), **inside, metrics_allowed=allowed)
    published = {mapping.container_port: mapping for mapping in container.ports if mapping.protocol == "tcp"}
    chosen = {name: published[port] for name, port in inside.items() if port in published}
    host = next((_reachable(mapping.host_ip) for mapping in chosen.values()), "127.0.0.1")
    ports = {name: mapping.host_port for name, mapping in chosen.items()}
    return ServerPorts(host, ports.get("http"), ports.get("grpc"), ports.get("metrics"), allowed)


def _port(argv: Sequence[str], default: int, flag: str, off: str) -> int | None:
    allowed = flag_value(argv, off)
    if allowed is not None and allowed.lower() not in _TRUE:
        return None
    told = whole_number(flag_value(argv, flag) or "")
    return default if told is None else told


def _reachable(address: str) -> str:
    """An address to connect to, for one that a server listens on."""
    return "127.0.0.1" if address in ("", "0.0.0.0", "::", "localhost") else address


ENV_VERSIONS: tuple[str, ...] = (
    "CUDA_VERSION",
    "CUDA_DRIVER_VERSION",
    "CUDNN_VERSION",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_TRITON_SERVER_VERSION",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "TRITON_SERVER_VERSION",
    "TRT_VERSION",
    "TENSORRT_VERSION",
    "PYTORCH_VERSION",
    "DCGM_VERSION",
)
"""Variables of NVIDIA's images that are shown; the values of all others are never kept."""
