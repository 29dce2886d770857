"""Recorded lines give back the snapshots, wherever a reader begins."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from console.core.encode import to_json
from console.core.model import PART_FIELDS, Failure, GpuBox, HostState, Reading, Snapshot, Window
from console.core.recorded import (
    FOREIGN,
    LISTS,
    MAX_LOG_LINES,
    SCHEMA,
    DamagedError,
    Moment,
    Reader,
    Writer,
    micros,
    rounded,
)
from console.core.recorded_stats import WARM_UP, WINDOWS
from console.core.store import Store, samples
from tests.fakes import boxes
from tests.fakes.past import SECRET, seconds

DERIVED = ("models", "serving", "traffic")


class Tape:
    """Lines with the fixed ones that they name."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.fixed: dict[str, bytes] = {}
        self._writer = Writer()

    def write(self, snapshot: Snapshot, lines: Any = (), *, key: bool = False) -> None:
        """One line; the first tells all."""
        written = self._writer.write(snapshot, lines, key=key or not self.lines)
        self.lines.append(written.line)
        self.fixed |= {one.id: one.line for one in written.fixed}

    def read(self, first: int = 0) -> list[Moment]:
        """All from there on, by a reader that knows nothing before."""
        reader = Reader(self.fixed.get)
        return [reader.read(line) for line in self.lines[first:]]


def taped(count: int, seed: int = 1, every: int = 60) -> tuple[list[Snapshot], Tape]:
    """`count` seconds, a first line each minute."""
    tape, kept = Tape(), []
    for number, (snapshot, lines) in enumerate(seconds(count, seed)):
        tape.write(snapshot, lines, key=number % every == 0)
        kept.append(snapshot)
    return kept, tape


def value(reading: Reading[Any]) -> Any:
    """What was read."""
    return reading.value


def micro(seconds_: float | None) -> float | None:
    """Rounded to the microsecond."""
    number = micros(seconds_)
    return None if number is None else number / 1e6


