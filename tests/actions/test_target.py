"""Names that are given: of containers, images and models, whatever stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.actions import powering
from console.actions.box import Box, BoxSpec
from console.actions.container import Restart, Start, Stop, noted, parsed_models
from console.actions.container_reload import Reload
from console.actions.container_remove import Remove
from console.actions.image_pull import Pull
from console.actions.recreate import Create
from console.actions.target import ContainerView
from console.config import Podman, Settings
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from tests.actions.fake_run import FakeRun


@pytest.mark.parametrize("target", [".", "..", "../images/x", "a/b", "-x", "x\x1b[31m", "x" * 300])
def test_what_is_no_name_is_no_path_of_podmans_api_either(target: str, tmp_path: Path) -> None:
    box = Box(BoxSpec(Settings()), tmp_path)
    for kind in (Start, Stop, Restart, Reload, Remove, Create):
        with pytest.raises(WrongInput, match="is no name of a container") as caught:
            kind().plan(box, target, {"models": "/x"} if kind is Create else {})
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("image", ["", "a b", "-x", "x\x1b]0;t\x07"])
def test_what_is_no_image_is_not_pulled(image: str, tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="is no name of an image"):
        Pull().plan(Box(BoxSpec(Settings()), tmp_path), image, {})


def test_models_are_noted_whatever_they_are_called() -> None:
    class View:
        def ready(self) -> frozenset[tuple[str, str]]:
            return ready_now

    ready_now = frozenset({("a,b", "1"), ("tab\tnew\nline", "2"), ('q"', "3")})
    run = FakeRun()
    assert noted(View(), run) == ready_now  # type: ignore[arg-type]
    assert parsed_models(run.facts["ready"]) == ready_now


def test_a_container_that_took_itself_away_has_ended(tmp_path: Path) -> None:
    """One made with --rm that ends at once is gone before the first look: the way back must still be gone."""

    class View:
        def state(self) -> None:
            return None

    wanted = frozenset({("rank", "1")})
    found = powering.wait_ready(Box(BoxSpec(Settings()), tmp_path), View(), wanted, FakeRun(), 5.0)  # type: ignore[arg-type]
    assert (found.ended, found.good, found.missing) == (True, False, wanted)


def test_a_podman_that_may_not_be_asked_is_not_said_to_be_off(tmp_path: Path) -> None:
    socket = tmp_path / "podman.sock"
    socket.touch()
    box = Box(BoxSpec(Settings(podman=Podman(socket=str(socket)))), tmp_path)
    for look in (box.container, lambda: box.podman_url):
        with pytest.raises(Refused, match=f"no Podman service answers here .{socket} is no socket"):
            look()


def test_one_late_answer_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new server to which all clients come back answered late once: a good change was taken back for it."""
    view = object.__new__(ContainerView)
    late = [SourceError("timeout", "no answer within 2 s")]

    def ready() -> frozenset[tuple[str, str]]:
        if late:
            raise late.pop()
        return frozenset({("rank", "1")})

    def silent() -> frozenset[tuple[str, str]]:
        raise SourceError("unavailable", "refused")

    monkeypatch.setattr(view, "ready", ready)
    assert view.answers()
    monkeypatch.setattr(view, "ready", silent)
    assert not view.answers(within=0.0)
