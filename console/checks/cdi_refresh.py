"""The service that writes the CDI spec at every boot and after a driver update, and its order before the container."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.checks import box, cdi_fixes
from console.checks.cdi_files import NO_SPEC
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix

PATH_UNIT = "nvidia-cdi-refresh.path"
_DROP_IN = f"/etc/systemd/system/{cdi_fixes.REFRESH}.d/10-no-restart.conf"
_RELOAD = Deed("run", argv=("systemctl", "daemon-reload"))
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.@-]{1,200}")
_ENABLED = ("enabled", "enabled-runtime", "static", "generated", "linked")


def _shown(unit: Mapping[str, str], name: str, *properties: str) -> tuple[Evidence, ...]:
    return (Evidence(f"$ systemctl show {name}", " ".join(f"{one}={unit.get(one, '')}" for one in properties)),)


def _sudo(*deeds: Deed) -> tuple[str, ...]:
    return tuple(f"sudo {' '.join(deed.argv)}" for deed in deeds)


def _run(*argv: str) -> Deed:
    return Deed("run", argv=argv)


# ----------------------------------------------------------------------------------------------------------------- B12


@check(
    "B12",
    "nvidia-cdi-refresh does its work",
    group="cdi",
    slug="cdi-refresh",
    needs=(box.BUS, cdi_fixes.CTK_VERSION, *cdi_fixes.REFRESH_FILES, cdi_fixes.ENV_FILE, box.UNITS),
    why="The service writes the spec at boot, its path unit after an update of the driver. Where it fails the spec "
    "stays as it was, and the next start of the container is what shows it.",
    source="NVIDIA container toolkit deployments/systemd; toolkit#1395, #1517, #1611; systemd-rhel8 PR#284",
)
def refresh(facts: Facts) -> Answer:
    """State of the oneshot service (inactive after success is right) and of its path unit."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    if not cdi_fixes.refresh_file(facts):
        return _without(facts)
    name = cdi_fixes.REFRESH
    service = box.unit(facts, name)
    state, result = service.get("ActiveState", ""), service.get("Result", "")
    lines = _shown(service, name, "LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus")
    restart = Deed("run", argv=("systemctl", "restart", name), path=cdi_fixes.output(facts))
    if service.get("LoadState") == "bad-setting":
        return fail("systemd refuses it: oneshot with Restart= (RHEL 8.6 and older)", lines, _no_restart())
    if service.get("LoadState") == "not-found":
        effect = f"reads the unit and writes the spec. {box.RELOADS}"
        reload = Fix("B", _sudo(_RELOAD, restart), effect, deeds=(_RELOAD, restart))
        return warn("its file is here, systemd has not read it", lines, reload)
    if service.get("LoadState") == "masked":
        return note("masked: somebody turned it off", lines)
    if state == "failed" or result not in ("", "success", "exec-condition"):
        fix = Fix(
            "B",
            (*_sudo(restart), f"journalctl -u {name} -n 20 --no-pager"),
            "writes the spec anew; takes effect when the container starts next",
            "the spec that was there is put back",
            deeds=(restart,),
            again=cdi_fixes.AGAIN,
        )
        text = f"failed: {result or state}, exit {service.get('ExecMainStatus', '?')}"
        return fail(text, lines, fix, exit=service.get("ExecMainStatus", ""))
    if result == "exec-condition":
        return warn("left out: no nvidia module for this kernel in modules.dep (A07)", lines)
    watch = box.unit(facts, PATH_UNIT)
    if watch.get("ActiveState") != "active":
        enable, off = _run("systemctl", "enable", "--now", PATH_UNIT), _run("systemctl", "disable", "--now", PATH_UNIT)
        fix = Fix(
            "P", _sudo(enable), "writes the spec after driver updates", _sudo(off)[0], deeds=(enable,), back=(off,)
        )
        text = f"{PATH_UNIT} is {watch.get('ActiveState') or 'not there'}: driver updates go unseen"
        return warn(text, _shown(watch, PATH_UNIT, "LoadState", "ActiveState", "UnitFileState"), fix)
    return ok(f"{state}, {result or 'no result yet'}; its path unit watches", lines)


def _without(facts: Facts) -> Answer:
    try:
        version = cdi_fixes.toolkit(facts)
    except Unknowable:
        return skip("no nvidia-cdi-refresh here")
    told = ".".join(map(str, version)) or "of unknown version"
    if version >= (1, 18):
        return note(f"toolkit {told}, but its nvidia-cdi-refresh is not here")
    return skip(f"toolkit {told} has no nvidia-cdi-refresh (1.18 has)")


def _no_restart() -> Fix:
    start = _run("systemctl", "start", cdi_fixes.REFRESH)
    text = "[Service]\nRestart=no\n"
    return Fix(
        "P",
        (
            f"sudo mkdir -p {_DROP_IN.rpartition('/')[0]}",
            f"printf '[Service]\\nRestart=no\\n' | sudo tee {_DROP_IN}",
            *_sudo(_RELOAD, start),
        ),
        f"systemd takes the unit, and it writes the spec. {box.RELOADS}",
        f"sudo rm {_DROP_IN} && sudo systemctl daemon-reload",
        deeds=(Deed("write", path=_DROP_IN, text=text), _RELOAD, start),
        back=(_RELOAD,),
        again=cdi_fixes.AGAIN,
    )


