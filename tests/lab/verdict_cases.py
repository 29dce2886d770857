"""Drives a Triton of its own into the situations of the verdict table and scores what Why says.

Run by hand: `scripts/verdicts` (about 12 minutes; `scripts/verdicts V20 V22` for some). Needs the lab's image
(`scripts/lab up`). Nothing of the shared lab is touched: the server is a second container in a Podman of its own, on
ports 18200 to 18202, with a model repository of its own. The way from the server to the verdict is the product's:
sources, store, Why, every 5 s.

Each case is labelled with the verdict that it should give before it runs; none has the settings of the 25 cases that
shaped the thresholds. A case is right when its verdict stands within 15 s after the situation holds and at the end, and
no other problem is told of its model.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console import compose
from console.advisors.why import Why
from console.clients.triton import TritonAddress
from console.clients.triton_ask import ask
from console.config import Podman, Settings, Triton
from console.config import Repository as RepositorySettings
from console.core.model import Asked, Event, Reading, Snapshot, Verdict
from console.core.session import Session
from console.core.store import Store
from tests.lab import paths, repository, triton

CONTAINER = "gpuconsole-verdicts"
BASE_PORT = 18200
WITHIN = 15.0
"""Seconds after the situation holds."""
WATCH = 45.0
"""Seconds for which a situation is held."""
LOOK_EVERY = 5.0
PROBLEMS = ("fail", "warn")

HOME = Path(os.environ.get("GPUCONSOLE_VERDICTS_HOME", "/tmp/gpuconsole-verdicts"))
MODELS = HOME / "models"
SOCKET = HOME / "podman.sock"


@dataclass(frozen=True)
class Case:
    """One situation, labelled."""

    name: str
    model: str
    expect: str
    """The verdict's id; "" = no problem of this model may be told."""
    config: str = ""
    """config.pbtxt; "" where the model is deployed by another case of the wave."""
    flow: str = ""
    """A number for `traffic`: callers where `closed`, else requests a second (Poisson)."""
    closed: bool = False
    program: str = "sleeper.py"
    versions: Sequence[int] = (1,)
    act: Callable[[Bench], None] | None = None
    """What makes the situation; None: the traffic itself does."""
    lead: float = 0.0
    """Seconds of traffic before `act`."""
    holds_after: float = 0.0
    """Seconds after the beginning at which the situation holds by the rule's own words (60 s without a request)."""
    watch: float = WATCH
    also: Sequence[str] = ()
    """Other problems of this model that are right as well."""
    sign: str = ""
    lasting: bool = True
    """False for what passes by itself (a swap)."""
    of_model: bool = True
    """False for verdicts about the server."""


@dataclass
class Outcome:
    """What was seen of one case."""

    case: Case
    began: float = 0.0
    first: float | None = None
    last: list[tuple[str, str]] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    figures: str = ""
    title: str = ""

    @property
    def late(self) -> float | None:
        """Seconds after the situation held; None when it never came."""
        return None if self.first is None else max(0.0, self.first - self.began - self.case.holds_after)

    @property
    def right(self) -> bool:
        if self.wrong:
            return False
        if not self.case.expect:
            return True
        stands = not self.case.lasting or any(self._is(id_, sign) for id_, sign in self.last)
        return self.late is not None and self.late <= WITHIN and stands

    def _is(self, id_: str, sign: str) -> bool:
        return id_ == self.case.expect and self.case.sign in ("", sign)

    def see(self, now: float, verdicts: Sequence[Verdict]) -> None:
        """Take one evaluation in."""
        case = self.case
        mine = [v for v in verdicts if (v.model == case.model) or (not case.of_model and v.id == case.expect)]
        self.last = [(v.id, v.sign) for v in mine]
        for one in mine:
            if self._is(one.id, one.sign):
                self.first = self.first if self.first is not None else now
                self.figures, self.title = one.figures, one.title
            elif one.sign in PROBLEMS and one.id not in (*case.also, case.expect):
                settled = self.first is not None or now - self.began > case.holds_after + WITHIN
                if settled or not case.expect:
                    self.wrong.add(one.id)


