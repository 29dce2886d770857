"""Load (4): send a model a load, see what comes of it, compare kept runs.

What blocks is done beside the UI thread; the load itself leaves a process of its own (tui/loads.py). Nothing is sent
before the plan's Yes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual.geometry import Region

from console.core.text import one_line
from console.tui.commands import Command
from console.tui.desk import Request
from console.tui.lane import Lane
from console.tui.loads import Current, Loads, Told, own
from console.tui.panes import load_compare, load_runs
from console.tui.panes.base import Pane, View
from console.tui.panes.form_pane import FormPane
from console.tui.panes.load_distribution import LoadDistribution, Shape, bounds
from console.tui.panes.load_form import LoadForm, note_of, rows_of
from console.tui.panes.load_now import LoadNow
from console.tui.panes.load_plan import ACTION, shown_plan
from console.tui.panes.load_runs import RUNNING, LoadRuns
from console.tui.screens.base import BoxScreen, Places
from console.tui.screens.stack import stacked

if TYPE_CHECKING:
    from console.core.plan import Plan
    from console.loadgen.measure import Plan as LoadPlan
    from console.loadgen.record import Foreign, Kept, Run
    from console.loadgen.wish import Checked
    from console.tui.app import ConsoleApp
    from console.tui.screens.plan import PlanDialog

ORDER = ("load-form", "load-now", "load-distribution", "load-runs")
CHECK_AFTER = 0.2
"""Seconds without an edit after which the values are checked anew."""
FORM_SHARE = 37
"""Percent of the columns."""
LEAST_FORM, MOST_FORM = 36, 58
MOST_TOP, LEAST_RUNS = 20, 5
NO_RUN = "no run is kept yet: A begins one, after its plan"


class LoadScreen(BoxScreen):
    """Load tests of the chosen model, and all kept runs."""

    NAME = "load"
    FOOTER = (
        ("load.start", "start (plan)"),
        ("load.stop", "stop"),
        ("open", "edit"),
        ("load.less", "→ step"),
        ("mark", "mark"),
        "load.compare",
        ("view.next", "view"),
        "load.tune",
        "load.export",
        ("escape", "back"),
        "palette",
        "help",
    )
    FOOTERS = (
        ("form", (("open", "edit field"), ("load.start", "start (plan first)"), ("load.stop", "stop"),
                  ("loads.stop", "stops your load from every screen, at once, without asking"))),
        ("runs", ("mark", ("load.compare", "compare"), ("view.next", "view"), ("load.tune", "tune with this run"),
                  ("load.export", "export"), "palette", "help")),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model = ""
        self._checks = Lane(self.later)
        self._shapes = Lane(self.later)
        self._means = Lane(self.later)
        self._loads: Loads | None = None
        self._edits = 0
        self._asked: object = None
        """What the distribution was asked for."""
        self._planned: LoadPlan | None = None
        self._was: Current | None = None

    def on_mount(self) -> None:
        self._loads = self.app_.loads

    # ---------------------------------------------------------------------------------------------------------- panes

    def make_panes(self) -> Iterable[Pane]:
        yield LoadForm(id="load-form")
        yield LoadNow(id="load-now")
        yield LoadDistribution(id="load-distribution")
        yield LoadRuns(id="load-runs")

    @property
    def form(self) -> LoadForm:
        """The upper left pane."""
        return cast("LoadForm", self.panes["load-form"])

    @property
    def now(self) -> LoadNow:
        """The upper right pane."""
        return cast("LoadNow", self.panes["load-now"])

    @property
    def distribution(self) -> LoadDistribution:
        """The middle pane."""
        return cast("LoadDistribution", self.panes["load-distribution"])

    @property
    def listed(self) -> LoadRuns:
        """The lower pane."""
        return cast("LoadRuns", self.panes["load-runs"])

    def place(self, body: Region) -> Places:
        if self.compact:
            return stacked(body, ORDER, self.focused.id if self.focused else ORDER[0])
        shape = self.distribution.shape
        bands = 5 if shape is None else (len(shape.bounds_ms) + 1) * (2 if shape.second_shares else 1)
        middle = max(4, min(bands + 2, max(7, body.height // 4)))
        top = max(8, min(MOST_TOP, body.height - middle - max(LEAST_RUNS, body.height // 5)))
        width = max(LEAST_FORM, min(MOST_FORM, body.width * FORM_SHARE // 100))
        y = body.y + top
        return {
            "load-form": Region(body.x, body.y, width, top),
            "load-now": Region(body.x + width, body.y, body.width - width, top),
            "load-distribution": Region(body.x, y, body.width, middle),
            "load-runs": Region(body.x, y + middle, body.width, max(0, body.bottom - y - middle)),
        }

    def on_descendant_focus(self) -> None:
        if self.compact:
            self.relayout()

    def adapt(self, view: View) -> None:
        for pane in self.panes.values():
            pane.frame = "rule" if view.compact else "box"
        if not self.model:
            self._arrive()
        loads = self.app_.loads
        form = self.form
        form.current, form.number, form.going = loads.current, loads.next_number, loads.going
        form.off = loads.why_off()
        form.others = self._others(view)
        rows = rows_of(form.values(), view.snapshot.models)
        if form.form.opened is None and rows != form.form.rows:
            form.form.rows = rows
        self.listed.runs, self.listed.foreign, self.listed.current = loads.runs, loads.foreign, loads.current
        self.listed.error = loads.error
        self._choose_newest(loads.current)
        self.now.current = loads.current
        self._show_run()

    def _choose_newest(self, current: Current | None) -> None:
        """The run that just ended, or begins, is the one that is looked at."""
        runs = self.listed.runs
        if current is not None and self._was is None:
            self.listed.cursor = RUNNING
        elif current is None and self._was is not None and runs:
            self.listed.cursor = runs[-1].id
        self._was = current

    def _others(self, view: View) -> float | None:
        """What others send the model; while a load of ours runs, what it found of them."""
        now = self.app_.loads.current
        if now is not None:
            found = [one.during or one.before for one in now.live if one.model == now.plan.model]
            return next((one.rate for one in found if one is not None), None)
        if self.model in self.app_.loads.settling(time.time()):
            return None
        rows = [row for row in view.snapshot.models if row.name == self.model and row.flow and row.flow.w10]
        return sum(row.flow.w10.rate for row in rows if row.flow and row.flow.w10) if rows else None

    # ---------------------------------------------------------------------------------------------- which model

    def on_screen_resume(self) -> None:
        self._arrive()
        self.app_.loads.read_runs()

    def _arrive(self) -> None:
        """Take up the model that is chosen elsewhere, or the busiest; the other values stay as they were typed."""
        key = self.app_.chosen_key()
        if key is None or key.name == self.model:
            return
        self.app_.chosen = key
        self._use(key.name)

    def _use(self, name: str) -> None:
        form = self.form.form
        self.model = name
        form.opened = None
        form.values["model"] = name
        for field in ("version", "shapes", "data"):
            form.values.pop(field, None)
        self._check_soon()

    # ------------------------------------------------------------------------------------------------ the form's values

    def on_form_pane_edited(self, message: FormPane.Edited) -> None:
        form = self.form.form
        typed = form.values.get("model", "")
        if form.opened is None and typed != self.model:
            self.app_.choose_model(typed)
            self._use(typed)
        if form.opened is None:
            form.rows = rows_of(self.form.values(), self.snapshot.models)
        self._check_soon()
        self.form.again()
        self.form.select(self.form.cursor)

    def _check_soon(self) -> None:
        self._edits += 1
        edits = self._edits
        self.set_timer(CHECK_AFTER, lambda: self._check(edits))

    def _check(self, edits: int) -> None:
        doors = self.app_.loads.doors
        if edits != self._edits or doors is None:
            return
        values = self.form.values()
        self._checks.ask(lambda: doors.checked(values), lambda found, error: self._checked(edits, found, error))

    def _checked(self, edits: int, found: Checked | None, error: str) -> None:
        if edits != self._edits:
            return
        form = self.form
        if found is None:
            form.told, form.form.notes = "", (note_of(error),)
        else:
            most = None if found.load.loop == "closed" else sum(
                (step.first + step.last) / 2 * step.seconds for step in found.load.steps
            )  # fmt: skip
            count = "" if most is None else f", about {most:.0f} requests"
            form.told, form.form.notes = f"{found.load.words()} for {found.load.seconds:g} s{count}", ()
        form.again()

    # ------------------------------------------------------------------------------------------------------- beginning

    def begin(self) -> None:
        """`A`: the plan of what is typed, from a fresh look at the model."""
        from console.tui.screens.plan import PlanDialog

        app = self.app_
        request = Request(ACTION, self.model, self.form.values())
        app.push_screen(PlanDialog(request, self._plan, utc=app.utc), self._answered)

    def _plan(self, dialog: PlanDialog, request: Request) -> None:
        app, doors, snapshot = self.app_, self.app_.loads.doors, self.snapshot
        assert doors is not None
        number, settling = app.loads.next_number, app.loads.settling(time.time())
        values = dict(request.values)

        def work() -> tuple[LoadPlan, Plan]:
            plan = doors.plan(values)
            going = tuple(one for one in doors.going_on() if one.pid != os.getpid())
            host, command = doors.host(), doors.command(values)
            return plan, shown_plan(plan, number, host, snapshot, going, settling, command, values, time.time())

        def told(found: tuple[LoadPlan, Plan] | None, error: str) -> None:
            self._planned = None if found is None else found[0]
            if found is None:
                note = note_of(error)
                self.form.form.notes = (note,)
                error = note.text
            dialog.planned(request, None if found is None else found[1], error)

        app.loads.work(work, told)

    def _answered(self, plan: Plan | None) -> None:
        planned, self._planned = self._planned, None
        if plan is None or planned is None:
            return
        why = self.app_.loads.start(planned)
        if why:
            self.app_.tell(why)

    # ---------------------------------------------------------------------------------------------- the run looked at

    @property
    def run(self) -> Run | None:
        """The one under the cursor; while a load runs and the cursor is on it, the newest kept one."""
        found = self.listed.run()
        return found if found is not None else next(reversed(self.listed.runs), None)

    @property
    def measure(self) -> Kept | None:
        """What `t` tunes with: the one under the cursor, another program's too; else the newest of ours."""
        return self.listed.other_programs() or self.run

    def other(self, run: Run) -> Run | None:
        """The run that is laid beside it: a marked one, else the one before of the same model, else the one before."""
        runs = self.listed.runs
        marked = [one for one in runs if one.id in self.listed.marked and one is not run]
        if marked:
            return marked[-1]
        before = [one for one in runs if one.wall < run.wall]
        same = [one for one in before if one.model == run.model]
        return next(reversed(same or before), None)

    def _show_run(self) -> None:
        run, pane = self.run, self.distribution
        self.now.foreign = foreign = self.listed.other_programs()
        on_running = self.app_.loads.current is not None and self.listed.cursor == RUNNING
        self.now.current = self.app_.loads.current if on_running or run is None else None
        self.now.told = self.app_.loads.told or self.app_.loads.error or NO_RUN
        if foreign is not None:
            self.now.current, self._asked, pane.shape, pane.other = None, None, None, None
            pane.told = f"{one_line(foreign.engine, 60)} tells no distribution"
            return
        if run is None:
            self.now.run = pane.shape = None
            pane.told = "known when the load has ended" if self.app_.loads.current else NO_RUN
            return
        self._judge(run)
        other = self.other(run)
        pane.other = None if other is None else other.id
        kind = pane.kind if pane.kind != "with" or other is not None else "linear"
        asked = (run.id, run.wall, kind, other.id if kind == "with" and other is not None else 0)
        if asked == self._asked:
            return
        self._asked = asked
        doors = self.app_.loads.doors
        if doors is None:
            return

        def work() -> Shape:
            if kind == "with" and other is not None:
                found = doors.compare(run, other)
                return Shape(kind, run.id, found.bounds_ms, found.shares[0], other.id, found.shares[1])
            ends = bounds(run, kind)
            return Shape(kind, run.id, ends, doors.shares(run, ends))

        def told(shape: Shape | None, error: str) -> None:
            if asked == self._asked:
                pane.shape = shape or Shape(kind, run.id, (), (), error=error)
                pane.again()
                if self.ready and not self.compact and self.maximised is None and self.place(self.body) != self._placed:
                    self.relayout()

        self._shapes.ask(work, told)

    def _judge(self, run: Run) -> None:
        pane, doors = self.now, self.app_.loads.doors
        if run is pane.run or doors is None:
            return
        pane.run, pane.means, pane.top = run, None, 0

        def told(means: Told | None, _: str) -> None:
            if pane.run is run:
                pane.means = means
                pane.again()

        self._means.ask(lambda: doors.told(run), told)

    def on_line_view_cursor_moved(self) -> None:
        self._show_run()
        self.now.again()
        self.form.again()

    # ------------------------------------------------------------------------------------------------------------- keys

    def open_chosen(self) -> None:
        """`enter`: open the field; on a run its figures, over the whole body where they have little room."""
        if self.focused is self.form:
            why = why_no_form(self.app_) or self.form.open_field()
            if why:
                self.app_.tell(why)
        elif self.focused is self.listed:
            self.set_focus(self.now, scroll_visible=False)

    def step_out(self) -> bool:
        if self.form.leave_field():
            return True
        if super().step_out():
            return True
        if self.focused is not self.form:
            self.set_focus(self.form, scroll_visible=False)
            return True
        return False

    def pair(self) -> tuple[Kept, Kept] | str:
        """The two runs that `=` compares, the older first; or why there are none."""
        kept: tuple[Kept, ...] = (*self.listed.runs, *self.listed.foreign)
        by_id = {run.id: run for run in kept if run.id}
        wanted = [one for one in self.listed.marked if one in by_id]
        here = self.listed.cursor
        if len(wanted) == 1 and isinstance(here, int) and here in by_id and here not in wanted:
            wanted.append(here)
        if len(wanted) < 2:
            return "mark two runs with space, or one and put the cursor on the other"
        first, second = sorted(wanted[:2])
        return by_id[first], by_id[second]

    def export(self) -> None:
        """`E`: all kept runs as CSV and Markdown."""
        runs = tuple(run for run in self.listed.runs if run.id)
        if not runs and not self.listed.foreign:
            self.app_.tell("no run is kept yet: there is nothing to export")
            return
        export(self.app_, "runs", load_runs.table(runs, self.listed.foreign))


