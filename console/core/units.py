"""Numbers -> text, one style for every screen. `–` = not given; callers put `?` (unread) and `~` (old) themselves."""

from __future__ import annotations

from datetime import UTC, datetime

NONE = "–"
KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


def gib(size: float | None) -> str:
    """Bytes as a bare figure in GiB with one decimal: `5.7`."""
    return NONE if size is None else f"{size / GIB:.1f}"


def size(value: float | None) -> str:
    """Bytes with the unit that fits: `418 MiB`, `1.6 GiB`."""
    if value is None:
        return NONE
    for unit, name in ((TIB, "TiB"), (GIB, "GiB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}" if value < 100 * unit else f"{value / unit:.0f} {name}"
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if value >= unit:
            return f"{value / unit:.0f} {name}"
    return f"{value:.0f} B"


def speed(value: float | None) -> str:
    """Bytes a second: `1.6 GiB/s`."""
    return NONE if value is None else f"{size(value)}/s"


def whole(value: float | None) -> str:
    """A whole number."""
    return NONE if value is None else f"{value:.0f}"


def one(value: float | None) -> str:
    """One decimal."""
    return NONE if value is None else f"{value:.1f}"


def rate(value: float | None) -> str:
    """A rate a second: two significant decimals only where they mean something (`0.4`, `39.6`, `1650`)."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def millis(value: float | None) -> str:
    """Milliseconds as a bare figure with three significant digits: `0.08`, `2.94`, `18.4`, `174`, `1085`."""
    if value is None:
        return NONE
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def percent(share: float | None) -> str:
    """A share of 0 to 1 as a bare whole percent."""
    return NONE if share is None else f"{100 * share:.0f}"


def age(seconds: float | None) -> str:
    """How old: `0 s`, `33 s`, `24 m`, `5 h`, `2 d`."""
    if seconds is None:
        return NONE
    seconds = max(0.0, seconds)
    for limit, unit, name in ((100, 1, "s"), (100 * 60, 60, "m"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} d"


def uptime(seconds: float | None) -> str:
    """How long it has been so: `41 s`, `24m36s`, `5h02m`, `3d04h`."""
    if seconds is None:
        return NONE
    total = int(max(0.0, seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600:02d}h"


def clock(wall: float | None, *, utc: bool = False) -> str:
    """Time of day `14:04:31`, in the box's zone or UTC."""
    return NONE if wall is None else _moment(wall, utc).strftime("%H:%M:%S")


def moment(wall: float | None, *, utc: bool = False) -> str:
    """Date and time `2026-07-04 14:04:31`."""
    return NONE if wall is None else _moment(wall, utc).strftime("%Y-%m-%d %H:%M:%S")


def zone(wall: float, *, utc: bool = False) -> str:
    """The zone's offset as people read it: `UTC+8`, `UTC+5:30`, `UTC`."""
    offset = _moment(wall, utc).utcoffset()
    minutes = 0 if offset is None else int(offset.total_seconds() // 60)
    if minutes == 0:
        return "UTC"
    sign, minutes = ("+", minutes) if minutes > 0 else ("-", -minutes)
    return f"UTC{sign}{minutes // 60}" + (f":{minutes % 60:02d}" if minutes % 60 else "")


def _moment(wall: float, utc: bool) -> datetime:
    moment = datetime.fromtimestamp(wall, UTC)
    return moment if utc else moment.astimezone()
