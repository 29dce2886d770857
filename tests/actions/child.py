"""The console's command line with the actions of tests/actions/acts beside the real ones: run as a process of its own.

`python -m tests.actions.child ...` is `gpuconsole ...`; its runners know these actions too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from console import cli
from console.actions import detached, registry

ACTS = "tests.actions.acts"


def command(folder: Path) -> list[str]:
    """In place of detached.command."""
    return [sys.executable, "-P", "-m", "tests.actions.child", "_run", str(folder)]


def main() -> None:
    registry.PACKAGES.append(ACTS)
    detached.command = command
    sys.exit(cli.run())


if __name__ == "__main__":
    main()
