"""A model's whole configuration for a load with an override, and its version policy.

An override replaces the configuration, it does not merge, and it stays until the file is newer (domain facts 1.4). What
the server put into the served one by itself must not be pinned by it: an inherited `preferred_batch_size: [4]` with
max batch 16 gave ragged batches (1.7).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from google.protobuf import json_format
from msgspec import Struct

from console.clients import pbtxt
from console.core.model import SourceError
from console.core.text import one_line, whole_number

MAX_FILE = 4 * 1024 * 1024


class Policy(Struct, frozen=True):
    """Which of the version folders are served."""

    kind: Literal["latest", "all", "specific"] = "latest"
    count: int = 1
    versions: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """`latest 1`, `all`, `specific 1 3`."""
        if self.kind == "all":
            return "all"
        words = self.versions if self.kind == "specific" else (self.count,)
        return " ".join([self.kind, *(str(word) for word in words)])

    @property
    def document(self) -> dict[str, Any]:
        """As configuration JSON."""
        if self.kind == "all":
            return {"all": {}}
        if self.kind == "specific":
            return {"specific": {"versions": list(self.versions)}}
        return {"latest": {"num_versions": self.count}}

    def serves(self, folders: Iterable[int]) -> tuple[int, ...]:
        """Those of the folders that it serves, ascending."""
        found = sorted(set(folders))
        if self.kind == "all":
            return tuple(found)
        if self.kind == "specific":
            return tuple(version for version in found if version in self.versions)
        return tuple(found[-max(1, self.count) :])


def specific(versions: Iterable[int]) -> Policy:
    """Of just these versions."""
    return Policy("specific", versions=tuple(sorted(set(versions))))


def policy_of(config: Mapping[str, Any]) -> Policy:
    """Of a configuration as JSON; Triton's default is `latest 1`."""
    policy = config.get("version_policy")
    if not isinstance(policy, dict):
        return Policy()
    if "all" in policy:
        return Policy("all")
    if isinstance(policy.get("specific"), dict):
        versions = policy["specific"].get("versions", ())
        numbers = (_whole(version) for version in versions) if isinstance(versions, list) else ()
        return specific(number for number in numbers if number is not None)
    latest = policy.get("latest")
    count = _whole(latest.get("num_versions", 1)) if isinstance(latest, dict) else 1
    return Policy("latest", count if count and count > 0 else 1)


def _whole(value: Any) -> int | None:
    """Protobuf's JSON has 64-bit numbers as texts."""
    return value if isinstance(value, int) else whole_number(value) if isinstance(value, str) else None


def parsed(live: str, name: str = "") -> dict[str, Any]:
    """A configuration as served, as an object; SourceError when it is none."""
    try:
        found = json.loads(live)
    except (ValueError, RecursionError) as error:
        raise SourceError("protocol", f"the configuration of {name} is no JSON: {one_line(str(error), 200)}") from error
    if not isinstance(found, dict):
        raise SourceError("protocol", f"the configuration of {name} is no JSON object")
    return found


def base(live: str, name: str = "") -> dict[str, Any]:
    """The served configuration less what the server added by itself and would add again, and less its version policy
    (which may be old, and is never to be copied by accident)."""
    config = parsed(live, name)
    config.pop("version_policy", None)
    largest = config.get("max_batch_size", 0)
    for batcher in (config.get("dynamic_batching"), (config.get("sequence_batching") or {}).get("oldest")):
        if isinstance(batcher, dict) and batcher.get("preferred_batch_size") == [largest]:
            del batcher["preferred_batch_size"]
    for at, group in enumerate(config.get("instance_group") or ()):
        if isinstance(group, dict) and group.get("name") == f"{config.get('name')}_{at}":
            del group["name"]
    return config


def override(config: Mapping[str, Any], policy: Policy, **changes: Any) -> str:
    """The text for a load's `config`: `config` (of `base`) with this version policy and these fields changed."""
    return json.dumps({**config, "version_policy": policy.document, **changes})


# --------------------------------------------------------------------------------------------------------------- disk


def file_of(folder: str, config_name: str = "") -> Path:
    """The configuration file that Triton reads: with `--model-config-name` that one comes first."""
    chosen = Path(folder, "configs", f"{config_name}.pbtxt")
    return chosen if config_name and chosen.exists() else Path(folder, "config.pbtxt")


def on_disk(folder: str, config_name: str = "") -> dict[str, Any] | None:
    """The file's configuration as JSON in the names of config.pbtxt; None where there is no file (Triton completes it).
    SourceError where it cannot be read or parsed."""
    file = file_of(folder, config_name)
    try:
        if os.stat(file).st_size > MAX_FILE:
            raise SourceError("protocol", f"{one_line(str(file), 200)} is too large")
        text = file.read_bytes().decode("utf-8")
        message = pbtxt.parse(text).message
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError("permission", f"{one_line(str(file), 200)}: {error.strerror or error}") from error
    except (UnicodeDecodeError, pbtxt.PbtxtError) as error:
        raise SourceError("protocol", f"{one_line(str(file), 200)}: {one_line(str(error), 200)}") from error
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def warmup(inputs: Sequence[tuple[str, str, Sequence[int]]], batched: bool, name: str) -> list[dict[str, Any]]:
    """`model_warmup` of one sample of zeros with these inputs (name, datatype as in FP32, shape with the batch).

    Triton runs it within the load, before READY (1.8).
    """
    sizes = {shape[0] for _, _, shape in inputs if shape} if batched else {1}
    size = max(sizes, default=1)
    return [
        {
            "name": name,
            "batch_size": size if batched else 0,
            "inputs": {
                tensor: {
                    "data_type": "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}",
                    "dims": list(shape[1:] if batched else shape),
                    "zero_data": True,
                }
                for tensor, datatype, shape in inputs
            },
        }
    ]
