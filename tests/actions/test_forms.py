"""Forms over actions: what is so now, a sentence beside each wrong value, only changed values asked for, no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from console.actions import forms, runner
from console.actions.box import Box, BoxSpec
from console.actions.form_container import off, present, size_words
from console.actions.form_create import CreateForm
from console.actions.forms import open_form
from console.clients.files import private_folder
from console.config import Podman, Settings
from console.core.form import Judged
from console.core.plan import WrongInput
from tests.actions.own_box import containers, own_box
from tests.actions.test_gpu import a_box
from tests.lab import paths
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, own_triton
from tests.lab.repository import sleeper_config

SECRET = "hunter2hunter2"
MORE = ("--env", f"API_TOKEN={SECRET}", "--env", "PLAIN=1", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=2048")


def beside(judged: Judged) -> Mapping[str, str]:
    """The sentences that stop a form, by field."""
    return {one.name: one.text for one in judged.remarks if one.sign == "fail"}


# --------------------------------------------------------------------------------------------------------- container


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTriton]:
    if Lab.found() is None:
        pytest.skip("the lab is not up")
    models = [("rank", sleeper_config("rank"), (1,))]
    with own_triton(tmp_path_factory.mktemp("models"), models, more=MORE) as started:
        yield started


@pytest.fixture
def box(own: OwnTriton, tmp_path: Path) -> Iterator[Box]:
    with own_box(own, private_folder(tmp_path / "state")) as found:
        yield found


@pytest.mark.lab
def test_a_containers_form_has_what_is_so_now(own: OwnTriton, box: Box) -> None:
    form = open_form(box, "container", "")
    rows = {one.field.name: one for one in form.look.rows}
    assert form.look.action == "container.recreate"
    assert form.look.target == own.name
    assert rows["image"].start in rows["image"].field.choices
    assert rows["ports"].start == ",".join(f"127.0.0.1:{own.port + one}:{8000 + one}" for one in range(3))
    assert (rows["mode"].start, rows["shm_size"].start) == ("explicit", "128m")
    assert (rows["cpus"].start, rows["cpus"].live) == ("-", "all")
    assert rows["env"].live == "API_TOKEN=***, PLAIN=***"
    assert rows["env"].start == ""
    assert "--model-control-mode=explicit" in rows["flags"].live
    assert SECRET not in repr(form.look)


@pytest.mark.lab
def test_what_is_there_already_is_no_change_and_asks_for_nothing(box: Box) -> None:
    form = open_form(box, "container", "")
    starts = {one.field.name: one.start for one in form.look.rows if one.start}
    judged = form.judge(box, starts)
    assert (judged.changed, judged.wishes, beside(judged)) == (frozenset(), (), {})
    assert judged.lines[:2] == ("DIFFERENCE", "  nothing changes yet")


@pytest.mark.lab
def test_only_what_differs_is_asked_for_and_the_plan_agrees(own: OwnTriton, box: Box) -> None:
    form = open_form(box, "container", "")
    typed = {"shm_size": "256m", "mode": "explicit", "env": f"NEW_TOKEN=x{SECRET}", "stop_timeout": "60", "cpus": ""}
    judged = form.judge(box, typed)
    (wish,) = judged.wishes
    assert wish.values == {"shm_size": "256m", "env": f"NEW_TOKEN=x{SECRET}"}
    assert judged.changed == {"shm_size", "env"}
    assert "+ --env NEW_TOKEN=***" in judged.lines
    assert judged.lines[-1].startswith("  podman run --detach --name")
    assert any(one.text == "sets NEW_TOKEN; API_TOKEN, PLAIN stay" for one in judged.remarks)
    assert SECRET not in repr((judged.lines, judged.remarks))
    plan = runner.prepare(box, wish.action, wish.target, wish.values)
    assert set(plan.difference) <= set(judged.lines)
    assert {name: plan.target.identity[name] for name in wish.identity} == dict(wish.identity)
    assert containers(own) == {own.name: "running"}


@pytest.mark.lab
def test_a_form_is_plain_data_between_two_looks(own: OwnTriton, box: Box) -> None:
    look, kept = forms.opened(box.spec, box.state, None, "container", "")
    assert SECRET not in repr(look)
    assert forms.judged(box.spec, box.state, None, kept, {"shm_size": "2g"}).wishes[0].target == own.name


@pytest.mark.lab
def test_each_wrong_value_of_a_container_has_its_sentence(own: OwnTriton, box: Box) -> None:
    wrong = {
        "image": "no image!",
        "ports": "99999:1",
        "mode": "automatic",
        "shm_size": "much",
        "ulimits": "memlock=lots",
        "cpus": "all of them",
        "numa": "x",
        "env": f"{SECRET}",
        "unset": "NOT_THERE",
        "flags": "log-verbose",
        "drop_flags": "x",
        "stop_timeout": "soon",
    }
    form = open_form(box, "container", "")
    judged = form.judge(box, wrong)
    told = beside(judged)
    assert set(told) == set(wrong)
    assert judged.wishes == ()
    assert all("\n" not in text and len(text) < 300 for text in told.values())
    assert SECRET not in repr(told)
    for name, value in wrong.items():
        with pytest.raises(WrongInput) as caught:
            runner.prepare(box, "container.recreate", own.name, {name: value})
        assert str(caught.value) == told[name]


@pytest.mark.lab
def test_the_units_form_shows_it_and_its_difference(own: OwnTriton, box: Box, tmp_path: Path) -> None:
    form = open_form(box, "unit", "")
    judged = form.judge(box, {})
    assert not form.look.needs_change
    assert form.look.told[0].startswith("managed by no unit")
    assert "DIFFERENCE to what is installed" in judged.lines
    assert any(line.startswith("+ExecStart=") for line in judged.lines)
    assert any(line.startswith("  ExecStart=") for line in judged.lines[judged.lines.index("GENERATED") :])
    assert SECRET not in repr(judged)
    named = form.judge(box, {"name": "ranking"})
    assert named.wishes[0].values == {"name": "ranking"}
    assert named.lines[0].endswith("/ranking.service")
    assert set(beside(form.judge(box, {"name": "a/b"}))) == {"name"}
    assert set(beside(form.judge(box, {"kind": "cron"}))) == {"kind"}


def test_what_cannot_be_changed_says_why() -> None:
    body = {"image": "x", "netns": {"nsmode": "host"}, "ipcns": {"nsmode": "host"}, "command": ["sleep", "1"]}
    assert set(off(body, ())) == {"ports", "shm_size", "mode", "flags", "drop_flags"}
    shell = {"image": "x", "command": ["sh", "-c", "exec tritonserver --model-repository=/m"]}
    assert "one shell line" in off(shell, ())["flags"]
    assert present({"image": "x"}, ["tritonserver"])["mode"] == ("none", "none")


@pytest.mark.parametrize(
    ("size", "words"), [(1 << 30, "1g"), (128 << 20, "128m"), (65536000, "64000k"), (1000, "1000"), (None, ""), (0, "")]
)
def test_a_size_is_told_exactly(size: int | None, words: str) -> None:
    assert size_words(size) == words


# ------------------------------------------------------------------------------------------------------ from nothing


@pytest.fixture
def empty(lab: Lab, tmp_path: Path) -> Iterator[Box]:
    """The lab's Podman, where no container has the name that the settings want."""
    found = Box(BoxSpec(Settings(podman=Podman(f"unix://{paths.SOCKET}", "nobody"))), tmp_path)
    yield found
    found.close()


