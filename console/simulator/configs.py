"""Model configurations: the file that somebody wrote, what Triton makes of one, and what it says in `/config`.

Every configuration that is served was parsed from text, a file's or an override's, with Triton's own schema; so what a
person edits is what the batcher does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from console.clients import pbtxt
from console.planning.batcher import Scheduling
from console.simulator.scenes import Ensemble, Model, Tensor

Served = Model | Ensemble
Config = Any
"""A message of Triton's schema `ModelConfig`."""

_FREE_FIELDS = ("instance_group", "version_policy")
"""A change of these alone needs no reload (triton.md 1.4)."""


class ConfigError(Exception):
    """Why a configuration cannot be taken, as Triton's log says it."""


def from_text(text: str) -> Config:
    """Of a config.pbtxt. ConfigError for what Triton's parser refuses."""
    try:
        parsed = pbtxt.parse(text)
    except pbtxt.PbtxtError as error:
        raise ConfigError(str(error)) from error
    if parsed.unknown:
        raise ConfigError(parsed.unknown)
    return parsed.message


def from_override(text: str) -> Config:
    """Of the JSON text of a load's `config`. ConfigError as `from_text`."""
    try:
        return json_format.Parse(text, _empty())
    except (json_format.ParseError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"Invalid config override: {error}") from error


def _empty() -> Config:
    return _schema()()


@cache
def _schema() -> Any:
    return type(pbtxt.parse("").message)


def problem(config: Config, name: str) -> str:
    """Why Triton refuses a configuration when it looks at the folder, before any load; "" when it does not."""
    if config.name not in ("", name):
        return f"unexpected directory name '{name}' for model '{config.name}', directory name must equal model name"
    if not config.HasField("dynamic_batching"):
        return ""
    batcher, largest = config.dynamic_batching, config.max_batch_size
    if any(not 0 < size <= largest for size in batcher.preferred_batch_size):
        return f"dynamic batching preferred size must be positive and not exceed max batch size for {name}"
    levels = batcher.priority_levels
    if levels and not 1 <= batcher.default_priority_level <= levels:
        return f"default priority level must be in range [1, {levels}] for {name}"
    if levels > 1 and batcher.preserve_ordering:
        return f"Only one priority level is allowed when 'preserve_ordering' is true for {name}"
    return ""


def completed(config: Config, name: str) -> Config:
    """With what Triton fills in by itself."""
    made = _empty()
    made.CopyFrom(config)
    made.name = name
    if not made.HasField("version_policy"):
        made.version_policy.latest.num_versions = 1
    if made.platform == "ensemble":
        made.model_transaction_policy.SetInParent()
        return made
    made.platform, made.backend = "tensorrt_plan", "tensorrt"
    made.default_model_filename = made.default_model_filename or "model.plan"
    for memory in (made.optimization.input_pinned_memory, made.optimization.output_pinned_memory):
        memory.enable = True
    batcher = made.dynamic_batching
    if made.HasField("dynamic_batching") and made.max_batch_size and not batcher.preferred_batch_size:
        batcher.preferred_batch_size.append(made.max_batch_size)
    if not made.instance_group:
        made.instance_group.add()
    for at, group in enumerate(made.instance_group):
        group.name = group.name or f"{name}_{at}"
        group.kind = group.KIND_GPU if group.kind == group.KIND_AUTO else group.kind
        group.count = group.count or 1
        if group.kind == group.KIND_GPU and not group.gpus:
            group.gpus.append(0)
    return made


def needs_reload(old: Config, new: Config) -> bool:
    """True when Triton loads anew for this change; both completed. Ensembles always do."""
    if new.platform == "ensemble":
        return True
    bare = []
    for config in (old, new):
        copy = _empty()
        copy.CopyFrom(config)
        for name in _FREE_FIELDS:
            copy.ClearField(name)
        bare.append(copy)
    return bool(bare[0] != bare[1])


