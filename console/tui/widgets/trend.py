"""Figures as characters: a trend of eight levels, a meter, a split bar. Text of one style, cheap on the wire."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
FULL, REST = "█", "░"


def trend(values: Sequence[float | None], low: float, high: float, width: int) -> str:
    """The newest `width` values as block characters between `low` and `high`; a gap (None) is a blank.

    Values outside the scale are drawn at its ends. Fewer values than `width` stand at the right, where now is.
    """
    span = high - low
    drawn = []
    for value in list(values)[-width:] if width > 0 else ():
        if value is None:
            drawn.append(" ")
            continue
        share = (value - low) / span if span > 0 else 0.0
        drawn.append(LEVELS[min(7, max(0, int(share * 8)))])
    return "".join(drawn).rjust(max(0, width))


def meter(share: float | None, width: int) -> tuple[str, str]:
    """A bar of `width` cells as (full part, rest); all rest for an unknown share. Any share above 0 shows one cell."""
    if share is None:
        return "", " " * width
    full = min(width, max(1 if share > 0 else 0, round(share * width)))
    return FULL * full, REST * (width - full)


def split_bar(parts: Sequence[float], width: int, chars: str = "▓░█▒") -> tuple[str, ...]:
    """`parts` as runs of their characters in proportion, in all exactly `width` cells (largest remainder).

    A part above 0 has at least one cell where there is room; no part at all gives blanks.
    """
    total = sum(part for part in parts if part > 0)
    if total <= 0 or width <= 0:
        return (" " * max(0, width),) + ("",) * (len(parts) - 1)
    exact = [max(0.0, part) / total * width for part in parts]
    cells = [max(1, int(value)) if value > 0 else 0 for value in exact]
    order = sorted(range(len(parts)), key=lambda index: exact[index] - int(exact[index]), reverse=True)
    step = 0
    while sum(cells) < width:
        cells[order[step % len(order)]] += 1
        step += 1
    while sum(cells) > width:
        cells[cells.index(max(cells))] -= 1
    return tuple(char * count for char, count in zip(chars, cells, strict=False))


def nice_top(value: float) -> float:
    """The scale's end for a highest value: 1, 2, 4 or 5 times a power of ten, not below `value`."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power < value:
        power *= 10
    while power / 10 >= value:
        power /= 10
    for step in (0.1, 0.2, 0.4, 0.5, 1.0):
        if power * step >= value * (1 - 1e-9):
            return power * step
    return power
