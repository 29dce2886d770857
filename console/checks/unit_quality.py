"""How well a hand-written unit runs Triton, measured by the unit of host.md 5.4: K03."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from console.checks import unit_box
from console.checks.box import container_name
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.clients import run_words, unit_lines
from console.clients.run_words import RunWords
from console.clients.unit_lines import UnitLine
from console.core import triton_command
from console.core.facts import Evidence, Facts
from console.core.finding import Fix
from console.core.sign import WORST_FIRST, Sign
from console.core.text import whole_number

DEFAULT_TIMEOUT = 90.0
"""Seconds that systemd gives a unit to start and to stop where it says nothing else."""
LEAST_STOP = 60.0


class _Fault(Struct, frozen=True):
    sign: Sign
    text: str
    line: UnitLine | None = None


@check(
    "K03",
    "the unit is well made",
    group="units",
    slug="unit-quality",
    needs=unit_box.TEXTS,
    why="A unit may start Triton and still lose it: a name left by a crash ends every start with 125, a short stop "
    "time makes a kill of every stop. The unit that this console writes has none of these.",
    source="host.md 5.4; podman#5485; Hal0ai/hal0#721; podman-generate-systemd(1)",
)
def quality(facts: Facts) -> Answer:
    unit = unit_box.name(facts)
    if not unit:
        return skip("no unit manages the container")
    lines = unit_box.text(facts)
    if not lines:
        return skip(f"{unit} has no file of its own: a Quadlet, see K04")
    starts = unit_lines.values(lines, "Service", "ExecStart")
    start = next((one for one in starts if unit_lines.runs_podman(unit_lines.words(one.value), "run")), None)
    words = None if start is None else run_words.parse(unit_lines.words(start.value))
    if start is None or words is None:
        if any(unit_lines.runs_podman(unit_lines.words(one.value), "start") for one in starts):
            line = (Evidence(f"{starts[0].path}:{starts[0].number}", starts[0].value),)
            return note(f"{unit} starts a container that must be there already", line)
        return skip(f"{unit} does not run podman itself")
    faults = sorted(_faults(lines, start, words), key=lambda one: WORST_FIRST.index(one.sign))
    if not faults:
        return ok(f"{unit} has all that host.md 5.4 asks for")
    evidence = tuple(
        Evidence(f"{one.line.path}:{one.line.number}", f"{one.line.key}={one.line.value}")
        for one in faults
        if one.line is not None
    )
    worst = faults[0].sign
    alike = [one.text for one in faults if one.sign == worst]
    more = f"; {len(faults) - 2} more" if len(faults) > 2 else ""
    text = "; ".join(one.text for one in faults[:2]) + more
    data = {"faults": str(len(alike))}
    if worst == "note":
        return note(text, evidence, **data)
    say = fail if worst == "fail" else warn
    return say(text, evidence, _mend(facts, unit, [one.text for one in faults]), **data)


def _mend(facts: Facts, unit: str, faults: Sequence[str]) -> Fix:
    container = container_name(facts)
    return Fix(
        "P",
        tuple(unit_box.console(facts, f"unit.{verb} {container}") for verb in ("show", "write")),
        "writes a unit with these mended: " + "; ".join(faults) + ". Nothing starts or stops; it counts from the next "
        "start on",
        unit_box.console(facts, f"unit.restore {unit}"),
        action="unit.write",
        again=("K02", "E11"),
    )


def _faults(lines: Sequence[UnitLine], start: UnitLine, words: RunWords) -> Iterator[_Fault]:
    yield from _of_podman(lines, start, words)
    yield from _of_stopping(lines, words)
    yield from _of_starting(lines, start)
    yield from _of_serving(start, words)


def _of_podman(lines: Sequence[UnitLine], start: UnitLine, words: RunWords) -> Iterator[_Fault]:
    options = {option.name for option in words.options}
    cleaners = (
        *unit_lines.values(lines, "Service", "ExecStartPre"),
        *unit_lines.values(lines, "Service", "ExecStopPost"),
    )
    cleaned = any(unit_lines.runs_podman(unit_lines.words(one.value), "rm") for one in cleaners)
    if "replace" not in options and not cleaned and words.values("name"):
        yield _Fault("warn", "no --replace: a name left by a crash ends each start with 125", start)
    kind = (unit_lines.last(lines, "Service", "Type") or "simple").lower()
    stays = (unit_lines.last(lines, "Service", "RemainAfterExit") or "no").lower() in ("yes", "true", "1", "on")
    if "detach" in options and kind in ("simple", "exec") and not stays:
        yield _Fault("fail", f"-d with Type={kind}: systemd takes it for ended at once", start)
    if "tty" in options:
        yield _Fault("warn", "-t: there is no terminal in a unit", start)
    marks = [one for one in unit_lines.values(lines, "Service", "Environment") if "PODMAN_SYSTEMD_UNIT=" in one.value]
    if not marks and "PODMAN_SYSTEMD_UNIT" not in " ".join(words.values("env") + words.values("label")):
        yield _Fault("note", "no Environment=PODMAN_SYSTEMD_UNIT=%n: the container does not name its unit")


def _of_stopping(lines: Sequence[UnitLine], words: RunWords) -> Iterator[_Fault]:
    where, limit = _limit(lines, "TimeoutStopSec")
    podman = whole_number((words.values("stop-timeout") or ("10",))[-1])
    if limit is None:
        yield _Fault("warn", f"TimeoutStopSec={where.value if where else ''} is no time span", where)
        return
    # systemd reads 0 as no limit
    if 0 < limit < LEAST_STOP:
        yield _Fault("warn", f"systemd kills it after {limit:.0f} s, under {LEAST_STOP:.0f}", where)
    elif podman is not None and 0 < limit <= podman:
        yield _Fault("warn", f"systemd kills it after {limit:.0f} s, Podman would wait {podman}", where)
    draining = triton_command.exit_timeout(words.command) or triton_command.DEFAULT_EXIT_TIMEOUT
    stops = unit_lines.values(lines, "Service", "ExecStop")
    told = [_stop_limit(unit_lines.words(one.value)) for one in stops]
    waits = next((one for one in told if one is not None), podman)
    if waits is not None and waits < draining:
        yield _Fault(
            "warn",
            f"a stop gives {waits} s, Triton drains for {draining}: each becomes a kill",
            stops[0] if stops else None,
        )


def _limit(lines: Sequence[UnitLine], key: str) -> tuple[UnitLine | None, float | None]:
    """The line that limits a start or stop, and its seconds: systemd's own without one, None for no time span."""
    found = unit_lines.values(lines, "Service", key) or unit_lines.values(lines, "Service", "TimeoutSec")
    return (found[-1], unit_lines.seconds(found[-1].value)) if found else (None, DEFAULT_TIMEOUT)


