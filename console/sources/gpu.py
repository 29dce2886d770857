"""The GPU part: all cards of the box through NVML, once a second.

A card that is lost does not take the others with it, and the session is opened anew from time to time so that the
card is seen when it comes back. A session that ends (driver reloaded, library changed) fails the read; the poller
then opens the source again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import structs

from console.clients import nvidia_host
from console.clients.nvml import Absent, Nvml, Target
from console.clients.nvml_card import Card
from console.clients.proc import ProcReader
from console.core.model import Failure, GpuBox, GpuState

FIRST_REOPEN = 5.0
"""Seconds after a card was lost until NVML is opened anew; doubled up to `LAST_REOPEN` while it stays lost."""
LAST_REOPEN = 60.0

NOT_LISTED = Failure(
    "unavailable",
    "NVML lists this GPU no longer",
    "it was lost, reset or taken off the bus: the kernel log's Xid and NVRM lines tell which",
)


class GpuSource:
    """Source of `GpuBox`. Opened, read and closed by one thread."""

    name = "gpu"
    interval = 1.0

    def __init__(
        self,
        api: Any = None,
        root: str = "/",
        pcie_counters: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`api` stands in for the pynvml module; `root` for the host's `/`; `pcie_counters` costs 20 ms each."""
        self._root = root
        self._pcie_counters = pcie_counters
        self._clock = clock
        self._wall = wall
        self._nvml = Nvml(api, root)
        self._proc = ProcReader(root)
        self._cards: list[Card] = []
        self._unopened: set[int] = set()
        self._unopened_since: dict[int, float] = {}
        self._seen: dict[str, GpuState] = {}
        self._box = GpuBox()
        self._pause = FIRST_REOPEN
        self._reopen_at: float | None = None

    def open(self) -> None:
        """Begin an NVML session and find the cards. Raises SourceError: no card, no driver, mismatch, no right."""
        self._nvml.open()
        self._box = GpuBox(
            driver=self._version("nvmlSystemGetDriverVersion"),
            cuda=self._cuda(),
            nvml=self._version("nvmlSystemGetNVMLVersion"),
            pci_devices=nvidia_host.pci_devices(self._root),
        )
        self._find_cards()

    def read(self) -> GpuBox:
        """All cards now. Raises SourceError when the session has ended."""
        now = self._clock()
        if self._reopen_at is not None and now >= self._reopen_at:
            self._reopen_at = None
            self.close()
            self.open()
        unopened = [state for index in list(self._unopened) if (state := self._try_again(index)) is not None]
        live = [card.read(now) for card in self._cards]
        self._proc.keep_only(pid for card in self._cards for pid in card.pids)
        gpus = [*live, *unopened]
        self._seen.update({gpu.uuid: gpu for gpu in live if gpu.uuid is not None})
        gpus += self._no_longer_listed(gpus)
        self._plan_reopen(now, any(gpu.lost is not None for gpu in gpus))
        return structs.replace(self._box, gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)))

    def close(self) -> None:
        """End the session."""
        self._nvml.close()
        self._cards = []
        self._unopened = set()

    def _find_cards(self) -> None:
        count = self._nvml.count()
        if count == 0 and not self._seen:
            raise self._nvml.no_card()
        self._cards = []
        self._unopened = set(range(count))

    def _try_again(self, index: int) -> GpuState | None:
        """Open a card that is listed and not open; None when that goes well, else what is known about it."""
        target = self._nvml.device(index)
        if not isinstance(target, Target):
            return self._unopened_card(index, target)
        self._unopened.discard(index)
        self._unopened_since.pop(index, None)
        self._cards.append(
            Card(
                self._nvml,
                target,
                index,
                driver=self._box.driver,
                proc=self._proc,
                pcie_counters=self._pcie_counters,
                wall=self._wall,
                known=self._known(index),
            )
        )
        return None

    def _known(self, index: int) -> GpuState | None:
        return next((gpu for gpu in self._seen.values() if gpu.index == index), None)

    def _unopened_card(self, index: int, failure: Failure) -> GpuState:
        """A card whose handle cannot be had, with what was known about the one that had its index."""
        known = self._known(index) or GpuState(index)
        since = known.lost_wall if known.lost is not None else self._unopened_since.setdefault(index, self._wall())
        return structs.replace(known, lost=failure, lost_wall=since)

    def _no_longer_listed(self, gpus: list[GpuState]) -> list[GpuState]:
        """Cards seen before that are not among `gpus`, under a free index where theirs was given to another."""
        listed = {gpu.uuid for gpu in gpus}
        taken = {gpu.index for gpu in gpus}
        gone = []
        for uuid, known in self._seen.items():
            if uuid in listed:
                continue
            index = known.index if known.index not in taken else max(taken) + 1
            taken.add(index)
            since = known.lost_wall if known.lost is not None else self._wall()
            lost = known.lost or NOT_LISTED
            gone.append(structs.replace(known, index=index, lost=lost, lost_wall=since))
        self._seen.update({gpu.uuid: gpu for gpu in gone if gpu.uuid is not None})
        return gone

    def _plan_reopen(self, now: float, lost: bool) -> None:
        if not lost:
            self._reopen_at = None
            self._pause = FIRST_REOPEN
        elif self._reopen_at is None or now >= self._reopen_at:
            self._reopen_at = now + self._pause
            self._pause = min(LAST_REOPEN, 2 * self._pause)

    def _version(self, function: str) -> str | None:
        answer = self._nvml.query(self._nvml.system, function)
        return None if isinstance(answer, Absent) else str(answer)

    def _cuda(self) -> str | None:
        names = ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
        answer = self._nvml.first(self._nvml.system, *names)
        return None if isinstance(answer, Absent) else f"{answer // 1000}.{answer % 1000 // 10}"
