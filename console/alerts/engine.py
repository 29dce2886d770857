"""Figures in, alerts out: each cause begins once and ends once, by hold time and hysteresis (pure but for its memory).

What is not known neither begins an alert nor ends one, and begins a hold time anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from console.alerts.measure import Moment, Restarts, Sample
from console.alerts.rules import RULES, Rule
from console.core.history import History
from console.core.model import Event, Sign, Snapshot
from console.core.threshold import Threshold

LISTED = 3
"""Causes of one rule that begin together and are events of their own; more of them are one event."""
ORIGIN = "(alert)"
KIND = "alert."
OVER = "alert.over"
Key = tuple[str, str]
"""Rule and subject: one cause."""


class Alert(Struct, frozen=True):
    """Something that is too much, since when, and how much."""

    rule: str
    subject: str
    sign: Sign
    text: str
    """What is wrong, without figures that move."""
    told: str
    """The newest figure in words."""
    value: float
    """The newest that is known."""
    limit: float
    since_wall: float
    """When it began to be so, not when the hold time was over."""

    @property
    def key(self) -> Key:
        """The cause."""
        return self.rule, self.subject


class Changed(Struct, frozen=True):
    """What began and ended with one look."""

    began: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()


class _Cause:
    """Memory of one cause."""

    __slots__ = ("alert", "since_mono", "since_wall")

    def __init__(self) -> None:
        self.alert: Alert | None = None
        self.since_mono: float | None = None
        """Since when it was seen to be too much, or, while an alert stands, no longer too much."""
        self.since_wall = 0.0


class Engine:
    """All rules that are on. `active` is what stands, the worst rule first."""

    def __init__(self, thresholds: Mapping[str, Threshold], rules: Sequence[Rule] = RULES) -> None:
        self._rules = tuple((rule, thresholds[rule.key]) for rule in rules if rule.key in thresholds)
        self._causes: dict[Key, _Cause] = {}
        self._restarts = Restarts()
        self.active: tuple[Alert, ...] = ()

    def look(self, snapshot: Snapshot, history: History) -> Changed:
        """What began and ended since the look before."""
        self._restarts.learn(snapshot)
        moment = Moment(snapshot, history, self._restarts)
        began: list[Alert] = []
        ended: list[Alert] = []
        for rule, limit in self._rules:
            samples = rule.measure(moment)
            if samples is None:
                for key in [key for key in self._causes if key[0] == rule.key]:
                    self._pause(key)
                continue
            for subject, sample in samples.items():
                self._step(rule, limit, subject, sample, snapshot, began, ended)
            ended += self._gone(rule, samples)
        places = {rule.key: place for place, (rule, _) in enumerate(self._rules)}
        active = [cause.alert for cause in self._causes.values() if cause.alert is not None]
        self.active = tuple(sorted(active, key=lambda one: (places[one.rule], one.since_wall, one.subject)))
        return Changed(tuple(began), tuple(ended))

    def _step(
        self,
        rule: Rule,
        limit: Threshold,
        subject: str,
        sample: Sample,
        snapshot: Snapshot,
        began: list[Alert],
        ended: list[Alert],
    ) -> None:
        key = (rule.key, subject)
        cause = self._causes.get(key)
        stands = cause is not None and cause.alert is not None
        if sample.value is None:
            self._pause(key)
            return
        turned = limit.over(sample.value) if stands else limit.reached(sample.value)
        if cause is None:
            if not turned:
                return
            cause = self._causes[key] = _Cause()
        if cause.alert is not None:
            cause.alert = Alert(
                rule.key,
                subject,
                rule.sign,
                cause.alert.text,
                sample.told,
                sample.value,
                limit.limit,
                cause.alert.since_wall,
            )
        if not turned:
            cause.since_mono = None
            if not stands:
                del self._causes[key]
            return
        if cause.since_mono is None:
            cause.since_mono, cause.since_wall = snapshot.mono, snapshot.wall
        if snapshot.mono - cause.since_mono < limit.hold_s:
            return
        cause.since_mono = None
        if cause.alert is not None:
            ended.append(cause.alert)
            del self._causes[key]
            return
        text = rule.says.format(subject=subject, limit=limit.limit)
        cause.alert = Alert(
            rule.key, subject, rule.sign, text, sample.told, sample.value, limit.limit, cause.since_wall
        )
        began.append(cause.alert)

    def _pause(self, key: Key) -> None:
        """Not known: a hold time begins anew, what stands goes on standing."""
        cause = self._causes.get(key)
        if cause is None:
            return
        cause.since_mono = None
        if cause.alert is None:
            del self._causes[key]

    def _gone(self, rule: Rule, samples: Mapping[str, Sample]) -> Iterator[Alert]:
        for key, cause in list(self._causes.items()):
            if key[0] == rule.key and key[1] not in samples:
                del self._causes[key]
                if cause.alert is not None:
                    yield cause.alert


def events_of(changed: Changed, wall: float) -> list[Event]:
    """For Timeline. Many causes of one rule that begin (or end) together are one event that names the first of them."""
    made: list[Event] = []
    for group in _by_rule(changed.began):
        first = group[0]
        if len(group) > LISTED:
            names = ", ".join(one.subject for one in group)
            text = f"alert: {first.text}, and {len(group) - 1} more"
            made.append(Event(wall, first.sign, text, ORIGIN, KIND + first.rule, detail=(names,)))
            continue
        made += [
            Event(wall, one.sign, f"alert: {one.text}", ORIGIN, KIND + one.rule, detail=(one.told,) if one.told else ())
            for one in group
        ]
    for group in _by_rule(changed.ended):
        more = f", and {len(group) - 1} more" if len(group) > LISTED else ""
        made += [
            Event(wall, "ok", f"over: {one.text}{more}", ORIGIN, OVER, marks_chart=False)
            for one in (group[:1] if more else group)
        ]
    return made


def _by_rule(alerts: Sequence[Alert]) -> list[list[Alert]]:
    groups: dict[str, list[Alert]] = {}
    for one in alerts:
        groups.setdefault(one.rule, []).append(one)
    return list(groups.values())
