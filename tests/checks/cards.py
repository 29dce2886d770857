"""Boxes with NVIDIA cards as facts, for the tests of the groups `gpu` and `models`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.checks.check import Check, checks_of
from console.core.facts import AnswerFact, CommandFact, Facts, FileFact
from console.core.finding import Finding
from tests.checks import needed
from tests.checks.told import folder, told

GIB = 1024**3
BDF = ("0000:3b:00.0", "0000:af:00.0", "0000:d8:00.0")

T4: Mapping[str, Any] = {
    "index": 0,
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "name": "Tesla T4",
    "pci_bus_id": "00000000:3B:00.0",
    "architecture": "Turing",
    "util_pct": 0.0,
    "memory_total": 15 * GIB,
    "memory_used": 5 * GIB,
    "power_w": 27.0,
    "power_limit_w": 70.0,
    "power_default_w": 70.0,
    "power_min_w": 60.0,
    "power_max_w": 70.0,
    "temp_c": 41.0,
    "temp_slowdown_c": 93.0,
    "temp_shutdown_c": 96.0,
    "sm_mhz": 300,
    "sm_max_mhz": 1590,
    "throttle_now": [],
    "throttle_bits": 1,
    "ecc_on": True,
    "ecc_corrected_now": 0,
    "ecc_uncorrected_now": 0,
    "ecc_corrected_ever": 0,
    "ecc_uncorrected_ever": 0,
    "retired_pages": 0,
    "retired_pending": False,
    "pcie_gen": 1,
    "pcie_gen_max": 3,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "persistence": True,
    "compute_mode": "default",
    "recovery_action": "none",
    "mig_on": None,
    "processes": [],
    "missing": {
        "mig_on": "not supported by this card or driver",
        "remap_failed": "not supported by this card or driver",
        "remap_pending": "not supported by this card or driver",
    },
}
"""A healthy idle T4 as `@nvml` tells it."""


def card(**changes: Any) -> dict[str, Any]:
    """A T4 with other figures; one set to None is missing for a passing reason unless `missing` says more."""
    missing = {**T4["missing"], **changes.pop("missing", {})}
    return {**T4, **changes, "missing": missing}


def second(**changes: Any) -> dict[str, Any]:
    """Another T4 in the next slot."""
    return card(**{"index": 1, "pci_bus_id": "00000000:AF:00.0", **changes})


def nvml(*cards: Mapping[str, Any], driver: str = "550.90.07") -> dict[str, Any]:
    """The answer with these cards."""
    return {"error": None, "box": {"driver": driver, "gpus": list(cards), "pci_devices": len(cards)}}


def box(
    *cards: Mapping[str, Any],
    files: Mapping[str, str | FileFact] | None = None,
    commands: Mapping[str, str | CommandFact] | None = None,
    answers: Mapping[str, Any] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
    wall: float = 0.0,
) -> Facts:
    """A box with these cards (a healthy T4 where none is given) on its bus and in NVML."""
    given = cards or (card(),)
    bus = BDF[: len(given)]
    known: dict[str, str | FileFact] = {
        "/sys/bus/pci/devices": folder(*bus),
        "/usr/lib/systemd/system/nvidia-persistenced.service": FileFact("absent"),
    }
    for one in bus:
        known |= {
            f"/sys/bus/pci/devices/{one}": folder("vendor"),
            f"/sys/bus/pci/devices/{one}/vendor": "0x10de\n",
            f"/sys/bus/pci/devices/{one}/driver": FileFact("dir", target="../../../bus/pci/drivers/nvidia"),
            f"/sys/bus/pci/devices/{one}/current_link_width": "16\n",
            f"/sys/bus/pci/devices/{one}/max_link_width": "16\n",
            **{f"/sys/bus/pci/devices/{one}/aer_dev_{kind}": FileFact("absent") for kind in _AER},
        }
    found = told(
        {**known, **(files or {})},
        {"nvidia-smi -q": CommandFact(why="not installed"), **(commands or {})},
        {"@nvml": nvml(*given), "@units": {}, "@kernel.log": {"source": "kmsg", "lines": []}, **(answers or {})},
        variables={"gpu": bus, **(variables or {})},
    )
    return Facts(**{**{name: getattr(found, name) for name in found.__struct_fields__}, "wall": wall})


_AER = ("fatal", "nonfatal", "correctable")


def bare(answers: Mapping[str, Any] | None = None) -> Facts:
    """A laptop without any NVIDIA card."""
    none = {"error": {"code": 12, "text": "NVML Shared Library Not Found"}, "box": None}
    given = {"@nvml": none, "@units": {}, "@kernel.log": {"source": "kmsg", "lines": []}, **(answers or {})}
    known = {"/sys/bus/pci/devices": folder()}
    return told(known, {"nvidia-smi -q": CommandFact(why="not installed")}, given, variables={"gpu": ()})


def refused(why: str = "timed out") -> AnswerFact:
    """An answer that could not be had."""
    return AnswerFact(why=why)


def find(module: Any, id_: str) -> Check:
    """A check of a module."""
    return next(one for one in checks_of([module]) if one.id == id_)


def says(module: Any, id_: str, facts: Facts) -> Finding:
    """What it says, as the runner tells it."""
    return needed.row(find(module, id_), facts)
