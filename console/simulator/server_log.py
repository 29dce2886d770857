"""What the simulated Triton and its container wrote: log lines in Triton's own form, the past ones included."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from console.simulator.configs import Served
from console.simulator.scenes import TENSORRT, Model, Scene

NS_PER_SECOND = 1_000_000_000
VERSION = "2.51.0"
EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the container's log; stream is 1 for stdout, 2 for stderr."""

    at_ns: int
    stream: int
    text: str


def triton_line(at_ns: int, level: str, where: str, message: str) -> LogLine:
    """A line as Triton's default log format writes it, times in UTC: `I1130 09:08:48.067053 1 file.cc:1] "text"`."""
    stamp = datetime.fromtimestamp(at_ns / NS_PER_SECOND, tz=UTC).strftime("%m%d %H:%M:%S.%f")
    return LogLine(at_ns, 2, f'{level}{stamp} 1 {where}] "{message}"')


def start_lines(scene: Scene, served: tuple[Served, ...], started_ns: int) -> Iterator[LogLine]:
    """The log of a start, in order: banner, loads, the table of models, the options, the ports."""
    if scene.exit is not None:
        yield LogLine(started_ns, 2, scene.exit.last_line)
        return
    yield from _banner(started_ns)
    at = started_ns + NS_PER_SECOND // 2
    yield triton_line(
        at,
        "I",
        "pinned_memory_manager.cc:277",
        "Pinned memory pool is created at '0x7f2c8c000000' with size 268435456",
    )
    yield triton_line(
        at,
        "I",
        "cuda_memory_manager.cc:107",
        "CUDA memory pool is created on device 0 with size 67108864",
    )
    for number, model in enumerate(served):
        yield triton_line(
            at + number * 1_000_000, "I", "model_lifecycle.cc:472", f"loading: {model.name}:{model.version}"
        )
    # a second or so for each of a few models; a thousand are through within a minute too
    gap = min(1_400_000_000, 60 * NS_PER_SECOND // len(served))
    for number, model in enumerate(served, start=1):
        yield from _load_result(model, at + number * gap)
    end = at + (len(served) + 1) * gap
    yield from _tables(served, end)
    for offset, text in (
        (1, "Started HTTPService at 0.0.0.0:8000"),
        (2, "Started Metrics Service at 0.0.0.0:8002"),
    ):
        yield triton_line(end + offset * 40_000_000, "I", "http_server.cc:4725", text)


def _banner(at_ns: int) -> Iterator[LogLine]:
    for text in (
        "",
        "=============================",
        "== Triton Inference Server ==",
        "=============================",
        "",
        "NVIDIA Release 24.10 (build 117176361)",
        f"Triton Server Version {VERSION}",
        "",
    ):
        yield LogLine(at_ns, 1, text)


def _load_result(model: Served, at_ns: int) -> Iterator[LogLine]:
    if not isinstance(model, Model) or model.failed is None:
        yield triton_line(at_ns, "I", "model_lifecycle.cc:839", f"successfully loaded '{model.name}'")
        return
    logged = (
        "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is not compatible with "
        f"this version of TensorRT, expecting library version {TENSORRT} got 8.5.3.1, please rebuild.)"
    )
    yield triton_line(at_ns - 643_000_000, "E", "logging.cc:40", logged)
    yield triton_line(
        at_ns,
        "E",
        "model_lifecycle.cc:642",
        f"failed to load '{model.name}' version {model.version}: {model.failed}",
    )


def _tables(served: tuple[Served, ...], at_ns: int) -> Iterator[LogLine]:
    rows = [
        (
            model.name,
            str(model.version),
            f"UNAVAILABLE: {model.failed}" if isinstance(model, Model) and model.failed else "READY",
        )
        for model in sorted(served, key=lambda model: model.name)
    ]
    yield LogLine(at_ns, 2, _head(at_ns, "server.cc:674"))
    for text in _table(("Model", "Version", "Status"), rows):
        yield LogLine(at_ns, 2, text)
    options = [
        ("server_id", "triton"),
        ("server_version", VERSION),
        ("server_extensions", " ".join(EXTENSIONS)),
        ("model_repository_path[0]", "/models"),
        ("model_control_mode", "MODE_NONE"),
        ("strict_model_config", "0"),
        ("rate_limit", "OFF"),
        ("pinned_memory_pool_byte_size", "268435456"),
        ("strict_readiness", "1"),
        ("exit_timeout", "30"),
        ("cache_enabled", "0"),
    ]
    yield LogLine(at_ns, 2, _head(at_ns, "tritonserver.cc:2598"))
    for text in _table(("Option", "Value"), options):
        yield LogLine(at_ns, 2, text)


def _head(at_ns: int, where: str) -> str:
    return triton_line(at_ns, "I", where, "").text.removesuffix('""')


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (header, *rows)
    ]
    return [rule, lines[0], rule, *lines[1:], rule, ""]


def passing_line(rng: random.Random, at_ns: int) -> LogLine:
    """Something harmless that a serving Triton writes now and then."""
    return rng.choice(
        (
            triton_line(at_ns, "W", "http_server.cc:3525", "failed to read body: connection reset"),
            triton_line(at_ns, "I", "http_server.cc:322", "signaling HTTP client that connection is closing"),
        )
    )
