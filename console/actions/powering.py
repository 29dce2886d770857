"""Starting and stopping a container while somebody watches: progress, limits, and what to wait for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from console.actions.base import Run
from console.actions.box import Box
from console.actions.target import ContainerView, is_running, models_words
from console.clients import host
from console.clients.podman_control import PodmanControl, PodmanRefusal
from console.core import podman_errors
from console.core.model import ContainerState, SourceError
from console.core.text import one_line

T = TypeVar("T")

PORT_PATIENCE = 150.0
"""Seconds: Podman's service gave back a port that it had kept after a failed start in 105 to 120 s (host.md 3.6)."""
PORT_EVERY = 2.0
BEFORE = 2.0
"""Seconds of log before a stop that are looked at too."""
SIGNAL_EVERY = 3.0
"""Seconds after which a signal that was not taken is sent again."""
_EXITING = re.compile(r"Signal \(\d+\) received|Waiting for in-flight requests|Timeout \d+: Found")
GONE_WITHIN = 10.0
MADE_WITHIN = 15.0
"""Seconds in which a unit's Podman makes its container."""
LOOK_EVERY = 0.1
TELL_EVERY = 1.0


def waited(work: Callable[[], T], run: Run, tell: Callable[[float], str]) -> T:
    """Do `work` in a thread and note `tell(seconds)` each second until it ends; raises what it raised."""
    began = time.monotonic()
    with futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not futures.wait([future], TELL_EVERY).done:
            run.note(tell(time.monotonic() - began))
        return future.result()


# --------------------------------------------------------------------------------------------------------------- stop


class Stopped(Struct, frozen=True):
    """How a stop went."""

    seconds: float
    exit_code: int | None
    """None = not told: it is gone (--rm)."""

    @property
    def words(self) -> str:
        """`stopped after 2.6 s`."""
        if self.exit_code == 137:
            return f"killed after {self.seconds:.1f} s: it had not ended by itself"
        code = "" if self.exit_code in (None, 0) else f", exit code {self.exit_code}"
        return f"stopped after {self.seconds:.1f} s{code}"


def stop(box: Box, view: ContainerView, state: ContainerState, seconds: int, run: Run) -> Stopped:
    """Stop it through its unit where it has one, else through Podman; note what it waits for."""
    began = time.monotonic()
    if state.unit:
        through_unit(box, view, state, "stop", run)
    else:
        control, again = box.podman(), _Again(box, view, state)
        try:
            waited(lambda: control.stop(state.id, seconds), run, lambda spent: again.told(spent, seconds))
        finally:
            control.close()
            again.close()
    after = _when_gone(view) if state.auto_remove and not state.unit else view.state()
    return Stopped(time.monotonic() - began, after.exit_code if after is not None else None)


def _when_gone(view: ContainerView) -> ContainerState | None:
    """Podman removes one made with --rm a moment after its stop has been answered."""
    deadline = time.monotonic() + GONE_WITHIN
    while (state := view.state()) is not None and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
    return state


class _Again:
    """Sends SIGTERM once more to a server that did not take it.

    As process 1 of its container Triton loses a signal that comes before it has set its handler: one that was told to
    stop while it started was seen to serve on until it was killed, the whole time limit later.
    """

    def __init__(self, box: Box, view: ContainerView, state: ContainerState) -> None:
        self._view = view
        self._name = state.id
        self._since = time.time() - BEFORE
        self._is_triton = state.exit_timeout is not None
        self._control = box.podman()
        self._next = SIGNAL_EVERY
        self._told_before = self._exiting()

    def close(self) -> None:
        """Let the connection go."""
        self._control.close()

    def told(self, spent: float, seconds: int) -> str:
        """What it waits for; the signal again where the log does not tell that it was taken."""
        if spent < self._next or not self._is_triton or self._taken():
            return _draining(self._view, spent, seconds)
        self._next = spent + SIGNAL_EVERY
        try:
            self._control.kill(self._name, "SIGTERM")
        except SourceError as error:
            return f"{spent:.0f} s of {seconds}: {one_line(error.message, 200)}"
        return f"{spent:.0f} s of {seconds}: it did not take SIGTERM (it was starting): sent again"

    def _taken(self) -> bool:
        return self._exiting() > self._told_before

    def _exiting(self) -> int:
        """Lines of an exit in the log's end; Podman 4 tells whole seconds, so those of a run before may be among."""
        return sum(1 for line in self._view.log(self._since) if _EXITING.search(line.text))


