"""The file the stand-in reads: its layout is written here once, and the C header is made from it.

The library maps the file and reads it at every call, so what a writer stores is what the next call answers.
There is no lock: each figure is one aligned word and NVML promises no agreement between two calls either.
"""

from __future__ import annotations

import ctypes

MAGIC = 0x4C4D564E  # "NVML"
VERSION = 1
MAX_DEVICES = 8
MAX_PROCESSES = 32
MAX_MIG = 7

ABSENT32 = 0xFFFF_FFFF
"""A 32-bit figure that the card does not give: the call answers NVML_ERROR_NOT_SUPPORTED (3)."""
ABSENT64 = 0xFFFF_FFFF_FFFF_FFFF
"""The same for 64 bits; as a process's memory it is NVML's own "not available"."""

U32 = ctypes.c_uint32
U64 = ctypes.c_uint64


class Process(ctypes.Structure):
    """One process on the card."""

    _fields_ = (
        ("used_bytes", U64),  # ABSENT64: the driver cannot tell (MIG, WSL, another PID namespace)
        ("pid", U32),  # of the host
        ("graphics", U32),  # 0 compute, 1 graphics
        ("gpu_instance", U32),  # ABSENT32 where the card is not split
        ("compute_instance", U32),
        ("sm_percent", U32),
        ("memory_percent", U32),
    )


class MigInstance(ctypes.Structure):
    """One MIG device of a split card."""

    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("memory_total", U64),  # bytes
        ("memory_used", U64),
        ("gpu_instance", U32),
        ("compute_instance", U32),
        ("gpu_slices", U32),
        ("multiprocessors", U32),
    )


class Device(ctypes.Structure):
    """One card. Every figure but the identity may be ABSENT32 or ABSENT64."""

    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 24),
        ("lock_low", U32),  # of the graphics clock, MHz; lock_high 0: none; ABSENT32: the card takes no lock
        ("lock_high", U32),
        ("vbios", ctypes.c_char * 32),
        ("bus_id", ctypes.c_char * 32),  # 00000000:65:00.0
        # 64-bit figures
        ("memory_total", U64),  # bytes
        ("memory_reserved", U64),  # the driver's own, not in memory_used
        ("memory_used", U64),
        ("bar1_total", U64),
        ("bar1_used", U64),
        ("energy_mj", U64),  # since the driver was loaded
        ("event_reasons", U64),  # bits of nvmlClocksEventReason*
        ("event_reasons_supported", U64),
        ("violation_ns", U64 * 12),  # by NVML_PERF_POLICY_*: power, thermal, sync boost, ...
        ("sw_thermal_ns", U64),  # field 269
        ("hw_thermal_ns", U64),  # field 270
        ("power_brake_ns", U64),  # field 271
        ("ecc_volatile_corrected", U64),
        ("ecc_volatile_uncorrected", U64),
        ("ecc_aggregate_corrected", U64),
        ("ecc_aggregate_uncorrected", U64),
        # what may go wrong
        ("error", U32),  # each call on this card answers this nvmlReturn_t: 15 lost, 999 unknown; 0 none
        ("held", U32),  # bits HOLD_*: figures the lab's follower must leave alone
        # identity
        ("minor_number", U32),
        ("pci_domain", U32),
        ("pci_bus", U32),
        ("pci_device", U32),
        ("pci_device_id", U32),
        ("pci_subsystem_id", U32),
        ("brand", U32),
        ("architecture", U32),
        ("compute_major", U32),
        ("compute_minor", U32),
        # load
        ("util_gpu", U32),  # percent
        ("util_memory", U32),
        ("util_encoder", U32),
        ("util_decoder", U32),
        # power, mW
        ("power", U32),
        ("power_limit", U32),
        ("power_limit_default", U32),
        ("power_limit_min", U32),
        ("power_limit_max", U32),
        ("power_limit_enforced", U32),
        # degrees Celsius
        ("temperature", U32),
        ("temperature_memory", U32),
        ("temperature_shutdown", U32),
        ("temperature_slowdown", U32),
        ("temperature_memory_max", U32),
        ("temperature_gpu_max", U32),
        ("fan_percent", U32),
        # MHz, in NVML's order: graphics, SM, memory, video
        ("clocks", U32 * 4),
        ("clocks_max", U32 * 4),
        ("clocks_application", U32 * 4),
        ("pstate", U32),
        # modes
        ("persistence", U32),
        ("compute_mode", U32),
        ("display_mode", U32),
        ("display_active", U32),
        ("ecc_mode", U32),
        ("ecc_mode_pending", U32),
        ("mig_mode", U32),
        ("mig_mode_pending", U32),
        # faults
        ("retired_single_bit", U32),
        ("retired_double_bit", U32),
        ("retired_pending", U32),
        ("remapped_corrected", U32),
        ("remapped_uncorrected", U32),
        ("remap_pending", U32),
        ("remap_failure", U32),
        ("recovery_action", U32),  # field 230: 0 none, 1 reset, 2 reboot, ...
        # PCIe
        ("pcie_generation", U32),
        ("pcie_generation_max", U32),
        ("pcie_width", U32),
        ("pcie_width_max", U32),
        ("pcie_replays", U32),
        ("pcie_tx_kbps", U32),  # KiB/s
        ("pcie_rx_kbps", U32),
        ("mig_max", U32),
        ("mig_count", U32),
        ("process_count", U32),
        ("processes", Process * MAX_PROCESSES),
        ("mig", MigInstance * MAX_MIG),
    )


