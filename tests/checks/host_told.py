"""Facts for one check of the host: what a test does not give is absent, not installed or not asked, and what the check
does not declare among its needs cannot be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from msgspec import structs

from console.checks.check import Answer, Check
from console.checks.run import judged
from console.core.facts import AnswerFact, CommandFact, Facts, FileFact, SpaceFact
from console.core.finding import Finding
from tests.checks.told import ABSENT, told

GIB = 1 << 30
ONE_GPU = {"gpu": ("0000:3b:00.0",)}
NO_GPU: dict[str, tuple[str, ...]] = {"gpu": ()}
PODMAN = {"/usr/bin/podman": FileFact("file", mode=0o755)}
NO_PODMAN = AnswerFact(why="/run/podman/podman.sock: no such file")
GARBAGE = ("", "\x00\xff\xfe\x1b[31m", "no\n" * 500, "x" * 100_000, "-1", "9" * 5000, "[[[", "=:=\n::\n")


def check_of(judge: Callable[[Facts], Answer]) -> Check:
    """The check that a function is."""
    found: Check = judge.__check__  # type: ignore[attr-defined]
    return found


def facts_for(
    judge: Callable[[Facts], Answer],
    files: Mapping[str, str | FileFact] | None = None,
    commands: Mapping[str, str | CommandFact] | None = None,
    answers: Mapping[str, Any] | None = None,
    spaces: Mapping[str, SpaceFact] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
    slow: bool = False,
) -> Facts:
    """Facts that hold what the check needs, and nothing else."""
    needs = [one for need in check_of(judge).needs for one in _expanded(need, variables or {})]
    paths = [need.removeprefix("stat ") for need in needs if need.startswith(("/", "stat "))]
    for path in files or {}:
        assert any(fnmatchcase(path, one) and path.count("/") == one.count("/") for one in paths), path
    for name in (
        *(answers or {}),
        *(f"$ {words}" for words in commands or {}),
        *(f"space {one}" for one in spaces or {}),
    ):
        assert name in needs, name
    made = told(
        {**{path: ABSENT for path in paths if "*" not in path}, **(files or {})},
        {**{need[2:]: CommandFact(why="not installed") for need in needs if need.startswith("$ ")}, **(commands or {})},
        {**{need: AnswerFact(why="not asked") for need in needs if need.startswith("@")}, **(answers or {})},
        {**{need[6:]: SpaceFact(why="not asked") for need in needs if need.startswith("space ")}, **(spaces or {})},
        variables,
    )
    return structs.replace(made, slow=slow)


def _expanded(need: str, variables: Mapping[str, tuple[str, ...]]) -> list[str]:
    names = [part.partition("}")[0] for part in need.split("{")[1:]]
    found = []
    for values in product(*(variables.get(name, ()) for name in names)):
        text = need
        for name, value in zip(names, values, strict=True):
            text = text.replace(f"{{{name}}}", value)
        found.append(text)
    return found


def said(judge: Callable[[Facts], Answer], facts: Facts) -> Finding:
    """What the runner makes of it; a fault of the check itself fails the test."""
    finding = judged(check_of(judge), facts)
    assert "a fault of its own" not in finding.text, finding.text
    assert not (finding.sign == "unknown" and "not known" in finding.text), finding.text
    return finding


def units(**states: str) -> dict[str, Any]:
    """`@units` with these services' states."""
    return {f"{name}.service": {"LoadState": "loaded", "ActiveState": state} for name, state in states.items()}


def container(status: str = "running", **host: Any) -> dict[str, Any]:
    """An inspected Triton container."""
    return {
        "Id": "a" * 64,
        "Name": "triton",
        "Path": "tritonserver",
        "Args": ["--model-repository=/models"],
        "State": {"Status": status},
        "Config": {"User": "", "Labels": {}},
        "HostConfig": {
            "NetworkMode": "bridge",
            "PortBindings": {f"{port}/tcp": [{"HostIp": "", "HostPort": str(port)}] for port in (8000, 8001, 8002)},
            **host,
        },
        "NetworkSettings": {"Ports": {}},
    }
