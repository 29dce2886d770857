"""Boxes as text: one `.tree` file holds a whole recorded box, with the source of each part named beside it.

    # source: https://...   what the sections below are shaped on, up to the next such line; more `# ` lines may follow
    === /etc/os-release mode=0644 owner=0:0 label=system_u:object_r:etc_t:s0
    ID="rocky"
    === /dev/nvidia0 char=195:0 mode=0666
    === /dev/char/195:0 link=../nvidia0
    === /proc/kmsg error="permission denied"
    === $ dkms status code=0
    nvidia-open/580.95.05, 4.18.0-553.el8_10.x86_64, x86_64: installed
    === @podman.inspect
    {"Name": "triton"}
    === space /data/models free=400G total=900G fs=xfs device=/dev/nvme0n1p1

`=== box wall=2026-11-30T09:00:00 host=gpu01` says when and where. Braces in a path stand for several paths with one
content: `cpu{0..15}/cpufreq/scaling_governor`, `{gsp_tu10x,gsp_ga10x}.bin`. A file's attributes: mode, owner, label,
size and mtime; dir, char=, block=, socket, link= for other kinds; error= where it cannot be looked at, unreadable=
where it can be seen but not read; bytes= for content that is no text (hex); `cut` where the text lacks its last line
end. A program's standard error follows a line `--- err`; why= says that it could not be run. An answer without JSON
has why= and settle=. Blank lines at the end of a section do not count.

A tree is written out as a folder that `--root` reads: its files, and `.gpuconsole/box.json` for what files of a
checkout cannot hold (modes, owners, labels, device numbers, what programs printed and services answered).
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from console.checks import run
from console.clients.tree import Told
from console.config import Settings
from console.core.facts import AnswerFact, CommandFact, Facts, FileFact, SpaceFact
from console.core.finding import Report
from console.sources.facts import collect
from console.sources.facts_host import BOX, NOT_RECORDED, Host, Recording

HERE = Path(__file__).parent / "trees"
_HEAD = "=== "
_STARTS = tuple(_HEAD + start for start in ("/", "$ ", "@", "space ", "box "))
"""What a program prints may have lines with such signs too."""
_SOURCE = "# source: "
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass
class Tree:
    """A box that can be changed. Files hold their text; those with a size and no text are only there to be seen."""

    name: str = ""
    wall: float = 0.0
    host: str = ""
    files: dict[str, FileFact] = field(default_factory=dict)
    commands: dict[str, CommandFact] = field(default_factory=dict)
    answers: dict[str, AnswerFact] = field(default_factory=dict)
    spaces: dict[str, SpaceFact] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Heading -> what its section is shaped on."""

    def copy(self) -> Tree:
        """An own copy; facts are frozen, so only the tables are copied."""
        twin = copy.copy(self)
        for table in ("files", "commands", "answers", "spaces", "sources"):
            setattr(twin, table, dict(getattr(self, table)))
        return twin

    # --------------------------------------------------------------------------------------------------------- files

    def put(self, path: str, text: str | None = "", **fields: Any) -> None:
        """A file with this text (None = only to be seen), or whatever `kind=` says."""
        told = {"mode": 0o644, "uid": 0, "gid": 0, **fields}
        kind = told.pop("kind", "file")
        self.files[path] = FileFact(kind, text if kind == "file" else None, **told)

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        self.files[path] = FileFact("link", target=target)

    def remove(self, path: str) -> None:
        """A path and all below it; KeyError where there is none, so that a fault never does nothing."""
        found = [one for one in self.files if one == path or one.startswith(path + "/")]
        if not found:
            raise KeyError(f"{self.name}: there is no {path}")
        for one in found:
            del self.files[one]

    def under(self, folder: str, pattern: str = "") -> list[str]:
        """Paths below a folder, those that the pattern is found in."""
        return [one for one in self.files if one.startswith(folder + "/") and re.search(pattern, one)]

    def text(self, path: str) -> str:
        """A file's text; KeyError where there is none."""
        found = self.files[path].text
        if found is None:
            raise KeyError(f"{self.name}: {path} has no text")
        return found

    def edit(self, path: str, old: str, new: str) -> None:
        """Other words in a file; KeyError where the old ones are not there."""
        text = self.text(path)
        if old not in text:
            raise KeyError(f"{self.name}: {path} does not say {old!r}")
        self.files[path] = replace(self.files[path], text=text.replace(old, new))

    def stat(self, path: str, **fields: Any) -> None:
        """Other attributes of a path that is there: mode=0o600, label=..., uid=..."""
        self.files[path] = replace(self.files[path], **fields)

    # -------------------------------------------------------------------------------------------------------- others

    def run(self, words: str, out: str, code: int = 0, err: str = "") -> None:
        """What a program prints."""
        self.commands[words] = CommandFact(code, out, err)

    def tell(self, name: str, value: Any) -> None:
        """An answer."""
        self.answers[name] = AnswerFact(value)

    def refuse(self, name: str, why: str, settle: str = "") -> None:
        """Why an answer could not be had."""
        self.answers[name] = AnswerFact(None, why, settle)

    def change(self, name: str, by: Callable[[Any], None]) -> None:
        """Change an answer's JSON in place; KeyError where there is none."""
        value = copy.deepcopy(self.answers[name].value)
        by(value)
        self.answers[name] = AnswerFact(value)

    def value(self, name: str) -> Any:
        """An answer's JSON, to read."""
        return self.answers[name].value

    def room(self, path: str, **fields: Any) -> None:
        """Other figures of a file system."""
        self.spaces[path] = replace(self.spaces[path], **fields)

    # ------------------------------------------------------------------------------------------------------- written

    def folders(self) -> Iterator[str]:
        """Folders that only their content tells of."""
        seen: set[str] = set()
        for path in self.files:
            folder = path.rpartition("/")[0]
            while folder and folder not in seen:
                seen.add(folder)
                yield folder
                folder = folder.rpartition("/")[0]

    def save(self, folder: Path) -> None:
        """Write it out for `--root`."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.files):
            _lay(folder, path, self.files[path])
        target = folder / BOX
        target.parent.mkdir(exist_ok=True)
        told = recording(self)
        beside = {path: _beside(one) for path, one in told.files.items()}
        target.write_bytes(msgspec.json.encode(replace(told, files=beside)))


def _beside(one: Told) -> Told:
    """What the folder cannot tell of this path itself."""
    kind = None if one.kind in ("file", "dir", "link") else one.kind
    return replace(one, kind=kind, text=None, cut=False, target=None, names=None)


def _lay(folder: Path, path: str, fact: FileFact) -> None:
    target = folder / path[1:]
    target.parent.mkdir(parents=True, exist_ok=True)
    if fact.kind == "dir":
        target.mkdir(exist_ok=True)
    elif fact.kind == "link":
        target.symlink_to(str(fact.target))
    else:
        target.write_bytes((fact.text or "").encode("utf-8", "surrogateescape"))


# ------------------------------------------------------------------------------------------------------------- reading


def tree(name: str) -> Tree:
    """The recorded box of that name, an own copy."""
    return _read(name).copy()


def names() -> list[str]:
    """All recorded boxes."""
    return sorted(path.stem for path in HERE.glob("*.tree"))


@cache
def _read(name: str) -> Tree:
    return parse(name, (HERE / f"{name}.tree").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Tree:
    """A box from its text; ValueError with the heading that is at fault."""
    found = Tree(name)
    source = ""
    for head, body, after in _sections(text):
        try:
            _add(found, head, body)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{name}: === {head}: {error}") from error
        if body and not head.startswith("box "):
            if not source:
                raise ValueError(f"{name}: === {head}: no `# source:` above it")
            found.sources[head] = source
        source = after or source
    return found


def _sections(text: str) -> Iterator[tuple[str, str, str]]:
    """(heading, body, the source that holds from the next section on)."""
    head: str | None = None
    body: list[str] = []
    for line in [*text.splitlines(), f"{_HEAD}box "]:
        if not line.startswith(_STARTS):
            body.append(line)
            continue
        at = next((index for index, one in enumerate(body) if one.startswith(_SOURCE)), len(body))
        if any(not one.startswith("#") for one in body[at:] if one.strip()):
            raise ValueError(f"{head}: a `{_SOURCE}` line stands in the middle of a section")
        source = " ".join(one.removeprefix(_SOURCE).removeprefix("# ") for one in body[at:] if one.strip())
        yield head if head is not None else "box ", "\n".join(body[:at]).rstrip("\n"), source
        head, body = line[len(_HEAD) :], []


def _add(box: Tree, head: str, body: str) -> None:
    if head.startswith("box "):
        attributes = _attributes(head[4:])
        box.host = attributes.get("host", box.host)
        if "wall" in attributes:
            box.wall = datetime.fromisoformat(attributes["wall"]).replace(tzinfo=UTC).timestamp()
    elif head.startswith("$ "):
        words, attributes = _tail(head[2:], "code|why")
        out, _, err = body.partition("--- err\n") if "--- err" in body else (body, "", "")
        code = None if "why" in attributes else int(attributes.get("code", "0"))
        box.commands[words] = CommandFact(code, _ended(out.rstrip("\n")), _ended(err), attributes.get("why", ""))
    elif head.startswith("@"):
        name_, attributes = _tail(head, "why|settle")
        value = json.loads(body) if body else None
        box.answers[name_] = AnswerFact(value, attributes.get("why", ""), attributes.get("settle", ""))
    elif head.startswith("space "):
        path, attributes = _tail(head[6:], "free|total|inodes_free|inodes|fs|device|mount|why")
        counts = {
            key: _count(attributes.pop(key)) for key in ("free", "total", "inodes_free", "inodes") if key in attributes
        }
        box.spaces[path] = SpaceFact(**counts, **attributes)  # type: ignore[arg-type]
    else:
        pattern, _, rest = head.partition(" ")
        fact = _file(_attributes(rest), body)
        for path in _paths(pattern):
            if path in box.files:
                raise ValueError("it is told twice")
            box.files[path] = fact


def _file(attributes: dict[str, str], body: str) -> FileFact:
    text: str | None = _ended(body)
    kind: Any = "file"
    told: dict[str, Any] = {"mode": 0o644, "uid": 0, "gid": 0}
    for name, value in attributes.items():
        match name:
            case "mode":
                told["mode"] = int(value, 8)
            case "owner":
                told["uid"], told["gid"] = map(int, value.split(":"))
            case "label":
                told["label"] = value
            case "size":
                told["size"] = _count(value)
                text = text or None
            case "mtime":
                told["mtime"] = datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
            case "char" | "block":
                kind, told["device"] = name, tuple(map(int, value.split(":")))
            case "dir" | "socket" | "fifo":
                kind = name
            case "link":
                return FileFact("link", target=value)
            case "error":
                return FileFact("unknown", why=value)
            case "unreadable":
                told["why"], text = value, None
            case "bytes":
                text = bytes.fromhex(value).decode("latin-1")
            case "cut":
                text = body
            case _:
                raise ValueError(f"there is no attribute {name}")
    return FileFact(kind, text if kind == "file" else None, **told)


def _attributes(text: str) -> dict[str, str]:
    return {word.partition("=")[0]: word.partition("=")[2] for word in shlex.split(text)}


def _tail(head: str, names_: str) -> tuple[str, dict[str, str]]:
    """The words of a heading and the attributes at its end: a command's own words may hold `=` too."""
    match = re.fullmatch(rf"(.*?)((?: (?:{names_})=(?:\"[^\"]*\"|[^ \"]*))*)", head)
    if match is None:
        raise ValueError("it cannot be read")
    return match.group(1), _attributes(match.group(2))


