"""A swap beside with 1 instance of each version meanwhile: for where both do not fit with all their instances.

Triton takes a change of the count in place: nothing is loaded anew and no request is lost (domain facts 1.4; 0 of 5 262
failed here, in three swaps of 3 instances). Where a Python model's folder can be written, its `__pycache__` makes
Triton load it anew for the first change after a load, beside itself: then one copy with 1 instance more is in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from console.actions.model_load import LoadEnd, load, ready_versions, wait_gone
from console.actions.swap_run import BACK_LIMIT, Swapper, Trouble
from console.actions.swap_spec import counts_in, listed
from console.clients import triton_config
from console.clients.triton_config import Policy, specific
from console.core import units
from console.core.model import SourceError

SHARE_WAIT = 15.0
"""Seconds for what instances give back: the load is answered when they have ended, and 1 instance serves meanwhile."""
FREE, GAVE = "free_before", "gave_back"
"""Kept: bytes that were free before the count went down, and what the instances gave back."""


class InstancesSwapper(Swapper):
    """Fewer instances, the new version beside, the old one goes, as many instances as before."""

    def _named(self) -> dict[str, Callable[[], None]]:
        return {**super()._named(), "lower": self._lower, "raise": self._raise}

    def _override(self, policy: Policy, *, warm: bool = True) -> str:
        return self.spec.override(policy, warm=warm, alone=True)

    def _lower(self) -> None:
        spec, run = self.spec, self.run
        with run.phase("lower"):
            if run.cancelled.is_set():
                raise Trouble("cancelled", "stopped by the operator")
            free = self._free()
            if FREE not in run.kept():
                run.keep(**{FREE: "" if free is None else str(free)})
            # without the warm-up: it would make Triton load the old version anew
            config = spec.override(specific(spec.before), warm=False, alone=True)
            self._judge_load(load(self.box, self.control, spec.name, config, run, self._patience()))
            self._counted(spec.old, (1,) * len(spec.counts))
        with run.phase("memory"):
            self._wait_for_share()

    def _wait_for_share(self) -> None:
        """The new version with 1 instance takes what is left of the old one with 1: what all of it took, less what the
        instances gave back, which is measured here."""
        took, before = self.spec.took, self.run.kept().get(FREE, "")
        if took is None or not before:
            self.run.note("what an instance takes is not known: nothing is waited for, the load tells")
            return

        def needs(free: int) -> int:
            return int(max(0, took - max(0, free - int(before))) * self.spec.scale)

        self._wait_for_memory(needs, SHARE_WAIT)
        free = self._free()
        if free is not None:
            gave = max(0, free - int(before))
            self.run.keep(**{GAVE: str(gave)})
            self.run.note(f"the instances gave back {units.size(gave)}, {units.size(free)} are free")

    def _raise(self) -> None:
        spec, run = self.spec, self.run
        with run.phase("raise"):
            if run.cancelled.is_set():
                raise Trouble("cancelled", "stopped by the operator")
            self._make_way(spec.going)
            config = spec.override(spec.policy_after)
            self._judge_load(load(self.box, self.control, spec.name, config, run, self._patience()))
            self._counted(spec.new, spec.counts)
            self.lines.append(f"{sum(spec.counts)} instances again")

    def _make_way(self, going: tuple[int, ...]) -> None:
        """Wait until a version that was dropped has ended, and its memory is back as far as that can be told. A back
        end may keep what it had for the next load, so memory that does not come back is no reason not to try."""
        spec = self.spec
        if not wait_gone(self.control, spec.name, going, self.run, BACK_LIMIT):
            self.run.note(f"{listed(going)} has not ended yet: requests in flight hold it")
        gave = self.run.kept().get(GAVE, "")
        if not gave:
            return
        needs = int(int(gave) * spec.scale)
        try:
            self._wait_for_memory(lambda _: needs, SHARE_WAIT)
        except Trouble as trouble:
            self.run.note(trouble.text)

    def _counted(self, version: int, wanted: tuple[int, ...]) -> None:
        """Trouble where the server does not have as many instances as it was told."""
        found = self._counts(version)
        if found != wanted:
            raise Trouble("wrong", f"the server has {listed(found)} instances, not {listed(wanted)}")

    def _counts(self, version: int) -> tuple[int, ...]:
        live = self.box.served_config(self.spec.name, str(version))
        return counts_in(triton_config.parsed(live, self.spec.name))

    # --------------------------------------------------------------------------------------------------------- back

    def _load_old(self) -> LoadEnd:
        """The old version with its old count: where it is gone it comes beside the new one, with 1 instance each; then
        the new one goes; then the count goes up."""
        spec = self.spec
        ready = ready_versions(self.control, spec.name)
        self.loaded = self.loaded or spec.new in ready
        for policy in self._way_back(ready):
            self.run.note(f"load {policy.text} with 1 instance")
            end = load(
                self.box,
                self.control,
                spec.name,
                spec.override(policy, warm=self.loaded, alone=True),
                self.run,
                max(BACK_LIMIT, self.settings.load_timeout),
                cancels=False,
            )
            if end.word != "ok":
                return end
        self._uncancelled(tuple(one for one in ready if one not in spec.before))
        end = self._sent_back(
            spec.override(spec.policy_before, warm=self.loaded), max(BACK_LIMIT, self.settings.load_timeout)
        )
        found = self._counts(spec.old) if end.word == "ok" else spec.counts
        if found != spec.counts:
            return LoadEnd("refused", end.seconds, f"it has {listed(found)} instances", (), end.ended)
        return end

    def _way_back(self, ready: tuple[int, ...]) -> list[Policy]:
        """Policies that are loaded with 1 instance of each, one after the other; none where the new version is not
        there."""
        spec = self.spec
        if spec.new not in ready:
            return []
        if set(spec.before) <= set(ready):
            return [spec.policy_before]
        return [specific(ready), specific({*ready, *spec.before}), spec.policy_before]

    def _uncancelled(self, going: tuple[int, ...]) -> None:
        """`_make_way`; on the way back a cancel ends only the waiting."""
        try:
            self._make_way(going)
        except SourceError as error:
            self.run.note(error.message)

    def _now(self) -> str:
        told = super()._now()
        try:
            counts = {version: self._counts(version) for version in ready_versions(self.control, self.spec.name)}
        except SourceError:
            return told
        return "; ".join((told, *(f"{version} with {instances(count)}" for version, count in counts.items())))


def instances(counts: tuple[int, ...]) -> str:
    """`1 instance`, `2 + 1 instances`."""
    return f"{' + '.join(str(count) for count in counts) or '?'} instance{'' if counts == (1,) else 's'}"
