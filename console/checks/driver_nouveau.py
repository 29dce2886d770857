"""nouveau, the kernel's own driver for these cards: not loaded now, kept out at the next boot."""

from __future__ import annotations

import re

from console.checks.box import BUS, DRIVER, NO_DEVICE, OS_RELEASE, distro, driver, gpus
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.driver_box import (
    MODULES,
    OWNERS,
    REBOOT,
    attempt,
    initramfs,
    modules,
    owner_line,
    owners,
)
from console.core.facts import Evidence, Facts
from console.core.finding import Fix

CMDLINE = "/proc/cmdline"
RULES = ("/etc/modprobe.d/*.conf", "/usr/lib/modprobe.d/*.conf", "/lib/modprobe.d/*.conf", "/run/modprobe.d/*.conf")
BUILT_IN = "stat /sys/module/nouveau"
BLOCKING = (MODULES, *RULES, CMDLINE, OS_RELEASE)
"""Needs of `block`."""

_RULE = r"^\s*(?:blacklist\s+nouveau\s*(?:#.*)?$|install\s+nouveau\s+\S*/(?:true|false)\b|alias\s+nouveau\s+off\b)"
_FILE = "/etc/modprobe.d/blacklist-nouveau.conf"
_ARGUMENTS = "rd.driver.blacklist=nouveau modprobe.blacklist=nouveau"


def _rules(facts: Facts) -> tuple[Evidence, ...]:
    found = (line for pattern in RULES for path in facts.glob(pattern) for line in facts.lines(path, _RULE))
    return tuple(found)


def _arguments(facts: Facts) -> dict[str, Evidence]:
    """`rd` and `modprobe` where the kernel's command line blocks nouveau by them. Others may stand in the same list."""
    text = facts.text(CMDLINE)
    found: dict[str, Evidence] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if "nouveau" not in value.split(","):
            continue
        if name in ("rd.driver.blacklist", "rdblacklist"):
            found["rd"] = Evidence(CMDLINE, word)
        elif name in ("modprobe.blacklist", "module_blacklist"):
            found["modprobe"] = Evidence(CMDLINE, word)
    return found


def block(facts: Facts) -> Fix:
    """Keep nouveau out from the next boot on. The driver's packages bring the rule; one is written only where there is
    none. Needs BLOCKING."""
    box = distro(facts)
    written = bool(_rules(facts))
    lines: list[str] = []
    undo: list[str] = []
    if not written:
        lines.append(f"printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee {_FILE}")
        undo.append(f"sudo rm {_FILE}")
    if not box.is_debian:
        lines.append(f'sudo grubby --update-kernel=ALL --args="{_ARGUMENTS}"')
        undo.append(f'sudo grubby --update-kernel=ALL --remove-args="{_ARGUMENTS}"')
    lines += [initramfs(box), REBOOT]
    undo.append(initramfs(box))
    effect = "takes effect after the reboot; a rule alone does not help while the initramfs holds nouveau"
    return Fix("R", tuple(lines), effect, " && ".join(undo), reboot=True, again=("A02", "A03", "A05"))


@check(
    "A03",
    "nouveau is not loaded",
    group="driver",
    slug="nouveau-loaded",
    needs=(*OWNERS, *BLOCKING, BUILT_IN),
    why="nouveau and nvidia cannot both drive a card. While nouveau holds it, the nvidia module finds no device and "
    "CUDA has no GPU.",
    source="NVIDIA yum-packaging-nvidia-kmod-common; negativo17/nvidia-driver#73, #75",
)
def loaded(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    line = modules(facts).get("nouveau")
    if line is None and not facts.exists("/sys/module/nouveau"):
        return ok("not loaded")
    seen = [line.line if line else Evidence("/sys/module/nouveau", "built into the kernel")]
    fix = attempt(lambda: block(facts))
    found = owners(facts)
    held = [address for address, name in found.items() if name == "nouveau"]
    if held:
        seen += [owner_line(address, "nouveau") for address in held]
        return fail(f"nouveau is loaded and holds {', '.join(held)}", seen, fix, holder="nouveau")
    return warn("nouveau is loaded, though it holds no GPU", seen, fix)


@check(
    "A04",
    "nouveau stays out at the next boot",
    group="driver",
    slug="nouveau-blacklisted",
    needs=(BUS, *BLOCKING, *DRIVER, "find /lib/modules/{release} nouveau.ko*"),
    why="Which driver takes the card is decided early in the boot. Where nothing keeps nouveau out, an update of the "
    "kernel or of its initramfs can give it the card.",
    source="NVIDIA yum-packaging-nvidia-kmod-common nvidia-boot-update; negativo17/nvidia-driver#73",
)
def stays_out(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    rules, arguments = _rules(facts), _arguments(facts)
    seen = [*rules[:1], *arguments.values()]
    if rules and (arguments or distro(facts).is_debian):
        return ok("a rule of modprobe" + (" and the kernel's command line" if arguments else ""), seen)
    if "modprobe" in arguments:
        return ok("by the kernel's command line", seen)
    on_disk = facts.under(f"/lib/modules/{facts.one('release')}", "nouveau.ko*")
    if not any(re.fullmatch(r"nouveau\.ko(\.\w{1,4})?", path.rsplit("/", 1)[-1]) for path in on_disk):
        return ok("this kernel comes without nouveau", seen)
    fix = attempt(lambda: block(facts))
    if not rules and not arguments:
        answer = fail if "nouveau" in modules(facts) else warn
        return answer("nothing keeps nouveau out", [Evidence(CMDLINE, facts.text(CMDLINE).strip())], fix)
    if arguments:
        return warn("only the initramfs is told, no rule of modprobe", seen, fix)
    if driver(facts) is not None and "nouveau" not in modules(facts):
        return note("a rule of modprobe alone, which was enough at this boot", seen)
    return warn("a rule of modprobe, none on the kernel's command line", seen, fix)
