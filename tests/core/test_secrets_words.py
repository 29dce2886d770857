"""Each word that makes a name secret, and the edges of what is masked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.secrets import MASK, is_secret_name, kept_env, mask_command, mask_labels, mask_text

ENDS = ["token", "password", "passwd", "secret", "secrets", "key", "keys", "credential", "credentials", "auth"]
STARTS = ["password", "passwd", "secret", "credential", "authorization"]
WORDS = ["pass", "pwd", "passphrase", "tokens", "creds", "bearer"]


@pytest.mark.parametrize("word", ENDS)
def test_words_that_end_so(word: str) -> None:
    assert is_secret_name(f"my{word}")
    assert is_secret_name(f"A_{word.upper()}_B")


@pytest.mark.parametrize("word", STARTS)
def test_words_that_begin_so(word: str) -> None:
    assert is_secret_name(f"{word}x")
    assert not is_secret_name(f"x{word}x")


@pytest.mark.parametrize("word", WORDS)
def test_whole_words(word: str) -> None:
    assert is_secret_name(f"a-{word}-b")
    assert not is_secret_name(f"{word}x")


def test_words_are_parted_by_case_and_numbers() -> None:
    assert is_secret_name("myDBPassword")
    assert is_secret_name("S3Key2")
    assert not is_secret_name("keyboardLayout")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("redis://:hush@h", "redis://:***@h"),
        ("a://u:p@h b://u:q@h", "a://u:***@h b://u:***@h"),
        ("u:p@h", "u:p@h"),
        ("key: hush", "key: ***"),
        ("key=hush;key=x&key=y,key=z", "key=***;key=***&key=***,key=***"),
        ("key://host", "key://host"),
        ("key=//hush", "key=***"),
        ("bearer abcdef", "bearer ***"),
        ("BEARER abcde", "BEARER abcde"),
        ("max_tokens=123456789", "max_tokens=123456789"),
        ("max_tokens=1234567890", "max_tokens=***"),
        ("max_tokens=12ab", "max_tokens=***"),
        ("my_token=5", "my_token=***"),
        ("monkey=5", "monkey=***"),
        ("plain=5", "plain=5"),
    ],
)
def test_text(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    ("argv", "masked"),
    [
        (["key", "x"], ["key", "x"]),
        (["--key=", "x"], ["--key=***", "x"]),
        (["-key", "x"], ["-key", "***"]),
        (["--http-restricted-api", "a:b=c=d"], ["--http-restricted-api", "a:b=***"]),
        (["--http-restricted-api", "a:b"], ["--http-restricted-api", "a:b"]),
        (["--grpc-restricted-protocol=a:b=c"], ["--grpc-restricted-protocol=a:b=***"]),
        (["--x-http-restricted-api", "a:b=c"], ["--x-http-restricted-api", "a:b=c"]),
        (["-e", "A", "-e", "B=c"], ["-e", "A", "-e", "B=***"]),
        (["-e=A=b", "--env", "C=d"], ["-e=A=***", "--env", "C=***"]),
        (["--key", "--key", "x"], ["--key", "***", "x"]),
        (["--plain=u", "--url=http://u:p@h"], ["--plain=u", "--url=http://u:***@h"]),
        (["A_KEY=b"], ["A_KEY=***"]),
    ],
)
def test_command_lines(argv: list[str], masked: list[str]) -> None:
    assert list(mask_command(argv)) == masked


def test_variables_and_labels() -> None:
    assert kept_env(["A=1=2", "B=", "C", "D=http://u:p@h"], ("A", "B", "C", "D")) == {
        "A": "1=2", "B": "", "C": "", "D": "http://u:***@h",
    }  # fmt: skip
    assert mask_labels({"url": "http://u:p@h", "key": ""}) == {"url": "http://u:***@h", "key": MASK}


secret = st.text(alphabet="QZXJ", min_size=6, max_size=20)


@given(st.sampled_from([*ENDS, *STARTS, *WORDS]), secret, st.sampled_from(["--{}={}", "{}={}", "x {}: {} y"]))
def test_no_secret_word_shows_its_value(word: str, value: str, form: str) -> None:
    text = form.format(word, value)
    assert value not in mask_text(text)
    assert value not in " ".join(mask_command([text, f"--{word}", value]))
