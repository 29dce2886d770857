"""The card: V05 to V11."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.advisors.gpu import nvml_code
from console.advisors.why import Why
from console.core.history import History
from console.core.model import (
    ContainerState,
    Event,
    Failure,
    GpuBox,
    GpuProcess,
    GpuState,
    KernelFault,
    KernelLog,
    PodmanState,
    Reading,
    Snapshot,
)
from tests.advisors.cases import MONO, NOW, config, good, ids, later, once, row, snapshot, window

GIB, MIB = 1 << 30, 1 << 20


def card(**other: Any) -> GpuState:
    plain: dict[str, Any] = {
        "pci_bus_id": "00000000:3B:00.0",
        "util_pct": 60.0,
        "memory_total": 16 * GIB,
        "memory_used": 6 * GIB,
        "memory_free": 10 * GIB,
        "temp_c": 91.0,
        "sm_mhz": 1590,
        "sm_max_mhz": 1590,
        "throttle_now": (),
        "throttle_bits": 0,
        "processes": (),
    }
    return GpuState(0, **{**plain, **other})


def box(gpu: GpuState | None = None, *, kernel: KernelLog | None = None, **other: Any) -> Snapshot:
    plain: dict[str, Any] = {"gpu": good("gpu", GpuBox("550.90.07", gpus=(gpu or card(),), pci_devices=1))}
    plain["kernel"] = good("kernel_log", kernel or KernelLog("journal"), 2.0)
    return snapshot(**{**plain, **other})


def counters(reason: str, share: float, seconds: int = 31) -> History:
    """The driver counted `reason` for that share of each second."""
    history = History()
    for second in range(seconds):
        history.record(MONO - seconds + 1 + second, {f"gpu.0.throttle.{reason}": 1000 + share * second})
    return history


def samples(reason: str, seconds: int) -> History:
    history = History()
    for second in range(seconds):
        history.record(MONO - second, {f"gpu.0.throttled.{reason}": 1.0})
    return history


def xid(number: int, text: str = "", bus: str | None = "0000:3b:00", wall: float = NOW - 60) -> KernelFault:
    return KernelFault(wall, "xid", text or f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1", number, bus)


HOT = {"sm_mhz": 1110}

# ------------------------------------------------------------------------------------------------------------- V05


def test_a_healthy_card_is_not_told_of() -> None:
    assert once(box()) == ()


def test_a_lost_card() -> None:
    lost = card(lost=Failure("unavailable", "NVML error 15: the GPU is lost", "restart the host"))
    event = Event(NOW - 20, "fail", "GPU 0 is lost: NVML error 15", "(NVML)", "gpu.lost")
    found = once(box(lost, kernel=KernelLog("journal", faults=(xid(79),)), events=(event,)))
    assert ids(found) == ["V05"]
    assert "is lost" in found[0].title
    assert found[0].since_wall == NOW - 20
    assert any("Xid 79" in line and "restart the host" in line for line in found[0].lines)


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ((xid(79),), "Xid 79"),
        ((xid(48),), "Xid 48"),
        ((xid(119), xid(79, wall=NOW - 90)), "Xid 79"),
        ((xid(13),), ""),
        ((xid(43), xid(45), xid(31)), ""),
        ((xid(79, bus="0000:af:00"),), ""),
        ((xid(79, bus=None),), "Xid 79"),
        ((xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),), "Node Reboot"),
        ((xid(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"),), ""),
        ((xid(154, "text of another driver"),), ""),
        ((KernelFault(NOW, "oom", "Killed process 1 (python)"),), ""),
    ],
)
def test_an_xid_counts_when_nvidia_wants_a_reset_or_a_restart(faults: tuple[KernelFault, ...], told: str) -> None:
    found = once(box(kernel=KernelLog("journal", faults=faults)))
    assert ids(found) == (["V05"] if told else [])
    if told:
        assert told in found[0].title


def test_repeated_xids_are_counted() -> None:
    found = once(box(kernel=KernelLog("journal", faults=(xid(48), xid(48, wall=NOW - 30)))))
    assert "2 such lines in the kernel log since boot" in found[0].lines


def test_xids_are_told_where_nvml_does_not_answer() -> None:
    kernel = good("kernel_log", KernelLog("journal", faults=(xid(79),)), 2.0)
    gpu: Reading[GpuBox] = Reading("gpu", 1.0, error=Failure("timeout", "NVML has not answered"), error_mono=MONO - 9)
    assert ids(once(snapshot(gpu=gpu, kernel=kernel))) == ["V05", "V39"]


def test_a_recovery_action() -> None:
    assert once(box(card(recovery_action="none"))) == ()
    found = once(box(card(recovery_action="gpu_reset"), kernel=KernelLog("journal", faults=(xid(95),))))
    assert found[0].title == "the driver of GPU 0 asks for: gpu reset"
    assert "Xid 95" in found[0].lines[0]


def test_rising_ecc_errors_for_an_hour() -> None:
    def at(wall: float) -> Event:
        return Event(wall, "fail", "GPU 0: uncorrectable ECC errors 0 → 2", "(NVML)", "ecc")

    assert "(2 since" in once(box(card(ecc_uncorrected_now=2), events=(at(NOW - 60),)))[0].title
    assert once(box(card(ecc_uncorrected_now=2), events=(at(NOW - 4000),))) == ()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("NVML error 18: libraries 570.86.15, kernel 550.90.07", "updated without a reboot"),
        ("NVML error 9: the driver is not loaded", "not loaded"),
    ],
)
def test_a_driver_that_does_not_fit_is_a_fault_and_no_blind_spot(message: str, told: str) -> None:
    gpu: Reading[GpuBox] = Reading("gpu", 1.0, error=Failure("unavailable", message, "a hint"), error_mono=MONO - 9)
    found = once(snapshot(gpu=gpu))
    assert ids(found) == ["V05"]
    assert told in found[0].title


@pytest.mark.parametrize(("text", "code"), [("NVML error 18: x", 18), ("error 18", None), ("NVML hangs", None)])
def test_codes_are_read_from_nvml_messages_only(text: str, code: int | None) -> None:
    assert nvml_code(text) == code


# --------------------------------------------------------------------------------------------------------- V06 to V08


@pytest.mark.parametrize("reason", ["heat_software", "heat_hardware"])
def test_heat_by_the_drivers_counter(reason: str) -> None:
    found = once(box(card(**HOT)), counters(reason, 0.62))
    assert ids(found) == ["V06"]
    assert found[0].title == "GPU 0 slows itself down: 91 °C, SM 1110 of 1590 MHz"
    assert found[0].lines == ("62 % of the last 30 s, by the driver's counter",)


def test_hours_that_come_again_each_day_are_said() -> None:
    history = counters("heat_software", 0.62)
    history.heat_hours = (15, 16)
    (found,) = [one for one in once(box(card(**HOT)), history) if one.id == "V06"]
    assert found.lines[-1] == "the same hours each day: 15, 16"


@pytest.mark.parametrize(("seconds", "told"), [(2, []), (3, ["V06"])])
def test_heat_by_samples(seconds: int, told: list[str]) -> None:
    assert [id_ for id_ in ids(once(box(card(**HOT)), samples("heat_hardware", seconds))) if id_ == "V06"] == told


@pytest.mark.parametrize(
    "gpu",
    [
        card(sm_mhz=1440),
        card(sm_mhz=1110, util_pct=20.0),
        card(sm_mhz=None),
        card(sm_max_mhz=None),
        card(util_pct=None),
    ],
)
def test_heat_without_its_effect_is_not_told(gpu: GpuState) -> None:
    assert "V06" not in ids(once(box(gpu), counters("heat_software", 0.62)))


def test_a_counter_that_rises_a_little_or_began_anew_is_no_heat() -> None:
    assert "V06" not in ids(once(box(card(**HOT)), counters("heat_software", 0.03)))
    history = History()
    history.record(MONO - 10, {"gpu.0.throttle.heat_software": 90.0})
    history.record(MONO - 1, {"gpu.0.throttle.heat_software": 0.1})
    assert "V06" not in ids(once(box(card(**HOT)), history))


def test_the_power_limit_alone_is_a_note() -> None:
    found = once(box(), counters("power_cap", 0.5))
    assert [(v.id, v.sign) for v in found] == [("V07", "note")]


def test_the_power_limit_that_slows_batches_is_a_warning() -> None:
    settings = config(kind="KIND_GPU")

    def model(ms: float) -> Any:
        return row(window(rate=100, compute=ms, busy=0.4, sizes={4: (700, ms)}), settings)

    why = Why(hold=False)
    free = box(card(), models=(model(10.0),))
    assert ids(why.evaluate(free, History())) == ["V31"]
    capped = later(box(card(throttle_now=("power_cap",)), models=(model(11.5),)), 3)
    history = History()
    for second in range(10):
        history.record(capped.mono - second, {"gpu.0.throttled.power_cap": 1.0})
    found = why.evaluate(capped, history)
    assert [v.sign for v in found if v.id == "V07"] == ["warn"]
    assert "take 15 % longer" in found[0].title


def test_low_clocks_without_a_reason() -> None:
    assert ids(once(box(card(sm_mhz=1005)))) == ["V08"]
    assert ids(once(box(card(sm_mhz=1005, throttle_now=("applications_clocks",), throttle_bits=0x2)))) == ["V08"]
    assert ids(once(box(card(sm_mhz=1005, throttle_now=("applications_clocks",), throttle_bits=None)))) == ["V08"]


@pytest.mark.parametrize(
    "gpu",
    [
        card(sm_mhz=1005, util_pct=49.0),
        card(sm_mhz=1300),
        card(sm_mhz=1005, throttle_now=("power_cap",), throttle_bits=0x4),
        card(sm_mhz=1005, throttle_now=("power_brake",), throttle_bits=None),
        card(sm_mhz=1005, throttle_now=None, throttle_bits=None),
    ],
)
def test_low_clocks_with_a_reason_or_without_load_are_not_told(gpu: GpuState) -> None:
    assert once(box(gpu)) == ()


# --------------------------------------------------------------------------------------------------------- V09 to V11

OURS, OTHER = "a" * 64, "b" * 64


def in_container() -> Reading[PodmanState]:
    state = ContainerState(OURS, "triton", "running", "name", started_wall=NOW - 999)
    return good("container", PodmanState("unix:///x", "rootful", container=state), 2.0)


@pytest.mark.parametrize(
    ("process", "told"),
    [
        (GpuProcess(7, "C", 2 * GIB, 30.0, "ana", "/usr/bin/python3 train.py", in_container=False), True),
        (GpuProcess(7, "C", 100 * MIB, 6.0, "ana", "python3", in_container=False), True),
        (GpuProcess(7, "C", 100 * MIB, 1.0, "ana", "python3", in_container=False), False),
        (GpuProcess(7, "C", None, None, None, None, in_container=False), False),
        (GpuProcess(7, "C", 2 * GIB, container_id=OTHER, in_container=True), True),
        (GpuProcess(7, "C", 2 * GIB, container_id=OURS, in_container=True), False),
        (GpuProcess(7, "C", 2 * GIB, in_container=None), False),
        (GpuProcess(7, "C", 2 * GIB, command="tritonserver --x", in_container=False), False),
        (GpuProcess(7, "C", 2 * GIB, model="m", in_container=False), False),
    ],
)
def test_somebody_else_on_the_card(process: GpuProcess, told: bool) -> None:
    found = once(box(card(processes=(process,)), container=in_container()))
    assert ids(found) == (["V09"] if told else [])


def test_who_shares_is_named_with_what_it_takes() -> None:
    large = GpuProcess(41877, "C", round(2.1 * GIB), 30.0, "ana", "/usr/bin/python train.py", in_container=False)
    small = GpuProcess(9, "C", 300 * MIB, command="blender", in_container=False)
    found = once(box(card(processes=(small, large)), container=in_container()))
    assert found[0].title == "python (41877, ana) shares GPU 0: 2.1 GiB, 30 % util"
    assert "and 1 more: blender" in found[0].lines


def test_without_a_known_container_nobody_is_a_stranger() -> None:
    process = GpuProcess(7, "C", 2 * GIB, in_container=False)
    assert once(box(card(processes=(process,)))) == ()


def test_a_reload_that_does_not_fit() -> None:
    model = row(None, config(kind="KIND_GPU"), memory=round(12.3 * GIB), memory_origin="seen at load", flow=None)
    found = once(box(card(memory_free=round(2.6 * GIB)), models=(model,)))
    assert [(v.id, v.trust, v.model) for v in found] == [("V10", "sure", "m")]
    assert found[0].title == "a reload of m does not fit beside itself: needs 12.3, free 2.6 GiB"
    assert once(box(card(memory_free=13 * GIB), models=(model,))) == ()
    told = once(box(card(memory_free=2 * GIB), models=(replace(model, memory_origin="back end"),)))
    assert told[0].trust == "likely"


@pytest.mark.parametrize(("free", "told"), [(1.2, ["V10"]), (1.4, []), (None, [])])
def test_a_full_card(free: float | None, told: list[str]) -> None:
    assert ids(once(box(card(memory_free=None if free is None else round(free * GIB))))) == told


def leak(used: int, pids: tuple[int, ...] = (1,), **other: Any) -> Snapshot:
    """90 s after a reload that a console watched; the model takes 3 GiB."""
    processes = tuple(GpuProcess(pid, "C", None) for pid in pids)
    model = row(window(compute=15), config(kind="KIND_GPU"), memory=3 * GIB)
    assert model.flow
    flow = replace(model.flow, resets=1)
    return box(card(memory_used=used, processes=processes), models=(replace(model, flow=flow, **other),))


def watched(after: Snapshot, seconds: float = 90.0) -> list[str]:
    why, model = Why(hold=False), row(window(compute=15), config(kind="KIND_GPU"), memory=3 * GIB)
    before = box(card(memory_used=6 * GIB, processes=(GpuProcess(1, "C", None),)), models=(model,))
    for second in range(0, 60, 5):
        why.evaluate(later(before, second), History())
    why.evaluate(later(after, 60), History())
    found = why.evaluate(later(after, 60 + seconds), History())
    return [id_ for id_ in ids(found) if id_ == "V11"]


def test_memory_that_does_not_come_back() -> None:
    assert watched(leak(8 * GIB)) == ["V11"]


def test_memory_that_may_come_back_or_cannot_be_told_is_not_told() -> None:
    assert watched(leak(8 * GIB), seconds=40) == []
    assert watched(leak(7 * GIB)) == []
    assert watched(leak(8 * GIB, pids=(1, 2))) == []
    assert watched(leak(8 * GIB, memory=None)) == []
    assert watched(leak(8 * GIB), seconds=1000) == []
