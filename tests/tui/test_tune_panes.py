"""What Tune's panes say, without a screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as changed

from console.actions.batching_look import Current, validate
from console.core.model import ContainerState, InstanceGroup, ModelMetrics, ModelRow, Quantile
from console.core.plan import Check, Plan, Target
from console.planning.predicted import UNKNOWN
from console.tui.desk import Record
from console.tui.panes.tune_change import TuneChange
from console.tui.panes.tune_experiments import TuneExperiments, experiments, p99_words, predicted_of, state_words
from console.tui.panes.tune_form import (
    INSTANCES,
    change_words,
    changed_rows,
    form_rows,
    notes_of,
    reasons,
    values_of,
)
from console.tui.panes.tune_live import Measured, Predicted, TuneLive, peak
from console.tui.tuner import LoadRun
from tests.fakes.boxes import drawn_box
from tests.fakes.drawn import NOW, at
from tests.tui.pure import overfull, text_of, view_of
from tests.tui.tuning import DISK, DRAWN, ENSEMBLE, RANKING, SEQUENCES, UNBATCHED, current, record

BOX = drawn_box()


def _row(name: str = "ranking", **fields: object) -> ModelRow:
    found = next(row for row in BOX.snapshot.models if row.name == name and row.state == "READY")
    return changed(found, **fields)


def _cards() -> tuple[object, ...]:
    assert BOX.snapshot.gpu.value is not None
    return BOX.snapshot.gpu.value.gpus


# ----------------------------------------------------------------------------------------------------------------- form


def test_the_form_has_a_row_for_each_setting_and_each_kind_of_instance() -> None:
    assert form_rows(current(ENSEMBLE, None), _row("reco"), ()) == ()
    rows = {one.field.name: one for one in form_rows(current(), _row(), _cards())}  # type: ignore[arg-type]
    assert rows["delay_us"].live == "2000"
    assert rows["delay_us"].disk == "500"
    assert rows["delay_us"].how == "reload"
    gpu, cpu = rows[f"{INSTANCES}gpu0"], rows[f"{INSTANCES}cpu"]
    assert (gpu.start, gpu.how, cpu.start, cpu.live) == ("2", "in place", "0", "–")
    assert "≈ 1.5 GiB each (seen at load); free 8.9 GiB" in gpu.beside
    assert rows["max_queue_size"].beside == "concurrency and queue time-out"
    assert rows["warm_up"].live == "1 samples"
    assert rows["rate_limiter"].off.startswith("rate limiter is shown only")


def test_memory_of_an_instance_is_said_to_be_unknown() -> None:
    rows = form_rows(current(), _row(memory=None), ())
    assert "VRAM of one not known; free not known" in {one.beside for one in rows}
    assert all(one.disk == "?" for one in form_rows(current(disk=None), None, ()) if one.field.name == "delay_us")


def test_values_of_the_form_are_those_of_the_action() -> None:
    typed = {"delay_us": "500", f"{INSTANCES}gpu0": "3", f"{INSTANCES}cpu": ""}
    assert values_of(typed) == {"delay_us": "500", "instances": "gpu0=3,cpu=0"}
    found = validate(current(), values_of({f"{INSTANCES}gpu0": "3"}))
    assert changed_rows(found, {f"{INSTANCES}gpu0": "3"}) >= {f"{INSTANCES}gpu0"}
    assert found.in_place


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"delay_us": "-1"}, "delay_us", "`delay_us` must be a whole number from 0 to 3600000000 µs, not '-1'"),
        ({"preferred": "32"}, "preferred", "preferred size 32 is above max_batch_size 16"),
        ({"preferred": "a,b"}, "preferred", "`preferred` must be sizes above 0 with commas between, not 'a,b'"),
        ({"max_batch_size": "many"}, "max_batch_size", "`max_batch_size` must be a whole number from 0 to 2147483647"),
        ({"max_queue_size": "1e3"}, "max_queue_size", "`max_queue_size` must be a whole number from 0 to 4294967295"),
        ({"timeout_us": "0.5"}, "timeout_us", "`timeout_us` must be a whole number from 0 to 3600000000 µs"),
        ({"timeout_action": "DROP"}, "timeout_action", "`timeout_action` must be one of REJECT, DELAY, not 'DROP'"),
        ({"allow_timeout_override": "2"}, "allow_timeout_override", "`allow_timeout_override` must be on or off"),
        ({"priority_levels": "3"}, "default_priority", "default_priority must be 1 to 3 with 3 priorities"),
        ({"default_priority": "1"}, "default_priority", "default_priority needs priority_levels"),
        ({"preserve_ordering": "perhaps"}, "preserve_ordering", "`preserve_ordering` must be on or off"),
        ({"response_cache": ""}, "response_cache", "`response_cache` must be on or off"),
        ({"dynamic_batching": "maybe"}, "dynamic_batching", "`dynamic_batching` must be on or off, not 'maybe'"),
        ({f"{INSTANCES}gpu0": "0"}, f"{INSTANCES}gpu0", "`instances` must leave one at least"),
        ({f"{INSTANCES}gpu0": "x"}, f"{INSTANCES}gpu0", "`instances` must be a number up to 1000"),
    ],
)
def test_bad_input_is_one_sentence_beside_its_field(typed: dict[str, str], field: str, sentence: str) -> None:
    found = validate(current(), values_of(typed))
    notes = [note for note in notes_of(found, typed) if note.sign == "fail"]
    assert [note.name for note in notes] == [field]
    assert notes[0].text.startswith(sentence)
    assert change_words(current(), found, typed) == ""


def test_a_queue_limit_is_warned_of_beside_the_field() -> None:
    typed = {"max_queue_size": "64"}
    notes = notes_of(validate(current(), values_of(typed)), typed)
    assert [(note.name, note.sign) for note in notes] == [("max_queue_size", "warn")]
    assert "leave the instance half idle" in notes[0].text


def test_changes_are_told_in_words() -> None:
    typed = {"delay_us": "500", f"{INSTANCES}gpu0": "3"}
    found = validate(current(), values_of(typed))
    assert change_words(current(), found, typed) == "delay_us 2000 → 500, instances gpu0=2 → gpu0=3"


def test_why_a_model_cannot_be_tuned_and_what_can_be_done() -> None:
    def of(live: object, mode: str | None = None, row: ModelRow | None = None) -> str:
        container = ContainerState("c", "triton", "running", "name", control_mode=mode)
        return "\n".join(reasons(current(live, None), row, container))  # type: ignore[arg-type]

    assert of(RANKING, "explicit") == ""
    assert "Tune its steps instead: recall, ranking (2 Models, t)" in of(ENSEMBLE, row=_row("reco"))
    assert "does not batch (max batch size 0)" in of(UNBATCHED)
    assert "batches sequences" in of(SEQUENCES)
    assert "control mode none: the server refuses loads and loads nothing" in of(RANKING, "none")
    assert "follows the files by itself: edit config.pbtxt. Recreate" in of(RANKING, "poll")
    assert "runs on vllm" in of({**RANKING, "backend": "vllm"})


# ----------------------------------------------------------------------------------------------------------------- live


def _live(row: ModelRow | None = None) -> TuneLive:
    pane = TuneLive()
    pane.row = row if row is not None else _row()
    return pane


def test_live_figures_have_their_source() -> None:
    text = text_of(_live(), view_of(BOX, 56))
    told = {line.split()[0]: line.split() for line in text.splitlines()}
    assert told["mean"] == ["mean", "ms", "2.94", "–", "–", "server"]
    assert told["wait"] == ["wait", "ms", "1.23", "–", "–", "server"]
    assert told["batch"] == ["batch", "4.3", "–", "–", "server"]
    assert told["busy"] == ["busy", "%", "31", "–", "–", "server"]
    assert told["util"] == ["util", "%", "64", "–", "–", "NVML"]
    tail = next(line for line in text.splitlines() if line.startswith("p99 ms"))
    assert tail.split()[2:] == ["–", "–", "–", "none:", "L"]


@pytest.mark.parametrize("cells", [41, 56, 58, 78])
def test_what_is_predicted_stands_between_with_its_error(cells: int) -> None:
    pane = _live()
    pane.predicted = Predicted(DRAWN)
    view = view_of(BOX, cells)
    text = text_of(pane, view)
    told = {line.split()[0]: line.split() for line in text.splitlines()}
    assert told["mean"][2:5] == ["2.94", "1.84", "±0.10"]
    assert told["p99"][2:5] == ["–", "2.30", "±0.40"]
    assert told["busy"][2:5] == ["31", "61", "±1.0"]
    assert told["util"][2:5] == ["64", "not", "told"]
    assert ("SOURCE" in text) is (cells > 50)
    assert "● batcher model, trust good" in text
    assert not overfull(pane, view)


def test_why_nothing_is_predicted_is_said_and_doubt_comes_with_its_reason() -> None:
    pane, view = _live(), view_of(BOX, 56)
    assert "predict" not in text_of(pane, view)
    pane.predicted = Predicted(pending=True)
    assert "predicting …" in text_of(pane, view)
    pane.predicted = Predicted(why="reco is an ensemble [/x]")
    assert "not predicted: reco is an ensemble [/x]" in text_of(pane, view)
    full = changed(DRAWN, mean_ms=UNKNOWN, p99_ms=UNKNOWN, capacity=900.0, trust="poor", reasons=("saturated: more",))
    pane.predicted = Predicted(full)
    text = text_of(pane, view)
    assert "✗ batcher model, trust poor: saturated: more" in text
    assert "no end" in next(line for line in text.splitlines() if line.startswith("mean"))


def test_a_percentile_comes_with_its_source() -> None:
    metrics = ModelMetrics(_row().key, request_summary=(Quantile(0.5, 1.0), Quantile(0.99, 7.5)))
    text = text_of(_live(_row(metrics=metrics)), view_of(BOX, 56))
    tail = next(line for line in text.splitlines() if line.startswith("p99 ms"))
    assert "7.50" in tail
    assert "summary" in tail


def test_what_was_measured_stands_beside_with_before_and_after() -> None:
    pane = _live()
    assert "m measures now" in text_of(pane, view_of(BOX, 56))
    pane.measured = Measured(NOW, "by the change", {"mean": 1.84, "batch": 1.9}, {"mean": 2.94})
    text = text_of(pane, view_of(BOX, 56))
    assert "2.94 → 1.84" in text
    assert "measured 06:04:31 by the change" in text
    pane.measuring = 0.4
    assert "measuring: 40 %" in text_of(pane, view_of(BOX, 56))


def _peak(typed: dict[str, str], row: ModelRow) -> tuple[str, str, bool | None]:
    now = current()
    found = peak(row, _cards()[0], now, validate(now, values_of(typed)), typed)  # type: ignore[arg-type]
    assert found is not None
    return found.text, found.source, found.fits


def test_at_peak_both_copies_are_on_the_card() -> None:
    row = _row()
    assert _peak({"delay_us": "500"}, row) == ("≈ 8.8 of 15.0, fits", "both copies", True)
    assert _peak({"delay_us": "500", f"{INSTANCES}gpu0": "8"}, row)[2] is False
    assert _peak({f"{INSTANCES}gpu0": "3"}, row) == ("≈ 7.2 of 15.0, fits", "added", True)
    assert _peak({"delay_us": "500"}, _row(memory=None)) == ("? not known", "both copies", None)
    now = current()
    without = peak(row, None, now, validate(now, {"delay_us": "1"}), {"delay_us": "1"})
    assert without is not None
    assert without.fits is None
    pane = _live(row)
    pane.peak = peak(row, _cards()[0], now, validate(now, {"delay_us": "1"}), {"delay_us": "1"})  # type: ignore[arg-type]
    assert "at peak" in text_of(pane, view_of(BOX, 56))


def test_a_model_on_the_cpu_takes_no_memory_of_the_card() -> None:
    now = current({**RANKING, "instance_group": [{"kind": "KIND_CPU", "count": 2}]})
    config = _row().config
    assert config is not None
    row = _row(memory=None, config=changed(config, instance_groups=(InstanceGroup("KIND_CPU", 2),)))
    assert peak(row, None, now, validate(now, {"delay_us": "1"}), {"delay_us": "1"}) is None
    assert peak(row, None, now, validate(now, {"instances": "gpu0=1"}), {f"{INSTANCES}gpu0": "1"}) is not None
    told = next(line for line in text_of(_live(row), view_of(BOX, 56)).splitlines() if line.startswith("VRAM"))
    assert told.split() == ["VRAM", "GiB", "–", "–", "–", "on", "CPU"]


def test_a_model_without_figures_says_so() -> None:
    pane = TuneLive()
    assert text_of(pane, view_of(BOX, 40)) == "… statistics: not read yet"
    pane.row = _row(flow=None, memory=None)
    assert "VRAM GiB" in text_of(pane, view_of(BOX, 40))


# -------------------------------------------------------------------------------------------------- change, experiments


def _plan(**fields: object) -> Plan:
    plan = Plan(
        "batching.set",
        Target("model", "ranking"),
        {},
        "title",
        "Apply",
        "caution",
        checks=(Check("ok", "READY"), Check("warn", "both copies")),
        effects=("one load [/x]", "live only " + "long " * 60),
        difference=("- a: 1", "+ a: 2\x1b[2J", "  }"),
    )
    return changed(plan, **fields)


@pytest.mark.parametrize("cells", [56, 116])
def test_the_change_shows_difference_and_consequences(cells: int) -> None:
    pane = TuneChange()
    pane.plan = _plan()
    text = text_of(pane, view_of(BOX, cells))
    assert "WHAT HAPPENS ON APPLY" in text
    assert "▲ both copies" in text
    assert "READY" not in text
    assert "1 one load [/x]" in text
    assert "\x1b" not in text
    assert not overfull(pane, view_of(BOX, cells))
    pane.plan = _plan(refused="ranking is so already")
    assert text_of(pane, view_of(BOX, cells)).startswith("✗ ranking is so already")
    pane.plan, pane.told, pane.wrong = None, "nothing changed", False
    assert text_of(pane, view_of(BOX, cells)) == "nothing changed"


RECORDS = (
    record("d", "delay_us 500 → 2000", {"delay_us": "2000"}, verdict="worse: mean 1.84 → 2.94 ms"),
    record("c", "max_batch_size 8 → 16", {"max_batch_size": "16"}, verdict="no difference: mean 2.9 → 2.9 ms"),
    record("b", "delay_us 1000 → 500", {"delay_us": "500"}, undone_by="x"),
    record("a", "delay_us 2000 → 1000", {"delay_us": "1000"}, verdict="not known: hardly any requests came"),
)


def _states(now: Current | None) -> list[tuple[str, str, str]]:
    return [(one.change, one.verdict, one.state) for one in experiments(RECORDS, now)]


def test_experiments_tell_what_is_left_of_each_change() -> None:
    assert _states(current()) == [
        ("delay_us 500 → 2000", "worse", "live"),
        ("max_batch_size 8 → 16", "no difference", "on disk"),
        ("delay_us 1000 → 500", "better", "reverted"),
        ("delay_us 2000 → 1000", "not known", "replaced"),
    ]
    assert _states(current(DISK))[0][2] == "replaced"
    assert [state for _, _, state in _states(None)] == ["?", "?", "reverted", "?"]


def test_a_change_reverted_later_and_one_without_an_end() -> None:
    back = record("e", "back", {"record": "rd"}, action="batching.revert")
    open_ = record("f", "delay_us 2000 → 1", {"delay_us": "1"})
    open_ = type(open_)(open_.intent, None)
    made = experiments((open_, back, *RECORDS), current())
    assert [one.state for one in made][:2] == ["no end known", "reverted"]


@pytest.mark.parametrize("cells", [56, 76, 96, 156])
def test_the_table_fits_and_tells_figures_before_and_after(cells: int) -> None:
    pane = TuneExperiments()
    pane.records, pane.now, pane.draft = RECORDS, current(), "delay_us 2000 → 100"
    text = text_of(pane, view_of(BOX, cells))
    assert "not sent" in text
    assert "worse" in text
    assert ("2.94 → 1.84" in text) is (cells > 56)
    assert not overfull(pane, view_of(BOX, cells))


def test_utilisation_is_what_this_console_saw_at_both_ends() -> None:
    pane = TuneExperiments()
    pane.records = (record("a", "delay_us 1 → 2", {"delay_us": "2"}, wall=at("14:03:00")),)
    row = text_of(pane, view_of(BOX, 156)).splitlines()[1]
    assert "64 → 64" in row or "→" in row


def test_nothing_tried_is_said() -> None:
    pane = TuneExperiments()
    assert "nothing was tried with this model yet" in text_of(pane, view_of(BOX, 76))
    pane.unknown = "this session has no audit"
    assert "no audit" in text_of(pane, view_of(BOX, 76))


def test_load_runs_stand_beside_the_changes_that_they_measured() -> None:
    first = record("a", "delay_us 500 → 2000", {"delay_us": "2000"}, wall=NOW - 1000)
    second = record("b", "delay_us 2000 → 700", {"delay_us": "700"}, wall=NOW - 500)
    tried = record("c", "delay_us 700 → 100 for 5 min", {"delay_us": "100"}, wall=NOW - 100, action="batching.trial")
    runs = (
        LoadRun(7, NOW - 1100, 4.0),
        LoadRun(8, NOW - 900, 3.0),
        LoadRun(9, NOW - 800, 3.7),
        LoadRun(10, NOW - 400, 2.7),
    )
    found = experiments((tried, second, first), current(), runs)
    assert [p99_words(one) for one in found] == ["2.70 → – run 10", "3.70 → 2.70 run 10", "4.00 → 3.70 run 9"]
    assert [p99_words(one) for one in experiments((first,), current())] == ["–"]


def test_the_best_is_marked_and_not_what_was_measured_at_another_load() -> None:
    def one(id_: str, mean: float, rate: float, verdict: str = "better") -> Record:
        figures = {"mean_before_ms": 3.0, "mean_after_ms": mean, "rate_after": rate}
        return record(id_, f"delay_us 1 → {id_}", {"delay_us": id_}, figures=figures, verdict=f"{verdict}: mean")

    found = experiments(
        (one("4", 2.0, 100.0), one("3", 1.0, 300.0), one("2", 1.5, 104.0), one("1", 0.5, 99.0, "worse")), None
    )
    assert [state_words(one).startswith("best, ") for one in found] == [False, False, True, False]
    assert not any(one.best for one in experiments((), None))


def test_a_trial_that_went_back_says_so() -> None:
    told = record("t", "delay_us 2000 → 500 for 5 min", {"delay_us": "500", "for": "300s"}, action="batching.trial")
    assert told.outcome is not None
    assert told.outcome.outcome is not None
    back = changed(told.outcome, outcome=changed(told.outcome.outcome, word="undone", undo=None))
    (one,) = experiments((Record(told.intent, back),), current())
    assert (one.change, one.verdict, state_words(one)) == ("delay_us 2000 → 500 for 5 min", "better", "best, back")


def test_a_sweep_is_a_row_too() -> None:
    told = record("s", "-", {"objective": "p99", "budget": "60s"}, action="batching.sweep", verdict="restored")
    assert told.outcome is not None
    assert told.outcome.outcome is not None
    restored = changed(told.outcome, outcome=changed(told.outcome.outcome, undo=None))
    kept, gone = experiments((told, Record(told.intent, restored)), current())
    assert (kept.change, kept.state, gone.state) == ("sweep for p99", "kept", "restored")
    assert (gone.before["mean"], gone.after["mean"], gone.best) == (2.94, 1.84, False)


def test_what_was_predicted_comes_from_the_record_and_all_goes_to_the_file() -> None:
    values = {"delay_us": "500", "predicted": "mean=1.9,p99=2.3,batch=x"}
    told = record("a", "delay_us 2000 → 500", values)
    assert predicted_of(told) == {"mean": 1.9, "p99": 2.3}
    pane = TuneExperiments()
    pane.records, pane.now, pane.runs = (told,), current(), (LoadRun(9, NOW - 300, 2.4),)
    assert " 1.90 " in text_of(pane, view_of(BOX, 156))
    head, row = pane.table(view_of(BOX, 156))
    cells = dict(zip(head, row, strict=True))
    assert (cells["mean ms before"], cells["mean ms predicted"], cells["mean ms measured"]) == ("2.94", "1.9", "1.84")
    assert (cells["p99 ms predicted"], cells["p99 ms measured"], cells["p99 from"]) == ("2.3", "2.4", "run 9")
    assert (cells["by"], cells["verdict"], cells["state"]) == ("ops", "better", "best, replaced")
