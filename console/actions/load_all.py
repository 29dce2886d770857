"""Load every model that is not served."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.model_load import crashed, load, lost
from console.actions.model_look import (
    ModelLook,
    container_of,
    mode_refusal,
)
from console.actions.model_words import ROUTE, SPARE, control_checks, load_failure, route_of, title
from console.core.model import IndexEntry
from console.core.plan import JournalLine, Outcome, Plan, Step, Target

MOST_LISTED = 12


class LoadAll(Action):
    """Load every model of the repository that is not served, one after the other."""

    NAME = "model.load_all"
    TARGET = ""
    FIELDS = (ROUTE,)
    PHASES = ("load", "check")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        entries = box.index().entries
        names = unloaded(entries)
        container = container_of(box)
        where = container.name if container is not None else "triton"
        seen = _server_look(box, entries, values)
        refused = mode_refusal(seen)
        if not refused and not names:
            refused = "every model of the repository is loaded: there is nothing to do"
        more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
        return Plan(
            action=self.NAME,
            target=Target("server", where, self.state(box, Target("server", where))),
            values={"route": values.get("route") or "auto"},
            title=title(box, "Load", seen, f"all {len(names)} models that are not served"),
            yes="Load all",
            danger="caution",
            checks=() if refused else control_checks(seen),
            steps=(
                Step(
                    "load", f"load, one after the other: {', '.join(names[:MOST_LISTED])}{more}", "told; the next one"
                ),
                Step("check", "all models that were READY still are", "told"),
            ),
            effects=(
                "the version that each one's policy on disk says",
                "whether all fit in the card's memory is not known: one that does not is told, and what serves stays",
                "a stop (ctrl+c) ends it after the model that loads just then",
            ),
            undo="unload them one by one",
            limit=max(1, len(names)) * box.settings.actions.load_timeout + SPARE,
            refused=refused,
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """What is not loaded."""
        return {"unloaded": ",".join(unloaded(box.index().entries))}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        control = box.triton_control(route_of(plan.values))
        before = frozenset(box.ready())
        good: list[str] = []
        bad: list[str] = []
        began = time.monotonic()
        going = ""
        for name in unloaded(control.index()):
            if run.cancelled.is_set():
                break
            since = time.time()
            with run.phase("load", f"load {name}"):
                end = load(box, control, name, None, run, min(box.settings.actions.load_timeout, run.left()))
            if end.word == "ok":
                good.append(name)
                continue
            told = load_failure(box, end, name, since, {})
            bad += [told.text, *(f"  {line}" for line in told.lines)]
            going = told.still_going or going
            if crashed(box, since):
                break
        with run.phase("check"):
            gone = lost(control, before, "")
        figures = {"loaded": float(len(good)), "total_s": time.monotonic() - began}
        lines = (*bad, *((f"{', '.join(gone)} dropped out",) if gone else ()))
        text = f"loaded {', '.join(good)}" if good else "nothing was loaded"
        stopped = "; stopped by the operator" if run.cancelled.is_set() else ""
        word = "failed" if bad or gone else "done"
        return Outcome(word, text + stopped, lines, still_going=going, figures=figures)  # type: ignore[arg-type]

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """See Action."""
        names = unloaded(box.index().entries)
        return f"not loaded: {', '.join(names) or 'none'}", "load these" if names else "", ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        return self.run(box, plan, run)


def unloaded(entries: Sequence[IndexEntry]) -> tuple[str, ...]:
    """Models of which nothing is READY, LOADING or UNLOADING, in order of name."""
    busy = {e.name for e in entries if e.state in ("READY", "LOADING", "UNLOADING")}
    return tuple(sorted({e.name for e in entries} - busy))


def _server_look(box: Box, entries: Sequence[IndexEntry], values: Mapping[str, str]) -> ModelLook:
    ready = frozenset((e.name, e.version or "") for e in entries if e.state == "READY")
    return ModelLook("", (), ready, container_of(box), box.route(route_of(values)))