def _stop_limit(command: Sequence[str]) -> int | None:
    """Seconds that a `podman stop -t N` gives; None where it names none."""
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in ("-t", "--time", "--timeout"):
            return whole_number(value if equals else (command[at + 1] if at + 1 < len(command) else ""))
        if name.startswith("-t") and name[2:].isdigit():
            return whole_number(name[2:])
    return None


def _of_starting(lines: Sequence[UnitLine], start: UnitLine) -> Iterator[_Fault]:
    kind = (unit_lines.last(lines, "Service", "Type") or "simple").lower()
    _, limit = _limit(lines, "TimeoutStartSec")
    if kind in ("notify", "forking", "notify-reload") and limit is not None and 0 < limit <= DEFAULT_TIMEOUT:
        yield _Fault("note", f"{limit:.0f} s to start: a pull of the image takes longer")
    wanted = unit_lines.listed(lines, "Unit", "Wants", "Requires", "BindsTo")
    after = unit_lines.listed(lines, "Unit", "After")
    if "network-online.target" not in after and start.path.startswith(("/etc/", "/usr/")):
        yield _Fault("warn", "not ordered after network-online.target")
    elif "network-online.target" not in wanted and start.path.startswith(("/etc/", "/usr/")):
        yield _Fault("warn", "After= network-online.target without Wants=: nothing waits for it")
    restart = (unit_lines.last(lines, "Service", "Restart") or "no").lower()
    if restart == "no":
        yield _Fault("warn", "no Restart=: a crash stays down")
    if restart == "always":
        line = unit_lines.values(lines, "Service", "Restart")[-1]
        yield _Fault("note", "Restart=always brings it back after a stop past systemd", line)
    if not unit_lines.values(lines, "Install", "WantedBy"):
        yield _Fault("note", "no WantedBy=: it cannot be enabled")


def _of_serving(start: UnitLine, words: RunWords) -> Iterator[_Fault]:
    published = words.values("publish")
    if published and "host" not in words.values("network") and "publish-all" not in {one.name for one in words.options}:
        inside = {one.rsplit(":", 1)[-1].partition("/")[0] for one in published}
        absent = [port for port in ("8001", "8002") if port not in inside and "-" not in "".join(inside)]
        if absent and "8000" in inside:
            yield _Fault("note", f"does not publish {' and '.join(absent)} (gRPC, metrics)", start)
    if not words.values("shm-size") and "host" not in words.values("ipc"):
        yield _Fault("note", "no --shm-size: 64 MB of shared memory", start)
