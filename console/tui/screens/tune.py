"""Tune (3): how the chosen model batches: the form, what it does now, what a change comes to, what was tried before.

What blocks is done in two lanes beside the UI thread: the look at the model, and the plan of the form's values, which
is the same plan that `A` shows. Nothing here changes the box: `A`, `W` and `u` open a plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from textual.geometry import Region

from console.core import units
from console.core.model import ContainerState, ModelRow, ModelStats
from console.core.rates import window_between
from console.core.store import rows_named
from console.core.text import one_line
from console.planning import batching_change as change
from console.tui.acts import Act
from console.tui.commands import Command
from console.tui.desk import Record, Request
from console.tui.lane import Lane
from console.tui.panes.base import Pane, View
from console.tui.panes.form_pane import FormPane
from console.tui.panes.tune_change import TuneChange
from console.tui.panes.tune_experiments import SET, SWEEP, TRIAL, TuneExperiments
from console.tui.panes.tune_form import (
    TuneForm,
    change_words,
    changed_rows,
    form_rows,
    form_values,
    notes_of,
    reasons,
    values_of,
)
from console.tui.panes.tune_live import (
    Measured,
    Predicted,
    TuneLive,
    figures_of_outcome,
    figures_of_window,
    mean_util,
    peak,
)
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.stack import stacked
from console.tui.tuner import LateTuner
from console.tui.widgets.cells import left
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.actions.batching_look import Current
    from console.core.plan import Plan
    from console.planning.predicted import Prediction
    from console.tui.app import ConsoleApp
    from console.tui.tuner import LoadRun

ORDER = ("tune-form", "tune-live", "tune-change", "tune-experiments")
MEASURE_FOR = 10.0
"""Seconds of the window that `m` measures."""
PLAN_AFTER = 0.3
"""Seconds without an edit after which the plan is reckoned anew."""
PREDICT_EVERY = 20.0
"""Seconds after which a prediction is made anew, as the traffic changes."""
LOOK_AGAIN = 5.0
"""Seconds after which a look that failed is tried again."""
FORM_WIDTH = 57
"""Cells in which no word of the form is cut."""
LEAST_FORM, LEAST_CHANGE, LEAST_EXPERIMENTS = 8, 5, 4
MOST_CHANGE, MOST_EXPERIMENTS = 9, 8
AS_LIVE = "as live"
PRESET_WORDS = {
    "500": "delay 500 µs: the short end of the field's rule",
    "1000": "delay 1000 µs",
    "2000": "delay 2000 µs: the long end of the field's rule",
    "off": "no dynamic batching: a request at a time for each instance",
    "throughput": "delay 5000 µs, no preferred sizes: batches fill, requests wait",
    AS_LIVE: "take back what was changed in the form",
}


@dataclass(frozen=True)
class Sample:
    """Where a measurement by `m` began."""

    mono: float
    wall: float
    stats: ModelStats


class TuneScreen(BoxScreen):
    """The batching of one model."""

    NAME = "tune"
    FOOTER = (
        ("open", "edit"),
        ("tune.less", "→ step"),
        ("tune.apply", "apply"),
        ("tune.try", "try"),
        ("tune.sweep", "sweep"),
        ("tune.keep", "keep"),
        ("undo", "revert"),
        ("tune.measure", "measure"),
        "tune.presets",
        ("escape", "back"),
        "palette",
        "help",
    )
    FOOTERS = (
        ("form", (("open", "edit"), ("tune.less", "→ step"), "tune.presets", "pane.next", "maximise",
                  ("escape", "leaves the field, then the screen"))),
        ("change", (("tune.apply", "apply (plan)"), ("tune.try", "try, then back (plan)"),
                    ("tune.sweep", "sweep (plan)"), ("tune.keep", "keep on disk (plan)"), ("undo", "revert (plan)"),
                    "tune.measure", "tune.export", "tune.loadtest", "palette", "help")),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model = ""
        self.now: Current | None = None
        self.tuner: LateTuner | None = None
        self._looks = Lane(self.later)
        self._plans = Lane(self.later)
        self._predictions = Lane(self.later)
        self._histories = Lane(self.later)
        self._drafts: dict[str, dict[str, str]] = {}
        """What was typed for other models and not sent."""
        self._wanted: tuple[str, Mapping[str, str]] | None = None
        """Values that another screen proposes for a model, until that was looked at."""
        self._seen: object = None
        """What the last look was about: while that stays the same nothing is looked at anew."""
        self._looked = float("-inf")
        self._edits = 0
        self._predicted_at = float("-inf")
        self._predicted_for = -1
        """The edit that the prediction shown is for."""
        self._sample: Sample | None = None
        self._by_m: Measured | None = None
        self._by_run: dict[str, Measured] = {}

    # ---------------------------------------------------------------------------------------------------------- panes

    def make_panes(self) -> Iterable[Pane]:
        yield TuneForm(id="tune-form")
        yield TuneLive(id="tune-live")
        yield TuneChange(id="tune-change")
        yield TuneExperiments(id="tune-experiments")

    @property
    def form(self) -> TuneForm:
        """The upper left pane."""
        return cast("TuneForm", self.panes["tune-form"])

    @property
    def live(self) -> TuneLive:
        """The upper right pane."""
        return cast("TuneLive", self.panes["tune-live"])

    @property
    def change(self) -> TuneChange:
        """The middle pane."""
        return cast("TuneChange", self.panes["tune-change"])

    @property
    def experiments(self) -> TuneExperiments:
        """The lower pane."""
        return cast("TuneExperiments", self.panes["tune-experiments"])

    def place(self, body: Region) -> Places:
        if self.compact:
            return stacked(body, ORDER, self.focused.id if self.focused else ORDER[0])
        experiments = min(MOST_EXPERIMENTS, max(LEAST_EXPERIMENTS, body.height // 6))
        middle = min(MOST_CHANGE, max(LEAST_CHANGE, body.height // 4))
        top = max(LEAST_FORM, body.height - experiments - middle)
        upper = Region(body.x, body.y, body.width, top)
        form, live = upper.split_vertical(max(FORM_WIDTH, body.width // 2))
        y = body.y + top
        return {
            "tune-form": form,
            "tune-live": live,
            "tune-change": Region(body.x, y, body.width, middle),
            "tune-experiments": Region(body.x, y + middle, body.width, max(0, body.bottom - y - middle)),
        }

    def on_descendant_focus(self) -> None:
        if self.compact:
            self.relayout()

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        if not self.model:
            self._arrive()
        rows = rows_named(view.snapshot.models, self.model)
        row = next((one for one in rows if one.state == "READY"), rows[0] if rows else None)
        self._look_if_changed(rows, view)
        self._measure_on(row, view)
        self.live.row = row
        self.live.measured = self._newest_measured()
        self._predict_again()
        self.form.reasons = self._reasons(row)
        self._show_records()

    def _reasons(self, row: ModelRow | None) -> tuple[str, ...]:
        found = [] if self.now is None else reasons(self.now, row, self._container())
        off = self.app_.acting.why_off()
        return tuple(found if off is None else [*found, off])

    def _container(self) -> ContainerState | None:
        podman = self.snapshot.container.value
        return None if podman is None else podman.container

    # ---------------------------------------------------------------------------------------------- which model, looks

    def on_screen_resume(self) -> None:
        self._arrive()
        self.app_.acting.read_records()

    def _arrive(self) -> None:
        """Take up the model that is chosen elsewhere, or the busiest; what was typed for the one before is kept."""
        key = self.app_.chosen_key()
        if key is None or key.name == self.model:
            return
        form = self.form.form
        self._drafts[self.model] = dict(form.values)
        self.app_.chosen = key
        self.model, self.now, self._seen = key.name, None, None
        form.opened, form.values, form.rows = None, self._drafts.pop(key.name, {}), ()
        self._sample = self._by_m = None
        self.form.model, self.form.now, self.form.error, self.form.found = key.name, None, "", None
        self._plan_soon()

    def _look_if_changed(self, rows: tuple[ModelRow, ...], view: View) -> None:
        records = self.app_.acting.records
        newest = records[0] if records else None
        served = [(row.version, row.state, row.config, row.flow.resets if row.flow else 0, row.disk) for row in rows]
        seen = (self.model, served, newest)
        failed = self.now is None and self.form.error and view.mono - self._looked > LOOK_AGAIN
        if not self.model or self._looks.busy or (seen == self._seen and not failed):
            return
        self._seen, self._looked = seen, view.mono
        if self.tuner is None:
            self.tuner = LateTuner(self.app_.session, self.app_.state.folder)
        tuner, model, snapshot = self.tuner, self.model, self.snapshot
        self._looks.ask(lambda: tuner.current(model, snapshot), lambda now, error: self._looked_at(model, now, error))

    def _looked_at(self, model: str, now: Current | None, error: str) -> None:
        if model != self.model:
            return
        self.now, self.form.error = now, error
        self.form.now = now
        if now is not None:
            row = next((one for one in rows_named(self.snapshot.models, model) if one.state == "READY"), None)
            gpu = self.snapshot.gpu.value
            self.form.form.rows = form_rows(now, row, gpu.gpus if gpu is not None else ())
            self._judge()
            assert self.form.found is not None
            wrong = {note.name for note in self.form.form.notes if note.sign == "fail"}
            same = [name for name in self.form.form.values if name not in {*self.form.form.changed, *wrong}]
            if same:
                self.form.form.reset(same)
            self._put_wanted()
        self._plan_soon()
        self._read_runs()
        self.app_.refresh_now()

    # ------------------------------------------------------------------------------------------------ the form's values

    def on_form_pane_edited(self, message: FormPane.Edited) -> None:
        self._judge()
        self._plan_soon()
        self.form.again()
        self.form.select(self.form.cursor)

    def _judge(self) -> None:
        """What the server's rules say; sends nothing and looks at nothing."""
        form = self.form.form
        if self.now is None or self.tuner is None:
            return
        found = self.tuner.validate(self.now, values_of(form.values))
        self.form.found = found
        form.notes = notes_of(found, form.values)
        form.changed = changed_rows(found, form.values)
        can = bool(found.changed) and not found.problems
        self.experiments.draft = change_words(self.now, found, form.values)
        row = next((one for one in rows_named(self.snapshot.models, self.model) if one.state == "READY"), None)
        view = self.live.view
        card = view.card if view is not None else None
        self.live.peak = peak(row, card, self.now, found, form.values) if can else None

    def _plan_soon(self) -> None:
        self._edits += 1
        edits = self._edits
        self.set_timer(PLAN_AFTER, lambda: self._predict(edits))
        why = self._why_no_plan()
        if why:
            self._told(None, why)
            return
        self.change.reckoning = True
        self.set_timer(PLAN_AFTER, lambda: self._plan(edits))

    def _why_no_plan(self) -> str:
        found = self.form.found
        if self.now is None or found is None:
            return self.form.error or "looking …"
        if found.problems:
            return found.problems[0].text
        if not found.changed:
            return "nothing changed"
        return self.app_.acting.why_off() or ""

    def _plan(self, edits: int) -> None:
        desk = self.app_.acting.desk
        if edits != self._edits or desk is None:
            return
        request, snapshot = self.request(), self.snapshot
        self._plans.ask(
            lambda: desk.plan(request, snapshot),
            lambda plan, error: self._told(plan, error, wrong=True) if edits == self._edits else None,
        )

    # ------------------------------------------------------------------------------------------------------ predicting

    def _predict(self, edits: int) -> None:
        """What the form's settings would do; nothing is predicted of what is live or cannot be."""
        found, now, row, tuner = self.form.found, self.now, self.live.row, self.tuner
        if edits != self._edits:
            return
        if now is None or tuner is None or found is None or not found.changed or found.problems or row is None:
            self._forecast(Predicted())
            return
        settings = change.wanted(now.settings, values_of(self.form.form.values))
        self._predicted_at = time.monotonic()
        if self.live.predicted.told is None or edits != self._predicted_for:
            self._forecast(Predicted(pending=True))
        self._predicted_for = edits

        def told(prediction: Prediction | None, error: str) -> None:
            if edits == self._edits:
                self._forecast(Predicted(prediction, error))

        self._predictions.ask(lambda: tuner.predict(row, settings), told)

    def _forecast(self, predicted: Predicted) -> None:
        if predicted != self.live.predicted:
            self.live.predicted = predicted
            self.live.again()

    def _predict_again(self) -> None:
        """The traffic changes while a form stands: every PREDICT_EVERY seconds."""
        old = self.live.predicted
        due = time.monotonic() - self._predicted_at > PREDICT_EVERY
        if due and not old.pending and not self._predictions.busy and (old.told is not None or old.why):
            self._predict(self._edits)

    def _told(self, plan: Plan | None, text: str, *, wrong: bool = False) -> None:
        pane = self.change
        pane.plan, pane.told, pane.reckoning = plan, text, False
        pane.wrong = wrong or bool(self.form.found is not None and self.form.found.problems)
        pane.again()

    def request(self) -> Request:
        """What `A` asks for: the form's values, of the model as it was looked at."""
        identity = {"ready": ",".join(map(str, self.now.versions))} if self.now is not None else {}
        values = {**values_of(self.form.form.values), **self._predicted_values()}
        return Request(SET, self.model, values, identity)

    def _predicted_values(self) -> dict[str, str]:
        """What is predicted goes into the record of the change, beside what will be measured."""
        told = self.live.predicted.told
        if told is None or self._predicted_for != self._edits:
            return {}
        figures = {"mean": told.mean_ms, "wait": told.wait_ms, "p99": told.p99_ms, "batch": told.batch}
        known = [f"{name}={one.value:.4g}" for name, one in figures.items() if one.value is not None]
        return {change.PREDICTED: ",".join(known)} if known else {}

    def put_preset(self, name: str) -> None:
        """Fill in the form."""
        self._put(change.PRESETS.get(name, {}))

    def fill(self, model: str, values: Mapping[str, str]) -> None:
        """Fill in the form of `model` with values of batching.set, as soon as that model was looked at."""
        self._wanted = (model, values)
        self._put_wanted()

    def _put_wanted(self) -> None:
        if self._wanted is not None and self.now is not None and self._wanted[0] == self.model:
            _, values = self._wanted
            self._wanted = None
            self._put(values)

    def _put(self, values: Mapping[str, str]) -> None:
        form = self.form.form
        form.reset()
        for name, text in form_values(values, form.rows).items():
            form.put(name, text)
        self.form.again()
        self._judge()
        self._plan_soon()
        self.form.again()

    # ------------------------------------------------------------------------------------------------------- measuring

    def measure(self, view: View) -> str:
        """`m`: begin a window now; "" or why that cannot be."""
        row = self.live.row
        if row is None or row.flow is None or view.snapshot.stats.mono is None:
            return "the statistics of this model are not known"
        self._by_run.pop(self.model, None)
        self._sample = Sample(view.snapshot.stats.mono, view.wall, row.flow.stats)
        self.live.measuring = 0.0
        return ""

    def measured_by(self, model: str, measured: Measured) -> None:
        """Take what a load run found of a model as its measurement, until `m` measures anew."""
        self._by_run[model] = measured
        self.app_.refresh_now()

    def _measure_on(self, row: ModelRow | None, view: View) -> None:
        sample, mono = self._sample, view.snapshot.stats.mono
        if sample is None or mono is None:
            self.live.measuring = None
            return
        span = mono - sample.mono
        self.live.measuring = min(1.0, span / MEASURE_FOR)
        if span < MEASURE_FOR:
            return
        self._sample = self.live.measuring = None
        found = window_between(sample.stats, row.flow.stats, span) if row is not None and row.flow else None
        if row is None or found is None or row.version != sample.stats.version:
            self.app_.tell(f"{self.model} was loaded anew meanwhile: nothing was measured")
            return
        util = mean_util(view, sample.wall, view.wall)
        self._by_m = Measured(view.wall, f"by m, {span:.0f} s", figures_of_window(found, row.instances, util))

    def _newest_measured(self) -> Measured | None:
        if self.model in self._by_run:
            return self._by_run[self.model]
        found = [one for one in (self._by_m, _by_change(self.experiments.records)) if one is not None]
        return max(found, key=lambda one: one.wall, default=None)

    # -------------------------------------------------------------------------------------------------------- the past

    def _show_records(self) -> None:
        acting = self.app_.acting
        self.experiments.now = self.now
        self.experiments.unknown = "" if acting.desk is not None else "this session has no audit"
        mine = tuple(
            one
            for one in acting.records
            if one.intent.target.name == self.model and one.intent.action.startswith("batching.")
        )
        if mine != self.experiments.records:
            self.experiments.records = mine
            self._read_runs()

    def _read_runs(self) -> None:
        """The load runs that stand beside the experiments."""
        tuner, model = self.tuner, self.model
        if tuner is None or not model:
            return

        def told(runs: tuple[LoadRun, ...] | None, error: str) -> None:
            if model == self.model and runs is not None and runs != self.experiments.runs:
                self.experiments.runs = runs
                self.experiments.again()

        self._histories.ask(lambda: tuner.runs(model), told)

    def chosen_change(self) -> str | None:
        """`u`: the newest change of this model's batching that can be taken back."""
        return next((one.intent.id for one in self.experiments.records if not one.undo_off), None)

    def undo(self) -> None:
        """Of this model only: without a change in the audit the records of its earlier settings say why not."""
        id_ = self.chosen_change()
        if id_ is not None:
            self.app_.acting.undo(id_)
        else:
            self.app_.acting.request(Request("batching.revert", self.model))

    # ------------------------------------------------------------------------------------------------------------- keys

    def open_chosen(self) -> None:
        """`enter`: open the field; on an experiment its record."""
        if self.focused is self.form:
            why = why_no_form(self.app_) or self.form.open_field()
            if why:
                self.app_.tell(why)
        elif self.focused is self.experiments and self.experiments.cursor is not None:
            self.app_.show_record(str(self.experiments.cursor))

    def step_out(self) -> bool:
        if self.form.leave_field():
            return True
        if super().step_out():
            return True
        if self.focused is not self.form:
            self.set_focus(self.form, scroll_visible=False)
            return True
        return False

    def on_line_view_cursor_moved(self) -> None:
        self.form.again()


