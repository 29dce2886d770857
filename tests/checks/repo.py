"""Boxes with a model repository as facts, for the tests of group `models`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from console.checks.models_engine import HEADS
from console.core.facts import CommandFact, Facts, FileFact
from tests.checks.cards import BDF, GIB, card, nvml
from tests.checks.told import folder, told

ROOT = "/data/models"
RANKING = """name: "ranking"
platform: "tensorrt_plan"
max_batch_size: 16
input [ { name: "input", dims: [ 1, 256 ], data_type: TYPE_FP32 } ]
output [ { name: "score", dims: [ 1 ], data_type: TYPE_FP32 } ]
dynamic_batching {
  max_queue_delay_microseconds: 1000
  default_queue_policy { max_queue_size: 256 default_timeout_microseconds: 50000 timeout_action: REJECT }
}
instance_group [ { count: 2 kind: KIND_GPU } ]
"""
PYTHON = """name: "prep"
backend: "python"
max_batch_size: 8
input [ { name: "raw", dims: [ 1024 ], data_type: TYPE_UINT8 } ]
output [ { name: "features", dims: [ 256 ], data_type: TYPE_FP32 } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""

Tree = Mapping[str, "str | FileFact"]
"""Paths below the repository -> text of config.pbtxt, or the fact of any other file."""

ENGINE = FileFact("file", mode=0o644, uid=0, gid=0, size=400 * 1024**2)
SCRIPT = FileFact("file", mode=0o644, uid=0, gid=0, size=900)
GOOD: Tree = {
    "ranking/config.pbtxt": RANKING,
    "ranking/3/model.plan": ENGINE,
    "prep/config.pbtxt": PYTHON,
    "prep/1/model.py": SCRIPT,
}


def files_of(tree: Tree, root: str = ROOT) -> dict[str, str | FileFact]:
    """The facts of a repository; a path that ends with a slash is an empty folder."""
    known: dict[str, set[str]] = {root: set()}
    found: dict[str, str | FileFact] = {}
    for path, fact in tree.items():
        parts = path.rstrip("/").split("/")
        for depth, part in enumerate(parts):
            known.setdefault("/".join([root, *parts[:depth]]), set()).add(part)
        if path.endswith("/"):
            known.setdefault(f"{root}/{path.rstrip('/')}", set())
        else:
            found[f"{root}/{path}"] = fact
    return {**{path: folder(*sorted(names)) for path, names in known.items()}, **found}


def inspected(*flags: str, **parts: Any) -> dict[str, Any]:
    """A rootful Triton container; `user`, `env`, `labels`, `shm`, `host` (more of HostConfig) change it."""
    return {
        "Name": "triton",
        "Path": "/opt/nvidia/nvidia_entrypoint.sh",
        "Args": ["tritonserver", "--model-repository=/models", *flags],
        "State": {"Status": "running"},
        "Mounts": [{"Source": ROOT, "Destination": "/models", "RW": False}],
        "Config": {
            "User": parts.get("user", ""),
            "Env": parts.get("env", []),
            "Labels": parts.get("labels", {"com.nvidia.tensorrt.version": "10.0.1.6"}),
        },
        "HostConfig": {"ShmSize": parts.get("shm", GIB), "IpcMode": "private", **parts.get("host", {})},
    }


def ready(*names: str) -> list[dict[str, str]]:
    """An index in which these are READY: `ranking/3`."""
    return [{"name": name.partition("/")[0], "version": name.partition("/")[2], "state": "READY"} for name in names]


ALL_READY = ready("ranking/3", "prep/1")


def plan_head(version: str) -> str:
    """The first bytes of an engine of a TensorRT, as `od` prints them."""
    numbers = [int(part) for part in version.split(".")]
    data = b"ftrt" + bytes(4) + bytes.fromhex("01000000 00000000 ff00fe00 00000000") + bytes(numbers)
    return hexed(data)


def hexed(data: bytes) -> str:
    """As `od -A n -t x1` prints bytes."""
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    return "".join("".join(f" {byte:02x}" for byte in row) + "\n" for row in rows)


def box(
    tree: Tree = GOOD,
    *,
    heads: Mapping[str, str] | None = None,
    answers: Mapping[str, Any] | None = None,
    files: Mapping[str, str | FileFact] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
) -> Facts:
    """A rootful box that serves this repository; `heads`: path of an engine -> what od prints of it."""
    known: dict[str, str | FileFact] = {
        "/usr/bin/podman": "ELF",
        "/usr/local/bin/podman": FileFact("absent"),
        "/etc/subuid": "ana:100000:65536\n",
        "/etc/subgid": "ana:100000:65536\n",
        "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nana:x:1001:1001::/home/ana:/bin/bash\n",
        "/sys/bus/pci/devices": folder(BDF[0]),
        f"/sys/bus/pci/devices/{BDF[0]}/vendor": "0x10de\n",
    }
    printed = "".join(f"{ROOT}/{path}\n{text}" for path, text in (heads or {}).items())
    given = {
        "@podman.inspect": inspected(),
        "@podman.ping": {"version": "4.9.4", "rootless": False},
        "@podman.image": {"Labels": {}},
        "@podman.log": [],
        "@triton.index": ALL_READY,
        "@triton.configs": {},
        "@nvml": nvml(card()),
        **(answers or {}),
    }
    names = {"models": (ROOT,), "container": ("triton",), "user": ("root",), "uid": ("0",), "gpu": (BDF[0],)}
    words = HEADS.removeprefix("$ ").replace("{models}", shlex.quote(ROOT))
    return told(
        {**known, **files_of(tree), **(files or {})},
        {words: CommandFact(0, printed)},
        given,
        variables={name: value for name, value in {**names, **(variables or {})}.items() if value},
    )


def without(**answers: Any) -> Facts:
    """A box on which no folder is known to be the model repository."""
    return box(answers={f"@{name.replace('_', '.')}": one for name, one in answers.items()}, variables={"models": ()})
