"""Verdicts about the card: V05 to V11."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from console.advisors.memory import Break
from console.advisors.rule import MAX_NAME, Look, rule, verdict
from console.core import units
from console.core.model import Event, GpuProcess, GpuState, KernelFault, ModelRow, Verdict
from console.core.slowing import HEAT, counted_share, seen_samples
from console.core.text import one_line
from console.core.xid_incidents import same_card

_RECOVERY = re.compile(r"recovery action changed from .* to 0x([0-9a-f]+) \(([^)]+)\)", re.IGNORECASE)
_NVML_CODE = re.compile(r"\berror (\d+)\b", re.IGNORECASE)
MISMATCH, NOT_LOADED = 18, 9
BROKEN_DRIVER = (MISMATCH, NOT_LOADED)
"""NVML errors that are verdicts of their own, not blind spots."""
SHOWN = 3
"""Names listed in a sentence."""


def cards(look: Look) -> Sequence[GpuState]:
    """Cards that answer now."""
    box = look.fresh(look.snapshot.gpu)
    return [gpu for gpu in box.gpus if gpu.lost is None] if box else ()


# ------------------------------------------------------------------------------------------------------------- faults


@rule("V05")
def faults(look: Look) -> Iterator[Verdict]:
    """The card or its driver fails: lost, an Xid that wants a reset, a recovery action, ECC, a driver mismatch."""
    yield from _driver(look)
    box = look.snapshot.gpu.value
    for gpu in box.gpus if box else ():
        found = _lost(look, gpu) or _recovery(look, gpu) or _xid(look, gpu) or _ecc(look, gpu)
        if found is not None:
            yield found
    if box is None or not box.gpus:
        found = _xid(look, None)
        if found is not None:
            yield found


def nvml_code(text: str) -> int | None:
    """The NVML error number in a message such as `NVML error 18: …`; None when it holds none."""
    match = _NVML_CODE.search(text) if "nvml" in text.lower() else None
    return int(match.group(1)) if match else None


def _driver(look: Look) -> Iterator[Verdict]:
    error = look.snapshot.gpu.error
    code = nvml_code(error.message) if error else None
    if error is None or code not in BROKEN_DRIVER:
        return
    case = "mismatch" if code == MISMATCH else "not_loaded"
    entry = look.entry("V05")
    yield verdict(
        look,
        "V05",
        entry.say(case, error=one_line(error.message, 200)),
        [entry.say(f"{case}_line"), one_line(error.hint, 200)],
        source="NVML",
    )


def _lost(look: Look, gpu: GpuState) -> Verdict | None:
    if gpu.lost is None:
        return None
    entry = look.entry("V05")
    event = _newest(look, "gpu.lost", f"GPU {gpu.index} ")
    since = f" since {units.clock(event.wall)}" if event else ""
    xid = _worst_xid(look, gpu)
    lines = [entry.say("lost_line"), one_line(gpu.lost.hint, 200), _xid_title(look, gpu, xid) if xid else ""]
    title = entry.say("lost", gpu=gpu.index, since=since, error=one_line(gpu.lost.message, 200))
    return verdict(look, "V05", title, lines, since_wall=event.wall if event else None, source="NVML, kernel log")


def _recovery(look: Look, gpu: GpuState) -> Verdict | None:
    if gpu.recovery_action in (None, "none"):
        return None
    title = look.entry("V05").say("recovery", gpu=gpu.index, action=str(gpu.recovery_action).replace("_", " "))
    xid = _worst_xid(look, gpu)
    return verdict(look, "V05", title, [_xid_title(look, gpu, xid)] if xid else [], source="NVML, kernel log")


def _xid(look: Look, gpu: GpuState | None) -> Verdict | None:
    fault = _worst_xid(look, gpu)
    if fault is None:
        return None
    same = [one for one in _xids(look, gpu) if one.xid == fault.xid]
    lines = [one_line(fault.text, 200), look.entry("V05").say("times", n=len(same)) if len(same) > 1 else ""]
    return verdict(
        look, "V05", _xid_title(look, gpu, fault), lines, since_wall=fault.wall, source="kernel log", figures=fault.text
    )


def _ecc(look: Look, gpu: GpuState) -> Verdict | None:
    event = _newest(look, "ecc", f"GPU {gpu.index}:")
    if event is None or look.wall - event.wall > look.entry("V05").limit("recent_s"):
        return None
    title = look.entry("V05").say("ecc", gpu=gpu.index, n=gpu.ecc_uncorrected_now)
    return verdict(look, "V05", title, [one_line(event.text, 200)], since_wall=event.wall, source="NVML")


def _newest(look: Look, kind: str, text: str) -> Event | None:
    return next((e for e in reversed(look.snapshot.events) if e.kind == kind and e.text.startswith(text)), None)


def _xids(look: Look, gpu: GpuState | None) -> list[KernelFault]:
    log = look.snapshot.kernel.value
    found = [fault for fault in (log.faults if log else ()) if fault.kind == "xid" and fault.xid is not None]
    if gpu is None:
        return found
    return [fault for fault in found if same_card(fault.pci_bus_id, gpu.pci_bus_id)]


def _action(look: Look, fault: KernelFault) -> str:
    """What NVIDIA's catalogue says to do; "" for an Xid that needs neither reset nor restart."""
    entry = look.entry("V05")
    changed = _RECOVERY.search(fault.text) if fault.xid == 154 else None
    if changed is not None:
        return "" if int(changed.group(1), 16) == 0 else one_line(changed.group(2), MAX_NAME)
    if fault.xid in entry.limits["xid_node"]:
        return entry.say("node")
    return entry.say("reset") if fault.xid in entry.limits["xid_reset"] else ""


