"""Left pane of Container (design 1.8): what the container is, who owns it, and whether its image fits this driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.core import units
from console.core.model import ContainerState, GpuBox, PodmanState, UnitState
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.wording import labelled, long_age, not_read, paragraph, sign, wrapped
from console.tui.widgets.cells import Line, Segment, cut
from console.tui.widgets.lines import Row

_CUDA = re.compile(r"\bcuda>=(\d+(?:\.\d+)?)")
MODES = {
    "explicit": "explicit: load, swap and tune possible",
    "poll": "poll: no load, swap or tune; it follows its folder by itself, c changes that",
    "none": "none: no load, swap or tune; models change by a restart only, c changes that",
}
LAST_LINES = 6


class ContainerFacts(Pane):
    """The Triton container; where there is none: where it was looked for."""

    FIELDS = ("container", "gpu")
    AGE = "container"

    def title(self, view: View) -> Line:
        podman = view.snapshot.container.value
        name = podman.container.name if podman and podman.container else "container"
        return ((one_line(name, 80), "title"),)

    def lines(self, view: View) -> list[Row]:
        podman = view.snapshot.container.value
        if podman is None:
            return not_read("Podman", (view.snapshot.container,), view.width)
        if podman.container is None:
            return list(_none(podman, view.width))
        return list(_facts(podman.container, podman, view))


def _facts(box: ContainerState, podman: PodmanState, view: View) -> Iterator[Row]:
    yield _state(box, view)
    if box.state != "running":
        yield from _ended(box, view)
    started = f"   started {view.clock(box.started_wall)}" if box.started_wall else ""
    # what is made with --rm vanishes with its log when it stops: worth more room than how it was found
    last = "--rm" if box.auto_remove else f"by {box.found_by}"
    yield labelled("id", (one_line(box.id, 12)[:12], ""), (started, ""), (f"   {last}", "dim"))
    yield from _owner(box, podman.unit, view.width)
    yield from _image(box, view)
    yield from _driver(box, view.snapshot.gpu.value)
    cdi = ", ".join(one_line(name, 60) for name in box.cdi)
    count = len(box.devices)
    devices = f"{count} device{'' if count == 1 else 's'}" if count else ""
    yield labelled("GPU", ("  ".join(text for text in (cdi, devices) if text) or "– no device named", ""))
    mode = MODES.get(box.control_mode or "", "? its command line does not tell")
    yield from paragraph("mode", mode, view.width, "unknown" if mode.startswith("?") else "", most=2)
    yield _stop(box)
    if podman.others:
        names = ", ".join(one_line(name, 60) for name in podman.others)
        yield from paragraph("others", f"could be meant, too: {names}", view.width, most=2)
    if box.state != "running":
        yield from _last_lines(podman, view.width)


def _state(box: ContainerState, view: View) -> Row:
    running = box.state == "running"
    words = one_line(box.state, 20)
    if running:
        words += f" {units.uptime(view.wall - box.started_wall)}" if box.started_wall else ""
    health = one_line(box.health or units.NONE, 20)
    sick = health == "unhealthy"
    return labelled(
        cut(one_line(box.name, 80), 10),
        sign("ok" if running else "fail"),
        (f" {words}   ", ""),
        (f"health {health}", "fail" if sick else ""),
        (f"   restarts {units.whole(box.restarts)}", "warn" if box.restarts else ""),
    )


def _ended(box: ContainerState, view: View) -> Iterator[Row]:
    how = f"exit {box.exit_code}" if box.exit_code is not None else "exit ?"
    if box.exit_code == 137:
        how += ", killed" + (" for want of memory" if box.oom_killed else "")
    yield labelled("ended", (f"{view.clock(box.finished_wall)}, {view.since(box.finished_wall)} ago   {how}", "fail"))
    if box.error:
        yield from paragraph("error", one_line(box.error), view.width, "fail", most=3)


def _owner(box: ContainerState, unit: UnitState | None, width: int) -> Iterator[Row]:
    """Its unit, what kind of one it is, and that nothing is done behind its back."""
    if box.unit is None:
        yield labelled("managed by", ("no unit found", "dim"))
        return
    about = _about(unit) if unit is not None and unit.name == box.unit else one_line(box.unit_origin or "", 40)
    told = f" ({about})" if about else ""
    yield from paragraph("managed by", f"{one_line(box.unit, 80)}{told}; acts go through it", width, most=2)


def _about(unit: UnitState) -> str:
    """`system, hand-written, restart on-failure`."""
    restart = f"restart {one_line(unit.restart, 20)}" if unit.restart else ""
    return ", ".join(part for part in ("user" if unit.user else "system", unit.kind or "", restart) if part)


def _image(box: ContainerState, view: View) -> Iterator[Row]:
    name = one_line(box.image, 300).rsplit("/", 1)[-1]
    old = f"   {long_age(view.wall - box.image_created_wall)} old" if box.image_created_wall else ""
    yield labelled("image", (cut(name, max(12, view.width - 25)), ""), (old, ""))
    names = (("CUDA_VERSION", "CUDA"), ("TRT_VERSION", "TensorRT"), ("TENSORRT_VERSION", "TensorRT"))
    told = dict.fromkeys(
        f"{word} {one_line(box.env_versions[key], 20)}" for key, word in names if key in box.env_versions
    )
    if told:
        yield labelled("", ("  ".join(told), ""))


def _driver(box: ContainerState, gpus: GpuBox | None) -> Iterator[Row]:
    """The image's own minimum (NVIDIA_REQUIRE_CUDA) against what the driver supports."""
    wanted = _CUDA.search(box.env_versions.get("NVIDIA_REQUIRE_CUDA", ""))
    if gpus is None or gpus.driver is None:
        if wanted:
            yield labelled("", (f"wants CUDA ≥ {wanted[1]}; the driver is not known", "unknown"))
        return
    driver = f"driver {one_line(gpus.driver, 30)}"
    if wanted is None or gpus.cuda is None:
        yield labelled("", (driver, ""))
        return
    enough = _number(gpus.cuda) >= _number(wanted[1])
    word = "new enough for" if enough else f"CUDA {gpus.cuda}, but the image wants"
    yield labelled("", (f"{driver} ", ""), sign("ok" if enough else "warn"), (f" {word} CUDA ≥ {wanted[1]}", ""))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _stop(box: ContainerState) -> Row:
    """A stop time shorter than the server's drain time makes every stop a kill."""
    gets, needs = box.stop_timeout, box.exit_timeout
    if gets is None:
        return labelled("stop", ("? its stop time is not told", "unknown"))
    if needs is None:
        return labelled("stop", (f"killed after {gets} s", ""))
    if gets < needs:
        return labelled("stop", sign("warn"), (f" killed after {gets} s, server drains {needs} s", ""))
    return labelled("stop", (f"gets {gets} s, server drains {needs} s", ""))


