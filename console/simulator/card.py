"""The simulated card: a Tesla T4 whose figures follow from how busy the models keep it.

Advanced in whole simulated seconds, so that the same seed gives the same figures however often they are read. The
relations (power and heat by utilisation) are made to fit the drawings, not measured on a card.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from console.simulator.scenes import CardState

MIB = 1024 * 1024
NS_PER_SECOND = 1_000_000_000

NAME = "Tesla T4"
UUID = "GPU-3f1c60d4-7a58-4b0e-9c5b-52d1a4e0809a"
DRIVER = "550.90.07"
UPDATED_LIBRARY = "570.86.15"
MAX_SM_MHZ = 1590
MEMORY_MHZ = 5000
POWER_LIMIT_W = 70.0
TOTAL_MIB = 15360
RESERVED_MIB = 426
TOO_HOT = 85
SLOWDOWN = 93
SHUTDOWN = 96

REASON_GPU_IDLE = 0x1
REASON_SW_POWER_CAP = 0x4
REASON_SW_THERMAL = 0x20

TRITON_PID = 4_241_233
"""Above Linux's largest possible process id (2**22), so it can never be taken for a real process of the machine."""

CONTEXT_MIB = 409
"""What one process takes beside its models: CUDA context, pools."""


@dataclass(slots=True)
class Card:
    """Figures of the card at the last whole second."""

    scene: CardState
    process_mib: int = 0
    pid: int = 0
    """Of the process that holds it; 0 = none."""
    highest_mhz: int = MAX_SM_MHZ
    """Clocks are locked to this at most."""
    power_limit_w: float = POWER_LIMIT_W
    util: float = 0.0
    memory_util: float = 0.0
    power_w: float = 10.0
    temperature: float = 38.0
    sm_mhz: int = MAX_SM_MHZ
    reasons: int = 0
    energy_mj: int = 0
    heat_ns: int = 0
    power_cap_ns: int = 250 * NS_PER_SECOND

    @property
    def used_mib(self) -> int:
        """Memory in use."""
        return self.process_mib

    def hold(self, mib: int, pid: int) -> None:
        """A process holds so much of the memory."""
        self.process_mib, self.pid = mib, pid

    @property
    def slowdown(self) -> float:
        """How much longer runs take at the present clock."""
        return MAX_SM_MHZ / self.sm_mhz

    def step(self, busy: float, rng: random.Random) -> None:
        """One second in which models kept the card busy for that share of the time (0 to 1)."""
        self.util = min(100.0, max(0.0, 92.0 * busy + rng.gauss(0, 1.2)))
        self.memory_util = self.util * 0.48
        slowed = self.scene.slowed_sm_mhz is not None
        power = 12.0 + 0.5 * self.util + rng.gauss(0, 0.6) + (8.0 if slowed else 0.0)
        self.power_w = min(self.power_limit_w, max(9.0, power))
        target = 30.0 + 0.56 * self.util + self.scene.extra_heat
        # a heat sink follows the load with a time constant of about 20 s
        self.temperature = min(SLOWDOWN - 1.0, self.temperature + (target - self.temperature) / 20 + rng.gauss(0, 0.1))
        self.energy_mj += round(self.power_w * 1000)
        self._set_clock(slowed, power, rng)

    def _set_clock(self, slowed: bool, wanted_w: float, rng: random.Random) -> None:
        self.reasons = 0
        self.sm_mhz = min(MAX_SM_MHZ, self.highest_mhz)
        if slowed:
            assert self.scene.slowed_sm_mhz is not None
            self.sm_mhz = min(self.sm_mhz, self.scene.slowed_sm_mhz + 15 * rng.randint(-2, 2))
            self.heat_ns += round(self.scene.slowed_share * NS_PER_SECOND)
            self.reasons |= REASON_SW_THERMAL
        if self.power_w >= self.power_limit_w:
            self.reasons |= REASON_SW_POWER_CAP
            self.sm_mhz = round(self.sm_mhz * self.power_limit_w / max(wanted_w, self.power_limit_w))
            self.power_cap_ns += NS_PER_SECOND // 4
        if self.util < 1:
            self.reasons |= REASON_GPU_IDLE

    def settle(self) -> None:
        """Put the temperature where it would be after minutes under the present load."""
        self.temperature = min(SLOWDOWN - 1.0, 30.0 + 0.56 * self.util + self.scene.extra_heat)

    def document(self, now_ns: int, nvml_error: int) -> dict[str, Any]:
        """What `nvml.py` reads, units as NVML has them (mW, mJ, bytes, MHz, ns)."""
        return {
            "nvml_error": nvml_error,
            "now_ns": now_ns,
            "driver": DRIVER,
            "nvml": UPDATED_LIBRARY if nvml_error else DRIVER,
            "util": round(self.util),
            "memory_util": round(self.memory_util),
            "power_mw": round(self.power_w * 1000),
            "temperature": round(self.temperature),
            "sm_mhz": self.sm_mhz if self.process_mib else 300,
            "memory_mhz": MEMORY_MHZ if self.process_mib else 405,
            "pstate": 0 if self.process_mib else 8,
            "reasons": self.reasons,
            "energy_mj": self.energy_mj,
            "heat_ns": self.heat_ns,
            "power_cap_ns": self.power_cap_ns,
            "used_bytes": self.used_mib * MIB,
            "processes": [
                {"pid": self.pid, "name": "tritonserver", "bytes": self.process_mib * MIB, "util": round(self.util)}
            ]
            if self.process_mib
            else [],
        }
