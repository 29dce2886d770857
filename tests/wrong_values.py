"""Wrong values for the fields of actions, by what is wrong with them: shared by forms and by `gpuconsole do`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from console.actions import registry
from console.actions.base import Action, Planner
from console.actions.values import LONGEST
from console.core.plan import Field

SECRET = "hunter2hunter2"
NOT_TEXT = f"{SECRET}\x07\x1b[31m"


@cache
def actions() -> tuple[type[Action], ...]:
    """Every action that takes values of its own."""
    found = registry.find()
    assert not found.failures, found.failures
    return tuple(type(one) for one in found.by_name.values() if one.FIELDS and not isinstance(one, Planner))


def wrong(field: Field) -> Iterator[str]:
    """Values that cannot be, whatever else is so: by kind, outside its limits, no text."""
    yield NOT_TEXT
    if field.kind == "int":
        yield from (SECRET, "1.5", "1e3", "٣", "9" * 400)
        if field.low is not None:
            yield str(field.low - 1)
        if field.high is not None:
            yield str(field.high + 1)
    if field.kind == "bool":
        yield from ("maybe", "2")
    if field.kind == "choice":
        yield from (SECRET, "[/x]")
    if field.kind == "map":
        yield from (SECRET, "=1", f"a=1,{SECRET}")


def too_long() -> str:
    """More than any value may have."""
    return "x" * (LONGEST + 1)


def every_wrong_value() -> list[tuple[type[Action], Field, str]]:
    """(action, field, value) for all of them."""
    return [(action, field, value) for action in actions() for field in action.FIELDS for value in wrong(field)]
