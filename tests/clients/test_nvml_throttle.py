"""The numbers of nvml.h that reasons, fields and policies have, and where drivers changed them."""

from __future__ import annotations

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import nvml_throttle as throttle
from console.clients.nvml_throttle import HEAT_FIELDS, OLD_HEAT_FIELDS, driver_numbers, heat_fields, reason_names


@pytest.mark.parametrize(
    ("bit", "constant"),
    [
        (0x2, "nvmlClocksThrottleReasonApplicationsClocksSetting"),
        (0x4, "nvmlClocksThrottleReasonSwPowerCap"),
        (0x8, "nvmlClocksThrottleReasonHwSlowdown"),
        (0x10, "nvmlClocksThrottleReasonSyncBoost"),
        (0x20, "nvmlClocksThrottleReasonSwThermalSlowdown"),
        (0x40, "nvmlClocksThrottleReasonHwThermalSlowdown"),
        (0x80, "nvmlClocksThrottleReasonHwPowerBrakeSlowdown"),
        (0x100, "nvmlClocksThrottleReasonDisplayClockSetting"),
    ],
)
def test_bits_as_the_library_numbers_them(bit: int, constant: str) -> None:
    assert getattr(pynvml, constant) == bit
    assert bit in throttle.REASON_BITS


def test_names_of_all_bits() -> None:
    assert reason_names(0x7FF) == (
        "applications_clocks", "power_cap", "hw_slowdown", "sync_boost", "heat_software", "heat_hardware",
        "power_brake", "display", "board_limit", "reliability",
    )  # fmt: skip
    assert pynvml.nvmlClocksThrottleReasonGpuIdle == throttle.GPU_IDLE


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("power_cap", pynvml.NVML_FI_DEV_PERF_POLICY_POWER),
        ("sync_boost", pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST),
        ("board_limit", pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT),
        ("low_utilization", pynvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION),
        ("reliability", pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY),
    ],
)
def test_fields_as_the_library_numbers_them(name: str, field: int) -> None:
    assert throttle.POLICY_FIELDS[name] == field
    assert len(throttle.POLICY_FIELDS) == 5
    assert throttle.HEAT_OF_ANY_KIND == pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("power_cap", "POWER"),
        ("heat", "THERMAL"),
        ("sync_boost", "SYNC_BOOST"),
        ("board_limit", "BOARD_LIMIT"),
        ("low_utilization", "LOW_UTILIZATION"),
        ("reliability", "RELIABILITY"),
    ],
)
def test_policies_as_the_library_numbers_them(name: str, constant: str) -> None:
    assert throttle.POLICIES[name] == getattr(pynvml, f"NVML_PERF_POLICY_{constant}")
    assert len(throttle.POLICIES) == 6


def test_members_of_a_value_by_its_kind() -> None:
    kinds = ("DOUBLE", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG", "SIGNED_LONG_LONG", "SIGNED_INT")
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal")
    for kind, member in zip(kinds, members, strict=True):
        assert throttle._VALUE_MEMBERS[getattr(pynvml, f"NVML_VALUE_TYPE_{kind}")] == member
    assert throttle._VALUE_MEMBERS[6:] == ("usVal",)


def test_codes_of_a_card_that_went() -> None:
    wanted = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND)
    assert set(throttle._LOST_CODES) == set(wanted)


@pytest.mark.parametrize(
    ("driver", "fields"),
    [
        ("574.99", [HEAT_FIELDS]),
        ("575", [OLD_HEAT_FIELDS]),
        ("575.0", [OLD_HEAT_FIELDS]),
        ("580.65.06", [OLD_HEAT_FIELDS]),
        ("580.65.07", [HEAT_FIELDS, OLD_HEAT_FIELDS]),
        ("580.66", [HEAT_FIELDS, OLD_HEAT_FIELDS]),
        ("580.81.99", [HEAT_FIELDS, OLD_HEAT_FIELDS]),
        ("580.82", [HEAT_FIELDS]),
    ],
)
def test_where_the_heat_counters_moved(driver: str, fields: list[dict[str, int]]) -> None:
    assert list(heat_fields(driver)) == fields


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=4))
def test_versions_there_and_back(numbers: list[int]) -> None:
    assert driver_numbers(".".join(map(str, numbers))) == tuple(numbers)
