"""Trace the next requests of a model and show where their time went.

Triton traces into the file that it was given at its start; without one it refuses. The settings that were are set back
when enough requests were traced, when the time is over, when the operator cancels, and by `undo` after a kill.
"""

from __future__ import annotations

import glob
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from console.actions.base import Action, Run
from console.actions.box import Box
from console.clients import podman_archive
from console.clients.triton import model_path
from console.clients.triton_settings import TraceSetting
from console.core import trace, triton_command
from console.core.model import ContainerState, SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Step, Target, WrongInput
from console.core.text import one_line

COUNT, SECONDS = 100, 60
_LOOK = 0.5
_FLUSH = 10.0
"""Seconds for which requests that were begun may still write their trace."""
_MOST_FILES = 500
_BYTES_PER_TRACE = 900
"""Seen on 2.51."""
_NO_FILE = (
    "this server was started without a trace file, and none can be given while it runs: recreate the container with "
    "--trace-config=triton,file=/tmp/trace.json --trace-config=level=OFF"
)


class Trace(Action):
    """Trace the next requests of a model and show where their time went."""

    NAME = "trace.set"
    TARGET = "model"
    FIELDS = (
        Field("count", f"requests to trace; {COUNT} where not given", "int", low=1, high=10_000),
        Field("seconds", f"how long they are waited for; {SECONDS} where not given", "int", low=1, high=3600, unit="s"),
    )
    PHASES = ("trace", "wait", "back", "read")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        model = _ready(box, target)
        count, seconds = int(values.get("count") or COUNT), int(values.get("seconds") or SECONDS)
        view = box.triton_settings_view()
        before, servers = view.trace(model), view.trace()
        where, reason = _where(box, before)
        set_url = f"POST /v2/models/{model}/trace/setting"
        return Plan(
            action=self.NAME,
            target=Target("model", model, _facts(before)),
            values={"count": str(count), "seconds": str(seconds)},
            title=f"Trace the next {count} requests of {one_line(model, 80)} on {box.host}",
            yes="Trace",
            danger="safe",
            checks=(
                Check(
                    "ok",
                    f"now: level {'+'.join(before.trace_level)}, rate {before.trace_rate}, count {before.trace_count}",
                ),
                Check("ok" if where else "fail", where or reason),
            ),
            steps=(
                Step("trace", f"trace each request, {count} of them", "nothing has changed", (set_url,)),
                Step("wait", f"until {count} were traced, {seconds} s at most", "set back"),
                Step("back", f"set back: {_told(_previous(before, servers))}", "said, with the command", (set_url,)),
                Step("read", f"read {before.trace_file}.*"),
            ),
            effects=tuple(_effects(before, count)),
            by_hand=(_by_hand(box, model, _wanted(count)), _by_hand(box, model, _previous(before, servers))),
            undo="it sets itself back; stopping it sets back at once",
            limit=float(seconds) + 2 * _FLUSH,
            refused=reason,
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        return _facts(box.triton_settings_view().trace(target.name))

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        model, count = plan.target.name, int(plan.values["count"])
        settings = box.triton_settings()
        before, servers = settings.trace(model), settings.trace()
        previous = _previous(before, servers)
        began = time.monotonic_ns()
        run.keep(previous=msgspec.json.encode(previous).decode(), before=_text(before))
        try:
            with run.phase("trace", f"tracing {count} requests"):
                now = settings.set_trace(model, _wanted(count))
            if now.trace_level != ("TIMESTAMPS",) or now.trace_rate != "1":
                return self._back(box, model, previous, run, f"Triton took the setting and now says {_text(now)}")
            with run.phase("wait", "waiting for requests"):
                self._wait(box, model, count, int(plan.values["seconds"]), run)
        except SourceError as error:
            return self._back(box, model, previous, run, error.message)
        back = self._back(box, model, previous, run, "")
        if back.word == "failed":
            return back
        with run.phase("read", f"reading {before.trace_file}.*"):
            found, unread = _read(box, before.trace_file, model, began, count, run)
        return _outcome(model, count, found, unread, run.cancelled.is_set(), before.trace_file)

    def _wait(self, box: Box, model: str, count: int, seconds: int, run: Run) -> None:
        waited = 0.0
        left = str(count)
        view = box.triton_settings_view()
        while waited < seconds and not run.wait(_LOOK):
            waited += _LOOK
            now = view.trace(model).trace_count
            if now == "0":
                return
            if now != left:
                run.note(f"{now} of {count} to go")
            left = now

    def _back(self, box: Box, model: str, previous: Mapping[str, Any], run: Run, why: str) -> Outcome:
        try:
            with run.phase("back", "setting back"):
                now = box.triton_settings().set_trace(model, previous)
        except SourceError as error:
            by_hand = _by_hand(box, model, previous)
            text = f"the trace setting of {model} was not set back ({error.message}); a restart of Triton ends it"
            return Outcome("failed", f"{why}; {text}" if why else text, lines=(f"by hand: {by_hand}",))
        return Outcome("undone", f"{why}; the trace setting is as before".removeprefix("; "), left=_facts(now))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        kept = {name: value for line in journal if line.state == "kept" for name, value in line.data.items()}
        now = _text(box.triton_settings_view().trace(plan.target.name))
        if not kept or now == kept.get("before"):
            return f"the trace setting of {plan.target.name} is as before", "", ""
        return f"{plan.target.name} is still traced: {now}", "", f"set back to {kept['before']}"

    def undo(self, box: Box, plan: Plan, run: Run) -> Outcome:
        previous = msgspec.json.decode(run.kept()["previous"], type=dict[str, Any])
        return self._back(box, plan.target.name, previous, run, "")


# ------------------------------------------------------------------------------------------------------------- settings


def _ready(box: Box, target: str) -> str:
    ready = sorted({name for name, _ in box.ready()})
    if target not in ready:
        known = ", ".join(one_line(name, 60) for name in ready[:8]) or "none"
        raise WrongInput(f"{one_line(target, 80)!r} is no READY model here (READY are: {known})")
    return target


def _wanted(count: int) -> dict[str, Any]:
    """`log_frequency` of the whole: Triton then writes one file that is complete, instead of a buffer at its end."""
    number = str(count)
    return {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": number, "log_frequency": number}


def _previous(before: TraceSetting, servers: TraceSetting) -> dict[str, Any]:
    """What sets a model back: null where it followed the server's setting."""
    return {name: None if value == servers.settable[name] else value for name, value in before.settable.items()}


def _told(previous: Mapping[str, Any]) -> str:
    own = {name: value for name, value in previous.items() if value is not None}
    return f"as the server's, but {own}" if own else "as the server's"


def _text(setting: TraceSetting) -> str:
    level = "+".join(setting.trace_level)
    return f"level {level}, rate {setting.trace_rate}, count {setting.trace_count}, every {setting.log_frequency}"


def _facts(setting: TraceSetting) -> dict[str, str]:
    # The count falls by itself where somebody traces, so it is no sign of another setting.
    return {"level": "+".join(setting.trace_level), "rate": setting.trace_rate, "file": setting.trace_file}


def _effects(before: TraceSetting, count: int) -> Iterator[str]:
    yield f"requests go on; each traced one writes about {_BYTES_PER_TRACE} bytes into the container"
    yield f"the files {before.trace_file}.* stay there ({count * _BYTES_PER_TRACE // 1024 + 1} KiB of them are new)"
    if before.trace_level != ("OFF",):
        yield "somebody traces this model now: while this runs, it is traced this way and not theirs"


def _by_hand(box: Box, model: str, document: Mapping[str, Any]) -> str:
    body = msgspec.json.encode(document).decode()
    url = f"{box.address().url}{model_path(model)}/trace/setting"
    return shlex.join(("curl", "-X", "POST", "-d", body, url))


# ---------------------------------------------------------------------------------------------------------------- files


def _where(box: Box, setting: TraceSetting) -> tuple[str, str]:
    """(how the trace is read, "") or ("", why it cannot be)."""
    if setting.trace_mode not in ("", "triton"):
        return "", f"this server sends its traces to {setting.trace_mode}, so there is no file to read: look there"
    if not setting.trace_file:
        return "", _NO_FILE
    container = box.podman_state().container
    if container is None:
        return "", "Triton's container is not known here, so its trace file cannot be read"
    if triton_command.host_path(setting.trace_file, container.mounts) is not None:
        return f"{setting.trace_file} is read through its mount", ""
    return f"{setting.trace_file} is read out of container {container.name}", ""


def _read(box: Box, file: str, model: str, since_ns: int, count: int, run: Run) -> tuple[list[trace.Breakdown], str]:
    """The traced requests; and why there may be more. Those that were begun are given time to end."""
    waited = 0.0
    found: list[trace.Breakdown] = []
    while True:
        try:
            found = trace.breakdowns(_files(box, file), model, since_ns)
        except SourceError as error:
            return found, error.message
        if len(found) >= count or waited >= _FLUSH / 5 or run.wait(_LOOK):
            return found, ""
        waited += _LOOK


def _files(box: Box, file: str) -> Iterator[bytes]:
    container = box.container()
    path = triton_command.host_path(file, container.mounts)
    if path is not None and Path(path).parent.is_dir():
        yield from _mounted(Path(path))
    else:
        yield from _archived(box, container, file)


def _mounted(path: Path) -> Iterator[bytes]:
    """The folder is the container's too: what lies there may be a link out of it, a pipe, or without end."""
    for one in sorted(path.parent.glob(f"{glob.escape(path.name)}.*"))[:_MOST_FILES]:
        try:
            if one.is_symlink() or not one.is_file():
                continue
            with one.open("rb") as file:
                data = file.read(podman_archive.MAX_FILE + 1)
        except OSError as error:
            raise SourceError("permission", f"{one} cannot be read: {error.strerror}") from error
        if len(data) > podman_archive.MAX_FILE:
            raise SourceError("protocol", f"{one} is larger than {podman_archive.MAX_FILE // 2**20} MiB")
        yield data


def _archived(box: Box, container: ContainerState, file: str) -> Iterator[bytes]:
    """Triton numbers its files from 0 without gaps."""
    for number in range(_MOST_FILES):
        data = podman_archive.read_file(box.podman_url, container.id, f"{file}.{number}")
        if data is None:
            return
        yield data


def _outcome(model: str, count: int, found: list[trace.Breakdown], unread: str, cancelled: bool, file: str) -> Outcome:
    if not found:
        why = unread or ("it was stopped" if cancelled else "no request came, or none was answered, in time")
        return Outcome("undone", f"no request of {model} was traced: {why}; the trace setting is as before")
    worst = max(found, key=lambda one: one.total)
    mean = sum(one.total for one in found) / len(found)
    parts = {part: sum(getattr(one, part) for one in found) / len(found) for part in trace.PARTS}
    most = max(parts, key=lambda part: parts[part])
    short = "" if len(found) >= count else f" ({count} were asked for)"
    return Outcome(
        "done",
        f"{len(found)} requests of {model} traced{short}: mean {mean:.2f} ms, most of it {most} "
        f"({parts[most]:.2f} ms), worst {worst.total:.2f} ms; the trace setting is as before",
        lines=(*trace.lines(found), f"from {file}.*, the traces of these {len(found)} requests alone"),
        figures={
            "traced": float(len(found)),
            "mean_ms": mean,
            "worst_ms": worst.total,
            **{f"{part}_ms": value for part, value in parts.items()},
        },
    )
