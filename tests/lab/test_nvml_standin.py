"""The stand-in NVML, read as the product reads the real one: through nvidia-ml-py, in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.lab.fixtures import Standin
from tests.lab.nvml import layout, values

# Calls each (name, function) and prints {name: answer or "E<code>"}.
_ASK = """
import json
import pynvml as n

def answer(call):
    try:
        got = call()
    except n.NVMLError as error:
        return f"E{error.value}"
    return plain(got)

def plain(got):
    if isinstance(got, (list, tuple)):
        return [plain(item) for item in got]
    if hasattr(got, "_fields_"):
        return {name: plain(getattr(got, name)) for name, *_ in got._fields_}
    if hasattr(got, "__dict__"):
        return vars(got)
    return got.decode() if isinstance(got, bytes) else got
"""


def _ask(standin: Standin, setup: str, **calls: str) -> dict[str, Any]:
    lines = [_ASK, setup, "print(json.dumps({"]
    lines += [f"{name!r}: answer(lambda: {call})," for name, call in calls.items()]
    answers: dict[str, Any] = standin.python("\n".join([*lines, "}))"]))
    return answers


_CARD = "n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)"

_CALLS = {
    "name": "n.nvmlDeviceGetName(h)",
    "uuid": "n.nvmlDeviceGetUUID(h)",
    "serial": "n.nvmlDeviceGetSerial(h)",
    "minor": "n.nvmlDeviceGetMinorNumber(h)",
    "brand": "n.nvmlDeviceGetBrand(h)",
    "architecture": "n.nvmlDeviceGetArchitecture(h)",
    "memory": "n.nvmlDeviceGetMemoryInfo(h)",
    "memory_v2": "n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)",
    "util": "n.nvmlDeviceGetUtilizationRates(h)",
    "power": "n.nvmlDeviceGetPowerUsage(h)",
    "limit": "n.nvmlDeviceGetPowerManagementLimit(h)",
    "limits": "n.nvmlDeviceGetPowerManagementLimitConstraints(h)",
    "enforced": "n.nvmlDeviceGetEnforcedPowerLimit(h)",
    "default_limit": "n.nvmlDeviceGetPowerManagementDefaultLimit(h)",
    "temperature": "n.nvmlDeviceGetTemperature(h, 0)",
    "temperature_v": "n.nvmlDeviceGetTemperatureV(h, 0)",
    "slowdown": "n.nvmlDeviceGetTemperatureThreshold(h, 1)",
    "sm_clock": "n.nvmlDeviceGetClockInfo(h, 1)",
    "sm_clock_max": "n.nvmlDeviceGetMaxClockInfo(h, 1)",
    "pstate": "n.nvmlDeviceGetPerformanceState(h)",
    "reasons": "n.nvmlDeviceGetCurrentClocksEventReasons(h)",
    "reasons_old": "n.nvmlDeviceGetCurrentClocksThrottleReasons(h)",
    "ecc": "n.nvmlDeviceGetEccMode(h)",
    "ecc_errors": "n.nvmlDeviceGetTotalEccErrors(h, 1, 1)",
    "retired": "n.nvmlDeviceGetRetiredPages(h, 0)",
    "retired_pending": "n.nvmlDeviceGetRetiredPagesPendingStatus(h)",
    "remapped": "n.nvmlDeviceGetRemappedRows(h)",
    "pcie": "(n.nvmlDeviceGetCurrPcieLinkGeneration(h), n.nvmlDeviceGetMaxPcieLinkGeneration(h))",
    "width": "(n.nvmlDeviceGetCurrPcieLinkWidth(h), n.nvmlDeviceGetMaxPcieLinkWidth(h))",
    "replays": "n.nvmlDeviceGetPcieReplayCounter(h)",
    "throughput": "n.nvmlDeviceGetPcieThroughput(h, 0)",
    "persistence": "n.nvmlDeviceGetPersistenceMode(h)",
    "compute_mode": "n.nvmlDeviceGetComputeMode(h)",
    "mig": "n.nvmlDeviceGetMigMode(h)",
    "fan": "n.nvmlDeviceGetFanSpeed(h)",
    "display": "n.nvmlDeviceGetDisplayMode(h)",
    "driver_model": "n.nvmlDeviceGetDriverModel(h)",
    "violation": "n.nvmlDeviceGetViolationStatus(h, 0).violationTime",
    "compute": "n.nvmlDeviceGetComputeRunningProcesses(h)",
    "graphics": "n.nvmlDeviceGetGraphicsRunningProcesses(h)",
    "process_util": "n.nvmlDeviceGetProcessUtilization(h, 0)",
}


def test_header_and_python_agree_to_the_last_figure(nvml_standin: Standin) -> None:
    nvml_standin.create("a100-mig", count=8)
    last = nvml_standin.box.devices[7]
    last.mig_count, last.mig[6].gpu_slices, last.mig[6].multiprocessors = 7, 5, 77
    setup = "n.nvmlInit(); m = n.nvmlDeviceGetMigDeviceHandleByIndex(n.nvmlDeviceGetHandleByIndex(7), 6)"
    answers = _ask(nvml_standin, setup, shape="n.nvmlDeviceGetAttributes_v2(m)")
    assert answers["shape"]["multiprocessorCount"] == 77
    assert answers["shape"]["gpuInstanceSliceCount"] == 5


def test_a_t4_gives_what_the_profile_says(nvml_standin: Standin) -> None:
    answers = _ask(nvml_standin, _CARD, count="n.nvmlDeviceGetCount()", **_CALLS)
    assert answers["count"] == 1
    assert answers["name"] == "Tesla T4"
    assert answers["memory_v2"]["reserved"] == 448 * values.MIB
    assert answers["memory_v2"]["free"] == (15360 - 448) * values.MIB
    assert answers["memory"]["used"] == 448 * values.MIB, "the first version counts the reserved part as used"
    assert answers["limits"] == [60000, 70000]
    assert (answers["power"], answers["limit"], answers["enforced"]) == (10000, 70000, 70000)
    assert answers["temperature"] == answers["temperature_v"] == 38
    assert (answers["slowdown"], answers["sm_clock"], answers["sm_clock_max"]) == (93, 300, 1590)
    assert answers["reasons"] == answers["reasons_old"] == values.IDLE
    assert (answers["ecc"], answers["ecc_errors"], answers["retired"]) == ([1, 1], 0, [])
    assert (answers["pcie"], answers["width"]) == ([1, 3], [16, 16])
    assert (answers["compute"], answers["graphics"]) == ([], [])
    # What a T4 does not have.
    absent = {name: answers[name] for name in ("fan", "remapped", "mig", "driver_model")}
    assert absent == dict.fromkeys(absent, "E3")


def test_versions_of_driver_and_cuda(nvml_standin: Standin) -> None:
    answers = _ask(
        nvml_standin,
        _CARD,
        driver="n.nvmlSystemGetDriverVersion()",
        nvml="n.nvmlSystemGetNVMLVersion()",
        cuda="n.nvmlSystemGetCudaDriverVersion_v2()",
        text="n.nvmlErrorString(18)",
    )
    assert answers == {
        "driver": "560.35.05",
        "nvml": "12.560.35.05",
        "cuda": 12060,
        "text": "RM has detected an NVML/RM version mismatch.",
    }


def test_a_stored_figure_is_seen_by_the_next_call(nvml_standin: Standin) -> None:
    program = f"""{_ASK}
