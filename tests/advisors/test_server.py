"""The server: V01 to V04; models that do not answer: V13, V14, V16."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.advisors.memory import Memory
from console.advisors.rule import Look
from console.advisors.server import last_start, load_reason
from console.advisors.table import table
from console.advisors.why import Why
from console.core.finding import Cause, MendingStep, Report
from console.core.history import History
from console.core.model import (
    Asked,
    ContainerState,
    DiskModel,
    Event,
    Failure,
    HostState,
    ModelRow,
    PodmanState,
    Reading,
    Repository,
    Serving,
    Snapshot,
    TritonMetrics,
    TritonServer,
    Verdict,
)
from tests.advisors.cases import MONO, NOW, config, good, ids, later, once, row, snapshot, window

REFUSED = Failure("unavailable", "connection refused on 127.0.0.1:8000")
SILENT = Failure("timeout", "no answer within 2 s")


def failing(part: str, error: Failure, seconds: float, *, served: bool = True) -> Reading[Any]:
    value = TritonServer("http://x", True, True, "2.51.0") if served and part == "triton.server" else None
    mono = MONO - seconds - 1 if value else None
    return Reading(part, 1.0, value, mono and NOW - seconds - 1, mono, error, MONO - seconds, NOW - seconds)


def container(state: str = "exited", **other: Any) -> Reading[PodmanState]:
    plain: dict[str, Any] = {"started_wall": NOW - 500}
    found = ContainerState("c" * 64, "triton", state, "name", **{**plain, **other})
    return good("container", PodmanState("unix:///x", "rootful", container=found), 2.0)


def down(**other: Any) -> Snapshot:
    plain: dict[str, Any] = {
        "wall": NOW,
        "mono": MONO,
        "server": failing("triton.server", REFUSED, 10),
        "metrics": failing("triton.metrics", REFUSED, 10),
        "serving": Serving("DOWN"),
        "container": container(exit_code=126, finished_wall=NOW - 9),
    }
    return Snapshot(**{**plain, **other})


def told(box: Snapshot, id_: str, **asked: Any) -> Verdict | None:
    return next((one for one in once(box, **asked) if one.id == id_), None)


# ------------------------------------------------------------------------------------------------------------- V01


def looked(ago: float, *causes: Cause) -> Reading[Report]:
    return good("checks", Report(NOW - ago, 1.0, "box", (), causes), 300.0)


def test_down_for_a_cause_that_the_checklist_found() -> None:
    steps = (MendingStep("B07", "write the spec"), MendingStep("", "the unit starts by itself"))
    signs = ("B07 names libraries of 550.90.07", "A06 loaded driver is 570.86.15", "E01 the start error names one")
    cause = Cause("B07", "the container cannot start: stale spec", "sure, 3 of 3 signs", "fail", signs, ("E01",), steps)
    found = told(down(checks=looked(5, cause)), "V01")
    assert found is not None
    assert (found.title, found.trust, found.next_key) == ("the container cannot start: stale spec", "sure", "6")
    assert found.lines[:3] == (*signs[:2], "mend: B07 write the spec, then the unit starts by itself")
    before = told(down(checks=looked(60, cause)), "V01")
    assert before is not None
    assert before.title.startswith("triton is not running: exit 126"), "that look was before the stop"
    other = Cause("F01", "powersave", "sure", "warn")
    unlinked = told(down(checks=looked(5, other)), "V01")
    assert unlinked is not None
    assert unlinked.title.startswith("triton is not running"), "it has nothing to do with the stop"


def test_a_container_that_ended() -> None:
    found = once(down())
    assert ids(found) == ["V01", "V39"]
    assert found[0].title == "triton is not running: exit 126"
    assert found[0].since_wall == NOW - 9
    assert found[1].title == "models: cannot tell before the server answers"


def test_its_last_words_are_told() -> None:
    reading = container(exit_code=137, oom_killed=True, error="conmon: x", unit="triton.service")
    assert reading.value
    reading = replace(reading, value=replace(reading.value, last_log=("first", "\x1b[31mlast\x1b[0m", "  ")))
    event = Event(NOW - 30, "fail", "triton.service start 118 failed", "(journal)", "unit.ended")
    found = told(down(container=reading, events=(event,)), "V01")
    assert found
    assert found.title == "triton is not running: exit 137, killed for memory"
    assert "last line: \\x1b[31mlast\\x1b[0m" in found.lines
    assert "conmon: x" in found.lines
    assert "unit triton.service: triton.service start 118 failed" in found.lines


def test_no_container_but_a_unit_that_failed() -> None:
    event = Event(NOW - 30, "fail", "triton.service start 118 failed, exit 126", "(journal)", "unit.ended")
    none = good("container", PodmanState("unix:///x", "rootful"), 2.0)
    box = down(container=none, server=failing("triton.server", REFUSED, 10, served=False), events=(event,))
    found = told(box, "V01")
    assert found
    assert found.title == "triton is not running: triton.service start 118 failed, exit 126"
    assert found.since_wall == NOW - 30


def test_where_nothing_ever_served_nothing_is_wrong() -> None:
    none = good("container", PodmanState("unix:///x", "rootful"), 2.0)
    assert once(down(container=none, server=failing("triton.server", REFUSED, 10, served=False))) == ()


def test_models_on_disk_are_a_hint_that_it_should_serve() -> None:
    none = good("container", PodmanState("unix:///x", "rootful"), 2.0)
    disk = good("repository", Repository("/models", models=(DiskModel("m", "/models/m"),)), 10.0)
    box = down(container=none, server=failing("triton.server", REFUSED, 10, served=False), repository=disk)
    assert ids(once(box)) == ["V01", "V39"]


def test_one_refused_connection_is_none() -> None:
    assert told(down(server=failing("triton.server", REFUSED, 1)), "V01") is None


def test_a_running_container_where_nobody_listens() -> None:
    found = told(down(container=container("running")), "V01")
    assert found
    assert found.trust == "likely"
    assert found.title.startswith("triton runs, but nobody answers")
    metrics = good("triton.metrics", TritonMetrics("x"))
    assert told(down(container=container("running"), metrics=metrics), "V01") is None


@pytest.mark.parametrize(
    ("state", "words"), [("running", "triton runs, but nobody answers"), ("paused", "triton is paused: nobody answers")]
)
def test_a_server_that_hangs_as_a_whole(state: str, words: str) -> None:
    hangs = {"container": container(state), "server": failing("triton.server", SILENT, 7)}
    found = told(down(**hangs), "V01")
    assert found
    assert found.title.startswith(words)
    assert told(down(**{**hangs, "server": failing("triton.server", SILENT, 5)}), "V01") is None
    metrics = good("triton.metrics", TritonMetrics("x"))
    assert told(down(**hangs, metrics=metrics), "V01") is None, "V02 tells that"


def test_without_podman_the_container_cannot_be_told() -> None:
    blind: Reading[PodmanState] = Reading("container", 2.0, error=Failure("permission", "may not"), error_mono=MONO - 9)
    found = told(down(container=blind), "V01")
    assert found
    assert found.trust == "likely"
    assert "may not" in found.lines[0]


def test_a_silent_or_starting_server_is_not_down() -> None:
    assert told(down(server=failing("triton.server", SILENT, 10)), "V01") is None
    assert told(down(serving=Serving("STARTING")), "V01") is None


# ------------------------------------------------------------------------------------------------------- V02 and V03


def test_http_workers_held() -> None:
    metrics = good("triton.metrics", TritonMetrics("x"))
    running = container("running")
    box = down(server=failing("triton.server", SILENT, 7), metrics=metrics, container=running)
    found = told(box, "V02")
    assert found
    assert found.trust == "likely"
    assert found.lines == ("silent for 7 s",)
    assert told(replace(box, server=failing("triton.server", SILENT, 4)), "V02") is None
    assert told(replace(box, metrics=failing("triton.metrics", REFUSED, 10)), "V02") is None
    assert told(replace(box, container=container("exited")), "V02") is None


def start(wall: float) -> Event:
    return Event(wall, "note", "container triton started", "(podman)", "container.start")


def ready(wall: float) -> Event:
    return Event(wall, "ok", "m 1 is READY", "(index)", "model.ready", "m")


def test_starting_with_how_long_it_took_last_time() -> None:
    events = (start(NOW - 900), ready(NOW - 872), start(NOW - 41))
    loading = ModelRow("lm", "1", "LOADING")
    box = snapshot(
        loading, container=container("running", started_wall=NOW - 41), events=events, serving=Serving("STARTING", 0, 1)
    )
    found = told(box, "V03")
    assert found
    assert found.title == "starting for 41 s, 28 s last time"
    assert found.lines == ("now loading lm",)


@pytest.mark.parametrize(("age", "here"), [(80, True), (90, False)])
def test_a_start_that_takes_three_times_as_long_is_no_start(age: float, here: bool) -> None:
    events = (start(NOW - 900), ready(NOW - 872), start(NOW - age))
    box = down(container=container("running", started_wall=NOW - age), events=events, serving=Serving("STARTING"))
    assert (told(box, "V03") is not None) == here


@pytest.mark.parametrize(("age", "here"), [(119, True), (121, False), (-5, False)])
def test_without_a_start_before_two_minutes_are_allowed(age: float, here: bool) -> None:
    box = down(container=container("running", started_wall=NOW - age), serving=Serving("STARTING"))
    assert (told(box, "V03") is not None) == here


def test_a_server_that_serves_is_not_starting() -> None:
    box = snapshot(row(None, config(), flow=None), container=container("running", started_wall=NOW - 5))
    assert told(box, "V03") is None
    assert told(down(container=container("exited", started_wall=NOW - 5)), "V03") is None


def test_the_last_start_is_read_from_events() -> None:
    look = Look(Snapshot(events=(start(10), ready(15), start(50), ready(57), ready(58))), History(), Memory(), table())
    assert last_start(look, 100) == 7
    assert last_start(look, 50) == 5
    assert last_start(look, 5) is None


# ------------------------------------------------------------------------------------------------------------- V04

TENSORRT = (
    "Internal: unable to create TensorRT engine: (The engine plan file is not compatible with this version of "
    "TensorRT, expecting library version 10.0.1 got 8.5.3.1)"
)


def broken(reason: str = TENSORRT) -> ModelRow:
    return ModelRow("rerank", "3", "UNAVAILABLE", reason, failed_load=True)


SERVES = row(None, config(), flow=None)


def test_a_failed_model_and_what_follows_from_it() -> None:
    event = Event(NOW - 99, "fail", "rerank 3 failed to load", "(index)", "model.failed", "rerank")
    found = once(snapshot(SERVES, broken(), ready=False, events=(event,)))
    assert [(v.id, v.sign, v.model) for v in found] == [("V04", "fail", "rerank")]
    assert found[0].title == "rerank 3 cannot load: its engine was made by another TensorRT"
    assert found[0].consequences == ("ready is 400 for that reason: probes may drop this box, though 1 model serves",)
    assert found[0].since_wall == NOW - 99


def test_with_ready_at_200_a_failed_model_has_no_consequence() -> None:
    found = once(snapshot(SERVES, broken()))
    assert found[0].consequences == ()


@pytest.mark.parametrize("state", ["LOADING", "UNLOADING"])
def test_a_swap_is_normal_for_two_minutes(state: Any) -> None:
    moving = ModelRow("lm", "2", state, since_mono=MONO - 30)
    found = once(snapshot(SERVES, moving, ready=False))
    assert [(v.id, v.sign, v.trust) for v in found] == [("V04", "warn", "sure")]
    assert found[0].title == "ready is 400 while lm swaps; that is normal"
    hangs = once(snapshot(SERVES, replace(moving, since_mono=MONO - 150), ready=False))
    assert hangs[0].title == f"lm has been {state.lower()} for 2 m: ready is 400 as long"
    assert hangs[0].trust == "likely"


def test_a_dark_lamp_that_nothing_explains() -> None:
    found = once(snapshot(SERVES, ready=False))
    assert [(v.id, v.trust) for v in found] == [("V04", "cannot tell")]


def test_lamps_that_cannot_be_read_are_not_dark() -> None:
    server = good("triton.server", TritonServer("x", True, None))
    assert once(snapshot(SERVES, server=server)) == ()
    assert once(snapshot(ready=False)) == ()


def test_ready_with_a_reason_is_a_failed_update() -> None:
    found = once(snapshot(replace(SERVES, reason="Resource count for bus is limited to 1\nmore")))
    assert [(v.id, v.sign) for v in found] == [("V04", "warn")]
    assert found[0].title == "m 1 serves, but its last update failed: Resource count for bus is limited to 1"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (TENSORRT, "its engine was made by another TensorRT"),
        ("Internal: CUDA error: out of memory", "out of GPU memory"),
        (
            "Internal: ModuleNotFoundError: No module named 'x'\n\nAt:\n  /m.py(3)",
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("NotImplementedError: x", "NotImplementedError: x"),
        ("", "no reason given"),
        ("\n\n", "no reason given"),
        ("[/x] \x1b[2J", "[/x] \\x1b[2J"),
    ],
)
def test_reasons_in_plain_words(reason: str, words: str) -> None:
    assert load_reason(Look(Snapshot(), History(), Memory(), table()), reason) == words


# ------------------------------------------------------------------------------------------------------------- V13


def python_model(instances: int = 1, **other: Any) -> ModelRow:
    return row(None, config(backend="python", instances=instances), flow=None, **other)


def host(stubs: dict[str, tuple[int, ...]], zombies: tuple[int, ...] = (), **other: Any) -> Reading[HostState]:
    return good("host", HostState(stub_pids=stubs, zombies=zombies, **other))


def test_a_dead_python_process() -> None:
    found = once(snapshot(python_model(), host=host({"n/1": (7,)}, (9,))))
    assert ids(found) == ["V13"]
    assert found[0].title == "m is READY but its Python process is dead: answers are 500"
    assert "zombie children of tritonserver: 9" in found[0].lines


def test_one_of_three_is_dead() -> None:
    found = once(snapshot(python_model(3), host=host({"m/1": (7, 8)})))
    assert found[0].title == "m is READY but 1 of 3 Python processes are dead"


@pytest.mark.parametrize(
    "reading",
    [
        host({"m/1": (7,)}),
        host({"m/1": (7, 8)}),
        host({}),
        host({}, (9,), missing={"stub_pids": "may not be read"}),
        Reading("host", 1.0),
    ],
)
def test_living_or_unseen_processes_are_not_dead(reading: Reading[HostState]) -> None:
    assert once(snapshot(python_model(), host=reading)) == ()


def test_a_zombie_alone_convicts_nobody_whose_processes_live() -> None:
    assert once(snapshot(python_model(), host=host({"m/1": (7,)}, (9,)))) == ()


def test_other_back_ends_have_no_python_process() -> None:
    model = row(None, config(backend="onnxruntime"), flow=None)
    assert once(snapshot(model, host=host({}, (9,)))) == ()


def test_its_failures_are_consequences() -> None:
    failing_row = row(
        window(rate=0, fail_rate=1, batch=None, wait=None, compute=None),
        config(backend="python"),
        failures={"BACKEND": 1.0},
        pending=(5.0,) * 30,
    )
    found = once(snapshot(failing_row, host=host({"n/1": (7,)}, (9,))))
    assert ids(found) == ["V13"]
    assert found[0].consequences == ("m fails 1.0/s in the model",)


# ------------------------------------------------------------------------------------------------------- V14 and V16


def hung(pending: float = 6.0, **stats: Any) -> Snapshot:
    idle = window(rate=0, batch=None, wait=None, compute=None, busy=0, sizes={})
    counts = {"success_count": 500, "execution_count": 500, **stats}
    model = row(idle, config(), pending=(pending,) * 30, stats=counts)
    assert model.flow
    assert model.flow.stats
    return snapshot(model)


def test_requests_wait_and_none_is_answered() -> None:
    why, box = Why(hold=False), hung()
    looked = [ids(why.evaluate(later(box, at), History())) for at in (0, 5, 10)]
    assert looked[-1] == ["V14"]
    assert once(box)[0].id == "V14", "30 s of samples are enough for one look"


def test_a_model_that_answers_now_and_then_is_not_hung() -> None:
    why = Why(hold=False)
    for at in range(0, 40, 5):
        box = hung(success_count=500 + at)
        assert box.models[0].flow
        short = replace(box.models[0], flow=replace(box.models[0].flow, w30=None))
        assert "V14" not in ids(why.evaluate(later(replace(box, models=(short,)), at), History()))


def test_without_new_statistics_nobody_knows_whether_one_was_answered() -> None:
    why, box = Why(hold=False), hung()
    why.evaluate(box, History())
    after = later(box, 15)
    assert "V14" in ids(why.evaluate(after, History()))
    assert "V14" not in ids(why.evaluate(replace(after, stats=box.stats), History()))


def test_nothing_waits_nothing_hangs() -> None:
    assert "V14" not in ids(once(hung(0.0)))


def test_a_failed_question() -> None:
    answer = Asked("m", None, False, NOW - 9, 12.0, "500: bad [/x]")
    box = snapshot(row(window(rate=40, compute=15), config()))
    found = told(box, "V16", asked={"m": answer})
    assert found
    assert found.sign == "fail"
    assert "500: bad [/x]" in found.title
    assert found.lines == ("though READY and 40.0 successes/s counted",)
    assert told(box, "V16", asked={"m": replace(answer, ok=True)}) is None
    assert told(box, "V16", asked={"n": answer}) is None
    assert told(box, "V16", asked={"m": replace(answer, version="2")}) is None
    assert told(snapshot(SERVES), "V16", asked={"m": answer}).lines == ("though READY",)  # type: ignore[union-attr]
    assert told(box, "V16", asked={"m": replace(answer, ok=None, text="it answers in a stream")}) is None


def test_an_answer_that_is_not_the_kept_one() -> None:
    answer = Asked("m", None, True, NOW - 9, 12.0, "y FP32 [1] 3", compared="y: value 0 is 3, kept 2")
    box = snapshot(row(window(rate=40, compute=15), config()))
    found = told(box, "V16", asked={"m": answer})
    assert found
    assert "not as kept: y: value 0 is 3, kept 2" in found.title
    assert told(box, "V16", asked={"m": replace(answer, compared="")}) is None
