"""Each word of the package logs, the edges of a run, and what an event says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core import packages
from console.core.model import Event, Sign
from console.core.packages import SAME_RUN, Change

AT = datetime(2024, 7, 6, 2, 57, 40).timestamp()


@pytest.mark.parametrize(
    ("what", "old", "new", "change"),
    [
        ("install", "<none>", "2", (None, "2")),
        ("install", "1", "2", ("1", "2")),
        ("upgrade", "1", "2", ("1", "2")),
        ("remove", "1", "<none>", ("1", None)),
        ("remove", "1", "1", ("1", None)),
        ("purge", "1", "1", ("1", None)),
    ],
)
def test_dpkg(what: str, old: str, new: str, change: tuple[str | None, str | None]) -> None:
    [found] = packages.from_dpkg([f"2024-07-06 02:57:40 {what} podman:amd64 {old} {new}"])
    assert found == Change(AT, "podman", *change)


@pytest.mark.parametrize(
    "line", ["2024-07-06 02:57:40 configure podman:amd64 1 2", "x", "2024-07-06 02:57:40 install podman"]
)
def test_dpkg_lines_that_change_nothing(line: str) -> None:
    good = "2024-07-06 02:57:40 upgrade podman 1 2"
    assert len(packages.from_dpkg([line, good])) == 1


@pytest.mark.parametrize("what", ["Erase", "Erased", "Removed"])
def test_dnf_removes(what: str) -> None:
    [found] = packages.from_dnf([f"2024-07-06T02:57:40Z SUBDEBUG {what}: podman-4:1-2.el8.x86_64"])
    assert (found.name, found.old, found.new) == ("podman", "1-2.el8", None)


@pytest.mark.parametrize("what", ["Installed", "Install", "Upgrade", "Downgrade"])
def test_dnf_puts(what: str) -> None:
    [found] = packages.from_dnf([f"2024-07-06T02:57:40Z SUBDEBUG {what}: podman-1-2.el8.x86_64"])
    assert (found.wall, found.name, found.old, found.new) == (1720234660.0, "podman", None, "1-2.el8")


def dnf(*lines: tuple[int, str, str]) -> list[tuple[str, str | None, str | None]]:
    text = [
        f"{datetime.fromtimestamp(AT + second, UTC):%Y-%m-%dT%H:%M:%SZ} SUBDEBUG {what}: {nevra}.x86_64"
        for second, what, nevra in lines
    ]
    return [(one.name, one.old, one.new) for one in packages.from_dnf(text)]


@pytest.mark.parametrize("what", ["Upgraded", "Downgraded"])
def test_the_old_version_goes_to_the_newest_change_of_its_package_in_the_same_run(what: str) -> None:
    assert dnf((0, "Upgrade", "podman-2-1"), (1, "Upgrade", "runc-5-1"), (2, what, "podman-1-1")) == [
        ("podman", "1-1", "2-1"), ("runc", None, "5-1"),
    ]  # fmt: skip
    twice = dnf((0, "Upgrade", "podman-2-1"), (1, "Upgrade", "podman-3-1"), (2, what, "podman-1-1"))
    assert twice == [("podman", None, "2-1"), ("podman", "1-1", "3-1")]
    both = dnf((0, "Upgrade", "podman-2-1"), (1, what, "podman-1-1"), (2, what, "podman-0-1"))
    assert both == [("podman", "1-1", "2-1")]
    assert dnf((0, what, "podman-1-1")) == []


def test_an_old_version_of_another_run_is_not_taken() -> None:
    near = int(SAME_RUN)
    assert near == 180
    assert dnf((0, "Upgrade", "podman-2-1"), (near, "Upgraded", "podman-1-1"))[0][1] == "1-1"
    assert dnf((0, "Upgrade", "podman-2-1"), (near + 1, "Upgraded", "podman-1-1"))[0][1] is None


def test_rpm_lines_that_cannot_be_read_do_not_end_the_list() -> None:
    good = "podman-4.9-1.x86_64   Sat Jul  6 02:57:40 2024"
    for bad in ("short", "vim-9-1.x86_64   Sat Jul  6 02:57:40 2024", "podman-4.9-1.x86_64   no time", "odd   x y"):
        assert [one.name for one in packages.from_rpm_last([bad, good])] == ["podman"]
    assert packages.from_rpm_last([good]) == [Change(AT, "podman", None, "4.9-1")]


@pytest.mark.parametrize(
    "text",
    ["Sat Jul  6 02:57:40 2024", "Sat 06 Jul 2024 02:57:40 AM UTC", "Sat 06 Jul 2024 02:57:40 UTC"],
)
def test_times_as_rpm_prints_them(text: str) -> None:
    assert packages.from_rpm_last([f"runc-1-1.noarch  {text}"])[0].wall == AT


@pytest.mark.parametrize(
    ("name", "sign"),
    [
        ("nvidia-driver", "warn"),
        ("libnvidia-compute-550", "warn"),
        ("cuda-drivers-550", "warn"),
        ("podman", "note"),
        ("kernel", "note"),
    ],
)
def test_drivers_are_marked(name: str, sign: Sign) -> None:
    [event] = packages.events([Change(5.0, name, "1", "2")], "(rpm)")
    assert event == Event(5.0, sign, f"rpm: {name} 1 → 2", "(rpm)", "packages", detail=(f"{name} 1 → 2",))


def test_words_and_runs() -> None:
    changes = [
        Change(2 * SAME_RUN + 1, "runc", "1", None),
        Change(0.0, "podman", None, "1"),
        Change(SAME_RUN, "crun", None, None),
    ]
    assert [(event.wall, event.text) for event in packages.events(changes, "(dpkg)")] == [
        (0.0, "dpkg: podman 1 installed, crun  removed"),
        (2 * SAME_RUN + 1, "dpkg: runc 1 removed"),
    ]
    three = [Change(1.0, name, "1", "2") for name in ("a", "b", "c")]
    assert packages.events(three, "(x)")[0].text == "x: a 1 → 2, b 1 → 2, c 1 → 2"
    assert packages.events([*three, Change(1.0, "d", "1", "2")], "(x)")[0].text.endswith("and 1 more")
    [long] = packages.events([Change(1.0, "n" * 200, None, "1")], "(x)")
    assert len(long.detail[0]) < 140


versions = st.from_regex(r"[0-9][0-9a-z.+~]{0,8}", fullmatch=True)


@given(st.sampled_from(["podman", "nvidia-driver", "kernel-core", "libnvidia-container1"]), versions, versions)
def test_dpkg_there_and_back(name: str, old: str, new: str) -> None:
    assert packages.from_dpkg([f"2024-07-06 02:57:40 upgrade {name}:amd64 {old} {new}"]) == [Change(AT, name, old, new)]


@given(st.sampled_from(["podman", "nvidia-driver", "kernel-core"]), versions, versions, st.integers(0, 9))
def test_dnf_there_and_back(name: str, version: str, release: str, epoch: int) -> None:
    line = f"2024-07-06T02:57:40Z SUBDEBUG Installed: {name}-{epoch}:{version}-{release}.x86_64"
    [found] = packages.from_dnf([line])
    assert (found.name, found.new) == (name, f"{version}-{release}")