import sys
{_CARD}
print(json.dumps(answer(lambda: n.nvmlDeviceGetTemperature(h, 0))), flush=True)
sys.stdin.readline()
print(json.dumps(answer(lambda: n.nvmlDeviceGetTemperature(h, 0))), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=nvml_standin.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "38\n"
        nvml_standin.card.temperature = 91
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "91\n"


@pytest.mark.parametrize("code", [values.LIBRARY_MISMATCH, values.DRIVER_NOT_LOADED, values.UNKNOWN_ERROR])
def test_init_can_fail(nvml_standin: Standin, code: int) -> None:
    nvml_standin.box.init_error = code
    assert _ask(nvml_standin, "", init="n.nvmlInit()", count="n.nvmlDeviceGetCount()") == {
        "init": f"E{code}",
        "count": "E1",
    }


def test_without_a_value_file_the_driver_is_not_loaded(nvml_standin: Standin) -> None:
    nvml_standin.file.unlink()
    assert _ask(nvml_standin, "", init="n.nvmlInit()") == {"init": "E9"}


def test_a_file_that_is_no_value_file_is_an_unknown_error(nvml_standin: Standin) -> None:
    nvml_standin.file.write_bytes(bytes(ctypes.sizeof(layout.Values)))
    assert _ask(nvml_standin, "", init="n.nvmlInit()") == {"init": "E999"}


@pytest.mark.parametrize("code", [values.GPU_IS_LOST, values.UNKNOWN_ERROR])
def test_a_card_can_be_lost_while_others_live(nvml_standin: Standin, code: int) -> None:
    nvml_standin.create("t4", count=2)
    nvml_standin.card.error = code
    answers = _ask(
        nvml_standin,
        "n.nvmlInit(); h = n.c_nvmlDevice_t; g = n.nvmlDeviceGetHandleByIndex(1)",
        count="n.nvmlDeviceGetCount()",
        lost="n.nvmlDeviceGetHandleByIndex(0)",
        other="n.nvmlDeviceGetTemperature(g, 0)",
    )
    assert answers == {"count": 2, "lost": f"E{code}", "other": 38}


def test_a_card_lost_in_mid_run_answers_so_to_every_call(nvml_standin: Standin) -> None:
    calls = {name: call for name, call in _CALLS.items() if name != "driver_model"}
    setup = _CARD + (
        "\nfrom pathlib import Path; from tests.lab.nvml.values import open_values"
        f"\nopen_values(Path({str(nvml_standin.file)!r})).devices[0].error = 15"
    )
    answers = _ask(nvml_standin, setup, **calls)
    assert answers == dict.fromkeys(answers, "E15")


def test_a_hang_ends_when_the_file_says_so(nvml_standin: Standin) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"{_ASK}\nprint('ready', flush=True)\n{_CARD}\nprint('done', flush=True)"],
        env=nvml_standin.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        nvml_standin.box.hang_ms = 60_000
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        assert child.poll() is None
        nvml_standin.box.hang_ms = 0
        assert child.stdout.readline() == "done\n"


