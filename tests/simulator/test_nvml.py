"""The NVML stand-in as pynvml's caller sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pynvml
import pytest

from console.simulator.launch import Addresses, start
from console.simulator.nvml import SimulatedNvml
from tests.simulator.conftest import MakeBox


@pytest.fixture
def nvml(make_box: MakeBox, tmp_path: Path) -> Any:
    state = tmp_path / "nvml.json"
    state.write_text(json.dumps(make_box("throttled").nvml_document()))
    stand_in = SimulatedNvml(state)
    stand_in.nvmlInit()
    return stand_in


def test_the_usual_reading(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetCount() == 1
    assert nvml.nvmlDeviceGetName(handle) == "Tesla T4"
    assert nvml.nvmlSystemGetDriverVersion() == "550.90.07"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 12040
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    assert memory.total == memory.used + memory.free + memory.reserved == 15360 * 1024**2
    first = nvml.nvmlDeviceGetMemoryInfo(handle)
    assert first.used == memory.used + memory.reserved
    assert 0 < nvml.nvmlDeviceGetUtilizationRates(handle).gpu <= 100
    assert 9_000 < nvml.nvmlDeviceGetPowerUsage(handle) <= 70_000
    assert nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU) > 85
    assert nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) == 93
    assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) < 1200
    assert nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) == 1590
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & nvml.nvmlClocksEventReasonSwThermalSlowdown
    assert nvml.nvmlDeviceGetEccMode(handle) == [1, 1]
    assert nvml.nvmlDeviceGetPciInfo(handle).busId == "00000000:3B:00.0"


def test_processes(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert process.pid > 2**22
    assert process.usedGpuMemory == nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used
    assert nvml.nvmlSystemGetProcessName(process.pid) == "tritonserver"
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert sample.pid == process.pid
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
    with pytest.raises(pynvml.NVMLError) as nothing_new:
        nvml.nvmlDeviceGetProcessUtilization(handle, sample.timeStamp)
    assert nothing_new.value.value == pynvml.NVML_ERROR_NOT_FOUND


def test_throttle_is_counted_in_both_ways(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    heat, power, unknown = nvml.nvmlDeviceGetFieldValues(
        handle, [nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, (74, 0), 9999]
    )
    assert heat.nvmlReturn == power.nvmlReturn == 0
    assert heat.value.ullVal > 0
    assert unknown.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    violation = nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_THERMAL)
    assert violation.violationTime == heat.value.ullVal


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetFanSpeed", "nvmlDeviceGetMigMode", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState"],
)
def test_what_a_t4_does_not_know(nvml: Any, function: str) -> None:
    with pytest.raises(pynvml.NVMLError) as error:
        getattr(nvml, function)(nvml.nvmlDeviceGetHandleByIndex(0))
    assert error.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_what_pynvml_does_not_know_either(nvml: Any) -> None:
    assert getattr(nvml, "nvmlDeviceGetNothing", None) is None
    assert nvml.NVMLError is pynvml.NVMLError


def test_every_function_of_the_stand_in_is_one_of_pynvml(nvml: Any) -> None:
    own = [name for name in dir(SimulatedNvml) if name.startswith("nvml")]
    # the plain names and their numbered forms: the library exports both, pynvml not always
    assert all(hasattr(pynvml, name) or hasattr(pynvml, name.rpartition("_v")[0]) for name in own)


def test_without_a_session_nothing_is_answered(tmp_path: Path, nvml: Any) -> None:
    nvml.nvmlShutdown()
    for name in ("nvmlDeviceGetCount", "nvmlShutdown"):
        with pytest.raises(pynvml.NVMLError) as error:
            getattr(nvml, name)()
        assert error.value.value == pynvml.NVML_ERROR_UNINITIALIZED
    assert nvml.nvmlSystemGetNVMLVersion() == "12.550.90.07"
    with pytest.raises(pynvml.NVMLError) as gone:
        SimulatedNvml(tmp_path / "nothing").nvmlInit()
    assert gone.value.value == pynvml.NVML_ERROR_UNKNOWN


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("nvmlDeviceGetHandleByIndex", (1,)),
        ("nvmlDeviceGetTemperature", (None, 7)),
        ("nvmlDeviceGetTemperatureThreshold", (None, 7)),
        ("nvmlDeviceGetHandleByUUID", ("GPU-other",)),
        ("nvmlSystemGetProcessName", (1,)),
    ],
)
def test_bad_arguments(nvml: Any, function: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(pynvml.NVMLError):
        getattr(nvml, function)(*arguments)


def test_a_driver_that_does_not_match(make_box: MakeBox, tmp_path: Path) -> None:
    state = tmp_path / "nvml.json"
    state.write_text(json.dumps(make_box("driver-mismatch").nvml_document()))
    stand_in = SimulatedNvml(state)
    with pytest.raises(pynvml.NVMLError) as error:
        stand_in.nvmlInit()
    assert error.value.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert stand_in.nvmlSystemGetNVMLVersion() == "12.570.86.15"


def test_a_running_box_is_read(live: Addresses) -> None:
    stand_in: Any = SimulatedNvml(Path(live.nvml))
    stand_in.nvmlInitWithFlags(0)
    handle = stand_in.nvmlDeviceGetHandleByUUID(stand_in.nvmlDeviceGetUUID(stand_in.nvmlDeviceGetHandleByIndex(0)))
    assert stand_in.nvmlDeviceGetTotalEnergyConsumption(handle) > 0


def test_when_the_box_has_gone_the_card_has_too() -> None:
    with start("healthy", stepped=True) as running:
        stand_in: Any = SimulatedNvml(Path(running.addresses.nvml))
        stand_in.nvmlInit()
        energy = stand_in.nvmlDeviceGetTotalEnergyConsumption(None)
        running.step(2)
        stand_in._read_at = -1e9
        assert stand_in.nvmlDeviceGetTotalEnergyConsumption(None) > energy
    stand_in._read_at = -1e9
    with pytest.raises(pynvml.NVMLError):
        stand_in.nvmlDeviceGetCount()
