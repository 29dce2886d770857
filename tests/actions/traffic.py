"""Clients with kept connections on one model, while an action changes it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

BODY = json.dumps({"inputs": [{"name": "FEATURES", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})


@dataclass
class Seen:
    """What the clients got."""

    failed: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    done: int = 0


@contextlib.contextmanager
def traffic(port: int, model: str, clients: int = 4) -> Iterator[Seen]:
    """Requests without a pause longer than 10 ms during the block."""
    seen, stop = Seen(), threading.Event()
    threads = [threading.Thread(target=_client, args=(port, model, seen, stop), daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join(15)


def _client(port: int, model: str, seen: Seen, stop: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    while not stop.wait(0.01):
        try:
            connection.request("POST", f"/v2/models/{model}/infer", BODY)
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            seen.failed.append(repr(error))
            connection.close()
            continue
        if answer.status != 200:
            seen.failed.append(f"{answer.status} {body[:120]!r}")
            continue
        seen.done += 1
        seen.versions.add(json.loads(body)["model_version"])
    connection.close()
