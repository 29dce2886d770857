"""The load that a sweep sends itself: `concurrency=16`, or `rate=200 poisson`, by the load generator's own process."""

from __future__ import annotations

from collections.abc import Callable

from console.actions.base import Run
from console.actions.box import Box
from console.actions.who import operator
from console.core.plan import WrongInput
from console.core.text import one_line
from console.loadgen import record, wish
from console.loadgen.measure import Measuring
from console.loadgen.order import Progress
from console.loadgen.wish import Wish

FLAGS = ("poisson", "random", "golden")
NAMES = ("concurrency", "rate", "shape", "batch")
WARM_UP_S = 1.0


def wished(text: str, model: str, version: str, seconds: float, seed: int = 0) -> Wish:
    """The words of `--load` as the load generator takes them. WrongInput."""
    given: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.removeprefix("--").partition("=")
        known = name in NAMES if equals else name in FLAGS
        if not known or name in given:
            options = ", ".join([*(f"{one}=…" for one in NAMES), *FLAGS])
            raise WrongInput(f"`load` knows {options}, each once, not {one_line(word, 40)!r}")
        given[name] = value
    batch = given.get("batch", "1")
    if not batch.isdecimal() or not 0 < int(batch) < 10_000:
        raise WrongInput(f"`load`: batch must be a whole number above 0, not {one_line(batch, 40)!r}")
    made = Wish(
        model=model,
        version=version,
        concurrency=given.get("concurrency"),
        rate=given.get("rate"),
        poisson="poisson" in given,
        seed=seed,
        duration=f"{seconds:g}s",
        warmup=f"{WARM_UP_S:g}s",
        count=0,
        shapes=(given["shape"],) if "shape" in given else (),
        batch=int(batch),
        data="",
        random="random" in given,
        golden="golden" in given,
        priority=0,
        queue_timeout_us=0,
        timeout="30s",
        max_errors=1.0,
        goal_ms=None,
        remote=False,
        look="0s",
    )
    wish.checked(made)
    return made


def measured(box: Box, run: Run, made: Wish, each_second: Callable[[], object]) -> record.Run:
    """Send it and keep its record, as any load run; `each_second` is called within its measured part. WrongInput,
    Refused, SourceError, OSError."""
    box.changing()
    plan = wish.planned(made, box.address, box.state)

    def tell(progress: Progress) -> None:
        if progress.at > 0:
            each_second()
        if run.cancelled.is_set():
            measuring.stop()

    measuring = Measuring(plan, read_only=box.read_only, tell=tell)
    return record.keep(box.state, measuring.run(box.host, operator().short))
