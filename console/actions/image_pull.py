"""Pull an image, with the bytes of each layer where Podman tells them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from console.actions import powering, spec_changes
from console.actions.base import Action, Run
from console.actions.box import Box
from console.clients.podman_control import PodmanControl
from console.core.plan import (
    Check,
    Field,
    JournalLine,
    Outcome,
    Plan,
    Step,
    Target,
)
from console.core.text import one_line


class Pull(Action):
    """Pull an image; running containers keep the one that they were made from."""

    NAME = "image.pull"
    TARGET = "image"
    FIELDS = (Field("tls_verify", "false for a registry without a good certificate", "bool"),)
    PHASES = ("pull",)

    def plan(self, box: Box, target: str, values: Mapping[str, str]) -> Plan:
        reference = spec_changes.image(target.strip())
        here = image_state(box, reference)
        insecure = values.get("tls_verify") == "false"
        return Plan(
            action=self.NAME,
            target=Target("image", reference, here),
            values=dict(values),
            title=f"Pull {reference} on {box.host}",
            yes="Pull",
            danger="safe",
            checks=(_image_check(here),),
            steps=(
                Step("pull", "pull it layer by layer", "what was there stays", (f"POST /images/create {reference}",)),
            ),
            effects=(
                "no container is touched: a running one keeps its image until it is recreated",
                "no bytes are told for a registry without TLS" if insecure else "the bytes of each layer are told",
            ),
            by_hand=(f"podman pull{' --tls-verify=false' if insecure else ''} {reference}",),
            undo="not undone: `podman rmi` removes an image that nothing uses",
            limit=24 * 3600.0,
            wall=time.time(),
        )

    def state(self, box: Box, target: Target) -> Mapping[str, str]:
        return image_state(box, target.name)

    def run(self, box: Box, plan: Plan, run: Run) -> Outcome:
        control = box.podman()
        try:
            with run.phase("pull", f"pull {plan.target.name}"):
                stopped = _pull(control, plan.target.name, plan.values.get("tls_verify") != "false", run)
        finally:
            control.close()
        if stopped:
            return Outcome("undone", "stopped by the operator; layers already pulled are kept for the next try")
        return Outcome("done", f"{plan.target.name} is here", left=image_state(box, plan.target.name))

    def interrupted(self, box: Box, plan: Plan, journal: tuple[JournalLine, ...]) -> tuple[str, str, str]:
        here = image_state(box, plan.target.name)
        return ("the image is " + here["image"], "pull it", "")

    def finish(self, box: Box, plan: Plan, run: Run) -> Outcome:
        return self.run(box, plan, run)


def image_state(box: Box, reference: str) -> dict[str, str]:
    """Which image has this name now."""
    from console.clients.podman import Podman

    client = Podman(box.podman_url)
    try:
        found = client.image_id(reference)
    finally:
        client.close()
    return {"image": found[:12] if found else "not here"}


def _image_check(here: Mapping[str, str]) -> Check:
    if here["image"] == "not here":
        return Check("note", "no image of this name is here yet")
    return Check("note", f"an image of this name is here ({here['image']}): a newer one takes its name")


def _pull(control: PodmanControl, reference: str, tls_verify: bool, run: Run) -> bool:
    """True when the operator stopped it."""
    layers: dict[str, tuple[int, int | None]] = {}
    done: set[str] = set()
    told = 0.0
    for progress in control.pull(reference, tls_verify=tls_verify):
        if run.cancelled.is_set():
            return True
        if progress.layer and progress.current is not None:
            layers[progress.layer] = (progress.current, progress.total)
        if progress.layer and "complete" in progress.status.lower():
            done.add(progress.layer)
        if time.monotonic() - told > powering.TELL_EVERY:
            told = time.monotonic()
            run.note(_pull_words(layers, done, progress.status))
    return False


def _pull_words(layers: Mapping[str, tuple[int, int | None]], done: set[str], status: str) -> str:
    from console.core import units

    if not layers:
        return f"{len(done)} layers complete; {one_line(status, 100)}"
    current = sum(pair[0] for pair in layers.values())
    total = sum(pair[1] or 0 for pair in layers.values())
    of = f" of {units.size(total)}" if total >= current else ""
    return f"{units.size(current)}{of} in {len(layers)} layers, {len(done)} complete"
