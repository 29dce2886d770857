"""Values that change what a container is made of: what would only be refused when the old one is stopped already."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.actions import preflight
from console.actions.box import Box, BoxSpec
from console.actions.spec_changes import MOST_BYTES, changed, size
from console.config import Settings
from console.core.plan import WrongInput


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shm_size", "999999999999999g"),
        ("shm_size", "0"),
        ("cpus", "9-2"),
        ("numa", "1,3-2"),
        ("ports", "999.1.1.1:8000:8000"),
        ("ports", "[1:2]:8000:8000"),
        ("ports", "127.0.0.1:0:8000"),
    ],
)
def test_what_podman_or_the_kernel_would_refuse_later(field: str, value: str) -> None:
    with pytest.raises(WrongInput, match=f"^{field}: ") as caught:
        changed({"image": "x"}, {field: value}, ())
    assert str(caught.value).isprintable()


def test_the_largest_size_fits_podmans_number() -> None:
    assert size("8388607t"[:-1] + "k") <= MOST_BYTES
    assert changed({"image": "x"}, {"ports": "[::1]:8000:8000"}, ())["portmappings"][0]["host_ip"] == "::1"


@pytest.mark.parametrize(("key", "asked", "missing"), [("cpus", "0-1,3", "CPU 2"), ("mems", "1", "memory node 1")])
def test_cpus_and_nodes_that_are_not_there(key: str, asked: str, missing: str, tmp_path: Path) -> None:
    for name, text in (("cpu", "0-1,3"), ("node", "0")):
        folder = tmp_path / "sys/devices/system" / name
        folder.mkdir(parents=True)
        (folder / "online").write_text(f"{text}\n")
    box = Box(BoxSpec(Settings(), root=str(tmp_path)), tmp_path)

    def told(value: str) -> list[str]:
        return [one.text for one in preflight._places(box, {"resource_limits": {"cpu": {key: value}}})]

    assert told("0") == []
    assert told("") == []
    (text,) = told(asked if key == "mems" else "0-3")
    assert text.startswith(f"{missing} is not there or off")


def test_an_address_that_no_card_of_this_host_has() -> None:
    assert preflight._is_taken("192.0.2.77", 18000, "tcp") == preflight.NOT_OURS