def _by_change(records: Iterable[Record]) -> Measured | None:
    """What the newest change of the batching measured at both ends."""
    for one in records:
        outcome = one.outcome.outcome if one.outcome is not None else None
        if one.intent.action in (SET, TRIAL) and outcome is not None and outcome.figures:
            after = figures_of_outcome(outcome.figures, "after")
            return Measured(one.wall, "by the change", after, figures_of_outcome(outcome.figures, "before"))
    return None


def tune_here(app: ConsoleApp) -> TuneScreen | None:
    """The screen, where it is shown."""
    return app.box if isinstance(app.box, TuneScreen) else None


def why_no_form(app: ConsoleApp) -> str | None:
    """Why no field can be changed now."""
    screen = tune_here(app)
    if screen is None:
        return "this works on Tune only"
    if screen.now is None:
        return screen.form.error or "the model is still looked at"
    return app.acting.why_off()


class FormKey(Command):
    """Base of the keys that change the form."""

    SCOPE, KIND = "tune", "form"

    def why_off(self, app: ConsoleApp) -> str | None:
        return why_no_form(app)


class Less(FormKey):
    """Step the value under the cursor down."""

    ID, KEYS, LABEL = "tune.less", ("left",), "less"
    BY = -1

    def run(self, app: ConsoleApp) -> None:
        screen = tune_here(app)
        if screen is None:
            return
        if screen.focused is not screen.form:
            app.tell("← → step a value of the form: press tab")
            return
        why = screen.form.step(self.BY)
        if why:
            app.tell(why)


