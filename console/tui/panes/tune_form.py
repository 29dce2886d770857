"""Tune's form: how the model batches, in groups; what the server's rules say stands beside each field (design 1.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from console.core import units
from console.core.model import ContainerState, GpuState, ModelRow
from console.core.plan import Field
from console.core.text import one_line
from console.planning import batching_change as change
from console.tui.panes.base import View
from console.tui.panes.form_pane import FormPane
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, cut
from console.tui.widgets.form import NONE, FormRow, Note
from console.tui.widgets.lines import Row

if TYPE_CHECKING:
    from console.actions.batching_look import Current, FieldNow, Validated

INSTANCES = "instances:"
"""Before the label of a group: each group of instances is a field of its own."""
LABELS: Mapping[str, str] = {
    "dynamic_batching": "dynamic batching",
    "delay_us": "max queue delay µs",
    "preferred": "preferred sizes",
    "max_batch_size": "max batch size",
    "max_queue_size": "queue limit",
    "timeout_us": "time-out µs",
    "timeout_action": "time-out action",
    "allow_timeout_override": "time-out override",
    "priority_levels": "priorities",
    "default_priority": "default priority",
    "preserve_ordering": "preserve ordering",
    "response_cache": "response cache",
}
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("DYNAMIC BATCHING", ("dynamic_batching", "delay_us", "preferred", "max_batch_size")),
    ("INSTANCES", ()),
    ("QUEUE POLICY", ("max_queue_size", "timeout_us", "timeout_action", "allow_timeout_override")),
    ("PRIORITIES, ORDER", ("priority_levels", "default_priority", "preserve_ordering")),
    ("CACHE", ("response_cache",)),
)
QUEUE_WORDS = "concurrency and queue time-out"
"""The names by which operators ask for the limit and the time-out."""
_POWERS = tuple(2**n for n in range(15))
LADDERS: Mapping[str, tuple[int, ...]] = {
    "delay_us": (0, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000),
    "max_batch_size": (0, *_POWERS),
    "max_queue_size": (0, *_POWERS),
    "timeout_us": (0, 1000, 10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000),
}
MOST_REASON = 3
"""Lines of one reason above the summary."""


# ----------------------------------------------------------------------------------------------------- rows and values


def form_rows(now: Current, row: ModelRow | None, cards: Sequence[GpuState]) -> tuple[FormRow, ...]:
    """The rows of one model's form; none for an ensemble, which has no batcher."""
    if now.facts.is_ensemble:
        return ()
    told = {one.name: one for one in now.fields}
    fields = {one.name: one for one in change.FIELDS}
    made: list[FormRow] = []
    for group, names in GROUPS:
        rows = [_row(fields[name], told[name]) for name in names] if names else _instances(now, told, cards)
        beside = QUEUE_WORDS if group == "QUEUE POLICY" else "" if names else memory_words(row, cards, rows)
        made += _headed(rows, group, beside)
    return (*made, *_shown_only(row))


def _headed(rows: Sequence[FormRow], group: str, beside: str = "") -> list[FormRow]:
    """With the group's heading above the first."""
    first, *rest = rows
    return [replace(first, group=group, beside=beside), *rest]


def _row(field: Field, now: FieldNow) -> FormRow:
    return FormRow(
        field,
        LABELS[field.name],
        _start(field, now.live),
        now.live,
        now.disk,
        now.how,
        ladder=LADDERS.get(field.name, ()),
    )


def _start(field: Field, live: str) -> str:
    if live != NONE:
        return live
    return "0" if field.kind == "int" else ""


def _instances(now: Current, told: Mapping[str, FieldNow], cards: Sequence[GpuState]) -> list[FormRow]:
    """A row for each group that there is, and one for each kind that there could be."""
    live = dict(zip(change.labels_of(now.settings.instances), now.settings.instances, strict=True))
    disk = dict(part.split("=", 1) for part in told["instances"].disk.split(",") if "=" in part)
    unseen = told["instances"].disk == "?"
    used = {gpu for group in now.settings.instances for gpu in group.gpus}
    possible = ["cpu", *(f"gpu{card.index}" for card in cards if card.index not in used)]
    whole = any(group.kind in ("KIND_MODEL", "KIND_AUTO") for group in now.settings.instances)
    labels = [*live, *(label for label in possible if label not in live and not whole)]
    return [
        FormRow(
            Field(f"{INSTANCES}{label}", "copies that run at once", "int", low=0, high=change.MAX_INSTANCES),
            f"instances {group_words(label)}",
            str(live[label].count) if label in live else "0",
            str(live[label].count) if label in live else NONE,
            "?" if unseen else disk.get(label, NONE),
            told["instances"].how,
        )
        for label in labels
    ]