def _last_lines(podman: PodmanState, width: int) -> Iterator[Row]:
    if not podman.last_log:
        return
    whose = "its last words" if podman.container is not None else "of its unit's journal: its own log is gone with it"
    yield labelled("last lines", (whose, "dim"))
    for line in podman.last_log[-LAST_LINES:]:
        yield from paragraph("", one_line(line), width, most=2, cells=2)


def _none(podman: PodmanState, width: int) -> Iterator[Row]:
    found = podman.socket is not None
    yield Row((sign("fail" if found else "none"), (" no Triton container on this box" if found else " no Podman", "")))
    for one in podman.tried:
        mark: Segment = sign("ok" if one.error is None else "none")
        result = "answers" if one.error is None else one_line(one.error, 300)
        yield Row((("  ", ""), mark, (f" {one_line(one.path, 120)}", "")))
        told = wrapped(f"{one_line(one.origin, 20)}: {result}", width - 6, most=3)
        yield from (Row(((f"      {line}", "dim"),)) for line in told)
    if not podman.tried:
        yield Row((("  no socket was looked for", "dim"),))
    if podman.unit is not None:
        state = f"{one_line(podman.unit.active, 20)} ({one_line(podman.unit.sub, 20)})"
        yield from paragraph("its unit", f"{one_line(podman.unit.name, 80)}: {state}, {_about(podman.unit)}", width)
    if found:
        images = ", ".join(one_line(name, 120).rsplit("/", 1)[-1] for name in podman.images)
        yield from paragraph("images", images or "no Triton image", width, most=3)
        yield Row((("looked for by name, label, image and port", "dim"),))
    yield from _last_lines(podman, width)
