"""A file out of a container, as Podman's answers tell it."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import podman_archive
from console.core.model import SourceError


def answers(monkeypatch: pytest.MonkeyPatch, *parts: bytes) -> None:
    def chunks(*_args: object) -> Iterator[bytes]:
        yield from parts

    monkeypatch.setattr(podman_archive, "chunks", chunks)


def archive(name: str, data: bytes | None) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
        info.size = len(data or b"")
        tar.addfile(info, io.BytesIO(data or b""))
    return made.getvalue()


def test_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archive("t.json.0", b"[1]")
    answers(monkeypatch, whole[:100], whole[100:])
    assert podman_archive.read_file("unix:///x", "c", "/t.json.0") == b"[1]"
    answers(monkeypatch, archive("folder", None))
    assert podman_archive.read_file("unix:///x", "c", "/folder") is None


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman_archive, "MAX_FILE", 2**20)
    answers(monkeypatch, bytes(2**20), b"x")
    with pytest.raises(SourceError, match="larger than 1 MiB"):
        podman_archive.read_file("unix:///x", "c", "/big")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=600))
def test_any_answer(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    answers(monkeypatch, data)
    with contextlib.suppress(SourceError):
        assert isinstance(podman_archive.read_file("unix:///x", "c", "/t"), bytes | None)
