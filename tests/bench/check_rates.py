"""Checks the product's per-model figures against raw answers of the same polls, by arithmetic that shares no code.

    python -m tests.bench.check_rates [--seconds 40] [--port 18000] [--out FILE]

A recording proxy stands between the product's statistics source and Triton. Each window that the product reports is
computed again here from the two raw answers that it spans (found by their times), and the greatest differences are
printed. Drive the lab meanwhile (`scripts/lab traffic ...`), reload a model by hand, swap a version.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from console.clients.triton import TritonAddress
from console.core.poller import Poller
from console.sources.triton import StatsSource
from tests.bench.proxy import Proxy

Raw = dict[tuple[str, str], dict[str, Any]]


def raw_samples(kept: list[tuple[str, float, bytes]]) -> list[tuple[float, Raw]]:
    """(time, statistics by model and version) of each kept answer."""
    return [
        (mono, {(one["name"], one["version"]): one for one in json.loads(body)["model_stats"]})
        for _, mono, body in kept
    ]


def unwrapped(samples: list[tuple[float, Raw]], key: tuple[str, str]) -> list[tuple[float, dict[str, float]]]:
    """The model's counters made monotone: what began anew adds to what was."""
    out: list[tuple[float, dict[str, float]]] = []
    base: dict[str, float] = defaultdict(float)
    last: dict[str, float] = {}
    for mono, stats in samples:
        if key not in stats:
            continue
        flat = flatten(stats[key])
        if (last and flat["success"] < last["success"]) or (last and flat["executions"] < last["executions"]):
            for name, value in last.items():
                base[name] += value
        out.append(
            (
                mono,
                {name: value + base[name] for name, value in flat.items()}
                | {n: base[n] for n in base if n not in flat},
            )
        )
        last = flat
    return out


def flatten(one: dict[str, Any]) -> dict[str, float]:
    """The figures needed, by plain names."""
    stats = one["inference_stats"]
    flat = {
        "success": stats["success"]["count"],
        "success_ns": stats["success"]["ns"],
        "queue": stats["queue"]["count"],
        "queue_ns": stats["queue"]["ns"],
        "infer": stats["compute_infer"]["count"],
        "compute_ns": sum(stats[f"compute_{part}"]["ns"] for part in ("input", "infer", "output")),
        "inferences": one["inference_count"],
        "executions": one["execution_count"],
        "hits": stats["cache_hit"]["count"],
    }
    flat["busy_ns"] = sum(
        batch[f"compute_{part}"]["ns"] for batch in one["batch_stats"] for part in ("input", "infer", "output")
    )
    return {name: float(value) for name, value in flat.items()}


def expected(start: tuple[float, dict[str, float]], end: tuple[float, dict[str, float]]) -> dict[str, float | None]:
    """The window between two raw samples, as triton.md 2.3 derives it."""
    span = end[0] - start[0]
    d = {name: end[1][name] - start[1].get(name, 0.0) for name in end[1]}
    return {
        "rate": d["success"] / span,
        "request_ms": d["success_ns"] / d["success"] / 1e6 if d["success"] else None,
        "queue_ms": d["queue_ns"] / (d["queue"] - d["hits"]) / 1e6 if d["queue"] - d["hits"] else None,
        "compute_ms": d["compute_ns"] / d["infer"] / 1e6 if d["infer"] else None,
        "mean_batch": d["inferences"] / d["executions"] if d["executions"] else None,
        "busy_seconds": d["busy_ns"] / 1e9,
    }


def compare(
    samples: list[tuple[float, Raw]], windows: list[tuple[float, tuple[str, str], Any]]
) -> dict[str, tuple[float, str]]:
    """Greatest relative difference by figure, with where it was."""
    worst: dict[str, tuple[float, str]] = {}
    series = {key: unwrapped(samples, key) for key in {key for _, key, _ in windows}}
    for mono, key, window in windows:
        end = min(series[key], key=lambda sample: abs(sample[0] - mono))
        start = min(series[key], key=lambda sample: abs(sample[0] - (end[0] - window.span)))
        if start is end or abs(end[0] - start[0] - window.span) > 0.05:
            worst["unmatched"] = (worst.get("unmatched", (0.0, ""))[0] + 1, f"{key} span {window.span:.2f}")
            continue
        for name, value in expected(start, end).items():
            got = getattr(window, name)
            if value is None and got is None:
                continue
            if value is None or got is None:
                difference = 1.0
            else:
                difference = abs(got - value) / max(abs(value), 1e-9) if value else abs(got)
            if difference > worst.get(name, (-1.0, ""))[0]:
                worst[name] = (difference, f"{key} at {mono:.1f}: product {got}, raw {value}, span {window.span:.3f}")
    return worst


def main() -> None:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--port", type=int, default=18000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    windows: list[tuple[float, tuple[str, str], Any]] = []
    stop = threading.Event()
    with Proxy(options.port, keep=("/v2/models/stats",)) as proxy:
        address = TritonAddress(host="127.0.0.1", http_port=proxy.port)
        poller = Poller(StatsSource(lambda: address), lambda reading: None)
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            reading = poller.step()
            if reading.value is not None and reading.error is None and reading.mono is not None:
                for flow in reading.value.flows:
                    spans = (window for window in (flow.w1, flow.w10, flow.w30) if window is not None)
                    windows += [(reading.mono, (flow.key.name, flow.key.version), window) for window in spans]
            stop.wait(1.0)
        if options.out:
            proxy.save(options.out)
        samples = raw_samples(proxy.kept)
    worst = compare(samples, windows)
    print(f"{len(windows)} windows of {len({key for _, key, _ in windows})} models from {len(samples)} polls")
    for name, (difference, where) in sorted(worst.items()):
        print(f"  {name:<13} greatest difference {difference:10.2e}   {where}")


if __name__ == "__main__":
    main()
