"""F01, F02, F03, F16, F19."""

from __future__ import annotations

import pytest

from console.checks import tuning_cpu
from console.checks.machine import CPUS, MEMINFO, VIRTUAL
from console.checks.tuning_fixes import TMPFILES
from console.core.facts import CommandFact, FileFact
from tests.checks.host_told import GARBAGE, NO_GPU, ONE_GPU, facts_for, said, units
from tests.checks.told import DENIED, folder

_CPU = "/sys/devices/system/cpu"
DRIVER = f"{_CPU}/cpu0/cpufreq/scaling_driver"
TUNED: dict[str, str | FileFact] = {
    "/etc/tuned/active_profile": "throughput-performance\n",
    "/etc/tuned/profile_mode": "manual\n",
    "/usr/lib/tuned": folder("accelerator-performance", "balanced", "throughput-performance"),
}


def per_cpu(name: str, *values: str) -> dict[str, str | FileFact]:
    return {f"{_CPU}/cpu{at}/{name}": f"{value}\n" for at, value in enumerate(values)}


def governors(*values: str) -> dict[str, str | FileFact]:
    return per_cpu("cpufreq/scaling_governor", *values)


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        (governors("performance", "performance"), "ok", "performance on 2 CPUs"),
        (governors("performance", "schedutil", "schedutil"), "warn", "schedutil on 2 of 3 CPUs"),
        (governors("powersave") | {DRIVER: "acpi-cpufreq\n"}, "warn", "powersave on 1 of 1 CPUs"),
        (
            governors("powersave") | {DRIVER: "intel_pstate\n"},
            "note",
            "powersave under intel_pstate: the CPU chooses, F02 judges how",
        ),
        ({}, "none", "no frequency control here: a virtual machine, or the firmware has it"),
        ({f"{_CPU}/cpu0/cpufreq/scaling_governor": DENIED}, "unknown", None),
        (governors("x y"), "unknown", "what the kernel says is no governor"),
        (
            {f"{_CPU}/cpu0/cpufreq/scaling_governor": FileFact("file", why="permission denied")},
            "unknown",
            f"{_CPU}/cpu0/cpufreq/scaling_governor: permission denied",
        ),
        (
            governors("performance", "ondemand")
            | {f"{_CPU}/cpu7/cpufreq/scaling_governor": FileFact("file", why="no")},
            "warn",
            "ondemand on 1 of 2 CPUs",
        ),
    ],
)
def test_f01(files: dict[str, str | FileFact], sign: str, text: str | None) -> None:
    finding = said(tuning_cpu.governor, facts_for(tuning_cpu.governor, files, variables=ONE_GPU))
    assert finding.sign == sign
    assert text is None or finding.text == text


def test_f01_is_no_warning_on_a_box_without_a_gpu() -> None:
    finding = said(tuning_cpu.governor, facts_for(tuning_cpu.governor, governors("ondemand"), variables=NO_GPU))
    assert finding.sign == "note"


def test_f01_is_mended_by_tuned_where_it_is_and_the_old_profile_is_kept() -> None:
    facts = facts_for(
        tuning_cpu.governor, governors("ondemand") | TUNED, answers={"@units": units(tuned="active")}, variables=ONE_GPU
    )
    fix = said(tuning_cpu.governor, facts).fix
    assert fix is not None
    assert (fix.kind, fix.commands) == ("P", ("sudo tuned-adm profile accelerator-performance",))
    assert fix.undo == "sudo tuned-adm profile throughput-performance"
    assert [deed.argv for deed in fix.back] == [("tuned-adm", "profile", "throughput-performance")]


def test_f01_is_mended_by_tmpfiles_where_tuned_is_not() -> None:
    fix = said(tuning_cpu.governor, facts_for(tuning_cpu.governor, governors("ondemand"), variables=ONE_GPU)).fix
    assert fix is not None
    write, run = fix.deeds
    assert (write.path, write.text) == (TMPFILES, f"w {tuning_cpu.GOVERNORS} - - - - performance\n")
    assert run.argv == ("systemd-tmpfiles", "--create", TMPFILES)
    assert fix.back[0].text == f"w {tuning_cpu.GOVERNORS} - - - - ondemand\n"


PREFERENCE = "cpufreq/energy_performance_preference"
BIAS = "power/energy_perf_bias"


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        (per_cpu(PREFERENCE, "performance", "performance"), "ok", "performance on 2 CPUs"),
        (per_cpu(PREFERENCE, "0"), "ok", "performance on 1 CPUs"),
        (per_cpu(PREFERENCE, "balance_performance", "performance"), "warn", "balance_performance on 1 of 2 CPUs"),
        (per_cpu(PREFERENCE, "128"), "warn", "128 on 1 of 1 CPUs"),
        (per_cpu(BIAS, "0", "4"), "ok", "energy bias 4 of 15"),
        (per_cpu(BIAS, "0", "6"), "warn", "energy bias 6 of 15; up to 4 is fit"),
        (per_cpu(BIAS, "normal"), "unknown", "the energy bias is no number"),
        ({f"{_CPU}/cpu0/{PREFERENCE}": FileFact("file", why="denied")}, "unknown", None),
        (per_cpu(PREFERENCE, ""), "unknown", "what the kernel says is no preference"),
        ({}, "none", "no such preference here"),
    ],
)
def test_f02(files: dict[str, str | FileFact], sign: str, text: str | None) -> None:
    finding = said(tuning_cpu.preference, facts_for(tuning_cpu.preference, files, variables=ONE_GPU))
    assert finding.sign == sign
    assert text is None or finding.text == text


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        ({tuning_cpu.NO_TURBO: "0\n"}, "ok", "turbo is on"),
        ({tuning_cpu.BOOST: "1\n"}, "ok", "turbo is on"),
        ({tuning_cpu.NO_TURBO: "1\n"}, "warn", "turbo is switched off"),
        ({tuning_cpu.BOOST: "0\n", tuning_cpu.NO_TURBO: DENIED}, "warn", "turbo is switched off"),
        ({tuning_cpu.NO_TURBO: DENIED}, "unknown", f"{tuning_cpu.NO_TURBO}: permission denied"),
        ({tuning_cpu.BOOST: "yes"}, "unknown", "what the kernel says of turbo is neither 0 nor 1"),
        ({}, "none", "no turbo that could be switched here"),
    ],
)
def test_f03(files: dict[str, str | FileFact], sign: str, text: str) -> None:
    finding = said(tuning_cpu.turbo, facts_for(tuning_cpu.turbo, files, variables=ONE_GPU))
    assert (finding.sign, finding.text) == (sign, text)
    if sign == "warn":
        assert finding.fix is not None
        assert finding.fix.kind == "P"


