"""A length of time as people type it."""

from __future__ import annotations

from math import isfinite

from console.core.plan import WrongInput
from console.core.text import one_line

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, flag: str) -> float:
    """`30s`, `500ms`, `2m`, `1h` or a number of seconds. WrongInput."""
    number = text.rstrip("hms")
    unit = _UNITS.get(text[len(number) :] or "s")
    try:
        found = float(number)
    except ValueError:
        found = float("nan")
    if unit is None or not isfinite(found):
        raise WrongInput(f"{flag} must be a time such as 30s, 500ms or 2m, not {one_line(text, 40)!r}")
    return found * unit
