"""What Podman's containers.conf files set: the package's, the administrator's, the user's, later ones winning.
There is no check in this file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from console.checks.box import at
from console.core.facts import Evidence, Facts, Unknowable
from console.core.text import one_line

NEEDS = (
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/*.conf",
    "{home}/.config/containers/containers.conf",
    "{home}/.config/containers/containers.conf.d/*.conf",
)


class Setting(Struct, frozen=True):
    """One value and where it stands."""

    value: Any
    path: str
    table: str
    key: str


class Settings(Struct, frozen=True):
    """All that could be read; `broken` maps files that are no TOML to why, `unread` those that may not be read."""

    tables: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    broken: Mapping[str, str] = {}
    unread: Mapping[str, str] = {}

    def get(self, table: str, key: str) -> Setting | None:
        """The value that counts, `get("engine", "runtime")`; None where no file that could be read sets it."""
        for path, document in reversed(self.tables):
            inner = at(document, *table.split("."))
            if isinstance(inner, Mapping) and key in inner:
                return Setting(inner[key], path, table, key)
        return None

    def surely(self) -> None:
        """Unknowable where a file may not be read: what is not found may stand there."""
        for path, why in self.unread.items():
            raise Unknowable(f"{path}: {why}", f"sudo cat {path}")


def settings(facts: Facts) -> Settings:
    """Needs NEEDS."""
    tables: list[tuple[str, Mapping[str, Any]]] = []
    broken: dict[str, str] = {}
    unread: dict[str, str] = {}
    for place in _places(facts):
        try:
            for path in facts.glob(place) if "*" in place else (place,):
                tables.append((path, tomllib.loads(facts.maybe(path) or "")))
        except Unknowable as missing:
            unread[place] = missing.why.removeprefix(f"{place}: ")
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            broken[path] = one_line(str(error), 120)
    return Settings(tuple(tables), broken, unread)


def _places(facts: Facts) -> Iterator[str]:
    for need in NEEDS:
        if "{home}" not in need:
            yield need
        else:
            yield from (need.replace("{home}", home) for home in facts.every("home"))


def line(facts: Facts, found: Setting) -> tuple[Evidence, ...]:
    """Where a setting stands."""
    return facts.lines(found.path, rf"^\s*\"?{re.escape(found.key)}\"?\s*=")[:1]


def without(facts: Facts, found: Setting) -> str | None:
    """The file's text with that one line made a comment; None where more than one line says it, or where the file
    would then say anything else."""
    text = facts.text(found.path)
    new, count = re.subn(rf"(?m)^([ \t]*\"?{re.escape(found.key)}\"?[ \t]*=)", r"#\1", text)
    if count != 1:
        return None
    try:
        before, after = tomllib.loads(text), tomllib.loads(new)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    inner: Any = before
    for step in found.table.split("."):
        inner = inner[step]
    del inner[found.key]
    return new if _pruned(before) == _pruned(after) else None


def _pruned(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value != {}}
