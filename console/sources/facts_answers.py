"""Answers and variables on their way: each is asked for once, in a thread of its own, and others wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from console.core.facts import AnswerFact
from console.core.model import SourceError
from console.core.text import one_line
from console.sources import facts_podman, facts_system, facts_variables
from console.sources.facts_host import Host
from console.sources.facts_masks import secret_words

log = logging.getLogger(__name__)
ANSWER_LIMIT = 1.5
"""Seconds that one question may take."""
SPARE = 0.5
"""Seconds before the deadline at which a question goes out without what would only make it better (the port by Podman,
the unit to ask about)."""
LATE = "timed out"
_SETTLE: Mapping[str, str] = {
    "@processes": "sudo ps -ef",
    "@ports": "sudo ss -ltnp",
    "@units": "systemctl is-system-running",
    "@podman.ping": "podman info",
    "@nvml": "nvidia-smi",
    "@kernel.log": "sudo dmesg",
    "@samples": "gpuconsole check --slow",
}


class Answers:
    """What one host answers, and what the variables stand for. Any number of threads may ask."""

    def __init__(self, host: Host, slow: bool, left: Callable[[], float], stop: threading.Event) -> None:
        """`left` tells the seconds to the deadline, `stop` is set after it."""
        self._host = host
        self._slow = slow
        self._left = left
        self._stop = stop
        self._asked: dict[str, Future[AnswerFact]] = {}
        self._podman: Future[facts_podman.PodmanLook] | None = None
        self._lock = threading.Lock()
        self.variables: dict[str, Future[tuple[str, ...] | None]] = {}

    def fact(self, name: str) -> AnswerFact:
        """An answer, waited for. TimeoutError."""
        return self._future_of(name).result(self._left())

    def values(self) -> dict[str, tuple[str, ...]]:
        """The variables that are known by now. None of `gpu` means that the bus was seen, and has no card."""
        known: dict[str, tuple[str, ...]] = {}
        for name, future in self.variables.items():
            if not future.done() or future.exception() is not None:
                continue
            value = future.result()
            if value or (name == "gpu" and value is not None):
                known[name] = value
        return known

    def words(self) -> list[str]:
        """Secrets of the container, as far as it was told."""
        inspect = self._asked.get("@podman.inspect")
        known = inspect is not None and inspect.done() and inspect.exception() is None
        return [*secret_words(inspect.result().value)] if inspect is not None and known else []

    def _future_of(self, name: str) -> Future[AnswerFact]:
        with self._lock:
            known = self._asked.get(name)
            if known is None:
                known = self._asked[name] = _future(lambda: self._fact_of(name))
        return known

    def _fact_of(self, name: str) -> AnswerFact:
        recorded = self._host.answer(name)
        if recorded is not None:
            return recorded
        if name == "@samples" and not self._slow:
            return AnswerFact(why="only with --slow: it is sampled over time", settle=_SETTLE[name])
        try:
            return AnswerFact(msgspec.to_builtins(self._value_of(name)))
        except SourceError as error:
            return AnswerFact(why=error.message, settle=_settle(name, error))
        except TimeoutError:
            return no_answer(name, LATE)

    def _value_of(self, name: str) -> Any:
        limit = min(ANSWER_LIMIT, self._left())
        group, _, what = name.partition(".")
        if group == "@podman":
            return self._podman_value(what, limit)
        if group == "@triton":
            where = facts_podman.address(self._host, self._state())
            ask: dict[str, Callable[..., Any]] = {
                "metadata": facts_podman.metadata,
                "index": facts_podman.index,
                "stats": facts_podman.stats,
                "configs": facts_podman.configs,
            }
            try:
                return ask[what](where, min(ANSWER_LIMIT, self._left()))
            except SourceError as error:
                raise SourceError(error.kind, error.message, f"curl -fsS {where.url}/v2") from error
        own: dict[str, Callable[[], Any]] = {
            "@me": facts_system.me,
            "@settings": lambda: facts_system.settings(self._host),
            "@processes": lambda: facts_system.processes(self._host.root),
            "@ports": lambda: facts_system.ports(self._host.root),
            "@units": self._units,
            "@nvml": lambda: facts_system.nvml(self._host),
            "@kernel.log": lambda: facts_system.kernel_log(self._host),
            "@samples": lambda: facts_system.samples(self._host.root),
        }
        return own[name]()

    def _podman_value(self, what: str, limit: float) -> Any:
        found = self._looked()
        if what in ("ping", "containers", "inspect"):
            return getattr(found, what)
        ask: dict[str, Callable[..., Any]] = {
            "image": facts_podman.image,
            "images": facts_podman.images,
            "info": facts_podman.info,
            "log": facts_podman.log,
        }
        return ask[what](found, min(limit, self._left()))

    def _looked(self, patience: float | None = None) -> facts_podman.PodmanLook:
        with self._lock:
            if self._podman is None:
                self._podman = _future(lambda: facts_podman.look(self._host, ANSWER_LIMIT))
        return self._podman.result(self._left() if patience is None else patience)

    def _state(self) -> Any:
        """The container, which tells the ports; None where it is not told in time."""
        try:
            return self._looked(max(0.1, self._left() - SPARE)).state
        except SourceError:
            return None
        except TimeoutError:
            if self._host.kind == "simulated":  # what answers on the usual ports would be a server of the real machine
                raise
            return None

    def _units(self) -> Any:
        unit: tuple[str, ...] = ()
        who = facts_variables.Owner()
        try:
            who = self._owner(max(0.1, self._left() - SPARE))
            unit = self.variables["unit"].result(max(0.1, self._left() - SPARE)) or ()
        except TimeoutError:
            log.debug("the unit is not known in time")
        user = who.uid not in (None, 0)
        return facts_system.units(
            () if user else unit, unit if user else (), who.uid if user else None, min(ANSWER_LIMIT, self._left())
        )

    # -------------------------------------------------------------------------------------------------------- variables

    def ask_for_variables(self, graph_root: bool) -> None:
        """Begin to find all of them; `graph_root` too, for which Podman takes half a second."""
        tree = self._host.tree
        of_container = {
            "container": lambda one: str(one.get("Name") or "").lstrip("/"),
            "container_id": lambda one: str(one.get("Id") or ""),
            "container_pid": lambda one: str(_pid(one) or ""),
        }
        simple: dict[str, Callable[[], tuple[str, ...] | None]] = {
            "release": lambda: facts_variables.release(tree),
            "next_release": lambda: facts_variables.next_release(tree),
            "gpu": lambda: facts_variables.gpus(tree),
            "cdi_paths": lambda: facts_variables.cdi_paths(tree),
            "uid": lambda: _one(self._owner().uid),
            "user": lambda: _one(self._owner().user),
            "home": lambda: _one(self._owner().home),
            "socket": lambda: _one((self._value("@podman.ping") or {}).get("socket")),
            "models": lambda: facts_podman.model_folders(self._host, self._value("@podman.inspect")),
            "unit": self._unit,
        }
        for name, pick in of_container.items():
            simple[name] = lambda pick=pick: _one(pick(self._value("@podman.inspect") or {}))  # type: ignore[misc]
        for name, work in simple.items():
            self.variables[name] = _future(work)
        if graph_root:
            self.variables["graph_root"] = _future(lambda: _one(_graph_root(self._value("@podman.info"))))

    def _value(self, name: str, patience: float | None = None) -> dict[str, Any] | None:
        """An answer's JSON object; None where there is none. TimeoutError."""
        found = self._future_of(name).result(self._left() if patience is None else patience)
        return found.value if isinstance(found.value, dict) else None

    def _owner(self, patience: float | None = None) -> facts_variables.Owner:
        try:
            ping = self._value("@podman.ping", patience)
        except TimeoutError:
            ping = None
        return facts_variables.owner(self._host, ping)

    def _unit(self) -> tuple[str, ...]:
        inspect = self._value("@podman.inspect")
        processes = self.fact("@processes").value if inspect is not None else ()
        listed = processes if isinstance(processes, list) else ()
        return facts_variables.unit(self._host, inspect, listed, self._owner(), self._stop)