class Bench:
    """The second Triton, watched through the product's own way."""

    def __init__(self) -> None:
        self.store = Store()
        self.why = Why()
        self.asked: dict[str, Asked] = {}
        self.verdicts: tuple[Verdict, ...] = ()
        self.loads: list[subprocess.Popen[bytes]] = []
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._next = time.monotonic()
        self.session: Session = compose.build(
            Settings(
                triton=Triton(
                    host="127.0.0.1", http_port=BASE_PORT, grpc_port=BASE_PORT + 1, metrics_port=BASE_PORT + 2
                ),
                podman=Podman(socket=f"unix://{SOCKET}", container=CONTAINER),
                repository=RepositorySettings(path=str(MODELS)),
            )
        )
        self.session.start(self._arrivals.put, self._arrivals.put)

    def call(self, method: str, path: str, body: object = None, timeout: float = 90.0) -> tuple[int, Any]:
        """One request to the server, not through the product."""
        return triton.call(BASE_PORT, method, path, body, timeout)

    def load(self, name: str, config: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Load a model, with another configuration than the file's where one is given."""
        parameters = {"parameters": {"config": json.dumps(config)}} if config else {}
        return self.call("POST", f"/v2/repository/models/{name}/load", parameters)

    def served(self, name: str) -> dict[str, Any]:
        """The configuration as served, fit to be given back as an override."""
        config: dict[str, Any] = self.call("GET", f"/v2/models/{name}/config")[1]
        return config

    def unload(self, name: str) -> None:
        self.call("POST", f"/v2/repository/models/{name}/unload")

    def pump(self, seconds: float) -> Iterator[tuple[float, tuple[Verdict, ...]]]:
        """Let the time pass; give each evaluation."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            with contextlib.suppress(queue.Empty):
                while True:
                    item = self._arrivals.get(timeout=0.02)
                    if isinstance(item, Reading):
                        self.store.apply(item)
                    elif isinstance(item, Event):
                        self.store.add_event(item)
            snapshot = self.store.snapshot(time.time(), time.monotonic())
            if now >= self._next:
                self._next += LOOK_EVERY
                self.verdicts = self.why.evaluate(snapshot, self.store.history, self.asked)
                self.store.set_verdicts(self.verdicts)
                yield now, self.verdicts
            time.sleep(0.2)

    @property
    def snapshot(self) -> Snapshot:
        return self.store.snapshot(time.time(), time.monotonic())

    def traffic(self, flows: Sequence[str], *, closed: bool, seconds: float) -> None:
        """Begin traffic in a process of its own."""
        words = ["--closed"] if closed else ["--poisson"]
        self.loads.append(
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.lab", "traffic", "--quiet", "--for", f"{seconds:.0f}", *words),
                    *("--url", f"http://127.0.0.1:{BASE_PORT}", *flows),
                ],
                cwd=paths.SOURCES.parents[1],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def stop_traffic(self) -> None:
        for load in self.loads:
            load.send_signal(signal.SIGINT)
        for load in self.loads:
            try:
                load.wait(20)
            except subprocess.TimeoutExpired:
                load.kill()
        self.loads = []

    def close(self) -> None:
        self.stop_traffic()
        self.session.stop(1.0)


# ------------------------------------------------------------------------------------------------- the second container

_CONF = """\
[containers]
default_ulimits = ["nofile={nofile}:{nofile}", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{home}/libpod"
"""

_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{home}/storage"
runroot = "{home}/run"
[storage.options]
additionalimagestores = ["{images}"]
"""


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONTAINER", "PODMAN"))}
    return kept | {
        "CONTAINERS_CONF": str(HOME / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(HOME / "storage.conf"),
    }


def _podman(*words: str, check: bool = True) -> str:
    done = subprocess.run(
        ["podman", *words], env=_environment(), capture_output=True, text=True, timeout=120, check=False
    )
    if check and done.returncode != 0:
        raise paths.LabError(f"podman {words[0]} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout


def start_server() -> subprocess.Popen[bytes]:
    """A Podman of its own (the lab's images, nothing else of it), its service, and the container on the host's network.

    Returns the service's process. LabError where the lab's image is not there.
    """
    nofile = min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    MODELS.mkdir(parents=True, exist_ok=True)
    (HOME / "containers.conf").write_text(_CONF.format(home=HOME, nofile=nofile))
    (HOME / "storage.conf").write_text(_STORAGE.format(home=HOME, images=paths.STORAGE))
    _podman("rm", "--force", "--time", "0", "--ignore", CONTAINER, check=False)
    for folder in sorted(MODELS.iterdir()):
        shutil.rmtree(folder)
    _podman(
        *("run", "--detach", "--name", CONTAINER, "--pull", "never", "--network", "host"),
        *("--cgroup-parent", f"/{CONTAINER}", "--volume", f"{MODELS}:/models:ro", "--shm-size", "512m"),
        *("--stop-timeout", "5", paths.IMAGE),
        *("tritonserver", "--model-repository=/models", "--model-control-mode=explicit", "--exit-on-error=false"),
        *("--allow-gpu-metrics=false", "--rate-limit=execution_count", "--exit-timeout-secs=3"),
        *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"),
        *(f"--http-port={BASE_PORT}", f"--grpc-port={BASE_PORT + 1}", f"--metrics-port={BASE_PORT + 2}"),
        "--backend-directory=/opt/tritonserver/pytriton/tritonserver/backends",
        "--cache-directory=/opt/tritonserver/pytriton/tritonserver/caches",
    )
    SOCKET.unlink(missing_ok=True)
    service = subprocess.Popen(
        ["podman", "system", "service", "--time=0", f"unix://{SOCKET}"],
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(150):
        with contextlib.suppress(OSError):
            if SOCKET.exists() and triton.call(BASE_PORT, "GET", "/v2/health/live")[0] == 200:
                return service
        time.sleep(0.2)
    service.terminate()
    raise paths.LabError("the second Triton did not come up within 30 s")


def stop_server(service: subprocess.Popen[bytes]) -> None:
    """Take away what start_server made, but for the empty storage."""
    service.terminate()
    service.wait(10)
    _podman("rm", "--force", "--time", "0", "--ignore", CONTAINER, check=False)


# --------------------------------------------------------------------------------------------------- what makes a case


def _override(**fields: Any) -> Callable[[Bench, str], None]:
    def change(bench: Bench, model: str) -> None:
        config = bench.served(model)
        for name, value in fields.items():
            config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
        threading.Thread(target=bench.load, args=(model, config), daemon=True).start()

    return change


def live(model: str, **fields: Any) -> Callable[[Bench], None]:
    """Somebody else's live change."""
    return lambda bench: _override(**fields)(bench, model)


def slower_by_parameter(model: str, base_us: int) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        config = bench.served(model)
        config["parameters"]["base_us"] = {"string_value": str(base_us)}
        threading.Thread(target=bench.load, args=(model, config), daemon=True).start()

    return act


def reload_as_is(model: str) -> Callable[[Bench], None]:
    """The model's file is written anew, as by a deployment of the same: a full reload."""

    def act(bench: Bench) -> None:
        file = MODELS / model / "1" / "model.py"
        file.write_bytes(file.read_bytes())
        threading.Thread(target=bench.load, args=(model,), daemon=True).start()

    return act


def add_version(model: str, version: int, *, load: bool) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        folder = MODELS / model / str(version)
        folder.mkdir()
        (folder / "model.py").write_bytes((MODELS / model / "1" / "model.py").read_bytes())
        if load:
            threading.Thread(target=bench.load, args=(model,), daemon=True).start()

    return act


def kill_stub(model: str, how_many: int = 1) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        host = bench.snapshot.host.value
        for pid in (host.stub_pids.get(f"{model}/1", ()) if host else ())[:how_many]:
            os.kill(pid, signal.SIGKILL)

    return act


def ask_once(model: str) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        told = ask(TritonAddress(http_port=BASE_PORT, metrics_port=BASE_PORT + 2), model)
        bench.asked[model] = told

    return act


def load_behind(model: str) -> Callable[[Bench], None]:
    return lambda bench: threading.Thread(target=bench.load, args=(model,), daemon=True).start()


def sleeper(name: str, base_ms: float, item_ms: float, **other: Any) -> str:
    """A model whose run of b items takes base + item * b ms."""
    times = {"base_us": round(base_ms * 1000), "item_us": round(item_ms * 1000)}
    return repository.sleeper_config(name, **{"instances": 1, "max_batch": 8, **times, **other})


def delay(us: int, more: str = "") -> str:
    return f"dynamic_batching {{ max_queue_delay_microseconds: {us} {more} }}"


def queue_policy(text: str) -> str:
    return f"dynamic_batching {{ default_queue_policy {{ {text} }} }}"


LIMITED = 'rate_limiter { resources [ { name: "bus" count: 1 } ] }'
"""Goes into instance_group: one of all instances that need the bus runs at a time."""


def limited(name: str) -> str:
    plain = sleeper(name, 20, 1, instances=4)
    return plain.replace("kind: KIND_CPU }", f"kind: KIND_CPU {LIMITED} }}")


def unbatched(name: str, base_ms: float, instances: int) -> str:
    """max_batch_size 0: the shapes have no batch dimension, so the traffic's `[1, 4]` must be the model's own."""
    plain = sleeper(name, base_ms, 0, batching=None, max_batch=0, instances=instances)
    return plain.replace("dims: [ 4 ]", "dims: [ 1, 4 ]").replace("dims: [ 1 ]", "dims: [ 1, 1 ]")


def steady(name: str, model: str, expect: str, config: str, flow: str, **other: Any) -> Case:
    return Case(name, model, expect, config, flow, **other)


# ------------------------------------------------------------------------------------------------------------ the cases

ENSEMBLE = """\
name: "both"
platform: "ensemble"
max_batch_size: 8
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "calm1" model_version: -1
    input_map { key: "FEATURES" value: "FEATURES" } output_map { key: "SCORE" value: "SCORE" } } ] }
"""

WAVES: tuple[tuple[Case, ...], ...] = (
    (
        steady("healthy: 3 models, light", "calm1", "", sleeper("calm1", 9, 0.5), "20"),
        steady("healthy: 2 instances, 45/s", "calm2", "", sleeper("calm2", 14, 1, instances=2), "45"),
        steady("healthy: no batching, 8/s", "calm3", "", sleeper("calm3", 11, 0, batching=None), "8"),
        steady("healthy: an ensemble", "both", "", ENSEMBLE, "10"),
        steady("V31 30 ms, 12/s", "itself1", "V31", sleeper("itself1", 30, 2), "12"),
        steady("V31 4 ms, 3 instances, 90/s", "itself2", "V31", sleeper("itself2", 4, 0.3, instances=3), "90"),
        steady("V34 0.4/s", "few1", "V34", sleeper("few1", 9, 1), "0.4", holds_after=5),
        steady("V34 1/s", "few2", "V34", sleeper("few2", 25, 1, instances=2), "1", holds_after=5),
        steady("V35 no summaries", "calm1", "V35", "", "", of_model=False),
    ),
    (
        steady("V20 delay 30 ms, 12/s", "idle1", "V20", sleeper("idle1", 8, 1, batching=delay(30_000)), "12"),
        steady(
            "V20 delay 6 ms, 2 instances, 70/s",
            "idle2",
            "V20",
            sleeper("idle2", 5, 0.4, instances=2, batching=delay(6_000)),
            "70",
        ),
        steady(
            "V20 delay 25 ms, 1 caller",
            "idle3",
            "V20",
            sleeper("idle3", 7, 1, batching=delay(25_000)),
            "1",
            closed=True,
        ),
        steady(
            "V21 delay 30 ms, 110/s",
            "gather1",
            "V21",
            sleeper("gather1", 9, 0.5, max_batch=16, batching=delay(30_000)),
            "110",
            sign="note",
        ),
        steady(
            "V21 fills 4 within 50 ms, 120/s",
            "gather2",
            "V21",
            sleeper("gather2", 8, 0.5, max_batch=4, batching=delay(50_000)),
            "120",
            sign="note",
        ),
        steady("V32 no batching, 42 % busy", "plain1", "V32", sleeper("plain1", 10.4, 0, batching=None), "38"),
    ),
    (
        steady("V19 1 caller", "few_callers1", "V19", sleeper("few_callers1", 18, 2), "1", closed=True),
        steady(
            "V19 3 callers, 3 instances",
            "few_callers2",
            "V19",
            sleeper("few_callers2", 30, 1, instances=3),
            "3",
            closed=True,
        ),
        steady(
            "V18 no batching, 6 callers", "single1", "V18", sleeper("single1", 25, 0, batching=None), "6", closed=True
        ),
        steady(
            "V18 max 0, 2 instances, 10 callers",
            "single2",
            "V18",
            unbatched("single2", 40, 2),
            "10",
            closed=True,
        ),
        steady("V17 max 8, 40 callers", "cap1", "V17", sleeper("cap1", 20, 2), "40", closed=True),
        steady("V17 max 2, 60/s of 50", "cap2", "V17", sleeper("cap2", 30, 5, max_batch=2), "60"),
    ),
    (
        steady("V22 max 4, 1 instance, 90/s", "wait1", "V22", sleeper("wait1", 25, 3, max_batch=4), "90"),
        steady("V22 max 4, 2 callers", "wait2", "V22", sleeper("wait2", 30, 4, max_batch=4), "2", closed=True),
        steady(
            "V23 2 instances, max 32, 220/s",
            "room1",
            "V23",
            sleeper("room1", 20, 0.5, max_batch=32, instances=2),
            "220",
        ),
        steady(
            "V23 3 instances, max 24, 12 callers",
            "room2",
            "V23",
            sleeper("room2", 24, 1, max_batch=24, instances=3),
            "12",
            closed=True,
        ),
        steady(
            "V24 max 0, 2 instances, 70/s",
            "peak1",
            "V24",
            unbatched("peak1", 20, 2),
            "70",
        ),
        steady("V24 no batching, 40/s of 66", "peak2", "V24", sleeper("peak2", 15, 0, batching=None), "40"),
    ),
    (
        steady("V12 every 3rd run raises", "raises1", "V12", sleeper("raises1", 12, 1, raise_every=3), "40"),
        steady("V12 every run raises", "raises2", "V12", sleeper("raises2", 5, 0, raise_every=1), "15"),
        steady(
            "V12 queue time-out 100 ms",
            "timeout1",
            "V12",
            sleeper("timeout1", 180, 5, max_batch=4, batching=queue_policy("default_timeout_microseconds: 100000")),
            "45",
        ),
        steady(
            "V15 limit 4, 14 callers",
            "limit1",
            "V15",
            sleeper("limit1", 45, 5, max_batch=4, batching=queue_policy("max_queue_size: 4")),
            "14",
            closed=True,
        ),
        steady(
            "V15 limit 24, 160/s of 107",
            "limit2",
            "V15",
            sleeper("limit2", 55, 2.5, batching=queue_policy("max_queue_size: 24")),
            "160",
        ),
        steady("V26 rate limiter, 8 callers", "limited1", "V26", limited("limited1"), "8", closed=True, holds_after=30),
    ),
    (
        Case("V13 dead, no traffic", "dead1", "V13", sleeper("dead1", 9, 1), act=kill_stub("dead1"), watch=30),
        Case(
            "V13 one of three dead, 30/s",
            "dead2",
            "V13",
            sleeper("dead2", 9, 1, instances=3),
            "30",
            act=kill_stub("dead2"),
            lead=20,
            watch=30,
        ),
        Case(
            "V16 answers are errors",
            "liar1",
            "V16",
            sleeper("liar1", 12, 1, error_every=1),
            "25",
            act=ask_once("liar1"),
            lead=20,
            watch=25,
        ),
        Case("V33 nobody asks", "alone1", "V33", sleeper("alone1", 9, 1), holds_after=60, watch=85),
    ),
    (
        Case(
            "V28 version 2 is slower",
            "slow1",
            "V28",
            sleeper("slow1", 10, 1, **{"base_us.v2": 16_000}),
            "25",
            act=add_version("slow1", 2, load=True),
            lead=30,
            also=("V29", "V04"),
            holds_after=3,
        ),
        Case(
            "V28 reload with a slower parameter",
            "slow2",
            "V28",
            sleeper("slow2", 12, 0.5, instances=2),
            "60",
            act=slower_by_parameter("slow2", 17_000),
            lead=30,
            also=("V29", "V30"),
            holds_after=3,
        ),
        Case(
            "V29 reloaded as it is",
            "again1",
            "V29",
            sleeper("again1", 20, 1),
            "30",
            act=reload_as_is("again1"),
            lead=30,
        ),
        Case(
            "V29 delay changed live",
            "other1",
            "V29",
            sleeper("other1", 8, 0.5, batching=delay(1000)),
            "30",
            act=live("other1", dynamic_batching={"max_queue_delay_microseconds": 40_000}),
            lead=30,
            also=("V30", "V21"),
        ),
        Case(
            "V30 live-only delay",
            "liveonly1",
            "V30",
            sleeper("liveonly1", 10, 1, batching=delay(2000)),
            "30",
            act=live("liveonly1", dynamic_batching={"max_queue_delay_microseconds": 3000}),
            lead=30,
            also=("V29",),
        ),
        Case(
            "V30 live-only count",
            "liveonly2",
            "V30",
            sleeper("liveonly2", 10, 1),
            act=live("liveonly2", instance_group=[{"count": 2, "kind": "KIND_CPU"}]),
            lead=30,
            also=("V29",),
        ),
        Case(
            "V30b version 3 copied in",
            "newer1",
            "V30b",
            sleeper("newer1", 10, 1),
            "20",
            act=add_version("newer1", 3, load=False),
            lead=30,
        ),
        Case(
            "V21 somebody made the delay 40 ms",
            "warned1",
            "V21",
            sleeper("warned1", 8, 0.5, max_batch=32, batching=delay(1000)),
            "60",
            act=live("warned1", dynamic_batching={"max_queue_delay_microseconds": 40_000}),
            lead=30,
            sign="warn",
            also=("V29", "V30"),
        ),
    ),
    (
        Case(
            "V04 a load of 25 s runs",
            "swap1",
            "V04",
            sleeper("swap1", 10, 1, load_ms=25_000),
            act=load_behind("swap1"),
            lead=3,
            lasting=False,
            watch=40,
        ),
    ),
    (
        Case(
            "V04 a model cannot load",
            "broken1",
            "V04",
            sleeper("broken1", 10, 1),
            program="broken_engine.py",
            act=load_behind("broken1"),
            lead=3,
            watch=30,
        ),
    ),
    (
        Case(
            "V04 no usable version, cannot tell",
            "hollow1",
            "V04",
            sleeper("hollow1", 10, 1),
            versions=(),
            act=load_behind("hollow1"),
            lead=3,
            watch=30,
            of_model=False,
        ),
    ),
    (
        Case(
            "V14 hangs after 100 runs",
            "hang1",
            "V14",
            sleeper("hang1", 15, 1, hang_after=100),
            "15",
            program="moody.py",
            holds_after=10 + 7,
            watch=60,
        ),
        Case(
            "V14 first run never ends",
            "hang2",
            "V14",
            sleeper("hang2", 15, 1, instances=2, hang_after=1e-9),
            "6",
            closed=True,
            program="moody.py",
            holds_after=20,
            watch=60,
        ),
    ),
)

KEPT_READY = "keeper"
"""A model that serves in all waves: V04 is about boxes that serve."""


def keep_one_ready(bench: Bench) -> None:
    repository.write(KEPT_READY, sleeper(KEPT_READY, 5, 1), root=MODELS)
    bench.load(KEPT_READY)


def restart(bench: Bench) -> None:
    """A server without what the wave before left: models whose unload never ends hold `ready` at 400."""
    _podman("restart", "--time", "0", CONTAINER)
    for _ in bench.pump(10):
        pass
    keep_one_ready(bench)


def deploy(bench: Bench, cases: Sequence[Case]) -> None:
    """Write and load the models of a wave; those that a case itself loads are only written."""
    for case in cases:
        if not case.config:
            continue
        repository.write(case.model, case.config, case.versions, program=case.program, root=MODELS)
        if case.expect == "V04":
            continue
        status, told = bench.load(case.model)
        if status != 200:
            raise paths.LabError(f"{case.model} does not load: {told}")


def date_by_first_request(bench: Bench, outcome: Outcome) -> None:
    """A situation begins with its first request, not with the start of the program that will send it."""
    for _ in range(100):
        with contextlib.suppress(OSError, http.client.HTTPException):
            _, answer = bench.call("GET", f"/v2/models/{outcome.case.model}/stats", timeout=2.0)
            told = answer["model_stats"][-1]
            if told["execution_count"] or any(told["inference_stats"][kind]["count"] for kind in ("success", "fail")):
                if outcome.case.act is None:
                    outcome.began = time.monotonic()
                return
        time.sleep(0.1)


def run_wave(bench: Bench, cases: Sequence[Case]) -> list[Outcome]:
    """Deploy, begin the traffic, make the situations, watch."""
    deploy(bench, cases)
    for _ in bench.pump(12):
        pass
    outcomes = [Outcome(case) for case in cases]
    waiting = list(outcomes)
    length = max(case.lead + case.watch for case in cases)
    started = time.monotonic()
    for outcome in outcomes:
        case = outcome.case
        if case.flow:
            bench.traffic([f"{case.model}={case.flow}"], closed=case.closed, seconds=length + 10)
        outcome.began = time.monotonic()
        if case.flow:
            threading.Thread(target=date_by_first_request, args=(bench, outcome), daemon=True).start()
    end = started + length
    while time.monotonic() < end:
        for outcome in [one for one in waiting if one.case.act and time.monotonic() - started >= one.case.lead]:
            waiting.remove(outcome)
            outcome.began = time.monotonic()
            if outcome.case.act:
                outcome.case.act(bench)
        for now, verdicts in bench.pump(0.5):
            for outcome in outcomes:
                begun = outcome.case.act is None or outcome not in waiting
                if begun and now <= outcome.began + outcome.case.watch + 1:
                    outcome.see(now, verdicts)
    bench.stop_traffic()
    for case in cases:
        bench.unload(case.model)
    return outcomes


def report(outcomes: Sequence[Outcome]) -> int:
    """Print the table; return the number of those that are not right."""
    print(f"\n{'case':42} {'label':6} {'after s':>8}  {'result':7} seen at the end; figures")
    for one in outcomes:
        late = "-" if one.late is None else f"{one.late:.1f}"
        seen = " ".join(f"{id_}{'' if sign in PROBLEMS else '.'}" for id_, sign in one.last)
        wrong = f"  WRONG {sorted(one.wrong)}" if one.wrong else ""
        told = "right" if one.right else "MISSED"
        print(f"{one.case.name:42} {one.case.expect or 'none':6} {late:>8}  {told:7} {seen}{wrong}   {one.figures}")
    right = sum(one.right for one in outcomes)
    lates = sorted(one.late for one in outcomes if one.late is not None and one.case.expect)
    print(f"\n{right} of {len(outcomes)} right ({100 * right / max(1, len(outcomes)):.0f} %)", end="")
    if lates:
        print(f"; verdict after {lates[len(lates) // 2]:.1f} s (median), {lates[-1]:.1f} s (last)", end="")
    print()
    return len(outcomes) - right


def main(words: Sequence[str]) -> int:
    """Run the cases whose name begins with one of the words; all without words."""
    chosen = [tuple(c for c in wave if not words or any(c.name.startswith(w) for w in words)) for wave in WAVES]
    outcomes: list[Outcome] = []
    service = start_server()
    bench = Bench()
    try:
        keep_one_ready(bench)
        for wave in chosen:
            if not wave:
                continue
            if any(case.act for case in wave):
                restart(bench)
            print("running:", ", ".join(case.name for case in wave), flush=True)
            outcomes += run_wave(bench, wave)
    finally:
        bench.close()
        stop_server(service)
    return 1 if report(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
