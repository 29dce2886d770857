"""The disks below the models: kind, speed as the kernel counted it, health, and software RAID (H03, H04, H06, H08)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.machine import VIRTUAL, is_container, texts, virtual
from console.checks.storage import MODELS_SPACE
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line, whole_number
from console.core.units import KIB, size

ROTATIONAL = "/sys/block/*/queue/rotational"
_MAPPED = "/sys/block/*/dm/name"
_DISK_NEEDS = (MODELS_SPACE, ROTATIONAL, _MAPPED)
_BELOW = "stat /sys/block/*/slaves/*"
_PARTITION = re.compile(
    r"(nvme\d{1,4}n\d{1,4}|mmcblk\d{1,4}|md\d{1,4}|loop\d{1,4})p\d{1,4}|([a-z]{2,8})\d{1,4}", re.ASCII
)


def _disks(facts: Facts) -> tuple[str, ...]:
    """Block devices of the kernel that hold the model repository (`nvme0n1`, `dm-3`), each once; () where none does,
    as on network file systems. Needs _DISK_NEEDS."""
    known = {path.split("/")[3] for path in facts.glob(ROTATIONAL)}
    found: list[str] = []
    for folder in facts.every("models"):
        device = facts.space(folder).device
        if not device.startswith("/dev/"):
            continue
        name = _kernel_name(facts, device.removeprefix("/dev/"), known)
        if name is None:
            raise Unknowable(f"which disk {one_line(device, 60)} is on is not told", f"lsblk -s {one_line(device, 60)}")
        found.append(name)
    return tuple(dict.fromkeys(found))


def _kernel_name(facts: Facts, name: str, known: set[str]) -> str | None:
    if name in known:
        return name
    if name.startswith("mapper/"):
        named, _ = texts(facts, facts.glob(_MAPPED))
        return next((path.split("/")[3] for path, told in named.items() if told == name.removeprefix("mapper/")), None)
    match = _PARTITION.fullmatch(name)
    whole = next((part for part in match.groups() if part), None) if match else None
    return whole if whole in known else None


_NO_DISK = "the models lie on no disk of this host that is known"


@check(
    "H03",
    "the models' disk does not rotate",
    group="storage",
    slug="model-disk",
    needs=(*_DISK_NEEDS, *VIRTUAL),
    why=(
        "A model of several gigabytes loads in seconds from NVMe and in half a minute from a disk that rotates. "
        "It delays each start and each new version, not a single request."
    ),
    source="seed report S1 5.2; Linux ABI sysfs-block (queue/rotational)",
)
def rotates(facts: Facts) -> Answer:
    disks = _disks(facts)
    if not disks:
        return skip(_NO_DISK)
    found, blind = texts(facts, [f"/sys/block/{name}/queue/rotational" for name in disks])
    evidence = tuple(Evidence(path, text) for path, text in found.items())
    slow = [path.split("/")[3] for path, text in found.items() if text == "1"]
    if slow:
        where = virtual(facts)
        if where and not is_container(where):
            return note(f"{', '.join(slow)} says that it rotates, as virtual disks do", evidence)
        fix = Fix(
            "S", ("lsblk -o NAME,ROTA,SIZE,MODEL",), "a move of the models to an SSD or NVMe disk is done by hand"
        )
        return warn(f"{', '.join(slow)} rotates", evidence, fix, disk=slow[0])
    if blind is not None:
        raise blind
    if any(text != "0" for text in found.values()):
        return unknown("a disk does not say whether it rotates", "lsblk -o NAME,ROTA")
    return ok(f"{', '.join(disks)} does not rotate", evidence)


DISKSTATS = "/proc/diskstats"
_ENOUGH_READS = 1000
_FAST_MS, _SLOW_MS = 5.0, 30.0
_SECTOR = 512


@check(
    "H04",
    "reads from the models' disk are quick",
    group="storage",
    slug="disk-reads",
    needs=(*_DISK_NEEDS, DISKSTATS),
    why=(
        "The kernel counts how long reads took since boot: a disk that is worn, throttled or shared shows here. "
        "Its full speed is told only by reading a large file, which takes from the server, so it is done by hand."
    ),
    source="Linux admin-guide/iostats",
)
def reads(facts: Facts) -> Answer:
    disks = _disks(facts)
    if not disks:
        return skip(_NO_DISK)
    folders = " ".join(quote(folder) for folder in facts.every("models"))
    largest = f"sudo find {folders} -type f -printf '%s %p\\n' | sort -n | tail -n 1 | cut -d' ' -f2-"
    measure = Fix(
        "S",
        (f'sudo dd if="$({largest})" of=/dev/null bs=4M count=512 iflag=direct',),
        "reads up to 2 GiB of the largest model file past the cache and tells the speed; requests are slower meanwhile",
    )
    few = ""
    said: list[str] = []
    evidence: list[Evidence] = []
    slow = False
    for name, count, sectors, spent, line in _read_counts(facts):
        if name not in disks:
            continue
        evidence.append(Evidence(line.where, " ".join(line.text.split())))
        if count < _ENOUGH_READS:
            few = few or f"{name}: {count} reads since boot are too few to judge"
            continue
        mean, chunk = spent / count, sectors * _SECTOR / count
        said.append(f"{name}: {mean:.1f} ms a read of {size(max(chunk, KIB))}")
        if mean >= _SLOW_MS:
            return warn(f"{said[-1]} since boot", evidence, measure, disk=name)
        slow = slow or mean >= _FAST_MS
    if not evidence:
        raise Unknowable(f"{DISKSTATS} does not list {', '.join(disks)}", f"cat {DISKSTATS}")
    if few:
        return note(few, evidence)
    text = f"{', '.join(said)} since boot"
    return note(text, evidence) if slow else ok(text, evidence)


def _read_counts(facts: Facts) -> Iterator[tuple[str, int, int, int, Evidence]]:
    """(disk, reads, sectors, milliseconds, the line) for each line that is whole."""
    facts.text(DISKSTATS)
    for line in facts.lines(DISKSTATS, r"\S"):
        words = line.text.split()
        numbers = [whole_number(words[at]) for at in (3, 5, 6)] if len(words) > 6 else []
        if len(numbers) == 3 and None not in numbers:
            count, sectors, spent = (number or 0 for number in numbers)
            if min(count, sectors, spent) >= 0:
                yield words[2], count, sectors, spent, line


_NVME_STATE = "/sys/class/nvme/nvme*/state"
_SCSI_STATE = "/sys/block/sd*/device/state"
_EXT4_ERRORS = "/sys/fs/ext4/*/errors_count"
_NVME_LOGS = ("$ nvme smart-log /dev/nvme0", "$ nvme smart-log /dev/nvme1")
_ATA_HEALTH = "$ smartctl -H /dev/sda"
_WORN = 100


@check(
    "H06",
    "the disks are well",
    group="storage",
    slug="disk-health",
    needs=(*_DISK_NEEDS, _BELOW, _NVME_STATE, _SCSI_STATE, _EXT4_ERRORS, *_NVME_LOGS, _ATA_HEALTH),
    why=(
        "A disk that dies takes the models and the images with it, and is slow before. "
        "What the kernel sees is told at once; what the disk itself knows needs root."
    ),
    source="nvme-smart-log(1), smartctl(8), Linux ABI sysfs-fs-ext4",
)
def health(facts: Facts) -> Answer:
    found, blind = texts(
        facts, [path for need in (_NVME_STATE, _SCSI_STATE, _EXT4_ERRORS) for path in facts.glob(need)]
    )
    for path, text in found.items():
        name = path.split("/")[3 if path.startswith("/sys/block/") else 4]
        gone = ("dead", "deleting") if "/nvme/" in path else ("offline", "blocked", "transport-offline")
        if path.endswith("/state") and text in gone:
            return fail(f"{name} is {text}", (Evidence(path, text),), _replace(name), disk=name)
    for path, text in found.items():
        if path.endswith("/errors_count") and (whole_number(text) or 0) > 0:
            name = path.split("/")[4]
            fix = Fix("S", (f"sudo e2fsck -fn /dev/{name}", "sudo dmesg -T | grep -i ext4"), "the first one only looks")
            return warn(f"{name}: {text} file system errors were recorded", (Evidence(path, text),), fix, disk=name)
    disks = _whole_disks(facts)
    if not disks:
        return skip("no disk here tells of its health: virtual ones, or none")
    told = [answer for name in disks if (answer := _own_word(facts, name)) is not None]
    for answer in told:
        if answer.sign != "ok":
            return answer
    if blind is not None:
        raise blind
    if told:
        return ok(", ".join(answer.text for answer in told), [line for answer in told for line in answer.evidence])
    return unknown("the kernel sees no fault; the disk's own word needs root", f"sudo smartctl -H /dev/{disks[0]}")


def _whole_disks(facts: Facts) -> tuple[str, ...]:
    """NVMe and SCSI disks below the model repository; all of the box where that is not known."""
    known = {path.split("/")[3] for path in facts.glob(ROTATIONAL)}
    try:
        names = list(_disks(facts))
    except Unknowable:
        names = []
    found: list[str] = []
    for name in names:  # grows: a volume lies on a partition, or on another volume
        below = [path.split("/")[5] for path in facts.glob(f"/sys/block/{name}/slaves/*")]
        names += [one for part in below if (one := _kernel_name(facts, part, known)) and one not in names]
        found += [name] if not below else []
    return tuple(sorted(one for one in found or known if one.startswith(("nvme", "sd"))))


def _own_word(facts: Facts, disk: str) -> Answer | None:
    """What the disk says of itself; None where it was not asked or did not answer."""
    controller = re.sub(r"^(nvme\d{1,4})n\d{1,4}$", r"\1", disk)
    need = next((one for one in (*_NVME_LOGS, _ATA_HEALTH) if one.endswith(f"/{controller}")), None)
    if need is None:
        return None
    words = need.removeprefix("$ ")
    try:
        out = facts.command(words).out
    except Unknowable:
        return None
    if need == _ATA_HEALTH:
        line = re.search(r"^SMART (?:overall-health.{0,40}|Health Status): (\S+)", out, re.MULTILINE)
        if line is None:
            return None
        evidence = (Evidence(need, line.group()),)
        well = line.group(1) in ("PASSED", "OK")
        return (
            ok(f"{disk} says {line.group(1)}", evidence) if well else _ill(disk, one_line(line.group(1), 20), evidence)
        )
    values = dict(re.findall(r"^(critical_warning|percentage_used|media_errors)\s*:\s*(\w+)", out, re.MULTILINE))
    numbers = {
        name: int(value, 0) for name, value in values.items() if re.fullmatch(r"0x[0-9a-f]{1,8}|0|[1-9]\d{0,15}", value)
    }
    if "critical_warning" not in numbers:
        return None
    lines = tuple(Evidence(need, f"{name}: {number}") for name, number in numbers.items())
    if numbers["critical_warning"]:
        return _ill(disk, f"critical warning {numbers['critical_warning']:#x}", lines)
    if numbers.get("media_errors", 0):
        return warn(f"{disk} counts {numbers['media_errors']} media errors", lines, _replace(disk), disk=disk)
    worn = numbers.get("percentage_used", 0)
    if worn >= _WORN:
        return warn(f"{disk} is worn: {worn} % of its rated life is used", lines, _replace(disk), disk=disk)
    return ok(f"{disk}: no warning, {worn} % of its life used", lines)


def _ill(disk: str, what: str, evidence: tuple[Evidence, ...]) -> Answer:
    return fail(f"{disk} says {what}", evidence, _replace(disk), disk=disk)


def _replace(disk: str) -> Fix:
    return Fix(
        "S", (f"sudo smartctl -a /dev/{disk}", "sudo dmesg -T | tail -50"), "copy the models away before anything else"
    )


MDSTAT = "/proc/mdstat"


@check(
    "H08",
    "software RAID is whole",
    group="storage",
    slug="raid",
    needs=(MDSTAT,),
    why=(
        "An array that lost a disk goes on without protection, and its rebuild slows every read. "
        "Whether models need RAID at all is a question of how quickly they can be copied here again."
    ),
    source="md(4); seed report S2 4.1",
)
def raid(facts: Facts) -> Answer:
    arrays = list(_arrays(facts))
    if not arrays:
        return skip("no software RAID")
    for name, kind, state, lines in arrays:
        if kind == "inactive" or "_" in state or any("(F)" in line.text for line in lines):
            text = f"{name} {'is inactive' if kind == 'inactive' else f'has lost a disk ({state or kind})'}"
            fix = Fix("S", (f"sudo mdadm --detail /dev/{name}",), "it names the disk to replace")
            return warn(text, lines, fix, disk=name)
    said = ", ".join(f"{name} {kind} {state}".strip() for name, kind, state, _ in arrays[:4])
    return note(said, [line for *_, lines in arrays for line in lines])


def _arrays(facts: Facts) -> Iterator[tuple[str, str, str, tuple[Evidence, ...]]]:
    """(md0, raid1 or inactive, [UU], its lines) for each array."""
    lines = facts.lines(MDSTAT, "")
    for at, line in enumerate(lines):
        match = re.match(
            r"(md[\w-]{1,40}) : (active|inactive)\b(?: \([\w-]{1,20}\))?(?: (raid\d{1,2}|linear))?", line.text, re.ASCII
        )
        if match is None:
            continue
        name, state, kind = match.groups()
        below = lines[at + 1] if at + 1 < len(lines) and lines[at + 1].text.startswith(" ") else None
        marks = re.search(r"\[[U_]{1,256}\]", below.text) if below is not None else None
        own = (line, below) if below is not None else (line,)
        yield name, "inactive" if state == "inactive" else kind or state, marks.group() if marks else "", own
