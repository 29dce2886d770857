"""What may help a model whose requests wait: the field's rules of thumb, each where this box's figures bear it out.

Rules: S1 4.1, 6.4 and 6.6 (delays of 500 to 2000 µs; batches of 1 or 2: waiting is waste; batches at the cap: a larger
cap), and Triton's own optimisation guide (no preferred sizes but for TensorRT profiles; more instances overlap copies
with computing). What each would come to is told by the batcher model (planning/effect.py), never by the rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.advisors.figures import Figures
from console.advisors.proposal import proposes
from console.advisors.rule import Look
from console.core import units
from console.core.model import ModelConfig, Proposal, Verdict

TUNE = "3"
SHORT_US = 500
"""The short end of the field's rule for delays (S1 4.1)."""
SMALL = 2.0
"""Mean batch up to which waiting for company is waste (S1 6.6)."""


def _batching(figures: Figures, text: str, ground: str, values: dict[str, str], price: str = "") -> Proposal:
    return Proposal(text, ground, "batching.set", figures.row.name, values, TUNE, price)


@proposes("V20", "V21")
def shorter_delay(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Requests wait for company."""
    if figures is None or figures.config is None or figures.batch is None:
        return
    delay = figures.config.delay_us
    lonely = figures.batch <= SMALL
    ground = f"batches are {figures.batch:.1f} on the mean: " + (
        "waiting gathers next to nobody" if lonely else "what is gained by waiting is the card's time, not the users'"
    )
    if delay > SHORT_US:
        yield _batching(figures, f"shorten the delay to {SHORT_US} µs", ground, {"delay_us": str(SHORT_US)})
    price = "" if lonely else "more and smaller runs: the card is busier for the same requests"
    yield _batching(figures, "let no request wait for others (delay 0)", ground, {"delay_us": "0"}, price)


@proposes("V17")
def larger_batches(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Batches are full and instances busy."""
    if figures is None or not figures.max_batch or figures.config is None:
        return
    wider, config = figures.max_batch * 2, figures.config
    ground = f"runs are {figures.batch or 0:.1f} of {figures.max_batch}: more would fit into one"
    price = (
        f"an engine may be built for {figures.max_batch} at most: then the load is refused and the old one serves on"
    )
    values = {"max_batch_size": str(wider)}
    if config.preferred and max(config.preferred) <= figures.max_batch and _chosen(config):
        values["preferred"] = ""
        ground += "; its preferred sizes would hold batches at the old cap"
    yield _batching(figures, f"let batches grow to {wider}", ground, values, price)
    yield from one_more(look, verdict, figures)


@proposes("V22", "V24")
def one_more(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Requests wait for a free instance."""
    if figures is None or figures.instances is None or figures.config is None:
        return
    groups = figures.config.instance_groups
    if len(groups) != 1 or len(groups[0].gpus) > 1:
        return  # which of them is to grow is the operator's choice
    memory = figures.row.memory
    each = None if memory is None else memory // max(1, figures.instances)
    on_card = groups[0].kind != "KIND_CPU"
    price = ""
    if on_card:
        price = "takes card memory" + ("; how much is not known" if each is None else f": about {units.size(each)}")
        price += "; instances on one card also slow each other down"
    text = f"run one more instance ({groups[0].count} → {groups[0].count + 1})"
    ground = f"instances are {units.percent(figures.busy or 0)} % busy; this is changed in place, nothing is reloaded"
    yield _batching(figures, text, ground, {"instances": str(groups[0].count + 1)}, price)


@proposes("V18")
def batch_at_all(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Requests are done one by one while others wait."""
    if figures is None or figures.max_batch is None:
        return
    if figures.max_batch > 1:
        text = "put waiting requests together into batches (dynamic batching, delay 0)"
        ground = "with a delay of 0 nobody waits longer for it: a batch is what has come while the instances were busy"
        yield _batching(figures, text, ground, {"dynamic_batching": "true", "delay_us": "0"})
    yield from one_more(look, verdict, figures)


@proposes("V15")
def no_refusals(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """The queue's limit refuses requests."""
    if figures is None or not figures.queue_limit:
        return
    ground = (
        "a full queue was seen to leave the instance half idle (2.51.0: 46/s served with limit 64, 78/s without); a "
        "time-out sheds what is too old instead of what is new"
    )
    wait = figures.wait_ms
    timeout = max(1000, round(4 * (wait or 0) * 1000))
    if wait is not None:
        text = f"drop what has waited {units.millis(timeout / 1000)} ms instead of limiting the queue"
        values = {"max_queue_size": "0", "timeout_us": str(timeout)}
        yield _batching(figures, text, ground, values, "those requests fail after their wait, not at once")
    text = f"let {2 * figures.queue_limit} requests wait instead of {figures.queue_limit}"
    price = "who waits at the end of a longer queue waits longer"
    yield _batching(figures, text, ground, {"max_queue_size": str(2 * figures.queue_limit)}, price)


@proposes("V17", "V21", "V22", "V23")
def no_preferred_sizes(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Preferred sizes that are no profile of an engine."""
    config = figures.config if figures is not None else None
    if figures is None or config is None or not _chosen(config) or config.backend == "tensorrt":
        return
    sizes = ", ".join(map(str, config.preferred))
    ground = f"it prefers {sizes}: Triton's guide wants such sizes only where an engine has profiles for them"
    yield _batching(figures, "prefer no batch sizes", ground, {"preferred": ""})


@proposes("V19")
def more_clients(look: Look, verdict: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """The clients ask one after another."""
    ground = "the server is not what holds the requests up; a load test with more at once shows what it could do"
    yield Proposal("let the clients ask more at once", ground, key="L", target=verdict.model or "")


def _chosen(config: ModelConfig) -> bool:
    """Preferred sizes that somebody wrote: the server adds the largest batch by itself."""
    return bool(config.preferred) and config.preferred != (config.max_batch_size,)
