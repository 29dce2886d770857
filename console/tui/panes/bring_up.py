"""Bring-up (design 1.10): the steps from a bare card to a first answer, as far as the sources tell.

A state stands here only when a source or a check of the checklist says so. The commands of a step are those of the
checks' fixes, made for this very box. Nothing is remembered: after a reboot the box itself tells how far it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from console.core import units
from console.core.finding import Finding, Report
from console.core.model import Sign, Snapshot
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.gpu_memory import NO_DEVICE
from console.tui.panes.wording import sign, wrapped
from console.tui.widgets.cells import Line, left
from console.tui.widgets.lines import Row

STEP, STATE = 24, 54
_ON_BUS = re.compile(r"(?P<count>\d+) NVIDIA devices? (?:is|are) on the PCI bus")


@dataclass(frozen=True)
class Step:
    """One step: where it stands, what comes next, and what is known in full."""

    name: str
    sign: Sign
    state: str
    next: str = ""
    details: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """What a person may type, from the fixes of the checks that are not fit."""
    fix: str = ""
    """The check whose fix the console can apply; "" = none."""


CHECKS: tuple[tuple[str, ...], ...] = (
    ("A02", "A21"),
    ("A03", "A04", "A05", "A06", "A07", "A08", "A09", "A10", "A14", "A16", "A18", "A19", "G01", "G02"),
    ("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B14", "B15"),
    ("B01", "D01", "D04", "D05"),
    ("C01", "C02", "C03", "C04", "C05", "C09", "C10"),
    ("D07", "D08", "H05"),
    ("C07", "L02", "L03", "L04", "L07"),
    ("K01", "K02", "K03", "K04", "E13", "I02"),
    ("E01", "E03", "E07"),
)
"""The checks of each step, in the order in which they are mended."""


def wanted(snapshot: Snapshot) -> bool:
    """True while a card is on the bus (or a driver answers) and no server was ever seen."""
    if snapshot.serving.word not in ("NOTHING SERVES YET", "UNKNOWN") or snapshot.server.value is not None:
        return False
    podman = snapshot.container.value
    if not snapshot.server.tried or podman is None or podman.container is not None:
        return False
    return has_card(snapshot)


def has_card(snapshot: Snapshot) -> bool:
    """True when NVML lists a card or the PCI bus holds one."""
    return bool(on_bus(snapshot))


def on_bus(snapshot: Snapshot) -> int | None:
    """NVIDIA devices on the PCI bus; None when nothing tells. Without a driver only the error's sentence tells."""
    box, error = snapshot.gpu.value, snapshot.gpu.error
    if box is not None:
        return max(len(box.gpus), box.pci_devices or 0)
    if error is None:
        return None
    told = _ON_BUS.search(error.message)
    if told is not None:
        return int(told["count"])
    return 0 if NO_DEVICE in error.message else None


def steps(snapshot: Snapshot) -> tuple[Step, ...]:
    """The nine steps in order. A step that waits for an earlier one is `–`."""
    made: list[Step] = []
    for make, ids in zip(_STEPS, CHECKS, strict=True):
        made.append(_checked(make(snapshot, tuple(made)), snapshot.checks.value, ids))
    return tuple(made)


