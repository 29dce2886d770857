"""A box with one card, the toolkit and a CDI spec, as facts by hand for the tests of the groups cdi and podman."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from console.core.facts import AnswerFact, FileFact
from tests.checks.told import folder

GPU = "0000:3b:00.0"
EL8 = 'ID="rhel"\nVERSION_ID="8.10"\nPRETTY_NAME="RHEL 8.10"\n'
DEBIAN = 'ID=debian\nVERSION_ID="12"\n'
STATIC, VOLATILE = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
HOOK = "/usr/bin/nvidia-cdi-hook"
NODE = FileFact("char", mode=0o666, uid=0, gid=0, device=(195, 0))
PROGRAM = FileFact("file", mode=0o755, uid=0, gid=0, size=9_000_000)
LIBRARY = FileFact("file", mode=0o755, uid=0, gid=0, size=30_000_000)
CTK = {"nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80\n"}
REFRESH = "/usr/lib/systemd/system/nvidia-cdi-refresh.service"
REFRESH_TEXT = "[Unit]\nDescription=Refresh NVIDIA CDI specification file\n[Service]\nType=oneshot\n"
ON = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "Result": "success", "ExecMainStatus": "0"}
UNITS: dict[str, dict[str, str]] = {
    "nvidia-cdi-refresh.service": {**ON, "UnitFileState": "enabled"},
    "nvidia-cdi-refresh.path": {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"},
    "triton.service": {"LoadState": "loaded", "After": "network-online.target nvidia-cdi-refresh.service basic.target"},
    "podman.socket": {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"},
}


def libraries(version: str) -> list[str]:
    """Paths of libraries of one version."""
    return [f"/usr/lib64/{name}.so.{version}" for name in ("libcuda", "libnvidia-ml", "libEGL_nvidia")]


def spec(
    version: str = "550.90.07",
    cdi: str = "0.5.0",
    *,
    cards: int = 1,
    names: tuple[str, ...] = ("0", "all"),
    nodes: tuple[str, ...] = ("/dev/nvidiactl", "/dev/nvidia-uvm"),
    gids: bool = False,
    more: tuple[str, ...] = (),
    kind: str = "nvidia.com/gpu",
) -> str:
    """A spec as nvidia-ctk writes it, keys in its order."""
    gid = "    additionalGids:\n    - 44\n" if gids else ""
    lines = [f"---\ncdiVersion: {cdi}\ncontainerEdits:\n  deviceNodes:\n"]
    lines += [f"  - path: {node}\n" for node in nodes]
    lines.append(
        f"  hooks:\n  - args:\n    - nvidia-cdi-hook\n    hookName: createContainer\n    path: {HOOK}\n  mounts:\n"
    )
    for path in (*libraries(version), *more):
        lines.append(f"  - containerPath: {path}\n    hostPath: {path}\n    options:\n    - ro\n")
    lines.append("devices:\n")
    for name in names:
        lines.append(f"- containerEdits:\n{gid}    deviceNodes:\n")
        lines += [f"    - path: /dev/nvidia{card}\n" for card in range(cards)]
        lines.append(f"  name: {json.dumps(name)}\n")
    return "".join(lines) + f"kind: {kind}\n"


def paths(version: str = "550.90.07", cards: int = 1) -> tuple[str, ...]:
    """Value of cdi_paths for such a spec."""
    return ("/dev/nvidiactl", "/dev/nvidia-uvm", HOOK, *libraries(version), *(f"/dev/nvidia{i}" for i in range(cards)))


def files(changes: Mapping[str, str | FileFact | None] | None = None) -> dict[str, str | FileFact]:
    """Files of the box; None takes one away."""
    found: dict[str, str | FileFact | None] = {
        "/etc/os-release": EL8,
        f"/sys/bus/pci/devices/{GPU}/vendor": "0x10de\n",
        f"/sys/bus/pci/devices/{GPU}/driver": FileFact("dir", target="../../../../bus/pci/drivers/nvidia"),
        "/sys/module/nvidia/version": "550.90.07\n",
        "/etc/cdi": folder("nvidia.yaml"),
        STATIC: spec(),
        "/dev/nvidiactl": NODE,
        "/dev/nvidia-uvm": NODE,
        "/dev/nvidia0": NODE,
        HOOK: PROGRAM,
        "/usr/bin/nvidia-ctk": PROGRAM,
        "/usr/bin/podman": PROGRAM,
        **dict.fromkeys(libraries("550.90.07"), LIBRARY),
        **(changes or {}),
    }
    return {path: one for path, one in found.items() if one is not None}


def ping(version: str = "4.9.4", *, rootless: bool | None = False) -> dict[str, Any]:
    """Podman's service."""
    socket = "/run/user/1000/podman/podman.sock" if rootless else "/run/podman/podman.sock"
    return {"version": version, "socket": socket, "rootless": rootless, "uid": 1000 if rootless else 0}


def inspect(**changes: Any) -> dict[str, Any]:
    """The Triton container."""
    host = {"LogConfig": {"Type": "journald", "Size": "0B"}, "RestartPolicy": {"Name": "no"}, **changes.pop("host", {})}
    config = {"CreateCommand": ["podman", "run", "--device", "nvidia.com/gpu=all"], **changes.pop("config", {})}
    return {"Name": "triton", "State": {"Status": "running"}, "HostConfig": host, "Config": config, **changes}


ROOT = {"gpu": (GPU,), "uid": ("0",), "user": ("root",), "home": ("/root",), "cdi_paths": paths()}
USER = {**ROOT, "uid": ("1000",), "user": ("ana",), "home": ("/home/ana",)}
NO_GPU: dict[str, tuple[str, ...]] = {**ROOT, "gpu": ()}
NO_BUS = {name: value for name, value in ROOT.items() if name != "gpu"}
NOT_ASKED = AnswerFact(why="/run/podman/podman.sock no such file", settle="podman info")
REFUSED = "/run/podman/podman.sock refused"
