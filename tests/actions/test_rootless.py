"""The container's actions, its figures and Podman's traps on a rootless service of a throw-away user.

Run here: Podman 4.3.1 with runc, slirp4netns and overlay on cgroup v1 (hybrid), as on RHEL 8. What differs from
rootful (host.md 3.3 to 3.6): limits on memory and CPUs are dropped with a warning, `stats` answers 409 and the cgroup
is the user's, ports below 1024 are refused at start, CDI device nodes keep their host's name, and a port is not kept
after a start that failed in the runtime. Not run: cgroup v2 (delegated limits, `stats`), pasta, crun, fuse-overlayfs,
the user's own systemd (units, socket activation), SELinux.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.actions.box import Box
from console.actions.container import Restart, Start, Stop
from console.actions.container_remove import Remove
from console.actions.recreate import Back, Create, Recreate
from console.clients.files import private_folder
from console.clients.podman_control import PodmanControl, PodmanRefusal
from console.core import podman_errors
from console.sources.container import ContainerSettings, ContainerSource
from console.sources.host import HostSource
from tests.actions.fake_run import FakeRun
from tests.actions.own_box import containers, done, left_as_told, own_box
from tests.lab import paths, repository, rootless
from tests.lab.fixtures import Lab
from tests.lab.rootless import Rootless, RootlessTriton, rootless_triton

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(bool(rootless.lacking()), reason=f"no rootless Podman here ({rootless.lacking()})"),
]

UNLIMITED = 2**64 - 1
LIMITS = [{"type": "nofile", "soft": 1024, "hard": 1024}, {"type": "nproc", "soft": 512, "hard": 512}]
V1 = not Path("/sys/fs/cgroup/cgroup.controllers").exists()


@pytest.fixture(scope="module")
def user() -> Iterator[Rootless]:
    if Lab.found() is None:
        pytest.skip("the lab is not up: run scripts/lab up")
    with rootless.rootless() as made:
        repository.write("rank", repository.sleeper_config("rank"), (1,), root=made.home / "models")
        yield made


@pytest.fixture
def control(user: Rootless) -> Iterator[PodmanControl]:
    client = PodmanControl(f"unix://{user.socket}")
    yield client
    for name in client.names():
        client.remove(name, force=True)
    client.close()


@pytest.fixture
def own(lab: Lab, user: Rootless) -> Iterator[RootlessTriton]:
    with rootless_triton(user) as found:
        found.wait_ready({("rank", "1")})
        yield found


@pytest.fixture
def box(own: RootlessTriton, tmp_path: Path) -> Iterator[Box]:
    with own_box(own, private_folder(tmp_path / "state")) as found:
        yield found


def body(**more: Any) -> dict[str, Any]:
    return {"name": "one", "image": paths.IMAGE, "command": ["sleep", "60"], **more}


def refused_start(control: PodmanControl, **more: Any) -> PodmanRefusal:
    control.create(body(**more))
    with pytest.raises(PodmanRefusal) as caught:
        control.start("one")
    return caught.value


def mapping(port: int) -> list[dict[str, Any]]:
    return [{"container_port": 8000, "host_port": port, "host_ip": "127.0.0.1", "protocol": "tcp"}]


# -------------------------------------------------------------------------------------------------------------- podman


def test_start_stop_and_again(control: PodmanControl) -> None:
    control.create(body())
    control.start("one")
    control.start("one")
    with pytest.raises(PodmanRefusal, match="running"):
        control.remove("one")
    assert control.stop("one", 0)
    assert not control.stop("one", 0)
    control.rename("one", "two")
    assert control.names() == {"two": "exited"}
    assert control.remove("two")
    assert not control.remove("two")


@pytest.mark.skipif(not V1, reason="limits are delegated to users on cgroup v2")
def test_dropped_limits_are_told(control: PodmanControl) -> None:
    made = control.create(body(resource_limits={"memory": {"limit": 64 << 20}, "cpu": {"cpus": "0"}}))
    assert any("cgroups V1 rootless" in text for text in made.warnings)
    host = (control.inspect("one") or {})["HostConfig"]
    assert (host["Memory"], host["CpusetCpus"]) == (0, "")


@pytest.mark.parametrize("limit", ["memlock", "nofile", "nproc"])
def test_a_limit_that_a_user_may_not_raise(control: PodmanControl, limit: str) -> None:
    asked = {"type": limit, "soft": UNLIMITED >> 1, "hard": UNLIMITED >> 1}
    others = [one for one in LIMITS if one["type"] != limit]
    assert f"limit {limit}" in refused_start(control, r_limits=[*others, asked]).hint


def test_a_port_of_roots(control: PodmanControl) -> None:
    assert "1024" in refused_start(control, portmappings=mapping(81)).hint


def test_a_taken_port(control: PodmanControl) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        refused = refused_start(control, portmappings=mapping(listener.getsockname()[1]))
    assert podman_errors.is_port_in_use(refused.text)
    control.start("one")


def test_no_port_is_kept_after_a_failure_in_the_runtime(control: PodmanControl) -> None:
    """Unlike rootful (host.md 3.6): the ports are given out by a helper that begins when the process runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    refused = refused_start(control, portmappings=mapping(port), command=["/no/such/program"])
    assert "image or its command" in refused.hint
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_cdi(control: PodmanControl, user: Rootless) -> None:
    assert "CDI spec file" in refused_start(control, devices=[{"path": "no.such/gpu=all"}]).hint
    control.remove("one")
    renamed = refused_start(control, devices=[{"path": paths.CDI_DEVICE}])
    assert "device node" in renamed.hint, "the lab's own gives /dev/null another name, which a user's Podman cannot"
    control.remove("one")
    control.create(body(devices=[{"path": user.cdi_device}]))
    control.start("one")
    assert f"GPUCONSOLE_ROOTLESS={user.user}" in (control.inspect("one") or {})["Config"]["Env"]


