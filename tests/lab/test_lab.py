"""The lab itself: that it serves what it says, that the card follows, that it goes away whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import box, paths, podman, processes, repository
from tests.lab.fixtures import Lab, Standin
from tests.lab.nvml import layout, values

pytestmark = pytest.mark.lab

_FEATURES = {"name": "FEATURES", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 6.0]}
_USER = {"name": "USER", "shape": [1, 1], "datatype": "INT64", "data": [9]}


def _wait_for(what: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("path", "tensor", "answer"),
    [
        ("rank/versions/1", _FEATURES, [3.0]),
        ("rank/versions/2", _FEATURES, [3.0]),
        ("recall", _USER, [9.0, 9.25, 9.5, 9.75]),
        ("reco", _USER, [9.375]),
    ],
)
def test_every_model_answers_rightly(lab: Lab, path: str, tensor: object, answer: list[float]) -> None:
    status, body = lab.triton("POST", f"/v2/models/{path}/infer", {"inputs": [tensor]})
    assert status == 200
    assert [output["data"] for output in body["outputs"]] == [answer]


def test_one_model_fails_with_a_long_reason_and_holds_ready_down(lab: Lab) -> None:
    _, index = lab.triton("POST", "/v2/repository/index")
    rerank = next(entry for entry in index if entry["name"] == "rerank")
    assert (rerank["version"], rerank["state"]) == ("3", "UNAVAILABLE")
    assert "Serialized Engine Version: 213" in rerank["reason"]
    assert rerank["reason"].count("\n") > 3
    assert lab.triton("GET", "/v2/health/live")[0] == 200
    assert lab.triton("GET", "/v2/health/ready")[0] == 400


def test_the_container_got_its_card_through_cdi(lab: Lab) -> None:
    inspect = "{{range .HostConfig.Devices}}{{.PathInContainer}}{{end}} {{.Config.StopTimeout}}"
    assert lab.podman("inspect", "--format", inspect, lab.container).split() == ["/dev/nvidia0", "60"]
    listed = lab.podman("exec", lab.container, "sh", "-c", "ls /usr/lib/*-linux-gnu/libnvidia-ml.so.1")
    assert listed.strip().endswith("libnvidia-ml.so.1")


def test_an_nvml_program_sees_the_server_and_its_models_on_the_card(lab: Lab) -> None:
    standin = Standin(lab.nvml_directory, lab.nvml_values)
    holders = standin.python(
        "import json, pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0);"
        "print(json.dumps([(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h)]))"
    )
    commands = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid, _ in holders]
    assert Path(commands[0][0]).name == "tritonserver"
    assert sorted(command[1] for command in commands[1:]) == [
        "/models/rank/1/model.py",
        "/models/rank/2/model.py",
        "/models/recall/1/model.py",
    ]
    listed = sum(used for _, used in holders)
    assert listed < lab.card.memory_used < listed + 100 * values.MIB, "a real card has some that nobody accounts for"


def test_traffic_counts_what_triton_counts(lab_alone: Lab) -> None:
    def served(model: str, version: str) -> int:
        _, body = lab_alone.triton("GET", f"/v2/models/{model}/versions/{version}/stats")
        return int(body["model_stats"][0]["inference_stats"]["success"]["count"])

    before = {key: served(*key) for key in (("rank", "2"), ("rank", "1"), ("reco", "1"))}
    with lab_alone.load("rank=120", "rank:1=40", "reco=20", "--poisson", "--for", "3") as load:
        load.ends_by_itself()
    models = load.record["models"]
    assert all(flow["ok"] == flow["sent"] > 0 and not flow["errors"] for flow in models.values())
    for label, flow in models.items():
        assert sum(second["ok"] for second in flow["buckets"]) == flow["ok"], label
    gone = {key: served(*key) - count for key, count in before.items()}
    assert gone["reco", "1"] == models["reco"]["ok"]
    assert gone["rank", "1"] == models["rank:1"]["ok"]
    assert gone["rank", "2"] == models["rank"]["ok"] + models["reco"]["ok"], "an ensemble's step counts as well"


def test_the_card_warms_up_with_load_and_rests_without(lab_alone: Lab) -> None:
    card = lab_alone.card
    _wait_for(lambda: card.util_gpu == 0)
    assert (card.pstate, card.clocks[1], card.event_reasons) == (8, 300, values.IDLE)
    with lab_alone.load("--closed", "rank=8", "--for", "30"):
        _wait_for(lambda: card.util_gpu > 60)
        assert (card.pstate, card.clocks[1], card.event_reasons) == (0, 1590, 0)
        assert card.power > 40_000
    _wait_for(lambda: card.util_gpu == 0)


def test_what_a_test_holds_the_follower_leaves(lab_alone: Lab) -> None:
    card = lab_alone.card
    card.held |= layout.HOLD_TEMPERATURE | layout.HOLD_CLOCKS
    card.temperature, card.event_reasons = 95, values.HW_THERMAL
    energy = card.energy_mj
    _wait_for(lambda: card.energy_mj > energy)
    assert (card.temperature, card.event_reasons) == (95, values.HW_THERMAL)


def test_memory_falls_when_a_model_is_unloaded_and_comes_back(lab_alone: Lab) -> None:
    card = lab_alone.card
    _wait_for(lambda: card.memory_used > 4800 * values.MIB)
    assert lab_alone.triton("POST", "/v2/repository/models/recall/unload", {})[0] == 200
    _wait_for(lambda: card.memory_used < 3300 * values.MIB)
    assert lab_alone.triton("POST", "/v2/repository/models/recall/load", {})[0] == 200
    _wait_for(lambda: card.memory_used > 4800 * values.MIB)


def test_a_model_can_be_added_from_the_host(lab_alone: Lab) -> None:
    config = repository.sleeper_config("extra", base_us=100, raise_every=2)
    repository.write("extra", config, root=lab_alone.repository)
    assert lab_alone.triton("POST", "/v2/repository/models/extra/load", {})[0] == 200
    first, second = (lab_alone.triton("POST", "/v2/models/extra/infer", {"inputs": [_FEATURES]}) for _ in range(2))
    assert (first[0], first[1]["outputs"][0]["data"]) == (200, [3.0])
    assert second[0] == 500
    assert "illegal memory access" in second[1]["error"]


def test_up_leaves_a_lab_that_serves_alone(lab: Lab) -> None:
    before = box.addresses()
    assert before is not None
    assert box.up()["started"] == before["started"]
    assert lab.port == before["http_port"]


@pytest.mark.slow
def test_down_removes_everything_after_its_processes_were_killed(lab_alone: Lab) -> None:
    victims = [pid for name in ("card", "podman-service") if (pid := processes.running(name))]
    victims += [pid for pid, _ in processes.holding_card()]
    victims += [pid for pid in processes.strays() if pid not in victims]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):  # a stub ends with its server
            os.kill(pid, signal.SIGKILL)
    box.down()
    try:
        assert not paths.RUN.exists()
        assert not paths.CDI_SPEC.exists()
        assert not [*processes.strays(), *processes.holding_card()]
        mounted_at = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        assert not [point for point in mounted_at if point.startswith((str(paths.STATE), str(paths.RUN)))]
        assert not Path(f"/sys/class/net/{paths.BRIDGE}").exists()
        rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
        assert paths.SUBNET.removesuffix("0/24") not in rules
        assert not list(Path("/sys/fs/cgroup").glob(f"**{podman.CGROUP_PARENT}"))
        box.require_ports(lab_alone.port)
    finally:
        box.up()


def test_the_command_says_what_runs(lab: Lab) -> None:
    root = paths.SOURCES.parents[1]
    done = subprocess.run([root / "scripts/lab", "status"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert lab.http_url in done.stdout
    assert sys.version_info >= (3, 11)
