"""A rootless Podman of a throw-away user, with the lab's image: the user, its processes and its files go afterwards.

A guard, a process of its own, does the removing: when the test is done, and also when the test run is killed. What a
killed guard leaves, the next one removes. `podman` here is the machine's own, run as the user in a mount namespace of
its own, where /dev/net/tun is open to it as it is on any desktop or server with systemd.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pwd
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab import paths, podman
from tests.lab.own import OwnTriton, free_ports

BASE = Path("/var/tmp/gpuconsole-rootless")
"""Home folders; readable for all on the way there, which pytest's own folders are not."""
PREFIX = "gpuc-"
_TOOLS = ("useradd", "userdel", "newuidmap", "newgidmap", "slirp4netns", "setpriv", "unshare", "podman", "runc")
_CDI = Path("/var/run/cdi")
CDI_KIND = "gpuconsole.rootless/gpu"
_CONF = """\
[containers]
default_ulimits = ["nofile={nofile}:{nofile}", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
[network]
network_backend = "netavark"
"""
_STORAGE = '[storage]\ndriver = "overlay"\n'


def lacking() -> str:
    """Why there can be none here; "" = nothing is missing."""
    if os.geteuid() != 0:
        return "not root: no user can be made"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"missing here: {', '.join(missing)}" if missing else ""


@dataclasses.dataclass(frozen=True)
class Rootless:
    """The user and its Podman's service."""

    user: str
    guard: int = 0
    """PID of who removes it."""

    @property
    def home(self) -> Path:
        """Everything of it lies below."""
        return BASE / self.user

    @property
    def socket(self) -> Path:
        """Where the service answers."""
        return self.home / "run/podman/podman.sock"

    @property
    def cdi_device(self) -> str:
        """A CDI device of its own: a variable, and a device node that keeps its name."""
        return f"{CDI_KIND}={self.user}"

    def command(self, *words: str) -> list[str]:
        """Argument list that runs a program as the user, with nothing of this process's environment."""
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": self.home,
            "XDG_RUNTIME_DIR": self.home / "run",
            "TMPDIR": self.home / "tmp",
            "CONTAINERS_CONF": self.home / "containers.conf",
            "CONTAINERS_STORAGE_CONF": self.home / "storage.conf",
        }
        pairs = [f"{name}={value}" for name, value in environment.items()]
        inner = ["setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups", "env", "-i", *pairs, *words]
        script = f'mount --bind {self.home}/tun /dev/net/tun && mount --make-rshared / && cd {self.home} && exec "$@"'
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh", *inner]

    def podman(self, *words: str, check: bool = True) -> str:
        """What a podman command of the user's says; AssertionError where it fails."""
        done = subprocess.run(
            self.command("podman", *words), capture_output=True, text=True, timeout=120, check=False, cwd="/"
        )
        assert done.returncode == 0 or not check, f"podman {words[0]}: {done.stderr[-1000:]}"
        return done.stdout + done.stderr


@contextlib.contextmanager
def rootless(*, image: bool = True) -> Iterator[Rootless]:
    """Its service answers and has the lab's image; everything is removed afterwards."""
    sweep()
    BASE.mkdir(mode=0o755, exist_ok=True)
    user = f"{PREFIX}{secrets.token_hex(4)}"
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.rootless", user],
        cwd=paths.SOURCES.parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    made = Rootless(user, guard.pid)
    try:
        assert guard.stdout is not None
        assert guard.stdout.readline() == b"ready\n"
        _make_user(made)
        _serve(made)
        if image:
            _give_image(made)
        yield made
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(60)


def _make_user(made: Rootless) -> None:
    words = ["useradd", "--no-log-init", "--shell", "/usr/sbin/nologin", "--home-dir", str(made.home), "--create-home"]
    subprocess.run([*words, made.user], check=True, capture_output=True)
    for folder in ("run/podman", "tmp", "models"):
        (made.home / folder).mkdir(parents=True, exist_ok=True)
    nofile = min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    (made.home / "containers.conf").write_text(_CONF.format(nofile=nofile))
    (made.home / "storage.conf").write_text(_STORAGE)
    os.mknod(made.home / "tun", 0o020666, os.makedev(10, 200))
    os.chmod(made.home / "tun", 0o666)
    subprocess.run(["chown", "--recursive", f"{made.user}:", str(made.home)], check=True)
    (made.home / "run").chmod(0o700)
    _write_cdi(made)


