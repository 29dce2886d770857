"""Entry point: `gpuconsole`, `python -m console`."""

from __future__ import annotations

import gc
import sys

# Imports and snapshots make many long-lived objects and few cycles: collecting after each 700 of them, as Python does
# by default, costs 5 to 10 % of the CPU and finds nothing. Before the other imports, since they gain too.
gc.set_threshold(100_000, 20, 20)

from console.cli import run  # noqa: E402


def main() -> None:
    """Run and exit with the code."""
    sys.exit(run())


if __name__ == "__main__":
    main()
