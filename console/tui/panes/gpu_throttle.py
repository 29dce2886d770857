"""Throttle in seconds (design 1.12), from the driver's counters: a bit read once a second misses short ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from console.core import units
from console.core.history import History
from console.core.model import GpuState
from console.tui import own_changes
from console.tui.own_changes import OwnChanges
from console.tui.panes.base import View
from console.tui.panes.gpu_facts import lock_words
from console.tui.panes.gpu_memory import CardPane, no_card
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row

CLOCKS = "applications_clocks"
REASONS: Mapping[str, str] = {
    "power_cap": "power cap",
    "heat_software": "too hot, software",
    "heat_hardware": "too hot, hardware",
    "power_brake": "power brake",
    CLOCKS: "app clocks",
}
"""Always shown. Others are shown when set now or ever counted."""
MEANINGS: Mapping[str, str] = {
    "heat_software": "the driver lowers clocks to cool down",
    "heat_hardware": "the card halves its clocks: cooling fails",
    "power_brake": "an outside signal: power supply",
    CLOCKS: "set by a person or a tool",
    "hw_slowdown": "heat, power brake or a fault",
    "sync_boost": "held at the clocks of a group",
    "board_limit": "voltage or current limit of the board",
    "reliability": "voltage limit for reliability",
    "display": "a display holds the clocks",
    "low_utilization": "clocks follow the load",
}
BAD = frozenset({"heat_software", "heat_hardware", "power_brake", "hw_slowdown"})
QUIET = frozenset({"low_utilization"})
MINUTE, HOUR = 60, 3600
NAME, NOW, SPAN = 19, 6, 12


class Spent(NamedTuple):
    """Seconds for one reason; None = cannot be told. `counted` False: only seen once a second."""

    now: bool | None
    minute: float | None
    hour: float | None
    boot: float | None
    counted: bool


class GpuThrottle(CardPane):
    """Reason by reason: now, the last minute, the last hour, since the driver was loaded."""

    FIELDS = ("gpu",)

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.own = OwnChanges()
        """Changes that the audit tells of."""

    def changes(self) -> object:
        return self.own

    def title(self, view: View) -> Line:
        return (("Throttle", "title"),)

    def lines(self, view: View) -> list[Row]:
        card = view.card
        if card is None:
            return no_card(view)
        spans = f"{right('LAST 60 s', SPAN)}{right('LAST HOUR', SPAN)}{right('SINCE BOOT', SPAN + 1)}"
        head = f"{left('REASON', NAME)}{right('NOW', NOW)}{spans}   WHAT IT MEANS"
        made = [Row(((head, "label"),))]
        lock = self._lock(card, view)
        for reason in shown(card):
            meaning = lock if reason == CLOCKS and lock else _meaning(reason, card)
            made.append(Row(_line(reason, spent(card, reason, view.history, view.mono), meaning)))
        made.append(Row(((_source(card, view), "dim"),)))
        return made

    def _lock(self, card: GpuState, view: View) -> str:
        host = view.snapshot.host.value
        boot = host.boot_wall if host is not None else None
        record = own_changes.setting(self.own, card.uuid, "gpu.clocks", boot)
        return "" if record is None else lock_words(record, view.clock(record.wall))


def shown(card: GpuState) -> list[str]:
    """The usual reasons, then whatever else is set or was counted."""
    others = [one.reason for one in card.throttle_counters if one.seconds and one.reason not in QUIET]
    others += list(card.throttle_now or ())
    return list(dict.fromkeys([*REASONS, *others]))


def spent(card: GpuState, reason: str, history: History, mono: float) -> Spent:
    """How long one reason held the clocks down."""
    now = None if card.throttle_now is None else reason in card.throttle_now
    total = next((one.seconds for one in card.throttle_counters if one.reason == reason), None)
    if total is not None:
        key = f"gpu.{card.index}.throttle.{reason}"
        return Spent(now, rise(history, key, mono, MINUTE, total), rise(history, key, mono, HOUR, total), total, True)
    if card.throttle_now is None:
        return Spent(now, None, None, None, False)
    key = f"gpu.{card.index}.throttled.{reason}"
    return Spent(now, float(len(history.values(key, mono, MINUTE))), None, None, False)


def rise(history: History, key: str, mono: float, span: int, total: float) -> float | None:
    """By how much a running total rose in the last `span` seconds, or since this console began if that is less."""
    values = history.values(key, mono, span)
    if not values:
        return None
    return max(0.0, total - values[0]) if total >= values[0] else total


def _line(reason: str, found: Spent, meaning: str) -> Line:
    now = "?" if found.now is None else "YES" if found.now else "no"
    bad = reason in BAD
    style = ("fail" if bad else "warn") if found.now else "unknown" if found.now is None else ""
    return (
        (left(REASONS.get(reason, reason.replace("_", " ")), NAME), "label"),
        (right(now, NOW), style),
        (_seconds(found.minute, SPAN), "warn" if bad and found.minute else "value"),
        (_seconds(found.hour, SPAN), "value"),
        (_seconds(found.boot, SPAN + 1), "value"),
        (f"   {meaning}", "dim"),
    )


def _seconds(value: float | None, cells: int) -> str:
    if value is None:
        return right("?", cells)
    if 0 < value < 1:
        return right(f"{value:.2f} s", cells)
    text = f"{value:.0f} s" if value < 100 else f"{int(value) // 60} m {int(value) % 60:02d}"
    if value >= HOUR:
        text = units.uptime(value)
    return right(text, cells)


def _meaning(reason: str, card: GpuState) -> str:
    if reason == "power_cap":
        limit = f" on a {card.power_limit_w:.0f} W limit" if card.power_limit_w else ""
        return f"normal at full load{limit}"
    return MEANINGS.get(reason, "")


def _source(card: GpuState, view: View) -> str:
    watched = _watched(view.history, card, view.mono)
    since = f"; watched for {units.uptime(watched)} so far" if watched < HOUR else ""
    if card.throttle_counters:
        return f"from the driver's counters; ? where it has none, then only what was seen once a second{since}"
    return "this driver has no counters: LAST 60 s is what was seen once a second, short ones are missed"


def _watched(history: History, card: GpuState, mono: float) -> float:
    """Seconds that this console has watched the card, at most an hour."""
    columns = history.columns(f"gpu.{card.index}.sm_mhz", mono, 10, HOUR // 10)
    first = next((number for number, value in enumerate(columns) if value is not None), len(columns))
    return float(10 * (len(columns) - first))
