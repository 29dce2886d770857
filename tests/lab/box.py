"""Raises the lab and takes it down again, whole, whatever state it was left in."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab import image, paths, podman, processes, repository, triton
from tests.lab.nvml import build, values

_TOOLS = ("podman", "runc", "debootstrap", "gcc", "iptables", "ip", "tar")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Keep a second `up` or `down` out for as long as the block runs."""
    paths.LOCK.parent.mkdir(parents=True, exist_ok=True)
    with paths.LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def up(*, afresh: bool = False) -> dict[str, Any]:
    """Raise the lab, or leave it as it is where it serves (unless `afresh`); return its addresses."""
    require_lab_machine(Path("/"))
    require_tools()
    with locked():
        found = addresses()
        if found and found["http_port"] != paths.port_base():
            raise paths.LabError(
                f"The lab is already up on port {found['http_port']}: run scripts/lab down to move it."
            )
        if found and whole(found["http_port"]) and not afresh:
            return found
        _down()
        require_ports(paths.port_base())
        try:
            _raise(paths.port_base())
        except (paths.LabError, subprocess.SubprocessError, OSError):
            _save_logs()
            _down()
            raise
        return addresses() or {}


def _raise(port: int) -> None:
    for folder in (paths.RUN, paths.PIDS, paths.LOGS, paths.STATE):
        folder.mkdir(parents=True, exist_ok=True)
    podman.configure()
    image.ensure()
    build.build(paths.NVML, paths.VALUES)
    values.create(paths.VALUES)
    _write_cdi_spec()
    repository.deploy()
    podman.start_service()
    podman.run(*_container_words(port))
    _wait_until_serving(port)
    follower = [sys.executable, "-m", "tests.lab.card", str(paths.VALUES), str(port)]
    processes.start("card", follower, os.environ | {"PYTHONPATH": str(paths.SOURCES.parents[1])})
    _wait_until_card_shows_server()
    _write_addresses(port)


def _container_words(port: int) -> list[str]:
    published = [f"127.0.0.1:{port + offset}:{8000 + offset}" for offset in range(3)]
    return [
        *("run", "--detach", "--name", paths.CONTAINER, "--pull", "never", "--device", paths.CDI_DEVICE),
        *(word for ports in published for word in ("--publish", ports)),
        *("--cgroup-parent", podman.CGROUP_PARENT),
        *("--volume", f"{paths.REPOSITORY}:/models:ro", "--shm-size", "256m"),
        *("--stop-timeout", "60", "--label", "io.gpuconsole.lab=1", paths.IMAGE),
        *("tritonserver", "--model-repository=/models", "--model-control-mode=explicit", "--load-model=*"),
        # Without the first, one model that cannot load ends the server; the second is less than Podman waits.
        *("--exit-on-error=false", "--exit-timeout-secs=30"),
        # Its DCGM finds the stand-in NVML and waits for ever for what only a driver gives.
        "--allow-gpu-metrics=false",
        "--backend-directory=/opt/tritonserver/pytriton/tritonserver/backends",
        "--cache-directory=/opt/tritonserver/pytriton/tritonserver/caches",
    ]


def _write_cdi_spec() -> None:
    library = str(paths.NVML / build.LIBRARY)
    inside = f"/usr/lib/{os.uname().machine}-linux-gnu/{build.LIBRARY}"
    mounts = [(library, inside), (str(paths.VALUES), str(paths.VALUES))]
    spec = {
        "cdiVersion": "0.5.0",
        "kind": paths.CDI_DEVICE.partition("=")[0],
        "devices": [
            {
                "name": "all",
                "containerEdits": {
                    "env": [f"{paths.MARK}=1", f"GPUCONSOLE_NVML_FILE={paths.VALUES}"],
                    "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/null"}],
                    "mounts": [
                        {"hostPath": host, "containerPath": target, "options": ["ro", "nosuid", "nodev", "bind"]}
                        for host, target in mounts
                    ],
                },
            }
        ],
    }
    paths.CDI_SPEC.parent.mkdir(parents=True, exist_ok=True)
    paths.CDI_SPEC.write_text(json.dumps(spec, indent=2))


