"""Prediction against reality: settings drawn from a seed, each predicted from one look at another setting, then
measured.

The models sleep a + b * batch, with times drawn from the seed as well. Before each setting the model is looked at for
some seconds under one reference setting at a middling load, and all is told from that. Then the setting is loaded
into a real Triton, gets Poisson traffic, and is measured: mean latency and mean batch by the server's statistics, p99
by the client, from the intended sending time.

A client's latency has its own share in it (HTTP, its process). That share is measured in the reference run (mean of the
client less mean of the server) and added to the predicted p99; the table says how much it was.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from typing import Any

from msgspec import Struct

from console.clients.aside import Aside
from console.clients.triton_wire import StatsDecoder, decode_config
from console.core.model import ModelStats
from console.planning.batcher import Scheduling, ServiceTime, simulate_poisson
from console.planning.observed import Observed, observe
from console.planning.predicted import Prediction
from console.planning.prediction import predict
from console.planning.service import Seen, curve
from tests.lab import repository
from tests.lab.own import OwnTriton, own_triton

ROOT = Path(__file__).parents[2]
LOADS = (0.3, 0.6, 0.85)
"""Of what a setting can do at most."""
REFERENCE = Scheduling(max_batch_size=16, instances=1, max_queue_delay_us=1000)
REFERENCE_LOAD = 0.6
REFERENCE_S, WARM_S = 12.0, 3.0
REQUESTS, SHORTEST_S, LONGEST_S = 2500, 12.0, 40.0
"""A measurement is as long as so many requests take, within bounds."""
MODELS = 6
MOST_RATE = 400.0
"""What this machine can be asked for beside the server itself; a setting that takes more is drawn again."""
BASE_US, ITEM_US = (2_000, 60_000), (1_500, 8_000)
"""Bounds of the models' times, by chance evenly on a logarithmic scale."""
FIRST = ("--cgroup-parent", "/", "--cpu-shares", "262144")
"""The server goes before what else runs on this machine, which is shared; the sender does by a real-time priority.
Models that only sleep take next to nothing, and a server that waits for a core is not what is predicted."""
LATE_MS = 2.0
"""Mean by which the client sent late, above which a run is made again, once: then it measures this machine. Both are
printed, the less late one counts."""


class Sleeper(Struct, frozen=True):
    """A model of the bench."""

    name: str
    base_us: int
    item_us: int

    def ms(self, size: int) -> float:
        """What it means to sleep."""
        return (self.base_us + self.item_us * size) / 1e3


class Case(Struct, frozen=True):
    """One setting to be tried."""

    model: Sleeper
    load: float
    scheduling: Scheduling

    @property
    def rate(self) -> float:
        """Requests a second of that load."""
        return rate_of(self.model, self.scheduling, self.load)

    def words(self) -> str:
        """For a row."""
        one = self.scheduling
        return (
            f"{self.model.name} {self.load:4.0%} {self.rate:6.1f}/s  delay {one.max_queue_delay_us:4d} "
            f"max {one.max_batch_size:2d} x{one.instances}"
        )


class Row(Struct, frozen=True):
    """Predicted and measured, times in ms."""

    case: Case
    predicted: Prediction
    client_ms: float
    """The client's own share, within `p99`."""
    late: float
    """ms, mean by which the client sent after the intended time."""
    drift: float
    """By how much runs took longer than at the look, as a share."""
    mean: tuple[float, float]
    batch: tuple[float, float]
    p99: tuple[float, float]

    def errors(self) -> tuple[float, float, float]:
        """Of mean latency, mean batch and p99, as shares of the measured."""
        mean, batch, p99 = (abs(told / seen - 1) for told, seen in (self.mean, self.batch, self.p99))
        return mean, batch, p99


def rate_of(model: Sleeper, scheduling: Scheduling, load: float) -> float:
    """Requests a second that are `load` of what the setting can do at most."""
    size = scheduling.max_batch_size
    return load * scheduling.instances * size / model.ms(size) * 1e3


def drawn(seed: str, settings: int, models: int = MODELS) -> list[Case]:
    """Models and settings by chance; loads in turns, so that each has as many."""
    chance = random.Random(seed)
    sleepers = [Sleeper(f"m{n}", _even(chance, *BASE_US), _even(chance, *ITEM_US)) for n in range(models)]
    cases: list[Case] = []
    while len(cases) < settings:
        scheduling = Scheduling(
            max_batch_size=chance.choice((1, 2, 3, 4, 6, 8, 12, 16, 24, 32)),
            instances=chance.randint(1, 3),
            max_queue_delay_us=chance.choice((0, *(chance.randrange(100, 5001, 100) for _ in range(4)))),
        )
        case = Case(chance.choice(sleepers), LOADS[len(cases) % len(LOADS)], scheduling)
        if case.rate <= MOST_RATE:
            cases.append(case)
    return cases


def _even(chance: random.Random, low: int, high: int) -> int:
    return round(exp(chance.uniform(log(low), log(high))))


