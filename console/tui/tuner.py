"""What Tune asks about one model: how it batches, what the server's rules say to a form, what other settings would do.

What it takes is imported when it is needed, and predictions are made in a process of their own: neither the first paint
nor the screen waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from console.clients.aside import Aside
from console.core.session import Session
from console.tui.place import place_of

if TYPE_CHECKING:
    from console.actions.batching_look import Current, Validated
    from console.core.model import ModelRow, Snapshot
    from console.planning.batching_change import Batching
    from console.planning.predicted import Prediction


class LoadRun(Struct, frozen=True):
    """A kept load run of one model, as far as the log of experiments tells it."""

    id: int
    wall: float
    """When it began to measure."""
    p99_ms: float | None


class LateTuner:
    """Looks at the box that a session reads; `folder` is the console's state folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._aside = Aside()
        self._predicting = Aside()

    def current(self, model: str, snapshot: Snapshot) -> Current:
        """Live and disk values of every field, from a fresh look of about half a second. Raises Refused, WrongInput,
        SourceError, OSError."""
        where = place_of(self._session, self._folder)
        now: Current = self._aside.call("console.actions.looks", "batching", *where, snapshot, model)
        return now

    def validate(self, now: Current, values: Mapping[str, str]) -> Validated:
        """What the server's rules say to these values; looks at nothing, so the UI thread may ask."""
        from console.actions import batching_look

        return batching_look.validate(now, values)

    def predict(self, row: ModelRow, settings: Batching) -> Prediction:
        """What these settings would do under what came in the last half minute. Takes a second. WrongInput,
        SourceError."""
        from console.core.plan import WrongInput
        from console.planning.observed import observe, observe_window, scheduling_of, together

        window = None if row.flow is None else row.flow.w30 or row.flow.w10
        if window is None or row.flow is None or row.config is None:
            raise WrongInput("the statistics of this model are not known yet")
        seen = together(observe_window(window, row.config), observe(None, row.flow.stats, row.config))
        found: Prediction = self._predicting.call(
            "console.planning.prediction", "predict", seen, scheduling_of(settings)
        )
        return found

    def runs(self, model: str) -> tuple[LoadRun, ...]:
        """Kept load runs of a model that are valid, oldest first. Refused, OSError."""
        from console.loadgen import record

        state = place_of(self._session, self._folder)[1]
        mine = [one for one in record.load_all(state) if one.model == model and not one.models and not one.not_valid]
        return tuple(LoadRun(one.id, one.wall, one.client.latency.p99) for one in mine)
