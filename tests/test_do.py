"""`gpuconsole do` and `audit` as a user meets them: a process of its own, its exit code, its sentences."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console import cli, do
from console.actions import detached, registry, words
from console.actions.lock import Lock
from console.core.plan import JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, Way, WrongInput
from tests.actions.conftest import Stand, small_disk, stand
from tests.actions.folders import open_to_all
from tests.actions.test_detached import in_phase

__all__ = ["small_disk", "stand"]
SECRET = "hunter22"
GIVE_UP = 30.0


def environ(stand: Stand) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCONSOLE_", "LC_"))}
    own = {"XDG_STATE_HOME": str(stand.folder), "XDG_CONFIG_HOME": str(stand.folder / "config"), "LANG": "C.UTF-8"}
    return {**kept, **own}


def run(stand: Stand, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.actions.child", *arguments],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environ(stand), timeout=60, check=False,
    )  # fmt: skip


def steps(stand: Stand, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(stand, "do", "test.steps", str(stand.file), *arguments)


def test_plan_progress_outcome_audit_and_undo(stand: Stand) -> None:
    done = steps(stand, "word=new", "--yes", f"password={SECRET}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Write new with ***"
    assert "▸ 2/3 write two" in lines
    assert any(line.startswith("● 3/3 three   0.") for line in lines)
    assert "● done: written new" in lines
    id_ = lines[-1].rpartition(" ")[2]
    listed = run(stand, "audit")
    assert id_ in listed.stdout
    assert f"can be undone: gpuconsole do undo {id_}" in listed.stdout
    assert run(stand, "do", "undo", "last", "--yes").returncode == 0
    assert stand.file.read_text() == "old"
    told = json.loads(run(stand, "audit", "--json").stdout)["changes"]
    assert [one["word"] for one in told] == [f"undone by {told[1]['id']}", "done"]
    assert SECRET not in done.stdout + listed.stdout + json.dumps(told)


def test_one_object_with_plan_and_outcome(stand: Stand) -> None:
    done = steps(stand, "word=new", "--yes", "--json", f"password={SECRET}")
    assert done.returncode == 0
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["outcome"]["word"] == "done"
    assert told["plan"]["values"] == {"word": "new", "password": "***"}
    assert told["id"]
    assert SECRET not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words_"),
    [
        (["do"], 64, "do wants ACTION and TARGET"),
        (["do", "test.steps"], 64, "test.steps wants a model: gpuconsole do test.steps MODEL"),
        (["do", "test.whole", "triton"], 64, "test.whole takes no target, but was given 'triton'; leave it out"),
        (["do", "test.whole", "wrod=x"], 64, "did you mean `word`?"),
        (["do", "test.step", "FILE", "--yes"], 64, "did you mean `test.steps`?"),
        (["do", "test.steps", "FILE", "wrod=x", "--yes"], 64, "did you mean `word`?"),
        (["do", "test.steps", "FILE", "word", "--yes"], 64, "'word' is no value; write key=value"),
        (["do", "test.steps", "FILE", "word=1", "word=2", "--yes"], 64, "given twice"),
        (["do", "test.steps", "FILE", "limit=0", "--yes"], 64, "from 1 to 100 s"),
        (["do", "test.steps", "relative", "--yes"], 64, "no absolute path"),
        (["do", "test.steps", "FILE", "--wait", "inf", "--yes"], 64, "--wait must be from 0 to 86400"),
        (["do", "test.steps", "FILE", "--yse"], 64, "unrecognized arguments: --yse"),
        (["snapshot", "a=b"], 64, "unrecognized arguments: a=b"),
        (["--demo", "do", "test.steps", "FILE", "--yes"], 64, "the simulated box ends with its console"),
        (["do", "test.steps", "FILE", "danger=yes", "--yes", "--confirm", "other"], 64, "letter by letter"),
        (["_run"], 64, "is what `do` and the console start"),
        (["do", "test.steps", "FILE"], 77, "no terminal to ask on: say yes with --yes"),
        (["do", "test.steps", "FILE", "danger=yes", "--yes"], 77, "say yes with --confirm FILE"),
        (["do", "test.steps", "FILE", "danger=yes"], 77, "say yes with --yes --confirm FILE"),
        (["--read-only", "do", "test.steps", "FILE", "--yes"], 77, "read-only: nothing that changes the box"),
        (["do", "--read-only", "test.steps", "FILE", "--dry-run"], 77, "read-only: nothing that changes the box"),
        (["do", "undo", "last", "--yes"], 77, "no change of yours"),
    ],
)
def test_what_is_wrong_or_refused_is_one_sentence_and_changes_nothing(
    stand: Stand,
    arguments: list[str],
    code: int,
    words_: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ(stand).items():
        monkeypatch.setenv(name, value)
    file = str(stand.file)
    assert cli.run([word.replace("FILE", file) for word in arguments]) == code
    told = capsys.readouterr().err
    assert words_.replace("FILE", file) in told
    assert told.count("\n") == 1
    assert stand.file.read_text() == "old"
    assert not (stand.folder / "gpuconsole/actions").exists()


def test_a_dry_run_and_a_plan_that_cannot_be(stand: Stand) -> None:
    dry = steps(stand, "--dry-run", "danger=yes")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.splitlines()[0].endswith("DANGEROUS")
    assert dry.stdout.endswith("dry run: nothing was done\n")
    assert json.loads(steps(stand, "--dry-run", "--json").stdout)["outcome"] is None
    stand.file.write_text("full")
    refused = steps(stand, "--yes")
    assert (refused.returncode, refused.stderr) == (77, "gpuconsole: the file is full of it\n")
    told = json.loads(steps(stand, "--yes", "--json").stdout)
    assert told["outcome"]["text"] == told["plan"]["refused"] == "the file is full of it"


def test_an_action_without_a_target_takes_its_values_at_once(stand: Stand) -> None:
    done = run(stand, "do", "test.whole", "word=a", "--yes", "more=b")
    assert (done.returncode, done.stderr) == (0, "")
    assert "● done: a b" in done.stdout


def test_a_change_that_fails_is_1_and_a_busy_box_77(stand: Stand) -> None:
    failed = steps(stand, "--yes", "fail=two", "raises=bug")
    assert failed.returncode == 1
    assert "✗ failed: a fault of gpuconsole (KeyError" in failed.stdout
    assert "Traceback" not in failed.stdout + failed.stderr
    mine = Lock(stand.spec())
    assert mine.take("rank", stand.journal(stand.plan()).request().operator)
    busy = steps(stand, "--yes")
    mine.release()
    assert busy.returncode == 77
    assert f"(pid {os.getpid()}) is changing rank since" in busy.stdout


def test_the_list_names_actions_their_values_and_files_that_are_no_use(
    stand: Stand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert do.listed(as_json=False, looks=do.Looks(ascii_only=True)) == 0
    text = capsys.readouterr().out
    assert "test.steps MODEL\n    Write a word into a file, in three steps.\n" in text
    assert "limit=N s" in text
    assert text.isascii()
    assert do.listed(as_json=True, looks=do.Looks()) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"undo", "test.steps"} <= {one["name"] for one in told["actions"]}
    assert told["failures"] == []
    (stand.folder / "broken_acts").mkdir()
    (stand.folder / "broken_acts/__init__.py").write_text("")
    (stand.folder / "broken_acts/bad.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(str(stand.folder))
    monkeypatch.setattr(registry, "PACKAGES", ["broken_acts"])
    do.listed(as_json=False, looks=do.Looks())
    assert "✗ broken_acts.bad is left out: ModuleNotFoundError" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------- a terminal


@pytest.fixture
def terminal(stand: Stand) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(stand, "do", "test.steps", str(stand.file), *arguments))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


class Terminal:
    """`do` on a pseudo-terminal."""

    def __init__(self, stand: Stand, *arguments: str) -> None:
        self.text = ""
        pid, self._handle = pty.fork()
        if pid == 0:
            os.execvpe(sys.executable, [sys.executable, "-m", "tests.actions.child", *arguments], environ(stand))
        self.pid = pid
        self.code: int | None = None

    def reads(self, words_: str) -> None:
        """Wait until this was printed."""
        end = time.monotonic() + GIVE_UP
        while words_ not in self.text:
            assert time.monotonic() < end, self.text
            if not self._more():
                assert words_ in self.text, self.text

    def types(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def ends(self) -> int:
        while self._more():
            pass
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._handle)

    def _more(self) -> bool:
        if not select.select([self._handle], [], [], GIVE_UP)[0]:
            raise AssertionError(f"nothing more came after {self.text!r}")
        try:
            data = os.read(self._handle, 4096)
        except OSError:  # the other end is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


@pytest.mark.parametrize("answer", ["\n", "no\n", "\x04", "maybe\n"])
def test_whoever_does_not_say_yes_says_no(stand: Stand, terminal: Callable[..., Terminal], answer: str) -> None:
    asked = terminal()
    asked.reads("Write? yes or no [no]: ")
    asked.types(answer)
    assert asked.ends() == 77
    assert "not done: nothing was sent" in asked.text
    assert stand.file.read_text() == "old"


def test_a_dangerous_one_wants_the_name_even_with_yes(stand: Stand, terminal: Callable[..., Terminal]) -> None:
    for answer, code, text in (("yes", 77, "old"), (str(stand.file), 0, "new")):
        asked = terminal("word=new", "danger=yes", "--yes")
        asked.reads(f"type {stand.file} to go on: ")
        asked.types(f"{answer}\n")
        assert asked.ends() == code
        assert stand.file.read_text() == text


def test_ctrl_c_goes_back_and_goes_on_following(stand: Stand, terminal: Callable[..., Terminal]) -> None:
    asked = terminal("hold=two")
    asked.reads("[no]: ")
    asked.types("yes\n")
    asked.reads("2/3 write two")
    asked.types("\x03")
    asked.reads("asked to stop and go back")
    assert asked.ends() == 1
    assert "undone: stopped, and written back" in asked.text
    assert stand.file.read_text() == "old"


# --------------------------------------------------------------------------------------------------------------- words


def test_whatever_others_named_is_literal_and_on_one_line() -> None:
    hostile = "\x1b[2J[/x]\nnext\r" + "y" * 9000
    plan = Plan(
        "a.b", Target("model", "m"), {}, hostile, "Yes", "caution", note=hostile,
        ways=(Way("w", hostile, hostile, hostile, hostile),), way="w", steps=(Step("p", hostile, hostile, (hostile,)),),
        effects=(hostile,), difference=("+ " + hostile,), by_hand=(hostile,), undo=hostile, refused=hostile,
    )  # fmt: skip
    outcome = Outcome("failed", hostile, (hostile,), UndoSpec("a.b", "m", text=hostile), still_going=hostile)
    lines = [
        *words.plan_lines(plan),
        *words.outcome_lines(outcome, "1"),
        *(
            words.progress_line(JournalLine(1.0, state, "p", hostile, 1.0), plan)
            for state in ("begin", "failed", "note")
        ),
    ]
    assert len(lines) > 15
    for line in lines:
        assert line == do.drawn(line, do.Looks())
        assert not {"\x1b", "\n", "\r"} & set(line)
        assert len(line) < 5000


def test_an_audit_that_cannot_be_read_is_refused(stand: Stand) -> None:
    stand.state.mkdir()
    (stand.state / "audit.jsonl").mkdir()
    with pytest.raises(Refused, match="cannot be read"):
        do.history(stand.state, as_json=False, looks=do.Looks())


def test_words_without_a_name_are_no_values() -> None:
    with pytest.raises(WrongInput, match="write key=value"):
        do._values(["=1"])


# ------------------------------------------------------------------------------------- other users, full disks, kill -9


AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def interpreter_for_all() -> str:
    """A Python of this version that any user may run (root's own may lie in a home that nobody else may enter)."""
    again = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', ''])"
    for candidate in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        words_ = [*AS_NOBODY, candidate, "-c", again]
        if os.geteuid() == 0 and not subprocess.run(words_, capture_output=True, check=False).returncode:
            return candidate
    pytest.skip("no way to run Python as another user")


def test_another_users_change_is_refused_with_the_name_of_the_first(stand: Stand) -> None:
    python = interpreter_for_all()
    open_to_all(stand.folder)
    stand.file.chmod(0o666)
    theirs_home = stand.folder / "theirs"
    theirs_home.mkdir()
    theirs_home.chmod(0o777)
    mine = stand.start(stand.plan(hold="two"))
    in_phase(mine, "two")
    own = {"XDG_STATE_HOME": str(theirs_home), "HOME": str(theirs_home), "PYTHONPATH": os.pathsep.join(sys.path)}
    theirs = subprocess.run(
        [*AS_NOBODY, python, "-m", "tests.actions.child", "do", "test.steps", str(stand.file), "--yes"],
        env={**environ(stand), **own},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    pid = mine.runner()
    detached.cancel(mine)
    assert theirs.returncode == 77, theirs.stderr
    assert f"root (pid {pid})" in theirs.stdout
    assert f"is changing {stand.file} since" in theirs.stdout
    list(detached.follow(mine))


def test_on_a_full_disk_only_unaudited_goes(stand: Stand, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="No space"):
        (small_disk / "fill").write_bytes(b"x" * 200_000)
    own = {**environ(stand), "XDG_STATE_HOME": str(small_disk)}
    monkeypatch.setattr(sys.modules[__name__], "environ", lambda _: own)
    refused = steps(stand, "word=new", "--yes")
    assert (refused.returncode, stand.file.read_text()) == (77, "old")
    assert "no audit record can be written: the disk of" in refused.stderr
    done = steps(stand, "word=new", "--yes", "--unaudited")
    assert (done.returncode, stand.file.read_text()) == (0, "new"), done.stdout + done.stderr
    assert "no audit record of this outcome (No space left on device)" in done.stdout


def test_what_was_killed_is_told_and_finished(stand: Stand) -> None:
    made = stand.start(stand.plan(word="new", hold="two"))
    in_phase(made, "two")
    pid = made.runner()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    list(detached.follow(made))
    (stand.folder / "gpuconsole").symlink_to(stand.state)
    told = run(stand, "audit").stdout
    assert f"    interrupted\n    left half way: gpuconsole do interrupted.finish {made.id}, .undo or .dismiss" in told
    done = run(stand, "do", "interrupted.finish", made.id, "--yes")
    assert (done.returncode, stand.file.read_text()) == (0, "new"), done.stdout + done.stderr
    assert f"interrupted, dealt with by {stand.changes()[1].id}" in run(stand, "audit").stdout
