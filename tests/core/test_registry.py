"""Discovery by file: good ones are found, bad ones are told, nothing stops the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.core.registry import discover


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "found_by_file"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def test_modules_come_in_the_order_of_their_names(package: Path) -> None:
    (package / "b.py").write_text("VALUE = 2")
    (package / "a.py").write_text("VALUE = 1")
    found = discover(package.name)
    assert [(module.__name__, module.VALUE) for module in found.modules] == [
        ("found_by_file.a", 1),
        ("found_by_file.b", 2),
    ]
    assert found.failures == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:", "SyntaxError"),
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("raise ValueError", "ValueError"),
        ("assert False", "AssertionError"),
    ],
)
def test_a_file_that_fails_is_told_and_the_rest_is_loaded(package: Path, text: str, message: str) -> None:
    (package / "bad.py").write_text(text)
    (package / "good.py").write_text("VALUE = 1")
    found = discover(package.name)
    assert [module.__name__ for module in found.modules] == ["found_by_file.good"]
    assert [failure.module for failure in found.failures] == ["found_by_file.bad"]
    assert found.failures[0].message.startswith(message)
    assert "\n" not in found.failures[0].message


def test_private_files_and_sub_packages_are_not_entered(package: Path) -> None:
    (package / "_private.py").write_text("raise RuntimeError")
    (package / "below").mkdir()
    (package / "below" / "__init__.py").write_text("raise RuntimeError")
    assert discover(package.name) == type(discover(package.name))((), ())


def test_a_plain_module_holds_nothing() -> None:
    assert discover("console.core.registry").modules == ()


def test_a_package_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ImportError):
        discover("no_such_package_anywhere")
