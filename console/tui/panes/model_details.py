"""Right pane of Models (design 1.5): all that is known about the chosen model, from the disk to its callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from console.core import units
from console.core.model import Asked, ModelConfig, ModelKey, ModelRow, Snapshot
from console.core.text import one_line
from console.tui import own_changes
from console.tui.own_changes import OwnChanges
from console.tui.panes import model_custom, model_work
from console.tui.panes.base import Pane, View
from console.tui.panes.model_difference import difference
from console.tui.panes.models_list import Grouping, Model, Version, sign_of
from console.tui.panes.wording import LABEL, asked, labelled, not_read, paragraph, sign
from console.tui.signs import SIGN_STYLES
from console.tui.widgets.cells import Line, Segment, left, line_width
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.tui.desk import Record

BLANK = Row(())
SHORT_DIFFERENCES = 3
"""Fields of a difference that the details show; `d` shows all."""
MOST_VERSIONS = 12
LOADED_WITHIN = 15.0
"""Seconds after the end of a change in which an event of a load tells of that change's load."""
NO_CHANGES = OwnChanges()
LASTING = ("config", "reload", "model.ready", "model.failed")
"""Kinds of events that tell of a load."""


class Key(NamedTuple):
    """A key that acts on the model, and whether it works now."""

    key: str
    word: str
    works: bool


class ModelDetails(Pane):
    """Everything about the model under the list's cursor; `d` turns it into the whole difference live / disk."""

    FIELDS = ("models", "repository", "metrics", "container", "gpu", "events")
    AGE = "stats"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.chosen: ModelKey | None = None
        """The list's choice; unlike the app's it may be a version that lies on disk only."""
        self.answers: Mapping[str, Asked] = {}
        """The newest answer of each model that was asked."""
        self.whole_difference = False
        self.own = OwnChanges()
        """Changes that the audit tells of."""
        self.keys: tuple[Key, ...] = ()
        """Keys that act on this model."""
        self._grouping = Grouping()

    def title(self, view: View) -> Line:
        model = self.model(view)
        if model is None:
            return (("no model", "title"),)
        name = one_line(model.name, 200)
        return ((f"{name}   live against disk" if self.whole_difference else name, "title"),)

    def note(self, view: View) -> Line:
        more: Line = (("  scroll for more", "dim"),) if len(self.rows) > self.inner.height > 0 else ()
        return (*super().note(view), *more)

    def lines(self, view: View) -> list[Row]:
        model = self.model(view)
        if model is None:
            snapshot = view.snapshot
            return not_read("models", (snapshot.index, snapshot.repository), view.width)
        row = best_row(model, self.chosen)
        if self.whole_difference:
            return difference(model, row, view.snapshot, view.width, utc=view.utc)
        return details(model, row, view, self.answers.get(model.name), self.own, self.keys)

    def model(self, view: View) -> Model | None:
        """The model that the details are about."""
        wanted = self.chosen or view.chosen
        found = {one.name: one for one in self._grouping.of(view.snapshot)}
        if wanted is not None and wanted.name in found:
            return found[wanted.name]
        busiest = view.model
        return found.get(busiest.name) if busiest else next(iter(found.values()), None)

    def changes(self) -> object:
        return (self.chosen, self.whole_difference, tuple(self.answers.values()), self.own, self.keys)


def best_row(model: Model, wanted: ModelKey | None) -> ModelRow | None:
    """The chosen version where the server knows it, else the served one, else whatever is there."""
    for row in model.rows:
        if wanted is not None and row.key == wanted and row.state is not None:
            return row
    served = [row for row in model.rows if row.state == "READY"]
    return next(iter(served or model.rows), None)


def details(
    model: Model,
    row: ModelRow | None,
    view: View,
    answer: Asked | None,
    own: OwnChanges = NO_CHANGES,
    keys: tuple[Key, ...] = (),
) -> list[Row]:
    """All sections, a blank line between groups."""
    snapshot, width = view.snapshot, view.width
    groups: list[list[Row]] = [
        _reason(model, width),
        _versions(model, view),
        [*_proof(row, view, answer), *_config(row, model, snapshot, width)],
    ]
    if row is not None and row.flow is not None:
        work = (model_work.time_split, model_work.tail, model_work.batches, model_work.cache, _steps)
        groups.append([line for part in work for line in part(row, width)])
        groups.append(model_work.failures(row, view))
    if row is not None:
        groups.append(model_custom.custom(row, snapshot.metrics.value, width))
        groups.append([*_memory(row, view), *_loads(row, view, own), *_used_by(row, snapshot, width)])
    groups.append(_keys(keys, width))
    made: list[Row] = []
    for group in groups:
        if group:
            made += [*group, BLANK]
    return made[:-1]


