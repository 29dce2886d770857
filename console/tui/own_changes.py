"""What the audit tells of this box, in the words that panes show. Pure; made anew only when the audit was read anew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from console.core import units
from console.core.gap import PLANNED, SECONDS

if TYPE_CHECKING:
    from console.core.plan import Outcome
    from console.tui.desk import Record

LOADS = ("model.load", "model.reload", "model.swap", "batching.set", "batching.keep", "batching.revert")
"""Actions that load one model and measure it (`figures["load_s"]`)."""
GPU = "gpu."
LIVE_ONLY = "live only"
"""How a line of an outcome begins that says so."""
SAME_LOAD = 0.1
"""Share by which two rates may differ for their means to be compared (design 1.1)."""
EventKey = tuple[float, str, str]
"""Identity of an event: wall time, kind, text."""
_ROUTE = re.compile(r"\bover (gRPC|HTTP)\b")


@dataclass(frozen=True)
class OwnChanges:
    """Changes made by gpuconsoles of this user, by what a pane looks for."""

    records: tuple[Record, ...] = ()
    """Newest first."""
    by_id: Mapping[str, Record] = field(default_factory=dict)
    undoable: str = ""
    """Id of the change that `u` takes back; "" = none of mine can be."""
    loads: Mapping[str, Record] = field(default_factory=dict)
    """Model -> its newest load that went well."""
    saved: Record | None = None
    """The newest change after which a container is gone and its specification is kept."""
    settings: Mapping[tuple[str, str], Record] = field(default_factory=dict)
    """(UUID of a card, action) -> the newest change of that setting that went well."""


def own_changes(records: tuple[Record, ...]) -> OwnChanges:
    """All of it from one reading of the audit, newest first."""
    loads: dict[str, Record] = {}
    settings: dict[tuple[str, str], Record] = {}
    undoable = ""
    saved: Record | None = None
    for record in records:
        intent, outcome = record.intent, outcome_of(record)
        if not undoable and record.mine and not record.undo_off and not intent.undoes:
            undoable = intent.id
        if outcome is None or outcome.word not in ("done", "undone"):
            continue
        if saved is None and not record.undone_by and saved_spec(record):
            saved = record
        if intent.action in LOADS and outcome.word == "done" and "load_s" in outcome.figures:
            loads.setdefault(intent.target.name, record)
        if intent.action.startswith(GPU):
            settings.setdefault((intent.target.name, intent.action), record)
    return OwnChanges(records, {one.intent.id: one for one in records}, undoable, loads, saved, settings)


def saved_spec(record: Record) -> str:
    """File of the specification from which the container can be made again; "" = none is kept."""
    outcome = outcome_of(record)
    undo = outcome.undo if outcome is not None else None
    return undo.values.get("saved", "") if undo is not None and undo.action == "container.create" else ""


def outcome_of(record: Record) -> Outcome | None:
    """What came of it; None where no end is known."""
    return None if record.outcome is None else record.outcome.outcome


def headline(record: Record) -> str:
    """What was done, without the host that the whole screen is about: `ranking 2: delay_us 500 → 2000, live only`."""
    host = f" on {record.intent.host}" if record.intent.host else ""
    text = record.intent.title.replace(host, "", 1)
    outcome = outcome_of(record)
    if outcome is None or outcome.word != "done":
        return text if outcome is None else f"{text}: {outcome.word}"
    live = any(line.startswith(LIVE_ONLY) for line in outcome.lines)
    return f"{text}, {LIVE_ONLY}" if live and not record.undone_by else text


def measured(outcome: Outcome) -> str:
    """Its figures: `mean 1.84 → 2.94 ms over 60 s each; reload 1.1 s`; "" where none of these was measured."""
    figures = outcome.figures
    parts = [_means(figures)]
    for name, word in (("load_s", "load"), ("gap_s", "gap"), ("exposure_s", "exposed"), ("start_s", "start")):
        value = figures.get(name)
        plan = figures.get(PLANNED) if name == SECONDS else None
        parts.append("" if value is None else f"{word} {value:.1f} s" + ("" if plan is None else f" (plan {plan:.0f})"))
    return "; ".join(part for part in parts if part)


def _means(figures: Mapping[str, float]) -> str:
    before, after = figures.get("mean_before_ms"), figures.get("mean_after_ms")
    if before is None or after is None:
        return ""
    span = figures.get("watch_s")
    text = f"mean {units.millis(before)} → {units.millis(after)} ms"
    text += "" if span is None else f" over {span:.0f} s each"
    was, now = figures.get("rate_before"), figures.get("rate_after")
    if was is None or now is None or abs(now - was) <= SAME_LOAD * was:
        return text
    return f"{text}, but the load changed: {units.rate(was)} → {units.rate(now)}/s"


def load_words(record: Record, clock: str) -> str:
    """`last 1.1 s   over gRPC   14:01:58 by ops`; `clock` is its time as the screen shows times."""
    outcome = outcome_of(record)
    took = f"last {outcome.figures['load_s']:.1f} s" if outcome is not None else "last"
    found = next((route for line in record.intent.plan if (route := _ROUTE.search(line))), None)
    over = f"   over {found[1]}" if found else ""
    return f"{took}{over}   {clock} by {record.intent.operator.short}"


def setting(changes: OwnChanges, uuid: str | None, action: str, boot_wall: float | None) -> Record | None:
    """The newest change of a card's setting in this boot: a reboot ends them all. None where none is known."""
    record = changes.settings.get((uuid or "", action))
    if record is None or boot_wall is None or record.wall < boot_wall:
        return None
    return record


def left(record: Record, name: str) -> str:
    """The value that it left behind; "" where the audit does not tell."""
    outcome = outcome_of(record)
    return "" if outcome is None else outcome.left.get(name, "")
