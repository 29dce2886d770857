"""Events: from Podman as they happen, from other sources through an outbox, and backwards from before the start.

The console is opened after the trouble, so its start reads the past from the server's log, Podman, the owning unit's
journal, the boot, and the package log. A place that cannot be read is a reason in `Past.unread`, never an error.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from console.clients import commands, host, journal, libpod, podman_stream
from console.core import packages, podman_events, triton_log, unit_log
from console.core.model import Event, SourceError
from console.sources.container import Target

PAUSE = 1.0
LIMIT_S = 2.0
"""Seconds that each place of the past may take."""
LOG_TAIL = 5000
MAX_EVENTS = 200
"""Events kept per place, the newest."""
MAX_LOG_BYTES = 4 * 1024 * 1024
WAIT_FOR_TARGET = 10.0
REMEMBERED = 1000
"""Podman events known again when a new connection tells them once more; it asks from the newest one's second on."""


class Outbox:
    """Events that sources find while they read; thread-safe. Of more than 1 000 waiting the rest is dropped."""

    name = "events.found"

    def __init__(self) -> None:
        self._waiting: queue.Queue[Event] = queue.Queue(1000)
        self.dropped = 0

    def put(self, event: Event) -> None:
        """Hand an event over; never blocks."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self.dropped += 1

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        """Emit until `stop` is set."""
        while not stop.is_set():
            try:
                emit(self._waiting.get(timeout=0.5))
            except queue.Empty:
                continue


class PodmanEvents:
    """Podman's event stream, for the Triton container only; `changed` is called for each (ask the container source)."""

    name = "events.podman"

    def __init__(
        self,
        target: Callable[[], Target | None],
        url: Callable[[], str | None],
        changed: Callable[[], None] = lambda: None,
        stream: Callable[..., Iterable[libpod.PodmanEvent]] = podman_stream.events,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._url = url
        self._changed = changed
        self._stream = stream
        self._wall = wall
        self._began: float | None = wall()
        """What came before is the past's, which reads it too; None once the clock was set back before it."""
        self._last = self._began
        self._told: deque[tuple[int, str, str]] = deque(maxlen=REMEMBERED)
        self._health = ""

    def run(self, emit: Callable[[Any], None], stop: threading.Event) -> None:
        """Emit until `stop` is set; SourceError when the connection is lost (the next call asks from there on)."""
        while not stop.is_set():
            url = self._url()
            if url is not None:
                self._read(url, emit, stop)
            stop.wait(PAUSE)

    def _read(self, url: str, emit: Callable[[Any], None], stop: threading.Event) -> None:
        # Podman keeps back what is dated before `since`, and after a clock set back that is all that happens: so it is
        # asked from the earlier of the two, and what was told already is known by itself, not by its date.
        now = self._wall()
        if self._began is not None and now < self._began:
            self._began = None
        for told in self._stream(url, stop, since=int(min(self._last, now))):
            same = (told.time_nano, told.actor.id, told.action)
            if same in self._told or (self._began is not None and told.wall <= self._began):
                continue
            self._told.append(same)
            self._last = told.wall
            attributes = told.actor.attributes or {}
            if not is_ours(told.actor.id, attributes, self._target()):
                continue
            event = podman_events.event(told.wall, told.action, attributes, told.health_status)
            if event is not None and not self._same_health(event):
                emit(event)
                self._changed()

    def _same_health(self, event: Event) -> bool:
        if not event.kind.startswith("health."):
            return False
        same, self._health = event.kind == self._health, event.kind
        return same


def is_ours(identity: str, attributes: Mapping[str, str], target: Target | None) -> bool:
    """True for the Triton container, and for one with its name or a Triton image (made anew, or not yet found)."""
    if target is not None:
        return identity == target.id or attributes.get("name") == target.name
    return libpod.is_triton_image(attributes.get("image", "")) or attributes.get("name", "") == "triton"


class Past:
    """Reads what happened in the last `hours`, one reader per place. Each is called once, in a thread of its own."""

    def __init__(
        self,
        target: Callable[[], Target | None],
        unit: Callable[[], str | None] = lambda: None,
        hours: float = 24.0,
        root: Path = Path("/"),
        wall: Callable[[], float] = time.time,
        wait_s: float = WAIT_FOR_TARGET,
    ) -> None:
        self._target = target
        self._unit = unit
        self._since = wall() - hours * 3600
        self._root = root
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._unread: dict[str, str] = {}
        self._found: dict[str, int] = {}

    def unread(self) -> dict[str, str]:
        """Place -> why it could not be read, so far; any thread."""
        with self._lock:
            return dict(self._unread)

    def found(self) -> dict[str, int]:
        """Place -> events found there, so far; any thread."""
        with self._lock:
            return dict(self._found)

    def readers(self) -> tuple[Callable[[], Sequence[Event]], ...]:
        """For Session.backfill; none of them raises."""
        places: tuple[tuple[str, Callable[[], list[Event]]], ...] = (
            ("server log", self.server_log),
            ("podman", self.podman),
            ("journal", self.unit_journal),
            ("kernel", self.boot),
            ("packages", self.package_log),
        )
        return tuple(self._reader(place, read) for place, read in places)

    def _reader(self, place: str, read: Callable[[], list[Event]]) -> Callable[[], Sequence[Event]]:
        def bounded() -> Sequence[Event]:
            try:
                found = read()
            except SourceError as error:
                with self._lock:
                    self._unread[place] = error.message
                return ()
            kept = [event for event in found if event.wall >= self._since or event.kind == "boot"]
            events = podman_events.fold(kept, MAX_EVENTS)
            with self._lock:
                self._found[place] = len(events)
            return events

        return bounded

    def server_log(self) -> list[Event]:
        """From the last LOG_TAIL lines of the container's log."""
        target = self._awaited()
        reader, teller = triton_log.LineReader(), triton_log.ServerEvents()
        lines = podman_stream.recent_log(target.url, target.id, LOG_TAIL, int(self._since), LIMIT_S)
        return [event for raw in lines for line in reader.read(raw) for event in teller.feed(line)]

    def podman(self) -> list[Event]:
        """From Podman's own event log (journald or a file; gone after a reboot with the latter in /run)."""
        target = self._awaited()
        stop = threading.Event()
        found = []
        for told in podman_stream.events(target.url, stop, int(self._since), follow=False, limit_s=LIMIT_S):
            attributes = told.actor.attributes or {}
            if is_ours(told.actor.id, attributes, target):
                event = podman_events.event(told.wall, told.action, attributes, told.health_status)
                found += [event] if event else []
        return podman_events.changes_of_health(found)

    def unit_journal(self) -> list[Event]:
        """From the journal of the unit that owns the container."""
        self._wait(lambda: self._unit() is not None or self._target() is not None)
        unit = self._unit()
        if unit is None:
            raise SourceError("unavailable", "no systemd unit owns the container")
        target = self._target()
        entries = journal.unit_entries(unit, self._since, target is not None and target.user_unit)
        return unit_log.events(unit, ((entry.wall, entry.message) for entry in entries))

    def boot(self) -> list[Event]:
        """The boot of this host."""
        try:
            wall = host.boot_time(self._root)
        except (OSError, ValueError) as error:
            raise SourceError("unavailable", f"the time of the boot is not told: {error}") from error
        return [Event(wall, "note", f"host booted, kernel {host.kernel_release(self._root)}", "(kernel)", "boot")]

    def package_log(self) -> list[Event]:
        """From dnf's or dpkg's log; else from rpm's database, which has no old versions."""
        for name, parse, origin in (
            ("var/log/dnf.rpm.log", packages.from_dnf, "(rpm)"),
            ("var/log/dpkg.log", packages.from_dpkg, "(dpkg)"),
        ):
            lines = _tail(self._root / name)
            if lines is not None:
                return packages.events(self._recent(parse(lines)), origin)
        output = commands.run(["rpm", "-qa", "--last"], LIMIT_S)
        if output.code != 0:
            raise SourceError("unavailable", "no package log could be read")
        return packages.events(self._recent(packages.from_rpm_last(output.text.splitlines())), "(rpm)")

    def _recent(self, changes: Iterable[packages.Change]) -> list[packages.Change]:
        return [change for change in changes if change.wall >= self._since]

    def _awaited(self) -> Target:
        """The container, once its source has found it; SourceError when it does not within `wait_s`."""
        self._wait(lambda: self._target() is not None)
        target = self._target()
        if target is None:
            raise SourceError("unavailable", "no Triton container was found")
        return target

    def _wait(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + self._wait_s
        while not ready() and time.monotonic() < end:
            time.sleep(0.1)


def _tail(path: Path) -> list[str] | None:
    """The last MAX_LOG_BYTES of a text file as lines; None when it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_LOG_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