def _worst_xid(look: Look, gpu: GpuState | None) -> KernelFault | None:
    """The newest of those that name an action, a restart of the host before the rest."""
    named = [fault for fault in _xids(look, gpu) if _action(look, fault)]
    node = look.entry("V05").limits["xid_node"]
    return max(named, key=lambda fault: (fault.xid in node, fault.xid == 154, fault.wall), default=None)


def _xid_title(look: Look, gpu: GpuState | None, fault: KernelFault) -> str:
    name = gpu.index if gpu else one_line(fault.pci_bus_id or "", MAX_NAME)
    return look.entry("V05").say(
        "xid", gpu=name, xid=fault.xid, clock=units.clock(fault.wall), action=_action(look, fault)
    )


# ------------------------------------------------------------------------------------------------------------- clocks


def _slowed(look: Look, gpu: GpuState, reasons: Sequence[str], id_: str) -> str:
    """How it is known that the card is slowed for one of the reasons; "" when it is not."""
    entry, words = look.entry(id_), look.entry("V06")
    share = counted_share(look.history, look.mono, gpu.index, reasons)
    if share is not None and share >= entry.limit("counter_share"):
        return words.say("counted", pct=units.percent(share))
    samples = seen_samples(look.history, look.mono, gpu.index, reasons)
    return words.say("sampled", n=samples) if samples >= entry.limit("samples") else ""


POWER = ("power_cap",)


@rule("V06")
def heat(look: Look) -> Iterator[Verdict]:
    """The card slows itself down for heat."""
    entry = look.entry("V06")
    for gpu in cards(look):
        if gpu.sm_mhz is None or not gpu.sm_max_mhz or gpu.util_pct is None:
            continue
        if gpu.sm_mhz >= entry.limit("clock_share") * gpu.sm_max_mhz or gpu.util_pct < entry.limit("util_pct"):
            continue
        how = _slowed(look, gpu, HEAT, "V06")
        if how:
            title = entry.say("title", gpu=gpu.index, temp=units.whole(gpu.temp_c), sm=gpu.sm_mhz, max=gpu.sm_max_mhz)
            hours = ", ".join(map(str, look.history.heat_hours))
            lines = [how, entry.say("hours", hours=hours)] if hours else [how]
            yield verdict(look, "V06", title, lines, figures=_clock_figures(gpu), source="NVML")


