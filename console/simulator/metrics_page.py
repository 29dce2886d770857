"""Triton's metrics page as text, families, HELP texts and order as in the page recorded from 2.51.0.

Lines of a model are made anew only when one of its counters changed, so that a thousand models are cheap to serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from console.planning.batcher import FAILURE_REASONS, NS_PER_US, Statistics
from console.simulator.box import Box
from console.simulator.card import MIB, TOTAL_MIB, UUID
from console.simulator.host import MEMORY, MEMORY_USED
from console.simulator.serving import Version

_Value = Callable[[Version], int]


def _us(name: str) -> _Value:
    # metrics are whole microseconds where statistics are nanoseconds
    return lambda model: int(getattr(model.statistics, name)) // NS_PER_US


def _count(name: str) -> _Value:
    return lambda model: int(getattr(model.statistics, name))


_CACHED = "(includes cached requests)"
_UNCACHED = "(does not include cached requests)"
_SUCCESS = (
    "nv_inference_request_success",
    "Number of successful inference requests, all batch sizes",
    "counter",
    _count("success_count"),
)
_FAILURE_HEAD = (
    "# HELP nv_inference_request_failure Number of failed inference requests, all batch sizes\n"
    "# TYPE nv_inference_request_failure counter\n"
)
_FAMILIES: tuple[tuple[str, str, str, _Value], ...] = (
    ("nv_inference_count", f"Number of inferences performed {_UNCACHED}", "counter", _count("inference_count")),
    (
        "nv_inference_exec_count",
        f"Number of model executions performed {_UNCACHED}",
        "counter",
        _count("execution_count"),
    ),
    (
        "nv_inference_request_duration_us",
        f"Cumulative inference request duration in microseconds {_CACHED}",
        "counter",
        _us("success_ns"),
    ),
    (
        "nv_inference_queue_duration_us",
        f"Cumulative inference queuing duration in microseconds {_CACHED}",
        "counter",
        _us("queue_ns"),
    ),
    (
        "nv_inference_compute_input_duration_us",
        f"Cumulative compute input duration in microseconds {_UNCACHED}",
        "counter",
        _us("input_ns"),
    ),
    (
        "nv_inference_compute_infer_duration_us",
        f"Cumulative compute inference duration in microseconds {_UNCACHED}",
        "counter",
        _us("infer_ns"),
    ),
    (
        "nv_inference_compute_output_duration_us",
        f"Cumulative inference compute output duration in microseconds {_UNCACHED}",
        "counter",
        _us("output_ns"),
    ),
    (
        "nv_inference_pending_request_count",
        "Instantaneous number of pending requests awaiting execution per-model.",
        "gauge",
        lambda model: model.pending,
    ),
)
_HEADS = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n" for name, text, kind, _ in (_SUCCESS, *_FAMILIES)]


class MetricsPage:
    """Builds the page for a box."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._lines: dict[tuple[str, int], tuple[Version, tuple[int, int, int, int], list[str]]] = {}

    def render(self) -> bytes:
        """The whole page."""
        server = self._box.server
        models = [self._model_lines(version) for version in (server.models.ready() if server is not None else ())]
        parts: list[str] = []
        for index, head in enumerate([_HEADS[0], _FAILURE_HEAD, *_HEADS[1:]]):
            parts.append(head)
            parts.extend(lines[index] for lines in models)
        parts.extend(self._server_lines())
        return "".join(parts).encode()

    def _model_lines(self, model: Version) -> list[str]:
        key, revision = (model.name, model.version), model.revision
        kept = self._lines.get(key)
        if kept is not None and kept[0] is model and kept[1] == revision:
            return kept[2]
        labels = f'model="{model.name}",version="{model.version}"'
        lines = [f"{family}{{{labels}}} {value(model)}\n" for family, _, _, value in (_SUCCESS, *_FAMILIES)]
        lines.insert(1, _failures(model.name, model.version, model.statistics))
        self._lines[key] = (model, revision, lines)
        return lines

    def _server_lines(self) -> Iterator[str]:
        card = self._box.card
        gpu = f'{{gpu_uuid="{UUID}"}}'
        gauges: tuple[tuple[str, str, str, str, float | int], ...] = (
            ("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", gpu, round(card.util / 100, 2)),
            ("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "gauge", gpu, TOTAL_MIB * MIB),
            ("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "gauge", gpu, card.used_mib * MIB),
            ("nv_gpu_power_usage", "GPU power usage in watts", "gauge", gpu, round(card.power_w, 3)),
            ("nv_gpu_power_limit", "GPU power management limit in watts", "gauge", gpu, int(card.power_limit_w)),
            (
                "nv_energy_consumption",
                "GPU energy consumption in joules since the Triton Server started",
                "counter",
                gpu,
                card.energy_mj / 1000,
            ),
            (
                "nv_pinned_memory_pool_total_bytes",
                "Pinned memory pool total memory size, in bytes",
                "gauge",
                "",
                268435456,
            ),
            ("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", "gauge", "", 1114112),
            ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", "gauge", "", round(0.1 + card.util / 500, 6)),
            ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", "gauge", "", MEMORY),
            ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", "gauge", "", MEMORY_USED),
        )
        for name, text, kind, labels, value in gauges:
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{labels} {value}\n"


def _failures(name: str, version: int, statistics: Statistics) -> str:
    return "".join(
        f'nv_inference_request_failure{{model="{name}",reason="{reason}",version="{version}"}} '
        f"{statistics.failures[reason]}\n"
        for reason in FAILURE_REASONS
    )