class More(Less):
    """Step the value under the cursor up."""

    ID, KEYS, LABEL = "tune.more", ("right",), "more"
    BY = 1


class Presets(FormKey):
    """Presets: fill in the form."""

    ID, KEYS, LABEL = "tune.presets", ("P",), "presets"

    def run(self, app: ConsoleApp) -> None:
        from console.tui.widgets.small_dialogs import Choice

        screen = tune_here(app)
        if screen is None:
            return
        names = (*change.PRESETS, AS_LIVE)
        rows = [Row(((left(name, 14), "value"), (PRESET_WORDS.get(name, ""), "")), name) for name in names]
        app.push_screen(Choice("Presets", rows, names[0]), lambda name: screen.put_preset(name) if name else None)


class TuneAct(Act):
    """Base of the keys that open a plan here."""

    SCOPE = "tune"

    def why_not(self, app: ConsoleApp) -> str | None:
        return why_no_form(app)


class Apply(TuneAct):
    """Apply the form to the running model (plan first)."""

    ID, KEYS, LABEL = "tune.apply", ("A",), "apply"

    def why_not(self, app: ConsoleApp) -> str | None:
        screen, why = tune_here(app), why_no_form(app)
        if why is not None or screen is None:
            return why
        found = screen.form.found
        if found is not None and found.problems:
            return found.problems[0].text
        if found is None or not found.changed:
            return "nothing changed: ← → steps a value, enter types one"
        return None

    def run(self, app: ConsoleApp) -> None:
        screen = tune_here(app)
        if screen is not None:
            app.acting.request(screen.request())


