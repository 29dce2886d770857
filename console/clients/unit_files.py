"""The files of a unit on this host: where they belong, what is there, and how they are put in place and back."""

from __future__ import annotations

import hashlib
import os
import pwd
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from console.clients.commands import run
from console.clients.files import private_folder, write_private, write_whole
from console.clients.unit_text import Kind, UnitText
from console.core.model import SourceError
from console.core.text import decode, one_line

GENERATOR = "usr/lib/systemd/system-generators/podman-system-generator"
VERIFY_LIMIT = 15.0
_OTHER_FOLDERS = ("run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_LARGEST = 1024 * 1024


class Place(Struct, frozen=True):
    """Where a unit's files belong."""

    units: Path
    """Hand-written services."""
    quadlets: Path
    private: Path
    """The two files with what may be secret."""

    def file(self, base: str, kind: Kind) -> Path:
        """Of the unit itself."""
        return self.units / f"{base}.service" if kind == "service" else self.quadlets / f"{base}.container"

    def all(self, base: str, kind: Kind) -> tuple[Path, Path, Path]:
        """The unit, its environment, its secret words."""
        return self.file(base, kind), self.private / f"{base}.env", self.private / f"{base}.args"


def place(user: bool, root: Path = Path("/")) -> Place:
    """For the system, or for the caller's own systemd."""
    if not user:
        return Place(root / "etc/systemd/system", root / "etc/containers/systemd", root / "etc/gpuconsole/units")
    config = root / Path(os.path.expanduser("~")).relative_to("/") / ".config"
    return Place(config / "systemd/user", config / "containers/systemd", config / "gpuconsole/units")


def lingers(root: Path = Path("/")) -> bool:
    """True where the caller's own systemd goes on without a login (`loginctl enable-linger`)."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return (root / "var/lib/systemd/linger" / name).exists()


def content(path: Path) -> bytes | None:
    """Of a file; None where there is none. SourceError where it cannot be read, or is a link."""
    try:
        if path.is_symlink():
            raise SourceError("protocol", f"{path} is a link to {os.readlink(path)}: change that file by hand")
        return path.read_bytes()[:_LARGEST]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError("permission", f"{path} cannot be read: {error.strerror}") from error


def elsewhere(unit: str, user: bool, root: Path = Path("/")) -> Path | None:
    """A unit of this name that a package or a generator has put somewhere else."""
    folders = () if user else _OTHER_FOLDERS
    return next((path for folder in folders if (path := root / folder / unit).exists()), None)


def digest(paths: Iterable[Path]) -> str:
    """Of what is in these files now."""
    total = hashlib.sha256()
    for path in paths:
        data = content(path)
        total.update(b"-" if data is None else b"+%d:" % len(data) + data)
    return total.hexdigest()[:16]


def digest_of(texts: Iterable[str]) -> str:
    """The digest that files with these texts will have; "" = no file."""
    total = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogateescape")
        total.update(b"+%d:" % len(data) + data if data else b"-")
    return total.hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------- put in place


class KeptFile(Struct, frozen=True):
    """A file as it was; `content` None = there was none."""

    content: bytes | None
    mode: int = 0o644


class Kept(Struct, frozen=True):
    """The files of a unit before a change."""

    unit: str
    user: bool
    files: Mapping[str, KeptFile]
    """By path; the unit itself is the first."""


def keep(folder: Path, name: str, unit: str, user: bool, paths: Iterable[Path]) -> None:
    """Write what these files hold now to a private file; OSError and SourceError where that fails."""
    files = {str(path): KeptFile(content(path), _mode(path)) for path in paths}
    private_folder(folder)
    write_private(folder / f"{name}.json", msgspec.json.encode(Kept(unit, user, files)).decode())


def kept(folder: Path, name: str) -> Kept | None:
    """What was kept under a name; None where there is none."""
    if "/" in name or name.startswith("."):
        return None
    try:
        return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return 0o644


def install(path: Path, data: bytes | None, mode: int) -> None:
    """Put a file in place, whole or not at all; None takes it away. OSError where that fails."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_whole(path, data, mode)


# -------------------------------------------------------------------------------------------------------------- verify


def verify(made: UnitText, user: bool, root: Path = Path("/")) -> tuple[bool | None, str]:
    """What systemd's and Podman's own tools say about a unit's text before it is installed.

    (True, "") nothing wrong; (False, their words); (None, why it could not be asked).
    """
    with tempfile.TemporaryDirectory(prefix="gpuconsole-unit-") as folder:
        Path(folder, made.file).write_text(made.text, encoding="utf-8", errors="surrogateescape")
        scope = ["--user"] if user else []
        if made.file.endswith(".service"):
            words = ["systemd-analyze", *scope, "verify", str(Path(folder, made.file))]
        else:
            generator = str(root / GENERATOR)
            words = ["env", f"QUADLET_UNIT_DIRS={folder}", generator, *(["-user"] if user else []), "-dryrun"]
        return _said(words, made)


def _said(words: list[str], made: UnitText) -> tuple[bool | None, str]:
    try:
        answer = run(words, VERIFY_LIMIT)
    except SourceError as error:
        return None, error.message
    if answer.code == 127:
        return None, f"{words[2]} is not installed"
    # systemd-analyze loads what the unit refers to, and tells of that as well.
    about = [line for line in decode(answer.err).splitlines() if made.unit in line or made.file in line]
    faults = [line for line in about if "Loading source unit" not in line]
    if answer.code != 0 and not faults:
        return None, one_line(decode(answer.err) or f"exit code {answer.code}", 300)
    if answer.code != 0:
        return False, one_line(" · ".join(faults), 500)
    return True, one_line(" · ".join(faults), 500)
