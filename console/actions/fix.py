"""Mends what a check found, the way the check says, and takes it back.

Only fixes of class B (takes effect now, reversible) and P (persistent, with backup): those of class R and S are shown
by the checklist and done by a person. The check is run again before anything is done and after it, since a command that
ended with 0 has not mended anything yet (host.md 5.2).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from console.actions import registry
from console.actions.base import Action, Run
from console.actions.box import Box
from console.checks import run as checklist
from console.clients import deeds
from console.core.finding import Deed, Finding, Fix
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line

_BACKUP = Field("backup", "which kept state to put back")
_LEFT = {"fail": "✗", "warn": "▲", "unknown": "?", "ok": "●", "note": "●", "none": "–"}
SETTLES = 20.0
"""Seconds in which a service that was just started may come to answer, before the check's word counts."""


def look(box: Box, *ids: str) -> dict[str, Finding]:
    """What these checks say now."""
    wanted = [checklist.named(one) for one in ids]
    facts = box.facts(checklist.needs(wanted))
    return {one.id: checklist.judged(one, facts) for one in wanted}


class _FixAction(Action):
    """What is common to mending and taking back."""

    TARGET = "check"

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """What the check says and would do, without the figures that move, and what is in the files that it touches."""
        finding = look(box, target.name)[target.name]
        commands = finding.fix.commands if finding.fix is not None else ()
        return {"sign": finding.sign, "commands": "\n".join(commands), "files": _files(target)}


class Apply(_FixAction):
    """Mend what a check found (classes B and P), then run the check again."""

    NAME = "check.fix"
    PHASES = ("keep", "apply", "check")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        one = checklist.named(target)
        finding = look(box, one.id)[one.id]
        fix = finding.fix
        if fix is not None and fix.action:
            other = registry.find().get(fix.action)
            return other.plan(box, fix.target, other.checked(fix.values))
        refused = _refusal(finding, fix)
        steps = fix.deeds if fix is not None else ()
        refused = refused or deeds.rights(steps)
        return Plan(
            action=self.NAME,
            target=_target(one.id, finding, deeds.touched(steps)),
            values={},
            title=f"Fix {one.id} on {box.host}: {one.title}",
            yes="Fix",
            danger="caution",
            checks=_seen(finding),
            steps=(
                Step("keep", _kept_words(steps, box), "nothing has changed"),
                *(Step("apply", deeds.shown(deed), "what was changed is put back") for deed in steps),
                Step("check", f"run {', '.join((one.id, *(fix.again if fix else ())))} again"),
            ),
            effects=tuple(line for line in (fix.effect,) if line) if fix is not None else (),
            difference=_difference(steps),
            by_hand=fix.commands if fix is not None else (),
            undo=fix.undo or "there is no way back" if fix is not None else "",
            limit=sum(deed.seconds for deed in steps) + 60.0,
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        one = plan.target.name
        fix = look(box, one)[one].fix
        if fix is None or not fix.deeds:
            raise Refused(f"{one} has nothing to mend any more: nothing was done")
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06d}-{one}"
        with run.phase("keep", "keep what is there"):
            deeds.keep(_folder(box), name, one, fix.deeds, fix.back)
            run.keep(backup=name, fix=msgspec.json.encode(fix).decode())
        return _applied(box, plan, run, fix, name)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        facts = {name: value for line in journal if line.state == "kept" for name, value in line.data.items()}
        now = _found(look(box, plan.target.name)[plan.target.name])
        if "backup" not in facts:
            return f"nothing was touched; {now}", "do it", ""
        return f"it was done in part; {now}", "do all of it again", "put back the files that were there"

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        facts = run.kept()
        if "backup" not in facts:
            return self.run(box, plan, run)
        return _applied(box, plan, run, msgspec.json.decode(facts["fix"], type=Fix), facts["backup"])

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        facts = run.kept()
        if "backup" not in facts:
            return Outcome("undone", "nothing was touched")
        with run.phase("apply", "put back what was there"):
            return _put_back(box, plan.target.name, facts["backup"], "it was taken back")