def _wait_until_serving(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if serving(port):
            break
        time.sleep(0.1)
    else:
        raise paths.LabError(f"Triton did not serve its models within 60 s: see {_LOGS_KEPT}.")
    # With a wrong NumPy every output is empty while health and statistics look fine.
    answer = triton.score_of(port, 7)
    if answer != 7.375:
        raise paths.LabError(f"Triton serves but answers wrongly: reco(7) is {answer}, not 7.375.")


def _wait_until_card_shows_server() -> None:
    device = values.open_values(paths.VALUES).devices[0]
    deadline = time.monotonic() + 10
    while device.process_count == 0:
        if time.monotonic() > deadline:
            raise paths.LabError(f"The card's follower does not work: see {_LOGS_KEPT / 'card.log'}.")
        time.sleep(0.02)


def serving(port: int) -> bool:
    """Tell whether every model that should serve does."""
    wanted = {(name, str(version)) for name, versions in repository.SERVED.items() for version in versions}
    try:
        return wanted <= triton.ready_versions(port)
    except (OSError, http.client.HTTPException):
        return False


def whole(port: int) -> bool:
    """Tell whether every part of the lab runs."""
    return serving(port) and podman_answers() and processes.running("card") is not None


def podman_answers() -> bool:
    """Tell whether the lab's Podman service accepts connections."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(paths.SOCKET))
        except OSError:
            return False
    return True


def _write_addresses(port: int) -> None:
    lab = {
        "podman": f"unix://{paths.SOCKET}",
        "http": f"http://127.0.0.1:{port}",
        "grpc": f"127.0.0.1:{port + 1}",
        "metrics": f"http://127.0.0.1:{port + 2}/metrics",
        "http_port": port,
        "container": paths.CONTAINER,
        "image": paths.IMAGE,
        "repository": str(paths.REPOSITORY),
        "nvml_directory": str(paths.NVML),
        "nvml_values": str(paths.VALUES),
        "cdi_spec": str(paths.CDI_SPEC),
        "started": time.time(),
    }
    scratch = paths.ADDRESSES.with_suffix(".new")
    scratch.write_text(json.dumps(lab, indent=2) + "\n")
    scratch.rename(paths.ADDRESSES)


def addresses() -> dict[str, Any] | None:
    """Return what lab.json says, None where the lab was not raised."""
    try:
        found = json.loads(paths.ADDRESSES.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


# ---- down ----------------------------------------------------------------------------------------------------


def down(*, everything: bool = False) -> None:
    """Remove all that runs; with `everything` the image and the build's inputs too."""
    require_root()
    with locked():
        _down()
        if everything:
            shutil.rmtree(paths.STATE, ignore_errors=True)


def _down() -> None:
    paths.ADDRESSES.unlink(missing_ok=True)
    for name in ("card", "podman-service"):
        processes.stop(name)
    if paths.STORAGE.exists() and shutil.which("podman"):
        paths.RUN.mkdir(parents=True, exist_ok=True)
        podman.configure()
        # Podman first: it also takes back the ports, the network rules and the mounts.
        podman.remove_containers()
    for pid in [*(pid for pid, _ in processes.holding_card()), *processes.strays()]:
        processes.end(pid)
    _unmount_leftovers()
    _remove_network_leftovers()
    _remove_cgroups()
    paths.CDI_SPEC.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: others have specs there
        paths.CDI_SPEC.parent.rmdir()
    for folder in (paths.RUN, paths.BASE, paths.BUILD, paths.REPOSITORY, paths.NVML):
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_leftovers() -> None:
    inside = (f"{paths.STATE}/", f"{paths.RUN}/")
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((p for p in points if p.startswith(inside)), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


_IN_SUBNET = paths.SUBNET.removesuffix("0/24")


def _remove_network_leftovers() -> None:
    """Remove bridge and packet rules that a killed Podman left; they name the lab's own subnet or chains."""
    subprocess.run(["ip", "link", "delete", paths.BRIDGE], capture_output=True, check=False)
    namespaces = Path("/run/netns")
    for namespace in sorted(namespaces.iterdir()) if namespaces.is_dir() else ():
        listed = subprocess.run(
            ["ip", "-n", namespace.name, "-4", "address"], capture_output=True, text=True, check=False
        )
        if _IN_SUBNET in listed.stdout:
            subprocess.run(["ip", "netns", "delete", namespace.name], capture_output=True, check=False)
    if shutil.which("iptables") is None:
        return
    for table in ("nat", "filter"):
        listed = subprocess.run(["iptables", "-t", table, "-S"], capture_output=True, text=True, check=False)
        rules = listed.stdout.splitlines()
        chains = {rule.split()[1] for rule in rules if rule.startswith("-A NETAVARK-") and paths.SUBNET in rule}
        chains |= {rule.split()[1] for rule in rules if _IN_SUBNET in rule and rule.startswith("-A NETAVARK-DN-")}
        for rule in rules:
            words = shlex.split(rule)
            if words[0] == "-A" and (_IN_SUBNET in rule or chains & set(words)):
                subprocess.run(["iptables", "-t", table, "-D", *words[1:]], capture_output=True, check=False)
        for chain in sorted(chains - {"NETAVARK_FORWARD"}):
            subprocess.run(["iptables", "-t", table, "-X", chain], capture_output=True, check=False)


def _remove_cgroups() -> None:
    for top in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")):
        # A control group can be removed once it is empty of processes and of children.
        for folder, _, _ in os.walk(f"{top}{podman.CGROUP_PARENT}", topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


_LOGS_KEPT = Path("/tmp/gpuconsole-lab-logs")


def _save_logs() -> None:
    """Keep the logs of a failed `up`, which `down` would remove."""
    shutil.rmtree(_LOGS_KEPT, ignore_errors=True)
    with contextlib.suppress(OSError):
        shutil.copytree(paths.LOGS, _LOGS_KEPT)
    with contextlib.suppress(OSError, paths.LabError):
        logs = podman.run("logs", paths.CONTAINER)
        (_LOGS_KEPT / "triton.log").write_text(logs.stdout + logs.stderr)


# ---- what must hold before anything is done -------------------------------------------------------------------


def require_root() -> None:
    """The lab mounts, makes a bridge and runs containers: raise LabError for anyone but root."""
    if os.geteuid() != 0:
        raise paths.LabError("The lab needs root: run it as root or with sudo.")


def require_lab_machine(root: Path) -> None:
    """Raise LabError where an NVIDIA driver is loaded and nobody said that this machine is a lab."""
    require_root()
    if os.environ.get("GPUCONSOLE_LAB") == "1":
        return
    try:
        modules = (root / "proc/modules").read_text().splitlines()
    except OSError:
        modules = []
    if (root / "proc/driver/nvidia").exists() or any(line.split(" ")[0] == "nvidia" for line in modules):
        raise paths.LabError(
            "An NVIDIA driver is loaded, so this may be a box that serves: "
            "set GPUCONSOLE_LAB=1 if it is a lab and run the command again."
        )


def require_tools() -> None:
    """Raise LabError naming the programs that are missing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise paths.LabError(f"Missing here: {', '.join(missing)}. Run scripts/lab install.")


def require_ports(base: int) -> None:
    """Raise LabError where one of the three ports is taken."""
    for port in range(base, base + 3):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise paths.LabError(
                    f"Port {port} on 127.0.0.1 is taken: set GPUCONSOLE_LAB_PORT_BASE to the first of three free ports."
                ) from None
