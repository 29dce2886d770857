"""Callers of one model on kept connections, for tests of changes: what failed, what was refused, what stood still."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

STALLED_S = 1.0
BODY = json.dumps({"inputs": [{"name": "FEATURES", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
ANSWER = 2.5


@dataclass
class Seen:
    """Counts of one run."""

    good: int = 0
    refused: int = 0
    """Answers that are no 200."""
    failed: int = 0
    """No answer, or a wrong one."""
    stalled: int = 0
    longest: float = 0.0
    words: set[str] = field(default_factory=set)


@contextlib.contextmanager
def calling(port: int, model: str, count: int, pause: float = 0.0, version: str = "") -> Iterator[Seen]:
    """`count` callers during the block, each on a connection that it keeps."""
    seen, stop, lock = Seen(), threading.Event(), threading.Lock()
    path = f"/v2/models/{model}{f'/versions/{version}' if version else ''}/infer"

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not stop.is_set():
            began = time.monotonic()
            status, words = _ask(connection, path)
            took = time.monotonic() - began
            with lock:
                seen.good += status == 200
                seen.refused += status not in (0, 200)
                seen.failed += status == 0
                seen.stalled += took > STALLED_S
                seen.longest = max(seen.longest, took)
                if words:
                    seen.words.add(words)
            stop.wait(pause)
        connection.close()

    threads = [threading.Thread(target=call, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def _ask(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    """(status, words); status 0 for no answer or a wrong one."""
    try:
        connection.request("POST", path, BODY)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        return 0, repr(error)[:200]
    if answer.status != 200:
        return answer.status, str(body)[:200]
    data = body["outputs"][0]["data"]
    return (200, "") if data == [ANSWER] else (0, str(data)[:200])
