"""The text of systemd units and Quadlet files, taken apart (pure): sections, keys, command lines, time spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

MOST = 5000
"""Lines that are looked at: no unit has more."""
_SECONDS = {
    "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3,
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0, "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip
_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]{0,7})")


class UnitLine(Struct, frozen=True):
    """`Key=value` of a section; continued lines are joined by a blank."""

    path: str
    number: int
    section: str
    key: str
    value: str


def parsed(path: str, text: str) -> tuple[UnitLine, ...]:
    """All keys of a unit's text in order; what is no key is left out."""
    found: list[UnitLine] = []
    section = ""
    held: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines()[:MOST], 1):
        bare = line.strip()
        if bare.startswith(("#", ";")) or (not bare and not held):
            continue
        if not held:
            start = number
        held.append(bare.removesuffix("\\").rstrip() if bare.endswith("\\") else bare)
        if bare.endswith("\\"):
            continue
        joined = " ".join(held)
        held = []
        if joined.startswith("[") and joined.endswith("]"):
            section = joined[1:-1]
            continue
        key, equals, value = joined.partition("=")
        if equals:
            found.append(UnitLine(path, start, section, key.strip(), value.strip()))
    return tuple(found)


def values(lines: Iterable[UnitLine], section: str, key: str) -> tuple[UnitLine, ...]:
    """The lines of one key; an empty one takes back those before it, as systemd does."""
    found: list[UnitLine] = []
    for line in lines:
        if line.section == section and line.key == key:
            found = [*found, line] if line.value else []
    return tuple(found)


def last(lines: Iterable[UnitLine], section: str, key: str) -> str | None:
    """The value that counts for a key of one value; None where it is not given."""
    found = values(lines, section, key)
    return found[-1].value if found else None


def listed(lines: Iterable[UnitLine], section: str, *keys: str) -> frozenset[str]:
    """All words of keys that hold lists: units of `After=`, `Wants=`."""
    every = tuple(lines)
    return frozenset(word for key in keys for line in values(every, section, key) for word in line.value.split())


def words(command: str) -> tuple[str, ...]:
    """The words of an `ExecStart=`, its prefix (`-`, `@`, `!`) taken off; quotes are undone, variables are not."""
    found: list[str] = []
    word: list[str] = []
    quote, inside, escaped = "", False, False
    for char in command.lstrip("-@!+:").strip():
        if escaped:
            word.append(char)
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = inside = True
        elif quote:
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char in "\"'":
            quote, inside = char, True
        elif char.isspace():
            if inside:
                found.append("".join(word))
            word, inside = [], False
        else:
            word.append(char)
            inside = True
    return tuple([*found, "".join(word)] if inside else found)


def seconds(text: str | None) -> float | None:
    """A time span as systemd writes and reads it: `1min 30s`, `90`, `infinity` (inf); None for what is none."""
    if text is None:
        return None
    bare = text.strip().lower()
    if bare in ("infinity", "inf"):
        return float("inf")
    parts = _SPAN.findall(bare)
    if not parts or _SPAN.sub("", bare).strip() or any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def runs_podman(command: Sequence[str], verb: str) -> bool:
    """Whether the words run `podman VERB` (`run`, `rm`, `start`)."""
    return bool(command) and command[0].rsplit("/", 1)[-1] == "podman" and verb in command[1:6]
