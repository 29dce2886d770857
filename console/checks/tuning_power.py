"""How deep idle processors sleep, and the profile of tuned that decides about it (F04, F05)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from console.checks import box
from console.checks.box import BUS
from console.checks.check import Answer, check, note, ok, skip, warn
from console.checks.machine import VIRTUAL, active, counted, seen, texts, virtual, weighed
from console.checks.tuning_fixes import MODE, PROFILE, TUNED_NEEDS, profile_fix, profiles, service_fix
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

_IDLE = "/sys/devices/system/cpu/cpu0/cpuidle/state*"
_IDLE_NEEDS = (f"{_IDLE}/name", f"{_IDLE}/latency", f"{_IDLE}/disable")
CMDLINE = "/proc/cmdline"
SAMPLES = "@samples"
DEEP_US = 100
"""Microseconds that a processor takes to wake from a state: above this it is deep (host.md F04)."""
MUCH_SLEEP = 0.05

# What tuned's own profiles hold: `force_latency` in its profiles/*/tuned.conf, by `include` too.
_LOW_LATENCY = frozenset(
    {"latency-performance", "accelerator-performance", "network-latency", "hpc-compute", "cpu-partitioning"}
    | {"realtime", "realtime-virtual-guest", "realtime-virtual-host"}
)
_SAVING = frozenset(
    {"balanced", "balanced-battery", "powersave", "server-powersave", "laptop-ac-powersave"}
    | {"laptop-battery-powersave", "desktop", "desktop-powersave", "enterprise-storage-powersave", "default"}
)
_GUEST = frozenset({"virtual-guest"})
_CUSTOM = ("/etc/tuned/*/tuned.conf", "/etc/tuned/profiles/*/tuned.conf")


class _State(Struct, frozen=True):
    """An idle state that processors may enter."""

    folder: str
    name: str
    latency: int


def _states(facts: Facts) -> tuple[_State, ...]:
    """Those not disabled; Unknowable where one could not be read."""
    found, blind = texts(facts, (path for need in _IDLE_NEEDS for path in facts.glob(need)))
    if blind is not None:
        raise blind
    states: list[_State] = []
    for path, name in found.items():
        folder, _, last = path.rpartition("/")
        latency = counted(found.get(f"{folder}/latency", ""))
        if last != "name" or found.get(f"{folder}/disable", "0") not in ("0", ""):
            continue
        if latency is None:
            raise Unknowable(f"{folder}: its latency is no number", f"cat {folder}/latency")
        states.append(_State(folder.rpartition("/")[2], name, latency))
    return tuple(states)


def _holds_latency(facts: Facts) -> str:
    """The active profile that keeps idle states shallow; "" = none."""
    try:
        names = [name for one in profiles(facts) for name in (one, *_includes(facts, one)) if name in _LOW_LATENCY]
        return names[0] if names and active(facts, "tuned") else ""
    except Unknowable:
        return ""


def _includes(facts: Facts, name: str) -> tuple[str, ...]:
    """What a profile of this box's own is based on, one level."""
    for pattern in _CUSTOM:
        path = pattern.replace("*", name)
        if "/" in name or path not in facts.glob(pattern):
            continue
        for line in facts.lines(path, r"^\s*include\s*="):
            return tuple(line.text.partition("=")[2].replace(",", " ").split())
    return ()


@check(
    "F04",
    "idle CPUs wake up quickly",
    group="tuning",
    slug="deep-sleep",
    needs=(*_IDLE_NEEDS, CMDLINE, SAMPLES, *box.CONTAINER, *_CUSTOM, *TUNED_NEEDS),
    why=(
        "A processor in a deep idle state needs more than 100 µs to wake, and every request that finds it asleep pays "
        "for that. No change in the firmware is needed: a profile of tuned limits the depth and can be taken back."
    ),
    source="Linux admin-guide/pm/cpuidle; redhat-performance/tuned latency-performance, accelerator-performance",
)
def deep_sleep(facts: Facts) -> Answer:
    words = [word for word in (facts.maybe(CMDLINE) or "").split() if word.startswith(_IDLE_WORDS)]
    told = tuple(Evidence(CMDLINE, one_line(word, 80)) for word in words)
    if "idle=poll" in words:
        return ok("idle=poll: CPUs never sleep", told)
    states = _states(facts)
    if not states:
        return skip("no idle states here: a virtual machine, or they are off")
    deepest = max(states, key=lambda one: one.latency)
    name = one_line(deepest.name, 30)
    evidence = (*told, Evidence(f"{_IDLE.rpartition('/')[0]}/{deepest.folder}/latency", str(deepest.latency)))
    if deepest.latency <= DEEP_US:
        return ok(f"{name} is the deepest: {deepest.latency} µs to wake", evidence)
    if facts.slow:
        return _measured(facts, states, evidence)
    profile = _holds_latency(facts)
    if profile:
        return ok(f"{profile} keeps CPUs out of {name} ({deepest.latency} µs)", (*evidence, *seen(PROFILE, profile)))
    return note(f"{name} ({deepest.latency} µs to wake) is allowed; --slow tells how much it is used", evidence)


