"""Acting through Podman's API: its traps against the real service (host.md 3.3, 3.4, 3.6)."""

from __future__ import annotations

import contextlib
import resource
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from console.clients.podman_control import PodmanControl, PodmanRefusal, PullProgress, _progress
from console.core import podman_errors
from console.core.model import SourceError
from tests.fakes.registry import Registry
from tests.lab import paths, podman
from tests.lab.fixtures import Lab

pytestmark = pytest.mark.lab

UNLIMITED = 2**64 - 1
LIMITS = [{"type": "nofile", "soft": 1024, "hard": 1024}, {"type": "nproc", "soft": 512, "hard": 512}]


@pytest.fixture
def control(lab: Lab) -> Iterator[PodmanControl]:
    client = PodmanControl(lab.podman_url)
    yield client
    client.close()


@pytest.fixture
def name(lab: Lab) -> Iterator[str]:
    chosen = f"own-{secrets.token_hex(4)}"
    yield chosen
    podman.run("rm", "--force", "--time", "0", chosen, check=False)


def body(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": paths.IMAGE,
        "command": ["sleep", "60"],
        "cgroup_parent": podman.CGROUP_PARENT,
        **more,
    }


def refusal(control: PodmanControl, asked: Mapping[str, Any]) -> PodmanRefusal:
    with pytest.raises(PodmanRefusal) as caught:
        control.create(asked)
    return caught.value


def test_start_stop_and_again(control: PodmanControl, name: str) -> None:
    control.create(body(name))
    control.start(name)
    control.start(name)
    assert control.stop(name, 0)
    assert not control.stop(name, 0), "one that is not running is no error (podman-py: JSONDecodeError)"
    control.start(name)
    control.kill(name)
    with contextlib.suppress(PodmanRefusal):
        control.stop(name, 0)
    assert control.remove(name)
    assert not control.remove(name)
    assert control.inspect(name) is None
    with pytest.raises(PodmanRefusal, match="no such container") as caught:
        control.stop(name, 0)
    assert caught.value.status == 404


def test_a_running_one_is_not_removed_without_force(control: PodmanControl, name: str) -> None:
    control.create(body(name))
    control.start(name)
    with pytest.raises(PodmanRefusal, match="running"):
        control.remove(name)
    assert control.remove(name, force=True)


def test_names(control: PodmanControl, name: str) -> None:
    control.create(body(name))
    taken = refusal(control, body(name))
    assert podman_errors.is_name_in_use(taken.text)
    assert taken.hint
    control.create(body(f"{name}-old-1"))
    try:
        with pytest.raises(PodmanRefusal) as caught:
            control.rename(name, f"{name}-old-1")
        assert podman_errors.is_name_in_use(caught.value.text)
    finally:
        control.remove(f"{name}-old-1")
    control.rename(name, f"{name}-old-2")
    assert control.names()[f"{name}-old-2"] == "created"
    control.remove(f"{name}-old-2")


def test_an_image_that_is_not_here_is_not_pulled(control: PodmanControl, name: str) -> None:
    refused = refusal(control, {**body(name), "image": "localhost/none:1"})
    assert podman_errors.is_image_missing(refused.text)
    assert "pull it" in refused.hint
    assert control.image("localhost/none:1") is None
    assert control.image(paths.IMAGE)


def test_a_missing_path_to_mount(control: PodmanControl, name: str) -> None:
    mount = {"type": "bind", "source": "/nonexistent/x", "destination": "/x", "options": ["ro"]}
    assert "not there" in refusal(control, body(name, mounts=[mount])).hint


def test_unlimited_is_the_largest_number(control: PodmanControl, name: str) -> None:
    minus = {"type": "core", "soft": -1, "hard": -1}
    assert "cannot unmarshal number -1" in refusal(control, body(name, r_limits=[minus])).text
    control.create(body(name, r_limits=[*LIMITS, {"type": "core", "soft": UNLIMITED, "hard": UNLIMITED}]))
    control.start(name)
    limits = {one["Name"]: one["Soft"] for one in (control.inspect(name) or {})["HostConfig"]["Ulimits"]}
    assert limits == {"RLIMIT_NOFILE": 1024, "RLIMIT_NPROC": 512, "RLIMIT_CORE": -1}


def test_one_ulimit_drops_the_defaults(control: PodmanControl, name: str) -> None:
    control.create(body(name, r_limits=[{"type": "core", "soft": 0, "hard": 0}]))
    made = control.inspect(name) or {}
    limits = {one["Name"]: one["Soft"] for one in made["HostConfig"]["Ulimits"]}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert limits["RLIMIT_NOFILE"] in (1048576, hard), (
        "Podman's own (5: at most what it may set), not containers.conf's"
    )


def test_a_refused_rlimit_is_named(control: PodmanControl, name: str) -> None:
    if UNLIMITED and _may_raise_limits():
        pytest.skip("this Podman may raise limits")
    control.create(body(name, r_limits=[*LIMITS, {"type": "memlock", "soft": UNLIMITED, "hard": UNLIMITED}]))
    with pytest.raises(PodmanRefusal) as caught:
        control.start(name)
    assert "limit memlock" in caught.value.hint


