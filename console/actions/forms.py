"""Forms over actions: what is so now for each field, and what the values typed so far would mean.

The console's screens show one of these; they never decide whether a value can be. Looks at the box, changes nothing.
"""

from __future__ import annotations

import abc
import pickle
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from console.actions.base import Action
from console.actions.box import Box, BoxSpec
from console.core.form import About, Judged, Look, Present, Remark
from console.core.model import Snapshot
from console.core.plan import Field, Refused, WrongInput

_OF_FIELD = re.compile(r"`?(?P<name>[a-z_]{1,40})`?(?::| must| is longer| holds)")


class OpenForm(abc.ABC):
    """A form that is open; holds what was looked at, secrets and all."""

    look: Look

    @abc.abstractmethod
    def judge(self, box: Box, values: Mapping[str, str]) -> Judged:
        """What these values (as typed, only the changed ones) mean. Refused and SourceError as of a plan."""


def opened(spec: BoxSpec, state: Path, snapshot: Snapshot | None, about: About, target: str) -> tuple[Look, bytes]:
    """A form as plain data: what is shown of it, and the whole of it for `judged`."""
    box = Box(spec, state, snapshot=snapshot)
    try:
        form = open_form(box, about, target)
    finally:
        box.close()
    return form.look, pickle.dumps(form)


def judged(spec: BoxSpec, state: Path, snapshot: Snapshot | None, form: bytes, values: Mapping[str, str]) -> Judged:
    """What these values mean in a form that `opened` gave in this or another process of ours."""
    kept: OpenForm = pickle.loads(form)
    box = Box(spec, state, snapshot=snapshot)
    try:
        return kept.judge(box, values)
    finally:
        box.close()


def open_form(box: Box, about: About, target: str) -> OpenForm:
    """The form for this, from a fresh look: for a new container where there is none. WrongInput, Refused, SourceError
    where there is nothing to fill in."""
    if about == "gpu":
        from console.actions.form_gpu import GpuForm

        return GpuForm(box, target)
    if about == "unit":
        from console.actions.form_unit import UnitForm

        return UnitForm(box, target)
    if not target and box.podman_state().container is None:
        from console.actions.form_create import CreateForm

        return CreateForm(box)
    from console.actions.form_container import RecreateForm

    return RecreateForm(box, target)


def rows(
    fields: Iterable[Field],
    labels: Mapping[str, str],
    now: Mapping[str, tuple[str, str]],
    off: Mapping[str, str] | None = None,
) -> tuple[Present, ...]:
    """The fields with what is so now: `now` has (as typed, as read) by name."""
    made: list[Present] = []
    for field in fields:
        start, live = now.get(field.name, ("", "–"))
        made.append(Present(field, labels[field.name], start, live or "–", (off or {}).get(field.name, "")))
    return tuple(made)


def wrong_ones(
    action: type[Action],
    values: Mapping[str, str],
    tried: Callable[[Mapping[str, str]], object],
) -> tuple[Remark, ...]:
    """A sentence beside each field whose value cannot be, tried one by one: all are told, not the first alone."""
    found: list[Remark] = []
    for name, value in values.items():
        try:
            tried(action.checked({name: value}))
        except (WrongInput, Refused) as error:
            found.append(Remark(name, "fail", str(error)))
    return tuple(found)


def of_field(error: WrongInput, names: Sequence[str]) -> Remark | None:
    """The same for a sentence that begins with its field's name; None where it is about none of `names`."""
    match = _OF_FIELD.match(str(error))
    name = match["name"] if match else ""
    return Remark(name, "fail", str(error)) if name in names else None


def given(values: Mapping[str, str]) -> dict[str, str]:
    """The values less those that were emptied: nothing typed means as it is."""
    return {name: value for name, value in values.items() if value.strip()}


def emptied(values: Mapping[str, str], presents: Iterable[Present]) -> tuple[Remark, ...]:
    """What emptying a field means, beside it."""
    started = {one.field.name for one in presents if one.start}
    return tuple(
        Remark(name, "note", "empty means: as it is now")
        for name, value in values.items()
        if not value.strip() and name in started
    )
