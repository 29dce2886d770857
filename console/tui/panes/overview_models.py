"""Models on the Overview (screens.md 1.1 to 1.3): one row for each model version; where nothing serves, the disk's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.core import units
from console.core.model import DiskModel, ModelKey, ModelRow, Sign, Window
from console.core.text import one_line
from console.tui.panes.base import Pane, View, age_line
from console.tui.panes.overview_service import split_parts, split_segments
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, Segment, cut, left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import nice_top, trend

TREND_STEP, TREND_CELLS = 4.0, 15
NONE = units.NONE


@dataclass(frozen=True)
class Column:
    """One column of figures: its head, its cells, its text for a row, and how soon it is dropped (highest first)."""

    head: str
    cells: int
    text: Callable[[ModelRow, View], str]
    rank: int = 0
    sort: Callable[[ModelRow], float] | None = None
    """Makes the column one to sort by (highest first)."""


def _window(row: ModelRow) -> Window | None:
    return row.flow.w10 if row.flow else None


def _rate(row: ModelRow, view: View) -> str:
    window = _window(row)
    old = "~" if view.snapshot.stats.is_old(view.mono) else ""
    return f"{old}{units.rate(window.rate)}" if window else NONE


def _mean(row: ModelRow, view: View) -> str:
    window = _window(row)
    return units.millis(window.request_ms) if window else NONE


def _wait(row: ModelRow, view: View) -> str:
    window = _window(row)
    return units.millis(window.queue_ms) if window and not row.ensemble else NONE


def _compute(row: ModelRow, view: View) -> str:
    window = _window(row)
    return units.millis(window.compute_ms) if window and not row.ensemble else NONE


def _batch(row: ModelRow, view: View) -> str:
    window = _window(row)
    if window is None or window.mean_batch is None or row.ensemble:
        return NONE
    if row.config is None:
        return units.one(window.mean_batch)
    if not row.config.max_batch_size:
        return f"1/{NONE}"
    return f"{units.one(window.mean_batch)}/{row.config.max_batch_size}"


def _busy(row: ModelRow, view: View) -> str:
    return f"{units.percent(row.busy)}{'▲' if row.busy_clamped else ''}"


def _instances(row: ModelRow, view: View) -> str:
    return NONE if row.instances is None else str(row.instances)


def _delay(row: ModelRow, view: View) -> str:
    config = row.config
    mark = "≠" if row.live_only else ""
    return f"{config.delay_us if config and config.delay_us else NONE}{mark}"


def _waiting(row: ModelRow, view: View) -> str:
    return units.whole(row.metrics.pending) if row.metrics else NONE


def _failing(row: ModelRow, view: View) -> str:
    window = _window(row)
    return units.one(window.fail_rate) if window else NONE


def _last_ok(row: ModelRow, view: View) -> str:
    if row.flow is None:
        return NONE
    last = row.flow.stats.last_inference_ms
    return view.since(last / 1000) if last else "never"


def _memory(row: ModelRow, view: View) -> str:
    return units.gib(row.memory)


def _trend(row: ModelRow, view: View) -> str:
    """Requests a second over the last minute, each row on its own scale from 0 to a round figure."""
    values = view.history.columns(
        f"model.{row.name}/{row.version}.rate", view.edge(view.snapshot.stats), TREND_STEP, TREND_CELLS
    )
    highest = max((value for value in values if value is not None), default=0.0)
    return " " + trend(values, 0.0, nice_top(highest), TREND_CELLS)


WIDE = (
    Column("REQ/s", 7, _rate, sort=lambda row: w.rate if (w := _window(row)) else -1.0),
    Column("MEAN ms", 8, _mean, sort=lambda row: (w.request_ms or 0.0) if (w := _window(row)) else -1.0),
    Column("= WAIT +", 9, _wait, sort=lambda row: (w.queue_ms or 0.0) if (w := _window(row)) else -1.0),
    Column("COMPUTE", 9, _compute, sort=lambda row: (w.compute_ms or 0.0) if (w := _window(row)) else -1.0),
    Column("BATCH", 9, _batch),
    Column("BUSY%", 6, _busy, 1, sort=lambda row: -1.0 if row.busy is None else row.busy),
    Column("INST", 5, _instances, 4),
    Column("DELAY µs", 10, _delay, 2),
    Column("WAITING", 8, _waiting, 5),
    Column("FAIL/s*", 8, _failing, 3, sort=lambda row: w.fail_rate if (w := _window(row)) else -1.0),
    Column("LAST OK", 9, _last_ok, 6),
    Column("VRAM GiB", 9, _memory, 7, sort=lambda row: float(row.memory or -1)),
    Column(" REQ/s, 60 s", 1 + TREND_CELLS, _trend, 8),
)
COMPACT = (
    Column("REQ/s", 7, _rate, sort=WIDE[0].sort),
    Column("MEAN ms", 8, _mean, sort=WIDE[1].sort),
    Column("WAIT", 7, _wait, sort=WIDE[2].sort),
    Column("COMP", 7, _compute, sort=WIDE[3].sort),
    Column("BATCH", 8, _batch),
    Column("BUSY", 5, _busy, 1, sort=WIDE[5].sort),
    Column("DELAY µs", 10, _delay, 2),
)


@dataclass(frozen=True)
class Shape:
    """The table's form for a width: cells of name and version, cells of the state, the columns that fit."""

    name: int
    version: int
    state: int
    columns: tuple[Column, ...]

    @property
    def start(self) -> int:
        """Cells before the first figure."""
        return 2 + self.name + self.version + 1 + self.state


