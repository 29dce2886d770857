"""The screens that exist, by digit. A screen is one line here and one file; its key, tab and palette entry follow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from console.tui.screens.base import BoxScreen


class Entry(NamedTuple):
    """One screen: the digit that opens it ("" = none), its name and title, and where its class is."""

    digit: str
    name: str
    title: str
    module: str
    cls: str

    def load(self) -> type[BoxScreen]:
        """The screen's class (importing its file, which registers its commands)."""
        found: type[BoxScreen] = getattr(import_module(self.module), self.cls)
        return found


SCREENS: tuple[Entry, ...] = (
    Entry("1", "overview", "Overview", "console.tui.screens.overview", "OverviewScreen"),
    Entry("2", "models", "Models", "console.tui.screens.models", "ModelsScreen"),
    Entry("3", "tune", "Tune", "console.tui.screens.tune", "TuneScreen"),
    Entry("4", "load", "Load", "console.tui.screens.load", "LoadScreen"),
    Entry("5", "container", "Container", "console.tui.screens.container", "ContainerScreen"),
    Entry("6", "checks", "Checks", "console.tui.screens.checks", "ChecksScreen"),
    Entry("7", "timeline", "Timeline", "console.tui.screens.timeline", "TimelineScreen"),
    Entry("8", "gpu", "GPU", "console.tui.screens.gpu", "GpuScreen"),
    Entry("", "problems", "Problems", "console.tui.screens.problems", "ProblemsScreen"),
    Entry("", "why", "Why", "console.tui.screens.why", "WhyScreen"),
    Entry("", "bring_up", "Bring-up", "console.tui.screens.bring_up", "BringUpScreen"),
    Entry("", "compare", "Compare", "console.tui.screens.load", "CompareScreen"),
    Entry("", "audit", "Audit", "console.tui.screens.audit", "AuditScreen"),
    Entry("", "form", "Form", "console.tui.screens.form", "FormScreen"),
    Entry("", "help", "Help", "console.tui.screens.help", "HelpScreen"),
)
"""In the order of their digits. A screen without a digit has a key of its own and stands over the one it was opened
from; it is in no tab line."""


def entry(name: str) -> Entry:
    """The screen of that name; KeyError when there is none."""
    for one in SCREENS:
        if one.name == name:
            return one
    raise KeyError(name)
