"""What appears and goes, in which order, and what is folded under what."""

from __future__ import annotations

from types import ModuleType

import pytest
from msgspec.structs import replace

from console.advisors.table import Fold
from console.advisors.why import Why, fold, ordered
from console.core.history import History
from console.core.model import EnsembleStep, Sign, Snapshot, Verdict
from console.core.registry import Found, ImportFailure, discover
from tests.advisors.cases import MONO, NOW, config, ids, later, once, row, snapshot, window

DELAYED = {"rate": 40.0, "batch": 1.4, "wait": 8.9, "compute": 15.0, "busy": 0.2, "instances": 2}
SETTINGS = config(instances=2, delay_us=10_000)
WAITS = snapshot(row(window(**DELAYED), SETTINGS))  # type: ignore[arg-type]
CALM = snapshot(row(window(rate=40, wait=0.1, compute=15, busy=0.2, instances=2), config(instances=2)))


def steps(why: Why, boxes: list[Snapshot]) -> list[list[str]]:
    """Ids after each of the looks, five seconds apart."""
    return [ids(why.evaluate(later(box, 5.0 * at), History())) for at, box in enumerate(boxes)]


def test_a_verdict_appears_at_the_second_look_and_goes_at_the_third_without_it() -> None:
    seen = steps(Why(), [WAITS] * 3 + [snapshot()] * 4)
    assert seen == [[], ["V20"], ["V20"], ["V20"], ["V20"], [], []]


def test_one_look_is_enough_without_hold() -> None:
    assert ids(once(WAITS)) == ["V20"]


def test_a_flicker_never_appears() -> None:
    assert steps(Why(), [WAITS, snapshot(), WAITS, snapshot(), WAITS, snapshot()]) == [[]] * 6


def test_a_gap_of_two_looks_does_not_end_a_verdict() -> None:
    assert steps(Why(), [WAITS, WAITS, snapshot(), snapshot(), WAITS])[-1] == ["V20"]


def test_a_new_flow_verdict_ends_the_one_that_lingers() -> None:
    """Flow verdicts of a model exclude each other, on the screen too."""
    seen = steps(Why(), [WAITS, WAITS, CALM, CALM, CALM])
    assert seen == [[], ["V20"], ["V20"], ["V31"], ["V31"]]


def test_since_is_when_it_was_first_seen_and_stays() -> None:
    why = Why()
    for at in range(4):
        found = why.evaluate(later(WAITS, 5.0 * at), History())
    assert found[0].since_wall == NOW
    assert found[0].since_mono == MONO


def test_states_appear_at_the_first_look() -> None:
    box = snapshot(row(window(rate=40, compute=15, busy=0.2), config(), newer_on_disk=3))
    assert ids(Why().evaluate(box, History())) == ["V30b"]


def verdict(id_: str, sign: Sign = "warn", since: float = 0.0, model: str | None = None) -> Verdict:
    return Verdict(id_, sign, f"title of {id_}", model=model, since_wall=since)


def test_problems_first_by_sign_then_by_age_and_what_cannot_be_told_last() -> None:
    mixed = [
        verdict("V35", "unknown", 1),
        verdict("V21", "note", 2),
        verdict("V30", "warn", 9),
        verdict("V22", "warn", 3),
        verdict("V33", "none", 0),
        verdict("V12", "fail", 10),
    ]
    assert ids(ordered(mixed)) == ["V12", "V22", "V30", "V21", "V35", "V33"]


def test_consequences_stand_under_their_cause_only() -> None:
    folds = (Fold(("V13",), ("V12",), "model"), Fold(("V12",), ("V16",), "model"))
    found = fold([verdict("V16", model="a"), verdict("V12", model="a"), verdict("V13", model="a")], folds, ())
    assert ids(found) == ["V13"]
    assert set(found[0].consequences) == {"title of V12", "title of V16"}


def test_another_models_cause_is_none() -> None:
    folds = (Fold(("V13",), ("V12",), "model"),)
    assert ids(fold([verdict("V12", model="a"), verdict("V13", model="b")], folds, ())) == ["V12", "V13"]
    assert ids(fold([verdict("V12"), verdict("V13")], folds, ())) == ["V12", "V13"]


def test_folds_that_run_in_a_circle_end() -> None:
    folds = (Fold(("V12",), ("V13",), "model"), Fold(("V13",), ("V12",), "model"))
    assert isinstance(fold([verdict("V12", model="a"), verdict("V13", model="a")], folds, ()), list)


def test_an_ensemble_stands_under_its_step() -> None:
    ensemble = row(
        window(rate=40), config("whole", steps=(EnsembleStep("m", "-1"),), dynamic_batching=False), name="whole"
    )
    found = once(snapshot(row(window(**DELAYED), SETTINGS), ensemble))  # type: ignore[arg-type]
    assert ids(found) == ["V20"]
    assert found[0].consequences == ("whole is a sum of its steps; waiting shows on the steps",)


def test_an_ensemble_whose_steps_are_silent_stands_alone() -> None:
    ensemble = row(window(rate=40), config("whole", steps=(EnsembleStep("m", "-1"),)), name="whole")
    assert ids(once(snapshot(ensemble))) == ["V38"]


def test_what_was_looked_at_and_not_so_is_named() -> None:
    found = once(WAITS)[0]
    assert "at its cap" in found.not_so
    assert "waits for nothing" not in found.not_so


def test_a_file_that_does_not_load_is_a_visible_line_and_the_rest_judges() -> None:
    found = discover("console.advisors")
    broken = Found(
        tuple(module for module in found.modules if not module.__name__.endswith(".flow")),
        (ImportFailure("console.advisors.flow", "SyntaxError: invalid syntax"),),
    )
    told = Why(hold=False, found=broken).evaluate(WAITS, History())
    assert ids(told) == ["V39"]
    assert told[0].title == "verdicts of console.advisors.flow are missing: SyntaxError: invalid syntax"


def test_two_rules_for_one_verdict_are_an_error() -> None:
    flow = next(module for module in discover("console.advisors").modules if module.__name__.endswith(".flow"))
    copy = ModuleType("copy")
    exec(compile(open(flow.__file__ or "").read(), "copy", "exec"), copy.__dict__)  # noqa: SIM115
    with pytest.raises(ValueError, match="two rules for"):
        Why(found=Found((flow, copy), ()))


def test_nothing_is_judged_from_old_statistics() -> None:
    old = replace(WAITS, stats=replace(WAITS.stats, mono=MONO - 60))
    assert once(old) == ()


def test_an_unread_box_says_nothing() -> None:
    assert once(Snapshot()) == ()


def test_the_same_verdict_of_two_models_is_two() -> None:
    one = row(window(**DELAYED), SETTINGS)  # type: ignore[arg-type]
    other = row(window(**DELAYED), SETTINGS, name="n")  # type: ignore[arg-type]
    assert [(v.id, v.model) for v in once(snapshot(one, other))] == [("V20", "m"), ("V20", "n")]
