"""Send times: how many, when, and never more than asked."""

from __future__ import annotations

import itertools
from statistics import mean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.plan import WrongInput
from console.loadgen.schedule import NS, Load, Step, callers, intended, make, pieces, recorded, warm_up

steps = st.builds(Step, st.floats(0.5, 500), st.floats(0.5, 500), st.floats(0.05, 5))
loads = st.builds(
    Load,
    st.just("open"),
    st.lists(steps, min_size=1, max_size=4).map(tuple),
    st.booleans(),
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 7, 100]),
)


@settings(max_examples=60, deadline=None)
@given(loads)
def test_bounded_ascending_and_by_seed(load: Load) -> None:
    times = list(intended(load))
    assert times == sorted(times)
    assert all(0 <= at <= load.seconds * NS + 1 for at in times)
    assert len(times) <= load.most
    assert times == list(intended(load))


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=1, max_size=4).map(tuple))
def test_a_constant_load_sends_what_its_integral_says(steps: tuple[Step, ...]) -> None:
    wanted = sum((step.first + step.last) / 2 * step.seconds for step in steps)
    assert abs(len(list(intended(Load("open", steps)))) - wanted) <= 1


def test_a_constant_rate_is_even_and_begins_at_once() -> None:
    times = list(intended(make("open", "100", 2.0)))
    assert len(times) == 200
    assert times[0] == 0
    assert {round((b - a) / 1e6, 3) for a, b in itertools.pairwise(times)} == {10.0}


def test_poisson_gaps_have_the_mean_and_spread_of_an_exponential() -> None:
    times = list(intended(make("open", "1000", 30.0, poisson=True, seed=7)))
    gaps = [(b - a) / 1e6 for a, b in itertools.pairwise(times)]
    assert mean(gaps) == pytest.approx(1.0, rel=0.02)
    assert pstdev(gaps) == pytest.approx(1.0, rel=0.03)
    assert times != list(intended(make("open", "1000", 30.0, poisson=True, seed=8)))


@pytest.mark.parametrize("poisson", [False, True])
def test_a_ramp_puts_three_quarters_into_its_second_half(poisson: bool) -> None:
    times = list(intended(make("open", "1..1999", 10.0, poisson=poisson)))
    assert len(times) == pytest.approx(10_000, rel=0.03)
    assert sum(at > 5 * NS for at in times) / len(times) == pytest.approx(0.75, abs=0.02)


def test_steps_share_the_time() -> None:
    load = make("open", "10,100,10", 9.0)
    counts = [sum(3 * k * NS <= at < 3 * (k + 1) * NS for at in intended(load)) for k in range(3)]
    assert counts == pytest.approx([30, 300, 30], abs=1)


def test_a_count_ends_it_early() -> None:
    assert len(list(intended(make("open", "100", 10.0, count=5)))) == 5


def test_callers_of_a_closed_loop() -> None:
    load = make("closed", "4..8", 4.0)
    assert [callers(load, at) for at in (0, 1, 2, 3.99, 4.0, 99)] == [4, 5, 6, 8, 0, 0]
    assert [callers(make("closed", "1,16", 2.0), at) for at in (0.5, 1.5, 2.0)] == [1, 16, 0]


def test_warm_up_is_the_first_level_with_other_chance() -> None:
    load = make("open", "50..100", 10.0, poisson=True, seed=3)
    warm = warm_up(load, 2.0)
    assert warm is not None
    assert warm.steps == (Step(50.0, 50.0, 2.0),)
    assert warm.seed == 4
    assert warm_up(load, 0) is None


@pytest.mark.parametrize(
    ("loop", "levels", "seconds", "count", "words"),
    [
        ("closed", "0", 1, 0, "--concurrency must be a whole number from 1 to 1024"),
        ("closed", "1.5", 1, 0, "--concurrency must be a whole number"),
        ("closed", "2000", 1, 0, "--concurrency must be"),
        ("closed", "1..", 1, 0, "--concurrency must be"),
        ("open", "x", 1, 0, "--rate must be a number from 0.1 to 50000"),
        ("open", "nan", 1, 0, "--rate must be"),
        ("open", "inf", 1, 0, "--rate must be"),
        ("open", "-5", 1, 0, "--rate must be"),
        ("open", "5,,5", 1, 0, "--rate must be"),
        ("open", ",".join(["1"] * 51), 1, 0, "51 steps"),
        ("open", "5", 0, 0, "--duration must be more than 0"),
        ("open", "5", float("inf"), 0, "--duration"),
        ("open", "5", 3601, 0, "at most 3600 s"),
        ("open", "5", 1, -1, "--count must be from 1"),
    ],
)
def test_what_cannot_be_is_one_sentence(loop: str, levels: str, seconds: float, count: int, words: str) -> None:
    with pytest.raises(WrongInput, match=words.replace("(", r"\(")):
        make(loop, levels, seconds, count=count)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 4000.0])
