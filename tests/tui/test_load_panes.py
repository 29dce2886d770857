"""The lines of Load's panes, as drawn (1.7): form, now, distribution, runs, compare, plan, exports."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from console.core.model import TensorSpec
from console.core.plan import Plan
from console.loadgen import record, schedule
from console.loadgen.errors import Failed
from console.loadgen.record import Model as Asked
from console.loadgen.record import Run, Share, Stage
from console.tui.loads import Current, Told, end_event, outcome_words, sign_of
from console.tui.panes import load_compare, load_runs
from console.tui.panes.base import View
from console.tui.panes.header import Status, header_line
from console.tui.panes.load_compare import LoadCompare
from console.tui.panes.load_distribution import LoadDistribution, Shape, band_rows, bar, bounds, names_of
from console.tui.panes.load_form import DEFAULTS, FLAGS, LoadForm, note_of, rows_of, shown
from console.tui.panes.load_now import LoadNow
from console.tui.panes.load_plan import most_requests, shown_plan
from console.tui.panes.load_runs import LoadRuns, csv_of, markdown_of
from console.tui.panes.load_runs import note_of as note_of_run
from console.tui.panes.plan_lines import plan_rows
from console.tui.widgets.cells import plain, width
from console.tui.widgets.lines import Row
from tests.fakes.boxes import drawn_box
from tests.fakes.drawn import MONO, NOW
from tests.tui.loading import (
    CLOSED,
    FOREIGN,
    LATENCIES,
    LIVE,
    NOT_VALID,
    RUNNING,
    FakeDoors,
    made_run,
    progress,
    some_runs,
)

OPEN: Mapping[str, str] = {**DEFAULTS, "model": "ranking", "mode": "open loop, Poisson", "rate": "800",
                           "duration": "2m", "goal": "5"}  # fmt: skip


def view(cells: int, height: int = 20) -> View:
    box = drawn_box()
    return View(box.snapshot, box.history, NOW, MONO, cells, height, utc=True)


def texts(rows: Sequence[Row], cells: int) -> list[str]:
    """As they are read; none is wider than its room."""
    made = [plain(row.line() if callable(row.line) else row.line).rstrip() for row in rows]
    assert all(width(line) <= cells for line in made), [line for line in made if width(line) > cells]
    return made


def running(values: Mapping[str, str] = OPEN) -> Current:
    return Current(FakeDoors().plan(values), 13, NOW - 42, live=LIVE)


# ---------------------------------------------------------------------------------------------------------------- form


def test_rows_follow_what_is_chosen() -> None:
    models = drawn_box().snapshot.models
    names = [row.field.name for row in rows_of({**DEFAULTS, "model": "ranking"}, models)]
    assert names == ["model", "version", "mix", "inputs", "batch", "mode", "callers", "duration", "warmup", "goal",
                     "max_errors", "live_limits", "timeout"]  # fmt: skip
    rows = {row.field.name: row for row in rows_of({**OPEN, "inputs": "file"}, models)}
    assert "rate" in rows
    assert "callers" not in rows
    assert "data" in rows
    assert rows["model"].field.choices == ("ranking", "recall", "reco")
    assert rows["version"].field.choices == ("any", "2")
    kept = [row.field.name for row in rows_of({**OPEN, "inputs": "kept question"}, models)]
    assert "batch" not in kept


def test_a_variable_input_wants_its_shape() -> None:
    row = next(row for row in drawn_box().snapshot.models if row.name == "ranking")
    assert row.config is not None
    inputs = (TensorSpec("TOKENS", "INT64", (-1,)),)
    models = (changed(row, config=changed(row.config, inputs=inputs)),)
    rows = {one.field.name: one for one in rows_of({**DEFAULTS, "model": "ranking"}, models)}
    assert "TOKENS" in rows["shapes"].field.help


def test_values_are_said_as_drawn() -> None:
    assert shown("rate", "800") == "800 req/s"
    assert shown("goal", "5") == "p99 ≤ 5 ms"
    assert shown("goal", "") == "none"
    assert shown("max_errors", "1") == "errors > 1 %"
    assert shown("live_limits", "4.0") == "mean > 4.0 ms"
    assert shown("version", "any") == "any version"


@pytest.mark.parametrize(("flag", "name"), FLAGS.items())
def test_every_option_names_a_field(flag: str, name: str) -> None:
    note = note_of(f"{flag} must be something else")
    assert note.name == name
    assert "--" not in note.text
    assert name in DEFAULTS


def test_a_sentence_without_an_option_stands_at_the_model() -> None:
    assert note_of("nosuch is not served here").name == "model"


@pytest.mark.parametrize("cells", [32, 40, 56, 76])
def test_the_form_fits(cells: int) -> None:
    pane = LoadForm()
    pane.form.rows = rows_of(OPEN, drawn_box().snapshot.models)
    pane.form.values = {name: text for name, text in OPEN.items() if text != DEFAULTS[name]}
    pane.form.notes = (note_of("--rate must be a number from 0.1 to 50000, A..B or A,B,C, not 'x'"),)
    lines = texts(pane.lines(view(cells)), cells)
    assert any(line.startswith("rate        800 req/s") for line in lines)
    assert any("✗ rate must be" in line for line in lines)
    pane.form.opened, pane.form.text = "rate", "1" * 200
    assert any(line.endswith("1_") for line in texts(pane.lines(view(cells)), cells))


def test_the_foot_tells_what_it_comes_to_and_who_else_is_there() -> None:
    pane = LoadForm()
    pane.form.rows = rows_of(OPEN, drawn_box().snapshot.models)
    pane.told, pane.going, pane.others = "open loop, Poisson, 800/s for 120 s", (RUNNING, RUNNING), 1650.0
    foot = [plain(line) for line in pane.foot_lines(view(60))]
    assert foot == [
        "open loop, Poisson, 800/s for 120 s",
        "▲ also running and 1 more: ana, recall open loop, constant,",
        "  800/s",
        "also served now, by others: 1650/s",
    ]
    assert pane.foot_lines(view(60, 3)) == []


def test_what_runs_is_told_in_the_order_of_the_form() -> None:
    pane = LoadForm()
    pane.current = running({**OPEN, "live_limits": "4"})
    lines = texts(pane.lines(view(42)), 42)
    assert [line[:12].strip() for line in lines if line[:12].strip()] == [
        "model", "inputs", "mode", "rate", "for", "goal", "stop if", "or live", "answers", "from",
    ]  # fmt: skip
    assert lines[0] == "model       ranking, any version"
    assert "rate        800/s" in lines
    assert "goal        p99 ≤ 5 ms" in lines
    assert plain(pane.title(view(42))) == "Run 13   running"
    assert plain(pane.note(view(42))) == "x stop"


# ----------------------------------------------------------------------------------------------------------------- now


def _now(run: Run | None = None, current: Current | None = None) -> LoadNow:
    pane = LoadNow()
    pane.run, pane.current = run, current
    pane.means = Told("", "", "")
    return pane


@pytest.mark.parametrize("cells", [59, 74, 98])
def test_a_running_load_tells_only_what_is_known(cells: int) -> None:
    now = running()
    now.samples += [progress(-3.0)]
    pane = _now(current=now)
    assert "warm-up: 3 s left" in texts(pane.lines(view(cells)), cells)[0]
    now.samples += [progress(float(at), p99=2.0 + at / 10) for at in range(1, 43)]
    assert now.phase() == "0:42 of 2:00"
    lines = texts(pane.lines(view(cells)), cells)
    assert lines[0].split()[:3] == ["ASKED", "SENT", "DONE"]
    assert lines[1].split()[:4] == ["req/s", "800", "800", "800"]
    assert lines[2].split() == ["p50", "p99"]
    assert lines[3].split()[:4] == ["latency", "ms", "2.30", "6.20"]
    assert "p90" not in "".join(lines)
    assert any("judged at the end" in line for line in lines)
    whole = " ".join(" ".join(lines).split())
    assert "ranking: mean 1.84 → 1.88 ms, ours too; others 1650 → 1648/s" in whole
    assert any(line.startswith("p99, 1 s") and "ms" in line for line in lines)
    now.stopping = True
    assert plain(pane.title(view(cells))) == "Now   stopping"


def test_a_load_that_has_said_nothing_yet() -> None:
    assert "opens its connections" in texts(_now(current=running()).lines(view(60)), 60)[0]


@pytest.mark.parametrize("cells", [59, 74, 98])
def test_an_ended_run_tells_all_that_its_record_holds(cells: int) -> None:
    run = made_run(13, live=LIVE)
    pane = _now(run)
    lines = texts(pane.lines(view(cells)), cells)
    whole = " ".join(" ".join(lines).split())
    assert lines[1].split()[0] == "req/s"
    assert "p99.9" in whole
    assert f"● p99 {run.client.latency.p99:.2f} ≤ 5 ms" in whole
    assert "server mean 1.88 ms: wait 0.39 + input 0.07 + infer 1.34 + output 0.08, batch 1.9" in whole
    assert "steady ● from its beginning to its end" in whole
    assert "client ● 1 % of one core, 32 connections; not the limit" in whole
    assert "errors none; sent 400, done 400 in 2:00" in whole
    assert "card not known: the cards were not read" in whole
    assert plain(pane.title(view(cells))) == "Run 13   ended"


def test_wrong_answers_and_other_errors_are_apart() -> None:
    errors = {"wrong content": Failed(3, "SCORE is empty"), "http 503": Failed(5, "Exceeds [/x] queue")}
    run = made_run(14, errors=errors, ended="stopped itself: 2.0 % errors")
    lines = texts(_now(run).lines(view(98)), 98)
    assert lines[1].split()[-2:] == ["5", "3"]
    assert "errors      ✗ 5 http 503: Exceeds [/x] queue" in lines
    assert "            ✗ 3 wrong content: SCORE is empty" in lines
    assert any("✗ p99" in line and "8 failed ones count as slower" in line for line in lines)
    assert plain(_now(run).title(view(98))) == "Run 14   stopped itself: 2.0 % errors"


def test_what_a_record_does_not_hold_is_not_made_up() -> None:
    bare = made_run(15, latencies=(), goal_ms=None, server=None, server_unknown="statistics are off")
    lines = texts(_now(bare).lines(view(98)), 98)
    assert "server      ? statistics are off" in lines
    assert not any(line.startswith("goal") for line in lines)
    assert next(line for line in lines if line.startswith("latency ms")).split()[2:8] == ["–"] * 6


def test_levels_and_several_models_have_lines_of_their_own() -> None:
    load = schedule.make("open", "50,100", 20.0)
    run = made_run(16, load=load)
    latency = run.client.latency
    stages = (Stage(50, 50, 0, 10, 500, 500, 0, latency), Stage(100, 100, 10, 10, 1000, 990, 10, latency, "it rose"))
    shares = (Share(280, 280, 280, latency, "", 0), Share(120, 119, 119, latency, "", 0, {"timeout": Failed(1)}))
    models = (Asked("ranking", "", 0.7, "", ""), Asked("recall", "7", 0.3, "", ""))
    run = changed(run, client=changed(run.client, stages=stages, shares=shares), models=models)
    lines = texts(_now(run).lines(view(74)), 74)
    assert any(line.split()[:2] == ["50", "50.0"] for line in lines)
    assert any(line.split()[:2] == ["100", "99.0"] and line.endswith("not steady") for line in lines)
    assert any(line.split()[:2] == ["ranking", "70"] for line in lines)
    assert any(line.split()[:3] == ["recall", "7", "30"] and line.split()[-2] == "1" for line in lines)


# -------------------------------------------------------------------------------------------------------- distribution


def test_linear_bands_as_drawn() -> None:
    run = made_run(13)
    ends = bounds(run, "linear")
    assert names_of(ends) == ["0–1 ms", "1–2 ms", "2–3 ms", "3–4 ms", "4 ms and more"]
    shape = Shape("linear", 13, ends, tuple(run.client.shape().shares(ends)))
    lines = texts(band_rows(shape, 80), 80)
    assert [line[18:27].strip() for line in lines] == ["0.0 %", "20.0 %", "70.0 %", "10.0 %", "0.0 %"]
    assert lines[2].count("█") > 3 * lines[1].count("█")


def test_log_bands_hold_all_that_was_seen() -> None:
    ends = bounds(made_run(13, latencies=(0.2, 1.0, 30.0, 400.0)), "log")
    assert ends[-1] >= 400
    assert len(ends) <= 8


def test_two_runs_over_each_other() -> None:
    first, second = made_run(13), made_run(12, latencies=[ms * 2 for ms in LATENCIES])
    found = record.compare(first, second)
    shape = Shape("with", 13, found.bounds_ms, found.shares[0], 12, found.shares[1])
    lines = texts(band_rows(shape, 60), 60)
    assert len(lines) == 2 * (len(found.bounds_ms) + 1)
    assert any("▓" in line for line in lines)
    pane = LoadDistribution()
    pane.shape, pane.other = shape, 12
    assert plain(pane.title(view(60))) == "Distribution   run 13 (█) and run 12 (▓)"


def test_views_go_round_and_leave_out_what_cannot_be() -> None:
    pane = LoadDistribution()
    assert [pane.next_view() and pane.kind for _ in range(3)] == ["log", "linear", "log"]
    pane.other = 12
    assert [pane.next_view() and pane.kind for _ in range(3)] == ["with", "linear", "log"]
    assert plain(pane.note(view(60))) == "v: linear, log, with run 12"


def test_no_answers_no_bars() -> None:
    assert "no request" in texts(band_rows(Shape("linear", 1, (1.0,), ()), 60), 60)[0]
    assert bar(0.0, 20, "█") == ""
    assert bar(0.0001, 20, "█") == "▏"
    assert bar(1.0, 20, "█") == "█" * 20
    assert bar(0.01, 20, "▓") == "▓"


# ---------------------------------------------------------------------------------------------------------------- runs


def _list(cells: int, *, current: Current | None = None, marked: tuple[int, ...] = ()) -> list[str]:
    pane = LoadRuns()
    pane.runs, pane.current, pane.marked = some_runs(), current, marked
    return texts(pane.lines(view(cells)), cells)


def test_runs_as_drawn() -> None:
    now = running()
    now.samples.append(progress(42.0))
    lines = _list(116, current=now, marked=(12, 10))
    assert lines[0].split() == ["RUN", "MODEL", "STARTED", "MODE", "RATE", "DONE/s", "p50", "p99", "ERR", "GOAL",
                                "DELAY", "MAX", "NOTE"]  # fmt: skip
    assert lines[1].split()[:3] == ["▸", "13", "ranking"]
    assert lines[1].endswith("0:42 of 2:00")
    assert lines[3].split()[:3] == ["+", "12", "ranking"]
    bad = next(at for at, line in enumerate(lines) if "▲" in line)
    assert lines[bad].split()[:3] == ["▲", "11", "ranking"]
    assert lines[bad].split().count("–") == 5
    assert "loaded anew" in " ".join(lines[bad : bad + 3])
    assert lines[-1].endswith("closed: hides stalls")
    assert lines[-1].split()[4:6] == ["closed", "16"]


@pytest.mark.parametrize("cells", [76, 80, 96, 116, 156])
def test_columns_drop_and_figures_stay(cells: int) -> None:
    lines = _list(cells)
    assert {"RUN", "MODEL", "RATE", "DONE/s", "p50", "p99", "GOAL", "NOTE"} <= set(lines[0].split())
    assert ("INST" in lines[0]) == (cells >= 120)
    assert all(width(line) <= cells for line in lines)


def test_space_marks_two_and_a_third_takes_the_place_of_the_first() -> None:
    pane = LoadRuns()
    pane.runs = some_runs()
    marked = []
    for number in (13, 12, 11, 12):
        pane.cursor = number
        assert pane.mark()
        marked.append(pane.marked)
    assert marked == [(13,), (13, 12), (12, 11), (11,)]
    pane.cursor = load_runs.RUNNING
    assert not pane.mark()


def test_notes_tell_the_worst_first() -> None:
    assert note_of_run(made_run(1, not_valid="[/x] changed", ended="stopped"))[1] == "not valid: [/x] changed"
    assert note_of_run(made_run(1, ended="stopped"))[1] == "stopped"
    assert note_of_run(made_run(1, steady="p50 rose"))[1] == "not steady: p50 rose"
    assert note_of_run(made_run(0, notes=("the run is not kept: disk full",)))[1] == "the run is not kept: disk full"
    assert note_of_run(made_run(1, load=CLOSED))[1] == "closed: hides stalls"
    assert note_of_run(made_run(1))[1] == ""


# ------------------------------------------------------------------------------------------------------------- compare


@pytest.mark.parametrize("cells", [76, 96, 156])
def test_two_runs_side_by_side(cells: int) -> None:
    _, bad, slow, fast = some_runs()
    pane = LoadCompare()
    assert "reckoning" in texts(pane.lines(view(cells)), cells)[0]
    pane.pair, pane.found = (slow, fast), record.compare(slow, fast)
    lines = texts(pane.lines(view(cells)), cells)
    assert lines[0].split() == ["RUN", "12", "RUN", "13", "CHANGE"]
    p50 = next(line for line in lines if line.startswith("p50 ms")).split()
    assert float(p50[2]) > float(p50[3])
    assert p50[4].startswith("-")
    assert any(line.startswith("delay") and "≠ 2000 µs" in line and "500 µs" in line for line in lines)
    assert any(line.startswith("max batch") and "≠" not in line for line in lines)
    pane.pair, pane.found = (bad, fast), record.compare(bad, fast)
    assert any(NOT_VALID in line for line in texts(pane.lines(view(cells)), cells))


def test_a_closed_and_an_open_loop_are_not_the_same_thing() -> None:
    closed, *_, fast = some_runs()
    pane = LoadCompare()
    pane.pair, pane.found = (closed, fast), record.compare(closed, fast)
    assert "not the same thing" in " ".join(texts(pane.lines(view(76)), 76))


# --------------------------------------------------------------------------------------------------------------- files


def test_exports_hold_the_unrounded_figures(tmp_path: Path) -> None:
    runs = some_runs()
    read = list(csv.reader(io.StringIO(csv_of(load_runs.table(runs)))))
    assert tuple(read[0]) == load_runs.HEADS
    row = dict(zip(read[0], read[-1], strict=True))
    assert (row["run"], row["goal_met"], row["not_valid"]) == ("13", "yes", "")
    assert float(row["p99_ms"]) == runs[-1].client.latency.p99
    assert dict(zip(read[0], read[2], strict=True))["not_valid"] == NOT_VALID
    found = record.compare(runs[2], runs[3])
    told = markdown_of(load_compare.table((runs[2], runs[3]), found))
    assert told.splitlines()[0] == "|  | run 12 | run 13 | change |"
    assert "| delay | 2000 µs | 500 µs | differs |" in told


def test_a_name_is_no_formula_and_no_markup() -> None:
    rows = [("a", "b"), ("=cmd()|x", "-1.5"), ("@y", "<b>|")]
    assert csv_of(rows).splitlines()[1:] == [" =cmd()|x,-1.5", " @y,<b>|"]
    assert markdown_of(rows).splitlines()[3] == "| @y | \\<b\\>\\| |"


# ---------------------------------------------------------------------------------------------------------------- plan


def _plan(values: Mapping[str, str] = OPEN, settling: frozenset[str] = frozenset()) -> Plan:
    doors = FakeDoors()
    snapshot = drawn_box().snapshot
    command = doors.command(values)
    return shown_plan(doors.plan(values), 13, "infer-01", snapshot, (RUNNING,), settling, command, values, NOW)


def test_what_was_loaded_just_now_is_not_called_others_traffic() -> None:
    told = [check.text for check in _plan(settling=frozenset({"ranking"})).checks]
    assert "what others send ranking cannot be told for ten seconds after a load on it" in told
    assert not any("others send ranking" in one and "now" in one for one in told)
    assert not any("ranking are busy" in one for one in told)


@pytest.mark.parametrize("cells", [76, 80, 112])
def test_the_plan_tells_what_is_sent_and_who_feels_it(cells: int) -> None:
    plan = _plan({**OPEN, "live_limits": "4"})
    whole = " ".join(" ".join(texts(plan_rows(plan, cells), cells)).split())
    assert plan.title == "Load ranking for 2 m"
    assert (plan.danger, plan.yes, plan.confirm, plan.here) == ("caution", "Start", "", True)
    for wanted in (
        "● ranking 2 answers at 127.0.0.1:8000: this machine, infer-01",
        "▲ others send ranking 1650/s now, mean 2.94 ms: they wait longer while it runs",
        "the instances of ranking are busy 31 % of the time",
        "▲ other models serve beside it and share CPU and card:",
        "▲ ana loads recall now (open loop, constant, 800/s)",
        "about 96000 requests",
        "POST /v2/models/ranking/infer",
        "stops itself above 1 % errors",
        "stops itself when the mean of a model that others ask goes above 4 ms",
        "gpuconsole loadtest ranking --rate 800 --poisson --duration 2m --warmup 2s --slo-p99-ms 5 --max-live-ms 4",
    ):
        assert wanted in whole, wanted
    assert plan.limit == 120 + 2 + 30


def test_a_closed_loop_does_not_say_how_many() -> None:
    values = {**DEFAULTS, "model": "ranking", "callers": "16"}
    assert most_requests(FakeDoors().plan(values)) is None
    assert "each caller asks again" in " ".join(step.text for step in _plan(values).steps)


# --------------------------------------------------------------------------------------------------------------- words


def test_an_end_in_words() -> None:
    run = made_run(13)
    assert outcome_words(run) == f"load 13 on ranking: 3.3/s, p99 {run.client.latency.p99:.2f} ms, goal p99 ≤ 5 ms met"
    assert sign_of(run) == "ok"
    assert sign_of(made_run(13, goal_ms=1.0)) == "fail"
    assert sign_of(made_run(13, ended="stopped")) == "warn"
    event = end_event(made_run(13, not_valid="it was changed"))
    assert (event.sign, event.kind, event.model, event.origin) == ("warn", "load.end", "ranking", "ops@192.0.2.7")
    assert event.text.endswith("not valid: it was changed")


# -------------------------------------------------------------------------------------------------- of other programs


@pytest.mark.parametrize("cells", [59, 74, 98])
def test_another_programs_figures_are_told_as_that(cells: int) -> None:
    pane = _now()
    pane.foreign = FOREIGN
    lines = texts(pane.lines(view(cells)), cells)
    whole = " ".join(" ".join(lines).split())
    assert plain(pane.title(view(cells))) == "Run 14   by perf_analyzer 2.51.0"
    assert "a closed loop hides stalls" in whole
    assert "wait 0.40 + input 0.07 + infer 1.34 + output 0.08" in whole
    assert "not told ? stalls, p99.9 and max" in whole
    assert "p99.9" not in lines[2]


def test_another_programs_run_stands_in_its_place() -> None:
    pane = LoadRuns()
    pane.runs, pane.foreign = some_runs(), (FOREIGN,)
    lines = texts(pane.lines(view(116)), 116)
    assert lines[1].split()[:3] == ["14", "ranking", "2"]
    assert lines[1].split()[6:10] == ["5690", "2.80", "3.90", "?"]
    assert "perf_analyzer 2.51.0" in lines[1]
    pane.cursor = 14
    assert pane.other_programs() is FOREIGN
    assert pane.run() is None
    assert pane.mark()
    read = list(csv.reader(io.StringIO(csv_of(load_runs.table(pane.runs, pane.foreign)))))
    row = dict(zip(read[0], read[-1], strict=True))
    assert (row["engine"], row["errors"], row["p99_ms"]) == ("perf_analyzer 2.51.0", "", "3.9")


def test_only_what_both_tell_is_compared() -> None:
    ours = some_runs()[0]
    pane = LoadCompare()
    pane.pair, pane.found = (ours, FOREIGN), record.compare(ours, FOREIGN)
    lines = texts(pane.lines(view(96)), 96)
    assert not any(line.startswith("p99.9") for line in lines)
    assert not any("DISTRIBUTION" in line for line in lines)
    assert any(line.startswith("engine") and "≠ gpuconsole" in line for line in lines)
    assert any("tells no distribution" in line for line in lines)
    told = load_compare.table(pane.pair, pane.found)
    assert told[-1][0] == "note"


# -------------------------------------------------------------------------------------------------------------- header


LOADING = ("LOAD 13 ranking 0:42 of 2:00 ctrl+x", "LOAD 0:42/2:00 ctrl+x")


def _header(cells: int, **more: Any) -> str:
    status = Status("infer-01", 2.2, 62 << 20, load=LOADING, **more)
    text = plain(header_line(view(0), status, cells))
    assert width(text) == cells
    return text


def test_the_header_tells_the_load_as_drawn() -> None:
    start = "gpuconsole  infer-01  06:04:31 UTC  ● SERVING 3 of 4  LOAD 13 ranking 0:42 of 2:00 ctrl+x   "
    assert _header(120, details=True).startswith(start)
    assert _header(160).startswith(start.replace("infer-01  06", "infer-01  Rocky 8.10  06").replace("UTC  ", "UTC   "))
    assert _header(80).startswith("infer-01 06:04:31Z ● SERVING 3/4 LOAD 0:42/2:00 ctrl+x ")
    assert "READ-ONLY" in _header(120, details=True, read_only=True)


def test_a_change_and_a_load_stand_side_by_side() -> None:
    acting = "SWAP lm 4/6, 0:29, by ops"
    assert "▲ SWAP lm 4/6, 0:29, by ops" in _header(160, acting=acting)
    assert "LOAD 13 ranking 0:42 of 2:00 ctrl+x" in _header(160, acting=acting)
    assert "LOAD 0:42/2:00 ctrl+x" in _header(100, acting=acting, details=True)
