"""Asks the lab's Triton over HTTP, with the standard library alone: nothing here is shared with the product."""

from __future__ import annotations

import http.client
import json
from typing import Any


def call(port: int, method: str, path: str, body: object = None, timeout: float = 5.0) -> tuple[int, Any]:
    """Return status and decoded body of one request on a connection of its own.

    Raises OSError or http.client.HTTPException where there is no answer.
    """
    # A new connection each time: one that is kept may stand behind a model load for as long as that takes.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(raw) if raw else None
    except ValueError:
        return response.status, raw.decode(errors="replace")


def ready_versions(port: int) -> set[tuple[str, str]]:
    """Return (model, version) of everything the index calls READY."""
    status, index = call(port, "POST", "/v2/repository/index")
    if status != 200:
        return set()
    return {(entry["name"], entry["version"]) for entry in index if entry.get("state") == "READY"}


def score_of(port: int, user: int) -> float:
    """Return what the ensemble answers for one user; the right answer is user + 0.375."""
    tensor = {"name": "USER", "shape": [1, 1], "datatype": "INT64", "data": [user]}
    status, answer = call(port, "POST", "/v2/models/reco/infer", {"inputs": [tensor]})
    if status != 200:
        raise ValueError(f"status {status}: {answer}")
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    return float(outputs["SCORE"][0])
