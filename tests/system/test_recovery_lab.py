"""What an incident does to the whole product: kills, restarts, reloads and swaps under traffic, each told once."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from console.core.model import ContainerState, Event, Snapshot
from tests.lab import podman, processes
from tests.lab.fixtures import Lab
from tests.system.watched import Watched, settings_of, watch

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRAFFIC = ("--poisson", "--for", "90", "rank=60", "recall=40", "reco=15")


def moving(watched: Watched, rate: float = 5.0) -> bool:
    """True when the box serves and the rate of ten seconds is known and above `rate`."""
    now = watched.snapshot
    return now.serving.word == "SERVING" and now.stats.error is None and (now.traffic.rate or 0) > rate


def settled(watched: Watched) -> None:
    """Wait until the box is seen whole and the past was read."""
    watched.until(lambda s: moving(watched), 15, "traffic seen")
    watched.until(lambda s: s.container.value is not None and s.container.value.container is not None, 10, "container")


def once(events: list[Event], kind: str, text: str, began: float, ended: float) -> Event:
    """The one event of a kind whose text holds `text`; its time lies between (1 s of grace)."""
    found = [e for e in events if e.kind.startswith(kind) and text in e.text]
    assert len(found) == 1, [(e.kind, e.text, e.origin, e.wall - began) for e in events]
    (event,) = found
    assert event.repeats == 1
    assert began - 1 <= event.wall <= ended + 1, event
    return event


def container(snapshot: Snapshot) -> ContainerState:
    value = snapshot.container.value
    assert value is not None
    assert value.container is not None
    return value.container


def note(folder: Path, text: str) -> None:
    """Kept beside the test's other files, for who asks what was seen."""
    (folder / "events.txt").write_text(text + "\n")


def told(events: list[Event], began: float) -> str:
    return "\n".join(
        f"{e.wall - began:7.2f} {e.sign:<4} {e.kind:<18} {e.text}  {e.origin} x{e.repeats}" for e in events
    )


def test_triton_is_killed_and_started_under_traffic(lab_alone: Lab, tmp_path: Path) -> None:
    pid = int(lab_alone.podman("inspect", "--format", "{{.State.Pid}}", lab_alone.container))
    with lab_alone.load(*TRAFFIC), watch(settings_of(lab_alone)) as watched:
        settled(watched)
        time.sleep(4)
        began = time.time()
        os.kill(pid, signal.SIGKILL)
        seen = watched.until(lambda s: s.serving.word in ("DOWN", "NOT ANSWERING", "STARTING"), 10, "the death")
        watched.until(lambda s: container(s).state == "exited", 10, "the exit")
        assert container(watched.snapshot).exit_code == 137
        time.sleep(4)
        again = time.time()
        lab_alone.podman("start", lab_alone.container)
        back = watched.until(lambda s: s.serving.word == "SERVING" and s.serving.ready == 3, 20, "serving")
        rate = watched.until(lambda s: moving(watched), 15, "rates")
        time.sleep(3)
        ended = time.time()
        events = watched.events(began - 1)
    note(tmp_path, f"death {seen:.1f}, serving {back:.1f}, rates {rate:.1f}\n{told(events, began)}")
    died = once(events, "container", "137", began, began + 4)
    assert died.sign == "fail"
    assert died.origin == "(podman)"
    assert once(events, "container.start", "started", again, again + 6).origin == "(podman)"
    once(events, "silent.server", "Triton does not answer", began, began + 4)
    once(events, "back.server", "Triton answers again", again, ended)
    for model in ("rank 1", "rank 2", "recall 1", "reco 1"):
        once(events, "model.ready", f"{model} ", again, ended)
    assert not [e for e in events if e.kind == "reload"], told(events, began)
    assert not [e for e in events if e.kind == "model.unloaded"], told(events, began)