class Keep(TuneAct):
    """Write what is live into config.pbtxt, so that a restart keeps it (plan first)."""

    ID, KEYS, LABEL = "tune.keep", ("W",), "keep on disk"

    def run(self, app: ConsoleApp) -> None:
        screen = tune_here(app)
        if screen is not None:
            app.acting.request(Request("batching.keep", screen.model))


class Measure(Command):
    """Measure again: a window of ten seconds from now on; nothing is sent to the model."""

    ID, KEYS, LABEL, SCOPE = "tune.measure", ("m",), "measure again", "tune"

    def run(self, app: ConsoleApp) -> None:
        screen = tune_here(app)
        view = screen.live.view if screen is not None else None
        if screen is None or view is None:
            return
        why = screen.measure(view)
        app.tell(why or f"measuring for {units.age(MEASURE_FOR)}")


class Export(Command):
    """Write this model's experiments as Markdown and CSV."""

    ID, KEYS, LABEL, SCOPE = "tune.export", ("E",), "export", "tune"

    def run(self, app: ConsoleApp) -> None:
        from console.tui.screens.load import export

        screen = tune_here(app)
        view = screen.live.view if screen is not None else None
        if screen is None or view is None:
            return
        if not screen.experiments.records:
            app.tell("nothing was tried with this model yet")
            return
        name = "".join(char if char.isalnum() or char in "-_" else "_" for char in screen.model)[:80]
        export(app, f"experiments-{name}", screen.experiments.table(view))


