"""What plans and outcomes of loading, unloading and reloading say of a model."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from console.actions.box import Box
from console.actions.model_load import LoadEnd, crashed, ready_versions
from console.actions.model_look import (
    ModelLook,
    gpu_free,
    load_seconds,
    model_state,
    route_check,
    taken,
)
from console.actions.swap_spec import listed
from console.clients import triton_config
from console.clients.triton import model_path
from console.clients.triton_config import specific
from console.clients.triton_control import TritonControl
from console.core import units
from console.core.model import SourceError
from console.core.plan import Check, Field, Outcome, Refused, UndoSpec, WrongInput
from console.core.text import one_line, whole_number

ROUTE = Field("route", "how it is sent", "choice", ("auto", "gRPC", "HTTP"))
SPARE = 30.0
"""Seconds of a plan's limit beyond the load's own."""
UNLOAD_LIMIT = 60.0
"""Seconds for the end of an unload: requests in flight are answered first, then the back end lets go."""


def route_of(values: Mapping[str, str]) -> str:
    """For Box.route."""
    told = values.get("route", "")
    return "" if told == "auto" else told


def title(box: Box, verb: str, seen: ModelLook, what: str) -> str:
    """`Load rank 2 on infer-01, container triton`."""
    where = f", container {seen.container.name}" if seen.container is not None else ""
    return f"{verb} {what} on {box.host}{where}"


def control_checks(seen: ModelLook) -> tuple[Check, ...]:
    """Mode and route."""
    mode = seen.container.control_mode if seen.container is not None else None
    told = Check("ok", "explicit mode") if mode else Check("unknown", "the control mode is not told")
    return told, route_check(seen)


def load_failure(box: Box, end: LoadEnd, name: str, since: float, figures: Mapping[str, float]) -> Outcome:
    """What is said of a load that did not end well."""
    gone = crashed(box, since) if end.word in ("gone", "refused") else ""
    if gone:
        lines = (
            *box.load_cause(name, since),
            "a start loads it again from disk: gpuconsole do model.pin keeps a version out",
        )
        return Outcome("failed", f"{gone} while it loaded {name}", lines, figures=figures)
    going = ""
    if end.word in ("limit", "cancelled"):
        going = (
            f"the server still loads {name}, which cannot be cancelled: the index says LOADING, the log tells more; a "
            "load or an unload of it waits until then"
        )
    return Outcome(
        "failed",
        f"{name} {end.text}" if end.word != "cancelled" else f"{name}: {end.text}",
        end.cause,
        still_going=going,
        figures=figures,
    )


def call(seen: ModelLook, verb: str) -> str:
    if seen.route.name == "gRPC":
        return f"ModelRepository/RepositoryModel{verb} {seen.name}"
    return f"POST /v2/repository/models/{seen.name}/{verb.lower()}"


def by_hand(box: Box, name: str, verb: str) -> str:
    """What a person would type; a folder's name, and so a model's, may hold what a shell takes for its own."""
    return shlex.join(("curl", "-X", "POST", f"{box.address().url}/v2/repository{model_path(name)[3:]}/{verb}"))


def wanted_version(seen: ModelLook, values: Mapping[str, str]) -> int | None:
    version = whole_number(values.get("version") or "")
    if version is not None and seen.folders is not None and version not in seen.folders:
        shown = listed(seen.folders)
        raise WrongInput(f"{one_line(seen.name, 80)} has no usable version {version} on disk; it has {shown}")
    return version


def load_refusal(seen: ModelLook, version: int | None) -> str:
    if seen.ready:
        shown = listed(seen.ready)
        return f"{seen.name} is loaded ({shown} READY): reload it (model.reload) or swap its version (model.swap)"
    if seen.loading:
        return f"{seen.name} is LOADING already: a second load waits for the first"
    if version is not None and seen.disk_config is None:
        why = seen.disk_config_error or seen.disk_unknown or "there is none"
        return f"one version alone needs its config.pbtxt, which cannot be seen: {why}"
    return ""


def reload_refusal(seen: ModelLook) -> str:
    if seen.loading:
        return f"{seen.name} is LOADING: a reload waits for its end; try again when it is done"
    return "" if seen.ready else f"{seen.name} is not loaded: load it (model.load)"


def one_version(seen: ModelLook, version: int) -> str:
    """The configuration on disk with this version alone: a model that is not loaded has no live one."""
    if seen.disk_config is None:
        raise Refused(f"config.pbtxt of {seen.name} cannot be seen any more: nothing was sent")
    config = dict(seen.disk_config)
    config.pop("version_policy", None)
    return triton_config.override({"name": seen.name, **config}, specific((version,)))


def disk_checks(seen: ModelLook, deployed: tuple[int, ...] | None) -> tuple[Check, ...]:
    if seen.disk is None:
        return (Check("unknown", f"which version comes in is not known: {seen.disk_unknown}"),)
    if seen.disk_config_error:
        return (Check("fail", f"config.pbtxt cannot be used: {seen.disk_config_error}"),)
    if not deployed:
        return (Check("fail", "there is no usable version folder on disk: the load will be refused"),)
    policy = seen.disk_policy.text if seen.disk_policy is not None else "not known"
    newer = [version for version in deployed if seen.served is not None and version > seen.served]
    sign = "warn" if newer else "ok"
    more = f": {listed(tuple(newer))} is newer than what serves and takes the traffic unasked" if newer else ""
    return (Check(sign, f"serves {listed(deployed)} afterwards (policy on disk {policy}){more}"),)  # type: ignore[arg-type]


def room(box: Box, seen: ModelLook, deployed: tuple[int, ...] | None) -> Check:
    if seen.on_cpu:
        return Check("ok", "no card memory: its instances are on the CPU")
    free, why = gpu_free(box, seen)
    sizes = [folder.size for version in deployed or () if (folder := seen.disk_version(version)) is not None]
    files = sum(size for size in sizes if size is not None) if sizes and all(s is not None for s in sizes) else None
    if free is None:
        return Check("unknown", f"whether it fits is not known: {why}")
    took, origin = taken(box, seen, seen.served) if seen.served is not None else (None, "")
    if took is not None:
        both = f"a second copy needs {units.size(took)} ({origin}), free {units.size(free)}"
        return Check("ok" if free >= took else "fail", both)
    if files is not None and files > free:
        return Check("fail", f"its files alone are {units.size(files)}, free {units.size(free)}")
    return Check("unknown", f"free {units.size(free)}, files {units.size(files)}; what it takes there is not known")


def traffic(seen: ModelLook) -> Check:
    if seen.rate is None:
        return Check("unknown", "whether it has traffic is not known")
    return (
        Check("warn", f"it has {units.rate(seen.rate)} requests/s now") if seen.rate else Check("ok", "no requests now")
    )


def waits(box: Box, seen: ModelLook) -> tuple[str, ...]:
    load_s = load_seconds(box, seen.name)
    took = f"≈ {load_s:.1f} s by its last load" if load_s is not None else "how long is not known"
    limit = box.settings.actions.load_timeout
    return (
        f"the load takes {took}; waiting ends after {limit:g} s, the server's load does not",
        "what serves now is not touched; the server's ready is 400 meanwhile",
    )


def reload_effects(box: Box, seen: ModelLook, way: str, load_s: float | None) -> tuple[str, ...]:
    lines = list(waits(box, seen)) if way != "gap" else []
    if way == "gap":
        took = f"≈ {load_s:.1f} s (the last load took that)" if load_s is not None else "how long is not known"
        lines += [f"404 for this model from the unload to READY: {took}", "requests accepted before are answered"]
        if seen.live_only:
            lines.append(f"live-only settings are lost: {', '.join(seen.live_only[:4])}")
    elif way == "disk":
        lines.append("requests in flight finish on the old copy; both copies are in memory meanwhile")
        if seen.live_only:
            lines.append(
                f"live-only settings ({', '.join(seen.live_only[:4])}) go where config.pbtxt is newer than they are, "
                "else they stay and nothing is loaded"
            )
    else:
        lines.append("requests in flight finish on the old copy; both copies are in memory meanwhile")
        if seen.live_only:
            lines.append(f"live-only settings are kept: {', '.join(seen.live_only[:4])}")
    lines += [f"{name} (ensemble) is made anew with it, shortly" for name in seen.users]
    if seen.config is not None and seen.config.sequence_batching:
        lines.append("sequences that run are forgotten: their next request needs START")
    return tuple(lines)


def reload_failed(
    box: Box, control: TritonControl, seen: ModelLook, end: LoadEnd, since: float, figures: dict[str, float]
) -> Outcome:
    told = load_failure(box, end, seen.name, since, figures)
    if end.word != "refused" or told.text.startswith("the server"):
        return told
    try:
        ready = ready_versions(control, seen.name)
    except SourceError:
        return told
    if ready == seen.ready:
        text = f"{told.text}: {seen.name} {listed(ready)} serves on as before"
        return Outcome("undone", text, told.lines, left=model_state(box, seen.name), figures=figures)
    text = f"{told.text}: READY now {listed(ready)}"
    return Outcome("failed", text, told.lines, figures=figures)


def reloaded(
    box: Box,
    seen: ModelLook,
    ready: tuple[int, ...],
    gone: list[str],
    seconds: float,
    since: float,
    figures: dict[str, float],
) -> Outcome:
    name = seen.name
    if gone or not ready:
        what = f"{', '.join(gone)} dropped out" if gone else f"no version of {name} is READY"
        return Outcome("failed", f"{name} was loaded, but {what}", box.load_cause(name, since), figures=figures)
    if ready == seen.ready and seconds < NOTHING_DONE:
        text = f"{name}: nothing on disk was newer, so Triton loaded nothing; way=anew loads it all the same"
        return Outcome("done", text, left=model_state(box, name), figures=figures)
    moved = f" (before: {listed(seen.ready)})" if ready != seen.ready else ""
    undo = None
    if moved and seen.served is not None:
        undo = UndoSpec("model.swap", name, {"version": str(seen.served)}, f"{name} back to version {seen.served}")
    return Outcome("done", f"{name} {listed(ready)} serves{moved}", (), undo, model_state(box, name), figures=figures)


NOTHING_DONE = 0.05
"""Seconds: a load that brings nothing in answers in a few milliseconds (domain facts 1.4)."""


def unloaded_words(seen: ModelLook) -> tuple[str, ...]:
    """What clients get once a model is unloaded, until it is loaded again (measured on 2.51.0; ensembles answer so too,
    as does gRPC with NOT_FOUND)."""
    rate = "" if seen.rate is None else f" ({units.rate(seen.rate)}/s now)"
    alike = f", and those of {', '.join(seen.users)} (ensemble) the same" if seen.users else ""
    return (
        "a gap until it is loaded again: how long is up to whoever loads it",
        f"requests accepted before are answered; new ones{rate} get 404 no available versions{alike}",
        "requests that name a version get 503 not at ready state; the model's own ready is 400",
        *(f"{name} (ensemble) comes back by itself with the next load of {seen.name}" for name in seen.users),
    )


def load_again(seen: ModelLook) -> str:
    if seen.from_disk is None or seen.from_disk == seen.ready:
        return "load it again"
    return f"load it again: by its policy on disk that serves {listed(seen.from_disk)}, not {listed(seen.ready)}"


def undo_unload(seen: ModelLook) -> UndoSpec:
    version = seen.served
    alone = seen.from_disk is not None and seen.from_disk != seen.ready and version is not None
    values = {"version": str(version)} if alone else {}
    return UndoSpec("model.load", seen.name, values, f"load {seen.name} again")
