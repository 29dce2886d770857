"""What `E` writes of each pane: its chart or table as rows of figures, exact and whole, not as they are drawn (pure).

Times are ISO 8601 with their zone and Unix seconds; an empty cell is not known, or does not apply.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from console.core.model import Event, ModelRow, Verdict
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.checks_list import ChecksList
from console.tui.panes.gpu_processes import GpuProcesses, processes
from console.tui.panes.models_list import ModelsList
from console.tui.panes.overview_events import OverviewEvents
from console.tui.panes.overview_models import OverviewModels
from console.tui.panes.overview_trends import STEP, OverviewTrends, columns_for
from console.tui.panes.problems import ProblemsPane, problems
from console.tui.panes.timeline_charts import TimelineCharts, charts
from console.tui.panes.timeline_events import TimelineEvents, shown
from console.tui.panes.timeline_scale import Scale

Cell = str | float | int | None
Table = Sequence[Sequence[Cell]]
"""The first row holds the heads."""


def table_of(pane: Pane, view: View) -> Table | None:
    """The rows of a pane, its filter kept to; None where it is neither chart nor table."""
    for kind, make in _MAKERS.items():
        if isinstance(pane, kind):
            return make(pane, view)
    return None


def csv_of(table: Table) -> str:
    """RFC 4180, but lines end with a newline alone; what came from outside stays on its line."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[_cell(one) for one in row] for row in table])
    return out.getvalue()


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return one_line(value)
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _time(wall: float | None, view: View) -> str:
    if wall is None:
        return ""
    moment = datetime.fromtimestamp(wall, UTC)
    return (moment if view.utc else moment.astimezone()).isoformat(timespec="seconds")


# ------------------------------------------------------------------------------------------------------------- charts


def _timeline(pane: Pane, view: View) -> Table:
    assert isinstance(pane, TimelineCharts)
    return chart_table(view, pane.scale(view))


def _trends(pane: Pane, view: View) -> Table:
    return chart_table(view, Scale(view.mono, view.wall, int(STEP), columns_for(view.width)))


def chart_table(view: View, scale: Scale) -> Table:
    """All charts of the chosen model and card, a row a column of the charts: the highest sample in it."""
    found = charts(view)
    columns = [chart.values(view.history, scale) for chart in found]
    rows: list[list[Cell]] = [["time", "unix_s", *(chart.name for chart in found)]]
    for at in range(scale.columns):
        wall = scale.wall_of(scale.start_of(at))
        rows.append([_time(wall, view), round(wall, 3), *(values[at] for values in columns)])
    return rows


# ------------------------------------------------------------------------------------------------------------- tables


def _models(pane: Pane, view: View) -> Table:
    head = (
        *("model", "version", "state", "ensemble", "req_per_s", "mean_ms", "wait_ms", "compute_ms", "batch"),
        *("max_batch", "busy_pct", "instances", "delay_us", "waiting", "fail_per_s", "vram_bytes", "live_only"),
        *("newer_on_disk", "reason"),
    )
    rows = [row for row in view.snapshot.models if pane.wanted(f"{row.name} {row.version} {row.state}")]
    return [head, *map(_model, rows)]


def _model(row: ModelRow) -> Sequence[Cell]:
    window, config = row.flow.w10 if row.flow else None, row.config
    own = None if row.ensemble else window
    return (
        row.name,
        row.version,
        row.state,
        int(row.ensemble),
        window.rate if window else None,
        window.request_ms if window else None,
        own.queue_ms if own else None,
        own.compute_ms if own else None,
        own.mean_batch if own else None,
        config.max_batch_size if config else None,
        None if row.busy is None else 100 * row.busy,
        row.instances,
        config.delay_us if config and config.dynamic_batching else None,
        row.metrics.pending if row.metrics else None,
        window.fail_rate if window else None,
        row.memory,
        int(row.live_only),
        row.newer_on_disk,
        row.reason,
    )


def _events(pane: Pane, view: View) -> Table:
    which = pane.which if isinstance(pane, TimelineEvents) else "all"
    kept = [
        event
        for event in view.snapshot.events
        if shown(event, which) and pane.wanted(f"{event.text} {event.origin} {event.model or ''}")
    ]
    return [
        ("time", "unix_s", "sign", "text", "origin", "kind", "model", "repeats", "detail"),
        *_event_rows(kept, view),
    ]


def _event_rows(events: Iterable[Event], view: View) -> Iterable[Sequence[Cell]]:
    return [
        (
            *(_time(event.wall, view), round(event.wall, 3), event.sign, event.text, event.origin, event.kind),
            *(event.model, event.repeats, "\n".join(event.detail)),
        )
        for event in events
    ]


def _problems(pane: Pane, view: View) -> Table:
    kept = [one for one in problems(view.snapshot.verdicts) if pane.wanted(f"{one.title} {one.id} {one.model or ''}")]
    head = ("id", "sign", "since", "title", "trust", "model", "version", "subject", "figures", "source", "consequences")
    return [head, *(_verdict(one, view) for one in kept)]


def _verdict(one: Verdict, view: View) -> Sequence[Cell]:
    return (
        *(one.id, one.sign, _time(one.since_wall, view), one.title, one.trust, one.model, one.version, one.subject),
        *(one.figures, one.source, "\n".join(one.consequences)),
    )


def _checks(pane: Pane, view: View) -> Table:
    report = view.snapshot.checks.value
    kept = [
        one
        for one in (report.findings if report else ())
        if pane.wanted(f"{one.id} {one.title} {one.text} {one.group}")
    ]
    return [
        ("id", "group", "sign", "title", "text"),
        *((one.id, one.group, one.sign, one.title, one.text) for one in kept),
    ]


def _processes(pane: Pane, view: View) -> Table:
    head = ("gpu", "mig", "pid", "kind", "user", "command", "model", "memory_bytes", "sm_pct", "since", "container")
    card = view.card
    found = processes(card) if card is not None else None
    rows: list[Sequence[Cell]] = [head]
    for instance, one in found or ():
        if card is not None and pane.wanted(f"{one.pid} {one.user} {one.command} {one.model}"):
            rows.append(
                (
                    *(card.index, instance, one.pid, one.kind, one.user, one.command, one.model, one.memory),
                    *(one.sm_pct, _time(one.started_wall, view), one.container_id),
                )
            )
    return rows


_MAKERS: Mapping[type[Pane], Callable[[Pane, View], Table]] = {
    TimelineCharts: _timeline,
    OverviewTrends: _trends,
    OverviewModels: _models,
    ModelsList: _models,
    TimelineEvents: _events,
    OverviewEvents: _events,
    ProblemsPane: _problems,
    ChecksList: _checks,
    GpuProcesses: _processes,
}
