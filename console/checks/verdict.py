"""Root causes of one box: what explains the rest, in words, with the signs that speak for it and the order of mending.

A cause is what is not fit and follows from nothing else that is not fit. What could not be told is never a cause; it
may follow from one. Ties come from links.py; this file weighs and words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from console.checks import container
from console.checks.errors import xid_title
from console.checks.links import FELT, WRONG, Graph, graph, rule
from console.core import kernel_faults
from console.core.facts import Facts, NotNeededError, Unknowable
from console.core.finding import Cause, Finding, MendingStep
from console.core.model import Sign
from console.core.text import one_line
from console.core.xid_incidents import incidents

_MENDING = (
    "gpu", "driver", "cdi", "selinux", "podman", "storage", "network", "time", "units", "container", "models", "tuning"
)  # fmt: skip
"""Groups in the order of mending: what stands on a thing is mended after it."""
_WEIGHTS: Mapping[str, int] = {
    "cdi": 60,
    "driver": 58,
    "selinux": 56,
    "podman": 54,
    "container": 52,
    "gpu": 50,
    "models": 48,
    "units": 46,
    "storage": 40,
    "network": 36,
    "time": 30,
    "tuning": 20,
}
"""Of warnings without consequences."""
IN_PASSING = 3
"""Settings of the container that are worth a step when it is made anew anyway."""
_BACK = ("E01", "E02", "E03")
"""Mended by starting the container again, which has steps of its own."""
_RESTARTS = ("always", "on-failure", "on-abnormal", "on-abort", "on-watchdog")


def causes(facts: Facts, findings: Sequence[Finding]) -> tuple[Cause, ...]:
    """The causes, weightiest first: what stops serving, then what fails, then warnings."""
    known = {one.id: one for one in findings}
    web = graph(facts, findings)
    roots = _roots(web, known)
    made = sorted((_cause(facts, known, web, one) for one in roots), key=lambda one: _weight(one, known))
    if not made:
        return ()
    order = tuple(_order(facts, known, web, [one.id for one in made]))
    rest = [structs.replace(one, order=tuple(_order(facts, known, web, [one.id]))) for one in made[1:]]
    return (structs.replace(made[0], order=order), *rest)


def _roots(web: Graph, known: Mapping[str, Finding]) -> list[str]:
    """What follows from nothing; of findings that follow from each other the one that is mended first."""
    wrong = [one.id for one in known.values() if one.sign in WRONG]
    roots: list[str] = []
    for id_ in wrong:
        before = web.before(id_)
        circle = before & web.after(id_)
        if before - circle:
            continue
        if not circle or id_ == min((*circle, id_), key=lambda one: _first_of_circle(one, web, known)):
            roots.append(id_)
    return roots


def _first_of_circle(id_: str, web: Graph, known: Mapping[str, Finding]) -> tuple[bool, int, int, str]:
    sure = sum(tie.sure for tie in web.ties.get(id_, {}).values())
    return known[id_].sign != "fail", -sure, _place(known[id_]), id_


def _place(finding: Finding) -> int:
    return _MENDING.index(finding.group) if finding.group in _MENDING else len(_MENDING)


def _weight(cause: Cause, known: Mapping[str, Finding]) -> tuple[int, int, int, str]:
    of_all = [cause.id, *cause.consequences]
    stops = any(id_ in known and _is_felt(known[id_]) for id_ in of_all)
    rank = 0 if stops else 1 if cause.sign == "fail" else 2
    given = rule(cause.id).weight
    weight = given if given is not None else _WEIGHTS.get(known[cause.id].group, 0)
    return rank, -len(cause.consequences), -weight, cause.id


# --------------------------------------------------------------------------------------------------------------- words


def _cause(facts: Facts, known: Mapping[str, Finding], web: Graph, id_: str) -> Cause:
    own = known[id_]
    after = web.after(id_)
    blind = _blind(facts, known, {id_, *after})
    wrong = sorted(after, key=lambda one: (_felt_rank(one), _place(known[one]), one))
    signs, speaking, told = _signs(known, web, id_, wrong)
    worst: Sign = "fail" if any(known[one].sign == "fail" for one in (id_, *after)) else "warn"
    return Cause(
        id_,
        _title(web, own, [known[one] for one in wrong]),
        _trust(own, web, speaking, told, bool(after)),
        worst,
        signs,
        (*wrong, *blind),
    )


def _felt_rank(id_: str) -> int:
    return list(FELT).index(id_) if id_ in FELT else len(FELT)


def _title(web: Graph, own: Finding, after: Sequence[Finding]) -> str:
    """`the container cannot start: its CDI spec is older than the driver (550.90.07 against 570.86.15)`."""
    felt = next((_felt(one) for one in after if _is_felt(one)), "")
    said = web.spoken.get(own.id)
    phrase = said[0].title if said else _phrase(own)
    if not felt and _is_felt(own):
        felt = _felt(own)
    return f"{felt}: {phrase}" if felt else phrase.replace("its ", "the ", 1) if phrase.startswith("its ") else phrase


def _is_felt(finding: Finding) -> bool:
    """A container that its unit should have made and that is not there is only a warning of E01."""
    return finding.id in FELT and (finding.sign == "fail" or (finding.id == "E01" and "unit" in finding.data))


def _felt(finding: Finding) -> str:
    if finding.id == "E01":
        if finding.data.get("oom") == "true":
            return "the container was killed"
        if finding.data.get("status") in ("exited", "stopped", "none") and not _never_began(finding):
            return "the container does not run"
    if finding.id == "E07" and finding.data.get("live") == "true":
        return "not every model is ready"
    return FELT[finding.id]


def _never_began(finding: Finding) -> bool:
    """125 is Podman's own error, 126 and 127 the runtime's: the program in the container was never begun."""
    return finding.data.get("exit") in ("125", "126", "127") or bool(finding.data.get("error"))


def _phrase(own: Finding) -> str:
    if own.id == "G13":
        faults = [fault for line in own.evidence if (fault := kernel_faults.parse(0.0, line.text)) is not None]
        if chain := incidents(faults):
            return xid_title(chain[-1])
    phrase = rule(own.id).phrase if own.sign == "fail" else ""
    values = {key: one_line(value, 80) for key, value in own.data.items() if value}
    try:
        made = phrase.format_map(values)
    except KeyError:
        made = ""
    names = [value for key, value in values.items() if f"{{{key}}}" in phrase]
    return made if made and len(names) == len(set(names)) else one_line(own.text, 200)


def _signs(
    known: Mapping[str, Finding], web: Graph, id_: str, after: Sequence[str]
) -> tuple[tuple[str, ...], int, int]:
    """Sentences, how many speak for the cause, and how many could be told."""
    sentences = [f"{id_} {known[id_].text}"]
    told = 1
    for check, words in rule(id_).supports.items():
        other = known.get(check)
        if other is None or other.sign == "unknown":
            continue
        try:
            sentence = words.format_map({key: value for key, value in other.data.items() if value})
        except KeyError:
            continue
        told += 1
        sentences.append(f"{check} {one_line(sentence, 120)}")
    for effect in after:
        tie = web.ties.get(id_, {}).get(effect)
        if tie is None:
            continue
        told += 1
        if tie.sure:
            said = f"its error says: {tie.words}" if tie.words else known[effect].text
            sentences.append(f"{effect} {one_line(said, 160)}")
    return tuple(sentences), len(sentences), told


def _trust(own: Finding, web: Graph, speaking: int, told: int, has_consequences: bool) -> str:
    share = speaking / told
    if _is_felt(own) and not has_consequences and not web.spoken.get(own.id):
        word = "possible"  # it is what is felt, and nothing says why
    elif share == 1 and (own.sign == "fail" or not has_consequences):
        word = "sure"
    else:
        word = "likely" if share >= 0.5 else "possible"
    return f"{word}, {speaking} of {told} signs"


def _blind(facts: Facts, known: Mapping[str, Finding], wrong: set[str]) -> tuple[str, ...]:
    """What is unknown because an answer could not be had for this reason."""
    names = tuple(prefix for id_ in wrong for prefix in rule(id_).blinds)
    reasons = {one_line(one.why, 300) for name, one in facts.answers.items() if one.why and name.startswith(names)}
    return tuple(id_ for id_, one in known.items() if names and one.sign == "unknown" and one.text in reasons)


# --------------------------------------------------------------------------------------------------------------- order


def _order(facts: Facts, known: Mapping[str, Finding], web: Graph, roots: Sequence[str]) -> Iterator[MendingStep]:
    """What to mend, the ground first; then how serving comes back, and what is worth doing in passing."""
    failing = [one for one in roots if _stands_out(one, known, web)] or list(roots[:1])
    after = {one for root in failing for one in web.after(root)}
    own = {one for one in after if rule(one).own and known[one].sign in WRONG}
    wanted = {one for one in {*failing, *own} if one not in _BACK and not _is_start_of_unit(known[one])}
    steps = sorted(wanted, key=lambda one: (_place(known[one]), len(web.before(one) & wanted), one))
    to_start = web.before("E01") | web.before("E02")
    late = [one for one in steps if known[one].group == "models" and one not in to_start]
    for id_ in steps:
        if id_ not in late:
            yield MendingStep(id_, _mend(known[id_]))
    touched = {*failing, *after}
    yield from _service(facts, known, touched)
    for id_ in late:
        yield MendingStep(id_, _mend(known[id_]))
    if known.get("E01") is not None and ("E01" in touched or "E03" in touched or _makes_anew(known, wanted)):
        passing = [one for one in known.values() if one.sign == "warn" and _is_recreate(one) and one.id not in wanted]
        for one in passing[:IN_PASSING]:
            yield MendingStep(one.id, f"{one_line(one.text, 80)}: when you recreate the container")


def _is_start_of_unit(finding: Finding) -> bool:
    """A unit that has failed wants only to be started again; one that systemd does not load wants more."""
    return finding.id == "K02" and "result" in finding.data


def _stands_out(id_: str, known: Mapping[str, Finding], web: Graph) -> bool:
    return known[id_].sign == "fail" or any(known[one].sign == "fail" for one in web.after(id_))


def _mend(finding: Finding) -> str:
    if rule(finding.id).mend:
        return rule(finding.id).mend
    if finding.fix is not None and finding.fix.commands:
        return one_line(finding.fix.commands[0], 120)
    if finding.fix is not None and finding.fix.effect:
        return one_line(finding.fix.effect.partition(";")[0], 120)
    return f"see gpuconsole explain {finding.id}"


def _is_recreate(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.action == "container.recreate"


def _makes_anew(known: Mapping[str, Finding], wanted: set[str]) -> bool:
    return any(_is_recreate(known[one]) for one in wanted)


def _service(facts: Facts, known: Mapping[str, Finding], touched: set[str]) -> Iterator[MendingStep]:
    """How the container comes back: by its unit, or by hand."""
    fails = {one for one in touched if known[one].sign == "fail" or _is_felt(known[one])}
    if not fails & {"E01", "E02", "E03", "K02"}:
        return
    try:
        unit = container.unit_of(facts)
        name = container.name_of(facts.answer("@podman.inspect") or {})
        start = container.podman(facts, f"start {name}")
        again = container.podman(facts, f"restart {name}")
    except (Unknowable, NotNeededError):
        unit, start, again = None, "podman start", "podman restart"
    if fails & {"E01", "E02", "K02"}:
        if unit is None:
            yield MendingStep("E01", f"start the container: {start}")
        elif unit.property("Result") == "start-limit-hit" or unit.property("ActiveState") in ("failed", "inactive"):
            yield MendingStep("K02", f"start it: {unit.systemctl} reset-failed {unit.name}, then start {unit.name}")
        elif unit.property("Restart") in _RESTARTS:
            yield MendingStep("", f"{unit.name} starts by itself{_soon(unit)}")
        else:
            yield MendingStep("K02", f"start it: {unit.systemctl} restart {unit.name}")
    elif "E03" in fails:
        line = f"{unit.systemctl} restart {unit.name}" if unit is not None else again
        yield MendingStep("E03", f"restart the container: {line}")


def _soon(unit: container.Unit) -> str:
    """`, within 5 s`; systemd tells microseconds, older ones words such as `5s`."""
    for key in ("RestartUSec", "RestartSec"):
        value = unit.property(key)
        if value.isascii() and value.isdigit() and len(value) < 16:
            return f", within {max(1, round(int(value) / 1e6))} s"
        if value:
            return f", within {one_line(value, 12)}"
    return ""
