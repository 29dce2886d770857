"""Snapshots as lines of JSON, and back (pure): what a recording holds, and what a replay shows.

A recording is made of minutes. The first line of a minute tells all that was known (`key`), each further one what
changed since the line before it. What is large and seldom changes stands in lines of its own (`fixed`), which the first
lines of minutes name by their id and complete by a patch. So a reader may begin at any minute whose fixed lines it has.

    {"key": 1, "t": [mono, wall], "q": seq, "r": {part: reading}, "f": {name: [id, patch]}, "p": past, ...}
    {"t": [mono, wall], "r": {part: reading}, "events": patch, "verdicts": patch, "gaps": patch, "l": [log line] ...}
    {"fixed": id, "value": tree}

* Times are whole microseconds; in other lines than the first they are the rise since the line (the reading) before, and
  wall times the rise of wall less monotonic time. What comes back is rounded to the microsecond.
* Rates, shares and latencies of the parts in SHORT have seven digits, as many as History holds: what follows is the
  noise of the clocks that they are divided by, and a tenth of a recording. Nothing else is rounded.
* A reading is [mono, wall, duration] and what changed in its value, where it is the next good one; else a dict.
* Values are patches (core/patch.py), Triton's statistics are in core/recorded_stats.py.
* Rows of models, the header's word and the traffic are not written: they are derived again by the code that derived
  them (core/derive.py). Where that gives something else, the difference is written.
* "p" holds the highest sample of each ten seconds of the minute before, of each series of History, in five digits: a
  reader that jumps has an hour of charts without reading that hour.

SCHEMA goes up when the meaning of what is there changes. Fields that later versions add have defaults, fields that they
drop are passed over, so a file of an older gpuconsole opens; a part whose form became another is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from console.core import derive
from console.core.encode import to_json
from console.core.finding import Report
from console.core.model import (
    PART_FIELDS,
    Event,
    Failure,
    Gaps,
    GpuBox,
    HostState,
    KernelLog,
    LogLine,
    ModelKey,
    ModelRow,
    PodmanState,
    Reading,
    Repository,
    Serving,
    Snapshot,
    Traffic,
    TritonConfigs,
    TritonIndex,
    TritonMetrics,
    TritonServer,
    Verdict,
)
from console.core.patch import SAME, difference, patched, written
from console.core.recorded_stats import StatsCodec
from console.core.secrets import mask_text
from console.core.store import samples

SCHEMA = 1
STATS = "triton.stats"
KINDS: Mapping[str, Any] = {
    "gpu": GpuBox,
    "triton.server": TritonServer,
    "triton.index": TritonIndex,
    "triton.metrics": TritonMetrics,
    "triton.config": TritonConfigs,
    "repository": Repository,
    "container": PodmanState,
    "host": HostState,
    "kernel_log": KernelLog,
    "checks": Report,
}
"""Part -> the type of its value."""
HISTORY_NEEDS = frozenset({"gpu", "host", "container", STATS, "triton.index", "triton.metrics", "triton.config"})
"""Parts that series of History come from, by the rows of models too."""
SHORT = frozenset({"host", "container", "triton.server"})
SHORT_BELOW = 1e6
"""Numbers beyond are times of day and bytes."""
LISTS: Mapping[str, Any] = {"events": tuple[Event, ...], "verdicts": tuple[Verdict, ...], "gaps": Gaps}
"""Fields of the Snapshot beside the parts that are written as patches."""
PAST_STEP, PAST_SLOTS = 10, 6
PATCH_LEAST, PATCH_SHARE = 400, 0.3
"""A fixed line is written anew when the patch to it has more bytes than this, and than this share of it."""
MAX_LOG_LINES = 200
"""Of the container's log a line of the recording holds at most so many, the newest; it says how many it left out."""
MAX_KNOWN = 64
"""Fixed lines that a reader keeps decoded."""


class DamagedError(Exception):
    """A line that cannot be read; the text says why."""


