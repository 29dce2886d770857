"""The form that changes a container: what it is made of now, field by field, and the `podman run` it would become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.actions import spec_changes
from console.actions.box import Box
from console.actions.container_spec import UNLIMITED, Body, captured, port_words, shown_command
from console.actions.forms import OpenForm, emptied, given, of_field, rows, wrong_ones
from console.actions.recreate import Recreate
from console.actions.target import ContainerView, chosen_name
from console.core import triton_command
from console.core.form import Judged, Look, Remark, Wish
from console.core.plan import Field, WrongInput
from console.core.secrets import mask_command
from console.core.text import one_line

LABELS = {
    "image": "image",
    "ports": "ports",
    "mode": "control mode",
    "shm_size": "shm size",
    "ulimits": "ulimits",
    "cpus": "CPU set",
    "numa": "NUMA nodes",
    "env": "environment, set",
    "unset": "environment, unset",
    "flags": "server flags, set",
    "drop_flags": "server flags, drop",
    "devices": "devices",
    "stop_timeout": "stop timeout",
}
ALL = "-"
"""As typed: no CPU or node is left out."""
_SIZES = (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10))
ADDED = ("env", "unset", "flags", "drop_flags", "ulimits")
"""Fields whose value is laid over what is there."""


class RecreateForm(OpenForm):
    """`container.recreate`."""

    def __init__(self, box: Box, target: str) -> None:
        name = chosen_name(box, target)
        with ContainerView(box, name) as view:
            state = view.known()
            inspected = view.inspect() or {}
            found = captured(view)
        self._body = found.body
        self._argv = [word for word in (inspected.get("Path"), *(inspected.get("Args") or ())) if word]
        self._identity = {"id": state.id[:12]}
        told = []
        if state.unit:
            told.append(f"it belongs to {state.unit}: its unit is changed instead (U); a plan from here is refused")
        self.look = Look(
            action=Recreate.NAME,
            target=name,
            title=f"Change and recreate {one_line(name, 80)}",
            rows=rows(
                with_images(Recreate.FIELDS, box), LABELS, present(self._body, self._argv), off(self._body, self._argv)
            ),
            told=tuple(told),
        )

    def judge(self, box: Box, values: Mapping[str, str]) -> Judged:
        wanted = given(values)
        wrong = wrong_ones(Recreate, wanted, lambda one: spec_changes.changed(self._body, one, self._argv))
        remarks = (*wrong, *emptied(values, self.look.rows), *_laid_over(self._body, wanted))
        if wrong:
            return Judged(frozenset(wanted), remarks)
        try:
            new = spec_changes.changed(self._body, Recreate.checked(wanted), self._argv)
        except WrongInput as error:  # each can be, but not all of them at once
            last = tuple(wanted)[-1]
            return Judged(frozenset(wanted), (of_field(error, tuple(wanted)) or Remark(last, "fail", str(error)),))
        start = {one.field.name: one.start for one in self.look.rows}
        differs = tuple(
            name
            for name, value in wanted.items()
            if value.strip() != start[name]
            and spec_changes.changed(self._body, Recreate.checked({name: value}), self._argv) != self._body
        )
        wish = Wish(Recreate.NAME, self.look.target, {name: wanted[name] for name in differs}, differs, self._identity)
        difference = spec_changes.difference(self._body, new) if differs else ()
        lines = ("DIFFERENCE", *(difference or ("  nothing changes yet",)), "EQUIVALENT", f"  {shown_command(new)}")
        return Judged(frozenset(differs), remarks, (wish,) if differs else (), lines)


def with_images(fields: Sequence[Field], box: Box) -> Iterator[Field]:
    """The fields, the images of this box as choices to step through: another one may be typed."""
    from msgspec.structs import replace

    images = box.podman_state().images
    for field in fields:
        yield replace(field, kind="choice", choices=images) if field.name == "image" and images else field


def present(body: Body, argv: Sequence[str]) -> dict[str, tuple[str, str]]:
    """(as typed, as read) of each field, from what a container is made of and its command line."""
    cpu = (body.get("resource_limits") or {}).get("cpu") or {}
    words = list(body.get("command") or argv)
    flags = " ".join(word for word in mask_command(words) if word.startswith("-"))
    mode = triton_command.control_mode(words) or ""
    timeout = body.get("stop_timeout")
    ports = ",".join(port_words(one) for one in body.get("portmappings") or ())
    limits = ",".join(f"{one['type']}={_limit(one)}" for one in body.get("r_limits") or ())
    devices = ",".join(one["path"] for one in body.get("devices") or ())
    return {
        "image": _same(body["image"]),
        "ports": _same(ports),
        "mode": _same(mode),
        "shm_size": _same(size_words(body.get("shm_size"))),
        "ulimits": _same(limits),
        "cpus": (cpu.get("cpus") or ALL, cpu.get("cpus") or "all"),
        "numa": (cpu.get("mems") or ALL, cpu.get("mems") or "all"),
        "env": ("", _names(body)),
        "flags": ("", flags),
        "devices": _same(devices),
        "stop_timeout": ("", "10 s, Podman's own") if timeout is None else (str(timeout), f"{timeout} s"),
    }


def off(body: Body, argv: Sequence[str]) -> dict[str, str]:
    """Fields that cannot be changed on this one, with the reason."""
    found: dict[str, str] = {}
    if (body.get("netns") or {}).get("nsmode") == "host":
        found["ports"] = "it is in the host's network, where nothing is published: set --http-port by flags"
    if (body.get("ipcns") or {}).get("nsmode") == "host":
        found["shm_size"] = "it shares the host's IPC, so /dev/shm is the host's"
    words = list(body.get("command") or argv)
    why = ""
    if not triton_command.is_tritonserver(words):
        why = "its command does not name tritonserver, so its flags are not known"
    elif any(" " in word and "tritonserver" in word for word in words):
        why = "its command is one shell line, which is not edited here"
    return found | (dict.fromkeys(("mode", "flags", "drop_flags"), why) if why else {})


def size_words(size: Any) -> str:
    """`128m`, exactly; "" where it is not told."""
    if not isinstance(size, int) or size <= 0:
        return ""
    return next((f"{size // unit}{letter}" for letter, unit in _SIZES if size % unit == 0), str(size))


def _limit(one: Mapping[str, int]) -> str:
    soft, hard = ("-1" if one[key] == UNLIMITED else str(one[key]) for key in ("soft", "hard"))
    return soft if soft == hard else f"{soft}:{hard}"


def _same(text: str) -> tuple[str, str]:
    return text, text


def _names(body: Body) -> str:
    """Values never: any of them may be a secret."""
    return ", ".join(f"{one_line(name, 60)}=***" for name in sorted(body.get("env") or {}))


def _laid_over(body: Body, wanted: Mapping[str, str]) -> Iterator[Remark]:
    """What stays beside what is typed, for fields that are laid over what is there."""
    if wanted.get("env"):
        names = [name for part in wanted["env"].split(",") if (name := part.partition("=")[0].strip()) and "=" in part]
        stay = [name for name in sorted(body.get("env") or {}) if name not in names]
        others = f"; {', '.join(map(_short, stay))} stay" if stay else ""
        yield Remark("env", "note", f"sets {', '.join(map(_short, names)) or 'nothing yet'}{others}")
    if wanted.get("ulimits"):
        named = {part.partition("=")[0].strip() for part in wanted["ulimits"].split(",")}
        left = [one["type"] for one in body.get("r_limits") or () if one["type"] not in named]
        if left:
            yield Remark("ulimits", "note", f"{', '.join(left)} stay as they are: a limit is not taken away here")


def _short(name: str) -> str:
    return one_line(name, 60)
