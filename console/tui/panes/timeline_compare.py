"""Before and after a moment (design 1.11, `=`): means of both sides, what of a change is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from msgspec import Struct

from console.core import units
from console.core.history import History
from console.tui.panes.base import Pane, View
from console.tui.panes.timeline_charts import commonest
from console.tui.panes.wording import sign
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row

SPANS = (60, 150, 300, 600)
"""Seconds on each side."""
LEAST_SAMPLES = 5
NOISE_PARTS = 6
"""The side before is cut into so many parts; their means' spread is the noise."""
LIKE_LOAD = 0.10
"""Loads that differ by more are not compared."""
SETTLE = 2.0
"""Seconds around the moment that belong to neither side: a reload takes that long."""


class Compared(Struct, frozen=True):
    """One figure on both sides of a moment."""

    name: str
    before: float | None
    after: float | None
    noise: float | None
    """Share of `before` that its own parts differ by."""
    figure: Callable[[float | None], str]
    worse_up: bool = False
    """True where more is worse (times, failures)."""

    @property
    def change(self) -> float | None:
        """As a share of the value before."""
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before - 1.0

    @property
    def same(self) -> bool | None:
        """True when the change is no more than noise; None when that cannot be told."""
        if self.before == 0 and self.after == 0:
            return True
        if self.change is None or self.noise is None:
            return None
        return abs(self.change) <= max(self.noise, 0.01)


