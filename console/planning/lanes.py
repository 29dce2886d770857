"""Many settings of one batcher at once, a batch of each at a step: what `ahead.py` does one event after another.

A lane is one setting under one stream of arrivals. All lanes go on together, each by its own next batch, with NumPy
over the lanes; a batch has no event but its closing and its beginning, since both can be told from the arrivals and
from when instances free. Lanes of one stream see the same arrivals (common random numbers), so settings differ by
their effect alone.

Time is in units of the mean time between two arrivals, so that one stream serves every rate. With several instances
it is near `ahead.py` and not equal to it: what joins a closed batch by the way is told by the batch two before it
alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from console.planning.ahead import LINE_OF_EACH

WARM_UP = 0.1
"""Share of each lane's requests that is left out, since a lane begins empty."""
_LOOK_EVERY = 64
"""Steps between two looks at the clock and at lanes that are through."""
_FEWER = 0.75
"""Lanes are packed when this share of them is still on its way."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One setting. Times in any unit that is that of `gap`."""

    stream: int
    largest: int
    """Requests a batch at most; 1 without dynamic batching."""
    instances: int
    delay: float
    gap: float
    """Mean time between two arrivals: one by the rate."""
    held: Sequence[float]
    """Time from one run's being taken to its end, by the number of its requests; [0] is not used."""
    wins: float = 0.0
    """How often the batcher is there before an instance that frees (see ahead.py)."""


@dataclass(slots=True)
class Told:
    """What one lane did after its warm-up."""

    latencies: Any
    """From arrival to the end of the run, one each, in the lane's unit (NumPy)."""
    runs: int
    sizes: Any
    """Runs by their number of requests (NumPy, index = number)."""
    refused: int = 0
    """Turned away at a full queue."""
    expired: int = 0
    """Timed out in the queue."""


class Streams:
    """Arrivals of `count` streams, `length` requests each, by chance: gamma distributed spaces of mean 1.

    `dispersion` is the variance of the number that comes in a long time, as a share of its mean: 1 is Poisson, less is
    more even, more comes in bursts.
    """

    def __init__(self, count: int, length: int, beyond: int, *, dispersion: float = 1.0, seed: int = 0) -> None:
        self.length, self.width = length, length + beyond + 2
        chance = np.random.default_rng(seed)
        shape = 1.0 / max(dispersion, 1e-3)
        spaces = chance.standard_gamma(shape, (count, self.width)) / shape
        self.offset = 4.0 * self.width
        """Each stream begins so much after the one before, so that all together are in order."""
        times = np.cumsum(spaces, axis=1)
        times[:, -1] = self.offset - 1.0  # no stream reaches into the next
        flat = (np.minimum(times, self.offset - 1.0) + self.offset * np.arange(count)[:, None]).ravel()
        self.flat = np.concatenate([flat, np.full(beyond + 2, flat[-1])])
        """Padded, so that looking ahead of the last request is no error."""


def run(lanes: Sequence[Lane], streams: Streams, within_s: float | None = None) -> list[Told]:
    """All lanes to the end of their streams, or to `within_s` seconds of this machine's time. In the lanes' order."""
    ends = None if within_s is None else time.monotonic() + within_s
    found: list[Told | None] = [None] * len(lanes)
    for forms_ahead in (False, True):
        at = [i for i, lane in enumerate(lanes) if (lane.delay > 0 and lane.largest > 1) is forms_ahead]
        if at:
            chosen = [lanes[i] for i in at]
            parts = _ahead(chosen, streams, ends) if forms_ahead else _at_once(chosen, streams, ends)
            for i, lane, part in zip(at, chosen, parts, strict=True):
                found[i] = _told(lane, streams, *part)
    return [one for one in found if one is not None]


def _told(lane: Lane, streams: Streams, counts: Any, done: Any) -> Told:
    """From a lane's batches: requests of each, and from its oldest request's arrival to its end."""
    some = counts > 0
    counts, done = counts[some].astype(np.int64), done[some].astype(float)
    ends = np.cumsum(counts)
    first = int(np.searchsorted(ends, WARM_UP * ends[-1], "right")) if len(ends) else 0
    begin = int(ends[first - 1]) if first else 0
    arrivals = streams.flat[lane.stream * streams.width :][: int(ends[-1]) if len(ends) else 0]
    counts, done = counts[first:], done[first:]
    heads = arrivals[begin:][np.cumsum(counts) - counts] if len(counts) else arrivals[:0]
    latencies = np.repeat(heads + done, counts) - arrivals[begin:]
    sizes = np.bincount(counts, minlength=lane.largest + 1)
    sizes = np.bincount(counts, minlength=lane.largest + 1)
    return Told(latencies * lane.gap, len(counts), sizes)