def _checked(step: Step, report: Report | None, ids: tuple[str, ...]) -> Step:
    """The step with what the checklist knows: a wrong check is its state, a fit one answers what no source can. What
    follows from an earlier step's cause waits for that step."""
    found = [one for id_ in ids if report is not None and (one := report.finding(id_)) is not None]
    wrong = sorted((one for one in found if one.sign in ("fail", "warn")), key=lambda one: one.sign != "fail")
    if not wrong or report is None:
        fit = next((one for one in found if one.sign in ("ok", "note")), None)
        if step.sign != "unknown" or fit is None:
            return step
        return replace(step, sign="ok", state=one_line(fit.text, 200), next="")
    follows = report.follows()
    roots = [one for one in wrong if follows.get(one.id, one.id) in (one.id, *ids)]
    first = (roots or wrong)[0]
    details = tuple(f"{one.id} {one_line(one.title, 100)}: {one_line(one.text, 300)}" for one in wrong)
    if not roots:
        before = _step_of(follows[first.id])
        if before > _step_of(first.id) and step.sign == "ok":
            return replace(step, state=one_line(first.text, 200))
        waits = f"after {before}" if before else f"after {follows[first.id]}, see 6"
        return Step(step.name, "none", one_line(first.text, 200), waits, (*details, *step.details))
    if step.sign == "none" and first.sign != "fail":
        return step  # it waits for an earlier step: a warning is of no use yet
    sign: Sign = "warn" if first.sign == "warn" and step.sign == "ok" else first.sign
    roots = [one for one in roots if follows.get(one.id, one.id) == one.id] or roots
    commands = tuple(dict.fromkeys(line for one in roots if one.fix is not None for line in one.fix.commands))
    fix = first.id if first.fix is not None and first.fix.can_be_applied else ""
    told = _next(commands, fix, roots)
    return Step(step.name, sign, one_line(first.text, 200), told, (*details, *step.details), commands, fix)


def _step_of(id_: str) -> int:
    """Number of the step that a check belongs to; 0 = none."""
    return next((number for number, ids in enumerate(CHECKS, 1) if id_ in ids), 0)


def _next(commands: tuple[str, ...], fix: str, wrong: list[Finding]) -> str:
    if fix:
        return f"f fix {fix} (plan first)"
    reboot = any(one.fix is not None and (one.fix.reboot or one.fix.kind == "R") for one in wrong)
    count = len(commands)
    told = f"y copy {count} command{'' if count == 1 else 's'}" if count else ""
    return f"{told}, reboot" if told and reboot else told


