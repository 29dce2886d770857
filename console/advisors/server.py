"""Verdicts about the server and whether its models answer at all: V01 to V04, V13, V14, V16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.advisors.rule import MAX_NAME, Look, rule, verdict
from console.core import units
from console.core.finding import Cause
from console.core.model import ContainerState, ModelRow, Verdict
from console.core.text import one_line

REASON_LENGTH = 160
SHOWN = 3
"""Names listed in a sentence."""

# ---------------------------------------------------------------------------------------------------------- the server


@rule("V01")
def down(look: Look) -> Iterator[Verdict]:
    """Nobody answers, and nothing hints that somebody is about to."""
    error, entry = look.snapshot.server.error, look.entry("V01")
    failing = look.failing_for(look.snapshot.server)
    if error is None or failing is None or look.snapshot.serving.word == "STARTING":
        return
    silent = error.kind == "timeout"
    if failing < entry.limit("silent_s" if silent else "refused_s") and look.snapshot.server.value is not None:
        return
    since = look.snapshot.server.error_wall
    container = look.container
    message = one_line(error.message, REASON_LENGTH)
    if container is not None and container.state in ("running", "paused"):
        if look.failing_for(look.snapshot.metrics) is not None:
            case = "paused" if container.state == "paused" else "mute"
            title = entry.say(case, name=one_line(container.name, MAX_NAME), error=message)
            yield verdict(look, "V01", title, [entry.say("mute_line")], trust="likely", since_wall=since, source="HTTP")
    elif silent:
        return  # something listens, and it is not a container that is seen here
    elif look.podman is None:
        if look.should_serve:
            podman = look.snapshot.container.error
            why = one_line(podman.message, REASON_LENGTH) if podman else "Podman was not asked yet"
            title = entry.say("unseen", error=message)
            line = entry.say("unseen_line", podman=why)
            yield verdict(look, "V01", title, [line], trust="likely", since_wall=since, source="HTTP", next_key="5")
    elif look.should_serve:
        yield _not_running(look, container)


def _not_running(look: Look, container: ContainerState | None) -> Verdict:
    entry, event = look.entry("V01"), look.last_stop
    name = one_line(container.name, MAX_NAME) if container else "triton"
    why = ""
    if container is not None and container.exit_code is not None and container.state != "created":
        why = f": exit {container.exit_code}" + (", killed for memory" if container.oom_killed else "")
    elif event is not None:
        why = f": {one_line(event.text, REASON_LENGTH)}"
    last = [line for line in (look.podman.last_log if look.podman else ()) if line.strip()]
    lines = [entry.say("last", line=one_line(last[-1], REASON_LENGTH))] if last else []
    if container is not None and container.error:
        lines.append(one_line(container.error, REASON_LENGTH))
    if container is not None and container.unit and event is not None and event.kind.startswith("unit."):
        lines.append(entry.say("unit", unit=container.unit, event=one_line(event.text, REASON_LENGTH)))
    server = look.snapshot.server
    since = container.finished_wall if container else (event.wall if event else server.error_wall)
    if server.wall is not None:
        lines.append(entry.say("since", age=units.age(look.wall - server.wall), clock=units.clock(server.wall)))
    root = _root(look, since)
    if root is not None:
        return _rooted(look, root, why, lines, since)
    title = entry.say("title", name=name, why=why)
    return verdict(look, "V01", title, lines, since_wall=since, source="HTTP, Podman")


def _root(look: Look, since: float | None) -> Cause | None:
    """The checklist's cause for a container that does not run; None before it looked after the stop."""
    report = look.snapshot.checks.value
    if report is None or (since is not None and report.wall < since):
        return None
    stops = {"E01", "E02", "D01", "K02"}
    return next((one for one in report.causes if stops & {one.id, *one.consequences} and one.id != "E01"), None)


def _rooted(look: Look, root: Cause, why: str, lines: Sequence[str], since: float | None) -> Verdict:
    entry = look.entry("V01")
    steps = [f"{step.id} {step.text}".strip() for step in root.order[:2]]
    told = [*(entry.say("sign", text=one_line(text, REASON_LENGTH)) for text in root.signs[:2])]
    if steps:
        told.append(entry.say("mend", steps=one_line(", then ".join(steps), REASON_LENGTH)))
    title = entry.say("rooted", cause=one_line(root.title, REASON_LENGTH * 2))
    trust = "sure" if root.trust.startswith("sure") else "likely"
    return verdict(
        look,
        "V01",
        title,
        [*told, *lines[:1]],
        trust=trust,
        since_wall=since,
        source="checks, Podman",
        next_key="6",
        figures=f"{root.trust}{why}",
    )