class _State:
    """The lanes on their way, as arrays over them; packed when enough are through."""

    def __init__(self, lanes: Sequence[Lane], streams: Streams) -> None:
        width = max(lane.largest for lane in lanes) + 1
        self.flat = streams.flat
        self.ids = np.arange(len(lanes))
        self.first = np.array([lane.stream * streams.width for lane in lanes])
        self.end = self.first + streams.length
        self.head = self.first.copy()
        """The oldest request that is in no batch yet."""
        self.largest = np.array([lane.largest for lane in lanes])
        self.delay = np.array([lane.delay / lane.gap for lane in lanes])
        held = np.zeros((len(lanes), width))
        for row, lane in enumerate(lanes):
            held[row, : lane.largest + 1] = lane.held[: lane.largest + 1]
            held[row] /= lane.gap
        held[:, 0] = 0.0
        self.width = width
        self.held = held.ravel()
        self.wins = np.array([lane.wins for lane in lanes])
        self.instances = np.array([lane.instances for lane in lanes])
        most = int(self.instances.max())
        self.free = np.where(np.arange(most)[:, None] < self.instances, 0.0, np.inf)
        """When each instance is free, a row each."""
        self.row = np.arange(len(lanes))
        self._parts: list[tuple[Any, list[Any], list[Any]]] = []
        self._counts: list[Any] = []
        self._done: list[Any] = []

    def note(self, counts: Any, done: Any) -> None:
        """One batch of each lane; 0 where there is none."""
        self._counts.append(counts.astype(np.int16))
        self._done.append(done.astype(np.float32))

    def pack(self, more: dict[str, Any], *, over: bool = False) -> bool:
        """Take out lanes that are through when that pays; the arrays of `more` as well. False when none is left."""
        going = (self.head < self.end) | (more.get("count", 0) > 0)
        left = int(going.sum())
        if left and not over and left > _FEWER * len(going):
            return True
        self._parts.append((self.ids, self._counts, self._done))
        self._counts, self._done = [], []
        for name in ("ids", "first", "end", "head", "largest", "delay", "instances", "wins"):
            setattr(self, name, getattr(self, name)[going])
        self.held = self.held.reshape(-1, self.width)[going].ravel()
        self.free = self.free[:, going]
        self.row = np.arange(left)
        for name, value in more.items():
            more[name] = value[..., going]
        return left > 0 and not over

    def batches(self, lanes: int) -> list[tuple[Any, Any]]:
        """Of each lane: requests of each batch, and time from its oldest arrival to its end."""
        counts: list[list[Any]] = [[] for _ in range(lanes)]
        done: list[list[Any]] = [[] for _ in range(lanes)]
        for ids, some_counts, some_done in self._parts:
            if not some_counts:
                continue
            all_counts, all_done = np.stack(some_counts, axis=1), np.stack(some_done, axis=1)
            for row, lane in enumerate(ids):
                counts[lane].append(all_counts[row])
                done[lane].append(all_done[row])
        none = (np.zeros(0, np.int16), np.zeros(0, np.float32))
        return [
            (np.concatenate(one), np.concatenate(two)) if one else none for one, two in zip(counts, done, strict=True)
        ]


def _over(ends: float | None) -> bool:
    return ends is not None and time.monotonic() > ends


def _at_once(lanes: Sequence[Lane], streams: Streams, ends: float | None) -> list[tuple[Any, Any]]:
    """Without a delay: whenever an instance frees it takes what waits."""
    state, step = _State(lanes, streams), 0
    flat = state.flat
    while True:
        head = state.head
        oldest = flat[head]
        which = state.free.argmin(axis=0)
        start = np.maximum(state.free[which, state.row], oldest)
        count = flat.searchsorted(start, "right") - head
        count = np.minimum(np.minimum(count, state.largest), state.end - head)
        end = start + state.held[state.row * state.width + count]
        going = count > 0
        state.free[which, state.row] = np.where(going, end, state.free[which, state.row])
        state.note(count, (end - oldest))
        state.head = head + count
        step += 1
        if step % _LOOK_EVERY == 0 and not state.pack({}, over=_over(ends)):
            return state.batches(len(lanes))


