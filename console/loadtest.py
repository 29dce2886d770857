"""`gpuconsole loadtest`: send a load to a model and tell what came of it; list the kept runs, compare two."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TextIO

from console.actions.box import BoxSpec, address
from console.actions.who import operator
from console.core.encode import to_json
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.do import Looks, drawn
from console.loadgen import record, report
from console.loadgen.launch import READ_ONLY
from console.loadgen.measure import Measuring
from console.loadgen.order import Progress
from console.loadgen.record import Run
from console.loadgen.wish import Wish, planned
from console.sources.gpu import GpuSource

BROKEN = 1
"""Exit code where the goal is not met, the run is not valid, or it stopped itself."""
STOPPED = 130


def run(wish: Wish, spec: BoxSpec, state: Path, looks: Looks, *, dry_run: bool, as_json: bool) -> int:
    """Plan, send, tell, keep; the exit code. WrongInput for what cannot be, Refused in read-only mode."""
    if spec.settings.safety.read_only and not dry_run:
        raise Refused(READ_ONLY)  # the first of two guards; the other is where the sender's process is started
    plan = planned(wish, lambda: address(spec, state), state)
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
def _stops(measuring: Measuring) -> Iterator[None]:
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


def _kept(state: Path, found: Run, looks: Looks) -> Run:
    try:
        return record.keep(state, found)
    except OSError as error:
        print(
            drawn(f"gpuconsole: the run is not kept: {error.filename or state}: {error.strerror}", looks),
            file=sys.stderr,
        )
        return found


def _runs(state: Path) -> list[Run]:
    try:
        return record.load_all(state)
    except OSError as error:
        raise Refused(f"{error.filename or state} cannot be read ({error.strerror}); look at its rights") from error


def _say(lines: Sequence[str], looks: Looks, stream: TextIO | None = None) -> None:
    for line in lines:
        print(drawn(line, looks), file=stream or sys.stdout, flush=True)
