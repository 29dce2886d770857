"""Typed settings: flag > environment > file > default. Each value knows where it came from.

Files, later over earlier: /etc/gpuconsole/config.toml, then the user's (~/.config/gpuconsole/config.toml); `--config`
or GPUCONSOLE_CONFIG stands for both. Environment: GPUCONSOLE_SECTION_KEY (GPUCONSOLE_TRITON_HTTP_PORT). An unknown
key names the file and the nearest key; a wrong value says what was expected.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct, field
from platformdirs import user_config_path, user_state_path

from console.core.plan import WrongInput
from console.core.threshold import threshold

SYSTEM_FILE = Path("/etc/gpuconsole/config.toml")
PREFIX = "GPUCONSOLE_"


def state_dir() -> Path:
    """Where logs, written screens, choices, journals and the audit go: `~/.local/state/gpuconsole`, or as XDG says."""
    return user_state_path("gpuconsole", appauthor=False)


class ConfigError(Exception):
    """Bad settings: one plain sentence that says what, where and what to do. Exit code 64."""


class Triton(Struct, frozen=True, forbid_unknown_fields=True):
    """Where Triton answers. Left empty, host and ports are taken from the container, else 127.0.0.1:8000-8002."""

    host: str = ""
    http_port: int = 0
    grpc_port: int = 0
    metrics_port: int = 0
    https: bool = False
    ca_file: str = ""
    insecure: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with each request, for restricted APIs (`--http-restricted-api=...:key=value`). Values are secrets."""
    metrics: bool = True
    interval: float = 1.0


class Podman(Struct, frozen=True, forbid_unknown_fields=True):
    """Which Podman and which container."""

    socket: str = ""
    """unix:///path or a path; empty = looked for."""
    container: str = ""
    """Name or id; empty = found by label, image, command or port."""


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """The card."""

    interval: float = 1.0
    pcie_counters: bool = False
    """PCIe throughput costs over 20 ms a card and read."""


class Repository(Struct, frozen=True, forbid_unknown_fields=True):
    """The model repository on this host; empty = from the container's mounts."""

    path: str = ""


class Ui(Struct, frozen=True, forbid_unknown_fields=True):
    """Looks."""

    theme: str = ""
    ascii: bool = False
    utc: bool = False
    mouse: bool = False


class Safety(Struct, frozen=True, forbid_unknown_fields=True):
    """What the console may do."""

    read_only: bool = False


class Actions(Struct, frozen=True, forbid_unknown_fields=True):
    """How changes are made."""

    watch: float = 2.0
    """Seconds for which fail rate and latency are watched after a swap or a batching change."""
    probe: bool = True
    """Ask the kept (golden) question before and after a change of a model."""
    load_timeout: float = 180.0
    """Seconds for which the end of a model load is waited for."""
    start_timeout: float = 180.0
    """Seconds in which every model that was READY must be READY again after a start."""
    stop_timeout: int = 60
    """Seconds that a container gets to stop before it is killed; more than Triton's own 30 s of draining."""


class Recording(Struct, frozen=True, forbid_unknown_fields=True):
    """What `R` and `gpuconsole record` write."""

    folder: str = ""
    """Empty: recordings in the state folder."""
    limit_mib: int = 300
    """Beyond this the oldest files go; a day of three models has about 40 MiB."""


