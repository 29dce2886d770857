"""`gpuconsole explain`: what a check looks at, why it matters, what it says here; what a pasted error text means.

Exit codes: 0 told, 3 a text of which nothing is known, 64 a check that there is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from console.checks.check import Check
from console.checks.errors import Diagnosis, decided, diagnose
from console.checks.run import all_checks, judged
from console.core.encode import to_json
from console.core.facts import ANSWERS, VARIABLES, Facts
from console.core.finding import GROUPS, Finding, Fix
from console.core.plan import WrongInput
from console.core.sign import ASCII_SIGNS, SIGNS, Sign
from console.core.text import decode, one_line

Collect = Callable[..., Facts]
"""Facts for a sequence of checks, `slow` where one wants samples: of this box, a recorded root or a file."""
NOTHING_KNOWN = 3
MOST_TEXT = 64 * 1024 * 1024
"""Bytes of standard input."""
SCHEMA = 1
_CLASSES = {
    "B": "takes effect now, can be taken back; gpuconsole applies it when told to",
    "P": "lasts; gpuconsole applies it with a backup when told to",
    "R": "by hand, with a reboot",
    "S": "by hand",
}


# ------------------------------------------------------------------------------------------------------------ one check


def explain_check(one: Check, collect: Collect, *, as_json: bool = False, ascii_only: bool = False) -> int:
    """Print a check and what it says of the box."""
    facts = collect([one], slow=one.slow)
    finding = judged(one, facts)
    if as_json:
        _write_json({"schema": SCHEMA, "check": _plain(one), "finding": finding})
    else:
        _write(_of_check(one, facts, finding, ascii_only))
    return 0


def _plain(one: Check) -> dict[str, Any]:
    looks = [{"need": need, "words": need_words(need)} for need in one.needs]
    names = ("id", "slug", "title", "group", "why", "source", "slow")
    return {name: getattr(one, name) for name in names} | {"looks_at": looks}


def _of_check(one: Check, facts: Facts, finding: Finding, ascii_only: bool) -> Iterator[str]:
    yield f"{one.id}  {one.title}   ({one.slug}, {GROUPS[one.group]})"
    yield ""
    yield from _block("why", [one.why])
    yield from _block("looks at", [need_words(need, facts) for need in one.needs])
    if one.slow:
        yield from _block("", ["sampled over some seconds"])
    yield from _block("source", [one.source])
    yield ""
    yield from _block("it says", [f"{_sign(finding.sign, ascii_only)} {finding.text}"])
    yield from _block("", [f"{line.where}: {line.text}" for line in finding.evidence])
    if finding.settle:
        yield from _block("to settle", [finding.settle])
    if finding.fix is not None:
        yield from _of_fix(finding.fix)


def _of_fix(fix: Fix) -> Iterator[str]:
    yield ""
    yield from _block("fix", [f"class {fix.kind}: {_CLASSES[fix.kind]}"])
    yield from _block("", list(fix.commands))
    yield from _block("effect", [fix.effect, "wants a reboot" if fix.reboot else ""])
    yield from _block("undo", [fix.undo])
    if fix.again:
        yield from _block("then check", [" ".join(fix.again)])


def _block(label: str, lines: Sequence[str]) -> Iterator[str]:
    parts = [one_line(part) for line in lines for part in line.splitlines()]
    for number, line in enumerate(part for part in parts if part):
        yield f"  {label if not number else '':<10}  {line}"


def _sign(sign: Sign, ascii_only: bool) -> str:
    return ASCII_SIGNS[sign] if ascii_only else SIGNS[sign]


_VARIABLE = re.compile(r"\{(" + "|".join(VARIABLES) + r")\}")


def need_words(need: str, facts: Facts | None = None) -> str:
    """A need as people read it, with the values that its variables have on the box."""
    if need.startswith("@"):
        return f"{need[1:]}: {ANSWERS.get(need, '')}".rstrip(": ")
    words = _VARIABLE.sub(lambda match: _value(match[1], facts), need)
    kind, _, rest = words.partition(" ")
    if kind == "$":
        return f"what `{rest}` prints"
    if kind == "stat":
        return f"{rest} (what it is, mode, owner, label)"
    if kind == "find":
        folder, _, name = rest.partition(" ")
        return f"files called {name} below {folder}"
    if kind == "space":
        return f"room of the file system that holds {rest}"
    return words


def _value(variable: str, facts: Facts | None) -> str:
    values = facts.variables.get(variable, ()) if facts is not None else ()
    if not values:
        return f"<{VARIABLES[variable].partition(',')[0]}>"
    return values[0] if len(values) == 1 else f"{{{','.join(values[:3])}{',...' if len(values) > 3 else ''}}}"


# ---------------------------------------------------------------------------------------------------------- error texts


def explain_text(text: str, collect: Collect, *, as_json: bool = False, ascii_only: bool = False) -> int:
    """Print what an error text or a log means, and which checks of this box say so; NOTHING_KNOWN where nothing is."""
    found = diagnose(text)
    findings = _findings(found, collect)
    told = [decided(one, findings) for one in found]
    if as_json:
        _write_json({"schema": SCHEMA, "diagnoses": told, "findings": findings})
    elif not told:
        _write(["nothing in this text is known here; `gpuconsole check` looks at the box itself"])
    else:
        _write(_of_text(told, findings, ascii_only))
    return 0 if told else NOTHING_KNOWN


def _findings(found: Sequence[Diagnosis], collect: Collect) -> list[Finding]:
    """What the checks that the text means say on this box."""
    wanted = {check for one in found for check in one.checks}
    checks = [one for one in all_checks()[0] if one.id in wanted]
    if not checks:
        return []
    facts = collect(checks, slow=False)
    return [judged(one, facts) for one in checks]


def _of_text(told: Sequence[Diagnosis], findings: Sequence[Finding], ascii_only: bool) -> Iterator[str]:
    known = {one.id: one for one in findings}
    for number, one in enumerate(told):
        if number:
            yield ""
        many = f"   ({one.count} lines)" if one.count > 1 else ""
        yield f"{_sign(one.sign, ascii_only)} {one.title}{many}"
        yield from _block("line", [f"{line.where.removeprefix('line ')}: {line.text}" for line in one.evidence[:1]])
        yield from _block(
            "last line", [f"{line.where.removeprefix('line ')}: {line.text}" for line in one.evidence[1:]]
        )
        yield from _block("why", [one.why])
        rows = _applying([known[check] for check in one.checks if check in known])
        yield from _block(
            "this box", [f"{row.id} {_sign(row.sign, ascii_only)} {row.text or row.title}" for row in rows]
        )
        first = known.get(one.decided)
        if first is not None and first.fix is not None:
            yield from _of_fix(first.fix)
        else:
            yield from _block("do", [one.do])


def _applying(rows: Sequence[Finding]) -> Sequence[Finding]:
    """Without checks that do not apply here; one of them where all do not."""
    return [row for row in rows if row.sign != "none"] or rows[:1]


def read_text(stream: BinaryIO) -> str:
    """A message or log from standard input, whatever its bytes; WrongInput for more than MOST_TEXT."""
    data = stream.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise WrongInput(f"more than {MOST_TEXT >> 20} MiB; give the last part, such as `tail -n 100000 FILE`")
    return decode(data)


# --------------------------------------------------------------------------------------------------------------- output


def _write(lines: Sequence[str] | Iterator[str]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "replace").decode(encoding))


def _write_json(content: Any) -> None:
    sys.stdout.buffer.write(to_json(content) + b"\n")
    sys.stdout.flush()
