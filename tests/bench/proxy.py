"""A loopback HTTP proxy that counts requests by path and can keep the answers with their times.

It shares no code with the product: what it kept is the evidence against which the product's figures are checked, and
its counts tell how often the console really polled.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType


class Proxy:
    """Forwards 127.0.0.1:`port` to `upstream_port`; use as a context manager.

    `kept` holds (path, monotonic time of the answer's last byte, body) for paths that end in one of `keep`.
    """

    def __init__(self, upstream_port: int, *, keep: tuple[str, ...] = ()) -> None:
        self.upstream_port = upstream_port
        self.keep = keep
        self.counts: Counter[str] = Counter()
        self.kept: list[tuple[str, float, bytes]] = []
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait(5)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def save(self, path: Path) -> None:
        """The kept answers as JSON lines: {path, mono, body}."""
        with path.open("w", encoding="utf-8") as file:
            for name, mono, body in self.kept:
                file.write(json.dumps({"path": name, "mono": mono, "body": body.decode("utf-8")}) + "\n")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._client, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head, body = await _message(reader)
                path = head.split(b" ", 2)[1].decode("latin-1")
                self.counts[path] += 1
                if upstream is None:
                    upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port)
                upstream[1].write(head + body)
                answer, content = await _message(upstream[0])
                if path.endswith(self.keep) and self.keep:
                    plain = gzip.decompress(content) if b"content-encoding: gzip" in answer.lower() else content
                    self.kept.append((path, time.monotonic(), plain))
                writer.write(answer + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError, IndexError, asyncio.LimitOverrunError):
            pass
        finally:
            for one in (writer, upstream[1] if upstream else None):
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.close()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """(head with its blank line, body) of a request or an answer with Content-Length or chunked coding."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        return head, await _chunks(reader)
    length = 0
    for line in lower.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return head, await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    raw = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        block = await reader.readexactly(int(size, 16) + 2)
        raw += size + block
        if int(size, 16) == 0:
            return raw
