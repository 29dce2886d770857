"""A stand-in for the module `pynvml`, reading what the simulated box wrote to its state file.

What a setter changes is kept in a file beside it (`nvml.settings.json`), so that all processes of the demo see it.

An instance has pynvml's functions by pynvml's names, and hands through pynvml's constants, structures and errors, so
the client takes it in place of the module. A function that a Tesla T4 does not know, or that is not simulated, raises
`NVML_ERROR_NOT_SUPPORTED` as the driver would. When the box is gone every call fails with `NVML_ERROR_UNKNOWN`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
import pynvml

from console.clients.files import write_private
from console.simulator.card import (
    MAX_SM_MHZ,
    MEMORY_MHZ,
    MIB,
    NAME,
    POWER_LIMIT_W,
    RESERVED_MIB,
    SHUTDOWN,
    SLOWDOWN,
    TOO_HOT,
    TOTAL_MIB,
    UUID,
)

KEEP_S = 0.1
"""For how long a state once read is taken for the present: one round of a client's calls reads it once."""

_CUDA_VERSION = 12040
_BUS_ID = "00000000:3B:00.0"
_PCI_DEVICE_ID = 0x1EB810DE
_PCI_SUBSYSTEM_ID = 0x12A210DE
_MW_LIMIT = int(POWER_LIMIT_W * 1000)
_MW_LOWEST_LIMIT = 60_000

# fields of nvmlDeviceGetFieldValues, and which counter of the state answers them (ns)
_COUNTER_FIELDS = {
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: "power_cap_ns",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: None,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "heat_ns",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: None,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: None,
}
_POLICY_COUNTERS = {pynvml.NVML_PERF_POLICY_POWER: "power_cap_ns", pynvml.NVML_PERF_POLICY_THERMAL: "heat_ns"}

# answers that never change; called with the handle and whatever else the function takes
_CONSTANT_ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetName": NAME,
    "nvmlDeviceGetUUID": UUID,
    "nvmlDeviceGetSerial": "1562921004417",
    "nvmlDeviceGetBoardPartNumber": "900-2G183-0000-001",
    "nvmlDeviceGetVbiosVersion": "90.04.96.00.02",
    "nvmlDeviceGetIndex": 0,
    "nvmlDeviceGetMinorNumber": 0,
    "nvmlDeviceGetBrand": pynvml.NVML_BRAND_NVIDIA,
    "nvmlDeviceGetArchitecture": pynvml.NVML_DEVICE_ARCH_TURING,
    "nvmlDeviceGetCudaComputeCapability": (7, 5),
    "nvmlDeviceGetNumGpuCores": 2560,
    "nvmlDeviceGetMemoryBusWidth": 256,
    "nvmlDeviceGetPowerManagementMode": 1,
    "nvmlDeviceGetPowerManagementDefaultLimit": _MW_LIMIT,
    "nvmlDeviceGetPowerManagementLimitConstraints": [_MW_LOWEST_LIMIT, _MW_LIMIT],
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetCurrentEccMode": 1,
    "nvmlDeviceGetPendingEccMode": 1,
    "nvmlDeviceGetDefaultEccMode": 1,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetMemoryErrorCounter": 0,
    "nvmlDeviceGetRetiredPages": [],
    "nvmlDeviceGetRetiredPages_v2": [],
    "nvmlDeviceGetRetiredPagesPendingStatus": 0,
    "nvmlDeviceGetDisplayMode": 0,
    "nvmlDeviceGetDisplayActive": 0,
    "nvmlDeviceGetMaxPcieLinkGeneration": 3,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrPcieLinkGeneration": 3,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetPcieReplayCounter": 0,
    "nvmlDeviceGetPcieThroughput": 118_000,
    "nvmlDeviceGetEncoderUtilization": [0, 167_000],
    "nvmlDeviceGetDecoderUtilization": [0, 167_000],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetGraphicsRunningProcesses_v2": [],
    "nvmlDeviceGetGraphicsRunningProcesses_v3": [],
    "nvmlDeviceGetMPSComputeRunningProcesses": [],
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": [],
}

