"""Secrets taken out of what an action tells: its plan, its progress, its outcome, its record.

Values of secret fields and the headers of the settings are known word for word, so each place where they stand is
masked, whatever stands around them; beyond these, what merely looks secret is masked by `core.secrets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from console.config import Settings
from console.core.plan import Field, Outcome, Plan, Target, UndoSpec
from console.core.secrets import MASK, is_secret_name, mask_text

SHORTEST = 4
"""Characters: a shorter value would mask half of every sentence."""
SHORTEST_PART = 6
"""Of the values in a secret map: most of these are no secrets (`1`, `true`)."""


class Masks:
    """What must not be told of one change."""

    def __init__(self, fields: Iterable[Field], values: Mapping[str, str], settings: Settings) -> None:
        self._secret = frozenset(field.name for field in fields if field.secret)
        words = {word for word in settings.triton.headers.values() if len(word) >= SHORTEST}
        for name in self._secret & values.keys():
            words |= set(_words(values[name]))
        self._words = sorted(words, key=len, reverse=True)

    def text(self, text: str) -> str:
        """One text."""
        for word in self._words:
            text = text.replace(word, MASK)
        return mask_text(text)

    def texts(self, lines: Iterable[str]) -> tuple[str, ...]:
        """Several."""
        return tuple(self.text(line) for line in lines)

    def mapping(self, values: Mapping[str, str]) -> dict[str, str]:
        """Values by name: those of secret fields and of names that look secret are masked whole."""
        return {
            name: MASK if value and (name in self._secret or is_secret_name(name)) else self.text(value)
            for name, value in values.items()
        }

    def target(self, target: Target) -> Target:
        """The target less secrets in what identifies it."""
        return replace(target, identity=self.mapping(target.identity))

    def told(self, plan: Plan) -> Plan:
        """The plan with all of its texts masked, its values untouched: what the runner and the dialogs get."""
        return replace(
            plan,
            title=self.text(plan.title),
            note=self.text(plan.note),
            checks=tuple(replace(one, text=self.text(one.text)) for one in plan.checks),
            ways=tuple(
                replace(
                    one,
                    text=self.text(one.text),
                    clients_see=self.text(one.clients_see),
                    impossible=self.text(one.impossible),
                )
                for one in plan.ways
            ),
            ticks=tuple(replace(one, text=self.text(one.text)) for one in plan.ticks),
            steps=tuple(
                replace(
                    one, text=self.text(one.text), if_it_fails=self.text(one.if_it_fails), calls=self.texts(one.calls)
                )
                for one in plan.steps
            ),
            effects=self.texts(plan.effects),
            difference=self.texts(plan.difference),
            by_hand=self.texts(plan.by_hand),
            undo=self.text(plan.undo),
            refused=self.text(plan.refused),
        )

    def plan(self, plan: Plan) -> Plan:
        """The plan as it may be printed: values and identity masked too."""
        return replace(self.told(plan), values=self.mapping(plan.values), target=self.target(plan.target))

    def outcome(self, outcome: Outcome) -> Outcome:
        """The outcome as it may be printed and audited."""
        undo = outcome.undo
        return replace(
            outcome,
            text=self.text(outcome.text),
            lines=self.texts(outcome.lines),
            undo=undo and replace(undo, values=self.mapping(undo.values), text=self.text(undo.text)),
            left=self.mapping(outcome.left),
            still_going=self.text(outcome.still_going),
        )


def is_masked(spec: UndoSpec) -> bool:
    """True when values of it were masked, so that it cannot be carried out any more."""
    return any(MASK in value for value in spec.values.values())


def _words(value: str) -> Iterable[str]:
    if len(value) >= SHORTEST:
        yield value
    found: list[str] = []
    for part in value.split(","):
        name, equals, word = part.partition("=")
        if equals and name.strip().isidentifier():
            found.append(word)
        elif found:  # a value may hold commas: then it stands whole in what others tell
            yield from (word for word in (found[-1], part) if len(word.strip()) >= SHORTEST_PART)
            found[-1] = f"{found[-1]},{part}"
    yield from (word for word in found if len(word) >= SHORTEST_PART)
