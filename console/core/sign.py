"""The sign of a judgement, and how it is printed."""

from __future__ import annotations

from typing import Literal

Sign = Literal["fail", "warn", "unknown", "ok", "note", "none"]
"""fail ✗, warn ▲, unknown ?, ok ●, note ● (worth knowing, no alarm), none – (does not apply)."""

WORST_FIRST: tuple[Sign, ...] = ("fail", "warn", "unknown", "note", "ok", "none")
"""The order in which findings are listed and weighed."""
SIGNS: dict[Sign, str] = {"fail": "✗", "warn": "▲", "unknown": "?", "ok": "●", "note": "●", "none": "–"}
ASCII_SIGNS: dict[Sign, str] = {"fail": "x", "warn": "!", "unknown": "?", "ok": "*", "note": "*", "none": "-"}
"""For headless commands where a terminal or a locale has no more."""
