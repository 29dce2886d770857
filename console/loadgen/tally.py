"""What the sender counts of one part of a run."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from console.loadgen import errors
from console.loadgen.errors import Failed
from console.loadgen.histogram import Histogram
from console.loadgen.record import Client, Share, Slice, Stage
from console.loadgen.schedule import Step

SLICE_NS = 1_000_000_000
LATE_NS = 1_000_000
"""Sent this much after the intended time is late."""


class _Stage:
    """What is counted of one piece of the load (of all of it where its level stays), or of one model."""

    __slots__ = ("done", "errors", "failed", "histogram", "in_time", "sent")

    def __init__(self) -> None:
        self.sent = self.done = self.in_time = self.failed = 0
        self.errors: dict[str, Failed] = {}
        self.histogram = Histogram()

    def share(self) -> Share:
        """As one of several models."""
        of = self.histogram
        return Share(self.sent, self.done, self.in_time, of.latency(), of.encoded(), of.sum_us, self.errors)


class Tally:
    """One part: warm-up or the measured one. Times are monotonic ns."""

    def __init__(self, pieces: Sequence[Step] = (), models: int = 1) -> None:
        """`pieces` of the load, and models where it asks several, have figures of their own. Takes half a millisecond
        for each: made before the part begins."""
        self.start = self.end = 0
        self.sent = self.done = self.failed = self.in_time = self.late = 0
        self.errors: dict[str, Failed] = {}
        self._pieces = pieces
        self._ends: list[int] = []
        """Where one piece ends and the next begins."""
        self._stages = [_Stage() for _ in pieces or (None,)]
        self._models = [_Stage() for _ in range(models)] if models > 1 else []
        self.slices: list[Slice] = []
        self.late_ns = self.late_max_ns = 0
        self._cpu = 0.0
        self._slice: list[int] = []
        self._slice_from = 0
        self._before = (0, 0)
        """Errors and late ones up to the slice's beginning."""

    def begin(self, start: int, end: int) -> None:
        """From `start` on it counts; its last request is due by `end`, and answers up to there make the throughput."""
        self.start = self._slice_from = start
        self.end = end
        self._ends = [start + round(at * 1e9) for at in accumulate(piece.seconds for piece in self._pieces)][:-1]
        self._cpu = time.process_time()

    def went(self, due: int, sent: int, model: int = 0) -> None:
        """A request went out."""
        self.sent += 1
        if self._models:
            self._models[model].sent += 1
        self._stage(due).sent += 1
        behind = sent - due
        self.late_ns += behind
        if behind > LATE_NS:
            self.late += 1
        if behind > self.late_max_ns:
            self.late_max_ns = behind

    def good(self, due: int, now: int, model: int = 0) -> None:
        """A right answer came."""
        us = (now - due) // 1000
        self.done += 1
        if now <= self.end:
            self.in_time += 1
            self._stage(now).in_time += 1
        self._stage(due).histogram.record(us)
        if self._models:
            of = self._models[model]
            of.done += 1
            of.in_time += now <= self.end
            of.histogram.record(us)
        self._slice.append(us)

    def bad(self, kind: str, text: str = "", model: int = 0) -> None:
        """A request failed."""
        self.failed += 1
        if self._models:
            of = self._models[model]
            of.failed += 1
            of.errors = errors.counted(of.errors, kind, text)
        self._stage(time.monotonic_ns()).failed += 1
        self.errors = errors.counted(self.errors, kind, text)

    @property
    def answered(self) -> tuple[int, ...]:
        """Requests that came to an end, by model."""
        return tuple(of.done + of.failed for of in self._models) or (self.done + self.failed,)

    def _stage(self, at: int) -> _Stage:
        return self._stages[bisect_right(self._ends, at)]

    def cut(self, now: int, least: int = SLICE_NS) -> Slice | None:
        """The slice that is over by now, if it is `least` ns long; sorting one of 4 000 answers takes 0.3 ms."""
        if now - self._slice_from < least:
            return None
        values = sorted(self._slice)
        failed, late = self._before
        self._before = (self.failed, self.late)
        at = (now - self.start) / 1e9
        span = (now - self._slice_from) / 1e9
        self._slice_from = now
        self._slice = []
        made = Slice(
            round(at, 3), len(values), self.failed - failed, _at(values, 0.5), _at(values, 0.99), self.late - late,
            round(span, 3),
        )  # fmt: skip
        self.slices.append(made)
        return made

    def client(self, now: int, connections: int) -> Client:
        """The figures, when it is over at `now`."""
        self.end = min(self.end, now)
        histogram = self._stages[0].histogram
        if len(self._stages) > 1:
            histogram = Histogram()
            for stage in self._stages:
                histogram.add(stage.histogram)
        return Client(
            seconds=(self.end - self.start) / 1e9,
            sent=self.sent,
            done=self.done,
            in_time=self.in_time,
            latency=histogram.latency(),
            histogram=histogram.encoded(),
            sum_us=histogram.sum_us,
            errors=self.errors,
            late=self.late,
            late_mean_ms=self.late_ns / self.sent / 1e6 if self.sent else 0.0,
            late_max_ms=self.late_max_ns / 1e6,
            cpu_s=time.process_time() - self._cpu,
            wall_s=(now - self.start) / 1e9,
            connections=connections,
            slices=tuple(self.slices),
            stages=tuple(self._told()),
            shares=tuple(of.share() for of in self._models),
        )

    def _told(self) -> Iterator[Stage]:
        """The pieces that were reached."""
        begin, length = 0.0, (self.end - self.start) / 1e9
        for piece, stage in zip(self._pieces, self._stages, strict=False):
            seconds = min(piece.seconds, length - begin)
            if seconds <= 0:
                return
            latency = stage.histogram.latency()
            yield Stage(piece.first, piece.last, begin, seconds, stage.sent, stage.in_time, stage.failed, latency)
            begin += piece.seconds


def _at(ordered: list[int], q: float) -> float | None:
    """The quantile in ms."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] / 1e3 if ordered else None
