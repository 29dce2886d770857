"""The simulated box under the checklist, as `gpuconsole check --demo` looks at it: a healthy host around each scene."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest

from console import checking, checklist, compose
from console.checks import run
from console.clients.podman_control import PodmanControl
from console.config import Settings
from console.core.facts import Facts
from console.core.finding import Report
from console.simulator.card import DRIVER, TRITON_PID, UPDATED_LIBRARY, UUID
from console.simulator.host import CARD, KERNEL
from console.simulator.scenes import SCENES
from console.sources import facts as collector
from console.sources import facts_answers

STANDING = {"A12", "K01"}
"""What each scene warns of: the packages' module stream follows each new branch, and no unit manages the container."""


@cache
def looked(scene: str) -> tuple[Facts, Report]:
    """What the product finds, given all the time that a busy machine takes."""
    with pytest.MonkeyPatch.context() as patch, compose.session(Settings(), demo=scene, seed=1) as session:
        patch.setattr(collector, "DEADLINE", 30.0)
        patch.setattr(facts_answers, "ANSWER_LIMIT", 20.0)
        checks = checking.checks_of_group(None)
        facts = checking.facts_for(session.spec, checks)
        return facts, checklist.judge(facts, checks, whole=True)


def signed(scene: str, sign: str) -> set[str]:
    """Checks of a scene with this sign."""
    return {one.id for one in looked(scene)[1].findings if one.sign == sign}


def first_cause(scene: str) -> tuple[str, str]:
    cause = looked(scene)[1].causes[0]
    return cause.id, cause.title


@pytest.mark.parametrize("scene", ["healthy", "queue-bound", "delay-too-long"])
def test_a_slow_model_is_no_fault_of_the_box(scene: str) -> None:
    assert signed(scene, "fail") == set()
    assert signed(scene, "warn") == STANDING
    assert signed(scene, "unknown") == set()


def test_the_card_is_hot() -> None:
    assert signed("throttled", "fail") == set()
    assert signed("throttled", "warn") == STANDING | {"G06", "G07"}
    assert signed("throttled", "unknown") == set()


def test_the_card_is_full() -> None:
    assert signed("vram-full", "fail") == set()
    assert signed("vram-full", "warn") == STANDING | {"E16"}
    assert signed("vram-full", "unknown") == set()


def test_an_engine_is_of_another_tensorrt() -> None:
    assert first_cause("load-failed")[0] == "L05"
    assert signed("load-failed", "fail") == {"E05", "L05"}
    assert signed("load-failed", "warn") == STANDING | {"E07"}
    assert signed("load-failed", "unknown") == set()


def test_the_driver_was_updated_without_a_reboot() -> None:
    id_, title = first_cause("driver-mismatch")
    assert id_ == "A06"
    assert f"{DRIVER} against {UPDATED_LIBRARY}" in title
    assert signed("driver-mismatch", "fail") == {"A06", "B07", "G01"}
    assert signed("driver-mismatch", "warn") == STANDING | {"A07"}
    unknown = [one for one in looked("driver-mismatch")[1].findings if one.sign == "unknown"]
    assert {one.id for one in unknown if "NVML" not in one.text} == {"A08"}


def test_the_entry_point_may_not_be_executed() -> None:
    id_, title = first_cause("triton-down")
    assert id_ == "E05"
    assert "/opt/tritonserver/bin/tritonserver" in title
    assert signed("triton-down", "fail") == {"E01", "E02", "E05"}
    assert signed("triton-down", "warn") == STANDING
    assert signed("triton-down", "unknown") == {"E09", "L01"}


@pytest.mark.parametrize("scene", SCENES)
def test_the_host_has_all_that_checks_look_at(scene: str) -> None:
    facts, report = looked(scene)
    assert len(report.findings) == len(run.all_checks()[0])
    assert not [words for words, one in facts.commands.items() if one.why == "not recorded"]
    assert not [path for path, one in facts.spaces.items() if one.why]
    assert not [name for name, one in facts.answers.items() if one.why == "not recorded" and name != "@samples"]
    assert "a fault of" not in " ".join(one.text for one in report.findings)


def test_files_and_answers_tell_of_one_box() -> None:
    facts, _ = looked("healthy")
    assert facts.every("gpu") == (CARD,)
    assert facts.every("release") == facts.every("next_release") == (KERNEL,)
    assert facts.every("container_pid") == (str(TRITON_PID),)
    assert facts.every("graph_root") == ("/var/lib/containers/storage",)
    (models,) = facts.every("models")
    inspect, nvml = facts.answer("@podman.inspect"), facts.answer("@nvml")
    assert inspect["Mounts"][0]["Source"] == models
    assert {"ranking", "recall", "reco", "rerank"} == set(facts.file(models).names or ())
    bindings = inspect["HostConfig"]["PortBindings"].values()
    published = {int(one["HostPort"]) for rows in bindings for one in rows}
    assert published <= {row["port"] for row in facts.answer("@ports")}
    (card,) = nvml["box"]["gpus"]
    assert (nvml["box"]["driver"], card["uuid"]) == (DRIVER, UUID)
    assert UUID in facts.text(f"/proc/driver/nvidia/gpus/{CARD}/information")
    assert card["pci_bus_id"].lower().endswith(CARD)
    listed = {row["pid"]: row["name"] for row in facts.answer("@processes")}
    assert listed[TRITON_PID] == "tritonserver"
    assert listed[inspect["State"]["ConmonPid"]] == "conmon"


def test_the_recording_follows_the_container() -> None:
    checks = [run.named(name) for name in ("E03", "I01")]
    with pytest.MonkeyPatch.context() as patch, compose.session(Settings(), demo="healthy", seed=1) as session:
        patch.setattr(collector, "DEADLINE", 30.0)
        patch.setattr(facts_answers, "ANSWER_LIMIT", 20.0)
        recording = Path(session.spec.root, ".gpuconsole/box.json")
        podman = PodmanControl(session.spec.settings.podman.socket, timeout=30.0)
        podman.restart("triton", 1)
        podman.close()
        own = f"/proc/{TRITON_PID + 1}/root/dev/nvidia0".encode()
        end = time.monotonic() + 30
        while own not in recording.read_bytes() and time.monotonic() < end:
            time.sleep(0.1)
        facts = checking.facts_for(session.spec, checks)
        assert facts.every("container_pid") == (str(TRITON_PID + 1),)
        assert checklist.judge(facts, checks, whole=False).worst() == "ok"
