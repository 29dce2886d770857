"""Facts for one check of the host: what a test does not give is absent, not installed or not asked, and what the check
does not declare among its needs cannot be given."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import structs

from console.core.facts import AnswerFact, CommandFact, Facts, FileFact, SpaceFact
from console.core.finding import Finding
from tests.checks import needed
from tests.checks.told import told

GIB = 1 << 30
ONE_GPU = {"gpu": ("0000:3b:00.0",)}
NO_GPU: dict[str, tuple[str, ...]] = {"gpu": ()}
PODMAN = {"/usr/bin/podman": FileFact("file", mode=0o755)}
NO_PODMAN = AnswerFact(why="/run/podman/podman.sock: no such file")
GARBAGE = ("", "\x00\xff\xfe\x1b[31m", "no\n" * 500, "x" * 100_000, "-1", "9" * 5000, "[[[", "=:=\n::\n")


def facts_for(
    judge: needed.Judge,
    files: Mapping[str, str | FileFact] | None = None,
    commands: Mapping[str, str | CommandFact] | None = None,
    answers: Mapping[str, Any] | None = None,
    spaces: Mapping[str, SpaceFact] | None = None,
    variables: Mapping[str, tuple[str, ...]] | None = None,
    slow: bool = False,
) -> Facts:
    """These facts; the test fails where one of them is not among what the check needs."""
    needs = needed.filled(needed.check_of(judge).needs, variables or {})
    paths = [need.removeprefix("stat ") for need in needs if need.startswith(("/", "stat "))]
    for path in files or {}:
        assert any(fnmatchcase(path, one) and path.count("/") == one.count("/") for one in paths), path
    for name in (
        *(answers or {}),
        *(f"$ {words}" for words in commands or {}),
        *(f"space {one}" for one in spaces or {}),
    ):
        assert name in needs, name
    return structs.replace(told(files, commands, answers, spaces, variables), slow=slow)


def said(judge: needed.Judge, facts: Facts) -> Finding:
    """What the runner makes of it; a fault of the check itself fails the test."""
    finding = needed.row(needed.check_of(judge), facts)
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
