"""One file out of a container, by Podman's archive endpoint: works where no mount holds it."""

from __future__ import annotations

import io
import tarfile
import threading

from console.clients.podman_stream import chunks
from console.core.model import SourceError

LIMIT_S = 10.0
MAX_FILE = 64 * 1024 * 1024


def read_file(url: str, container: str, path: str) -> bytes | None:
    """Its content; None where there is none. SourceError: unavailable, protocol (what is no file, or too large)."""
    data = bytearray()
    try:
        for chunk in chunks(url, f"/containers/{container}/archive", {"path": path}, threading.Event(), LIMIT_S):
            data += chunk
            if len(data) > MAX_FILE:
                raise SourceError("protocol", f"{path} in the container is larger than {MAX_FILE // 2**20} MiB")
    except SourceError as error:
        if "answered 404" in error.message:
            return None
        raise
    try:
        with tarfile.open(fileobj=io.BytesIO(bytes(data))) as archive:
            member = next((one for one in archive if one.isfile()), None)
            file = None if member is None else archive.extractfile(member)
            return None if file is None else file.read()
    except tarfile.TarError as error:
        raise SourceError("protocol", f"Podman's archive of {path} is not understood: {error}") from error
