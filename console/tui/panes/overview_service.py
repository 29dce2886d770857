"""Service on the Overview (screens.md 1.1 to 1.4): container, server, traffic, where a request's time goes, host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from console.core import units
from console.core.model import BatchWindow, ContainerState, Failure, ModelRow, PodmanState, Reading, Snapshot, Window
from console.core.text import one_line
from console.tui.panes.base import Pane, View, age_line
from console.tui.panes.header import lamp, short_failure
from console.tui.panes.percentiles import tail
from console.tui.panes.wording import wrapped
from console.tui.signs import SIGNS
from console.tui.widgets.cells import Line, Segment, cut, left, line_width
from console.tui.widgets.lines import Row
from console.tui.widgets.trend import LEVELS, split_bar

BAR = 40
"""Cells of the time split."""
NOT_FULL = 86
"""Cells under which the long sentences have no room."""
SPLIT_STYLES = ("wait", "input", "compute", "output")


class Ranked(NamedTuple):
    """A line and how soon it gives way where rows are few (highest first)."""

    line: Line
    rank: int


class OverviewService(Pane):
    """The Triton container and its server."""

    FIELDS = ("container", "server", "index", "stats", "metrics", "models", "traffic", "host", "repository")
    NUMBER = "5"

    def title(self, view: View) -> Line:
        return (("Service", "title"),)

    def note(self, view: View) -> Line:
        snapshot = view.snapshot
        reading = snapshot.container if snapshot.server.value is None else snapshot.server
        return (*age_line(reading, view.mono), ("  ", ""), (f"[{self.NUMBER}]", "key"))

    def lines(self, view: View) -> list[Row]:
        if view.compact:
            return [Row(line) for line in compact_lines(view)]
        kept = list(service_lines(view))
        while len(kept) > max(1, view.height):
            kept.remove(max(kept, key=lambda one: one.rank))
        return [Row(one.line) for one in kept]


def service_lines(view: View) -> list[Ranked]:
    """All lines, from top to bottom, with their ranks."""
    snapshot = view.snapshot
    if snapshot.server.error is not None or snapshot.server.value is None:
        return [*_container(view), *_last_words(view), *_not_answering(view), Ranked(_host(view), 5)]
    row = view.model
    return [
        *_container(view),
        Ranked(_server(view), 0),
        *_blind_spots(view),
        Ranked(_traffic(view), 1),
        Ranked(_failures(view), 4),
        *([Ranked(line, 2 + number) for number, line in enumerate(_split(view, row))] if row is not None else []),
        *([Ranked(_batches(row), 6)] if row is not None else []),
        Ranked(_host(view), 5),
    ]


# --------------------------------------------------------------------------------------------------------- container


def _container(view: View) -> list[Ranked]:
    reading: Reading[PodmanState] = view.snapshot.container
    podman = reading.value
    container = podman.container if podman else None
    if container is not None:
        return [Ranked(line, 0) for line in _known(container, view)]
    if reading.error is not None:
        told = one_line(reading.error.message, 200)
        return [Ranked((("container ", "label"), ("? ", "unknown"), (f"Podman: {told}", "text")), 2)]
    if podman is None:
        return [Ranked((("container ", "label"), ("… not read yet", "dim")), 2)]
    server = view.snapshot.server
    if server.error is None and server.value is not None:
        return [Ranked((("container ", "label"), ("– none found; the server answers all the same", "dim")), 2)]
    looked = ", ".join(dict.fromkeys(one.origin for one in podman.tried)) or "nowhere"
    return [Ranked((("container ", "label"), ("✗ none", "fail"), (f" (looked: {looked}, the port)", "dim")), 0)]


def _known(container: ContainerState, view: View) -> list[Line]:
    name = cut(one_line(container.name), 24)
    running = container.state == "running"
    if running:
        up = units.uptime(None if container.started_wall is None else view.wall - container.started_wall)
        health = "" if container.health in (None, "", "healthy", "none") else f"   health {container.health}"
        state: Line = ((f"{SIGNS['ok']} ", "ok"), (f"running {up}", "value"), (health, "warn"))
    else:
        since = view.since(container.finished_wall)
        code = "" if container.exit_code is None else f", exit {container.exit_code}"
        killed = ", out of memory" if container.oom_killed else ""
        state = ((f"{SIGNS['fail']} {container.state}{code}{killed}", "fail"), (f", {since} ago", "dim"))
    restarts = "" if container.restarts is None else f"   restarts {container.restarts}"
    unit = "" if container.unit is None else f"   unit {one_line(container.unit, 40)}"
    first: Line = (("container ", "label"), (f"{name} ", "value"), *state, (restarts, "text"))
    image = f"  image {image_tag(container.image)}" if container.image else ""
    if line_width(first) + len(unit) + len(image) <= view.width:
        return [(*first, (unit, "text"), (image, "dim"))]
    if line_width(first) + len(unit) <= view.width:
        return [(*first, (unit, "text"))]
    return [first, ((unit.strip(), "text"),)] if unit and not running else [first]


def image_tag(image: str) -> str:
    """`24.05-py3` of a full name; the name's last part where it has no tag."""
    name = one_line(image, 200).rsplit("/", 1)[-1]
    return name.split("@", 1)[0].rsplit(":", 1)[-1]


