"""The real Doors: `console.loadgen`, imported when it is needed and in the thread that needs it.

Requests are made in a helper process (clients/aside.py): what it takes to encode them never stays in the console.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from console.clients.aside import Aside
from console.core.session import Session
from console.tui.loads import Told
from console.tui.place import place_of

if TYPE_CHECKING:
    from console.loadgen.announce import Running
    from console.loadgen.measure import Plan
    from console.loadgen.order import Progress
    from console.loadgen.record import Comparison, Foreign, Kept, Live, Run
    from console.loadgen.wish import Checked, Wish

ANY, CLOSED, CONSTANT, POISSON = "any", "closed loop", "open loop, constant", "open loop, Poisson"
MODES = (CLOSED, CONSTANT, POISSON)
ZEROS, RANDOM, KEPT, FILE = "zeros", "random", "kept question", "file"
INPUTS = (ZEROS, RANDOM, KEPT, FILE)
EXPORTS = "exports"
"""Folder of what `E` writes, in the state folder."""


class LateLoads:
    """Loads on the box that a session reads; `folder` is the console's state folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._aside = Aside()

    def ready(self) -> bool:
        """See Doors."""
        return self._session.spec is not None

    def host(self) -> str:
        """See Doors."""
        return place_of(self._session, self._folder)[0].host

    def by(self) -> str:
        """See Doors."""
        from console.actions.who import operator

        return operator().short

    def checked(self, values: Mapping[str, str]) -> Checked:
        """See Doors."""
        from console.loadgen.wish import checked

        return checked(wish_of(values))

    def plan(self, values: Mapping[str, str]) -> Plan:
        """See Doors."""
        from console.actions.box import address

        spec, state = place_of(self._session, self._folder)
        where = partial(address, spec, state)
        plan: Plan = self._aside.call("console.loadgen.wish", "planned", wish_of(values), where, state)
        return plan

    def command(self, values: Mapping[str, str]) -> str:
        """See Doors."""
        return command_of(values)

    def measure(
        self, plan: Plan, tell: Callable[[Progress, Sequence[Live]], None], begun: Callable[[Callable[[], None]], None]
    ) -> Run:
        """See Doors."""
        import msgspec

        from console.loadgen import record
        from console.loadgen.measure import Measuring
        from console.sources.gpu import GpuSource

        spec, state = place_of(self._session, self._folder)
        measuring = Measuring(
            plan,
            read_only=spec.settings.safety.read_only,
            tell=lambda progress: tell(progress, measuring.live),
            gpu=GpuSource(api=spec.nvml_api(), root=spec.root),
        )
        begun(measuring.stop)
        found = measuring.run(spec.host, self.by())
        if not found.client.sent:
            return found
        try:
            return record.keep(state, found)
        except OSError as error:
            why = f"the run is not kept: {error.filename or state}: {error.strerror or error}"
            return msgspec.structs.replace(found, notes=(*found.notes, why))

    def runs(self) -> tuple[tuple[Run, ...], tuple[Foreign, ...]]:
        """See Doors."""
        state = place_of(self._session, self._folder)[1]
        if not (state / "load" / "runs.jsonl").exists():
            return (), ()
        from console.loadgen.record import Foreign, Run, load_kept

        kept = load_kept(state)
        own = tuple(one for one in kept if isinstance(one, Run))
        return own, tuple(one for one in kept if isinstance(one, Foreign))

    def told(self, run: Run) -> Told:
        """See Doors."""
        from console.loadgen import cards, verdict

        limit = verdict.limit(run.load, run.client)
        lines = tuple(f"GPU {card.index}: {cards.words(card)}" for card in run.cards)
        return Told(verdict.gap(run), verdict.counts(run), limit, lines)

    def shares(self, run: Run, bounds_ms: Sequence[float]) -> tuple[float, ...]:
        """See Doors."""
        try:
            return tuple(run.client.shape().shares(bounds_ms))
        except ValueError as error:
            raise _damaged(error, run) from error

    def compare(self, first: Kept, second: Kept) -> Comparison:
        """See Doors."""
        from console.loadgen import record

        try:
            return record.compare(first, second)
        except ValueError as error:
            raise _damaged(error, first, second) from error

    def going_on(self) -> tuple[Running, ...]:
        """See Doors."""
        from console.loadgen import announce

        return announce.going_on()

    def export(self, name: str, texts: Mapping[str, str]) -> str:
        """See Doors."""
        from console.clients.files import write_private

        stem = place_of(self._session, self._folder)[1] / EXPORTS / name
        for ending, text in texts.items():
            write_private(stem.with_name(f"{name}.{ending}"), text)
        return str(stem)


