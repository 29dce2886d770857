"""What other settings of a model's batcher would do, from what the server itself reports. Pure, but takes its time.

    predict(observed, scheduling)                    one setting, in about a second
    grid(observed, settings, within_s=5)             many, under the same arrivals; run it in a process of its own:
    Aside().call("console.planning.prediction", "grid", observed, settings)        (console/clients/aside.py)

`observed` is from observed.py. Arrivals of the observed rate are drawn, and each setting is run under them with the
measured service times (service.py), by the batcher as Triton really goes about it (ahead.py), on a machine that is
calibrated to the wait that the server told (calibration.py). Each figure has an uncertainty of about two standard
errors: from the differences between streams of arrivals, and from what the rate, the service times and the
calibration may be off. It holds where the model holds: `trust` and its reasons say where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.core.text import one_line
from console.planning import lanes
from console.planning.batcher import Scheduling
from console.planning.calibration import Calibration, calibrate
from console.planning.observed import Observed
from console.planning.predicted import UNKNOWN, Figure, Prediction, Trust
from console.planning.service import Curve
from console.planning.setting import Job, Setting, figures, run

STREAMS_ALONE, STREAMS_OF_GRID = 24, 8
BOUND_SHARE = 8
"""One of so many streams is run again with rate, service times and machine at their bounds, and with shared cards."""
SLOW_REQUESTS = 400_000
"""Of all settings together that the fast way cannot do (queue policies, preferred sizes)."""
FEWEST_SLOW = 800
CHUNK = 100
"""Settings at a time: what they did is kept until their figures are taken."""
UNSTEADY = 0.04
"""Share by which run times differ between a look and later, whatever the look's own scatter. Of 24 settings measured on
a busy machine of two cores up to a quarter of an hour after their look, 3 mean latencies were within the uncertainty
without it, and 23 with it."""
FEW_REQUESTS, TOO_FEW_REQUESTS = 500, 50
NEAR_FULL = 0.9
OUTSIDE = 0.1
"""Share of requests in batches of sizes that were not seen, from which that is said."""
OFF, FAR_OFF = 0.1, 0.25
"""By so much the model may miss the batch size of the settings in use."""


def predict(observed: Observed, scheduling: Scheduling, *, rate: float | None = None, seed: int = 0) -> Prediction:
    """One setting; under `rate` requests a second where that is given. WrongInput where nothing can be told."""
    return _predicted(observed, (scheduling,), rate, STREAMS_ALONE, seed, None)[0]


def grid(
    observed: Observed,
    settings: Sequence[Scheduling],
    *,
    rate: float | None = None,
    seed: int = 0,
    within_s: float | None = None,
) -> tuple[Prediction, ...]:
    """All settings under the same arrivals, in their order. Within about `within_s` seconds: then with less traffic."""
    return _predicted(observed, settings, rate, STREAMS_OF_GRID, seed, within_s)


def capacity(observed: Observed, scheduling: Scheduling, lost_ms: float = 0.0) -> float:
    """Requests a second that a setting can serve at most."""
    return Setting(observed, scheduling, 1.0).capacity(lost_ms)


# ----------------------------------------------------------------------------------------------------------- all of it


def _predicted(
    observed: Observed,
    settings: Sequence[Scheduling],
    rate: float | None,
    streams: int,
    seed: int,
    within_s: float | None,
) -> tuple[Prediction, ...]:
    _require(observed, rate)
    wanted = rate if rate is not None else observed.rate
    assert wanted is not None  # as _require says
    off = 0.0 if rate is not None else min(0.9, 2.0 / sqrt(max(1, observed.requests)))
    calibration = calibrate(observed, seed=seed + 1)
    made = [Setting(observed, one, wanted) for one in settings]
    slow = sum(1 for one in made if one.slow)
    each = max(FEWEST_SLOW, SLOW_REQUESTS // max(1, slow * (streams + 2 * streams // BOUND_SHARE)))
    found: list[Prediction] = []
    for first in range(0, len(made), CHUNK):
        some = [_Jobs(one, calibration, streams, off) for one in made[first : first + CHUNK]]
        left = None if within_s is None else within_s * len(some) / len(made)
        run([job for own in some for job in own.all()], observed, each, seed, left)
        found += [_prediction(observed, own, calibration) for own in some]
    return tuple(found)


def _require(observed: Observed, rate: float | None) -> None:
    name = one_line(observed.model, 80)
    if observed.unfit:
        raise WrongInput(f"nothing can be predicted: {observed.unfit}")
    if not observed.service:
        raise WrongInput(f"nothing ran on {name}, so no service time is known; send it a load meanwhile")
    if rate is None and not observed.rate:
        raise WrongInput(f"no rate is known for {name}; give one")
    if rate is not None and not 0 < rate < inf:
        raise WrongInput(f"the rate must be above 0, not {rate:g}")


class _Jobs:
    """One setting: as seen, with all that is uncertain at its bounds, with instances that share the card wholly."""

    def __init__(self, setting: Setting, calibration: Calibration, streams: int, off: float) -> None:
        times, rate, few = setting.curve, setting.rate, streams // BOUND_SHARE
        self.setting = setting
        self.few = few
        main = Job(setting, streams, rate, times.ms, calibration.machine, [])
        self.main = main if main.keeps_up or setting.has_policy else None
        """None where more comes than can be served."""
        low = [one * (1 - UNSTEADY) for one in times.low]
        high = [one * (1 + UNSTEADY) for one in times.high]
        bounds = (
            Job(setting, few, rate * (1 - off), low, calibration.quick, []),
            Job(setting, few, rate * (1 + off), high, calibration.late, []),
        )
        able = self.main is not None and (setting.has_policy or all(one.keeps_up for one in bounds))
        self.bounds = bounds if able else ()
        self.could_share = not setting.growth.known and setting.growth.most > 1
        grown = [one * setting.growth.most for one in times.ms]
        shared = Job(setting, few, rate, grown, calibration.machine, [])
        self.shared = shared if self.main is not None and self.could_share and shared.keeps_up else None

    def all(self) -> list[Job]:
        return [one for one in (self.main, *self.bounds, self.shared) if one is not None]


def _prediction(observed: Observed, jobs: _Jobs, calibration: Calibration) -> Prediction:
    setting, main = jobs.setting, jobs.main
    most = setting.capacity(calibration.machine.lost_ms)
    whole = {} if main is None else figures(main, main.told)
    if main is None or not whole:
        return _saturated(observed, setting, most)
    singles = [one for one in (figures(main, [told]) for told in main.told) if one]
    start = figures(main, main.told[: jobs.few])
    others = [one for one in (figures(job, job.told) for job in jobs.bounds) if one]

    def figure(name: str) -> Figure:
        drawn = [one[name] for one in singles]
        chance = 2 * float(np.std(drawn, ddof=1)) / sqrt(len(drawn)) if len(drawn) > 1 else 0.0
        known = max((abs(one[name] - start[name]) for one in others), default=0.0)
        return Figure(whole[name], sqrt(chance**2 + known**2) if len(others) == 2 else None)

    after = 0.0
    if observed.request_ms is not None and observed.wait_ms is not None and observed.compute_ms is not None:
        after = max(0.0, observed.request_ms - observed.wait_ms - observed.compute_ms)

    def later(found: Figure) -> Figure:
        return found if found.value is None else replace(found, value=found.value + after)

    shared = None
    if jobs.could_share:
        shared = inf if jobs.shared is None else figures(jobs.shared, jobs.shared.told)["p99"]
    requests = sum(len(one.latencies) for one in main.told)
    trust, reasons = _trust(observed, setting, whole, main.told, calibration, bounded=bool(others), shared=shared)
    return Prediction(
        setting.scheduling, setting.rate, most,
        later(figure("mean")), figure("wait"), figure("compute"), later(figure("p50")), later(figure("p99")),
        figure("batch"), figure("executions"), figure("throughput"), figure("busy"), figure("refused"),
        figure("expired"), trust, reasons, shared, requests, requests / setting.rate,
    )  # fmt: skip


def _saturated(observed: Observed, setting: Setting, most: float) -> Prediction:
    text = f"saturated: {setting.rate:.3g}/s come and {most:.3g}/s can be served, so the queue grows without end"
    full = Figure(float(setting.largest * setting.items))
    runs = most / setting.largest
    return Prediction(
        setting.scheduling, setting.rate, most, UNKNOWN, UNKNOWN, Figure(setting.curve.ms[-1]), UNKNOWN, UNKNOWN,
        full, Figure(runs), Figure(most), Figure(1.0), Figure(0.0), Figure(0.0), "poor",
        (text, *observed.caveats), None, 0, 0.0,
    )  # fmt: skip


def _trust(
    observed: Observed,
    setting: Setting,
    whole: dict[str, float],
    told: Sequence[lanes.Told],
    calibration: Calibration,
    *,
    bounded: bool,
    shared: float | None,
) -> tuple[Trust, tuple[str, ...]]:
    """How far to believe it, and why not further."""
    poor, fair = list(observed.caveats), []
    times: Curve = setting.curve
    if not bounded:
        poor.append("near saturation: with the rate or the service times at their bounds it could not keep up")
    elif whole["busy"] > NEAR_FULL:
        fair.append(f"busy {whole['busy']:.0%}: small errors of rate and service times count many times")
    if whole["refused"] > 0:
        fair.append(
            "a full queue leaves instances idle for up to 0.5 s at a time: how often is chance, and so are these"
        )
    if whole["expired"] > 0:
        fair.append("time-outs fire late and unevenly: by how many is rough")
    if observed.variable and setting.largest > 1:
        fair.append("its inputs vary in shape: requests of unlike shapes share no batch, which is not modelled")
    unseen = _outside(setting, told, times)
    if times.sizes == 1 and setting.largest > 1 and whole["batch"] > 1.1 * times.smallest:
        poor.append(f"only batches of {times.smallest} were seen: what larger ones take is a guess")
    elif times.sizes == 2 and unseen > OUTSIDE:
        fair.append("only two batch sizes were seen")
    if unseen > OUTSIDE:
        text = f"{unseen:.0%} of the requests would be in batches above {times.largest}, the largest seen"
        (poor if whole["batch"] > 2 * times.largest else fair).append(text)
    if observed.requests < FEW_REQUESTS:
        text = f"only {observed.requests} requests were observed"
        (poor if observed.requests < TOO_FEW_REQUESTS else fair).append(text)
    if abs(observed.items - setting.items) > 0.05 * setting.items:
        poor.append(f"requests are of {observed.items:.2g} items in the mean, and of unlike sizes")
    if not setting.growth.known:
        count, under = setting.scheduling.instances, setting.growth.seen_under
        text = f"service times were seen with {instances_of(under)} only, not with {instances_of(count)}"
        if shared is not None:
            text += "; if they shared the card wholly " + (
                "it could not keep up" if shared == inf else f"p99 would be {shared:.3g} ms"
            )
        fair.append(text)
    if calibration.batch is not None and observed.batch:
        off = abs(calibration.batch / observed.batch - 1)
        if off > OFF:
            text = f"at the settings in use it gives batches of {calibration.batch:.2f}, seen are {observed.batch:.2f}"
            (poor if off > FAR_OFF else fair).append(text)
    if calibration.note:
        fair.append(calibration.note)
    level: Trust = "poor" if poor else "fair" if fair else "good"
    return level, (*poor, *fair)


def instances_of(count: int) -> str:
    """`1 instance`, `2 instances`."""
    return f"{count} instance" + ("s" if count != 1 else "")


def _outside(setting: Setting, told: Sequence[lanes.Told], times: Curve) -> float:
    """Share of requests in batches larger than any seen."""
    inside = total = 0.0
    for one in told:
        numbers = np.arange(len(one.sizes))
        total += float(one.sizes @ numbers)
        kept = numbers * setting.items <= times.largest
        inside += float(one.sizes[kept] @ numbers[kept])
    return 1 - inside / total if total else 0.0
