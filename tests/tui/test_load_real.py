"""Loads of the console as they are really sent: planned, measured, kept, refused, ended however the console ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

import console.tui.widgets.dialog as dialog_module
from console import compose
from console.actions.box import BoxSpec, address
from console.config import Safety, Settings
from console.core.plan import Refused, WrongInput
from console.loadgen import announce, record
from console.loadgen.measure import Plan
from console.loadgen.order import Progress
from console.loadgen.record import Live, Run
from console.tui.app import ConsoleApp
from console.tui.late_loads import LateLoads
from console.tui.panes.load_form import DEFAULTS
from console.tui.screens.load import LoadScreen
from console.tui.screens.plan import PlanDialog
from console.tui.state import State
from console.tui.theme import folders, load
from tests.actions.own_box import settings
from tests.fakes.boxes import drawn_box
from tests.fakes.session import FakeSession
from tests.lab.fixtures import Lab
from tests.lab.own import own_triton
from tests.tui.stage import settled, shown, text_of
from tests.tui.terminal_emulator import PATIENCE, ROOT, PtyConsole, console

SHORT: Mapping[str, str] = {**DEFAULTS, "model": "ranking", "mode": "open loop, Poisson", "rate": "60",
                            "duration": "1.2s", "warmup": "0.2s", "goal": "5000"}  # fmt: skip
CONFIG = """name: "rank" backend: "python" max_batch_size: 4
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
parameters [ { key: "answer" value { string_value: "score" } }, { key: "base_us" value { string_value: "2000" } } ]
"""


@pytest.fixture(scope="module")
def spec() -> Iterator[BoxSpec]:
    """A simulated box with a server that answers."""
    with compose.session(Settings(), demo="healthy", seed=0) as session:
        yield session.spec


def doors_of(spec: BoxSpec, state: Path) -> LateLoads:
    session = FakeSession()
    session.spec = spec
    return LateLoads(session, state)


def measured(doors: LateLoads, plan: Plan, begun: Callable[[Callable[[], None]], None] = lambda stop: None) -> Run:
    told: list[tuple[Progress, Sequence[Live]]] = []
    run = doors.measure(plan, lambda progress, live: told.append((progress, live)), begun)
    assert run.ended == "stopped" or told
    return run


def test_a_load_is_planned_sent_kept_and_compared(spec: BoxSpec, tmp_path: Path) -> None:
    doors = doors_of(spec, tmp_path)
    assert doors.runs() == ((), ())
    plan = doors.plan({**SHORT, "inputs": "random"})
    assert "random, 32 different" in plan.inputs.text
    one = measured(doors, plan)
    two = measured(doors, doors.plan(SHORT))
    assert [(run.id, run.ended, run.met) for run in (one, two)] == [(1, "duration", True), (2, "duration", True)]
    assert one.client.done > 20
    assert one.server is not None
    assert one.server.requests >= one.client.done
    assert [run.id for run in doors.runs()[0]] == [1, 2]
    assert record.load_all(tmp_path / "simulated") == list(doors.runs()[0])
    assert doors.told(one).counts
    assert sum(doors.shares(one, (1.0, 10.0, 100.0))) == pytest.approx(1.0)
    assert doors.compare(one, two).rows[0].first == one.client.throughput


def test_stopped_before_it_begins_nothing_is_kept(spec: BoxSpec, tmp_path: Path) -> None:
    doors = doors_of(spec, tmp_path)
    run = measured(doors, doors.plan({**SHORT, "duration": "30s"}), lambda stop: stop())
    assert (run.id, run.ended, run.client.sent) == (0, "stopped", 0)
    assert doors.runs() == ((), ())


def test_stopped_under_way_it_is_kept_as_that(spec: BoxSpec, tmp_path: Path) -> None:
    doors = doors_of(spec, tmp_path)
    stops: list[Callable[[], None]] = []

    def tell(progress: Progress, live: Sequence[Live]) -> None:
        if progress.at > 0:
            stops[0]()

    run = doors.measure(doors.plan({**SHORT, "duration": "60s"}), tell, stops.append)
    assert run.ended == "stopped"
    assert 0 < run.client.sent < 600
    assert [kept.id for kept in doors.runs()[0]] == [1]


def test_read_only_is_refused_where_the_sender_would_be_started(spec: BoxSpec, tmp_path: Path) -> None:
    safe = replace(spec, settings=replace(spec.settings, safety=Safety(read_only=True)))
    doors = doors_of(safe, tmp_path)
    plan = doors.plan(SHORT)
    with pytest.raises(Refused, match="read-only"):
        doors.measure(plan, lambda progress, live: None, lambda stop: None)
    assert doors.runs() == ((), ())
    assert announce.going_on() == tuple(one for one in announce.going_on() if one.pid != os.getpid())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": "nosuch"}, "nosuch is not served here"),
        ({"version": "77"}, "ranking version 77 is not served here"),
        ({"shapes": "features:5"}, "--shape features:5 does not fit"),
        ({"batch": "x"}, "--batch must be a whole number, not 'x'"),
        ({"goal": "soon"}, "--slo-p99-ms must be a number"),
        ({"max_errors": "¹"}, "--max-errors must be a number"),
        ({"inputs": "file", "data": "/nonexistent.json"}, "/nonexistent.json cannot be read"),
        ({"inputs": "kept question"}, "no question is kept for ranking"),
        ({"live_limits": "-1"}, "--max-live-ms must be"),
        ({"mix": "ranking=0.5"}, "--mix names ranking twice"),
        ({"duration": "1e9h"}, "--duration must be more than 0"),
    ],
)
def test_what_cannot_be_is_one_sentence(values: Mapping[str, str], said: str, spec: BoxSpec, tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=said):
        doors_of(spec, tmp_path).plan({**SHORT, **values})


def test_files_are_their_owners_alone(spec: BoxSpec, tmp_path: Path) -> None:
    stem = doors_of(spec, tmp_path).export("runs-1", {"csv": "a,b\r\n", "md": "| a |\n"})
    for ending, text in (("csv", b"a,b\r\n"), ("md", b"| a |\n")):
        file = Path(f"{stem}.{ending}")
        assert file.read_bytes() == text
        assert file.stat().st_mode & 0o777 == 0o600
    assert Path(stem).parent.stat().st_mode & 0o777 == 0o700


def test_a_console_that_never_loads_imports_no_record_of_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from console.actions.box import BoxSpec; "
        "from console.config import Settings; from console.core.session import Session; "
        "from console.tui.late_loads import LateLoads; import console.tui.app, console.tui.screens.load; "
        f"session = Session((), spec=BoxSpec(Settings())); doors = LateLoads(session, Path({str(tmp_path)!r})); "
        "doors.runs(); doors.going_on(); "
        "print([one for one in sys.modules if one.startswith(('hdrh', 'numpy', 'console.loadgen.record'))])"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# ----------------------------------------------------------------------------------------------------- in the console


async def _until(app: ConsoleApp, pilot: Pilot[None], what: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, text_of(app)
        await asyncio.sleep(0.02)
        await settled(app, pilot)


async def _run_one(spec: BoxSpec, state: Path, values: Mapping[str, str], box: Any) -> tuple[Run, ConsoleApp]:
    """Keys and the plan's Yes; then its end."""
    session = FakeSession(box)
    session.spec = spec
    app = ConsoleApp(session, load(folders()), State(state), doors=LateLoads(session, state))
    app.loads.why_off = lambda: None if app.loads.current is None else "it runs"  # type: ignore[method-assign]
    async with app.run_test(size=(160, 45)) as pilot:
        await settled(app, pilot)
        await pilot.press("4")
        screen = app.box
        assert isinstance(screen, LoadScreen)
        screen.form.form.values.update(values)
        screen.model = values["model"]
        await pilot.press("A")
        await _until(app, pilot, lambda: isinstance(app.screen, PlanDialog) and not app.screen.planning)
        assert isinstance(app.screen, PlanDialog)
        assert app.screen.plan is not None, app.screen.error
        await pilot.press("right", "enter")
        await _until(app, pilot, lambda: app.loads.current is not None and app.loads.current.last is not None)
        assert "LOAD 1 " in text_of(app).splitlines()[0]
        assert "ctrl+x" in text_of(app).splitlines()[0]
        await _until(app, pilot, lambda: app.loads.current is None and screen.distribution.shape is not None)
        assert "Run 1   ended" in text_of(app)
        assert "█" in text_of(app)
        kinds = [one.kind for one in shown(app).events if one.kind in ("load.begin", "load.end")]
        assert sorted(kinds) == ["load.begin", "load.end"]
    return app.loads.runs[-1], app