def _write_cdi(made: Rootless) -> None:
    node = next(path for path in ("/dev/kmsg", "/dev/fuse", "/dev/loop-control") if os.path.exists(path))
    edits = {"env": [f"GPUCONSOLE_ROOTLESS={made.user}"], "deviceNodes": [{"path": node}]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": CDI_KIND,
        "devices": [{"name": made.user, "containerEdits": edits}],
    }
    _CDI.mkdir(parents=True, exist_ok=True)
    _cdi_file(made.user).write_text(json.dumps(spec))


def _cdi_file(user: str) -> Path:
    return _CDI / f"gpuconsole-rootless-{user}.json"


def _serve(made: Rootless) -> None:
    log = (made.home / "service.log").open("wb")
    with log:
        subprocess.Popen(
            made.command("podman", "system", "service", "--time=0", f"unix://{made.socket}"),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + 20
    while not made.socket.exists():
        assert time.monotonic() < deadline, (made.home / "service.log").read_text()
        time.sleep(0.05)


def _give_image(made: Rootless) -> None:
    save = subprocess.Popen(
        podman.command("save", "--quiet", paths.IMAGE),
        env=podman.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    done = subprocess.run(
        made.command("podman", "load", "--quiet"),
        stdin=save.stdout,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert save.wait() == 0
    assert done.returncode == 0, done.stderr


@dataclasses.dataclass(frozen=True)
class RootlessTriton(OwnTriton):
    """A Triton container of the user's."""

    at: Rootless = Rootless("")

    def log(self) -> str:
        """The container's log."""
        return self.at.podman("logs", self.name, check=False)


@contextlib.contextmanager
def rootless_triton(at: Rootless, *, more: Sequence[str] = ()) -> Iterator[RootlessTriton]:
    """One that serves what lies in the user's folder `models`; removed afterwards, as are those kept of it."""
    port = free_ports()
    own = RootlessTriton(f"own-{secrets.token_hex(4)}", port, at.home / "models", f"unix://{at.socket}", at)
    published = [f"127.0.0.1:{port + offset}:{8000 + offset}" for offset in range(3)]
    at.podman(
        *("run", "--detach", "--name", own.name, "--pull", "never", "--device", at.cdi_device),
        *(word for ports in published for word in ("--publish", ports)),
        *("--volume", f"{own.repository}:/models:ro", "--shm-size", "128m", "--stop-timeout", "60", *more, paths.IMAGE),
        *("tritonserver", "--model-repository=/models", "--exit-on-error=false", "--exit-timeout-secs=30"),
        *("--allow-gpu-metrics=false", "--backend-directory=/opt/tritonserver/pytriton/tritonserver/backends"),
        *("--model-control-mode=explicit", "--load-model=*"),
    )
    try:
        yield own
    finally:
        listed = at.podman("ps", "--all", "--format", "{{.Names}}").split()
        gone = [one for one in listed if one == own.name or one.startswith(f"{own.name}-")]
        at.podman("rm", "--force", "--time", "0", *gone, check=False)


# ----------------------------------------------------------------------------------------------------------- the guard


def sweep() -> None:
    """Remove what a killed guard left; those of test runs that go on are left alone."""
    for file in (*BASE.glob(f"{PREFIX}*.lock"),):
        with file.open("a") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(file.stem)


def guard(user: str) -> None:
    """Wait until nobody holds the other end of standard input, then remove the user and all that is its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (BASE / f"{user}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("ready", flush=True)
        sys.stdin.read()
        _remove(user)


def _remove(user: str) -> None:
    with contextlib.suppress(KeyError):
        uids = [range(own := pwd.getpwnam(user).pw_uid, own + 1), *_sub_ids(user)]
        deadline = time.monotonic() + 20
        while (left := _processes(uids)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        # By force, as a zombie that nobody has waited for yet counts as a process of the user's.
        subprocess.run(["userdel", "--force", user], capture_output=True, check=False)
    _cdi_file(user).unlink(missing_ok=True)
    shutil.rmtree(BASE / user, ignore_errors=True)
    (BASE / f"{user}.lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: another one's
        BASE.rmdir()


def _sub_ids(user: str) -> list[range]:
    lines = [line.split(":") for line in Path("/etc/subuid").read_text().splitlines()]
    return [range(int(one[1]), int(one[1]) + int(one[2])) for one in lines if len(one) == 3 and one[0] == user]


def _processes(uids: Sequence[range]) -> list[int]:
    """PIDs of the user's and its containers' processes, zombies apart: it is new, so nobody else's are among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = dict(line.partition(":\t")[::2] for line in (entry / "status").read_text().splitlines())
            uid = int(status["Uid"].split()[0])
            if any(uid in one for one in uids) and not status["State"].startswith("Z"):
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    guard(sys.argv[1])
