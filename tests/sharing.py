"""Which tests may run side by side, as hooks of pytest and of pytest-xdist; tests/conftest.py makes them known.

- Tests of a file that needs the lab to itself (`lab_alone`) run one after another, in one worker.
- Tests with a Triton container of their own run beside all others, each by itself where its file shares none.
- Other files are worked on whole.

A test that has the lab to itself may raise it afresh, which ends every container on the lab's Podman. So these two
kinds are never run at the same time: scripts/test runs them as two parts.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE = "the lab alone"
PARTS = ("first", "own")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let scripts/test choose the part."""
    text = "first: all but the tests with a container of their own on the lab; own: these alone (default: all)"
    parser.addoption("--part", choices=PARTS, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part that was asked for; what takes longest begins first, so that no worker is left with it."""
    part = config.getoption("part")
    if part is not None:
        wanted = [item for item in items if _own(item) == (part == "own")]
        config.hook.pytest_deselected(items=[item for item in items if _own(item) != (part == "own")])
        items[:] = wanted
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out the tests as this file's head says."""
    config.option.loadscopereorder = False  # it would begin with the files of many tests, which are the quick ones
    return _Sharing(config, log)


class _Sharing(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        kind = _kind(self.config.rootpath / file)
        return {"alone": ALONE, "own": nodeid}.get(kind, file)


def _own(item: pytest.Item) -> bool:
    return item.get_closest_marker("lab") is not None and _kind(item.path) in ("own", "shared")


def _turn(item: pytest.Item) -> int:
    kind = _kind(item.path)
    if kind == "own":
        return 1 if item.get_closest_marker("slow") else 2
    return 0 if kind in ("alone", "shared") else 3


@functools.cache
def _kind(file: Path) -> str:
    """`alone`, `shared` (a container for all tests of the file), `own` (one for each test) or "" (no lab)."""
    text = file.read_text(encoding="utf-8")
    if "mark.lab" not in text:
        return ""
    if "lab_alone" in text or "lab.load(" in text:  # traffic on the lab's one server
        return "alone"
    return "shared" if 'scope="module"' in text else "own"
