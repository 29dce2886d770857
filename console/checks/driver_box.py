"""What several driver checks want to know: who drives the GPUs, the modules loaded and on disk, the libraries, what
NVML says, DKMS, and the commands that install, switch or load a driver here. Needs stand beside each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from shlex import quote

from msgspec import Struct

from console.checks.box import BUS, NVML, OS_RELEASE, Distro, at, distro, gpus, nvml, version
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.model import GpuState

NOT_LOADED = "no nvidia driver is loaded (A05)"

# ----------------------------------------------------------------------------------------------------------------- bus

PCI = "/sys/bus/pci/devices"
OWNERS = (BUS, f"stat {PCI}/{{gpu}}/driver")


def owners(facts: Facts) -> dict[str, str]:
    """PCI address of each GPU -> the kernel driver that is bound to it, "" for none. Needs OWNERS."""
    found: dict[str, str] = {}
    for address in gpus(facts):
        link = facts.file(f"{PCI}/{address}/driver")
        if link.target is None and link.kind != "absent":
            raise Unknowable(f"the driver of {address} is not told", f"lspci -k -s {address}")
        found[address] = (link.target or "").rstrip("/").rsplit("/", 1)[-1]
    return found


def owner_line(address: str, name: str) -> Evidence:
    """The evidence of a binding."""
    return Evidence(f"{PCI}/{address}/driver", name or "(no driver is bound)")


# ------------------------------------------------------------------------------------------------------ loaded modules

MODULES = "/proc/modules"


class Loaded(Struct, frozen=True):
    """One line of /proc/modules."""

    uses: int
    by: tuple[str, ...]
    """Modules among the users; open device files count in `uses` alone."""
    line: Evidence


def modules(facts: Facts) -> dict[str, Loaded]:
    """Loaded modules by name; Unknowable where the list is missing or holds none. Needs MODULES."""
    found: dict[str, Loaded] = {}
    for number, line in enumerate(facts.text(MODULES).splitlines(), 1):
        parts = line.split()
        if len(parts) < 4 or not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 10):
            continue
        by = tuple(name for name in parts[3].split(",") if name not in ("", "-") and not name.startswith("["))
        found[parts[0]] = Loaded(int(parts[2]), by, Evidence(f"{MODULES}:{number}", line))
    if not found:
        raise Unknowable(f"{MODULES} lists no modules", "lsmod")
    return found


def idle(loaded: Mapping[str, Loaded]) -> bool:
    """Whether neither CUDA programs (nvidia_uvm) nor a display (nvidia_drm, nvidia_modeset) use the driver. `nvidia`
    itself is held by nvidia-persistenced and monitors too, which can be stopped."""
    return all(one.uses <= len(one.by) for name, one in loaded.items() if name.startswith("nvidia_"))


# ----------------------------------------------------------------------------------------------------- modules on disk

FILES = ("find /lib/modules/{release} nvidia*.ko*", "find /lib/modules/{next_release} nvidia*.ko*")
_MODULE_FILES = (
    "nvidia.ko*",
    "nvidia-current.ko*",
    "nvidia-current-open.ko*",
    "nvidia-tesla*.ko*",
    "nvidia-legacy*.ko*",
)
"""Names of the driver itself, the long ones in Debian; nvidiafb is another."""
_PART = re.compile(r"-(?:uvm|modeset|drm|peermem)\.ko")


def module_files(facts: Facts, release: str) -> tuple[str, ...]:
    """Files of the driver's kernel module for a kernel release; () where there surely is none. Needs FILES."""
    found: list[str] = []
    blind: Unknowable | None = None
    for name in _MODULE_FILES:
        try:
            found += (path for path in facts.under(f"/lib/modules/{release}", name) if not _PART.search(path))
        except Unknowable as missing:
            blind = missing
    if not found and blind is not None:
        raise blind
    return tuple(found)


MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
"""Debian's modprobe turns the first into one of the others; modinfo does not."""


def modinfo_needs(field: str) -> tuple[str, ...]:
    """What `modinfo` reads."""
    return tuple(f"$ modinfo -F {field} {name}" for name in MODULE_NAMES)


def modinfo(facts: Facts, field: str) -> tuple[str, Evidence] | None:
    """A field of the module on disk that would be loaded now, "" where it has no such field; None where modinfo knows
    no module. Needs modinfo_needs(field)."""
    for need in modinfo_needs(field):
        words = need.removeprefix("$ ")
        found = facts.command(words)
        if found.code == 0:
            text = next(iter(found.out.split("\n")), "").strip()
            return text, Evidence(need, text or "(empty)")
    return None


# ----------------------------------------------------------------------------------------------------------- libraries

_LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
)
LIBRARIES = tuple(f"stat {folder}/libnvidia-ml.so*" for folder in _LIBRARY_FOLDERS)
_LIBRARY = re.compile(r"(?:^|/)libnvidia-ml\.so\.(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)$", re.ASCII)


