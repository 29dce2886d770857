"""systemctl as a tool to act with: what is run, and what its refusals become. The programs are stand-ins on PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import systemd
from console.clients.systemd import Systemd
from console.core.model import SourceError
from tests.clients.test_units import bin_folder, tool

__all__ = ["bin_folder"]


def recording(folder: Path, name: str = "systemctl", end: str = "exit 0") -> Path:
    """A program that writes each of its runs as one line of words; returns the record."""
    record = folder / f"{name}.record"
    tool(folder, name, f'echo "{name} $*" >> {record}\n{end}')
    return record


def other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "reset-failed"])
def test_acts_with_these_words(bin_folder: Path, verb: systemd.Verb) -> None:
    record = recording(bin_folder)
    Systemd().act("triton.service", verb)
    assert record.read_text() == f"systemctl --no-ask-password {verb} triton.service\n"


def test_user_reload_and_no_wait(bin_folder: Path) -> None:
    record = recording(bin_folder)
    Systemd().act("triton.service", "stop", user=True, wait=False)
    Systemd().reload()
    assert record.read_text().splitlines() == [
        "systemctl --user --no-ask-password --no-block stop triton.service",
        "systemctl --no-ask-password daemon-reload",
    ]


def test_root_acts_on_the_manager_of_the_user_who_owns_the_container(bin_folder: Path) -> None:
    record = recording(bin_folder, "runuser")
    Systemd(owner=1).act("triton.service", "restart", user=True)
    words = "runuser -u daemon -- env XDG_RUNTIME_DIR=/run/user/1 systemctl --user --no-ask-password restart"
    assert record.read_text() == f"{words} triton.service\n"


def test_not_root_asks_polkit_first_and_then_sudo(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_user(monkeypatch)
    asked = recording(bin_folder, end='echo "Failed: Interactive authentication required." >&2; exit 1')
    record = recording(bin_folder, "sudo")
    Systemd().act("triton.service", "stop")
    assert asked.read_text().count("\n") == 1
    assert record.read_text() == "sudo -n systemctl --no-ask-password stop triton.service\n"


def test_no_password_is_ever_taken(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_user(monkeypatch)
    recording(bin_folder, end='echo "Access denied" >&2; exit 4')
    recording(bin_folder, "sudo", 'echo "sudo: a password is required" >&2; exit 1')
    with pytest.raises(SourceError) as caught:
        Systemd().act("triton.service", "stop")
    assert (caught.value.kind, caught.value.hint) == ("permission", "by hand: sudo systemctl stop triton.service")
    assert "wants a password" in Systemd().rights()
    assert Systemd().rights(user=True) == ""


def test_systemctls_own_words(bin_folder: Path) -> None:
    tool(bin_folder, "systemctl", 'echo "Job for triton.service failed." >&2; exit 1')
    with pytest.raises(SourceError, match=r"systemctl start triton\.service: Job for triton\.service failed\."):
        Systemd().act("triton.service", "start")
    tool(bin_folder, "systemctl", 'echo "System has not been booted with systemd as init system" >&2; exit 1')
    with pytest.raises(SourceError) as caught:
        Systemd().act("triton.service", "start")
    assert caught.value.kind == "unavailable"


def test_a_late_end_says_that_systemd_goes_on(bin_folder: Path) -> None:
    tool(bin_folder, "systemctl", "exec sleep 5")
    with pytest.raises(SourceError, match="systemd goes on with it") as caught:
        Systemd().act("triton.service", "stop", timeout=0.1)
    assert caught.value.kind == "timeout"


def test_show(bin_folder: Path) -> None:
    tool(bin_folder, "systemctl", 'echo "LoadState=loaded"; echo "ExecStart={ path=/x ; a=b }"; echo nonsense')
    found = Systemd().show("triton.service", ("LoadState", "ExecStart"))
    assert found == {"LoadState": "loaded", "ExecStart": "{ path=/x ; a=b }"}


def test_command() -> None:
    assert Systemd().command("a\\x2d.service", "stop") == "sudo systemctl stop 'a\\x2d.service'"
    assert Systemd().command("t.service", "start", user=True) == "systemctl --user start t.service"
    assert Systemd().command("", "daemon-reload") == "sudo systemctl daemon-reload"


@given(st.text(max_size=30))
def test_no_name_becomes_an_option(name: str) -> None:
    try:
        words = Systemd().command(name, "stop")
    except SourceError:
        return
    assert not name.startswith("-")
    assert words.startswith("sudo systemctl stop ")


def test_what_show_and_rights_say_of_trouble(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(bin_folder, "systemctl", 'echo "Failed to connect to bus: No such file" >&2; exit 1')
    with pytest.raises(SourceError) as caught:
        Systemd().show("triton.service", ("LoadState",))
    assert caught.value.kind == "unavailable"
    assert Systemd().rights() == ""
    other_user(monkeypatch)
    tool(bin_folder, "sudo", "exit 0")
    assert Systemd().rights() == ""
    monkeypatch.setenv("PATH", str(bin_folder))
    (bin_folder / "sudo").unlink()
    assert "sudo is not installed" in Systemd().rights()
    (bin_folder / "systemctl").unlink()
    with pytest.raises(SourceError, match="systemctl is not installed"):
        Systemd().act("triton.service", "start", user=True)


def test_a_user_without_a_name() -> None:
    with pytest.raises(SourceError, match="user 4000000 has no name"):
        Systemd(owner=4_000_000).command("t.service", "stop", user=True)
