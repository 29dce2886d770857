"""A registry on loopback with one small image, for pulls: no registry can be reached from here.

With `secure` it speaks TLS with a certificate of its own, which Podman trusts through /etc/containers/certs.d.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

CERTIFICATES = Path("/etc/containers/certs.d")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest(data: bytes) -> str:
    """`sha256:...`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layer(size: int) -> bytes:
    """A gzipped tar with one file of `size` bytes that do not compress."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("data")
        entry.size = size
        tar.addfile(entry, io.BytesIO(os.urandom(size)))
    return gzip.compress(buffer.getvalue(), 1)


class Registry:
    """Serves `test/image:1`; `reference` names it."""

    def __init__(self, size: int = 1 << 20, secure: bool = False, seconds: float = 0.0) -> None:
        """`seconds`: how long a blob takes, as Podman tells bytes once a second."""
        self._pause = seconds / 20
        blob = layer(size)
        self.config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Cmd": ["true"]},
                "rootfs": {"type": "layers", "diff_ids": [digest(gzip.decompress(blob))]},
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor("application/vnd.oci.image.config.v1+json", self.config),
                "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", blob)],
            }
        ).encode()
        self.blobs = {digest(blob): blob, digest(self.config): self.config}
        self.manifests = {"1": manifest, digest(manifest): manifest}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._trusted = self._secure() if secure else None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def reference(self) -> str:
        """The image's name."""
        return f"127.0.0.1:{self._server.server_port}/test/image:1"

    def __enter__(self) -> Registry:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._trusted is not None:
            shutil.rmtree(self._trusted)

    def _secure(self) -> Path:
        """The folder that makes Podman trust this registry; it names the port, so it harms no other."""
        folder = CERTIFICATES / f"127.0.0.1:{self._server.server_port}"
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as keys:
            key = f"{keys}/key"
            words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
            words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", str(folder / "ca.crt")]
            subprocess.run(words, check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "ca.crt", key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return folder

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                kind, body = registry.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                if body is not None:
                    self.send_header("Docker-Content-Digest", digest(body))
                self.end_headers()
                if self.command == "GET":
                    registry.send(self.wfile, body or b"")

            do_HEAD = do_GET  # noqa: N815 (the name is http.server's)

            def log_message(self, *_words: object) -> None:
                pass

        return Handler

    def send(self, to: io.BufferedIOBase, body: bytes) -> None:
        """All of it, in twenty parts with pauses between."""
        step = max(1, -(-len(body) // 20))
        for at in range(0, len(body), step):
            to.write(body[at : at + step])
            if len(body) > 1000:
                time.sleep(self._pause)

    def answer(self, path: str) -> tuple[str, bytes | None]:
        """Content type and body for a path; None = 404."""
        if path == "/v2/":
            return "application/json", b"{}"
        what, _, name = path.removeprefix("/v2/test/image/").partition("/")
        if what == "manifests":
            return MANIFEST, self.manifests.get(name)
        return "application/octet-stream", self.blobs.get(name) if what == "blobs" else None


def _descriptor(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}
