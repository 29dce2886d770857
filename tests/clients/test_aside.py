"""Work done aside: results, sentences, a helper that ended, and what it leaves behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest

from console.clients import aside
from console.clients.aside import Aside
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput


@pytest.fixture
def helper() -> Iterator[Aside]:
    one = Aside()
    yield one
    one.close()


HERE = "tests.clients.test_aside"


def pid() -> int:
    sys.stdout.write("what a library says is no answer")
    return os.getpid()


def loaded(name: str) -> bool:
    return name in sys.modules


def refuse(kind: str) -> None:
    kinds = {
        "refused": Refused("not now"),
        "input": WrongInput("no such model"),
        "source": SourceError("timeout", "it is silent", "wait"),
        "system": PermissionError(13, "Permission denied"),
        "ours": ZeroDivisionError("x"),
    }
    raise kinds[kind]


def test_calls_are_made_in_one_other_process(helper: Aside) -> None:
    first = helper.call(HERE, "pid")
    assert first not in (os.getpid(), 0)
    assert helper.call(HERE, "pid") == first
    assert helper.call(HERE, "loaded", "textual") is False


def test_what_it_raises_is_raised_here(helper: Aside) -> None:
    with pytest.raises(Refused, match="not now"):
        helper.call(HERE, "refuse", "refused")
    with pytest.raises(WrongInput, match="no such model"):
        helper.call(HERE, "refuse", "input")
    with pytest.raises(SourceError, match="it is silent") as caught:
        helper.call(HERE, "refuse", "source")
    assert (caught.value.kind, caught.value.hint) == ("timeout", "wait")
    with pytest.raises(OSError, match="Permission denied"):
        helper.call(HERE, "refuse", "system")


def test_a_fault_ends_the_helper_and_the_next_call_has_a_new_one(helper: Aside) -> None:
    first = helper.call(HERE, "pid")
    with pytest.raises(SourceError, match="ended"):
        helper.call(HERE, "refuse", "ours")
    assert helper.call(HERE, "pid") != first


def test_a_helper_that_was_killed_is_started_again(helper: Aside) -> None:
    first = helper.call(HERE, "pid")
    os.kill(first, 9)
    assert helper.call(HERE, "pid") != first


def test_an_idle_helper_ends(helper: Aside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "IDLE_S", 0.0)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as requests, os.fdopen(write, "wb") as answers:
        aside.serve(requests, answers)


def test_closing_leaves_no_process(helper: Aside) -> None:
    found = helper.call(HERE, "pid")
    helper.close()
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{found}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{found}")


def test_silence_is_said(helper: Aside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "ANSWER_WITHIN_S", 0.3)
    with pytest.raises(SourceError, match="no answer within"):
        helper.call("time", "sleep", 30)
