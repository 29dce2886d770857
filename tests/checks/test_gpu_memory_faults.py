"""G08 G09 G10 G11."""

from __future__ import annotations

import pytest

from console.checks import gpu_memory_faults
from console.core.facts import Facts
from tests.checks.cards import bare, box, card, says, second

NOT_HERE = "not supported by this card or driver"


def smi(ecc: str, mig: str = "N/A") -> dict[str, str]:
    """As `nvidia-smi -q` prints it."""
    return {
        "nvidia-smi -q": f"""
==============NVSMI LOG==============
Driver Version                            : 550.90.07
Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : Tesla T4
    MIG Mode
        Current                           : {mig.partition("/")[0]}
        Pending                           : {mig.partition("/")[2] or mig}
    ECC Mode
        Current                           : {ecc.partition("/")[0]}
        Pending                           : {ecc.partition("/")[2] or ecc}
    ECC Errors
        Volatile
            SRAM Correctable              : 0
"""
    }


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "on"),
        (box(commands=smi("Enabled")), "ok", "on"),
        (box(commands=smi("Enabled/Disabled")), "warn", "Enabled, and Disabled after the next reset"),
        (box(commands={"nvidia-smi -q": "\x00\xff garbage : : :\n"}), "ok", "on"),
        (box(card(ecc_on=False)), "warn", "off: a flipped bit"),
        (box(card(ecc_on=False, name="NVIDIA A10")), "warn", "off: a flipped bit"),
        (box(card(ecc_on=False, name="NVIDIA RTX A6000")), "note", "as this kind of card comes"),
        (box(card(ecc_on=False, name="NVIDIA GeForce RTX 4090")), "note", "as this kind of card comes"),
        (box(card(ecc_on=None, missing={"ecc_on": NOT_HERE})), "none", "not supported"),
        (box(card(ecc_on=None)), "unknown", "ecc on"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_ecc_mode(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_memory_faults, "G08", facts)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "none in the card's life"),
        (box(card(ecc_uncorrected_now=2)), "fail", "2 uncorrected since the driver was loaded"),
        (box(card(ecc_uncorrected_ever=5)), "note", "5 in the card's life"),
        (box(card(ecc_uncorrected_ever=None)), "ok", "since the driver was loaded"),
        (box(card(), second(ecc_uncorrected_now=1)), "fail", "GPU 1: 1 uncorrected"),
        (box(card(ecc_uncorrected_now=None)), "unknown", "ecc uncorrected now"),
        (box(card(ecc_uncorrected_now=None, missing={"ecc_uncorrected_now": NOT_HERE})), "none", "not supported"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_ecc_errors(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_memory_faults, "G09", facts)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "ok", "none wait, 0 retired so far"),
        (box(card(retired_pages=3)), "note", "none wait, 3 retired so far"),
        (
            box(card(retired_pending=True, retired_pages=3)),
            "warn",
            "a page waits for a reset of the card, 3 retired so far",
        ),
        (box(card(retired_pending=None)), "unknown", "retired pending"),
        (box(card(retired_pending=None, missing={"retired_pending": NOT_HERE})), "none", "not supported"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_retired(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_memory_faults, "G10", facts)
    assert found.sign == sign
    assert text in found.text


REMAP = {"remap_failed": False, "remap_pending": False, "remapped_correctable": 0, "remapped_uncorrectable": 0}


@pytest.mark.parametrize(
    ("facts", "sign", "text"),
    [
        (box(), "none", "not supported"),
        (box(card(**REMAP)), "ok", "none"),
        (box(card(**{**REMAP, "remapped_correctable": 2})), "note", "2 remapped so far"),
        (
            box(card(**{**REMAP, "remap_pending": True, "remapped_uncorrectable": 1})),
            "warn",
            "waits for a reset; work goes on",
        ),
        (box(card(**{**REMAP, "remap_failed": True})), "fail", "has to go back"),
        (box(card(missing={"remap_failed": "not given for a MIG parent"})), "none", "MIG parent"),
        (box(card(missing={"remap_failed": "NVML error 999: unknown"})), "unknown", "NVML error 999"),
        (bare(), "none", "no NVIDIA device"),
    ],
)
def test_remapped(facts: Facts, sign: str, text: str) -> None:
    found = says(gpu_memory_faults, "G11", facts)
    assert found.sign == sign
    assert text in found.text


def test_a_reset_goes_around_the_container() -> None:
    names = {"unit": ("triton.service",), "user": ("root",)}
    found = says(gpu_memory_faults, "G10", box(card(retired_pending=True), variables=names))
    assert found.fix is not None
    assert found.fix.kind == "R"
    assert found.fix.deeds == ()
    assert found.fix.commands == (
        "sudo systemctl stop triton.service",
        "sudo nvidia-smi -i 0 -pm 0",
        "sudo nvidia-smi --gpu-reset -i 0",
        "sudo nvidia-smi -i 0 -pm 1",
        "sudo systemctl start triton.service",
    )
    off = says(gpu_memory_faults, "G10", box(card(retired_pending=True, persistence=False), variables=names))
    assert off.fix is not None
    assert not any("-pm" in line for line in off.fix.commands)