@rule("V02")
def held(look: Look) -> Iterator[Verdict]:
    """HTTP is silent while the metrics port answers."""
    error, entry = look.snapshot.server.error, look.entry("V02")
    failing = look.failing_for(look.snapshot.server)
    if error is None or failing is None or error.kind != "timeout" or failing < entry.limit("silent_s"):
        return
    runs = look.container is None or look.container.state == "running"
    if runs and look.metrics is not None and look.snapshot.metrics.error is None:
        line = entry.say("line", age=units.age(failing))
        since = look.snapshot.server.error_wall
        yield verdict(look, "V02", entry.say("title"), [line], since_wall=since, source="HTTP, metrics")


@rule("V03")
def starting(look: Look) -> Iterator[Verdict]:
    """The container is young and nothing is READY yet."""
    container, entry = look.container, look.entry("V03")
    if container is None or container.state != "running" or container.started_wall is None:
        return
    if any(row.state == "READY" for row in look.ready):
        return
    if look.serves and not any(row.state == "LOADING" for row in look.snapshot.models) and look.snapshot.models:
        return
    age, last = look.wall - container.started_wall, last_start(look, container.started_wall)
    limit = entry.limit("unknown_s") if last is None else max(1.0, entry.limit("times_last") * last)
    if not 0 <= age < limit or look.snapshot.serving.word not in ("STARTING", "DOWN", "NOT ANSWERING", "UNKNOWN"):
        return
    loading = [look.label(row) for row in look.snapshot.models if row.state == "LOADING"] if look.serves else []
    title = entry.say(
        "title", age=units.age(age), last=entry.say("last", last=units.age(last)) if last is not None else ""
    )
    lines = [entry.say("loading", names=_names(loading))] if loading else []
    yield verdict(look, "V03", title, lines, since_wall=container.started_wall, source="Podman, index")


def last_start(look: Look, before: float) -> float | None:
    """Seconds from the last start before this one to its first READY model, as the events tell; None if not seen."""
    began: float | None = None
    took: float | None = None
    for event in look.snapshot.events:
        if event.wall >= before - 1:
            break
        if event.kind == "container.start":
            began = event.wall
        elif event.kind == "model.ready" and began is not None:
            took, began = event.wall - began, None
    return took


