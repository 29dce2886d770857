"""A change of how one model batches: its fields, the server's own rules for them, and the override that applies it.

Pure: configurations are the JSON documents of `/config` as plain dictionaries. What is in place, what reloads, and what
the server adds to a configuration by itself are domain facts 1.4, 1.7 and 1.8, measured on 2.51.0.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from console.core.plan import Field, WrongInput
from console.core.text import one_line, whole_number

How = Literal["in place", "reload"]

LARGEST: Final = 2**31 - 1
LONGEST_US: Final = 3_600_000_000
"""An hour: what is longer was meant in another unit."""
MAX_INSTANCES: Final = 1000

FIELDS: tuple[Field, ...] = (
    Field("dynamic_batching", "requests that wait are put together into batches", "bool"),
    Field("delay_us", "how long a request may wait for others", "int", low=0, high=LONGEST_US, unit="µs"),
    Field("preferred", "sizes at which a batch leaves at once; for TensorRT profiles", "list"),
    Field("max_batch_size", "the largest batch; 0 = the model does not batch", "int", low=0, high=LARGEST),
    Field("instances", "copies that run at once: 2, or per group as in cpu=2,gpu0=1", "text"),
    Field(
        "max_queue_size",
        "waiting requests above which new ones are refused; 0 = no limit",
        "int",
        low=0,
        high=2**32 - 1,
    ),
    Field(
        "timeout_us", "how long a request may wait in the queue; 0 = for ever", "int", low=0, high=LONGEST_US, unit="µs"
    ),
    Field("timeout_action", "what happens to it then", "choice", ("REJECT", "DELAY")),
    Field("allow_timeout_override", "a request may ask for a shorter time", "bool"),
    Field("priority_levels", "number of priorities, 1 is the highest; 0 = none", "int", low=0, high=1000),
    Field("default_priority", "of requests that name none", "int", low=0, high=1000),
    Field("preserve_ordering", "answers leave in the order of the requests", "bool"),
    Field("response_cache", "answers of equal requests come from the server's cache", "bool"),
)
NAMES: Final = tuple(field.name for field in FIELDS)
OF_BATCHER: Final = frozenset(NAMES) - {"dynamic_batching", "max_batch_size", "instances", "response_cache"}
"""Fields that stand within `dynamic_batching`."""

PREDICTED: Final = "predicted"
"""Beside the fields of a change: what prediction said of it (mean=1.84,p99=2.3)."""

PRESETS: Mapping[str, Mapping[str, str]] = {
    "500": {"dynamic_batching": "true", "delay_us": "500"},
    "1000": {"dynamic_batching": "true", "delay_us": "1000"},
    "2000": {"dynamic_batching": "true", "delay_us": "2000"},
    "off": {"dynamic_batching": "false"},
    "throughput": {"dynamic_batching": "true", "delay_us": "5000", "preferred": ""},
}
"""Values of a form by the name of the preset; the numbers are µs of delay.

