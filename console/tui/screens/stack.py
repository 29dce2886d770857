"""Panes under each other in a small terminal: the one with the keys has the room, the others show their first lines."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region

from console.tui.screens.base import Places

LEAST = 3
"""Rows of a pane that has not the keys: its rule and two lines."""


def stacked(body: Region, order: Sequence[str], focused: str | None) -> Places:
    """Regions from top to bottom in `order`; panes that find no room are not shown."""
    main = focused if focused in order else order[0]
    shown = list(order)
    while len(shown) > 1 and body.height - LEAST * (len(shown) - 1) < 2 * LEAST:
        shown.remove(next(name for name in reversed(shown) if name != main))
    places: Places = {}
    y = body.y
    for name in shown:
        height = body.height - LEAST * (len(shown) - 1) if name == main else LEAST
        places[name] = Region(body.x, y, body.width, height)
        y += height
    return places
