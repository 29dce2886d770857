"""Others' traffic: told from ours where that can be, before and meanwhile; a limit on what they feel."""

from __future__ import annotations

import pytest

from console.core.model import ModelStats
from console.core.plan import WrongInput
from console.loadgen import live
from console.loadgen.live import Counted, Look, Watch, between, counted, others, parse_limits
from console.loadgen.record import Live, Traffic


def look(at: float, own: float = 0, **models: tuple[int, float]) -> Look:
    """At a second; of each model (requests, mean ms of all of them)."""
    counts = {name: Counted(requests, round(requests * ms * 1e6)) for name, (requests, ms) in models.items()}
    return Look(at, counts, {"rank": own})


def watch(*words: str, within: frozenset[str] = frozenset()) -> Watch:
    return Watch({"rank"}, within, parse_limits(words))


def test_versions_are_counted_together() -> None:
    stats = [ModelStats("m", version, success_count=5, success_ns=70) for version in ("1", "2")]
    assert counted(stats) == {"m": Counted(10, 140)}


@pytest.mark.parametrize(
    ("there", "own", "theirs"),
    [(100, 100, 0), (102, 100, 0), (103, 100, 3), (1019, 1000, 0), (1021, 1000, 21), (2, 0, 0), (3, 0, 3)],
)
def test_a_few_more_than_ours_are_of_the_edges(there: int, own: int, theirs: int) -> None:
    assert others(there, own) == theirs


def test_between_two_looks() -> None:
    first, last = look(10.0, 0, rank=(100, 2.0), recall=(10, 1.0)), look(20.0, 500, rank=(800, 2.0), recall=(40, 2.0))
    assert between(first, last, "rank") == Traffic(20.0, 2.0, 700)
    assert between(first, last, "recall") == Traffic(3.0, pytest.approx(70 / 30), 30)  # type: ignore[arg-type]
    assert between(first, last, "none") is None
    assert between(last, first, "recall") is None  # its counters began anew
    assert between(look(0.0), look(10.0, new=(50, 3.0)), "new") == Traffic(5.0, 3.0, 50)
    assert between(look(0.0, x=(5, 1.0)), look(10.0, x=(5, 1.0)), "x") == Traffic(0.0, None, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0"], "must be M or MODEL=M, milliseconds above 0, not '0'"),
        (["-1"], "not '-1'"),
        (["x"], "not 'x'"),
        (["nan"], "not 'nan'"),
        (["inf"], "not 'inf'"),
        (["rank="], "not 'rank='"),
        (["1", "2"], "given twice for all models"),
        (["a=1", "a=2"], "given twice for a;"),
    ],
)
def test_limits_that_cannot_be(words: list[str], said: str) -> None:
    with pytest.raises(WrongInput, match=r"^--max-live-ms ") as raised:
        parse_limits(words)
    assert said in str(raised.value)


def test_limits() -> None:
    assert parse_limits(["4", "recall=30.5", "a=b=2"]) == {"": 4.0, "recall": 30.5, "a=b": 2.0}


def test_before_and_since_it_began_are_told_of_each_model_that_others_ask() -> None:
    it = watch()
    it.before(
        look(0.0, rank=(0, 0), recall=(0, 0), idle=(7, 1.0)),
        look(2.0, rank=(200, 1.84), recall=(40, 5.0), idle=(7, 1.0)),
    )
    assert [one.model for one in it.found()] == ["rank", "recall"]
    it.begin(look(5.0, 100, rank=(1000, 1.84), recall=(100, 5.0), idle=(7, 1.0)))
    assert it.look(look(9.0, 500, rank=(2000, 1.84), recall=(300, 5.0), idle=(7, 1.0))) == ""
    assert it.found() == (
        Live("rank", Traffic(100.0, 1.84, 200), Traffic(150.0, 1.84, 1000), ours=True),
        Live("recall", Traffic(20.0, 5.0, 40), Traffic(50.0, 5.0, 200), ours=False),
    )  # fmt: skip


def started(*words: str, within: frozenset[str] = frozenset()) -> Watch:
    """With 100/s of others on rank and recall, 2 and 5 ms, when it begins."""
    it = watch(*words, within=within)
    it.before(look(0.0, rank=(0, 0), recall=(0, 0)), look(2.0, rank=(200, 2.0), recall=(200, 5.0)))
    it.begin(look(2.0, rank=(200, 2.0), recall=(200, 5.0)))
    return it


