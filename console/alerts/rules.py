"""The alert rules: what is measured, how it is said, how bad it is. Their limits stand in the settings ([alerts])."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from console.alerts import measure
from console.alerts.measure import Measure
from console.config import Alerts
from console.core.sign import Sign
from console.core.threshold import Threshold, threshold


class Rule(Struct, frozen=True):
    """One kind of alert."""

    key: str
    """Its name in [alerts]."""
    says: str
    """What is wrong, without figures that move: the same cause is then the same event."""
    sign: Sign
    measure: Measure


RULES: tuple[Rule, ...] = (
    Rule("not_serving", "nothing is served", "fail", measure.not_serving),
    Rule("not_ready", "{subject} does not serve", "fail", measure.not_ready),
    Rule("gpu_lost", "{subject} is lost", "fail", measure.lost),
    Rule("xid", "{subject} reports Xids", "fail", measure.xids),
    Rule("oom", "the kernel kills processes for memory", "fail", measure.oom),
    Rule("restarts", "the container restarts by itself", "fail", measure.restarts),
    Rule("fail_per_s", "requests of {subject} fail ({limit:g}/s or more)", "fail", measure.failures),
    Rule("p99_ms", "{subject} is slow at the tail (p99 {limit:g} ms or more)", "warn", measure.p99),
    Rule("queue_ms", "requests of {subject} wait {limit:g} ms or more", "warn", measure.queue),
    Rule("throttle_pct", "{subject} is slowed by heat ({limit:g} % of the time or more)", "warn", measure.throttle),
    Rule("temperature_c", "{subject} is at {limit:g} °C or more", "warn", measure.temperature),
    Rule("vram_pct", "{subject} has its memory {limit:g} % full or more", "warn", measure.vram),
    Rule("disk_pct", "{subject} is {limit:g} % full or more", "warn", measure.disk),
)
"""The worst first."""


def thresholds(settings: Alerts) -> Mapping[str, Threshold]:
    """Key of each rule that is on -> its threshold. The settings were looked at when they were read."""
    found = {rule.key: threshold(getattr(settings, rule.key), rule.key) for rule in RULES}
    return {key: one for key, one in found.items() if one is not None}
