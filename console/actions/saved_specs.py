"""Specifications of containers that are gone: kept in private files, so that an undo can make them again.

They hold the environment, secrets and all, so they never go to the audit: it names the file only.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from console.actions.box import Box
from console.actions.container_spec import Body, captured, create_body
from console.actions.target import ContainerView
from console.clients.files import write_private
from console.core.plan import Refused

FOLDER = "specs"
_NAME = re.compile(r"[\w.-]{1,200}")


def save(box: Box, view: ContainerView) -> str:
    """Keep what it is made of, with the very image that it has; the name of the file."""
    inspected = view.inspect() or {}
    body = captured(view).body
    # A tag may mean another image by then: the identity does not, and the name stays what inspect tells.
    exact = {**body, "image": inspected.get("Image") or body["image"], "raw_image_name": body["image"]}
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", view.name)
    name = f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6:06d}.json"
    write_private(_folder(box) / name, json.dumps(exact, indent=1))
    return name


def load(box: Box, name: str) -> Body:
    """What `save` kept; Refused where the file is no longer there."""
    if not _NAME.fullmatch(name):
        raise Refused(f"no specification was kept under {name!r}")
    try:
        found: Any = json.loads((_folder(box) / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"the kept specification {name} cannot be read ({error}): create the container anew") from error
    if not isinstance(found, dict) or not isinstance(found.get("image"), str):
        raise Refused(f"the kept specification {name} is not one: create the container anew")
    return found


def create_again(box: Box, container: str, saved: str) -> str:
    """Make a container as it was, stopped; what Podman warned of, as a piece of a sentence."""
    body = load(box, saved)
    control = box.podman()
    try:
        made = control.create(create_body({**body, "name": container}))
    finally:
        control.close()
    return f"; Podman warns: {'; '.join(made.warnings)}" if made.warnings else ""


def _folder(box: Box) -> Path:
    return box.state / FOLDER
