"""The figures that flow verdicts are made of, per model version (screens.md section 3 has their definitions).

From two answers of `/v2/models/stats` within one run of counters, the served configuration, and the pending gauge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from console.advisors.table import Evaluation
from console.core import units
from console.core.model import ModelConfig, ModelFlow, ModelRow, Window

LONG_RUN_SHARE = 0.2
"""A run longer than this share of the window makes the busy share meaningless (6 s of 30 s)."""


MIN_REST = 2.0
"""Seconds by which a window must be longer than another for the rest to say something."""


@dataclass(frozen=True)
class Figures:
    """One model version over one window. None = not known or does not apply.

    The table's letters: R `rate`, X `run_rate`, B `batch`, q `wait_ms`, c `compute_ms`, T `request_ms`, L `in_flight`,
    F `fail_rate`, I `instances`, M `max_batch`, D `delay_ms`, RD `company`, w `alone_ms`, P `waiting`, s(b) `run_ms`.
    """

    row: ModelRow
    window: Window
    config: ModelConfig | None
    label: str

    @property
    def requests(self) -> int:
        """Requests that ended in the window, well or badly."""
        return self.window.success + self.window.failed

    @property
    def rate(self) -> float:
        return self.window.rate

    @property
    def fail_rate(self) -> float:
        return self.window.fail_rate

    @property
    def run_rate(self) -> float:
        return self.window.executions / self.window.span if self.window.span > 0 else 0.0

    @property
    def batch(self) -> float | None:
        return self.window.mean_batch

    @property
    def wait_ms(self) -> float | None:
        return self.window.queue_ms

    @property
    def compute_ms(self) -> float | None:
        return self.window.compute_ms

    @property
    def request_ms(self) -> float | None:
        return self.window.request_ms

    @property
    def in_flight(self) -> float | None:
        """Little's law: requests in the server at once."""
        return None if self.request_ms is None else self.rate * self.request_ms / 1000

    @property
    def instances(self) -> int | None:
        return self.row.instances

    @property
    def max_batch(self) -> int | None:
        return self.config.max_batch_size if self.config else None

    @property
    def delay_ms(self) -> float | None:
        """The delay in ms; 0 where nothing waits for company."""
        if self.config is None:
            return None
        return self.config.delay_us / 1000 if self.config.dynamic_batching else 0.0

    @property
    def batching(self) -> bool | None:
        """True where several requests can become one run. A sequence batcher batches in its own way."""
        if self.config is None:
            return None
        return (self.config.dynamic_batching and self.config.max_batch_size > 1) or self.config.sequence_batching

    @property
    def client_batch(self) -> float:
        """Inferences that one request brings; 1 where it cannot be told."""
        counted = self.window.success - self.window.cache_hits
        return max(1.0, self.window.inferences / counted) if counted > 0 and self.window.failed == 0 else 1.0

    @cached_property
    def busy(self) -> float | None:
        """Share of the instances' time spent executing, at most 1."""
        window = self.window
        if not self.instances or window.span <= 0:
            return None
        if any(batch.ms_per_run > LONG_RUN_SHARE * 1000 * window.span for batch in window.batches):
            return None
        return min(1.0, window.busy_seconds / (window.span * self.instances))

    @property
    def company(self) -> float | None:
        """Requests that come within the delay."""
        return None if self.delay_ms is None else self.rate * self.delay_ms / 1000

    @property
    def alone_ms(self) -> float | None:
        """The wait in ms that the delay alone makes, by Poisson arrivals, or the time that filling a batch takes."""
        if self.delay_ms is None or self.company is None or self.delay_ms <= 0:
            return None
        fill = self.fill_ms
        if fill is not None and 2 * fill < self.delay_ms:
            return fill
        return self.delay_ms * (1 + self.company / 2) / (1 + self.company)

    @property
    def fill_ms(self) -> float | None:
        """Mean wait while a batch fills; a preferred size lets it go as the maximum does (triton.md 1.8)."""
        if self.config is None or self.rate <= 0:
            return None
        sizes = [size for size in (*self.config.preferred, self.config.max_batch_size) if size > 0]
        if not sizes:
            return None
        return max(0.0, min(sizes) / self.client_batch - 1) / (2 * self.rate) * 1000

    @property
    def pending(self) -> Sequence[float]:
        """One-second samples of the waiting requests, oldest first; empty where the server does not tell."""
        return self.row.metrics.pending_samples if self.row.metrics else ()

    @property
    def waiting(self) -> float | None:
        """Requests waiting: the mean of the last ten samples, since one sample is chance."""
        last = self.pending[-10:]
        if last:
            return sum(last) / len(last)
        return self.row.metrics.pending if self.row.metrics else None

    @property
    def queue_limit(self) -> int:
        return self.config.queue.max_queue_size if self.config else 0

    @property
    def input_ms(self) -> float | None:
        return self.window.input_ms

    @property
    def output_ms(self) -> float | None:
        return self.window.output_ms

    def runs(self, size: int) -> int:
        """Executions of that batch size."""
        return sum(batch.runs for batch in self.window.batches if batch.size == size)

    def run_ms(self, size: int, min_runs: int = 20) -> float | None:
        """Mean ms of a run of that size; None when it was seen less than `min_runs` times."""
        for batch in self.window.batches:
            if batch.size == size:
                return batch.ms_per_run if batch.runs >= min_runs else None
        return None

    @property
    def full_share(self) -> float | None:
        """Share of runs that were as large as they can be."""
        total = sum(batch.runs for batch in self.window.batches)
        return self.runs(self.max_batch) / total if self.max_batch and total else None

    @property
    def largest(self) -> int | None:
        """Largest batch seen."""
        return max((batch.size for batch in self.window.batches), default=None)

    def top(self, min_runs: int, sizes: int, reach: float) -> float | None:
        """Inferences a second if all batches were as large as they can be.

        From runs of that size seen `min_runs` times, else by a straight line through `sizes` sizes or more, where
        the largest size is at most `reach` times the largest seen. None where that is not enough.
        """
        full = self.max_batch if self.batching else max(1, round(self.client_batch))
        if not full or not self.instances:
            return None
        cost = self.run_ms(full, min_runs)
        if cost is None:
            seen = [batch for batch in self.window.batches if batch.runs >= min_runs]
            if len(seen) < sizes or full > reach * max(batch.size for batch in seen):
                return None
            cost = _line([(batch.size, batch.ms_per_run, batch.runs) for batch in seen], full)
        return self.instances * full / cost * 1000 if cost and cost > 0 else None


