"""The 25 cases that were measured on Triton 2.51.0 (design: screens.md section 4): same figures, same verdict."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.advisors.cases import config, ids, once, queue, row, snapshot, window


class Case(NamedTuple):
    name: str
    rate: float
    batch: float | None
    wait: float | None
    compute: float | None
    busy: float
    pending: float
    verdict: str
    settings: dict[str, Any]
    fails: dict[str, float] = {}  # noqa: RUF012


D = "delay_us"
TWO: dict[str, Any] = {"instances": 2}
ONE_OF_4: dict[str, Any] = {"instances": 1, "max_batch_size": 4, "delay_us": 2000}
OFF: dict[str, Any] = {"dynamic_batching": False}

CASES = (
    Case("delay 0, 20/s", 19.8, 1.03, 0.54, 14.31, 0.14, 0.0, "V31", TWO),
    Case("delay 5 ms, 20/s", 19.9, 1.14, 5.00, 14.61, 0.13, 0.2, "V20", {**TWO, D: 5000}),
    Case("delay 10 ms, 40/s", 39.6, 1.40, 8.92, 15.07, 0.21, 0.5, "V20", {**TWO, D: 10_000}),
    Case("delay 10 ms, 150/s", 149.8, 2.55, 7.33, 16.63, 0.47, 1.1, "V21", {**TWO, D: 10_000}),
    Case("delay 20 ms, 40/s", 39.6, 1.80, 15.87, 15.54, 0.17, 0.8, "V20", {**TWO, D: 20_000}),
    Case("delay 20 ms, 150/s", 149.8, 4.08, 12.68, 18.42, 0.32, 2.0, "V21", {**TWO, D: 20_000}),
    Case("delay 20 ms, 300/s", 297.6, 7.08, 11.86, 21.82, 0.44, 4.7, "V21", {**TWO, D: 20_000}),
    Case("delay 0, 150/s", 149.9, 1.41, 2.98, 15.02, 0.77, 0.2, "V31", TWO),
    Case("delay 0, 400/s", 397.6, 3.48, 5.66, 18.70, 0.96, 2.5, "V23", TWO),
    Case("delay 5 ms, 400/s", 397.7, 3.52, 7.59, 17.83, 0.95, 2.6, "V23", {**TWO, D: 5000}),
    Case("delay 0, 800/s", 795.2, 9.48, 8.39, 26.10, 0.98, 7.2, "V23", TWO),
    Case("max 4, 1 instance, 150/s", 149.9, 2.41, 18.38, 16.28, 0.97, 3.2, "V22", ONE_OF_4),
    Case("max 4, 1 instance, 230/s", 225.3, 3.94, 174.16, 17.32, 0.99, 38.9, "V17", ONE_OF_4),
    Case("max 4, 1 instance, 300/s", 225.2, 4.00, 1084.60, 17.54, 0.99, 248.2, "V17", ONE_OF_4),
    Case("delay 10 ms, 1 client", 38.9, 1.00, 10.42, 14.24, 0.28, 0.5, "V20", {**TWO, D: 10_000}),
    Case("delay 0, 2 clients", 130.4, 1.10, 0.15, 14.25, 0.84, 0.0, "V19", TWO),
    Case("delay 0, 16 clients", 534.1, 5.10, 7.96, 20.83, 0.98, 3.8, "V23", TWO),
    Case("no batching, 16 clients", 141.8, 1.00, 98.10, 14.03, 0.99, 13.9, "V18", {**TWO, **OFF}),
    Case("no batching, 100/s", 96.6, 1.00, 6.91, 13.94, 0.67, 0.4, "V24", {**TWO, **OFF}),
    Case("fails (bad input rank), 50/s", 0.0, None, None, None, 0.0, 2.4, "V12", TWO, {"OTHER": 50.0}),
    Case(
        "queue limit 2, 8 clients", 7.8, 2.00, 260.89, 31.28, 0.12, 2.0, "V15", {"max_batch_size": 2, "queue": queue(2)}
    ),
    Case(
        "queue time-out 50 ms, 24 clients",
        13.0,
        3.92,
        0.54,
        302.11,
        1.0,
        19.4,
        "V12",
        {"max_batch_size": 4, "queue": queue(0, 50_000)},
        {"REJECTED": 66.0},
    ),
    Case("raises, 40/s", 0.0, None, None, None, 0.0, 0.0, "V12", TWO, {"BACKEND": 40.0}),
    Case("error answers, 40/s", 39.6, 1.04, 0.88, 5.94, 0.23, 0.0, "V31", TWO),
    Case("process dies, 40/s", 0.0, None, None, None, 0.0, 195.7, "V12", TWO, {"BACKEND": 1.0}),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_measured_figures_give_the_measured_verdict(case: Case) -> None:
    settings = config(**case.settings)
    seen = window(
        rate=case.rate,
        batch=case.batch,
        wait=case.wait,
        compute=case.compute,
        busy=case.busy,
        instances=settings.instances or 1,
        fail_rate=sum(case.fails.values()),
        max_batch=settings.max_batch_size,
    )
    found = once(snapshot(row(seen, settings, pending=(case.pending,) * 30, failures=case.fails)))
    assert ids(found) == [case.verdict]
    assert found[0].model == "m"
    assert found[0].figures.startswith("30 s: ")
    assert found[0].rule
    assert found[0].means
    assert found[0].does_not


def test_all_25_are_here() -> None:
    assert len(CASES) == 25
