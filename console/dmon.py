"""`gpuconsole dmon`: a line per second for each card and each model, as `nvidia-smi dmon` does for cards alone."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from console.core import units
from console.core.ending import told_to_end
from console.core.following import Following
from console.core.model import GpuState, ModelRow, Snapshot, Window
from console.core.plan import WrongInput
from console.core.session import Session
from console.core.text import ascii_text, one_line

Only = Literal["", "gpu", "model"]
LEAST_S, MOST_S = 1.0, 3600.0
HEAD_EVERY = 20
"""Blocks after which the heads come again: about a screen."""
NAME, CELL = 20, 8
UNKNOWN = "-"
GPU_HEAD = ("util%", "mem%", "vram%", "W", "C", "SM MHz", "mem MHz", "slowed by")
MODEL_HEAD = ("req/s", "mean ms", "wait ms", "comp ms", "batch", "busy%", "queue", "fail/s")
GPU_COLUMNS = (
    "util_pct",
    "mem_ctrl_pct",
    "vram_used_bytes",
    "vram_total_bytes",
    "power_w",
    "temp_c",
    "sm_mhz",
    "memory_mhz",
    "slowed_by",
)
MODEL_COLUMNS = ("req_per_s", "mean_ms", "wait_ms", "compute_ms", "batch", "busy_pct", "queue", "fail_per_s")
COLUMNS = ("time", "kind", "name", "version", *GPU_COLUMNS, *MODEL_COLUMNS)
"""Of `--csv`; empty = not known, or not of this kind."""
WINDOWS = ((300.0, "w300"), (120.0, "w120"), (30.0, "w30"), (10.0, "w10"), (0.0, "w1"))


def interval_s(seconds: float) -> float:
    """Of `--interval`; WrongInput."""
    if not LEAST_S <= seconds <= MOST_S:
        raise WrongInput(f"--interval must be from {LEAST_S:g}s to {MOST_S / 3600:g}h, not {seconds:g}s")
    return seconds


def run(
    session: Session,
    write: Callable[[str], None],
    *,
    interval: float,
    count: int,
    as_csv: bool,
    only: Only,
    utc: bool,
    ascii_only: bool,
) -> int:
    """Write until told to end (ctrl+c), `count` times where it is more than 0; the exit code."""
    with told_to_end() as ended:
        following = Following(session)
        try:
            snapshot = following.begin(ended)
            done, due = 0, time.monotonic()
            while not ended.told:
                head = done == 0 if as_csv else done % HEAD_EVERY == 0
                if as_csv:
                    text = table(snapshot, interval, only, utc=utc, head=head)
                else:
                    text = block(snapshot, interval, only, utc=utc, head=head)
                write(ascii_text(text) if ascii_only and not as_csv else text)
                done += 1
                if count and done >= count:
                    break
                due = max(due + interval, time.monotonic())
                snapshot = following.until(due, ended)
        finally:
            session.stop(0.2)
    return 0


# -------------------------------------------------------------------------------------------------------- for people


def block(snapshot: Snapshot, interval: float, only: Only, *, utc: bool, head: bool) -> str:
    """The lines of one moment."""
    return "".join(f"{line}\n" for line in _lines(snapshot, interval, only, utc=utc, head=head))


def _lines(snapshot: Snapshot, interval: float, only: Only, *, utc: bool, head: bool) -> Iterator[str]:
    clock = units.clock(snapshot.wall, utc=utc)
    if head and only != "model":
        yield _line("#", "GPU", GPU_HEAD)
    if head and only != "gpu":
        yield _line("#", f"MODEL ({_window_of(interval)} s)", MODEL_HEAD)
    if only != "model":
        cards = _cards(snapshot)
        yield from (_line(clock, f"gpu {gpu.index}", _gpu_cells(gpu)) for gpu in cards)
        if not cards:
            yield f"{clock:<9}{'gpu':<{NAME}} {_why_no_card(snapshot)}"
    if only != "gpu":
        rows = _models(snapshot)
        yield from (_line(clock, f"{row.name} {row.version or ''}", _model_cells(row, interval)) for row in rows)
        if not rows:
            yield f"{clock:<9}{'model':<{NAME}} {_why_no_model(snapshot)}"


def _line(first: str, name: str, cells: Sequence[str]) -> str:
    shown = one_line(name, 200).strip()
    if len(shown) > NAME:
        shown = f"{shown[: NAME - 1]}~"
    return f"{first:<9}{shown:<{NAME}}" + "".join(f" {cell:>{CELL}}" for cell in cells).rstrip()


def _told(text: str) -> str:
    return UNKNOWN if text == units.NONE else text


def _gpu_cells(gpu: GpuState) -> tuple[str, ...]:
    return (
        _told(units.whole(gpu.util_pct)),
        _told(units.whole(gpu.mem_ctrl_pct)),
        _told(units.percent(_share(gpu))),
        _told(units.whole(gpu.power_w)),
        _told(units.whole(gpu.temp_c)),
        _told(units.whole(gpu.sm_mhz)),
        _told(units.whole(gpu.memory_mhz)),
        _slowed(gpu) or UNKNOWN,
    )


def _share(gpu: GpuState) -> float | None:
    if not gpu.memory_total or gpu.memory_free is None:
        return None
    return 1 - gpu.memory_free / gpu.memory_total


def _slowed(gpu: GpuState) -> str:
    return "" if gpu.throttle_now is None else ",".join(gpu.throttle_now) or "none"


def _model_cells(row: ModelRow, interval: float) -> tuple[str, ...]:
    figures = _figures(row, interval)
    styles = (
        units.rate,
        units.millis,
        units.millis,
        units.millis,
        units.one,
        units.whole,
        units.whole,
        units.one,
    )
    return tuple(_told(style(value)) for style, value in zip(styles, figures, strict=True))


def _why_no_card(snapshot: Snapshot) -> str:
    error = snapshot.gpu.error
    return one_line(error.message, 200) if error else "no card"


def _why_no_model(snapshot: Snapshot) -> str:
    error = snapshot.stats.error or snapshot.server.error
    return one_line(error.message, 200) if error else "no model is READY"


# --------------------------------------------------------------------------------------------------- for programs


def table(snapshot: Snapshot, interval: float, only: Only, *, utc: bool, head: bool) -> str:
    """The same as CSV (RFC 4180, but lines end with a newline alone), with exact figures."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if head:
        writer.writerow(COLUMNS)
    zone = UTC if utc else None
    moment = datetime.fromtimestamp(snapshot.wall, UTC).astimezone(zone).isoformat(timespec="milliseconds")
    no_gpu, no_model = [""] * len(GPU_COLUMNS), [""] * len(MODEL_COLUMNS)
    if only != "model":
        for gpu in _cards(snapshot):
            writer.writerow([moment, "gpu", str(gpu.index), "", *map(_plain, _gpu_values(gpu)), *no_model])
    if only != "gpu":
        for row in _models(snapshot):
            name, version = one_line(row.name), one_line(row.version or "")
            writer.writerow([moment, "model", name, version, *no_gpu, *map(_plain, _figures(row, interval))])
    return out.getvalue()


