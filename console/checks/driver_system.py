"""The operating system, and what the kernel says of itself: taint flags and lockdown."""

from __future__ import annotations

import re

from console.checks.box import BUS, NO_DEVICE, OS_RELEASE, Distro, distro, gpus
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.driver_box import REBOOT
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line, whole_number

_ENTERPRISE_LINUX = ("rhel", "rocky", "almalinux", "centos", "ol")


@check(
    "A01",
    "the operating system is supported",
    group="driver",
    slug="os-supported",
    needs=(OS_RELEASE,),
    why="NVIDIA's driver and container toolkit are built and tested for few systems. An old one brings a Podman and a "
    "systemd that cannot do what CDI and its refresh service need.",
    source="NVIDIA container toolkit, supported-platforms; redhat-plumbers/systemd-rhel8#284",
)
def supported(facts: Facts) -> Answer:
    box = distro(facts)
    if not box.id:
        raise Unknowable(f"{OS_RELEASE} names no system", f"cat {OS_RELEASE}")
    name = one_line(box.name or f"{box.id} {box.version}", 80)
    seen = facts.lines(OS_RELEASE, r"^(?:ID|VERSION_ID|PRETTY_NAME)=")
    data = {"os": box.id, "version": box.version}
    if box.id in _ENTERPRISE_LINUX:
        return _enterprise_linux(box, name, seen, data)
    oldest = {"ubuntu": 22, "debian": 12}.get(box.id)
    if oldest is None or box.major is None:
        return note(f"{name}: not among the systems this is made for", seen, **data)
    if box.major < oldest:
        upgrade = ("sudo do-release-upgrade",) if box.id == "ubuntu" else ("sudo apt-get full-upgrade",)
        fix = Fix("S", upgrade, f"a new release ({oldest} or newer); plan it as a change of the whole box", reboot=True)
        return warn(f"{name}: older than {oldest}, its Podman is too old for CDI", seen, fix, **data)
    return ok(name, seen, **data)


def _enterprise_linux(box: Distro, name: str, seen: tuple[Evidence, ...], data: dict[str, str]) -> Answer:
    if box.major is None:
        return note(f"{name}: its version is not told", seen, **data)
    if box.id == "centos" and box.major <= 8:
        lines = (
            "curl -O https://raw.githubusercontent.com/AlmaLinux/almalinux-deploy/master/almalinux-deploy.sh",
            "sudo bash almalinux-deploy.sh",
            REBOOT,
        )
        fix = Fix("S", lines, "moves the box to a rebuild that still gets updates; back it up first", reboot=True)
        return fail(f"{name} gets no updates any more", seen, fix, **data)
    minor = whole_number(box.version.partition(".")[2].partition(".")[0])
    if box.major < 8 or (box.major == 8 and minor is not None and minor < 8):
        fix = Fix(
            "S",
            ("sudo dnf -y update", REBOOT),
            "takes effect after the reboot; build the driver's module for the new kernel only then (A07)",
            reboot=True,
            again=("A07", "B01", "B12"),
        )
        return warn(f"{name}: older than 8.8, old Podman and systemd", seen, fix, **data)
    if box.major > 9:
        return note(f"{name}: newer than what this is tried on", seen, **data)
    return ok(name, seen, **data)


LOCKDOWN = "/sys/kernel/security/lockdown"


@check(
    "A15",
    "kernel lockdown is no obstacle",
    group="driver",
    slug="kernel-lockdown",
    needs=(LOCKDOWN, BUS),
    why="A kernel that is locked down takes only modules signed with a key it knows. It is what refuses an unsigned "
    "nvidia module under Secure Boot (A14).",
    source="Linux security/lockdown/lockdown.c",
)
def lockdown(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    text = facts.text(LOCKDOWN)
    mode = re.search(r"\[(none|integrity|confidentiality)\]", text)
    if mode is None:
        raise Unknowable(f"{LOCKDOWN} names no mode", f"sudo cat {LOCKDOWN}")
    seen = (Evidence(LOCKDOWN, text.strip()),)
    if mode[1] == "none":
        return ok("off", seen, lockdown="none")
    return note(f"{mode[1]}: only signed modules are loaded", seen, lockdown=mode[1])


TAINT = "/proc/sys/kernel/tainted"
_FLAGS = {
    0: "P proprietary module",
    1: "F forced module",
    4: "M machine check",
    5: "B bad page",
    7: "D the kernel died once",
    9: "W warning",
    10: "C staging driver",
    11: "I firmware bug",
    12: "O module from outside the tree",
    13: "E unsigned module",
    14: "L soft lockup",
    15: "K live patch",
}


@check(
    "A20",
    "no taint but the driver's own",
    group="driver",
    slug="kernel-taint",
    needs=(TAINT,),
    why="A loaded nvidia module taints the kernel (O, the proprietary one P too), and E tells that its signature was "
    "not known. A machine check, an oops or a lockup since the boot shows here long after its log lines are gone.",
    source="Linux admin-guide/tainted-kernels",
)
def taint(facts: Facts) -> Answer:
    text = facts.text(TAINT).strip()
    value = whole_number(text)
    if value is None or value < 0:
        raise Unknowable(f"{TAINT} holds no number", f"cat {TAINT}")
    seen = (Evidence(TAINT, text),)
    if not value:
        return ok("not tainted", seen, taint="0")
    flags = [words for bit, words in _FLAGS.items() if value >> bit & 1]
    return note(f"{value}: {', '.join(flags) or 'other flags'}", seen, taint=str(value))
