"""What a plan says of a stop: as long as clients keep their connections Triton waits for them."""

from __future__ import annotations

from console.actions.outage import OWN_CONNECTIONS, QUIET_STOP, Outage


def seen(connections: int | None, serving_after: float | None = 2.0) -> Outage:
    return Outage(True, serving_after=serving_after, connections=connections, drain=30)


def test_only_the_consoles_own_connections_hold_nothing_up() -> None:
    assert seen(OWN_CONNECTIONS).stop_s == QUIET_STOP
    assert seen(0).gap_s == QUIET_STOP + 2
    assert "nothing in flight" in seen(3).gap_words


def test_kept_connections_hold_the_stop_for_the_exit_time_out() -> None:
    assert seen(32).gap_s == QUIET_STOP + 30 + 2
    assert "32 are open now" in seen(32).gap_words
    assert "up to 35 s" in seen(32).gap_words


def test_what_is_not_known_is_said_and_the_longer_time_is_planned() -> None:
    assert seen(None).stop_s == QUIET_STOP + 30
    assert "not known" in seen(None).stop_words
    assert seen(32, None).gap_s is None
    assert Outage(False).gap_s == 0.0
