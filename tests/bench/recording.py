"""What a recording costs: bytes a day of the simulated box, CPU of the recorder, and how long a jump takes.

The simulated box is recorded in real time by `gpuconsole record`; its first six minutes, in which windows of statistics
have no polls to lie between yet, are left out of the day. Jumps are timed in a recording of made-up seconds
(tests/fakes/past.py), beside a reference of the same run: the JSON of ten minutes decoded and no more.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil

from console.clients.recorder import Recorder
from console.clients.recording import Segment, segments
from console.sources.replay import Player
from tests.fakes.past import seconds

DAY = 86_400
COLD = 6
"""Minutes."""
JUMPS = 25


def record_costs(length: float, hours: float, scene: str) -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        _live(Path(folder) / "live", length, scene)
        _jumps(Path(folder) / "made", hours)
    return 0


def _live(folder: Path, length: float, scene: str) -> None:
    command = [sys.executable, "-m", "console", "record", "--demo", "--scene", scene, "--for", f"{length:.0f}s"]
    process = subprocess.Popen([*command, "--to", str(folder)], stdout=subprocess.DEVNULL)
    watched = psutil.Process(process.pid)
    time.sleep(min(30.0, length / 2))
    begin, used, rss = time.monotonic(), _cpu(watched), watched.memory_info().rss
    files = watched.num_fds()
    while time.monotonic() - begin < length - 40.0 and process.poll() is None:
        time.sleep(1.0)
    spent, span = _cpu(watched) - used, time.monotonic() - begin
    grown, opened = watched.memory_info().rss - rss, watched.num_fds() - files
    process.wait(120)
    print(f"gpuconsole record --demo --scene {scene}, {length:.0f} s")
    print(f"  CPU {100 * spent / span:.2f} % of a core, all of reading included   RSS {rss / 2**20:.0f} MiB, "
          f"{grown / 2**20:+.1f} MiB in {span:.0f} s   file descriptors {files} {opened:+d}")  # fmt: skip
    (segment,) = segments(folder)[0]
    sizes = [after.begin - one.begin for one, after in zip(segment.minutes, segment.minutes[1:], strict=False)]
    print(f"  file {segment.size} bytes; minutes {sizes}")
    if len(sizes) > COLD:
        a_minute = statistics.mean(sizes[COLD:])
        print(f"  after {COLD} minutes {a_minute / 60:.0f} B/s: a day has {a_minute * 1440 / 1e6:.1f} MB")


def _cpu(process: psutil.Process) -> float:
    told = process.cpu_times()
    return float(told.user + told.system)


def _jumps(folder: Path, hours: float) -> None:
    recorder = Recorder(folder)
    recorder.switch(True)
    began = time.thread_time()
    made = 0.0
    for number, (snapshot, lines) in enumerate(seconds(round(hours * 3600))):
        recorder.put(snapshot, lines)
        if number % 50 == 0:
            while recorder._queue.qsize():
                time.sleep(0.002)
        made = time.thread_time() - began
    recorder.close(60)
    print(f"made-up recording of {hours:g} h ({made:.0f} s of CPU to make it up)")
    real, cpu = time.perf_counter(), time.process_time()
    player = Player(folder)
    print(f"  open {time.perf_counter() - real:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    rng, took, used = random.Random(1), [], []
    for _ in range(JUMPS):
        wall = rng.uniform(player.first, player.last)
        real, cpu = time.perf_counter(), time.process_time()
        player.seek(wall)
        took.append(time.perf_counter() - real)
        used.append(time.process_time() - cpu)
    print(f"  jump, {JUMPS} at random: median {statistics.median(took):.3f} s, at most {max(took):.3f} s; "
          f"CPU median {statistics.median(used):.3f} s, at most {max(used):.3f} s")  # fmt: skip
    print(
        f"  reference, JSON of ten minutes decoded and no more: {_reference(player.minutes[-1].segment):.3f} s of CPU"
    )
    player.close()


def _reference(segment: Segment) -> float:
    lines = [line for minute in segment.minutes[-11:-1] for line in segment.lines(minute)]
    cpu = time.process_time()
    for line in lines:
        msgspec.json.decode(line)
    return time.process_time() - cpu
