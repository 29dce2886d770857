"""What can go wrong with one request, by kind. Triton's own counters miss most of these (domain facts, trap 17)."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from msgspec import Struct

from console.core.text import one_line

REFUSED = "refused"
"""Nothing listens there (any more)."""
UNREACHABLE = "cannot connect"
CLOSED = "closed without an answer"
TIMEOUT = "timeout"
NOT_HTTP = "no HTTP answer"
WRONG = "wrong content"
"""200, but an output is missing, empty, of another form, or not the kept one."""
CUT = "cut off at the end"
"""Still without an answer when the run was stopped."""
NEVER_SENT = "never sent"
"""Due, but no connection was free by a time-out after the end: the most that one run may have were all waiting."""
SHED = ("http 429", "http 503")
"""The server turned it away."""
SAMPLE = 300
"""Characters of the first text of a kind."""


class Failed(Struct, frozen=True):
    """Errors of one kind."""

    count: int
    text: str = ""
    """The first one's words."""


def of_status(status: int) -> str:
    """The kind of an answer that is not 200."""
    return f"http {status}"


def of_socket(number: int | None) -> str:
    """The kind of a failed connect, by its errno."""
    if number == errno.ECONNREFUSED:
        return REFUSED
    if number in (errno.ECONNRESET, errno.EPIPE):
        return CLOSED
    return TIMEOUT if number == errno.ETIMEDOUT else UNREACHABLE


def counted(errors: Mapping[str, Failed], kind: str, text: str = "") -> dict[str, Failed]:
    """`errors` with one more of `kind`."""
    old = errors.get(kind)
    new = Failed(1, one_line(text, SAMPLE)) if old is None else Failed(old.count + 1, old.text)
    return {**errors, kind: new}


def total(errors: Mapping[str, Failed]) -> int:
    """All errors."""
    return sum(failed.count for failed in errors.values())
