"""What a swap of versions will do, as data: which versions are served before, meanwhile and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from console.actions.model_look import ModelLook
from console.actions.model_probe import Kind
from console.clients import triton_config
from console.clients.triton_config import Policy, specific
from console.core.golden import Golden

WHOLE_CARD = frozenset({"vllm", "tensorrtllm"})
"""Back ends that take a share of the whole card when they start (0.9), so two copies do not fit on one."""

WayName = Literal["beside", "instances", "gap", "restart"]
"""beside: both versions in memory at their full count. instances: both, with 1 instance of each group meanwhile.
gap: the old one goes first. restart: the container is started anew with what is on disk."""


class Spec(Struct, frozen=True):
    """One swap. Kept in the journal, so a later process can finish or undo it; holds the configuration's secrets."""

    name: str
    old: int
    """Where unversioned requests go before."""
    new: int
    before: tuple[int, ...]
    """READY versions before, ascending; `after`: in the end."""
    after: tuple[int, ...]
    policy_before: Policy
    policy_after: Policy
    config: dict[str, Any]
    """The served configuration less its version policy and what the server had added."""
    warmup: list[dict[str, Any]] | None
    """`model_warmup` for the new version; None = as it was."""
    others: tuple[tuple[str, str], ...]
    """(model, version) of all other models that were READY."""
    needs: int | None = None
    """Bytes of card memory that the new version takes, where it is loaded only when they are free."""
    took: int | None = None
    """Bytes that the old version took on each card with all its instances; None = not known."""
    scale: float = 1.0
    """How much larger the new version's files are than the old one's."""
    container: str = ""
    lasting: str = ""
    """What a restart of the server will serve, in a sentence."""
    again: str = ""
    """What a restart of the server will do after the new version has crashed it, in a sentence."""

    @property
    def up(self) -> bool:
        """True when unversioned requests move the moment the new version is READY."""
        return self.new > self.old

    @property
    def beside(self) -> tuple[int, ...]:
        """Versions that are READY together in between."""
        return tuple(sorted({*self.before, self.new}))

    @property
    def going(self) -> tuple[int, ...]:
        """Versions that are dropped."""
        return tuple(version for version in self.before if version not in self.after)

    def override(self, policy: Policy, *, warm: bool = True, alone: bool = False) -> str:
        """The text for a load. Where the new version was loaded it is the same each time but for the policy, so
        nothing is loaded anew; without `warm` it is what ran before. `alone`: with 1 instance of each group, which
        Triton takes in place (domain facts 1.4)."""
        changes: dict[str, Any] = {} if self.warmup is None or not warm else {"model_warmup": self.warmup}
        if alone:
            changes["instance_group"] = [{**group, "count": 1} for group in self.config.get("instance_group") or ()]
        return triton_config.override(self.config, policy, **changes)

    @property
    def counts(self) -> tuple[int, ...]:
        """Instances of each group before."""
        return counts_in(self.config)

    def dumped(self) -> str:
        """For the journal."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def loaded(cls, text: str) -> Spec:
        """From the journal."""
        return msgspec.json.decode(text, type=cls)


def counts_in(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Instances of each group of a configuration as JSON; a group that names no count has 1."""
    groups = config.get("instance_group") or ()
    return tuple(int(group.get("count") or 1) for group in groups if isinstance(group, dict))


def spec_of(
    look: ModelLook,
    new: int,
    warmup: list[dict[str, Any]] | None,
    needs: int | None = None,
    *,
    restart: bool = False,
) -> Spec:
    """For a model that is served, and another version of it. After a restart what is on disk serves."""
    old = look.served
    assert old is not None
    before = look.ready
    if restart and look.from_disk is not None:
        after = look.from_disk
    elif new > old:
        after = tuple(sorted({*before, new} - {old}))
    else:
        after = tuple(sorted({version for version in before if version < new} | {new}))
    return Spec(
        name=look.name,
        old=old,
        new=new,
        before=before,
        after=after,
        policy_before=_policy(look, before),
        policy_after=_policy(look, after),
        config=triton_config.base(look.live, look.name),
        warmup=warmup,
        others=tuple(sorted(one for one in look.all_ready if one[0] != look.name)),
        needs=needs,
        container=look.container.name if look.container is not None else "",
        lasting=_lasting(look, after),
        again=_again(look, new),
    )


def listed(versions: tuple[int, ...]) -> str:
    """`1, 3`."""
    return ", ".join(str(version) for version in versions) or "none"


def _lasting(look: ModelLook, after: tuple[int, ...]) -> str:
    policy = look.disk_policy.text if look.disk_policy is not None else ""
    if look.from_disk is None:
        return "what a restart will serve is not known: config.pbtxt and the version folders cannot be seen from here"
    if look.from_disk == after:
        return f"a restart serves {listed(after)} too (policy on disk: {policy})"
    return (
        f"the change is live only: by its policy on disk ({policy}) a restart, or an unload and load, serves "
        f"{listed(look.from_disk)}"
    )


def _again(look: ModelLook, new: int) -> str:
    if look.from_disk is None or new not in look.from_disk:
        return ""
    return f"a restart loads {new} again from disk (policy {look.disk_policy.text if look.disk_policy else ''})"


def _policy(look: ModelLook, versions: tuple[int, ...]) -> Policy:
    """What the file says where that serves just these; else just these."""
    policy = look.disk_policy
    if policy is not None and look.from_disk == versions:
        return policy
    return specific(versions)


def warmup_of(look: ModelLook, golden: Golden | None) -> list[dict[str, Any]] | None:
    """A warm-up in the shapes of the kept question; None where it is of no use or cannot be made."""
    config = look.config
    if golden is None or not golden.inputs or config is None or config.warmup_samples or config.steps:
        return None
    inputs = [(i.name, i.datatype, i.shape) for i in golden.inputs]
    if any(not shape for _, _, shape in inputs):
        return None
    return triton_config.warmup(inputs, golden.batched, "gpuconsole")


def probe_kind(values: Mapping[str, str], golden: Golden | None, *, wanted: bool) -> Kind:
    """`probe` as asked for; else as the settings say."""
    told = values.get("probe", "")
    if told == "answer" or (not told and wanted and golden is not None):
        return "answer"
    if told == "form" or (not told and wanted):
        return "form"
    return "off"
