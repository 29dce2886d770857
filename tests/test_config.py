"""Settings: flag > environment > file > default; bad ones are one plain sentence."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import config
from console.config import ConfigError, describe, load


@pytest.fixture(autouse=True)
def own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The settings of whoever runs the tests must not matter."""
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "etc" / "config.toml")
    monkeypatch.setattr(config, "user_config_path", lambda name: tmp_path / "user")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_each_layer_overrides_the_one_below_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "etc" / "config.toml", '[triton]\nhttp_port = 1\ngrpc_port = 2\nmetrics_port = 3\nhost = "a"\n')
    user = write(tmp_path / "user" / "config.toml", "[triton]\ngrpc_port = 20\nmetrics_port = 30\n")
    environ = {"GPUCONSOLE_TRITON_METRICS_PORT": "300", "GPUCONSOLE_TRITON_HTTPS": "true"}
    loaded = load({"triton.http_port": 1000}, environ)
    triton = loaded.settings.triton
    assert (triton.host, triton.http_port, triton.grpc_port, triton.metrics_port, triton.https) == (
        "a",
        1000,
        20,
        300,
        True,
    )
    assert loaded.origins["triton.http_port"] == "flag"
    assert loaded.origins["triton.grpc_port"] == str(user)
    assert loaded.origins["triton.metrics_port"] == "GPUCONSOLE_TRITON_METRICS_PORT"
    assert loaded.origins["gpu.interval"] == "default"
    assert len(loaded.files) == 2


def test_an_explicit_file_stands_for_both(tmp_path: Path) -> None:
    write(tmp_path / "user" / "config.toml", "[ui]\nutc = true\n")
    mine = write(tmp_path / "mine.toml", "[ui]\nascii = true\n")
    for loaded in (load({}, {}, str(mine)), load({}, {"GPUCONSOLE_CONFIG": str(mine)})):
        assert loaded.settings.ui.ascii
        assert not loaded.settings.ui.utc


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[trition]\nhost = 'a'", ["`trition`", "did you mean `triton`"]),
        ("[triton]\nhttpport = 1", ["`httpport`", "did you mean `http_port`", "config.toml"]),
        ("[triton]\nzzz = 1", ["`zzz`", "known are"]),
        ("triton = 1", ["must be a section"]),
        ("[triton]\nhttp_port = '8000'", ["`triton.http_port`", "a whole number", "'8000'"]),
        ("[triton]\nhttp_port = 70000", ["from 0 to 65535", "70000"]),
        ("[ui]\nascii = 1", ["true or false"]),
        ("[triton]\nheaders = 'secretvalue'", ["name=value pairs", "its value"]),
        ("[triton\n", ["not valid TOML"]),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, text: str, words: list[str]) -> None:
    write(tmp_path / "user" / "config.toml", text)
    with pytest.raises(ConfigError) as caught:
        load({}, {})
    message = str(caught.value)
    assert "\n" not in message.strip() or "TOML" in message
    assert "secretvalue" not in message
    for word in words:
        assert word in message


def test_missing_unreadable_and_binary_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; check --config"):
        load({}, {}, str(tmp_path / "none.toml"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load({}, {}, str(binary))


def test_bad_environment_and_flags_name_themselves() -> None:
    with pytest.raises(ConfigError, match="in GPUCONSOLE_TRITON_HTTP_PORT must be a whole number, not 'x'"):
        load({}, {"GPUCONSOLE_TRITON_HTTP_PORT": "x"})
    with pytest.raises(ConfigError, match="of --http-port must be from 0 to 65535"):
        load({"triton.http_port": -1}, {})
    with pytest.raises(ConfigError, match="name=value"):
        load({}, {"GPUCONSOLE_TRITON_HEADERS": "novalue"})


def test_secrets_are_masked_wherever_settings_print() -> None:
    loaded = load({}, {"GPUCONSOLE_TRITON_HEADERS": "key=hunter2,other=x"})
    assert loaded.settings.triton.headers == {"key": "hunter2", "other": "x"}
    text = str(describe(loaded))
    assert "hunter2" not in text
    assert "***" in text
    assert len(describe(loaded)) == len(config.keys())


def test_alert_hooks_are_secrets() -> None:
    loaded = load(
        {}, {"GPUCONSOLE_ALERTS_HOOK_URL": "https://x/hunter2", "GPUCONSOLE_ALERTS_HOOK_COMMAND": "page 'hunter 2'"}
    )
    assert loaded.settings.alerts.hook_command == ["page", "hunter 2"]
    assert loaded.settings.alerts.hook_url == "https://x/hunter2"
    assert "hunter" not in str(describe(loaded))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('temperature_c = "hot"', "`alerts.temperature_c` in FILE wants a number where it says 'hot'"),
        ("temperature_c = 85", "`alerts.temperature_c` in FILE must be text, not 85"),
        ('temprature_c = "85"', "`temprature_c` is no key of [alerts] in FILE; did you mean `temperature_c`?"),
        ('desktop = "osc8"', "`alerts.desktop` in FILE must be empty, osc9 or osc777, not 'osc8'"),
        ('hook_url = "hunter2"', "`alerts.hook_url` in FILE must begin with http:// or https:// and a host"),
        ('hook_command = "hunter2"', "`alerts.hook_command` in FILE must be a list of words, not its value"),
        ("hook_timeout = 0", "`alerts.hook_timeout` in FILE must be from 1 to 60"),
    ],
)
def test_alerts_that_cannot_be(tmp_path: Path, text: str, sentence: str) -> None:
    file = write(tmp_path / "c.toml", f"[alerts]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load({}, {}, str(file))
    assert sentence.replace("FILE", str(file)) in str(caught.value)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_as_a_file_is_settings_or_one_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "config.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass" if text.isascii() else "replace")
    with contextlib.suppress(ConfigError):
        load({}, {}, str(path))


def test_the_example_file_names_every_setting_with_its_default() -> None:
    text = resources.files("console").joinpath("config_example.toml").read_text("utf-8")
    opened = "\n".join(line[2:] if re.match(r"# [a-z0-9_]+ = ", line) else line for line in text.splitlines())
    example = tomllib.loads(opened)
    named = {f"{section}.{key}": value for section, content in example.items() for key, value in content.items()}
    defaults = config.keys()
    assert named.keys() == defaults.keys()
    assert {key: value for key, value in named.items() if key != "triton.headers"} == {
        key: value for key, value in defaults.items() if key != "triton.headers"
    }
    assert tomllib.loads(text).keys() == example.keys()


@pytest.mark.parametrize(
    ("name", "value"), [("X-Ü", "v"), ("", "v"), ("a b", "v"), ("a:", "v"), ("a", "vü"), ("a", "v\r\nx: y")]
)
def test_headers_that_cannot_be_sent(tmp_path: Path, name: str, value: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[triton]\nheaders = {{ {json.dumps(name)} = {json.dumps(value)} }}\n")
    with pytest.raises(ConfigError, match="names are letters, digits and dashes") as caught:
        load({}, {}, str(file))
    assert len(value) < 2 or value not in str(caught.value)


def test_a_folder_that_may_not_be_entered_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", denied)
    with pytest.raises(ConfigError, match="cannot be looked for"):
        load(environ={})
    with pytest.raises(ConfigError, match="cannot be looked for"):
        load(environ={}, file="/x.toml")
