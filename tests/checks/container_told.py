"""Facts by hand for the checks of the Triton container: a rootful one that runs, on a box with a T4."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from console.core.facts import AnswerFact, FileFact
from console.core.finding import Finding
from console.core.model import GpuBox, GpuProcess, GpuState
from tests.checks import needed
from tests.checks.told import told

WALL = 1_764_000_000.0
ID = "a" * 64
IMAGE = "nvcr.io/nvidia/tritonserver:24.05-py3"
NO_PODMAN = AnswerFact(why="no socket", settle="systemctl enable --now podman.socket")
PID = "4711"


def when(ago: float) -> str:
    """A time so many seconds before WALL, as Podman writes it."""
    return datetime.fromtimestamp(WALL - ago, UTC).isoformat()


def container(**changes: Any) -> dict[str, Any]:
    """An inspect answer; `State`, `Config` and `HostConfig` add to what is there."""
    found: dict[str, Any] = {
        "Id": ID,
        "Name": "triton",
        "Path": "/opt/nvidia/nvidia_entrypoint.sh",
        "Args": ["tritonserver", "--model-repository=/models"],
        "Image": "b" * 64,
        "ImageName": IMAGE,
        "RestartCount": 0,
        "State": {"Status": "running", "ExitCode": 0, "OOMKilled": False, "Error": "", "StartedAt": when(86400)},
        "Config": {
            "Env": ["NVIDIA_TRITON_SERVER_VERSION=24.05", "CUDA_VERSION=12.4.1.003", "NVIDIA_REQUIRE_CUDA=cuda>=9.0"],
            "StopTimeout": 60,
            "User": "",
            "CreateCommand": [],
        },
        "HostConfig": {
            "ShmSize": 1 << 30,
            "Memory": 0,
            "NetworkMode": "bridge",
            "IpcMode": "private",
            "RestartPolicy": {"Name": ""},
            "Devices": [{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0"}],
            "PortBindings": bindings("127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:8002"),
        },
        "Mounts": [{"Type": "bind", "Source": "/data/models", "Destination": "/models", "RW": False}],
    }
    for key, value in changes.items():
        found[key] = {**found[key], **value} if isinstance(value, Mapping) and key in found else value
    return found


def bindings(*ports: str) -> dict[str, Any]:
    """`127.0.0.1:8000` of the host to 8000."""
    split = [one.rpartition(":") for one in ports]
    return {f"{port}/tcp": [{"HostIp": address, "HostPort": port}] for address, _, port in split}


def cards(*processes: GpuProcess, **fields: Any) -> dict[str, Any]:
    """NVML's answer: one T4."""
    card: dict[str, Any] = {
        "index": 0,
        "name": "Tesla T4",
        "architecture": "Turing",
        "memory_total": 15 << 30,
        "memory_used": 6 << 30,
        "processes": processes,
    }
    told_box = {name: fields.pop(name) for name in ("driver", "cuda") if name in fields}
    box = GpuBox(**{"driver": "550.90.07", "cuda": "12.4", **told_box}, gpus=(GpuState(**{**card, **fields}),))
    return {"error": None, "box": msgspec.to_builtins(box)}


OWN = GpuProcess(4720, "C", 5 << 30, command="tritonserver", container_id=ID, in_container=True)
OTHER = GpuProcess(99, "C", 3 << 30, user="ana", command="/usr/bin/python3 train.py", in_container=False)

SERVICE = {
    "ActiveState": "active",
    "SubState": "running",
    "Restart": "on-failure",
    "NRestarts": "0",
    "Result": "success",
}


def finding(judge: needed.Judge, **changes: Any) -> Finding:
    """What a check says of this box with changes; None takes a fact away. The facts hold what it needs alone."""
    facts: dict[str, dict[str, Any]] = {
        "files": {"/usr/bin/podman": FileFact("file"), "/sys/module/nvidia/version": "550.90.07\n"},
        "answers": {
            "@podman.inspect": container(),
            "@podman.ping": {"version": "4.9.4", "rootless": False},
            "@nvml": cards(OWN),
            "@units": {},
        },
        "variables": {
            "gpu": ("0000:3b:00.0",),
            "container_pid": (PID,),
            "container_id": (ID,),
            "uid": ("0",),
            "user": ("root",),
            "models": ("/data/models",),
            "container": ("triton",),
        },
    }
    inspect = changes.pop("inspect", container)
    if inspect is not container:
        facts["answers"]["@podman.inspect"] = inspect
    for part, values in changes.items():
        kept = {key: one for key, one in facts.get(part, {}).items() if key not in values}
        facts[part] = kept | {key: one for key, one in values.items() if one is not None}
    return needed.row(needed.check_of(judge), msgspec.structs.replace(told(**facts), wall=WALL))


NOTHING: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"inspect": None}, "none", "no Triton container"),
    ({"inspect": AnswerFact(why="no socket"), "files": {"/usr/bin/podman": None}}, "none", "Podman is not installed"),
    ({"inspect": NO_PODMAN}, "unknown", "no socket"),
)
"""What each check says where there is no container, no Podman, or no answer."""