@pytest.mark.lab
def test_where_no_container_is_the_form_makes_one(empty: Box) -> None:
    form = open_form(empty, "container", "")
    assert isinstance(form, CreateForm)
    starts = {one.field.name: one.start for one in form.look.rows}
    assert starts["ports"] == "127.0.0.1:8000:8000,127.0.0.1:8001:8001,127.0.0.1:8002:8002"
    assert (starts["mode"], starts["shm_size"], starts["start"]) == ("explicit", "1g", "on")
    judged = form.judge(empty, {})
    assert set(beside(judged)) == {"models"}
    assert judged.wishes == ()
    judged = form.judge(empty, {"models": "/srv/models", "name": "second", "env": f"TOKEN={SECRET}", "start": "off"})
    (wish,) = judged.wishes
    assert wish.target == "second"
    assert wish.values == {"models": "/srv/models", "env": f"TOKEN={SECRET}", "start": "off"}
    assert "--name second" in judged.lines[-1]
    assert "--volume /srv/models:/models:ro,z" in judged.lines[-1]
    assert SECRET not in repr(judged.lines)


@pytest.mark.lab
def test_each_wrong_value_of_a_new_one_has_its_sentence(empty: Box) -> None:
    wrong = {"models": "models", "name": "x y", "image": "!", "ports": "x", "shm_size": "1x", "start": "maybe",
             "env": SECRET, "flags": "x", "ulimits": "x=1", "cpus": "x", "numa": "x", "stop_timeout": "-1"}  # fmt: skip
    judged = open_form(empty, "container", "").judge(empty, wrong)
    assert set(beside(judged)) == set(wrong)
    assert judged.wishes == ()
    assert SECRET not in repr(judged)


@pytest.mark.lab
def test_a_kept_specification_that_is_gone_is_a_sentence(empty: Box) -> None:
    judged = open_form(empty, "container", "").judge(empty, {"models": "/m", "saved": "../x"})
    assert set(beside(judged)) == {"saved"}


# -------------------------------------------------------------------------------------------------------------- card


def test_a_cards_form(tmp_path: Path) -> None:
    box = a_box(tmp_path)
    form = open_form(box, "gpu", "0")
    rows = {one.field.name: one for one in form.look.rows}
    assert list(rows) == ["persistence", "clocks", "power_limit", "compute_mode"]
    assert (rows["power_limit"].start, rows["power_limit"].live) == ("70", "70 W")
    assert (rows["power_limit"].field.low, rows["power_limit"].field.high) == (60, 70)
    assert (rows["clocks"].start, rows["clocks"].live) == ("", "not known")
    judged = form.judge(box, {"persistence": "off", "power_limit": "62.5", "clocks": "900,1200"})
    assert [one.names for one in judged.wishes] == [("persistence",), ("power_limit",), ("clocks",)]
    assert dict(judged.wishes[1].values) == {"watts": "62.5"}
    assert any("nvidia-smi" in line for line in judged.lines)
    for wish in judged.wishes:
        plan = runner.prepare(box, wish.action, wish.target, wish.values)
        assert plan.target.identity["uuid"] == wish.identity["uuid"]


def test_each_wrong_value_of_a_card_has_its_sentence(tmp_path: Path) -> None:
    box = a_box(tmp_path)
    wrong = {"persistence": "maybe", "clocks": "9,1", "power_limit": "9999", "compute_mode": "shared"}
    judged = open_form(box, "gpu", "0").judge(box, wrong)
    assert set(beside(judged)) == set(wrong)
    assert judged.wishes == ()


def test_a_card_in_use_says_so_beside_its_compute_mode(tmp_path: Path) -> None:
    box = a_box(tmp_path, process_mib=500)
    judged = open_form(box, "gpu", "0").judge(box, {"compute_mode": "prohibited"})
    assert [one.sign for one in judged.remarks] == ["warn"]
    assert "stop the container first" in judged.remarks[0].text


def test_a_card_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="there is no GPU '7'"):
        open_form(a_box(tmp_path), "gpu", "7")
