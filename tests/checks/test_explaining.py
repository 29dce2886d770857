"""`explain`: a check by id or slug, a pasted message, a log from standard input."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from console import cli, explaining
from console.checks.check import Check
from console.checks.run import all_checks, named
from console.core.encode import to_json
from console.core.facts import Facts, FileFact
from console.core.plan import WrongInput
from tests.checks.told import told

NOUVEAU = told(
    {"/proc/modules": "nouveau 2420736 0 - Live 0x0\n"},
    variables={"gpu": ("0000:3b:00.0",), "release": ("4.18.0-553.el8_10.x86_64",)},
)


def nothing(checks: Sequence[Check], slow: bool) -> Facts:
    return Facts()


@pytest.mark.parametrize("word", ["A03", "a03", " A03 ", "nouveau-loaded", "NOUVEAU-LOADED"])
def test_a_check_is_found_by_id_and_slug(word: str) -> None:
    assert named(word).id == "A03"


@pytest.mark.parametrize(
    ("word", "near"),
    [("A33", "A03 nouveau-loaded"), ("nouveau-loded", "A03 nouveau-loaded"), ("cdi stale", "--text"), ("", "lists")],
)
def test_an_unknown_one_is_told_with_its_nearest(word: str, near: str) -> None:
    with pytest.raises(WrongInput) as raised:
        named(word)
    assert "there is no check" in str(raised.value)
    assert near in str(raised.value)


def test_a_check_is_explained_with_what_it_says_here(capsys: pytest.CaptureFixture[str]) -> None:
    one = named("A03")
    assert explaining.explain_check(one, nothing) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"A03  {one.title}   (nouveau-loaded, Kernel and driver)\n")
    for words in (one.why, one.source, "  looks at    ", "/proc/modules", "  it says     ? "):
        assert words in shown


def test_a_check_as_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    explaining.explain_check(named("A03"), nothing, as_json=True)
    shown = json.loads(capsysbinary.readouterr().out)
    assert shown["check"]["id"] == shown["finding"]["id"] == "A03"
    assert {"need": "/proc/modules", "words": "/proc/modules"} in shown["check"]["looks_at"]


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ("/etc/os-release", "/etc/os-release"),
        ("$ dkms status", "what `dkms status` prints"),
        ("stat /dev/nvidia*", "/dev/nvidia* (what it is, mode, owner, label)"),
        (
            "find /lib/modules/{release} nvidia*.ko*",
            "files called nvidia*.ko* below /lib/modules/4.18.0-553.el8_10.x86_64",
        ),
        ("space {graph_root}", "room of the file system that holds <folder of Podman's storage>"),
        ("@podman.image", "podman.image: libpod inspect of its image"),
        ("/sys/bus/pci/devices/{gpu}/driver", "/sys/bus/pci/devices/0000:3b:00.0/driver"),
    ],
)
def test_needs_are_told_in_words(need: str, words: str) -> None:
    assert explaining.need_words(need, NOUVEAU) == words


def test_every_need_of_every_check_can_be_told() -> None:
    for one in all_checks()[0]:
        for need in one.needs:
            assert explaining.need_words(need)


def test_a_pasted_message_is_diagnosed_with_the_checks_of_this_box(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[list[str]] = []

    def collect(checks: Sequence[Check], slow: bool) -> Facts:
        asked.append([one.id for one in checks])
        return Facts()

    text = "modprobe: ERROR: could not insert 'nvidia': No such device"
    assert explaining.explain_text(text, collect) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("✗ the nvidia module finds no card that it may drive\n")
    assert f"  line        1: {text}\n" in shown
    assert "  this box    A03 ? " in shown
    assert "A03" in asked[0]
    assert "E01" not in asked[0]


def test_a_text_of_which_nothing_is_known_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert explaining.explain_text("all is well", nothing) == explaining.NOTHING_KNOWN
    assert "nothing in this text is known" in capsys.readouterr().out


def test_a_diagnosis_as_json_holds_findings_too(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert explaining.explain_text("No devices were found", nothing, as_json=True, ascii_only=True) == 0
    shown = json.loads(capsysbinary.readouterr().out)
    assert shown["diagnoses"][0]["rule"] == "nvml-no-devices"
    assert {one["id"] for one in shown["findings"]} <= set(shown["diagnoses"][0]["checks"])


def test_plain_signs_where_the_terminal_has_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    explaining.explain_text("No devices were found", nothing, ascii_only=True)
    assert capsys.readouterr().out.startswith("x the driver")


def test_standard_input_may_hold_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explaining.read_text(io.BytesIO(b"\xff\x00No devices")) == "�\x00No devices"
    monkeypatch.setattr(explaining, "MOST_TEXT", 10)
    with pytest.raises(WrongInput, match="tail"):
        explaining.read_text(io.BytesIO(b"x" * 11))


# -------------------------------------------------------------------------------------------------- the command itself


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Facts of a box that nouveau holds, as `facts --json` writes them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "facts.json"
    found = {**NOUVEAU.files, "/sys/bus/pci/devices/0000:3b:00.0/vendor": FileFact("file", "0x10de\n")}
    path.write_bytes(to_json(replace(NOUVEAU, files=found)))
    return str(path)


def test_the_command_explains_a_check_of_a_recorded_box(box: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "A03", "--facts", box]) == 0
    assert "A03  " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["explain", "A99"], 64, "there is no check 'A99'; like it: "),
        (["explain", "A03", "--text", "x"], 64, "explain wants a check or --text, not both"),
        (["explain", "A03", "--root", "/", "--facts", "x"], 64, "give one of them"),
        (["explain", "A03", "--facts", "/nowhere"], 64, "there is no file /nowhere"),
        (["explain", "A03", "--demo", "--root", "/"], 64, "--demo is a box of its own"),
    ],
)
def test_wrong_usage_is_one_sentence(
    words: list[str], code: int, said: str, box: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == code
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_the_command_reads_a_log_from_standard_input(
    box: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"\xff\nNo devices were found\n"))
    monkeypatch.setattr("sys.stdin", stream)
    assert cli.run(["explain", "--facts", box]) == 0
    assert "  line        2: No devices were found" in capsys.readouterr().out
