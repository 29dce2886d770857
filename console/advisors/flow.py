"""Verdicts about where a request's time goes: V12, V15, V17 to V27, V31, V32.

They exclude each other; verdicts.toml holds their order. A figure that is not known makes a rule not match.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.advisors.figures import Figures, delay_text, plain, words
from console.advisors.rule import Look, flow_rule, flow_verdict
from console.core import units
from console.core.model import Event, GpuState, Verdict
from console.core.text import one_line

EVENT_LENGTH = 80
FAILURE_REASONS = ("BACKEND", "REJECTED", "CANCELED", "OTHER")


def streams(figures: Figures) -> bool:
    """True for models whose counted times are not those of their answers (V37)."""
    return figures.config is not None and figures.config.decoupled


# --------------------------------------------------------------------------------------------------- failing, refusing


@flow_rule("V12")
def failing(look: Look, figures: Figures) -> Verdict | None:
    """Triton counts failures, and says of which kind."""
    entry, window = look.entry("V12"), figures.window
    if window.failed <= 0:
        return None
    share = window.failed / figures.requests
    if window.success and share < entry.limit("share"):
        return None
    reason = _failure_reason(figures)
    policy = figures.config.queue.timeout_us if figures.config else 0
    text = f" (policy {delay_text(policy)})" if policy else ""
    title = entry.say(reason, policy=text, **words(figures))
    counts = entry.say("all") if not window.success else entry.say("some", pct=_percent(share))
    return flow_verdict(look, figures, "V12", title, [counts, entry.say(f"{reason}_line")])


def _percent(share: float) -> str:
    return units.percent(share) if share >= 0.1 else f"{100 * share:.1f}"


def _failure_reason(figures: Figures) -> str:
    """The reason that most failures of the last 30 s have; OTHER where the metrics page does not tell."""
    counts = figures.row.metrics.failures if figures.row.metrics else ()
    rates = {one.reason: one.rate30 or 0.0 for one in counts}
    most = max(rates, key=lambda reason: rates[reason], default="OTHER")
    return most if most in FAILURE_REASONS and rates.get(most, 0) > 0 else "OTHER"


@flow_rule("V15")
def queue_limit(look: Look, figures: Figures) -> Verdict | None:
    """The queue reaches its limit, so Triton refuses and counts nothing."""
    entry = look.entry("V15")
    samples = figures.pending[-int(entry.limit("samples")) :]
    reached = [
        sample for sample in samples if figures.queue_limit > 0 and sample >= entry.limit("share") * figures.queue_limit
    ]
    if not reached:
        return None
    title = entry.say(
        "title",
        P_max=units.whole(max(reached)),
        n=len(reached),
        of=len(samples),
        limit=figures.queue_limit,
        m=figures.label,
    )
    lines = [entry.say("line")]
    if figures.busy is not None and figures.busy < entry.limit("idle_busy"):
        lines.append(entry.say("idle", **words(figures)))
    return flow_verdict(look, figures, "V15", title, lines)


# --------------------------------------------------------------------------------------------------- instances are full


@flow_rule("V17")
def at_cap(look: Look, figures: Figures) -> Verdict | None:
    """Full batches on busy instances: no room left under these settings."""
    entry, m, b, busy = look.entry("V17"), figures.max_batch, figures.batch, figures.busy
    if streams(figures) or figures.config is None or not figures.config.dynamic_batching:
        return None
    if m is None or m <= 1 or b is None or busy is None:
        return None
    if b < entry.limit("full") * m or busy < entry.limit("busy"):
        return None
    waiting = entry.say("waiting", P=units.whole(figures.waiting)) if figures.waiting is not None else ""
    lines = []
    rise = _rise(figures.pending)
    if rise is not None and rise > entry.limit("rising") * figures.rate:
        lines.append(entry.say("rising", rise=units.rate(rise)))
    lines.append(_larger(look, figures, m))
    return flow_verdict(look, figures, "V17", entry.say("title", waiting=waiting, **words(figures)), lines)


def _rise(samples: Sequence[float]) -> float | None:
    """Requests a second by which the queue grows over the samples (one a second); None with fewer than 20."""
    if len(samples) < 20:
        return None
    return (sum(samples[-5:]) - sum(samples[:5])) / 5 / (len(samples) - 5)


def _larger(look: Look, figures: Figures, m: int) -> str:
    """Whether a full batch is cheaper per request than two half ones."""
    entry = look.entry("V17")
    full, half = figures.run_ms(m), figures.run_ms(m // 2)
    if full is None or half is None or m % 2:
        return entry.say("engine")
    case = "larger" if full <= (1 - entry.limit("larger_helps")) * 2 * half else "not_larger"
    return entry.say(case, M=m, s=units.millis(full), s_half=units.millis(half), half=m // 2)


@flow_rule("V18")
def batching_off(look: Look, figures: Figures) -> Verdict | None:
    """Requests queue up and are done one by one."""
    entry = look.entry("V18")
    if streams(figures) or figures.batching is not False or figures.instances is None:
        return None
    if figures.busy is None or figures.wait_ms is None or figures.compute_ms is None or figures.in_flight is None:
        return None
    if (
        figures.busy < entry.limit("busy")
        or figures.wait_ms < figures.compute_ms
        or figures.in_flight <= figures.instances + 1
    ):
        return None
    return flow_verdict(
        look, figures, "V18", entry.say("cannot" if figures.max_batch == 0 else "title", **words(figures))
    )


@flow_rule("V19")
def few_clients(look: Look, figures: Figures) -> Verdict | None:
    """The clients wait for answers before they ask again, and they are few."""
    entry = look.entry("V19")
    if (
        streams(figures)
        or figures.busy is None
        or figures.in_flight is None
        or figures.wait_ms is None
        or not figures.request_ms
    ):
        return None
    if figures.busy < entry.limit("busy") or not figures.instances:
        return None
    each = figures.in_flight / figures.instances
    if not entry.limit("least_per_instance") <= each <= entry.limit("in_per_instance"):
        return None
    if figures.wait_ms > entry.limit("wait_share") * figures.request_ms:
        return None
    return flow_verdict(look, figures, "V19", entry.say("title", **words(figures)), [entry.say("line")])


@flow_rule("V22")
def waits_for_instance(look: Look, figures: Figures) -> Verdict | None:
    """Busy instances with batches that are not full, and long waits."""
    entry = look.entry("V22")
    if streams(figures) or figures.busy is None or figures.wait_ms is None or figures.compute_ms is None:
        return None
    if figures.busy < entry.limit("busy") or figures.wait_ms < entry.limit("wait") * figures.compute_ms:
        return None
    memory = f", + {units.size(figures.row.memory)}" if figures.row.memory else ""
    lines = [entry.say("line", memory=memory)]
    return flow_verdict(look, figures, "V22", entry.say("title", **words(figures)), lines)


@flow_rule("V23")
def busy_with_room(look: Look, figures: Figures) -> Verdict | None:
    """Busy instances whose batches can still grow."""
    entry = look.entry("V23")
    if streams(figures) or figures.busy is None or figures.wait_ms is None or figures.compute_ms is None:
        return None
    if figures.busy < entry.limit("busy") or figures.wait_ms >= entry.limit("wait") * figures.compute_ms:
        return None
    top = figures.top(int(entry.limit("min_runs")), int(entry.limit("sizes")), entry.limit("reach"))
    single = not figures.batching
    inferences = figures.rate * figures.client_batch
    told = None if top is None or inferences <= 0 else max(1.0, top / inferences)
    if told is None:
        room = entry.say("unknown", largest=figures.largest)
    else:
        room = entry.say("single_room" if single else "room", times=f"{told:.1f}")
    title = entry.say("single" if single else "title", **words(figures))
    more = {"top": f"{units.rate(top)}/s"}
    return flow_verdict(look, figures, "V23", title, [room], trust=None if told else "cannot tell", more=more)


# --------------------------------------------------------------------------------------------------- waits with a delay


def delayed(look: Look, figures: Figures) -> bool:
    """True when the wait is what the delay makes, and not busy instances (V20, V21)."""
    entry = look.entry("V20")
    if (
        streams(figures)
        or not figures.delay_ms
        or figures.alone_ms is None
        or figures.wait_ms is None
        or figures.busy is None
    ):
        return False
    if figures.busy >= entry.limit("busy"):
        return False
    return entry.limit("least") * figures.alone_ms <= figures.wait_ms <= entry.limit("most") * figures.delay_ms


@flow_rule("V20")
def waits_for_nothing(look: Look, figures: Figures) -> Verdict | None:
    """A delay within which less than one request comes."""
    entry = look.entry("V20")
    if not delayed(look, figures) or figures.company is None or figures.company >= entry.limit("company"):
        return None
    return flow_verdict(
        look, figures, "V20", entry.say("title", **words(figures)), [entry.say("line", **words(figures))]
    )


@flow_rule("V21")
def waits_on_purpose(look: Look, figures: Figures) -> Verdict | None:
    """A delay that gathers batches: a note, and a warning soon after somebody changed it for the worse."""
    entry = look.entry("V21")
    if not delayed(look, figures) or figures.wait_ms is None or not figures.request_ms or figures.max_batch is None:
        return None
    event = _delay_changed(look, figures)
    warn = event is not None and figures.wait_ms >= entry.limit("wait_share") * figures.request_ms
    full = figures.batch is not None and figures.batch >= entry.limit("full") * figures.max_batch
    lines = [entry.say("filling" if full else "line", **words(figures))]
    if event is not None:
        lines.append(entry.say("since", clock=units.clock(event.wall), text=one_line(event.text, EVENT_LENGTH)))
    if not full:
        lines.append(entry.say("buys", **words(figures)))
    means = entry.means.format(share=units.percent(figures.wait_ms / figures.request_ms), B=plain(figures.batch))
    sign = "warn" if warn else "note"
    return flow_verdict(
        look,
        figures,
        "V21",
        entry.say("title", **words(figures)),
        lines,
        means=means,
        sign="warn" if sign == "warn" else "note",
    )


def _delay_changed(look: Look, figures: Figures) -> Event | None:
    """The newest change of this model's delay within the hour."""
    for event in reversed(look.snapshot.events):
        if look.wall - event.wall > look.entry("V21").limit("changed_s"):
            continue
        if event.kind == "config" and event.model == figures.row.name and "delay" in event.text:
            return event
    return None


