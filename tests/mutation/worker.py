"""Makes and tries the mutants of one module, in a copy of the tree (its working directory), one forked child each.

    python -m tests.mutation.worker MODULE LIMIT SEED TEST...

LIMIT 0 tries all; else so many are drawn with SEED. Prints one JSON object (see `Verdicts`).
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

import msgspec
import pytest
from hypothesis import Phase, settings

from tests.mutation.mutators import sites

MEMORY = 4 << 30
"""Bytes of address space of a child: a mutant that never stops appending dies of it."""
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "-m", "not lab and not slow"]


class Survivor(msgspec.Struct, frozen=True):
    """A change that no test noticed."""

    line: int
    before: str
    after: str


class Verdicts(msgspec.Struct, frozen=True):
    """What became of a module's mutants. `possible` is how many there are; `tried` = killed + survivors."""

    module: str
    possible: int
    tried: int
    slow: int
    survivors: tuple[Survivor, ...]
    seconds: float
    error: str = ""


class _Changed(importlib.machinery.SourceFileLoader):
    """Gives changed code for a module; the file stays as it is."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module before anyone else does."""

    def __init__(self, loader: _Changed) -> None:
        self._loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        loader = self._loader
        return (
            importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)
            if fullname == loader.name
            else None
        )


class Trial:
    """The tests of one module, run in children."""

    def __init__(self, module: str, tests: Sequence[str]) -> None:
        self.module, self.tests = module, tests
        self.path = Path(*module.split(".")).with_suffix(".py")
        self.source = self.path.read_text(encoding="utf-8")
        self._parent = os.getppid()
        self.limit = 120.0
        self.slow = 0

    def baseline(self) -> tuple[bool, float]:
        """Whether the tests pass on the code as it is, and seconds; loads here what the tests loaded."""
        reading, writing = os.pipe()
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(reading)
            passed = self._pytest()
            with os.fdopen(writing, "w") as out:
                json.dump(
                    sorted(name for name in sys.modules if not name.startswith(("console", "tests", "conftest"))), out
                )
            os._exit(passed)
        os.close(writing)
        with os.fdopen(reading) as answer:
            loaded = answer.read()
        _, status = os.waitpid(child, 0)
        taken = time.monotonic() - started
        for name in json.loads(loaded or "[]"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        return status == 0, taken

    def killed(self, index: int) -> bool:
        """Whether the tests notice the change (or it loops for ever, which is noticed too)."""
        if os.getppid() != self._parent:  # it was killed, and nobody reads what comes of this
            sys.exit(1)
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            os._exit(self._mutated(index))
        until = time.monotonic() + self.limit
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status != 0
            time.sleep(0.005)
        self.slow += 1
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True

    def _mutated(self, index: int) -> int:
        tree = ast.parse(self.source)
        sites(tree)[index].apply()
        path = str(self.path.resolve())
        code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        sys.meta_path.insert(0, _Finder(_Changed(self.module, path, code)))
        return self._pytest()

    def _pytest(self) -> int:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        return int(pytest.main([*PYTEST, f"--basetemp={os.environ['TMPDIR']}/pytest", *self.tests]))


def tried(module: str, limit: int, seed: str, tests: Sequence[str]) -> Verdicts:
    """Every mutant drawn, tried in the order of the source."""
    trial = Trial(module, tests)
    found = sites(ast.parse(trial.source))
    drawn = list(range(len(found)))
    if limit and limit < len(found):
        drawn = sorted(random.Random(f"{seed} {module}").sample(drawn, limit))
    started = time.monotonic()
    passed, taken = trial.baseline()
    gc.freeze()  # so that children do not copy what they only look at
    if not passed:
        return Verdicts(module, len(found), 0, 0, (), 0.0, "its tests fail on the code as it is")
    trial.limit = 5 + 5 * taken
    survivors = [found[index] for index in drawn if not trial.killed(index)]
    kept = tuple(Survivor(one.line, *one.words) for one in survivors)
    return Verdicts(module, len(found), len(drawn), trial.slow, kept, time.monotonic() - started)


def main() -> None:
    """See the module's text."""
    module, limit, seed, *tests = sys.argv[1:]
    # The same examples for every mutant, so that the answer does not depend on luck; and no shrinking of what is found.
    settings.register_profile(
        "mutation",
        max_examples=50,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("mutation")
    print(msgspec.json.encode(tried(module, int(limit), seed, tests)).decode())


if __name__ == "__main__":
    main()
