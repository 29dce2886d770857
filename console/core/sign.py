"""The sign of a judgement."""

from __future__ import annotations

from typing import Literal

Sign = Literal["fail", "warn", "unknown", "ok", "note", "none"]
"""fail ✗, warn ▲, unknown ?, ok ●, note ● (worth knowing, no alarm), none – (does not apply)."""
