"""The card's figures (design 1.12, right): each with what it does not mean; `–` with the reason where not given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import GpuState
from console.core.text import one_line
from console.tui import own_changes
from console.tui.own_changes import OwnChanges
from console.tui.panes.base import View
from console.tui.panes.gpu_memory import CardPane, no_card
from console.tui.panes.wording import sign
from console.tui.widgets.cells import Line, left, right
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.tui.desk import Record

NAME, FIGURE = 12, 5
HERE = "set here"
"""Beside a setting that is as a gpuconsole of this user left it in this boot."""


class GpuFacts(CardPane):
    """Utilisation to retired pages. A figure that this card does not give says so in its place."""

    FIELDS = ("gpu",)

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.own = OwnChanges()
        """Changes that the audit tells of."""

    def changes(self) -> object:
        return self.own

    def title(self, view: View) -> Line:
        card = view.card
        if card is None:
            return (("card", "title"),)
        uuid = one_line(card.uuid or "", 60)
        short = f"{uuid[:8]}…{uuid[-2:]}" if len(uuid) > 12 else uuid
        return ((f"GPU {card.index}  {one_line(card.name or '?', 60)}  {short}", "title"),)

    def note(self, view: View) -> Line:
        base = super().note(view)
        box = view.snapshot.gpu.value
        count = len(box.gpus) if box else 0
        switch: Line = ((f"{view.gpu + 1} of {count}  , .  ", "key"),) if count > 1 else ()
        return (*switch, *base)

    def lines(self, view: View) -> list[Row]:
        card = view.card
        if card is None:
            return no_card(view)
        made = list(_figures(card, view, _Ours(self.own, card, view)))
        if view.snapshot.gpu.is_old(view.mono):
            return [Row((("~ ", "old"), *row.line)) if not callable(row.line) else row for row in made]
        return made


class _Ours:
    """What this console has set on a card in this boot."""

    def __init__(self, own: OwnChanges, card: GpuState, view: View) -> None:
        self._own, self._uuid = own, card.uuid
        host = view.snapshot.host.value
        self._boot = host.boot_wall if host is not None else None

    def record(self, action: str) -> Record | None:
        """The change that set it last."""
        return own_changes.setting(self._own, self._uuid, action, self._boot)

    def here(self, action: str, name: str, now: str | None) -> bool:
        """True where what is so now is what that change left."""
        record = self.record(action)
        return record is not None and now is not None and own_changes.left(record, name) == now


def lock_words(record: Record | None, clock: str) -> str:
    """`locked 300–1590 by ops 14:02:31`; "" where no lock of ours is known. NVML cannot read it, so it is what was
    set, not what is."""
    value = "" if record is None else own_changes.left(record, "range")
    if record is None or value in ("", "reset", "not known"):
        return ""
    low, _, high = value.partition(",")
    span = low if low == high else f"{low}–{high}"
    return f"locked {one_line(span, 20)} by {one_line(record.intent.operator.short, 60)} {clock}"


def _figures(card: GpuState, view: View, ours: _Ours) -> Iterator[Row]:
    yield _one(card, "util", "util_pct", units.whole(card.util_pct), "%", "share of time a kernel ran, not")
    yield Row(((" " * (NAME + FIGURE + 6) + "how full the card was", "dim"),))
    yield _one(card, "mem ctrl", "mem_ctrl_pct", units.whole(card.mem_ctrl_pct), "%")
    lock = ours.record("gpu.clocks")
    told = lock_words(lock, "" if lock is None else view.clock(lock.wall))
    unlocked = lock is not None and own_changes.left(lock, "range") == "reset"
    note = "" if told else "no lock set here" if unlocked else "lock: cannot be read"
    yield _one(card, "SM clock", "sm_mhz", units.whole(card.sm_mhz), "MHz", _of(card.sm_max_mhz, note))
    if told:
        yield Row(((" " * NAME + told, "note"),))
    yield _one(card, "mem clock", "memory_mhz", units.whole(card.memory_mhz), "MHz", _of(card.memory_max_mhz))
    yield _one(card, "power", "power_w", units.whole(card.power_w), "W", _power(card, ours))
    yield _one(card, "temp", "temp_c", units.whole(card.temp_c), "°C", _heat(card))
    yield _one(card, "fan", "fan_pct", units.whole(card.fan_pct), "%")
    yield _one(card, "P-state", "pstate", "" if card.pstate is None else f"P{card.pstate}", "")
    yield _pcie(card)
    yield _persistence(card, ours)
    yield _ecc(card)
    yield _pages(card)


def _one(card: GpuState, name: str, field: str, figure: str, unit: str, note: str = "") -> Row:
    """Name, figure, unit, note; where the card gives none, the reason in the note's place."""
    if getattr(card, field) is None:
        reason = one_line(card.missing.get(field, "not given"), 80)
        return Row(((left(name, NAME), "label"), (right(units.NONE, FIGURE), "dim"), (f"      {reason}", "dim")))
    return Row(
        (
            (left(name, NAME), "label"),
            (right(figure, FIGURE), "value"),
            (f" {left(unit, 5)}", ""),
            (note, "dim"),
        )
    )


