"""config.pbtxt edited as text: twenty-one files in the styles that are met, and generated ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.clients import pbtxt
from console.clients.pbtxt_edit import BOM, EditError, edit, rewrite, tree

FILES = sorted((Path(__file__).parents[1] / "data" / "pbtxt").glob("*.pbtxt"))


def parse(text: str) -> Any:
    return pbtxt.parse(text.removeprefix(BOM)).message


def copy(message: Any) -> Any:
    other = type(message)()
    other.CopyFrom(message)
    return other


def changed(text: str, change: Callable[[Any], None]) -> str:
    """The edited text; that it means what was wanted is looked at here once more."""
    wanted = copy(parse(text))
    change(wanted)
    done = edit(text, wanted)
    assert parse(done) == wanted
    return done


def region(old: str, new: str) -> tuple[str, str]:
    """What is left of both texts when their common beginning and end are taken away."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[len(old) - 1 - tail] == new[len(new) - 1 - tail]:
        tail += 1
    return old[head : len(old) - tail], new[head : len(new) - tail]


def delay(message: Any) -> None:
    message.dynamic_batching.max_queue_delay_microseconds = 7654321


def max_batch(message: Any) -> None:
    message.max_batch_size = 7654321


def more_instances(message: Any) -> None:
    message.instance_group[0].count = 7654321


def queue_limit(message: Any) -> None:
    message.dynamic_batching.default_queue_policy.max_queue_size = 7654321


def fits(path: Path, change: Callable[[Any], None]) -> bool:
    message = parse(path.read_bytes().decode())
    if change is more_instances:
        return bool(message.instance_group)
    return change is max_batch or message.WhichOneof("scheduling_choice") in (None, "dynamic_batching")


CHANGES = [(p, c) for p in FILES for c in (delay, max_batch, more_instances, queue_limit) if fits(p, c)]
SIZED = [path for path in FILES if parse(path.read_bytes().decode()).max_batch_size]
BATCHED = [path for path in FILES if parse(path.read_bytes().decode()).HasField("dynamic_batching")]


def test_there_are_twenty_styles() -> None:
    assert len(FILES) >= 20


@pytest.mark.parametrize(("path", "change"), CHANGES, ids=lambda v: getattr(v, "stem", None) or v.__name__)
def test_one_number_changes_one_region(path: Path, change: Callable[[Any], None]) -> None:
    old = path.read_bytes().decode()
    new = changed(old, change)
    before, after = region(old, new)
    assert "7654321".startswith(before.strip()) or before.strip().isalnum(), "only the old number may go"
    assert "#" not in before
    assert len(after) < 120


@pytest.mark.parametrize("path", SIZED, ids=lambda p: p.stem)
def test_there_and_back_is_the_same_text(path: Path) -> None:
    old = path.read_bytes().decode()
    message = parse(old)
    assert edit(changed(old, max_batch), message) == old.replace("0x10", "16")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_message_that_is_inserted_goes_without_a_trace(path: Path) -> None:
    old = path.read_bytes().decode()
    message = parse(old)

    def add(wanted: Any) -> None:
        wanted.model_operations.op_library_filename.append("libx.so")

    there = changed(old, add)
    back = edit(there, message)
    assert back == old or back == old + "\n"


@pytest.mark.parametrize("path", BATCHED, ids=lambda p: p.stem)
def test_batching_off_removes_one_block_and_nothing_else(path: Path) -> None:
    old = path.read_bytes().decode()
    before, after = region(old, changed(old, lambda m: m.ClearField("dynamic_batching")))
    assert "dynamic_batching" in before or before.startswith(("ynamic", "amic"))
    assert after == ""


