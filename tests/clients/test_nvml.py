"""NVML: the choke point, the words for faults, and each mapping from NVML's answers to the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import nvidia_host, nvml_card
from console.clients.nvml import NO_CARD, Absent, LostError, Nvml, Target, number
from console.clients.nvml_card import MIG_PARENT, SLOW_INTERVAL, Card
from console.clients.nvml_throttle import HEAT_FIELDS, OLD_HEAT_FIELDS, driver_numbers, heat_fields, reason_names
from console.clients.proc import ProcReader
from console.core.model import GpuState, SourceError
from tests.fakes.nvml import (
    MIB,
    NOT_AVAILABLE_U32,
    NOT_AVAILABLE_U64,
    FakeLibraryMismatchError,
    FakeNvml,
    Refusal,
    field_values,
    memory,
    process,
    sample,
)

WALL = 1_800_000_000.0


def opened(fake: FakeNvml, root: Path) -> Nvml:
    nvml = Nvml(fake, str(root))
    nvml.open()
    return nvml


def card_of(fake: FakeNvml, root: Path, index: int = 0, **options: Any) -> Card:
    nvml = opened(fake, root)
    target = nvml.device(index)
    assert isinstance(target, Target)
    options.setdefault("driver", "550.90.07")
    options.setdefault("wall", lambda: WALL)
    return Card(nvml, target, index, proc=ProcReader(str(root)), **options)


def read(fake: FakeNvml, root: Path, **options: Any) -> GpuState:
    return card_of(fake, root, **options).read(0.0)


def pci(root: Path, *devices: tuple[str, str]) -> None:
    for index, (vendor, kind) in enumerate(devices):
        folder = root / f"sys/bus/pci/devices/0000:00:{index:02x}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)


def write(root: Path, name: str, text: str = "") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def fault_of(fake: FakeNvml, root: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        Nvml(fake, str(root)).open()
    return caught.value


class TestChokePoint:
    def test_a_function_that_the_wrapper_lacks_is_a_reason(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.without.add("nvmlDeviceGetPowerUsage")
        state = read(fake, tmp_path)
        assert state.power_w is None
        assert state.missing["power_w"] == "this nvidia-ml-py has no nvmlDeviceGetPowerUsage"
        assert state.temp_c == 66

    def test_a_symbol_that_the_driver_lacks_is_a_reason(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.fail(13, "nvmlDeviceGetPowerUsage")
        assert "has no nvmlDeviceGetPowerUsage" in read(fake, tmp_path).missing["power_w"]

    @pytest.mark.parametrize("code", [2, 3, 4, 13, 14, 25])
    def test_a_lasting_refusal_is_not_asked_again_until_opened_anew(self, tmp_path: Path, code: int) -> None:
        fake = FakeNvml()
        fake.fail(code, "nvmlDeviceGetPowerUsage")
        nvml = opened(fake, tmp_path)
        target = nvml.device(0)
        assert isinstance(target, Target)
        for _ in range(3):
            answer = nvml.query(target, "nvmlDeviceGetPowerUsage")
            assert isinstance(answer, Absent)
            assert answer.lasting
        assert fake.calls["nvmlDeviceGetPowerUsage"] == 1
        fake.fail(0, "nvmlDeviceGetPowerUsage")
        nvml.open()
        again = nvml.device(0)
        assert isinstance(again, Target)
        assert nvml.query(again, "nvmlDeviceGetPowerUsage") == 44120

    @pytest.mark.parametrize("code", [6, 10, 999])
    def test_a_passing_refusal_is_asked_again(self, tmp_path: Path, code: int) -> None:
        fake = FakeNvml()
        fake.fail(code, "nvmlDeviceGetPowerUsage")
        card = card_of(fake, tmp_path)
        assert str(code) in card.read(0.0).missing["power_w"]
        fake.fail(0, "nvmlDeviceGetPowerUsage")
        assert card.read(1.0).power_w == pytest.approx(44.12)

    def test_what_one_card_lacks_does_not_hide_anothers(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=2)
        fake.fail(3, "nvmlDeviceGetPowerUsage", card=0)
        nvml = opened(fake, tmp_path)
        states = []
        for index in range(2):
            target = nvml.device(index)
            assert isinstance(target, Target)
            states.append(Card(nvml, target, index).read(0.0))
        assert states[0].power_w is None
        assert states[1].power_w is not None

    def test_permission_is_kept_with_what_to_do(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.fail(4, "nvmlDeviceGetComputeMode")
        assert "run as root" in read(fake, tmp_path).missing["compute_mode"]

    @pytest.mark.parametrize("value", [NOT_AVAILABLE_U32, NOT_AVAILABLE_U64, -1])
    def test_not_available_is_never_a_number(self, tmp_path: Path, value: int) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetTemperature"] = value
        state = read(fake, tmp_path)
        assert state.temp_c is None
        assert state.missing["temp_c"] == "the driver answers N/A"

    @pytest.mark.parametrize("text", ["", "N/A", b"[N/A]", "  "])
    def test_text_that_says_nothing_is_missing(self, tmp_path: Path, text: Any) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetSerial"] = text
        state = read(fake, tmp_path)
        assert state.serial is None
        assert "serial" in state.missing

    def test_text_is_literal_and_one_line(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetName"] = b"\xff[/x]\x1b[31m\n" + b"y" * 1000
        name = read(fake, tmp_path).name
        assert name is not None
        assert name.startswith("\ufffd[/x]\\x1b[31m")
        assert len(name) < 250

    def test_a_wrapper_that_cannot_decode_or_has_fewer_arguments_is_a_reason(self, tmp_path: Path) -> None:
        fake = FakeNvml()

        def undecodable() -> str:
            return b"\xff".decode()

        fake.cards[0]["nvmlDeviceGetName"] = undecodable
        fake.cards[0]["nvmlDeviceGetMemoryInfo"] = lambda: memory(100, 10, 5)()
        state = read(fake, tmp_path)
        assert "utf-8" in state.missing["name"]
        assert state.memory_used == 15 * MIB
        assert state.memory_reserved is None

    def test_the_unversioned_call_of_an_old_library_falls_back(self, tmp_path: Path) -> None:
        fake = FakeNvml()

        def too_old() -> Any:
            raise FakeLibraryMismatchError("Unversioned function called")

        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = too_old
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses_v2"] = [process(7, 5 * MIB)]
        listed = read(fake, tmp_path).processes
        assert listed is not None
        assert [entry.pid for entry in listed] == [7]

    @given(st.integers(0, 2**64 - 1))
    def test_number_drops_only_not_available(self, value: int) -> None:
        assert number(value) == (None if value in (NOT_AVAILABLE_U32, NOT_AVAILABLE_U64) else value)


class TestOpeningFaults:
    def test_mismatch_names_both_versions(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.init_error = 18
        fake.system["nvmlSystemGetNVMLVersion"] = "12.570.86.15"
        write(tmp_path, "sys/module/nvidia/version", "550.90.07\n")
        fault = fault_of(fake, tmp_path)
        assert fault.message == "NVML error 18: libraries 570.86.15, kernel 550.90.07"
        assert "updated without a reboot" in fault.hint
        assert fault.kind == "unavailable"

    def test_mismatch_with_the_library_of_the_disk(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.init_error = 18
        fake.without.add("nvmlSystemGetNVMLVersion")
        write(tmp_path, "usr/lib64/libnvidia-ml.so.570.86.15")
        write(tmp_path, "usr/lib64/libnvidia-ml.so.1")
        line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024"
        write(tmp_path, "proc/driver/nvidia/version", line + "\nGCC version:  gcc version 8.5.0\n")
        assert fault_of(fake, tmp_path).message == "NVML error 18: libraries 570.86.15, kernel 550.90.07"

    def test_mismatch_without_any_version(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.init_error = 18
        fake.system["nvmlSystemGetNVMLVersion"] = Refusal(999)
        assert fault_of(fake, tmp_path).message == "NVML error 18: libraries ?, kernel ?"

    def test_mismatch_because_this_console_is_older_than_the_driver(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.init_error = 18
        fake.system["nvmlSystemGetNVMLVersion"] = "12.550.90.07"
        write(tmp_path, "sys/module/nvidia/version", "570.86.15\n")
        write(tmp_path, "usr/lib64/libnvidia-ml.so.570.86.15")
        assert "start gpuconsole again" in fault_of(fake, tmp_path).hint

    @pytest.mark.parametrize(
        ("code", "words"), [(9, "the NVIDIA driver is not loaded"), (12, "libnvidia-ml.so.1 was not found")]
    )
    def test_no_driver_but_a_card(self, tmp_path: Path, code: int, words: str) -> None:
        pci(tmp_path, ("0x10de", "0x030200"))
        fake = FakeNvml()
        fake.init_error = code
        fault = fault_of(fake, tmp_path)
        assert fault.message == f"NVML error {code}: {words}; 1 NVIDIA device is on the PCI bus"
        assert fault.hint

    @pytest.mark.parametrize("code", [9, 12])
    def test_no_driver_and_no_card(self, tmp_path: Path, code: int) -> None:
        pci(tmp_path, ("0x8086", "0x030000"), ("0x10de", "0x040300"), ("0x10de", "0x068000"))
        fake = FakeNvml()
        fake.init_error = code
        fault = fault_of(fake, tmp_path)
        assert fault.message == NO_CARD == "no NVIDIA device on the PCI bus of this host"
        assert fault.kind == "unavailable"

    def test_no_driver_and_the_bus_cannot_be_listed(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.init_error = 9
        assert fault_of(fake, tmp_path).message == "NVML error 9: the NVIDIA driver is not loaded"

    @pytest.mark.parametrize(
        ("code", "kind"), [(4, "permission"), (10, "timeout"), (15, "unavailable"), (999, "protocol")]
    )
    def test_other_codes_have_their_kind(self, tmp_path: Path, code: int, kind: str) -> None:
        fake = FakeNvml()
        fake.init_error = code
        fault = fault_of(fake, tmp_path)
        assert (fault.kind, fault.message.split(":")[0]) == (kind, f"NVML error {code}")
        assert fault.hint

    def test_without_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        nvml = Nvml(None, str(tmp_path))
        with pytest.raises(SourceError, match="nvidia-ml-py cannot be loaded"):
            nvml.open()
        nvml.close()

    def test_the_package_is_loaded_only_when_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
        nvml = Nvml(None, str(tmp_path))
        nvml.open()
        assert nvml.count() == 1
        nvml.close()
        nvml.close()

    def test_a_session_that_ends_fails_the_read(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        card = card_of(fake, tmp_path)
        fake.fail(1)
        with pytest.raises(SourceError, match="NVML error 1: the driver was unloaded or reloaded"):
            card.read(0.0)

    def test_count_and_handles_that_are_refused(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=3)
        nvml = opened(fake, tmp_path)
        fake.fail(15, "nvmlDeviceGetHandleByIndex", card=0)
        fake.fail(4, "nvmlDeviceGetHandleByIndex", card=1)
        lost, denied = nvml.device(0), nvml.device(1)
        assert not isinstance(lost, Target)
        assert not isinstance(denied, Target)
        assert (lost.message, denied.kind) == ("NVML error 15: the GPU is lost", "permission")
        fake.fail(999, "nvmlDeviceGetCount")
        with pytest.raises(SourceError, match="how many GPUs"):
            nvml.count()

    def test_a_system_question_never_means_a_lost_card(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        nvml = opened(fake, tmp_path)
        fake.system["nvmlSystemGetDriverVersion"] = Refusal(15)
        assert isinstance(nvml.query(nvml.system, "nvmlSystemGetDriverVersion"), Absent)


class TestHostFiles:
    def test_display_devices_of_nvidia_are_counted(self, tmp_path: Path) -> None:
        pci(tmp_path, ("0x10de", "0x030000"), ("0x10de", "0x030200"), ("0x10de", "0x0c0330"), ("0x1002", "0x030000"))
        assert nvidia_host.pci_devices(str(tmp_path)) == 2
        assert nvidia_host.pci_devices(str(tmp_path / "nothing")) is None

    @pytest.mark.parametrize(
        ("line", "version"),
        [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31", "550.90.07"),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  515.57  Release Build", "515.57"),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release", "580.95.05"),
            ("GCC version:  gcc version 8.5.0\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  470.1", "470.1"),
            ("NVRM version: something else 1.2", None),
            ("", None),
        ],
    )
    def test_nvrm_lines(self, line: str, version: str | None) -> None:
        assert nvidia_host.nvrm_version(line) == version

    @given(st.text())
    def test_nvrm_survives_any_text(self, text: str) -> None:
        found = nvidia_host.nvrm_version(text)
        assert found is None or found in text

    @given(st.integers(1, 999), st.integers(0, 999), st.none() | st.integers(0, 99), st.booleans())
    def test_nvrm_round_trip(self, major: int, minor: int, patch: int | None, is_open: bool) -> None:
        version = f"{major}.{minor}" + ("" if patch is None else f".{patch:02d}")
        kind = "Open Kernel Module for x86_64" if is_open else "x86_64 Kernel Module"
        assert (
            nvidia_host.nvrm_version(f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  (root)") == version
        )

    def test_two_libraries_on_disk_tell_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, "usr/lib64/libnvidia-ml.so.570.86.15")
        assert nvidia_host.library_version(str(tmp_path)) == "570.86.15"
        write(tmp_path, "usr/lib64/libnvidia-ml.so.550.90.07")
        assert nvidia_host.library_version(str(tmp_path)) is None


def unexplained(state: GpuState) -> set[str]:
    """Fields that are None without a reason."""
    free = {"lost", "lost_wall", "slow_mono"}
    names = {name for name in GpuState.__struct_fields__ if getattr(state, name) is None}
    return names - free - set(state.missing)


class TestMappings:
    def test_a_t4(self, tmp_path: Path) -> None:
        state = read(FakeNvml("T4"), tmp_path)
        assert (state.name, state.architecture, state.pci_bus_id) == ("Tesla T4", "Turing", "00000000:3B:00.0")
        assert (state.util_pct, state.mem_ctrl_pct) == (64.0, 31.0)
        assert (state.memory_total, state.memory_used) == (15360 * MIB, 5837 * MIB)
        assert (state.memory_reserved, state.memory_free) == (410 * MIB, 9113 * MIB)
        assert (state.power_w, state.power_limit_w, state.power_default_w) == (44.12, 70.0, 70.0)
        assert (state.power_min_w, state.power_max_w) == (60.0, 70.0)
        assert (state.temp_c, state.temp_slowdown_c, state.temp_shutdown_c) == (66.0, 93.0, 96.0)
        assert (state.sm_mhz, state.sm_max_mhz, state.memory_mhz, state.memory_max_mhz) == (1590, 1590, 5000, 5001)
        assert (state.pstate, state.ecc_on, state.retired_pages, state.retired_pending) == (0, True, 0, False)
        assert (state.pcie_gen, state.pcie_gen_max, state.pcie_width, state.pcie_width_max) == (3, 3, 16, 16)
        assert (state.persistence, state.compute_mode, state.mig_on) == (True, "default", None)
        assert state.fan_pct is None
        assert (state.throttle_now, state.throttle_bits) == ((), 0)
        assert unexplained(state) == set()

    def test_an_h200(self, tmp_path: Path) -> None:
        state = read(FakeNvml("H200"), tmp_path, driver="590.48.01")
        assert (state.architecture, state.recovery_action, state.mig_on) == ("Hopper", "none", False)
        assert (state.remapped_correctable, state.remap_pending, state.remap_failed) == (0, False, False)
        assert (state.temp_memory_c, state.temp_memory_max_c) == (51.0, 95.0)
        assert {counter.reason for counter in state.throttle_counters} >= {"power_cap", "heat_software", "power_brake"}
        assert unexplained(state) == set()

    def test_nothing_optional_is_nothing_invented(self, tmp_path: Path) -> None:
        state = read(FakeNvml("bare"), tmp_path)
        known = {name for name in GpuState.__struct_fields__ if getattr(state, name) not in (None, ())}
        assert known == {
            *("index", "uuid", "name", "memory_total", "memory_used", "memory_free", "slow_mono", "missing"),
        }
        assert unexplained(state) == set()
        assert "throttle_counters" in state.missing
        assert "before driver 510" in state.missing["memory_reserved"]

    @pytest.mark.parametrize("gpu", ["T4", "A100", "A100-MIG", "H200", "bare"])
    def test_each_single_refusal_leaves_the_rest(self, tmp_path: Path, gpu: str) -> None:
        whole = read(FakeNvml(gpu), tmp_path)
        for function in FakeNvml(gpu).cards[0]:
            fake = FakeNvml(gpu)
            fake.fail(3, function)
            state = read(fake, tmp_path)
            assert unexplained(state) == set(), function
            lacking = [name for name in whole.missing if name not in state.missing and "." not in name]
            assert all(getattr(state, name) is not None for name in lacking), function

    def test_numbers_of_unknown_meaning_are_said_to_be(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100")
        fake.cards[0] |= {
            "nvmlDeviceGetComputeMode": 9,
            "nvmlDeviceGetArchitecture": 77,
            "nvmlDeviceGetPerformanceState": 32,
            "nvmlDeviceGetFieldValues": field_values({230: 42}),
        }
        state = read(fake, tmp_path)
        assert (state.compute_mode, state.architecture) == ("unknown (9)", "unknown (77)")
        assert (state.pstate, state.recovery_action) == (None, "unknown (42)")

    def test_parts_of_a_struct_that_are_not_available(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100")
        fake.cards[0] |= {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=NOT_AVAILABLE_U32, memory=12),
            "nvmlDeviceGetRemappedRows": (1, NOT_AVAILABLE_U32, 1, 0),
            "nvmlDeviceGetEccMode": [NOT_AVAILABLE_U32, 0],
            "nvmlDeviceGetPowerManagementLimitConstraints": [NOT_AVAILABLE_U32, 250000],
        }
        state = read(fake, tmp_path)
        assert (state.util_pct, state.mem_ctrl_pct) == (None, 12.0)
        assert (state.remapped_correctable, state.remapped_uncorrectable, state.remap_pending) == (1, None, True)
        assert (state.ecc_on, state.power_min_w, state.power_max_w) == (None, None, 250.0)
        assert unexplained(state) == set()

    def test_limit_falls_back_to_the_one_that_was_set(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.fail(3, "nvmlDeviceGetEnforcedPowerLimit")
        fake.cards[0]["nvmlDeviceGetPowerManagementLimit"] = 65000
        assert read(fake, tmp_path).power_limit_w == 65.0

    def test_retired_pages_of_both_causes_are_counted(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetRetiredPages"] = lambda cause: [1, 2] if cause == 0 else [3]
        assert read(fake, tmp_path).retired_pages == 3

    def test_pcie_counters_only_where_asked_for(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        assert "not asked for" in read(fake, tmp_path).missing["pcie_rx_bps"]
        assert fake.calls["nvmlDeviceGetPcieThroughput"] == 0
        state = read(fake, tmp_path, pcie_counters=True)
        assert (state.pcie_tx_bps, state.pcie_rx_bps) == (1_200_000.0, 3_400_000.0)

    def test_slow_fields_are_read_every_five_seconds(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        card = card_of(fake, tmp_path)
        first = card.read(100.0)
        fake.cards[0] |= {"nvmlDeviceGetPersistenceMode": 0, "nvmlDeviceGetTemperature": 80}
        soon = card.read(100.0 + SLOW_INTERVAL - 0.1)
        late = card.read(100.0 + SLOW_INTERVAL)
        assert (first.persistence, soon.persistence, late.persistence) == (True, True, False)
        assert soon.temp_c == 80
        assert (soon.slow_mono, late.slow_mono) == (100.0, 105.0)

    def test_a_fast_read_takes_few_calls(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = [process(7, MIB)]
        nvml = opened(fake, tmp_path)
        target = nvml.device(0)
        assert isinstance(target, Target)
        card = Card(nvml, target, 0)
        card.read(0.0)
        before = nvml.calls
        card.read(1.0)
        assert nvml.calls - before <= 13


class TestLost:
    @pytest.mark.parametrize(
        ("code", "words"), [(15, "the GPU is lost"), (16, "the GPU wants a reset"), (28, "the GPU is gone")]
    )
    def test_a_lost_card_keeps_what_was_known(self, tmp_path: Path, code: int, words: str) -> None:
        fake = FakeNvml()
        card = card_of(fake, tmp_path)
        card.read(0.0)
        fake.fail(code)
        state = card.read(1.0)
        assert state.lost is not None
        assert (state.lost.message, state.temp_c, state.lost_wall) == (f"NVML error {code}: {words}", 66.0, WALL)
        assert state.lost.hint
        fake.fail(0)
        assert card.read(2.0).lost is None

    def test_a_card_lost_from_the_start_has_only_its_index(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        card = card_of(fake, tmp_path)
        fake.fail(15)
        state = card.read(0.0)
        assert state.lost is not None
        assert (state.index, state.name, state.processes) == (0, None, None)

    def test_a_card_that_refuses_all_is_lost_too(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        card = card_of(fake, tmp_path)
        card.read(0.0)
        fake.fail(999)
        state = card.read(1.0)
        assert state.lost is not None
        assert state.lost.message == "NVML error 999: GPU 0 answers nothing (Unknown Error)"
        assert state.temp_c == 66.0

    def test_a_field_can_tell_that_the_card_is_lost(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetFieldValues"] = field_values({74: Refusal(15)})
        state = read(fake, tmp_path)
        assert state.lost is not None

    def test_lost_is_raised_for_the_card_only(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=2)
        nvml = opened(fake, tmp_path)
        fake.fail(15, card=1)
        good, bad = nvml.device(0), Target(SimpleNamespace(card=1, data=fake.cards[1]))
        assert isinstance(good, Target)
        assert nvml.query(good, "nvmlDeviceGetTemperature", 0) == 66
        with pytest.raises(LostError):
            nvml.query(bad, "nvmlDeviceGetTemperature", 0)


class TestThrottle:
    def test_names(self) -> None:
        assert reason_names(0) == ()
        assert reason_names(0x1) == ()
        assert reason_names(0x1 | 0x4 | 0x20) == ("power_cap", "heat_software")
        assert reason_names(0x2 | 0x8 | 0x10 | 0x40 | 0x80 | 0x100) == (
            *("applications_clocks", "hw_slowdown", "sync_boost", "heat_hardware", "power_brake", "display"),
        )
        assert reason_names(0x8000) == ("bit_0x8000",)

    @given(st.integers(0, 2**64 - 1))
    def test_each_bit_but_idle_has_one_name(self, bits: int) -> None:
        names = reason_names(bits)
        assert len(names) == len(set(names)) == (bits & ~1).bit_count()

    def test_the_older_name_of_the_call(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.without.add("nvmlDeviceGetCurrentClocksEventReasons")
        fake.cards[0]["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x44
        assert read(fake, tmp_path).throttle_now == ("power_cap", "heat_hardware")

    def test_counters_are_nanoseconds(self, tmp_path: Path) -> None:
        state = read(FakeNvml("T4"), tmp_path)
        found = {counter.reason: counter.seconds for counter in state.throttle_counters}
        assert found == {"power_cap": 250.0, "sync_boost": 0.0}
        assert "throttle_counters.heat_software" in state.missing

    @pytest.mark.parametrize(
        ("driver", "numbers"),
        [
            ("550.90.07", [HEAT_FIELDS]),
            ("570.172.08", [HEAT_FIELDS]),
            ("575.51.03", [OLD_HEAT_FIELDS]),
            ("580.65.06", [OLD_HEAT_FIELDS]),
            ("580.76.05", [HEAT_FIELDS, OLD_HEAT_FIELDS]),
            ("580.82.07", [HEAT_FIELDS]),
            ("590.48.01", [HEAT_FIELDS]),
            (None, [HEAT_FIELDS, OLD_HEAT_FIELDS]),
            ("unknown", [HEAT_FIELDS, OLD_HEAT_FIELDS]),
        ],
    )
    def test_field_numbers_follow_the_driver(self, driver: str | None, numbers: list[Any]) -> None:
        assert list(heat_fields(driver)) == numbers

    @given(st.text())
    def test_any_driver_text_has_field_numbers(self, text: str) -> None:
        assert heat_fields(text)
        assert driver_numbers(text) is None or text[0].isdigit()

    def test_power_smoothing_is_not_taken_for_heat(self, tmp_path: Path) -> None:
        fake = FakeNvml("H200")
        fake.cards[0]["nvmlDeviceGetFieldValues"] = field_values({251: 7_000_000_000, 252: 0, 253: 0, 269: 80, 270: 80})
        state = read(fake, tmp_path, driver="580.65.06")
        found = {counter.reason: counter.seconds for counter in state.throttle_counters}
        assert found == {"heat_software": 7.0, "heat_hardware": 0.0, "power_brake": 0.0}

    def test_where_both_numbers_answer_nothing_is_said(self, tmp_path: Path) -> None:
        fake = FakeNvml("H200")
        both = {251: 1, 252: 1, 253: 1, 269: 2, 270: 2}
        fake.cards[0]["nvmlDeviceGetFieldValues"] = field_values(both)
        state = read(fake, tmp_path, driver="580.76.05")
        found = {counter.reason for counter in state.throttle_counters}
        assert found == {"power_brake"}
        assert "cannot be told apart" in state.missing["throttle_counters.heat_software"]

    def test_heat_of_any_kind_stands_in(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetFieldValues"] = field_values({75: 3_000_000_000})
        found = {counter.reason: counter.seconds for counter in read(fake, tmp_path).throttle_counters}
        assert found == {"heat": 3.0}

    def test_violation_status_stands_in(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.fail(13, "nvmlDeviceGetFieldValues")
        times = {0: 5_000_000_000, 1: 2_000_000_000, 2: NOT_AVAILABLE_U64}
        fake.cards[0]["nvmlDeviceGetViolationStatus"] = lambda policy: (
            SimpleNamespace(referenceTime=0, violationTime=times[policy]) if policy in times else Refusal(3)
        )
        state = read(fake, tmp_path)
        assert {counter.reason: counter.seconds for counter in state.throttle_counters} == {
            "power_cap": 5.0,
            "heat": 2.0,
        }
        assert "nvmlDeviceGetFieldValues" in state.missing["recovery_action"]

    def test_a_number_that_spoils_the_call_is_left_out(self, tmp_path: Path) -> None:
        good = field_values({74: 1_000_000_000})
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetFieldValues"] = lambda ids: Refusal(2) if 271 in ids else good(ids)
        card = card_of(fake, tmp_path)
        assert [counter.reason for counter in card.read(0.0).throttle_counters] == ["power_cap"]
        before = fake.calls["nvmlDeviceGetFieldValues"]
        assert [counter.reason for counter in card.read(1.0).throttle_counters] == ["power_cap"]
        assert fake.calls["nvmlDeviceGetFieldValues"] == before + 1

    def test_values_of_strange_kind_and_passing_errors(self, tmp_path: Path) -> None:
        strange = SimpleNamespace(nvmlReturn=0, valueType=99, value=None)
        absent = SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=NOT_AVAILABLE_U32))
        passing = SimpleNamespace(nvmlReturn=999, valueType=1, value=None)
        by_id = {74: strange, 76: absent, 77: passing}
        other = field_values({})
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetFieldValues"] = lambda ids: [by_id.get(field) or other([field])[0] for field in ids]
        missing = read(fake, tmp_path).missing
        assert missing["throttle_counters.power_cap"] == "a value of unknown kind 99"
        assert missing["throttle_counters.sync_boost"] == "the driver answers N/A"
        assert missing["throttle_counters.board_limit"] == "NVML error 999"


class TestMig:
    def test_parent_and_instances(self, tmp_path: Path) -> None:
        state = read(FakeNvml("A100-MIG"), tmp_path)
        assert state.mig_on is True
        assert [(part.index, part.profile, part.memory_total) for part in state.mig] == [
            (0, "3g.20gb", 19968 * MIB),
            (1, "2g.10gb", 9984 * MIB),
            (2, "1g.5gb", 4864 * MIB),
        ]
        assert state.mig[0].uuid == "MIG-0-0"
        for field in ("util_pct", "mem_ctrl_pct", "remap_pending"):
            assert state.missing[field] == MIG_PARENT
        assert state.missing["fan_pct"] != MIG_PARENT
        assert unexplained(state) == set()

    def test_processes_of_instances_fill_what_the_parent_may_not_tell(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100-MIG")
        part = fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"](0)
        part.data["nvmlDeviceGetComputeRunningProcesses"] = [process(7, 3 * MIB, instance=1)]
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = [process(7, NOT_AVAILABLE_U64, 1), process(8, None, 2)]
        state = read(fake, tmp_path)
        assert state.processes is not None
        assert [(entry.pid, entry.memory) for entry in state.processes] == [(7, 3 * MIB), (8, None)]
        assert [entry.pid for entry in state.mig[0].processes] == [7]
        assert state.missing["processes.memory"] == "the driver does not tell it for 1 of 2"
        assert state.missing["processes.sm_pct"] == MIG_PARENT
        fake.fail(4, "nvmlDeviceGetComputeRunningProcesses", card=0)
        assert read(fake, tmp_path).processes is None

    def test_only_instances_list(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100-MIG")
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = Refusal(4)
        fake.cards[0]["nvmlDeviceGetGraphicsRunningProcesses"] = Refusal(4)
        part = fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"](1)
        part.data["nvmlDeviceGetComputeRunningProcesses"] = [process(9, MIB, instance=2)]
        listed = read(fake, tmp_path).processes
        assert listed is not None
        assert [entry.pid for entry in listed] == [9]

    def test_a_process_on_two_instances_uses_the_sum(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100-MIG")
        both = [process(7, 3 * MIB, instance=1), process(7, 2 * MIB, instance=2)]
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = both
        listed = read(fake, tmp_path).processes
        assert listed is not None
        assert listed[0].memory == 5 * MIB

    def test_profile_from_the_size_where_the_name_has_none(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100-MIG")
        part = fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"](0)
        part.data["nvmlDeviceGetName"] = "NVIDIA A100"
        assert read(fake, tmp_path).mig[0].profile is None
        part.data["nvmlDeviceGetAttributes"] = SimpleNamespace(gpuInstanceSliceCount=1, memorySizeMB=9856)
        assert read(fake, tmp_path).mig[0].profile == "1g.10gb"

    def test_an_instance_that_went_away_is_not_a_lost_card(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100-MIG")
        card = card_of(fake, tmp_path)
        card.read(0.0)
        part = fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"](0)
        part.data["nvmlDeviceGetMemoryInfo"] = Refusal(15)
        state = card.read(1.0)
        assert state.lost is None
        assert state.mig[0].memory_used is None
        part.data["nvmlDeviceGetMemoryInfo"] = Refusal(2)
        assert card.read(2.0).mig[0].memory_total is None

    def test_a_new_instance_is_found_and_mig_off_asks_anew(self, tmp_path: Path) -> None:
        fake = FakeNvml("A100-MIG")
        slots = fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"]
        fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"] = Refusal(2)
        card = card_of(fake, tmp_path)
        assert card.read(0.0).mig == ()
        fake.cards[0]["nvmlDeviceGetMigDeviceHandleByIndex"] = slots
        assert len(card.read(5.0).mig) == 3
        fake.cards[0] |= {
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=5, memory=1),
        }
        state = card.read(10.0)
        assert (state.mig_on, state.mig, state.util_pct) == (False, (), 5.0)


class TestProcesses:
    def test_compute_and_graphics_are_merged(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0] |= {
            "nvmlDeviceGetComputeRunningProcesses": [process(9, 5 * MIB), process(7, 3 * MIB)],
            "nvmlDeviceGetGraphicsRunningProcesses": [process(7, 3 * MIB), process(5, MIB)],
        }
        listed = read(fake, tmp_path).processes
        assert listed is not None
        assert [(entry.pid, entry.kind, entry.memory) for entry in listed] == [
            (5, "G", MIB),
            (7, "C+G", 3 * MIB),
            (9, "C", 5 * MIB),
        ]

    def test_unknown_memory_is_none_with_a_reason(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = [process(7), process(8, NOT_AVAILABLE_U64)]
        state = read(fake, tmp_path)
        assert state.processes is not None
        assert [entry.memory for entry in state.processes] == [None, None]
        assert state.missing["processes.memory"] == "the driver does not tell it for 2 of 2"

    def test_no_processes_is_not_unknown(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        assert read(fake, tmp_path).processes == ()
        fake.fail(3, "nvmlDeviceGetGraphicsRunningProcesses")
        assert read(fake, tmp_path).processes == ()
        fake.fail(4, "nvmlDeviceGetComputeRunningProcesses")
        state = read(fake, tmp_path)
        assert state.processes is None
        assert "not permitted" in state.missing["processes"]

    def test_what_proc_does_not_hold_is_said_by_pid(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = [process(4242, MIB)]
        state = read(fake, tmp_path)
        assert state.processes is not None
        assert (state.processes[0].command, state.processes[0].in_container) == (None, None)
        assert "another PID namespace" in state.missing["processes.4242"]

    def test_shares(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        now_us = int(WALL * 1e6)
        asked: list[int] = []
        answers: list[Any] = []

        def utilisation(since: int) -> Any:
            asked.append(since)
            return answers.pop(0)

        fake.cards[0] |= {
            "nvmlDeviceGetComputeRunningProcesses": [process(7, MIB), process(8, MIB)],
            "nvmlDeviceGetProcessUtilization": utilisation,
        }
        moments = [WALL, WALL, WALL, WALL, WALL + 4.0, WALL + 8.0]
        card = card_of(fake, tmp_path, wall=lambda: moments.pop(0))

        def shares(*answer: Any) -> list[float | None]:
            answers.append(list(answer) if not isinstance(answer[0], Refusal) else answer[0])
            return [entry.sm_pct for entry in card.read(0.0).processes or ()]

        assert shares(sample(7, 62, now_us - 500_000)) == [62.0, 0.0]
        # No newer sample yet: the last one stands, it does not flicker to 0.
        assert shares(Refusal(6)) == [62.0, 0.0]
        assert shares(Refusal(0)) == [62.0, 0.0]
        assert shares(sample(8, 250, now_us - 100_000)) == [62.0, None]
        assert shares(sample(8, 30, now_us + 4_000_000)) == [0.0, 30.0]
        assert shares(Refusal(6)) == [0.0, 0.0]
        assert asked[0] == now_us - 2_000_000
        assert asked[1:4] == [now_us - 500_000] * 3

    def test_shares_that_are_not_given(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.cards[0] |= {
            "nvmlDeviceGetComputeRunningProcesses": [process(7, MIB)],
            "nvmlDeviceGetProcessUtilization": Refusal(3),
        }
        card = card_of(fake, tmp_path)
        for mono in (0.0, 1.0):
            state = card.read(mono)
            assert state.processes is not None
            assert state.processes[0].sm_pct is None
            assert "not supported" in state.missing["processes.sm_pct"]
        assert fake.calls["nvmlDeviceGetProcessUtilization"] == 1


def test_the_numbers_are_those_of_the_wrapper() -> None:
    """Against nvidia-ml-py itself, which needs no library for its constants."""
    pynvml = pytest.importorskip("pynvml")
    assert pynvml.nvmlMemory_v2 == nvml_card.MEMORY_V2
    assert nvml_card.FIELD_RECOVERY_ACTION == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    assert nvml_card.FIELD_MEMORY_TEMPERATURE == pynvml.NVML_FI_DEV_MEMORY_TEMP
    assert pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX == nvml_card.THRESHOLD_MEMORY_MAX
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (nvml_card.CLOCK_SM, nvml_card.CLOCK_MEMORY)
    plain = [*nvml_card.FAST, *nvml_card.SLOW, *nvml_card.PCIE_COUNTERS]
    assert [entry.function for entry in plain if not hasattr(pynvml, entry.function)] == []
    assert {entry.field for entry in plain} <= set(GpuState.__struct_fields__)


def test_pynvml_is_not_imported_with_the_client() -> None:
    command = "import sys, console.sources.gpu; print('pynvml' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
