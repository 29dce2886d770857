"""`gpuconsole do` and `gpuconsole audit`: the headless twin of every key that changes the box."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from console.actions import audit, detached, journal, registry, runner, words
from console.actions.box import Box, BoxSpec
from console.actions.masks import Masks
from console.actions.values import LONGEST
from console.core import units
from console.core.encode import to_json
from console.core.model import SourceError
from console.core.plan import UNAUDITED, Field, JournalLine, Outcome, Plan, Refused, WrongInput
from console.core.text import MAX_LINE, ascii_text, one_line

REFUSED = 77
"""Exit code of what was refused or not said yes to, as in cli.py."""
FAILED = 1
LEFT = 130
"""Exit code when the operator left while the change goes on."""


class Order(Struct, frozen=True):
    """What was typed."""

    action: str
    target: str
    pairs: Sequence[str] = ()
    yes: bool = False
    confirm: str = ""
    dry_run: bool = False
    unaudited: bool = False
    wait: float = 0.0
    as_json: bool = False


class Looks(Struct, frozen=True):
    """How lines are printed."""

    ascii_only: bool = False
    utc: bool = False


def carry_out(order: Order, spec: BoxSpec, state: Path, looks: Looks) -> int:
    """Plan, ask, start, follow; the exit code. WrongInput for what cannot be."""
    return _Doing(_targeted(order), spec, state, looks).run()


def _targeted(order: Order) -> Order:
    """The order with a target where its action takes one, and with none where it takes none; else WrongInput."""
    action = registry.find().get(order.action)
    if action.TARGET and not order.target:
        raise WrongInput(
            f"{order.action} wants a {action.TARGET}: gpuconsole do {order.action} {action.TARGET.upper()}"
        )
    if action.TARGET or not order.target:
        return order
    if "=" not in order.target:
        raise WrongInput(f"{order.action} takes no target, but was given {one_line(order.target, 80)!r}; leave it out")
    return replace(order, target="", pairs=(order.target, *order.pairs))


class _Doing:
    def __init__(self, order: Order, spec: BoxSpec, state: Path, looks: Looks) -> None:
        self.order = order
        self.spec = spec
        self.state = state
        self.looks = looks
        self.plan: Plan | None = None
        """As it may be printed."""

    def run(self) -> int:
        values = _values(self.order.pairs)
        if self.order.unaudited:
            values[UNAUDITED] = "true"
        try:
            plan, masks = self._planned(values)
            if plan.refused or self.order.dry_run:
                return self._shown(plan)
            if not self._said_yes(plan):
                return REFUSED
            with _interrupts_kept() as stopped:
                id_ = detached.start(self.spec, self.state, plan, unaudited=self.order.unaudited, wait=self.order.wait)
        except Refused as error:
            return self._refused(str(error))
        found = journal.find(self.state, id_)
        if stopped:
            self._interrupted(found, 1)
        return self._followed(found, masks)

    def _planned(self, values: dict[str, str]) -> tuple[Plan, Masks]:
        box = Box(self.spec, self.state)
        try:
            plan = runner.prepare(box, self.order.action, self.order.target, values)
            masks = runner.masks_of(plan, box)
        except SourceError as error:
            raise Refused(f"{runner.sentence(error)}: nothing was done") from error
        finally:
            box.close()
        self.plan = masks.plan(plan)
        if not self.order.as_json:
            self._say(words.plan_lines(self.plan, utc=self.looks.utc))
        return plan, masks

    def _shown(self, plan: Plan) -> int:
        """No more than the plan."""
        if plan.refused:
            return self._refused(self.plan.refused if self.plan else plan.refused)
        if self.order.as_json:
            self._object(None, "")
        else:
            self._say(["dry run: nothing was done"])
        return 0

    def _said_yes(self, plan: Plan) -> bool:
        """Ask where there is somebody to ask; Refused where not."""
        order, name = self.order, plan.confirm
        if order.confirm and name and order.confirm != name:
            raise WrongInput(f"--confirm must be {name!r}, letter by letter, not {order.confirm!r}: nothing was done")
        if order.yes and (not name or order.confirm == name):
            return True
        if not sys.stdin.isatty():
            missing = " ".join(
                part for part in ("" if order.yes else "--yes", f"--confirm {name}" if name else "") if part
            )
            raise Refused(f"not done, as there is no terminal to ask on: say yes with {missing}")
        if order.as_json:  # the object alone goes to standard output, yet nobody says yes to what he has not seen
            self._say(words.plan_lines(self.plan or plan, utc=self.looks.utc), sys.stderr)
        question = f"type {name} to go on:" if name else f"{plan.yes or 'Yes'}? yes or no [no]:"
        answer = _ask(self._drawn(question))
        if answer == name if name else answer.lower() in ("yes", "y"):
            return True
        raise Refused("not done: nothing was sent")

    def _followed(self, found: journal.Journal, masks: Masks) -> int:
        tail = detached.Tail(found)
        stops = 0
        outcome: Outcome | None = None
        while outcome is None:
            try:
                seen = tail.read()
                self._progress(seen.lines)
                outcome = seen.outcome
                if outcome is None:
                    time.sleep(detached.POLL)
            except KeyboardInterrupt:
                stops += 1
                self._interrupted(found, stops)
                if stops > 1:
                    return LEFT
        told = masks.outcome(outcome)
        if self.order.as_json:
            self._object(told, found.id)
        else:
            self._say(words.outcome_lines(told, found.id))
        return {"done": 0, "refused": REFUSED}.get(told.word, FAILED)

    def _progress(self, lines: Sequence[JournalLine]) -> None:
        if not self.order.as_json and self.plan is not None:
            self._say([text for line in lines if (text := words.progress_line(line, self.plan))])

    def _interrupted(self, found: journal.Journal, stops: int) -> None:
        """Ctrl+C: ask the runner to stop and go on following; again: leave it to itself."""
        if stops == 1 and detached.cancel(found):
            text = "asked to stop and go back; it does so between two steps (ctrl+c again: leave it to itself)"
        elif stops == 1:
            text = "it has just ended"
        else:
            text = f"it goes on by itself: `gpuconsole audit` tells how change {found.id} ends"
        self._say([text], sys.stderr)

    def _refused(self, text: str) -> int:
        if self.order.as_json:
            self._object(Outcome("refused", text), "")
        else:
            self._say([f"gpuconsole: {one_line(text)}"], sys.stderr)
        return REFUSED

    def _object(self, outcome: Outcome | None, id_: str) -> None:
        sys.stdout.buffer.write(to_json({"id": id_ or None, "plan": self.plan, "outcome": outcome}) + b"\n")
        sys.stdout.flush()

    def _say(self, lines: Sequence[str], stream: Any = None) -> None:
        stream = stream or sys.stdout
        for line in lines:
            print(self._drawn(line), file=stream, flush=True)

    def _drawn(self, line: str) -> str:
        return drawn(line, self.looks)


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[list[int]]:
    """Ctrl+C is kept for later (the list is not empty then): a runner that starts must not be lost sight of."""
    kept: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: kept.append(number))
    try:
        yield kept
    finally:
        signal.signal(signal.SIGINT, before)


def listed(*, as_json: bool, looks: Looks) -> int:
    """`do --list`: every action with its target and values; files that are no use are named."""
    found = registry.find()
    if as_json:
        actions = [
            {"name": name, "help": one.help(), "target": one.TARGET, "fields": one.FIELDS, "phases": one.PHASES}
            for name, one in found.by_name.items()
        ]
        sys.stdout.buffer.write(to_json({"actions": actions, "failures": found.failures}) + b"\n")
        return 0
    for name, one in found.by_name.items():
        print(drawn(f"{name} {one.TARGET.upper()}".rstrip(), looks))
        print(drawn(f"    {one.help()}", looks))
        for field in one.FIELDS:
            print(drawn(f"      {_form(field):<24}  {field.help}", looks))
    for failure in found.failures:
        print(drawn(f"✗ {failure.module} is left out: {failure.message}", looks))
    return 0


def history(state: Path, *, as_json: bool, looks: Looks) -> int:
    """`audit`: every change, oldest first, with its id."""
    try:
        changes = audit.changes(state)
    except OSError as error:
        raise Refused(f"{state / audit.NAME} cannot be read ({error.strerror}); look at its rights") from error
    if as_json:
        sys.stdout.buffer.write(to_json({"changes": [_as_plain(one, state) for one in changes]}) + b"\n")
        return 0
    for one in changes:
        record = one.record
        when = units.moment(record.wall, utc=looks.utc)
        took = "" if one.outcome is None or one.outcome.duration is None else f"   {one.outcome.duration:.1f} s"
        print(drawn(f"{one.id}  {when}  {record.operator.short}  {record.title}", looks))
        result = one.result
        print(drawn(f"    {_word(one, state)}{': ' + result.text if result and result.text else ''}{took}", looks))
        if result is not None and not one.undo_off:
            print(drawn(f"    can be undone: gpuconsole do undo {one.id}", looks))
        if _is_left(one, state):
            print(drawn(f"    left half way: gpuconsole do interrupted.finish {one.id}, .undo or .dismiss", looks))
    if not changes:
        print("nothing was changed yet by this user")
    return 0


def _as_plain(change: audit.Change, state: Path) -> dict[str, Any]:
    return {
        "id": change.id,
        "word": _word(change, state),
        "intent": change.intent,
        "outcome": change.outcome,
        "undone_by": change.undone_by or None,
        "resolved_by": change.resolved_by or None,
        "undo_off": change.undo_off or None,
    }


def _is_left(change: audit.Change, state: Path) -> bool:
    """True when it can be finished or undone: it was killed, or ended half way by an error."""
    if change.resolved_by:
        return False
    ended = journal.Journal(state, change.id).ended()
    return _word(change, state) == "interrupted" if ended is None else ended.open


def _word(change: audit.Change, state: Path) -> str:
    """How it stands: its outcome's word, else what its journal tells."""
    if change.undone_by:
        return f"undone by {change.undone_by}"
    if change.result is not None:
        return change.result.word
    if change.resolved_by:
        return f"interrupted, dealt with by {change.resolved_by}"
    return "running" if journal.Journal(state, change.id).runner() is not None else "interrupted"


def _form(field: Field) -> str:
    """`delay=N µs`: how a value is written."""
    what = {
        "text": "TEXT",
        "int": "N" + (f" {field.unit}" if field.unit else ""),
        "bool": "true|false",
        "choice": "|".join(field.choices),
        "list": "A,B",
        "map": "NAME=VALUE,...",
    }[field.kind]
    return f"{field.name}={what}"


def _values(pairs: Sequence[str]) -> dict[str, str]:
    """The `key=value` words of a command line."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise WrongInput(f"{one_line(pair, 80)!r} is no value; write key=value")
        if name in values:
            raise WrongInput(f"`{one_line(name, 80)}` is given twice; give it once")
        values[name] = value
    return values


def _ask(question: str) -> str:
    print(question, end=" ", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline(LONGEST).strip()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return ""


def drawn(line: str, looks: Looks) -> str:
    """The line in what the terminal can show."""
    text = one_line(line.strip(), 2 * MAX_LINE) if line.strip() else ""
    text = " " * (len(line) - len(line.lstrip(" "))) + text
    if looks.ascii_only:
        text = ascii_text(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