def _paths(pattern: str) -> Iterator[str]:
    """Every path that a pattern with braces stands for."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [[part] if index % 2 == 0 else _choices(part) for index, part in enumerate(parts)]
    for chosen in itertools.product(*choices):
        yield "".join(chosen)


def _choices(inside: str) -> list[str]:
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", inside):
        return [str(number) for number in range(int(match.group(1)), int(match.group(2)) + 1)]
    return inside.split(",")


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    if match is None:
        raise ValueError(f"{text} is no size")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def _ended(text: str) -> str:
    return text + "\n" if text and not text.endswith("\n") else text


# -------------------------------------------------------------------------------------------------------------- looked


NOWHERE = "/nonexistent-gpuconsole-tree"


def recording(box: Tree) -> Recording:
    """The tree as the collector reads it, with all texts: no folder is needed."""
    told: dict[str, Told] = {}
    held: dict[str, list[str]] = {}
    for path in {*box.files, *box.folders()}:
        folder, _, name = path.rpartition("/")
        held.setdefault(folder, []).append(name)
    for path in {*box.files, *box.folders()}:
        fact = box.files.get(path) or FileFact("dir", mode=0o755, uid=0, gid=0)
        size = fact.size
        if size is None and fact.kind == "file":
            size = len((fact.text or "").encode("utf-8", "surrogateescape"))
        told[path] = Told(
            kind=fact.kind,
            text=fact.text,
            cut=fact.cut,
            target=fact.target,
            mode=fact.mode,
            uid=fact.uid,
            gid=fact.gid,
            size=size,
            mtime=box.wall - 86400 if fact.mtime is None else fact.mtime,
            label=fact.label,
            device=fact.device,
            names=tuple(sorted(held.get(path, ()))) if fact.kind == "dir" and not fact.why else None,
            why=fact.why,
        )
    return Recording(box.wall, box.host, told, box.commands, box.answers, box.spaces)


def look(box: Tree, needs: Iterable[str] | None = None) -> Facts:
    """What the collector finds on this box; needs: those of all checks where not given."""
    wanted = checks_needs() if needs is None else tuple(needs)
    host = Host("recorded", Settings(), NOWHERE, recording(box))
    return collect(wanted, host, slow="@samples" in box.answers, deadline=60.0)


@cache
def checks_needs() -> tuple[str, ...]:
    """What all checks look at."""
    return run.needs(run.all_checks()[0])


def judge(box: Tree) -> Report:
    """What all checks say of this box."""
    return run.report(look(box))


def untold(box: Tree, needs: Iterable[str] | None = None) -> list[str]:
    """Commands, answers and spaces that checks need and the tree does not tell. Files need no telling: what a tree
    does not hold is not there."""
    found = look(box, needs)
    return sorted(
        [f"$ {words}" for words, one in found.commands.items() if one.why == NOT_RECORDED]
        + [name for name, one in found.answers.items() if one.why == NOT_RECORDED and name != "@samples"]
        + [f"space {path}" for path, one in found.spaces.items() if one.why == NOT_RECORDED]
    )
