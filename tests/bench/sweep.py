"""`scripts/bench sweep`: what a sweep finds, held against every point of its grid measured by the same means.

Four models of different shape in a Triton of their own. Independent clients (callers.py) ask all the time; what they
count as failed is told. The best of the grid and the sweep's choice are then measured five times each, in turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from console.actions import detached, journal, runner
from console.actions.batching import records
from console.actions.batching_apply import LoadFailed
from console.actions.batching_revert import go_back
from console.actions.box import Box, BoxSpec
from console.config import Podman, Settings, Triton
from console.core.plan import Outcome
from console.tuning import space
from console.tuning.space import Candidate
from console.tuning.sweep import Sweep, _Sweep, wanted
from console.tuning.table import Trial
from tests.actions.model_boxes import Live
from tests.bench import callers
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config

ROOT = Path(__file__).parents[2]
REPEATS = 5
T_OF_FIVE = 2.776
"""Student's t for an interval of 95 % from five values."""


class Case(Struct, frozen=True):
    """A model, who asks it, and what is to be best."""

    name: str
    config: str
    asked: tuple[str, ...]
    """Of callers.py."""
    values: dict[str, str]


def cases() -> list[Case]:
    """Wide: larger batches cost as much more. Deep: they cost hardly more. Slow and quick, and requests that come by
    themselves."""

    def batching(delay: int) -> str:
        return f"dynamic_batching {{ max_queue_delay_microseconds: {delay} }}"

    deep = sleeper_config("deep", max_batch=20, batching=batching(4000), base_us=26000, item_us=900)
    wide = sleeper_config("wide", max_batch=8, batching=batching(2000), base_us=3000, item_us=5000)
    slow = sleeper_config("slow", max_batch=16, batching=batching(20000), base_us=35000, item_us=1500)
    quick = sleeper_config("quick", max_batch=32, instances=2, batching=batching(10000), base_us=8000, item_us=400)
    waiting = ("--every", "1", "--rest", "0")
    return [
        Case("deep", deep, ("--kept", "12", *waiting), {"objective": "throughput"}),
        Case("wide", wide, ("--kept", "6", *waiting), {"objective": "throughput"}),
        Case("slow", slow, ("--kept", "0", "--every", "0.033"), {"objective": "mean"}),
        Case("quick", quick, ("--kept", "1", "--every", "1"), {"objective": "p99", "load": "rate=60 poisson"}),
    ]


@contextmanager
def clients(port: int, case: Case, folder: Path) -> Iterator[Path]:
    """They ask until the block ends; what they told is in the file then."""
    told = folder / f"{case.name}.jsonl"
    command = [sys.executable, "-m", "tests.bench.callers", str(port), f"{case.name}:-", *case.asked]
    with told.open("w") as file, subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=file) as process:
        try:
            time.sleep(2.0)
            yield told
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(callers.GIVE_UP_S + 10)


def failed(file: Path) -> str:
    """`12034 asked, 0 failed, slowest 0.21 s`."""
    totals: dict[str, dict[str, float]] = json.loads(file.read_text().splitlines()[-1])["totals"]
    asked = bad = 0.0
    for counts in totals.values():
        for kind, count in counts.items():
            if kind not in ("slowest_s", "stalled"):
                asked += count
                bad += 0 if kind == "ok" else count
    slowest = max(counts["slowest_s"] for counts in totals.values())
    return f"{asked:.0f} asked, {bad:.0f} failed, slowest {slowest:.2f} s"


class Bench:
    """One case on its server."""

    def __init__(self, own: OwnTriton, case: Case, state: Path, seconds: float) -> None:
        triton = Triton(host="127.0.0.1", http_port=own.port, grpc_port=own.port + 1, metrics_port=own.port + 2)
        self.spec = BoxSpec(Settings(triton=triton, podman=Podman(socket=own.socket, container=own.name)))
        self.case, self.state = case, state
        self.values = {**case.values, "budget": f"{max(60.0, 12 * seconds):g}s"}
        self.objective: space.Objective = case.values["objective"]  # type: ignore[assignment]
        self.seconds = seconds

    def swept(self) -> tuple[Outcome, list[Trial], float]:
        """By the product's whole way: plan, detached runner, journal. The trials and the seconds that it took."""
        box = Box(self.spec, self.state)
        plan = runner.prepare(box, Sweep.NAME, self.case.name, self.values)
        box.close()
        if plan.refused:
            raise SystemExit(plan.refused)
        began = time.monotonic()
        found = journal.find(self.state, detached.start(self.spec, self.state, plan))
        outcome = next(line for line in detached.follow(found) if isinstance(line, Outcome))
        kept: dict[str, Any] = {}
        for line in found.lines():
            kept |= line.data if line.state == "kept" else {}
        trials = msgspec.json.decode(kept["trials"], type=list[Trial])
        return outcome, trials, time.monotonic() - began

    @contextmanager
    def by_hand(self) -> Iterator[_Sweep]:
        """The same means of applying and measuring, without choosing; what ran before is loaded at the end."""
        box, run = Box(self.spec, self.state), _Unlimited()
        action = _Held()
        plan = action.plan(box, self.case.name, self.values)
        action.run(box, plan, run)
        record = records(box, self.case.name).get(run.kept()["record"])
        assert record is not None
        made = _Sweep(box, run, wanted(self.values), record)
        made.window_s = self.seconds
        try:
            yield made
        finally:
            go_back(box, run, record)
            box.close()


