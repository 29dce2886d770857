"""One container as the target of a change: fresh looks at it by its name, whatever else runs on the box.

The console finds "the Triton container" by its marks; while that one is stopped, another one would be found. So an
action looks its target up by name, and asks Triton where this container publishes its ports.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

from msgspec.structs import replace

from console.actions.box import Box
from console.clients import libpod
from console.clients.podman import Podman
from console.clients.podman_stream import recent_log
from console.clients.proc import established
from console.clients.triton import TritonAddress, server_http
from console.core.model import ContainerState, LogLine, SourceError, TritonMetrics
from console.core.plan import Refused, WrongInput
from console.core.text import one_line
from console.core.triton_log import LineReader
from console.sources.locator import Locator
from console.sources.triton import IndexSource, MetricsSource

LOG_LIMIT = 2.0
STARTED = "Started HTTPService"
"""What Triton logs when it has loaded its models and begins to answer."""
ANSWERS_WITHIN = 15.0
"""Seconds: all of its clients come back to a new server at once, and one look among them may be late."""
_MOST_LINES = 2000
_TELLING = re.compile(r"error|unrecognized|invalid|no such|cannot|failed|denied|killed", re.IGNORECASE)
"""What ends a server before its log has levels: an unknown flag, a missing library."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_HEALTHY_STATES = ("running", "paused", "stopping")