throughput: batches fill up to max_batch_size before they leave."""

_PATHS: Mapping[str, str] = {
    "dynamic_batching": "dynamic_batching",
    "dynamic_batching.max_queue_delay_microseconds": "delay_us",
    "dynamic_batching.preferred_batch_size": "preferred",
    "max_batch_size": "max_batch_size",
    "dynamic_batching.default_queue_policy.max_queue_size": "max_queue_size",
    "dynamic_batching.default_queue_policy.default_timeout_microseconds": "timeout_us",
    "dynamic_batching.default_queue_policy.timeout_action": "timeout_action",
    "dynamic_batching.default_queue_policy.allow_timeout_override": "allow_timeout_override",
    "dynamic_batching.priority_levels": "priority_levels",
    "dynamic_batching.default_priority_level": "default_priority",
    "dynamic_batching.preserve_ordering": "preserve_ordering",
    "response_cache.enable": "response_cache",
}
_GROUP_FIELD = re.compile(r"instance_group\[\d+\]\.(?:count|kind|gpus)")
_LABEL = re.compile(r"(?:(?:cpu|gpu|model|auto)|gpu\d+(?:\+\d+)*)(?:#\d+)?")
_KINDS = {"cpu": "KIND_CPU", "gpu": "KIND_GPU", "model": "KIND_MODEL", "auto": "KIND_AUTO"}
_LLM = frozenset({"vllm", "tensorrtllm"})
_IN_PLACE_SINCE = (2, 34)
"""Triton 23.05: `instance_group` is left out of the comparison of configurations; before, everything is a reload."""
_POLICY_FREE_SINCE = (2, 49)
"""Triton 24.08: `version_policy` is left out of the comparison as well."""


class Group(Struct, frozen=True):
    """One instance group: `count` per listed GPU, or in all where none is listed."""

    kind: str
    count: int
    gpus: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """`cpu`, `gpu0+1`, `model`."""
        word = self.kind.removeprefix("KIND_").lower()
        return word + "+".join(str(gpu) for gpu in self.gpus) if word == "gpu" else word

    @property
    def total(self) -> int:
        """Instances in all."""
        return self.count * max(1, len(self.gpus))


class Batching(Struct, frozen=True):
    """How a model batches; each field is one of `FIELDS`."""

    dynamic_batching: bool = False
    delay_us: int = 0
    preferred: tuple[int, ...] = ()
    max_batch_size: int = 0
    instances: tuple[Group, ...] = ()
    max_queue_size: int = 0
    timeout_us: int = 0
    timeout_action: str = "REJECT"
    allow_timeout_override: bool = False
    priority_levels: int = 0
    default_priority: int = 0
    preserve_ordering: bool = False
    response_cache: bool = False

    @property
    def total_instances(self) -> int:
        """Over all groups."""
        return sum(group.total for group in self.instances)


class Served(Struct, frozen=True):
    """What else the rules need to know about the model and its server."""

    name: str
    backend: str = ""
    is_ensemble: bool = False
    is_sequence: bool = False
    is_decoupled: bool = False
    ensembles: tuple[tuple[str, int], ...] = ()
    """(name, max_batch_size) of the loaded ensembles that have it as a step."""
    priority_keys: tuple[int, ...] = ()
    """Levels with a queue policy of their own."""
    delaying_levels: bool = False
    """True when one of those policies has a time-out with the action DELAY."""
    rate_limited: bool = False
    server: tuple[int, int] | None = None
    """Version of Triton (2, 51); None = not known."""
    has_cache: bool | None = None
    """The server was started with --cache-config; None = not known."""


class Problem(Struct, frozen=True):
    """What the server would refuse, or worse, accept with a loss."""

    field: str
    text: str


# ------------------------------------------------------------------------------------------------ reading and wanting


def read(config: Mapping[str, Any]) -> Batching:
    """The settings of a configuration document."""
    dynamic = config.get("dynamic_batching")
    batcher: Mapping[str, Any] = dynamic if isinstance(dynamic, Mapping) else {}
    policy = batcher.get("default_queue_policy") or {}
    return Batching(
        dynamic_batching=isinstance(dynamic, Mapping),
        delay_us=int(batcher.get("max_queue_delay_microseconds", 0)),
        preferred=tuple(int(size) for size in batcher.get("preferred_batch_size", ())),
        max_batch_size=int(config.get("max_batch_size", 0)),
        instances=tuple(_group(group) for group in config.get("instance_group", ())),
        max_queue_size=int(policy.get("max_queue_size", 0)),
        timeout_us=int(policy.get("default_timeout_microseconds", 0)),
        timeout_action=str(policy.get("timeout_action", "REJECT")),
        allow_timeout_override=bool(policy.get("allow_timeout_override", False)),
        priority_levels=int(batcher.get("priority_levels", 0)),
        default_priority=int(batcher.get("default_priority_level", 0)),
        preserve_ordering=bool(batcher.get("preserve_ordering", False)),
        response_cache=bool((config.get("response_cache") or {}).get("enable", False)),
    )


def _group(group: Mapping[str, Any]) -> Group:
    return Group(
        str(group.get("kind", "KIND_AUTO")),
        int(group.get("count", 0)) or 1,
        tuple(int(gpu) for gpu in group.get("gpus", ())),
    )


def served(
    config: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]],
    *,
    server: tuple[int, int] | None = None,
    has_cache: bool | None = None,
) -> Served:
    """What the rules need, from the model's configuration and those of other loaded models by name."""
    name = str(config.get("name", ""))
    levels = (config.get("dynamic_batching") or {}).get("priority_queue_policy") or {}
    return Served(
        name=name,
        backend=str(config.get("backend", "")),
        is_ensemble="ensemble_scheduling" in config or config.get("platform") == "ensemble",
        is_sequence="sequence_batching" in config,
        is_decoupled=bool((config.get("model_transaction_policy") or {}).get("decoupled", False)),
        ensembles=tuple(
            (other, int(found.get("max_batch_size", 0)))
            for other, found in sorted(others.items())
            if any(step.get("model_name") == name for step in (found.get("ensemble_scheduling") or {}).get("step", ()))
        ),
        priority_keys=tuple(int(key) for key in levels),
        delaying_levels=any(
            level.get("timeout_action") == "DELAY" and int(level.get("default_timeout_microseconds", 0))
            for level in levels.values()
        ),
        rate_limited=any(group.get("rate_limiter") for group in config.get("instance_group", ())),
        server=server,
        has_cache=has_cache,
    )


