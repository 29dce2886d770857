"""`scripts/bench changes`: what independent clients feel while the console changes a model or its container.

Every change goes the whole way of the product: plan, detached runner, journal, audit. Who asks (callers.py) is apart.
A swap takes a version away, so who asks for that version by its number must fail: those are counted apart.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from console.actions import detached, journal, runner
from console.actions.box import Box, BoxSpec
from console.config import Podman, Settings
from console.core.plan import Outcome
from tests.bench import callers
from tests.lab import repository
from tests.lab.own import OwnTriton, own_triton

MODEL = "rank"
BYSTANDER = "other"
ROOT = Path(__file__).parents[2]


class Change(Struct, frozen=True):
    """One change to make, over and over."""

    kind: str
    action: str
    values: tuple[Mapping[str, str], ...]
    """Taken in turns."""
    times: int
    gap: bool = False
    """The plan announces a gap: what fails in it is held against the plan's."""


class Done(Struct):
    """What one change took."""

    outcome: Outcome
    planned_gap: float | None
    began: float
    ended: float
    seconds: float


def changes(swaps: int, batching: int, instances: int, recreates: int) -> list[Change]:
    """The four kinds."""
    sizes = tuple({"shm_size": size} for size in ("160m", "128m"))
    return [
        Change("swap", "model.swap", ({"version": "2"}, {"version": "1"}), swaps),
        Change("batching", "batching.set", ({"delay_us": "1000"}, {"delay_us": "300"}), batching),
        Change("instances, in place", "batching.set", ({"instances": "3"}, {"instances": "2"}), instances),
        Change("recreate", "container.recreate", sizes, recreates, gap=True),
    ]


class Measured(Struct):
    """What came of one kind's changes."""

    done: list[Done]
    told: list[dict[str, Any]]
    """Each request that was not answered well, or late."""
    totals: dict[str, dict[str, float]]
    """Route -> how often what came of a request, and the slowest."""


@contextmanager
def clients(port: int, folder: Path, version: str, load: tuple[str, ...] = ()) -> Iterator[Path]:
    """Independent clients; what they told is in the file when the block has ended. `load`: words of callers.py."""
    told = folder / "told.jsonl"
    targets = [f"{MODEL}:-", f"{MODEL}:{version}", f"{BYSTANDER}:-"]
    command = [sys.executable, "-m", "tests.bench.callers", str(port), *targets, *load]
    with told.open("w") as file, subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=file) as process:
        try:
            time.sleep(2.0)
            yield told
            time.sleep(1.0)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(callers.GIVE_UP_S + 10)


def one(spec: BoxSpec, state: Path, action: str, target: str, values: Mapping[str, str]) -> Done:
    """Make one change as a person would who says yes at once."""
    box = Box(spec, state)
    began, mono = time.time(), time.monotonic()
    try:
        plan = runner.prepare(box, action, target, values)
    finally:
        box.close()
    if plan.refused:
        return Done(Outcome("refused", plan.refused), None, began, time.time(), time.monotonic() - mono)
    found = journal.find(state, detached.start(spec, state, plan))
    outcome = next(line for line in detached.follow(found) if isinstance(line, Outcome))
    return Done(outcome, plan.gap_s, began, time.time(), time.monotonic() - mono)


def measured(change: Change, own: OwnTriton, folder: Path, load: tuple[str, ...] = ()) -> Measured:
    """Make one kind's changes under load."""
    state = folder / "state"
    spec = BoxSpec(Settings(podman=Podman(socket=own.socket, container=own.name)))
    target = own.name if change.action.startswith("container") else MODEL
    done: list[Done] = []
    with clients(own.port, folder, "2" if change.gap else "1", load) as file:
        for number in range(change.times):
            values = change.values[number % len(change.values)]
            done.append(one(spec, state, change.action, target, values))
            if done[-1].outcome.word != "done":
                print(f"  {change.kind} {number}: {done[-1].outcome.word}: {done[-1].outcome.text}", flush=True)
    told = [json.loads(line) for line in file.read_text().splitlines()]
    return Measured(done, told[:-1], told[-1]["totals"])


