"""E03, E16, E17, E18: the GPU inside, its memory, its users, who may open it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.checks.container_gpu import container_user, gpu_inside, gpu_memory, other_users
from console.core.facts import AnswerFact, FileFact
from console.core.model import GpuProcess
from tests.checks.container_told import NOTHING, OTHER, OWN, PID, cards, container, finding
from tests.checks.told import DENIED, folder

BARE = container(HostConfig={"Devices": []})
ASKED = container(
    HostConfig={"Devices": []}, Config={"CreateCommand": ["podman", "run", "--device", "nvidia.com/gpu=all", "x"]}
)
STOPPED = container(State={"Status": "exited"})
NO_NVML = {"error": {"code": 18, "text": "Driver/library version mismatch"}, "box": None}
ALL_SKIP = [*NOTHING, ({"variables": {"gpu": ()}}, "none", "no NVIDIA device")]
LOST = "Failed to initialize NVML: Unknown Error"


@pytest.mark.parametrize(
    ("inspect", "answers", "sign", "text"),
    [
        (container(), {}, "ok", "1 of its processes use the card (5.0 GiB)"),
        (container(), {"@nvml": cards(replace(OWN, memory=None))}, "ok", "memory not told"),
        (container(), {"@nvml": cards(OWN), "@podman.log": ["all is well"]}, "ok", "use the card"),
        (BARE, {"@nvml": cards()}, "fail", "it was made without a GPU"),
        (BARE, {"@nvml": NO_NVML}, "fail", "it was made without a GPU"),
        (
            BARE,
            {"@nvml": cards(), "@podman.log": ["The NVIDIA Driver was not detected."]},
            "fail",
            "made without a GPU",
        ),
        (
            container(),
            {"@nvml": cards(), "@podman.log": ["The NVIDIA Driver was not detected."]},
            "fail",
            "without a GPU",
        ),
        (
            container(),
            {"@nvml": cards(), "@podman.log": ["Failed to initialize NVML: Insufficient Permissions"]},
            "fail",
            "may not open the GPU's device nodes",
        ),
        (container(), {"@nvml": cards(OWN), "@podman.log": [LOST]}, "fail", "has lost the GPU that it had"),
        (
            container(),
            {"@nvml": cards(), "@podman.log": ["Failed to initialize NVML: Driver/library version mismatch"]},
            "fail",
            "two versions",
        ),
        (container(), {"@nvml": NO_NVML}, "note", "who uses the card is not told (NVML: Driver/library"),
        (container(), {"@nvml": cards(processes=None)}, "note", "NVML lists no processes"),
        (ASKED, {"@nvml": cards(processes=None)}, "note", "its nodes are inside"),
        (container(), {"@nvml": cards()}, "warn", "none of its processes uses the card"),
        (container(), {"@nvml": cards(OTHER)}, "warn", "none of its processes uses the card"),
        (container(), {"@nvml": cards(GpuProcess(7, "C", None))}, "note", "whose processes use the card is not told"),
        (container(HostConfig={"Devices": [], "Privileged": True}), {"@nvml": cards(OWN)}, "ok", "use the card"),
        (
            container(ImageName="tritonserver:24.05-cpu-only-py3", HostConfig={"Devices": []}),
            {"@nvml": cards()},
            "note",
            "CPU",
        ),
        (STOPPED, {}, "none", "does not run"),
        (container(HostConfig={"Devices": "garbage"}), {"@nvml": {"box": {"gpus": 7}}}, "fail", "made without a GPU"),
    ],
)
def test_inside(inspect: Any, answers: Any, sign: str, text: str) -> None:
    found = finding(gpu_inside, inspect=inspect, answers=answers)
    assert found.sign == sign
    assert text in found.text


def test_nodes_inside_count_though_podman_does_not_list_them() -> None:
    """Rootless: they are mounts of the host's nodes."""
    inside = {f"/proc/{PID}/root/dev/nvidia0": FileFact("char")}
    assert finding(gpu_inside, inspect=BARE, answers={"@nvml": cards()}, files=inside).sign == "warn"
    blind = {f"/proc/{PID}/root": DENIED}
    assert finding(gpu_inside, inspect=BARE, answers={"@nvml": cards()}, files=blind).sign == "fail"


def test_a_container_without_a_gpu_is_made_anew_with_one() -> None:
    found = finding(gpu_inside, inspect=BARE, answers={"@nvml": cards()})
    assert found.fix is not None
    assert (found.fix.kind, found.fix.action) == ("B", "container.recreate")
    assert found.fix.values == {"devices": "nvidia.com/gpu=all"}
    assert found.data["cause"] == "not-requested"


@pytest.mark.parametrize(("changes", "sign", "text"), ALL_SKIP)
def test_skips(changes: Any, sign: str, text: str) -> None:
    for judge in (gpu_inside, gpu_memory, other_users, container_user):
        found = finding(judge, **dict(changes))
        assert (found.sign, text in found.text) == (sign, True), judge


# ---------------------------------------------------------------------------------------------------------------- room

GIB = 1 << 30
CONFIGS = {"ranking": {"1": {"backend": "tensorrt", "instance_group": [{"count": 4}]}, "2": {"backend": "tensorrt"}}}


