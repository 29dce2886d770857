"""What Podman, Triton, systemd, NVML and the kernel answer, through the collection, beside what refuses to answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.clients import commands, journal
from console.clients.journal import JournalEntry
from console.config import Podman, Repository, Settings, Triton
from console.core.encode import to_json
from console.core.facts import Facts
from console.core.model import SocketTry, SourceError
from console.sources import facts_podman, facts_system
from console.sources.facts import collect
from console.sources.facts_host import Host
from tests.clients.scripted import Request, answer, scripted
from tests.clients.test_journal import Ring
from tests.clients.test_tree import put
from tests.fakes.libpod import DATA, EXITED, RUNNING, FakeLibpod
from tests.fakes.nvml import FakeNvml
from tests.sources.test_facts_host import program

PODMAN = tuple(f"@podman.{what}" for what in ("ping", "info", "containers", "inspect", "image", "images", "log"))
TRITON = tuple(f"@triton.{what}" for what in ("metadata", "index", "configs", "stats"))


@pytest.fixture
def libpod(tmp_path: Path) -> Iterator[FakeLibpod]:
    with FakeLibpod(tmp_path / "podman.sock") as fake:
        fake.routes["/info"] = (200, b'{"store": {"graphRoot": "/var/lib/containers/storage"}}')
        yield fake


def looked(root: Path, *needs: str, nvml: Any = None, socket: Path | None = None, **triton: Any) -> Facts:
    told = Settings(
        podman=Podman(socket=str(socket or "/nonexistent/podman.sock")),
        triton=Triton(**{"host": "127.0.0.1", "http_port": 1, **triton}),
    )
    return collect(needs, Host("live", told, str(root), nvml=nvml), deadline=4.0)


def only(libpod: FakeLibpod, *names: str) -> None:
    listed = msgspec.json.decode((DATA / "containers.json").read_bytes())
    libpod.routes["/containers/json"] = (200, msgspec.json.encode([one for one in listed if one["Names"][0] in names]))


# -------------------------------------------------------------------------------------------------------------- Podman


def test_podman_answers(libpod: FakeLibpod, tmp_path: Path) -> None:
    found = looked(tmp_path, *PODMAN, "space {graph_root}", socket=libpod.socket)
    assert [name for name in PODMAN if found.why_not(name)] == []
    ping = found.answer("@podman.ping")
    assert (ping["version"], ping["socket"], ping["uid"]) == ("4.3.1", str(libpod.socket), os.getuid())
    assert ping["rootless"] == (os.getuid() != 0)
    assert len(found.answer("@podman.containers")) == 4
    inspect = found.answer("@podman.inspect")
    assert inspect["Name"] == "triton"
    assert inspect["HostConfig"]["ShmSize"] > 0
    assert found.answer("@podman.image")["Id"]
    assert "History" not in found.answer("@podman.image")
    assert found.answer("@podman.images")
    assert found.answer("@podman.info")["store"]
    assert found.answer("@podman.log")
    assert all(isinstance(line, str) for line in found.answer("@podman.log"))
    assert found.one("container_id") == RUNNING[0]
    assert found.one("container_pid") == "7414"
    assert found.every("models") == ("/tmp/podsrc",)
    assert found.one("graph_root") == "/var/lib/containers/storage"
    assert "/var/lib/containers/storage" in found.spaces
    text = to_json(found).decode()
    assert "supersecret" not in text
    assert "geheim" not in text
    assert "MY_TOKEN=***" in text


def test_the_whole_is_not_asked_where_nobody_wants_it(libpod: FakeLibpod, tmp_path: Path) -> None:
    looked(tmp_path, "/etc/os-release", socket=libpod.socket)
    asked = {path for path, _ in libpod.calls}
    assert not asked & {"/info", "/images/json", f"/containers/{RUNNING[0]}/logs"}


def test_no_container(libpod: FakeLibpod, tmp_path: Path) -> None:
    only(libpod)
    found = looked(tmp_path, *PODMAN, socket=libpod.socket)
    assert found.answer("@podman.inspect") is None
    assert found.answer("@podman.image") is None
    assert found.answer("@podman.log") is None
    assert found.every("container") == ()


def test_a_container_that_has_ended(libpod: FakeLibpod, tmp_path: Path) -> None:
    only(libpod, "exited")
    told = Settings(podman=Podman(socket=str(libpod.socket), container="exited"))
    found = collect((*PODMAN, *TRITON), Host("live", told, str(tmp_path)), deadline=4.0)
    assert found.one("container_id") == EXITED[0]
    assert found.every("container_pid") == ()
    assert found.why_not("@triton.metadata") == "the Triton container is exited", "another server may have the port"


@pytest.mark.parametrize(
    ("path", "route", "names"),
    [
        ("/info", (500, b'{"message": "no such storage"}'), ("@podman.info",)),
        ("/images/json", (200, b"garbage"), ("@podman.images",)),
        ("/containers/json", (200, b'[{"Id": 7}]'), PODMAN),
        (f"/containers/{RUNNING[0]}/json", (200, b'{"Id": []}'), PODMAN),
        (f"/containers/{RUNNING[0]}/logs", (500, b'{"message": "driver none"}'), ("@podman.log",)),
        ("/info", (200, b"[" * 100_000), ("@podman.info",)),
    ],
)
def test_what_podman_does_not_tell(
    libpod: FakeLibpod, tmp_path: Path, path: str, route: tuple[int, bytes], names: tuple[str, ...]
) -> None:
    libpod.routes[path] = route
    found = looked(tmp_path, *PODMAN, socket=libpod.socket)
    assert {name for name in PODMAN if found.why_not(name)} == set(names)
    assert all(found.answers[name].settle for name in names)


def test_podman_that_hangs(libpod: FakeLibpod, tmp_path: Path) -> None:
    libpod.routes["/info"] = lambda request: libpod.stop.wait(10)
    found = looked(tmp_path, *PODMAN, "space {graph_root}", "/etc/x", socket=libpod.socket)
    assert "in time" in found.why_not("@podman.info")
    assert found.answer("@podman.inspect")["Name"] == "triton"
    assert "graph_root" not in found.variables


def test_sockets_of_no_use(tmp_path: Path) -> None:
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    refused = looked(tmp_path, "@podman.ping", "@podman.inspect", socket=dead)
    assert "refused" in refused.why_not("@podman.inspect")
    for told in (refused.answers["@podman.ping"], refused.answers["@podman.inspect"]):
        assert told.settle
    plain = looked(tmp_path, "@podman.ping", socket=put(tmp_path, "plain", ""))
    assert "is no socket" in plain.why_not("@podman.ping")


def test_the_repository_of_the_settings(tmp_path: Path) -> None:
    told = Settings(podman=Podman(socket="/nonexistent"), repository=Repository(path="/data/models"))
    assert collect((), Host("live", told, str(tmp_path)), deadline=2.0).every("models") == ("/data/models",)


# -------------------------------------------------------------------------------------------------------------- Triton


def triton(request: Request) -> bytes:
    """A Triton with one model."""
    replies: dict[str, Any] = {
        "/v2": {"name": "triton", "version": "2.51.0", "extensions": ["statistics"]},
        "/v2/health/live": b"",
        "/v2/repository/index": [{"name": "rank", "version": "2", "state": "READY"}],
        "/v2/models/stats": {"model_stats": [{"name": "rank", "version": "2", "inference_count": 5}]},
        "/v2/models/rank/versions/2/config": {
            "name": "rank",
            "backend": "python",
            "parameters": {"api_token": {"string_value": "hush-hush"}},
        },
    }
    return answer(replies[request.path]) if request.path in replies else answer({"error": "no"}, 400)


def test_triton_answers(tmp_path: Path) -> None:
    with scripted(triton) as server:
        found = looked(tmp_path, *TRITON, http_port=server.port)
    assert [found.why_not(name) for name in TRITON if found.why_not(name)] == []
    told = found.answer("@triton.metadata")
    assert (told["version"], told["live"], told["ready"]) == ("2.51.0", True, False)
    assert found.answer("@triton.index") == [{"name": "rank", "version": "2", "state": "READY"}]
    assert found.answer("@triton.configs")["rank"]["2"]["backend"] == "python"
    assert found.answer("@triton.stats")["model_stats"][0]["inference_count"] == 5
    assert "hush" not in to_json(found).decode()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b"[" * 100_000, b'{"name": 1}'])
def test_what_is_not_triton(tmp_path: Path, body: bytes) -> None:
    with scripted(lambda request: answer(body)) as other:
        found = looked(tmp_path, *TRITON, http_port=other.port)
    assert found.why_not("@triton.metadata")
    assert all(one.value is not None or one.why for one in found.answers.values())
    assert found.answers["@triton.metadata"].settle == f"curl -fsS http://127.0.0.1:{other.port}/v2"


# --------------------------------------------------------------------------------------------------------------- system


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, user: str = "exit 1") -> None:
    """A systemctl that knows every unit."""
    program(
        folder,
        "systemctl",
        f'[ "$1" = --user ] && {{ {user}; }}\n'
        'first=1\nfor word in "$@"; do case "$word" in --*|show) ;; *) [ $first = 1 ] || echo; first=0\n'
        'echo "Id=$word"; echo "LoadState=loaded"; echo "ActiveState=active"; echo "After=a.service b=c";; esac; done',
    )
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_units_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl(tmp_path / "bin", monkeypatch)
    put(tmp_path, "/etc/systemd/system/hand.service", "ExecStart=podman run tritonserver")
    put(tmp_path, "/run/podman/podman.sock")
    asked: list[Any] = []

    def run(argv: list[str], limit: float) -> commands.Output:
        asked.append(argv)
        return commands.run(argv, limit)

    monkeypatch.setattr("console.clients.systemd.run", run)
    monkeypatch.setattr(facts_system, "me", lambda: {"uid": 0})
    found = looked(tmp_path, "@units").answer("@units")
    assert found["podman.socket"]["ActiveState"] == "active"
    assert found["podman.socket"]["After"] == "a.service b=c"
    assert set(facts_system.SYSTEM_UNITS) <= set(found)
    assert not any(name.startswith("user:") for name in found)
    assert len(asked) == 1


def test_units_of_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    systemctl(tmp_path / "bin", monkeypatch, user="echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    owner = os.geteuid()
    if owner == 0:
        prefix = ["systemctl", "--user"]
        monkeypatch.setattr("console.clients.systemd.SystemdView._prefix", lambda self, user: prefix[: 1 + user])
    found = facts_system.units((), ("triton.service",), 1000, 2.0)
    assert found["podman.socket"]["LoadState"] == "loaded"
    assert "Failed to connect to bus" in found["user:triton.service"]["error"]


def test_units_without_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "systemctl", "echo 'System has not been booted with systemd' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert looked(tmp_path, "@units").why_not("@units").startswith("systemctl show: System has not been booted")
    program(tmp_path / "bin", "systemctl", "echo nonsense")
    assert "told of 1 units" in looked(tmp_path, "@units").why_not("@units")


def test_processes_and_ports(tmp_path: Path) -> None:
    stat = "{0} ({1}) S 1 2 3 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 77 1000 10\n"
    for pid, name, argv in (
        (7, "conmon", ["conmon", "-c", "x"]),
        (8, "podman", ["podman", "system", "service", "-e", "A=hush-hush"]),
        (9, "bash", ["bash"]),
    ):
        put(tmp_path, f"/proc/{pid}/stat", stat.format(pid, name))
        put(tmp_path, f"/proc/{pid}/cmdline", "\0".join(argv) + "\0")
        put(tmp_path, f"/proc/{pid}/status", "Name: x\nUid:\t0\t0\t0\t0\n")
        put(tmp_path, f"/proc/{pid}/cgroup", "0::/system.slice/podman.service\n")
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: {0} 00000000:0000 {1} 00000000:00000000 00:00000000 00000000     0        0 {2} 1\n"
    put(tmp_path, "/proc/net/tcp", head + row.format("0100007F:1F40", "0A", 4711) + row.format("0:1", "01", 5) + "x\n")
    put(tmp_path, "/proc/net/tcp6", head + row.format("0" * 32 + ":1F42", "0A", 4712))
    (tmp_path / "proc/8/fd").mkdir()
    (tmp_path / "proc/8/fd/3").symlink_to("socket:[4711]")
    found = looked(tmp_path, "@processes", "@ports")
    processes = found.answer("@processes")
    assert [(one["pid"], one["parent"], one["uid"], one["name"]) for one in processes] == [
        (7, 1, 0, "conmon"),
        (8, 1, 0, "podman"),
    ]
    assert processes[1]["argv"] == ["podman", "system", "service", "-e", "A=***"]
    assert found.answer("@ports") == [
        {"address": "127.0.0.1", "port": 8000, "inode": 4711, "pids": [8], "process": "podman"},
        {"address": "::", "port": 8002, "inode": 4712, "pids": [], "process": None},
    ]
    assert looked(tmp_path / "nothing", "@ports").why_not("@ports") == "/proc/net/tcp cannot be read"


def test_this_machines_own_ports_have_holders() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = mine.getsockname()[1]
        found = next(one for one in facts_system.ports(Path("/")) if one["port"] == port)
    assert (found["address"], found["pids"]) == ("127.0.0.1", [os.getpid()])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", True),
        ("nouveau 0000:3b:00.0: unknown chipset", True),
        ("Loading of module with unavailable key is rejected", True),
        ("audit: type=1400 audit(1.0:5): avc:  denied  { read write }", True),
        ("oom-kill:constraint=CONSTRAINT_MEMCG", True),
        ("Memory cgroup out of memory: Killed process 7 (x)", True),
        ("eth0: link is up in this room", False),
        ("zoom 5", False),
    ],
)
def test_lines_of_the_kernel_log(tmp_path: Path, text: str, kept: bool) -> None:
    (tmp_path / "dev").mkdir()
    ring = Ring(tmp_path / "dev/kmsg")
    ring.put(0, 1.0, text)
    told = looked(tmp_path, "@kernel.log").answer("@kernel.log")
    assert told["source"] == "/dev/kmsg"
    assert [line["text"] for line in told["lines"]] == ([text] if kept else [])


def test_the_kernel_log_from_the_journal_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def journal_of(entries: list[JournalEntry] | None) -> None:
        def read() -> list[JournalEntry]:
            if entries is None:
                raise SourceError("permission", "the journal may not be read", "add your user")
            return entries

        monkeypatch.setattr(facts_system, "kernel_entries", read)

    journal_of([JournalEntry(5.0, "NVRM: x", "c"), JournalEntry(6.0, "other", "c")])
    told = looked(tmp_path, "@kernel.log").answer("@kernel.log")
    assert told == {"source": "journal", "lines": [{"wall": 5.0, "text": "NVRM: x"}]}
    journal_of(None)
    found = looked(tmp_path, "@kernel.log")
    assert "the journal may not be read" in found.why_not("@kernel.log")
    assert found.answers["@kernel.log"].settle == "sudo dmesg"
    assert journal.HINT not in found.why_not("@kernel.log")


def test_nvml(tmp_path: Path) -> None:
    cards = FakeNvml("T4")
    box = looked(tmp_path, "@nvml", nvml=cards).answer("@nvml")
    assert box["error"] is None
    assert box["box"]["gpus"][0]["index"] == 0
    cards.init_error = 18
    told = looked(tmp_path, "@nvml", nvml=cards).answer("@nvml")
    assert (told["error"]["code"], told["box"]) == (18, None)
    cards.init_error = 9
    assert looked(tmp_path, "@nvml", nvml=cards).answer("@nvml")["error"]["code"] == 9


def test_who_looks() -> None:
    told = facts_system.me()
    assert told["uid"] == os.geteuid()
    assert told["groups"]
    assert told["sudo"] is (True if os.geteuid() == 0 else None)


def test_what_the_ring_has_lost_comes_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev").mkdir()
    ring = Ring(tmp_path / "dev/kmsg")
    ring.put(500, 50.0, "NVRM: new")
    entries = [JournalEntry(5.0, "NVRM: old", "c", 40.0), JournalEntry(6.0, "NVRM: new", "c", 50.0)]
    monkeypatch.setattr(facts_system, "kernel_entries", lambda: entries)
    told = looked(tmp_path, "@kernel.log").answer("@kernel.log")
    assert [line["text"] for line in told["lines"]] == ["NVRM: old", "NVRM: new"]
    monkeypatch.setattr(facts_system, "JOURNAL_LIMIT", 0.0)
    silent = threading.Event()
    monkeypatch.setattr(facts_system, "kernel_entries", lambda: [silent.wait(5)] and entries)
    ring.put(500, 50.0, "NVRM: new")
    told = looked(tmp_path, "@kernel.log").answer("@kernel.log")
    assert [line["text"] for line in told["lines"]] == ["NVRM: new"]
    silent.set()


def test_a_label_that_is_no_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl(tmp_path / "bin", monkeypatch)
    found = facts_system.units(("triton", "-x.service", "a b.service", "good.service"), (), None, 2.0)
    assert set(found) == {*facts_system.SYSTEM_UNITS, "good.service"}


def test_a_socket_that_is_silent_is_named_once_and_its_reason_told() -> None:
    tried = (SocketTry("/run/x.sock", "settings", "/run/x.sock: Podman did not answer in time"),)
    assert facts_podman._unreached(tried) == ("/run/x.sock Podman did not answer in time", "podman info")
    tried = (SocketTry("/run/y.sock", "rootful", "permission denied: join the group podman"),)
    assert facts_podman._unreached(tried) == ("/run/y.sock permission denied", "sudo podman info")
