"""Another Podman in the lab's place: the one of a Debian folder, for a test run that names this plugin.

    debootstrap --variant=minbase --include=podman,runc,iptables,netavark trixie /var/lib/gpuconsole-trixie
    .venv/bin/python -m pytest -p tests.lab.podman5 tests/actions/test_container.py tests/clients/test_podman_control.py

GPUCONSOLE_TRIXIE names another folder. Needs the lab (its image, its CDI device) and root. Its service runs in the
folder (chroot) in a mount namespace of its own, which goes with it; its state lies in STATE and is removed afterwards.

Run so with Podman 5.4.2, runc 1.1.15 and netavark 1.14 on cgroup v1 (hybrid): stop, start, restart, remove and undo,
recreate with what is carried over, twice, with --rm, create from nothing, pulls, CDI, and the traps of host.md 3.3 to
3.6 in test_podman_control.py. Not run: kills in each phase, cgroup v2, crun, rootless 5, Quadlet through systemd.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab import box, fixtures, own, paths, podman, processes

STATE = Path("/var/tmp/gpuconsole-podman5")
FOLDER = Path(os.environ.get("GPUCONSOLE_TRIXIE", "/var/lib/gpuconsole-trixie"))
SOCKET = STATE / "podman.sock"
CGROUP_PARENT = "/gpuconsole-podman5"
_BRIDGE = "gpupod5"
_SUBNET = "10.201.78"
_CERTIFICATES = Path("/etc/containers/certs.d")
_SHARED = (STATE, paths.NVML, paths.RUN, Path("/tmp"), paths.CDI_SPEC.parent.resolve(), _CERTIFICATES)
"""What has the same path in the folder as outside."""
_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{state}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{state}/networks"
default_network = "gpuconsole-podman5"
firewall_driver = "iptables"
"""
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{state}/storage"\nrunroot = "{state}/containers"\n'
_ENVIRONMENT = (
    *("env", "-i", "PATH=/usr/bin:/usr/sbin:/bin:/sbin", "HOME=/root", "PODMAN_IGNORE_CGROUPSV1_WARNING=1"),
    *(f"CONTAINERS_CONF={STATE}/containers.conf", f"CONTAINERS_STORAGE_CONF={STATE}/storage.conf"),
)
_service: list[subprocess.Popen[bytes]] = []


def pytest_configure() -> None:
    """Start it, give it the lab's image, and let every test that asks for the lab's Podman have this one."""
    if not (FOLDER / "usr/bin/podman").exists():
        pytest.exit(f"no Podman in {FOLDER}: see tests/lab/podman5.py")
    box.require_lab_machine(Path("/"))
    _configure()
    _serve()
    archive = STATE / "image.tar"
    podman.run("save", "--quiet", "--output", str(archive), paths.IMAGE)
    _take_the_labs_place()
    podman.run("load", "--quiet", "--input", str(archive))
    archive.unlink()
    version = podman.run("version", "--format", "{{.Server.Version}}").stdout.strip()
    print(f"the lab's Podman is that of {FOLDER}: {version}")


def pytest_unconfigure() -> None:
    """End it and remove all that it made."""
    if not _service:
        return
    podman.remove_containers()
    processes.end(_service[0].pid)
    _service[0].wait(20)
    subprocess.run(["ip", "link", "delete", _BRIDGE], capture_output=True, check=False)
    box._remove_cgroups()
    shutil.rmtree(STATE, ignore_errors=True)


def _configure() -> None:
    shutil.rmtree(STATE, ignore_errors=True)
    _CERTIFICATES.mkdir(parents=True, exist_ok=True)
    (STATE / "networks").mkdir(parents=True)
    (STATE / "containers.conf").write_text(_CONF.format(state=STATE))
    (STATE / "storage.conf").write_text(_STORAGE.format(state=STATE))
    network = {
        "name": "gpuconsole-podman5",
        "id": "706435" * 10 + "7064",
        "driver": "bridge",
        "network_interface": _BRIDGE,
        "created": "2026-01-01T00:00:00Z",
        "subnets": [{"subnet": f"{_SUBNET}.0/24", "gateway": f"{_SUBNET}.1"}],
        "ipv6_enabled": False,
        "internal": False,
        "dns_enabled": False,
        "ipam_options": {"driver": "host-local"},
    }
    (STATE / "networks/gpuconsole-podman5.json").write_text(json.dumps(network))


def _serve() -> None:
    mounts = [f"mount --rbind /{name} {FOLDER}/{name}" for name in ("proc", "sys", "dev")]
    for shared in _SHARED:
        mounts += [f"mkdir -p {FOLDER}{shared}", f"mount --bind {shared} {FOLDER}{shared}"]
    words = [*_ENVIRONMENT, "podman", "system", "service", "--time=0", f"unix://{SOCKET}"]
    script = " && ".join([f"mount --bind {FOLDER} {FOLDER}", *mounts, f'exec chroot {FOLDER} "$@"'])
    log = (STATE / "service.log").open("wb")
    with log:
        service = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    _service.append(service)
    deadline = time.monotonic() + 20
    while not SOCKET.exists():
        if time.monotonic() > deadline or service.poll() is not None:
            pytest.exit(f"the Podman of {FOLDER} did not start: {(STATE / 'service.log').read_text()[-500:]}")
        time.sleep(0.05)


def _command(*words: str) -> list[str]:
    """In the service's own namespace: mounts of containers are seen there only."""
    inside = ["nsenter", "--target", str(_service[0].pid), "--mount", "--root", "--wd", *_ENVIRONMENT]
    return [*inside, "podman", *words]


def _take_the_labs_place() -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(podman, "command", _command)
    patch.setattr(podman, "CGROUP_PARENT", CGROUP_PARENT)
    patch.setattr(own.OwnTriton.__init__, "__defaults__", (f"unix://{SOCKET}",))
    found = fixtures.Lab.found

    def here() -> fixtures.Lab | None:
        lab = found()
        return None if lab is None else dataclasses.replace(lab, podman_url=f"unix://{SOCKET}")

    patch.setattr(fixtures.Lab, "found", here)
