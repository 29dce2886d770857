"""Triton's log lines, from a recorded log of server 2.51.0 and by property."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.model import Event, LogLine
from console.core.podman_frames import RawLine
from console.core.text import MAX_LINE
from console.core.triton_log import LineReader, ServerEvents, clip, exact_wall, parse, unquote

SAMPLE = Path(__file__).parents[1] / "data" / "podman" / "server_log_sample.txt"


def read(*texts: str, stream: str = "stderr") -> list[LogLine]:
    reader = LineReader()
    return [line for n, text in enumerate(texts) for line in reader.read(RawLine(1000.0 + n, stream, text.encode()))]


def events(*texts: str) -> list[Event]:
    teller = ServerEvents()
    return [event for line in read(*texts) for event in teller.feed(line)]


@pytest.mark.parametrize(
    ("text", "level", "file", "message"),
    [
        ("I0704 13:39:57.501 1 server.cc:674] ready", "I", "server.cc", "ready"),
        ("E0704 13:39:57.501000 12345 a_b.cc:1] ", "E", "a_b.cc", ""),
        ('W1130 09:08:48.073080 8240 p.cc:273] "two\\nlines \\"q\\""', "W", "p.cc", 'two\nlines "q"'),
        ("2024-07-04T13:39:57Z I 1 server.cc:674] ready", "I", "server.cc", "ready"),
        ("INFO 07-04 13:39:57 engine.py:161] KV cache", "I", "engine.py", "KV cache"),
        ("WARNING 07-04 13:39:57 [engine.py:161] KV cache", "W", "engine.py", "KV cache"),
    ],
)
def test_prefixes(text: str, level: str, file: str, message: str) -> None:
    prefix = parse(text)
    assert prefix is not None
    assert (prefix.level, prefix.file, prefix.message) == (level, file, message)
    assert 13 * 3600 <= prefix.clock < 14 * 3600 or text.startswith("W1130")


@pytest.mark.parametrize("text", ["", "plain", "X0704 13:39:57.501 1 server.cc:674] x", "I0704 13:39 1 s.cc:1] x"])
def test_no_prefix(text: str) -> None:
    assert parse(text) is None


def test_tables_inherit_and_plain_lines_do_not() -> None:
    found = read(
        "I0704 13:39:57.501 1 server.cc:674] ", "+---+", "| rank | 2 | READY |", "", "Error: plain", "| alone |"
    )
    assert [line.level for line in found] == ["I", "I", "I", "I", None, None]
    assert found[2].origin == "server.cc"
    assert found[2].text == "| rank | 2 | READY |"


def test_tracebacks_are_errors_to_their_end() -> None:
    found = read("Traceback (most recent call last):", '  File "m.py", line 1', "    boom()", "ValueError: no", "after")
    assert [line.level for line in found] == ["E", "E", "E", "E", None]


def test_two_lines_that_were_written_into_one_are_parted() -> None:
    found = read(
        'I1130 11:11:33.368317 1 grpc_server.cc:2558] "Started GRPCInferenceService at 0.0.0.0:8001"'
        'I1130 11:11:33.368627 1 http_server.cc:4713] "Started HTTPService at 0.0.0.0:8000"',
        "",
    )
    assert [(line.origin, line.text) for line in found] == [
        ("grpc_server.cc", "Started GRPCInferenceService at 0.0.0.0:8001"),
        ("http_server.cc", "Started HTTPService at 0.0.0.0:8000"),
        ("http_server.cc", ""),
    ]


def test_continued_lines_do_not_come_before_their_head() -> None:
    reader = LineReader()
    [head] = reader.read(RawLine(1796035719.0, "stderr", b"I1130 10:48:39.250 1 server.cc:674] "))
    [row] = reader.read(RawLine(1796035719.0, "stderr", b"| rank |"))
    [later] = reader.read(RawLine(1796035720.0, "stderr", b"| recall |"))
    assert row.wall == head.wall == pytest.approx(1796035719.25)
    assert later.wall == 1796035720.0


def test_streams_do_not_mix() -> None:
    reader = LineReader()
    reader.read(RawLine(1.0, "stderr", b"E0704 13:39:57.501 1 server.cc:674] x"))
    assert reader.read(RawLine(1.0, "stdout", b"  indented"))[0].level is None


def test_hostile_text_stays_literal_and_bounded() -> None:
    bad = read("I0704 13:39:57.501 1 a.cc:1] [/x] \x1b[31m", "y" * 100_000)
    assert bad[0].text == "[/x] \\x1b[31m"
    assert (len(bad[1].text), bad[1].truncated) == (MAX_LINE, 100_000 - MAX_LINE)
    [undecodable] = LineReader().read(RawLine(None, "stdout", b"\xff\xfe", 7))
    assert (undecodable.text, undecodable.truncated, undecodable.wall) == ("��", 7, None)


def test_podmans_whole_seconds_become_exact() -> None:
    assert exact_wall(1796035719.0, 10 * 3600 + 48 * 60 + 39.25) == pytest.approx(1796035719.25)
    assert exact_wall(1796035719.0, 18 * 3600 + 48 * 60 + 38.75) == pytest.approx(1796035718.75), "UTC+8"
    assert exact_wall(1796035719.0, 0.0) == 1796035719.0, "clocks that differ are not mixed"
    assert exact_wall(None, 0.0) is None


def test_clip_shows_newlines() -> None:
    assert clip("a\nb\n") == ("a ⏎ b", 0)


def test_events_of_a_recorded_start() -> None:
    lines = SAMPLE.read_text().splitlines()
    found = events(*lines)
    texts = [event.text for event in found]
    assert "rank 2 is READY" in texts
    assert "slow 2 is READY" in texts
    assert "ens 1: its old copy was unloaded" in texts
    assert "slow 1 was unloaded" in texts
    assert not [event for event in found if event.kind == "model.old_copy" and event.marks_chart]
    failed = [event for event in found if event.kind == "model.failed"]
    assert [event.text for event in failed] == [
        "slowload 1 failed to load",
        "zzz failed to load",
        "rank failed to load",
    ]
    assert "CUDA out of memory" in failed[0].detail[0]
    assert all(event.sign == "fail" and event.origin == "(server log)" for event in failed)
    assert [event.text for event in found if event.kind == "model.dropped"] == ["ens was dropped by the server"]
    assert {event.model for event in found if event.kind == "config.broken"} == {"rank"}
    assert [event.text for event in found if event.kind == "server.start"] == ["server answers on 127.0.0.1:18000"]


def test_other_events() -> None:
    prefix = "E0704 13:39:57.501 1 a.cc:1] "
    found = events(
        prefix + "Stub process 'rank_0_0' is not healthy.",
        prefix + "Waiting for in-flight requests to complete.",
        "Signal (11) received.",
        prefix + "loading: [/x]:3",
        prefix + "successfully loaded '[/x]'",
        prefix + "successfully loaded 'a' version 4",
        prefix + "failed to load model 'late': because",
    )
    assert [event.text for event in found] == [
        "rank: its Python process is dead",
        "server was told to stop and drains",
        "server crashed by signal 11",
        "[/x] 3 is loading",
        "[/x] 3 is READY",
        "a 4 is READY",
        "late failed to load",
    ]
    assert found[-1].detail == ("because",)
    assert ServerEvents().feed(LogLine(None, "stdout", "loading: a:1")) == []


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    for line in LineReader().read(RawLine(1.0, "stdout", data)):
        ServerEvents().feed(line)
        assert "\x1b" not in line.text
        assert "\n" not in line.text


@given(
    st.from_regex(
        r"[IWEFV]\d{4} \d\d:\d\d:\d\d\.\d{3,6} \d{1,6} [a-z_]{1,20}\.cc:\d{1,5}\] [ -~]{0,80}", fullmatch=True
    )
)
def test_every_line_of_the_default_format_is_parsed(text: str) -> None:
    prefix = parse(text)
    assert prefix is not None
    assert prefix.level == text[0]
    assert prefix.message == unquote(text.partition("] ")[2])


@given(st.lists(st.text(max_size=120), max_size=20))
def test_any_lines_are_survived(texts: list[str]) -> None:
    events(*texts)


def test_one_line_stands_for_all_versions_of_a_load() -> None:
    """Seen on 2.51.0: two versions are named as they begin, and the model once when both are there."""
    told = events(
        'I1130 11:44:17.541591 1 model_lifecycle.cc:472] "loading: rank:1"',
        'I1130 11:44:17.544071 1 model_lifecycle.cc:472] "loading: rank:2"',
        """I1130 11:44:22.783440 1 model_lifecycle.cc:839] "successfully loaded 'rank'\"""",
        'I1130 11:44:56.338068 1 model_lifecycle.cc:472] "loading: rank:1"',
        """I1130 11:44:56.338336 1 model_lifecycle.cc:839] "successfully loaded 'rank'\"""",
    )
    assert [event.text for event in told if event.kind == "model.ready"] == [
        "rank 1 is READY",
        "rank 2 is READY",
        "rank 1 is READY",
    ]


def test_an_unload_soon_after_a_load_is_told_apart_from_the_old_copy_of_a_reload() -> None:
    told = events(
        "I1130 11:44:10.0 1 server.cc:1] loading: a:1",
        "I1130 11:44:11.0 1 server.cc:1] successfully loaded 'a'",
        "I1130 11:44:11.1 1 server.cc:1] Started HTTPService at 0.0.0.0:8000",
        "I1130 11:44:12.0 1 server.cc:1] loading: a:1",
        "I1130 11:44:12.5 1 server.cc:1] successfully loaded 'a'",
        "I1130 11:44:13.0 1 server.cc:1] successfully unloaded 'a' version 1",
        "I1130 11:44:14.0 1 server.cc:1] loading: a:1",
        "I1130 11:44:15.0 1 server.cc:1] successfully unloaded 'a' version 1",
        "I1130 11:44:15.0 1 server.cc:1] successfully loaded 'a'",
        "I1130 11:44:16.0 1 server.cc:1] successfully unloaded 'a' version 1",
    )
    kinds = [event.kind for event in told if "unloaded" in event.text]
    assert kinds == ["model.old_copy", "model.old_copy", "model.unloaded"]
