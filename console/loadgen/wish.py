"""What is wished for, and the plan that it comes to: one way for `gpuconsole loadtest` and the Load screen."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from console.clients import golden_store
from console.clients.triton import TritonAddress
from console.clients.triton_body import Encoded
from console.core.duration import seconds
from console.core.golden import Golden
from console.core.model import SourceError
from console.core.plan import WrongInput
from console.core.text import one_line
from console.loadgen import schedule
from console.loadgen.inputs import MOST_BYTES, Inputs, Wanted, make, parse_shapes
from console.loadgen.launch import resolve
from console.loadgen.live import parse_limits
from console.loadgen.measure import Asked, Plan, Statistics

RATE, CALLERS, MIX = "--rate", "--concurrency", "--mix"
MOST_MIXED = 7
MOST_RATE_FILE = 1024 * 1024
MOST_SHARE = 0.999


class Wish(Struct, frozen=True):
    """What was typed: times, levels and shapes are text as people write them."""

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
    live_limits: Sequence[str] = ()
    """`M` or `MODEL=M`, ms."""
    look: str = "2s"
    """How long others' traffic is looked at before."""
    mix: Sequence[str] = ()
    """`MODEL=0.3` or `MODEL/VERSION=0.3`: asked too, with that share of the requests."""
    rate_file: str = ""
    """Recorded rates instead of one: CSV lines `seconds,rate`."""
    engine: str = ""
    """`perf_analyzer`; "": our own."""
    binary: str = ""
    """Where that lies; "": on PATH."""


class Checked(Struct, frozen=True):
    """What was typed, as far as no server is asked."""

    load: schedule.Load
    warm_up: schedule.Load | None
    timeout_s: float
    wanted: Wanted
    live_limits: Mapping[str, float]
    look_s: float
    mix: Sequence[tuple[str, str, float]]
    """Model, version, share."""


def checked(wish: Wish) -> Checked:
    """WrongInput says in one sentence what cannot be, with the option's name in front. Reads the data file."""
    _fits_engine(wish)
    load, warm = _load(wish)
    if wish.goal_ms is not None and not (isfinite(wish.goal_ms) and wish.goal_ms > 0):
        raise WrongInput(f"--slo-p99-ms must be more than 0, not {wish.goal_ms:g}")
    if not 0 <= wish.max_errors <= 100:
        raise WrongInput(f"--max-errors must be from 0 to 100 (percent), not {wish.max_errors:g}")
    timeout = seconds(wish.timeout, "--timeout")
    if not 0.01 <= timeout <= 600:
        raise WrongInput(f"--timeout must be from 0.01 to 600 s, not {timeout:g} s")
    limits = parse_limits(wish.live_limits)
    look = seconds(wish.look, "--look-before")
    if not 0 <= look <= 600:
        raise WrongInput(f"--look-before must be from 0 to 600 s, not {look:g} s")
    return Checked(load, warm, timeout, _wanted(wish), limits, look, _mix(wish))


def planned(wish: Wish, where: Callable[[], TritonAddress], state: Path) -> Plan:
    """What it comes to, with the model's configuration as it is served now. WrongInput as `checked`. `where` is asked
    once what was typed is known to be right; `state` holds the kept questions."""
    found = checked(wish)
    load, address = found.load, where()
    what = f"{load.words()} for {load.seconds:g} s{', with the headers of the settings' if address.headers else ''}"
    ip = resolve(address.host, address.http_port, what, remote=wish.remote)
    if wish.engine and address.headers:
        raise WrongInput("--engine perf_analyzer would show the headers of the settings to all users of this machine")
    if address.https:
        raise WrongInput("a load is sent over plain HTTP only, and the settings say triton.https; that is not done yet")
    rest = 1.0 - sum(share for _, _, share in found.mix)
    golden = _golden(wish, state)
    asked = [_asked(address, found, wish.model, wish.version, rest, golden)]
    asked += [_asked(address, found, model, version, share, None) for model, version, share in found.mix]
    return Plan(address, ip, tuple(asked), load, found.warm_up, wish.batch, wish.goal_ms, found.timeout_s,
                wish.max_errors / 100, found.live_limits, found.look_s)  # fmt: skip


def _asked(
    address: TritonAddress, found: Checked, model: str, version: str, share: float, golden: Golden | None
) -> Asked:
    statistics = Statistics(address, model, version)
    try:
        config = statistics.config()
    except SourceError as error:
        raise WrongInput(f"no load can be sent: {error.message}") from error
    finally:
        statistics.close()
    if golden is not None:
        inputs = Inputs((Encoded(golden.body, golden.headers),), one_line(f"the kept question: {golden.sent}", 400))
    else:
        inputs = make(config, _of_model(found, model))
    return Asked(model, version, inputs, config, golden, share)


