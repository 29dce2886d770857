"""Finds checks, advisors and panes by file: what stands in a package's folder is there, nothing else names it.

A file that fails to import is reported beside the good ones, so that one bad file is a row on the screen and not a
console that does not start.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from types import ModuleType

from msgspec import Struct

log = logging.getLogger(__name__)


class ImportFailure(Struct, frozen=True):
    """A module that could not be imported: its dotted name and why, in one line."""

    module: str
    message: str


class Found(Struct, frozen=True):
    """What a package holds, by module name."""

    modules: tuple[ModuleType, ...]
    failures: tuple[ImportFailure, ...]


def discover(package: str) -> Found:
    """Import every module that lies directly in `package`; names that begin with `_` are left out.

    Sub-packages are not entered. The package itself must be importable (ImportError otherwise).
    """
    parent = importlib.import_module(package)
    modules: list[ModuleType] = []
    failures: list[ImportFailure] = []
    names = (info.name for info in pkgutil.iter_modules(getattr(parent, "__path__", ())) if not info.ispkg)
    for name in sorted(names):
        if name.startswith("_"):
            continue
        module = f"{package}.{name}"
        try:
            modules.append(importlib.import_module(module))
        except Exception as error:  # a file can fail in any way while it is imported
            log.exception("import of %s", module)
            text = " ".join(str(error).split())
            failures.append(ImportFailure(module, f"{type(error).__name__}: {text}" if text else type(error).__name__))
    return Found(tuple(modules), tuple(failures))