@pytest.mark.parametrize(
    ("answer", "configs", "sign", "text"),
    [
        (cards(OWN), CONFIGS, "ok", "6.0 GiB of 15.0 GiB in use (40%)"),
        (cards(OWN, memory_used=14 * GIB), CONFIGS, "warn", "GPU 0: 14.0 GiB of 15.0 GiB in use (93%)"),
        (cards(OWN, memory_used=14 * GIB), None, "warn", "93%"),
        (cards(OWN, memory_used=14 * GIB), {"x": ["garbage"], "y": 7}, "warn", "93%"),
        (cards(OWN, memory_used=14 * GIB), {"llm": {"1": {"backend": "vllm"}}}, "note", "on purpose"),
        (cards(OWN, memory_used=None), CONFIGS, "unknown", "does not tell the memory"),
        (NO_NVML, CONFIGS, "unknown", "Driver/library version mismatch"),
        (AnswerFact(why="timed out"), CONFIGS, "unknown", "timed out"),
        ({"garbage": 1}, CONFIGS, "unknown", "no answer"),
    ],
)
def test_memory(answer: Any, configs: Any, sign: str, text: str) -> None:
    found = finding(gpu_memory, answers={"@nvml": answer, "@triton.configs": configs})
    assert found.sign == sign
    assert text in found.text


def test_models_stand_beside_a_full_card() -> None:
    found = finding(gpu_memory, answers={"@nvml": cards(OWN, memory_used=14 * GIB), "@triton.configs": CONFIGS})
    assert found.evidence[-1].text == "ranking: tensorrt, 4 instances in 2 versions"


# --------------------------------------------------------------------------------------------------------------- others


@pytest.mark.parametrize(
    ("answer", "sign", "text"),
    [
        (cards(OWN), "ok", "only Triton"),
        (cards(), "ok", "nobody"),
        (cards(OWN, OTHER), "warn", "python3 (99, ana) 3.0 GiB"),
        (cards(OWN, OTHER, replace(OTHER, pid=100)), "warn", "2 others: python3 (99, ana)"),
        (cards(OWN, replace(OTHER, kind="C+G")), "warn", "python3"),
        (cards(OWN, replace(OTHER, kind="G", command="/usr/libexec/Xorg")), "note", "Xorg (99, ana) 3.0 GiB draws"),
        (cards(OWN, replace(OTHER, command="nvidia-cuda-mps-server")), "ok", "only Triton"),
        (cards(OWN, GpuProcess(7, "C", None)), "unknown", "whose 1 processes are is not told"),
        (cards(OWN, OTHER, GpuProcess(7, "C", None)), "warn", "python3"),
        (cards(processes=None), "unknown", "NVML lists no processes"),
        (cards(OWN, replace(OTHER, command=None, user=None, memory=None)), "warn", "? (99) –"),
        (NO_NVML, "unknown", "mismatch"),
    ],
)
def test_others(answer: Any, sign: str, text: str) -> None:
    found = finding(other_users, answers={"@nvml": answer})
    assert found.sign == sign
    assert text in found.text


# -------------------------------------------------------------------------------------------------------------- rights


def _node(mode: int, gid: int = 39) -> FileFact:
    return FileFact("char", mode=mode, uid=0, gid=gid, device=(195, 0))


def _status(uid: int, gid: int, *groups: int) -> dict[str, str]:
    text = (
        f"Name:\ttritonserver\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\nGroups:\t{groups}\n"
    )
    return {f"/proc/{PID}/status": text.replace("(", "").replace(")", "").replace(",", "")}


CLOSED = {"/dev/nvidia0": _node(0o660), "/dev/nvidiactl": _node(0o660), "/dev/nvidia-modeset": _node(0o600)}


@pytest.mark.parametrize(
    ("files", "sign", "text"),
    [
        ({"/dev/nvidia0": _node(0o666), "/dev/nvidia-uvm": _node(0o666)}, "ok", "2 nodes are open to all"),
        ({"/dev/nvidia0": _node(0o666), "/dev/nvidia-modeset": _node(0o600)}, "ok", "1 nodes are open to all"),
        ({**CLOSED, **_status(0, 0)}, "ok", "uid 0 may open them"),
        ({**CLOSED, **_status(1001, 1001, 39)}, "ok", "uid 1001 may open them"),
        (
            {**CLOSED, **_status(1001, 1001, 10)},
            "fail",
            "uid 1001 of the host, as which it runs, may not open /dev/nvidia0",
        ),
        (CLOSED, "unknown", "its user is not told"),
        ({**CLOSED, f"/proc/{PID}/status": "garbage\x00"}, "unknown", "its user is not told"),
        ({**CLOSED, f"/proc/{PID}/status": DENIED}, "unknown", "permission denied"),
        ({"/dev": folder("sda")}, "none", "no /dev/nvidia* nodes"),
        ({"/dev": DENIED}, "unknown", "permission denied"),
    ],
)
def test_rights(files: Any, sign: str, text: str) -> None:
    found = finding(container_user, files=files)
    assert found.sign == sign
    assert text in found.text


def test_a_stopped_container_has_no_user_yet() -> None:
    found = finding(container_user, inspect=STOPPED, files=CLOSED, variables={"container_pid": ()})
    assert (found.sign, "it does not run" in found.text) == ("unknown", True)