def library(facts: Facts) -> tuple[str, Evidence] | None:
    """Version of the libnvidia-ml.so.1 on disk and where it is told; None where there surely is none in the usual
    folders, Unknowable where several are and no link chooses one. Needs LIBRARIES."""
    versions: dict[str, Evidence] = {}
    for folder in _LIBRARY_FOLDERS:
        paths = facts.glob(f"{folder}/libnvidia-ml.so*")
        link = f"{folder}/libnvidia-ml.so.1"
        target = (facts.file(link).target or "") if link in paths else ""
        if chosen := _LIBRARY.search(target):
            return chosen[1], Evidence(link, f"-> {target}")
        for path in paths:
            if match := _LIBRARY.search(path):
                versions.setdefault(match[1], Evidence(path, path.rsplit("/", 1)[-1]))
    if len(versions) > 1:
        raise Unknowable(f"several libnvidia-ml are on disk: {', '.join(sorted(versions))}", "ldconfig -p")
    return next(iter(versions.items()), None)


# ---------------------------------------------------------------------------------------------------------------- NVML

VERSION_MISMATCH = 18


def nvml_error(facts: Facts) -> tuple[int | None, Evidence] | None:
    """NVML's error with its code; None where it works or could not be asked. Needs NVML."""
    if facts.why_not(NVML):
        return None
    error = at(facts.answer(NVML), "error")
    if not isinstance(error, Mapping):
        return None
    code = error.get("code")
    return code if isinstance(code, int) else None, Evidence("NVML", str(error.get("text") or f"error {code}"))


def nvml_cards(facts: Facts) -> tuple[GpuState, ...] | None:
    """The cards that NVML lists; None where it does not work or could not be asked. Needs NVML."""
    try:
        return nvml(facts).gpus
    except Unknowable:
        return None


# ---------------------------------------------------------------------------------------------------------------- DKMS

DKMS = "$ dkms status"
DKMS_FOLDER = "/var/lib/dkms"
_DKMS_ROW = re.compile(
    r"(?P<module>[\w.+-]{1,80})(?:/|, )(?P<version>[\w.+~-]{1,40})(?:, (?P<kernel>[^,:\s]{1,80}), [^,:\s]{1,20})?"
    r": (?P<state>\w{1,20})",
    re.ASCII,
)


class Built(Struct, frozen=True):
    """One line of `dkms status` about the driver."""

    module: str
    version: str
    kernel: str
    """ "" where it is only added."""
    state: str
    line: Evidence


def uses_dkms(facts: Facts) -> bool:
    """Whether DKMS knows a driver of NVIDIA. Needs DKMS_FOLDER."""
    return any(name.startswith("nvidia") for name in facts.names(DKMS_FOLDER))


def dkms_rows(facts: Facts) -> tuple[Built, ...]:
    """What DKMS says of NVIDIA's driver, in the old form (`nvidia, 525.147.05, KERNEL, x86_64: installed`) and the new
    one (`nvidia/525.147.05, ...`). Needs DKMS."""
    words = DKMS.removeprefix("$ ")
    found = facts.command(words)
    rows: list[Built] = []
    for line in found.out.splitlines():
        match = _DKMS_ROW.match(line.strip())
        if match and match["module"].startswith("nvidia"):
            rows.append(
                Built(match["module"], match["version"], match["kernel"] or "", match["state"], Evidence(DKMS, line))
            )
    if not rows and (found.code != 0 or "nvidia" in found.out + found.err):
        raise Unknowable("dkms status cannot be read", f"sudo {words}")
    return tuple(rows)


# --------------------------------------------------------------------------------------------------------------- fixes

REBOOT = "sudo systemctl reboot"
PROBER = "stat /usr/bin/nvidia-modprobe"
MAKE_UVM = ("nvidia-modprobe", "-c0", "-u")
"""Makes /dev/nvidia-uvm and -tools. With -u its -c counts minors of nvidia-uvm, never cards (nvidia-modprobe.c): -c1
would make both nodes anew with the wrong numbers."""
MAKE_CONTROL = ("nvidia-modprobe", "-c255")
"""Makes /dev/nvidiactl."""


def make_cards(cards: int) -> tuple[str, ...]:
    """Makes /dev/nvidiactl and /dev/nvidia0 and on."""
    return (*MAKE_CONTROL, *(f"-c{index}" for index in range(cards)))


def attempt(make: Callable[[], Fix | None]) -> Fix | None:
    """A fix, or None where a fact that it needs is missing: what is wrong is told all the same."""
    try:
        return make()
    except Unknowable:
        return None


def branch(driver: str) -> int:
    """570 of `570.86.15`; 0 where it is no version."""
    return (version(driver) or (0,))[0]


def initramfs(box: Distro) -> str:
    """The line that builds the initial file system anew."""
    return "sudo update-initramfs -u" if box.is_debian else "sudo dracut --force"


def has_streams(box: Distro) -> bool:
    """Whether NVIDIA's packages come as dnf module streams here."""
    return box.is_el and box.major in (8, 9)


