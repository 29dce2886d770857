"""The documents that the Podman stand-in answers with, in the shapes of Podman 4.3.1.

recorded from a real service (tests/data/podman); keys that say nothing about this box are left out of the long
ones. The version number is that of RHEL 8's Podman.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

from console.simulator.box import Box
from console.simulator.card import MIB
from console.simulator.containers import ADDRESS, IMAGE, IMAGE_ID, Body, Container, ContainerEvent
from console.simulator.host import CORES, DOMAIN, HOSTNAME, KERNEL, MEMORY, TRITON_MEMORY, TRITON_TASKS
from console.simulator.server_log import NS_PER_SECOND

PODMAN_VERSION = "4.9.4"
IMAGE_DIGEST = "sha256:2b9d8c7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b9c"
IMAGE_SIZE = 14_872_354_816
ENTRYPOINT = "/opt/nvidia/nvidia_entrypoint.sh"
LABELS = {
    "com.nvidia.cudnn.version": "9.5.0.50",
    "com.nvidia.cuda.version": "12.6.2.004",
    "com.nvidia.tensorrt.version": "10.5.0.18",
    "com.nvidia.tritonserver.version": "2.51.0",
}
ENVIRONMENT = ["NVIDIA_REQUIRE_DRIVER_CAPABILITIES=video", "TRITON_SERVER_VERSION=2.51.0", "CUDA_VERSION=12.6.2.004"]
WORKING_DIR = "/opt/tritonserver"
ZERO_TIME = "0001-01-01T00:00:00Z"


_NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")


class Shapes:
    """Documents about one box, each as of the box's present."""

    def __init__(self, box: Box) -> None:
        self._box = box

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
        number, running = len(self._box.containers.all), int(self._box.running)
        store = {"number": number, "paused": 0, "running": running, "stopped": number - running}
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
                "networkBackend": "netavark",
                "memTotal": MEMORY,
                "ociRuntime": {"name": "crun", "path": "/usr/bin/crun"},
                "os": "linux",
                "security": {"rootless": False, "selinuxEnabled": True, "seccompEnabled": True},
            },
            "store": {
                "containerStore": store,
                "graphDriverName": "overlay",
                "graphRoot": "/var/lib/containers/storage",
                "imageStore": {"number": 1},
            },
            "registries": {},
            "plugins": {"log": ["k8s-file", "none", "passthrough", "journald"]},
            "version": {"APIVersion": PODMAN_VERSION, "Version": PODMAN_VERSION, "OsArch": "linux/amd64"},
        }

    def list_entry(self, one: Container) -> dict[str, Any]:
        """A container in /containers/json."""
        return {
            "AutoRemove": bool(one.body.get("remove")),
            "Command": one.command,
            "Created": stamp(one.created_ns),
            "CreatedAt": "",
            "Exited": one.state == "exited",
            "ExitedAt": one.finished_ns // NS_PER_SECOND if one.finished_ns else -62135596800,
            "ExitCode": one.exit_code,
            "Id": one.id,
            "Image": IMAGE,
            "ImageID": IMAGE_ID,
            "IsInfra": False,
            "Labels": _labels(one.body),
            "Mounts": [str(mount["destination"]) for mount in one.body.get("mounts") or ()],
            "Names": [one.name],
            "Namespaces": {},
            "Networks": ["podman"],
            "Pid": one.pid,
            "Pod": "",
            "PodName": "",
            "Ports": [
                {"host_ip": address, "container_port": inside, "host_port": port, "range": 1, "protocol": "tcp"}
                for inside, (address, port) in one.ports.items()
            ],
            "Size": None,
            "StartedAt": one.started_ns // NS_PER_SECOND if one.started_ns else -62135596800,
            "State": one.state,
            "Status": "",
        }

    def inspection(self, one: Container) -> dict[str, Any]:
        """Answer of /containers/X/json."""
        bindings = {
            f"{inside}/tcp": [{"HostIp": address, "HostPort": str(port)}]
            for inside, (address, port) in one.ports.items()
        }
        entrypoint = one.body.get("entrypoint") or [ENTRYPOINT]
        return {
            "Id": one.id,
            "Created": stamp(one.created_ns),
            "Path": entrypoint[0],
            "Args": [*entrypoint[1:], *one.command],
            "State": _state(one),
            "Image": IMAGE_ID,
            "ImageDigest": IMAGE_DIGEST,
            "ImageName": one.image,
            "Rootfs": "",
            "Pod": "",
            "OCIRuntime": "crun",
            "Name": one.name,
            "RestartCount": one.restarts,
            "Driver": "overlay",
            "ProcessLabel": DOMAIN,
            "ExecIDs": [],
            "Mounts": [_mount(mount) for mount in one.body.get("mounts") or () if mount.get("type") == "bind"],
            "Dependencies": [],
            "NetworkSettings": {
                "IPAddress": ADDRESS if one.running else "",
                "Ports": bindings if one.running else {},
            },
            "IsInfra": False,
            "IsService": False,
            "Config": _container_config(one),
            "HostConfig": _host_config(one, bindings),
        }

    def top(self, one: Container) -> dict[str, Any]:
        """Processes of a container, numbered as it sees them."""
        titles = ["USER", "PID", "PPID", "%CPU", "ELAPSED", "TTY", "TIME", "COMMAND"]
        seconds = max(1, (self._box.now_ns - one.started_ns) // NS_PER_SECOND)
        cpu_s = self._box.host.triton_cpu_ns(self._box.now_ns) // NS_PER_SECOND
        share = f"{cpu_s / seconds * 100:.3f}"
        row = ["root", "1", "0", share, f"{seconds}s", "?", f"{cpu_s}s", " ".join(one.command)]
        return {"Processes": [row] if one.running else [], "Titles": titles}

    def stats(self, wanted: list[Container]) -> dict[str, Any]:
        """One report of /containers/stats."""
        return {"Error": None, "Stats": [self._stats(one) for one in wanted]}

    def _stats(self, one: Container) -> dict[str, Any]:
        box = self._box
        up_ns = max(1, box.now_ns - one.started_ns)
        cpu_ns = box.host.triton_cpu_ns(box.now_ns) if one.running else 0
        received, sent = box.host.network_bytes(box.now_ns) if one.running else (0, 0)
        memory = TRITON_MEMORY if one.running else 0
        percent = round(cpu_ns / up_ns * 100, 2)
        return {
            "AvgCPU": percent,
            "ContainerID": one.id,
            "Name": one.name,
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
            "BlockInput": 2_411_724_800 if one.running else 0,
            "BlockOutput": 0,
            "PIDs": TRITON_TASKS if one.running else 0,
            "UpTime": cpu_ns,
            "Duration": cpu_ns,
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
                "Containers": len(self._box.containers.all),
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
            "Config": {"Env": ENVIRONMENT, "Entrypoint": [ENTRYPOINT], "WorkingDir": WORKING_DIR, "Labels": LABELS},
            "Version": "",
            "Author": "",
            # the demo's console holds it against the machine that it runs on
            "Architecture": _MACHINES.get(platform.machine(), platform.machine()),
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


_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def _labels(body: Body) -> dict[str, str]:
    return {**LABELS, **(body.get("labels") or {})}


def _mount(mount: Body) -> dict[str, Any]:
    options = [str(option) for option in mount.get("options") or ()]
    return {
        "Type": "bind",
        "Source": mount["source"],
        "Destination": mount["destination"],
        "Driver": "",
        "Mode": "",
        "Options": [option for option in options if option not in ("ro", "rw")],
        "RW": "ro" not in options,
        "Propagation": "rprivate",
    }


def _state(one: Container) -> dict[str, Any]:
    state: dict[str, Any] = {
        "OciVersion": "1.1.0+dev",
        "Status": one.state,
        "Running": one.running,
        "Paused": False,
        "Restarting": False,
        "OOMKilled": False,
        "Dead": False,
        "Pid": one.pid,
    }
    if one.running:
        state["ConmonPid"] = one.pid - 3
    return state | {
        "ExitCode": one.exit_code,
        "Error": "",
        "StartedAt": stamp(one.started_ns) if one.started_ns else ZERO_TIME,
        "FinishedAt": stamp(one.finished_ns) if one.finished_ns else ZERO_TIME,
        "Health": {"Status": "", "FailingStreak": 0, "Log": None},
        "CheckpointedAt": ZERO_TIME,
        "RestoredAt": ZERO_TIME,
    }


def _container_config(one: Container) -> dict[str, Any]:
    body = one.body
    own = [f"{name}={value}" for name, value in (body.get("env") or {}).items()]
    return {
        "Hostname": body.get("hostname") or one.id[:12],
        "User": body.get("user") or "",
        "Tty": bool(body.get("terminal")),
        "OpenStdin": bool(body.get("stdin")),
        "Env": [*ENVIRONMENT, *own],
        "Cmd": one.command,
        "Image": one.image,
        "Volumes": None,
        "WorkingDir": body.get("work_dir") or WORKING_DIR,
        "Entrypoint": " ".join(body.get("entrypoint") or [ENTRYPOINT]),
        "Labels": _labels(body),
        "Annotations": {"io.container.manager": "libpod", **(body.get("annotations") or {})},
        "StopSignal": body.get("stop_signal") or 15,
        "HealthcheckOnFailureAction": "none",
        "CreateCommand": body.get("containerCreateCommand") or [],
        "Umask": body.get("umask") or "0022",
        "Timeout": 0,
        "StopTimeout": body.get("stop_timeout") or 10,
    }


def _host_config(one: Container, bindings: dict[str, Any]) -> dict[str, Any]:
    body = one.body
    limits = body.get("resource_limits") or {}
    memory, cpu = limits.get("memory") or {}, limits.get("cpu") or {}
    told = [
        {"Name": f"RLIMIT_{str(one['type']).upper()}", "Soft": _signed(one["soft"]), "Hard": _signed(one["hard"])}
        for one in body.get("r_limits") or ()
    ]
    return {
        "Binds": [
            f"{mount['source']}:{mount['destination']}:{','.join(mount.get('options') or ())}"
            for mount in body.get("mounts") or ()
        ],
        "CgroupManager": "systemd",
        "LogConfig": {"Type": "k8s-file", "Config": None, "Path": "", "Tag": "", "Size": "50MB"},
        "NetworkMode": (body.get("netns") or {}).get("nsmode") or "bridge",
        "PortBindings": bindings,
        "RestartPolicy": {
            "Name": body.get("restart_policy") or "no",
            "MaximumRetryCount": body.get("restart_tries") or 0,
        },
        "AutoRemove": bool(body.get("remove")),
        "CapAdd": body.get("cap_add") or [],
        "CapDrop": body.get("cap_drop") or [],
        "IpcMode": (body.get("ipcns") or {}).get("nsmode") or "shareable",
        "Privileged": bool(body.get("privileged")),
        "ReadonlyRootfs": bool(body.get("read_only_filesystem")),
        "SecurityOpt": [],
        "ShmSize": body.get("shm_size") or 64 * MIB,
        "Memory": memory.get("limit") or 0,
        "NanoCpus": 0,
        "CpusetCpus": cpu.get("cpus") or "",
        "CpusetMems": cpu.get("mems") or "",
        "Devices": [
            {"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": ""} for node in _NODES if one.running
        ],
        "PidsLimit": 2048,
        "Ulimits": told,
    }


def _signed(limit: int) -> int:
    return -1 if limit >= 2**63 else int(limit)


def stamp(at_ns: int) -> str:
    """RFC 3339 with nanoseconds, as Go prints it."""
    whole = datetime.fromtimestamp(at_ns // NS_PER_SECOND, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{at_ns % NS_PER_SECOND:09d}Z"


def event_document(event: ContainerEvent) -> dict[str, Any]:
    """A line of /events."""
    attributes = {"containerExitCode": str(event.exit_code), "image": event.image, "name": event.name, "podId": ""}
    return {
        "status": event.action,
        "id": event.container,
        "from": event.image,
        "Type": "container",
        "Action": event.action,
        "Actor": {"ID": event.container, "Attributes": {**attributes, **LABELS}},
        "scope": "local",
        "time": event.at_ns // NS_PER_SECOND,
        "timeNano": event.at_ns,
    }
