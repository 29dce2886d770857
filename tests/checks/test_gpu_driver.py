"""G01 G02 G03 G16 G17 G19 G20 G21."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import gpu_driver
from console.core.facts import Facts, FileFact
from tests.checks.cards import BDF, bare, box, card, refused, says, second
from tests.checks.told import DENIED, folder

LOST = card(lost={"kind": "unavailable", "message": "NVML error 15: the GPU is lost"}, lost_wall=1.0)


def failing(code: int, text: str) -> dict[str, Any]:
    return {"@nvml": {"error": {"code": code, "text": text}, "box": None}}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "NVML of driver 550.90.07 answers, 1 card"),
        (
            box(answers=failing(18, "Driver/library version mismatch")),
            "fail",
            "error 18: Driver/library version mismatch, see A06",
        ),
        (box(answers=failing(9, "Driver Not Loaded")), "fail", "error 9: Driver Not Loaded, see A05"),
        (box(answers=failing(999, "")), "fail", "error 999: no text"),
        (box(answers={"@nvml": {"error": {"code": None, "text": "hangs"}, "box": None}}), "fail", "NVML: hangs"),
        (bare(), "none", "no NVIDIA device"),
        (bare({"@nvml": refused()}), "none", "no NVIDIA device"),
        (box(answers={"@nvml": refused("timed out")}), "unknown", "timed out"),
        (box(answers={"@nvml": "garbage"}), "unknown", "NVML was not asked"),
        (box(answers={"@nvml": {"error": None, "box": {"gpus": 3}}}), "unknown", "not understood"),
        (box(answers={"@nvml": {"error": None, "box": None}}), "unknown", "no answer"),
    ],
)
def test_nvml_init(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_driver, "G01", facts)
    assert found.sign == sign
    assert text in found.text


def test_a_mismatch_wants_a_reboot_and_an_unloaded_driver_is_loaded() -> None:
    mismatch = says(gpu_driver, "G01", box(answers=failing(18, "mismatch")))
    assert mismatch.data["error"] == "18"
    assert mismatch.fix is not None
    assert (mismatch.fix.kind, mismatch.fix.reboot, mismatch.fix.deeds) == ("R", True, ())
    unloaded = says(gpu_driver, "G01", box(answers=failing(9, "not loaded")))
    assert unloaded.fix is not None
    assert unloaded.fix.deeds[0].argv == ("modprobe", "nvidia")


def vfio(facts: Facts, address: str) -> Facts:
    facts.files[f"/sys/bus/pci/devices/{address}/driver"] = FileFact("dir", target="../drivers/vfio-pci")  # type: ignore[index]
    return facts


TWO_ONE_LISTED = {"@nvml": {"error": None, "box": {"gpus": [card()]}}}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "1 card of 1 on the bus"),
        (box(card(), second()), "ok", "2 cards of 2"),
        (box(card(), second(), answers=TWO_ONE_LISTED), "fail", f"NVML lists 1 of 2 cards: not {BDF[1]}"),
        (vfio(box(card(), second(), answers=TWO_ONE_LISTED), BDF[1]), "warn", f"{BDF[1]} belongs to vfio-pci"),
        (box(LOST), "fail", "NVML lists 0 of 1 cards"),
        (box(card(pci_bus_id=None)), "ok", "1 card"),
        (bare(), "none", "no NVIDIA device"),
        (box(answers={"@nvml": {"error": None, "box": {"gpus": []}}}), "unknown", "NVML lists no card"),
        (box(answers=failing(9, "not loaded")), "unknown", "error 9"),
    ],
)
def test_count(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_driver, "G02", facts)
    assert found.sign == sign
    assert text in found.text


DAEMON = "nvidia-persistenced.service"
ACTIVE = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}
IDLE = {"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "disabled"}
FILE = {f"/usr/lib/systemd/system/{DAEMON}": "[Unit]\n"}
NO_FILE = {f"/usr/lib/systemd/system/{DAEMON}": FileFact("absent")}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(answers={"@units": {DAEMON: ACTIVE}}), "ok", "on"),
        (box(answers={"@units": refused()}), "ok", "on"),
        (box(answers={"@units": {DAEMON: IDLE}}), "note", "set by hand"),
        (box(card(persistence=False), files=NO_FILE), "warn", "off"),
        (
            box(card(), second(persistence=False), files=NO_FILE),
            "warn",
            "GPU 1: off: the driver's state goes with the last process; the others not",
        ),
        (box(card(persistence=None)), "unknown", "the driver does not tell"),
        (
            box(card(persistence=None, missing={"persistence": "not supported by this card or driver"})),
            "none",
            "not supported",
        ),
        (box(LOST), "unknown", "no longer answers"),
        (bare(), "none", "no NVIDIA device"),
        (box(answers={"@nvml": refused("asleep")}), "unknown", "asleep"),
    ],
)
def test_persistence(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_driver, "G03", facts)
    assert found.sign == sign
    assert text in found.text


def test_persistence_is_mended_by_the_daemon_where_it_is_installed() -> None:
    found = says(gpu_driver, "G03", box(card(persistence=False), answers={"@units": {DAEMON: IDLE}}, files=FILE))
    assert found.fix is not None
    assert found.fix.commands == (f"sudo systemctl enable --now {DAEMON}",)
    assert found.fix.deeds[0].argv == ("systemctl", "enable", "--now", DAEMON)
    bare_ = says(gpu_driver, "G03", box(card(persistence=False), files=NO_FILE))
    assert bare_.fix is not None
    assert (bare_.fix.action, dict(bare_.fix.values)) == ("gpu.persistence", {"mode": "on"})
    unread = says(gpu_driver, "G03", box(card(persistence=False), files={f"/usr/lib/systemd/system/{DAEMON}": DENIED}))
    assert unread.sign == "warn"


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "default"),
        (box(card(compute_mode="prohibited")), "fail", "no process can use the card"),
        (box(card(compute_mode="exclusive_process")), "note", "one process alone"),
        (box(card(), second(compute_mode="prohibited")), "fail", "GPU 1: prohibited"),
        (box(card(compute_mode=None)), "unknown", "compute mode"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_compute_mode(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_driver, "G16", facts)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("processes", "sign", "text"),
    [
        ([], "ok", "no MPS daemon"),
        (
            [{"pid": 7, "name": "tritonserver", "argv": ["tritonserver"]}, 3, {"argv": "x"}, {"argv": []}],
            "ok",
            "no MPS",
        ),
        (
            [{"pid": 9, "name": "nvidia-cuda-mps", "argv": ["/usr/bin/nvidia-cuda-mps-control", "-d"]}],
            "note",
            "process 9",
        ),
        ("garbage", "unknown", "not listed"),
        (refused(), "unknown", "timed out"),
    ],
)
def test_mps(processes: Any, sign: str, text: str) -> None:
    found = says(gpu_driver, "G17", box(answers={"@processes": processes}))
    assert found.sign == sign
    assert text in found.text
    assert says(gpu_driver, "G17", bare({"@processes": processes})).sign == "none"


DRAWS = {"pid": 1200, "kind": "G", "memory": 47 * 1024**2, "command": "/usr/libexec/Xorg :0"}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "none"),
        (box(card(processes=[DRAWS, {"pid": 2, "kind": "C", "memory": None}])), "note", "Xorg (1200, 47 MiB) draws"),
        (box(card(processes=[DRAWS, {"pid": 2, "kind": "C+G", "memory": None}])), "note", "and 1 more"),
        (box(card(processes=None, missing={"processes": "not permitted: x"})), "unknown", "not permitted"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_display(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_driver, "G19", facts)
    assert found.sign == sign
    assert text in found.text


INFO = f"/proc/driver/nvidia/gpus/{BDF[0]}/information"


@pytest.mark.parametrize(
    ("text", "sign", "said"),
    [
        ("Model: \t\t Tesla T4\nGPU Firmware: \t 550.90.07\n", "note", "GSP firmware 550.90.07"),
        ("GPU Firmware: \t N/A\n", "ok", "without it"),
        ("Model: x\n", "none", "does not tell"),
        (FileFact("absent"), "none", "does not tell"),
        (DENIED, "unknown", "permission denied"),
    ],
)
def test_gsp(text: str | FileFact, sign: str, said: str) -> None:
    found = says(gpu_driver, "G20", box(files={INFO: text}))
    assert found.sign == sign
    assert said in found.text


def test_no_gsp_without_a_card() -> None:
    assert says(gpu_driver, "G20", bare()).sign == "none"


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "driver 550.90.07, Turing"),
        (box(card(architecture="Volta")), "note", "R580 is the last branch for Volta; this is R550"),
        (box(card(architecture=None)), "unknown", "architecture"),
        (
            box(answers={"@nvml": {"error": None, "box": {"driver": None, "gpus": [card()]}}}),
            "unknown",
            "version is not told",
        ),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_branch(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_driver, "G21", facts)
    assert found.sign == sign
    assert text in found.text


def test_the_bus_unseen_is_unknown() -> None:
    facts = box(answers={"@nvml": refused("no driver")})
    facts.variables.pop("gpu")  # type: ignore[attr-defined]
    facts.files["/sys/bus/pci/devices"] = folder()  # type: ignore[index]
    assert says(gpu_driver, "G01", facts).sign == "unknown"
