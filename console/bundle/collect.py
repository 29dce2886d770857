"""What goes into a bundle, from the box as it is now and from what was kept of the time: each part that cannot be had
is a line of what is missing, and the others come all the same."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from console import __version__
from console.actions import audit
from console.actions.box import Box
from console.bundle import past as pasts
from console.bundle import recorded
from console.bundle.parts import FILE_LIMIT, TEXT_LIMIT, Parts
from console.bundle.past import Past
from console.bundle.redaction import is_made_up
from console.clients import journal, plain_files, podman_stream
from console.clients.podman import Podman
from console.clients.recording import Frame, Segment
from console.config import SECRET, Settings
from console.core import kernel_faults, units
from console.core.act_events import event_from_audit
from console.core.facts import Facts
from console.core.finding import Report
from console.core.model import PART_FIELDS, ContainerState, Event, LogLine, Snapshot, SourceError
from console.core.podman_frames import RawLine
from console.core.text import decode
from console.core.triton_log import LineReader
from console.loadgen import record
from console.sources.facts_masks import secret_words

LOG_LIMIT_S = 6.0
KERNEL_WORDS = (
    "nvrm", "nvidia", "xid", "out of memory", "oom-kill", "oom_", "killed process", "mce:", "hardware error", "aer:",
    "i/o error", "segfault", "general protection", "traps:", "hung task", "soft lockup", "hard lockup",
    "thermal", "throttled", "podman", "conmon", "triton", "avc:", "call trace", "bug:", "ext4-fs error", "xfs",
    "remounting", "nvme",
)  # fmt: skip
"""Lower-case words of kernel lines that matter here."""


class Given(Struct, frozen=True):
    """What the command has read already."""

    snapshot: Snapshot
    snapshot_json: bytes
    report: Report | None
    report_text: str
    facts: Facts | None
    settings: Sequence[tuple[str, str, str]]
    """(key, value less secrets, origin)."""


class Range(Struct, frozen=True):
    """The time that the bundle is about, Unix seconds."""

    begin: float
    end: float

    def has(self, wall: float | None) -> bool:
        """Whether a moment lies in it; what has no time does."""
        return wall is None or self.begin <= wall <= self.end + 60.0


class Told(Struct, frozen=True):
    """What the summary is made of, beside the parts."""

    past: Past
    lines: tuple[LogLine, ...]
    kernel_read: bool
    changes: tuple[audit.Change, ...]


def known_secrets(settings: Settings) -> Iterator[str]:
    """Values of the settings that are secrets word for word."""
    for key in SECRET:
        section, name = key.split(".")
        value = getattr(getattr(settings, section, None), name, None)
        if isinstance(value, Mapping):
            yield from (str(one) for one in value.values())
        elif isinstance(value, str) and value:
            yield value
        elif isinstance(value, list | tuple):  # a program with its arguments: `curl` is no secret, a token is
            yield from (str(one) for one in value if "://" in str(one) or is_made_up(str(one), sure=True))


def harmless(snapshot: Snapshot) -> Iterator[str]:
    """Names that are no secrets, whatever variable holds them."""
    yield from (row.name for row in snapshot.models)
    host = snapshot.host.value
    if host is not None:
        yield host.hostname
    podman = snapshot.container.value
    container = podman.container if podman is not None else None
    if container is not None:
        yield from (container.name, container.id, container.image, container.image_id)
        yield from (mount.source for mount in container.mounts)
        yield from (mount.target for mount in container.mounts)


def collect(parts: Parts, box: Box, given: Given, time_range: Range, recordings: Path) -> Told:
    """Fill `parts`; nothing is changed anywhere, and no part that is missing is an error."""
    snapshot = given.snapshot
    container = _container(parts, box, snapshot)
    frames = _frames(parts, recordings, time_range)
    try:
        past = pasts.read(frames, time_range.begin, time_range.end, snapshot)
        told = _collect(parts, box, given, time_range, past, container)
        recorded.add(
            parts, frames, snapshot, box.spec.simulated or ""
        )  # last: it is read once, and all secrets are to be known by then
    finally:
        pasts.close(frames)
    return told


def _collect(
    parts: Parts, box: Box, given: Given, time_range: Range, past: Past, container: ContainerState | None
) -> Told:
    snapshot = given.snapshot
    lines = _log(parts, box, container, time_range)
    _unit(parts, box, container, time_range)
    kernel_read = _kernel(parts, time_range) if box.spec.simulated is None else False
    if box.spec.simulated is not None:
        parts.lacks("kernel.log", "the simulated box has no kernel of its own")
    _configs(parts, snapshot, past)
    changes = _changes(parts, box.state, time_range)
    _loads(parts, box.state, time_range)
    parts.json("checks.json", given.report) if given.report is not None else parts.lacks(
        "checks.json", "the checklist was not read"
    )
    if given.report_text:
        parts.text("checks.txt", given.report_text)
    if given.facts is not None:
        parts.json("facts.json", given.facts, by_names=False)  # whoever collected them masked them by their names
    parts.json("snapshot.json", msgspec.json.decode(given.snapshot_json))
    for name in PART_FIELDS:
        reading = snapshot.reading(name)
        if reading.error is not None:
            hint = f"; {reading.error.hint}" if reading.error.hint else ""
            parts.lacks(f"{name} in snapshot.json", f"{reading.error.message}{hint}")
    parts.text("settings.txt", "".join(f"{key} = {value}   ({origin})\n" for key, value, origin in given.settings))
    parts.json("versions.json", versions(snapshot, past))
    for why in past.unread[:5]:
        parts.lacks("a minute of the recording", why)
    told = msgspec.structs.replace(past, events=tuple(_with_changes(past.events, changes)))
    if not lines and past.lines:
        lines = past.lines
        text = "".join(f"{units.moment(one.wall)} {one.level or ' '} {one.origin or ''} {one.text}\n" for one in lines)
        parts.text("container/log-recorded.txt", text, tail=True)
    parts.lines("events.jsonl", list(told.events))
    return Told(told, lines, kernel_read, changes)


# ------------------------------------------------------------------------------------------------------- the container


def _container(parts: Parts, box: Box, snapshot: Snapshot) -> ContainerState | None:
    """The container now, its inspect answer among the parts; what it holds under secret names is known from then on."""
    with parts.reading("container/inspect.json"):
        state = box.podman_state()
        if state.container is None:
            tried = "; ".join(f"{one.path}: {one.error}" for one in state.tried if one.error)
            why = "there is no Triton container" if state.socket else "no Podman answers"
            parts.lacks("container/inspect.json", f"{why} ({tried})" if tried else why)
            return None
        podman = Podman(box.podman_url)
        try:
            answer = podman.inspect_all(state.container.id)
            parts.redactor.learn(secret_words(answer))
            parts.json("container/inspect.json", answer)
            info = podman.info_all()
            if info is not None:
                parts.json("container/podman-info.json", info)
            image = podman.image_all(state.container.image_id or state.container.image)
            if image is not None:
                parts.json("container/image.json", image)
        finally:
            podman.close()
        return state.container
    return snapshot.container.value.container if snapshot.container.value is not None else None


def _log(parts: Parts, box: Box, container: ContainerState | None, time_range: Range) -> tuple[LogLine, ...]:
    """The container's log of the time, raw among the parts; as lines for the summary."""
    name = "container/log.txt"
    if container is None:
        parts.lacks(name, "no container is there whose log could be read")
        return ()
    with parts.reading(name):
        began = time.monotonic()
        raw = podman_stream.recent_log(box.podman_url, container.id, None, int(time_range.begin), limit_s=LOG_LIMIT_S)
        if time.monotonic() - began >= LOG_LIMIT_S:
            parts.lacks(f"the end of {name}", f"Podman did not give all of it within {LOG_LIMIT_S:g} s")
        raw = [line for line in raw if time_range.has(line.wall)]
        kept = _newest(raw, TEXT_LIMIT)
        note = f"the last {len(kept)} of {len(raw)} lines" if len(kept) < len(raw) else ""
        # secrets are looked for in the log's own lines: a key of several lines is one thing there
        clean = parts.redactor.text(name, "\n".join(decode(line.data) for line in kept)).split("\n")
        rows = (f"{_stamp(line)} {line.stream} {text}" for line, text in zip(kept, clean, strict=False))
        parts.clean(name, "\n".join(rows), note)
        reader = LineReader()
        return tuple(one for line in kept for one in reader.read(line))
    return ()


