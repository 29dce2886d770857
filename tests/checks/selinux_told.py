"""Facts by hand for the SELinux checks: an enforcing EL 8 with a card and a rootless Triton that runs confined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.core.facts import AnswerFact, FileFact

EL8 = 'ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="8.10"\n'
DEBIAN = "ID=debian\nVERSION_ID=12\n"
ENFORCE = "/sys/fs/selinux/enforce"
BOOLEANS = "/sys/fs/selinux/booleans"
DEVICES, XSERVER = f"{BOOLEANS}/container_use_devices", f"{BOOLEANS}/container_use_xserver_devices"
ATTR = "/proc/4711/attr/current"
PROCESS = "system_u:system_r:container_t:s0:c1,c2"
MOUNT = "system_u:object_r:container_file_t:s0:c1,c2"
ROOTLESS = {"version": "4.9.4", "rootless": True}
ROOTFUL = {"version": "4.9.4", "rootless": False}
GPU = {"gpu": ("0000:3b:00.0",)}
NO_PODMAN = AnswerFact(why="no socket")


def container(**fields: Any) -> dict[str, Any]:
    """An inspect answer."""
    return {"Name": "triton", "Id": "a" * 64, "ProcessLabel": PROCESS, "MountLabel": MOUNT, **fields}


def box(**changes: Any) -> dict[str, Any]:
    """Arguments of needed.finding; `files`, `answers` and `variables` add to what is there, None takes away."""
    told: dict[str, Any] = {
        "files": {
            "/etc/os-release": EL8,
            ENFORCE: "1",
            DEVICES: "0 0",
            "/usr/bin/podman": FileFact("file", label="system_u:object_r:container_runtime_exec_t:s0"),
        },
        "answers": {"@podman.inspect": container(), "@podman.ping": ROOTLESS},
        "variables": {**GPU, "container_pid": ("4711",), "models": ("/data/models",)},
    }
    for part, values in changes.items():
        if isinstance(values, Mapping) and part in told:
            told[part] = {key: one for key, one in {**told[part], **values}.items() if one is not None}
        else:
            told[part] = values
    return told


def labelled(type_: str, kind: str = "file", level: str = "s0") -> FileFact:
    """A path with a label of this type."""
    label = f"system_u:object_r:{type_}:{level}" if type_ else None
    return FileFact(
        "dir" if kind == "dir" else "char" if kind == "char" else "file", mode=0o755, uid=0, gid=0, label=label
    )
