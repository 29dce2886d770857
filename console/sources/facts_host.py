"""Which host facts are of: this one, a recorded one, or a simulated one.

A recording is a folder that stands for `/`. Nothing of this machine is asked for it: what programs printed, what
services answered and what files of a copy cannot hold (owners, labels, device numbers) stands in ROOT/BOX:

    {"wall": 1796029545.0, "host": "gpu01",
     "files": {"/dev/nvidia0": {"kind": "char", "device": [195, 0], "mode": 438}, "/run/podman": {"kind": "unknown",
               "why": "permission denied"}},          fields of FileFact, each only where the copy does not tell it
     "commands": {"dkms status": {"code": 0, "out": "..."}}, "answers": {"@nvml": {"value": {...}}},
     "spaces": {"/": {"free": 1, "total": 2, "fs": "xfs"}}}

A simulated box is a folder too, whose Podman, Triton and card answer live.
"""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from console.clients import commands
from console.clients.tree import RECORDING, Told, Tree
from console.config import Settings
from console.core.facts import AnswerFact, CommandFact, SpaceFact
from console.core.model import SourceError
from console.core.plan import WrongInput
from console.core.text import decode, one_line

BOX = f"{RECORDING}/box.json"
MAX_BOX = 64 * 1024 * 1024
"""Bytes of a recording's own file, and of a file of facts."""
MAX_OUTPUT = 256 * 1024
"""Characters kept of what a program printed."""
NOT_RECORDED = "not recorded"
_OF_SIMULATOR = ("@podman.", "@triton.", "@nvml")
_OF_FOLDER = ("@processes", "@ports", "@kernel.log", "@me")
"""Told by a simulated box (by its folder, by who runs it) where not recorded. Of a recording they are not: its /proc
is a copy of no one moment."""


class Recording(Struct, frozen=True, forbid_unknown_fields=True):
    """What ROOT/BOX holds."""

    wall: float | None = None
    host: str = ""
    files: Mapping[str, Told] = field(default_factory=dict)
    commands: Mapping[str, CommandFact] = field(default_factory=dict)
    answers: Mapping[str, AnswerFact] = field(default_factory=dict)
    spaces: Mapping[str, SpaceFact] = field(default_factory=dict)


class Host:
    """One host to look at. Any number of threads may use it."""

    def __init__(
        self,
        kind: Literal["live", "recorded", "simulated"],
        settings: Settings,
        root: str = "/",
        recording: Recording | None = None,
        nvml: Any = None,
    ) -> None:
        """`nvml` stands in for the pynvml module."""
        self.kind = kind
        self.settings = settings
        self.root = Path(root)
        self.nvml = nvml
        self.recording = recording or Recording()
        self.tree = Tree(root, None if recording is None else recording.files)

    @property
    def is_live(self) -> bool:
        """Of this machine."""
        return self.kind == "live"

    @property
    def wall(self) -> float:
        """When the box was as it is told, Unix seconds."""
        return time.time() if self.recording.wall is None else self.recording.wall

    @property
    def name(self) -> str:
        """The kernel's name of the host."""
        told = self.recording.host or (self.tree.text("/proc/sys/kernel/hostname") or "").strip()
        return one_line(told or (self.tree.text("/etc/hostname") or "").strip(), 200) or (
            socket.gethostname() if self.is_live else ""
        )

    def answer(self, name: str) -> AnswerFact | None:
        """A recorded answer; None where it is to be asked for."""
        if self.kind == "live" or (self.kind == "simulated" and name.startswith(_OF_SIMULATOR)):
            return None
        found = self.recording.answers.get(name)
        if found is None and (name == "@settings" or (self.kind == "simulated" and name in _OF_FOLDER)):
            return None
        return found or AnswerFact(why=NOT_RECORDED)

    def space(self, path: str) -> SpaceFact:
        """Room of the file system that holds a path; of a recording by the longest path told that holds it."""
        if self.is_live:
            return self.tree.space(path)
        told = self.recording.spaces
        holding = [one for one in told if path == one or path.startswith(one.rstrip("/") + "/")]
        return told[max(holding, key=len)] if holding else SpaceFact(why=NOT_RECORDED)

    def run(self, words: str, limit_s: float) -> CommandFact:
        """What a program prints; without a shell, killed at the limit."""
        if not self.is_live:
            return self.recording.commands.get(words) or CommandFact(why=NOT_RECORDED)
        try:
            argv = shlex.split(words)
        except ValueError as error:
            return CommandFact(why=f"it is no command: {error}")
        try:
            output = commands.run(argv, limit_s)
        except SourceError as error:
            return CommandFact(why=error.message)
        except (OSError, ValueError) as error:  # no room for its output, a word that cannot be an argument
            return CommandFact(why=f"{argv[0]} cannot be run: {one_line(str(error), 200)}")
        return CommandFact(output.code, decode(output.out[:MAX_OUTPUT]), decode(output.err[: MAX_OUTPUT // 8]))


# ----------------------------------------------------------------------------------------------------------- recordings


def recorded(root: str, settings: Settings) -> Host:
    """The host that a folder stands for. WrongInput where it is none, or what it holds cannot be read."""
    if not os.path.isdir(root):
        raise WrongInput(f"there is no folder {root}: --root wants one that holds a copy of a host's files")
    recording = read_recording(Path(root, BOX))
    if recording is None and not any(os.path.isdir(os.path.join(root, one)) for one in ("etc", "proc", "sys", "usr")):
        raise WrongInput(f"{root} has neither {BOX} nor any of a host's folders (etc, proc, sys, usr)")
    return Host("recorded", settings, root, recording)


def read_recording(path: Path) -> Recording | None:
    """None where there is none; WrongInput where it is broken."""
    try:
        data = bounded(path)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Recording)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongInput(f"{path} is no recording of a box: {error}") from error


def bounded(path: Path) -> bytes:
    """A whole file of the operator's; FileNotFoundError, and WrongInput for one that cannot be read or is too large."""
    try:
        if not path.is_file() and path.exists():
            raise WrongInput(f"{path} is no plain file")
        with path.open("rb") as file:
            data = file.read(MAX_BOX + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WrongInput(f"{path} cannot be read: {reason}") from error
    if len(data) > MAX_BOX:
        raise WrongInput(f"{path} is larger than {MAX_BOX // 1024 // 1024} MiB")
    return data


def of_box(settings: Settings, root: str = "/", simulated: bool = False, nvml: Any = None) -> Host:
    """The box that the console shows: this machine, or a simulated one with its folder. WrongInput as `recorded`."""
    if not simulated and root == "/":
        return Host("live", settings, nvml=nvml)
    if not simulated:
        return recorded(root, settings)
    return Host("simulated", settings, root, read_recording(Path(root, BOX)), nvml)
