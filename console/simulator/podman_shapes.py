"""The documents that the Podman stand-in answers with, in the shapes of Podman 4.3.1.

recorded from a real service (tests/data/podman); keys that say nothing about this box are left out of the long
ones. The version number is that of RHEL 8's Podman.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from console.simulator.box import Box, ContainerEvent
from console.simulator.card import MIB, TRITON_PID
from console.simulator.host import CORES, HOSTNAME, KERNEL, MEMORY, TRITON_MEMORY, TRITON_TASKS
from console.simulator.server_log import NS_PER_SECOND

PODMAN_VERSION = "4.9.4"
CONTAINER_ID = "9f3c2e1a77b0d46c5e8f0a1b2c3d4e5f60718293a4b5c6d7e8f9012345678abc"
IMAGE_ID = "5c1b0e2f9d7a48c6b3e1f0a2d4c6e8f00112233445566778899aabbccddeeff0"
IMAGE_DIGEST = "sha256:2b9d8c7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b9c"
NAME = "triton"
IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
IMAGE_SIZE = 14_872_354_816
COMMAND = ["tritonserver", "--model-repository=/models", "--allow-grpc=false", "--exit-on-error=false"]
ENTRYPOINT = "/opt/nvidia/nvidia_entrypoint.sh"
LABELS = {
    "com.nvidia.cudnn.version": "9.5.0.50",
    "com.nvidia.cuda.version": "12.6.2.004",
    "com.nvidia.tensorrt.version": "10.5.0.18",
    "com.nvidia.tritonserver.version": "2.51.0",
}
ENVIRONMENT = ["NVIDIA_REQUIRE_DRIVER_CAPABILITIES=video", "TRITON_SERVER_VERSION=2.51.0", "CUDA_VERSION=12.6.2.004"]
ZERO_TIME = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class PublishedPorts:
    """Host ports of the container's ports 8000 and 8002."""

    http: int
    metrics: int