def _last_words(view: View) -> list[Ranked]:
    """The last lines of a container that does not run (from Podman, or the unit's journal where it is gone)."""
    podman = view.snapshot.container.value
    if podman is None or not podman.last_log or (podman.container and podman.container.state == "running"):
        return []
    lines = [Ranked((("last lines:", "label"),), 4)]
    for text in podman.last_log[-3:]:
        lines += [Ranked(((f"  {part}", "text"),), 3) for part in wrapped(one_line(text, 300), view.width - 2, most=2)]
    return lines


def _not_answering(view: View) -> list[Ranked]:
    server = view.snapshot.server
    if server.error is None:
        return [Ranked((("server    ", "label"), ("… not read yet", "dim")), 1)]
    since = f" since {view.clock(server.error_wall)}" if server.error_wall is not None else ""
    told: Line = (("server    ", "label"), (f"✗ {one_line(server.error.message, 200)}", "fail"), (since, "dim"))
    lines = [Ranked(told, 1)]
    metrics = view.snapshot.metrics
    if metrics.error is None and metrics.value is not None:
        lines.append(Ranked((("metrics   ", "label"), ("● answer: HTTP workers may be held", "note")), 1))
    return lines


# ------------------------------------------------------------------------------------------------------------ server


def _server(view: View) -> Line:
    server = view.snapshot.server.value
    assert server is not None
    version = left(one_line(server.version or "?", 20), 9)
    start: Line = (
        ("server    ", "label"),
        (version, "value"),
        ("live ", "label"),
        lamp(server.live, "✗"),
        ("   ready ", "label"),
        lamp(server.ready, "▲ 400"),
    )
    why = not_ready_because(view.snapshot) if server.ready is False else ""
    note = f"   {one_line(server.note, 60)}" if server.note else ""
    if not why:
        return (*start, (note, "warn"))
    long = f": {why}; ready probes drop this box"
    return (*start, (long if line_width(start) + len(long) <= view.width else f": {why}", "text"))


def not_ready_because(snapshot: Snapshot) -> str:
    """Why ready is 400, from the index: a failed model, one that loads, or nothing that explains it."""
    failed = [row for row in snapshot.models if row.failed_load]
    moving = [row for row in snapshot.models if row.state in ("LOADING", "UNLOADING")]
    if moving:
        return f"{_named(moving[0])} is {moving[0].state}"
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"{_named(failed[0])}{more} failed"
    return "" if not snapshot.index.tried else "nothing in the index explains it"


def _named(row: ModelRow) -> str:
    name = cut(one_line(row.name), 24)
    return f"{name} {row.version}" if row.version else name


def _blind_spots(view: View) -> list[Ranked]:
    """What this server does not tell us, and what that costs: one line each."""
    snapshot = view.snapshot
    spots: tuple[tuple[str, Failure | None, str, str], ...] = (
        ("metrics", snapshot.metrics.error, "no waiting count", "–"),
        ("statistics", snapshot.stats.error, "no rates and times", "▲"),
        ("index", snapshot.index.error, "no model states", "▲"),
    )
    lines = []
    for name, failure, cost, sign in spots:
        if failure is None:
            continue
        why = short_failure(failure) if failure.kind == "unavailable" else one_line(failure.message, 80)
        guess = " (are they off?)" if name == "metrics" and failure.kind == "unavailable" else ""
        style = "warn" if sign == "▲" else "dim"
        lines.append(Ranked(((f"{sign} ", style), (f"{name} {why}{guess}: {cost}", "text")), 1))
    return lines


