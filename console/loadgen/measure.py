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
from console.loadgen import live, verdict
from console.loadgen.announce import Running, announced, mine
from console.loadgen.cards import Cards
from console.loadgen.errors import total
from console.loadgen.inputs import Inputs
from console.loadgen.launch import Sender
from console.loadgen.live import Look, Watch
from console.loadgen.order import Broken, Ended, Order, Progress, Warmed, request
from console.loadgen.record import Client, Live, Run, Server
from console.loadgen.schedule import Load

SETTLED_WITHIN_S = 1.0
"""Triton counts a request up to some ms after its answer went out."""
LOOK_S = 0.05
LOOK_BEFORE_S = 2.0
STALE_S = 1.0
"""What the sender said so long ago is not held against what the server says now."""


class Plan(Struct, frozen=True):
    """What is to be run."""

    address: TritonAddress
    ip: str
    model: str
    version: str
    """Empty: the server chooses."""
    load: Load
    warm_up: Load | None
    inputs: Inputs
    config: ModelConfig
    batch: int
    golden: Golden | None
    goal_ms: float | None
    timeout_s: float
    max_errors: float
    """Share of requests that may fail before it stops itself."""
    live_limits: Mapping[str, float] = {}
    """ms by model, "" for each: mean of what others ask above which it stops itself."""
    look_s: float = LOOK_BEFORE_S
    """How long others' traffic is looked at before anything is sent."""

    @property
    def answers(self) -> str:
        """How they are checked."""
        if self.golden is not None:
            return f"compared with the kept one, within {self.golden.relative:g}"
        return "status, and each output with all its data"

    def order(self) -> Order:
        """For the sender."""
        at, path = self.address, f"{model_path(self.model, self.version or None)}/infer"
        return Order(
            self.ip,
            at.http_port,
            tuple(request(path, at.where, r.body, {**at.headers, **r.headers}) for r in self.inputs.requests),
            self.load,
            self.warm_up,
            () if self.golden is not None else tuple((o.name, o.datatype) for o in self.config.outputs),
            self.golden,
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
        steps = {step.model for step in plan.config.steps}
        self._watched = Watch({plan.model}, steps - {plan.model}, plan.live_limits)
        self._live_unknown = ""
        self._warmed = 0
        """Answers within the warm-up."""
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
        statistics = Statistics(plan.address, plan.model, plan.version)
        self._cards.start()
        try:
            self._look_before(statistics)
            with (
                Sender(plan.order(), read_only=self._read_only) as self._sender,
                announced(self._mine()) as unannounced,
            ):
                if self._stopped:
                    self._sender.stop()
                before, ended = self._followed(self._sender, statistics)
            server, unknown = self._server(statistics, before, ended.client)
            self._look_at_the_end(statistics, ended.client)
            self._look_at_config(statistics)
        finally:
            self._cards.end()
            self._sender = None
            statistics.close()
        return self._record(host, by, ended, server, unknown, unannounced)

    def _mine(self) -> Running:
        plan = self._plan
        longest = plan.load.seconds + (plan.warm_up.seconds if plan.warm_up else 0.0)
        return mine(plan.model, plan.address.where, plan.load.words(), longest)

    def _followed(self, sender: Sender, statistics: Statistics) -> tuple[Sequence[ModelStats] | None, Ended]:
        before: Sequence[ModelStats] | None = None
        for message in sender.messages():
            match message:
                case Broken():
                    raise WrongInput(f"{self._plan.address.where} cannot be loaded: {message.text}")
                case Warmed():
                    before = self._quiet(statistics)
                    self._warmed = message.done + message.errors
                    if (look := self._look(self._all(statistics), self._warmed)) is not None:
                        self._watched.begin(look)
                    self._cards.measure()
                    sender.go()
                case Progress():
                    self._tell(message)
                    found = self._all(statistics)
                    self._watch(sender, found, before)
                    self._look_at_others(sender, found, message)
                case Ended():
                    self._cards.end()
                    return before, message
        raise AssertionError("messages() ends by an exception only")

    def _quiet(self, statistics: Statistics) -> Sequence[ModelStats] | None:
        """When what the warm-up asked is counted. None where there are no statistics."""
        last: list[tuple[str, int]] = []

        def same(found: Sequence[ModelStats]) -> bool:
            counts = [(one.version, one.success_count) for one in found]
            was = last.copy()
            last[:] = counts
            return was == counts

        try:
            return statistics.settled(same)
        except SourceError:
            return None

    def _watch(self, sender: Sender, found: Sequence[ModelStats] | None, before: Sequence[ModelStats] | None) -> None:
        """A model that was loaded anew under way makes the run worthless: it ends there."""
        if before is None or found is None or self._not_valid:
            return  # it is busy, or gone; the answers tell
        plan = self._plan
        try:
            verdict.served(before, [m for m in found if m.name == plan.model and plan.version in ("", m.version)])
        except verdict.ResetError:
            self._not_valid = f"{self._plan.model} was loaded anew at {units.clock(time.time())}"
            sender.stop()

    def _look_before(self, statistics: Statistics) -> None:
        """What others ask while nothing is sent yet. WrongInput for limits that cannot be held."""
        first = self._look(self._all(statistics), 0) if self._plan.look_s else None
        until = time.monotonic() + self._plan.look_s
        while first is not None and not self._stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
        last = self._look(self._all(statistics), 0)
        if last is not None:
            self._watched.before(first, last)
            self.live = self._watched.found()
        elif self._plan.live_limits:
            raise WrongInput(f"{live.FLAG} cannot be held: {self._live_unknown}")

    def _all(self, statistics: Statistics) -> Sequence[ModelStats] | None:
        """Of all models, or of the loaded one where that is all that can be had; None where nothing can."""
        try:
            found = statistics.read_all()
            self._live_unknown = ""
        except SourceError as error:
            self._live_unknown = error.message
            try:
                found = statistics.read()
            except SourceError:
                return None
        return found

    def _look(self, found: Sequence[ModelStats] | None, own: float) -> Look | None:
        return None if found is None else Look(time.monotonic(), live.counted(found), {self._plan.model: own})

    def _look_at_others(self, sender: Sender, found: Sequence[ModelStats] | None, at: Progress) -> None:
        """Others who are hurt end it. Between the sender's word and the look at the server more answers came."""
        late = time.monotonic() - at.monotonic
        if late > STALE_S:
            found = None
        own = at.done + at.errors + at.rate * late + (self._warmed if at.at > 0 else 0)
        look = self._look(found, own)
        why = self._watched.blind(time.monotonic()) if look is None else self._watched.look(look)
        self.live = self._watched.found()
        if why and not self._hurt:
            self._hurt = why
            sender.stop()

    def _look_at_the_end(self, statistics: Statistics, client: Client) -> None:
        look = self._look(self._all(statistics), self._warmed + client.done + total(client.errors))
        if look is not None and client.sent:
            self._watched.look(look)
            self.live = self._watched.found()

    def _server(
        self, statistics: Statistics, before: Sequence[ModelStats] | None, client: Client
    ) -> tuple[Server | None, str]:
        if before is None:
            return None, "its statistics could not be read when the measuring began"

        def counted(found: Sequence[ModelStats]) -> bool:
            return verdict.served(before, found).requests >= client.done

        try:
            return verdict.served(before, statistics.settled(counted)), ""
        except SourceError as error:
            return None, error.message
        except verdict.ResetError:
            self._not_valid = self._not_valid or f"{self._plan.model} was loaded anew meanwhile"
            return None, "its counters began anew under way"

    def _look_at_config(self, statistics: Statistics) -> None:
        try:
            now = statistics.config()
        except (SourceError, WrongInput):
            return
        if now.raw != self._plan.config.raw and not self._not_valid:
            self._not_valid = f"the configuration of {self._plan.model} was changed meanwhile"

    def _record(self, host: str, by: str, ended: Ended, server: Server | None, unknown: str, unannounced: str) -> Run:
        plan, client = self._plan, ended.client
        stages = [replace(one, steady=verdict.stage_steady(plan.load, one, client.slices)) for one in client.stages]
        client = replace(client, stages=tuple(stages))
        cards, cards_unknown = self._cards.found()
        notes = [unannounced] if unannounced else []
        if limited := verdict.limit(plan.load, client):
            notes.append(limited)
        if plan.config.response_cache and len(plan.inputs.requests) == 1:
            notes.append("it has a response cache, and the same request always hits it: use --random or --data")
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
            server=server,
            server_unknown=unknown,
            goal_ms=plan.goal_ms,
            met=verdict.met(client.shape(), total(client.errors), plan.goal_ms),
            ended=self._hurt or ended.ended,
            steady=verdict.steady(plan.load, client, ended.ended),
            not_valid=self._not_valid,
            notes=(*notes, *self._watched.notes),
            live=self._watched.found(),
            live_unknown=self._live_unknown,
            live_limits=plan.live_limits,
            cards=cards,
            cards_unknown=cards_unknown,
        )
