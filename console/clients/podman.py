"""Podman's API: where its socket is, and the few calls that the console makes each poll.

Only cheap calls stand in the loop: ping 2 ms, list 3 ms, inspect 4 ms; `/version` (631 ms) and `/info` (374 ms) never
(host.md 3.4). podman-py's APIClient is used without its PodmanClient, because the latter reads containers.conf first
and a broken file there would blind the console even where the socket is known (host.md 3.7).
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from console.clients import libpod
from console.core.model import SocketTry, SourceError
from console.core.secrets import mask_text
from console.core.text import one_line

T = TypeVar("T")

API_VERSION = "4.0.0"
"""Asked for in every path. Podman 4 and 5 accept it; `_ping` tells what the server really is."""
CONNECT_TIMEOUT = 1.0
CALL_TIMEOUT = 5.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Candidate(msgspec.Struct, frozen=True):
    """A Podman service that may be there: `unix:///path` or `tcp://127.0.0.1:port`."""

    url: str
    origin: str

    @property
    def path(self) -> str:
        """The socket's path, or the whole URL of one that is no Unix socket, less a password in it."""
        return unquote(self.url.removeprefix("unix://")) if self.url.startswith("unix://") else mask_text(self.url)


# ------------------------------------------------------------------------------------------------ finding the socket


def candidates(
    told: str | None = None, environ: Mapping[str, str] | None = None, root: Path = Path("/"), uid: int | None = None
) -> tuple[list[Candidate], list[SocketTry]]:
    """Services to try, in order, and those that are named somewhere but cannot be used (with why).

    `told` (flag or settings) stands alone: who names a socket does not want another one's containers. Otherwise
    CONTAINER_HOST, rootful, rootless (XDG_RUNTIME_DIR, /run/user/UID; for root those of all users), containers.conf.
    """
    env = os.environ if environ is None else environ
    user = os.getuid() if uid is None else uid
    named = [(told, "settings")] if told else [*_by_environment(env, root, user)]
    refused: list[SocketTry] = []
    if not told:
        destinations, broken = service_destinations(env, root)
        named += [(uri, "containers.conf") for uri in destinations]
        refused += broken
    usable: list[Candidate] = []
    for uri, origin in named:
        why = _unsupported(uri)
        if why:
            refused.append(SocketTry(mask_text(one_line(uri, 200)), origin, why))
        elif all(normal_url(uri) != known.url for known in usable):
            usable.append(Candidate(normal_url(uri), origin))
    return usable, refused


def _by_environment(env: Mapping[str, str], root: Path, uid: int) -> Iterator[tuple[str, str]]:
    if env.get("CONTAINER_HOST"):
        yield env["CONTAINER_HOST"], "CONTAINER_HOST"
    yield str(root / "run/podman/podman.sock"), "rootful"
    if env.get("XDG_RUNTIME_DIR"):
        yield f"{env['XDG_RUNTIME_DIR']}/podman/podman.sock", "rootless"
    if uid != 0:
        yield str(root / f"run/user/{uid}/podman/podman.sock"), "rootless"
        return
    for found in sorted(root.glob("run/user/*/podman/podman.sock")):
        yield str(found), "rootless"


def normal_url(uri: str) -> str:
    """A bare path as a unix URL; `http+unix` is podman-py's own spelling."""
    if uri.startswith("/"):
        return f"unix://{uri}"
    return uri.replace("http+unix://", "unix://", 1)


def _unsupported(uri: str) -> str | None:
    if "\0" in unquote(uri):
        return "is no path"
    if uri.startswith("/"):
        return None
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        return f"is no address: {one_line(str(error), 100)}"
    if parts.scheme in ("unix", "http+unix"):
        return None if parts.path or parts.netloc else "names no path"
    if parts.scheme in ("tcp", "http"):
        if parts.hostname not in LOOPBACK:
            return "tcp is used on loopback only: it carries no rights of its own"
        return "is no address: port 0" if port == 0 else None
    if "ssh" in parts.scheme:
        return "ssh is not supported: run gpuconsole on that host"
    return "is no Unix socket"


