"""A systemd unit made from a running container: a hand-written service, or a Quadlet file where cgroup v2 allows it.

The service is host.md 5.4's: Podman tells systemd by conmon that it runs, the stop times stand in order (Triton's
draining < Podman's < systemd's), and a name left over by a crash is replaced. What may be secret is not in the text:
the container's environment goes to a file for `--env-file`, secret words of a command line to variables in a second
one, both for their owner's eyes only. Pure: nothing is read or written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct

from console.clients.run_words import Option, RunWords
from console.core import triton_command
from console.core.secrets import MASK, mask_command, mask_text

Kind = Literal["service", "quadlet"]

START_TIMEOUT = 900
"""Seconds: the first start may pull an image of 10 GB and load engines."""
_SPARE = 30
"""Seconds that each stop time is longer than the one within it."""
_OWN = (
    *("name", "detach", "rm", "replace", "sdnotify", "cgroups", "cidfile", "pidfile", "conmon-pidfile"),
    *("restart", "stop-timeout", "interactive", "tty", "attach", "sig-proxy", "cgroup-parent", "quiet"),
)
"""Options that the unit sets itself, or that have no sense in one."""
_REMOTE = ("url", "connection", "remote", "r", "c", "identity", "H", "host")
_PLAIN_ENV = frozenset(
    {
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("TZ", "LANG", "LC_ALL", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "LD_PRELOAD", "LD_LIBRARY_PATH"),
        *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "CUDA_MODULE_LOADING", "PODMAN_SYSTEMD_UNIT"),
    }
)
"""Variables whose values may stand in a file that everybody can read."""


class Asked(Struct, frozen=True):
    """What to make."""

    container: str
    words: RunWords
    kind: Kind
    base: str
    """Of the unit's name: `triton` for triton.service."""
    folder: str
    """Where the two private files will be."""
    user: bool = False
    """For a user's own systemd (rootless Podman)."""
    podman: str = "/usr/bin/podman"
    version: tuple[int, int] = (4, 4)
    """Podman's: a key that a Quadlet does not know makes it drop the whole file."""


class UnitText(Struct, frozen=True):
    """What was made. `environment` and `arguments` are "" where nothing is secret."""

    unit: str
    file: str
    """Name of the unit's file: triton.service or triton.container."""
    text: str
    environment: str = ""
    """For `podman run --env-file`: a line each, no quoting."""
    arguments: str = ""
    """For systemd's `EnvironmentFile=`."""
    names: tuple[str, ...] = ()
    """Variables that went to `environment`."""
    notes: tuple[str, ...] = ()
    stop_times: tuple[int, int, int] = (30, 60, 90)
    """Triton's, Podman's and systemd's, in seconds."""


class UnitImpossible(Exception):  # noqa: N818 (an answer)
    """Why no such unit can be made: one sentence."""


def make(asked: Asked) -> UnitText:
    """The unit. UnitImpossible where it cannot be said in one."""
    secrets = _Secrets(asked)
    words = asked.words
    draining = triton_command.exit_timeout(words.command) or triton_command.DEFAULT_EXIT_TIMEOUT
    stop = (draining, max(60, draining + _SPARE), max(60, draining + _SPARE) + _SPARE)
    body = _service(asked, secrets, stop) if asked.kind == "service" else _quadlet(asked, secrets, stop)
    text = "\n".join([*_head(asked), *body, *_foot(asked)]) + "\n"
    suffix = "service" if asked.kind == "service" else "container"
    return UnitText(
        unit=f"{asked.base}.service",
        file=f"{asked.base}.{suffix}",
        text=text,
        environment="".join(f"{line}\n" for line in secrets.environment),
        arguments="".join(f"{line}\n" for line in secrets.arguments),
        names=tuple(line.partition("=")[0] for line in secrets.environment),
        notes=tuple(_notes(asked)),
        stop_times=stop,
    )


# ------------------------------------------------------------------------------------------------------------ sections