# ----------------------------------------------------------------------------------------------------------- traffic


def _traffic(view: View) -> Line:
    traffic = view.snapshot.traffic
    about = "≈ " if traffic.approximate else ""
    old = "~ " if view.snapshot.stats.is_old(view.mono) else ""
    through = ""
    if traffic.through_ensembles and view.width >= NOT_FULL:
        parts = [
            f"{units.rate(rate)} of them through {cut(one_line(name), 16)}" for name, rate in traffic.through_ensembles
        ]
        told = " (" + ", ".join(parts[:2]) + ", counted once)"
        room = view.width - len(f"traffic   {about}{units.rate(traffic.rate)} req/s from outside   waiting 999")
        through = told if len(told) <= room + 2 else " (ensembles counted once)"
    return (
        ("traffic   ", "label"),
        (f"{old}{about}{units.rate(traffic.rate)} req/s", "old" if old else "value"),
        (f" from outside{through}", "dim"),
        ("   waiting ", "label"),
        (units.whole(traffic.waiting), "value"),
    )


def _failures(view: View) -> Line:
    traffic = view.snapshot.traffic
    failing = bool(traffic.fail_rate)
    reasons = "".join(f"  {name} {units.one(rate)}" for name, rate in failure_rates(view.snapshot.models) if rate > 0)
    return (
        ("failures  ", "label"),
        (f"{units.one(traffic.fail_rate)}/s", "fail" if failing else "value"),
        (" of those that Triton counts *", "dim"),
        (reasons, "fail"),
    )


def failure_rates(rows: Iterable[ModelRow]) -> list[tuple[str, float]]:
    """Failures a second by reason over all models but ensembles, over 10 s."""
    rates: dict[str, float] = {}
    for row in rows:
        if row.metrics is None or row.ensemble:
            continue
        for one in row.metrics.failures:
            if one.rate10 is not None:
                rates[one.reason or "in all"] = rates.get(one.reason or "in all", 0.0) + one.rate10
    return sorted(rates.items())


# -------------------------------------------------------------------------------------------------------- time split


def _split(view: View, row: ModelRow) -> list[Line]:
    """Where the time of the chosen model's request goes: four parts, no rest."""
    window = row.flow.w10 if row.flow else None
    name = cut(one_line(row.name), 24)
    if row.ensemble:
        return [((f"a {name} request: the sum of its steps; waiting shows on the steps", "dim"),)]
    parts = split_parts(window)
    if window is None or parts is None:
        return [((f"no {name} request counted in the last 10 s", "dim"),)]
    label = f"a {name} request, mean of 10 s   "
    if view.width - len(label) < BAR // 2 + 12:
        label = f"{name}   "
    bar = split_segments(parts, min(BAR, max(8, view.width - len(label) - 12)))
    total = f"  {units.millis(window.request_ms)} ms"
    words = ("▓ waiting", "░ input", "█ model", "▒ output")
    end: Segment = (f" tail p99 {tail(row)}", "dim")
    legend: Line = ()
    for indent, names in ((10, words), (2, words), (2, ("▓ wait", "░ in", "█ model", "▒ out"))):
        pairs = zip(names, parts, SPLIT_STYLES, strict=True)
        told = [((name[:1], style), (f"{name[1:]} {units.millis(value)}  ", "text")) for name, value, style in pairs]
        legend = ((" " * indent, ""), *(segment for pair in told for segment in pair), end)
        if line_width(legend) <= view.width:
            break
    return [((label, "label"), *bar, (total, "value")), legend]


def split_parts(window: Window | None) -> tuple[float, float, float, float] | None:
    """Waiting, input, model, output in ms; None when nothing was counted."""
    if window is None or window.queue_ms is None or window.infer_ms is None:
        return None
    return window.queue_ms, window.input_ms or 0.0, window.infer_ms, window.output_ms or 0.0


def split_segments(parts: tuple[float, ...], cells: int) -> Line:
    """The bar of the time split, each part in its style."""
    return tuple(zip(split_bar(parts, cells), SPLIT_STYLES, strict=True))


# ----------------------------------------------------------------------------------------------------- batches, host


