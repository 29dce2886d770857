"""A stand-in for the pynvml module, driven by data: `FakeNvml("T4")`.

nvml = FakeNvml("A100", count=2)
nvml.cards[0]["nvmlDeviceGetTemperature"] = 91     # or a callable, or Refusal(3)
nvml.fail(15, card=1)                              # that card is lost
nvml.fail(4, "nvmlDeviceGetName")                  # that function is not permitted on any card
nvml.without.add("nvmlDeviceGetRemappedRows")      # this nvidia-ml-py does not know it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
NOT_AVAILABLE_U32 = 0xFFFF_FFFF
NOT_AVAILABLE_U64 = 0xFFFF_FFFF_FFFF_FFFF

_TEXTS = {
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    9: "Driver Not Loaded",
    10: "Timeout",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    15: "GPU is lost",
    16: "GPU requires restart",
    18: "RM has detected an NVML/RM version mismatch.",
    999: "Unknown Error",
}


class FakeError(Exception):
    """As pynvml's NVMLError: the code in `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return _TEXTS.get(self.value, f"NVML Error with code {self.value}")


class FakeLibraryMismatchError(Exception):
    """As pynvml's NVMLLibraryMismatchError, which is no NVMLError and has no code."""


class Refusal:
    """In place of a value: the call answers this nvmlReturn_t."""

    def __init__(self, code: int) -> None:
        self.code = code


class FakeNvml:
    """The functions that the console calls, over plain dictionaries."""

    NVMLError = FakeError
    NVMLLibraryMismatchError = FakeLibraryMismatchError

    def __init__(self, gpu: str = "T4", count: int = 1) -> None:
        self.cards: list[dict[str, Any]] = [CARDS[gpu](index) for index in range(count)]
        self.system: dict[str, Any] = {
            "nvmlSystemGetDriverVersion": "550.90.07",
            "nvmlSystemGetNVMLVersion": "12.550.90.07",
            "nvmlSystemGetCudaDriverVersion_v2": 12040,
        }
        self.init_error = 0
        self.without: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.opened = 0
        self._failing: dict[tuple[int | None, str | None], int] = {}

    def fail(self, code: int, function: str | None = None, card: int | None = None) -> None:
        """Make calls answer `code`: of one function or of all, on one card or on all. 0 ends it."""
        self._failing[(card, function)] = code

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls["nvmlInit"] += 1
        if self.init_error:
            raise FakeError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        if not self.opened:
            raise FakeError(1)
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._check(None, "nvmlDeviceGetCount")
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        self._check(index, "nvmlDeviceGetHandleByIndex")
        return SimpleNamespace(card=index, data=self.cards[index])

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "without"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name in self.without:
            raise AttributeError(name)
        return lambda *args: self._answer(name, *args)

    def _answer(self, name: str, *args: Any) -> Any:
        if name.startswith("nvmlSystem"):
            self._check(None, name)
            return self._value(self.system.get(name, Refusal(13)))
        handle, *rest = args
        self._check(handle.card, name)
        return self._value(handle.data.get(name, Refusal(3)), *rest)

    def _value(self, value: Any, *args: Any) -> Any:
        if callable(value):
            value = value(*args)
        if isinstance(value, Refusal):
            raise FakeError(value.code)
        return value

    def _check(self, card: int | None, name: str) -> None:
        self.calls[name] += 1
        for key in ((card, name), (card, None), (None, name), (None, None)):
            if code := self._failing.get(key, 0):
                raise FakeError(code)


def field_values(values: dict[int, Any]) -> Callable[[Any], list[Any]]:
    """nvmlDeviceGetFieldValues over {field: integer or Refusal}; a field that is not there is not supported."""

    def answer(ids: Any) -> list[Any]:
        return [_field_value(values.get(field, Refusal(3))) for field in ids]

    return answer


def _field_value(value: Any) -> Any:
    if isinstance(value, Refusal):
        return SimpleNamespace(nvmlReturn=value.code, valueType=0, value=None)
    return SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=value))


def process(pid: int, memory: int | None = None, instance: int | None = None) -> Any:
    """A line of the process lists."""
    gpu_instance = NOT_AVAILABLE_U32 if instance is None else instance
    return SimpleNamespace(pid=pid, usedGpuMemory=memory, gpuInstanceId=gpu_instance, computeInstanceId=gpu_instance)


def sample(pid: int, share: int, stamp_us: int) -> Any:
    """A sample of nvmlDeviceGetProcessUtilization."""
    return SimpleNamespace(pid=pid, smUtil=share, timeStamp=stamp_us, memUtil=0, encUtil=0, decUtil=0)


def memory(total_mib: int, used_mib: int, reserved_mib: int) -> Callable[..., Any]:
    """nvmlDeviceGetMemoryInfo: v2 tells the driver's share apart, v1 counts it as used."""

    def answer(version: int | None = None) -> Any:
        free = (total_mib - used_mib - reserved_mib) * MIB
        if version is None:
            return SimpleNamespace(total=total_mib * MIB, used=(used_mib + reserved_mib) * MIB, free=free)
        used = used_mib * MIB
        return SimpleNamespace(total=total_mib * MIB, used=used, free=free, reserved=reserved_mib * MIB)

    return answer


