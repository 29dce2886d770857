"""Runs the checks over facts: one Finding each, whatever a check does; then the verdicts."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from functools import cache

from console.checks.check import Answer, Check, checks_of
from console.core.facts import Evidence, Facts, NotNeededError, Unknowable
from console.core.finding import Finding, Report
from console.core.plan import WrongInput
from console.core.registry import ImportFailure, discover
from console.core.text import one_line

log = logging.getLogger(__name__)
LONGEST = 300
"""Characters of a finding's sentence."""


@cache
def all_checks() -> tuple[tuple[Check, ...], tuple[ImportFailure, ...]]:
    """Every check by file, and the files that could not be imported."""
    found = discover("console.checks")
    return checks_of(found.modules), found.failures


def named(word: str) -> Check:
    """The check of an id or a slug, in upper or lower case; WrongInput with the nearest ones for any other word."""
    by_name = {name.lower(): one for one in all_checks()[0] for name in (one.id, one.slug)}
    one = by_name.get(word.strip().lower())
    if one is not None:
        return one
    near = list(dict.fromkeys(by_name[name] for name in difflib.get_close_matches(word.lower(), by_name, 6, 0.5)))
    like = ", ".join(f"{one.id} {one.slug}" for one in near[:4])
    hint = f"like it: {like}" if like else "`gpuconsole check --all` lists all ids"
    hint += "; an error text goes with `gpuconsole explain --text`" if " " in word.strip() else ""
    raise WrongInput(f"there is no check {one_line(word, 60)!r}; {hint}")


def needs(checks: Sequence[Check]) -> tuple[str, ...]:
    """What these checks look at, each once."""
    return tuple(dict.fromkeys(need for one in checks for need in one.needs))


def judged(one: Check, facts: Facts) -> Finding:
    """What one check says; unknown where a fact is missing or the check itself is at fault."""
    try:
        answer = one.judge(facts)
    except Unknowable as missing:
        answer = Answer("unknown", missing.why, settle=missing.settle)
    except NotNeededError as error:
        words = f"these facts do not tell of {one_line(str(error.args[0]), 120)}: collect them anew"
        answer = Answer("unknown", f"{words} (collected for this check, it has a fault of its own)")
    except Exception as error:  # a box can hold anything; one check at fault is a row, not the end of all
        log.exception("check %s", one.id)
        words = one_line(f"{type(error).__name__}: {error}", 120)
        answer = Answer("unknown", f"this check has a fault of its own ({words}): please report it")
    text = one_line(answer.text, LONGEST)
    evidence = tuple(Evidence(line.where, one_line(line.text, LONGEST)) for line in answer.evidence)
    return Finding(
        one.id,
        one.title,
        one.group,
        answer.sign,
        text,
        evidence,
        one.why,
        answer.fix,
        one.source,
        answer.settle,
        answer.data,
    )


def report(facts: Facts, checks: Sequence[Check] | None = None) -> Report:
    """All findings, those of files that could not be imported too, and the causes that link them."""
    from console.checks.verdict import causes

    failures: tuple[ImportFailure, ...] = ()
    if checks is None:
        checks, failures = all_checks()
    findings = [judged(one, facts) for one in checks]
    findings += [
        Finding(failure.module.rsplit(".", 1)[-1], "a file of checks", "driver", "unknown", failure.message)
        for failure in failures
    ]
    return Report(facts.wall, facts.seconds, facts.host, tuple(findings), causes(facts, findings))