def _card(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    name, box, count = "card on the bus", snapshot.gpu.value, on_bus(snapshot)
    if box is not None and box.gpus:
        names = ", ".join(dict.fromkeys(one_line(gpu.name or "NVIDIA card", 60) for gpu in box.gpus))
        bus = one_line(box.gpus[0].pci_bus_id or "", 30)
        return Step(name, "ok", f"{names} at {bus}" if bus else names)
    if count is None:
        return Step(name, "unknown", "not told" if snapshot.gpu.tried else "not read yet")
    if not count:
        return Step(name, "fail", "no NVIDIA device", "lspci -d 10de:")
    return Step(name, "ok", f"{count} NVIDIA device{'' if count == 1 else 's'}")


def _driver(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    box, error = snapshot.gpu.value, snapshot.gpu.error
    if box is not None and box.driver and error is None:
        return Step("driver", "ok", f"{one_line(box.driver, 30)}, CUDA up to {one_line(box.cuda or '?', 12)}")
    if error is None:
        return Step("driver", "unknown", "not read yet")
    details = (one_line(error.message), one_line(error.hint)) if error.hint else (one_line(error.message),)
    return Step("driver", "fail", one_line(error.message, 200), "nvidia-smi; dmesg", details)


def _toolkit(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    name = "container toolkit, CDI"
    if before[1].sign != "ok":
        return Step(name, "none", "", "after 2")
    details = ("nvidia-ctk cdi list   shows the devices that Podman can give to a container",)
    return Step(name, "unknown", "not told by a source of this console", "nvidia-ctk cdi list", details)


def _podman(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    podman = snapshot.container.value
    if podman is None:
        return Step("podman", "unknown", "not read yet" if not snapshot.container.tried else _container_error(snapshot))
    if podman.socket is not None:
        return Step("podman", "ok", f"{one_line(podman.api_version or '', 20)} at {one_line(podman.socket, 80)}")
    details = tuple(f"{one_line(one.path, 120)}: {one_line(one.error or 'answers', 120)}" for one in podman.tried)
    start = "systemctl enable --now podman.socket"
    return Step("podman", "fail", "no socket answers", "start podman.socket", (*details, f"as root: {start}"))


def _selinux(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    if before[3].sign != "ok":
        return Step("SELinux", "none", "", "after 4")
    return Step("SELinux", "unknown", "not told by a source of this console", "getenforce")


def _image(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    podman = snapshot.container.value
    if before[3].sign != "ok" or podman is None:
        return Step("image", "none", "", "P pull, after 4")
    if not podman.images:
        return Step("image", "none", "no Triton image here", "P pull")
    names = ", ".join(one_line(name, 120).rsplit("/", 1)[-1] for name in podman.images)
    return Step("image", "ok", names, "", tuple(one_line(name) for name in podman.images))


def _models(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    repository = snapshot.repository
    if repository.value is None:
        why = one_line(repository.error.message, 200) if repository.error else "not read yet"
        return Step("models", "none", why, "a folder of models")
    count = len(repository.value.models)
    free = f", {units.size(repository.value.disk_free)} free" if repository.value.disk_free is not None else ""
    state = f"{count} model{'' if count == 1 else 's'} in {one_line(repository.value.path, 100)}{free}"
    return Step("models", "ok" if count else "warn", state)


def _container(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    podman = snapshot.container.value
    if podman is None or podman.container is None:
        return Step("container and unit", "none", "none", "c create, after 3 and 7")
    container = podman.container
    running = container.state == "running"
    unit = f", {one_line(container.unit, 60)}" if container.unit else ""
    state = f"{one_line(container.name, 60)} {one_line(container.state, 20)}{unit}"
    details = tuple(one_line(line) for line in podman.last_log[-4:])
    return Step("container and unit", "ok" if running else "fail", state, "" if running else "5 its log", details)


def _answer(snapshot: Snapshot, before: tuple[Step, ...]) -> Step:
    serving = snapshot.serving
    if serving.ready:
        return Step("first answer", "ok", f"{serving.ready} of {serving.of} models serve", "a ask once")
    error = snapshot.server.error
    details = (one_line(error.message),) if error else ()
    return Step("first answer", "none", units.NONE, "after 8", details)


def _container_error(snapshot: Snapshot) -> str:
    return one_line(snapshot.container.error.message, 200) if snapshot.container.error else "not told"


_STEPS: tuple[Callable[[Snapshot, tuple[Step, ...]], Step], ...] = (
    _card,
    _driver,
    _toolkit,
    _podman,
    _selinux,
    _image,
    _models,
    _container,
    _answer,
)


class BringUpList(Pane):
    """The nine steps."""

    FIELDS = ("gpu", "container", "repository", "server", "serving", "checks")
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.pinned = 1

    def title(self, view: View) -> Line:
        return (
            ("Bring-up", "title"),
            ("   shown instead of Overview while no server was ever seen on this box", "dim"),
        )

    def lines(self, view: View) -> list[Row]:
        state = max(20, min(STATE, view.width - STEP - 26))
        made = [Row(((f"    {left('STEP', STEP)}{left('STATE', state)}NEXT", "label"),))]
        for number, step in enumerate(steps(view.snapshot), 1):
            line: Line = (
                (f"{number} ", ""),
                sign(step.sign),
                (f" {left(step.name, STEP)}", ""),
                (left(left(step.state or units.NONE, state - 1), state), "" if step.state else "dim"),
                (step.next, "dim"),
            )
            made.append(Row(line, ("step", number)))
        return made


class BringUpStep(Pane):
    """All that is known about the step under the cursor."""

    FIELDS = ("gpu", "container", "repository", "server", "serving", "checks")
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.number = 1

    def title(self, view: View) -> Line:
        step = steps(view.snapshot)[self.number - 1]
        return ((f"{self.number} {step.name}", "title"),)

    def lines(self, view: View) -> list[Row]:
        step = steps(view.snapshot)[self.number - 1]
        lines = [part for text in (step.state, *step.details) if text for part in wrapped(text, view.width, most=6)]
        made = [Row(((line, ""),)) for line in dict.fromkeys(lines)]
        for command in step.commands:
            made += [Row(((part, "title"),)) for part in wrapped(one_line(command, 600), view.width)]
        if step.next:
            made.append(Row((("next  ", "label"), (step.next, ""))))
        return made or [Row((("nothing is known about this step yet", "dim"),))]

    def yank(self) -> str:
        step = steps(self.view.snapshot)[self.number - 1] if self.view else None
        return "\n".join(step.commands or (step.state, *step.details)) if step else ""

    def changes(self) -> object:
        return self.number
