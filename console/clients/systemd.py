"""systemctl as a tool to act with: argv lists, no shell, never a password.

As root, and for the caller's own manager (`user`), systemctl is run as it is. Anybody else first asks without sudo
(polkit may allow it) and, where that is denied, through `sudo -n`; where sudo wants a password the error carries the
command for a person to type. Ending the wait does not end systemd's job: `timeout` says so.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from console.clients.commands import Output, run
from console.core.model import SourceError
from console.core.text import decode, one_line

Verb = Literal["start", "stop", "restart", "reset-failed", "daemon-reload"]

TIMEOUT = 90.0
"""Seconds; systemd's own limit for a job is 90 s where the unit says nothing else."""
SHOW_TIMEOUT = 5.0
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]{1,240}\.(?:service|socket|target|timer|path|mount|slice|scope)")
"""systemd.unit(5), less what nobody means: a name that begins with a dash would be an option."""
_DENIED = ("access denied", "interactive authentication required", "authentication is required", "permission denied")
_NO_SYSTEMD = ("system has not been booted with systemd", "failed to connect to bus", "failed to connect to user scope")


class SystemdView:
    """What may be asked of systemd. `owner` is the user whose own manager `user=True` means; None = the caller's."""

    def __init__(self, owner: int | None = None) -> None:
        self._owner = owner

    def show(self, unit: str, properties: Sequence[str], user: bool = False) -> Mapping[str, str]:
        """Properties as systemctl writes them; LoadState is `not-found` for a unit that there is not."""
        words = ["show", _named(unit), f"--property={','.join(properties)}"]
        answer = self._run(words, user, SHOW_TIMEOUT)
        if answer.code != 0:
            raise self._failed(answer, words, user)
        return dict(line.split("=", 1) for line in answer.text.splitlines() if "=" in line)

    def show_all(
        self, units: Sequence[str], properties: Sequence[str], user: bool = False, timeout: float = SHOW_TIMEOUT
    ) -> Mapping[str, Mapping[str, str]]:
        """Properties of several units by one call, by the names asked for; LoadState as for `show`."""
        words = ["show", *map(_named, units), f"--property={','.join(properties)}"]
        answer = self._run(words, user, timeout)
        if answer.code != 0:
            raise self._failed(answer, ["show"], user)
        blocks = [block for block in answer.text.split("\n\n") if block.strip()]
        if len(blocks) != len(units):
            raise SourceError("protocol", f"systemctl show told of {len(blocks)} units, asked for {len(units)}")
        pairs = ([line.split("=", 1) for line in block.splitlines() if "=" in line] for block in blocks)
        return {unit: dict(one) for unit, one in zip(units, pairs, strict=True)}

    def command(self, unit: str, verb: Verb, user: bool = False) -> str:
        """What a person would type."""
        words = _words(unit, verb)
        return shlex.join([*self._prefix(user), *words] if user else ["sudo", "systemctl", *words])

    def rights(self, user: bool = False) -> str:
        """Why acting may be refused, in one sentence; "" where it will not be. polkit is not asked."""
        if not self._may_sudo(user):
            return ""
        try:
            if run(["sudo", "-n", "true"], SHOW_TIMEOUT).code == 0:
                return ""
        except SourceError as error:
            return f"you are not root, and {error.message}: systemd may refuse"
        return "you are not root, and sudo wants a password, which this console never takes: systemd may refuse"

    def _run(self, words: Sequence[str], user: bool, timeout: float) -> Output:
        return run([*self._prefix(user), "--no-ask-password", *words], timeout)

    def _may_sudo(self, user: bool) -> bool:
        return not user and os.geteuid() != 0

    def _prefix(self, user: bool) -> list[str]:
        if not user:
            return ["systemctl"]
        if self._owner is None or self._owner == os.geteuid():
            return ["systemctl", "--user"]
        # `--machine=USER@` is newer than RHEL 8's systemd; this works with each.
        runtime = f"XDG_RUNTIME_DIR=/run/user/{self._owner}"
        return ["runuser", "-u", _user_name(self._owner), "--", "env", runtime, "systemctl", "--user"]

    def _failed(self, answer: Output, words: Sequence[str], user: bool) -> SourceError:
        said = one_line(_said(answer), 400)
        asked = f"systemctl {' '.join(word for word in words if not word.startswith('-'))}"
        if any(words in said.lower() for words in _NO_SYSTEMD):
            return SourceError("unavailable", f"{asked}: {said}", "is systemd this host's first process?")
        if _denied(answer) or said.startswith("sudo:"):
            by_hand = shlex.join([*self._prefix(user), *words] if user else ["sudo", "systemctl", *words])
            return SourceError("permission", f"{asked}: {said}", f"by hand: {by_hand}")
        return SourceError("protocol", f"{asked}: {said}")


class Systemd(SystemdView):
    """systemctl to act with. Opened through `Box.systemd` only."""

    def act(self, unit: str, verb: Verb, user: bool = False, timeout: float = TIMEOUT, wait: bool = True) -> None:
        """Do it and wait for its end (`wait=False`: only ask for it, then look with `show`).

        SourceError: permission (with the command to type), timeout (systemd goes on with the job), protocol
        (systemctl's own words), unavailable (no systemctl, no systemd).
        """
        words = _words(unit, verb)
        if not wait and verb != "daemon-reload":
            words = ["--no-block", *words]
        try:
            answer = self._run(words, user, timeout)
            if answer.code != 0 and _denied(answer) and self._may_sudo(user):
                answer = run(["sudo", "-n", "systemctl", "--no-ask-password", *words], timeout)
        except SourceError as error:
            if error.kind != "timeout":
                raise
            late = f"{verb} {unit} did not end within {timeout:g} s: systemd goes on with it"
            raise SourceError("timeout", late, f"systemctl status {unit}") from error
        if answer.code != 0:
            raise self._failed(answer, words, user)

    def reload(self, user: bool = False, timeout: float = TIMEOUT) -> None:
        """daemon-reload: unit files are read anew. Starts and stops nothing."""
        self.act("", "daemon-reload", user, timeout)


def _named(unit: str) -> str:
    if not UNIT_NAME.fullmatch(unit) or unit.startswith("-"):
        raise SourceError("protocol", f"{one_line(unit, 80)!r} is not the name of a systemd unit")
    return unit


def _words(unit: str, verb: Verb) -> list[str]:
    return [verb] if verb == "daemon-reload" else [verb, _named(unit)]


def _said(answer: Output) -> str:
    return decode(answer.err).strip() or answer.text.strip() or f"exit code {answer.code}"


def _denied(answer: Output) -> bool:
    said = decode(answer.err).lower()
    return any(words in said for words in _DENIED)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise SourceError("unavailable", f"user {uid} has no name on this host") from error
