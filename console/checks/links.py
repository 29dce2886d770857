"""Which finding explains which: the table links.toml, and the graph that it makes of one box's findings.

Two things link findings: the table, and error texts. A finding of a container that does not start carries the error;
errors.py knows which checks that text means, and those that are not fit are its causes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct, field

from console.checks.box import at
from console.checks.errors import Diagnosis, diagnose
from console.core.facts import Facts
from console.core.finding import Finding

WRONG = ("fail", "warn")
SPEAKING = ("E01", "E02", "E03", "E05", "E07", "K02")
"""Checks whose findings carry the words of an error: the start, the log, what nvidia-smi says in the container."""
_BY_UNIT = ("E01", "E02", "K02")
_NEWEST = 60
_STARTED = re.compile(r"(?:^|: )Started ")
_ONLY_FELT = ("E01", "E02", "E07", "K02")
"""What an error text can mean as well, and which is never its cause."""


FELT: Mapping[str, str] = {
    "E01": "the container cannot start",
    "E02": "the container starts again and again",
    "E03": "the container does not see the GPU",
    "E07": "the server does not serve",
    "K02": "the unit does not run",
    "A02": "the host cannot use the GPU",
    "A05": "the host cannot use the GPU",
    "G01": "the host cannot use the GPU",
    "G02": "the host does not see every GPU",
}
"""What is felt of a cause, the worst first: its consequence in the title."""


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of links.toml; the meaning of each key stands there."""

    explains: tuple[str, ...] = ()
    phrase: str = ""
    supports: Mapping[str, str] = field(default_factory=dict)
    blinds: tuple[str, ...] = ()
    mend: str = ""
    own: bool = False
    weight: int | None = None


class Tie(Struct, frozen=True):
    """One finding explains another. `sure` where something of this box says so; `words` is what says so."""

    cause: str
    effect: str
    sure: bool
    words: str = ""


class Graph(Struct, frozen=True):
    """All ties between what is not fit, and what the error texts of the box mean."""

    ties: Mapping[str, Mapping[str, Tie]]
    """By cause, then by effect."""
    spoken: Mapping[str, tuple[Diagnosis, ...]]
    """By the check that carries the text."""

    def after(self, id_: str) -> frozenset[str]:
        """All that follows from a finding, near and far."""
        seen: set[str] = set()
        left = [id_]
        while left:
            for effect in self.ties.get(left.pop(), {}):
                if effect not in seen:
                    seen.add(effect)
                    left.append(effect)
        return frozenset(seen - {id_})

    def before(self, id_: str) -> frozenset[str]:
        """All that a finding follows from."""
        return frozenset(cause for cause in self.ties if cause != id_ and id_ in self.after(cause))


@cache
def rules() -> Mapping[str, Rule]:
    """The table."""
    data = tomllib.loads(files("console.checks").joinpath("links.toml").read_text("utf-8"))
    return {id_: msgspec.convert(table, Rule) for id_, table in data.items()}


def rule(id_: str) -> Rule:
    """That of one check; an empty one where the table names it not."""
    return rules().get(id_, Rule())


def graph(facts: Facts, findings: Sequence[Finding]) -> Graph:
    """The ties that hold on this box."""
    known = {one.id: one for one in findings}
    wrong = {id_: one for id_, one in known.items() if one.sign in WRONG}
    spoken = {
        id_: _principal(wrong[id_], diagnose(text, findings))
        for id_ in SPEAKING
        if (text := error_text(facts, wrong.get(id_)))
    }
    ties: dict[str, dict[str, Tie]] = {}
    for id_ in wrong:
        for tie in _of_table(id_, known, spoken):
            ties.setdefault(tie.cause, {}).setdefault(tie.effect, tie)
    for tie in _of_texts(spoken, wrong):
        ties.setdefault(tie.cause, {})[tie.effect] = tie
    return Graph(_decided(ties, wrong), spoken)


