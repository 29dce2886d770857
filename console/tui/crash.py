"""What happens when the console itself fails: the trace goes to a private file, the operator gets one plain line.

Textual prints a trace with local variables, which can hold tokens and passwords; ours has none.
"""

from __future__ import annotations

import io
import logging
import threading
import time
import traceback
from pathlib import Path

from rich.console import Console, RenderableType

from console.clients.files import write_private

log = logging.getLogger(__name__)
EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h."""


def log_thread(failed: threading.ExceptHookArgs) -> None:
    """`threading.excepthook`: a fault in a thread goes to the log; printed, it would tear the screen apart."""
    error = failed.exc_value
    if isinstance(error, OSError) and failed.thread is not None and failed.thread.name == "textual-output":
        return  # the terminal is lost, which the app sees by itself
    log.error("fault in thread %s", failed.thread.name if failed.thread else "?", exc_info=error)


def log_exception(error: BaseException, folder: Path) -> str:
    """Write the trace (no locals) to a file in `folder`; the one line to print."""
    trace = "".join(traceback.format_exception(error))
    return _logged(trace, f"{type(error).__name__}", folder)


def log_renderables(renderables: tuple[RenderableType, ...], folder: Path) -> str:
    """As `log_exception`, for what Textual's input thread hands over: a ready rich object."""
    console = Console(file=io.StringIO(), width=120, color_system=None)
    for renderable in renderables:
        console.print(renderable)
    file = console.file
    assert isinstance(file, io.StringIO)
    return _logged(file.getvalue(), "fault in the input thread", folder)


def _logged(trace: str, kind: str, folder: Path) -> str:
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}.log"
    try:
        write_private(path, trace)
    except OSError as error:
        return f"gpuconsole failed ({kind}) and could not write its log to {path}: {error.strerror}"
    return f"gpuconsole failed ({kind}); this is a fault of gpuconsole, its log is {path}"