# answers that a setter changes: which setting, and what it is on a fresh card
_SETTING_ANSWERS = {
    "nvmlDeviceGetPowerManagementLimit": ("power_limit_mw", _MW_LIMIT),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit_mw", _MW_LIMIT),
    "nvmlDeviceGetPersistenceMode": ("persistence", 1),
    "nvmlDeviceGetComputeMode": ("compute_mode", pynvml.NVML_COMPUTEMODE_DEFAULT),
}
_CLOCK_STEP_MHZ = 15
_LOWEST_SM_MHZ = 300

# answers that are one figure of the state
_STATE_ANSWERS = {
    "nvmlDeviceGetPowerUsage": "power_mw",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
    "nvmlDeviceGetPerformanceState": "pstate",
    "nvmlDeviceGetPowerState": "pstate",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "reasons",
    "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
}
# functions of the module that ask no driver
_HELPERS = {"nvmlStructToFriendlyObject", "nvmlFriendlyObjectToStruct", "nvmlExceptionClass"}
_THRESHOLDS = {
    pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: SHUTDOWN,
    pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: SLOWDOWN,
    pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX: TOO_HOT,
}


class SimulatedNvml:
    """Use as `nvml = SimulatedNvml(path)`, then as the module. One instance belongs to one thread."""

    def __init__(self, state: Path) -> None:
        self._path = state
        self._settings_path = state.with_suffix(".settings.json")
        self._state: dict[str, Any] = {}
        self._read_at = -KEEP_S
        self._initialised = False

    def __getattr__(self, name: str) -> Any:
        if name in _CONSTANT_ANSWERS:
            return self._answering(lambda _state: _CONSTANT_ANSWERS[name])
        if name in _SETTING_ANSWERS:
            setting, fresh = _SETTING_ANSWERS[name]
            return self._answering(lambda _state: self._settings().get(setting, fresh))
        if name in _STATE_ANSWERS:
            key = _STATE_ANSWERS[name]
            return self._answering(lambda state: state[key])
        attribute = getattr(pynvml, name)
        driver_call = name.startswith("nvml") and isinstance(attribute, FunctionType) and name not in _HELPERS
        return self._not_supported if driver_call else attribute

    def nvmlInit(self) -> None:  # noqa: N802
        self.nvmlInitWithFlags(0)

    def nvmlInit_v2(self) -> None:  # noqa: N802
        self.nvmlInitWithFlags(0)

    def nvmlInitWithFlags(self, _flags: int) -> None:  # noqa: N802
        self._initialised = False
        if error := self._load()["nvml_error"]:
            raise pynvml.NVMLError(error)
        self._initialised = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        if not self._initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        self._initialised = False

    def nvmlErrorString(self, code: int) -> str:  # noqa: N802
        return str(pynvml.NVMLError(code))

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return str(self._get()["driver"])

    def nvmlSystemGetNVMLVersion(self) -> str:  # noqa: N802
        # answered without a session, as by the real library: after a mismatch it tells the library's own version
        return f"12.{self._load()['nvml']}"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        self._get()
        return _CUDA_VERSION

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return self.nvmlSystemGetCudaDriverVersion()

    def nvmlSystemGetProcessName(self, pid: int) -> str:  # noqa: N802
        for process in self._get()["processes"]:
            if process["pid"] == pid:
                return str(process["name"])
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._get()
        return 1

    def nvmlDeviceGetCount_v2(self) -> int:  # noqa: N802
        return self.nvmlDeviceGetCount()

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:  # noqa: N802
        self._get()
        if index != 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return pynvml.c_nvmlDevice_t()

    def nvmlDeviceGetHandleByIndex_v2(self, index: int) -> object:  # noqa: N802
        return self.nvmlDeviceGetHandleByIndex(index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> object:  # noqa: N802
        self._get()
        if uuid not in (UUID, UUID.encode()):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return pynvml.c_nvmlDevice_t()

    def nvmlDeviceGetMemoryInfo(self, _handle: object, version: int | None = None) -> Any:  # noqa: N802
        """The second version of the structure tells reserved memory apart; the first counts it as used."""
        used = self._get()["used_bytes"]
        total, reserved = TOTAL_MIB * MIB, RESERVED_MIB * MIB
        free = total - reserved - used
        if version:
            return pynvml.c_nvmlMemory_v2_t(version=version, total=total, reserved=reserved, free=free, used=used)
        return pynvml.c_nvmlMemory_t(total=total, free=free, used=used + reserved)

    def nvmlDeviceGetBAR1MemoryInfo(self, _handle: object) -> Any:  # noqa: N802
        self._get()
        total, used = 256 * MIB, 5 * MIB
        return pynvml.c_nvmlBAR1Memory_t(bar1Total=total, bar1Free=total - used, bar1Used=used)

    def nvmlDeviceGetUtilizationRates(self, _handle: object) -> Any:  # noqa: N802
        state = self._get()
        return pynvml.c_nvmlUtilization_t(gpu=state["util"], memory=state["memory_util"])

    def nvmlDeviceGetTemperature(self, _handle: object, sensor: int) -> int:  # noqa: N802
        state = self._get()
        if sensor != pynvml.NVML_TEMPERATURE_GPU:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(state["temperature"])

    def nvmlDeviceGetTemperatureV(self, handle: object, sensor: int, _version: int = 0) -> int:  # noqa: N802
        return self.nvmlDeviceGetTemperature(handle, sensor)

    def nvmlDeviceGetTemperatureThreshold(self, _handle: object, threshold: int) -> int:  # noqa: N802
        self._get()
        if threshold not in _THRESHOLDS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return _THRESHOLDS[threshold]

    def nvmlDeviceGetClockInfo(self, _handle: object, clock: int) -> int:  # noqa: N802
        state = self._get()
        if clock == pynvml.NVML_CLOCK_MEM:
            return int(state["memory_mhz"])
        settings = self._settings()
        low, high = settings.get("clock_low", 0), settings.get("clock_high", MAX_SM_MHZ)
        return min(high, max(low, int(state["sm_mhz"])))

    def nvmlDeviceGetClock(self, handle: object, clock: int, _clock_id: int) -> int:  # noqa: N802
        return self.nvmlDeviceGetClockInfo(handle, clock)

    def nvmlDeviceGetMaxClockInfo(self, _handle: object, clock: int) -> int:  # noqa: N802
        self._get()
        return MEMORY_MHZ if clock == pynvml.NVML_CLOCK_MEM else MAX_SM_MHZ

    def nvmlDeviceGetApplicationsClock(self, handle: object, clock: int) -> int:  # noqa: N802
        return self.nvmlDeviceGetMaxClockInfo(handle, clock)

    def nvmlDeviceGetDefaultApplicationsClock(self, _handle: object, clock: int) -> int:  # noqa: N802
        self._get()
        return MEMORY_MHZ if clock == pynvml.NVML_CLOCK_MEM else 585

    def nvmlDeviceGetSupportedClocksEventReasons(self, _handle: object) -> int:  # noqa: N802
        self._get()
        return 0x1FF

    def nvmlDeviceGetSupportedClocksThrottleReasons(self, handle: object) -> int:  # noqa: N802
        return self.nvmlDeviceGetSupportedClocksEventReasons(handle)

    def nvmlDeviceGetPciInfo(self, _handle: object) -> Any:  # noqa: N802
        self._get()
        return pynvml.nvmlPciInfo_t(
            busIdLegacy=b"0000:3B:00.0",
            domain=0,
            bus=0x3B,
            device=0,
            pciDeviceId=_PCI_DEVICE_ID,
            pciSubSystemId=_PCI_SUBSYSTEM_ID,
            busId=_BUS_ID.encode(),
        )

    def nvmlDeviceGetPciInfo_v3(self, handle: object) -> Any:  # noqa: N802
        return self.nvmlDeviceGetPciInfo(handle)

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: object) -> list[Any]:  # noqa: N802
        return [
            pynvml.nvmlFriendlyObject(
                {
                    "pid": process["pid"],
                    "usedGpuMemory": process["bytes"],
                    "gpuInstanceId": 0xFFFFFFFF,
                    "computeInstanceId": 0xFFFFFFFF,
                }
            )
            for process in self._get()["processes"]
        ]

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: object) -> list[Any]:  # noqa: N802
        return self.nvmlDeviceGetComputeRunningProcesses(handle)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: object) -> list[Any]:  # noqa: N802
        return self.nvmlDeviceGetComputeRunningProcesses(handle)

    def nvmlDeviceGetProcessUtilization(self, _handle: object, last_seen_us: int) -> list[Any]:  # noqa: N802
        state = self._get()
        now_us = state["now_ns"] // 1000
        samples = [
            pynvml.c_nvmlProcessUtilizationSample_t(
                pid=process["pid"], timeStamp=now_us, smUtil=process["util"], memUtil=process["util"] // 2
            )
            for process in state["processes"]
            if now_us > last_seen_us
        ]
        if not samples:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return samples

    def nvmlDeviceGetViolationStatus(self, _handle: object, policy: int) -> Any:  # noqa: N802
        state = self._get()
        key = _POLICY_COUNTERS.get(policy)
        violation = state[key] if key else 0
        return pynvml.c_nvmlViolationTime_t(referenceTime=state["now_ns"] // 1000, violationTime=violation)

    def nvmlDeviceGetFieldValues(self, _handle: object, fields: list[Any]) -> Any:  # noqa: N802
        """Unknown fields come back with their own return code, as from the driver; the call itself succeeds."""
        state = self._get()
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for value, asked in zip(values, fields, strict=True):
            value.fieldId = asked[0] if isinstance(asked, tuple) else asked
            value.timestamp = state["now_ns"] // 1000
            if value.fieldId not in _COUNTER_FIELDS:
                value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
                continue
            key = _COUNTER_FIELDS[value.fieldId]
            value.nvmlReturn = pynvml.NVML_SUCCESS
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            value.value.ullVal = state[key] if key else 0
        return values

    def nvmlDeviceGetSupportedMemoryClocks(self, _handle: object) -> list[int]:  # noqa: N802
        self._get()
        return [MEMORY_MHZ, 405]

    def nvmlDeviceGetSupportedGraphicsClocks(self, _handle: object, _memory_mhz: int) -> list[int]:  # noqa: N802
        self._get()
        return list(range(MAX_SM_MHZ, _LOWEST_SM_MHZ - 1, -_CLOCK_STEP_MHZ))

    def nvmlDeviceSetPersistenceMode(self, _handle: object, mode: int) -> None:  # noqa: N802
        self._set(persistence=int(mode))

    def nvmlDeviceSetComputeMode(self, _handle: object, mode: int) -> None:  # noqa: N802
        self._set(compute_mode=int(mode))

    def nvmlDeviceSetPowerManagementLimit(self, _handle: object, milliwatts: int) -> None:  # noqa: N802
        if not _MW_LOWEST_LIMIT <= milliwatts <= _MW_LIMIT:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self._set(power_limit_mw=milliwatts)

    def nvmlDeviceSetGpuLockedClocks(self, _handle: object, low: int, high: int) -> None:  # noqa: N802
        if low > high:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self._set(clock_low=low, clock_high=high)

    def nvmlDeviceResetGpuLockedClocks(self, _handle: object) -> None:  # noqa: N802
        self._set(clock_low=None, clock_high=None)

    def _settings(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._settings_path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from error

    def _set(self, **changed: int | None) -> None:
        """None takes a setting away. Whole or not at all, since other processes read it."""
        self._get()
        settings = {name: value for name, value in {**self._settings(), **changed}.items() if value is not None}
        try:
            write_private(self._settings_path, msgspec.json.encode(settings).decode())
        except OSError as error:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from error

    def _answering(self, pick: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        def call(*_arguments: Any) -> Any:
            return pick(self._get())

        return call

    def _not_supported(self, *_arguments: Any, **_options: Any) -> Any:
        self._get()
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _get(self) -> dict[str, Any]:
        if not self._initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return self._load()

    def _load(self) -> dict[str, Any]:
        now = time.monotonic()
        if now - self._read_at < KEEP_S:
            return self._state
        try:
            self._state = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.DecodeError) as error:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from error
        self._read_at = now
        return self._state