def export(app: ConsoleApp, name: str, rows: list[tuple[str, ...]]) -> None:
    """Write the table as CSV and Markdown, and tell where."""
    doors = app.loads.doors
    if doors is None:
        app.tell("this session keeps no loads")
        return
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    texts = {"csv": load_runs.csv_of(rows), "md": load_runs.markdown_of(rows)}

    def told(path: str | None, error: str) -> None:
        text = f"written to {path}.csv and .md" if path else f"nothing could be written: {error}"
        app.notify(text, severity="information" if path else "error", timeout=10, markup=False)

    app.loads.work(lambda: doors.export(stem, texts), told)


class CompareScreen(BoxScreen):
    """Two kept runs side by side."""

    NAME = "compare"
    FOOTER = ("compare.export", "copy", "maximise", ("escape", "back"), "palette", "help")

    def make_panes(self) -> Iterable[Pane]:
        yield load_compare.LoadCompare(id="load-compare")

    @property
    def pane(self) -> load_compare.LoadCompare:
        """The only one."""
        return cast("load_compare.LoadCompare", self.panes["load-compare"])

    def place(self, body: Region) -> Places:
        return {"load-compare": body}

    def adapt(self, view: View) -> None:
        self.pane.frame = "rule" if view.compact else "box"

    def compare(self, first: Kept, second: Kept) -> None:
        """Show these two."""
        pane, doors = self.pane, self.app_.loads.doors
        pane.pair, pane.found, pane.error, pane.top = (first, second), None, "", 0
        if doors is None:
            return

        def told(found: object, error: str) -> None:
            if pane.pair == (first, second):
                pane.found, pane.error = found, error  # type: ignore[assignment]
                pane.again()

        self.app_.loads.work(lambda: doors.compare(first, second), told)

    def export(self) -> None:
        """`E`: this comparison as CSV and Markdown."""
        pane = self.pane
        if pane.pair is None or pane.found is None:
            self.app_.tell("there is nothing to export yet")
            return
        first, second = pane.pair
        export(self.app_, f"compare-{first.id}-{second.id}", load_compare.table(pane.pair, pane.found))


