"""LineView, the one widget that all panes are made of: rows of styled literal text in an optional frame.

It keeps the lines that are on the screen and refreshes only the cells that changed, because the compositor re-sends
every cell of a dirty region (it does not compare). A cursor sits on a row's identity, not on a position, so it
survives sorting, filtering and rows that come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from console.core.text import literal
from console.tui.theme import Look, look_of
from console.tui.widgets.cells import Line, cut_line, line_width
from console.tui.widgets.cells import width as text_width

Frame = Literal["box", "rule", "none"]
GAP = 14
"""Unchanged cells between two changed spans that are cheaper to send again than a second cursor move and style."""


class Row(NamedTuple):
    """A line of content. `key` is its identity (None: the cursor passes it by); a callable makes the line when it is
    on the screen, so that a thousand rows cost no more than those seen."""

    line: Line | Callable[[], Line]
    key: Hashable = None


class LineView(Widget, can_focus=True):
    """Rows of text, drawn cell by cell. Content comes by `set_rows`; nothing wraps, nothing blinks."""

    DEFAULT_CSS = "LineView { height: 1fr; width: 1fr; }"

    class CursorMoved(Message):
        """The cursor sits on another row now."""

        def __init__(self, view: LineView, key: Hashable) -> None:
            super().__init__()
            self.view = view
            self.key = key

        @property
        def control(self) -> LineView:
            return self.view

    def __init__(self, *, frame: Frame = "none", id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.frame: Frame = frame
        self.head: Line = ()
        """What the frame's upper edge says at the left."""
        self.tail: Line = ()
        """What it says at the right."""
        self.rows: Sequence[Row] = ()
        self.pinned = 0
        """Rows at the start (column heads) that do not scroll."""
        self.foot: Sequence[Row] = ()
        """Rows that stand at the bottom whatever scrolls above them."""
        self.cursor: Hashable = None
        """Key of the row under the cursor; None when no row has a key."""
        self.top = 0
        """How many rows are scrolled out above."""
        self._cursor_at = 0
        self._keyed: list[int] = []
        self._lines: list[tuple[Line, str]] = []
        self._strips: list[Strip] = []
        self._painted: tuple[Size, Look, bool] | None = None

    # ------------------------------------------------------------------------------------------------------- content

    def set_rows(
        self,
        rows: Sequence[Row],
        head: Line | None = None,
        tail: Line | None = None,
        foot: Sequence[Row] | None = None,
    ) -> None:
        """Show these rows (and this frame text) from now on; only cells that differ are sent."""
        self.rows = rows
        if foot is not None:
            self.foot = foot
        if head is not None:
            self.head = head
        if tail is not None:
            self.tail = tail
        self._keyed = [number for number, row in enumerate(rows) if row.key is not None]
        self._seat_cursor()
        self.top = self._clamp(self.top)
        self.paint()

    @property
    def inner(self) -> Size:
        """Cells for content, inside the frame."""
        width, height = self.size
        if self.frame == "box":
            return Size(max(0, width - 4), max(0, height - 2))
        return Size(width, max(0, height - (self.frame == "rule")))

    @property
    def room(self) -> int:
        """Rows that scroll and are visible at one time."""
        return max(0, self.inner.height - self.pinned - len(self.foot))

    def _seat_cursor(self) -> None:
        if not self._keyed:
            self.cursor, self._cursor_at = None, 0
            return
        for number in self._keyed:
            if self.rows[number].key == self.cursor and self.cursor is not None:
                self._cursor_at = number
                return
        nearest = min(self._keyed, key=lambda number: abs(number - self._cursor_at))
        self._put_cursor(nearest)

    def _put_cursor(self, number: int) -> None:
        key = self.rows[number].key
        changed = key != self.cursor
        self._cursor_at, self.cursor = number, key
        if changed and self.is_attached:
            self.post_message(self.CursorMoved(self, key))

    # --------------------------------------------------------------------------------------------------------- motion

    def select(self, key: Hashable) -> bool:
        """Put the cursor on the row of that identity; False when there is none."""
        for number in self._keyed:
            if self.rows[number].key == key:
                self._put_cursor(number)
                self._reveal(number)
                self.paint()
                return True
        return False

    def move(self, steps: int) -> None:
        """Cursor (or, without keyed rows, the content) down by `steps`; negative: up."""
        if not self._keyed:
            self.scroll_rows(steps)
            return
        at = self._keyed.index(self._cursor_at) if self._cursor_at in self._keyed else 0
        target = self._keyed[max(0, min(len(self._keyed) - 1, at + steps))]
        self._put_cursor(target)
        self._reveal(target)
        self.paint()

    def move_pages(self, pages: float) -> None:
        """As `move`, by pages of what is visible."""
        steps = max(1, int(self.room * abs(pages)))
        self.move(steps if pages > 0 else -steps)

    def move_end(self, down: bool) -> None:
        """To the first or last row."""
        self.move(len(self.rows) if down else -len(self.rows))

    def scroll_rows(self, steps: int) -> None:
        """Move the content without the cursor."""
        top = self._clamp(self.top + steps)
        if top != self.top:
            self.top = top
            self.paint()

    def _clamp(self, top: int) -> int:
        return max(0, min(top, len(self.rows) - self.pinned - self.room))

    def _reveal(self, number: int) -> None:
        place = number - self.pinned
        if place < self.top:
            self.top = max(0, place) if number > self._keyed[0] else 0
        elif place >= self.top + self.room:
            self.top = self._clamp(place - self.room + 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-3)

    def on_click(self, event: events.Click) -> None:
        number = self.top + event.y - (self.frame != "none")
        if self.pinned <= number - self.top and number in self._keyed:
            self._put_cursor(number)
            self.paint()

    def on_focus(self) -> None:
        self.paint()

    def on_blur(self) -> None:
        self.paint()

    # -------------------------------------------------------------------------------------------------------- drawing

    def paint(self) -> None:
        """Draw anew and mark the changed cells as dirty; before the widget has a size this waits for it."""
        if not self.is_attached or not self.size:
            return
        look = look_of(self.app)
        state = (self.size, look, self.app.app_focus)
        lines = list(self._drawn())
        if self._painted != state or len(lines) != len(self._lines):
            self._painted = state
            self._strips = [look.strip(line, self.size.width, over) for line, over in lines]
            self._lines = lines
            self.refresh()
            return
        dirty: list[Region] = []
        for y, (new, old) in enumerate(zip(lines, self._lines, strict=True)):
            if new != old:
                self._strips[y] = look.strip(new[0], self.size.width, new[1])
                dirty += [Region(x, y, cells, 1) for x, cells in changed_spans(old, new, self.size.width)]
        self._lines = lines
        if dirty:
            self.refresh(*dirty)

    def _drawn(self) -> Iterator[tuple[Line, str]]:
        """The widget's lines from top to bottom, each with the style laid over it."""
        inner = self.inner
        if self.frame != "none" and self.size.height:
            yield self._edge(), ""
        for row in self._visible(inner.height):
            line: Line = () if row is None else row.line() if callable(row.line) else row.line
            over = ""
            if row is not None and row.key is not None and row.key == self.cursor:
                over = "cursor" if self.has_focus else "cursor-idle"
            yield self._framed(line, inner.width, over)
        if self.frame == "box" and self.size.height > 1:
            yield ((f"└{'─' * max(0, self.size.width - 2)}┘", self._edge_style()),), ""

    def _visible(self, height: int) -> Iterator[Row | None]:
        """Pinned rows, the part that scrolls, the foot: `height` rows, None = blank."""
        foot = self.foot[: max(0, height - self.pinned)]
        body = self.rows[self.pinned + self.top :][: max(0, height - self.pinned - len(foot))]
        shown: list[Row | None] = [*self.rows[: self.pinned], *body]
        shown += [None] * (height - len(shown) - len(foot))
        yield from [*shown, *foot][:height]

    def _framed(self, line: Line, cells: int, over: str) -> tuple[Line, str]:
        line = cut_line(safe(line), cells)
        if self.frame != "box":
            return line, over
        style = self._edge_style()
        rest = cells - line_width(line)
        if over:
            line = tuple((text, f"{name}+{over}") for text, name in line)
        filler = " " * rest
        return (("│", style), (" ", over), *line, (filler + " ", over), ("│", style)), ""

    def _edge_style(self) -> str:
        return "border-focus" if self.has_focus else "border"

    def _edge(self) -> Line:
        style = self._edge_style()
        left, right = ("┌ ", " ┐") if self.frame == "box" else ("─ ", " ─")
        cells = self.size.width - 4
        tail = self.tail and ((" ", style), *self.tail)
        head = cut_line(safe(self.head), max(0, cells - line_width(tail) - 2))
        fill = cells - line_width(head) - line_width(tail) - bool(head)
        middle = ((" " if head else "") + "─" * max(0, fill), style)
        return ((left, style), *head, middle, *tail, (right if tail else "─" + right[1:], style))

    def render_lines(self, crop: Region) -> list[Strip]:
        if self._painted is None or self._painted[0] != self.size or self._painted[1] is not look_of(self.app):
            self.paint()
        strips = self._strips[crop.y : crop.bottom]
        if crop.x or crop.width != self.size.width:
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        if len(strips) < crop.height:
            blank = look_of(self.app).strip((), crop.width, "")
            strips = strips + [blank] * (crop.height - len(strips))
        return strips

    def render_line(self, y: int) -> Strip:
        return self.render_lines(Region(0, y, self.size.width, 1))[0]