def _clock_figures(gpu: GpuState) -> str:
    return (
        f"SM {units.whole(gpu.sm_mhz)} of {units.whole(gpu.sm_max_mhz)} MHz   util {units.whole(gpu.util_pct)} %"
        f"   {units.whole(gpu.temp_c)} °C   {units.whole(gpu.power_w)} of {units.whole(gpu.power_limit_w)} W"
    )


@rule("V07")
def power(look: Look) -> Iterator[Verdict]:
    """The card is at its power limit: a note, and a warning where batches take longer for it."""
    entry = look.entry("V07")
    for gpu in cards(look):
        how = _slowed(look, gpu, POWER, "V07")
        if not how:
            continue
        for figures in look.active:
            known = look.memory.uncapped.get(figures.row.name, {})
            now = {batch.size: batch for batch in figures.window.batches if batch.runs >= entry.limit("min_runs")}
            like = [size for size in now if size in known and known[size].runs >= entry.limit("min_runs")]
            worst = max(like, key=lambda size: now[size].runs, default=None)
            if worst is None or now[worst].ms_per_run < entry.limit("slower") * known[worst].ms:
                continue
            longer = units.whole(100 * (now[worst].ms_per_run / known[worst].ms - 1))
            lines = [
                entry.say(
                    "line", b=worst, now=units.millis(now[worst].ms_per_run), before=units.millis(known[worst].ms)
                ),
                how,
            ]
            title = entry.say("slower", gpu=gpu.index, m=figures.label, pct=longer)
            yield verdict(look, "V07", title, lines, model=figures.row, sign="warn", source="NVML, statistics")
            break
        else:
            title = entry.say("title", gpu=gpu.index)
            yield verdict(look, "V07", title, [how], figures=_clock_figures(gpu), source="NVML")


APPLICATION_CLOCK_BITS = 0x3
"""nvml.h: GpuIdle 0x1, ApplicationsClocksSetting 0x2."""


@rule("V08")
def clocks(look: Look) -> Iterator[Verdict]:
    """The clocks are low and no reason is given."""
    entry = look.entry("V08")
    for gpu in cards(look):
        if gpu.sm_mhz is None or not gpu.sm_max_mhz or gpu.util_pct is None or gpu.throttle_now is None:
            continue
        if gpu.sm_mhz >= entry.limit("clock_share") * gpu.sm_max_mhz or gpu.util_pct < entry.limit("util_pct"):
            continue
        if gpu.throttle_bits is not None:
            reason = bool(gpu.throttle_bits & ~APPLICATION_CLOCK_BITS)
        else:
            reason = bool(set(gpu.throttle_now) - {"applications_clocks"})
        if not reason and not _slowed(look, gpu, HEAT, "V06") and not _slowed(look, gpu, POWER, "V07"):
            title = entry.say("title", gpu=gpu.index, sm=gpu.sm_mhz, max=gpu.sm_max_mhz)
            yield verdict(look, "V08", title, [entry.say("line")], figures=_clock_figures(gpu), source="NVML")


# ------------------------------------------------------------------------------------------------------------- memory


@rule("V09")
def shared(look: Look) -> Iterator[Verdict]:
    """Somebody else's process uses the card."""
    entry = look.entry("V09")
    ours = look.container.id if look.container else None
    for gpu in cards(look):
        others = [one for one in gpu.processes or () if foreign(one, ours)]
        large = [
            one
            for one in others
            if (one.memory or 0) >= entry.limit("memory_mib") * units.MIB
            or (one.sm_pct or 0) >= entry.limit("util_pct")
        ]
        if not large:
            continue
        first, *rest = sorted(large, key=lambda one: (-(one.memory or 0), one.pid))
        names = ", ".join(command_of(one) for one in rest[:SHOWN])
        lines = [entry.say("more", n=len(rest), names=names) if rest else "", entry.say("line")]
        user = f", {one_line(first.user, MAX_NAME)}" if first.user else ""
        title = entry.say("title", command=command_of(first), pid=first.pid, user=user, gpu=gpu.index, what=_use(first))
        yield verdict(look, "V09", title, lines, source="NVML, /proc", since_wall=first.started_wall)