def test_preferred_sizes_in_every_form() -> None:
    def sizes(*wanted: int) -> Callable[[Any], None]:
        return lambda message: message.dynamic_batching.preferred_batch_size.__setitem__(slice(None), wanted)

    listed = "dynamic_batching { preferred_batch_size: [ 4, 8 ] }"
    assert changed(listed, sizes(4)) == "dynamic_batching { preferred_batch_size: [ 4 ] }"
    assert changed(listed, sizes(8)) == "dynamic_batching { preferred_batch_size: [ 8 ] }"
    assert changed(listed, sizes(2, 4, 8)) == "dynamic_batching { preferred_batch_size: [ 2, 4, 8 ] }"
    assert changed(listed, sizes(4, 8, 16)) == "dynamic_batching { preferred_batch_size: [ 4, 8, 16 ] }"
    assert changed(listed, sizes()) == "dynamic_batching { }"
    single = "dynamic_batching {\n  preferred_batch_size: 4\n}\n"
    assert changed(single, sizes(4, 8)) == (
        "dynamic_batching {\n  preferred_batch_size: 4\n  preferred_batch_size: [8]\n}\n"
    )
    assert changed(single, sizes(2, 4)) == (
        "dynamic_batching {\n  preferred_batch_size: [2] preferred_batch_size: 4\n}\n"
    )
    assert changed("dynamic_batching { preferred_batch_size: [ ] }", sizes(4)) == (
        "dynamic_batching { preferred_batch_size: [4] }"
    )
    noted = "dynamic_batching { preferred_batch_size: [\n4, # a\n8 # b\n] }"
    assert changed(noted, sizes(4)) == "dynamic_batching { preferred_batch_size: [\n4 # a\n # b\n] }"
    assert changed(noted, sizes(8)) == "dynamic_batching { preferred_batch_size: [\n # a\n8 # b\n] }"


def test_instance_groups_come_and_go() -> None:
    two = "instance_group [\n  { count: 1 kind: KIND_CPU }, # first\n  { count: 2 kind: KIND_GPU }\n]\n"
    assert changed(two, lambda m: m.instance_group.__delitem__(1)) == (
        "instance_group [\n  { count: 1 kind: KIND_CPU } # first\n  \n]\n"
    )

    def third(message: Any) -> None:
        message.instance_group.add(count=3, kind=3)

    assert changed(two, third).endswith("KIND_GPU },\n  { count: 3 kind: KIND_MODEL }\n]\n")


def test_an_empty_message_over_lines_and_an_empty_file() -> None:
    text = "dynamic_batching {\n  # nothing yet\n}\n"
    assert changed(text, delay) == ("dynamic_batching {\n  # nothing yet\n  max_queue_delay_microseconds: 7654321\n}\n")
    assert changed("", max_batch) == "max_batch_size: 7654321\n"
    assert changed("# only this", max_batch) == "# only this\nmax_batch_size: 7654321\n"


