"""F08, F09, F10, F11, F15."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import tuning_memory
from console.checks.tuning_fixes import SYSCTL
from console.core.facts import FileFact, SpaceFact
from tests.checks.host_told import GARBAGE, GIB, NO_GPU, NO_PODMAN, ONE_GPU, PODMAN, container, facts_for, said
from tests.checks.told import DENIED

ENABLED, DEFRAG = tuning_memory.THP_ENABLED, tuning_memory.THP_DEFRAG
_DEFRAG = "always defer defer+madvise [madvise] never\n"


@pytest.mark.parametrize(
    ("enabled", "defrag", "sign", "text"),
    [
        ("always [madvise] never\n", _DEFRAG, "ok", "madvise, defrag madvise"),
        ("always madvise [never]\n", DENIED, "ok", "never"),
        ("[always] madvise never\n", _DEFRAG, "note", "always, defrag madvise; madvise is calmer for p99"),
        (
            "[always] madvise never\n",
            "[always] defer madvise never\n",
            "warn",
            "always, with defrag always: each fault may stall",
        ),
        ("[always] madvise never\n", DENIED, "unknown", f"{DEFRAG}: permission denied"),
        ("always madvise never\n", _DEFRAG, "unknown", f"{ENABLED} names no choice"),
        (None, None, "none", "this kernel has no transparent huge pages"),
    ],
)
def test_f08(enabled: str | None, defrag: str | FileFact | None, sign: str, text: str) -> None:
    files = {path: one for path, one in ((ENABLED, enabled), (DEFRAG, defrag)) if one is not None}
    finding = said(tuning_memory.huge_pages, facts_for(tuning_memory.huge_pages, files, variables=ONE_GPU))
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.fix is not None
        assert finding.fix.deeds[0].text == f"w {DEFRAG} - - - - madvise\n"


COMMITTED = "MemTotal: 65536000 kB\nCommitLimit: 62914560 kB\nCommitted_AS: 41943040 kB\n"


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [
        ("0\n", "ok", "0, the kernel's default: large reservations are let through"),
        ("1\n", "ok", "1: every reservation is let through"),
        ("2\n", "warn", "2, strict: 40.0 of 60.0 GiB are promised"),
        ("7\n", "unknown", "/proc/sys/vm/overcommit_memory is none of 0, 1 and 2"),
        (DENIED, "unknown", "/proc/sys/vm/overcommit_memory: permission denied"),
    ],
)
def test_f09(value: str | FileFact, sign: str, text: str) -> None:
    files = {tuning_memory.OVERCOMMIT: value, "/proc/meminfo": COMMITTED}
    finding = said(tuning_memory.overcommit, facts_for(tuning_memory.overcommit, files))
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.fix is not None
        assert (finding.fix.kind, finding.fix.deeds[0].path) == ("P", SYSCTL)
        assert finding.fix.deeds[0].text == "vm.overcommit_memory = 0\n"


def test_f09_warns_without_the_figures_too() -> None:
    facts = facts_for(tuning_memory.overcommit, {tuning_memory.OVERCOMMIT: "2\n", "/proc/meminfo": DENIED})
    assert said(tuning_memory.overcommit, facts).text == "2, strict"


@pytest.mark.parametrize(
    ("total", "free", "sign", "text"),
    [
        (0, 0, "ok", "none are reserved"),
        (4096, 4096, "warn", "4096 of 2 MiB are reserved (8.0 GiB), none used"),
        (4096, 96, "note", "4096 of 2 MiB are reserved (8.0 GiB), 4000 used"),
        (64, 64, "note", "64 of 2 MiB are reserved (128 MiB), none used"),
    ],
)
def test_f10(total: int, free: int, sign: str, text: str) -> None:
    pool = f"HugePages_Total: {total}\nHugePages_Free: {free}\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\n"
    meminfo = f"MemTotal: 65536000 kB\n{pool}"
    finding = said(tuning_memory.huge_page_pool, facts_for(tuning_memory.huge_page_pool, {"/proc/meminfo": meminfo}))
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.fix is not None
        assert (finding.fix.kind, finding.fix.undo) == ("S", "sudo sysctl -w vm.nr_hugepages=4096")


def test_f10_unread() -> None:
    assert said(tuning_memory.huge_page_pool, facts_for(tuning_memory.huge_page_pool)).sign == "unknown"


NO_SWAP = "MemTotal: 65536000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
SWAP = "MemTotal: 65536000 kB\nSwapTotal: 4194304 kB\nSwapFree: 4194304 kB\n"
USED = "MemTotal: 65536000 kB\nSwapTotal: 4194304 kB\nSwapFree: 2097152 kB\n"
SWAPPINESS = tuning_memory.SWAPPINESS
RUNS = {"container_pid": ("812",)}
STATUS = "/proc/812/status"
SAMPLES: dict[str, Any] = {"seconds": 2, "swap_in": 0, "swap_out": 0}


@pytest.mark.parametrize(
    ("meminfo", "swappiness", "status", "samples", "sign", "text"),
    [
        (NO_SWAP, "60\n", None, None, "ok", "no swap"),
        (SWAP, "10\n", None, None, "ok", "swappiness 10, 0 B of 4.0 GiB swap used"),
        (SWAP, "60\n", None, None, "note", "swappiness 60, 0 B of 4.0 GiB swap used; 10 is calmer"),
        (SWAP, DENIED, None, None, "unknown", f"{SWAPPINESS}: permission denied"),
        (SWAP, "much", None, None, "unknown", f"{SWAPPINESS} is no number"),
        (
            USED,
            "60\n",
            "VmRSS: 4194304 kB\nVmSwap: 1048576 kB\n",
            None,
            "warn",
            "1.0 GiB of the server lie in swap (20 %)",
        ),
        (
            USED,
            "10\n",
            "VmRSS: 4194304 kB\nVmSwap: 10240 kB\n",
            None,
            "ok",
            "swappiness 10, 2.0 GiB of 4.0 GiB swap used",
        ),
        (USED, "10\n", DENIED, None, "unknown", f"{STATUS}: permission denied"),
        (USED, DENIED, "VmRSS: 1 kB\nVmSwap: 1048576 kB\n", None, "warn", "1.0 GiB of the server lie in swap (100 %)"),
        (SWAP, "10\n", None, SAMPLES, "ok", "swappiness 10, 0 B of 4.0 GiB swap used"),
        (SWAP, "60\n", None, SAMPLES | {"swap_in": 120.5}, "warn", "the box swaps: 120.5 pages/s in, 0 out"),
        (SWAP, "10\n", None, {"swap_in": "x"}, "unknown", "swapping was not sampled"),
    ],
)
def test_f11(
    meminfo: str, swappiness: str | FileFact, status: str | FileFact | None, samples: Any, sign: str, text: str
) -> None:
    files: dict[str, str | FileFact] = {"/proc/meminfo": meminfo, SWAPPINESS: swappiness}
    files |= {STATUS: status} if status is not None else {}
    facts = facts_for(
        tuning_memory.swap,
        files,
        answers={"@samples": samples} if samples is not None else {},
        variables=ONE_GPU | (RUNS if status is not None else {}),
        slow=samples is not None,
    )
    finding = said(tuning_memory.swap, facts)
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn" and swappiness == "60\n":
        assert finding.fix is not None
        assert finding.fix.deeds[0].text == "vm.swappiness = 10\n"


def test_f11_swapping_of_a_box_without_a_gpu_is_worth_knowing() -> None:
    files: dict[str, str | FileFact] = {"/proc/meminfo": SWAP, SWAPPINESS: "60\n"}
    answers = {"@samples": SAMPLES | {"swap_out": 3}}
    facts = facts_for(tuning_memory.swap, files, answers=answers, variables=NO_GPU, slow=True)
    assert said(tuning_memory.swap, facts).sign == "note"


@pytest.mark.parametrize(
    ("ipc", "total", "free", "sign", "text"),
    [
        ("host", 32 * GIB, 30 * GIB, "ok", "30.0 GiB of 32.0 GiB are free"),
        ("host", 32 * GIB, GIB // 2, "warn", "512 MiB of 32.0 GiB are free"),
        ("host", GIB // 2, GIB // 2, "warn", "512 MiB of 512 MiB are free"),
        ("shareable", None, None, "none", "the container has a /dev/shm of its own (E08)"),
        ("host", None, None, "unknown", "/dev/shm: not asked"),
    ],
)
def test_f15(ipc: str, total: int | None, free: int | None, sign: str, text: str) -> None:
    spaces = {"/dev/shm": SpaceFact(free, total, fs="tmpfs", mount="/dev/shm")} if total else {}
    answers = {"@podman.inspect": container(IpcMode=ipc)}
    finding = said(tuning_memory.host_shm, facts_for(tuning_memory.host_shm, answers=answers, spaces=spaces))
    assert (finding.sign, finding.text) == (sign, text)


@pytest.mark.parametrize(
    ("files", "answer", "sign"), [({}, NO_PODMAN, "none"), (PODMAN, NO_PODMAN, "unknown"), (PODMAN, None, "none")]
)
def test_f15_without_a_container(files: dict[str, FileFact], answer: Any, sign: str) -> None:
    facts = facts_for(tuning_memory.host_shm, dict(files), answers={"@podman.inspect": answer})
    assert said(tuning_memory.host_shm, facts).sign == sign


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_never_ok(text: str) -> None:
    for judge, files in (
        (tuning_memory.huge_pages, {ENABLED: text, DEFRAG: text}),
        (tuning_memory.overcommit, {tuning_memory.OVERCOMMIT: text, "/proc/meminfo": text}),
        (tuning_memory.huge_page_pool, {"/proc/meminfo": text}),
        (tuning_memory.swap, {"/proc/meminfo": text, SWAPPINESS: text}),
        (tuning_memory.swap, {"/proc/meminfo": SWAP, SWAPPINESS: text}),
    ):
        assert said(judge, facts_for(judge, dict(files))).sign == "unknown"
