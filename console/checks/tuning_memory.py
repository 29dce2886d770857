"""Host memory: huge pages, overcommit, swap and /dev/shm (F08-F11, F15)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.checks import box
from console.checks.box import BUS
from console.checks.check import Answer, check, note, ok, skip, unknown, warn
from console.checks.machine import MEMINFO, counted, meminfo, seen, weighed
from console.checks.tuning_fixes import SYSCTL_NEEDS, TMPFILES, sysctl_fix, sysfs_fix
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line
from console.core.units import GIB, MIB, gib, size

_THP = "/sys/kernel/mm/transparent_hugepage"
THP_ENABLED = f"{_THP}/enabled"
THP_DEFRAG = f"{_THP}/defrag"


@check(
    "F08",
    "huge pages do not stall requests",
    group="tuning",
    slug="transparent-huge-pages",
    needs=(THP_ENABLED, THP_DEFRAG, TMPFILES, BUS),
    why=(
        "With defrag at always, a process that wants memory waits while the kernel moves pages together to make a "
        "huge one. That is a stall of milliseconds in the middle of a request; huge pages themselves do no harm."
    ),
    source="Linux admin-guide/mm/transhuge",
)
def huge_pages(facts: Facts) -> Answer:
    text = facts.maybe(THP_ENABLED)
    if text is None:
        return skip("this kernel has no transparent huge pages")
    enabled = _chosen(THP_ENABLED, text)
    if enabled == "never":
        return ok("never", seen(THP_ENABLED, text))
    defrag_text = facts.text(THP_DEFRAG)
    defrag = _chosen(THP_DEFRAG, defrag_text)
    evidence = (*seen(THP_ENABLED, text), *seen(THP_DEFRAG, defrag_text))
    if defrag == "always":
        fix = sysfs_fix(facts, THP_DEFRAG, "madvise", defrag)
        return weighed(facts, warn(f"{enabled}, with defrag always: each fault may stall", evidence, fix))
    said = f"{enabled}, defrag {defrag}"
    return ok(said, evidence) if enabled == "madvise" else note(f"{said}; madvise is calmer for p99", evidence)


def _chosen(path: str, text: str) -> str:
    """`madvise` of `always [madvise] never`."""
    found = re.search(r"\[([a-z+]{1,20})\]", text)
    if found is None:
        raise Unknowable(f"{path} names no choice", f"cat {path}")
    return found.group(1)


OVERCOMMIT = "/proc/sys/vm/overcommit_memory"


@check(
    "F09",
    "memory may be overcommitted",
    group="tuning",
    slug="overcommit",
    needs=(OVERCOMMIT, MEMINFO, *SYSCTL_NEEDS),
    why=(
        "CUDA reserves address space far beyond what it uses. Under strict accounting (2) these reservations fail "
        "with out of memory while memory is free; the kernel's default (0) is right, and 1 is not needed."
    ),
    source="Linux mm/overcommit-accounting; seed report S1 5.2 asks for 1, which is not needed (host.md 2.16)",
)
def overcommit(facts: Facts) -> Answer:
    value = facts.text(OVERCOMMIT).strip()
    if value == "0":
        return ok("0, the kernel's default: large reservations are let through", seen(OVERCOMMIT, value))
    if value == "1":
        return ok("1: every reservation is let through", seen(OVERCOMMIT, value))
    if value != "2":
        return unknown(f"{OVERCOMMIT} is none of 0, 1 and 2", f"cat {OVERCOMMIT}")
    try:
        memory = meminfo(facts)
        limit, used = memory.get("CommitLimit", 0), memory.get("Committed_AS", 0)
        figures = f": {gib(used)} of {gib(limit)} GiB are promised"
    except Unknowable:
        figures = ""
    evidence = (*seen(OVERCOMMIT, value), *(facts.lines(MEMINFO, "^Commit") if figures else ()))
    return warn(f"2, strict{figures}", evidence, sysctl_fix(facts, "vm.overcommit_memory", 0, value))


_MUCH_HUGE = GIB


@check(
    "F10",
    "reserved huge pages are used",
    group="tuning",
    slug="huge-page-pool",
    needs=(MEMINFO,),
    why=(
        "Memory reserved as huge pages is lost to everything else, the server and the page cache of its models "
        "included. Triton itself uses none of the pool."
    ),
    source="Linux admin-guide/mm/hugetlbpage",
)
def huge_page_pool(facts: Facts) -> Answer:
    memory = meminfo(facts)
    total, free, held = (memory.get(f"HugePages_{name}", 0) for name in ("Total", "Free", "Rsvd"))
    if total <= 0:
        return ok("none are reserved")
    page = memory.get("Hugepagesize", 0)
    evidence = facts.lines(MEMINFO, r"^Huge")
    said = f"{total} of {size(page)} are reserved ({size(total * page)})"
    if free < total or held:
        return note(f"{said}, {total - free} used", evidence)
    if total * page < _MUCH_HUGE:
        return note(f"{said}, none used", evidence)
    fix = Fix(
        "S",
        ("grep -rn nr_hugepages /etc/sysctl.conf /etc/sysctl.d /etc/tuned", "sudo sysctl -w vm.nr_hugepages=0"),
        "now; where a file sets it, it comes back at the next boot. Ask who wanted them: a database may be stopped",
        f"sudo sysctl -w vm.nr_hugepages={total}",
    )
    return warn(f"{said}, none used", evidence, fix)


SWAPPINESS = "/proc/sys/vm/swappiness"
_STATUS = "/proc/{container_pid}/status"
_SAMPLES = "@samples"
_LOW_SWAPPINESS = 10
_MUCH_SWAPPED = 0.1
_SOME_SWAPPED = 64 * MIB


@check(
    "F11",
    "the server is not swapped out",
    group="tuning",
    slug="swap",
    needs=(SWAPPINESS, MEMINFO, _STATUS, _SAMPLES, BUS, *SYSCTL_NEEDS),
    why=(
        "A page of the server that lies in swap is read from disk when a request needs it, which takes as long as a "
        "thousand inferences may. It happens on boxes where nightly jobs fill the memory."
    ),
    source="Linux admin-guide/sysctl/vm (swappiness), proc(5)",
)
def swap(facts: Facts) -> Answer:
    memory = meminfo(facts)
    total = memory.get("SwapTotal", 0)
    if not total:
        return ok("no swap", facts.lines(MEMINFO, "^SwapTotal:"))
    used = total - memory.get("SwapFree", 0)
    blind: Unknowable | None = None
    text = ""
    try:
        text = facts.text(SWAPPINESS).strip()
    except Unknowable as why:
        blind = why
    value = counted(text)
    high = value is not None and value > _LOW_SWAPPINESS
    fix = sysctl_fix(facts, "vm.swappiness", _LOW_SWAPPINESS, text) if high else None
    evidence = facts.lines(MEMINFO, "^Swap(Total|Free):") + (seen(SWAPPINESS, text) if text else ())
    try:
        mine, share, line = _swapped(facts)
    except Unknowable as why:
        blind, mine, share, line = blind or why, 0, 0.0, ()
    if mine >= _SOME_SWAPPED and share >= _MUCH_SWAPPED:
        return warn(f"{size(mine)} of the server lie in swap ({100 * share:.0f} %)", (*line, *evidence), fix)
    into, out = _rates(facts) if facts.slow else (0.0, 0.0)
    if into or out:
        what = f"{into:g} pages/s in, {out:g} out"
        return weighed(facts, warn(f"the box swaps: {what}", (*evidence, Evidence(_SAMPLES, what)), fix))
    if blind is not None:
        raise blind
    if value is None:
        return unknown(f"{SWAPPINESS} is no number", f"cat {SWAPPINESS}")
    said = f"swappiness {value}, {size(used)} of {size(total)} swap used"
    return note(f"{said}; {_LOW_SWAPPINESS} is calmer", evidence) if high else ok(said, evidence)


def _swapped(facts: Facts) -> tuple[int, float, tuple[Evidence, ...]]:
    """(bytes of the server in swap, their share of its memory, the line); zeros where no server runs."""
    pids = facts.every("container_pid")
    if not pids:
        return 0, 0.0, ()
    path = f"/proc/{pids[0]}/status"
    found: dict[str, int] = {}
    for line in facts.lines(path, r"^Vm(RSS|Swap):"):
        name, _, rest = line.text.partition(":")
        words = rest.split()
        number = counted(words[0]) if words else None
        if number is not None:
            found[name] = number * 1024
    mine = found.get("VmSwap", 0)
    return mine, mine / max(1, mine + found.get("VmRSS", 0)), facts.lines(path, "^VmSwap:")


def _rates(facts: Facts) -> tuple[float, float]:
    answer = facts.answer(_SAMPLES)
    told = answer if isinstance(answer, Mapping) else {}
    rates = [told.get(name) for name in ("swap_in", "swap_out")]
    numbers = [float(rate) for rate in rates if isinstance(rate, int | float) and rate >= 0]
    if len(numbers) != 2:
        raise Unknowable("swapping was not sampled", "vmstat 1 3")
    return numbers[0], numbers[1]


_SHM = "/dev/shm"
_LITTLE_SHM = GIB


@check(
    "F15",
    "the host's /dev/shm has room",
    group="tuning",
    slug="host-shm",
    needs=(f"space {_SHM}", *box.CONTAINER),
    why=(
        "A container in the host's IPC namespace shares the host's /dev/shm: Python back ends pass their tensors "
        "through it. When it is full, a model fails to load or a request fails."
    ),
    source="podman-run(1) --ipc; Triton Python back end, shared memory",
)
def host_shm(facts: Facts) -> Answer:
    if none := box.no_container(facts):
        return skip(none)
    if box.at(box.inspect(facts), "HostConfig", "IpcMode") != "host":
        return skip("the container has a /dev/shm of its own (E08)")
    room = facts.space(_SHM)
    if room.free is None or room.total is None:
        return unknown("its size is not told", f"df {_SHM}")
    text = f"{size(room.free)} of {size(room.total)} are free"
    evidence = (Evidence(f"$ df {_SHM}", one_line(f"{room.fs} {room.mount}: {text}", 120)),)
    if room.total < _LITTLE_SHM or room.free < min(room.total // 10, _LITTLE_SHM):
        fix = Fix("S", ("sudo mount -o remount,size=50% /dev/shm", f"sudo du -sh {_SHM}/*"), "until the next boot", "")
        return warn(text, evidence, fix)
    return ok(text, evidence)
