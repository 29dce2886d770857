"""Moves the stand-in card's figures with what Triton really does, once a second.

Memory and the process list follow the living processes that hold the card: tritonserver itself, and one Python
stub per model instance. Utilisation follows the compute time in Triton's statistics; power, temperature and
clocks follow utilisation as on a T4. A test that sets a figure itself holds it: `device.held |= HOLD_POWER`.
"""

from __future__ import annotations

import http.client
import re
import sys
import time
from pathlib import Path

from tests.lab import processes, repository, triton
from tests.lab.nvml import values as nvml
from tests.lab.nvml.layout import (
    ABSENT32,
    ABSENT64,
    HOLD_CLOCKS,
    HOLD_LOAD,
    HOLD_MEMORY,
    HOLD_POWER,
    HOLD_PROCESSES,
    HOLD_TEMPERATURE,
    Device,
    Process,
)

_CONTEXT_MIB = 207
"""What a CUDA context of a server takes; the driver lists it with the server's process."""
_UNLISTED_MIB = 38
"""Device memory that no process accounts for, as every real card has some."""
_STUB_MODEL = re.compile(r"/models/([^/]+)/(\d+)/model\.py")
_HEAT_SECONDS = 25.0
_DEGREES_IDLE, _DEGREES_PER_WATT = 31.0, 0.62


def follow(values_file: Path, port: int) -> None:
    """Follow the Triton on this port until the process is ended."""
    device = nvml.open_values(values_file).devices[0]
    busy = BusyTime()
    heat = float(device.temperature)
    last = time.monotonic()
    show_processes(device, 0.0)
    while True:
        time.sleep(1.0)
        now = time.monotonic()
        elapsed, last = now - last, now
        share = busy.share(port, elapsed)
        heat += (_DEGREES_IDLE + _DEGREES_PER_WATT * _watts(share) - heat) * min(1.0, elapsed / _HEAT_SECONDS)
        show_processes(device, share)
        show_load(device, share, round(heat), elapsed)


class BusyTime:
    """The share of time in which some model computes, from the difference of two readings of statistics."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def share(self, port: int, elapsed: float) -> float:
        """Return 0..1 for the seconds since the last call; 0 where Triton does not answer."""
        try:
            status, answer = triton.call(port, "GET", "/v2/models/stats", timeout=2.0)
        except (OSError, http.client.HTTPException):
            status, answer = 0, None
        if status != 200:
            self._last = {}
            return 0.0
        computed = {(m["name"], m["version"]): _compute_ns(m) for m in answer["model_stats"]}
        idle = 1.0
        for key, total in computed.items():
            # A reload starts a model's statistics anew.
            done = total - self._last.get(key, total) if total >= self._last.get(key, 0) else total
            idle *= 1.0 - min(1.0, done / 1e9 / elapsed)
        self._last = computed
        return 1.0 - idle


def _compute_ns(model: dict[str, object]) -> int:
    batches = model.get("batch_stats") or []
    assert isinstance(batches, list)
    return sum(int(b["compute_infer"]["ns"]) for b in batches)


def show_processes(device: Device, share: float) -> None:
    """List who holds the card, with the memory each model instance takes."""
    holders = []
    for pid, command in processes.holding_card():
        name = Path(command[0]).name if command else ""
        model = _STUB_MODEL.search(" ".join(command))
        if name == "tritonserver":
            holders.append(nvml.process(pid, _CONTEXT_MIB * nvml.MIB))
        elif name == "triton_python_backend_stub" and model:
            holders.append(nvml.process(pid, repository.gpu_mib(model[1]) * nvml.MIB))
    _share_out(holders, share)
    if not device.held & HOLD_PROCESSES and device.process_count != ABSENT32:
        nvml.set_processes(device, holders)
    if not device.held & HOLD_MEMORY and device.memory_used != ABSENT64:
        listed = sum(holder.used_bytes for holder in holders)
        room = device.memory_total - (device.memory_reserved if device.memory_reserved != ABSENT64 else 0)
        device.memory_used = min(room, listed + _UNLISTED_MIB * nvml.MIB if holders else 0)


def _share_out(holders: list[Process], share: float) -> None:
    for holder in holders[1:]:
        holder.sm_percent = round(100 * share / (len(holders) - 1))


def show_load(device: Device, share: float, degrees: int, elapsed: float) -> None:
    """Write utilisation and what follows from it."""
    idle = share < 0.005
    watts = _watts(share)
    if not device.held & HOLD_LOAD:
        _put(device, "util_gpu", round(100 * share))
        _put(device, "util_memory", round(35 * share))
    if not device.held & HOLD_POWER:
        _put(device, "power", round(1000 * watts))
    if device.energy_mj != ABSENT64:
        device.energy_mj += round(1000 * watts * elapsed)
    if not device.held & HOLD_TEMPERATURE:
        _put(device, "temperature", degrees)
    if not device.held & HOLD_CLOCKS and device.clocks[0] != ABSENT32:
        _put(device, "pstate", 8 if idle else 0)
        device.clocks[:] = (300, 300, 405, 540) if idle else (1590, 1590, 5001, 1470)
        device.event_reasons = nvml.IDLE if idle else 0


def _put(device: Device, figure: str, value: int) -> None:
    # What the card is set not to give stays so: a split card has no utilisation.
    if getattr(device, figure) != ABSENT32:
        setattr(device, figure, value)


def _watts(share: float) -> float:
    # A T4: 10 W asleep, 27 W awake, close to its limit of 70 W when full.
    return 10.0 if share < 0.005 else 27.0 + 41.0 * share


if __name__ == "__main__":
    follow(Path(sys.argv[1]), int(sys.argv[2]))
