"""The words of a `podman run` or `podman create` taken apart (pure): which options made a container.

An inspect answer keeps most of what a container was made of, but neither CDI names nor SELinux options; the command
that made it, which Podman keeps too, has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_SHORT = {
    "a": "attach",
    "c": "cpu-shares",
    "d": "detach",
    "e": "env",
    "h": "hostname",
    "i": "interactive",
    "l": "label",
    "m": "memory",
    "p": "publish",
    "P": "publish-all",
    "q": "quiet",
    "t": "tty",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
_SWITCH_NAMES = """
detach disable-content-trust env-host http-proxy init interactive no-healthcheck no-hostname no-hosts
oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
tls-verify tty
"""
_SWITCHES = frozenset(_SWITCH_NAMES.split())
"""Options that take no value as a word of its own."""


def options(command: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(long name, value) of each option between `run` or `create` and the image; () for any other command.

    A switch has the value "true", or what stands behind its `=`.
    """
    words = iter(_after_verb(command))
    return tuple(_options(words))


def _after_verb(command: Sequence[str]) -> Sequence[str]:
    for position, word in enumerate(command):
        if word in ("run", "create"):
            return command[position + 1 :]
    return ()


def _options(words: Iterator[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        if word == "--" or not word.startswith("-"):
            return
        if not word.startswith("--"):
            yield from _cluster(word[1:], words)
            continue
        name, equals, value = word[2:].partition("=")
        if equals:
            yield name, value
        else:
            yield name, "true" if name in _SWITCHES else next(words, "")


def _cluster(letters: str, words: Iterator[str]) -> Iterator[tuple[str, str]]:
    """`-dit`, `-p8000:8000`, `-v /a:/b`, `-e=A=1`."""
    for position, letter in enumerate(letters):
        name = _SHORT.get(letter, letter)
        if name in _SWITCHES:
            yield name, "true"
            continue
        rest = letters[position + 1 :].removeprefix("=")
        yield name, rest or next(words, "")
        return


def values(found: Sequence[tuple[str, str]], *names: str) -> tuple[str, ...]:
    """All values of these options, in order."""
    return tuple(value for name, value in found if name in names)
