"""Entry point: `gpuconsole`, `python -m console`."""

from __future__ import annotations

import sys

from console.cli import run


def main() -> None:
    """Run and exit with the code."""
    sys.exit(run())


if __name__ == "__main__":
    main()
