"""The GPU source through nvidia-ml-py and a library that answers as NVML does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.clients.nvml_card import MIG_PARENT
from console.core.model import GpuState
from tests.lab.fixtures import Standin
from tests.lab.nvml import values

MIB = 1 << 20

CHILD = """
import sys, msgspec
from console.core.poller import Poller
from console.sources.gpu import GpuSource

now = [0.0]
source = GpuSource(root=sys.argv[1], pcie_counters=sys.argv[2] == "pcie", clock=lambda: now[0])
poller = Poller(source, lambda reading: None)
for line in sys.stdin:
    now[0] += float(line)
    print(msgspec.json.encode(poller.step()).decode(), flush=True)
"""

HUNG_CHILD = """
import sys
from console.core.poller import Poller
from console.sources.gpu import GpuSource

readings = []
poller = Poller(GpuSource(), readings.append)
poller.start()
poller.stop()
print(poller.join(0.5), len(readings), flush=True)
"""

Read = Callable[[float], Any]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host's `/` with one NVIDIA device on its bus and driver 560.35.03 loaded; /proc is the real one."""
    root = tmp_path / "host"
    device = root / "sys/bus/pci/devices/0000:65:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (root / "sys/module/nvidia").mkdir(parents=True)
    (root / "sys/module/nvidia/version").write_text("560.35.03\n")
    (root / "proc").symlink_to("/proc")
    return root


@pytest.fixture
def read(nvml_standin: Standin, host: Path) -> Iterator[Read]:
    """`read(seconds)` steps the child's poller once, that many seconds of its clock later."""
    command = [sys.executable, "-c", CHILD, str(host), "pcie"]
    with subprocess.Popen(
        command, env=nvml_standin.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        to_child, from_child = child.stdin, child.stdout

        def step(seconds: float = 1.0) -> Any:
            to_child.write(f"{seconds}\n")
            to_child.flush()
            return json.loads(from_child.readline())

        yield step
        to_child.close()
        child.wait(30)


def gpu(reading: Any, index: int = 0) -> dict[str, Any]:
    """One card of a reading."""
    assert reading["error"] is None
    found: dict[str, Any] = reading["value"]["gpus"][index]
    return found


def unexplained(card: dict[str, Any]) -> set[str]:
    """Fields that are None without a reason."""
    free = {"lost", "lost_wall", "slow_mono"}
    return {name for name in GpuState.__struct_fields__ if card[name] is None} - free - set(card["missing"])


def test_a_t4(read: Read, nvml_standin: Standin) -> None:
    card = nvml_standin.card
    card.util_gpu, card.util_memory, card.event_reasons = 64, 31, values.SW_POWER_CAP | values.IDLE
    card.violation_ns[0] = 250_000_000_000
    card.sw_thermal_ns, card.hw_thermal_ns = 3_000_000_000, 0
    reading = read(1.0)
    box, seen = reading["value"], gpu(reading)
    assert (box["driver"], box["cuda"], box["nvml"]) == ("560.35.05", "12.6", "12.560.35.05")
    assert box["pci_devices"] == 1
    assert (seen["name"], seen["architecture"], seen["pci_bus_id"]) == ("Tesla T4", "Turing", "00000000:65:00.0")
    assert (seen["util_pct"], seen["mem_ctrl_pct"]) == (64, 31)
    assert (seen["memory_total"], seen["memory_reserved"]) == (15360 * MIB, 448 * MIB)
    assert (seen["temp_c"], seen["temp_slowdown_c"], seen["temp_shutdown_c"]) == (38, 93, 96)
    assert (seen["power_w"], seen["power_limit_w"], seen["power_min_w"], seen["power_max_w"]) == (10, 70, 60, 70)
    assert (seen["throttle_now"], seen["throttle_bits"]) == (["power_cap"], 5)
    counted = {counter["reason"]: counter["seconds"] for counter in seen["throttle_counters"]}
    assert (counted["power_cap"], counted["heat_software"], counted["heat_hardware"]) == (250, 3, 0)
    assert (seen["retired_pages"], seen["remapped_correctable"], seen["mig_on"]) == (0, None, None)
    assert (seen["recovery_action"], seen["compute_mode"], seen["persistence"]) == ("none", "default", True)
    assert seen["processes"] == []
    assert unexplained(seen) == set()


def test_nothing_optional(read: Read, nvml_standin: Standin) -> None:
    nvml_standin.create("bare")
    seen = gpu(read(1.0))
    known = {name for name in GpuState.__struct_fields__ if seen[name] not in (None, [])}
    memory = {"memory_total", "memory_used", "memory_free", "memory_reserved"}
    assert known - memory == {"index", "uuid", "name", "pci_bus_id", "slow_mono", "missing"}
    assert unexplained(seen) == set()


def test_mig(read: Read, nvml_standin: Standin) -> None:
    nvml_standin.create("a100-mig")
    card = nvml_standin.card
    values.set_processes(card, [values.process(os.getpid(), 19 * MIB, gpu_instance=1)])
    seen = gpu(read(1.0))
    assert [part["profile"] for part in seen["mig"]] == ["3g.20gb", "2g.10gb", "1g.5gb"]
    assert [part["memory_total"] for part in seen["mig"]] == [19968 * MIB, 9984 * MIB, 4864 * MIB]
    assert [len(part["processes"]) for part in seen["mig"]] == [1, 0, 0]
    assert (seen["util_pct"], seen["missing"]["util_pct"]) == (None, MIG_PARENT)
    assert unexplained(seen) == set()


@pytest.mark.parametrize("count", [1, 8])
def test_several_cards_and_one_that_is_lost(read: Read, nvml_standin: Standin, count: int) -> None:
    nvml_standin.create("a100", count)
    last = count - 1
    assert gpu(read(1.0), last)["temp_c"] == 33
    nvml_standin.box.devices[last].error = values.GPU_IS_LOST
    reading = read(1.0)
    cards = reading["value"]["gpus"]
    assert [card["lost"] is not None for card in cards] == [False] * last + [True]
    assert cards[last]["lost"]["message"] == "NVML error 15: the GPU is lost"
    assert (cards[last]["name"], cards[last]["temp_c"]) == ("NVIDIA A100-PCIE-40GB", 33)
    # After NVML was opened anew the card is known as before.
    assert gpu(read(10.0), last)["name"] == "NVIDIA A100-PCIE-40GB"
    nvml_standin.box.devices[last].error = 0
    assert gpu(read(1.0), last)["lost"] is None


def test_a_card_that_answers_999_to_all(read: Read, nvml_standin: Standin) -> None:
    read(1.0)
    nvml_standin.card.error = values.UNKNOWN_ERROR
    seen = gpu(read(1.0))
    assert seen["lost"]["message"] == "NVML error 999: GPU 0 answers nothing (Unknown Error)"
    nvml_standin.card.error = 0
    assert gpu(read(1.0))["lost"] is None


def test_no_card(read: Read, nvml_standin: Standin) -> None:
    nvml_standin.create("t4", 0)
    assert read(1.0)["error"]["message"] == "the NVIDIA driver lists no GPU, though 1 NVIDIA device is on the PCI bus"
    nvml_standin.create("t4", 1)
    assert gpu(read(1.0))["name"] == "Tesla T4"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (values.LIBRARY_MISMATCH, "NVML error 18: libraries ?, kernel 560.35.03"),
        (
            values.DRIVER_NOT_LOADED,
            "NVML error 9: the NVIDIA driver is not loaded; 1 NVIDIA device is on the PCI bus",
        ),
    ],
)
def test_the_driver_is_not_there_and_comes(read: Read, nvml_standin: Standin, code: int, message: str) -> None:
    nvml_standin.box.init_error = code
    error = read(1.0)["error"]
    # The stand-in does not tell its version before it is opened; the real library does.
    assert error["message"].replace("libraries 560.35.05", "libraries ?") == message
    assert error["hint"]
    nvml_standin.box.init_error = 0
    assert gpu(read(1.0))["name"] == "Tesla T4"