# ------------------------------------------------------------------------------------------------------------ commands


def load_here(app: ConsoleApp) -> LoadScreen | None:
    """The screen, where it is shown."""
    return app.box if isinstance(app.box, LoadScreen) else None


def why_no_form(app: ConsoleApp) -> str | None:
    """Why no field can be changed now."""
    return "this works on Load only" if load_here(app) is None else app.loads.why_off()


class LoadKey(Command):
    """Base of the keys that change the form."""

    SCOPE, KIND = "load", "form"

    def why_off(self, app: ConsoleApp) -> str | None:
        return why_no_form(app)


class Less(LoadKey):
    """Step the value under the cursor down."""

    ID, KEYS, LABEL = "load.less", ("left",), "less"
    BY = -1

    def run(self, app: ConsoleApp) -> None:
        screen = load_here(app)
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

    ID, KEYS, LABEL = "load.more", ("right",), "more"
    BY = 1


class Start(Command):
    """Start the load that the form tells (plan first)."""

    ID, KEYS, LABEL, SCOPE, KIND = "load.start", ("A",), "start", "load", "plan"

    def why_off(self, app: ConsoleApp) -> str | None:
        screen, why = load_here(app), why_no_form(app)
        if why is not None or screen is None:
            return why
        if not screen.model:
            return "there is no model to load"
        return screen.form.form.notes[0].text if screen.form.form.notes else None

    def run(self, app: ConsoleApp) -> None:
        screen = load_here(app)
        if screen is not None:
            screen.begin()