class Values(ctypes.Structure):
    """The whole file."""

    _fields_ = (
        ("magic", U32),
        ("version", U32),
        ("device_count", U32),
        ("init_error", U32),  # nvmlInit answers this: 18 library/driver mismatch, 9 driver not loaded; 0 none
        ("hang_ms", U32),  # each call first waits this long; storing 0 frees the calls that wait
        ("cuda_version", U32),  # 12080 is 12.8; ABSENT32: not given
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
        ("devices", Device * MAX_DEVICES),
    )


HOLD_LOAD = 1
HOLD_MEMORY = 2
HOLD_POWER = 4
HOLD_TEMPERATURE = 8
HOLD_CLOCKS = 16
HOLD_PROCESSES = 32
HOLD_ALL = 63
"""A test that sets figures itself tells the lab's follower to leave them: `device.held |= HOLD_TEMPERATURE`."""


def c_header() -> str:
    """Return the C declarations of this layout, for the stand-in's build."""
    constants = {
        "MAGIC": MAGIC,
        "VERSION": VERSION,
        "MAX_DEVICES": MAX_DEVICES,
        "MAX_PROCESSES": MAX_PROCESSES,
        "MAX_MIG": MAX_MIG,
    }
    lines = ["/* Made from tests/lab/nvml/layout.py: edit that. */", "#include <stdint.h>"]
    lines += [f"#define VALUES_{name} {value}u" for name, value in constants.items()]
    for kind, name in ((Process, "Process"), (MigInstance, "Mig"), (Device, "Device"), (Values, "Values")):
        lines.append("typedef struct {")
        lines += [f"    {_c_field(field, c_type)};" for field, c_type in kind._fields_]
        lines.append(f"}} {name};")
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "{name}");')
    return "\n".join(lines) + "\n"


_C_NAMES: dict[object, str] = {
    U32: "uint32_t",
    U64: "uint64_t",
    ctypes.c_char: "char",
    Process: "Process",
    MigInstance: "Mig",
    Device: "Device",
}


def _c_field(name: str, c_type: type) -> str:
    if issubclass(c_type, ctypes.Array):
        return f"{_C_NAMES[c_type._type_]} {name}[{c_type._length_}]"
    return f"{_C_NAMES[c_type]} {name}"
