"""One run from beginning to end: sender, the server's statistics around it, a watch on what must not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from console.clients.triton import Http, TritonAddress, expect_ok, model_path, server_http
from console.clients.triton_wire import StatsDecoder, decode_config, decode_index
from console.core import units
from console.core.golden import Golden
from console.core.model import ModelConfig, ModelStats, SourceError
from console.core.plan import WrongInput
from console.core.poller import Source
from console.core.text import one_line
from console.loadgen import live, order, verdict
from console.loadgen.announce import Running, announced, mine
from console.loadgen.cards import Cards
from console.loadgen.errors import total
from console.loadgen.inputs import Inputs
from console.loadgen.launch import Sender
from console.loadgen.live import Look, Watch
from console.loadgen.order import Broken, Ended, Progress, Warmed, request
from console.loadgen.record import Client, Live, Model, Run, Server
from console.loadgen.schedule import Load

SETTLED_WITHIN_S = 1.0
"""Triton counts a request up to some ms after its answer went out."""
LOOK_S = 0.05
LOOK_BEFORE_S = 2.0
STALE_S = 1.0
"""What the sender said so long ago is not held against what the server says now."""


class Asked(Struct, frozen=True):
    """One model that is asked."""

    model: str
    version: str
    """Empty: the server chooses."""
    inputs: Inputs
    config: ModelConfig
    golden: Golden | None = None
    share: float = 1.0
    """Of all requests."""

    @property
    def answers(self) -> str:
        """How they are checked."""
        if self.golden is not None:
            return f"compared with the kept one, within {self.golden.relative:g}"
        return "status, and each output with all its data"

    def order(self, at: TritonAddress) -> order.Asked:
        """For the sender."""
        path = f"{model_path(self.model, self.version or None)}/infer"
        return order.Asked(
            tuple(request(path, at.where, r.body, {**at.headers, **r.headers}) for r in self.inputs.requests),
            () if self.golden is not None else tuple((o.name, o.datatype) for o in self.config.outputs),
            self.golden,
            self.share,
        )


class Plan(Struct, frozen=True):
    """What is to be run."""

    address: TritonAddress
    ip: str
    asked: tuple[Asked, ...]
    """The models; their shares sum to 1."""
    load: Load
    warm_up: Load | None
    batch: int
    goal_ms: float | None
    """p99 of each model."""
    timeout_s: float
    max_errors: float
    """Share of requests that may fail before it stops itself."""
    live_limits: Mapping[str, float] = {}
    """ms by model, "" for each: mean of what others ask above which it stops itself."""
    look_s: float = LOOK_BEFORE_S
    """How long others' traffic is looked at before anything is sent."""

    @property
    def model(self) -> str:
        """The first one's name."""
        return self.asked[0].model

    @property
    def version(self) -> str:
        """The first one's; "": the server chooses."""
        return self.asked[0].version

    @property
    def inputs(self) -> Inputs:
        """The first one's."""
        return self.asked[0].inputs

    @property
    def config(self) -> ModelConfig:
        """The first one's."""
        return self.asked[0].config

    @property
    def answers(self) -> str:
        """How the first one's are checked."""
        return self.asked[0].answers

    @property
    def names(self) -> str:
        """All models: `rank`, `rank + recall`."""
        return " + ".join(one.model for one in self.asked)

    def order(self) -> order.Order:
        """For the sender."""
        at = self.address
        return order.Order(
            self.ip,
            at.http_port,
            tuple(one.order(at) for one in self.asked),
            self.load,
            self.warm_up,
            self.timeout_s,
            self.max_errors,
        )