def test_a_limit_holds_for_the_mean_of_the_last_seconds_alone() -> None:
    it = started("rank=3")
    for second in range(1, 60):
        assert it.look(look(2.0 + second, 50 * second, rank=(200 + 150 * second, 2.0), recall=(200, 5.0))) == ""
    slow = [
        look(61.0 + at, 50 * (59 + at), rank=(9050 + 150 * at, (9050 * 2 + 150 * at * 4) / (9050 + 150 * at)))
        for at in (1, 2, 3)
    ]
    assert it.look(slow[0]) == ""
    said = it.look(slow[1]) or it.look(slow[2])
    assert said.startswith("live users: mean of rank 3.")
    assert said.endswith("ms, above the limit of 3; others ask it 100/s")


def test_one_limit_for_each_model_that_was_below_it() -> None:
    it = started("4")
    (note,) = it.notes
    assert note.startswith("recall takes 5.00 ms already without this load: the limit of 4 ms does not hold for it")
    assert it.look(look(6.0, 0, rank=(600, 2.0), recall=(600, 50.0))) == ""
    assert it.look(look(10.0, 0, rank=(1000, 9.0), recall=(600, 50.0))).startswith("live users: mean of rank 19.5 ms")


def test_a_limit_of_another_model() -> None:
    it = started("recall=6")
    assert it.look(look(6.0, 4000, rank=(4200, 90.0), recall=(600, 5.0))) == ""
    assert it.look(look(10.0, 8000, rank=(8200, 90.0), recall=(1000, 6.0))).startswith(
        "live users: mean of recall 7.50 ms"
    )


def test_where_nobody_else_asks_nobody_is_hurt() -> None:
    it = started("3")
    assert it.look(look(6.0, 4000, rank=(4200, 90.0), recall=(200, 5.0))) == ""


def test_few_requests_are_judged_over_a_longer_time() -> None:
    it = started("recall=6")
    base = 200 * 5.0
    for at, requests in ((3.0, 1), (6.0, 2), (9.0, 4)):
        total = (base + requests * 50) / (200 + requests)
        assert it.look(look(2.0 + at, rank=(200, 2.0), recall=(200 + requests, total))) == ""
    assert "mean of recall 50.0 ms" in it.look(look(14.0, rank=(200, 2.0), recall=(206, (base + 300) / 206)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rank=1.5"], "--max-live-ms 1.5: rank takes 2.00 ms already without this load; give more than that"),
        (["1.5"], "rank takes 2.00 ms already"),
        (["recall=4"], "recall takes 5.00 ms already"),
        (["nosuch=4"], "--max-live-ms nosuch=4: nosuch is not served here"),
    ],
)
def test_limits_that_cannot_be_held(words: list[str], said: str) -> None:
    with pytest.raises(WrongInput) as raised:
        started(*words)
    assert said in str(raised.value)


def test_what_an_ensemble_asks_is_left_out() -> None:
    it = started("9", within=frozenset({"recall"}))
    assert it.look(look(6.0, 0, rank=(600, 2.0), recall=(900, 500.0))) == ""
    assert [one.model for one in it.found()] == ["rank"]
    with pytest.raises(WrongInput, match="recall is part of what is loaded"):
        started("recall=9", within=frozenset({"recall"}))


def test_a_model_loaded_anew_is_not_judged_over_its_reload() -> None:
    it = started("recall=6")
    assert it.look(look(6.0, rank=(200, 2.0), recall=(50, 90.0))) == ""
    assert it.found()[0].model == "rank"
    assert it.look(look(10.0, rank=(200, 2.0), recall=(100, 90.0))).startswith("live users: mean of recall 90.0")


def test_a_load_with_a_limit_that_cannot_be_watched_ends() -> None:
    assert started("4").blind(2.0 + live.BLIND_S - 0.1) == ""
    assert started("4").blind(2.0 + live.BLIND_S).startswith("live users could not be watched for 10 s")
    assert started().blind(1e6) == ""


def test_without_a_look_before_the_past_is_not_known() -> None:
    it = watch("rank=1")
    it.before(None, look(2.0, rank=(200, 2.0)))
    it.begin(look(3.0, rank=(300, 2.0)))
    assert it.look(look(4.0, rank=(400, 2.0))) == ""
    assert it.found() == (Live("rank", None, Traffic(100.0, 2.0, 100), ours=True),)
