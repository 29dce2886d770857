"""Whether both versions fit on the card, and what a swap does where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.actions import model_load, model_look, swap_run, swap_ways
from console.actions.box import Box
from console.actions.golden import Keep
from console.actions.model_look import gpu_free, look, taken
from console.actions.swap import Swap
from console.actions.swap_run import Swapper
from console.core.model import GpuBox, GpuState, SourceError
from console.core.plan import Check
from tests.actions.model_boxes import Live, fake_box
from tests.actions.runs import do
from tests.fakes.model_server import ModelServer, model_server

GIB = 1 << 30
PINNED = "version_policy { specific { versions: [ 1 ] } }"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(model_look, "RATE_SPAN", 0.01)
    monkeypatch.setattr(model_load, "SETTLE", 0.2)
    monkeypatch.setattr(swap_run, "BASELINE", 0.01)
    with model_server(tmp_path / "repository") as made:
        made.add("m", (1, 2), PINNED)
        made.configs["m"]["instance_group"] = [{"kind": "KIND_GPU", "count": 1, "gpus": [0]}]
        yield made


@pytest.fixture
def box(server: ModelServer, tmp_path: Path) -> Box:
    return fake_box(server, tmp_path / "state")


def memory(monkeypatch: pytest.MonkeyPatch, free: int | None, took: int | None) -> None:
    monkeypatch.setattr(swap_ways, "gpu_free", lambda *_: (free, "" if free is not None else "no card answers"))
    monkeypatch.setattr(swap_ways, "taken", lambda *_: (took, "seen at load" if took else ""))


def fits(box: Box) -> Check:
    return next(
        check for check in Swap().plan(box, "m", {"version": "2"}).checks if check.text.startswith("both at once")
    )


@pytest.mark.parametrize(
    ("free", "took", "sign", "way"),
    [
        (9 * GIB, 3 * GIB, "ok", "beside"),
        (2 * GIB, 3 * GIB, "fail", "gap"),
        (9 * GIB, None, "unknown", "beside"),
        (0, None, "fail", "gap"),
        (None, 3 * GIB, "unknown", "beside"),
    ],
)
def test_the_fit(
    box: Box, monkeypatch: pytest.MonkeyPatch, free: int | None, took: int | None, sign: str, way: str
) -> None:
    memory(monkeypatch, free, took)
    assert fits(box).sign == sign
    plan = Swap().plan(box, "m", {"version": "2"})
    assert plan.way == way
    assert (plan.confirm == "m") == (way == "gap")
    assert bool(plan.ways[0].impossible) == (way == "gap")


def test_a_larger_version_needs_more(server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 5 * GIB, 3 * GIB)
    (server.root / "m" / "2" / "weights.bin").write_bytes(b"xx")
    check = fits(box)
    assert check.sign == "fail"
    assert "needs 9.0 GiB more (seen at load, by file size), free 5.0 GiB" in check.text


@pytest.mark.parametrize("backend", ["vllm", "tensorrtllm"])
def test_a_back_end_that_takes_the_whole_card(
    server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    memory(monkeypatch, 90 * GIB, 3 * GIB)
    server.configs["m"]["backend"] = backend
    assert backend in fits(box).text
    assert Swap().plan(box, "m", {"version": "2"}).way == "gap"


@pytest.mark.parametrize(("free", "warm"), [(9 * GIB, "true"), (5 * GIB, "false")])
def test_a_warm_up_by_itself_only_where_a_third_copy_fits(
    server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch, free: int, warm: str
) -> None:
    server.configs["m"]["backend"] = "onnxruntime"
    do(Keep(), box, "m", {}, Live())
    memory(monkeypatch, free, 3 * GIB)
    assert Swap().plan(box, "m", {"version": "2"}).values["warmup"] == warm


def test_a_gap_waits_until_the_memory_is_back(server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 2 * GIB, 3 * GIB)
    free = iter([2 * GIB, 2 * GIB, 4 * GIB])
    monkeypatch.setattr(Swapper, "_free", lambda _: next(free))
    assert do(Swap(), box, "m", {"version": "2"}, Live()).word == "done"
    assert next(free, None) is None
    assert server.ready["m"] == (2,)


def test_memory_that_does_not_come_back_brings_the_old_one_back(
    server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory(monkeypatch, 2 * GIB, 3 * GIB)
    monkeypatch.setattr(swap_run, "MEMORY_WAIT", 0.3)
    monkeypatch.setattr(Swapper, "_free", lambda _: 2 * GIB)
    found = do(Swap(), box, "m", {"version": "2"}, Live())
    assert found.word == "undone"
    assert "the memory did not come back: 2.0 GiB are free" in found.text
    assert server.ready["m"] == (1,)
    assert found.figures["gap_s"] > 0.2


def test_a_cancel_while_it_waits_for_memory(server: ModelServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 2 * GIB, 3 * GIB)
    run = Live()

    def free(_: Swapper) -> int:
        run.cancelled.set()
        return 0

    monkeypatch.setattr(Swapper, "_free", free)
    assert do(Swap(), box, "m", {"version": "2"}, run).word == "undone"
    assert server.ready["m"] == (1,)


def test_the_fullest_card_of_the_model_counts(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look(box, "m", traffic=False)
    cards = [GpuState(index, f"GPU-{index}", memory_free=free) for index, free in ((0, 5), (1, 3))]
    monkeypatch.setattr(box, "gpus", lambda: GpuBox(gpus=tuple(cards)))
    assert gpu_free(box, seen) == (5, "")
    monkeypatch.setattr(box, "gpus", lambda: GpuBox(gpus=(GpuState(0, "GPU-0"),)))
    assert gpu_free(box, seen)[0] is None

    def silent() -> GpuBox:
        raise SourceError("unavailable", "NVML hangs")

    monkeypatch.setattr(box, "gpus", silent)
    assert gpu_free(box, seen) == (None, "NVML hangs")
    assert taken(box, seen, 1) == (None, "")
