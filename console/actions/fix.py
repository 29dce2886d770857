"""Mends what a check found, the way the check says, and takes it back.

Only fixes of class B (takes effect now, reversible) and P (persistent, with backup): those of class R and S are shown
by the checklist and done by a person. The check is run again before anything is done and after it, since a command that
ended with 0 has not mended anything yet (host.md 5.2).
"""

from __future__ import annotations

import difflib
import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from console.actions import registry
from console.actions.base import Action, Run
from console.actions.box import Box
from console.checks import run as checklist
from console.clients import deeds, host_files
from console.core.facts import FileFact
from console.core.finding import Deed, Finding, Fix
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.secrets import MASK
from console.core.sign import SIGNS
from console.core.text import decode, one_line
from console.sources.facts_masks import Masks

_BACKUP = Field("backup", "which kept state to put back")
_NONE = Fix("S", ())
SETTLES = 20.0
"""Seconds in which a service that was just started may come to answer, before the check's word counts."""


def look(box: Box, *ids: str) -> dict[str, Finding]:
    """What these checks say now."""
    wanted = [checklist.named(one) for one in ids]
    facts = box.facts(checklist.needs(wanted), any(one.slow for one in wanted))
    return {one.id: checklist.judged(one, facts) for one in wanted}


class _FixAction(Action):
    """What is common to mending and taking back."""

    TARGET = "check"

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """What the check says and would do, without the figures that move, and what is in the files that it touches."""
        return _state(look(box, target.name)[target.name], target)


class Apply(_FixAction):
    """Mend what a check found (classes B and P), then run the check again."""

    NAME = "check.fix"
    PHASES = ("keep", "apply", "check", "back")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        one = checklist.named(target)
        finding = look(box, one.id)[one.id]
        fix = finding.fix or _NONE
        refused = _refusal(box, finding)
        if fix.action and not refused:
            other = registry.find().get(fix.action)
            return other.plan(box, fix.target, other.checked(fix.values))
        return Plan(
            action=self.NAME,
            target=_target(finding, deeds.touched(fix.deeds)),
            values={},
            title=f"Fix {one.id} on {box.host}: {one.title}",
            yes="Fix",
            danger="caution",
            checks=_seen(finding),
            steps=(
                Step("keep", _kept_words(fix, box), "nothing has changed"),
                *(Step("apply", deeds.shown(deed), "what was changed is put back") for deed in fix.deeds),
                Step("check", f"run {', '.join((one.id, *fix.again))} again"),
            ),
            effects=(fix.effect,) if fix.effect else (),
            difference=() if refused else _difference({deed.path: deed.text for deed in fix.deeds if _writes(deed)}),
            by_hand=fix.commands,
            undo=fix.undo or ("there is no way back" if fix.deeds else ""),
            limit=sum(deed.seconds for deed in fix.deeds) + 60.0,
            refused=refused,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        one = plan.target.name
        finding = look(box, one)[one]
        now = _state(finding, plan.target)
        if finding.fix is None or any(plan.target.identity[name] != value for name, value in now.items()):
            raise Refused(f"{_found(finding)}: it is not as it was when the plan was made, nothing was done; plan anew")
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06d}-{one}"
        with run.phase("keep", "keep what is there"):
            deeds.keep(_folder(box), name, one, finding.fix)
            run.keep(backup=name)
        return _applied(box, plan, run, finding.fix, name)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        now = _found(look(box, plan.target.name)[plan.target.name])
        if not any("backup" in line.data for line in journal):
            return f"nothing was touched; {now}", "do it", ""
        return f"it was done in part; {now}", "do all of it again", "put back what was there"

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        name = run.kept().get("backup", "")
        if not name:
            return self.run(box, plan, run)
        was = deeds.kept(_folder(box), name)
        if was is None:
            raise Refused(f"the kept state {name} is gone: nothing was done; look at {plan.target.name}")
        return _applied(box, plan, run, was.fix, name)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        name = run.kept().get("backup", "")
        if not name:
            return Outcome("undone", "nothing was touched")
        return _put_back(box, run, plan.target.name, name, "it was taken back")


