"""What the audit tells, where it stands on the screens: events, loads, settings of a card, keys."""

from __future__ import annotations

from dataclasses import replace as with_
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.core.changes import NOT_OURS
from console.core.model import Event, ModelKey, Snapshot
from console.core.plan import Operator, Outcome, Plan, Target, UndoSpec
from console.tui.desk import Record
from console.tui.own_changes import OwnChanges, headline, load_words, measured, own_changes, setting
from console.tui.panes.gpu_facts import GpuFacts, lock_words
from console.tui.panes.gpu_throttle import GpuThrottle
from console.tui.panes.model_details import Key, ModelDetails
from console.tui.panes.overview_events import OverviewEvents
from tests.fakes.boxes import Box, drawn_box
from tests.fakes.desk import FakeDesk, record
from tests.fakes.drawn import NOW
from tests.tui.pure import overfull, text_of, view_of
from tests.tui.stage import EVERY_SIZE
from tests.tui.stage import text_of as screen_text
from tests.tui.test_acts import acting, until

TUNE = Plan(
    action="batching.set",
    target=Target("model", "ranking"),
    values={"delay_us": "2000"},
    title="ranking 2: delay_us 500 → 2000 on infer-01",
    yes="Apply",
    danger="caution",
    effects=("one load over gRPC with the whole configuration",),
)
FIGURES = {"load_s": 1.1, "mean_before_ms": 1.84, "mean_after_ms": 2.94, "rate_before": 1640.0, "rate_after": 1650.0}
TUNED = Outcome(
    "done",
    "ranking: delay_us 500 → 2000 in 1.1 s; worse",
    ("live only until batching.keep ranking",),
    UndoSpec("batching.revert", "ranking"),
    figures={**FIGURES, "watch_s": 60.0},
)


def tuned(wall: float = NOW - 153.0 - 39.0, outcome: Outcome = TUNED, plan: Plan = TUNE) -> Record:
    """The change d of the drawing; its end is 39 s after its beginning."""
    return record("20260704-060158-000001", wall, outcome, plan)


def card(value: str, action: str = "gpu.clocks", name: str = "range", wall: float = NOW - 200.0) -> Record:
    """A setting of the drawn card."""
    gpu = drawn_box().snapshot.gpu.value
    assert gpu is not None
    uuid = gpu.gpus[0].uuid or ""
    plan = Plan(action, Target("gpu", uuid), {name: value}, "Clock lock none → 300 to 1590 MHz", "Set", "caution")
    return record(f"c-{wall}", wall, Outcome("done", "set", left={"uuid": uuid, name: value}), plan)


# ------------------------------------------------------------------------------------------------------ what is found


def test_the_one_that_u_takes_back() -> None:
    """As actions.undo finds it: the newest of one's own that can be, and that takes nothing back itself."""
    undo = replace(tuned().intent, undoes="x", id="u")
    records = (with_(tuned(), intent=undo), with_(tuned(), mine=False), with_(tuned(), undo_off="undone"), tuned())
    assert own_changes(records).undoable == tuned().intent.id
    assert own_changes(records[:3]).undoable == ""


def test_words() -> None:
    assert headline(tuned()) == "ranking 2: delay_us 500 → 2000, live only"
    assert headline(with_(tuned(), undone_by="y")) == "ranking 2: delay_us 500 → 2000"
    assert headline(tuned(outcome=replace(TUNED, word="undone"))) == "ranking 2: delay_us 500 → 2000: undone"
    assert headline(record("x", NOW, None, TUNE)) == "ranking 2: delay_us 500 → 2000"
    assert measured(TUNED) == "mean 1.84 → 2.94 ms over 60 s each; load 1.1 s"
    moved = replace(TUNED, figures={**FIGURES, "rate_after": 800.0})
    assert measured(moved) == "mean 1.84 → 2.94 ms, but the load changed: 1640 → 800/s; load 1.1 s"
    assert measured(replace(TUNED, figures={})) == ""
    assert measured(replace(TUNED, figures={"gap_s": 39.04, "gap_plan_s": 38.0})) == "gap 39.0 s (plan 38)"
    assert load_words(tuned(), "06:01:58") == "last 1.1 s   over gRPC   06:01:58 by ops@192.0.2.7"
    assert load_words(tuned(plan=replace(TUNE, effects=())), "06:01:58") == "last 1.1 s   06:01:58 by ops@192.0.2.7"


