"""`gpuconsole snapshot` as a script runs it: in a process of its own, from its exit code and its output alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.snapshot import PARTS

ROOT = Path(__file__).resolve().parents[2]
NO_PODMAN = ("--socket", "/nonexistent/podman.sock")


class Taken(msgspec.Struct):
    """What came of one `snapshot --json`."""

    data: dict[str, Any]
    seconds: float
    """From the start of the process to its end."""
    stderr: str

    def error(self, part: str) -> str | None:
        """Why a part is missing or old, with the hint; None when it was read."""
        told = self.data["parts"][part]["error"]
        return None if told is None else f"{told['message']}; {told['hint']}"

    def value(self, part: str) -> Any:
        """A part's value; None when there is none."""
        return self.data["parts"][part]["value"]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user with no settings and none of this machine's cards or containers in it."""
    # COLUMNS and LINES, which a parallel test run sets, would go before the size of the terminal.
    left_out = ("GPUCONSOLE_", "LC_", "CONTAINER", "XDG_", "LD_LIBRARY_PATH", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color", **more}


def run(
    *words: str, home: Path, before: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run the console with these words; `before` stands in front (`setpriv ...`). Returns it and its seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [*before, sys.executable, "-m", "console", *words],
        cwd=ROOT,
        env=environment(home, **(environ or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return done, time.monotonic() - began


def snapshot(*words: str, home: Path, before: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Taken:
    """`gpuconsole snapshot --json` with these words; it must exit 0 with one object that names each missing part."""
    done, seconds = run("snapshot", "--json", *words, home=home, before=before, environ=environ)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    data = json.loads(done.stdout)
    assert set(data["parts"]) == set(PARTS)
    for part, told in data["parts"].items():
        assert told["value"] is not None or (told["error"] and told["error"]["message"]), part
        if told["error"] is not None:
            assert told["error"]["kind"] != "bug", (part, told["error"])
            assert "\x1b" not in told["error"]["message"]
    return Taken(data, seconds, done.stderr)
