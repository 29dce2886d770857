"""Writes the figures that the stand-in serves.

    card = open_values(path).devices[0]          # live: the next NVML call sees what is stored
    card.held |= HOLD_TEMPERATURE                # the lab's follower then leaves it alone
    card.temperature = 91

Profiles are whole boxes: `create(path, "a100-mig")`. Their figures are those of NVIDIA's data sheets
and of `nvidia-smi -q` on such cards.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path

from tests.lab.nvml.layout import (
    ABSENT32,
    ABSENT64,
    MAGIC,
    MAX_DEVICES,
    MAX_PROCESSES,
    U32,
    U64,
    VERSION,
    Device,
    MigInstance,
    Process,
    Values,
)

MIB = 1 << 20

LIBRARY_MISMATCH = 18
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
UNKNOWN_ERROR = 999

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
SW_POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
POWER_BRAKE = 0x80

_IDENTITY = frozenset(
    (
        "uuid",
        "name",
        "bus_id",
        "memory_total",
        "memory_used",
        "error",
        "held",
        "minor_number",
        "pci_domain",
        "pci_bus",
        "pci_device",
        "pci_device_id",
        "pci_subsystem_id",
        "mig_count",
    )
)
"""What every card and driver gives; all else may be missing somewhere."""


def create(path: Path, profile: str = "t4", count: int = 1) -> None:
    """Write the file of a box with `count` (0 to 8) cards of a profile.

    An existing file is rewritten in place, since processes may have it mapped.
    """
    if not 0 <= count <= MAX_DEVICES:
        raise ValueError(f"{count} cards: the stand-in has room for 0 to {MAX_DEVICES}")
    values = Values(
        magic=MAGIC,
        version=VERSION,
        device_count=count,
        cuda_version=12060,
        driver_version=b"560.35.05",
        nvml_version=b"12.560.35.05",
    )
    for index in range(MAX_DEVICES):
        values.devices[index] = PROFILES[profile](index)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b") as file:
        file.write(bytes(values))


def open_values(path: Path) -> Values:
    """Return the file's figures, live: the next NVML call sees what is stored in them."""
    with path.open("r+b") as file:
        # Unmapped when the last reference to the result goes.
        values = Values.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Values)))
    if values.magic != MAGIC or values.version != VERSION:
        raise ValueError(f"{path} is not a value file of this stand-in: make it anew with create()")
    return values


def without_optional(device: Device) -> None:
    """Mark every figure absent that some card or driver does not give."""
    absent: dict[object, int] = {U32: ABSENT32, U64: ABSENT64}
    for name, c_type in Device._fields_:
        current = getattr(device, name)
        if name in _IDENTITY:
            continue
        if c_type in absent:
            setattr(device, name, absent[c_type])
        elif isinstance(current, bytes):
            setattr(device, name, b"")
        elif isinstance(current, ctypes.Array) and current._type_ in absent:
            current[:] = [absent[current._type_]] * len(current)


def set_processes(device: Device, processes: list[Process]) -> None:
    """List these processes on the card; what does not fit is left out."""
    kept = processes[:MAX_PROCESSES]
    # The count goes down first and up last, so that no reader sees a slot that is not written.
    device.process_count = min(device.process_count, len(kept))
    for index, process in enumerate(kept):
        device.processes[index] = process
    device.process_count = len(kept)


def process(
    pid: int, used_bytes: int = ABSENT64, *, sm_percent: int = 0, graphics: bool = False, gpu_instance: int = ABSENT32
) -> Process:
    """Return a process for `set_processes`; without `used_bytes` its memory is not available."""
    return Process(
        pid=pid,
        used_bytes=used_bytes,
        sm_percent=sm_percent,
        graphics=int(graphics),
        gpu_instance=gpu_instance,
        compute_instance=ABSENT32 if gpu_instance == ABSENT32 else 0,
    )


def t4(index: int = 0) -> Device:
    """Return an idle Tesla T4, 16 GB: no fan, page retirement, no MIG."""
    device = _card(index, b"Tesla T4", 0x1EB810DE, memory_mib=15360, reserved_mib=448)
    device.architecture, device.brand = 6, 2
    device.compute_major, device.compute_minor = 7, 5
    _power(device, idle_w=10, limit_w=70, minimum_w=60, maximum_w=70)
    _heat(device, now=38, shutdown=96, slowdown=93, gpu_max=85)
    device.clocks[:] = (300, 300, 405, 540)
    device.clocks_max[:] = (1590, 1590, 5001, 1470)
    device.clocks_application[:] = (585, 585, 5001, 540)
    device.pcie_generation, device.pcie_generation_max = 1, 3
    device.remapped_corrected = device.remapped_uncorrected = ABSENT32
    device.remap_pending = device.remap_failure = ABSENT32
    device.mig_mode = device.mig_mode_pending = device.mig_max = ABSENT32
    return device


