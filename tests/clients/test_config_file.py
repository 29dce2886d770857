"""A model's configuration file replaced in one step: old or new at any moment, and like the old one in all else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from console.clients import config_file
from console.clients.config_file import FileRefused

OLD, NEW = b"max_batch_size: 4 # old\n", b"max_batch_size: 8 # new\n"


def model(root: Path, data: bytes | None = OLD) -> Path:
    folder = root / "rank"
    (folder / "1").mkdir(parents=True)
    if data is not None:
        (folder / "config.pbtxt").write_bytes(data)
    return folder


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_the_new_text_has_mode_owner_and_attributes_of_the_old(tmp_path: Path) -> None:
    path = model(tmp_path) / "config.pbtxt"
    path.chmod(0o640)
    os.chown(path, 1234, 4321)
    labelled = True
    try:
        os.setxattr(path, "user.label", b"seen")
    except OSError:
        labelled = False
    config_file.replace(config_file.read(str(tmp_path), "rank"), NEW)
    status = path.stat()
    assert path.read_bytes() == NEW
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o640, 1234, 4321)
    assert not labelled or os.getxattr(path, "user.label") == b"seen"
    assert names(tmp_path) == {"rank"}
    assert names(tmp_path / "rank") == {"1", "config.pbtxt"}


def test_the_selinux_label_is_set_before_the_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path) / "config.pbtxt"
    calls: list[tuple[str, bytes, bytes]] = []
    monkeypatch.setattr(os, "listxattr", lambda _: ["security.selinux"])
    monkeypatch.setattr(os, "getxattr", lambda place, _: b"container_file_t" if place == path else b"default_t")
    monkeypatch.setattr(os, "setxattr", lambda _, name, value: calls.append((name, value, path.read_bytes())))
    config_file.replace(config_file.read(str(tmp_path), "rank"), NEW)
    assert calls == [("security.selinux", b"container_file_t", OLD)]


def test_a_file_that_was_not_there_is_made_and_taken_away(tmp_path: Path) -> None:
    folder = model(tmp_path, None)
    config_file.replace(config_file.read(str(tmp_path), "rank"), NEW)
    assert (folder / "config.pbtxt").read_bytes() == NEW
    assert stat.S_IMODE((folder / "config.pbtxt").stat().st_mode) == 0o644
    config_file.remove(config_file.read(str(tmp_path), "rank"))
    assert names(folder) == {"1"}


def test_bytes_that_are_no_utf8_come_back(tmp_path: Path) -> None:
    path = model(tmp_path, b"# \xff\xfe caf\xe9\r\nmax_batch_size: 4") / "config.pbtxt"
    file = config_file.read(str(tmp_path), "rank")
    config_file.replace(file, config_file.encode(file.text.replace("4", "8")))
    assert path.read_bytes() == b"# \xff\xfe caf\xe9\r\nmax_batch_size: 8"


def test_the_chosen_config_name_is_used_where_it_exists(tmp_path: Path) -> None:
    folder = model(tmp_path)
    assert config_file.read(str(tmp_path), "rank", "night").path == folder / "config.pbtxt"
    (folder / "configs").mkdir()
    (folder / "configs" / "night.pbtxt").write_bytes(NEW)
    file = config_file.read(str(tmp_path), "rank", "night")
    assert (file.path, file.data) == (folder / "configs" / "night.pbtxt", NEW)


def test_links_that_stay_are_followed_and_those_that_leave_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "models"
    folder = model(root)
    shared = root / "shared.pbtxt"
    (folder / "config.pbtxt").rename(shared)
    (folder / "config.pbtxt").symlink_to(shared)
    config_file.replace(config_file.read(str(root), "rank"), NEW)
    assert shared.read_bytes() == NEW
    assert (folder / "config.pbtxt").is_symlink()
    outside = tmp_path / "outside.pbtxt"
    outside.write_bytes(OLD)
    (folder / "config.pbtxt").unlink()
    (folder / "config.pbtxt").symlink_to(outside)
    with pytest.raises(FileRefused, match="outside the repository"):
        config_file.read(str(root), "rank")
    (root / "away").symlink_to(tmp_path)
    with pytest.raises(FileRefused, match="outside the repository"):
        config_file.read(str(root), "away")


def test_a_linked_repository_is_its_own_top(tmp_path: Path) -> None:
    model(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    file = config_file.read(str(tmp_path / "link"), "rank")
    config_file.replace(file, NEW)
    assert (tmp_path / "real" / "rank" / "config.pbtxt").read_bytes() == NEW


def test_no_folder_a_folder_for_a_file_and_a_giant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="no folder"):
        config_file.read(str(tmp_path), "rank")
    folder = model(tmp_path, b"#" * (config_file.MAX_SIZE + 1))
    with pytest.raises(FileRefused, match="larger than"):
        config_file.read(str(tmp_path), "rank")
    (folder / "config.pbtxt").unlink()
    (folder / "config.pbtxt").mkdir()
    with pytest.raises(FileRefused, match="not a regular file"):
        config_file.read(str(tmp_path), "rank")
    (folder / "config.pbtxt").rmdir()
    (folder / "config.pbtxt").symlink_to(folder / "config.pbtxt")
    with pytest.raises(FileRefused):
        config_file.read(str(tmp_path), "rank")


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = model(tmp_path) / "config.pbtxt"
    file = config_file.read(str(tmp_path), "rank")
    path.write_bytes(b"# by an editor\n")
    with pytest.raises(FileRefused, match="has changed meanwhile"):
        config_file.replace(file, NEW)
    assert path.read_bytes() == b"# by an editor\n"


def test_what_stands_in_the_way_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path)
    file = config_file.read(str(tmp_path), "rank")
    assert config_file.obstacle(file) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert "belongs to another user" in config_file.obstacle(file)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not be written" in config_file.obstacle(file)
    monkeypatch.setattr(os, "statvfs", lambda _: type("S", (), {"f_flag": os.ST_RDONLY}))
    assert "read-only mount" in config_file.obstacle(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_real_read_only_mount_and_a_model_on_a_filesystem_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "models"
    folder = model(root)
    if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("no mounts here")
    try:
        (folder / "config.pbtxt").write_bytes(OLD)
        file = config_file.read(str(root), "rank")
        assert "filesystem of its own" in config_file.obstacle(file)
        with pytest.raises(FileRefused, match="cannot be written"):
            config_file.replace(file, NEW)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert "read-only mount" in config_file.obstacle(file)
        assert (folder / "config.pbtxt").read_bytes() == OLD
        assert names(root) == {"rank"}
    finally:
        subprocess.run(["umount", folder], check=True)


KILLED = """
import os, signal, sys
from console.clients import config_file
step = int(sys.argv[2])
seen = 0
def audit(event, args):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.chmod", "os.chown", "os.setxattr") or event == "fsync":
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
fsync = os.fsync
def synced(handle):
    audit("fsync", ())
    fsync(handle)
