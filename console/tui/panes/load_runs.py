"""The kept runs, newest first, with the one that runs above them (design 1.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import Sign
from console.core.text import one_line
from console.tui.loads import Current, failed, is_whole
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import wrapped
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, cut, left, right
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.loadgen.record import Foreign, Run
    from console.loadgen.schedule import Load

RUNNING = "running"
COLUMNS: Mapping[str, tuple[str, int]] = {
    "run": ("RUN", 5),
    "model": ("MODEL", 0),
    "started": ("STARTED", 10),
    "mode": ("MODE", 9),
    "rate": ("RATE", 8),
    "done": ("DONE/s", 8),
    "p50": ("p50", 7),
    "p99": ("p99", 7),
    "errors": ("ERR", 6),
    "goal": ("GOAL", 6),
    "delay": ("DELAY", 7),
    "max": ("MAX", 5),
    "instances": ("INST", 6),
}
"""Name -> head and cells; MODEL takes what the others leave, and NOTE the rest."""
NUMBERS = ("run", "rate", "done", "p50", "p99", "errors", "delay", "max", "instances")
DROPPED = ("instances", "max", "delay", "started", "mode", "errors")
"""Left out first where there is no room."""
MARK, LEAST_NOTE, LEAST_MODEL, MOST_MODEL = 4, 22, 8, 24
DAY = 86400.0


class LoadRuns(Pane):
    """The table; the cursor sits on a run's number, on RUNNING for the one that runs."""

    FIELDS = ()
    TICKS = False
    PINNED = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.runs: tuple[Run, ...] = ()
        """Oldest first."""
        self.foreign: tuple[Foreign, ...] = ()
        """Those of other programs, likewise."""
        self.current: Current | None = None
        self.marked: tuple[int, ...] = ()
        """Numbers of marked runs, in the order of marking."""
        self.error = ""

    def title(self, view: View) -> Line:
        found = f"   /{one_line(self.filter, 30)}" if self.filter else ""
        return (("Runs", "title"), (f"   {SIGNS['warn']} not valid   + marked{found}", "dim"))

    def note(self, view: View) -> Line:
        return (("=", "key"), (" compare the marked", "dim"))

    def filterable(self) -> bool:
        return True

    def run(self) -> Run | None:
        """The one under the cursor."""
        return next((run for run in self.runs if run.id == self.cursor), None)

    def other_programs(self) -> Foreign | None:
        """The one under the cursor, where another program measured it."""
        return next((one for one in self.foreign if one.id == self.cursor), None)

    def mark(self) -> bool:
        """`space`: a third mark takes the place of the first."""
        number = self.cursor
        if not isinstance(number, int):
            return False
        if number in self.marked:
            self.marked = tuple(one for one in self.marked if one != number)
        else:
            self.marked = (*self.marked, number)[-2:]
        return True

    def lines(self, view: View) -> list[Row]:
        columns = _columns(view.width)
        made = [Row(((" " * MARK + _text({name: head for name, (head, _) in COLUMNS.items()}, columns) + "NOTE",
                      "label"),))]  # fmt: skip
        if self.current is not None:
            made.append(_running(self.current, view, columns))
        rows = [(run.id or float("inf"), self._rows(run, view, columns)) for run in self.runs if self._wanted(run)]
        rows += [(one.id, [self._foreign(one, view, columns)]) for one in self.foreign if self._wanted_foreign(one)]
        for _, lines in sorted(rows, key=lambda row: row[0], reverse=True):
            made += lines
        if len(made) == 1:
            nothing = "no run matches the filter" if self.filter else "no run is kept yet: A begins one"
            told = self.error or nothing
            made += [Row(((f"  {line}", "fail" if self.error else "dim"),)) for line in wrapped(told, view.width - 2)]
        return made

    def _wanted(self, run: Run) -> bool:
        return self.wanted(f"{run.id} {run.names} {run.load.words()} {run.by} {note_of(run)[1]}")

    def _wanted_foreign(self, one: Foreign) -> bool:
        return self.wanted(f"{one.id} {one.model} {one.version} {one.load()} {one.by} {one.engine}")

    def _foreign(self, one: Foreign, view: View, columns: Mapping[str, int]) -> Row:
        none = units.NONE
        cells = {
            **dict.fromkeys(COLUMNS, none),
            "run": str(one.id),
            "model": one_line(f"{one.model} {one.version}", 80).strip() or none,
            "started": _started(one.wall, view),
            "mode": "closed",
            "rate": str(one.callers),
            "done": units.rate(one.throughput),
            "p50": units.millis(one.p50_ms),
            "p99": units.millis(one.p99_ms),
            "errors": "?",
        }
        mark = "+" if one.id in self.marked else " "
        note = one_line(f"{one.engine}{f', of {one.file}' if one.file else ''}: hides stalls", 200)
        room = view.width - MARK - sum(columns.values())
        return Row(((f"  {mark} ", "key"), (_text(cells, columns), ""), (cut(note, room), "dim")), one.id)

    def _rows(self, run: Run, view: View, columns: Mapping[str, int]) -> list[Row]:
        marked = "+" if run.id in self.marked else " "
        bad = bool(run.not_valid)
        mark: Line = (("  ", ""), (SIGNS["warn"] if bad else marked, "warn" if bad else "key"),
                      (marked if bad else " ", "key"))  # fmt: skip
        cells = _cells(run, view)
        start = {name: size for name, size in columns.items() if name != "goal"}
        before, after = _around(start, columns)
        value: Sign = "none" if run.met is None or bad else "ok" if run.met else "fail"
        goal: Line = (
            ((right(SIGNS[value], columns["goal"] - 2) + "  ", SIGN_STYLES[value]),) if "goal" in columns else ()
        )
        kind, told = note_of(run)
        room = view.width - MARK - sum(columns.values())
        lines = wrapped(told, room, most=3) if bad else [cut(told, room)]
        style = SIGN_STYLES[kind] if kind in ("warn", "fail") else "dim"
        line: Line = (*mark, (_text(cells, before), "dim" if bad else ""), *goal,
                      (_text(cells, after), "dim" if bad else ""), (lines[0], style))  # fmt: skip
        indent = " " * (view.width - room)
        return [Row(line, run.id or "unkept"), *(Row(((indent + more, style),)) for more in lines[1:])]

    def changes(self) -> object:
        now = self.current
        run = None if now is None else (now.number, now.stopping, len(now.samples))
        return (self.runs, self.foreign, run, self.marked, self.error)


