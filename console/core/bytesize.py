"""A number of bytes as people type it."""

from __future__ import annotations

import re

from console.core.plan import WrongInput
from console.core.text import one_line

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FORM = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s?([KMGT]?)(?:I?B)?", re.IGNORECASE)


def size(text: str, flag: str) -> int:
    """`200MiB`, `200M`, `1.5 GiB` or a number of bytes; MB and MiB are both 1 048 576 bytes. WrongInput."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise WrongInput(f"{flag} must be a size such as 200MiB or 1.5GiB, not {one_line(text, 40)!r}")
    return round(float(found[1]) * _UNITS[found[2].upper()])
