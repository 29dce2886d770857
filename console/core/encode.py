"""JSON of plain data whose text may be no valid Unicode (a file name of undecodable bytes)."""

from __future__ import annotations

from typing import Any

import msgspec


def to_json(content: Any) -> bytes:
    """One line of JSON; each lone surrogate becomes `?`."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return msgspec.json.encode(_repaired(msgspec.to_builtins(content)))


def _repaired(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode("utf-8")
    if isinstance(content, dict):
        return {_repaired(key): _repaired(value) for key, value in content.items()}
    return [_repaired(value) for value in content] if isinstance(content, list | tuple) else content
