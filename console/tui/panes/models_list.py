"""Left pane of Models (design 1.5): the union list, grouped by model, one row for each version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from console.core import units
from console.core.derive import UNLOADED
from console.core.model import DiskModel, DiskVersion, ModelRow, Sign, Snapshot
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import wrapped
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row

Which = Literal["all", "on disk", "loaded"]
VIEWS: tuple[Which, ...] = ("all", "on disk", "loaded")
SORTS = ("MODEL", "STATE", "REQ/s", "MEAN ms")
FIGURES = 30
"""Cells that all columns but the name take."""
MOST_NAME = 32
LOADED = frozenset({"READY", "LOADING", "UNLOADING"})


@dataclass(frozen=True)
class Shown:
    """How the list is shown: what of it, in which order."""

    view: Which = "all"
    sort: str = "MODEL"
    reverse: bool = False
    """True turns the column's natural order round (names from a, figures from the highest)."""
    filter: str = ""
    """Part of a name; `!` first turns it round."""

    def next_view(self) -> Shown:
        """As this, with the next of all, on disk, loaded."""
        return replace(self, view=VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)])

    def sorted_by(self, step: int) -> Shown:
        """The column `step` further to the right."""
        return replace(self, sort=SORTS[(SORTS.index(self.sort) + step) % len(SORTS)])


class VersionKey(NamedTuple):
    """Identity of a row: a model (`version` None) or one of its versions ("" when the index knows none)."""

    model: str
    version: str | None


class Version(NamedTuple):
    """One version of one model: served or not, on disk or not."""

    version: str
    row: ModelRow | None
    disk: DiskVersion | None
    newer: bool
    """True for the folder that the next load would deploy."""


class Model(NamedTuple):
    """A model with all its versions, newest first."""

    name: str
    versions: tuple[Version, ...]
    disk: DiskModel | None
    rows: tuple[ModelRow, ...]


class Grouping:
    """`models` once for each Snapshot, however often it is asked: with a thousand models it takes milliseconds."""

    def __init__(self) -> None:
        self._of: tuple[object, object] = (None, None)
        self._models: tuple[Model, ...] = ()

    def of(self, snapshot: Snapshot) -> tuple[Model, ...]:
        """All models of this Snapshot."""
        now = (snapshot.models, snapshot.repository.value)
        if now[0] is not self._of[0] or now[1] is not self._of[1]:
            self._of, self._models = now, models(snapshot)
        return self._models


class ModelsList(Pane):
    """The list of models and versions; its cursor chooses what the details are about."""

    FIELDS = ("models", "repository", "stats", "index")
    AGE = "index"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.shown = Shown()
        self.pinned = 1
        self._grouping = Grouping()
        self._found: tuple[Model, ...] = ()

    def title(self, view: View) -> Line:
        return ((title(self._found, len(self._grouping.of(view.snapshot)), self.shown), "title"),)

    def lines(self, view: View) -> list[Row]:
        self.shown = self._now()
        self._found = found = chosen(self._grouping.of(view.snapshot), self.shown)
        made = rows(found, view.width, old=view.snapshot.stats.is_old(view.mono))
        return made if found else [*made, *_nothing(view, self.shown)]

    def shift_sort(self, steps: int) -> bool:
        self.shown = self._now().sorted_by(steps)
        return True

    def turn_sort(self) -> bool:
        self.shown = replace(self._now(), reverse=not self.shown.reverse)
        return True

    def next_view(self) -> bool:
        self.shown = self._now().next_view()
        return True

    def filterable(self) -> bool:
        return True

    def yank(self) -> str:
        """The model's name, as it came."""
        return self.cursor.model if isinstance(self.cursor, VersionKey) else ""

    def _now(self) -> Shown:
        """How the list is shown, with the filter that the screen typed."""
        return replace(self.shown, filter=self.filter)

    def changes(self) -> object:
        return self.shown


def _nothing(view: View, shown: Shown) -> list[Row]:
    """Why the list is empty."""
    snapshot = view.snapshot
    if shown.filter or shown.view != "all":
        return [Row((("  no model matches; v and / change what is shown", "dim"),))]
    made: list[Row] = []
    for name, reading in (("Triton", snapshot.index), ("disk", snapshot.repository)):
        if reading.error is not None:
            told = wrapped(f"{name}: {one_line(reading.error.message)}", view.width - 2, most=4)
            made += [Row((("  " if number else "? ", "unknown"), (line, ""))) for number, line in enumerate(told)]
        elif reading.tried:
            made.append(Row(((f"– {name}: no models", "dim"),)))
        else:
            made.append(Row(((f"… {name}: not read yet", "dim"),)))
    return made


def models(snapshot: Snapshot) -> tuple[Model, ...]:
    """Every model that index, statistics, metrics or the disk knows, by name."""
    disk = {one.name: one for one in (snapshot.repository.value.models if snapshot.repository.value else ())}
    rows: dict[str, list[ModelRow]] = {}
    for row in snapshot.models:
        rows.setdefault(row.name, []).append(row)
    names = sorted({*disk, *rows})
    return tuple(_model(name, tuple(rows.get(name, ())), disk.get(name)) for name in names)


def _model(name: str, rows: tuple[ModelRow, ...], disk: DiskModel | None) -> Model:
    on_disk = {str(one.version): one for one in (disk.versions if disk else ())}
    served = {row.version or "": row for row in rows}
    if "" in served and on_disk and served[""].state is None:
        del served[""]
    newer = max((row.newer_on_disk for row in rows if row.newer_on_disk), default=None)
    versions = [
        Version(version, served.get(version), on_disk.get(version), version == str(newer))
        for version in {*on_disk, *served}
    ]
    versions.sort(key=lambda one: (_number(one.version), one.version), reverse=True)
    return Model(name, tuple(versions), disk, rows)


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else -1


