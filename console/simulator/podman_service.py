"""A stand-in for `podman system service`: the libpod REST API on a Unix socket, for the box's containers.

What it does is done in containers.py; the documents are made in podman_shapes.py.
"""

from __future__ import annotations

import asyncio
import io
import re
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from console.simulator.box import Box
from console.simulator.containers import IMAGE, IMAGE_ID, Container, ContainerEvent, PodmanError, is_image
from console.simulator.http_server import HttpServer, Request, Response, Stream
from console.simulator.podman_shapes import LABELS, PODMAN_VERSION, Shapes, event_document
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

    def __init__(self, box: Box, pulse: Pulse, advance: Callable[[], None]) -> None:
        self._box = box
        self._shapes = Shapes(box)
        self._pulse = pulse
        self._advance = advance
        self._http = HttpServer(self._handle)
        container = r"/containers/(?P<name>[^/]+)"
        self._routes: list[tuple[str, re.Pattern[str], _Handler]] = [
            (method, re.compile(pattern), handler)
            for method, pattern, handler in (
                ("GET", r"/_ping", self._ping),
                ("GET", r"/version", self._version),
                ("GET", r"/info", self._info),
                ("GET", r"/events", self._events),
                ("GET", r"/containers/json", self._list),
                ("GET", r"/containers/stats", self._stats),
                ("POST", r"/containers/create", self._create),
                ("GET", container + r"/json", self._inspect),
                ("GET", container + r"/exists", self._exists),
                ("GET", container + r"/top", self._top),
                ("GET", container + r"/logs", self._logs),
                ("GET", container + r"/archive", self._archive),
                ("POST", container + r"/start", self._start),
                ("POST", container + r"/stop", self._stop),
                ("POST", container + r"/restart", self._restart),
                ("POST", container + r"/kill", self._kill),
                ("POST", container + r"/rename", self._rename),
                ("DELETE", container, self._remove),
                ("GET", r"/images/json", self._images),
                ("POST", r"/images/(?:create|pull)", self._pull),
                ("GET", r"/images/(?P<image>.+)/exists", self._image_exists),
                ("GET", r"/images/(?P<image>.+)/json", self._image),
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
        method = "GET" if request.method == "HEAD" else request.method
        wrong_method = False
        for wanted, pattern, handler in self._routes:
            if (match := pattern.fullmatch(path)) is None:
                continue
            if wanted != method:
                wrong_method = True
                continue
            try:
                return await handler(request, match)
            except PodmanError as error:
                return _json({"cause": error.cause, "message": str(error), "response": error.status}, error.status)
        plain = {"Content-Type": "text/plain; charset=utf-8"}
        return Response(405, b"Method Not Allowed", plain) if wrong_method else Response(404, b"Not Found", plain)

    async def _ping(self, _request: Request, _match: re.Match[str]) -> Response:
        headers = HEADERS | {"Libpod-Buildah-Version": "1.33.7", "Cache-Control": "no-cache", "Pragma": "no-cache"}
        return Response(200, b"OK", headers | {"Content-Type": "text/plain; charset=utf-8"})

    async def _version(self, _request: Request, _match: re.Match[str]) -> Response:
        return _json(self._shapes.version())

    async def _info(self, _request: Request, _match: re.Match[str]) -> Response:
        return _json(self._shapes.info())

    async def _list(self, request: Request, _match: re.Match[str]) -> Response:
        filters = _filters(request)
        shown = [one for one in self._box.containers.all if one.running or request.flag("all")]
        return _json([self._shapes.list_entry(one) for one in shown if _passes(one, filters)])

    async def _inspect(self, _request: Request, match: re.Match[str]) -> Response:
        return _json(self._shapes.inspection(self._find(match)))

    async def _exists(self, _request: Request, match: re.Match[str]) -> Response:
        self._find(match)
        return Response(204, b"", HEADERS)

    async def _top(self, _request: Request, match: re.Match[str]) -> Response:
        return _json(self._shapes.top(self._find(match)))

    def _find(self, match: re.Match[str]) -> Container:
        return self._box.containers.find(match["name"])

    # ---------------------------------------------------------------------------------------------------------- acts

    async def _create(self, request: Request, _match: re.Match[str]) -> Response:
        try:
            body = msgspec.json.decode(request.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PodmanError(400, "bad parameter", f"decode(): {error}") from error
        made = self._box.containers.create(body)
        return _json({"Id": made.id, "Warnings": []}, 201)

    async def _start(self, _request: Request, match: re.Match[str]) -> Response:
        began = self._box.containers.start(self._find(match))
        return Response(204 if began else 304, b"", HEADERS)

    async def _stop(self, request: Request, match: re.Match[str]) -> Response:
        one = self._find(match)
        if not self._box.containers.stop(one):
            return Response(304, b"", HEADERS)
        await self._wait_stopped(one, _seconds(request, one))
        return Response(204, b"", HEADERS)

    async def _restart(self, request: Request, match: re.Match[str]) -> Response:
        one = self._find(match)
        one.stays = True
        try:
            if self._box.containers.stop(one):
                await self._wait_stopped(one, _seconds(request, one))
            self._box.containers.start(one)
        finally:
            one.stays = False
        return Response(204, b"", HEADERS)

    async def _wait_stopped(self, one: Container, seconds: int) -> None:
        until_ns = self._box.now_ns + seconds * NS_PER_SECOND
        while one.running:
            if self._box.now_ns >= until_ns and one.server is not None:
                one.server.kill()
                return
            await asyncio.sleep(0.005)
            self._advance()

    async def _kill(self, request: Request, match: re.Match[str]) -> Response:
        self._box.containers.kill(self._find(match), request.first("signal", "SIGKILL"))
        return Response(204, b"", HEADERS)

    async def _rename(self, request: Request, match: re.Match[str]) -> Response:
        self._box.containers.rename(self._find(match), request.first("name"))
        return Response(204, b"", HEADERS)

    async def _remove(self, request: Request, match: re.Match[str]) -> Response:
        one = self._find(match)
        self._box.containers.remove(one, force=request.flag("force"))
        return _json([{"Id": one.id, "Err": None}])

    async def _archive(self, request: Request, match: re.Match[str]) -> Response:
        path = request.first("path")
        data = self._find(match).files.get(path)
        if data is None:
            raise PodmanError(404, "no such file or directory", f'"{path}" could not be found on container')
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            entry = tarfile.TarInfo(path.rpartition("/")[2])
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        return Response(200, held.getvalue(), HEADERS | {"Content-Type": "application/x-tar"})

    async def _pull(self, request: Request, _match: re.Match[str]) -> Response:
        """The one image is always here already; there is no registry."""
        wanted = request.first("fromImage") or request.first("reference")
        if is_image(wanted):
            line = {"status": "Download complete", "id": IMAGE_ID[:12]}
        else:
            words = f"initializing source docker://{wanted}: the simulated box has no registry"
            line = {"error": words, "errorDetail": {"message": words}}  # type: ignore[dict-item]
        return Response(200, msgspec.json.encode(line) + b"\n", JSON_HEADERS)

    # -------------------------------------------------------------------------------------------------------- streams

    async def _stats(self, request: Request, _match: re.Match[str]) -> Response | Stream:
        named = request.query.get("containers", [])
        wanted = [self._box.containers.find(name) for name in named] or list(self._box.containers.all)
        if request.first("stream", "true").lower() not in ("true", "1"):
            return _json(self._shapes.stats(wanted))
        seconds = max(1, int(request.first("interval", "5")))
        return Stream(self._stats_lines(wanted, seconds), headers=HEADERS)

    async def _stats_lines(self, wanted: list[Container], interval_s: int) -> AsyncGenerator[bytes, None]:
        due_ns = self._box.now_ns
        while True:
            if self._box.now_ns >= due_ns:
                yield msgspec.json.encode(self._shapes.stats(wanted)) + b"\n"
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
        one = self._find(match)
        streams = {number for number, name in ((1, "stdout"), (2, "stderr")) if request.flag(name)}
        if not streams:
            message = "at least one of stdout, stderr must be set: bad parameter"
            return _json({"cause": "bad parameter", "message": message, "response": 400}, 400)
        since_ns = _time_ns(request.first("since"), self._box.now_ns) or 0
        until_ns = _time_ns(request.first("until"), self._box.now_ns)
        select = _LogSelection(streams, since_ns, until_ns, request.flag("timestamps"))
        past = [line for line in one.log if select.takes(line)]
        tail = request.first("tail", "all")
        shown = past[-int(tail) :] if tail.isdecimal() and int(tail) else past if not tail.isdecimal() else []
        follow = request.flag("follow") and one.running
        headers = HEADERS | {"Content-Type": "application/octet-stream"}
        return Stream(self._log_frames(one, shown, select, follow), headers=headers)

    async def _log_frames(
        self, one: Container, shown: list[LogLine], select: _LogSelection, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        seen = len(one.log)
        if shown:
            yield b"".join(map(select.frame, shown))
        while follow:
            await self._pulse.wait()
            new = [line for line in one.log[seen:] if select.takes(line)]
            seen = len(one.log)
            if new:
                yield b"".join(map(select.frame, new))
            follow = one.running

    async def _images(self, _request: Request, _match: re.Match[str]) -> Response:
        return _json(self._shapes.images())

    async def _image(self, _request: Request, match: re.Match[str]) -> Response:
        return _json(self._shapes.image()) if is_image(match["image"]) else _no_image(match["image"])

    async def _image_exists(self, _request: Request, match: re.Match[str]) -> Response:
        return Response(204, b"", HEADERS) if is_image(match["image"]) else _no_image(match["image"])


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


def _passes(one: Container, filters: dict[str, list[str]]) -> bool:
    """Podman's container filters: all keys must hold, one value of each is enough (labels: all of them)."""
    checks: dict[str, Callable[[str], bool]] = {
        "name": lambda value: re.search(value, one.name) is not None,
        "id": one.id.startswith,
        "status": lambda value: value == one.state,
        "ancestor": lambda value: value in (IMAGE, IMAGE_ID),
    }
    labels = {key: f"{key}={value}" for key, value in LABELS.items()}
    if not all(value in labels or value in labels.values() for value in filters.get("label", [])):
        return False
    return all(any(map(checks[key], values)) for key, values in filters.items() if key in checks)


def _seconds(request: Request, one: Container) -> int:
    """How long it gets to stop."""
    told = request.first("timeout") or request.first("t")
    return int(told) if told.isdecimal() else int(one.body.get("stop_timeout") or 10)


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
    wanted = filters.get("container", [event.name])
    return (
        "container" in filters.get("type", ["container"])
        and event.action in filters.get("event", [event.action])
        and any(one == event.name or (len(one) >= 2 and event.container.startswith(one)) for one in wanted)
    )
