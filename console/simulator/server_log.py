"""What the simulated Triton and its container wrote: log lines in Triton's own form, the past ones included."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from console.core.triton_command import control_mode
from console.simulator.configs import Served
from console.simulator.scenes import Model, Scene

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


def start_lines(scene: Scene, command: Sequence[str], started_ns: int) -> Iterator[LogLine]:
    """The log of a start that was long ago, in order: banner, loads, the table of models, the options, the ports."""
    served: tuple[Served, ...] = (*scene.models, *scene.ensembles)
    yield from banner(started_ns)
    at = started_ns + NS_PER_SECOND // 2
    yield from memory_lines(at)
    for model in served:
        yield triton_line(at, "I", "model_lifecycle.cc:472", f"loading: {model.name}:{model.version}")
        at += round((model.load_s if isinstance(model, Model) else 0.001) * NS_PER_SECOND)
        yield from _load_result(model, at)
    yield from tables([(model.name, str(model.version), _failed(model)) for model in served], command, at)
    yield from started_lines(at + 40_000_000)


def memory_lines(at_ns: int) -> Iterator[LogLine]:
    """What it says of its pools."""
    for where, text in (
        ("pinned_memory_manager.cc:277", "Pinned memory pool is created at '0x7f2c8c000000' with size 268435456"),
        ("cuda_memory_manager.cc:107", "CUDA memory pool is created on device 0 with size 67108864"),
    ):
        yield triton_line(at_ns, "I", where, text)


def started_lines(at_ns: int) -> Iterator[LogLine]:
    """It begins to answer."""
    for offset, text in ((0, "Started HTTPService at 0.0.0.0:8000"), (1, "Started Metrics Service at 0.0.0.0:8002")):
        yield triton_line(at_ns + offset * 40_000_000, "I", "http_server.cc:4725", text)


def _failed(model: Served) -> str:
    return (model.release(model.version).failed or "") if isinstance(model, Model) else ""


def banner(at_ns: int) -> Iterator[LogLine]:
    """What the image says at its start."""
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
    failed = _failed(model)
    if not failed:
        yield triton_line(at_ns, "I", "model_lifecycle.cc:839", f"successfully loaded '{model.name}'")
        return
    yield triton_line(at_ns - 143_000_000, "E", "logging.cc:40", failed.partition("engine: ")[2])
    yield triton_line(at_ns, *failed_line(model.name, model.version, failed))


def failed_line(name: str, version: int, reason: str) -> tuple[str, str, str]:
    """Level, place and text of the line that a failed load leaves."""
    return "E", "model_lifecycle.cc:642", f"failed to load '{name}' version {version}: {reason}"


def tables(models: Sequence[tuple[str, str, str]], command: Sequence[str], at_ns: int) -> Iterator[LogLine]:
    """Models (name, version, why it failed) and options, as two tables."""
    rows = [(name, version, f"UNAVAILABLE: {why}" if why else "READY") for name, version, why in sorted(models)]
    yield LogLine(at_ns, 2, _head(at_ns, "server.cc:674"))
    for text in _table(("Model", "Version", "Status"), rows):
        yield LogLine(at_ns, 2, text)
    options = [
        ("server_id", "triton"),
        ("server_version", VERSION),
        ("server_extensions", " ".join(EXTENSIONS)),
        ("model_repository_path[0]", "/models"),
        ("model_control_mode", f"MODE_{(control_mode(command) or 'none').upper()}"),
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


def verbose_line(at_ns: int, served: int) -> LogLine:
    """What it writes with log_verbose_level 1, the many lines of a second told in one."""
    return triton_line(at_ns, "I", "infer_request.cc:900", f"[request id: <id_unknown>] prepared: {served} requests")