class Shapes:
    """Documents about one box, each as of the box's present."""

    def __init__(self, box: Box, ports: PublishedPorts) -> None:
        self._box = box
        self._ports = ports

    def version(self) -> dict[str, Any]:
        """Answer of /version."""
        details = {
            "APIVersion": PODMAN_VERSION,
            "Arch": "amd64",
            "BuildTime": "2024-06-11T10:12:04Z",
            "Experimental": "false",
            "GitCommit": "",
            "GoVersion": "go1.21.9",
            "KernelVersion": KERNEL,
            "MinAPIVersion": "4.0.0",
            "Os": "linux",
        }
        return {
            "Platform": {"Name": "linux/amd64/rocky-8.10"},
            "Components": [{"Name": "Podman Engine", "Version": PODMAN_VERSION, "Details": details}],
            "Version": PODMAN_VERSION,
            "ApiVersion": "1.41",
            "MinAPIVersion": "1.24",
            "GitCommit": "",
            "GoVersion": "go1.21.9",
            "Os": "linux",
            "Arch": "amd64",
            "KernelVersion": KERNEL,
            "BuildTime": "2024-06-11T10:12:04Z",
        }

    def info(self) -> dict[str, Any]:
        """Answer of /info, the parts that say something."""
        running = self._box.running
        store = {"number": 1, "paused": 0, "running": int(running), "stopped": int(not running)}
        return {
            "host": {
                "arch": "amd64",
                "cgroupManager": "systemd",
                "cgroupVersion": "v1",
                "cpus": CORES,
                "distribution": {"distribution": "rocky", "version": "8.10"},
                "eventLogger": "file",
                "hostname": HOSTNAME,
                "kernel": KERNEL,
                "logDriver": "k8s-file",
                "memTotal": MEMORY,
                "ociRuntime": {"name": "crun", "path": "/usr/bin/crun"},
                "os": "linux",
                "security": {"rootless": False, "selinuxEnabled": False, "seccompEnabled": True},
            },
            "store": {"containerStore": store, "graphDriverName": "overlay", "imageStore": {"number": 1}},
            "registries": {},
            "plugins": {"log": ["k8s-file", "none", "passthrough", "journald"]},
            "version": {"APIVersion": PODMAN_VERSION, "Version": PODMAN_VERSION, "OsArch": "linux/amd64"},
        }

    def list_entry(self) -> dict[str, Any]:
        """The container in /containers/json."""
        box, exit_ = self._box, self._box.scene.exit
        return {
            "AutoRemove": False,
            "Command": COMMAND,
            "Created": stamp(box.created_ns),
            "CreatedAt": "",
            "Exited": not box.running,
            "ExitedAt": box.events[-1].at_ns // NS_PER_SECOND if exit_ else -62135596800,
            "ExitCode": exit_.code if exit_ else 0,
            "Id": CONTAINER_ID,
            "Image": IMAGE,
            "ImageID": IMAGE_ID,
            "IsInfra": False,
            "Labels": LABELS,
            "Mounts": ["/models"],
            "Names": [NAME],
            "Namespaces": {},
            "Networks": ["podman"],
            "Pid": TRITON_PID if box.running else 0,
            "Pod": "",
            "PodName": "",
            "Ports": [
                {"host_ip": "127.0.0.1", "container_port": inside, "host_port": host, "range": 1, "protocol": "tcp"}
                for inside, host in self._published()
            ],
            "Size": None,
            "StartedAt": box.started_ns // NS_PER_SECOND,
            "State": "running" if box.running else "exited",
            "Status": "",
        }

    def _published(self) -> tuple[tuple[int, int], ...]:
        return ((8000, self._ports.http), (8002, self._ports.metrics))

    def inspection(self) -> dict[str, Any]:
        """Answer of /containers/X/json."""
        box = self._box
        bindings = {
            f"{inside}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(host)}] for inside, host in self._published()
        }
        models = str(box.repository.root) if box.repository else "/data/models"
        return {
            "Id": CONTAINER_ID,
            "Created": stamp(box.created_ns),
            "Path": ENTRYPOINT,
            "Args": COMMAND,
            "State": self._state(),
            "Image": IMAGE_ID,
            "ImageDigest": IMAGE_DIGEST,
            "ImageName": IMAGE,
            "Rootfs": "",
            "Pod": "",
            "OCIRuntime": "crun",
            "Name": NAME,
            "RestartCount": box.scene.exit.starts - 1 if box.scene.exit else 0,
            "Driver": "overlay",
            "ExecIDs": [],
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": models,
                    "Destination": "/models",
                    "Driver": "",
                    "Mode": "",
                    "Options": ["rbind"],
                    "RW": False,
                    "Propagation": "rprivate",
                }
            ],
            "Dependencies": [],
            "NetworkSettings": {
                "IPAddress": "10.88.0.7" if box.running else "",
                "Ports": bindings if box.running else {},
            },
            "IsInfra": False,
            "IsService": False,
            "Config": self._container_config(models),
            "HostConfig": self._host_config(models, bindings),
        }

    def _state(self) -> dict[str, Any]:
        box, exit_ = self._box, self._box.scene.exit
        state: dict[str, Any] = {
            "OciVersion": "1.1.0+dev",
            "Status": "running" if box.running else "exited",
            "Running": box.running,
            "Paused": False,
            "Restarting": False,
            "OOMKilled": False,
            "Dead": False,
            "Pid": TRITON_PID if box.running else 0,
        }
        if box.running:
            state["ConmonPid"] = TRITON_PID - 3
        state |= {
            "ExitCode": exit_.code if exit_ else 0,
            "Error": "",
            "StartedAt": stamp(box.started_ns),
            "FinishedAt": stamp(box.events[-1].at_ns) if exit_ else ZERO_TIME,
            "Health": {"Status": "", "FailingStreak": 0, "Log": None},
            "CheckpointedAt": ZERO_TIME,
            "RestoredAt": ZERO_TIME,
        }
        return state

    def _container_config(self, models: str) -> dict[str, Any]:
        return {
            "Hostname": CONTAINER_ID[:12],
            "User": "",
            "Tty": False,
            "OpenStdin": False,
            "Env": ENVIRONMENT,
            "Cmd": COMMAND,
            "Image": IMAGE,
            "Volumes": None,
            "WorkingDir": "/opt/tritonserver",
            "Entrypoint": ENTRYPOINT,
            "Labels": LABELS,
            "Annotations": {"io.container.manager": "libpod"},
            "StopSignal": 15,
            "HealthcheckOnFailureAction": "none",
            "CreateCommand": [
                "podman", "run", "-d", "--name", NAME, "--device", "nvidia.com/gpu=all", "--shm-size", "1g",
                "-p", f"127.0.0.1:{self._ports.http}:8000", "-p", f"127.0.0.1:{self._ports.metrics}:8002",
                "-v", f"{models}:/models:ro", "--stop-timeout", "60", IMAGE, *COMMAND,
            ],
            "Umask": "0022",
            "Timeout": 0,
            "StopTimeout": 60,
        }  # fmt: skip

    def _host_config(self, models: str, bindings: dict[str, Any]) -> dict[str, Any]:
        restart = "on-failure" if self._box.scene.exit else "no"
        nodes = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
        return {
            "Binds": [f"{models}:/models:ro,rprivate,rbind"],
            "CgroupManager": "systemd",
            "LogConfig": {"Type": "k8s-file", "Config": None, "Path": "", "Tag": "", "Size": "0B"},
            "NetworkMode": "bridge",
            "PortBindings": bindings,
            "RestartPolicy": {"Name": restart, "MaximumRetryCount": 0},
            "AutoRemove": False,
            "CapAdd": [],
            "CapDrop": [],
            "IpcMode": "shareable",
            "Privileged": False,
            "ReadonlyRootfs": False,
            "SecurityOpt": [],
            "ShmSize": 1024 * MIB,
            "Memory": 0,
            "NanoCpus": 0,
            "CpusetCpus": "",
            "Devices": [
                {"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": ""}
                for node in nodes
                if self._box.running
            ],
            "PidsLimit": 2048,
            "Ulimits": [{"Name": "RLIMIT_MEMLOCK", "Soft": -1, "Hard": -1}],
        }

    def top(self) -> dict[str, Any]:
        """Processes of the container, numbered as it sees them."""
        titles = ["USER", "PID", "PPID", "%CPU", "ELAPSED", "TTY", "TIME", "COMMAND"]
        seconds = max(1, (self._box.now_ns - self._box.started_ns) // NS_PER_SECOND)
        cpu_s = self._box.host.triton_cpu_ns(self._box.now_ns) // NS_PER_SECOND
        share = f"{cpu_s / seconds * 100:.3f}"
        row = ["root", "1", "0", share, f"{seconds}s", "?", f"{cpu_s}s", " ".join(COMMAND)]
        return {"Processes": [row] if self._box.running else [], "Titles": titles}

    def stats(self) -> dict[str, Any]:
        """One report of /containers/stats."""
        box = self._box
        up_ns = max(1, box.now_ns - box.started_ns)
        cpu_ns = box.host.triton_cpu_ns(box.now_ns) if box.running else 0
        received, sent = box.host.network_bytes(box.now_ns) if box.running else (0, 0)
        memory = TRITON_MEMORY if box.running else 0
        percent = round(cpu_ns / up_ns * 100, 2)
        return {
            "Error": None,
            "Stats": [
                {
                    "AvgCPU": percent,
                    "ContainerID": CONTAINER_ID,
                    "Name": NAME,
                    "PerCPU": None,
                    "CPU": percent,
                    "CPUNano": cpu_ns,
                    "CPUSystemNano": cpu_ns // 5,
                    "SystemNano": box.now_ns,
                    "MemUsage": memory,
                    "MemLimit": MEMORY,
                    "MemPerc": memory / MEMORY * 100,
                    "NetInput": received,
                    "NetOutput": sent,
                    "BlockInput": 2_411_724_800 if box.running else 0,
                    "BlockOutput": 0,
                    "PIDs": TRITON_TASKS if box.running else 0,
                    "UpTime": cpu_ns,
                    "Duration": cpu_ns,
                }
            ],
        }

    def images(self) -> list[dict[str, Any]]:
        """Answer of /images/json."""
        return [
            {
                "Id": IMAGE_ID,
                "ParentId": "",
                "RepoTags": [IMAGE],
                "RepoDigests": [f"nvcr.io/nvidia/tritonserver@{IMAGE_DIGEST}"],
                "Created": self._image_created_ns() // NS_PER_SECOND,
                "Size": IMAGE_SIZE,
                "SharedSize": 0,
                "VirtualSize": IMAGE_SIZE,
                "Labels": LABELS,
                "Containers": 1,
                "Names": [IMAGE],
                "Digest": IMAGE_DIGEST,
                "History": [IMAGE],
            }
        ]

    def _image_created_ns(self) -> int:
        return self._box.start_ns - 35 * 86_400 * NS_PER_SECOND

    def image(self) -> dict[str, Any]:
        """Answer of /images/X/json."""
        return {
            "Id": IMAGE_ID,
            "Digest": IMAGE_DIGEST,
            "RepoTags": [IMAGE],
            "RepoDigests": [f"nvcr.io/nvidia/tritonserver@{IMAGE_DIGEST}"],
            "Parent": "",
            "Comment": "",
            "Created": stamp(self._image_created_ns()),
            "Config": {"Env": ENVIRONMENT, "Entrypoint": [ENTRYPOINT], "Labels": LABELS},
            "Version": "",
            "Author": "",
            "Architecture": "amd64",
            "Os": "linux",
            "Size": IMAGE_SIZE,
            "VirtualSize": IMAGE_SIZE,
            "GraphDriver": {"Name": "overlay", "Data": None},
            "RootFS": {"Type": "layers", "Layers": []},
            "Labels": LABELS,
            "Annotations": {},
            "ManifestType": "application/vnd.docker.distribution.manifest.v2+json",
            "User": "",
            "History": [],
            "NamesHistory": [IMAGE],
        }


def stamp(at_ns: int) -> str:
    """RFC 3339 with nanoseconds, as Go prints it."""
    whole = datetime.fromtimestamp(at_ns // NS_PER_SECOND, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{at_ns % NS_PER_SECOND:09d}Z"


def event_document(event: ContainerEvent) -> dict[str, Any]:
    """A line of /events."""
    attributes = {"containerExitCode": str(event.exit_code), "image": IMAGE, "name": NAME, "podId": "", **LABELS}
    return {
        "status": event.action,
        "id": CONTAINER_ID,
        "from": IMAGE,
        "Type": "container",
        "Action": event.action,
        "Actor": {"ID": CONTAINER_ID, "Attributes": attributes},
        "scope": "local",
        "time": event.at_ns // NS_PER_SECOND,
        "timeNano": event.at_ns,
    }
