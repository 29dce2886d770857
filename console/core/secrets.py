"""Secrets taken out of command lines, environments and URLs before anything else sees them.

What is masked stays recognisable (`--http-restricted-api=model-repository:admin=***`), so that an operator still sees
that a restriction is set. When in doubt a value is masked: a name that merely looks secret costs a value on screen,
the other mistake costs the secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

MASK = "***"

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_SECRET_ENDS = ("token", "password", "passwd", "secret", "secrets", "key", "keys", "credential", "credentials", "auth")
_SECRET_STARTS = ("password", "passwd", "secret", "credential", "authorization")
_SECRET_WORDS = frozenset({"pass", "pwd", "passphrase", "tokens", "creds", "bearer"})
# `}+`: what follows is never part of what is repeated, so giving back is in vain, and slow on long words
_URL_LOGIN = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]{0,20}+://[^/\s:@]{0,256}+:)[^@/\s]{1,512}+(?=@)")
_NAMED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,80}+)(?=(?P<mid>[=:]\s?))")
_VALUE = re.compile(r"[^\s&;,'\"]{1,2000}")
_BEARER = re.compile(r"(?i)\b(?P<head>bearer\s+)[A-Za-z0-9._~+/=-]{6,2000}")
_RESTRICTED_TEXT = re.compile(
    r"(?P<head>--(?:http-restricted-api|grpc-restricted-protocol)[=\s]\s?[^\s=]{1,500}=)(?P<value>[^\s,'\"]{1,2000})"
)
_RESTRICTED = re.compile(r"^--(?:http-restricted-api|grpc-restricted-protocol)$")
_ENV_FLAGS = frozenset({"-e", "--env"})


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """True when a flag, variable or parameter of this name is taken to hold a secret.

    Judged by words, so that `tokenizer_dir` stays readable while `HF_TOKEN`, `s3-access-key` and `dbPassword` do not.
    """
    for word in (part.lower() for part in _WORD.findall(name)):
        if word.endswith(_SECRET_ENDS) or word.startswith(_SECRET_STARTS) or word in _SECRET_WORDS:
            return True
    return False


def mask_text(text: str) -> str:
    """`text` less passwords in URLs, bearer tokens, `name=value` pairs whose name is secret, and what clients of
    Triton's restricted protocols must send (its name is whatever the operator chose)."""
    if "://" in text:
        text = _URL_LOGIN.sub(rf"\g<head>{MASK}", text)
    text = _BEARER.sub(rf"\g<head>{MASK}", text)
    if "-restricted-" in text:
        text = _RESTRICTED_TEXT.sub(rf"\g<head>{MASK}", text)
    return mask_named(text, _NAMED, _mask_assignment)


Masked = Callable[[str, re.Match[str]], tuple[str, int] | None]


def mask_named(text: str, named: re.Pattern[str], masked: Masked) -> str:
    """`text` with values masked: `named` finds each name (with what parts it from its value as group `mid`, looked at
    and not taken), `masked(text, match)` says what stands for the value and where that ends. So each name is looked at,
    also one that stands in the value of another: `refused: token=x`."""
    parts: list[str] = []
    done = 0
    for match in named.finditer(text):
        if match.start() < done:
            continue
        found = masked(text, match)
        if found is not None:
            parts += [text[done : match.end("mid")], found[0]]
            done = found[1]
    return "".join([*parts, text[done:]]) if parts else text


def _mask_assignment(text: str, match: re.Match[str]) -> tuple[str, int] | None:
    name = match["name"]
    if not is_secret_name(name):
        return None
    value = _VALUE.match(text, match.end("mid"))
    if value is None or (match["mid"][0] == ":" and value.group().startswith("//")) or is_count(name, value.group()):
        return None
    return MASK, value.end()


def is_count(name: str, value: str) -> bool:
    """`max_tokens=512` is a number of tokens, no token."""
    return name.lower().endswith("tokens") and value.isdigit() and len(value) <= 9


def mask_command(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line less its secrets; the number of arguments stays the same.

    Handles `--flag=secret`, `--flag secret`, `-e NAME=value` (its values are masked whatever their name, as the
    environment may hold anything), URLs with a login, and Triton's restricted protocols (`apis:header=secret`).
    """
    masked: list[str] = []
    waiting = ""
    for arg in argv:
        flag, equals, value = arg.partition("=")
        if waiting:
            masked.append(_mask_value(waiting, arg))
            waiting = ""
        elif (
            arg in _ENV_FLAGS or _RESTRICTED.match(arg) or (arg.startswith("-") and not equals and is_secret_name(arg))
        ):
            masked.append(arg)
            waiting = arg
        elif equals and flag.startswith("-") and (flag in _ENV_FLAGS or _RESTRICTED.match(flag)):
            masked.append(f"{flag}={_mask_value(flag, value)}")
        elif equals and flag.startswith("-") and is_secret_name(flag):
            masked.append(f"{flag}={MASK}")
        else:
            masked.append(mask_text(arg))
    return tuple(masked)


def _mask_value(flag: str, value: str) -> str:
    if flag in _ENV_FLAGS:
        name, equals, _ = value.partition("=")
        return f"{name}={MASK}" if equals else name
    if _RESTRICTED.match(flag):
        head, equals, _ = value.partition("=")
        return f"{head}={MASK}" if equals else value
    return MASK


def kept_env(env: Iterable[str], allowed: Iterable[str]) -> Mapping[str, str]:
    """The variables of `NAME=value` lines whose name is on the allow list; all others are dropped, not masked."""
    names = frozenset(allowed)
    pairs = (line.partition("=") for line in env)
    return {name: mask_text(value) for name, _, value in pairs if name in names}


def mask_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels with the values of secret names masked."""
    return {name: MASK if is_secret_name(name) else mask_text(value) for name, value in labels.items()}
