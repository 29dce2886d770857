"""Actions are found by file; what is no use is told beside the good ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions import registry
from console.core.plan import WrongInput

GOOD = '''
from console.actions.base import Planner
class {cls}(Planner):
    """Does it."""
    NAME = "{name}"
    def plan(self, box, target, values): ...
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "acts_by_file"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "PACKAGES", [folder.name])
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def test_every_class_with_a_name_is_found_once(package: Path) -> None:
    (package / "b.py").write_text(GOOD.format(cls="One", name="b.one") + GOOD.format(cls="Two", name="a.two"))
    (package / "c.py").write_text("from acts_by_file.b import One")
    found = registry.find()
    assert list(found.by_name) == ["a.two", "b.one"]
    assert found.failures == ()
    assert found.get("a.two").help() == "Does it."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module_here", "ModuleNotFoundError"),
        ("from console.actions.base import Action\nclass A(Action):\n    'Help.'\n    NAME = 'x.y'", "A has no plan"),
        (GOOD.format(cls="A", name="good.one"), "good.one is the name of One too"),
        (GOOD.format(cls="A", name="x.y").replace('"""Does it."""', '""""""'), "A has no docstring"),
    ],
)
def test_a_file_that_is_no_use_is_told_and_stops_nothing(package: Path, text: str, words: str) -> None:
    (package / "a.py").write_text(GOOD.format(cls="One", name="good.one"))
    (package / "bad.py").write_text(text)
    found = registry.find()
    assert list(found.by_name) == ["good.one"]
    (failure,) = found.failures
    assert failure.module == "acts_by_file.bad"
    assert words in failure.message


def test_a_wrong_name_tells_the_nearest(package: Path) -> None:
    (package / "a.py").write_text(GOOD.format(cls="One", name="model.swap"))
    with pytest.raises(WrongInput, match=r"`model.swp` is no action; did you mean `model.swap`\?"):
        registry.find().get("model.swp")


def test_the_real_actions_are_all_good() -> None:
    found = registry.find()
    assert found.failures == ()
    assert {"undo", "interrupted.finish", "interrupted.undo", "interrupted.dismiss"} <= found.by_name.keys()
    for name, action in found.by_name.items():
        assert action.help().endswith("."), name
        assert len({field.name for field in action.FIELDS}) == len(action.FIELDS), name
