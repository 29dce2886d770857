"""What every action must keep to, whoever wrote it: its help, its phases, and that nothing gets past read-only.

Its wrong values are tried in tests/test_do_wrong.py (by `do`) and tests/tui/test_form.py (in forms).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import console
from console.actions import audit, fix, registry, runner, unit
from console.actions.base import Action, Planner
from console.actions.box import READ_ONLY, Box
from console.core.plan import Plan, Refused, Target
from tests.actions.conftest import Stand

FOUND = registry.find()
ACTIONS = tuple(FOUND.by_name.values())
DOORS = {"podman", "systemd", "nvml_control", "triton_control", "triton_settings"}
CONTROLS = {"PodmanControl", "Systemd", "NvmlControl", "TritonControl", "TritonSettings"}
"""Clients that change something."""
KINDS = {"container", "model", "gpu", "image", "server", "unit", "change", "check", ""}


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the box was looked at or changed")


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may look at a box, let alone change it."""
    for name in ("podman_state", "index", "gpus", "repository", "address", "nvml_api", "facts"):
        monkeypatch.setattr(Box, name, _never)


# ------------------------------------------------------------------------------------------------------ help and fields


def test_all_files_are_of_use() -> None:
    assert FOUND.failures == ()
    assert len(ACTIONS) > 25


@pytest.mark.parametrize("action", ACTIONS, ids=lambda one: one.NAME)
def test_it_says_what_it_does(action: Action) -> None:
    assert action.help().endswith(".")
    assert action.TARGET in KINDS
    names = [field.name for field in action.FIELDS]
    assert len(set(names)) == len(names)
    for field in action.FIELDS:
        assert field.name.isidentifier()
        assert field.help
        assert bool(field.choices) == (field.kind == "choice"), field.name
        assert not (field.low is not None or field.high is not None) or field.kind == "int", field.name


# -------------------------------------------------------------------------------------------------------------- phases


@pytest.mark.parametrize("action", [one for one in ACTIONS if not isinstance(one, Planner)], ids=lambda one: one.NAME)
def test_its_phases_are_those_that_a_kill_can_hit(action: Action) -> None:
    """Read from the source of all that `run` can reach in console.actions."""
    if action.NAME == "container.shell":
        return  # done in the operator's terminal, by no runner
    assert set(_phases(type(action))) == set(action.PHASES)


def _phases(kind: type[Action]) -> Iterator[str]:
    seen: set[object] = set()
    waiting: list[tuple[object, type]] = [
        (vars(one)["run"], kind) for one in kind.__mro__ if one is not Action and "run" in vars(one)
    ]
    while waiting:
        found, owner = waiting.pop()
        if (found, owner) in seen:
            continue
        seen.add((found, owner))
        if isinstance(found, type):
            waiting += [(one, found) for one in vars(found).values() if isinstance(one, FunctionType)]
            continue
        assert isinstance(found, FunctionType)
        tree = ast.parse(textwrap.dedent(inspect.getsource(found)))
        yield from _named_in(tree)
        waiting += [(one, owner if _is_own(one, owner) else object) for one in _reached(tree, found, owner)]


def _is_own(found: object, owner: type) -> bool:
    return any(found is one for kind in owner.__mro__ for one in vars(kind).values())


def _named_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="phase"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def _reached(tree: ast.AST, function: FunctionType, owner: type) -> Iterator[object]:
    """Functions and classes of console.actions or console.tuning that a function names; methods that it calls on
    itself."""
    names: dict[str, object] = dict(function.__globals__)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("console.actions"):
            module = importlib.import_module(node.module)
            names |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        found: object = None
        if isinstance(node, ast.Name):
            found = names.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place = owner if node.value.id == "self" else names.get(node.value.id)
            found = getattr(place, node.attr, None) if isinstance(place, ModuleType) or place is owner else None
        is_ours = getattr(found, "__module__", "").startswith(("console.actions", "console.tuning"))
        if (
            is_ours
            and isinstance(found, FunctionType | type)
            and not (isinstance(found, type) and issubclass(found, Action))
        ):
            yield found


# ----------------------------------------------------------------------------------------------------------- read-only


@pytest.mark.parametrize("name", sorted(FOUND.by_name))
def test_it_is_not_planned_in_read_only_mode(name: str, stand: Stand, untouched: None) -> None:
    with pytest.raises(Refused, match="read-only"):
        runner.prepare(stand.box(read_only=True), name, "x", {})
    assert not stand.state.exists()


@pytest.mark.parametrize("name", sorted(one.NAME for one in ACTIONS if not isinstance(one, Planner)))
def test_its_plan_is_not_done_in_read_only_mode(name: str, stand: Stand, untouched: None) -> None:
    outcome, _ = stand.perform(Plan(name, Target("server", "x"), {}, "X", "Yes", "safe"), read_only=True)
    assert (outcome.word, outcome.text) == ("refused", READ_ONLY)
    assert not (stand.state / audit.NAME).exists()


@pytest.mark.parametrize("door", sorted(DOORS))
def test_no_door_opens_in_read_only_mode(door: str, stand: Stand, untouched: None) -> None:
    with pytest.raises(Refused, match="read-only"):
        getattr(stand.box(read_only=True), door)()


def test_who_makes_a_client_that_changes_asks_first() -> None:
    """Doors, and the few that need one for another container's Triton, stand in one function with `changing`."""
    makers = {f"{file.stem}.{name}": asks for file in _files() for name, asks in _makers(file)}
    assert {name for name, asks in makers.items() if not asks} == set()
    assert {name.removeprefix("box.") for name in makers if name.startswith("box.")} == DOORS


def _files() -> list[Path]:
    root = Path(console.__file__).parent
    return [
        file
        for part in ("actions", "tui", ".")
        for file in sorted((root / part).glob("**/*.py" if part != "." else "*.py"))
    ]


def _makers(file: Path) -> Iterator[tuple[str, bool]]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
        if any(isinstance(one, ast.Name) and one.id in CONTROLS for one in calls):
            yield node.name, any(isinstance(one, ast.Attribute) and one.attr == "changing" for one in calls)


def test_unit_files_are_not_even_put_back_in_read_only_mode(stand: Stand, untouched: None) -> None:
    plan = Plan("unit.write", Target("unit", "x.service"), {}, "X", "Yes", "safe")
    with pytest.raises(Refused, match="read-only"):
        unit.put_back(stand.box(read_only=True), plan, "kept", "")


def test_who_carries_out_or_takes_back_a_fix_asks_first() -> None:
    changing = {
        (node.name, any(isinstance(one, ast.Attribute) and one.attr == "changing" for one in calls))
        for node in ast.walk(ast.parse(Path(fix.__file__).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        for calls in [[one.func for one in ast.walk(node) if isinstance(one, ast.Call)]]
        if any(isinstance(one, ast.Attribute) and one.attr in ("do", "put_back", "keep") and _is(one) for one in calls)
    }
    assert changing == {("run", True), ("_applied", True), ("_put_back", True)}


def _is(call: ast.Attribute) -> bool:
    return isinstance(call.value, ast.Name) and call.value.id == "deeds"