def _newest(lines: Sequence[RawLine], limit: int) -> list[RawLine]:
    """Those that have at most `limit` bytes together."""
    kept: list[RawLine] = []
    for line in reversed(lines):
        limit -= len(line.data) + 1
        if limit < 0:
            break
        kept.append(line)
    return kept[::-1]


def _stamp(line: RawLine) -> str:
    if line.wall is None:
        return "-"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(line.wall)) + f".{line.wall % 1 * 1000:03.0f}Z"


def _unit(parts: Parts, box: Box, container: ContainerState | None, time_range: Range) -> None:
    if container is None or not container.unit:
        return
    name = f"container/{container.unit}.journal.txt".replace("/", "-").replace("container-", "container/", 1)
    with parts.reading(name):
        entries = journal.unit_entries(container.unit, time_range.begin, box.unit_of_user)
        kept = [entry for entry in entries if time_range.has(entry.wall)]
        parts.text(name, "\n".join(f"{units.moment(one.wall)} {one.identifier} {one.message}" for one in kept))


def _kernel(parts: Parts, time_range: Range) -> bool:
    """Kernel lines that matter; whether the log could be read at all."""
    with parts.reading("kernel.log"):
        kept = []
        for wall, text in _kernel_lines():
            low = text.lower()
            fault = kernel_faults.parse(wall, text)
            if time_range.has(wall) and (fault is not None or any(word in low for word in KERNEL_WORDS)):
                kept.append(f"{units.moment(wall)} {text}")
        parts.text("kernel.log", "\n".join(kept) or "no line of this time matters here")
        return True
    return False


