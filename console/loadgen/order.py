"""What is said between the one who starts a load and the process that sends it: JSON, a line each.

To the sender: one Order, then the words `go` (begin to measure) and `stop`. The end of its input means that whoever
started it has gone: it ends at once. From the sender: Warmed once, a Progress a second, and Ended or Broken last.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from console.core.golden import Golden
from console.loadgen.record import Client
from console.loadgen.schedule import Load

GO: Final = b"go\n"
STOP: Final = b"stop\n"
MOST_CONNECTIONS: Final = 1024
TIMEOUT_S: Final = 30.0
MAX_ERRORS: Final = 0.01
"""Share of requests that may fail before a run stops itself."""
FEW_ERRORS: Final = 20
"""As many may fail in any case."""
DRAIN_STOPPED_S: Final = 1.0
"""How long a run that was stopped waits for answers to what it has sent."""


class Asked(Struct, frozen=True):
    """One model that the load asks, and how its answers are checked."""

    requests: tuple[bytes, ...]
    """Whole HTTP requests, sent in turn."""
    outputs: tuple[tuple[str, str], ...]
    """Name and datatype of what each answer must hold."""
    golden: Golden | None = None
    """Each answer must be this one's."""
    share: float = 1.0
    """Of all requests; the shares of an order's models sum to 1."""


class Order(Struct, frozen=True):
    """All that a sender is to know. Holds secrets (headers within requests): it goes through a pipe, never a file."""

    address: str
    """An IP address."""
    port: int
    models: tuple[Asked, ...]
    load: Load
    warm_up: Load | None
    timeout_s: float = TIMEOUT_S
    max_errors: float = MAX_ERRORS
    max_connections: int = MOST_CONNECTIONS


class Warmed(Struct, frozen=True, tag="warmed"):
    """Connections are open, the warm-up is over and answered; `go` is awaited."""

    done: int
    errors: int
    connections: int
    answered: tuple[int, ...] = ()
    """Requests that came to an end, by model as in the order."""


class Progress(Struct, frozen=True, tag="progress"):
    """How far it is."""

    at: float
    """Seconds since the beginning of the measured part; negative within the warm-up: as long as that still takes."""
    sent: int
    done: int
    errors: int
    late: int
    in_flight: int
    waiting: int
    """Due, but without a free connection."""
    rate: float
    """Good answers a second, within the last second."""
    p50: float | None
    p99: float | None
    """ms, likewise."""
    monotonic: float = 0.0
    """When this was so, by the clock that all processes share."""
    answered: tuple[int, ...] = ()
    """Requests of this part that came to an end, by model as in the order."""


class Ended(Struct, frozen=True, tag="ended"):
    """It is over."""

    client: Client
    ended: str
    """duration, count, stopped, or why it stopped itself."""
    began: float
    """When its measured part began, by the wall clock."""


class Broken(Struct, frozen=True, tag="broken"):
    """It could not begin."""

    text: str


Message = Warmed | Progress | Ended | Broken

encoder = msgspec.json.Encoder()
orders = msgspec.json.Decoder(Order)
messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def request(path: str, where: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A whole HTTP/1.1 POST to `host:port`, as it goes to the socket."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {where}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
