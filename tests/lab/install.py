"""Installs what the lab needs from Debian's packages, and fetches the wheel that carries Triton."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.lab import image, paths

PACKAGES = (
    *("podman", "runc", "netavark", "aardvark-dns", "uidmap", "slirp4netns", "iptables", "iproute2"),
    *("debootstrap", "debian-archive-keyring", "gcc", "libc6-dev", "tmux", "wrk"),
)


def install() -> None:
    """Install what is missing; raise LabError where that takes another user or another system."""
    missing = [package for package in PACKAGES if not _installed(package)]
    if missing and not shutil.which("apt-get"):
        raise paths.LabError(
            "The lab is raised on Debian or Ubuntu; on this system install podman, runc, netavark, iptables, "
            "iproute, debootstrap (EPEL), gcc, glibc-devel and tmux with dnf, and try scripts/lab up."
        )
    if missing and os.geteuid() != 0:
        raise paths.LabError(f"Not root: run sudo apt-get install {' '.join(missing)}, then this again.")
    if missing:
        print(f"lab: installing {' '.join(missing)}", flush=True)
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *missing)
    print(f"lab: packages are there; Triton is in {image.find_wheel()}", flush=True)


def _installed(package: str) -> bool:
    if shutil.which("dpkg-query") is None:
        return False
    query = ["dpkg-query", "-W", "-f", "${Status}", package]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout == "install ok installed"


def _apt(*words: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-q", *words], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise paths.LabError(f"apt-get {words[0]} failed: {last}")
