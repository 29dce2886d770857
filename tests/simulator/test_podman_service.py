"""The Podman stand-in, read with podman-py and httpx, and held against documents recorded from Podman."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from podman import PodmanClient
from podman.errors import NotFound

from console.simulator.containers import CONTAINER_ID, IMAGE
from console.simulator.launch import Addresses
from console.simulator.podman_service import _time_ns
from tests.simulator.conftest import recorded

BASE = "http://d/v5.8.0/libpod"


def client(addresses: Addresses) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=addresses.podman.removeprefix("unix://")))


def get(addresses: Addresses, path: str, **params: Any) -> httpx.Response:
    with client(addresses) as http:
        return http.get(BASE + path, params=params)


def frames(data: bytes) -> list[tuple[int, str]]:
    found, at = [], 0
    while at < len(data):
        stream, length = struct.unpack_from(">BxxxI", data, at)
        found.append((stream, data[at + 8 : at + 8 + length].decode()))
        at += 8 + length
    return found


def test_podman_py_reads_the_container(live: Addresses) -> None:
    podman: Any
    with PodmanClient(base_url=live.podman) as podman:
        assert podman.ping()
        assert podman.version()["Version"] == "4.9.4"
        assert podman.info()["host"]["cpus"] == 16
        (sparse,) = podman.containers.list(all=True)
        assert sparse.name == "triton"
        (container,) = podman.containers.list(sparse=False, filters={"name": "^triton$"})
        assert container.status == "running"
        assert container.id == CONTAINER_ID
        port = live.http.partition(":")[2]
        assert container.ports["8000/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": port}]
        assert podman.containers.get(CONTAINER_ID[:12]).name == "triton"
        assert podman.containers.exists("triton")
        assert not podman.containers.exists("other")
        with pytest.raises(NotFound):
            podman.containers.get("other")
        assert podman.images.get(IMAGE).tags == [IMAGE]
        assert [image.tags for image in podman.images.list()] == [[IMAGE]]
        log = b"".join(container.logs(stdout=True, stderr=True))
        assert b"successfully loaded 'ranking'" in log


@pytest.mark.parametrize(
    "filters", [{"name": ["^other$"]}, {"status": ["exited"]}, {"label": ["none"]}, {"id": ["77"]}]
)
def test_filters_leave_it_out(live: Addresses, filters: dict[str, list[str]]) -> None:
    assert get(live, "/containers/json", all="true", filters=json.dumps(filters)).json() == []


def test_filters_let_it_through(live: Addresses) -> None:
    filters = {"label": ["com.nvidia.tritonserver.version=2.51.0"], "ancestor": [IMAGE], "status": ["running"]}
    assert len(get(live, "/containers/json", filters=json.dumps(filters)).json()) == 1


def test_a_stopped_container_is_listed_only_when_asked_for(down: Addresses) -> None:
    assert get(down, "/containers/json").json() == []
    (entry,) = get(down, "/containers/json", all="true").json()
    assert (entry["State"], entry["Exited"], entry["ExitCode"], entry["Pid"]) == ("exited", True, 126, 0)
    state = get(down, "/containers/triton/json").json()["State"]
    assert (state["Status"], state["Running"], state["ExitCode"]) == ("exited", False, 126)
    assert state["FinishedAt"] > state["StartedAt"]
    assert list(state) == list(recorded("inspect_exited.json")["State"])


def test_documents_have_podmans_keys(live: Addresses) -> None:
    (entry,) = get(live, "/containers/json", all="true").json()
    real = recorded("containers.json")[0]
    assert list(entry) == list(real)
    assert list(entry["Ports"][0]) == list(real["Ports"][0])
    inspection, real = get(live, "/containers/triton/json").json(), recorded("inspect_running.json")
    for part in ("State", "Config", "HostConfig", "NetworkSettings"):
        assert set(inspection[part]) <= set(real[part]), part
    assert set(inspection) <= set(real)
    assert set(inspection["Mounts"][0]) == set(real["Mounts"][0])
    assert set(inspection["HostConfig"]["Devices"][0]) == set(real["HostConfig"]["Devices"][0])
    (image,) = get(live, "/images/json").json()
    assert set(image) == set(recorded("images.json")[0])
    assert set(get(live, f"/images/{IMAGE}/json").json()) == set(recorded("image.json"))
    for path, name in (("/version", "podman_version.json"), ("/info", "podman_info.json")):
        assert set(get(live, path).json()) <= set(recorded(name))
    usage = get(live, "/containers/stats", containers="triton", stream="false").json()
    assert list(usage["Stats"][0]) == list(recorded("stats.json")["Stats"][0])
    assert set(get(live, "/containers/other/json").json()) == set(recorded("not_found.json"))
    assert list(get(live, "/containers/triton/top").json()) == ["Processes", "Titles"]


def test_the_version_is_told_in_the_header(live: Addresses) -> None:
    with client(live) as http:
        answer = http.get("http://d/_ping")
    assert answer.text == "OK"
    assert answer.headers["Libpod-Api-Version"] == "4.9.4"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", "/containers/json", 405), ("GET", "/images/other/json", 404),
     ("GET", "/containers/triton/logs", 400), ("GET", "/containers/other/logs", 404), ("GET", "/images/x/exists", 404)],
)  # fmt: skip
def test_status_codes(live: Addresses, method: str, path: str, status: int) -> None:
    with client(live) as http:
        assert http.request(method, BASE + path).status_code == status


def test_logs_come_in_frames(live: Addresses) -> None:
    everything = frames(get(live, "/containers/triton/logs", stdout="true", stderr="true").content)
    assert {stream for stream, _ in everything} == {1, 2}
    assert all(text.endswith("\n") for _, text in everything)
    last = frames(get(live, "/containers/triton/logs", stderr="true", tail="3", timestamps="true").content)
    assert len(last) == 3
    assert last[0][1][:20].endswith("Z")
    assert frames(get(live, "/containers/triton/logs", stderr="true", tail="0").content) == []
    assert frames(get(live, "/containers/triton/logs", stderr="true", until="1000").content) == []


def test_the_log_of_a_failed_start_says_why(down: Addresses) -> None:
    log = frames(get(down, "/containers/triton/logs", stdout="true", stderr="true", follow="true", tail="1").content)
    assert log[-1][1].endswith("/opt/tritonserver/bin/tritonserver: Permission denied\n")


def test_events_of_the_past(down: Addresses) -> None:
    lines = get(down, "/events", since="10m", stream="false").text.splitlines()
    actions = [json.loads(line)["Action"] for line in lines]
    assert actions == ["init", "start", "died", "cleanup"] * 5
    died = json.loads(lines[2])
    assert died["Actor"]["Attributes"]["containerExitCode"] == "126"
    only = get(down, "/events", since="10m", stream="false", filters=json.dumps({"event": ["died"]})).text
    assert len(only.splitlines()) == 5
    assert get(down, "/events", stream="false", filters=json.dumps({"type": ["image"]})).text == ""


async def test_streams_flow_and_end_with_the_client(live: Addresses) -> None:
    transport = httpx.AsyncHTTPTransport(uds=live.podman.removeprefix("unix://"))
    async with httpx.AsyncClient(transport=transport, timeout=20) as http:
        params = {"containers": "triton", "stream": "true", "interval": "1"}
        async with http.stream("GET", BASE + "/containers/stats", params=params) as answer:
            lines = answer.aiter_lines()
            reports = [json.loads(await anext(lines))["Stats"][0] for _ in range(2)]
        assert reports[1]["CPUNano"] > reports[0]["CPUNano"]
        async with http.stream("GET", BASE + "/events", params={"since": "3h", "stream": "true"}) as answer:
            assert json.loads(await anext(answer.aiter_lines()))["Action"] == "init"
        params = {"stdout": "true", "stderr": "true", "follow": "true", "tail": "1"}
        async with http.stream("GET", BASE + "/containers/triton/logs", params=params) as answer:
            received = answer.aiter_bytes()
            assert frames(await anext(received))
            waiting = asyncio.ensure_future(anext(received))
            await asyncio.sleep(0.3)
            waiting.cancel()
        assert (await http.get(BASE + "/containers/triton/json")).status_code == 200


@given(st.text(max_size=30) | st.from_regex(r"(\d{1,3}h)?(\d{1,3}m)?(\d{1,3}s)?", fullmatch=True))
def test_any_time_is_read_or_ignored(text: str) -> None:
    at = _time_ns(text, 10**18)
    assert at is None or isinstance(at, int)


def test_times_in_podmans_forms() -> None:
    now = 1_783_145_071 * 10**9
    assert _time_ns("1783145071", now) == now
    assert _time_ns("2026-07-04T06:04:31Z", now) == now
    assert _time_ns("1h2m3s", now) == now - 3723 * 10**9