def _of(most: int | None, note: str = "") -> str:
    return "   ".join(part for part in (f"of {most}" if most else "", note) if part)


def _power(card: GpuState, ours: _Ours) -> str:
    limit = card.power_limit_w
    mine = f" {HERE}" if ours.here("gpu.power_limit", "watts", None if limit is None else f"{limit:g}") else ""
    parts = [f"limit {limit:.0f}{mine}" if limit else ""]
    parts.append(f"default {card.power_default_w:.0f}" if card.power_default_w else "")
    if card.power_min_w and card.power_max_w:
        parts.append(f"{card.power_min_w:.0f}–{card.power_max_w:.0f}")
    return ", ".join(part for part in parts if part)


def _heat(card: GpuState) -> str:
    parts = (
        f"slows at {card.temp_slowdown_c:.0f}" if card.temp_slowdown_c else "",
        f"off at {card.temp_shutdown_c:.0f}" if card.temp_shutdown_c else "",
    )
    return ", ".join(part for part in parts if part)


def _pcie(card: GpuState) -> Row:
    if card.pcie_gen is None and card.pcie_width is None:
        return _one(card, "PCIe", "pcie_gen", "", "")
    now = f"{card.pcie_gen or '?'} x{card.pcie_width or '?'}"
    most = f"can {card.pcie_gen_max or '?'} x{card.pcie_width_max or '?'}"
    narrow = bool(card.pcie_width and card.pcie_width_max and card.pcie_width < card.pcie_width_max)
    replays = "" if card.pcie_replays is None else f"   replays {card.pcie_replays}"
    made: Line = (
        (left("PCIe", NAME), "label"),
        (right(now, FIGURE + 2), "warn" if narrow else "value"),
        (f"     {most}{replays}", "dim"),
    )
    return Row((*made, ("  narrower than it can", "warn")) if narrow else made)


def _persistence(card: GpuState, ours: _Ours) -> Row:
    mode = one_line(card.compute_mode or "?", 30)
    note = f"      compute mode {mode}" + (
        f" {HERE}" if ours.here("gpu.compute_mode", "mode", card.compute_mode) else ""
    )
    if card.persistence is None:
        return _one(card, "persistence", "persistence", "", "")
    word = "on" if card.persistence else "off: every first use waits for the driver"
    if ours.here("gpu.persistence", "mode", "on" if card.persistence else "off"):
        word += f" {HERE}"
    return Row(
        (
            (left("persistence", NAME), "label"),
            sign("ok" if card.persistence else "note"),
            (f" {word}", ""),
            (note, "dim"),
        )
    )


def _ecc(card: GpuState) -> Row:
    if card.ecc_on is None:
        return _one(card, "ECC", "ecc_on", "", "")
    if not card.ecc_on:
        return Row(((left("ECC", NAME), "label"), sign("none"), (" off: memory errors pass unseen", "")))
    now, ever = card.ecc_uncorrected_now, card.ecc_uncorrected_ever
    errors = f"uncorrectable {_count(now)} now, {_count(ever)} ever"
    corrected = f"   corrected {_count(card.ecc_corrected_now)}" if card.ecc_corrected_now else ""
    return Row(
        (
            (left("ECC", NAME), "label"),
            sign("fail" if now else "ok"),
            (" on", ""),
            (f"      {errors}{corrected}", "dim"),
        )
    )


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _pages(card: GpuState) -> Row:
    """Retired pages on older cards, row remaps on newer ones."""
    if card.remapped_correctable is not None or card.remapped_uncorrectable is not None:
        total = (card.remapped_correctable or 0) + (card.remapped_uncorrectable or 0)
        bad = bool(card.remap_failed)
        state = "a remap FAILED" if bad else "pending: reset the card" if card.remap_pending else "none pending"
        value = sign("fail" if bad else "warn" if card.remap_pending else "ok")
        return Row(((left("rows", NAME), "label"), value, (f" {total} remapped, {state}", "")))
    if card.retired_pages is None:
        return _one(card, "pages", "retired_pages", "", "")
    state = "some pending: reset the card" if card.retired_pending else "none pending"
    value = sign("warn" if card.retired_pending else "ok")
    return Row(((left("pages", NAME), "label"), value, (f" {card.retired_pages} retired, {state}", "")))
