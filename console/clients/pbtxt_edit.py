"""config.pbtxt edited as text: comments, order, unknown fields, separators and newlines stay as they are.

No Python library keeps the comments of protobuf's text format (domain facts 1.7). So the text is read into a tree of
spans, and only the spans of what differs are replaced, inserted or removed, one at a time. Each result is proven: it is
given back only when the schema's own parser reads from it exactly the message that was wanted; else `EditError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from msgspec import Struct

from console.clients import pbtxt

BOM = "\ufeff"
MAX_STEPS = 500
"""Edits of one text; each step is a single replacement, insertion or removal."""
SHORT = 48
"""Characters up to which a message is inserted on one line."""

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\v\f]+)
      | (?P<comment>\#[^\n]*)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\.?[0-9](?:[eE][+-]?(?=[0-9])|[0-9A-Za-z_.])*)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
      | (?P<sign>[-:{}<>\[\],;])""",
    re.VERBOSE,
)
_CLOSES = {"{": "}", "<": ">"}
_MAX_DEPTH = 100


class EditError(Exception):
    """Why a text is not edited: a sentence."""


# ------------------------------------------------------------------------------------------------------- tree of spans


class _Token(Struct, frozen=True):
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Scalar(Struct, frozen=True):
    """A number, word or string; adjacent strings are one value."""

    start: int
    end: int


class Message(Struct, frozen=True):
    """`{ ... }`, `< ... >`, or the whole text (then `inside` is all of it)."""

    start: int
    end: int
    inside: tuple[int, int]
    fields: tuple[Field, ...]


class Items(Struct, frozen=True):
    """`[ a, b ]`; `commas` has one place less than there are items."""

    start: int
    end: int
    items: tuple[Scalar | Message, ...]
    commas: tuple[int, ...]


class Field(Struct, frozen=True):
    """`name: value` with its separator, if it has one."""

    name: str
    start: int
    value: Scalar | Message | Items
    end: int
    separator: str

    @property
    def values(self) -> tuple[Scalar | Message, ...]:
        """The value, or those of its list."""
        return self.value.items if isinstance(self.value, Items) else (self.value,)


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [token for token in _tokens(text) if token.kind not in ("blank", "comment")]
        self._at = 0
        self._depth = 0

    def top(self) -> Message:
        """The whole text."""
        fields = self._fields("")
        return Message(0, len(self._text), (0, len(self._text)), fields)

    def _fields(self, closer: str) -> tuple[Field, ...]:
        fields: list[Field] = []
        while (token := self._peek()) is not None and token.text != closer:
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> Field:
        name = self._take("word")
        if self._looking_at(":"):
            self._at += 1
        value: Scalar | Message | Items = self._items() if self._looking_at("[") else self._value()
        separator = ""
        end = value.end
        if self._looking_at(",") or self._looking_at(";"):
            token = self._tokens[self._at]
            separator, end = token.text, token.end
            self._at += 1
        return Field(name.text, name.start, value, end, separator)

    def _items(self) -> Items:
        opener = self._take("sign", "[")
        items: list[Scalar | Message] = []
        commas: list[int] = []
        while not self._looking_at("]"):
            if items:
                commas.append(self._take("sign", ",").start)
            items.append(self._value())
        return Items(opener.start, self._take("sign", "]").end, tuple(items), tuple(commas))

    def _value(self) -> Scalar | Message:
        token = self._peek()
        if token is None:
            raise self._wrong("the text ends where a value is expected")
        if token.text in _CLOSES:
            return self._message()
        if token.text == "-":
            self._at += 1
            last = self._peek()
            if last is None or last.kind not in ("number", "word"):
                raise self._wrong("a number is expected after -")
            self._at += 1
            return Scalar(token.start, last.end)
        if token.kind not in ("number", "word", "string"):
            raise self._wrong(f"a value is expected, not `{token.text}`")
        self._at += 1
        last = token
        while token.kind == "string" and (more := self._peek()) is not None and more.kind == "string":
            last = more
            self._at += 1
        return Scalar(token.start, last.end)

    def _message(self) -> Message:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._wrong("messages are nested too deep")
        opener = self._tokens[self._at]
        self._at += 1
        closer = _CLOSES[opener.text]
        fields = self._fields(closer)
        end = self._take("sign", closer)
        self._depth -= 1
        return Message(opener.start, end.end, (opener.end, end.start), fields)

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _looking_at(self, sign: str) -> bool:
        token = self._peek()
        return token is not None and token.kind == "sign" and token.text == sign

    def _take(self, kind: str, text: str = "") -> _Token:
        token = self._peek()
        if token is None:
            raise self._wrong(f"the text ends where {text or 'a name'} is expected")
        if token.kind != kind or (text and token.text != text):
            raise self._wrong(f"{text or 'a name'} is expected, not `{token.text[:40]}`")
        self._at += 1
        return token

    def _wrong(self, what: str) -> EditError:
        token = self._peek()
        return EditError(f"{_place(self._text, len(self._text) if token is None else token.start)}: {what}")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise EditError(f"{_place(text, at)}: {text[at]!r} cannot stand here")
        yield _Token(match.lastgroup or "", match.group(), at)
        at = match.end()