def _head(asked: Asked) -> Iterator[str]:
    yield f"# Made by gpuconsole from the container {asked.container}."
    yield "[Unit]"
    yield f"Description=Triton Inference Server (container {_escaped(asked.container)})"
    wants, after = _order(asked)
    if wants:
        yield f"Wants={' '.join(wants)}"
    if after:
        yield f"After={' '.join(after)}"
    paths = [] if asked.user else _host_paths(asked.words)
    if paths:
        yield f"RequiresMountsFor={' '.join(_quoted(path) for path in paths)}"
    yield "StartLimitIntervalSec=600"
    yield "StartLimitBurst=5"
    yield ""


def _order(asked: Asked) -> tuple[list[str], list[str]]:
    """A user's systemd knows none of the system's units."""
    if asked.user:
        return [], []
    wants = ["network-online.target"]
    after = ["network-online.target"]
    if any(device.startswith("nvidia.com/") for device in asked.words.values("device")):
        wants.append("nvidia-cdi-refresh.service")
        after += ["nvidia-cdi-refresh.service", "nvidia-persistenced.service"]
    return wants, after


def _host_paths(words: RunWords) -> list[str]:
    sources = [value.partition(":")[0] for value in words.values("volume")]
    for value in words.values("mount"):
        pairs = dict(part.partition("=")[::2] for part in value.split(","))
        sources.append(pairs.get("source") or pairs.get("src") or "")
    return list(dict.fromkeys(path for path in sources if path.startswith("/")))


def _foot(asked: Asked) -> Iterator[str]:
    yield ""
    yield "[Install]"
    yield f"WantedBy={'default' if asked.user else 'multi-user'}.target"


def _restart(stop: tuple[int, int, int]) -> Iterator[str]:
    yield "Restart=on-failure"
    yield "RestartSec=10"
    yield f"TimeoutStartSec={START_TIMEOUT}"
    yield f"TimeoutStopSec={stop[2]}"


def _service(asked: Asked, secrets: _Secrets, stop: tuple[int, int, int]) -> Iterator[str]:
    global_options = [_quoted(option.word) for option in _global_options(asked.words)]
    podman = " ".join([_quoted(asked.podman), *global_options])
    name = _quoted(asked.container)
    own = (
        *("--replace", "--rm", "--detach", f"--name={name}", "--sdnotify=conmon", "--cgroups=no-conmon"),
        f"--stop-timeout={stop[1]}",
    )
    options = [secrets.option(option) for option in asked.words.without(*_OWN, "env")]
    environment = [_quoted(option.word) for option in secrets.plain]
    if secrets.environment:
        environment.append(_quoted(f"--env-file={secrets.environment_file}"))
    command = [_quoted(asked.words.image), *(secrets.word(word) for word in asked.words.command)]
    lines = [f"{podman} run", " ".join(own), *options, *environment, " ".join(command[:2]), *command[2:]]
    yield "[Service]"
    yield "Environment=PODMAN_SYSTEMD_UNIT=%n"
    if secrets.arguments:
        yield f"EnvironmentFile={_escaped(secrets.arguments_file)}"
    yield "ExecStart=" + " \\\n  ".join(lines)
    yield f"ExecStop={podman} stop --ignore -t {stop[1]} {name}"
    yield f"ExecStopPost={podman} rm -f --ignore -t 10 {name}"
    yield "Type=notify"
    yield "NotifyAccess=all"
    yield "KillMode=mixed"
    yield from _restart(stop)


_KEYS = {
    "device": ("AddDevice", (4, 4)),
    "publish": ("PublishPort", (4, 4)),
    "volume": ("Volume", (4, 4)),
    "label": ("Label", (4, 4)),
    "network": ("Network", (4, 4)),
    "env-file": ("EnvironmentFile", (4, 4)),
    "shm-size": ("ShmSize", (4, 7)),
    "ulimit": ("Ulimit", (4, 7)),
}
"""Keys of a Quadlet and the first Podman that knows them (host.md K04); all other options go to PodmanArgs."""
_GLOBAL_ARGS = (5, 0)
_STOP_TIMEOUT = (5, 0)