def _principal(finding: Finding, found: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Of a finding that names the one of several texts that gave it its sign, that one alone: a slow copy explains no
    engine that does not load."""
    marker = finding.data.get("marker")
    return tuple(one for one in found if one.rule == marker) or found


def error_text(facts: Facts, finding: Finding | None) -> str:
    """The words of the error that a finding stands for; "" where it has none."""
    if finding is None:
        return ""
    lines = [*(line.text for line in finding.evidence), finding.data.get("error", "")]
    if finding.id == "E01":
        inspect = facts.answers.get("@podman.inspect")
        error = at(inspect.value, "State", "Error") if inspect is not None else None
        lines += [error] if isinstance(error, str) else []
    if finding.id in _BY_UNIT:
        lines += _journal(facts)
    return "\n".join(dict.fromkeys(line for line in lines if line)) or finding.text


def _journal(facts: Facts) -> list[str]:
    """What the unit's newest try said: a container of `--rm` leaves its error nowhere else."""
    found: list[str] = []
    for words, one in facts.commands.items():
        if words.startswith("journalctl ") and " -u " in words:
            lines = one.out.splitlines()[-_NEWEST:]
            began = max((at for at, line in enumerate(lines) if _STARTED.search(line)), default=-1)
            found += lines[began + 1 :]
    return found


def _of_table(id_: str, known: Mapping[str, Finding], spoken: Mapping[str, tuple[Diagnosis, ...]]) -> list[Tie]:
    """Ties of one cause. They lead through what could not be told: a check between may be unknown or not apply."""
    found: list[Tie] = []
    weak = known[id_].sign == "warn"
    left, seen = [(id_, True)], {id_}
    while left:
        at, near = left.pop(0)
        for entry in rule(at).explains:
            effect, _, condition = entry.partition(":")
            finding = known.get(effect)
            if finding is None or effect in seen:
                continue
            if finding.sign in ("unknown", "none"):
                seen.add(effect)
                left.append((effect, False))
                continue
            if finding.sign not in WRONG:
                continue
            holds = _holds(condition, id_, finding, spoken.get(effect))
            if holds is not False:
                seen.add(effect)
                # a warning says that something may hurt: that it does, an error text or the finding has to say
                sure = holds is True and near and not (weak and finding.sign == "fail" and not condition)
                found.append(Tie(id_, effect, sure))
    return found


def _holds(condition: str, cause: str, effect: Finding, said: tuple[Diagnosis, ...] | None) -> bool | None:
    """None = it cannot be told."""
    if effect.data.get("stopped") and "=" not in condition:
        return False  # somebody stopped it: what is wrong elsewhere did not
    if not condition:
        return True
    if condition == "named":
        return cause in {check for one in said for check in one.checks} if said else None
    key, equals, value = condition.partition("=")
    have = effect.data.get(key)
    if not equals:
        return bool(have)
    return None if have is None else value in have


def _of_texts(spoken: Mapping[str, tuple[Diagnosis, ...]], wrong: Mapping[str, Finding]) -> list[Tie]:
    found: list[Tie] = []
    for effect, diagnoses in spoken.items():
        for one in diagnoses:
            causes = [check for check in one.checks if check in wrong and check not in (effect, *_ONLY_FELT)]
            found += [Tie(cause, effect, not number, one.title) for number, cause in enumerate(causes)]
    return found


def _decided(ties: Mapping[str, Mapping[str, Tie]], wrong: Mapping[str, Finding]) -> dict[str, dict[str, Tie]]:
    """Without guesses where something is sure: what an error text explains needs no other explanation, a fail is not
    explained by a warning where something that fails explains it, and a warning explains nothing by a guess."""
    told = {tie.effect for of_one in ties.values() for tie in of_one.values() if tie.sure and tie.words}
    failing = {
        tie.effect
        for of_one in ties.values()
        for tie in of_one.values()
        if tie.sure and wrong[tie.cause].sign == "fail"
    }
    kept: dict[str, dict[str, Tie]] = {}
    for cause, of_one in ties.items():
        for effect, tie in of_one.items():
            warns = wrong[cause].sign == "warn" and not tie.words
            weak = warns and wrong[effect].sign == "fail"
            if (tie.sure or (effect not in told and not warns)) and not (weak and effect in failing):
                kept.setdefault(cause, {})[effect] = tie
    return kept
