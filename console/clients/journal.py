"""journald through journalctl, and the kernel's ring buffer through /dev/kmsg.

dmesg(1) is not used: it reads /dev/kmsg itself, with the same rights.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from console.clients.commands import TIME_LIMIT, Output, found, run
from console.core.model import SourceError
from console.core.podman_frames import KEEP_BYTES, RawLine
from console.core.text import decode

MAX_LINES = 5000
MAX_ENTRY = 4 * 1024 * 1024
"""Bytes of one entry that are waited for."""
LOOK_EVERY = 0.5
"""Seconds between two looks whether to stop."""
HINT = "add your user to the group systemd-journal (Debian: adm), or run with sudo"
_DENIED = ("insufficient permissions", "not seeing messages from other users", "Permission denied")


class JournalEntry(Struct, frozen=True):
    """One entry of the journal."""

    wall: float
    message: str
    cursor: str
    mono: float | None = None
    """Seconds after boot when the message was made, for kernel messages."""
    identifier: str = ""


class _Raw(Struct, frozen=True):
    """journalctl -o json: numbers are text, a message that is no UTF-8 is a list of bytes."""

    message: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")
    cursor: str = msgspec.field(default="", name="__CURSOR")
    wall_us: str = msgspec.field(default="0", name="__REALTIME_TIMESTAMP")
    source_mono_us: str | None = msgspec.field(default=None, name="_SOURCE_MONOTONIC_TIMESTAMP")
    identifier: Any = msgspec.field(default="", name="SYSLOG_IDENTIFIER")


def parse_entries(text: bytes) -> list[JournalEntry]:
    """The lines of `journalctl -o json`; what is no entry, or has no message, is left out."""
    entries = []
    for line in text.splitlines():
        try:
            raw = msgspec.json.decode(line, type=_Raw)
            entry = _entry(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
            continue
        if entry is not None:
            entries.append(entry)
    return entries


def _entry(raw: _Raw) -> JournalEntry | None:
    if raw.message is None:
        return None
    message = raw.message if isinstance(raw.message, str) else decode(bytes(raw.message))
    mono = int(raw.source_mono_us) / 1e6 if raw.source_mono_us else None
    identifier = raw.identifier if isinstance(raw.identifier, str) else ""
    return JournalEntry(int(raw.wall_us) / 1e6, message, raw.cursor, mono, identifier)


def kernel_entries(after: str | None = None) -> list[JournalEntry]:
    """Kernel messages of this boot, all (the last MAX_LINES) or those after a cursor.

    SourceError: unavailable (no journalctl, no journal), permission, timeout.
    """
    where = ["--after-cursor", after] if after else ["-n", str(MAX_LINES)]
    return parse_entries(_journalctl(["-k", "-b", *where]).out)


def unit_entries(unit: str, since_wall: float, user: bool = False, count: int = MAX_LINES) -> list[JournalEntry]:
    """Entries of a unit (of the user's own systemd where `user`), systemd's own about it included, since a time.

    Errors as `kernel_entries`.
    """
    scope = ["--user"] if user else []
    return parse_entries(_journalctl([*scope, "-u", unit, "--since", f"@{int(since_wall)}", "-n", str(count)]).out)


def follow_unit(
    unit: str, ended: Callable[[], bool], since: int | None = None, tail: int | None = None, user: bool = False
) -> Iterator[RawLine]:
    """What a unit's processes write, from `since` (Unix seconds) on or the last `tail` lines, then new ones as they
    come; without what systemd says about the unit. Ends when `ended()`, which is asked twice a second.

    SourceError: unavailable (no journalctl, it ended), permission.
    """
    program = found("journalctl")
    if program is None:
        raise SourceError("unavailable", "journalctl is not installed")
    where = ["-n", "all", "--since", f"@{since}"] if since is not None else ["-n", str(tail or MAX_LINES)]
    scope = ["--user"] if user else []
    with tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            [program, *scope, "-o", "json", "--no-pager", "-f", "-u", unit, *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            env={**os.environ, "LC_ALL": "C"},
        )
        try:
            yield from _followed(child, ended)
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        if not ended():
            err.seek(0)
            said = decode(err.read(1000)).strip()
            if any(words in said for words in _DENIED):
                raise SourceError("permission", f"the journal of {unit} may not be read", HINT)
            raise SourceError("unavailable", f"journalctl ended: {said[:300] or child.returncode}")


def _followed(child: subprocess.Popen[bytes], ended: Callable[[], bool]) -> Iterator[RawLine]:
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    waiting = b""
    while not ended():
        if not select.select([pipe], [], [], LOOK_EVERY)[0]:
            continue
        data = os.read(pipe, 65536)
        if not data:
            return
        whole, newline, waiting = (waiting + data).rpartition(b"\n")
        if not newline and len(waiting) > MAX_ENTRY:  # no entry has so much: what it was is not told
            waiting = b""
        for entry in parse_entries(whole):
            if entry.identifier != "systemd":
                yield RawLine(entry.wall, "journal", entry.message.encode()[:KEEP_BYTES])


def _journalctl(arguments: Sequence[str]) -> Output:
    answer = run(["journalctl", "-o", "json", "--no-pager", *arguments], TIME_LIMIT)
    said = decode(answer.err)
    if any(words in said for words in _DENIED) and not answer.out:
        raise SourceError("permission", "the journal may not be read", HINT)
    if answer.code != 0:
        raise SourceError("unavailable", f"journalctl failed: {said.strip()[:300] or answer.code}")
    if not answer.out and "No journal files were found" in said:
        raise SourceError("unavailable", "there is no journal on this host")
    return answer


# --------------------------------------------------------------------------------------------------------------- kmsg


class KernelMessage(Struct, frozen=True):
    """One record of the ring buffer; `mono` is seconds after boot."""

    sequence: int
    mono: float
    text: str


class Kmsg:
    """/dev/kmsg opened without blocking: first all that the ring buffer holds, then what is new at each read."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except PermissionError as error:
            raise SourceError("permission", f"{path} may not be read", HINT) from error
        except OSError as error:
            raise SourceError("unavailable", f"{path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the device; may be called twice."""
        with contextlib.suppress(OSError):
            os.close(self._file)

    def read(self, limit: int = 20 * MAX_LINES) -> list[KernelMessage]:
        """New records, at most `limit`. SourceError when the device cannot be read (some sandboxes refuse it)."""
        found: list[KernelMessage] = []
        while len(found) < limit:
            try:
                data = os.read(self._file, 16384)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten before they were read; the next read goes on
                    continue
                kind = "permission" if error.errno == errno.EPERM else "unavailable"
                raise SourceError("permission" if kind == "permission" else "unavailable", f"kmsg: {error}") from error
            if not data:
                break
            record = parse_record(data)
            if record is not None:
                found.append(record)
        return found


def parse_record(data: bytes) -> KernelMessage | None:
    """`6,1234,5678901,-;text` and its continuation lines; None for what is no record."""
    head, semicolon, body = data.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 3 or not (fields[1].isdigit() and fields[2].isdigit()):
        return None
    return KernelMessage(int(fields[1]), int(fields[2]) / 1e6, decode(body.split(b"\n", 1)[0]))


def boot_wall() -> float:
    """Unix time of second 0 of the kernel's clock, from the present clocks."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.time() - time.clock_gettime(clock)
