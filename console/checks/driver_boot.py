"""Secure Boot and the signature of the nvidia module."""

from __future__ import annotations

from console.checks.box import BUS, DRIVER, KERNEL_LOG, NO_DEVICE, driver, gpus, kernel_lines, surely_there
from console.checks.check import Answer, check, fail, ok, skip, warn
from console.checks.driver_box import (
    FILES,
    MODULES,
    REBOOT,
    modinfo,
    modinfo_needs,
    module_files,
    modules,
)
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

FIRMWARE = "/sys/firmware/efi"
VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOKUTIL = "mokutil --sb-state"
KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
"""Where DKMS (RHEL, Debian) and Ubuntu keep the key that they sign modules with."""

_REFUSED = (
    r"Loading of (?:module with unavailable key|unsigned module) is rejected|Lockdown: \S{1,80} unsigned module loading"
    r"|nvidia.{0,80}(?:Required key not available|Key was rejected by service)"
)


@check(
    "A14",
    "Secure Boot lets the nvidia module in",
    group="driver",
    slug="secure-boot",
    needs=(
        BUS,
        f"stat {FIRMWARE}",
        VARIABLE,
        f"$ {MOKUTIL}",
        *DRIVER,
        *FILES,
        *modinfo_needs("signer"),
        *modinfo_needs("sig_id"),
        KERNEL_LOG,
        MODULES,
        *(f"stat {path}" for path in KEYS),
    ),
    why="Under Secure Boot the kernel takes only modules signed with a key that is enrolled on this very machine. A "
    "module that DKMS built is signed with a key of the box, which has to be enrolled once at its console.",
    source="NVIDIA/yum-packaging-precompiled-kmod#59, #67, #68",
)
def secure_boot(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    state = _state(facts)
    if state is None:
        return ok("no UEFI, so no Secure Boot", secure_boot="none")
    on, line = state
    if not on:
        return ok("Secure Boot is off", (line,), secure_boot="off")
    loaded = driver(facts)
    if loaded is not None:
        return ok("Secure Boot is on and the module is loaded", (line, loaded[1]), secure_boot="on")
    if not module_files(facts, facts.one("release")):
        return skip("no nvidia module is on disk (A07)")
    return _kept_out(facts, line)


def _kept_out(facts: Facts, line: Evidence) -> Answer:
    """Secure Boot is on, the module is on disk and not loaded: is the signature the cause?"""
    try:
        refused = kernel_lines(facts, _REFUSED)[-2:]
    except Unknowable:
        refused = ()
    signer, signature = _field(facts, "signer"), _field(facts, "sig_id")
    who = signer[0] if signer else ""
    seen = [line, *refused, *((signer[1],) if signer else ())]
    fix = _enrol(facts, who)
    if refused:
        by = f", signed by {one_line(who, 60)}" if who else ""
        return fail(f"the kernel refuses the module{by}", seen, fix, secure_boot="on", signer=who)
    if signer and signature and not who and not signature[0]:
        return fail("Secure Boot is on and the module is not signed", seen, fix, secure_boot="on", signer="")
    text = (
        f"Secure Boot is on and nvidia is not loaded; {'signed by ' + one_line(who, 60) if who else 'signer not told'}"
    )
    if _nouveau(facts):
        return warn(f"{text} (nouveau is loaded, A03)", seen, fix, secure_boot="on", signer=who)
    return fail(text, seen, fix, secure_boot="on", signer=who)


def _state(facts: Facts) -> tuple[bool, Evidence] | None:
    """Whether Secure Boot is on: the last of the variable's five bytes, else what mokutil says; None without UEFI."""
    if not facts.exists(FIRMWARE):
        return None
    try:
        text = facts.text(VARIABLE)
    except Unknowable:
        text = ""
    if len(text) == 5 and text[-1] in "\x00\x01":
        return text[-1] == "\x01", Evidence(VARIABLE, f"last byte {ord(text[-1])}")
    found = facts.command(MOKUTIL)
    said = (found.out + found.err).strip()
    if "SecureBoot enabled" in said or "SecureBoot disabled" in said:
        return "SecureBoot enabled" in said, Evidence(f"$ {MOKUTIL}", said)
    if "EFI variables are not supported" in said:
        return None
    raise Unknowable("whether Secure Boot is on is not told", f"sudo {MOKUTIL}")


def _field(facts: Facts, name: str) -> tuple[str, Evidence] | None:
    try:
        return modinfo(facts, name)
    except Unknowable:
        return None


def _enrol(facts: Facts, signer: str) -> Fix:
    """Enrol the key that the module is signed with. `mokutil --import` signs nothing."""
    key = next((path for path in KEYS if surely_there(facts, path)), None)
    if key is None or signer.startswith("NVIDIA"):
        return Fix(
            "S",
            ("modinfo -F signer nvidia", "mokutil --list-enrolled"),
            "changes nothing: compare the two. The certificate of the module's signer must be enrolled with `mokutil "
            "--import` and confirmed at the console during the next boot; DKMS makes a key at its next build",
            again=("A05",),
        )
    return Fix(
        "R",
        (f"sudo mokutil --import {key}", REBOOT),
        "asks for a password of your choice; at the next boot choose Enroll MOK at the machine's console and give it "
        "there. It enrols the key and signs nothing: a module that is not signed must be built again (dkms) first",
        f"sudo mokutil --delete {key}",
        reboot=True,
        again=("A05",),
    )


def _nouveau(facts: Facts) -> bool:
    try:
        return "nouveau" in modules(facts)
    except Unknowable:
        return False
