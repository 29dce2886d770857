"""Secrets taken out of facts before anybody sees them: every text, whatever brought it.

Stricter than what a screen masks: facts go to files that people send to each other. Values that are known word for
word (headers of the settings, what the container's environment and flags hold under secret names) are masked wherever
they stand; beside these all that `core.secrets` takes for a secret, also in the forms of files: quoted, with blanks
around the sign, in JSON, in unit files, in model configurations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from console.core.facts import AnswerFact, CommandFact, Facts, FileFact
from console.core.secrets import MASK, is_count, is_secret_name, mask_command, mask_labels, mask_named, mask_text

SHORTEST = 4
"""Characters of a value that is masked word for word; a shorter one stands in half of all texts."""
SHOWN_VARIABLES = (
    "CUDA_*",
    "CUDNN_*",
    "DCGM_*",
    "NVIDIA_*",
    "NV_*",
    "LD_*",
    "PATH",
    "TRITON_*",
    "TRT_*",
    "TENSORRT_*",
    "PYTORCH_*",
    "LANG",
    "LC_*",
    "PYTHON*",
    "TZ",
    "HOSTNAME",
    "OMP_*",
    "MKL_*",
    "MALLOC_*",
    "TF_*",
    "ORT_*",
    "_CUDA_COMPAT_*",
    "TCMALLOC_*",
    "OPENBLAS_*",
    "KMP_*",
    "GOMP_*",
    "NCCL_*",
    "UCX_*",
    "container",
    "HOME",
    "SHELL",
    "TERM",
    "XDG_RUNTIME_DIR",
    "PODMAN_SYSTEMD_UNIT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Variables of an environment whose values are shown (less what looks secret in them); all others are masked."""

