"""batching.revert: back to what ran before the last batching change of a model, live and, where it was kept, on disk.

Where the file says what ran before, the way back is the file: written anew (or its time set to now) it is newer than
the override, so a plain load takes it and the override is gone (domain facts 1.4). Else the configuration that ran is
loaded as an override again, with the versions pinned that serve now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from console.actions import batching_apply as steps
from console.actions import model_look
from console.actions.base import Run
from console.actions.batching import model_words, records
from console.actions.batching_apply import LoadFailed
from console.actions.batching_keep import put_back
from console.actions.batching_look import BatchingAction, BatchingLook, look, settings_digest, state_of
from console.actions.batching_records import Record
from console.actions.box import Box
from console.clients import config_file, pbtxt_batching
from console.clients.config_file import FileRefused
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec
from console.core.text import literal, one_line
from console.planning import batching_change as change

FILE, OVERRIDE, NO_LOAD = "file", "override", "none"


class BatchingRevert(BatchingAction):
    """Go back to what ran before the last batching change of a model, on disk too where it was kept."""

    NAME = "batching.revert"
    FIELDS = (Field("record", "which change: its record; without it the newest one"),)
    PHASES = ("file", "load", "verify")

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """Refused where there is nothing to go back to."""
        found = look(box, target)
        record = records(box, target).get(values.get("record", "").strip())
        if record is None:
            raise Refused(f"no batching change of {target} by this console is noted here: nothing to go back to")
        refused = _refusal(found, record)
        way = _way(found, record)
        before = json.loads(record.before)
        names = change.changed(found.live, change.read(before))
        in_place = change.is_in_place(names, found.facts, policy_changes=False) or not names
        kept = record.kept
        return Plan(
            action=self.NAME,
            target=Target("model", found.name, state_of(found)),
            values={"record": record.id},
            title=f"{found.name} back{f' from {record.text}' if record.text else ''} on {box.host}",
            yes="Revert",
            danger="safe" if in_place else "caution",
            note="in place" if in_place else "one full reload",
            checks=(
                Check("ok", f"{found.name} {', '.join(map(str, found.versions))} READY, as that change left it"),
                model_look.route_check(found.model),
            ),
            steps=(
                Step("file", _file_text(found, record, way), "nothing has changed"),
                Step("load", _load_text(found, way), "the present copy serves on", () if way == NO_LOAD else ("load",)),
                Step("verify", "all that was READY is READY, the settings are those of before", "it is said"),
            ),
            effects=(
                "requests in flight and waiting finish on the present copy; none is refused",
                "afterwards live is what the file says"
                if way == FILE
                else "live only, as it was before: a restart goes back to what is on disk",
            ),
            difference=pbtxt_batching.difference(found.plain.document, before),
            undo="" if kept is not None else f"batching.set {found.name} with the same values",
            limit=box.settings.actions.load_timeout + 30.0,
            refused=refused,
            wall=time.time(),
        )

    # ----------------------------------------------------------------------------------------------------------- run

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """What the record says."""
        record = records(box, plan.target.name).get(plan.values["record"])
        if record is None:
            raise Refused("the record of that change is gone: nothing was done")
        return go_back(box, run, record)

    # --------------------------------------------------------------------------------------------------- interrupted

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """file: old or new text, never torn. load: what was or what ran before. verify: back."""
        kept = {name: value for line in journal for name, value in line.data.items() if line.state == "kept"}
        name = plan.target.name
        if "record" not in kept:
            return (f"nothing was done: {name} is as the change left it", "go back", "")
        return (f"{name} may be back or not, live and on disk", "go on until it is back", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Each step is done again where it is not done yet."""
        if "record" not in run.kept():
            return self.run(box, plan, run)
        box.changing()
        found = look(box, plan.target.name)
        record = records(box, found.name).get(plan.values["record"])
        if record is None:
            raise Refused("the record of that change is gone: look at the model and change it anew")
        way = run.kept()["way"]
        with run.phase("file"):
            _put_file(found, record, way)
        return _load_and_look(box, run, found, record, way)


def go_back(box: Box, run: Run, record: Record) -> Outcome:
    """The file first, so that it is newer than the override, then the load."""
    box.changing()
    found = look(box, record.model)
    way = _way(found, record)
    run.keep(record=record.id, way=way, ready=json.dumps(sorted(found.model.all_ready)))
    with run.phase("file"):
        _put_file(found, record, way)
    return _load_and_look(box, run, found, record, way)


