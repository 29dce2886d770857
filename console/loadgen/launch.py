"""Starts a sender's process and talks with it. It ends with this one, however this one ends."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from types import TracebackType

import msgspec

from console.clients.aside import started
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line
from console.loadgen.order import GO, STOP, Message, Order, encoder, messages

READ_ONLY = "read-only: no load is sent; start gpuconsole without --read-only (settings: [safety])"
REMOTE = "--remote-host-is-meant"
ENDS_WITHIN_S = 5.0
SILENT_S = 120.0
"""A sender that says nothing for this long beyond its time-out is given up."""


def resolve(host: str, port: int, what: str, *, remote: bool) -> str:
    """The IP address of a host; WrongInput for one that is not this machine unless that is meant, or has no address.

    `what` says what would be sent there.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise WrongInput(f"the name {one_line(host, 80)} cannot be resolved; see --host") from error
    address = str(found[0][4][0])
    if not remote and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise WrongInput(
            f"{one_line(host, 80)} is another host ({address}), which would get {what}: add {REMOTE} if it is meant"
        )
    return address


class Sender:
    """One process; use it as a context, at the end of which it is gone."""

    def __init__(self, order: Order, *, read_only: bool) -> None:
        """Refused in read-only mode: this is the second guard, where the process would be started."""
        if read_only:
            raise Refused(READ_ONLY)
        self._patience = order.timeout_s + SILENT_S
        self._rest = b""
        self._process = started("console.loadgen.sender")
        try:
            self._say(encoder.encode(order) + b"\n")
        except OSError as error:
            self.close()
            raise SourceError("bug", "the process that sends the load ended at once") from error

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def go(self) -> None:
        """Begin to measure."""
        with contextlib.suppress(OSError):
            self._say(GO)

    def stop(self) -> None:
        """Send no more; what was measured until now is told."""
        with contextlib.suppress(OSError):
            self._say(STOP)

    def messages(self) -> Iterator[Message]:
        """Each one as it comes. SourceError where it falls silent or ends without its last word."""
        while True:
            yield self._message()

    def _message(self) -> Message:
        deadline = time.monotonic() + self._patience
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise SourceError("timeout", "the process that sends the load says nothing; it was ended")
            part = os.read(pipe, 1 << 20)
            if not part:
                raise SourceError("bug", "the process that sends the load ended without a result")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return messages.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError("bug", "the process that sends the load said what is no message") from error

    def close(self) -> None:
        """End it: the end of its input tells it to, and it is killed where it does not."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, words: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(words)
        self._process.stdin.flush()
