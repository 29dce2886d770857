"""A host's files below a root: bounds, links, rights, recordings; nothing escapes and nothing blocks."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.clients import tree
from console.clients.tree import Told, Tree
from console.core.facts import FileFact

NEVER = threading.Event()
NOBODY = 65534


def put(root: Path, path: str, text: str | bytes = "x\n") -> Path:
    """Write a file below the root."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text if isinstance(text, bytes) else text.encode())
    return target


def as_nobody(work: Callable[[], Any]) -> Any:
    """What `work` gives in a child process without any rights."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
            os.write(write, msgspec.json.encode(work()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(data)


@contextlib.contextmanager
def for_everybody() -> Iterator[Path]:
    """A folder that anybody may enter; pytest's own may not be, whatever a test does with it."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_file_with_its_attributes(tmp_path: Path) -> None:
    file = put(tmp_path, "/etc/os-release", 'ID="rocky"\n')
    file.chmod(0o640)
    found = Tree(str(tmp_path)).look("/etc/os-release")
    assert (found.kind, found.text, found.mode, found.size) == ("file", 'ID="rocky"\n', 0o640, 11)
    assert (found.uid, found.gid, found.mtime) == (os.getuid(), os.getgid(), file.stat().st_mtime)
    assert not found.cut
    assert Tree(str(tmp_path)).look("/etc/os-release", text=False).text is None


def test_absent_is_told_from_all_else(tmp_path: Path) -> None:
    put(tmp_path, "/etc/file")
    looked = Tree(str(tmp_path))
    assert looked.look("/etc/none").kind == "absent"
    assert looked.look("/no/such/folder/x").kind == "absent"
    assert looked.look("/etc/file/below").kind == "absent"
    assert looked.look("/" + "x" * 300).kind == "absent"
    assert looked.look("/etc/nul\0byte") == FileFact("unknown", why="it is no path")


def test_a_folder_has_names(tmp_path: Path) -> None:
    put(tmp_path, "/lib/modules/b/x")
    put(tmp_path, "/lib/modules/a/x")
    assert Tree(str(tmp_path)).look("/lib/modules").names == ("a", "b")
    assert Tree(str(tmp_path)).look("/").names == ("lib",)
    assert Tree(str(tmp_path)).look("/lib/modules/").kind == "dir"


def test_a_huge_folder_is_unknown_by_name_and_known_by_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_NAMES", 50)
    for number in range(100):
        put(tmp_path, f"/big/n{number:03}")
    looked = Tree(str(tmp_path))
    found = looked.look("/big")
    assert (found.names, found.why) == (None, "it holds more than 50 names")
    assert looked.glob("/big/n00*", NEVER).paths == [f"/big/n00{digit}" for digit in range(10)]


@pytest.mark.parametrize("most", [10, 1000])
def test_patterns_are_bounded_and_say_so(tmp_path: Path, most: int) -> None:
    for number in range(30):
        put(tmp_path, f"/sys/cpu{number}/freq")
    found = Tree(str(tmp_path)).glob("/sys/cpu*/freq", NEVER, most)
    assert len(found.paths) == min(most, 30)
    assert found.folders["/sys"].why == ("more than 10 paths match /sys/cpu*/freq" if most == 10 else "")


def test_patterns_name_the_folders_that_they_went_through(tmp_path: Path) -> None:
    put(tmp_path, "/sys/class/net/eth0/speed")
    (tmp_path / "sys/class/net/lo").mkdir()
    found = Tree(str(tmp_path)).glob("/sys/class/net/*/speed", NEVER)
    assert found.paths == ["/sys/class/net/eth0/speed", "/sys/class/net/lo/speed"], (
        "the second is looked at, and absent"
    )
    assert found.folders["/sys/class/net"].names == ("eth0", "lo")
    assert Tree(str(tmp_path)).glob("/no/*/x", NEVER).folders["/no"].kind == "absent"
    assert Tree(str(tmp_path)).glob("/sys/class/net/eth0/speed/*", NEVER).paths == []


