"""GPU on the Overview (screens.md 1.1 to 1.4): one card's state, in the form that its room and its health allow."""

from __future__ import annotations

from collections.abc import Iterable

from console.core import units
from console.core.model import Failure, GpuBox, GpuProcess, GpuState, KernelFault, Reading
from console.core.text import one_line
from console.core.xid_incidents import same_card
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import wrapped
from console.tui.signs import SIGNS
from console.tui.widgets.cells import Line, Segment, between, cut, left, line_width, right
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import meter, trend

FULL_WIDTH = 66
"""Cells from which meters, trends and the last hour's throttling have room."""
FLAT_WIDTH = 90
"""Cells from which two facts stand on a line: the pane has the screen's whole width, but few rows."""
TREND_STEP = 5.0
"""Seconds that one column of a trend stands for: only the last one changes in between."""
HEAT = ("heat_software", "heat_hardware")
OTHER_USE = 16 * units.MIB
"""Memory of other processes below this is not worth a word."""


class OverviewGpu(Pane):
    """The card in focus: use, memory, power, heat, clocks, throttling, health, processes."""

    FIELDS = ("gpu", "kernel", "container")
    AGE = "gpu"
    NUMBER = "8"

    def title(self, view: View) -> Line:
        box, card = view.snapshot.gpu.value, view.card
        if card is None:
            return (("GPU", "title"),)
        name = one_line(card.name or "unknown card", 40)
        of = f" of {len(box.gpus)}" if box and len(box.gpus) > 1 else ""
        told = "" if card.lost or not box or not box.driver else f"  driver {box.driver}"
        mig = "  MIG on" if card.mig_on else ""
        return ((f"GPU {card.index}{of}  {name}", "title"), (mig or told, "title"))

    def lines(self, view: View) -> list[Row]:
        return [Row(line) for line in gpu_lines(view)]


def gpu_lines(view: View) -> list[Line]:
    """The lines for this View: its width chooses the form."""
    reading = view.snapshot.gpu
    card = view.card
    if card is None:
        return _absent(reading, view)
    if reading.is_old(view.mono):
        return _old(reading, card, view)
    if card.lost is not None:
        return _lost(card, card.lost, view)
    if card.mig_on:
        return _mig(card, view)
    if view.compact:
        return _compact(card, view)
    if view.width >= FLAT_WIDTH:
        return _flat(card, view)
    return _full(card, view) if view.width >= FULL_WIDTH else _narrow(card, view)


# ------------------------------------------------------------------------------------------------------- whole forms


def _full(card: GpuState, view: View) -> list[Line]:
    return [
        _metered(
            "util", card, "util_pct", _share(card.util_pct, 100), units.whole(card.util_pct), "%", view, "util_pct"
        ),
        _memory_line(card, 20, view),
        _metered(
            "power",
            card,
            "power_w",
            _share(card.power_w, card.power_limit_w),
            units.whole(card.power_w),
            f"/ {units.whole(card.power_limit_w)} W",
            view,
            "power_w",
        ),
        _heat(card, 20),
        _clocks(card),
        _throttle(card, view),
        _health(card, view, long=True),
        _processes(card, view),
    ]


def _narrow(card: GpuState, view: View) -> list[Line]:
    """Under 66 cells: five lines (screens.md 1.3)."""
    reserved = "" if card.memory_reserved is None else f"  driver {units.gib(card.memory_reserved)}"
    throttled = throttle_words(card)
    return [
        (*_meter("util", _share(card.util_pct, 100), 16), *_number(card, "util_pct", units.whole(card.util_pct), " %")),
        (
            *_meter("VRAM", _share(card.memory_used, card.memory_total), 16),
            (right(_gib(card, "memory_used"), 6), "value"),
            (f" / {units.gib(card.memory_total)} GiB{reserved}", "dim"),
        ),
        (
            ("temp  ", "label"),
            (_figure(card, "temp_c", units.whole(card.temp_c)), _heat_style(card)),
            (" °C   ", "dim"),
            ("power ", "label"),
            (f"{units.whole(card.power_w)}/{units.whole(card.power_limit_w)} W   ", "value"),
            ("SM ", "label"),
            (f"{units.whole(card.sm_mhz)} of {units.whole(card.sm_max_mhz)} MHz   ", "value"),
            (f"P{units.whole(card.pstate)}" if card.pstate is not None else "", "dim"),
        ),
        *([(("throttle ", "label"), (throttled, "warn"))] if throttled not in ("none now", units.NONE) else []),
        _health(card, view, long=False),
        _processes(card, view),
    ]


