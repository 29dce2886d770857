"""What a change tells the journal of its gap, and which figures it ends with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.actions import gap as gap_module
from console.actions import model_load, model_look, model_watch, swap_run
from console.actions.base import Run
from console.actions.box import Box
from console.actions.gap import Arrivals, Gap, count_container, count_model
from console.actions.models import Reload
from console.actions.swap import Swap
from console.actions.swap_spec import Spec
from console.core.gap import gaps
from console.core.model import EnsembleStep, ModelConfig, ModelStats, SourceError, TritonConfigs
from console.core.plan import JournalLine, Outcome
from tests.actions.fake_run import FakeRun
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import Killed, do
from tests.fakes.model_server import ModelServer, model_server

PINNED = "version_policy { specific { versions: [ 1 ] } }"


class Told(Live):
    """Keeps its facts as the lines of a journal too."""

    def __init__(self, kill_in: str = "", kept: Mapping[str, str] | None = None) -> None:
        super().__init__(kill_in, kept=dict(kept or {}))
        self.lines: list[JournalLine] = []

    def keep(self, **facts: str) -> None:
        super().keep(**facts)
        self.lines.append(JournalLine(time.time(), "kept", self.phases[-1] if self.phases else "", data=facts))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits for what this server does at once."""
    monkeypatch.setattr(gap_module, "COUNTED", 0.05)
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.01)
    monkeypatch.setattr(model_load, "SETTLE", 0.2)
    monkeypatch.setattr(model_load, "PODMAN_LAG", 0.1)
    monkeypatch.setattr(swap_run, "BASELINE", 0.05)
    monkeypatch.setattr(model_watch, "SILENCE", 0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1, 2), PINNED)
        made.traffic["m"] = 40
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


# ------------------------------------------------------------------------------------------------------------- the gap


def test_it_begins_and_ends() -> None:
    run = FakeRun(kept={"gap_rate": "41"})
    gap = Gap(run)
    assert gap.figures == {}
    gap.begin()
    assert (gap.is_open, run.facts["gap_ended"], run.facts["gap_drains"]) == (True, "", "no")
    assert gap.figures == {}, "how long it will be is not known"
    gap.end(time.monotonic() + 2.0)
    gap.end(time.monotonic() + 9.0)
    assert gap.figures == {"gap_s": pytest.approx(2.0, abs=0.5), "gap_rate": 41.0}
    assert float(run.facts["gap_ended"]) - float(run.facts["gap_began"]) == pytest.approx(2.0, abs=0.5)
    gap.begin()
    assert gap.figures == {}, "a second one is open"
    gap.end(time.monotonic() + 3.0)
    assert gap.figures["gap_s"] == pytest.approx(5.0, abs=1.0)


def test_what_never_began_does_not_end() -> None:
    run = FakeRun()
    gap = Gap(run)
    gap.got("connection refused")
    gap.end()
    assert run.facts == {}


def test_one_that_a_killed_run_left_open_goes_on() -> None:
    began = time.time() - 100
    run = FakeRun(kept={"gap_began": f"{began:.3f}", "gap_ended": "", "gap_rate": "3"})
    gap = Gap(run)
    gap.go_on()
    gap.end()
    assert gap.figures == {"gap_s": pytest.approx(100.0, abs=5.0), "gap_rate": 3.0}
    assert float(run.facts["gap_began"]) == pytest.approx(began, abs=0.01)


@pytest.mark.parametrize("kept", [{}, {"gap_began": "5.0", "gap_ended": "9.0"}])
def test_there_is_none_to_go_on_with(kept: dict[str, str]) -> None:
    gap = Gap(FakeRun(kept=kept))
    gap.go_on()
    assert not gap.is_open


# ------------------------------------------------------------------------------------------------------------ the rate


