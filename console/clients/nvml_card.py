"""One card as NVML tells it: fast fields at each read, slow ones every five seconds.

Each figure is a question of its own, so that what one card or driver does not give is missing with its reason while
the rest stands. Numbers of enums and fields are those of nvml.h; every NVML unit is turned into the model's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from msgspec import Struct, structs

from console.clients.nvml import (
    FUNCTION_NOT_FOUND,
    NOT_GIVEN,
    UNSUPPORTED,
    Absent,
    LostError,
    Nvml,
    Target,
    lost_failure,
    number,
)
from console.clients.nvml_processes import Processes
from console.clients.nvml_throttle import Throttle, reason_names
from console.clients.proc import ProcReader
from console.core.model import Failure, GpuState, MigInstance

SLOW_INTERVAL = 5.0
"""Seconds between reads of the slow-moving fields."""

MEMORY_V2 = 0x0200_0028
"""nvmlMemory_v2: sizeof of the struct and its version 2."""
TEMPERATURE_GPU = 0
THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN, THRESHOLD_MEMORY_MAX = 0, 1, 2
CLOCK_SM, CLOCK_MEMORY = 1, 2
ECC_CORRECTED, ECC_UNCORRECTED = 0, 1
ECC_SINCE_LOAD, ECC_EVER = 0, 1
RETIRED_FOR = (0, 1)
"""Multiple single-bit errors; a double-bit error."""
PCIE_TX, PCIE_RX = 0, 1
FIELD_MEMORY_TEMPERATURE = 82
FIELD_RECOVERY_ACTION = 230
PSTATE_UNKNOWN = 32

MIG_PARENT = "not given for a MIG parent"
_NOT_FOR_A_MIG_PARENT = (
    "util_pct",
    "mem_ctrl_pct",
    "remapped_correctable",
    "remapped_uncorrectable",
    "remap_pending",
    "remap_failed",
    "processes.sm_pct",
)
"""What a card gives only while MIG is off."""

ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
COMPUTE_MODES: Mapping[int, str] = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
RECOVERY_ACTIONS: Mapping[int, str] = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
_MIG_PROFILE = re.compile(r"\bMIG (\S+)")


class Plain(Struct, frozen=True):
    """A field that is one call's number. `convert` answers None for what the driver means by "not known"."""

    field: str
    function: str
    args: tuple[int, ...] = ()
    convert: Callable[[int], Any] = int


def _thousandth(value: int) -> float:
    return value / 1000


def _named(names: Mapping[int, str]) -> Callable[[int], str]:
    return lambda value: names.get(value, f"unknown ({value})")


def _pstate(value: int) -> int | None:
    return None if value == PSTATE_UNKNOWN else value


def _kilobytes(value: int) -> float:
    return value * 1000.0


