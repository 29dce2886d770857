"""NVIDIA devices on the PCI bus: there, driven by nvidia, not kept for virtual machines, their switches managed."""

from __future__ import annotations

from functools import partial
from shlex import quote

from console.checks.box import (
    BUS,
    DEB_ALL,
    DRIVER,
    KERNEL_LOG,
    NO_DEVICE,
    OS_RELEASE,
    RPM_ALL,
    UNITS,
    distro,
    driver,
    gpus,
    install,
    kernel_lines,
    packages,
    unit,
)
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.driver_box import (
    FILES,
    NOT_LOADED,
    OWNERS,
    PCI,
    PROBER,
    PROVIDED,
    REBOOT,
    attempt,
    branch,
    load_modules,
    module_files,
    owner_line,
    owners,
    provide,
)
from console.checks.driver_nouveau import BLOCKING, CMDLINE, block
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix


@check(
    "A02",
    "the GPU is there and nvidia drives it",
    group="driver",
    slug="gpu-on-bus",
    needs=(*OWNERS, *DRIVER, *FILES, *BLOCKING, KERNEL_LOG, PROBER, *PROVIDED),
    why="A card that the PCI bus does not show cannot be mended by software. One that another driver holds is "
    "invisible to CUDA, whatever is installed.",
    source="Linux sysfs-bus-pci",
)
def on_bus(facts: Facts) -> Answer:
    found = owners(facts)
    if not found:
        return _none(facts)
    strangers = {address: name for address, name in found.items() if name != "nvidia"}
    seen = [owner_line(address, name) for address, name in (strangers or found).items()]
    data = {"gpus": str(len(found)), "owner": next(iter((strangers or found).values()))}
    if not strangers:
        return ok(f"{_devices(len(found))}, driven by nvidia", seen, **data)
    address, name = next(iter(strangers.items()))
    more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
    text = f"{address} is driven by {name}{more}" if name else f"{address} has no driver{more}"
    answer = fail if len(strangers) == len(found) else warn
    return answer(text, seen, attempt(lambda: _take_over(facts, name)), **data)


def _none(facts: Facts) -> Answer:
    """No device: a fault only where something tells that there was one."""
    loaded = driver(facts)
    try:
        lost = kernel_lines(facts, r"NVRM:.{0,200}(?:fallen off the bus|Xid .{0,60}: 79,)")
    except Unknowable:
        lost = ()
    fix = Fix(
        "S",
        ("lspci -nn -d 10de:", "sudo dmesg | grep -iE 'pcieport|AER|NVRM'"),
        "look at the seating, the power cables and the slot's settings in the BIOS; then a cold start",
        reboot=True,
    )
    if lost:
        return fail("the GPU has fallen off the bus", lost[-3:], fix, gpus="0")
    if loaded is not None:
        return fail("no NVIDIA device on the PCI bus, though the driver is loaded", (loaded[1],), fix, gpus="0")
    files = module_files(facts, facts.one("release")) if facts.every("release") else ()
    if files:
        seen = (Evidence(files[0], "the driver's module"),)
        return fail("no NVIDIA device on the PCI bus, though its driver is installed", seen, fix, gpus="0")
    return skip(NO_DEVICE)


def _take_over(facts: Facts, name: str) -> Fix | None:
    if name == "nouveau":
        return block(facts)
    if name == "vfio-pci":
        return None
    release = facts.one("release")
    if module_files(facts, release):
        return load_modules(facts, ("nvidia", "nvidia_uvm"))
    return provide(facts, release)


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


@check(
    "A21",
    "no GPU is kept for virtual machines",
    group="driver",
    slug="gpu-held-by-vm",
    needs=(*OWNERS, OS_RELEASE, CMDLINE, "/etc/modprobe.d/*.conf"),
    why="vfio-pci hands a card to virtual machines. While it is bound, no container on this host sees the card.",
    source="Linux vfio documentation",
)
def virtual_machines(facts: Facts) -> Answer:
    found = owners(facts)
    if not found:
        return skip(NO_DEVICE)
    held = [address for address, name in found.items() if name.startswith("vfio")]
    if not held:
        return ok("none")
    lines = list(facts.lines(CMDLINE, r"vfio-pci\.ids="))
    for path in facts.glob("/etc/modprobe.d/*.conf"):
        lines += facts.lines(path, r"^\s*options\s+vfio-pci\b.*\bids=")
    fix = attempt(lambda: _release(facts, held, lines))
    seen = [*(owner_line(address, found[address]) for address in held), *lines]
    answer = fail if len(held) == len(found) else warn
    return answer(f"vfio-pci holds {', '.join(held)}", seen, fix, owner="vfio-pci")