def through_unit(box: Box, view: ContainerView, state: ContainerState, verb: str, run: Run) -> None:
    """systemctl `verb` of the owning unit; SourceError as Systemd.act tells it."""
    systemd, user, unit = box.systemd(), box.unit_of_user, state.unit or ""
    if verb == "start":
        waited(lambda: systemd.act(unit, "start", user), run, lambda spent: f"{spent:.0f} s: systemctl start {unit}")
    elif verb == "stop":
        waited(lambda: systemd.act(unit, "stop", user), run, lambda spent: _draining(view, spent, None))
    else:
        waited(lambda: systemd.act(unit, "restart", user), run, lambda spent: _draining(view, spent, None))


def make_by_unit(box: Box, view: ContainerView, unit: str, user: bool, run: Run) -> ContainerState:
    """systemctl start of a unit that makes the container, and what it made; restart where systemd takes the unit for
    active, as then a start does nothing. SourceError where no such container is there afterwards."""
    systemd = box.systemd()
    told = systemd.show(unit, ("ActiveState",), user)
    verb: Literal["start", "restart"] = "restart" if told.get("ActiveState") == "active" else "start"
    waited(lambda: systemd.act(unit, verb, user), run, lambda spent: f"{spent:.0f} s: systemctl {verb} {unit}")
    # of a unit of Type=simple the start ends before Podman has made anything
    until = time.monotonic() + MADE_WITHIN
    while (state := view.state() or container_of_unit(box, unit)) is None:
        if time.monotonic() > until:
            raise SourceError(
                "unavailable", f"{unit} was started, but no container of it is there", f"see journalctl --unit {unit}"
            )
        time.sleep(LOOK_EVERY)
    return state


def container_of_unit(box: Box, unit: str) -> ContainerState | None:
    """The Triton container, where it is this unit's."""
    found = box.podman_state().container
    return found if found is not None and found.unit == unit else None


def _draining(view: ContainerView, spent: float, seconds: int | None) -> str:
    limit = "" if seconds is None else f" of {seconds}"
    waiting = view.waiting()
    queue = "its metrics answer no more" if waiting is None else f"{waiting} requests wait in queues"
    last = next((line.text for line in reversed(view.log(None, 3)) if line.text.strip()), "")
    said = f"; log: {one_line(last, 120)}" if last else ""
    return f"{spent:.0f} s{limit}: {queue}{said}"


# -------------------------------------------------------------------------------------------------------------- start


def start(control: PodmanControl, name: str, ports: Iterable[int], run: Run, root: Path = Path("/")) -> None:
    """Start, and try again while Podman's own service holds a published port (for PORT_PATIENCE at most).

    PodmanRefusal with the reason where it cannot be started; a port that another program has is told at once.
    """
    deadline = time.monotonic() + PORT_PATIENCE
    while True:
        try:
            control.start(name)
        except PodmanRefusal as refusal:
            if not podman_errors.is_port_in_use(refusal.text) or time.monotonic() > deadline:
                raise
            holder = port_holder(ports, root)
            if holder and "podman" not in holder:
                raise PodmanRefusal(refusal.status, f"{refusal.text} (it is {holder})") from refusal
            left = deadline - time.monotonic()
            run.note(f"a port is still held by {holder or 'Podman itself'}: trying again for {left:.0f} s")
            if run.wait(PORT_EVERY):
                raise
        else:
            return


def port_holder(ports: Iterable[int], root: Path = Path("/")) -> str:
    """`nginx (pid 812)`: who listens on one of these TCP ports; "" where nobody is seen."""
    for port in ports:
        pid = host.listener(port, root)
        process = None if pid is None else host.process(pid, root)
        if process is not None:
            return f"{one_line(process.name, 60)} (pid {pid}) on port {port}"
    return ""


def published(state: ContainerState) -> tuple[int, ...]:
    """Host ports that it publishes by TCP."""
    return tuple(port.host_port for port in state.ports if port.protocol == "tcp")


# -------------------------------------------------------------------------------------------------------- ready again