def _line(points: Sequence[tuple[float, float, float]], x: float) -> float | None:
    """Weighted least squares through (x, y, weight), at `x`; None when it falls."""
    weight = sum(w for _, _, w in points)
    mean_x = sum(px * w for px, _, w in points) / weight
    mean_y = sum(py * w for _, py, w in points) / weight
    spread = sum(w * (px - mean_x) ** 2 for px, _, w in points)
    if spread <= 0:
        return None
    slope = sum(w * (px - mean_x) * (py - mean_y) for px, py, w in points) / spread
    return mean_y + slope * (x - mean_x) if slope >= 0 else None


# ----------------------------------------------------------------------------------------------------- which window


def judged_window(flow: ModelFlow, newest: Window | None, by: Evaluation, instances: int | None) -> Window | None:
    """The window that verdicts are made from; None when there is none within one run of counters, or traffic stopped.

    30 s; less where the traffic changed within them: then the last 10 s, or `newest` (since the look before), as long
    as they hold enough; 2 and 5 minutes where 30 s hold too few.
    """
    usual = _whole(flow.w30)
    shorter = [window for window in (_whole(flow.w10), _whole(newest)) if window is not None]
    if usual is None:
        return next((window for window in shorter if enough(window, by)), shorter[0] if shorter else None)
    chosen = usual
    for window in shorter:
        if window.span >= chosen.span:
            continue
        if _stopped(window, chosen):
            return None
        if enough(window, by) and _changed(window, chosen, by, instances):
            chosen = window
    if enough(chosen, by):
        return chosen
    for longer in (_whole(flow.w120), _whole(flow.w300)):
        if longer is not None and enough(longer, by):
            return longer
    return usual


def _whole(window: Window | None) -> Window | None:
    return None if window is None or window.crosses_reset else window


def enough(window: Window, by: Evaluation) -> bool:
    """True when means over the window say something. Failing requests make no executions, so they need none."""
    if window.success + window.failed < by.min_requests:
        return False
    return window.executions >= by.min_executions or window.failed > window.success


def _stopped(short: Window, usual: Window) -> bool:
    """Nothing in the shorter window where ten or more were to be expected."""
    if short.success or short.failed or short.executions:
        return False
    return (usual.rate + usual.fail_rate) * short.span >= 10


