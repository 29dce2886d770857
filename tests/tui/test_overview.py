"""The Overview's panes and layout against the drawings (design 1.1 to 1.4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from textual.geometry import Region

from console.core.model import Event, Failure, ModelKey, Verdict
from console.tui.panes.base import Pane, View
from console.tui.panes.overview_events import EventKey, OverviewEvents
from console.tui.panes.overview_gpu import OverviewGpu
from console.tui.panes.overview_models import OverviewModels, on_disk
from console.tui.panes.overview_service import OverviewService, image_tag
from console.tui.panes.overview_trends import OverviewTrends
from console.tui.panes.overview_why import OverviewWhy
from console.tui.screens.overview import Wants, place
from console.tui.widgets.cells import plain
from tests.fakes import boxes
from tests.fakes.boxes import ALL_BOXES, Box, drawn_box
from tests.fakes.drawn import MONO, NOW
from tests.tui.pure import lines_of, view_of

PANES = (OverviewGpu, OverviewService, OverviewModels, OverviewTrends, OverviewWhy, OverviewEvents)


def _view(box: Box, width: int, height: int, *, compact: bool = False) -> View:
    return View(box.snapshot, box.history, NOW, MONO, width, height, utc=True, compact=compact)


def _title(pane: Pane, view: View) -> str:
    return f"{plain(pane.title(view))} | {plain(pane.note(view))}"


# ------------------------------------------------------------------------------------------------------ as drawn, wide


def test_gpu_as_drawn() -> None:
    view = _view(drawn_box(), 66, 8)
    lines = lines_of(OverviewGpu(), view)
    assert _title(OverviewGpu(), view) == "GPU 0  Tesla T4  driver 550.90.07 | 1 s  [8]"
    assert lines[0].startswith("util   █████████████░░░░░░░    64 %         ")
    assert lines[1] == "VRAM   ████████░░░░░░░░░░░░   5.7 / 15.0 GiB  free 8.9  driver 0.4"
    assert lines[2].startswith("power  █████████████░░░░░░░    44 / 70 W    ")
    assert lines[3] == "temp   ██████████████░░░░░░    66 °C        slows at 93"
    assert lines[4] == "clock  SM 1590 of 1590 MHz   mem 5000 of 5000   P0"
    assert lines[5].startswith("throttle none now     last ")
    assert lines[5].endswith("heat 0 s, power cap 12 s")
    assert lines[6] == "health ● Xid 0 since boot  ECC 0  retired 0  PCIe 3x16 of 3x16"
    assert lines[7] == "procs  triton 5.7 GiB         others none"


def test_service_as_drawn() -> None:
    lines = lines_of(OverviewService(), _view(drawn_box(), 86, 8))
    assert lines[:6] == [
        "container triton ● running 24m36s   restarts 0   unit triton.service  image 24.05-py3",
        "server    2.46.0   live ●   ready ▲ 400: rerank 3 failed; ready probes drop this box",
        "traffic   1650 req/s from outside (180 of them through reco, counted once)   waiting 2",
        "failures  0.0/s of those that Triton counts *",
        "a ranking request, mean of 10 s   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░█████████████████████▒  2.94 ms",
        "          ▓ waiting 1.23  ░ input 0.08  █ model 1.53  ▒ output 0.10   tail p99 –",
    ]
    assert lines[6].endswith("9+ ▁   mean 4.3 of 16, by runs")
    assert lines[7] == "host      cpu 23 % of 16   triton 2.8 cores   mem 41/126 GiB   shm 0.2/1.0  disk 64 %"


def test_models_as_drawn() -> None:
    view = _view(drawn_box(), 156, 6)
    lines = lines_of(OverviewModels(), view)
    assert lines[0] == (
        "  MODEL             VER STATE         REQ/s MEAN ms = WAIT +  COMPUTE    BATCH BUSY% INST  DELAY µs WAITING "
        "FAIL/s*  LAST OK VRAM GiB REQ/s, 60 s"
    )
    assert lines[1].startswith(
        "● ranking             2 READY          1650    2.94     1.23     1.71   4.3/16    31    2     2000≠       2 "
        "    0.0      0 s      3.1 "
    )
    assert lines[3].startswith(
        "● reco  (ensemble)    1 READY           180    5.61        –        –        –     –    –         –       – "
        "    0.0      0 s        – "
    )
    assert lines[4].startswith("✗ rerank              3 UNAVAILABLE  engine made with TensorRT 8.5.3, this server has")
    assert lines[4].endswith("failed 05:40:02, 24 m ago")
    foot = [plain(line) for line in OverviewModels().foot_lines(view)]
    assert foot == [
        "* not counted by Triton: queue full, bad input, error answers of Python models.  ≠ live only, a restart goes "
        "back to config.pbtxt.  reco = recall → ranking"
    ]


def test_trends_as_drawn() -> None:
    lines = lines_of(OverviewTrends(), _view(drawn_box(), 156, 10))
    assert [line.split("  ")[0] for line in lines[:8]] == [
        "req/s", "mean ms", "waiting ms", "batch", "util %", "SM MHz", "°C", "VRAM GiB",
    ]  # fmt: skip
    assert [line.split()[-1] for line in lines[:8]] == [
        "0–2000", "0–4", "0–4", "0–16", "0–100", "0–1590", "30–93", "0–15",
    ]  # fmt: skip
    assert lines[0][18:26] == "  1650  "
    assert len(lines[0][26:146].strip()) == 120
    assert lines[8].endswith("events")
    assert lines[8].split()[:-1] == ["b", "c", "d", "e"]
    assert lines[9].split() == ["05:56", "05:58", "06:00", "06:02", "06:04"]
    assert lines[8].index("d") - lines[8].index("b") == round(278 / 5), "278 s lie between them"


def test_why_and_events_as_drawn() -> None:
    why = lines_of(OverviewWhy(), _view(drawn_box(), 76, 11))
    assert why[0].startswith("✗ rerank 3 cannot load: its engine was made by another TensorRT")
    assert why[0].endswith("sure")
    assert why[2] == "  serve. Unloading it does not clear that; a good load or a restart does. 2"
    assert len(why) == 10
    events = lines_of(OverviewEvents(), _view(drawn_box(), 76, 11))
    assert events[0] == "e 06:03:10  ▲ ranking 3 appeared on disk, newer than the served 2  (disk)"
    assert events[2] == "            mean 1.84 → 2.94 ms over 60 s each; reload 1.1 s, 0 refused"
    assert events[6] == "            the same 3 times since"


# -------------------------------------------------------------------------------------------------- as drawn, narrow


def test_eighty_columns_as_drawn() -> None:
    box = drawn_box()
    assert lines_of(OverviewGpu(), _view(box, 80, 2, compact=True)) == [
        "GPU T4 util   64 %   SM 1590/1590 MHz   66 °C of 93    44/70 W   throttle none",
        "VRAM ███████▒░░░░░░░░░░   5.7/15.0 GiB free 8.9  others 0.0  Xid 0  ECC 0 3x16",
    ]
    assert lines_of(OverviewService(), _view(box, 80, 2, compact=True)) == [
        "SVC triton up 24m36s restarts 0    1650 req/s   waiting 2   failures* 0.0/s",
        "HOST cpu 23 %  triton 2.8 cores  mem 41/126 GiB  shm 0.2/1.0  disk 64 %",
    ]
    view = _view(box, 80, 8, compact=True)
    models = lines_of(OverviewModels(), view)
    assert models[:4] == [
        "  MODEL         VER STATE     REQ/s MEAN ms   WAIT   COMP   BATCH BUSY  DELAY µs",
        "● ranking         2 READY      1650    2.94   1.23   1.71  4.3/16   31     2000≠",
        "● recall          7 READY       180    2.65   0.42   2.23   1.1/8   37         –",
        "● reco (ens)      1 READY       180    5.61      –      –       –    –         –",
    ]
    assert models[4].startswith("✗ rerank          3 FAILED   engine made with TensorRT 8.5.3")
    assert [plain(line) for line in OverviewModels().foot_lines(view)] == [
        "",
        "  ranking ▓▓▓▓▓▓▓▓▓▓▓▓▓░████████████████▒  wait 1.23 in 0.08 model 1.53 out 0.10",
        "  * queue full, bad input, Python error answers not counted  ≠ live only",
    ]


def test_columns_are_dropped_in_the_stated_order() -> None:
    order = ["REQ/s, 60 s", "VRAM GiB", "LAST OK", "WAITING", "INST", "FAIL/s*", "DELAY µs", "BUSY%"]
    kept = ["REQ/s", "MEAN ms", "WAIT", "COMPUTE", "BATCH", "MODEL", "VER", "STATE"]
    dropped: list[str] = []
    box = drawn_box()
    for width in range(156, 77, -1):
        head = lines_of(OverviewModels(), _view(box, width, 6))[0]
        gone = [name for name in order if name not in head]
        dropped += [name for name in gone if name not in dropped]
        assert all(name in head for name in kept), width
    assert dropped == order


def test_nothing_serves_as_drawn() -> None:
    box = boxes.nothing_serves_box()
    assert lines_of(OverviewGpu(), _view(box, 56, 6))[:3] == [
        "util   ░░░░░░░░░░░░░░░░     0 %",
        "VRAM   ░░░░░░░░░░░░░░░░   0.0 / 15.0 GiB  driver 0.4",
        "temp  38 °C   power 10/70 W   SM 300 of 1590 MHz   P8",
    ]
    view = _view(box, 116, 8)
    assert on_disk(view)
    assert _title(OverviewModels(), view) == "Models   no server: this is what the disk holds | 9 s  [2]"
    assert lines_of(OverviewModels(), view)[1].startswith("? ranking     /data/models/ranking       3       418 MiB  ")
    service = lines_of(OverviewService(), _view(box, 56, 6))
    assert service[0] == "container ✗ none (looked: rootful, rootless, the port)"
    assert any("error mounting" in line for line in service)


@pytest.mark.parametrize(
    ("make", "first", "holds"),
    [
        (boxes.stale_box, "util   ~ 64 %    VRAM ~ 5.7 / 15.0 GiB    temp ~ 66 °C", "NVML has not answered since"),
        (boxes.nvml_mismatch_box, "✗ NVML error 18: libraries 570.86.15, kernel 550.90.07", "without a reboot"),
        (boxes.lost_gpu_box, "✗ NVML error 15: the GPU is lost since 06:03:12, Xid 79", "answer with errors from now"),
        (boxes.mig_box, "util   – not given for a MIG card     power 190 / 400 W", "MIG 1g.10gb x3"),
        (boxes.empty_box, "– no NVIDIA device on the PCI bus of this host", "Triton on CPU is shown as usual"),
    ],
)
def test_gpu_states_as_drawn(make: Callable[[], Box], first: str, holds: str) -> None:
    lines = lines_of(OverviewGpu(), _view(make(), 66, 8))
    assert lines[0] == first
    assert any(holds in line for line in lines)


def test_stale_age_stands_in_the_title() -> None:
    assert plain(OverviewGpu().note(_view(boxes.stale_box(), 66, 8))) == "▲ 33 s old  [8]"


def test_a_blind_spot_is_named_with_its_cost() -> None:
    lines = lines_of(OverviewService(), _view(boxes.metrics_off_box(), 86, 9))
    assert "– metrics refused (are they off?): no waiting count" in lines


# ------------------------------------------------------------------------------------------------------ missing values


def test_what_is_unknown_is_never_nought() -> None:
    lines = lines_of(OverviewGpu(), _view(boxes.idle_gpu_box(), 66, 8))
    assert lines[0].split()[1] == "–"
    assert "ECC –" in lines[6]
    assert lines[7] == "procs  ? could not be listed"


def test_throttle_seen_once_a_second_where_the_driver_has_no_counters() -> None:
    box = drawn_box()
    assert box.snapshot.gpu.value is not None
    card = changed(box.snapshot.gpu.value.gpus[0], throttle_counters=(), throttle_now=("heat_software",))
    gpu = changed(box.snapshot.gpu, value=changed(box.snapshot.gpu.value, gpus=(card,)))
    for back in range(5):
        box.history.record(MONO - back, {"gpu.0.throttled.heat_software": 1.0})
    view = _view(Box(box.readings, changed(box.snapshot, gpu=gpu), box.history), 66, 8)
    assert lines_of(OverviewGpu(), view)[5] == "throttle too hot      last 10 m: heat 5 s, power cap 0 s"


def test_foreign_processes_are_named() -> None:
    box = drawn_box()
    assert box.snapshot.gpu.value is not None
    card = box.snapshot.gpu.value.gpus[0]
    other = changed((card.processes or ())[0], pid=99, command="/usr/bin/python train.py", container_id=None)
    card = changed(card, processes=(*(card.processes or ()), other))
    gpu = changed(box.snapshot.gpu, value=changed(box.snapshot.gpu.value, gpus=(card,)))
    view = _view(Box(box.readings, changed(box.snapshot, gpu=gpu), box.history), 66, 8)
    assert lines_of(OverviewGpu(), view)[7] == "procs  triton 5.7 GiB         others python 5.7 GiB"


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("nvcr.io/nvidia/tritonserver:24.05-py3", "24.05-py3"),
        ("registry:5000/tritonserver", "tritonserver"),
        ("tritonserver@sha256:abc", "tritonserver"),
    ],
)
def test_image_tag(image: str, tag: str) -> None:
    assert image_tag(image) == tag


# -------------------------------------------------------------------------------------------------------- keys of panes


def _names(pane: OverviewModels, view: View) -> list[str]:
    return [row.key.name for row in pane.lines(view) if isinstance(row.key, ModelKey)]


def test_models_sort_filter_and_turn() -> None:
    pane, view = OverviewModels(), _view(drawn_box(), 156, 6)
    assert _names(pane, view) == ["ranking", "recall", "reco", "rerank"]
    assert pane.turn_sort()
    assert _names(pane, view) == ["rerank", "reco", "recall", "ranking"]
    assert pane.turn_sort()
    assert pane.shift_sort(2)
    assert _names(pane, view)[:2] == ["reco", "ranking"], "by mean, highest first"
    pane.filter = "re"
    assert set(_names(pane, view)) == {"recall", "reco", "rerank"}
    pane.filter = "!re"
    assert _names(pane, view) == ["ranking"]


def test_why_has_a_line_for_each_before_reasons() -> None:
    verdicts = tuple(Verdict(f"V{n:02}", "warn", f"verdict {n}", ("because",)) for n in range(5))
    view = _view(boxes.with_verdicts(drawn_box(), verdicts), 76, 7)
    lines = [line.strip() for line in lines_of(OverviewWhy(), view)]
    assert [line for line in lines if line.startswith("▲")] == [
        "▲ verdict 0" + " " * 59 + "sure",
        "▲ verdict 1" + " " * 59 + "sure",
        "▲ verdict 2",
        "▲ verdict 3",
        "▲ verdict 4",
    ]
    assert lines.count("because") == 2


def test_events_filter_and_date() -> None:
    pane = OverviewEvents()
    old = Event(NOW - 3 * 86400, "note", "three days ago", "(journal)", "x")
    box = drawn_box()
    view = _view(Box(box.readings, changed(box.snapshot, events=(old, *box.snapshot.events)), box.history), 76, 20)
    assert any(line.startswith(("  07-01", "a 07-01")) for line in lines_of(pane, view))
    pane.filter = "podman"
    assert [row.key.text for row in pane.lines(view) if isinstance(row.key, EventKey)] == ["container triton started"]


# ------------------------------------------------------------------------------------------------- any box, any size


@pytest.mark.parametrize("name", ALL_BOXES)
def test_every_pane_survives_every_box(name: str) -> None:
    box = ALL_BOXES[name]()
    for pane in PANES:
        _survives(pane, box)


def _survives(pane: type[Pane], box: Box) -> None:
    for width, height, compact in ((156, 10, False), (96, 4, False), (56, 6, False), (80, 2, True), (10, 1, True)):
        view = _view(box, width, height, compact=compact)
        made = pane()
        assert plain(made.title(view))
        text = "\n".join([*lines_of(made, view), *(plain(line) for line in made.foot_lines(view))])
        assert "\x1b" not in text
        plain(made.note(view))


def _overlap(one: Region, other: Region) -> bool:
    return bool(one.intersection(other).area)


@given(
    st.integers(60, 300),
    st.integers(13, 120),
    st.builds(Wants, st.integers(1, 1200), st.integers(1, 60), st.booleans()),
)
def test_panes_never_overlap_and_never_leave_the_screen(width: int, height: int, wants: Wants) -> None:
    body = Region(0, 1, width, height)
    places = {name: region for name, region in place(body, wants).items() if region.area}
    assert {"gpu", "service", "models"} <= set(places)
    for name, region in places.items():
        assert body.contains_region(region), (name, region)
        assert not any(_overlap(region, other) for also, other in places.items() if also != name), name


def test_heights_as_drawn() -> None:
    wide = place(Region(0, 1, 160, 43), Wants(models=6, why=10))
    assert {name: (region.width, region.height) for name, region in wide.items()} == {
        "gpu": (70, 10),
        "service": (90, 10),
        "models": (160, 8),
        "trends": (160, 12),
        "why": (80, 13),
        "events": (80, 13),
    }
    narrow = place(Region(0, 1, 80, 22), Wants(models=8, why=10))
    assert {name: region.height for name, region in narrow.items()} == {
        "gpu": 2,
        "service": 2,
        "models": 9,
        "why": 4,
        "events": 5,
    }


def test_under_thirty_rows_events_then_why_shrink_then_trends_go() -> None:
    heights = [place(Region(0, 1, 160, rows - 2), Wants(6, 10)) for rows in (45, 40, 36, 34)]
    assert [("trends" in places, places["why"].height) for places in heights] == [
        (True, 13),
        (True, 8),
        (True, 5),
        (False, 14),
    ]


def test_nothing_serves_puts_gpu_beside_service() -> None:
    places = place(Region(0, 1, 120, 38), Wants(5, 4, nothing_serves=True))
    assert (places["gpu"].width, places["service"].x, places["gpu"].height) == (60, 60, 8)


def test_view_chooses_the_busiest_model_when_none_is_chosen() -> None:
    view = view_of(drawn_box())
    assert view.model is not None
    assert view.model.name == "ranking"
    chosen = View(view.snapshot, view.history, NOW, MONO, chosen=ModelKey("reco", "1"))
    assert chosen.model is not None
    assert chosen.model.name == "reco"
    gone = View(view.snapshot, view.history, NOW, MONO, chosen=ModelKey("gone", "1"))
    assert gone.model is not None
    assert gone.model.name == "ranking"


def test_a_failure_that_is_no_timeout_is_told_beside_the_old_values() -> None:
    box = boxes.stale_box()
    gpu = changed(box.snapshot.gpu, error=Failure("unavailable", "NVML error 999: unknown"))
    view = _view(Box(box.readings, changed(box.snapshot, gpu=gpu), box.history), 90, 8)
    assert any("NVML error 999" in line for line in lines_of(OverviewGpu(), view))