def mig_device(card: int, name: str, uuid: str, memory_mib: int, used_mib: int) -> Any:
    """A handle of a MIG device."""
    data: dict[str, Any] = {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetMemoryInfo": memory(memory_mib, used_mib, 0),
        "nvmlDeviceGetComputeRunningProcesses": [],
    }
    return SimpleNamespace(card=card, data=data)


def _by(values: dict[Any, Any]) -> Callable[..., Any]:
    """A function of its arguments; one that is not there is not supported."""
    return lambda *args: values.get(args if len(args) != 1 else args[0], Refusal(3))


def t4(index: int) -> dict[str, Any]:
    """A Tesla T4 under half load: passive, retired pages, no remapping, no MIG, no HBM."""
    return {
        "nvmlDeviceGetUUID": f"GPU-3f1c0000-0000-0000-0000-{index:012d}",
        "nvmlDeviceGetName": b"Tesla T4",
        "nvmlDeviceGetSerial": f"132061900{index:04d}",
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"00000000:{0x3B + index:02X}:00.0".encode()),
        "nvmlDeviceGetArchitecture": 6,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=64, memory=31),
        "nvmlDeviceGetMemoryInfo": memory(15360, 5837, 410),
        "nvmlDeviceGetPowerUsage": 44120,
        "nvmlDeviceGetEnforcedPowerLimit": 70000,
        "nvmlDeviceGetPowerManagementLimit": 70000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 70000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [60000, 70000],
        "nvmlDeviceGetTemperature": 66,
        "nvmlDeviceGetTemperatureThreshold": _by({0: 96, 1: 93}),
        "nvmlDeviceGetClockInfo": _by({1: 1590, 2: 5000}),
        "nvmlDeviceGetMaxClockInfo": _by({1: 1590, 2: 5001}),
        "nvmlDeviceGetPerformanceState": 0,
        "nvmlDeviceGetCurrentClocksEventReasons": 0,
        "nvmlDeviceGetFieldValues": field_values({74: 250_000_000_000, 76: 0}),
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetRetiredPages": _by({0: [], 1: []}),
        "nvmlDeviceGetRetiredPagesPendingStatus": 0,
        "nvmlDeviceGetCurrPcieLinkGeneration": 3,
        "nvmlDeviceGetMaxPcieLinkGeneration": 3,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetPcieReplayCounter": 0,
        "nvmlDeviceGetPcieThroughput": _by({0: 1200, 1: 3400}),
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetProcessUtilization": Refusal(6),
    }


def a100(index: int) -> dict[str, Any]:
    """An A100 PCIe 40 GB: row remapping instead of page retirement, HBM temperature, MIG off."""
    card = t4(index)
    for function in ("nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPagesPendingStatus"):
        del card[function]
    card |= {
        "nvmlDeviceGetName": "NVIDIA A100-PCIE-40GB",
        "nvmlDeviceGetArchitecture": 7,
        "nvmlDeviceGetMemoryInfo": memory(40960, 12000, 512),
        "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
        "nvmlDeviceGetTemperatureThreshold": _by({0: 92, 1: 89, 2: 95}),
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetFieldValues": field_values(
            {74: 5_000_000_000, 76: 0, 77: 0, 78: 0, 79: 0, 82: 51, 230: 0, 269: 0, 270: 0, 271: 0}
        ),
    }
    return card


def a100_mig(index: int) -> dict[str, Any]:
    """An A100 in three parts: no utilisation and no remapping on the card itself."""
    card = a100(index)
    for function in (
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetProcessUtilization",
    ):
        del card[function]
    parts = [
        mig_device(index, f"NVIDIA A100-PCIE-40GB MIG {profile}", f"MIG-{index}-{number}", size, 19 * number)
        for number, (profile, size) in enumerate((("3g.20gb", 19968), ("2g.10gb", 9984), ("1g.5gb", 4864)))
    ]
    card |= {
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda slot: parts[slot] if slot < len(parts) else Refusal(6),
    }
    return card


def h200(index: int) -> dict[str, Any]:
    """An H200: HBM, row remapping, recovery action."""
    card = a100(index)
    card |= {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetArchitecture": 9,
        "nvmlDeviceGetMemoryInfo": memory(143771, 90000, 640),
        "nvmlDeviceGetEnforcedPowerLimit": 700000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [200000, 700000],
    }
    return card


def bare(index: int) -> dict[str, Any]:
    """A card that gives nothing but name and memory without the driver's share."""
    card = t4(index)
    return {
        "nvmlDeviceGetName": card["nvmlDeviceGetName"],
        "nvmlDeviceGetUUID": card["nvmlDeviceGetUUID"],
        "nvmlDeviceGetMemoryInfo": lambda version=None: Refusal(13) if version else memory(8192, 100, 0)(),
    }


CARDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "T4": t4,
    "A100": a100,
    "A100-MIG": a100_mig,
    "H200": h200,
    "bare": bare,
}