# ------------------------------------------------------------------------------------------------------- something else


def _card_of(look: Look, figures: Figures) -> GpuState | None:
    """The card that the model's instances run on; None for models on the CPU, or when it does not answer."""
    box = look.fresh(look.snapshot.gpu)
    groups = figures.config.instance_groups if figures.config else ()
    if box is None or not any(group.kind in ("KIND_GPU", "KIND_MODEL") for group in groups):
        return None
    placed = [index for group in groups for index in group.gpus]
    cards = [gpu for gpu in box.gpus if gpu.lost is None and (not placed or gpu.index in placed)]
    return cards[0] if cards else None


@flow_rule("V25")
def gpu_idles(look: Look, figures: Figures) -> Verdict | None:
    """Busy instances on a card that does little."""
    entry, card = look.entry("V25"), _card_of(look, figures)
    if figures.busy is None or card is None or figures.busy < entry.limit("busy"):
        return None
    samples = look.history.values(f"gpu.{card.index}.util_pct", look.mono, 30)
    util = sum(samples) / len(samples) if samples else card.util_pct
    if util is None or util >= entry.limit("util_pct"):
        return None
    grounds, more = _cpu_grounds(look, figures)
    more["util"] = f"{units.whole(util)} %"
    title = entry.say("title" if grounds else "title_unknown", m=figures.label, util=units.whole(util))
    trust = None if grounds else "cannot tell"
    return flow_verdict(look, figures, "V25", title, grounds or [entry.say("unknown")], trust=trust, more=more)


