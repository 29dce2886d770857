"""The boxes themselves: every one can be built, and the drawn one says what the drawings say."""

from __future__ import annotations

import pytest

from console.core.model import Serving
from console.core.store import lettered
from tests.fakes.boxes import ALL_BOXES, drawn_box, empty_box


@pytest.mark.parametrize("name", sorted(ALL_BOXES))
def test_every_box_can_be_built(name: str) -> None:
    assert ALL_BOXES[name]().snapshot.seq >= 0


def test_the_drawn_box_says_what_is_drawn() -> None:
    box = drawn_box()
    rows = {row.name: row for row in box.snapshot.models}
    ranking = rows["ranking"]
    assert box.snapshot.serving == Serving("SERVING", 3, 4)
    assert ranking.flow is not None
    assert ranking.flow.w10 is not None
    assert ranking.flow.w10.rate == pytest.approx(1650)
    assert ranking.flow.w10.mean_batch == pytest.approx(4.3, abs=0.05)
    assert ranking.flow.w10.request_ms == pytest.approx(2.94)
    assert ranking.busy == pytest.approx(0.31, abs=0.01)
    assert rows["recall"].busy == pytest.approx(0.37, abs=0.01)
    assert ranking.newer_on_disk == 3
    assert ranking.live_only
    assert rows["rerank"].failed_load
    assert box.snapshot.traffic.rate == pytest.approx(1650, rel=0.01)
    assert [letter for letter, _ in lettered(box.snapshot.events)] == ["", "", "a", "b", "c", "d", "e"]


def test_an_empty_box_serves_nothing_yet() -> None:
    assert empty_box().snapshot.serving.word == "NOTHING SERVES YET"