def _compact(card: GpuState, view: View) -> list[Line]:
    """Two lines for 80 columns (screens.md 1.2)."""
    name = one_line(card.name or "", 30).removeprefix("NVIDIA ").removeprefix("Tesla ").split(" ")[0] or str(card.index)
    slow = "" if card.temp_slowdown_c is None else f" of {card.temp_slowdown_c:.0f}"
    full, rest = meter(_share(card.memory_used, card.memory_total), 18)
    held = card.memory_reserved or 0
    reserved = 1 if held and card.memory_total and rest else 0
    others = _others_memory(card, view)
    return [
        (
            (f"GPU {cut(name, 8)} ", "title"),
            ("util ", "label"),
            (f"{right(_figure(card, 'util_pct', units.whole(card.util_pct)), 4)} %   ", "value"),
            (f"SM {units.whole(card.sm_mhz)}/{units.whole(card.sm_max_mhz)} MHz   ", "value"),
            (f"{_figure(card, 'temp_c', units.whole(card.temp_c))} °C", _heat_style(card)),
            (f"{slow}    ", "dim"),
            (f"{units.whole(card.power_w)}/{units.whole(card.power_limit_w)} W   ", "value"),
            ("throttle ", "label"),
            (throttle_words(card).removesuffix(" now"), _throttle_style(card)),
        ),
        (
            ("VRAM ", "label"),
            (full, "bar"),
            ("▒" * reserved, "bar"),
            (rest[reserved:], "bar-rest"),
            (f"   {_gib(card, 'memory_used')}/{units.gib(card.memory_total)} GiB", "value"),
            (f" free {units.gib(card.memory_free)}", "dim"),
            (f"  others {units.NONE if others is None else units.gib(others)}  ", "dim"),
            *_faults(card, view),
            (f"  ECC {_ecc(card)}", "dim"),
            (f" {_pcie_now(card)}", "dim"),
        ),
    ]


def _flat(card: GpuState, view: View) -> list[Line]:
    """Four lines over the whole width, for 100 to 159 columns: two facts on each."""
    cells = 12 if view.width < 104 else 16
    power = f"/ {units.whole(card.power_limit_w)} W"
    pairs: list[tuple[Line, Line]] = [
        (
            (
                *_meter("util", _share(card.util_pct, 100), cells),
                *_number(card, "util_pct", units.whole(card.util_pct), left(" %", 9)),
            ),
            _memory_line(card, cells, view),
        ),
        (
            (
                *_meter("power", _share(card.power_w, card.power_limit_w), cells),
                *_number(card, "power_w", units.whole(card.power_w), left(f" {power}", 9)),
            ),
            _heat(card, cells),
        ),
        (_clocks(card)[:3], _throttle(card, view)),
        (_health(card, view, long=True), _processes(card, view, tight=True)),
    ]
    column = cells + 25
    return [(*between(first, (), max(column, line_width(first) + 2)), *second) for first, second in pairs]


# ---------------------------------------------------------------------------------------------------- troubled forms


def _absent(reading: Reading[GpuBox], view: View) -> list[Line]:
    """No card was read: why, as NVML or the PCI bus tells it."""
    if reading.value is not None or (reading.error is not None and _no_card(reading.error)):
        return [
            (("– no NVIDIA device on the PCI bus of this host", "text"),),
            (("  Triton on CPU is shown as usual", "dim"),),
        ]
    if reading.error is None:
        return [(("… not read yet", "dim"),)]
    return _failure(reading.error, view)


def _no_card(failure: Failure) -> bool:
    return "no NVIDIA" in failure.message and "driver" not in failure.message


def _failure(failure: Failure, view: View) -> list[Line]:
    """A failure in two or three lines: what, then what it means for the operator."""
    room = max(10, view.width - 2)
    told = wrapped(one_line(failure.message), room, most=3)
    hints = wrapped(one_line(failure.hint), room, most=3) if failure.hint else []
    first: Line = ((f"{SIGNS['fail']} ", "fail"), (told[0], "fail"))
    return [first, *((("  ", ""), (line, "text")) for line in (*told[1:], *hints))]