def show(change: Change, found: Measured) -> None:
    """A table: per route what was asked and what was not answered well."""
    words = Counter(one.outcome.word for one in found.done)
    counted = ", ".join(f"{n} {w}" for w, n in words.items())
    seconds = [one.seconds for one in found.done]
    print(f"\n{change.kind}: {counted}; {_span(seconds)} s each, from planning to the outcome")
    for name in ("load_s", "added_s", "exposure_s", "gap_s"):
        figures = [one.outcome.figures[name] for one in found.done if name in one.outcome.figures]
        if figures:
            print(f"  {name:<12} {_span(figures)}")
    if change.gap:
        print(f"  planned gap  {_span([one.planned_gap for one in found.done if one.planned_gap] or [0.0])}")
        felt = [felt_gap(one, found.told) for one in found.done]
        print(f"  felt gap     {_span(felt)}   (on fresh connections, from the first to the last that failed)")
    print(
        f"  {'route':<16}{'asked':>8}{'ok':>8}{'failed':>8}{'refused':>8}{'stalled':>8}{'slowest s':>11}  what failed"
    )
    for route, totals in found.totals.items():
        counts = {kind: int(n) for kind, n in totals.items() if kind != "slowest_s"}
        stalled = counts.pop("stalled", 0)
        asked = sum(counts.values())
        good, refused = counts.pop("ok", 0), counts.pop("refused", 0)
        failed = ", ".join(f"{n} x {kind}" for kind, n in counts.items()) or "–"
        cells = f"{asked:>8}{good:>8}{sum(counts.values()):>8}{refused:>8}{stalled:>8}{totals['slowest_s']:>11.3f}"
        print(f"  {route:<16}{cells}  {failed}", flush=True)


def felt_gap(one: Done, told: list[dict[str, Any]]) -> float:
    """Seconds from the first to the last unversioned request on a fresh connection that failed during a change."""
    walls = [
        line["wall"]
        for line in told
        if line["route"] == f"fresh {MODEL}" and line["kind"] != "ok" and one.began <= line["wall"] <= one.ended
    ]
    return max(walls) - min(walls) if walls else 0.0


def _span(values: list[float]) -> str:
    return f"median {statistics.median(values):.2f}, max {max(values):.2f}"


def models() -> list[tuple[str, str, tuple[int, ...]]]:
    """The model that is changed, and one that is not."""
    config = repository.sleeper_config(
        MODEL, max_batch=16, instances=2, batching="dynamic_batching { max_queue_delay_microseconds: 300 }",
        base_us=2000, item_us=100,
    )  # fmt: skip
    bystander = repository.sleeper_config(BYSTANDER, max_batch=16, instances=1, base_us=2000, item_us=100)
    return [(MODEL, config, (1, 2)), (BYSTANDER, bystander, (1,))]


@contextmanager
def server(change: Change, folder: Path) -> Iterator[OwnTriton]:
    """A Triton on which this kind of change can be made."""
    folder.chmod(0o755)  # the container's user reads the models
    with own_triton(folder / "models", models()) as own:
        if not change.gap:  # a new container starts from the disk, where no version is pinned
            status, answer = own.load(MODEL, config=_serving_one(own))
            assert status == 200, answer
            own.wait_ready({(MODEL, "1")})
        yield own


def under_change(swaps: int, batching: int, instances: int, recreates: int) -> int:
    """All four kinds, each on a server of its own; 0 when every change was done."""
    good = True
    for change in changes(swaps, batching, instances, recreates):
        if not change.times:
            continue
        with tempfile.TemporaryDirectory() as name, server(change, Path(name)) as own:
            found = measured(change, own, Path(name))
            show(change, found)
            good = good and all(one.outcome.word == "done" for one in found.done)
    return 0 if good else 1


def _serving_one(own: OwnTriton) -> str:
    """The configuration under which version 1 serves, so that the first swap goes up."""
    _, config = own.triton("GET", f"/v2/models/{MODEL}/config")
    config["version_policy"] = {"specific": {"versions": [1]}}
    config["dynamic_batching"].pop("preferred_batch_size", None)
    return json.dumps(config)