def foreign(process: GpuProcess, ours: str | None) -> bool:
    """True when it surely runs elsewhere than Triton; False where that cannot be told."""
    if process.model is not None or "tritonserver" in (process.command or ""):
        return False
    if process.container_id is not None:
        return ours is not None and process.container_id != ours
    return process.in_container is False and ours is not None


def command_of(process: GpuProcess) -> str:
    words = (process.command or "a process").split()
    return one_line(words[0].rsplit("/", 1)[-1] if words else "a process", MAX_NAME)


def _use(process: GpuProcess) -> str:
    told = [units.size(process.memory)] if process.memory is not None else []
    return ", ".join([*told, *([f"{process.sm_pct:.0f} % util"] if process.sm_pct else [])]) or "memory not told"


@rule("V10")
def room(look: Look) -> Iterator[Verdict]:
    """A reload does not fit beside what runs."""
    entry = look.entry("V10")
    for gpu in cards(look):
        if not gpu.memory_total or gpu.memory_free is None:
            continue
        needy = [row for row in _on_card(look, gpu) if row.memory is not None and row.memory > gpu.memory_free]
        needy.sort(key=lambda row: (-(row.memory or 0), row.name))
        used = 1 - gpu.memory_free / gpu.memory_total
        figures = f"used {units.percent(used)} %   free {units.size(gpu.memory_free)}"
        if needy:
            first, *rest = needy
            title = entry.say(
                "title", m=look.label(first), needs=units.gib(first.memory), free=units.gib(gpu.memory_free)
            )
            names = ", ".join(look.label(row) for row in rest[:SHOWN])
            lines = [entry.say("more", names=names) if rest else "", entry.say("line")]
            trust = "sure" if first.memory_origin == "seen at load" else None
            yield verdict(
                look, "V10", title, lines, model=first, trust=trust, figures=figures, source="NVML, seen at load"
            )
        elif used >= entry.limit("used_share"):
            total, taken = gpu.memory_total, gpu.memory_total - gpu.memory_free
            title = entry.say(
                "full", gpu=gpu.index, pct=units.percent(used), used=units.gib(taken), total=units.gib(total)
            )
            yield verdict(look, "V10", title, [entry.say("full_line")], figures=figures, source="NVML")


def _on_card(look: Look, gpu: GpuState) -> Iterator[ModelRow]:
    for row in look.ready:
        groups = row.config.instance_groups if row.config else ()
        placed = {index for group in groups for index in group.gpus}
        if not placed or gpu.index in placed:
            yield row


@rule("V11")
def leak(look: Look) -> Iterator[Verdict]:
    """Memory that did not come back after a reload that this console saw."""
    entry = look.entry("V11")
    if any(row.state in ("LOADING", "UNLOADING") for row in look.snapshot.models):
        return
    sizes = {row.name: row.memory for row in look.ready if row.memory}
    for name, event in look.memory.breaks.items():
        age = look.wall - event.wall
        if name not in sizes or event.kind == "change" or not entry.limit("after_s") <= age <= entry.limit("for_s"):
            continue
        for gpu in cards(look):
            grown = _grown(look, gpu, event)
            if grown is not None and grown >= entry.limit("model_share") * sizes[name]:
                row = next(row for row in look.ready if row.name == name)
                title = entry.say("title", size=units.size(grown), m=look.label(row), clock=units.clock(event.wall))
                yield verdict(
                    look, "V11", title, [entry.say("line")], model=row, since_wall=event.wall, source="NVML, statistics"
                )
                break


def _grown(look: Look, gpu: GpuState, event: Break) -> int | None:
    """Bytes that the same processes hold more than before the event; None when that cannot be told."""
    before = look.memory.card_before(
        gpu.index, look.mono - (look.wall - event.wall) - look.entry("V11").limit("before_s")
    )
    if before is None or gpu.memory_used is None or gpu.processes is None:
        return None
    same = before.pids == frozenset(one.pid for one in gpu.processes)
    return gpu.memory_used - before.used if same else None
