"""What the server itself tells of one model under its present settings: all that a prediction starts from. Pure.

    observe(before, after, config, seconds)     two answers of /v2/models/stats, `seconds` apart
    observe(None, after, config)                one answer: service times since the load, no rate
    observe_window(window, config)              a Window that the console has already
    together(now, *others)                      `now`, with service times of other looks, as with other instances

Statistics give counts and means: of each batch size the mean time of a run, of all requests the mean wait. They give
no spread, no percentile and no arrival times, and nothing at all of requests turned away at a full queue. What is
missing is said in `missing`, in plain words.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, variance

from msgspec import Struct
from msgspec.structs import replace

from console.core.model import ModelConfig, ModelStats, Window
from console.core.rates import window_between
from console.planning.batcher import Scheduling
from console.planning.batching_change import Batching
from console.planning.service import Seen

FEW_COUNTS = 20
"""Fewer counts than this tell nothing about bursts."""
_LLM = frozenset({"vllm", "tensorrtllm"})


class Observed(Struct, frozen=True):
    """One model version under load. Times in ms, rates a second; None = not known."""

    model: str
    version: str
    scheduling: Scheduling
    """In use meanwhile."""
    service: tuple[Seen, ...]
    """Runs by batch size, and by the number of instances then in use."""
    requests: int
    """Behind the figures."""
    seconds: float | None = None
    rate: float | None = None
    """Requests that came a second, as far as Triton counts them."""
    dispersion: float | None = None
    """Variance of an interval's count as a share of its mean: 1 is Poisson, above comes in bursts. None = unknown."""
    items: float = 1.0
    """Items a request."""
    wait_ms: float | None = None
    compute_ms: float | None = None
    request_ms: float | None = None
    batch: float | None = None
    """Items a run."""
    busy: float | None = None
    variable: bool = False
    """An input has no fixed shape: requests of unlike shapes do not share a batch, and each that comes is looked at."""
    unfit: str = ""
    """Why the batcher model does not hold for this model at all; a sentence."""
    caveats: tuple[str, ...] = ()
    """What the configuration has that the model leaves out."""
    missing: tuple[str, ...] = ()
    """What could not be told."""


def observe(
    before: ModelStats | None,
    after: ModelStats,
    config: ModelConfig,
    seconds: float | None = None,
    counts: Sequence[int] = (),
) -> Observed:
    """From statistics; `counts` are the requests of successive equal intervals, where they were sampled.

    Without `before` or `seconds` the counters since the load are taken, which give no rate. Counters that began anew in
    between give the same, of the part since then.
    """
    zero = ModelStats(after.name, after.version)
    window = None if before is None or seconds is None else window_between(before, after, seconds)
    if window is not None:
        return replace(observe_window(window, config, counts), version=after.version)
    whole = window_between(zero, after, 1.0)
    assert whole is not None  # counters are never below 0
    found = observe_window(whole, config, counts)
    if before is None or seconds is None:
        gone: tuple[str, ...] = (
            "rate: one look gives counters since the load only",
            "instances: all runs since the load are taken as runs of those of now",
        )
    else:
        gone = ("rate: the model was loaded anew within the window",)
    return replace(found, version=after.version, seconds=None, rate=None, busy=None, missing=(*gone, *found.missing))


def observe_window(window: Window, config: ModelConfig, counts: Sequence[int] = ()) -> Observed:
    """From what happened within a window."""
    instances = config.instances
    missing = []
    requests = window.success
    if not window.batches:
        missing.append("service times: nothing ran")
    dispersion = _dispersion(counts)
    if dispersion is None:
        missing.append("bursts: Poisson arrivals are assumed")
    if instances is None and not config.steps:
        missing.append("instances: the configuration names none, one is assumed")
    count = instances or 1
    return Observed(
        model=config.name,
        version=config.version,
        scheduling=scheduling(config),
        service=tuple(Seen(one.size, one.runs, one.ms_per_run, count) for one in window.batches if one.ms_per_run > 0),
        requests=requests,
        seconds=window.span,
        rate=(window.success + window.failed) / window.span,
        dispersion=dispersion,
        items=window.inferences / (requests - window.cache_hits) if requests > window.cache_hits else 1.0,
        wait_ms=window.queue_ms,
        compute_ms=window.compute_ms,
        request_ms=window.request_ms,
        batch=window.mean_batch,
        busy=window.busy_seconds / (window.span * count),
        variable=any(size < 0 for tensor in config.inputs for size in tensor.shape),
        unfit=unfit(config),
        caveats=_caveats(config, window),
        missing=tuple(missing),
    )


def together(now: Observed, *others: Observed) -> Observed:
    """`now`, with the service times of other looks too. Of equal size and instances the one with more runs counts."""
    kept: dict[tuple[int, int], Seen] = {}
    for seen in (one for look in (now, *others) for one in look.service):
        old = kept.get((seen.size, seen.instances))
        if old is None or seen.runs > old.runs:
            kept[seen.size, seen.instances] = seen
    return replace(now, service=tuple(sorted(kept.values(), key=lambda one: (one.instances, one.size))))


def scheduling(config: ModelConfig) -> Scheduling:
    """The settings of a served configuration. The largest batch alone as preferred size is what the server adds."""
    preferred = () if config.preferred == (config.max_batch_size,) else config.preferred
    return Scheduling(
        max_batch_size=config.max_batch_size,
        instances=config.instances or 1,
        dynamic_batching=config.dynamic_batching,
        max_queue_delay_us=config.delay_us,
        preferred_batch_sizes=preferred,
        max_queue_size=config.queue.max_queue_size,
        queue_timeout_us=config.queue.timeout_us,
    )


def scheduling_of(batching: Batching) -> Scheduling:
    """The settings of a Tune form as the model takes them."""
    own = batching.preferred == (batching.max_batch_size,)
    return Scheduling(
        max_batch_size=batching.max_batch_size,
        instances=max(1, batching.total_instances),
        dynamic_batching=batching.dynamic_batching,
        max_queue_delay_us=batching.delay_us,
        preferred_batch_sizes=() if own else batching.preferred,
        max_queue_size=batching.max_queue_size,
        queue_timeout_us=batching.timeout_us,
    )


def _dispersion(counts: Sequence[int]) -> float | None:
    if len(counts) < FEW_COUNTS or not any(counts):
        return None
    return variance(counts) / fmean(counts)


def unfit(config: ModelConfig) -> str:
    """Why the batcher model says nothing of such a model; a sentence, or ""."""
    if config.steps:
        return f"{config.name} is an ensemble: its steps wait, each in its own queue; look at those"
    if config.backend in _LLM:
        return f"{config.name} runs on {config.backend}, which batches by itself; Triton's batcher says nothing of it"
    if config.sequence_batching:
        return f"{config.name} batches sequences, whose requests wait for each other"
    if config.decoupled:
        return f"{config.name} is decoupled: Triton's times end before its answers do"
    return ""


def _caveats(config: ModelConfig, window: Window) -> tuple[str, ...]:
    found = []
    if config.priority_levels:
        found.append("priorities are not modelled: all requests are taken as equal")
    if config.rate_limited:
        found.append("the rate limiter is not modelled")
    if window.cache_hits:
        found.append("answers from the response cache are not modelled")
    if window.failed > 0.01 * (window.success + window.failed):
        found.append("more than 1 % of the requests failed, and how long those took is not known")
    if window.crosses_reset:
        found.append("the model was loaded anew within the window")
    return tuple(found)
