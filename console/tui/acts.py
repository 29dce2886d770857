"""The keys that change the box: each opens a plan, and nothing is sent before its Yes (design 2).

A command captures what stands under the cursor at the key press and asks by the action's name; which action that is, is
known in `console.actions` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from console.core.text import one_line
from console.tui.commands import Command, Kind
from console.tui.desk import Request
from console.tui.own_changes import saved_spec

if TYPE_CHECKING:
    from console.core.model import ContainerState, ModelKey
    from console.tui.app import ConsoleApp

TRACED = "100"
"""Requests that `T` traces."""


class Act(Command):
    """Base of all keys that open a plan."""

    KIND: ClassVar[Kind] = "plan"
    ACTION: ClassVar[str] = ""

    def why_off(self, app: ConsoleApp) -> str | None:
        return app.acting.why_off() or self.why_not(app)

    def why_not(self, app: ConsoleApp) -> str | None:
        """Why this thing cannot be acted on in this way."""
        return None


# ------------------------------------------------------------------------------------------------------------- models


def model_here(app: ConsoleApp) -> ModelKey | None:
    """The model under the cursor: its served version where one serves, else any; None without a model."""
    from console.core.model import ModelKey
    from console.tui.panes.models_list import VersionKey

    pane = app.pane
    if app.box.NAME == "models" and pane is not None and isinstance(app.box.panes["models-list"].cursor, VersionKey):
        key: VersionKey = app.box.panes["models-list"].cursor
        return ModelKey(key.model, key.version or "")
    return app.chosen_key()


def ready(app: ConsoleApp, model: str) -> list[str]:
    """Its READY versions, the smallest first."""
    rows = (row for row in app.box.snapshot.models if row.name == model and row.state == "READY")
    return sorted((row.version for row in rows if row.version and row.version.isdecimal()), key=int)


def serving(app: ConsoleApp, model: str) -> str | None:
    """The largest READY version of a model: the one that unversioned requests go to."""
    return next(reversed(ready(app, model)), None)


class ModelAct(Act):
    """Acts on the model under the cursor."""

    SCOPE = "models"
    VALUES: ClassVar[Mapping[str, str]] = {}

    def why_not(self, app: ConsoleApp) -> str | None:
        return "there is no model to act on" if model_here(app) is None else None

    def run(self, app: ConsoleApp) -> None:
        key = model_here(app)
        if key is not None:
            self.on_model(app, key)

    def on_model(self, app: ConsoleApp, key: ModelKey) -> None:
        """Ask for the plan."""
        app.acting.request(Request(self.ACTION, key.name, self.VALUES, self.identity(app, key)))

    def identity(self, app: ConsoleApp, key: ModelKey) -> Mapping[str, str]:
        """What the screen shows of it now, as its actions call it (model_look.identity)."""
        return {"ready": ",".join(ready(app, key.name))}


class Load(ModelAct):
    """Load the chosen model (plan first)."""

    ID, KEYS, LABEL, ACTION = "models.load", ("o",), "load", "model.load"


class Unload(ModelAct):
    """Unload the chosen model, with what depends on it (plan first)."""

    ID, KEYS, LABEL, ACTION = "models.unload", ("x",), "unload", "model.unload"


class Reload(ModelAct):
    """Reload the chosen model (plan first)."""

    ID, KEYS, LABEL, ACTION = "models.reload", ("r",), "reload", "model.reload"


class Swap(ModelAct):
    """Swap the version of the chosen model (asks which, then the plan)."""

    ID, KEYS, LABEL, ACTION = "models.swap", ("s",), "swap", "model.swap"

    def why_not(self, app: ConsoleApp) -> str | None:
        key = model_here(app)
        if key is None:
            return "there is no model to swap"
        if not others(app, key.name):
            return f"{one_line(key.name, 80)} has no other version: copy one into its folder first"
        return None

    def on_model(self, app: ConsoleApp, key: ModelKey) -> None:
        from console.tui.screens.versions import VersionDialog

        def chosen(version: str | None) -> None:
            if version:
                values = {**self.VALUES, "version": version}
                app.acting.request(Request(self.ACTION, key.name, values, self.identity(app, key)))

        app.push_screen(VersionDialog(app.box.snapshot, key.name, key.version, utc=app.utc), chosen)


class SwapHere(Swap):
    """Swap the version of the chosen model (asks which, then the plan)."""

    ID, SCOPE = "swap", "overview"


class BackToBefore(ModelAct):
    """Back to the version that served before, as the audit tells; else the next smaller on disk (plan first)."""

    ID, KEYS, LABEL, ACTION = "models.back", ("b",), "back", "model.back"

    def why_not(self, app: ConsoleApp) -> str | None:
        key = model_here(app)
        if key is None:
            return "there is no model to take back"
        name = one_line(key.name, 80)
        if serving(app, key.name) is None:
            return f"no version of {name} serves: o loads it"
        return None if others(app, key.name) else f"{name} has no other version on disk"


def others(app: ConsoleApp, model: str) -> list[str]:
    """Versions of a model that do not serve now."""
    snapshot = app.box.snapshot
    rows = {row.version or "": row.state for row in snapshot.models if row.name == model}
    disk = snapshot.repository.value.models if snapshot.repository.value else ()
    known = {str(one.version) for found in disk if found.name == model for one in found.versions} | set(rows)
    return sorted((one for one in known if one.isdecimal() and rows.get(one) != "READY"), key=int)


class KeepGolden(ModelAct):
    """Keep the model's question and its answer as the golden one (plan first)."""

    ID, KEYS, LABEL, ACTION = "models.keep", ("W",), "keep answer", "golden.keep"


