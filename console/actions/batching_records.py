"""What ran before each batching change of a model, on disk: `batching.revert` goes back to it, after a restart too.

One private file per model; it holds whole configurations, so secrets too.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from console.clients.files import write_private
from console.core.plan import Refused

FOLDER = "batching"
KEPT = 20
"""Records of one model; older ones are forgotten."""


class Kept(Struct, frozen=True):
    """A config.pbtxt that was written."""

    path: str
    backup: str
    """The old bytes."""
    had_file: bool
    before: str
    """Digest of the file before, and after."""
    after: str


class Record(Struct, frozen=True):
    """One change of a model's batching."""

    id: str
    wall: float
    model: str
    text: str
    """`delay_us 2000 → 500`."""
    before: str
    """The configuration that ran before, as an override (JSON)."""
    was_on_disk: bool
    """It was what the file says: then going back ends the override as well."""
    after: str
    """Digest of what it left live (batching_look.settings_digest)."""
    values: dict[str, str] = {}
    """Of batching.set, to do it again."""
    kept: Kept | None = None
    reverted: bool = False
    load_s: float | None = None
    trial: bool = False
    """It is on trial now: it goes back by itself unless somebody says keep."""


class Records:
    """All records of one model of one server, oldest first."""

    def __init__(self, state: Path, url: str, model: str) -> None:
        name = hashlib.sha256(f"{url}\n{model}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
        self.folder = state / FOLDER
        self._path = self.folder / f"{name}.json"

    def all(self) -> tuple[Record, ...]:
        """Refused where the file cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[Record, ...])
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            raise Refused(f"the records of earlier changes cannot be read ({self._path}: {error})") from error

    def get(self, id: str) -> Record | None:  # noqa: A002 (the word of the audit)
        """The record of this id; of "" the newest that is not reverted."""
        found = [one for one in self.all() if (one.id == id if id else not one.reverted)]
        return found[-1] if found else None

    def add(self, record: Record) -> None:
        """Write one more. Refused where that fails: without it nothing is to be changed."""
        self._write((*(one for one in self.all() if one.id != record.id), record)[-KEPT:])

    def change(self, id: str, how: Callable[[Record], Record]) -> None:  # noqa: A002
        """Write one anew."""
        self._write(tuple(how(one) if one.id == id else one for one in self.all()))

    def drop(self, id: str) -> None:  # noqa: A002
        """Forget one: its change came to nothing."""
        self._write(tuple(one for one in self.all() if one.id != id))

    def reverted(self, id: str) -> None:  # noqa: A002
        """Say that it was taken back."""
        self.change(id, lambda one: replace(one, reverted=True))

    def on_trial(self) -> Record | None:
        """The change that is on trial, or was when its runner was killed."""
        return next((one for one in reversed(self.all()) if one.trial), None)

    def accept(self, id: str, who: str) -> None:  # noqa: A002
        """Say keep to the change on trial. Refused where that cannot be written."""
        try:
            write_private(self._accepted(id), who)
        except OSError as error:
            raise Refused(
                f"the word cannot be written to {self.folder} ({error.strerror}): nothing was said"
            ) from error

    def accepted(self, id: str) -> str:  # noqa: A002
        """Who said keep; "" = nobody has."""
        try:
            return self._accepted(id).read_text("utf-8", "replace") or "somebody"
        except OSError:
            return ""

    def end_trial(self, id: str) -> None:  # noqa: A002
        """It is no longer on trial, whichever way it ended."""
        with contextlib.suppress(OSError):
            self._accepted(id).unlink()
        self.change(id, lambda one: replace(one, trial=False))

    def _accepted(self, id: str) -> Path:  # noqa: A002
        return self.folder / f"{id}.accepted"

    def _write(self, records: tuple[Record, ...]) -> None:
        try:
            write_private(self._path, msgspec.json.encode(records).decode())
        except OSError as error:
            raise Refused(f"what runs now cannot be noted in {self.folder} ({error.strerror}): nothing done") from error
