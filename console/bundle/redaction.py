"""Secrets taken out of all that goes into a bundle, and a list of what was taken out where, without its value (pure).

Beyond what facts mask (sources/facts_masks.py): private keys, tokens that are known by their form, logins in base64,
cookies, logins of commands, signed URLs, variables in the lists of CDI specs. What stood under a secret name in one
place is masked wherever else it stands: `again` goes over each text once more, when all of them were seen.
When in doubt it is masked: what is lost is a word of a report, the other mistake gives the secret away.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from console.core.secrets import MASK, is_secret_name
from console.sources.facts_masks import Masks, is_shown

MOST_WORDS = 500
"""Words that are looked for everywhere; the first are kept, and a bundle with more is no longer one of one box."""
MOST_STRINGS = 50_000
MOST_NAMED = 50
"""Findings of one thing in one part whose place is looked for: to count lines again and again takes its time."""
MOST_PLACES = 6
"""Places named of one thing in one part."""
USER = "USER"
"""What stands for an account's name in paths."""

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,80}"
_PEM = re.compile(
    r"(?P<head>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
    r"(?P<value>(?:(?:\\r)?(?:\\n|\n)[A-Za-z-]{1,20}: [^\n\\]{0,100})*[A-Za-z0-9+/=\s\\]{0,20000})"
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])(?P<value>gh[opsur]_[A-Za-z0-9]{16,255}|github_pat_\w{16,255}|glpat-[\w-]{16,255}"
    r"|hf_[A-Za-z0-9]{16,255}|nvapi-[\w-]{16,255}|sk-[A-Za-z0-9_-]{20,255}|xox[abeoprs]-[\w-]{10,255}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,60}|dckr_[a-z]{3}_[\w-]{16,255}|npm_[A-Za-z0-9]{30,60}|pypi-[\w-]{16,255}"
    r"|eyJ[\w-]{8,4000}\.[\w-]{8,4000}(?:\.[\w-]{0,4000})?)"
)
_BASIC = re.compile(r"(?P<head>\b(?i:basic)\s{1,8})(?P<value>[A-Za-z0-9+/]{6,2000}={0,2})")
_COOKIE = re.compile(r"(?P<head>\b(?i:(?:set-)?cookie)[\"']?\s{0,4}[:=]\s{0,4}[\"']?)(?P<value>[^\r\n\"']{1,4000})")
# each begins with a letter or sign of its own, which is what makes looking for it fast
_LOGIN = re.compile(
    r"(?P<head>-(?<!\S-)(?:u|-user|-creds|-proxy-user)(?:=|\s{1,8})[^\s:]{1,100}:)(?P<value>[^\s\"']{1,1000})"
)
_LOGIN_WITH = re.compile(
    r"(?P<head>login(?<!\wlogin)\b[^\n]{0,200}?\s(?:-p|--password)(?:=|\s{1,8}))(?P<value>[^\s\"']{1,1000})"
)
_NETRC = re.compile(r"(?P<head>login(?<!\wlogin)\s{1,8}\S{1,100}\s{1,8}password\s{1,8})(?P<value>\S{1,1000})")
_SIGNED = re.compile(
    r"(?P<head>[?&;](?i:sig|signature|x-amz-signature|x-amz-credential|x-goog-signature)=)(?P<value>[^\s&\"']{1,2000})"
)
_TOLD = re.compile(
    r"(?P<head>\b(?i:password|passphrase|passwd|token|secret|api key)\s{1,4}(?i:is|was|set to)[:\s]{1,4}[\"']?)"
    r"(?P<value>(?=[^\s\"']{0,200}[0-9])[^\s\"']{4,500})"
)
_ITEM = re.compile(r"(?m)^(?P<head>[ \t]*-[ \t]+[\"']?)(?P<name>[A-Z_][A-Z0-9_]{0,80})=(?P<value>[^\n\"']+)")
_QUOTED = re.compile(r"(?P<head>\")(?P<name>[A-Z_][A-Z0-9_]{0,80})=(?P<value>[^\"\n\\]+)(?=\")")
"""Variables as CDI specs list them; in small letters such pairs are settings, as `nofile=20000`."""
_HOME = re.compile(r"(?P<head>/(?:home|Users|var/home)/)(?P<value>[^/\s\"':,;)\]}]{1,64})")