def test_newlines_of_windows_stay() -> None:
    new = changed("name: 'a'\r\ndynamic_batching {\r\n}\r\n", delay)
    assert new == "name: 'a'\r\ndynamic_batching {\r\n  max_queue_delay_microseconds: 7654321\r\n}\r\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('max_batch_size: 9 default_model_filename: "a" # of two\n "b"', "comment stands within"),
        ("max_batch_size: 0 max_batch_size: 0", "written 2 times"),
        ("max_batch_size: ", "cannot be parsed"),
        ("max_batch_size: 4 \u00a0", "cannot stand here"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_its_reason(text: str, why: str) -> None:
    wanted = parse("")
    wanted.max_batch_size, wanted.default_model_filename = 9, "x"
    with pytest.raises(EditError, match=why):
        edit(text, wanted)


def test_a_changed_map_is_refused() -> None:
    text = 'parameters { key: "a" value { string_value: "b" } }'
    with pytest.raises(EditError, match="parameters is a map"):
        changed(text, lambda m: setattr(m.parameters["a"], "string_value", "c"))


@pytest.mark.parametrize(
    "text", ["a {", "a: }", "a: [1 2]", "a: [1,]", "a: <}", "a: -", ": 1", "a: 'x", "{}", "a" + " {" * 200, "a: - -"]
)
def test_text_that_is_none_has_a_place(text: str) -> None:
    with pytest.raises(EditError, match=r"^\d+:\d+: "):
        tree(text)


# ------------------------------------------------------------------------------------------------------ generated texts


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """A configuration with any of the fields that batching touches, and some that it does not."""
    message = parse("")
    message.name = draw(st.sampled_from(["", "m", 'quote"', "brace {", "# no comment", "ü"]))
    message.max_batch_size = draw(st.integers(0, 64))
    for _ in range(draw(st.integers(0, 3))):
        group = message.instance_group.add(count=draw(st.integers(0, 4)), kind=draw(st.integers(0, 3)))
        group.gpus.extend(draw(st.lists(st.integers(0, 7), max_size=3)))
    if draw(st.booleans()):
        batching = message.dynamic_batching
        batching.SetInParent()
        batching.preferred_batch_size.extend(draw(st.lists(st.integers(1, 64), max_size=4)))
        batching.max_queue_delay_microseconds = draw(st.integers(0, 10**9))
        batching.preserve_ordering = draw(st.booleans())
        if draw(st.booleans()):
            policy = batching.default_queue_policy
            policy.SetInParent()
            policy.timeout_action = draw(st.integers(0, 1))
            policy.max_queue_size = draw(st.integers(0, 100))
    if draw(st.booleans()):
        message.response_cache.enable = draw(st.booleans())
    for name in draw(st.lists(st.sampled_from("abc"), max_size=2)):
        message.input.add(name=name).dims.extend(draw(st.lists(st.integers(-1, 9), max_size=3)))
    return message


class Writer:
    """Writes a message in a style that is drawn anew at each place; every comment has its number."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._comments = 0

    def message(self, message: Any) -> str:
        return "".join(self._field(d, v) for d, v in message.ListFields()) + self._gap()

    def _field(self, descriptor: Any, value: Any) -> str:
        text = self._gap() + descriptor.name
        if descriptor.is_repeated:
            if self._pick(True, False):
                items = (self._gap() + ",").join(self._gap() + self._value(descriptor, item) for item in value)
                return f"{text}: [{items}{self._gap()}]{self._separator()}"
            return "".join(self._one(descriptor, item) for item in value)
        return self._one(descriptor, value)

    def _one(self, descriptor: Any, value: Any) -> str:
        colon = self._pick(":", "") if descriptor.message_type else ":"
        written = self._value(descriptor, value)
        return f"{self._gap()}{descriptor.name}{colon}{self._gap()}{written}{self._separator()}"

    def _value(self, descriptor: Any, value: Any) -> Any:
        if descriptor.message_type:
            opener, closer = self._pick("{}", "<>")
            return opener + self.message(value) + closer
        if descriptor.enum_type:
            return f"{descriptor.enum_type.values_by_number[value].name}"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int):
            return hex(value) if value > 0 and self._pick(True, False) else str(value)
        return '"' + value.replace('"', '\\"') + '"'

    def _gap(self) -> str:
        kind = self._pick(" ", "\n", "\r\n", "\t", "#", "  \n    ")
        if kind != "#":
            return str(kind)
        self._comments += 1
        return f" # c{self._comments}. }} ] ' \n"

    def _separator(self) -> str:
        return str(self._pick("", ",", ";"))

    def _pick(self, *options: Any) -> Any:
        return self._draw(st.sampled_from(options))


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Any, Any]:
    """(text, what it means, what is wanted)"""
    old, wanted = draw(messages()), draw(messages())
    return Writer(draw).message(old), old, wanted


@given(written())
@settings(max_examples=150, deadline=None)
def test_any_text_becomes_any_message(case: tuple[str, Any, Any]) -> None:
    text, old, wanted = case
    assert parse(text) == old
    assert edit(text, old) == text
    done = edit(text, wanted)
    assert parse(done) == wanted
    tree(done)


@given(written())
@settings(max_examples=100, deadline=None)
def test_a_change_of_one_number_keeps_every_comment(case: tuple[str, Any, Any]) -> None:
    text, old, _ = case
    wanted = copy(old)
    wanted.max_batch_size = old.max_batch_size + 100
    done = edit(text, wanted)
    before, _after = region(text, done)
    assert len(before) <= 4
    assert [c for c in done.split() if c == "#"] == [c for c in text.split() if c == "#"]


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_tree_or_an_error(text: str) -> None:
    try:
        top = tree(text)
    except EditError:
        return
    assert top.inside == (0, len(text))


@given(messages())
@settings(max_examples=50, deadline=None)
def test_the_rewrite_means_the_same(message: Any) -> None:
    assert parse(rewrite(message)) == message
