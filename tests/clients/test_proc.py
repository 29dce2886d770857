"""/proc: command, user, start, container and model of a process, from trees as the kernel writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import proc
from console.clients.proc import (
    ModelOfStub,
    ProcReader,
    all_unified,
    command_name,
    container_id_of,
    established,
    parse_cmdline,
    parse_stat,
    stub_model,
)

ID = "3f" * 32
OTHER = "a1" * 32
V1_REST = "9:name=systemd:{0}\n8:pids:{0}\n5:devices:{0}\n4:memory:{0}\n1:cpu:{0}\n0::/\n"
STUB = "/opt/tritonserver/backends/python/triton_python_backend_stub"


def stub_line(path: str, instance: str) -> tuple[str, ...]:
    """As seen with Triton 23.04 and later."""
    region = "triton_python_backend_shm_region_4cba150c-9445-4220-a202-8af0160a14f1"
    return (
        STUB,
        path,
        region,
        "1048576",
        "1048576",
        "1",
        "/opt/tritonserver/backends/python",
        "336",
        instance,
        "DEFAULT",
    )


class Tree:
    """A /proc for tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        (root / "proc/stat").write_text("cpu  1 2 3\nbtime 1700000000\nprocesses 5\n")
        self.namespace("self", "pid:[1]")

    def add(
        self,
        pid: int,
        argv: tuple[str, ...] = ("tritonserver", "--model-repository=/models"),
        comm: str = "tritonserver",
        ticks: int = 1000,
        uid: int = 0,
        cgroup: str | None = "0::/system.slice/sshd.service\n",
    ) -> Path:
        folder = self.root / f"proc/{pid}"
        folder.mkdir(exist_ok=True)
        rest = " ".join(["S", "1", *(["0"] * 17), str(ticks), *(["0"] * 30)])
        (folder / "stat").write_bytes(f"{pid} (".encode() + comm.encode() + f") {rest}\n".encode())
        (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0" if argv else b"")
        (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t0\t0\t0\n")
        if cgroup is not None:
            (folder / "cgroup").write_text(cgroup)
        return folder

    def namespace(self, who: str, text: str) -> None:
        folder = self.root / "proc" / who / "ns"
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / "pid"
        link.unlink(missing_ok=True)
        link.symlink_to(text)

    def reader(self) -> ProcReader:
        return ProcReader(str(self.root), {0: "root", 1000: "ana"}.get)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


class TestReader:
    def test_a_server_in_a_rootful_container(self, tree: Tree) -> None:
        tree.add(41233, ticks=36_000_00, cgroup=f"0::/machine.slice/libpod-{ID}.scope/container\n")
        info = tree.reader().read(41233)
        assert (info.user, info.command, info.container_id, info.in_container) == ("root", "tritonserver", ID, True)
        assert info.start_ticks == 3_600_000
        assert info.started_wall == 1700000000 + 3_600_000 / os.sysconf("SC_CLK_TCK")
        assert (info.model, info.reason) == (None, None)

    def test_the_model_of_a_stub(self, tree: Tree) -> None:
        tree.add(7, stub_line("/models/rank/2/model.py", "rank_0_0"), comm="triton_python_b")
        info = tree.reader().read(7)
        assert info.model == ModelOfStub("rank", "2")
        assert info.command == "triton_python_backend_stub"

    def test_no_such_process(self, tree: Tree) -> None:
        info = tree.reader().read(99)
        assert info.reason == "not in /proc here: it has ended, or it is in another PID namespace"
        assert (info.user, info.command, info.in_container) == (None, None, None)

    def test_broken_stat(self, tree: Tree) -> None:
        tree.add(7)
        (tree.root / "proc/7/stat").write_text("nonsense")
        assert "not a /proc/PID/stat line" in (tree.reader().read(7).reason or "")

    def test_hidden_by_hidepid(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(self: ProcReader, pid: int, name: str) -> bytes:
            raise PermissionError(13, "Operation not permitted")

        monkeypatch.setattr(ProcReader, "_bytes", denied)
        assert "hidepid" in (tree.reader().read(7).reason or "")

    def test_identity_is_pid_and_start(self, tree: Tree) -> None:
        reader = tree.reader()
        tree.add(7, ("old",), comm="old", ticks=100)
        assert reader.read(7).command == "old"
        tree.add(7, ("new",), comm="old", ticks=200)
        assert (reader.read(7).command, reader.read(7).start_ticks) == ("new", 200)

    def test_exec_is_seen(self, tree: Tree) -> None:
        reader = tree.reader()
        tree.add(7, ("bash", "-c", "exec stub"), comm="bash")
        assert reader.read(7).command == "bash"
        tree.add(7, stub_line("/models/m/1/model.py", "m_0_0"), comm="triton_python_b")
        assert reader.read(7).model == ModelOfStub("m", "1")

    def test_what_does_not_change_is_read_once(self, tree: Tree) -> None:
        reader = tree.reader()
        folder = tree.add(7)
        first = reader.read(7)
        (folder / "cmdline").unlink()
        assert reader.read(7) is first
        reader.keep_only([8])
        assert reader.read(7).command == "tritonserver"
        assert reader.read(7) is not first
        (folder / "stat").unlink()
        assert reader.read(7).reason

    def test_a_zombie_has_the_kernels_name(self, tree: Tree) -> None:
        tree.add(7, (), comm="tritonserver")
        assert tree.reader().read(7).command == "tritonserver"

    def test_unknown_user_is_the_number(self, tree: Tree) -> None:
        tree.add(7, uid=100999)
        assert tree.reader().read(7).user == "100999"
        folder = tree.add(8)
        (folder / "status").write_text("Name:\tx\n")
        assert tree.reader().read(8).user is None

    def test_real_users(self) -> None:
        assert proc._user_name(0) == "root"
        assert proc._user_name(2**31 - 7) is None

    def test_no_boot_time_no_start(self, tree: Tree) -> None:
        tree.add(7)
        (tree.root / "proc/stat").write_text("cpu 1 2 3\n")
        assert tree.reader().read(7).started_wall is None
        (tree.root / "proc/stat").unlink()
        assert tree.reader().read(7).started_wall is None


class TestContainerOrNot:
    def test_unreadable_cgroup_is_unknown(self, tree: Tree) -> None:
        tree.add(7, cgroup=None)
        info = tree.reader().read(7)
        assert (info.container_id, info.in_container) == (None, None)

    def test_a_service_of_the_host(self, tree: Tree) -> None:
        tree.add(7)
        tree.namespace("7", "pid:[1]")
        assert tree.reader().read(7).in_container is False

    def test_a_service_whose_namespace_is_not_shown(self, tree: Tree) -> None:
        tree.add(7)
        assert tree.reader().read(7).in_container is False

    def test_rootless_on_v1_by_its_namespace(self, tree: Tree) -> None:
        session = V1_REST.format("/user.slice/user-1000.slice/session-3.scope")
        tree.add(7, cgroup=session)
        assert tree.reader().read(7).in_container is None
        tree.namespace("7", "pid:[2]")
        assert tree.reader().read(7) is not None
        fresh = tree.reader().read(7)
        assert (fresh.container_id, fresh.in_container) == (None, True)
        tree.namespace("7", "pid:[1]")
        assert tree.reader().read(7).in_container is False


class TestContainerId:
    @pytest.mark.parametrize(
        "text",
        [
            f"0::/machine.slice/libpod-{ID}.scope\n",
            f"0::/machine.slice/libpod-{ID}.scope/container\n",
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container\n",
            f"0::/system.slice/triton.service/libpod-payload-{ID}\n",
            f"0::/user.slice/user-1000.slice/user@1000.service/app.slice/triton.service/libpod-payload-{ID}\n",
            f"0::/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope\n",
            f"0::/libpod_parent/libpod-{ID}\n",
            f"0::/../libpod-{ID}.scope\n",
            f"0::/system.slice/docker-{ID}.scope\n",
            f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n",
            V1_REST.format(f"/machine.slice/libpod-{ID}.scope"),
            V1_REST.format(f"/libpod_parent/libpod-{ID}"),
            V1_REST.format(f"/libpod_parent/libpod_pod_{OTHER}/libpod-{ID}"),
            V1_REST.format(f"/docker/{ID}"),
            f"1:name=systemd:/docker/{OTHER}/libpod_parent/libpod-{ID}\n",
        ],
    )
    def test_found(self, text: str) -> None:
        assert container_id_of(text) == ID

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "0::/\n",
            "0::/system.slice/sshd.service\n",
            f"0::/machine.slice/libpod-conmon-{ID}.scope\n",
            f"0::/machine.slice/machine-libpod_pod_{ID}.slice\n",
            f"0::/machine.slice/libpod-{ID}f.scope\n",
            f"0::/machine.slice/libpod-{ID[:-1]}.scope\n",
            "9:name=systemd:/\n4:memory:/process_api/cb2ca49b08ef511d833560efe103dc19\n0::/\n",
        ],
    )
    def test_none(self, text: str) -> None:
        assert container_id_of(text) is None

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        found = container_id_of(text)
        assert found is None or (len(found) == 64 and found in text)

    @given(
        st.text(alphabet="0123456789abcdef", min_size=64, max_size=64),
        st.sampled_from(["libpod-", "libpod-payload-", "docker-", "crio-"]),
        st.sampled_from(["", ".scope", ".scope/container", ".scope/init.scope"]),
        st.lists(st.text(alphabet="abcdefghijklmnop-._@0123456789", min_size=1, max_size=20), max_size=4),
    )
    def test_round_trip(self, container: str, prefix: str, suffix: str, parents: list[str]) -> None:
        path = "/".join(["", *parents, f"{prefix}{container}{suffix}"])
        assert container_id_of(f"0::{path}\n") == container

    def test_unified(self) -> None:
        assert all_unified("0::/a\n")
        assert not all_unified(V1_REST.format("/a"))


class TestStat:
    def test_names_with_blanks_and_parentheses(self) -> None:
        tail = b"S " + b"0 " * 18 + b"4242 0 0"
        assert parse_stat(b"7 (a) b (c)) " + tail) == ("a) b (c)", 4242)
        assert parse_stat(b"7 (\xff) " + tail) == ("\ufffd", 4242)

    @pytest.mark.parametrize("data", [b"", b"7", b"7 (x", b"7 (x) S 1", b"x) S " + b"0 " * 30])
    def test_refused(self, data: bytes) -> None:
        with pytest.raises(ValueError, match="not a /proc"):
            parse_stat(data)

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        try:
            parse_stat(data)
        except ValueError:
            return

    @given(st.binary(max_size=64).filter(lambda name: b"\n" not in name), st.integers(0, 2**63))
    def test_round_trip(self, name: bytes, ticks: int) -> None:
        line = b"12 (" + name + b") S " + b"0 " * 18 + str(ticks).encode() + b" 0 0\n"
        assert parse_stat(line) == (name.decode("utf-8", "replace"), ticks)


class TestCommand:
    def test_cmdline(self) -> None:
        assert parse_cmdline(b"") == ()
        assert parse_cmdline(b"\0\0") == ()
        assert parse_cmdline(b"a\0b c\0\0d\0") == ("a", "b c", "", "d")
        assert parse_cmdline(b"postgres: writer") == ("postgres: writer",)

    @given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1))
    def test_cmdline_round_trip(self, words: list[str]) -> None:
        assert parse_cmdline(b"\0".join(word.encode() for word in words) + b"\0") == tuple(words)

    @pytest.mark.parametrize(
        ("argv", "name"),
        [
            ((), None),
            (("",), None),
            (("/opt/tritonserver/bin/tritonserver", "--x"), "tritonserver"),
            (("/usr/bin/python3.11", "-u", "/home/ana/train.py", "--token", "secret"), "python3.11 train.py"),
            (("python", "-m", "jupyter_lab", "--port=1"), "python jupyter_lab"),
            (("python", "-c", "import os; secret"), "python"),
            (("python", "-m"), "python"),
            (("python",), "python"),
            (("java", "-jar", "/x/app.jar"), "java app.jar"),
            (("postgres: writer process",), "postgres:"),
            (("./weird\x1b[31m",), "weird\\x1b[31m"),
        ],
    )
    def test_name(self, argv: tuple[str, ...], name: str | None) -> None:
        assert command_name(argv) == name

    @given(st.lists(st.text(max_size=50), max_size=6))
    def test_any_arguments(self, words: list[str]) -> None:
        name = command_name(tuple(words))
        assert name is None or "\n" not in name
        stub_model(tuple(words))


