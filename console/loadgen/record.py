"""The record of a run: one JSON line per run in the state folder, and two of them compared."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from console.clients.files import append_synced, private_folder
from console.core.encode import to_json
from console.core.plan import WrongInput
from console.core.text import one_line
from console.loadgen.cards import NOT_READ, Card
from console.loadgen.errors import Failed, total
from console.loadgen.histogram import Histogram, Latency
from console.loadgen.schedule import Load

WHOLE = ("duration", "count")
"""How a run ends that was not cut short."""
FOLDER = "load"
NAME = "runs.jsonl"
_FOREIGN = b'{"engine":'
"""Another program's run begins with it."""


class Slice(Struct, frozen=True):
    """About one second of a run."""

    at: float
    """Seconds from the beginning of the measured part to the end of the slice."""
    done: int
    errors: int
    p50: float | None
    p99: float | None
    """ms, by the answers of this second."""
    late: int = 0
    span: float = 1.0
    """Seconds that it covers."""


class Stage(Struct, frozen=True):
    """One step of a load, or a part of a ramp."""

    first: float
    last: float
    """Level at its ends: callers, or requests a second."""
    begin: float
    """Seconds from the beginning of the measured part."""
    seconds: float
    sent: int
    """Due within it (closed loop: sent)."""
    done: int
    """Good answers that came within it."""
    errors: int
    """That came within it."""
    latency: Latency
    """Of what was due within it."""
    steady: str = ""
    """"": steady; else why not."""

    @property
    def throughput(self) -> float:
        """Good answers a second."""
        return self.done / self.seconds if self.seconds else 0.0

    def level(self) -> str:
        """Such as `50` or `50..80`."""
        return f"{self.first:g}" if self.first == self.last else f"{self.first:.4g}..{self.last:.4g}"


class Share(Struct, frozen=True):
    """What the sender saw of one model of several."""

    sent: int
    done: int
    in_time: int
    latency: Latency
    histogram: str
    sum_us: int
    errors: Mapping[str, Failed] = field(default_factory=dict)

    def shape(self) -> Histogram:
        """Its latencies; ValueError where the record is damaged."""
        return Histogram.decoded(self.histogram, self.sum_us)


class Client(Struct, frozen=True):
    """What the sender saw and did."""

    seconds: float
    """Of the measured part, from its beginning to its last intended time."""
    sent: int
    done: int
    """Good answers, those after the end of `seconds` too."""
    in_time: int
    """Of these, those that came within `seconds`: throughput is by them."""
    latency: Latency
    histogram: str
    """Of the good answers, HdrHistogram V2, µs."""
    sum_us: int
    errors: Mapping[str, Failed] = field(default_factory=dict)
    late: int = 0
    """Sent more than 1 ms after the intended time."""
    late_mean_ms: float = 0.0
    late_max_ms: float = 0.0
    cpu_s: float = 0.0
    """Processor time of the sender, over `wall_s`."""
    wall_s: float = 0.0
    """Of the measured part with the wait for its last answers."""
    connections: int = 0
    slices: tuple[Slice, ...] = ()
    stages: tuple[Stage, ...] = ()
    """Where its level changes."""
    shares: tuple[Share, ...] = ()
    """Where it asked several models, as in the run's `models`."""

    @property
    def throughput(self) -> float:
        """Good answers a second."""
        return self.in_time / self.seconds if self.seconds else 0.0

    @property
    def cpu_share(self) -> float:
        """Of one core."""
        return self.cpu_s / self.wall_s if self.wall_s else 0.0

    def shape(self) -> Histogram:
        """Its latencies; ValueError where the record is damaged."""
        return Histogram.decoded(self.histogram, self.sum_us)


class Server(Struct, frozen=True):
    """What Triton counted of this model over the same time, by its statistics; means per counted request, in ms."""

    requests: int
    """Successes."""
    failures: int
    total_ms: float | None = None
    queue_ms: float | None = None
    input_ms: float | None = None
    infer_ms: float | None = None
    output_ms: float | None = None
    batch: float | None = None
    """Mean, of executions."""
    executions: int = 0
    span: float = 0.0
    """Seconds over which it counted; 0 = as the client's."""


class Traffic(Struct, frozen=True):
    """What others asked of one model over some time, by its statistics."""

    rate: float
    """Requests a second that were not ours; 0 also for a few, which may be of the edges."""
    mean_ms: float | None
    """Of all requests; None without one."""
    requests: int
    """Counted, ours too."""


class Live(Struct, frozen=True):
    """Others' traffic on one model; None where it was not looked at, or its counters began anew."""

    model: str
    before: Traffic | None
    during: Traffic | None
    ours: bool
    """We asked it too: the mean meanwhile is of all its requests, ours among them."""


