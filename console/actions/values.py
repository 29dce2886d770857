"""The values that a person gives for an action, held against its fields before anything else looks at them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from console.core.plan import Field, WrongInput
from console.core.text import literal, one_line, whole_number

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
LONGEST = 100_000
"""Characters of one value: the longest argument that a command line may have is 131072 bytes."""


def checked(fields: tuple[Field, ...], values: Mapping[str, str]) -> dict[str, str]:
    """`values` in one form each (`yes` becomes `true`); WrongInput for a name or a value that cannot be."""
    known = {one.name: one for one in fields}
    good: dict[str, str] = {}
    for name, value in values.items():
        if name not in known:
            raise WrongInput(nearest(name, known, "value of this action"))
        good[name] = _value(known[name], value)
    return good


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """The sentence for a name that is not among `known`."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else ("known are " + ", ".join(names) if names else "it takes none")
    return f"`{one_line(name, 80)}` is no {what}; {hint}"


def shown(field: Field, value: str) -> str:
    """The value as a refusal may print it."""
    return "its value" if field.secret else repr(one_line(value, 80))


def _value(field: Field, value: str) -> str:
    if len(value) > LONGEST:
        raise WrongInput(f"`{field.name}` is longer than {LONGEST} characters; give a shorter one")
    if literal(value.replace("\n", "")) != value.replace("\n", "").replace("\t", "    "):
        raise WrongInput(f"`{field.name}` holds control characters or is no valid text; type it anew")
    if field.kind == "int":
        return _whole(field, value.strip())
    if field.kind == "bool":
        return _bool(field, value.strip().lower())
    if field.kind == "choice" and value not in field.choices:
        raise WrongInput(f"`{field.name}` must be one of {', '.join(field.choices)}, not {shown(field, value)}")
    if field.kind in ("list", "map"):
        return _parts(field, value)
    return value


def _whole(field: Field, value: str) -> str:
    number = whole_number(value)
    unit = f" {field.unit}" if field.unit else ""
    if number is None:
        raise WrongInput(f"`{field.name}` must be a whole number{unit and ' of' + unit}, not {shown(field, value)}")
    if (field.low is not None and number < field.low) or (field.high is not None and number > field.high):
        least = "" if field.low is None else f"{field.low} at least"
        most = "" if field.high is None else f"{field.high} at most"
        limits = f"from {field.low} to {field.high}" if least and most else least or most
        raise WrongInput(f"`{field.name}` must be {limits}{unit}, not {shown(field, value)}")
    return str(number)


def _bool(field: Field, value: str) -> str:
    if value not in _YES + _NO:
        raise WrongInput(f"`{field.name}` must be true or false, not {shown(field, value)}")
    return "true" if value in _YES else "false"


def _parts(field: Field, value: str) -> str:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    for part in parts:
        name, equals, _ = part.partition("=")
        if field.kind == "map" and (not equals or not name.strip()):
            raise WrongInput(f"`{field.name}` must be name=value pairs with commas between, not {shown(field, part)}")
    return ",".join(parts)
