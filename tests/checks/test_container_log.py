"""E05: the container's log since its last start."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.container_log import log_markers, since_start
from console.core.facts import AnswerFact
from tests.checks.container_told import NOTHING, container, finding

BANNER = ["=============================", "== Triton Inference Server ==", "============================="]
NOT_DETECTED = "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available."
BUILT_FOR = [
    "ERROR: This container was built for NVIDIA Driver Release 525.85 or later, but",
    "       version 470.199.02 was detected and compatibility mode is UNAVAILABLE.",
]
SHM = "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be"
STARTED = "I1123 10:00:00.000000 1 server.cc:674] started"


@pytest.mark.parametrize(
    ("lines", "sign", "marker", "text"),
    [
        ([STARTED], "ok", "", "none of the known markers in 3 lines"),
        ([NOT_DETECTED], "fail", "driver-not-detected", "without a GPU"),
        (BUILT_FOR, "fail", "built-for-driver", "wants driver 525.85 or later, the host has 470.199.02"),
        (["[[CUDA Driver UNAVAILABLE (cuInit(0) returned 803)]]"], "fail", "cuda-803", "803"),
        ([SHM], "warn", "shm-default", "64 MB"),
        (
            ["W1 1 pinned_memory_manager.cc:271] failed to allocate pinned system memory, f"],
            "warn",
            "pinned-memory",
            "pinned",
        ),
        (["E1 1 x.cc:1] failed to stat file /models"], "fail", "repository-absent", "cannot read /models"),
        (["Failed to initialize NVML: Insufficient Permissions"], "fail", "nvml-permission", "device nodes"),
        (
            ["PermissionError: [Errno 13] Permission denied: '/models/x/1/cache'"],
            "fail",
            "models-permission",
            "/models/x",
        ),
        (["E1 1 log.cc:1] Version tag does not match"], "fail", "engine-version", "TensorRT"),
        ([SHM, NOT_DETECTED], "fail", "driver-not-detected", "(and 1 more)"),
    ],
)
def test_markers(lines: list[str], sign: str, marker: str, text: str) -> None:
    found = finding(log_markers, answers={"@podman.log": [*BANNER, *lines]})
    assert (found.sign, found.data.get("marker", "")) == (sign, marker)
    assert text in found.text
    assert bool(found.evidence) == bool(marker)


def test_only_the_last_start_counts() -> None:
    lines = [*BANNER, NOT_DETECTED, *BANNER, STARTED]
    assert finding(log_markers, answers={"@podman.log": lines}).sign == "ok"
    assert since_start(tuple(lines))[0] == BANNER[1]
    assert finding(log_markers, answers={"@podman.log": [NOT_DETECTED, STARTED]}).sign == "fail"


def test_a_box_without_a_card_needs_no_driver() -> None:
    found = finding(log_markers, answers={"@podman.log": [*BANNER, NOT_DETECTED]}, variables={"gpu": ()})
    assert found.sign == "note"
    assert "no NVIDIA device" in found.text
    assert (
        finding(log_markers, answers={"@podman.log": [*BANNER, NOT_DETECTED, SHM]}, variables={"gpu": ()}).sign
        == "warn"
    )


@pytest.mark.parametrize(
    ("answer", "sign", "text"),
    [
        ([], "unknown", "log is empty"),
        (AnswerFact(why="log driver none", settle="podman logs triton"), "unknown", "log driver none"),
        ({"garbage": 1}, "unknown", "log is empty"),
        (["\x00\xff\ud800" * 1000, 7, None], "ok", "none"),
    ],
)
def test_no_log(answer: Any, sign: str, text: str) -> None:
    found = finding(log_markers, answers={"@podman.log": answer})
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [*NOTHING, ({"inspect": container(State={"Status": "created"})}, "none", "never started")],
)
def test_skips(changes: Any, sign: str, text: str) -> None:
    found = finding(log_markers, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)
