"""The difference between two trees of plain data, as plain data that JSON holds exactly.

A tree is what `msgspec.to_builtins` makes of a struct: dicts with text keys, lists (or tuples), text, numbers, true,
false, None. A patch is one of

    a scalar             the new value
    [value]              the new value, where that is a list, a dict or None
    []                   the key is gone (in a dict only)
    {key: patch, ...}    what changed inside a dict
    {"<": n, ">": m, "0": patch, ..., "+": [...]}
                         what changed inside a list: n items left at the front and m at the end, items by their place
                         after that, items appended
    {"~": "nan"}         a number that JSON cannot hold: nan, inf, -inf

Values inside [ ] and "+" are written out; there `{"~": "inf"}` stands for such a number, and a dict that has the key
`~` itself for `{"~": dict}`.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

SAME: Any = object()
"""What `difference` says of two equal trees."""
_GONE: list[Any] = []
_SHIFTED_FROM = 4
"""Items from which a list is looked at for having moved by one, as the last samples of something do."""


def difference(old: Any, new: Any) -> Any:
    """The patch that makes `new` of `old`; SAME where there is none."""
    if old is new:
        return SAME
    if isinstance(new, dict):
        return _of_dicts(old, new) if isinstance(old, dict) else [written(new)]
    if isinstance(new, list | tuple):
        return _of_lists(old, new) if isinstance(old, list | tuple) else [written(new)]
    if _equal(old, new):
        return SAME
    if new is None:
        return [None]
    return written(new)


def _equal(old: Any, new: Any) -> bool:
    """Scalars alike in type too: 1 is not 1.0 and not true; NaN is NaN, 0.0 is not -0.0."""
    if type(old) is not type(new):
        return False
    return bool(old == new and (new or repr(old) == repr(new))) or (old != old and new != new)


def _of_dicts(old: dict[str, Any], new: dict[str, Any]) -> Any:
    if "~" in old or "~" in new:  # no such name in our structs; a label or a path may be called so
        return SAME if old == new else [written(new)]
    patch: dict[str, Any] = {}
    for key, value in new.items():
        found = difference(old[key], value) if key in old else _whole(value)
        if found is not SAME:
            patch[key] = found
    for key in old:
        if key not in new:
            patch[key] = _GONE
    return patch or SAME


def _whole(value: Any) -> Any:
    return [written(value)] if value is None or isinstance(value, dict | list | tuple) else written(value)


def _of_lists(old: Any, new: Any) -> Any:
    patch: dict[str, Any] = {}
    kept = old
    if len(old) >= _SHIFTED_FROM and len(new) >= len(old) - 1 and _moved_by_one(old, new):
        patch["<"] = 1
        kept = old[1:]
    if len(kept) > len(new):
        patch[">"] = len(kept) - len(new)
    for at, (before, after) in enumerate(zip(kept, new, strict=False)):
        found = difference(before, after)
        if found is not SAME:
            patch[str(at)] = found
    if len(new) > len(kept):
        patch["+"] = [written(value) for value in new[len(kept) :]]
    return patch or SAME


def _moved_by_one(old: Any, new: Any) -> bool:
    """True where the old list less its first item begins the new one, and not the whole old list does."""
    return bool(list(old[1:]) == list(new[: len(old) - 1]) and list(old) != list(new[: len(old)]))


def written(value: Any) -> Any:
    """A tree in the form in which a patch holds it; the same object where nothing in it needs a form of its own."""
    if isinstance(value, float):
        return value if isfinite(value) else {"~": repr(value)}
    if isinstance(value, dict):
        made = {key: written(one) for key, one in value.items()}
        return {"~": made} if "~" in value else made
    if isinstance(value, list | tuple):
        return [written(one) for one in value]
    return value


def read(value: Any) -> Any:
    """The tree that was `written`. ValueError for what is none."""
    if isinstance(value, dict):
        if "~" not in value:
            return {key: read(one) for key, one in value.items()}
        inner = value["~"]
        if isinstance(inner, str):
            return float(inner)
        if isinstance(inner, dict):
            return {key: read(one) for key, one in inner.items()}
        raise ValueError("`~` stands for a number or a dict")
    return [read(one) for one in value] if isinstance(value, list) else value


def patched(old: Any, patch: Any) -> Any:
    """The tree that `patch` makes of `old`, which stays as it is. ValueError for a patch that does not fit."""
    if isinstance(patch, list):
        if len(patch) != 1:
            raise ValueError("a patch takes away what is in no dict")
        return read(patch[0])
    if not isinstance(patch, dict):
        return patch
    if "~" in patch:
        return read(patch)
    if isinstance(old, dict):
        return _patched_dict(old, patch)
    if isinstance(old, list | tuple):
        return _patched_list(old, patch)
    raise ValueError("a patch goes inside of what has no inside")


def _patched_dict(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    made = dict(old)
    for key, one in patch.items():
        if one == _GONE and isinstance(one, list):
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), one)
    return made


def _patched_list(old: Any, patch: dict[str, Any]) -> list[Any]:
    front, back = patch.get("<", 0), patch.get(">", 0)
    if not (type(front) is type(back) is int and front >= 0 and back >= 0 and front + back <= len(old)):
        raise ValueError("a patch takes more from a list than it has")
    made = list(old[front : len(old) - back])
    for key, one in patch.items():
        if key in ("<", ">"):
            continue
        if key == "+":
            made += read(one)
            continue
        at = int(key)
        if not 0 <= at < len(made):
            raise ValueError("a patch changes an item that a list has not")
        made[at] = patched(made[at], one)
    return made
