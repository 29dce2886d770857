"""What Podman's error texts mean and what to do about them (pure); the table is host.md 6.2.

Podman has few status codes and no error codes: 500 stands for a taken name, a taken port and a broken CDI spec alike.
"""

from __future__ import annotations

import re

_PORT = re.compile(r"address already in use", re.IGNORECASE)
_NAME = re.compile(r"\bname .{1,200} already in use|UNIQUE constraint failed: ContainerConfig\.Name", re.IGNORECASE)
"""The second is what the database of Podman 5 says to a rename."""
_NO_IMAGE = re.compile(r"image not known|no such image", re.IGNORECASE)
_RLIMIT = re.compile(r"setting rlimit type (\d+)")
RLIMITS = {6: "nproc", 7: "nofile", 8: "memlock", 3: "stack"}
"""Number of a resource limit on Linux, as the runtimes write it -> its name for --ulimit."""

_HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"unresolvable CDI devices"),
        "no CDI spec file that this Podman accepts names the device: nvidia-ctk cdi list, podman --version",
    ),
    (re.compile(r"stat .{1,100}/.{1,100}=.{1,100}no such file"), "this Podman knows no CDI names (4.1 and later do)"),
    (re.compile(r"failed to stat CDI host device"), "the CDI spec names a device node that is not there: make it anew"),
    (
        re.compile(r"error stat'ing file|error mounting \"/usr/lib"),
        "the CDI spec is older than the driver: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    (re.compile(r"error running hook|nvidia-cdi-hook"), "the CDI spec names a hook that is not there: make it anew"),
    (
        re.compile(r"creating device nodes"),
        "a device node is not there under that name (rootless Podman gives nodes under their own name only): "
        "make the CDI spec anew",
    ),
    (
        re.compile(r"rootlessport cannot expose privileged port"),
        "a user's Podman may not publish ports below net.ipv4.ip_unprivileged_port_start: choose 1024 or more",
    ),
    (
        re.compile(r"bind mount source stat"),
        "a file or folder to mount is not there: one that the CDI spec names, or a volume's",
    ),
    (
        re.compile(r"executable file not found|command that was not found|unable to find user"),
        "the image or its command is not the right one",
    ),
    (_PORT, "another program has the port, or Podman's own service still holds it (for up to 150 s after a failure)"),
    (_NAME, "a container of that name is there already: podman ps --all"),
    (_NO_IMAGE, "the image is not on this box: pull it first"),
    (re.compile(r"lsetxattr .{1,300}operation not supported"), "that file system keeps no SELinux labels: no :z there"),
    (re.compile(r"no subuid ranges found"), "the user has no sub-ids: usermod --add-subuids, podman system migrate"),
    (
        re.compile(r"default OCI runtime \"nvidia\" not found"),
        "containers.conf names the old nvidia runtime: remove it",
    ),
    (re.compile(r"statfs .{1,300}no such file"), "the path to mount is not there"),
)


def hint(text: str) -> str:
    """What to do about an error of Podman's; "" where nothing is known."""
    limit = _RLIMIT.search(text)
    if limit is not None:
        name = RLIMITS.get(int(limit[1]), f"type {limit[1]}")
        return f"Podman may not raise the limit {name}: give a smaller ulimit, or raise the hard limit of its user"
    return next((what for pattern, what in _HINTS if pattern.search(text)), "")


def is_port_in_use(text: str) -> bool:
    """True where a published port was taken."""
    return bool(_PORT.search(text))


def is_name_in_use(text: str) -> bool:
    """True where another container has the name."""
    return bool(_NAME.search(text))


def is_image_missing(text: str) -> bool:
    """True where the image is not on this box."""
    return bool(_NO_IMAGE.search(text))
