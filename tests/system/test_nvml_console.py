"""The real console on cards in every sort of trouble (the stand-in NVML): no crash, no invented 0, keys answered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.simulator import launch
from tests.lab.fixtures import Standin
from tests.lab.nvml import layout, values
from tests.system.headless import NO_PODMAN
from tests.system.screen import Screen, console


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, ...]]:
    """Words for a Triton that answers (the simulated one), as a box where none was ever seen opens on Bring-up."""
    with launch.start("healthy", 1) as box:
        http, metrics = (address.rsplit(":", 1)[1] for address in (box.addresses.http, box.addresses.metrics))
        yield (*NO_PODMAN, "--host", "127.0.0.1", "--http-port", http, "--metrics-port", metrics, "--theme", "dark")


@contextmanager
def opened(
    standin: Standin, home: Path, words: tuple[str, ...], *, columns: int = 160, rows: int = 45
) -> Iterator[Screen]:
    card = {name: standin.environment[name] for name in ("LD_LIBRARY_PATH", "GPUCONSOLE_NVML_FILE")}
    with console(*words, home=home, environ=card, columns=columns, rows=rows) as screen:
        screen.until("SERVING")
        yield screen


def walk(screen: Screen) -> list[float]:
    """Press keys over the screens; each must show. Returns how long each took."""
    took = [screen.press(b"8", "[8 GPU]", 5)]
    took.append(screen.press(b"?", "Keys", 5))
    took.append(screen.press(b"\x1b", "[8 GPU]", 5))
    took.append(screen.press(b"5", "[5 Container]", 5))
    took.append(screen.press(b"1", "[2]", 5))
    return took


def mismatch(standin: Standin) -> None:
    standin.box.init_error = values.LIBRARY_MISMATCH


def not_loaded(standin: Standin) -> None:
    standin.box.init_error = values.DRIVER_NOT_LOADED


def bare(standin: Standin) -> None:
    standin.create("bare")


def mig(standin: Standin) -> None:
    standin.create("a100-mig")


def no_cards(standin: Standin) -> None:
    standin.create("t4", 0)


def eight_cards(standin: Standin) -> None:
    standin.create("a100", 8)


def unknown_memory(standin: Standin) -> None:
    values.set_processes(standin.card, [values.process(4242), values.process(1), values.process(2**31)])


def unknown_error(standin: Standin) -> None:
    standin.card.error = values.UNKNOWN_ERROR


def lost(standin: Standin) -> None:
    standin.card.error = values.GPU_IS_LOST


TROUBLES: tuple[tuple[Callable[[Standin], None], str], ...] = (
    (mismatch, "NVML error 18"),
    (not_loaded, "no NVIDIA device on the PCI bus"),
    (bare, "NVIDIA Graphics Device"),
    (mig, "MIG"),
    (no_cards, "no NVIDIA"),
    (eight_cards, "A100"),
    (unknown_memory, "4242"),
    (unknown_error, "999"),
    (lost, "lost"),
)


@pytest.mark.parametrize(("trouble", "text"), TROUBLES, ids=[one.__name__ for one, _ in TROUBLES])
@pytest.mark.parametrize(("columns", "rows"), [(160, 45), (80, 24)], ids=["160x45", "80x24"])
def test_a_card_in_trouble(
    trouble: Callable[[Standin], None],
    text: str,
    columns: int,
    rows: int,
    nvml_standin: Standin,
    server: tuple[str, ...],
    tmp_path: Path,
) -> None:
    trouble(nvml_standin)
    with opened(nvml_standin, tmp_path, server, columns=columns, rows=rows) as screen:
        if text not in ("4242", "999", "no NVIDIA") and columns == 160:
            screen.until(text, 10)
        walk(screen)
        screen.press(b"8", "[8 GPU]")
        screen.terminal.read(1.0)
        if columns == 160:
            assert text in screen.written()
        shown = screen.written()
        (tmp_path / "shown.txt").write_text(shown)
        screen.quit()
    if trouble is bare:
        assert not re.search(r"(util|power|temp|clock|SM)[^│]{0,40}[^0-9.]0 (%|W|°C|MHz|of)", shown)


def test_a_driver_that_hangs_holds_up_nothing(nvml_standin: Standin, server: tuple[str, ...], tmp_path: Path) -> None:
    with opened(nvml_standin, tmp_path, server) as screen:
        screen.until("Tesla T4", 10)
        nvml_standin.box.hang_ms = 60_000
        try:
            time.sleep(0.5)
            for _ in range(2):
                walk(screen)
            screen.until("s old", 15)
            walk(screen)
            screen.quit()
        finally:
            nvml_standin.box.hang_ms = 0


def test_a_driver_that_hangs_from_the_beginning(nvml_standin: Standin, server: tuple[str, ...], tmp_path: Path) -> None:
    nvml_standin.box.hang_ms = 60_000
    try:
        with opened(nvml_standin, tmp_path, server) as screen:
            walk(screen)
            screen.quit()
    finally:
        nvml_standin.box.hang_ms = 0


def test_a_card_that_is_lost_and_comes_back(nvml_standin: Standin, server: tuple[str, ...], tmp_path: Path) -> None:
    with opened(nvml_standin, tmp_path, server) as screen:
        screen.until("Tesla T4", 10)
        nvml_standin.card.error = values.GPU_IS_LOST
        screen.until("the GPU is lost", 10)
        walk(screen)
        nvml_standin.card.error = 0
        at = len(screen.terminal.output)
        screen.until("answers again", 15, after=at)
        walk(screen)
        screen.quit()


def test_the_figures_may_be_anything(nvml_standin: Standin, server: tuple[str, ...], tmp_path: Path) -> None:
    card = nvml_standin.card
    card.name, card.serial = b"[/x] \x1b[31mred\x07", b"\xff\xfe"
    card.temperature, card.power, card.memory_used = 2**31, 2**32 - 2, 2**63
    card.util_gpu, card.clocks[:] = 4_000_000_000, [2**32 - 2] * 4
    card.event_reasons = 2**64 - 2
    values.set_processes(card, [values.process(0, 2**63), values.process(2**32 - 1, 5)] * layout.MAX_PROCESSES)
    with opened(nvml_standin, tmp_path, server) as screen:
        screen.until("[/x]", 10)
        walk(screen)
        screen.quit()
        assert b"\x1b[31mred" not in screen.terminal.output
