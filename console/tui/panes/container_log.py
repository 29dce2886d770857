"""The live log of the container (design 1.8): literal text, capped lines, follow, filter, marks of restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from console.core import units
from console.core.model import Event, LogLine, PodmanState, Snapshot
from console.core.store import lettered
from console.core.text import one_line
from console.tui.messages import TOO_FAST
from console.tui.panes import log_explained
from console.tui.panes.base import Pane, View
from console.tui.panes.log_entries import Entry, LogEntries
from console.tui.panes.wording import failed, sign, wrapped
from console.tui.signs import SIGNS
from console.tui.widgets.cells import Line, Segment, cut, left, width
from console.tui.widgets.lines import Row

Kind = Literal["all levels", "wrapped", "warnings and errors", "matches in context"]
KINDS: tuple[Kind, ...] = ("all levels", "wrapped", "warnings and errors", "matches in context")
SPANS: tuple[tuple[str, float | None], ...] = (
    ("last 10 m", 600),
    ("last 1 h", 3600),
    ("last 6 h", 21600),
    ("all that is kept", None),
)
LEVEL_STYLES = {"E": "fail", "F": "fail", "W": "warn", "V": "dim"}
TROUBLE = frozenset({"W", "E", "F"})
PASSED_ON = ("passthrough", "passthrough-tty")
"""Log drivers of which Podman has no log: the unit's journal has it (sources/logs.py)."""
STREAM = "logs"
"""Name of the stream that brings the lines."""
MOST_WRAPPED = 12
"""Lines that one long entry takes when wrapped."""
WIDE = 100
"""Columns from which times have milliseconds and origins their full width."""


