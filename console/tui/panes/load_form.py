"""Load's form: what is to be sent, how fast, how long, and where it ends (design 1.7); or what is being sent now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import ModelRow
from console.core.plan import Field
from console.core.text import one_line, whole_number
from console.tui.late_loads import ANY, CLOSED, FILE, INPUTS, KEPT, MODES
from console.tui.loads import Current
from console.tui.panes.base import View
from console.tui.panes.form_pane import FormPane
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, cut, left, width
from console.tui.widgets.form import FormRow, Note
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.loadgen.announce import Running
    from console.loadgen.measure import Asked

LABEL = 12
MOST_NOTE = 4
"""Lines of a sentence beside a field."""
LEAST_FOOTED, ROOMY = 8, 17
"""Rows from which there is a foot, and from which its sentences have two lines."""
SAID = 0.05
"""Requests a second under which nothing is said to be sent."""
FLAGS: Mapping[str, str] = {
    "--concurrency": "callers",
    "--rate": "rate",
    "--poisson": "mode",
    "--duration": "duration",
    "--warmup": "warmup",
    "--mix": "mix",
    "--data": "data",
    "--random": "inputs",
    "--golden": "inputs",
    "--shape": "shapes",
    "--batch": "batch",
    "--slo-p99-ms": "goal",
    "--max-errors": "max_errors",
    "--max-live-ms": "live_limits",
    "--timeout": "timeout",
}
"""Options of `gpuconsole loadtest`, by which its sentences name what is wrong -> fields."""
LABELS: Mapping[str, str] = {
    "callers": "at once",
    "duration": "for",
    "warmup": "warm-up",
    "max_errors": "stop if",
    "live_limits": "or live",
    "timeout": "time-out",
    "data": "file",
    "batch": "items",
    "mix": "also",
}
"""Fields whose label is not their name."""
DEFAULTS: Mapping[str, str] = {
    "model": "",
    "version": ANY,
    "mix": "",
    "inputs": INPUTS[0],
    "data": "",
    "shapes": "",
    "batch": "1",
    "mode": CLOSED,
    "rate": "10",
    "callers": "1",
    "duration": "30s",
    "warmup": "2s",
    "goal": "",
    "max_errors": "1",
    "live_limits": "",
    "timeout": "30s",
}
"""A start that no server notices."""
_POWERS = tuple(2**n for n in range(11))
_RATES = tuple(base * 10**power for power in range(5) for base in (1, 2, 5))
_TIMES = ("10s", "30s", "1m", "2m", "5m", "10m")
_WARM = ("0s", "2s", "5s", "10s", "30s")


def rows_of(values: Mapping[str, str], models: Sequence[ModelRow]) -> tuple[FormRow, ...]:
    """The rows that these values (as they are typed now) want."""
    name = values.get("model", "")
    served = sorted({row.name for row in models if row.state == "READY"})
    mine = [row for row in models if row.name == name and row.state == "READY"]
    versions = sorted({row.version for row in mine if row.version}, key=lambda one: whole_number(one) or 0)
    is_closed, inputs = values.get("mode", CLOSED) == CLOSED, values.get("inputs", INPUTS[0])
    made = [
        _row("model", "model", "which model is asked", "choice", tuple(served)),
        _row("version", "version", "any: the server chooses, as for every client", "choice", (ANY, *versions)),
        _row("mix", "  also", "other models and their share of the requests, as recall=0.3"),
        _row("inputs", "inputs", "what the requests hold: made in the model's shapes, kept, or of a file", "choice",
             INPUTS),
    ]  # fmt: skip
    if inputs == FILE:
        made.append(_row("data", "  file", 'JSON: {"data": [{"FEATURES": [1, 2, 3, 4]}, ...]}, a row per item'))
    if inputs != KEPT:
        variable = [
            one.name for row in mine[:1] if row.config for one in row.config.inputs if min(one.shape, default=0) < 0
        ]
        if variable or values.get("shapes"):
            of = ", ".join(one_line(one, 40) for one in variable)
            made.append(_row("shapes", "  shapes", f"sizes of {of or 'variable inputs'}, as NAME:8,128"))
        made.append(_row("batch", "  items", "items in a request", "int", ladder=_POWERS))
    loops = "closed: the next when one is answered; open: by the clock, as users come"
    made.append(_row("mode", "mode", loops, "choice", MODES))
    if is_closed:
        made.append(_row("callers", "at once", "requests in flight; A..B is a ramp, A,B,C are steps", "int",
                         ladder=_POWERS))  # fmt: skip
    else:
        made.append(_row("rate", "rate", "requests a second; A..B is a ramp, A,B,C are steps", "int", ladder=_RATES))
    return (
        *made,
        _row("duration", "for", "how long is measured: 30s, 2m, at most 1h", "choice", _TIMES),
        _row("warmup", "warm-up", "the same load before, left out of the figures", "choice", _WARM),
        _row("goal", "goal", "p99 in ms that is wanted, a failed request counting as slower than all; empty: none"),
        _row("max_errors", "stop if", "percent of the requests that may fail before it stops itself"),
        _row(
            "live_limits",
            "  or live",
            "mean in ms of what others ask above which it stops itself; MODEL=M for one of them",
        ),
        _row("timeout", "time-out", "for one answer"),
    )


def _row(
    name: str, label: str, help_: str, kind: str = "text", choices: tuple[str, ...] = (), ladder: tuple[int, ...] = ()
) -> FormRow:
    field = Field(name, help_, kind, choices, low=1 if kind == "int" else None)  # type: ignore[arg-type]
    return FormRow(field, label, DEFAULTS[name], ladder=ladder)


def shown(name: str, text: str) -> str:
    """A value as a person reads it."""
    match name:
        case "rate":
            return f"{text} req/s"
        case "callers":
            return f"{text} in flight"
        case "warmup":
            return f"{text} left out"
        case "goal":
            return f"p99 ≤ {text} ms" if text else "none"
        case "max_errors":
            return f"errors > {text} %"
        case "live_limits":
            return f"mean > {text} ms" if text else "no limit"
        case "mix":
            return text or "no other model"
        case "version":
            return "any version" if text == ANY else text
        case "inputs":
            return text if text in (KEPT, FILE) else f"made: {text}"
    return text or "–"


def note_of(error: str) -> Note:
    """A sentence of the plan, beside the field whose option it names (without one: beside the model), in the words of
    the screen."""
    flag = next((flag for flag in FLAGS if error.startswith(flag) or f" {flag} " in f" {error} "), "")
    name = FLAGS.get(flag, "model")
    label = LABELS.get(name, name)
    return Note(name, "fail", error.replace(flag, label) if flag else error)


class LoadForm(FormPane):
    """The fields; while a load runs, what it sends."""

    PINNED = 0

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.current: Current | None = None
        self.number = 0
        """The run that A would begin."""
        self.told = ""
        """What the values come to; "" = not known."""
        self.off: str | None = None
        """Why no load can be begun."""
        self.others: float | None = None
        """Requests a second that others send the model."""
        self.going: tuple[Running, ...] = ()

    # ---------------------------------------------------------------------------------------------------------- values

    def values(self) -> dict[str, str]:
        """All values as they are typed now."""
        return {**DEFAULTS, **self.form.values}

    def step(self, by: int) -> str:
        here = self.here
        text = "" if here is None else self.form.value(here)
        if here is not None and here.field.kind == "int" and whole_number(text.strip()) is None:
            return f"{text} is no single number: enter opens it"
        return super().step(by)

    # --------------------------------------------------------------------------------------------------------- drawing

    def title(self, view: View) -> Line:
        if self.current is not None:
            word = "stopping" if self.current.stopping else "running"
            return ((f"Run {self.current.number}   {word}", "title"),)
        return ((f"Run {self.number}   not begun", "title"),)

    def note(self, view: View) -> Line:
        if self.current is not None:
            return (("x", "key"), (" stop", "dim"))
        return (("A", "key"), (" starts it", "dim"))

    def lines(self, view: View) -> list[Row]:
        if self.current is not None:
            return running_rows(self.current, view.width)
        made = []
        for row in self.form.rows:
            made.append(Row(self._line(row, view.width), row.field.name))
            for note in self.form.notes:
                if note.name == row.field.name:
                    made += _note_rows(note, view.width)
        return made

    def _line(self, row: FormRow, cells: int) -> Line:
        name = row.field.name
        label = (left(row.label, LABEL), "label")
        if self.form.opened == name:
            text = f"{self.form.text}_"
            while width(text) > cells - LABEL:
                text = text[1:]
            return (label, (text, "value+cursor"))
        text = self.form.value(row)
        wrong = any(note.name == name for note in self.form.notes)
        style = "fail" if wrong else "value" if name in self.form.values else ""
        return (label, (cut(one_line(shown(name, text), 400), cells - LABEL), style))

    def foot_lines(self, view: View) -> list[Line]:
        """What the field means, what it comes to, and who else asks this model now; nothing where rows have no room."""
        if view.height < LEAST_FOOTED:
            return []
        made: list[Line] = []
        most, here = 2 if view.height >= ROOMY else 1, self.here
        if self.current is None and here is not None:
            made += [((line, "dim"),) for line in wrapped(here.field.help, view.width, most=2)[:most]]
        if self.current is None and self.off is not None:
            made += _warned(self.off, view.width, most)
        elif self.current is None and self.told:
            made += [((line, "title"),) for line in wrapped(self.told, view.width, most=most)]
        for one in self.going[:1]:
            more = f" and {len(self.going) - 1} more" if len(self.going) > 1 else ""
            told = f"also running{more}: {one_line(one.by, 20)}, {one_line(one.model, 40)} {one_line(one.words, 80)}"
            made += _warned(told, view.width, most)
        if self.others is not None and self.others > SAID:
            made.append(((cut(f"also served now, by others: {units.rate(self.others)}/s", view.width), "warn"),))
        return made

    def changes(self) -> object:
        form, now = self.form, self.current
        run = None if now is None else (now.number, now.stopping)
        state = (form.rows, tuple(form.values.items()), form.notes, form.opened, form.text, self.cursor)
        return (*state, run, self.number, self.told, self.off, self.others, self.going)


def _warned(text: str, cells: int, most: int) -> list[Line]:
    lines = wrapped(text, cells - 2, most=most) if most > 1 else [cut(text, cells - 2)]
    return [(sign("warn") if not at else (" ", ""), (f" {line}", "")) for at, line in enumerate(lines)]


def _note_rows(note: Note, cells: int) -> list[Row]:
    return [
        Row((sign(note.sign) if not at else (" ", ""), (f" {line}", "fail")))
        for at, line in enumerate(wrapped(one_line(note.text), cells - 2, most=MOST_NOTE))
    ]


def running_rows(now: Current, cells: int) -> list[Row]:
    """What is being sent, in the order of the form."""
    plan = now.plan
    load = plan.load
    mode = "closed loop" if load.loop == "closed" else f"open loop, {'Poisson' if load.poisson else 'constant'}"
    limits = "; ".join(f"{one_line(name, 60)} mean > {most:g} ms".strip() for name, most in plan.live_limits.items())
    levels = load.words().rpartition(f"{mode}, ")[2]
    told = [
        *(pair for one in plan.asked for pair in _asked(one, len(plan.asked))),
        ("mode", mode),
        ("at once" if load.loop == "closed" else "rate", levels.removesuffix(" at once")),
        ("for", _lasting(load.seconds) + (f"   warm-up {plan.warm_up.seconds:g} s left out" if plan.warm_up else "")),
        ("goal", f"p99 ≤ {plan.goal_ms:g} ms" if plan.goal_ms is not None else "none"),
        ("stop if", f"errors > {100 * plan.max_errors:g} %"),
        ("  or live", limits),
        ("answers", plan.answers),
        ("from", f"this host, 1 process, HTTP to {one_line(plan.address.where, 80)}"),
    ]
    made = []
    for label, text in (one for one in told if one[1]):
        for at, line in enumerate(wrapped(text, cells - LABEL, most=2)):
            made.append(Row(((left(label if not at else "", LABEL), "label"), (line, "value"))))
    return made


def _asked(one: Asked, of: int) -> tuple[tuple[str, str], ...]:
    share = f", {100 * one.share:.0f} % of them" if of > 1 else ""
    name = f"{one_line(one.model, 80)}, {one_line(one.version, 40) or 'any version'}{share}"
    return (("model", name), ("inputs", one_line(one.inputs.text, 400)))


def _lasting(seconds: float) -> str:
    return f"{seconds / 60:g} m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g} s"
