"""The module on disk: for the kernel that runs and the next one, built by DKMS, with what a build needs."""

from __future__ import annotations

from functools import partial
from shlex import quote

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
    install,
    is_open,
    packages,
    version,
)
from console.checks.check import Answer, check, fail, ok, skip, warn
from console.checks.driver_box import (
    DKMS,
    DKMS_FOLDER,
    FILES,
    REBOOT,
    Built,
    attempt,
    build_module,
    dkms_rows,
    epel,
    has_headers,
    modinfo,
    modinfo_needs,
    module_files,
    provide,
    uses_dkms,
)
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix

BUILD = ("stat /lib/modules/{release}/build", "stat /lib/modules/{next_release}/build")


def _releases(facts: Facts) -> list[str]:
    """The running kernel and, where it is another one, the next."""
    return list(dict.fromkeys((facts.one("release"), *facts.every("next_release")[:1])))


@check(
    "A07",
    "this kernel and the next have the module",
    group="driver",
    slug="module-on-disk",
    needs=(BUS, *FILES, *BUILD, *DRIVER, *modinfo_needs("version"), OS_RELEASE, DKMS_FOLDER, RPM_ALL, DEB_ALL),
    why="The module is built for one kernel release. After an update of the kernel the next boot comes up without a "
    "GPU, often weeks later, when nobody thinks of the update.",
    source="NVIDIA/yum-packaging-precompiled-kmod#53, #56, #61",
)
def on_disk(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    running, *later = _releases(facts)
    files = module_files(facts, running)
    loaded = driver(facts)
    data = {"release": running, "next_release": later[0] if later else running}
    if not files and loaded is None:
        fix = attempt(partial(_provide, facts, running, running))
        seen = [Evidence(f"/lib/modules/{running}", "no nvidia.ko below it")]
        return fail(f"none for the running kernel {running}", seen, fix, missing=running, **data)
    seen = [Evidence(path, "there") for path in files[:1]]
    for release in later:
        found = module_files(facts, release)
        if not found:
            fix = attempt(partial(_provide, facts, release, running))
            seen.append(Evidence(f"/lib/modules/{release}", "no nvidia.ko below it"))
            return warn(f"none for {release}: a reboot now would lose the GPU", seen, fix, missing=release, **data)
        seen += [Evidence(path, "there") for path in found[:1]]
    if not files and loaded is not None:
        fix = attempt(partial(_provide, facts, running, running))
        return warn(f"{loaded[0]} is loaded, and gone from disk for {running}", (loaded[1],), fix, **data)
    try:
        disk = modinfo(facts, "version")
    except Unknowable:  # the files are there, which is what counts
        disk = None
    if loaded is not None and disk is not None and disk[0] and disk[0] != loaded[0]:
        fix = Fix(
            "R",
            (REBOOT,),
            "the reboot brings in the newer module; write the CDI spec anew then (B07)",
            reboot=True,
            again=("A06", "B07"),
        )
        text = f"{loaded[0]} is loaded, {disk[0]} on disk: the next load changes the driver"
        return warn(text, (loaded[1], disk[1]), fix, driver=loaded[0], disk=disk[0], **data)
    which = "both kernels" if later else running
    return ok(f"there for {which}", seen, disk=disk[0] if disk else "", **data)


def _provide(facts: Facts, release: str, running: str) -> Fix:
    """DKMS builds it, where DKMS is used; else the package for that kernel, or keeping to the kernel that has
    one."""
    if uses_dkms(facts) or release == running:
        return provide(facts, release)
    box = distro(facts)
    package = _precompiled(facts, box, release, running)
    if package is not None:
        lines: tuple[str, ...] = (install(box, (package,)),)
        effect = "nothing that runs is touched; until there is such a package boot the kernel that runs"
    elif box.is_debian:
        lines = (f"apt-cache search linux-modules-nvidia- | grep {quote(release)}",)
        effect = "changes nothing that runs; install the one of the driver's branch"
    else:
        lines = ("dnf list --available 'kmod-nvidia*'", f"sudo grubby --set-default=/boot/vmlinuz-{quote(running)}")
        effect = "install the module package for that kernel if there is one; until then boot the kernel that runs"
    return Fix("S", lines, effect, again=("A07",))


def _precompiled(facts: Facts, box: Distro, release: str, running: str) -> str | None:
    """The package that holds the module for a release, by the name of the one for the running kernel:
    `linux-modules-nvidia-550-KERNEL` on Ubuntu, `kmod-nvidia-550.90.07-4.18.0-553.5.1` from NVIDIA."""
    have, wanted = (running, release) if box.is_debian else (_short(running), _short(release))
    start = "linux-modules-nvidia-" if box.is_debian else "kmod-nvidia-"
    try:
        names = [name for name, _ in packages(facts, box)]
    except Unknowable:
        return None
    found = next((name for name in names if name.startswith(start) and name.endswith(f"-{have}")), None)
    return None if found is None else quote(found.removesuffix(have) + wanted)


def _short(release: str) -> str:
    """`4.18.0-553.5.1` of `4.18.0-553.5.1.el8_10.x86_64`."""
    return release.partition(".el")[0]


@check(
    "A09",
    "DKMS has built the module",
    group="driver",
    slug="dkms-built",
    needs=(BUS, DKMS_FOLDER, DKMS, *BUILD, OS_RELEASE),
    why="The package's installation ends well even when DKMS fails to build. So an installed driver proves nothing: "
    "what DKMS says of each kernel does.",
    source="NVIDIA/open-gpu-kernel-modules#805",
)
def built(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    if not uses_dkms(facts):
        return skip("the driver is not built by DKMS")
    rows = dkms_rows(facts)
    if not rows:
        return skip("DKMS knows no nvidia module")
    newest = max((row.version for row in rows), key=version)
    ours = [row for row in rows if row.version == newest]
    seen = [row.line for row in ours]
    data = {"version": newest}
    running, *later = _releases(facts)
    for release in (running, *later):
        state = _state(ours, release)
        if state == "installed":
            continue
        fix = attempt(partial(build_module, facts, release))
        text = f"{newest} is {state} for {'the running kernel ' if release == running else ''}{release}"
        if release == running:
            return fail(text, seen, fix, missing=release, **data)
        return warn(f"{text}, the next one", seen, fix, missing=release, **data)
    return ok(f"{newest} is installed for {'both kernels' if later else running}", seen, **data)


def _state(rows: list[Built], release: str) -> str:
    states = {row.state for row in rows if row.kernel == release}
    if "installed" in states:
        return "installed"
    return "only built, not installed," if "built" in states else "not built"


_TOOLS = {"gcc": ("gcc", "gcc"), "make": ("make", "make"), "g++": ("gcc-c++", "g++")}
"""Program in /usr/bin -> its package on RHEL and on Debian."""


@check(
    "A10",
    "what DKMS needs to build is there",
    group="driver",
    slug="build-prerequisites",
    needs=(
        BUS,
        DKMS_FOLDER,
        *BUILD,
        *FILES,
        *DRIVER,
        *(f"stat /usr/bin/{name}" for name in _TOOLS),
        "stat /usr/sbin/dkms",
        "stat /usr/bin/dkms",
        OS_RELEASE,
    ),
    why="DKMS builds the module anew at each update of the kernel or the driver. Without the headers of exactly that "
    "kernel and a compiler it fails, and nothing says so until the next boot.",
    source="NVIDIA/open-gpu-kernel-modules#805; NVIDIA yum-packaging-dkms-nvidia#4",
)
def prerequisites(facts: Facts) -> Answer:
    if not gpus(facts):
        return skip(NO_DEVICE)
    if not uses_dkms(facts):
        return skip("the driver is not built by DKMS")
    box = distro(facts)
    headless = [release for release in _releases(facts) if not has_headers(facts, release)]
    tools = [name for name in _TOOLS if name != "g++" or (box.is_el and is_open(facts))]
    missing = [name for name in tools if not facts.exists(f"/usr/bin/{name}")]
    if not (facts.exists("/usr/sbin/dkms") or facts.exists("/usr/bin/dkms")):
        missing.append("dkms")
    if not headless and not missing:
        return ok("headers, compiler and dkms")
    parts = [f"the headers of {release}" for release in headless] + missing
    seen = [Evidence(f"/lib/modules/{release}/build", _dangling(facts, release)) for release in headless]
    seen += [Evidence(f"/usr/{'sbin' if name == 'dkms' else 'bin'}/{name}", "absent") for name in missing]
    fix = _install(box, headless, missing)
    unbuilt = any(not module_files(facts, release) for release in _releases(facts)[:1])
    answer = fail if unbuilt else warn
    return answer(f"missing: {', '.join(parts)}", seen, fix, missing=",".join([*headless, *missing]))


def _dangling(facts: Facts, release: str) -> str:
    target = facts.file(f"/lib/modules/{release}/build").target
    return f"-> {target}, which is absent" if target else "absent"


def _install(box: Distro, headless: list[str], missing: list[str]) -> Fix:
    kind = "linux-headers" if box.is_debian else "kernel-devel"
    headers = [f"{kind}-{quote(release)}" for release in headless]
    el = [*headers, *(_TOOLS[name][0] if name in _TOOLS else name for name in missing)]
    debian = [*headers, *(_TOOLS[name][1] if name in _TOOLS else name for name in missing)]
    first = (epel(box),) if "dkms" in missing and box.is_el else ()
    effect = "nothing that runs is touched. Where the headers are no longer to be had: update the kernel, then reboot"
    return Fix("S", (*first, install(box, el, debian)), effect, again=("A07", "A09"))
