"""Collects facts: everything that checks may look at, once, in parallel, without root where it can be.

`collect` expands the needs (core/facts.py) in stages that wait for each other only where they must: needs without
variables at once, what a variable needs as soon as it is known. Commands and questions have a thread each, files are
shared by a few. After DEADLINE what is not there yet is "timed out", and the threads that hang (a driver, a mount of a
server that is gone) are left behind. Secrets are taken out before anything leaves here.
"""

from __future__ import annotations

import itertools
import logging
import queue
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from console.clients import nvml, podman
from console.clients.tree import MAX_SPEC, MAX_TEXT, escaped, is_pattern
from console.core.facts import ANSWERS, VARIABLES, AnswerFact, CommandFact, Facts, FileFact, SpaceFact
from console.core.model import SourceError
from console.core.text import one_line
from console.sources import facts_podman, facts_system, facts_variables
from console.sources.facts_host import Host
from console.sources.facts_masks import Masks, secret_words

log = logging.getLogger(__name__)
DEADLINE = 1.8
"""Seconds after which what has not come is timed out. The whole of a collection is under 2 s."""
SLOW_DEADLINE = 4.0
"""The same with samples over time."""
COMMAND_LIMIT = 1.5
"""Seconds that a program may take."""
ANSWER_LIMIT = 1.5
SPARE = 0.5
"""Seconds before the deadline at which a question goes out without what would only make it better (the port by Podman,
the unit to ask about)."""
READERS = 2
"""Threads that read files; more are started while these hang. Python runs one at a time, so more would only wait."""
MAX_READERS = 40
HANGS_AFTER = 0.2
"""Seconds without an end of any read after which the readers are doubled."""
MAX_VALUES = 500
"""Ways to fill in the variables of one need."""
LATE = "timed out"
_VARIABLE = re.compile(r"\{(" + "|".join(VARIABLES) + r")\}")
_SETTLE: Mapping[str, str] = {
    "@processes": "sudo ps -ef",
    "@ports": "sudo ss -ltnp",
    "@units": "systemctl is-system-running",
    "@podman.ping": "podman info",
    "@nvml": "nvidia-smi",
    "@kernel.log": "sudo dmesg",
    "@samples": "gpuconsole check --slow",
}


def collect(needs: Iterable[str], host: Host, slow: bool = False, deadline: float | None = None) -> Facts:
    """All that these needs name. Never raises for what the box holds; ValueError for a need that is none."""
    return _Collection(tuple(dict.fromkeys(needs)), host, slow, deadline).run()


class _Task(Struct):
    """One need with its variables filled in."""

    work: Callable[[], None]
    late: Callable[[str], None]
    """Writes the facts of one that did not end, with the reason."""
    done: bool = False


