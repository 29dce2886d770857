"""May the container read the model repository, as far as labels go?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from glob import escape
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct

from console.checks import selinux
from console.checks.box import at, inspect, no_container, surely_there
from console.checks.check import Answer, check, fail, ok, skip, unknown, warn
from console.checks.container import strings
from console.clients import run_words
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix

RULES = "/etc/selinux/targeted/contexts/files/file_contexts.local"
SEMANAGE = "/usr/sbin/semanage"
SHARED_TYPE = "container_file_t"
_GOOD = frozenset({SHARED_TYPE, "container_ro_file_t", "container_share_t"})
_BAD = frozenset(
    {
        *("default_t", "unlabeled_t", "user_home_t", "user_home_dir_t", "home_root_t", "admin_home_t"),
        *("var_t", "tmp_t", "user_tmp_t", "root_t"),
    }
)
"""Types that container_t may not read. Of others it is not known here."""
_NETWORK = {"nfs_t": "virt_use_nfs", "cifs_t": "virt_use_samba"}
"""Type of a network file system -> the boolean that lets containers use it."""
_NFS = ("nfs", "nfs4", "cifs", "smb3")
_SYSTEM = ("usr", "etc", "boot", "proc", "sys", "dev", "run", "bin", "sbin", "lib", "lib64")
_SHARED_TOPS = ("home", "var", "root", "opt", "srv", "mnt", "media", "tmp")
_LARGE = 5000
"""Paths; a tree of this size takes long to label."""
_TOO_MANY = "paths match"
"""What the collector says of a pattern that more paths match than it looks at."""

Grade = Literal["good", "bad", "odd", "foreign", "network"]


class Labelled(Struct, frozen=True):
    """A path of the repository and what its label means to the container."""

    path: str
    type: str
    grade: Grade
    label: str


def _paths(facts: Facts, root: str) -> Iterator[str]:
    """The repository, its models, and what lies in them; hidden names and loose files beside the models left out."""
    yield root
    for depth in (1, 2, 3):
        for path in facts.glob(f"{escape(root.rstrip('/'))}{'/*' * depth}"):
            parts = PurePosixPath(path).relative_to(root).parts
            loose = depth == 1 and facts.file(path).kind != "dir"
            if not loose and not any(part.startswith(".") or part == "lost+found" for part in parts):
                yield path


def _graded(facts: Facts, path: str, own: frozenset[int]) -> Labelled | None:
    """None where the label is not told."""
    label = facts.file(path).label or ""
    told = selinux.context(label)
    if told is None:
        return None
    grade: Grade = "odd"
    if told.type in _GOOD:
        grade = "good" if told.categories <= own else "foreign"
    elif told.type in _NETWORK:
        on = selinux.boolean(facts, _NETWORK[told.type])
        grade = "good" if on is not None and on[0] else "network"
    elif told.type in _BAD:
        grade = "bad"
    return Labelled(path, told.type, grade, label.strip("\0"))


def _own_categories(facts: Facts) -> frozenset[int]:
    label = inspect(facts).get("MountLabel")
    told = selinux.context(label) if isinstance(label, str) else None
    return told.categories if told is not None else selinux.domain(facts).categories


@check(
    "C07",
    "the models have a label containers may read",
    group="selinux",
    slug="model-labels",
    needs=(
        *selinux.NEEDS,
        *selinux.DOMAIN,
        *("stat {models}", "stat {models}/*", "stat {models}/*/*", "stat {models}/*/*/*", "space {models}"),
        *(f"{selinux.BOOLEANS}/{name}" for name in _NETWORK.values()),
        *(RULES, f"stat {SEMANAGE}"),
    ),
    why="A container may read files of its own types only, whatever their permission bits say. Files that were moved "
    "in with mv keep the label of where they came from, so one model fails to load while the others work.",
    source="podman#24209, uyuni-tools#508, podman#12492, openvinotoolkit/model_server#2944, ultralytics#23880",
)
def model_labels(facts: Facts) -> Answer:
    """Type and categories of the repository and of what lies in it."""
    if why := selinux.off(facts) or no_container(facts):
        return skip(why)
    roots = [path for path in facts.every("models") if "://" not in path]
    if not roots:
        return skip("no model repository on this host")
    here = selinux.domain(facts)
    if not here.is_confined:
        return ok(f"labels do not count: {here.type or 'label separation is off'}", here.evidence)
    own, missing = _own_categories(facts), None
    graded: list[Labelled] = []
    untold = 0
    for root in roots:
        try:
            if not facts.exists(root):
                continue
            for path in _paths(facts, root):
                one = _graded(facts, path, own)
                untold += one is None
                graded += [one] if one is not None else []
        except Unknowable as error:
            missing = missing or error
    wrong = [one for one in graded if one.grade != "good"]
    if wrong:
        return _wrong(facts, roots, wrong, len(graded))
    if missing is not None:
        if _TOO_MANY in missing.why and _relabels(facts):
            text = f"made with :Z, and {missing.why}: each start labels all of them"
            return warn(text, tuple(Evidence(one.path, one.label) for one in graded[:1]), _instead(facts, roots[0]))
        raise missing
    if not graded:
        return unknown(
            "the labels of the models are not told" if untold else "there is no such folder", f"ls -dZ {roots[0]}"
        )
    return _good(facts, graded)


def _good(facts: Facts, graded: list[Labelled]) -> Answer:
    evidence = tuple(Evidence(one.path, one.label) for one in graded[:1])
    types = ", ".join(sorted({one.type for one in graded}))
    if len(graded) >= _LARGE and _relabels(facts):
        text = f"{types}; made with :Z, so each start labels all of {len(graded)} paths or more"
        return warn(text, evidence, _instead(facts, graded[0].path), type=types)
    return ok(f"{types} on {len(graded)} paths", evidence, type=types)


def _relabels(facts: Facts) -> bool:
    """Whether a volume of the container was asked for with :Z."""
    words = run_words.parse(strings(at(inspect(facts), "Config", "CreateCommand")))
    volumes = words.values("volume") if words is not None else ()
    mounts = words.values("mount") if words is not None else ()
    return any("Z" in one.rpartition(":")[2].split(",") for one in volumes) or any(
        "relabel=private" in one for one in mounts
    )


def _instead(facts: Facts, root: str) -> Fix:
    return Fix(
        "S",
        _commands(facts, root),
        effect="label the repository for good, then make the container anew without :Z: a start is short again",
    )


def _wrong(facts: Facts, roots: list[str], wrong: list[Labelled], seen: int) -> Answer:
    order: tuple[Grade, ...] = ("bad", "network", "foreign", "odd")
    first = min(wrong, key=lambda one: (order.index(one.grade), one.path))
    same = [one for one in wrong if one.grade == first.grade]
    root = next(root for root in roots if PurePosixPath(first.path).is_relative_to(root))
    words = {
        "bad": f"{first.path} is {first.type}",
        "network": f"{first.path} is {first.type}, and {_NETWORK.get(first.type, '')} is off",
        "foreign": f"{first.path} is labelled for another container (:Z)",
        "odd": f"{first.path} is {first.type}: whether a container may read it is not known here",
    }[first.grade]
    text = f"{words} ({len(same)} of {seen} paths)" if len(same) > 1 else words
    evidence = tuple(Evidence(one.path, one.label) for one in same[:6])
    data = {"type": first.type, "path": first.path, "models": root, "kind": first.grade}
    if first.grade == "network":
        name = _NETWORK[first.type]
        fix = selinux.set_boolean(name, ("E10", "C08")) if selinux.boolean(facts, name) is not None else None
    else:
        fix = _label(facts, root, len(same), seen)
        if first.grade == "odd" and fix.kind == "P":
            effect = f"{first.type} may be what another service needs: ask before. Then {fix.effect}"
            fix = Fix("S", fix.commands, effect, fix.undo, again=fix.again)
    denies = selinux.mode(facts) == "enforcing" and first.grade != "odd"
    return (fail if denies else warn)(text, evidence, fix, **data)


# ----------------------------------------------------------------------------------------------------------------- fix


def _label(facts: Facts, root: str, wrong: int, seen: int) -> Fix:
    """semanage and restorecon on the repository; only shown where that would reach beyond it."""
    again = ("C08", "E10")
    refused = _refused(facts, root)
    if refused:
        return Fix(
            "S",
            (f"ls -dZ {shlex.quote(root)}",),
            effect=f"{refused}: keep the models in a folder of their own, as /data/models, or make the container anew "
            "with :z",
            again=again,
        )
    path, rule = shlex.quote(root), _rule(root)
    known = _known(facts, rule)
    has_tool = surely_there(facts, SEMANAGE)
    deeds: tuple[Deed, ...] = (Deed("run", ("restorecon", "-RF", root), seconds=600.0),)
    back: tuple[Deed, ...] = ()
    if not known:
        deeds = (
            Deed("run", ("semanage", "fcontext", "-a", "-t", SHARED_TYPE, rule), seconds=120.0),
            *deeds,
        )
        back = (
            Deed("run", ("semanage", "fcontext", "-d", rule), seconds=120.0),
            Deed("run", ("restorecon", "-RF", root), seconds=600.0),
        )
    undo = f"sudo semanage fcontext -d {shlex.quote(rule)}; sudo restorecon -RF {path}"
    return Fix(
        "P",
        _commands(facts, root),
        effect=f"at once, for all below {root}: {wrong} of {seen} paths that were seen are wrong; a model that failed "
        "has to be loaded again. Without root: make the container anew with :z"
        + (". There is no way back to labels that chcon set" if known else ""),
        undo="" if known else f"{undo} (to the policy's own types, not to what chcon set before)",
        deeds=deeds if known or has_tool else (),
        back=back if has_tool else (),
        again=again,
    )


def _commands(facts: Facts, root: str) -> tuple[str, ...]:
    path, rule = shlex.quote(root), _rule(root)
    add = () if _known(facts, rule) else (f"sudo semanage fcontext -a -t {SHARED_TYPE} {shlex.quote(rule)}",)
    tool = () if not add or surely_there(facts, SEMANAGE) else ("sudo dnf -y install policycoreutils-python-utils",)
    return (*tool, *add, f"sudo restorecon -RF {path}")


def _rule(root: str) -> str:
    """A pattern of file contexts: the folder and all below it."""
    plain = re.sub(r"([.^$*+?{}\[\]|()\\])", r"\\\1", root.rstrip("/"))
    return f"{plain}(/.*)?"


def _known(facts: Facts, rule: str) -> bool:
    try:
        return any(
            line.text.split()[:1] == [rule] and f":{SHARED_TYPE}:" in line.text
            for line in facts.lines(RULES, SHARED_TYPE)
        )
    except Unknowable:
        return False


def _refused(facts: Facts, root: str) -> str:
    """Why this folder must not be labelled as a whole; "" where it may be."""
    parts = PurePosixPath(root).parts[1:]
    shared = _SHARED_TOPS if len(parts) == 1 else ("home", "var") if len(parts) == 2 else ()
    if not parts or parts[0] in _SYSTEM or parts[0] in shared:
        return f"{root} holds more than models"
    try:
        kind = facts.space(root).fs
    except Unknowable:
        kind = ""
    return f"{root} is on {kind}, which takes no labels" if kind in _NFS else ""
