"""Who is told beyond the screen, how often, and the silence."""

from __future__ import annotations

from console.alerts.engine import Alert, Changed
from console.alerts.teller import AGAIN_S, Teller


def _alert(subject: str = "GPU 0") -> Alert:
    return Alert("temperature_c", subject, "warn", f"{subject} is hot", "91 °C", 91, 85, 0)


HOT = _alert()


def _words(news: Changed) -> str:
    return "".join("b" * len(news.began) + "e" * len(news.ended)) or "."


def test_once_each() -> None:
    teller = Teller()
    told = [_words(teller.news(active, mono, silent=False)) for mono, active in enumerate([[], [HOT], [HOT], [], []])]
    assert told == [".", "b", ".", "e", "."]


def test_what_comes_and_goes_rings_twice_in_ten_minutes() -> None:
    teller = Teller()
    told = [_words(teller.news([HOT] if step % 2 else [], step * 5.0, silent=False)) for step in range(120)]
    assert "".join(told).replace(".", "") == "be"
    again = [_words(teller.news([HOT], AGAIN_S + 5 + step, silent=False)) for step in range(3)]
    assert again == ["b", ".", "."]


def test_one_that_stands_for_long_is_not_told_again() -> None:
    teller = Teller()
    told = [_words(teller.news([HOT], mono * 60.0, silent=False)) for mono in range(60)]
    assert "".join(told) == "b" + "." * 59


def test_silence_withholds_and_tells_afterwards_what_still_stands() -> None:
    teller = Teller()
    cold = _alert("GPU 1")
    assert _words(teller.news([HOT, cold], 0, silent=True)) == "."
    assert teller.news([HOT], 100, silent=False).began == (HOT,)


def test_an_end_within_the_silence_is_told_after_it() -> None:
    teller = Teller()
    teller.news([HOT], 0, silent=False)
    assert _words(teller.news([], 5, silent=True)) == "."
    assert teller.news([], 10, silent=False).ended == (HOT,)
