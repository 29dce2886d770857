"""Numbers become the same text everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core import units


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.gib, 6_120_328_397, "5.7"),
        (units.gib, None, "–"),
        (units.size, 418 * units.MIB, "418 MiB"),
        (units.size, 1.6 * units.GIB, "1.6 GiB"),
        (units.size, 180 * units.GIB, "180 GiB"),
        (units.size, 12, "12 B"),
        (units.size, 0, "0 B"),
        (units.speed, 2048, "2 KiB/s"),
        (units.rate, 0.0, "0"),
        (units.rate, 0.04, "0.0"),
        (units.rate, 39.6, "39.6"),
        (units.rate, 99.96, "100"),
        (units.rate, 1650.4, "1650"),
        (units.rate, None, "–"),
        (units.millis, 0.08, "0.08"),
        (units.millis, 2.944, "2.94"),
        (units.millis, 9.996, "10.0"),
        (units.millis, 18.38, "18.4"),
        (units.millis, 174.16, "174"),
        (units.percent, 0.314, "31"),
        (units.age, 0.4, "0 s"),
        (units.age, 33, "33 s"),
        (units.age, 24 * 60, "24 m"),
        (units.age, 5 * 3600, "5 h"),
        (units.age, 3 * 86400, "3 d"),
        (units.age, -2, "0 s"),
        (units.age, None, "–"),
        (units.uptime, 41, "41 s"),
        (units.uptime, 24 * 60 + 36, "24m36s"),
        (units.uptime, 5 * 3600 + 120, "5h02m"),
        (units.uptime, 3 * 86400 + 4 * 3600, "3d04h"),
        (units.uptime, None, "–"),
        (units.whole, 63.7, "64"),
        (units.one, 0.04, "0.0"),
    ],
)
def test_text_of_a_number(function: object, value: float | None, text: str) -> None:
    assert callable(function)
    assert function(value) == text


def test_clock_and_zone_follow_the_box_or_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert units.clock(1_783_144_871) == "14:01:11"
        assert units.clock(1_783_144_871, utc=True) == "06:01:11"
        assert units.moment(1_783_144_871) == "2026-07-04 14:01:11"
        assert units.zone(1_783_144_871) == "UTC+8"
        assert units.zone(1_783_144_871, utc=True) == "UTC"
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        assert units.zone(1_783_144_871) == "UTC+5:30"
        monkeypatch.setenv("TZ", "America/St_Johns")
        time.tzset()
        assert units.zone(1_767_225_600) == "UTC-3:30"
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.floats(min_value=0, max_value=1e15))
def test_figures_never_outgrow_their_column(value: float) -> None:
    assert len(units.size(value)) <= 9
    assert len(units.millis(min(value, 9_999_999))) <= 7