def _old(reading: Reading[GpuBox], card: GpuState, view: View) -> list[Line]:
    """NVML has not answered for three intervals: the last values, marked, and since when."""
    used = f"{units.gib(card.memory_used)} / {units.gib(card.memory_total)} GiB"
    why = f": {one_line(reading.error.message, 60)}" if reading.error and reading.error.kind != "timeout" else ""
    lines: list[Line] = [
        (
            ("util   ", "label"),
            (f"~ {units.whole(card.util_pct)} %", "old"),
            ("    VRAM ", "label"),
            (f"~ {used}", "old"),
            ("    temp ", "label"),
            (f"~ {units.whole(card.temp_c)} °C", "old"),
        ),
        ((f"~ read {view.clock(reading.wall)}; NVML has not answered since{why}", "warn"),),
        (("  the driver may hang: 5 Container still works", "dim"),),
    ]
    return lines


def _lost(card: GpuState, failure: Failure, view: View) -> list[Line]:
    """The card fell off the bus."""
    fault = last_xid(view, card)
    told = one_line(failure.message)
    if fault is not None:
        told = f"{told} since {view.clock(fault.wall)}, Xid {fault.xid}" if " since " not in told else told
    lines = _failure(Failure(failure.kind, told, failure.hint), view)
    return [*lines, (("  all models on it answer with errors from now", "text"),)]


def _mig(card: GpuState, view: View) -> list[Line]:
    """A MIG parent: NVML gives no utilisation; its instances with who uses them."""
    profiles: dict[str, int] = {}
    for one in card.mig:
        profiles[one.profile or "?"] = profiles.get(one.profile or "?", 0) + 1
    told = ", ".join(f"{name} x{count}" for name, count in profiles.items()) or "no instances"
    parts: list[Segment] = [("MIG ", "label"), (told, "value")]
    for one in card.mig:
        user = one.processes[0] if one.processes else None
        if user is None:
            parts.append((f"   {one.index} free", "dim"))
            continue
        who = process_name(user, view)
        of = f"/{units.gib(one.memory_total)}" if len(parts) == 2 else ""
        parts.append((f"   {one.index} {who} {units.gib(one.memory_used)}{of}", "value"))
    return [
        (
            ("util   ", "label"),
            ("– not given for a MIG card     ", "dim"),
            ("power ", "label"),
            (f"{units.whole(card.power_w)} / {units.whole(card.power_limit_w)} W", "value"),
        ),
        tuple(parts),
        (
            ("temp   ", "label"),
            (f"{units.whole(card.temp_c)} °C", _heat_style(card)),
            (f"   ECC {_ecc(card)}   ", "dim"),
            *_faults(card, view),
        ),
    ]


# ------------------------------------------------------------------------------------------------------- single lines


def _meter(label: str, share: float | None, cells: int) -> Line:
    full, rest = meter(share, cells)
    return ((left(label, 7), "label"), (full, "bar"), (rest, "bar-rest"))


def _number(card: GpuState, field: str, text: str, unit: str) -> Line:
    return ((right(_figure(card, field, text), 6), "value"), (unit, "dim"))


def _metered(
    label: str, card: GpuState, field: str, share: float | None, text: str, unit: str, view: View, series: str
) -> Line:
    """Label, meter, figure, unit, and a trend of the last 80 s."""
    values = view.history.columns(f"gpu.{card.index}.{series}", view.edge(view.snapshot.gpu), TREND_STEP, 16)
    high = (card.power_limit_w or 0.0) if series == "power_w" else 100.0
    return (
        *_meter(label, share, 20),
        (right(_figure(card, field, text), 6), "value"),
        (left(f" {unit}", 11), "dim"),
        (trend(values, 0.0, high, 16), "bar"),
    )


def _memory_line(card: GpuState, cells: int, view: View) -> Line:
    """Used of total, free, and what the driver holds back."""
    told = f" / {units.gib(card.memory_total)} GiB"
    parts = [f"free {units.gib(card.memory_free)}"]
    if card.memory_reserved is not None:
        parts.append(f"driver {units.gib(card.memory_reserved)}")
    start: Line = (
        *_meter("VRAM", _share(card.memory_used, card.memory_total), cells),
        (right(_gib(card, "memory_used"), 6), "value"),
        (told, "dim"),
    )
    gap = "  " if line_width(start) + sum(len(part) + 2 for part in parts) <= view.width else " "
    return (*start, ("".join(gap + part for part in parts), "dim"))


