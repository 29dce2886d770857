"""What a check is: a pure function from Facts to an answer, registered with its id, needs and words.

    @check(
        "A03", "nouveau is not loaded", group="driver", slug="nouveau-loaded", needs=("/proc/modules",),
        why="nouveau and nvidia cannot both drive a card. While nouveau holds it, the nvidia module finds no device.",
        source="NVIDIA yum-packaging-nvidia-kmod-common; negativo17/nvidia-driver#73",
    )
    def nouveau(facts: Facts) -> Answer:
        lines = facts.lines("/proc/modules", r"^nouveau ")
        if not lines:
            return ok("not loaded")
        return fail("nouveau is loaded", lines, fix=Fix("R", (...)))

A check that cannot read a fact lets `Unknowable` pass: the runner makes "unknown" of it, with the reason and the
command that would settle it. It reads nothing beyond its needs. A file in this folder adds checks by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from msgspec import Struct

from console.core.facts import Evidence, Facts
from console.core.finding import GROUPS, Fix
from console.core.model import Sign


class Answer(Struct, frozen=True):
    """What a check says of these facts; the runner adds the check's own words."""

    sign: Sign
    text: str
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    settle: str = ""
    data: Mapping[str, str] = {}


Judge = Callable[[Facts], Answer]


class Check(Struct, frozen=True):
    """A registered check."""

    id: str
    """As in host.md: A06."""
    title: str
    """What is good, in a few words: `the kernel's driver and the libraries are of one version`."""
    group: str
    slug: str
    needs: tuple[str, ...]
    why: str
    source: str
    judge: Judge
    slow: bool = False
    """Only with --slow: it wants figures sampled over time."""


_MARK = "__check__"


def check(
    id_: str,
    title: str,
    *,
    group: str,
    slug: str,
    needs: Sequence[str],
    why: str,
    source: str,
    slow: bool = False,
) -> Callable[[Judge], Judge]:
    """Register a check."""
    if group not in GROUPS:
        raise ValueError(f"{id_}: there is no group {group}")

    def mark(judge: Judge) -> Judge:
        setattr(judge, _MARK, Check(id_, title, group, slug, tuple(needs), why, source, judge, slow))
        return judge

    return mark


def checks_of(modules: Sequence[ModuleType]) -> tuple[Check, ...]:
    """Checks that the modules define, in the order of their groups and ids; ValueError for two of one id or slug."""
    found: dict[str, Check] = {}
    slugs: set[str] = set()
    for module in modules:
        for value in vars(module).values():
            one = getattr(value, _MARK, None)
            if not isinstance(one, Check) or getattr(value, "__module__", None) != module.__name__:
                continue
            if one.id in found or one.slug in slugs:
                raise ValueError(
                    f"two checks are called {one.id} or {one.slug}: the second one is in {module.__name__}"
                )
            found[one.id] = one
            slugs.add(one.slug)
    groups = list(GROUPS)
    return tuple(sorted(found.values(), key=lambda one: (groups.index(one.group), one.id)))


# ------------------------------------------------------------------------------------------------------------- answers


def ok(text: str, evidence: Sequence[Evidence] = (), **data: str) -> Answer:
    """Fit."""
    return Answer("ok", text, tuple(evidence), data=data)


def note(text: str, evidence: Sequence[Evidence] = (), **data: str) -> Answer:
    """Fit, and worth knowing."""
    return Answer("note", text, tuple(evidence), data=data)


def warn(text: str, evidence: Sequence[Evidence] = (), fix: Fix | None = None, **data: str) -> Answer:
    """It works, and will hurt."""
    return Answer("warn", text, tuple(evidence), fix, data=data)


def fail(text: str, evidence: Sequence[Evidence] = (), fix: Fix | None = None, **data: str) -> Answer:
    """It does not work, or does harm."""
    return Answer("fail", text, tuple(evidence), fix, data=data)


def skip(why: str) -> Answer:
    """It does not apply to this box."""
    return Answer("none", why)


def unknown(why: str, settle: str = "", evidence: Sequence[Evidence] = ()) -> Answer:
    """It cannot be told. Seldom called: reading a missing fact raises Unknowable by itself."""
    return Answer("unknown", why, tuple(evidence), settle=settle)
