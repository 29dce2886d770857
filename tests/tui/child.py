"""A console over a made-up box in a process of its own, for tests in a real pseudo-terminal: python -m tests.tui.child.

CHILD_TROUBLE: `hang` = the session never stops; `crash` = the judge fails with a secret among its local variables.
CHILD_LOADS: port of 127.0.0.1 that loads are sent to.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from console.actions.box import BoxSpec
from console.config import Settings, Triton
from console.core.history import History
from console.core.model import Asked, Snapshot, Verdict
from console.tui.run import run
from tests.fakes.boxes import drawn_box
from tests.fakes.session import FakeSession


class FailingJudge:
    """Fails when it is asked."""

    def evaluate(self, snapshot: Snapshot, history: History, asked: Mapping[str, Asked]) -> tuple[Verdict, ...]:
        secret = "token-in-a-local-variable"
        raise ValueError(f"a fault with {len(secret)} characters")


class HangingSession(FakeSession):
    """Hangs at the end, as a driver call without a time limit would."""

    def stop(self, wait: float = 0.5) -> None:
        time.sleep(60)


def main() -> int:
    """Run it; the console's exit code."""
    trouble = os.environ.get("CHILD_TROUBLE", "")
    session = (HangingSession if trouble == "hang" else FakeSession)(drawn_box().snapshot)
    if port := os.environ.get("CHILD_LOADS"):
        # of a simulated box: what else changes this machine does not hold it up
        session.spec = BoxSpec(Settings(triton=Triton("127.0.0.1", int(port))), simulated="healthy")
    judge = FailingJudge() if trouble == "crash" else None
    return run(session, judge=judge, host="infer-01", theme="dark")


if __name__ == "__main__":
    sys.exit(main())
