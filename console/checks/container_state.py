"""Is there a Triton container, does it run and answer, and who starts it again?"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from console.checks.box import UNITS, at, inspect, no_container, runs
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import (
    NEEDS,
    Unit,
    name_of,
    number,
    podman,
    recreate,
    seen,
    strings,
    sudo,
    unit_of,
    units,
)
from console.clients.libpod import is_triton_image, wall_time
from console.core import podman_errors
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.secrets import mask_text
from console.core.text import one_line
from console.core.units import uptime

IMAGES = "@podman.images"
STOPPED = (0, 143)
"""Exit codes of a container that was asked to end."""
LOOP = 600.0
"""Seconds: as many restarts as MOST in so short a time are a loop."""
MOST = 3
_UNIT = re.compile(r"(?:^|[-_.])triton(?:-?server)?\.service$", re.IGNORECASE)
_CODES = {
    1: "the server gave up; its log says why",
    125: "Podman itself failed",
    126: "the runtime could not run it",
    127: "the image has no such command",
    137: "killed (SIGKILL): out of its stop time, out of memory, or by hand",
    139: "it crashed (SIGSEGV)",
    143: "asked to end (SIGTERM)",
}


def exit_words(code: int) -> str:
    """An exit code in words: `137: killed ...`."""
    if code in _CODES:
        return f"{code}: {_CODES[code]}"
    if 128 < code < 128 + 65 and code - 128 in {one.value for one in signal.Signals}:
        return f"{code}: ended by {signal.Signals(code - 128).name}"
    return str(code)


# ------------------------------------------------------------------------------------------------------------- running


@check(
    "E01",
    "the Triton container runs",
    group="container",
    slug="container-running",
    needs=(*NEEDS, IMAGES),
    why="Without it nothing is served. Its exit code and Podman's error say whether somebody stopped it, it was "
    "killed, or it could not start at all.",
    source="host.md E01; podman-run(1), exit status",
)
def container_running(facts: Facts) -> Answer:
    """Its state, and why it does not run."""
    if why := no_container(facts):
        return _none(facts) if why == "no Triton container" else skip(why)
    found = inspect(facts)
    status = str(at(found, "State", "Status") or "")
    evidence = seen(found, "State.Status", "State.ExitCode", "State.OOMKilled", "State.Error", "State.FinishedAt")
    if status == "running":
        began = wall_time(_text(found, "StartedAt"))
        since = f" for {uptime(facts.wall - began)}" if began and began <= facts.wall else ""
        return ok(f"it runs{since}", evidence[:1], status=status)
    if status == "paused":
        command = podman(facts, f"unpause {shlex.quote(name_of(found))}")
        return warn("paused: it holds its memory and answers nothing", evidence, Fix("S", (command,)), status=status)
    if not status:
        return unknown("Podman does not tell its state", podman(facts, "ps --all"))
    return _stopped(facts, found, status, evidence)


def _stopped(facts: Facts, found: Mapping[str, Any], status: str, evidence: tuple[Evidence, ...]) -> Answer:
    error = one_line(mask_text(_text(found, "Error")), 200)
    code = number(at(found, "State", "ExitCode"))
    was_killed = at(found, "State", "OOMKilled") is True
    data = {"status": status, "exit": "" if code is None else str(code), "oom": str(was_killed).lower()}
    if error:
        hint = podman_errors.hint(error)
        text = f"{status}: {error}" + (f" ({hint})" if hint else "")
        return fail(text, evidence, _logs(facts, found), error=error, **data)
    if status in ("created", "configured", "initialized"):
        return warn(f"{status}, never started", evidence, _start(facts, found), **data)
    if status in ("stopping", "removing"):
        return warn(f"it is {status}", evidence, None, **data)
    if code is None:
        return unknown(f"{status}; its exit code is not told", podman(facts, "ps --all"), evidence)
    if was_killed:
        return fail(f"{status}, {code}: out of memory, the kernel killed it", evidence, _logs(facts, found), **data)
    if code in STOPPED:
        text = f"stopped ({exit_words(code)})" if code else "stopped (0)"
        return warn(text, evidence, _start(facts, found), stopped="asked", **data)
    fix = _start(facts, found) if code == 137 else _logs(facts, found)
    return fail(f"{status}, {exit_words(code)}", evidence, fix, **data)


def _text(found: Mapping[str, Any], key: str) -> str:
    return str(at(found, "State", key) or "")


def _start(facts: Facts, found: Mapping[str, Any]) -> Fix:
    owner, name = unit_of(facts), shlex.quote(name_of(found))
    command = f"{owner.systemctl} start {shlex.quote(owner.name)}" if owner else podman(facts, f"start {name}")
    return Fix("B", (command,), undo=podman(facts, f"stop {name}"), action="container.start", again=("E07", "E03"))


def _logs(facts: Facts, found: Mapping[str, Any]) -> Fix:
    name = shlex.quote(name_of(found))
    effect = "reads only: what ended it has to be mended first"
    return Fix("S", (podman(facts, f"logs --tail 100 {name}"),), effect=effect, again=("E05",))


def _none(facts: Facts) -> Answer:
    """No container: only where something on the box says that there should be one is that worth a warning."""
    for unit in _triton_units(facts):
        if unit.property("UnitFileState") == "enabled" or unit.property("ActiveState") in ("failed", "activating"):
            state = f"{unit.property('ActiveState')} ({unit.property('Result') or unit.property('SubState')})"
            evidence = (Evidence(f"systemctl show {unit.name}", f"ActiveState={unit.property('ActiveState')}"),)
            command = f"{unit.systemctl} start {shlex.quote(unit.name)}"
            fix = Fix("S", (command,), effect="E02 and the unit's journal say why it ended", again=("E02",))
            return warn(f"none, though {unit.name} makes one: {state}", evidence, fix, unit=unit.name)
    image = next((name for name in _image_names(facts) if is_triton_image(name)), "")
    if not image:
        return skip("no Triton container")
    command = f"{sudo(facts)}gpuconsole do container.create triton image={shlex.quote(image)} models=FOLDER"
    fix = Fix("S", (command,), effect="FOLDER is the model repository on this host")
    return warn("none, though the image is here", (Evidence("podman images", image),), fix, image=image)


def _image_names(facts: Facts) -> tuple[str, ...]:
    if facts.why_not(IMAGES):
        return ()
    images = facts.answer(IMAGES)
    named = [(*strings(at(one, "RepoTags")), *strings(at(one, "Names"))) for one in images or () if one]
    return tuple(name for names in named for name in names)


def _triton_units(facts: Facts) -> Iterator[Unit]:
    """Units that run a Triton container: the one that manages it, or those that name one."""
    if owner := unit_of(facts):
        yield owner
    for unit in () if facts.why_not(UNITS) else units(facts).values():
        if _UNIT.search(unit.name) or "tritonserver" in unit.property("ExecStart"):
            yield unit


# ------------------------------------------------------------------------------------------------------------ restarts


@check(
    "E02",
    "it does not start again and again",
    group="container",
    slug="restart-loop",
    needs=NEEDS,
    why="A server that ends soon after each start loads its models again each time and serves nobody. systemd gives up "
    "after some starts, and then nothing starts it any more.",
    source="host.md E02; systemd.unit(5), StartLimitBurst",
)
def restart_loop(facts: Facts) -> Answer:
    """Restarts by Podman's policy and by the unit."""
    unit = next(_triton_units(facts), None)
    try:
        why = no_container(facts)
    except Unknowable as missing:
        if unit is None:
            raise
        why = missing.why
    if why and unit is None:
        return skip(why)
    evidence: tuple[Evidence, ...] = ()
    counts: dict[str, int] = {}
    if unit is not None and unit.properties:
        where = f"systemctl show {unit.name}"
        keys = ("NRestarts", "Result", "ActiveState", "SubState")
        evidence = tuple(Evidence(where, f"{key}={unit.property(key)}") for key in keys if unit.property(key))
        if unit.property("Result") == "start-limit-hit":
            text = f"{unit.name} failed too often: systemd starts it no more"
            return fail(text, evidence, _reset(unit), unit=unit.name, result="start-limit-hit")
        counts["unit"] = number(unit.property("NRestarts")) or 0
    found = None if why else inspect(facts)
    if found is not None:
        counts["podman"] = number(found.get("RestartCount")) or 0
        evidence += seen(found, "RestartCount", "State.StartedAt")
    if not counts:
        name = unit.name if unit is not None else ""
        raise Unknowable("how often it was started is not told", f"systemctl show {name} -p NRestarts")
    who, most = max(counts.items(), key=lambda pair: pair[1])
    if most == 0:
        return ok("no restarts", evidence, restarts="0")
    since = _running_for(facts, found)
    restarting = unit is not None and unit.property("SubState") in ("auto-restart", "auto-restart-queued")
    data = {"restarts": str(most), "by": who}
    if most > MOST and (restarting or since is None or since < LOOP):
        text = f"{most} restarts by {'the unit' if who == 'unit' else 'Podman'}"
        ending = ", and it does not run" if since is None else f", the last {uptime(since)} ago"
        return fail(text + ending, evidence, _why(facts, unit, found), **data)
    return note(f"{most} restarts" + (f"; it runs for {uptime(since)}" if since is not None else ""), evidence, **data)


