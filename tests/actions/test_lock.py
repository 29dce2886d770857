"""One change at a time, whoever makes it; the lock goes with its holder, and who that is says the kernel."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from console.actions import lock
from console.actions.box import BoxSpec
from console.actions.lock import Holder, Lock, Told, holder, path_of
from console.config import Settings
from console.core.plan import Operator, Refused
from tests.actions.folders import open_to_all

SPEC = BoxSpec(Settings())
HOLD = """
import sys, time
from pathlib import Path
from console.actions import lock
from console.actions.box import BoxSpec
from console.config import Settings
from console.core.plan import Operator
lock.FOLDERS = (Path(sys.argv[1]),)
held = lock.Lock(BoxSpec(Settings()))
print(held.take("rank", Operator("root", 0, ssh="192.0.2.7"), "ID"), flush=True)
sys.stdin.read()
held.release()
print("released", flush=True)
sys.stdin.close()
time.sleep(60)
"""
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another user")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path_factory.mktemp("locks")
    open_to_all(made)
    made.chmod(0o1777)
    monkeypatch.setattr(lock, "FOLDERS", (made,))
    return made


@contextlib.contextmanager
def other(folder: Path, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock (or could not get it) when the block begins."""
    words = [*prefix, sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_free_then_held_then_free_again(folder: Path) -> None:
    assert holder(SPEC) is None
    mine = Lock(SPEC)
    assert mine.take("rank", Operator("root", 0))
    mine.release()
    mine.release()
    with other(folder) as process:
        assert said(process) == "True"
        found = holder(SPEC)
        assert found is not None
        assert (found.pid, found.what, found.ssh, found.id) == (process.pid, "rank", "192.0.2.7", "ID")
        assert not mine.take("other", Operator("root", 0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert holder(SPEC) is None
        assert mine.take("other", Operator("root", 0))
    mine.release()


def test_it_is_let_go_before_the_process_ends(folder: Path) -> None:
    with other(folder) as process:
        assert said(process) == "True"
        assert process.stdin is not None
        process.stdin.close()
        assert said(process) == "released"
        assert holder(SPEC) is None
        process.stdin = None


@root_only
def test_users_keep_each_other_out_and_see_who_it_is(folder: Path) -> None:
    as_nobody = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    with other(folder, *as_nobody) as theirs:
        assert said(theirs) == "True"
        assert os.stat(path_of(SPEC)).st_uid == NOBODY
        found = holder(SPEC)
        assert found is not None
        assert found.user == "nobody"
        assert f"nobody (pid {found.pid}) from 192.0.2.7 is changing rank since " in found.sentence()
        assert not Lock(SPEC).take("mine", Operator("root", 0))
    with other(folder) as ours:
        assert said(ours) == "True"
        with other(folder, *as_nobody) as theirs:
            assert said(theirs) == "False"


def test_what_the_text_says_of_another_process_is_not_believed(folder: Path) -> None:
    with other(folder) as process:
        assert said(process) == "True"
        path = path_of(SPEC)
        path.write_bytes(msgspec.json.encode(Told(1, "everything", 5.0, "10.0.0.1")))
        found = holder(SPEC)
        assert found is not None
        assert (found.pid, found.what, found.since, found.ssh) == (process.pid, "", None, None)
        assert found.sentence().endswith(f"(pid {process.pid}) is changing this box")


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe{", b"[" * 4000, b'{"pid":"x"}', b"null", b'{"pid":1,"what":2,"since":3}']
)
def test_rubbish_in_the_text_is_no_matter(folder: Path, text: bytes) -> None:
    with other(folder) as process:
        assert said(process) == "True"
        path_of(SPEC).write_bytes(text)
        found = holder(SPEC)
        assert found is not None
        assert found.pid == process.pid


def test_the_text_of_a_holder_is_literal_and_short(folder: Path) -> None:
    with other(folder) as process:
        assert said(process) == "True"
        told = Told(process.pid, "\x1b[2J[/x]" + "y" * 3000, time.time() + 9999, "\x07")
        path_of(SPEC).write_bytes(msgspec.json.encode(told))
        found = holder(SPEC)
        assert found is not None
        sentence = found.sentence()
        assert "\x1b" not in sentence
        assert "\x07" not in sentence
        assert len(sentence) < 400
        assert found.since is None


def test_a_file_removed_under_a_holder_keeps_nobody_out_and_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lock._open
    tries: list[int] = []

    def removed(path: Path) -> int:
        handle = real(path)
        tries.append(handle)
        if len(tries) == 1:
            path.unlink()
        return handle

    monkeypatch.setattr(lock, "_open", removed)
    mine = Lock(SPEC)
    assert mine.take("rank", Operator("root", 0))
    assert len(tries) == 2
    assert path_of(SPEC).exists()
    mine.release()


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _hard_link(path: Path) -> None:
    victim = path.with_name("victim")
    victim.write_text("precious")
    os.link(victim, path)


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [_link, _hard_link, _folder, _pipe])
def test_what_is_no_plain_file_is_refused_and_left_as_it_is(folder: Path, make: object) -> None:
    assert callable(make)
    make(path_of(SPEC))
    for attempt in (lambda: Lock(SPEC).take("rank", Operator("root", 0)), lambda: holder(SPEC)):
        with pytest.raises(Refused, match="is no plain file"):
            attempt()
    assert Path("/etc/passwd").read_text()
    if make is _hard_link:
        assert (folder / "victim").read_text() == "precious"


def test_a_simulated_box_has_its_own(folder: Path) -> None:
    one = BoxSpec(Settings(), simulated="healthy", root="/tmp/a")
    two = BoxSpec(Settings(), simulated="healthy", root="/tmp/b")
    assert len({path_of(SPEC), path_of(one), path_of(two)}) == 3
    assert path_of(one).parent == folder


def test_the_first_folder_that_is_for_everybody_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, free = tmp_path / "closed", tmp_path / "free"
    closed.mkdir(0o755)
    free.mkdir()
    free.chmod(0o1777)
    monkeypatch.setattr(lock, "FOLDERS", (tmp_path / "none", closed, free))
    assert path_of(SPEC).parent == free
    monkeypatch.setattr(lock, "FOLDERS", (closed,))
    with pytest.raises(Refused, match="nowhere to put the box's lock"):
        path_of(SPEC)


def test_the_sentence_names_the_login_behind_root() -> None:
    told = Holder(123, "root", "ops", "rank", 1_790_000_000.0, "192.0.2.7")
    assert told.sentence(utc=True) == "root (ops, pid 123) from 192.0.2.7 is changing rank since 14:13:20"
    assert Holder(0, "somebody").sentence() == "somebody (pid ?) is changing this box"