async def test_from_the_keys_to_the_record(spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog_module, "DEAF_FOR", 0.0)
    values = {name: text for name, text in SHORT.items() if text != DEFAULTS[name]}
    run, _ = await _run_one(spec, tmp_path, {**values, "duration": "3s"}, drawn_box().snapshot)
    assert (run.id, run.model, run.ended, run.met) == (1, "ranking", "duration", True)
    assert run.client.done > 100


@pytest.mark.lab
async def test_on_a_real_server(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog_module, "DEAF_FOR", 0.0)
    with own_triton(tmp_path / "models", [("rank", CONFIG, (1, 2))]) as own:
        values = {"model": "rank", "mode": "open loop, Poisson", "rate": "50", "duration": "3s", "goal": "2000"}
        run, _ = await _run_one(BoxSpec(settings(own)), tmp_path / "state", values, None)
        assert (run.model, run.ended, run.client.errors) == ("rank", "duration", {})
        assert run.met
        assert run.server is not None
        assert run.server.requests == run.client.done
        assert run.config["max batch"] == "4"


# ------------------------------------------------------------------------------------------------- however it may end


def senders(pid: int) -> list[int]:
    """Of that console."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((one / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (one / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid and b"console.loadgen.sender" in words:
            found.append(int(one.name))
    return found


def gone(pid: int) -> bool:
    """Whether that process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def _kill(one: PtyConsole) -> None:
    os.kill(one.process.pid, signal.SIGKILL)


