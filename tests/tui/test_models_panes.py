"""Models: the list's order, filter and views; what the details say and what they do not claim."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from console.core.model import Asked, BatchWindow, ModelKey
from console.tui.panes import model_work
from console.tui.panes.model_details import ModelDetails
from console.tui.panes.models_list import ModelsList, Shown, chosen, matches, models, title
from tests.fakes.boxes import drawn_box, hostile_box, many_models_box, metrics_off_box, nothing_serves_box, stale_box
from tests.fakes.drawn import NOW
from tests.tui.pure import lines_of, overfull, text_of, view_of

DRAWN_LIST = """\
  MODEL       VER STATE    REQ/s MEAN ms
  ranking    1 of 3
  ▲             3 on disk      –       –
  ●             2 READY     1650    2.94
  –             1 on disk      –       –
  recall     1 of 1
  ●             7 READY      180    2.65
  reco       ensemble
  ●             1 READY      180    5.61
  rerank     0 of 1
  ✗             3 FAILED       –       –"""


def test_the_list_is_as_drawn() -> None:
    assert text_of(ModelsList(), view_of(drawn_box(), 40)) == DRAWN_LIST


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (Shown(), ["ranking", "recall", "reco", "rerank"]),
        (Shown(reverse=True), ["rerank", "reco", "recall", "ranking"]),
        (Shown(sort="REQ/s"), ["ranking", "recall", "reco", "rerank"]),
        (Shown(sort="MEAN ms"), ["reco", "ranking", "recall", "rerank"]),
        (Shown(sort="STATE"), ["rerank", "ranking", "recall", "reco"]),
        (Shown(filter="RE"), ["recall", "reco", "rerank"]),
        (Shown(filter="!re"), ["ranking"]),
        (Shown(view="loaded"), ["ranking", "recall", "reco"]),
        (Shown(view="on disk"), ["ranking", "recall", "reco", "rerank"]),
    ],
)
def test_sort_filter_and_views(shown: Shown, names: list[str]) -> None:
    assert [model.name for model in chosen(models(drawn_box().snapshot), shown)] == names


def test_views_show_only_their_versions() -> None:
    loaded = chosen(models(drawn_box().snapshot), Shown(view="loaded"))[0]
    assert [version.version for version in loaded.versions] == ["2"]


def test_an_empty_filter_lets_all_through_and_its_characters_mean_nothing() -> None:
    assert matches("[/x]", "")
    assert matches("[/x]", "[/")
    assert not matches("a", ".")
    assert matches("a", "!.")


def test_the_title_names_what_is_not_the_usual_way() -> None:
    found = chosen(models(drawn_box().snapshot), Shown())
    assert title(found, 4, Shown()) == "Models  4"
    told = title(found[:1], 4, Shown(view="loaded", sort="REQ/s", reverse=True, filter="[x]"))
    assert told == "Models  1 of 4  loaded  by REQ/s turned round  /[x]"


def test_keys_turn_the_list() -> None:
    pane = ModelsList()
    pane.view = view_of(drawn_box())
    assert pane.shift_sort(1)
    assert pane.shown.sort == "STATE"
    assert pane.shift_sort(-2)
    assert pane.shown.sort == "MEAN ms"
    assert pane.turn_sort()
    assert pane.shown.reverse
    assert [pane.next_view() and pane.shown.view for _ in range(3)] == ["on disk", "loaded", "all"]
    assert pane.filterable()


def test_old_figures_are_marked() -> None:
    assert "~1650" in text_of(ModelsList(), view_of(stale_box(), 40))


def test_without_a_server_the_disk_is_what_there_is() -> None:
    text = text_of(ModelsList(), view_of(nothing_serves_box(), 40))
    assert "READY" not in text
    assert text.count("on disk") == 6


def test_a_thousand_models_are_grouped_and_their_lines_made_late() -> None:
    snapshot = many_models_box(1000).snapshot
    rows = ModelsList().lines(view_of(many_models_box(1000), 40))
    assert len(models(snapshot)) == 1000
    assert sum(callable(row.line) for row in rows) == 2000


def _details(name: str = "ranking", **answers: Asked) -> str:
    pane = ModelDetails()
    pane.chosen = ModelKey(name, "")
    pane.answers = answers
    return text_of(pane, view_of(drawn_box(), 72, 60))


def test_details_of_the_drawn_model() -> None:
    text = _details()
    for part in (
        "▲ 3        418 MiB   2026-07-04 06:03    newer: next reload deploys it",
        "● 2        418 MiB   2026-07-02 08:41    READY since 06:01:59",
        "policy   latest 1, so a reload or a restart takes 3",
        "live differs from config.pbtxt in 1 field",
        "  - max_queue_delay_microseconds: 500",
        "  + max_queue_delay_microseconds: 2000",
        "TIME  10 s ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░█████████████████████▒  2.94 ms",
        "▓ waiting 1.23   ░ input 0.08   █ model 1.53   ▒ output 0.10",
        "5–8   ██████████    40       1.80           0.30",
        "at most  11 400/s if all batches were 16: no batch above 14 seen, ≈",
        "REJECTED 0   CANCELED 0   BACKEND 0   OTHER 0",
        "not counted: queue full, bad input, error answers of Python models",
        "a reload needs 3.1 more: fits, 8.9 free",
        "reco (ensemble)",
    ):
        assert part in text


@pytest.mark.parametrize("width", [54, 60, 72, 112])
def test_figures_are_never_cut_on_a_framed_screen(width: int) -> None:
    pane = ModelDetails()
    pane.chosen = ModelKey("ranking", "2")
    view = view_of(drawn_box(), width, 60)
    cut = [line for line in overfull(pane, view) if not line.startswith(("▲", "●", "KEYS"))]
    assert cut == []


def test_no_percentile_is_made_up() -> None:
    assert "p99" not in _details().lower()


def test_a_failed_model_says_triton_s_own_reason() -> None:
    text = _details("rerank")
    assert "engine made with TensorRT 8.5.3" in text
    assert "– not served, nothing is counted" in text


def test_an_ensemble_has_steps_and_no_split_of_its_own() -> None:
    text = _details("reco")
    assert "STEPS      recall → ranking" in text
    assert "the split is on its steps" in text
    assert "▓" not in text


def test_an_answer_stands_beside_its_time_as_it_came() -> None:
    good = Asked("ranking", "2", ok=True, wall=NOW - 60, millis=2.13, text="output [/x]")
    text = _details(ranking=good)
    assert "PROOF      counted success 0 s ago   asked 06:03:31 ● answered" in text
    assert "2.13 ms, version 2: output [/x]" in text
    assert "no answer is kept to compare it with: W keeps it" in text
    bad = replace_answer(good)
    assert "asked 06:03:31 ✗ no good answer" in _details(ranking=bad)
    assert "asked 06:03:31 ? not asked" in _details(ranking=changed(good, ok=None))
    assert "not asked" in _details()


def test_an_answer_stands_against_the_kept_one() -> None:
    same = Asked("ranking", "2", ok=True, wall=NOW - 60, millis=2.13, text="y 2", compared="")
    text = _details(ranking=same)
    assert "asked 06:03:31 ● as kept" in text
    assert "W keeps it" not in text.split("CONFIG")[0]
    text = _details(ranking=changed(same, compared="y: value 0 is 3, kept 2"))
    assert "asked 06:03:31 ✗ differs" in text
    assert "y: value 0 is 3, kept 2" in text


def replace_answer(answer: Asked) -> Asked:
    """The same, failed."""
    return changed(answer, ok=False, millis=None, text="500: bad input")


def test_metrics_off_names_why_reasons_are_unknown() -> None:
    pane = ModelDetails()
    pane.chosen = ModelKey("ranking", "2")
    text = " ".join(text_of(pane, view_of(metrics_off_box(), 72)).split())
    assert "by reason: ? connection refused on 127.0.0.1:8002" in text


def test_memory_that_was_not_seen_is_unknown_not_zero() -> None:
    box = drawn_box()
    rows = tuple(changed(row, memory=None, memory_origin=None) for row in box.snapshot.models)
    pane = ModelDetails()
    pane.chosen = ModelKey("ranking", "2")
    view = view_of(replace(box, snapshot=changed(box.snapshot, models=rows)), 72)
    assert "? not seen" in text_of(pane, view)


def test_the_whole_difference() -> None:
    pane = ModelDetails()
    pane.chosen, pane.whole_difference = ModelKey("ranking", "2"), True
    text = text_of(pane, view_of(drawn_box(), 72))
    assert "config.pbtxt" in text
    assert "  - 500" in text
    assert "  + 2000" in text


def test_a_reason_of_100_000_characters_takes_some_lines_only() -> None:
    pane = ModelDetails()
    pane.chosen = ModelKey("[/x]", "1")
    assert len(lines_of(pane, view_of(hostile_box(), 72))) < 80


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([1, 2, 3, 4], ["1", "2", "3", "4"]),
        ([5, 8, 9, 16, 17, 32, 33], ["5–8", "9–16", "17–32", "33–64"]),
        ([], []),
    ],
)
def test_batches_are_grouped_by_doublings(sizes: list[int], names: list[str]) -> None:
    runs = [BatchWindow(size, 10, 2.0) for size in sizes]
    assert [name for name, *_ in model_work.grouped(runs)] == names


def test_ms_a_request_is_the_run_shared_by_its_requests() -> None:
    ((_, runs, per_run, per_request),) = model_work.grouped([BatchWindow(5, 10, 2.0), BatchWindow(8, 30, 4.0)])
    assert runs == 40
    assert per_run == pytest.approx((10 * 2 + 30 * 4) / 40)
    assert per_request == pytest.approx((10 * 2 + 30 * 4) / (10 * 5 + 30 * 8))


@pytest.mark.parametrize(
    ("share", "bar"), [(0.0, ""), (0.001, "▏"), (0.25, "█"), (0.5, "██"), (1.0, "████"), (9, "████")]
)
def test_bars_in_eighths(share: float, bar: str) -> None:
    assert model_work.eighths(share, 4) == bar


def test_too_little_seen_gives_no_highest_rate() -> None:
    row = next(row for row in drawn_box().snapshot.models if row.name == "recall")
    text = "".join(str(line.line) for line in model_work.at_most(row, 72))
    assert "cannot tell: no batch above 3 seen" in text
