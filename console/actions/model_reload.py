"""The ways to bring a model in anew, and what each of them means for what is live only."""

from __future__ import annotations

import time
from typing import Any, Literal

from console.actions.model_look import MARK, ModelLook
from console.actions.swap_spec import listed
from console.clients import triton_config
from console.clients.triton_config import specific
from console.core.plan import Way

ReloadWay = Literal["disk", "anew", "gap"]


def default_way(look: ModelLook) -> ReloadWay:
    """disk where the disk has something else than what serves, else anew."""
    if look.from_disk is not None and look.from_disk != look.ready:
        return "disk"
    if look.disk is not None and look.disk.differences and not look.live_only:
        return "disk"
    return "disk" if _touched(look) else "anew"


def _touched(look: ModelLook) -> bool:
    """Something of its files is newer than the server, so a plain load has something to bring in, or had."""
    started = look.container.started_wall if look.container is not None else None
    if started is None or look.disk is None:
        return False
    served = [version for version in look.disk.versions if version.version in look.ready]
    times = [look.disk.config_mtime_wall, *(version.mtime_wall for version in served)]
    return any(moment is not None and moment > started for moment in times)


def marked(look: ModelLook) -> str:
    """An override that changes nothing but the mark: the same versions, loaded anew beside themselves."""
    config = triton_config.base(look.live, look.name)
    parameters: dict[str, Any] = dict(config.get("parameters") or {})
    parameters[MARK] = {"string_value": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    policy = look.disk_policy if look.disk_policy is not None and look.from_disk == look.ready else None
    return triton_config.override(config, policy or specific(look.ready), parameters=parameters)


def ways(look: ModelLook, load_s: float | None) -> tuple[Way, ...]:
    """What can be chosen."""
    known = f"≈ {load_s:.1f} s (the last load took that)" if load_s is not None else "not known"
    newer = ""
    if look.from_disk is not None and look.from_disk != look.ready:
        newer = f": deploys {listed(look.from_disk)}"
    anew = "" if look.live else "its live configuration cannot be had"
    return (
        Way("disk", f"load what changed on disk, beside it{newer}; nothing where nothing is newer", "nothing", "0 s"),
        Way(
            "anew",
            f"load {listed(look.ready)} anew beside itself, as it is configured live (parameter {MARK} marks it)",
            "nothing: both copies in memory meanwhile",
            "0 s",
            anew,
        ),
        Way("gap", "unload it, wait for its end, load from disk", "404 no available versions", known),
    )
