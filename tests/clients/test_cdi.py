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
    [
        ("4.0.3", (0, 0)),
        ("4.1.0", (0, 4)),
        ("4.3.1", (0, 5)),
        ("4.9.4-rhel", (0, 6)),
        ("5.5.0", (1, 0)),
        ("x", None),
        ("5", None),
        ("-5.1", None),
    ],
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


def spec_text(version: str = "0.5.0", common: str = "{}", device: str = "{}", more: str = "") -> str:
    head = f"cdiVersion: {version}\nkind: nvidia.com/gpu\n{more}\ncontainerEdits: {common}\n"
    return head + f"devices:\n- name: all\n  containerEdits: {device}\n"


@pytest.mark.parametrize(
    ("text", "podman", "why"),
    [
        (spec_text(), "4.9.4", ""),
        (spec_text("0.7.0"), "4.9.4", "is of CDI 0.7.0, Podman 4.9.4 reads up to 0.6"),
        (spec_text("0.7.0"), "5.1.0", ""),
        (spec_text("0.7.0"), None, ""),
        (spec_text(device='{"additionalGids": [44]}'), "4.9.4", "has the key additionalGids"),
        (spec_text(common='{"additionalGids": [44]}'), "5.2.0", ""),
        (spec_text("0.4.0", '{"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}'), "4.2.0", "key hostPath"),
        (spec_text("0.4.0", '{"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}'), "4.3.1", ""),
        (spec_text("0.3.0", more="annotations: {a: b}"), "4.6.2", "key annotations"),
        (spec_text('""'), None, "no cdiVersion that is one (none is given)"),
        (spec_text("1.1.0"), "5.5.0", "is of CDI 1.1.0"),
        (spec_text("1.1.0"), "5.8.1", ""),
        (spec_text("new"), "5.5.0", "no cdiVersion that is one (new)"),
    ],
)
def test_what_makes_podman_drop_a_file(text: str, podman: str | None, why: str) -> None:
    found = cdi.skipped(cdi.parsed("x", text), podman)
    assert why in found
    assert bool(found) == bool(why)


def test_a_version_of_thousands_of_digits() -> None:
    assert "no cdiVersion" in cdi.skipped(cdi.parsed("x", spec_text(f"0.{'9' * 5000}.0")), "5.5.0")
    assert cdi.accepted(f"4.{'9' * 5000}") is None


def test_every_path_of_the_host_that_a_spec_names_once() -> None:
    common = """{"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/a", "hostPath": "/dev/b"}, {"path": 5}, 7],
      "mounts": [{"hostPath": "/l/libcuda.so.550.90.07"}, {"hostPath": "/l/libnvidia-egl-wayland.so.1.1.13"}],
      "hooks": [{"path": "/usr/bin/nvidia-cdi-hook"}, {"path": "/usr/bin/nvidia-cdi-hook"}, {"path": "relative"}]}"""
    found = cdi.parsed("x", spec_text(common=common, device='{"deviceNodes": [{"path": "/dev/nvidia0"}]}'))
    assert [(one.kind, one.path) for one in cdi.host_paths(found)] == [
        ("node", "/dev/nvidiactl"),
        ("node", "/dev/b"),
        ("mount", "/l/libcuda.so.550.90.07"),
        ("mount", "/l/libnvidia-egl-wayland.so.1.1.13"),
        ("hook", "/usr/bin/nvidia-cdi-hook"),
        ("node", "/dev/nvidia0"),
    ]
    assert "/dev/nvidia0" not in {one.path for one in cdi.host_paths(found, [])}
    assert cdi.driver_version(found) == "550.90.07"
    assert cdi.driver_version(cdi.parsed("x", spec_text())) == ""


def test_from_which_file_podman_takes_a_device() -> None:
    old, new = cdi.parsed("/etc/cdi/a.yaml", spec_text()), cdi.parsed("/var/run/cdi/a.yaml", spec_text("0.7.0"))
    broken = cdi.parsed("/var/run/cdi/b.yaml", "a: [")
    assert cdi.taken([old, new, broken], "5.1.0") == {NAME: new}
    assert cdi.taken([old, new, broken], "4.9.4") == {NAME: old}
    assert cdi.taken([new], "4.9.4") == {}


@given(
    st.recursive(
        st.none() | st.text(max_size=9) | st.integers(),
        lambda c: (
            st.lists(c)
            | st.dictionaries(
                st.sampled_from(
                    ["kind", "devices", "containerEdits", "deviceNodes", "mounts", "hooks", "path", "name"]
                ),
                c,
            )
        ),
    )
)
def test_no_document_is_too_odd(document: object) -> None:
    found = cdi.parsed("x", json.dumps(document))
    cdi.host_paths(found)
    cdi.driver_version(found)
    cdi.taken([found], "4.9.4")
