"""SUMMARY.md: one page that tells what happened, when, and what was most likely the matter (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.bundle.cause import Grounds, Suspect, changes_before, suspects
from console.bundle.parts import Missing
from console.bundle.past import Figure, Seen
from console.core import units
from console.core.model import Event, Snapshot
from console.core.sign import SIGNS
from console.core.text import literal, one_line

MOST_EVENTS = 40
MOST_SEEN = 12
MOST_FIGURES = 14
MOST_SUSPECTS = 5
MOST_MISSING = 20


class Page(Struct, frozen=True):
    """All that the page is made of."""

    snapshot: Snapshot
    grounds: Grounds
    versions: Mapping[str, Any]
    missing: Sequence[Missing]
    begin: float
    end: float
    """Unix seconds."""
    simulated: str | None = None


def cause(page: Page) -> Suspect | None:
    """The one that stands on top."""
    found = suspects(page.grounds)
    return found[0] if found else None


def summary(page: Page) -> str:
    """The page."""
    return "\n".join(literal(line) for line in _lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    utc = page.grounds.utc
    zone = units.zone(page.end, utc=utc)
    host = page.versions.get("host") or "?"
    begin, end = units.moment(page.begin, utc=utc), units.moment(page.end, utc=utc)
    yield f"# {one_line(str(host), 80)}: {begin} to {end} ({zone})"
    yield ""
    if page.simulated is not None:
        yield f"Of the simulated box ({page.simulated}): none of this is real."
    yield f"Made by gpuconsole {page.versions.get('gpuconsole')}. All times are {zone}. " + _recorded(page)
    yield "Secrets were taken out: REDACTED.md lists where. `gpuconsole replay FILE` plays the recording in it."
    yield ""
    yield "## Suspected cause"
    yield ""
    yield from _causes(page)
    yield ""
    yield "## What serves at the end"
    yield ""
    yield from _serving(page)
    yield ""
    seen = [one for one in page.grounds.past.seen if one.verdict.sign in ("fail", "warn")]
    if seen:
        yield "## Verdicts, by the moment they were first said"
        yield ""
        yield from (_seen(one, utc=utc) for one in seen[:MOST_SEEN])
        if len(seen) > MOST_SEEN:
            yield f"- and {len(seen) - MOST_SEEN} more: snapshot.json"
        yield ""
    yield from _checks(page)
    yield "## Timeline"
    yield ""
    yield from _timeline(page.grounds.past.events, utc=utc)
    yield ""
    if len(page.grounds.past.figures) > 1:
        yield "## Figures"
        yield ""
        yield from _figures(page.grounds.past.figures, utc=utc)
        yield ""
    yield "## Versions"
    yield ""
    yield from _versions(page.versions)
    yield ""
    yield "## Not known"
    yield ""
    yield from _missing(page.missing)


def _recorded(page: Page) -> str:
    past = page.grounds.past
    if past.recorded is None:
        return (
            "Nothing was recorded of this time: what follows is of the logs, of Podman and of the moment it was made."
        )
    begin, end = (units.clock(one, utc=page.grounds.utc) for one in past.recorded)
    return f"Recorded from {begin} to {end}, read by the {past.every}."


def _causes(page: Page) -> Iterator[str]:
    found = suspects(page.grounds)
    if not found:
        yield "Nothing is wrong as far as is known: no failure, no verdict, no finding. See what is not known below."
        return
    for number, one in enumerate(found[:MOST_SUSPECTS], 1):
        when = "now" if one.wall is None else units.moment(one.wall, utc=page.grounds.utc)
        before = " (it stood before this time)" if one.wall is not None and one.wall < page.begin else ""
        lead = f"**{when}  {one_line(one.title, 300)}** ({one.trust}){before}"
        yield f"{number}. {SIGNS[one.sign]} {lead}"
        yield from (f"   - {one_line(line, 400)}" for line in one.evidence[:5])
        if number == 1 and one.wall is not None:
            for change in changes_before(page.grounds, one.wall)[-4:]:
                clock = units.clock(change.wall, utc=page.grounds.utc)
                yield f"   - changed before it: {clock} {one_line(change.text, 200)} ({one_line(change.origin, 80)})"
    if len(found) > MOST_SUSPECTS:
        yield f"{MOST_SUSPECTS + 1}. and {len(found) - MOST_SUSPECTS} more below"


def _serving(page: Page) -> Iterator[str]:
    snapshot = page.snapshot
    word = snapshot.serving
    count = f" {word.ready} of {word.of}" if word.of else ""
    yield f"{word.word}{count}" + (f": {one_line(word.detail, 200)}" if word.detail else "")
    podman = snapshot.container.value
    container = podman.container if podman is not None else None
    if container is not None:
        code = f", exit {container.exit_code}" if container.exit_code is not None else ""
        ended = f", ended {units.moment(container.finished_wall, utc=page.grounds.utc)}" if code else ""
        started = units.moment(container.started_wall, utc=page.grounds.utc)
        yield f"- container {one_line(container.name, 80)}: {container.state}{code}{ended}, started {started}"
    elif podman is not None:
        yield "- no Triton container"
    rows = [row for row in snapshot.models if row.state is not None or row.failed_load]
    for row in rows[:12]:
        state = f"{row.state or '?'}{', its load failed' if row.failed_load else ''}"
        reason = f": {one_line(row.reason, 200)}" if row.reason else ""
        yield f"- {one_line(row.name, 80)} {row.version or '–'}: {state}{reason}"
    if len(rows) > 12:
        yield f"- and {len(rows) - 12} more"


def _seen(one: Seen, *, utc: bool) -> str:
    first = ("before " if one.before else "") + units.clock(one.first, utc=utc)
    until = "still" if one.stands else f"until {units.clock(one.last, utc=utc)}"
    return f"- {first}, {until}: {SIGNS[one.verdict.sign]} {one_line(one.verdict.title, 200)} ({one.verdict.id})"


def _checks(page: Page) -> Iterator[str]:
    report = page.grounds.report
    if report is None:
        return
    bad = [one for one in report.findings if one.sign == "fail"]
    unknown = sum(one.sign == "unknown" for one in report.findings)
    warned = sum(one.sign == "warn" for one in report.findings)
    yield "## Checks, when the bundle was made"
    yield ""
    yield f"{len(bad)} fail, {warned} warn, {unknown} not known, of {len(report.findings)} (checks.txt)"
    for one in bad[:8]:
        yield f"- {SIGNS['fail']} {one.id} {one_line(one.title, 80)}: {one_line(one.text, 200)}"
    if len(bad) > 8:
        yield f"- and {len(bad) - 8} more"
    yield ""


def _timeline(events: Sequence[Event], *, utc: bool) -> Iterator[str]:
    if not events:
        yield "No event of this time is known."
        return
    told = [one for one in events if one.marks_chart or one.sign in ("fail", "warn") or one.kind.startswith("act.")]
    told = told or list(events)
    if len(told) > MOST_EVENTS:  # what is good goes first; the page has room for so many
        bad = [one for one in told if one.sign in ("fail", "warn") or one.kind.startswith("act.")]
        told = sorted([*bad[-MOST_EVENTS:], *_good(told, MOST_EVENTS - len(bad))], key=lambda one: one.wall)
    for one in told:
        times = f"  {one.repeats} times" if one.repeats > 1 else ""
        yield f"- {units.clock(one.wall, utc=utc)} {SIGNS[one.sign]} {one_line(one.text, 200)}{times}  {one.origin}"
    if len(told) < len(events):
        yield f"- {len(events) - len(told)} more in events.jsonl"


def _good(events: Sequence[Event], room: int) -> list[Event]:
    good = [one for one in events if one.sign not in ("fail", "warn") and not one.kind.startswith("act.")]
    return good[-room:] if room > 0 else []


def _figures(figures: Sequence[Figure], *, utc: bool) -> Iterator[str]:
    yield "| time | serving | GPU memory | util % | req/s | mean ms | waiting |"
    yield "|---|---|---|---|---|---|---|"
    step = max(1, -(-len(figures) // MOST_FIGURES))
    kept = list(figures[::step])
    if kept[-1] is not figures[-1]:
        kept.append(figures[-1])
    for one in kept:
        memory = units.size(one.vram) + (f" of {units.size(one.vram_total)}" if one.vram_total else "")
        flow = f"{units.rate(one.rate)} | {units.millis(one.mean_ms)} | {units.whole(one.waiting)}"
        serving = f"{units.clock(one.wall, utc=utc)} | {one.serving} {one.ready}/{one.of}"
        yield f"| {serving} | {memory} | {units.whole(one.util)} | {flow} |"


def _versions(versions: Mapping[str, Any]) -> Iterator[str]:
    for name, value in versions.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in sorted(value.items()))
        elif isinstance(value, list | tuple):
            value = ", ".join(str(one) for one in value)
        yield f"- {name}: {one_line(str(value), 300) if value else 'not known'}"


def _missing(missing: Sequence[Missing]) -> Iterator[str]:
    if not missing:
        yield "All parts could be had."
    for one in missing[:MOST_MISSING]:
        yield f"- {one_line(one.what, 100)}: {one_line(one.why, 300)}"
    if len(missing) > MOST_MISSING:
        yield f"- and {len(missing) - MOST_MISSING} more: manifest.json"
