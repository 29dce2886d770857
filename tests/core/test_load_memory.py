"""GPU memory of a model as seen when it loaded: only a load that stands alone tells."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from console.core.load_memory import SETTLED, LoadMemory
from console.core.model import (
    Failure,
    GpuBox,
    GpuProcess,
    GpuState,
    ModelKey,
    ModelRow,
    ModelState,
    Reading,
    Snapshot,
)

GIB = 1 << 30


def moment(mono: float, held: int | None, *, others: int = 0, error: bool = False) -> Snapshot:
    processes = (GpuProcess(1, "C", held, in_container=True), GpuProcess(2, "C", others, in_container=False))
    box = GpuBox("550", gpus=(GpuState(0, memory_used=0, processes=processes),))
    failure = Failure("timeout", "hangs") if error else None
    return Snapshot(mono=mono, gpu=Reading("gpu", 1.0, box, mono, mono, failure))


def rows(**states: ModelState) -> tuple[ModelRow, ...]:
    return tuple(ModelRow(name.split("_")[0], name.split("_")[1], state) for name, state in states.items())


def watch(*steps: tuple[float, int | None, tuple[ModelRow, ...]]) -> LoadMemory:
    memory = LoadMemory()
    for mono, held, listed in steps:
        memory.learn(moment(mono, held), listed)
        memory.learn(moment(mono + SETTLED, held), listed)
    return memory


A = rows(a_1="READY")
AB = rows(a_1="READY", b_1="READY")


def test_a_load_that_stands_alone_tells_what_it_took() -> None:
    loading = rows(a_1="READY", b_1="LOADING")
    seen = watch((0, GIB, A), (10, 2 * GIB, loading), (20, 3 * GIB, AB)).seen
    assert seen == {ModelKey("b", "1"): 2 * GIB}


def test_what_others_outside_the_container_take_is_not_the_models() -> None:
    memory = LoadMemory()
    for mono, others, listed in ((0, 0, A), (4, 0, A), (10, 5 * GIB, AB), (14, 5 * GIB, AB)):
        memory.learn(moment(mono, GIB, others=others), listed)
    assert memory.seen == {}


@pytest.mark.parametrize(
    "after",
    [
        rows(a_1="READY", b_1="READY", c_1="READY"),
        rows(b_1="READY"),
        rows(a_1="READY", a_2="READY"),
    ],
    ids=["two at once", "another went", "beside its own older version"],
)
def test_loads_that_do_not_stand_alone_tell_nothing(after: tuple[ModelRow, ...]) -> None:
    assert watch((0, GIB, A), (10, 3 * GIB, after)).seen == {}


def test_what_the_driver_does_not_tell_is_not_guessed() -> None:
    assert watch((0, None, A), (10, 3 * GIB, AB)).seen == {}
    assert watch((0, GIB, A), (10, None, AB)).seen == {}
    memory = LoadMemory()
    for mono in (0.0, 4.0):
        memory.learn(moment(mono, GIB), A)
    for mono in (10.0, 14.0):
        memory.learn(moment(mono, 3 * GIB, error=True), AB)
    memory.learn(Snapshot(mono=20.0), AB)
    assert memory.seen == {}


def test_noise_is_no_model_and_an_unloaded_model_is_forgotten() -> None:
    assert watch((0, GIB, A), (10, GIB + 1000, AB)).seen == {}
    memory = watch((0, GIB, A), (10, 3 * GIB, AB), (20, GIB, A))
    assert memory.seen == {}


def test_the_first_seconds_after_a_change_are_not_believed() -> None:
    memory = LoadMemory()
    for mono, held, listed in ((0, GIB, A), (4, GIB, A), (10, 2 * GIB, AB), (11, 2 * GIB, AB), (14, 3 * GIB, AB)):
        memory.learn(moment(mono, held), listed)
    assert memory.seen == {ModelKey("b", "1"): 2 * GIB}


def test_a_restart_of_the_server_between_tells_nothing() -> None:
    memory = watch((0, 2 * GIB, A))
    for mono in (10.0, 14.0):
        down = replace(moment(mono, 0), index=Reading("triton.index", 1.0, error=Failure("unavailable", "refused")))
        memory.learn(down, A)
    for mono in (20.0, 24.0):
        memory.learn(moment(mono, 3 * GIB), AB)
    assert memory.seen == {}, "what both models took again is not the new one's"