@pytest.mark.parametrize(
    ("online", "kib", "gpus", "sign", "text"),
    [
        ("0-31", 65_500_000, 1, "ok", "32 CPUs, 62.5 GiB for 1 GPU"),
        ("0-7", 65_500_000, 1, "ok", "8 CPUs, 62.5 GiB for 1 GPU"),
        ("0-3", 16_000_000, 1, "warn", "4 CPUs, 15.3 GiB for 1 GPU; 8 CPUs and 64 GiB are usual"),
        ("0-15", 130_000_000, 4, "warn", "16 CPUs, 124.0 GiB for 4 GPUs; 32 CPUs are usual"),
        ("0-15", 32_000_000, 1, "warn", "16 CPUs, 30.5 GiB for 1 GPU; 64 GiB are usual"),
        ("0-15", 130_000_000, 0, "none", "no NVIDIA device"),
        ("many", 130_000_000, 1, "unknown", "a list of processors or nodes is not as the kernel writes it"),
        ("0-15", 0, 1, "unknown", "/proc/meminfo has no MemTotal"),
    ],
)
def test_f16(online: str, kib: int, gpus: int, sign: str, text: str) -> None:
    files = {"/sys/devices/system/cpu/online": f"{online}\n", "/proc/meminfo": f"MemTotal:       {kib} kB\nx\n"}
    addresses = tuple(f"0000:{at:02x}:00.0" for at in range(gpus))
    finding = said(tuning_cpu.size, facts_for(tuning_cpu.size, files, variables={"gpu": addresses}))
    assert (finding.sign, finding.text) == (sign, text)


DETECT = VIRTUAL[0][2:]
QUIET = "cpu  100 0 100 9800 0 0 0 0 0 0\ncpu0 1\n"
STOLEN = "cpu  100 0 100 8800 0 0 0 1000 0 0\n"


@pytest.mark.parametrize(
    ("stat", "detect", "cpuinfo", "sign", "text"),
    [
        (QUIET, CommandFact(1, "none\n"), "", "ok", "no virtual machine"),
        (QUIET, CommandFact(0, "kvm\n"), "", "note", "virtual machine (kvm), steal 0.0 % since boot"),
        (
            QUIET,
            CommandFact(0, "podman\n"),
            "",
            "note",
            "this console runs in a container (podman); steal 0.0 % since boot",
        ),
        (QUIET, CommandFact(why="not installed"), "flags\t: fpu vme hypervisor\n", "note", None),
        (QUIET, CommandFact(why="not installed"), "flags\t: fpu vme\n", "ok", "no virtual machine"),
        (QUIET, CommandFact(1, "", "garbage"), "flags\t: fpu\n", "ok", "no virtual machine"),
        (STOLEN, CommandFact(why="not installed"), "", "warn", "10.0 % of CPU time since boot was stolen"),
        (QUIET, CommandFact(why="not installed"), "", "unknown", "whether this is a virtual machine is not told"),
        ("cpu 1 2\n", CommandFact(1, "none"), "", "unknown", "/proc/stat has no line of all processors"),
    ],
)
def test_f19(stat: str, detect: CommandFact, cpuinfo: str, sign: str, text: str | None) -> None:
    facts = facts_for(tuning_cpu.steal, {"/proc/stat": stat, "/proc/cpuinfo": cpuinfo}, {DETECT: detect})
    finding = said(tuning_cpu.steal, facts)
    assert finding.sign == sign
    assert text is None or finding.text == text


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_never_ok(text: str) -> None:
    rows = [
        said(tuning_cpu.governor, facts_for(tuning_cpu.governor, governors(text), variables=ONE_GPU)),
        said(tuning_cpu.turbo, facts_for(tuning_cpu.turbo, {tuning_cpu.NO_TURBO: text}, variables=ONE_GPU)),
        said(tuning_cpu.steal, facts_for(tuning_cpu.steal, {"/proc/stat": text}, {DETECT: text})),
        said(
            tuning_cpu.size,
            facts_for(tuning_cpu.size, {CPUS: text, MEMINFO: text}, variables=ONE_GPU),
        ),
        said(tuning_cpu.preference, facts_for(tuning_cpu.preference, per_cpu(BIAS, text), variables=ONE_GPU)),
    ]
    assert all(one.sign == "unknown" for one in rows), [(one.id, one.sign, one.text) for one in rows]
    assert all(len(one.text) < 400 for one in rows)
