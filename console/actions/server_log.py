"""Triton's log, more verbose for a time and back by itself.

The wait is a phase of the detached runner: neither a lost terminal nor a closed console leaves the log verbose, and
after a kill of the runner `undo` sets it back. A restart of Triton does so too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from console.actions.base import Action, Run
from console.actions.box import Box
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Step, Target

LEVEL, MINUTES = 1, 5
_LOOK = 1.0
_NOTE_EVERY = 10
_SPARE = 30.0


class Verbose(Action):
    """Make Triton's log verbose for a time, then set it back."""

    NAME = "log.verbose"
    TARGET = ""
    FIELDS = (
        Field("level", f"log_verbose_level; {LEVEL} where not given", "int", low=1, high=9),
        Field("minutes", f"how long; {MINUTES} where not given", "int", low=1, high=240, unit="min"),
    )
    PHASES = ("raise", "wait", "back")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        level, minutes = int(values.get("level") or LEVEL), int(values.get("minutes") or MINUTES)
        before = box.triton_settings_view().verbosity()
        url = box.address().url
        already = f"the log's verbosity is {before} already: nothing to raise to {level}" if before >= level else ""
        return Plan(
            action=self.NAME,
            target=Target("server", url, {"verbosity": str(before)}),
            values={"level": str(level), "minutes": str(minutes)},
            title=f"Log verbosity {before} → {level} for {minutes} min on {box.host}",
            yes="Raise",
            danger="safe",
            checks=(Check("ok", f"verbosity now {before}"),),
            steps=(
                Step("raise", f"log_verbose_level {level}", "nothing has changed", ("POST /v2/logging",)),
                Step("wait", f"{minutes} min"),
                Step("back", f"log_verbose_level {before}", "said, with the command", ("POST /v2/logging",)),
            ),
            effects=(
                "requests go on; each one writes lines into the log, which grows with the traffic",
                f"it goes back to {before} by itself after {minutes} min, also when this terminal is lost",
            ),
            by_hand=(_by_hand(url, level), _by_hand(url, before)),
            undo="stopping it sets it back at once",
            limit=minutes * 60 + _SPARE,
            refused=already,
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        return {"verbosity": str(box.triton_settings_view().verbosity())}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        level, before = int(plan.values["level"]), int(plan.target.identity["verbosity"])
        run.keep(before=str(before), level=str(level))
        settings = box.triton_settings()
        try:
            with run.phase("raise", f"verbosity {level}"):
                now = settings.set_verbosity(level)
        except SourceError as error:
            return Outcome("undone", f"nothing was changed: {error.message}")
        if now != level:
            return Outcome("failed", f"Triton took verbosity {level} and now says {now}")
        with run.phase("wait", f"verbose for {plan.values['minutes']} min"):
            stopped = _wait(int(plan.values["minutes"]) * 60, run)
        outcome = self._back(box, plan, run, before, level)
        if outcome.word != "undone" or stopped:
            return outcome
        return Outcome("done", f"the log was verbose ({level}) for {plan.values['minutes']} min; {outcome.text}")

    def _back(self, box: Box, plan: Plan, run: Run, before: int, level: int) -> Outcome:
        try:
            with run.phase("back", f"verbosity {before}"):
                settings = box.triton_settings()
                now = settings.verbosity()
                if now not in (level, before):
                    return Outcome("undone", f"somebody has set verbosity {now} meanwhile: it is left so")
                now = settings.set_verbosity(before)
        except SourceError as error:
            text = f"verbosity was not set back to {before} ({error.message}); a restart of Triton does it too"
            return Outcome("failed", text, lines=(f"by hand: {_by_hand(plan.target.name, before)}",))
        return Outcome("undone", f"verbosity is {now} again", left={"verbosity": str(now)})

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        before, level = plan.target.identity["verbosity"], plan.values["level"]
        now = self.state(box, plan.target)["verbosity"]
        if now != level:
            return f"the log's verbosity is {now}", "", ""
        return f"the log is still verbose ({now})", "", f"set verbosity back to {before}"

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self._back(box, plan, run, int(plan.target.identity["verbosity"]), int(plan.values["level"]))


def _wait(seconds: int, run: Run) -> bool:
    """True when it was stopped before its time."""
    for second in range(seconds):
        if second % _NOTE_EVERY == 0:
            left = seconds - second
            run.note(f"{left // 60}:{left % 60:02d} left")
        if run.wait(_LOOK):
            return True
    return False


def _by_hand(url: str, level: int) -> str:
    return f"curl -X POST -d '{{\"log_verbose_level\":{level}}}' {url}/v2/logging"