def _cpu_grounds(look: Look, figures: Figures) -> tuple[list[str], dict[str, str]]:
    """What shows that the time goes on the CPU, and the figures for it."""
    entry, host, row = look.entry("V25"), look.fresh(look.snapshot.host), figures.row
    grounds: list[str] = []
    more: dict[str, str] = {}
    stubs = host.stub_cores.get(f"{row.name}/{row.version}") if host else None
    if stubs is not None and figures.instances:
        more["stub"] = f"{100 * stubs / figures.instances:.0f} %"
        if stubs / figures.instances >= entry.limit("stub_cores"):
            grounds.append(entry.say("stub", stub=f"{100 * stubs / figures.instances:.0f}"))
    if host is not None and host.cpu_pct is not None:
        more["cpu"] = f"{units.whole(host.cpu_pct)} %"
        if host.cpu_pct >= entry.limit("cpu_pct"):
            grounds.append(entry.say("cpu", cpu=units.whole(host.cpu_pct)))
    held = look.container.usage.throttled_share if look.container else None
    if held is not None and held >= entry.limit("throttled"):
        grounds.append(entry.say("throttled", pct=units.percent(held)))
    return grounds, more


@flow_rule("V26")
def waits_though_free(look: Look, figures: Figures) -> Verdict | None:
    """Requests wait all the time although instances are free, and no delay explains it."""
    entry, samples = look.entry("V26"), figures.pending
    if streams(figures) or figures.busy is None or figures.busy >= entry.limit("busy"):
        return None
    if figures.wait_ms is None or not figures.request_ms or delayed(look, figures):
        return None
    if len(samples) < entry.limit("samples") or figures.wait_ms < entry.limit("wait_share") * figures.request_ms:
        return None
    if sum(sample > 0 for sample in samples) < entry.limit("share") * len(samples):
        return None
    lines = [entry.say("line")]
    config = figures.config
    if config is not None:
        has = (
            (config.rate_limited, "rate"),
            (config.sequence_batching, "sequence"),
            (config.preserve_ordering, "order"),
            (config.priority_levels > 0, "priority"),
        )
        names = [entry.say(word) for here, word in has if here]
        if names:
            lines.append(entry.say("known", names=", ".join(names)))
    return flow_verdict(look, figures, "V26", entry.say("title", **words(figures)), lines)


