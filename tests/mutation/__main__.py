"""`scripts/mutation`: see there. Works on a copy of the tree; prints a table and every survivor."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tests.mutation.targets import OWN_TESTS, PER_MODULE
from tests.mutation.worker import Verdicts

ROOT = Path(__file__).resolve().parents[2]
WANTED = 80.0
"""Percent of a group's mutants that the tests must notice."""


def main() -> int:
    """Run what is asked for; 0 where every group reaches WANTED."""
    parser = argparse.ArgumentParser(prog="scripts/mutation", description="Do the tests notice wrong code?")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="groups (parsers, rates, rules) or modules; all if none"
    )
    parser.add_argument(
        "--each", type=int, default=40, help="mutants drawn per module; 0 for all (default %(default)s)"
    )
    parser.add_argument("--seed", default="1", help="of the draw (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="modules tried at a time (default %(default)s)")
    options = parser.parse_args()
    groups = chosen(options.names)
    if not any(groups.values()):
        parser.error(f"no group or module named {' '.join(options.names)}")
    with tempfile.TemporaryDirectory(prefix="gpuconsole-mutation-") as folder:
        copy = Path(folder, "tree")
        copy_tree(copy)
        with ThreadPoolExecutor(options.jobs) as pool:
            results = {
                group: list(pool.map(lambda module: run(copy, module, options.each, options.seed), modules))
                for group, modules in groups.items()
            }
    return show(results)


def chosen(names: list[str]) -> dict[str, list[str]]:
    """Modules by group: those named, by group, whole name or last part."""
    groups = {}
    for group, modules in PER_MODULE.items():
        groups[group] = [
            module
            for module in modules
            if not names or group in names or module in names or module.removeprefix("console.") in names
        ]
    return {group: modules for group, modules in groups.items() if modules}


def copy_tree(copy: Path) -> None:
    """The working tree as it is now, without what git ignores: edits made meanwhile cannot disturb the run."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def run(copy: Path, module: str, each: int, seed: str) -> Verdicts:
    """One module, in a process of its own that sees the copy alone."""
    more = next(modules[module] for modules in PER_MODULE.values() if module in modules)
    tests = sorted(str(path.relative_to(copy)) for path in copy.glob(OWN_TESTS.format(*module.split(".")[1:])))
    with tempfile.TemporaryDirectory(dir=copy.parent) as scratch:
        env = {**os.environ, "PYTHONPATH": str(copy), "TMPDIR": scratch, "HYPOTHESIS_STORAGE_DIRECTORY": scratch}
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutation.worker", module, str(each), seed, *tests, *more],
            cwd=copy,
            env=env,
            capture_output=True,
        )
    if done.returncode:
        return Verdicts(module, 0, 0, 0, (), 0.0, done.stderr.decode(errors="replace").strip()[-300:])
    result = msgspec.json.decode(done.stdout.splitlines()[-1], type=Verdicts)
    print(f"{module}: {len(result.survivors)} of {result.tried} survive ({result.seconds:.0f} s)", file=sys.stderr)
    return result


def line(name: str, possible: int, tried: int, survived: int, slow: int) -> str:
    """One row of the table."""
    share = f"{100 * (tried - survived) / tried:5.1f} %" if tried else "      –"
    return f"{name:<34}{possible:>9}{tried:>8}{tried - survived:>8}{survived:>10}{slow:>6}  {share}"


def show(results: dict[str, list[Verdicts]]) -> int:
    """The table, then every survivor; 1 where a group falls short or could not be tried."""
    print(f"{'module':<34}{'possible':>9}{'tried':>8}{'killed':>8}{'survived':>10}{'slow':>6}   killed")
    short = False
    for group, verdicts in results.items():
        for one in verdicts:
            error = f"  {one.error}" if one.error else ""
            print(line(one.module, one.possible, one.tried, len(one.survivors), one.slow) + error)
        tried = sum(one.tried for one in verdicts)
        survived = sum(len(one.survivors) for one in verdicts)
        print(
            line(
                f"= {group}", sum(one.possible for one in verdicts), tried, survived, sum(one.slow for one in verdicts)
            )
        )
        short |= any(one.error for one in verdicts) or 100 * (tried - survived) < WANTED * tried
    print()
    print("\n".join(survivors(results)) or "no survivors")
    return int(short)


def survivors(results: dict[str, list[Verdicts]]) -> Iterator[str]:
    """file:line and the change, of each mutant that no test noticed."""
    for verdicts in results.values():
        for one in verdicts:
            path = one.module.replace(".", "/") + ".py"
            for survivor in one.survivors:
                yield f"{path}:{survivor.line}: {survivor.before}  ->  {survivor.after}"


if __name__ == "__main__":
    sys.exit(main())
