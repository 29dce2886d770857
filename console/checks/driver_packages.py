"""Where the driver came from: one source and one version, a steady module stream, kernel updates not held back."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from console.checks.box import (
    BUS,
    DEB_ALL,
    DRIVER,
    NO_DEVICE,
    OS_RELEASE,
    RPM_ALL,
    Distro,
    distro,
    driver,
    gpus,
    is_open,
    packages,
    rpms,
    version,
)
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.driver_box import REBOOT, attempt, branch
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix

UNINSTALLER = "/usr/bin/nvidia-uninstall"
INSTALLER_LOG = "/var/log/nvidia-installer.log"

_RPM = re.compile(
    r"nvidia-driver(?:-(?:cuda|libs|cuda-libs|NVML|NvFBCOpenGL|common))*|libnvidia-(?:ml|fbc|cfg|gpucomp)"
    r"|nvidia-kmod-common|nvidia-libXNVCtrl|kmod-nvidia(?:-open|-latest)?(?:-dkms)?|dkms-nvidia|nvidia-(?:open|kmod)"
    r"|(?:x|ak)mod-nvidia|xorg-x11-drv-nvidia(?:-(?:libs|cuda|cuda-libs|kmodsrc|power))?"
)
"""The driver's own packages of NVIDIA, negativo17 and RPM Fusion. Not the container toolkit (libnvidia-container), the
tools that have versions of their own, or a precompiled module, of which one per kernel may stay."""
_DEB = re.compile(
    r"libnvidia-(?:compute|decode|encode|extra|fbc1|gl|cfg1)-\d{3}(?:-server)?|nvidia-(?:driver|utils|dkms|headless"
    r"|kernel-source|kernel-common|compute-utils)-\d{3}(?:-server)?(?:-open)?|nvidia-driver(?:-libs|-bin)?"
    r"|nvidia-kernel-(?:dkms|support)|nvidia-open-kernel-dkms|nvidia-smi|nvidia-alternative|libnvidia-ml1|libcuda1"
)
_FUSION = re.compile(r"akmod-nvidia|xorg-x11-drv-nvidia.*")


def _packages(facts: Facts, box: Distro) -> list[tuple[str, str]]:
    """The driver's packages and their versions, without epoch and revision, sorted."""
    own = _DEB if box.is_debian else _RPM
    return sorted({(name, number) for name, number in packages(facts, box) if own.fullmatch(name)})