def _keys(keys: tuple[Key, ...], width: int) -> list[Row]:
    """What works on this model now; what does not is left out, and `?` says why."""
    rows: list[list[Segment]] = []
    used = width
    for key in keys:
        if not key.works:
            continue
        cells = cell_len(f"{key.key} {key.word}")
        if used + cells > width - LABEL:
            rows.append([])
            used = 0
        rows[-1] += [(key.key, "key"), (f" {key.word}  ", "")]
        used += cells + 2
    return [labelled("" if number else "KEYS", *segments) for number, segments in enumerate(rows)]


def _reason(model: Model, width: int) -> list[Row]:
    """Triton's own words for a failed version, whole."""
    made: list[Row] = []
    for row in model.rows:
        if row.failed_load and row.reason:
            label = f"✗ {one_line(row.version or '', 20)}"
            made += paragraph(label, one_line(row.reason), width, "fail", most=8)
    return made


# --------------------------------------------------------------------------------------------------- what is where


def _versions(model: Model, view: View) -> list[Row]:
    head = f"{left('size', 10)}{left('files from', 20)}state"
    made = [labelled("VERSIONS", (head, "label"))]
    for version in model.versions[:MOST_VERSIONS]:
        value = sign_of(version)
        name = left(one_line(version.version, 40) or units.NONE, LABEL - 3)
        size = left(units.size(version.disk.size) if version.disk and version.disk.size else units.NONE, 10)
        made.append(
            Row(
                (
                    sign(value) if value != "none" else (" ", ""),
                    (f" {name} ", ""),
                    (f"{size}{left(_minute(version, view.utc), 20)}", ""),
                    (_state(version, view), SIGN_STYLES[value] if value in ("warn", "fail") else ""),
                )
            )
        )
    if len(model.versions) > MOST_VERSIONS:
        made.append(labelled("", (f"… {len(model.versions) - MOST_VERSIONS} older ones", "dim")))
    if not model.versions:
        made.append(labelled("", ("? no version is known", "unknown")))
    return [*made, *_disk_error(model, view.width), *_policy(model, view.width)]


def _minute(version: Version, utc: bool) -> str:
    if version.disk is None or version.disk.mtime_wall is None:
        return units.NONE
    return units.moment(version.disk.mtime_wall, utc=utc)[:16]


def _state(version: Version, view: View) -> str:
    row = version.row
    if row is not None and row.failed_load:
        return "FAILED, reason above"
    if row is not None and row.state is not None:
        since = f" since {view.clock(row.since_wall)}" if row.since_wall else ""
        gone = "" if version.disk is not None or not _disk_known(row) else ", not on disk"
        reason = f": {one_line(row.reason, 80)}" if row.reason and row.state == "UNAVAILABLE" else ""
        return f"{row.state}{since}{gone}{reason}"
    if version.newer:
        return "newer: next reload deploys it"
    if version.disk is None:
        return "the index gives no state"
    return "on disk" if version.disk.usable else "empty folder: never served"


def _disk_known(row: ModelRow) -> bool:
    return row.disk is not None


def _disk_error(model: Model, width: int) -> list[Row]:
    if model.disk is None or not model.disk.config_error:
        return []
    return paragraph("  ▲ file", f"config.pbtxt: {one_line(model.disk.config_error)}", width, "warn", most=4)


def _policy(model: Model, width: int) -> list[Row]:
    config = next((row.config for row in model.rows if row.config), None)
    if config is None or not config.version_policy:
        return []
    newer = next((version.version for version in model.versions if version.newer), None)
    text = one_line(config.version_policy, 80)
    if newer:
        text += f", so a reload or a restart takes {newer}"
    return paragraph("  policy", text, width)


# ------------------------------------------------------------------------------------------------------ proof, config


