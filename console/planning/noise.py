"""Is a difference of two means more than chance? Windows in slices, the error of a mean, and what may be compared.

Pure. A request's time is not independent of the one before it (one slow batch makes many slow requests), so the noise
is taken from slices of the window, each with the sum of its requests' times: block means. Slices may still hang
together, so groups of 1, 2, 4 ... of them are looked at and the widest error counts. Two means are held against each
other by Welch's t test: an interval of 95 % for their difference; where it includes none there is no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Literal

from msgspec import Struct

Word = Literal["better", "worse", "no difference", "not to be compared", "not known"]

SAME_LOAD = 0.10
"""Two windows whose request rates differ by a larger share, and by more than chance, are of unlike load."""
NO_DIFFERENCE = 0.02
"""Means that differ by a smaller share are the same to whoever waits, however surely they differ."""
LEAST_REQUESTS = 5
LEAST_GROUPS = 5
"""Groups of slices with requests that an error is taken from: with fewer it is no more than a guess."""
SHARE = 0.95
_Z = NormalDist().inv_cdf((1 + SHARE) / 2)


class Slice(Struct, frozen=True):
    """A part of a window."""

    span: float
    """Seconds."""
    count: int
    """Requests that succeeded."""
    total_ms: float
    """Their times, summed."""


class Estimate(Struct, frozen=True):
    """A mean with its error."""

    mean: float
    error: float
    """Standard error."""
    freedom: float
    """Degrees of freedom of the error."""

    @property
    def margin(self) -> float:
        """Half of the interval of 95 %."""
        return quantile_t(self.freedom) * self.error


class Difference(Struct, frozen=True):
    """Of two means, the second less the first."""

    change: float
    margin: float
    """Half of the interval of 95 %."""

    @property
    def is_chance(self) -> bool:
        """True when the interval includes none."""
        return abs(self.change) <= self.margin


class Judgement(Struct, frozen=True):
    """What two windows tell."""

    word: Word
    text: str
    """`better: mean 2.94 → 1.84 ms (-1.10 ±0.08), at a like load, 412 and 409/s`; begins with the word."""


def quantile_t(freedom: float) -> float:
    """Student's t, two-sided, for SHARE: Cornish and Fisher's expansion (within 0.3 % from 4 degrees on)."""
    z, nu = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * nu)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * nu**3)
    )


def estimate(slices: Sequence[Slice]) -> Estimate | None:
    """The mean per request with its error; None where too few slices have requests to tell one."""
    found: Estimate | None = None
    size = 1
    while True:
        one = _of_groups(_grouped(slices, size))
        if one is None:
            return found
        if found is None or one.margin > found.margin:
            found = one
        size *= 2


def _grouped(slices: Sequence[Slice], size: int) -> list[Slice]:
    """Neighbours together; what is left over at the beginning goes to the first group."""
    count = len(slices) // size
    rest = len(slices) - count * size
    groups = [slices[rest + at * size : rest + (at + 1) * size] for at in range(count)]
    if groups and rest:
        groups[0] = slices[: rest + size]
    return [
        Slice(sum(one.span for one in group), sum(one.count for one in group), sum(one.total_ms for one in group))
        for group in groups
    ]


def _of_groups(groups: Sequence[Slice]) -> Estimate | None:
    """A ratio of sums, Σ times / Σ requests, and its error by the deviations of the groups from it."""
    used = [one for one in groups if one.count]
    number = len(used)
    if number < LEAST_GROUPS:
        return None
    requests = sum(one.count for one in used)
    mean = sum(one.total_ms for one in used) / requests
    squares = sum((one.total_ms - mean * one.count) ** 2 for one in used)
    return Estimate(mean, sqrt(squares * number / (number - 1)) / requests, number - 1)


def difference(before: Estimate, after: Estimate) -> Difference:
    """By Welch: the errors need not be alike."""
    first, second = before.error**2, after.error**2
    together = first + second
    if not together:
        return Difference(after.mean - before.mean, 0.0)
    freedom = together**2 / (first**2 / before.freedom + second**2 / after.freedom)
    return Difference(after.mean - before.mean, quantile_t(freedom) * sqrt(together))


def is_like_load(before: Sequence[Slice], after: Sequence[Slice]) -> bool:
    """True when the request rates differ by no more than SAME_LOAD, or than chance makes such counts differ."""
    spans = [sum(one.span for one in slices) for slices in (before, after)]
    counts = [sum(one.count for one in slices) for slices in (before, after)]
    if not all(spans):
        return False
    first, second = counts[0] / spans[0], counts[1] / spans[1]
    chance = _Z * sqrt(counts[0] / spans[0] ** 2 + counts[1] / spans[1] ** 2)
    return abs(second - first) <= max(SAME_LOAD * first, chance)


def judge(before: Sequence[Slice], after: Sequence[Slice]) -> Judgement:
    """Two windows of one model, before a change and after it.

    At unlike load only what cannot be the load's doing is judged: more requests in less time each is better, fewer in
    more time is worse.
    """
    counts = [sum(one.count for one in slices) for slices in (before, after)]
    if min(counts) < LEAST_REQUESTS:
        return Judgement("not known", "not known: hardly any requests came")
    first, second = estimate(before), estimate(after)
    if first is None or second is None:
        return Judgement(
            "not known", "not known: too few requests, or too short a time, to tell a difference from chance"
        )
    rates = [count / sum(one.span for one in slices) for count, slices in zip(counts, (before, after), strict=True)]
    found = difference(first, second)
    means = f"mean {first.mean:.2f} → {second.mean:.2f} ms ({found.change:+.2f} ±{found.margin:.2f})"
    same = found.is_chance or abs(found.change) < NO_DIFFERENCE * first.mean
    faster = found.change < 0
    word: Word = "no difference" if same else "better" if faster else "worse"
    if is_like_load(before, after):
        return Judgement(word, f"{word}: {means} at a like load, {rates[0]:.0f} and {rates[1]:.0f}/s")
    load = f"the load went from {rates[0]:.0f} to {rates[1]:.0f}/s"
    if not same and (rates[1] > rates[0]) == faster:
        return Judgement(word, f"{word}: {means}, and {load}")
    return Judgement("not to be compared", f"not to be compared: {load} ({means})")
