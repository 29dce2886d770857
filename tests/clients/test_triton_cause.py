"""The cause of a refused load in the container's log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.clients.triton_cause import MAX_LINES, causes
from console.core.podman_frames import RawLine

SINCE = 50400.0
"""14:00 of the day 0."""
PROTO = "[libprotobuf ERROR /x/text_format.cc:337] Error parsing inference.ModelConfig: 3:1: Expected integer"


def raw(at: float, text: str) -> RawLine:
    return RawLine(SINCE + at, "stderr", text.encode())


def error(at: int, text: str, level: str = "E") -> RawLine:
    return raw(at, f'{level}1130 14:00:{at:02d}.000000 1 model_repository_manager.cc:1] "{text}"')


def test_a_configuration_that_cannot_be_parsed() -> None:
    found = causes(
        [raw(1, PROTO), error(1, "Poll failed for model directory 'm': failed to read text proto")], "m", SINCE
    )
    assert found == (
        "Error parsing inference.ModelConfig: 3:1: Expected integer",
        "Poll failed for model directory 'm': failed to read text proto",
    )


def test_the_parsers_line_is_of_the_model_that_the_next_line_names() -> None:
    told = [
        raw(1, PROTO),
        error(1, "Poll failed for model directory 'x': failed to read"),
        error(2, "failed to load 'm': y"),
    ]
    assert causes(told, "m", SINCE) == ("failed to load 'm': y",)


def test_lines_from_before_and_of_no_trouble_are_left_out() -> None:
    told = [
        raw(-9, "E1130 13:59:51.000000 1 x.cc:1] failed to load 'm': old"),
        error(1, "loading: m:1", "I"),
        error(2, "failed to load 'x' version 1: other"),
        error(3, "failed to load 'm' version 2: mine"),
        error(3, "failed to load 'm' version 2: mine"),
    ]
    assert causes(told, "m", SINCE) == ("failed to load 'm' version 2: mine",)


def test_a_dropped_ensemble_and_a_crash() -> None:
    text = "ensemble ens allows maximum batch size 4, but it contains model m which only allows"
    assert causes([error(1, text)], "m", SINCE) == (text,)
    assert causes([raw(1, "Signal (11) received.")], "m", SINCE) == ("Signal (11) received.",)


@given(st.lists(st.binary(max_size=80), max_size=30))
def test_any_log_is_read(chunks: list[bytes]) -> None:
    assert len(causes([RawLine(SINCE, "stderr", chunk) for chunk in chunks], "m", SINCE)) <= MAX_LINES