_NO_SECRETS = frozenset({MASK, "true", "false", "yes", "no", "none", "null", "0", "1", "{}", "[]", "|", ">"})
_AUTHORIZATION = re.compile(
    r"(?i)\b(?P<head>(?:proxy-)?authorization[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?)(?P<value>[^\r\n\"']{1,4000})"
)
_LOGIN = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]{0,20}://)[^@/\s\"']{1,512}(?=@)")
_NAMED = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,80}+)(?=(?P<mid>[\"']?[ \t]{0,8}[=:][ \t]{0,8}))"
)
_VALUE = re.compile(r"\"[^\"\n]{0,4000}\"|'[^'\n]{0,4000}'|[^\s&;,'\"]{1,4000}")
_FLAG = re.compile(r"(?P<head>(?<![\w-])--(?P<name>[A-Za-z][A-Za-z0-9-]{0,60}+)[ \t]+)(?P<value>[^\s-][^\s]{0,4000})")
_PARAMETER = re.compile(
    r"(?P<head>key\s{0,8}:\s{0,8}\"(?P<name>[^\"\n]{1,200})\"[\s,]{0,80}value\s{0,8}:?\s{0,8}\{\s{0,80}string_value"
    r"\s{0,8}:\s{0,8}\")(?P<value>[^\"\n]{1,4000})"
)
_GIVEN = re.compile(
    r"(?P<head>(?<!\S)(?:-e|--env)(?:=|[ \t]{1,8}))(?:(?P<quote>[\"'])(?P<a>[A-Za-z_]\w{0,200})=[^\"'\n]*(?P=quote)"
    r"|(?P<b>[A-Za-z_]\w{0,200})=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']*))"
)
_HINT = r"token|pass|secret|credential|auth|pwd|creds"
_SUSPECT = re.compile(
    rf"(?:{_HINT}|[a-z0-9_.-]key|key[a-z0-9_.-])[a-z0-9_.-]{{0,60}}[\"']?[ \t]{{0,8}}[=:]"
    rf"|(?<![a-z0-9_.-])key[\"']?[ \t]{{0,8}}[=:](?!\(null\)|[ \t]{{0,8}}[\"'])"
    rf"|--[a-z0-9-]{{0,40}}(?:{_HINT}|key)|bearer[ \t]|-restricted-|://[^\s/@]{{1,600}}@",
    re.IGNORECASE | re.ASCII,
)
"""Where a name or a form tells of a secret (names as core.secrets judges them); lines without any are left as they are:
most texts are long logs. A bare `key` is what audit lines and protobuf texts have."""
_UNIT_LINE = re.compile(r"(?m)^(?P<head>[ \t]*(?:Environment|PodmanArgs|Secret)=)(?P<rest>.*)$")
_UNIT_PAIR = re.compile(
    r"\"(?P<a>[A-Za-z_]\w{0,200})=[^\"\n]*\"|'(?P<b>[A-Za-z_]\w{0,200})=[^'\n]*'"
    r"|(?<![\w-])(?P<c>[A-Za-z_]\w{0,200})=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']*)"
)
_ENV_LINE = re.compile(r"(?m)^(?P<head>[ \t]*(?:export[ \t]+)?)(?P<name>[A-Za-z_]\w{0,200})=(?P<value>.*)$")
_COMMANDS = frozenset({"args", "cmd", "command", "createcommand", "entrypoint", "test", "argv"})
_NO_SECRET_KEYS = frozenset({"key", "sandboxkey", "next_key"})
"""SandboxKey is the path of a container's network namespace, next_key a key on the keyboard."""
_LABELS = frozenset({"labels", "annotations"})


def is_shown(name: str) -> bool:
    """Whether the value of an environment's variable may be shown."""
    return any(fnmatchcase(name, pattern) for pattern in SHOWN_VARIABLES) and not is_secret_name(name)


class Masks:
    """What takes secrets out; `words` are those known word for word. Without `forms` only they are looked for, in texts
    whose forms were seen to before."""

    def __init__(self, words: Iterable[str] = (), forms: bool = True) -> None:
        self._forms = forms
        known = {word for word in words if len(word) >= SHORTEST}
        self._words = sorted(known, key=len, reverse=True)

    def facts(self, facts: Facts) -> Facts:
        """All of it; paths and names stay, less what is no Unicode in them."""
        return replace(
            facts,
            files={_unicode(path): self.file(path, one) for path, one in facts.files.items()},
            commands={self.text(words): self.command(one) for words, one in facts.commands.items()},
            answers={name: self.answer(one) for name, one in facts.answers.items()},
            spaces={_unicode(path): one for path, one in facts.spaces.items()},
            variables={name: tuple(map(_unicode, values)) for name, values in facts.variables.items()},
        )

    def file(self, path: str, fact: FileFact) -> FileFact:
        """One file, by what its path says that it is."""
        text, names, target = fact.text, fact.names, fact.target
        if text is None and names is None and target is None:
            return fact
        if text is not None:
            text = self.file_text(path, text)
        if names is not None:
            names = tuple(map(_unicode, names))
        return replace(fact, text=text, names=names, target=None if target is None else _unicode(target))

    def file_text(self, path: str, text: str) -> str:
        """The text of a file, by what its path says that it is; "" = of no file."""
        return self.text(self._by_kind(path, text) if self._forms else text)

    def _by_kind(self, path: str, text: str) -> str:
        if path.startswith("/proc/") and path.endswith("/environ"):
            return "\0".join(self.environment(text.split("\0")))
        if path.startswith("/proc/") and path.endswith("/cmdline") and path != "/proc/cmdline":
            return "\0".join(self.argv(text.split("\0")))
        if path.endswith((".env", "/environment", ".args")):
            return _ENV_LINE.sub(lambda match: match["head"] + self._variable(match["name"], match["value"]), text)
        if "Environment=" in text or "PodmanArgs=" in text:
            return _UNIT_LINE.sub(lambda match: match["head"] + _UNIT_PAIR.sub(self._unit_pair, match["rest"]), text)
        return text

    def _unit_pair(self, match: re.Match[str]) -> str:
        name = match["a"] or match["b"] or match["c"]
        if is_shown(name):
            return match.group()
        quote = match.group()[0] if match["c"] is None else ""
        return f"{quote}{name}={MASK}{quote}"

    def command(self, fact: CommandFact) -> CommandFact:
        """What a program printed."""
        return replace(fact, out=self.text(fact.out), err=self.text(fact.err), why=self.text(fact.why))

    def answer(self, fact: AnswerFact) -> AnswerFact:
        """JSON, and the reasons."""
        return AnswerFact(self.json(fact.value), self.text(fact.why), self.text(fact.settle))

    # ------------------------------------------------------------------------------------------------------ the pieces

    def text(self, text: str) -> str:
        """One text."""
        if not text:
            return text
        text = _unicode(text)
        for word in self._words:
            text = text.replace(word, MASK)
        if not self._forms:
            return text
        if " -e" in text or "--env" in text:
            text = _GIVEN.sub(self._given, text)
        if "string_value" in text:
            text = _PARAMETER.sub(_by_name, text)
        parts: list[str] = []
        done = 0
        for match in _SUSPECT.finditer(text):
            if match.start() < done:
                continue
            begin = max(done, text.rfind("\n", done, match.start()) + 1)
            end = text.find("\n", match.end())
            end = len(text) if end < 0 else end
            parts += [text[done:begin], _line(text[begin:end])]
            done = end
        return "".join([*parts, text[done:]]) if parts else text

    def _given(self, match: re.Match[str]) -> str:
        name = match["a"] or match["b"]
        quote = match["quote"] or ""
        return match.group() if is_shown(name) else f"{match['head']}{quote}{name}={MASK}{quote}"

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line; values of `-e NAME=value` as those of an environment."""
        masked = list(mask_command(argv))
        for at, word in enumerate(argv):
            head, assignment = "", word
            if word.startswith(("-e=", "--env=")):
                head, _, assignment = word.partition("=")
                head += "="
            elif at == 0 or argv[at - 1] not in ("-e", "--env"):
                masked[at] = self.text(masked[at])
                continue
            name, equals, value = assignment.partition("=")
            masked[at] = head + (self._variable(name, value) if equals else name)
        return masked

    def environment(self, lines: Iterable[str]) -> list[str]:
        """`NAME=value` lines."""
        pairs = (line.partition("=") for line in lines)
        return [self._variable(name, value) if equals else self.text(name) for name, equals, value in pairs]

    def _variable(self, name: str, value: str) -> str:
        return f"{name}={self.text(value) if is_shown(name) else MASK if value else ''}"

    def json(self, value: Any, key: str = "") -> Any:
        """JSON, by the keys under which its texts stand."""
        low = key.lower()
        if isinstance(value, str):
            return MASK if value and is_secret_name(key) and low not in _NO_SECRET_KEYS else self.text(value)
        if isinstance(value, Mapping):
            if low in _LABELS and all(isinstance(one, str) for one in value.values()):
                return {_unicode(name): self.text(one) for name, one in mask_labels(value).items()}
            return {_unicode(str(name)): self.json(one, str(name)) for name, one in value.items()}
        if isinstance(value, list | tuple):
            if value and all(isinstance(one, str) for one in value):
                if low in ("env", "environment"):
                    return self.environment(value)
                if low in _COMMANDS:
                    return self.argv(value)
            return [self.json(one, key) for one in value]
        return value


def _line(text: str) -> str:
    if "://" in text:
        text = _LOGIN.sub(rf"\g<head>{MASK}", text)
    if "uthorization" in text or "UTHORIZATION" in text:
        text = _AUTHORIZATION.sub(rf"\g<head>{MASK}", text)
    if "--" in text:
        text = _FLAG.sub(_by_name, text)
    if "=" in text or ":" in text:
        text = mask_named(text, _NAMED, _pair)
    return mask_text(text)


def _pair(text: str, match: re.Match[str]) -> tuple[str, int] | None:
    name, mid = match["name"], match["mid"]
    # `key: "..."` is how protobuf texts and many lists name a thing
    if name.lower() in ("key", "keys") or not is_secret_name(name):
        return None
    found = _VALUE.match(text, match.end("mid"))
    if found is None:
        return None
    value = found.group()
    quote = value[0] if value[0] in "\"'" else ""
    plain = value.strip(quote) if quote else value
    if plain.lower() in _NO_SECRETS or not plain or is_count(name, plain):
        return None
    if mid.strip(" \t\"'") == ":" and plain.startswith("//"):
        return None
    return f"{quote}{MASK}{quote}", found.end()


def _by_name(match: re.Match[str]) -> str:
    return match["head"] + MASK if is_secret_name(match["name"]) else match.group()


def _unicode(text: str) -> str:
    """What a file of JSON can hold: bytes that are no UTF-8 become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def secret_words(inspect: Any) -> Iterator[str]:
    """Values that an inspected container holds under secret names: they may turn up in logs and command lines.

    Only those that look made up: masking `SECRET=triton` word for word would take the name out of all facts.
    """
    yield from (word for word in _secret_values(inspect) if _is_made_up(word))


def _is_made_up(word: str) -> bool:
    if len(word) < 8 or word.startswith(("/", "http")) or any(char.isspace() for char in word):
        return False
    return len(word) >= 16 or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))


def _secret_values(inspect: Any) -> Iterator[str]:
    if not isinstance(inspect, Mapping):
        return
    config = inspect.get("Config")
    env = config.get("Env") if isinstance(config, Mapping) else None
    for line in env if isinstance(env, list) else ():
        name, _, value = str(line).partition("=")
        if is_secret_name(name):
            yield value
    for word in inspect.get("Args") or ():
        if isinstance(word, str) and word.startswith(("--http-restricted-", "--grpc-restricted-")):
            yield word.rpartition("=")[2] if word.count("=") > 1 else ""
