"""themes/*.toml -> how the console looks: a style for each meaning, and a Textual Theme for Textual's own widgets.

A theme is data. A bad file (or a bad style in it) is one notification; the console then uses the default theme.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from rich.cells import cell_len
from rich.errors import StyleSyntaxError
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme

from console.tui.signs import Charset, encode

if TYPE_CHECKING:
    from textual.app import App

    from console.tui.widgets.cells import Line

DEFAULT = "dark"
DEFAULT_ANSI = "ansi-dark"

STYLES: Mapping[str, str] = {
    "text": "everything that has no style of its own; its background is the screen's",
    "value": "figures",
    "label": "names of figures, column heads",
    "title": "titles of panes",
    "dim": "what matters less: ages, units, hints",
    "ok": "● what is well",
    "note": "● worth knowing, no alarm",
    "warn": "▲ warnings",
    "fail": "✗ failures",
    "unknown": "? what cannot be told",
    "old": "~ values older than three intervals",
    "border": "frames of panes",
    "border-focus": "frame of the pane that has the keys",
    "bar": "meters and trends",
    "bar-rest": "the empty part of a meter",
    "wait": "▓ waiting in the time split",
    "input": "░ input in the time split",
    "compute": "█ model in the time split",
    "output": "▒ output in the time split",
    "key": "keys in the footer and in hints",
    "header": "the header line",
    "footer": "the footer line",
    "tab": "the tab line",
    "tab-here": "the tab of this screen",
    "cursor": "the row under the cursor",
    "cursor-idle": "the same in a pane that has not the keys",
    "match": "what a filter found",
    "simulated": "the top line of the simulated box",
    "paused": "PAUSED and READ-ONLY in the header",
}
"""All style names and what they are for. A name that a theme leaves out looks like `text`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}")
_COLORS = ("primary", "secondary", "accent", "warning", "error", "success", "foreground", "background", "surface")


class ThemeError(Exception):
    """Why a theme file cannot be used, as one plain sentence."""


@dataclass(frozen=True)
class ConsoleTheme:
    """One theme: its Textual part and its styles by meaning."""

    name: str
    textual: Theme
    styles: Mapping[str, Style]


@dataclass(frozen=True)
class Themes:
    """All themes found, by name, and one sentence for each file that could not be used."""

    found: Mapping[str, ConsoleTheme]
    problems: tuple[str, ...] = field(default=())


def folders(user: Path | None = None) -> list[Path]:
    """Where theme files are: in the wheel, in the source tree (editable install), then the user's folder."""
    package = Path(__file__).resolve().parent.parent
    places = [package / "themes", package.parent / "themes"]
    built_in = next((place for place in places if place.is_dir()), places[0])
    return [built_in, user] if user is not None else [built_in]


def load(places: Iterable[Path]) -> Themes:
    """All themes; a later folder's theme replaces an earlier one of the same name."""
    found: dict[str, ConsoleTheme] = {}
    problems: list[str] = []
    for place in places:
        for path in sorted(place.glob("*.toml")):
            try:
                theme = read(path)
            except ThemeError as error:
                problems.append(str(error))
                continue
            found[theme.name] = theme
    if DEFAULT not in found:
        found[DEFAULT] = built_in_default()
    return Themes(found, tuple(problems))


def read(path: Path) -> ConsoleTheme:
    """One theme file; ThemeError says what is wrong with it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ThemeError(f"theme file {path} cannot be read: {error}") from error
    return parse(data, str(path))


def parse(data: Mapping[str, object], origin: str) -> ConsoleTheme:
    """A theme from its data; ThemeError says what is wrong."""
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise ThemeError(f"theme file {origin} has no name")
    if not _NAME.fullmatch(name):
        raise ThemeError(f"theme file {origin}: a name has letters, digits and hyphens only")
    unknown = set(data) - {"name", "dark", "ansi", "colors", "styles"}
    if unknown:
        raise ThemeError(f"theme file {origin}: unknown setting {sorted(unknown)[0]!r}")
    styles = _styles(_table(data, "styles", origin), origin)
    colors = _colors(_table(data, "colors", origin), origin)
    shade = "dark" if data.get("dark", True) else "light"
    base = BUILTIN_THEMES[f"{'ansi' if data.get('ansi') else 'textual'}-{shade}"]
    return ConsoleTheme(name, _textual(base, f"gpuconsole-{name}", colors), styles)


def _textual(base: Theme, name: str, colors: Mapping[str, Any]) -> Theme:
    """Textual's own theme of that kind with our colours; it keeps the many variables that we do not set."""
    return replace(base, name=name, **colors)


