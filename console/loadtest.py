"""`gpuconsole loadtest`: send a load to a model and tell what came of it; list the kept runs, compare two."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TextIO

from console.actions.box import BoxSpec, address
from console.actions.who import operator
from console.clients.host import hostname
from console.core.encode import to_json
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line
from console.do import Looks, drawn
from console.loadgen import perf_analyzer, record, report
from console.loadgen.inputs import parse_shapes
from console.loadgen.launch import READ_ONLY
from console.loadgen.measure import Measuring, Plan
from console.loadgen.order import Progress
from console.loadgen.perf_analyzer import PerfAnalyzer
from console.loadgen.record import Foreign, K, Kept
from console.loadgen.wish import Wish, planned, read
from console.sources.gpu import GpuSource

BROKEN = 1
"""Exit code where the goal is not met, the run is not valid, or it stopped itself."""
STOPPED = 130


def run(wish: Wish, spec: BoxSpec, state: Path, looks: Looks, *, dry_run: bool, as_json: bool) -> int:
    """Plan, send, tell, keep; the exit code. WrongInput for what cannot be, Refused in read-only mode."""
    if spec.settings.safety.read_only and not dry_run:
        raise Refused(READ_ONLY)  # the first of two guards; the other is where the sender's process is started
    plan = planned(wish, lambda: address(spec, state), state)
    if wish.engine:
        return _by_engine(wish, plan, spec, state, looks, dry_run=dry_run, as_json=as_json)
    if dry_run:
        _say([*report.plan_lines(plan), "dry run: nothing was sent"], looks)
        return 0
    if not as_json:
        _say(report.plan_lines(plan), looks)

    def tell(progress: Progress) -> None:
        if as_json:
            return
        try:
            _say([report.progress_line(plan, progress, measuring.live)], looks)
        except OSError:  # the terminal is lost, or whoever read has gone: nobody watches this load any more
            measuring.stop()

    here = ip_address(plan.ip.partition("%")[0]).is_loopback
    gpu = GpuSource(api=spec.nvml_api(), root=spec.root) if here else None
    measuring = Measuring(plan, read_only=spec.settings.safety.read_only, tell=tell, gpu=gpu)
    with _stops(measuring):
        try:
            found = measuring.run(spec.host, operator().short)
        except SourceError as error:
            raise WrongInput(f"the load could not be sent: {error.message}") from error
    if found.ended == "stopped" and not found.client.sent:
        _say(["stopped before anything was measured"], looks, sys.stderr)
        return STOPPED
    found = _kept(state, found, looks)
    if as_json:
        sys.stdout.buffer.write(to_json(found) + b"\n")
        sys.stdout.flush()
    else:
        _say(report.result_lines(found), looks)
    if found.ended == "stopped" and not found.not_valid:
        return STOPPED
    return BROKEN if found.not_valid or found.met is False or found.ended not in record.WHOLE else 0


def _by_engine(
    wish: Wish, plan: Plan, spec: BoxSpec, state: Path, looks: Looks, *, dry_run: bool, as_json: bool
) -> int:
    """By another program."""
    binary, shapes = perf_analyzer.find(wish.binary), parse_shapes(wish.shapes)
    if not as_json or dry_run:
        command = perf_analyzer.words(binary, plan, shapes, Path("REPORT"), random=wish.random)
        _say([f"load on {plan.names} at {plan.address.where}, by another program", f"  {shlex.join(command)}"], looks)
    if dry_run:
        _say(["dry run: nothing was sent"], looks)
        return 0
    engine = PerfAnalyzer(binary, plan, shapes, random=wish.random, read_only=spec.settings.safety.read_only)
    with _stops(engine):
        try:
            found = engine.run(spec.host, operator().short)
        except SourceError as error:
            _say([f"gpuconsole: {'stopped' if engine.stopped else error.message}"], looks, sys.stderr)
            return STOPPED if engine.stopped else BROKEN
    _tell_foreign([_kept(state, found, looks)], looks, as_json=as_json)
    return 0


def imported(model: str, version: str, file: str, batch: int, state: Path, looks: Looks, *, as_json: bool) -> int:
    """`--import FILE`: keep what perf_analyzer reported, one run for each level."""
    body, wall = read(perf_analyzer.IMPORT, file, perf_analyzer.MOST_CSV)
    if batch < 1:
        raise WrongInput(f"--batch must be from 1, not {batch}")
    blank = Foreign(perf_analyzer.NAME, 0, wall, hostname(), operator().short, one_line(model, 80),
                    one_line(version, 40), 0, 0.0, batch=batch, file=one_line(Path(file).name, 80))  # fmt: skip
    found = perf_analyzer.read_csv(body, file, blank)
    _tell_foreign([_kept(state, one, looks) for one in found], looks, as_json=as_json)
    return 0


def _tell_foreign(found: Sequence[Foreign], looks: Looks, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(to_json({"runs": found}) + b"\n")
        sys.stdout.flush()
        return
    for one in found:
        _say(report.foreign_lines(one), looks)


def listed(state: Path, *, as_json: bool, looks: Looks) -> int:
    """`--list`: the kept runs, oldest first."""
    runs = _runs(state)
    if as_json:
        sys.stdout.buffer.write(to_json({"runs": runs}) + b"\n")
    else:
        _say(report.list_lines(runs, utc=looks.utc), looks)
    return 0


def compared(state: Path, first: str, second: str, *, as_json: bool, looks: Looks) -> int:
    """`--compare A B`: figures, settings and distributions of two kept runs."""
    runs = _runs(state)
    one, two = record.find(runs, first), record.find(runs, second)
    try:
        found = record.compare(one, two)
    except ValueError as error:
        raise WrongInput(f"run {one.id} or {two.id} is damaged: {error}") from error
    if as_json:
        sys.stdout.buffer.write(to_json({"first": one, "second": two, "comparison": found}) + b"\n")
    else:
        _say(report.compare_lines(one, two, found), looks)
    return 0


# --------------------------------------------------------------------------------------------------------- the result


@contextmanager
def _stops(measuring: Measuring | PerfAnalyzer) -> Iterator[None]:
    """Ctrl+C, a lost terminal and SIGTERM stop the load at once; what was measured is told. A second one ends all."""

    def stop(number: int, _: object) -> None:
        measuring.stop()
        for one in before:
            signal.signal(one, signal.default_int_handler)

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, old in before.items():
            signal.signal(one, old)


def _kept(state: Path, found: K, looks: Looks) -> K:
    try:
        return record.keep(state, found)
    except OSError as error:
        print(
            drawn(f"gpuconsole: the run is not kept: {error.filename or state}: {error.strerror}", looks),
            file=sys.stderr,
        )
        return found


def _runs(state: Path) -> list[Kept]:
    try:
        return record.load_kept(state)
    except OSError as error:
        raise Refused(f"{error.filename or state} cannot be read ({error.strerror}); look at its rights") from error


def _say(lines: Sequence[str], looks: Looks, stream: TextIO | None = None) -> None:
    for line in lines:
        print(drawn(line, looks), file=stream or sys.stdout, flush=True)
