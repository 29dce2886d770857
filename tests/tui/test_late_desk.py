"""The real Desk, as far as it needs no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.actions import detached
from console.actions.box import BoxSpec
from console.config import Safety, Settings
from console.core.plan import Refused
from console.tui.late_desk import LateDesk
from tests.fakes.session import FakeSession


def test_a_read_only_console_stops_nobody_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that is stopped goes back, which changes the box."""
    asked: list[object] = []
    monkeypatch.setattr(detached, "cancel", asked.append)
    session = FakeSession()
    session.spec = BoxSpec(Settings(safety=Safety(read_only=True)))
    with pytest.raises(Refused, match="read-only"):
        LateDesk(session, tmp_path).cancel("20260101-000000-000000")
    assert asked == []
    session.spec = BoxSpec(Settings())
    LateDesk(session, tmp_path).cancel("20260101-000000-000000")
    assert len(asked) == 1