def test_a_pattern_holds_a_name_with_signs(tmp_path: Path) -> None:
    put(tmp_path, "/data/a[1]/config.pbtxt")
    pattern = f"/data/{tree.escaped('a[1]')}/*.pbtxt"
    assert Tree(str(tmp_path)).glob(pattern, NEVER).paths == ["/data/a[1]/config.pbtxt"]
    assert not tree.is_pattern(tree.escaped("/data/a[1]?*"))


@pytest.mark.parametrize(
    ("link", "target", "kind", "text"),
    [
        ("/etc/relative", "file", "file", "inside\n"),
        ("/etc/absolute", "/etc/file", "file", "inside\n"),
        ("/etc/upwards", "../../../../../../etc/file", "file", "inside\n"),
        ("/etc/dangling", "/nowhere", "link", None),
        ("/etc/loop", "loop", "link", None),
        ("/var", "/etc", "dir", None),
    ],
)
def test_links_stay_below_the_root(tmp_path: Path, link: str, target: str, kind: str, text: str | None) -> None:
    put(tmp_path, "/etc/file", "inside\n")
    (tmp_path / link.lstrip("/")).symlink_to(target)
    found = Tree(str(tmp_path)).look(link)
    assert (found.kind, found.text, found.target) == (kind, text, target)
    assert found.is_there == (kind != "link")


def test_no_link_leads_out_of_the_root(tmp_path: Path) -> None:
    outside = put(tmp_path, "/outside/secret", "outside\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").symlink_to(outside)
    (root / "b").symlink_to(outside.parent)
    (root / "c").symlink_to("../outside")
    looked = Tree(str(root))
    for path in ("/a", "/b/secret", "/c/secret", "/../outside/secret", "/b/../../outside/secret"):
        assert looked.look(path).text is None, path
    assert looked.glob("/*/secret", NEVER).folders["/"].names == ("a", "b", "c")
    assert not any(looked.look(path).is_there for path in looked.glob("/*/secret", NEVER).paths)
    assert looked.find("/c", "secret", NEVER).paths == []


def test_a_folder_reached_through_links(tmp_path: Path) -> None:
    put(tmp_path, "/run/cdi/nvidia.yaml")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    looked = Tree(str(tmp_path))
    assert looked.look("/var/run/cdi/nvidia.yaml").text == "x\n"
    assert looked.glob("/var/run/cdi/*", NEVER).paths == ["/var/run/cdi/nvidia.yaml"]


def test_nothing_that_blocks_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        looked = Tree(str(tmp_path))
        assert looked.look("/fifo").kind == "fifo"
        assert looked.look("/socket").kind == "socket"
    assert Tree().look("/dev/null").device == (1, 3)
    assert Tree().look("/dev/null").kind == "char"
    assert "not read" in Tree().look("/proc/kmsg").why


@pytest.mark.parametrize(
    "path",
    ["/run/user/1000/containers/auth.json", "/root/.docker/config.json", "/etc/shadow", "/home/a/.ssh/id_ed25519"],
)
def test_credentials_are_never_read(tmp_path: Path, path: str) -> None:
    put(tmp_path, path, '{"auths": {}}')
    (tmp_path / "innocent").symlink_to(path)
    for one in (path, "/innocent"):
        found = Tree(str(tmp_path)).look(one)
        assert (found.kind, found.text, found.why) == ("file", None, "not read: it holds credentials")


def test_texts_are_bounded(tmp_path: Path) -> None:
    put(tmp_path, "/etc/big", b"a" * (tree.MAX_TEXT + 10))
    put(tmp_path, "/var/log/big.log", b"".join(b"line %d\n" % number for number in range(60_000)))
    put(tmp_path, "/bin/true", bytes(range(256)))
    looked = Tree(str(tmp_path))
    big, log, binary = looked.look("/etc/big"), looked.look("/var/log/big.log"), looked.look("/bin/true")
    assert (len(big.text or ""), big.cut) == (tree.MAX_TEXT, True)
    assert log.cut
    assert log.text is not None
    assert log.text.endswith("line 59999\n")
    assert log.text.startswith("line "), "not in the middle of a line"
    assert "\ufffd" in (binary.text or "")
    assert not binary.cut