class ContainerView:
    """Looks at one container. For one thread; a context manager."""

    def __init__(self, box: Box, name: str) -> None:
        self.box = box
        self.name = name
        self._podman = Podman(box.podman_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._podman.close()

    # -------------------------------------------------------------------------------------------------------- Podman

    def state(self) -> ContainerState | None:
        """It as Podman inspects it now; None where there is none of this name. With its unit where that is known."""
        answer = self._podman.inspect(self.name)
        if answer is None:
            return None
        state = libpod.container_state(answer, "name")
        found = self.box.podman_state().container
        if found is not None and found.id == state.id:
            return replace(state, unit=found.unit, unit_origin=found.unit_origin)
        return state

    def known(self) -> ContainerState:
        """The same; WrongInput where there is none."""
        state = self.state()
        if state is None:
            raise WrongInput(f"there is no container {one_line(self.name, 80)} here; podman ps --all lists them")
        return state

    def inspect(self) -> dict[str, Any] | None:
        """Podman's whole answer, secrets and all: not to be shown; None where there is none of this name."""
        return self._podman.inspect_all(self.name)

    def image(self, reference: str) -> dict[str, Any] | None:
        """An image's whole inspect answer; None where it is not on this box."""
        return self._podman.image_all(reference)

    def log(self, since: float | None, most: int | None = None) -> list[LogLine]:
        """Its log since a time (Unix seconds), or its last lines; empty where Podman gives none."""
        reader = LineReader()
        start = None if since is None else int(since)
        try:
            raw = recent_log(self._podman.url, self.name, most, start, LOG_LIMIT)
        except SourceError:
            return []
        return [line for one in raw[-_MOST_LINES:] for line in reader.read(one)]

    def last_words(self, since: float | None, count: int = 6) -> tuple[str, ...]:
        """Why it ended, as far as its log tells: the last errors, else the last lines."""
        lines = [line for line in self.log(since) if line.text.strip()]
        errors = [line for line in lines if line.level in ("E", "F")]
        # Before the log has levels an error stands in front of pages of usage: its first lines tell, not its last.
        early = [line for line in lines if _TELLING.search(line.text)] if not any(line.level for line in lines) else []
        telling = early[:count] or (errors or lines)[-count:]
        return tuple(one_line(line.text, 300) for line in telling)

    def serving_after(self, state: ContainerState) -> float | None:
        """Seconds from its last start until Triton answered; None where its log does not tell (it may be gone)."""
        if state.started_wall is None:
            return None
        told = (line for line in self.log(state.started_wall) if STARTED in line.text and line.wall)
        first = next(told, None)
        return None if first is None or first.wall is None else max(0.0, first.wall - state.started_wall)

    # -------------------------------------------------------------------------------------------------------- Triton

    def address(self) -> TritonAddress:
        """Where this container's Triton answers: as the settings say, else on the ports that it publishes."""
        return Locator(self.box.settings, self.state).address()

    def ready(self) -> frozenset[tuple[str, str]]:
        """(model, version) of all that is READY; SourceError when Triton does not answer."""
        source = IndexSource(self.address)
        source.open()
        try:
            entries = source.read().entries
        finally:
            source.close()
        return frozenset((entry.name, entry.version or "") for entry in entries if entry.state == "READY")

    def answers(self, within: float = ANSWERS_WITHIN) -> bool:
        """Whether Triton answers there at all, asked again for `within` seconds."""
        ends = time.monotonic() + within
        while True:
            try:
                self.ready()
            except SourceError:
                if time.monotonic() > ends:
                    return False
                time.sleep(0.5)
            else:
                return True

    def server_ready(self) -> int | None:
        """The status of /v2/health/ready; None when nobody answers. Shown, never waited on (triton.md 1.9)."""
        http = server_http(self.address())
        try:
            return http.get("/v2/health/ready").status
        except SourceError:
            return None
        finally:
            http.close()

    def metrics(self) -> TritonMetrics | None:
        """The metrics page; None where there is none."""
        source = MetricsSource(self.address)
        try:
            source.open()
            return source.read()
        except SourceError:
            return None
        finally:
            source.close()

    def waiting(self) -> int | None:
        """Requests that wait in the models' queues now; None where the server does not tell."""
        page = self.metrics()
        told = [one.pending for one in page.models if one.pending is not None] if page is not None else []
        return int(sum(told)) if told else None

    def connections(self, state: ContainerState) -> int | None:
        """HTTP connections that clients, this console too, have open now; None where it cannot be told."""
        if state.pid is None:
            return None
        outside = self.address().http_port
        inside = next((one.container_port for one in state.ports if one.host_port == outside), outside)
        return established(state.pid, inside, self.box.root)


def chosen_name(box: Box, target: str) -> str:
    """The name of the container that is meant, the Triton container's where `target` is empty.

    Podman takes the beginning of an id for a name too. What is acted upon is called by its own name, so that the plan
    names it, the name that is typed is its own, and what is made anew is called as it was.
    """
    if not target:
        return box.container().name
    with ContainerView(box, plain_name(target)) as view:
        found = view.state()
    return target if found is None else found.name


def plain_name(text: str) -> str:
    """A name as Podman allows it; WrongInput for any other, which would become another path of its API."""
    if not _NAME.fullmatch(text):
        raise WrongInput(
            f"{one_line(text, 80)!r} is no name of a container: letters, digits and _ . - only, a letter or digit first"
        )
    return text


def is_another(state: ContainerState | None, made_for: Mapping[str, str]) -> bool:
    """True where the container that has the name now is not the one of this identity."""
    was = made_for.get("id")
    return state is not None and was is not None and state.id[:12] != was


def another_words(state: ContainerState) -> str:
    """What is said of it."""
    return f"another container is called {state.name} now ({state.id[:12]}, {state.state}): it is left alone"


def identity(state: ContainerState | None) -> dict[str, str]:
    """What must still hold just before something is done with it."""
    if state is None:
        return {"container": "absent"}
    return {"container": "present", "id": state.id[:12], "state": state.state, "started": _stamp(state.started_wall)}


def _stamp(wall: float | None) -> str:
    return "never" if wall is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def is_running(state: ContainerState | None) -> bool:
    """True while its process may serve."""
    return state is not None and state.state in _HEALTHY_STATES


def refuse_unit(state: ContainerState, what: str) -> None:
    """Refused for what must not be done behind systemd's back."""
    if state.unit:
        raise Refused(
            f"{state.name} belongs to {state.unit}: {what} is done by editing the unit (key U, or "
            f"`systemctl edit {state.unit}`), then daemon-reload and restart; nothing was done"
        )


def models_words(models: Iterable[tuple[str, str]]) -> str:
    """`rank 1, recall 1`."""
    return ", ".join(f"{one_line(name, 80)} {version}".strip() for name, version in sorted(models))