def _changed(short: Window, usual: Window, by: Evaluation, instances: int | None) -> bool:
    """True when the traffic of the shorter window is not that of the rest of the longer one; chance is no change."""
    rest = usual.span - short.span
    if rest < MIN_REST:
        return False
    ended = usual.success + usual.failed - short.success - short.failed
    expected, counted = max(0.0, ended / rest * short.span), short.success + short.failed
    if (
        not _alike(counted, expected, by.changed_rate)
        and abs(counted - expected) > by.chance * max(1.0, expected) ** 0.5
    ):
        return True
    before = _rest_ms(short, usual)
    if before is not None and short.request_ms is not None and not _alike(short.request_ms, before, by.changed_time):
        return True
    if not instances:
        return False
    busy = (usual.busy_seconds - short.busy_seconds) / (rest * instances)
    return abs(short.busy_seconds / (short.span * instances) - busy) >= by.changed_busy


def _rest_ms(short: Window, usual: Window) -> float | None:
    """Mean time of the requests of the longer window that are not in the shorter one."""
    count = usual.success - short.success
    if count <= 0 or usual.request_ms is None:
        return None
    return max(0.0, usual.request_ms * usual.success - (short.request_ms or 0.0) * short.success) / count


def _alike(a: float, b: float, factor: float) -> bool:
    return b / factor <= a <= b * factor


# -------------------------------------------------------------------------------------------------------- as words


def delay_text(delay_us: int) -> str:
    """`2000 µs`, `10 ms`."""
    return f"{delay_us // 1000} ms" if delay_us >= 10_000 and delay_us % 1000 == 0 else f"{delay_us} µs"


def plain(value: float | None) -> str:
    """A small figure with at most two digits after the point: `0.4`, `1.05`, `12`."""
    if value is None:
        return units.NONE
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}"


WORDS: Mapping[str, tuple[str, Callable[[Figures], str]]] = {
    "n": ("requests", lambda f: str(f.requests)),
    "R": ("R", lambda f: f"{units.rate(f.rate)}/s"),
    "X": ("runs", lambda f: f"{units.rate(f.run_rate)}/s"),
    "B": ("batch", lambda f: plain(f.batch)),
    "M": ("max", lambda f: units.NONE if f.max_batch is None else str(f.max_batch)),
    "h": ("full", lambda f: f"{units.percent(f.full_share)} %"),
    "q": ("wait", lambda f: f"{units.millis(f.wait_ms)} ms"),
    "c": ("compute", lambda f: f"{units.millis(f.compute_ms)} ms"),
    "T": ("request", lambda f: f"{units.millis(f.request_ms)} ms"),
    "ci": ("input", lambda f: f"{units.millis(f.input_ms)} ms"),
    "co": ("output", lambda f: f"{units.millis(f.output_ms)} ms"),
    "D": ("D", lambda f: f"{units.one(f.delay_ms)} ms"),
    "RD": ("RD", lambda f: plain(f.company)),
    "w": ("the delay alone makes", lambda f: units.millis(f.alone_ms)),
    "busy": ("busy", lambda f: f"{units.percent(f.busy)} %"),
    "I": ("instances", lambda f: units.NONE if f.instances is None else str(f.instances)),
    "L": ("in at once", lambda f: plain(f.in_flight)),
    "P": ("waiting", lambda f: plain(f.waiting)),
    "F": ("failures", lambda f: f"{units.rate(f.fail_rate)}/s"),
    "limit": ("limit", lambda f: str(f.queue_limit)),
}
"""Figure -> (its name on the screen, its text)."""


def proof(figures: Figures, names: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """The line of figures below a verdict: `30 s: D 2.0 ms   R 1650/s   busy 31 %`."""
    parts = []
    for name in names:
        if name in WORDS:
            title, text = WORDS[name]
            parts.append(f"{title} {text(figures)}")
        elif more and name in more:
            parts.append(f"{name} {more[name]}")
    return f"{figures.window.span:.0f} s: " + "   ".join(parts)


def words(figures: Figures) -> dict[str, str]:
    """What sentences may use of a model's figures."""
    return {
        "m": figures.label,
        "R": units.rate(figures.rate),
        "F": units.rate(figures.fail_rate),
        "B": plain(figures.batch),
        "M": units.NONE if figures.max_batch is None else str(figures.max_batch),
        "I": units.NONE if figures.instances is None else str(figures.instances),
        "L": plain(figures.in_flight),
        "P": plain(figures.waiting),
        "q": units.millis(figures.wait_ms),
        "c": units.millis(figures.compute_ms),
        "T": units.millis(figures.request_ms),
        "D": delay_text(figures.config.delay_us) if figures.config else units.NONE,
        "RD": plain(figures.company),
        "busy": units.percent(figures.busy),
        "h": units.percent(figures.full_share),
        "limit": str(figures.queue_limit),
    }
