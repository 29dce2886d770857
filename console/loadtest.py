"""`gpuconsole loadtest`: send a load to a model and tell what came of it; list the kept runs, compare two."""

from __future__ import annotations

import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TextIO

from msgspec import Struct

from console.actions.box import Box, BoxSpec
from console.actions.who import operator
from console.clients import golden_store
from console.clients.triton import TritonAddress
from console.clients.triton_body import Encoded
from console.core.duration import seconds
from console.core.encode import to_json
from console.core.golden import Golden
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line
from console.do import Looks, drawn
from console.loadgen import record, report, schedule
from console.loadgen.inputs import MOST_BYTES, Inputs, Wanted, make, parse_shapes
from console.loadgen.launch import READ_ONLY, resolve
from console.loadgen.measure import Measuring, Plan, Statistics
from console.loadgen.order import Progress
from console.loadgen.record import Run
from console.sources.locator import Locator

BROKEN = 1
"""Exit code where the goal is not met, the run is not valid, or it stopped itself."""
STOPPED = 130
RATE, CALLERS = "--rate", "--concurrency"


class Wish(Struct, frozen=True):
    """What was typed."""

    model: str
    version: str
    concurrency: str | None
    rate: str | None
    poisson: bool
    seed: int
    duration: str
    warmup: str
    count: int
    shapes: Sequence[str]
    batch: int
    data: str
    random: bool
    golden: bool
    priority: int
    queue_timeout_us: int
    timeout: str
    max_errors: float
    """Percent."""
    goal_ms: float | None
    remote: bool
    dry_run: bool
    as_json: bool


def run(wish: Wish, spec: BoxSpec, state: Path, looks: Looks) -> int:
    """Plan, send, tell, keep; the exit code. WrongInput for what cannot be, Refused in read-only mode."""
    if spec.settings.safety.read_only and not wish.dry_run:
        raise Refused(READ_ONLY)  # the first of two guards; the other is where the sender's process is started
    plan = _planned(wish, spec, state)
    if wish.dry_run:
        _say([*report.plan_lines(plan), "dry run: nothing was sent"], looks)
        return 0
    if not wish.as_json:
        _say(report.plan_lines(plan), looks)

    def tell(progress: Progress) -> None:
        if wish.as_json:
            return
        try:
            _say([report.progress_line(plan, progress)], looks)
        except OSError:  # the terminal is lost, or whoever read has gone: nobody watches this load any more
            measuring.stop()

    measuring = Measuring(plan, read_only=spec.settings.safety.read_only, tell=tell)
    with _stops(measuring):
        try:
            found = measuring.run(spec.host, operator().short)
        except SourceError as error:
            raise WrongInput(f"the load could not be sent: {error.message}") from error
    if found.ended == "stopped" and not found.client.sent:
        _say(["stopped before anything was measured"], looks, sys.stderr)
        return STOPPED
    found = _kept(state, found, looks)
    if wish.as_json:
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


# ----------------------------------------------------------------------------------------------------------- the plan


def _planned(wish: Wish, spec: BoxSpec, state: Path) -> Plan:
    load, warm = _load(wish)
    if wish.goal_ms is not None and not (isfinite(wish.goal_ms) and wish.goal_ms > 0):
        raise WrongInput(f"--slo-p99-ms must be more than 0, not {wish.goal_ms:g}")
    if not 0 <= wish.max_errors <= 100:
        raise WrongInput(f"--max-errors must be from 0 to 100 (percent), not {wish.max_errors:g}")
    timeout = seconds(wish.timeout, "--timeout")
    if not 0.01 <= timeout <= 600:
        raise WrongInput(f"--timeout must be from 0.01 to 600 s, not {timeout:g} s")
    wanted = _wanted(wish)
    address = _address(spec, state)
    what = f"{load.words()} for {load.seconds:g} s{', with the headers of the settings' if address.headers else ''}"
    ip = resolve(address.host, address.http_port, what, remote=wish.remote)
    if address.https:
        raise WrongInput("a load is sent over plain HTTP only, and the settings say triton.https; that is not done yet")
    statistics = Statistics(address, wish.model, wish.version)
    try:
        config = statistics.config()
    except SourceError as error:
        raise WrongInput(f"no load can be sent: {error.message}") from error
    finally:
        statistics.close()
    golden = _golden(wish, state)
    if golden is not None:
        inputs = Inputs((Encoded(golden.body, golden.headers),), one_line(f"the kept question: {golden.sent}", 400))
    else:
        inputs = make(config, wanted)
    return Plan(address, ip, wish.model, wish.version, load, warm, inputs, config, wish.batch, golden, wish.goal_ms,
                timeout, wish.max_errors / 100)  # fmt: skip