def side(history: History, key: str, now: float, start: float, end: float) -> list[float]:
    """Samples between two moments; 1 s apart within the last 10 minutes, else 10 s."""
    fine = now - start <= 600
    step = 1 if fine else 10
    values = history.columns(key, now, step, int((now - start) // step) + 1)
    last = int(now // step)
    first = last - len(values) + 1
    return [
        value
        for number, value in enumerate(values, first)
        if value is not None and start <= number * step and (number + 1) * step <= end
    ]


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of too few samples."""
    return sum(values) / len(values) if len(values) >= LEAST_SAMPLES else None


def noise(values: Sequence[float]) -> float | None:
    """Two standard deviations of the means of parts of the series, as a share of its mean."""
    size = len(values) // NOISE_PARTS
    whole = mean(values)
    if size < 1 or not whole:
        return None
    parts = [sum(values[n * size : (n + 1) * size]) / size for n in range(NOISE_PARTS)]
    centre = sum(parts) / len(parts)
    spread = sqrt(sum((part - centre) ** 2 for part in parts) / (len(parts) - 1))
    return 2 * spread / abs(whole)


def compare(view: View, at: float, span: float) -> list[Compared]:
    """All figures of the chosen model and card around `at` (monotonic seconds)."""
    return [one for one in _figures(view, at, span) if one.before is not None or one.after is not None]


def _figures(view: View, at: float, span: float) -> list[Compared]:
    made: list[Compared] = []
    row = view.model
    if row is not None:
        prefix = f"model.{row.name}/{row.version}"
        common = commonest(row)
        keys: list[tuple[str, str, Callable[[float | None], str], bool]] = [
            ("req/s", f"{prefix}.rate", units.rate, False),
            ("mean ms", f"{prefix}.request_ms", units.millis, True),
            ("wait ms", f"{prefix}.queue_ms", units.millis, True),
            (f"ms at b={common}", f"{prefix}.run_ms.{common}", units.millis, True),
            ("batch", f"{prefix}.batch", units.millis, False),
        ]
        made += [_one(view, at, span, *one) for one in keys]
        made.append(_executions(view, prefix, at, span))
    if view.card is not None:
        card = f"gpu.{view.card.index}"
        made.append(_one(view, at, span, "util %", f"{card}.util_pct", units.whole, False))
        made.append(_one(view, at, span, "SM MHz", f"{card}.sm_mhz", units.whole, False))
    if row is not None:
        made.append(_one(view, at, span, "fail/s *", f"model.{row.name}/{row.version}.fail_rate", units.one, True))
    return made


def _sides(view: View, key: str, at: float, span: float) -> tuple[list[float], list[float]]:
    before = side(view.history, key, view.mono, at - span, at)
    after = side(view.history, key, view.mono, at + SETTLE, min(view.mono, at + SETTLE + span))
    return before, after


def _one(
    view: View, at: float, span: float, name: str, key: str, figure: Callable[[float | None], str], worse_up: bool
) -> Compared:
    before, after = _sides(view, key, at, span)
    return Compared(name, mean(before), mean(after), noise(before), figure, worse_up)


def _executions(view: View, prefix: str, at: float, span: float) -> Compared:
    """Runs a second = requests a second / mean batch, for models whose requests have batch 1."""
    rates, sizes = _sides(view, f"{prefix}.rate", at, span), _sides(view, f"{prefix}.batch", at, span)
    found = [_ratio(mean(rate), mean(size)) for rate, size in zip(rates, sizes, strict=True)]
    return Compared("execs/s", found[0], found[1], None, units.rate)


def _ratio(rate: float | None, size: float | None) -> float | None:
    return rate / size if rate is not None and size else None


class TimelineCompare(Pane):
    """The table around the charts' cursor."""

    FIELDS = ("models", "gpu", "events")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.span = 1
        self.at: float | None = None
        """Monotonic time of the cursor; None = none."""
        self.letter = ""

    def title(self, view: View) -> Line:
        if self.at is None:
            return (("Before and after", "title"),)
        name = self.letter or view.clock(view.wall - (view.mono - self.at))
        return ((f"Before and after {name}", "title"),)

    def note(self, view: View) -> Line:
        return (("=", "key"), (" other span", "dim"))

    def lines(self, view: View) -> list[Row]:
        if self.at is None:
            return [
                Row((("[ ", "key"), ("goes to the event before, ", ""), ("← →", "key"), (" move the cursor:", ""))),
                Row((("then this table tells what changed there", ""),)),
            ]
        span = min(SPANS[self.span], max(1.0, view.mono - self.at - SETTLE))
        found = compare(view, self.at, span)
        if not found:
            return [Row((("? nothing was sampled on both sides of this moment", "unknown"),))]
        head = f"{left(f'{_span(span)} each', 12)}{right('BEFORE', 9)}{right('AFTER', 9)}{right('CHANGE', 9)}   NOISE"
        made = [Row(((head, "label"),)), *(_row(one) for one in found)]
        return [*made, *_so(found)]

    def other_span(self) -> None:
        """`=`: the next span."""
        self.span = (self.span + 1) % len(SPANS)
        self.again()

    def changes(self) -> object:
        return (self.span, self.at, self.letter)


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}m{whole % 60:02d}" if whole % 60 else f"{whole // 60} m"


def _row(one: Compared) -> Row:
    change, style, mark = _change(one)
    spread = "" if one.noise is None else f"±{100 * one.noise:.0f} %"
    return Row(
        (
            (left(one.name, 12), "label"),
            (f"{right(one.figure(one.before), 9)}{right(one.figure(one.after), 9)}", "value"),
            (right(change, 9), style),
            (" ", ""),
            mark,
            (f" {left(spread, 6)}", "dim"),
            ("same" if one.same else "", "dim"),
        )
    )


def _change(one: Compared) -> tuple[str, str, tuple[str, str]]:
    none = (" ", "")
    if one.change is None:
        return units.NONE, "dim", none
    percent = round(100 * one.change)
    text = "0 %" if percent == 0 else f"{'+' if percent > 0 else '–'} {abs(percent)} %"
    worse = one.worse_up and percent > 0 and one.same is False
    return text, "warn" if worse else "", sign("warn") if worse else none


def _so(found: Sequence[Compared]) -> list[Row]:
    """What stands out, in one line; at unlike load nothing is said."""
    by_name = {one.name: one for one in found}
    load = by_name.get("req/s")
    if load is not None and load.change is not None and abs(load.change) > LIKE_LOAD:
        return [Row((sign("unknown"), (" the load changed: the sides are not comparable", "")))]
    said = []
    for name, unit in (("mean ms", "ms"), ("util %", "points of util")):
        one = by_name.get(name)
        if one is None or one.same is not False or one.before is None or one.after is None:
            continue
        gap = one.after - one.before
        amount = units.millis(abs(gap)) if unit == "ms" else f"{abs(gap):.0f}"
        said.append(f"{amount} {unit} {'more' if gap > 0 else 'less'}")
    return [Row(((f"so: {', '.join(said)}", ""),))] if said else []
