"""The parts of a bundle: bounded, less secrets, and beside them what could not be had and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from console.bundle.redaction import Redactor
from console.core.encode import to_json
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line

MIB = 1 << 20
TEXT_LIMIT = 8 * MIB
JSON_LIMIT = 32 * MIB
RECORDING_LIMIT = 64 * MIB
FILE_LIMIT = 256 * 1024
"""Of one configuration."""


class Part(Struct, frozen=True):
    """One file of the bundle."""

    name: str
    data: bytes
    note: str = ""
    """What of it is not there."""

    @property
    def sha256(self) -> str:
        """Of its content."""
        return sha256(self.data).hexdigest()


class Missing(Struct, frozen=True):
    """What could not be had."""

    what: str
    why: str


class Parts:
    """Collects parts. Each text goes through the redactor twice: as it comes, and once all were seen."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.missing: list[Missing] = []
        self._texts: dict[str, tuple[str, str]] = {}
        self._bytes: list[Part] = []

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """What cannot be read within becomes a line of what is missing."""
        try:
            yield
        except SourceError as error:
            hint = f"; {error.hint}" if error.hint else ""
            self.lacks(what, f"{error.message}{hint}")
        except (Refused, WrongInput) as error:
            self.lacks(what, str(error))
        except OSError as error:
            self.lacks(what, f"{error.strerror or error}")

    def lacks(self, what: str, why: str) -> None:
        """Something is not in the bundle."""
        self.missing.append(Missing(what, self.redactor.text("what is missing", one_line(why, 400))))

    def text(
        self, name: str, text: str, *, path: str = "", limit: int = TEXT_LIMIT, tail: bool = False, note: str = ""
    ) -> None:
        """A text; of one that is too long its beginning, or its end where `tail`."""
        if len(text) > limit:
            which = "last" if tail else "first"
            note = f"the {which} {limit // 1024} KiB of {len(text) // 1024} KiB"
            text = text[-limit:] if tail else text[:limit]
            cut = text.partition("\n")[2] if tail else text.rpartition("\n")[0]  # no half of a line, nor of a secret
            text = cut or text
        self.clean(name, self.redactor.text(name, text, path), note)

    def clean(self, name: str, text: str, note: str = "") -> None:
        """A text that the redactor has been over once."""
        self._texts[name] = (text, note)

    def json(self, name: str, value: Any, *, by_names: bool = True, limit: int = JSON_LIMIT) -> None:
        """Data as JSON; what is too large is left out and said. Not `by_names` where keys are paths, not names."""
        plain = msgspec.json.decode(to_json(value))
        clean = self.redactor.json(name, plain) if by_names else self.redactor.strings(name, plain)
        text = msgspec.json.format(to_json(clean), indent=1).decode("utf-8", "replace")
        if len(text) > limit:
            self.lacks(name, f"it has {len(text) // MIB} MiB, more than {limit // MIB}")
            return
        self._texts[name] = (text, "")

    def lines(self, name: str, values: list[Any], *, limit: int = TEXT_LIMIT) -> None:
        """Data as lines of JSON; the newest where there are too many."""
        kept: list[bytes] = []
        size = 0
        for value in reversed(values):
            line = to_json(self.redactor.json(name, msgspec.json.decode(to_json(value))))
            size += len(line) + 1
            if size > limit:
                break
            kept.append(line)
        note = f"the last {len(kept)} of {len(values)}" if len(kept) < len(values) else ""
        self._texts[name] = (b"\n".join([*reversed(kept), b""]).decode("utf-8", "replace"), note)

    def raw(self, name: str, data: bytes, note: str = "") -> None:
        """Bytes that the redactor has been over already."""
        self._bytes.append(Part(name, data, note))

    def done(self) -> list[Part]:
        """All parts, by name."""
        made = [
            Part(name, self.redactor.again(name, text).encode("utf-8", "replace"), note)
            for name, (text, note) in self._texts.items()
        ]
        return sorted([*made, *self._bytes], key=lambda part: part.name)
