"""`gpuconsole predict` and `gpuconsole plan`: look at a model under its own traffic, and tell what other settings
would do.

Both only read: statistics at the beginning and the end of a window, once a second in between for how evenly requests
come.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from console.actions.box import Box, BoxSpec
from console.clients.triton import TritonAddress
from console.core import units
from console.core.duration import seconds
from console.core.encode import to_json
from console.core.model import ModelConfig, ModelStats, SourceError
from console.core.plan import WrongInput
from console.core.text import one_line
from console.do import Looks, drawn
from console.loadgen.measure import Statistics
from console.planning import batching_change, capacity, prediction
from console.planning.batcher import Scheduling
from console.planning.observed import Observed, observe, scheduling_of, together, unfit
from console.planning.predicted import Figure, Prediction
from console.sources.locator import Locator

NOT_HELD = 1
"""Exit code of `plan` where no setting holds."""
SHORTEST_S, LONGEST_S = 2.0, 3600.0
NOT_MODELLED = frozenset(
    {"timeout_action", "allow_timeout_override", "priority_levels", "default_priority", "preserve_ordering",
     "response_cache"}
)  # fmt: skip


class Wish(Struct, frozen=True):
    """What was typed for both commands."""

    model: str
    version: str = ""
    pairs: tuple[str, ...] = ()
    window: str = "30s"
    since_load: bool = False
    rate: float | None = None
    goal_ms: float = 0.0
    headroom: float = capacity.HEADROOM
    instance_gib: float | None = None
    as_json: bool = False


class Look(Struct, frozen=True):
    """A model as it was found."""

    observed: Observed
    config: ModelConfig
    stats: ModelStats


def predict(wish: Wish, spec: BoxSpec, state: Path, looks: Looks) -> int:
    """Look, tell; the exit code. WrongInput for what cannot be."""
    wish = _with_version(wish)
    values = _values(wish.pairs)
    _check_rate(wish.rate)
    look = _looked(wish, spec, state, looks, lambda config: _wanted(config, values))
    now = look.observed.scheduling
    wanted = _wanted(look.config, values)
    told = [prediction.predict(look.observed, one, rate=wish.rate) for one in dict.fromkeys((now, wanted))]
    ignored = sorted(NOT_MODELLED & values.keys())
    if wish.as_json:
        _json({"observed": look.observed, "now": told[0], "wanted": told[-1], "not_modelled": ignored})
    else:
        _say(predict_lines(look.observed, told, wish.pairs, ignored), looks)
    return 0


def plan(wish: Wish, spec: BoxSpec, state: Path, looks: Looks) -> int:
    """Look, search, tell; the exit code. WrongInput for what cannot be."""
    if wish.rate is None:
        raise WrongInput("plan wants --rate, the requests a second that it is for")
    _check_rate(wish.rate)
    if not (isfinite(wish.goal_ms) and wish.goal_ms > 0):
        raise WrongInput(f"--slo-p99-ms must be more than 0, not {wish.goal_ms:g}")
    if not 0 <= wish.headroom < 1:
        raise WrongInput(f"--headroom is a share from 0 to below 1, not {wish.headroom:g}")
    if wish.instance_gib is not None and not 0 < wish.instance_gib < inf:
        raise WrongInput(f"--instance-gib must be more than 0, not {wish.instance_gib:g}")
    look = _looked(wish, spec, state, looks, lambda _: None)
    memory = _memory(wish, look, spec, state)
    found = capacity.plan(look.observed, wish.rate, wish.goal_ms, headroom=wish.headroom, memory=memory)
    if wish.as_json:
        _json({"observed": look.observed, "plan": found, "memory": memory})
    else:
        _say(plan_lines(look.observed, found, memory), looks)
    return 0 if found.best is not None else NOT_HELD


# ------------------------------------------------------------------------------------------------------------- the look


def _with_version(wish: Wish) -> Wish:
    """A first word without `=` is the version."""
    if wish.pairs and "=" not in wish.pairs[0]:
        return replace(wish, version=wish.pairs[0], pairs=wish.pairs[1:])
    return wish


def _values(pairs: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise WrongInput(f"{one_line(pair, 40)!r} is no key=value")
        if name in values:
            raise WrongInput(f"`{one_line(name, 40)}` is given twice; give it once")
        values[name] = value
    return values


def _check_rate(rate: float | None) -> None:
    if rate is not None and not 0 < rate < inf:
        raise WrongInput(f"--rate must be more than 0, not {rate:g}")


def _wanted(config: ModelConfig, values: Mapping[str, str]) -> Scheduling:
    """The settings asked for, by the server's own rules. WrongInput."""
    document = json.loads(config.raw)
    live = batching_change.read(document)
    wanted = batching_change.wanted(live, values)
    facts = batching_change.served(document, {})
    problems = (*batching_change.obstacles(facts, live, wanted), *batching_change.problems(facts, wanted))
    if values and problems:
        raise WrongInput(problems[0].text)
    return scheduling_of(wanted)


