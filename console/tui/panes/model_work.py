"""What a model version does with its requests: where their time goes, in which batches, how many fail (design 1.5)."""

from __future__ import annotations

from collections.abc import Sequence

from console.advisors.figures import Figures
from console.advisors.table import table
from console.core import units
from console.core.model import BatchWindow, FailureCount, ModelRow, Window
from console.core.text import one_line
from console.tui.panes.base import View
from console.tui.panes.percentiles import listed, name_of
from console.tui.panes.wording import LABEL, labelled, paragraph, wrapped
from console.tui.widgets.cells import Segment, left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import split_bar

SINGLE_SIZES = 4
"""Batch sizes up to this have a row each; above it they are taken together by doublings (5–8, 9–16 ...)."""
FEW_RUNS = 50
"""Below this many runs a longer window is looked at."""
BAR = 10
LEGEND = 72
"""Cells that the legend of the time split takes on one line."""
TABLE = 66
"""Cells that the table of batches takes in full."""
EIGHTHS = "▏▎▍▌▋▊▉"
SPLIT_STYLES = ("wait", "input", "compute", "output")
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""In the order of the drawing; Triton 24.07 and later name these."""
NOT_COUNTED = "not counted: queue full, bad input, error answers of Python models"


def time_split(row: ModelRow, width: int) -> list[Row]:
    """The four parts of a mean request; nothing is left over (request − queue − compute was 0.01 ms where measured)."""
    window = row.flow.w10 if row.flow else None
    if window is None:
        return [labelled("TIME", ("– no request was counted yet", "dim"))]
    if window.request_ms is None:
        return [labelled("TIME", (f"– no request in {window.span:.0f} s", "dim"))]
    label = f"TIME  {window.span:.0f} s"
    if row.ensemble or window.queue_ms is None:
        why = "the split is on its steps" if row.ensemble else "all from the response cache, none was run"
        return [labelled(label, (f"{units.millis(window.request_ms)} ms", ""), (f"   {why}", "dim"))]
    parts = (window.queue_ms, window.input_ms or 0.0, window.infer_ms or 0.0, window.output_ms or 0.0)
    cells = max(8, min(40, width - LABEL - 12))
    bar = tuple(zip(split_bar(parts, cells), SPLIT_STYLES, strict=True))
    names = ("waiting", "input", "model", "output")
    legend: list[list[Segment]] = [[]]
    for number, (char, style, name, part) in enumerate(zip("▓░█▒", SPLIT_STYLES, names, parts, strict=True)):
        if number == 2 and width < LEGEND:
            legend.append([])
        legend[-1] += [("   " if legend[-1] else "", ""), (char, style), (f" {name} {units.millis(part)}", "")]
    return [
        labelled(label, *bar, (f"  {units.millis(window.request_ms)} ms", "value")),
        *(labelled("", *segments) for segments in legend),
    ]


def tail(row: ModelRow, width: int) -> list[Row]:
    """Percentiles that the server itself gives, each with its source; no row where it gives none."""
    metrics = row.metrics
    if metrics is None:
        return []
    made: list[Row] = []
    if metrics.request_summary:
        words = "   ".join(f"{name_of(one.q)} {units.millis(one.ms)}" for one in metrics.request_summary)
        made += paragraph("TAIL  60 s", words, width)
        made += paragraph("", "ms, from the server's summary of requests", width, "dim")
    first = metrics.first_response
    if first is None:
        return made
    label = "" if made else f"TAIL  {first.span:.0f} s" if first.span else "TAIL"
    if not first.total:
        return [*made, *paragraph(label, "– no response in the histogram's window yet", width, "dim")]
    words = "   ".join(listed(first))
    source = f"ms, from histogram, ≤ bucket: {first.total:.0f} first responses in {first.span:.0f} s"
    made += [*paragraph(label, words, width), *paragraph("", source, width, "dim")]
    if first.counts[0] == first.total:
        made += paragraph("", "all in its first bucket: model_metrics in config.pbtxt sets finer ones", width, "dim")
    return made


def cache(row: ModelRow, width: int) -> list[Row]:
    """What the response cache answered; a hit is a success that no instance ran."""
    stats = row.flow.stats if row.flow else None
    if stats is None or not (
        stats.cache_hit_count + stats.cache_miss_count or (row.config and row.config.response_cache)
    ):
        return []
    window = row.flow.w10 if row.flow else None
    looked = window.cache_hits + window.cache_misses if window else 0
    words = []
    if window is not None and looked:
        share = f"{100 * window.cache_hits / looked:.0f} %"
        words.append(f"{window.cache_hits} hits of {looked} looked up in {window.span:.0f} s, {share}")
    elif window is not None:
        words.append(f"on, nothing looked up in {window.span:.0f} s")
    ever = stats.cache_hit_count + stats.cache_miss_count
    words.append(f"{stats.cache_hit_count} of {ever} since its load")
    if stats.cache_hit_count:
        words.append(f"a hit takes {units.millis(stats.cache_hit_ns / stats.cache_hit_count / 1e6)} ms")
    return paragraph("CACHE", "   ".join(words), width)


def batches(row: ModelRow, width: int) -> list[Row]:
    """Runs by batch size, with what one costs; then what the model could take if every run were full."""
    if row.ensemble or row.flow is None:
        return []
    window = _window(row)
    if window is None or not window.batches:
        return [labelled("BATCHES", ("– no run was counted yet", "dim"))]
    total = sum(one.runs for one in window.batches)
    groups = grouped(window.batches)
    highest = max(runs for _, runs, _, _ in groups)
    bar, share, run, request = (BAR, 5, 11, 15) if width >= TABLE else (4, 4, 9, 13)
    figures = f"{right('%', share)}{right('ms a run', run)}{right('ms a request', request)}"
    span = f"   {units.age(window.span)}" if width >= TABLE else ""
    made = [labelled("BATCHES", (f"{right('size', 7)}   {left('runs', bar)} {figures}{span}", "label"))]
    for name, runs, per_run, per_request in groups:
        made.append(
            labelled(
                "",
                (f"{right(name, 7)}   ", ""),
                (left(eighths(runs / highest, bar), bar), "bar"),
                (f" {right(f'{100 * runs / total:.0f}', share)}", "value"),
                (f"{right(units.millis(per_run), run)}{right(units.millis(per_request), request)}", "value"),
            )
        )
    return [*made, *at_most(row, width)]


def _window(row: ModelRow) -> Window | None:
    """The shortest window with enough runs to show a distribution; else the longest there is."""
    if row.flow is None:
        return None
    found = None
    for window in (row.flow.w10, row.flow.w30, row.flow.w120, row.flow.w300):
        if window is None:
            continue
        found = window
        if window.executions >= FEW_RUNS:
            return window
    return found


def grouped(runs: Sequence[BatchWindow]) -> list[tuple[str, int, float, float]]:
    """(name, runs, ms a run, ms a request) for each row of the table, small sizes first."""
    found: dict[tuple[int, int], list[BatchWindow]] = {}
    for one in sorted(runs, key=lambda batch: batch.size):
        if one.runs > 0:
            found.setdefault(_bounds(one.size), []).append(one)
    table = []
    for (low, high), members in found.items():
        count = sum(one.runs for one in members)
        spent = sum(one.runs * one.ms_per_run for one in members)
        requests = sum(one.runs * one.size for one in members)
        name = f"{low}" if low == high else f"{low}–{high}"
        table.append((name, count, spent / count, spent / requests if requests else 0.0))
    return table


def _bounds(size: int) -> tuple[int, int]:
    if size <= SINGLE_SIZES:
        return size, size
    high = SINGLE_SIZES
    while high < size:
        high *= 2
    return high // 2 + 1, high


def eighths(share: float, cells: int) -> str:
    """A bar in eighths of a cell; anything above nothing shows."""
    steps = max(1, round(max(0.0, min(1.0, share)) * cells * 8)) if share > 0 else 0
    return "█" * (steps // 8) + (EIGHTHS[steps % 8 - 1] if steps % 8 else "")


def at_most(row: ModelRow, width: int) -> list[Row]:
    """The highest rate, always with its condition; `≈` where the cost of a full batch is a straight line's guess."""
    window = _longest(row)
    if window is None or row.config is None:
        return []
    if not row.instances:
        return paragraph("  at most", "? the number of instances is not known", width, "unknown")
    figures = Figures(row, window, row.config, "")
    limits = table().entries["V23"]
    least = int(limits.limit("min_runs"))
    top = figures.top(least, int(limits.limit("sizes")), limits.limit("reach"))
    if top is None:
        seen = f"no batch above {figures.largest} seen" if figures.largest else "no run seen"
        return paragraph("  at most", f"? cannot tell: {seen}", width, "unknown")
    rounded = f"{float(f'{top:.3g}'):,.0f}".replace(",", " ")
    full = row.config.max_batch_size
    if not figures.batching:
        return paragraph("  at most", f"{rounded}/s, one request at a time", width)
    guess = figures.run_ms(full, least) is None
    why = f": no batch above {figures.largest} seen, ≈" if guess and figures.largest != full else ", ≈" if guess else ""
    return paragraph("  at most", f"{rounded}/s if all batches were {full}{why}", width)


