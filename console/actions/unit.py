"""The container's systemd unit: shown, written from the running container, and put back as it was.

Writing never starts or stops anything: systemd reads its files anew (daemon-reload) and takes the new text at the next
start. What was there is kept in the state folder first.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.target import chosen_name
from console.actions.wanted_unit import Wanted, wanted_unit
from console.clients import host_files, run_words, unit_files, unit_text
from console.clients.unit_files import Kept
from console.clients.unit_text import Kind
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Refused, Step, Target, UndoSpec, WrongInput
from console.core.text import decode, one_line

_LIMIT = 120.0
_KIND = Field(
    "kind",
    "service (hand-written, any host), quadlet (cgroup v2 and Podman 4.4), or auto",
    "choice",
    ("auto", "service", "quadlet"),
)
_UNIT_NAME = Field("name", "of the unit; empty = the one that owns the container, or the container's name")
_DEVICES = Field("devices", "CDI device names, where the container was made through the API and does not tell", "list")
_BACKUP = Field("backup", "which kept state to put back")


class UnitAction(Action):
    """One unit of the container."""

    TARGET = "container"

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """The unit's files, by a digest."""
        paths = [Path(path) for path in target.identity.get("paths", "").split("\n") if path]
        return {"unit": target.name, "digest": unit_files.digest(paths)}