class _Unlimited(Live):
    def left(self) -> float:
        return 3600.0


class _Held(Sweep):
    """Notes what ran before, and no more."""

    NAME = ""

    def _sweep(self, *_: Any) -> Outcome:
        return Outcome("done", "")


def figure(sweep: _Sweep, candidate: Candidate, objective: space.Objective) -> float | None:
    """One measurement of one point; None where it has none."""
    try:
        sweep.apply(candidate.values)
        return sweep._measure(candidate, None, "").figure(objective)
    except LoadFailed:
        return None


def told(values: Sequence[float]) -> str:
    """Mean and the interval of 95 % for it."""
    half = T_OF_FIVE * statistics.stdev(values) / len(values) ** 0.5 if len(values) == REPEATS else float("nan")
    return f"{statistics.mean(values):.2f} ±{half:.2f}"


def one_case(own: OwnTriton, case: Case, folder: Path, seconds: float) -> None:
    """Sweep, then the whole grid, then both best five times in turns."""
    bench = Bench(own, case, folder / f"state-{case.name}", seconds)
    with clients(own.port, case, folder) as file:
        outcome, trials, took = bench.swept()
    print(f"\n{case.name}: {case.values}\n  sweep {took:.0f} s: {outcome.text}\n  clients meanwhile: {failed(file)}")
    for line in outcome.lines:
        print(f"  {line}")
    measured = [one for one in trials if one.rate is not None]
    chosen = min(measured, key=lambda one: one.text != _chosen(outcome, trials))
    with clients(own.port, case, folder) as file, bench.by_hand() as hand:
        higher = case.values["objective"] == "throughput"
        began = time.monotonic()
        figures = [(figure(hand, point, bench.objective), point) for point in hand.points]
        known = [(value, point) for value, point in figures if value is not None]
        known.sort(key=lambda pair: pair[0], reverse=higher)
        grid_s = time.monotonic() - began
        best, swept = known[0][1], Candidate(chosen.values, hand._settings(chosen.values))
        repeats: dict[str, list[float]] = {"grid": [], "sweep": []}
        for _ in range(REPEATS):
            for name, point in (("grid", best), ("sweep", swept)):
                value = figure(hand, point, bench.objective)
                repeats[name] += [] if value is None else [value]
    print(
        f"  grid {grid_s:.0f} s, {len(hand.points)} points, "
        f"best {best.text}: {known[0][0]:.2f}, worst {known[-1][0]:.2f}"
    )
    print(f"  clients meanwhile: {failed(file)}")
    grid_mean, sweep_mean = statistics.mean(repeats["grid"]), statistics.mean(repeats["sweep"])
    share = 100 * (sweep_mean / grid_mean - 1) * (1 if higher else -1)
    inside = abs(sweep_mean - grid_mean) <= T_OF_FIVE * statistics.stdev(repeats["grid"]) / REPEATS**0.5
    print(
        f"  five times: grid's best {told(repeats['grid'])}, sweep's choice ({swept.text}) {told(repeats['sweep'])}: "
        f"{share:+.1f} %, {'inside' if inside else 'outside'} the interval; "
        f"{len(measured)} trials of {len(hand.points)} points",
        flush=True,
    )


def _chosen(outcome: Outcome, trials: Sequence[Trial]) -> str:
    """The text of the setting with the mark."""
    marked = next((line for line in outcome.lines if line.startswith("* ")), "")
    return next((one.text for one in trials if marked[2:].startswith(one.text)), trials[0].text)


def against_the_grid(seconds: float, only: str) -> int:
    """All cases, or those named with commas between."""
    wanted_cases = [one for one in cases() if not only or one.name in only.split(",")]
    with tempfile.TemporaryDirectory(prefix="bench-sweep-") as name:
        folder = Path(name)
        models = [(one.name, one.config, (1,)) for one in wanted_cases]
        with own_triton(folder / "models", models) as own:
            for case in wanted_cases:
                try:
                    one_case(own, case, folder, seconds)
                except BaseException:
                    print(own.log()[-3000:], file=sys.stderr)
                    raise
    return 0


if __name__ == "__main__":
    raise SystemExit(against_the_grid(float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