def _proof(row: ModelRow | None, view: View, answer: Asked | None) -> list[Row]:
    """A counted success is no proof of a right answer; an answer that was asked for is shown as it came."""
    counted: Segment = ("no success counted yet", "dim")
    if row is None or row.flow is None:
        counted = ("– not served, nothing is counted", "dim")
    elif row.flow.stats.last_inference_ms:
        counted = (f"counted success {view.since(row.flow.stats.last_inference_ms / 1000)} ago", "")
    if answer is None:
        return [labelled("PROOF", counted, ("   not asked", "dim"))]
    value, word = asked(answer)
    style = SIGN_STYLES[value] if value in ("fail", "unknown") else ""
    told: Line = ((f"asked {view.clock(answer.wall)} ", ""), sign(value), (f" {word}", style))
    made = [labelled("PROOF", counted, ("   ", ""), *told)]
    if line_width(made[0].line) > view.width:  # type: ignore[arg-type]
        made = [labelled("PROOF", counted), labelled("", *told)]
    if answer.compared:
        made += paragraph("", one_line(answer.compared), view.width, "fail", most=3)
    took = f"{units.millis(answer.millis)} ms, " if answer.millis is not None else ""
    version = f"version {one_line(answer.version, 20)}: " if answer.version else ""
    made += paragraph("", f"{took}{version}{one_line(answer.text)}", view.width, style or "dim", most=4)
    if word == "answered":
        made.append(labelled("", ("no answer is kept to compare it with: ", "dim"), ("W", "key"), (" keeps it", "dim")))
    return made


def _config(row: ModelRow | None, model: Model, snapshot: Snapshot, width: int) -> list[Row]:
    config = row.config if row else None
    if config is None:
        failure = snapshot.configs.value.failures.get(model.name) if snapshot.configs.value else None
        why = failure or (snapshot.configs.error.message if snapshot.configs.error else "not served")
        return paragraph("CONFIG", f"? {one_line(why)}", width, "unknown", most=3)
    return [*_short_difference(row, width), *_facts(config, width)]


def _short_difference(row: ModelRow | None, width: int) -> list[Row]:
    disk = row.disk if row else None
    if disk is None:
        return [labelled("CONFIG", ("? the disk's config.pbtxt is not known", "unknown"))]
    if disk.config_error:
        return [labelled("CONFIG", ("? config.pbtxt could not be read, see above", "unknown"))]
    count = len(disk.differences)
    if not count:
        return [labelled("CONFIG", ("live is as config.pbtxt", ""))]
    fields = "field" if count == 1 else "fields"
    text = f"live differs from config.pbtxt in {count} {fields}"
    if len(text) > width - LABEL - 14:
        text = f"differs from disk in {count} {fields}"
    made = [labelled("CONFIG", (left(text, max(0, min(55, width - LABEL - 12))), "warn"), ("d whole diff", "key"))]
    for one in disk.differences[:SHORT_DIFFERENCES]:
        path = one_line(one.path, 120)
        made.append(Row(((f"  - {path}: {one_line(one.disk, 200)}", "fail"),)))
        made.append(Row(((f"  + {path}: {one_line(one.live, 200)}", "ok"),)))
    if count > SHORT_DIFFERENCES:
        made.append(Row(((f"  … {count - SHORT_DIFFERENCES} more", "dim"),)))
    ends = "a restart, or a plain reload after an edit of the file, ends it; "
    return [*made, *paragraph("", f"{ends}t, then W keeps it", width, "dim")]


def _facts(config: ModelConfig, width: int) -> list[Row]:
    if config.steps:
        return []
    batching = "on" if config.dynamic_batching else "off"
    facts = (
        f"max batch {config.max_batch_size}",
        f"batching {batching}",
        f"delay {config.delay_us} µs" if config.dynamic_batching else "delay –",
        f"preferred {','.join(map(str, config.preferred)) or units.NONE}",
        f"instances {_instances(config)}",
        f"queue limit {config.queue.max_queue_size or 'none'}",
        f"queue time-out {f'{config.queue.timeout_us} µs' if config.queue.timeout_us else 'none'}",
        f"priorities {config.priority_levels or units.NONE}",
        f"cache {'on' if config.response_cache else 'off'}",
        f"warm-up {config.warmup_samples or 'no'} sample{'' if config.warmup_samples == 1 else 's'}",
        f"ordering {'' if config.preserve_ordering else 'not '}preserved",
        f"back end {one_line(config.backend or config.platform, 40) or units.NONE}",
        *(("sequence batching",) if config.sequence_batching else ()),
        *(("rate limiter",) if config.rate_limited else ()),
        *(("decoupled",) if config.decoupled else ()),
    )
    return [Row((("  " + line, ""),)) for line in flowed(facts, width - 2)]