def _place(text: str, at: int) -> str:
    return f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def tree(text: str) -> Message:
    """The spans of a text (no byte order mark before it). EditError where it is not text format."""
    return _Reader(text).top()


# --------------------------------------------------------------------------------------------------------------- edits


def edit(text: str, wanted: Any) -> str:
    """`text` with the fewest changes that make it mean `wanted` (a ModelConfig message).

    Fields that the schema lacks are kept. EditError with the reason where the text cannot be edited or the result does
    not parse to `wanted`; then only `rewrite` is left.
    """
    mark = BOM if text.startswith(BOM) else ""
    body = text.removeprefix(BOM)
    for _ in range(MAX_STEPS):
        try:
            message = pbtxt.parse(body).message
        except pbtxt.PbtxtError as error:
            raise EditError(f"it cannot be parsed: {error}") from error
        if message == wanted:
            return mark + body
        changed = _Step(body).message(tree(body), message, wanted)
        if changed == body:
            break
        body = changed
    raise EditError("the edited text does not mean what was wanted")


def rewrite(wanted: Any) -> str:
    """The whole message as text: comments, order and unknown fields of the file are lost."""
    return text_format.MessageToString(wanted, use_short_repeated_primitives=True)


class _Step:
    """One edit of one text: the first difference that is found, what goes away before what comes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def message(self, node: Message, old: Any, new: Any) -> str:
        """The text after the first edit that brings `old` nearer to `new`."""
        different = [
            descriptor
            for descriptor in old.DESCRIPTOR.fields
            if _has(old, descriptor) != _has(new, descriptor)
            or getattr(old, descriptor.name) != getattr(new, descriptor.name)
        ]
        for descriptor in sorted(different, key=lambda d: (_has(new, d), d.number)):
            return self._field(node, descriptor, old, new)
        raise EditError("the difference is in fields that this schema does not have")

    def _field(self, node: Message, descriptor: FieldDescriptor, old: Any, new: Any) -> str:
        found = [field for field in node.fields if field.name == descriptor.name]
        before, after = getattr(old, descriptor.name), getattr(new, descriptor.name)
        if pbtxt.is_map(descriptor):
            raise EditError(f"{descriptor.name} is a map, whose entries are not edited")
        if descriptor.is_repeated:
            return self._repeated(node, found, descriptor, before, after, new)
        if not found:
            return self._insert(node, _only(new, descriptor, after))
        if len(found) > 1:
            raise EditError(f"{descriptor.name} is written {len(found)} times")
        if descriptor.message_type is None:
            return self._replace(found[0].value, _scalar_text(descriptor, after))
        if not _has(new, descriptor):
            return self._remove(found[0])
        value = found[0].value
        if not isinstance(value, Message):
            raise EditError(f"{descriptor.name} is not written as a message")
        return self.message(value, before, after)

    def _repeated(
        self, node: Message, found: list[Field], descriptor: FieldDescriptor, before: Any, after: Any, new: Any
    ) -> str:
        """Items that are alike at both ends stay; those between are changed pairwise, then removed or inserted."""
        items = [(field, at) for field in found for at in range(len(field.values))]
        if len(items) != len(before):
            raise EditError(f"the items of {descriptor.name} cannot be told apart")
        head = _alike(before, after)
        tail = _alike(list(before)[head:][::-1], list(after)[head:][::-1])
        if head < len(before) - tail and head < len(after) - tail:
            field, at = items[head]
            value = field.values[at]
            if descriptor.message_type is None:
                return self._replace(value, _scalar_text(descriptor, after[head]))
            if not isinstance(value, Message):
                raise EditError(f"{descriptor.name} is not written as a message")
            return self.message(value, before[head], after[head])
        if len(before) > len(after):
            return self._remove_item(*items[head])
        if not items:
            if found:
                return self._remove(found[0])
            return self._insert(node, _only(new, descriptor, after))
        field, at = items[head - 1] if head else items[0]
        return self._insert_item(field, at, head == 0, descriptor, _only(new, descriptor, [after[head]]), after[head])

    # ------------------------------------------------------------------------------------------------- splices

    def _splice(self, start: int, end: int, text: str) -> str:
        return self._text[:start] + text + self._text[end:]

    def _replace(self, value: Scalar | Message | Items, text: str) -> str:
        if not isinstance(value, Scalar):
            raise EditError(f"{_place(self._text, value.start)}: one value is expected here")
        if self._has_comment(value.start, value.end):
            raise EditError(f"{_place(self._text, value.start)}: a comment stands within the value")
        return self._splice(value.start, value.end, text)

    def _remove(self, field: Field) -> str:
        """A field on lines of its own goes with them; a comment after it stays."""
        start, end = field.start, field.end
        line_start, line_end = self._line_start(start), self._line_end(end)
        rest = self._text[end:line_end]
        if not self._text[line_start:start].strip() and not rest.strip():
            return self._splice(line_start, self._after_newline(line_end), "")
        if rest.strip():
            end += len(rest) - len(rest.lstrip(" \t"))
        else:
            start -= len(self._text[line_start:start]) - len(self._text[line_start:start].rstrip(" \t"))
        return self._splice(start, end, "")

    def _remove_item(self, field: Field, at: int) -> str:
        value = field.value
        if not isinstance(value, Items) or len(value.items) == 1:
            return self._remove(field)
        item = value.items[at]
        comma = value.commas[at - 1 if at else 0]
        start, end = (value.items[at - 1].end, item.end) if at else (item.start, value.items[1].start)
        if not self._has_comment(start, item.start) and not self._has_comment(item.end, end):
            return self._splice(start, end, "")
        if at:
            return self._text[:comma] + self._text[comma + 1 : item.start] + self._text[item.end :]
        return self._text[: item.start] + self._text[item.end : comma] + self._text[comma + 1 :]

    def _insert_item(
        self, field: Field, at: int, first: bool, descriptor: FieldDescriptor, only: Any, value: Any
    ) -> str:
        if not isinstance(field.value, Items):
            if first:
                return self._splice(field.start, field.start, _one_line(only) + " ")
            return self._after(field, only, ())
        item = field.value.items[at]
        text = _one_line(value, braces=True) if descriptor.message_type else _scalar_text(descriptor, value)
        if first:
            return self._splice(item.start, item.start, f"{text}, ")
        indent = self._indent(item.start)
        joint = ", " if indent is None else "," + self._newline + indent
        return self._splice(item.end, item.end, joint + text)

    def _insert(self, node: Message, only: Any) -> str:
        """At the end of a message, in the style of the field before."""
        if node.fields:
            return self._after(node.fields[-1], only, node.fields)
        start, end = node.inside
        inside = self._text[start:end]
        if node.end == len(self._text) and start == 0:
            before = self._newline if inside and not inside.endswith("\n") else ""
            return self._text + before + self._lines(only, "") + self._newline
        if "\n" not in inside:
            return self._splice(start, end, f" {_one_line(only)} ")
        line_start = self._line_start(end)
        indent = self._text[line_start:end] + self._unit()
        return self._splice(line_start, line_start, self._lines(only, indent) + self._newline)

    def _after(self, field: Field, only: Any, siblings: tuple[Field, ...]) -> str:
        """On a line of its own below a field that has one, else beside it."""
        indent = self._indent(field.start)
        line_end = self._line_end(field.end)
        rest = self._text[field.end : line_end].strip()
        if indent is not None and (not rest or rest.startswith("#")):
            text = self._lines(only, indent) + field.separator
            return self._splice(line_end, line_end, self._newline + text)
        joint = ""
        if not field.separator and len(siblings) > 1:
            joint = siblings[-2].separator
        return self._splice(field.end, field.end, f"{joint} {_one_line(only)}{field.separator}")

    # -------------------------------------------------------------------------------------------------- places

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        if end < 0:
            return len(self._text)
        return end - 1 if end > at and self._text[end - 1] == "\r" else end

    def _after_newline(self, line_end: int) -> int:
        end = self._text.find("\n", line_end)
        return len(self._text) if end < 0 else end + 1

    def _indent(self, at: int) -> str | None:
        """The blanks before a place on its line; None when something else stands there."""
        before = self._text[self._line_start(at) : at]
        return None if before.strip() else before

    def _unit(self) -> str:
        found = re.search(r"^([ \t]+)[^ \t\r\n]", self._text, re.MULTILINE)
        return found.group(1) if found is not None and len(found.group(1)) <= 8 else "  "

    def _lines(self, only: Any, indent: str) -> str:
        short = _one_line(only)
        if len(short) <= SHORT:
            return indent + short
        whole = rewrite(only).rstrip("\n").splitlines()
        unit = self._unit()
        return self._newline.join(
            indent + unit * ((len(line) - len(line.lstrip())) // 2) + line.lstrip() for line in whole
        )

    def _has_comment(self, start: int, end: int) -> bool:
        return any(token.kind == "comment" for token in _tokens(self._text[start:end]))


def _has(message: Any, descriptor: FieldDescriptor) -> bool:
    if descriptor.is_repeated:
        return len(getattr(message, descriptor.name)) > 0
    if descriptor.has_presence:
        return bool(message.HasField(descriptor.name))
    return True


def _alike(one: Any, other: Any) -> int:
    """How many items are equal at the beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _only(parent: Any, descriptor: FieldDescriptor, value: Any) -> Any:
    """A message like `parent` that has this one field."""
    only = type(parent)()
    if descriptor.is_repeated:
        getattr(only, descriptor.name).extend(value)
    elif descriptor.message_type is not None:
        getattr(only, descriptor.name).CopyFrom(value)
        getattr(only, descriptor.name).SetInParent()
    else:
        setattr(only, descriptor.name, value)
    return only


def _one_line(message: Any, *, braces: bool = False) -> str:
    text = text_format.MessageToString(message, as_one_line=True, use_short_repeated_primitives=True).strip()
    if braces:
        return f"{{ {text} }}" if text else "{ }"
    return text


def _scalar_text(descriptor: FieldDescriptor, value: Any) -> str:
    out = text_format.TextWriter(False)
    text_format.PrintFieldValue(descriptor, value, out, as_one_line=True)
    text: str = out.getvalue()
    return text.strip()