def test_files_of_proc_have_a_text_in_spite_of_size_0() -> None:
    assert "Name:" in (Tree().look("/proc/self/status").text or "")


def test_without_rights() -> None:
    with for_everybody() as root:
        put(root, "/closed/file").parent.chmod(0o700)
        put(root, "/listed/file").parent.chmod(0o744)
        put(root, "/etc/secret").chmod(0o600)
        told = as_nobody(lambda: without_rights(root))
    denied = "permission denied"
    assert told == {
        "/closed": ["dir", denied, None],
        "/closed/file": ["unknown", denied, None],
        "/closed/none": ["unknown", denied, None],
        "/etc/secret": ["file", denied, None],
        "/etc": ["dir", "", None],
        "find": ["dir", denied, None],
        "listed": ["unknown", denied, None],
    }


def without_rights(root: Path) -> dict[str, Any]:
    """What the test above sees."""
    looked = Tree(str(root))
    found = {path: looked.look(path) for path in ("/closed", "/closed/file", "/closed/none", "/etc/secret", "/etc")}
    found |= looked.glob("/closed/*", NEVER).folders
    found["find"] = looked.find("/closed", "*", NEVER).folders["/closed"]
    found["listed"] = looked.look("/listed/file")
    return {path: [fact.kind, fact.why, fact.text] for path, fact in found.items()}


# ------------------------------------------------------------------------------------------------------------- searches


def test_find_goes_down_and_through_no_link(tmp_path: Path) -> None:
    put(tmp_path, "/lib/modules/4.18/extra/nvidia.ko.xz")
    put(tmp_path, "/lib/modules/4.18/kernel/nvidia-uvm.ko")
    put(tmp_path, "/elsewhere/nvidia.ko")
    (tmp_path / "lib/modules/4.18/build").symlink_to("/elsewhere")
    (tmp_path / "lib/modules/4.18/weak.ko").symlink_to("extra/nvidia.ko.xz")
    found = Tree(str(tmp_path)).find("/lib/modules/4.18", "*.ko*", NEVER)
    assert sorted(found.paths) == [
        "/lib/modules/4.18/extra/nvidia.ko.xz",
        "/lib/modules/4.18/kernel/nvidia-uvm.ko",
        "/lib/modules/4.18/weak.ko",
    ]
    assert found.folders["/lib/modules/4.18"].why == ""
    assert Tree(str(tmp_path)).find("/none", "*", NEVER).folders["/none"].kind == "absent"
    assert Tree(str(tmp_path)).find("/elsewhere/nvidia.ko", "*", NEVER).paths == []


def test_find_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_ENTRIES", 20)
    for number in range(40):
        put(tmp_path, f"/a/{number}/x")
    found = Tree(str(tmp_path)).find("/a", "x", NEVER)
    assert (found.folders["/a"].cut, found.folders["/a"].why != "") == (False, True)
    monkeypatch.setattr(tree, "MAX_ENTRIES", 45)
    found = Tree(str(tmp_path)).find("/a", "x", NEVER)
    assert found.folders["/a"].cut
    assert "were looked at" in found.folders["/a"].why
    deep = "/".join("abcdefghijkl")
    put(tmp_path, f"/deep/{deep}/x")
    assert Tree(str(tmp_path)).find("/deep", "x", NEVER).paths == []


def test_find_stays_on_its_file_system() -> None:
    paths = Tree().find("/dev", "*", NEVER).paths
    assert "/dev/null" in paths
    assert not any(path.startswith("/dev/pts/") for path in paths)


def test_room_of_this_machine() -> None:
    found = Tree().space("/proc/self/..")
    assert (found.fs, found.mount) == ("proc", "/proc")
    assert Tree().space("/nonexistent").why == "there is no /nonexistent"
    room = Tree().space("/")
    assert room.total is not None
    assert room.free is not None
    assert 0 < room.free <= room.total


# ----------------------------------------------------------------------------------------------------------- recordings