class Worded(TuneAct):
    """Base of the keys that ask for a few words first: `for=5m slo_mean_ms=4`."""

    WORDS = ""
    """What stands in the field at first."""
    LINES: tuple[str, ...] = ()
    PROMPT = "values:"

    def ask(self, app: ConsoleApp, then: Callable[[dict[str, str]], None]) -> None:
        """The words as values; what they mean is said by the plan."""
        from console.tui.widgets.small_dialogs import Typed

        def typed(text: str | None) -> None:
            if not text:
                return
            values: dict[str, str] = {}
            for word in text.split():
                name, equals, value = word.partition("=")
                if not equals or not name or not value:
                    app.tell(f"{one_line(word, 40)!r} is no value; write name=value")
                    return
                values[name] = value
            then(values)

        app.push_screen(Typed(self.LABEL, self.LINES, self.PROMPT, self.WORDS, "Plan"), typed)


class Try(Worded):
    """Try the form for a while: it goes back by itself (plan first); while it runs: keep it (plan first)."""

    ID, KEYS, LABEL = "tune.try", ("V",), "try, then back"
    WORDS = "for=5m"
    LINES = (
        "Back by itself after the time, when a goal is broken or requests fail; V keeps it.",
        "for=5m   slo_mean_ms=4 or slo_p99_ms=9   broken_for=10s   max_errors=0",
    )

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if self._running(app) else super().why_off(app)

    def why_not(self, app: ConsoleApp) -> str | None:
        return Apply().why_not(app)

    @staticmethod
    def _running(app: ConsoleApp) -> bool:
        running = app.acting.running
        return running is not None and running.plan.action == TRIAL and not app.read_only

    def run(self, app: ConsoleApp) -> None:
        screen = tune_here(app)
        if screen is None:
            return
        running = app.acting.running
        if running is not None and self._running(app):
            app.acting.request(Request("batching.accept", running.plan.target.name), beside=True)
            return
        asked = screen.request()
        self.ask(
            app,
            lambda values: app.acting.request(Request(TRIAL, asked.target, {**asked.values, **values}, asked.identity)),
        )


class SweepKey(Worded):
    """Sweep: look for the best setting by prediction and short live trials (plan first)."""

    ID, KEYS, LABEL = "tune.sweep", ("S",), "sweep"
    WORDS = "objective=throughput budget=5m"
    LINES = (
        "What ran before is loaded again afterwards, unless keep=true. It measures the traffic that comes.",
        "objective=throughput, p99 or mean   slo_p99_ms=9   budget=5m   load=concurrency=16   keep=true",
    )

    def run(self, app: ConsoleApp) -> None:
        screen = tune_here(app)
        if screen is not None:
            model = screen.model
            self.ask(app, lambda values: app.acting.request(Request(SWEEP, model, values)))
