"""Quadlet files: whether this host's Podman can make a unit of them: K04."""

from __future__ import annotations

from collections.abc import Mapping

from console.checks import unit_box
from console.checks.box import PING, RELOADS, container_name, podman_version, version
from console.checks.check import Answer, check, fail, ok, skip
from console.clients.unit_lines import UnitLine
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix

_V2 = "/sys/fs/cgroup/cgroup.controllers"
FIRST = (4, 4)
"""The Podman that brought Quadlet."""

SINCE: Mapping[tuple[int, int], str] = {
    (4, 5): "Rootfs Secret LogDriver Mount IP IP6 Tmpfs UserNS HealthCmd HealthInterval HealthOnFailure HealthRetries "
    "HealthStartPeriod HealthStartupCmd HealthStartupInterval HealthStartupRetries HealthStartupSuccess "
    "HealthStartupTimeout HealthTimeout SecurityLabelDisable SecurityLabelFileType SecurityLabelLevel "
    "SecurityLabelType",
    (4, 6): "AutoUpdate HostName Mask Unmask Pull SecurityLabelNested Sysctl WorkingDir",
    (4, 7): "DNS DNSOption DNSSearch PidsLimit ShmSize Ulimit",
    (4, 8): "GIDMap UIDMap SubGIDMap SubUIDMap ReadOnlyTmpfs",
    (5, 0): "Entrypoint Pod StopTimeout",
    (5, 1): "GroupAdd",
    (5, 2): "LogOpt NetworkAlias StopSignal",
    (5, 3): "AddHost CgroupsMode HealthLogDestination HealthMaxLogCount HealthMaxLogSize StartWithPod Memory ReloadCmd "
    "ReloadSignal Retry RetryDelay",
}
"""First Podman (for the last line: at the earliest) that knows a key of [Container]. An older one drops the whole file.
From podman's quadlet.go by tag (host.md K04) and containers/podlet, which writes files for older Podmans."""
_KNOWN_SINCE = {key: since for since, keys in SINCE.items() for key in keys.split()}

_OPTIONS: Mapping[str, str] = {
    "ShmSize": "--shm-size",
    "Ulimit": "--ulimit",
    "PidsLimit": "--pids-limit",
    "DNS": "--dns",
    "DNSSearch": "--dns-search",
    "DNSOption": "--dns-option",
    "HostName": "--hostname",
    "Pull": "--pull",
    "Sysctl": "--sysctl",
    "WorkingDir": "--workdir",
    "Entrypoint": "--entrypoint",
    "StopTimeout": "--stop-timeout",
    "GroupAdd": "--group-add",
    "LogOpt": "--log-opt",
    "NetworkAlias": "--network-alias",
    "StopSignal": "--stop-signal",
    "AddHost": "--add-host",
    "Memory": "--memory",
    "Tmpfs": "--tmpfs",
    "LogDriver": "--log-driver",
    "Mount": "--mount",
    "UserNS": "--userns",
    "IP": "--ip",
    "IP6": "--ip6",
}
"""Keys that `PodmanArgs=` says as an option of podman-run, value for value."""


@check(
    "K04",
    "Podman can use its Quadlet file",
    group="units",
    slug="quadlet",
    needs=(PING, _V2, *unit_box.QUADLETS),
    why="Quadlet needs cgroup v2, and a key that this Podman does not know makes it drop the whole file: then there is "
    "no unit, and Triton does not start.",
    source="podman-systemd.unit(5) v4.9.4; podman#23187; podman quadlet.go by tag",
)
def quadlet(facts: Facts) -> Answer:
    found = unit_box.quadlets(facts)
    if not found:
        return skip("no Quadlet file makes the container")
    path, lines = found[0]
    if not facts.exists(_V2):
        return fail(
            "a Quadlet file, and this host has cgroup v1",
            (Evidence(_V2, "no such file"), Evidence(path, path)),
            _v2(facts),
        )
    told = podman_version(facts)
    have = version(told)[:2]
    if len(have) < 2:
        raise Unknowable("Podman's version is not told", "podman --version")
    if have < FIRST:
        return fail(f"Podman {told} knows no Quadlet; 4.4 brought it", (Evidence("Podman", told), Evidence(path, path)))
    for path, lines in found:
        late = [line for line in lines if line.section == "Container" and _KNOWN_SINCE.get(line.key, FIRST) > have]
        if late:
            return _too_new(facts, path, late, told)
    names = ", ".join(one.rsplit("/", 1)[-1] for one, _ in found)
    return ok(f"{names}: Podman {told} knows every key", (Evidence(found[0][0], f"{len(found[0][1])} keys"),))


def _too_new(facts: Facts, path: str, late: list[UnitLine], told: str) -> Answer:
    keys = list(dict.fromkeys(line.key for line in late))
    newest = max(_KNOWN_SINCE[key] for key in keys)
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    text = f"{keys[0]}={more} need{'' if more else 's'} Podman {newest[0]}.{newest[1]}, this is {told}: no unit is made"
    evidence = tuple(Evidence(f"{line.path}:{line.number}", f"{line.key}={line.value}") for line in late)
    root = not unit_box.is_user(facts)
    sudo = "sudo " if root else ""
    reload_ = unit_box.systemctl(facts, "daemon-reload")
    if any(key not in _OPTIONS for key in keys):
        fix = Fix(
            "S",
            (f"{'sudoedit' if root else 'vi'} {path}", reload_),
            "say it by PodmanArgs= with the option of podman-run, or leave it out",
        )
        return fail(text, evidence, fix, keys=" ".join(keys))
    there = [f"s|^{key}=|PodmanArgs={_OPTIONS[key]}=|" for key in keys]
    back = [f"s|^PodmanArgs={_OPTIONS[key]}=|{key}=|" for key in keys]
    fix = Fix(
        "P",
        (*(f"{sudo}sed -i '{one}' {path}" for one in there), reload_),
        f"systemd makes the unit anew; nothing starts or stops. {RELOADS}",
        "; ".join(f"{sudo}sed -i '{one}' {path}" for one in back) + f"; {reload_}",
        deeds=(*(Deed("run", ("sed", "-i", one, path), path=path, root=root) for one in there), _reload(facts, root)),
        back=(_reload(facts, root),),
        again=("K01", "K02"),
    )
    return fail(text, evidence, fix, keys=" ".join(keys))


def _reload(facts: Facts, root: bool) -> Deed:
    return Deed("run", unit_box.argv(facts, "daemon-reload"), root=root)


def _v2(facts: Facts) -> Fix:
    container = container_name(facts)
    return Fix(
        "P",
        (
            unit_box.console(facts, f"unit.write {container} kind=service"),
            unit_box.systemctl(facts, "enable", f"{container}.service"),
        ),
        "a hand-written unit does the same on cgroup v1; D03 has the kernel argument for cgroup v2, which wants a "
        "reboot",
        unit_box.console(facts, f"unit.restore {container}.service"),
        action="unit.write" if facts.every("container") else "",
        values={"kind": "service"} if facts.every("container") else {},
    )
