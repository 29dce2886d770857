"""An action of three phases whose box is a file: each phase writes its name there, so what a killed run left shows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from console.actions.base import Action, Run
from console.actions.box import Box
from console.core.model import SourceError
from console.core.plan import (
    Check,
    Field,
    JournalLine,
    Outcome,
    Plan,
    Refused,
    Step,
    Target,
    UndoSpec,
    WrongInput,
)

PHASES = ("one", "two", "three")


class Steps(Action):
    """Write a word into a file, in three steps."""

    NAME = "test.steps"
    TARGET = "model"
    FIELDS = (
        Field("word", "what is written"),
        Field("password", "what must not be told", secret=True),
        Field("env", "variables, not to be told", kind="map", secret=True),
        Field("hold", "the phase that waits until it is cancelled", kind="choice", choices=PHASES),
        Field("fail", "the phase that fails", kind="choice", choices=PHASES),
        Field("raises", "what is raised there", kind="choice", choices=("source", "bug", "refused")),
        Field("danger", "a name is to be typed", kind="bool"),
        Field("limit", "seconds", kind="int", low=1, high=100, unit="s"),
    )
    PHASES = PHASES

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        path = Path(target)
        if not path.is_absolute():
            raise WrongInput(f"{target!r} is no absolute path")
        text = _read(path)
        return Plan(
            action=self.NAME,
            target=Target("model", target, {"text": text}),
            values=values,
            title=f"Write {values.get('word', '')} with {values.get('password', 'nothing')}",
            yes="Write",
            danger="danger" if values.get("danger") == "true" else "safe",
            checks=(Check("ok", "the file is there"),),
            steps=tuple(Step(phase, f"write {phase}", "write it back") for phase in PHASES),
            effects=("nothing stops",),
            by_hand=(f"login --password={values.get('password', '')}",),
            undo="the old text is written back",
            limit=float(values.get("limit", 60)),
            refused="the file is full of it" if text == "full" else "",
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        return {"text": _read(Path(target.name))}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        path = Path(plan.target.name)
        run.keep(before=_read(path), word=plan.values.get("word", "new"))
        for phase in PHASES:
            with run.phase(phase):
                path.write_text(phase)
                run.note(f"the password is {plan.values.get('password')}")
                self._trouble(plan, phase)
                while plan.values.get("hold") == phase:
                    if run.wait(0.05):
                        path.write_text(run.kept()["before"])
                        return Outcome("undone", "stopped, and written back")
        path.write_text(plan.values.get("word", "new"))
        return self._done(plan, run)

    def _trouble(self, plan: Plan, phase: str) -> None:
        if plan.values.get("fail") == phase:
            secret = plan.values.get("password", "")
            raises = plan.values.get("raises", "source")
            if raises == "refused":
                raise Refused("the server does not want it")
            raise (
                SourceError("timeout", f"no answer to {secret}", "look at it")
                if raises == "source"
                else KeyError(secret)
            )

    def _done(self, plan: Plan, run: Run) -> Outcome:
        kept = run.kept()
        return Outcome(
            "done",
            f"written {kept['word']}",
            lines=(f"with {plan.values.get('password')}",),
            undo=UndoSpec(self.NAME, plan.target.name, {"word": kept["before"]}, f"{kept['before']} again"),
            left={"text": kept["word"]},
            figures={"gap_s": 0.0},
        )

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        text = _read(Path(plan.target.name))
        before = next((line.data["before"] for line in journal if "before" in line.data), None)
        if before is None:
            return (f"it holds {text!r}", "", "")
        return (f"it holds {text!r}", "write the word", f"write {before!r} back")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with run.phase("three"):
            Path(plan.target.name).write_text(run.kept()["word"])
            while run.kept()["word"] == "hangs":
                time.sleep(0.05)
        return self._done(plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with run.phase("one"):
            Path(plan.target.name).write_text(run.kept()["before"])
        return Outcome("done", "written back")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise WrongInput(f"there is no file {path}") from None