def wanted(live: Batching, values: Mapping[str, str]) -> Batching:
    """The settings after `values` (text in the forms of `FIELDS`). WrongInput for what cannot be read.

    Without dynamic batching the fields within it do not exist: giving one without switching it on is wrong input.
    """
    given: dict[str, Any] = {}
    for name, text in values.items():
        given[name] = _read_value(name, text, live)
    on = given.get("dynamic_batching", live.dynamic_batching)
    stray = [name for name in given if name in OF_BATCHER and given[name]]
    if not on:
        if stray and "dynamic_batching" not in given:
            raise WrongInput(f"`{stray[0]}` needs dynamic batching, which is off; give dynamic_batching=on as well")
        if stray:
            raise WrongInput(f"`{stray[0]}` means nothing with dynamic_batching=off; leave one of them out")
        plain = Batching()
        given |= {name: getattr(plain, name) for name in OF_BATCHER}
    return replace(live, **given)


def _read_value(name: str, text: str, live: Batching) -> Any:
    field = next((field for field in FIELDS if field.name == name), None)
    if field is None:
        raise WrongInput(f"`{one_line(name, 40)}` is no batching field; known are {', '.join(NAMES)}")
    text = text.strip()
    if name == "instances":
        return _instances(text, live.instances)
    if name == "preferred":
        return _sizes(text)
    if field.kind == "bool":
        word = text.lower()
        if word not in ("true", "on", "yes", "1", "false", "off", "no", "0"):
            raise WrongInput(f"`{name}` must be on or off, not {one_line(text, 40)!r}")
        return word in ("true", "on", "yes", "1")
    if field.kind == "choice":
        if text.upper() not in field.choices:
            raise WrongInput(f"`{name}` must be one of {', '.join(field.choices)}, not {one_line(text, 40)!r}")
        return text.upper()
    number = whole_number(text)
    low, high = field.low or 0, field.high or LARGEST
    if number is None or not low <= number <= high:
        unit = f" {field.unit}" if field.unit else ""
        raise WrongInput(f"`{name}` must be a whole number from {low} to {high}{unit}, not {one_line(text, 40)!r}")
    return number


def _sizes(text: str) -> tuple[int, ...]:
    sizes = [whole_number(part.strip()) for part in text.strip("[]").split(",") if part.strip()]
    if any(size is None or not 0 < size <= LARGEST for size in sizes):
        raise WrongInput(f"`preferred` must be sizes above 0 with commas between, not {one_line(text, 40)!r}")
    return tuple(sorted({size for size in sizes if size is not None}))


def _instances(text: str, live: tuple[Group, ...]) -> tuple[Group, ...]:
    """`3` for the only group, `cpu=2,gpu0=1` by label; groups that are not named stay, a count of 0 takes one away."""
    labels = labels_of(live)
    number = whole_number(text)
    if number is not None:
        if len(live) > 1:
            raise WrongInput(f"`instances` must say of which group: {', '.join(f'{label}=…' for label in labels)}")
        label = labels[0] if labels else "cpu"
        text = f"{label}={number}"
    groups = dict(zip(labels, live, strict=True))
    for part in (part.strip() for part in text.split(",") if part.strip()):
        label, _, count_text = part.partition("=")
        label, count = label.strip().lower(), whole_number(count_text.strip())
        if count is None or not 0 <= count <= MAX_INSTANCES or not _LABEL.fullmatch(label):
            raise WrongInput(
                f"`instances` must be a number up to {MAX_INSTANCES} or group=number as in cpu=2,gpu0=1, "
                f"not {one_line(part, 40)!r}"
            )
        if label in groups:
            groups[label] = replace(groups[label], count=count)
        else:
            groups[label] = _new_group(label, count)
    left = tuple(group for group in groups.values() if group.count)
    if not left:
        raise WrongInput("`instances` must leave one at least; unload the model to stop it")
    return left


