"""Where the lab lies: its folders, files, ports and names. All of it can be removed without touching anything else."""

from __future__ import annotations

import os
from pathlib import Path

STATE = Path("/var/lib/gpuconsole-lab")
"""Kept by `down`, so that the next `up` is quick: Podman's images and the build's inputs."""
RUN = Path("/run/gpuconsole-lab")
"""What runs: sockets, recorded pids, the card's figures, lab.json. Removed by `down`."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuconsole-lab"
"""Downloads, kept even by `down --all`."""

STORAGE = STATE / "storage"
BASE = STATE / "base"
BUILD = STATE / "build"
REPOSITORY = STATE / "models"
NVML = STATE / "nvml"

SOCKET = RUN / "podman.sock"
PIDS = RUN / "pids"
LOGS = RUN / "logs"
VALUES = RUN / "nvml.values"
ADDRESSES = RUN / "lab.json"
LOCK = Path("/run/lock/gpuconsole-lab.lock")
"""Outside RUN, so that it outlives `down`."""

CDI_SPEC = Path("/var/run/cdi/gpuconsole-lab.json")
"""One of the two folders that Podman 4 reads, and the one that does not survive a boot."""
CDI_DEVICE = "gpuconsole.test/gpu=all"

CONTAINER = "triton"
BASE_IMAGE = "localhost/gpuconsole-lab/base:latest"
IMAGE = "localhost/gpuconsole-lab/tritonserver:24.10-cpu"
BRIDGE = "gpulab0"
SUBNET = "10.201.77.0/24"
GATEWAY = "10.201.77.1"
MARK = "GPUCONSOLE_LAB_CARD"
"""Environment variable that the CDI device sets: who has it holds the card open, as it were."""

SOURCES = Path(__file__).parent
WHEEL = "nvidia-pytriton==0.7.0"


class LabError(Exception):
    """Something the lab cannot do, in one plain sentence for the person who asked."""


class UsageError(LabError):
    """The person who asked wrote it wrongly."""


def port_base() -> int:
    """Return the first of the three ports (HTTP, gRPC, metrics), 18000 unless GPUCONSOLE_LAB_PORT_BASE says else."""
    text = os.environ.get("GPUCONSOLE_LAB_PORT_BASE", "18000")
    if not text.isdigit() or not 1024 <= int(text) <= 65533:
        raise UsageError(f"GPUCONSOLE_LAB_PORT_BASE is {text!r}: give a port from 1024 to 65533, as in 18000.")
    return int(text)
