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

from msgspec import Struct
from msgspec.structs import replace

from console.clients import nvml, podman
from console.clients.tree import MAX_SPEC, MAX_TEXT, escaped, is_pattern
from console.core.facts import ANSWERS, VARIABLES, AnswerFact, CommandFact, Facts, FileFact, SpaceFact
from console.sources.facts_answers import LATE, Answers, no_answer
from console.sources.facts_host import Host
from console.sources.facts_masks import Masks

log = logging.getLogger(__name__)
DEADLINE = 1.8
"""Seconds after which what has not come is timed out. The whole of a collection is under 2 s."""
SLOW_DEADLINE = 4.0
"""The same with samples over time."""
COMMAND_LIMIT = 1.5
"""Seconds that a program may take."""
READERS = 2
"""Threads that read files; more are started while these hang. Python runs one at a time, so more would only wait."""
MAX_READERS = 40
HANGS_AFTER = 0.2
"""Seconds without an end of any read after which the readers are doubled."""
MAX_VALUES = 500
"""Ways to fill in the variables of one need."""
_VARIABLE = re.compile(r"\{(" + "|".join(VARIABLES) + r")\}")


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
        self.headers = tuple(host.settings.triton.headers.values())
        self.masks = Masks(self.headers)
        self.stop = threading.Event()
        self.wall, self.began = host.wall, time.monotonic()
        self.end = self.began + (deadline or (SLOW_DEADLINE if slow else DEADLINE))
        self.files: dict[str, FileFact] = {}
        self.commands: dict[str, CommandFact] = {}
        self.answers: dict[str, AnswerFact] = {}
        self.spaces: dict[str, SpaceFact] = {}
        self.asked = Answers(host, slow, self.left, self.stop)
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
        info = "@podman.info" in self.needs or any("{graph_root}" in need for need in self.needs)
        self.asked.ask_for_variables(info)
        for future in self.asked.variables.values():
            future.add_done_callback(lambda _: self._one_ended())
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
            values = [self.asked.variables[name].result(self.left()) or () for name in sorted(names)]
            for filled in itertools.islice(itertools.product(*values), MAX_VALUES):
                for need in needs:
                    self._take(need, dict(zip(sorted(names), filled, strict=True)))

        self._start(_Task(work, lambda why: None))

    def _wait(self) -> None:
        """Until all tasks have ended or the time is over; readers that hang are replaced meanwhile."""
        read, since = -1, time.monotonic()
        while time.monotonic() < self.end:
            with self.ended:
                variables = all(future.done() for future in self.asked.variables.values())
                if variables and all(task.done for task in self.tasks):
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
            self.asked.values(),
        )
        masked = Masks([*self.headers, *self.asked.words()], forms=False).facts(found)
        return replace(masked, seconds=round(time.monotonic() - self.began, 3))

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
        self._one_ended()

    def _one_ended(self) -> None:
        with self.ended:
            self.ended.notify_all()

    # ------------------------------------------------------------------------------------------------------------ needs

    def _take(self, need: str, values: Mapping[str, str]) -> None:
        if need.startswith("$ "):
            words = _filled(need[2:], values, shlex.quote)
            self._start(_Task(lambda: self._run(words), lambda why: self._put_command(words, CommandFact(why=why))))
        elif need.startswith("@"):
            self._start(
                _Task(lambda: self._answer(need), lambda why: self._put_answer(need, no_answer(need, why))),
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
            kind, _, template = need.partition(" ") if need.startswith("stat ") else ("text", "", need)
            self._take_files(template, values, kind)

    def _take_files(self, template: str, values: Mapping[str, str], kind: str) -> None:
        """`kind`: text or stat."""
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
        fact = self.host.tree.look(path, text=kind == "text", most=most)
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
            self.files[path] = better

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
        self._put_answer(name, self.masks.answer(self.asked.fact(name)))

    def _put_answer(self, name: str, fact: AnswerFact) -> None:
        self.answers[name] = fact


def _checked(need: str) -> None:
    """ValueError for a need that no collection can bring: a fault of the check that has it."""
    if need.startswith("@"):
        good = need in ANSWERS
    elif need.startswith("$ "):
        good = bool(need[2:].strip())
    else:
        path = re.sub(r"^(stat|find|space) ", "", need)
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
    told = 3 if fact.text is not None else 2 if fact.names is not None else 1
    return told if fact.kind != "unknown" else 0, fact.target is not None
