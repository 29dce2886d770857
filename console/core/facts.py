"""What was found on a box at one moment, as plain data that a check can judge and a file can hold.

Every fact is asked for by a *need*, a short text that a check declares and the collector understands:

    /etc/os-release                      a file's text, mode, owner, label; a folder's names
    /sys/class/net/*/speed               the same for every path that matches
    stat /dev/nvidia*                    as above without the text (devices, libraries, big files)
    find /lib/modules/{release} nvidia*.ko*   files of that name at any depth, without their text
    space {graph_root}                   free and total room of the file system that holds the path
    $ dkms status                        what a program printed; run without a shell, with a time limit
    @podman.inspect                      an answer of Podman, Triton, NVML or the kernel, as JSON (ANSWERS)

A name in braces is a variable (VARIABLES) that earlier facts tell; where it has several values each is looked at,
where it has none the need is dropped. Facts of absent things say so, facts that could not be had say why: reading one
raises `Unknowable`, which the check runner turns into "unknown", so that a missing fact is never "ok".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct, field

FileKind = Literal["file", "dir", "link", "char", "block", "socket", "fifo", "absent", "unknown"]
"""link: one that leads nowhere; others are told as what they lead to, with `target` set. unknown: `why` tells."""

VARIABLES: Mapping[str, str] = {
    "release": "kernel release that runs, /proc/sys/kernel/osrelease",
    "next_release": "newest release in /lib/modules: what a reboot will probably run",
    "user": "name of the user whom Podman's containers belong to (root where rootful)",
    "uid": "number of that user",
    "home": "home folder of that user",
    "socket": "path of the Podman socket that is asked",
    "graph_root": "folder of Podman's storage",
    "container": "name of the Triton container",
    "container_id": "its 64 digits",
    "container_pid": "process id of its first process on this host; none while it does not run",
    "unit": "systemd unit that manages it; none where nothing does",
    "models": "folder(s) on this host that hold the model repository",
    "gpu": "PCI addresses of NVIDIA display-class devices, 0000:3b:00.0",
    "cdi_paths": "every host path that a CDI spec for NVIDIA devices names",
}
"""Name -> what it holds."""

ANSWERS: Mapping[str, str] = {
    "@me": "who looks: uid, user, groups, sudo (true where `sudo -n` works, null where not tried)",
    "@settings": "host, http_port, grpc_port, metrics_port, container, as the console is set",
    "@processes": "list of {pid, parent, uid, user, name, argv, cgroup} of podman, conmon, tritonserver, nvidia-*, X",
    "@ports": "listening TCP sockets: list of {address, port, inode, pids, process}",
    "@units": "systemctl show by unit name: {unit: {property: value}}; user units as `user:NAME`",
    "@podman.ping": "version, socket, rootless",
    "@podman.info": "libpod info",
    "@podman.containers": "libpod list of all containers",
    "@podman.inspect": "libpod inspect of the Triton container, environment masked",
    "@podman.image": "libpod inspect of its image",
    "@podman.images": "libpod list of images",
    "@podman.log": "last lines of the container's log, a list of texts",
    "@triton.metadata": "GET /v2, with live and ready added",
    "@triton.index": "POST /v2/repository/index",
    "@triton.configs": "{model: {version: config as served}}",
    "@triton.stats": "GET /v2/models/stats",
    "@nvml": "{error: null or {code, text}, box: GpuBox (core/model.py) as JSON or null}",
    "@kernel.log": "{source, lines: [{wall, text}]}: NVRM, nvidia, nouveau, Xid, OOM, AVC and module lines",
    "@samples": "with --slow: {seconds, cpuidle: {state: share}, swap_in, swap_out, irqs: {cpu: per_second}}",
}
"""Name -> what it holds."""


class Unknowable(Exception):  # noqa: N818 (an answer, not a fault)
    """A fact that could not be had: why, and the command that would settle it ("" = none is known)."""

    def __init__(self, why: str, settle: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.settle = settle


class NotNeededError(KeyError):
    """A check read what it does not declare among its needs: a fault of the check."""


class FileFact(Struct, frozen=True, omit_defaults=True):
    """One path."""

    kind: FileKind
    text: str | None = None
    """None where it was not asked for, or could not be read (`why`)."""
    cut: bool = False
    """The text is only the first part."""
    target: str | None = None
    """What a symbolic link says, as written."""
    mode: int | None = None
    """Permission bits, such as 0o644."""
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    mtime: float | None = None
    label: str | None = None
    """SELinux context; None where the file system has none."""
    device: tuple[int, int] | None = None
    """Major and minor of a device node."""
    names: tuple[str, ...] | None = None
    """Of a folder; None where it may not be listed (`why`)."""
    why: str = ""
    """What could not be had, and why; of a folder with names: that not all below it could be looked at."""

    @property
    def is_there(self) -> bool:
        """False for absent paths and links that lead nowhere."""
        return self.kind not in ("absent", "link", "unknown")


class CommandFact(Struct, frozen=True, omit_defaults=True):
    """What a program printed and how it ended; `why` where it was not run to its end."""

    code: int | None = None
    out: str = ""
    err: str = ""
    why: str = ""


class AnswerFact(Struct, frozen=True, omit_defaults=True):
    """Plain JSON, or why there is none."""

    value: Any = None
    why: str = ""
    settle: str = ""


class SpaceFact(Struct, frozen=True, omit_defaults=True):
    """Bytes and inodes of the file system that holds a path."""

    free: int | None = None
    total: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    fs: str = ""
    """Type as /proc/self/mounts has it: xfs, nfs4, overlay."""
    device: str = ""
    mount: str = ""
    why: str = ""


class Evidence(Struct, frozen=True):
    """The very line that was read, and where."""

    where: str
    """`/etc/cdi/nvidia.yaml:118`, `$ dkms status`, `NVML`."""
    text: str


class Facts(Struct, frozen=True, omit_defaults=True):
    """All that was found. Checks read it by the methods, never by the mappings."""

    wall: float = 0.0
    seconds: float = 0.0
    """That the collection took."""
    host: str = ""
    root: str = "/"
    """The folder that stood for `/`."""
    slow: bool = False
    files: Mapping[str, FileFact] = field(default_factory=dict)
    commands: Mapping[str, CommandFact] = field(default_factory=dict)
    """By the command as the need has it, without the `$ `."""
    answers: Mapping[str, AnswerFact] = field(default_factory=dict)
    spaces: Mapping[str, SpaceFact] = field(default_factory=dict)
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    # --------------------------------------------------------------------------------------------------------- files

    def file(self, path: str) -> FileFact:
        """What is known of a path; Unknowable where it could not even be looked at."""
        found = self.files.get(path)
        if found is None:
            raise NotNeededError(path)
        if found.kind == "unknown":
            raise Unknowable(f"{path}: {found.why}", f"sudo ls -lZ {path}")
        return found

    def exists(self, path: str) -> bool:
        """Whether it is there; a link that leads nowhere is not."""
        return self.file(path).is_there

    def maybe(self, path: str) -> str | None:
        """A file's text; None where there surely is no such file."""
        found = self.file(path)
        if not found.is_there:
            return None
        if found.text is None:
            raise Unknowable(f"{path}: {found.why or 'its text was not read'}", f"sudo cat {path}")
        return found.text

    def text(self, path: str) -> str:
        """A file's text; Unknowable where there is none."""
        found = self.maybe(path)
        if found is None:
            raise Unknowable(f"there is no {path}")
        return found

    def names(self, path: str) -> tuple[str, ...]:
        """What a folder holds; () where there surely is no such folder."""
        found = self.file(path)
        if not found.is_there:
            return ()
        if found.names is None:
            raise Unknowable(f"{path}: {found.why or 'its names were not read'}", f"sudo ls {path}")
        return found.names

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Paths that are there and match, sorted; Unknowable where a folder on the way could not be listed."""
        parts = pattern.split("/")
        fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
        found: list[str] = []
        for path, fact in self.files.items():
            if not path.startswith(fixed) and not fixed.startswith(path):
                continue
            steps = path.split("/")
            if len(steps) > len(parts) or not all(map(fnmatchcase, steps, parts[: len(steps)])):
                continue
            if fact.kind == "unknown" or (fact.kind == "dir" and fact.why and len(steps) < len(parts)):
                raise Unknowable(f"{path}: {fact.why}", f"sudo ls {pattern}")
            if len(steps) == len(parts) and fact.is_there:
                found.append(path)
        return tuple(sorted(found))

    def under(self, folder: str, name: str) -> tuple[str, ...]:
        """Paths at any depth below a folder whose last part matches, sorted (what a `find` need brought).

        Unknowable where none was found and not all could be looked at.
        """
        start = folder.rstrip("/") + "/"
        below = [(p, f) for p, f in self.files.items() if p == folder or p.startswith(start)]
        found = [p for p, f in below if p != folder and f.is_there and fnmatchcase(p.rsplit("/", 1)[-1], name)]
        blind = next((p for p, f in below if f.why and f.kind in ("unknown", "dir")), None)
        if not found and blind is not None:
            raise Unknowable(f"{blind}: {self.files[blind].why}", f"sudo find {folder} -name '{name}'")
        return tuple(sorted(found))

    def lines(self, path: str, pattern: str) -> tuple[Evidence, ...]:
        """Lines of a file in which the pattern is found, each with its number; () where there is no such file."""
        text = self.maybe(path)
        wanted = re.compile(pattern)
        numbered = enumerate((text or "").splitlines(), 1)
        return tuple(Evidence(f"{path}:{number}", line) for number, line in numbered if wanted.search(line))

    # -------------------------------------------------------------------------------------------------------- others

    def command(self, words: str) -> CommandFact:
        """What a program printed; Unknowable where it was not run to its end (not installed, too slow)."""
        found = self.commands.get(words)
        if found is None:
            raise NotNeededError(f"$ {words}")
        if found.code is None:
            raise Unknowable(f"{words}: {found.why}", words)
        return found

    def answer(self, name: str) -> Any:
        """An answer's JSON; Unknowable where there is none."""
        found = self.answers.get(name)
        if found is None:
            raise NotNeededError(name)
        if found.why:
            raise Unknowable(found.why, found.settle)
        return found.value

    def why_not(self, name: str) -> str:
        """Why an answer could not be had; "" where it was."""
        found = self.answers.get(name)
        if found is None:
            raise NotNeededError(name)
        return found.why

    def space(self, path: str) -> SpaceFact:
        """Room of the file system that holds a path; Unknowable where it could not be asked."""
        found = self.spaces.get(path)
        if found is None:
            raise NotNeededError(f"space {path}")
        if found.why:
            raise Unknowable(f"{path}: {found.why}", f"df {path}")
        return found

    def every(self, variable: str) -> tuple[str, ...]:
        """All values of a variable; () where it has none."""
        if variable not in VARIABLES:
            raise NotNeededError(variable)
        return self.variables.get(variable, ())

    def one(self, variable: str) -> str:
        """The only or first value of a variable; Unknowable where it has none."""
        found = self.every(variable)
        if not found:
            raise Unknowable(f"not known: {VARIABLES[variable]}")
        return found[0]