def _damaged(error: ValueError, *runs: Kept) -> Exception:
    from console.core.plan import WrongInput

    return WrongInput(f"the record of run {' or '.join(str(run.id) for run in runs)} is damaged: {error}")


def wish_of(values: Mapping[str, str]) -> Wish:
    """The form's values as a wish. WrongInput with the option's name in front, as all that concerns it."""
    from console.loadgen.wish import Wish

    is_open, inputs = values["mode"] != CLOSED, values["inputs"]
    return Wish(
        values["model"],
        "" if values["version"] == ANY else values["version"],
        concurrency=None if is_open else values["callers"],
        rate=values["rate"] if is_open else None,
        poisson=values["mode"] == POISSON,
        seed=0,
        duration=values["duration"],
        warmup=values["warmup"],
        count=0,
        shapes=values["shapes"].split(),
        batch=_whole(values["batch"], "--batch"),
        data=values["data"] if inputs == FILE else "",
        random=inputs == RANDOM,
        golden=inputs == KEPT,
        priority=0,
        queue_timeout_us=0,
        timeout=values["timeout"],
        max_errors=_number(values["max_errors"], "--max-errors", "percent"),
        goal_ms=_number(values["goal"], "--slo-p99-ms", "ms") if values["goal"] else None,
        remote=False,
        live_limits=values["live_limits"].split(),
        mix=values["mix"].split(),
    )


def _whole(text: str, flag: str) -> int:
    from console.core.plan import WrongInput
    from console.core.text import one_line, whole_number

    found = whole_number(text)
    if found is None:
        raise WrongInput(f"{flag} must be a whole number, not {one_line(text, 40)!r}")
    return found


def _number(text: str, flag: str, unit: str) -> float:
    from console.core.plan import WrongInput
    from console.core.text import one_line

    try:
        return float(text)
    except ValueError as error:
        raise WrongInput(f"{flag} must be a number ({unit}), not {one_line(text, 40)!r}") from error


def command_of(values: Mapping[str, str]) -> str:
    """`gpuconsole loadtest ranking --rate 800 --poisson --duration 2m ...`."""
    words = ["gpuconsole", "loadtest", values["model"]]
    if values["version"] != ANY:
        words.append(values["version"])
    words += ["--concurrency", values["callers"]] if values["mode"] == CLOSED else ["--rate", values["rate"]]
    words += ["--poisson"] if values["mode"] == POISSON else []
    words += ["--duration", values["duration"], "--warmup", values["warmup"]]
    words += {RANDOM: ["--random"], KEPT: ["--golden"], FILE: ["--data", values["data"]]}.get(values["inputs"], [])
    for shape in values["shapes"].split():
        words += ["--shape", shape]
    words += ["--batch", values["batch"]] if values["batch"] != "1" else []
    words += ["--slo-p99-ms", values["goal"]] if values["goal"] else []
    for one in values["mix"].split():
        words += ["--mix", one]
    for limit in values["live_limits"].split():
        words += ["--max-live-ms", limit]
    words += ["--max-errors", values["max_errors"], "--timeout", values["timeout"]]
    return shlex.join(words)
