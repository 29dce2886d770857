"""The console steps aside: another program has the terminal until it ends, while measuring goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

NOT_FOUND, NOT_RUN = 127, 126
"""Exit codes that a shell gives for a program that is not there or cannot be run."""


def can_step_aside(app: ConsoleApp) -> bool:
    """False where the console does not have a terminal of its own to give away."""
    return app._driver is not None and app._driver.can_suspend


async def step_aside(app: ConsoleApp, argv: Sequence[str], told: str) -> int:
    """Run `argv` with this terminal; its exit code, negative for a signal. `told` is printed first.

    The event loop goes on (readings are taken in, signals are heard), so nothing may be painted meanwhile.
    """
    with app.batch_update(), app.suspend(), _interrupts_are_not_ours(app):
        # the console draws on standard error: that is the terminal, wherever standard output goes
        print(told, file=sys.__stderr__, flush=True)
        try:
            process = await asyncio.create_subprocess_exec(*argv, stdout=sys.__stderr__)
        except OSError as error:
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
        try:
            return await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            raise


@contextmanager
def _interrupts_are_not_ours(app: ConsoleApp) -> Iterator[None]:
    """ctrl+c before or after the other program's raw mode reaches this process too, and must not end it. A handler of
    ours is not passed on to the program, as "ignore" would be."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    try:
        yield
    finally:
        app.listen_to_signals()