def _of_model(found: Checked, model: str) -> Wanted:
    """What inputs are wanted for one of the models: of `--shape MODEL/INPUT:8` only its own, and the data file for the
    first."""
    mixed = {name for name, _, _ in found.mix}
    shapes = {
        name.removeprefix(f"{model}/"): sizes
        for name, sizes in found.wanted.shapes.items()
        if name.startswith(f"{model}/") or (model not in mixed and name.partition("/")[0] not in mixed)
    }
    wanted = replace(found.wanted, shapes=shapes)
    return replace(wanted, data=None, data_name="") if model in mixed else wanted


def _mix(wish: Wish) -> list[tuple[str, str, float]]:
    found: list[tuple[str, str, float]] = []
    for word in wish.mix:
        name, _, text = word.rpartition("=")
        model, _, version = name.partition("/")
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if not model or not 0 < share < 1:
            raise WrongInput(f"{MIX} must be MODEL=SHARE, a share above 0 and below 1, not {one_line(word, 80)!r}")
        if model in {wish.model, *(one[0] for one in found)}:
            raise WrongInput(f"{MIX} names {one_line(model, 80)} twice; a model has one share")
        found.append((model, version, share))
    if sum(share for _, _, share in found) > MOST_SHARE:
        raise WrongInput(
            f"{MIX}: the shares leave nothing for {one_line(wish.model, 80)}; they must sum to less than 1"
        )
    if len(found) > MOST_MIXED:
        raise WrongInput(f"{MIX} is given {len(found)} times; at most {MOST_MIXED} more models are possible")
    return found


def _fits_engine(wish: Wish) -> None:
    """perf_analyzer takes one level of a closed loop, and none of what is our own."""
    if wish.binary and not wish.engine:
        raise WrongInput("--perf-analyzer goes with --engine perf_analyzer")
    if not wish.engine:
        return
    if wish.rate is not None:
        raise WrongInput(
            f"{RATE} is not for perf_analyzer: its rate mode hides stalls; give {CALLERS}, or leave --engine out"
        )
    if not (wish.concurrency or "1").isdigit():
        raise WrongInput(
            f"{CALLERS} must be one number for perf_analyzer, not {one_line(wish.concurrency or '', 80)!r}"
        )
    own = {
        schedule.RATE_FILE: wish.rate_file,
        "--golden": wish.golden,
        "--data": wish.data,
        MIX: wish.mix,
        "--max-live-ms": wish.live_limits,
        "--count": wish.count,
        "--priority": wish.priority,
        "--queue-timeout-us": wish.queue_timeout_us,
        "--slo-p99-ms": wish.goal_ms is not None,
    }
    if given := next((flag for flag, value in own.items() if value), ""):
        raise WrongInput(f"{given} is not for perf_analyzer; leave it or --engine out")


def _load(wish: Wish) -> tuple[schedule.Load, schedule.Load | None]:
    if wish.rate is not None and wish.concurrency is not None:
        raise WrongInput(f"{RATE} is an open loop and {CALLERS} a closed one; give one of them")
    if wish.rate_file and (wish.rate is not None or wish.concurrency is not None):
        raise WrongInput(f"{schedule.RATE_FILE} tells the rate itself; leave {RATE} and {CALLERS} out")
    if wish.poisson and wish.rate is None and not wish.rate_file:
        raise WrongInput(f"--poisson goes with {RATE}")
    length = seconds(wish.duration, "--duration")
    if wish.rate_file:
        body, name = (
            read(schedule.RATE_FILE, wish.rate_file, MOST_RATE_FILE)[0],
            one_line(Path(wish.rate_file).name, 80),
        )
        load = schedule.recorded(body, name, poisson=wish.poisson, seed=wish.seed, count=wish.count)
        return load, schedule.warm_up(load, seconds(wish.warmup, "--warmup"))
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
        read("--data", wish.data, MOST_BYTES)[0] if wish.data else None,
        Path(wish.data).name if wish.data else "",
        wish.priority,
        wish.queue_timeout_us,
    )


def read(flag: str, name: str, most: int) -> tuple[bytes, float]:
    """A file's content, and when it was last written. WrongInput for what is no plain file, or larger than `most`."""
    shown = one_line(name, 200)
    try:
        path = Path(name).expanduser()
        if not stat.S_ISREG(path.stat().st_mode):
            raise WrongInput(f"{flag}: {shown} is no plain file")  # a device has no end, a pipe waits
        with path.open("rb") as opened:
            wall = os.fstat(opened.fileno()).st_mtime
            body = opened.read(most + 1)
    except (OSError, RuntimeError, ValueError) as error:  # an unknown ~user, a name with a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WrongInput(f"{flag}: {shown} cannot be read: {one_line(reason, 100)}") from error
    if len(body) > most:
        raise WrongInput(f"{flag}: {shown} is larger than {most // 2**20} MiB")
    return body, wall


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
