"""Why: what stands out on this box, as verdicts with their proof (screens.md section 3).

Rules stand in the files of this folder, their thresholds and sentences in verdicts.toml. This file asks them all, keeps
what appears and goes steady, folds consequences under their causes and puts the rest in order. Pure but for its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from console.advisors.figures import Figures
from console.advisors.memory import Memory
from console.advisors.proposal import proposers_of
from console.advisors.rule import Look, rules_of, verdict
from console.advisors.table import SIGN_ORDER, Fold, table
from console.core.history import History
from console.core.model import Asked, ModelRow, Snapshot, Verdict
from console.core.registry import Found, discover

NO_ANSWERS: Mapping[str, Asked] = {}
Key = tuple[str, str | None, str]
"""Id, model, and what tells it from others of that id."""


class _Held:
    """A verdict that was seen: how often in a row, how often missed since, and since when."""

    __slots__ = ("hits", "last", "misses", "shown", "since_mono", "since_wall")

    def __init__(self, since_wall: float, since_mono: float, last: Verdict) -> None:
        self.since_wall = since_wall
        self.since_mono = since_mono
        self.last = last
        self.hits = 0
        self.misses = 0
        self.shown = False


class Why:
    """Asked every five seconds. `hold=False` for one look: what is true now is said at once."""

    def __init__(self, *, hold: bool = True, found: Found | None = None) -> None:
        self._table = table()
        self._hold = hold
        self._memory = Memory()
        self._held: dict[Key, _Held] = {}
        self._found = found or discover("console.advisors")
        rules = {one.id: one for one in rules_of(self._found.modules)}
        order = self._table.evaluation.flow_order
        self._flow = tuple((id_, rules[id_].flow) for id_ in order if id_ in rules and rules[id_].flow)
        self._rules = tuple(one for one in rules.values() if one.look)
        self._flow_ids = frozenset(order)
        self._proposers = proposers_of(self._found.modules)

    def evaluate(
        self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked] = NO_ANSWERS
    ) -> tuple[Verdict, ...]:
        """Verdicts now, in the order of the screen: problems by sign and age, notes, then what cannot be told.

        `asked` holds the newest answer by model name. Consequences stand in their cause, not beside it.
        """
        self._memory.learn(snapshot)
        look = Look(snapshot, history, self._memory, self._table, asked)
        now = [*self._box(look), *self._models(look), *self._broken(look)]
        kept = self._keep(now, snapshot) if self._hold else _dated(now, snapshot)
        return ordered(fold(kept, self._table.folds, snapshot.models))

    def _box(self, look: Look) -> Iterator[Verdict]:
        for one in self._rules:
            if one.look is not None:
                yield from (self._with_proposals(look, found, None) for found in one.look(look))

    def _models(self, look: Look) -> Iterator[Verdict]:
        few: list[Verdict] = []
        for figures in look.active:
            found = self._judge(look, figures)
            if found is None:
                continue
            if found.id == "V34":
                few.append(found)
            else:
                yield found
        yield from few if len(few) <= self._table.evaluation.listed else [_together(look, few)]

    def _judge(self, look: Look, figures: Figures) -> Verdict | None:
        """The first flow verdict that matches, with the names of those looked at before it."""
        passed: list[str] = []
        for id_, flow in self._flow:
            found = flow(look, figures) if flow else None
            if found is not None:
                return self._with_proposals(look, msgspec.structs.replace(found, not_so=tuple(passed)), figures)
            short = self._table.entries[id_].short
            if short and flow:
                passed.append(short)
        return None

    def _with_proposals(self, look: Look, found: Verdict, figures: Figures | None) -> Verdict:
        """What may help stands with what it helps against."""
        proposers = self._proposers.get(found.id, ())
        proposals = tuple(one for proposer in proposers for one in proposer(look, found, figures))
        return msgspec.structs.replace(found, proposals=proposals) if proposals else found

    def _broken(self, look: Look) -> Iterator[Verdict]:
        for failure in self._found.failures:
            title = look.entry("V39").say("advisor", module=failure.module, error=failure.message)
            yield verdict(look, "V39", title)

    def _keep(self, now: Sequence[Verdict], snapshot: Snapshot) -> list[Verdict]:
        by = self._table.evaluation
        seen: set[Key] = set()
        for one in now:
            key = _key(one)
            if key in seen:
                continue
            seen.add(key)
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held(snapshot.wall, snapshot.mono, one)
            held.hits, held.misses, held.last = held.hits + 1, 0, one
            held.shown = held.shown or held.hits >= by.appear_after or one.id in by.at_once
        for key, held in list(self._held.items()):
            if key not in seen:
                held.misses += 1
                held.hits = 0
                if not held.shown or held.misses >= by.go_after:
                    del self._held[key]
        self._one_flow_each(seen)
        return [_since(held.last, held.since_wall, held.since_mono) for held in self._held.values() if held.shown]

    def _one_flow_each(self, seen: set[Key]) -> None:
        """Flow verdicts of a model exclude each other: one that is shown anew ends the one that lingers."""
        fresh = {key[1:] for key in seen if key[0] in self._flow_ids and self._held[key].shown}
        for key in list(self._held):
            if key[0] in self._flow_ids and key[1:] in fresh and key not in seen:
                del self._held[key]


def _together(look: Look, verdicts: Sequence[Verdict]) -> Verdict:
    names = [one.model or "" for one in verdicts]
    listed = look.table.evaluation.listed
    text = ", ".join(names[:listed]) + (" …" if len(names) > listed else "")
    title = look.entry("V34").say("many", n=len(names), names=text)
    return verdict(look, "V34", title, subject="server", source="/v2/models/stats")


def _key(one: Verdict) -> Key:
    """Identity of a verdict while its figures change. Those about no model differ by their subject and first words."""
    if one.model is not None and one.id != "V39":
        return one.id, one.model, one.version or ""
    if one.id in ("V05", "V06", "V07", "V08", "V09", "V39"):
        return one.id, one.model, " ".join(one.title.split()[:4])
    return one.id, one.model, one.subject


def _dated(now: Sequence[Verdict], snapshot: Snapshot) -> list[Verdict]:
    return [_since(one, snapshot.wall, snapshot.mono) for one in {_key(one): one for one in reversed(now)}.values()]


def _since(one: Verdict, wall: float, mono: float) -> Verdict:
    """With the moment since when it is so: the one that is known, else when it was first seen."""
    if one.since_wall is not None:
        return one
    return msgspec.structs.replace(one, since_wall=wall, since_mono=mono)


def ordered(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """First by sign (✗ ▲ ● ? –), then by age, the oldest first."""
    return tuple(sorted(verdicts, key=lambda one: (SIGN_ORDER[one.sign], one.since_wall or 0.0, one.id, one.title)))


def fold(verdicts: Sequence[Verdict], folds: Sequence[Fold], rows: Sequence[ModelRow]) -> list[Verdict]:
    """Consequences put under their causes as sentences; a cause that is itself folded takes its own along."""
    causes: dict[int, int] = {}
    steps = {row.name: {step.model for step in row.config.steps} for row in rows if row.config and row.config.steps}
    by_id: dict[str, list[int]] = {}
    for at, one in enumerate(verdicts):
        by_id.setdefault(one.id, []).append(at)
    # Only what a rule names is compared: each with each took 0.4 s for a thousand models with traffic.
    possible = {
        id_: sorted(
            c for cause in {c for rule in folds if id_ in rule.of for c in rule.causes} for c in by_id.get(cause, ())
        )
        for id_ in by_id
    }
    for at, one in enumerate(verdicts):
        for c in possible[one.id]:
            # One that stands under this one already cannot be its cause too: a circle would hide them all.
            if c != at and _is_cause(verdicts[c], one, folds, steps) and _top(causes, c) != at:
                causes[at] = c
                break
    under: dict[int, list[str]] = {}
    for at in causes:
        under.setdefault(_top(causes, at), []).append(verdicts[at].title)
    return [
        msgspec.structs.replace(one, consequences=(*one.consequences, *under[at])) if at in under else one
        for at, one in enumerate(verdicts)
        if at not in causes
    ]


def _top(causes: Mapping[int, int], at: int) -> int:
    while at in causes:
        at = causes[at]
    return at


def _is_cause(cause: Verdict, one: Verdict, folds: Sequence[Fold], steps: Mapping[str, set[str]]) -> bool:
    for rule in folds:
        if one.id not in rule.of or cause.id not in rule.causes:
            continue
        if rule.same == "box":
            return True
        if rule.same == "model" and cause.model is not None and cause.model == one.model:
            return True
        if rule.same == "step" and cause.model in steps.get(one.model or "", ()):
            return True
    return False
