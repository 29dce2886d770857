"""NVIDIA's perf_analyzer as another engine: driven where it is there, or its CSV read, into a record of its own kind.

Read and seen with 2.51.0. Of a level it tells throughput, percentiles, and the server's parts; not how many failed (an
error ends it), nothing above p99, no distribution, and its CSV not even how many requests there were: all that stays
unknown. Its concurrency mode is a closed loop. Its rate mode is not taken: it is four threads that wait for answers, it
sends less than asked when they stall, counts latency from the real sending, and so hides the stall (domain facts, 4).
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from msgspec.structs import replace

from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import decode, one_line
from console.loadgen.announce import announced, mine
from console.loadgen.launch import READ_ONLY
from console.loadgen.measure import Plan
from console.loadgen.record import Foreign

NAME = "perf_analyzer"
ENGINE, PATH, IMPORT = "--engine", "--perf-analyzer", "--import"
MOST_CSV = 1024 * 1024
WINDOWS = 3
"""So many must agree for it to tell anything."""
TRIALS = 10
SLACK_S = 30.0
"""Beyond its windows, for its start and the last answers."""
_PDEATHSIG = 1
_UNKNOWN = (
    "errors",
    "p99.9 and max",
    "the distribution",
    "how much of it the client was",
    "steady beyond its 3 windows",
)
_COUNT = re.compile(r"^\s+Request count: ([0-9]{1,12})\s*$", re.MULTILINE)
_PARTS: Mapping[str, str] = {
    "p50_ms": "p50 latency",
    "p90_ms": "p90 latency",
    "p95_ms": "p95 latency",
    "p99_ms": "p99 latency",
    "mean_ms": "Avg latency",
    "queue_ms": "Server Queue",
    "input_ms": "Server Compute Input",
    "infer_ms": "Server Compute Infer",
    "output_ms": "Server Compute Output",
}
"""Columns in µs; `Avg latency` is of --verbose-csv alone, and those of the server are missing for some back ends."""


def read_csv(body: bytes, name: str, blank: Foreign) -> tuple[Foreign, ...]:
    """The levels of its report, filled into `blank`, lowest first. WrongInput for what is none, or of its rate mode."""
    shown = one_line(name, 200)
    lines = decode(body).splitlines()
    if any("\0" in line for line in lines):
        raise WrongInput(f"{IMPORT}: {shown} is no report of perf_analyzer")
    head = lines[0] if lines else ""
    if head.startswith("Request Rate,"):
        raise WrongInput(
            f"{IMPORT}: {shown} is of perf_analyzer's rate mode, which hides stalls; --concurrency-range is taken"
        )
    if not head.startswith("Concurrency,Inferences/Second,"):
        raise WrongInput(f"{IMPORT}: {shown} is no report of perf_analyzer; its -f FILE makes one")
    found = [_level(row, shown, blank) for row in csv.DictReader(lines)]
    if not found:
        raise WrongInput(f"{IMPORT}: {shown} holds no level: perf_analyzer found nothing stable")
    return tuple(sorted(found, key=lambda one: one.callers))


def _level(row: Mapping[str, str | None], shown: str, blank: Foreign) -> Foreign:
    callers, rate = _number(row, "Concurrency", shown), _number(row, "Inferences/Second", shown)
    if callers is None or rate is None or callers < 1 or not callers.is_integer():
        raise WrongInput(f"{IMPORT}: {shown} has a level without its concurrency or its throughput")
    columns = {field: _number(row, column, shown) for field, column in _PARTS.items()}
    values = {field: None if us is None else us / 1e3 for field, us in columns.items()}
    return replace(blank, callers=int(callers), items=rate, unknown=_UNKNOWN, **values)


def _number(row: Mapping[str, str | None], column: str, shown: str) -> float | None:
    text = row.get(column)
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not isfinite(found) or found < 0:
        raise WrongInput(f"{IMPORT}: {shown}: {column} is {one_line(text, 40)!r}, which is no figure")
    return found


def find(path: str) -> str:
    """The binary: that of the option, else the one on PATH. WrongInput."""
    found = shutil.which(path or NAME)
    if found is None:
        where = f"{one_line(path, 200)} is no program that can be run" if path else "perf_analyzer is not on PATH"
        raise WrongInput(f"{ENGINE}: {where}; name it with {PATH}")
    return found


def words(binary: str, plan: Plan, shapes: Mapping[str, tuple[int, ...]], report: Path, *, random: bool) -> list[str]:
    """The command. Three windows make the duration; of warm-up it knows nothing but its first, unstable windows."""
    window = max(500, round(1000 * plan.load.seconds / WINDOWS))
    found = [
        binary, "-m", plan.model, "-u", f"{plan.ip}:{plan.address.http_port}", "-i", "http",
        "--concurrency-range", f"{plan.load.peak:g}", "-b", str(plan.batch), "-p", str(window), "-r", str(TRIALS),
        "--input-data", "random" if random else "zero", "--verbose-csv", "-f", str(report),
    ]  # fmt: skip
    found += ["-x", plan.version] if plan.version else []
    return found + [word for name, size in shapes.items() for word in ("--shape", f"{name}:{','.join(map(str, size))}")]


class PerfAnalyzer:
    """One run of it. `stop` may be called from a signal handler."""

    def __init__(
        self, binary: str, plan: Plan, shapes: Mapping[str, tuple[int, ...]], *, random: bool, read_only: bool
    ) -> None:
        self._binary, self._plan, self._shapes, self._random = binary, plan, shapes, random
        self._read_only = read_only
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    @property
    def longest_s(self) -> float:
        """After which it is ended."""
        return TRIALS * max(0.5, self._plan.load.seconds / WINDOWS) + SLACK_S

    def stop(self) -> None:
        """End it; it tells nothing then."""
        self.stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    def run(self, host: str, by: str) -> Foreign:
        """Its figures, not yet kept. Refused in read-only mode; SourceError where it tells none."""
        if self._read_only:
            raise Refused(READ_ONLY)
        plan = self._plan
        with tempfile.TemporaryDirectory(prefix="gpuconsole-") as folder:
            report = Path(folder) / "report.csv"
            command = words(self._binary, plan, self._shapes, report, random=self._random)
            began = time.time()
            with announced(mine(plan.model, plan.address.where, f"perf_analyzer, {plan.load.words()}", self.longest_s)):
                said = self._said(command)
            body = report.read_bytes()[:MOST_CSV] if report.exists() else b""
        if not body:
            raise SourceError("protocol", f"perf_analyzer told no figures: {_last_line(said)}")
        blank = Foreign(
            id=0, wall=began, host=host, by=by, engine=_engine(self._binary), model=plan.model, version=plan.version,
            callers=0, items=0.0, target=plan.address.where, batch=plan.batch,
        )  # fmt: skip
        (found,) = read_csv(body, "its report", blank)
        count = _COUNT.search(said)
        return replace(found, requests=int(count[1]) if count else None)

    def _said(self, command: list[str]) -> str:
        try:
            process = self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_end_with_us,
            )  # fmt: skip
        except OSError as error:
            raise SourceError("unavailable", f"perf_analyzer cannot be started: {error.strerror}") from error
        if self.stopped:
            self.stop()
        try:
            said, _ = process.communicate(timeout=self.longest_s)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            if not self.stopped:
                raise SourceError(
                    "timeout", f"perf_analyzer did not end within {self.longest_s:.0f} s; it was ended"
                ) from None
        return decode(said[-MOST_CSV:])


def _end_with_us() -> None:
    """The kernel ends it when we end, however we end."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _engine(binary: str) -> str:
    """With its version, where it tells."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return NAME
    match = re.search(r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)", decode(said[:1000]))
    return f"{NAME} {match[1]}" if match else NAME


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    named = next((line for line in lines if line.startswith("error:") or "Failed to obtain" in line), "")
    return one_line(named or (lines[-1] if lines else "it said nothing"), 300)
