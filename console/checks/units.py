"""Who manages the container, and how its unit is doing: K01 K02 K05."""

from __future__ import annotations

from collections.abc import Mapping

from console.checks import unit_box
from console.checks.box import CONTAINER, INSPECT, UNITS, at, container_name, no_container
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line, whole_number

# ----------------------------------------------------------------------------------------------------------------- K01


@check(
    "K01",
    "a unit manages the container",
    group="units",
    slug="who-manages",
    needs=(*CONTAINER, UNITS, *unit_box.QUADLETS),
    why="Without a unit nothing starts Triton after a reboot, and nobody orders it behind the network and the GPU's "
    "driver. With one, start and stop go through it alone: systemd undoes what is done past it.",
    source="podman quadlet.go v4.9.4; podman-generate-systemd(1); cockpit-podman#2007",
)
def who_manages(facts: Facts) -> Answer:
    unit = unit_box.name(facts)
    if unit:
        return _managed(facts, unit)
    if why := no_container(facts):
        return skip(why)
    container = facts.answer(INSPECT)
    name = one_line(str(container.get("Name") or container_name(facts)), 60)
    policy = str(at(container, "HostConfig", "RestartPolicy", "Name") or "no")
    line = (Evidence(f"podman inspect {name}", f"restart policy {policy}, no label PODMAN_SYSTEMD_UNIT"),)
    if policy in ("always", "unless-stopped"):
        return note(f"no unit; Podman itself restarts it (policy {policy}), see D11", line)
    fix = Fix(
        "P",
        (
            unit_box.console(facts, f"unit.write {name}"),
            unit_box.systemctl(facts, "enable", f"{name}.service"),
        ),
        "writes the unit; nothing starts or stops. From the next start on systemd manages the container",
        unit_box.console(facts, f"unit.restore {name}.service"),
        action="unit.write",
        again=("K02", "K03"),
    )
    return warn("no unit: nothing starts it after a crash or a reboot", line, fix)


def _managed(facts: Facts, unit: str) -> Answer:
    kind = _kind(facts)
    try:
        label = unit_box.label(facts)
    except Unknowable:
        label = ""
    line = Evidence("label PODMAN_SYSTEMD_UNIT", label) if label else Evidence("systemd", f"{unit}, {kind}")
    if label or kind == "Quadlet":
        return ok(f"{unit} ({kind})", (line,), unit=unit)
    return note(f"{unit} ({kind}); it leaves no label on the container", (line,), unit=unit)


def _kind(facts: Facts) -> str:
    """Where the unit's file comes from, as far as systemd or its files tell."""
    try:
        found = unit_box.properties(facts)
    except Unknowable:
        found = {}
    if found.get("SourcePath", "").endswith((".container", ".kube", ".pod")) or "/generator" in found.get(
        "FragmentPath", ""
    ):
        return "Quadlet"
    try:
        if unit_box.quadlets(facts):
            return "Quadlet"
    except Unknowable:
        pass
    return "a user's service" if unit_box.is_user(facts) else "a service"


# ----------------------------------------------------------------------------------------------------------------- K02

_STARTS_AT_BOOT = frozenset({"enabled", "enabled-runtime", "generated", "static", "indirect", "alias", "linked"})


