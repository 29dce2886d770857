"""F13, F14, F17, F18, F20."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import tuning_kernel
from console.core.facts import FileFact
from tests.checks.host_told import GARBAGE, NO_PODMAN, PODMAN, container, facts_for, said
from tests.checks.told import ABSENT, DENIED

FILE_NR, FILE_MAX, NR_OPEN = (f"/proc/sys/fs/{name}" for name in ("file-nr", "file-max", "nr_open"))
OWN = "Limit                     Soft Limit           Hard Limit           Units\n"
OWN += "Max open files            1024                 262144               files\n"


def files(used: str, most: str, one: str) -> dict[str, str | FileFact]:
    return {FILE_NR: used, FILE_MAX: most, NR_OPEN: one, "/proc/self/limits": OWN}


@pytest.mark.parametrize(
    ("told", "sign", "text"),
    [
        (
            files("3456\t0\t9223372036854775807\n", "9223372036854775807\n", "1048576\n"),
            "ok",
            "3456 files are open, a process may have 1048576, 262144 in this session",
        ),
        (files("90000 0 100000", "100000", "1048576"), "warn", "90000 of 100000 files are open on this host"),
        (files("90 0 100000", "100000", "4096"), "warn", "a process may open 4096; 65536 are usual"),
        (
            files("90000 0 100000", "100000", "1") | {NR_OPEN: DENIED},
            "warn",
            "90000 of 100000 files are open on this host",
        ),
        (files("9 0 10", "100000", "1") | {NR_OPEN: DENIED}, "unknown", f"{NR_OPEN}: permission denied"),
        (files("x", "y", "z"), "unknown", "the kernel's figures of open files are not all numbers"),
    ],
)
def test_f13(told: dict[str, str | FileFact], sign: str, text: str) -> None:
    finding = said(tuning_kernel.open_files, facts_for(tuning_kernel.open_files, told))
    assert (finding.sign, finding.text) == (sign, text)


ASKED: dict[str, Any] = {"Ulimits": [{"Name": "RLIMIT_MEMLOCK", "Soft": -1, "Hard": -1}]}
ROOTLESS = {"@podman.ping": {"version": "4.9.4", "rootless": True}}
USER = {"user": ("ops",), "uid": ("1000",)}
RUNS = USER | {"container_pid": ("812",)}
LIMITS_D = "/etc/security/limits.d/10-ops.conf"
UNIT_D = "/etc/systemd/system/user@.service.d/10.conf"


def limits(hard: str) -> dict[str, str | FileFact]:
    return {"/proc/812/limits": f"Max locked memory         65536                {hard}                bytes\n"}


@pytest.mark.parametrize(
    ("told", "found", "variables", "sign", "text"),
    [
        (limits("unlimited"), container(**ASKED), RUNS, "ok", "unlimited for the server as asked"),
        (limits("65536"), container(), RUNS, "note", "65536 bytes for the server, and it asks for no more"),
        ({"/proc/812/limits": DENIED}, container(), RUNS, "unknown", "/proc/812/limits: permission denied"),
        ({"/proc/812/limits": "x"}, container(), RUNS, "unknown", "/proc/812/limits has no line of locked memory"),
        ({}, container("exited"), USER, "note", "the container asks for no limit of its own"),
        (
            {},
            container("exited", **ASKED),
            USER,
            "warn",
            "the container asks for more, and no file raises the user's limit",
        ),
        ({LIMITS_D: "ops - memlock unlimited\n"}, container("exited", **ASKED), USER, "ok", "raised for the user"),
        ({LIMITS_D: "* hard memlock unlimited\n"}, container("exited", **ASKED), USER, "ok", "raised for the user"),
        ({LIMITS_D: "# ops - memlock unlimited\n"}, container("exited", **ASKED), USER, "warn", None),
        ({LIMITS_D: "ana - memlock unlimited\n"}, container("exited", **ASKED), USER, "warn", None),
        (
            {UNIT_D: "[Service]\nLimitMEMLOCK=infinity\n"},
            container("exited", **ASKED),
            USER,
            "ok",
            "raised for the user",
        ),
        (
            {LIMITS_D: FileFact("file", why="denied")},
            container("exited", **ASKED),
            USER,
            "unknown",
            f"{LIMITS_D}: denied",
        ),
    ],
)
def test_f14(
    told: dict[str, str | FileFact], found: Any, variables: dict[str, tuple[str, ...]], sign: str, text: str | None
) -> None:
    facts = facts_for(tuning_kernel.memlock, told, answers=ROOTLESS | {"@podman.inspect": found}, variables=variables)
    finding = said(tuning_kernel.memlock, facts)
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_f14_a_start_that_failed_names_the_limit_and_how_to_raise_it() -> None:
    found = container("created", **ASKED)
    found["State"]["Error"] = "crun: setrlimit: error setting rlimit type 8: operation not permitted"
    facts = facts_for(tuning_kernel.memlock, answers=ROOTLESS | {"@podman.inspect": found}, variables=USER)
    finding = said(tuning_kernel.memlock, facts)
    assert (finding.sign, finding.data) == ("fail", {"rlimit": "memlock"})
    assert finding.evidence[0].where == "podman inspect triton"
    fix = finding.fix
    assert fix is not None
    assert fix.kind == "P"
    assert [deed.path or deed.argv[0] for deed in fix.deeds] == [
        "/etc/security/limits.d/90-gpuconsole.conf",
        "/etc/systemd/system/user@.service.d/90-gpuconsole.conf",
        "systemctl",
    ]
    assert fix.deeds[0].text == "ops - memlock unlimited\n"


@pytest.mark.parametrize(
    ("answers", "paths", "sign", "text"),
    [
        ({"@podman.inspect": NO_PODMAN}, {}, "none", "Podman is not installed"),
        ({"@podman.inspect": None}, PODMAN, "none", "no Triton container"),
        ({"@podman.inspect": NO_PODMAN}, PODMAN, "unknown", "/run/podman/podman.sock: no such file"),
        (
            {"@podman.inspect": container(), "@podman.ping": {"rootless": False}},
            PODMAN,
            "none",
            "rootful: Podman may set any limit",
        ),
    ],
)
def test_f14_does_not_apply(answers: dict[str, Any], paths: dict[str, FileFact], sign: str, text: str) -> None:
    finding = said(tuning_kernel.memlock, facts_for(tuning_kernel.memlock, dict(paths), answers=answers))
    assert (finding.sign, finding.text) == (sign, text)


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [
        ("4096\n", "ok", "4096 may wait"),
        ("128\n", "note", "128 may wait; 2048 are safer with many new connections"),
        ("many\n", "unknown", "/proc/sys/net/core/somaxconn is no number"),
        (ABSENT, "unknown", "there is no /proc/sys/net/core/somaxconn"),
    ],
)
def test_f17(value: str | FileFact, sign: str, text: str) -> None:
    finding = said(tuning_kernel.somaxconn, facts_for(tuning_kernel.somaxconn, {"/proc/sys/net/core/somaxconn": value}))
    assert (finding.sign, finding.text) == (sign, text)


def pressures(cpu: str, memory: str, io: str) -> dict[str, str | FileFact]:
    return {
        f"/proc/pressure/{name}": f"some avg10=0.00 avg60={value} avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00\n"
        for name, value in (("cpu", cpu), ("memory", memory), ("io", io))
    }


@pytest.mark.parametrize(
    ("told", "sign", "text"),
    [
        (pressures("1.50", "0.00", "0.25"), "ok", "cpu 1.5 %, memory 0.0 %, io 0.2 % of the last minute"),
        (pressures("1.50", "22.10", "0.25"), "note", "cpu 1.5 %, memory 22.1 %, io 0.2 % of the last minute"),
        ({}, "none", "this kernel keeps no figures of pressure"),
        (
            dict.fromkeys(tuning_kernel._PRESSURE, FileFact("file", why="operation not supported")),
            "none",
            "figures of pressure are off (psi=1 at boot turns them on)",
        ),
        (pressures("1.50", "x", "0.25"), "unknown", "not every figure of pressure is there"),
        (
            pressures("1.50", "1.0", "0.25") | {"/proc/pressure/io": DENIED},
            "unknown",
            "/proc/pressure/io: permission denied",
        ),
    ],
)
def test_f18(told: dict[str, str | FileFact], sign: str, text: str) -> None:
    finding = said(tuning_kernel.pressure, facts_for(tuning_kernel.pressure, told))
    assert (finding.sign, finding.text) == (sign, text)


def edac(corrected: str, uncorrected: str) -> dict[str, str | FileFact]:
    folder = "/sys/devices/system/edac/mc"
    zero: dict[str, str | FileFact] = {f"{folder}/mc0/ce_count": "0\n", f"{folder}/mc0/ue_count": "0\n"}
    return zero | {f"{folder}/mc1/ce_count": corrected, f"{folder}/mc1/ue_count": uncorrected}


@pytest.mark.parametrize(
    ("told", "sign", "text"),
    [
        (edac("0\n", "0\n"), "ok", "none since boot"),
        (edac("3\n", "0\n"), "note", "3 corrected since boot, none uncorrected"),
        (edac("5000\n", "0\n"), "warn", "5000 corrected memory errors since boot"),
        (edac("5000\n", "2\n"), "fail", "2 uncorrected memory errors since boot"),
        (edac("0\n", "2\n") | {"/sys/devices/system/edac/mc/mc0/ce_count": FileFact("file", why="no")}, "fail", None),
        (
            edac("0\n", "0\n") | {"/sys/devices/system/edac/mc/mc0/ce_count": FileFact("file", why="no")},
            "unknown",
            None,
        ),
        (edac("x\n", "0\n"), "unknown", "a count of memory errors is no number"),
        ({}, "none", "no memory controller reports errors here"),
    ],
)
def test_f20(told: dict[str, str | FileFact], sign: str, text: str | None) -> None:
    finding = said(tuning_kernel.memory_errors, facts_for(tuning_kernel.memory_errors, told))
    assert finding.sign == sign
    assert text is None or finding.text == text


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_never_ok(text: str) -> None:
    for judge, told in (
        (tuning_kernel.open_files, files(text, text, text)),
        (tuning_kernel.pressure, dict.fromkeys(tuning_kernel._PRESSURE, text)),
        (tuning_kernel.somaxconn, {"/proc/sys/net/core/somaxconn": text}),
        (tuning_kernel.memory_errors, edac(text, text)),
    ):
        assert said(judge, facts_for(judge, dict(told))).sign == "unknown"
    told = {"/proc/812/limits": text, LIMITS_D: text}
    for found in (container(**ASKED), container("exited", **ASKED), {"HostConfig": text, "State": text}):
        facts = facts_for(
            tuning_kernel.memlock, dict(told), answers=ROOTLESS | {"@podman.inspect": found}, variables=RUNS
        )
        assert said(tuning_kernel.memlock, facts).sign == "unknown"
