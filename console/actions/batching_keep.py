"""batching.keep: write what is live into config.pbtxt, by the commit protocol of domain facts 1.4.

The override is live already. The file is written after it, so that it is newer; then a plain load finds that the file
says what is served, does nothing, and ends the override: disk = live. The pinned versions are not written.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from console.actions import batching_apply as steps
from console.actions import model_look
from console.actions.base import Run
from console.actions.batching import model_words, records
from console.actions.batching_apply import LoadFailed
from console.actions.batching_look import BatchingAction, BatchingLook, look, settings_digest, state_of
from console.actions.batching_records import Kept, Record
from console.actions.box import Box
from console.clients import config_file, pbtxt_batching, pbtxt_edit
from console.clients.config_file import ConfigFile, FileRefused
from console.clients.pbtxt_edit import EditError
from console.core.model import SourceError
from console.core.plan import Check, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec
from console.core.text import literal, one_line


class BatchingKeep(BatchingAction):
    """Write the live batching settings into config.pbtxt, comments and order kept, so that a restart keeps them."""

    NAME = "batching.keep"
    PHASES = ("backup", "write", "load", "verify")

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """The edit is made and proven here; nothing is written."""
        found = look(box, target)
        refused, text = _edited(found)
        difference: tuple[str, ...] = ()
        if found.file is not None and found.on_disk is not None and found.on_disk.fields:
            new = text if text is not None else _rewritten(found)
            difference = pbtxt_batching.lines(found.file.text, new)
        fields = ", ".join(found.on_disk.fields) if found.on_disk is not None else ""
        path = "" if found.file is None else literal(str(found.file.path))
        return Plan(
            action=self.NAME,
            target=Target("model", found.name, state_of(found)),
            values={},
            title=f"Keep {found.name}'s {fields or 'batching'} on disk, {box.host}",
            yes="Write",
            danger="safe",
            checks=_checks(found),
            steps=_steps(found, path),
            effects=_effects(found),
            difference=difference,
            undo=f"batching.revert {found.name}: the old text again, and what ran before the change",
            limit=box.settings.actions.load_timeout + 30.0,
            refused=refused,
            wall=time.time(),
        )

    # ----------------------------------------------------------------------------------------------------------- run

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """Backup, write, plain load, look."""
        found = look(box, plan.target.name)
        refused, text = _edited(found)
        file = found.file
        if refused or text is None or file is None:
            raise Refused(f"{refused or found.file_unknown}: nothing was written")
        box.changing()
        data = config_file.encode(text)
        config_file.clear(file)
        try:
            with run.phase("backup"):
                record = _note(box, run, found, file, data)
            if run.cancelled.is_set():
                return Outcome("undone", "stopped before the file was written: nothing has changed")
            with run.phase("write"):
                config_file.replace(file, data)
        except FileRefused as error:
            return Outcome("undone", f"{error}; {found.name}'s settings stay live only")
        return self._load_and_look(box, run, found.name, record)

    def _load_and_look(self, box: Box, run: Run, name: str, record: Record) -> Outcome:
        found = look(box, name)
        ready = tuple(sorted(found.model.all_ready))
        lines: tuple[str, ...] = ()
        seconds = 0.0
        why_not = _why_no_load(found)
        with run.phase("load"):
            if why_not:
                run.note(why_not)
                lines = (why_not,)
            else:
                try:
                    seconds = steps.load(box, run, name, None)
                except (LoadFailed, SourceError) as error:
                    return _load_failed(name, error)
        with run.phase("verify"):
            gone = steps.missing(box, run, ready)
            after = look(box, name)
        if gone or (after.on_disk is not None and after.on_disk.fields):
            what = f"{model_words(gone)} not READY" if gone else "the server does not serve what the file says"
            return Outcome("failed", f"{name}: config.pbtxt is written, but {what}", lines)
        text = "what is served is what the file says" if not why_not else "the file is written, live stays as it is"
        return Outcome(
            "done",
            f"{name}: kept in {record.kept.path if record.kept else 'config.pbtxt'}; {text}",
            (*lines, f"the old text is in {record.kept.backup if record.kept else box.state}"),
            UndoSpec("batching.revert", name, {"record": record.id}, f"{name} back to what ran before, on disk too"),
            state_of(after),
            figures={"load_s": seconds},
        )

    # --------------------------------------------------------------------------------------------------- interrupted

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """backup: the file is old. write: old or new, never torn. load, verify: new; the override may be live still."""
        kept = {name: value for line in journal for name, value in line.data.items() if line.state == "kept"}
        name = plan.target.name
        if "record" not in kept:
            return (f"config.pbtxt of {name} is as before; the settings are live only", "write it", "")
        record = records(box, name).get(kept["record"])
        now = _digest_now(kept["path"])
        if record is None or record.kept is None or now not in (record.kept.before, record.kept.after):
            return (f"{kept['path']} is neither the old nor the new text: somebody wrote it since", "", "")
        if now == record.kept.before:
            return (f"{kept['path']} is as before; the settings are live only", "write it", "")
        return (
            f"{kept['path']} has the new text; the live settings are the same, as an override or from the file",
            "load the model so that the override ends",
            "write the old text again; the settings stay live only",
        )

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """From where it stopped."""
        record = _kept_record(box, plan, run)
        if record is None or record.kept is None or _digest_now(record.kept.path) == record.kept.before:
            return self.run(box, plan, run)
        config_file.clear(_file_of(look(box, plan.target.name)))
        return self._load_and_look(box, run, plan.target.name, record)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """The old text again."""
        box.changing()
        record = _kept_record(box, plan, run)
        file = _file_of(look(box, plan.target.name))
        config_file.clear(file)
        if record is None or record.kept is None or file.digest == record.kept.before:
            return Outcome("undone", f"{literal(str(file.path))} is as before")
        with run.phase("write"):
            put_back(file, record.kept)
        records(box, plan.target.name).change(record.id, lambda one: replace(one, kept=None))
        return Outcome("undone", f"{literal(str(file.path))} has its old text again; the settings stay live only")


def put_back(file: ConfigFile, kept: Kept) -> None:
    """The text from before a keep. Refused where the file is not what was kept, or cannot be written."""
    if file.digest != kept.after:
        raise Refused(f"{literal(str(file.path))} has changed since it was kept: nothing was written")
    try:
        if kept.had_file:
            config_file.replace(file, Path(kept.backup).read_bytes())
        else:
            config_file.remove(file)
    except FileRefused as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise Refused(
            f"the old text in {kept.backup} cannot be read ({error.strerror}): nothing was written"
        ) from error


def _note(box: Box, run: Run, found: BatchingLook, file: ConfigFile, data: bytes) -> Record:
    """The backup, and in the record of the change that is live (or one of its own) how the file was."""
    held = records(box, found.name)
    digest = settings_digest(found.document)
    record = held.get("")
    if record is None or record.after != digest:
        before = steps.as_override(found.plain.document, found.versions)
        record = Record(secrets.token_hex(6), time.time(), found.name, "", before, was_on_disk=False, after=digest)
    backup = config_file.back_up(file, held.folder, f"{record.id}-{secrets.token_hex(3)}.pbtxt")
    had_file = file.data is not None
    kept = Kept(str(file.path), str(backup), had_file, file.digest, config_file.digest(data))
    record = replace(record, kept=kept)
    held.add(record)
    run.keep(record=record.id, path=str(file.path))
    return record


def _kept_record(box: Box, plan: Plan, run: Run) -> Record | None:
    id_ = run.kept().get("record")
    return records(box, plan.target.name).get(id_) if id_ else None


def _digest_now(path: str) -> str:
    try:
        return config_file.digest(Path(path).read_bytes())
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror})") from error


def _file_of(found: BatchingLook) -> ConfigFile:
    if found.file is None:
        raise Refused(f"config.pbtxt of {found.name} cannot be seen: {found.file_unknown}")
    return found.file


def _edited(found: BatchingLook) -> tuple[str, str | None]:
    """Why the file cannot be written ("" = it can), and its new text, proven by parsing."""
    mode = model_look.mode_refusal(found.model)
    if mode:
        return mode, None
    if found.file is None or found.on_disk is None:
        return f"config.pbtxt cannot be edited: {found.file_unknown}", None
    if not found.on_disk.fields:
        return f"{found.name} is served as its file says: there is nothing to keep", None
    try:
        text = pbtxt_edit.edit(found.file.text, _wanted(found))
    except EditError as error:
        return f"{literal(str(found.file.path))} cannot be edited in place: {error}; write it by hand", None
    obstacle = config_file.obstacle(found.file)
    return (obstacle, text) if obstacle else ("", text)


def _wanted(found: BatchingLook) -> object:
    assert found.on_disk is not None
    return pbtxt_batching.with_settings(found.on_disk.message, found.live, found.on_disk.fields)


def _rewritten(found: BatchingLook) -> str:
    return pbtxt_edit.rewrite(_wanted(found))


def _why_no_load(found: BatchingLook) -> str:
    """Why the plain load that ends the override must not be sent; "" = it does nothing but that."""
    if found.waiting:
        return f"no load is sent: it would deploy {found.waiting}; the override ends with the next load or restart"
    if found.on_disk is not None and found.on_disk.others:
        names = ", ".join(one.path for one in found.on_disk.others[:4])
        return f"no load is sent: it would drop what is live only ({names}); the next load or restart does"
    if not found.disk_serves_the_same:
        return "no load is sent: which versions it would serve cannot be told"
    return ""


def _checks(found: BatchingLook) -> tuple[Check, ...]:
    made = [Check("ok", f"{found.name} {', '.join(map(str, found.versions))} READY, settings live")]
    if found.file is not None:
        shown = literal(str(found.file.path))
        obstacle = config_file.obstacle(found.file)
        made.append(Check("fail", obstacle) if obstacle else Check("ok", f"{shown} may be replaced"))
    if found.on_disk is not None and found.on_disk.others:
        names = ", ".join(one.path for one in found.on_disk.others[:4])
        made.append(Check("warn", f"other settings are live only and are not written: {names}"))
    return tuple(made)


def _steps(found: BatchingLook, path: str) -> tuple[Step, ...]:
    why_not = _why_no_load(found)
    load = why_not or "plain load: the file says what is served, so nothing reloads and the override ends"
    call = f"{found.model.route.name} load {found.name}"
    return (
        Step("backup", "the old text goes to the state folder, synced", "nothing was written"),
        Step(
            "write", f"{path}: temporary file outside the model's folder, sync, rename", "the old file is still there"
        ),
        Step("load", load, "the file is written, the settings stay live", () if why_not else (call,)),
        Step("verify", "all that was READY is READY, nothing differs from disk", "it is said"),
    )


def _effects(found: BatchingLook) -> tuple[str, ...]:
    return (
        "nothing stops and nothing reloads; comments, order and unknown fields of the file stay",
        "the pinned version is not written: after a restart the file's own version policy holds"
        + (f", and then {found.waiting} is served" if found.waiting else ""),
    )


def _load_failed(name: str, error: LoadFailed | SourceError) -> Outcome:
    text = f"{name}: config.pbtxt is written and the settings are live, but the load that ends the override failed"
    lines = (one_line(str(error), 400), *getattr(error, "lines", ()))
    still = f"the load of {name}" if isinstance(error, SourceError) and error.kind == "timeout" else ""
    return Outcome("failed", text, lines, still_going=still)
