"""What follows from what, as a report tells it."""

from __future__ import annotations

from console.core.finding import Cause, Deed, Fix, Report


def test_a_finding_of_two_causes_follows_from_the_weightiest() -> None:
    causes = (Cause("A06", "t", "sure", consequences=("B07", "E01")), Cause("I02", "t", "sure", consequences=("E01",)))
    assert Report(causes=causes).follows() == {"B07": "A06", "E01": "A06"}


def test_what_the_console_can_do_itself() -> None:
    assert not Fix("S", ("reboot",)).can_be_applied
    assert Fix("B", (), deeds=(Deed("run", ("true",)),)).can_be_applied
    assert Fix("P", (), action="container.recreate").can_be_applied