class Statistics:
    """Reads a model's statistics and configuration over one kept connection; close it."""

    def __init__(self, address: TritonAddress, model: str, version: str) -> None:
        self._http: Http = server_http(address)
        self._model, self._version = model, version
        self._path = model_path(model, version or None)
        self._decoder = StatsDecoder()

    def close(self) -> None:
        """Let the connection go."""
        self._http.close()

    def read(self) -> Sequence[ModelStats]:
        """Of all versions that requests may go to. SourceError."""
        return self._decoder.decode(expect_ok(self._http.get(f"{self._path}/stats"), f"statistics of {self._model}"))

    def read_all(self) -> Sequence[ModelStats]:
        """Of all models. SourceError, also where models of two repositories share a name (domain facts, 1.6)."""
        return self._decoder.decode(expect_ok(self._http.get("/v2/models/stats"), "statistics of all models"))

    def settled(self, enough: Callable[[Sequence[ModelStats]], bool]) -> Sequence[ModelStats]:
        """When `enough` says so, or after SETTLED_WITHIN_S. SourceError."""
        deadline = time.monotonic() + SETTLED_WITHIN_S
        found = self.read()
        while not enough(found) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            found = self.read()
        return found

    def config(self) -> ModelConfig:
        """As it is served. WrongInput for a model that is not; SourceError."""
        answer = self._http.get(f"{self._path}/config")
        if answer.status in (400, 404):
            raise WrongInput(f"{self._named()} is not served here; {self._served()}")
        return decode_config(expect_ok(answer, f"configuration of {self._model}"), self._model, self._version)

    def _named(self) -> str:
        version = f" version {one_line(self._version, 40)}" if self._version else ""
        return f"{one_line(self._model, 80)}{version}"

    def _served(self) -> str:
        try:
            index = decode_index(expect_ok(self._http.post("/v2/repository/index"), "the index"))
        except SourceError:
            return "the index of models could not be read"
        ready = sorted({f"{e.name} {e.version}" for e in index if e.state == "READY"})
        return "served are " + ", ".join(ready[:20]) if ready else "no model is"


def settings(config: ModelConfig) -> dict[str, str]:
    """What of a configuration sets the pace, as it is kept with the run."""
    instances = sum(group.count * max(1, len(group.gpus)) for group in config.instance_groups)
    found = {"max batch": str(config.max_batch_size), "instances": str(instances)}
    if not config.dynamic_batching:
        return {"batching": "off", **found}
    found = {"delay": f"{config.delay_us} µs", **found}
    if config.preferred:
        found["preferred"] = ", ".join(map(str, config.preferred))
    return {"batching": "dynamic", **found}


class _Side:
    """The server's side of one model: its statistics before, and what is wrong with them."""

    def __init__(self, asked: Asked, address: TritonAddress) -> None:
        self.asked = asked
        self.statistics = Statistics(address, asked.model, asked.version)
        self.before: Sequence[ModelStats] | None = None
        self.at = 0.0
        """When they were read."""
        self.server: Server | None = None
        self.unknown = ""

    def read(self) -> bool:
        """Keep the statistics as they are now; whether no request was counted since the last time."""
        old = self.before
        try:
            self.before = self.statistics.read()
        except SourceError:
            self.before = None
            return True
        self.at = time.monotonic()
        return old is not None and _counts(old) == _counts(self.before)

    def anew(self, found: Sequence[ModelStats]) -> bool:
        """Whether the model was loaded anew since then; `found` are of all models."""
        if self.before is None:
            return False
        name, version = self.asked.model, self.asked.version
        try:
            verdict.served(self.before, [m for m in found if m.name == name and version in ("", m.version)])
        except verdict.ResetError:
            return True
        return False

    def after(self, done: int) -> bool:
        """Read what the server counted, once it counts `done`; False where its counters began anew."""
        before = self.before
        if before is None:
            self.unknown = "its statistics could not be read when the measuring began"
            return True

        def counted(found: Sequence[ModelStats]) -> bool:
            return verdict.served(before, found).requests >= done

        try:
            served = verdict.served(before, self.statistics.settled(counted))
            self.server = replace(served, span=time.monotonic() - self.at)
        except SourceError as error:
            self.unknown = error.message
        except verdict.ResetError:
            self.unknown = "its counters began anew under way"
            return False
        return True

    def changed(self) -> bool:
        """Whether the served configuration is another one now."""
        try:
            return self.statistics.config().raw != self.asked.config.raw
        except (SourceError, WrongInput):
            return False

    def model(self) -> Model:
        """For the record of several."""
        asked = self.asked
        return Model(asked.model, asked.version, asked.share, asked.inputs.text, asked.answers, settings(asked.config),
                     self.server, self.unknown)  # fmt: skip


def _counts(stats: Sequence[ModelStats]) -> list[tuple[str, int]]:
    return [(one.version, one.success_count) for one in stats]