def shape(width: int, compact: bool, longest: int) -> Shape:
    """The columns that fit into `width`; what room is left goes to names longer than usual."""
    name, version, state, columns = (12, 5, 8, COMPACT) if compact else (17, 4, 12, WIDE)
    kept = list(columns)

    def spare() -> int:
        return width - (2 + name + version + 1 + state) - sum(column.cells for column in kept)

    while spare() < 0 and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return Shape(name + max(0, min(spare(), longest - name)), version, state, tuple(kept))


class OverviewModels(Pane):
    """All models: what they get, how long it takes, how full they are; why a failed one failed."""

    FIELDS = ("models", "server", "index", "stats", "repository", "serving")
    AGE = "stats"
    NUMBER = "2"
    PINNED = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._sort = 0
        self._reverse = False

    def title(self, view: View) -> Line:
        if on_disk(view):
            return (("Models", "title"), ("   no server: this is what the disk holds", "label"))
        if view.compact:
            return (("Models", "title"), ("  10 s", "label"))
        return (("Models", "title"), ("   means of 10 s", "label"))

    def note(self, view: View) -> Line:
        if not on_disk(view):
            return super().note(view)
        gap = "  " if self.frame == "box" else " "
        return (*age_line(view.snapshot.repository, view.mono), (gap, ""), (f"[{self.NUMBER}]", "key"))

    # ---------------------------------------------------------------------------------------------------------- keys

    def changes(self) -> object:
        return self._sort, self._reverse

    def filterable(self) -> bool:
        return True

    def shift_sort(self, steps: int) -> bool:
        self._sort = (self._sort + steps) % (1 + len([column for column in WIDE if column.sort]))
        return True

    def turn_sort(self) -> bool:
        self._reverse = not self._reverse
        return True

    def yank(self) -> str:
        return self.cursor.name if isinstance(self.cursor, ModelKey) else ""

    # --------------------------------------------------------------------------------------------------------- lines

    def lines(self, view: View) -> list[Row]:
        if on_disk(view):
            return disk_rows(view)
        rows = self.ordered(view)
        longest = max((len(row.name) + (12 if row.ensemble else 0) for row in rows[:200]), default=0)
        form = shape(view.width, view.compact, longest)
        made = [Row(self._heads(form, view))]
        made += [Row(_Lazy(row, form, view), row.key) for row in rows]
        if not view.snapshot.models:
            made.append(Row(((nothing_here(view), "dim"),)))
        return made

    def ordered(self, view: View) -> list[ModelRow]:
        """The rows that pass the filter, in the order chosen."""
        rows = [row for row in view.snapshot.models if not self.filter or self.wanted(row.name)]
        chosen = self._sorted_by()
        if chosen is not None and chosen.sort is not None:
            rows.sort(key=chosen.sort, reverse=not self._reverse)
        elif self._reverse:
            rows.reverse()
        return rows

    def _sorted_by(self) -> Column | None:
        columns = [column for column in WIDE if column.sort]
        return columns[self._sort - 1] if self._sort else None

    def _heads(self, form: Shape, view: View) -> Line:
        state = left("STATE", form.state + 1)
        line: list[Segment] = [(f"  {left('MODEL', form.name)}{right('VER', form.version)} {state[:-1]}", "label")]
        chosen = self._sorted_by()
        for column in form.columns:
            marked = chosen is not None and column.text is chosen.text
            aligned = left if column.head.startswith(" ") else right
            line.append((aligned(column.head, column.cells), "key" if marked else "label"))
        return tuple(line)

    def foot_lines(self, view: View) -> list[Line]:
        if on_disk(view) or not view.snapshot.models:
            return []
        if view.compact:
            full: list[Line] = [(), _split_line(view), (("  " + foot_note(view, short=True), "dim"),)]
            return full if view.height >= len(full) + 4 else full[1:2]
        return [((foot_note(view, short=view.width < 140), "dim"),)]

    def wants(self, view: View) -> int:
        """Rows inside the frame that would show everything."""
        body = len(disk_rows(view)) if on_disk(view) else 1 + max(1, len(self.ordered(view)))
        return body + (3 if view.compact else 1) * bool(view.snapshot.models and not on_disk(view))


