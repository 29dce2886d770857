"""NVIDIA's Xid numbers: what each means in short and the immediate action of NVIDIA's catalogue.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Ampere and later), as in host.md 6.1;
meanings from the same catalogue. Where Xid 154 is present its own words outrank this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from console.core.model import Sign

RESTART_HOST = "restart the host"
RESET_GPU = "reset the GPU"
RESTART_APPLICATION = "restart the application"
CHECK_POWER = "check the card's power cable"
UPDATE_SOFTWARE = "update the software"
LOOK_AT_OTHERS = "look at the Xids beside it"
NONE = "none, for information"


def _numbers(*spans: int | tuple[int, int]) -> frozenset[int]:
    found: set[int] = set()
    for span in spans:
        found.update(range(span[0], span[1] + 1) if isinstance(span, tuple) else (span,))
    return frozenset(found)


_ACTIONS: tuple[tuple[str, Sign, frozenset[int]], ...] = (
    (RESTART_HOST, "fail", _numbers(79)),
    (RESET_GPU, "fail", _numbers(46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)),
    (
        RESTART_APPLICATION,
        "warn",
        _numbers(
            8,
            11,
            13,
            25,
            31,
            32,
            (39, 41),
            60,
            (68, 72),
            (75, 77),
            80,
            (82, 86),
            88,
            89,
            94,
            (96, 105),
            (126, 135),
            139,
        ),
    ),
    (CHECK_POWER, "fail", _numbers(54)),
    (UPDATE_SOFTWARE, "warn", _numbers(78)),
    (LOOK_AT_OTHERS, "warn", _numbers(45, 48, 74, (144, 150), 154, 171, 172)),
    (
        NONE,
        "note",
        _numbers(14, 37, 38, 43, 44, 63, 66, 67, 92, 93, (106, 108), 121, 137, 141, 152, 153, 157, 160, 161),
    ),
)

_MEANINGS: dict[int, str] = {
    8: "the GPU stopped processing",
    11: "invalid or corrupted push buffer",
    13: "graphics engine exception (often the application: index out of range, illegal instruction)",
    25: "invalid or illegal push buffer",
    31: "GPU memory page fault (often the application: illegal address)",
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    43: "the GPU stopped processing for one application",
    44: "graphics engine fault during context switch",
    45: "work was removed: the application ended, or an error before it",
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    62: "the card's internal controller halted",
    63: "memory row remapped or page retired, works from the next reset on",
    64: "memory row could not be remapped or page retired",
    66: "illegal access by the driver",
    68: "video decoder exception",
    69: "graphics engine class error",
    74: "NVLink error",
    78: "vGPU start error",
    79: "the GPU has fallen off the bus",
    80: "corrupted data sent to the GPU",
    92: "high rate of single-bit ECC errors",
    94: "memory error, contained: one application is affected",
    95: "memory error, not contained: all applications are affected",
    109: "context switch time-out",
    110: "security fault",
    119: "the GPU's system processor (GSP) does not answer",
    120: "error of the GPU's system processor (GSP)",
    136: "link training failed",
    140: "ECC error that was not recovered",
    143: "the GPU could not be initialised",
    154: "the driver says what recovery the GPU needs",
    156: "memory resource retired",
    157: "memory resource could not be retired",
    158: "GPU time-out",
    171: "ECC error in DRAM (detail of 48)",
    172: "ECC error in SRAM (detail of 48)",
}

REPEATED = "restart the application; reset the GPU if it repeats"
"""For 109: NVIDIA's own device plugin takes it for the application's, the catalogue puts it under reset."""

_RECOVERY = re.compile(r"GPU recovery action changed from \S+ \([^)]*\) to \S+ \((?P<action>[^)]*)\)")
_RECOVERY_SIGNS: dict[str, Sign] = {"none": "note", "drain p2p": "warn"}


class XidMeaning(Struct, frozen=True):
    """One Xid in words. `sign` is fail for what takes the card or the host, warn for what takes an application."""

    xid: int
    meaning: str
    action: str
    sign: Sign


def describe(xid: int, text: str = "") -> XidMeaning:
    """Meaning and action of an Xid; `text` is its log line (Xid 154 carries its action there)."""
    meaning = _MEANINGS.get(xid, "no short meaning known here, see NVIDIA's catalogue")
    told = _RECOVERY.search(text) if xid == 154 else None
    if told is not None:
        action = told["action"]
        return XidMeaning(xid, meaning, action, _RECOVERY_SIGNS.get(action.strip().lower(), "fail"))
    if xid == 109:
        return XidMeaning(xid, meaning, REPEATED, "fail")
    for action, sign, numbers in _ACTIONS:
        if xid in numbers:
            return XidMeaning(xid, meaning, action, sign)
    return XidMeaning(xid, meaning, "not in NVIDIA's catalogue as known here", "warn")


_RANK: dict[Sign, int] = {"fail": 2, "warn": 1}


def worst(found: Iterable[XidMeaning]) -> XidMeaning | None:
    """The Xid whose action weighs most among those of one incident (one GPU within 60 s); None for none."""
    order = [action for action, _, _ in _ACTIONS]
    return max(
        found,
        key=lambda one: (
            _RANK.get(one.sign, 0),
            one.xid == 154,
            -order.index(one.action) if one.action in order else 0,
        ),
        default=None,
    )
