"""`gpuconsole do` with the wrong values that forms are given too: one sentence, exit 64, nothing looked at or sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console import cli
from console.actions import audit, journal
from console.actions.base import Action
from console.actions.box import Box
from console.core.plan import Field
from tests import wrong_values

WRONG = wrong_values.every_wrong_value()


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the box was looked at or changed")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of journals and audit; a box that nobody may touch."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("podman_state", "index", "gpus", "changing", "podman", "nvml_control", "triton_control", "systemd"):
        monkeypatch.setattr(Box, name, _never)
    return tmp_path / "gpuconsole"


@pytest.mark.parametrize(
    ("action", "field", "value"),
    WRONG,
    ids=[f"{action.NAME}-{field.name}-{number}" for number, (action, field, _) in enumerate(WRONG)],
)
def test_one_sentence_exit_64_and_nothing_sent(
    action: type[Action], field: Field, value: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["x"] if action.TARGET else []
    assert cli.run(["do", action.NAME, *target, f"{field.name}={value}", "--yes"]) == 64
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert f"`{field.name}`" in told.err
    assert told.err.rstrip("\n").isprintable()
    assert not (field.secret and wrong_values.SECRET in told.err)
    assert not (state / journal.FOLDER).exists()
    assert not (state / audit.NAME).exists()
