"""GPU: the ledger adds up and names its gap, throttle is in seconds, faults are never taken for health."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from console.core.history import History
from console.core.model import GpuBox, GpuProcess, GpuState, KernelFault, KernelLog, Snapshot, ThrottleCounter
from console.tui.panes.gpu_facts import GpuFacts
from console.tui.panes.gpu_faults import GpuFaults, same_bus
from console.tui.panes.gpu_memory import GpuMemory, ledger
from console.tui.panes.gpu_processes import SORTS, GpuProcesses
from console.tui.panes.gpu_throttle import GpuThrottle, rise, spent
from console.tui.screens.gpu import HEIGHTS, shared
from tests.fakes import drawn
from tests.fakes.boxes import (
    Box,
    bad,
    drawn_box,
    eight_gpus_box,
    good,
    idle_gpu_box,
    lost_gpu_box,
    mig_box,
    nvml_mismatch_box,
)
from tests.fakes.drawn import GIB, MONO, NOW
from tests.tui.pure import lines_of, text_of, view_of

DRAWN_LEDGER = """\
WHO                             GiB
driver, held back               0.4
triton  (container triton)      5.7
  ranking 2, 2 instances        3.1  seen at load
  recall 7, 1 instance          1.7  seen at load
  contexts, pools, not told     0.9  rest
others                          0.0
free                            8.9
                               15.0