def _put_file(found: BatchingLook, record: Record, way: str) -> None:
    file = found.file
    if file is None:
        if record.kept is not None:
            raise Refused(f"config.pbtxt cannot be seen: {found.file_unknown}: nothing was done")
        return
    config_file.clear(file)
    if record.kept is not None and file.digest != record.kept.before:
        put_back(file, record.kept)
    elif way == FILE and file.data is not None:
        try:
            config_file.touch(file)
        except FileRefused as error:
            raise Refused(f"{error}: nothing was done") from error


def _load_and_look(box: Box, run: Run, found: BatchingLook, record: Record, way: str) -> Outcome:
    name, seconds = found.name, 0.0
    with run.phase("load"):
        if way != NO_LOAD:
            config = None
            if way == OVERRIDE:
                config = steps.as_override(json.loads(record.before), found.versions)
            try:
                seconds = steps.load(box, run, name, config)
            except (LoadFailed, SourceError) as error:
                return _load_failed(name, record, error)
    ready = tuple((model, version) for model, version in json.loads(run.kept()["ready"]))
    with run.phase("verify"):
        gone = steps.missing(box, run, ready)
        after = look(box, name)
    stale = change.came_out(after.plain.document, change.read(json.loads(record.before)), change.NAMES)
    if gone or stale:
        what = f"{model_words(gone)} not READY" if gone else f"{', '.join(stale)} not as before"
        return Outcome("failed", f"{name}: gone back, but {what}")
    records(box, name).reverted(record.id)
    undo = None
    if record.kept is None and record.values:
        undo = UndoSpec("batching.set", name, record.values, f"{name} {record.text} again")
    text = "as on disk" if after.is_as_on_disk else "live only, as before"
    return Outcome(
        "done",
        f"{name} is back{f' from {record.text}' if record.text else ''} in {seconds:.1f} s, {text}",
        (f"{record.kept.path} has its old text again",) if record.kept is not None else (),
        undo,
        state_of(after),
        figures={"load_s": seconds},
    )


def _way(found: BatchingLook, record: Record) -> str:
    """How live goes back: by the file, by an override, or not at all since it never changed."""
    if settings_digest(found.plain.document) == settings_digest(json.loads(record.before)):
        return NO_LOAD
    writable = found.file is not None and not config_file.obstacle(found.file)
    if record.was_on_disk and writable and found.disk_serves_the_same and _file_says(found, record):
        return FILE
    return OVERRIDE


def _file_says(found: BatchingLook, record: Record) -> bool:
    """True when the file, as it is or will be again, means what ran before."""
    if found.on_disk is None or found.on_disk.others:
        return False
    if record.kept is not None:
        return True
    was = change.read(json.loads(record.before))
    return all(getattr(found.on_disk.batching, name) == getattr(was, name) for name in found.on_disk.fields)


def _refusal(found: BatchingLook, record: Record) -> str:
    mode = model_look.mode_refusal(found.model)
    if mode:
        return mode
    if record.reverted:
        return "that change was taken back already"
    if record.after and record.after != settings_digest(found.document):
        return (
            f"{found.name} is no longer served as that change left it (a restart, a reload or another change came "
            "since): change what you want anew"
        )
    if record.kept is not None:
        if found.file is None:
            return f"config.pbtxt cannot be seen: {found.file_unknown}"
        if found.file.digest != record.kept.after:
            return f"{literal(str(found.file.path))} has changed since it was kept: edit it by hand"
        return config_file.obstacle(found.file)
    return ""


def _file_text(found: BatchingLook, record: Record, way: str) -> str:
    shown = "config.pbtxt" if found.file is None else literal(str(found.file.path))
    if record.kept is not None:
        return f"write the old text of {shown} again" if record.kept.had_file else f"remove {shown}: there was none"
    if way == FILE:
        return f"set the time of {shown} to now, so that it is newer than the override; its text stays"
    return f"{shown} stays as it is"


def _load_text(found: BatchingLook, way: str) -> str:
    if way == NO_LOAD:
        return "no load: what is live did not change"
    what = "plain: the file is taken" if way == FILE else "with the configuration that ran before, versions pinned"
    return f"load over {found.model.route.name}, {what}"


def _load_failed(name: str, record: Record, error: LoadFailed | SourceError) -> Outcome:
    on_disk = "; the file has its old text" if record.kept is not None else ""
    text = f"{name} could not be loaded as it was before{on_disk}: the present copy serves on"
    still = f"the load of {name}" if isinstance(error, SourceError) and error.kind == "timeout" else ""
    return Outcome("failed", text, (one_line(str(error), 400), *getattr(error, "lines", ())), still_going=still)
