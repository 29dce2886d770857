"""What no statistic tells of a machine, found by making the model's wait at the settings in use the observed one. Pure.

Two things are hidden: what an instance loses between two runs, which lengthens waits, and how often the batcher's
thread is there before an instance that frees, which shortens them where batches are formed ahead (ahead.py). One wait
cannot tell both, so the model without either decides: where the server waits less than it, the second is looked for,
else the first.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from msgspec import Struct

from console.planning.observed import Observed
from console.planning.setting import Job, Machine, Setting, figures, requests_of, run

STREAMS = 8
MOST = 3000
"""Requests of a stream: what one look tells is no finer."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
UNTOLD = (0.0, 0.2, 0.4)
"""Lower bound, middle and upper bound of `wins` where a look cannot tell: on Triton 2.51.0 it was 0.1 to 0.4."""
NEAR_FULL = 0.9
SIGMAS = 2.0


class Calibration(Struct, frozen=True):
    """The machine, with bounds; and how the model does at the settings in use."""

    machine: Machine = Machine(0.0, UNTOLD[1])
    quick: Machine = Machine(0.0, UNTOLD[2])
    """The bound that gives shorter waits."""
    late: Machine = Machine(0.0, UNTOLD[0])
    """The bound that gives longer ones."""
    batch: float | None = None
    """Of the model at the settings in use, items a run; beside the one observed."""
    note: str = ""
    """Why nothing could be compared."""


def calibrate(observed: Observed, *, seed: int = 0) -> Calibration:
    """From one look."""
    nothing = "what threads lose and win between runs is not known: "
    if observed.rate is None or observed.wait_ms is None:
        return Calibration(note=nothing + "no wait was observed")
    now = Setting(observed, observed.scheduling, observed.rate)
    if now.slow:
        return Calibration(note=nothing + "the queue policy or preferred sizes in use hide it")
    if observed.rate >= NEAR_FULL * now.capacity(0.0):
        return Calibration(note=nothing + "the model is near its limit now")
    forms_ahead = now.delay_ms > 0 and not observed.variable
    machines = [Machine(0.0, share) for share in (SHARES if forms_ahead else UNTOLD[1:2])]
    waits, errors, batches = _modelled(observed, now, machines, seed)
    wait = observed.wait_ms
    if forms_ahead and wait < waits[0]:
        falling = np.minimum.accumulate(waits)[::-1]
        shares = [float(np.interp(one, falling, SHARES[::-1])) for one in (wait, wait - errors[0], wait + errors[0])]
        batch = float(np.interp(shares[0], SHARES, batches))
        found, quick, late = (Machine(0.0, share) for share in shares)
        return Calibration(found, quick, late, batch)
    wins = 0.0 if forms_ahead else UNTOLD[1]
    lost, batch = _lost(observed, now, wins, wait, waits[0], seed)
    more, _ = _lost(observed, now, wins, wait + errors[0], waits[0], seed)
    less = max(0.0, 2 * lost - more)
    quick_wins, late_wins = (0.0, 0.0) if forms_ahead else (UNTOLD[2], UNTOLD[0])
    return Calibration(Machine(lost, wins), Machine(less, quick_wins), Machine(more, late_wins), batch)


def _modelled(
    observed: Observed, now: Setting, machines: list[Machine], seed: int
) -> tuple[list[float], list[float], list[float]]:
    """Of each machine: the wait, how far off the wait of so many requests as were observed may be, the batch."""
    jobs = [Job(now, STREAMS, now.rate, now.curve.ms, one, []) for one in machines]
    run(jobs, observed, requests_of(now.rate, STREAMS), seed, most=MOST)
    waits, errors, batches = [], [], []
    for job in jobs:
        whole = figures(job, job.told)
        drawn = [figures(job, [one])["wait"] for one in job.told]
        length = len(job.told[0].latencies)
        waits.append(whole["wait"])
        batches.append(whole["batch"])
        errors.append(SIGMAS * float(np.std(drawn, ddof=1)) * sqrt(length / max(1, observed.requests)))
    return waits, errors, batches


def _lost(observed: Observed, now: Setting, wins: float, wait: float, least: float, seed: int) -> tuple[float, float]:
    """What is lost between runs for the model to wait so long, and its batch then."""
    most = 0.95 * max(0.0, _room(now))
    lost = min(max(0.0, wait - least), most)
    batch = observed.batch or 1.0
    for _ in range(4):  # the wait grows with what is lost, and faster than it: by secants from 0
        (got,), _, (batch,) = _modelled(observed, now, [Machine(lost, wins)], seed)
        if abs(got - wait) <= 0.01 * wait or got <= least:
            break
        lost = min(max(0.0, (wait - least) * lost / (got - least)), most)
    return lost, batch


def _room(now: Setting) -> float:
    """ms that runs could lose before the settings in use could not keep up."""
    held = now.held(now.curve.ms, 0.0)
    best = max(range(1, now.largest + 1), key=lambda n: n / held[n])
    return best * now.scheduling.instances / now.rate * 1e3 - held[best]