def _quadlet(asked: Asked, secrets: _Secrets, stop: tuple[int, int, int]) -> Iterator[str]:
    global_options = _global_options(asked.words)
    if global_options and asked.version < _GLOBAL_ARGS:
        raise UnitImpossible(
            f"this container was made with podman {global_options[0].word}, which a Quadlet of Podman "
            f"{asked.version[0]}.{asked.version[1]} cannot say: use kind=service"
        )
    yield "[Container]"
    yield f"ContainerName={_escaped(asked.container)}"
    yield f"Image={_escaped(asked.words.image)}"
    yield from (f"GlobalArgs={_quoted(option.word)}" for option in global_options)
    for option in asked.words.without(*_OWN, "env"):
        key, since = _KEYS.get(option.name, ("", (0, 0)))
        if key and asked.version >= since and option.value is not None and not secrets.is_secret(option):
            yield f"{key}={_quoted(option.value) if key == 'Label' else _escaped(option.value)}"
        else:
            yield f"PodmanArgs={secrets.option(option)}"
    yield from (f"Environment={_quoted(option.value or '')}" for option in secrets.plain)
    if secrets.environment:
        yield f"EnvironmentFile={_escaped(secrets.environment_file)}"
    if asked.version >= _STOP_TIMEOUT:
        yield f"StopTimeout={stop[1]}"
    else:
        yield f"PodmanArgs=--stop-timeout={stop[1]}"
    if asked.words.command:
        yield "Exec=" + " \\\n  ".join(secrets.word(word) for word in asked.words.command)
    yield ""
    yield "[Service]"
    if secrets.arguments:
        yield f"EnvironmentFile={_escaped(secrets.arguments_file)}"
    yield from _restart(stop)


def _global_options(words: RunWords) -> list[Option]:
    return [option for option in words.global_options if option.name not in _REMOTE]


def _notes(asked: Asked) -> Iterator[str]:
    words = asked.words
    if not words.told:
        yield (
            "the container was made through Podman's API: its CDI device names are not in Podman's answer; "
            "give them with devices=nvidia.com/gpu=all"
        )
    for name in ("cgroup-parent", "restart"):
        if words.values(name):
            why = "systemd restarts it" if name == "restart" else "the unit's own cgroup is its parent"
            yield f"--{name} {words.values(name)[-1]} is left out: {why}"
    if "/" not in words.image:
        yield f"the image {words.image} names no registry: a start after its removal asks the configured ones"


# ------------------------------------------------------------------------------------------------------------- secrets


class _Secrets:
    """Takes secrets out of words, and keeps what goes to the two private files."""

    def __init__(self, asked: Asked) -> None:
        self.environment: list[str] = []
        self.arguments: list[str] = []
        self.plain: list[Option] = []
        self.environment_file = str(PurePosixPath(asked.folder) / f"{asked.base}.env")
        self.arguments_file = str(PurePosixPath(asked.folder) / f"{asked.base}.args")
        self._kept: dict[str, str] = {}
        words = asked.words
        said = [*(option.word for option in words.options), *words.command]
        self._secret = {word for word, shown in zip(said, _masked_command(said), strict=True) if word != shown}
        for option in words.options:
            if option.name == "env" and option.value is not None:
                self._variable(option)

    def _variable(self, option: Option) -> None:
        line = option.value or ""
        if "\n" in line:
            name = line.partition("=")[0]
            raise UnitImpossible(f"the variable {name} has several lines, which Podman's --env-file cannot hold")
        if "=" in line and line.partition("=")[0] in _PLAIN_ENV and mask_text(line) == line:
            self.plain.append(option)
        else:
            self.environment.append(line)

    def is_secret(self, option: Option) -> bool:
        """True when its value may not stand in the unit."""
        return option.word in self._secret

    def option(self, option: Option) -> str:
        """As one quoted word; of a secret one the value stands in a variable."""
        if not self.is_secret(option):
            return _quoted(option.word)
        return _quoted(f"--{option.name}=") + self._kept_as(option.value or "")

    def word(self, word: str) -> str:
        """A word of the container's command, quoted; a secret one stands in a variable."""
        if word not in self._secret:
            return _quoted(word)
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and equals:
            return _quoted(f"{flag}=") + self._kept_as(value)
        return self._kept_as(word)

    def _kept_as(self, value: str) -> str:
        name = self._kept.get(value)
        if name is None:
            name = self._kept[value] = f"GPUCONSOLE_SECRET_{len(self._kept) + 1}"
            self.arguments.append(f"{name}={_file_quoted(value)}")
        return f"${{{name}}}"


