"""The model repository of the lab: what is served, and how a test adds or changes a model."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab import paths

SERVED = {"recall": (1,), "rank": (1, 2), "reco": (1,)}
FAILING = {"rerank": (3,)}

_GPU_MIB = re.compile(r'key:\s*"gpu_mib"\s*value\s*\{\s*string_value:\s*"(\d+)"')


def deploy() -> None:
    """Put the lab's models into a fresh repository. The directory itself stays: it is mounted."""
    paths.REPOSITORY.mkdir(parents=True, exist_ok=True)
    for entry in paths.REPOSITORY.iterdir():
        remove(entry.name)
    for name, versions in (SERVED | FAILING).items():
        config = (paths.SOURCES / "models" / name / "config.pbtxt").read_text()
        program = "broken_engine.py" if name in FAILING else "sleeper.py"
        write(name, config, versions, program=program)


def write(
    name: str, config: str, versions: Sequence[int] = (1,), *, program: str = "sleeper.py", root: Path | None = None
) -> Path:
    """Write a model's folder and return it. An ensemble gets empty version folders."""
    folder = (root or paths.REPOSITORY) / name
    folder.mkdir(parents=True, exist_ok=True)
    for version in versions:
        (folder / str(version)).mkdir(exist_ok=True)
        if "ensemble" not in config:
            shutil.copy(paths.SOURCES / "models" / program, folder / str(version) / "model.py")
    write_config(folder, config)
    return folder


def write_config(folder: Path, config: str) -> None:
    """Replace a model's config.pbtxt in one step: a server that polls never sees half of it."""
    # Outside the model's folder, where Triton would count it as a change of the model.
    scratch = folder.parent / f".{folder.name}.config"
    scratch.write_text(config)
    os.replace(scratch, folder / "config.pbtxt")


def remove(name: str) -> None:
    """Take a model out of the repository."""
    entry = paths.REPOSITORY / name
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def sleeper_config(
    name: str,
    *,
    max_batch: int = 8,
    instances: int = 1,
    batching: str | None = "dynamic_batching { }",
    more: str = "",
    **parameters: object,
) -> str:
    """Return the config.pbtxt of a model that answers as rank does; parameters are those of sleeper.py.

    `batching` is the scheduler's block as config text, None for no batching; `more` any further blocks.
    """
    given: Mapping[str, object] = {"answer": "score", "base_us": 5000, "item_us": 0} | parameters
    entries = ",\n".join(f'  {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in given.items())
    return f"""\
name: "{name}"
backend: "python"
max_batch_size: {max_batch}
input [ {{ name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] }} ]
{batching or ""}
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
{more}
parameters [
{entries}
]
"""


def gpu_mib(name: str) -> int:
    """Return the card memory that one instance of a model takes, in MiB: its parameter gpu_mib, else 250."""
    try:
        found = _GPU_MIB.search((paths.REPOSITORY / name / "config.pbtxt").read_text(errors="replace"))
    except OSError:
        found = None
    return int(found.group(1)) if found else 250
