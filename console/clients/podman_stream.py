"""Podman's endless answers (events, followed logs) over its socket, ended by a stop event within half a second.

podman-py's generators block and cannot be cancelled (host.md 3.4), and a read time-out of an ordinary client ends the
whole answer, so a quiet container would cost a new connection each second. Here the network read itself waits in short
turns and looks at the stop event in between: the connection lives on, also while the server keeps its headers back
until the first line (Podman before 5.3).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from console.clients import libpod
from console.clients.podman import API_VERSION, CALL_TIMEOUT, Candidate, normal_url
from console.core.model import SourceError
from console.core.podman_frames import FrameDecoder, LineJoiner, RawLine
from console.core.text import one_line

MAX_EVENT = 1024 * 1024
SET_BACK = 1.0
"""Seconds by which the wall clock must fall behind the monotonic one before it counts as set back."""


def chunks(
    url: str, path: str, params: Mapping[str, str], stop: threading.Event, limit_s: float | None = None
) -> Iterator[bytes]:
    """The bytes of one GET answer as they come, until it ends, `stop` is set or `limit_s` seconds have passed.

    SourceError: unavailable (nobody there, connection lost), protocol (an answer other than 200).
    """
    import httpcore

    from console.clients.podman_wire import Backend, StoppedError

    url = normal_url(url)
    base = urlsplit(url)
    unix = Candidate(url, "").path if base.scheme == "unix" else None
    server = "http://podman" if unix is not None else f"http://{base.netloc}"
    deadline = None if limit_s is None else time.monotonic() + limit_s
    target = f"{server}/v{API_VERSION}/libpod{path}?{urlencode(params)}"
    try:
        with (
            httpcore.ConnectionPool(uds=unix, network_backend=Backend(stop, deadline)) as pool,
            pool.stream("GET", target) as answer,
        ):
            if answer.status != 200:
                raise SourceError("protocol", f"Podman answered {answer.status}: {one_line(_text(answer), 500)}")
            yield from answer.iter_stream()
    except StoppedError:
        return
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
        message = f"{unix or url}: the stream ended: {one_line(str(error) or type(error).__name__, 200)}"
        raise SourceError("unavailable", message) from error


def _text(answer: Any) -> str:
    answer.read()
    return str(answer.content[:2000].decode("utf-8", "replace"))


def follow_log(
    url: str, container: str, stop: threading.Event, since: int | None = None, tail: int | None = None
) -> Iterator[RawLine]:
    """Lines of a container's log: the last `tail`, or those from `since` (Unix seconds) on, then new ones as they come.

    Ends when the container exits or `stop` is set; SourceError as `chunks`.
    """
    yield from _lines(chunks(url, _logs(container), _log_params(since, tail, follow=True), stop))


def recent_log(
    url: str,
    container: str,
    tail: int | None,
    since: int | None = None,
    limit_s: float = CALL_TIMEOUT,
    stop: threading.Event | None = None,
) -> list[RawLine]:
    """The last `tail` lines (None = all), for at most `limit_s` seconds; works for a container that is not running."""
    params = _log_params(since, tail, follow=False)
    return list(_lines(chunks(url, _logs(container), params, stop or threading.Event(), limit_s)))


def _logs(container: str) -> str:
    return f"/containers/{container}/logs"


def _log_params(since: int | None, tail: int | None, follow: bool) -> dict[str, str]:
    params = {"stdout": "true", "stderr": "true", "timestamps": "true", "follow": "true" if follow else "false"}
    if since is not None:
        params["since"] = str(since)
    if tail is not None:
        params["tail"] = str(tail)
    return params


def _lines(data: Iterable[bytes]) -> Iterator[RawLine]:
    decoder, joiner = FrameDecoder(), LineJoiner()
    for chunk in data:
        for piece in decoder.feed(chunk):
            line = joiner.feed(piece)
            if line is not None:
                yield line
    yield from joiner.flush()


def events(
    url: str, stop: threading.Event, since: int | None = None, follow: bool = True, limit_s: float | None = None
) -> Iterator[libpod.PodmanEvent]:
    """Container events: those since a time (Unix seconds), then, if `follow`, new ones. What is none is left out.

    Ends when the wall clock is set back: Podman itself keeps all back that is dated before `since`, also from an open
    stream (measured on 4.3), so it must be asked anew.
    """
    params = {"stream": "true" if follow else "false", "filters": '{"type":["container"]}'}
    if since is not None:
        params["since"] = str(since)
    buffer = bytearray()
    for chunk in chunks(url, "/events", params, _UntilSetBack(stop), limit_s):
        buffer += chunk
        *whole, rest = bytes(buffer).split(b"\n")
        buffer = bytearray(rest[:MAX_EVENT])
        for line in whole:
            event = decode_event(line)
            if event is not None:
                yield event


class _UntilSetBack(threading.Event):
    """Set with another event, and when the wall clock was set back since this was made."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop
        self._lead = time.time() - time.monotonic()

    def is_set(self) -> bool:
        return self._stop.is_set() or time.time() - time.monotonic() < self._lead - SET_BACK


def decode_event(line: bytes) -> libpod.PodmanEvent | None:
    """One line of the event stream; None when it is empty or not understood."""
    try:
        return msgspec.json.decode(line, type=libpod.PodmanEvent) if line.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
