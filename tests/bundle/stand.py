"""A bundle opened elsewhere: unpacked by plain means, and what its reader asks of it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard


@dataclass(frozen=True)
class Opened:
    """The parts by name."""

    folder: str
    parts: dict[str, bytes]

    @property
    def summary(self) -> str:
        """SUMMARY.md."""
        return self.parts["SUMMARY.md"].decode()

    @property
    def manifest(self) -> Any:
        """manifest.json."""
        return json.loads(self.parts["manifest.json"])

    def everything(self) -> bytes:
        """All content, that of the recording unpacked too, and all names: where a secret would be found."""
        found = []
        for name, data in self.parts.items():
            found += [name.encode(), data]
            if name.endswith(".zst"):
                found.append(zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read())
        return b"\n".join(found)


def opened(path: Path) -> Opened:
    """Unpack it."""
    parts: dict[str, bytes] = {}
    folders = set()
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as zstd,
        tarfile.open(fileobj=zstd, mode="r|") as tar,
    ):
        for entry in tar:
            folder, _, name = entry.name.partition("/")
            folders.add(folder)
            content = tar.extractfile(entry)
            assert content is not None
            assert entry.mode == 0o600
            parts[name] = content.read()
    (folder,) = folders
    return Opened(folder, parts)
