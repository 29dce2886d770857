"""What SELinux denied to containers of late, and which check has the cause."""

from __future__ import annotations

import re

from msgspec import Struct

from console.checks import selinux
from console.checks.box import KERNEL_LOG, kernel_lines, no_container
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line

AUSEARCH = "ausearch -m avc,user_avc -ts recent"
_DENIED = re.compile(r"avc:\s{1,4}denied\s{1,4}\{([^{}]{0,200})\}")
_FIELD = re.compile(r'\b(scontext|tcontext|tclass|permissive|path|name|comm)=("[^"]{0,400}"|\S{1,400})')
_NODE_TYPES = frozenset({"xserver_misc_device_t", "device_t", "dri_device_t", "nvidia_device_t"})
_FILE_TYPES = frozenset(
    {"default_t", "unlabeled_t", "user_home_t", "user_home_dir_t", "admin_home_t", "var_t", "tmp_t", "user_tmp_t"}
)
_FILES = frozenset({"file", "dir", "lnk_file"})
_SHARED = frozenset({"container_file_t", "container_ro_file_t"})
MOST = 6
"""Lines shown."""
RECENT = 600.0
"""Seconds, as ausearch has it."""


class Denial(Struct, frozen=True):
    """One denied access of a container's process."""

    permissions: tuple[str, ...]
    target: str
    """Type of what was used."""
    kind: str
    """chr_file, file, dir ..."""
    thing: str
    categories: frozenset[int]
    allowed: bool
    """Only logged: permissive."""
    evidence: Evidence

    @property
    def cause(self) -> str:
        """device, map, label or other."""
        if self.kind == "chr_file" and self.target in _NODE_TYPES:
            return "map" if self.permissions == ("map",) else "device"
        if self.kind in _FILES and self.target in _FILE_TYPES | _SHARED:
            return "label"
        return "other"


def denial(where: str, line: str) -> Denial | None:
    """One line of the audit log or of the kernel's; None where it is no denial of a container's."""
    match = _DENIED.search(line)
    if match is None:
        return None
    fields = {name: value.strip('"') for name, value in _FIELD.findall(line)}
    source = selinux.context(fields.get("scontext", ""))
    target = selinux.context(fields.get("tcontext", ""))
    if source is None or target is None or not source.type.startswith("container_"):
        return None
    if source.type == "container_runtime_t":
        return None
    return Denial(
        tuple(match[1].split()),
        target.type,
        fields.get("tclass", ""),
        fields.get("path") or fields.get("name") or "",
        source.categories,
        fields.get("permissive") == "1",
        Evidence(where, one_line(line, 300)),
    )


def _audit(facts: Facts) -> list[Denial]:
    """From ausearch; Unknowable where it may not read the audit log."""
    found = facts.command(AUSEARCH)
    text = f"{found.out}\n{found.err}"
    denials = [one for line in text.splitlines() if (one := denial(f"$ {AUSEARCH}", line)) is not None]
    if not denials and "<no matches>" not in text and (found.code != 0 or "avc" not in text.lower()):
        raise Unknowable("the audit log can be read by root only", f"sudo {AUSEARCH}")
    return denials


def _kernel(facts: Facts) -> list[Denial]:
    """The same from the kernel's log, which has them where no audit daemon runs."""
    try:
        lines = kernel_lines(facts, r"avc:\s{1,4}denied", facts.wall - RECENT)
    except Unknowable:
        return []
    return [one for line in lines if (one := denial(line.where, line.text)) is not None]


@check(
    "C08",
    "SELinux denied containers nothing of late",
    group="selinux",
    slug="selinux-denials",
    needs=(*selinux.NEEDS, *selinux.DOMAIN, *selinux.DEVICE_BOOLEANS, KERNEL_LOG, f"$ {AUSEARCH}"),
    why="A denial names what was used, by whom and which label it has: the shortest way from a strange failure to its "
    "cause. Rules marked dontaudit deny without a line, so that none is no proof.",
    source="host.md C08; c-selinux; ctk#210",
)
def denials(facts: Facts) -> Answer:
    """Denials of the last ten minutes, by ausearch and in the kernel's log."""
    if why := selinux.off(facts):
        return skip(why)
    missing: Unknowable | None = None
    found: list[Denial] = []
    try:
        found = _audit(facts)
    except Unknowable as error:
        missing = error
    found += _kernel(facts)
    if found:
        return _judged(facts, found)
    if missing is not None:
        return unknown(missing.why, f"sudo {AUSEARCH}")
    return ok(
        "none in the last 10 minutes (dontaudit rules may hide some)", (Evidence(f"$ {AUSEARCH}", "<no matches>"),)
    )


def _judged(facts: Facts, found: list[Denial]) -> Answer:
    own = _own(facts)
    rank = {"device": 0, "map": 1, "label": 2, "other": 3}
    first = min(reversed(found), key=lambda one: (rank[one.cause], one.allowed, not _is_own(one, own)))
    cause = first.cause
    same = [one for one in found if one.cause == cause]
    evidence = tuple(dict.fromkeys(one.evidence for one in reversed(same)))[:MOST]
    what = f"{{ {' '.join(first.permissions)} }}"
    thing = f"{first.target} {first.kind}" + (f" {one_line(first.thing, 60)}" if first.thing else "")
    data = {"cause": cause, "type": first.target}
    text = f"{what} on {thing}: {_WORDS[cause]}"
    if cause == "device" and first.target != "device_t" and _is_open(facts):
        return note(f"{what} on {thing} before the boolean was switched on", evidence, **data)
    certain = cause in ("device", "map") or (cause == "label" and _is_own(first, own))
    answer = fail if certain and not first.allowed and selinux.mode(facts) == "enforcing" else warn
    return answer(text, evidence, _fix(facts, cause, first.target), **data)


def _is_open(facts: Facts) -> bool:
    told = (selinux.boolean(facts, name) for name in (selinux.USE_DEVICES, selinux.USE_XSERVER))
    return any(one is not None and one[0] for one in told)


_WORDS = {
    "device": "the GPU's nodes are closed to it (C03, C05)",
    "map": "container-selinux before 2.213 lacks this right",
    "label": "a label that containers may not use (C07)",
    "other": "neither the GPU nor the models",
}


def _fix(facts: Facts, cause: str, target: str) -> Fix:
    if cause == "device" and target == "device_t":
        effect = "gives the nodes their label, by which the booleans go (C05); then start the container again"
        return Fix("S", ("sudo restorecon -v /dev/nvidia*",), effect=effect, again=("C05", "E03"))
    if cause == "device":
        return selinux.open_devices(facts, ("C03", "C05", "E03"))
    if cause == "map":
        effect = "start the container again afterwards"
        return Fix("S", ("sudo dnf -y upgrade container-selinux",), effect=effect, again=("C03", "E03"))
    effect = "says which rule is missing; C07 shows the labels of the models and mends them"
    return Fix("S", (f"sudo {AUSEARCH} | audit2why",), effect=effect, again=("C07",))


def _own(facts: Facts) -> frozenset[int]:
    """Categories of the Triton container; none where they are not known."""
    try:
        return frozenset() if no_container(facts) else selinux.domain(facts).categories
    except Unknowable:
        return frozenset()


def _is_own(one: Denial, own: frozenset[int]) -> bool:
    """True too where it cannot be told whose it is."""
    return not own or not one.categories or one.categories == own