def test_every_optional_figure_can_be_absent(nvml_standin: Standin) -> None:
    nvml_standin.create("bare")
    answers = _ask(nvml_standin, _CARD, cuda="n.nvmlSystemGetCudaDriverVersion_v2()", **_CALLS)
    given = {name for name, value in answers.items() if value != "E3"}
    assert given == {"cuda", "name", "uuid", "minor", "memory", "memory_v2"}


@pytest.mark.parametrize("count", [0, 8])
def test_none_to_eight_cards(nvml_standin: Standin, count: int) -> None:
    nvml_standin.create("a100", count)
    answers = _ask(
        nvml_standin,
        "n.nvmlInit()",
        count="n.nvmlDeviceGetCount()",
        uuids="[n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) for i in range(n.nvmlDeviceGetCount())]",
        beyond=f"n.nvmlDeviceGetHandleByIndex({count})",
    )
    assert (answers["count"], answers["beyond"]) == (count, "E2")
    assert len(set(answers["uuids"])) == count


def test_a_card_is_found_by_uuid_and_by_bus(nvml_standin: Standin) -> None:
    nvml_standin.create("a100-mig", count=2)
    second = nvml_standin.box.devices[1]
    uuid, bus, mig = second.uuid.decode(), second.bus_id.decode(), second.mig[1].uuid.decode()
    answers = _ask(
        nvml_standin,
        "n.nvmlInit()",
        by_uuid=f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID({uuid!r}))",
        by_bus=f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId({bus!r}))",
        by_mig=f"n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByUUID({mig!r}))",
        unknown="n.nvmlDeviceGetHandleByUUID('GPU-0')",
        pci="n.nvmlDeviceGetPciInfo(n.nvmlDeviceGetHandleByIndex(1)).busId",
    )
    assert answers == {
        "by_uuid": 1,
        "by_bus": 1,
        "by_mig": "NVIDIA A100-PCIE-40GB MIG 2g.10gb",
        "unknown": "E6",
        "pci": "00000000:66:00.0",
    }