def _terminate(one: PtyConsole) -> None:
    os.kill(one.process.pid, signal.SIGTERM)


def _quit(one: PtyConsole) -> None:
    one.send(b"1q")
    one.until(b"Stop it and quit")
    one.read(0.7)  # a dialog is deaf when it appears
    one.send(b"\x1b[C")
    one.read(0.3)
    one.send(b"\r")


@pytest.mark.parametrize(
    ("how", "kept"),
    [(_kill, False), (_terminate, True), (PtyConsole.hang_up, True), (_quit, True)],
    ids=["killed", "terminated", "terminal lost", "quit"],
)
def test_the_sender_ends_with_the_console(
    how: Callable[[PtyConsole], None], kept: bool, spec: BoxSpec, tmp_path: Path
) -> None:
    port = str(address(spec, tmp_path).http_port)
    with console(tmp_path, (120, 40), {"CHILD_LOADS": port}) as one:
        one.until(b"SERVING 3 of 4")
        one.send(b"4")
        one.until(b"closed loop, 1 at once for 30 s")
        one.send(b"A")
        one.until(b"Start")
        one.read(0.7)
        one.send(b"\x1b[C")
        one.read(0.3)
        one.send(b"\r")
        one.until(b"of 0:30")
        (sender,) = senders(one.process.pid)
        how(one)
        one.end()
        end = time.monotonic() + PATIENCE
        while not gone(sender):
            assert time.monotonic() < end, "the sender goes on"
            time.sleep(0.05)
    runs = record.load_all(tmp_path / "gpuconsole" / "simulated")
    assert [(run.id, run.ended) for run in runs] == ([(1, "stopped")] if kept else [])
