"""Private files: whole or not at all, line by line on disk, whatever a writer before left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from console.clients.files import append_synced, private_folder, write_private


def test_lines_are_appended_to_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines"
    append_synced(path, b"a")
    append_synced(path, b"b\n")
    assert path.read_bytes() == b"a\nb\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_torn_line_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\ntor")
    append_synced(path, b"b")
    assert path.read_bytes() == b"a\ntor\nb\n"


def test_it_is_on_disk_with_its_name_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    append_synced(tmp_path / "lines", b"a")
    append_synced(tmp_path / "lines", b"b")
    assert synced == ["lines", tmp_path.name, "lines"]
    synced.clear()
    write_private(tmp_path / "whole", "text")
    assert synced[1:] == [tmp_path.name]


def test_a_line_that_goes_in_only_in_part_is_an_error_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    real: Any = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:2]))
    with pytest.raises(OSError, match="No space left"):
        append_synced(path, b"abc")
    monkeypatch.setattr(os, "write", real)
    append_synced(path, b"next")
    assert path.read_bytes().splitlines()[-1] == b"next"


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        append_synced(tmp_path / "link", b"a")
    assert not (tmp_path / "victim").exists()
    (tmp_path / "victim").write_text("precious")
    write_private(tmp_path / "link", "new")
    assert (tmp_path / "victim").read_text() == "precious"


def test_what_could_not_be_written_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = private_folder(tmp_path) / "whole"
    write_private(path, "old")

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_above_are_private_too_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [one.stat().st_mode & 0o777 for one in (made, made.parent, made.parent.parent)] == [0o700] * 3
