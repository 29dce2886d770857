"""A swap by a restart of the container: for where memory does not come back after an unload.

What a start serves is what the policy on disk says, so this way is only offered where that is the new version
(swap_ways.restart_off). The old version comes back by a load of the old set, beside nothing, and lasts until the next
start; where the operator agreed, it is pinned in config.pbtxt as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from console.actions import powering
from console.actions.container import go_round, stop_seconds, up_again
from console.actions.gap import Gap, count_container
from console.actions.model_load import LoadEnd, lost, ready_versions
from console.actions.pin import pin_file, recover, write_pin
from console.actions.powering import Readiness
from console.actions.swap_run import Swapper, Trouble
from console.actions.swap_spec import listed
from console.actions.target import ContainerView, models_words
from console.core.model import SourceError
from console.core.plan import Outcome, Refused, WrongInput


class RestartSwapper(Swapper):
    """The container goes and comes back with the new version; then as beside."""

    def _named(self) -> dict[str, Callable[[], None]]:
        return {**super()._named(), "stop": self._restart, "ready": self._ready}

    def resume(self) -> Outcome:
        """See Swapper. A server that still serves the old version was never stopped."""
        ready = self._answered()
        if ready == self.spec.before:
            return self.go()
        return self.go("ready") if ready is not None else self._from_below(lambda: self.go("ready"))

    def take_back(self) -> Outcome:
        """See Swapper. A server that is down comes up first, with what is on disk."""
        return super().take_back() if self._answered() is not None else self._from_below(super().take_back)

    def _answered(self) -> tuple[int, ...] | None:
        """Its READY versions; None where the server does not answer."""
        try:
            return ready_versions(self.control, self.spec.name)
        except SourceError:
            return None

    def _from_below(self, then: Callable[[], Outcome]) -> Outcome:
        """Start the container, which a killed run left down, wait until Triton answers, and go on."""
        self.gap = Gap(self.run, drains=True)
        with ContainerView(self.box, self.spec.container) as view:
            up_again(self.box, view, self.gap, self.run)
            with self.run.phase("ready", "wait until Triton answers"):
                found = self._waited(view, frozenset())
        if found.good:
            return then()
        return self._crashed(Trouble("gone", f"{self.spec.container}: {found.words}", found.lines))

    # ------------------------------------------------------------------------------------------------------ forward

    def _restart(self) -> None:
        spec, run = self.spec, self.run
        self.gap = Gap(run, drains=True)
        with ContainerView(self.box, spec.container) as view:
            state = view.known()
            meter = self._meter(spec.old)
            count_container(view, run)
            self.before = self._usual(meter)
            if run.cancelled.is_set():
                raise Trouble("cancelled", "stopped by the operator")
            seconds, _ = stop_seconds(self.box, state, {})
            go_round(self.box, view, state, seconds, self.gap, run)

    def _ready(self) -> None:
        spec = self.spec
        wanted = frozenset({(spec.name, str(version)) for version in spec.after} | set(spec.others))
        with self.run.phase("ready"), ContainerView(self.box, spec.container) as view:
            if not self.gap.is_open and spec.new not in (self._answered() or ()):
                self.gap.go_on()  # of a killed run
            found = self._waited(view, wanted)
            if spec.new in (self._answered() or ()):
                self.gap.end()
                self.loaded, self.exposed = True, time.monotonic()
            self._judge_start(found)

    def _waited(self, view: ContainerView, wanted: frozenset[tuple[str, str]]) -> Readiness:
        """Until all of it is READY; what went down before is no crash of what comes now. No cancel ends it: half a
        restart would leave the other models away."""
        limit = self.box.settings.actions.start_timeout
        found = powering.wait_ready(self.box, view, wanted, self.run, limit, cancels=False)
        if not found.ended:
            self.wall = time.time()
        return found

    def _judge_start(self, found: Readiness) -> None:
        """Another model that does not come back is told in the end: the old version would not bring it back."""
        spec = self.spec
        if found.ended:
            raise Trouble("gone", f"after the restart {found.words}", found.lines)
        if self.run.cancelled.is_set():
            raise Trouble("cancelled", "stopped by the operator")
        versions = self._settled(spec.after)
        if versions != spec.after:
            text = f"after the restart {listed(versions)} is READY, not {listed(spec.after)}"
            raise Trouble("wrong", text, found.lines)
        if not found.good:
            self.run.note(f"{models_words(found.missing)}: not READY")

    def _probe(self) -> None:
        with self.run.phase("probe"):
            self._ask()

    def _check(self) -> None:
        with self.run.phase("check"):
            found = self._settled(self.spec.after)
            if found != self.spec.after:
                raise Trouble("wrong", f"READY in the end: {listed(found)}, not {listed(self.spec.after)}")

    def _done(self) -> Outcome:
        done = super()._done()
        gone = lost(self.control, frozenset(self.spec.others), self.spec.name)
        if not gone:
            return done
        text = f"{done.text}, but {', '.join(gone)} is not READY after the restart"
        return replace(done, word="failed", text=text, lines=(*done.lines, *self._server_words()))

    # --------------------------------------------------------------------------------------------------------- back

    def _undone(self, trouble: Trouble) -> Outcome:
        found = super()._undone(trouble)
        return replace(found, lines=(*found.lines, *self._kept_out()))

    def _kept_out(self) -> tuple[str, ...]:
        """The next start would load the new version again: pin the old one where that was agreed to, else say how."""
        spec = self.spec
        if self._answered() == spec.before and not self.loaded and not self.gap.figures:
            return ()  # nothing was stopped
        hint = f"{spec.again}; to keep it out: gpuconsole do model.pin {spec.name} version={spec.old}"
        if not self.settings.recover:
            return (hint,)
        try:
            backup = write_pin(self.box, spec.name, pin_file(self.box, spec.name, spec.before), self.run)
        except (Refused, WrongInput, SourceError) as error:
            return (f"it could not be pinned: {error}", hint)
        return (f"config.pbtxt of {spec.name} now says specific {listed(spec.before)}; as it was: {backup}",)

    def _stuck(self, trouble: Trouble, end: LoadEnd) -> Outcome:
        """The old version does not load beside what the process holds: with consent it is pinned and the container
        started once more."""
        spec = self.spec
        if not self.settings.recover:
            told = super()._stuck(trouble, end)
            way = f"gpuconsole do model.pin {spec.name} version={spec.old}, then container.restart {spec.container}"
            return replace(told, lines=(*told.lines, f"what surely brings {spec.old} back: {way}"))
        lines = [f"going back failed: {end.text or end.word}", *trouble.lines]
        with self.run.phase("recover"):
            try:
                self._stop_for_good()
            except SourceError as error:
                lines.append(f"the container was not stopped: {error.message}")
            found = recover(
                self.box,
                self.run,
                spec.container,
                spec.name,
                spec.before,
                spec.others,
                trouble.text,
                lines,
                self.figures,
            )
            if self._serves_before():
                self.gap.end()
        self._add_up()
        return replace(found, figures={**found.figures, **self.figures})

    def _stop_for_good(self) -> None:
        with ContainerView(self.box, self.spec.container) as view:
            state = view.known()
            seconds, _ = stop_seconds(self.box, state, {})
            powering.stop(self.box, view, state, seconds, self.run)