def _looked(wish: Wish, spec: BoxSpec, state: Path, looks: Looks, check: Callable[[ModelConfig], object]) -> Look:
    """Statistics over the window; `check` looks at the configuration first, so that wrong input is told at once."""
    window = seconds(wish.window, "--window")
    if not SHORTEST_S <= window <= LONGEST_S:
        raise WrongInput(f"--window must be from {SHORTEST_S:g} to {LONGEST_S:g} s, not {window:g} s")
    box = Box(spec, state)
    try:
        address = _address(box)
    finally:
        box.close()
    statistics = Statistics(address, wish.model, wish.version)
    try:
        config = statistics.config()
        if reason := unfit(config):
            raise WrongInput(f"nothing can be told: {reason}")
        check(config)
        before = _of(statistics.read(), config)
        if wish.since_load and wish.rate is not None:
            return Look(observe(None, before, config), config, before)
        if not wish.as_json:
            text = f"looking at {one_line(wish.model, 80)} {before.version} under its own traffic for {window:g} s"
            _say([text], looks)
        began, counts, last = time.monotonic(), [], before
        while time.monotonic() - began < window:
            time.sleep(min(1.0, max(0.0, began + window - time.monotonic())))
            stats = _of(statistics.read(), config)
            counts.append(stats.success_count - last.success_count)
            last = stats
        span = time.monotonic() - began
        after_config = statistics.config()
    except SourceError as error:
        raise WrongInput(f"the model cannot be looked at: {error.message}") from error
    finally:
        statistics.close()
    if after_config.raw != config.raw:
        raise WrongInput("the model's configuration changed meanwhile; look again")
    found = observe(before, last, config, span, counts)
    if wish.since_load:
        found = together(found, observe(None, last, config))
    return Look(found, config, last)


def _address(box: Box) -> TritonAddress:
    try:
        return box.address()
    except SourceError:
        return Locator(box.settings, lambda: None).address()


def _of(stats: Sequence[ModelStats], config: ModelConfig) -> ModelStats:
    """The version that requests without one go to: the highest."""
    if not stats:
        raise WrongInput(f"the server has no statistics of {one_line(config.name, 80)}")
    return max(stats, key=lambda one: int(one.version) if one.version.isdigit() else -1)


def _memory(wish: Wish, look: Look, spec: BoxSpec, state: Path) -> capacity.Memory:
    """Of one instance by the user or the server; of the card with the least free memory."""
    instance = None
    if wish.instance_gib is not None:
        instance = round(wish.instance_gib * units.GIB)
    elif look.stats.memory_bytes:
        instance = look.stats.memory_bytes // (look.config.instances or 1)
    box = Box(spec, state)
    try:
        cards = box.gpus().gpus
    except SourceError:
        cards = ()
    finally:
        box.close()
    told = [card for card in cards if card.memory_free is not None and card.memory_total is not None]
    card = min(told, key=lambda one: one.memory_free or 0, default=None)
    return capacity.Memory(instance, card.memory_free if card else None, card.memory_total if card else None)


# ---------------------------------------------------------------------------------------------------------- the words


def predict_lines(
    observed: Observed, told: Sequence[Prediction], pairs: Sequence[str], ignored: Sequence[str]
) -> list[str]:
    """What was seen, what the model makes of it, and what it tells of the settings asked for."""
    now, wanted = told[0], told[-1]
    lines = _seen_lines(observed)
    heads = ["seen", "told now", *(["told with " + " ".join(pairs)] if len(told) > 1 else [])]
    lines.append(f"  {'':<14}{heads[0]:>10}  {heads[1]:<16}  {heads[2] if len(told) > 1 else ''}".rstrip())
    runs = sum(one.runs for one in observed.service)
    seen = {
        "runs/s": runs / observed.seconds if observed.seconds else None, "served/s": observed.rate,
        "mean ms": observed.request_ms, "wait ms": observed.wait_ms, "run ms": observed.compute_ms,
        "batch": observed.batch, "busy %": None if observed.busy is None else 100 * observed.busy,
    }  # fmt: skip
    for name, before, after in zip(_NAMES, _figures(now), _figures(wanted), strict=True):
        if name in _RARE and before == after == _figure(Figure(0.0)):
            continue
        value = seen.get(name)
        cells = f"  {name:<14}{units.millis(value) if value is not None else '?':>10}  {before:<16}"
        lines.append((cells + (f"  {after}" if len(told) > 1 else "")).rstrip())
    for head, one in zip(heads[1:], told, strict=False):
        lines += _trust_lines(f"{head}: trust", one)
    lines.append(
        f"  by {wanted.simulated_requests} requests run through Triton's batcher, p99 as the server would see it"
    )
    if ignored:
        lines.append(f"  not modelled, so it changes nothing here: {', '.join(ignored)}")
    return lines


