"""config.pbtxt against Triton's schema, its folder and the traffic: L03 L04 L09."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.models_disk import (
    CONFIG_TEXTS,
    CONFIGS,
    FILE_OF,
    INDEX,
    KNOWN_FILES,
    NEEDS,
    Config,
    Model,
    config,
    configs,
    counted,
    documents,
    elsewhere,
    ready,
    repository,
)
from console.clients.pbtxt import PbtxtError
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.text import one_line
from console.planning import batching_change

# ----------------------------------------------------------------------------------------------------------------- L03


@check(
    "L03",
    "every config.pbtxt parses",
    group="models",
    slug="config-parses",
    needs=(*NEEDS, *CONFIG_TEXTS, INDEX),
    why="Triton refuses a model whose configuration it cannot parse, and says why in its log alone: the answer to a "
    "load only says that it failed. Where all models are loaded at the start, the server ends.",
    source="triton model_config.proto; server#6571",
)
def parses(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    models = repository(facts)
    wrong: list[tuple[Model, str]] = []
    odd: list[Config] = []
    blind: Unknowable | None = None
    files = 0
    for model in models:
        try:
            found = config(facts, model)
        except PbtxtError as error:
            wrong.append((model, str(error)))
        except Unknowable as missing:
            blind = blind or missing
        else:
            files += bool(found.path)
            odd += [found] if found.unknown else []
    if wrong:
        lines = tuple(Evidence(f"{model.path}/config.pbtxt", error) for model, error in wrong)
        more = f"; {len(wrong) - 1} more so" if len(wrong) > 1 else ""
        text = f"{wrong[0][0].name}: {one_line(wrong[0][1], 120)}{more}"
        return fail(text, lines, _edit(f"{wrong[0][0].path}/config.pbtxt"), model=wrong[0][0].name)
    serving = ready(facts) or {}
    strange = [one for one in odd if not serving.get(one.model.name)]
    if strange:
        lines = tuple(Evidence(one.path, one.unknown) for one in strange)
        return warn(
            f"{strange[0].model.name}: {one_line(strange[0].unknown, 120)}: a slip, or newer than this console",
            lines,
            _edit(strange[0].path),
        )
    if blind is not None:
        raise blind
    if not files:
        return skip("no model has a config.pbtxt: Triton completes all of them")
    if odd:
        return note(
            f"{odd[0].model.name} serves with a field that this console does not know", odd[0].where(odd[0].unknown)
        )
    return ok(f"{files} files parse")


def _edit(path: str) -> Fix:
    return Fix("S", (f"sudoedit {quote(path)}",), "takes effect at the next load of the model or start of the server")


# ----------------------------------------------------------------------------------------------------------------- L04


@check(
    "L04",
    "configurations agree with their folders",
    group="models",
    slug="config-agrees",
    needs=(*NEEDS, *CONFIG_TEXTS),
    why="A configuration that names another model, another back end than the files are for, or sizes that contradict "
    "each other is refused at the load. A Python model without its model.py loads for ever.",
    source="Triton model_configuration.md; server#8766; host.md",
)
def agrees(facts: Facts) -> Answer:
    if (answer := elsewhere(facts)) is not None:
        return answer
    models = repository(facts)
    found = configs(facts, models)
    names = frozenset(one.name for one in models)
    refused: list[tuple[Config, str]] = []
    useless: list[tuple[Config, str]] = []
    blind: Unknowable | None = None
    for one in found:
        try:
            refused += [(one, fault) for fault in _refused(one, names)]
            useless += [(one, fault) for fault in _useless(one)]
        except Unknowable as missing:
            blind = blind or missing
    for faults, say in ((refused, fail), (useless, warn)):
        if faults:
            first, fault = faults[0]
            lines = tuple(Evidence(one.path or one.model.path, words) for one, words in faults)
            others = {one.model.name for one, _ in faults} - {first.model.name}
            more = f"; {len(others)} more models so" if others else ""
            fix = _edit(first.path or f"{first.model.path}/config.pbtxt")
            return say(f"{first.model.name}: {fault}{more}", lines, fix, model=first.model.name)
    if blind is not None:
        raise blind
    if not found:
        return skip("no configuration could be read, see L03")
    return ok(f"{len(found)} configurations fit their folders")


def _refused(one: Config, names: frozenset[str]) -> Iterator[str]:
    """What Triton refuses at the load."""
    document = one.document
    told = str(document.get("name") or "")
    if told and told != one.model.name:
        yield f"it says name {one_line(told, 60)!r}"
    yield from _files(one)
    settings = batching_change.read(document)
    batcher = document.get("dynamic_batching")
    if isinstance(batcher, Mapping):
        too_big = [size for size in settings.preferred if size > settings.max_batch_size]
        if too_big:
            yield f"preferred_batch_size {max(too_big)} is above max_batch_size {settings.max_batch_size}"
        if settings.priority_levels and not 1 <= settings.default_priority <= settings.priority_levels:
            yield f"default_priority_level {settings.default_priority} is not 1 to {settings.priority_levels}"
    for step in _steps(document):
        if str(step.get("model_name")) not in names:
            yield f"a step of the ensemble names {one_line(str(step.get('model_name')), 60)!r}, which is no model here"


def _steps(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    scheduling = document.get("ensemble_scheduling")
    steps = scheduling.get("step") if isinstance(scheduling, Mapping) else None
    yield from (one for one in steps or () if isinstance(one, Mapping))


def _files(one: Config) -> Iterator[str]:
    """The file that its back end loads, in each version that its policy picks."""
    if one.is_ensemble:
        return
    named = str(one.document.get("default_model_filename") or "")
    by_capability = one.document.get("cc_model_filenames")
    if isinstance(by_capability, Mapping) and by_capability:
        return
    wanted = (named,) if named else FILE_OF.get(one.backend, ())
    if not wanted:
        return
    for version in one.serves():
        there = set(version.names)
        # a file in a folder of the version is named with it; what lies deeper was not looked at
        if not there or any(name.partition("/")[0] in there for name in wanted):
            continue
        other = sorted(KNOWN_FILES & there)
        holds = f", it holds {other[0]}" if other else ""
        yield f"{one.backend or 'it'} wants {wanted[0]} in {version.number}/{holds or ', it is not there'}"


def _useless(one: Config) -> Iterator[str]:
    """What Triton takes and that does nothing, or harm."""
    settings = batching_change.read(one.document)
    if settings.dynamic_batching and settings.max_batch_size == 0:
        yield "dynamic_batching with max_batch_size 0 makes no batches"
    if 0 < settings.timeout_us < settings.delay_us:
        yield f"requests time out after {settings.timeout_us} µs, before a batch waits its {settings.delay_us} µs"


# ----------------------------------------------------------------------------------------------------------------- L09


@check(
    "L09",
    "queues have limits",
    group="models",
    slug="queue-limits",
    needs=(*NEEDS, *CONFIG_TEXTS, CONFIGS),
    why="Without a limit an overload queues until memory is full, and every answer comes too late for whom it was. A "
    "limit and a time-out refuse early what could not be served in time.",
    source="Triton model_configuration.md (queue policy); server#980, server#914; S2 6.2",
)
def limits(facts: Facts) -> Answer:
    found = documents(facts)
    if not found and (answer := elsewhere(facts)) is not None:
        return answer
    batching = {name: one for name, one in found.items() if isinstance(one.get("dynamic_batching"), Mapping)}
    if not batching:
        return skip("no model has a dynamic batcher: only that one has limits")
    settings = {name: _settings(one) for name, one in batching.items()}
    if any(one is None for one in settings.values()):
        raise Unknowable("a served configuration is not understood", "curl -s localhost:8000/v2/models/NAME/config")
    known = {name: one for name, one in settings.items() if one is not None}
    lines = tuple(
        Evidence(
            f"configuration of {name}",
            f"max_queue_size {one.max_queue_size}, default_timeout_microseconds {one.timeout_us}, "
            f"timeout_action {one.timeout_action}",
        )
        for name, one in sorted(known.items())
    )
    open_ended = sorted(name for name, one in known.items() if not one.max_queue_size)
    delaying = sorted(name for name, one in known.items() if one.timeout_us and one.timeout_action == "DELAY")
    if open_ended:
        patient = [name for name in open_ended if not known[name].timeout_us]
        words = "no queue limit, no time-out" if patient else "no queue limit"
        first = open_ended[0]
        size = 8 * max(1, known[first].max_batch_size) * max(1, known[first].total_instances)
        fix = Fix(
            "B",
            (
                f"gpuconsole do batching.set {quote(first)} max_queue_size={size} timeout_us=1000000 "
                "timeout_action=REJECT",
            ),
            "one full reload of the model. The figures are a beginning: eight full batches, and a second of waiting",
            f"gpuconsole do batching.revert {quote(first)}",
        )
        return Answer("note", f"{words}: {counted(patient or open_ended)}", lines, fix)
    if delaying:
        return note(f"late requests are put behind, not refused: {counted(delaying)}", lines)
    return ok(f"{len(known)} models have one", lines)


def _settings(document: Mapping[str, Any]) -> batching_change.Batching | None:
    try:
        return batching_change.read(document)
    except (ValueError, TypeError, AttributeError):
        return None
