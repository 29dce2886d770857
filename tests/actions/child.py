"""The console's command line with the actions of tests/actions/acts beside the real ones: run as a process of its own.

`python -m tests.actions.child ...` is `gpuconsole ...`; its runners know these actions too.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from console import cli
from console.actions import detached, journal, lock, registry

ACTS = "tests.actions.acts"
LOCKS = "TEST_LOCKS"
"""The variable that names a folder in place of /dev/shm, so that no test waits for another one's lock."""


def command(folder: Path) -> list[str]:
    """In place of detached.command."""
    return [sys.executable, "-P", "-m", "tests.actions.child", "_run", str(folder)]


def main() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test run that nohup started hands it on as ignored
    registry.PACKAGES.append(ACTS)
    detached.command = command
    if LOCKS in os.environ:
        lock.FOLDERS = (Path(os.environ[LOCKS]),)
        journal.SPARE = Path(os.environ[LOCKS])
    sys.exit(cli.run())


if __name__ == "__main__":
    main()
