"""What proposals come to: by the model where it holds, and nothing said where it does not."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from typing import Any

from msgspec.structs import replace

from console.core.model import ModelRow, Proposal
from console.planning.effect import effects
from tests.advisors.cases import config, row, window

SIZES = {size: (100, 12.0 + size) for size in range(1, 9)}


def model(rate: float, *, wait: float, batch: float, delay_us: int = 0, instances: int = 1, **other: Any) -> ModelRow:
    """A sleeping model of 12 + b ms a run, as it would stand in the table."""
    document = {
        "name": "m",
        "max_batch_size": 8,
        "dynamic_batching": {"max_queue_delay_microseconds": delay_us},
        "instance_group": [{"kind": "KIND_CPU", "count": instances}],
    }
    made = config(max_batch_size=8, delay_us=delay_us, instances=instances, raw=json.dumps(document), **other)
    busy = min(1.0, rate / batch * (12.0 + batch) / 1000 / instances)
    seen = window(rate=rate, wait=wait, batch=batch, compute=12.0 + batch, busy=busy, instances=instances, sizes=SIZES)
    return row(seen, made)


def proposal(**values: str) -> Proposal:
    return Proposal("do it", "because", "batching.set", "m", values)


def test_a_delay_that_gathers_nobody_is_seen_to_cost() -> None:
    (found,) = effects((model(20, wait=9.0, batch=1.2, delay_us=10_000),), (proposal(delay_us="0"),))
    assert found.helps == "yes"
    assert found.text.startswith("mean ")
    assert found.trust in ("good", "fair")


def test_what_would_not_keep_up_is_no_help() -> None:
    (found,) = effects(
        (model(110, wait=3.0, batch=2.0, instances=2),), (proposal(dynamic_batching="false", instances="1"),)
    )
    assert found.helps == "no"
    assert "more would come than it could serve" in found.text


def test_no_difference_is_none() -> None:
    (found,) = effects((model(20, wait=0.5, batch=1.05),), (proposal(max_queue_size="1000"),))
    assert found.helps == "cannot tell"


def test_each_has_the_effect_on_its_own_model() -> None:
    mine = model(20, wait=9.0, batch=1.2, delay_us=10_000)
    other = replace(mine, name="other", flow=None)
    asked = (
        replace(proposal(delay_us="0"), target="other"),
        replace(proposal(), action="gpu.clocks", target="0"),
        proposal(delay_us="0"),
    )
    found = effects((mine, other), asked)
    assert found[0].text == "not predicted: its traffic was not watched long enough"
    assert found[1].text == "not predicted: no model of it is at hand"
    assert found[2].helps == "yes"


def test_where_the_batcher_model_does_not_hold_nothing_is_said() -> None:
    (found,) = effects((model(20, wait=9.0, batch=1.2, sequence_batching=True),), (proposal(delay_us="0"),))
    assert found.helps == "cannot tell"
    assert found.text.startswith("not predicted: m batches sequences")


def test_who_gets_an_effect_from_the_helper_loads_no_numpy() -> None:
    """It comes as a pickle, and unpickling imports where the class is: numpy would stay in the console's memory."""
    told = base64.b64encode(pickle.dumps(effects((), (proposal(delay_us="0"),))))
    code = f"import base64, pickle, sys; pickle.loads(base64.b64decode({told!r})); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
