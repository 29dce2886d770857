"""`gpuconsole bundle`: one file for a colleague or a vendor's ticket; reads only, and writes that file alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from console.actions.box import Box
from console.bundle import archive
from console.bundle.cause import Grounds
from console.bundle.collect import Given, Range, collect, harmless, known_secrets, versions
from console.bundle.parts import Part, Parts
from console.bundle.redaction import Redactor
from console.bundle.summary import Page, cause, summary
from console.core import duration, units
from console.core.plan import WrongInput
from console.core.text import ascii_text, literal, one_line

WATCH_S = 3.0
"""Seconds that the box is watched for rates."""
FACTS_WITHIN = "6s"
"""That facts are waited for: a box that wants a bundle is often busy."""
LEAST_S, MOST_S = 60.0, 7 * 86400.0
"""Of `--last`."""


class Order(Struct, frozen=True):
    """What was asked for."""

    seconds: float
    out: Path | None = None
    """None = a file in the present folder, named after the host and the time."""
    dry_run: bool = False
    keep_paths: bool = False
    utc: bool = False


class Made(Struct, frozen=True):
    """A bundle that is ready to be written."""

    order: Order
    folder: str
    """The one folder in it."""
    parts: tuple[Part, ...]
    lacks: tuple[str, ...]
    redactions: int
    suspect: str
    """The suspected cause in one line; "" = none."""
    wall: float


def order(last: str, out: str, *, dry_run: bool, keep_paths: bool, utc: bool) -> Order:
    """The command line as an order. WrongInput, also where the file cannot be written: before anything is read."""
    seconds = duration.seconds(last, "--last")
    if not LEAST_S <= seconds <= MOST_S:
        raise WrongInput(f"--last must be from 1m to {MOST_S / 3600:.0f}h, not {one_line(last, 40)}")
    path = Path(out).expanduser().absolute() if out else None
    if path is not None and not dry_run:
        _writable(path)
    return Order(seconds, path, dry_run, keep_paths, utc)


def _writable(path: Path) -> None:
    try:
        if path.is_dir():
            raise WrongInput(f"--out names the folder {path}; name a file in it, such as {path / 'box.tar.zst'}")
        if path.exists():
            raise WrongInput(f"{path} is already there, and is not overwritten; name another file")
        if not path.parent.is_dir():
            raise WrongInput(f"there is no folder {path.parent} for {path.name}; make it, or name another with --out")
    except OSError as error:
        raise WrongInput(f"{path} cannot be written ({error.strerror}); name another file with --out") from error


def make(box: Box, given: Given, wanted: Order, recordings: Path) -> Made:
    """Collect all, take the secrets out and tell what happened."""
    now = time.time()
    time_range = Range(now - wanted.seconds, now)
    words = (*known_secrets(box.settings),)
    redactor = Redactor(words, harmless(given.snapshot), keep_paths=wanted.keep_paths)
    parts = Parts(redactor)
    told = collect(parts, box, given, time_range, recordings)
    served = tuple({row.name for row in given.snapshot.models})
    changes = tuple(
        (one.record.wall, one.outcome.wall if one.outcome is not None else now, one.record.title)
        for one in told.changes
    )
    word = given.snapshot.serving
    serving = f"{word.word}: {word.detail}".rstrip(": ") if word.word in ("DOWN", "NOT ANSWERING") else ""
    grounds = Grounds(told.past, told.lines, given.report, told.kernel_read, served, serving, changes, wanted.utc)
    page = Page(
        given.snapshot,
        grounds,
        versions(given.snapshot, told.past),
        parts.missing,
        time_range.begin,
        time_range.end,
        box.spec.simulated,
    )
    parts.text("SUMMARY.md", summary(page))
    done = parts.done()
    done.append(archive.redacted(redactor.redactions))
    done.append(archive.manifest(done, parts.missing, redactor.redactions, time_range.begin, time_range.end))
    suspect = cause(page)
    line = ""
    if suspect is not None:
        when = "now" if suspect.wall is None else units.moment(suspect.wall, utc=wanted.utc)
        line = redactor.again("SUMMARY.md", redactor.text("SUMMARY.md", f"{when}  {one_line(suspect.title, 300)}"))
    return Made(
        wanted,
        f"gpuconsole-{_plain(box.host)}-{time.strftime('%Y%m%dT%H%M%S', time.localtime(now))}",
        tuple(sorted(done, key=lambda part: part.name)),
        tuple(f"{one.what}: {one.why}" for one in parts.missing),
        sum(one.count for one in redactor.redactions),
        line,
        now,
    )


def _plain(host: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "-.") else "-" for char in host)[:60] or "box"


def finish(made: Made) -> Path | None:
    """Write it, unless it was only to be shown. WrongInput where that cannot be done."""
    if made.order.dry_run:
        return None
    path = made.order.out or Path.cwd() / f"{made.folder}{archive.SUFFIX}"
    _writable(path)
    try:
        archive.write(path, archive.packed(made.folder, made.parts, made.wall))
    except OSError as error:
        raise WrongInput(f"{path} cannot be written ({error.strerror}); name another file with --out") from error
    return path


def show(made: Made, path: Path | None, *, ascii_only: bool = False) -> bytes:
    """What is printed."""
    text = "\n".join(literal(line) for line in _lines(made, path)) + "\n"
    return (ascii_text(text) if ascii_only else text).encode("utf-8", "replace")


def _lines(made: Made, path: Path | None) -> Iterator[str]:
    if path is None:
        yield f"would hold {len(made.parts)} parts, {made.redactions} secrets taken out:"
        yield from _content(made.parts)
    else:
        size = units.size(path.stat().st_size)
        yield f"{path}: {size}, {len(made.parts)} parts, {made.redactions} secrets taken out (REDACTED.md lists where)"
    for one in made.lacks:
        yield f"not in it: {one_line(one, 400)}"
    yield f"suspected cause: {made.suspect or 'none; nothing is wrong as far as is known'}"
    if path is not None:
        yield f"read it first: tar --zstd -xOf {path} {made.folder}/SUMMARY.md"


def _content(parts: Sequence[Part]) -> Iterator[str]:
    for one in parts:
        note = f"   {one.note}" if one.note else ""
        yield f"  {units.size(len(one.data)):>9}  {one.name}{note}"
