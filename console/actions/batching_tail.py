"""A model's 99th percentile as the server tells it, where it does: a summary or a histogram on its metrics page."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from msgspec import Struct

from console.actions.box import Box
from console.core.histograms import quantile
from console.core.model import ModelMetrics, SourceError
from console.sources.triton import MetricsSource

P99 = 0.99
SUMMARY, HISTOGRAM = "summary", "histogram"
SUMMARY_S = 60.0
"""Seconds that the server's summaries look back: what was before a change is in them for as long."""


class Tail(Struct, frozen=True):
    """What the page tells now."""

    source: str = ""
    """SUMMARY, HISTOGRAM, or "" = there is none."""
    ms: float | None = None
    """A summary's is of the server's last minute; a histogram's of the time since this reader's first look, a minute at
    most, and the lower bound of its bucket. None = too few requests."""
    why: str = ""
    """Why there is no source."""


class TailReader:
    """Reads it again and again; close it."""

    def __init__(self, box: Box, model: str, versions: Sequence[int]) -> None:
        self._source = MetricsSource(box.address)
        self._model = model
        self._versions = {str(one) for one in versions}

    def read(self) -> Tail:
        """Never raises: a page that does not answer tells nothing."""
        try:
            found = self._source.read()
        except SourceError as error:
            return Tail(why=f"the metrics page does not answer ({error.message})")
        mine = [one for one in found.models if one.key.name == self._model and one.key.version in self._versions]
        told = [one for one in map(_of_model, mine) if one.source]
        if not told:
            return Tail(why="the server tells no percentiles of it (--metrics-config summary_latencies=true adds them)")
        known = [one.ms for one in told if one.ms is not None]
        return Tail(told[0].source, max(known, default=None))

    def close(self) -> None:
        """Let go of the connection."""
        self._source.close()


def tail_of(box: Box, model: str, versions: Sequence[int]) -> Tail:
    """One look."""
    reader = TailReader(box, model, versions)
    try:
        return reader.read()
    finally:
        reader.close()


def _of_model(metrics: ModelMetrics) -> Tail:
    for one in metrics.request_summary:
        if one.q == P99:
            return Tail(SUMMARY, None if isnan(one.ms) else one.ms)
    if metrics.first_response is None:
        return Tail()
    found = quantile(metrics.first_response, P99)
    return Tail(HISTOGRAM, None if found is None else found.more_than or found.value)
