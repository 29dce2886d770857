"""What was tried with this model's batching, from the audit: change, figures before and after, verdict, state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import Sign
from console.core.plan import WrongInput
from console.core.text import one_line
from console.planning import batching_change as change
from console.planning import noise
from console.tui.desk import Record
from console.tui.panes.base import Pane, View
from console.tui.panes.tune_live import figures_of_outcome, mean_util
from console.tui.signs import SIGN_STYLES
from console.tui.widgets.cells import Line, left
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.actions.batching_look import Current
    from console.tui.tuner import LoadRun

SET, TRIAL, SWEEP, REVERT = "batching.set", "batching.trial", "batching.sweep", "batching.revert"
TRIED = (SET, TRIAL, SWEEP)
"""Actions that are experiments."""
VERDICTS: Mapping[str, Sign] = {
    "better": "ok",
    "worse": "warn",
    "no difference": "none",
    "not to be compared": "unknown",
    "not known": "unknown",
}
"""The words with which they end their outcome."""
WATCHED = 2.0
"""Seconds at both ends of a change whose utilisation is compared (the default of [actions] watch)."""
NUMBER, WHEN, BY, PREDICTED, MEAN, P99, BATCH, UTIL, VERDICT, STATE = 3, 9, 10, 8, 14, 19, 12, 10, 19, 14
LEAST_CHANGE = 16


@dataclass(frozen=True)
class Experiment:
    """One batching.set of the model."""

    id: str
    wall: float
    by: str
    change: str
    values: Mapping[str, str]
    before: Mapping[str, float]
    after: Mapping[str, float]
    verdict: str
    state: str
    began: float = 0.0
    predicted: Mapping[str, float] = field(default_factory=dict)
    """What prediction said when it was planned: mean, p99, batch ..."""
    p99: tuple[LoadRun | None, LoadRun | None] = (None, None)
    """Load runs before it and after it, while nothing else was changed."""
    best: bool = False


def experiments(records: Sequence[Record], now: Current | None, runs: Sequence[LoadRun] = ()) -> list[Experiment]:
    """Newest first, as the audit tells them; the state is what is live and on disk now."""
    reverted = {record.intent.values.get("record", "") for record in records if _ended(record, REVERT)}
    claimed: set[str] = set()
    made = []
    for record in records:
        if record.intent.action not in TRIED:
            continue
        outcome = record.outcome.outcome if record.outcome is not None else None
        figures = outcome.figures if outcome is not None else {}
        made.append(
            Experiment(
                record.intent.id,
                record.wall,
                record.intent.operator.short,
                words_of(record),
                record.intent.values,
                figures_of_outcome(figures, "before"),
                figures_of_outcome(figures, "after"),
                _verdict(outcome.text if outcome is not None else ""),
                _state(record, now, reverted, claimed),
                record.intent.wall,
                predicted_of(record),
                _runs_around(record, records, runs),
            )
        )
    best = _best(made)
    return [replace(one, best=one is best) for one in made]


def predicted_of(record: Record) -> dict[str, float]:
    """What was predicted when it was planned; {} = nothing."""
    found: dict[str, float] = {}
    for part in record.intent.values.get(change.PREDICTED, "").split(","):
        name, _, text = part.partition("=")
        with contextlib.suppress(ValueError):
            found[name] = float(text)
    return found


def _runs_around(
    record: Record, records: Sequence[Record], runs: Sequence[LoadRun]
) -> tuple[LoadRun | None, LoadRun | None]:
    """The last load run before the change and the last one under it: none that another change lies between."""
    changes = [one for one in records if one.intent.action.startswith("batching.") and one is not record]
    since = max((one.wall for one in changes if one.wall <= record.intent.wall), default=float("-inf"))
    until = min((one.intent.wall for one in changes if one.intent.wall >= record.wall), default=float("inf"))
    before = [one for one in runs if since <= one.wall < record.intent.wall]
    stays = record.outcome is not None and record.outcome.outcome is not None and record.outcome.outcome.word == "done"
    after = [one for one in runs if record.wall <= one.wall < until] if stays else []
    return (before[-1] if before else None, after[-1] if after else None)


def _best(made: Sequence[Experiment]) -> Experiment | None:
    """The one with the shortest mean, of those measured at about the load of the newest one; none of those that were
    refused or told to be worse."""
    measured = [one for one in made if "mean" in one.after and one.verdict not in ("worse", units.NONE)]
    if not measured:
        return None
    rate = next((one.after.get("rate", 0.0) for one in made if "mean" in one.after), 0.0)
    alike = [one for one in measured if abs(one.after.get("rate", 0.0) - rate) <= noise.SAME_LOAD * rate]
    return min(alike, key=lambda one: one.after["mean"], default=None)


def _ended(record: Record, action: str) -> bool:
    outcome = record.outcome.outcome if record.outcome is not None else None
    return record.intent.action == action and outcome is not None and outcome.word == "done"


def words_of(record: Record) -> str:
    """`delay_us 2000 → 500`, from the plan's title; the values alone where that has another form."""
    if record.intent.action == SWEEP:
        return f"sweep for {record.intent.values.get('objective', 'throughput')}"
    title, _, words = record.intent.title.partition(": ")
    words = words.removesuffix(f" on {record.intent.host}")
    if title and "→" in words:
        return words
    return ", ".join(f"{name}={value}" for name, value in record.intent.values.items() if name in change.NAMES)


