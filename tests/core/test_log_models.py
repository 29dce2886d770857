"""Whose error a log line is, on lines of a real server and on made ones."""

from __future__ import annotations

import pytest

from console.core.log_models import named_in, owner, together
from console.core.model import LogLine
from console.core.podman_frames import RawLine
from console.core.triton_log import LineReader
from tests.core.test_triton_log import SAMPLE


def line(wall: float, level: str, text: str) -> LogLine:
    return LogLine(wall, "stderr", text, level, "x.cc")


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("failed to load 'rerank' version 3: Internal: unable to load plan", "rerank"),
        ("failed to load model 'rank': at least one version", "rank"),
        ("failed to poll model 'zzz': model not found in any model repository.", "zzz"),
        ("loading: a:b:3", "a:b"),
        ("successfully unloaded 'm' version 2", "m"),
        ("version 9 is specified for model 'rank', but the version directory is not present", "rank"),
        ("Poll failed for model directory 'rank': Invalid config", "rank"),
        ("Stub process 'two_0_1' is not healthy.", "two"),
        ("unable to create stream for ens: CUDA driver version is insufficient", "ens"),
        ("Error Code 1: Serialization failed", None),
    ],
)
def test_the_name_in_a_line(text: str, model: str | None) -> None:
    assert named_in(text) == model


def test_a_served_name_counts_in_quotes_only() -> None:
    assert named_in("request for 'rank' refused", ("rank",)) == "rank"
    assert named_in("ranking of requests", ("rank",)) is None


def test_a_cause_without_a_name_is_its_whose_load_fails_next() -> None:
    lines = [
        line(1.0, "I", "loading: rerank:3"),
        line(1.0, "I", "loading: other:1"),
        line(2.0, "E", "Error Code 1: Serialization (Version tag does not match)"),
        line(2.1, "E", "failed to load 'rerank' version 3: Internal: unable to load plan file"),
    ]
    found = owner(lines, 2)
    assert found is not None
    assert (found.model, found.trust) == ("rerank", "likely")
    assert owner(lines[:3], 2) is None, "two were loading: nothing tells which"
    one_loading = [lines[0], lines[2]]
    found = owner(one_loading, 1)
    assert found is not None
    assert (found.model, found.how) == ("rerank", "it alone was loading then")


def test_an_error_long_after_a_load_ended_is_nobodys() -> None:
    lines = [line(1.0, "I", "loading: a:1"), line(2.0, "I", "successfully loaded 'a'"), line(3.0, "E", "odd")]
    assert owner(lines, 2) is None
    late = [line(1.0, "E", "odd"), line(9.0, "E", "failed to load 'a' version 1: x")]
    assert owner(late, 0) is None
    no_time = [LogLine(None, "stderr", "odd", "E")]
    assert owner(no_time, 0) is None


def test_errors_of_the_same_trouble_are_read_together() -> None:
    lines = [
        line(0.0, "E", "long before"),
        line(9.0, "E", "failed to load 'other' version 1: y"),
        line(9.5, "E", "cause"),
        line(9.6, "I", "chatter"),
        line(10.0, "E", "failed to load 'm' version 1: x"),
    ]
    assert [one.text for one in together(lines, 4)] == ["cause", "failed to load 'm' version 1: x"]


def test_on_a_real_log_every_failed_load_has_its_model() -> None:
    reader = LineReader()
    raw = SAMPLE.read_bytes().splitlines()
    lines = [one for n, text in enumerate(raw) for one in reader.read(RawLine(None, "stderr", text))]
    lines = [LogLine(float(n), one.stream, one.text, one.level, one.origin) for n, one in enumerate(lines)]
    failed = [n for n, one in enumerate(lines) if one.level == "E" and "fail" in one.text.lower()]
    owners = {found.model for n in failed if (found := owner(lines, n)) is not None}
    assert {"slowload", "zzz", "rank"} <= owners
