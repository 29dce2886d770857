"""The trials of a sweep: what each was, what was predicted and measured, and the table that a person reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from console.core import units
from console.tuning.space import Objective

NEARLY = 0.02
"""Shares by which two figures of throughput must differ for the better one to be better."""


class Trial(Struct, frozen=True):
    """One setting that was tried, or was to be."""

    text: str
    values: Mapping[str, str]
    predicted: float | None = None
    """By the objective, with what was tried before taken into account."""
    rate: float | None = None
    """Requests a second, served."""
    mean_ms: float | None = None
    p99_ms: float | None = None
    batch: float | None = None
    requests: int = 0
    failed: int = 0
    load_s: float | None = None
    left_out: str = ""
    """Why it was not measured, or its figures do not count."""
    what: str = ""
    """start, confirmed."""
    modelled: float | None = None
    """What was predicted by the model alone."""

    def figure(self, objective: Objective) -> float | None:
        """What is judged; None = it cannot be the best."""
        if self.left_out:
            return None
        return {"throughput": self.rate, "p99": self.p99_ms, "mean": self.mean_ms}[objective]


def best(trials: Sequence[Trial], objective: Objective, slo_p99_ms: float | None = None) -> Trial | None:
    """Of those within the goal; at equal throughput (NEARLY) the one that is faster. None without any."""
    found = [one for one in trials if one.figure(objective) is not None and _holds(one, slo_p99_ms)]
    if not found:
        return None
    if objective != "throughput":
        return min(found, key=lambda one: one.figure(objective) or 0.0)
    most = max(one.rate or 0.0 for one in found)
    equal = [one for one in found if (one.rate or 0.0) >= (1 - NEARLY) * most]
    return min(equal, key=lambda one: one.mean_ms if one.mean_ms is not None else 0.0)


def _holds(one: Trial, slo_p99_ms: float | None) -> bool:
    return slo_p99_ms is None or (one.p99_ms is not None and one.p99_ms <= slo_p99_ms)


def lines(trials: Sequence[Trial], chosen: Trial | None, objective: Objective) -> tuple[str, ...]:
    """A heading and a line for each, the best marked with `*`."""
    unit = "req/s" if objective == "throughput" else f"{objective} ms"
    made = [f"{'SETTING':<48}{'PREDICTED':>16}{'REQ/s':>9}{'MEAN ms':>9}{'P99 ms':>9}{'BATCH':>7}{'FAILED':>8}"]
    for one in trials:
        mark = "*" if chosen is not None and one.values == chosen.values else "-"
        name = f"{one.text}{f' ({one.what})' if one.what else ''}"
        if one.left_out and one.rate is None:
            made.append(f"{mark} {name:<46}{_predicted(one, unit):>16}  {one.left_out}")
            continue
        figures = (
            f"{units.rate(one.rate):>9}{units.millis(one.mean_ms):>9}{units.millis(one.p99_ms):>9}"
            f"{units.one(one.batch):>7}{one.failed:>8}"
        )
        end = f"  {one.left_out}" if one.left_out else ""
        made.append(f"{mark} {name:<46}{_predicted(one, unit):>16}{figures}{end}")
    return tuple(made)


def _predicted(one: Trial, unit: str) -> str:
    if one.predicted is None:
        return units.NONE
    shown = units.rate(one.predicted) if unit == "req/s" else units.millis(one.predicted)
    return f"{shown} {unit}"
