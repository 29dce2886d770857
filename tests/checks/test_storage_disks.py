"""H03, H04, H06, H08."""

from __future__ import annotations

import pytest

from console.checks import storage_disks
from console.checks.machine import VIRTUAL
from console.core.facts import CommandFact, FileFact, SpaceFact
from tests.checks.host_told import GARBAGE, facts_for, said
from tests.checks.told import DENIED

MODELS = {"models": ("/data/models",)}
DETECT = VIRTUAL[0][2:]
BARE, KVM = {DETECT: CommandFact(1, "none\n")}, {DETECT: CommandFact(0, "kvm\n")}


def on(device: str) -> dict[str, SpaceFact]:
    return {"/data/models": SpaceFact(1, 2, fs="xfs", device=device, mount="/data")}


def disks(**rotational: str) -> dict[str, str | FileFact]:
    return {f"/sys/block/{name}/queue/rotational": text for name, text in rotational.items()}


LVM: dict[str, str | FileFact] = disks(sda="1\n", **{"dm-0": "1\n", "dm-1": "0\n"}) | {
    "/sys/block/dm-0/dm/name": "rhel-root\n",
    "/sys/block/dm-1/dm/name": "rhel-models\n",
}


@pytest.mark.parametrize(
    ("files", "device", "detect", "sign", "text"),
    [
        (disks(nvme0n1="0\n", sda="1\n"), "/dev/nvme0n1p3", BARE, "ok", "nvme0n1 does not rotate"),
        (disks(nvme0n1="0\n", sda="1\n"), "/dev/sda2", BARE, "warn", "sda rotates"),
        (disks(sda="1\n"), "/dev/sda", KVM, "note", "sda says that it rotates, as virtual disks do"),
        (disks(md127="0\n"), "/dev/md127p1", BARE, "ok", "md127 does not rotate"),
        (LVM, "/dev/mapper/rhel-models", BARE, "ok", "dm-1 does not rotate"),
        (LVM, "/dev/mapper/rhel-root", BARE, "warn", "dm-0 rotates"),
        (LVM, "/dev/mapper/gone", BARE, "unknown", "which disk /dev/mapper/gone is on is not told"),
        (disks(sda="1\n"), "nas:/models", BARE, "none", "the models lie on no disk of this host that is known"),
        (disks(sda="?\n"), "/dev/sda1", BARE, "unknown", "a disk does not say whether it rotates"),
        ({"/sys/block/sda/queue/rotational": FileFact("file", why="no")}, "/dev/sda1", BARE, "unknown", None),
    ],
)
def test_h03(
    files: dict[str, str | FileFact], device: str, detect: dict[str, CommandFact], sign: str, text: str | None
) -> None:
    facts = facts_for(storage_disks.rotates, files, dict(detect), spaces=on(device), variables=MODELS)
    finding = said(storage_disks.rotates, facts)
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_h03_without_models() -> None:
    assert said(storage_disks.rotates, facts_for(storage_disks.rotates)).sign == "none"


def stats(*lines: tuple[str, int, int, int]) -> str:
    """(disk, reads, sectors, ms) each."""
    return "".join(
        f" 259       0 {name} {reads} 12 {sectors} {ms} 5 6 7 8 0 9 10\n" for name, reads, sectors, ms in lines
    )


@pytest.mark.parametrize(
    ("text", "sign", "said_text"),
    [
        (stats(("nvme0n1", 10_000, 2_560_000, 3000)), "ok", "nvme0n1: 0.3 ms a read of 128 KiB since boot"),
        (stats(("nvme0n1", 10_000, 2_560_000, 90_000)), "note", "nvme0n1: 9.0 ms a read of 128 KiB since boot"),
        (stats(("nvme0n1", 10_000, 2_560_000, 900_000)), "warn", "nvme0n1: 90.0 ms a read of 128 KiB since boot"),
        (stats(("nvme0n1", 10, 80, 9000)), "note", "nvme0n1: 10 reads since boot are too few to judge"),
        (stats(("sda", 10_000, 80, 9)), "unknown", "/proc/diskstats does not list nvme0n1"),
        (DENIED, "unknown", "/proc/diskstats: permission denied"),
    ],
)
def test_h04(text: str | FileFact, sign: str, said_text: str) -> None:
    files = disks(nvme0n1="0\n") | {"/proc/diskstats": text}
    facts = facts_for(storage_disks.reads, files, spaces=on("/dev/nvme0n1p1"), variables=MODELS)
    finding = said(storage_disks.reads, facts)
    assert (finding.sign, finding.text) == (sign, said_text)


def test_h04_without_a_disk() -> None:
    facts = facts_for(storage_disks.reads, spaces=on("nas:/models"), variables=MODELS)
    assert said(storage_disks.reads, facts).sign == "none"


NVME: dict[str, str | FileFact] = disks(nvme0n1="0\n") | {"/sys/class/nvme/nvme0/state": "live\n"}
SATA: dict[str, str | FileFact] = disks(sda="0\n") | {"/sys/block/sda/device/state": "running\n"}
SMART_LOG, SMARTCTL = "nvme smart-log /dev/nvme0", "smartctl -H /dev/sda"


def smart(warning: str, used: int, media: int) -> str:
    return (
        f"Smart Log for NVME device:nvme0 namespace-id:ffffffff\ncritical_warning\t\t\t: {warning}\n"
        f"temperature\t: 38 C\npercentage_used\t\t: {used}%\nmedia_errors\t: {media}\n"
    )