def sign_of(version: Version) -> Sign:
    """✗ failed, ▲ newer than the served one or moving, ● READY, – on disk only."""
    row = version.row
    if row is not None and row.failed_load:
        return "fail"
    if row is not None and row.state in ("LOADING", "UNLOADING"):
        return "warn"
    if row is not None and row.state == "READY":
        return "ok"
    if version.newer:
        return "warn"
    if row is not None and row.state in (None, "UNKNOWN") and version.disk is None:
        return "unknown"
    return "none"


def word_of(version: Version) -> str:
    """One word for a version's state."""
    row = version.row
    if row is None or (row.state is None and version.disk is not None):
        return "on disk" if version.disk is None or version.disk.usable else "empty"
    if row.failed_load:
        return "FAILED"
    if row.state == "UNAVAILABLE":
        return UNLOADED if row.reason == UNLOADED or not row.reason else "UNAVAILABLE"
    return row.state or "not known"


def _shown(version: Version, view: Which) -> bool:
    if view == "loaded":
        return version.row is not None and version.row.state in LOADED
    return version.disk is not None


def matches(name: str, wanted: str) -> bool:
    """True when the filter lets `name` through; `!` first turns it round, "" lets all through."""
    inverted = wanted.startswith("!")
    word = wanted[1:] if inverted else wanted
    return not word or (word.casefold() in name.casefold()) != inverted


def chosen(known: Iterable[Model], shown: Shown) -> tuple[Model, ...]:
    """The models to show, in their order, each with the versions of this view."""
    kept = []
    for model in known:
        if not matches(model.name, shown.filter):
            continue
        if shown.view == "all":
            kept.append(model)
            continue
        versions = tuple(one for one in model.versions if _shown(one, shown.view))
        if versions:
            kept.append(model._replace(versions=versions))
    order: Callable[[Model], tuple[float, str]] | None = {
        "STATE": _by_state,
        "REQ/s": _by_rate,
        "MEAN ms": _by_mean,
    }.get(shown.sort)
    if order is not None:
        kept.sort(key=order)
    return tuple(reversed(kept)) if shown.reverse else tuple(kept)


def _by_state(model: Model) -> tuple[float, str]:
    order: tuple[Sign, ...] = ("fail", "warn", "unknown", "ok", "note", "none")
    return min((order.index(sign_of(one)) for one in model.versions), default=len(order)), model.name


def _by_rate(model: Model) -> tuple[float, str]:
    rates = [row.flow.w10.rate for row in model.rows if row.flow and row.flow.w10]
    return -max(rates, default=-1.0), model.name


def _by_mean(model: Model) -> tuple[float, str]:
    means = [row.flow.w10.request_ms or 0.0 for row in model.rows if row.flow and row.flow.w10]
    return -max(means, default=-1.0), model.name


def rows(found: Iterable[Model], width: int, old: bool = False) -> list[Row]:
    """The list's rows; `old` puts `~` before figures that were not read anew. Lines are made when they are seen."""
    name_cells = max(8, min(MOST_NAME, width - FIGURES))
    made = [Row(((_header(name_cells), "label"),))]
    for model in found:
        made.append(Row(_group_line(model, name_cells), VersionKey(model.name, None)))
        made += [
            Row(_version_line(version, name_cells, old), VersionKey(model.name, version.version))
            for version in model.versions
        ]
    return made


def _header(name_cells: int) -> str:
    return f"  {left('MODEL', name_cells)}{right('VER', 5)} {left('STATE', 8)}{right('REQ/s', 6)}{right('MEAN ms', 8)}"


def _group_line(model: Model, name_cells: int) -> Callable[[], Line]:
    def line() -> Line:
        return (("  " + left(one_line(model.name, 200), name_cells), ""), (f" {_summary(model)}", "dim"))

    return line


def _summary(model: Model) -> str:
    if any(row.ensemble for row in model.rows):
        return "ensemble"
    ready = sum(1 for row in model.rows if row.state == "READY")
    return f"{ready} of {max(1, len(model.versions), len(model.rows))}"


def _version_line(version: Version, name_cells: int, old: bool) -> Callable[[], Line]:
    def line() -> Line:
        sign = sign_of(version)
        window = version.row.flow.w10 if version.row and version.row.flow else None
        rate = units.rate(window.rate) if window else units.NONE
        mean = units.millis(window.request_ms) if window else units.NONE
        if old and window is not None:
            rate, mean = f"~{rate}", f"~{mean}"
        number = right(one_line(version.version, 40) or units.NONE, name_cells + 5)
        word = word_of(version)
        return (
            ("  ", ""),
            (SIGNS[sign], SIGN_STYLES[sign]),
            (f"{number[1:]} ", ""),
            (left(word, 8), SIGN_STYLES[sign] if sign in ("fail", "warn") else "dim" if sign == "none" else ""),
            (f"{right(rate, 6)}{right(mean, 8)}", ""),
        )

    return line


def title(found: tuple[Model, ...], known: int, shown: Shown) -> str:
    """What the pane's frame says: how many, and whatever is not the usual way to show them."""
    count = f"{len(found)}" if len(found) == known else f"{len(found)} of {known}"
    parts = [f"Models  {count}"]
    if shown.view != "all":
        parts.append(shown.view)
    if shown.sort != "MODEL" or shown.reverse:
        parts.append(f"by {shown.sort}{' turned round' if shown.reverse else ''}")
    if shown.filter:
        parts.append(f"/{one_line(shown.filter, 40)}")
    return "  ".join(parts)