def assert_same(wanted: Snapshot, found: Snapshot) -> None:
    """Equal but for times, which come back in whole microseconds."""
    for part, field in PART_FIELDS.items():
        assert getattr(found, field) == rounded(getattr(wanted, field)), part
    for name in (*LISTS, "models", "traffic"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.serving == replace(wanted.serving, since_mono=micro(wanted.serving.since_mono))
    assert (found.seq, found.mono, found.wall) == (wanted.seq, micro(wanted.mono), micro(wanted.wall))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_written_comes_back(seed: int) -> None:
    kept, tape = taped(420, seed)
    for wanted, moment in zip(kept, tape.read(), strict=True):
        assert_same(wanted, moment.snapshot)


def test_a_reader_that_begins_in_the_middle_knows_all_once_the_windows_are_read() -> None:
    kept, tape = taped(500)
    moments = tape.read(first=120)
    wanted = kept[120:]
    assert moments[0].snapshot.gpu == rounded(wanted[0].gpu)
    assert moments[0].snapshot.events == wanted[0].events
    warm = round(WARM_UP) + 5
    for one, moment in zip(wanted[warm:], moments[warm:], strict=True):
        assert_same(one, moment.snapshot)


def test_a_window_that_begins_before_what_was_read_is_unknown_and_never_wrong() -> None:
    kept, tape = taped(240)
    for wanted, moment in zip(kept[120:], tape.read(first=120), strict=True):
        for flow, found in zip(value(wanted.stats).flows, value(moment.snapshot.stats).flows, strict=True):
            assert found.stats == flow.stats
            for name in WINDOWS:
                assert getattr(found, name) in (None, getattr(flow, name))


MAKERS = [value for name, value in vars(boxes).items() if name.endswith("_box") and name != "many_models_box"]


@pytest.mark.parametrize("make", MAKERS)
def test_every_box_comes_back(make: Any) -> None:
    """Of bytes that are no text a question mark comes back, as in all our JSON."""
    snapshot = make().snapshot
    tape = Tape()
    tape.write(snapshot)
    tape.write(replace(snapshot, seq=snapshot.seq + 1, mono=snapshot.mono + 1, wall=snapshot.wall + 1))
    for moment in tape.read():
        plain = to_json if make is boxes.hostile_box else lambda value: value
        assert plain(moment.snapshot.models) == plain(snapshot.models)
        for part in PART_FIELDS:
            assert plain(moment.snapshot.reading(part)) == plain(rounded(snapshot.reading(part)))


def test_from_any_box_to_any_other() -> None:
    rng, makers = random.Random(4), [make for make in MAKERS if make is not boxes.hostile_box]
    shown = [rng.choice(makers)().snapshot for _ in range(60)]
    tape = Tape()
    kept = [
        replace(one, seq=number, mono=one.mono + number, wall=one.wall + number) for number, one in enumerate(shown)
    ]
    for number, one in enumerate(kept):
        tape.write(one, key=number % 7 == 0)
    for wanted, moment in zip(kept, tape.read(), strict=True):
        assert_same(wanted, moment.snapshot)


def test_a_window_that_no_two_polls_give_is_written_as_it_is() -> None:
    (snapshot, _), *_ = seconds(2)
    flow = value(snapshot.stats).flows[0]
    odd = Window(10.0, 1, 2, 3, 4, 5, 0.1, 0.2, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.5, 0.25, (), True, 7)
    stats = replace(value(snapshot.stats), flows=(replace(flow, w10=odd),))
    changed = replace(snapshot, stats=replace(snapshot.stats, value=stats))
    tape = Tape()
    tape.write(changed)
    assert tape.read()[0].snapshot.stats.value == stats


def test_rows_that_derive_would_not_make_are_written_too() -> None:
    *_, (snapshot, _) = seconds(3)
    changed = replace(snapshot, models=tuple(replace(row, busy=0.123, reason="odd") for row in snapshot.models))
    tape = Tape()
    tape.write(changed)
    assert tape.read()[0].snapshot.models == changed.models


def test_history_of_a_replay_is_that_of_the_console() -> None:
    """The samples that follow from the snapshots are those that the Store recorded."""
    store = Store()
    (first, _), (second, _) = seconds(2)
    for part in PART_FIELDS:
        store.apply(first.reading(part))
    for part in PART_FIELDS:
        if second.reading(part) is not first.reading(part):
            store.apply(second.reading(part))
    store.snapshot(second.wall, second.mono)
    for mono, key, value in samples(first, second):
        series = store.history.series(key)
        assert series is not None, key
        assert (series.last, series.last_mono) == (value, mono), key


def test_the_first_line_of_a_minute_has_the_peaks_of_the_one_before() -> None:
    kept, tape = taped(121)
    moments = tape.read()
    assert moments[1].past is None
    past = moments[60].past
    assert past is not None
    temps = past["gpu.0.temp_c"]
    assert [at for at, _ in temps] == sorted(at for at, _ in temps)
    for at, peak in temps:
        seen = [value(one.gpu).gpus[0].temp_c for one in kept[:61] if at - 5 <= (one.gpu.mono or 0) < at + 5]
        assert peak == max(seen)


def test_log_lines_come_back_less_their_secrets_and_no_more_than_fit() -> None:
    kept = list(seconds(30))
    tape = Tape()
    for snapshot, lines in kept:
        tape.write(snapshot, lines)
    found = [line for moment in tape.read() for line in moment.lines]
    wanted = [line for _, lines in kept for line in lines]
    assert [line.wall for line in found] == [micro(line.wall) for line in wanted]
    assert [line.text for line in found if SECRET not in line.text] == [
        line.text for line in wanted if SECRET not in line.text
    ]
    many = [replace(wanted[0], text=f"{number} {SECRET}") for number in range(MAX_LOG_LINES + 7)]
    tape = Tape()
    tape.write(kept[0][0], many)
    moment = tape.read()[0]
    assert (len(moment.lines), moment.lines_left_out) == (MAX_LOG_LINES, 7)
    assert b"hunter2" not in tape.lines[0]
    assert moment.lines[-1].text.startswith(f"{MAX_LOG_LINES + 6} ")


def test_an_older_form_of_a_part_is_read_by_its_fields() -> None:
    """What this version does not know is passed over; what the older one did not have gets its default."""
    (snapshot, _), *_ = seconds(1)
    tape = Tape()
    tape.write(snapshot)
    for id_, line in tape.fixed.items():
        told = msgspec.json.decode(line)
        if isinstance(told["value"], dict) and "hostname" in told["value"]:
            del told["value"]["kernel"]
            told["value"]["moon"] = 1
            tape.fixed[id_] = msgspec.json.encode(told)
    host = tape.read()[0].snapshot.host.value
    assert host == replace(value(rounded(snapshot.host)), kernel="")


def test_a_part_whose_form_became_another_says_so_and_the_others_are_read() -> None:
    kept, tape = taped(5)
    for id_, line in tape.fixed.items():
        told = msgspec.json.decode(line)
        if isinstance(told["value"], dict) and "hostname" in told["value"]:
            told["value"]["swap_used"] = "much"
            tape.fixed[id_] = msgspec.json.encode(told)
    for wanted, moment in zip(kept, tape.read(), strict=True):
        host = moment.snapshot.host
        assert host.value is None
        assert host.error == FOREIGN
        assert moment.snapshot.gpu == rounded(wanted.gpu)
        assert moment.snapshot.models == wanted.models


def test_a_fixed_line_that_is_lost_is_said() -> None:
    (snapshot, _), *_ = seconds(1)
    tape = Tape()
    tape.write(snapshot)
    tape.fixed.clear()
    with pytest.raises(DamagedError, match="is lost"):
        tape.read()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b"7",
        b'{"t":[1,2],"r":{}}',
        b'{"key":1,"t":[1],"q":1,"r":{},"f":{}}',
        b'{"key":1,"t":[1,2],"q":1,"r":{"moon":{}},"f":{}}',
        b'{"key":1,"t":[1,2],"q":1,"r":{"gpu":[1,2,3]},"f":{}}',
        b'{"key":1,"t":[1,2],"q":1,"r":{"gpu":{"i":1,"n":1,"b":{"gpus":{"0":4}}}},"f":{}}',
        b'{"key":1,"t":[1,2],"q":1,"r":{"triton.stats":{"i":1,"n":1,"b":{"n":1,"k":[["a","1",""]],"f":[{"w":[1]}]}}},"f":{}}',
        b'{"key":1,"t":[1,2],"q":1,"r":{"triton.stats":{"i":1,"n":1,"b":{"n":1,"k":[["a","1",""]],'
        b'"f":[{"c":[1],"b":[[1],"x",1],"w":[null,null,null,null,null]}]}}},"f":{}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_line_is_damaged_and_no_fault_of_ours(line: bytes) -> None:
    with pytest.raises(DamagedError):
        Reader(lambda id_: None).read(line)


def test_after_a_damaged_line_only_a_first_one_goes_on() -> None:
    kept, tape = taped(70)
    reader = Reader(tape.fixed.get)
    for line in tape.lines[:10]:
        reader.read(line)
    with pytest.raises(DamagedError):
        reader.read(tape.lines[10][:-9])
    with pytest.raises(DamagedError, match="is not there"):
        reader.read(tape.lines[11])
    assert_gpu = reader.read(tape.lines[60]).snapshot.gpu
    assert assert_gpu == rounded(kept[60].gpu)
    assert msgspec.json.decode(tape.lines[60])["key"] == SCHEMA


def test_figures_of_noisy_parts_have_seven_digits_and_times_of_day_all_of_theirs() -> None:
    host = HostState(hostname="a", boot_wall=1_783_145_071.123456, cpu_pct=23.347483323226196, load1=0.25)
    found = rounded(Reading("host", 1.0, host)).value
    assert found == replace(host, cpu_pct=23.34748)
    assert rounded(Reading("gpu", 1.0, GpuBox("550"))).value == GpuBox("550")


def test_times_are_rounded_to_the_microsecond_and_nothing_else_is() -> None:
    reading: Reading[Any] = Reading(
        "gpu", 1.0, None, 1e9 + 0.123_456_7, 5.000_000_4, Failure("bug", "x"), 1.5, None, 0.1
    )
    assert rounded(reading) == replace(reading, wall=1_000_000_000.123457, mono=5.0)