class Trace(ModelAct):
    """Trace the next 100 requests of the chosen model (plan first)."""

    ID, KEYS, LABEL, ACTION = "models.trace", ("T",), f"trace {TRACED}", "trace.set"
    VALUES: ClassVar[Mapping[str, str]] = {"count": TRACED}


# ---------------------------------------------------------------------------------------------------------- container


def container_here(app: ConsoleApp) -> ContainerState | None:
    """The Triton container as it was read last."""
    podman = app.box.snapshot.container.value
    return None if podman is None else podman.container


def _none_here(app: ConsoleApp) -> str:
    podman = app.box.snapshot.container.value
    unit = podman.unit if podman is not None else None
    if unit is None:
        return "there is no Triton container here"
    return f"the container is gone; its unit makes it anew: o starts {one_line(unit.name, 80)}"


class ContainerAct(Act):
    """Acts on the Triton container."""

    SCOPE = "container"
    WANTS: ClassVar[str] = ""
    """`running`, `stopped`, or "" = any state."""

    def why_not(self, app: ConsoleApp) -> str | None:
        found = container_here(app)
        if found is None:
            return _none_here(app)
        running = found.state == "running"
        if self.WANTS == "running" and not running:
            return f"{one_line(found.name, 80)} does not run (it is {one_line(found.state, 40)}): o starts it"
        if self.WANTS == "stopped" and running:
            return f"{one_line(found.name, 80)} runs{self.first}"
        return None

    first = ""
    """What would have to be done first."""

    def run(self, app: ConsoleApp) -> None:
        found = container_here(app)
        if found is not None:
            identity = {"id": found.id[:12], "state": found.state}
            app.acting.request(Request(self.ACTION, found.name, {}, identity))


class Start(ContainerAct):
    """Start the container; one that is gone comes through its unit, or is made again as it was kept (plan first)."""

    ID, KEYS, LABEL, ACTION, WANTS = "container.start", ("o",), "start", "container.start", "stopped"
    first = " already"

    def why_not(self, app: ConsoleApp) -> str | None:
        return None if _saved(app) is not None or _unit(app) else super().why_not(app)

    def run(self, app: ConsoleApp) -> None:
        saved, unit = _saved(app), _unit(app)
        if unit:
            app.acting.request(Request(self.ACTION, unit))
        elif saved is None:
            super().run(app)
        else:
            name, spec = saved
            app.acting.request(Request("container.create", name, {"saved": spec}))


