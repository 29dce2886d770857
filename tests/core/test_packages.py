"""Package logs of dnf, dpkg and rpm."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core import packages
from console.core.packages import Change

DNF = """2024-07-06T02:57:40+0800 INFO --- logging initialized ---
2024-07-06T02:57:40+0800 SUBDEBUG Upgrade: nvidia-driver-3:570.86.15-1.el8.x86_64
2024-07-06T02:57:41+0800 SUBDEBUG Upgrade: podman-4:4.9.4-18.module+el8.10.0+1.x86_64
2024-07-06T02:57:42+0800 SUBDEBUG Installed: kernel-core-4.18.0-553.27.1.el8_10.x86_64
2024-07-06T02:57:43+0800 SUBDEBUG Upgraded: podman-4:4.9.4-12.module+el8.10.0+1.x86_64
2024-07-06T02:57:44+0800 SUBDEBUG Upgraded: nvidia-driver-3:550.90.07-1.el8.x86_64
2024-07-06T02:57:44+0800 SUBDEBUG Upgraded: vim-8.0-1.el8.x86_64
2024-07-06T02:58:44+0800 SUBDEBUG Upgraded: runc-1.0-1.el8.x86_64
2024-07-07T02:57:44+0800 SUBDEBUG Erase: crun-1.0-1.el8.x86_64
2024-07-07T25:57:44+0800 SUBDEBUG Erase: crun-1.0-1.el8.x86_64
"""


def test_dnf() -> None:
    found = packages.from_dnf(DNF.splitlines())
    assert [(one.name, one.old, one.new) for one in found] == [
        ("nvidia-driver", "550.90.07-1.el8", "570.86.15-1.el8"),
        ("podman", "4.9.4-12.module+el8.10.0+1", "4.9.4-18.module+el8.10.0+1"),
        ("kernel-core", None, "4.18.0-553.27.1.el8_10"),
        ("crun", "1.0-1.el8", None),
    ]
    events = packages.events(found, "(rpm)")
    assert [event.sign for event in events] == ["warn", "note"]
    assert events[0].text.startswith("rpm: nvidia-driver 550.90.07-1.el8 → 570.86.15-1.el8, podman ")
    assert events[0].origin == "(rpm)"
    assert events[1].text == "rpm: crun 1.0-1.el8 removed"


def test_dpkg() -> None:
    text = """2026-11-30 10:35:01 startup archives unpack
2026-11-30 10:35:01 install podman:amd64 <none> 4.3.1
2026-11-30 10:35:02 upgrade linux-image-amd64:amd64 6.1.1 6.1.2
2026-11-30 10:35:02 status installed podman:amd64 4.3.1
2026-11-30 10:36:02 remove nvidia-driver:amd64 535.1 <none>
2026-11-30 10:36:03 install vim:amd64 <none> 9
2026-13-30 10:36:03 install runc:amd64 <none> 9
2026-11-30 12:36:03 install a-b:amd64 <none> 9"""
    found = packages.from_dpkg(text.splitlines())
    assert [(one.name, one.old, one.new) for one in found] == [
        ("podman", None, "4.3.1"),
        ("linux-image-amd64", "6.1.1", "6.1.2"),
        ("nvidia-driver", "535.1", None),
    ]
    assert found[0].wall == datetime(2026, 11, 30, 10, 35, 1).timestamp()


def test_rpm_last() -> None:
    text = """nvidia-driver-550.90.07-1.el8.x86_64          Sat Jul  6 02:57:40 2024
podman-4.9.4-12.x86_64                         Sat 06 Jul 2024 02:57:40 AM UTC
vim-9-1.x86_64                                 Sat Jul  6 02:57:40 2024
kernel-5.14.0-1.x86_64                         not a time
short"""
    found = packages.from_rpm_last(text.splitlines())
    assert [(one.name, one.new) for one in found] == [("nvidia-driver", "550.90.07-1.el8"), ("podman", "4.9.4-12")]
    assert found[0].wall == datetime(2024, 7, 6, 2, 57, 40).timestamp()


@pytest.mark.parametrize(
    ("name", "watched"),
    [
        ("nvidia-driver", True),
        ("kmod-nvidia-latest-dkms", True),
        ("libnvidia-container1", True),
        ("libnvidia-compute-550", True),
        ("kernel", True),
        ("kernel-core", True),
        ("kernel-headers", False),
        ("kernel-tools", False),
        ("podman", True),
        ("podman-docker", False),
        ("linux-image-6.1.0-21-amd64", True),
        ("nvidia-container-toolkit-base", True),
        ("systemd-libs", False),
        ("vim", False),
        ("nvidia-driver-doc", False),
        ("crun", True),
        ("dracut", False),
    ],
)
def test_names(name: str, watched: bool) -> None:
    assert packages.is_watched(name) is watched


def test_long_runs_are_cut_and_repeats_told_once() -> None:
    changes = [Change(1.0, f"nvidia-{n}", None, "1") for n in range(6)] + [Change(2.0, "nvidia-0", None, "1")]
    event = packages.events(changes, "(dpkg)")[0]
    assert event.text == "dpkg: nvidia-0 1 installed, nvidia-1 1 installed, nvidia-2 1 installed and 3 more"
    assert len(event.detail) == 6


@given(st.lists(st.text(max_size=150), max_size=8))
def test_any_lines_are_survived(lines: list[str]) -> None:
    for parse in (packages.from_dnf, packages.from_dpkg, packages.from_rpm_last):
        packages.events(parse(lines), "(x)")


@given(st.lists(st.tuples(st.floats(0, 1e5), st.sampled_from(["podman", "kernel"])), max_size=20))
def test_each_change_is_in_one_run(told: list[tuple[float, str]]) -> None:
    events = packages.events([Change(wall, name, None, str(n)) for n, (wall, name) in enumerate(told)], "(rpm)")
    assert sum(len(event.detail) for event in events) == len(told)
