"""Forms without a box: the fields of any action, judged by the action's own rules for values."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from console.actions.base import Action
from console.actions.forms import given, wrong_ones
from console.core.form import About, Judged, Look, Present, Wish
from console.core.model import Snapshot
from console.core.plan import Refused
from console.tui.late_forms import Opened


class ActionOpened:
    """A form over an action's FIELDS, each starting from nothing or from `starts`."""

    def __init__(self, action: type[Action], starts: Mapping[str, str] | None = None, told: str = "") -> None:
        self._action = action
        rows = tuple(
            Present(
                one, one.name.replace("_", " "), (starts or {}).get(one.name, ""), (starts or {}).get(one.name, "–")
            )
            for one in action.FIELDS
        )
        self.look = Look(action.NAME, "triton", f"Form of {action.NAME}", rows, told=(told,) if told else ())

    def judge(self, box: Any, values: Mapping[str, str]) -> Judged:
        wanted = given(values)
        wrong = wrong_ones(self._action, wanted, lambda one: None)
        if wrong or not wanted:
            return Judged(frozenset(wanted), wrong)
        names = tuple(wanted)
        wish = Wish(self._action.NAME, "triton", wanted, names, {"id": "9f3c2e1a77b0"})
        return Judged(frozenset(wanted), (), (wish,), ("DIFFERENCE", *(f"+ --{name}" for name in names)))


class FakeForms:
    """Gives one form, or refuses; counts."""

    def __init__(self, opened: Opened | None = None, error: str = "") -> None:
        self.opened = opened
        self.error = error
        self.asked: list[tuple[About, str]] = []
        self.judged: list[Mapping[str, str]] = []
        self.gate = threading.Event()
        """Cleared: judging waits."""
        self.gate.set()

    def open(self, about: About, target: str, snapshot: Snapshot) -> Opened:
        self.asked.append((about, target))
        if self.opened is None:
            raise Refused(self.error)
        return self.opened

    def judge(self, form: Any, values: Mapping[str, str], snapshot: Snapshot) -> Judged:
        self.judged.append(dict(values))
        self.gate.wait(10)
        found: Judged = form.judge(None, values)
        return found
