"""`gpuconsole snapshot`: reads the box once and prints it, for people or as one JSON object.

The JSON object (schema 1; a field is added without a new number, a changed meaning gets one):

    schema, version, taken (Unix s), simulated (scene or null), host
    parts      part name -> {value, taken, age_s, read_s, error: {kind, message, hint} | null}; `value` as the structs
               of console/core/model.py, null where it could not be had; `error` says why
    serving    {word, ready, of, detail}
    traffic    {rate, through_ensembles, approximate, waiting, fail_rate}
    models     one object per model version: the union of index, statistics, metrics, configuration and disk
    verdicts   what Why says, causes first
    events     oldest first
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any, Protocol

from wcwidth import wcswidth

from console import __version__
from console.core import units
from console.core.encode import to_json
from console.core.history import History
from console.core.model import PART_FIELDS, Event, Failure, GpuState, ModelRow, Reading, Snapshot, Verdict
from console.core.session import Session
from console.core.sign import ASCII_SIGNS, SIGNS, Sign
from console.core.store import Store
from console.core.text import ascii_text, literal, one_line

SCHEMA = 1
DEADLINE = 1.9
"""Seconds after which what is there is printed: a snapshot is asked for by scripts and by people in a hurry, who get it
within three seconds with the start of the program, also where a server or a driver hangs."""
PARTS = tuple(part for part in PART_FIELDS if part != "checks")
"""The checklist takes longer than a snapshot may; `gpuconsole check` prints it."""
TWICE = 2
"""Reads of statistics after which there are rates."""


class Judge(Protocol):
    """What gives verdicts (advisors.why.Why)."""

    def evaluate(self, snapshot: Snapshot, history: History) -> tuple[Verdict, ...]:
        """All verdicts for this moment."""


def take(session: Session, judge: Judge | None = None, *, watch_s: float = 0.0) -> Snapshot:
    """Run the session until each part was tried, rates exist and it was watched for `watch_s`, at most DEADLINE seconds
    longer; then stop it."""
    arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
    store = Store()
    wanted = {source.name for source in session.sources}
    began = time.monotonic()
    session.start(arrivals.put, arrivals.put)
    try:
        tried: dict[str, Reading[Any]] = {}
        while (left := watch_s + DEADLINE - (time.monotonic() - began)) > 0:
            if wanted <= tried.keys() and _has_rates(tried) and time.monotonic() - began >= watch_s:
                break
            try:
                item = arrivals.get(timeout=min(left, 0.1))
            except queue.Empty:
                continue
            if isinstance(item, Reading):
                tried[item.part] = item
                store.apply(item)
            elif isinstance(item, Event):
                store.add_event(item)
    finally:
        session.stop(0.2)
    for part in wanted - tried.keys():
        store.apply(_unanswered(part))
    snapshot = store.snapshot(time.time(), time.monotonic())
    if judge is not None:
        store.set_verdicts(judge.evaluate(snapshot, store.history))
        snapshot = store.snapshot(time.time(), time.monotonic())
    return snapshot


def _unanswered(part: str) -> Reading[Any]:
    """What came of a read that has not ended yet."""
    now, wall = time.monotonic(), time.time()
    failure = Failure("timeout", f"no answer within {DEADLINE:g} s")
    return Reading(part, 1.0, error=failure, error_mono=now - DEADLINE, error_wall=wall - DEADLINE)


def _has_rates(tried: dict[str, Reading[Any]]) -> bool:
    """True once statistics came twice, and where they do not come at all."""
    stats = tried.get("triton.stats")
    return stats is None or stats.error is not None or stats.reads >= TWICE


def as_json(snapshot: Snapshot, simulated: str | None) -> bytes:
    """The object described above."""
    parts = {part: _part(snapshot.reading(part), snapshot.mono) for part in PARTS}
    host = snapshot.host.value
    return to_json(
        {
            "schema": SCHEMA,
            "version": __version__,
            "taken": snapshot.wall,
            "simulated": simulated,
            "host": host.hostname if host else None,
            "parts": parts,
            "serving": snapshot.serving,
            "traffic": snapshot.traffic,
            "models": snapshot.models,
            "verdicts": snapshot.verdicts,
            "events": snapshot.events,
        }
    )


def _part(reading: Reading[Any], now: float) -> dict[str, Any]:
    return {
        "value": reading.value,
        "taken": reading.wall,
        "age_s": reading.age(now),
        "read_s": reading.duration,
        "error": reading.error,
    }


def as_text(snapshot: Snapshot, simulated: str | None, *, ascii_only: bool = False, utc: bool = False) -> str:
    """The same for people, at most 100 columns; each missing part is named with its reason."""
    signs = ASCII_SIGNS if ascii_only else SIGNS
    lines = [*_head(snapshot, simulated, utc), *_gpus(snapshot), *_service(snapshot), *_models(snapshot, signs)]
    lines += [f"{signs[v.sign]} {one_line(v.title, 200)}  ({v.trust}, {v.id})" for v in snapshot.verdicts]
    lines += list(_missing(snapshot))
    text = "\n".join(literal(line.replace("\n", " ")) for line in lines) + "\n"
    return ascii_text(text) if ascii_only else text


def _head(snapshot: Snapshot, simulated: str | None, utc: bool) -> Iterator[str]:
    host = snapshot.host.value
    word = snapshot.serving
    if simulated:
        yield f"SIMULATED BOX, nothing here is real   scene {simulated}"
    name = f"{host.hostname}  {host.os_name}" if host else "?"
    count = f" {word.ready} of {word.of}" if word.of else ""
    when = f"{units.moment(snapshot.wall, utc=utc)} {units.zone(snapshot.wall, utc=utc)}"
    yield f"gpuconsole {__version__}  {name}  {when}  {word.word}{count}" + (f"  {word.detail}" if word.detail else "")


def _gpus(snapshot: Snapshot) -> Iterator[str]:
    box = snapshot.gpu.value
    for gpu in box.gpus if box else ():
        yield f"GPU {gpu.index}    {gpu.name or '?'}  driver {box.driver if box and box.driver else '?'}  {_gpu(gpu)}"


def _gpu(gpu: GpuState) -> str:
    if gpu.lost:
        return one_line(gpu.lost.message)
    throttle = "?" if gpu.throttle_now is None else ", ".join(gpu.throttle_now) or "none"
    return (
        f"util {units.whole(gpu.util_pct)} %  VRAM {units.gib(gpu.memory_used)}/{units.gib(gpu.memory_total)} GiB  "
        f"{units.whole(gpu.power_w)}/{units.whole(gpu.power_limit_w)} W  {units.whole(gpu.temp_c)} °C  "
        f"SM {units.whole(gpu.sm_mhz)}/{units.whole(gpu.sm_max_mhz)} MHz  throttle {throttle}"
    )


def _service(snapshot: Snapshot) -> Iterator[str]:
    podman = snapshot.container.value
    container = podman.container if podman else None
    if container is not None:
        since = container.started_wall if container.state == "running" else container.finished_wall
        how_long = units.uptime(snapshot.wall - since) if since else "?"
        code = "" if container.state == "running" else f" exit {units.whole(container.exit_code)}"
        yield (
            f"container {one_line(container.name)} {container.state}{code} {how_long}  restarts "
            f"{units.whole(container.restarts)}  image {one_line(container.image)}"
        )
    elif podman is not None:
        yield "container none found"
    server = snapshot.server.value
    if server is not None and snapshot.server.error is None:
        lamps = f"live {_lamp(server.live)}  ready {_lamp(server.ready)}"
        yield f"server    {server.version or '?'} at {server.url}  {lamps}"
    flow = snapshot.traffic
    if flow.rate is not None:
        about = "≈" if flow.approximate else ""
        yield (
            f"traffic   {about}{units.rate(flow.rate)} req/s from outside  waiting {units.whole(flow.waiting)}  "
            f"failures {units.one(flow.fail_rate)}/s of those that Triton counts"
        )


def _lamp(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[value]


_COLUMNS = ("MODEL", "VER", "STATE", "REQ/s", "MEAN ms", "WAIT", "COMPUTE", "BATCH", "BUSY%", "INST")
_WIDTHS = (20, 4, 11, 7, 8, 7, 8, 9, 6, 5)


def _models(snapshot: Snapshot, signs: dict[Sign, str]) -> Iterator[str]:
    rows = [row for row in snapshot.models if row.state != "UNAVAILABLE" or row.failed_load]
    if not rows:
        return
    yield "  " + " ".join(
        name.ljust(width) if n in (0, 2) else name.rjust(width)
        for n, (name, width) in enumerate(zip(_COLUMNS, _WIDTHS, strict=True))
    )
    for row in rows:
        yield _model(row, signs)


def _model(row: ModelRow, signs: dict[Sign, str]) -> str:
    states: dict[str | None, Sign] = {"READY": "ok", None: "unknown"}
    sign = signs["fail" if row.failed_load else states.get(row.state, "warn")]
    name = _cell(one_line(row.name, 200) + (" (ens)" if row.ensemble else ""), _WIDTHS[0])
    head = f"{sign} {name} {row.version or '–':>4} {row.state or '?':<11}"
    if row.failed_load:
        return f"{head} {one_line(row.reason or '', 400)}"
    window = row.flow.w10 or row.flow.w1 if row.flow else None
    if window is None:
        return head
    batch = units.NONE
    if window.mean_batch is not None and row.config is not None and not row.ensemble:
        batch = f"{window.mean_batch:.1f}/{row.config.max_batch_size or '–'}"
    busy = f"{units.percent(row.busy)}{'+' if row.busy_clamped else ''}"
    cells = (
        units.rate(window.rate),
        units.millis(window.request_ms),
        units.NONE if row.ensemble else units.millis(window.queue_ms),
        units.NONE if row.ensemble else units.millis(window.compute_ms),
        batch,
        busy,
        units.whole(row.instances),
    )
    return f"{head} " + " ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS[3:], strict=True))


def _cell(text: str, width: int) -> str:
    """Cut or filled to `width` terminal cells (a Chinese character takes two)."""
    if wcswidth(text) > width:
        while text and wcswidth(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - max(0, wcswidth(text)))


def _missing(snapshot: Snapshot) -> Iterator[str]:
    for part in PARTS:
        reading = snapshot.reading(part)
        if reading.error is not None:
            hint = f"; {reading.error.hint}" if reading.error.hint else ""
            yield f"? {part:<14} {one_line(reading.error.message + hint, 400)}"
        elif not reading.tried:
            yield f"? {part:<14} not read"
    podman = snapshot.container.value
    if podman is not None and podman.socket is None:
        for one in podman.tried:
            yield f"?   tried {one.path} ({one.origin}): {one_line(one.error or 'ok', 200)}"
