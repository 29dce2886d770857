"""What a plan to swap versions says: checks, ways, steps and effects, from one look."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from console.actions.box import Box
from console.actions.model_look import ModelLook, gpu_free, load_seconds, mode_refusal, route_check, taken
from console.actions.model_probe import Probe
from console.actions.swap_spec import WHOLE_CARD, listed, probe_kind, spec_of, warmup_of
from console.clients.triton import model_path
from console.core import units
from console.core.golden import Golden
from console.core.plan import Check, Plan, Step, Tick, Way, WrongInput
from console.core.text import one_line

MOST_WATCH = 3600.0
SPARE = 30.0
"""Seconds of the plan's limit for going back."""


class Fit(Struct, frozen=True):
    """Whether both versions fit in the card's memory at once."""

    fits: bool | None
    """None = cannot be told."""
    text: str
    needs: int | None = None
    """Bytes that the new version takes, as far as known."""
    spare: bool | None = None
    """Whether a second copy of the old version fits beside both (a warm-up needs it)."""


def fit(box: Box, seen: ModelLook, new: int) -> Fit:
    """Free memory against what the running version took, scaled by the size of the files."""
    if seen.on_cpu:
        return Fit(True, "both at once: no card memory, its instances are on the CPU", spare=True)
    backend = seen.config.backend if seen.config is not None else ""
    old_disk, new_disk = seen.disk_version(seen.served or 0), seen.disk_version(new)
    size = new_disk.size if new_disk is not None else None
    free, why = gpu_free(box, seen)
    took, origin = taken(box, seen, seen.served or 0)
    needs = took
    if took is not None and size and old_disk is not None and old_disk.size:
        needs = int(took * size / old_disk.size)
    if backend in WHOLE_CARD:
        return Fit(False, f"both at once: {backend} takes its share of the whole card when it starts", needs)
    if free is None:
        return Fit(None, f"both at once: free memory is not known ({why})", needs)
    if needs is not None:
        words = f"both at once: needs {units.size(needs)} more ({origin}, by file size), free {units.size(free)}"
        return Fit(free >= needs, words, needs, free >= needs + (took or 0))
    if size is not None and free < size:
        return Fit(False, f"both at once: its files alone are {units.size(size)}, free {units.size(free)}", size)
    return Fit(
        None, f"both at once: files {units.size(size)}, free {units.size(free)}; what it takes there is not known", None
    )


