"""Which actions there are: every class with a NAME that derives from `Action` and stands in a file of these folders."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType

from msgspec import Struct

from console.actions.base import Action
from console.actions.values import nearest
from console.core.plan import WrongInput
from console.core.registry import ImportFailure, discover

PACKAGES = ["console.actions", "console.tuning"]
"""Where is looked."""


class Actions(Struct, frozen=True):
    """What was found, and each file or class that is no use with the reason."""

    by_name: Mapping[str, Action]
    failures: tuple[ImportFailure, ...] = ()

    def get(self, name: str) -> Action:
        """The action of this name; WrongInput with the nearest name where there is none."""
        found = self.by_name.get(name)
        if found is None:
            raise WrongInput(nearest(name, self.by_name, "action") + "; `gpuconsole do --list` has them all")
        return found


def find() -> Actions:
    """All actions, by name in the order of the alphabet."""
    found: dict[str, Action] = {}
    failures: list[ImportFailure] = []
    for package in PACKAGES:
        discovered = discover(package)
        failures.extend(discovered.failures)
        for module in discovered.modules:
            for kind in _classes(module):
                problem = _problem(kind, found)
                if problem:
                    failures.append(ImportFailure(module.__name__, problem))
                else:
                    found[kind.NAME] = kind()
    return Actions(dict(sorted(found.items())), tuple(failures))


def _classes(module: ModuleType) -> Iterator[type[Action]]:
    """Those that stand in this file (not those that it imports)."""
    for value in vars(module).values():
        is_action = isinstance(value, type) and issubclass(value, Action)
        if is_action and value.__module__ == module.__name__ and value.NAME:
            yield value


def _problem(kind: type[Action], found: Mapping[str, Action]) -> str:
    if inspect.isabstract(kind):
        return f"{kind.__name__} has no {', '.join(sorted(kind.__abstractmethods__))}"
    if kind.NAME in found:
        return f"{kind.NAME} is the name of {type(found[kind.NAME]).__name__} too"
    if not kind.help():
        return f"{kind.__name__} has no docstring"
    return ""