class Fixed(msgspec.Struct, frozen=True):
    """A line that others refer to."""

    id: str
    line: bytes


class Written(msgspec.Struct, frozen=True):
    """One line, and the fixed ones that it names."""

    line: bytes
    fixed: tuple[Fixed, ...] = ()


class Moment(msgspec.Struct, frozen=True):
    """What one line gave."""

    snapshot: Snapshot
    lines: tuple[LogLine, ...] = ()
    lines_left_out: int = 0
    past: Mapping[str, tuple[tuple[float, float], ...]] | None = None
    """Series -> (monotonic time, highest sample of ten seconds) of the minute before; None but in a first line."""


def micros(seconds: float | None) -> int | None:
    """Whole microseconds."""
    return None if seconds is None else round(seconds * 1e6)


def rounded(reading: Reading[Any]) -> Reading[Any]:
    """The reading as a recording gives it back: times in whole microseconds, figures of SHORT parts in seven digits."""
    times = {
        name: _seconds(micros(getattr(reading, name)))
        for name in ("wall", "mono", "error_mono", "error_wall", "duration")
    }
    value = reading.value
    if reading.part in SHORT and value is not None:
        value = msgspec.convert(_shortened(msgspec.to_builtins(value)), KINDS[reading.part])
    return msgspec.structs.replace(reading, value=value, **times)


def _shortened(tree: Any) -> Any:
    if isinstance(tree, float):
        return float(f"{tree:.7g}") if -SHORT_BELOW < tree < SHORT_BELOW else tree
    if isinstance(tree, dict):
        return {key: _shortened(value) for key, value in tree.items()}
    return [_shortened(value) for value in tree] if isinstance(tree, list | tuple) else tree


def _seconds(number: int | None) -> float | None:
    return None if number is None else number / 1e6


class _Clock:
    """Monotonic and wall time as the rise of one and of what lies between them."""

    __slots__ = ("between", "mono")

    def __init__(self) -> None:
        self.mono = 0
        self.between = 0

    def rise(self, mono: int, wall: int) -> tuple[int, int]:
        told = mono - self.mono, wall - mono - self.between
        self.mono, self.between = mono, wall - mono
        return told

    def risen(self, mono: int, between: int) -> tuple[float, float]:
        self.mono += mono
        self.between += between
        return self.mono / 1e6, (self.mono + self.between) / 1e6