def epel(box: Distro) -> str:
    """The line that enables EPEL, which dkms comes from."""
    if box.id == "rhel":
        return f"sudo dnf -y install https://dl.fedoraproject.org/pub/epel/epel-release-latest-{box.major}.noarch.rpm"
    return "sudo dnf -y install epel-release"


def install_driver(box: Distro, release: str) -> Fix:
    """How a driver is installed on this distribution. The open modules are the ones that new branches have."""
    lines: tuple[str, ...]
    if box.is_el:
        lines = (
            epel(box),
            f"sudo dnf -y install kernel-devel-{quote(release)} gcc gcc-c++ make dkms",
            *(("sudo dnf -y module enable nvidia-driver:open-dkms",) if has_streams(box) else ()),
            "sudo dnf -y install nvidia-open",
            REBOOT,
        )
    elif box.id == "ubuntu":
        lines = ("sudo apt-get install -y ubuntu-drivers-common", "sudo ubuntu-drivers install --gpgpu", REBOOT)
    elif box.is_debian:
        lines = (f"sudo apt-get install -y linux-headers-{quote(release)} nvidia-driver firmware-misc-nonfree", REBOOT)
    else:
        lines = ()
    source = (
        "NVIDIA's package repository" if box.is_el else "the non-free parts" if box.id == "debian" else "the archive"
    )
    return Fix(
        "S",
        lines,
        f"takes effect after the reboot; {source} must be enabled. GPUs older than Turing need the 580 branch",
        reboot=True,
        again=("A05", "A06", "A07"),
    )


def has_prober(facts: Facts) -> bool:
    """Whether nvidia-modprobe is installed, which makes the device nodes. Needs PROBER."""
    return facts.exists(PROBER.removeprefix("stat "))


def load_modules(facts: Facts, missing: tuple[str, ...]) -> Fix:
    """Load modules that are on disk, and make the device nodes where something here can. Needs PROBER and OWNERS."""
    calls: list[tuple[str, ...]] = [("modprobe", name.replace("_", "-")) for name in missing]
    if has_prober(facts):
        calls += [make_cards(len(owners(facts)))] if "nvidia" in missing else []
        calls.append(MAKE_UVM)
    off = tuple(reversed(missing))
    return Fix(
        "B",
        tuple(f"sudo {' '.join(argv)}" for argv in calls),
        "takes effect at once; no running container is touched",
        f"sudo modprobe -r {' '.join(off)}",
        deeds=tuple(Deed("run", argv) for argv in calls),
        back=(Deed("run", ("modprobe", "-r", *off)),),
        again=("A02", "A16", "B09", "B10"),
    )


def reload_driver(quiet: bool) -> Fix:
    """Bring in the driver that is on disk: by a reload where nothing holds the GPU, else by a reboot."""
    then = "afterwards the CDI spec must be written anew (B07)"
    if quiet:
        lines = (
            "sudo systemctl stop nvidia-persistenced",
            "sudo modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia",
            "sudo modprobe nvidia",
            "sudo modprobe nvidia-uvm",
            "sudo systemctl start nvidia-persistenced",
        )
        return Fix(
            "S",
            lines,
            f"takes effect at once: no CUDA program runs now. Stop DCGM, monitors and this console first; {then}",
            again=("A05", "A16", "B07", "B09"),
        )
    return Fix(
        "R",
        (REBOOT,),
        f"the GPU is in use, so the loaded module can be left only by a reboot, which ends all inference; {then}",
        reboot=True,
        again=("A05", "A16", "B07", "B09"),
    )


def has_headers(facts: Facts, release: str) -> bool:
    """Whether the headers of a kernel are there. Needs `stat /lib/modules/RELEASE/build`."""
    return facts.exists(f"/lib/modules/{release}/build")


def build_module(facts: Facts, release: str) -> Fix:
    """Let DKMS build the module for a kernel. Needs OS_RELEASE and what has_headers needs."""
    box = distro(facts)
    build = f"sudo dkms autoinstall -k {quote(release)}"
    if has_headers(facts, release):
        return Fix(
            "B",
            (build,),
            "takes some minutes; no running container is touched. DKMS keeps its log in /var/lib/dkms/nvidia*/*/build",
            "",
            deeds=(Deed("run", ("dkms", "autoinstall", "-k", release), seconds=1800.0),),
            again=("A05", "A07", "A09"),
        )
    package = f"{'linux-headers' if box.is_debian else 'kernel-devel'}-{quote(release)}"
    line = f"sudo apt-get install -y {package}" if box.is_debian else f"sudo dnf -y install {package}"
    return Fix(
        "S",
        (line, build),
        f"takes some minutes. Where {package} is no longer to be had: update the kernel, reboot, build then",
        again=("A05", "A07", "A09"),
    )


PROVIDED = (OS_RELEASE, DKMS_FOLDER, "stat /lib/modules/{release}/build")


def provide(facts: Facts, release: str) -> Fix:
    """A module for a kernel that has none: DKMS builds the installed driver where it knows one. Needs PROVIDED."""
    if uses_dkms(facts):
        return build_module(facts, release)
    return install_driver(distro(facts), release)
