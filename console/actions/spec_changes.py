"""Changes to what a container is made of, from the values of a form or of `do`: each checked, with its difference."""

from __future__ import annotations

import copy
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from console.actions.container_spec import UNLIMITED, Body, run_command
from console.core import triton_command
from console.core.plan import Field, WrongInput
from console.core.secrets import mask_command
from console.core.text import one_line

MODES = ("none", "poll", "explicit")
FIELDS = (
    Field("image", "the image to make it from; it must be here already (image.pull)"),
    Field("ports", "all ports that it publishes, as --publish has them: 127.0.0.1:8000:8000", "list"),
    Field("mode", "model control mode", "choice", MODES),
    Field("shm_size", "size of /dev/shm, as in 1g or 512m; none with the host's IPC"),
    Field("ulimits", "limits as name=soft or name=soft:hard, -1 for none; those not named stay", "map"),
    Field("cpus", "CPUs that it may use, as in 0-7,16; - for all"),
    Field("numa", "memory nodes that it may use, as in 0; - for all"),
    Field("env", "variables to set, NAME=value; those not named stay", "list", secret=True),
    Field("unset", "variables to take away", "list"),
    Field("flags", "server flags to set, --name=value; each replaces all of its name", "list"),
    Field("drop_flags", "server flags to take away, --name", "list"),
    Field("devices", "devices by CDI name or path, instead of those that it has", "list"),
    Field("stop_timeout", "seconds that it gets to stop", "int", low=0, high=86400, unit="s"),
)
"""What `container.recreate` takes; what is left out stays as it is."""

MOST_BYTES = 2**63 - 1
"""libpod's number has 63 bits: what is larger is refused when the old container is stopped already."""
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"([1-9][0-9]{0,14})([bkmg]?)b?", re.IGNORECASE)
_SET = re.compile(r"[0-9]{1,4}(?:-[0-9]{1,4})?(?:,[0-9]{1,4}(?:-[0-9]{1,4})?)*")
_PORT = re.compile(
    r"(?:(?P<ip>\[[0-9a-fA-F:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}|):)?(?:(?P<host>[0-9]{1,5}):)?(?P<inside>[0-9]{1,5})(?:/(?P<protocol>tcp|udp))?"
)
_LIMITS = "as core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack"
_LIMIT_NAMES = frozenset(_LIMITS.split())
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_FLAG = re.compile(r"--[a-z][a-z0-9-]{0,60}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")


def changed(body: Body, values: Mapping[str, str], argv: Sequence[str]) -> Body:
    """A copy with the changes; WrongInput with the field's name for what cannot be.

    `argv` is the command line that the container has now, for one that runs its image's default command.
    """
    new = copy.deepcopy(body)
    given = {name: value for name, value in values.items() if value}
    for name, change in _CHANGES.items():
        if name in given:
            change(new, given[name])
    if given.keys() & {"mode", "flags", "drop_flags"}:
        new["command"] = _command([*(new.get("command") or argv)], given)
    return new


def image(text: str) -> str:
    """An image's name; WrongInput for what is none."""
    if not _IMAGE.fullmatch(text):
        raise WrongInput(
            f"image: {one_line(text, 80)!r} is no name of an image, as nvcr.io/nvidia/tritonserver:24.05-py3"
        )
    return text


def _image(body: Body, text: str) -> None:
    body["image"] = image(text)


def _ports(body: Body, text: str) -> None:
    if (body.get("netns") or {}).get("nsmode") == "host":
        raise WrongInput("ports: it is in the host's network, where nothing is published: set --http-port by flags")
    body["portmappings"] = [port(part) for part in _parts(text)]


