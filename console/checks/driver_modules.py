"""The loaded driver: its modules, whether the libraries are of its version, whether it fits the GPU, how it started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from shlex import quote

from msgspec.structs import replace

from console.checks.box import (
    BUS,
    DRIVER,
    KERNEL_LOG,
    NO_DEVICE,
    NVML,
    OS_RELEASE,
    Distro,
    distro,
    driver,
    gpus,
    is_open,
    kernel_lines,
)
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.driver_box import (
    DKMS_FOLDER,
    FILES,
    LIBRARIES,
    MODULES,
    NOT_LOADED,
    OWNERS,
    PROBER,
    PROVIDED,
    REBOOT,
    VERSION_MISMATCH,
    attempt,
    branch,
    build_module,
    has_streams,
    idle,
    library,
    load_modules,
    modinfo,
    modinfo_needs,
    module_files,
    modules,
    nvml_cards,
    nvml_error,
    owner_line,
    owners,
    provide,
    reload_driver,
    uses_dkms,
)
from console.checks.driver_nouveau import BLOCKING, block
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix


@check(
    "A05",
    "the nvidia modules are loaded",
    group="driver",
    slug="modules-loaded",
    needs=(*OWNERS, *DRIVER, *BLOCKING, *FILES, PROBER, *PROVIDED),
    why="Without nvidia there is no GPU at all. Without nvidia_uvm nvidia-smi works and CUDA does not, so that Triton "
    "starts and fails to load each model.",
    source="NVIDIA kmod-common nvidia.conf (softdep nvidia post: nvidia-uvm); NVIDIA/nvidia-container-toolkit#50",
)
def modules_loaded(facts: Facts) -> Answer:
    found = owners(facts)
    if not found:
        return skip(NO_DEVICE)
    if all(name.startswith("vfio") for name in found.values()):
        return skip("the GPU is kept for virtual machines (A21)")
    loaded = driver(facts)
    known = modules(facts)
    if loaded is None and "nvidia" not in known:
        return _not_loaded(facts, "nouveau" in known)
    seen = [one.line for name, one in known.items() if name == "nvidia" or name.startswith("nvidia_")]
    if "nvidia_uvm" not in known:
        fix = attempt(partial(load_modules, facts, ("nvidia_uvm",)))
        return fail("nvidia_uvm is not loaded: CUDA cannot start", seen, fix, missing="nvidia_uvm")
    version = loaded[0] if loaded else ""
    return ok(f"nvidia {version} and nvidia_uvm".replace("  ", " "), seen, driver=version)


def _not_loaded(facts: Facts, nouveau: bool) -> Answer:
    seen = [owner_line(address, name) for address, name in owners(facts).items()]
    if nouveau:
        fix = attempt(lambda: block(facts))
        return fail("nvidia is not loaded, nouveau is", seen, fix, missing="nvidia")
    release = facts.every("release")
    files = module_files(facts, release[0]) if release else None
    if files == ():
        fix = attempt(lambda: provide(facts, release[0]))
        return fail(f"nvidia is not loaded: kernel {release[0]} has no such module", seen, fix, missing="nvidia")
    seen += [Evidence(path, "on disk") for path in (files or ())[:1]]
    fix = attempt(partial(load_modules, facts, ("nvidia", "nvidia_uvm")))
    return fail("nvidia is not loaded", seen, fix, missing="nvidia")


_MENDING = (MODULES, OS_RELEASE, DKMS_FOLDER, "stat /lib/modules/{release}/build", *modinfo_needs("version"))


@check(
    "A06",
    "kernel driver and libraries are one version",
    group="driver",
    slug="driver-mismatch",
    needs=(BUS, *DRIVER, *LIBRARIES, NVML, *_MENDING),
    why="The libraries talk to the kernel module only if both are of the very same version. After an update of the "
    "packages the old module stays loaded, and from then on every new CUDA program fails, a restarted Triton too.",
    source="negativo17/nvidia-driver#171, #180; NVML error 18",
)
def one_version(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    loaded = driver(facts)
    error = nvml_error(facts)
    refused = error is not None and error[0] == VERSION_MISMATCH
    if loaded is None:
        return skip(NOT_LOADED)
    kernel, line = loaded
    works = nvml_cards(facts) is not None
    try:
        disk = library(facts)
    except Unknowable:
        if not refused and not works:
            raise
        disk = None
    seen = [line, *((disk[1],) if disk else ()), *((error[1],) if error and refused else ())]
    data = {"driver": kernel, "library": disk[0] if disk else ""}
    if disk is not None and disk[0] != kernel:
        fix = attempt(partial(_match, facts, disk[0]))
        return fail(f"kernel {kernel}, libraries {disk[0]}", seen, fix, **data)
    if refused:
        fix = attempt(lambda: _match(facts, ""))
        return fail(f"NVML refuses kernel {kernel}: its library is of another version", seen, fix, **data)
    if disk is None and works:
        return ok(f"kernel {kernel}, and NVML works with it", seen, **data)
    if disk is None:
        return unknown("libnvidia-ml was not found in the usual folders", "ldconfig -p | grep libnvidia-ml", seen)
    return ok(f"both {kernel}", seen, **data)


def _match(facts: Facts, wanted: str) -> Fix:
    """A reload brings in the module on disk; where that is not of the libraries' version, it must be built first."""
    try:
        disk = modinfo(facts, "version")
    except Unknowable:
        disk = None
    if wanted and disk is not None and disk[0] and disk[0] != wanted and uses_dkms(facts):
        release = facts.one("release")
        build = build_module(facts, release)
        return replace(build, effect=f"{build.effect}. A reboot must follow: the old module stays loaded until then")
    return reload_driver(idle(modules(facts)))


