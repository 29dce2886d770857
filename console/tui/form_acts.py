"""The keys that open a form: what they are about is captured at the key press; nothing is sent from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from console.tui.acts import Act, Pull, container_here

if TYPE_CHECKING:
    from console.core.form import About
    from console.tui.app import ConsoleApp


def open_form(app: ConsoleApp, about: About, target: str) -> None:
    """Show the form for this."""
    from console.tui.screens.form import FormScreen

    app.go("form")
    if isinstance(app.box, FormScreen):
        app.box.begin(about, target)


class Change(Act):
    """Change the container and recreate it (image, ports, mode, limits, environment, flags); create where none is."""

    ID, KEYS, LABEL, SCOPE, KIND = "container.change", ("c",), "change and recreate", "container", "form"

    def run(self, app: ConsoleApp) -> None:
        found = container_here(app)
        open_form(app, "container", "" if found is None else found.name)


class Create(Change):
    """Create a container, with sane defaults to start from."""

    ID, LABEL, SCOPE = "bring_up.create", "create", "bring_up"


class PullHere(Pull):
    """Pull an image (asks which, then the plan)."""

    ID, SCOPE = "bring_up.pull", "bring_up"


class Unit(Act):
    """Unit: the one that fits this container, its difference to what is installed; write it by a plan."""

    ID, KEYS, LABEL, SCOPE, KIND = "container.unit", ("U",), "unit", "container", "form"

    def why_not(self, app: ConsoleApp) -> str | None:
        return "there is no Triton container here" if container_here(app) is None else None

    def run(self, app: ConsoleApp) -> None:
        found = container_here(app)
        if found is not None:
            open_form(app, "unit", found.name)


class ChangeGpu(Act):
    """Change the card: persistence, clock lock, power limit, compute mode."""

    ID, KEYS, LABEL, SCOPE, KIND = "gpu.change", ("c",), "change", "gpu", "form"
    NONE: ClassVar[str] = "there is no GPU here whose settings could be changed"

    def why_not(self, app: ConsoleApp) -> str | None:
        return self.NONE if self._card(app) is None else None

    def run(self, app: ConsoleApp) -> None:
        card = self._card(app)
        if card is not None:
            open_form(app, "gpu", card)

    def _card(self, app: ConsoleApp) -> str | None:
        """UUID (or, where it tells none, index) of the card in focus."""
        box = app.box.snapshot.gpu.value
        cards = box.gpus if box else ()
        if not cards:
            return None
        card = cards[min(app.gpu, len(cards) - 1)]
        return card.uuid or str(card.index)
