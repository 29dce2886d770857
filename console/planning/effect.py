"""What proposals of batching would come to, by the batcher model (prediction.py). Pure, but takes its time: it is asked
in a process of its own, `Aside().call("console.planning.effect", "effects", ...)`, and only where somebody looks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from console.core import units
from console.core.model import Effect, Helps, ModelRow, Proposal
from console.core.plan import WrongInput
from console.planning import batching_change
from console.planning.observed import observe_window, scheduling_of
from console.planning.predicted import Figure, Prediction
from console.planning.prediction import grid

SET = "batching.set"
WITHIN_S = 3.0
"""Seconds that all proposals of a model may take together."""
NOTHING = Effect("not predicted: no model of it is at hand")


def effects(rows: Sequence[ModelRow], proposals: Sequence[Proposal]) -> tuple[Effect, ...]:
    """One for each proposal, in their order; `rows` are all models as they are now."""
    found: dict[int, Effect] = {}
    for target in dict.fromkeys(one.target for one in proposals if one.action == SET):
        at = [number for number, one in enumerate(proposals) if one.action == SET and one.target == target]
        row = next((one for one in rows if one.name == target and one.state == "READY"), None)
        try:
            found |= zip(at, _predicted(row, [proposals[number] for number in at]), strict=True)
        except WrongInput as error:
            found |= dict.fromkeys(at, Effect(f"not predicted: {error}"))
    return tuple(found.get(number, NOTHING) for number in range(len(proposals)))


def _predicted(row: ModelRow | None, asked: Sequence[Proposal]) -> list[Effect]:
    """Of one model, by the longest window that was watched."""
    flow = row.flow if row is not None else None
    window = None if flow is None else flow.w30 or flow.w10
    if row is None or row.config is None or window is None:
        raise WrongInput("its traffic was not watched long enough")
    observed = observe_window(window, row.config)
    if observed.unfit:
        raise WrongInput(observed.unfit)
    live = batching_change.read(json.loads(row.config.raw))
    settings = [scheduling_of(batching_change.wanted(live, one.values)) for one in asked]
    now, *then = grid(observed, (observed.scheduling, *settings), within_s=WITHIN_S)
    return [_effect(now, one) for one in then]


def _effect(now: Prediction, then: Prediction) -> Effect:
    """Both from the model, under the same arrivals: what it is off by is off in both."""
    parts = [
        _change("mean", now.mean_ms, then.mean_ms, " ms", units.millis),
        _change("p99", now.p99_ms, then.p99_ms, " ms", units.millis),
        _change("batch", now.batch, then.batch, "", units.one),
        _change("busy", _share(now.busy), _share(then.busy), " %", units.whole),
        _change("refused", now.refused_per_s, then.refused_per_s, "/s", units.rate, hide_zero=True),
        _change("timed out", now.timed_out_per_s, then.timed_out_per_s, "/s", units.rate, hide_zero=True),
    ]
    if then.saturated:
        text = f"more would come than it could serve ({units.rate(then.capacity)}/s at most)"
        return Effect(text, "cannot tell" if now.saturated else "no", then.trust, then.reasons)
    if now.saturated:
        parts.insert(0, f"keeps up: {units.rate(now.capacity)} → {units.rate(then.capacity)}/s at most")
    return Effect(", ".join(part for part in parts if part), _helps(now, then), then.trust, then.reasons)


def _helps(now: Prediction, then: Prediction) -> Helps:
    if now.saturated:
        return "yes"
    was, will = now.mean_ms.value, then.mean_ms.value
    if was is None or will is None:
        return "cannot tell"
    off = (then.mean_ms.error or 0.0) + (now.mean_ms.error or 0.0)
    lost = _lost(then) - _lost(now)
    if lost > 0:
        return "no"
    return "yes" if lost < 0 or was - will > off else "no" if will - was > off else "cannot tell"


def _lost(one: Prediction) -> float:
    """Requests a second that get no answer."""
    return round((one.refused_per_s.value or 0.0) + (one.timed_out_per_s.value or 0.0), 2)


def _share(figure: Figure) -> Figure:
    return Figure(
        None if figure.value is None else 100 * figure.value, None if figure.error is None else 100 * figure.error
    )


def _change(
    name: str, now: Figure, then: Figure, unit: str, words: Callable[[float], str], *, hide_zero: bool = False
) -> str:
    if now.value is None or then.value is None or (hide_zero and not round(now.value, 1) and not round(then.value, 1)):
        return ""
    off = "" if then.error is None or words(then.error) == words(0.0) else f" ±{words(then.error)}"
    return f"{name} {words(now.value)} → {words(then.value)}{off}{unit}"
