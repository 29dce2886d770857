"""A clock that jumps, and a console that was stopped for a while: no rate is made up."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from console.config import Podman, Settings, Triton
from console.simulator import launch
from tests.system.headless import NO_PODMAN
from tests.system.screen import console
from tests.system.watched import watch


class Jumping:
    """The time module with a wall clock that somebody sets."""

    def __init__(self) -> None:
        self.off = 0.0

    def time(self) -> float:
        return time.time() + self.off

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


def settings_of(box: launch.RunningBox) -> Settings:
    http, metrics = (int(address.rsplit(":", 1)[1]) for address in (box.addresses.http, box.addresses.metrics))
    return Settings(
        triton=Triton(host="127.0.0.1", http_port=http, metrics_port=metrics),
        podman=Podman(socket=box.addresses.podman),
    )


def test_a_wall_clock_that_jumps_makes_no_rate_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Jumping()
    for module in ("console.core.poller", "console.sources.triton", "tests.system.watched"):
        monkeypatch.setattr(f"{module}.time", clock)
    with launch.start("healthy", 3) as box, watch(settings_of(box)) as watched:
        watched.until(lambda s: (s.traffic.rate or 0) > 1, 15, "traffic")
        time.sleep(2)
        for jump in (-86_400.0, 7 * 86_400.0, -3600.0):
            before = watched.snapshot.traffic.rate or 0.0
            clock.off = jump
            time.sleep(2.5)
            after = watched.snapshot.traffic.rate
            assert after is not None
            assert 0.3 * before < after < 3 * before
            assert watched.snapshot.serving.word == "SERVING"
            assert not [event for event in watched.snapshot.events if event.kind.startswith(("silent", "reload"))]


def test_a_console_that_was_stopped_goes_on_without_absurd_rates(tmp_path: Path) -> None:
    with launch.start("healthy", 3) as box:
        settings = settings_of(box).triton
        words = ("--http-port", str(settings.http_port), "--metrics-port", str(settings.metrics_port))
        with console(*NO_PODMAN, "--host", "127.0.0.1", *words, home=tmp_path) as screen:
            screen.until("SERVING")
            screen.terminal.read(3)
            os.kill(screen.terminal.process.pid, signal.SIGSTOP)
            time.sleep(6)
            os.kill(screen.terminal.process.pid, signal.SIGCONT)
            at = len(screen.terminal.output)
            screen.press(b"8", "[8 GPU]")
            screen.press(b"1", "[2]")
            screen.terminal.read(4)
            shown = screen.written(at)
            assert "does not answer" not in shown
            screen.quit()