class ContainerLog(Pane):
    """Rows of the log. Those that came are appended once a second; only what is on the screen is ever drawn."""

    FIELDS = ("container", "events", "gaps", "checks")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.entries = LogEntries()
        self.source: Sequence[LogLine] = ()
        """The app's bounded queue of lines."""
        self.held = False
        """True while the screen is held: lines go on arriving and are shown when it goes on."""
        self.follow = True
        self.kind: Kind = "all levels"
        self.span = 1
        self.expanded: set[int] = set()
        """Numbers of entries that `enter` opened."""
        self.unseen = 0
        """Lines that came since follow was switched off."""
        self._rows: list[Row] = []
        self._owners: list[Entry] = []
        self._made: object = None
        self._events: tuple[Event, ...] = ()
        self._letters: tuple[tuple[str, Event], ...] = ()

    # -------------------------------------------------------------------------------------------------------- content

    def title(self, view: View) -> Line:
        parts = ["log", f"follow {'on' if self.follow else 'off'}", self.kind, SPANS[self.span][0]]
        if self.filter:
            parts.append(f"/{one_line(self.filter, 40)}")
        made: Line = (("  ".join(parts), "title"),)
        podman = view.snapshot.container.value
        container = podman.container if podman is not None else None
        if container is not None and container.unit and container.log_driver in PASSED_ON:
            made = (*made, (f"  from the journal of {one_line(container.unit, 60)}", "dim"))
        standing = view.snapshot.gaps.stands(STREAM)
        if standing is not None:
            made = (*made, (f"  {SIGNS['warn']} stands {units.age(view.mono - standing.since_mono)}", "warn"))
        return (*made, (f"  {self.unseen} new below: f", "warn")) if self.unseen and not self.follow else made

    def note(self, view: View) -> Line:
        last = next((entry.wall for entry in reversed(self.entries.entries) if entry.wall is not None), None)
        return () if last is None else ((f"newest line {view.since(last)} ago", "dim"),)

    def lines(self, view: View) -> list[Row]:
        new = 0 if self.held else self.entries.read(self.source, view.snapshot.events)
        self.unseen = 0 if self.follow else self.unseen + new
        if view.snapshot.events is not self._events:
            self._events = view.snapshot.events
            self._letters = tuple((letter, event) for letter, event in lettered(self._events) if letter)
        self._update(view)
        return self._rows if self._rows else self._nothing(view)

    def foot_lines(self, view: View) -> list[Line]:
        """Why no line comes, and how many came too fast: under the newest line, where the operator looks."""
        gaps = view.snapshot.gaps
        made: list[Line] = []
        standing = gaps.stands(STREAM)
        if standing is not None:
            age = units.age(view.mono - standing.since_mono)
            text = f"log stands for {age}: {one_line(standing.failure.message, 300)}"
            for number, piece in enumerate(wrapped(text, view.width - 2, most=2)):
                made.append((sign("warn") if not number else (" ", ""), (f" {piece}", "warn")))
        dropped = dict(gaps.dropped).get(TOO_FAST)
        if dropped:
            made.append((sign("warn"), (f" left out: {dropped} {TOO_FAST}", "warn")))
        return made

    def _update(self, view: View) -> None:
        """Bring the rows up to date: what came is appended, what is too old goes; all anew when shown another way."""
        span = SPANS[self.span][1]
        oldest = None if span is None else view.wall - span
        made = (
            self.kind,
            self.filter,
            self.span,
            view.width,
            view.utc,
            frozenset(self.expanded),
            view.snapshot.checks if self.expanded else None,
            self.entries.inserted,
        )
        if made != self._made:
            self._made = made
            self._rows, self._owners = [], []
        self._drop(oldest)
        last = self._owners[-1].number if self._owners else 0
        while self._owners and self._owners[-1].number == last:
            self._rows.pop()
            self._owners.pop()
        fresh = []
        for entry in reversed(self.entries.entries):
            if entry.number < last:
                break
            fresh.append(entry)
        for entry in reversed(fresh):
            if self._shows(entry, oldest):
                rows = self._entry_rows(entry, view)
                self._rows += rows
                self._owners += [entry] * len(rows)

    def _drop(self, oldest: float | None) -> None:
        first = self.entries.entries[0].number if self.entries.entries else 0
        gone = 0
        for owner in self._owners:
            if owner.number >= first and (oldest is None or owner.wall is None or owner.wall >= oldest):
                break
            gone += 1
        if gone:
            del self._rows[:gone], self._owners[:gone]

    def _shows(self, entry: Entry, oldest: float | None) -> bool:
        if oldest is not None and entry.wall is not None and entry.wall < oldest:
            return False
        line = entry.line
        if line is None:
            return True
        if self.kind == "warnings and errors" and line.level not in TROUBLE:
            return False
        return self.kind == "matches in context" or self.matches(line)

    def matches(self, line: LogLine) -> bool:
        """True when the filter lets the line through."""
        return self.wanted(f"{line.level or ''} {line.origin or ''} {line.text}")

    def _entry_rows(self, entry: Entry, view: View) -> list[Row]:
        if entry.line is None:
            return [Row(((f"── {entry.mark} {view.clock(entry.wall)} ──", "note"),), entry.number)]
        if entry.number in self.expanded:
            return [*self._wrapped(entry, entry.line, view), *self._explained(entry, view)]
        if self.kind == "wrapped":
            return self._wrapped(entry, entry.line, view)
        return [Row(self._drawn_entry(entry, entry.line, view.width, view.utc), entry.number)]

    # ----------------------------------------------------------------------------------------------------- one line

    def _drawn_entry(self, entry: Entry, line: LogLine, cells: int, utc: bool) -> Callable[[], Line]:
        def drawn() -> Line:
            head = prefix(line, cells, utc)
            room = max(0, cells - sum(width(text) for text, _ in head))
            notes = [f"{entry.times} times"] if entry.times > 1 else []
            letter = self._letter(line)
            notes += [f"event {letter}"] if letter else []
            meaning = log_explained.note(line)
            notes += [meaning] if meaning else []
            shown, tail = _fitted(one_line(line.text).rstrip(), line.truncated, notes, room)
            style = LEVEL_STYLES.get(line.level or "", "")
            return (*head, *self._marked(shown, style), (tail, "dim"))

        return drawn

    def _wrapped(self, entry: Entry, line: LogLine, view: View) -> list[Row]:
        head = prefix(line, view.width, view.utc)
        indent = sum(width(text) for text, _ in head)
        text = one_line(line.text) + (f"  {entry.times} times" if entry.times > 1 else "")
        pieces = wrapped(text, max(20, view.width - indent), most=MOST_WRAPPED)
        if line.truncated:
            pieces.append(f"+{line.truncated} characters were cut off")
        style = LEVEL_STYLES.get(line.level or "", "")
        made = [Row((*head, *self._marked(pieces[0], style)), entry.number)]
        return [*made, *(Row(((" " * indent, ""), *self._marked(piece, style))) for piece in pieces[1:])]

    def _explained(self, entry: Entry, view: View) -> list[Row]:
        """What the opened line means, from the lines around it (a restart parts them)."""
        lines: list[LogLine] = []
        at = -1
        for one in self.entries.entries:
            if one.line is None:
                if at >= 0:
                    break
                lines = []
                continue
            if one.number == entry.number:
                at = len(lines)
            lines.append(one.line)
        indent = sum(width(text) for text, _ in prefix(lines[at], view.width, view.utc)) if view.width >= WIDE else 2
        return log_explained.rows(lines, at, view.snapshot, view.width, indent) if at >= 0 else []

    def _marked(self, text: str, style: str) -> tuple[Segment, ...]:
        """The text with what the filter found standing out."""
        if not self.filter or self.filter.startswith("!"):
            return ((text, style),)
        folded, wanted = text.casefold(), self.filter.casefold()
        at = folded.find(wanted)
        if at < 0 or len(folded) != len(text):
            return ((text, style),)
        end = at + len(wanted)
        return ((text[:at], style), (text[at:end], f"{style}+match" if style else "match"), (text[end:], style))

    def _letter(self, line: LogLine) -> str:
        """The letter of the event that this line tells of: same second, names its model."""
        for letter, event in self._letters:
            if line.wall is None or not event.wall - 0.2 <= line.wall < event.wall + 1.0:
                continue
            if event.model and event.model in line.text:
                return letter
        return ""

    # --------------------------------------------------------------------------------------------- nothing to show

    def _nothing(self, view: View) -> list[Row]:
        """Why there is no line, and which command would show them."""
        if self.entries.entries:
            return [Row((("no line of this span passes; v, < > and / change what is shown", "dim"),))]
        snapshot = view.snapshot
        made: list[Row] = []
        if snapshot.container.error is not None:
            made += failed(snapshot.container.error, view.width)
        podman = snapshot.container.value
        if podman is not None and podman.last_log and podman.container is None:
            made.append(Row((("the container is gone; its unit's last lines:", "label"),)))
            made += [Row(((cut(one_line(line), view.width), ""),)) for line in podman.last_log]
            return made
        made.append(Row(((_why_empty(podman, snapshot), "dim"),)))
        return [*made, *(Row(((f"  {command}", ""),)) for command in _commands(podman))]

    # ----------------------------------------------------------------------------------------------------------- keys

    def set_rows(
        self,
        rows: Sequence[Row],
        head: Line | None = None,
        tail: Line | None = None,
        foot: Sequence[Row] | None = None,
    ) -> None:
        if self.follow and rows:
            self.cursor = next((row.key for row in reversed(rows) if row.key is not None), None)
            self.top = len(rows)
        super().set_rows(rows, head, tail, foot)

    def move(self, steps: int) -> None:
        """Moving up ends following: nobody can read a line that runs away."""
        if steps < 0:
            self.follow = False
        super().move(steps)

    def scroll_rows(self, steps: int) -> None:
        if steps < 0:
            self.follow = False
        super().scroll_rows(steps)

    def toggle_follow(self) -> None:
        """`f`."""
        self.follow = not self.follow
        self.unseen = 0
        self.again()

    def toggle_line(self) -> None:
        """`enter`: the whole line, wrapped, and what it means; again: one row."""
        if isinstance(self.cursor, int):
            self.follow = False
            self.expanded ^= {self.cursor}
            self.again()

    def next_match(self, step: int) -> bool:
        """`n`, `N`: to the next line that the filter finds; False when there is none."""
        keyed = [n for n, row in enumerate(self._rows) if row.key is not None]
        at = next((place for place, n in enumerate(keyed) if self._rows[n].key == self.cursor), 0)
        found = keyed[at + 1 :] if step > 0 else list(reversed(keyed[:at]))
        for number in found:
            line = self._owners[number].line
            if line is not None and self.filter and self.matches(line):
                self.follow = False
                return self.select(self._rows[number].key)
        return False

    def shift_sort(self, steps: int) -> bool:
        self.span = max(0, min(len(SPANS) - 1, self.span + steps))
        self.again()
        return True

    def next_view(self) -> bool:
        self.kind = KINDS[(KINDS.index(self.kind) + 1) % len(KINDS)]
        self.again()
        return True

    def filterable(self) -> bool:
        return True

    def yank(self) -> str:
        """The whole line as it came, not as it is cut."""
        entry = next((one for one in self._owners if one.number == self.cursor), None)
        if entry is None or entry.line is None:
            return ""
        line = entry.line
        return f"{units.moment(line.wall)} {line.level or ''} {line.origin or ''} {line.text}"

    def changes(self) -> object:
        return (self.follow, self.kind, self.span, frozenset(self.expanded))