def _kernel_lines() -> list[tuple[float, str]]:
    try:
        ring = journal.Kmsg()
    except SourceError:
        return [(entry.wall, entry.message) for entry in journal.kernel_entries()]
    try:
        boot = journal.boot_wall()
        return [(boot + record_.mono, record_.text) for record_ in ring.read()]
    finally:
        ring.close()


# --------------------------------------------------------------------------------------------------------------- models


def _configs(parts: Parts, snapshot: Snapshot, past: Past) -> None:
    """Configurations as served (less the secrets in them; where nothing serves now, those recorded last), and as they
    lie on disk."""
    served = snapshot.configs.value or past.configs
    if served is None:
        error = snapshot.configs.error
        parts.lacks("models/*/served.json", error.message if error is not None else "not read")
    for one in served.configs if served is not None else ():
        with parts.reading(f"models/{_plain(one.name)}/served.json"):
            parts.json(f"models/{_plain(one.name)}/served-{_plain(one.version)}.json", msgspec.json.decode(one.raw))
    for model, why in (served.failures if served is not None else {}).items():
        parts.lacks(f"models/{_plain(model)}/served.json", why)
    repository = snapshot.repository.value
    if repository is None:
        error = snapshot.repository.error
        parts.lacks("models/*/config.pbtxt", error.message if error is not None else "not read")
        return
    for disk in repository.models:
        name = f"models/{_plain(disk.name)}/config.pbtxt"
        with parts.reading(name):
            path = Path(disk.path) / "config.pbtxt"
            try:
                data, more = plain_files.read(str(path), FILE_LIMIT, False)
            except FileNotFoundError:
                continue  # a model may have none
            text = decode(data) + ("\n# cut off here\n" if more else "")
            parts.text(name, text, path=str(path))


def _plain(name: str) -> str:
    """A name as a part of a path inside the bundle: nothing in it leads elsewhere."""
    kept = "".join(char if char.isalnum() or char in "-_.+ " else "_" for char in name)[:100].strip(". ")
    return kept or "_"


# ------------------------------------------------------------------------------------------------ what was kept of then


def _changes(parts: Parts, state: Path, time_range: Range) -> tuple[audit.Change, ...]:
    with parts.reading("audit.jsonl"):
        kept = tuple(
            one
            for one in audit.changes(state)
            if time_range.has(one.record.wall) or (one.outcome is not None and time_range.has(one.outcome.wall))
        )
        if kept:
            parts.lines("audit.jsonl", list(kept))
        return kept
    return ()


def _loads(parts: Parts, state: Path, time_range: Range) -> None:
    with parts.reading("loads.jsonl"):
        runs = [one for one in record.load_kept(state) if time_range.has(one.wall)]
        if runs:
            parts.lines("loads.jsonl", list(runs))


def _frames(parts: Parts, place: Path, time_range: Range) -> list[tuple[Segment, Frame]]:
    """The minutes that were recorded of the time."""
    what = "the seconds before now"
    where = pasts.place_of(place)
    if where is None:
        parts.lacks(what, f"nothing was recorded in {place} (`gpuconsole record` does, always)")
        return []
    try:
        frames, unread = pasts.minutes(where, time_range.begin, time_range.end)
    except (OSError, pasts.UnreadableError) as error:
        parts.lacks(what, str(error))
        return []
    for why in unread:
        parts.lacks("a file of the recording", why)
    if not frames:
        parts.lacks(what, "nothing is recorded of that time")
    return frames


def _with_changes(events: Sequence[Event], changes: Sequence[audit.Change]) -> list[Event]:
    """Events, with those changes of the audit that no snapshot told."""
    known = {(event.kind, round(event.wall)) for event in events}
    made = list(events)
    for change in changes:
        event = event_from_audit(change.intent, change.outcome) if change.intent is not None else None
        if event is not None and not {(event.kind, round(event.wall) + off) for off in (-1, 0, 1)} & known:
            made.append(event)
    return sorted(made, key=lambda event: event.wall)


# ------------------------------------------------------------------------------------------------------------- versions


def versions(snapshot: Snapshot, past: Past) -> dict[str, Any]:
    """What runs here, by name; None = not known."""
    gpu, server, podman, host = (
        snapshot.gpu.value,
        snapshot.server.value,
        snapshot.container.value,
        snapshot.host.value,
    )
    container = podman.container if podman is not None else None
    return {
        "gpuconsole": __version__,
        "python": sys.version.split()[0],
        "host": host.hostname if host is not None else None,
        "system": host.os_name if host is not None else None,
        "kernel": host.kernel if host is not None else None,
        "gpus": [one.name for one in gpu.gpus] if gpu is not None else None,
        "driver": gpu.driver if gpu is not None else None,
        "cuda of the driver": gpu.cuda if gpu is not None else None,
        "triton": (server.version if server is not None else None) or past.triton,
        "podman": podman.api_version if podman is not None else None,
        "image": container.image if container is not None else None,
        "image id": container.image_id if container is not None else None,
        "of the image": dict(container.env_versions) if container is not None else None,
    }