@pytest.mark.parametrize(
    ("files", "commands", "device", "sign", "text"),
    [
        (NVME, {SMART_LOG: smart("0", 3, 0)}, "/dev/nvme0n1p1", "ok", "nvme0n1: no warning, 3 % of its life used"),
        (NVME, {SMART_LOG: smart("0x4", 3, 0)}, "/dev/nvme0n1p1", "fail", "nvme0n1 says critical warning 0x4"),
        (NVME, {SMART_LOG: smart("0", 3, 7)}, "/dev/nvme0n1p1", "warn", "nvme0n1 counts 7 media errors"),
        (
            NVME,
            {SMART_LOG: smart("0", 104, 0)},
            "/dev/nvme0n1p1",
            "warn",
            "nvme0n1 is worn: 104 % of its rated life is used",
        ),
        (
            NVME,
            {SMART_LOG: CommandFact(1, "", "Permission denied")},
            "/dev/nvme0n1p1",
            "unknown",
            "the kernel sees no fault; the disk's own word needs root",
        ),
        (NVME | {"/sys/class/nvme/nvme0/state": "dead\n"}, {}, "/dev/nvme0n1p1", "fail", "nvme0 is dead"),
        (
            SATA,
            {SMARTCTL: "SMART overall-health self-assessment test result: PASSED\n"},
            "/dev/sda1",
            "ok",
            "sda says PASSED",
        ),
        (
            SATA,
            {SMARTCTL: "SMART overall-health self-assessment test result: FAILED!\n"},
            "/dev/sda1",
            "fail",
            "sda says FAILED!",
        ),
        (SATA, {SMARTCTL: "SMART Health Status: OK\n"}, "/dev/sda1", "ok", "sda says OK"),
        (SATA | {"/sys/block/sda/device/state": "offline\n"}, {}, "/dev/sda1", "fail", "sda is offline"),
        (
            SATA | {"/sys/fs/ext4/sda1/errors_count": "2\n"},
            {},
            "/dev/sda1",
            "warn",
            "sda1: 2 file system errors were recorded",
        ),
        (
            disks(vda="1\n") | {"/sys/fs/ext4/vda1/errors_count": "0\n"},
            {},
            "/dev/vda1",
            "none",
            "no disk here tells of its health: virtual ones, or none",
        ),
        (
            NVME
            | disks(**{"dm-1": "0\n"})
            | {
                "/sys/block/dm-1/dm/name": "vg-models\n",
                "/sys/block/dm-1/slaves/nvme0n1p3": FileFact("dir", mode=0o755),
            },
            {SMART_LOG: smart("0", 5, 0)},
            "/dev/mapper/vg-models",
            "ok",
            "nvme0n1: no warning, 5 % of its life used",
        ),
        (
            NVME | {"/sys/class/nvme/nvme0/state": FileFact("file", why="no")},
            {SMART_LOG: smart("0", 5, 0)},
            "/dev/nvme0n1p1",
            "unknown",
            "/sys/class/nvme/nvme0/state: no",
        ),
    ],
)
def test_h06(
    files: dict[str, str | FileFact], commands: dict[str, str | CommandFact], device: str, sign: str, text: str
) -> None:
    facts = facts_for(storage_disks.health, files, commands, spaces=on(device), variables=MODELS)
    finding = said(storage_disks.health, facts)
    assert (finding.sign, finding.text) == (sign, text)


def test_h06_says_what_would_settle_it() -> None:
    facts = facts_for(storage_disks.health, NVME, spaces=on("/dev/nvme0n1p1"), variables=MODELS)
    assert said(storage_disks.health, facts).settle == "sudo smartctl -H /dev/nvme0n1"


HEALTHY = """Personalities : [raid1]
md0 : active raid1 sdb1[1] sda1[0]
      976630464 blocks super 1.2 [2/2] [UU]
      bitmap: 0/8 pages [0KB], 65536KB chunk

unused devices: <none>
"""


@pytest.mark.parametrize(
    ("text", "sign", "said_text"),
    [
        (HEALTHY, "note", "md0 raid1 [UU]"),
        (HEALTHY.replace("[2/2] [UU]", "[2/1] [U_]"), "warn", "md0 has lost a disk ([U_])"),
        (HEALTHY.replace("sdb1[1]", "sdb1[1](F)"), "warn", "md0 has lost a disk ([UU])"),
        (HEALTHY.replace("active raid1", "active (auto-read-only) raid1"), "note", "md0 raid1 [UU]"),
        ("Personalities : \nmd127 : inactive sda[0](S)\n      1 blocks super 1.2\n", "warn", "md127 is inactive"),
        ("Personalities : \nunused devices: <none>\n", "none", "no software RAID"),
        (None, "none", "no software RAID"),
        (DENIED, "unknown", "/proc/mdstat: permission denied"),
    ],
)
def test_h08(text: str | FileFact | None, sign: str, said_text: str) -> None:
    files: dict[str, str | FileFact] = {"/proc/mdstat": text} if text is not None else {}
    finding = said(storage_disks.raid, facts_for(storage_disks.raid, files))
    assert (finding.sign, finding.text) == (sign, said_text)


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_never_ok(text: str) -> None:
    for judge, files, commands in (
        (storage_disks.rotates, disks(nvme0n1=text), {}),
        (storage_disks.reads, disks(nvme0n1=text) | {"/proc/diskstats": text}, {}),
        (storage_disks.health, NVME | {"/sys/class/nvme/nvme0/state": text}, {SMART_LOG: text}),
    ):
        facts = facts_for(judge, files, dict(commands), spaces=on("/dev/nvme0n1p1"), variables=MODELS)
        assert said(judge, facts).sign == "unknown"
    assert said(storage_disks.raid, facts_for(storage_disks.raid, {"/proc/mdstat": text})).sign == "none"
    facts = facts_for(storage_disks.rotates, disks(sda="0\n"), spaces=on(f"/dev/{text}"), variables=MODELS)
    assert said(storage_disks.rotates, facts).sign == "unknown"
