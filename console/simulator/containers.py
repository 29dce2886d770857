"""The simulated Podman's containers: made, started, stopped, renamed and removed. Each start is one run of a server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from console.simulator.card import TRITON_PID
from console.simulator.scenes import Exit
from console.simulator.server import Server
from console.simulator.server_log import LogLine

NS_PER_SECOND = 1_000_000_000
CONTAINER_ID = "9f3c2e1a77b0d46c5e8f0a1b2c3d4e5f60718293a4b5c6d7e8f9012345678abc"
NAME = "triton"
ADDRESS = "10.88.0.7"
IMAGE_ID = "5c1b0e2f9d7a48c6b3e1f0a2d4c6e8f00112233445566778899aabbccddeeff0"
IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
COMMAND = [
    "tritonserver",
    "--model-repository=/models",
    "--model-control-mode=explicit",
    "--load-model=*",
    "--allow-grpc=false",
    "--exit-on-error=false",
    "--trace-config=triton,file=/tmp/trace.json",
    "--trace-config=level=OFF",
]
Body = dict[str, Any]
"""What a container is made of, in the words of Podman's create call (SpecGenerator)."""


class PodmanError(Exception):
    """Podman's no: status, and its words as `cause: message`."""

    def __init__(self, status: int, cause: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause


def is_image(reference: str) -> bool:
    """True for a name or identity of the one image that the box has."""
    short = reference.removeprefix("sha256:")
    return reference == IMAGE or (len(short) >= 3 and IMAGE_ID.startswith(short))


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """An event of a container as Podman tells it; exit code only where it has one."""

    at_ns: int
    action: str
    exit_code: int = 0
    container: str = CONTAINER_ID
    name: str = NAME
    image: str = IMAGE


@dataclass(slots=True, eq=False)
class Container:
    """One container. Its state is Podman's word: created, running, stopping, exited."""

    id: str
    body: Body
    created_ns: int
    state: str = "created"
    started_ns: int = 0
    finished_ns: int = 0
    exit_code: int = 0
    restarts: int = 0
    runs: int = 0
    log: list[LogLine] = field(default_factory=list)
    server: Server | None = None
    stays: bool = False
    """It is being restarted: one made with --rm does not vanish then."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What was written inside it, by path."""

    @property
    def name(self) -> str:
        """Its name now."""
        return str(self.body["name"])

    @property
    def image(self) -> str:
        """What it was made from."""
        return IMAGE  # whatever it was called by: the box has no other

    @property
    def command(self) -> list[str]:
        """Of the server."""
        return list(self.body.get("command") or COMMAND)

    @property
    def running(self) -> bool:
        """Its process lives."""
        return self.state in ("running", "stopping")

    @property
    def pid(self) -> int:
        """Of its process on the host; 0 while there is none."""
        return TRITON_PID + self.runs if self.running else 0

    @property
    def ports(self) -> dict[int, tuple[str, int]]:
        """Port inside -> (address, port on the host)."""
        found = {}
        for one in self.body.get("portmappings") or ():
            inside = int(one["container_port"])
            found[inside] = (str(one.get("host_ip") or "0.0.0.0"), int(one.get("host_port") or inside))
        return found

    def host_port(self, name: str) -> int | None:
        """Where its server's `http` or `metrics` is reached on the host; None where it is not."""
        inside = self.server.port(name) if self.server is not None else None
        published = self.ports.get(inside) if inside is not None else None
        return published[1] if published else None


class Containers:
    """All of them. There is one card, and one server at a time."""

    def __init__(self, serve: Callable[[Container, Callable[[int], None]], Server], now: Callable[[], int]) -> None:
        """`serve` makes a server for a container that starts; `now` is the simulated time (ns)."""
        self._serve = serve
        self._now = now
        self.all: list[Container] = []
        self.events: list[ContainerEvent] = []
        self.cannot_start: Exit | None = None

    # --------------------------------------------------------------------------------------------------------- looks

    def find(self, name: str) -> Container:
        """By name, or by the beginning of its identity. PodmanError (404)."""
        for one in self.all:
            if name == one.name or (len(name) >= 2 and one.id.startswith(name)):
                return one
        message = f'no container with name or ID "{name}" found: no such container'
        raise PodmanError(404, "no such container", message)

    @property
    def running(self) -> Container | None:
        """The one whose server lives."""
        return next((one for one in self.all if one.running), None)

    @property
    def shown(self) -> Container | None:
        """The one that a person means: it runs, or ran last."""
        return self.running or max(self.all, key=lambda one: one.started_ns, default=None)

    # ---------------------------------------------------------------------------------------------------------- acts

    def create(self, body: Body) -> Container:
        """Make one. PodmanError where the name is taken, or the image is not here."""
        name = str(body.get("name") or f"container-{len(self.all)}")
        if any(one.name == name for one in self.all):
            taken = next(one.id for one in self.all if one.name == name)
            message = f'creating container storage: the container name "{name}" is already in use by {taken}'
            raise PodmanError(500, "that name is already in use", message)
        if not is_image(str(body.get("image") or IMAGE)):
            raise PodmanError(404, "no such image", f"{body['image']}: image not known")
        now_ns = self._now()
        identity = hashlib.sha256(f"{name} {now_ns} {len(self.events)}".encode()).hexdigest()
        made = Container(identity, {**body, "name": name}, now_ns)
        self.all.append(made)
        self.tell(made, "create", now_ns)
        return made

    def start(self, one: Container) -> bool:
        """Start it; False where it runs already. PodmanError where another one has the card or a port."""
        if one.running:
            return False
        other = self.running
        if other is not None:
            ports = {port for _, port in one.ports.values()} & {port for _, port in other.ports.values()}
            if ports:
                port = min(ports)
                message = f"cannot listen on the TCP port: listen tcp4 :{port}: bind: address already in use"
            else:
                message = f"the simulated box runs one server at a time: {other.name} runs"
            raise PodmanError(500, "address already in use", message)
        now_ns = self._now()
        one.runs += 1
        one.state, one.started_ns, one.exit_code = "running", now_ns, 0
        self.tell(one, "init", now_ns)
        self.tell(one, "start", now_ns)
        one.server = self._serve(one, lambda code: self.ended(one, code))
        if self.cannot_start is not None:
            one.log.append(LogLine(now_ns, 2, self.cannot_start.last_line))
            self.ended(one, self.cannot_start.code)
        else:
            one.server.start()
        return True

    def stop(self, one: Container) -> bool:
        """SIGTERM; False where it does not run."""
        if not one.running:
            return False
        if one.state == "running" and one.server is not None:
            self.tell(one, "stop", self._now())
            one.state = "stopping"
            one.server.stop()
        return True

    def kill(self, one: Container, signal: str) -> None:
        """Send a signal. PodmanError (409) where it does not run."""
        if not one.running or one.server is None:
            message = f"can only kill running containers. {one.id} is in state {one.state}: container state improper"
            raise PodmanError(409, "container state improper", message)
        self.tell(one, "kill", self._now())
        if signal.upper().removeprefix("SIG") in ("KILL", "9"):
            one.server.kill()
        else:
            one.server.stop()

    def rename(self, one: Container, name: str) -> None:
        """Give it another name. PodmanError where that is taken."""
        if any(other.name == name for other in self.all if other is not one):
            raise PodmanError(409, "that name is already in use", f'name "{name}" is already in use: container exists')
        one.body["name"] = name
        self.tell(one, "rename", self._now())

    def remove(self, one: Container, *, force: bool) -> None:
        """Remove it. PodmanError where it runs and is not to be killed for it."""
        if one.running:
            if not force or one.server is None:
                message = f"cannot remove container {one.id} as it is running - running or paused containers cannot be "
                raise PodmanError(500, "container state improper", f"{message}removed without force")
            one.server.kill()
        self.all.remove(one)
        self.tell(one, "remove", self._now())

    def tell(self, one: Container, action: str, at_ns: int, exit_code: int = 0) -> None:
        """An event."""
        self.events.append(ContainerEvent(at_ns, action, exit_code, one.id, one.name, one.image))

    def ended(self, one: Container, code: int) -> None:
        """Its process has ended."""
        now_ns = self._now()
        one.state, one.finished_ns, one.exit_code, one.server = "exited", now_ns, code, None
        self.tell(one, "died", now_ns, code)
        self.tell(one, "cleanup", now_ns)
        if one.body.get("remove") and not one.stays and one in self.all:
            self.all.remove(one)
            self.tell(one, "remove", now_ns)


def first_body(models: str, http: int, metrics: int, restart: str) -> Body:
    """What the container of the scenes was made of."""
    command = [
        "podman", "run", "-d", "--name", NAME, "--device", "nvidia.com/gpu=all", "--shm-size", "1g",
        "-p", f"127.0.0.1:{http}:8000", "-p", f"127.0.0.1:{metrics}:8002",
        "-v", f"{models}:/models:ro", "--stop-timeout", "60", IMAGE, *COMMAND,
    ]  # fmt: skip
    return {
        "name": NAME,
        "image": IMAGE,
        "command": list(COMMAND),
        "devices": [{"path": "nvidia.com/gpu=all"}],
        "mounts": [{"type": "bind", "source": models, "destination": "/models", "options": ["ro", "rbind"]}],
        "netns": {"nsmode": "bridge"},
        "portmappings": [
            {"host_ip": "127.0.0.1", "host_port": http, "container_port": 8000, "protocol": "tcp"},
            {"host_ip": "127.0.0.1", "host_port": metrics, "container_port": 8002, "protocol": "tcp"},
        ],
        "restart_policy": restart,
        "shm_size": 1024 * 1024 * 1024,
        "stop_timeout": 60,
        "containerCreateCommand": command,
    }
