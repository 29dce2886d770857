"""What more than one check wants to know of a box: its distribution, its driver, whose containers these are, the Triton
container as Podman inspects it. Needs stand beside each, for the checks that use it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from console.clients import cdi
from console.clients.nvidia_host import nvrm_version
from console.core.facts import Evidence, Facts, Unknowable
from console.core.model import GpuBox
from console.core.triton_command import flag_value


def surely_there(facts: Facts, path: str) -> bool:
    """Whether a path is there; False too where it could not be looked at. A fix may be chosen by it, a sign may not."""
    try:
        return facts.exists(path)
    except Unknowable:
        return False


# -------------------------------------------------------------------------------------------------------- distribution

OS_RELEASE = "/etc/os-release"


class Distro(Struct, frozen=True):
    """From /etc/os-release."""

    id: str
    like: tuple[str, ...]
    version: str
    name: str = ""

    @property
    def major(self) -> int | None:
        """8 of `8.10`; None where it is no number."""
        head = self.version.partition(".")[0]
        return int(head) if head.isascii() and head.isdigit() else None

    @property
    def is_el(self) -> bool:
        """RHEL or a rebuild."""
        return bool({self.id, *self.like} & {"rhel", "centos", "rocky", "almalinux", "ol"}) and self.id != "fedora"

    @property
    def is_debian(self) -> bool:
        """Debian, Ubuntu and what is made from them."""
        return bool({self.id, *self.like} & {"debian", "ubuntu"})


def distro(facts: Facts) -> Distro:
    """Needs OS_RELEASE."""
    fields: dict[str, str] = {}
    for line in facts.text(OS_RELEASE).splitlines():
        name, equals, value = line.partition("=")
        if equals and name.isidentifier():
            fields[name] = value.strip().strip("\"'")
    return Distro(
        fields.get("ID", ""),
        tuple(fields.get("ID_LIKE", "").split()),
        fields.get("VERSION_ID", ""),
        fields.get("PRETTY_NAME", ""),
    )


def install(box: Distro, el: Sequence[str], debian: Sequence[str] | None = None) -> str:
    """The line that installs packages here."""
    if box.is_debian:
        return f"sudo apt-get install -y {' '.join(debian if debian is not None else el)}"
    return f"sudo dnf -y install {' '.join(el)}"


def upgrade(box: Distro, package: str) -> str:
    """The line that brings the newest version of a package that the enabled repositories have."""
    if box.is_debian:
        return f"sudo apt-get update && sudo apt-get install -y {package}"
    return f"sudo dnf -y upgrade {package}"


# ------------------------------------------------------------------------------------------------------------ packages

RPM_ALL = r"$ rpm -qa --qf '%{NAME}\t%{VERSION}\n'"
DEB_ALL = r"$ dpkg-query -W -f='${Package}\t${Version}\t${Status}\n'"
"""The names in braces are the programs' own: none is of VARIABLES, so they stay as written."""


