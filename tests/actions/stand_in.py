"""A stand-in for systemctl, for a unit that makes its container anew at each start, as hand-written ones with --rm."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.lab import podman
from tests.lab.own import OwnTriton, run_words

UNIT = "triton.service"
MORE = ("--rm", "--label", f"PODMAN_SYSTEMD_UNIT={UNIT}")
"""Of the `podman run` that the unit does."""


def unit_with_rm(own: OwnTriton, folder: Path, monkeypatch: pytest.MonkeyPatch, *, late: bool = False) -> Path:
    """Put it first in PATH; the file in which it records what it was told. `late`: the start is answered before Podman
    has made anything, as of a unit of Type=simple."""
    record, file = folder / "record", folder / "bin" / "systemctl"
    file.parent.mkdir(exist_ok=True)
    words, env = " ".join(podman.command()), podman.environment()
    settings = " ".join(f"{name}={value}" for name, value in env.items() if name.startswith("CONTAINERS"))
    made = shlex.join(run_words(own.name, own.port, own.repository, MORE))
    stop = f"env {settings} {words} stop {own.name}"
    start = f"env {settings} {words} {made}"
    begin = f"(sleep 1; {start}) >/dev/null 2>&1 &" if late else f"{start};"
    file.write_text(
        f"""#!/bin/sh
echo "$@" >> {record}
for word; do case "$word" in
show) echo LoadState=loaded; echo ActiveState=inactive; exit 0 ;;
stop) exec {stop} ;;
start) {begin} exit $? ;;
restart) {stop} && {start}; exit $? ;;
esac; done
"""
    )
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")
    return record
