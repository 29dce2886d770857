"""A host's files below a root folder: looked at with bounds, links kept inside the root, nothing opened that blocks.

The root is `/`, or a folder that stands for another host: a copy of its files, or a recording, whose attributes
(owner, label, device numbers, what could not be read) were told apart, since a copy cannot hold them. No link of such
a folder leads out of it. Errors are answers: absent, not permitted, and too much are told apart.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from console.clients import plain_files
from console.core.facts import FileFact, FileKind, SpaceFact

MAX_TEXT = 256 * 1024
"""Bytes of a file's text; of a log the last ones."""
MAX_SPEC = 1024 * 1024
"""Of a CDI spec: cut in the middle it would be no YAML any more."""
MAX_NAMES = 20_000
"""Names of one folder."""
MAX_MATCHES = 2000
"""Paths of one pattern."""
MAX_ENTRIES = 20_000
"""Looked at by one `find`."""
MAX_DEPTH = 8
MAX_SHOWN = 2000
"""Names kept of a folder that only lies on the way of a pattern."""
MAX_LINKS = 40
DENIED = "permission denied"
RECORDING = ".gpuconsole"
"""The folder of a recording that tells of the others."""

_UNTOLD = "what is in it was not recorded"
_KINDS: Mapping[int, FileKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
}


