"""CDI spec files in made-up trees: every reason for which Podman calls a device unresolvable (host.md B03 to B11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.clients import cdi

NAME = "nvidia.com/gpu=all"


def spec(root: Path, file: str = "etc/cdi/nvidia.yaml", version: str = "0.5.0", **edits: Any) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"cdiVersion: {version}", "kind: nvidia.com/gpu", f"containerEdits: {json.dumps(edits)}"]
    lines += ["devices:", "- name: all", '  containerEdits: {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}']
    path.write_text("\n".join(lines))


def test_a_good_one(tmp_path: Path) -> None:
    spec(tmp_path, env=["A=1"])
    assert cdi.resolve(NAME, "4.9.4", tmp_path) == cdi.Resolved(NAME, "", f"{tmp_path}/etc/cdi/nvidia.yaml")
    assert cdi.environment([NAME], tmp_path) == {"A", "NVIDIA_VISIBLE_DEVICES"}
    assert cdi.environment(["other=1"], tmp_path) == frozenset()


def test_none_at_all_and_another_name(tmp_path: Path) -> None:
    assert "there is no CDI spec file" in cdi.resolve(NAME, None, tmp_path).problem
    spec(tmp_path)
    assert f"there are {NAME}" in cdi.resolve("nvidia.com/gpu=7", None, tmp_path).problem


@pytest.mark.parametrize("text", ["a: [", "- 1", "kind: 5", "\0"])
def test_a_broken_one_is_named(tmp_path: Path, text: str) -> None:
    spec(tmp_path)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text(text)
    assert "nvidia.yaml: it" in cdi.resolve(NAME, None, tmp_path).problem


def test_one_of_a_newer_version_is_skipped_by_podman(tmp_path: Path) -> None:
    spec(tmp_path, version="0.7.0")
    assert "Podman 4.9.4 reads up to 0.6" in cdi.resolve(NAME, "4.9.4", tmp_path).problem
    assert not cdi.resolve(NAME, "5.1.0", tmp_path).problem
    assert not cdi.resolve(NAME, None, tmp_path).problem


def test_two_of_one_folder_make_it_unresolvable_and_the_later_folder_wins(tmp_path: Path) -> None:
    spec(tmp_path)
    spec(tmp_path, "etc/cdi/other.json")
    assert "both define it" in cdi.resolve(NAME, None, tmp_path).problem
    spec(tmp_path, "var/run/cdi/nvidia.yaml")
    assert cdi.resolve(NAME, None, tmp_path) == cdi.Resolved(NAME, "", f"{tmp_path}/var/run/cdi/nvidia.yaml")


@pytest.mark.parametrize(
    "edits",
    [
        {"deviceNodes": [{"path": "/dev/nvidia9"}]},
        {"mounts": [{"hostPath": "/usr/lib64/libcuda.so.535", "containerPath": "/x"}]},
        {"hooks": [{"path": "/usr/bin/nvidia-cdi-hook"}]},
    ],
)
def test_what_it_names_and_is_not_there(tmp_path: Path, edits: dict[str, Any]) -> None:
    spec(tmp_path, **edits)
    assert "which is not there" in cdi.resolve(NAME, None, tmp_path).problem


@pytest.mark.parametrize(
    ("podman", "newest"),
    [("4.0.3", (0, 0)), ("4.1.0", (0, 4)), ("4.3.1", (0, 5)), ("4.9.4-rhel", (0, 6)), ("5.5.0", (1, 0)), ("x", None)],
)
def test_versions(podman: str, newest: tuple[int, int] | None) -> None:
    assert cdi.accepted(podman) == newest


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "etc/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.yaml").write_bytes(data)
    assert cdi.resolve(NAME, "4.9.4", tmp_path).problem
