"""A small HTTP server for tests of the sender: it answers as Triton would, or as it is told to misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


def body(value: float = 1.5, *, name: str = "SCORE", empty: bool = False) -> tuple[bytes, int]:
    """An answer with one FP32 output in binary, and the size of its JSON."""
    size = 0 if empty else 4
    outputs = [{"name": name, "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": size}}]
    head = json.dumps({"model_name": "m", "outputs": outputs}).encode()
    return head + (b"" if empty else struct.pack("<f", value)), len(head)


@dataclass
class Server:
    """Its state; tests change it while it runs."""

    port: int = 0
    delay_s: float = 0.0
    mood: str = ""
    """"", 503, empty, missing, close, silent, garbage, chunked, slow-parts, bye (answers, then closes)."""
    every: int = 1
    """Every n-th request meets the mood."""
    value: float = 1.5
    got: list[bytes] = field(default_factory=list)
    """Bodies."""
    times: list[float] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    frozen_until: float = 0.0


async def _serve(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    server.open += 1
    server.most_open = max(server.most_open, server.open)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            server.got.append(await reader.readexactly(length))
            server.times.append(time.monotonic())
            mood = server.mood if len(server.got) % server.every == 0 else ""
            await asyncio.sleep(server.delay_s)
            while time.monotonic() < server.frozen_until:
                await asyncio.sleep(0.005)
            if mood == "silent":
                await asyncio.sleep(3600)
            if mood == "close":
                return
            for part in _answer(server, mood):
                writer.write(part)
                await writer.drain()
                if mood == "slow-parts":
                    await asyncio.sleep(0.002)
            if mood == "bye":
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        server.open -= 1
        writer.close()


def _answer(server: Server, mood: str) -> list[bytes]:
    if mood == "garbage":
        return [b"SSH-2.0-OpenSSH_8.0\r\n\r\n"]
    if mood == "chunked":
        return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
    if mood == "503":
        content, lines = b'{"error":"Exceeds maximum queue size"}', ["HTTP/1.1 503 Service Unavailable"]
    else:
        content, size = body(server.value, name="OTHER" if mood == "missing" else "SCORE", empty=mood == "empty")
        lines = ["HTTP/1.1 200 OK", f"Inference-Header-Content-Length: {size}"]
    if mood == "bye":
        lines.append("Connection: close")
    whole = "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""]).encode() + content
    return [whole[at : at + 7] for at in range(0, len(whole), 7)] if mood == "slow-parts" else [whole]


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """One on a free port of 127.0.0.1."""
    server, loop = Server(), asyncio.new_event_loop()
    started = threading.Event()

    async def begin() -> None:
        made = await asyncio.start_server(lambda r, w: _serve(server, r, w), "127.0.0.1", 0, backlog=2000)
        server.port = made.sockets[0].getsockname()[1]
        started.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
