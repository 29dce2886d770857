"""Fixes of host tuning that last: a line in sysctl.d, a line in tmpfiles.d for what is no sysctl, a profile of tuned.

Each keeps the console's settings in files of its own, beside those of the distribution, and says how to go back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote

from console.checks.box import RELOADS, UNITS
from console.checks.machine import active
from console.core.facts import Facts, Unknowable
from console.core.finding import Deed, Fix

# -------------------------------------------------------------------------------------------------------------- sysctl

SYSCTL = "/etc/sysctl.d/90-gpuconsole.conf"
SYSCTL_NEEDS = (SYSCTL, "/etc/sysctl.d/*.conf", "/etc/sysctl.conf")


def sysctl_fix(facts: Facts, key: str, value: int, now: str) -> Fix:
    """`vm.swappiness` set now and at each boot; `now` is the value it has. Needs SYSCTL_NEEDS."""
    later = _set_later(facts, key)
    if later:
        return Fix(
            "S",
            (f"sudo sysctl -w {key}={value}", f"sudoedit {later}"),
            f"now, and from the next boot once {later} says so: it is read after {SYSCTL} and sets {key} too",
            f"sudo sysctl -w {key}={now}",
        )
    line = f"{key} = {value}"
    text = own_text(facts, SYSCTL)
    deeds: tuple[Deed, ...] = ()
    if text is not None:
        kept = [one for one in text.splitlines() if not _sets(one, key)]
        whole = "".join(f"{one}\n" for one in [*kept, line])
        deeds = (Deed("write", path=SYSCTL, text=whole), Deed("run", ("sysctl", "-p", SYSCTL)))
    return Fix(
        "P",
        (f"echo '{line}' | sudo tee -a {SYSCTL}", f"sudo sysctl -p {SYSCTL}"),
        "takes effect now and at each boot; no container is touched",
        f"sudo sed -i '/^{re.escape(key)} *=/d' {SYSCTL} && sudo sysctl -w {key}={now}",
        deeds=deeds,
        back=(Deed("run", ("sysctl", "-w", f"{key}={now}")),) if deeds else (),
    )


def _set_later(facts: Facts, key: str) -> str:
    """The file that is read after ours and sets the key too; "" = none that can be read."""
    try:
        paths = [path for path in facts.glob(SYSCTL_NEEDS[1]) if path > SYSCTL]
    except Unknowable:
        paths = []
    for path in ("/etc/sysctl.conf", *reversed(paths)):
        try:
            if any(_sets(line, key) for line in (facts.maybe(path) or "").splitlines()):
                return path
        except Unknowable:
            continue
    return ""


def _sets(line: str, key: str) -> bool:
    name = line.partition("=")[0].strip().lstrip("-").strip()
    return name.replace("/", ".") == key


# ------------------------------------------------------------------------------------------------------------ tmpfiles

TMPFILES = "/etc/tmpfiles.d/90-gpuconsole.conf"
_BACK = "/run/gpuconsole-back.conf"


def sysfs_fix(facts: Facts, path: str, value: str, now: str) -> Fix:
    """A kernel file, `*` in its path allowed, written now and at each boot by systemd-tmpfiles; `now` is what it
    holds. Needs TMPFILES."""
    line = f"w {path} - - - - {value}"
    text = own_text(facts, TMPFILES)
    deeds: tuple[Deed, ...] = ()
    back: tuple[Deed, ...] = ()
    if text is not None:
        kept = [one for one in text.splitlines() if one.split()[1:2] != [path]]
        whole = "".join(f"{one}\n" for one in [*kept, line])
        deeds = (Deed("write", path=TMPFILES, text=whole), Deed("run", ("systemd-tmpfiles", "--create", TMPFILES)))
        back = (
            Deed("write", path=_BACK, text=f"w {path} - - - - {now}\n"),
            Deed("run", ("systemd-tmpfiles", "--create", _BACK)),
        )
    return Fix(
        "P",
        (f"echo '{line}' | sudo tee -a {TMPFILES}", f"sudo systemd-tmpfiles --create {TMPFILES}"),
        "takes effect now and at each boot; no container is touched",
        f"take the line out of {TMPFILES}, then: echo {now} | sudo tee {path}",
        deeds=deeds,
        back=back,
    )


def own_text(facts: Facts, path: str) -> str | None:
    """What a file of ours holds, "" where there is none; None where it is not known whole."""
    try:
        return None if facts.file(path).cut else facts.maybe(path) or ""
    except Unknowable:
        return None


# -------------------------------------------------------------------------------------------------------------- limits

LIMITS = "/etc/security/limits.d/90-gpuconsole.conf"
USER_UNIT = "/etc/systemd/system/user@.service.d/90-gpuconsole.conf"
LIMITS_NEEDS = (LIMITS, USER_UNIT)


def limits_fix(facts: Facts, user: str, wanted: Mapping[str, str], effect: str, again: tuple[str, ...]) -> Fix:
    """Hard limits of a user raised, `{"memlock": "-1"}`, for logins and for his own systemd; other lines of both files
    stay. Needs LIMITS_NEEDS."""
    rows = [f"{user} - {name} {'unlimited' if value == '-1' else value}" for name, value in wanted.items()]
    keys = {name: f"Limit{name.upper()}=" for name in wanted}
    settings = [f"{keys[name]}{'infinity' if value == '-1' else value}" for name, value in wanted.items()]
    limits, unit = own_text(facts, LIMITS), own_text(facts, USER_UNIT)
    reload_ = Deed("run", ("systemctl", "daemon-reload"))
    deeds: tuple[Deed, ...] = ()
    if limits is not None and unit is not None:
        ours = [[user, "-", name] for name in wanted]
        kept = [line for line in limits.splitlines() if line.split()[:3] not in ours]
        sections = [line for line in unit.splitlines() if not line.startswith(tuple(keys.values()))]
        sections += [] if "[Service]" in sections else ["[Service]"]
        deeds = (
            Deed("write", path=LIMITS, text="\n".join([*kept, *rows, ""])),
            Deed("write", path=USER_UNIT, text="\n".join([*sections, *settings, ""])),
            reload_,
        )
    gone = ";".join(f"/^{re.escape(user)} - {name} /d" for name in wanted)
    return Fix(
        "P",
        (
            f"{_printf(rows)} | sudo tee -a {LIMITS}",
            f"sudo mkdir -p {USER_UNIT.rpartition('/')[0]}",
            f"{_printf(['[Service]', *settings])} | sudo tee -a {USER_UNIT}",
            "sudo systemctl daemon-reload",
        ),
        f"{effect}. {RELOADS}",
        f"sudo sed -i '{gone}' {LIMITS}; sudo sed -i '{';'.join(f'/^{key}/d' for key in keys.values())}' {USER_UNIT}; "
        "sudo systemctl daemon-reload",
        deeds=deeds,
        back=(reload_,) if deeds else (),
        again=again,
    )


def _printf(lines: Sequence[str]) -> str:
    return f"printf '%s\\n' {' '.join(quote(line) for line in lines)}"


# --------------------------------------------------------------------------------------------------------------- tuned

PROFILE = "/etc/tuned/active_profile"
MODE = "/etc/tuned/profile_mode"
_FOLDERS = ("/usr/lib/tuned", "/usr/lib/tuned/profiles")
TUNED_NEEDS = (PROFILE, MODE, *_FOLDERS, UNITS)
_WANTED = ("accelerator-performance", "latency-performance")
_NAME = re.compile(r"\w[\w.+-]{0,80}", re.ASCII)


def profiles(facts: Facts) -> tuple[str, ...]:
    """Names of the active profile, `("throughput-performance",)`; () where tuned is not installed or has none.
    Needs PROFILE."""
    return tuple((facts.maybe(PROFILE) or "").split())


def service_fix(name: str, when: str, again: tuple[str, ...] = ()) -> Fix:
    """A service of this host's systemd started now and at each boot; `when` it takes effect."""
    on, off = (("systemctl", verb, "--now", name) for verb in ("enable", "disable"))
    return Fix(
        "B",
        (f"sudo {' '.join(on)}",),
        f"takes effect {when} and at each boot; no container is touched",
        f"sudo {' '.join(off)}",
        deeds=(Deed("run", on),),
        back=(Deed("run", off),),
        again=again,
    )


