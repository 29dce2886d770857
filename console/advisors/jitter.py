"""V40: a long tail that neither the delay nor the load explains, and who may make it (S1 6.5)."""

from __future__ import annotations

from collections.abc import Iterator

from console.advisors.figures import Figures
from console.advisors.gpu import cards, command_of, foreign
from console.advisors.proposal import proposes
from console.advisors.rule import Look, rule, verdict
from console.core import units
from console.core.finding import Finding
from console.core.model import Proposal, Verdict
from console.core.text import one_line

SUSPECTS = ("F01", "F02", "F04", "F07", "F08", "F11", "F12", "F18", "F19", "G06")
"""Checks whose warnings stop a box now and then: governor, energy preference, deep sleep, NUMA balancing, huge pages,
swap, interrupts, pressure, steal time, throttling."""
TEXT = 120


@rule("V40")
def jitter(look: Look) -> Iterator[Verdict]:
    """A tail far over the median on instances that have room."""
    entry = look.entry("V40")
    for figures in look.active:
        summary = {one.q: one.ms for one in figures.row.metrics.request_summary} if figures.row.metrics else {}
        p50, p99 = summary.get(0.5), summary.get(0.99)
        longest = max((one.ms_per_run for one in figures.window.batches), default=None)
        if not p50 or p99 is None or longest is None or figures.busy is None or figures.delay_ms is None:
            continue
        explained = p50 + figures.delay_ms + longest
        if figures.busy >= entry.limit("busy") or p99 < entry.limit("times") * p50 or p99 <= explained:
            continue
        suspects = [*_clocks(look), *_others(look), *_held(look), *_checks(look)]
        unread = entry.say("unread") if look.snapshot.checks.value is None else ""
        title = entry.say(
            "title", m=figures.label, times=f"{p99 / p50:.0f}", p99=units.millis(p99), p50=units.millis(p50)
        )
        yield verdict(
            look, "V40", title, [*(suspects or [entry.say("unseen")]), unread], model=figures.row,
            trust="likely" if suspects else None, source="nv_inference_request_summary_us",
            figures=f"p50 {units.millis(p50)}   p99 {units.millis(p99)}   longest run {units.millis(longest)} ms   "
            f"D {units.one(figures.delay_ms)} ms   busy {units.percent(figures.busy)} %",
        )  # fmt: skip


def _clocks(look: Look) -> Iterator[str]:
    entry = look.entry("V40")
    for gpu in cards(look):
        seen = look.history.values(f"gpu.{gpu.index}.sm_mhz", look.mono, entry.limit("clock_s"))
        if seen and max(seen) - min(seen) >= entry.limit("clock_share") * max(seen):
            yield entry.say("clock", gpu=gpu.index, low=f"{min(seen):.0f}", high=f"{max(seen):.0f}")


def _others(look: Look) -> Iterator[str]:
    ours = look.container.id if look.container else None
    for gpu in cards(look):
        others = [one for one in gpu.processes or () if foreign(one, ours)]
        if others:
            programs = "program" if len(others) == 1 else "programs"
            yield look.entry("V40").say(
                "others", n=len(others), programs=programs, gpu=gpu.index, command=command_of(others[0])
            )


def _held(look: Look) -> Iterator[str]:
    share = look.container.usage.throttled_share if look.container else None
    if share is not None and share >= look.entry("V40").limit("throttled"):
        yield look.entry("V40").say("held", pct=units.percent(share))


def _suspected(look: Look) -> Iterator[Finding]:
    report = look.snapshot.checks.value
    for one in report.findings if report else ():
        if one.id in SUSPECTS and one.sign in ("warn", "fail"):
            yield one


def _checks(look: Look) -> Iterator[str]:
    for one in _suspected(look):
        yield look.entry("V40").say("check", id=one.id, text=one_line(one.text, TEXT))


@proposes("V40")
def against_jitter(look: Look, found: Verdict, figures: Figures | None) -> Iterator[Proposal]:
    """Each suspect has its own remedy; which of them helps shows by trying one after another."""
    for one in _suspected(look):
        fixable = one.fix is not None and bool(one.fix.deeds or one.fix.action)
        yield Proposal(
            f"mend {one.id}: {one_line(one.title, TEXT)}", one_line(one.text, TEXT),
            "check.fix" if fixable else "", one.id, {}, "6",
        )  # fmt: skip
    for line in _clocks(look):
        yield Proposal("hold the clocks at what they never fell below", line.removeprefix("suspect: "), key="8",
                       price="the mean may be slower where heat and power would have allowed more")  # fmt: skip
    for line in _others(look):
        ground = f"{line.removeprefix('suspect: ')}; programs on one card take turns"
        yield Proposal("leave the card to Triton alone, or let both run under MPS", ground, key="8")