# ------------------------------------------------------------------------------------------------------- text of units


def _escaped(text: str) -> str:
    """For a value that systemd takes as it is but for %-specifiers."""
    return re.sub(r"[\x00-\x1f\x7f]", " ", text).replace("%", "%%")


def _quoted(word: str) -> str:
    """One word of a command line of systemd: no specifier, no variable, no split (systemd.service(5))."""
    text = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    text = re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text)
    plain = text == word.replace("%", "%%").replace("$", "$$") and word and not re.search(r"[\s';]", word)
    return text if plain else f'"{text}"'


def _file_quoted(value: str) -> str:
    """A value in a file for EnvironmentFile= (systemd.exec(5)): double quotes, these four escaped."""
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'


_WORD = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'])+|["']""", re.DOTALL)
_LOGICAL = re.compile(r"(?:[^\n\\]|\\.)*(?:\n|\Z)", re.DOTALL)


def masked(text: str) -> str:
    """The text of any unit, somebody else's as well, less its secrets."""
    return "".join(_masked_line(found[0]) for found in _LOGICAL.finditer(text))


def _masked_line(line: str) -> str:
    words = [found for found in _WORD.finditer(line) if found[0] != "\\"]
    if not words:
        return line
    plain = [found[0].strip("\"'") for found in words]
    if plain[0].startswith("Environment="):
        first = _masked_variable(plain[0].removeprefix("Environment=").strip("\"'"))
        safe = [f"Environment={first}", *(_masked_variable(word) for word in plain[1:])]
    else:
        safe = _masked_words(plain)
    return _rebuilt(
        line, [(found.span(), new if new != old else found[0]) for found, old, new in _zip(words, plain, safe)]
    )


def _zip(
    words: Sequence[re.Match[str]], plain: Sequence[str], safe: Sequence[str]
) -> Iterator[tuple[re.Match[str], str, str]]:
    return zip(words, plain, safe, strict=True)


def _masked_words(words: Sequence[str]) -> list[str]:
    """As a command line; its first word may be `ExecStart=/usr/bin/podman`, which holds none."""
    key, equals, rest = words[0].partition("=")
    head = mask_command([rest])[0] if equals else words[0]
    return [f"{key}={head}" if equals else head, *_masked_command(words[1:])]


def _masked_command(words: Sequence[str]) -> list[str]:
    """As `mask_command`, and what stands behind the first `=` is looked at too: `--label=token=x`."""
    return [_masked_value(word) for word in mask_command(words)]


def _masked_value(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{flag}={mask_text(value)}" if equals and flag.startswith("-") else word


def _masked_variable(word: str) -> str:
    name, equals, _ = word.partition("=")
    return word if not equals or name in _PLAIN_ENV else f"{name}={MASK}"


def _rebuilt(line: str, pieces: Sequence[tuple[tuple[int, int], str]]) -> str:
    made, at = [], 0
    for (start, end), word in pieces:
        made += [line[at:start], word]
        at = end
    return "".join([*made, line[at:]])