def flowed(words: tuple[str, ...], cells: int, gap: str = "   ") -> list[str]:
    """Words one after another, a new line where the next does not fit."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(gap) + len(word) <= cells:
            lines[-1] += gap + word
        else:
            lines.append(word)
    return lines


def _instances(config: ModelConfig) -> str:
    if config.instances is None:
        return "?"
    places = []
    for group in config.instance_groups:
        where = f" on GPU {','.join(map(str, group.gpus))}" if group.gpus else " on CPU" if "CPU" in group.kind else ""
        places.append(f"{group.count}{where}")
    return " and ".join(places)


# ------------------------------------------------------------------------------------------- memory, loads, callers


def _memory(row: ModelRow, view: View) -> list[Row]:
    if row.ensemble:
        return []
    if row.memory is None:
        text = "? not seen: this console did not watch it load, and its back end does not tell"
        return paragraph("MEMORY", text, view.width, "unknown")
    origin = {"seen at load": "seen by this console when it loaded", "back end": "told by its back end"}
    made = paragraph("MEMORY", f"{units.size(row.memory)}, {origin.get(row.memory_origin or '', '')}", view.width)
    card = view.card
    if row.state != "READY" or card is None or card.memory_free is None:
        return made
    fits = row.memory <= card.memory_free
    took = row.metrics.load_seconds if row.metrics else None
    span = f" for ≈ {units.uptime(max(1.0, took))}" if took else ""
    text = f"a reload needs {units.gib(row.memory)} more{span}: "
    verdict = f"{'fits' if fits else 'does not fit'}, {units.gib(card.memory_free)} free"
    return [*made, Row(((f"  {text}", ""), (verdict, "" if fits else "warn")))]


def _loads(row: ModelRow, view: View, own: OwnChanges) -> list[Row]:
    """The last load: from the audit where it is this console's, else as the server's log and index tell."""
    took = row.metrics.load_seconds if row.metrics else None
    mine = _own_load(row, view, own)
    if mine is not None:
        return paragraph(
            "LOADS", one_line(own_changes.load_words(mine, view.clock(mine.wall)), 300), view.width, most=2
        )
    event = next((one for one in reversed(view.snapshot.events) if one.model == row.name and one.kind in LASTING), None)
    if took is None and event is None:
        return []
    first = f"last {took:.1f} s   " if took is not None else ""
    told = f"{view.clock(event.wall)} {one_line(event.text, 80)}  {one_line(event.origin, 60)}" if event else ""
    return paragraph("LOADS", first + told, view.width, most=2)


def _own_load(row: ModelRow, view: View, own: OwnChanges) -> Record | None:
    """The newest load of ours, unless the model was loaded again since, by somebody else or by a start."""
    record = own.loads.get(row.name)
    if record is None:
        return None
    podman = view.snapshot.container.value
    started = podman.container.started_wall if podman is not None and podman.container is not None else None
    if started is not None and started > record.wall:
        return None
    later = record.wall + LOADED_WITHIN
    since = (one for one in view.snapshot.events if one.model == row.name and one.kind in LASTING and one.wall > later)
    return record if next(since, None) is None else None


def _steps(row: ModelRow, width: int) -> list[Row]:
    if row.config is None or not row.config.steps:
        return []
    return paragraph("STEPS", " → ".join(one_line(step.model, 80) for step in row.config.steps), width)


def _used_by(row: ModelRow, snapshot: Snapshot, width: int) -> list[Row]:
    users = sorted(
        {
            other.name
            for other in snapshot.models
            if other.config and any(step.model == row.name for step in other.config.steps)
        }
    )
    if not users:
        return []
    text = ", ".join(f"{one_line(name, 80)} (ensemble)" for name in users)
    return paragraph("USED BY", f"{text}: unload takes {'it' if len(users) == 1 else 'them'} down too", width)
