"""GPU memory of a model as seen when it loaded: what the card held after, less what it held before (pure).

Only a load that stands alone tells: one model became READY, no other was loading, unloading or gone meanwhile, no
other version of it served, and the server answered throughout. In-process back ends share one process, so nothing else
tells who holds what; most do not report `memory_usage`.
"""

from __future__ import annotations

from msgspec import Struct

from console.core.model import GpuBox, ModelKey, ModelRow, Snapshot

SETTLED = 3.0
"""Seconds without any change of the model list after which the card's memory is that of the new list."""
LEAST = 1 << 20
"""Bytes below which a difference is noise, not a model."""


class _Calm(Struct, frozen=True):
    """A moment at which nothing was loading: who served and what the card held."""

    served: frozenset[ModelKey]
    held: int


class LoadMemory:
    """Fed with each Snapshot; `seen` holds bytes by model version."""

    def __init__(self) -> None:
        self.seen: dict[ModelKey, int] = {}
        self._calm: _Calm | None = None
        self._served: frozenset[ModelKey] | None = None
        self._since = 0.0

    def learn(self, snapshot: Snapshot, rows: tuple[ModelRow, ...]) -> None:
        """Take a moment in. Rows of an index that does not answer are old: the server may hold nothing any more."""
        if snapshot.index.error is not None:
            self._calm = self._served = None
            return
        served = frozenset(row.key for row in rows if row.state == "READY")
        moving = any(row.state in ("LOADING", "UNLOADING") for row in rows)
        if served != self._served or moving:
            self._served, self._since = served, snapshot.mono
            return
        held = _held(snapshot.gpu.value)
        taken = snapshot.gpu.mono
        if held is None or taken is None or taken - self._since < SETTLED or snapshot.gpu.error is not None:
            return
        if self._calm is not None and served != self._calm.served:
            self._judge(self._calm, served, held)
        self._calm = _Calm(served, held)

    def _judge(self, before: _Calm, served: frozenset[ModelKey], held: int) -> None:
        for gone in before.served - served:
            self.seen.pop(gone, None)
        new = served - before.served
        if len(new) != 1 or before.served - served:
            return
        (key,) = new
        if not any(other.name == key.name for other in before.served) and held - before.held >= LEAST:
            self.seen[key] = held - before.held


def _held(box: GpuBox | None) -> int | None:
    """Bytes held by processes in containers on all cards; None where a card or a process does not tell."""
    if box is None or not box.gpus:
        return None
    total = 0
    for gpu in box.gpus:
        if gpu.lost is not None or gpu.processes is None:
            return None
        for process in gpu.processes:
            if process.memory is None:
                return None
            total += process.memory if process.in_container else 0
    return total
