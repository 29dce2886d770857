"""How long an instance takes for a batch of n, from the means that the server gives by batch size. Pure.

Statistics give a mean per size and no spread (domain facts 2.3). So what can be told: the seen means, evened towards
a straight line where few runs stand behind them and never falling with n; beyond the seen sizes the line. How far off
that may be comes from how the means scatter about the line; with one or two sizes nothing scatters, and what bounds
the truth is that a larger batch takes no less time and no more time for each item.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from msgspec import Struct

ENOUGH_SIZES = 3
"""A line through two points fits whatever the truth is."""
FIRM = 20
"""Runs behind a mean that count as much as the line through all."""
SIGMAS = 2.0
"""How many standard errors a bound lies away."""


class Seen(Struct, frozen=True):
    """Runs of one batch size under one number of instances."""

    size: int
    """Items, over all requests of the batch."""
    runs: int
    ms: float
    """Mean of the instance's time: input, inference, output."""
    instances: int


class Line(Struct, frozen=True):
    """Least squares through the means, weighted by their runs: ms = at + slope * (size - centre)."""

    centre: float
    at: float
    slope: float
    at_error: float | None
    """Standard errors; None with fewer than three sizes."""
    slope_error: float | None

    def ms(self, size: float) -> float:
        """On the line."""
        return self.at + self.slope * (size - self.centre)

    def error(self, size: float) -> float | None:
        """Standard error of the line there, in ms."""
        if self.at_error is None or self.slope_error is None:
            return None
        return sqrt(self.at_error**2 + (self.slope_error * (size - self.centre)) ** 2)


class Curve(Struct, frozen=True):
    """Times by batch size from 0 (not used) to the largest asked for, in ms."""

    ms: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Bounds: about two standard errors, or what is possible at all where few sizes were seen."""
    smallest: int
    largest: int
    """Of the sizes seen."""
    sizes: int
    """How many were seen."""


def line(seen: Sequence[Seen]) -> Line:
    """Through at least one size."""
    total = sum(one.runs for one in seen)
    centre = sum(one.runs * one.size for one in seen) / total
    at = sum(one.runs * one.ms for one in seen) / total
    spread = sum(one.runs * (one.size - centre) ** 2 for one in seen)
    if len({one.size for one in seen}) < 2:
        return Line(centre, at, 0.0, None, None)
    slope = sum(one.runs * (one.size - centre) * (one.ms - at) for one in seen) / spread
    slope = min(max(slope, 0.0), at / centre)
    if len(seen) < ENOUGH_SIZES:
        return Line(centre, at, slope, None, None)
    rest = sum(one.runs * (one.ms - at - slope * (one.size - centre)) ** 2 for one in seen)
    one_run = rest / (len(seen) - 2)
    return Line(centre, at, slope, sqrt(one_run / total), sqrt(one_run / spread))


def curve(seen: Sequence[Seen], largest: int) -> Curve:
    """For batches of up to `largest` items; `seen` has each size once and one at least."""
    known = sorted(seen, key=lambda one: one.size)
    fit = line(known)
    points = [
        ((one.runs * one.ms + FIRM * fit.ms(one.size)) / (one.runs + FIRM), one.runs + FIRM, one.size) for one in known
    ]
    means = _rising([ms for ms, _, _ in points], [weight for _, weight, _ in points])
    sizes = [one.size for one in known]
    times = [0.0] + [_between(sizes, means, fit.slope, n) for n in range(1, largest + 1)]
    if fit.at_error is None:
        low = [0.0] + [_between(sizes, means, 0.0, n) for n in range(1, largest + 1)]
        low = [min(one, means[0] * n / sizes[0]) if n < sizes[0] else one for n, one in enumerate(low)]
        high = [0.0] + [max(times[n], means[-1] * n / sizes[-1]) for n in range(1, largest + 1)]
        high = [means[0] if 0 < n < sizes[0] else one for n, one in enumerate(high)]
        if len(sizes) == 1:
            times = [one if n <= sizes[0] else high[n] for n, one in enumerate(times)]  # no gain that was not seen
    else:
        errors = [SIGMAS * (fit.error(n) or 0.0) for n in range(largest + 1)]
        low = [max(ms - error, ms / 2) for ms, error in zip(times, errors, strict=True)]
        high = [ms + error for ms, error in zip(times, errors, strict=True)]
    return Curve(tuple(times), tuple(low), tuple(high), sizes[0], sizes[-1], len(sizes))


def _between(sizes: Sequence[int], means: Sequence[float], slope: float, n: int) -> float:
    """Straight between seen sizes, along the line beyond them; below them never less than the share of the first."""
    if n <= sizes[0]:
        return max(means[0] - slope * (sizes[0] - n), means[0] * n / sizes[0])
    if n >= sizes[-1]:
        return means[-1] + slope * (n - sizes[-1])
    above = next(at for at, size in enumerate(sizes) if size >= n)
    first, last = sizes[above - 1], sizes[above]
    return means[above - 1] + (means[above] - means[above - 1]) * (n - first) / (last - first)


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest values that never fall (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            last = blocks.pop()
            mean = (blocks[-1][0] * blocks[-1][1] + last[0] * last[1]) / (blocks[-1][1] + last[1])
            blocks[-1] = [mean, blocks[-1][1] + last[1], blocks[-1][2] + last[2]]
    return [value for value, _, count in blocks for _ in range(int(count))]
