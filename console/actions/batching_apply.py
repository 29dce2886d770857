"""The steps that batching changes share: measure, load, look at what became of it, judge."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from console.actions.base import Run
from console.actions.box import Box
from console.clients import golden_store, triton_config
from console.clients.triton_control import ControlRefused, statistics
from console.core.golden import Golden
from console.core.model import ModelStats, SourceError, Window
from console.core.rates import MIN_SPAN, window_between
from console.core.text import one_line
from console.planning.noise import Slice, estimate, judge

SETTLE = 5.0
"""Seconds in which what was READY must be READY again after a load: ensembles are reloaded with their steps."""
LEAST_WINDOW = 0.5
SLICES = 10
"""Parts of a window: their differences tell its noise (planning/noise.py)."""
PAUSE = 0.1


class Measured(Struct, frozen=True):
    """A window of one model, all pinned versions together (differences are taken per version, then added)."""

    span: float
    requests: int
    failed: int
    mean_ms: float | None
    wait_ms: float | None
    batch: float | None
    executions: int = 0
    busy_s: float = 0.0
    """Time that instances spent executing, summed."""
    slices: tuple[Slice, ...] = ()

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.span if self.span else 0.0

    @property
    def text(self) -> str:
        """`412/s, mean 2.94 ms, wait 1.23, batch 4.3`."""
        if self.mean_ms is None:
            return "no requests"
        batch = "" if self.batch is None else f", batch {self.batch:.1f}"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.rate:.0f}/s, mean {self.mean_ms:.2f} ms, wait {self.wait_ms or 0:.2f}{batch}{failed}"

    def figures(self, when: str) -> dict[str, float]:
        """By the names of `Outcome.figures`."""
        found = {f"mean_{when}_ms": self.mean_ms, f"wait_{when}_ms": self.wait_ms, f"batch_{when}": self.batch}
        known = {name: value for name, value in found.items() if value is not None}
        if noise := estimate(self.slices):
            known[f"margin_{when}_ms"] = noise.margin
        if self.span:
            known |= {f"execs_{when}": self.executions / self.span, f"busy_{when}_s": self.busy_s / self.span}
        return {**known, f"rate_{when}": self.rate}


class LoadFailed(Exception):  # noqa: N818 (said to the person, an answer of the server)
    """The server refused; `lines` are its words and those of its log."""

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = tuple(lines)


class Gauge:
    """What the statistics count of a model from now on, in slices that end at each `look`."""

    def __init__(self, box: Box, model: str, versions: Sequence[int]) -> None:
        self._box = box
        self._model = model
        self._wanted = {str(version) for version in versions}
        self._slices: list[list[Window]] = []
        self._last, self._at = self._read(), time.monotonic()
        self._first, self._began = self._last, self._at

    def look(self) -> Measured | None:
        """What came since the last look; None where the statistics do not answer, or began anew since (the next look
        counts from here then)."""
        now, at = self._read(), time.monotonic()
        old, span = self._last, at - self._at
        if not now or span < MIN_SPAN:
            return None  # the next slice is the longer
        self._last, self._at = now, at
        both = sorted(old.keys() & now.keys())
        windows = [found for one in both if (found := window_between(old[one], now[one], span)) is not None]
        if not windows or len(windows) < len(both):
            return None
        self._slices.append(windows)
        return _together(windows)

    def ends(self) -> tuple[Mapping[str, ModelStats], Mapping[str, ModelStats], float]:
        """The statistics by version at the first look and at the last one, and the seconds between."""
        return self._first, self._last, self._at - self._began

    def measured(self, last: int | None = None) -> Measured | None:
        """All slices as one window, or the `last` of them; None without any."""
        chosen = self._slices if last is None else self._slices[-last:]
        if not chosen:
            return None
        parts = [_together(windows) for windows in chosen]
        whole = _together([window for windows in chosen for window in windows])
        slices = tuple(Slice(one.span, one.requests, one.requests * (one.mean_ms or 0.0)) for one in parts)
        return replace(whole, span=sum(one.span for one in slices), slices=slices)

    def _read(self) -> Mapping[str, ModelStats]:
        try:
            found = statistics(self._box.address(), self._model)
        except SourceError:
            return {}
        return {one.version: one for one in found if one.version in self._wanted}


def window_of(box: Box) -> float:
    """Seconds for which a change is measured before and after: [actions] watch."""
    return max(LEAST_WINDOW, box.settings.actions.watch)


def measure(box: Box, run: Run, model: str, versions: Sequence[int], seconds: float) -> Measured | None:
    """What the statistics count in a window; None where they do not answer at its ends or began anew within it."""
    gauge = Gauge(box, model, versions)
    for _ in range(SLICES):
        if run.wait(seconds / SLICES):
            break
        gauge.look()
    return gauge.measured()


def _together(windows: Sequence[Window]) -> Measured:
    requests = sum(one.success for one in windows)
    runs = sum(one.executions for one in windows)

    def mean(values: Sequence[float | None]) -> float | None:
        pairs = [(value, one.success) for value, one in zip(values, windows, strict=True) if value is not None]
        total = sum(count for _, count in pairs)
        return sum(value * count for value, count in pairs) / total if total else None

    return Measured(
        span=max(one.span for one in windows),
        requests=requests,
        failed=sum(one.failed for one in windows),
        mean_ms=mean([one.request_ms for one in windows]),
        wait_ms=mean([one.queue_ms for one in windows]),
        batch=sum(one.inferences for one in windows) / runs if runs else None,
        executions=runs,
        busy_s=sum(one.busy_seconds for one in windows),
    )


def verdict(before: Measured | None, after: Measured | None) -> str:
    """better, worse, no difference, or why the two windows do not tell; the noise of both is taken into account."""
    if before is None or after is None:
        return "not known: the statistics did not answer"
    return judge(before.slices, after.slices).text


def load(box: Box, run: Run, model: str, config: str | None) -> float:
    """Load and wait as long as the plan allows; seconds that it took. LoadFailed with the cause from the log;
    SourceError (timeout) when the wait ends, while the server goes on."""
    wall = time.time()
    control = box.triton_control()
    patience = min(run.left(), box.settings.actions.load_timeout)
    call = control.begin_load(model, config, patience)
    told = time.monotonic()
    while not call.wait(PAUSE) and time.monotonic() - call.began < patience + 2.0:
        if time.monotonic() - told > 5.0:
            told = time.monotonic()
            run.note(f"loading since {told - call.began:.0f} s; the old copy serves on")
    try:
        return call.result()
    except ControlRefused as error:
        raise LoadFailed(one_line(error.message, 600), box.load_cause(model, wall)) from error


def missing(box: Box, run: Run, before: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What was READY and is not again within a while (an ensemble drops out silently); SourceError."""
    until = time.monotonic() + min(SETTLE, run.left())
    while True:
        gone = set(before) - set(box.ready())
        if not gone or time.monotonic() > until:
            return tuple(sorted(gone))
        time.sleep(PAUSE)


def served_now(box: Box, model: str, version: int) -> dict[str, object]:
    """The configuration that is served, with its secrets; SourceError."""
    return triton_config.parsed(box.served_config(model, str(version)), model)


def ready_reason(box: Box, model: str) -> str:
    """A reason beside READY: what an update in place failed at (domain facts 1.3); ""."""
    for entry in box.index().entries:
        if entry.name == model and entry.state == "READY" and entry.reason:
            return one_line(entry.reason, 400)
    return ""


def as_override(document: Mapping[str, object], versions: Sequence[int]) -> str:
    """JSON text of a configuration with the served versions pinned."""
    return json.dumps({**document, "version_policy": triton_config.specific(versions).document})


def kept_question(box: Box, model: str) -> Golden | None:
    """The golden question, where one is kept and [actions] probe is on."""
    if not box.settings.actions.probe:
        return None
    try:
        return golden_store.load(box.state, model)
    except SourceError:
        return None


def wrong_answer(box: Box, golden: Golden | None, version: int) -> str:
    """What is wrong with the answer to the kept question; "" = as kept, or none is kept."""
    if golden is None:
        return ""
    return one_line(golden_store.ask_golden(box.address(), golden, str(version))[1], 300)