def _gpu_values(gpu: GpuState) -> tuple[float | str | None, ...]:
    used = None if not gpu.memory_total or gpu.memory_free is None else gpu.memory_total - gpu.memory_free
    return (
        gpu.util_pct,
        gpu.mem_ctrl_pct,
        used,
        gpu.memory_total,
        gpu.power_w,
        gpu.temp_c,
        gpu.sm_mhz,
        gpu.memory_mhz,
        _slowed(gpu),
    )


def _plain(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------------------- figures


def _cards(snapshot: Snapshot) -> Sequence[GpuState]:
    """Cards that were read lately; a lost one has no figures."""
    box = None if snapshot.gpu.is_old(snapshot.mono) else snapshot.gpu.value
    return [gpu for gpu in box.gpus if gpu.lost is None] if box else ()


def _models(snapshot: Snapshot) -> Sequence[ModelRow]:
    """READY models of which statistics were read lately."""
    if snapshot.stats.is_old(snapshot.mono) or snapshot.stats.value is None:
        return ()
    return [row for row in snapshot.models if row.state == "READY" and row.flow is not None]


def _window_of(interval: float) -> str:
    return next(name for least, name in WINDOWS if interval >= least).removeprefix("w")


def _figures(row: ModelRow, interval: float) -> tuple[float | None, ...]:
    """In the order of MODEL_COLUMNS, over the longest window that is no longer than the interval."""
    flow = row.flow
    found = None if flow is None else getattr(flow, f"w{_window_of(interval)}")
    window: Window | None = found or (flow.w1 if flow else None)
    pending = row.metrics.pending if row.metrics else None
    if window is None:
        return (None,) * 6 + (pending, None)
    return (
        window.rate,
        window.request_ms,
        None if row.ensemble else window.queue_ms,
        None if row.ensemble else window.compute_ms,
        None if row.ensemble else window.mean_batch,
        _busy_pct(row, window),
        pending,
        window.fail_rate,
    )


def _busy_pct(row: ModelRow, window: Window) -> float | None:
    if not row.instances or window.span <= 0 or row.ensemble:
        return None
    return 100 * min(1.0, window.busy_seconds / (window.span * row.instances))
