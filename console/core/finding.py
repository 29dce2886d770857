"""What the checks say about a box: findings, their fixes, and the causes that link them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from console.core.facts import Evidence
from console.core.sign import Sign

FixClass = Literal["B", "P", "R", "S"]
"""B: takes effect now, reversible, no reboot. P: persistent, with backup and undo. R: needs a reboot, prepared by hand.
S: shown only. The console itself applies B and P alone (host.md 5.1)."""

GROUPS: Mapping[str, str] = {
    "driver": "Kernel and driver",
    "cdi": "Container runtime, CDI",
    "selinux": "SELinux",
    "podman": "Podman and user",
    "container": "Triton container",
    "tuning": "Host tuning",
    "gpu": "GPU",
    "storage": "Storage",
    "network": "Network",
    "time": "Time",
    "units": "Units",
    "models": "Model repository",
}
"""Name of `check --group` -> title, in the order of the screen."""


class Deed(Struct, frozen=True):
    """One thing that the console does itself to apply a fix of class B or P."""

    kind: Literal["run", "write", "mode", "move"]
    argv: tuple[str, ...] = ()
    """run: what is run, without a shell; as root where `root`."""
    path: str = ""
    """write: the file; mode: the file; move: from."""
    text: str = ""
    """write: the whole new text; move: to where."""
    mode: int = 0o644
    root: bool = True
    seconds: float = 60.0
    """run: the time limit."""


class Fix(Struct, frozen=True):
    """What mends a finding, for this very box."""

    kind: FixClass
    commands: tuple[str, ...]
    """Exact lines that a person may type, sudo included where it is needed; real paths and names filled in. Never
    () where there is an action."""
    effect: str = ""
    """When it takes effect and what it touches: `takes effect at the next start; no running container is touched`."""
    undo: str = ""
    """How to go back; "" = there is no way back, which `effect` then says."""
    reboot: bool = False
    deeds: tuple[Deed, ...] = ()
    """How the console applies it (B and P); () = only shown."""
    back: tuple[Deed, ...] = ()
    """How the console takes it back; files written or moved are put back by themselves."""
    action: str = ""
    """An action of the console that mends it instead: `container.recreate`, with `values`."""
    target: str = ""
    """What that action acts on: a model, a card; "" = what it takes by itself."""
    values: Mapping[str, str] = field(default_factory=dict)
    again: tuple[str, ...] = ()
    """Checks that are to be run again afterwards, besides its own."""

    @property
    def can_be_applied(self) -> bool:
        """True where the console does it itself, by a plan; else it is only shown."""
        return bool(self.deeds or self.action)


class Finding(Struct, frozen=True):
    """A check's answer. ok and note: fit (note: worth knowing); none: does not apply here."""

    id: str
    title: str
    group: str
    sign: Sign
    text: str
    """One short sentence for the row: what was seen, with its figures."""
    evidence: tuple[Evidence, ...] = ()
    why: str = ""
    """Two sentences on why it matters."""
    fix: Fix | None = None
    source: str = ""
    settle: str = ""
    """unknown: the command that would settle it."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Few comparable facts that verdicts link by: `{"driver": "550.90.07"}`."""


class MendingStep(Struct, frozen=True):
    """One step of the order of mending; `id` is the check whose fix it is, "" = something else."""

    id: str
    text: str


class Cause(Struct, frozen=True):
    """One root cause with what follows from it."""

    id: str
    """The check that is the cause."""
    title: str
    """`the container cannot start: its CDI spec is older than the driver (550.90.07 against 570.86.15)`."""
    trust: str
    """sure, likely, possible; with the signs that speak for it: `sure, 3 of 3 signs`."""
    sign: Sign = "fail"
    signs: tuple[str, ...] = ()
    """Each sentence starts with its check: `B07 names libraries of 550.90.07`."""
    consequences: tuple[str, ...] = ()
    """Ids of findings that follow from it."""
    order: tuple[MendingStep, ...] = ()


class Report(Struct, frozen=True):
    """All findings of one look at a box, in the order of the groups, and the causes, weightiest first."""

    wall: float = 0.0
    seconds: float = 0.0
    host: str = ""
    findings: tuple[Finding, ...] = ()
    causes: tuple[Cause, ...] = ()

    def finding(self, id_: str) -> Finding | None:
        """By check id."""
        return next((one for one in self.findings if one.id == id_), None)

    def follows(self) -> dict[str, str]:
        """Finding -> the cause that it follows from; the weightiest where there are several."""
        return {one: cause.id for cause in reversed(self.causes) for one in cause.consequences}

    def worst(self) -> Sign:
        """fail, warn, unknown (only where nothing could be told) or ok."""
        signs = {one.sign for one in self.findings}
        for sign in ("fail", "warn"):
            if sign in signs:
                return sign
        return "ok" if signs & {"ok", "note"} else "unknown"
