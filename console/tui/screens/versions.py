"""VersionDialog: which version to swap to, with what each one is. Planning follows, so nothing is sent by choosing."""

from __future__ import annotations

from console.core import units
from console.core.model import Snapshot
from console.core.text import one_line
from console.tui.panes.models_list import Version, models, sign_of, word_of
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import left, right
from console.tui.widgets.lines import Row
from console.tui.widgets.small_dialogs import Choice

NUMBER, SIZE, DATE = 12, 10, 18


class VersionDialog(Choice):
    """Ends with the version, or ""."""

    def __init__(self, snapshot: Snapshot, model: str, version: str, *, utc: bool) -> None:
        found = next((one.versions for one in models(snapshot) if one.name == model), ())
        rows = [version_row(one, utc=utc) for one in found]
        keys = [str(row.key) for row in rows if row.key is not None]
        first = version if version in keys else next(iter(keys), "no")
        super().__init__(f"Swap {one_line(model, 60)} to which version?", [HEAD, *rows], first)


HEAD = Row(((f"  {left('VERSION', NUMBER)}{right('SIZE', SIZE)}  {left('FILES FROM', DATE)}STATE", "label"),))


def version_row(one: Version, *, utc: bool) -> Row:
    """One version; the one that serves cannot be chosen."""
    ready = one.row is not None and one.row.state == "READY"
    size = units.size(one.disk.size) if one.disk is not None else units.NONE
    date = units.moment(one.disk.mtime_wall, utc=utc)[:16] if one.disk is not None else units.NONE
    value = sign_of(one)
    told = "READY: serves now" if ready else word_of(one) + (", newer than the served one" if one.newer else "")
    line = (
        (SIGNS[value], SIGN_STYLES[value]),
        (f" {left(one_line(one.version, 40), NUMBER)}{right(size, SIZE)}  {left(date, DATE)}", "dim" if ready else ""),
        (told, "dim" if ready else ""),
    )
    return Row(line, one.version if one.version.isdecimal() and not ready else None)
