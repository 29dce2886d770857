"""Builds the stand-in with gcc, into a directory that LD_LIBRARY_PATH can name."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.lab.nvml.layout import c_header
from tests.lab.paths import LabError

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("standin.c")


def build(directory: Path, default_file: Path) -> Path:
    """Put the library into `directory` and return its path.

    `default_file` is the value file where GPUCONSOLE_NVML_FILE names none.
    Raises LabError where there is no gcc or it refuses the source.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LabError("gcc is not installed: run scripts/lab install.")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "layout.h").write_text(c_header())
        # Renamed into place: a process that has the old one mapped keeps it whole.
        made = directory / f".{LIBRARY}.{os.getpid()}"
        done = subprocess.run(
            [
                *(compiler, "-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror"),
                *("-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", "-I", scratch),
                *(f'-DDEFAULT_FILE="{default_file}"', str(SOURCE), "-o", str(made), "-lpthread"),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise LabError(f"gcc refuses {SOURCE}:\n{done.stderr}")
        made.rename(library)
    return library