class Alerts(Struct, frozen=True, forbid_unknown_fields=True):
    """When to tell, as `LIMIT for TIME clear LIMIT` or `off` (core/threshold.py), and how, beyond the screen."""

    not_serving: str = "1 for 10s"
    not_ready: str = "1 for 1m"
    gpu_lost: str = "1"
    xid: str = "1"
    oom: str = "1"
    restarts: str = "1"
    fail_per_s: str = "0.2 for 15s clear 0.05"
    p99_ms: str = "1000 for 1m clear 800"
    queue_ms: str = "100 for 30s clear 50"
    throttle_pct: str = "20 for 30s clear 5"
    temperature_c: str = "85 for 1m clear 80"
    vram_pct: str = "95 for 1m clear 92"
    disk_pct: str = "90 for 1m clear 88"
    bell: bool = False
    desktop: str = ""
    """osc9 or osc777: a notice of the terminal's own."""
    hook_command: list[str] = field(default_factory=list)
    """A program and its arguments, run without a shell; the alerts come as JSON on its standard input."""
    hook_url: str = ""
    """Gets the same JSON by POST."""
    hook_timeout: float = 10.0


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    triton: Triton = Triton()
    podman: Podman = Podman()
    gpu: Gpu = Gpu()
    repository: Repository = Repository()
    ui: Ui = Ui()
    safety: Safety = Safety()
    actions: Actions = Actions()
    recording: Recording = Recording()
    alerts: Alerts = Alerts()


SECRET = frozenset({"triton.headers", "alerts.hook_command", "alerts.hook_url"})
DESKTOP = ("", "osc9", "osc777")
LIMITS: Mapping[str, tuple[float, float]] = {
    "triton.http_port": (0, 65535),
    "triton.grpc_port": (0, 65535),
    "triton.metrics_port": (0, 65535),
    "triton.interval": (0.2, 60),
    "gpu.interval": (0.2, 60),
    "actions.watch": (0, 3600),
    "actions.load_timeout": (1, 86400),
    "actions.start_timeout": (1, 86400),
    "actions.stop_timeout": (1, 86400),
    "recording.limit_mib": (8, 1 << 20),
    "alerts.hook_timeout": (1, 60),
}
"""Allowed range of numbers; outside it is a ConfigError."""


class Loaded(Struct, frozen=True):
    """Settings with the origin of each (`section.key` -> "default", a file's path, a variable's or flag's name)."""

    settings: Settings
    origins: Mapping[str, str]
    files: tuple[str, ...]


def keys() -> dict[str, Any]:
    """`section.key` -> default, in the order of the definition."""
    return {
        f"{section}.{name}": getattr(getattr(Settings(), section), name)
        for section in Settings.__struct_fields__
        for name in getattr(Settings(), section).__struct_fields__
    }


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | None = None,
) -> Loaded:
    """Merge all four layers. `flags` maps `section.key` to values given on the command line. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = dict(keys())
    origins = dict.fromkeys(values, "default")
    files = _files(file or environ.get(PREFIX + "CONFIG"))
    for path in files:
        for key, value in _flat(_read(path), path).items():
            values[key], origins[key] = _typed(key, value, f"in {path}", strict=True), str(path)
    for key in list(values):
        name = PREFIX + key.replace(".", "_").upper()
        if name in environ:
            values[key], origins[key] = _typed(key, environ[name], f"in {name}", strict=False), name
    for key, value in (flags or {}).items():
        values[key], origins[key] = (
            _typed(key, value, f"of --{key.split('.')[-1].replace('_', '-')}", strict=False),
            "flag",
        )
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, name = key.split(".")
        nested.setdefault(section, {})[name] = value
    return Loaded(msgspec.convert(nested, Settings), origins, tuple(map(str, files)))


def _files(explicit: str | None) -> list[Path]:
    if explicit:
        path = Path(explicit).expanduser()
        if not _is_file(path):
            raise ConfigError(f"the settings file {path} does not exist; check --config or {PREFIX}CONFIG")
        return [path]
    return [path for path in (SYSTEM_FILE, user_config_path("gpuconsole") / "config.toml") if _is_file(path)]


def _is_file(path: Path) -> bool:
    """ConfigError where its folder may not be entered, as with another user's XDG_CONFIG_HOME."""
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError(
            f"the settings file {path} cannot be looked for ({error.strerror}); check XDG_CONFIG_HOME, HOME and the "
            "folder's rights"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"the settings file {path} cannot be read ({error.strerror}); check its rights") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the settings file {path} is not UTF-8 text; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits is no TOMLDecodeError
        raise ConfigError(f"the settings file {path} is not valid TOML: {error}") from None


