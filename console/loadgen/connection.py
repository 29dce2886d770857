"""One kept HTTP/1.1 connection over a raw non-blocking socket: one request at a time, its answer taken apart."""

from __future__ import annotations

import errno
import os
import socket

from console.loadgen import errors
from console.loadgen.answers import MOST_HEAD, Head, NotHttpError, parse_head

CHUNK = 65536
_HEADS: dict[bytes, Head] = {}
_MOST_HEADS = 256
_END = b"\r\n\r\n"


class BrokenError(Exception):
    """The connection is of no more use; `kind` as in errors.py."""

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(text or kind)
        self.kind = kind
        self.text = text


class Connection:
    """Its owner waits for its descriptor; nothing here blocks."""

    __slots__ = ("_data", "_out", "busy", "connecting", "due", "fd", "model", "sent", "sock")

    def __init__(self, address: str, port: int) -> None:
        """Begins to connect. BrokenError where even that fails."""
        self.busy = False
        self.due = 0
        """Intended time of the request under way, ns."""
        self.model = 0
        """Which of the order's models it asks."""
        self.sent = 0
        """When its first byte went out; 0 before."""
        self._data = b""
        self._out = memoryview(b"")
        try:
            self.sock = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK
            )
        except OSError as error:
            raise BrokenError(errors.of_socket(error.errno), error.strerror or "") from error
        self.fd = self.sock.fileno()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = self.sock.connect_ex((address, port))
        self.connecting = number == errno.EINPROGRESS
        if number not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise BrokenError(errors.of_socket(number), os.strerror(number))

    @property
    def wants_to_write(self) -> bool:
        """True while it connects, or has bytes that the socket did not take."""
        return self.connecting or bool(self._out)

    def begin(self, request: bytes, due: int, now: int, model: int = 0) -> None:
        """Take a request; send it, or what the socket takes of it, unless it still connects. BrokenError."""
        self.busy = True
        self.due = due
        self.model = model
        self.sent = 0
        self._data = b""
        if self.connecting:
            self._out = memoryview(request)
            return
        self.sent = now
        try:
            taken = self.sock.send(request)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            raise BrokenError(errors.of_socket(error.errno), error.strerror or "") from error
        if taken < len(request):
            self._out = memoryview(request)[taken:]

    def writable(self, now: int) -> None:
        """The socket takes bytes again, or has connected. BrokenError."""
        if self.connecting:
            number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise BrokenError(errors.of_socket(number), os.strerror(number))
            self.connecting = False
        if not self._out:
            return
        self.sent = self.sent or now
        try:
            self._out = self._out[self.sock.send(self._out) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise BrokenError(errors.of_socket(error.errno), error.strerror or "") from error

    def readable(self) -> tuple[Head, bytes] | None:
        """Head and body when the answer is whole, else None. BrokenError, also for an idle one that was closed."""
        try:
            chunk = self.sock.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError as error:
            raise BrokenError(errors.of_socket(error.errno), error.strerror or "") from error
        if not chunk:
            raise BrokenError(errors.CLOSED)
        if not self.busy:
            raise BrokenError(errors.NOT_HTTP, "an answer to nothing")
        data = self._data + chunk if self._data else chunk
        end = data.find(_END)
        if end < 0:
            if len(data) > MOST_HEAD:
                raise BrokenError(errors.NOT_HTTP, "its head has no end")
            self._data = data
            return None
        head = self._head(data[:end])
        size = end + 4 + head.length
        if len(data) < size:
            # A long body is put together at its end: joining each chunk to all before would take its square.
            self._data = data if size - len(data) <= CHUNK else self._long(data, size)
            return None if len(self._data) < size else self._whole(head, self._data, end)
        if len(data) > size:
            raise BrokenError(errors.NOT_HTTP, "more came than the answer's length says")
        return self._whole(head, data, end)

    def _whole(self, head: Head, data: bytes, end: int) -> tuple[Head, bytes]:
        self.busy = False
        self._data = b""
        return head, data[end + 4 :]

    def _long(self, data: bytes, size: int) -> bytes:
        """As much of a long answer as is there now."""
        parts = [data]
        have = len(data)
        while have < size:
            try:
                chunk = self.sock.recv(min(size - have, 16 * CHUNK))
            except OSError:  # nothing more for now; an error comes again with the next event
                break
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        return b"".join(parts)

    @staticmethod
    def _head(raw: bytes) -> Head:
        found = _HEADS.get(raw)
        if found is None:
            try:
                found = parse_head(raw)
            except NotHttpError as reason:
                raise BrokenError(errors.NOT_HTTP, str(reason)) from reason
            if len(_HEADS) >= _MOST_HEADS:
                _HEADS.clear()
            _HEADS[raw] = found
        return found

    def close(self) -> None:
        """Let it go."""
        self.sock.close()
