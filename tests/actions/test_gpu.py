"""Settings of a card on the simulated one: limits, rights, undo, a killed run. No real card is ever touched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.actions import gpu
from console.actions.box import Box, BoxSpec
from console.clients.nvml_control import NvmlControl
from console.config import Safety, Settings
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.simulator.card import TRITON_PID, UUID, Card
from console.simulator.scenes import SCENES
from tests.actions.runs import Recorded, do, killed, undone

SETTINGS = (gpu.Persistence, gpu.PowerLimit, gpu.ComputeMode, gpu.Clocks)
GIVEN: Mapping[str, tuple[str, str]] = {
    "gpu.persistence": ("mode", "off"),
    "gpu.power_limit": ("watts", "62.5"),
    "gpu.compute_mode": ("mode", "exclusive_process"),
    "gpu.clocks": ("range", "900,1200"),
}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A box whose card is simulated and used by no process."""
    return a_box(tmp_path)


def a_box(folder: Path, *, process_mib: int = 0, read_only: bool = False) -> Box:
    card = Card(next(iter(SCENES.values())).card, process_mib=process_mib, pid=TRITON_PID)
    state = folder / "nvml.json"
    state.write_bytes(msgspec.json.encode(card.document(now_ns=10**9, nvml_error=0)))
    (folder / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    boot(folder, "first")
    told = Settings(safety=Safety(read_only=read_only))
    return Box(BoxSpec(told, nvml=str(state), root=str(folder)), folder / "state")


def boot(folder: Path, name: str) -> None:
    (folder / "proc/sys/kernel/random/boot_id").write_text(f"{name}\n")


@pytest.mark.parametrize("kind", SETTINGS)
def test_set_read_back_and_undone(kind: type[gpu.GpuSetting], box: Box) -> None:
    action = kind()
    field, value = GIVEN[action.NAME]
    before = action.state(box, action.plan(box, "0", {field: value}).target)
    outcome = do(action, box, "0", {field: value})
    assert outcome.word == "done", outcome.text
    assert outcome.left == {"uuid": UUID, field: value}
    assert any("reboot" in line for line in outcome.lines)
    back = undone(action, box, outcome)
    assert back.word == "done"
    assert back.left[field] == (before[field] if before[field] != gpu.NOT_KNOWN else "reset")


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_plan_says_all_and_sets_nothing(kind: type[gpu.GpuSetting], box: Box) -> None:
    action = kind()
    field, value = GIVEN[action.NAME]
    plan = action.plan(box, "", {field: value})
    assert plan.target.name == UUID
    assert any(effect.startswith("it lives in the driver: a reboot") for effect in plan.effects)
    assert plan.by_hand[0].startswith(f"sudo nvidia-smi -i {UUID} -")
    assert plan.undo
    assert [step.phase for step in plan.steps] == list(action.PHASES)
    assert not (Path(box.spec.nvml).with_suffix(".settings.json")).exists()


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("moment", ["set", "set done"])
def test_a_killed_run_is_finished_or_undone(kind: type[gpu.GpuSetting], moment: str, box: Box) -> None:
    action = kind()
    field, value = GIVEN[action.NAME]
    plan = action.plan(box, "0", {field: value})
    run = killed(action, box, plan, moment)
    found, finish, undo = action.interrupted(box, plan, ())
    assert found
    if moment == "set":
        assert finish
        assert action.finish(box, plan, Recorded(kept=run.kept())).left[field] == value
    else:
        assert undo
    outcome = action.undo(box, plan, Recorded(kept=run.kept()))
    assert outcome.word == "undone"
    assert action.state(box, plan.target)[field] == {gpu.NOT_KNOWN: "reset"}.get(
        plan.target.identity[field], plan.target.identity[field]
    )


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (gpu.PowerLimit, {"watts": "71"}, "from 60 to 70 W"),
        (gpu.PowerLimit, {"watts": "nan"}, "a number of watts"),
        (gpu.PowerLimit, {}, "wants watts="),
        (gpu.Clocks, {"range": "200,1590"}, "from 300 to 1590 MHz"),
        (gpu.Clocks, {"range": "1590,300"}, "above the highest"),
        (gpu.Clocks, {"range": "1,2,3"}, "lowest,highest"),
        (gpu.Clocks, {"range": "300,"}, "lowest,highest"),
        (gpu.Persistence, {"mode": "yes"}, "one of on, off"),
        (gpu.ComputeMode, {"mode": "exclusive_thread"}, "one of default"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    kind: type[gpu.GpuSetting], values: Mapping[str, str], said: str, box: Box
) -> None:
    with pytest.raises(WrongInput, match=said) as caught:
        kind().plan(box, "0", values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", ["1", "gpu7", "GPU-other", "[/x]\x1b"])
def test_no_such_card(target: str, box: Box) -> None:
    with pytest.raises(WrongInput, match="there is no GPU"):
        gpu.Persistence().plan(box, target, {"mode": "off"})


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_sentence(box: Box, text: str) -> None:
    for kind in SETTINGS:
        action = kind()
        with contextlib.suppress(WrongInput):
            assert action.plan(box, "0", {action.field.name: text}).values


def test_what_is_so_already_is_refused(box: Box) -> None:
    assert "nothing to do" in gpu.Persistence().plan(box, "0", {"mode": "on"}).refused


def test_compute_mode_waits_until_no_process_uses_the_card(tmp_path: Path) -> None:
    busy = a_box(tmp_path, process_mib=900)
    plan = gpu.ComputeMode().plan(busy, "0", {"mode": "prohibited"})
    assert "only while no process uses it; stop the container first" in plan.refused
    free = a_box(tmp_path)
    plan = gpu.ComputeMode().plan(free, "0", {"mode": "prohibited"})
    assert not plan.refused
    with pytest.raises(Refused):
        gpu.ComputeMode().run(a_box(tmp_path, process_mib=900), plan, Recorded())


def test_a_clock_lock_is_remembered_until_the_next_boot(box: Box, tmp_path: Path) -> None:
    assert do(gpu.Clocks(), box, "0", {"range": "900"}).left["range"] == "900,900"
    second = do(gpu.Clocks(), box, "0", {"range": "300,1200"})
    assert second.undo is not None
    assert second.undo.values == {"range": "900,900"}
    boot(tmp_path, "second")
    plan = gpu.Clocks().plan(box, "0", {"range": "reset"})
    assert plan.target.identity["range"] == gpu.NOT_KNOWN
    assert "not known" in plan.undo


def test_a_changed_card_is_not_touched(box: Box) -> None:
    plan = gpu.Persistence().plan(box, "0", {"mode": "off"})
    do(gpu.Persistence(), box, "0", {"mode": "off"})
    with pytest.raises(Refused, match="has changed since the plan"):
        gpu.Persistence().recheck(box, plan)


@pytest.mark.parametrize("kind", SETTINGS)
def test_no_right_is_one_sentence_with_the_command(
    kind: type[gpu.GpuSetting], box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_self: NvmlControl, _uuid: str, function: str, *_args: int) -> None:
        raise SourceError("permission", f"{function}: not permitted: only root may change a card's settings (NVML 4)")

    monkeypatch.setattr(NvmlControl, "_call", denied)
    action = kind()
    field, value = GIVEN[action.NAME]
    outcome = do(action, box, "0", {field: value})
    assert outcome.word == "undone"
    assert "only root" in outcome.text
    assert f"by hand: sudo nvidia-smi -i {UUID}" in outcome.text


def test_read_only_is_refused_at_the_door(tmp_path: Path) -> None:
    plan = gpu.Persistence().plan(a_box(tmp_path), "0", {"mode": "off"})
    with pytest.raises(Refused, match="read-only"):
        gpu.Persistence().run(a_box(tmp_path, read_only=True), plan, Recorded())


def test_who_is_not_root_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Box(BoxSpec(Settings()), tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert gpu._rights(real)[0].text.startswith("you are not root")


@pytest.mark.parametrize("value", ["9" * 5000, "300," + "9" * 5000, str(2**32 + 300), "0", "٣٠٠", "300,,400"])
def test_clocks_that_nvml_could_not_hold(box: Box, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the driver does not tell which it takes: ctypes would drop the upper bits and lock another clock."""
    monkeypatch.setattr("console.clients.nvml_control.NvmlView.supported_clocks", lambda *_: None)
    with pytest.raises(WrongInput, match="the clock lock is lowest,highest in MHz"):
        gpu.Clocks().plan(box, "0", {"range": value})


def test_a_card_of_more_digits_than_a_number_may_have(box: Box) -> None:
    with pytest.raises(WrongInput, match="there is no GPU"):
        gpu.Clocks().plan(box, "9" * 5000, {"range": "reset"})
