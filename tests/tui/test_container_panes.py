"""Container: what the panes tell, and the log as literal text that folds, follows, filters and marks restarts."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from console.core.finding import Finding, Fix, Report
from console.core.model import (
    ContainerState,
    Event,
    Failure,
    Gaps,
    KeptContainer,
    LogLine,
    PodmanState,
    Reading,
    Standing,
    UnitState,
)
from console.tui.messages import TOO_FAST
from console.tui.panes.base import View
from console.tui.panes.container_facts import ContainerFacts
from console.tui.panes.container_log import ContainerLog
from console.tui.panes.container_resources import ContainerResources
from console.tui.panes.log_entries import MOST, LogEntries
from tests.fakes import drawn
from tests.fakes.boxes import Box, drawn_box, empty_box, good, nothing_serves_box, stopped_container
from tests.fakes.drawn import MONO, NOW
from tests.tui.pure import lines_of, made, text_of, view_of

WIDTH = 116


def _with(container: ContainerState | None, **podman: object) -> Box:
    state = changed(drawn.podman(), container=container, **podman)
    return drawn_box(container=good("container", state))


def _container() -> ContainerState:
    found = drawn.podman().container
    assert found is not None
    return found


def test_the_container_as_drawn() -> None:
    text = text_of(ContainerFacts(), view_of(drawn_box(), 56))
    for part in (
        "triton     ● running 24m36s   health –   restarts 0",
        "image      tritonserver:24.05-py3   5 weeks old",
        "CUDA 12.4.1  TensorRT 10.0.1",
        "driver 550.90.07 ● new enough for CUDA ≥ 12.4",
        "GPU        nvidia.com/gpu=all",
        "mode       explicit: load, swap and tune possible",
        "stop       ▲ killed after 10 s, server drains 30 s",
    ):
        assert part in text


def test_the_owner_as_drawn() -> None:
    unit = UnitState("triton.service", "active", "running", restart="on-failure", kind="hand-written")
    box = _with(changed(_container(), unit="triton.service", unit_origin="label PODMAN_SYSTEMD_UNIT"), unit=unit)
    text = text_of(ContainerFacts(), view_of(box, 58))
    assert "managed by triton.service (system, hand-written, restart" in text
    assert "on-failure); acts go through it" in text
    user = _with(
        changed(_container(), unit="t.service", unit_origin="settings"), unit=UnitState("t.service", "", "", user=True)
    )
    assert "managed by t.service (user); acts go through it" in text_of(ContainerFacts(), view_of(user, 76))
    other = _with(changed(_container(), unit="t.service", unit_origin="settings"), unit=None)
    assert "managed by t.service (settings); acts go through it" in text_of(ContainerFacts(), view_of(other, 76))
    assert "managed by no unit found" in text_of(ContainerFacts(), view_of(_with(changed(_container(), unit=None)), 76))


@pytest.mark.parametrize(("mode", "told"), [("none", "by a restart only"), ("poll", "follows its folder by itself")])
def test_modes_say_what_is_not_possible(mode: str, told: str) -> None:
    text = text_of(ContainerFacts(), view_of(_with(changed(_container(), control_mode=mode)), 58))
    assert f"mode       {mode}: no load, swap or tune" in text
    assert told in " ".join(text.split())


def test_one_made_with_rm_says_so() -> None:
    assert "--rm" in text_of(ContainerFacts(), view_of(_with(changed(_container(), auto_remove=True)), 58))
    assert "--rm" not in text_of(ContainerFacts(), view_of(_with(changed(_container(), auto_remove=False)), 58))


def test_a_container_that_is_gone_leaves_its_unit_and_the_journal() -> None:
    unit = UnitState("triton.service", "failed", "failed", restart="no", kind="Quadlet")
    box = _with(None, unit=unit, last_log=("Signal (15) received.",))
    text = text_of(ContainerFacts(), view_of(box, 90))
    assert "its unit   triton.service: failed (failed), system, Quadlet, restart no" in text
    assert "of its unit's journal" in text


def test_the_kept_old_one_as_drawn() -> None:
    kept = (KeptContainer("triton-old-2", "exited", NOW - 2 * 86400.0), KeptContainer("triton-old-1", "created"))
    text = text_of(ContainerResources(), view_of(_with(_container(), kept=kept[:1]), 56))
    assert "kept old   triton-old-2, stopped, 2 days: b" in text
    text = text_of(ContainerResources(), view_of(_with(_container(), kept=kept), 58))
    assert "2 days: b   and 1 older" in text
    assert "kept old   triton-old-1, created: b" in text_of(
        ContainerResources(), view_of(_with(_container(), kept=kept[1:]), 56)
    )


def test_an_image_that_wants_more_than_the_driver_gives() -> None:
    env = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.8 brand=tesla,driver>=535"}
    text = text_of(ContainerFacts(), view_of(_with(changed(_container(), env_versions=env)), 76))
    assert "▲ CUDA 12.4, but the image wants CUDA ≥ 12.8" in text


def test_a_stopped_container_says_how_it_ended_and_its_last_words() -> None:
    box = _with(stopped_container(drawn_box()), last_log=("Signal (15) received.",))
    text = text_of(ContainerFacts(), view_of(box, 76))
    assert "✗ exited" in text
    assert "exit 137, killed" in text
    assert "Signal (15) received." in text


def test_where_there_is_none_every_socket_that_was_tried_is_named() -> None:
    text = text_of(ContainerFacts(), view_of(empty_box(), 76))
    assert "no Podman" in text
    assert "/run/user/1000/podman/podman.sock" in text
    assert "rootless: no such file" in text


def test_resources_as_drawn() -> None:
    assert lines_of(ContainerResources(), view_of(drawn_box(), 56)) == [
        "cpu        2.8 cores of 16        pinned to  –",
        "memory     6.1 GiB  no limit      oom kills 0",
        "shm        0.2 / 1.0 GiB          tasks 214",
        "ports      8000 8001 8002 on all addresses",
        "           ▲ model control open to the network",
        "models     /data/models → /models  read-only",
        "           180 GiB free",
        "limits     memlock unlimited  stack 64 MiB",
        "socket     /run/podman/podman.sock  4.9.4  2 ms",
    ]


@pytest.mark.parametrize(
    "closed",
    [
        {"control_mode": "none"},
        {"ports": tuple(changed(port, host_ip="127.0.0.1") for port in _container().ports)},
        {"command": ("tritonserver", "--http-restricted-api=model-repository:key=***")},
    ],
)
def test_model_control_that_is_not_open_is_not_called_open(closed: dict[str, object]) -> None:
    box = _with(changed(_container(), **closed))
    assert "open to the network" not in text_of(ContainerResources(), view_of(box, 76))


def _log(lines: tuple[LogLine, ...], box: Box | None = None, width: int = WIDTH, **settings: object) -> list[str]:
    pane = ContainerLog()
    pane.source = lines
    for name, value in settings.items():
        setattr(pane, name, value)
    return lines_of(pane, view_of(box or drawn_box(), width))


def test_the_log_as_drawn() -> None:
    lines = _log(drawn.log_lines())
    assert lines[0].startswith("05:39:57.501 I server.cc             | ranking | 2 | READY |")
    assert lines[1].endswith("enter: L05  +189")
    assert lines[3].endswith("event a  enter: L05  +71")
    assert lines[4].endswith("event d")
    assert lines[7].endswith("41 times")
    assert "[/x] \\x1b[31mnot a colour" in lines[8]
    assert all(len(line) <= WIDTH for line in lines[:8])


def test_blanks_that_fill_a_table_up_are_no_hidden_text() -> None:
    """Triton pads its option table to the widest value: `model_control_mode | MODE_EXPLICIT`, and 200 blanks."""
    row = LogLine(
        drawn.log_lines()[0].wall, "stderr", "| model_control_mode | MODE_EXPLICIT" + " " * 200, "I", "main.cc"
    )
    assert _log((row,))[0].endswith("MODE_EXPLICIT")


def test_a_filter_leaves_matching_lines_and_turned_round_the_others() -> None:
    assert len(_log(drawn.log_lines(), filter="rerank")) == 3
    assert len(_log(drawn.log_lines(), filter="!rerank")) == 6
    assert len(_log(drawn.log_lines(), filter="[/x]")) == 1
    everything = _log(drawn.log_lines(), filter="rerank", kind="matches in context")
    assert len(everything) == 9


def test_levels_and_wrapping() -> None:
    trouble = _log(drawn.log_lines(), kind="warnings and errors")
    assert [line[13] for line in trouble] == ["E", "E", "E", "W"]
    wrapped = _log(drawn.log_lines(), kind="wrapped")
    assert len(wrapped) > 9
    assert not any(line.endswith("+189") for line in wrapped)


def test_spans_leave_older_lines_out() -> None:
    assert len(_log(drawn.log_lines(), span=0)) == 5
    assert len(_log(drawn.log_lines(), span=3)) == 9


def test_nothing_to_show_says_why_and_which_command_shows_it() -> None:
    assert any("podman logs -f --timestamps triton" in line for line in _log((), drawn_box()))
    assert "journalctl -f -u triton.service" in "\n".join(_log((), drawn_box()))
    assert "no Podman socket answers" in _log((), empty_box())[0]
    gone = _log((), nothing_serves_box())
    assert "its unit's last lines" in gone[0]
    assert "libEGL_nvidia" in gone[1]
    assert _log(drawn.log_lines(), filter="nothing has this") == [
        "no line of this span passes; v, < > and / change what is shown"
    ]


def _lines(*texts: str, begin: float = NOW - 100) -> list[LogLine]:
    return [LogLine(begin + number, "stderr", text, "I", "x.cc") for number, text in enumerate(texts)]


def test_only_what_came_since_is_read_even_when_old_lines_have_gone() -> None:
    queue: deque[LogLine] = deque(maxlen=4)
    log = LogEntries()
    queue.extend(_lines("a", "b"))
    assert log.read(queue) == 2
    assert log.read(queue) == 0
    queue.extend(_lines("c", "d", "e", "f", "g"))
    assert log.read(queue) == 4
    assert [entry.line.text for entry in log.entries if entry.line] == ["a", "b", "d", "e", "f", "g"]


def test_repeats_in_a_row_are_one_entry_across_reads() -> None:
    log, lines = LogEntries(), _lines("a", "a", "b", "b", "b", "a")
    log.read(lines[:4])
    log.read(lines)
    assert [(entry.times, entry.line.text) for entry in log.entries if entry.line] == [(2, "a"), (3, "b"), (1, "a")]


def test_the_same_text_a_minute_later_is_a_line_of_its_own() -> None:
    log = LogEntries()
    log.read([*_lines("a"), *_lines("a", begin=NOW - 30)])
    assert len(log.entries) == 2


def _start(back: float) -> Event:
    return Event(NOW - back, "note", "container triton started", "(podman)", "container.start")


def _told(log: LogEntries) -> list[str]:
    return [entry.mark if entry.line is None else f"{entry.line.text} x{entry.times}" for entry in log.entries]


def test_a_restart_is_marked_between_the_lines_once() -> None:
    lines = _lines("old", "old 2", "new", "new 2")
    wanted = ["old x1", "old 2 x1", "container restarted", "new x1", "new 2 x1"]
    known_before, known_late = LogEntries(), LogEntries()
    for _ in range(2):
        known_before.read(lines, [_start(98.5)])
        known_late.read(lines, [])
    known_late.read(lines, [_start(98.5)])
    assert _told(known_before) == wanted
    assert _told(known_late) == wanted


def test_the_same_line_before_and_after_a_restart_is_two_lines() -> None:
    lines = _lines("a", "a", "a", "a")
    for told_late in (False, True):
        log = LogEntries()
        if told_late:
            log.read(lines)
            assert _told(log) == ["a x4"]
        log.read(lines, [_start(98.5)])
        assert _told(log) == ["a x2", "container restarted", "a x2"]


def test_a_start_without_lines_after_it_waits_for_them() -> None:
    log, lines = LogEntries(), _lines("a", "b")
    log.read(lines, [_start(50)])
    assert _told(log) == ["a x1", "b x1"]
    lines += _lines("c", begin=NOW - 40)
    log.read(lines, [_start(50)])
    assert _told(log) == ["a x1", "b x1", "container restarted", "c x1"]


def test_the_first_start_is_no_restart() -> None:
    log = LogEntries()
    log.read(_lines("a"), [_start(200)])
    assert _told(log) == ["a x1"]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=8))
def test_entries_hold_every_line_once(batches: list[list[str]]) -> None:
    log, queue = LogEntries(), deque[LogLine](maxlen=100)
    came = 0
    for batch in batches:
        queue.extend(_lines(*batch))
        came += log.read(queue)
    assert came == sum(len(batch) for batch in batches)
    assert sum(entry.times for entry in log.entries) == came
    assert [entry.number for entry in log.entries] == sorted({entry.number for entry in log.entries})


def test_entries_are_bounded() -> None:
    log = LogEntries()
    log.read([LogLine(NOW, "stderr", str(number)) for number in range(MOST + 50)])
    assert len(log.entries) == MOST


def test_rows_are_kept_and_only_new_ones_made() -> None:
    pane, queue = ContainerLog(), deque(_lines("a", "b", "c"))
    pane.source = queue
    view = view_of(drawn_box())
    first = list(pane.lines(view))
    queue.append(LogLine(NOW, "stderr", "d"))
    second = list(pane.lines(view))
    assert [a is b for a, b in zip(first[:2], second[:2], strict=True)] == [True, True]
    assert [row.key for row in second] == [1, 2, 3, 4]


def test_lines_that_came_while_follow_was_off_are_counted() -> None:
    pane, queue = ContainerLog(), deque(_lines("a", "b"))
    pane.source, pane.follow = queue, False
    view = view_of(drawn_box())
    pane.lines(view)
    pane.unseen = 0
    queue.extend(_lines("c", "d", "e"))
    pane.lines(view)
    assert pane.unseen == 3
    assert "3 new below" in "".join(text for text, _ in pane.title(view))


def test_enter_says_what_an_error_means_and_whose_it_is() -> None:
    finding = Finding("L05", "engine", "models", "fail", "rerank 3 was built by TensorRT 8.5.3, the server has 10.0.1")
    box = drawn_box(checks=good("checks", Report(findings=(finding,))))
    lines = _log(drawn.log_lines(), box, expanded={4})
    at = next(n for n, text in enumerate(lines) if text.split() == ["model", "rerank"])
    told = " ".join(" ".join(lines[at:]).split())
    assert "read with the 2 error lines before it means the engine was built by another version of TensorRT" in told
    assert told.count("why") == 1, "the same check decides all three: it is told once"
    assert "this box ✗ L05 rerank 3 was built by TensorRT 8.5.3, the server has 10.0.1" in told
    assert told.index("another version of TensorRT") < told.index("also a TensorRT engine cannot be loaded"), (
        "the cause stands first"
    )
    assert "do build the engine anew" in told
    fixed = changed(finding, fix=Fix("R", ("sudo reboot",)))
    mended = drawn_box(checks=good("checks", Report(findings=(fixed,))))
    assert any(
        line.endswith("fix       6 Checks, L05: sudo reboot") for line in _log(drawn.log_lines(), mended, expanded={4})
    )
    cause = " ".join(_log(drawn.log_lines(), box, expanded={2}))
    assert "rerank   likely: its load failed right after this line" in cause
    assert all(len(line) <= WIDTH for line in lines)
    narrow = _log(drawn.log_lines(), box, width=78, expanded={4})
    assert any("✗ L05 rerank 3 was built by" in line for line in narrow)
    assert all(len(line) <= 78 for line in narrow)


def test_enter_where_nothing_is_known_says_so_and_without_a_checklist_too() -> None:
    odd = LogLine(NOW, "stderr", "the flux capacitor is empty", "E", "x.cc")
    assert _log((odd,), expanded={1})[-1].endswith("means     not known here; Checks (6) look at the box itself")
    plain = LogLine(NOW, "stderr", "Started HTTPService at 0.0.0.0:8000", "I", "x.cc")
    assert len(_log((plain,), expanded={1})) == 1
    box = drawn_box(checks=Reading("checks", 300.0))
    engine = "\n".join(_log(drawn.log_lines(), box, expanded={4}))
    assert "L05, E05: the checklist was not read yet" in engine


def test_a_log_from_the_units_journal_says_so() -> None:
    pane = ContainerLog()
    box = _with(changed(_container(), unit="triton.service", log_driver="passthrough"))
    assert "from the journal of triton.service" in made(pane.title(view_of(box)))
    assert "journal" not in made(pane.title(view_of(_with(changed(_container(), log_driver="journald")))))


def test_copying_gives_the_whole_line() -> None:
    pane = ContainerLog()
    pane.source = drawn.log_lines()
    pane.lines(view_of(drawn_box()))
    pane.cursor = 2
    assert pane.yank().endswith("x" * 60)


def test_a_podman_that_was_never_read() -> None:
    box = drawn_box(container=good("container", PodmanState(None, None)))
    assert "– no Podman" in text_of(ContainerFacts(), view_of(box, 56))


def test_a_log_that_stands_says_since_when_and_why() -> None:
    pane, box = ContainerLog(), drawn_box()

    def seen(gaps: Gaps) -> View:
        return View(changed(box.snapshot, gaps=gaps), box.history, NOW, MONO, 60, 20, utc=True)

    why = Failure("unavailable", "/run/podman/podman.sock: the stream ended: [Errno 2] No such file")
    logs = Standing("logs", why, MONO - 12)
    view = seen(Gaps(standing=(changed(logs, stream="events.podman"), logs), dropped=(("x", 3), (TOO_FAST, 120))))
    assert made(pane.title(view)).endswith("last 1 h  ▲ stands 12 s")
    assert [made(line) for line in pane.foot_lines(view)] == [
        "▲ log stands for 12 s: /run/podman/podman.sock: the stream",
        "  ended: [Errno 2] No such file",
        f"▲ left out: 120 {TOO_FAST}",
    ]
    calm = seen(Gaps(standing=(changed(logs, stream="events.podman"),), dropped=(("x", 3),)))
    assert made(pane.title(calm)).endswith("last 1 h")
    assert pane.foot_lines(calm) == []
