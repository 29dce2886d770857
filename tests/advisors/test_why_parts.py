"""Parts of the whole: few requests of many models, what tells two verdicts apart, folding by model, step and box."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.advisors import why
from console.advisors.table import Fold, table
from console.advisors.why import Why, _is_cause, _key, fold, ordered
from console.core.history import History
from console.core.model import EnsembleStep, Verdict
from tests.advisors.cases import config, ids, later, once, row, snapshot, window

LISTED = table().evaluation.listed
FEW = window(rate=0.1)


def test_few_requests_are_told_by_model_up_to_some_and_then_together() -> None:
    def told(count: int) -> tuple[Verdict, ...]:
        return once(snapshot(*(row(FEW, config(), name=f"m{number}") for number in range(count))))

    assert ids(told(LISTED)) == ["V34"] * LISTED
    assert {one.model for one in told(LISTED)} == {f"m{number}" for number in range(LISTED)}
    [many] = told(LISTED + 1)
    assert (many.id, many.model, many.subject, many.source) == ("V34", None, "server", "/v2/models/stats")
    names = ", ".join(f"m{number}" for number in range(LISTED))
    assert many.title == table().entries["V34"].say("many", n=LISTED + 1, names=f"{names} …")


def a(id_: str, model: str | None = "m", **other: Any) -> Verdict:
    return Verdict(**{"id": id_, "sign": "warn", "title": f"title of {id_} {model}", "model": model, **other})


def test_what_tells_two_verdicts_apart() -> None:
    assert _key(a("V12")) == _key(a("V12", title="other figures")) == ("V12", "m", "")
    assert _key(a("V12")) != _key(a("V12", version="2"))
    assert _key(a("V01", None, subject="s")) == ("V01", None, "s")
    for id_ in ("V05", "V06", "V07", "V08", "V09"):
        assert _key(a(id_, None, title="one two three four five")) == (id_, None, "one two three four")
    assert _key(a("V39", "m", title="one two three four five")) == ("V39", "m", "one two three four")


def test_the_same_verdict_told_twice_is_one_and_the_first_counts() -> None:
    why = Why(hold=False)
    box = snapshot(row(FEW, config()))
    twice = replace(box, models=(*box.models, *box.models))
    assert len(why.evaluate(twice, History())) == 1
    held = Why()
    held.evaluate(twice, History())
    assert len(held.evaluate(later(twice, 5), History())) == 1


def test_a_verdict_that_flickered_begins_anew() -> None:
    box, calm = snapshot(row(FEW, config())), snapshot()
    why = Why()
    seen = [ids(why.evaluate(later(one, 5.0 * at), History())) for at, one in enumerate((box, calm, box, box))]
    assert seen == [[], [], [], ["V34"]]


STEPS = {"e": {"m"}}


@pytest.mark.parametrize(
    ("same", "cause", "one", "says"),
    [
        ("box", a("V01", None), a("V12"), True),
        ("model", a("V01"), a("V12"), True),
        ("model", a("V01", "n"), a("V12"), False),
        ("model", a("V01", None), a("V12", None), False),
        ("step", a("V01"), a("V12", "e"), True),
        ("step", a("V01", "n"), a("V12", "e"), False),
        ("step", a("V01"), a("V12", None), False),
        ("step", a("V01"), a("V12", "f"), False),
    ],
)
def test_what_is_a_cause(same: Any, cause: Verdict, one: Verdict, says: bool) -> None:
    folds = (Fold(("V99",), ("V98",), "box"), Fold(("V01",), ("V12",), same))
    assert _is_cause(cause, one, folds, STEPS) is says
    assert not _is_cause(one, cause, folds, STEPS)
    assert not _is_cause(replace(cause, id="V02"), one, folds, STEPS)


def test_folding_keeps_what_a_cause_already_had_and_the_order() -> None:
    cause, one, other = a("V01", None, consequences=("known",)), a("V12"), a("V12", "n")
    [kept] = fold([one, cause, other], (Fold(("V01",), ("V12",), "box"),), ())
    assert kept.consequences == ("known", one.title, other.title)
    assert fold([one, other], (), ()) == [one, other]


def test_only_what_a_rule_names_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counting(*arguments: Any) -> bool:
        nonlocal compared
        compared += 1
        return _is_cause(*arguments)

    monkeypatch.setattr(why, "_is_cause", counting)
    many = [a("V31", f"m{number}") for number in range(100)]
    [*rest, kept] = fold([*many, a("V12"), a("V13")], table().folds, ())
    assert (rest, kept.id, compared) == (many, "V13", 1)


def test_a_step_is_looked_up_in_the_models_that_have_some() -> None:
    rows = (
        row(None, None, name="x"),
        row(None, config("m"), name="m"),
        row(None, config("e", steps=(EnsembleStep("m", "-1"),)), name="e"),
    )
    found = fold([a("V01"), a("V12", "e")], (Fold(("V01",), ("V12",), "step"),), rows)
    assert [one.id for one in found] == ["V01"]


verdicts = st.builds(
    a, st.sampled_from(["V01", "V12", "V13"]), st.sampled_from([None, "m", "n"]), sign=st.sampled_from(["fail", "note"])
)
folds = st.builds(
    Fold,
    st.sampled_from([("V01",), ("V12", "V13")]),
    st.sampled_from([("V12",), ("V01", "V13")]),
    st.sampled_from(["box", "model", "step"]),
)


@given(st.lists(verdicts, max_size=6), st.lists(folds, max_size=3))
def test_any_folds_lose_no_verdict(found: list[Verdict], rules: list[Fold]) -> None:
    kept = fold(found, rules, ())
    assert sum(1 + len(one.consequences) for one in kept) == len(found)
    assert len(ordered(kept)) == len(kept)


def test_a_circle_beside_the_way_ends_too() -> None:
    folds = (Fold(("V01",), ("V12",), "box"), Fold(("V12",), ("V01",), "box"), Fold(("V12",), ("V13",), "box"))
    [kept] = fold([a("V13"), a("V12"), a("V01")], folds, ())
    assert len(kept.consequences) == 2
