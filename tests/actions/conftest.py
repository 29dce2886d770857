"""A box that is a file, with its own state folder and lock, for what needs no real one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from console.actions import audit, detached, journal, registry, runner
from console.actions.box import Box, BoxSpec
from console.actions.journal import Journal, Request
from console.actions.who import operator
from console.config import Safety, Settings, Triton
from console.core.plan import Outcome, Plan
from tests.actions import child

HEADER = "header-secret-9931"


@dataclass
class Stand:
    """Everything that a change needs."""

    folder: Path

    @property
    def file(self) -> Path:
        """The box."""
        return self.folder / "box.txt"

    @property
    def state(self) -> Path:
        """The console's state folder."""
        return self.folder / "state"

    def spec(self, *, read_only: bool = False) -> BoxSpec:
        """Of the box; its settings hold a secret header."""
        return BoxSpec(Settings(triton=Triton(headers={"key": HEADER}), safety=Safety(read_only=read_only)))

    def box(self, *, read_only: bool = False) -> Box:
        """The box, opened."""
        return Box(self.spec(read_only=read_only), self.state)

    def plan(self, name: str = "test.steps", target: str = "", **values: str) -> Plan:
        """A plan as `do` gets it."""
        return runner.prepare(self.box(), name, target or str(self.file), values)

    def journal(self, plan: Plan, *, read_only: bool = False, unaudited: bool = False, wait: float = 0.0) -> Journal:
        """What `start` writes before it starts a runner."""
        request = Request(
            "", time.time(), self.spec(read_only=read_only), plan, operator(), str(self.state), unaudited, wait
        )
        return journal.create(request, spare=unaudited)

    def perform(self, plan: Plan, **options: bool) -> tuple[Outcome, Journal]:
        """Do it in this process."""
        made = self.journal(plan, **options)
        return runner.perform(made), made

    def start(self, plan: Plan, *, unaudited: bool = False, wait: float = 0.0) -> Journal:
        """Do it in a runner of its own."""
        id_ = detached.start(self.spec(), self.state, plan, unaudited=unaudited, wait=wait)
        return journal.find(self.state, id_)

    def changes(self) -> tuple[audit.Change, ...]:
        """The audit."""
        return audit.changes(self.state)


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_lock: None) -> Iterator[Stand]:
    (tmp_path / "box.txt").write_text("old")
    monkeypatch.setattr(registry, "PACKAGES", [*registry.PACKAGES, child.ACTS])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Stand(tmp_path)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A state folder on a disk of 128 KiB."""
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=128k", "gpuconsole-test", str(made)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk")
    yield made
    subprocess.run(["umount", str(made)], check=True)