@check(
    "A11",
    "one driver source, one version",
    group="driver",
    slug="driver-sources",
    needs=(BUS, OS_RELEASE, RPM_ALL, DEB_ALL, f"stat {UNINSTALLER}", f"stat {INSTALLER_LOG}", *DRIVER),
    why="Parts of two versions do not work together, and a runfile writes over what packages own. It often shows only "
    "at the next reload of the module.",
    source="negativo17/nvidia-driver#180; NVIDIA driver installation guide",
)
def one_source(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    box = distro(facts)
    found = _packages(facts, box)
    program = "$ dpkg-query -W" if box.is_debian else "$ rpm -qa"
    by_version: dict[str, str] = {}
    for name, number in found:
        by_version.setdefault(number, name)
    seen = [Evidence(program, f"{name} {number}") for number, name in by_version.items()]
    names = list(dict.fromkeys(name for name, _ in found))
    runfile = facts.exists(UNINSTALLER)
    if runfile:
        seen.append(Evidence(UNINSTALLER, "a runfile installation"))
        if facts.exists(INSTALLER_LOG):
            seen.append(Evidence(INSTALLER_LOG, "its log"))
    if runfile and found:
        fix = _without_runfile(box, names)
        return fail("both packages and a runfile have installed the driver", seen, fix, source="both")
    if len(by_version) > 1:
        numbers = sorted(by_version, key=version)
        fix = _one_version(box, names)
        return fail(f"{' and '.join(numbers)} are mixed", seen, fix, versions=",".join(numbers))
    fusion = [name for name in names if _FUSION.fullmatch(name)]
    if fusion and "nvidia-driver" in names:
        text = f"packages of two repositories: nvidia-driver and {fusion[0]}"
        return warn(text, [Evidence(program, name) for name in ("nvidia-driver", *fusion)], _one_version(box, fusion))
    if runfile:
        return note("installed by a runfile: each kernel update needs a new build", seen, source="runfile")
    if not found:
        if driver(facts) is None:
            return skip("no driver is installed")
        return note("the loaded driver belongs to no package that is known here", source="")
    count = "1 package" if len(found) == 1 else f"{len(found)} packages"
    return ok(f"{count} of {next(iter(by_version))}", seen, source="packages")


def _one_version(box: Distro, names: list[str]) -> Fix:
    listed = " ".join(names)
    line = f"sudo apt-get install -y --only-upgrade {listed}" if box.is_debian else f"sudo dnf -y distro-sync {listed}"
    effect = "takes effect after the reboot; write the CDI spec anew then (B07). The container toolkit is left alone"
    return Fix("S", (line, REBOOT), effect, reboot=True, again=("A06", "A07", "B07"))


def _without_runfile(box: Distro, names: list[str]) -> Fix:
    listed = " ".join(names)
    again = f"sudo apt-get install -y --reinstall {listed}" if box.is_debian else f"sudo dnf -y reinstall {listed}"
    effect = "ends all use of the GPU until the reboot: the uninstaller removes files that the packages then bring back"
    return Fix("S", (f"sudo {UNINSTALLER}", again, REBOOT), effect, reboot=True, again=("A06", "A07", "B07"))


STREAM = "/etc/dnf/modules.d/nvidia-driver.module"


@check(
    "A12",
    "the driver's module stream is a steady one",
    group="driver",
    slug="module-stream",
    needs=(BUS, STREAM, *DRIVER),
    why="The stream decides which driver the next `dnf update` brings. A `latest` stream jumps to each new branch, "
    "which may no longer drive this card or fit the image.",
    source="NVIDIA driver installation guide, table 5; NVIDIA yum-packaging-nvidia-driver",
)
def stream(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    text = facts.maybe(STREAM)
    if text is None:
        return skip("no nvidia-driver module stream is chosen")
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name, state = fields.get("stream", "").strip(), fields.get("state", "").strip()
    if not re.fullmatch(r"[\w.-]{1,40}", name, re.ASCII):
        if state in ("", "unknown", "disabled"):
            return skip("no nvidia-driver module stream is chosen")
        raise Unknowable(f"{STREAM} names no stream", "dnf module list nvidia-driver")
    seen = facts.lines(STREAM, r"^(?:stream|state)\s*=")
    if state != "enabled":
        return note(f"{name} is {state or 'not enabled'}", seen, stream=name)
    if not name.startswith("latest"):
        moves = ": it goes on to each new branch" if name == "open-dkms" else ""
        return note(f"{name}{moves}", seen, stream=name)
    loaded = driver(facts)
    fix = None if loaded is None else attempt(lambda: _steady(name, loaded[0], bool(is_open(facts))))
    return warn(f"{name} jumps to each new branch", seen, fix, stream=name)


def _steady(name: str, loaded: str, opened: bool) -> Fix | None:
    if not branch(loaded):
        return None
    # `latest` alone is precompiled, and so is the stream that has no ending
    kind = "-open" if opened else "-dkms" if name.endswith("-dkms") else ""
    lines = (
        "sudo dnf -y module reset nvidia-driver",
        f"sudo dnf -y module enable nvidia-driver:{branch(loaded)}{kind}",
    )
    return Fix("S", lines, "changes what the next dnf update brings; nothing that is installed", again=("A12",))


DNF_LOG = "/var/log/dnf.log"
PLUGIN = "dnf-plugin-nvidia"
_PRECOMPILED = re.compile(r"kmod-nvidia(?:-open)?-\d{3}\.[\w.-]+")
_HELD = (
    r"filtered due to missing precompiled modules|Skipping kernel installation since no (?:NVIDIA|kernel)"
    r"|NVIDIA driver: filtering kernel|kernel-core-\S{1,100} is filtered out by exclude filtering"
)
_FRESH = 45 * 86400.0


@check(
    "A13",
    "no kernel update is held back",
    group="driver",
    slug="kernel-updates-held",
    needs=(BUS, OS_RELEASE, RPM_ALL, DNF_LOG),
    why="With precompiled modules NVIDIA's dnf plugin leaves out each kernel that has no module yet. The box keeps its "
    "GPU and goes without security updates of the kernel, and only a line of dnf's output says so.",
    source="NVIDIA/yum-packaging-precompiled-kmod#53, #35; NVIDIA yum-packaging-nvidia-plugin",
)
def held_back(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    box = distro(facts)
    if not box.is_el:
        return skip("no dnf here")
    found = rpms(facts)
    modules = [name for name, _ in found if _PRECOMPILED.fullmatch(name)]
    if not modules or not any(name in (PLUGIN, f"python3-{PLUGIN}") for name, _ in found):
        return skip("no precompiled modules")
    try:
        lines = facts.lines(DNF_LOG, _HELD)
    except Unknowable as missing:
        raise Unknowable(missing.why, "dnf nvidia-plugin") from None
    fresh = [line for line in lines if _is_fresh(line.text, facts.wall)]
    if fresh:
        commands = (
            "dnf nvidia-plugin",
            f"sudo dnf -y module switch-to nvidia-driver:{_built_here(modules[0])} --allowerasing",
            REBOOT,
        )
        effect = (
            "the first line lists what is held back. Wait for the module of that kernel, or let DKMS build it (the "
            "other lines; EPEL and kernel-devel are needed)"
        )
        fix = Fix("S", commands, effect, reboot=True)
        return warn("dnf leaves out kernels that have no precompiled module", fresh[-2:], fix)
    seen = (Evidence("$ rpm -qa", modules[0]),)
    return note("precompiled modules: `dnf nvidia-plugin` tells whether a kernel is held back", seen)


def _built_here(package: str) -> str:
    """The stream of the same branch and kind that DKMS builds: `550-open` for kmod-nvidia-open-550.90.07-KERNEL."""
    match = re.match(r"kmod-nvidia(-open)?-(\d{3})\.", package)
    return f"{match[2]}-{'open' if match[1] else 'dkms'}" if match else "open-dkms"


def _is_fresh(line: str, wall: float) -> bool:
    """Whether a line of dnf.log is recent by its own time; one without a time counts."""
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([+-]\d{4}|Z)?", line, re.ASCII)
    if match is None:
        return True
    try:
        moment = datetime.fromisoformat(match[1] + (match[2] or "Z"))
    except ValueError:
        return True
    return wall - moment.astimezone(UTC).timestamp() < _FRESH
