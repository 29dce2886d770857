"""Pin a model to versions in its config.pbtxt, and start a server that went down: the way out of a crash loop.

A version that crashes the server is loaded again from disk by each start. An override is lost with the server, so only
the file on disk can keep that version out.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from console.actions import powering
from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.model_look import container_of
from console.actions.target import ContainerView, is_running
from console.clients import config_file, pbtxt, pbtxt_edit, triton_config
from console.clients.config_file import ConfigFile, FileRefused
from console.clients.podman_control import PodmanRefusal
from console.core.model import ContainerState, DiskModel, SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line, whole_number
from console.core.triton_command import flag_value

BACKUPS = "backups"
ENDING = ".config.pbtxt"


class PinFile(Struct, frozen=True):
    """The file as it is, and the text that it would get."""

    file: ConfigFile
    text: str
    difference: tuple[str, ...]
    obstacle: str
    """Why it cannot be written; "" = it can."""


def pin_file(box: Box, name: str, versions: Sequence[int]) -> PinFile:
    """Read and edit, write nothing. Refused with the reason where the file is not to be had or edited."""
    try:
        file = _file(box, name)
        message = pbtxt.parse(file.text.removeprefix(pbtxt_edit.BOM)).message
        wanted = type(message)()
        wanted.CopyFrom(message)
        wanted.ClearField("version_policy")
        wanted.version_policy.specific.versions.extend(sorted(versions))
        text = pbtxt_edit.edit(file.text, wanted)
    except (FileRefused, pbtxt.PbtxtError, pbtxt_edit.EditError) as error:
        raise Refused(f"config.pbtxt of {name} cannot be edited: {error}") from error
    return PinFile(file, text, _difference(file.text, text), config_file.obstacle(file))


def _file(box: Box, name: str) -> ConfigFile:
    """The one that Triton reads. FileRefused."""
    disk = _disk(box, name)
    container = container_of(box)
    config_name = flag_value(container.command, "model-config-name") if container is not None else None
    return config_file.read(str(Path(disk.path).parent), name, config_name or "")


def _disk(box: Box, name: str) -> DiskModel:
    found = [model for model in box.repository().models if model.name == name]
    if len(found) != 1:
        why = "two repositories hold it" if found else "no folder of that name is in the repository"
        raise WrongInput(f"{one_line(name, 80)} cannot be pinned on disk: {why}")
    return found[0]


def _difference(old: str, new: str) -> tuple[str, ...]:
    lines = difflib.ndiff(old.splitlines(), new.splitlines())
    return tuple(one_line(line, 160) for line in lines if line[:2] in ("- ", "+ "))


def write_pin(box: Box, name: str, pin: PinFile, run: Run) -> Path:
    """Write it, with a backup; where that is. Refused when it cannot be written."""
    box.changing()
    if pin.obstacle:
        raise Refused(f"config.pbtxt of {name} cannot be written: {pin.obstacle}")
    try:
        stamp = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{time.time_ns() % 10**9:09d}"
        backup = config_file.back_up(pin.file, box.state / BACKUPS, f"{name}.{stamp}{ENDING}")
        run.keep(backup=backup.name)
        config_file.replace(pin.file, config_file.encode(pin.text))
    except FileRefused as error:
        raise Refused(str(error)) from error
    return backup


def _undo(name: str, backup: Path) -> UndoSpec:
    return UndoSpec(Unpin.NAME, name, {"backup": backup.name}, f"config.pbtxt of {name} as it was")


def start_again(box: Box, run: Run, container: str, models: frozenset[tuple[str, str]]) -> tuple[str, float | None]:
    """Start the container where it is down, and wait for the models: what is wrong in the end ("" = nothing), and the
    seconds it took. SourceError, PodmanRefusal."""
    with ContainerView(box, container) as view:
        state = view.known()
        if not is_running(state):
            _start(box, view, state, run)
        ready = powering.wait_ready(box, view, models, run, box.settings.actions.start_timeout)
        return ("" if ready.good else ready.words), ready.seconds


def _start(box: Box, view: ContainerView, state: ContainerState, run: Run) -> None:
    if state.unit:
        powering.through_unit(box, view, state, "start", run)
        return
    control = box.podman()
    try:
        powering.start(control, state.id, powering.published(state), run, box.root)
    finally:
        control.close()


def recover(
    box: Box,
    run: Run,
    container: str,
    name: str,
    versions: Sequence[int],
    others: Sequence[tuple[str, str]],
    trouble: str,
    lines: list[str],
    figures: Mapping[str, float],
    good: Literal["failed", "done"] = "failed",
) -> Outcome:
    """After a crash, with consent: pin the versions that served, and start the server. `good` is the outcome's word
    where that went well: the swap itself has failed all the same. Never raises."""
    began = time.monotonic()
    serving = frozenset({(name, str(version)) for version in versions} | set(others))
    shown = ", ".join(str(version) for version in versions)
    try:
        backup = write_pin(box, name, pin_file(box, name, versions), run)
        lines.append(f"config.pbtxt of {name} now says specific {shown}; as it was: {backup}")
        wrong, took = start_again(box, run, container, serving)
    except (Refused, WrongInput, SourceError, PodmanRefusal) as error:
        return Outcome("failed", f"{trouble}; recovery failed: {error}", tuple(lines), figures=figures)
    measured = {**figures, "down_s": time.monotonic() - began}
    if took is not None:
        measured["start_s"] = took
    if wrong:
        return Outcome("failed", f"{trouble}; started again: {wrong}", tuple(lines), figures=measured)
    return Outcome(
        good,
        f"{trouble}; {name} {shown} serves again, pinned in config.pbtxt",
        tuple(lines),
        figures=measured,
    )


class Pin(Action):
    """Pin a model to a version in its config.pbtxt, and start the server where it is down."""

    NAME = "model.pin"
    TARGET = "model"
    FIELDS = (Field("version", "the version that a start or a load shall serve", "int", low=1),)
    PHASES = ("pin", "start")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        version = _version(box, target, values)
        pin = pin_file(box, target, (version,))
        container = container_of(box)
        down = container is not None and container.state != "running"
        start = Step("start", "start the container and wait for its models", "its log tells why")
        return Plan(
            action=self.NAME,
            target=Target("model", target, self.state(box, Target("model", target))),
            values={"version": str(version)},
            title=f"Pin {target} to version {version} in config.pbtxt"
            + (f", start container {container.name}" if container is not None and down else ""),
            yes="Pin",
            danger="caution",
            checks=(
                Check("ok", f"version {version} is on disk"),
                Check("fail", pin.obstacle) if pin.obstacle else Check("ok", f"{pin.file.path} can be written"),
            ),
            steps=(
                Step("pin", f"write version_policy specific {version} to {pin.file.path}", "the file stays as it was"),
                *((start,) if down else ()),
            ),
            effects=(
                "what serves now stays as it is: the file counts at the next load, reload or start"
                if not down
                else "nothing serves now; the start loads this version and no other",
                f"a newer version of {target} is not deployed by itself any more until the pin is taken out",
            ),
            difference=pin.difference,
            undo="the file as it was; what serves then stays as it is",
            limit=box.settings.actions.start_timeout + powering.PORT_PATIENCE,
            refused=f"config.pbtxt of {target} cannot be written: {pin.obstacle}" if pin.obstacle else "",
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """The file's digest, and the container that a start would start."""
        disk = _disk(box, target.name)
        container = container_of(box)
        where = {"container": "none" if container is None else f"{container.id[:12]}, {container.state}"}
        config_name = flag_value(container.command, "model-config-name") if container is not None else None
        path = triton_config.file_of(disk.path, config_name or "")
        try:
            return {"file": config_file.digest(path.read_bytes()), **where}
        except OSError:
            return {"file": "", **where}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        name, version = plan.target.name, int(plan.values["version"])
        undo: UndoSpec | None = None
        with run.phase("pin"):
            pin = pin_file(box, name, (version,))
            lines = ["it said so already"]
            if pin.text != pin.file.text:
                backup = write_pin(box, name, pin, run)
                lines, undo = [f"as it was: {backup}"], _undo(name, backup)
        if all(step.phase != "start" for step in plan.steps):
            left = self.state(box, plan.target)
            return Outcome("done", f"{name} is pinned to version {version} on disk", tuple(lines), undo, left)
        with run.phase("start"):
            container = box.container().name
            wrong, took = start_again(box, run, container, frozenset({(name, str(version))}))
        figures = {} if took is None else {"start_s": took}
        left = self.state(box, plan.target)
        if wrong:
            text = f"{name} is pinned to version {version}, but {wrong}"
            return Outcome("failed", text, tuple(lines), undo, left, figures=figures)
        text = f"{name} {version} serves, pinned in config.pbtxt"
        return Outcome("done", text, tuple(lines), undo, left, figures=figures)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """The file is old or new, never torn; what is missing is done by doing it all again."""
        pin = pin_file(box, plan.target.name, (int(plan.values["version"]),))
        written = any("backup" in line.data for line in journal) and pin.text == pin.file.text
        now = "config.pbtxt is pinned" if pin.text == pin.file.text else "config.pbtxt is as it was"
        back = "put the file back as it was" if written else ""
        return now, "write the pin where it is missing, and start the container where it is down", back

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        with run.phase("pin", "put the file back"):
            old = _kept_text(box, plan.target.name, run.kept().get("backup", ""))
            write_pin(box, plan.target.name, old, run)
        return Outcome("undone", f"config.pbtxt of {plan.target.name} is as it was", left=self.state(box, plan.target))


