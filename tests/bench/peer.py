"""NVIDIA's perf_analyzer for comparison: unpacked from the last wheel of tritonclient whose binary Debian 12 runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.lab import paths

WHEELS = {"tritonclient==2.51.0": "/bin/perf_analyzer", "nvidia-cuda-runtime-cu12": "/libcudart.so.12"}
"""Where in each wheel lies what is wanted. tritonclient from 2.53 on is built for a newer glibc (domain facts, 4)."""
PACKAGE, LIBRARY = "libb64-0d", "libb64.so.0d"


def perf_analyzer() -> Path:
    """The binary, its two libraries beside it; fetched where it is not in the cache. LabError where that fails."""
    folder = paths.CACHE / "perf_analyzer"
    binary = folder / "perf_analyzer"
    if binary.exists():
        return binary
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    print(f"bench: fetching perf_analyzer into {folder}", flush=True)
    for wheel in WHEELS:
        words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        _run([*words, "--platform", "manylinux1_x86_64", "--platform", "manylinux2014_x86_64", "-d", str(work), wheel])
    _run(["apt-get", "-q", "download", PACKAGE], work)
    (package,) = work.glob(f"{PACKAGE}_*.deb")
    _run(["dpkg", "-x", str(package), str(work / "deb")])
    shutil.copy(next((work / "deb").rglob(LIBRARY)), folder / LIBRARY)
    for archive in work.glob("*.whl"):
        _unpack(archive, folder)
    binary.chmod(0o755)
    shutil.rmtree(work)
    return binary


def environment(binary: Path) -> Mapping[str, str]:
    """For the process that runs it."""
    beside = [str(binary.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(part for part in beside if part)}


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.endswith(tuple(WHEELS.values())):
                (folder / name.rpartition("/")[2]).write_bytes(opened.read(name))


def _run(words: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise paths.LabError(f"{' '.join(words[:4])} failed: {last}")
