"""What a rule is: a small pure function from a `Look` at the box to Verdicts, registered under its id.

A file in this folder adds rules by decorating functions with `rule` or `flow_rule`; why.py finds the files by
themselves (core/registry.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from console.advisors.figures import Figures, judged_window, proof
from console.advisors.memory import Memory
from console.advisors.table import Entry, Table
from console.core import units
from console.core.history import History
from console.core.model import (
    Asked,
    ContainerState,
    Event,
    ModelFlow,
    ModelRow,
    PodmanState,
    Reading,
    Sign,
    Snapshot,
    TritonMetrics,
    Verdict,
    Window,
)
from console.core.text import one_line

T = TypeVar("T")
STOPS = frozenset({"unit.ended", "unit.limit", "unit.timeout", "container.stop", "container.died"})
"""Kinds of event."""
SHORT = 4.0
"""Seconds: figures of a shorter window (`gpuconsole snapshot` has one second) are never sure."""
MAX_NAME = 60
"""Characters of an outside name or reason within a sentence."""


@dataclass(frozen=True)
class Look:
    """One moment of the box, with what went before. Rules read it and change nothing."""

    snapshot: Snapshot
    history: History
    memory: Memory
    table: Table
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """Newest answer by model name."""

    @property
    def mono(self) -> float:
        return self.snapshot.mono

    @property
    def wall(self) -> float:
        return self.snapshot.wall

    def entry(self, verdict: str) -> Entry:
        """The table's line of a verdict."""
        return self.table.entries[verdict]

    def fresh(self, reading: Reading[T]) -> T | None:
        """The value, unless it is old: an old value says nothing about now."""
        return None if reading.is_old(self.mono) else reading.value

    def failing_for(self, reading: Reading[Any]) -> float | None:
        """Seconds since the reads began to fail; None when the newest one succeeded."""
        if reading.error is None:
            return None
        return 0.0 if reading.error_mono is None else max(0.0, self.mono - reading.error_mono)

    @cached_property
    def serves(self) -> bool:
        """True while Triton answers."""
        server = self.snapshot.server
        return server.error is None and server.value is not None and server.value.live is not False

    @cached_property
    def should_serve(self) -> bool:
        """False on a box where nothing hints that a Triton ever served: nothing is wrong there."""
        snapshot = self.snapshot
        models = snapshot.repository.value.models if snapshot.repository.value else ()
        return bool(snapshot.server.value or self.container or models or self.last_stop)

    @cached_property
    def last_stop(self) -> Event | None:
        """The newest event that tells how a container or its unit ended."""
        return next((event for event in reversed(self.snapshot.events) if event.kind in STOPS), None)

    @cached_property
    def podman(self) -> PodmanState | None:
        return self.fresh(self.snapshot.container)

    @cached_property
    def container(self) -> ContainerState | None:
        return self.podman.container if self.podman else None

    @cached_property
    def metrics(self) -> TritonMetrics | None:
        return self.fresh(self.snapshot.metrics)

    @cached_property
    def ready(self) -> tuple[ModelRow, ...]:
        """Rows that serve, while the server answers."""
        return tuple(row for row in self.snapshot.models if row.state == "READY") if self.serves else ()

    @cached_property
    def several(self) -> frozenset[str]:
        """Names with more than one READY version: their sentences need the version."""
        names = Counter(row.name for row in self.ready)
        return frozenset(name for name, times in names.items() if times > 1)

    def label(self, row: ModelRow) -> str:
        """The model's name, with its version where two of them serve."""
        name = one_line(row.name, MAX_NAME)
        return f"{name} {row.version}" if row.name in self.several and row.version else name

    @cached_property
    def active(self) -> tuple[Figures, ...]:
        """Figures of the READY models with traffic, failures or waiting requests; ensembles have none of their own.

        Empty while statistics are old: means of yesterday's traffic judge nothing.
        """
        if self.fresh(self.snapshot.stats) is None:
            return ()
        found = []
        for row in self.ready:
            if row.ensemble or row.flow is None or not has_work(row):
                continue
            window = judged_window(row.flow, self.memory.newest(row), self.table.evaluation, row.instances)
            if window is not None:
                found.append(Figures(row, window, row.config, self.label(row)))
        return tuple(found)

    def times(self, window: Window) -> str:
        """Between which two answers a window lies, as clock times."""
        wall = self.snapshot.stats.wall
        return f"{units.clock(None if wall is None else wall - window.span)} and {units.clock(wall)}"