def _may_raise_limits() -> bool:
    status = Path("/proc/self/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(mask, 16) >> 24 & 1)


def test_a_cdi_name_is_resolved_at_start_only(control: PodmanControl, name: str) -> None:
    control.create(body(name, devices=[{"path": "no.such/gpu=all"}]))
    with pytest.raises(PodmanRefusal, match="unresolvable CDI devices") as caught:
        control.start(name)
    assert "CDI spec file" in caught.value.hint
    control.remove(name)
    control.create(body(name, devices=[{"path": paths.CDI_DEVICE}, {"path": "/dev/null:/dev/xnull:rw"}]))
    assert [one["PathInContainer"] for one in _host(control, name)["Devices"]] == ["/dev/xnull"]
    control.start(name)
    inside = {one["PathInContainer"] for one in _host(control, name)["Devices"]}
    assert inside == {"/dev/xnull", "/dev/nvidia0"}
    assert f"{paths.MARK}=1" in (control.inspect(name) or {})["Config"]["Env"]


def _host(control: PodmanControl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (control.inspect(name) or {})["HostConfig"]
    return found


def test_relabelled_mounts_tmpfs_labels_health_and_security(control: PodmanControl, name: str, tmp_path: Path) -> None:
    second = 10**9
    health = {"Test": ["CMD-SHELL", "true"], "Interval": 30 * second, "Timeout": 5 * second, "Retries": 3}
    asked = body(
        name,
        mounts=[
            {"type": "bind", "source": str(tmp_path), "destination": "/x", "options": ["ro", "z", "rbind"]},
            {"type": "tmpfs", "destination": "/scratch", "options": ["size=1m"]},
        ],
        labels={"io.gpuconsole.managed": "1"},
        healthconfig=health,
        selinux_opts=["disable"],
        no_new_privileges=True,
        stop_timeout=7,
    )
    control.create(asked)
    made = control.inspect(name) or {}
    assert made["Config"]["Labels"]["io.gpuconsole.managed"] == "1"
    assert made["Config"]["Healthcheck"] == health
    assert made["Config"]["StopTimeout"] == 7
    assert made["HostConfig"]["SecurityOpt"] == ["no-new-privileges"], "label=disable is told nowhere"
    assert "size=1m" in made["HostConfig"]["Tmpfs"]["/scratch"]
    assert [(one["Destination"], one["RW"]) for one in made["Mounts"]] == [("/x", False)]
    control.start(name)


def test_labels_are_a_table(control: PodmanControl, name: str) -> None:
    assert "labels" in refusal(control, body(name, labels=["a=b"])).text


def test_a_taken_port_is_told_at_start(control: PodmanControl, name: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        mapping = {"container_port": 8000, "host_port": port, "host_ip": "127.0.0.1", "protocol": "tcp"}
        control.create(body(name, portmappings=[mapping], r_limits=LIMITS))
        with pytest.raises(PodmanRefusal) as caught:
            control.start(name)
    assert podman_errors.is_port_in_use(caught.value.text)
    control.start(name)


def test_the_port_may_stay_taken_after_a_failure_in_the_runtime(control: PodmanControl, name: str) -> None:
    """host.md 3.6: the service may keep the listener for two minutes; either answer is one we know."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mapping = {"container_port": 8000, "host_port": port, "host_ip": "127.0.0.1", "protocol": "tcp"}
    control.create(body(name, portmappings=[mapping], command=["/no/such/program"], r_limits=LIMITS))
    for _ in range(2):
        with pytest.raises(PodmanRefusal) as caught:
            control.start(name)
        assert caught.value.hint, caught.value.text


def test_warnings_are_given(control: PodmanControl, name: str) -> None:
    """podman-py drops them; which there are depends on the kernel, so only their shape is held."""
    made = control.create(body(name, resource_limits={"memory": {"limit": 64 << 20, "swap": 128 << 20}}))
    assert len(made.id) == 64
    assert all(isinstance(text, str) for text in made.warnings)
    assert _host(control, name)["Memory"] in (64 << 20, 0)


def test_a_stop_takes_its_time(control: PodmanControl, name: str) -> None:
    control.create(body(name, command=["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]))
    control.start(name)
    time.sleep(0.2)
    assert control.stop(name, 1)
    assert (control.inspect(name) or {})["State"]["ExitCode"] == 137


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the registry's certificate")
def test_a_pull_tells_bytes(control: PodmanControl) -> None:
    with Registry(3 << 20, secure=True, seconds=2.5) as registry, _pulled(registry):
        seen = list(control.pull(registry.reference))
        assert control.image(registry.reference)
    assert any(one.layer and one.current and one.total for one in seen), seen


def test_a_pull_without_a_certificate_tells_no_bytes(control: PodmanControl) -> None:
    with Registry() as registry, _pulled(registry):
        assert list(control.pull(registry.reference, tls_verify=False))
        assert control.image(registry.reference)


@contextlib.contextmanager
def _pulled(registry: Registry) -> Iterator[None]:
    try:
        yield
    finally:
        podman.run("rmi", "--force", registry.reference, check=False)


def test_a_pull_that_fails_is_an_error(control: PodmanControl) -> None:
    with Registry() as registry, pytest.raises(SourceError):
        list(control.pull(f"{registry.reference}23", tls_verify=False))
    with pytest.raises(SourceError, match="refused"):
        list(control.pull("127.0.0.1:1/none:1", tls_verify=False))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b"", None),
        (b"<html>", None),
        (b"[1]", None),
        (
            b'{"status":"Downloading","progressDetail":{"current":5,"total":10},"id":"abc"}',
            PullProgress("Downloading", "abc", 5, 10),
        ),
        (b'{"stream":"Trying"}', PullProgress("Trying")),
        (b'{"status":"x","progressDetail":null}', PullProgress("x")),
    ],
)
def test_lines_of_a_pull(line: bytes, wanted: PullProgress | None) -> None:
    assert _progress(line) == wanted


def test_an_error_line_of_a_pull() -> None:
    with pytest.raises(SourceError, match="pull failed: manifest unknown"):
        _progress(b'{"errorDetail":{"message":"manifest unknown"}}')