def _verdict(text: str) -> str:
    """The action's own judgement; the load at both ends is in it."""
    said = text.rpartition("; ")[2]
    return next((word for word in VERDICTS if said.startswith(word)), units.NONE)


def _state(record: Record, now: Current | None, reverted: set[str], claimed: set[str]) -> str:
    """What is left of it. A field that a newer change has set belongs to that one."""
    outcome = record.outcome.outcome if record.outcome is not None else None
    if outcome is None:
        return "no end known"
    if outcome.word != "done":
        return "back" if record.intent.action == TRIAL and outcome.word == "undone" else outcome.word
    if record.intent.action == SWEEP and outcome.undo is None:
        return "restored"
    if record.undone_by or (outcome.undo is not None and outcome.undo.values.get("record", "-") in reverted):
        return "reverted"
    if record.intent.action == SWEEP:
        return "kept"
    names = {name for name in record.intent.values if name in change.NAMES}
    mine = names - claimed
    claimed |= names
    if now is None:
        return "?"
    if not mine or not all(_is_so(name, record.intent.values[name], now, on_disk=False) for name in mine):
        return "replaced"
    on_disk = all(_is_so(name, record.intent.values[name], now, on_disk=True) for name in mine)
    return "on disk" if on_disk else "live"


def _is_so(name: str, text: str, now: Current, *, on_disk: bool) -> bool:
    """True when this field has that value now."""
    try:
        wanted = change.shown(name, change.wanted(now.settings, {"dynamic_batching": "on", name: text}))
    except WrongInput:
        return False
    told = next((one for one in now.fields if one.name == name), None)
    return told is not None and wanted == (told.disk if on_disk else told.live)


