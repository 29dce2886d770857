"""Alerts on the screen: header, Timeline, bell and desktop, the silence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

import console.tui.app as app_module
from console.config import Alerts
from console.core.model import Event
from console.tui.alarms import notice
from console.tui.app import ConsoleApp
from console.tui.panes.base import View
from console.tui.panes.header import Status, header_line
from console.tui.panes.timeline_events import shown
from console.tui.state import State
from console.tui.theme import folders, load
from console.tui.widgets.cells import plain, width
from tests.fakes.boxes import Box, drawn_box, good
from tests.fakes.drawn import MONO, NOW, gpu_box
from tests.fakes.session import FakeSession
from tests.tui.stage import BoxClock, settled, text_of

QUICK = Alerts(temperature_c="85", not_ready="off", hook_url="http://127.0.0.1:1/hunter2")


def _hot() -> Box:
    box = gpu_box()
    return drawn_box(gpu=good("gpu", changed(box, gpus=(changed(box.gpus[0], temp_c=91.0),))))


def _app(tmp_path: Path, settings: Alerts | None, simulated: str | None = None) -> ConsoleApp:
    box = _hot()
    app = ConsoleApp(
        FakeSession(box.snapshot, simulated=simulated),
        load(folders()),
        State(tmp_path),
        host="infer-01",
        alerts=settings,
    )
    app.store.history = box.history
    return app


@pytest.mark.parametrize("cells", [160, 120, 100, 80, 60])
def test_the_header_counts_alerts(cells: int) -> None:
    view = View(drawn_box().snapshot, drawn_box().history, NOW, MONO, utc=True)
    for words in (("ALERT 2", "A2"), ("ALERT 12 silent", "A12s")):
        text = plain(header_line(view, _status(words), cells))
        assert width(text) == cells
        assert words[0 if cells >= 100 else 1] in text
        assert "✗1 ▲3 ?1 e" in text
        assert "SERVING 3" in text


def _status(words: tuple[str, str]) -> Status:
    return Status("infer-01", 1.9, 62 << 20, alerts=words)


def test_timeline_has_a_view_of_alerts_alone() -> None:
    began = Event(NOW, "warn", "alert: GPU 0 is hot", "(alert)", "alert.temperature_c")
    over = Event(NOW, "ok", "over: GPU 0 is hot", "(alert)", "alert.over")
    other = Event(NOW, "fail", "rerank failed", "(index)", "model.failed")
    assert [shown(event, "alerts") for event in (began, over, other)] == [True, True, False]
    assert [shown(event, "faults") for event in (began, over, other)] == [True, False, True]


async def test_an_alert_shows_in_header_and_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "time", BoxClock())
    app = _app(tmp_path, QUICK, simulated="throttled")
    async with app.run_test(size=(160, 45)) as pilot:
        await settled(app, pilot)
        assert "ALERT 1" in text_of(app)
        app.go("timeline")
        await settled(app, pilot)
        assert "alert: GPU 0 is at 85 °C or more" in text_of(app)
        assert app.alarms.watch is not None
        assert not app.alarms.watch._caller._hook.is_set, "a simulated box calls nobody"
        app.alarms.be_silent("1h")
        assert [path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("alerts-*")] == ["simulated"]


async def test_without_settings_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "time", BoxClock())
    app = _app(tmp_path, None)
    async with app.run_test(size=(160, 45)) as pilot:
        await settled(app, pilot)
        assert "ALERT" not in text_of(app)
        app.alarms.be_silent("1h")
        assert not list(tmp_path.glob("alerts*"))


async def test_bell_and_notice_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "time", BoxClock())
    monkeypatch.delenv("TMUX", raising=False)
    app = _app(tmp_path, changed(QUICK, bell=True, desktop="osc9", hook_url=""))
    rung: list[str] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append("bell"))
    async with app.run_test(size=(160, 45)) as pilot:
        assert app._driver is not None
        written: list[str] = []
        monkeypatch.setattr(app._driver, "write", written.append)
        await settled(app, pilot)
        await settled(app, pilot)
        assert rung == ["bell"]
        assert [one for one in written if "\x1b]9;" in one] == ["\x1b]9;infer-01: GPU 0 is at 85 °C or more\x07"]


async def test_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "time", BoxClock())
    app = _app(tmp_path, changed(QUICK, bell=True, hook_url=""))
    rung: list[str] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append("bell"))
    (tmp_path / "alerts-silent-until").write_text(f"{NOW + 60:.0f}\n")
    async with app.run_test(size=(160, 45)) as pilot:
        await settled(app, pilot)
        assert rung == []
        assert "ALERT 1 silent" in text_of(app)
        monkeypatch.setattr(time, "time", lambda: NOW)
        app.alarms.be_silent("0")
        await settled(app, pilot)
        assert "silent" not in text_of(app).splitlines()[0]
        for wrong in ("soon", "-1", "30h0", "200h"):
            app.alarms.be_silent(wrong)
        assert (tmp_path / "alerts-silent-until").read_text() == "0\n"
        app.alarms.be_silent("2h")
        assert (tmp_path / "alerts-silent-until").read_text() == f"{NOW + 7200:.0f}\n"
        app.alarms.ask_silence()
        await pilot.pause()
        assert "Silence alerts" in text_of(app)


def test_notices_hold_no_sequence_of_a_name() -> None:
    plain_text = notice("osc777", "infer-01: model a;b\x1b]0;evil\x07 waits", {})
    assert plain_text.count("\x1b") == 1
    assert plain_text.count("\x07") == 1
    assert plain_text.count(";") == 3
    assert notice("osc9", "x", {"TMUX": "/tmp/x"}) == "\x1bPtmux;\x1b\x1b]9;x\x07\x1b\\"
