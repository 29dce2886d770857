"""The file itself: a tar in zstd with a manifest, written whole or not at all, readable by its owner alone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zstandard

from console import __version__
from console.bundle.parts import Missing, Part
from console.bundle.recorded import NAME
from console.bundle.redaction import Redaction
from console.clients.files import write_whole
from console.clients.recording import UnreadableError
from console.core.encode import to_json

SUFFIX = ".tar.zst"
SCHEMA = 1
LEVEL = 10
LARGEST = 256 << 20
"""Bytes that a bundle may have to be opened, and its recording unpacked."""


def packed(folder: str, parts: Sequence[Part], wall: float) -> bytes:
    """The tar in zstd. All lies in `folder`, so that unpacking fills no other."""
    out = io.BytesIO()
    with (
        zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).stream_writer(out, closefd=False) as zstd,
        tarfile.open(fileobj=zstd, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for part in parts:
            entry = tarfile.TarInfo(f"{folder}/{part.name}")
            entry.size, entry.mode, entry.mtime = len(part.data), 0o600, int(wall)
            tar.addfile(entry, io.BytesIO(part.data))
    return out.getvalue()


def manifest(
    parts: Sequence[Part], missing: Sequence[Missing], redactions: Sequence[Redaction], begin: float, end: float
) -> Part:
    """manifest.json: what is in it with size and sha256, what is not and why."""
    told = {
        "schema": SCHEMA,
        "gpuconsole": __version__,
        "begin": begin,
        "end": end,
        "parts": [{"name": one.name, "bytes": len(one.data), "sha256": one.sha256, "note": one.note} for one in parts],
        "missing": missing,
        "redactions": redactions,
    }
    return Part("manifest.json", msgspec.json.format(to_json(told), indent=1) + b"\n")


def redacted(redactions: Sequence[Redaction]) -> Part:
    """REDACTED.md: what was taken out, and where; never its value."""
    lines = ["# Taken out", "", "Each value became `***`; accounts in paths became `USER`.", ""]
    for one in redactions:
        times = f", {one.count} times" if one.count > 1 else ""
        where = ", ".join(place for place in one.places if place)
        lines.append(f"- {one.part}: {one.what}{times}" + (f" ({where})" if where else ""))
    if not redactions:
        lines.append("Nothing was found that had to be.")
    return Part("REDACTED.md", ("\n".join(lines) + "\n").encode("utf-8", "replace"))


def write(path: Path, data: bytes) -> None:
    """Put the file in place, mode 0600. OSError."""
    write_whole(path, data, 0o600)


def recording_of(bundle: Path, folder: Path) -> Path:
    """Unpack a bundle's recording into `folder`. OSError; UnreadableError for what is no bundle, or has none."""
    try:
        if bundle.stat().st_size > LARGEST:
            raise UnreadableError(f"{bundle} has more than {LARGEST >> 20} MiB: no bundle of gpuconsole has")
        with (
            bundle.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as zstd,
            tarfile.open(fileobj=zstd, mode="r|") as tar,
        ):
            for entry in tar:
                if not entry.isfile() or not entry.name.endswith(f"/{NAME}"):
                    continue
                content = tar.extractfile(entry)
                if content is None or entry.size > LARGEST:
                    break
                made = folder / Path(NAME).name
                made.write_bytes(content.read())
                return made
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise UnreadableError(f"{bundle} is no bundle of gpuconsole: {error}") from error
    raise UnreadableError(
        f"{bundle} holds no recording, so there is nothing to replay; SUMMARY.md in it tells the rest"
    )
