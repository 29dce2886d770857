"""What one look at the box knows, and how a verdict is made of the table's line and a model's figures."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from console.advisors.figures import Figures
from console.advisors.memory import Memory
from console.advisors.rule import (
    SHORT,
    STOPS,
    Look,
    Rule,
    flow_rule,
    flow_verdict,
    has_work,
    moved,
    rule,
    rules_of,
    verdict,
)
from console.advisors.table import SIGN_ORDER, table
from console.core import podman_events, unit_log, units
from console.core.history import History
from console.core.model import (
    ContainerState,
    DiskModel,
    Event,
    Failure,
    ModelFlow,
    ModelKey,
    ModelMetrics,
    ModelRow,
    ModelStats,
    PodmanState,
    Reading,
    Repository,
    Snapshot,
    TritonServer,
)
from tests.advisors.cases import MONO, NOW, config, good, row, snapshot, window


def look(*rows: ModelRow, **parts: Any) -> Look:
    return Look(snapshot(*rows, **parts), History(), Memory(), table())


EMPTY = Look(Snapshot(wall=NOW, mono=MONO), History(), Memory(), table())
IDLE = window(rate=0, batch=None, wait=None, compute=None, busy=0, sizes={})


def test_signs_are_in_the_order_of_need() -> None:
    assert sorted(SIGN_ORDER, key=SIGN_ORDER.__getitem__) == ["fail", "warn", "note", "ok", "unknown", "none"]
    assert sorted(SIGN_ORDER.values()) == list(range(6))


def test_an_old_value_says_nothing() -> None:
    assert look().fresh(good("x", 5)) == 5
    assert look().fresh(good("x", 5, age=3.0)) == 5
    assert look().fresh(good("x", 5, age=3.1)) is None
    assert look().fresh(Reading("x", 1.0)) is None


def test_how_long_reads_fail() -> None:
    failing = Reading[Any]("x", 1.0, error=Failure("timeout", "t"), error_mono=MONO - 7)
    assert look().failing_for(failing) == 7.0
    assert look().failing_for(replace(failing, error_mono=MONO + 7)) == 0.0
    assert look().failing_for(replace(failing, error_mono=None)) == 0.0
    assert look().failing_for(good("x", 5)) is None


def test_whether_it_serves() -> None:
    server = good("triton.server", TritonServer("u", True, True))
    assert look(server=server).serves
    assert look(server=good("triton.server", TritonServer("u", None, None))).serves
    assert not look(server=good("triton.server", TritonServer("u", False, False))).serves
    assert not look(server=replace(server, error=Failure("timeout", "t"))).serves
    assert not EMPTY.serves


def test_whether_it_should_serve() -> None:
    assert not EMPTY.should_serve
    assert look().should_serve
    box = good("container", PodmanState("s", "rootful", container=ContainerState("i", "t", "exited", "name")))
    assert Look(replace(EMPTY.snapshot, container=box), History(), Memory(), table()).should_serve
    bare = good("container", PodmanState("s", "rootful"))
    assert not Look(replace(EMPTY.snapshot, container=bare), History(), Memory(), table()).should_serve
    models = good("repository", Repository("/m", models=(DiskModel("a", "/m/a"),)), 10.0)
    assert Look(replace(EMPTY.snapshot, repository=models), History(), Memory(), table()).should_serve
    stopped = Event(NOW, "fail", "x", "(podman)", next(iter(STOPS)))
    assert Look(replace(EMPTY.snapshot, events=(stopped,)), History(), Memory(), table()).should_serve


def test_the_newest_stop() -> None:
    kind = next(iter(STOPS))
    events = (Event(1.0, "fail", "a", "", kind), Event(2.0, "fail", "b", "", kind), Event(3.0, "ok", "c", "", "x"))
    found = look(events=events).last_stop
    assert found is not None
    assert found.text == "b"
    assert look().last_stop is None


def test_versions_are_named_where_two_serve() -> None:
    one, two, other = (
        row(window(), config()),
        row(window(), config(version="2"), version="2"),
        row(IDLE, None, name="n"),
    )
    both = look(one, two, other)
    assert both.several == {"m"}
    assert [both.label(each) for each in both.ready] == ["m 1", "m 2", "n"]
    assert look(one, other).label(one) == "m"
    loading = replace(two, state="LOADING")
    assert look(one, loading).several == frozenset()
    assert both.label(replace(one, version=None)) == "m"
    assert look(one, two, server=Reading("triton.server", 1.0)).ready == ()


@pytest.mark.parametrize("name", ["success", "failed", "executions"])
@pytest.mark.parametrize("place", ["w10", "w30", "w120", "w300"])
def test_anything_that_was_counted_is_work(name: str, place: str) -> None:
    flow = ModelFlow(ModelKey("m", "1"), ModelStats("m", "1"), **{place: replace(IDLE, **{name: 1})})  # type: ignore[arg-type]
    assert moved(flow)
    assert has_work(ModelRow("m", "1", "READY", flow=flow))
    assert not moved(ModelFlow(flow.key, flow.stats, **{place: IDLE}))  # type: ignore[arg-type]


def test_waiting_requests_are_work() -> None:
    def waits(pending: float | None) -> bool:
        return has_work(ModelRow("m", "1", "READY", metrics=ModelMetrics(ModelKey("m", "1"), pending)))

    assert [waits(pending) for pending in (1.0, 0.0, None)] == [True, False, False]
    assert not has_work(ModelRow("m", "1", "READY"))


def test_who_is_judged() -> None:
    busy, idle = row(window(), config()), row(IDLE, config(), name="idle")
    ensemble = replace(row(window(), config(), name="e"), ensemble=True)
    blind = replace(row(window(), config(), name="b"), flow=None)
    assert [figures.row.name for figures in look(busy, idle, ensemble, blind).active] == ["m"]
    old = good("triton.stats", snapshot(busy).stats.value, age=60.0)
    assert look(busy, stats=old).active == ()


def figures_of(span: float) -> Figures:
    seen, made = window(span=span), config()
    return Figures(row(seen, made), seen, made, "m label")


def test_a_verdict_of_the_tables_words() -> None:
    entry = table().entries["V17"]
    made = verdict(look(), "V17", "title", ["a", "", "b"])
    assert (made.id, made.sign, made.title, made.lines) == ("V17", entry.sign, "title", ("a", "b"))
    assert (made.trust, made.next_key, made.rule) == (entry.trust, entry.next, entry.rule)
    assert (made.means, made.does_not, made.subject) == (entry.means, entry.does_not, entry.subject)
    assert (made.model, made.version, made.since_wall, made.since_mono) == (None,) * 4
    assert (made.figures, made.source, made.consequences) == ("", "", ())


def test_a_verdict_of_words_of_its_own() -> None:
    made = verdict(
        look(), "V17", "t", model=row(window(), config()), sign="note", trust="cannot tell", subject="s", next_key="",
        since_wall=NOW - 30, figures="f", source="src", means="", consequences=["c"],
    )  # fmt: skip
    assert (made.sign, made.trust, made.subject, made.next_key, made.means) == ("note", "cannot tell", "s", "", "")
    assert (made.model, made.version) == ("m", "1")
    assert (made.since_wall, made.since_mono) == (NOW - 30, MONO - 30)
    assert (made.figures, made.source, made.consequences) == ("f", "src", ("c",))


def test_a_verdict_of_a_models_figures() -> None:
    made = flow_verdict(look(), figures_of(30.0), "V17", "title", ["line"], more={})
    wall = NOW - 0.3
    assert made.source == (f"/v2/models/stats {units.clock(wall - 30)} and {units.clock(wall)}, batch_stats of m label")
    assert made.figures.startswith("30 s: ")
    assert (made.model, made.lines) == ("m", ("line",))
    unread = Look(replace(snapshot(), stats=Reading("triton.stats", 1.0)), History(), Memory(), table())
    assert unread.times(window()) == f"{units.clock(None)} and {units.clock(None)}"


def test_a_short_window_is_never_sure() -> None:
    sure = next(id_ for id_, entry in table().entries.items() if entry.trust == "sure" and entry.figures)
    assert flow_verdict(look(), figures_of(SHORT), sure, "t").trust == "sure"
    assert flow_verdict(look(), figures_of(SHORT - 0.1), sure, "t").trust == "likely"
    assert flow_verdict(look(), figures_of(SHORT - 0.1), sure, "t", trust="cannot tell").trust == "cannot tell"
    assert flow_verdict(look(), figures_of(SHORT), sure, "t", trust="cannot tell").trust == "cannot tell"


def test_rules_are_found_by_their_mark_in_the_module_that_defines_them() -> None:
    first, second = ModuleType("first"), ModuleType("second")

    @rule("V02")
    def box(look: Look) -> Any:
        return iter(())

    @flow_rule("V01")
    def flow(look: Look, figures: Figures) -> None:
        return None

    box.__module__ = flow.__module__ = "first"
    first.__dict__.update(box=box, flow=flow, other=5)
    second.__dict__.update(box=box)
    assert rules_of([first, second]) == (Rule("V01", flow=flow), Rule("V02", look=box))
    first.__dict__.update(again=box)
    with pytest.raises(ValueError, match="two rules for V02: the second one is in first"):
        rules_of([first])


def test_every_kind_of_stop_is_one_that_somebody_tells() -> None:
    entries = (
        "Main process exited, code=exited, status=1/FAILURE",
        "Start request repeated too quickly.",
        "start operation timed out.",
    )
    told = {event.kind for event in unit_log.events("t.service", [(1.0, entry) for entry in entries])}
    told |= {event.kind for action in ("stop", "died") if (event := podman_events.event(1.0, action, {}))}
    assert told == STOPS
