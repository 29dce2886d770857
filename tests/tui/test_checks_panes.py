"""The Checks screen's panes over drawn reports: what is open, what is on top, what a fix says about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.core.model import Failure, Reading
from console.tui.panes.check_details import CheckDetails
from console.tui.panes.checks_cause import ChecksCause, height
from console.tui.panes.checks_list import ChecksList
from console.tui.panes.problems import ProblemsPane
from console.tui.screens.checks import ChecksScreen
from tests.fakes.boxes import drawn_box, good, nothing_serves_box
from tests.fakes.drawn import MONO
from tests.fakes.report import GENERATE, down_report, serving_report
from tests.tui.pure import lines_of, overfull, text_of, view_of
from tests.tui.stage import SIZES, on_stage, settled
from tests.tui.stage import text_of as screen_of


def listed(width: int = 116) -> tuple[ChecksList, str]:
    pane, view = ChecksList(), view_of(nothing_serves_box(), width)
    return pane, text_of(pane, view)


def test_only_what_is_wrong_is_open() -> None:
    _, text = listed()
    rows = text.splitlines()
    assert rows[0].split() == ["GROUP", "/", "CHECK", "EVIDENCE", "FIX"]
    assert "▸ Kernel and driver" in text
    assert "▾ Container runtime, CDI" in text
    assert "Z00" not in text
    stale = next(row for row in rows if "B07" in row)
    assert stale.strip().startswith("✗ B07 spec is not stale")
    assert "31 of 44 files are not there" in stale
    assert stale.endswith(" f")
    ended = next(row for row in rows if "E01" in row)
    assert ended.endswith("from B07")
    selinux = next(row for row in rows if "SELinux" in row)
    assert "●1 ▲0 ✗0 ?1 –0" in selinux
    assert "? the audit log may not be read" in selinux


def test_all_and_filter() -> None:
    pane, view = ChecksList(), view_of(nothing_serves_box())
    pane.next_view()
    assert "Z00" in text_of(pane, view)
    pane.next_view()
    pane.filter = "ausearch"
    assert "C08" not in text_of(pane, view)
    pane.filter = "denials"
    assert "C08" in text_of(pane, view)
    assert "B07" not in text_of(pane, view)
    assert "Host tuning" not in text_of(pane, view), "a group without a match is left out"


def test_fold_and_yank() -> None:
    pane, view = ChecksList(), view_of(nothing_serves_box())
    pane.view = view
    pane.cursor = ("check", "B07")
    assert pane.yank() == GENERATE
    assert pane.mark()
    assert pane.folded == {"cdi": True}
    assert "B07 spec" not in text_of(pane, view)
    pane.cursor = ("group", "selinux")
    pane.mark()
    assert "C08" in text_of(pane, view), "what cannot be told is listed in a group that was opened"
    pane.cursor = ("check", "C08")
    assert pane.yank() == "sudo ausearch -m avc -ts recent"


def test_the_cause_stands_on_top() -> None:
    pane, view = ChecksCause(), view_of(nothing_serves_box())
    lines = lines_of(pane, view)
    assert lines[0].startswith("✗ the container cannot start: its CDI spec is older than the driver")
    assert lines[0].endswith("sure, 3 of 3 signs")
    text = " ".join(lines)
    assert "1 B07 names libraries of 550.90.07   2 A06 loaded driver is 570.86.15" in text
    assert "order of mending   1 B07 write the spec   2 the unit starts by itself" in text
    assert lines[-1] == "▲ E11 every stop of the container is a kill"
    assert len(lines) <= height(down_report(), 116, 20)


@pytest.mark.parametrize("width", [76, 96, 116, 156])
def test_nothing_is_wider_than_its_pane(width: int) -> None:
    view = view_of(nothing_serves_box(), width)
    details = CheckDetails()
    details.check = "B07"
    for pane in (ChecksCause(), ChecksList(), details):
        assert overfull(pane, view) == []


def test_details_hold_all_that_is_asked_for() -> None:
    details, view = CheckDetails(), view_of(nothing_serves_box())
    details.check, details.why_off = "B07", "read-only"
    text = text_of(details, view)
    for told in (
        "/etc/cdi/nvidia.yaml:118: hostPath: /usr/lib64/libEGL_nvidia.so.550.90.07",
        "WHY IT MATTERS  Podman mounts every file",
        f"FIX  y copies   {GENERATE}",
        "class B, takes effect now",
        "UNDO            the old file is kept",
        "this check is run again, and E01, E03",
        "f IS OFF        read-only",
        "SOURCE          NVIDIA CDI guide",
    ):
        assert told in text
    details.check = "E01"
    assert "FOLLOWS FROM    B07: the container cannot start" in text_of(details, view)
    details.check = None
    assert "no check is chosen" in text_of(details, view)


def test_before_the_first_run_and_after_a_failed_one() -> None:
    view = view_of(drawn_box(checks=Reading("checks", 300.0)))
    assert "not read yet" in text_of(ChecksCause(), view)
    assert "not read yet" in text_of(ChecksList(), view)
    failed: Reading[Any] = Reading("checks", 300.0, error=Failure("bug", "the helper ended"), error_mono=MONO)
    assert "the helper ended" in text_of(ChecksCause(), view_of(drawn_box(checks=failed)))


def test_problems_lists_roots_apart() -> None:
    text = text_of(ProblemsPane(), view_of(nothing_serves_box()))
    assert "from Checks, not counted in the header:" in text
    assert "B07 spec is not stale" in text
    assert "E01 " not in text.partition("from Checks")[2], "what follows from a cause is not told again"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(nothing_serves_box(), tmp_path, monkeypatch, size, "checks") as (app, pilot):
        assert isinstance(app.box, ChecksScreen)
        await settled(app, pilot)
        text = screen_of(app)
        assert "[6 Checks ✗2" in text
        assert "the container cannot start" in text
        assert app.box.listed.cursor == ("check", "B07"), "the cursor stands on the cause"
        assert "31 of 44" in text
        await pilot.press("enter")
        await settled(app, pilot)
        assert "WHY IT MATTERS" in screen_of(app)
        await pilot.press("escape")
        await pilot.press("v")
        await settled(app, pilot)
        assert "as it should be" in screen_of(app)
        await pilot.press("e")
        await settled(app, pilot)
        assert "from Checks, not counted" in screen_of(app)


async def test_problems_leads_to_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = drawn_box(checks=good("checks", serving_report()))
    async with on_stage(box, tmp_path, monkeypatch, (120, 40), "problems") as (app, pilot):
        await pilot.press("end", "enter")
        await settled(app, pilot)
        assert app.box.NAME == "checks"
        await settled(app, pilot)
        assert isinstance(app.box, ChecksScreen)
        one = app.box.chosen()
        assert one is not None
        assert one.sign == "warn"
