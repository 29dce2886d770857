"""Verdicts about what was changed: V28 to V30b."""

from __future__ import annotations

from collections.abc import Iterator

from console.advisors.memory import Break, Epoch, slower
from console.advisors.rule import MAX_NAME, Look, rule, verdict
from console.core import units
from console.core.changes import NOT_OURS
from console.core.model import Event, ModelRow, Verdict
from console.core.text import one_line

VALUE_LENGTH = 40


@rule("V28")
def got_slower(look: Look) -> Iterator[Verdict]:
    """The same work takes longer than before an event that this console saw."""
    entry = look.entry("V28")
    for name, event in look.memory.breaks.items():
        now = look.memory.epoch(name)
        row = next((row for row in look.ready if row.name == name), None)
        if now is None or row is None or look.wall - event.wall > entry.limit("for_s"):
            continue
        found = slower(event.before.costs, now.costs, int(entry.limit("min_runs")))
        if found is None or found[3] < entry.limit("slower"):
            continue
        size, before, after, times = found
        title = entry.say(
            "title",
            b=size,
            m=one_line(name, MAX_NAME),
            now=units.millis(after.ms),
            before=units.millis(before.ms),
            event=_event(look, event, now),
        )
        yield verdict(
            look,
            "V28",
            title,
            [_blame(look, event.before, now)],
            model=row,
            since_wall=event.wall,
            figures=f"like batches take {times:.2f} times as long   runs {before.runs} before, {after.runs} since",
            source="batch_stats on both sides of the event",
        )


def _event(look: Look, event: Break, now: Epoch) -> str:
    entry = look.entry("V28")
    if event.kind == "version":
        return entry.say("version", old=event.before.version, new=now.version)
    return entry.say(event.kind, clock=units.clock(event.wall))


def _blame(look: Look, before: Epoch, now: Epoch) -> str:
    entry, old, new = look.entry("V28"), before.sm_mhz, now.sm_mhz
    if old is not None and new is not None and new < entry.limit("clock_fell") * old:
        return entry.say("card", old=units.whole(old), new=units.whole(new))
    return entry.say("model")


@rule("V29")
def not_ours(look: Look) -> Iterator[Verdict]:
    """Somebody else reloaded or changed a model in the last minutes; told by the newest event of each model."""
    entry = look.entry("V29")
    newest: dict[str, Event] = {}
    for event in look.snapshot.events:
        recent = look.wall - event.wall <= entry.limit("for_s")
        if recent and event.origin == NOT_OURS and event.kind in ("config", "reload") and event.model:
            newest[event.model] = event
    for row in look.ready:
        found = newest.pop(row.name, None)
        if found is None:
            continue
        clock = units.clock(found.wall)
        if found.kind == "reload":
            title = entry.say("reload", m=one_line(row.name, MAX_NAME), clock=clock)
        else:
            title = entry.say("change", text=one_line(found.text, 2 * MAX_NAME), clock=clock)
        yield verdict(
            look,
            "V29",
            title,
            [entry.say("line")],
            model=row,
            since_wall=found.wall,
            source="statistics, configuration",
        )


@rule("V30")
def live_only(look: Look) -> Iterator[Verdict]:
    """What runs is not what the file says."""
    entry = look.entry("V30")
    for row in _once(row for row in look.ready if row.live_only):
        differences = row.disk.differences if row.disk else ()
        if not differences:
            continue
        first = differences[0]
        disk, live = one_line(first.disk, VALUE_LENGTH), one_line(first.live, VALUE_LENGTH)
        lines = [entry.say("one", path=one_line(first.path, MAX_NAME), live=live, disk=disk)]
        if len(differences) > 1:
            lines.append(entry.say("more", n=len(differences) - 1))
        title = entry.say("title", m=one_line(row.name, MAX_NAME), disk=_setting(first.path, disk))
        yield verdict(
            look, "V30", title, lines, model=row, since_wall=_changed_at(look, row), source="configuration, disk"
        )


def _once(rows: Iterator[ModelRow]) -> Iterator[ModelRow]:
    """One row for each model: the file is one for all its versions."""
    seen: set[str] = set()
    for row in rows:
        if row.name not in seen:
            seen.add(row.name)
            yield row


def _setting(path: str, value: str) -> str:
    """`500 µs` for a delay, else `name value`."""
    name = path.rsplit(".", 1)[-1]
    if name.endswith("_microseconds"):
        return f"{value} µs"
    return f"{one_line(name, MAX_NAME)} {value or 'unset'}"


def _changed_at(look: Look, row: ModelRow) -> float | None:
    events = (e for e in reversed(look.snapshot.events) if e.kind == "config" and e.model == row.name)
    return next((event.wall for event in events), None)


@rule("V30b")
def newer_on_disk(look: Look) -> Iterator[Verdict]:
    """A version waits on disk that any load would deploy."""
    entry = look.entry("V30b")
    highest: dict[str, int] = {}
    for row in look.ready:
        version = row.version or ""
        if version.isdecimal():
            highest[row.name] = max(highest.get(row.name, 0), int(version))
    for row in look.ready:
        newer = row.newer_on_disk
        if newer is None or newer <= highest.get(row.name, 0) or row.version != str(highest.get(row.name)):
            continue
        events = (e for e in reversed(look.snapshot.events) if e.kind == "disk.version" and e.model == row.name)
        since = next((event.wall for event in events), None)
        yield verdict(
            look,
            "V30b",
            entry.say("title", m=one_line(row.name, MAX_NAME), newer=newer),
            [entry.say("line", version=row.version)],
            model=row,
            since_wall=since,
            source="disk, index",
        )
