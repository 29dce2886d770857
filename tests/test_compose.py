"""The composition root: who is asked to read at once, and why."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from console import compose
from console.actions.box import Box, BoxSpec
from console.compose import TRITON_PARTS, Kept, _after_log, _after_resets, build
from console.config import Safety, Settings, Triton
from console.core.model import PART_FIELDS, Event, ModelFlow, ModelKey, ModelStats, SourceError, TritonStats
from console.core.session import Session
from console.sources.locator import Locator


class Asked:
    """A session that notes which parts are to be read at once."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def read_now(self, part: str) -> None:
        self.parts.append(part)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("server.start", list(TRITON_PARTS)),
        ("model.ready", ["triton.server", "triton.index"]),
        ("server.stop", list(TRITON_PARTS)),
        ("", []),
    ],
)
def test_what_the_log_tells_is_read_at_once(kind: str, parts: list[str]) -> None:
    box = Asked()
    locator = Locator(Settings(), lambda: None)
    _after_log(Event(1.0, "ok", "x", "(server log)", kind), cast("Session", box), locator)
    assert box.parts == parts
    assert locator.address().keep is (kind != "server.stop")


def test_counters_that_began_anew_ask_for_configurations() -> None:
    def stats(*resets: int) -> TritonStats:
        return TritonStats(
            tuple(ModelFlow(ModelKey(str(n), "1"), ModelStats(str(n), "1"), resets=r) for n, r in enumerate(resets))
        )

    for old, new, parts in (
        (stats(0, 0), stats(0, 0), []),
        (stats(0, 0), stats(0, 1), ["triton.config"]),
        (stats(0), stats(0, 0), ["triton.config"]),
        (stats(0, 0), stats(0), []),
    ):
        box = Asked()
        _after_resets(old, new, cast("Session", box))
        assert box.parts == parts


def test_every_part_of_the_snapshot_has_a_source() -> None:
    assert {source.name for source in build(Settings(), checks=True).sources} == PART_FIELDS.keys()
    assert "checks" not in {source.name for source in build(Settings()).sources}, "a snapshot does not wait for them"


class Source:
    """Gives what it is told to."""

    name = "host"
    interval = 1.0

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)

    def open(self) -> None:
        if isinstance(self.steps[0], SourceError):
            raise self.steps.pop(0)  # type: ignore[misc]

    def read(self) -> object:
        return self.steps.pop(0)

    def close(self) -> None:
        self.steps.clear()


def test_a_kept_source_gives_its_newest_value_and_tells_changes() -> None:
    changes: list[tuple[object, object]] = []
    kept = Kept(Source("a", "a", "b"), lambda old, new: changes.append((old, new)))
    assert not kept.tried.is_set()
    kept.open()
    assert [kept.read(), kept.read(), kept.read()] == ["a", "a", "b"]
    assert kept.value == "b"
    assert kept.tried.is_set()
    assert changes == [("a", "b")]
    kept.close()


def test_a_source_that_cannot_open_was_tried() -> None:
    kept = Kept(Source(SourceError("unavailable", "x")))
    with pytest.raises(SourceError):
        kept.open()
    assert kept.tried.is_set()


def test_a_session_tells_what_it_takes_to_act_on_its_box(tmp_path: Path) -> None:
    real = compose.build(Settings()).spec
    assert (real, real.state_in(tmp_path)) == (BoxSpec(Settings()), tmp_path)
    with compose.session(Settings(), demo="healthy") as session:
        assert session.spec.simulated == "healthy"
        assert session.spec.state_in(tmp_path) == tmp_path / "simulated"
        box = Box(session.spec, tmp_path)
        try:
            assert box.container().name == "triton"
            assert box.ready()
            assert box.gpus().gpus[0].name == "Tesla T4"
        finally:
            box.close()


def test_in_read_only_mode_no_model_is_asked(tmp_path: Path) -> None:
    """The second guard: also for a caller that did not look at the first."""
    settings = Settings(safety=Safety(read_only=True), triton=Triton(host="127.0.0.1", http_port=1))
    session = build(settings, root=tmp_path)
    assert session.ask is not None
    answer = session.ask("m", None)
    assert answer.ok is None
    assert "read-only" in answer.text
