"""G14 G15 G18 G22."""

from __future__ import annotations

import pytest

from console.checks import gpu_bus
from console.core.facts import CommandFact, Facts, FileFact
from tests.checks.cards import BDF, bare, box, card, says, second
from tests.checks.test_gpu_memory_faults import smi
from tests.checks.told import DENIED

SYS = f"/sys/bus/pci/devices/{BDF[0]}"


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "x16, gen 1 of 3"),
        (box(files={f"{SYS}/current_link_width": "8\n"}), "warn", "x8 of x16, gen 1 of 3"),
        (box(files={f"{SYS}/current_link_width": DENIED}), "ok", "x16"),
        (box(card(pcie_width=4), files={f"{SYS}/current_link_width": "Unknown\n"}), "warn", "x4 of x16"),
        (box(card(util_pct=95.0)), "warn", "gen 1 of 3 under load"),
        (box(card(util_pct=95.0, pcie_gen=3)), "ok", "x16, gen 3 of 3"),
        (
            box(card(pcie_width=None, pcie_width_max=None), files={f"{SYS}/current_link_width": "0\n"}),
            "unknown",
            "pcie width",
        ),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_link(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_bus, "G14", facts)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "none"),
        (box(card(pcie_replays=12)), "note", "12 replays so far"),
        (box(files={f"{SYS}/aer_dev_correctable": "BadTLP 3\nTOTAL_ERR_COR 3\n"}), "note", "3 corrected errors"),
        (box(files={f"{SYS}/aer_dev_fatal": "TOTAL_ERR_FATAL 2\n"}), "warn", "2 fatal errors"),
        (box(files={f"{SYS}/aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 4\n"}), "warn", "4 uncorrected errors"),
        (box(files={f"{SYS}/aer_dev_fatal": "\x00 garbage TOTAL_ERR_FATAL x"}), "ok", "none"),
        (box(card(pcie_replays=None)), "unknown", "pcie replays"),
        (box(card(pcie_replays=None, missing={"pcie_replays": "the driver answers N/A"})), "none", "N/A"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_errors(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_bus, "G15", facts)
    assert found.sign == sign
    assert text in found.text


INSTANCE = {"index": 0, "uuid": "MIG-1", "profile": "1g.10gb", "memory_total": 1, "memory_used": 0}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "none", "not supported"),
        (box(card(mig_on=False)), "ok", "off"),
        (box(card(mig_on=True, mig=[INSTANCE, {**INSTANCE, "index": 1}])), "note", "2 instances: 1g.10gb"),
        (box(card(mig_on=True)), "warn", "no instance is made"),
        (
            box(card(mig_on=False), commands=smi("Enabled", "Disabled/Enabled")),
            "warn",
            "Disabled, and Enabled after the next",
        ),
        (box(card(mig_on=None, missing={"mig_on": "NVML error 4: x"})), "unknown", "NVML error 4"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_mig(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_bus, "G18", facts)
    assert found.sign == sign
    assert text in found.text


def linked(out: str | CommandFact, cards: int = 2) -> Facts:
    return box(*[card(), second()][:cards], commands={"nvidia-smi nvlink --status": out})


HEAD = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n"


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (linked("", 1), "none", "one card alone"),
        (linked(""), "none", "no NVLink"),
        (linked(f"{HEAD}\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"), "ok", "1 of 2 links active"),
        (linked(f"{HEAD}\t Link 0: <inactive>\n"), "note", "no link is active"),
        (linked(CommandFact(255, "", "failed")), "unknown", "ended with 255"),
        (linked(CommandFact(why="timed out")), "unknown", "timed out"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_nvlink(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_bus, "G22", facts)
    assert found.sign == sign
    assert text in found.text


def test_absent_link_files_leave_it_to_nvml() -> None:
    files: dict[str, str | FileFact] = {f"{SYS}/{name}_link_width": FileFact("absent") for name in ("current", "max")}
    assert says(gpu_bus, "G14", box(card(pcie_width=8), files=files)).text.startswith("x8 of x16")
