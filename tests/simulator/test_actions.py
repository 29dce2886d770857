"""Every change that the demo offers, done by the runner as the console has it done, with its effect on the box.

One is done by the detached process itself; for the others the runner works in this process, which saves its start.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from console import compose
from console.actions import detached, model_look, registry, runner
from console.actions import gap as gap_module
from console.actions import journal as journals
from console.actions.box import Box
from console.actions.journal import Request
from console.actions.who import operator
from console.config import Actions, Settings
from console.core.gap import Gap, gaps
from console.core.plan import Outcome, Plan
from console.simulator import launch
from console.simulator.nvml import SimulatedNvml


class Demo:
    """A simulated box with what it takes to change it."""

    def __init__(self, running: launch.RunningBox, state: Path) -> None:
        self.addresses = running.addresses
        settings = replace(Settings(), actions=Actions(watch=0.5))
        nvml, root = running.addresses.nvml, Path(running.addresses.root)
        simulated = compose.simulated_settings(settings, running.addresses)
        self.spec = compose.box_spec(simulated, nvml=nvml, root=root, simulated="healthy")
        self.state = state

    def plan(self, name: str, target: str = "", **values: str) -> Plan:
        action = registry.find().get(name)
        with contextlib.closing(Box(self.spec, self.state)) as box:
            return action.plan(box, target, action.checked(values))

    def do(self, name: str, target: str = "", **values: str) -> Outcome:
        plan = self.plan(name, target, **values)
        assert not plan.refused, plan.refused
        request = Request("", time.time(), self.spec, plan, operator(), str(self.state))
        return runner.perform(journals.create(request, spare=False))

    def do_apart(self, name: str, target: str) -> Outcome:
        id_ = detached.start(self.spec, self.state, self.plan(name, target))
        *_, outcome = detached.follow(journals.find(self.state, id_))
        assert isinstance(outcome, Outcome)
        return outcome

    def gaps(self) -> tuple[Gap, ...]:
        """Of the newest change, by its journal."""
        return gaps(journals.all_of(self.state)[-1].lines())

    def undo(self, outcome: Outcome) -> Outcome:
        assert outcome.undo is not None
        return self.do(outcome.undo.action, outcome.undo.target, **outcome.undo.values)

    def ready(self) -> dict[str, str]:
        with contextlib.closing(Box(self.spec, self.state)) as box:
            return dict(box.ready())

    def delay(self, model: str) -> int:
        with contextlib.closing(Box(self.spec, self.state)) as box:
            url = box.address().url
        document = httpx.get(f"{url}/v2/models/{model}/config").json()
        found: int = document["dynamic_batching"]["max_queue_delay_microseconds"]
        return found

    def file(self, model: str) -> str:
        return (Path(self.addresses.repository) / model / "config.pbtxt").read_text()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Less waiting; and the signals that the runner takes for itself are given back."""
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.1)
    monkeypatch.setattr(gap_module, "COUNTED", 0.3)
    numbers = (signal.SIGTERM, signal.SIGINT)
    kept = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, kept, strict=True):
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with launch.start("healthy", seed=1) as running:
        yield Demo(running, tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """With one model that is soon loaded, for what starts the server again and again."""
    with launch.start("healthy", seed=1, models=1) as running:
        yield Demo(running, tmp_path_factory.mktemp("state"))


def test_a_swap_and_its_undo(demo: Demo) -> None:
    assert demo.do("golden.keep", "ranking").word == "done"
    plan = demo.plan("model.swap", "ranking", version="3")
    assert any("its gRPC port is off" in check.text for check in plan.checks)
    swapped = demo.do("model.swap", "ranking", version="3")
    assert (swapped.word, demo.ready()["ranking"]) == ("done", "3")
    assert "answers as kept" in swapped.text
    assert demo.undo(swapped).word == "done"
    assert demo.ready()["ranking"] == "2"


def test_versions_that_are_no_good_go_back_by_themselves(demo: Demo) -> None:
    assert demo.do("golden.keep", "rerank").word == "done"
    wrong = demo.do("model.swap", "rerank", version="4")
    assert (wrong.word, demo.ready()["rerank"]) == ("undone", "3")
    assert "answers wrong" in wrong.text
    broken = demo.do("model.swap", "recall", version="8")
    assert (broken.word, demo.ready()["recall"]) == ("undone", "7")
    assert broken.text.startswith("recall 8 fails to load: Internal: unable to create TensorRT engine")


def test_batching_is_changed_kept_and_taken_back(demo: Demo) -> None:
    before = demo.file("recall")
    changed = demo.do("batching.set", "recall", delay_us="3000")
    assert (changed.word, demo.delay("recall")) == ("done", 3000)
    assert changed.figures["mean_after_ms"] > changed.figures["mean_before_ms"] + 1
    kept = demo.do("batching.keep", "recall")
    assert "what is served is what the file says" in kept.text
    assert "max_queue_delay_microseconds: 3000" in demo.file("recall")
    assert demo.do("batching.revert", "recall").word == "done"
    assert (demo.delay("recall"), demo.file("recall")) == (0, before)


def test_instances_change_in_place(demo: Demo) -> None:
    changed = demo.do("batching.set", "rerank", instances="2")
    assert changed.word == "done"
    assert changed.figures["load_s"] < 0.5
    assert demo.do("batching.revert", "rerank").word == "done"


def test_models_go_and_come(demo: Demo) -> None:
    gone = demo.do("model.unload", "recall")
    assert "reco" in " ".join(gone.lines)
    assert sorted(demo.ready()) == ["ranking", "rerank"]
    assert demo.do("model.load", "recall").word == "done"
    assert sorted(demo.ready()) == ["ranking", "recall", "reco", "rerank"]
    assert demo.do("model.reload", "rerank").word == "done"
    assert demo.do("container.reload").word == "done"
    assert demo.plan("model.load_all").refused
    assert demo.do("model.unload", "rerank").word == "done"
    assert demo.do("model.load_all").word == "done"
    assert len(demo.ready()) == 4


def test_requests_are_traced(demo: Demo) -> None:
    traced = demo.do("trace.set", "ranking", count="30", seconds="10")
    assert traced.word == "done"
    assert traced.figures["traced"] == 30
    assert traced.figures["compute_ms"] > 1


def test_the_cards_settings_are_obeyed(demo: Demo) -> None:
    locked = demo.do("gpu.clocks", "0", range="300,900")
    assert locked.word == "done"
    nvml = SimulatedNvml(Path(demo.addresses.nvml))
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetClockInfo(nvml.nvmlDeviceGetHandleByIndex(0), nvml.NVML_CLOCK_SM) == 900
    assert demo.undo(locked).word == "done"
    limited = demo.do("gpu.power_limit", "0", watts="60")
    assert limited.word == "done"
    assert demo.undo(limited).word == "done"
    assert demo.plan("gpu.compute_mode", "0", mode="exclusive_process").refused


def test_a_container_is_stopped_and_started(small: Demo) -> None:
    stopped = small.do("container.stop", "triton")
    assert stopped.word == "done"
    (gap,) = small.gaps()
    assert (gap.phase, gap.ended, gap.drains) == ("stop", None, True)
    assert gap.rate is not None, gap.rate_unknown
    assert "refuses the connection" in gap.seen
    assert "gap_s" not in stopped.figures
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{small.addresses.http}/v2/health/live")
    assert list((Path(small.addresses.root) / "proc").glob("[0-9]*")) == []
    started = small.undo(stopped)
    assert started.word == "done"
    assert started.text.startswith("triton serves: 1 READY after ")


def test_a_container_is_restarted_by_the_runner_apart(small: Demo) -> None:
    restarted = small.do_apart("container.restart", "triton")
    assert restarted.word == "done"
    (gap,) = small.gaps()
    assert gap.ended is not None
    assert gap.seconds(0) == pytest.approx(restarted.figures["gap_s"], abs=0.2)
    assert {"gap_plan_s", "gap_rate"} <= restarted.figures.keys()
    assert small.ready() == {"model_0000": "1"}


def test_a_container_is_made_anew_and_back(small: Demo) -> None:
    made = small.do("container.recreate", "triton", shm_size="2g")
    assert (made.word, len(small.ready())) == ("done", 1)
    (gap,) = small.gaps()
    assert gap.seconds(0) == pytest.approx(made.figures["gap_s"], abs=0.2)
    back = small.undo(made)
    assert back.word == "done"
    assert back.figures["gap_s"] > 0
    assert small.plan("container.remove", "triton").refused
    assert small.do("container.remove", "triton-old-2").word == "done"


def test_a_container_that_is_no_good_goes_back_by_itself(small: Demo) -> None:
    bad = small.do("container.recreate", "triton", flags="--nonsense=1")
    assert bad.word == "undone"
    assert "unrecognized option '--nonsense'" in " ".join(bad.lines)
    (gap,) = small.gaps()
    assert gap.seconds(0) == pytest.approx(bad.figures["gap_s"], abs=0.2)
    assert small.ready() == {"model_0000": "1"}
