"""Code and table say the same: ids, order, docstrings, sentences, keys."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from console.advisors import why
from console.advisors.rule import rules_of
from console.advisors.table import parse, table
from console.core.registry import discover
from console.simulator.scenes import SCENES

TABLE_IDS = [f"V{number:02d}" for number in range(1, 41)] + ["V30b"]
EXISTING_KEYS = ("", "1", "2", "3", "5", "6", "7", "8", "a", "l", "e", "w", "t")
FOUND = discover("console.advisors")
RULES = rules_of(FOUND.modules)
SOURCE = Path(why.__file__).parent


def test_every_file_is_found_and_loads() -> None:
    assert FOUND.failures == ()
    names = {module.__name__.rsplit(".", 1)[-1] for module in FOUND.modules}
    assert {"gpu", "server", "flow", "config", "blind"} <= names


def test_every_verdict_of_the_table_has_exactly_one_rule() -> None:
    """Parts that wait for later issues say so in `waits`; no verdict waits as a whole."""
    assert sorted(TABLE_IDS) == sorted(one.id for one in RULES)
    assert sorted(TABLE_IDS) == sorted(table().entries)


def test_flow_rules_are_those_of_the_order() -> None:
    assert {one.id for one in RULES if one.flow} == set(table().evaluation.flow_order)
    order = "V15 V34 V12 V17 V18 V19 V20 V21 V25 V26 V22 V23 V27 V31 V24 V32"
    assert " ".join(table().evaluation.flow_order) == order


@pytest.mark.parametrize("one", RULES, ids=lambda one: one.id)
def test_rules_tell_what_they_look_for(one: object) -> None:
    function = getattr(one, "look", None) or getattr(one, "flow", None)
    assert function is not None
    assert function.__doc__


@pytest.mark.parametrize("id_", sorted(table().entries))
def test_lines_of_the_table_are_whole(id_: str) -> None:
    entry = table().entries[id_]
    assert entry.rule
    assert entry.means
    assert entry.does_not
    assert entry.next in EXISTING_KEYS
    assert entry.trust in ("sure", "likely", "cannot tell")
    assert entry.subject in ("model", "gpu", "container", "server", "box")
    assert id_ not in table().evaluation.flow_order or id_ == "V32" or entry.short
    for sentence in entry.says.values():
        assert all(name is None or name.isidentifier() for _, name, _, _ in string.Formatter().parse(sentence))


def test_every_sentence_is_used_and_every_used_one_is_there() -> None:
    """A sentence that no rule says is dead text; computed names are listed here."""
    code = "\n".join(path.read_text() for path in SOURCE.glob("*.py"))
    used = set(re.findall(r'"([A-Za-z_]+)"', code))
    computed = {"BACKEND", "REJECTED", "CANCELED", "OTHER", "hangs_loading", "hangs_unloading"}
    for id_, entry in table().entries.items():
        for name in entry.says:
            base = name.removesuffix("_line")
            assert name in used | computed or base in used | computed, f"{id_}.{name}"


def test_folds_name_verdicts() -> None:
    for fold in table().folds:
        assert set(fold.causes) | set(fold.of) <= set(TABLE_IDS)
        assert not set(fold.causes) & set(fold.of)
    assert set(table().evaluation.at_once) <= set(TABLE_IDS)


def test_scenes_of_the_simulated_box_name_verdicts() -> None:
    assert {scene.verdict for scene in SCENES.values() if scene.verdict.startswith("V")} <= set(TABLE_IDS)


@pytest.mark.parametrize(
    "text",
    [
        "[evaluation]\nappear_after = 2",
        "[V01]\nsign = 'fail'",
        "not toml",
    ],
)
def test_a_bad_table_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse(text)
