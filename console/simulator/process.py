"""The simulated box as a running process: clock, servers, state files, and the end when its parent goes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from console.simulator.box import Box
from console.simulator.card import MAX_SM_MHZ, POWER_LIMIT_W
from console.simulator.containers import Container
from console.simulator.host import HostFolder
from console.simulator.http_server import Holder
from console.simulator.podman_service import PodmanService, Pulse
from console.simulator.recording import FILE as RECORDING
from console.simulator.recording import machine, recording
from console.simulator.scenes import Scene
from console.simulator.triton_server import TritonServer

NS_PER_SECOND = 1_000_000_000
TICK_S = 0.2
SUSPENDED_S = 30
"""A longer gap between two ticks means that the machine slept; the box then had no traffic meanwhile."""
STEPPED_START_NS = 1_783_145_071 * NS_PER_SECOND
"""2026-07-04 14:04:31 UTC+8: where a stepped clock begins, so that nothing depends on the day of the run."""

READY_FILE = "box.json"
STATE_FILE = "nvml.json"
SETTINGS_FILE = "nvml.settings.json"
SOCKET_FILE = "podman.sock"
REPOSITORY = "models"
ROOT = "root"


class SimulatorProcess:
    """One box served from `folder` until `run` ends. `stepped`: time moves only by `step SECONDS` lines on stdin."""

    def __init__(self, scene: Scene, *, seed: int, folder: Path, stepped: bool) -> None:
        self._folder = folder
        self._stepped = stepped
        self._seed = seed
        start_ns = STEPPED_START_NS if stepped else time.time_ns()
        self._ports = (Holder(), Holder())
        self._repository = folder / REPOSITORY
        self._keep_below_root(self._repository)
        http, metrics = (port.port for port in self._ports)
        self._box = Box(
            scene,
            seed=seed,
            start_ns=start_ns,
            repository=self._repository,
            ports=(http, metrics),
            clock_ns=time.monotonic_ns() - time.time_ns(),
        )
        self._host_folder = HostFolder(folder / ROOT)
        self._machine = machine(scene.nvml_error != 0)
        self._shown: tuple[Container | None, int] | None = None
        """Whose files are there, and of which of its runs; None = nothing was written yet."""
        self._files: dict[str, str] = {}
        self._pulse = Pulse()
        self._triton = TritonServer(self._box, self._catch_up)
        self._parent = os.getppid()
        self._ended = asyncio.Event()
        self._state_written_s = -1

    async def run(self) -> None:
        """Serve until told to end, or until the parent is gone; then remove every file that was made."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._ended.set)
        podman = PodmanService(self._box, self._pulse, self._catch_up)
        try:
            # the wall clock has gone on while the past was played
            self._catch_up()
            await self._triton.follow()
            await podman.start(self._folder / SOCKET_FILE)
            self._host_folder.write(self._box.host.fixed_files(self._box.scene.nvml_error != 0))
            self._write_state()
            self._write_ready()
            await self._live()
        finally:
            await podman.close()
            await self._triton.close()
            self._remove_files()

    def _keep_below_root(self, path: Path) -> None:
        """A folder that is found under its path below the root too: no link of the root's leads out of it."""
        real = self._folder / ROOT / str(path).lstrip("/")
        real.mkdir(parents=True)
        path.symlink_to(real)

    async def _live(self) -> None:
        commands = asyncio.create_task(self._read_stdin())
        try:
            while not self._ended.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), TICK_S)
                if os.getppid() != self._parent:
                    return
                await self._tick()
        finally:
            commands.cancel()

    async def _tick(self) -> None:
        self._catch_up()
        await self._triton.follow()
        self._write_state()
        self._pulse.beat()

    def _catch_up(self) -> None:
        if self._stepped:
            return
        now_ns = time.time_ns()
        if now_ns - self._box.now_ns > SUSPENDED_S * NS_PER_SECOND:
            self._box.sleep_until(now_ns)
        self._box.advance(now_ns)
        self._show_container()  # whoever is told that a container has ended finds no process of it

    async def _read_stdin(self) -> None:
        """End at the end of the pipe that the parent holds; in stepped mode obey its lines."""
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return  # started by hand from a terminal or with /dev/null: nobody holds a pipe
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            word, _, seconds = line.decode("ascii", "replace").strip().partition(" ")
            if word == "step" and self._stepped:
                await self._step(float(seconds))
        self._ended.set()

    async def _step(self, seconds: float) -> None:
        self._box.advance(self._box.now_ns + round(seconds * NS_PER_SECOND))
        self._state_written_s = -1
        await self._triton.follow()
        self._write_state()
        self._pulse.beat()
        sys.stdout.write(f"{self._box.now_ns}\n")
        sys.stdout.flush()

    def _write_state(self) -> None:
        self._show_container()
        self._obey_card_settings()
        self._host_folder.write(self._box.host.moving_files(self._box.containers.running, self._box.now_ns))
        second = self._box.now_ns // NS_PER_SECOND
        if second != self._state_written_s:
            _write_atomically(self._folder / STATE_FILE, self._box.nvml_document())
            self._state_written_s = second

    def _show_container(self) -> None:
        """The files of the process that lives and none of one that is gone; what files cannot tell, beside them."""
        running = self._box.containers.running
        now = running, 0 if running is None else running.runs
        if now == self._shown:
            return
        self._host_folder.remove(self._files)
        self._files = {} if running is None else self._box.host.container_files(running)
        self._host_folder.write(self._files)
        moving = self._box.host.moving_files(running, self._box.now_ns)
        self._files |= {name: text for name, text in moving.items() if running is not None and _is_of(name, running)}
        self._host_folder.write({RECORDING: recording(self._machine, running, self._repository)})
        self._shown = now

    def _obey_card_settings(self) -> None:
        """What NVML's setters were told, by whichever process."""
        try:
            told = msgspec.json.decode((self._folder / SETTINGS_FILE).read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError):
            return
        card = self._box.card
        card.highest_mhz = told.get("clock_high", MAX_SM_MHZ)
        card.power_limit_w = told.get("power_limit_mw", round(POWER_LIMIT_W * 1000)) / 1000

    def _write_ready(self) -> None:
        http, metrics = (port.port for port in self._ports)
        document = {
            "scene": self._box.scene.name,
            "seed": self._seed,
            "pid": os.getpid(),
            "start_ns": self._box.start_ns,
            "http": f"127.0.0.1:{http}",
            "metrics": f"127.0.0.1:{metrics}",
            "podman": f"unix://{self._folder / SOCKET_FILE}",
            "nvml": str(self._folder / STATE_FILE),
            "repository": str(self._folder / REPOSITORY),
            "root": str(self._folder / ROOT),
        }
        _write_atomically(self._folder / READY_FILE, document)

    def _remove_files(self) -> None:
        for port in self._ports:
            port.close()
        shutil.rmtree(self._folder / ROOT, ignore_errors=True)
        for name in (REPOSITORY, READY_FILE, STATE_FILE, SETTINGS_FILE, SOCKET_FILE):
            (self._folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else has files there, or has removed it
            self._folder.rmdir()


def _is_of(name: str, container: Container) -> bool:
    return container.id in name or name.startswith(f"proc/{container.pid}/")


def _write_atomically(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}.new")
    partial.write_bytes(msgspec.json.encode(document))
    partial.replace(path)
