"""What the console asks of `console.actions`: one protocol, so that screens never import an action.

Every method but `close` may take seconds and is called in a thread of its own. Refused, WrongInput and SourceError
carry one plain sentence for the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from console.core.model import Snapshot
    from console.core.plan import AuditRecord, Interrupted, JournalLine, Operator, Outcome, Plan


@dataclass(frozen=True)
class Request:
    """A wish to change something, as it was when the key was pressed."""

    action: str
    """`container.stop`."""
    target: str
    values: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    """What the screen knew of the target (container id, version that serves): said where the fresh look differs."""


@dataclass(frozen=True)
class Following:
    """A change that runs or has ended, as its journal tells it."""

    id: str
    plan: Plan
    operator: Operator
    began: float
    """When it began (Unix seconds)."""
    lines: tuple[JournalLine, ...] = ()
    outcome: Outcome | None = None
    """None while it runs, and for ever where its runner died."""
    alive: bool = True
    """False when nobody works on it any more."""


@dataclass(frozen=True)
class Holder:
    """Who changes the box now."""

    text: str
    """`root from 192.0.2.7 is changing rank since 14:02`."""
    id: str = ""
    """Of the change, where its journal can be read here; "" = it is another user's."""
    who: str = ""
    """`root (pid 123) from 192.0.2.7`."""
    what: str = ""
    """What is changed, by the holder's own word; "" = not said."""


@dataclass(frozen=True)
class Record:
    """Both lines of one change in the audit."""

    intent: AuditRecord
    outcome: AuditRecord | None = None
    undone_by: str = ""
    """Id of the change that took it back."""
    undo_off: str = ""
    """Why it cannot be taken back; "" = it can, as far as the audit tells."""
    mine: bool = True
    """False where another person made it, as behind sudo."""

    @property
    def wall(self) -> float:
        """When it ended, or began where no end is known."""
        return self.intent.wall if self.outcome is None else self.outcome.wall


class Desk(Protocol):
    """Where changes are planned, begun and followed."""

    def ready(self) -> bool:
        """True when the box is known (the session is made); never blocks."""

    def plan(self, request: Request, snapshot: Snapshot) -> Plan:
        """What would be done, from a fresh look; raises Refused, WrongInput, SourceError, OSError."""

    def start(self, plan: Plan) -> str:
        """Begin in a process of its own; the change's id. Raises Refused, OSError."""

    def follow(self, id: str) -> Following | None:  # noqa: A002  (it is one)
        """How far it is; None where its journal cannot be read."""

    def cancel(self, id: str) -> None:  # noqa: A002
        """Ask it to stop and go back."""

    def holder(self) -> Holder | None:
        """Who changes this box now; cheap, asked every few seconds."""

    def records(self) -> tuple[Record, ...]:
        """The audit, newest first."""

    def stamp(self) -> object:
        """Another value whenever the audit was written to; cheap, asked every few seconds."""

    def interrupted(self) -> tuple[Interrupted, ...]:
        """Changes whose runner died and that nobody has finished or undone."""