class _Collection:
    def __init__(self, needs: Sequence[str], host: Host, slow: bool, deadline: float | None) -> None:
        for need in needs:
            _checked(need)
        self.needs = needs
        self.host = host
        self.slow = slow
        self.masks = Masks(word for word in host.settings.triton.headers.values())
        self.stop = threading.Event()
        self.wall, self.began = host.wall, time.monotonic()
        self.end = self.began + (deadline or (SLOW_DEADLINE if slow else DEADLINE))
        self.files: dict[str, FileFact] = {}
        self.commands: dict[str, CommandFact] = {}
        self.answers: dict[str, AnswerFact] = {}
        self.spaces: dict[str, SpaceFact] = {}
        self.variables: dict[str, Future[tuple[str, ...] | None]] = {}
        self.asked: dict[str, Future[AnswerFact]] = {}
        self.podman: Future[facts_podman.PodmanLook] | None = None
        self.tasks: list[_Task] = []
        self.to_read: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self.readers = 0
        self.read = 0
        self.lock = threading.Lock()
        self.ended = threading.Condition()

    def left(self) -> float:
        """Seconds to the deadline."""
        return max(0.01, self.end - time.monotonic())

    # ----------------------------------------------------------------------------------------------------------- stages

    def run(self) -> Facts:
        if self.host.kind != "recorded":
            podman.load()
            nvml.load()
        waiting: dict[frozenset[str], list[str]] = {}
        self._ask_for_variables()
        for need in self.needs:
            names = frozenset(_VARIABLE.findall(need))
            if names:
                waiting.setdefault(names, []).append(need)
            else:
                self._take(need, {})
        for _ in range(READERS):
            self._reader()
        for names, needs in waiting.items():
            self._spread(names, needs)
        self._wait()
        return self._facts()

    def _spread(self, names: frozenset[str], needs: Sequence[str]) -> None:
        """Take up needs with variables once these are known; where one has no value the need is dropped."""

        def work() -> None:
            values = [self.variables[name].result(self.left()) or () for name in sorted(names)]
            for filled in itertools.islice(itertools.product(*values), MAX_VALUES):
                for need in needs:
                    self._take(need, dict(zip(sorted(names), filled, strict=True)))

        self._start(_Task(work, lambda why: None))

    def _wait(self) -> None:
        """Until all tasks have ended or the time is over; readers that hang are replaced meanwhile."""
        read, since = -1, time.monotonic()
        while time.monotonic() < self.end:
            with self.ended:
                if all(task.done for task in self.tasks):
                    return
                self.ended.wait(min(0.05, self.left()))
            now = time.monotonic()
            if self.read != read:
                read, since = self.read, now
            elif now - since > HANGS_AFTER and self.readers < MAX_READERS and not self.to_read.empty():
                since = now
                for _ in range(min(self.readers, MAX_READERS - self.readers)):
                    self._reader()

    def _facts(self) -> Facts:
        self.stop.set()
        late = [task for task in list(self.tasks) if not task.done]
        for _ in range(self.readers):
            self.to_read.put(None)
        for task in late:
            task.late(LATE)
        found = Facts(
            self.wall,
            0.0,
            self.host.name,
            str(self.host.root),
            self.slow,
            dict(self.files),
            dict(self.commands),
            dict(self.answers),
            dict(self.spaces),
            self._values(),
        )
        masked = Masks(self._words(), forms=False).facts(found)
        return replace(masked, seconds=round(time.monotonic() - self.began, 3))

    def _values(self) -> dict[str, tuple[str, ...]]:
        known: dict[str, tuple[str, ...]] = {}
        for name, future in self.variables.items():
            if not future.done() or future.exception() is not None:
                continue
            value = future.result()
            if value or (name == "gpu" and value is not None):
                known[name] = value
        return known

    def _words(self) -> list[str]:
        headers = list(self.host.settings.triton.headers.values())
        inspect = self.asked.get("@podman.inspect")
        told = inspect.result() if inspect is not None and inspect.done() else None
        return [*headers, *secret_words(told.value if told is not None else None)]

    # ---------------------------------------------------------------------------------------------------------- threads

    def _start(self, task: _Task, reads: bool = False) -> None:
        with self.lock:
            self.tasks.append(task)
        if reads:
            self.to_read.put(task)
        else:
            threading.Thread(target=self._do, args=(task,), name="facts", daemon=True).start()

    def _reader(self) -> None:
        self.readers += 1
        threading.Thread(target=self._read_all, name="facts.files", daemon=True).start()

    def _read_all(self) -> None:
        while not self.stop.is_set():
            task = self.to_read.get()
            if task is None:
                return
            self._do(task)
            self.read += 1

    def _do(self, task: _Task) -> None:
        try:
            task.work()
        except TimeoutError:
            task.late(LATE)
        except Exception as error:  # a box can hold anything; one need at fault is unknown, not the end of all
            log.exception("a need of facts")
            task.late(f"a fault of gpuconsole ({type(error).__name__})")
        task.done = True
        with self.ended:
            self.ended.notify_all()

    def _future(self, work: Callable[[], Any]) -> Future[Any]:
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

    # ------------------------------------------------------------------------------------------------------------ needs

    def _take(self, need: str, values: Mapping[str, str]) -> None:
        if need.startswith("$ "):
            words = _filled(need[2:], values, shlex.quote)
            self._start(_Task(lambda: self._run(words), lambda why: self._put_command(words, CommandFact(why=why))))
        elif need.startswith("@"):
            self._start(
                _Task(lambda: self._answer(need), lambda why: self._put_answer(need, _no_answer(need, why))),
            )
        elif need.startswith("space "):
            path = _filled(need[6:], values)
            task = _Task(
                lambda: self._put_space(path, self.host.space(path)),
                lambda why: self._put_space(path, SpaceFact(why=why)),
            )
            self._start(task, reads=True)
        elif need.startswith("find "):
            folder, _, name = need[5:].rpartition(" ")
            start = _filled(folder.strip(), values)
            task = _Task(
                lambda: self._find(start, _filled(name, values)),
                lambda why: self._put(start, FileFact("dir", why=why)),
            )
            self._start(task, reads=True)
        else:
            kind, _, template = need.partition(" ") if need.startswith(("stat ", "head ")) else ("text", "", need)
            self._take_files(template, values, kind)

    def _take_files(self, template: str, values: Mapping[str, str], kind: str) -> None:
        """`kind`: text, stat or head."""
        if not is_pattern(_VARIABLE.sub("", template)):
            path = _filled(template, values)
            task = _Task(lambda: self._look(path, kind), lambda why: self._put(path, FileFact("unknown", why=why)))
        else:
            pattern = _filled(template, values, escaped)
            start = _literal_start(pattern)
            task = _Task(lambda: self._glob(pattern, kind), lambda why: self._put(start, FileFact("dir", why=why)))
        self._start(task, reads=True)

    def _look(self, path: str, kind: str) -> None:
        most = MAX_SPEC if "/cdi/" in path else MAX_TEXT
        fact = self.host.tree.look(path, text=kind == "text", most=most, head=kind == "head")
        self._put(path, self.masks.file(path, fact))

    def _glob(self, pattern: str, kind: str) -> None:
        found = self.host.tree.glob(pattern, self.stop)
        for path, fact in found.folders.items():
            self._put(path, fact)
        for path in found.paths:
            if self.stop.is_set():
                raise TimeoutError
            self._look(path, kind)

    def _find(self, folder: str, name: str) -> None:
        found = self.host.tree.find(folder, name, self.stop)
        for path, fact in found.folders.items():
            self._put(path, fact)
        for path in found.paths:
            self._look(path, "stat")
        if self.stop.is_set():
            raise TimeoutError

    def _put(self, path: str, fact: FileFact) -> None:
        """Keep what tells more of a path; what a search could not see stays beside a folder's names."""
        with self.lock:
            before = self.files.get(path)
            if before is None:
                self.files[path] = fact
                return
            better, other = (fact, before) if _rank(fact) > _rank(before) else (before, fact)
            if other.kind == "dir" and other.why and not better.why:
                better = replace(better, why=other.why, cut=other.cut)
            self.files[path] = replace(better, head=other.head) if other.head and not better.head else better

    def _put_space(self, path: str, fact: SpaceFact) -> None:
        self.spaces.setdefault(path, fact)

    def _run(self, words: str) -> None:
        limit = min(COMMAND_LIMIT, self.left() - 0.05)
        found = self.host.run(words, limit) if limit > 0.05 else CommandFact(why=LATE)
        self._put_command(words, self.masks.command(found))

    def _put_command(self, words: str, fact: CommandFact) -> None:
        if not self.stop.is_set() or words not in self.commands:
            self.commands[words] = fact

    # ---------------------------------------------------------------------------------------------------------- answers

    def _answer(self, name: str) -> None:
        self._put_answer(name, self.masks.answer(self._asked(name).result(self.left())))

    def _put_answer(self, name: str, fact: AnswerFact) -> None:
        self.answers[name] = fact

    def _asked(self, name: str) -> Future[AnswerFact]:
        """An answer that is on its way, asked for once."""
        with self.lock:
            known = self.asked.get(name)
            if known is None:
                known = self.asked[name] = self._future(lambda: self._fact_of(name))
        return known

    def _fact_of(self, name: str) -> AnswerFact:
        recorded = self.host.answer(name)
        if recorded is not None:
            return recorded
        if name == "@samples" and not self.slow:
            return AnswerFact(why="only with --slow: it is sampled over time", settle=_SETTLE[name])
        try:
            return AnswerFact(msgspec.to_builtins(self._value_of(name)))
        except SourceError as error:
            return AnswerFact(why=error.message, settle=_settle(name, error))
        except TimeoutError:
            return _no_answer(name, LATE)

    def _value_of(self, name: str) -> Any:
        limit = min(ANSWER_LIMIT, self.left())
        group, _, what = name.partition(".")
        if group == "@podman":
            return self._podman_value(what, limit)
        if group == "@triton":
            where = facts_podman.address(self.host, self._state())
            ask: dict[str, Callable[..., Any]] = {
                "metadata": facts_podman.metadata,
                "index": facts_podman.index,
                "stats": facts_podman.stats,
                "configs": facts_podman.configs,
            }
            try:
                return ask[what](where, min(ANSWER_LIMIT, self.left()))
            except SourceError as error:
                raise SourceError(error.kind, error.message, f"curl -fsS {where.url}/v2") from error
        own: dict[str, Callable[[], Any]] = {
            "@me": facts_system.me,
            "@settings": lambda: facts_system.settings(self.host),
            "@processes": lambda: facts_system.processes(self.host.root),
            "@ports": lambda: facts_system.ports(self.host.root),
            "@units": self._units,
            "@nvml": lambda: facts_system.nvml(self.host),
            "@kernel.log": lambda: facts_system.kernel_log(self.host),
            "@samples": lambda: facts_system.samples(self.host.root),
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
        return ask[what](found, min(limit, self.left()))

    def _looked(self, patience: float | None = None) -> facts_podman.PodmanLook:
        with self.lock:
            if self.podman is None:
                self.podman = self._future(lambda: facts_podman.look(self.host, ANSWER_LIMIT))
        return self.podman.result(self.left() if patience is None else patience)

    def _state(self) -> Any:
        """The container, which tells the ports; None where it is not told in time."""
        try:
            return self._looked(max(0.1, self.left() - SPARE)).state
        except SourceError:
            return None
        except TimeoutError:
            if self.host.kind == "simulated":  # what answers on the usual ports would be a server of the real machine
                raise
            return None

    def _units(self) -> Any:
        unit: tuple[str, ...] = ()
        who = facts_variables.Owner()
        try:
            who = self._owner(max(0.1, self.left() - SPARE))
            unit = self.variables["unit"].result(max(0.1, self.left() - SPARE)) or ()
        except TimeoutError:
            log.debug("the unit is not known in time")
        user = who.uid not in (None, 0)
        return facts_system.units(
            () if user else unit, unit if user else (), who.uid if user else None, min(ANSWER_LIMIT, self.left())
        )

    # -------------------------------------------------------------------------------------------------------- variables

    def _ask_for_variables(self) -> None:
        tree = self.host.tree
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
            "models": lambda: facts_podman.model_folders(self.host, self._value("@podman.inspect")),
            "unit": self._unit,
        }
        for name, pick in of_container.items():
            simple[name] = lambda pick=pick: _one(pick(self._value("@podman.inspect") or {}))  # type: ignore[misc]
        for name, work in simple.items():
            self.variables[name] = self._future(work)
        if "@podman.info" in self.needs or any("{graph_root}" in need for need in self.needs):
            self.variables["graph_root"] = self._future(lambda: _one(_graph_root(self._value("@podman.info"))))

    def _value(self, name: str, patience: float | None = None) -> dict[str, Any] | None:
        """An answer's JSON object; None where there is none. TimeoutError."""
        found = self._asked(name).result(self.left() if patience is None else patience)
        return found.value if isinstance(found.value, dict) else None

    def _owner(self, patience: float | None = None) -> facts_variables.Owner:
        try:
            ping = self._value("@podman.ping", patience)
        except TimeoutError:
            ping = None
        return facts_variables.owner(self.host, ping)

    def _unit(self) -> tuple[str, ...]:
        inspect = self._value("@podman.inspect")
        processes = self._asked("@processes").result(self.left()).value if inspect is not None else ()
        listed = processes if isinstance(processes, list) else ()
        return facts_variables.unit(self.host, inspect, listed, self._owner(), self.stop)


