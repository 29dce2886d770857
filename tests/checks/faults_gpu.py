"""Faults of the card."""

from __future__ import annotations

from typing import Any

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import DEBIAN, EL8, EL9, ROCKY, ROOTLESS, UBUNTU
from tests.checks.tree import Tree


def _bdf(box: Tree) -> str:
    """As the kernel log writes it, without the function."""
    return effects.bdf(box).removesuffix(".0")


@fault("G13", EL8, DEBIAN, EL9, takes="driver server", needs="driver container")
def card_fell_off_the_bus(box: Tree) -> None:
    bdf = _bdf(box)
    effects.kernel(
        box,
        f"NVRM: GPU at PCI:{bdf}: {box.value('@nvml')['box']['gpus'][0]['uuid']}",
        f"NVRM: Xid (PCI:{bdf}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        f"NVRM: GPU {bdf}.0: GPU has fallen off the bus.",
        "NVRM: A GPU crash dump has been created. If possible, please run",
        "NVRM: nvidia-bug-report.sh as root to collect this data before",
        "NVRM: the NVIDIA kernel module is unloaded.",
    )
    why = {"kind": "unavailable", "message": "NVML error 15: the GPU is lost", "hint": ""}

    def by(answer: Any) -> None:
        card = answer["box"]["gpus"][0]
        kept = {key: card[key] for key in ("index", "uuid", "name", "pci_bus_id", "architecture") if key in card}
        answer["box"]["gpus"][0] = {**kept, "lost": why, "lost_wall": box.wall - 7000}

    box.change("@nvml", by)
    text = f"Unable to determine the device handle for GPU0: {bdf}.0: Unknown Error\n"
    for words in ("nvidia-smi -q", "nvidia-smi nvlink --status"):
        box.run(words, text, 255)
    effects.no_server(box)


@fault("G13", EL8, DEBIAN, ROCKY, needs="driver")
def row_of_memory_errors(box: Tree) -> None:
    effects.kernel(
        box,
        f"NVRM: Xid (PCI:{_bdf(box)}): 48, pid=4812, name=tritonserver, DBE (double bit error) ECC Error",
        f"NVRM: Xid (PCI:{_bdf(box)}): 45, pid=4812, name=tritonserver, Ch 00000008",
    )


@fault("G13", EL9, UBUNTU, needs="driver")
def gsp_timeout(box: Tree) -> None:
    effects.kernel(
        box,
        f"NVRM: Xid (PCI:{_bdf(box)}): 119, pid=4812, name=tritonserver, Timeout after 6s of waiting for RPC response "
        "from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
        f"NVRM: Xid (PCI:{_bdf(box)}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    )


@fault("G03", EL8, DEBIAN, ROCKY, needs="driver")
def persistence_off(box: Tree) -> None:
    effects.set_card(box, persistence=False)
    off = {"ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled", "MainPID": "0"}
    effects.set_unit(box, "nvidia-persistenced.service", **off)
    box.remove("/run/nvidia-persistenced/nvidia-persistenced.pid")
    effects.swap_line(
        box,
        "nvidia-smi -q",
        "Persistence Mode                      : Enabled",
        "Persistence Mode                      : Disabled",
    )


@fault("G05", EL8, EL9, DEBIAN, needs="driver")
def power_limit_lowered(box: Tree) -> None:
    low = box.value("@nvml")["box"]["gpus"][0]["power_min_w"]
    effects.set_card(box, power_limit_w=low)


@fault("G06", EL8, DEBIAN, EL9, also=("G07",), needs="driver")
def card_slowed_by_heat(box: Tree) -> None:
    card = box.value("@nvml")["box"]["gpus"][0]
    effects.set_card(
        box, throttle_now=["heat_hardware"], throttle_bits=0x48, temp_c=card["temp_slowdown_c"], sm_mhz=600
    )


@fault("G08", DEBIAN, ROCKY, needs="driver")
def ecc_off(box: Tree) -> None:
    effects.set_card(box, ecc_on=False, ecc_corrected_now=None, ecc_uncorrected_now=None)


@fault("G09", DEBIAN, EL8, needs="driver")
def uncorrected_memory_errors(box: Tree) -> None:
    effects.set_card(box, ecc_uncorrected_now=2, ecc_uncorrected_ever=7)


@fault("G10", DEBIAN, EL8, ROOTLESS, needs="driver")
def pages_wait_for_retirement(box: Tree) -> None:
    effects.set_card(box, retired_pages=4, retired_pending=True)


@fault("G11", ROCKY, EL9, UBUNTU, needs="driver")
def row_remapping_failed(box: Tree) -> None:
    effects.set_card(box, remapped_uncorrectable=8, remap_failed=True, remap_pending=False)


@fault("G12", EL9, needs="driver")
def driver_wants_a_reset(box: Tree) -> None:
    effects.set_card(box, recovery_action="gpu_reset")


@fault("G14", EL8, EL9, DEBIAN, needs="driver")
def half_the_lanes(box: Tree) -> None:
    box.put(f"{effects.gpu(box)}/current_link_width", "8\n")
    effects.set_card(box, pcie_width=8)
    effects.swap_line(box, "nvidia-smi -q", "Current                   : 16x", "Current                   : 8x")


@fault("G15", EL8, EL9, needs="driver")
def pcie_errors(box: Tree) -> None:
    path = f"{effects.gpu(box)}/aer_dev_fatal"
    box.edit(path, "TLP 0", "TLP 12")
    box.edit(path, "TOTAL_ERR_FATAL 0", "TOTAL_ERR_FATAL 12")
    box.edit(f"{effects.gpu(box)}/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0", "TOTAL_ERR_NONFATAL 41")
    effects.set_card(box, pcie_replays=91223)


@fault("G16", DEBIAN, EL8, takes="server", needs="driver container")
def compute_prohibited(box: Tree) -> None:
    effects.set_card(box, compute_mode="prohibited", processes=[])
    effects.swap_line(
        box,
        "nvidia-smi -q",
        "Compute Mode                          : Default",
        "Compute Mode                          : Prohibited",
    )
    effects.say(box, 'E1130 08:40:11 1 server.cc:241] "CudaDriver error: CUDA_ERROR_DEVICE_UNAVAILABLE"')


@fault("G02", ROCKY, also=("A19",), takes="server", needs="driver container")
def second_card_not_in_nvml(box: Tree) -> None:
    card = effects.gpu(box)
    twin = card.replace("0000:3a", "0000:86").replace("0000:3b", "0000:87")
    for path in box.under(card):
        box.files[path.replace(card, twin)] = box.files[path]
    box.link("/sys/bus/pci/devices/0000:87:00.0", "../../.." + twin[4:])
    box.put("/dev/nvidia1", "", kind="char", device=(195, 1), mode=0o666, label=box.files["/dev/nvidia0"].label)
    box.link("/dev/char/195:1", "../nvidia1")
    box.change("@nvml", lambda answer: answer["box"].update(pci_devices=2))
    effects.kernel(
        box,
        "NVRM: GPU 0000:87:00.0: RmInitAdapter failed! (0x24:0x65:1423)",
        "NVRM: GPU 0000:87:00.0: rm_init_adapter failed, device minor number 1",
    )
