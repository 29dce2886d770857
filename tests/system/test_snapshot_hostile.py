"""`snapshot` beside servers that are not Triton, or a Triton that will not talk: what is missing is named."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from console import faultlog
from console.core.poller import Poller
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


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_what_is_not_podman_on_its_address(kind: str, tmp_path: Path) -> None:
    with hostile.server(hostile.KINDS[kind]) as port:
        taken = snapshot("--socket", f"tcp://127.0.0.1:{port}", "--http-port", "1", home=tmp_path)
    told = taken.value("container")
    assert taken.error("container") or told["tried"][0]["error"]
    assert told is None or told["container"] is None


def test_a_fault_of_a_source_is_one_sentence_and_a_private_log(tmp_path: Path) -> None:
    folder = tmp_path / "state/gpuconsole"
    faultlog.set_up(folder)
    try:
        poller = Poller(_Faulty(), lambda reading: None)
        for _ in range(3):
            reading = poller.step()
        assert reading.error is not None
        assert reading.error.kind == "bug"
    finally:
        for handler in logging.getLogger().handlers[:]:
            if type(handler).__module__ == faultlog.__name__:
                logging.getLogger().removeHandler(handler)
    log = folder / "gpuconsole.log"
    assert log.read_text().count("ZeroDivisionError") == 3
    assert log.stat().st_mode & 0o777 == 0o600


class _Faulty:
    name = "gpu"
    interval = 1.0

    def open(self) -> None:
        pass

    def read(self) -> int:
        return 1 // 0

    def close(self) -> None:
        pass