def safe(line: Line) -> Line:
    """The line without control characters. Panes clean external text themselves; this is the last door before the
    terminal, so that one forgotten name cannot drive it."""
    if all(text.isprintable() for text, _ in line):
        return line
    return tuple((literal(text).replace("\n", " "), style) for text, style in line)


def changed_spans(old: tuple[Line, str], new: tuple[Line, str], width: int) -> list[tuple[int, int]]:
    """(x, cells) of what differs between two drawn lines; spans less than GAP apart are one."""
    before, after = _cells(*old, width), _cells(*new, width)
    spans: list[tuple[int, int]] = []
    start: int | None = None
    last = -1
    for x in range(width):
        if before[x] == after[x]:
            continue
        if start is not None and x - last > GAP:
            spans.append((start, last - start + 1))
            start = None
        if start is None:
            start = x
        last = x
    if start is not None:
        spans.append((start, last - start + 1))
    return [_whole_characters(before, after, *span) for span in spans]


def _cells(line: Line, over: str, width: int) -> list[tuple[str, str]]:
    cells: list[tuple[str, str]] = []
    for text, style in line:
        style = f"{style}+{over}" if over else style
        if text.isascii():
            cells += [(char, style) for char in text]
            continue
        for char in text:
            wide = text_width(char)
            if wide == 0 and cells:
                cells[-1] = (cells[-1][0] + char, cells[-1][1])
            else:
                cells += [(char, style), *[("", style)] * (wide - 1)]
    blank = (" ", over and f"+{over}")
    return (cells + [blank] * (width - len(cells)))[:width]


def _whole_characters(before: list[Any], after: list[Any], x: int, cells: int) -> tuple[int, int]:
    """Never half of a wide character: its right half is drawn by its left one."""
    while x > 0 and ("" in (before[x][0], after[x][0])):
        x, cells = x - 1, cells + 1
    while x + cells < len(after) and "" in (before[x + cells][0], after[x + cells][0]):
        cells += 1
    return x, cells