def test_processes(read: Read, nvml_standin: Standin) -> None:
    mine = os.getpid()
    listed = [
        values.process(mine, 5837 * MIB, sm_percent=62),
        values.process(mine, 5837 * MIB, graphics=True),
        values.process(2**31 - 9),
    ]
    values.set_processes(nvml_standin.card, listed)
    seen = gpu(read(1.0))
    first, second = seen["processes"]
    assert (first["pid"], first["kind"], first["memory"], first["sm_pct"]) == (mine, "C+G", 5837 * MIB, 62)
    assert "py" in first["command"]
    assert first["started_wall"]
    assert (second["memory"], second["command"]) == (None, None)
    assert "PID namespace" in seen["missing"][f"processes.{2**31 - 9}"]
    assert seen["missing"]["processes.memory"] == "the driver does not tell it for 1 of 2"


def test_a_hung_driver_does_not_hold_up_exit(nvml_standin: Standin) -> None:
    nvml_standin.box.hang_ms = 600_000
    answer = subprocess.run(
        [sys.executable, "-c", HUNG_CHILD],
        env=nvml_standin.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    nvml_standin.box.hang_ms = 0
    assert (answer.stdout.strip(), answer.returncode) == ("False 0", 0), answer.stderr


def test_no_library_at_all(host: Path) -> None:
    """Where no NVML is installed, as on the machine of a build."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, str(host), "-"],
        env=environment,
        input="1\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    reading = json.loads(answer.stdout)
    if reading["error"] is None:
        pytest.skip("an NVIDIA driver is installed here")
    assert (
        reading["error"]["message"]
        == "NVML error 12: libnvidia-ml.so.1 was not found; 1 NVIDIA device is on the PCI bus"
    )
