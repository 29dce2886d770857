"""`python -m console.simulator --scene S --seed N --dir DIR`: run the simulated box in this process."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from console.simulator.process import SimulatorProcess
from console.simulator.scenes import SCENES, Scene, many_models


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(os.EX_USAGE, f"gpuconsole simulator: {message}\n")


def parse(arguments: Sequence[str]) -> tuple[Scene, argparse.Namespace]:
    """Read the command line; wrong usage is one sentence and exit code 64."""
    parser = _Parser(prog="python -m console.simulator", description=__doc__)
    parser.add_argument("--scene", choices=list(SCENES), default="healthy")
    parser.add_argument("--seed", type=int, default=0, help="fixes the event sequence in simulated time")
    parser.add_argument("--dir", type=Path, required=True, help="an existing folder for sockets and state files")
    parser.add_argument("--models", type=int, default=0, help="serve this many small models instead of the scene's")
    parser.add_argument("--stepped", action="store_true", help="time moves only by lines `step SECONDS` on stdin")
    options = parser.parse_args(arguments)
    if not options.dir.is_dir():
        parser.error(f"{options.dir} is not a folder: --dir wants an existing one")
    scene = SCENES[options.scene]
    if options.models:
        scene = replace(scene, models=many_models(options.models), ensembles=())
    return scene, options


def main() -> None:
    """Run until the parent goes or a signal says so."""
    scene, options = parse(sys.argv[1:])

    async def run() -> None:
        await SimulatorProcess(scene, seed=options.seed, folder=options.dir.resolve(), stepped=options.stepped).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