def scheduling(config: Config) -> Scheduling:
    """What of a completed configuration the batcher follows; priorities, ordering and the cache are accepted only."""
    batcher, policy = config.dynamic_batching, config.dynamic_batching.default_queue_policy
    preferred = tuple(batcher.preferred_batch_size)
    return Scheduling(
        max_batch_size=config.max_batch_size,
        instances=instances(config),
        dynamic_batching=config.HasField("dynamic_batching"),
        max_queue_delay_us=batcher.max_queue_delay_microseconds,
        preferred_batch_sizes=() if preferred == (config.max_batch_size,) else preferred,
        max_queue_size=policy.max_queue_size,
        queue_timeout_us=policy.default_timeout_microseconds if policy.timeout_action == policy.REJECT else 0,
    )


def instances(config: Config) -> int:
    """Of all groups together."""
    return sum(group.count for group in config.instance_group)


def max_batch_size(config: Config) -> int:
    """The largest batch that one request may have; 0 = no batch dimension."""
    return int(config.max_batch_size)


def wanted_versions(config: Config, folders: list[int]) -> list[int]:
    """The folders that the version policy serves, ascending."""
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return sorted(folders)
    if choice == "specific":
        return sorted(set(folders) & set(policy.specific.versions))
    return sorted(folders)[-max(1, policy.latest.num_versions) :]


def tensors(model: Served, models: dict[str, Model]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs; an ensemble has those of its first and its last step."""
    if isinstance(model, Ensemble):
        return models[model.steps[0]].inputs, models[model.steps[-1]].outputs
    return model.inputs, model.outputs


def config_json(config: Config) -> dict[str, Any]:
    """The answer of `/v2/models/X/config`: defaults told, messages that are not set left out, as by Triton 2.51.0."""
    found: dict[str, Any] = _told(config)
    return found


def _told(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in _NEWER_FIELDS:
            continue
        value = getattr(message, field.name)
        if pbtxt.is_map(field):
            found[field.name] = {
                str(key): _value(field.message_type.fields_by_name["value"], value[key]) for key in value
            }
        elif _is_repeated(field):
            found[field.name] = [_value(field, one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            continue
        else:
            found[field.name] = _value(field, value)
    return found


_NEWER_FIELDS = frozenset({"model_metrics", "max_inflight_requests"})
"""Of the schema, but not of Triton 2.51.0."""


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _told(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value


def config_pbtxt(model: Served, models: dict[str, Model]) -> str:
    """The file that somebody wrote: only what differs from the defaults."""
    inputs, outputs = tensors(model, models)
    lines = [
        f'name: "{model.name}"',
        f'platform: "{"ensemble" if isinstance(model, Ensemble) else "tensorrt_plan"}"',
        f"max_batch_size: {model.max_batch_size if isinstance(model, Ensemble) else model.scheduling.max_batch_size}",
    ]
    if isinstance(model, Model) and model.pinned:
        lines.append(f"version_policy: {{ specific {{ versions: [ {model.version} ] }} }}")
    for kind, group in (("input", inputs), ("output", outputs)):
        for tensor in group:
            dims = ", ".join(map(str, tensor.dims))
            lines.append(f'{kind} [ {{ name: "{tensor.name}" data_type: {tensor.data_type} dims: [ {dims} ] }} ]')
    lines += _ensemble_lines(model, models) if isinstance(model, Ensemble) else _scheduling_lines(model)
    return "\n".join(lines) + "\n"


def _scheduling_lines(model: Model) -> list[str]:
    scheduling = model.scheduling
    lines = [f"instance_group [ {{ count: {scheduling.instances} kind: KIND_GPU gpus: [ 0 ] }} ]"]
    if scheduling.max_queue_delay_us:
        lines.append(f"dynamic_batching {{\n  max_queue_delay_microseconds: {scheduling.max_queue_delay_us}\n}}")
    else:
        lines.append("dynamic_batching { }")
    return lines


def _ensemble_lines(ensemble: Ensemble, models: dict[str, Model]) -> list[str]:
    lines = ["ensemble_scheduling {"]
    for step in ensemble.steps:
        lines += ["  step {", f'    model_name: "{step}"', "    model_version: -1"]
        for kind, group in (("input_map", models[step].inputs), ("output_map", models[step].outputs)):
            lines += [f'    {kind} {{ key: "{tensor.name}" value: "{tensor.name}" }}' for tensor in group]
        lines.append("  }")
    return [*lines, "}"]