def has_work(row: ModelRow) -> bool:
    """True when something came, failed or waits within the longest window."""
    if row.metrics is not None and (row.metrics.pending or 0) > 0:
        return True
    return row.flow is not None and moved(row.flow)


def moved(flow: ModelFlow) -> bool:
    """True when anything was counted in any window."""
    for window in (flow.w10, flow.w30, flow.w120, flow.w300):
        if window is not None and (window.success or window.failed or window.executions):
            return True
    return False


# ------------------------------------------------------------------------------------------------------------ registry

BoxRule = Callable[[Look], Iterator[Verdict]]
FlowRule = Callable[[Look, Figures], Verdict | None]


class Rule(Struct, frozen=True):
    """A registered rule; exactly one of `look` and `flow` is set."""

    id: str
    look: BoxRule | None = None
    flow: FlowRule | None = None


_MARK = "__why_rules__"


def rule(verdict: str) -> Callable[[BoxRule], BoxRule]:
    """Register a rule that looks at the whole box."""

    def mark(function: BoxRule) -> BoxRule:
        setattr(function, _MARK, Rule(verdict, look=function))
        return function

    return mark


def flow_rule(verdict: str) -> Callable[[FlowRule], FlowRule]:
    """Register a rule that judges one model's figures; such verdicts exclude each other in the table's order."""

    def mark(function: FlowRule) -> FlowRule:
        setattr(function, _MARK, Rule(verdict, flow=function))
        return function

    return mark


def rules_of(modules: Sequence[ModuleType]) -> tuple[Rule, ...]:
    """Rules that the modules define, in the order of their ids. A rule imported from another file counts once."""
    found: dict[str, Rule] = {}
    for module in modules:
        for value in vars(module).values():
            one = getattr(value, _MARK, None)
            if isinstance(one, Rule) and getattr(value, "__module__", None) == module.__name__:
                if one.id in found:
                    raise ValueError(f"two rules for {one.id}: the second one is in {module.__name__}")
                found[one.id] = one
    return tuple(found[key] for key in sorted(found))


# ------------------------------------------------------------------------------------------------------------ verdicts


def verdict(
    look: Look,
    id_: str,
    title: str,
    lines: Sequence[str] = (),
    *,
    model: ModelRow | None = None,
    sign: Sign | None = None,
    trust: str | None = None,
    subject: str | None = None,
    next_key: str | None = None,
    since_wall: float | None = None,
    figures: str = "",
    source: str = "",
    means: str | None = None,
    consequences: Sequence[str] = (),
) -> Verdict:
    """A Verdict with the table's words where none are given. `since_wall` only where the moment is known."""
    entry = look.entry(id_)
    return Verdict(
        id=id_,
        sign=sign or entry.sign,
        title=title,
        lines=tuple(line for line in lines if line),
        trust=trust or entry.trust,
        model=model.name if model else None,
        next_key=entry.next if next_key is None else next_key,
        since_wall=since_wall,
        since_mono=None if since_wall is None else look.mono - (look.wall - since_wall),
        rule=entry.rule,
        figures=figures,
        source=source,
        means=entry.means if means is None else means,
        does_not=entry.does_not,
        consequences=tuple(consequences),
        subject=subject or entry.subject,
        version=model.version if model else None,
    )


def flow_verdict(
    look: Look,
    figures: Figures,
    id_: str,
    title: str,
    lines: Sequence[str] = (),
    *,
    sign: Sign | None = None,
    trust: str | None = None,
    means: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Verdict:
    """A Verdict about one model's figures, with the figures and where they are from."""
    row = figures.row
    entry = look.entry(id_)
    if figures.window.span < SHORT and (trust or entry.trust) == "sure":
        trust = "likely"
    return verdict(
        look,
        id_,
        title,
        lines,
        model=row,
        sign=sign,
        trust=trust,
        means=means,
        figures=proof(figures, entry.figures, more),
        source=f"/v2/models/stats {look.times(figures.window)}, batch_stats of {figures.label}",
    )
