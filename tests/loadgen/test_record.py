"""Runs are kept, found, and compared."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.core.plan import WrongInput
from console.loadgen import record
from console.loadgen.cards import Card
from console.loadgen.errors import TIMEOUT, Failed, counted, of_socket, of_status, total
from console.loadgen.histogram import Histogram, Latency
from console.loadgen.record import Client, Run, Server, Stage, compare, find, keep, load_all
from console.loadgen.schedule import make


def run(ms: float = 2.0, config: dict[str, str] | None = None) -> Run:
    histogram = Histogram()
    for at in range(1000):
        histogram.record(round(ms * 1000 * (1 + at / 1000)))
    client = Client(
        10.0, 1000, 1000, 990, histogram.latency(), histogram.encoded(), histogram.sum_us, {TIMEOUT: Failed(3, "x")}
    )
    return Run(
        0, 1.0, "box", "ana", "127.0.0.1:8000", "m", "1", make("open", "100", 10.0), 2.0, 1, "X zeros", "present",
        client, config or {"delay": "500 µs"}, Server(1000, 0, ms, 0.4),
    )  # fmt: skip


def test_runs_are_numbered_and_only_the_owners(tmp_path: Path) -> None:
    kept = [keep(tmp_path, run()) for _ in range(3)]
    assert [one.id for one in kept] == [1, 2, 3]
    assert load_all(tmp_path) == kept
    file = tmp_path / record.FOLDER / record.NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    keep(tmp_path, run())
    file = tmp_path / record.FOLDER / record.NAME
    with file.open("ab") as opened:
        opened.write(b'\xff\xfe\n{"id": 7}\n[1]\n{"id": 9, "wall"')
    assert keep(tmp_path, run()).id == 2
    assert [one.id for one in load_all(tmp_path)] == [1, 2]


def test_finding_one(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no run is kept yet"):
        find(load_all(tmp_path), "last")
    kept = [keep(tmp_path, run()) for _ in range(2)]
    assert find(kept, "last").id == 2
    assert find(kept, "1").id == 1
    with pytest.raises(WrongInput, match="there is no run '7'; there are runs 1 to 2"):
        find(kept, "7")


def test_compared() -> None:
    found = compare(run(2.0), replace(run(4.0), config={"delay": "2000 µs"}))
    rows = {row.name: row for row in found.rows}
    assert rows["p50 ms"].change == pytest.approx(1.0, rel=0.01)
    assert rows["done/s"].first == 99.0
    assert rows["errors"].change == 0
    assert rows["infer ms"].change is None
    assert found.differs == {"delay": ("500 µs", "2000 µs")}
    assert all(sum(shares) == pytest.approx(1.0) for shares in found.shares)
    assert len(found.shares[0]) == len(found.bounds_ms) + 1


def test_steps_and_cards_that_both_runs_have_are_compared() -> None:
    def with_figures(rate: float, util: float) -> Run:
        made = run()
        stages = (Stage(50, 50, 0.0, 5.0, 250, 250, 1, Latency(250, p99=2.0)),
                  Stage(rate, rate, 5.0, 5.0, 500, 480, 0, Latency(500, p99=4.0)))  # fmt: skip
        return replace(made, client=replace(made.client, stages=stages), cards=(Card(0, "T4", 9, util),))

    rows = {row.name: row for row in compare(with_figures(100, 50.0), with_figures(80, 75.0)).rows}
    assert (rows["at 50 done/s"].first, rows["at 50 p99 ms"].second, rows["at 50 errors"].first) == (50.0, 2.0, 1.0)
    assert rows["GPU 0 util %"].change == 0.5
    assert rows["GPU 0 SM MHz"].first is None
    assert not [name for name in rows if name.startswith(("at 100", "at 80"))]
    assert "at 100 p99 ms" in {row.name for row in compare(with_figures(100, 1.0), with_figures(100, 1.0)).rows}


def test_errors_are_counted_by_kind_with_the_first_text() -> None:
    errors: dict[str, Failed] = {}
    for kind, text in (
        (of_status(503), "full"),
        (of_status(503), "other"),
        (of_socket(111), ""),
        (of_socket(None), ""),
    ):
        errors = counted(errors, kind, text)
    assert errors["http 503"] == Failed(2, "full")
    assert set(errors) == {"http 503", "refused", "cannot connect"}
    assert total(errors) == 4
