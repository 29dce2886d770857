"""Who waits for whom to use the lab."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import lock, paths

OTHER = """
import sys
from pathlib import Path
from tests.lab import lock
lock.LOCK, lock.TURN = Path(sys.argv[1]), Path(sys.argv[2])
lock.WAIT_S = lock.TURN_S = float(sys.argv[4])
try:
    with getattr(lock, sys.argv[3])():
        print("has it", flush=True)
        sys.stdin.read()
except lock.BusyError:
    print("busy", flush=True)
"""


class Other:
    """Another test run."""

    def __init__(self, kind: str, wait: float = 60.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(lock.LOCK), str(lock.TURN), kind, str(wait)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=paths.SOURCES.parents[1],
            text=True,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(lock, "TURN", tmp_path / "turn")
    monkeypatch.setattr(lock, "_held", 0)


def test_many_side_by_side_and_nobody_beside_one_alone() -> None:
    with lock.shared():
        beside = Other("shared")
        assert beside.says() == "has it"
        late = Other("alone", 0.0)
        assert late.says() == "busy"
        beside.end()
        late.end()
    with lock.alone():
        late = Other("shared", 0.0)
        assert late.says() == "busy"
        late.end()


def test_who_waits_to_be_alone_comes_before_those_that_come_later() -> None:
    with lock.shared():
        waits = Other("alone")
        _until_turn_is_taken()
        later = Other("shared")
        with lock.shared():
            pass
    assert waits.says() == "has it"
    waits.end()
    assert later.says() == "has it"
    later.end()


def test_who_waits_in_vain_keeps_the_others_out_for_a_while_only() -> None:
    with lock.shared():
        waits = Other("alone")
        _until_turn_is_taken()
        later = Other("shared", 0.3)
        assert later.says() == "has it"
        later.end()
    waits.end()


def _until_turn_is_taken() -> None:
    while True:
        with lock.TURN.open("a") as turn:
            try:
                fcntl.flock(turn, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        time.sleep(0.01)