class Told(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a recording tells of one path beside (or instead of) the file in its folder; None = as the file is."""

    kind: FileKind | None = None
    text: str | None = None
    cut: bool = False
    target: str | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    mtime: float | None = None
    label: str | None = None
    device: tuple[int, int] | None = None
    names: tuple[str, ...] | None = None
    why: str = ""


class Matches(Struct):
    """What a pattern or a search brought: paths, and the folders on the way with their names or why not."""

    paths: list[str]
    folders: dict[str, FileFact]


class UnknownError(Exception):
    """A path that could not be looked at, and why."""


class _Node(Struct):
    real: str
    """Path below the root in which no folder is a link; "" = the root."""
    kind: FileKind
    stat: os.stat_result | None = None
    """None where only the recording tells of it."""
    told: Told | None = None

    @property
    def target(self) -> str | None:
        return self.told.target if self.told is not None else None


class Tree:
    """The files of one host. Any number of threads may use it."""

    def __init__(self, root: str = "/", told: Mapping[str, Told] | None = None) -> None:
        """`told` is what a recording tells of its paths; None = the folder's own attributes hold."""
        self.root = "" if root == "/" else os.path.realpath(root)
        self._told: dict[str, Told] = {}
        self._children: dict[str, list[str]] = {}
        self._folders: dict[str, str | Exception] = {}
        self.recorded = told is not None
        if told:
            self._told = dict(told)
            self._children = _children(self._told)
            # a recording may spell a path through a link: what it tells is known by the path that the link leads to
            self._told = {self._canonical(path): one for path, one in told.items()}
            self._children = _children(self._told)
            self._folders = {}

    def _canonical(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        try:
            return f"{self._folder(folder)}/{name}"
        except (OSError, UnknownError):
            return path

    # ------------------------------------------------------------------------------------------------------ one path

    def look(self, path: str, *, text: bool = True, most: int = MAX_TEXT) -> FileFact:
        """What is at a path; of a plain file its text where `text`, of a folder its names always."""
        try:
            node = self._node(path)
        except (OSError, UnknownError, ValueError) as error:
            return _missing(error)
        target = self._link_target(node) if node.kind == "link" else None
        if target is not None:
            try:
                node = self._resolve(path)
            except (FileNotFoundError, NotADirectoryError):
                return FileFact("link", target=target)
            except OSError as error:
                looped = error.errno == errno.ELOOP
                return FileFact("link", target=target, why="a loop of links") if looped else _missing(error)
            except UnknownError as error:
                return _missing(error)
        return self._fact(path, node, target, text, most)

    def text(self, path: str) -> str | None:
        """A plain file's text; None where there is none, or it cannot be read."""
        return self.look(path).text

    def names(self, path: str) -> tuple[str, ...] | None:
        """A folder's names; None where there is none, or it cannot be listed."""
        return self.look(path, text=False).names

    def _fact(self, path: str, node: _Node, target: str | None, text: bool, most: int) -> FileFact:
        told = node.told or Told()
        content: str | None = None
        cut, why, names = told.cut, told.why, told.names
        if node.kind == "dir" and names is None and not why:
            try:
                names = tuple(sorted(self._list(node.real, MAX_NAMES)))
            except (OSError, UnknownError) as error:
                why = _why(error)
        elif node.kind == "file" and text and not why:
            content, cut, why = self._text(path, node, most)
        return replace(self._attributes(node), text=content, cut=cut, target=target, names=names, why=why)

    def _attributes(self, node: _Node) -> FileFact:
        told, found = node.told or Told(), node.stat
        mode, uid, gid = self._owner(node)
        size = told.size if told.size is not None else found.st_size if found and node.kind == "file" else None
        return FileFact(
            node.kind,
            mode=mode,
            uid=uid,
            gid=gid,
            size=size,
            mtime=told.mtime if self.recorded else found.st_mtime if found else None,
            label=told.label if self.recorded else self._label(node.real),
            device=told.device or (None if self.recorded else _device(node)),
        )

    def _owner(self, node: _Node) -> tuple[int | None, int | None, int | None]:
        """Mode, uid, gid. What a recording does not tell is as of a plain file of root: its folder was checked out by
        somebody else, with whatever rights that gave."""
        told, found = node.told or Told(), node.stat
        if not self.recorded:
            return (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) if found else (None, None, None)
        runs = node.kind == "dir" or (found is not None and found.st_mode & 0o100 != 0)
        plain = 0o755 if runs else 0o644
        return told.mode if told.mode is not None else plain, told.uid or 0, told.gid or 0

    def _label(self, real: str) -> str | None:
        if real.startswith(("/proc/", "/sys/")):
            return None
        try:
            return os.getxattr(self._host(real), "security.selinux", follow_symlinks=False).decode().rstrip("\0")
        except (OSError, ValueError, AttributeError):  # no such attribute, another system than Linux
            return None

    def _text(self, path: str, node: _Node, most: int) -> tuple[str | None, bool, str]:
        """(text, whether it was cut, why there is none)."""
        if (refused := plain_files.refused(node.real) or plain_files.refused(path)) != "":
            return None, False, refused
        told = node.told or Told()
        if told.text is not None:
            return told.text[:most], told.cut or len(told.text) > most, ""
        if node.stat is None:
            return None, False, _UNTOLD
        try:
            data, cut = plain_files.read(self._host(node.real), most, plain_files.is_log(node.real))
        except OSError as error:
            return None, False, _why(error)
        if not data and told.size:
            return None, False, _UNTOLD
        return data.decode("utf-8", "replace"), cut or told.cut, ""

    # ---------------------------------------------------------------------------------------------- patterns, searches

    def glob(self, pattern: str, stop: threading.Event, most: int = MAX_MATCHES) -> Matches:
        """Paths that may match (the last part may be absent where it has no wildcard), and the folders listed for it.

        `*` matches names with a leading dot too, as `Facts.glob` does.
        """
        found = Matches([""], {})
        for part in [part for part in pattern.split("/") if part]:
            if not is_pattern(part):
                found.paths = [f"{path}/{_unescaped(part)}" for path in found.paths]
                continue
            matched: list[str] = []
            for path in found.paths:
                names, fact = self._listed(path or "/")
                found.folders[path or "/"] = fact
                matched += [f"{path}/{name}" for name in sorted(names) if fnmatchcase(name, part)]
                if len(matched) > most:
                    why = f"more than {most} paths match {pattern}"
                    found.folders[path or "/"] = FileFact("dir", why=why)
                    break
                if stop.is_set():
                    break
            found.paths = matched[:most]
        return found

    def _listed(self, path: str) -> tuple[list[str], FileFact]:
        """A folder's names, however many, and the fact that says whether they could be had."""
        try:
            node = self._resolve(path)
        except (OSError, UnknownError, ValueError) as error:
            return [], _missing(error)
        if node.kind != "dir":
            return [], self._attributes(node)
        try:
            names = list(self._list(node.real, 10 * MAX_NAMES))
        except (OSError, UnknownError) as error:
            return [], replace(self._attributes(node), why=_why(error))
        shown = tuple(sorted(names)) if len(names) <= MAX_SHOWN else None
        return names, replace(self._attributes(node), names=shown)

    def find(self, folder: str, name: str, stop: threading.Event) -> Matches:
        """Files (no folders) of a name at any depth to MAX_DEPTH, on the folder's own file system, through no link.

        `folders` holds the start, with `why` where not all could be looked at, and what could not be listed below it.
        """
        start = self.look(folder, text=False)
        found = Matches([], {folder: start})
        if start.kind != "dir":
            return found
        try:
            node = self._resolve(folder)
        except (OSError, UnknownError) as error:
            found.folders[folder] = _missing(error)
            return found
        device = node.stat.st_dev if node.stat else None
        todo: list[tuple[str, str, int]] = [(folder.rstrip("/"), node.real, 0)]
        entries = 0
        while todo and not stop.is_set():
            path, real, depth = todo.pop()
            try:
                listed = [(one, self._kind(f"{real}/{one}", entry)) for one, entry in self._entries(real, MAX_ENTRIES)]
            except (OSError, UnknownError) as error:
                found.folders[path or "/"] = FileFact("dir", why=_why(error))
                continue
            entries += len(listed)
            for one, kind in listed:
                if kind != "dir":
                    found.paths += [f"{path}/{one}"] if fnmatchcase(one, name) else []
                elif depth < MAX_DEPTH and self._is_on(f"{real}/{one}", device):
                    todo.append((f"{path}/{one}", f"{real}/{one}", depth + 1))
            if entries > MAX_ENTRIES or len(found.paths) > MAX_MATCHES:
                why = f"only the first {entries} entries below it were looked at"
                found.folders[folder] = FileFact("dir", cut=True, mode=start.mode, why=why)
                break
        return found

    def _kind(self, real: str, entry: os.DirEntry[str] | None) -> FileKind:
        """Of what lies in a folder, links not followed."""
        try:
            if entry is not None:
                return "dir" if entry.is_dir(follow_symlinks=False) else "file"
            return self._stat(real).kind
        except (OSError, UnknownError):
            return "unknown"

    def _is_on(self, real: str, device: int | None) -> bool:
        """Whether a folder is of this file system."""
        try:
            found = self._stat(real).stat
        except (OSError, UnknownError):
            return True  # listing it will tell why not
        return device is None or found is None or found.st_dev == device

    # ------------------------------------------------------------------------------------------------------------ room

    def space(self, path: str) -> SpaceFact:
        """Room of the file system that holds a path. Of this machine: a recording tells its own."""
        try:
            node = self._resolve(path)
            room = os.statvfs(self._host(node.real))
        except (OSError, UnknownError, ValueError) as error:
            missing = _missing(error)
            return SpaceFact(why=missing.why or f"there is no {path}")
        fs, device, mount = plain_files.mount(self._host(node.real))
        return SpaceFact(
            room.f_bavail * room.f_frsize,
            room.f_blocks * room.f_frsize,
            room.f_favail,
            room.f_files,
            fs,
            device,
            mount,
        )

    # ------------------------------------------------------------------------------------------------------- resolving

    def _host(self, real: str) -> str:
        """A path of this machine; "" (the root itself) becomes the root folder."""
        return f"{self.root}{real}" or "/"

    def _node(self, path: str) -> _Node:
        """What is at a path, a link itself where it is one. OSError, UnknownError, ValueError (no path)."""
        if "\0" in path:
            raise ValueError("it is no path")
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            return self._resolve(path)
        return self._stat(f"{self._folder(folder)}/{name}")

    def _folder(self, path: str) -> str:
        """The real path of a folder, remembered: thousands of paths lie in a few folders."""
        known = self._folders.get(path)
        if known is None:
            try:
                node = self._resolve(path)
                if node.kind != "dir":
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                known = node.real
            except (OSError, UnknownError) as error:
                known = error
            if not self.recorded and isinstance(known, Exception):
                raise known
            self._folders[path] = known
        if isinstance(known, Exception):
            raise known
        return known

    def _resolve(self, path: str) -> _Node:
        """What a path leads to through all links, none of which leads out of the root."""
        if "\0" in path:
            raise ValueError("it is no path")
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        node = self._stat("")
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                node = self._stat(node.real.rpartition("/")[0])
                continue
            if node.kind != "dir":
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            before, node = node, self._stat(f"{node.real}/{part}")
            if node.kind == "link":
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = self._link_target(node)
                todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                node = self._stat("") if target.startswith("/") else before
        return node

    def _link_target(self, node: _Node) -> str:
        return node.target if node.target is not None else os.readlink(self._host(node.real))

    def _stat(self, real: str) -> _Node:
        """The path itself; its folders are no links."""
        told = self._told.get(real)
        if told is not None and told.kind == "absent":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), real)
        if told is not None and told.kind == "unknown":
            raise UnknownError(told.why or "it was not recorded")
        try:
            found = os.lstat(self._host(real))
        except FileNotFoundError:
            if told is not None and (told.kind is not None or told.target is not None):
                return _Node(real, told.kind or "link", None, told)
            if real in self._children:  # only the recording tells what is in it
                return _Node(real, "dir", None, told)
            above = self._told.get(real.rpartition("/")[0])
            if above is not None and above.kind in (None, "dir") and above.why:
                raise UnknownError(above.why) from None
            raise
        kind: FileKind = _KINDS.get(stat.S_IFMT(found.st_mode), "unknown")
        if told is not None:
            kind = told.kind or ("link" if told.target is not None else kind)
        return _Node(real, kind, found, told)

    def _list(self, real: str, most: int) -> Iterator[str]:
        """Names of a real folder, those that only the recording tells too. UnknownError beyond `most`."""
        return (name for name, _ in self._entries(real, most))

    def _entries(self, real: str, most: int) -> Iterator[tuple[str, os.DirEntry[str] | None]]:
        """The same with the folder's own entry, which tells kinds without a look; None where the recording may tell
        otherwise."""
        told = self._told.get(real)
        if told is not None and told.names is not None:
            yield from ((name, None) for name in told.names)
            return
        if told is not None and told.why:
            raise UnknownError(told.why)
        known = set(self._children.get(real, ()))
        count = 0
        try:
            with os.scandir(self._host(real)) as entries:
                for entry in entries:
                    if entry.name in known or (real == "" and self.recorded and entry.name == RECORDING):
                        continue
                    if self._is_absent(f"{real}/{entry.name}"):
                        continue
                    count += 1
                    if count > most:
                        raise UnknownError(f"it holds more than {most} names")
                    yield entry.name, None if f"{real}/{entry.name}" in self._told else entry
        except (FileNotFoundError, NotADirectoryError):
            if not known:
                raise
        yield from ((name, None) for name in known)

    def _is_absent(self, real: str) -> bool:
        told = self._told.get(real)
        return told is not None and told.kind == "absent"