RELOAD NEEDS, both copies at once
  ranking     3.1   ● fits
  recall      1.7   ● fits
  rerank      ?     never loaded here"""


def _card(**fields: object) -> Box:
    return drawn_box(gpu=good("gpu", GpuBox("550", "12.4", None, (changed(drawn.gpu_state(), **fields),), 1)))


def test_the_ledger_is_as_drawn() -> None:
    assert text_of(GpuMemory(), view_of(drawn_box(), 52)) == DRAWN_LEDGER


def test_memory_that_no_process_owns_is_a_named_gap() -> None:
    box = _card(memory_used=9 * GIB)
    assert "gap                             3.3  no process owns it" in text_of(GpuMemory(), view_of(box, 60))
    assert "3.3 GiB of the card's 9.0 belong to no process" in text_of(GpuProcesses(), view_of(box))


def test_processes_of_unknown_memory_are_no_zero() -> None:
    process = GpuProcess(7, "C", None, None, "root", "tritonserver", NOW - 60, drawn.CONTAINER_ID, True)
    box = _card(processes=(process,))
    assert "the driver does not tell its memory" in text_of(GpuProcesses(), view_of(box, 150))
    assert "not told by the driver            ?  1 processes" in text_of(GpuMemory(), view_of(box, 60))


def test_processes_that_could_not_be_listed() -> None:
    box = _card(processes=None, missing={"processes": "no permission"})
    assert lines_of(GpuProcesses(), view_of(box)) == ["? no permission"]
    assert "triton  (container triton)        ?  no permission" in text_of(GpuMemory(), view_of(box, 60))


def test_a_process_of_its_own_tells_its_models_memory() -> None:
    stub = "/opt/tritonserver/backends/python/triton_python_backend_stub"
    processes = (
        GpuProcess(1, "C", 2 * GIB, command="tritonserver", container_id=drawn.CONTAINER_ID),
        GpuProcess(2, "C", 1 * GIB, command=stub, container_id=drawn.CONTAINER_ID, model="lm"),
        GpuProcess(3, "C", 1 * GIB, command=stub, container_id=drawn.CONTAINER_ID, model="lm"),
    )
    text = text_of(GpuMemory(), view_of(_card(processes=processes, memory_used=4 * GIB), 60))
    assert "  lm, 2 processes               2.0  its own" in text


def test_versions_of_one_model_are_told_apart() -> None:
    box = drawn_box()
    row = next(row for row in box.snapshot.models if row.name == "ranking")
    snapshot = changed(box.snapshot, models=(row, changed(row, version="1", memory=None)))
    view = view_of(box, 60)
    text = text_of(GpuMemory(), type(view)(snapshot, view.history, NOW, MONO, 60, 40))
    assert "  ranking 2   3.1   ● fits" in text
    assert "  ranking 1   ?     its load was not seen" in text


def test_a_reload_that_does_not_fit() -> None:
    assert "▲ does not fit, free 2.0" in text_of(GpuMemory(), view_of(_card(memory_free=2 * GIB), 60))


@given(st.lists(st.tuples(st.integers(0, 20 * GIB) | st.none(), st.booleans()), max_size=6), st.integers(0, 40 * GIB))
def test_the_ledger_adds_up(found: list[tuple[int | None, bool]], used: int) -> None:
    processes = tuple(
        GpuProcess(n, "C", memory, command="tritonserver", container_id=drawn.CONTAINER_ID if ours else "other")
        for n, (memory, ours) in enumerate(found)
    )
    card = GpuState(0, memory_used=used, processes=processes)
    entry = ledger(card, drawn_box_snapshot())
    assert entry.server is not None
    assert entry.others is not None
    assert entry.gap is not None
    assert entry.server + entry.others + entry.gap == used
    assert entry.untold == sum(memory is None for memory, _ in found)


_SNAPSHOT = drawn_box().snapshot


def drawn_box_snapshot() -> Snapshot:
    """Made once: hypothesis asks for it a hundred times."""
    return _SNAPSHOT


def test_figures_of_the_card() -> None:
    text = text_of(GpuFacts(), view_of(drawn_box(), 60))
    for part in (
        "util           64 %",
        "SM clock     1590 MHz  of 1590   lock: cannot be read",
        "power          44 W    limit 70, default 70, 60–70",
        "temp           66 °C   slows at 93, off at 96",
        "fan             –      passive card",
        "3 x16     can 3 x16   replays 0",
        "persistence ● on      compute mode default",
        "ECC         ● on",
        "pages       ● 0 retired, none pending",
    ):
        assert part in text


def test_figures_that_are_not_given_say_why() -> None:
    text = text_of(GpuFacts(), view_of(idle_gpu_box(), 60))
    assert "not supported" in text
    assert "●" not in text
    assert not any(line.split()[1:2] == ["0"] for line in text.splitlines())


def test_remaps_and_bad_ecc() -> None:
    box = _card(remapped_correctable=1, remapped_uncorrectable=1, remap_failed=True, ecc_uncorrected_now=2)
    text = text_of(GpuFacts(), view_of(box, 70))
    assert "rows        ✗ 2 remapped, a remap FAILED" in text
    assert "ECC         ✗ on" in text


def test_a_narrow_link_is_marked() -> None:
    assert "narrower than it can" in text_of(GpuFacts(), view_of(_card(pcie_width=4), 70))


def test_several_cards_are_counted() -> None:
    view = view_of(eight_gpus_box(), 60)
    assert GpuFacts().note(view)[0][0].startswith("1 of 8")


def test_a_mig_parent_lists_its_instances() -> None:
    text = text_of(GpuMemory(), view_of(mig_box(), 60))
    assert "0  1g.10gb          6.1      9.8   tritonserver" in text
    assert "1  1g.10gb          0.0      9.8   free" in text
    assert "not given for a MIG card" in text_of(GpuFacts(), view_of(mig_box(), 60))
    assert "MIG 2" in text_of(GpuProcesses(), view_of(mig_box()))


def test_throttle_as_drawn() -> None:
    lines = lines_of(GpuThrottle(), view_of(drawn_box()))
    assert lines[1].split()[:11] == ["power", "cap", "no", "0", "s", "12", "s", "4", "m", "10", "normal"]
    assert lines[2].startswith("too hot, software      no         0 s         0 s          0 s")
    assert lines[5].startswith("app clocks             no         0 s           ?            ?")


def test_a_reason_set_now_says_yes_and_others_appear() -> None:
    box = _card(
        throttle_now=("heat_hardware", "hw_slowdown"),
        throttle_counters=(ThrottleCounter("heat_hardware", 9000.0),),
    )
    text = text_of(GpuThrottle(), view_of(box))
    assert "too hot, hardware     YES" in text
    assert "2h30m" in text
    assert "hw slowdown           YES" in text


def test_without_counters_only_what_was_seen_is_told() -> None:
    card = changed(drawn.gpu_state(), throttle_counters=(), throttle_now=())
    history = History()
    for second in range(5):
        history.record(MONO - second, {"gpu.0.throttled.heat_software": 1.0})
    found = spent(card, "heat_software", history, MONO)
    assert (found.minute, found.hour, found.boot, found.counted) == (5.0, None, None, False)
    unknown = spent(changed(card, throttle_now=None), "heat_software", history, MONO)
    assert (unknown.now, unknown.minute) == (None, None)
    box = _card(throttle_counters=())
    assert "this driver has no counters" in text_of(GpuThrottle(), view_of(box))


def test_a_counter_that_began_anew_is_no_negative_time() -> None:
    history = History()
    history.record(MONO - 30, {"x": 500.0})
    assert rise(history, "x", MONO, 60, 3.0) == 3.0
    assert rise(History(), "x", MONO, 60, 3.0) is None


def test_processes_as_drawn() -> None:
    lines = lines_of(GpuProcesses(), view_of(drawn_box()))
    assert lines[1].split()[:7] == ["41233", "root", "tritonserver", "triton", "5.7", "62", "24m36s"]
    assert "python_backend_stub" in lines[2]
    assert "uses no GPU memory" in lines[2]


@pytest.mark.parametrize("column", range(len(SORTS)))
def test_processes_sort_by_every_column_both_ways(column: int) -> None:
    pane = GpuProcesses()
    pane.sort = column
    down = lines_of(pane, view_of(mig_box()))[1:]
    pane.turned = True
    assert lines_of(pane, view_of(mig_box()))[1:] == list(reversed(down))


def test_a_clean_card_says_since_when() -> None:
    assert lines_of(GpuFaults(), view_of(drawn_box())) == [
        "● no Xid, no recovery action since 02:52:01   (journal, this boot only)"
    ]


def test_a_lost_card_shows_its_xid_and_what_to_do() -> None:
    text = text_of(GpuFaults(), view_of(lost_gpu_box()))
    assert "✗ NVML error 15: the GPU is lost" in text
    assert "the driver wants: restart the host" in text
    assert "Xid 79" in text
    assert "NVIDIA says: restart the host" in text


def test_an_unreadable_kernel_log_is_not_health() -> None:
    box = drawn_box(kernel=bad("kernel_log", "permission", "may not be read", "group adm"))
    lines = lines_of(GpuFaults(), view_of(box))
    assert lines == ["? may not be read", "  group adm"]


def test_faults_of_another_card_are_not_this_ones() -> None:
    fault = KernelFault(NOW - 9, "xid", "NVRM: Xid 31", 31, "0000:5e:00")
    box = drawn_box(kernel=good("kernel_log", KernelLog("journal", NOW - 999, (fault,))))
    assert "no Xid" in text_of(GpuFaults(), view_of(box))


@pytest.mark.parametrize(
    ("kernel", "same"), [("0000:3b:00", True), ("0000:3B:00", True), ("0000:5e:00", False), (None, True), ("?", False)]
)
def test_bus_ids_in_two_spellings(kernel: str | None, same: bool) -> None:
    assert same_bus(kernel, drawn.gpu_state()) is same


def test_no_driver_is_told_in_every_pane() -> None:
    for pane in (GpuMemory(), GpuFacts(), GpuThrottle(), GpuProcesses()):
        assert "NVML error 18" in text_of(pane, view_of(nvml_mismatch_box(), 60))


@given(st.integers(12, 80), st.integers(2, 40), st.integers(2, 40))
def test_strips_fill_the_body_and_keep_their_least(height: int, processes: int, faults: int) -> None:
    given_rows = shared(height, processes, faults)
    least = sum(least for least, _ in HEIGHTS.values())
    assert sum(given_rows.values()) == max(height, least)
    assert all(given_rows[name] >= least for name, (least, _) in HEIGHTS.items())