def prefix(line: LogLine, cells: int, utc: bool) -> tuple[Segment, ...]:
    """Time, level and origin in fixed columns."""
    clock = units.clock(line.wall, utc=utc)
    wide = cells >= WIDE
    if wide and line.wall is not None:
        clock += f".{min(999, round(line.wall % 1 * 1000)):03d}"
    level = (line.level or " ")[:1]
    origin = left(one_line(line.origin or "", 60), 21 if wide else 12)
    style = LEVEL_STYLES.get(level, "")
    return ((left(clock, 12 if wide else 8), "dim"), (f" {level} ", style), (f"{origin} ", "label"))


def _fitted(text: str, missing: int, notes: list[str], room: int) -> tuple[str, str]:
    """The text cut to its room, and what stands at the right end: notes, and how many characters are not shown."""
    tail = f"  {'  '.join(notes)}" if notes else ""
    if not missing and width(text) <= room - len(tail):
        return (left(text, room - len(tail)) if tail else text), tail
    space = len(f"  +{len(text) + missing}")
    shown = cut(text, max(0, room - len(tail) - space))
    hidden = missing + len(text) - len(shown.removesuffix("…"))
    tail += f"  +{hidden}"
    return left(shown, max(0, room - len(tail))), tail


def _why_empty(podman: PodmanState | None, snapshot: Snapshot) -> str:
    if podman is None:
        return "no log: Podman was not read yet" if not snapshot.container.tried else "no log without Podman; by hand:"
    if podman.socket is None:
        return "no Podman socket answers, so there is no log to follow; by hand:"
    if podman.container is None:
        return "no Triton container, so no log; by hand:"
    return "no line came yet; the same by hand:"


def _commands(podman: PodmanState | None) -> list[str]:
    container = podman.container if podman else None
    if container is None:
        return ["podman ps -a", "journalctl -e -u triton.service"]
    made = [f"podman logs -f --timestamps {one_line(container.name, 80)}"]
    if container.unit:
        made.append(f"journalctl -f -u {one_line(container.unit, 80)}")
    return made
