"""What may help against a verdict: where it is said, where not, and that the console can do it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.actions import registry
from console.advisors.proposal import proposers_of
from console.advisors.table import table
from console.core.model import GpuBox, Proposal, Snapshot, Verdict
from console.core.registry import discover
from tests.advisors.cases import config, good, once, queue, row, snapshot, window
from tests.advisors.test_flow import FEW, FULL, ONE_BY_ONE, judge
from tests.advisors.test_gpu import GIB, box, card

DELAYED: dict[str, Any] = {"rate": 40, "batch": 1.4, "wait": 8.9, "compute": 15.0, "busy": 0.21}


def said(found: Verdict) -> list[tuple[str, dict[str, str]]]:
    return [(one.action, dict(one.values)) for one in found.proposals]


def of(snap: Snapshot, id_: str) -> Verdict:
    return next(one for one in once(snap) if one.id == id_)


# ------------------------------------------------------------------------------------------------------------ batching


def test_a_delay_that_gathers_nobody() -> None:
    found = judge({"delay_us": 10_000}, **DELAYED)
    assert found.id == "V20"
    assert said(found) == [("batching.set", {"delay_us": "500"}), ("batching.set", {"delay_us": "0"})]
    assert {one.price for one in found.proposals} == {""}
    assert {one.target for one in found.proposals} == {"m"}


def test_a_short_delay_can_only_be_ended() -> None:
    found = judge({"delay_us": 500}, rate=40, batch=1.0, wait=0.49, compute=1.0, busy=0.05)
    assert said(found) == [("batching.set", {"delay_us": "0"})]


def test_a_delay_that_gathers_batches_has_its_price() -> None:
    found = judge({"delay_us": 10_000}, rate=150, batch=4.1, wait=7.3, compute=16.0, busy=0.47)
    assert found.id == "V21"
    assert "the card is busier" in found.proposals[-1].price


def test_full_batches_may_grow() -> None:
    found = judge({"max_batch_size": 4}, **FULL)
    assert said(found) == [("batching.set", {"max_batch_size": "8"}), ("batching.set", {"instances": "2"})]
    assert "the old one serves on" in found.proposals[0].price


def test_preferred_sizes_do_not_hold_batches_at_the_old_cap() -> None:
    found = judge({"max_batch_size": 4, "preferred": (2, 4)}, **FULL)
    assert said(found)[0] == ("batching.set", {"max_batch_size": "8", "preferred": ""})
    assert said(found)[-1] == ("batching.set", {"preferred": ""})
    own = judge({"max_batch_size": 4, "preferred": (4,)}, **FULL)
    assert said(own)[0] == ("batching.set", {"max_batch_size": "8"})
    profiles = judge({"max_batch_size": 4, "preferred": (2, 4), "backend": "tensorrt"}, **FULL)
    assert ("batching.set", {"preferred": ""}) not in said(profiles)


@pytest.mark.parametrize(
    ("kind", "price"), [("KIND_CPU", ""), ("KIND_GPU", "takes card memory; how much is not known")]
)
def test_one_more_instance(kind: str, price: str) -> None:
    found = judge({"max_batch_size": 4, "kind": kind}, **{**FULL, "batch": 3.5})
    assert found.id == "V22"
    assert said(found) == [("batching.set", {"instances": "2"})]
    assert found.proposals[0].price.startswith(price)


def test_one_more_instance_on_several_cards_is_not_ours_to_choose() -> None:
    made = config(kind="KIND_GPU", max_batch_size=4)
    groups = (replace(made.instance_groups[0], gpus=(0, 1)),)
    seen = row(window(max_batch=4, **{**FULL, "batch": 3.5}), replace(made, instance_groups=groups), instances=1)
    assert of(snapshot(seen), "V22").proposals == ()


def test_batching_off() -> None:
    found = judge({"dynamic_batching": False}, **ONE_BY_ONE)
    assert said(found)[0] == ("batching.set", {"dynamic_batching": "true", "delay_us": "0"})
    assert said(judge({"dynamic_batching": False, "max_batch_size": 0}, **ONE_BY_ONE)) == [
        ("batching.set", {"instances": "2"})
    ]


def test_a_queue_that_refuses() -> None:
    seen = row(window(rate=50, wait=100.0, compute=30.0, busy=0.5), config(queue=queue(64)), pending=(64.0,) * 30)
    assert said(of(snapshot(seen), "V15")) == [
        ("batching.set", {"max_queue_size": "0", "timeout_us": "400000"}),
        ("batching.set", {"max_queue_size": "128"}),
    ]


def test_few_clients_want_no_setting() -> None:
    found = judge({"instances": 2}, **FEW)
    assert found.id == "V19"
    assert [(one.action, one.key) for one in found.proposals] == [("", "L")]


# ------------------------------------------------------------------------------------------------------------ the card


def test_a_full_card_gets_memory_back_before_anything_reloads() -> None:
    older = row(None, config(kind="KIND_GPU", instances=2), memory=12 * GIB, flow=None)
    newer = replace(older, version="2")
    found = of(box(card(memory_free=2 * GIB), models=(older, newer)), "V10")
    texts = [one.text for one in found.proposals]
    assert texts[0] == "serve m 2 alone: a version policy of one, and a reload"
    assert "run m with one instance less (2 → 1)" in texts
    assert texts[-1] == "let batches of m be 8 at most"
    assert found.proposals[1].ground == "done in place, so it needs no room beside itself; gives back about 6.0 GiB"
    assert "does not fit beside itself" in found.proposals[-1].price


def test_what_is_not_known_of_memory_is_said() -> None:
    model = row(None, config(kind="KIND_GPU", instances=2, max_batch_size=0), flow=None)
    found = of(box(card(memory_free=GIB), models=(model,)), "V10")
    assert [one.ground for one in found.proposals] == [
        "done in place, so it needs no room beside itself; gives back how much is not known"
    ]


def test_clocks() -> None:
    low = box(card(sm_mhz=1005, util_pct=80.0))
    assert said(of(low, "V08")) == [("gpu.clocks", {"range": "reset"})]
    two = (card(), replace(card(sm_mhz=1005, util_pct=80.0), index=1))
    seen = box(gpu=None, models=())
    seen = replace(seen, gpu=good("gpu", GpuBox("550.90.07", gpus=two, pci_devices=2)))
    assert [one.target for one in of(seen, "V08").proposals] == ["1"]


# ---------------------------------------------------------------------------------------------------------- conformance


def _every() -> list[Proposal]:
    """One of each kind, as the tests above make them."""
    return [
        *judge({"delay_us": 10_000}, **DELAYED).proposals,
        *judge({"max_batch_size": 4, "preferred": (2, 4)}, **FULL).proposals,
        *judge({"dynamic_batching": False}, **ONE_BY_ONE).proposals,
        *judge({"instances": 2}, **FEW).proposals,
        *of(box(card(sm_mhz=1005, util_pct=80.0)), "V08").proposals,
    ]


def test_the_console_has_what_is_proposed() -> None:
    actions = registry.find().by_name
    for one in _every():
        assert one.text
        assert one.ground
        if one.action:
            assert set(one.values) <= {field.name for field in actions[one.action].FIELDS}


def test_proposers_are_of_verdicts_and_tell_what_they_are_for() -> None:
    found = proposers_of(discover("console.advisors").modules)
    assert set(found) <= set(table().entries)
    assert all(proposer.__doc__ for proposers in found.values() for proposer in proposers)


def test_a_deed_stays_one_while_its_words_change() -> None:
    one = judge({"delay_us": 10_000}, **DELAYED).proposals[0]
    assert one.deed == replace(one, ground="batches are 1.5 on the mean").deed
    assert one.deed != replace(one, values={"delay_us": "0"}).deed
