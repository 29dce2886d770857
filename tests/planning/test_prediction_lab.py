"""Prediction against a real Triton, the short form of `scripts/bench prediction`: unlike settings from one look.

What is measured on a busy machine is wide of the mark by chance, so the bounds are; the bench has the figures.
"""

from __future__ import annotations

import pytest

from console.planning.batcher import Scheduling
from tests.bench import prediction
from tests.bench.prediction import Case, Sleeper, rows

MODEL = Sleeper("nap", 12_000, 3_000)
SETTINGS = (
    (0.6, Scheduling(4, 1, max_queue_delay_us=2000)),
    (0.3, Scheduling(16, 1, max_queue_delay_us=0)),
    (0.6, Scheduling(2, 2, max_queue_delay_us=500)),
)


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_settings_each_from_a_look_at_another(lab: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "SHORTEST_S", 6.0)
    monkeypatch.setattr(prediction, "REQUESTS", 900)
    cases = [Case(MODEL, load, scheduling) for load, scheduling in SETTINGS]
    found = list(rows(cases, 11, reference_s=6.0))
    assert len(found) == len(cases)
    for row in found:
        told, seen = row.batch
        assert told == pytest.approx(seen, rel=0.25), row
        told, seen = row.mean
        assert told == pytest.approx(seen, rel=0.5), row
    by_batch = [[row.batch[side] for row in found] for side in (0, 1)]
    order = [sorted(range(3), key=values.__getitem__) for values in by_batch]
    assert order[0] == order[1]
