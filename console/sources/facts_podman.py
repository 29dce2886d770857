"""What Podman and Triton answer, as the JSON that checks read. Each function asks one thing, in a thread of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from console.clients import libpod
from console.clients.podman import Podman, user_of
from console.clients.podman_stream import recent_log
from console.clients.triton import Http, Limits, TritonAddress, expect_ok, model_path, server_http
from console.clients.triton_wire import decode_metadata, masked, ready_versions
from console.core.model import ContainerState, Mount, SocketTry, SourceError
from console.core.text import decode, one_line
from console.core.triton_command import model_repositories
from console.sources.container import ContainerSettings, ContainerSource
from console.sources.facts_host import Host
from console.sources.locator import Locator

LOG_LINES = 1000
MAX_MODELS = 64
"""Model versions whose configuration is asked for."""


class PodmanLook(Struct, frozen=True):
    """One Podman service and the Triton container that it knows."""

    url: str
    ping: dict[str, Any]
    containers: list[dict[str, Any]]
    inspect: dict[str, Any] | None
    """As Podman says it, secrets and all."""
    state: ContainerState | None


def look(host: Host, limit_s: float) -> PodmanLook:
    """Find the service and the container. SourceError with why each socket is of no use; its hint is a command."""
    source = ContainerSource(ContainerSettings.told(host.settings), host.root)
    source.open()
    client = source.client
    if client is None:
        raise SourceError("unavailable", *_unreached(source.tried))
    url, origin = client.url, source.origin
    try:
        version, _ = client.ping()
        listed = client.containers_all()
        found, _ = source.choose(_converted(listed, list[libpod.Listed]))
        inspect = client.inspect_all(found.container.id) if found else None
        state = None
        if found is not None and inspect is not None:
            state = libpod.container_state(_converted(inspect, libpod.Inspect), found.found_by)
    finally:
        source.close()
    path, uid = _socket(url, host)
    ping = {
        "version": version,
        "socket": path,
        "origin": origin,
        "rootless": None if uid is None else uid != 0,
        "uid": uid,
    }
    return PodmanLook(url, ping, listed, inspect, state)


def _converted(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SourceError("protocol", f"Podman's answer is not understood: {one_line(str(error), 200)}") from error


def _unreached(tried: tuple[SocketTry, ...]) -> tuple[str, str]:
    """Why no service answers, and the command that settles it."""
    if not tried:
        return "no Podman socket is known", "podman info"
    # an error may begin with the socket's path itself: `/run/x.sock: Podman did not answer in time`
    parts = [(one.path, *(one.error or "").removeprefix(f"{one.path}: ").partition(": ")) for one in tried]
    why = "; ".join(f"{path} {message}" for path, message, _, _ in parts)
    hints = [hint for _, _, _, hint in parts]
    if any("permission" in message for _, message, _, _ in parts):
        return why, "sudo podman info"
    return why, next((hint for hint in hints if hint.startswith("systemctl")), "podman info")


def _socket(url: str, host: Host) -> tuple[str, int | None]:
    """Path of a service's socket and the user whose it is; None = not told."""
    path = url.removeprefix("unix://")
    if host.kind == "simulated":  # the simulated box is rootful, whoever plays it
        return path, 0
    user = user_of(path)
    if user is not None:
        return path, user
    try:
        return path, os.stat(path).st_uid if url.startswith("unix://") else None
    except OSError:
        return path, None


def image(found: PodmanLook, limit_s: float) -> dict[str, Any] | None:
    """The image of the container, less its history; None where there is no container, or the image is gone."""
    name = found.inspect.get("Image") if found.inspect else None
    if not name:
        return None
    answer = _asked(found.url, limit_s, lambda client: client.image_all(str(name)))
    return None if answer is None else {key: one for key, one in answer.items() if key != "History"}


def images(found: PodmanLook, limit_s: float) -> list[dict[str, Any]]:
    """All images."""
    answer: list[dict[str, Any]] = _asked(found.url, limit_s, lambda client: client.images_all())
    return answer


