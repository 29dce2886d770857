"""Facts for the checks: of this box, of a recorded one (`--root`), or as they were written to a file (`--facts`)."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from console.actions.box import BoxSpec
from console.checks.check import Check
from console.checks.run import all_checks, needs
from console.core import units
from console.core.duration import seconds
from console.core.encode import to_json
from console.core.facts import Facts
from console.core.finding import GROUPS
from console.core.plan import WrongInput
from console.core.text import ascii_text, literal, one_line
from console.sources import facts_host
from console.sources.facts import collect

LONGEST = 300.0
"""Seconds that `--within` takes at most."""
SHOWN = 60
"""Facts without a value that the summary names."""


def checks_of_group(group: str | None) -> tuple[Check, ...]:
    """All checks, or those of one group. WrongInput where there is no such group."""
    found = all_checks()[0]
    if group is None:
        return found
    if group not in GROUPS:
        raise WrongInput(f"there is no group {one_line(group, 40)!r}; there are {', '.join(GROUPS)}")
    return tuple(one for one in found if one.group == group)


def facts_for(
    spec: BoxSpec,
    checks: Sequence[Check],
    *,
    slow: bool = False,
    root: str = "",
    facts_file: str = "",
    within: str | None = None,
) -> Facts:
    """What these checks look at; `within` = a time, for a box too busy to answer in the usual one. WrongInput for a
    folder or a file that is no recorded box, and for what is no such time."""
    deadline = None if within is None else seconds(within, "--within")
    if deadline is not None and not 0.1 <= deadline <= LONGEST:
        raise WrongInput(f"--within must be from 100ms to {LONGEST / 60:g}m, not {one_line(str(within), 40)}")
    if root and facts_file:
        raise WrongInput("--root and --facts are two ways to tell of a box: give one of them")
    if facts_file:
        return read_facts(Path(facts_file))
    return collect(needs(checks), host_of(spec, root), slow, deadline)


def host_of(spec: BoxSpec, root: str = "") -> facts_host.Host:
    """Where facts come from: the folder `root` where one is named, else the box itself."""
    if root and os.path.abspath(root) != "/":
        return facts_host.recorded(os.path.abspath(root), spec.settings)
    return spec.facts_host()


def read_facts(path: Path) -> Facts:
    """Facts that `gpuconsole facts --json` wrote; `-` = standard input. WrongInput where it holds none."""
    if str(path) == "-":
        data = sys.stdin.buffer.read(facts_host.MAX_BOX)
    else:
        try:
            data = facts_host.bounded(path)
        except FileNotFoundError:
            raise WrongInput(f"there is no file {path}; --facts wants what `gpuconsole facts --json` wrote") from None
    try:
        found = msgspec.json.decode(data, type=Facts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongInput(f"{path} holds no facts of `gpuconsole facts --json`: {error}") from error
    if not (found.files or found.commands or found.answers or found.spaces):
        raise WrongInput(f"{path} holds no facts of `gpuconsole facts --json`")
    return found


# -------------------------------------------------------------------------------------------------------------- printed


def show_facts(facts: Facts, *, as_json: bool, ascii_only: bool = False, utc: bool = False) -> bytes:
    """What `gpuconsole facts` prints: the whole as one JSON object, or a summary with all that could not be had."""
    if as_json:
        return to_json(facts) + b"\n"
    text = "\n".join(literal(line) for line in _summary(facts, utc)) + "\n"
    return (ascii_text(text) if ascii_only else text).encode("utf-8", "replace")


def _summary(facts: Facts, utc: bool) -> Iterator[str]:
    when = f"{units.moment(facts.wall, utc=utc)} {units.zone(facts.wall, utc=utc)}"
    where = "" if facts.root == "/" else f"  recorded in {one_line(facts.root, 200)}"
    yield f"facts of {one_line(facts.host, 80) or '?'}  {when}  read in {facts.seconds:.2f} s{where}"
    missing = [*_missing(facts)]
    unknown = Counter(kind for kind, _, _ in missing)
    for kind, total in (
        ("files", len(facts.files)),
        ("commands", len(facts.commands)),
        ("answers", len(facts.answers)),
        ("spaces", len(facts.spaces)),
    ):
        absent = sum(not one.is_there for one in facts.files.values()) if kind == "files" else 0
        told = f"{absent} not there, " if absent else ""
        yield f"  {kind:<9} {total:>5}   {told}{unknown[kind]} could not be had"
    for name, values in sorted(facts.variables.items()):
        shown = ", ".join(values[:4]) + (f" and {len(values) - 4} more" if len(values) > 4 else "")
        yield f"  {name:<14} {one_line(shown, 300) or 'none'}"
    if missing:
        yield "could not be had:"
    for _, name, why in missing[:SHOWN]:
        yield f"  {one_line(name, 120)}: {one_line(why, 300)}"
    if len(missing) > SHOWN:
        yield f"  and {len(missing) - SHOWN} more: gpuconsole facts --json names all"


def _missing(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """(kind, name, why) of all that could not be had; what surely is not there could."""
    yield from (("answers", name, one.why) for name, one in sorted(facts.answers.items()) if one.why)
    yield from (("commands", f"$ {words}", one.why) for words, one in sorted(facts.commands.items()) if one.why)
    yield from (("spaces", f"space {path}", one.why) for path, one in sorted(facts.spaces.items()) if one.why)
    yield from (("files", path, one.why) for path, one in sorted(facts.files.items()) if one.why)
