"""Who runs a load on this machine: by the kernel where it can be, by the file's word where it must be."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.core.encode import to_json
from console.loadgen import announce
from console.loadgen.announce import Running, announced, going_on, mine
from tests.actions.folders import open_to_all

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another user")
SAY = """
import sys
from pathlib import Path
from console.loadgen import announce
announce.FOLDERS = (Path(sys.argv[1]),)
with announce.announced(announce.mine("rank", "127.0.0.1:8000", "open loop, 5/s", 30.0)) as why:
    print(why or "told", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path_factory.mktemp("loads")
    open_to_all(made)
    made.chmod(0o1777)
    monkeypatch.setattr(announce, "FOLDERS", (made,))
    return made


@contextlib.contextmanager
def other(folder: Path, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Another process with a load, which is announced when the block begins."""
    words = [*prefix, sys.executable, "-c", SAY, str(folder)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "told\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def load() -> Running:
    return mine("rank", "127.0.0.1:8000", "closed loop, 4 at once", 32.0)


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    path.chmod(0o644)
    return path


def own_name(mark: str = "00000000") -> str:
    me = load()
    return f"gpuconsole-load.{me.pid}.{me.ticks}.{mark}"


def test_known_while_it_runs_and_no_longer(folder: Path) -> None:
    me = load()
    with announced(me) as why:
        assert why == ""
        assert going_on() == (me,)
        (file,) = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert going_on() == ()
    assert list(folder.iterdir()) == []


def test_gone_when_the_load_breaks_off(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt), announced(load()):
        raise KeyboardInterrupt
    assert list(folder.iterdir()) == []


@root_only
def test_another_users_load_is_seen_both_ways(folder: Path) -> None:
    as_nobody = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    with other(folder, *as_nobody) as theirs:
        (found,) = going_on()
        assert (found.pid, found.by, found.model, found.seconds) == (theirs.pid, "nobody", "rank", 30.0)
    assert going_on() == ()
    assert len(list(folder.iterdir())) == 1  # another user's left file is his to remove
    program = (
        f"from pathlib import Path; from console.loadgen import announce; announce.FOLDERS = (Path({str(folder)!r}),)\n"
        "print([(one.by, one.pid) for one in announce.going_on()])"
    )
    with announced(load()):
        said = subprocess.run([*as_nobody, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == f"[('root', {os.getpid()})]\n"
    assert list(folder.iterdir()) == []  # and he did


def test_what_a_killed_process_left_is_no_load_and_is_removed_by_its_owner(folder: Path) -> None:
    with other(folder) as killed:
        assert [one.pid for one in going_on()] == [killed.pid]
        killed.kill()
        killed.wait()
        assert going_on() == ()
        assert list(folder.iterdir()) == []


def test_a_number_used_again_is_another_process(folder: Path) -> None:
    file = put(folder, f"gpuconsole-load.{os.getpid()}.1.00000000", to_json(load()))
    assert going_on() == ()
    assert not file.exists()


@root_only
def test_nobody_says_it_of_anothers_process(folder: Path) -> None:
    file = put(folder, own_name(), to_json(load()))
    assert [one.by for one in going_on()] == ["root"]
    os.chown(file, NOBODY, NOBODY)
    assert going_on() == ()
    assert file.exists()


def test_the_words_are_literal_short_and_within_reason(folder: Path) -> None:
    told = {
        "model": "\x1b[2J" + "m" * 500,
        "target": "[/x]\n",
        "words": "\x07",
        "seconds": -1,
        "wall": time.time() + 1e6,
    }
    put(folder, own_name(), to_json(told))
    (found,) = going_on()
    assert found.model.startswith("\\x1b[2J")
    assert len(found.model) < 100
    assert (found.target, found.words, found.seconds) == ("[/x]", "\\a", None)
    assert found.wall <= time.time()


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _hard_link(path: Path) -> None:
    victim = put(path.parent, "victim", to_json(load()))
    os.link(victim, path)


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _long(path: Path) -> None:
    path.write_bytes(b'{"model": "' + b"m" * 100_000 + b'"}')


def _rubbish(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{")


@pytest.mark.parametrize("make", [_link, _hard_link, _folder, _pipe, _long, _rubbish])
def test_what_is_no_plain_file_of_ours_is_passed_over(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / own_name("ffffffff"))
    with announced(load()):
        assert len(going_on()) == 1


@pytest.mark.parametrize("name", ["gpuconsole-load.1", "gpuconsole-load.-1.1.00000000", "gpuconsole.lock", "x"])
def test_other_files_are_let_alone(folder: Path, name: str) -> None:
    file = put(folder, name, to_json(load()))
    assert going_on() == ()
    assert file.exists()


def test_a_flood_of_files_is_not_read_without_end(folder: Path) -> None:
    for at in range(3 * announce._MOST):
        put(folder, own_name(f"{at:08x}"), to_json(load()))
    assert len(going_on()) == announce._MOST


def test_without_such_a_folder_the_load_goes_on_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "FOLDERS", (tmp_path / "none", tmp_path))
    with announced(load()) as why:
        assert why.startswith("other consoles do not see this load: none of ")
    assert going_on() == ()
