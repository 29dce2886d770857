"""Which cause stands on top, with its minute and its evidence."""

from __future__ import annotations

from console.bundle.cause import Grounds, Suspect, changes_before, suspects
from console.bundle.past import Figure, Past, Seen
from console.core.finding import Cause, Report
from console.core.model import Event, LogLine, Verdict

GIB = 1 << 30


def event(wall: float, kind: str, text: str, sign: str = "fail", **more: object) -> Event:
    return Event(wall, sign, text, "(test)", kind, **more)  # type: ignore[arg-type]


def top(*events: Event, **grounds: object) -> Suspect:
    past = Past(events=events)
    return suspects(Grounds(past, **grounds))[0]  # type: ignore[arg-type]


def test_nothing_wrong_is_no_cause() -> None:
    assert suspects(Grounds(Past())) == ()
    assert suspects(Grounds(Past(events=(event(1.0, "model.ready", "a 1 is READY", "ok"),)))) == ()


def test_a_killed_container_stands_before_a_model_that_fails() -> None:
    told = (
        event(100.0, "model.failed", "rank 3 failed to load", model="rank", detail=("Internal: boom",)),
        event(200.0, "container.kill", "container triton was sent a signal", "note"),
        event(200.4, "container.died", "container triton ended, exit 137", detail=("it was killed (SIGKILL)",)),
    )
    found = suspects(Grounds(Past(events=told), kernel_read=True))
    assert [(one.title, one.wall) for one in found] == [
        ("container triton ended, exit 137", 200.4),
        ("rank 3 failed to load: Internal: boom", 100.0),
    ]
    evidence = " / ".join(found[0].evidence)
    assert "was sent a signal" in evidence
    assert "no change of gpuconsole asked for it" in evidence
    assert "the kernel's log tells of no kill for memory" in evidence


def test_a_kernel_log_that_was_not_read_excludes_nothing() -> None:
    died = event(200.0, "container.died", "container triton ended, exit 137")
    assert "could not be read: a kill for memory is possible" in top(died).evidence[-1]


def test_an_oom_kill_is_the_cause_of_the_end() -> None:
    oom = event(199.5, "oom", "the kernel killed tritonserver (12): the host's memory ran out")
    died = event(200.0, "container.died", "container triton ended, exit 137")
    found = suspects(Grounds(Past(events=(oom, died)), kernel_read=True))
    assert found[0].title == oom.text
    assert found[1].evidence[-1] == f"the kernel told of it: {oom.text}"


def test_what_an_operator_asked_for_is_no_cause() -> None:
    act = event(199.0, "act.container.restart", "restart triton", "note")
    died = event(200.0, "container.died", "container triton ended, exit 137")
    failed = event(300.0, "model.failed", "a 1 failed to load", model="a")
    found = suspects(Grounds(Past(events=(act, died, failed))))
    assert [one.title for one in found] == [
        "a 1 failed to load",
        "container triton ended, exit 137, as a change asked for",
    ]
    assert changes_before(Grounds(Past(events=(act,))), 300.0) == [act]


def test_the_log_explains_a_failed_load() -> None:
    lines = (
        LogLine(99.0, "stderr", "loading: rank:3", "I"),
        LogLine(99.9, "stderr", "Error Code 1: Serialization (Version tag does not match. Note: Current Version: 239, "
                "Serialized Engine Version: 236)", "E"),
        LogLine(100.0, "stderr", "failed to load 'rank' version 3: Internal: unable to load plan file", "E"),
    )  # fmt: skip
    failed = event(100.0, "model.failed", "rank 3 failed to load", model="rank", detail=("Internal: unable to load",))
    found = top(failed, lines=lines)
    assert found.title == "rank 3 failed to load: the engine was built by another version of TensorRT"
    assert any("Serialization" in line for line in found.evidence)
    assert found.evidence[-1].endswith("`gpuconsole explain L05`")


def test_verdicts_count_from_when_they_were_first_said_and_once() -> None:
    verdict = Verdict("V04", "fail", "rank 3 cannot load", model="rank")
    seen = Seen(verdict, 101.0, 160.0, stands=False)
    failed = event(100.0, "model.failed", "rank 3 failed to load", model="rank")
    assert len(suspects(Grounds(Past(seen=(seen,), events=(failed,))))) == 1, "the event tells the same"
    (alone,) = suspects(Grounds(Past(seen=(seen,))))
    assert (alone.title, alone.wall) == ("rank 3 cannot load", 101.0)
    assert alone.evidence[-1].startswith("until ")


def test_warnings_of_the_checklist_count_where_nothing_else_is_known() -> None:
    report = Report(causes=(Cause("K01", "no unit", "sure", "warn"),))
    (only,) = suspects(Grounds(Past(), report=report))
    assert (only.title, only.wall) == ("no unit", None)
    failed = event(100.0, "model.failed", "a 1 failed to load", model="a")
    assert [one.title for one in suspects(Grounds(Past(events=(failed,)), report=report))] == ["a 1 failed to load"]


def test_a_server_that_does_not_answer_is_said_where_nothing_tells_why() -> None:
    (only,) = suspects(Grounds(Past(), serving="NOT ANSWERING"))
    assert (only.title, only.wall, only.sign) == ("NOT ANSWERING", None, "fail")
    died = event(200.0, "container.died", "container triton ended, exit 1")
    assert [one.title for one in suspects(Grounds(Past(events=(died,)), serving="DOWN"))] == [died.text]


def figure(wall: float, used: float | None) -> Figure:
    return Figure(wall, "SERVING", 1, 1, None if used is None else int(used * GIB), 16 * GIB, 50.0, 10.0, 2.0, 0.0)


def test_memory_that_rose_is_told_with_both_moments() -> None:
    rising = tuple(figure(60.0 * n, 4 + n) for n in range(8))
    (found,) = suspects(Grounds(Past(figures=rising), utc=True))
    assert found.title == "GPU memory rose from 4.0 GiB at 00:00:00 to 11.0 GiB at 00:07:00, of 16.0 GiB"
    assert suspects(Grounds(Past(figures=tuple(figure(60.0 * n, 4) for n in range(8))))) == ()
    assert suspects(Grounds(Past(figures=tuple(figure(60.0 * n, None) for n in range(8))))) == ()
