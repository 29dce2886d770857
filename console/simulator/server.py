"""The simulated tritonserver as a process: its flags, its start with the models one after another, its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from console.core.text import whole_number
from console.core.triton_command import control_mode, flag_value, flag_values, strict_readiness
from console.simulator.lifecycle import Host, Models
from console.simulator.server_log import LogLine, banner, memory_lines, started_lines, tables, triton_line

BEGIN_S = 0.5
"""Seconds from the process's start until it looks at its models."""
POLL_S = 15.0
"""Control mode poll looks at the files this often: Triton's own default."""
LOOK_S = 0.02
EXIT_LOG = "error: creating server: Internal - failed to load all models"
_KNOWN = """
model-repository model-store model-control-mode load-model repository-poll-secs exit-on-error exit-timeout-secs
disable-auto-complete-config strict-model-config strict-readiness allow-http http-port http-address http-thread-count
allow-grpc grpc-port grpc-address allow-metrics metrics-port metrics-interval-ms metrics-config allow-gpu-metrics
allow-cpu-metrics trace-config log-verbose log-info log-warning log-error log-format log-file id rate-limit
rate-limit-resource cache-config cache-directory pinned-memory-pool-byte-size cuda-memory-pool-byte-size
min-supported-compute-capability buffer-manager-thread-count model-load-thread-count backend-config
backend-directory model-namespacing host-policy
"""
_FLAGS = frozenset(_KNOWN.split())
"""Of tritonserver 2.51.0: an unknown one ends it at once."""


class Server:
    """One run of tritonserver. `exited` is told its exit code, once."""

    def __init__(
        self, site: Host, command: Sequence[str], log: Callable[[LogLine], None], exited: Callable[[int], None]
    ) -> None:
        self._site = site
        self.served, self.specs, self.repository, self.agenda = site.served, site.specs, site.repository, site.agenda
        self._agenda = site.agenda
        self._command = tuple(command)
        self._log = log
        self._exited = exited
        self._failed: dict[str, str] = {}
        self.models = Models(self)
        self.serving = False
        """Its ports are open: before the first answer of a load, Triton has none."""
        self.stopping = False
        self.ended = False
        self.mode = control_mode(command) or "none"
        self.trace_file = _trace_file(command)

    def rng(self, purpose: str) -> random.Random:
        """See Site."""
        return self._site.rng(purpose)

    def free_mib(self) -> int:
        """See Site."""
        return self._site.free_mib()

    def note(self, level: str, where: str, text: str) -> None:
        """A line of the log; "" for the level of what is no line of Triton's own. A process that ended says nothing."""
        if not self.ended:
            now_ns = self._agenda.now_ns
            self._log(triton_line(now_ns, level, where, text) if level else LogLine(now_ns, 2, text))

    @property
    def ready(self) -> bool:
        """Triton's server ready flag."""
        return self.models.all_good if strict_readiness(self._command) else True

    def port(self, name: str) -> int | None:
        """Port inside the container of `http` or `metrics`; None where it is switched off."""
        if (flag_value(self._command, f"allow-{name}") or "true").lower() not in ("true", "1"):
            return None
        return whole_number(flag_value(self._command, f"{name}-port") or "") or {"http": 8000, "metrics": 8002}[name]

    def begun_long_ago(self) -> None:
        """It has been serving for long."""
        self.models.load_past()
        self.serving = True
        self._poll_later()

    def start(self) -> None:
        """Begin now."""
        self._write(banner(self._agenda.now_ns))
        unknown = next((word for word in self._flags() if word not in _FLAGS), None)
        if unknown is not None:
            self._say(f"tritonserver: unrecognized option '--{unknown}'")
            self._agenda.after(LOOK_S, lambda: self._end(1))
            return
        self._agenda.after(BEGIN_S, self._begin)

    def _flags(self) -> list[str]:
        return [word.partition("=")[0].removeprefix("--") for word in self._command if word.startswith("--")]

    def _begin(self) -> None:
        if self.stopping:
            return
        self._write(memory_lines(self._agenda.now_ns))
        named = flag_values(self._command, "load-model")
        everything = self.mode != "explicit" or "*" in named
        self._load_next(list(self.models.specs) if everything else list(named))

    def _load_next(self, names: list[str]) -> None:
        if self.stopping:
            return
        if not names:
            self._loaded_all()
            return

        def then(status: int, words: str) -> None:
            if status != 200:
                self._failed[names[0]] = words
            self._load_next(names[1:])

        self.models.load(names[0], None, then)

    def _loaded_all(self) -> None:
        if self._failed and (flag_value(self._command, "exit-on-error") or "true").lower() in ("true", "1"):
            self._say(EXIT_LOG)
            self._agenda.after(LOOK_S, lambda: self._end(1))
            return
        rows = [(entry["name"], entry.get("version", "-1"), entry.get("reason", "")) for entry in self.models.index()]
        self._write(tables(rows, self._command, self._agenda.now_ns))
        self._write(started_lines(self._agenda.now_ns))
        self.serving = True
        self._poll_later()

    def _poll_later(self) -> None:
        if self.mode == "poll" and not self.stopping:
            self._agenda.after(POLL_S, self._poll)

    def _poll(self) -> None:
        """Control mode poll follows the files."""
        for name in self.models.specs:
            if not self.stopping:
                self.models.load(name, None, _nobody)
        self._poll_later()

    def stop(self) -> None:
        """SIGTERM: nothing new is taken, what is there is answered, then it ends."""
        if self.stopping:
            return
        was_serving = self.serving
        self.stopping, self.serving = True, False
        self._say("Signal (15) received.")
        if not was_serving:
            self._agenda.after(LOOK_S, lambda: self._end(0))
            return
        for name in self.models.specs:
            self.models.unload(name)
        self._wait_unloaded()

    def _wait_unloaded(self) -> None:
        if any(True for _ in self.models.all()):
            self._agenda.after(LOOK_S, self._wait_unloaded)
        else:
            self._end(0)

    def kill(self) -> None:
        """SIGKILL."""
        self.stopping, self.serving = True, False
        self._end(137)

    def _end(self, code: int) -> None:
        if not self.ended:
            self.ended = True
            self._exited(code)

    def _say(self, text: str) -> None:
        self.note("", "", text)

    def _write(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self._log(line)


def _nobody(_status: int, _words: str) -> None:
    """Control mode poll tells its log only."""


def _trace_file(command: Sequence[str]) -> str:
    told = (value.removeprefix("triton,") for value in flag_values(command, "trace-config"))
    return next((value.removeprefix("file=") for value in told if value.startswith("file=")), "")
