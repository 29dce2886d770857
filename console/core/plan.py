"""The nouns of change: what would be done to the box, what is being done, and what came of it.

One path for every change: an `Action` makes a `Plan`, a screen or `do` shows it, a person says yes, the detached runner
checks again and works through its phases with a `Journal`, and an `Outcome` is written to the audit. Everything here is
plain data that goes to disk as JSON. Secrets are masked in all text of a Plan; `values` may hold them, and are masked
by the names of `Field.secret` wherever they are printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from console.core.model import Sign

Danger = Literal["safe", "caution", "danger"]
"""safe: nothing stops serving. caution: it may be felt (a reload, both copies in memory). danger: a gap in service, or
something that cannot be undone; these want the target's name typed."""


UNAUDITED = "unaudited"
"""The value of every action that lets it go on where no audit record can be written."""


class Refused(Exception):  # noqa: N818 (a refusal is an answer, not a fault)
    """The change is not made: one plain sentence that says what, why and what to do. `do` exits with 77."""


class WrongInput(Exception):  # noqa: N818 (said to the person who typed it)
    """A value or a target that cannot be: one plain sentence. `do` exits with 64, a form shows it beside the field."""


class Field(Struct, frozen=True):
    """One value that an action takes: `key=value` of `do`, a row of a form."""

    name: str
    help: str
    kind: Literal["text", "int", "bool", "choice", "list", "map"] = "text"
    """list: values with commas between. map: name=value with commas between."""
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    unit: str = ""
    secret: bool = False


class Target(Struct, frozen=True):
    """What is changed, as it was when the key was pressed. Checked again just before anything is done."""

    kind: Literal["container", "model", "gpu", "image", "server", "unit", "action", "check"]
    name: str
    """What a person types to confirm."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """What must still hold: container id and start, model version and state, GPU UUID ..."""


class Check(Struct, frozen=True):
    """One thing looked at for the plan; `fail` makes the plan impossible."""

    sign: Sign
    text: str


class Way(Struct, frozen=True):
    """One of several ways to do it; choosing another one is planning again with `values[way]` = its id."""

    id: str
    text: str
    clients_see: str
    gap: str
    """`0 s`, `≈ 38 s (load took 31 s)`, `not known`."""
    impossible: str = ""
    """Why it cannot be chosen; "" = it can."""


class Tick(Struct, frozen=True):
    """A box to tick in the plan's dialog; ticking is planning again with `values[name]` = on or off."""

    name: str
    text: str
    on: bool
    value: str = "true"
    """What `values[name]` becomes when it is ticked."""


class Step(Struct, frozen=True):
    """One step of the plan, in the words that progress uses too."""

    phase: str
    """The action's name for it (`Action.PHASES`)."""
    text: str
    if_it_fails: str = ""
    calls: tuple[str, ...] = ()
    """The API calls, as in `POST /v2/repository/models/rank/load`."""


class Plan(Struct, frozen=True):
    """What will be done, in exact words, before it is done."""

    action: str
    """`model.swap`."""
    target: Target
    values: Mapping[str, str]
    """All values, given and default, by `Field.name`."""
    title: str
    """`Swap rank 1 → 2 on infer-01, container triton`."""
    yes: str
    """The word on the button: `Swap`."""
    danger: Danger
    note: str = ""
    """Beside the title: `a gap`, `reload`."""
    checks: tuple[Check, ...] = ()
    ways: tuple[Way, ...] = ()
    way: str = ""
    ticks: tuple[Tick, ...] = ()
    steps: tuple[Step, ...] = ()
    effects: tuple[str, ...] = ()
    """What happens to requests in flight, how long it takes, what is lost: a line each."""
    difference: tuple[str, ...] = ()
    """Lines of a text that changes: `  `, `- ` and `+ ` begin them."""
    by_hand: tuple[str, ...] = ()
    """Commands that a person could type instead."""
    undo: str = ""
    """How it can be undone, or that and why it cannot."""
    limit: float = 60.0
    """Seconds after which waiting ends (the server's work may go on; that is said)."""
    gap_s: float | None = 0.0
    """Seconds for which something that serves will not; None = not known."""
    refused: str = ""
    """Why it cannot be done at all; "" = it can."""
    wall: float = 0.0
    """When the checks were made."""
    how: Literal["run", "finish", "undo", "dismiss"] = "run"
    """Which of the action's deeds: all but `run` deal with an interrupted one (`resolves`)."""
    resolves: str = ""
    """The id of the interrupted change that this one finishes, undoes or only takes note of."""
    undoes: str = ""
    """The id of the change that this one takes back."""
    here: bool = False
    """True: it is done in the operator's own terminal and ends with it; no runner does it."""

    @property
    def confirm(self) -> str:
        """The name to type; "" where Yes is enough."""
        return self.target.name if self.danger == "danger" else ""


