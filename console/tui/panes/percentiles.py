"""How a percentile is worded: never without where it comes from, and never finer than that tells."""

from __future__ import annotations

from math import isfinite

from console.core import units
from console.core.histograms import Estimate, quantile
from console.core.model import Histogram, ModelRow

LISTED = (0.5, 0.95, 0.99)
"""What details show of a distribution."""


def figure(value: float) -> str:
    """Three significant digits, whole numbers whole and in groups of three: `0.0421`, `87.3`, `11 400`."""
    if not isfinite(value):
        return str(value)
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def name_of(q: float) -> str:
    """`p50`, `p99.9`."""
    return f"p{100 * q:g}"


def worded(estimate: Estimate | None) -> str:
    """`≈ 87.3 (≤ 100)` interpolated in its bucket, `≤ 100` in the first one, `> 5 000` beyond the last, `–` else."""
    if estimate is None:
        return units.NONE
    if estimate.at_most is None:
        return f"> {figure(estimate.more_than or 0.0)}"
    if estimate.value is None:
        return f"≤ {figure(estimate.at_most)}"
    return f"≈ {figure(estimate.value)} (≤ {figure(estimate.at_most)})"


def tail(row: ModelRow) -> str:
    """The 99th percentile with its source; `–` where nothing gives one (means never become percentiles)."""
    metrics = row.metrics
    for one in metrics.request_summary if metrics else ():
        if one.q == 0.99:
            return f"{units.millis(one.ms)} ms (summary)"
    estimate = quantile(metrics.first_response, 0.99) if metrics and metrics.first_response else None
    if estimate is None:
        return units.NONE
    if estimate.at_most is None or estimate.value is None:
        return f"{worded(estimate)} ms (histogram)"
    return f"≈ {figure(estimate.value)} ms (histogram, ≤ {figure(estimate.at_most)})"


def listed(histogram: Histogram) -> tuple[str, ...]:
    """`p50 ≈ 42.1 (≤ 50)` and so on, in the family's own unit; () without an observation."""
    if not histogram.total:
        return ()
    return tuple(f"{name_of(q)} {worded(quantile(histogram, q))}" for q in LISTED)
