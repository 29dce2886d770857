"""The whole difference between a served configuration and config.pbtxt, then the served one as it is (Models, `d`)."""

from __future__ import annotations

import json

from console.core import units
from console.core.model import ModelRow, Snapshot
from console.core.text import one_line
from console.tui.panes.models_list import Model
from console.tui.panes.wording import paragraph, wrapped
from console.tui.widgets.lines import Row

BLANK = Row(())


def difference(model: Model, row: ModelRow | None, snapshot: Snapshot, width: int, *, utc: bool = False) -> list[Row]:
    """Field by field: `-` as on disk, `+` as served; defaults that the server added are no difference."""
    made = [*_fields(model, row, width, utc), BLANK]
    config = row.config if row else None
    if config is None:
        failure = snapshot.configs.value.failures.get(model.name) if snapshot.configs.value else None
        return [*made, *paragraph("SERVED", f"? {one_line(failure or 'not served')}", width, "unknown", most=4)]
    made.append(Row((("SERVED     with the defaults that the server added", "label"),)))
    for line in _pretty(config.raw):
        made += [Row(((part, ""),)) for part in wrapped("  " + one_line(line), width, most=4)]
    return made


def _fields(model: Model, row: ModelRow | None, width: int, utc: bool) -> list[Row]:
    disk = (row.disk if row else None) or model.disk
    if disk is None:
        return paragraph("DISK", "? the model's folder is not known on this host", width, "unknown")
    head = f"{one_line(disk.path, 200)}/config.pbtxt   {units.moment(disk.config_mtime_wall, utc=utc)}"
    made = paragraph("DISK", head, width)
    if disk.config_error:
        return [*made, *paragraph("", one_line(disk.config_error), width, "warn", most=4)]
    if row is None or row.config is None:
        return made
    if not disk.differences:
        return [*made, *paragraph("", "live is as on disk", width)]
    for one in disk.differences:
        made.append(Row(((f"  {one_line(one.path, 200)}", "label"),)))
        made += [Row(((line, "fail"),)) for line in wrapped(f"  - {one_line(one.disk)}", width, most=6)]
        made += [Row(((line, "ok"),)) for line in wrapped(f"  + {one_line(one.live)}", width, most=6)]
    return made


def _pretty(raw: str) -> list[str]:
    """The served JSON indented; as it came where it is none."""
    try:
        return json.dumps(json.loads(raw), indent=2, ensure_ascii=False).splitlines()
    except ValueError:
        return raw.splitlines() or [""]