def _unit(app: ConsoleApp) -> str:
    """The unit of a container that is gone; "" where it is there, or no unit is known."""
    podman = app.box.snapshot.container.value
    gone = podman is not None and podman.container is None and podman.unit is not None
    return podman.unit.name if gone and podman is not None and podman.unit is not None else ""


def _saved(app: ConsoleApp) -> tuple[str, str] | None:
    """Name and kept specification of a container of ours that is gone; a unit makes its own anew."""
    podman = app.box.snapshot.container.value
    record = app.acting.own.saved
    if podman is None or podman.container is not None or podman.unit is not None or record is None:
        return None
    return record.intent.target.name, saved_spec(record)


class Stop(ContainerAct):
    """Stop the container (plan first)."""

    ID, KEYS, LABEL, ACTION, WANTS = "container.stop", ("x",), "stop", "container.stop", "running"


class Restart(ContainerAct):
    """Restart the container (plan first)."""

    ID, KEYS, LABEL, ACTION, WANTS = "container.restart", ("r",), "restart", "container.restart", "running"


class BackToKept(ContainerAct):
    """Back to the kept old container (plan first)."""

    ID, KEYS, LABEL, ACTION = "container.back", ("b",), "back to kept", "container.back"


class Remove(ContainerAct):
    """Remove the container; only a stopped one, and its name is typed (plan first)."""

    ID, KEYS, LABEL, ACTION, WANTS = "container.remove", ("X",), "remove (stopped)", "container.remove", "stopped"
    first = ": only a stopped one can be removed; x stops it"


class Pull(Act):
    """Pull an image (asks which, then the plan)."""

    ID, KEYS, LABEL, SCOPE, ACTION = "container.pull", ("P",), "pull", "container", "image.pull"

    def run(self, app: ConsoleApp) -> None:
        from console.tui.widgets.small_dialogs import Typed

        found = container_here(app)
        lines = ("The image with its tag, as in nvcr.io/nvidia/tritonserver:24.05-py3; nothing running is touched.",)
        dialog = Typed("Pull an image", lines, "image:", "" if found is None else found.image, "Plan")
        app.push_screen(dialog, lambda image: app.acting.request(Request(self.ACTION, image)) if image else None)


class Verbose(Act):
    """More log for 5 minutes, then back (plan first)."""

    ID, KEYS, LABEL, SCOPE, ACTION = "container.verbose", ("V",), "verbose 5 min", "container", "log.verbose"

    def run(self, app: ConsoleApp) -> None:
        found = container_here(app)
        app.acting.request(Request(self.ACTION, "" if found is None else found.name))


# --------------------------------------------------------------------------------------------------------- everywhere


class Undo(Act):
    """Undo my last change (in Timeline and the audit: the chosen one; in Tune: of this model); plan first."""

    ID, KEYS, LABEL = "undo", ("u",), "undo"

    def run(self, app: ConsoleApp) -> None:
        app.box.undo()


class Interrupt(Command):
    """Stop the running act and go back (asks); without one it says 'q quits'."""

    ID, KEYS, LABEL, KIND = "interrupt", ("ctrl+c",), "q quits", "plan"

    def run(self, app: ConsoleApp) -> None:
        if not app.acting.interrupt():
            app.notify("q quits", timeout=3, markup=False)


UNKEYED: tuple[tuple[str, str, str], ...] = (
    ("container.reload", "container", "Reload all models in place where the mode is explicit, else restart (plan)."),
    ("model.load_all", "server", "Load every model that is on disk (plan)."),
)
"""Actions without a key of their own: (name, what it is about, help); the palette has them."""


def run_unkeyed(app: ConsoleApp, action: str) -> None:
    """From the palette."""
    found = container_here(app)
    app.acting.request(Request(action, "" if found is None else found.name))