def _new_group(label: str, count: int) -> Group:
    plain = label.partition("#")[0]
    if plain in _KINDS:
        return Group(_KINDS[plain], count)
    return Group("KIND_GPU", count, tuple(int(gpu) for gpu in plain.removeprefix("gpu").split("+")))


def labels_of(groups: Sequence[Group]) -> tuple[str, ...]:
    """A name for each group; the second of the same kind and GPUs is `cpu#2`."""
    labels: list[str] = []
    for group in groups:
        same = sum(1 for label in labels if label.partition("#")[0] == group.label)
        labels.append(f"{group.label}#{same + 1}" if same else group.label)
    return tuple(labels)


def shown(name: str, settings: Batching) -> str:
    """A field's value as a person reads and types it; `–` for what does not apply or is not set."""
    value = getattr(settings, name)
    if name in OF_BATCHER and not settings.dynamic_batching:
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "preferred":
        return ",".join(str(size) for size in value) or "–"
    if name == "instances":
        return ",".join(f"{label}={group.count}" for label, group in zip(labels_of(value), value, strict=True)) or "–"
    if name in ("max_queue_size", "timeout_us", "priority_levels", "default_priority") and not value:
        return "–"
    return str(value)


def changed(old: Batching, new: Batching) -> tuple[str, ...]:
    """Fields that differ; what goes or comes with dynamic batching at its default is not told apart."""
    names = tuple(name for name in NAMES if getattr(old, name) != getattr(new, name))
    if old.dynamic_batching and not new.dynamic_batching:
        return tuple(name for name in names if name not in OF_BATCHER)
    return names


def fields_of(paths: Collection[str]) -> tuple[str, ...]:
    """The fields that paths of a configuration mean (`instance_group[0].count` -> instances), in their order."""
    found = {_PATHS[path] for path in paths if path in _PATHS}
    if any(_GROUP_FIELD.fullmatch(path) for path in paths):
        found.add("instances")
    return tuple(name for name in NAMES if name in found)


def is_field(path: str) -> bool:
    """True when a path of a configuration is one of the fields."""
    return path in _PATHS or _GROUP_FIELD.fullmatch(path) is not None


def came_out(now: Mapping[str, Any], new: Batching, names: Collection[str]) -> tuple[str, ...]:
    """Fields of `names` that a served configuration does not show as wanted. The server resolves kinds and lists GPUs
    by itself, so of groups the counts are looked at."""
    found = read(now)
    return tuple(name for name in names if not _same(name, found, new))


def _same(name: str, found: Batching, new: Batching) -> bool:
    if name == "instances":
        return [group.count for group in found.instances] == [group.count for group in new.instances]
    if name == "preferred" and not new.preferred:
        return found.preferred in ((), (found.max_batch_size,))
    return bool(getattr(found, name) == getattr(new, name))


# ------------------------------------------------------------------------------------------------- rules of the server


def how(name: str, facts: Served | None = None) -> How:
    """What the server does for a change of this field alone."""
    old = facts is not None and facts.server is not None and facts.server < _IN_PLACE_SINCE
    return "in place" if name == "instances" and not old else "reload"


def is_in_place(names: Collection[str], facts: Served, *, policy_changes: bool) -> bool:
    """True when the server updates the model as it runs. `policy_changes`: the pin is not the policy that is served."""
    if not names or any(how(name, facts) == "reload" for name in names):
        return False
    return not policy_changes or facts.server is None or facts.server >= _POLICY_FREE_SINCE


