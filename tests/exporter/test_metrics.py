"""Snapshot -> families: names, values, what is not known, bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from console.alerts.engine import Alert
from console.core.model import Snapshot
from console.exporter.metrics import MAX_LABEL, MOST, PREFIX, Told, families
from console.exporter.run import DASHBOARD, SCRAPE, file
from console.exporter.server import _Collected
from tests.fakes.boxes import ALL_BOXES, drawn_box, empty_box, lost_gpu_box, stale_box, unread_box

HOT = Alert("temperature_c", "GPU 0", "warn", "GPU 0 is hot", "91 °C", 91, 85, 0)
Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def page(told: Told) -> str:
    """What Prometheus gets."""
    registry = CollectorRegistry()
    registry.register(_Collected(lambda: families(told)))
    return generate_latest(registry).decode()


def series(snapshot: Snapshot, *alerts: Alert) -> Series:
    """Name less the prefix, and labels -> value; each series once."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(page(Told(snapshot, alerts))):
        for sample in family.samples:
            key = (sample.name.removeprefix(PREFIX), tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def _names(found: Series) -> set[str]:
    return {name for name, _ in found}


RANKING = (("model", "ranking"), ("version", "2"))


def test_the_drawn_box() -> None:
    found = series(drawn_box().snapshot, HOT)
    gpu = (("gpu", "0"),)
    assert found["gpu_utilization_ratio", gpu] == 0.64
    assert found["gpu_temperature_celsius", gpu] == 66
    assert found["gpu_sm_clock_hertz", gpu] == 1.59e9
    assert found["gpu_memory_size_bytes", gpu] > 15e9
    assert found["model_requests_per_second", RANKING] == pytest.approx(1650, rel=0.01)
    parts = [value for (name, labels), value in found.items() if name == "model_time_seconds" and RANKING[0] in labels]
    assert sum(parts) == pytest.approx(found["model_request_seconds", RANKING], rel=0.02)
    assert found["model_request_seconds", RANKING] == pytest.approx(0.00294, rel=0.01)
    assert found["model_live_only", RANKING] == 1
    assert found["model_ready", (("model", "rerank"), ("version", "3"))] == 0
    assert found["models_ready", ()] == 3
    assert found["models_wanted", ()] == 4
    assert found["alert", (("rule", "temperature_c"), ("sign", "warn"), ("subject", "GPU 0"))] == 1
    assert found["alerts", ()] == 1
    signs = [dict(labels)["sign"] for name, labels in found if name == "verdict"]
    assert (signs.count("fail"), signs.count("warn"), signs.count("unknown")) == (1, 3, 1)
    assert sum(value for (name, _), value in found.items() if name == "checks") == len(
        [name for name, _ in found if name == "check"]
    )


def test_an_ensemble_has_no_queue_and_no_batch() -> None:
    found = series(drawn_box().snapshot)
    of_reco = {name for name, labels in found if ("model", "reco") in labels}
    assert "model_request_seconds" in of_reco
    assert not of_reco & {"model_time_seconds", "model_batch_size", "model_busy_ratio"}


@pytest.mark.parametrize("name", ALL_BOXES)
def test_every_box_gives_a_page_that_can_be_read(name: str) -> None:
    series(ALL_BOXES[name]().snapshot, HOT)


def test_what_is_not_known_has_no_sample() -> None:
    assert _names(series(unread_box().snapshot)) == {"build_info", "alerts", "left_out"}
    empty = _names(series(empty_box().snapshot))
    assert not {one for one in empty if one.startswith(("gpu_", "model"))}
    stale = _names(series(stale_box().snapshot))
    assert not {one for one in stale if one.startswith(("gpu_", "model_"))}
    found = series(stale_box().snapshot)
    assert found["reading_age_seconds", (("part", "gpu"),)] == pytest.approx(33)
    assert found["reading_failed", (("part", "gpu"),)] == 1
    lost = series(lost_gpu_box().snapshot)
    assert lost["gpu_lost", (("gpu", "0"),)] == 1
    assert "gpu_temperature_celsius" not in _names(lost)


def test_labels_and_series_are_bounded() -> None:
    snapshot = drawn_box().snapshot
    row = snapshot.models[0]
    many = replace(snapshot, models=tuple(replace(row, name=f"m{number}{'x' * 500}\n") for number in range(MOST + 40)))
    found = series(many)
    named = {dict(labels)["model"] for name, labels in found if name == "model_ready"}
    assert len(named) == MOST
    assert max(map(len, named)) <= MAX_LABEL + 10
    assert found["left_out", (("what", "models"),)] == 40
    alike = replace(snapshot, models=tuple(replace(row, name="x" * 500 + str(n)) for n in range(3)))
    assert len([1 for name, _ in series(alike) if name == "model_ready"]) in (1, 3)


def test_the_dashboard_asks_for_what_there_is() -> None:
    board = json.loads(file(DASHBOARD))
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    expressions += [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    wanted = {name for text in expressions for name in re.findall(rf"{PREFIX}(\w+)", text)}
    box = drawn_box()
    snapshot = box.snapshot
    told = _names(series(snapshot, HOT)) | {"model_newer_on_disk"}
    assert len(expressions) > 30
    assert wanted - told == set()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_the_scrape_configuration_names_the_default_address() -> None:
    assert "127.0.0.1:9835" in file(SCRAPE)
