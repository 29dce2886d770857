"""Keep a question and its present answer as the golden one of a model: what a swap holds a new version against."""

from __future__ import annotations

import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from console.actions.base import Action, Run
from console.actions.box import Box
from console.actions.model_look import look, model_state
from console.actions.who import operator
from console.clients import golden_store
from console.clients.golden_store import ask_question, golden_of
from console.clients.triton_ask import NotAskedError, Question, Sized, make_question
from console.clients.triton_wire import decode_config
from console.core import units
from console.core.golden import RELATIVE, Golden, GoldenOutput, differs
from console.core.model import SourceError
from console.core.plan import Check, Field, JournalLine, Outcome, Plan, Step, Target, UndoSpec, WrongInput
from console.core.text import one_line

MAX_FILE = 4 * 1024 * 1024
MAX_TOLERANCE = 1.0


class Keep(Action):
    """Keep a model's question and its present answer as the golden one."""

    NAME = "golden.keep"
    TARGET = "model"
    FIELDS = (
        Field("file", "a request as JSON (what /infer takes); zeros in the model's shapes where none is given"),
        Field("tolerance", "relative difference that floats may have (default 0.001)"),
        Field("forget", "forget the kept one instead", "bool"),
    )
    PHASES = ("ask", "keep")

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        """See Action. It asks the model twice: an answer that changes by itself is no measure."""
        box.changing()
        file = _whole_path(values.get("file", ""))
        seen = look(box, target, traffic=False)
        kept = _kept(box, target)
        forget = values.get("forget") == "true"
        tolerance = _tolerance(values.get("tolerance", ""))
        checks: tuple[Check, ...] = ()
        refused = ""
        if forget:
            refused = "" if kept is not None else f"no question is kept for {target}: there is nothing to forget"
        elif seen.served is None:
            refused = f"no version of {target} is READY, so there is no answer to keep: load it first"
        else:
            checks, refused = self._asked(box, target, seen.served, file, tolerance)
        before = () if kept is None else (Check("note", f"kept before: {_shown(kept)}"),)
        path = golden_store.path(box.state, target)
        return Plan(
            action=self.NAME,
            target=Target("model", target, self.state(box, Target("model", target))),
            values={
                "file": file,
                "tolerance": f"{tolerance:g}",
                "forget": "true" if forget else "false",
            },
            title=f"{'Forget' if forget else 'Keep'} the golden question of {target}",
            yes="Forget" if forget else "Keep",
            danger="safe",
            checks=(*checks, *before),
            steps=(Step("keep", f"remove {path}"),)
            if forget
            else (Step("ask", f"ask {target} {seen.served} once more"), Step("keep", f"write it to {path} (0600)")),
            effects=(
                "nothing of the box changes; the model gets requests, which count in its statistics",
                "the file holds the request and its answer as they are",
            )
            if not forget
            else ("nothing of the box changes",),
            undo="forget it" if kept is None else "none: the one kept before is lost",
            limit=30.0,
            refused=refused,
            wall=time.time(),
        )

    def _asked(self, box: Box, name: str, version: int, file: str, tolerance: float) -> tuple[tuple[Check, ...], str]:
        try:
            question = _question(box, name, version, file)
        except NotAskedError as reason:
            return (), f"{name} cannot be asked: {reason}; give a request with file=REQUEST.json"
        except SourceError as error:
            return (), f"{name} cannot be asked: {error.message}"
        first, outputs = ask_question(box.address(), name, str(version), question)
        if not first.ok:
            return (), f"{name} {version} gives no answer that can be kept: {first.text}"
        golden = golden_of(name, str(version), question, outputs, tolerance, time.time(), "")
        second, again = ask_question(box.address(), name, str(version), question)
        other = differs(golden, again) if second.ok else second.text
        if other:
            return (
                (),
                f"{name} {version} answers otherwise the second time: {other}; give a tolerance",
            )
        return (
            Check("ok", f"asked {question.sent}"),
            Check("ok", f"answered {first.text}, twice the same within {tolerance:g}"),
        ), ""

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        """When the kept one was made, and what serves."""
        kept = _kept(box, target.name)
        return {"kept": "" if kept is None else f"{kept.wall:.3f}", **model_state(box, target.name)}

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        box.changing()
        name = plan.target.name
        is_first = _kept(box, name) is None
        try:
            if plan.values["forget"] == "true":
                with run.phase("keep"):
                    golden_store.remove(box.state, name)
                return Outcome("done", f"the golden question of {name} is forgotten")
            with run.phase("ask"):
                golden = self._answered(box, plan)
            with run.phase("keep"):
                file = golden_store.save(box.state, golden)
        except OSError as error:
            return Outcome("undone", f"nothing is kept: {error.filename or box.state}: {error.strerror}")
        except (NotAskedError, SourceError) as error:
            return Outcome("undone", f"nothing is kept: {one_line(str(error), 300)}")
        forget = UndoSpec(self.NAME, name, {"forget": "true"}, f"forget the golden question of {name}")
        left = self.state(box, plan.target)
        return Outcome("done", f"kept for {name}: {_shown(golden)}", (str(file),), forget if is_first else None, left)

    def _answered(self, box: Box, plan: Plan) -> Golden:
        name, version = plan.target.name, box_served(box, plan.target.name)
        question = _question(box, name, version, plan.values["file"])
        told, outputs = ask_question(box.address(), name, str(version), question)
        if not told.ok:
            raise SourceError("protocol", told.text)
        tolerance = float(plan.values["tolerance"])
        return golden_of(name, str(version), question, outputs, tolerance, time.time(), operator().short)

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        """The file is whole or as before: it is replaced in one step."""
        kept = _kept(box, plan.target.name)
        return ("nothing is kept" if kept is None else f"kept: {_shown(kept)}"), "do it again", ""

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        """See Action."""
        return self.run(box, plan, run)