class Show(UnitAction):
    """Show the systemd unit that fits the running container, and how it differs from what is installed."""

    NAME = "unit.show"
    FIELDS = (_KIND, _UNIT_NAME, _DEVICES)
    PHASES = ("show",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        plan = Write().plan(box, target, values)
        return msgspec.structs.replace(
            plan,
            action=self.NAME,
            title=f"Show {plan.target.name} for container {chosen_name(box, target)} on {box.host}",
            yes="Show",
            danger="safe",
            gap_s=0.0,
            steps=(Step("show", "show the text; nothing is written"),),
            effects=("nothing is changed",),
            by_hand=(),
            undo="there is nothing to undo",
            refused="",
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with run.phase("show"):
            wanted = wanted_unit(box, plan.target.identity["name"], plan.values)
        return Outcome(
            "done", f"{wanted.paths[0]}, not written", lines=tuple(unit_text.masked(wanted.made.text).splitlines())
        )


class Write(UnitAction):
    """Write the systemd unit that fits the running container and let systemd read it; nothing starts or stops."""

    NAME = "unit.write"
    FIELDS = (_KIND, _UNIT_NAME, _DEVICES)
    PHASES = ("keep", "write", "reload")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        wanted = wanted_unit(box, chosen_name(box, target), values)
        source = _installed(box, wanted)
        cut = _gpu_may_be_cut(box, wanted)
        checks = _checks(box, wanted, cut)
        made = wanted.made
        private = [str(path) for path, text in zip(wanted.paths[1:], wanted.texts[1:], strict=True) if text]
        return Plan(
            action=self.NAME,
            target=_target(wanted),
            values={**values, "kind": wanted.kind, "name": wanted.base},
            title=f"Write {made.unit} for container {wanted.container.name} on {box.host}",
            yes="Write",
            danger="danger" if cut else "caution",
            note="a gap may come" if cut else "",
            checks=checks,
            steps=(
                Step("keep", f"keep what is there in {_folder(box)}", "nothing has changed"),
                Step("write", f"write {', '.join([str(wanted.paths[0]), *private])}", "put back what was there"),
                Step("reload", f"{_systemctl(wanted.user)} daemon-reload", "put back what was there, reload again"),
            ),
            effects=tuple(_effects(wanted, private)),
            difference=tuple(_difference(source, unit_files.content(source), made.text, wanted.paths[0])),
            by_hand=(
                f"{'' if wanted.user else 'sudo '}$EDITOR {wanted.paths[0]}",
                box.units().command("", "daemon-reload", wanted.user),
            ),
            undo="u puts back the files that were there and lets systemd read them again",
            limit=_LIMIT,
            gap_s=None if cut else 0.0,
            refused=_refusal(wanted, checks),
            wall=time.time(),
        )

    def recheck(self, box: Box, plan: Plan) -> None:
        super().recheck(box, plan)
        now = wanted_unit(box, plan.target.identity["name"], plan.values)
        if now.container.id != plan.target.identity["container"]:
            raise Refused(f"container {now.container.name} is another one than when the plan was made: plan anew")

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        wanted = wanted_unit(box, plan.target.identity["name"], plan.values)
        name = _backup_name(wanted.base)
        with run.phase("keep", f"keeping what is there as {name}"):
            unit_files.keep(_folder(box), name, wanted.made.unit, wanted.user, wanted.paths)
            run.keep(backup=name, old=unit_files.digest(wanted.paths), new=wanted.digest)
        return self._written(box, plan, run, wanted, name)

    def _written(self, box: Box, plan: Plan, run: Run, wanted: Wanted, name: str) -> Outcome:
        box.changing()
        try:
            with run.phase("write", f"writing {wanted.paths[0]}"):
                _install(wanted)
            with run.phase("reload", "daemon-reload"):
                box.systemd().reload(wanted.user)
        except (OSError, SourceError) as error:
            return put_back(box, plan, name, f"it was not written: {_words(error)}")
        unit = wanted.made.unit
        next_start = f"{_systemctl(wanted.user)} restart {unit}"
        lines = [f"nothing was started or stopped: the next start of {unit} takes the new text"]
        if wanted.container.unit == unit:
            lines.append(f"to take it now, with a gap in service: {next_start}")
        else:
            take = f"{_systemctl(wanted.user)} enable --now {unit}"
            lines.append(f"the running container is not that unit's yet: stop it, then {take}")
        return Outcome(
            "done",
            f"{wanted.paths[0]} is written, systemd has read it",
            lines=tuple(lines),
            undo=UndoSpec(Restore.NAME, unit, {"backup": name}, f"{unit} back to what it was"),
            left=self.state(box, plan.target),
        )

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        facts = _facts(journal)
        file = plan.target.identity["paths"].partition("\n")[0]
        now = self.state(box, plan.target)["digest"]
        if "backup" not in facts:
            return f"{file} is as it was", "", ""
        undo = "put back the files that were there"
        if now == facts.get("new"):
            return f"{file} is written, systemd may not have read it", "daemon-reload", undo
        if now == facts.get("old"):
            return f"{file} is as it was", f"write {file}", ""
        return f"{file} is written in part", f"write {file}", undo

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        wanted = wanted_unit(box, plan.target.identity["name"], plan.values)
        return self._written(box, plan, run, wanted, run.kept()["backup"])

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        with run.phase("write", "putting back what was there"):
            return put_back(box, plan, run.kept()["backup"], "")


class Restore(UnitAction):
    """Put a unit's files back as they were before `unit.write`, and let systemd read them."""

    NAME = "unit.restore"
    TARGET = "unit"
    FIELDS = (_BACKUP,)
    PHASES = ("keep", "write", "reload")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        name = values.get("backup", "")
        kept = unit_files.kept(_folder(box), name)
        if kept is None:
            raise WrongInput(f"there is no kept state {one_line(name, 80)!r} in {_folder(box)}")
        if target and target != kept.unit:
            raise WrongInput(f"the kept state {name} is of {kept.unit}, not of {one_line(target, 80)}")
        paths = list(kept.files)
        first = kept.files[paths[0]].content
        now = unit_files.content(Path(paths[0]))
        what = "take it away, as there was none" if first is None else "put back what was there"
        return Plan(
            action=self.NAME,
            target=Target(
                "unit",
                kept.unit,
                {"paths": "\n".join(paths), "digest": unit_files.digest(Path(path) for path in paths)},
            ),
            values={"backup": name},
            title=f"Put {kept.unit} back on {box.host}",
            yes="Put back",
            danger="caution",
            steps=(
                Step("keep", f"keep what is there in {_folder(box)}", "nothing has changed"),
                Step("write", f"{paths[0]}: {what}", "put it back as it is now"),
                Step("reload", f"{_systemctl(kept.user)} daemon-reload"),
            ),
            effects=(_NOTHING_MOVES,),
            difference=tuple(_difference(Path(paths[0]), now, decode(first or b""), Path(paths[0]))),
            undo="u puts back what is there now",
            limit=_LIMIT,
            wall=time.time(),
        )

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        box.changing()
        kept = unit_files.kept(_folder(box), plan.values["backup"])
        if kept is None:
            raise Refused(f"the kept state {plan.values['backup']} is gone: nothing was done")
        name = _backup_name(kept.unit.rpartition(".")[0])
        with run.phase("keep"):
            unit_files.keep(_folder(box), name, kept.unit, kept.user, [Path(path) for path in kept.files])
            run.keep(backup=name)
        try:
            with run.phase("write"):
                _restore_files(kept)
            with run.phase("reload"):
                box.systemd().reload(kept.user)
        except (OSError, SourceError) as error:
            return put_back(box, plan, name, f"it was not put back: {_words(error)}")
        undo = UndoSpec(self.NAME, kept.unit, {"backup": name}, f"{kept.unit} as it was written")
        return Outcome("done", f"{kept.unit} is as it was", undo=undo, left=self.state(box, plan.target))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        undo = "put back the files as they were before" if "backup" in _facts(journal) else ""
        return "whether all files are back is not known", "put all files back", undo

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return put_back(box, plan, run.kept()["backup"], "")


def _target(wanted: Wanted) -> Target:
    return Target(
        "unit",
        wanted.made.unit,
        {
            "name": wanted.container.name,
            "container": wanted.container.id,
            "paths": "\n".join(str(path) for path in wanted.paths),
            "digest": unit_files.digest(wanted.paths),
        },
    )


# -------------------------------------------------------------------------------------------------------- plan's words

_NOTHING_MOVES = "nothing is started or stopped: systemd takes the new text at the next start"


def _effects(wanted: Wanted, private: Sequence[str]) -> list[str]:
    made = wanted.made
    lines = [
        _NOTHING_MOVES,
        f"stop times in order: Triton drains {made.stop_times[0]} s, Podman waits {made.stop_times[1]} s, "
        f"systemd {made.stop_times[2]} s",
    ]
    if private:
        what = f" ({', '.join(one_line(name, 40) for name in made.names[:8])})" if made.names else ""
        lines.append(f"what may be secret goes to {' and '.join(private)}, readable by its owner only{what}")
    return [*lines, *made.notes]


def _checks(box: Box, wanted: Wanted, cut: bool) -> tuple[Check, ...]:
    container = wanted.container
    owner = f"owned by {container.unit}" if container.unit else "owned by no unit"
    checks = [Check("ok", f"container {container.name} {container.id[:12]}, {container.state}, {owner}")]
    good, said = unit_files.verify(wanted.made, wanted.user, box.root)
    tool = "systemd-analyze verify" if wanted.kind == "service" else "Podman's Quadlet generator"
    if good is None:
        checks.append(Check("unknown", f"not verified: {said}"))
    elif good:
        checks.append(Check("warn" if said else "ok", f"{tool}: {said or 'nothing wrong'}"))
    else:
        checks.append(Check("fail", f"{tool}: {said}"))
    if cut:
        checks.append(
            Check(
                "warn",
                "runc with systemd's cgroups and no /dev/char links: the daemon-reload may cut the container off from "
                "the GPU (restart it then; first: sudo nvidia-ctk system create-dev-char-symlinks --create-all)",
            )
        )
    if rights := box.units().rights(wanted.user):
        checks.append(Check("warn", rights))
    if wanted.user and not unit_files.lingers(box.root):
        checks.append(Check("warn", "without lingering the unit stops with the last login: loginctl enable-linger"))
    return tuple(checks)


def _gpu_may_be_cut(box: Box, wanted: Wanted) -> bool:
    """runc under systemd's cgroups loses device nodes without /dev/char links at a daemon-reload (host.md A17)."""
    host_config = wanted.inspect.get("HostConfig") or {}
    config = wanted.inspect.get("Config") or {}
    by_systemd = host_config.get("CgroupManager") == "systemd" and "runc" in str(wanted.inspect.get("OCIRuntime"))
    devices = run_words.of_container({"Config": config, "HostConfig": host_config}).values("device")
    uses_gpu = any("nvidia" in device for device in devices)
    running = wanted.container.state == "running"
    return by_systemd and uses_gpu and running and not (box.root / "dev/char/195:0").exists()


def _refusal(wanted: Wanted, checks: Sequence[Check]) -> str:
    path = wanted.paths[0]
    if unit_files.digest(wanted.paths) == wanted.digest:
        return f"{path} is already what would be written: there is nothing to do"
    other: Kind = "quadlet" if wanted.kind == "service" else "service"
    rival = wanted.place.file(wanted.base, other)
    if rival.exists():
        return f"{rival} makes the same unit: write kind={other}, or take that file away first"
    failed = next((check.text for check in checks if check.sign == "fail"), "")
    if failed:
        return f"it would not be accepted: {failed}"
    blocked = next((one for one in wanted.paths if not host_files.writable(one)), None)
    if blocked is not None and not wanted.user:
        return f"you may not write to {blocked.parent}: run gpuconsole with sudo"
    return f"you may not write to {blocked.parent}" if blocked is not None else ""


def _installed(box: Box, wanted: Wanted) -> Path:
    """The file that the new one takes the place of: its own, else one of a package that it overrides."""
    own = wanted.paths[0]
    if own.exists() or own.is_symlink():
        return own
    return unit_files.elsewhere(wanted.made.unit, wanted.user, box.root) or own


def _difference(source: Path, installed: bytes | None, text: str, path: Path) -> list[str]:
    """Unified, secrets of both masked; every line of a new file is an added one."""
    before = unit_text.masked(decode(installed or b"")).splitlines()
    after = unit_text.masked(text).splitlines()
    old = "nothing" if installed is None else str(source)
    return [one_line(line, 400) for line in difflib.unified_diff(before, after, old, str(path), lineterm="")]


# ---------------------------------------------------------------------------------------------------------- the files


def _install(wanted: Wanted) -> None:
    """The private files first: a unit never refers to one that is not there."""
    modes = (0o644, 0o600, 0o600)
    for path, text, mode in reversed(list(zip(wanted.paths, wanted.texts, modes, strict=True))):
        data = text.encode("utf-8", "surrogateescape") if text else None
        unit_files.install(path, data, mode)


def _restore_files(kept: Kept) -> None:
    for path, file in kept.files.items():
        unit_files.install(Path(path), file.content, file.mode)


def put_back(box: Box, plan: Plan, name: str, why: str) -> Outcome:
    """What was kept, back in its place. `why` is what went wrong before, "" = it was asked for."""
    box.changing()
    kept = unit_files.kept(_folder(box), name)
    if kept is None:
        return Outcome("failed", f"{why or 'not undone'}; the kept state {name} is gone, look at {plan.target.name}")
    try:
        _restore_files(kept)
        box.systemd().reload(kept.user)
    except OSError as error:
        return Outcome("failed", f"{why}; putting back failed too ({error.strerror}): what was there is in {name}")
    except SourceError as error:
        text = f"{why}; all files are as before, but daemon-reload failed: {error.message}"
        return Outcome("undone", text.removeprefix("; "))
    return Outcome("undone", f"{why}; all is as before".removeprefix("; "))


def _words(error: OSError | SourceError) -> str:
    if isinstance(error, SourceError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    return f"{error.filename}: {error.strerror}"


def _folder(box: Box) -> Path:
    return box.state / "backups" / "units"


def _backup_name(base: str) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06d}-{base}"


def _facts(journal: Sequence[JournalLine]) -> dict[str, str]:
    return {name: value for line in journal if line.state == "kept" for name, value in line.data.items()}


def _systemctl(user: bool) -> Literal["systemctl --user", "systemctl"]:
    return "systemctl --user" if user else "systemctl"
