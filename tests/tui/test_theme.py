"""Themes: at least seven, all complete and readable; a bad one is a sentence; the choice is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from textual.theme import BUILTIN_THEMES

from console.clients.files import write_private
from console.tui.run import chosen_theme, theme_names
from console.tui.signs import SIGN_STYLES
from console.tui.state import FILE, State
from console.tui.theme import (
    DEFAULT,
    STYLES,
    ConsoleTheme,
    ThemeError,
    Themes,
    built_in_default,
    folders,
    load,
    parse,
    read,
)

THEMES = load(folders())
REQUIRED = {"dark", "light", "high-contrast", "colour-blind", "ansi-dark", "ansi-light", "mono"}


def test_the_seven_are_there_and_good() -> None:
    assert set(THEMES.found) >= REQUIRED
    assert THEMES.problems == ()


def test_the_default_documents_every_style() -> None:
    text = (folders()[0] / "dark.toml").read_text(encoding="utf-8")
    for name in STYLES:
        line = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
        assert "#" in line.split('"')[-1], f"{name} has no comment"


@pytest.mark.parametrize("theme", THEMES.found.values(), ids=lambda theme: theme.name)
def test_states_are_told_apart(theme: ConsoleTheme) -> None:
    """Fail must differ from ok, the cursor from the rest; colour never stands alone, so signs do the rest."""
    text = theme.styles["text"]
    assert text + theme.styles["fail"] != text + theme.styles.get("ok", Style.null())
    assert text + theme.styles["cursor"] != text


@pytest.mark.parametrize("name", [name for name, theme in THEMES.found.items() if not theme.textual.ansi])
def test_contrast_is_readable(name: str) -> None:
    """WCAG: 4.5 to 1 for what must be read, 7 to 1 for figures; 12 to 1 for text in high contrast."""
    styles = THEMES.found[name].styles
    for style in ("text", "value", "label", "dim", "key", *set(SIGN_STYLES.values()) - {"dim"}):
        ratio = _contrast(styles["text"] + styles.get(style, Style.null()))
        assert ratio >= (7 if style == "value" else 4.5), (style, ratio)
    if name == "high-contrast":
        assert _contrast(styles["text"]) >= 12


def _contrast(style: Style) -> float:
    assert style.color is not None
    assert style.bgcolor is not None
    lights = []
    for color in (style.color, style.bgcolor):
        triplet = color.get_truecolor()
        parts = [value / 255 for value in (triplet.red, triplet.green, triplet.blue)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    high, low = max(lights), min(lights)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["mono", "ansi-dark", "ansi-light"])
def test_ansi_themes_have_only_the_terminals_colours(name: str) -> None:
    for style in THEMES.found[name].styles.values():
        for color in (style.color, style.bgcolor):
            assert color is None or color.is_default or (color.number is not None and color.number < 16)
            assert name != "mono" or color is None or color.is_default


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "cannot be read"),
        ("dark = true", "has no name"),
        ('name = "x"\nshade = 1', "unknown setting 'shade'"),
        ('name = "x"\n[styles]\nfail = 3', "must hold texts only"),
        ('name = "x"\n[styles]\nfial = "red"', "unknown style 'fial'"),
        ('name = "x"\n[styles]\nfail = "no such colour"', "is no style"),
        ('name = "x"\n[colors]\nprimary = "#zzz"', "is no colour"),
        ('name = "x"\n[colors]\nink = "#fff"', "unknown colour 'ink'"),
        ('name = "[/x]"', "letters, digits"),
    ],
)
def test_a_bad_file_is_one_sentence_and_the_rest_is_used(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    themes = load([*folders(), tmp_path])
    assert len(themes.problems) == 1
    assert says in themes.problems[0]
    assert "bad.toml" in themes.problems[0]
    assert set(themes.found) >= REQUIRED


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ThemeError, match="cannot be read"):
        read(tmp_path / "bad.toml")


@given(st.dictionaries(st.sampled_from(["name", "dark", "styles", "colors"]), st.one_of(st.text(), st.booleans())))
def test_any_data_is_a_theme_or_a_sentence(data: dict[str, object]) -> None:
    told = "made up"
    try:
        parse(data, "made up")
    except ThemeError as error:
        told = str(error)
    assert "made up" in told


def test_an_own_theme_replaces_one_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "dark"\n[styles]\nfail = "blue"', encoding="utf-8")
    assert load([*folders(), tmp_path]).found["dark"].styles["fail"] == Style.parse("blue")


def test_without_any_file_there_is_a_plain_theme(tmp_path: Path) -> None:
    themes = load([tmp_path / "nowhere"])
    assert list(themes.found) == [DEFAULT]
    assert built_in_default().textual.ansi
    assert set(vars(built_in_default().textual)) == set(vars(BUILTIN_THEMES["ansi-dark"]))


@pytest.mark.parametrize(
    ("wanted", "kept", "environ", "chosen"),
    [
        (None, None, {}, "dark"),
        (None, None, {"SSH_CONNECTION": "192.0.2.7 5 192.0.2.1 22"}, "ansi-dark"),
        (None, None, {"TERM": "linux"}, "ansi-dark"),
        (None, None, {"TERM": "xterm", "COLORTERM": "truecolor"}, "dark"),
        (None, "light", {"SSH_CONNECTION": "x"}, "light"),
        ("high-contrast", "light", {"SSH_CONNECTION": "x"}, "high-contrast"),
        (None, "gone", {}, "dark"),
        ("light", None, {"NO_COLOR": "1"}, "mono"),
        (None, None, {"NO_COLOR": ""}, "dark"),
    ],
)
def test_choice(wanted: str | None, kept: str | None, environ: dict[str, str], chosen: str) -> None:
    assert chosen_theme(wanted, kept, THEMES, environ) == chosen


def test_choice_without_the_wanted_files() -> None:
    only = Themes({"dark": built_in_default()})
    assert chosen_theme(None, None, only, {"SSH_CONNECTION": "x", "NO_COLOR": "1"}) == "dark"


def test_names_for_the_command_line() -> None:
    assert set(theme_names()) >= REQUIRED


def test_the_choice_is_kept_in_a_private_file(tmp_path: Path) -> None:
    State(tmp_path / "state").keep("theme", "light")
    file = tmp_path / "state" / FILE
    assert json.loads(file.read_text()) == {"theme": "light"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert State(tmp_path / "state").get("theme") == "light"
    assert [one.name for one in file.parent.iterdir()] == [FILE], "no temporary file is left"


@pytest.mark.parametrize("text", ["", "[]", '{"theme": 3}', "\x00"])
def test_a_spoilt_state_file_is_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert State(tmp_path).get("theme") is None


def test_a_state_directory_that_cannot_be_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    state = State(tmp_path / "file")
    state.keep("theme", "light")
    assert state.get("theme") == "light"
    with pytest.raises(OSError, match="file"):
        write_private(tmp_path / "file" / "x", "text")