def test_a_setting_ends_with_its_boot() -> None:
    lock = card("300,1590")
    own, uuid = own_changes((lock, card("300,900", wall=NOW - 900))), lock.intent.target.name
    assert setting(own, uuid, "gpu.clocks", NOW - 1000) is lock
    assert setting(own, uuid, "gpu.clocks", lock.wall + 1) is None
    assert setting(own, uuid, "gpu.clocks", None) is None
    assert setting(own, "GPU-other", "gpu.clocks", NOW - 1000) is None
    assert setting(own, None, "gpu.clocks", NOW - 1000) is None


# -------------------------------------------------------------------------------------------------------------- events


def events_text(found: tuple[Record, ...], *events: Event, width: int = 78, may_undo: bool = True) -> str:
    pane = OverviewEvents()
    pane.own = own_changes(found)
    pane.ids = {(one.wall, one.kind, one.text): found[0].intent.id for one in events if one.kind.startswith("act.")}
    pane.may_undo = may_undo
    box = drawn_box()
    view = view_of(with_(box, snapshot=replace(box.snapshot, events=events)), width, 20)
    assert overfull(pane, view) == []
    return text_of(pane, view)


ACT = Event(NOW - 153.0, "note", TUNE.title, "ops@192.0.2.7", "act.batching.set", "ranking", ("said", "more"))


def test_a_change_of_ours_as_drawn() -> None:
    text = events_text((tuned(),), ACT)
    assert text.splitlines()[0].startswith("a 06:01:58  ranking 2: delay_us 500 → 2000, live only")
    assert text.splitlines()[0].endswith("ops@192.0.2.7  u undo")
    assert text.splitlines()[1].strip() == "mean 1.84 → 2.94 ms over 60 s each; load 1.1 s"
    assert "said" not in text
    assert "u undo" not in events_text((tuned(),), ACT, may_undo=False)
    assert "taken back" in events_text((with_(tuned(), undone_by="z", undo_off="it was"),), ACT)


def test_what_did_not_go_well_tells_its_cause() -> None:
    text = events_text((tuned(outcome=replace(TUNED, word="failed", undo=None)),), ACT)
    assert "said" in text
    assert "mean" not in text
    assert "live only" not in text


@pytest.mark.parametrize("kind", ["config", "reload"])
def test_what_was_seen_of_a_change_has_no_line_of_its_own(kind: str) -> None:
    seen = Event(NOW - 155.0, "note", "ranking delay 500 → 2000 µs", "ops@192.0.2.7", kind, "ranking")
    assert "delay 500 → 2000 µs" not in events_text((tuned(),), seen, ACT)
    for other in (
        replace(seen, origin=NOT_OURS),
        replace(seen, model="recall"),
        replace(seen, wall=NOW - 100.0),
        replace(seen, wall=NOW - 300.0),
        replace(seen, kind="model.ready"),
    ):
        assert "delay 500 → 2000 µs" in events_text((tuned(),), other, ACT)


# -------------------------------------------------------------------------------------------------------------- models


def details_text(own: OwnChanges, snapshot: Snapshot | None = None, keys: tuple[Key, ...] = ()) -> str:
    pane = ModelDetails()
    pane.chosen, pane.own, pane.keys = ModelKey("ranking", "2"), own, keys
    box = drawn_box()
    return text_of(pane, view_of(with_(box, snapshot=snapshot or box.snapshot), 74, 60))


def test_the_last_load_is_the_audits_unless_another_came_after() -> None:
    box = drawn_box().snapshot
    quiet = replace(box, events=())
    own = own_changes((tuned(),))
    assert "LOADS      last 1.1 s   over gRPC   06:01:58 by ops@192.0.2.7" in details_text(own, quiet)
    later = Event(NOW - 20.0, "ok", "ranking 2 is READY", "(index)", "model.ready", "ranking")
    text = details_text(own, replace(box, events=(later,)))
    assert "over gRPC" not in text
    assert "ranking 2 is READY" in text
    its_own = replace(later, wall=NOW - 150.0)
    assert "over gRPC" in details_text(own, replace(box, events=(its_own,)))
    before_start = own_changes((tuned(NOW - 90_000.0),))
    assert "over gRPC" not in details_text(before_start, quiet)