FAST = (
    Plain("temp_c", "nvmlDeviceGetTemperature", (TEMPERATURE_GPU,), float),
    Plain("power_w", "nvmlDeviceGetPowerUsage", (), _thousandth),
    Plain("sm_mhz", "nvmlDeviceGetClockInfo", (CLOCK_SM,)),
    Plain("memory_mhz", "nvmlDeviceGetClockInfo", (CLOCK_MEMORY,)),
    Plain("pstate", "nvmlDeviceGetPerformanceState", (), _pstate),
)
SLOW = (
    Plain("architecture", "nvmlDeviceGetArchitecture", (), _named(ARCHITECTURES)),
    Plain("fan_pct", "nvmlDeviceGetFanSpeed", (), float),
    Plain("power_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", (), _thousandth),
    Plain("temp_slowdown_c", "nvmlDeviceGetTemperatureThreshold", (THRESHOLD_SLOWDOWN,), float),
    Plain("temp_shutdown_c", "nvmlDeviceGetTemperatureThreshold", (THRESHOLD_SHUTDOWN,), float),
    Plain("temp_memory_max_c", "nvmlDeviceGetTemperatureThreshold", (THRESHOLD_MEMORY_MAX,), float),
    Plain("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", (CLOCK_SM,)),
    Plain("memory_max_mhz", "nvmlDeviceGetMaxClockInfo", (CLOCK_MEMORY,)),
    Plain("ecc_corrected_now", "nvmlDeviceGetTotalEccErrors", (ECC_CORRECTED, ECC_SINCE_LOAD)),
    Plain("ecc_uncorrected_now", "nvmlDeviceGetTotalEccErrors", (ECC_UNCORRECTED, ECC_SINCE_LOAD)),
    Plain("ecc_corrected_ever", "nvmlDeviceGetTotalEccErrors", (ECC_CORRECTED, ECC_EVER)),
    Plain("ecc_uncorrected_ever", "nvmlDeviceGetTotalEccErrors", (ECC_UNCORRECTED, ECC_EVER)),
    Plain("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", (), bool),
    Plain("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"),
    Plain("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    Plain("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    Plain("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    Plain("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    Plain("persistence", "nvmlDeviceGetPersistenceMode", (), bool),
    Plain("compute_mode", "nvmlDeviceGetComputeMode", (), _named(COMPUTE_MODES)),
)
PCIE_COUNTERS = (
    Plain("pcie_rx_bps", "nvmlDeviceGetPcieThroughput", (PCIE_RX,), _kilobytes),
    Plain("pcie_tx_bps", "nvmlDeviceGetPcieThroughput", (PCIE_TX,), _kilobytes),
)
"""Each of these takes the driver over 20 ms, so they are read only where asked for."""


class _Answers:
    """Fields of a GpuState as they come in: values, and reasons for those that do not."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def put(self, field: str, value: Any) -> None:
        if value is None:
            self.missing[field] = NOT_GIVEN
        else:
            self.values[field] = value

    def lack(self, reason: str, *fields: str) -> None:
        self.missing.update(dict.fromkeys(fields, reason))


class Card:
    """One card of an NVML session; what it last told outlives the card."""

    def __init__(
        self,
        nvml: Nvml,
        target: Target,
        index: int,
        driver: str | None = None,
        proc: ProcReader | None = None,
        pcie_counters: bool = False,
        wall: Callable[[], float] = time.time,
        known: GpuState | None = None,
    ) -> None:
        """`known` is what an earlier session knew about the card of this index, shown if it does not answer."""
        self.index = index
        self._nvml = nvml
        self._target = target
        self._wall = wall
        self._pcie = PCIE_COUNTERS if pcie_counters else ()
        self._throttle = Throttle(nvml, target, driver)
        self._processes = Processes(nvml, target, proc or ProcReader(), wall)
        self._mig: list[_MigDevice] = []
        self._mig_on = False
        self._slow = _Answers()
        self._slow_mono: float | None = None
        self._answered = 0
        self._failed: Absent | None = None
        self.last = known or GpuState(index)
        """What it told at the newest good read."""

    @property
    def pids(self) -> set[int]:
        """Of the processes that it listed last."""
        listed = {process.pid for process in self.last.processes or ()}
        return listed | {process.pid for instance in self.last.mig for process in instance.processes}

    def read(self, mono: float) -> GpuState:
        """The card now; with `lost` set beside the last known fields when it answers no more."""
        self._answered = 0
        self._failed = None
        try:
            state = self._read(mono)
        except LostError as lost:
            return self._gone(lost.failure)
        if not self._answered and self._failed is not None:
            # A card that has fallen off the bus may say 999 to all questions instead of 15.
            reason = self._failed.reason.partition(": ")[2] or self._failed.reason
            return self._gone(lost_failure(self._failed.code, f"GPU {self.index} answers nothing ({reason})"))
        self.last = state
        return state

    def _gone(self, failure: Failure) -> GpuState:
        since = self.last.lost_wall if self.last.lost is not None else self._wall()
        self.last = structs.replace(self.last, lost=failure, lost_wall=since)
        return self.last

    def _read(self, mono: float) -> GpuState:
        if self._slow_mono is None or mono - self._slow_mono >= SLOW_INTERVAL:
            self._slow = self._read_slow()
            self._slow_mono = mono
        fast = self._read_fast()
        values = {**self._slow.values, **fast.values}
        missing = {**self._slow.missing, **fast.missing}
        if self._mig_on:
            missing |= {field: MIG_PARENT for field in _NOT_FOR_A_MIG_PARENT if missing.get(field) == UNSUPPORTED}
        return GpuState(index=self.index, slow_mono=self._slow_mono, missing=missing, **values)

    # ------------------------------------------------------------------------------------------------------ questions

    def _ask(self, function: str, *args: Hashable) -> Any:
        answer = self._nvml.query(self._target, function, *args)
        if not isinstance(answer, Absent):
            self._answered += 1
        elif not answer.lasting and answer.code is not None:
            self._failed = answer
        return answer

    def _plain(self, answers: _Answers, plain: Plain) -> None:
        answer = self._ask(plain.function, *plain.args)
        if isinstance(answer, Absent):
            answers.lack(answer.reason, plain.field)
        else:
            answers.put(plain.field, plain.convert(answer))

    def _pair(self, answers: _Answers, function: str, fields: tuple[str, ...], convert: Callable[[int], Any]) -> None:
        """A call that answers as many numbers as there are fields."""
        answer = self._ask(function)
        if isinstance(answer, Absent):
            answers.lack(answer.reason, *fields)
            return
        for field, value in zip(fields, answer, strict=True):
            whole = number(value)
            answers.put(field, None if whole is None else convert(whole))

    # ----------------------------------------------------------------------------------------------------------- fast

    def _read_fast(self) -> _Answers:
        answers = _Answers()
        self._utilisation(answers)
        self._memory(answers)
        for plain in (*FAST, *self._pcie):
            self._plain(answers, plain)
        if not self._pcie:
            answers.lack("not asked for: each read costs the driver over 20 ms", "pcie_rx_bps", "pcie_tx_bps")
        self._reasons(answers)
        self._counters(answers)
        self._list_processes(answers)
        return answers

    def _utilisation(self, answers: _Answers) -> None:
        answer = self._ask("nvmlDeviceGetUtilizationRates")
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "util_pct", "mem_ctrl_pct")
            return
        for field, value in (("util_pct", answer.gpu), ("mem_ctrl_pct", answer.memory)):
            whole = number(value)
            answers.put(field, None if whole is None else float(whole))

    def _memory(self, answers: _Answers) -> None:
        fields = ("memory_total", "memory_used", "memory_free")
        answer = self._ask("nvmlDeviceGetMemoryInfo", MEMORY_V2)
        if isinstance(answer, Absent):
            old = answer.code == FUNCTION_NOT_FOUND
            reason = "before driver 510 it is not told apart from what is used" if old else answer.reason
            answers.lack(reason, "memory_reserved")
            answer = self._ask("nvmlDeviceGetMemoryInfo")
            if isinstance(answer, Absent):
                answers.lack(answer.reason, *fields)
                return
        else:
            answers.put("memory_reserved", number(answer.reserved))
        for field, value in zip(fields, (answer.total, answer.used, answer.free), strict=True):
            answers.put(field, number(value))

    def _reasons(self, answers: _Answers) -> None:
        answer = self._throttle.bits()
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "throttle_bits", "throttle_now")
        else:
            answers.put("throttle_bits", answer)
            answers.put("throttle_now", reason_names(answer))

    def _counters(self, answers: _Answers) -> None:
        fields = self._throttle.counters(FIELD_MEMORY_TEMPERATURE)
        answers.values["throttle_counters"] = fields.counters
        answers.missing.update(fields.missing)
        memory = fields.extra
        if isinstance(memory, Absent):
            answers.lack(memory.reason, "temp_memory_c")
        else:
            answers.put("temp_memory_c", float(memory))

    def _list_processes(self, answers: _Answers) -> None:
        parts = tuple(device.read(self._processes) for device in self._mig)
        listed = self._processes.read(tuple(part.processes for part in parts))
        answers.values["mig"] = parts
        if listed.processes is not None:
            answers.values["processes"] = listed.processes
        answers.missing.update(listed.missing)

    # ----------------------------------------------------------------------------------------------------------- slow

    def _read_slow(self) -> _Answers:
        answers = _Answers()
        self._mig_mode(answers)
        self._identity(answers)
        for plain in SLOW:
            self._plain(answers, plain)
        self._power_limits(answers)
        self._ecc_mode(answers)
        self._retired_pages(answers)
        self._pair(
            answers,
            "nvmlDeviceGetRemappedRows",
            ("remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failed"),
            int,
        )
        for flag in ("remap_pending", "remap_failed"):
            if flag in answers.values:
                answers.values[flag] = bool(answers.values[flag])
        self._recovery(answers)
        return answers

    def _identity(self, answers: _Answers) -> None:
        for field, function in (
            ("uuid", "nvmlDeviceGetUUID"),
            ("name", "nvmlDeviceGetName"),
            ("serial", "nvmlDeviceGetSerial"),
        ):
            answer = self._ask(function)
            if isinstance(answer, Absent):
                answers.lack(answer.reason, field)
            else:
                answers.put(field, answer)
        answer = self._ask("nvmlDeviceGetPciInfo")
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "pci_bus_id")
        else:
            text = answer.busId
            answers.put("pci_bus_id", (text.decode("ascii", "replace") if isinstance(text, bytes) else text) or None)

    def _power_limits(self, answers: _Answers) -> None:
        answer = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        if isinstance(answer, Absent):
            answer = self._ask("nvmlDeviceGetPowerManagementLimit")
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "power_limit_w")
        else:
            answers.put("power_limit_w", _thousandth(answer))
        limits = ("power_min_w", "power_max_w")
        self._pair(answers, "nvmlDeviceGetPowerManagementLimitConstraints", limits, _thousandth)

    def _ecc_mode(self, answers: _Answers) -> None:
        answer = self._ask("nvmlDeviceGetEccMode")
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "ecc_on")
            return
        current = number(answer[0])
        answers.put("ecc_on", None if current is None else bool(current))

    def _retired_pages(self, answers: _Answers) -> None:
        total = 0
        for cause in RETIRED_FOR:
            answer = self._ask("nvmlDeviceGetRetiredPages", cause)
            if isinstance(answer, Absent):
                answers.lack(answer.reason, "retired_pages")
                return
            total += len(answer)
        answers.put("retired_pages", total)

    def _recovery(self, answers: _Answers) -> None:
        answer = self._throttle.field(FIELD_RECOVERY_ACTION)
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "recovery_action")
        else:
            answers.put("recovery_action", _named(RECOVERY_ACTIONS)(int(answer)))

    # ------------------------------------------------------------------------------------------------------------ MIG

    def _mig_mode(self, answers: _Answers) -> None:
        answer = self._ask("nvmlDeviceGetMigMode")
        current = None if isinstance(answer, Absent) else number(answer[0])
        if bool(current) != self._mig_on and self._slow_mono is not None:
            # The change is a reset: what the card gives is another set now.
            self._target.absent.clear()
        self._mig_on = bool(current)
        if isinstance(answer, Absent):
            answers.lack(answer.reason, "mig_on")
        else:
            answers.put("mig_on", None if current is None else bool(current))
        self._mig = self._mig_devices() if self._mig_on else []

    def _mig_devices(self) -> list[_MigDevice]:
        most = self._ask("nvmlDeviceGetMaxMigDeviceCount")
        found = []
        # Slots are empty until an instance is made, so what they do not answer is not remembered.
        parent = Target(*self._target.arguments)
        for index in range(0 if isinstance(most, Absent) else int(most)):
            answer = self._nvml.query(parent, "nvmlDeviceGetMigDeviceHandleByIndex", index)
            if not isinstance(answer, Absent):
                found.append(_MigDevice(self._nvml, Target(answer), index))
        return found


class _MigDevice:
    """One MIG device; found anew with the slow fields, since instances come and go."""

    def __init__(self, nvml: Nvml, target: Target, index: int) -> None:
        self._nvml = nvml
        self._target = target
        self._index = index
        self._uuid = self._text("nvmlDeviceGetUUID")
        name = self._text("nvmlDeviceGetName")
        match = _MIG_PROFILE.search(name or "")
        self._profile = match.group(1) if match else self._profile_by_size()

    def read(self, processes: Processes) -> MigInstance:
        """Memory and processes now. A MIG device that is gone has none; the card itself is not lost for it."""
        try:
            memory = self._nvml.query(self._target, "nvmlDeviceGetMemoryInfo")
            listed = processes.of_instance(self._target)
        except LostError:
            return MigInstance(self._index, self._uuid, self._profile, None, None)
        told = not isinstance(memory, Absent)
        return MigInstance(
            index=self._index,
            uuid=self._uuid,
            profile=self._profile,
            memory_total=number(memory.total) if told else None,
            memory_used=number(memory.used) if told else None,
            processes=listed,
        )

    def _profile_by_size(self) -> str | None:
        answer = self._nvml.query(self._target, "nvmlDeviceGetAttributes")
        if isinstance(answer, Absent):
            return None
        return f"{answer.gpuInstanceSliceCount}g.{round(answer.memorySizeMB / 1024)}gb"

    def _text(self, function: str) -> str | None:
        answer = self._nvml.query(self._target, function)
        return None if isinstance(answer, Absent) else str(answer)