def _heat(card: GpuState, cells: int) -> Line:
    slow = "" if card.temp_slowdown_c is None else f"slows at {card.temp_slowdown_c:.0f}"
    return (
        *_meter("temp", _share(card.temp_c, card.temp_slowdown_c), cells),
        (right(_figure(card, "temp_c", units.whole(card.temp_c)), 6), _heat_style(card)),
        (left(" °C", 11), "dim"),
        (slow, "dim"),
    )


def _clocks(card: GpuState) -> Line:
    state = f"   P{card.pstate}" if card.pstate is not None else ""
    return (
        ("clock  ", "label"),
        (f"SM {_figure(card, 'sm_mhz', units.whole(card.sm_mhz))}", "value"),
        (f" of {units.whole(card.sm_max_mhz)} MHz   ", "dim"),
        (f"mem {_figure(card, 'memory_mhz', units.whole(card.memory_mhz))}", "value"),
        (f" of {units.whole(card.memory_max_mhz)}{state}", "dim"),
    )


def _throttle(card: GpuState, view: View) -> Line:
    """The reasons that hold now, and for how many seconds each held within the last hour."""
    told, heat = _throttled(card, view)
    return (
        ("throttle ", "label"),
        (left(throttle_words(card), 13), _throttle_style(card)),
        (told, "warn" if heat >= 1 else "dim"),
    )


def _throttled(card: GpuState, view: View) -> tuple[str, float]:
    """`last hour: heat 0 s, power cap 12 s` from the driver's counters, as far back as this console watched; without
    counters what was seen once a second in the last ten minutes. And the seconds of heat."""
    prefix = f"gpu.{card.index}"
    if card.throttle_counters:
        watched = len(view.history.values(f"{prefix}.throttle.{card.throttle_counters[0].reason}", view.mono, 3600.0))
        span = "last hour" if watched >= 359 else f"last {units.age(10.0 * watched)}"
        heat, power = (_counted(view, prefix, reasons) for reasons in (HEAT, ("power_cap",)))
    elif card.throttle_now is not None:
        span = "last 10 m"
        heat, power = (
            float(sum(len(view.history.values(f"{prefix}.throttled.{name}", view.mono, 600.0)) for name in reasons))
            for reasons in (HEAT, ("power_cap",))
        )
    else:
        return "", 0.0
    return f"{span}: heat {heat:.0f} s, power cap {power:.0f} s", heat


def _counted(view: View, prefix: str, reasons: Iterable[str]) -> float:
    total = 0.0
    for reason in reasons:
        values = view.history.values(f"{prefix}.throttle.{reason}", view.mono, 3600.0)
        total += max(0.0, values[-1] - values[0]) if values else 0.0
    return total


def throttle_words(card: GpuState) -> str:
    """`none now`, `power cap`, `too hot`; `–` when the card does not tell."""
    if card.throttle_now is None:
        return units.NONE
    words = {"heat_software": "too hot", "heat_hardware": "too hot", "power_brake": "power brake"}
    told = list(dict.fromkeys(words.get(reason, reason.replace("_", " ")) for reason in card.throttle_now))
    return ", ".join(told) or "none now"


def _throttle_style(card: GpuState) -> str:
    if card.throttle_now is None or not card.throttle_now:
        return "value"
    return "fail" if any(reason in HEAT for reason in card.throttle_now) else "note"


def _health(card: GpuState, view: View, *, long: bool) -> Line:
    boot = ""
    if not long and view.snapshot.kernel.value is not None and view.snapshot.host.value is not None:
        boot = f" {view.clock(view.snapshot.host.value.boot_wall)[:5]}"
    bad = bool(card.ecc_uncorrected_now or card.retired_pending or card.remap_failed or last_xid(view, card))
    lamp: Segment = (SIGNS["fail"], "fail") if bad else (SIGNS["ok"], "ok")
    retired = f"  retired {units.whole(card.retired_pages)}" if long else ""
    width = f"  PCIe {_pcie_now(card)}"
    if long and card.pcie_width_max is not None:
        width += f" of {units.whole(card.pcie_gen_max)}x{units.whole(card.pcie_width_max)}"
    elif not long and card.pcie_gen == 1:
        width += " idle"
    return (
        ("health ", "label"),
        lamp,
        (" ", ""),
        *_faults(card, view, since=f" since boot{boot}"),
        (f"  ECC {_ecc(card)}{retired}{width}", "dim"),
    )