def service_destinations(env: Mapping[str, str], root: Path = Path("/")) -> tuple[list[str], list[SocketTry]]:
    """URIs that containers.conf and podman-connections.json name, and the files that could not be read (with why)."""
    home = Path(env.get("HOME") or "/nonexistent")
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "containers"
    files = [root / "usr/share/containers/containers.conf", root / "etc/containers/containers.conf"]
    files.append(config_home / "containers.conf")
    if env.get("CONTAINERS_CONF"):
        files = [Path(env["CONTAINERS_CONF"])]
    uris: list[str] = []
    broken: list[SocketTry] = []
    for file in [*files, config_home / "podman-connections.json"]:
        try:
            uris += _uris(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            broken.append(SocketTry(str(file), "containers.conf", f"could not be read: {error.strerror}"))
        except (ValueError, RecursionError) as error:
            broken.append(SocketTry(str(file), "containers.conf", f"is broken: {one_line(str(error), 200)}"))
    return list(dict.fromkeys(uris)), broken


def _uris(file: Path) -> list[str]:
    """Raises ValueError for what is no TOML, no JSON or no UTF-8, RecursionError for what is nested too deep."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        data = json.loads(text)
        table = _table(_table(data, "Connection"), "Connections")
        return [uri for entry in table.values() if isinstance(uri := _table(entry).get("URI"), str)]
    table = _table(_table(tomllib.loads(text), "engine"), "service_destinations")
    return [uri for entry in table.values() if isinstance(uri := _table(entry).get("uri"), str)]


def _table(value: Any, key: str | None = None) -> dict[str, Any]:
    inner = value.get(key) if key is not None and isinstance(value, dict) else value
    return inner if isinstance(inner, dict) else {}


def connect_error(candidate: Candidate) -> str | None:
    """Why nobody answers there, with what to do about it; None when a connection was made."""
    family, address = _address(candidate)
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_TIMEOUT)
        try:
            connection.connect(address)
        except TimeoutError:
            return f"no connection within {CONNECT_TIMEOUT:.0f} s"
        except OSError as error:
            return _explained(error, candidate)
    return None


def _address(candidate: Candidate) -> tuple[socket.AddressFamily, Any]:
    if candidate.url.startswith("unix://"):
        return socket.AF_UNIX, candidate.path
    parts = urlsplit(candidate.url)
    family = socket.AF_INET6 if parts.hostname == "::1" else socket.AF_INET
    return family, (parts.hostname, parts.port or 8080)


def _explained(error: OSError, candidate: Candidate) -> str:
    """With what to do: start Podman's own socket, or look again at the address that somebody named."""
    if error.errno == errno.ENOENT:
        return f"is not there: {_todo(candidate)}"
    if error.errno == errno.ECONNREFUSED:
        # Linux refuses a connection to a file or a folder as it does one to a socket that nobody serves.
        return f"refused, nobody serves it: {_todo(candidate)}" if _may_be_socket(candidate) else "is no socket"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied: run with sudo, or as the user who owns the containers"
    if error.errno == errno.ENOTSOCK:
        return "is no socket"
    return one_line(str(error.strerror or error), 200)


def _todo(candidate: Candidate) -> str:
    if not candidate.path.endswith("/podman/podman.sock"):
        return f"is the address ({candidate.origin}) right, does its service run?"
    return f"systemctl {'--user ' if candidate.origin == 'rootless' else ''}enable --now podman.socket"


def _may_be_socket(candidate: Candidate) -> bool:
    if not candidate.url.startswith("unix://"):
        return True
    try:
        return stat.S_ISSOCK(os.stat(candidate.path).st_mode)
    except OSError:
        return True


# ------------------------------------------------------------------------------------------------------------- calls


def user_of(url: str) -> int | None:
    """Uid of the user whose own Podman a socket below /run/user belongs to; None for any other."""
    found = re.search(r"/run/user/(\d+)/", url)
    return int(found[1]) if found else None


def load() -> None:
    """Import the libraries now: in one of many busy threads that takes ten times as long."""
    import httpcore  # noqa: F401
    import podman.api.client  # noqa: F401


class Podman:
    """One connection to one Podman service, for one thread. All calls raise SourceError and nothing else."""

    def __init__(self, url: str, timeout: float = CALL_TIMEOUT) -> None:
        self.url = url
        from podman.api.client import APIClient

        self._api: Any = APIClient(base_url=url, version=API_VERSION, timeout=timeout)

    def close(self) -> None:
        """Let the connections go."""
        self._api.close()

    def ping(self) -> tuple[str | None, float]:
        """(libpod API version such as "4.9.4", round trip in ms); SourceError when it is not Podman that answers."""
        began = time.perf_counter()
        answer = self._get("/_ping")
        took = (time.perf_counter() - began) * 1000
        version = answer.headers.get("Libpod-Api-Version")
        if version is None:
            raise SourceError("protocol", f"{self.url} answers, but it is not Podman's API (Docker's, perhaps)")
        return one_line(version, 40), took

    def containers(self) -> list[libpod.Listed]:
        """All containers, stopped ones included."""
        return self._decode("/containers/json", list[libpod.Listed], {"all": "true"}) or []

    def inspect(self, name: str) -> libpod.Inspect | None:
        """One container by identity or name; None when there is none (any more)."""
        return self._decode(f"/containers/{name}/json", libpod.Inspect)

    def images(self) -> list[libpod.Image]:
        """All images."""
        return self._decode("/images/json", list[libpod.Image]) or []

    def image_created(self, image: str) -> float | None:
        """When an image was built, in Unix seconds; None when it is not here (any more) or does not say."""
        answer = self._decode(f"/images/{image}/json", libpod.ImageInspect)
        return libpod.wall_time(answer.created) if answer else None

    def image_id(self, image: str) -> str | None:
        """An image's identity; None when it is not here."""
        answer = self._decode(f"/images/{image}/json", libpod.ImageInspect)
        return answer.id if answer else None

    def inspect_all(self, name: str) -> dict[str, Any] | None:
        """Podman's whole inspect answer, secrets and all: not to be shown; None when there is no such container."""
        return self._decode(f"/containers/{name}/json", dict[str, Any])

    def containers_all(self) -> list[dict[str, Any]]:
        """All containers as Podman lists them, labels and command lines in the clear."""
        return self._decode("/containers/json", list[dict[str, Any]], {"all": "true"}) or []

    def images_all(self) -> list[dict[str, Any]]:
        """All images as Podman lists them."""
        return self._decode("/images/json", list[dict[str, Any]]) or []

    def info_all(self) -> dict[str, Any] | None:
        """Podman's own settings and its host's; takes some 400 ms, so it is for no loop."""
        return self._decode("/info", dict[str, Any])

    def image_all(self, image: str) -> dict[str, Any] | None:
        """The whole inspect answer of an image; None when it is not here."""
        return self._decode(f"/images/{image}/json", dict[str, Any])

    def stats(self, name: str) -> libpod.OnceStats | None:
        """One sample of a running container; None when Podman has none (rootless with cgroup v1: 409)."""
        answer = self._decode("/containers/stats", libpod.StatsAnswer, {"containers": name, "stream": "false"})
        return answer.stats[0] if answer and answer.stats else None

    def _decode(self, path: str, kind: type[T], params: Mapping[str, str] | None = None) -> T | None:
        answer = self._get(path, params)
        if answer.status_code == 404 or answer.content.strip() == b"null" or _is_going(answer):
            return None
        if answer.status_code >= 400:
            raise SourceError("protocol", f"Podman answered {answer.status_code}: {message_of(answer.content)}")
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SourceError("protocol", f"Podman's answer to {path} is not understood: {error}") from error

    def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        from podman.errors import APIError
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        try:
            return self._api.get(path, params=params)
        except (APIError, RequestException, HTTPError, OSError) as error:
            raise explain(self.url, error) from error


def _is_going(answer: Any) -> bool:
    """True for a container that is just being removed: seen on 4.3.1 as a 500 and not as a 404."""
    return answer.status_code == 500 and b"no such container" in answer.content


def explain(url: str, error: BaseException) -> SourceError:
    """podman-py wraps requests, which wraps urllib3, which wraps the system's error: the innermost tells."""
    reasons: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(reasons) < 8:
        reasons.append(seen)
        seen = seen.__cause__ or seen.__context__
    if any(isinstance(one, TimeoutError) for one in reasons):
        return SourceError("timeout", f"{_path(url)}: Podman did not answer in time")
    system = next((one for one in reasons if isinstance(one, OSError) and one.errno), None)
    if system is not None:
        origin = "rootless" if "/run/user/" in url else "rootful"
        message, _, hint = _explained(system, Candidate(url, origin)).partition(": ")
        denied = system.errno in (errno.EACCES, errno.EPERM)
        return SourceError("permission" if denied else "unavailable", f"{_path(url)} {message}", hint)
    return SourceError("unavailable", f"{_path(url)}: {one_line(str(error), 300)}")


def _path(url: str) -> str:
    return Candidate(url, "").path


def message_of(body: bytes) -> str:
    """The text of an error answer, on one line."""
    try:
        return one_line(str(msgspec.json.decode(body, type=dict[str, Any]).get("message", "")), 500)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return one_line(body[:500].decode("utf-8", "replace"), 500)


def triton_images(images: Sequence[libpod.Image]) -> tuple[str, ...]:
    """Names of the Triton server images, the newest build first."""
    named = [
        (image.created, name)
        for image in images
        for name in dict.fromkeys([*(image.repo_tags or ()), *(image.names or ())])
    ]
    return tuple(
        name for _, name in sorted(named, key=lambda pair: (-pair[0], pair[1])) if libpod.is_triton_image(name)
    )
