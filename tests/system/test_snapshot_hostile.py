"""`snapshot` beside servers that are not Triton, or a Triton that will not talk: what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system import hostile
from tests.system.headless import NO_PODMAN, run, snapshot

TRITON = ("triton.server", "triton.index", "triton.stats", "triton.metrics", "triton.config")


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_any_other_server_is_named_and_nothing_is_made_up(kind: str, tmp_path: Path) -> None:
    with hostile.server(hostile.KINDS[kind]) as port:
        ports = ("--host", "127.0.0.1", "--http-port", str(port), "--metrics-port", str(port))
        taken = snapshot(*NO_PODMAN, *ports, home=tmp_path)
        done, _ = run("snapshot", *NO_PODMAN, *ports, home=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for part in TRITON:
        if kind in ("restricted", "bad_utf8_error") and part == "triton.server":
            continue  # it may be Triton: it gives errors in Triton's form
        assert taken.error(part), part
    assert taken.data["models"] == []
    assert taken.data["traffic"]["rate"] is None
    assert taken.data["serving"]["word"] in ("UNKNOWN", "DOWN", "NOT ANSWERING", "NOTHING SERVES YET")


def test_a_restricted_api_names_the_header(tmp_path: Path) -> None:
    with hostile.server(hostile.restricted) as port:
        taken = snapshot(*NO_PODMAN, "--http-port", str(port), "--metrics-port", str(port), home=tmp_path)
    assert "lab-key" in (taken.error("triton.stats") or "")
    assert "[triton.headers]" in (taken.error("triton.stats") or "")


@pytest.mark.parametrize("kind", ["garbage", "silent", "other_json", "closes"])
def test_https_to_what_has_no_tls(kind: str, tmp_path: Path) -> None:
    with hostile.server(hostile.KINDS[kind]) as port:
        taken = snapshot(
            *NO_PODMAN,
            *("--http-port", str(port), "--metrics-port", str(port)),
            home=tmp_path,
            environ={"GPUCONSOLE_TRITON_HTTPS": "true"},
        )
    for part in ("triton.server", "triton.index", "triton.stats", "triton.config"):
        assert taken.error(part)


def test_nothing_at_all(tmp_path: Path) -> None:
    taken = snapshot(*NO_PODMAN, "--http-port", "1", "--metrics-port", "1", home=tmp_path)
    assert taken.value("container")["tried"][0]["error"].startswith("is not there")
    for part in (*TRITON, "repository", "gpu"):
        assert taken.error(part), part
    assert taken.data["serving"]["word"] == "NOTHING SERVES YET"
