"""A model whose name and log are hostile, from Triton's process to the Container screen: literal text, no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.lab import repository
from tests.lab.fixtures import Lab
from tests.system.headless import snapshot
from tests.system.screen import console

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "[x]%41"
PROGRAM = r"""
import sys
import threading
import time


class TritonPythonModel:
    def initialize(self, args):
        threading.Thread(target=self.talk, daemon=True).start()

    def talk(self):
        out = sys.stdout.buffer
        for n in range(40):
            out.write(b"L" + b"x" * 100000 + b"E%d\n" % n)
            out.write(b"escape \x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J \x9b31m\n")
            out.write(b"invalid \xff\xfe\xc3\x28 nul \x00 bs \x08\x08 cr \rover\n")
            out.write(b'E1130 11:11:11.000000 1 [/x].cc:1] "failed to load \'[/x]\' version 1: \x1b[31m \xff"\n')
            out.write(b"markup [/x] [red]bold[/red] [@click=app.quit]%d\n" % n)
            out.flush()
            time.sleep(0.5)

    def execute(self, requests):
        return []
"""


def test_a_hostile_model_is_literal_text(lab_alone: Lab, tmp_path: Path) -> None:
    config = repository.sleeper_config(NAME).replace(f'name: "{NAME}"\n', "")
    folder = repository.write(NAME, config)
    (folder / "1" / "model.py").write_text(PROGRAM)
    try:
        status, answer = lab_alone.triton("POST", f"/v2/repository/models/{NAME}/load")
        assert status == 200, answer
        time.sleep(3)
        taken = snapshot("--socket", lab_alone.podman_url, home=tmp_path)
        rows = {row["name"]: row for row in taken.data["models"]}
        assert rows[NAME]["state"] == "READY"
        assert rows[NAME]["instances"] == 1, "its configuration was read, under its own name"
        with console("--socket", lab_alone.podman_url, home=tmp_path) as screen:
            screen.until("SERVING")
            screen.until(NAME)
            screen.press(b"5", "[/x]")
            screen.terminal.read(3)
            shown, raw = screen.written(), bytes(screen.terminal.output)
            for literal in ("[red]bold[/red]", "[@click=app.quit]", "\ufffd", "xxxxxxxx"):
                assert literal in shown, literal
            for code in (b"\x1b[31mred", b"\x1b]0;title", b"\x1b[2J", b"\x9b31m", b"\x00"):
                assert code not in raw.replace("›".encode(), b""), code
            screen.press(b"1", "[2]")
            screen.quit()
    finally:
        lab_alone.triton("POST", f"/v2/repository/models/{NAME}/unload")
        repository.remove(NAME)