os.fsync = synced
file = config_file.read(sys.argv[1], "rank")
sys.addaudithook(audit)
config_file.replace(file, b"max_batch_size: 8 # new\\n")
print(seen)
"""


def test_killed_at_any_step_leaves_the_old_or_the_new_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    path = model(tmp_path) / "config.pbtxt"
    seen = set()
    for step in range(1, 40):
        path.write_bytes(OLD)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(step)], capture_output=True, text=True, check=False
        )
        now = path.read_bytes()
        assert now in (OLD, NEW)
        assert names(path.parent) == {"1", "config.pbtxt"}
        seen.add((done.returncode == 0, now))
        if done.returncode == 0:
            break
    assert {(False, OLD), (False, NEW), (True, NEW)} <= seen
    config_file.clear(config_file.read(str(tmp_path), "rank"))
    assert names(tmp_path) == {"rank"}


def test_the_backup_is_private_and_whole(tmp_path: Path) -> None:
    model(tmp_path)
    file = config_file.read(str(tmp_path), "rank")
    kept = config_file.back_up(file, tmp_path / "state" / "batching", "one.pbtxt")
    assert kept.read_bytes() == OLD
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    with pytest.raises(FileRefused, match="no backup"):
        config_file.back_up(file, tmp_path / "rank" / "config.pbtxt", "x")


def test_touching_makes_it_newer(tmp_path: Path) -> None:
    path = model(tmp_path) / "config.pbtxt"
    os.utime(path, (1, 1))
    config_file.touch(config_file.read(str(tmp_path), "rank"))
    assert path.stat().st_mtime > 1
