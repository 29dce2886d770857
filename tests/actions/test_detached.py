"""The runner is a process of its own: started, followed, stopped and killed from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.actions import detached, journal
from console.actions.journal import Journal
from console.clients import aside, host
from console.core.plan import JournalLine, Operator, Outcome, Refused
from tests.actions import child
from tests.actions.conftest import Stand

GIVE_UP = 30.0
"""Seconds after which a test fails; none waits that long when it passes."""


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + GIVE_UP
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def in_phase(journal: Journal, phase: str) -> None:
    until(lambda: any((line.state, line.phase) == ("begin", phase) for line in journal.lines()))


def followed(journal: Journal) -> tuple[list[JournalLine], Outcome]:
    *lines, outcome = detached.follow(journal)
    assert isinstance(outcome, Outcome)
    return [line for line in lines if isinstance(line, JournalLine)], outcome


def test_it_runs_in_a_session_of_its_own_and_tells_its_journal(stand: Stand) -> None:
    made = stand.start(stand.plan(word="new", hold="two"))
    in_phase(made, "two")
    pid = made.runner()
    assert pid is not None
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert os.readlink(f"/proc/{pid}/fd/1") == str(made.log)
    assert detached.cancel(made)
    lines, outcome = followed(made)
    assert (outcome.word, stand.file.read_text()) == ("undone", "old")
    assert [line.phase for line in lines if line.state == "begin"] == ["one", "two"]
    until(lambda: host.process(pid) is None)  # reaped, not left as a zombie
    assert not detached.cancel(made)


def test_a_second_runner_is_refused_or_waits(stand: Stand) -> None:
    plan = stand.plan(word="new")
    first = stand.start(stand.plan(hold="one"))
    in_phase(first, "one")
    _, refused = followed(stand.start(plan))
    assert refused.word == "refused"
    assert f"root (pid {first.runner()})" in refused.text or os.geteuid() != 0
    assert f"is changing {stand.file} since" in refused.text
    waiting = stand.start(plan, wait=GIVE_UP)
    until(lambda: any("waits: " in line.text for line in waiting.lines()))
    given_up = stand.start(plan, wait=GIVE_UP)
    until(lambda: any("waits: " in line.text for line in given_up.lines()))
    detached.cancel(given_up)
    assert followed(given_up)[1].text.startswith("stopped while it waited, as ")
    detached.cancel(first)
    assert followed(first)[1].word == "undone"
    assert followed(waiting)[1].word == "done"
    assert stand.file.read_text() == "new"


def test_the_kernel_frees_the_box_of_a_killed_runner(stand: Stand) -> None:
    made = stand.start(stand.plan(hold="one"))
    in_phase(made, "one")
    pid = made.runner()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, outcome = followed(made)
    assert outcome.word == "interrupted"
    stand.file.write_text("old")
    assert followed(stand.start(stand.plan(word="new")))[1].word == "done"


def test_it_outlives_who_started_it(stand: Stand) -> None:
    """As when a terminal is lost: `do` and all of its process group are killed."""
    words = [sys.executable, "-m", "tests.actions.child", "do", "test.steps", str(stand.file), "hold=two", "--yes"]
    environ = {**os.environ, "XDG_STATE_HOME": str(stand.folder)}
    process = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, start_new_session=True, text=True)  # fmt: skip
    try:
        assert process.stdout is not None
        until(lambda: "2/3" in (process.stdout.readline() if process.stdout else ""))
        os.killpg(process.pid, signal.SIGHUP)
        process.wait()
    finally:
        process.kill()
        process.communicate()
    (made,) = journal.all_of(stand.folder / "gpuconsole")
    assert made.runner() is not None
    detached.cancel(made)
    assert followed(made)[1].word == "undone"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no module named console')"], "no module named console"),
        ([sys.executable, "-c", ""], "it said nothing"),
        (["/nonexistent/python"], r"No such file or directory \(/nonexistent/python\)"),
    ],
)
def test_a_runner_that_cannot_start_is_one_sentence(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.setattr(detached, "command", lambda folder: words)
    with pytest.raises(Refused, match=f"the runner did not start: {why}; nothing was done"):
        stand.start(stand.plan())
    (made,) = journal.all_of(stand.state)
    assert made.ended() is not None


def test_without_systemd_run_that_works_it_starts_all_the_same(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "scope", lambda: ["false"])
    assert followed(stand.start(stand.plan(word="new")))[1].word == "done"


def test_a_scope_of_systemd_where_it_runs(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    lingers = stand.folder / "linger"
    lingers.mkdir()
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/systemd-run")
    monkeypatch.setattr(detached, "LINGER", lingers)
    monkeypatch.setattr(detached, "SYSTEMD", stand.folder / "none")
    assert detached.scope() == []
    monkeypatch.setattr(detached, "SYSTEMD", stand.folder)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert detached.scope() == ["systemd-run", "--scope", "--collect", "--quiet", "--"]
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert detached.scope() == []
    (lingers / "nobody").touch()
    assert detached.scope() == ["systemd-run", "--scope", "--collect", "--quiet", "--user", "--"]


def test_what_is_refused_starts_nothing(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "_launch", lambda _: pytest.fail("launched"))
    plan = stand.plan()
    with pytest.raises(Refused, match="read-only"):
        detached.start(stand.spec(read_only=True), stand.state, plan)
    stand.file.write_text("full")
    with pytest.raises(Refused, match="the file is full of it"):
        detached.start(stand.spec(), stand.state, stand.plan())


def test_on_a_disk_that_takes_nothing_only_unaudited_goes(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stand.plan(word="new")
    blocked = Path(stand.folder / "blocked")
    blocked.write_text("")
    with pytest.raises(Refused, match=r"cannot be written down .*: nothing was done; .* unaudited"):
        detached.start(stand.spec(), blocked, plan, Operator("root", 0))
    monkeypatch.setattr(detached, "_launch", lambda made: None)
    id_ = detached.start(stand.spec(), blocked, plan, Operator("root", 0), unaudited=True)
    assert Journal(blocked, id_).folder == journal.spare_folder() / id_


def test_the_real_command_finds_this_package_from_anywhere(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (stand.folder / "console").mkdir()
    (stand.folder / "console/__main__.py").write_text("print('the wrong one')")
    done = subprocess.run(
        [*detached.command(Path("/nonexistent"))[:-2], "--version"],
        cwd=stand.folder, env=aside.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("gpuconsole ")
    assert child.command(Path("x"))[-2:] == detached.command(Path("x"))[-2:]


def test_one_that_came_at_the_last_moment_is_not_followed_by_another(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stand.journal(stand.plan())

    class Late:
        def kill(self) -> None:
            made.begun_by_this_process()

        def wait(self) -> int:
            return -9

    monkeypatch.setattr(detached, "START_WITHIN", 0.0)
    assert detached._began(made, Late())  # type: ignore[arg-type]