class Stop(Command):
    """Stop this run at once, without asking; what was measured until now is kept."""

    ID, KEYS, LABEL, SCOPE, KIND = "load.stop", ("x",), "stop", "load", "safe"

    def why_off(self, app: ConsoleApp) -> str | None:
        return None if app.loads.current is not None else "no load of this console runs"

    def run(self, app: ConsoleApp) -> None:
        app.loads.stop()


class Compare(Command):
    """Compare the marked runs: figures, distributions, configuration of each."""

    ID, KEYS, LABEL, SCOPE = "load.compare", ("equals_sign",), "compare", "load"

    def why_off(self, app: ConsoleApp) -> str | None:
        screen = load_here(app)
        found = "this works on Load only" if screen is None else screen.pair()
        return found if isinstance(found, str) else None

    def run(self, app: ConsoleApp) -> None:
        screen = load_here(app)
        pair = "" if screen is None else screen.pair()
        if isinstance(pair, str):
            return
        app.go("compare")
        if isinstance(app.box, CompareScreen):
            app.call_later(app.box.compare, *pair)


class TuneWith(Command):
    """Tune with this run as the measure."""

    ID, KEYS, LABEL, SCOPE = "load.tune", ("t",), "tune with run", "load"

    def why_off(self, app: ConsoleApp) -> str | None:
        screen = load_here(app)
        if screen is None or screen.measure is None:
            return "there is no run to tune with"
        run = own(screen.measure)
        if run is not None and run.not_valid:
            return f"run {run.id} is not valid: {one_line(run.not_valid, 200)}"
        return None

    def run(self, app: ConsoleApp) -> None:
        screen = load_here(app)
        run = None if screen is None else screen.measure
        if run is None:
            return
        app.choose_model(run.model)
        app.go("tune")
        from console.tui.panes.tune_live import Measured
        from console.tui.screens.tune import TuneScreen

        if isinstance(app.box, TuneScreen):
            app.box.measured_by(run.model, Measured(run.wall, f"by load run {run.id}", figures_of(run)))


def figures_of(kept: Kept) -> dict[str, float]:
    """What Tune compares, by its names; without what the record does not hold."""
    run = own(kept)
    found: dict[str, float | None]
    if run is None:
        one = cast("Foreign", kept)
        found = {"rate": one.throughput, "p99": one.p99_ms, "wait": one.queue_ms}
    else:
        server = run.server
        found = {"rate": run.client.throughput, "p99": run.client.latency.p99}
        if server is not None:
            found |= {"mean": server.total_ms, "wait": server.queue_ms, "batch": server.batch}
            span = server.span or run.client.wall_s
            found["execs"] = server.executions / span if span else None
    return {name: value for name, value in found.items() if value is not None}


class Export(Command):
    """Export all kept runs as CSV and Markdown."""

    ID, KEYS, LABEL, SCOPE = "load.export", ("E",), "export", "load"

    def run(self, app: ConsoleApp) -> None:
        screen = load_here(app)
        if screen is not None:
            screen.export()


class ExportCompared(Command):
    """Export this comparison as CSV and Markdown."""

    ID, KEYS, LABEL, SCOPE = "compare.export", ("E",), "export", "compare"

    def run(self, app: ConsoleApp) -> None:
        if isinstance(app.box, CompareScreen):
            app.box.export()
