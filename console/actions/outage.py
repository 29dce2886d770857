"""What a plan says of an outage: what stops serving, which settings are lost, what happens to requests, how long."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from console.actions.box import Box
from console.actions.target import ContainerView, is_running
from console.clients.triton import model_path, server_http
from console.clients.triton_wire import decode_config
from console.core import units
from console.core.model import ConfigDifference, ContainerState, ModelConfig, SourceError, TritonConfigs
from console.core.plan import Check
from console.core.text import one_line
from console.sources.locator import Locator
from console.sources.repository import RepositorySource

MOST_CONFIGS = 50
"""Models whose configuration is asked for to find live-only settings, where the screen's snapshot does not tell."""
MOST_NAMED = 6


QUIET_STOP = 3.0
"""Seconds that an idle Triton takes to stop: 2.3 to 4.1 in twelve stops of 2.51 on a busy machine of two cores."""


OWN_CONNECTIONS = 5
"""HTTP connections that one console keeps; it lets go of them when the server's log says that it was told to stop."""


class Outage(Struct, frozen=True):
    """What is known of the service that a change takes away."""

    running: bool
    ready: frozenset[tuple[str, str]] = frozenset()
    silent: str = ""
    """Why Triton could not be asked what it serves; "" = it answered."""
    waiting: int | None = None
    serving_after: float | None = None
    """Seconds from its last start until it answered."""
    lines: tuple[str, ...] = ()
    """What stops, and what is lost."""
    connections: int | None = None
    """HTTP connections open now, the console's own included."""
    drain: int | None = None
    """Seconds that the server waits for them to close (`--exit-timeout-secs`)."""

    @property
    def stop_s(self) -> float:
        """Seconds that the stop may take: Triton waits for the connections of its clients to close, and clients that
        keep theirs hold it for the whole of its exit time-out (31 s seen with 32 of them, and with one)."""
        kept = self.connections is None or self.connections > OWN_CONNECTIONS
        return QUIET_STOP + (self.drain or 0) if kept else QUIET_STOP

    @property
    def stop_words(self) -> str:
        """The same as a line."""
        if self.stop_s <= QUIET_STOP:
            return f"≈ {QUIET_STOP:.0f} s to stop with nothing in flight"
        told = "how many are open is not known" if self.connections is None else f"{self.connections} are open now"
        return (
            f"≈ {QUIET_STOP:.0f} to {self.stop_s:.0f} s to stop: kept connections are served on until they close, "
            f"for {self.drain} s at most, new ones are refused from the start; {told}"
        )

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was looked at."""
        if not self.running:
            return (Check("ok", "it does not run: nothing stops serving"),)
        if self.silent:
            return (Check("unknown", f"what it serves is not known: {self.silent}"),)
        return (Check("ok", f"Triton answers, {len(self.ready)} READY"),)

    @property
    def back(self) -> str:
        """How long until it serves again after a start."""
        if self.serving_after is None:
            return "until ready: not known (its log does not tell how long the last start took)"
        return f"≈ {self.serving_after:.0f} s until ready last time"

    @property
    def gap_s(self) -> float | None:
        """Seconds without service, for a client without a connection, that a stop and a start cost at most; None = not
        known."""
        if not self.running:
            return 0.0
        return None if self.serving_after is None else self.stop_s + self.serving_after

    @property
    def gap_words(self) -> str:
        """The same as a line."""
        total = "" if self.gap_s is None else f"up to {self.gap_s:.0f} s: "
        return f"the gap: {total}{self.stop_words}, then {self.back}"


def stop_and_start(view: ContainerView, state: ContainerState) -> Outage:
    """No more than how long a stop and a start take."""
    return Outage(
        is_running(state),
        serving_after=view.serving_after(state),
        connections=view.connections(state),
        drain=state.exit_timeout,
    )


def outage(box: Box, view: ContainerView, state: ContainerState, swapped: str = "") -> Outage:
    """Look at all of it. Never fails because of Triton: a server that does not answer is told as such. `swapped`: a
    model whose live-only version policy is what the change is about."""
    if not is_running(state):
        return Outage(False, serving_after=view.serving_after(state))
    try:
        ready = view.ready()
    except SourceError as error:
        return Outage(True, silent=error.message, serving_after=view.serving_after(state), lines=(_silent(error),))
    lines = (_stops(box, ready), *live_only(box, view, ready, swapped=swapped))
    return Outage(
        True, ready, "", view.waiting(), view.serving_after(state), lines, view.connections(state), state.exit_timeout
    )


def _silent(error: SourceError) -> str:
    return f"whatever it serves stops: Triton could not be asked ({one_line(error.message, 120)})"


def _stops(box: Box, ready: frozenset[tuple[str, str]]) -> str:
    if not ready:
        return "no model is READY: nothing stops serving"
    rates = _rates(box)
    named = [f"{one_line(name, 60)}{_rate(rates.get((name, version)))}" for name, version in sorted(ready)]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    count = f"{len(ready)} model{'s' if len(ready) > 1 else ''} stop{'' if len(ready) > 1 else 's'} serving"
    return f"{count}: {', '.join(named[:MOST_NAMED])}{more}"


def _rates(box: Box) -> dict[tuple[str, str], float]:
    rows = box.snapshot.models if box.snapshot is not None else ()
    return {(row.name, row.version or ""): row.flow.w10.rate for row in rows if row.flow is not None and row.flow.w10}


def _rate(value: float | None) -> str:
    return "" if value is None else f" {units.rate(value)}/s"


# ----------------------------------------------------------------------------------------------- settings that are lost


def live_only(
    box: Box, view: ContainerView, ready: frozenset[tuple[str, str]], fate: str = "lost", *, swapped: str = ""
) -> tuple[str, ...]:
    """A line that says which settings the server has that config.pbtxt has not; () where there are none.

    `fate`: `lost` (a restart), `kept` (a plain load leaves an override as it is, triton.md 1.4).
    """
    try:
        found = _differences(box, view, ready)
    except SourceError as error:
        return (f"whether there are live-only settings, which would be {fate}, is not known ({error.message})",)
    found = [(name, one) for name, one in found if name != swapped or not one.path.startswith("version_policy")]
    if not found:
        return ()
    words = [f"{one_line(name, 60)} {_difference(one)}" for name, one in found[:MOST_NAMED]]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    count = "1 live-only setting is" if len(found) == 1 else f"{len(found)} live-only settings are"
    return (f"{count} {fate}: {', '.join(words)}{more}",)


def _difference(one: ConfigDifference) -> str:
    return one_line(f"{one.path} {one.live} (disk says {one.disk or 'nothing'})", 120)


def _differences(
    box: Box, view: ContainerView, ready: frozenset[tuple[str, str]]
) -> Sequence[tuple[str, ConfigDifference]]:
    configs = served_configs(view, ready)
    source = RepositorySource(Locator(box.settings, view.state).places, lambda: configs)
    source.open()
    try:
        return [(model.name, one) for model in source.read().models for one in model.differences]
    finally:
        source.close()


def served_configs(view: ContainerView, ready: frozenset[tuple[str, str]]) -> TritonConfigs:
    """The configurations of these models as served; SourceError where they are too many to ask each."""
    if len(ready) > MOST_CONFIGS:
        raise SourceError("unavailable", f"{len(ready)} models are too many to ask each: see ≠ on Models")
    http = server_http(view.address())
    found: list[ModelConfig] = []
    try:
        for name, version in sorted(ready):
            answer = http.get(f"{model_path(name, version)}/config")
            if answer.status == 200:
                found.append(decode_config(answer.body, name, version))
    finally:
        http.close()
    return TritonConfigs(tuple(found))


# ----------------------------------------------------------------------------------------------- requests in flight


def stop_words(state: ContainerState, seconds: int, waiting: int | None) -> str:
    """What happens to requests when it is told to stop."""
    drain = state.exit_timeout
    wait = "" if waiting is None else f" ({waiting} wait in queues now)"
    if drain is None:
        return f"requests in flight{wait}: it gets {seconds} s, then it is killed; how long it drains is not known"
    if seconds <= drain:
        return f"requests in flight{wait} may be cut: it gets {seconds} s and drains up to {drain}"
    return (
        f"requests in flight{wait} are finished: it drains up to {drain} s (killed after {seconds}); new ones: refused"
    )