class _Past:
    """The highest samples of each ten seconds of the present minute."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._peaks: dict[str, list[float | None]] = {}

    def add(self, mono: float, key: str, value: float) -> None:
        slot = int(mono // PAST_STEP)
        if self._first is None:
            self._first = slot
        at = slot - self._first
        if not 0 <= at < 2 * PAST_SLOTS or not isfinite(value):
            return
        peaks = self._peaks.setdefault(key, [])
        peaks += [None] * (at + 1 - len(peaks))
        old = peaks[at]
        if old is None or value > old:
            peaks[at] = value

    def take(self) -> Any:
        told = {key: [None if one is None else _five(one) for one in peaks] for key, peaks in self._peaks.items()}
        first, self._first, self._peaks = self._first, None, {}
        return None if first is None else [first, told]


def _five(value: float) -> float | int:
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short


def _read_past(told: Any) -> Mapping[str, tuple[tuple[float, float], ...]]:
    first, series = told
    return {
        key: tuple(
            ((first + at) * PAST_STEP + PAST_STEP / 2.0, float(value))
            for at, value in enumerate(peaks)
            if value is not None
        )
        for key, peaks in series.items()
    }


class Writer:
    """Snapshots -> lines. What did not change since the line before costs nothing but the look at it."""

    def __init__(self) -> None:
        self._trees: dict[str, Any] = {}
        self._readings: dict[str, Reading[Any]] = {}
        self._given: dict[str, Reading[Any]] = {}
        """Part -> the reading as it was given, to see that it is the same."""
        self._fields: dict[str, Any] = {}
        self._clock = _Clock()
        self._clocks: dict[str, _Clock] = {}
        self._seq = 0
        self._fixed: dict[str, tuple[str, Any, int]] = {}
        """Name -> id, tree and bytes of its newest fixed line."""
        self._lines: dict[str, Fixed] = {}
        """The fixed lines that the next first line may name, by id."""
        self._stats = StatsCodec()
        self._rows = derive.RowCache()
        self._at_load: dict[ModelKey, int] = {}
        self._derived: dict[str, Any] = {}
        self._past = _Past()
        self._last = Snapshot()

    def write(self, given: Snapshot, lines: Sequence[LogLine] = (), *, key: bool) -> Written:
        """One line; `key`: one that tells all. The first must be."""
        mono, wall = round(given.mono * 1e6), round(given.wall * 1e6)
        told: dict[str, Any] = {}
        if key:
            told["key"] = SCHEMA
            self._clock, self._clocks, self._seq = _Clock(), {}, 0
        told["t"] = self._clock.rise(mono, wall)
        if key or given.seq != self._seq + 1:
            told["q"] = given.seq - self._seq
        self._seq = given.seq
        fixed: dict[str, Any] = {}
        named: list[Fixed] = []
        readings = {part: self._reading(part, given, key, fixed, named) for part in PART_FIELDS}
        told["r"] = {part: one for part, one in readings.items() if one is not None}
        for name in LISTS:
            self._list(name, getattr(given, name), told, key, fixed, named)
        snapshot = self._rounded(given)
        self._derive(snapshot, told, key)
        self._remember(snapshot)
        if key:
            told["f"] = fixed
            past = self._past.take()
            if past is not None:
                told["p"] = past
        if lines:
            told["l"] = [_log_line(line) for line in lines[-MAX_LOG_LINES:]]
            if len(lines) > MAX_LOG_LINES:
                told["lo"] = len(lines) - MAX_LOG_LINES
        return Written(to_json(told), tuple(named))

    def _rounded(self, given: Snapshot) -> Snapshot:
        since = given.serving.since_mono
        serving = given.serving
        if since is not None:
            serving = msgspec.structs.replace(serving, since_mono=round(since * 1e6) / 1e6)
        parts = {PART_FIELDS[part]: reading for part, reading in self._readings.items()}
        times = {"mono": round(given.mono * 1e6) / 1e6, "wall": round(given.wall * 1e6) / 1e6}
        return msgspec.structs.replace(given, serving=serving, **times, **parts)

    # ------------------------------------------------------------------------------------------------------- readings

    def _reading(self, part: str, snapshot: Snapshot, key: bool, fixed: dict[str, Any], named: list[Fixed]) -> Any:
        given = snapshot.reading(part)
        old = self._readings.get(part)
        if self._given.get(part) is given and old is not None:
            if not key:
                return None
            new = old
        else:
            new = rounded(given)
        self._given[part], self._readings[part] = given, new
        if not (new.tried or key or (old is not None and old.tried)):
            return None
        body = self._body(part, old, new, key, fixed, named)
        if key or old is None or not _follows(old, new):
            told = _whole_reading(new)
            if new.mono is not None and new.wall is not None:
                self._clocks.setdefault(part, _Clock()).rise(round(new.mono * 1e6), round(new.wall * 1e6))
            return told if body is SAME else {**told, "b": body}
        assert new.mono is not None
        assert new.wall is not None
        rise = self._clocks[part].rise(round(new.mono * 1e6), round(new.wall * 1e6))
        told_short = [*rise, micros(new.duration)]
        return told_short if body is SAME else [*told_short, body]

    def _body(
        self,
        part: str,
        old: Reading[Any] | None,
        new: Reading[Any],
        key: bool,
        fixed: dict[str, Any],
        named: list[Fixed],
    ) -> Any:
        """What changed in the value; in a first line the fixed line that holds it, and what differs from that."""
        same = old is not None and old.value is new.value
        if part == STATS:
            if new.value is None:
                return SAME if key or old is None or old.value is None else 0
            if same and not key:
                return SAME
            return self._stats.write(new.value, new.mono or 0.0, whole=key)
        if same and not key:
            return SAME
        before = self._trees.get(part)
        tree = before if same else msgspec.to_builtins(new.value)
        self._trees[part] = tree
        if not key:
            return difference(before, tree)
        if tree is not None:
            fixed[part] = self._refer(part, tree, named)
        return SAME

    def _refer(self, name: str, tree: Any, named: list[Fixed]) -> Any:
        known = self._fixed.get(name)
        if known is not None:
            id_, base, size = known
            patch = difference(base, tree)
            if patch is SAME:
                named.append(self._lines[name])
                return [id_]
            if len(to_json(patch)) <= max(PATCH_LEAST, PATCH_SHARE * size):
                named.append(self._lines[name])
                return [id_, patch]
        value = to_json(written(tree))
        id_ = blake2b(value, digest_size=6).hexdigest()
        line = Fixed(id_, b'{"fixed":"%s","value":%s}' % (id_.encode(), value))
        self._fixed[name], self._lines[name] = (id_, tree, len(value)), line
        named.append(line)
        return [id_]

    # --------------------------------------------------------------------------------------------- what is beside them

    def _list(
        self, name: str, value: Any, told: dict[str, Any], key: bool, fixed: dict[str, Any], named: list[Fixed]
    ) -> None:
        same = name in self._fields and self._fields[name] is value
        if same and not key:
            return
        before = self._trees.get(name)
        tree = before if same else msgspec.to_builtins(value)
        self._fields[name], self._trees[name] = value, tree
        if key:
            fixed[name] = self._refer(name, tree, named)
            return
        patch = difference(before, tree)
        if patch is not SAME:
            told[name] = patch

    def _derive(self, snapshot: Snapshot, told: dict[str, Any], key: bool) -> None:
        at_load = {row.key: row.memory for row in snapshot.models if row.memory_origin == "seen at load"}
        if key or at_load != self._at_load:
            told["a"] = [[key_.name, key_.version, memory] for key_, memory in at_load.items()]
            self._at_load = {key_: memory for key_, memory in at_load.items() if memory is not None}
        for name, value in _derived(snapshot, self._rows, self._at_load, self._last, key).items():
            actual = getattr(snapshot, name)
            if value != actual:
                told[name] = difference(msgspec.to_builtins(value), msgspec.to_builtins(actual))

    def _remember(self, snapshot: Snapshot) -> None:
        for mono, key, value in samples(self._last, snapshot):
            self._past.add(mono, key, value)
        self._last = snapshot


def _derived(
    snapshot: Snapshot, rows: derive.RowCache, at_load: Mapping[ModelKey, int], before: Snapshot, key: bool
) -> dict[str, Any]:
    """What derive.py makes of the parts of a snapshot, as Store does."""
    models = rows.rows(snapshot, at_load)
    traffic = before.traffic
    if key or snapshot.stats is not before.stats:
        traffic = derive.traffic(models, snapshot.stats)
    return {"models": models, "traffic": traffic, "serving": derive.serving(snapshot, models, snapshot.mono)}


def _follows(old: Reading[Any], new: Reading[Any]) -> bool:
    """True for the next good reading after a good one, which is all but a few."""
    return (
        old.error is None
        and new.error is None
        and old.mono is not None
        and new.mono is not None
        and new.wall is not None
        and new.duration is not None
        and new.reads == old.reads + 1
        and new.interval == old.interval
        and new.error_mono is None
        and new.error_wall is None
        and new.value is not None
    )


def _whole_reading(reading: Reading[Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"i": reading.interval, "n": reading.reads}
    times = {"m": reading.mono, "w": reading.wall, "d": reading.duration, "em": reading.error_mono}
    for name, value in {**times, "ew": reading.error_wall}.items():
        if value is not None:
            told[name] = micros(value)
    if reading.error is not None:
        told["e"] = [reading.error.kind, reading.error.message, reading.error.hint]
    return told


def _log_line(line: LogLine) -> list[Any]:
    """Its text less secrets: what a server writes into its log nobody has looked at."""
    return [micros(line.wall), line.stream, mask_text(line.text), line.level, line.origin, line.truncated]


class Reader:
    """Lines -> Moments, in the order in which they were written; a first line begins anew."""

    def __init__(self, fixed: Callable[[str], bytes | None]) -> None:
        """`fixed` gives a fixed line by its id; None where the recording has lost it."""
        self._fixed = fixed
        self._trees: dict[str, Any] = {}
        self._known: dict[str, Any] = {}
        """Id of a fixed line -> its tree."""
        self._snapshot = Snapshot()
        self._clock = _Clock()
        self._clocks: dict[str, _Clock] = {}
        self._stats = StatsCodec()
        self._brief = False
        self._rows = derive.RowCache()
        self._at_load: dict[ModelKey, int] = {}
        self._begun = False

    def use(self, fixed: Callable[[str], bytes | None]) -> None:
        """Where fixed lines are from now on: what follows is in another file."""
        self._fixed = fixed

    def pass_by(self, on: bool) -> None:
        """Read the minutes that follow for their history alone (faster): events, checks and the long windows of
        statistics are left out. To be switched before a first line only."""
        self._brief = self._stats.brief = on

    def read(self, line: bytes) -> Moment:
        """What a line says. DamagedError for what cannot be understood; after that only a first line is read."""
        try:
            return self._read(msgspec.json.decode(line))
        except (
            ValueError,
            KeyError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            StopIteration,
            RecursionError,
        ) as error:  # fmt: skip  (msgspec's errors are ValueErrors)
            self._begun = False
            raise DamagedError(f"{type(error).__name__}: {error}") from error

    def _read(self, told: Any) -> Moment:
        key = "key" in told
        if not (key or self._begun):
            raise ValueError("what went before it is not there")
        if key:
            self._clock, self._clocks, self._trees = _Clock(), {}, {}
        mono, wall = self._clock.risen(*told["t"])
        old = self._snapshot
        seq = told["q"] if key else old.seq + told.get("q", 1)
        wanted = {name: one for name, one in told["f"].items() if self._wants(name)} if key else {}
        fixed = {name: self._tree_of(*one) for name, one in wanted.items()}
        parts = {part: one for part, one in told["r"].items() if self._wants(part)}
        readings = {part: self._reading(part, one, key, fixed) for part, one in parts.items()}
        fields: dict[str, Any] = {PART_FIELDS[part]: reading for part, reading in readings.items()}
        for name, kind in LISTS.items():
            if name in fixed:
                self._trees[name] = fixed[name]
            elif name in told and not self._brief:
                self._trees[name] = patched(self._trees.get(name), told[name])
            else:
                continue
            try:
                fields[name] = msgspec.convert(self._trees[name], kind)
            except msgspec.ValidationError:
                continue  # of another form in the gpuconsole that wrote it; the parts say what they can
        new = msgspec.structs.replace(Snapshot() if key else old, seq=seq, mono=mono, wall=wall, **fields)
        self._snapshot = new = self._derive(new, old, told, key)
        self._begun = True
        return Moment(
            new,
            tuple(_read_log_line(one) for one in told.get("l", ())),
            told.get("lo", 0),
            _read_past(told["p"]) if "p" in told else None,
        )

    def _wants(self, name: str) -> bool:
        return not self._brief or name in HISTORY_NEEDS

    def _tree_of(self, id_: str, *patch: Any) -> Any:
        if id_ not in self._known:
            line = self._fixed(id_)
            if line is None:
                raise ValueError(f"the line {id_} that it builds on is lost")
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[id_] = patched(None, [msgspec.json.decode(line)["value"]])
        return patched(self._known[id_], patch[0]) if patch else self._known[id_]

    def _reading(self, part: str, told: Any, key: bool, fixed: dict[str, Any]) -> Reading[Any]:
        old: Reading[Any] = getattr(self._snapshot, PART_FIELDS[part])
        if isinstance(told, list):
            mono, wall = self._clocks[part].risen(told[0], told[1])
            value, failure = self._value(part, told[3], mono) if len(told) > 3 else (old.value, old.error)
            since = None if failure is None else old.error_mono or mono
            since_wall = None if failure is None else old.error_wall or wall
            took, reads = told[2] / 1e6, old.reads + 1
            return Reading(part, old.interval, value, wall, mono, failure, since, since_wall, took, reads)
        mono_, wall_ = _seconds(told.get("m")), _seconds(told.get("w"))
        if told.get("m") is not None and told.get("w") is not None:
            self._clocks.setdefault(part, _Clock()).rise(told["m"], told["w"])
        foreign: Failure | None = None
        if part in fixed:
            self._trees[part] = fixed[part]
            value, foreign = _converted(fixed[part], part)
        elif "b" in told:
            value, foreign = self._value(part, told["b"], mono_ or 0.0)
        else:
            value = None if key else old.value
        error = foreign or (Failure(*told["e"]) if "e" in told else None)
        began = _seconds(told.get("em")), _seconds(told.get("ew"))
        return Reading(part, told["i"], value, wall_, mono_, error, *began, _seconds(told.get("d")), told["n"])

    def _value(self, part: str, told: Any, mono: float) -> tuple[Any, Failure | None]:
        if part == STATS:
            return (self._stats.read(told, mono) if told != 0 else None), None
        self._trees[part] = tree = patched(self._trees.get(part), told)
        return (None, None) if tree is None else _converted(tree, part)

    def _derive(self, new: Snapshot, old: Snapshot, told: Any, key: bool) -> Snapshot:
        if "a" in told:
            self._at_load = {ModelKey(name, version): memory for name, version, memory in told["a"]}
        found = _derived(new, self._rows, self._at_load, old, key)
        for name, kind in _DERIVED.items():
            if name in told:
                found[name] = msgspec.convert(patched(msgspec.to_builtins(found[name]), told[name]), kind)
        if found["models"] == old.models:
            found["models"] = old.models
        return msgspec.structs.replace(new, **found)


FOREIGN = Failure(
    "protocol", "recorded in a form that this gpuconsole does not know", "open it with the gpuconsole that recorded it"
)


def _converted(tree: Any, part: str) -> tuple[Any, Failure | None]:
    """The value of a part, or why there is none: its form may be that of another version."""
    try:
        return msgspec.convert(tree, KINDS[part]), None
    except msgspec.ValidationError:
        return None, FOREIGN


class _Times(msgspec.Struct):
    t: tuple[int, int]


class _PastOnly(msgspec.Struct):
    p: Any = None


def wall_times(lines: Iterable[bytes]) -> Iterator[float]:
    """When each line of a minute was taken, from its first one on. DamagedError."""
    clock = _Clock()
    for line in lines:
        try:
            yield clock.risen(*msgspec.json.decode(line, type=_Times).t)[1]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedError(str(error)) from error


def past_of(line: bytes) -> Mapping[str, tuple[tuple[float, float], ...]]:
    """The peaks of the minute before that a first line holds; none where it cannot be read."""
    try:
        told = msgspec.json.decode(line, type=_PastOnly).p
        return {} if told is None else _read_past(told)
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return {}


_DERIVED: Mapping[str, Any] = {"models": tuple[ModelRow, ...], "traffic": Traffic, "serving": Serving}


def _read_log_line(told: Any) -> LogLine:
    wall, stream, text, level, origin, truncated = told
    return LogLine(_seconds(wall), stream, text, level, origin, truncated)
