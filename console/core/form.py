"""What a form knows: the fields of an action with what is so now, and what the values typed into it would mean.

Made in `console.actions` from a fresh look at the box, shown by the tui, which types and decides nothing. Plain text
only, secrets masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from console.core.model import Sign
from console.core.plan import Field

About = Literal["container", "unit", "gpu"]
"""What a form is for: the container as it is (or a new one where none is), its systemd unit, one card's settings."""
NONE = "–"


class Present(Struct, frozen=True):
    """One field with what is so now. Its name is unique in the form."""

    field: Field
    label: str
    start: str = ""
    """The present value in the form in which it is typed; "" = what is typed is added to what is there."""
    live: str = NONE
    """The present value as a person reads it."""
    off: str = ""
    """Why it is only shown; "" = it can be changed."""


class Look(Struct, frozen=True):
    """A form as it is opened."""

    action: str
    """`container.recreate`: what a change asks for; of a form with several actions the name they share."""
    target: str
    title: str
    rows: tuple[Present, ...]
    needs_change: bool = True
    """False where the plan makes sense though no field was changed."""
    told: tuple[str, ...] = ()
    """What has to be known before anything is typed, a sentence each."""


class Wish(Struct, frozen=True):
    """A plan to ask for."""

    action: str
    target: str
    values: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """The form's fields that it is about."""
    identity: Mapping[str, str] = field(default_factory=dict)


class Remark(Struct, frozen=True):
    """A sentence beside a field; `fail`: the value cannot be, and nothing is asked for."""

    name: str
    sign: Sign
    text: str


class Judged(Struct, frozen=True):
    """What the values typed so far mean."""

    changed: frozenset[str] = frozenset()
    """Names of the fields whose value differs from what is so now."""
    remarks: tuple[Remark, ...] = ()
    wishes: tuple[Wish, ...] = ()
    """What `A` asks for; several where each field is a change of its own. Empty while a value cannot be."""
    lines: tuple[str, ...] = ()
    """What it would come to: a difference (`- `, `+ ` and `  ` begin its lines), commands, headings in capitals."""