def test_a_warm_up_that_cannot_be(seconds: float) -> None:
    with pytest.raises(WrongInput, match="--warmup must be from 0"):
        warm_up(make("open", "5", 1.0), seconds)


def replay(body: bytes) -> Load:
    return recorded(body, "r.csv", poisson=False, seed=0, count=0)


def test_recorded_rates_are_sent_as_they_were() -> None:
    load = replay(b"seconds,rate\n0,10\n2, 0\n3,50.5\n\n5,20\n")
    assert load.steps == (Step(10, 10, 2), Step(0, 0, 1), Step(50.5, 50.5, 2), Step(20, 20, 2))
    times = [at / NS for at in intended(load)]
    assert [sum(low <= at < high for at in times) for low, high in ((0, 2), (2, 3), (3, 5), (5, 7))] == [20, 0, 101, 40]
    assert load.words() == "open loop, constant, 10, 0, 50.5, 20/s"
    assert replay(b"1000,5\n1001,6\n").steps == (Step(5, 5, 1), Step(6, 6, 1))
    warm = warm_up(replay(b"0,0\n1,7\n"), 2.0)
    assert warm is not None
    assert warm.steps == (Step(7, 7, 2.0),)


def test_an_hour_of_seconds_has_few_figures_and_short_words() -> None:
    load = replay(b"".join(b"%d,%d\n" % (at, at % 100) for at in range(3600)))
    assert load.words() == "open loop, constant, 3600 rates of 0 to 99/s"
    assert pieces(load) == (Step(0, 99, 360),) * 10


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "r.csv has 0 rates"),
        (b"0,5\n", "r.csv has 1 rates"),
        (b"a,b\n", "line 1 of r.csv must be seconds,rate, not 'a,b'"),
        (b"0,1\nseconds,rate\n", "line 2 of r.csv must be"),
        (b"0,1\n1,2,3\n", "line 2 of r.csv must be"),
        (b"0,1\n1,-2\n", "line 2 of r.csv needs a rate from 0 to 50000"),
        (b"0,1\n1,nan\n", "line 2 of r.csv needs"),
        (b"0,1\n1,50001\n", "line 2 of r.csv needs"),
        (b"0,1\n5,1\n\n4,1\n", "line 4 of r.csv is not later"),
        (b"0,1\n0,1\n", "line 2 of r.csv is not later"),
        (b"0,1\n3000,1\n", "r.csv lasts 6000 s; at most 3600"),
        (b"0,0\n1,0\n", "r.csv makes 0 requests"),
        (b"0,50000\n1800,50000\n", "r.csv makes 180000000 requests"),
        (b"".join(b"%d,1\n" % at for at in range(3601)), "more than 3600 rates"),
        (b"\x89PNG\xff", "line 1 of r.csv must be"),
    ],
)
def test_rates_that_cannot_be(body: bytes, said: str) -> None:
    with pytest.raises(WrongInput, match=r"^--rate-file: ") as raised:
        replay(body)
    assert said in str(raised.value)


def test_pieces_with_figures_of_their_own() -> None:
    assert pieces(make("open", "50", 10.0)) == ()
    assert pieces(make("open", "50,100", 10.0)) == (Step(50, 50, 5), Step(100, 100, 5))
    assert pieces(make("closed", "1..4", 3.0)) == (Step(1, 2, 1), Step(2, 3, 1), Step(3, 4, 1))
    assert len(pieces(make("open", "1..500", 60.0))) == 10
    assert len(pieces(make("open", ",".join(["1..500"] * 50), 3000.0))) == 100
    assert pieces(make("open", "1..5", 0.5)) == (Step(1, 5, 0.5),)


def test_words() -> None:
    assert make("open", "800", 1.0, poisson=True).words() == "open loop, Poisson, 800/s"
    assert make("closed", "1,4..8", 1.0).words() == "closed loop, 1, 4..8 at once"
