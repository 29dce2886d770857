"""Fixes of host tuning: what they write, beside what is there, and how they are taken back."""

from __future__ import annotations

import pytest

from console.checks.tuning_fixes import SYSCTL, TMPFILES, profile_fix, sysctl_fix, sysfs_fix
from console.core.facts import FileFact
from tests.checks.told import ABSENT, DENIED, folder, told

NONE: dict[str, str | FileFact] = {SYSCTL: ABSENT, "/etc/sysctl.conf": ABSENT}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ABSENT, "vm.swappiness = 10\n"),
        ("# ours\nfs.file-max = 5\n", "# ours\nfs.file-max = 5\nvm.swappiness = 10\n"),
        ("vm.swappiness=60\nfs.file-max = 5\n", "fs.file-max = 5\nvm.swappiness = 10\n"),
        ("-vm/swappiness = 60", "vm.swappiness = 10\n"),
    ],
)
def test_sysctl_writes_the_whole_file(before: str | FileFact, after: str) -> None:
    fix = sysctl_fix(told(NONE | {SYSCTL: before}), "vm.swappiness", 10, "60")
    write, run = fix.deeds
    assert (fix.kind, write.kind, write.path, write.text) == ("P", "write", SYSCTL, after)
    assert run.argv == ("sysctl", "-p", SYSCTL)
    assert [deed.argv for deed in fix.back] == [("sysctl", "-w", "vm.swappiness=60")]
    assert fix.commands == (f"echo 'vm.swappiness = 10' | sudo tee -a {SYSCTL}", f"sudo sysctl -p {SYSCTL}")


@pytest.mark.parametrize("before", [DENIED, FileFact("file", "vm.x = 1\n", cut=True)])
def test_sysctl_writes_nothing_over_what_it_does_not_know_whole(before: FileFact) -> None:
    fix = sysctl_fix(told(NONE | {SYSCTL: before}), "vm.swappiness", 10, "60")
    assert (fix.deeds, fix.back) == ((), ())
    assert fix.commands


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"/etc/sysctl.conf": "vm.swappiness = 1\n"}, "/etc/sysctl.conf"),
        ({"/etc/sysctl.d/99-site.conf": "vm/swappiness=1\n"}, "/etc/sysctl.d/99-site.conf"),
        ({"/etc/sysctl.conf": DENIED, "/etc/sysctl.d/99-site.conf": "vm.swappiness=1\n"}, "/etc/sysctl.d/99-site.conf"),
    ],
)
def test_sysctl_is_only_shown_where_a_later_file_would_win(files: dict[str, str | FileFact], named: str) -> None:
    fix = sysctl_fix(told(NONE | files), "vm.swappiness", 10, "60")
    assert (fix.kind, fix.deeds) == ("S", ())
    assert fix.commands == ("sudo sysctl -w vm.swappiness=10", f"sudoedit {named}")


def test_sysctl_an_earlier_file_does_not_matter() -> None:
    fix = sysctl_fix(told(NONE | {"/etc/sysctl.d/10-site.conf": "vm.swappiness=1\n"}), "vm.swappiness", 10, "60")
    assert fix.kind == "P"


def test_sysfs_replaces_its_own_line_and_goes_back_to_what_was() -> None:
    before = "w /sys/a - - - - 1\nw /sys/b - - - - 2\n"
    fix = sysfs_fix(told({TMPFILES: before}), "/sys/a", "0", "7")
    assert fix.deeds[0].text == "w /sys/b - - - - 2\nw /sys/a - - - - 0\n"
    write, run = fix.back
    assert (write.path, write.text) == ("/run/gpuconsole-back.conf", "w /sys/a - - - - 7\n")
    assert run.argv == ("systemd-tmpfiles", "--create", "/run/gpuconsole-back.conf")


@pytest.mark.parametrize(
    ("files", "wanted", "back"),
    [
        ({"/usr/lib/tuned": folder("latency-performance")}, "latency-performance", "balanced"),
        ({"/usr/lib/tuned/profiles": folder("accelerator-performance")}, "accelerator-performance", "balanced"),
        ({"/usr/lib/tuned": folder("balanced")}, None, ""),
        ({"/usr/lib/tuned": DENIED}, None, ""),
    ],
)
def test_profile(files: dict[str, str | FileFact], wanted: str | None, back: str) -> None:
    base: dict[str, str | FileFact] = {
        "/etc/tuned/active_profile": "balanced\n",
        "/etc/tuned/profile_mode": "manual\n",
        "/usr/lib/tuned": ABSENT,
        "/usr/lib/tuned/profiles": ABSENT,
    }
    fix = profile_fix(told(base | files, answers={"@units": {}}))
    if wanted is None:
        assert fix is None
    else:
        assert fix is not None
        assert [deed.argv for deed in fix.deeds] == [("tuned-adm", "profile", wanted)]
        assert [deed.argv for deed in fix.back] == [("tuned-adm", "profile", back)]


def test_profile_names_are_words_before_they_become_arguments() -> None:
    base: dict[str, str | FileFact] = {
        "/etc/tuned/active_profile": "--verbose a;b ours\n",
        "/etc/tuned/profile_mode": "manual\n",
        "/usr/lib/tuned": folder("latency-performance"),
        "/usr/lib/tuned/profiles": ABSENT,
    }
    fix = profile_fix(told(base, answers={"@units": {}}))
    assert fix is not None
    assert fix.back[0].argv == ("tuned-adm", "profile", "ours")
