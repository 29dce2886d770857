"""Secrets go out of everything that is told, wherever they stand in it."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from console.actions.masks import Masks, is_masked
from console.config import Settings, Triton
from console.core.plan import Check, Field, Outcome, Plan, Step, Target, Tick, UndoSpec, Way

FIELDS = (Field("password", "", secret=True), Field("env", "", kind="map", secret=True), Field("name", ""))
SECRET, VARIABLE, HEADER = "hunter22", "variable-secret", "header-secret"
VALUES = {"password": SECRET, "env": f"A={VARIABLE},B=1", "name": "triton"}
SETTINGS = Settings(triton=Triton(headers={"key": HEADER}))
ALL = f"{SECRET} {VARIABLE} {HEADER}"


def masks() -> Masks:
    return Masks(FIELDS, VALUES, SETTINGS)


def test_every_text_of_a_plan_is_masked_and_its_values_stay_for_the_runner() -> None:
    plan = Plan(
        "a.b",
        Target("model", "m", {"token": "abc", "text": ALL}),
        VALUES,
        ALL,
        "Yes",
        "safe",
        note=ALL,
        checks=(Check("ok", ALL),),
        ways=(Way("w", ALL, ALL, "0 s", ALL),),
        ticks=(Tick("t", ALL, on=False),),
        steps=(Step("p", ALL, ALL, (ALL,)),),
        effects=(ALL,),
        difference=(ALL,),
        by_hand=(ALL,),
        undo=ALL,
        refused=ALL,
    )
    told = masks().told(plan)
    assert told.values == VALUES
    printed = msgspec.json.encode(masks().plan(plan)).decode()
    for secret in (SECRET, VARIABLE, HEADER, "abc"):
        assert secret not in printed
    assert '"name":"triton"' in printed


def test_an_outcome_is_masked_and_an_undo_that_lost_its_secrets_is_known() -> None:
    undo = UndoSpec("a.b", "m", {"password": SECRET, "name": "x"}, ALL)
    told = masks().outcome(Outcome("done", ALL, (ALL,), undo, {"env": ALL, "n": ALL}, ALL))
    printed = msgspec.json.encode(told).decode()
    for secret in (SECRET, VARIABLE, HEADER):
        assert secret not in printed
    assert told.undo is not None
    assert is_masked(told.undo)
    assert not is_masked(UndoSpec("a.b", "m", {"name": "x"}))


def test_short_values_do_not_spoil_every_sentence() -> None:
    short = Masks(FIELDS, {"password": "on", "env": "A=1,B=true"}, Settings())
    assert short.text("on 1 is true") == "on 1 is true"
    assert short.mapping({"password": "on"}) == {"password": "***"}


@given(st.text(), st.text(min_size=4))
def test_a_secret_never_comes_through(around: str, secret: str) -> None:
    told = Masks((Field("p", "", secret=True),), {"p": secret}, Settings()).text(around + secret + around)
    assert secret not in told.replace("***", "") or secret in "***"


def test_a_variable_that_holds_commas_is_masked_in_all_of_its_parts() -> None:
    told = Masks(FIELDS, {"env": "A=first-part,second-part,B=other-secret"}, Settings())
    for text in ("first-part,second-part", "first-part", "second-part", "other-secret"):
        assert told.text(f"it was {text}.") == "it was ***."
