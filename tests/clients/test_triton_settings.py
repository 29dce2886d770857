"""Triton's settings where it answers something else than a Triton; the good cases are seen on a real one
(tests/actions/test_tracing.py)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import triton_settings
from console.clients.triton import Answer, TritonAddress
from console.clients.triton_settings import TritonSettings
from console.core.model import SourceError


class Scripted:
    """Answers each request with one status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer = Answer(status, body, 0.0, 0.0, {})

    def once(self, *_request: object) -> Answer:
        return self.answer

    def close(self) -> None:
        pass


def answering(monkeypatch: pytest.MonkeyPatch, status: int, body: bytes) -> TritonSettings:
    monkeypatch.setattr(triton_settings, "server_http", lambda _address: Scripted(status, body))
    return TritonSettings(TritonAddress())


def test_refusals_keep_tritons_words(monkeypatch: pytest.MonkeyPatch) -> None:
    restricted = answering(monkeypatch, 403, b'{"error":"This API is restricted, expecting header \'k\'"}')
    with pytest.raises(SourceError) as caught:
        restricted.set_verbosity(1)
    assert (caught.value.kind, "header k" in caught.value.hint) == ("permission", True)
    refused = answering(monkeypatch, 400, b'{"error":"trace file name is not given"}')
    with pytest.raises(SourceError, match="trace setting: 400: trace file name is not given"):
        refused.set_trace("m", {"trace_level": ["TIMESTAMPS"]})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.sampled_from([b"[]", b'{"trace_level":"OFF"}', b'{"log_verbose_level":"1"}']))
def test_any_body(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    asked = answering(monkeypatch, 200, body)
    for call in (asked.trace, asked.verbosity):
        try:
            call()
        except SourceError as error:
            assert error.kind  # noqa: PT017 (either a value or this)
