"""Which version served before, by the audit, and what is said where it does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from console.actions import audit, model_look
from console.actions.box import Box
from console.actions.model_back import Back
from console.core.plan import AuditRecord, Check, Operator, Outcome, Plan, Target, WrongInput
from tests.actions.model_boxes import fake_box
from tests.fakes.model_server import ModelServer, model_server

OPS = Operator("root", 0, 1000, "ops", "192.0.2.7")
WALL = 1_793_456_400.0


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.01)
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1, 2, 3, 4), "version_policy { specific { versions: [ 3 ] } }")
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


def changed(box: Box, number: int, was: str, left: str, word: str = "done", action: str = "model.swap") -> None:
    """Write both lines of a change of `m` that found and left these READY versions."""
    target = Target("model", "m", {"ready": was})
    made: Mapping[str, Outcome | None] = {
        "intent": None,
        "outcome": Outcome(word, "", left={"ready": left}),  # type: ignore[arg-type]
    }
    for kind, outcome in made.items():
        audit.write(
            box.state,
            AuditRecord(
                id=f"20261130-2000{number:02d}-000000",
                kind=kind,  # type: ignore[arg-type]
                wall=WALL + number,
                operator=OPS,
                host="infer-01",
                action=action,
                target=target,
                title="",
                values={},
                outcome=outcome,
            ),
        )


def back(box: Box, **values: str) -> tuple[str, Check]:
    plan: Plan = Back().plan(box, "m", Back.checked(values))
    assert plan.action == "model.swap"
    assert not plan.refused
    return plan.values["version"], plan.checks[0]


def test_what_the_last_swap_found(box: Box) -> None:
    changed(box, 1, "2", "4")
    changed(box, 2, "4", "1")
    changed(box, 3, "1", "3")
    version, check = back(box)
    assert (version, check.sign) == ("1", "ok")
    assert check.text.startswith("1 served before 3: model.swap of ")
    assert check.text.endswith(" by ops@192.0.2.7")


def test_what_was_taken_back_did_not_serve(box: Box) -> None:
    changed(box, 1, "1", "3")
    changed(box, 2, "3", "3", "undone")
    changed(box, 3, "3", "4", "failed")
    changed(box, 4, "3", "3", action="golden.keep")
    assert back(box)[0] == "1"


def test_an_unload_in_between(box: Box) -> None:
    changed(box, 1, "4", "", action="model.unload")
    changed(box, 2, "", "3", action="model.load")
    assert back(box)[0] == "4"


def test_a_version_that_somebody_else_brought_in(box: Box) -> None:
    changed(box, 1, "1", "2")
    assert back(box)[0] == "2"


def test_the_next_smaller_where_the_audit_tells_nothing(box: Box) -> None:
    version, check = back(box)
    assert (version, check.sign) == ("2", "warn")
    assert check.text == "the audit tells of no change of version: 2 is the next smaller on disk"


def test_one_that_is_no_longer_on_disk(box: Box) -> None:
    changed(box, 1, "9", "3")
    version, check = back(box)
    assert (version, check.sign) == ("2", "warn")
    assert check.text.startswith("9 served before (model.swap of ")
    assert check.text.endswith("), but it is no longer on disk: 2 is the next smaller on disk")


def test_no_version_at_all(server: ModelServer, box: Box) -> None:
    server.ready["m"] = (1,)
    with pytest.raises(WrongInput) as error:
        Back().plan(box, "m", {})
    assert "no smaller one is there (on disk: 1, 2, 3, 4); model.swap takes version=N" in str(error.value)


def test_a_way_is_kept(box: Box) -> None:
    changed(box, 1, "1", "3")
    assert Back().plan(box, "m", Back.checked({"way": "gap"})).way == "gap"


def test_a_model_that_does_not_serve(server: ModelServer, box: Box) -> None:
    server.unload("m")
    assert "nothing to swap" in Back().plan(box, "m", {}).refused