_TOO_OLD = ("Kepler", "Maxwell", "Pascal", "Volta")
_EITHER = ("Turing", "Ampere", "Ada", "Hopper")
_NEEDS_OPEN = ("Blackwell", "Rubin")
_LAST_FOR_OLD = 580
_NO_GSP = r"NVRM:.{0,200}(?:is not supported by open|does not include the required GPU)"
_WANTS_OPEN = r"requires use of the NVIDIA open kernel modules"


@check(
    "A08",
    "the kind of module fits the GPU",
    group="driver",
    slug="module-flavour",
    needs=(BUS, *DRIVER, *modinfo_needs("license"), NVML, KERNEL_LOG, OS_RELEASE),
    why="The open module drives Turing and newer cards only, the proprietary one nothing newer than Hopper. With the "
    "wrong one the module loads and lists no device.",
    source="NVIDIA driver installation guide, kernel modules; negativo17/nvidia-driver#158",
)
def flavour(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    loaded = driver(facts)
    version = loaded[0] if loaded else ""
    told = _flavour(facts)
    if told is None:
        return skip("no nvidia module, neither loaded nor on disk")
    opened, line = told
    seen = (line,)
    cards = nvml_cards(facts)
    if not cards and (refusal := _refusal(facts, opened)):
        return _wrong(facts, opened, version, "the kernel log says so", (*seen, *refusal))
    known = [(card.name or "the GPU", card.architecture) for card in cards or ()]
    for name, architecture in known:
        too_new = architecture in _NEEDS_OPEN or "GH200" in name
        if (opened and architecture in _TOO_OLD) or (not opened and too_new):
            what = f"{name} is {architecture}" if architecture else name
            return _wrong(facts, opened, version, what, (*seen, Evidence("NVML", f"{name}: {architecture}")))
    if not known or not all(architecture for _, architecture in known):
        return unknown("the GPU's architecture is told by the driver only", "lspci -nn -d 10de:", seen)
    architectures = ", ".join(dict.fromkeys(architecture or "" for _, architecture in known))
    data = {"flavour": "open" if opened else "proprietary", "architecture": architectures}
    if not opened and version and branch(version) >= 560 and all(a in _EITHER for _, a in known):
        fix = attempt(lambda: _switch(distro(facts), True, version))
        text = f"proprietary module {version} on {architectures}: newer branches have only the open one"
        return warn(text, seen, fix, **data)
    return ok(f"the {data['flavour']} module on {architectures}", seen, **data)


def _flavour(facts: Facts) -> tuple[bool, Evidence] | None:
    """Whether the module is the open one: the loaded one, else that on disk; None where there is none."""
    loaded = is_open(facts)
    if loaded is not None:
        return loaded, facts.lines(DRIVER[1], "NVRM version")[0]
    license_ = modinfo(facts, "license")
    if license_ is None:
        return None
    if not license_[0]:
        raise Unknowable("the nvidia module does not tell its licence", "modinfo -F license nvidia")
    return "MIT" in license_[0] or "GPL" in license_[0], license_[1]


def _refusal(facts: Facts, opened: bool) -> tuple[Evidence, ...]:
    try:
        return kernel_lines(facts, _NO_GSP if opened else _WANTS_OPEN)[-2:]
    except Unknowable:
        return ()


def _wrong(facts: Facts, opened: bool, version: str, what: str, seen: Sequence[Evidence]) -> Answer:
    have = "open" if opened else "proprietary"
    fix = attempt(lambda: _switch(distro(facts), not opened, version))
    return fail(f"the {have} module does not drive this GPU: {what}", seen, fix, flavour=have)


def _switch(box: Distro, to_open: bool, version: str) -> Fix:
    """The distribution's way from one kind of module to the other (NVIDIA's packages)."""
    have = branch(version) or _LAST_FOR_OLD
    stream = f"{have}-open" if to_open else f"{min(have, _LAST_FOR_OLD)}-dkms"
    if has_streams(box):
        lines = [f"sudo dnf -y module switch-to nvidia-driver:{stream} --allowerasing"]
    elif box.is_debian:
        packages = "nvidia-open" if to_open else "cuda-drivers"
        if box.id == "ubuntu":
            packages += " nvidia-driver-open" if to_open else " nvidia-driver"
        pin = [] if to_open else [f"sudo apt-get install -y nvidia-driver-pinning-{_LAST_FOR_OLD}"]
        lines = [*pin, f"sudo apt-get install -y --autoremove --purge {packages}"]
    else:
        lines = [f"sudo dnf -y install --allowerasing {'nvidia-open' if to_open else 'cuda-drivers'}"]
    effect = "takes effect after the reboot; with packages of NVIDIA's repository. Write the CDI spec anew then (B07)"
    return Fix("S", (*lines, REBOOT), effect, reboot=True, again=("A05", "A06", "B07"))


FIRMWARE = "/lib/firmware/nvidia/*/gsp*.bin*"


@check(
    "A18",
    "the GSP firmware is there",
    group="driver",
    slug="gsp-firmware",
    needs=(BUS, *DRIVER, f"stat {FIRMWARE}", NVML, KERNEL_LOG, OS_RELEASE),
    why="The open module runs nothing without the firmware of its own version for the GPU's system processor. It is "
    "read each time the driver opens the card, not only at boot.",
    source="NVIDIA/open-gpu-kernel-modules#789",
)
def firmware(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    loaded = driver(facts)
    if loaded is None:
        return skip(NOT_LOADED)
    version, line = loaded
    found = facts.glob(FIRMWARE)
    own = [path for path in found if path.split("/")[-2] == version]
    try:
        refused = () if nvml_cards(facts) else kernel_lines(facts, "Cannot initialize GSP firmware RM")[-1:]
    except Unknowable:
        refused = ()
    seen = (line, *(Evidence(path, "there") for path in (own or found)[:2]), *refused)
    fix = attempt(lambda: _firmware_fix(distro(facts), version))
    if not own:
        others = sorted({path.split("/")[-2] for path in found})
        text = f"none of {version}" + (f" (there is {', '.join(others)})" if others else "")
        if refused or is_open(facts):
            return fail(text, seen, fix, driver=version)
        return note(f"{text}; the proprietary module can do without on some cards", seen, driver=version)
    if refused:
        return fail("the kernel log tells that the GSP firmware did not start", seen, fix, driver=version)
    return ok(f"of {version}", seen, driver=version)


def _firmware_fix(box: Distro, version: str) -> Fix:
    if box.is_el:
        line = "sudo dnf -y reinstall nvidia-kmod-common"
    elif box.id == "ubuntu":
        line = f"sudo apt-get install -y --reinstall nvidia-firmware-{branch(version)}-{quote(version)}"
    else:
        line = "sudo apt-get install -y --reinstall firmware-nvidia-gsp"
    return Fix("S", (line, REBOOT), "takes effect after the reboot", reboot=True, again=("A06", "A19"))


_LOADING = "NVRM: loading NVIDIA UNIX"
"""What stands before it in the log is of an earlier load of the module."""
_API_MISMATCH = "NVRM: API mismatch"
_TROUBLES = (
    (_API_MISMATCH, "a program's library is of another version (A06, B07)"),
    ("RmInitAdapter failed", "the driver could not start the card"),
    ("None of the NVIDIA devices were initialized", "the driver started no card"),
    ("PCI I/O region assigned to your NVIDIA device is invalid", "the BIOS gave the card no memory window"),
    ("probe routine (?:was not called|failed)", "the driver did not get the card"),
)
"""Line of the kernel log -> what it says. The first that is found is told."""


@check(
    "A19",
    "the driver started without an error",
    group="driver",
    slug="driver-start",
    needs=(BUS, *DRIVER, KERNEL_LOG, NVML),
    why="The module can be loaded and still have no card: the kernel log alone tells why. Such a card is missing from "
    "nvidia-smi and from every CDI spec written then.",
    source="NVIDIA open-gpu-kernel-modules; host.md 6.2",
)
def started(facts: Facts) -> Answer:
    there = gpus(facts)
    if not there:
        return skip(NO_DEVICE)
    seen: list[Evidence] = []
    for line in kernel_lines(facts, "|".join([_LOADING, *(f"(?:{pattern})" for pattern, _ in _TROUBLES)])):
        seen = [] if re.search(_LOADING, line.text) else [*seen, line]
    if not seen:
        return skip(NOT_LOADED) if driver(facts) is None else ok("no such line since it was loaded")
    pattern, words = next(row for row in _TROUBLES if any(re.search(row[0], line.text) for line in seen))
    cards = nvml_cards(facts)
    if cards is not None and len(cards) >= len(there) and pattern != _API_MISMATCH:
        return note(f"{_lines(len(seen))} of earlier: {words}; all cards answer now", seen[-3:])
    if cards is not None and len(cards) >= len(there):
        return warn(f"{_lines(len(seen))}: {words}", seen[-3:], _collect(), trouble=words)
    if facts.why_not(NVML):
        return warn(f"{words}; whether the card answers now is not told", seen[-3:], _collect(), trouble=words)
    return fail(words, seen[-3:], _collect(), trouble=words)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _collect() -> Fix:
    return Fix(
        "S",
        ("sudo dmesg | grep -iE 'NVRM|nvidia|pcieport|AER'", "sudo nvidia-bug-report.sh"),
        "changes nothing. A mismatch is mended by A06 or B07, a wrong module by A08; else power cable, seating and the "
        "BIOS (Above 4G Decoding) in this order",
    )
