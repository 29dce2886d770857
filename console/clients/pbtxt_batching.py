"""Batching settings in config.pbtxt: what the file says, the text with new ones, and a change as lines of text."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from msgspec import Struct
from msgspec.structs import replace

from console.clients import pbtxt, pbtxt_edit
from console.core.model import ConfigDifference
from console.core.secrets import MASK
from console.planning import batching_change as change
from console.planning.batching_change import Batching, Group

CONTEXT = 1
"""Lines shown around a line that changes."""
_PARAMETER = re.compile(r"""(string_value\s*:\s*)(?:"(?:[^"\\]|\\.)*"\s*|'(?:[^'\\]|\\.)*'\s*)+""")


class OnDisk(Struct, frozen=True):
    """The file held against what is served."""

    message: Any
    paths: frozenset[str]
    """What the file sets."""
    batching: Batching
    """In the file's words, or the server's own where the file says nothing against them."""
    fields: tuple[str, ...]
    """Batching fields in which both differ."""
    others: tuple[ConfigDifference, ...]
    """Other differences, which are not of batching. The version policy is none: the console pins it."""


def on_disk(text: str, live: Mapping[str, Any], live_now: Batching) -> OnDisk:
    """The text of a file beside the served configuration. PbtxtError, SourceError where either is not understood."""
    message = pbtxt.parse(text.removeprefix(pbtxt_edit.BOM)).message
    differences = pbtxt.differences(message, pbtxt.served(json.dumps(live)))
    fields = change.fields_of([one.path for one in differences])
    if not live_now.dynamic_batching:
        fields = tuple(name for name in fields if name not in change.OF_BATCHER)
    told = change.read(_document(message))
    mixed = replace(live_now, **{name: getattr(told, name) for name in fields})
    if "dynamic_batching" in fields and told.dynamic_batching:
        mixed = replace(mixed, **{name: getattr(told, name) for name in change.OF_BATCHER})
    others = tuple(
        one for one in differences if not change.is_field(one.path) and not one.path.startswith("version_policy")
    )
    return OnDisk(message, frozenset(pbtxt.flat(message)), mixed, fields, others)


def _document(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def paths(text: str) -> frozenset[str]:
    """What a file sets, as paths. PbtxtError where it cannot be parsed."""
    return frozenset(pbtxt.flat(pbtxt.parse(text.removeprefix(pbtxt_edit.BOM)).message))


def with_settings(message: Any, settings: Batching, fields: Sequence[str]) -> Any:
    """A copy of a ModelConfig message with these fields as in `settings`."""
    wanted = type(message)()
    wanted.CopyFrom(message)
    for name in change.NAMES:
        if name not in fields or (name in change.OF_BATCHER and not settings.dynamic_batching):
            continue
        _put(wanted, name, getattr(settings, name))
        if name == "dynamic_batching" and settings.dynamic_batching:
            for inner in change.OF_BATCHER:
                if getattr(settings, inner) != getattr(Batching(), inner):
                    _put(wanted, inner, getattr(settings, inner))
    return wanted


def _put(message: Any, name: str, value: Any) -> None:
    batcher = message.dynamic_batching
    policy = batcher.default_queue_policy
    if name == "dynamic_batching":
        if value:
            batcher.SetInParent()
        else:
            message.ClearField(name)
    elif name == "max_batch_size":
        message.max_batch_size = value
    elif name == "instances":
        _put_groups(message.instance_group, value)
    elif name == "response_cache":
        message.response_cache.enable = value
    elif name == "preferred":
        batcher.preferred_batch_size[:] = value
    elif name == "timeout_action":
        policy.timeout_action = type(policy).TimeoutAction.Value(value)
    elif name in ("max_queue_size", "allow_timeout_override"):
        setattr(policy, name, value)
    elif name == "timeout_us":
        policy.default_timeout_microseconds = value
    else:
        setattr(batcher, _BATCHER[name], value)


_BATCHER = {
    "delay_us": "max_queue_delay_microseconds",
    "priority_levels": "priority_levels",
    "default_priority": "default_priority_level",
    "preserve_ordering": "preserve_ordering",
}


def _put_groups(groups: Any, settings: Sequence[Group]) -> None:
    """Counts alone where the groups are the same: kinds and GPUs that the file leaves to the server stay so."""
    while len(groups) > len(settings):
        groups.pop()
    for at, group in enumerate(settings):
        is_new = at >= len(groups)
        found = groups.add() if is_new else groups[at]
        kind = type(found).Kind.Name(found.kind)
        if is_new or (kind not in ("KIND_AUTO", group.kind)) or (found.gpus and tuple(found.gpus) != group.gpus):
            found.kind = type(found).Kind.Value(group.kind)
            found.gpus[:] = group.gpus
        if (found.count or 1) != group.count:
            found.count = group.count


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Lines of config.pbtxt that change between two configuration documents; the pinned versions are left out, since
    no file gets them."""
    texts = []
    for document in (old, new):
        told = {key: value for key, value in document.items() if key != "version_policy"}
        texts.append(pbtxt_edit.rewrite(pbtxt.served(json.dumps(told))))
    return lines(*texts)


def lines(old: str, new: str) -> tuple[str, ...]:
    """Two texts as lines that begin with `  `, `- ` or `+ `; unchanged stretches are left out, and so are the values of
    parameters, which may be secrets."""
    old, new = (_PARAMETER.sub(rf'\1"{MASK}" ', text) for text in (old, new))
    found = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=CONTEXT)
    shown: list[str] = []
    for line in list(found)[2:]:
        if line.startswith("@@"):
            shown += ["  …"] if shown else []
        else:
            shown.append(f"{line[0]} {line[1:]}")
    return tuple(shown)