def info(found: PodmanLook, limit_s: float) -> dict[str, Any] | None:
    """Podman's own settings and its host's."""
    answer: dict[str, Any] | None = _asked(found.url, limit_s, lambda client: client.info_all())
    return answer


def log(found: PodmanLook, limit_s: float) -> list[str] | None:
    """The last lines of the container's log; None where there is no container."""
    if found.state is None:
        return None
    lines = recent_log(found.url, found.state.id, LOG_LINES, limit_s=limit_s)
    return [decode(line.data).rstrip("\n") for line in lines]


def _asked(url: str, limit_s: float, question: Any) -> Any:
    client = Podman(url, timeout=limit_s)
    try:
        return question(client)
    finally:
        client.close()


# -------------------------------------------------------------------------------------------------------------- Triton


def address(host: Host, state: ContainerState | None) -> TritonAddress:
    """Where Triton answers. SourceError where that would be some other server."""
    told = host.settings.triton
    if host.kind == "simulated" and state is None and not told.http_port:
        raise SourceError("unavailable", "there is no Triton container that tells its port")
    if state is not None and state.state != "running" and not told.host:
        raise SourceError("unavailable", f"the Triton container is {state.state or 'not running'}")
    return Locator(host.settings, lambda: state).address()


def _http(where: TritonAddress, limit_s: float) -> Http:
    return server_http(where, Limits(connect=min(0.5, limit_s), read=limit_s))


def metadata(where: TritonAddress, limit_s: float) -> dict[str, Any]:
    """GET /v2 with the two lamps; SourceError also where what answers is not Triton."""
    http = _http(where, limit_s)
    try:
        body = expect_ok(http.get("/v2"), "metadata")
        told = decode_metadata(body)
        if not told.version:
            raise SourceError("protocol", f"what answers at {http.where} is not Triton: its /v2 names no version")
        live = http.get("/v2/health/live").status == 200
        ready = http.get("/v2/health/ready").status == 200
        return {**_json(body, dict[str, Any]), "live": live, "ready": ready, "url": where.url}
    finally:
        http.close()


def index(where: TritonAddress, limit_s: float) -> list[dict[str, Any]]:
    """The repository index."""
    http = _http(where, limit_s)
    try:
        found: list[dict[str, Any]] = _json(
            expect_ok(http.post("/v2/repository/index"), "repository index"), list[dict[str, Any]]
        )
        return found
    finally:
        http.close()


def stats(where: TritonAddress, limit_s: float) -> dict[str, Any]:
    """Statistics of all models."""
    http = _http(where, limit_s)
    try:
        found: dict[str, Any] = _json(expect_ok(http.get("/v2/models/stats"), "statistics"), dict[str, Any])
        return found
    finally:
        http.close()


def configs(where: TritonAddress, limit_s: float) -> dict[str, dict[str, Any]]:
    """Configurations of what is READY, by model and version, for as long as the time lasts."""
    end = time.monotonic() + limit_s
    http = _http(where, limit_s)
    found: dict[str, dict[str, Any]] = {}
    try:
        listed = expect_ok(http.post("/v2/repository/index", b'{"ready":true}'), "repository index")
        for name, version in ready_versions(listed)[:MAX_MODELS]:
            if time.monotonic() > end:
                break
            body = expect_ok(http.get(model_path(name, version) + "/config"), "configuration")
            found.setdefault(name, {})[version] = masked(_json(body, dict[str, Any]))
    finally:
        http.close()
    return found


def _json(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError("protocol", f"Triton's answer is not understood: {one_line(str(error), 200)}") from error


def model_folders(host: Host, inspect: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Folders of this host that hold the model repository, by the settings, else by the container's command."""
    if host.settings.repository.path:
        return (host.settings.repository.path,)
    if inspect is None:
        return ()
    words = [inspect.get("Path"), *(inspect.get("Args") or ())]
    mounts = [
        Mount(str(one.get("Source") or ""), str(one.get("Destination") or ""), not one.get("RW", True))
        for one in inspect.get("Mounts") or ()
        if isinstance(one, Mapping) and one.get("Destination")
    ]
    found = model_repositories([str(word) for word in words if word], mounts)
    return tuple(dict.fromkeys(path for _, path in found if path is not None))
