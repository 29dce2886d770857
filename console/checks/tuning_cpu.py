"""The processors: governor, energy preference, turbo, how many there are, and what a hypervisor takes (F01-F03, F16,
F19)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from console.checks import box
from console.checks.box import BUS, NO_DEVICE
from console.checks.check import Answer, check, note, ok, skip, unknown, warn
from console.checks.machine import (
    CPUS,
    MEMINFO,
    VIRTUAL,
    counted,
    cpus,
    is_container,
    meminfo,
    seen,
    texts,
    virtual,
    weighed,
)
from console.checks.tuning_fixes import TMPFILES, TUNED_NEEDS, profile_fix, sysfs_fix
from console.core.facts import Evidence, Facts, Unknowable
from console.core.units import GIB, gib

_CPU = "/sys/devices/system/cpu"
GOVERNORS = f"{_CPU}/cpu*/cpufreq/scaling_governor"
_DRIVER = f"{_CPU}/cpu0/cpufreq/scaling_driver"
_WORD = re.compile(r"[a-z_]{1,30}|\d{1,3}", re.ASCII)
_BY_HARDWARE = frozenset({"intel_pstate", "amd-pstate-epp"})
"""Drivers that leave the choice to the processor: `powersave` is then only a hint, weighed by the preference."""


@check(
    "F01",
    "CPU governor is performance",
    group="tuning",
    slug="cpu-governor",
    needs=(GOVERNORS, _DRIVER, TMPFILES, BUS, *TUNED_NEEDS),
    why=(
        "Between two requests an idle processor is slowed down, and the next request waits until it is fast again. "
        "Pre-processing, batching and the launch of kernels all run on the processor, so this shows in p99."
    ),
    source="redhat-performance/tuned profiles; triton-inference-server/server#4875",
)
def governor(facts: Facts) -> Answer:
    found, blind = texts(facts, facts.glob(GOVERNORS))
    if not found and blind is None:
        return skip("no frequency control here: a virtual machine, or the firmware has it")
    bad = {path: word for path, word in found.items() if word != "performance"}
    driver = _text_or_nothing(facts, _DRIVER)
    if set(bad.values()) == {"powersave"} and driver in _BY_HARDWARE:
        return note(f"powersave under {driver}: the CPU chooses, F02 judges how", seen(*next(iter(bad.items()))))
    if not bad and blind is not None:
        raise blind
    return _performance(facts, GOVERNORS, "governor", found, bad)


def _performance(facts: Facts, files: str, what: str, found: Mapping[str, str], bad: Mapping[str, str]) -> Answer:
    """`bad`: those of the words found, a file for each CPU, that are not performance."""
    if not bad:
        return ok(f"performance on {len(found)} CPUs", seen(*next(iter(found.items()))))
    word, count = Counter(bad.values()).most_common(1)[0]
    evidence = seen(*next((path, text) for path, text in bad.items() if text == word))
    if not _WORD.fullmatch(word):
        return unknown(f"what the kernel says is no {what}", f"cat {files}")
    fix = profile_fix(facts) or sysfs_fix(facts, files, "performance", word)
    return weighed(facts, warn(f"{word} on {count} of {len(found)} CPUs", evidence, fix))


PREFERENCES = f"{_CPU}/cpu*/cpufreq/energy_performance_preference"
BIASES = f"{_CPU}/cpu*/power/energy_perf_bias"
_BALANCED = 128
"""Of 0 (performance) to 255 (power), as the kernel maps `balance_performance`."""
_MOST_BIAS = 4


@check(
    "F02",
    "CPU prefers performance to energy",
    group="tuning",
    slug="cpu-energy-preference",
    needs=(PREFERENCES, BIASES, TMPFILES, BUS, *TUNED_NEEDS),
    why=(
        "Where the processor chooses its own frequency, this preference tells it how quickly to go up. Anything but "
        "performance makes it wait for load, so that short requests are served at a low frequency."
    ),
    source="Linux admin-guide/pm/intel_pstate; redhat-performance/tuned profiles",
)
def preference(facts: Facts) -> Answer:
    found, blind = texts(facts, facts.glob(PREFERENCES))
    if found or blind is not None:
        bad = {path: word for path, word in found.items() if not _is_performance(word)}
        if not bad and blind is not None:
            raise blind
        return _performance(facts, PREFERENCES, "preference", found, bad)
    found, blind = texts(facts, facts.glob(BIASES))
    numbers = {path: number for path, text in found.items() if (number := counted(text)) is not None}
    if not numbers:
        if blind is not None:
            raise blind
        return (
            unknown("the energy bias is no number", f"cat {next(iter(found))}")
            if found
            else skip("no such preference here")
        )
    path, worst = max(numbers.items(), key=lambda one: one[1])
    if worst <= _MOST_BIAS:
        if blind is not None:
            raise blind
        return ok(f"energy bias {worst} of 15", seen(path, str(worst)))
    fix = profile_fix(facts) or sysfs_fix(facts, BIASES, "0", str(worst))
    return weighed(facts, warn(f"energy bias {worst} of 15; up to {_MOST_BIAS} is fit", seen(path, str(worst)), fix))


def _is_performance(word: str) -> bool:
    number = counted(word)
    return word == "performance" or (number is not None and number < _BALANCED)


def _text_or_nothing(facts: Facts, path: str) -> str:
    try:
        return (facts.maybe(path) or "").strip()
    except Unknowable:
        return ""


NO_TURBO = f"{_CPU}/intel_pstate/no_turbo"
BOOST = f"{_CPU}/cpufreq/boost"


@check(
    "F03",
    "CPU turbo is on",
    group="tuning",
    slug="cpu-turbo",
    needs=(NO_TURBO, BOOST, TMPFILES, BUS),
    why=(
        "Without turbo every step of a request that runs on the processor is slower, often by a third. "
        "It is switched off by some firmware settings and by scripts that wanted even benchmarks."
    ),
    source="Linux admin-guide/pm/intel_pstate, cpufreq boost",
)
def turbo(facts: Facts) -> Answer:
    found, blind = texts(facts, (NO_TURBO, BOOST))
    for path, off, on in ((NO_TURBO, "1", "0"), (BOOST, "0", "1")):
        if found.get(path) == off:
            fix = sysfs_fix(facts, path, on, off)
            return weighed(facts, warn("turbo is switched off", seen(path, off), fix))
    if blind is not None:
        raise blind
    for path, on in ((NO_TURBO, "0"), (BOOST, "1")):
        if found.get(path) == on:
            return ok("turbo is on", seen(path, on))
    if found:
        return unknown("what the kernel says of turbo is neither 0 nor 1", f"cat {next(iter(found))}")
    return skip("no turbo that could be switched here")


CPUS_A_GPU = 8
MEMORY_GIB = 64
_NOMINAL = 0.9
"""The kernel and the firmware keep a part: 64 GiB are told as 62 or less, and some vendors count 64·10⁹."""


@check(
    "F16",
    "enough CPUs and memory for the GPU",
    group="tuning",
    slug="cpus-and-memory",
    needs=(CPUS, MEMINFO, BUS),
    why=(
        "The server copies, decodes and batches on the processor, and models pass through memory on their way to the "
        "card. With too few the card waits; 8 CPUs a GPU and 64 GiB are a rule of thumb, not a limit."
    ),
    source="seed report S1 5.2 (rule of thumb)",
)
def size(facts: Facts) -> Answer:
    cards = len(box.gpus(facts))
    if not cards:
        return skip(NO_DEVICE)
    count, memory = cpus(facts), meminfo(facts)["MemTotal"]
    said = f"{count} CPUs, {gib(memory)} GiB for {cards} GPU{'s' if cards > 1 else ''}"
    evidence = (Evidence(CPUS, facts.text(CPUS).strip()), *facts.lines(MEMINFO, "^MemTotal:"))
    few = count < CPUS_A_GPU * cards
    small = memory < MEMORY_GIB * GIB * _NOMINAL
    if not few and not small:
        return ok(said, evidence)
    wanted = [f"{CPUS_A_GPU * cards} CPUs"] * few + [f"{MEMORY_GIB} GiB"] * small
    return warn(f"{said}; {' and '.join(wanted)} are usual", evidence, cpus=str(count), memory_gib=gib(memory))


STAT = "/proc/stat"
_MUCH_STEAL = 0.05


@check(
    "F19",
    "no CPU time is taken by a hypervisor",
    group="tuning",
    slug="steal-time",
    needs=(*VIRTUAL, STAT),
    why=(
        "Stolen time is time in which this machine wanted to run and another one ran instead. "
        "It cannot be tuned away inside: it shows as jitter of the whole server."
    ),
    source="proc(5), systemd-detect-virt(1)",
)
def steal(facts: Facts) -> Answer:
    share = _stolen(facts.text(STAT))
    evidence = facts.lines(STAT, r"^cpu ")
    if share >= _MUCH_STEAL:
        return warn(f"{100 * share:.1f} % of CPU time since boot was stolen", evidence)
    where = virtual(facts)
    if not where:
        return ok("no virtual machine", evidence)
    if is_container(where):
        return note(f"this console runs in a container ({where}); steal {100 * share:.1f} % since boot", evidence)
    return note(f"virtual machine ({where}), steal {100 * share:.1f} % since boot", evidence)


def _stolen(text: str) -> float:
    """Share of all ticks; guest time is in user time already."""
    words = text.partition("\n")[0].split()
    ticks = [number for word in words[1:9] if (number := counted(word)) is not None]
    if words[:1] != ["cpu"] or len(ticks) != 8 or not sum(ticks):
        raise Unknowable(f"{STAT} has no line of all processors", f"head -1 {STAT}")
    return ticks[7] / sum(ticks)