def rpms(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Installed packages as (name, version), `("container-selinux", "2.229.0")`; a name can come twice (kernels).
    Unknowable where the list could not be had. Needs RPM_ALL."""
    return tuple((name, version) for name, version, *_ in _packages(facts, RPM_ALL, 2))


def debs(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Installed packages as (name, version), `("podman", "4.3.1+ds1-8+deb12u1")`; removed ones that left their
    settings behind are not told. Unknowable where the list could not be had. Needs DEB_ALL."""
    return tuple(
        (name, version) for name, version, status, *_ in _packages(facts, DEB_ALL, 3) if status.endswith(" installed")
    )


def packages(facts: Facts, box: Distro) -> tuple[tuple[str, str], ...]:
    """Installed packages of this distribution as (name, version), the version without epoch and revision. Unknowable
    where the list could not be had. Needs RPM_ALL and DEB_ALL."""
    if not box.is_debian:
        return rpms(facts)
    return tuple((name, version.rpartition(":")[2].partition("-")[0]) for name, version in debs(facts))


def _packages(facts: Facts, need: str, columns: int) -> list[list[str]]:
    words = need.removeprefix("$ ")
    found = facts.command(words)
    rows = [row for line in found.out.splitlines() if len(row := line.split("\t")) == columns and row[0]]
    if not rows:
        program = words.partition(" ")[0]
        raise Unknowable(f"{program} listed no packages (it ended with {found.code})", words)
    return rows


# ---------------------------------------------------------------------------------------------------------- kernel log

KERNEL_LOG = "@kernel.log"


def kernel_lines(facts: Facts, pattern: str, newer: float = 0.0) -> tuple[Evidence, ...]:
    """Lines of the kernel log in which the pattern is found, oldest first, each with its time (UTC); those of before
    `newer` (Unix time) are left out. Unknowable where the log could not be read. Needs KERNEL_LOG."""
    answer = facts.answer(KERNEL_LOG)
    lines = answer.get("lines") if isinstance(answer, dict) else None
    if not isinstance(lines, list):
        raise Unknowable("the kernel log could not be read", "sudo dmesg")
    wanted = re.compile(pattern)
    found: list[Evidence] = []
    for line in lines:
        text = line.get("text") if isinstance(line, dict) else None
        if isinstance(text, str) and wanted.search(text) and not _is_before(line.get("wall"), newer):
            found.append(Evidence(_moment(line.get("wall")), text))
    return tuple(found)


def _is_before(wall: Any, moment: float) -> bool:
    return isinstance(wall, int | float) and 0 < wall < moment


def _moment(wall: Any) -> str:
    if not isinstance(wall, int | float) or not 0 < wall < 1e11:
        return "kernel log"
    return f"kernel log, {datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S} UTC"


# -------------------------------------------------------------------------------------------------------------- driver

DRIVER = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")


def driver(facts: Facts) -> tuple[str, Evidence] | None:
    """Version of the loaded nvidia module and where it was read; None where surely none is loaded. Needs DRIVER."""
    text = facts.maybe(DRIVER[0])
    if text and text.strip():
        return text.strip(), Evidence(DRIVER[0], text.strip())
    text = facts.maybe(DRIVER[1])
    found = nvrm_version(text or "")
    return (found, Evidence(f"{DRIVER[1]}:1", (text or "").splitlines()[0])) if found else None


def is_open(facts: Facts) -> bool | None:
    """Whether the loaded module is the open one; None where that is not told. Needs DRIVER[1]."""
    text = facts.maybe(DRIVER[1]) or ""
    return "Open Kernel Module" in text if "NVRM version" in text else None


BUS = "/sys/bus/pci/devices/*/vendor"
NO_DEVICE = "no NVIDIA device"


def gpus(facts: Facts) -> tuple[str, ...]:
    """PCI addresses of the NVIDIA display-class devices; Unknowable where the bus was not seen. Needs BUS."""
    if "gpu" not in facts.variables:
        raise Unknowable("the PCI bus could not be listed", "lspci -d 10de:")
    return facts.every("gpu")


# -------------------------------------------------------------------------------------------------------------- Podman

PING = "@podman.ping"
INFO = "@podman.info"
INSPECT = "@podman.inspect"
PODMAN_VERSION = "$ podman --version"
PODMAN = (PING, PODMAN_VERSION)


def podman_told(facts: Facts) -> str | None:
    """Podman's version by its service, else by its program; None where neither tells. Needs PODMAN."""
    if not facts.why_not(PING) and (told := podman_version(facts)):
        return told
    try:
        said = facts.command(PODMAN_VERSION.removeprefix("$ ")).out
    except Unknowable:
        return None
    match = re.search(r"version (\d+\.\d+\S*)", said)
    return match[1] if match else None


PODMAN_FILES = ("stat /usr/bin/podman", "stat /usr/local/bin/podman")
NO_PODMAN = "Podman is not installed"


def podman_is_here(facts: Facts) -> bool:
    """Whether Podman's program is installed. Needs PODMAN_FILES."""
    return any(facts.exists(need.removeprefix("stat ")) for need in PODMAN_FILES)


def no_podman(facts: Facts) -> str:
    """Why checks of Podman do not apply; "" where it answers or is here. Needs PING and PODMAN_FILES."""
    return NO_PODMAN if facts.why_not(PING) and not podman_is_here(facts) else ""


def podman_version(facts: Facts) -> str:
    """Such as `4.9.4`. Needs PING."""
    return str(at(facts.answer(PING), "version") or "")


def version(text: str) -> tuple[int, ...]:
    """Numbers of a version, to compare: `4.9.4-rhel` is (4, 9, 4); () where it begins with none."""
    match = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*(?![0-9])", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def rootless(facts: Facts) -> bool:
    """Whose containers these are. Needs PING."""
    found = at(facts.answer(PING), "rootless")
    if not isinstance(found, bool):
        raise Unknowable(
            "whether Podman runs rootless is not told", "podman info --format '{{.Host.Security.Rootless}}'"
        )
    return found


def inspect(facts: Facts) -> Mapping[str, Any]:
    """The Triton container as Podman inspects it; Unknowable where there is none or Podman was not asked."""
    found = facts.answer(INSPECT)
    if not isinstance(found, dict):
        raise Unknowable("there is no Triton container")
    return found


def has_container(facts: Facts) -> bool:
    """False where Podman was asked and has no Triton container; Unknowable where it was not asked. Needs INSPECT."""
    return isinstance(facts.answer(INSPECT), dict)


CONTAINER = (INSPECT, *PODMAN_FILES)


def no_container(facts: Facts) -> str:
    """Why checks of the Triton container do not apply; "" where there is one. Unknowable where Podman is here and was
    not asked. Needs CONTAINER."""
    if facts.why_not(INSPECT) and not podman_is_here(facts):
        return NO_PODMAN
    return "" if has_container(facts) else "no Triton container"


def container_name(facts: Facts) -> str:
    """Of the Triton container, for a line to type; `triton` where it is not known."""
    return (facts.every("container") or ("triton",))[0]


def at(found: Any, *path: str) -> Any:
    """A value deep in JSON, by keys; None where a step is missing: `at(inspect(facts), "HostConfig", "ShmSize")`."""
    for step in path:
        if not isinstance(found, Mapping) or step not in found:
            return None
        found = found[step]
    return found


def runs(found: Mapping[str, Any]) -> bool:
    """Whether the inspected container runs."""
    return at(found, "State", "Status") in ("running", "paused")


def argv(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The command line inside the container."""
    words = found.get("Args")
    return tuple(str(word) for word in (found.get("Path"), *(words if isinstance(words, list) else ())) if word)


def flag(found: Mapping[str, Any], name: str) -> str | None:
    """A flag of Triton's command line (`exit-timeout-secs`); None where it is not given."""
    return flag_value(argv(found), name)


# ---------------------------------------------------------------------------------------------------------------- NVML

NVML = "@nvml"


def nvml(facts: Facts) -> GpuBox:
    """What NVML tells of the cards; Unknowable where it could not be asked or failed. Needs NVML."""
    found = facts.answer(NVML)
    box = found.get("box") if isinstance(found, dict) else None
    if box is None:
        error = found.get("error") if isinstance(found, dict) else None
        text = str(error.get("text") or "no answer") if isinstance(error, dict) else "no answer"
        raise Unknowable(text if text.startswith("NVML") else f"NVML: {text}", "nvidia-smi")
    try:
        return msgspec.convert(box, GpuBox)
    except msgspec.ValidationError as error:
        raise Unknowable(f"NVML's answer is not understood: {error}", "nvidia-smi") from error


# ----------------------------------------------------------------------------------------------------------------- CDI

CDI_NEEDS = ("/etc/cdi/*", "/var/run/cdi/*", "/run/cdi/*")
NVIDIA_KIND = "nvidia.com/gpu"


def cdi_specs(facts: Facts) -> tuple[cdi.SpecFile, ...]:
    """All spec files in Podman's order (/var/run wins), read or not. Needs CDI_NEEDS."""
    found: list[cdi.SpecFile] = []
    for path in _cdi_files(facts):
        fact = facts.file(path)
        if fact.text is None or fact.cut:
            why = fact.why or ("only its first part was read" if fact.cut else "its text was not read")
            found.append(cdi.SpecFile(path, error=f"it cannot be read: {why}"))
        else:
            found.append(cdi.parsed(path, fact.text))
    return tuple(found)


def _cdi_files(facts: Facts) -> tuple[str, ...]:
    paths = (path for folder in cdi.FOLDERS for path in facts.glob(f"/{folder}/*"))
    return tuple(path for path in paths if path.endswith((".yaml", ".yml", ".json")))


def defines_nvidia(spec: cdi.SpecFile) -> bool:
    """Whether a spec file is of kind nvidia.com/gpu."""
    return any(name.startswith(f"{NVIDIA_KIND}=") for name in spec.devices)


def cdi_unread(facts: Facts) -> tuple[str, ...]:
    """Spec files whose text is not known, though Podman may well read them. Needs CDI_NEEDS."""
    return tuple(path for path in _cdi_files(facts) if facts.file(path).text is None or facts.file(path).cut)


def cdi_surely(facts: Facts) -> None:
    """Unknowable where a spec file could not be read: what is not found may stand there. Needs CDI_NEEDS."""
    for path in cdi_unread(facts):
        raise Unknowable(f"{path} could not be read", f"sudo cat {path}")


def cdi_in_force(facts: Facts) -> tuple[cdi.SpecFile, ...]:
    """Spec files from which Podman takes NVIDIA's devices, each once; where it takes none, those that would define
    them. () where there surely is none. Needs CDI_NEEDS and PODMAN."""
    specs = cdi_specs(facts)
    found = [file for name, file in cdi.taken(specs, podman_told(facts)).items() if name.startswith(f"{NVIDIA_KIND}=")]
    found = found or [spec for spec in specs if defines_nvidia(spec)]
    if not found:
        cdi_surely(facts)
    return tuple({file.path: file for file in found}.values())


# --------------------------------------------------------------------------------------------------------------- units

UNITS = "@units"
RELOADS = "Where A17 warns, its daemon-reload may take the GPU from a running container"
"""What the effect of a fix says that has systemd read its units anew."""


def unit(facts: Facts, name: str) -> Mapping[str, str]:
    """What systemd says of a unit (`user:NAME` of a user's own), as `systemctl show` has it; LoadState is `not-found`
    where there is none. Unknowable where systemd was not asked. Needs UNITS."""
    found = at(facts.answer(UNITS), name)
    own = name.removeprefix("user:")
    settle = f"systemctl {'--user ' if own != name else ''}show {own}"
    if not isinstance(found, Mapping):
        raise Unknowable(f"systemd was not asked about {own}", settle)
    if found.get("error"):
        raise Unknowable(f"{own}: {found['error']}", settle)
    return {name: value for name, value in found.items() if isinstance(value, str)}
