"""Tells the journal when a change takes a service away and when it is there again, and what came in just before."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

from console.actions.base import Run
from console.actions.box import Box
from console.actions.outage import MOST_CONFIGS, served_configs
from console.actions.target import ContainerView
from console.clients.triton import Http, Limits, error_text, model_path, server_http
from console.clients.triton_control import all_statistics, statistics
from console.core.gap import BEGAN, DRAINS, ENDED, RATE, RATE_UNKNOWN, SECONDS, SEEN, SEEN_WALL
from console.core.model import ModelStats, SourceError
from console.core.text import one_line

COUNTED = 1.0
"""Seconds for which requests are counted before a gap."""
OWN_PATIENCE = Limits(connect=1.0, read=1.0)
SHORTEST = 0.01
"""Seconds of counting that tell a rate at all."""


class Gap:
    """The gap of one run. Figures are of gaps that are over: how long an open one will be nobody knows."""

    def __init__(self, run: Run, *, drains: bool = False) -> None:
        """`drains`: kept connections are answered on for a while after it began, as a server that stops does."""
        self._run = run
        self._drains = drains
        self._since: float | None = None
        self._total: float | None = None

    @property
    def is_open(self) -> bool:
        """It has begun and not ended."""
        return self._since is not None

    def begin(self) -> None:
        """What serves is told to stop now."""
        self._begin(time.time())

    def go_on(self) -> None:
        """For a run that finishes or undoes another one: where that left a gap open, and nothing serves still, it is
        open since then. Call it only where that was looked at."""
        kept = self._run.kept()
        if self.is_open or self._total is not None or kept.get(ENDED) or not kept.get(BEGAN):
            return
        self._begin(float(kept[BEGAN]))

    def _begin(self, wall: float) -> None:
        self._since = time.monotonic() - max(0.0, time.time() - wall)
        told = {RATE: rate} if (rate := self._run.kept().get(RATE)) else {}  # of an interrupted run: again, as it began
        drains = "yes" if self._drains else "no"
        self._run.keep(**{BEGAN: f"{wall:.3f}", ENDED: "", DRAINS: drains, **told})

    def got(self, text: str) -> None:
        """What a request of our own got just now; "" = it was answered, or none was sent."""
        if text and self.is_open:
            self._run.keep(**{SEEN: text, SEEN_WALL: f"{time.time():.3f}"})

    def end(self, at: float | None = None) -> None:
        """It serves again, now or since `at` (time.monotonic())."""
        if self._since is None:
            return
        now = time.monotonic()
        at = now if at is None else at
        self._run.keep(**{ENDED: f"{time.time() - (now - at):.3f}"})
        self._total = (self._total or 0.0) + max(0.0, at - self._since)
        self._since = None

    @property
    def figures(self) -> dict[str, float]:
        """gap_s: seconds in all. gap_rate: requests a second before it, where known. Empty where there was none, or
        where it has not ended."""
        if self._total is None or self.is_open:
            return {}
        rate = self._run.kept().get(RATE)
        return {SECONDS: self._total, **({RATE: float(rate)} if rate else {})}


class Arrivals:
    """Counts requests from its making until `keep`."""

    def __init__(self, count: Callable[[], int]) -> None:
        """`count` may raise SourceError: then it is kept why nothing is known."""
        self._count = count
        self._first, self._why = self._read()
        self._began = time.monotonic()  # the first look may take long: it asks which models are ensembles

    def _read(self) -> tuple[int, str]:
        try:
            return self._count(), ""
        except SourceError as error:
            return 0, error.message

    @property
    def known(self) -> bool:
        """False where there is nothing to wait for."""
        return not self._why

    def keep(self, run: Run) -> None:
        """The rate until now goes to the journal, or why there is none."""
        now, why = self._read() if self.known else (0, self._why)
        span = time.monotonic() - self._began
        if not why and span < SHORTEST:
            why = "they were not counted long enough"
        if not why and now < self._first:
            why = "Triton's counters began anew meanwhile"
        rate = "" if why else f"{(now - self._first) / span:.4g}"
        run.keep(**{RATE: rate, RATE_UNKNOWN: one_line(why, 300)})


def count_model(box: Box, name: str, run: Run) -> None:
    """Requests to one model, for COUNTED seconds."""
    _counted(Arrivals(lambda: requests_of(box, name)), run)


def count_container(view: ContainerView, run: Run) -> None:
    """Requests to all models of a container, for COUNTED seconds."""
    _counted(Arrivals(_outside(view)), run)


def _counted(arrivals: Arrivals, run: Run) -> None:
    if arrivals.known:
        run.wait(COUNTED)
    arrivals.keep(run)


def requests_of(box: Box, name: str) -> int:
    """To all versions of a model since their loads. SourceError."""
    return _ended(statistics(box.address(), name))


def _ended(found: Iterable[ModelStats]) -> int:
    return sum(one.success_count + one.fail_count for one in found)


def _outside(view: ContainerView) -> Callable[[], int]:
    """Counts requests from outside: those that an ensemble made to its steps are taken off again."""
    steps = functools.cache(lambda: _steps(view))

    def count() -> int:
        inner_of = steps()
        found = all_statistics(view.address())
        return _ended(found) - sum((one.success_count + one.fail_count) * inner_of.get(one.name, 0) for one in found)

    return count


def _steps(view: ContainerView) -> dict[str, int]:
    """Ensemble -> how many steps it has. SourceError where that is not known."""
    ready = view.ready()
    if len(ready) > MOST_CONFIGS:
        raise SourceError("unavailable", f"which of {len(ready)} models are ensembles was not asked")
    return {one.name: len(one.steps) for one in served_configs(view, ready).configs if one.steps}


# ----------------------------------------------------------------------------------------------- a request of our own


def answer_for_model(box: Box, name: str) -> str:
    """What a client of the model is told now: `404 Request for unknown model: 'lm' has no available versions`; "" where
    it is answered. Its configuration is asked for: no inference is sent."""
    try:
        http = box.http(OWN_PATIENCE)
    except SourceError as error:
        return error.message
    return _told(http, f"{model_path(name)}/config")


def answer_of_server(view: ContainerView) -> str:
    """What a client of the server is told now: `connection refused`; "" where it is answered, or where it is not known
    where to ask."""
    if view.state() is None:
        return ""
    return _told(server_http(view.address(), OWN_PATIENCE), "/v2/health/live")


def _told(http: Http, path: str) -> str:
    """Why a GET was not answered with 200; "" where it was."""
    try:
        answer = http.get(path)
    except SourceError as error:
        return error.message
    finally:
        http.close()
    return "" if answer.status == 200 else f"{answer.status} {error_text(answer)}".strip()
