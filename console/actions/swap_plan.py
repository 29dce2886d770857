"""What a plan to swap versions says: checks, ways, steps and effects, from one look."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from console.actions import powering, swap_ways
from console.actions.box import Box
from console.actions.container import managed, restart_steps, stop_seconds, unit_words
from console.actions.model_look import ModelLook, load_seconds, mode_refusal, route_check
from console.actions.model_probe import Probe
from console.actions.outage import Outage, outage, stop_words
from console.actions.swap_instances import SHARE_WAIT, instances
from console.actions.swap_run import MEMORY_WAIT, phases
from console.actions.swap_spec import WayName, listed, probe_kind, spec_of, warmup_of
from console.actions.target import ContainerView
from console.clients.triton import model_path
from console.core import units
from console.core.golden import Golden
from console.core.plan import Check, Plan, Step, Tick, WrongInput
from console.core.text import one_line

MOST_WATCH = 3600.0
SPARE = 30.0
"""Seconds of the plan's limit for going back."""


class SwapPlan:
    """All that the plan says, from one look."""

    def __init__(self, box: Box, seen: ModelLook, new: int, golden: Golden | None, values: Mapping[str, str]) -> None:
        self.box, self.seen, self.new, self.golden = box, seen, new, golden
        self.watch = _seconds(values.get("watch", ""), box.settings.actions.watch)
        self.refused = self._refusal()
        self.load_s = load_seconds(box, seen.name)
        self.found = swap_ways.find(box, seen, new, self.load_s) if not self.refused else swap_ways.NONE
        self.fit = self.found.fit
        self.way: WayName = swap_ways.chosen(self.found, values.get("way", ""))
        if not self.refused and (why := swap_ways.impossible(self.found, self.way)):
            self.refused = f"way={self.way} cannot be gone: {why}"
        if values.get("probe") == "answer" and golden is None:
            raise WrongInput(
                f"no question is kept for {one_line(seen.name, 80)}: keep one (golden.keep), or probe=form"
            )
        self.kind = probe_kind(values, golden, wanted=box.settings.actions.probe)
        self.values = {
            "version": str(new),
            "way": self.way,
            "watch": f"{self.watch:g}",
            "probe": self.kind,
            "warmup": "false" if self.way == "restart" else values.get("warmup") or self._warm_by_itself(),
            "recover": values.get("recover") or "false",
            "route": values.get("route") or "auto",
        }
        self.spec = spec_of(seen, new, None, restart=self.way == "restart") if not self.refused else None
        self.outage = self._outage() if self.way == "restart" and not self.refused else None

    def _refusal(self) -> str:
        seen = self.seen
        told = mode_refusal(seen)
        if told:
            return told
        if seen.loading:
            return (
                f"{seen.name} is busy ({', '.join(seen.loading)}): a load of it would wait; try again when it is done"
            )
        if seen.served is None:
            return f"no version of {seen.name} is READY, so there is nothing to swap: load it (model.load)"
        if not seen.live:
            return f"{seen.name} has just changed: look again"
        if sum(1 for name, _ in seen.all_ready if name == seen.name) != len(seen.ready):
            return f"two models are named {seen.name} (namespaces): Triton cannot tell them apart in a load"
        return ""

    def _warm_by_itself(self) -> str:
        """On where a third copy fits. Off for Python models: one whose process ends within its warm-up may take the
        whole server down (seen on 2.51.0, twice in three tries), while the probe finds it and goes back."""
        python = self.seen.config is not None and self.seen.config.backend == "python"
        beside = self.way in ("beside", "gap")
        useful = warmup_of(self.seen, self.golden) is not None and self.fit.spare and not python and beside
        return "true" if useful else "false"

    @property
    def warm(self) -> bool:
        return self.values["warmup"] == "true" and warmup_of(self.seen, self.golden) is not None

    def _outage(self) -> Outage:
        """What a restart takes away, and its seconds to stop in `stop_s`."""
        container = self.seen.container
        assert container is not None
        with ContainerView(self.box, container.name) as view:
            return outage(self.box, view, container, self.seen.name)

    @property
    def replaces(self) -> bool:
        """The old version goes before the new one comes."""
        return self.way in ("gap", "restart")

    @property
    def gap_s(self) -> float | None:
        return self.found.gap_s(self.way, swap_ways.loaded_by_start(self.seen))

    def _slower(self) -> str:
        return "a queue grows meanwhile" if self.found.crowded else "slower meanwhile"

    def _limit(self) -> float:
        actions = self.box.settings.actions
        limit = actions.load_timeout + 2 * self.watch + SPARE
        if self.way == "restart":
            return limit + self._stop_s() + 2 * actions.start_timeout + powering.PORT_PATIENCE
        if self.way == "instances":  # each change of the count may be a load of its own
            return limit + 2 * actions.load_timeout + 2 * SHARE_WAIT
        return limit + (2 * MEMORY_WAIT if self.way == "gap" else 0.0)

    def plan(self, action: str) -> Plan:
        seen, gap = self.seen, self.replaces
        where = f", container {seen.container.name}" if seen.container is not None else ""
        return Plan(
            action=action,
            target=seen.target(),
            values=self.values,
            title=f"Swap {seen.name} {seen.served or '–'} → {self.new} on {self.box.host}{where}",
            yes="Swap",
            danger="danger" if gap else "caution",
            note="a gap" if gap else self._slower() if self.way == "instances" else "",
            checks=() if self.refused else self.checks(),
            ways=() if self.refused else swap_ways.told(seen, self.new, self.found),
            way=self.way,
            ticks=self.ticks(),
            steps=() if self.refused else self.steps(),
            effects=() if self.refused else self.effects(),
            by_hand=() if self.refused else self.by_hand(),
            undo=f"swap back to {seen.served} by the same steps" if seen.served is not None else "",
            limit=self._limit(),
            gap_s=self.gap_s,
            refused=self.refused,
            wall=time.time(),
        )

    # ------------------------------------------------------------------------------------------------------- checks

    def checks(self) -> tuple[Check, ...]:
        found = [self._on_disk(), self._config(), *self._mode(), route_check(self.seen), self._fits(), self._asked()]
        config = self.seen.config
        if config is not None and config.backend == "python" and config.warmup_samples:
            text = "a Python process that ends in it may take the server down"
            found.append(Check("warn", f"its warm-up runs {self.new} within the load: {text}"))
        if self.way == "instances":
            found += self._one_instance()
        if self.outage is not None and self.seen.container is not None:
            found += [*self.outage.checks, *managed(self.seen.container)]
        if self.seen.unloading:
            found.append(Check("note", f"still ending: {', '.join(self.seen.unloading)}, its memory is not back yet"))
        if self.seen.live_only and self.way != "restart":  # what a restart takes away is told with the rest of it
            kept = ", ".join(self.seen.live_only[:3])
            found.append(Check("note", f"live-only settings are kept: {kept}; a restart drops them"))
        return tuple(found)

    def _one_instance(self) -> list[Check]:
        """Whether 1 instance of each fits and is enough, and whether Triton takes the counts in place."""
        signs: dict[bool | None, Any] = {True: "ok", False: "fail", None: "unknown"}
        text = f"1 instance of each: {self.found.alone.text}"
        if not self.seen.on_cpu:
            text += "; what the instances give back is measured before the load"
        return [Check(signs[self.found.alone.fits], text), self._enough(), *self._anew()]

    def _enough(self) -> Check:
        busy = self.found.busy
        if busy is None:
            return Check("unknown", "whether 1 instance is enough for the requests is not known")
        if busy == 0:
            return Check("ok", "no requests now: 1 instance is enough")
        return Check(
            "warn" if self.found.crowded else "ok", f"1 instance would be busy {busy:.0%} with the requests now"
        )

    def _anew(self) -> list[Check]:
        """Seen on 2.51.0 with a folder that can be written: the version was loaded anew as its count went down, and the
        new one as the old one was dropped; with one that is mounted read-only neither, and no request was lost."""
        config = self.seen.config
        if config is None or config.backend != "python" or self._is_read_only():
            return []
        text = (
            "Triton may load a Python model anew for its first change after a load (its __pycache__ is newer by then)"
        )
        return [Check("note", f"{text}: one copy with 1 instance more for that long")]

    def _is_read_only(self) -> bool:
        """The server cannot write beside the model's program."""
        container, disk = self.seen.container, self.seen.disk
        if container is None or disk is None:
            return False
        held = [mount for mount in container.mounts if mount.source and Path(disk.path).is_relative_to(mount.source)]
        closest = max(held, key=lambda mount: len(mount.source), default=None)
        return closest is not None and closest.read_only

    def _on_disk(self) -> Check:
        folder = self.seen.disk_version(self.new)
        if folder is None:
            return Check("unknown", f"whether version {self.new} is there is not known: {self.seen.disk_unknown}")
        return Check("ok", f"version {self.new} is on disk, {units.size(folder.size)}")

    def _config(self) -> Check:
        if self.seen.disk_config_error:
            text = f"config.pbtxt cannot be used: {self.seen.disk_config_error}; the load goes by the live one"
            return Check("warn", text)
        policy = self.seen.disk_policy
        return (
            Check("ok", f"config.pbtxt parses, policy {policy.text}")
            if policy
            else Check("unknown", "no config.pbtxt seen")
        )

    def _mode(self) -> tuple[Check, ...]:
        mode = self.seen.container.control_mode if self.seen.container is not None else None
        return (Check("ok", "explicit mode"),) if mode else (Check("unknown", "the control mode is not told"),)

    def _fits(self) -> Check:
        signs: dict[bool | None, Any] = {True: "ok", False: "fail", None: "unknown"}
        return Check(signs[self.fit.fits], self.fit.text)

    def _asked(self) -> Check:
        if self.kind == "off":
            return Check("warn", "the new version is not asked: only traffic will tell")
        if self.box.read_only:
            return Check("unknown", "read-only: the model is not asked")
        probe = Probe(self.box.address(), self.seen.name, self.kind, self.golden)
        wrong = probe.prepare(self.seen.served)
        if probe.kind == "off":
            return Check("warn", f"the new version is not asked: {probe.why_off}")
        if self.kind == "form":
            if wrong:
                return Check("warn", f"version {self.seen.served} answers wrong now: {wrong}")
            return Check("warn", "no question is kept (W, or golden.keep): only the answer's form is compared")
        if wrong:
            text = f"version {self.seen.served} does not give the kept answer: {wrong}; only the form is compared"
            return Check("warn", text)
        return Check("ok", f"the kept question has its answer from version {self.seen.served}")

    # --------------------------------------------------------------------------------------------------- ticks, steps

    def ticks(self) -> tuple[Tick, ...]:
        if self.refused:
            return ()
        found = []
        if warmup_of(self.seen, self.golden) is not None and self.way != "restart":
            text = "warm-up in the kept question's shapes before READY; it stays live until a restart"
            if not self.replaces:
                text += f"; Triton then loads {self.seen.served} anew as well, a third copy meanwhile"
            if self.seen.config is not None and self.seen.config.backend == "python":
                text += "; ▲ a Python process that ends in it may take the server down"
            found.append(Tick("warmup", text, self.values["warmup"] == "true"))
        if self.seen.disk is not None:
            pins = f"pin {self.seen.served} in config.pbtxt and start it again"
            text = f"if {self.new} crashes the server: {pins}"
            if self.way == "restart":
                text = f"if {self.new} is taken back or crashes the server: {pins} where nothing else helps"
            found.append(Tick("recover", text, self.values["recover"] == "true"))
        return tuple(found)

    def steps(self) -> tuple[Step, ...]:
        assert self.spec is not None
        named = self._named_steps()
        order: list[str] = ["note"]
        for name in phases(self.spec, self.way):
            order += {"gap": ["gap", "memory"], "lower": ["lower", "memory"], "stop": ["stop", "start"]}.get(
                name, [name]
            )
        return tuple(named[name] for name in order if name in named and (name != "watch" or self.watch > 0))

    def _named_steps(self) -> dict[str, Step]:
        seen, new, old = self.seen, self.new, self.seen.served
        assert self.spec is not None
        load = f"POST /v2/repository/models/{seen.name}/load"
        if seen.route.name == "gRPC":
            load = f"ModelRepository/RepositoryModelLoad {seen.name}"
        ask = {
            "answer": f"ask {new} the kept question, pinned, and compare",
            "form": f"ask {new} once, pinned: an answer in the form of {old}'s",
            "off": "ask nothing; the READY set of all other models as before",
        }[self.kind]
        back, anew = self._back(), f"load {listed(self.spec.before)} again, then drop {new}"
        named = {
            "note": Step("note", f"note the READY set, ask {old}", "nothing was sent"),
            "gap": Step("gap", f"unload {seen.name}, wait for its end", back, (f"RepositoryModelUnload {seen.name}",)),
            "memory": Step("memory", self._memory_text(), self._back_from_memory(back)),
            "load": Step("load", self._load_text(), self._back_from_load(), (load,)),
            "probe": Step("probe", ask, back),
            "watch": Step(
                "watch", f"watch fail rate and mean for {self.watch:g} s (twice that where it seems slower)", back
            ),
            "unload": Step(
                "unload", f"drop {listed(self.spec.going)} by policy {self.spec.policy_after.text}", back, (load,)
            ),
            "check": Step("check", f"READY: {listed(self.spec.after)}, and all other models as before", back),
        }
        if not self.replaces:
            anew = anew if self.way == "beside" else f"{self._count()} of {listed(self.spec.before)} again, as above"
            after_drop = ("check",) if self.spec.up else ("watch", "check")
            named |= {name: structs.replace(named[name], if_it_fails=anew) for name in after_drop}
        if self.way == "instances":
            lower = f"1 instance of {old} in place (policy specific {listed(self.spec.before)})"
            named["lower"] = Step("lower", lower, f"{self._count()} again, in place", (load,))
            named["raise"] = Step("raise", f"{self._count()} of {listed(self.spec.after)} in place", anew, (load,))
        return named | self._restart_steps(back)

    def _count(self) -> str:
        assert self.spec is not None
        return instances(self.spec.counts)

    def _back(self) -> str:
        assert self.spec is not None
        if self.replaces:
            return f"load {listed(self.spec.before)}"
        more = f", then {self._count()} again" if self.way == "instances" else ""
        return f"drop {self.new}, {self.seen.served} never went{more}"

    def _back_from_load(self) -> str:
        if self.way == "instances":
            return f"the old one serves on; {self._count()} again"
        return "load the old one" if self.replaces else "nothing changed: the old one serves on"

    def _back_from_memory(self, back: str) -> str:
        if self.way == "instances":
            return f"{self._count()} again, in place"
        return back if self.found.off["restart"] else f"{back}; then a restart may help (way=restart)"

    def _memory_text(self) -> str:
        if self.way == "instances":
            return f"wait until what the instances gave back is enough for 1 of {self.new}, ≤ {SHARE_WAIT:.0f} s"
        if self.fit.needs is None:
            return "no wait for memory: what it takes there is not known, or it takes none"
        return f"wait until {units.size(self.fit.needs)} are free, ≤ {MEMORY_WAIT:.0f} s"

    def _restart_steps(self, back: str) -> dict[str, Step]:
        container = self.seen.container
        if self.way != "restart" or container is None or self.spec is None:
            return {}
        named = {step.phase: step for step in restart_steps(self.box, container, self._stop_s())}
        text = f"wait until {listed(self.spec.after)} and all that was READY is READY"
        return {
            "stop": structs.replace(named["stop"], if_it_fails="start it again: it serves what is on disk"),
            "start": named["start"],
            "ready": Step("ready", text, f"{back}; a model that does not come back is told"),
        }

    def _stop_s(self) -> int:
        container = self.seen.container
        return 0 if container is None else stop_seconds(self.box, container, {})[0]

    def _load_text(self) -> str:
        assert self.spec is not None
        policy = listed(self.spec.after if self.replaces else self.spec.beside)
        warm = ", warm-up before READY" if self.warm else ""
        one = ", 1 instance of each" if self.way == "instances" else ""
        limit = self.box.settings.actions.load_timeout
        over = self.seen.route.name
        return f"load {self.new} over {over} (policy specific {policy}{one}{warm}), waits up to {limit:g} s"

    # ------------------------------------------------------------------------------------------------------ effects

    def effects(self) -> tuple[str, ...]:
        assert self.spec is not None
        seen, new, old = self.seen, self.new, self.seen.served
        lines = [*self._meanwhile(), self._exposure()]
        told = "503 not at ready state, once it is dropped" if self.way != "restart" else "404 not found, afterwards"
        lines.append(f"clients that name version {old} get {told}")
        users = "is away as long, and comes back with it" if self.replaces else "is made anew with it, shortly"
        lines += [f"{name} (ensemble) {users}" for name in seen.users]
        lines.append("now: " + ("requests unknown" if seen.rate is None else f"{units.rate(seen.rate)} requests/s"))
        lines += [self.spec.lasting, *([f"if {new} crashes the server: {self.spec.again}"] if self.spec.again else [])]
        return tuple(lines)

    def _meanwhile(self) -> tuple[str, ...]:
        """What happens to requests, and for how long."""
        assert self.spec is not None
        old, new = self.seen.served, self.new
        took = f"≈ {self.load_s:.1f} s by its last load" if self.load_s is not None else "how long is not known"
        load = f"the load takes {took}; the server's ready is 400 meanwhile (health checks, load balancers)"
        again = "rolling back costs the same gap again"
        if self.way == "restart":
            return (*self._outage_words(), f"{again}, of this model alone: {old} is loaded by an override")
        if self.way == "gap":
            return (load, "from the unload to READY: 404 for this model; requests accepted before are answered", again)
        moves = f"requests in flight finish on {old}; new ones go to {new} the moment it is READY"
        if not self.spec.up:
            moves = f"{new} is asked while {old} takes the traffic; it moves when {old} is dropped"
        if self.way == "instances":
            return (load, f"until all is done 1 instance of each version serves, not {self._count()}", moves)
        return (load, moves)

    def _outage_words(self) -> tuple[str, ...]:
        container = self.seen.container
        if self.outage is None or container is None:
            return ()
        more = swap_ways.back_too(self.box, self.seen)
        return (
            *self.outage.lines,
            stop_words(container, self._stop_s(), self.outage.waiting),
            self.outage.gap_words,
            *((f"come back too, as --load-model names them: {', '.join(more[:6])}",) if more else ()),
        )

    def _exposure(self) -> str:
        assert self.spec is not None
        if not self.spec.up and not self.replaces:
            return (
                f"a wrong {self.new} is found before it gets traffic; what only traffic shows lasts up to "
                f"{self.watch:g} s and a load of {self.seen.served}"
            )
        back = "the load of the old one" if self.replaces else "≈ 0.1 s to go back"
        if self.kind == "off":
            return f"a wrong {self.new} has the traffic for up to {self.watch:g} s, then {back}"
        return (
            f"a wrong {self.new} has the traffic from READY until its first answer is compared and {back}; what only "
            f"traffic shows, for up to {self.watch:g} s more (slowness: twice that)"
        )

    def by_hand(self) -> tuple[str, ...]:
        assert self.spec is not None
        url, path = self.box.address().url, model_path(self.seen.name)
        container = self.seen.container
        if self.way == "restart" and container is not None:
            name, seconds = container.name, self._stop_s()
            restart = f"podman restart --time {seconds} {name}"
            return (unit_words(self.box, container, "restart") if container.unit else restart,)

        def load(versions: tuple[int, ...], count: str = "") -> str:
            changes = f"version_policy specific {listed(versions)}{count}"
            whole = f'{{"parameters":{{"config":"WHOLE CONFIG with {changes}"}}}}'
            return shlex.join(("curl", "-X", "POST", f"{url}/v2/repository{path[3:]}/load", "-d", whole))

        ask = shlex.join(("curl", f"{url}{path}/versions/{self.new}/infer", "-d", "@QUESTION"))
        if self.way == "gap":
            unload = shlex.join(("curl", "-X", "POST", f"{url}/v2/repository{path[3:]}/unload"))
            return unload, load(self.spec.after), ask
        if self.way == "instances":
            one = " and count 1 in each instance_group"
            return load(self.spec.before, one), load(self.spec.beside, one), ask, load(self.spec.after)
        return load(self.spec.beside), ask, load(self.spec.after)


def _seconds(text: str, default: float) -> float:
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        raise WrongInput(f"`watch` must be a number of seconds, not {one_line(text, 40)!r}") from None
    if not 0 <= found <= MOST_WATCH:
        raise WrongInput(f"`watch` must be from 0 to {MOST_WATCH:.0f} s, not {found:g}")
    return found
