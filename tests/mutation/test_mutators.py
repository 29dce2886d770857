"""The mutants themselves: which changes are made, which are left, and that each is another program."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation.mutators import sites
from tests.mutation.targets import PER_MODULE

ROOT = Path(__file__).parents[2]


def mutants(source: str) -> list[str]:
    found = []
    for index in range(len(sites(ast.parse(source)))):
        tree = ast.parse(source)
        sites(tree)[index].apply()
        found.append(ast.unparse(ast.fix_missing_locations(tree)))
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b"]),
        ("a is b", ["a is not b"]),
        ("a < b <= c", ["a <= b <= c", "a < b < c"]),
        ("a + b", ["a - b"]),
        ("a // b", ["a % b"]),
        ("a and b", ["a or b"]),
        ("not a", ["a"]),
        ("-a", ["a"]),
        ("min(a)", ["max(a)"]),
        ("x = 1", ["x = 2"]),
        ("x = 1.5", ["x = 3.0"]),
        ("x = 0.0", ["x = 1.0"]),
        ("x = True", ["x = False"]),
        ("x = 'key'", ["x = 'XXkeyXX'"]),
        ("x = b'key'", ["x = b'XXkeyXX'"]),
        ("x = a if b else c", ["x = a if not b else c"]),
    ],
)
def test_changes_of_expressions(source: str, expected: list[str]) -> None:
    wanted = expected if source.startswith("x") else [*expected, "pass"]
    assert sorted(mutants(source)) == sorted(wanted)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a:\n    x = b", ["if not a:\n    x = b"]),
        ("while a:\n    break", ["while not a:\n    break", "while a:\n    continue"]),
        ("x += a", ["x -= a", "pass"]),
        ("x.y = a", ["pass"]),
        ("x[y] = a", ["pass"]),
        ("raise a", ["pass"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
    ],
)
def test_changes_of_statements(source: str, expected: list[str]) -> None:
    assert sorted(mutants(source)) == sorted(expected)


@pytest.mark.parametrize(
    "source",
    [
        "'''A docstring.'''",
        "x: 'int' = y",
        "def f(x: 'int') -> 'int':\n    return None",
        "@f('x')\ndef g():\n    '''Text.'''",
        "class A(B, frozen=True):\n    '''Text.'''",
        "T = TypeVar('T')",
        "__all__ = ['x']",
        "if TYPE_CHECKING:\n    x = 1",
        "x = 'a sentence for people'",
        "x = int | None",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert mutants(source) == []


def test_every_mutant_is_another_program_that_compiles() -> None:
    source = (ROOT / "console/core/packages.py").read_text(encoding="utf-8")
    original = ast.unparse(ast.parse(source))
    found = mutants(source)
    assert len(found) > 100
    for text in found:
        assert text != original
        compile(text, "mutant", "exec")


def test_every_target_is_there() -> None:
    for modules in PER_MODULE.values():
        for module, tests in modules.items():
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), module
            for name in tests:
                assert (ROOT / name).exists(), name