def _faults(card: GpuState, view: View, since: str = "") -> Line:
    """`Xid 0`, `Xid 79 14:03:12`, or `Xid ?` where the kernel log cannot be read."""
    if view.snapshot.kernel.value is None:
        return (("Xid ?", "unknown"),)
    fault = last_xid(view, card)
    if fault is None:
        return ((f"Xid 0{since}", "dim"),)
    return ((f"Xid {fault.xid} {view.clock(fault.wall)}", "fail"),)


def last_xid(view: View, card: GpuState) -> KernelFault | None:
    """The newest Xid of this card since boot."""
    log = view.snapshot.kernel.value
    for fault in reversed(log.faults if log else ()):
        if fault.kind == "xid" and same_card(fault.pci_bus_id, card.pci_bus_id):
            return fault
    return None


def _ecc(card: GpuState) -> str:
    if card.ecc_on is False:
        return "off"
    return units.whole(card.ecc_uncorrected_now)


def _pcie_now(card: GpuState) -> str:
    if card.pcie_gen is None and card.pcie_width is None:
        return units.NONE
    return f"{units.whole(card.pcie_gen)}x{units.whole(card.pcie_width)}"


def _processes(card: GpuState, view: View, *, tight: bool = False) -> Line:
    if card.processes is None:
        return (("procs  ", "label"), ("? could not be listed", "unknown"))
    ours, others = split_processes(card.processes, view)
    if not card.processes:
        return (("procs  ", "label"), ("none", "value"))
    told = _users(ours, view) if ours else "none of Triton"
    other = _users(others, view) if others else "none"
    return (
        ("" if tight else "procs  ", "label"),
        (f"{told}  " if tight else f"{left(told, 22)} ", "value"),
        ("others ", "label"),
        (other, "warn" if (_memory(others) or 0) >= 256 * units.MIB else "value"),
    )


def split_processes(
    processes: tuple[GpuProcess, ...], view: View
) -> tuple[tuple[GpuProcess, ...], tuple[GpuProcess, ...]]:
    """(those of the Triton container, all others)."""
    podman = view.snapshot.container.value
    ours = podman.container.id if podman and podman.container else None
    mine = tuple(one for one in processes if ours is not None and one.container_id == ours)
    return mine, tuple(one for one in processes if one not in mine)


def _users(processes: tuple[GpuProcess, ...], view: View) -> str:
    """`triton 5.7 GiB`, or the names with what they use together."""
    names = list(dict.fromkeys(process_name(one, view) for one in processes))
    memory = _memory(processes)
    told = ", ".join(names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else "")
    return f"{told} {units.NONE if memory is None else units.gib(memory)} GiB"


def process_name(one: GpuProcess, view: View) -> str:
    """The container's name for Triton's processes, the command of others."""
    podman = view.snapshot.container.value
    if podman and podman.container and one.container_id == podman.container.id:
        return one_line(podman.container.name, 16)
    command = (one.command or f"pid {one.pid}").strip().split(" ")[0].rsplit("/", 1)[-1]
    return one_line(command, 16)


def _memory(processes: tuple[GpuProcess, ...]) -> int | None:
    known = [one.memory for one in processes if one.memory is not None]
    return sum(known) if known else None


def _others_memory(card: GpuState, view: View) -> int | None:
    if card.processes is None:
        return None
    _, others = split_processes(card.processes, view)
    return 0 if not others else _memory(others)


def _share(value: float | None, top: float | None) -> float | None:
    return None if value is None or not top else value / top


def _gib(card: GpuState, field: str) -> str:
    return _figure(card, field, units.gib(getattr(card, field)))


def _figure(card: GpuState, field: str, text: str) -> str:
    """The figure, `–` when this card does not give it, `?` when it could not be read."""
    if text != units.NONE:
        return text
    why = card.missing.get(field, "")
    return "?" if "could not" in why or "error" in why.casefold() else units.NONE


def _heat_style(card: GpuState) -> str:
    if card.temp_c is None or card.temp_slowdown_c is None:
        return "value"
    return "warn" if card.temp_c >= card.temp_slowdown_c - 3 else "value"
