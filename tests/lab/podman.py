"""A Podman of the lab's own: other storage, run folder, socket, network and locks than the machine's."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import time

from tests.lab import paths, processes

CONF = paths.RUN / "containers.conf"
STORAGE_CONF = paths.RUN / "storage.conf"
RUNROOT = paths.RUN / "containers"
NETWORKS = paths.RUN / "networks"
CGROUP_PARENT = "/gpuconsole-lab"

# crun refuses hybrid cgroups and runc does not. File locks, because Podman's default ones are one shared
# memory segment for all Podmans of a user. No journald: there may be no systemd.
_CONF = """\
[containers]
default_ulimits = ["nofile={nofile}:{nofile}", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
events_logfile_max_size = "64m"
lock_type = "file"
tmp_dir = "{run}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{run}/networks"
default_network = "gpuconsole-lab"
"""

_STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{storage}"
runroot = "{runroot}"
"""


def configure() -> None:
    """Write the configuration that keeps this Podman apart."""
    NETWORKS.mkdir(parents=True, exist_ok=True)
    nofile = min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    CONF.write_text(_CONF.format(nofile=nofile, run=paths.RUN))
    STORAGE_CONF.write_text(_STORAGE_CONF.format(storage=paths.STORAGE, runroot=RUNROOT))
    network = {
        "name": "gpuconsole-lab",
        "id": "6c6162" * 10 + "6c61",
        "driver": "bridge",
        "network_interface": paths.BRIDGE,
        "created": "2026-01-01T00:00:00Z",
        "subnets": [{"subnet": paths.SUBNET, "gateway": paths.GATEWAY}],
        "ipv6_enabled": False,
        "internal": False,
        "dns_enabled": False,
        "ipam_options": {"driver": "host-local"},
    }
    (NETWORKS / "gpuconsole-lab.json").write_text(json.dumps(network))


def environment() -> dict[str, str]:
    """Return the environment for any command that means the lab's Podman."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONTAINER", "PODMAN"))}
    return kept | {"CONTAINERS_CONF": str(CONF), "CONTAINERS_STORAGE_CONF": str(STORAGE_CONF)}


def command(*words: str) -> list[str]:
    """Return the argument list of a podman command on the lab's storage."""
    return ["podman", "--root", str(paths.STORAGE), "--runroot", str(RUNROOT), *words]


def run(*words: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a podman command.

    Raises LabError with Podman's last line where it fails and `check` is set, and where it takes too long.
    """
    try:
        done = subprocess.run(
            command(*words), env=environment(), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise paths.LabError(f"podman {words[0]} did not end within {timeout:.0f} s.") from error
    if check and done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise paths.LabError(f"podman {words[0]} failed: {last}")
    return done


def start_service() -> None:
    """Start the API service and wait until it answers on its socket."""
    paths.SOCKET.unlink(missing_ok=True)
    service = command("system", "service", "--time=0", f"unix://{paths.SOCKET}")
    processes.start("podman-service", service, environment())
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if paths.SOCKET.exists():
            return
        if processes.running("podman-service") is None:
            break
        time.sleep(0.05)
    raise paths.LabError(f"The Podman service did not start: see {paths.LOGS / 'podman-service.log'}.")


def remove_containers() -> None:
    """Remove every container of the lab, running or not."""
    # The first try fails where monitor and container were killed: only then does Podman learn of it.
    for _ in range(3):
        with contextlib.suppress(paths.LabError):
            if run("rm", "--all", "--force", "--time", "0", check=False, timeout=60).returncode == 0:
                return


def container_state() -> str | None:
    """Return the state of the Triton container as Podman tells it, None where there is none."""
    done = run("inspect", "--format", "{{.State.Status}}", paths.CONTAINER, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def has_image(name: str, inputs: str) -> bool:
    """Tell whether an image was made from these inputs (its label gpuconsole.lab.inputs)."""
    done = run("image", "inspect", "--format", '{{index .Labels "gpuconsole.lab.inputs"}}', name, check=False)
    return done.returncode == 0 and done.stdout.strip() == inputs
