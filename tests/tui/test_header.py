"""The header's forms (design 1.1, 1.2, 1.4), the tab line and the footer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace as changed

from console.core.model import Failure, Reading, Serving, Snapshot, TritonServer, Verdict
from console.tui.panes.base import View
from console.tui.panes.header import Status, footer_line, header_line, lamp, short_failure, tab_line
from console.tui.screens import SCREENS
from console.tui.widgets.cells import plain, width
from tests.fakes.boxes import drawn_box
from tests.fakes.drawn import MONO, NOW

STATUS = Status("infer-01", 1.9, 62 << 20)


@pytest.fixture(autouse=True)
def _zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Shanghai"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def _header(
    snapshot: Snapshot, cells: int, status: Status = STATUS, *, simulated: str | None = None, utc: bool = False
) -> str:
    view = View(snapshot, drawn_box().history, NOW, MONO, utc=utc, simulated=simulated)
    text = plain(header_line(view, status, cells))
    assert width(text) == cells
    return text


def _start(text: str) -> str:
    return text.split("      ")[0].rstrip()


def test_wide_as_drawn() -> None:
    text = _header(drawn_box().snapshot, 160)
    start = "gpuconsole  infer-01  Rocky 8.10  14:04:31 UTC+8   ● SERVING 3 of 4   live ●  ready ▲ 400"
    assert text.startswith(start)
    assert text.endswith("✗1 ▲3 ?1 e list   self 1.9 % 62 MiB")


def test_details_as_drawn() -> None:
    status = Status("infer-01", 1.9, 62 << 20, details=True)
    assert _header(drawn_box().snapshot, 120, status) == (
        "gpuconsole  infer-01  14:04:31 UTC+8  ● SERVING 3 of 4   live ●  ready ▲ 400         ✗1 ▲3 ?1 e list   "
        "self 1.9 % 62 MiB"
    )


def test_eighty_columns_as_drawn() -> None:
    text = _header(drawn_box().snapshot, 80)
    assert text.startswith("infer-01 14:04:31+08 ● SERVING 3/4 live ● ready ▲400 ")
    assert text.endswith("✗1 ▲3 ?1 e  1.9 %")


def test_utc() -> None:
    assert "06:04:31 UTC " in _header(drawn_box().snapshot, 160, utc=True)
    assert _header(drawn_box().snapshot, 80, utc=True).startswith("infer-01 06:04:31Z ")


def _with(word: str, *, server: Reading[TritonServer] | None = None, **of_serving: object) -> Snapshot:
    serving = Serving(word, **of_serving)  # type: ignore[arg-type]
    snapshot = changed(drawn_box().snapshot, serving=serving)
    return snapshot if server is None else changed(snapshot, server=server)


REFUSED: Reading[TritonServer] = Reading(
    "triton.server", 1.0, error=Failure("unavailable", "connection refused on 127.0.0.1:8000"), error_mono=MONO - 12
)


@pytest.mark.parametrize(
    ("snapshot", "says"),
    [
        (_with("DOWN", server=REFUSED), "14:04:31 UTC+8  ✗ DOWN   live ✗ refused"),
        (_with("STARTING", ready=0, of=4, detail="41 s", server=REFUSED), "▲ STARTING 0 of 4, 41 s   live ✗"),
        (
            _with("NOT ANSWERING", detail="metrics port does: HTTP workers held?", since_mono=MONO - 12),
            "✗ NOT ANSWERING 12 s   metrics port does: HTTP workers held?",
        ),
        (_with("NOTHING SERVES YET"), "? NOTHING SERVES YET"),
        (_with("NOTHING LOADED"), "▲ NOTHING LOADED   live ●  ready ▲ 400"),
        (_with("UNKNOWN"), "? looking"),
    ],
)
def test_words(snapshot: Snapshot, says: str) -> None:
    assert says in _header(snapshot, 160)
    _header(snapshot, 120)
    _header(snapshot, 80)
    _header(snapshot, 60)


def test_simulated_paused_and_read_only() -> None:
    snapshot = drawn_box().snapshot
    told = _header(snapshot, 120, simulated="queue-bound")
    assert told.startswith("gpuconsole  SIMULATED BOX, nothing here is real   scene queue-bound   14:04:31 UTC+8   ")
    held = Status("infer-01", 1.9, 62 << 20, paused_wall=NOW - 41)
    assert _start(_header(snapshot, 120, held)) == (
        "gpuconsole  infer-01  14:04:31 UTC+8   PAUSED at 14:03:50, still measuring   p goes on"
    )
    assert "PAUSED at 14:03:50" in _header(snapshot, 100, held, simulated="throttled")
    assert "PAUSED 14:03:50" in _header(snapshot, 80, held)
    assert "● SERVING 3 of 4   READ-ONLY" in _header(snapshot, 160, Status("infer-01", read_only=True))
    assert "SIMULATED healthy" in _header(snapshot, 80, simulated="healthy")


def test_simulated_line_is_coloured_whole() -> None:
    view = View(drawn_box().snapshot, drawn_box().history, NOW, MONO, simulated="healthy")
    assert {style for _, style in header_line(view, STATUS, 120)} == {"simulated"}


def test_counts_are_those_of_the_verdicts() -> None:
    snapshot = changed(drawn_box().snapshot, verdicts=(Verdict("V32", "note", "nothing stands out"),))
    assert "✗0 ▲0 ?0 e" in _header(snapshot, 160)


def test_lamps_and_short_words() -> None:
    assert lamp(None, "✗") == ("?", "unknown")
    assert lamp(True, "✗") == ("●", "ok")
    assert lamp(False, "▲ 400") == ("▲ 400", "warn")
    assert short_failure(None) == ""
    assert short_failure(Failure("timeout", "no answer in 2 s")) == "silent"
    assert short_failure(Failure("bug", "x")) == "bug"


def test_tabs_as_drawn_for_the_screens_that_exist() -> None:
    tabs = (("overview", "1", "Overview"), ("models", "2", "Models"), ("gpu", "8", "GPU"))
    assert plain(tab_line(tabs, "models", compact=False)).rstrip() == " 1 Overview   [2 Models]   8 GPU"


def test_footer_gives_way_by_rank() -> None:
    parts = (("1-8", "screens", 0), ("tab", "pane", 1), ("enter", "open", 2), ("?", "help", 0))
    assert plain(footer_line(parts, 80)) == "1-8 screens  tab pane  enter open  ? help"
    assert plain(footer_line(parts, 30)) == "1-8 screens  tab pane  ? help"
    assert plain(footer_line(parts, 12)) == "? help"
    assert footer_line((), 10) == ()


@pytest.mark.parametrize("here", [one.name for one in SCREENS if one.digit])
def test_all_tabs_fit_into_80_cells(here: str) -> None:
    """The present one is seen whichever it is, also with what Checks found beside its name."""
    tabs = [(one.name, one.digit, one.title + (" ✗99" if one.name == "checks" else "")) for one in SCREENS if one.digit]
    told = plain(tab_line(tabs, here, compact=True))
    title = next(text for name, digit, name_ in tabs if name == here for text in [f"[{digit} {name_}]"])
    assert title in told
    assert len(told) <= 80
    assert told.count("[") == told.count("]") == 1