_IDLE_WORDS = ("idle=", "intel_idle.max_cstate=", "processor.max_cstate=", "cpuidle.off=")


def _measured(facts: Facts, states: tuple[_State, ...], evidence: tuple[Evidence, ...]) -> Answer:
    answer = facts.answer(SAMPLES)
    shares = answer.get("cpuidle") if isinstance(answer, Mapping) else None
    if not isinstance(shares, Mapping) or not shares:
        raise Unknowable("idle states were not sampled", "sudo turbostat --quiet --num_iterations 1 --interval 2")
    deep = {one.name for one in states if one.latency > DEEP_US}
    share = sum(
        float(value)
        for name, value in shares.items()
        if name in deep and isinstance(value, int | float) and 0 <= value <= 1
    )
    seconds = answer.get("seconds")
    during = f" in {seconds:.0f} s" if isinstance(seconds, int | float) and 0 < seconds < 1e6 else ""
    text = f"{100 * share:.0f} % of CPU time{during} in states over {DEEP_US} µs"
    told = (*evidence, Evidence(SAMPLES, one_line(", ".join(f"{k} {v}" for k, v in shares.items()), 200)))
    if share < MUCH_SLEEP:
        return ok(text, told)
    if box.no_container(facts) or not box.runs(box.inspect(facts)):
        return note(f"{text}, and no server runs", told)
    fix = profile_fix(facts) or Fix(
        "S",
        ("sudo cpupower idle-set -D 100",),
        "until the next boot; it keeps the CPUs warmer",
        "sudo cpupower idle-set -E",
    )
    return warn(text, told, fix)


@check(
    "F05",
    "tuned's profile fits a server",
    group="tuning",
    slug="tuned-profile",
    needs=(*_CUSTOM, *VIRTUAL, BUS, *TUNED_NEEDS),
    why=(
        "The profile of tuned sets governor, idle states, memory and disk settings together, at each boot. "
        "One made for a laptop or a guest undoes what the other checks of this group ask for."
    ),
    source="redhat-performance/tuned profiles/*.conf",
)
def profile(facts: Facts) -> Answer:
    if not facts.exists(PROFILE):
        return skip("tuned is not installed: F01 to F04 judge what it would set")
    names = profiles(facts)
    said = one_line(" ".join(names), 60)
    evidence = seen(PROFILE, " ".join(names))
    if not names:
        return note("no profile is chosen: F01 to F04 judge what it would set", evidence)
    based = {name for one in names for name in (one, *_includes(facts, one))}
    if based & _SAVING and not based & _LOW_LATENCY:
        return weighed(facts, warn(f"{said} saves energy", evidence, profile_fix(facts), profile=said))
    if based & _GUEST and not based & _LOW_LATENCY and not virtual(facts):
        return weighed(facts, warn(f"{said} on the bare machine", evidence, profile_fix(facts), profile=said))
    if not active(facts, "tuned"):
        start = service_fix("tuned", "now", ("F01", "F02", "F04"))
        return weighed(facts, warn(f"{said} is chosen, but tuned does not run", evidence, start, profile=said))
    automatic = (facts.maybe(MODE) or "").strip() == "auto"
    how = " (chosen by tuned itself)" if automatic else ""
    if based & _LOW_LATENCY or based & _GUEST:
        return ok(f"{said}{how}", evidence, profile=said)
    return note(f"{said}{how}; accelerator-performance also limits idle states", evidence, profile=said)
