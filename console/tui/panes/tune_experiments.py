"""What was tried with this model's batching, from the audit: change, figures before and after, verdict, state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import Sign
from console.core.plan import WrongInput
from console.core.text import one_line
from console.planning import batching_change as change
from console.tui.desk import Record
from console.tui.panes.base import Pane, View
from console.tui.panes.tune_live import figures_of_outcome, mean_util
from console.tui.signs import SIGN_STYLES
from console.tui.widgets.cells import Line, left
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.actions.batching_look import Current

SET, REVERT = "batching.set", "batching.revert"
VERDICTS: Mapping[str, Sign] = {
    "better": "ok",
    "worse": "warn",
    "no difference": "none",
    "not to be compared": "unknown",
    "not known": "unknown",
}
"""The words with which `batching.set` ends its outcome."""
WATCHED = 2.0
"""Seconds at both ends of a change whose utilisation is compared (the default of [actions] watch)."""
NUMBER, WHEN, BY, MEAN, BATCH, UTIL, VERDICT, STATE = 3, 9, 10, 14, 12, 10, 19, 12
LEAST_CHANGE = 18


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


def experiments(records: Sequence[Record], now: Current | None) -> list[Experiment]:
    """Newest first, as the audit tells them; the state is what is live and on disk now."""
    reverted = {record.intent.values.get("record", "") for record in records if _ended(record, REVERT)}
    claimed: set[str] = set()
    made = []
    for record in records:
        if record.intent.action != SET:
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
            )
        )
    return made


def _ended(record: Record, action: str) -> bool:
    outcome = record.outcome.outcome if record.outcome is not None else None
    return record.intent.action == action and outcome is not None and outcome.word == "done"


def words_of(record: Record) -> str:
    """`delay_us 2000 → 500`, from the plan's title; the values alone where that has another form."""
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
        return outcome.word
    if record.undone_by or (outcome.undo is not None and outcome.undo.values.get("record", "-") in reverted):
        return "reverted"
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
        self.draft = ""
        """The form's change in words; "" = none."""
        self.unknown = ""
        """Why the audit is not told."""

    def title(self, view: View) -> Line:
        return (("Experiments", "title"),)

    def lines(self, view: View) -> list[Row]:
        found = experiments(self.records, self.now)
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
            "mean": _pair(units.millis, one.before.get("mean"), one.after.get("mean")),
            "batch": _pair(units.one, one.before.get("batch"), one.after.get("batch")),
            "util": _pair(units.whole, before, after),
            "verdict": one.verdict,
            "state": one.state,
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
        return (self.records, self.now, self.draft, self.unknown)


HEADS = {
    "number": "#",
    "when": "WHEN",
    "by": "BY",
    "change": "CHANGE",
    "mean": "MEAN ms",
    "batch": "BATCH",
    "util": "UTIL %",
    "verdict": "VERDICT",
    "state": "STATE",
}


def _columns(cells: int) -> dict[str, int]:
    """Cells of each column, in order; who, batch and utilisation give way where there is no room."""
    sizes = {
        "number": NUMBER,
        "when": WHEN,
        "by": BY,
        "change": 0,
        "mean": MEAN,
        "batch": BATCH,
        "util": UTIL,
        "verdict": VERDICT,
        "state": STATE,
    }
    for name in ("util", "by", "batch", "mean"):
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
