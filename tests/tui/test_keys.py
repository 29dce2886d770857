"""Commands against the key tables of the design, both ways: a table's key that does nothing, a key no table has."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import console.tui.export_acts
import console.tui.form_acts
import console.tui.jumps
import console.tui.load_acts
import console.tui.shell_act  # noqa: F401  (all register their commands)
from console.tui import commands
from console.tui.commands import COMMANDS, EVERYWHERE, Command
from console.tui.screens import SCREENS

TABLE = tomllib.loads((Path(__file__).parent.parent / "data" / "keys.toml").read_text(encoding="utf-8"))
SCOPES = [name for name in TABLE if name != "later"]

for _entry in SCREENS:
    _entry.load()


def _keys_of(scope: str, kind: str) -> set[str]:
    return {commands.shown(key) for one in commands.in_scope(scope) if kind == one.KIND for key in one.KEYS}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", ["look", "safe", "form", "plan"])
def test_commands_and_table_agree(scope: str, kind: str) -> None:
    assert _keys_of(scope, kind) == set(TABLE[scope].get(kind, []))


def test_every_scope_is_in_the_table() -> None:
    assert {one.SCOPE for one in COMMANDS.values()} <= set(SCOPES)


def test_no_key_of_a_later_issue_is_used() -> None:
    for scope, keys in TABLE["later"].items():
        used = {commands.shown(key) for one in commands.in_scope(scope) for key in one.KEYS}
        assert not used & set(keys)


def test_no_key_twice_in_a_scope() -> None:
    for scope in SCOPES:
        keys = [key for one in commands.in_scope(scope) for key in one.KEYS]
        assert len(keys) == len(set(keys)), scope


def test_no_screen_shadows_a_global_key() -> None:
    everywhere = {key for one in commands.in_scope(EVERYWHERE) for key in one.KEYS}
    for scope in SCOPES:
        if scope != EVERYWHERE:
            assert not everywhere & {key for one in commands.in_scope(scope) for key in one.KEYS}, scope


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.ID)
def test_command_is_documented_and_complete(command: type[Command]) -> None:
    assert command.help().endswith(".")
    assert command.KEYS
    assert command.LABEL
    assert command.SCOPE == EVERYWHERE or command.SCOPE in {one.name for one in SCREENS}


def test_scopes_are_screens_and_digits_are_unique() -> None:
    digits = [one.digit for one in SCREENS if one.digit]
    assert digits == sorted(set(digits))
    for one in SCREENS:
        assert one.name == one.load().NAME


def test_bindings_are_made_from_the_commands() -> None:
    made = {binding.key: binding.action for binding in commands.bindings(EVERYWHERE)}
    assert made["j"] == "app.command('move.down')"
    assert made["question_mark"] == "app.command('help')"


def test_two_commands_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two commands"):
        type("Again", (Command,), {"ID": "help"})