def _table(data: Mapping[str, object], name: str, origin: str) -> Mapping[str, str]:
    table = data.get(name, {})
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise ThemeError(f"theme file {origin}: [{name}] must hold texts only")
    return cast("Mapping[str, str]", table)


def _colors(table: Mapping[str, str], origin: str) -> dict[str, str]:
    for name, value in table.items():
        if name not in _COLORS:
            raise ThemeError(f"theme file {origin}: unknown colour {name!r} in [colors]")
        try:
            Color.parse(value)
        except ColorParseError as error:
            raise ThemeError(f"theme file {origin}: {name} = {value!r} is no colour") from error
    return dict(table)


def _styles(table: Mapping[str, str], origin: str) -> dict[str, Style]:
    styles: dict[str, Style] = {}
    for name, value in table.items():
        if name not in STYLES:
            raise ThemeError(f"theme file {origin}: unknown style {name!r} in [styles]")
        try:
            styles[name] = Style.parse(value)
        except StyleSyntaxError as error:
            raise ThemeError(f"theme file {origin}: {name} = {value!r} is no style") from error
    return styles


def built_in_default() -> ConsoleTheme:
    """A theme without colours for when no theme file is there at all."""
    styles = {
        "fail": "bold",
        "warn": "bold",
        "title": "bold",
        "cursor": "reverse",
        "tab-here": "reverse",
        "simulated": "reverse",
    }
    return parse({"name": DEFAULT, "ansi": True, "styles": styles}, "built in")


class Look:
    """Styles and characters as strips: the one place where a style name becomes colours and a sign its ASCII form."""

    def __init__(self, theme: ConsoleTheme, charset: Charset = Charset.UNICODE) -> None:
        self.theme = theme
        self.charset = charset
        self._text = theme.styles.get("text", Style.null())
        self._styles: dict[str, Style] = {"": self._text}

    def style(self, name: str) -> Style:
        """The style of a name, or of several laid over each other (`warn+cursor`). Unknown names look like `text`."""
        style = self._styles.get(name)
        if style is None:
            style = self._text
            for part in name.split("+"):
                style += self.theme.styles.get(part, Style.null())
            self._styles[name] = style
        return style

    def strip(self, line: Line, width: int, over: str) -> Strip:
        """A line as a strip of exactly `width` cells. Neighbours that look the same become one run, and blanks join
        the run before them where only the letters' colour differs: each run costs up to 40 bytes on the wire."""
        runs: list[tuple[str, Style]] = []
        used = 0
        for text, name in line:
            shown = encode(text, self.charset)
            style = self.style(f"{name}+{over}" if over else name)
            used += cell_len(shown)
            if runs and (runs[-1][1] == style or (shown.isspace() and _blank_alike(runs[-1][1], style))):
                runs[-1] = (runs[-1][0] + shown, runs[-1][1])
            elif shown:
                runs.append((shown, style))
        strip = Strip([Segment(text, style) for text, style in runs], used)
        filler = self.style(f"+{over}" if over else "")
        if used < width:
            if runs and _blank_alike(runs[-1][1], filler):
                text, style = runs[-1]
                return Strip([*list(strip)[:-1], Segment(text + " " * (width - used), style)], width)
            return Strip([*strip, Segment(" " * (width - used), filler)], width)
        return strip if used == width else strip.crop(0, width)


def _blank_alike(one: Style, other: Style) -> bool:
    """True when blanks look the same in both styles."""
    if one.bgcolor != other.bgcolor:
        return False
    return not (one.reverse or other.reverse or one.underline or other.underline)


@runtime_checkable
class HasLook(Protocol):
    """An app that says how it looks."""

    look: Look


_PLAIN = Look(built_in_default())


def look_of(app: App[object]) -> Look:
    """The app's Look; a plain one for apps that have none (tests of a single widget)."""
    return app.look if isinstance(app, HasLook) else _PLAIN
