"""`gpuconsole bundle`: on the simulated box, where nothing answers, as an ordinary user, and with wrong words."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from console import cli, opening
from console.bundle import archive
from tests.bundle.stand import opened

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_simulated_box(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "b.tar.zst"
    assert cli.run(["bundle", "--demo", "--scene", "load-failed", "--utc", "--out", str(path)]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = opened(path)
    assert re.search(r"^1\. ✗ \*\*.* rerank 3 failed to load: the engine was built by TensorRT 8", found.summary, re.M)
    assert "Of the simulated box (load-failed)" in found.summary
    assert len(found.summary.splitlines()) < 110, "one page"
    wanted = {
        "SUMMARY.md", "REDACTED.md", "manifest.json", "snapshot.json", "checks.json", "checks.txt", "facts.json",
        "settings.txt", "versions.json", "events.jsonl", "container/inspect.json", "container/log.txt",
        "models/ranking/config.pbtxt", "models/ranking/served-2.json", "recording/bundle.jsonl.zst",
    }  # fmt: skip
    assert wanted <= found.parts.keys()
    assert {one["name"] for one in found.manifest["parts"]} == found.parts.keys() - {"manifest.json"}
    assert "rerank 3 failed to load" in out
    assert f"{found.folder}/SUMMARY.md" in out
    made = archive.recording_of(path, tmp_path)
    assert made.stat().st_size > 1000


def test_dry_run_writes_nothing_and_shows_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["bundle", "--demo", "--dry-run", "--ascii"]) == 0
    out = capfdbinary.readouterr().out.decode("ascii")
    assert out.startswith("would hold ")
    assert "container/inspect.json" in out
    assert not list(tmp_path.glob("*.zst"))


def test_where_nothing_answers_and_as_an_ordinary_user() -> None:
    """A process of a user without rights, on a box whose Podman and Triton are not there: a bundle all the same."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o777)
        path = home / "b.tar.zst"
        environment = {
            "PATH": os.environ["PATH"], "HOME": folder, "XDG_STATE_HOME": f"{folder}/state",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]),
            "LANG": "C.UTF-8",
        }  # fmt: skip
        words = [
            "bundle",
            "--socket",
            f"{folder}/none.sock",
            "--http-port",
            "1",
            "--metrics-port",
            "2",
            "--out",
            str(path),
        ]
        as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*as_nobody, sys.executable, "-m", "console", *words],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = opened(path)
        missing = {one["what"]: one["why"] for one in found.manifest["missing"]}
        assert {"container/inspect.json", "container/log.txt", "models/*/served.json"} <= missing.keys()
        assert "none.sock" in done.stdout + str(missing) or "no Podman answers" in str(missing)
        assert "checks.txt" in found.parts
        assert found.summary.startswith("# ")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--last", "soon"], "--last must be a time such as 30s"),
        (["--last", "1s"], "--last must be from 1m to 168h, not 1s"),
        (["--out", "/"], "--out names the folder /; name a file in it"),
        (["--out", "/no/such/folder/x"], "there is no folder /no/such/folder for x; make it, or name another"),
        (["--out", "/etc/passwd"], "/etc/passwd is already there, and is not overwritten; name another file"),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bundle", *words]) == 64
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_replay_opens_a_bundle_and_says_what_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = []

    def run(session: object, **more: object) -> int:
        played.append(more["playback"].player.snapshot)  # type: ignore[attr-defined]
        return 0

    monkeypatch.setattr(opening, "run", run)
    monkeypatch.setattr(opening, "no_terminal", lambda: None)
    path = tmp_path / "b.tar.zst"
    assert cli.run(["bundle", "--demo", "--scene", "load-failed", "--out", str(path)]) == 0
    assert cli.run(["replay", str(path)]) == 0
    (snapshot,) = played
    assert "rerank" in {row.name for row in snapshot.models}
    path.write_bytes(b"none")
    assert cli.run(["replay", str(path)]) == 64
    assert "is no bundle of gpuconsole" in capsys.readouterr().err
    assert cli.run(["replay", str(tmp_path / "no.tar.zst")]) == 64
    assert "or a bundle" in capsys.readouterr().err
