"""What may help a card that is full, hot, slowed down or shared (S1 6.4 and 6.5, made precise).

Nothing here is predicted: no model of a card's memory or heat is at hand. Each tells what it rests on, and its price.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.advisors.figures import Figures
from console.advisors.proposal import proposes
from console.advisors.rule import Look
from console.core import units
from console.core.model import GpuState, ModelRow, Proposal, Verdict

GPU, MODELS, CONTAINER, TUNE = "8", "2", "5", "3"


@proposes("V10")
def room(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """What gives memory back without a reload first: a reload is what does not fit."""
    rows = look.ready
    for row in rows:
        older = [one for one in rows if one.name == row.name and one is not row]
        if older and row.version is not None and all(int(row.version) > int(one.version or 0) for one in older):
            names = ", ".join(one.version or "?" for one in older)
            ground = f"versions {names} of {row.name} are READY beside {row.version}, each with a copy of its own"
            yield Proposal(
                f"serve {row.name} {row.version} alone: a version policy of one, and a reload", ground, key=MODELS,
                target=row.name, price=f"who asks for version {names} by number gets an error",
            )  # fmt: skip
    many = [row for row in rows if (row.instances or 0) > 1 and row.config is not None and _on_card(row)]
    for row in sorted(many, key=lambda one: -(one.memory or 0)):
        groups = row.config.instance_groups if row.config is not None else ()
        if len(groups) == 1 and len(groups[0].gpus) <= 1:
            each = None if row.memory is None else row.memory // max(1, row.instances or 1)
            told = "how much is not known" if each is None else f"about {units.size(each)}"
            yield Proposal(
                f"run {row.name} with one instance less ({groups[0].count} → {groups[0].count - 1})",
                f"done in place, so it needs no room beside itself; gives back {told}",
                "batching.set", row.name, {"instances": str(groups[0].count - 1)}, TUNE,
                "less can be served at once; a back end may keep the memory (onnxruntime's arena)",
            )  # fmt: skip
    model = next((row for row in rows if row.name == verdict.model), None)
    if model is not None and model.config is not None and model.config.max_batch_size > 1:
        half = model.config.max_batch_size // 2
        yield Proposal(
            f"let batches of {model.name} be {half} at most",
            "what a run needs beside the weights grows with its batch; halving the cap is tried before instances go",
            "batching.set", model.name, {"max_batch_size": str(half)}, TUNE,
            "it reloads the model, which does not fit beside itself now: free memory first, or restart with it on disk",
        )  # fmt: skip


def _on_card(row: ModelRow) -> bool:
    return row.config is not None and any(group.kind != "KIND_CPU" for group in row.config.instance_groups)


@proposes("V11")
def given_back(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Memory that a process keeps comes back with its end alone."""
    name = look.container.name if look.container else ""
    ground = "what a back end keeps after an unload is given back when the server's process ends"
    yield Proposal("restart the container", ground, "container.restart" if name else "", name, {}, CONTAINER,
                   "all its models are away meanwhile; the plan says for how long")  # fmt: skip


@proposes("V06")
def cooler(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """A card that slows itself down for heat is uneven; one held lower is even."""
    for gpu in _cards(look, verdict):
        if gpu.sm_mhz is None:
            continue
        yield Proposal(
            f"hold GPU {gpu.index} at {gpu.sm_mhz} MHz, what the heat leaves it now",
            "its clock goes up and down with the heat, and tails with it; held lower it is even. Air and fans first",
            "gpu.clocks", str(gpu.index), {"range": str(gpu.sm_mhz)}, GPU,
            "the mean may be slower where the heat would have allowed more; a reboot ends it",
        )  # fmt: skip


@proposes("V08")
def free_clocks(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Low clocks without a reason may be somebody's lock."""
    for gpu in _cards(look, verdict):
        yield Proposal(
            f"end a lock of GPU {gpu.index}'s clocks, if there is one",
            "low clocks at work without a reason given are what a lock looks like; NVML does not tell of locks",
            "gpu.clocks", str(gpu.index), {"range": "reset"}, GPU, "somebody may have locked them for a reason",
        )  # fmt: skip


@proposes("V09")
def alone(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Two programs on a card take turns."""
    ground = "programs on one card take turns, which shows in the tail; together at once only under MPS"
    yield Proposal("move the other program away, or let both run under MPS", ground, key=GPU,
                   price="MPS must be running before either starts")  # fmt: skip


def _cards(look: Look, verdict: Verdict) -> Iterator[GpuState]:
    """The cards that a verdict names by their index."""
    box = look.fresh(look.snapshot.gpu)
    for gpu in box.gpus if box else ():
        if gpu.lost is None and (len(box.gpus if box else ()) == 1 or f"GPU {gpu.index}" in verdict.title):
            yield gpu