def _flat(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    known = keys()
    for section, content in data.items():
        if section not in Settings.__struct_fields__:
            raise ConfigError(_unknown(section, Settings.__struct_fields__, f"section in {path}"))
        if not isinstance(content, dict):
            raise ConfigError(f"`{section}` in {path} must be a section; write [{section}] and its keys below it")
        for name, value in content.items():
            if f"{section}.{name}" not in known:
                names = [key.split(".")[1] for key in known if key.startswith(section + ".")]
                raise ConfigError(_unknown(name, names, f"key of [{section}] in {path}"))
            flat[f"{section}.{name}"] = value
    return flat


def _unknown(name: str, known: Any, where: str) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else "known are " + ", ".join(known)
    return f"`{name}` is no {where}; {hint}"


def _typed(key: str, value: Any, where: str, *, strict: bool) -> Any:
    """The value as the key's type; text from the environment and flags is read by msgspec's lax rules."""
    section, name = key.split(".")
    wanted = get_type_hints(type(getattr(Settings(), section)))[name]
    try:
        if wanted == dict[str, str] and isinstance(value, str):
            value = dict(pair.split("=", 1) for pair in value.split(",") if pair)
        if wanted == list[str] and isinstance(value, str) and not strict:
            value = shlex.split(value)
        typed = msgspec.convert(value, wanted, strict=strict)
    except (msgspec.ValidationError, ValueError):
        label = _LABELS.get(wanted, "name=value pairs, with commas between")
        shown = "its value" if key in SECRET else f"{value!r}"
        raise ConfigError(f"`{key}` {where} must be {label}, not {shown}") from None
    if key in LIMITS and not LIMITS[key][0] <= typed <= LIMITS[key][1]:
        low, high = LIMITS[key]
        raise ConfigError(f"`{key}` {where} must be from {low:g} to {high:g}, not {typed}")
    if section == "alerts":
        _check_alert(key, typed, where)
    if key == "triton.headers" and not all(_is_header(name, value) for name, value in typed.items()):
        raise ConfigError(f"`{key}` {where}: names are letters, digits and dashes, values plain ASCII on one line")
    return typed


_LABELS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list[str]: "a list of words",
}


def _check_alert(key: str, typed: Any, where: str) -> None:
    name = key.removeprefix("alerts.")
    if name == "desktop" and typed not in DESKTOP:
        raise ConfigError(f"`{key}` {where} must be empty, osc9 or osc777, not {typed!r}")
    if name == "hook_url" and typed and not re.fullmatch(r"https?://[^\s/]+\S*", typed):
        raise ConfigError(f"`{key}` {where} must begin with http:// or https:// and a host, not its value")
    if isinstance(typed, str) and name not in ("desktop", "hook_url"):
        try:
            threshold(typed, f"`{key}` {where}")
        except WrongInput as error:
            raise ConfigError(str(error)) from None


def _is_header(name: str, value: str) -> bool:
    """True for what both HTTP and gRPC can send (RFC 9110, 5.1 and 5.5)."""
    return bool(re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)) and value.isascii() and value.isprintable()


def masked(key: str, value: Any) -> str:
    """The value as TOML-like text, secrets as `***`."""
    if key in SECRET and isinstance(value, dict):
        return "{" + ", ".join(f'{name} = "***"' for name in value) + "}"
    if key in SECRET and value:
        return "***"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return "{}" if value == {} else str(value)


def describe(loaded: Loaded) -> list[tuple[str, str, str]]:
    """(section.key, value as text with secrets masked, origin) of each setting."""
    return [
        (key, masked(key, getattr(getattr(loaded.settings, key.split(".")[0]), key.split(".")[1])), loaded.origins[key])
        for key in keys()
    ]
