"""A limit with hold time and hysteresis, as it stands in the settings: `85 for 1m clear 80`."""

from __future__ import annotations

import re
from math import isfinite

from msgspec import Struct

from console.core.duration import seconds
from console.core.plan import WrongInput
from console.core.text import one_line

OFF = "off"
LONGEST_HOLD = 86400.0
_FORM = re.compile(r"(?P<limit>\S+)(?:\s+for\s+(?P<hold>\S+))?(?:\s+clear\s+(?P<clear>\S+))?")


class Threshold(Struct, frozen=True):
    """When something is too much, and when it is so no longer."""

    limit: float
    """Reached at this value and above."""
    hold_s: float = 0.0
    """Seconds for which it must be so without a break, in both directions."""
    clear: float | None = None
    """Over at this value and below; None = below the limit."""

    def reached(self, value: float) -> bool:
        """Too much."""
        return value >= self.limit

    def over(self, value: float) -> bool:
        """No longer too much. Between `clear` and `limit` neither is true."""
        return value < self.limit if self.clear is None else value <= self.clear

    @property
    def text(self) -> str:
        """As it is written in the settings."""
        hold = f" for {self.hold_s:g}s" if self.hold_s else ""
        return f"{self.limit:g}{hold}" + ("" if self.clear is None else f" clear {self.clear:g}")


def threshold(text: str, name: str) -> Threshold | None:
    """None for `off`. WrongInput."""
    if text.strip() == OFF:
        return None
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise WrongInput(f"{name} must be `off` or such as `85 for 1m clear 80`, not {one_line(text, 60)!r}")
    limit = _number(form["limit"], name)
    hold_s = seconds(form["hold"], f"the time of {name}") if form["hold"] else 0.0
    clear = _number(form["clear"], name) if form["clear"] else None
    if not 0 <= hold_s <= LONGEST_HOLD:
        raise WrongInput(f"the time of {name} must be from 0s to 24h, not {one_line(form['hold'], 40)}")
    if limit <= 0:
        raise WrongInput(f"the limit of {name} must be more than 0, not {limit:g}; `off` switches it off")
    if clear is not None and clear >= limit:
        raise WrongInput(f"{name} must clear below its limit: {clear:g} is not below {limit:g}")
    return Threshold(limit, hold_s, clear)


def _number(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise WrongInput(f"{name} wants a number where it says {one_line(text, 40)!r}")
    return found
