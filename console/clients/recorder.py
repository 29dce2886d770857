"""The recorder: keeps the last hour of snapshots in memory, and writes it and what follows to files while it is on.

A line for each minute goes to another file beside them (clients/minute_files.py).
All work is done in a thread of its own: a slow disk holds up neither the screen nor a source. The hour in memory is
what the files hold, frame by frame (clients/recording.py), so switching on writes what there is already and goes on.
A full disk, a folder without rights: recording stops, says why, and whoever records goes on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from console.clients import minute_files
from console.clients.files import private_folder, sync_folder
from console.clients.recording import SUFFIX, FrameMaker, files, fixed_frame, minute_mark
from console.core.minutes import Minute, Rollup
from console.core.model import LogLine, Snapshot
from console.core.recorded import Writer

FLUSH = 4.0
"""Seconds after which what was recorded is put on the disk: with the second that a line stands for, 5 s may be lost."""
MINUTE = 60.0
KEPT = 66
"""Minutes in memory: an hour, and the five minutes before it that windows of statistics need."""
STEP = 0.9
"""Seconds between two lines at least: a key press makes a snapshot too, and is no second."""
SHARE = 0.03
"""Of a core: where a line takes longer to make (thousands of models), lines come less often."""
WAITING = 600
"""Snapshots that may wait for a slow disk; beyond this they are left out and counted."""
SEGMENT = 8 << 20
"""Bytes after which another file is begun; less where the limit is low."""
LIMIT = 300 << 20
LEAST_LIMIT = 8 << 20
FLOOR = 256 << 20
"""Bytes that must stay free on the disk."""
LOCK = ".lock"
FOLDER = "recordings"
"""Where recordings lie in the state folder."""


class RecordingStoppedError(Exception):
    """Nothing is written (any more): one sentence."""


@dataclass(frozen=True)
class State:
    """What the recorder does now."""

    on: bool = False
    since: float | None = None
    """When it was switched on (Unix seconds)."""
    written: int = 0
    """Bytes that were written since then."""
    size: int = 0
    """Bytes of all files of the folder."""
    file: Path | None = None
    why_off: str = ""
    """Why it stopped by itself, one sentence; "" where it did not."""
    left_out: int = 0
    """Snapshots that came faster than they could be written."""
    removed: int = 0
    """Files that the limit made room by."""
    until: float | None = None
    """Wall time of the last line that is on the disk."""


@dataclass
class _Kept:
    """A minute in memory: its mark's and its frame's bytes, and the fixed lines that it names."""

    wall: float
    fixed: set[str]
    data: bytearray = field(default_factory=bytearray)
    filed: int = 0
    """Bytes of it that are in a file."""


class Folder:
    """The files: one is written to, the oldest ones go. OSError and RecordingStoppedError."""

    def __init__(self, path: Path, limit: int) -> None:
        """Takes the folder for this process alone."""
        self.path = private_folder(path)
        self.limit = limit
        self.removed = 0
        self._lock = _locked(self.path)
        self._handle: int | None = None
        self.file: Path | None = None
        self.written = 0
        """Bytes in all."""
        self._in_file = 0
        self._has: set[str] = set()
        """Ids of the fixed lines that the present file has."""
        self.size = sum(_size(one) for one in files(self.path))

    @property
    def full(self) -> bool:
        """True where the next minute belongs into another file."""
        return self._handle is None or self._in_file >= min(SEGMENT, self.limit // 4)

    def begin(self, wall: float) -> None:
        """Another file, named by its first moment."""
        self._end()
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall))
        for number in range(1000):
            self.file = self.path / f"{name}{f'-{number}' if number else ''}{SUFFIX}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with contextlib.suppress(FileExistsError):
                self._handle = os.open(self.file, flags, 0o600)
                break
        else:
            raise RecordingStoppedError(f"{self.path} has a thousand files of one second: recording stopped")
        sync_folder(self.path)
        self._in_file = 0
        self._has = set()

    def fixed(self, id_: str, frame: bytes) -> None:
        """A fixed line, where the file has it not yet."""
        if id_ not in self._has:
            self._has.add(id_)
            self.write(frame)

    def put(self, data: bytes) -> None:
        """Append, and see that it is on the disk."""
        self.write(data)
        self.sync()

    def write(self, data: bytes) -> None:
        """Append; it is on the disk after `sync`."""
        assert self._handle is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle, view) :]
        self._in_file += len(data)
        self.written += len(data)
        self.size += len(data)

    def sync(self) -> None:
        """What was written is on the disk; RecordingStoppedError where the disk is too full to go on."""
        assert self._handle is not None
        os.fdatasync(self._handle)
        found = os.statvfs(self.path)
        free = found.f_bavail * found.f_frsize
        if free < FLOOR:
            raise RecordingStoppedError(
                f"recording stopped: the disk of {self.path} has {free >> 20} MiB left, and {FLOOR >> 20} stay free; "
                "make room, then start it again"
            )

    def keep_limit(self) -> None:
        """The oldest files go until the rest is within the limit."""
        if self.size <= self.limit:
            return
        for path in files(self.path):
            if self.size <= self.limit or path == self.file:
                return
            gone = _size(path)
            path.unlink()
            self.size -= gone
            self.removed += 1

    def _end(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def close(self) -> None:
        """Let the folder go."""
        self._end()
        os.close(self._lock)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _locked(folder: Path) -> int:
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise RecordingStoppedError(
            f"process {who or '?'} records into {folder} already: what it writes can be replayed while it goes on"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


class Recorder:
    """Snapshots in, files out. `put`, `switch` and `state` may be used from one thread, and never block."""

    def __init__(self, folder: Path, limit: int = LIMIT, *, simulated: str | None = None) -> None:
        """`simulated`: the scene of a simulated box, which the recording then says."""
        self.folder = folder
        self._scene = simulated or ""
        self.limit = limit
        self.state = State()
        self._queue: queue.Queue[tuple[Snapshot, tuple[LogLine, ...]] | bool | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lines: list[LogLine] = []
        self._due = self._slow_until = 0.0
        self._left_out = 0
        # what follows is the thread's own
        self._writer = Writer()
        self._run = secrets.token_hex(4)
        self._number = 0
        self._maker: FrameMaker | None = None
        self._minute_ends = 0.0
        self._cut_at = 0.0
        self._last_wall = 0.0
        self._kept: deque[_Kept] = deque(maxlen=KEPT)
        self._fixed: dict[str, bytes] = {}
        self._rollup = Rollup()
        self._rolled: deque[Minute] = deque(maxlen=KEPT)
        """Minutes whose line is in no file yet."""
        self._out: Folder | None = None

    # ------------------------------------------------------------------------------------------ from whoever records

    def put(self, snapshot: Snapshot, lines: Sequence[LogLine] = ()) -> None:
        """What is known now, and the log lines since the last call; more often than once a second is passed over."""
        self._lines += lines
        if snapshot.mono < max(self._due, self._slow_until) or snapshot.seq == 0:
            return
        self._due = snapshot.mono + STEP
        self._begin_work()
        if self._queue.qsize() >= WAITING:
            self._left_out += 1
            self.state = replace(self.state, left_out=self._left_out)
            return
        taken, self._lines = tuple(self._lines), []
        self._queue.put((snapshot, taken))

    def switch(self, on: bool) -> None:
        """Write to files, or stop that; `state` tells what came of it."""
        self._begin_work()
        self._queue.put(on)

    def _begin_work(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
            self._thread.start()

    def close(self, wait: float = 5.0) -> None:
        """Put everything on the disk and end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(wait)

    # ------------------------------------------------------------------------------------------------- in its thread

    def _work(self) -> None:
        why = "recording stopped by a fault of gpuconsole; its log has the trace"
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, bool):
                    self._switched(item)
                else:
                    self._take(*item)
            why = ""
        finally:  # such a fault ends the thread and not the console
            self._stop(why)

    def _take(self, snapshot: Snapshot, lines: tuple[LogLine, ...]) -> None:
        began = time.thread_time()
        fresh = self._maker is None or snapshot.mono >= self._minute_ends
        if fresh:
            self._end_minute()
        written = self._writer.write(snapshot, lines, key=fresh)
        for one in written.fixed:
            if one.id not in self._fixed:
                self._fixed[one.id] = fixed_frame(one.id, one.line)
        if fresh:
            self._begin_minute(snapshot, {one.id for one in written.fixed})
        assert self._maker is not None
        self._maker.add(written.line)
        minute = self._rollup.add(snapshot)
        if minute is not None:
            self._rolled.append(minute)
            self._write(self._write_rolled)
        self._last_wall = snapshot.wall
        if fresh or snapshot.mono >= self._cut_at:
            self._cut_at = snapshot.mono + FLUSH
            self._keep(self._maker.cut())
        self._slow_until = snapshot.mono + (time.thread_time() - began) / SHARE

    def _begin_minute(self, snapshot: Snapshot, fixed: set[str]) -> None:
        self._number += 1
        self._minute_ends = snapshot.mono + MINUTE
        self._maker = FrameMaker(minute_mark(snapshot.wall, snapshot.mono, self._run, self._number, self._scene))
        self._kept.append(_Kept(snapshot.wall, fixed))
        named = set().union(*(one.fixed for one in self._kept))
        self._fixed = {id_: frame for id_, frame in self._fixed.items() if id_ in named}
        self._write(lambda out: self._next_minute(out, snapshot.wall))

    def _next_minute(self, out: Folder, wall: float) -> None:
        if out.full:
            out.begin(wall)
        out.keep_limit()
        for id_ in sorted(self._kept[-1].fixed):
            out.fixed(id_, self._fixed[id_])

    def _end_minute(self) -> None:
        if self._maker is not None:
            maker, self._maker = self._maker, None
            self._keep(maker.cut(end=True))

    def _keep(self, data: bytes) -> None:
        kept = self._kept[-1]
        kept.data += data
        self._write(lambda out: self._file(out, kept))

    def _write(self, what: Callable[[Folder], None]) -> None:
        """Do something with the files, where they are written; what fails ends that."""
        if self._out is None:
            return
        try:
            what(self._out)
        except (OSError, RecordingStoppedError) as error:
            self._stop(_sentence(error, self.folder))
            return
        out = self._out
        self.state = replace(
            self.state,
            written=out.written,
            size=out.size,
            file=out.file,
            removed=out.removed,
            until=self._last_wall or None,
        )

    def _switched(self, on: bool) -> None:
        if on == (self._out is not None):
            return
        if not on:
            self._stop("")
            return
        try:
            self._out = out = Folder(self.folder, self.limit)
        except (OSError, RecordingStoppedError) as error:
            self.state = State(why_off=_sentence(error, self.folder), left_out=self._left_out)
            return
        self.state = State(True, time.time(), size=out.size, left_out=self._left_out)
        if self._maker is not None:
            self._write(self._write_kept)

    def _write_kept(self, out: Folder) -> None:
        """What memory holds, the present minute as far as it is flushed."""
        assert self._maker is not None
        self._kept[-1].data += self._maker.cut()
        new = [kept for kept in self._kept if kept.filed < len(kept.data)]
        out.begin(new[0].wall)
        for kept in new:
            kept.filed = 0
            for id_ in sorted(kept.fixed):
                out.fixed(id_, self._fixed[id_])
            self._file(out, kept)

        self._write_rolled(out)

    def _write_rolled(self, out: Folder) -> None:
        while self._rolled:
            minute_files.append(out.path, self._rolled[0])
            self._rolled.popleft()

    @staticmethod
    def _file(out: Folder, kept: _Kept) -> None:
        """What of a minute is not in its file yet."""
        out.put(bytes(kept.data[kept.filed :]))
        kept.filed = len(kept.data)

    def _stop(self, why: str) -> None:
        out, self._out = self._out, None
        if out is None:
            if why:
                self.state = replace(self.state, on=False, why_off=why)
            return
        if not why and self._maker is not None:
            data = self._maker.cut(end=True)  # so that the file ends whole
            self._maker = None
            self._kept[-1].data += data
            try:
                self._file(out, self._kept[-1])
            except (OSError, RecordingStoppedError) as error:
                why = _sentence(error, self.folder)
        self.state = replace(self.state, on=False, why_off=why, written=out.written, size=out.size, removed=out.removed)
        out.close()


def _sentence(error: Exception, folder: Path) -> str:
    if isinstance(error, OSError):
        return (
            f"{folder} cannot be written to ({error.strerror}): nothing is recorded there; make room or mend its rights"
        )
    return str(error)