# ----------------------------------------------------------------------------------------------------------------- B13


@check(
    "B13",
    "the spec outlives a boot and is there first",
    group="cdi",
    slug="cdi-order",
    needs=(box.BUS, *box.CDI_NEEDS, *cdi_fixes.NEEDS, box.UNITS),
    why="/var/run/cdi is memory: at boot somebody must write the spec, and before the container starts. Otherwise the "
    "first start after a reboot finds no GPU.",
    source="NVIDIA container toolkit#1735, PR#1746, PR#2019 (orders Docker and CRI-O, not Podman); nixpkgs#353059",
)
def outlives_boot(facts: Facts) -> Answer:
    """Where the spec lies, whether the refresh service is enabled, and whether the container's unit waits for it."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    specs = box.cdi_in_force(facts)
    if not specs:
        return skip(NO_SPEC)
    lasting = next((spec.path for spec in specs if spec.path.startswith("/etc/")), "")
    path = lasting or specs[0].path
    file = cdi_fixes.refresh_file(facts)
    if not file:
        if lasting:
            return ok(f"{path} outlives a boot; no nvidia-cdi-refresh here")
        fix = cdi_fixes.generate(facts, cdi_fixes.STATIC)
        return warn(f"{path} is gone after a boot unless something else writes it", (), fix)
    service = box.unit(facts, cdi_fixes.REFRESH)
    lines = _shown(service, cdi_fixes.REFRESH, "LoadState", "ActiveState", "UnitFileState")
    if service.get("UnitFileState", "") not in _ENABLED:
        if lasting:
            return ok(f"{path} outlives a boot; nvidia-cdi-refresh is off", lines)
        return fail(f"{path} is gone after a boot: nvidia-cdi-refresh is off", lines, _enable())
    return _order(facts, path, file)


def _enable() -> Fix:
    on = _run("systemctl", "enable", "--now", cdi_fixes.REFRESH, PATH_UNIT)
    off = _run("systemctl", "disable", cdi_fixes.REFRESH, PATH_UNIT)
    effect = "writes the spec now and at every boot"
    return Fix("P", _sudo(on), effect, _sudo(off)[0], deeds=(on,), back=(off,), again=("B12", *cdi_fixes.AGAIN))


def _order(facts: Facts, path: str, file: str) -> Answer:
    """The container's unit against the refresh service, which writes the spec at boot."""
    unit = next(iter(facts.every("unit")), "")
    if not unit:
        return ok(f"{path}: nvidia-cdi-refresh writes it at boot; no unit starts the container")
    if box.rootless(facts):
        return note(f"{unit} is a user's unit: it cannot wait for nvidia-cdi-refresh")
    told = box.unit(facts, unit)
    if "After" not in told:
        raise Unknowable(f"the order of {unit} is not told", f"systemctl show {unit} -p After")
    is_after = cdi_fixes.REFRESH in told["After"].split()
    late = facts.lines(file, r"^After=(?:.{0,200}\s)?multi-user\.target\b")
    if late and not is_after:
        text = f"{cdi_fixes.REFRESH} comes after multi-user.target, {unit} does not wait"
        return warn(text, late, _newer_toolkit(facts), unit=unit)
    if late:
        text = f"{unit} and nvidia-cdi-refresh (after multi-user.target) can wait for each other"
        return warn(text, late, _newer_toolkit(facts), unit=unit)
    if not is_after:
        lines = (Evidence(f"$ systemctl show {unit}", f"After={told['After']}"),)
        return warn(f"{unit} has no After={cdi_fixes.REFRESH}", lines, _after(unit), unit=unit)
    return ok(f"{unit} starts after nvidia-cdi-refresh", unit=unit)


def _newer_toolkit(facts: Facts) -> Fix:
    words = box.upgrade(box.distro(facts), cdi_fixes.PACKAGE)
    return Fix("S", (words,), "1.19.1 and later no longer wait for multi-user.target (toolkit PR#1746)", again=("B12",))


def _after(unit: str) -> Fix | None:
    if not _UNIT_NAME.fullmatch(unit):
        return None
    names = f"{cdi_fixes.REFRESH} nvidia-persistenced.service"
    text = f"[Unit]\nWants={cdi_fixes.REFRESH}\nAfter={names}\n"
    file = f"/etc/systemd/system/{unit}.d/10-nvidia-cdi.conf"
    return Fix(
        "P",
        (
            f"sudo mkdir -p {file.rpartition('/')[0]}",
            f"printf '[Unit]\\nWants={cdi_fixes.REFRESH}\\nAfter={names}\\n' | sudo tee {file}",
            *_sudo(_RELOAD),
        ),
        f"takes effect at the unit's next start. {box.RELOADS}",
        f"sudo rm {file} && sudo systemctl daemon-reload",
        deeds=(Deed("write", path=file, text=text), _RELOAD),
        back=(_RELOAD,),
    )