def a100(index: int = 0) -> Device:
    """Return an idle A100 PCIe 40 GB: row remapping, HBM temperature, MIG off."""
    device = _card(index, b"NVIDIA A100-PCIE-40GB", 0x20F110DE, memory_mib=40960, reserved_mib=512)
    device.architecture, device.brand = 7, 14
    device.compute_major, device.compute_minor = 8, 0
    _power(device, idle_w=34, limit_w=250, minimum_w=150, maximum_w=250)
    _heat(device, now=33, shutdown=92, slowdown=89, gpu_max=85)
    device.temperature_memory, device.temperature_memory_max = 36, 95
    device.clocks[:] = (210, 210, 1215, 585)
    device.clocks_max[:] = (1410, 1410, 1215, 1290)
    device.clocks_application[:] = (1410, 1410, 1215, 1290)
    device.pcie_generation, device.pcie_generation_max = 4, 4
    device.retired_single_bit = device.retired_double_bit = device.retired_pending = ABSENT32
    device.mig_max = 7
    return device


def a100_mig(index: int = 0) -> Device:
    """Return an A100 split into 3g.20gb, 2g.10gb and 1g.5gb: no utilisation on the card itself."""
    device = a100(index)
    device.mig_mode = device.mig_mode_pending = 1
    device.util_gpu = device.util_memory = ABSENT32
    device.util_encoder = device.util_decoder = ABSENT32
    shapes = ((3, 19968, 42, b"3g.20gb"), (2, 9984, 28, b"2g.10gb"), (1, 4864, 14, b"1g.5gb"))
    for position, (slices, memory_mib, multiprocessors, shape) in enumerate(shapes):
        device.mig[position] = MigInstance(
            uuid=b"MIG-5f2e%04d-0000-5000-8000-%012d" % (index, position),
            name=b"NVIDIA A100-PCIE-40GB MIG " + shape,
            memory_total=memory_mib * MIB,
            memory_used=19 * MIB,
            gpu_instance=position + 1,
            compute_instance=0,
            gpu_slices=slices,
            multiprocessors=multiprocessors,
        )
    device.mig_count = len(shapes)
    device.memory_used = len(shapes) * 19 * MIB
    return device


def bare(index: int = 0) -> Device:
    """Return a card that gives nothing but its identity and its memory."""
    device = t4(index)
    device.name = b"NVIDIA Graphics Device"
    without_optional(device)
    return device


PROFILES: dict[str, Callable[[int], Device]] = {"t4": t4, "a100": a100, "a100-mig": a100_mig, "bare": bare}


def _card(index: int, name: bytes, pci_id: int, *, memory_mib: int, reserved_mib: int) -> Device:
    return Device(
        uuid=b"GPU-4c41421e-0000-4000-8000-%012d" % index,
        name=name,
        serial=b"132061%07d" % index,
        vbios=b"90.04.96.00.01",
        bus_id=b"00000000:%02X:00.0" % (0x65 + index),
        memory_total=memory_mib * MIB,
        memory_reserved=reserved_mib * MIB,
        bar1_total=256 * MIB,
        bar1_used=2 * MIB,
        event_reasons=IDLE,
        event_reasons_supported=0x1FF,
        minor_number=index,
        pci_bus=0x65 + index,
        pci_device_id=pci_id,
        pci_subsystem_id=0x12A210DE,
        fan_percent=ABSENT32,  # passively cooled, as server cards are
        temperature_memory=ABSENT32,
        temperature_memory_max=ABSENT32,
        pstate=8,
        persistence=1,
        display_mode=0,
        ecc_mode=1,
        ecc_mode_pending=1,
        pcie_width=16,
        pcie_width_max=16,
    )


def _power(device: Device, *, idle_w: int, limit_w: int, minimum_w: int, maximum_w: int) -> None:
    device.power = idle_w * 1000
    device.power_limit = device.power_limit_default = device.power_limit_enforced = limit_w * 1000
    device.power_limit_min, device.power_limit_max = minimum_w * 1000, maximum_w * 1000


def _heat(device: Device, *, now: int, shutdown: int, slowdown: int, gpu_max: int) -> None:
    device.temperature = now
    device.temperature_shutdown, device.temperature_slowdown = shutdown, slowdown
    device.temperature_gpu_max = gpu_max