# --------------------------------------------------------------------------------------------------------------- reads


def figures(own: RootlessTriton) -> None:
    source = ContainerSource(ContainerSettings(own.socket, own.name))
    with contextlib.closing(source):
        source.open()
        container = source.read().container
    assert container is not None
    assert container.pid
    assert container.usage.shm_used is not None
    if V1:
        assert container.network == "slirp4netns"
        assert (container.usage.memory, container.usage.pids, container.usage.oom_kills) == (None, None, None)
    state = HostSource(lambda: container.pid).read()
    assert set(state.stub_pids) == {"rank/1"}
    assert state.triton_rss


REFUSED = [
    ({"ulimits": "memlock=-1"}, "may not raise memlock to unlimited"),
    ({"ports": "127.0.0.1:80:8000"}, "port 80 is below"),
    ({"devices": "no.such/gpu=all"}, "no.such/gpu=all"),
]


# ------------------------------------------------------------------------------------------------------------- actions


def test_figures_then_stop_start_restart(own: RootlessTriton, box: Box) -> None:
    figures(own)
    plan, outcome = done(Stop(), box, "")
    assert outcome.word == "done", outcome
    assert containers(own) == {own.name: "exited"}
    assert left_as_told(Stop(), box, plan, outcome)
    assert outcome.undo is not None
    assert done(Start(), box, outcome.undo.target)[1].word == "done"
    assert own.ready() == {("rank", "1")}
    assert done(Restart(), box, own.name)[1].word == "done"
    assert own.ready() == {("rank", "1")}


def test_recreate_back_and_remove(own: RootlessTriton, box: Box, user: Rootless) -> None:
    for values, why in REFUSED:
        assert why in Recreate().plan(box, "", values).refused
    run = FakeRun()
    plan, outcome = done(Recreate(), box, "", run, {"cpus": "0", "shm_size": "192m", "env": "PLAIN=1"})
    assert outcome.word == "done", (outcome, run.notes)
    if V1:
        assert "CPU set is not set, asked for was 0" in run.notes
    assert own.ready() == {("rank", "1")}
    assert containers(own) == {own.name: "running", f"{own.name}-old-1": "exited"}
    assert left_as_told(Recreate(), box, plan, outcome)
    assert "201326592" in user.podman("inspect", "--format", "{{.HostConfig.ShmSize}}", own.name)
    assert f"GPUCONSOLE_ROOTLESS={user.user}" in user.podman("inspect", own.name), "the CDI device is carried over"
    assert outcome.undo is not None
    assert done(Back(), box, outcome.undo.target, values=outcome.undo.values)[1].word == "done"
    assert own.ready() == {("rank", "1")}
    _, removed = done(Remove(), box, f"{own.name}-old-2")
    assert removed.word == "done"
    assert containers(own) == {own.name: "running"}
    assert removed.undo is not None
    assert done(Create(), box, removed.undo.target, values=removed.undo.values)[1].word == "done"
    assert containers(own) == {own.name: "running", f"{own.name}-old-2": "created"}
    no_good(own, box)


def no_good(own: RootlessTriton, box: Box) -> None:
    before = containers(own)
    _, outcome = done(Recreate(), box, "", values={"flags": "--no-such-flag"})
    assert outcome.word == "undone", outcome
    assert any("no-such-flag" in line for line in outcome.lines)
    assert containers(own) == before
    assert own.ready() == {("rank", "1")}


# --------------------------------------------------------------------------------------------------------- the removal


@pytest.mark.parametrize("guard_too", [False, True], ids=["the test run", "the guard too"])
def test_nothing_is_left_when_killed(guard_too: bool) -> None:
    program = (
        "import time\nfrom tests.lab import rootless\n"
        "with rootless.rootless(image=False) as made:\n"
        "    print(made.user, made.guard, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name, guard = child.stdout.readline().split()
        assert name in Path("/etc/subuid").read_text()
        if guard_too:
            os.kill(int(guard), signal.SIGKILL)
        child.kill()
    deadline = time.monotonic() + 30
    while (rootless.BASE / f"{name}.lock").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
        if guard_too:
            rootless.sweep()
    for file in ("/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid", "/proc/self/mountinfo"):
        assert name not in Path(file).read_text()
    assert not (rootless.BASE / name).exists()