class TestStubModel:
    @pytest.mark.parametrize(
        ("path", "instance", "model"),
        [
            ("/models/post-processing/1/model.py", "post-processing_0_5", ModelOfStub("post-processing", "1")),
            ("/models/rank_v2/13/model.py", "rank_v2_1_0", ModelOfStub("rank_v2", "13")),
            ("/models/rank/1/model.py", "mygroup_0", ModelOfStub("rank", "1")),
            ("/tmp/folderAbC_23/1/model.py", "rank_0_0", ModelOfStub("rank", "1")),
            ("/models/folder/1/model.py", "folder_0_0", ModelOfStub("folder", "1")),
            ("/models/folder/1/model.py", "mygroup_0", ModelOfStub("folder", "1")),
            ("/tmp/folderAbC123/1/model.py", "mygroup_0", None),
            ("/opt/tritonserver/backends/vllm/model.py", "llama_0_0", ModelOfStub("llama", None)),
            ("/opt/tritonserver/backends/vllm/model.py", "odd", None),
            ("model.py", "m_0_0", ModelOfStub("m", None)),
        ],
    )
    def test_models(self, path: str, instance: str, model: ModelOfStub | None) -> None:
        assert stub_model(stub_line(path, instance)) == model

    def test_no_stub(self) -> None:
        assert stub_model(()) is None
        assert stub_model((STUB,)) is None
        assert stub_model(("tritonserver", "/models/rank/1/model.py")) is None

    def test_an_old_stub_without_instance_name(self) -> None:
        assert stub_model((STUB, "/models/m/1/model.py", "triton_python_backend_shm_region_1")) == ModelOfStub("m", "1")

    @given(
        st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789_-.", min_size=1, max_size=30),
        st.integers(1, 10**6),
        st.integers(0, 9),
        st.integers(0, 40),
    )
    def test_round_trip(self, name: str, version: int, group: int, number: int) -> None:
        line = stub_line(f"/models/{name}/{version}/model.py", f"{name}_{group}_{number}")
        assert stub_model(line) == ModelOfStub(name, str(version))


def test_a_real_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        reader = ProcReader()
        info = reader.read(child.pid)
        assert (info.command or "").startswith("python")
        assert info.started_wall
        assert info.user
        child.communicate(b"\n")
    assert reader.read(child.pid).reason


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 024D4D0A:1F40 014D4D0A:C001 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 024D4D0A:1F42 014D4D0A:C002 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 024D4D0A:1F40 014D4D0A:C003 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0
garbage
"""


def test_open_connections_of_one_port(tmp_path: Path) -> None:
    net = tmp_path / "proc/7/net"
    net.mkdir(parents=True)
    assert established(7, 8000, tmp_path) is None
    (net / "tcp").write_text(TCP)
    assert established(7, 8000, tmp_path) == 1
    (net / "tcp6").write_text(TCP.replace("024D4D0A", "0" * 32))
    assert established(7, 8000, tmp_path) == 2
    assert established(7, 9, tmp_path) == 0
