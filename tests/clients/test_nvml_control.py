"""A card's settings through nvidia-ml-py and a library that answers as NVML does, in a process of its own."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from console.clients.nvml_control import NvmlControl
from console.core.model import SourceError
from tests.fakes.nvml import FakeError
from tests.lab.fixtures import Standin

UUID = "GPU-4c41421e-0000-4000-8000-000000000000"

ACT = f"""
import json
from console.clients.nvml_control import NvmlControl
from console.core.model import SourceError

said = []
with NvmlControl() as control:
    said.append(control.supported_clocks("{UUID}"))
    for call, *values in %s:
        try:
            said.append(getattr(control, call)("{UUID}", *values))
        except SourceError as error:
            said.append([error.kind, error.message])
print(json.dumps(said))
"""


def act(standin: Standin, *calls: tuple[Any, ...]) -> list[Any]:
    said: list[Any] = standin.python(ACT % repr(calls))
    return said


def test_settings_reach_the_card(nvml_standin: Standin) -> None:
    said = act(
        nvml_standin,
        ("set_persistence", False),
        ("set_power_limit", 62_500),
        ("set_compute_mode", "prohibited"),
        ("lock_clocks", 900, 1200),
    )
    assert said == [[300, 1590], None, None, None, None]
    card = nvml_standin.card
    assert (card.persistence, card.power_limit, card.compute_mode) == (0, 62_500, 2)
    assert (card.lock_low, card.lock_high) == (900, 1200)
    assert act(nvml_standin, ("reset_clocks",))[1:] == [None]
    assert nvml_standin.card.lock_high == 0


def test_refusals_in_plain_words(nvml_standin: Standin) -> None:
    said = act(nvml_standin, ("set_power_limit", 90_000), ("lock_clocks", 900, 9000))
    assert [kind for kind, _ in said[1:]] == ["protocol", "protocol"]
    assert "the driver says that the value cannot be (NVML 2)" in said[1][1]
    nvml_standin.create("bare")
    assert "does not support it (NVML 3)" in act(nvml_standin, ("set_persistence", True))[1][1]
    nvml_standin.card.error = 15
    with pytest.raises(AssertionError, match="the GPU is lost"):
        act(nvml_standin)


def test_without_the_right(nvml_standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCONSOLE_NVML_NO_ROOT", "1")
    said = act(dataclasses.replace(nvml_standin), ("set_persistence", False), ("reset_clocks",))
    assert [kind for kind, _ in said[1:]] == ["permission", "permission"]
    assert "only root may change" in said[1][1]
    assert nvml_standin.card.persistence == 1


def test_a_library_that_does_not_know_it() -> None:
    old = SimpleNamespace(
        NVMLError=FakeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
    )
    with NvmlControl(old) as control:
        assert control.supported_clocks(UUID) is None
        with pytest.raises(SourceError, match="does not know it"):
            control.reset_clocks(UUID)


@pytest.mark.parametrize("lost_at", ["nvmlDeviceGetHandleByUUID", "nvmlDeviceResetGpuLockedClocks"])
def test_a_lost_card(lost_at: str) -> None:
    def lost(*_args: object) -> None:
        raise FakeError(15)

    def calls(name: str, answer: object) -> object:
        return lost if name == lost_at else lambda *_args: answer

    names = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByUUID", "nvmlDeviceResetGpuLockedClocks")
    api = SimpleNamespace(NVMLError=FakeError, **{name: calls(name, "handle") for name in names})
    with NvmlControl(api) as control, pytest.raises(SourceError, match="the GPU is lost"):
        control.reset_clocks(UUID)


def test_another_card(nvml_standin: Standin) -> None:
    program = ACT.replace(UUID, "GPU-other") % "[]"
    with pytest.raises(AssertionError, match="GPU-other: NVML lists no such card"):
        nvml_standin.python(program)


def test_a_card_that_is_not_listed() -> None:
    def unknown(_uuid: str) -> None:
        raise FakeError(6)

    api = SimpleNamespace(
        NVMLError=FakeError, nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetHandleByUUID=unknown
    )
    with NvmlControl(api) as control, pytest.raises(SourceError, match="NVML lists no such card"):
        control.set_persistence(UUID, True)