def obstacles(facts: Served, live: Batching, new: Batching) -> tuple[Problem, ...]:
    """Why this model cannot be changed so, whatever the values (domain facts 1.6, 1.8, 5)."""
    names = changed(live, new)
    first = next(iter(names), "")
    if facts.is_ensemble:
        return (Problem(first, f"{facts.name} is an ensemble: it has no batcher or instances; tune its steps"),)
    if facts.backend in _LLM:
        text = (
            f"{facts.name} runs on {facts.backend}, which batches by itself and fills the card, so two copies do not "
            "fit; change its own settings, and unload before loading"
        )
        return (Problem(first, text),)
    inner = [name for name in names if name in OF_BATCHER or name == "dynamic_batching"]
    if facts.is_sequence and inner:
        return (Problem(inner[0], f"{facts.name} batches sequences: dynamic batching and that exclude each other"),)
    found = []
    if "max_batch_size" in names:
        found += [
            Problem(
                "max_batch_size", f"ensemble {name} needs {size} of {facts.name}: the server would drop it silently"
            )
            for name, size in facts.ensembles
            if new.max_batch_size < size
        ]
    if "response_cache" in names and new.response_cache and (facts.is_sequence or facts.is_decoupled):
        kind = "sequence" if facts.is_sequence else "decoupled"
        found.append(Problem("response_cache", f"the server has no response cache for {kind} models"))
    return tuple(found)


def problems(facts: Served, new: Batching) -> tuple[Problem, ...]:
    """Values that the server would refuse, a sentence each, before anything is sent (domain facts 1.8)."""
    return tuple(_batcher_problems(facts, new)) if new.dynamic_batching else ()


def _batcher_problems(facts: Served, new: Batching) -> list[Problem]:
    found: list[Problem] = []
    if new.preferred and max(new.preferred) > new.max_batch_size:
        text = f"preferred size {max(new.preferred)} is above max_batch_size {new.max_batch_size}"
        found.append(Problem("preferred", text))
    levels = new.priority_levels
    if levels and not 1 <= new.default_priority <= levels:
        found.append(Problem("default_priority", f"default_priority must be 1 to {levels} with {levels} priorities"))
    if not levels and new.default_priority:
        found.append(Problem("default_priority", "default_priority needs priority_levels"))
    stray = [key for key in facts.priority_keys if key > levels]
    if levels and stray:
        found.append(Problem("priority_levels", f"level {stray[0]} has a queue policy of its own in the configuration"))
    if new.preserve_ordering and levels > 1:
        found.append(Problem("preserve_ordering", "preserve_ordering allows one priority only"))
    delays = new.timeout_us and new.timeout_action == "DELAY"
    if new.preserve_ordering and (delays or facts.delaying_levels):
        found.append(Problem("timeout_action", "preserve_ordering does not go with the time-out action DELAY"))
    return found


def warnings(facts: Served, live: Batching, new: Batching) -> tuple[Problem, ...]:
    """What the server accepts but a person should know, beside the field."""
    names = changed(live, new)
    found: list[Problem] = []
    if "max_queue_size" in names and new.max_queue_size:
        found.append(
            Problem(
                "max_queue_size",
                "a full queue was seen to leave the instance half idle (37 to 46 of 78 requests/s served), and its 503 "
                "are counted nowhere" + ("; the limit holds for each priority" if new.priority_levels else ""),
            )
        )
    if "timeout_us" in names and new.timeout_us:
        text = "time-outs are looked at only when a batch forms or every 0.5 s: 200 ms fired after 0.5 to 1.2 s"
        found.append(Problem("timeout_us", text))
    if "max_batch_size" in names and new.max_batch_size < live.max_batch_size:
        least = "any batch dimension" if not new.max_batch_size else f"a batch above {new.max_batch_size}"
        found.append(Problem("max_batch_size", f"requests with {least} get 400 from then on"))
    if "max_batch_size" in names and new.max_batch_size > live.max_batch_size:
        text = "a model built for less (a TensorRT engine) fails to load; the old one then serves on"
        found.append(Problem("max_batch_size", text))
    if ("dynamic_batching" in names or "delay_us" in names) and new.dynamic_batching and new.max_batch_size <= 1:
        found.append(Problem("dynamic_batching", f"nothing is batched with max_batch_size {new.max_batch_size}"))
    if "instances" in names and facts.rate_limited and new.total_instances > live.total_instances:
        text = "the rate limiter's resources may not suffice: then the server stays as it is and gives the reason"
        found.append(Problem("instances", text))
    if "response_cache" in names and new.response_cache and facts.has_cache is not True:
        missing = "has no cache (--cache-config)" if facts.has_cache is False else "may have no cache (--cache-config)"
        found.append(Problem("response_cache", f"the server {missing}: then this does nothing"))
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------- override


class Plain(Struct, frozen=True):
    """A served configuration less what the server added to it by itself."""

    document: dict[str, Any]
    left_out: tuple[str, ...]
    """Such as `preferred_batch_size [16]`."""