def profile_fix(facts: Facts) -> Fix | None:
    """tuned's profile for an accelerator; None where tuned is not installed or has no such profile. Needs
    TUNED_NEEDS."""
    try:
        here = {name for folder in _FOLDERS for name in facts.names(folder)}
        wanted = next((name for name in _WANTED if name in here), None)
        if wanted is None or not facts.exists(PROFILE):
            return None
        before = " ".join(name for name in profiles(facts) if _NAME.fullmatch(name))
        automatic = (facts.maybe(MODE) or "").strip() == "auto"
    except Unknowable:
        return None
    argv: tuple[str, ...] = ("tuned-adm", "profile", *before.split()) if before else ("tuned-adm", "off")
    if automatic:
        argv = ("tuned-adm", "auto_profile")
    steps, back = [f"tuned-adm profile {wanted}"], [" ".join(argv)]
    try:
        if not active(facts, "tuned"):
            steps.insert(0, "systemctl enable --now tuned")
            back.append("systemctl disable --now tuned")
    except Unknowable:
        pass
    return Fix(
        "P",
        tuple(f"sudo {step}" for step in steps),
        "takes effect now and at each boot; no container is touched",
        " && ".join(f"sudo {step}" for step in back),
        deeds=tuple(Deed("run", tuple(step.split())) for step in steps),
        back=tuple(Deed("run", tuple(step.split())) for step in back),
        again=("F01", "F02", "F04", "F05"),
    )