def plan_lines(observed: Observed, found: capacity.CapacityPlan, memory: capacity.Memory) -> list[str]:
    """The plan, and the rule of thumb beside it."""
    lines = _seen_lines(observed)
    lines.append(f"for {found.rate:g}/s with p99 within {found.goal_p99_ms:g} ms and {found.headroom:.0%} to spare")
    chosen = found.best or found.nearest
    if found.best is None:
        lines.append(f"  ✗ {found.reason}")
    if chosen is not None:
        lines.append(f"  {'needs' if found.best else 'nearest':<15}{words(chosen.scheduling)}")
        lines.append(f"  {'told':<15}p99 {_figure(chosen.p99_ms)} ms, mean {_figure(chosen.mean_ms)} ms")
        lines.append(f"  {'':<15}batches of {_figure(chosen.batch)}, can do {units.rate(chosen.capacity)}/s")
        lines += _trust_lines(f"{'trust':<14}", chosen)
    if found.if_shared:
        lines.append(f"  {'if shared':<15}{found.if_shared}")
    if found.memory_unknown:
        lines.append(f"  {'cards':<15}? {found.memory_unknown}")
    else:
        cards = "–" if found.cards is None else f"{found.cards}"
        now = "" if found.fit_now is None else f", {found.fit_now} more fit now"
        lines.append(
            f"  {'cards':<15}{cards}: an instance takes {units.size(memory.instance)}, {found.fit_card} fit a card{now}"
        )
    thumb = found.thumb
    lines.append(
        f"  {'rule of thumb':<15}{prediction.instances_of(thumb.instances)}: {thumb.batch} at once take "
        f"{units.millis(thumb.batch_ms)} ms, so one does {units.rate(thumb.one_per_s)}/s"
    )
    lines.append(f"  {'':<15}(it knows no waiting and no goal)")
    lines.append(f"  {found.tried} settings were looked at")
    return lines


def _trust_lines(head: str, one: Prediction) -> list[str]:
    """How far to believe it, and each reason on a line of its own."""
    return [f"  {head} {one.trust}", *(f"    {reason}" for reason in one.reasons)]


def words(one: Scheduling) -> str:
    """Such as `2 instances, batches up to 8, delay 500 µs`."""
    count = prediction.instances_of(one.instances)
    if not one.dynamic_batching:
        return f"{count}, no dynamic batching"
    return f"{count}, batches up to {one.max_batch_size}, delay {one.max_queue_delay_us} µs"


def _seen_lines(observed: Observed) -> list[str]:
    rate = "rate not known" if observed.rate is None else f"{units.rate(observed.rate)} requests/s"
    how = "since the load" if observed.seconds is None else f"over {observed.seconds:.0f} s"
    bursts = (
        "" if observed.dispersion is None else f", variance of a second's count {observed.dispersion:.1f} x its mean"
    )
    shown = observed.service[:6]
    times = ", ".join(f"{one.size}: {units.millis(one.ms)}" for one in shown)
    more = f" and {len(observed.service) - len(shown)} more" if len(observed.service) > len(shown) else ""
    return [
        f"{observed.model} {observed.version}: {rate} {how}{bursts}; {words(observed.scheduling)}",
        f"  ms by batch   {times}{more}",
        *(f"  ? {text}" for text in observed.missing),
    ]


_RARE = frozenset({"refused/s", "timed out/s"})
_NAMES = ("mean ms", "p50 ms", "p99 ms", "wait ms", "run ms", "batch", "runs/s", "served/s", "busy %", "refused/s",
          "timed out/s")  # fmt: skip


def _figures(one: Prediction) -> list[str]:
    busy = one.busy
    percent = Figure(*(None if part is None else 100 * part for part in (busy.value, busy.error)))
    return [
        _figure(figure)
        for figure in (
            one.mean_ms, one.p50_ms, one.p99_ms, one.wait_ms, one.compute_ms, one.batch, one.executions_per_s,
            one.throughput, percent, one.refused_per_s, one.timed_out_per_s,
        )
    ]  # fmt: skip


def _figure(one: Figure) -> str:
    if one.value is None:
        return "?"
    text = units.millis(one.value)
    return text if not one.error else f"{text} ± {units.millis(one.error)}"


def _json(content: object) -> None:
    sys.stdout.buffer.write(to_json(content) + b"\n")
    sys.stdout.flush()


def _say(lines: Sequence[str], looks: Looks) -> None:
    for line in lines:
        print(drawn(line, looks), flush=True)