def _running_for(facts: Facts, found: Mapping[str, Any] | None) -> float | None:
    began = wall_time(_text(found, "StartedAt")) if found is not None and runs(found) else None
    return None if began is None else max(0.0, facts.wall - began)


def _reset(unit: Unit) -> Fix:
    name = shlex.quote(unit.name)
    return Fix(
        "S",
        (f"{unit.systemctl} reset-failed {name}", f"{unit.systemctl} start {name}"),
        effect="mend first what made it fail: E01, E05 and its journal tell",
        again=("E01", "K02"),
    )


def _why(facts: Facts, unit: Unit | None, found: Mapping[str, Any] | None) -> Fix | None:
    if unit is not None:
        journal = "journalctl --user -u" if unit.user else "sudo journalctl -u"
        return Fix("S", (f"{journal} {shlex.quote(unit.name)} -n 100",), effect="reads only: what ends it is in there")
    return _logs(facts, found) if found is not None else None


# --------------------------------------------------------------------------------------------------- health, who starts


@check(
    "E12",
    "its health check can work",
    group="container",
    slug="healthcheck",
    needs=NEEDS,
    why="A health check of time limit 0 is unhealthy at once, and one that asks for ready sees each change of a model "
    "as illness. With an action on failure it then kills a server that works.",
    source="host.md E12; triton server#7014",
)
def healthcheck(facts: Facts) -> Answer:
    """The health check of the container, if it has one."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    health = at(found, "Config", "Healthcheck")
    words = strings(at(health, "Test"))
    if not words or words[0] == "NONE":
        return note("it has none: Podman does not know whether it serves")
    evidence = seen(found, "Config.Healthcheck", "State.Health.Status", "Config.HealthcheckOnFailureAction")
    action = str(at(found, "Config", "HealthcheckOnFailureAction") or "none")
    if number(at(health, "Timeout")) == 0:
        return warn("its time limit is 0: it is unhealthy at once", evidence, _health_fix(facts, found))
    if action not in ("none", "") and any("health/ready" in word for word in words):
        text = f"it asks for ready and does {action}: a change of a model would set that off"
        return warn(text, evidence, _health_fix(facts, found), action=action)
    status = str(at(found, "State", "Health", "Status") or at(found, "State", "Healthcheck", "Status") or "")
    if status == "unhealthy" and runs(found):
        return warn("unhealthy", evidence, status=status)
    return ok(status or "it has one", evidence, status=status)


def _health_fix(facts: Facts, found: Mapping[str, Any]) -> Fix:
    command = podman(facts, f"inspect --format '{{{{.Config.Healthcheck}}}}' {shlex.quote(name_of(found))}")
    effect = "make it anew with --health-cmd 'curl -fsS localhost:8000/v2/health/live' --health-timeout 5s"
    return Fix("S", (command,), effect=effect)


@check(
    "E13",
    "one manager starts it again, not two",
    group="container",
    slug="one-manager",
    needs=NEEDS,
    why="Podman's restart policy and a systemd unit each start the container when it ends. Together they race: a stop "
    "does not last, or the unit fails because the name is taken.",
    source="podman#15284",
)
def one_manager(facts: Facts) -> Answer:
    """Podman's restart policy beside a unit."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    policy = str(at(found, "HostConfig", "RestartPolicy", "Name") or "no")
    owner = unit_of(facts)
    evidence = seen(found, "HostConfig.RestartPolicy.Name")
    restart = owner.property("Restart") if owner is not None else ""
    if owner is not None:
        evidence += (Evidence(f"systemctl show {owner.name}", f"Restart={restart or 'not told'}"),)
    if owner is None and policy == "no":
        return note("none: nothing starts it after a crash or a reboot", evidence, policy=policy)
    if owner is None:
        return ok(f"Podman ({policy})", evidence, policy=policy)
    if policy == "no":
        return ok(owner.name, evidence, unit=owner.name)
    if restart == "no":
        return ok(f"Podman ({policy}): {owner.name} starts nothing again", evidence, policy=policy)
    fix = recreate(facts, {}, "--restart=no", ("D11", "K02"))
    return warn(f"{owner.name} and Podman's restart policy {policy}", evidence, fix, unit=owner.name, policy=policy)
