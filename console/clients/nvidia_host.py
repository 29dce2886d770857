"""What the host's files tell about the NVIDIA driver without asking the driver: the PCI bus and version files.

Every function takes a `root` folder (default `/`) so that a recorded tree can stand for a host, and answers None
where the files cannot be read: that is "not told", never "none".
"""

from __future__ import annotations

import re
from pathlib import Path

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")
"""VGA controller and 3D controller (data-centre cards have no display)."""

_NVRM = re.compile(
    r"^NVRM version:\s+NVIDIA UNIX (?:Open )?(?:x86_64 |aarch64 )?Kernel Module(?: for (?:x86_64|aarch64))?"
    r"\s+(\d+\.\d+(?:\.\d+)?)",
    re.ASCII | re.MULTILINE,
)
_LIBRARY_DIRS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
)
_LIBRARY = re.compile(r"^libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", re.ASCII)


def pci_devices(root: str = "/") -> int | None:
    """Number of NVIDIA display-class devices on the PCI bus; None when the bus cannot be listed."""
    try:
        devices = list((Path(root) / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(1 for device in devices if _is_nvidia_display(device))


def kernel_version(root: str = "/") -> str | None:
    """Version of the loaded kernel module such as `550.90.07`; None when none is loaded or it cannot be read."""
    text = _text(Path(root) / "sys/module/nvidia/version")
    if text and text.strip():
        return text.strip()
    return nvrm_version(_text(Path(root) / "proc/driver/nvidia/version") or "")


def nvrm_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version, of the proprietary and the open module; None when none is there."""
    match = _NVRM.search(text)
    return match.group(1) if match else None


def library_version(root: str = "/") -> str | None:
    """Version of the libnvidia-ml that is on disk, from its file name; None when none or several are found."""
    found: set[str] = set()
    for folder in _LIBRARY_DIRS:
        names = (path.name for path in (Path(root) / folder).glob("libnvidia-ml.so.*"))
        found |= {match.group(1) for name in names if (match := _LIBRARY.match(name))}
    return found.pop() if len(found) == 1 else None


def _is_nvidia_display(device: Path) -> bool:
    vendor = (_text(device / "vendor") or "").strip()
    return vendor == NVIDIA_VENDOR and (_text(device / "class") or "").startswith(DISPLAY_CLASSES)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