def _checked(need: str) -> None:
    """ValueError for a need that no collection can bring: a fault of the check that has it."""
    if need.startswith("@"):
        good = need in ANSWERS
    elif need.startswith("$ "):
        good = bool(need[2:].strip())
    else:
        path = re.sub(r"^(stat|head|find|space) ", "", need)
        good = path.startswith(("/", "{")) and (not need.startswith("find ") or " " in path)
    if not good:
        raise ValueError(f"{need!r} is no need: see console/core/facts.py")


def _filled(template: str, values: Mapping[str, str], by: Callable[[str], str] = str) -> str:
    return _VARIABLE.sub(lambda match: by(values[match[1]]), template)


def _literal_start(pattern: str) -> str:
    """The folder at which a pattern begins to branch."""
    parts = list(itertools.takewhile(lambda part: not is_pattern(part), pattern.split("/")))
    return "/".join(parts) or "/"


def _rank(fact: FileFact) -> tuple[int, bool]:
    """How much it tells: a folder that only lay on the way of a pattern has no `target`, nor names where many."""
    told = 3 if fact.text is not None else 2 if fact.names is not None or fact.head is not None else 1
    return told if fact.kind != "unknown" else 0, fact.target is not None


def _one(value: Any) -> tuple[str, ...]:
    return () if value in (None, "") else (str(value),)


def _pid(inspect: Mapping[str, Any]) -> int | None:
    state = inspect.get("State")
    pid = state.get("Pid") if isinstance(state, Mapping) else None
    return pid if isinstance(pid, int) and pid > 0 else None


def _graph_root(info: Mapping[str, Any] | None) -> str | None:
    store = (info or {}).get("store")
    found = store.get("graphRoot") if isinstance(store, Mapping) else None
    return found if isinstance(found, str) else None


def _no_answer(name: str, why: str) -> AnswerFact:
    return AnswerFact(why=f"{name.lstrip('@')}: {why}", settle=_settle(name, None))


def _settle(name: str, error: SourceError | None) -> str:
    """The command that settles it: the error's own where it is one."""
    hint = error.hint if error is not None else ""
    if hint.startswith(("sudo ", "systemctl ", "curl ", "podman ")):
        return one_line(hint, 200)
    return _SETTLE.get(name) or _SETTLE.get(f"{name.partition('.')[0]}.ping", "")
