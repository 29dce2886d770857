"""Trace and log settings of the simulated server."""

from __future__ import annotations

import pytest

from console.core import trace
from console.planning.batcher import NS_PER_SECOND
from console.simulator.settings import SettingError
from tests.simulator.conftest import MakeBox

ONCE = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "20", "log_frequency": "20"}


def test_the_next_requests_are_traced_and_no_more(make_box: MakeBox) -> None:
    box = make_box()
    assert box.settings.set_trace("ranking", ONCE)["trace_count"] == "20"
    box.advance(box.now_ns + NS_PER_SECOND)
    assert box.settings.trace("ranking")["trace_count"] == "0"
    found = trace.breakdowns(box.first.files.values(), "ranking", 0)
    assert len(found) == 20
    assert all(one.compute > 1 and one.queue >= 0 for one in found)
    assert box.settings.set_trace("ranking", dict.fromkeys(ONCE)) == box.settings.trace(None)
    box.advance(box.now_ns + NS_PER_SECOND)
    assert list(box.first.files) == ["/tmp/trace.json.0"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"trace_rate": 7}, "attempt to access JSON non-string as string"),
        ({"trace_level": "OFF"}, "attempt to access JSON non-array as array"),
        ({"trace_file": "/x"}, "trace file location can not be updated"),
    ],
)
def test_what_triton_refuses_is_refused(make_box: MakeBox, wanted: dict[str, object], words: str) -> None:
    box = make_box()
    with pytest.raises(SettingError, match=words):
        box.settings.set_trace("ranking", wanted)
    box.settings.begin("", {})
    with pytest.raises(SettingError, match="trace file name is not given"):
        box.settings.set_trace("ranking", ONCE)


def test_verbosity_shows_in_the_log(make_box: MakeBox) -> None:
    box = make_box()
    assert box.settings.log({"log_verbose_level": 1, "nonsense": 2})["log_verbose_level"] == 1
    before = len(box.log)
    box.advance(box.now_ns + 3 * NS_PER_SECOND)
    assert len(box.log) >= before + 3
    with pytest.raises(SettingError):
        box.settings.log({"log_file": "/x"})
    box.settings.begin("", {})
    assert not box.settings.verbose