def _load(wish: Wish) -> tuple[schedule.Load, schedule.Load | None]:
    if wish.rate is not None and wish.concurrency is not None:
        raise WrongInput(f"{RATE} is an open loop and {CALLERS} a closed one; give one of them")
    if wish.poisson and wish.rate is None:
        raise WrongInput(f"--poisson goes with {RATE}")
    length = seconds(wish.duration, "--duration")
    if wish.rate is not None:
        load = schedule.make("open", wish.rate, length, poisson=wish.poisson, seed=wish.seed, count=wish.count)
    else:
        load = schedule.make("closed", wish.concurrency or "1", length, seed=wish.seed, count=wish.count)
    return load, schedule.warm_up(load, seconds(wish.warmup, "--warmup"))


def _wanted(wish: Wish) -> Wanted:
    if wish.data and wish.random:
        raise WrongInput("--data and --random exclude each other; give one of them")
    if wish.golden and (wish.data or wish.random or wish.shapes or wish.batch != 1):
        raise WrongInput("--golden sends the kept question as it is; leave out --data, --random, --shape and --batch")
    for flag, value, most in (
        ("--chance", wish.seed, 2**62),
        ("--priority", wish.priority, 2**32 - 1),
        ("--queue-timeout-us", wish.queue_timeout_us, 2**62),
    ):
        if not 0 <= value <= most:
            raise WrongInput(f"{flag} must be from 0 to {most}, not {value}")
    return Wanted(
        parse_shapes(wish.shapes),
        wish.batch,
        "random" if wish.random else "zeros",
        wish.seed,
        _read(wish.data) if wish.data else None,
        Path(wish.data).name if wish.data else "",
        wish.priority,
        wish.queue_timeout_us,
    )


def _read(name: str) -> bytes:
    shown = one_line(name, 200)
    try:
        path = Path(name).expanduser()
        if not stat.S_ISREG(path.stat().st_mode):
            raise WrongInput(f"{shown} is no plain file")  # a device has no end, a pipe waits
        with path.open("rb") as opened:
            body = opened.read(MOST_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:  # an unknown ~user, a name with a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WrongInput(f"{shown} cannot be read: {one_line(reason, 100)}") from error
    if len(body) > MOST_BYTES:
        raise WrongInput(f"{shown} is larger than {MOST_BYTES // 2**20} MiB")
    return body


def _golden(wish: Wish, state: Path) -> Golden | None:
    if not wish.golden:
        return None
    try:
        kept = golden_store.load(state, wish.model)
    except SourceError as error:
        raise WrongInput(f"the kept question cannot be used: {error.message}") from error
    if kept is None:
        name = one_line(wish.model, 80)
        raise WrongInput(f"no question is kept for {name}; keep one with gpuconsole do golden.keep {name}")
    return kept


def _address(spec: BoxSpec, state: Path) -> TritonAddress:
    """From the settings and the container; from the settings alone where Podman does not answer."""
    box = Box(spec, state)
    try:
        return box.address()
    except SourceError:
        return Locator(spec.settings, lambda: None).address()
    finally:
        box.close()


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
