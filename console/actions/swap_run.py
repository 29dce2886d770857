"""A swap of versions step by step, and the way back from each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from console.actions.base import Run
from console.actions.box import Box
from console.actions.gap import Arrivals, Gap, answer_for_model, requests_of
from console.actions.model_load import LoadEnd, crashed, load, lost, ready_versions, wait_for, wait_gone
from console.actions.model_look import model_state
from console.actions.model_probe import Probe
from console.actions.model_watch import ENOUGH, Flow, Meter, since_load, told, worse
from console.actions.pin import recover
from console.actions.swap_spec import Spec, WayName, listed
from console.clients.triton_config import Policy, specific
from console.clients.triton_control import statistics
from console.core import units
from console.core.model import SourceError
from console.core.plan import Outcome, Plan, Refused, UndoSpec

BACK_LIMIT = 60.0
"""Seconds for going back: the old version is in memory, so this takes hundredths of one."""
LOOK_EVERY = 0.1
ASK_EVERY = 0.5
MEMORY_WAIT = 60.0
TELL_EVERY = 2.0
BASELINE = 1.0
"""Seconds for which the old version is watched before a gap."""
HUNG_GRACE = 2.0

Why = Literal["refused", "gone", "limit", "cancelled", "wrong"]


class Trouble(Refused):
    """Why the swap does not go on: what is wrong with the new version."""

    def __init__(self, why: Why, text: str, lines: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.why = why
        self.text = text
        self.lines = lines


class Settings(Struct, frozen=True):
    """How it is done."""

    watch: float
    load_timeout: float
    way: WayName = "beside"
    recover: bool = False


def phases(spec: Spec, way: WayName) -> tuple[str, ...]:
    """The steps in their order. Beside, up, traffic moves with the load; down, with the unload of the larger one."""
    if way == "restart":
        return ("stop", "ready", "probe", "watch", "check")
    if way == "gap":
        return ("gap", "load", "probe", "watch", "check")
    beside = ("load", "probe", "watch", "unload") if spec.up else ("load", "probe", "unload", "watch")
    if way == "instances":
        return ("lower", *beside, "raise", "check")
    return (*beside, "check")


class Swapper:
    """One swap that runs. The old version stays in memory until the new one is found good (but for a gap)."""

    def __init__(self, box: Box, plan: Plan, run: Run, spec: Spec, settings: Settings, probe: Probe) -> None:
        self.box, self.plan, self.run, self.spec = box, plan, run, spec
        self.settings, self.probe = settings, probe
        self.control = box.triton_control(plan.values.get("route", ""))
        self.began, self.wall = time.monotonic(), time.time()
        self.figures: dict[str, float] = {}
        self.lines: list[str] = []
        self.exposed: float | None = None
        """Since when unversioned requests go to the new version, which nobody has judged yet."""
        self.gap = Gap(run)
        self.before: Flow | None = None
        self.loaded = False
        """The new version came in, and a warm-up with it."""

    # ------------------------------------------------------------------------------------------------------ forward

    def go(self, first: str = "") -> Outcome:
        """All steps, or those from `first` on; goes back by itself when something is wrong."""
        steps = self._steps()
        names = [name for name, _ in steps]
        try:
            for _, step in steps[names.index(first) if first else 0 :]:
                step()
        except Trouble as trouble:
            return self._ends(trouble)
        except SourceError as error:
            return self._ends(self._blind(error))
        return self._done()

    def resume(self) -> Outcome:
        """Go on where a killed run left: from the probe on where the new version is READY. What was done already is
        found done by the server at once."""
        if self.spec.new not in ready_versions(self.control, self.spec.name):
            return self.go()
        self.exposed = time.monotonic() if self.spec.up or self.replaces else None
        return self.go("probe")

    def take_back(self) -> Outcome:
        """What a killed run did."""
        return self.back(Trouble("cancelled", "taken back after it was interrupted"))

    @property
    def replaces(self) -> bool:
        """The old version goes before the new one comes."""
        return self.settings.way in ("gap", "restart")

    def _steps(self) -> list[tuple[str, Callable[[], None]]]:
        named = self._named()
        return [(name, named[name]) for name in phases(self.spec, self.settings.way)]

    def _named(self) -> dict[str, Callable[[], None]]:
        return {
            "gap": self._make_room,
            "load": self._load,
            "probe": self._probe,
            "watch": self._watch,
            "unload": self._drop,
            "check": self._check,
        }

    def _override(self, policy: Policy, *, warm: bool = True) -> str:
        """The text of a load on the way forward."""
        return self.spec.override(policy, warm=warm)

    def _blind(self, error: SourceError) -> Trouble:
        gone = crashed(self.box, self.wall)
        return Trouble("gone" if gone else "wrong", gone or f"it could not be looked at: {error.message}")

    def _patience(self) -> float:
        """Seconds for the load: what the settings say, and no longer than the plan's limit leaves for going back."""
        return max(1.0, min(self.settings.load_timeout, self.run.left() - self.settings.watch))

    def _make_room(self) -> None:
        spec, run = self.spec, self.run
        with run.phase("gap"):
            if ready_versions(self.control, spec.name):
                self._usual_first()
                self.gap.begin()
            else:
                self.gap.go_on()
            self.control.unload(spec.name)
            if not wait_gone(self.control, spec.name, spec.before, run, self._patience()):
                raise Trouble("wrong", "the old version did not end: requests in flight hold it")
            self.gap.got(answer_for_model(self.box, spec.name))
        with run.phase("memory"):
            needs = spec.needs
            if needs is not None:
                self._wait_for_memory(lambda _: needs)

    def _usual_first(self) -> None:
        """How the old version does, while it is still there."""
        arrivals = Arrivals(lambda: requests_of(self.box, self.spec.name))
        meter = self._meter(self.spec.old)
        if meter is not None and self.run.wait(min(BASELINE, self.settings.watch)):
            raise Trouble("cancelled", "stopped by the operator")
        arrivals.keep(self.run)
        self.before = self._usual(meter)

    def _wait_for_memory(self, needs: Callable[[int], int], limit: float = MEMORY_WAIT) -> None:
        """Until as much is free as `needs` says of what is free, as far as a card tells; Trouble where it does not come
        back within `limit` seconds."""
        began = told = time.monotonic()
        while True:
            free = self._free()
            if free is None or free >= needs(free):
                return
            now = time.monotonic()
            if now - began > limit:
                text = f"{units.size(free)} are free after {limit:.0f} s, {units.size(needs(free))} are needed"
                raise Trouble("wrong", f"the memory did not come back: {text}")
            if now - told > TELL_EVERY:
                told = now
                self.run.note(f"{units.size(free)} free, {units.size(needs(free))} needed")
            if self.run.wait(LOOK_EVERY * 5):
                raise Trouble("cancelled", "stopped by the operator")

    def _free(self) -> int | None:
        try:
            known = [card.memory_free for card in self.box.gpus().gpus]
        except SourceError:
            return None
        return min((free for free in known if free is not None), default=None)

    def _load(self) -> None:
        spec = self.spec
        policy = spec.policy_after if self.replaces else specific(spec.beside)
        with self.run.phase("load"):
            meter = None if self.replaces else self._meter(spec.old)
            end = load(self.box, self.control, spec.name, self._override(policy), self.run, self._patience())
            self.figures["load_s"] = end.seconds
            self._judge_load(end)
            self.loaded = True
            if meter is not None:
                self.before = self._usual(meter)
            if spec.up or self.replaces:
                self.exposed = end.ended
            if spec.new not in ready_versions(self.control, spec.name):
                raise Trouble("wrong", f"the load answered well, but {spec.new} is not READY")
            self.gap.end(end.ended)

    def _judge_load(self, end: LoadEnd) -> None:
        if end.word == "ok":
            return
        gone = crashed(self.box, self.wall) if end.word in ("gone", "refused") else ""
        if gone:
            log = self.box.load_cause(self.spec.name, self.wall)
            raise Trouble("gone", f"{gone} while it loaded {self.spec.new}", log)
        if end.word == "gone":
            raise Trouble("wrong", f"the load's connection was lost: {end.text}")
        text = end.text if end.word == "cancelled" else f"{self.spec.name} {self.spec.new} {end.text}"
        raise Trouble(end.word, text, end.cause)

    def _meter(self, version: int) -> Meter | None:
        try:
            return Meter(self.box.address(), self.spec.name, version)
        except SourceError:
            return None

    def _usual(self, meter: Meter | None) -> Flow | None:
        """How the old version did during the load; since its own load where that was too short."""
        try:
            flow = meter.flow() if meter is not None else None
            if flow is not None and flow.done >= ENOUGH:
                return flow
            stats = statistics(self.box.address(), self.spec.name)
        except SourceError:
            return None
        return next((since_load(one) for one in stats if one.version == str(self.spec.old)), None)

    def _probe(self) -> None:
        with self.run.phase("probe"):
            self._ask()
            gone = lost(self.control, frozenset(self.spec.others), self.spec.name)
            if gone:
                raise Trouble("wrong", f"{', '.join(gone)} dropped out with it", self._server_words())

    def _server_words(self) -> tuple[str, ...]:
        return self.box.load_cause(self.spec.name, self.wall)

    def _watch(self) -> None:
        if self.settings.watch <= 0:
            self._judged()
            return
        with self.run.phase("watch"):
            began = time.monotonic()
            flow = self._watched(began)
            slow = worse(self.before, flow)
            if slow:
                # Half a second on a busy host is no proof: seen to triple the mean of a version that was good.
                self.run.note(f"{slow}: watching once more")
                flow = self._watched(time.monotonic())
            self._means(flow)
            slow = worse(self.before, flow)
            if slow:
                raise self._worse(slow)
            self._ask()
            self.figures["watch_s"] = time.monotonic() - began
            self.lines.append(told(self.before, flow))
            self._judged()

    def _watched(self, began: float) -> Flow:
        """How the new version did in the second half of the watch: the first requests after a load are slower by
        nature. Failures and silence end it at once."""
        asked = began
        whole = Meter(self.box.address(), self.spec.name, self.spec.new)
        settled: Meter | None = None
        while time.monotonic() - began < self.settings.watch:
            if self.run.wait(LOOK_EVERY):
                raise Trouble("cancelled", "stopped by the operator")
            self._look(whole)
            if settled is None and time.monotonic() - began >= self.settings.watch / 2:
                settled = Meter(self.box.address(), self.spec.name, self.spec.new)
            if time.monotonic() - asked >= ASK_EVERY:
                asked = time.monotonic()
                self._ask()
        flow = self._look(whole)
        late = self._look(settled) if settled is not None else flow
        return late if late.done + late.failed >= ENOUGH else flow

    def _look(self, meter: Meter) -> Flow:
        try:
            flow = meter.flow()
        except SourceError as error:
            gone = crashed(self.box, self.wall)
            raise Trouble("gone" if gone else "wrong", gone or error.message) from error
        bad = worse(self.before, flow, latency=False)
        if bad:
            self._means(flow)
            raise self._worse(bad)
        return flow

    def _worse(self, text: str) -> Trouble:
        return Trouble("wrong", f"{self.spec.name} {self.spec.new} does worse: {text}", self._server_words())

    def _ask(self) -> None:
        wrong = self.probe.ask(self.spec.new)
        if wrong:
            gone = crashed(self.box, self.wall)
            why: Why = "gone" if gone else "wrong"
            raise Trouble(why, gone or f"{self.spec.name} {self.spec.new} answers wrong: {wrong}", self._server_words())

    def _means(self, flow: Flow) -> None:
        if self.before is not None and self.before.mean_ms is not None:
            self.figures["mean_before_ms"] = self.before.mean_ms
        if flow.mean_ms is not None:
            self.figures["mean_after_ms"] = flow.mean_ms

    def _judged(self) -> None:
        """The verdict is there: from here on the version is no longer one that nobody knows."""
        if self.exposed is not None:
            self.figures["exposure_s"] = time.monotonic() - self.exposed
            self.exposed = None

    def _drop(self) -> None:
        spec = self.spec
        with self.run.phase("unload"):
            if self.run.cancelled.is_set():
                raise Trouble("cancelled", "stopped by the operator")
            end = load(self.box, self.control, spec.name, self._override(spec.policy_after), self.run, BACK_LIMIT)
            self._judge_load(end)
            if not spec.up:
                self.exposed = end.ended
            self.lines.append(f"dropped {listed(spec.going)}" if spec.going else "nothing to drop")

    def _check(self) -> None:
        spec = self.spec
        with self.run.phase("check"):
            found = self._settled(spec.after)
            if found != spec.after:
                raise Trouble("wrong", f"READY in the end: {listed(found)}, not {listed(spec.after)}")
            gone = lost(self.control, frozenset(spec.others), spec.name)
            if gone:
                raise Trouble("wrong", f"{', '.join(gone)} dropped out with it", self._server_words())

    def _settled(self, wanted: tuple[int, ...], seconds: float = 10.0) -> tuple[int, ...]:
        until = time.monotonic() + seconds
        found = ready_versions(self.control, self.spec.name)
        while found != wanted and time.monotonic() < until:
            time.sleep(0.05)
            found = ready_versions(self.control, self.spec.name)
        return found

    def _done(self) -> Outcome:
        spec = self.spec
        self._add_up()
        asked = f", asked {self.probe.asked} times" if self.probe.asked else ""
        as_kept = {"answer": ", answers as kept", "form": ", answers in the old form", "off": ""}[self.probe.kind]
        return Outcome(
            "done",
            f"{spec.name} {spec.new} serves{asked}{as_kept if asked else ''}",
            (*self.lines, spec.lasting),
            UndoSpec("model.swap", spec.name, {"version": str(spec.old)}, f"{spec.name} back to version {spec.old}"),
            left=model_state(self.box, spec.name),
            figures=self.figures,
        )

    def _add_up(self) -> None:
        total = time.monotonic() - self.began
        self.figures["total_s"] = total
        known = self.figures.get("load_s", 0.0) + self.figures.get("watch_s", 0.0)
        self.figures["added_s"] = max(0.0, total - known)
        self.figures |= self.gap.figures

    # --------------------------------------------------------------------------------------------------------- back

    def _ends(self, trouble: Trouble) -> Outcome:
        if trouble.why == "gone":
            return self._crashed(trouble)
        if trouble.why == "limit":
            return self._hangs(trouble)
        return self.back(trouble)

    def back(self, trouble: Trouble) -> Outcome:
        """The old version again. After a gap it must be loaded anew; else it never went away."""
        spec = self.spec
        try:
            with self.run.phase("back", f"back to {spec.old}: {trouble.text}"):
                end = self._load_old()
        except SourceError as error:
            end = LoadEnd("gone", 0.0, error.message)
        if end.word in ("gone", "refused"):
            gone = crashed(self.box, self.wall)
            if gone:
                return self._crashed(Trouble("gone", f"{trouble.text}; then {gone}", trouble.lines))
        if end.word != "ok":
            return self._stuck(trouble, end)
        self._judged()
        self.gap.end(end.ended)
        self._add_up()
        return self._undone(trouble)

    def _load_old(self) -> LoadEnd:
        spec = self.spec
        ready = ready_versions(self.control, spec.name)
        self.loaded = self.loaded or spec.new in ready
        if not ready:
            self.gap.go_on()
        if self.replaces and self.loaded:
            if not self.gap.is_open:
                self.gap.begin()
            self.control.unload(spec.name)
            wait_gone(self.control, spec.name, (spec.new,), self.run, BACK_LIMIT)
            self.gap.got(answer_for_model(self.box, spec.name))
        return self._sent_back(
            spec.override(spec.policy_before, warm=self.loaded), max(BACK_LIMIT, self.settings.load_timeout)
        )

    def _sent_back(self, config: str, limit: float) -> LoadEnd:
        """The load that ends a way back; a cancel does not end it."""
        spec = self.spec
        end = load(self.box, self.control, spec.name, config, self.run, limit, cancels=False)
        if end.word == "ok":
            found = self._settled(spec.before)
            if found != spec.before:
                return LoadEnd("refused", end.seconds, f"READY now: {listed(found)}", (), end.ended)
        return end

    def _undone(self, trouble: Trouble) -> Outcome:
        spec = self.spec
        gone = lost(self.control, frozenset(spec.others), spec.name)
        lines = [*trouble.lines, *self.lines]
        if spec.warmup is not None and self.loaded:
            lines.append("the warm-up stays in the live configuration until a restart or an unload")
        if gone:
            text = f"{trouble.text}: {spec.name} {spec.old} serves again, but {', '.join(gone)} does not"
            return Outcome("failed", text, tuple(lines), figures=self.figures)
        served = "serves again" if self.figures.get("exposure_s") or self.gap.figures else "serves as before"
        return Outcome(
            "undone",
            f"{trouble.text}: {spec.name} {spec.old} {served}",
            tuple(lines),
            left=model_state(self.box, spec.name),
            figures=self.figures,
        )

    def _stuck(self, trouble: Trouble, end: LoadEnd) -> Outcome:
        self._add_up()
        now = self._now()
        return Outcome(
            "failed",
            f"{trouble.text}; going back failed: {end.text or end.word}",
            (*trouble.lines, *end.cause, now),
            still_going="the load may go on in the server: its index and log tell" if end.word == "limit" else "",
            figures=self.figures,
        )

    def _now(self) -> str:
        try:
            found = ready_versions(self.control, self.spec.name)
        except SourceError as error:
            return f"what serves now is not known: {error.message}"
        return f"READY now: {listed(found)}" if found else f"no version of {self.spec.name} is READY now"

    def _serves_before(self) -> bool:
        try:
            return ready_versions(self.control, self.spec.name) == self.spec.before
        except SourceError:
            return False

    def _hangs(self, trouble: Trouble) -> Outcome:
        """The server's load cannot be cancelled. A load of the old set is left behind it: the server does one after
        the other, so whenever the first ends, the second drops what it brought at once."""
        spec = self.spec
        with self.run.phase("back", f"{trouble.text}: leaves the way back behind it"):
            queued = self.control.begin_load(spec.name, spec.override(spec.policy_before, warm=False), 3600.0)
            end = wait_for(self.box, queued, spec.name, self.run, HUNG_GRACE, cancels=False)
        if end.word == "ok":
            self._judged()
            self.gap.end(end.ended)
            self._add_up()
            return self._undone(trouble)
        self._add_up()
        serves = f"{spec.old} serves on" if spec.old in ready_versions(self.control, spec.name) else self._now()
        text = (
            f"the server still loads {spec.name} {spec.new}, which cannot be cancelled; a load of "
            f"{listed(spec.before)} waits behind it and drops it should it end. Load and unload of this model hang "
            "until then; only a restart ends it for sure"
        )
        return Outcome("failed", f"{trouble.text}: {serves}", trouble.lines, still_going=text, figures=self.figures)

    def _crashed(self, trouble: Trouble) -> Outcome:
        spec = self.spec
        self._add_up()
        lines = [*trouble.lines, *((spec.again,) if spec.again else ())]
        if self.settings.recover and spec.container:
            with self.run.phase("recover"):
                recovered = recover(
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
            return replace(recovered, figures={**recovered.figures, **self.gap.figures})
        lines.append(f"to serve {spec.old} again: gpuconsole do model.pin {spec.name} version={spec.old}")
        return Outcome("failed", trouble.text, tuple(lines), figures=self.figures)