_FORMS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("private key", _PEM, "-----BEGIN"),
    ("token", _TOKEN, ""),
    ("login in base64", _BASIC, ""),
    ("cookie", _COOKIE, ""),
    ("login of a command", _LOGIN, "-"),
    ("login of a command", _LOGIN_WITH, "login"),
    ("login of a command", _NETRC, "login"),
    ("signature", _SIGNED, ""),
    ("told secret", _TOLD, ""),
)
"""What, form, a text without which the form cannot be there."""
_BEFORE = re.compile(
    rf"(?P<name>{_NAME})[\"']?\s{{0,8}}(?:[=:]|\s)\s{{0,8}}(?:(?i:bearer|basic)\s{{1,4}})?[\"']?$", re.ASCII
)
_CUT = re.compile(r"(?P<run>[^\s…]{1,2000})…")
_BEGUN = re.compile(r"(?<![A-Za-z0-9_-])(?:gh[opsur]_|github_pat_|glpat-|hf_|nvapi-|xox[abeoprs]-|eyJ)[\w.-]{0,2000}$")
LEAST_LEFT = 4
"""Characters of a secret's beginning that are masked before the `…` of a cut."""
_KEY = re.compile(r"key\s{0,8}:\s{0,8}\"([^\"\n]{1,100})\"")
_SPLIT = re.compile(r"[\s;,\"']+")
_NO_SECRET_KEYS = frozenset({"key", "keys", "sandboxkey", "next_key"})
_HARMLESS = frozenset(
    {"true", "false", "default", "disabled", "enabled", "required", "triton", "nvidia", "localhost", "tritonserver"}
)


class Redaction(Struct, frozen=True):
    """What was taken out of one part; never its value."""

    part: str
    what: str
    """The name under which it stood (`HF_TOKEN`), or its form (`private key`)."""
    count: int
    places: tuple[str, ...]
    """`line 12`, or the path in a JSON part; the first ones."""