def is_pattern(text: str) -> bool:
    """Whether a path or a part of one has wildcards; `[*]` and the like stand for the character itself."""
    return any(char in _unescaped(text, "") for char in "*?[")


def escaped(text: str) -> str:
    """A text that stands for itself within a pattern."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def _unescaped(part: str, by: str | None = None) -> str:
    for char in "*?[":
        part = part.replace(f"[{char}]", char if by is None else by)
    return part


def _children(told: Mapping[str, Told]) -> dict[str, list[str]]:
    """Folder -> names in it that a recording tells of as there, or as not to be looked at."""
    found: dict[str, set[str]] = {}
    for path, one in told.items():
        if one.kind in (None, "absent") and one.target is None:
            continue
        while path:
            folder, _, name = path.rpartition("/")
            names = found.setdefault(folder, set())
            if name in names:
                break  # and so are the folders above
            names.add(name)
            path = folder
    return {folder: sorted(names) for folder, names in found.items()}


def _missing(error: Exception) -> FileFact:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return FileFact("absent")
    if isinstance(error, OSError) and error.errno in (errno.ESRCH, errno.ENAMETOOLONG):
        return FileFact("absent")
    return FileFact("unknown", why=_why(error))


def _why(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return DENIED
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _device(node: _Node) -> tuple[int, int] | None:
    if node.stat is None or node.kind not in ("char", "block"):
        return None
    return os.major(node.stat.st_rdev), os.minor(node.stat.st_rdev)