def _ahead(lanes: Sequence[Lane], streams: Streams, ends: float | None) -> list[tuple[Any, Any]]:
    """With a delay: batches are formed ahead and stand in a line (see ahead.py for the rules)."""
    state, step = _State(lanes, streams), 0
    flat, size, chance = state.flat, len(lanes), np.random.default_rng(len(lanes))
    depth = LINE_OF_EACH * int(state.instances.max()) + 1
    of: dict[str, Any] = {
        "look": np.zeros(size),  # from when on the next batch can be thought of
        "taken": np.full((depth, size), -np.inf),  # when the last batches were taken from the line, a ring
        "count": np.zeros(size, np.int64),  # the batch before, whose size may still change
        "oldest": np.zeros(size),
        "which": np.zeros(size, np.int64),
    }
    while True:
        row, head, largest, taken = state.row, state.head, state.largest, of["taken"]
        before_count, before_start = of["count"], taken[(step - 1) % depth]
        oldest = flat[head]
        slot = (step - LINE_OF_EACH * state.instances) % depth
        looked = np.maximum(np.maximum(of["look"], oldest), taken[slot, row])
        overdue = oldest + state.delay
        close = np.maximum(looked, np.minimum(overdue, flat[head + largest - 1]))
        count = np.minimum(flat.searchsorted(close, "right") - head, largest)
        # the batch before keeps its size unless it still stands in the line and this one may join it
        waits = before_start > close
        may_join = waits & (before_count < largest)
        _begin(state, of["which"], before_start, np.where(may_join, 0, before_count))
        which = state.free.argmin(axis=0)
        start = np.maximum(close, state.free[which, row])
        until = np.where(waits, before_start, start)
        total, look = count, np.where(count == largest, close, until)
        at = np.flatnonzero(until > close)
        if len(at):
            from_ = np.maximum(close[at], taken[(slot[at] + 1) % depth, at])
            wins = chance.random(len(at)) < state.wins[at]
            line = _Line(head[at], largest[at], count[at], looked[at], overdue[at], close[at], until[at], from_)
            total[at], look[at] = _meanwhile(flat, line, taken[(step - 2) % depth][at], wins)
        total = np.minimum(total, state.end - head)
        joined, left = before_count, total
        if may_join.any():  # two that fit leave as one
            joins = may_join & (before_count > 0) & (total > 0) & (before_count + total <= largest)
            joined = before_count + np.where(joins, total, 0)
            _begin(state, of["which"], before_start, np.where(may_join, joined, 0))
            which = np.where(may_join, state.free.argmin(axis=0), which)
            start = np.where(may_join, np.maximum(close, state.free[which, row]), start)
            start, look = np.where(joins, before_start, start), np.where(joins, before_start, look)
            left = np.where(joins, 0, total)
        state.note(joined, before_start + state.held[row * state.width + joined] - of["oldest"])
        taken[step % depth] = start
        of["look"], of["count"], of["oldest"], of["which"] = look, left, oldest, which
        state.head = head + total
        step += 1
        if step % _LOOK_EVERY == 0 and not state.pack(of, over=_over(ends)):
            return state.batches(size)


class _Line(NamedTuple):
    """Batches that were closed and stand in a line, an array each: what they are made of, and when."""

    head: Any
    largest: Any
    count: Any
    looked: Any
    """When they were thought of first."""
    overdue: Any
    close: Any
    until: Any
    """When they can take in no more: an instance takes them, or the batch before, which freezes them."""
    from_: Any
    """From when on there is room in the line, without which nobody is woken."""


def _meanwhile(flat: Any, line: _Line, earlier: Any, wins: Any) -> tuple[Any, Any]:
    """How many requests they have in the end, and from when on the next batch can be thought of.

    `earlier`: when the batch two before is taken, which wakes the batcher. `wins`: it is there before the instance.
    """
    head, largest, count, looked, overdue, close, until, from_ = line
    full = count == largest
    at_once = overdue <= looked
    absorbs = (earlier > close) & (earlier < until) & ~full
    from_ = np.where((earlier > from_) & (earlier < until), earlier, from_)
    known = flat.searchsorted(from_, "right")
    # a batch that was overdue at first sight is joined by the next that comes; then it takes as many as would fill it
    one_more = np.where(at_once & (flat[known] < until), known + 1 - head, count)
    one_more = np.minimum(np.where(absorbs, known - head, one_more), largest)
    one_more = np.where(full, count, one_more)
    eager = absorbs | at_once
    index = np.where(eager, one_more, count) + np.where(eager, largest - count, largest) - 1
    fills = flat[np.maximum(head + index, known)]
    grows = ~full & (one_more < largest) & (fills < until)
    total = np.where(grows, largest, one_more)
    # full by those that came while it was waited for: the next is thought of when as many more wait
    late_full = full & (close > looked) & ~at_once
    refilled = np.minimum(until, np.maximum(flat[head + 2 * largest - 1], close))
    look = np.where(full, np.where(late_full, refilled, close), until)
    look = np.where(grows, fills, look)
    look = np.where(~full & ~grows & (total == largest), np.maximum(from_, flat[head]), look)
    wins = wins & ~full & ~grows & (until > from_)
    late = np.minimum(flat.searchsorted(until, "right") - head, largest)
    return np.where(wins, np.maximum(total, late), total), look


def _begin(state: _State, which: Any, start: Any, count: Any) -> None:
    """Hold the instances from `start` on for batches of `count`; 0 holds nothing."""
    old = state.free[which, state.row]
    end = start + state.held[state.row * state.width + count]
    state.free[which, state.row] = np.where(count > 0, end, old)