def port(text: str) -> Body:
    """`[[address:]host:]container[/protocol]`."""
    match = _PORT.fullmatch(text.strip())
    numbers = [int(match[key]) for key in ("host", "inside") if match[key]] if match else []
    if match is None or any(not 1 <= number <= 65535 for number in numbers) or not _is_address(match["ip"] or ""):
        raise WrongInput(f"ports: {one_line(text, 60)!r} must be as in 127.0.0.1:8000:8000 or 8000:8000")
    found: Body = {"container_port": int(match["inside"]), "protocol": match["protocol"] or "tcp"}
    if match["ip"]:
        found["host_ip"] = match["ip"].strip("[]")
    if match["host"]:
        found["host_port"] = int(match["host"])
    return found


def _is_address(text: str) -> bool:
    try:
        return not text or bool(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return False


def _shm_size(body: Body, text: str) -> None:
    if (body.get("ipcns") or {}).get("nsmode") == "host":
        raise WrongInput("shm_size: it shares the host's IPC, so /dev/shm is the host's")
    body["shm_size"] = size(text)


def size(text: str) -> int:
    """Bytes of `1g`, `512m`, `64000`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise WrongInput(f"shm_size: {one_line(text, 40)!r} must be a whole number with k, m or g, as in 1g")
    found = int(match[1]) * _SIZES[match[2].lower()]
    if found > MOST_BYTES:
        raise WrongInput(f"shm_size: {one_line(text, 40)!r} is more than Podman can count; give a smaller one")
    return found


def _ulimits(body: Body, text: str) -> None:
    asked = {one["type"]: one for one in map(ulimit, _parts(text))}
    kept = [one for one in body.get("r_limits") or () if one["type"] not in asked]
    body["r_limits"] = [*kept, *asked.values()]


def ulimit(text: str) -> Body:
    """`memlock=-1`, `nofile=1024:4096`."""
    name, _, value = text.partition("=")
    soft, colon, hard = value.partition(":")
    if name not in _LIMIT_NAMES:
        raise WrongInput(f"ulimits: {one_line(name, 40)!r} is no limit; there are {', '.join(sorted(_LIMIT_NAMES))}")
    low, high = _limit(text, soft), _limit(text, hard if colon else soft)
    if low > high:
        raise WrongInput(f"ulimits: {one_line(text, 60)!r} has a soft limit above its hard one")
    return {"type": name, "soft": low, "hard": high}


def _limit(text: str, value: str) -> int:
    if value in ("-1", "unlimited"):
        return UNLIMITED
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise WrongInput(f"ulimits: {one_line(text, 60)!r} must be name=number, name=soft:hard, or -1 for no limit")
    return int(value)


def _cpus(body: Body, text: str) -> None:
    _resource(body, "cpus", text)


def _numa(body: Body, text: str) -> None:
    _resource(body, "mems", text)


def _resource(body: Body, key: str, text: str) -> None:
    if text != "-" and (not _SET.fullmatch(text) or any(low > high for low, high in ranges(text))):
        raise WrongInput(f"{'cpus' if key == 'cpus' else 'numa'}: {one_line(text, 60)!r} must be as in 0-7,16")
    cpu = body.setdefault("resource_limits", {}).setdefault("cpu", {})
    cpu.pop(key, None)
    cpu.update({} if text == "-" else {key: text})


def ranges(text: str) -> list[tuple[int, int]]:
    """(first, last) of each part of `0-7,16`."""
    pairs = (part.partition("-") for part in text.split(","))
    return [(int(low), int(high or low)) for low, _, high in pairs]


def _env(body: Body, text: str) -> None:
    known = body.setdefault("env", {})
    for part in _glued(_parts(text), lambda part: bool(_VARIABLE.fullmatch(part.partition("=")[0])) and "=" in part):
        name, equals, value = part.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise WrongInput("env: must be NAME=value pairs with commas between")
        known[name] = value


def _unset(body: Body, text: str) -> None:
    known = body.get("env") or {}
    for name in _parts(text):
        if name not in known:
            raise WrongInput(f"unset: {one_line(name, 60)!r} is not set by this container (the image's stay)")
        known.pop(name)


def _devices(body: Body, text: str) -> None:
    body["devices"] = [{"path": path} for path in _parts(text)]


def _stop_timeout(body: Body, text: str) -> None:
    body["stop_timeout"] = int(text)


_CHANGES = {
    "image": _image,
    "ports": _ports,
    "shm_size": _shm_size,
    "ulimits": _ulimits,
    "cpus": _cpus,
    "numa": _numa,
    "env": _env,
    "unset": _unset,
    "devices": _devices,
    "stop_timeout": _stop_timeout,
}


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _glued(parts: Sequence[str], begins: Callable[[str], bool]) -> Iterator[str]:
    """Values may hold commas: a part that begins nothing new belongs to the one before it."""
    whole = ""
    for part in parts:
        if whole and begins(part):
            yield whole
            whole = part
        else:
            whole = f"{whole},{part}" if whole else part
    if whole:
        yield whole


# -------------------------------------------------------------------------------------------------------- server flags


def _command(argv: list[str], given: Mapping[str, str]) -> list[str]:
    if any(" " in word and "tritonserver" in word for word in argv):
        raise WrongInput("flags: its command is one shell line, which is not edited here: create it anew")
    if not triton_command.is_tritonserver(argv):
        raise WrongInput("flags: its command does not name tritonserver, so its flags are not known")
    for part in _parts(given.get("drop_flags", "")):
        argv = _without(argv, _flag_name(part, "drop_flags"))
    asked: dict[str, list[str]] = {}
    for part in _glued(_parts(given.get("flags", "")), lambda part: part.startswith("--")):
        asked.setdefault(_flag_name(part, "flags"), []).append(part)
    for name, words in asked.items():
        argv = [*_without(argv, name), *words]
    return _with_mode(argv, given["mode"]) if given.get("mode") else argv


def _flag_name(text: str, where: str) -> str:
    name = text.partition("=")[0]
    if not _FLAG.fullmatch(name):
        raise WrongInput(f"{where}: {one_line(name, 60)!r} is no flag of tritonserver, as in --log-verbose=1")
    return name


def _without(argv: Sequence[str], flag: str) -> list[str]:
    """Written as `--flag=value`, or `--flag value`."""
    kept: list[str] = []
    words = iter(range(len(argv)))
    for position in words:
        word = argv[position]
        if word.partition("=")[0] != flag:
            kept.append(word)
        elif "=" not in word and position + 1 < len(argv) and not argv[position + 1].startswith("--"):
            next(words, None)
    return kept


def _with_mode(argv: list[str], mode: str) -> list[str]:
    """Explicit loads nothing by itself, and --load-model is refused by the server in any other mode."""
    argv = [*_without(argv, "--model-control-mode"), f"--model-control-mode={mode}"]
    if mode != "explicit":
        return _without(argv, "--load-model")
    named = any(word.partition("=")[0] == "--load-model" for word in argv)
    return argv if named else [*argv, "--load-model=*"]


# -------------------------------------------------------------------------------------------------------- differences


def difference(old: Body, new: Body) -> tuple[str, ...]:
    """Lines of the `podman run` that are taken away and added, values of the environment masked."""
    before, after = _lines(old), _lines(new)
    gone = [f"- {shown}" for line, shown in before if line not in dict(after)]
    added = [f"+ {shown}" for line, shown in after if line not in dict(before)]
    return (*gone, *added)


def _lines(body: Body) -> list[tuple[str, str]]:
    """(option with its value, the same masked), one for each option and word of the command."""
    words, shown = run_command(body)[2:], mask_command(run_command(body))[2:]
    found: list[tuple[str, str]] = []
    position = 0
    options = len(words) - len(body.get("command") or ()) - 1
    while position < len(words):
        takes = position < options and words[position].startswith("--") and position + 1 <= options - 1
        pair = takes and not words[position + 1].startswith("--")
        step = 2 if pair else 1
        line = " ".join(words[position : position + step])
        found.append((line, one_line(" ".join(shown[position : position + step]), 200)))
        position += step
    return found
