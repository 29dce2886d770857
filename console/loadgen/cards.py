"""What the cards did while a load was measured: use, clocks, power, heat, and why they were slowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from msgspec import Struct

from console.core import units
from console.core.model import GpuBox, GpuState, Reading
from console.core.poller import Poller, Source
from console.core.text import one_line

NOT_READ = "the cards were not read"
ENDS_WITHIN_S = 0.5
"""A driver that hangs is not waited for."""


class Card(Struct, frozen=True):
    """One card over the measured part; None where its driver does not tell."""

    index: int
    name: str | None
    samples: int
    util_pct: float | None = None
    """Mean, as all below but for what says otherwise."""
    util_max_pct: float | None = None
    sm_mhz: float | None = None
    sm_least_mhz: float | None = None
    power_w: float | None = None
    temp_max_c: float | None = None
    memory_max: int | None = None
    """Bytes."""
    slowed_s: Mapping[str, float] | None = None
    """Reason -> seconds, by the driver's counters; None where it has none."""
    slowed_seen: Mapping[str, float] | None = None
    """Reason -> share of the samples that had it set; None where that is not told."""


class Cards:
    """Reads all cards once a second in a thread of its own, from `start` to `end`."""

    def __init__(self, source: Source | None) -> None:
        """`source` gives a GpuBox; None = there is nobody to ask."""
        self._found: list[GpuBox] = []
        self._why = NOT_READ if source is None else ""
        self._measuring = False
        self._poller = None if source is None else Poller(source, self._took)

    def start(self) -> None:
        """Begin to read; what is read counts from `measure` on."""
        if self._poller is not None:
            self._poller.start()

    def measure(self) -> None:
        """The measured part begins."""
        self._measuring = True
        if self._poller is not None:
            self._poller.read_now()

    def end(self) -> None:
        """It is over."""
        if self._poller is not None:
            self._measuring = False
            self._poller.stop()
            self._poller.join(ENDS_WITHIN_S)

    def found(self) -> tuple[tuple[Card, ...], str]:
        """Each card, and why there is none."""
        cards = summed(tuple(self._found))
        return cards, "" if cards else self._why or "the cards did not answer in time"

    def _took(self, reading: Reading[Any]) -> None:
        """In the poller's thread."""
        if reading.error is not None:
            self._why = one_line(reading.error.message, 200)
        elif self._measuring and reading.value is not None:
            self._found.append(reading.value)


def summed(boxes: Sequence[GpuBox]) -> tuple[Card, ...]:
    """Of all samples, card by card; one that was lost meanwhile counts as long as it answered."""
    by_card: dict[tuple[int, str | None], list[GpuState]] = {}
    for box in boxes:
        for gpu in box.gpus:
            if gpu.lost is None:
                by_card.setdefault((gpu.index, gpu.uuid), []).append(gpu)
    return tuple(_card(states) for _, states in sorted(by_card.items(), key=lambda item: item[0][0]))


def _card(states: Sequence[GpuState]) -> Card:
    util, clocks = _known(states, "util_pct"), _known(states, "sm_mhz")
    told = [state.throttle_now for state in states if state.throttle_now is not None]
    reasons = sorted({reason for one in told for reason in one})
    memory = _known(states, "memory_used")
    return Card(
        states[0].index,
        one_line(states[0].name, 80) if states[0].name else None,
        len(states),
        _mean(util),
        max(util, default=None),
        _mean(clocks),
        min(clocks, default=None),
        _mean(_known(states, "power_w")),
        max(_known(states, "temp_c"), default=None),
        int(max(memory)) if memory else None,
        _counted(states[0], states[-1]),
        {reason: sum(reason in one for one in told) / len(told) for reason in reasons} if told else None,
    )


def _known(states: Sequence[GpuState], name: str) -> list[float]:
    return [value for state in states if (value := getattr(state, name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _counted(first: GpuState, last: GpuState) -> dict[str, float] | None:
    """Seconds between two samples by the driver's counters; None where it has none, or they began anew."""
    before = {one.reason: one.seconds for one in first.throttle_counters}
    after = {one.reason: one.seconds for one in last.throttle_counters}
    changes = {reason: after[reason] - before[reason] for reason in before if reason in after}
    if not changes or min(changes.values()) < 0:
        return None
    return {reason: change for reason, change in changes.items() if change > 0}


def words(card: Card) -> str:
    """Such as `util 84 % (at most 97), SM 1590 MHz (least 1410), 68 W, 71 °C at most, slowed: power_cap 12 s`."""
    parts = [
        f"util {units.whole(card.util_pct)} % (at most {units.whole(card.util_max_pct)})",
        f"SM {units.whole(card.sm_mhz)} MHz (least {units.whole(card.sm_least_mhz)})",
        f"{units.whole(card.power_w)} W",
        f"{units.whole(card.temp_max_c)} °C at most",
        f"{units.size(card.memory_max)} at most",
    ]
    return ", ".join([*parts, _slowed(card)])


def _slowed(card: Card) -> str:
    if card.slowed_s is not None:
        why = ", ".join(f"{reason} {seconds:.1f} s" for reason, seconds in card.slowed_s.items())
        return f"slowed: {why}" if why else "not slowed"
    if card.slowed_seen is not None:
        why = ", ".join(f"{reason} {100 * share:.0f} %" for reason, share in card.slowed_seen.items())
        return f"seen slowed once a second: {why}" if why else "not seen slowed once a second"
    return "slowed: not told"