class Redactor:
    """Takes secrets out of parts, remembers where, and learns the values that stood under secret names."""

    def __init__(self, words: Iterable[str] = (), harmless: Iterable[str] = (), *, keep_paths: bool = False) -> None:
        """`words` are secrets known word for word (of the settings); `harmless` are names that are none, whatever holds
        them: of models, of the container, of the host."""
        known = list(dict.fromkeys(words))
        self._masks = Masks(known)
        self._harmless = {*harmless} | _HARMLESS
        self._words = {word for word in known if len(word) >= 4}
        self._keep_paths = keep_paths
        self._found: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self._strings: dict[str, str] = {}
        """Texts of recordings, which come again each second, and what became of them."""

    def learn(self, words: Iterable[str]) -> None:
        """Secrets that became known word for word."""
        self._words.update(word for word in words if len(word) >= 6 and word not in self._harmless)

    @property
    def redactions(self) -> tuple[Redaction, ...]:
        """All so far, by part."""
        return tuple(
            Redaction(part, what, count, tuple(places)) for (part, what), (count, places) in sorted(self._found.items())
        )

    # -------------------------------------------------------------------------------------------------- the first look

    def text(self, part: str, text: str, path: str = "", place: str = "") -> str:
        """A text; `path` says which file of the box it is, as unit files have forms of their own. `place` says where in
        the part it stands, else it is the whole of it."""
        text = self._forms(part, text, place)
        masked = self._masks.file_text(path, text)
        for number, (was, is_now) in enumerate(zip(text.split("\n"), masked.split("\n"), strict=False), 1):
            if was != is_now:
                self._learn(part, place or f"line {number}", was, is_now)
        return self._paths(part, masked, place)

    def json(self, part: str, value: Any) -> Any:
        """Plain JSON data, by the keys under which its texts stand."""
        masked = self._masks.json(_below_names(value))
        return self._walk(part, "", value, masked)

    def strings(self, part: str, value: Any, place: str = "") -> Any:
        """The same where keys tell nothing (recordings: patches of structs whose secrets were masked as they were
        read): each text by its form alone."""
        if isinstance(value, str):
            if len(value) < 4:
                return value
            known = self._strings.get(value)
            if known is None:
                known = self.text(part, value, place=place)
                if len(self._strings) < MOST_STRINGS:
                    self._strings[value] = known
            return known
        if isinstance(value, Mapping):
            return {name: self.strings(part, one, f"{place}.{name}".lstrip(".")) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.strings(part, one, f"{place}[{n}]") for n, one in enumerate(value)]
        return value

    def _walk(self, part: str, place: str, was: Any, is_now: Any) -> Any:
        if isinstance(is_now, str):
            if not isinstance(was, str):
                return is_now
            if was != is_now:
                self._learn(part, place, was, is_now, _name_of(place))
            return self._paths(part, self._forms(part, is_now, place), place)
        if isinstance(is_now, Mapping) and isinstance(was, Mapping):
            # keys stay in their order, less what is no Unicode in them
            pairs = zip(was.values(), is_now.items(), strict=False)
            return {
                self._paths(part, self._forms(part, name, place), place): self._walk(
                    part, f"{place}.{name}" if place else str(name), before, one
                )
                for before, (name, one) in pairs
            }
        if isinstance(is_now, list | tuple) and isinstance(was, list | tuple):
            pairs_ = zip(was, is_now, strict=False)
            return [self._walk(part, f"{place}[{n}]", before, one) for n, (before, one) in enumerate(pairs_)]
        return is_now

    def _forms(self, part: str, text: str, place: str = "") -> str:
        for what, form, hint in _FORMS:
            if hint in text:
                text = form.sub(self._noting(part, what, text, place), text)
        if "=" in text:
            for form in (_ITEM, _QUOTED):
                text = form.sub(self._variable(part, text, place), text)
        return text

    def _noting(self, part: str, what: str, text: str, place: str) -> Callable[[re.Match[str]], str]:
        def masked(match: re.Match[str]) -> str:
            head, value = match.groupdict().get("head") or "", match["value"]
            if value.strip() in ("", MASK) or (what == "login in base64" and not _is_login(value)):
                return match.group()
            self._note(part, what, place or (text, match.start()))
            self._remember(value, sure=True)
            return head + MASK + "\n" * value.count("\n")  # line numbers stay

        return masked

    def _variable(self, part: str, text: str, place: str) -> Callable[[re.Match[str]], str]:
        def masked(match: re.Match[str]) -> str:
            name, value = match["name"], match["value"]
            if is_shown(name) or value == MASK:
                return match.group()
            self._note(part, name, place or (text, match.start()))
            self._remember(value, sure=is_secret_name(name))
            return f"{match['head']}{name}={MASK}"

        return masked

    def _learn(self, part: str, place: str, was: str, is_now: str, key: str = "") -> None:
        """Note what was masked in a line, and remember the values: what lies between the pieces that stayed."""
        pieces = is_now.split(MASK)
        form = "(.*?)".join(re.escape(piece) for piece in pieces)
        match = re.fullmatch(form, was, re.DOTALL) if len(pieces) <= 40 else None
        before = ""
        for number, piece in enumerate(pieces[:-1]):
            before += piece
            named = _BEFORE.search(before[-200:])
            name = (named["name"] if named is not None else "") or key or "login"
            if name == "string_value":  # a parameter of a model's configuration: its name stands before it
                keys = _KEY.findall(before)
                name = keys[-1] if keys else name
            before += MASK
            value = match[number + 1] if match is not None else ""
            if value == MASK:
                continue
            self._note(part, name, place)
            self._remember(value, sure=is_secret_name(name))

    def _note(self, part: str, what: str, place: str | tuple[str, int]) -> None:
        """`place`: its name, or the text and the offset in it: lines are counted for the few that are named only."""
        count, places = self._found.setdefault((part, what), (0, []))
        if len(places) < MOST_PLACES and count < MOST_NAMED:
            name = place if isinstance(place, str) else f"line {place[0].count(chr(10), 0, place[1]) + 1}"
            if name not in places:
                places.append(name)
        self._found[part, what] = (count + 1, places)

    def _remember(self, value: str, *, sure: bool) -> None:
        """A value to be looked for everywhere, if it can hardly be anything else than itself."""
        for word in _SPLIT.split(value):  # `Bearer x`, `session=x; Path=/`, the lines of a key
            word = word.rstrip("\\")
            if "=" in word.rstrip("="):
                word = word.partition("=")[2]
            if len(self._words) >= MOST_WORDS or not is_made_up(word, sure=sure):
                continue
            if word not in self._harmless:
                self._words.add(word)

    def _paths(self, part: str, text: str, place: str = "") -> str:
        if self._keep_paths or not ("/home/" in text or "/Users/" in text):
            return text

        def masked(match: re.Match[str]) -> str:
            if match["value"] in (USER, MASK):
                return match.group()
            self._note(part, "account in a path", place or (text, match.start()))
            return match["head"] + USER

        return _HOME.sub(masked, text)

    # ------------------------------------------------------------------------------------------------- the second look

    def again(self, part: str, text: str) -> str:
        """A whole part as it will be written: what was learned in others, and forms that only show in the whole."""
        words = {
            *self._words,
            *(json.dumps(word, ensure_ascii=False)[1:-1] for word in self._words),
        }  # as JSON has them
        for word in sorted(words, key=len, reverse=True):
            if word in text:
                for _ in range(text.count(word)):
                    self._note(part, "a value that stands under a secret name elsewhere", "")
                text = text.replace(word, MASK)
        for what, form, hint in _FORMS[:2]:
            if hint in text:
                text = form.sub(self._noting(part, what, text, ""), text)
        return _CUT.sub(lambda match: self._cut(part, match), text) if "…" in text else text

    def _cut(self, part: str, match: re.Match[str]) -> str:
        """What is left of a secret where a long text was cut off in the midst of it."""
        run = match["run"]
        begun = _BEGUN.search(run)
        at = begun.start() if begun is not None else len(run)
        for word in self._words:
            for length in range(min(len(word), len(run)), LEAST_LEFT - 1, -1):
                if run.endswith(word[:length]):
                    at = min(at, len(run) - length)
                    break
        if at == len(run):
            return match.group()
        self._note(part, "the beginning of a secret, cut off", "")
        return f"{run[:at]}{MASK}…"


def _name_of(place: str) -> str:
    """The name under which the text of a path stands: the last secret one, else the last."""
    names = [one.partition("[")[0] for one in place.split(".")]
    return next((one for one in reversed(names) if is_secret_name(one)), names[-1])


def _below_names(value: Any, secret: bool = False) -> Any:
    """The same with all texts masked that stand anywhere below a secret name: `api_key: {string_value: x}`."""
    if isinstance(value, str):
        return MASK if secret and value else value
    if isinstance(value, Mapping):
        return {
            name: _below_names(one, secret or (is_secret_name(str(name)) and str(name).lower() not in _NO_SECRET_KEYS))
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_below_names(one, secret) for one in value]
    return value


def _is_login(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def is_made_up(word: str, *, sure: bool) -> bool:
    """Whether a word can be looked for everywhere: `triton` and `8000` cannot. `sure`: it stood under a secret name."""
    if word.startswith(("/", "http", MASK)) or any(char.isspace() for char in word) or MASK in word:
        return False
    mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    odd = any(char in "!@#$%^&*+=?~" for char in word)
    if sure:
        return len(word) >= 16 or (len(word) >= 6 and (mixed or odd))
    return len(word) >= 12 and (mixed or odd) and word.count("/") < 2 and word.count(".") < 3