def _longest(row: ModelRow) -> Window | None:
    """The longest window within one run of counters: a full batch may be rare."""
    flow = row.flow
    windows = (flow.w300, flow.w120, flow.w30, flow.w10) if flow else ()
    return next((window for window in windows if window is not None and not window.crosses_reset), None)


def failures(row: ModelRow, view: View) -> list[Row]:
    """Failures by reason, and what Triton counts nowhere."""
    snapshot, width = view.snapshot, view.width
    counted = sorted(row.metrics.failures if row.metrics else (), key=_reason_order)
    hint = [Row(((f"  {line}", "dim"),)) for line in wrapped(NOT_COUNTED, width - 2)]
    since = _since(view)
    if counted:
        style = "fail" if any(one.rate30 for one in counted) else ""
        return [*paragraph("FAILURES", "   ".join(_failure(one) for one in counted) + since, width, style), *hint]
    total = row.flow.stats.fail_count if row.flow else None
    if total is None:
        return []
    why = snapshot.metrics.error.message if snapshot.metrics.error else "the metrics page gives no reasons"
    text = f"{total} counted{since}   by reason: ? {one_line(why, 200)}"
    return [*paragraph("FAILURES", text, width, "fail" if _fails(row) else ""), *hint]


def _reason_order(one: FailureCount) -> tuple[int, str]:
    return (REASONS.index(one.reason) if one.reason in REASONS else len(REASONS), one.reason)


def _fails(row: ModelRow) -> bool:
    return bool(row.flow and row.flow.w30 and row.flow.w30.failed)


def _failure(one: FailureCount) -> str:
    name = one_line(one.reason, 40) or "all reasons"
    rate = f" ({units.rate(one.rate30)}/s)" if one.rate30 else ""
    return f"{name} {one.total:.0f}{rate}"


def _since(view: View) -> str:
    podman = view.snapshot.container.value
    started = podman.container.started_wall if podman and podman.container else None
    return "" if started is None else f"  since {view.clock(started)[:5]}"