@flow_rule("V27")
def copies(look: Look, figures: Figures) -> Verdict | None:
    """Copying inputs or outputs takes a large part of the time."""
    entry = look.entry("V27")
    parts = [(figures.input_ms, "inputs"), (figures.output_ms, "outputs")]
    known = [(ms, what) for ms, what in parts if ms is not None]
    if streams(figures) or not figures.request_ms or not known:
        return None
    ms, what = max(known)
    if ms < entry.limit("share") * figures.request_ms or ms < entry.limit("least_ms"):
        return None
    title = entry.say("title", m=figures.label, pct=units.percent(ms / figures.request_ms), what=entry.say(what))
    lines = []
    card, metrics = _card_of(look, figures), look.metrics
    if card is not None and card.pcie_width and card.pcie_width_max and card.pcie_width < card.pcie_width_max:
        lines.append(entry.say("pcie", gpu=card.index, width=card.pcie_width, max=card.pcie_width_max))
    if metrics is not None and metrics.pinned_total and metrics.pinned_used is not None:
        used = metrics.pinned_used / metrics.pinned_total
        if used >= entry.limit("pool_share"):
            lines.append(entry.say("pool", pct=units.percent(used)))
    return flow_verdict(look, figures, "V27", title, lines or [entry.say("unknown")])


@flow_rule("V31")
def model_itself(look: Look, figures: Figures) -> Verdict | None:
    """Most of the time is the model's own."""
    entry = look.entry("V31")
    if (
        streams(figures)
        or figures.compute_ms is None
        or not figures.request_ms
        or figures.compute_ms < entry.limit("share") * figures.request_ms
    ):
        return None
    return flow_verdict(look, figures, "V31", entry.say("title", **words(figures)), [entry.say("line")])


@flow_rule("V24")
def waits_at_peaks(look: Look, figures: Figures) -> Verdict | None:
    """Room on the mean, waits all the same."""
    entry = look.entry("V24")
    if streams(figures) or figures.busy is None or figures.wait_ms is None or not figures.request_ms:
        return None
    if not entry.limit("busy") <= figures.busy < entry.limit("busy_below"):
        return None
    if figures.wait_ms < entry.limit("wait_share") * figures.request_ms:
        return None
    return flow_verdict(look, figures, "V24", entry.say("title", **words(figures)))


@flow_rule("V32")
def nothing_stands_out(look: Look, figures: Figures) -> Verdict | None:
    """All inputs are there and no rule matches. Said only then: a missing figure is no good news."""
    inputs = (
        figures.busy,
        figures.wait_ms,
        figures.compute_ms,
        figures.request_ms,
        figures.batch,
        figures.delay_ms,
        figures.waiting,
    )
    if streams(figures) or any(value is None for value in inputs) or not figures.pending:
        return None
    entry = look.entry("V32")
    return flow_verdict(look, figures, "V32", entry.say("title", **words(figures)), [entry.say("line")])
