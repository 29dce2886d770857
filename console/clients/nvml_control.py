"""Settings of a card through NVML: persistence, clock lock, power limit, compute mode. Never a reset, never MIG.

Every call is made on the card of a UUID, so that a card that took another's index is not changed by mistake. NVML has
no getter for a clock lock (nvml.h up to 13), so `lock_clocks` and `reset_clocks` cannot be read back.
"""

from __future__ import annotations

from typing import Any, Self

from console.clients.nvml import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    Absent,
    LostError,
    Nvml,
    Target,
)
from console.clients.nvml_card import COMPUTE_MODES
from console.core.model import SourceError
from console.core.text import one_line

_MODE_NUMBERS = {name: number for number, name in COMPUTE_MODES.items()}
_WORDS = {
    NO_PERMISSION: "not permitted: only root may change a card's settings",
    NOT_SUPPORTED: "this card or driver does not support it",
    INVALID_ARGUMENT: "the driver says that the value cannot be",
    FUNCTION_NOT_FOUND: "this driver's NVML does not know it",
}


class NvmlView:
    """One NVML session that asks for what only a change needs to know. Used as a context manager, by one thread."""

    def __init__(self, api: Any = None, root: str = "/") -> None:
        """`api` stands in for the pynvml module."""
        self._nvml = Nvml(api, root)

    def __enter__(self) -> Self:
        self._nvml.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self._nvml.close()

    def supported_clocks(self, uuid: str) -> tuple[int, int] | None:
        """(lowest, highest) graphics clock in MHz that the card can be locked to; None = the driver does not tell."""
        card = self._card(uuid)
        memory = self._nvml.query(card, "nvmlDeviceGetSupportedMemoryClocks")
        if isinstance(memory, Absent) or not memory:
            return None
        clocks = self._nvml.query(card, "nvmlDeviceGetSupportedGraphicsClocks", max(memory))
        return None if isinstance(clocks, Absent) or not clocks else (min(clocks), max(clocks))

    def _card(self, uuid: str) -> Target:
        try:
            answer = self._nvml.query(Target(uuid), "nvmlDeviceGetHandleByUUID")
        except LostError as lost:
            raise SourceError(lost.failure.kind, lost.failure.message, lost.failure.hint) from lost
        if isinstance(answer, Absent):
            gone = answer.code in (NOT_FOUND, INVALID_ARGUMENT)
            why = "NVML lists no such card" if gone else answer.reason
            raise SourceError("unavailable", f"GPU {one_line(uuid, 60)}: {why}")
        return Target(answer)


class NvmlControl(NvmlView):
    """Changes settings. Opened through `Box.nvml_control` only.

    Each method raises SourceError: permission (NVML 4), unavailable (no driver, card gone), protocol (NVML's words).
    """

    def set_persistence(self, uuid: str, on: bool) -> None:
        """Keep the driver's state while nothing uses the card, or not."""
        self._call(uuid, "nvmlDeviceSetPersistenceMode", int(on))

    def lock_clocks(self, uuid: str, low: int, high: int) -> None:
        """Hold the graphics clock between these, in MHz."""
        self._call(uuid, "nvmlDeviceSetGpuLockedClocks", low, high)

    def reset_clocks(self, uuid: str) -> None:
        """Take any lock of the graphics clock away."""
        self._call(uuid, "nvmlDeviceResetGpuLockedClocks")

    def set_power_limit(self, uuid: str, milliwatts: int) -> None:
        """The most that the card may draw."""
        self._call(uuid, "nvmlDeviceSetPowerManagementLimit", milliwatts)

    def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Which processes may use the card: a name of `nvml_card.COMPUTE_MODES`."""
        self._call(uuid, "nvmlDeviceSetComputeMode", _MODE_NUMBERS[mode])

    def _call(self, uuid: str, function: str, *args: int) -> None:
        try:
            answer = self._nvml.query(self._card(uuid), function, *args)
        except LostError as lost:
            raise SourceError(lost.failure.kind, lost.failure.message, lost.failure.hint) from lost
        if isinstance(answer, Absent):
            code = answer.code
            why = answer.reason if code is None else f"{_WORDS.get(code, answer.reason)} (NVML {code})"
            raise SourceError("permission" if code == NO_PERMISSION else "protocol", f"{function}: {why}")