def test_keys_that_work_now() -> None:
    keys = tuple(Key(key, f"does {key}", key != "x") for key in "soxrbtaWdTyl")
    text = details_text(OwnChanges(), keys=keys).partition("KEYS")[2]
    assert "s does s  o does o  r does r" in " ".join(text.split(" ")).replace("       ", "")
    assert "x does x" not in text
    assert "l does l" in text


def test_a_live_only_setting_names_what_keeps_it() -> None:
    assert "t, then W keeps it" in " ".join(details_text(OwnChanges()).split())


# ----------------------------------------------------------------------------------------------------------------- gpu


def on_card(pane: GpuFacts | GpuThrottle, *found: Record, box: Box | None = None, width: int = 62) -> str:
    pane.own = own_changes(found)
    view = view_of(box or drawn_box(), width, 20)
    return text_of(pane, view)


def test_a_lock_that_this_console_set() -> None:
    text = on_card(GpuFacts(), card("300,1590"))
    assert "locked 300–1590 by ops@192.0.2.7 06:01:50" in text
    assert "cannot be read" not in text
    assert "lock: cannot be read" in on_card(GpuFacts())
    assert "no lock set here" in on_card(GpuFacts(), card("reset"), card("300,900", wall=NOW - 900))
    assert "locked 900 by" in lock_words(card("900,900"), "")
    assert lock_words(None, "") == ""
    assert "locked 300–1590 by ops" in on_card(GpuThrottle(), card("300,1590"), width=116)
    assert "set by a person or a tool" in on_card(GpuThrottle(), card("reset"), width=116)


def test_settings_that_are_as_this_console_left_them() -> None:
    assert "limit 70 set here" in on_card(GpuFacts(), card("70", "gpu.power_limit", "watts"))
    assert "set here" not in on_card(GpuFacts(), card("60", "gpu.power_limit", "watts"))
    assert "on set here" in on_card(GpuFacts(), card("on", "gpu.persistence", "mode"))
    assert "compute mode default set here" in on_card(GpuFacts(), card("default", "gpu.compute_mode", "mode"))


# ------------------------------------------------------------------------------------------------------------- screens


@pytest.mark.parametrize("size", EVERY_SIZE)
async def test_at_every_size(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = FakeDesk()
    desk.past = (tuned(), card("300,1590"))
    async with acting(desk, tmp_path, monkeypatch, size) as (app, pilot):
        await until(pilot, lambda: app.acting.records)
        app.refresh_now()
        await pilot.pause()
        assert app.acting.own is app.acting.own
        if size[0] >= 160:
            assert "u undo" in screen_text(app)
        app.go("models")
        await pilot.pause()
        app.refresh_now()
        await pilot.press("tab", "G")
        await pilot.pause()
        text = screen_text(app)
        assert "over gRPC" in text
        assert "s swap" in text.partition("KEYS")[2]
        app.go("gpu")
        await pilot.pause()
        app.refresh_now()
        await pilot.pause()
        if size[0] >= 120:
            assert "locked 300–1590 by ops@192.0.2.7" in screen_text(app)


async def test_what_another_process_of_the_same_user_did_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gpuconsole do` writes to the same audit: its change gets its event without a restart of the console."""
    desk = FakeDesk()
    async with acting(desk, tmp_path, monkeypatch) as (app, pilot):
        await pilot.pause()
        desk.past = (tuned(),)
        await until(pilot, lambda: app.acting.records)
        await until(pilot, lambda: any(one.kind == "act.batching.set" for one in app.store.snapshot(NOW, 0.0).events))
        assert set(app.acting.ids.values()) == {tuned().intent.id}
        assert Operator("root", 0, 1000, "ops").short == "ops"
