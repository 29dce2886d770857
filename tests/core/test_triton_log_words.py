"""Every event that the server's log tells, whole; how times and levels are made exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.model import Event, LogLine
from console.core.podman_frames import RawLine
from console.core.text import MAX_LINE
from console.core.triton_log import (
    OLD_COPY,
    ORIGIN,
    SAME_FAILURE,
    LineReader,
    ServerEvents,
    clip,
    exact_wall,
    parse,
    unquote,
)


def told(*texts: str, step: float = 1.0) -> list[Event]:
    teller = ServerEvents()
    lines = (LogLine(1000.0 + step * n, "stderr", text, "I", "a.cc") for n, text in enumerate(texts))
    return [event for line in lines for event in teller.feed(line)]


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (
            "loading: a:b:3",
            Event(1000.0, "note", "a:b 3 is loading", ORIGIN, "model.loading", "a:b", marks_chart=False),
        ),
        ("successfully loaded 'a' version 3", Event(1000.0, "ok", "a 3 is READY", ORIGIN, "model.ready", "a")),
        ("successfully loaded 'a'", Event(1000.0, "ok", "a is READY", ORIGIN, "model.ready", "a")),
        (
            "successfully unloaded 'a' version 3",
            Event(1000.0, "note", "a 3 was unloaded", ORIGIN, "model.unloaded", "a"),
        ),
        (
            "failed to load 'a' version 3: Internal: boom",
            Event(1000.0, "fail", "a 3 failed to load", ORIGIN, "model.failed", "a", ("Internal: boom",)),
        ),
        (
            "failed to load 'a' version 3: ",
            Event(1000.0, "fail", "a 3 failed to load", ORIGIN, "model.failed", "a"),
        ),
        ("failed to load 'a'", Event(1000.0, "fail", "a failed to load", ORIGIN, "model.failed", "a")),
        (
            "failed to poll model 'a': not found",
            Event(1000.0, "fail", "a failed to load", ORIGIN, "model.failed", "a", ("not found",)),
        ),
        (
            "Poll failed for model directory 'a': bad text",
            Event(1000.0, "fail", "a: its configuration cannot be used", ORIGIN, "config.broken", "a", ("bad text",)),
        ),
        (
            "Invalid argument: ensemble e allows maximum batch size 4, m has 2",
            Event(
                1000.0, "fail", "e was dropped by the server", ORIGIN, "model.dropped", "e",
                ("ensemble e allows maximum batch size 4, m has 2",),
            ),
        ),
        (
            "Stub process 'a_b_0_1' is not healthy.",
            Event(1000.0, "fail", "a_b: its Python process is dead", ORIGIN, "model.stub", "a_b"),
        ),
        (
            "stub process 'a_0' is unhealthy",
            Event(1000.0, "fail", "a: its Python process is dead", ORIGIN, "model.stub", "a"),
        ),
        (
            "Started HTTPService at 0.0.0.0:8000",
            Event(1000.0, "ok", "server answers on 0.0.0.0:8000", ORIGIN, "server.start"),
        ),
        (
            "Waiting for in-flight requests to complete.",
            Event(1000.0, "note", "server was told to stop and drains", ORIGIN, "server.stop", marks_chart=False),
        ),
        ("Signal (11) received.", Event(1000.0, "fail", "server crashed by signal 11", ORIGIN, "server.crash")),
        ("Signal (15) received.", Event(1000.0, "note", "server was told to stop (signal 15)", ORIGIN, "server.stop")),
    ],
)  # fmt: skip
def test_each_event(text: str, event: Event) -> None:
    assert told(text) == [event]


@pytest.mark.parametrize("text", ["", "loading: a", "x successfully loaded 'a'", "Started GRPCInferenceService at x"])
def test_what_tells_nothing(text: str) -> None:
    assert told(text) == []


def test_a_failure_told_for_the_model_as_a_whole_is_the_same_one() -> None:
    both = ["failed to load 'a' version 3: boom", "failed to load 'a': boom"]
    assert [event.text for event in told(*both, step=SAME_FAILURE - 0.1)] == ["a 3 failed to load"]
    assert [event.text for event in told(*both, step=SAME_FAILURE)] == ["a 3 failed to load", "a failed to load"]
    other = [both[0], "failed to load 'b': boom"]
    assert len(told(*other)) == 2
    again = ["failed to load 'a': boom"] * 3
    assert len(told(*again, step=3.0)) == 2, "counted from the one that was told"


def test_the_old_copy_of_a_reload_is_no_unload() -> None:
    reload = ["successfully loaded 'a' version 3", "successfully unloaded 'a' version 3"]
    quick, slow = told(*reload, step=OLD_COPY - 0.1)[1], told(*reload, step=OLD_COPY)[1]
    assert (quick.kind, quick.text, quick.sign) == ("model.old_copy", "a 3: its old copy was unloaded", "note")
    assert not quick.marks_chart
    assert (slow.kind, slow.marks_chart) == ("model.unloaded", True)
    other = told("successfully loaded 'a' version 4", reload[1], step=0.1)[1]
    assert other.kind == "model.unloaded"
    assert (OLD_COPY, SAME_FAILURE) == (10.0, 5.0)


def test_the_version_is_that_of_the_last_loading() -> None:
    found = told("loading: a:1", "loading: a:2", "loading: b:7", "successfully loaded 'a'")
    assert found[-1].text == "a 2 is READY"


# --------------------------------------------------------------------------------------------------- times and levels


@pytest.mark.parametrize(
    ("wall", "clock", "exact"),
    [
        (1000.0, 1000.25, 1000.25),
        (1000.0, 1002.0, 1002.0),
        (1000.0, 1002.5, 1000.0),
        (1000.0, 998.0, 998.0),
        (1000.0, 997.5, 1000.0),
        (1000.0, 1000.5 + 3600 * 8, 1000.5),
        (1000.0, 999.5 + 3600 * 5 + 45 * 60, 999.5),
        (86400.0 * 3, 0.25, 86400.0 * 3 + 0.25),
        (86400.0 * 3 - 1, 0.25, 86400.0 * 3 + 0.25),
    ],
)
def test_exact_times(wall: float, clock: float, exact: float) -> None:
    found = exact_wall(wall, clock)
    assert found is not None
    assert abs(found - exact) < 1e-6


@pytest.mark.parametrize(
    ("text", "level", "clock"),
    [
        ("I0704 00:00:01.5 1 a.cc:1] x", "I", 1.5),
        ("F0704 23:59:59 1 a.cc:1] x", "F", 86399.0),
        ("2024-07-04T01:02:03.250Z V 1 a.cc:1] x", "V", 3723.25),
        ("2024-07-04T01:02:03 W 1 a.cc:1] x", "W", 3723.0),
        ("INFO 07-04 01:00:00 a.py:1] x", "I", 3600.0),
        ("WARNING 07-04 01:00:00 a.py:1] x", "W", 3600.0),
        ("ERROR 07-04 01:00:00 a.py:1] x", "E", 3600.0),
        ("CRITICAL 07-04 01:00:00 a.py:1] x", "F", 3600.0),
        ("DEBUG 07-04 01:00:00 a.py:1] x", "V", 3600.0),
    ],
)
def test_levels_and_clocks(text: str, level: str, clock: float) -> None:
    prefix = parse(text)
    assert prefix is not None
    assert (prefix.level, prefix.clock, prefix.message) == (level, clock, "x")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('"a"', "a"),
        ('""', ""),
        ('"', '"'),
        ('"a', '"a'),
        ('a"', 'a"'),
        (r'"\"\\\/\b\f\n\r\t"', '"\\/\x08\x0c\n\r\t'),
        (r'"\u00e9\u4E2D"', "é中"),
        (r'"\q\u12"', r"\q\u12"),
    ],
)
def test_unquote(message: str, text: str) -> None:
    assert unquote(message) == text


def read(reader: LineReader, wall: float | None, text: str, stream: str = "stderr", cut: int = 0) -> LogLine:
    [line] = reader.read(RawLine(wall, stream, text.encode(), cut))
    return line


HEAD = "E1130 10:48:39.250 1 server.cc:674] head"
AT = 1796035719.0


def test_a_continued_line_stands_no_earlier_than_its_head_and_never_much_later() -> None:
    reader = LineReader()
    head = read(reader, AT, HEAD)
    assert head.wall is not None
    assert abs(head.wall - AT - 0.25) < 1e-6
    row = read(reader, AT, "  row")
    assert row.wall == head.wall
    assert read(reader, AT + 1, "  row").wall == AT + 1
    assert read(reader, AT - 0.75, "  row").wall == AT - 0.75, "a whole second earlier is another time"
    assert read(reader, AT - 0.5, "  row").wall == head.wall
    assert read(reader, None, "  row").wall is None
    assert read(LineReader(), AT, "  row").wall == AT
    blind = LineReader()
    read(blind, None, HEAD)
    assert read(blind, AT, "  row").wall == AT


def test_what_a_traceback_inherits() -> None:
    reader = LineReader()
    read(reader, AT, "I1130 10:48:39.250 1 server.cc:674] head")
    trace = read(reader, AT, "Traceback (most recent call last):")
    assert (trace.level, trace.origin) == ("E", "server.cc")
    assert read(reader, AT, '  File "x"').level == "E"
    assert read(reader, AT, "").level == "E"
    assert (read(reader, AT, "my.OddError: x").level, read(reader, AT, "my.OddError: x").level) == ("E", None)
    reader = LineReader()
    orphan = read(reader, AT, "Traceback (most recent call last):")
    assert (orphan.level, orphan.origin) == ("E", None)
    assert (read(reader, AT, "plain").level, read(reader, AT, "  indented").level) == (None, None)


def test_a_prefixed_line_ends_a_traceback() -> None:
    reader = LineReader()
    read(reader, AT, "Traceback (most recent call last):")
    read(reader, AT, "I1130 10:48:39.250 1 server.cc:674] head")
    assert read(reader, AT, "  row").level == "I"


def test_what_was_cut_is_counted_together() -> None:
    assert read(LineReader(), AT, HEAD, cut=5).truncated == 5
    assert read(LineReader(), AT, "x" * (MAX_LINE + 3), cut=5).truncated == 8
    assert read(LineReader(), AT, HEAD + "x" * MAX_LINE, cut=5).truncated == 9


def test_clip() -> None:
    assert clip("a\r\nb\nc\n\n") == ("a ⏎ b ⏎ c", 0)
    assert clip("x" * MAX_LINE) == ("x" * MAX_LINE, 0)
    assert clip("x" * (MAX_LINE + 2)) == ("x" * MAX_LINE, 2)
    escaped, cut = clip("\x1b" * MAX_LINE)
    assert (len(escaped), cut) == (2 * MAX_LINE, 0)


@given(st.floats(0, 2e9), st.floats(0, 86400))
def test_no_time_is_moved_by_more_than_two_seconds(wall: float, clock: float) -> None:
    found = exact_wall(wall, clock)
    assert found is not None
    assert abs(found - wall) <= 2.001
