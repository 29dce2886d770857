"""Healthy boxes: nothing fails, what is warned of is true, and little is unknown to root."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from console.checks import run
from console.config import Settings
from console.core.finding import Report
from console.sources.facts import collect
from console.sources.facts_host import recorded
from tests.checks import tree as trees
from tests.checks.tree import judge, look, names, tree, untold

MOST_WARNINGS = 5
MOST_UNKNOWN = 10

TRUE: Mapping[str, Mapping[str, str]] = {
    "el8_rootful": {
        "D09": "RHEL 8 keeps logs in k8s-file, and nobody set log_size_max",
        "E06": "the unit of host.md 5.4 publishes gRPC and metrics on all addresses, and Triton asks for no login",
    },
    "el8_rootless": {
        "D03": "RHEL 8 boots cgroup v1: a rootless container has no figures and its limits are left out",
        "D09": "RHEL 8 keeps logs in k8s-file, and nobody set log_size_max",
    },
    "rocky88": {
        "B01": "Podman 4.4.1 reads CDI up to 0.5.0 only",
        "D09": "el8 keeps logs in k8s-file, and nobody set log_size_max",
    },
    "el9_quadlet": {},
    "debian12": {"B01": "Podman 4.3.1 reads CDI up to 0.5.0 only"},
    "ubuntu2204": {"B01": "Podman 4.6.2 reads CDI up to 0.5.0 only"},
    "laptop": {},
}
"""Box -> check -> why its warning is true."""


@cache
def report(name: str) -> Report:
    return judge(tree(name))


def test_the_boxes_that_must_be_there() -> None:
    assert set(names()) == set(TRUE)


@pytest.mark.parametrize("name", names())
class TestHealthy:
    def test_nothing_fails(self, name: str) -> None:
        assert not [f"{one.id}: {one.text}" for one in report(name).findings if one.sign == "fail"]

    def test_each_warning_is_true(self, name: str) -> None:
        told = {one.id: one.text for one in report(name).findings if one.sign == "warn"}
        assert told.keys() == TRUE[name].keys(), told
        assert len(told) <= MOST_WARNINGS

    def test_little_is_unknown(self, name: str) -> None:
        blind = [f"{one.id}: {one.text}" for one in report(name).findings if one.sign == "unknown"]
        assert len(blind) <= MOST_UNKNOWN, "\n".join(blind)

    def test_no_check_is_at_fault(self, name: str) -> None:
        assert not [one.id for one in report(name).findings if "fault of its own" in one.text]

    def test_causes_are_no_more_than_the_warnings(self, name: str) -> None:
        assert {one.id for one in report(name).causes} <= TRUE[name].keys()

    def test_all_that_is_asked_for_is_told(self, name: str) -> None:
        assert untold(tree(name)) == []

    def test_every_part_names_what_it_is_shaped_on(self, name: str) -> None:
        assert all(len(source) > 20 for source in tree(name).sources.values())
        assert len(tree(name).sources) > 100


@pytest.mark.parametrize("name", ["debian12", "el8_rootless", "laptop"])
def test_a_written_folder_says_the_same(name: str, tmp_path: Path) -> None:
    """`--root FOLDER` reads what the other tests hand over without a folder."""
    box = tree(name)
    box.save(tmp_path)
    found = collect(trees.checks_needs(), recorded(str(tmp_path), Settings()), deadline=60.0)
    wanted = look(box)
    assert {path: fact for path, fact in found.files.items() if wanted.files[path] != fact} == {}
    assert found.commands == wanted.commands
    assert found.answers == wanted.answers
    assert found.spaces == wanted.spaces
    assert found.variables == wanted.variables


def test_a_laptop_is_left_alone() -> None:
    """Nothing of NVIDIA, Podman or Triton is judged where there is none of them."""
    kept = {one.group for one in report("laptop").findings if one.sign in ("ok", "warn", "fail")}
    assert not kept & {"cdi", "selinux", "podman", "container", "gpu", "models"}


def test_every_check_of_a_group_is_asked() -> None:
    assert {one.id for one in report("el8_rootful").findings} == {one.id for one in run.all_checks()[0]}
