"""A gap in service that a change makes: how it stands in the journal and in the outcome, and what can be reckoned.

Nobody counts what is refused: Triton counts no request to a model that is not there, and a server that is down counts
none at all. So what fell into a gap is reckoned from the requests that came in just before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from console.core import units
from console.core.plan import JournalLine
from console.core.text import one_line

BEGAN = "gap_began"
"""Kept: Unix seconds at which what served was told to stop."""
ENDED = "gap_ended"
"""Kept: Unix seconds at which it served again; "" with each beginning."""
RATE = "gap_rate"
"""Kept, and a figure of the outcome: requests a second just before it. Kept before the beginning, or with it."""
RATE_UNKNOWN = "gap_rate_unknown"
"""Kept instead: why that is not known."""
DRAINS = "gap_drains"
"""Kept with the beginning: `yes` where kept connections are still answered for a while."""
SEEN, SEEN_WALL = "gap_seen", "gap_seen_wall"
"""Kept: what a request of the console's own got in the gap, and when."""
SECONDS, PLANNED = "gap_s", "gap_plan_s"
"""Figures of an outcome: how long it was, and how long by the plan."""


class Gap(Struct, frozen=True):
    """One gap, as far as the journal tells it. Times are Unix seconds."""

    phase: str
    """The step in which it began."""
    began: float
    ended: float | None = None
    rate: float | None = None
    """Requests a second just before it, by Triton's counters; None = not known."""
    rate_unknown: str = ""
    drains: bool = False
    seen: str = ""
    """What a request of the console's own got in it; "" = none was sent, or it was answered."""
    seen_wall: float | None = None

    def seconds(self, wall: float) -> float:
        """How long it was, or is by `wall`."""
        return max(0.0, (wall if self.ended is None else self.ended) - self.began)


def gaps(lines: Iterable[JournalLine]) -> tuple[Gap, ...]:
    """All gaps of a journal, oldest first; more than one where a change was taken back."""
    made: list[Gap] = []
    rate: float | None = None
    unknown = ""
    for line in lines:
        data = line.data if line.state == "kept" else {}
        if RATE in data or RATE_UNKNOWN in data:
            rate, unknown = _number(data.get(RATE, "")), data.get(RATE_UNKNOWN, "")
        if (began := _number(data.get(BEGAN, ""))) is not None:
            made.append(Gap(line.phase, began, None, rate, unknown, data.get(DRAINS) == "yes"))
        if made and (ended := _number(data.get(ENDED, ""))) is not None:
            made[-1] = replace(made[-1], ended=ended)
        if made and SEEN in data:
            made[-1] = replace(made[-1], seen=data[SEEN], seen_wall=_number(data.get(SEEN_WALL, "")))
    return tuple(made)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def clock_words(gap: Gap, planned: float | None, wall: float, *, utc: bool = False) -> str:
    """`GAP since 14:20:32, 0:29 of ≈ 0:38`; `gap 14:20:32 to 14:21:11, 0:39 of ≈ 0:38` when it is over."""
    since = units.clock(gap.began, utc=utc)
    of = f" of ≈ {minutes(planned)}" if planned else ""
    long = f"{minutes(gap.seconds(wall))}{of}"
    if gap.ended is None:
        return f"GAP since {since}, {long}"
    return f"gap {since} to {units.clock(gap.ended, utc=utc)}, {long}"


def refused_words(gap: Gap, wall: float, *, utc: bool = False) -> str:
    """How many requests were refused so far, from what that is reckoned, and what the console itself was told."""
    if gap.rate is None:
        why = f" ({one_line(gap.rate_unknown, 120)})" if gap.rate_unknown else ""
        told = f"refused so far: not known, as the requests before it were not counted{why}"
    else:
        most = "at most " if gap.drains else ""
        told = f"refused so far: {most}{_about(gap.rate * gap.seconds(wall))}, reckoned from {_rate(gap.rate)} before"
        told += "; kept connections are answered until they close" if gap.drains else ""
    if gap.seen:
        told += f"; our own, {units.clock(gap.seen_wall, utc=utc)}: {one_line(gap.seen, 120)}"
    return told


def figure_words(figures: Mapping[str, float]) -> str:
    """Of an outcome: `gap 39 s (plan 38), ≈ 1 600 requests fell into it (41/s before)`; "" where it made none."""
    seconds, planned, rate = figures.get(SECONDS), figures.get(PLANNED), figures.get(RATE)
    if seconds is None:
        return ""
    plan = "" if planned is None else f" (plan {_short(planned)})"
    fell = "" if rate is None else f", {_about(rate * seconds)} fell into it ({_rate(rate)} before)"
    return f"gap {_short(seconds)} s{plan}{fell}"


def minutes(seconds: float) -> str:
    """`0:29`."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 9.95 else f"{seconds:.1f}"


def _about(requests: float) -> str:
    """Three digits at most: it is reckoned from a second or less of counting."""
    if requests < 0.5:
        return "no requests"
    rounded = f"{float(f'{requests:.3g}'):,.0f}".replace(",", " ")
    return f"≈ {rounded} request{'' if rounded == '1' else 's'}"


def _rate(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 9.95 else f"{units.rate(rate)}/s"