def _future(work: Callable[[], Any]) -> Future[Any]:
    """What a thread of its own brings; other threads wait for it."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            if not isinstance(error, SourceError | TimeoutError):
                log.exception("a fact")
            future.set_exception(error)

    threading.Thread(target=run, name="facts", daemon=True).start()
    return future


def _one(value: Any) -> tuple[str, ...]:
    return () if value in (None, "") else (str(value),)


def _pid(inspect: Mapping[str, Any]) -> int | None:
    pid = facts_variables.at(inspect, "State", "Pid")
    return pid if isinstance(pid, int) and pid > 0 else None


def _graph_root(info: Mapping[str, Any] | None) -> str | None:
    found = facts_variables.at(info, "store", "graphRoot")
    return found if isinstance(found, str) else None


def no_answer(name: str, why: str) -> AnswerFact:
    return AnswerFact(why=f"{name.lstrip('@')}: {why}", settle=_settle(name, None))


def _settle(name: str, error: SourceError | None) -> str:
    """The command that settles it: the error's own where it is one."""
    hint = error.hint if error is not None else ""
    if hint.startswith(("sudo ", "systemctl ", "curl ", "podman ")):
        return one_line(hint, 200)
    return _SETTLE.get(name) or _SETTLE.get(f"{name.partition('.')[0]}.ping", "")
