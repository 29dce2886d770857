"""What others who use the server feel of a load, by Triton's own statistics, before it and meanwhile (pure).

Of a model that only others ask, the statistics are theirs: rate and mean are exact. Of a model that the load asks too
they count both alike and tell nobody apart: others' rate is the server's count less ours, and the mean is of all its
requests, ours among them. Their own mean cannot be had; where all wait in one queue it is near. What a model asks of
another from within its code (BLS) counts there as others'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from console.core import units
from console.core.model import ModelStats
from console.core.plan import WrongInput
from console.core.text import one_line
from console.loadgen.record import Live, Traffic

FLAG = "--max-live-ms"
WINDOW_S = 3.0
"""A limit holds for the mean of so many seconds at least, and of FEWEST requests."""
FEWEST = 5
_LONGEST = 64
"""Looks that are kept: a minute, since one is taken a second."""
BLIND_S = 10.0
"""With a limit, a load that cannot be watched for so long ends."""
OTHERS = 0.02
"""Share of our count, at least FEW, above which a server's larger count is others' traffic and not of the edges."""
FEW = 2


class Counted(Struct, frozen=True):
    """Of one model, all its versions together, since it was loaded."""

    requests: int
    total_ns: int


class Look(Struct, frozen=True):
    """All models at one moment."""

    at: float
    """Monotonic seconds."""
    counts: Mapping[str, Counted]
    own: Mapping[str, float]
    """Answers that the load got by then, for each model that it asks."""


def counted(stats: Sequence[ModelStats]) -> dict[str, Counted]:
    """By model."""
    found: dict[str, Counted] = {}
    for one in stats:
        old = found.get(one.name, Counted(0, 0))
        found[one.name] = Counted(old.requests + one.success_count, old.total_ns + one.success_ns)
    return found


def others(counted_there: float, own: float) -> float:
    """Requests of others among those that the server counted; 0 for a few, which are of the edges."""
    more = counted_there - own
    return more if more > max(FEW, OTHERS * own) else 0


def between(first: Look, last: Look, model: str) -> Traffic | None:
    """Of one model; None where it is not there, or its counters began anew."""
    new = last.counts.get(model)
    if new is None:
        return None
    old = first.counts.get(model, Counted(0, 0))
    requests, total = new.requests - old.requests, new.total_ns - old.total_ns
    if requests < 0 or total < 0:
        return None
    theirs = others(requests, last.own.get(model, 0) - first.own.get(model, 0))
    span = last.at - first.at
    return Traffic(theirs / span if span else 0.0, total / requests / 1e6 if requests else None, requests)


def parse_limits(words: Sequence[str]) -> dict[str, float]:
    """`M` (under "": for each model) or `MODEL=M`, in ms. WrongInput."""
    found: dict[str, float] = {}
    for word in words:
        model, _, text = word.rpartition("=")
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e9:
            raise WrongInput(f"{FLAG} must be M or MODEL=M, milliseconds above 0, not {one_line(word, 80)!r}")
        if model in found:
            raise WrongInput(f"{FLAG} is given twice for {one_line(model, 80) or 'all models'}; give it once")
        found[model] = value
    return found


class Watch:
    """Follows all models of a server through a run."""

    def __init__(self, ours: Set[str], within: Set[str], limits: Mapping[str, float]) -> None:
        """`ours` are the models that the load asks; `within` those that it asks through an ensemble of these: they are
        left out, since their counts are ours in part and how large a part nobody tells."""
        self._ours, self._within = ours, within
        self._limits = limits
        self._before: dict[str, Traffic] = {}
        self._looks: deque[Look] = deque(maxlen=_LONGEST)
        self._began: Look | None = None
        self.notes: list[str] = []
        """What of the limits does not hold."""

    def before(self, first: Look | None, last: Look) -> None:
        """Two looks before anything is sent, or only the last. WrongInput for a limit that cannot be, or is passed
        without the load."""
        for model, limit in self._limits.items():
            if model and (model not in last.counts or model in self._within):
                why = "is part of what is loaded" if model in self._within else "is not served here"
                raise WrongInput(f"{FLAG} {one_line(model, 80)}={limit:g}: {one_line(model, 80)} {why}")
        for model in last.counts:
            found = None if first is None or model in self._within else between(first, last, model)
            if found is None:
                continue
            self._before[model] = found
            most = self._limit(model)
            if most is None or found.mean_ms is None or found.mean_ms <= most or not found.rate:
                continue
            already = f"{one_line(model, 80)} takes {units.millis(found.mean_ms)} ms already without this load"
            if model in self._ours or model in self._limits:
                raise WrongInput(f"{FLAG} {most:g}: {already}; give more than that")
            self.notes.append(f"{already}: the limit of {most:g} ms does not hold for it ({FLAG} {model}=M would)")
            self._limits = {**self._limits, model: float("inf")}
        self._looks.append(last)

    def begin(self, look: Look) -> None:
        """The measured part begins."""
        self._looks.append(look)
        self._began = look

    def look(self, look: Look) -> str:
        """Why the load must end; "" where it may go on."""
        self._looks.append(look)
        for model in look.counts:
            limit = self._limit(model)
            found = None if limit is None or model in self._within else self._window(model)
            if limit is None or found is None or found.mean_ms is None or not found.rate or found.mean_ms <= limit:
                continue
            return (
                f"live users: mean of {one_line(model, 80)} {units.millis(found.mean_ms)} ms, above the limit of "
                f"{limit:g}; others ask it {units.rate(found.rate)}/s"
            )
        return ""

    def blind(self, now: float) -> str:
        """Why a load with a limit must end although no look can be had; "" where it may go on."""
        if not self._limits or not self._looks or now - self._looks[-1].at < BLIND_S:
            return ""
        return f"live users could not be watched for {BLIND_S:g} s: the server's statistics do not answer"

    def found(self) -> tuple[Live, ...]:
        """Each model that others asked before it or have asked since the measured part (else the load) began."""
        if not self._looks:
            return ()
        last = self._looks[-1]
        first = self._began or self._looks[0]
        made = []
        for model in last.counts:
            if model in self._within:
                continue
            before, during = self._before.get(model), between(first, last, model) if last is not first else None
            if (before is not None and before.rate) or (during is not None and during.rate):
                made.append(Live(model, before, during, model in self._ours))
        return tuple(made)

    def _limit(self, model: str) -> float | None:
        return self._limits.get(model, self._limits.get(""))

    def _window(self, model: str) -> Traffic | None:
        """The shortest one up to now that is long enough to be judged; None where none is."""
        last = self._looks[-1]
        for first in reversed(self._looks):
            if last.at - first.at < WINDOW_S:
                continue
            found = between(first, last, model)
            if found is None or found.requests >= FEWEST:
                return found
        return None
