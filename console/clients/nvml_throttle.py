"""Why the clocks are low: the reasons set now, and the seconds that the driver counted for each.

Bits and counters bear the same names. The counters are nanoseconds since the driver was loaded (nvml.h: "in ns").

Field numbers are not stable. nvidia-ml-py 12.575 and 13.580.65 have the heat and brake counters at 251 to 253,
13.580.82 and later at 269 to 271, and each uses the other range for power smoothing; before 575 there were none.
A number of the other kind must never be shown as seconds of throttling, so the driver's version decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from console.clients.nvml import (
    INVALID_ARGUMENT,
    NOT_GIVEN,
    NOT_SUPPORTED,
    UNSUPPORTED,
    Absent,
    LostError,
    Nvml,
    Target,
    number,
)
from console.core.model import ThrottleCounter

GPU_IDLE = 0x1
REASON_BITS: Mapping[int, str] = {
    0x2: "applications_clocks",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "heat_software",
    0x40: "heat_hardware",
    0x80: "power_brake",
    0x100: "display",
    0x200: "board_limit",
    0x400: "reliability",
}
"""nvmlClocksEventReason* (before CUDA 12.2: nvmlClocksThrottleReason*)."""

POLICY_FIELDS: Mapping[str, int] = {
    "power_cap": 74,
    "sync_boost": 76,
    "board_limit": 77,
    "low_utilization": 78,
    "reliability": 79,
}
HEAT_FIELDS: Mapping[str, int] = {"heat_software": 269, "heat_hardware": 270, "power_brake": 271}
OLD_HEAT_FIELDS: Mapping[str, int] = {"heat_software": 251, "heat_hardware": 252, "power_brake": 253}
HEAT_OF_ANY_KIND = 75
POLICIES: Mapping[str, int] = {
    "power_cap": 0,
    "heat": 1,
    "sync_boost": 2,
    "board_limit": 3,
    "low_utilization": 4,
    "reliability": 5,
}
"""NVML_PERF_POLICY_* of the older nvmlDeviceGetViolationStatus."""

FIRST_WITH_HEAT = (575,)
LAST_WITH_OLD_NUMBERS = (580, 65, 6)
FIRST_WITH_NEW_NUMBERS = (580, 82)

_LOST_CODES = (15, 16, 28)
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""


class Counted(Struct, frozen=True):
    """The counters that answered, the reasons for those that did not, and one more field read in the same call."""

    counters: tuple[ThrottleCounter, ...]
    missing: Mapping[str, str]
    extra: Any
    """The value of the extra field, or `Absent`."""


def reason_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons set, lowest bit first; idle is left out, an unknown bit is named by its number."""
    found = []
    for position in range(bits.bit_length()):
        bit = 1 << position
        if bits & bit and bit != GPU_IDLE:
            found.append(REASON_BITS.get(bit, f"bit_{bit:#x}"))
    return tuple(found)


def driver_numbers(driver: str | None) -> tuple[int, ...] | None:
    """`550.90.07` as numbers; None when it is no version."""
    match = re.match(r"(\d+(?:\.\d+)*)", driver or "", re.ASCII)
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def heat_fields(driver: str | None) -> tuple[Mapping[str, int], ...]:
    """The field numbers that may hold the heat counters in this driver; two sets where it cannot be told."""
    version = driver_numbers(driver)
    if version is None or LAST_WITH_OLD_NUMBERS < version < FIRST_WITH_NEW_NUMBERS:
        return (HEAT_FIELDS, OLD_HEAT_FIELDS)
    if FIRST_WITH_HEAT <= version <= LAST_WITH_OLD_NUMBERS:
        return (OLD_HEAT_FIELDS,)
    # Before 575 no field bears these numbers, so asking is harmless.
    return (HEAT_FIELDS,)


