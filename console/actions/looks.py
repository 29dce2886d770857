"""Looks at the box that a screen asks for, made by the helper process of clients/aside.py: all of it is plain data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.actions.box import Box, BoxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.actions.batching_look import Current
    from console.core.finding import Report
    from console.core.model import Snapshot
    from console.core.plan import Plan


def plan(spec: BoxSpec, state: Path, snapshot: Snapshot, action: str, target: str, values: Mapping[str, str]) -> Plan:
    """See runner.prepare."""
    from console.actions import runner

    box = Box(spec, state, snapshot=snapshot)
    try:
        return runner.prepare(box, action, target, values)
    finally:
        box.close()


def batching(spec: BoxSpec, state: Path, snapshot: Snapshot, model: str) -> Current:
    """See batching_look.current."""
    from console.actions import batching_look

    box = Box(spec, state, snapshot=snapshot)
    try:
        return batching_look.current(box, model)
    finally:
        box.close()


def checks(spec: BoxSpec, state: Path) -> Report:
    """The whole checklist over this box now."""
    from console.checks import run

    box = Box(spec, state)
    try:
        return run.report(box.facts(run.needs(run.all_checks()[0])))
    finally:
        box.close()