class TakeBack(_FixAction):
    """Take a fix back: the files that were there, and what undoes the commands."""

    NAME = "check.unfix"
    FIELDS = (_BACKUP,)
    PHASES = ("back",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        one = checklist.named(target)
        name = values.get("backup", "")
        was = deeds.kept(_folder(box), name)
        if was is None or was.check != one.id:
            raise WrongInput(f"there is no kept state {one_line(name, 80)!r} of {one.id} in {_folder(box)}")
        paths = tuple(file.path for file in was.files)
        texts = {file.path: decode(file.content) for file in was.files if file.kind != "mode"}
        return Plan(
            action=self.NAME,
            target=_target(look(box, one.id)[one.id], paths),
            values={"backup": name},
            title=f"Take the fix of {one.id} back on {box.host}",
            yes="Take back",
            danger="caution",
            steps=(
                *(Step("back", f"{path}: {_before(file)}") for path, file in zip(paths, was.files, strict=True)),
                *(Step("back", deeds.shown(deed)) for deed in was.fix.back),
                Step("back", f"run {one.id} again"),
            ),
            effects=(f"what was there stays in {_folder(box)}/{name}.json",),
            difference=_difference(texts),
            by_hand=tuple(deeds.shown(deed) for deed in was.fix.back),
            undo=f"mend it again: gpuconsole do {Apply.NAME} {one.id}",
            limit=sum(deed.seconds for deed in was.fix.back) + 60.0,
            refused=_elsewhere(box)
            or deeds.rights([*(one.root for one in was.files), *(one.root for one in was.fix.back)]),
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        told = _put_back(box, run, plan.target.name, plan.values["backup"], "")
        return told if told.word == "failed" else Outcome("done", told.text)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        return _found(look(box, plan.target.name)[plan.target.name]), "put all of it back", ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)


def _applied(box: Box, plan: Plan, run: Run, fix: Fix, name: str) -> Outcome:
    box.changing()
    one = plan.target.name
    touched = False
    try:
        for deed in fix.deeds:
            if run.cancelled.is_set():
                return _put_back(box, run, one, name, "it was stopped", programs=touched)
            with run.phase("apply", deeds.shown(deed)):
                said = deeds.do(deed)
                touched = True
                if said:
                    run.note(said)
    except SourceError as error:
        programs = touched or deeds.was_started(error)
        return _put_back(box, run, one, name, f"it was not mended: {error.message}", programs=programs)
    with run.phase("check", f"run {one} again"):
        found = _settled(box, run, one, fix)
    mine = found[one]
    if run.cancelled.is_set() and not _is_fit(mine):
        return _put_back(box, run, one, name, "it was stopped")
    undo = UndoSpec(TakeBack.NAME, one, {"backup": name}, f"take the fix of {one} back") if fix.undo else None
    lines = tuple(_found(other) for other in found.values())
    effect = f"; {fix.effect}" if fix.effect else ""
    no_help = f"it was applied and did not help{' yet' if effect else ''}: {_found(mine)}{effect}"
    text = f"{one} is mended: {mine.text}" if _is_fit(mine) else no_help
    return Outcome("done", text, lines, undo, {"files": _files(plan.target)})


def _settled(box: Box, run: Run, one: str, fix: Fix) -> dict[str, Finding]:
    """What the checks say once what was started has had time to come up."""
    ends = time.monotonic() + (SETTLES if any(deed.kind == "run" for deed in fix.deeds) else 0.0)
    while True:
        found = look(box, one, *fix.again)
        if _is_fit(found[one]) or time.monotonic() >= ends or run.wait(2.0):
            return found


def _put_back(box: Box, run: Run, one: str, name: str, why: str, programs: bool = True) -> Outcome:
    """`programs`: also run what undoes those that were run."""
    box.changing()
    was = deeds.kept(_folder(box), name)
    if was is None:
        return Outcome("failed", f"{why}; the kept state {name} is gone: look at {one}".removeprefix("; "))
    with run.phase("back", "put back what was there"):
        failed = deeds.put_back(was, programs)
        now = _found(look(box, one)[one])
    if failed:
        where = _folder(box) / f"{name}.json"
        text = f"{why}; not all could be put back: {failed[0]}. What was there is in {where}"
        return Outcome("failed", text.removeprefix("; "), (*failed[1:], now))
    return Outcome("undone", f"{why}; all is as before: {now}".removeprefix("; "))


# --------------------------------------------------------------------------------------------------------- plan's words


def _refusal(box: Box, finding: Finding) -> str:
    fix = finding.fix
    if finding.sign in ("ok", "none") or (finding.sign == "note" and fix is None):
        return f"{finding.id} is fit or does not apply ({finding.text}): there is nothing to mend"
    if finding.sign == "unknown":
        settle = f"; {finding.settle} would tell" if finding.settle else ""
        return f"it is not known whether {finding.id} is fit: {finding.text}{settle}"
    if fix is None:
        return f"{finding.id} has no fix that can be told: gpuconsole explain {finding.id}"
    by_hand = "; ".join(fix.commands) or fix.effect
    if fix.kind not in ("B", "P"):
        how = "needs a reboot and is done by hand" if fix.kind == "R" else "is done by hand"
        return f"the fix of {finding.id} {how}: {by_hand}"
    if fix.action:
        return f"the fix holds what is masked here: {by_hand}" if MASK in "".join(fix.values.values()) else ""
    if not fix.deeds:
        return f"the fix of {finding.id} is done by hand: {by_hand}"
    return _elsewhere(box) or deeds.trouble(fix)


def _elsewhere(box: Box) -> str:
    """The deeds are done to this machine: of another one they are only shown."""
    if box.spec.simulated is not None:
        return "this box is simulated: its fixes are only shown"
    return "" if str(box.root) == "/" else f"this box is a copy in {box.root}: its fixes are only shown"


def _is_fit(finding: Finding) -> bool:
    return finding.sign in ("ok", "note", "none")


def _seen(finding: Finding) -> tuple[Check, ...]:
    lines = tuple(Check("note", f"{line.where}: {line.text}") for line in finding.evidence[:6])
    return (Check(finding.sign, f"{finding.id} {finding.text}"), *lines)


def _found(finding: Finding) -> str:
    return f"{SIGNS[finding.sign]} {finding.id} {finding.text}"


def _kept_words(fix: Fix, box: Box) -> str:
    files = deeds.touched((*fix.deeds, *fix.back))
    return f"keep {', '.join(files)} in {_folder(box)}" if files else "note what is there; no file is touched"


def _before(file: deeds.KeptFile) -> str:
    if file.kind == "mode":
        return f"mode {file.mode:04o} again"
    return "put back what was there" if file.kind == "file" else "taken away, as there was none"


def _writes(deed: Deed) -> bool:
    return deed.kind == "write"


def _difference(texts: Mapping[str, str]) -> tuple[str, ...]:
    """From what is in these files to what will be; secrets of both are masked."""
    lines: list[str] = []
    for path, after in texts.items():
        try:
            there = host_files.look(path).kind == "file"
            before = decode(host_files.content(path)) if there else ""
        except SourceError as error:
            lines.append(error.message)
            continue
        old, new = (_shown(path, text).splitlines() for text in (before, after))
        lines += difflib.unified_diff(old, new, path if there else "nothing", path, lineterm="")
    return tuple(one_line(line, 300) for line in lines)


def _shown(path: str, text: str) -> str:
    return Masks().file(path, FileFact("file", text)).text or ""


# --------------------------------------------------------------------------------------------------------------- target


def _folder(box: Box) -> Path:
    return box.state / "backups" / "fixes"


def _target(finding: Finding, paths: Sequence[str]) -> Target:
    target = Target("check", finding.id, {"paths": "\n".join(paths)})
    return msgspec.structs.replace(target, identity={**target.identity, **_state(finding, target)})


def _state(finding: Finding, target: Target) -> dict[str, str]:
    fix = finding.fix or _NONE
    does = (fix.kind, fix.commands, fix.deeds, fix.back, fix.action, fix.target, dict(fix.values))
    told = hashlib.sha256(msgspec.json.encode(does)).hexdigest()[:16]
    return {"sign": finding.sign, "fix": told, "files": _files(target)}


def _files(target: Target) -> str:
    return deeds.digest(path for path in target.identity.get("paths", "").split("\n") if path)