class Throttle:
    """Reads reasons and counters of one card."""

    def __init__(self, nvml: Nvml, target: Target, driver: str | None) -> None:
        self._nvml = nvml
        self._target = target
        self._heat = heat_fields(driver)

    def bits(self) -> Any:
        """The reason bits, or `Absent`."""
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return self._nvml.first(self._target, *names)

    def field(self, field_id: int) -> Any:
        """One field's value, or `Absent`."""
        return self._fields((field_id,))[field_id]

    def counters(self, extra: int) -> Counted:
        """All counters and one more field in one call where the card answers them."""
        heat = (field for ids in self._heat for field in ids.values())
        answers = self._fields((*POLICY_FIELDS.values(), HEAT_OF_ANY_KIND, *heat, extra))
        nanoseconds: dict[str, Any] = {name: answers[field] for name, field in POLICY_FIELDS.items()}
        for name in HEAT_FIELDS:
            nanoseconds[name] = _only([answers[ids[name]] for ids in self._heat])
        if isinstance(nanoseconds["heat_software"], Absent) and isinstance(nanoseconds["heat_hardware"], Absent):
            nanoseconds["heat"] = answers[HEAT_OF_ANY_KIND]
        for name, policy in POLICIES.items():
            if isinstance(nanoseconds.get(name), Absent):
                nanoseconds[name] = self._violation(policy, nanoseconds[name])
        told = {name: value for name, value in nanoseconds.items() if not isinstance(value, Absent)}
        missing = {
            f"throttle_counters.{name}": value.reason
            for name, value in nanoseconds.items()
            if isinstance(value, Absent)
        }
        if not told:
            missing["throttle_counters"] = nanoseconds["power_cap"].reason
        counted = tuple(ThrottleCounter(name, value / 1e9) for name, value in told.items())
        return Counted(counted, missing, answers[extra])

    def _violation(self, policy: int, absent: Absent) -> Any:
        answer = self._nvml.query(self._target, "nvmlDeviceGetViolationStatus", policy)
        if isinstance(answer, Absent):
            return absent
        whole = number(answer.violationTime)
        return absent if whole is None else whole

    def _fields(self, ids: tuple[int, ...]) -> dict[int, Any]:
        known = self._target.absent
        answers: dict[int, Any] = {field: known[field] for field in ids if field in known}
        asked = tuple(field for field in ids if field not in known)
        if not asked:
            return answers
        values = self._nvml.query(self._target, "nvmlDeviceGetFieldValues", asked)
        if not isinstance(values, Absent):
            return answers | {field: self._value(field, value) for field, value in zip(asked, values, strict=True)}
        if values.code in (INVALID_ARGUMENT, NOT_SUPPORTED) and len(asked) > 1:
            # One number that this driver does not know may spoil the whole call.
            for field in asked:
                answers |= self._fields((field,))
            return answers
        if values.lasting:
            known.update(dict.fromkeys(asked, values))
        return answers | dict.fromkeys(asked, values)

    def _value(self, field: int, value: Any) -> Any:
        code = int(value.nvmlReturn)
        if code in _LOST_CODES:
            raise LostError(code, "a field answered so")
        if code:
            reason = UNSUPPORTED if code == NOT_SUPPORTED else f"NVML error {code}"
            absent = Absent(reason, code, lasting=code in (NOT_SUPPORTED, INVALID_ARGUMENT))
            if absent.lasting:
                self._target.absent[field] = absent
            return absent
        kind = int(value.valueType)
        if not 0 <= kind < len(_VALUE_MEMBERS):
            return Absent(f"a value of unknown kind {kind}")
        read = getattr(value.value, _VALUE_MEMBERS[kind])
        whole = number(read)
        return Absent(NOT_GIVEN) if whole is None else read


def _only(answers: list[Any]) -> Any:
    told = [answer for answer in answers if not isinstance(answer, Absent)]
    if len(told) == 1:
        return told[0]
    if told:
        return Absent("this driver's field numbers cannot be told apart")
    return answers[0]
