"""Every public report of host.md section 4 and every seed case lands on its check, with the right cause on top."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct, convert

from console.checks.errors import diagnose
from console.core.finding import Report
from tests.checks import tree
from tests.checks.report_boxes import BOXES

ROOT = Path(__file__).parents[2]
HOST = Path("/work/shared/domain/host.md")


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of REPORTS.toml."""

    number: str
    report: str
    case: str
    check: str
    sign: str = ""
    also: tuple[str, ...] = ()


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """All of REPORTS.toml."""

    texts: dict[str, str]
    reports: tuple[Row, ...]


TABLE = convert(tomllib.loads(Path(__file__).with_name("REPORTS.toml").read_text("utf-8")), Table)


def of(*names: object) -> list[Row]:
    """Rows of these cases, each case and check once."""
    found = {(row.case, row.check): row for row in TABLE.reports if row.case in names}
    return list(found.values())


@cache
def judged(case: str) -> Report:
    """What the checks say of the box of a case."""
    on, change = BOXES[case]
    box = tree.tree(on)
    change(box)
    return tree.judge(box)


@pytest.mark.parametrize("row", of(*BOXES), ids=lambda row: row.case)
def test_the_box_of_a_report_has_its_cause_on_top(row: Row) -> None:
    report = judged(row.case)
    finding = report.finding(row.check)
    assert finding is not None
    assert finding.sign in ((row.sign,) if row.sign else ("fail", "warn")), finding
    if row.sign:
        return
    first = report.causes[0]
    assert first.id == row.check, [(one.id, one.title, one.consequences) for one in report.causes[:4]]
    assert set(row.also) <= {first.id, *first.consequences}


@pytest.mark.parametrize("row", of(*TABLE.texts), ids=lambda row: row.case)
def test_the_text_of_a_report_leads_to_its_check(row: Row) -> None:
    first = diagnose(TABLE.texts[row.case])[0]
    assert first.checks[0] == row.check
    assert set(row.also) <= set(first.checks)


def test_combined_faults_are_mended_from_the_ground_up() -> None:
    order = [step.id for step in judged("stale-spec-boolean-and-label").causes[0].order]
    assert [one for one in order if one in ("B07", "C03", "C07", "E01")][:3] == ["B07", "C03", "C07"]


def test_every_case_has_a_row_and_every_row_a_case() -> None:
    cases = {row.case for row in TABLE.reports}
    assert {*BOXES, *TABLE.texts} <= cases
    for case in cases - {*BOXES, *TABLE.texts}:
        path, _, name = case.partition("::")
        tests = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        assert name in tests, case


def test_every_report_of_the_specification_has_a_row() -> None:
    if not HOST.exists():
        pytest.skip("the specification is not on this machine")
    section = HOST.read_text("utf-8").partition("## 4. ")[2].partition("## 5. ")[0]
    numbers = set(re.findall(r"^\| (\d+[a-z]?) \|", section, re.MULTILINE))
    assert len(numbers) > 45
    assert numbers == {row.number for row in TABLE.reports if row.number}