def test_a_reload_and_a_version_swap_by_hand(lab_alone: Lab, tmp_path: Path) -> None:
    with lab_alone.load(*TRAFFIC), watch(settings_of(lab_alone)) as watched:
        settled(watched)
        watched.until(lambda s: s.configs.value is not None and len(s.configs.value.configs) >= 4, 10, "configs")
        began = time.time()
        reload_changed(lab_alone, "recall", dynamic_batching={"max_queue_delay_microseconds": 700})
        watched.until(lambda s: any(e.kind == "config" and e.wall > began for e in s.events), 12, "the reload")
        time.sleep(2)
        swapped = time.time()
        reload_changed(lab_alone, "rank", version_policy={"specific": {"versions": [1]}})
        watched.until(lambda s: ("rank", "2") not in ready(watched), 10, "the swap")
        unloaded = time.time()
        assert lab_alone.triton("POST", "/v2/repository/models/recall/unload")[0] == 200
        watched.until(lambda s: ("recall", "1") not in ready(watched), 15, "the unload")
        time.sleep(3)
        loaded = time.time()
        assert lab_alone.triton("POST", "/v2/repository/models/recall/load")[0] == 200
        watched.until(lambda s: ("recall", "1") in ready(watched), 10, "the load")
        time.sleep(6)
        ended = time.time()
        events = watched.events(began - 0.5)
    note(tmp_path, told(events, began))
    before = [e for e in events if e.wall < swapped]
    changed = once(before, "config", "recall delay 0 → 700 µs", began, swapped)
    assert changed.origin == "not made by a gpuconsole"
    once(before, "reload", "reco 1 was reloaded", began, swapped)
    assert len([e for e in before if e.kind in ("reload", "config") and e.model == "recall"]) == 1, told(events, began)
    assert not [e for e in events if e.kind == "model.old_copy" and e.wall > swapped and e.model != "reco"]
    once([e for e in events if e.wall >= swapped - 1], "model.unloaded", "rank 2 was unloaded", swapped, unloaded + 2)
    once([e for e in events if e.wall >= unloaded - 1], "model.unloaded", "recall 1 was unloaded", unloaded, loaded)
    once([e for e in events if e.wall >= loaded - 1], "model.ready", "recall 1 is READY", loaded, ended)


def reload_changed(lab: Lab, name: str, **changed: object) -> None:
    """Load with the served configuration, changed in these fields; one that changes nothing reloads nothing."""
    config = {**lab.triton("GET", f"/v2/models/{name}/config")[1], **changed}
    body = {"parameters": {"config": json.dumps(config)}}
    status, answer = lab.triton("POST", f"/v2/repository/models/{name}/load", body)
    assert status == 200, answer


def ready(watched: Watched) -> set[tuple[str, str | None]]:
    return {(row.name, row.version) for row in watched.snapshot.models if row.state == "READY"}


def test_podmans_service_is_killed_and_started(lab_alone: Lab, tmp_path: Path) -> None:
    pid = processes.running("podman-service")
    assert pid is not None
    with lab_alone.load(*TRAFFIC), watch(settings_of(lab_alone)) as watched:
        settled(watched)
        began = time.time()
        os.kill(pid, signal.SIGKILL)
        seen = watched.until(lambda s: s.container.error is not None, 10, "the silence")
        assert watched.snapshot.container.value is not None, "the last good value stays"
        assert watched.snapshot.container.value.container is not None
        watched.until(lambda s: any(e.kind == "silent.container" and e.wall > began for e in s.events), 10, "event")
        assert moving(watched)
        again = time.time()
        podman.start_service()
        back = watched.until(lambda s: s.container.error is None, 12, "Podman back")
        lab_alone.podman("pause", lab_alone.container)
        paused = time.time()
        lab_alone.podman("unpause", lab_alone.container)
        watched.until(lambda s: any("pause" in e.kind and e.wall > paused - 2 for e in s.events), 12, "events back")
        time.sleep(2)
        ended = time.time()
        events = watched.events(began - 1)
    note(tmp_path, f"silent {seen:.1f}, back {back:.1f}\n{told(events, began)}")
    once(events, "silent.container", "Podman does not answer", began, again)
    once(events, "back.container", "Podman answers again", again, ended)
    once(events, "container.pause", "was paused", again, ended)
    once(events, "container.unpause", "goes on", again, ended)