class Model(Struct, frozen=True):
    """One model of a run that asked several; its side of the client's figures is in `Client.shares`."""

    name: str
    version: str
    share: float
    """Of all requests, as it was asked for."""
    inputs: str
    answers: str
    config: Mapping[str, str] = field(default_factory=dict)
    server: Server | None = None
    server_unknown: str = ""


class Run(Struct, frozen=True):
    """One run."""

    id: int
    wall: float
    """When its measured part began."""
    host: str
    by: str
    target: str
    model: str
    version: str
    load: Load
    warmup_s: float
    batch: int
    inputs: str
    answers: str
    """How answers were checked."""
    client: Client
    config: Mapping[str, str] = field(default_factory=dict)
    """Of batching, as it was served."""
    server: Server | None = None
    server_unknown: str = ""
    goal_ms: float | None = None
    """p99 that was wanted."""
    met: bool | None = None
    ended: str = "duration"
    """duration, count, stopped, or why it stopped itself."""
    steady: str = ""
    """"": steady; else why not."""
    not_valid: str = ""
    """"": valid; else what happened under way."""
    notes: tuple[str, ...] = ()
    live: tuple[Live, ...] = ()
    """Models that others ask too."""
    live_unknown: str = ""
    """Why that is not known of all models."""
    live_limits: Mapping[str, float] = field(default_factory=dict)
    """ms by model, "" for each: mean above which the run stopped itself."""
    cards: tuple[Card, ...] = ()
    cards_unknown: str = NOT_READ
    """Why nothing is known of them."""
    models: tuple[Model, ...] = ()
    """Where it asked several; `model`, `version`, `inputs`, `answers` and `config` are then of the first, the client's
    figures of all together, and `server` is None."""

    @property
    def names(self) -> str:
        """Its models and versions: `rank 3`, `rank + recall`."""
        if not self.models:
            return f"{self.model} {self.version}".strip()
        return " + ".join(f"{one.name} {one.version}".strip() for one in self.models)


class Foreign(Struct, frozen=True):
    """What another program measured of one level of a closed loop; None is what it did not tell."""

    engine: str
    """Such as `perf_analyzer 2.51.0`."""
    id: int
    wall: float
    """When it began; for a file that was read, when that was last written."""
    host: str
    by: str
    model: str
    version: str
    callers: int
    """In flight at once."""
    items: float
    """Inferences a second: `batch` for each request."""
    target: str = ""
    batch: int = 1
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    queue_ms: float | None = None
    input_ms: float | None = None
    infer_ms: float | None = None
    output_ms: float | None = None
    requests: int | None = None
    unknown: tuple[str, ...] = ()
    """What such a program never tells."""
    file: str = ""
    """That was read; "" where the program was started from here."""

    @property
    def throughput(self) -> float:
        """Requests a second."""
        return self.items / self.batch

    def load(self) -> str:
        """In the words of `Load.words`."""
        return f"closed loop, {self.callers} at once"


Kept = Run | Foreign
K = TypeVar("K", bound=Run | Foreign)


def keep(state: Path, run: K) -> K:
    """Append it under the next number; OSError where it cannot be written."""
    folder = private_folder(state / FOLDER)
    with _locked(folder):
        taken = max((one.id for one in load_kept(state)), default=0)
        numbered = msgspec.structs.replace(run, id=taken + 1)
        append_synced(folder / NAME, to_json(numbered))
    return numbered


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two runs that end together get two numbers."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def load_all(state: Path) -> list[Run]:
    """All kept runs of our own, oldest first. OSError where they cannot be read."""
    return [one for one in load_kept(state) if isinstance(one, Run)]


def load_kept(state: Path) -> list[Kept]:
    """All kept runs, those of other programs too, oldest first; a torn or foreign line is passed over. OSError where
    they cannot be read."""
    file = state / FOLDER / NAME
    own, others = msgspec.json.Decoder(Run), msgspec.json.Decoder(Foreign)
    found: list[Kept] = []
    try:
        with file.open("rb") as opened:
            for line in opened:
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    found.append(others.decode(line) if line.startswith(_FOREIGN) else own.decode(line))
    except FileNotFoundError:
        return []
    return found


def find(runs: Sequence[K], text: str) -> K:
    """The run of a number, or the last one for `last`. WrongInput."""
    if text == "last" and runs:
        return runs[-1]
    found = next((run for run in runs if str(run.id) == text), None)
    if found is None:
        has = f"there are runs {runs[0].id} to {runs[-1].id}" if runs else "no run is kept yet"
        raise WrongInput(f"there is no run {one_line(text, 40)!r}; {has} (gpuconsole loadtest --list)")
    return found


class Row(Struct, frozen=True):
    """One figure of two runs; None where one has it not."""

    name: str
    first: float | None
    second: float | None

    @property
    def change(self) -> float | None:
        """Relative change from the first to the second."""
        if self.first is None or self.second is None or self.first == 0:
            return None
        return self.second / self.first - 1