class Readiness(Struct, frozen=True):
    """What came of waiting for the models."""

    ready: frozenset[tuple[str, str]]
    missing: frozenset[tuple[str, str]]
    seconds: float
    lines: tuple[str, ...] = ()
    """Why, from the log, where something is missing."""
    ended: bool = False
    """Its process ended meanwhile."""
    cancelled: bool = False

    @property
    def good(self) -> bool:
        """Everything that was READY is READY again."""
        return not self.missing and not self.ended and not self.cancelled

    @property
    def words(self) -> str:
        """`3 READY again after 2.1 s`."""
        if self.cancelled:
            return "stopped by the operator before all was READY"
        if self.ended:
            return f"its process ended after {self.seconds:.1f} s"
        if self.missing:
            return f"not READY after {self.seconds:.0f} s: {models_words(self.missing)}"
        return f"{len(self.ready)} READY after {self.seconds:.1f} s"


def wait_ready(
    box: Box, view: ContainerView, wanted: frozenset[tuple[str, str]], run: Run, limit: float, *, cancels: bool = True
) -> Readiness:
    """Wait until all of `wanted` is READY (where that is empty: until Triton answers), its process ends, the operator
    stops it (but without `cancels`), or `limit` seconds have passed. The server's ready flag is told and never waited
    on.

    In explicit mode models that `--load-model` does not name come back by nobody: these are loaded here.
    """
    began = time.monotonic()
    state = view.state()
    if state is None:  # made with --rm, it ended at once and took itself away
        return Readiness(frozenset(), wanted, time.monotonic() - began, ended=True)
    asked: set[str] = set()
    told = 0.0
    ready: frozenset[tuple[str, str]] = frozenset()
    while True:
        spent = time.monotonic() - began
        answers, ready = _looked(view)
        if answers and wanted <= ready:
            return Readiness(ready, frozenset(), spent)
        if not is_running(view.state()):
            return Readiness(ready, wanted - ready, spent, view.last_words(state.started_wall), ended=True)
        if answers and state.control_mode == "explicit":
            _load_missing(box, view, wanted - ready, asked, run)
        if spent > limit:
            return Readiness(ready, wanted - ready, spent, view.last_words(state.started_wall))
        if spent - told >= TELL_EVERY:
            told = spent
            run.note(_progress(view, ready, wanted, spent, limit))
        if not cancels:
            time.sleep(LOOK_EVERY)
        elif run.wait(LOOK_EVERY):
            return Readiness(ready, wanted - ready, spent, cancelled=True)


def _looked(view: ContainerView) -> tuple[bool, frozenset[tuple[str, str]]]:
    try:
        return True, view.ready()
    except SourceError:
        return False, frozenset()


def _progress(
    view: ContainerView,
    ready: frozenset[tuple[str, str]],
    wanted: frozenset[tuple[str, str]],
    spent: float,
    limit: float,
) -> str:
    flag = view.server_ready()
    lamp = "Triton does not answer yet" if flag is None else f"server's ready flag {flag}"
    count = f"{len(wanted & ready)} of {len(wanted)} READY" if wanted else f"{len(ready)} READY"
    return f"{count}, {lamp}, {spent:.0f} s of {limit:.0f}"


def _load_missing(
    box: Box, view: ContainerView, missing: frozenset[tuple[str, str]], asked: set[str], run: Run
) -> None:
    """Ask once for each model that nobody loads. Those that the server is busy with are LOADING and left alone."""
    from console.clients.triton_control import TritonControl

    busy = _busy(view)
    for name in sorted({name for name, _ in missing} - asked - busy):
        asked.add(name)
        run.note(f"{one_line(name, 80)} is not loaded: loading it")
        box.changing()
        try:
            TritonControl(view.address()).begin_load(name, None, box.settings.actions.load_timeout)
        except SourceError as error:
            run.note(f"{one_line(name, 80)}: {error.message}")


def _busy(view: ContainerView) -> set[str]:
    from console.sources.triton import IndexSource

    source = IndexSource(view.address)
    source.open()
    try:
        return {entry.name for entry in source.read().entries if entry.state in ("LOADING", "UNLOADING")}
    except SourceError:
        return set()
    finally:
        source.close()
