"""The form widget: key mode, stepping, typing, sentences beside the fields; any field kind, any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.plan import Field
from console.tui.widgets.cells import line_width, plain
from console.tui.widgets.form import Form, FormRow, Note, stepped

ROWS = (
    FormRow(Field("on", "switch", "bool"), "switch", "off", "off", "on", "reload", group="FIRST", beside="beside it"),
    FormRow(Field("delay", "wait", "int", low=0, high=90, unit="µs"), "delay", "20", "20", "20", ladder=(0, 20, 50)),
    FormRow(Field("count", "copies", "int", low=1), "count", "2", "2", "2", "in place"),
    FormRow(Field("way", "what", "choice", ("A", "B")), "way", "A", "A", "A"),
    FormRow(Field("image", "name", "text"), "image", "x:1", "x:1", "x:1"),
    FormRow(Field("token", "secret", "text", secret=True), "token", "", "***", "***"),
    FormRow(Field("warm", "shown"), "warm-up", live="2", off="warm-up is shown only"),
)


def _form() -> Form:
    form = Form()
    form.rows = ROWS
    return form


def _text(form: Form, cells: int = 76) -> str:
    return "\n".join(plain(row.line() if callable(row.line) else row.line) for row in form.lines(cells))


def test_steps_pass_the_values_of_their_kind() -> None:
    form = _form()
    for name, by, wanted in [
        ("on", 1, "on"),
        ("delay", 1, "50"),
        ("delay", 1, "50"),
        ("delay", -1, None),
        ("delay", -1, "0"),
        ("count", -1, "1"),
        ("count", -1, "1"),
        ("way", 1, "B"),
        ("way", 1, None),
    ]:
        assert form.step(name, by) == ""
        assert form.values.get(name) == wanted, (name, wanted)
    assert form.step("image", 1) == "image is typed: enter opens it"
    assert form.step("warm", 1) == "warm-up is shown only"
    assert form.step(None, 1) == "no field is under the cursor"


def test_a_value_between_two_steps_goes_to_the_next_one() -> None:
    assert stepped(ROWS[1], "30", 1) == "50"
    assert stepped(ROWS[1], "30", -1) == "20"
    assert stepped(ROWS[1], "nonsense", 1) == "0"
    assert stepped(ROWS[2], "7", 1) == "8"


def test_letters_are_text_while_a_field_is_open_and_esc_drops_them() -> None:
    form = _form()
    assert form.key("x", "x") == ""
    assert form.open("image") == ""
    for key in "q1":
        assert form.key(key, key) == "typed"
    assert "x:1q1_" in _text(form)
    assert form.key("backspace", None) == "typed"
    assert form.key("escape", None) == "left"
    assert form.values == {}
    form.open("image")
    form.key("ctrl+u", None)
    form.type("y:2 \n second line")
    assert form.key("f5", None) == ""
    assert form.key("down", None) == "moved"
    assert form.values == {"image": "y:2"}
    form.open("count")
    assert form.key("right", None) == "typed"
    assert form.text == "3"
    assert form.key("enter", "\r") == "taken"
    assert form.values["count"] == "3"
    form.reset(["count"])
    assert "count" not in form.values
    form.reset()
    assert form.values == {}


def test_the_present_value_is_no_change_and_a_shown_row_does_not_open() -> None:
    form = _form()
    form.put("image", " x:1 ")
    form.put("nothing", "1")
    assert form.values == {}
    assert form.open("warm") == "warm-up is shown only"
    assert form.open("nothing") == "no field is under the cursor"
    assert form.opened is None


def test_a_secret_is_never_drawn() -> None:
    form = _form()
    form.open("token")
    form.type("hunter2")
    assert "hunter2" not in _text(form)
    form.close(take=True)
    form.changed = frozenset({"token"})
    assert form.values == {"token": "hunter2"}
    assert "hunter2" not in _text(form)
    form.open("token")
    form.close(take=True)
    assert form.values == {"token": "hunter2"}, "opened and left as it was"


def test_sentences_stand_under_their_field() -> None:
    form = _form()
    form.put("count", "many")
    form.notes = (Note("count", "fail", "`count` must be a whole number"), Note("delay", "warn", "long"))
    lines = _text(form).splitlines()
    at = next(number for number, line in enumerate(lines) if "count" in line)
    assert "▸" in lines[at]
    assert "many" in lines[at]
    assert lines[at + 1].strip() == "✗ `count` must be a whole number"
    assert "FIRST   beside it" in lines[1]


@pytest.mark.parametrize("cells", [53, 76, 116])
def test_no_row_is_wider_than_its_room(cells: int) -> None:
    form = _form()
    form.values = {"image": "registry.example/" + "long" * 40, "count": "x"}
    form.changed = frozenset({"image"})
    form.notes = (Note("count", "fail", "a sentence that is longer than the room that there is for it " * 9),)
    form.open("image")
    for row in form.lines(cells):
        line = row.line() if callable(row.line) else row.line
        assert line_width(line) <= cells, plain(line)


@given(st.text(max_size=300), st.sampled_from([row.field.name for row in ROWS]), st.integers(20, 130))
def test_any_text_is_drawn(text: str, name: str, cells: int) -> None:
    form = _form()
    if form.open(name) == "":
        form.type(text)
        form.lines(cells)
        form.close(take=True)
    form.step(name, 1)
    form.step(name, -1)
    form.notes = (Note(name, "warn", text),)
    assert form.lines(cells)
