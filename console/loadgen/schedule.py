"""When requests leave: closed loop by number of callers, open loop by rate, constant or Poisson, in steps and ramps.

In the open loop each request has an intended time that does not depend on the server, and its latency counts from
there: a stall delays all that was due meanwhile, and so it shows. In the closed loop a stalled server is simply asked
less often, and the stall is seen by one request per caller ("coordinated omission").

Pure. Times are seconds or whole nanoseconds from the beginning of the part.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite, sqrt
from typing import Literal

from msgspec import Struct

from console.core.plan import WrongInput
from console.core.text import decode, one_line

MOST_CALLERS = 1024
MOST_RATE = 50_000.0
LONGEST_S = 3600.0
MOST_REQUESTS = 20_000_000
"""Of one run; a bound that no reasonable run meets."""
MOST_STEPS = 50
RAMP_PIECES = 10
"""Of a ramp, figures are told for so many parts of it, each a second long at least."""
MOST_PIECES = 100
"""Of all ramps together."""
MOST_RATES = 3600
RATE_FILE = "--rate-file"
NS = 1_000_000_000


class Step(Struct, frozen=True):
    """For `seconds` the level goes evenly from `first` to `last` (callers, or requests a second)."""

    first: float
    last: float
    seconds: float


class Load(Struct, frozen=True):
    """What is asked for. Ends after its steps, or after `count` requests where that is not 0."""

    loop: Literal["closed", "open"]
    steps: tuple[Step, ...]
    poisson: bool = False
    seed: int = 0
    count: int = 0

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def most(self) -> int:
        """Never are more requests sent than this."""
        return min(self.count or MOST_REQUESTS, MOST_REQUESTS)

    @property
    def peak(self) -> float:
        """The highest level."""
        return max(max(step.first, step.last) for step in self.steps)

    def words(self) -> str:
        """Such as `open loop, Poisson, 800/s` or `closed loop, 16 at once`."""
        levels = ", ".join(_level(step) for step in self.steps)
        if len(self.steps) > MOST_STEPS:
            low = min(min(step.first, step.last) for step in self.steps)
            levels = f"{len(self.steps)} rates of {low:g} to {self.peak:g}"
        if self.loop == "closed":
            return f"closed loop, {levels} at once"
        return f"open loop, {'Poisson' if self.poisson else 'constant'}, {levels}/s"


def _level(step: Step) -> str:
    return f"{step.first:g}" if step.first == step.last else f"{step.first:g}..{step.last:g}"


def make(
    loop: Literal["closed", "open"],
    levels: str,
    seconds: float,
    *,
    poisson: bool = False,
    seed: int = 0,
    count: int = 0,
) -> Load:
    """A load of `levels`: `N`, a ramp `A..B`, or steps `A,B,C` of equal length. WrongInput for what cannot be."""
    flag, most = ("--concurrency", MOST_CALLERS) if loop == "closed" else ("--rate", MOST_RATE)
    what = f"a {'whole number' if loop == 'closed' else 'number'} from {'1' if loop == 'closed' else '0.1'} to {most:g}"
    if not (isfinite(seconds) and 0 < seconds <= LONGEST_S):
        raise WrongInput(f"--duration must be more than 0 and at most {LONGEST_S:g} s, not {seconds:g} s")
    if not 0 <= count <= MOST_REQUESTS:
        raise WrongInput(f"--count must be from 1 to {MOST_REQUESTS}, not {count}")
    words = levels.split(",")
    if len(words) > MOST_STEPS:
        raise WrongInput(f"{flag} has {len(words)} steps; at most {MOST_STEPS} are possible")
    steps: list[Step] = []
    for word in words:
        first, dots, last = word.partition("..")
        low, high = _number(first, loop, most), _number(last if dots else first, loop, most)
        if low is None or high is None:
            raise WrongInput(f"{flag} must be {what}, A..B or A,B,C, not {one_line(levels, 80)!r}")
        steps.append(Step(low, high, seconds / len(words)))
    return Load(loop, tuple(steps), poisson, seed, count)


def _number(text: str, loop: str, most: float) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    if loop == "closed" and (not found.is_integer() or found < 1):
        return None
    return found if isfinite(found) and 0.1 <= found <= most else None


def warm_up(load: Load, seconds: float) -> Load | None:
    """What runs before and is left out: the first level, with other chance; None for 0 seconds."""
    if not (isfinite(seconds) and 0 <= seconds <= LONGEST_S):
        raise WrongInput(f"--warmup must be from 0 to {LONGEST_S:g} s, not {seconds:g} s")
    level = next((step.first for step in load.steps if step.first), load.peak)
    return Load(load.loop, (Step(level, level, seconds),), load.poisson, load.seed + 1) if seconds else None


def pieces(load: Load) -> tuple[Step, ...]:
    """What has figures of its own: the steps, and parts of the ramps; () for one level throughout."""
    if len(load.steps) == 1 and load.steps[0].first == load.steps[0].last:
        return ()
    if len(load.steps) > MOST_STEPS:
        return _grouped(load.steps)
    found: list[Step] = []
    for step in load.steps:
        most = min(RAMP_PIECES, MOST_PIECES // len(load.steps), int(step.seconds))
        number = 1 if step.first == step.last else max(1, most)
        rise = (step.last - step.first) / number
        found += [
            Step(step.first + rise * at, step.first + rise * (at + 1), step.seconds / number) for at in range(number)
        ]
    return tuple(found)


def _grouped(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Recorded rates in RAMP_PIECES parts, each from its lowest to its highest."""
    size = -(-len(steps) // RAMP_PIECES)
    found = []
    for at in range(0, len(steps), size):
        part = steps[at : at + size]
        levels = [level for step in part for level in (step.first, step.last)]
        found.append(Step(min(levels), max(levels), sum(step.seconds for step in part)))
    return tuple(found)


def recorded(body: bytes, name: str, *, poisson: bool, seed: int, count: int) -> Load:
    """A load of rates that were recorded: CSV lines `seconds,rate`, seconds from the beginning; a rate holds until the
    next line's time, the last one as long as the one before it. WrongInput names the line."""
    rows = _rates(body, name)
    if len(rows) < 2:
        raise WrongInput(f"{RATE_FILE}: {name} has {len(rows)} rates; it takes two to tell how long one holds")
    times = [at for _, at, _ in rows]
    spans = [after - at for at, after in pairwise(times)]
    if (low := min(spans)) <= 0:
        raise WrongInput(
            f"{RATE_FILE}: line {rows[spans.index(low) + 1][0]} of {name} is not later than the one before"
        )
    steps = tuple(Step(rate, rate, span) for (_, _, rate), span in zip(rows, [*spans, spans[-1]], strict=True))
    load = Load("open", steps, poisson, seed, count)
    if load.seconds > LONGEST_S:
        raise WrongInput(f"{RATE_FILE}: {name} lasts {load.seconds:.0f} s; at most {LONGEST_S:g} s are possible")
    due = sum(step.first * step.seconds for step in steps)
    if not 1 <= due <= MOST_REQUESTS:
        raise WrongInput(f"{RATE_FILE}: {name} makes {due:.0f} requests; from 1 to {MOST_REQUESTS} are possible")
    return load


def _rates(body: bytes, name: str) -> list[tuple[int, float, float]]:
    """(line, seconds, rate) of each line; a heading may stand first."""
    found: list[tuple[int, float, float]] = []
    for number, line in enumerate(decode(body).splitlines(), 1):
        if not line.strip():
            continue
        cells, where = line.split(","), f"{RATE_FILE}: line {number} of {name}"
        try:
            at, rate = (float(cell) for cell in cells)
        except ValueError:
            if number == 1 and [cell.strip() for cell in cells] == ["seconds", "rate"]:
                continue
            raise WrongInput(f"{where} must be seconds,rate, not {one_line(line, 60)!r}") from None
        if not (0 <= at <= 1e9 and 0 <= rate <= MOST_RATE):
            raise WrongInput(f"{where} needs a rate from 0 to {MOST_RATE:g}, and seconds from 0")
        found.append((number, at, rate))
        if len(found) > MOST_RATES:
            raise WrongInput(f"{RATE_FILE}: {name} has more than {MOST_RATES} rates")
    return found


def callers(load: Load, at: float) -> int:
    """Closed loop: how many requests are to be in flight `at` seconds after the beginning; 0 after the end."""
    for step in load.steps:
        if at < step.seconds:
            return max(1, round(step.first + (step.last - step.first) * at / step.seconds))
        at -= step.seconds
    return 0


def intended(load: Load) -> Iterator[int]:
    """Open loop: each request's time, in nanoseconds from the beginning, ascending; the first constant one at 0.

    The load's integral says how many are due by a time; the n-th leaves where it reaches n, or, for Poisson, the sum of
    n exponential gaps of mean 1 (time rescaled), so that ramps are Poisson too.
    """
    chance = random.Random(load.seed)
    wanted = chance.expovariate(1.0) if load.poisson else 0.0
    sent, start, before = 0, 0.0, 0.0
    for step in load.steps:
        holds = (step.first + step.last) / 2 * step.seconds
        while wanted < before + holds and sent < load.most:
            yield round((start + _when(step, wanted - before)) * NS)
            sent += 1
            wanted += chance.expovariate(1.0) if load.poisson else 1.0
        before += holds
        start += step.seconds


def _when(step: Step, amount: float) -> float:
    """The time at which the integral of the step's level is `amount`."""
    slope = (step.last - step.first) / step.seconds
    root = sqrt(max(0.0, step.first * step.first + 2 * slope * amount))
    return 2 * amount / (step.first + root)