def rate(counts: list[Any], run: Run, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Counted over two seconds of a clock that a test turns."""
    now = [100.0]
    monkeypatch.setattr(gap_module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    told = iter(counts)

    def count() -> int:
        one = next(told)
        if isinstance(one, Exception):
            raise one
        return int(one)

    arrivals = Arrivals(count)
    now[0] += 2.0
    arrivals.keep(run)
    return run.kept()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1000, 1082], {"gap_rate": "41", "gap_rate_unknown": ""}),
        ([1000, 1000], {"gap_rate": "0", "gap_rate_unknown": ""}),
        ([1000, 10], {"gap_rate": "", "gap_rate_unknown": "Triton's counters began anew meanwhile"}),
        ([SourceError("unavailable", "refused")], {"gap_rate": "", "gap_rate_unknown": "refused"}),
        ([5, SourceError("timeout", "no answer")], {"gap_rate": "", "gap_rate_unknown": "no answer"}),
    ],
)
def test_what_came_in_before(counts: list[Any], said: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert rate(counts, FakeRun(), monkeypatch) == said


def test_requests_that_an_ensemble_made_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 requests to an ensemble of two steps and 5 straight to one of them: 15 came from outside."""
    first = {"ens": 100, "pre": 100, "net": 100}
    looks = iter([first, {"ens": 110, "pre": 110, "net": 115}])
    monkeypatch.setattr(
        gap_module,
        "all_statistics",
        lambda _: [ModelStats(name, "1", success_count=count - 1, fail_count=1) for name, count in next(looks).items()],
    )
    configs = (
        ModelConfig("ens", "1", steps=(EnsembleStep("pre", "-1"), EnsembleStep("net", "-1"))),
        ModelConfig("net", "1"),
    )
    monkeypatch.setattr(gap_module, "served_configs", lambda *_: TritonConfigs(configs))
    view: Any = SimpleNamespace(ready=lambda: frozenset({("ens", "1")}), address=lambda: None)
    run = FakeRun()
    count_container(view, run)
    span = 15 / float(run.facts["gap_rate"])
    assert 0.04 < span < 5.0


def test_more_models_than_are_asked_leave_it_unknown() -> None:
    ready = frozenset((f"m{number}", "1") for number in range(51))
    view: Any = SimpleNamespace(ready=lambda: ready)
    run = FakeRun()
    count_container(view, run)
    assert run.facts == {"gap_rate": "", "gap_rate_unknown": "which of 51 models are ensembles was not asked"}


def test_a_model_that_is_not_there_has_no_rate(box: Box) -> None:
    run = FakeRun()
    count_model(box, "nobody", run)
    assert "404" in run.facts["gap_rate_unknown"]


# --------------------------------------------------------------------------------------------------------- its changes


def swapped(box: Box, run: Told) -> Outcome:
    return do(Swap(), box, "m", {"version": "2", "way": "gap", "probe": "off"}, run)


def test_a_swap_by_unload_and_load(box: Box) -> None:
    run = Told()
    done = swapped(box, run)
    (found,) = gaps(run.lines)
    assert (done.word, found.phase, found.drains) == ("done", "gap", False)
    assert found.ended is not None
    assert found.seconds(0.0) == pytest.approx(done.figures["gap_s"], abs=0.1)
    assert found.rate is not None
    assert found.rate > 0
    assert done.figures["gap_rate"] == found.rate
    assert found.seen == "404 Request for unknown model: 'm' has no available versions"


def test_a_swap_that_goes_back_has_two(server: ModelServer, box: Box) -> None:
    server.moods["m", 2] = "raises"
    run = Told()
    found = swapped(box, run)
    first, second = gaps(run.lines)
    assert (found.word, first.phase, second.phase) == ("undone", "gap", "back")
    assert first.ended is not None
    assert second.ended is not None
    assert found.figures["gap_s"] == pytest.approx(first.seconds(0) + second.seconds(0), abs=0.1)


def test_a_load_that_fails_leaves_one_gap_until_the_old_version_is_back(server: ModelServer, box: Box) -> None:
    server.moods["m", 2] = "fails"
    run = Told()
    found = swapped(box, run)
    (only,) = gaps(run.lines)
    assert (found.word, server.ready["m"]) == ("undone", (1,))
    assert only.seconds(0) == pytest.approx(found.figures["gap_s"], abs=0.1)


def test_a_swap_side_by_side_has_none(box: Box) -> None:
    run = Told()
    done = do(Swap(), box, "m", {"version": "2", "probe": "off"}, run)
    assert gaps(run.lines) == ()
    assert "gap_s" not in done.figures


@pytest.mark.parametrize("way", ["finish", "undo"])
def test_a_swap_whose_runner_was_killed_in_the_gap(server: ModelServer, box: Box, way: str) -> None:
    plan = Swap().plan(box, "m", {"version": "2", "way": "gap", "probe": "off"})
    run = Told(kill_in="memory")
    with pytest.raises(Killed):
        Swap().run(box, plan, run)
    (left,) = gaps(run.lines)
    assert (left.ended, Spec.loaded(run.kept()["spec"]).old) == (None, 1)
    again = Told(kept=run.kept())
    outcome = Swap().finish(box, plan, again) if way == "finish" else Swap().undo(box, plan, again)
    (found,) = gaps(again.lines)
    assert server.ready["m"] == ((2,) if way == "finish" else (1,))
    assert (found.began, found.ended is None) == (left.began, False)
    assert outcome.figures["gap_s"] == pytest.approx(found.seconds(0), abs=0.1)


def test_a_reload_by_unload_and_load(box: Box) -> None:
    run = Told()
    done = do(Reload(), box, "m", {"way": "gap"}, run)
    (found,) = gaps(run.lines)
    assert (done.word, found.phase) == ("done", "unload")
    assert found.seconds(0) == pytest.approx(done.figures["gap_s"], abs=0.1)
    assert "no available versions" in found.seen


def test_a_reload_that_does_not_come_back_has_no_end(server: ModelServer, box: Box) -> None:
    plan = Reload().plan(box, "m", {"way": "gap"})
    server.moods["m", 1] = "fails"
    run = Told()
    failed = Reload().run(box, plan, run)
    (found,) = gaps(run.lines)
    assert (failed.word, found.ended) == ("failed", None)
    assert "gap_s" not in failed.figures


def test_a_reload_in_place_has_none(box: Box) -> None:
    run = Told()
    do(Reload(), box, "m", {"way": "anew"}, run)
    assert gaps(run.lines) == ()