def _release(facts: Facts, held: list[str], lines: list[Evidence]) -> Fix:
    argument = next((w for line in lines for w in line.text.split() if w.startswith("vfio-pci.ids=")), None)
    if argument is not None and distro(facts).is_el:
        remove = f"sudo grubby --update-kernel=ALL --remove-args={quote(argument)}"
        undo = f"sudo grubby --update-kernel=ALL --args={quote(argument)}"
        return Fix("R", (remove, REBOOT), "takes effect after the reboot", undo, reboot=True)
    commands = [
        line
        for address in held
        for line in (
            f"echo {address} | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind",
            f"echo | sudo tee {PCI}/{address}/driver_override",
            f"echo {address} | sudo tee /sys/bus/pci/drivers_probe",
        )
    ]
    where = f"; remove it from {lines[0].where.rpartition(':')[0]} too" if lines else ""
    effect = f"takes effect at once and holds until the next boot{where}. Stop the virtual machine first"
    return Fix("S", tuple(commands), effect)


SWITCHES = "/proc/driver/nvidia-nvswitch/devices"
FABRIC = "nvidia-fabricmanager.service"


@check(
    "A22",
    "Fabric Manager runs where NVSwitches are",
    group="driver",
    slug="fabric-manager",
    needs=(BUS, f"{PCI}/*/class", SWITCHES, *DRIVER, OS_RELEASE, RPM_ALL, DEB_ALL, UNITS),
    why="On boards with NVSwitches CUDA does not start before Fabric Manager has set up the fabric (error 802, system "
    "not ready). It stops at once where its version is not the driver's.",
    source="NVIDIA Fabric Manager user guide",
)
def fabric_manager(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    switches = _switches(facts)
    if not switches:
        return skip("no NVSwitch")
    state = unit(facts, FABRIC)
    active = str(state.get("ActiveState") or "unknown")
    loaded = driver(facts)
    version = _fabric_version(facts)
    seen = (
        Evidence(f"systemctl show {FABRIC}", f"ActiveState={active} LoadState={state.get('LoadState')}"),
        switches[0],
    )
    data = {"fabric": version or "", "driver": loaded[0] if loaded else ""}
    if loaded is not None and version is not None and version != loaded[0]:
        fix = attempt(partial(_same_fabric, facts, loaded[0]))
        return fail(f"Fabric Manager {version}, driver {loaded[0]}", seen, fix, **data)
    if active == "activating":
        return note("Fabric Manager is starting", seen, **data)
    if active != "active":
        if loaded is None:
            return skip(NOT_LOADED)
        fix = attempt(partial(_start_fabric, facts, loaded[0], state.get("LoadState") == "not-found"))
        return fail(f"{len(switches)} NVSwitches, and Fabric Manager is {active}", seen, fix, **data)
    return ok(f"{len(switches)} NVSwitches, Fabric Manager {version or ''} runs".replace("  ", " "), seen, **data)


def _fabric_package(facts: Facts, wanted: str) -> str:
    return install(
        distro(facts), (f"nvidia-fabric-manager-{quote(wanted)}",), (f"nvidia-fabricmanager-{branch(wanted)}",)
    )


def _same_fabric(facts: Facts, wanted: str) -> Fix:
    lines = (_fabric_package(facts, wanted), f"sudo systemctl restart {FABRIC}")
    return Fix("S", lines, "ends all work on the GPUs of this board while the fabric is set up")


def _start_fabric(facts: Facts, wanted: str, absent: bool) -> Fix:
    first = (_fabric_package(facts, wanted),) if absent else ()
    return Fix(
        "S",
        (*first, f"sudo systemctl enable --now {FABRIC}"),
        "takes effect at once; restart the container afterwards",
        f"sudo systemctl disable --now {FABRIC}",
    )


def _switches(facts: Facts) -> list[Evidence]:
    told = [Evidence(SWITCHES, name) for name in facts.names(SWITCHES)]
    if told:
        return told
    return [
        Evidence(path, text.strip())
        for path in facts.glob(f"{PCI}/*/class")
        if (text := facts.maybe(path) or "").startswith("0x0680")
        and (facts.maybe(path.removesuffix("/class") + "/vendor") or "").strip() == "0x10de"
    ]


def _fabric_version(facts: Facts) -> str | None:
    """Version of the installed package, without Debian's revision; None where it is not told."""
    try:
        found = packages(facts, distro(facts))
    except Unknowable:
        return None
    names = ("nvidia-fabric-manager", "nvidia-fabricmanager")
    return next((version for name, version in found if name.startswith(names)), None)