# ---------------------------------------------------------------------------------------------------------- the server


def block(scheduling: Scheduling) -> str:
    """Of config.pbtxt."""
    return f"dynamic_batching {{ max_queue_delay_microseconds: {scheduling.max_queue_delay_us} }}"


def apply(own: OwnTriton, model: str, scheduling: Scheduling) -> None:
    """Load the model with these settings."""
    status, config = own.triton("GET", f"/v2/models/{model}/config")
    assert status == 200, config
    config["max_batch_size"] = scheduling.max_batch_size
    config["dynamic_batching"] = {"max_queue_delay_microseconds": scheduling.max_queue_delay_us}
    config["instance_group"] = [{"kind": "KIND_CPU", "count": scheduling.instances}]
    status, answer = own.load(model, config=json.dumps(config))
    assert status == 200, answer
    own.wait_ready({(model, "1")})


def stats_of(own: OwnTriton, model: str) -> ModelStats:
    """Of its one version."""
    status, answer = own.triton("GET", f"/v2/models/{model}/stats")
    assert status == 200, answer
    return StatsDecoder().decode(json.dumps(answer).encode())[0]


@contextmanager
def load(own: OwnTriton, model: str, rate: float, seconds: float, chance: int) -> Iterator[subprocess.Popen[str]]:
    """`gpuconsole loadtest` as a user starts it; its record as JSON is on its standard output."""
    with tempfile.TemporaryDirectory() as state:
        command = [
            *(("chrt", "--rr", "1") if os.geteuid() == 0 and shutil.which("chrt") else ()),
            *(sys.executable, "-m", "console", "loadtest", model, "--rate", f"{rate:.3f}", "--poisson"),
            *("--chance", str(chance), "--duration", f"{seconds:.1f}s", "--warmup", f"{WARM_S:g}s", "--json"),
            *("--host", "127.0.0.1", "--http-port", str(own.port), "--socket", own.socket, "--container", own.name),
        ]
        environ = {**os.environ, "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state}
        with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


def record(process: subprocess.Popen[str]) -> Mapping[str, Any]:
    """When the load is over."""
    output, _ = process.communicate(timeout=LONGEST_S + 60)
    found: dict[str, Any] = json.loads(output)
    return found


def looked_at(own: OwnTriton, model: Sleeper, chance: int, seconds: float = REFERENCE_S) -> tuple[Observed, float]:
    """The reference setting under load as the console sees it from outside; and the client's own share in ms."""
    apply(own, model.name, REFERENCE)
    rate = rate_of(model, REFERENCE, REFERENCE_LOAD)
    with load(own, model.name, rate, seconds + 2, chance) as process:
        while stats_of(own, model.name).success_count < rate * WARM_S:
            time.sleep(0.1)
        began, before = time.monotonic(), stats_of(own, model.name)
        time.sleep(seconds - 1)
        span, after = time.monotonic() - began, stats_of(own, model.name)
        told = record(process)
    config = decode_config(_answer(own, model.name), model.name, "1")
    return observe(before, after, config, span), told["client"]["latency"]["mean"] - told["server"]["total_ms"]


def _answer(own: OwnTriton, model: str) -> bytes:
    return json.dumps(own.triton("GET", f"/v2/models/{model}/config")[1]).encode()


def measured(own: OwnTriton, case: Case, chance: int) -> Mapping[str, Any]:
    """The record of a load on the case's setting."""
    apply(own, case.model.name, case.scheduling)
    seconds = min(max(REQUESTS / case.rate, SHORTEST_S), LONGEST_S)
    with load(own, case.model.name, case.rate, seconds, chance) as process:
        return record(process)


def rows(cases: Sequence[Case], chance: int, *, reference_s: float = REFERENCE_S) -> Iterator[Row]:
    """Measure them one after another, each told before it is measured."""
    sleepers = {case.model.name: case.model for case in cases}
    configs = [
        (
            one.name,
            repository.sleeper_config(
                one.name, max_batch=REFERENCE.max_batch_size, instances=REFERENCE.instances,
                batching=block(REFERENCE), base_us=one.base_us, item_us=one.item_us,
            ),
            (1,),
        )
        for one in sleepers.values()
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the container's user reads the models
        with own_triton(Path(folder) / "models", configs, more=FIRST) as own:
            for number, case in enumerate(cases):
                row = _tried(own, case, chance + 10 * number, reference_s)
                if row is not None and row.late > LATE_MS:
                    print(f"{line(row)}  (again)", flush=True)
                    again = _tried(own, case, chance + 10 * number + 5, reference_s)
                    row = again if again is not None and again.late < row.late else row
                if row is not None:
                    print(line(row), flush=True)
                    yield row


def _tried(own: OwnTriton, case: Case, chance: int, reference_s: float) -> Row | None:
    """Look at the reference setting, tell, then measure."""
    seen, share = looked_at(own, case.model, chance, reference_s)
    predicted = predict(seen, case.scheduling, rate=case.rate)
    run = measured(own, case, chance + 1)
    server, client = run["server"], run["client"]
    mean, p99, batch = predicted.mean_ms.value, predicted.p99_ms.value, predicted.batch.value
    if mean is None or p99 is None or batch is None:
        print(f"{case.words()}  not told: {'; '.join(predicted.reasons)}", flush=True)
        return None
    return Row(
        case, predicted, share, client["late_mean_ms"], _drift(seen, stats_of(own, case.model.name)),
        (mean, server["total_ms"]), (batch, server["batch"]), (p99 + share, client["latency"]["p99"]),
    )  # fmt: skip


def _drift(seen: Observed, now: ModelStats) -> float:
    """By how much the model's own runs took longer than at the look, as a share: the machine, not the batcher."""
    largest = max(one.size for one in now.batches)
    known = curve(seen.service, largest).ms
    told = sum(one.count * known[one.size] for one in now.batches)
    return sum(one.total_ns for one in now.batches) / 1e6 / told - 1


# ------------------------------------------------------------------------------------------------------------ the table


def line(row: Row) -> str:
    """One row of the table."""
    mean, batch, p99 = row.errors()
    cells = "  ".join(
        f"{told:7.2f} {seen:7.2f} {error:4.0%}"
        for (told, seen), error in ((row.mean, mean), (row.batch, batch), (row.p99, p99))
    )
    return f"{row.case.words()}  {cells}  {row.predicted.trust:<4}  {row.late:.1f}  {row.drift:+.1%}"


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Correlation of the ranks; ties share their mean rank."""
    ranks = [_ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    return statistics.correlation(*ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [statistics.fmean(at for at, other in enumerate(order) if other == value) for value in values]


def medians(found: Sequence[Row]) -> tuple[float, float, float]:
    """Of the errors of mean latency, mean batch and p99."""
    mean, batch, p99 = (statistics.median(column) for column in zip(*(row.errors() for row in found), strict=True))
    return mean, batch, p99


def show(found: Sequence[Row]) -> None:
    """All rows, the worst first; medians and rank correlations."""
    print(
        f"\n{'':<44}  {'mean ms: told, seen':<20}  {'batch: told, seen':<20}  {'p99 ms: told, seen':<20}  trust late ms"
    )
    for row in sorted(found, key=lambda one: max(one.errors()), reverse=True):
        print(line(row))
    mean, batch, p99 = medians(found)
    print(f"\nmedian error of {len(found)}: mean latency {mean:.1%}, mean batch {batch:.1%}, p99 {p99:.1%}")
    for level in LOADS:
        some = [row.p99 for row in found if row.case.load == level]
        if len(some) > 2:
            print(f"Spearman of p99 at {level:.0%}: {spearman(some):.3f} ({len(some)} settings)")
    within = sum(
        1 for row in found
        if row.predicted.mean_ms.error is not None and abs(row.mean[0] - row.mean[1]) <= row.predicted.mean_ms.error
    )  # fmt: skip
    print(f"mean latency within the stated uncertainty: {within} of {len(found)}")


def grid_cost(runs: int = 3) -> int:
    """Seconds that 200 settings at 1 000 requests a second take, beside the plain batcher for one of them."""
    service = tuple(Seen(size, 500, 2.5 + 0.2 * size, 2) for size in range(1, 9))
    seen = Observed(
        "rank", "1", Scheduling(16, 2, max_queue_delay_us=500), service, 30_000, 30.0, 1000.0, wait_ms=0.8,
        compute_ms=2.97, request_ms=3.8, batch=1.8,
    )  # fmt: skip
    settings = [
        Scheduling(size, count, max_queue_delay_us=delay)
        for size in (2, 4, 8, 16, 32)
        for count in (1, 2, 3, 4)
        for delay in (0, 100, 200, 500, 800, 1000, 1500, 2000, 3000, 5000)
    ]
    for _ in range(runs):
        aside, spent = Aside(), resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        told = aside.call("console.planning.prediction", "grid", seen, settings)
        took = time.monotonic() - began
        aside.close()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime
        began = time.process_time()
        simulate_poisson(settings[0], ServiceTime(2.5, 0.2), 1000, seconds=60)
        one = time.process_time() - began
        print(f"{len(told)} settings, {max(p.simulated_s for p in told):.0f} s of traffic each after its warm-up: "
              f"{took:.2f} s, CPU {cpu:.2f} s; the plain batcher {one:.2f} s of CPU for one", flush=True)  # fmt: skip
    return 0


def against_reality(settings: int, seed: str) -> int:
    """The whole bench; 0 when all settings were measured."""
    cases = drawn(seed, settings)
    print(f"seed {seed}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found = list(rows(cases, int.from_bytes(seed.encode()[:4].ljust(4, b"0"))))
    show(found)
    return 0 if len(found) == len(cases) else 1
