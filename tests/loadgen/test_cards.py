"""Figures of the cards over a run: of what was told, and None for what was not."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from console.core.model import Failure, GpuBox, GpuState, SourceError, ThrottleCounter
from console.loadgen.cards import NOT_READ, Card, Cards, summed, words


def box(*gpus: GpuState) -> GpuBox:
    return GpuBox(gpus=gpus)


def gpu(util: float | None, index: int = 0, **more: Any) -> GpuState:
    return GpuState(index, f"uuid-{index}", "T4", util_pct=util, **more)


def counters(seconds: float) -> tuple[ThrottleCounter, ...]:
    return (ThrottleCounter("power_cap", seconds), ThrottleCounter("heat_software", 5.0))


def test_means_and_extremes_card_by_card() -> None:
    first = gpu(50, sm_mhz=1590, power_w=60.0, temp_c=70.0, memory_used=100, throttle_counters=counters(1.0))
    last = gpu(70, sm_mhz=1400, power_w=70.0, temp_c=72.0, memory_used=300, throttle_counters=counters(3.5))
    found = summed([box(first, gpu(1, 1)), box(last, gpu(3, 1))])
    assert found == (
        Card(0, "T4", 2, 60.0, 70, 1495.0, 1400, 65.0, 72.0, 300, {"power_cap": 2.5}),
        Card(1, "T4", 2, 2.0, 3),
    )
    assert words(found[0]) == (
        "util 60 % (at most 70), SM 1495 MHz (least 1400), 65 W, 72 °C at most, 300 B at most, slowed: power_cap 2.5 s"
    )
    assert "SM – MHz (least –), – W" in words(found[1])
    assert words(found[1]).endswith("slowed: not told")


def test_without_counters_what_was_seen_counts() -> None:
    (found,) = summed([box(gpu(1, throttle_now=())), box(gpu(1, throttle_now=("heat_hardware",)))])
    assert (found.slowed_s, found.slowed_seen) == (None, {"heat_hardware": 0.5})
    assert words(found).endswith("seen slowed once a second: heat_hardware 50 %")
    (quiet,) = summed([box(gpu(1, throttle_now=()))])
    assert words(quiet).endswith("not seen slowed once a second")


def test_counters_that_began_anew_are_not_told() -> None:
    (found,) = summed([box(gpu(1, throttle_counters=counters(9.0))), box(gpu(1, throttle_counters=counters(1.0)))])
    assert found.slowed_s is None


def test_a_lost_card_counts_as_long_as_it_answered() -> None:
    (found,) = summed([box(gpu(40)), box(gpu(40, lost=Failure("unavailable", "gone")))])
    assert (found.samples, found.util_pct) == (1, 40.0)
    assert summed([]) == ()


class Source:
    name, interval = "gpu", 0.02

    def __init__(self, error: str = "", hangs: bool = False) -> None:
        self._error, self._hangs = error, hangs
        self.closed = threading.Event()

    def open(self) -> None:
        if self._error:
            raise SourceError("unavailable", self._error)

    def read(self) -> GpuBox:
        if self._hangs:
            time.sleep(30)
        return box(gpu(40))

    def close(self) -> None:
        self.closed.set()


def read(source: Source | None) -> tuple[tuple[Card, ...], str]:
    cards = Cards(source)
    cards.start()
    time.sleep(0.1)
    cards.measure()
    time.sleep(0.2)
    cards.end()
    return cards.found()


def test_only_the_measured_part_counts_and_the_session_ends() -> None:
    source = Source()
    (found,), why = read(source)
    assert 1 < found.samples < 12
    assert (found.util_pct, why) == (40.0, "")
    assert source.closed.is_set()


@pytest.mark.parametrize(
    ("source", "why"),
    [(None, NOT_READ), (Source("no driver"), "no driver"), (Source(hangs=True), "the cards did not answer in time")],
)
def test_why_nothing_is_known(source: Source | None, why: str) -> None:
    assert read(source) == ((), why)
