"""JSON and TOML nested or numbered beyond Python's limits: refused as what is not understood, wherever it comes from.

A decoder raises RecursionError for the one and a plain ValueError for the other, neither of them its own error.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import journal, pbtxt, podman, podman_stream, triton
from console.clients.triton_wire import decode_config, decode_index
from console.config import ConfigError, load
from console.core.model import SourceError
from tests.fakes.libpod import FakeLibpod

DEEP = b"[" * 100_000
OBJECT = b'{"MESSAGE":' + DEEP
IDS = ["nested TOML", "nested JSON", "long number in TOML", "long number in JSON"]


def test_streams_leave_it_out() -> None:
    assert podman_stream.decode_event(OBJECT) is None
    assert journal.parse_entries(OBJECT + b'\n{"MESSAGE":"next"}')[0].message == "next"


def test_podmans_answers(tmp_path: Path) -> None:
    with FakeLibpod(tmp_path / "podman.sock") as fake:
        client = podman.Podman(fake.url)
        fake.routes["/containers/json"] = (200, DEEP)
        with pytest.raises(SourceError, match="not understood") as caught:
            client.containers()
        assert caught.value.kind == "protocol"
        fake.routes["/containers/json"] = (500, DEEP)
        with pytest.raises(SourceError, match="Podman answered 500"):
            client.containers()
        client.close()


def test_tritons_answers() -> None:
    assert triton.error_text(triton.Answer(400, OBJECT, 0.0, 0.0, {})).startswith('{"MESSAGE":[[[')
    for decode in (decode_index, lambda body: decode_config(body, "m", "1")):
        with pytest.raises(SourceError):
            decode(DEEP)
    with pytest.raises(SourceError):
        pbtxt.served(DEEP.decode())


@pytest.mark.parametrize("name", ["containers.conf", "podman-connections.json"])
@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "[" * 100_000, "a = " + "9" * 5000, "9" * 5000], ids=IDS)
def test_the_users_own_files(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / ".config/containers"
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    uris, broken = podman.service_destinations({"HOME": str(tmp_path)}, tmp_path)
    assert uris == []
    assert len(broken) == 1
    assert "is broken" in (broken[0].error or "")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5000], ids=IDS[::2])
def test_the_settings_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(file=str(file), environ={})


@given(st.binary(max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_in_the_users_files(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / ".config/containers"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("containers.conf", "podman-connections.json"):
        (folder / name).write_bytes(data)
    podman.service_destinations({"HOME": str(tmp_path)}, tmp_path)


@given(st.binary(max_size=120))
def test_any_bytes_in_the_event_stream(data: bytes) -> None:
    podman_stream.decode_event(data)
    podman_stream.decode_event(b'{"Type":"container","Actor":' + data + b"}")
