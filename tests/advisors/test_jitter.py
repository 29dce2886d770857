"""V40: a tail that nothing explains, and its suspects."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.core.finding import Finding, Fix, Report
from console.core.history import History
from console.core.model import (
    ContainerState,
    ContainerUsage,
    GpuBox,
    GpuProcess,
    PodmanState,
    Quantile,
    Snapshot,
    Verdict,
)
from tests.advisors.cases import MONO, config, good, once, row, snapshot, window
from tests.advisors.test_gpu import card

GIB = 1 << 30


def box(
    p50: float | None = 1.5, p99: float | None = 12.0, *, busy: float = 0.3, delay_us: int = 0, **other: Any
) -> Snapshot:
    """A model whose runs take 3 ms (10 a second on one instance would be 3 %: `busy` is set as is)."""
    seen = window(rate=100, batch=1.0, wait=0.1, compute=3.0, busy=busy, sizes={1: (3000, 3.0)})
    made = row(seen, config(delay_us=delay_us))
    assert made.metrics is not None
    told = tuple(Quantile(q, ms) for q, ms in ((0.5, p50), (0.99, p99)) if ms is not None)
    return snapshot(replace(made, metrics=replace(made.metrics, request_summary=told)), **other)


def of(found: Snapshot, history: History | None = None) -> Verdict | None:
    return next((one for one in once(found, history) if one.id == "V40"), None)


def test_a_tail_that_nothing_explains() -> None:
    found = of(box())
    assert found is not None
    assert found.title == "m: p99 is 8 times p50 (12.0 of 1.50 ms) though it has room: jitter"
    assert found.trust == "cannot tell"
    assert found.lines[0].startswith("none of the suspects is seen")
    assert found.lines[1] == "the host's settings were not looked at yet (Checks)"
    assert found.proposals == ()


@pytest.mark.parametrize(
    "given",
    [
        {"busy": 0.6},
        {"p99": 5.9},
        {"p50": 3.0, "p99": 12.0, "delay_us": 9_000},
        {"p50": None},
        {"p99": None},
        {"p50": 0.0},
    ],
)
def test_what_explains_it_or_is_not_known_is_no_jitter(given: dict[str, Any]) -> None:
    assert of(box(**given)) is None


def test_suspects_are_named_with_a_remedy_each() -> None:
    history = History()
    for second in range(60):
        history.record(MONO - 60 + second, {"gpu.0.sm_mhz": 1590 if second % 2 else 1200})
    stranger = GpuProcess(7, "C", GIB, command="blender -b", in_container=False)
    governor = Finding("F01", "CPU governor is performance", "tuning", "warn", "cpu0 to cpu15 are on powersave",
                       fix=Fix("P", ("cpupower frequency-set -g performance",), action="tuning.profile"))  # fmt: skip
    fit = Finding("F11", "the server is not swapped out", "tuning", "ok", "swap is unused")
    other = Finding("E06", "model control is not open", "container", "warn", "it is")
    usage = ContainerUsage(throttled_share=0.05)
    container = ContainerState("1" * 64, "triton", "running", "by name", usage=usage)
    found = of(
        box(
            gpu=good("gpu", GpuBox("550.90.07", gpus=(card(processes=(stranger,)),), pci_devices=1)),
            container=good("container", PodmanState("unix:///run/podman/podman.sock", "found", container=container)),
            checks=good("checks", Report(findings=(governor, fit, other)), 300.0),
        ),
        history,
    )
    assert found is not None
    assert found.trust == "likely"
    assert found.lines == (
        "suspect: the SM clock of GPU 0 went between 1200 and 1590 MHz in the last 2 minutes",
        "suspect: 1 other program on GPU 0, beginning with blender",
        "suspect: the container is held back by its CPU limit 5 % of the time",
        "suspect: F01 cpu0 to cpu15 are on powersave",
    )
    assert [(one.action, one.target, one.key) for one in found.proposals] == [
        ("check.fix", "F01", "6"),
        ("", "", "8"),
        ("", "", "8"),
    ]