class TuneExperiments(Pane):
    """The table; the cursor sits on a change's id."""

    FIELDS = ()
    PINNED = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.records: tuple[Record, ...] = ()
        """Of this model, newest first."""
        self.now: Current | None = None
        self.runs: tuple[LoadRun, ...] = ()
        """Load runs of this model, oldest first."""
        self.draft = ""
        """The form's change in words; "" = none."""
        self.unknown = ""
        """Why the audit is not told."""

    def title(self, view: View) -> Line:
        return (("Experiments", "title"),)

    def note(self, view: View) -> Line:
        return (("E", "key"), (" export", "dim"))

    def lines(self, view: View) -> list[Row]:
        found = experiments(self.records, self.now, self.runs)
        columns = _columns(view.width)
        made = [Row(((_text(HEADS, columns), "label"),))]
        if self.draft:
            none = units.NONE
            cells = {**dict.fromkeys(HEADS, none), "change": self.draft, "number": str(len(found) + 1)}
            made.append(Row(((_text({**cells, "state": "not sent"}, columns), "dim"),)))
        made += [self._row(one, len(found) - at, view, columns) for at, one in enumerate(found)]
        if len(made) == 1:
            made.append(Row(((f"  {self.unknown or 'nothing was tried with this model yet'}", "dim"),)))
        return made

    def _row(self, one: Experiment, number: int, view: View, columns: Mapping[str, int]) -> Row:
        before = mean_util(view, one.began, one.began + WATCHED)
        after = mean_util(view, one.wall - WATCHED, one.wall)
        cells = {
            "number": str(number),
            "when": units.clock(one.wall, utc=view.utc) if view.wall - one.wall < 86400 else _day(one.wall, view),
            "by": one_line(one.by, 60),
            "change": one_line(one.change, 300),
            "predicted": units.millis(one.predicted.get("mean")),
            "mean": _pair(units.millis, one.before.get("mean"), one.after.get("mean")),
            "p99": p99_words(one),
            "batch": _pair(units.one, one.before.get("batch"), one.after.get("batch")),
            "util": _pair(units.whole, before, after),
            "verdict": one.verdict,
            "state": state_words(one),
        }
        style = SIGN_STYLES[VERDICTS.get(one.verdict, "none")]
        start = {name: size for name, size in columns.items() if name not in ("verdict", "state")}
        line: Line = (
            (_text(cells, start), ""),
            (left(cells["verdict"], columns["verdict"]), style),
            (left(cells["state"], columns["state"]), "value"),
        )
        return Row(line, one.id)

    def changes(self) -> object:
        return (self.records, self.now, self.runs, self.draft, self.unknown)

    def table(self, view: View) -> list[tuple[str, ...]]:
        """For a file: all that is known of each experiment, the oldest first."""
        found = experiments(self.records, self.now, self.runs)
        made: list[tuple[str, ...]] = [EXPORTED]
        for number, one in enumerate(reversed(found), start=1):
            before, after = one.p99
            figures = [
                one.before.get("mean"), one.predicted.get("mean"), one.after.get("mean"), one.after.get("margin"),
                before and before.p99_ms, one.predicted.get("p99"), after and after.p99_ms,
                one.before.get("batch"), one.predicted.get("batch"), one.after.get("batch"),
                one.before.get("rate"), one.after.get("rate"),
            ]  # fmt: skip
            made.append(
                (
                    str(number),
                    units.moment(one.wall, utc=view.utc),
                    one_line(one.by, 60),
                    one_line(one.change, 300),
                    *("" if value is None else f"{value:.6g}" for value in figures),
                    f"run {after.id}" if after is not None else "",
                    one.verdict,
                    state_words(one),
                    one.id,
                )
            )
        return made


EXPORTED = (
    "#", "when", "by", "change", "mean ms before", "mean ms predicted", "mean ms measured", "± ms (95 %)",
    "p99 ms before", "p99 ms predicted", "p99 ms measured", "batch before", "batch predicted", "batch measured",
    "req/s before", "req/s measured", "p99 from", "verdict", "state", "id",
)  # fmt: skip


def p99_words(one: Experiment) -> str:
    """`3.7 → 2.7 run 9`: by load runs alone, the last of each side."""
    before, after = one.p99
    if before is None and after is None:
        return units.NONE
    shown = [units.NONE if run is None else units.millis(run.p99_ms) for run in one.p99]
    last = after or before
    assert last is not None
    return f"{shown[0]} → {shown[1]} run {last.id}"


def state_words(one: Experiment) -> str:
    """`best, on disk`."""
    return f"best, {one.state}" if one.best else one.state


HEADS = {
    "number": "#",
    "when": "WHEN",
    "by": "BY",
    "change": "CHANGE",
    "predicted": "PRED ms",
    "mean": "MEAN ms",
    "p99": "p99 ms (from)",
    "batch": "BATCH",
    "util": "UTIL %",
    "verdict": "VERDICT",
    "state": "STATE",
}


def _columns(cells: int) -> dict[str, int]:
    """Cells of each column, in order; utilisation, prediction, who and batch give way where there is no room."""
    sizes = {
        "number": NUMBER,
        "when": WHEN,
        "by": BY,
        "change": 0,
        "predicted": PREDICTED,
        "mean": MEAN,
        "p99": P99,
        "batch": BATCH,
        "util": UTIL,
        "verdict": VERDICT,
        "state": STATE,
    }
    for name in ("util", "predicted", "by", "batch", "p99", "mean"):
        if cells - sum(sizes.values()) >= LEAST_CHANGE:
            break
        del sizes[name]
    sizes["change"] = max(8, cells - sum(sizes.values()))
    return sizes


def _text(cells: Mapping[str, str], columns: Mapping[str, int]) -> str:
    return "".join(left(cells[name], size - 1) + " " for name, size in columns.items())


def _pair(shown: Callable[[float | None], str], before: float | None, after: float | None) -> str:
    if before is None and after is None:
        return units.NONE
    return f"{shown(before)} → {shown(after)}"


def _day(wall: float, view: View) -> str:
    return units.moment(wall, utc=view.utc)[5:10]
