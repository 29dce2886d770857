"""Does Triton answer, which versions does it hold, and do batches come together?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from console.checks.box import CONTAINER, at, inspect, no_container, runs
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import NEEDS, number
from console.checks.container_settings import inside_ports, published
from console.clients.libpod import wall_time
from console.clients.triton_config import Policy, policy_of
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line
from console.core.units import uptime

METADATA, INDEX, CONFIGS, STATS = "@triton.metadata", "@triton.index", "@triton.configs", "@triton.stats"
STARTING = 300.0
"""Seconds in which a server may still load its models."""
ENOUGH = 1000
"""Executions from which a mean batch says something."""


def _no_server(facts: Facts, answer: str) -> str:
    """Why there is no server to ask; "" where it answered, or should have. Needs CONTAINER."""
    if not facts.why_not(answer):
        return ""
    why = no_container(facts)
    return why or ("" if runs(inspect(facts)) else "the container does not run")


def _index(facts: Facts) -> tuple[Mapping[str, Any], ...]:
    """Entries of the repository index; () where it was not told. Needs INDEX."""
    answer = None if facts.why_not(INDEX) else facts.answer(INDEX)
    entries = answer.get("entries") if isinstance(answer, dict) else answer
    return tuple(one for one in entries if isinstance(one, dict)) if isinstance(entries, list) else ()


# -------------------------------------------------------------------------------------------------------------- health


@check(
    "E07",
    "the server is live and ready",
    group="container",
    slug="server-health",
    needs=(*NEEDS, METADATA, INDEX),
    why="live says that the server runs, ready that all models which it should serve are loaded. One failed model "
    "holds ready at 400, so that load balancers drop a box whose other models serve.",
    source="host.md E07; triton.md 1.9",
)
def server_health(facts: Facts) -> Answer:
    """live, ready, and the models that hold ready back."""
    if why := _no_server(facts, METADATA):
        return skip(why)
    if facts.why_not(METADATA):
        return _silent(facts, facts.why_not(METADATA))
    told = facts.answer(METADATA)
    live, ready = at(told, "live"), at(told, "ready")
    evidence: tuple[Evidence, ...] = (Evidence("/v2/health", f"live {_lamp(live)}, ready {_lamp(ready)}"),)
    if live is False:
        return fail("not live: the server does not work", evidence, live="false")
    if live is not True:
        return unknown("whether it is live is not told", "curl -i localhost:8000/v2/health/live", evidence)
    entries = _index(facts)
    states = Counter(str(one.get("state")) for one in entries if one.get("state"))
    failed = [one for one in entries if _has_failed(one)]
    evidence += tuple(Evidence("repository index", _entry(one)) for one in failed[:5])
    data = {"ready": str(ready).lower(), "failed": ",".join(str(one.get("name")) for one in failed[:5])}
    served = f"{states['READY']} of {sum(states.values()) - _unloaded(entries)} model versions READY"
    if ready is True and not failed:
        return ok(f"live and ready, {served}" if states else "live and ready", evidence, **data)
    names = ", ".join(one_line(str(one.get("name")), 40) for one in failed[:3])
    if ready is True:
        return warn(f"ready, though {names} failed to load", evidence, _why(), **data)
    if failed:
        answer = warn if states["READY"] else fail
        return answer(f"ready is 400: {names} failed to load; {served}", evidence, _why(), **data)
    if states["LOADING"] or states["UNLOADING"]:
        return note(f"ready is 400 while {states['LOADING'] + states['UNLOADING']} versions change", evidence, **data)
    return warn(f"live, not ready; {served}" if states else "live, not ready", evidence, _why(), **data)


def _lamp(value: Any) -> str:
    return {True: "200", False: "400"}.get(value, "?") if isinstance(value, bool) else "?"


def _has_failed(one: Mapping[str, Any]) -> bool:
    reason = str(one.get("reason") or "")
    return one.get("state") == "UNAVAILABLE" and reason not in ("", "unloaded")


def _unloaded(entries: tuple[Mapping[str, Any], ...]) -> int:
    return sum(one.get("state") == "UNAVAILABLE" and not _has_failed(one) for one in entries)


def _entry(one: Mapping[str, Any]) -> str:
    words = (one.get("name"), one.get("version"), one.get("state"), one.get("reason"))
    return one_line(" ".join(str(word) for word in words if word), 200)


def _why() -> Fix:
    effect = "reads only: E05 and the models' checks tell why; a good load, or a restart, makes it ready again"
    return Fix("S", ("gpuconsole check --group models",), effect=effect, again=("E05",))


def _silent(facts: Facts, why: str) -> Answer:
    """A container that runs and a server that does not answer."""
    found = inspect(facts)
    began = wall_time(str(at(found, "State", "StartedAt") or ""))
    since = facts.wall - began if began else None
    evidence = (Evidence("GET /v2/health/live", one_line(why, 200)),)
    if since is not None and since < STARTING:
        return warn(
            f"no answer yet, it started {uptime(since)} ago: {one_line(why, 80)}", evidence, None, live="starting"
        )
    port = inside_ports(found).get("http")
    mode = at(found, "HostConfig", "NetworkMode")
    reachable = mode == "host" or any(one.inside == port for one in published(found))
    if port is None or not reachable:
        return unknown(f"its HTTP port is not published: {one_line(why, 80)}", "", evidence)
    if since is None:
        raise Unknowable(why, "curl -i localhost:8000/v2/health/live")
    return fail(f"no answer: {one_line(why, 120)}", evidence, _why(), live="no answer")


# ------------------------------------------------------------------------------------------------------------ versions


def _configs(facts: Facts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(model, version, served configuration)."""
    answer = facts.answer(CONFIGS)
    for name, versions in sorted(answer.items()) if isinstance(answer, dict) else ():
        for version, config in sorted(versions.items()) if isinstance(versions, dict) else ():
            if isinstance(config, dict):
                yield str(name), str(version), config


