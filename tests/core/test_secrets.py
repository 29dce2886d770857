"""Masking of secrets: nothing secret survives, what is not secret does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.secrets import MASK, is_secret_name, kept_env, mask_command, mask_labels, mask_text


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "dbPassword",
        "--s3-access-key",
        "AWS_SECRET_ACCESS_KEY",
        "apikey",
        "X-Auth",
        "authorization",
        "PWD_db",
        "passwordFile",
        "credentials",
        "user.passwd",
        "passphrase",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["tokenizer_dir", "--model-repository", "author", "keyboard", "CUDA_VERSION", "compass", "", "secretary-x"[9:]],
)
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            ["--http-restricted-api=model-repository,health:admin=hush"],
            ["--http-restricted-api=model-repository,health:admin=***"],
        ),
        (["--grpc-restricted-protocol", "x:k=hush"], ["--grpc-restricted-protocol", "x:k=***"]),
        (["--http-restricted-api=nonsense"], ["--http-restricted-api=nonsense"]),
        (["-e", "PLAIN=hush"], ["-e", "PLAIN=***"]),
        (["--env=PLAIN=hush"], ["--env=PLAIN=***"]),
        (["-e", "PLAIN"], ["-e", "PLAIN"]),
        (["--api-key", "hush", "--x"], ["--api-key", "***", "--x"]),
        (["--api-key=hush"], ["--api-key=***"]),
        (["--model-repository=s3://https://u:hush@host:9000/b"], ["--model-repository=s3://https://u:***@host:9000/b"]),
        (["HF_TOKEN=hush", "tritonserver"], ["HF_TOKEN=***", "tritonserver"]),
        (["--backend-config=x,max_tokens=512"], ["--backend-config=x,max_tokens=512"]),
        (["--load-model=rank", "--api-key"], ["--load-model=rank", "--api-key"]),
    ],
)
def test_command_lines(argv: list[str], expected: list[str]) -> None:
    assert list(mask_command(argv)) == expected


def test_text() -> None:
    assert mask_text("pull https://joe:hush@reg.io/x failed") == f"pull https://joe:{MASK}@reg.io/x failed"
    assert mask_text("Authorization: Bearer abcdef123456").count("abcdef") == 0
    assert mask_text("GET /x?token=hush&n=1") == "GET /x?token=***&n=1"
    assert mask_text("http://host:8000/v2") == "http://host:8000/v2"


def test_environment_is_kept_by_allow_list_only() -> None:
    env = ["CUDA_VERSION=12.4.1", "HARMLESS=1", "HF_TOKEN=hush", "broken", "URL_OK=http://a:hush@b/"]
    assert kept_env(env, ("CUDA_VERSION", "URL_OK")) == {"CUDA_VERSION": "12.4.1", "URL_OK": "http://a:***@b/"}


def test_labels() -> None:
    assert mask_labels({"a": "b", "my.token": "hush"}) == {"a": "b", "my.token": MASK}


@given(st.lists(st.text(max_size=60), max_size=12))
def test_any_command_keeps_its_length(argv: list[str]) -> None:
    assert len(mask_command(argv)) == len(argv)


@given(st.text(alphabet=st.characters(min_codepoint=97, max_codepoint=122), min_size=8, max_size=30))
def test_a_secret_flag_never_shows_its_value(secret: str) -> None:
    argv = [
        f"--s3-secret-key={secret}",
        "--password",
        secret,
        "-e",
        f"A={secret}",
        f"http://u:{secret}@h/",
        f"MY_TOKEN={secret}",
    ]
    assert secret not in " ".join(mask_command(argv)).replace("password", "").replace("secret-key", "")


@pytest.mark.parametrize("flag", ["--http-restricted-api", "--grpc-restricted-protocol"])
@pytest.mark.parametrize("between", ["=", " "])
def test_what_clients_of_restricted_protocols_must_send_is_masked_in_any_text(flag: str, between: str) -> None:
    """The header's name is the operator's own, so it may look like nothing secret."""
    text = f"exec: {flag}{between}model-repository:x=hunter2hunter2,--log-verbose=1: not found"
    assert mask_text(text) == f"exec: {flag}{between}model-repository:x=***,--log-verbose=1: not found"


@pytest.mark.parametrize(
    "text",
    [
        "refused: token=hunter22",
        "error: password: hunter22",
        "a=token=hunter22",
        "E: x: y: api_key=hunter22",
        "at=[token=hunter22]",
    ],
)
def test_a_secret_in_the_value_of_another_name(text: str) -> None:
    masked = mask_text(text)
    assert "hunter22" not in masked
    assert masked == text.replace("hunter22]", "***").replace("hunter22", "***")
