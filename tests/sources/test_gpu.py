"""The GPU source: all cards, cards that go and come back, and sessions that end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from console.core.model import GpuBox, SourceError
from console.core.poller import Poller
from console.sources.gpu import FIRST_REOPEN, LAST_REOPEN, NOT_LISTED, GpuSource
from tests.fakes.nvml import CARDS, MIB, FakeNvml, Refusal, process

WALL = 1_800_000_000.0


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def source_of(fake: FakeNvml, root: Path | str, clock: Clock | None = None) -> GpuSource:
    clock = clock or Clock()
    source = GpuSource(fake, str(root), clock=clock, wall=lambda: WALL + clock())
    source.open()
    return source


def bus(root: Path, cards: int) -> None:
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    for index in range(cards):
        folder = root / f"sys/bus/pci/devices/0000:{index:02x}:00.0"
        folder.mkdir()
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")


class TestBox:
    def test_versions_and_bus(self, tmp_path: Path) -> None:
        bus(tmp_path, 2)
        box = source_of(FakeNvml("T4", count=2), tmp_path).read()
        assert (box.driver, box.cuda, box.nvml, box.pci_devices) == ("550.90.07", "12.4", "12.550.90.07", 2)
        assert [gpu.index for gpu in box.gpus] == [0, 1]

    @pytest.mark.parametrize(("number", "text"), [(12080, "12.8"), (13000, "13.0"), (11040, "11.4")])
    def test_cuda_version(self, tmp_path: Path, number: int, text: str) -> None:
        fake = FakeNvml()
        fake.without.add("nvmlSystemGetCudaDriverVersion_v2")
        fake.system["nvmlSystemGetCudaDriverVersion"] = number
        assert source_of(fake, tmp_path).read().cuda == text

    def test_versions_that_are_not_told(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        fake.system = {}
        box = source_of(fake, tmp_path).read()
        assert (box.driver, box.cuda, box.nvml, box.pci_devices) == (None, None, None, None)

    def test_eight_cards(self, tmp_path: Path) -> None:
        box = source_of(FakeNvml("H200", count=8), tmp_path).read()
        assert len({gpu.uuid for gpu in box.gpus}) == 8

    def test_the_console_itself_as_a_process_on_the_card(self) -> None:
        fake = FakeNvml()
        fake.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = [process(os.getpid(), MIB)]
        processes = source_of(fake, "/").read().gpus[0].processes
        assert processes is not None
        assert "python" in (processes[0].command or "") or "pytest" in (processes[0].command or "")
        assert processes[0].user
        assert processes[0].started_wall


class TestNoCard:
    def test_none_on_the_bus(self, tmp_path: Path) -> None:
        bus(tmp_path, 0)
        with pytest.raises(SourceError, match=r"^no NVIDIA device on the PCI bus of this host$") as caught:
            source_of(FakeNvml("T4", count=0), tmp_path)
        assert caught.value.kind == "unavailable"

    def test_one_on_the_bus_that_the_driver_does_not_list(self, tmp_path: Path) -> None:
        bus(tmp_path, 1)
        with pytest.raises(SourceError, match="lists no GPU, though 1 NVIDIA device is on the PCI bus"):
            source_of(FakeNvml("T4", count=0), tmp_path)

    def test_a_bus_that_cannot_be_listed(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"^the NVIDIA driver lists no GPU$"):
            source_of(FakeNvml("T4", count=0), tmp_path)


class TestLostCards:
    def test_the_others_live_on(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=3)
        source = source_of(fake, tmp_path)
        source.read()
        fake.fail(15, card=1)
        gpus = source.read().gpus
        assert [gpu.lost is not None for gpu in gpus] == [False, True, False]
        assert gpus[1].temp_c == 66.0
        assert gpus[1].lost_wall == WALL

    def test_nvml_is_opened_anew_with_back_off_and_the_card_comes_back(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=2)
        clock = Clock()
        source = source_of(fake, tmp_path, clock)
        source.read()
        fake.fail(15, card=1)
        opened_at = []
        for second in range(200):
            clock.now = float(second)
            before = fake.calls["nvmlInit"]
            gpus = source.read().gpus
            if fake.calls["nvmlInit"] > before:
                opened_at.append(second)
            assert gpus[1].lost is not None
            assert gpus[1].name == "Tesla T4"
        assert opened_at == [5, 15, 35, 75, 135, 195]
        assert (FIRST_REOPEN, LAST_REOPEN) == (5.0, 60.0)
        fake.fail(0, card=1)
        # A handle is asked for again at each read, without opening NVML anew.
        assert source.read().gpus[1].lost is None
        clock.now = 500.0
        before = fake.calls["nvmlInit"]
        source.read()
        assert fake.calls["nvmlInit"] == before

    def test_a_handle_that_cannot_be_had(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=2)
        fake.fail(15, "nvmlDeviceGetHandleByIndex", card=0)
        clock = Clock()
        source = source_of(fake, tmp_path, clock)
        first, second = source.read().gpus
        assert first.lost is not None
        assert (first.index, first.name, second.lost) == (0, None, None)
        clock.now = 6.0
        again = source.read().gpus[0]
        assert (again.lost_wall, first.lost_wall) == (WALL, WALL)
        fake.fail(0, "nvmlDeviceGetHandleByIndex", card=0)
        clock.now = 7.0
        assert source.read().gpus[0].lost is None

    def test_a_handle_that_cannot_be_had_any_more_keeps_what_was_known(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=1)
        clock = Clock()
        source = source_of(fake, tmp_path, clock)
        source.read()
        fake.fail(15, card=0)
        source.read()
        clock.now = 6.0
        gpu = source.read().gpus[0]
        assert gpu.lost is not None
        assert (gpu.name, gpu.lost.message) == ("Tesla T4", "NVML error 15: the GPU is lost")

    def test_a_card_that_nvml_lists_no_longer(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=2)
        clock = Clock()
        source = source_of(fake, tmp_path, clock)
        source.read()
        fake.fail(15, card=0)
        source.read()
        # The first one is gone from the list: the second moves to its index.
        fake.fail(0, card=0)
        fake.cards = [fake.cards[1]]
        clock.now = 6.0
        gpus = source.read().gpus
        assert [(gpu.index, gpu.uuid is not None, gpu.lost is None) for gpu in gpus] == [
            (0, True, True),
            (1, True, False),
        ]
        assert gpus[0].uuid != gpus[1].uuid
        clock.now = 7.0
        assert len(source.read().gpus) == 2

    def test_all_cards_gone_from_a_living_driver(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        source = source_of(fake, tmp_path)
        source.read()
        cards, fake.cards = fake.cards, []
        source.close()
        source.open()
        gpu = source.read().gpus[0]
        assert gpu.lost == NOT_LISTED
        assert gpu.lost_wall == WALL
        fake.cards = cards
        source.close()
        source.open()
        assert [gpu.lost for gpu in source.read().gpus] == [None]


class TestUnderThePoller:
    def test_the_session_ends_and_begins_again(self, tmp_path: Path) -> None:
        fake = FakeNvml()
        poller = Poller(GpuSource(fake, str(tmp_path)), lambda reading: None)
        assert isinstance(poller.step().value, GpuBox)
        fake.fail(1)
        failed = poller.step()
        assert failed.error is not None
        assert failed.error.message.startswith("NVML error 1:")
        assert failed.value is not None
        fake.fail(0)
        fake.init_error = 9
        assert "driver is not loaded" in (poller.step().error or failed.error).message
        fake.init_error = 0
        good = poller.step()
        assert good.error is None
        assert good.value is not None
        assert good.value.gpus[0].lost is None

    def test_the_driver_goes_while_a_card_is_lost(self, tmp_path: Path) -> None:
        fake = FakeNvml("T4", count=2)
        clock = Clock()
        source = GpuSource(fake, str(tmp_path), clock=clock)
        poller = Poller(source, lambda reading: None)
        poller.step()
        fake.fail(15, card=1)
        poller.step()
        fake.init_error = 18
        clock.now = 6.0
        assert "NVML error 18" in (poller.step().error or NOT_LISTED).message
        fake.init_error = 0
        fake.fail(0, card=1)
        before = fake.calls["nvmlInit"]
        good = poller.step()
        assert good.error is None
        assert fake.calls["nvmlInit"] == before + 1
        assert good.value is not None
        assert [gpu.lost for gpu in good.value.gpus] == [None, None]

    def test_a_hang_holds_nobody_else(self, tmp_path: Path) -> None:
        """A second source over another session goes on while the first hangs in a call; exit does not wait."""
        release, entered = threading.Event(), threading.Event()

        def hang() -> int:
            entered.set()
            release.wait(60)
            return 1

        hung = FakeNvml()
        hung.cards[0]["nvmlDeviceGetPowerUsage"] = hang
        poller = Poller(GpuSource(hung, str(tmp_path)), lambda reading: None)
        poller.start()
        assert entered.wait(30)
        assert len(source_of(FakeNvml(), tmp_path).read().gpus) == 1
        poller.stop()
        assert not poller.join(0.05)
        release.set()
        assert poller.join(30)

    @pytest.mark.parametrize("gpu", sorted(CARDS))
    def test_whatever_single_function_hurts_the_read_lives(self, tmp_path: Path, gpu: str) -> None:
        for function in FakeNvml(gpu).cards[0]:
            for code in (3, 4, 6, 10, 999):
                fake = FakeNvml(gpu)
                fake.cards[0][function] = Refusal(code)
                box = source_of(fake, tmp_path).read()
                assert box.gpus[0].index == 0