@check(
    "E20",
    "each model holds the versions that are meant",
    group="container",
    slug="version-policy",
    needs=(*CONTAINER, CONFIGS, INDEX),
    why="Triton serves the newest version alone unless told. With the policy all each version that somebody puts on "
    "disk is loaded beside the others and takes its own memory on the card.",
    source="triton docs, model_configuration.md, version policy",
)
def version_policy(facts: Facts) -> Answer:
    """Policies other than `latest 1`, and what they hold."""
    if why := _no_server(facts, CONFIGS):
        return skip(why)
    policies: dict[str, Policy] = {}
    for name, _, config in _configs(facts):
        policies[name] = policy_of(config)
    if not policies:
        return skip("no model is loaded")
    ready = Counter(str(one.get("name")) for one in _index(facts) if one.get("state") == "READY")
    others = {name: policy for name, policy in policies.items() if policy.text != "latest 1"}
    evidence = tuple(
        Evidence(f"config of {one_line(name, 60)}", f"version_policy {policy.text}, {ready[name]} READY")
        for name, policy in others.items()
    )[:8]
    heavy = [name for name, policy in others.items() if policy.kind == "all" and ready[name] > 1]
    if heavy:
        text = f"{one_line(heavy[0], 60)} holds all {ready[heavy[0]]} of its versions at once"
        more = f" (and {len(heavy) - 1} more models)" if len(heavy) > 1 else ""
        fix = Fix(
            "S",
            (f"gpuconsole do model.pin {quote(heavy[0])} version={_newest(facts, heavy[0])}",),
            effect="keeps to that version alone; or take version_policy out of config.pbtxt and load it again",
            again=("E16",),
        )
        return warn(text + more, evidence, fix, model=heavy[0])
    if others:
        shown = ", ".join(f"{one_line(name, 40)} {policy.text}" for name, policy in list(others.items())[:3])
        return note(f"{shown}; the others the newest", evidence)
    return ok(f"the newest version of {len(policies)} models", evidence)


def _newest(facts: Facts, model: str) -> int:
    """Of its READY versions."""
    ready = (one for one in _index(facts) if one.get("name") == model and one.get("state") == "READY")
    return max((number(one.get("version")) or 0 for one in ready), default=0)


# ------------------------------------------------------------------------------------------------------------ batching


@check(
    "E21",
    "waiting for batches is worth it",
    group="container",
    slug="batching",
    needs=(*CONTAINER, CONFIGS, STATS),
    why="A queue delay makes each request wait for others. Where no others come it is latency for nothing, and where "
    "each batch is full a larger one would carry more.",
    source="seed A 6.6; triton.md 1.8",
)
def batching(facts: Facts) -> Answer:
    """Requests in an execution, against the delay and the largest batch, since the counters began."""
    if why := _no_server(facts, STATS):
        return skip(why)
    served = {(name, version): config for name, version, config in _configs(facts)}
    idle: list[tuple[str, str]] = []
    full: list[tuple[str, str]] = []
    judged = 0
    for name, version, runs_, mean in _means(facts):
        config = served.get((name, version), {})
        batcher = config.get("dynamic_batching")
        most = number(config.get("max_batch_size")) or 0
        if not isinstance(batcher, dict) or most < 2 or runs_ < ENOUGH:
            continue
        judged += 1
        delay = number(batcher.get("max_queue_delay_microseconds")) or 0
        label = f"{one_line(name, 60)} {version}"
        if delay > 0 and mean < 1.05:
            idle.append((name, f"{label} waits {delay} µs for batches of {mean:.2f} (of {most})"))
        elif mean >= 0.95 * most:
            full.append((name, f"{label}: batches of {mean:.1f}, {most} at most"))
    evidence = tuple(Evidence("/v2/models/stats", text) for _, text in (*idle, *full))[:8]
    if idle:
        name = idle[0][0]
        fix = Fix(
            "S",
            (f"gpuconsole do batching.set {quote(name)} delay_us=0",),
            effect="live at once, after a plan; batching.keep writes it to disk. The Tune screen shows what it brings",
        )
        return warn(idle[0][1] + (f" (and {len(idle) - 1} more)" if len(idle) > 1 else ""), evidence, fix, model=name)
    if full:
        return note(f"{full[0][1]}: a larger one may carry more", evidence, model=full[0][0])
    if not judged:
        return skip("no model that batches has run often enough")
    return ok(f"{judged} models batch as their load lets them", evidence)


def _means(facts: Facts) -> Iterator[tuple[str, str, int, float]]:
    """(model, version, executions, inferences in each)."""
    rows = at(facts.answer(STATS), "model_stats")
    for one in rows if isinstance(rows, list) else ():
        count, executions = number(at(one, "inference_count")), number(at(one, "execution_count"))
        if count is not None and executions:
            yield str(at(one, "name")), str(at(one, "version")), executions, count / executions