def pinned(versions: Sequence[int]) -> dict[str, Any]:
    """The policy that serves these versions and no other: under `latest 1` a load deploys a newer folder on disk."""
    return {"specific": {"versions": sorted(versions)}}


def plain(live: Mapping[str, Any], on_disk: Collection[str] | None) -> Plain:
    """The served configuration without the server's own additions. `on_disk`: paths that the file sets (pbtxt.flat);
    None where it cannot be seen.

    Kept, they would be pinned: raising max_batch_size from 4 to 16 with the added `preferred_batch_size: [4]` gave
    ragged batches (domain facts 1.7).
    """
    document = copy.deepcopy(dict(live))
    told = frozenset(on_disk or ())
    left_out: list[str] = []
    size = document.get("max_batch_size", 0)
    oldest = (document.get("sequence_batching") or {}).get("oldest")
    for path, batcher in (
        ("dynamic_batching", document.get("dynamic_batching")),
        ("sequence_batching.oldest", oldest),
    ):
        is_added = f"{path}.preferred_batch_size" not in told
        if batcher and is_added and batcher.get("preferred_batch_size") == [size]:
            del batcher["preferred_batch_size"]
            left_out.append(f"preferred_batch_size [{size}]")
    if document.get("version_policy") == {"latest": {"num_versions": 1}}:
        del document["version_policy"]
    _less_pinned_memory(document, told)
    for at, group in enumerate(document.get("instance_group", ())):
        if group.get("name") == f"{document.get('name')}_{at}" and f"instance_group[{at}].name" not in told:
            del group["name"]
    return Plain(document, tuple(left_out))


def override(document: Mapping[str, Any], new: Batching, versions: Sequence[int]) -> dict[str, Any]:
    """The whole configuration to be sent: `document` (see `plain`) with `new` for its settings and the served versions
    pinned."""
    made = copy.deepcopy(dict(document))
    now = read(made)
    for name in NAMES:
        value = getattr(new, name)
        if value != getattr(now, name):
            _put(made, name, value)
    made["version_policy"] = pinned(versions)
    return made


def _less_pinned_memory(document: dict[str, Any], on_disk: frozenset[str]) -> None:
    optimization = document.get("optimization")
    if not isinstance(optimization, dict):
        return
    for name in ("input_pinned_memory", "output_pinned_memory"):
        if optimization.get(name) == {"enable": True} and f"optimization.{name}.enable" not in on_disk:
            del optimization[name]
    if not any(value for key, value in optimization.items() if value != "PRIORITY_DEFAULT" or key != "priority"):
        del document["optimization"]


_KEYS: Mapping[str, str] = {
    "delay_us": "max_queue_delay_microseconds",
    "preferred": "preferred_batch_size",
    "priority_levels": "priority_levels",
    "default_priority": "default_priority_level",
    "preserve_ordering": "preserve_ordering",
}
_POLICY_KEYS: Mapping[str, str] = {
    "max_queue_size": "max_queue_size",
    "timeout_us": "default_timeout_microseconds",
    "timeout_action": "timeout_action",
    "allow_timeout_override": "allow_timeout_override",
}


def _put(document: dict[str, Any], name: str, value: Any) -> None:
    if name == "max_batch_size":
        document[name] = value
    elif name == "response_cache":
        document[name] = {"enable": value}
    elif name == "instances":
        document["instance_group"] = _put_groups(document.get("instance_group", ()), value)
    elif name == "dynamic_batching":
        if value:
            document.setdefault(name, {})
        else:
            document.pop(name, None)
    elif (batcher := document.get("dynamic_batching")) is not None:
        if name in _KEYS:
            batcher[_KEYS[name]] = list(value) if name == "preferred" else value
        else:
            batcher.setdefault("default_queue_policy", {})[_POLICY_KEYS[name]] = value


def _put_groups(old: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Groups that were there keep all else that they say (rate limiter, profiles)."""
    by_label = dict(zip(labels_of([_group(group) for group in old]), old, strict=True))
    made: list[dict[str, Any]] = []
    for label, group in zip(labels_of(groups), groups, strict=True):
        plain = {"kind": group.kind, **({"gpus": list(group.gpus)} if group.gpus else {})}
        made.append({**(by_label.get(label) or plain), "count": group.count})
    return made
