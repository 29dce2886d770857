"""Model configurations in both of Triton's forms: the JSON of `/config` (defaults filled in) and config.pbtxt."""

from __future__ import annotations

from typing import Any

from console.simulator.scenes import Ensemble, Model, Tensor

Served = Model | Ensemble

_OUTPUT_EXTRAS: dict[str, Any] = {"label_filename": "", "is_shape_tensor": False, "is_non_linear_format_io": False}


def tensors(model: Served, models: dict[str, Model]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs; an ensemble has those of its first and its last step."""
    if isinstance(model, Ensemble):
        return models[model.steps[0]].inputs, models[model.steps[-1]].outputs
    return model.inputs, model.outputs


def max_batch_size(model: Served) -> int:
    """The largest batch that one request may have."""
    return model.max_batch_size if isinstance(model, Ensemble) else model.scheduling.max_batch_size


def config_json(model: Served, models: dict[str, Model]) -> dict[str, Any]:
    """The answer of `/v2/models/X/config`, keys in the order and with the defaults of Triton 2.51.0."""
    inputs, outputs = tensors(model, models)
    ensemble = isinstance(model, Ensemble)
    head: dict[str, Any] = {
        "name": model.name,
        "platform": "ensemble" if ensemble else "tensorrt_plan",
        "backend": "" if ensemble else "tensorrt",
        "runtime": "",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": max_batch_size(model),
        "input": [_input(tensor) for tensor in inputs],
        "output": [{"name": t.name, "data_type": t.data_type, "dims": list(t.dims), **_OUTPUT_EXTRAS} for t in outputs],
        "batch_input": [],
        "batch_output": [],
    }
    tail: dict[str, Any] = {
        "default_model_filename": "" if ensemble else "model.plan",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
    }
    if isinstance(model, Ensemble):
        steps = {"ensemble_scheduling": {"step": _steps(model, models)}, "instance_group": []}
        return head | steps | tail | {"model_transaction_policy": {"decoupled": False}}
    return head | _scheduling(model) | tail


def _input(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "data_type": tensor.data_type,
        "format": "FORMAT_NONE",
        "dims": list(tensor.dims),
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": False,
        "is_non_linear_format_io": False,
    }


def _steps(ensemble: Ensemble, models: dict[str, Model]) -> list[dict[str, Any]]:
    return [
        {
            "model_name": step,
            "model_version": -1,
            "input_map": {tensor.name: tensor.name for tensor in models[step].inputs},
            "output_map": {tensor.name: tensor.name for tensor in models[step].outputs},
            "model_namespace": "",
        }
        for step in ensemble.steps
    ]


def _scheduling(model: Model) -> dict[str, Any]:
    scheduling = model.scheduling
    return {
        "optimization": {
            "priority": "PRIORITY_DEFAULT",
            "input_pinned_memory": {"enable": True},
            "output_pinned_memory": {"enable": True},
            "gather_kernel_buffer_threshold": 0,
            "eager_batching": False,
        },
        "dynamic_batching": {
            # Triton fills in the largest batch where the file names no preferred size
            "preferred_batch_size": list(scheduling.preferred_batch_sizes) or [scheduling.max_batch_size],
            "max_queue_delay_microseconds": scheduling.max_queue_delay_us,
            "preserve_ordering": False,
            "priority_levels": 0,
            "default_priority_level": 0,
            "priority_queue_policy": {},
        },
        "instance_group": [
            {
                "name": f"{model.name}_0",
                "kind": "KIND_GPU",
                "count": scheduling.instances,
                "gpus": [0],
                "secondary_devices": [],
                "profile": [],
                "passive": False,
                "host_policy": "",
            }
        ],
    }


def config_pbtxt(model: Served, models: dict[str, Model]) -> str:
    """The file that somebody wrote: only what differs from the defaults."""
    inputs, outputs = tensors(model, models)
    lines = [
        f'name: "{model.name}"',
        f'platform: "{"ensemble" if isinstance(model, Ensemble) else "tensorrt_plan"}"',
        f"max_batch_size: {max_batch_size(model)}",
    ]
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
    for step in _steps(ensemble, models):
        lines += ["  step {", f'    model_name: "{step["model_name"]}"', "    model_version: -1"]
        for kind in ("input_map", "output_map"):
            lines += [f'    {kind} {{ key: "{key}" value: "{value}" }}' for key, value in step[kind].items()]
        lines.append("  }")
    return [*lines, "}"]