def _around(columns: Mapping[str, int], whole: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Columns before GOAL and after it."""
    order = list(whole)
    at = order.index("goal") if "goal" in whole else len(order)
    return ({name: columns[name] for name in order[:at]}, {name: columns[name] for name in order[at + 1 :]})


def _columns(cells: int) -> dict[str, int]:
    """Cells of each column, in order; MODEL has what is left, as far as NOTE keeps its least."""
    sizes = {name: size for name, (_, size) in COLUMNS.items()}
    for name in DROPPED:
        if MARK + sum(sizes.values()) + LEAST_MODEL + LEAST_NOTE <= cells:
            break
        del sizes[name]
    sizes["model"] = max(LEAST_MODEL, min(MOST_MODEL, cells - MARK - sum(sizes.values()) - LEAST_NOTE))
    return sizes


def _text(cells: Mapping[str, str], columns: Mapping[str, int]) -> str:
    made = ""
    for name, size in columns.items():
        made += right(cells[name], size - 2) + "  " if name in NUMBERS else left(cells[name], size - 1) + " "
    return made


def _cells(run: Run, view: View) -> dict[str, str]:
    none = units.NONE
    valid, at = not run.not_valid, run.client.latency
    delay = run.config.get("delay", "").removesuffix(" µs")
    return {
        "run": str(run.id or none),
        "model": one_line(run.names, 80),
        "started": _started(run.wall, view),
        **_load_cells(run.load),
        "done": units.rate(run.client.throughput) if valid else none,
        "p50": units.millis(at.p50) if valid else none,
        "p99": units.millis(at.p99) if valid else none,
        "errors": str(failed(run)) if valid else none,
        "delay": delay or ("off" if run.config.get("batching") == "off" else none),
        "max": run.config.get("max batch", none),
        "instances": run.config.get("instances", none),
    }


def _started(wall: float, view: View) -> str:
    return view.clock(wall) if view.wall - wall < DAY else units.moment(wall, utc=view.utc)[5:10]


def _load_cells(load: Load) -> dict[str, str]:
    mode = "closed" if load.loop == "closed" else "poisson" if load.poisson else "constant"
    first, last = load.steps[0], load.steps[-1]
    return {"mode": mode, "rate": f"{first.first:g}" + (f"…{last.last:g}" if first.first != last.last else "")}


def _running(now: Current, view: View, columns: Mapping[str, int]) -> Row:
    last, none = now.last, units.NONE
    cells = {
        **dict.fromkeys(COLUMNS, none),
        "run": str(now.number),
        "model": one_line(now.plan.names, 80),
        "started": _started(now.wall, view),
        **_load_cells(now.plan.load),
        "errors": str(last.errors) if last is not None else none,
    }
    return Row((("  ", ""), ("▸ ", "key"), (_text(cells, columns), ""), (now.phase(), "key")), RUNNING)


def note_of(run: Run) -> tuple[Sign, str]:
    """What has to be known beside the figures, most of all first."""
    if run.not_valid:
        return "warn", f"not valid: {one_line(run.not_valid, 400)}"
    if not run.id:
        return "warn", one_line(run.notes[-1], 200) if run.notes else "not kept"
    if not is_whole(run):
        return "warn", one_line(run.ended, 200)
    if run.steady and not run.steady.startswith("not judged"):
        return "note", f"not steady: {one_line(run.steady, 200)}"
    if run.load.loop == "closed":
        return "none", "closed: hides stalls"
    return "none", one_line(run.notes[0], 200) if run.notes else ""


# ------------------------------------------------------------------------------------------------------------- to files

HEADS = (
    "run", "started", "by", "model", "target", "load", "seconds", "inputs", "sent", "done", "done_per_s",
    "errors", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p99_9_ms", "max_ms", "mean_ms", "goal_p99_ms", "goal_met",
    "server_mean_ms", "server_wait_ms", "server_infer_ms", "server_batch", "delay", "max_batch", "instances", "ended",
    "steady", "not_valid", "engine",
)  # fmt: skip


def table(runs: Sequence[Run], foreign: Sequence[Foreign] = ()) -> list[tuple[str, ...]]:
    """HEADS and a row for each run, other programs' last; figures unrounded, and empty where a record has none."""
    return [HEADS, *(_cells_of(_told(run)) for run in runs), *(_cells_of(_told_foreign(one)) for one in foreign)]


def _cells_of(told: Mapping[str, object]) -> tuple[str, ...]:
    def cell(value: object) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "" if value is None else one_line(str(value), 400)

    return tuple(cell(told.get(name)) for name in HEADS)


def _told(run: Run) -> dict[str, object]:
    client, at, config = run.client, run.client.latency, run.config
    told: dict[str, object] = {
        "run": run.id or None, "started": units.moment(run.wall, utc=True) + "Z", "by": run.by, "model": run.names,
        "target": run.target, "load": run.load.words(), "seconds": client.seconds, "inputs": run.inputs,
        "sent": client.sent, "done": client.done, "done_per_s": client.throughput, "errors": failed(run),
        "p50_ms": at.p50, "p90_ms": at.p90, "p95_ms": at.p95, "p99_ms": at.p99, "p99_9_ms": at.p99_9, "max_ms": at.max,
        "mean_ms": at.mean, "goal_p99_ms": run.goal_ms, "goal_met": run.met, "delay": config.get("delay"),
        "max_batch": config.get("max batch"), "instances": config.get("instances"), "ended": run.ended,
        "steady": run.steady or "yes", "not_valid": run.not_valid, "engine": "gpuconsole",
    }  # fmt: skip
    if (server := run.server) is not None:
        told |= {"server_mean_ms": server.total_ms, "server_wait_ms": server.queue_ms,
                 "server_infer_ms": server.infer_ms, "server_batch": server.batch}  # fmt: skip
    return told


def _told_foreign(one: Foreign) -> dict[str, object]:
    return {
        "run": one.id, "started": units.moment(one.wall, utc=True) + "Z", "by": one.by,
        "model": f"{one.model} {one.version}".strip(), "target": one.target, "load": one.load(), "done": one.requests,
        "done_per_s": one.throughput, "p50_ms": one.p50_ms, "p90_ms": one.p90_ms, "p95_ms": one.p95_ms,
        "p99_ms": one.p99_ms, "mean_ms": one.mean_ms, "server_wait_ms": one.queue_ms, "server_infer_ms": one.infer_ms,
        "engine": one.engine,
    }  # fmt: skip


def csv_of(rows: Sequence[Sequence[str]]) -> str:
    """RFC 4180; a text that a spreadsheet would take for a formula has a blank before it."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow([f" {one}" if one[:1] in ("=", "+", "-", "@") and not _is_number(one) else one for one in row])
    return out.getvalue()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def markdown_of(rows: Sequence[Sequence[str]]) -> str:
    """A table; what would end a cell or begin markup is escaped."""

    def cell(text: str) -> str:
        return "".join(f"\\{char}" if char in "\\|`*_<>[]" else char for char in text)

    head, *rest = [[cell(one) for one in row] for row in rows]
    lines = [head, ["---"] * len(head), *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