def _names(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


# --------------------------------------------------------------------------------------------------------------- ready


@rule("V04")
def not_ready(look: Look) -> Iterator[Verdict]:
    """A model failed to load, or ready is 400 for another reason while models serve."""
    if not look.serves or look.fresh(look.snapshot.index) is None:
        return
    server = look.snapshot.server.value
    dark = server is not None and server.ready is False
    failed = [row for row in look.snapshot.models if row.failed_load]
    for row in failed:
        yield _failed(look, row, dark)
    for row in look.ready:
        if row.reason:
            title = look.entry("V04").say("reason", label=_label(row), reason=load_reason(look, row.reason))
            yield verdict(look, "V04", title, _rest(row.reason), model=row, sign="warn", source="index")
    if dark and not failed and look.ready:
        yield _dark(look)


def _failed(look: Look, row: ModelRow, dark: bool) -> Verdict:
    entry, n = look.entry("V04"), len({one.name for one in look.ready})
    title = entry.say("failed", label=_label(row), reason=load_reason(look, row.reason or ""))
    consequences, lines = [], _rest(row.reason or "")
    if dark and n:
        consequences = [entry.say("failed_ready", n=n, models="model serves" if n == 1 else "models serve")]
        lines = [*lines, entry.say("failed_clear")]
    since = row.since_wall or _failed_at(look, row)
    return verdict(
        look,
        "V04",
        title,
        lines,
        model=row,
        sign="fail",
        since_wall=since,
        source="index, health",
        consequences=consequences,
    )


def _failed_at(look: Look, row: ModelRow) -> float | None:
    events = (e for e in reversed(look.snapshot.events) if e.kind == "model.failed" and e.model == row.name)
    return next((event.wall for event in events), None)


def _dark(look: Look) -> Verdict:
    entry = look.entry("V04")
    moving = [row for row in look.snapshot.models if row.state in ("LOADING", "UNLOADING")]
    if not moving:
        return verdict(
            look,
            "V04",
            entry.say("unclear"),
            [entry.say("unclear_line"), entry.say("strict", n=len(look.ready))],
            trust="cannot tell",
            subject="server",
            source="health, index",
        )
    ages = {row.key: look.mono - row.since_mono for row in moving if row.since_mono is not None}
    stuck = [row for row in moving if ages.get(row.key, 0.0) > entry.limit("swap_s")]
    told = stuck or moving
    names = _names(sorted({one_line(row.name, MAX_NAME) for row in told}))
    age = units.age(max((ages.get(row.key, 0.0) for row in told), default=0.0))
    if stuck:
        state = (stuck[0].state or "").lower()
        title, line = entry.say("hangs", names=names, state=state, age=age), entry.say(f"hangs_{state}")
    else:
        swap = "swap" if len({row.name for row in moving}) > 1 else "swaps"
        title, line = entry.say("swap", names=names, swap=swap), entry.say("swap_line", age=age)
    trust = "likely" if stuck else "sure"
    return verdict(look, "V04", title, [line], model=told[0], trust=trust, source="health, index")


def _label(row: ModelRow) -> str:
    name = one_line(row.name, MAX_NAME)
    return f"{name} {row.version}" if row.version else name


def load_reason(look: Look, reason: str) -> str:
    """What Triton's reason means, or its first line without the error class of Triton."""
    text = reason.lower()
    for known in look.table.reasons:
        if any(words in text for words in known.has):
            return known.says
    first = next((line.strip() for line in reason.splitlines() if line.strip()), "no reason given")
    head, colon, rest = first.partition(": ")
    return one_line(rest if colon and head in _CLASSES else first, REASON_LENGTH)


_CLASSES = frozenset({"Internal", "Invalid argument", "Not found", "Unavailable", "Unsupported", "Unknown"})
"""Words that Triton puts before a message (TRITONSERVER_ErrorCodeString)."""


def _rest(reason: str) -> list[str]:
    """The reason itself, where the title does not hold all of it."""
    text = one_line(reason, 2 * REASON_LENGTH)
    return [text] if text else []


# -------------------------------------------------------------------------------------------------- models that do not


@rule("V13")
def dead_process(look: Look) -> Iterator[Verdict]:
    """A Python model whose process died: READY, and every answer is an error."""
    host, entry = look.fresh(look.snapshot.host), look.entry("V13")
    if host is None or "stub_pids" in host.missing:
        return
    if not host.stub_pids and not host.zombies:
        return  # No stub at all and no dead child: they run where this console cannot see them.
    for row in look.ready:
        if row.config is None or row.config.backend != "python" or not row.instances:
            continue
        living = len(host.stub_pids.get(f"{row.name}/{row.version}", ()))
        if living >= row.instances:
            continue
        dead = row.instances - living
        case = "title" if living == 0 else "part"
        lines = [entry.say("line")]
        if host.zombies:
            lines.append(entry.say("zombies", pids=_names([str(pid) for pid in host.zombies])))
        yield verdict(
            look,
            "V13",
            entry.say(case, m=look.label(row), n=dead, I=row.instances),
            lines,
            model=row,
            figures=f"instances {row.instances}   living processes {living}   zombies {len(host.zombies)}",
            source="/proc, configuration",
        )


@rule("V14")
def hung(look: Look) -> Iterator[Verdict]:
    """Requests wait and none is answered."""
    entry = look.entry("V14")
    if look.fresh(look.snapshot.stats) is None:
        return  # whether any was answered since then cannot be told
    for row in look.ready:
        if row.flow is None or row.metrics is None or not row.metrics.pending:
            continue
        silence = _silence(look, row)
        run = _longest_run(row)
        limit = entry.limit("unknown_run_s") if run is None else entry.limit("runs") * run / 1000
        if silence < max(entry.limit("silent_s"), limit):
            continue
        title = entry.say("title", m=look.label(row), age=units.age(silence))
        line = entry.say(
            "line_unknown" if run is None else "line", P=units.whole(row.metrics.pending), s=units.millis(run)
        )
        yield verdict(look, "V14", title, [line], model=row, source="statistics, metrics")


def _silence(look: Look, row: ModelRow) -> float:
    """Seconds in which requests waited all the time and none ended, from what was seen here or from the samples."""
    since = look.memory.silent_since(row)
    seen = 0.0 if since is None else look.mono - since
    flow, samples = row.flow, row.metrics.pending_samples if row.metrics else ()
    for window in (flow.w10, flow.w30) if flow else ():
        if window is None or window.crosses_reset or window.success or window.failed or window.executions:
            continue
        tail = samples[-int(window.span) :] if window.span >= 1 else ()
        if len(tail) >= int(window.span) and all(sample > 0 for sample in tail):
            seen = max(seen, window.span)
    return seen


def _longest_run(row: ModelRow) -> float | None:
    """Mean ms of a run of the costliest batch size since the load; None when nothing ran."""
    costs = [
        batch.total_ns / batch.count / 1e6 for batch in (row.flow.stats.batches if row.flow else ()) if batch.count
    ]
    return max(costs, default=None)


@rule("V16")
def asked(look: Look) -> Iterator[Verdict]:
    """The last question that this console asked a READY model failed, or got another answer than the kept one."""
    entry = look.entry("V16")
    rates = {figures.row.key: figures for figures in look.active}
    for row in look.ready:
        answer = look.asked.get(row.name)
        if answer is None or answer.ok is None or answer.good or answer.version not in (None, row.version):
            continue
        text = entry.say("differs", how=answer.compared) if answer.compared else answer.text
        figures = rates.get(row.key)
        counted = figures is not None and figures.window.success > 0
        line = entry.say("counted", R=units.rate(figures.rate)) if counted and figures else entry.say("ready")
        title = entry.say(
            "title", m=look.label(row), clock=units.clock(answer.wall), text=one_line(text, REASON_LENGTH)
        )
        yield verdict(look, "V16", title, [line], model=row, since_wall=answer.wall, source="asked with a")