def test_what_a_recording_tells(tmp_path: Path) -> None:
    put(tmp_path, "/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\n").chmod(0o755)
    put(tmp_path, ".gpuconsole/box.json", "{}")
    told = {
        "/etc/cdi/nvidia.yaml": Told(mode=0o600, uid=0, label="system_u:object_r:etc_t:s0"),
        "/dev/nvidia0": Told("char", device=(195, 0), mode=0o666),
        "/dev/char/195:0": Told(target="../nvidia0"),
        "/run/podman": Told("unknown", why="permission denied"),
        "/etc/gone": Told("absent"),
        "/etc/hidden": Told(why="permission denied"),
        "/var/audit": Told("dir", why="permission denied"),
    }
    put(tmp_path, "/etc/gone")
    put(tmp_path, "/etc/hidden", "")
    looked = Tree(str(tmp_path), told)
    spec = looked.look("/etc/cdi/nvidia.yaml")
    assert (spec.mode, spec.label, spec.text) == (0o600, "system_u:object_r:etc_t:s0", "cdiVersion: 0.5.0\n")
    node = looked.look("/dev/nvidia0")
    assert (node.kind, node.device, node.mode, node.text) == ("char", (195, 0), 0o666, None)
    assert looked.look("/dev/char/195:0").kind == "char"
    assert looked.look("/dev/char/195:0").target == "../nvidia0"
    assert looked.look("/dev").names == ("char", "nvidia0")
    assert looked.glob("/dev/nvidia*", NEVER).paths == ["/dev/nvidia0"]
    assert looked.look("/run/podman/podman.sock") == FileFact("unknown", why="permission denied")
    assert looked.glob("/run/podman/*", NEVER).folders["/run/podman"].kind == "unknown"
    assert looked.look("/etc/gone").kind == "absent"
    assert looked.look("/etc").names == ("cdi", "hidden")
    assert (looked.look("/etc/hidden").kind, looked.look("/etc/hidden").why) == ("file", "permission denied")
    assert looked.look("/var/audit").why == "permission denied"
    assert looked.look("/var/audit/audit.log") == FileFact("unknown", why="permission denied")
    assert looked.look("/").names == ("dev", "etc", "run", "var"), "the recording's own folder is not the host's"
    assert looked.find("/dev", "nvidia*", NEVER).paths == ["/dev/nvidia0"]


def test_what_a_recording_does_not_tell_is_as_of_a_plain_file_of_root(tmp_path: Path) -> None:
    put(tmp_path, "/etc/x").chmod(0o600)
    put(tmp_path, "/usr/bin/nvidia-ctk").chmod(0o700)
    looked = Tree(str(tmp_path), {})
    assert looked.look("/etc/x").mode == 0o644
    assert looked.look("/usr/bin/nvidia-ctk").mode == 0o755
    found = looked.look("/usr/bin")
    assert (found.mode, found.uid, found.gid, found.mtime) == (0o755, 0, 0, None)


def test_a_recording_spelled_through_a_link(tmp_path: Path) -> None:
    put(tmp_path, "/run/cdi/a.yaml")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    looked = Tree(str(tmp_path), {"/var/run/cdi/a.yaml": Told(mode=0o600), "/var/run/cdi/b.yaml": Told("unknown")})
    assert looked.look("/run/cdi/a.yaml").mode == 0o600
    assert looked.look("/run/cdi").names == ("a.yaml", "b.yaml")


def test_a_text_that_was_not_recorded(tmp_path: Path) -> None:
    put(tmp_path, "/usr/lib64/libcuda.so.550.90.07", "")
    looked = Tree(str(tmp_path), {"/usr/lib64/libcuda.so.550.90.07": Told(size=1000), "/x": Told("file"), "/y": Told()})
    found = looked.look("/usr/lib64/libcuda.so.550.90.07")
    assert (found.size, found.text, found.why) == (1000, None, "what is in it was not recorded")
    assert looked.look("/x").why == "what is in it was not recorded"
    assert looked.look("/y").kind == "absent"
    assert Tree(str(tmp_path), {"/z": Told("file", text="told\n")}).look("/z").text == "told\n"
