"""A lock of a test's own: others on this machine may change a box meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.actions import detached, journal, lock
from tests.actions import child


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and in the runners that it starts."""
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o1777)
    monkeypatch.setattr(detached, "command", child.command)
    monkeypatch.setattr(lock, "FOLDERS", (locks,))
    monkeypatch.setattr(journal, "SPARE", locks)
    monkeypatch.setenv(child.LOCKS, str(locks))
