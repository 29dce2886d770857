"""When requests leave: closed loop by number of callers, open loop by rate, constant or Poisson, in steps and ramps.

In the open loop each request has an intended time that does not depend on the server, and its latency counts from
there: a stall delays all that was due meanwhile, and so it shows. In the closed loop a stalled server is simply asked
less often, and the stall is seen by one request per caller ("coordinated omission").

Pure. Times are seconds or whole nanoseconds from the beginning of the part.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import isfinite, sqrt
from typing import Literal

from msgspec import Struct

from console.core.plan import WrongInput
from console.core.text import one_line

MOST_CALLERS = 1024
MOST_RATE = 50_000.0
LONGEST_S = 3600.0
MOST_REQUESTS = 20_000_000
"""Of one run; a bound that no reasonable run meets."""
MOST_STEPS = 50
RAMP_PIECES = 10
"""Of a ramp, figures are told for so many parts of it, each a second long at least."""
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
    level = load.steps[0].first
    return Load(load.loop, (Step(level, level, seconds),), load.poisson, load.seed + 1) if seconds else None


def pieces(load: Load) -> tuple[Step, ...]:
    """What has figures of its own: the steps, and parts of the ramps; () for one level throughout."""
    if len(load.steps) == 1 and load.steps[0].first == load.steps[0].last:
        return ()
    found: list[Step] = []
    for step in load.steps:
        number = 1 if step.first == step.last else max(1, min(RAMP_PIECES, int(step.seconds)))
        rise = (step.last - step.first) / number
        found += [
            Step(step.first + rise * at, step.first + rise * (at + 1), step.seconds / number) for at in range(number)
        ]
    return tuple(found)


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