class TakeBack(_FixAction):
    """Take a fix back: the files that were there, and what undoes the commands."""

    NAME = "check.unfix"
    FIELDS = (_BACKUP,)
    PHASES = ("apply",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        one = checklist.named(target)
        was = deeds.kept(_folder(box), values.get("backup", ""))
        if was is None or was.check != one.id:
            raise WrongInput(f"there is no kept state {one_line(values.get('backup', ''), 80)!r} of {one.id}")
        paths = tuple(file.path for file in was.files)
        files = ", ".join(paths) or "no file"
        return Plan(
            action=self.NAME,
            target=_target(one.id, look(box, one.id)[one.id], paths),
            values=dict(values),
            title=f"Take the fix of {one.id} back on {box.host}",
            yes="Take back",
            danger="caution",
            steps=(
                Step("apply", f"put back {files}", f"what was there stays in {_folder(box)}"),
                *(Step("apply", deeds.shown(deed)) for deed in was.back),
                Step("check", f"run {one.id} again"),
            ),
            by_hand=tuple(deeds.shown(deed) for deed in was.back),
            undo=f"mend it again: gpuconsole do {Apply.NAME} {one.id}",
            limit=sum(deed.seconds for deed in was.back) + 60.0,
            refused=deeds.rights((*was.back, *(Deed("write", path=path) for path in paths))),
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        with run.phase("apply", "put back what was there"):
            told = _put_back(box, plan.target.name, plan.values["backup"], "")
        return told if told.word == "failed" else Outcome("done", told.text)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        return _found(look(box, plan.target.name)[plan.target.name]), "put all of it back", ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)


def _applied(box: Box, plan: Plan, run: Run, fix: Fix, name: str) -> Outcome:
    box.changing()
    one = plan.target.name
    try:
        for deed in fix.deeds:
            with run.phase("apply", deeds.shown(deed)):
                said = deeds.do(deed)
                if said:
                    run.note(said)
    except SourceError as error:
        return _put_back(box, one, name, f"it was not mended: {error.message}")
    with run.phase("check", f"run {one} again"):
        found = _settled(box, run, one, fix.again)
    mine = found[one]
    undo = UndoSpec(TakeBack.NAME, one, {"backup": name}, f"take the fix of {one} back") if fix.undo else None
    lines = tuple(f"{_LEFT[other.sign]} {other.id} {other.text}" for other in found.values())
    helped = mine.sign in ("ok", "note", "none")
    text = f"{one} is mended: {mine.text}" if helped else f"it was applied and did not help: {_found(mine)}"
    return Outcome("done", text, lines, undo, {"files": _files(plan.target)})


def _settled(box: Box, run: Run, one: str, again: tuple[str, ...]) -> dict[str, Finding]:
    """What the checks say once what was started has had time to come up."""
    ends = time.monotonic() + SETTLES
    while True:
        found = look(box, one, *again)
        if found[one].sign in ("ok", "note", "none") or time.monotonic() > ends or run.wait(2.0):
            return found


def _put_back(box: Box, one: str, name: str, why: str) -> Outcome:
    box.changing()
    was = deeds.kept(_folder(box), name)
    if was is None:
        return Outcome("failed", f"{why}; the kept state {name} is gone: look at {one}".removeprefix("; "))
    try:
        deeds.put_back(was)
    except SourceError as error:
        where = _folder(box) / f"{name}.json"
        text = f"{why}; putting back failed too: {error.message}. What was there is in {where}"
        return Outcome("failed", text.removeprefix("; "))
    now = _found(look(box, one)[one])
    return Outcome("undone", f"{why}; all is as before: {now}".removeprefix("; "))


def _refusal(finding: Finding, fix: Fix | None) -> str:
    if finding.sign in ("ok", "note"):
        return f"{finding.id} is fit ({finding.text}): there is nothing to mend"
    if finding.sign in ("none", "unknown") and fix is None:
        settle = f"; {finding.settle} would tell" if finding.settle else ""
        return f"{finding.id}: {finding.text}{settle}"
    if fix is None:
        return f"{finding.id} has no fix that can be told: gpuconsole explain {finding.id}"
    if fix.kind in ("R", "S"):
        how = "needs a reboot and is done by hand" if fix.kind == "R" else "is done by hand"
        return f"the fix of {finding.id} {how}: {'; '.join(fix.commands) or fix.effect}"
    return "" if fix.deeds else f"the fix of {finding.id} is done by hand: {'; '.join(fix.commands)}"


def _seen(finding: Finding) -> tuple[Check, ...]:
    lines = tuple(Check("note", f"{line.where}: {line.text}") for line in finding.evidence[:6])
    return (Check(finding.sign, f"{finding.id} {finding.text}"), *lines)


def _found(finding: Finding) -> str:
    return f"{_LEFT[finding.sign]} {finding.id} {finding.text}"


def _kept_words(steps: tuple[Deed, ...], box: Box) -> str:
    files = deeds.touched(steps)
    return f"keep {', '.join(files)} in {_folder(box)}" if files else "note what is there; no file is touched"


def _difference(steps: tuple[Deed, ...]) -> tuple[str, ...]:
    """The whole new text of files that are written."""
    found: list[str] = []
    for deed in steps:
        if deed.kind == "write":
            found.append(f"  {deed.path}")
            found += [f"+ {one_line(line, 300)}" for line in deed.text.splitlines()]
    return tuple(found)


def _folder(box: Box) -> Path:
    return box.state / "backups" / "fixes"


def _target(one: str, finding: Finding, paths: Sequence[str]) -> Target:
    commands = finding.fix.commands if finding.fix is not None else ()
    identity = {"sign": finding.sign, "commands": "\n".join(commands), "paths": "\n".join(paths)}
    return Target("check", one, {**identity, "files": deeds.digest(paths)})


def _files(target: Target) -> str:
    paths = [path for path in target.identity.get("paths", "").split("\n") if path]
    return deeds.digest(paths)
