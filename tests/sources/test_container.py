"""The container source against recorded answers: found, stopped, gone, service lost and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from console.clients import cgroup, units
from console.clients.podman import Candidate
from console.core.model import ContainerUsage, KeptContainer, PodmanState, SocketTry, SourceError, UnitState
from console.sources import container
from console.sources.container import ContainerSettings, ContainerSource
from tests.clients.test_cgroup import put, v1
from tests.fakes.libpod import DATA, EXITED, RUNNING, FakeLibpod


@pytest.fixture
def libpod(tmp_path: Path) -> Iterator[FakeLibpod]:
    with FakeLibpod(tmp_path / "podman.sock") as fake:
        yield fake


@pytest.fixture(autouse=True)
def no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "unit_state", lambda unit, user: None)
    monkeypatch.setattr(units, "last_lines", lambda unit, count, user: ())


def source(libpod: FakeLibpod, root: Path, **settings: object) -> ContainerSource:
    told = msgspec.convert({"socket": str(libpod.socket), **settings}, ContainerSettings)
    made = ContainerSource(told, root=root)
    made.open()
    return made


def only(libpod: FakeLibpod, *names: str) -> None:
    listed = msgspec.json.decode((DATA / "containers.json").read_bytes())
    libpod.routes["/containers/json"] = (200, msgspec.json.encode([one for one in listed if one["Names"][0] in names]))


def inspect_with_pid(libpod: FakeLibpod, pid: int) -> None:
    answer = msgspec.json.decode((DATA / "inspect_running.json").read_bytes())
    answer["State"]["Pid"] = pid
    libpod.routes[f"/containers/{RUNNING[0]}/json"] = (200, msgspec.json.encode(answer))


def test_a_running_container(libpod: FakeLibpod, tmp_path: Path) -> None:
    reader = source(libpod, tmp_path)
    state = reader.read()
    assert state.container is not None
    assert (state.container.name, state.container.found_by, state.origin, state.api_version) == (
        "triton", "name", "settings", "4.3.1",
    )  # fmt: skip
    assert state.latency_ms is not None
    assert set(state.others) == {"longline", "tty", "exited"}
    assert state.images == ("localhost/tritonserver:24.05-fake",)
    assert state.last_log == ()
    assert state.container.image_created_wall is not None
    target = reader.target()
    assert target is not None
    assert (target.id, target.running, target.url) == (RUNNING[0], True, libpod.url)
    assert reader.url() == libpod.url
    reader.read()
    asked = [path for path, _ in libpod.calls]
    assert asked.count("/images/json") == 1, "images are read every minute"
    assert sum("/images/" in path for path in asked) == 2, "an image is inspected once"
    assert not [path for path in asked if path.endswith(("/version", "/info"))]
    reader.close()


def test_kept_old_ones_are_not_others_that_could_be_meant(libpod: FakeLibpod, tmp_path: Path) -> None:
    listed = msgspec.json.decode((DATA / "containers.json").read_bytes())
    old = {**listed[0], "Id": "f" * 64, "Names": ["triton-old-1"], "State": "exited", "ExitedAt": 1796035719}
    libpod.routes["/containers/json"] = (200, msgspec.json.encode([*listed, old]))
    reader = source(libpod, tmp_path)
    state = reader.read()
    assert state.kept == (KeptContainer("triton-old-1", "exited", 1796035719.0),)
    assert set(state.others) == {"longline", "tty", "exited"}
    reader.close()


def test_usage_from_podman_where_the_cgroup_cannot_be_read(libpod: FakeLibpod, tmp_path: Path) -> None:
    usage = source(libpod, tmp_path).read().container
    assert usage is not None
    assert usage.usage.pids == 2
    assert usage.usage.memory == 802816 or usage.usage.memory
    libpod.routes["/containers/stats"] = (409, b"{}")
    later = source(libpod, tmp_path).read().container
    assert later is not None
    assert later.usage == ContainerUsage()
    libpod.routes["/containers/stats"] = (200, b'{"Stats":null}')
    again = source(libpod, tmp_path).read().container
    assert again is not None
    assert again.usage == ContainerUsage()


def test_usage_from_the_cgroup(libpod: FakeLibpod, tmp_path: Path) -> None:
    inspect_with_pid(libpod, 42)
    root = v1(tmp_path / "root")
    (root / "proc/42/root/dev/shm").mkdir(parents=True)
    reader = source(libpod, root)
    now = iter((10.0, 12.0, 13.0))
    reader._usage = container.UsageMeter(root, lambda: next(now))
    first = reader.read().container
    folder = root / f"sys/fs/cgroup/cpu,cpuacct/libpod_parent/libpod-{'ab' * 32}"
    (folder / "cpuacct.usage").write_text("5500000000\n")
    (folder / "cpu.stat").write_text("nr_periods 30\nnr_throttled 9\n")
    second = reader.read().container
    (folder / "cpuacct.usage").write_text("1\n")
    (folder / "cpu.stat").write_text("nr_periods 30\nnr_throttled 9\n")
    third = reader.read().container
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.usage.cpu_cores, first.usage.throttled_share, first.usage.memory) == (None, None, 700)
    assert (second.usage.cpu_cores, second.usage.throttled_share, second.usage.oom_kills) == (1.5, 0.25, 2)
    assert (third.usage.cpu_cores, third.usage.throttled_share) == (None, None), "counters that began anew give no rate"
    assert second.usage.shm_used is not None
    assert not [path for path, _ in libpod.calls if path == "/containers/stats"]


def test_a_stopped_container_keeps_its_last_words(libpod: FakeLibpod, tmp_path: Path) -> None:
    only(libpod, "exited")
    reader = source(libpod, tmp_path)
    state = reader.read()
    assert state.container is not None
    assert (state.container.state, state.container.exit_code) == ("exited", 126)
    assert state.container.usage == ContainerUsage()
    assert len(state.last_log) == 1
    assert state.last_log[0].endswith("fatal")
    reader.read()
    assert [path for path, _ in libpod.calls].count(f"/containers/{EXITED[0]}/logs") == 1, "read once per end"
    target = reader.target()
    assert target is not None
    assert (target.running, target.pid) == (False, None)


def test_a_container_that_keeps_no_log_is_still_told_as_stopped(libpod: FakeLibpod, tmp_path: Path) -> None:
    only(libpod, "exited")
    refusal = b'{"message":"this container is using the none log driver, cannot read logs","response":500}'
    libpod.routes[f"/containers/{EXITED[0]}/logs"] = (500, refusal)
    state = source(libpod, tmp_path).read()
    assert state.container is not None
    assert state.container.state == "exited"
    [line] = state.last_log
    assert "cannot read logs" in line


def test_a_unit_that_systemd_does_not_know_is_not_asked_for_at_every_read(
    libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    files: list[Path] = []

    def by_file(root: Path) -> str:
        files.append(root)
        return "lm.service"

    monkeypatch.setattr(units, "unit_state", lambda unit, user: asked.append(unit))
    monkeypatch.setattr(units, "triton_unit", by_file)
    only(libpod)
    reader = source(libpod, tmp_path)
    for _ in range(3):
        assert reader.read().unit is None
    assert (asked, files) == (["lm.service"], [tmp_path])


def test_the_units_journal_stands_for_a_container_that_is_gone(
    libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def state_of(unit: str, user: bool) -> UnitState:
        asked.append(unit)
        return UnitState(unit, "activating", "auto-restart", 118, 126)

    monkeypatch.setattr(units, "unit_state", state_of)
    monkeypatch.setattr(units, "last_lines", lambda unit, count, user: ("error mounting libEGL",))
    only(libpod, "exited")
    reader = source(libpod, tmp_path)
    assert reader.read().unit is not None
    only(libpod)
    state = reader.read()
    assert state.container is None
    assert state.last_log == ("error mounting libEGL",)
    assert state.unit is not None
    assert (state.unit.name, state.unit.restarts) == ("triton.service", 118)
    assert asked == ["triton.service"], "systemctl is not started at every read"
    assert reader.target() is None


def test_unit_by_file_and_by_settings(libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "unit_state", lambda unit, user: UnitState(unit, "active", "running"))
    only(libpod)
    put(tmp_path, **{"etc/systemd/system/lm.service": "ExecStart=podman run tritonserver"})
    unit = source(libpod, tmp_path).read().unit
    assert unit is not None
    assert unit.name == "lm.service"
    only(libpod, "triton")
    state = source(libpod, tmp_path, unit="mine.service").read().container
    assert state is not None
    assert (state.unit, state.unit_origin) == ("mine.service", "settings")


def test_unit_by_cgroup(libpod: FakeLibpod, tmp_path: Path) -> None:
    answer = msgspec.json.decode((DATA / "inspect_running.json").read_bytes())
    put(tmp_path, **{f"proc/{answer['State']['ConmonPid']}/cgroup": "0::/system.slice/lm.service\n"})
    state = source(libpod, tmp_path).read().container
    assert state is not None
    assert (state.unit, state.unit_origin) == ("lm.service", "its process's cgroup")


def test_by_who_listens_on_the_port(libpod: FakeLibpod, tmp_path: Path) -> None:
    only(libpod, "triton")
    listed = msgspec.json.decode(libpod.routes["/containers/json"][1])  # type: ignore[index]
    listed[0] |= {"Names": ["lm"], "Image": "own/thing", "Command": ["serve"], "Ports": None, "Labels": None}
    libpod.routes["/containers/json"] = (200, msgspec.json.encode(listed))
    assert source(libpod, tmp_path).read().container is None
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    put(
        tmp_path,
        **{
            "proc/net/tcp": head
            + "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 777 1\n",
            "proc/5/cgroup": f"0::/machine.slice/libpod-{RUNNING[0]}.scope\n",
            "proc/5/fd/.keep": "",
        },
    )
    (tmp_path / "proc/5/fd/.keep").unlink()
    (tmp_path / "proc/5/fd/3").symlink_to("socket:[777]")
    state = source(libpod, tmp_path).read().container
    assert state is not None
    assert state.found_by == "port"


def test_no_podman_is_a_value(tmp_path: Path) -> None:
    reader = ContainerSource(ContainerSettings(socket=str(tmp_path / "none.sock")), root=tmp_path)
    reader.open()
    state = reader.read()
    assert (state.socket, state.container, state.unit) == (None, None, None)
    assert [(one.origin, "is not there" in (one.error or "")) for one in state.tried] == [("settings", True)]
    assert reader.target() is None
    assert reader.url() is None


def test_a_socket_that_is_no_podman_is_listed(libpod: FakeLibpod, tmp_path: Path) -> None:
    libpod.headers = {}
    state = source(libpod, tmp_path).read()
    assert state.socket is None
    assert "not Podman's API" in (state.tried[0].error or "")


def test_the_socket_with_a_triton_container_is_taken(libpod: FakeLibpod, tmp_path: Path) -> None:
    refused = SocketTry("ssh://x", "CONTAINER_HOST", "ssh is not supported")
    with FakeLibpod(tmp_path / "empty.sock") as empty, FakeLibpod(tmp_path / "empty2.sock") as empty2:
        only(empty)
        only(empty2)
        order = [Candidate(empty.url, "rootful"), Candidate(empty2.url, "rootless"), Candidate(libpod.url, "rootless")]
        reader = ContainerSource(root=tmp_path, find=lambda: (order, [refused]))
        reader.open()
        state = reader.read()
        assert (state.socket, state.origin) == (str(libpod.socket), "rootless")
        assert [one.error for one in state.tried] == [None, None, None, "ssh is not supported"]
        order.pop()
        reader = ContainerSource(root=tmp_path, find=lambda: (order, []))
        reader.open()
        assert reader.read().socket == str(empty.socket), "else the first that answers"


def test_a_service_that_goes_is_an_error_and_comes_back(libpod: FakeLibpod, tmp_path: Path) -> None:
    reader = source(libpod, tmp_path)
    assert reader.read().container is not None
    libpod.end()
    with pytest.raises(SourceError) as caught:
        reader.read()
    assert caught.value.kind == "unavailable"
    reader.close()
    with pytest.raises(SourceError, match="is not there") as caught:
        reader.open()
    assert "does its service run?" in caught.value.hint
    libpod.start()
    reader.open()
    assert reader.read().container is not None
    libpod.end()
    reader.close()
    nowhere = ContainerSource(root=tmp_path, find=lambda: ([], []))
    nowhere._reached = True
    with pytest.raises(SourceError, match="no Podman socket"):
        nowhere.open()


def test_other_sockets_are_tried_again_while_there_is_no_container(
    libpod: FakeLibpod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ContainerSource(ContainerSettings(socket=str(tmp_path / "later.sock")), root=tmp_path)
    reader.open()
    assert reader.read().socket is None
    monkeypatch.setattr(container, "LOOK_AGAIN", 0.0)
    time.sleep(0.01)
    with FakeLibpod(tmp_path / "later.sock"):
        assert reader.read().socket == str(tmp_path / "later.sock")
        reader.close()


def test_a_container_that_goes_between_two_calls(libpod: FakeLibpod, tmp_path: Path) -> None:
    del libpod.routes[f"/containers/{RUNNING[0]}/json"]
    state = source(libpod, tmp_path).read()
    assert isinstance(state, PodmanState)
    assert state.container is None


def test_shares_need_both_samples() -> None:
    empty = cgroup.CgroupSample()
    assert container._cores(empty, empty, 1.0) is None
    assert container._share(empty, empty) is None