@check(
    "K02",
    "the unit runs and starts at boot",
    group="units",
    slug="unit-state",
    needs=(UNITS, *unit_box.QUADLETS),
    why="A unit that has failed does not come back by itself, and one that is not enabled is gone after the next "
    "reboot.",
    source="systemctl(1), systemd.unit(5)",
)
def unit_state(facts: Facts) -> Answer:
    unit = unit_box.name(facts)
    if not unit:
        return skip("no unit manages the container")
    found = unit_box.properties(facts)
    active, sub, result = (found.get(key, "") for key in ("ActiveState", "SubState", "Result"))
    restarts = whole_number(found.get("NRestarts", "")) or 0
    words = ", ".join(
        f"{key}={one_line(found[key], 60)}"
        for key in ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "UnitFileState")
        if key in found
    )
    line = (Evidence(f"systemctl show {unit}", words),)
    load = found.get("LoadState", "")
    if load not in ("loaded", ""):
        see = Fix(
            "S",
            (
                unit_box.systemctl(facts, "cat", unit),
                f"systemd-analyze {'--user ' if unit_box.is_user(facts) else ''}verify {unit}",
            ),
            "shows what is wrong in it",
        )
        return fail(f"systemd does not load {unit}: {load}", line, see, state=load)
    if active == "failed":
        return fail(
            f"{unit} has failed: {result or sub or 'no reason told'}", line, _start(facts, unit, result), result=result
        )
    if active == "activating" and sub == "auto-restart":
        see = Fix("S", (_journal(facts, unit),), "shows why each start ends")
        return fail(
            f"{unit} waits for its next try ({restarts} so far): {result or 'no reason told'}", line, see, result=result
        )
    if active == "inactive":
        return warn(f"{unit} is not running", line, _start(facts, unit, ""), result=result)
    enabled = found.get("UnitFileState", "")
    if enabled in ("disabled", "masked", "masked-runtime"):
        enable, disable = (unit_box.argv(facts, verb, unit) for verb in ("enable", "disable"))
        root = not unit_box.is_user(facts)
        fix = Fix(
            "P",
            tuple(
                unit_box.systemctl(facts, verb, unit)
                for verb in (("enable",) if enabled == "disabled" else ("unmask", "enable"))
            ),
            "takes effect at the next boot; nothing starts or stops now",
            unit_box.systemctl(facts, "disable", unit),
            deeds=(Deed("run", enable, root=root),) if enabled == "disabled" else (),
            back=(Deed("run", disable, root=root),) if enabled == "disabled" else (),
        )
        return warn(f"{unit} is {enabled}: it does not start after a reboot", line, fix, state=enabled)
    if enabled == "generated" and (path := _without_install(facts)):
        edit = f"{'vi' if unit_box.is_user(facts) else 'sudoedit'} {path}"
        see = Fix("S", (edit, unit_box.systemctl(facts, "daemon-reload")), "add [Install] with WantedBy= at its end")
        return warn(f"{path.rsplit('/', 1)[-1]} has no [Install]: it does not start after a reboot", line, see)
    if not active:
        raise Unknowable(f"systemd did not tell the state of {unit}", unit_box.systemctl(facts, "status", unit))
    more = f", {restarts} restarts" if restarts else ""
    boot = enabled or "its start at boot not told"
    text = f"{unit} is {active}, {boot}{more}"
    if restarts or enabled not in _STARTS_AT_BOOT:
        return note(text, line)
    return ok(text, line)


def _without_install(facts: Facts) -> str:
    """The Quadlet file that asks for no start at boot; "" where none is known."""
    try:
        found = unit_box.quadlets(facts)
    except Unknowable:
        return ""
    asks = (line for _, lines in found for line in lines if line.section == "Install")
    return found[0][0] if found and not any(line.value for line in asks) else ""


def _start(facts: Facts, unit: str, result: str) -> Fix:
    """Back to work: a unit that has used up its tries is reset first."""
    verbs = ("reset-failed", "start") if result == "start-limit-hit" else ("start",)
    root = not unit_box.is_user(facts)
    return Fix(
        "B",
        tuple(unit_box.systemctl(facts, verb, unit) for verb in verbs),
        f"starts it now; why it ended: {_journal(facts, unit)}",
        unit_box.systemctl(facts, "stop", unit),
        deeds=tuple(Deed("run", unit_box.argv(facts, verb, unit), root=root, seconds=900.0) for verb in verbs),
        back=(Deed("run", unit_box.argv(facts, "stop", unit), root=root, seconds=120.0),),
        again=("E01", "E07"),
    )


def _journal(facts: Facts, unit: str) -> str:
    return f"journalctl --user -u {unit} -n 50" if unit_box.is_user(facts) else f"sudo journalctl -u {unit} -n 50"


# ----------------------------------------------------------------------------------------------------------------- K05


@check(
    "K05",
    "systemd has read the units as they are",
    group="units",
    slug="daemon-reload",
    needs=(UNITS,),
    why="After a file was changed systemd still runs what it read before. The next start then surprises: it uses the "
    "old text, or the new one after somebody else's daemon-reload.",
    source="systemctl(1), NeedDaemonReload",
)
def daemon_reload(facts: Facts) -> Answer:
    units = facts.answer(UNITS)
    if not isinstance(units, Mapping):
        raise Unknowable("systemd was not asked", "systemctl show triton.service -p NeedDaemonReload")
    told = {
        str(unit): str(found["NeedDaemonReload"])
        for unit, found in units.items()
        if isinstance(found, Mapping) and "NeedDaemonReload" in found and found.get("LoadState") != "not-found"
    }
    if not told:
        return skip("systemd told of no unit that matters here")
    stale = sorted(unit for unit, answer in told.items() if answer == "yes")
    if not stale:
        return ok(f"none of {len(told)} changed since systemd read it")
    of_user = stale[0].startswith("user:")
    line = tuple(Evidence(f"systemctl show {unit}", "NeedDaemonReload=yes") for unit in stale)
    words = ("systemctl", "--user", "daemon-reload") if of_user else ("systemctl", "daemon-reload")
    fix = Fix(
        "B",
        (" ".join(words if of_user else ("sudo", *words)),),
        "systemd reads the files; nothing starts or stops. Where A17 warns, a running container may lose its GPU by it",
        deeds=(Deed("run", words, root=not of_user),),
        again=("K02", "K03"),
    )
    more = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
    return warn(f"{stale[0].removeprefix('user:')}{more} changed on disk since systemd read it", line, fix)