def box_served(box: Box, name: str) -> int:
    """The version that unversioned requests go to; SourceError where none is READY."""
    ready = [int(version) for model, version in box.ready() if model == name and version.isdecimal()]
    if not ready:
        raise SourceError("unavailable", f"no version of {name} is READY")
    return max(ready)


def _kept(box: Box, name: str) -> Golden | None:
    try:
        return golden_store.load(box.state, name)
    except SourceError:
        return None  # it is replaced by the new one


def _whole_path(text: str) -> str:
    """The path as the runner, which stands elsewhere, must know it; "" for none."""
    try:
        return str(Path(text).expanduser().resolve()) if text else ""
    except (OSError, RuntimeError) as error:  # an unknown ~user, links in a circle
        raise WrongInput(f"{one_line(text, 200)} cannot be read: {one_line(str(error), 200)}") from error


def _question(box: Box, name: str, version: int, file: str) -> Question:
    if not file:
        return make_question(box.address(), name, str(version))
    path = Path(file)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise WrongInput(f"{one_line(file, 200)} is no plain file")  # a device has no end, a pipe waits
        with path.open("rb") as opened:
            body = opened.read(MAX_FILE + 1)
    except OSError as error:
        raise WrongInput(f"{one_line(file, 200)} cannot be read: {error.strerror or error}") from error
    if len(body) > MAX_FILE:
        raise WrongInput(f"{one_line(file, 200)} is larger than {units.size(MAX_FILE)}")
    inputs = _inputs(file, body)
    sent = ", ".join(f"{i.name} {i.datatype} {list(i.shape)}" for i in inputs)
    config = decode_config(box.served_config(name, str(version)).encode(), name, str(version))
    headers = {"Content-Type": "application/json"}
    return Question(body, headers, one_line(f"{sent} from {path.name}", 400), inputs, config.max_batch_size > 0)


class _Input(Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...]


class _Request(Struct, frozen=True):
    inputs: Annotated[tuple[_Input, ...], Meta(min_length=1)]


def _inputs(file: str, body: bytes) -> tuple[Sized, ...]:
    try:
        found = msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongInput(
            f"{one_line(file, 200)} is no inference request: it must be JSON with inputs, each with a name, a "
            "datatype, a shape and its data"
        ) from error
    return tuple(Sized(i.name, i.datatype, i.shape) for i in found.inputs)


def _tolerance(text: str) -> float:
    if not text:
        return RELATIVE
    try:
        found = float(text)
    except ValueError:
        raise WrongInput(f"`tolerance` must be a number such as 0.001, not {one_line(text, 40)!r}") from None
    if not 0 <= found <= MAX_TOLERANCE:
        raise WrongInput(f"`tolerance` must be from 0 to {MAX_TOLERANCE:g}, not {one_line(text, 40)}")
    return found


def _shown(golden: Golden) -> str:
    by = f" by {golden.by}" if golden.by else ""
    sizes = ", ".join(_output(output) for output in golden.outputs)
    return f"{golden.sent} → {sizes}, version {golden.version}, {units.moment(golden.wall)}{by}"


def _output(output: GoldenOutput) -> str:
    how = "as a digest" if output.digest else "shape only" if output.values is None else f"{len(output.values)} values"
    return f"{output.name} {list(output.shape)} ({how})"
