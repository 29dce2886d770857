"""The image with the CPU Triton: a Debian from debootstrap, and the server out of NVIDIA's own wheel."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.lab import paths, podman

_PACKAGES = "python3,python3-numpy,libpython3.11"
_SUITE = "bookworm"
_STUB = "pytriton/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub"
_WANTED = (
    "pytriton/tritonserver/bin/",
    "pytriton/tritonserver/backends/",
    "pytriton/tritonserver/caches/",
    "nvidia_pytriton.libs/",
)
_UNWANTED = "nvidia_pytriton.libs/libpython3"  # 32 MB for the stub of another Python


def ensure() -> None:
    """Make the image, or keep the one that is there if its inputs are the same."""
    wheel = find_wheel()
    base_inputs = f"{_SUITE}:{_PACKAGES}:{platform.machine()}"
    recipe = (paths.SOURCES / "Containerfile").read_bytes()
    inputs = hashlib.sha256(recipe + wheel.name.encode() + base_inputs.encode()).hexdigest()[:16]
    if podman.has_image(paths.IMAGE, inputs):
        return
    if not podman.has_image(paths.BASE_IMAGE, base_inputs):
        _make_base(base_inputs)
    print("lab: building the Triton image", flush=True)
    try:
        _unpack(wheel, paths.BUILD / "triton")
        shutil.copy(paths.SOURCES / "Containerfile", paths.BUILD)
        podman.run(
            *("build", "--network", "host", "--layers=false", "--label", f"gpuconsole.lab.inputs={inputs}"),
            *("-t", paths.IMAGE, str(paths.BUILD)),
            timeout=300,
        )
        podman.run("image", "prune", "--force", check=False)  # the one that this replaces
    finally:
        shutil.rmtree(paths.BUILD, ignore_errors=True)


def find_wheel() -> Path:
    """Return the wheel that carries Triton, from the cache; download it where it is not there."""
    found = sorted(paths.CACHE.glob("nvidia_pytriton-*.whl"))
    if found:
        return found[-1]
    print(f"lab: downloading {paths.WHEEL}", flush=True)
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    # Not installed: its own requirements are not wanted, and the server works from where it is unpacked.
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(paths.CACHE), paths.WHEEL]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=600, check=False)
    found = sorted(paths.CACHE.glob("nvidia_pytriton-*.whl"))
    if not found:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise paths.LabError(f"pip could not download {paths.WHEEL}: {last}")
    return found[-1]


def _make_base(inputs: str) -> None:
    print("lab: making the base image with debootstrap (under a minute)", flush=True)
    shutil.rmtree(paths.BASE, ignore_errors=True)
    paths.BASE.parent.mkdir(parents=True, exist_ok=True)
    log = paths.LOGS / "debootstrap.log"
    paths.LOGS.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(paths.BASE)],
            stdout=output,
            stderr=output,
            timeout=900,
            check=False,
        )
    if done.returncode != 0:
        raise paths.LabError(f"debootstrap failed: see {log}.")
    tar = subprocess.Popen(
        ["tar", "-C", str(paths.BASE), "--exclude=./var/cache/apt", "--exclude=./usr/share/doc", "-c", "."],
        stdout=subprocess.PIPE,
    )
    done = subprocess.run(
        podman.command("import", "-q", "--change", f"LABEL gpuconsole.lab.inputs={inputs}", "-", paths.BASE_IMAGE),
        stdin=tar.stdout,
        env=podman.environment(),
        capture_output=True,
        timeout=300,
        check=False,
    )
    if tar.wait() != 0 or done.returncode != 0:
        raise paths.LabError(f"podman import of the base failed: {done.stderr.decode(errors='replace').strip()}")
    shutil.rmtree(paths.BASE)


def _unpack(wheel: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(_WANTED) and not name.startswith(_UNWANTED):
                archive.extract(name, target)
        archive.extract(_STUB, target)
    server = target / "pytriton/tritonserver"
    shutil.copy(target / _STUB, server / "backends/python")
    shutil.rmtree(server / "python_backend_stubs")
    for program in (server / "bin/tritonserver", server / "backends/python/triton_python_backend_stub"):
        program.chmod(0o755)
