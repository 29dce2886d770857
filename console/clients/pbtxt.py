"""config.pbtxt: parsed with Triton's own schema, and compared with the configuration that is served.

The schema is tritonclient's `model_config_pb2`, loaded from its file: importing `tritonclient.grpc` would pull gRPC
into the process (domain facts 1.7).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor
from msgspec import Struct

from console.clients.triton_wire import shown_parameter
from console.core.model import ConfigDifference, SourceError
from console.core.text import one_line

MAX_VALUE = 200
"""Characters of a value that are kept for show."""

_PRESENCE = frozenset({"dynamic_batching", "sequence_batching"})
"""Messages that mean something by being there, though empty."""
_DERIVED = frozenset({"name", "platform", "backend", "runtime", "default_model_filename"})
_TWO_ON_CPU = frozenset({"tensorflow", "onnxruntime"})
"""Back ends for which Triton makes two instances on the CPU when the file names none."""
_DEFAULT_SEQUENCE_IDLE = "1000000"


class PbtxtError(Exception):
    """Why a configuration file cannot be understood: `line:column: what`."""


class Parsed(Struct, frozen=True):
    """A configuration file as a message of the schema."""

    message: Any
    unknown: str | None = None
    """`line:column: what` for the first field that the schema does not have; None when it has all."""


@cache
def _schema() -> Any:
    spec = importlib.util.find_spec("tritonclient")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "grpc" / "model_config_pb2.py"
        found = importlib.util.spec_from_file_location("tritonclient_model_config_pb2", path)
        if path.is_file() and found is not None and found.loader is not None:
            module = importlib.util.module_from_spec(found)
            try:
                found.loader.exec_module(module)
            except (ImportError, TypeError, RuntimeError) as error:
                raise SourceError(
                    "bug",
                    f"Triton's configuration schema cannot be loaded: {one_line(str(error), 200)}",
                    "install a protobuf that fits tritonclient",
                ) from error
            return module
    raise SourceError("bug", "Triton's configuration schema is not installed", "install tritonclient")


def parse(text: str) -> Parsed:
    """Parse the text of a config.pbtxt. PbtxtError for what Triton would refuse as well; a field that this schema
    lacks may be a slip or newer than it, so the rest is parsed and the field named."""
    schema = _schema()
    try:
        return Parsed(text_format.Parse(text, schema.ModelConfig()))
    except text_format.ParseError as error:
        first = _where(error)
    except (ValueError, RecursionError) as error:
        raise PbtxtError(one_line(str(error), MAX_VALUE)) from error
    try:
        return Parsed(text_format.Parse(text, schema.ModelConfig(), allow_unknown_field=True), first)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise PbtxtError(first) from error


def _where(error: text_format.ParseError) -> str:
    text = str(error)
    line, column = error.GetLine(), error.GetColumn()
    if line is None:
        return one_line(text, MAX_VALUE)
    place = f"{line}:{column}"
    return one_line(f"{place}: {text.removeprefix(place).lstrip(' :')}", MAX_VALUE)


def served(raw: str) -> Any:
    """The message of a configuration as `/config` gives it (JSON text). SourceError when it does not fit the schema."""
    schema = _schema()
    try:
        return json_format.ParseDict(json.loads(raw), schema.ModelConfig(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise SourceError(
            "protocol", f"the served configuration does not fit the schema: {one_line(str(error), MAX_VALUE)}"
        ) from error


def flat(message: Any) -> dict[str, str]:
    """Path -> value for all that is not at its default, such as `input[x].dims` -> `[4]`. Secrets are masked."""
    values: dict[str, str] = {}
    shown = type(message)()
    shown.CopyFrom(message)
    for name in shown.parameters:
        shown.parameters[name].string_value = shown_parameter(name, shown.parameters[name].string_value)
    _flatten(shown, "", values)
    return values


def _flatten(message: Any, prefix: str, values: dict[str, str]) -> None:
    for descriptor, value in message.ListFields():
        path = prefix + descriptor.name
        if descriptor.name in _PRESENCE and not prefix:
            values[path] = "on"
        if is_map(descriptor):
            for key in sorted(value, key=str):
                _entry(f"{path}[{key}]", descriptor.message_type.fields_by_name["value"], value[key], values)
        elif not _is_repeated(descriptor):
            _entry(path, descriptor, value, values)
        elif descriptor.message_type is None:
            values[path] = "[" + ", ".join(_scalar(descriptor, item) for item in value) + "]"
        else:
            for at, item in enumerate(value):
                name = getattr(item, "name", "") if descriptor.name in ("input", "output") else ""
                _entry(f"{path}[{one_line(name, MAX_VALUE) or at}]", descriptor, item, values)


def _entry(path: str, descriptor: FieldDescriptor, value: Any, values: dict[str, str]) -> None:
    if descriptor.message_type is None:
        values[path] = _scalar(descriptor, value)
    else:
        _flatten(value, path + ".", values)


def _is_repeated(descriptor: FieldDescriptor) -> bool:
    return bool(descriptor.is_repeated)


def is_map(descriptor: FieldDescriptor) -> bool:
    """True for `map<key, value>` fields."""
    kind = descriptor.message_type
    return kind is not None and kind.GetOptions().map_entry


def _scalar(descriptor: FieldDescriptor, value: Any) -> str:
    if descriptor.enum_type is not None:
        found = descriptor.enum_type.values_by_number.get(value)
        return found.name if found is not None else str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return one_line(str(value), MAX_VALUE)


# --------------------------------------------------------------------------------------------------------- comparison


def differences(disk: Any, live: Any) -> tuple[ConfigDifference, ...]:
    """Fields in which the served configuration differs from the file, by path; what the server adds by itself to a
    file that does not say it is no difference (domain facts 1.7)."""
    on_disk, served_now = flat(disk), flat(live)
    _same_groups(disk, live, on_disk, served_now)
    completed = not disk.input and not disk.output
    for path in [path for path in served_now if path not in on_disk]:
        if _added_by_server(path, served_now[path], live.max_batch_size, on_disk, completed):
            del served_now[path]
    if "dynamic_batching" in served_now and "dynamic_batching" not in on_disk and completed:
        del served_now["dynamic_batching"]
    on_disk.pop("name", None)
    served_now.pop("name", None)
    paths = sorted(on_disk.keys() | served_now.keys())
    return tuple(
        ConfigDifference(path, served_now.get(path, "–"), on_disk.get(path, "–"))
        for path in paths
        if served_now.get(path) != on_disk.get(path)
    )


def _added_by_server(path: str, value: str, max_batch: int, disk: Mapping[str, str], completed: bool) -> bool:
    if path in _DERIVED:
        return True
    if path == "version_policy.latest.num_versions":
        return value == "1" and not any(p.startswith("version_policy") for p in disk)
    if path in ("optimization.input_pinned_memory.enable", "optimization.output_pinned_memory.enable"):
        return value == "true"
    if path in ("dynamic_batching.preferred_batch_size", "sequence_batching.oldest.preferred_batch_size"):
        return value == f"[{max_batch}]"
    if path == "sequence_batching.max_sequence_idle_microseconds":
        return value == _DEFAULT_SEQUENCE_IDLE
    if completed:
        return path.startswith(("input[", "output[")) or path in (
            "max_batch_size",
            "model_transaction_policy.decoupled",
        )
    return False


def _same_groups(disk: Any, live: Any, on_disk: dict[str, str], served_now: dict[str, str]) -> None:
    """Instance groups: names, resolved kinds, listed GPUs and default counts are the server's doing."""
    default = 2 if live.backend in _TWO_ON_CPU else 1
    if not disk.instance_group:
        if len(live.instance_group) == 1 and live.instance_group[0].count in (1, default):
            for path in [path for path in served_now if path.startswith("instance_group[0].")]:
                del served_now[path]
        return
    for at, (group, now) in enumerate(zip(disk.instance_group, live.instance_group, strict=False)):
        prefix = f"instance_group[{at}]."
        for field in ("name", "kind", "gpus"):
            if prefix + field not in on_disk:
                served_now.pop(prefix + field, None)
        if not group.count and now.count in (1, default):
            served_now.pop(prefix + "count", None)
