"""Which addresses of Podman's service are used, and what is said of the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients.podman import Candidate, _unsupported, connect_error, normal_url


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("/run/podman/podman.sock", None),
        ("unix:///run/podman/podman.sock", None),
        ("http+unix://%2Frun%2Fpodman.sock", None),
        ("unix://", "names no path"),
        ("tcp://127.0.0.1:8080", None),
        ("http://localhost", None),
        ("tcp://[::1]:8080", None),
        ("tcp://10.0.0.1:8080", "tcp is used on loopback only: it carries no rights of its own"),
        ("tcp://127.0.0.1:0", "is no address: port 0"),
        ("ssh://core@host/run/podman.sock", "ssh is not supported: run gpuconsole on that host"),
        ("fd://3", "is no Unix socket"),
        ("", "is no Unix socket"),
        ("unix:///a\0b", "is no path"),
        ("unix:///a%00b", "is no path"),
    ],
)
def test_what_can_be_used(uri: str, said: str | None) -> None:
    assert _unsupported(uri) == said


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:99999", "tcp://127.0.0.1:x", "tcp://[::1"])
def test_what_is_no_address(uri: str) -> None:
    assert (_unsupported(uri) or "").startswith("is no address: ")


@given(
    st.text(max_size=40)
    | st.sampled_from(["tcp://", "unix://", "ssh://", "http://["]).flatmap(
        lambda head: st.text(max_size=20).map(lambda rest: head + rest)
    )
)
def test_any_text_is_an_address_or_a_reason(uri: str) -> None:
    if _unsupported(uri) is None and normal_url(uri).startswith("unix://"):
        connect_error(Candidate(normal_url(uri), "settings"))