class _Lazy:
    """Makes one row's line when it is on the screen; equal inputs make equal lines."""

    __slots__ = ("_form", "_row", "_view")

    def __init__(self, row: ModelRow, form: Shape, view: View) -> None:
        self._row, self._form, self._view = row, form, view

    def __call__(self) -> Line:
        return model_line(self._row, self._form, self._view)


def model_line(row: ModelRow, form: Shape, view: View) -> Line:
    """One model version. A reason replaces the figures of a failed one and is cut at the right, never wrapped."""
    sign, state = state_of(row, compact=view.compact)
    label = (" (ens)" if view.compact else "  (ensemble)") if row.ensemble else ""
    name = cut(one_line(row.name), form.name - len(label)) + label
    version = right(row.version or "–", form.version)
    start: Line = (
        (f"{SIGNS[sign]} ", SIGN_STYLES[sign]),
        (f"{left(name, form.name)}{version} ", "value"),
    )
    if row.failed_load or row.state in ("LOADING", "UNLOADING") or row.flow is None:
        return (*start, (left(state, form.state), SIGN_STYLES[sign]), *_reason(row, form, view))
    figures = "".join(right(one.text(row, view), one.cells) for one in form.columns if one.text is not _trend)
    chart = "".join(left(_trend(row, view), one.cells) for one in form.columns if one.text is _trend)
    return (*start, (left(state, form.state), "text"), (figures, "value"), (chart, "bar"))


def _reason(row: ModelRow, form: Shape, view: View) -> Line:
    room = view.width - form.start
    since = "" if row.since_wall is None else f"{view.clock(row.since_wall)}, {view.since(row.since_wall)} ago"
    verb = "failed " if row.failed_load else "since "
    end = f"{verb}{since}" if since and room >= 70 else ""
    spare = 7 if end and room >= 100 else 0
    room -= 1 + len(end) + spare
    told = cut(why_not(row), room - 1 if end else room)
    return ((" ", ""), (left(told, room), "text"), (end, "dim"))


def why_not(row: ModelRow) -> str:
    """Why this model version gives no figures, in the server's words where it has some."""
    if row.failed_load:
        return one_line(row.reason or "failed to load", 1000)
    if row.state in ("LOADING", "UNLOADING"):
        return "in progress"
    if row.state == "UNAVAILABLE":
        return "unloaded" if row.reason in (None, "", "unloaded") else one_line(row.reason or "", 1000)
    if row.state == "READY":
        return "no statistics yet"
    return "never loaded, or its configuration cannot be read: the index cannot tell which"


