"""A stand-in for `podman system service`: the libpod REST API on a Unix socket, for one container and its image.

It is read-only: it has no call that changes the container. The documents are made in podman_shapes.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from console.simulator.box import Box, ContainerEvent
from console.simulator.http_server import HttpServer, Request, Response, Stream
from console.simulator.podman_shapes import (
    CONTAINER_ID,
    IMAGE,
    IMAGE_ID,
    LABELS,
    NAME,
    PODMAN_VERSION,
    PublishedPorts,
    Shapes,
    event_document,
)
from console.simulator.server_log import NS_PER_SECOND, LogLine

HEADERS = {
    "Api-Version": "1.41",
    "Libpod-Api-Version": PODMAN_VERSION,
    "Server": f"Libpod/{PODMAN_VERSION} (linux)",
}
JSON_HEADERS = HEADERS | {"Content-Type": "application/json"}


class Pulse:
    """Wakes whoever waits for the box to have moved on."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return at the next beat."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    def beat(self) -> None:
        """Wake everybody."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None


_Handler = Callable[[Request, re.Match[str]], Awaitable[Response | Stream]]


class PodmanService:
    """The service for one box. `advance` brings the box to the present before each answer."""

    def __init__(self, box: Box, ports: PublishedPorts, pulse: Pulse, advance: Callable[[], None]) -> None:
        self._box = box
        self._shapes = Shapes(box, ports)
        self._pulse = pulse
        self._advance = advance
        self._http = HttpServer(self._handle)
        container = r"/containers/(?P<name>[^/]+)"
        self._routes: list[tuple[re.Pattern[str], _Handler]] = [
            (re.compile(pattern), handler)
            for pattern, handler in (
                (r"/_ping", self._ping),
                (r"/version", self._version),
                (r"/info", self._info),
                (r"/events", self._events),
                (r"/containers/json", self._list),
                (r"/containers/stats", self._stats),
                (container + r"/json", self._inspect),
                (container + r"/exists", self._exists),
                (container + r"/top", self._top),
                (container + r"/logs", self._logs),
                (r"/images/json", self._images),
                (r"/images/(?P<image>.+)/exists", self._image_exists),
                (r"/images/(?P<image>.+)/json", self._image),
            )
        ]

    async def start(self, socket: Path) -> None:
        """Listen on the socket."""
        await self._http.listen_unix(str(socket))

    async def close(self) -> None:
        """Stop, and drop open streams."""
        await self._http.close()

    async def _handle(self, request: Request) -> Response | Stream:
        self._advance()
        path = re.sub(r"^(/v[\d.]+)?(/libpod)?", "", request.path, count=1)
        for pattern, handler in self._routes:
            if (match := pattern.fullmatch(path)) is None:
                continue
            if request.method not in ("GET", "HEAD"):
                return Response(405, b"Method Not Allowed", {"Content-Type": "text/plain; charset=utf-8"})
            return await handler(request, match)
        return Response(404, b"Not Found", {"Content-Type": "text/plain; charset=utf-8"})

    async def _ping(self, _request: Request, _match: re.Match[str]) -> Response:
        headers = HEADERS | {"Libpod-Buildah-Version": "1.33.7", "Cache-Control": "no-cache", "Pragma": "no-cache"}
        return Response(200, b"OK", headers | {"Content-Type": "text/plain; charset=utf-8"})

    async def _version(self, _request: Request, _match: re.Match[str]) -> Response:
        return _json(self._shapes.version())

    async def _info(self, _request: Request, _match: re.Match[str]) -> Response:
        return _json(self._shapes.info())

    async def _list(self, request: Request, _match: re.Match[str]) -> Response:
        shown = (self._box.running or request.flag("all")) and self._passes(_filters(request))
        return _json([self._shapes.list_entry()] if shown else [])

    def _passes(self, filters: dict[str, list[str]]) -> bool:
        """Podman's container filters: all keys must hold, one value of each is enough (labels: all of them)."""
        status = "running" if self._box.running else "exited"
        checks: dict[str, Callable[[str], bool]] = {
            "name": lambda value: re.search(value, NAME) is not None,
            "id": CONTAINER_ID.startswith,
            "status": lambda value: value == status,
            "ancestor": lambda value: value in (IMAGE, IMAGE_ID),
        }
        labels = {key: f"{key}={value}" for key, value in LABELS.items()}
        if not all(value in labels or value in labels.values() for value in filters.get("label", [])):
            return False
        return all(any(map(checks[key], values)) for key, values in filters.items() if key in checks)

    async def _inspect(self, _request: Request, match: re.Match[str]) -> Response:
        if not _is_container(match["name"]):
            return _no_container(match["name"])
        return _json(self._shapes.inspection())

    async def _exists(self, _request: Request, match: re.Match[str]) -> Response:
        return Response(204, b"", HEADERS) if _is_container(match["name"]) else _no_container(match["name"])

    async def _top(self, _request: Request, match: re.Match[str]) -> Response:
        if not _is_container(match["name"]):
            return _no_container(match["name"])
        return _json(self._shapes.top())

    async def _stats(self, request: Request, _match: re.Match[str]) -> Response | Stream:
        for name in request.query.get("containers", []):
            if not _is_container(name):
                return _no_container(name)
        if request.first("stream", "true").lower() not in ("true", "1"):
            return _json(self._shapes.stats())
        seconds = max(1, int(request.first("interval", "5")))
        return Stream(self._stats_lines(seconds), headers=HEADERS)

    async def _stats_lines(self, interval_s: int) -> AsyncGenerator[bytes, None]:
        due_ns = self._box.now_ns
        while True:
            if self._box.now_ns >= due_ns:
                yield msgspec.json.encode(self._shapes.stats()) + b"\n"
                due_ns = self._box.now_ns + interval_s * NS_PER_SECOND
            await self._pulse.wait()

    async def _events(self, request: Request, _match: re.Match[str]) -> Response | Stream:
        since_ns = _time_ns(request.first("since"), self._box.now_ns)
        until_ns = _time_ns(request.first("until"), self._box.now_ns)
        filters = _filters(request)
        stream = request.first("stream", "true").lower() in ("true", "1")
        if not stream or until_ns is not None:
            past = self._event_lines(0, since_ns or 0, until_ns, filters)
            return Response(200, b"".join(line for _, line in past), JSON_HEADERS)
        # without `since` Podman tells only what happens from now on
        return Stream(
            self._follow_events(self._box.now_ns if since_ns is None else since_ns, filters), 200, JSON_HEADERS
        )

    async def _follow_events(self, since_ns: int, filters: dict[str, list[str]]) -> AsyncGenerator[bytes, None]:
        seen = 0
        while True:
            for index, line in self._event_lines(seen, since_ns, None, filters):
                yield line
                seen = index + 1
            await self._pulse.wait()

    def _event_lines(
        self, first: int, since_ns: int, until_ns: int | None, filters: dict[str, list[str]]
    ) -> Iterator[tuple[int, bytes]]:
        for index, event in enumerate(self._box.events[first:], start=first):
            inside = event.at_ns >= since_ns and (until_ns is None or event.at_ns <= until_ns)
            if inside and _event_passes(event, filters):
                yield index, msgspec.json.encode(event_document(event)) + b"\n"

    async def _logs(self, request: Request, match: re.Match[str]) -> Response | Stream:
        if not _is_container(match["name"]):
            return _no_container(match["name"])
        streams = {number for number, name in ((1, "stdout"), (2, "stderr")) if request.flag(name)}
        if not streams:
            message = "at least one of stdout, stderr must be set: bad parameter"
            return _json({"cause": "bad parameter", "message": message, "response": 400}, 400)
        since_ns = _time_ns(request.first("since"), self._box.now_ns) or 0
        until_ns = _time_ns(request.first("until"), self._box.now_ns)
        select = _LogSelection(streams, since_ns, until_ns, request.flag("timestamps"))
        past = [line for line in self._box.log if select.takes(line)]
        tail = request.first("tail", "all")
        shown = past[-int(tail) :] if tail.isdecimal() and int(tail) else past if not tail.isdecimal() else []
        follow = request.flag("follow") and self._box.running
        headers = HEADERS | {"Content-Type": "application/octet-stream"}
        return Stream(self._log_frames(shown, select, follow), headers=headers)

    async def _log_frames(
        self, shown: list[LogLine], select: _LogSelection, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        seen = len(self._box.log)
        if shown:
            yield b"".join(map(select.frame, shown))
        while follow:
            await self._pulse.wait()
            new = [line for line in self._box.log[seen:] if select.takes(line)]
            seen = len(self._box.log)
            if new:
                yield b"".join(map(select.frame, new))

    async def _images(self, _request: Request, _match: re.Match[str]) -> Response:
        return _json(self._shapes.images())

    async def _image(self, _request: Request, match: re.Match[str]) -> Response:
        return _json(self._shapes.image()) if _is_image(match["image"]) else _no_image(match["image"])

    async def _image_exists(self, _request: Request, match: re.Match[str]) -> Response:
        return Response(204, b"", HEADERS) if _is_image(match["image"]) else _no_image(match["image"])


@dataclass(frozen=True, slots=True)
class _LogSelection:
    streams: set[int]
    since_ns: int
    until_ns: int | None
    timestamps: bool

    def takes(self, line: LogLine) -> bool:
        early_enough = self.until_ns is None or line.at_ns <= self.until_ns
        return line.stream in self.streams and line.at_ns >= self.since_ns and early_enough

    def frame(self, line: LogLine) -> bytes:
        """One multiplexed frame: stream, three zero bytes, length (big-endian), text."""
        stamp = datetime.fromtimestamp(line.at_ns // NS_PER_SECOND, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ ")
        data = f"{stamp if self.timestamps else ''}{line.text}\n".encode()
        return bytes((line.stream, 0, 0, 0)) + len(data).to_bytes(4, "big") + data


def _json(document: Any, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(document), JSON_HEADERS)


def _is_container(name: str) -> bool:
    return name == NAME or (len(name) >= 2 and CONTAINER_ID.startswith(name))


def _no_container(name: str) -> Response:
    message = f'no container with name or ID "{name}" found: no such container'
    return _json({"cause": "no such container", "message": message, "response": 404}, 404)


def _is_image(name: str) -> bool:
    return name in (IMAGE, f"sha256:{IMAGE_ID}") or (len(name) >= 3 and IMAGE_ID.startswith(name))


def _no_image(name: str) -> Response:
    return _json({"cause": "image not known", "message": f"{name}: image not known", "response": 404}, 404)


def _filters(request: Request) -> dict[str, list[str]]:
    """Filters come as JSON: lists of strings, or Docker's maps of string to true."""
    try:
        raw = msgspec.json.decode(request.first("filters", "{}"), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {key: [values] if isinstance(values, str) else list(values) for key, values in raw.items()}


def _time_ns(text: str, now_ns: int) -> int | None:
    """A time as Podman's API takes it: epoch seconds, RFC 3339, or a duration back from now (`10m`)."""
    if not text:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return int(float(text) * NS_PER_SECOND)
    if duration := re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text):
        hours, minutes, seconds = (int(part or 0) for part in duration.groups())
        return now_ns - (hours * 3600 + minutes * 60 + seconds) * NS_PER_SECOND
    try:
        return int(datetime.fromisoformat(text).timestamp() * NS_PER_SECOND)
    except ValueError:
        return None


def _event_passes(event: ContainerEvent, filters: dict[str, list[str]]) -> bool:
    containers = filters.get("container", [NAME])
    return (
        "container" in filters.get("type", ["container"])
        and event.action in filters.get("event", [event.action])
        and any(map(_is_container, containers))
    )