class Unpin(Action):
    """Put the text of a model's config.pbtxt back that was kept when it was pinned."""

    NAME = "model.unpin"
    TARGET = "model"
    FIELDS = (Field("backup", "which kept text to put back; `undo` of a pin knows it"),)
    PHASES = ("write",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action."""
        old = _kept_text(box, target, values.get("backup", ""))
        return Plan(
            action=self.NAME,
            target=Target("model", target, self.state(box, Target("model", target))),
            values=dict(values),
            title=f"Put config.pbtxt of {target} back as it was",
            yes="Put back",
            danger="caution",
            checks=(Check("fail", old.obstacle) if old.obstacle else Check("ok", f"{old.file.path} can be written"),),
            steps=(Step("write", f"write the kept text to {old.file.path}", "the file stays as it is"),),
            effects=(
                "what serves now stays as it is: the file counts at the next load, reload or start",
                "after that its own version policy holds again, and a newer version may be deployed by itself",
            ),
            difference=old.difference or ("  nothing changes: the file says so already",),
            undo="the pinned text again",
            refused=f"config.pbtxt of {target} cannot be written: {old.obstacle}" if old.obstacle else "",
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """See Pin."""
        return Pin().state(box, target)

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        name = plan.target.name
        with run.phase("write"):
            old = _kept_text(box, name, plan.values.get("backup", ""))
            if old.text == old.file.text:
                return Outcome("done", f"config.pbtxt of {name} said so already", left=self.state(box, plan.target))
            backup = write_pin(box, name, old, run)
        left = self.state(box, plan.target)
        return Outcome("done", f"config.pbtxt of {name} is as it was", (), _undo(name, backup), left)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """See Pin."""
        old = _kept_text(box, plan.target.name, plan.values.get("backup", ""))
        if old.text == old.file.text:
            return "config.pbtxt is as it was before the pin", "nothing more: take it as done", ""
        return "config.pbtxt is still pinned", "put the kept text back", ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        return self.run(box, plan, run)


def _kept_text(box: Box, name: str, backup: str) -> PinFile:
    """What was kept of this model's file, as the text that it would get. WrongInput for a name that is none; Refused
    where it is gone."""
    if not backup:
        raise WrongInput(f"which kept text? give backup=NAME; the outcome of a pin of {one_line(name, 80)} names it")
    if "/" in backup or not backup.startswith(f"{name}.") or not backup.endswith(ENDING):
        raise WrongInput(f"{one_line(backup, 80)!r} is no kept text of {one_line(name, 80)}; a pin's outcome names it")
    try:
        text = config_file.decode((box.state / BACKUPS / backup).read_bytes())
        file = _file(box, name)
    except OSError as error:
        raise Refused(f"the kept text {one_line(backup, 120)} cannot be read ({error.strerror})") from error
    except FileRefused as error:
        raise Refused(f"config.pbtxt of {name} cannot be had: {error}") from error
    return PinFile(file, text, _difference(file.text, text), config_file.obstacle(file))


def _version(box: Box, target: str, values: Mapping[str, str]) -> int:
    version = whole_number(values.get("version", ""))
    folders = [one.version for one in _disk(box, target).versions if one.usable]
    shown = ", ".join(str(one) for one in folders) or "none"
    if version is None:
        raise WrongInput(f"which version? on disk: {shown}; give version=N")
    if version not in folders:
        raise WrongInput(f"{one_line(target, 80)} has no version {version} on disk; it has {shown}")
    return version