class Measuring:
    """Carries a plan out. `tell` gets each Progress; `stop` may be called from a signal handler or another thread."""

    def __init__(
        self, plan: Plan, *, read_only: bool, tell: Callable[[Progress], None], gpu: Source | None = None
    ) -> None:
        """`gpu` gives a GpuBox, of the machine that is loaded; None = its cards cannot be read from here."""
        self._plan = plan
        self._read_only = read_only
        self._tell = tell
        self._stopped = False
        self._sender: Sender | None = None
        self._not_valid = ""
        self._hurt = ""
        """Why it stopped itself for others' sake."""
        self._cards = Cards(gpu)
        ours = {asked.model for asked in plan.asked}
        steps = {step.model for asked in plan.asked for step in asked.config.steps}
        self._watched = Watch(ours, steps - ours, plan.live_limits)
        self._live_unknown = ""
        self._warmed: tuple[int, ...] = ()
        """Requests of the warm-up that came to an end, by model."""
        self.live: tuple[Live, ...] = ()
        """What others ask of the server, as far as it is known by now; read from any thread."""

    def stop(self) -> None:
        """Send no more, and tell what was."""
        self._stopped = True
        if self._sender is not None:
            self._sender.stop()

    def run(self, host: str, by: str) -> Run:
        """The record, not yet kept. Refused in read-only mode; WrongInput where the server refuses; SourceError."""
        plan = self._plan
        sides = [_Side(asked, plan.address) for asked in plan.asked]
        self._cards.start()
        try:
            self._look_before(sides)
            with (
                Sender(plan.order(), read_only=self._read_only) as self._sender,
                announced(self._mine()) as unannounced,
            ):
                if self._stopped:
                    self._sender.stop()
                ended = self._followed(self._sender, sides)
            self._look_at_the_end(sides, ended.client)
        finally:
            self._cards.end()
            self._sender = None
            for side in sides:
                side.statistics.close()
        return self._record(host, by, ended, sides, unannounced)

    def _mine(self) -> Running:
        plan = self._plan
        longest = plan.load.seconds + (plan.warm_up.seconds if plan.warm_up else 0.0)
        return mine(plan.names, plan.address.where, plan.load.words(), longest)

    def _followed(self, sender: Sender, sides: Sequence[_Side]) -> Ended:
        for message in sender.messages():
            match message:
                case Broken():
                    raise WrongInput(f"{self._plan.address.where} cannot be loaded: {message.text}")
                case Warmed():
                    self._quiet(sides)
                    self._warmed = message.answered
                    if (look := self._look(self._all(sides), self._warmed)) is not None:
                        self._watched.begin(look)
                    self._cards.measure()
                    sender.go()
                case Progress():
                    self._tell(message)
                    found = self._all(sides)
                    self._watch(sender, found, sides)
                    self._look_at_others(sender, found, message)
                case Ended():
                    self._cards.end()
                    return message
        raise AssertionError("messages() ends by an exception only")

    def _quiet(self, sides: Sequence[_Side]) -> None:
        """Keep the statistics of all when what the warm-up asked is counted, or others never leave them quiet."""
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            quiet = [side.read() for side in sides]  # each, also after one that is not
            if all(quiet) or time.monotonic() >= deadline:
                return
            time.sleep(LOOK_S)

    def _watch(self, sender: Sender, found: Sequence[ModelStats] | None, sides: Sequence[_Side]) -> None:
        """A model that was loaded anew under way makes the run worthless: it ends there."""
        if found is None or self._not_valid:
            return  # the server is busy, or gone; the answers tell
        anew = next((side.asked.model for side in sides if side.anew(found)), "")
        if anew:
            self._not_valid = f"{anew} was loaded anew at {units.clock(time.time())}"
            sender.stop()

    def _look_before(self, sides: Sequence[_Side]) -> None:
        """What others ask while nothing is sent yet. WrongInput for limits that cannot be held."""
        first = self._look(self._all(sides), ()) if self._plan.look_s else None
        until = time.monotonic() + self._plan.look_s
        while first is not None and not self._stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
        last = self._look(self._all(sides), ())
        if last is not None:
            self._watched.before(first, last)
            self.live = self._watched.found()
        elif self._plan.live_limits:
            raise WrongInput(f"{live.FLAG} cannot be held: {self._live_unknown}")

    def _all(self, sides: Sequence[_Side]) -> Sequence[ModelStats] | None:
        """Of all models, or of the asked ones where that is all that can be had; None where nothing can."""
        try:
            found = sides[0].statistics.read_all()
            self._live_unknown = ""
        except SourceError as error:
            self._live_unknown = error.message
            try:
                found = [one for side in sides for one in side.statistics.read()]
            except SourceError:
                return None
        return found

    def _look(self, found: Sequence[ModelStats] | None, answered: Sequence[float]) -> Look | None:
        """`answered` are requests of ours that came to an end, by model; none yet where it is empty."""
        if found is None:
            return None
        own = {asked.model: 0.0 for asked in self._plan.asked}
        own |= {asked.model: count for asked, count in zip(self._plan.asked, answered, strict=False)}
        return Look(time.monotonic(), live.counted(found), own)

    def _look_at_others(self, sender: Sender, found: Sequence[ModelStats] | None, at: Progress) -> None:
        """Others who are hurt end it. Between the sender's word and the look at the server more answers came."""
        late = time.monotonic() - at.monotonic
        if late > STALE_S:
            found = None
        before = self._warmed if at.at > 0 and self._warmed else (0,) * len(at.answered)
        more = [at.rate * late * asked.share for asked in self._plan.asked]
        own = [sum(parts) for parts in zip(before, at.answered, more, strict=True)]
        look = self._look(found, own)
        why = self._watched.blind(time.monotonic()) if look is None else self._watched.look(look)
        self.live = self._watched.found()
        if why and not self._hurt:
            self._hurt = why
            sender.stop()

    def _look_at_the_end(self, sides: Sequence[_Side], client: Client) -> None:
        counts = [(share.done, total(share.errors)) for share in client.shares]
        counts = counts or [(client.done, total(client.errors))]
        for side, (done, _) in zip(sides, counts, strict=True):
            if not side.after(done):
                self._not_valid = self._not_valid or f"{side.asked.model} was loaded anew meanwhile"
        before = self._warmed or (0,) * len(sides)
        look = self._look(self._all(sides), [b + done + bad for b, (done, bad) in zip(before, counts, strict=True)])
        if look is not None and client.sent:
            self._watched.look(look)
            self.live = self._watched.found()
        changed = next((side.asked.model for side in sides if side.changed()), "")
        if changed and not self._not_valid:
            self._not_valid = f"the configuration of {changed} was changed meanwhile"

    def _record(self, host: str, by: str, ended: Ended, sides: Sequence[_Side], unannounced: str) -> Run:
        plan, client = self._plan, ended.client
        stages = [replace(one, steady=verdict.stage_steady(plan.load, one, client.slices)) for one in client.stages]
        client = replace(client, stages=tuple(stages))
        cards, cards_unknown = self._cards.found()
        notes = [unannounced] if unannounced else []
        if limited := verdict.limit(plan.load, client):
            notes.append(limited)
        notes += [
            f"{asked.model} has a response cache, and the same request always hits it: use --random or --data"
            for asked in plan.asked
            if asked.config.response_cache and len(asked.inputs.requests) == 1
        ]
        several = len(sides) > 1
        return Run(
            id=0,
            wall=ended.began,
            host=host,
            by=by,
            target=plan.address.where,
            model=plan.model,
            version=plan.version,
            load=plan.load,
            warmup_s=plan.warm_up.seconds if plan.warm_up else 0.0,
            batch=plan.batch,
            inputs=plan.inputs.text,
            answers=plan.answers,
            client=client,
            config=settings(plan.config),
            server=None if several else sides[0].server,
            server_unknown="it asked several models, each with figures of its own" if several else sides[0].unknown,
            goal_ms=plan.goal_ms,
            met=verdict.met(client, plan.goal_ms),
            ended=self._hurt or ended.ended,
            steady=verdict.steady(plan.load, client, ended.ended),
            not_valid=self._not_valid,
            notes=(*notes, *self._watched.notes),
            live=self._watched.found(),
            live_unknown=self._live_unknown,
            live_limits=plan.live_limits,
            cards=cards,
            cards_unknown=cards_unknown,
            models=tuple(side.model() for side in sides) if several else (),
        )