def state_of(row: ModelRow, *, compact: bool = False) -> tuple[Sign, str]:
    """The row's sign and its state's word."""
    if row.failed_load:
        return "fail", "FAILED" if compact else str(row.state)
    if row.state == "READY":
        return "ok", "READY"
    if row.state in ("LOADING", "UNLOADING"):
        return "warn", row.state
    if row.state == "UNAVAILABLE":
        return "none", "unloaded" if compact else "UNAVAILABLE"
    return "unknown", "UNKNOWN" if row.state == "UNKNOWN" else "not told"


def on_disk(view: View) -> bool:
    """True when no server answers and the disk's models are all there is to show."""
    server = view.snapshot.server
    silent = server.error is not None and (server.value is None or server.is_old(view.mono))
    return silent and view.snapshot.repository.value is not None


def disk_rows(view: View) -> list[Row]:
    """What the repository's folders hold, and when each model was last seen serving by this console."""
    repository = view.snapshot.repository.value
    models = repository.models if repository else ()
    widest = max([13, *(len(one.name) + 2 for one in models)])
    name_cells = min(widest, 30)
    path_cells = max(12, min(27, view.width - name_cells - 2 - 40))
    heads = f"  {left('MODEL', name_cells - 1)}{left('ON DISK', path_cells)}{left('NEWEST', 8)}{left('SIZE', 9)}"
    rows = [Row((((heads + "LAST SEEN SERVING"), "label"),))]
    for one in models:
        newest = max(one.versions, key=lambda version: version.version, default=None)
        size = NONE if newest is None or not newest.size else units.size(newest.size)
        line = (
            ("? ", "unknown"),
            (left(one_line(one.name), name_cells - 1), "value"),
            (left(cut(one_line(one.path), path_cells - 1), path_cells), "text"),
            (left(NONE if newest is None else str(newest.version), 8) + left(size, 9), "value"),
            (last_seen(one, view), "dim"),
        )
        rows.append(Row(line, ModelKey(one.name, "" if newest is None else str(newest.version))))
    return rows


def last_seen(model: DiskModel, view: View) -> str:
    """`v2 at 02:58:10` when this console saw it serve; `failed to load`; `–` else."""
    for row in view.snapshot.models:
        if row.name != model.name:
            continue
        if row.failed_load:
            return "never (failed to load)"
        if row.state == "READY":
            return f"v{row.version} at {view.clock(view.snapshot.index.wall)}"
    return f"{NONE} not by this console"


def nothing_here(view: View) -> str:
    """Why there is no row at all."""
    snapshot = view.snapshot
    if not snapshot.server.tried:
        return "… not read yet"
    if snapshot.server.error is not None:
        return f"no server answers ({one_line(snapshot.server.error.message, 120)}), no model folder is known"
    return "the server has no models" if snapshot.index.tried else "… not read yet"


def _split_line(view: View) -> Line:
    """The chosen model's time split in one line, for 80 columns."""
    row = view.model
    window = _window(row) if row is not None else None
    parts = split_parts(window)
    if row is None or parts is None:
        return ((f"  {cut(one_line(row.name), 24)}: nothing counted in 10 s" if row else "", "dim"),)
    name = cut(one_line(row.name), 16)
    words = zip(("wait", "in", "model", "out"), parts, strict=True)
    legend = " ".join(f"{word} {units.millis(value)}" for word, value in words)
    return ((f"  {name} ", "label"), *split_segments(parts, max(8, 38 - len(name))), (f"  {legend}", "text"))


def foot_note(view: View, *, short: bool) -> str:
    """What the marks mean, as far as they are on the screen."""
    live_only = any(row.live_only for row in view.snapshot.models)
    if short:
        return "* queue full, bad input, Python error answers not counted" + ("  ≠ live only" if live_only else "")
    parts = ["* not counted by Triton: queue full, bad input, error answers of Python models."]
    if live_only:
        parts.append("≠ live only, a restart goes back to config.pbtxt.")
    for row in view.snapshot.models:
        if row.config is not None and row.config.steps:
            steps = " → ".join(one_line(step.model, 24) for step in row.config.steps)
            parts.append(f"{one_line(row.name, 24)} = {steps}")
            break
    return "  ".join(parts)
