"""Limits and counters of the kernel: open files, locked memory, queues, pressure and memory errors (F13, F14, F17, F18,
F20)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from console.checks import box
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.machine import counted, seen, texts
from console.checks.tuning_fixes import LIMITS_NEEDS, SYSCTL_NEEDS, limits_fix, sysctl_fix
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

_FILE_NR = "/proc/sys/fs/file-nr"
_FILE_MAX = "/proc/sys/fs/file-max"
_NR_OPEN = "/proc/sys/fs/nr_open"
_OWN = "/proc/self/limits"
_FEW_FILES = 65_536
_NEARLY = 0.8


@check(
    "F13",
    "the host allows enough open files",
    group="tuning",
    slug="open-files",
    needs=(_FILE_NR, _FILE_MAX, _NR_OPEN, _OWN, *SYSCTL_NEEDS),
    why=(
        "Each connection and each loaded library is an open file. At the limit new connections are refused, and a "
        "container that asks for more than the kernel allows one process does not start."
    ),
    source="Linux admin-guide/sysctl/fs, proc(5)",
)
def open_files(facts: Facts) -> Answer:
    found, blind = texts(facts, (_FILE_NR, _FILE_MAX, _NR_OPEN))
    used = counted((found.get(_FILE_NR, "").split() or [""])[0])
    most, one = counted(found.get(_FILE_MAX, "")), counted(found.get(_NR_OPEN, ""))
    evidence = tuple(Evidence(path, " ".join(text.split())) for path, text in found.items())
    if most is not None and used is not None and used > _NEARLY * most:
        fix = sysctl_fix(facts, "fs.file-max", 2 * most, str(most))
        return warn(f"{used} of {most} files are open on this host", evidence, fix)
    if one is not None and one < _FEW_FILES:
        fix = sysctl_fix(facts, "fs.nr_open", 1_048_576, str(one))
        return warn(f"a process may open {one}; {_FEW_FILES} are usual", evidence, fix)
    if blind is not None:
        raise blind
    if most is None or used is None or one is None:
        return unknown(
            "the kernel's figures of open files are not all numbers", f"cat {_FILE_NR} {_FILE_MAX} {_NR_OPEN}"
        )
    own = next((line.text.split() for line in _limits(facts, _OWN, "Max open files")), [])
    here = f", {own[4]} in this session" if len(own) > 4 else ""
    return ok(f"{used} files are open, a process may have {one}{here}", evidence)


def _limits(facts: Facts, path: str, name: str) -> tuple[Evidence, ...]:
    try:
        return facts.lines(path, f"^{name} ")
    except Unknowable:
        return ()


_LIMITS = "/proc/{container_pid}/limits"
_LIMIT_FILES = ("/etc/security/limits.conf", "/etc/security/limits.d/*.conf")
_UNIT_FILES = ("/etc/systemd/system/user@.service.d/*.conf", "/etc/systemd/system/user@{uid}.service.d/*.conf")


@check(
    "F14",
    "the rootless user may lock memory",
    group="tuning",
    slug="memlock",
    needs=(box.PING, *box.CONTAINER, _LIMITS, *LIMITS_NEEDS, *_LIMIT_FILES, *_UNIT_FILES),
    why=(
        "The usual command for Triton asks for unlimited locked memory. A rootless container cannot get more than its "
        "user has, and then it does not start: error setting rlimit type 8."
    ),
    source="podman#19319; host.md E09",
)
def memlock(facts: Facts) -> Answer:
    if none := box.no_container(facts):
        return skip(none)
    if not box.rootless(facts):
        return skip("rootful: Podman may set any limit")
    found = box.inspect(facts)
    asked = _asks(found)
    fix = _memlock_fix(facts)
    error = str(box.at(found, "State", "Error") or "")
    if re.search(r"setting rlimit type 8\b", error) and not box.runs(found):
        where = Evidence(f"podman inspect {one_line(str(found.get('Name') or ''), 60)}", one_line(error, 200))
        return fail("the start failed: the user may not lock so much memory", (where,), fix, rlimit="memlock")
    if facts.every("container_pid"):
        path = _LIMITS.replace("{container_pid}", facts.one("container_pid"))
        lines = facts.lines(path, r"^Max locked memory ")
        words = lines[0].text.split() if lines else []
        if len(words) < 5:
            raise Unknowable(f"{path} has no line of locked memory", f"grep locked {path}")
        if words[4] == "unlimited" or asked:
            return ok(f"{words[4]} for the server{' as asked' if asked else ''}", lines)
        return note(f"{words[4]} bytes for the server, and it asks for no more", lines)
    if not asked:
        return note("the container asks for no limit of its own")
    raised, blind = _raised(facts)
    if raised:
        return ok("raised for the user", raised)
    if blind is not None:
        raise blind
    return warn("the container asks for more, and no file raises the user's limit", (), fix, rlimit="memlock")


def _asks(found: Mapping[str, Any]) -> bool:
    """Whether the container asks for a limit of locked memory."""
    return any(
        str(box.at(one, "Name")).upper().removeprefix("RLIMIT_") == "MEMLOCK" and isinstance(box.at(one, "Hard"), int)
        for one in box.at(found, "HostConfig", "Ulimits") or ()
    )


def _raised(facts: Facts) -> tuple[tuple[Evidence, ...], Unknowable | None]:
    """(lines that give the user unlimited locked memory, why one of the files could not be read)."""
    names = {"*", *facts.every("user")}
    units = (_UNIT_FILES[0], *(_UNIT_FILES[1].replace("{uid}", uid) for uid in facts.every("uid")))
    found: list[Evidence] = []
    blind: Unknowable | None = None
    for path in _paths(facts, (*_LIMIT_FILES, *units)):
        try:
            for line in facts.lines(path, r"^\s*[^#;\s]"):
                words = line.text.split()
                if words[0] in names and words[1:4] in (
                    ["hard", "memlock", "unlimited"],
                    ["-", "memlock", "unlimited"],
                ):
                    found.append(line)
                if re.fullmatch(r"LimitMEMLOCK\s*=\s*(.*:)?(infinity|unlimited)", line.text.strip()):
                    found.append(line)
        except Unknowable as why:
            blind = blind or why
    return tuple(found), blind


def _paths(facts: Facts, patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield from facts.glob(pattern) if "*" in pattern else (pattern,)


def _memlock_fix(facts: Facts) -> Fix:
    user = facts.every("user")[0] if facts.every("user") else "*"
    effect = "takes effect once the user has left all sessions and user@.service starts anew, or with a reboot"
    return limits_fix(facts, user, {"memlock": "-1"}, effect, ("E09",))


_SOMAXCONN = "/proc/sys/net/core/somaxconn"
_LONG_QUEUE = 2048


@check(
    "F17",
    "connections may queue",
    group="tuning",
    slug="somaxconn",
    needs=(_SOMAXCONN,),
    why=(
        "So many connections wait until the server accepts them; more at once are refused and tried again later. "
        "It matters only where many clients connect anew for each request."
    ),
    source="Linux admin-guide/sysctl/net (somaxconn)",
)
def somaxconn(facts: Facts) -> Answer:
    text = facts.text(_SOMAXCONN).strip()
    value = counted(text)
    if value is None:
        return unknown(f"{_SOMAXCONN} is no number", f"cat {_SOMAXCONN}")
    if value >= _LONG_QUEUE:
        return ok(f"{value} may wait", seen(_SOMAXCONN, text))
    return note(f"{value} may wait; {_LONG_QUEUE} are safer with many new connections", seen(_SOMAXCONN, text))


_PRESSURE = ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")
_SOME_PRESSURE = 10.0


@check(
    "F18",
    "nothing waits for CPU, memory or disk",
    group="tuning",
    slug="pressure",
    needs=_PRESSURE,
    why=(
        "The kernel counts the share of time in which some task waited for CPU, memory or disk. "
        "It tells a busy box from one that is short of something."
    ),
    source="Linux accounting/psi; RHEL 8 keeps it only with psi=1 on the kernel's command line",
)
def pressure(facts: Facts) -> Answer:
    if not any(facts.exists(path) for path in _PRESSURE):
        return skip("this kernel keeps no figures of pressure")
    if "not supported" in facts.file(_PRESSURE[0]).why:
        return skip("figures of pressure are off (psi=1 at boot turns them on)")
    found: dict[str, float] = {}
    evidence: list[Evidence] = []
    for path in _PRESSURE:
        for line in facts.lines(path, "^some "):
            match = re.search(r"\bavg60=(\d{1,3}(?:\.\d{1,3})?)\b", line.text)
            if match is not None:
                found[path.rpartition("/")[2]] = float(match.group(1))
                evidence.append(line)
    if len(found) != len(_PRESSURE):
        raise Unknowable("not every figure of pressure is there", f"cat {' '.join(_PRESSURE)}")
    said = ", ".join(f"{name} {share:.1f} %" for name, share in found.items())
    return (note if max(found.values()) >= _SOME_PRESSURE else ok)(f"{said} of the last minute", evidence)


_EDAC = "/sys/devices/system/edac/mc/mc*"
_MANY_CORRECTED = 1000


@check(
    "F20",
    "the host's memory has no errors",
    group="tuning",
    slug="memory-errors",
    needs=(f"{_EDAC}/ue_count", f"{_EDAC}/ce_count"),
    why=(
        "An uncorrected error means that a process or a file in memory was damaged. "
        "Corrected ones do no harm by themselves; many of them announce a module that dies."
    ),
    source="Linux admin-guide/RAS (EDAC)",
)
def memory_errors(facts: Facts) -> Answer:
    paths = (*facts.glob(f"{_EDAC}/ue_count"), *facts.glob(f"{_EDAC}/ce_count"))
    if not paths:
        return skip("no memory controller reports errors here")
    found, blind = texts(facts, paths)
    counts = {path: number for path, text in found.items() if (number := counted(text)) is not None}
    lost = sum(count for path, count in counts.items() if path.endswith("/ue_count"))
    mended = sum(count for path, count in counts.items() if path.endswith("/ce_count"))
    evidence = tuple(Evidence(path, str(count)) for path, count in counts.items() if count)
    fix = Fix("S", ("sudo ras-mc-ctl --errors", "sudo dmidecode -t memory"), "they name the module to replace")
    if lost > 0:
        return fail(f"{lost} uncorrected memory errors since boot", evidence, fix)
    if mended >= _MANY_CORRECTED:
        return warn(f"{mended} corrected memory errors since boot", evidence, fix)
    if blind is not None:
        raise blind
    if len(counts) != len(paths):
        return unknown("a count of memory errors is no number", f"grep . {_EDAC}/*_count")
    return note(f"{mended} corrected since boot, none uncorrected", evidence) if mended else ok("none since boot")
