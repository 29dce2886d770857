"""The form that makes a container where there is none: sane defaults to start from, and the `podman run` of it all."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from console.actions import form_container, saved_specs
from console.actions.box import Box
from console.actions.container_spec import Body, shown_command
from console.actions.forms import OpenForm, given, of_field, rows, wrong_ones
from console.actions.recreate import Create, wanted_body
from console.core.form import Judged, Look, Remark, Wish
from console.core.model import SourceError
from console.core.plan import Field, Refused, WrongInput

NAME = Field("name", "what the container is to be called")
DEFAULT_NAME = "triton"
LABELS = {
    **form_container.LABELS,
    "name": "name",
    "models": "model repository",
    "env": "environment",
    "flags": "server flags",
    "start": "start it",
    "saved": "as it was kept",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
ANYWHERE = "/models"
"""Stands for the folder that is not given yet, so that all else can be shown."""


class CreateForm(OpenForm):
    """`container.create`."""

    def __init__(self, box: Box) -> None:
        models = _models(box)
        defaults = self._default_body(box)
        now = form_container.present(defaults, ()) if defaults else {}
        now |= {
            "name": (DEFAULT_NAME, DEFAULT_NAME),
            "models": (models, models),
            "env": ("", ""),
            "flags": ("", ""),
            "start": ("on", "on"),
        }
        fields = [NAME, *(_saved(field, box) for field in form_container.with_images(Create.FIELDS, box))]
        kept = _kept(box)
        self._start = {name: start for name, (start, _) in now.items()}
        self.look = Look(
            action=Create.NAME,
            target=DEFAULT_NAME,
            title="Create a Triton container: none is here",
            rows=rows(fields, LABELS, now, {} if kept else {"saved": "no specification of a gone container is kept"}),
            needs_change=False,
            told=("nothing that runs is touched; what is shown as present is what it gets where nothing is typed",),
        )

    def _default_body(self, box: Box) -> Body | None:
        try:
            return wanted_body(box, DEFAULT_NAME, {"models": ANYWHERE})
        except WrongInput:
            return None  # no image is here: said beside its field

    def judge(self, box: Box, values: Mapping[str, str]) -> Judged:
        wanted = {"models": self._start["models"], **values}
        name = wanted.pop("name", "").strip() or DEFAULT_NAME
        wanted = given(wanted)
        base = {"models": wanted.get("models", ANYWHERE)} | {
            key: value for key, value in wanted.items() if key == "image"
        }
        wrong = wrong_ones(Create, wanted, lambda one: wanted_body(box, DEFAULT_NAME, _over(base, one)))
        if not _NAME.fullmatch(name):
            wrong = (Remark("name", "fail", "name: letters, digits and _ . - only, as in triton"), *wrong)
        if not wrong:
            try:
                body = wanted_body(box, name, Create.checked(wanted))
            except (WrongInput, Refused) as error:
                found = of_field(WrongInput(str(error)), [one.field.name for one in self.look.rows])
                wrong = (found or Remark("saved", "fail", str(error)),)
        changed = frozenset(one for one, value in values.items() if value.strip() not in ("", self._start.get(one, "")))
        if wrong:
            return Judged(changed, wrong)
        lines = ("EQUIVALENT", f"  {shown_command(body)}")
        return Judged(changed, (), (Wish(Create.NAME, name, wanted, tuple(wanted)),), lines)


def _over(base: Mapping[str, str], one: Mapping[str, str]) -> dict[str, str]:
    return {**base, **one}


def _models(box: Box) -> str:
    """The model repository that the settings name or that is where one usually is; "" = none is known."""
    try:
        return box.repository().path
    except (SourceError, Refused):
        return ""


def _kept(box: Box) -> tuple[str, ...]:
    return tuple(sorted((path.name for path in (box.state / saved_specs.FOLDER).glob("*.json")), reverse=True))


def _saved(field: Field, box: Box) -> Field:
    return replace(field, kind="choice", choices=("", *_kept(box))) if field.name == "saved" else field
