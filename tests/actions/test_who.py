"""Who acts, by the kernel; where from, by the nearest environment that tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from console.actions import who
from console.clients import host


def proc(root: Path, pid: int, *, parent: int, environ: bytes = b"", login: str = "4294967295") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    folder.joinpath("stat").write_text(f"{pid} (a (b) c) S {parent} " + " ".join(["0"] * 40))
    folder.joinpath("environ").write_bytes(environ)
    folder.joinpath("loginuid").write_text(login)
    folder.joinpath("status").write_text("Name:\tx\nUid:\t1000\t0\t0\t0\n")


def test_the_user_is_the_kernels_and_the_login_behind_sudo_too(tmp_path: Path) -> None:
    proc(tmp_path, os.getpid(), parent=1, login="0")
    told = who.operator(tmp_path, {"SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22"})
    assert (told.uid, told.login_uid, told.login_user, told.ssh) == (os.getuid(), 0, "root", "192.0.2.7")
    assert told.user == host.user_name(os.getuid())
    assert told.short == "root@192.0.2.7"


def test_no_login_is_none_and_not_minus_one(tmp_path: Path) -> None:
    proc(tmp_path, 7, parent=1)
    assert who.login_uid(7, tmp_path) is None
    assert who.login_uid(8, tmp_path) is None


def test_the_ssh_client_is_found_above_sudo(tmp_path: Path) -> None:
    parent = os.getppid()
    proc(tmp_path, parent, parent=50, environ=b"SUDO_USER=ops\0XSSH_CONNECTION=wrong 1\0")
    proc(tmp_path, 50, parent=40)
    proc(tmp_path, 40, parent=1, environ=b"A=1\0SSH_CONNECTION=2001:db8::9 1 2 3\0")
    assert who.operator(tmp_path, {}).ssh == "2001:db8::9"


@pytest.mark.parametrize("told", ["", "  ", "\x1b]0;x\x07 1 2 3"])
def test_an_environment_that_says_nothing_or_rubbish(tmp_path: Path, told: str) -> None:
    found = who.operator(tmp_path, {"SSH_CONNECTION": told}).ssh
    assert found is None or "\x1b" not in found
