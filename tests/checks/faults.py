"""Faults to break healthy boxes with, one at a time and by pairs: each says which check is to be the verdict on top.

    @fault("D05", "el8_rootless")
    def linger_missing(box: Tree) -> None: ...

`on` names recorded boxes that it can be done to; the first is the one that a single fault is shown on. `also` are
checks that say the same thing as well, so that any of them may stand on top. Pairs are drawn by a fixed seed among
faults that share a box; one that takes away the ground of another (`needs`, `takes`) is not paired with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from tests.checks.tree import Tree, tree

MODULES = ("driver", "cdi", "selinux", "podman", "container", "host", "gpu", "models")
SEED = 20261130


@dataclass(frozen=True)
class Fault:
    """One thing that can be wrong with a box."""

    name: str
    id: str
    """The check that is the verdict."""
    on: tuple[str, ...]
    change: Callable[[Tree], None]
    also: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    """What it takes away: container, driver, podman, unit, server."""
    needs: frozenset[str] = frozenset()
    """What must be there for it to be done, or to be seen."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Checks that may stand on top."""
        return (self.id, *self.also)

    def broken(self, box: Tree) -> Tree:
        """A broken copy."""
        found = box.copy()
        self.change(found)
        return found


_found: list[Fault] = []


def fault(
    id_: str, *on: str, also: tuple[str, ...] = (), takes: str = "", needs: str = ""
) -> Callable[[Callable[[Tree], None]], Callable[[Tree], None]]:
    """Register a fault; `takes` and `needs` are words."""

    def mark(change: Callable[[Tree], None]) -> Callable[[Tree], None]:
        name = change.__name__.replace("_", "-")
        _found.append(Fault(name, id_, on, change, also, frozenset(takes.split()), frozenset(needs.split())))
        return change

    return mark


def faults() -> tuple[Fault, ...]:
    """All of them."""
    for module in MODULES:
        import_module(f"tests.checks.faults_{module}")
    return tuple(_found)


def pairs(count: int) -> Iterator[tuple[str, Fault, Fault]]:
    """(box, first, second): different ones that go together, drawn by SEED."""
    found = faults()
    draw = random.Random(SEED)
    told: set[tuple[str, str]] = set()
    while len(told) < 2 * count:
        one, other = draw.sample(found, 2)
        boxes = [box for box in one.on if box in other.on]
        if not boxes or (one.name, other.name) in told or not go_together(one, other):
            continue
        told |= {(one.name, other.name), (other.name, one.name)}
        yield draw.choice(boxes), one, other


def go_together(one: Fault, other: Fault) -> bool:
    """Whether both can be wrong with one box, and be seen."""
    return not (one.takes & (other.needs | other.takes) or other.takes & one.needs or set(one.ids) & set(other.ids))


def both(box: str, one: Fault, other: Fault) -> Tree:
    """A box with two faults: what takes something away comes last, since the other may want to change it."""
    first, second = sorted((one, other), key=lambda each: len(each.takes))
    return second.broken(first.broken(tree(box)))