def _batches(row: ModelRow) -> Line:
    window = row.flow.w10 if row.flow else None
    label: Segment = ("batches   ", "label")
    if row.ensemble or window is None or not window.batches:
        return (label, ("– none run in the last 10 s" if not row.ensemble else "– run by its steps", "dim"))
    most = row.config.max_batch_size if row.config else 0
    mean = f"mean {units.one(window.mean_batch)}" + (f" of {most}" if most else ", batching off")
    return (label, (histogram(window.batches), "bar"), (f"   {mean}, by runs", "dim"))


def histogram(batches: tuple[BatchWindow, ...]) -> str:
    """`1 ▁  2 ▄  …  9+ ▁`: how often each batch size ran, as levels of the commonest."""
    runs: dict[str, int] = {}
    for one in sorted(batches, key=lambda batch: batch.size):
        name = str(one.size) if one.size <= 8 else "9+"
        runs[name] = runs.get(name, 0) + one.runs
    highest = max(runs.values(), default=0) or 1
    return "  ".join(f"{name} {LEVELS[min(7, int(8 * count / highest))]}" for name, count in runs.items())


def _host(view: View) -> Line:
    host = view.snapshot.host.value
    if host is None:
        error = view.snapshot.host.error
        return (("host      ", "label"), (f"? {one_line(error.message)}" if error else "… not read yet", "dim"))
    of = "" if host.cpus is None else f" of {host.cpus}"
    return (
        ("host      ", "label"),
        (f"cpu {units.whole(host.cpu_pct)} %{of}   ", "value"),
        (f"triton {units.one(host.triton_cores)} cores   ", "value"),
        (f"mem {_of(host.memory_used, host.memory_total, whole=True)} GiB   ", "value"),
        (f"shm {_of(host.shm_used, host.shm_total)}", "value"),
        (f"  disk {disk_pct(view.snapshot)} %", "value"),
    )


def disk_pct(snapshot: Snapshot) -> str:
    """How full the model repository's disk is."""
    repository = snapshot.repository.value
    if repository is None or not repository.disk_total or repository.disk_free is None:
        return units.NONE
    return units.percent(1 - repository.disk_free / repository.disk_total)


def _of(used: float | None, total: float | None, *, whole: bool = False) -> str:
    form = units.whole if whole else units.one
    return "/".join(form(None if value is None else value / units.GIB) for value in (used, total))


def compact_lines(view: View) -> list[Line]:
    """Two lines for 80 columns (screens.md 1.2)."""
    snapshot = view.snapshot
    podman = snapshot.container.value
    container = podman.container if podman else None
    service: list[Segment] = [("SVC ", "title")]
    if container is not None:
        name = cut(one_line(container.name), 12)
        if container.state == "running":
            up = units.uptime(None if container.started_wall is None else view.wall - container.started_wall)
            service.append((f"{name} up {up}", "value"))
        else:
            code = "" if container.exit_code is None else f" exit {container.exit_code}"
            service.append((f"{name} ✗ {container.state}{code} {view.since(container.finished_wall)} ago", "fail"))
        service.append(("" if container.restarts is None else f" restarts {container.restarts}", "text"))
    elif snapshot.container.error is not None:
        service.append((f"? Podman {short_failure(snapshot.container.error)}", "unknown"))
    else:
        service.append(("no container", "dim"))
    if snapshot.server.error is not None:
        service.append((f"    ✗ {one_line(snapshot.server.error.message, 60)}", "fail"))
    else:
        traffic = snapshot.traffic
        service += [
            (f"    {units.rate(traffic.rate)} req/s   waiting {units.whole(traffic.waiting)}   ", "value"),
            (f"failures* {units.one(traffic.fail_rate)}/s", "fail" if traffic.fail_rate else "value"),
        ]
    return [tuple(service), (("HOST ", "title"), *_compact_host(view))]


def _compact_host(view: View) -> Line:
    host = view.snapshot.host.value
    if host is None:
        return (("… not read yet", "dim"),)
    return (
        (f"cpu {units.whole(host.cpu_pct)} %  triton {units.one(host.triton_cores)} cores  ", "value"),
        (f"mem {_of(host.memory_used, host.memory_total, whole=True)} GiB  ", "value"),
        (f"shm {_of(host.shm_used, host.shm_total)}  disk {disk_pct(view.snapshot)} %", "value"),
    )