def test_a_split_card_gives_no_utilisation_but_its_instances(nvml_standin: Standin) -> None:
    nvml_standin.create("a100-mig")
    values.set_processes(nvml_standin.card, [values.process(4711, 900 * values.MIB, gpu_instance=2)])
    answers = _ask(
        nvml_standin,
        _CARD + "; m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 1)",
        mode="n.nvmlDeviceGetMigMode(h)",
        most="n.nvmlDeviceGetMaxMigDeviceCount(h)",
        util="n.nvmlDeviceGetUtilizationRates(h)",
        process_util="n.nvmlDeviceGetProcessUtilization(h, 0)",
        memory="n.nvmlDeviceGetMemoryInfo(m).total",
        identity="(n.nvmlDeviceGetGpuInstanceId(m), n.nvmlDeviceGetComputeInstanceId(m))",
        shape="n.nvmlDeviceGetAttributes_v2(m).gpuInstanceSliceCount",
        parent="n.nvmlDeviceGetName(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m))",
        is_mig="[n.nvmlDeviceIsMigDeviceHandle(x).value for x in (h, m)]",
        instance_util="n.nvmlDeviceGetUtilizationRates(m)",
        beyond="n.nvmlDeviceGetMigDeviceHandleByIndex(h, 3)",
        on_card="[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)]",
        on_instance="[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(m)]",
        elsewhere="n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0))",
    )
    assert answers == {
        "mode": [1, 1],
        "most": 7,
        "util": "E3",
        "process_util": "E3",
        "memory": 9984 * values.MIB,
        "identity": [2, 0],
        "shape": 2,
        "parent": "NVIDIA A100-PCIE-40GB",
        "is_mig": [0, 1],
        "instance_util": "E3",
        "beyond": "E6",
        "on_card": [4711],
        "on_instance": [4711],
        "elsewhere": [],
    }


def test_processes_known_and_of_unknown_memory(nvml_standin: Standin) -> None:
    values.set_processes(
        nvml_standin.card,
        [
            values.process(100, 512 * values.MIB, sm_percent=40),
            values.process(101),
            values.process(102, 64 * values.MIB, graphics=True),
        ],
    )
    answers = _ask(
        nvml_standin,
        _CARD,
        compute="[(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h)]",
        compute_v2="len(n.nvmlDeviceGetComputeRunningProcesses_v2(h))",
        graphics="[(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetGraphicsRunningProcesses(h)]",
        util="[(s.pid, s.smUtil) for s in n.nvmlDeviceGetProcessUtilization(h, 0)]",
    )
    assert answers == {
        "compute": [[100, 512 * values.MIB], [101, None]],
        "compute_v2": 2,
        "graphics": [[102, 64 * values.MIB]],
        "util": [[100, 40], [101, 0], [102, 0]],
    }


def test_fields_by_number_each_with_its_own_result(nvml_standin: Standin) -> None:
    card = nvml_standin.card
    card.violation_ns[0], card.sw_thermal_ns, card.power_brake_ns = 11, 12, 13
    card.hw_thermal_ns, card.recovery_action = layout.ABSENT64, 2
    answers = _ask(
        nvml_standin,
        _CARD,
        fields="[(f.fieldId, f.nvmlReturn, f.value.ullVal if f.nvmlReturn == 0 else None)"
        " for f in n.nvmlDeviceGetFieldValues(h, [74, 269, 270, 271, 230, 1])]",
    )
    assert answers["fields"] == [
        [74, 0, 11],
        [269, 0, 12],
        [270, 3, None],
        [271, 0, 13],
        [230, 0, 2],
        [1, 3, None],
    ]


def test_faults_of_memory(nvml_standin: Standin) -> None:
    nvml_standin.create("a100")
    card = nvml_standin.card
    card.ecc_aggregate_uncorrected, card.remapped_uncorrected, card.remap_pending = 3, 2, 1
    answers = _ask(nvml_standin, _CARD, **{name: _CALLS[name] for name in ("ecc_errors", "remapped", "retired")})
    assert answers == {"ecc_errors": 3, "remapped": [0, 2, 1, 0], "retired": "E3"}
    nvml_standin.create("t4")
    card.retired_single_bit = 2
    assert len(_ask(nvml_standin, _CARD, retired=_CALLS["retired"])["retired"]) == 2


def test_an_older_driver_lacks_the_newest_functions(nvml_standin: Standin) -> None:
    assert _ask(nvml_standin, _CARD, cper="n.nvmlDeviceGetSupportedVgpus(h)") == {"cper": "E13"}


def test_the_writer_refuses_a_wrong_file_and_a_ninth_card(nvml_standin: Standin) -> None:
    nvml_standin.file.write_bytes(bytes(ctypes.sizeof(layout.Values)))
    with pytest.raises(ValueError, match="not a value file"):
        values.open_values(nvml_standin.file)
    with pytest.raises(ValueError, match="0 to 8"):
        values.create(nvml_standin.file, count=9)
