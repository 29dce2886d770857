"""The model repository on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.clients import pbtxt
from console.clients.triton_wire import decode_config
from console.core.model import DiskModel, Mount, Repository, SourceError, TritonConfigs
from console.sources import repository
from console.sources.repository import Place, RepositorySource, places

DATA = Path(__file__).parents[1] / "data" / "triton"


def model(root: Path, name: str, versions: dict[str, int], config: str | None = None) -> Path:
    """A model folder with a file of the given size in each version folder (0 = no file)."""
    folder = root / name
    folder.mkdir(exist_ok=True)
    for version, size in versions.items():
        (folder / version).mkdir()
        if size:
            (folder / version / "model.plan").write_bytes(b"x" * size)
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def source(root: Path, configs: TritonConfigs | None = None, config_name: str = "") -> RepositorySource:
    return RepositorySource(lambda: [Place(str(root), "/models", config_name)], lambda: configs)


def by_name(found: Repository) -> dict[str, DiskModel]:
    return {m.name: m for m in found.models}


def served(name: str = "rank", **changes: Any) -> TritonConfigs:
    config = json.loads((DATA / f"config_{name}.json").read_text())
    config["dynamic_batching"] |= changes
    return TritonConfigs((decode_config(json.dumps(config).encode(), name, "2"),))


def test_folders_versions_and_sizes(tmp_path: Path) -> None:
    model(tmp_path, "rank", {"1": 100, "2": 0, "10": 7, "001": 5, "old": 5, "0": 5, "9" * 30: 1}, 'backend: "python"')
    model(tmp_path, ".hidden", {"1": 1})
    (tmp_path / "README").write_text("no model")
    found = source(tmp_path).read()
    assert (found.path, found.in_container) == (str(tmp_path), "/models")
    assert found.disk_total is not None
    assert found.disk_free is not None
    assert found.disk_total >= found.disk_free > 0
    (rank,) = found.models
    assert [(v.version, v.size, v.usable) for v in rank.versions] == [(1, 100, True), (2, 0, False), (10, 7, True)]
    assert rank.config_error is None
    assert rank.config_mtime_wall == pytest.approx((tmp_path / "rank" / "config.pbtxt").stat().st_mtime)
    newest = (tmp_path / "rank" / "1" / "model.plan").stat().st_mtime
    assert rank.versions[0].mtime_wall == pytest.approx(newest)


def test_nested_files_count_and_an_ensemble_needs_none(tmp_path: Path) -> None:
    folder = model(tmp_path, "deep", {"1": 10})
    (folder / "1" / "weights").mkdir()
    (folder / "1" / "weights" / "a").write_bytes(b"12345")
    model(tmp_path, "reco", {"1": 0}, 'platform: "ensemble"')
    found = by_name(source(tmp_path).read())
    assert found["deep"].versions[0].size == 15
    assert found["deep"].config_mtime_wall is None
    assert found["reco"].versions[0].usable


def test_a_new_version_and_a_changed_config_are_seen(tmp_path: Path) -> None:
    folder = model(tmp_path, "rank", {"1": 5}, "max_batch_size: 4")
    reader = source(tmp_path)
    assert len(reader.read().models[0].versions) == 1
    (folder / "2").mkdir()
    assert not reader.read().models[0].versions[1].usable
    (folder / "2" / "model.py").write_text("x")
    os.utime(folder / "2", (1, 1))
    (folder / "config.pbtxt").write_text("max_batch_size: ")
    (rank,) = reader.read().models
    assert rank.versions[1].usable
    assert rank.config_error is not None
    assert rank.config_error.startswith("1:")
    (folder / "config.pbtxt").unlink()
    (rank,) = reader.read().models
    assert (rank.config_error, rank.config_mtime_wall) == (None, None)


def test_what_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path, "rank", {"1": 5}, (DATA / "models" / "rank" / "config.pbtxt").read_text())
    reader = source(tmp_path, served())
    first = reader.read()
    monkeypatch.setattr(pbtxt, "parse", None)
    monkeypatch.setattr(pbtxt, "served", None)
    monkeypatch.setattr(repository, "_contents", None)
    assert reader.read().models == first.models


def test_live_only_settings(tmp_path: Path) -> None:
    model(tmp_path, "rank", {"2": 5}, (DATA / "models" / "rank" / "config.pbtxt").read_text())
    assert source(tmp_path, served()).read().models[0].differences == ()
    assert source(tmp_path, None).read().models[0].differences == ()
    (found,) = source(tmp_path, served(max_queue_delay_microseconds=2000)).read().models[0].differences
    assert (found.path, found.live, found.disk) == ("dynamic_batching.max_queue_delay_microseconds", "2000", "1000")


def test_differences_follow_the_served_configuration(tmp_path: Path) -> None:
    model(tmp_path, "rank", {"2": 5}, (DATA / "models" / "rank" / "config.pbtxt").read_text())
    now = served()
    reader = RepositorySource(lambda: [Place(str(tmp_path))], lambda: now)
    assert reader.read().models[0].differences == ()
    now = served(max_queue_delay_microseconds=5)
    assert len(reader.read().models[0].differences) == 1


def test_a_configuration_by_another_name(tmp_path: Path) -> None:
    folder = model(tmp_path, "rank", {"1": 5}, "max_batch_size: ")
    (folder / "configs").mkdir()
    assert source(tmp_path, config_name="t4").read().models[0].config_error is not None
    (folder / "configs" / "t4.pbtxt").write_text("max_batch_size: 4")
    assert source(tmp_path, config_name="t4").read().models[0].config_error is None


def test_configurations_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path, "a", {})
    (tmp_path / "a" / "config.pbtxt").write_bytes(b'name: "\xff"')
    model(tmp_path, "b", {})
    (tmp_path / "b" / "config.pbtxt").mkdir()
    model(tmp_path, "c", {}, "x" * 100)
    model(tmp_path, "d", {}, 'unheard_of: 3 backend: "python"')
    os.symlink("config.pbtxt", model(tmp_path, "e", {}) / "config.pbtxt")
    monkeypatch.setattr(repository, "MAX_CONFIG", 60)
    errors = {name: m.config_error for name, m in by_name(source(tmp_path).read()).items()}
    assert errors["a"] == "it is not UTF-8 at byte 7"
    assert errors["b"] == "it is not a regular file"
    assert errors["c"] == "it is larger than 0 MiB"
    assert "unheard_of" in str(errors["d"])
    assert "cannot be read" in str(errors["e"])
    assert by_name(source(tmp_path).read())["e"].config_mtime_wall is None


def test_a_folder_with_too_many_files_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model(tmp_path, "rank", {"1": 5})
    for n in range(5):
        (folder / "1" / str(n)).write_text("x")
    monkeypatch.setattr(repository, "MAX_FILES", 3)
    (version,) = source(tmp_path).read().models[0].versions
    assert (version.size, version.usable) == (None, True)


def test_a_dangling_link_hides_the_size_only(tmp_path: Path) -> None:
    folder = model(tmp_path, "rank", {"1": 5})
    os.symlink("/nowhere", folder / "1" / "link")
    (version,) = source(tmp_path).read().models[0].versions
    assert (version.size, version.usable) == (None, True)


def test_names_are_literal(tmp_path: Path) -> None:
    model(tmp_path, "[x]\x1b[31m", {"1": 1})
    assert source(tmp_path).read().models[0].name == r"[x]\x1b[31m"


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        source(tmp_path / "none").read()
    assert caught.value.kind == "unavailable"
    with pytest.raises(SourceError, match="not known"):
        RepositorySource(list).read()


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path, "rank", {"1": 5})
    real = os.scandir

    def forbidden(path: str) -> Any:
        if str(path).endswith(("rank", "closed")):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    (rank,) = source(tmp_path).read().models
    assert rank.config_error == f"{tmp_path}/rank may not be read"
    with pytest.raises(SourceError) as caught:
        source(tmp_path / "closed").read()
    assert caught.value.kind == "permission"


def test_several_repositories_and_one_that_is_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        model(tmp_path / name, f"m{name}", {"1": 1})
    where = [Place(str(tmp_path / "a")), Place(str(tmp_path / "none")), Place(str(tmp_path / "b"))]
    found = RepositorySource(lambda: where).read()
    assert [m.name for m in found.models] == ["ma", "mb"]
    assert found.path == str(tmp_path / "a")


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    reader = source(tmp_path)
    for n in range(110):
        folder = model(tmp_path, f"m{n}", {"1": 1}, "max_batch_size: 1")
        reader.read()
        (folder / "config.pbtxt").unlink()
        (folder / "1" / "model.plan").unlink()
        (folder / "1").rmdir()
        folder.rmdir()
    reader.read()
    assert len(reader._files) <= 101
    reader.open()
    reader.close()


# --------------------------------------------------------------------------------------------------------- command line

MOUNTS = (Mount("/srv", "/", False), Mount("/srv/models", "/models", True), Mount("", "/volume", False, "volume"))


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        (["tritonserver", "--model-repository=/models"], ["/srv/models"]),
        (["tritonserver", "--model-repository", "/models/team"], ["/srv/models/team"]),
        (["--model-store=/models", "--model-repository=/other"], ["/srv/models", "/srv/other"]),
        (["sh", "-c", "tritonserver --model-repository=/models --exit-on-error=false"], ["/srv/models"]),
        (["--model-repository=s3://bucket/x", "--model-repository=/models"], ["/srv/models"]),
    ],
)
def test_places_of_a_command(command: list[str], paths: list[str]) -> None:
    assert [place.path for place in places(command, MOUNTS)] == paths


def test_places_know_the_configuration_name() -> None:
    (place,) = places(["--model-repository=/models", "--model-config-name", "t4"], MOUNTS)
    assert (place.in_container, place.config_name) == ("/models", "t4")


@pytest.mark.parametrize(
    ("command", "mounts", "reason"),
    [
        (["tritonserver"], MOUNTS, "no --model-repository"),
        (["--model-repository"], MOUNTS, "no --model-repository"),
        (["--model-repository=gs://b/x"], MOUNTS, "object store"),
        (["--model-repository=/models"], (), "in no mount"),
    ],
)
def test_why_there_is_no_place(command: list[str], mounts: tuple[Mount, ...], reason: str) -> None:
    with pytest.raises(SourceError, match=reason) as caught:
        places(command, mounts)
    assert caught.value.kind == "unavailable"


@given(
    st.lists(st.text(max_size=8) | st.just("--model-repository=/models"), max_size=5),
    st.lists(st.builds(Mount, st.text(max_size=5), st.text(max_size=5), st.booleans()), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_any_command_has_places_or_a_reason(command: list[str], mounts: list[Mount]) -> None:
    found: object = None
    try:
        found = places(command, mounts)
    except SourceError as error:
        found = error.message
    assert found