def group_words(label: str) -> str:
    """`on GPU 0`, `on CPU`, `(model)`."""
    plain, _, number = label.partition("#")
    more = f" #{number}" if number else ""
    if plain == "cpu":
        return f"on CPU{more}"
    if plain.startswith("gpu"):
        return f"on GPU {plain.removeprefix('gpu') or 'any'}{more}"
    return f"({plain}){more}"


def memory_words(row: ModelRow | None, cards: Sequence[GpuState], rows: Sequence[FormRow]) -> str:
    """What one instance takes of the card, and how that is known."""
    if not any("GPU" in one.label for one in rows):
        return ""
    free = [units.gib(card.memory_free) for card in cards if card.memory_free is not None]
    told = f"free {', '.join(free)} GiB" if free else "free not known"
    one = memory_of_one(row)
    if one is None or row is None:
        return f"VRAM of one not known; {told}"
    return f"≈ {units.size(one)} each ({row.memory_origin or 'seen'}); {told}"


def memory_of_one(row: ModelRow | None) -> float | None:
    """Bytes of the card for one instance: an even share of what the model takes; None = not known."""
    if row is None or row.memory is None or not row.instances:
        return None
    return row.memory / row.instances


def _shown_only(row: ModelRow | None) -> list[FormRow]:
    config = row.config if row is not None else None
    if config is None:
        return []
    text = Field("rate_limiter", "resources that an execution needs; only with the server's --rate-limit")
    warm = Field("warm_up", "requests that are run before READY")
    off = "is shown only: edit config.pbtxt and reload (2 Models, r)"
    rows = [
        FormRow(text, "rate limiter", live="set" if config.rate_limited else NONE, disk="", off=f"rate limiter {off}"),
        FormRow(
            warm,
            "warm-up",
            live=f"{config.warmup_samples} samples" if config.warmup_samples else NONE,
            disk="",
            off=f"warm-up {off}",
        ),
    ]
    return _headed(rows, "SHOWN ONLY", "set in config.pbtxt")


def values_of(typed: Mapping[str, str]) -> dict[str, str]:
    """The form's values as `batching.set` takes them."""
    values = {name: text for name, text in typed.items() if not name.startswith(INSTANCES)}
    counts = [f"{name.removeprefix(INSTANCES)}={text or 0}" for name, text in typed.items() if name not in values]
    return {**values, "instances": ",".join(counts)} if counts else values


def form_values(values: Mapping[str, str], rows: Sequence[FormRow]) -> dict[str, str]:
    """Values of `batching.set` as the rows of a form take them. A bare number of instances is that of the one group
    that has any; it is left out where there are several."""
    groups = [row.field.name for row in rows if row.field.name.startswith(INSTANCES) and row.start not in ("", "0")]
    made = {name: {"true": "on", "false": "off"}.get(text, text) for name, text in values.items()}
    count = made.pop("instances", None)
    return made if count is None or len(groups) != 1 else {**made, groups[0]: count}


def notes_of(found: Validated, typed: Mapping[str, str]) -> tuple[Note, ...]:
    """The rules' sentences, each with the row it belongs to."""
    rows = [name for name in typed if name.startswith(INSTANCES)]
    where = {"instances": rows[0]} if rows else {}
    fails = [Note(where.get(one.field, one.field), "fail", one.text) for one in found.problems]
    return (*fails, *(Note(where.get(one.field, one.field), "warn", one.text) for one in found.warnings))


def changed_rows(found: Validated, typed: Mapping[str, str]) -> frozenset[str]:
    """Names of rows that mean something else than what is live."""
    rows = {name for name in typed if name.startswith(INSTANCES)} if "instances" in found.changed else set()
    return frozenset({*found.changed, *rows})


