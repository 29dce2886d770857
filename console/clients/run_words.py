"""The words of a `podman run` or `podman create`, taken apart into options, image and command (pure).

Podman keeps them as `Config.CreateCommand` of an inspect answer; nothing else there has CDI device names (host.md
3.2). A container made through the API has none: then the options are put together from the rest of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

_SHORT: Mapping[str, str] = {
    "a": "attach",
    "c": "cpu-shares",
    "d": "detach",
    "e": "env",
    "h": "hostname",
    "i": "interactive",
    "l": "label",
    "m": "memory",
    "p": "publish",
    "P": "publish-all",
    "q": "quiet",
    "t": "tty",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
_NO_WORD = """detach disable-content-trust env-host http-proxy init interactive no-healthcheck no-hostname no-hosts
oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
tls-verify tty unsetenv-all"""
"""Options that take no word of their own (podman-run(1) of 5.4)."""
_SWITCHES = frozenset(_NO_WORD.split())
_GLOBAL_SWITCHES = frozenset({"remote", "r", "syslog", "noout", "transient-store"})
_ALIASES: Mapping[str, str] = {"net": "network", "volumes": "volume", "expose-port": "expose"}
_IMAGE_ENV = frozenset({"PATH", "TERM", "container", "HOME", "HOSTNAME"})
"""Variables that Podman itself sets in every container."""
_DEFAULT_SHM = 65_536_000
_DEFAULT_PIDS = 2048
_DEFAULT_NETWORKS = frozenset({"", "default", "bridge", "slirp4netns", "pasta", "private"})


class Option(Struct, frozen=True):
    """`--publish 8000:8000`; `value` None = a switch."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """As one word: a value that begins with a dash stays a value."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


class RunWords(Struct, frozen=True):
    """A `podman run` in parts. `told` False: put together from an inspect answer, so something may be missing."""

    options: tuple[Option, ...]
    image: str
    command: tuple[str, ...] = ()
    global_options: tuple[Option, ...] = ()
    told: bool = True

    def values(self, name: str) -> tuple[str, ...]:
        """All values of an option, in order."""
        return values(self.options, name)

    def without(self, *names: str) -> tuple[Option, ...]:
        """The options but these."""
        return tuple(option for option in self.options if option.name not in names)


def of_container(inspect: Mapping[str, Any], image: Mapping[str, Any] | None = None) -> RunWords:
    """The words that make this container again, from its inspect answer (and its image's, to leave out what the image
    says already)."""
    config = _part(inspect, "Config")
    words = parse(_strings(config.get("CreateCommand")))
    if words is None:
        return from_inspect(inspect, image or {})
    known = {line.partition("=")[0]: line for line in _strings(config.get("Env"))}
    return structs.replace(words, options=tuple(_with_value(option, known) for option in words.options))


def _with_value(option: Option, known: Mapping[str, str]) -> Option:
    """`--env NAME` took its value from the shell that ran podman: a unit has no such shell."""
    if option.name != "env" or option.value is None or "=" in option.value:
        return option
    return Option("env", known.get(option.value, option.value))


def values(options: Sequence[Option], name: str) -> tuple[str, ...]:
    """All values of an option, in order."""
    return tuple(option.value for option in options if option.name == name and option.value is not None)


def options_of(words: Sequence[str]) -> tuple[Option, ...]:
    """The options between `run` or `create` and the image; () for any other command."""
    at = _verb(words)
    return () if at is None else tuple(_options(words[at + 1 :], _SWITCHES)[0])


def _verb(words: Sequence[str]) -> int | None:
    at = next((place for place, word in enumerate(words) if place and word in ("run", "create")), None)
    return None if at is None or any("play" in word or "kube" in word for word in words[1:at]) else at


def parse(words: Sequence[str]) -> RunWords | None:
    """None where this is no `podman run` or `create` of an image."""
    at = _verb(words)
    if at is None:
        return None
    head = [word for word in words[1:at] if word != "container"]
    global_options, _ = _options(head, _GLOBAL_SWITCHES)
    options, rest = _options(words[at + 1 :], _SWITCHES)
    if not rest:
        return None
    return RunWords(tuple(options), rest[0], tuple(rest[1:]), tuple(global_options))


def _options(words: Sequence[str], switches: frozenset[str]) -> tuple[list[Option], list[str]]:
    """Options up to the first word that is none, and what is left from there."""
    found: list[Option] = []
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _ALIASES.get(name, name)
            if equals:
                found.append(Option(name, value))
            elif name in switches:
                found.append(Option(name))
            else:
                found.append(Option(name, left.pop(0) if left else ""))
            continue
        found += _short(word[1:], left, switches)
    return found, left


def _short(letters: str, left: list[str], switches: frozenset[str]) -> Iterator[Option]:
    """`-dit`, `-p 8000:8000`, `-p8000:8000`, `-e=A=1`."""
    for place, letter in enumerate(letters):
        name = _SHORT.get(letter, letter)
        if name in switches:
            yield Option(name)
            continue
        value = letters[place + 1 :].removeprefix("=")
        if value or not left:
            yield Option(name, value)
        else:
            yield Option(name, left.pop(0))
        return


# ------------------------------------------------------------------------------------------ from an inspect answer


