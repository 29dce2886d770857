"""Podman's API to act with: start, stop, rename, create, remove, pull. Opened through `Box.podman` only.

podman-py's APIClient carries the calls, as in podman.py. Its container classes are not used: their `create` drops the
server's warnings, takes keywords that it ignores, and their `stop` fails on a container that is not running (host.md
3.3, 3.4). Bodies are libpod's own, made by actions/container_spec.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from console.clients.podman import API_VERSION, CALL_TIMEOUT, explain, message_of
from console.core import podman_errors
from console.core.model import SourceError
from console.core.secrets import mask_text
from console.core.text import one_line

_IS_GONE = "no such container"
"""Said with 500 of one that is just being removed, with 404 afterwards."""
CREATE_TIMEOUT = 60.0
START_TIMEOUT = 60.0
"""Seconds; a start of Podman's ends when the process runs, not when Triton serves."""
GRACE = 20.0
"""Seconds beyond a stop's own limit until the wait for its answer ends; Podman goes on with the stop."""
PULL_TIMEOUT = 120.0
"""Seconds without any news from a pull."""


class PodmanRefusal(SourceError):  # noqa: N818 (an answer, not a fault of ours)
    """An answer of 400 and more, in Podman's words. `hint` says what to do where that is known."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("protocol", f"Podman answered {status}: {text}", podman_errors.hint(text))
        self.status = status
        self.text = text


class Created(Struct, frozen=True):
    """A container that was created, and what Podman warned of (podman-py drops that)."""

    id: str
    warnings: tuple[str, ...] = ()


class PullProgress(Struct, frozen=True):
    """One line of a pull: `layer` is its short digest, bytes are None where the line tells none."""

    status: str
    layer: str = ""
    current: int | None = None
    total: int | None = None


class PodmanControl:
    """One connection to act with, for one thread. Raises SourceError; PodmanRefusal where Podman answered."""

    def __init__(self, url: str, timeout: float = CALL_TIMEOUT) -> None:
        self.url = url
        from podman.api.client import APIClient

        self._api: Any = APIClient(base_url=url, version=API_VERSION, timeout=timeout)

    def close(self) -> None:
        """Let the connections go."""
        self._api.close()

    # --------------------------------------------------------------------------------------------------------- looks

    def inspect(self, name: str) -> dict[str, Any] | None:
        """Podman's whole inspect answer, secrets and all: not to be shown; None where there is no such container."""
        return self._found(f"/containers/{_part(name)}/json")

    def image(self, reference: str) -> dict[str, Any] | None:
        """The inspect answer of an image; None where it is not on this box."""
        return self._found(f"/images/{_part(reference)}/json")

    def names(self) -> dict[str, str]:
        """Name -> state of all containers."""
        answer = self._call("GET", "/containers/json", {"all": "true"})
        return {name: str(one.get("State", "")) for one in answer or () for name in one.get("Names") or ()}

    def _found(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self._call("GET", path)
        except PodmanRefusal as refusal:
            if refusal.status == 404 or _IS_GONE in refusal.text:
                return None
            raise
        return answer if isinstance(answer, dict) else None

    # ---------------------------------------------------------------------------------------------------------- acts

    def start(self, name: str) -> None:
        """Start; nothing where it runs. A CDI name that no spec file knows, a taken port, a refused rlimit: here."""
        self._call("POST", f"/containers/{_part(name)}/start", timeout=START_TIMEOUT)

    def stop(self, name: str, seconds: int) -> bool:
        """SIGTERM, and SIGKILL after `seconds`; returns when it has stopped, False where it did not run.

        SourceError (timeout) when no answer comes GRACE seconds later: Podman goes on with it.
        """
        answer = self._answer("POST", f"/containers/{_part(name)}/stop", {"timeout": str(seconds)}, seconds + GRACE)
        return bool(answer.status_code != 304)

    def restart(self, name: str, seconds: int) -> None:
        """Stop as `stop` does and start again; one made with --rm does not vanish."""
        path = f"/containers/{_part(name)}/restart"
        self._call("POST", path, {"t": str(seconds)}, timeout=seconds + GRACE + START_TIMEOUT)

    def kill(self, name: str, signal: str = "SIGKILL") -> None:
        """Send a signal; a PodmanRefusal of 409 where it does not run."""
        self._call("POST", f"/containers/{_part(name)}/kill", {"signal": signal})

    def rename(self, name: str, new: str) -> None:
        """Give it another name, running or not."""
        self._call("POST", f"/containers/{_part(name)}/rename", {"name": new})

    def remove(self, name: str, *, force: bool = False) -> bool:
        """Remove it and its unnamed volumes' entries stay; `force` kills it first. False where there was none."""
        params = {"force": "true" if force else "false", "timeout": "0"} if force else {"force": "false"}
        try:
            self._call("DELETE", f"/containers/{_part(name)}", params, timeout=START_TIMEOUT)
        except PodmanRefusal as refusal:
            if refusal.status == 404 or _IS_GONE in refusal.text:
                return False
            raise
        return True

    def create(self, body: Mapping[str, Any]) -> Created:
        """Create from a libpod SpecGenerator. An image that is not here is a refusal, nothing is pulled."""
        answer = self._call("POST", "/containers/create", data=json.dumps(body), timeout=CREATE_TIMEOUT)
        made = answer if isinstance(answer, dict) else {}
        warnings = tuple(one_line(mask_text(str(text)), 500) for text in made.get("Warnings") or ())
        return Created(str(made.get("Id", "")), warnings)

    def pull(self, reference: str, *, tls_verify: bool = True) -> Iterator[PullProgress]:
        """Pull an image and give its progress; a SourceError ends one that fails, closing the iterator ends the pull.

        By the compatible endpoint, as libpod's own tells no bytes before 4.8. Only the latter can be told to trust a
        registry without a good certificate (seen on 4.3.1), so then no bytes are known.
        """
        if tls_verify:
            path, params = "/images/create", {"fromImage": reference}
        else:
            path, params = "/images/pull", {"reference": reference, "tlsVerify": "false", "policy": "always"}
        answer = self._answer("POST", path, params, PULL_TIMEOUT, stream=True, compatible=tls_verify)
        try:
            for line in _lines(answer, self.url):
                progress = _progress(line)
                if progress is not None:
                    yield progress
        finally:
            answer.close()

    # --------------------------------------------------------------------------------------------------------- calls

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
        data: str | None = None,
    ) -> Any:
        answer = self._answer(method, path, params, timeout, data=data)
        if not answer.content.strip():
            return None
        try:
            return msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SourceError("protocol", f"Podman's answer to {path} is not understood: {error}") from error

    def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> Any:
        from podman.errors import APIError
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        if more.get("data") is not None:
            more["headers"] = {"Content-Type": "application/json"}
        more = {name: value for name, value in more.items() if value is not None}
        call = {"GET": self._api.get, "POST": self._api.post, "DELETE": self._api.delete}[method]
        try:
            answer = call(path, params=params, timeout=timeout, **more)
            if answer.status_code >= 400:
                raise PodmanRefusal(answer.status_code, mask_text(message_of(answer.content)))
        except (APIError, RequestException, HTTPError, OSError) as error:
            raise explain(self.url, error) from error
        return answer


def _part(name: str) -> str:
    """A name or reference in a path; an image's slashes and colon stay."""
    return quote(name, safe="/:@")


def _lines(answer: Any, url: str) -> Iterator[bytes]:
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield from answer.iter_lines()
    except (RequestException, HTTPError, OSError) as error:
        raise explain(url, error) from error


def _progress(line: bytes) -> PullProgress | None:
    """One JSON line; SourceError where it tells of a failure, None for what is not understood."""
    try:
        told = msgspec.json.decode(line) if line.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    failed = told.get("error") or (told.get("errorDetail") or {}).get("message")
    if failed:
        text = one_line(mask_text(str(failed)), 500)
        raise SourceError("protocol", f"the pull failed: {text}", podman_errors.hint(text))
    detail = told.get("progressDetail")
    detail = detail if isinstance(detail, dict) else {}
    status = one_line(str(told.get("status") or told.get("stream") or ""), 200)
    return PullProgress(
        status, one_line(str(told.get("id") or ""), 80), _size(detail, "current"), _size(detail, "total")
    )


def _size(detail: Mapping[str, Any], name: str) -> int | None:
    value = detail.get(name)
    return value if isinstance(value, int) and value > 0 else None