class Comparison(Struct, frozen=True):
    """Two runs side by side."""

    rows: tuple[Row, ...]
    differs: Mapping[str, tuple[str, str]]
    """What else is not the same: model, mode, inputs, settings of batching."""
    bounds_ms: tuple[float, ...]
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    """Of each run's latencies, up to each bound and above the last."""


def compare(first: Kept, second: Kept) -> Comparison:
    """Figures, distributions and settings; where one is another program's, what both tell. ValueError where a record is
    damaged."""
    left, right = _figures(first), _figures(second)
    if not isinstance(first, Run) or not isinstance(second, Run):
        rows = tuple(Row(name, value, right[name]) for name, value in left.items() if name in right)
        return Comparison(rows, _differences(first, second), (), ((), ()))
    one, two = first.client.shape(), second.client.shape()
    bounds = _bounds(first, second)
    for more in (_stages, _models, _cards):
        a, b = more(first), more(second)
        left.update({name: value for name, value in a.items() if name in b})
        right.update(b)
    return Comparison(
        tuple(Row(name, value, right[name]) for name, value in left.items()),
        _differences(first, second),
        bounds,
        (tuple(one.shares(bounds)), tuple(two.shares(bounds))),
    )


def _figures(run: Kept) -> dict[str, float | None]:
    if isinstance(run, Foreign):
        return {
            "done/s": run.throughput,
            "p50 ms": run.p50_ms,
            "p90 ms": run.p90_ms,
            "p95 ms": run.p95_ms,
            "p99 ms": run.p99_ms,
            "mean ms": run.mean_ms,
            "wait ms": run.queue_ms,
            "infer ms": run.infer_ms,
        }
    at, server = run.client.latency, run.server
    return {
        "done/s": run.client.throughput,
        "p50 ms": at.p50,
        "p90 ms": at.p90,
        "p95 ms": at.p95,
        "p99 ms": at.p99,
        "p99.9 ms": at.p99_9,
        "max ms": at.max,
        "mean ms": at.mean,
        "errors": float(total(run.client.errors)),
        "wait ms": server.queue_ms if server else None,
        "infer ms": server.infer_ms if server else None,
        "batch": server.batch if server else None,
    }


def _stages(run: Run) -> dict[str, float | None]:
    """By level; a level that comes twice is told once, the last time."""
    found: dict[str, float | None] = {}
    for one in run.client.stages:
        of = f"at {one.level()}"
        found |= {f"{of} done/s": one.throughput, f"{of} p50 ms": one.latency.p50, f"{of} p99 ms": one.latency.p99}
        found[f"{of} errors"] = float(one.errors)
    return found


def _models(run: Run) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for one, seen in zip(run.models, run.client.shares, strict=False):
        of, server, seconds = one.name, one.server, run.client.seconds
        found |= {
            f"{of} done/s": seen.in_time / seconds if seconds else None,
            f"{of} p50 ms": seen.latency.p50,
            f"{of} p99 ms": seen.latency.p99,
            f"{of} errors": float(total(seen.errors)),
            f"{of} wait ms": server.queue_ms if server else None,
            f"{of} infer ms": server.infer_ms if server else None,
            f"{of} batch": server.batch if server else None,
        }
    return found


def _cards(run: Run) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for card in run.cards:
        of = f"GPU {card.index}"
        found |= {f"{of} util %": card.util_pct, f"{of} SM MHz": card.sm_mhz, f"{of} W": card.power_w}
    return found


def _differences(first: Kept, second: Kept) -> dict[str, tuple[str, str]]:
    def told(run: Kept) -> dict[str, str]:
        if isinstance(run, Foreign):
            return {"engine": run.engine, "model": f"{run.model} {run.version}".strip(), "target": run.target,
                    "load": run.load(), "batch": str(run.batch)}  # fmt: skip
        return {
            "engine": "gpuconsole",
            "model": run.names,
            **({"shares": ", ".join(f"{one.name} {100 * one.share:g} %" for one in run.models)} if run.models else {}),
            "target": run.target,
            "load": run.load.words(),
            "batch": str(run.batch),
            "inputs": run.inputs,
            **run.config,
        }

    one, two = told(first), told(second)
    return {
        name: (one.get(name, ""), two.get(name, ""))
        for name in {**one, **two}
        if one.get(name, "") != two.get(name, "")
    }


def _bounds(*runs: Run) -> tuple[float, ...]:
    """Eight steps of a 1-2-5 scale (or as many as it takes) around what both runs saw."""
    low = min((run.client.latency.p50 or 1.0) for run in runs) / 4
    high = max((run.client.latency.p99_9 or 1.0) for run in runs)
    scale = [base * 10.0**power for power in range(-3, 7) for base in (1, 2, 5)]
    first = max((at for at, bound in enumerate(scale) if bound <= low), default=0)
    last = min((at for at, bound in enumerate(scale) if bound >= high), default=len(scale) - 1)
    return tuple(scale[first : max(last, first) + 1])
