"""Which tests run beside which: the kinds of files, and what one worker gets at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import sharing

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("lab/test_lab.py", "alone"),
        ("advisors/test_on_the_lab.py", "alone"),
        ("actions/test_tracing.py", "shared"),
        ("actions/test_recreate.py", "own"),
        ("core/test_text.py", ""),
    ],
)
def test_the_kind_of_a_file(file: str, kind: str) -> None:
    assert sharing._kind(TESTS / file) == kind


def test_who_has_the_lab_alone_has_no_container_that_raising_it_afresh_would_end() -> None:
    alone = [file for file in TESTS.rglob("test_*.py") if sharing._kind(file) == "alone"]
    assert alone
    assert not [file for file in alone if "own_triton" in file.read_text()]


def test_what_goes_to_one_worker(pytestconfig: pytest.Config) -> None:
    class Sharing(sharing._Sharing):
        def __init__(self) -> None:
            self.config = pytestconfig

    split = Sharing()._split_scope
    assert split("tests/lab/test_lab.py::test_a") == split("tests/system/test_rates_lab.py::test_b[x::y]")
    assert split("tests/core/test_text.py::test_a[1]") == split("tests/core/test_text.py::test_b")
    assert split("tests/actions/test_tracing.py::test_a") == split("tests/actions/test_tracing.py::test_b")
    assert split("tests/actions/test_recreate.py::test_a") != split("tests/actions/test_recreate.py::test_b")