def change_words(now: Current, found: Validated, typed: Mapping[str, str]) -> str:
    """`delay_us 2000 → 500`; "" where nothing changes or a value cannot be."""
    if found.problems or not found.changed:
        return ""
    new = change.wanted(now.settings, values_of(typed))
    return ", ".join(f"{name} {change.shown(name, now.settings)} → {change.shown(name, new)}" for name in found.changed)


# -------------------------------------------------------------------------------------------------------------- reasons


def reasons(now: Current, row: ModelRow | None, container: ContainerState | None) -> list[str]:
    """Why this model cannot be tuned here, or not in all, and what can be done instead."""
    made = []
    if now.facts.is_ensemble:
        steps = row.config.steps if row is not None and row.config is not None else ()
        names = ", ".join(dict.fromkeys(one_line(step.model, 60) for step in steps))
        made.append(
            f"{now.model} is an ensemble: it has no batcher and no instances of its own. Tune its steps instead"
            + (f": {names} (2 Models, t)" if names else " (2 Models, t)")
        )
    else:
        made += [one.text for one in change.obstacles(now.facts, now.settings, now.settings)]
        if now.facts.is_sequence:
            made.append(f"{now.model} batches sequences: its instances and cache can be changed, dynamic batching not")
        elif not now.settings.max_batch_size:
            made.append(
                f"{now.model} does not batch (max batch size 0): its requests have no batch dimension, so only its "
                "instances help; a batch size wants a model made for it"
            )
    mode = container.control_mode if container is not None else None
    if mode in ("none", "poll"):
        follows = "follows the files by itself: edit config.pbtxt" if mode == "poll" else "loads nothing while it runs"
        made.append(
            f"control mode {mode}: the server refuses loads and {follows}. Recreate the container with "
            "--model-control-mode=explicit to change batching live (5 Container)"
        )
    return made


class TuneForm(FormPane):
    """FIELD, LIVE, NEW, DISK, HOW of one model."""

    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.model = ""
        self.now: Current | None = None
        self.found: Validated | None = None
        self.error = ""
        """Why the model's settings could not be looked at."""
        self.reasons: tuple[str, ...] = ()

    def title(self, view: View) -> Line:
        versions = f" {','.join(map(str, self.now.versions))}" if self.now is not None else ""
        return ((f"Tune   {one_line(self.model, 80)}{versions}", "title"),)

    def note(self, view: View) -> Line:
        return (("P", "key"), (" presets", "dim"))

    def lines(self, view: View) -> list[Row]:
        if self.now is None:
            told = self.error or "looking …"
            return [Row(((line, "" if self.error else "dim"),)) for line in wrapped(one_line(told), view.width, most=8)]
        return super().lines(view)

    def foot_lines(self, view: View) -> list[Line]:
        """Why it cannot be done, what the field means, what all changes together come to."""
        made: list[Line] = []
        for text in self.reasons:
            lines = wrapped(one_line(text), view.width - 2, most=MOST_REASON)
            made += [(sign("warn") if not at else (" ", ""), (f" {line}", "")) for at, line in enumerate(lines)]
        here = self.here
        if here is not None:
            made.append(((cut(here.field.help, view.width), "dim"),))
        if self.now is not None:
            made.append(((self.summary(), "title" if self.found is not None and self.found.changed else "dim"),))
            if self.now.disk_unknown:
                made.append(((cut(f"DISK ?: {one_line(self.now.disk_unknown, 300)}", view.width), "unknown"),))
        return made

    def summary(self) -> str:
        """`one field changed: one full reload of ranking`."""
        found = self.found
        if found is not None and found.problems:
            return "cannot be applied: see ✗ beside the field" if self.form.values else "nothing can be changed here"
        if found is None or not found.changed:
            return "nothing changed: ← → steps a value, enter types one"
        count = len(found.changed)
        told = "one field changed" if count == 1 else f"{count} fields changed"
        how = "the server updates it in place" if found.in_place else "one full reload of"
        return f"{told}: {how}{'' if found.in_place else f' {one_line(self.model, 60)}'}"

    def changes(self) -> object:
        form = self.form
        state = (form.rows, tuple(form.values.items()), form.notes, form.opened, form.text, self.cursor)
        return (*state, self.now, self.found, self.error, self.reasons, self.model)