class SwapPlan:
    """All that the plan says, from one look."""

    def __init__(self, box: Box, seen: ModelLook, new: int, golden: Golden | None, values: Mapping[str, str]) -> None:
        self.box, self.seen, self.new, self.golden = box, seen, new, golden
        self.watch = _seconds(values.get("watch", ""), box.settings.actions.watch)
        self.refused = self._refusal()
        self.fit = fit(box, seen, new) if not self.refused else Fit(None, "")
        self.way = values.get("way") or ("gap" if self.fit.fits is False else "beside")
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
            "warmup": values.get("warmup") or self._warm_by_itself(),
            "recover": values.get("recover") or "false",
            "route": values.get("route") or "auto",
        }
        self.spec = spec_of(seen, new, None) if not self.refused else None
        self.load_s = load_seconds(box, seen.name)

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
        useful = warmup_of(self.seen, self.golden) is not None and self.fit.spare and not python
        return "true" if useful else "false"

    @property
    def warm(self) -> bool:
        return self.values["warmup"] == "true" and warmup_of(self.seen, self.golden) is not None

    def plan(self, action: str) -> Plan:
        seen, gap = self.seen, self.way == "gap"
        where = f", container {seen.container.name}" if seen.container is not None else ""
        return Plan(
            action=action,
            target=seen.target(),
            values=self.values,
            title=f"Swap {seen.name} {seen.served or '–'} → {self.new} on {self.box.host}{where}",
            yes="Swap",
            danger="danger" if gap else "caution",
            note="a gap" if gap else "",
            checks=() if self.refused else self.checks(),
            ways=() if self.refused else self.ways(),
            way=self.way,
            ticks=self.ticks(),
            steps=() if self.refused else self.steps(),
            effects=() if self.refused else self.effects(),
            by_hand=() if self.refused else self.by_hand(),
            undo=f"swap back to {seen.served} by the same steps" if seen.served is not None else "",
            limit=self.box.settings.actions.load_timeout + 2 * self.watch + SPARE + (2 * 60.0 if gap else 0.0),
            gap_s=(self.load_s if gap else 0.0),
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
        if self.seen.unloading:
            found.append(Check("note", f"still ending: {', '.join(self.seen.unloading)}, its memory is not back yet"))
        if self.seen.live_only:
            kept = ", ".join(self.seen.live_only[:3])
            found.append(Check("note", f"live-only settings are kept: {kept}; a restart drops them"))
        return tuple(found)

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

    # --------------------------------------------------------------------------------------------- ways, ticks, steps

    def ways(self) -> tuple[Way, ...]:
        known = f"≈ {self.load_s:.1f} s (the last load took that)" if self.load_s is not None else "not known"
        beside = "both in memory meanwhile" if self.fit.fits is not False else "both do not fit at once"
        return (
            Way(
                "beside",
                f"load {self.new} beside {self.seen.served}, then drop {self.seen.served}",
                f"nothing: {beside}",
                "0 s",
                "" if self.fit.fits is not False else self.fit.text.removeprefix("both at once: "),
            ),
            Way(
                "gap",
                f"unload {self.seen.served}, wait for memory, load {self.new}",
                "404 no available versions",
                known,
            ),
        )

    def ticks(self) -> tuple[Tick, ...]:
        if self.refused:
            return ()
        found = []
        if warmup_of(self.seen, self.golden) is not None:
            text = "warm-up in the kept question's shapes before READY; it stays live until a restart"
            if self.way == "beside":
                text += f"; Triton then loads {self.seen.served} anew as well, a third copy meanwhile"
            if self.seen.config is not None and self.seen.config.backend == "python":
                text += "; ▲ a Python process that ends in it may take the server down"
            found.append(Tick("warmup", text, self.values["warmup"] == "true"))
        if self.seen.disk is not None:
            found.append(
                Tick(
                    "recover",
                    f"if {self.new} crashes the server: pin {self.seen.served} in config.pbtxt and start it again",
                    self.values["recover"] == "true",
                )
            )
        return tuple(found)

    def steps(self) -> tuple[Step, ...]:
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
        back = f"load {listed(self.spec.before)}" if self.way == "gap" else f"drop {new}, {old} never went"
        named = {
            "note": Step("note", f"note the READY set, ask {old}", "nothing was sent"),
            "gap": Step("gap", f"unload {seen.name}, wait for its end", back, (f"RepositoryModelUnload {seen.name}",)),
            "memory": Step("memory", f"wait until {units.size(self.fit.needs)} are free, ≤ 60 s", back),
            "load": Step("load", self._load_text(), "nothing changed: the old one serves on", (load,)),
            "probe": Step("probe", ask, back),
            "watch": Step(
                "watch", f"watch fail rate and mean for {self.watch:g} s (twice that where it seems slower)", back
            ),
            "unload": Step(
                "unload", f"drop {listed(self.spec.going)} by policy {self.spec.policy_after.text}", back, (load,)
            ),
            "check": Step("check", f"READY: {listed(self.spec.after)}, and all other models as before", back),
        }
        after_drop = ("watch", "check") if not self.spec.up else ("check",)
        if self.way != "gap":
            anew = f"load {listed(self.spec.before)} again, then drop {new}"
            named |= {name: structs.replace(named[name], if_it_fails=anew) for name in after_drop}
        order = {
            "gap": ("note", "gap", "memory", "load", "probe", "watch", "check"),
            "up": ("note", "load", "probe", "watch", "unload", "check"),
            "down": ("note", "load", "probe", "unload", "watch", "check"),
        }["gap" if self.way == "gap" else "up" if self.spec.up else "down"]
        return tuple(named[name] for name in order if name != "watch" or self.watch > 0)

    def _load_text(self) -> str:
        assert self.spec is not None
        policy = listed(self.spec.after if self.way == "gap" else self.spec.beside)
        warm = ", warm-up before READY" if self.warm else ""
        limit = self.box.settings.actions.load_timeout
        return f"load {self.new} over {self.seen.route.name} (policy specific {policy}{warm}), waits up to {limit:g} s"

    # ------------------------------------------------------------------------------------------------------ effects

    def effects(self) -> tuple[str, ...]:
        assert self.spec is not None
        seen, old, new = self.seen, self.seen.served, self.new
        took = f"≈ {self.load_s:.1f} s by its last load" if self.load_s is not None else "how long is not known"
        lines = [f"the load takes {took}; the server's ready is 400 meanwhile (health checks, load balancers)"]
        if self.way == "gap":
            lines += ["from the unload to READY: 404 for this model; requests accepted before are answered"]
            lines += ["rolling back costs the same gap again"]
        elif self.spec.up:
            lines.append(f"requests in flight finish on {old}; new ones go to {new} the moment it is READY")
        else:
            lines.append(f"{new} is asked while {old} takes the traffic; it moves when {old} is dropped")
        lines.append(self._exposure())
        lines.append(f"clients that name version {old} get 503, then 400, once it is dropped")
        lines += [f"{name} (ensemble) is made anew with it, shortly" for name in seen.users]
        lines.append("now: " + ("requests unknown" if seen.rate is None else f"{units.rate(seen.rate)} requests/s"))
        lines += [self.spec.lasting, *([f"if {new} crashes the server: {self.spec.again}"] if self.spec.again else [])]
        return tuple(lines)

    def _exposure(self) -> str:
        assert self.spec is not None
        if not self.spec.up and self.way != "gap":
            return (
                f"a wrong {self.new} is found before it gets traffic; what only traffic shows lasts up to "
                f"{self.watch:g} s and a load of {self.seen.served}"
            )
        back = "the load of the old one" if self.way == "gap" else "≈ 0.1 s to go back"
        if self.kind == "off":
            return f"a wrong {self.new} has the traffic for up to {self.watch:g} s, then {back}"
        return (
            f"a wrong {self.new} has the traffic from READY until its first answer is compared and {back}; what only "
            f"traffic shows, for up to {self.watch:g} s more (slowness: twice that)"
        )

    def by_hand(self) -> tuple[str, ...]:
        assert self.spec is not None
        url, path = self.box.address().url, model_path(self.seen.name)

        def load(versions: tuple[int, ...]) -> str:
            whole = f'{{"parameters":{{"config":"WHOLE CONFIG with version_policy specific {listed(versions)}"}}}}'
            return shlex.join(("curl", "-X", "POST", f"{url}/v2/repository{path[3:]}/load", "-d", whole))

        ask = shlex.join(("curl", f"{url}{path}/versions/{self.new}/infer", "-d", "@QUESTION"))
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
