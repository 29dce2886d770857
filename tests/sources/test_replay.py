"""The player: any moment of a recording with the history that the console had then, over gaps, boots and damage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.clients.recorder import Recorder
from console.clients.recording import UnreadableError, files
from console.core.history import History
from console.core.model import Event, Snapshot
from console.core.recorded import micros, rounded
from console.core.store import samples
from console.sources.replay import Player
from tests.core.test_recorded import value
from tests.fakes.past import Second, seconds

LENGTH = 1500


def record(folder: Path, told: list[Second]) -> None:
    """What a recorder that is on makes of it."""
    recorder = Recorder(folder)
    recorder.switch(True)
    for snapshot, lines in told:
        recorder.put(snapshot, lines)
        while recorder._queue.qsize() > 100:
            time.sleep(0.002)
    recorder.close(60)


@pytest.fixture(scope="module")
def whole() -> list[Second]:
    return list(seconds(LENGTH))


@pytest.fixture(scope="module")
def folder(whole: list[Second], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings")
    record(made, whole)
    return made


@pytest.fixture
def player(folder: Path) -> Iterator[Player]:
    made = Player(folder)
    yield made
    made.close()


def micro(wall: float) -> float:
    return (micros(wall) or 0) / 1e6


def test_it_begins_at_the_beginning_and_knows_the_end(player: Player, whole: list[Second]) -> None:
    assert player.first == micro(whole[0][0].wall)
    assert player.last == micro(whole[-1][0].wall)
    assert player.snapshot.seq == whole[0][0].seq
    assert player.gap is None


@pytest.mark.parametrize("number", [0, 1, 59, 60, 61, 700, 1234, LENGTH - 1])
def test_a_jump_shows_what_the_console_showed(player: Player, whole: list[Second], number: int) -> None:
    wanted = whole[number][0]
    player.seek(wanted.wall + 0.01)
    assert player.snapshot.seq == wanted.seq
    assert player.snapshot.stats == rounded(wanted.stats)
    assert player.snapshot.models == wanted.models
    assert player.snapshot.events == wanted.events
    assert player.snapshot.verdicts == wanted.verdicts
    assert player.mono == pytest.approx(wanted.mono, abs=0.02)


def history_of(told: list[Second]) -> History:
    """Of the console that was there."""
    history, old = History(), Snapshot()
    for snapshot, _ in told:
        for mono, key, sample in samples(old, snapshot):
            history.record(micro(mono), {key: sample})
        old = snapshot
    return history


@pytest.mark.parametrize("number", [500, 1400])
def test_after_a_jump_the_charts_are_those_of_the_console(player: Player, whole: list[Second], number: int) -> None:
    """To the last ten minutes sample by sample; before them the highest of each ten seconds, in five digits."""
    wanted = history_of(whole[: number + 1])
    player.seek(whole[number][0].wall + 0.001)
    now = player.mono
    assert set(player.history.keys()) == set(wanted.keys())
    for key in tuple(wanted.keys()):
        for step, width, digits in ((1, 590, 1e-6), (10, 120, 1e-4)):
            columns = player.history.columns(key, now, step, width), wanted.columns(key, now, step, width)
            for found, hoped in zip(*columns, strict=True):
                assert (found is None) == (hoped is None), key
                assert found == pytest.approx(hoped, rel=digits), key


def test_playing_on_is_the_same_as_jumping_there(folder: Path, whole: list[Second]) -> None:
    played, jumped = Player(folder), Player(folder)
    played.seek(whole[700][0].wall)
    for number in range(701, 760):
        played.play(whole[number][0].wall + 0.001)
    jumped.seek(whole[759][0].wall + 0.001)
    assert played.snapshot == jumped.snapshot
    assert played.history.keys() == jumped.history.keys()
    assert list(played.log)[-5:] == list(jumped.log)[-5:]
    played.close()
    jumped.close()


def test_steps_go_from_moment_to_moment_and_back(player: Player, whole: list[Second]) -> None:
    player.seek(whole[119][0].wall + 0.3)
    assert player.step(forward=True)
    assert player.snapshot.seq == whole[120][0].seq
    assert player.wall == player.snapshot.wall
    for number in (119, 118):
        assert player.step(forward=False)
        assert player.snapshot.seq == whole[number][0].seq
    player.seek(player.last)
    assert not player.step(forward=True)
    player.seek(player.first)
    assert not player.step(forward=False)


def test_jumps_beyond_the_ends_go_to_them(player: Player, whole: list[Second]) -> None:
    player.seek(0.0)
    assert player.snapshot.seq == whole[0][0].seq
    player.seek(1e12)
    assert player.snapshot.seq == whole[-1][0].seq
    assert player.wall == player.last
    player.play(1e12)
    assert player.wall == player.last


def test_events_are_found_before_they_are_played(player: Player, whole: list[Second]) -> None:
    marks = [event for event in whole[-1][0].events if event.marks_chart and event.wall > player.first + 1]
    here = player.first + 1
    for wanted in marks[:20]:
        found = player.event_after(here)
        assert found is not None
        assert found.wall == wanted.wall
        here = found.wall
    assert player.event_after(player.last) is None
    before = player.event_before(marks[5].wall)
    assert before is not None
    assert before.wall == marks[4].wall
    assert player.event_before(player.first) is None


def test_a_gap_is_said_to_be_one_and_time_goes_on_in_it(tmp_path: Path, whole: list[Second]) -> None:
    record(tmp_path, [*whole[:100], *whole[180:260]])
    player = Player(tmp_path)
    player.seek(whole[99][0].wall + 30)
    assert player.snapshot.seq == whole[99][0].seq
    assert player.gap is not None
    assert player.gap.begin == micro(whole[99][0].wall)
    assert player.gap.end == micro(whole[180][0].wall)
    assert player.mono == pytest.approx(whole[99][0].mono + 30, abs=0.01), "ages grow"
    assert player.snapshot.gpu.is_old(player.mono)
    player.play(whole[180][0].wall + 1)
    assert player.gap is None
    player.close()


def later(told: list[Second], wall: float, mono: float) -> list[Second]:
    """The same on another day and after another boot."""
    made = []
    for snapshot, lines in told:
        parts = {
            name: replace(one, wall=one.wall + wall, mono=one.mono + mono)
            for name in ("gpu", "host", "stats", "index", "metrics")
            if (one := getattr(snapshot, name)).mono is not None
        }
        made.append((replace(snapshot, wall=snapshot.wall + wall, mono=snapshot.mono + mono, **parts), lines))
    return made


def test_after_a_boot_the_charts_begin_anew(tmp_path: Path, whole: list[Second]) -> None:
    record(tmp_path, whole[:200])
    record(tmp_path, later(whole[:200], 86_400.0, -99_000.0))
    player = Player(tmp_path)
    player.seek(whole[150][0].wall + 86_400)
    oldest = min(
        at for at, value in enumerate(player.history.columns("host.cpu_pct", player.mono, 10, 360)) if value is not None
    )
    assert 360 - oldest == pytest.approx(15, abs=2)
    player.seek(whole[199][0].wall)
    player.play(whole[199][0].wall + 86_400)
    assert player.snapshot.mono < whole[0][0].mono
    assert len([one for one in player.history.columns("host.cpu_pct", player.mono, 10, 360) if one is not None]) <= 22
    player.close()


def test_a_damaged_minute_is_passed_over(tmp_path: Path, whole: list[Second]) -> None:
    record(tmp_path, whole[:300])
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    player = Player(tmp_path)
    frame = player.minutes[2].frame
    player.close()
    for at in range(frame.begin + 20, frame.begin + 90):
        data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    player = Player(tmp_path)
    player.seek(whole[290][0].wall)
    assert player.snapshot.seq == whole[290][0].seq
    player.seek(player.minutes[2].wall + 10)
    assert player.gap is not None
    assert player.snapshot.wall < player.minutes[2].wall
    assert player.snapshot.events == whole[player.snapshot.seq - 1][0].events, "all that was known then"
    assert player.faults
    player.close()


def test_cut_off_anywhere_it_opens(tmp_path: Path, whole: list[Second]) -> None:
    record(tmp_path, whole[:130])
    (path,) = files(tmp_path)
    data = path.read_bytes()
    for cut in range(len(data), len(data) // 3, -997):
        path.write_bytes(data[:cut])
        player = Player(path)
        player.seek(player.last)
        assert player.snapshot.seq > 0
        player.close()


def test_what_holds_no_line_is_said_to_hold_none(tmp_path: Path, whole: list[Second]) -> None:
    record(tmp_path, whole[:3])
    (path,) = files(tmp_path)
    player = Player(path)
    begin = player.minutes[0].frame.begin
    player.close()
    path.write_bytes(path.read_bytes()[: begin + 3])
    with pytest.raises(UnreadableError, match="no line that can be read"):
        Player(path)


def test_events_in_the_future_of_a_file_are_not_shown_early(player: Player) -> None:
    player.seek(player.first + 60)
    assert all(isinstance(event, Event) and event.wall <= player.wall + 1 for event in player.snapshot.events[-3:])


def test_a_recording_of_schema_1_opens_in_every_later_version(whole: list[Second]) -> None:
    """The file was written when the schema was new. Parts that got another form since may say so; the rest is read."""
    player = Player(Path(__file__).parents[1] / "data" / "recording-schema-1.jsonl.zst")
    player.seek(player.last)
    assert player.snapshot.seq == 12
    assert player.snapshot.serving.word == "SERVING"
    assert [flow.key.name for flow in value(player.snapshot.stats).flows] == ["ranking", "recall", "idle"]
    assert value(player.snapshot.gpu).gpus[0].name == "Tesla T4"
    assert player.faults == 0
    player.close()
