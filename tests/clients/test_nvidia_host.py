"""The driver's traces on disk, at each place where they may lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import nvidia_host
from tests.clients.test_cgroup import put

FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_library_in_each_folder(tmp_path: Path, folder: str) -> None:
    put(tmp_path, **{f"{folder}/libnvidia-ml.so.550.90.07": "", f"{folder}/libnvidia-ml.so.1": ""})
    assert nvidia_host.library_version(str(tmp_path)) == "550.90.07"


def test_one_library_linked_into_two_folders_is_one(tmp_path: Path) -> None:
    put(tmp_path, **{f"{folder}/libnvidia-ml.so.470.1": "" for folder in FOLDERS[:2]})
    assert nvidia_host.library_version(str(tmp_path)) == "470.1"
    assert nvidia_host.library_version(str(tmp_path / "nowhere")) is None


def test_the_loaded_module(tmp_path: Path) -> None:
    assert nvidia_host.kernel_version(str(tmp_path)) is None
    put(tmp_path, **{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.1  x"})
    assert nvidia_host.kernel_version(str(tmp_path)) == "470.1"
    put(tmp_path, **{"sys/module/nvidia/version": "\n"})
    assert nvidia_host.kernel_version(str(tmp_path)) == "470.1"
    put(tmp_path, **{"sys/module/nvidia/version": "550.90.07\n"})
    assert nvidia_host.kernel_version(str(tmp_path)) == "550.90.07"
    (tmp_path / "sys/module/nvidia/version").write_bytes(b"\xff")
    assert nvidia_host.kernel_version(str(tmp_path)) == "\ufffd"


@pytest.mark.parametrize(
    ("vendor", "kind", "counted"),
    [
        ("0x10de", "0x030000", 1),
        ("0x10de", "0x030200", 1),
        ("0x10de", "0x030100", 0),
        ("0x10de", "0x040300", 0),
        ("0x1002", "0x030000", 0),
        ("", "0x030000", 0),
    ],
)
def test_which_devices_are_cards(tmp_path: Path, vendor: str, kind: str, counted: int) -> None:
    device = "sys/bus/pci/devices/0000:3b:00.0"
    put(tmp_path, **{f"{device}/vendor": f"{vendor}\n", f"{device}/class": f"{kind}\n"})
    assert nvidia_host.pci_devices(str(tmp_path)) == counted


def test_a_device_without_its_files_is_no_card(tmp_path: Path) -> None:
    put(tmp_path, **{"sys/bus/pci/devices/x/vendor": "0x10de\n", "sys/bus/pci/devices/y/class": "0x030000\n"})
    assert nvidia_host.pci_devices(str(tmp_path)) == 0


def test_this_machine_is_asked_by_default() -> None:
    assert nvidia_host.pci_devices() == nvidia_host.pci_devices("/")
    assert nvidia_host.kernel_version() == nvidia_host.kernel_version("/")
    assert nvidia_host.library_version() == nvidia_host.library_version("/")


@given(st.binary(max_size=60), st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_survived(tmp_path: Path, vendor: bytes, kind: bytes) -> None:
    device = tmp_path / "sys/bus/pci/devices/a"
    device.mkdir(parents=True, exist_ok=True)
    (device / "vendor").write_bytes(vendor)
    (device / "class").write_bytes(kind)
    assert nvidia_host.pci_devices(str(tmp_path)) in (0, 1)