class UndoSpec(Struct, frozen=True):
    """The change that takes this one back, by the same path as any other."""

    action: str
    target: str
    values: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    """`rank back to version 1`."""


class Outcome(Struct, frozen=True):
    """What came of it."""

    word: Literal["done", "failed", "undone", "refused", "interrupted"]
    """undone: it failed or was stopped, and all is as before. failed: it is not as before; `text` says how it is."""
    text: str
    lines: tuple[str, ...] = ()
    undo: UndoSpec | None = None
    """None where it cannot be undone."""
    left: Mapping[str, str] = field(default_factory=dict)
    """The state that it left (`Action.state`): an undo is refused when the box is no longer so."""
    still_going: str = ""
    """What goes on after the time limit, and where it can be seen; "" = nothing."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Measured: gap_s (and of the plan, gap_plan_s), load_s, added_s, exposure_s, mean_before_ms ..."""


class Operator(Struct, frozen=True):
    """Who acts. The kernel's word, but for `ssh` and `terminal`, which are the environment's."""

    user: str
    uid: int
    login_uid: int | None = None
    """/proc/self/loginuid: who it is behind sudo; None = not told."""
    login_user: str | None = None
    ssh: str | None = None
    """Address of the SSH client."""
    terminal: str | None = None
    pid: int = 0

    @property
    def short(self) -> str:
        """`ops@192.0.2.7`: the person behind sudo where that is known."""
        name = self.login_user or self.user
        return f"{name}@{self.ssh}" if self.ssh else name


class AuditRecord(Struct, frozen=True, omit_defaults=True):
    """One line of the audit: `intent` before anything is sent, `outcome` after. Secrets are masked."""

    id: str
    """The same for both lines, and the name of the journal's folder."""
    kind: Literal["intent", "outcome"]
    wall: float
    operator: Operator
    host: str
    action: str
    target: Target
    title: str
    values: Mapping[str, str]
    plan: tuple[str, ...] = ()
    """Steps and effects as shown (intent only)."""
    outcome: Outcome | None = None
    duration: float | None = None
    undoes: str = ""
    """The id of the change that this one takes back."""
    resolves: str = ""
    """The id of the interrupted change that this one finished, undid or took note of."""


PhaseState = Literal["begin", "done", "failed", "note", "kept"]


class JournalLine(Struct, frozen=True, omit_defaults=True):
    """One line of a journal, written and synced before what it tells of is done."""

    wall: float
    state: PhaseState
    phase: str = ""
    text: str = ""
    seconds: float | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    """state kept: facts that finishing or undoing will need. The runner's own first line holds its pid and start."""


class Interrupted(Struct, frozen=True):
    """A change whose runner died: what it left, and what can be done about it."""

    id: str
    plan: Plan
    operator: Operator
    phase: str
    wall: float
    found: str
    """The state that the box is in now, in one sentence."""
    finish: str = ""
    """What finishing would do; "" = it cannot be finished."""
    undo: str = ""
    """What undoing would do; "" = nothing to undo, or it cannot be."""