def from_inspect(inspect: Mapping[str, Any], image: Mapping[str, Any]) -> RunWords:
    """The options that a container made through the API would have been run with; CDI device names are not there."""
    config, host = _part(inspect, "Config"), _part(inspect, "HostConfig")
    base = _part(image, "Config")
    found = [
        *_ports(host),
        *_mounts(inspect),
        *_devices(host),
        *_limits(host),
        *_environment(config, base),
        *_labels(config, base),
        *_security(host),
        *_others(config, host, base),
    ]
    name = str(inspect.get("ImageName") or config.get("Image") or inspect.get("Image") or "")
    return RunWords(tuple(found), name, tuple(_strings(config.get("Cmd"))), told=False)


def _ports(host: Mapping[str, Any]) -> Iterator[Option]:
    for inside, bindings in _mapping(host.get("PortBindings")).items():
        port, _, protocol = str(inside).partition("/")
        for binding in bindings or ():
            address = str(_mapping(binding).get("HostIp") or "")
            address = f"[{address}]" if ":" in address else address
            outside = ":".join(part for part in (address, str(_mapping(binding).get("HostPort") or ""), port) if part)
            yield Option("publish", outside if protocol in ("", "tcp") else f"{outside}/{protocol}")


def _mounts(inspect: Mapping[str, Any]) -> Iterator[Option]:
    for mount in inspect.get("Mounts") or ():
        one = _mapping(mount)
        source = one.get("Name") if one.get("Type") == "volume" else one.get("Source")
        flags = [] if one.get("RW", True) else ["ro"]
        flags += [flag for flag in str(one.get("Mode") or "").split(",") if flag in ("z", "Z")]
        ends = [str(source or ""), str(one.get("Destination") or ""), ",".join(flags)]
        yield Option("volume", ":".join(end for end in ends if end))
    for path, flags in _mapping(_part(inspect, "HostConfig").get("Tmpfs")).items():
        yield Option("tmpfs", f"{path}:{flags}" if flags else str(path))


def _devices(host: Mapping[str, Any]) -> Iterator[Option]:
    for device in host.get("Devices") or ():
        one = _mapping(device)
        outside, inside = str(one.get("PathOnHost") or ""), str(one.get("PathInContainer") or "")
        yield Option("device", outside if inside in ("", outside) else f"{outside}:{inside}")


def _limits(host: Mapping[str, Any]) -> Iterator[Option]:
    shm = int(host.get("ShmSize") or 0)
    if shm and shm != _DEFAULT_SHM:
        yield Option("shm-size", f"{shm}b")
    for limit in host.get("Ulimits") or ():
        one = _mapping(limit)
        name = str(one.get("Name") or "").removeprefix("RLIMIT_").lower()
        soft, hard = (_limit(one.get(key)) for key in ("Soft", "Hard"))
        yield Option("ulimit", f"{name}={soft}" if soft == hard else f"{name}={soft}:{hard}")
    for key, name in (("CpusetCpus", "cpuset-cpus"), ("CpusetMems", "cpuset-mems")):
        if host.get(key):
            yield Option(name, str(host[key]))
    if host.get("Memory"):
        yield Option("memory", f"{int(host['Memory'])}b")
    if host.get("NanoCpus"):
        yield Option("cpus", f"{int(host['NanoCpus']) / 1e9:g}")
    pids = int(host.get("PidsLimit") or 0)
    if pids > 0 and pids != _DEFAULT_PIDS:
        yield Option("pids-limit", str(pids))


def _limit(value: Any) -> str:
    number = int(value or 0)
    return "-1" if number < 0 or number >= 2**63 - 1 else str(number)


def _environment(config: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Option]:
    known = frozenset(_strings(base.get("Env")))
    for line in _strings(config.get("Env")):
        if line not in known and line.partition("=")[0] not in _IMAGE_ENV:
            yield Option("env", line)


def _labels(config: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Option]:
    known = _mapping(base.get("Labels"))
    for name, value in _mapping(config.get("Labels")).items():
        if known.get(name) != value and name != "PODMAN_SYSTEMD_UNIT":
            yield Option("label", f"{name}={value}")


def _security(host: Mapping[str, Any]) -> Iterator[Option]:
    if host.get("Privileged"):
        yield Option("privileged")
    if host.get("ReadonlyRootfs"):
        yield Option("read-only")
    names = (("SecurityOpt", "security-opt"), ("CapAdd", "cap-add"), ("CapDrop", "cap-drop"), ("GroupAdd", "group-add"))
    for key, name in names:
        yield from (Option(name, value) for value in _strings(host.get(key)))


def _others(config: Mapping[str, Any], host: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Option]:
    network = str(host.get("NetworkMode") or "")
    if network not in _DEFAULT_NETWORKS:
        yield Option("network", network)
    for key, name in (("IpcMode", "ipc"), ("PidMode", "pid")):
        if host.get(key) == "host":
            yield Option(name, "host")
    for key, name in (("User", "user"), ("WorkingDir", "workdir")):
        if config.get(key) and config.get(key) != base.get(key):
            yield Option(name, str(config[key]))
    if host.get("Init"):
        yield Option("init")
    for line in _strings(host.get("ExtraHosts")):
        yield Option("add-host", line)


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _mapping(document.get(key))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _strings(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else []
