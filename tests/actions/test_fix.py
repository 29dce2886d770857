"""A fix of the checklist planned, carried out, taken back, and left half done: checks and files of the test's own."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from console import cli
from console.actions import fix as fix_action
from console.actions import recover, registry
from console.actions.box import Box, BoxSpec
from console.actions.fix import Apply, TakeBack
from console.checks import run as checklist
from console.checks.check import Answer, Check, fail, note, ok, skip, unknown, warn
from console.clients import deeds
from console.config import Safety, Settings
from console.core.facts import Evidence, Facts
from console.core.finding import Deed, Fix
from console.core.plan import Outcome, Plan, Refused, WrongInput
from tests.actions.conftest import Stand
from tests.actions.runs import Recorded, do, killed
from tests.checks.told import ABSENT, told

GOOD = "good = yes\n"


@dataclass
class Sick:
    """A box with one file, which is fit when it says so, and the check that wants it so."""

    folder: Path
    does: tuple[Deed, ...] = ()
    back: tuple[Deed, ...] = ()
    undo: str = "put it back"
    answer: Answer | None = None
    """In place of the check's own."""
    asked: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "box.conf"

    def facts(self, needs: Sequence[str], slow: bool = False) -> Facts:
        """Made anew from the file, as a look at a real box is."""
        self.asked.append((tuple(needs), slow))
        return told({str(self.file): self.file.read_text() if self.file.exists() else ABSENT})

    def judge(self, facts: Facts) -> Answer:
        if self.answer is not None:
            return self.answer
        text = facts.maybe(str(self.file)) or ""
        if GOOD in text:
            return ok("it is good")
        line = Evidence(f"{self.file}:1", text.partition("\n")[0])
        return fail("it is bad", (line,), self.fix)

    @property
    def fix(self) -> Fix:
        return Fix("P", ("sudo mend",), "at once", self.undo, deeds=self.does, back=self.back, again=("T02",))

    def check(self, id_: str, judge: Callable[[Facts], Answer], *, slow: bool = False) -> Check:
        needs = (str(self.file),)
        return Check(id_, f"{id_} is fit", "driver", f"slug-{id_.lower()}", needs, "Why.", "here", judge, slow)

    def write(self, text: str = GOOD) -> Deed:
        return Deed("write", path=str(self.file), text=text)


@pytest.fixture
def sick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sick:
    box = Sick(tmp_path / "host")
    box.folder.mkdir()
    box.file.write_text("good = no\n")
    box.does = (box.write(),)
    checks = (box.check("T01", box.judge), box.check("T02", lambda _: note("as ever"), slow=True))
    monkeypatch.setattr(checklist, "all_checks", lambda: (checks, ()))
    monkeypatch.setattr(Box, "facts", lambda _, needs, slow=False: box.facts(needs, slow))
    monkeypatch.setattr(fix_action, "SETTLES", 0.0)
    return box


@pytest.fixture
def box(tmp_path: Path, sick: Sick) -> Box:
    return Box(BoxSpec(Settings()), tmp_path / "state")


def kept_files(box: Box) -> list[Path]:
    return sorted((box.state / "backups" / "fixes").glob("*"))


def take_back(box: Box, outcome: Outcome) -> Outcome:
    assert outcome.undo is not None
    assert outcome.undo.action == TakeBack.NAME
    return do(TakeBack(), box, outcome.undo.target, outcome.undo.values)


def refusal(box: Box, target: str = "T01") -> str:
    return Apply().plan(box, target, {}).refused


# ------------------------------------------------------------------------------------------------------------- the plan


def test_the_plan_says_what_is_seen_done_and_put_back(sick: Sick, box: Box) -> None:
    sick.does = (sick.write(f"# ours\n{GOOD}"), Deed("run", ("true", "a b")))
    sick.file.write_text("good = no\nTOKEN=hunter2hunter2\n")
    plan = Apply().plan(box, "slug-t01", {})
    assert (plan.action, plan.target.name, plan.refused) == ("check.fix", "T01", "")
    assert [(one.sign, one.text) for one in plan.checks] == [
        ("fail", "T01 it is bad"),
        ("note", f"{sick.file}:1: good = no"),
    ]
    assert [(step.phase, step.text) for step in plan.steps] == [
        ("keep", f"keep {sick.file} in {box.state / 'backups' / 'fixes'}"),
        ("apply", f"write {sick.file}"),
        ("apply", "sudo true 'a b'"),
        ("check", "run T01, T02 again"),
    ]
    assert plan.difference[:3] == (f"--- {sick.file}", f"+++ {sick.file}", "@@ -1,2 +1,2 @@")
    assert plan.difference[3:] == ("-good = no", "-TOKEN=***", "+# ours", "+good = yes")
    assert (plan.effects, plan.by_hand, plan.undo) == (("at once",), ("sudo mend",), "put it back")
    assert sick.file.read_text().startswith("good = no")
    assert not box.state.exists()


def test_a_fix_with_no_way_back_says_so(sick: Sick, box: Box) -> None:
    sick.undo = ""
    assert Apply().plan(box, "T01", {}).undo == "there is no way back"
    assert do(Apply(), box, "T01", {}).undo is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ok("fine"), "T01 is fit or does not apply (fine): there is nothing to mend"),
        (skip("no GPU"), "T01 is fit or does not apply (no GPU): there is nothing to mend"),
        (note("fine too"), "T01 is fit or does not apply (fine too): there is nothing to mend"),
        (unknown("no right", "sudo x"), "it is not known whether T01 is fit: no right; sudo x would tell"),
        (fail("bad"), "T01 has no fix that can be told: gpuconsole explain T01"),
        (
            fail("bad", fix=Fix("R", ("a", "b"), deeds=(Deed("run", ("true",)),))),
            "the fix of T01 needs a reboot and is done by hand: a; b",
        ),
        (
            fail("bad", fix=Fix("S", ("a",), deeds=(Deed("run", ("true",)),))),
            "the fix of T01 is done by hand: a",
        ),
        (fail("bad", fix=Fix("S", ("a",), action="test.steps")), "the fix of T01 is done by hand: a"),
        (fail("bad", fix=Fix("S", (), "look at it")), "the fix of T01 is done by hand: look at it"),
        (warn("bad", fix=Fix("P", ("a",))), "the fix of T01 is done by hand: a"),
        (
            warn("bad", fix=Fix("B", ("a",), deeds=(Deed("run", ("gpuconsole-none",)),))),
            "gpuconsole-none is not installed",
        ),
    ],
    ids=lambda one: "" if isinstance(one, str) else f"{one.sign}-{one.fix and one.fix.kind}",
)
def test_what_is_not_mended(sick: Sick, box: Box, answer: Answer, words: str) -> None:
    sick.answer = answer
    assert refusal(box) == words


def test_a_note_may_have_a_fix(sick: Sick, box: Box) -> None:
    sick.answer = Answer("note", "could be better", fix=sick.fix)
    assert refusal(box) == ""


def test_of_a_simulated_or_copied_box_it_is_only_shown(sick: Sick, tmp_path: Path) -> None:
    """Its deeds name paths of this machine."""
    assert "this box is simulated" in refusal(Box(BoxSpec(Settings(), simulated="healthy"), tmp_path / "state"))
    assert f"a copy in {sick.folder}" in refusal(Box(BoxSpec(Settings(), root=str(sick.folder)), tmp_path / "state"))


def test_no_such_check(box: Box) -> None:
    for action in (Apply(), TakeBack()):
        with pytest.raises(WrongInput, match="there is no check"):
            action.plan(box, "T99", {"backup": "x"})


def test_slow_figures_are_asked_for_where_the_check_wants_them(sick: Sick, box: Box) -> None:
    fix_action.look(box, "T01")
    fix_action.look(box, "T01", "T02")
    assert [slow for _, slow in sick.asked] == [False, True]


def test_an_action_that_mends_it_is_planned_with_its_own_words(sick: Sick, stand: Stand) -> None:
    sick.answer = fail("bad", fix=Fix("B", (), action="test.steps", target=str(stand.file), values={"word": "new"}))
    plan = stand.plan("check.fix", "T01")
    assert (plan.action, plan.target.name, plan.values["word"]) == ("test.steps", str(stand.file), "new")
    sick.answer = fail("bad", fix=Fix("B", ("x",), action="test.steps", values={"word": "***"}))
    assert refusal(stand.box()) == "the fix holds what is masked here: x"
    sick.answer = fail("bad", fix=Fix("B", (), action="test.steps", values={"nonsense": "1"}))
    with pytest.raises(WrongInput, match="nonsense"):
        stand.plan("check.fix", "T01")
    sick.answer = ok("fine by now")
    assert "nothing to mend" in refusal(stand.box())


# ----------------------------------------------------------------------------------------------------------------- done


def test_it_is_mended_told_and_taken_back(sick: Sick, box: Box) -> None:
    sick.file.chmod(0o640)
    run = Recorded()
    outcome = do(Apply(), box, "T01", {}, run)
    assert (outcome.word, outcome.text) == ("done", "T01 is mended: it is good")
    assert outcome.lines == ("● T01 it is good", "● T02 as ever")
    assert run.phases == ["keep", "keep done", "apply", "apply done", "check", "check done"]
    assert sick.file.read_text() == GOOD
    (kept,) = kept_files(box)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    plan = TakeBack().plan(box, "T01", outcome.undo.values if outcome.undo else {})
    assert [step.text for step in plan.steps] == [f"{sick.file}: put back what was there", "run T01 again"]
    assert plan.difference[-2:] == ("-good = yes", "+good = no")
    back = take_back(box, outcome)
    assert (back.word, back.text) == ("done", "all is as before: ✗ T01 it is bad")
    assert (sick.file.read_text(), stat.S_IMODE(sick.file.stat().st_mode)) == ("good = no\n", 0o640)


def test_a_file_that_was_not_there_is_taken_away_again(sick: Sick, box: Box) -> None:
    sick.file.unlink()
    outcome = do(Apply(), box, "T01", {})
    assert sick.file.read_text() == GOOD
    plan = TakeBack().plan(box, "T01", outcome.undo.values if outcome.undo else {})
    assert plan.steps[0].text == f"{sick.file}: taken away, as there was none"
    take_back(box, outcome)
    assert not sick.file.exists()


def test_what_undoes_the_programs_is_run_too(sick: Sick, box: Box, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    sick.does = (Deed("run", ("touch", str(mark))), sick.write())
    sick.back = (Deed("run", ("rm", str(mark))),)
    outcome = do(Apply(), box, "T01", {})
    assert mark.exists()
    assert TakeBack().plan(box, "T01", outcome.undo.values if outcome.undo else {}).by_hand == (f"sudo rm {mark}",)
    assert take_back(box, outcome).word == "done"
    assert not mark.exists()
    again = take_back(box, outcome)
    assert again.word == "failed"
    assert again.text.startswith(f"not all could be put back: rm {mark} ended with 1: ")
    assert again.text.endswith(f"What was there is in {kept_files(box)[0]}")


def test_one_that_does_not_help_says_so_and_can_be_taken_back(sick: Sick, box: Box) -> None:
    sick.does = (sick.write("good = perhaps\n"), Deed("run", ("echo", "I did it")))
    run = Recorded()
    outcome = do(Apply(), box, "T01", {}, run)
    assert (outcome.word, outcome.text) == ("done", "it was applied and did not help yet: ✗ T01 it is bad; at once")
    assert run.notes == ["I did it"]
    take_back(box, outcome)
    assert sick.file.read_text() == "good = no\n"


def test_a_service_has_time_to_come_up(sick: Sick, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fix_action, "SETTLES", 60.0)
    sick.does = (Deed("run", ("true",)),)
    run = Recorded()

    def come_up() -> None:
        if run.waited >= 4:
            sick.file.write_text(GOOD)

    run.while_waiting = come_up
    assert do(Apply(), box, "T01", {}, run).text == "T01 is mended: it is good"
    assert run.waited == 4


def test_a_file_needs_no_time(sick: Sick, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fix_action, "SETTLES", 60.0)
    sick.does = (sick.write("good = perhaps\n"),)
    run = Recorded()
    assert "did not help yet" in do(Apply(), box, "T01", {}, run).text
    assert run.waited == 0


# -------------------------------------------------------------------------------------------- the box changed meanwhile


def _mended(sick: Sick) -> None:
    sick.file.write_text(GOOD)


def _other_text(sick: Sick) -> None:
    sick.file.write_text("good = no\n# by hand\n")


def _other_mode(sick: Sick) -> None:
    sick.file.chmod(0o600)


def _other_deeds(sick: Sick) -> None:
    sick.does = (sick.write(f"{GOOD}# and more\n"),)


def _by_hand_now(sick: Sick) -> None:
    sick.answer = fail("it is bad")


@pytest.mark.parametrize("change", [_mended, _other_text, _other_mode, _other_deeds, _by_hand_now])
def test_nothing_is_done_where_it_is_no_longer_as_planned(sick: Sick, box: Box, change: Callable[[Sick], None]) -> None:
    """By the runner's look before it begins, and by the action's own, since something may come between."""
    plan = Apply().plan(box, "T01", {})
    change(sick)
    before = sick.file.read_text()
    with pytest.raises(Refused, match=r"nothing was done; (look again and )?plan anew"):
        Apply().recheck(box, plan)
    run = Recorded()
    with pytest.raises(Refused, match="nothing was done; plan anew"):
        Apply().run(box, plan, run)
    assert (sick.file.read_text(), run.phases, kept_files(box)) == (before, [], [])


def test_nothing_is_done_in_read_only_mode(sick: Sick, tmp_path: Path) -> None:
    closed = Box(BoxSpec(Settings(safety=Safety(read_only=True))), tmp_path / "state")
    plan = Apply().plan(closed, "T01", {})
    run = Recorded(kept={"backup": "x"})
    for deed in (Apply().run, Apply().finish, Apply().undo, TakeBack().run):
        with pytest.raises(Refused, match="read-only"):
            deed(closed, plan, run)
    assert sick.file.read_text() == "good = no\n"


# ------------------------------------------------------------------------------------------------------------ half way


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (Deed("run", ("false",)), "false ended with 1"),
        (Deed("run", ("sleep", "9"), seconds=0.1), "sleep did not end within 0.1 s"),
        (Deed("move", path="/gpuconsole-none", text="/gpuconsole-nowhere"), "mv -f -T"),
    ],
    ids=["fails", "hangs", "cannot"],
)
def test_all_that_was_changed_goes_back(sick: Sick, box: Box, tmp_path: Path, last: Deed, words: str) -> None:
    other, away, mark = sick.folder / "other", sick.folder / "away", tmp_path / "mark"
    other.write_text("other")
    mark.touch()
    sick.does = (
        sick.write(),
        Deed("mode", path=str(sick.file), mode=0o600),
        Deed("move", path=str(other), text=str(away)),
        Deed("write", path=str(sick.folder / "new"), text="x"),
        last,
        sick.write("never"),
    )
    sick.back = (Deed("run", ("rm", str(mark))),)
    run = Recorded()
    outcome = do(Apply(), box, "T01", {}, run)
    assert outcome.word == "undone"
    assert outcome.text.startswith(f"it was not mended: {words}")
    assert outcome.text.endswith("; all is as before: ✗ T01 it is bad")
    assert outcome.undo is None
    assert (sick.file.read_text(), stat.S_IMODE(sick.file.stat().st_mode)) == ("good = no\n", 0o644)
    assert sorted(one.name for one in sick.folder.iterdir()) == ["box.conf", "other"]
    assert not mark.exists()
    assert run.phases.count("apply") == 5
    assert run.phases[-2:] == ["back", "back done"]


def test_a_program_that_never_started_is_not_undone(
    sick: Sick, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there when the plan is made, and gone a moment later."""
    tool, mark = tmp_path / "bin" / "tool", tmp_path / "mark"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    sick.does = (Deed("run", ("tool",)),)
    sick.back = (Deed("run", ("touch", str(mark))),)
    plan = Apply().plan(box, "T01", {})
    assert plan.refused == ""
    tool.unlink()
    outcome = Apply().run(box, plan, Recorded())
    assert (outcome.word, outcome.text) == (
        "undone",
        "it was not mended: tool is not installed; all is as before: ✗ T01 it is bad",
    )
    assert not mark.exists()


def test_what_could_not_be_put_back_is_told_with_where_it_is_kept(sick: Sick, box: Box, tmp_path: Path) -> None:
    sick.does = (sick.write(), Deed("run", ("false",)))
    sick.back = (Deed("run", ("sh", "-c", "exit 3")), Deed("run", ("sh", "-c", "exit 4")))
    outcome = do(Apply(), box, "T01", {})
    assert outcome.word == "failed"
    assert outcome.text.startswith("it was not mended: false ended with 1; not all could be put back: sh -c 'exit 3'")
    assert str(kept_files(box)[0]) in outcome.text
    assert outcome.lines == ("sh -c 'exit 4' ended with 4", "✗ T01 it is bad")
    assert sick.file.read_text() == "good = no\n"


def test_who_stops_it_has_it_all_back(sick: Sick, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    sick.does = (sick.write("good = perhaps\n"), Deed("run", ("touch", str(mark))))
    sick.back = (Deed("run", ("rm", "-f", str(mark))),)
    run = Recorded()
    run.cancelled.set()
    outcome = do(Apply(), box, "T01", {}, run)
    assert (outcome.word, outcome.text) == ("undone", "it was stopped; all is as before: ✗ T01 it is bad")
    assert "apply" not in run.phases

    run = Recorded()
    run.while_waiting = run.cancelled.set
    monkeypatch.setattr(fix_action, "SETTLES", 60.0)
    assert do(Apply(), box, "T01", {}, run).text.startswith("it was stopped; all is as before")
    assert (sick.file.read_text(), mark.exists()) == ("good = no\n", False)


# --------------------------------------------------------------------------------------------------------------- killed


def two_deeds(sick: Sick, tmp_path: Path) -> Path:
    mark = tmp_path / "mark"
    sick.does = (Deed("move", path=str(sick.file), text=f"{sick.file}.off"), sick.write())
    sick.back = (Deed("run", ("touch", str(mark))),)
    return mark


@pytest.mark.parametrize("moment", ["keep", "keep done", "apply", "apply done", "check", "check done"])
def test_killed_anywhere_it_can_be_finished(sick: Sick, box: Box, tmp_path: Path, moment: str) -> None:
    two_deeds(sick, tmp_path)
    plan = Apply().plan(box, "T01", {})
    run = killed(Apply(), box, plan, moment)
    now, finish, _ = Apply().interrupted(box, plan, run.journal())
    assert ("nothing was touched" in now) == (moment == "keep")
    assert finish
    outcome = Apply().finish(box, plan, Recorded(kept=run.kept()))
    assert (outcome.word, sick.file.read_text()) == ("done", GOOD)
    take_back(box, outcome)
    assert [(one.name, one.read_text()) for one in sick.folder.iterdir()] == [("box.conf", "good = no\n")]


@pytest.mark.parametrize("moment", ["keep", "keep done", "apply", "apply done", "check", "check done"])
def test_killed_anywhere_it_can_be_undone(sick: Sick, box: Box, tmp_path: Path, moment: str) -> None:
    mark = two_deeds(sick, tmp_path)
    plan = Apply().plan(box, "T01", {})
    run = killed(Apply(), box, plan, moment)
    undo = Apply().interrupted(box, plan, run.journal())[2]
    assert bool(undo) == (moment != "keep")
    outcome = Apply().undo(box, plan, Recorded(kept=run.kept()))
    assert outcome.word == "undone"
    assert [(one.name, one.read_text()) for one in sick.folder.iterdir()] == [("box.conf", "good = no\n")]
    assert mark.exists() == (moment != "keep")


@pytest.mark.parametrize("moment", ["back", "back done"])
def test_killed_on_its_way_back(sick: Sick, box: Box, tmp_path: Path, moment: str) -> None:
    sick.does = (sick.write(), Deed("run", ("false",)))
    plan = Apply().plan(box, "T01", {})
    run = killed(Apply(), box, plan, moment)
    assert Apply().undo(box, plan, Recorded(kept=run.kept())).word == "undone"
    assert sick.file.read_text() == "good = no\n"


@pytest.mark.parametrize("moment", ["back", "back done"])
def test_a_taking_back_that_is_killed_is_finished(sick: Sick, box: Box, moment: str) -> None:
    undo = do(Apply(), box, "T01", {}).undo
    assert undo is not None
    plan = TakeBack().plan(box, "T01", undo.values)
    run = killed(TakeBack(), box, plan, moment)
    now, finish, back = TakeBack().interrupted(box, plan, run.journal())
    assert (now[0], finish, back) == ("●" if moment == "back" else "✗", "put all of it back", "")
    assert TakeBack().finish(box, plan, Recorded(kept=run.kept())).word == "done"
    assert sick.file.read_text() == "good = no\n"


def test_without_what_was_kept_nothing_is_finished(sick: Sick, box: Box) -> None:
    plan = Apply().plan(box, "T01", {})
    run = killed(Apply(), box, plan, "apply")
    for one in kept_files(box):
        one.unlink()
    with pytest.raises(Refused, match="is gone: nothing was done"):
        Apply().finish(box, plan, Recorded(kept=run.kept()))
    assert Apply().undo(box, plan, Recorded(kept=run.kept())).word == "failed"


# -------------------------------------------------------------------------------------------------------- kept states


@pytest.mark.parametrize("backup", ["", "none", "../fixes/x", ".hidden"])
def test_a_kept_state_that_is_none(box: Box, backup: str) -> None:
    with pytest.raises(WrongInput, match=r"there is no kept state .* of T01"):
        TakeBack().plan(box, "T01", {"backup": backup})


def test_a_kept_state_of_another_check(sick: Sick, box: Box) -> None:
    undo = do(Apply(), box, "T01", {}).undo
    assert undo is not None
    with pytest.raises(WrongInput, match=r"there is no kept state .* of T02"):
        TakeBack().plan(box, "T02", undo.values)


def test_taking_back_wants_the_rights_that_it_needs(sick: Sick, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    undo = do(Apply(), box, "T01", {}).undo
    assert undo is not None
    monkeypatch.setattr(deeds, "rights", lambda as_root: f"no rights to {list(as_root)}")
    assert TakeBack().plan(box, "T01", undo.values).refused == "no rights to [True]"


# --------------------------------------------------------------------------------------------------- through the runner


def made(stand: Stand) -> tuple[Outcome, str]:
    outcome, journal = stand.perform(stand.plan("check.fix", "T01"))
    return outcome, journal.id


def test_the_runner_does_it_and_undoes_it(sick: Sick, stand: Stand) -> None:
    outcome, id_ = made(stand)
    assert (outcome.word, sick.file.read_text()) == ("done", GOOD)
    undone, _ = stand.perform(stand.plan("undo", id_))
    assert (undone.word, sick.file.read_text()) == ("done", "good = no\n")
    assert [one.record.action for one in stand.changes()] == ["check.fix", "check.unfix"]


def test_an_undo_is_refused_when_the_file_is_another_one_since(sick: Sick, stand: Stand) -> None:
    _, id_ = made(stand)
    plan = stand.plan("undo", id_)
    sick.file.write_text(f"{GOOD}# by hand\n")
    with pytest.raises(Refused, match="the box is no longer as that change left it"):
        stand.plan("undo", id_)
    outcome, _ = stand.perform(plan)
    assert outcome.word == "refused"
    assert sick.file.read_text() == f"{GOOD}# by hand\n"


def test_a_fix_that_is_not_needed_any_more_is_refused_by_the_runner(sick: Sick, stand: Stand) -> None:
    plan = stand.plan("check.fix", "T01")
    sick.file.write_text(f"{GOOD}# by hand\n")
    outcome, _ = stand.perform(plan)
    assert outcome.word == "refused"
    assert outcome.text.startswith(
        "T01 has changed since the plan was made (sign: fail then, ok now): nothing was done"
    )
    assert sick.file.read_text() == f"{GOOD}# by hand\n"


def test_one_that_dies_within_is_left_to_be_finished_or_undone(
    sick: Sick, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(deeds, "do", lambda _: 1 / 0)
        outcome, id_ = made(stand)
    assert outcome.word == "failed"
    assert [one.id for one in recover.interrupted(stand.box())] == [id_]
    finished, _ = stand.perform(stand.plan("interrupted.finish", id_))
    assert (finished.word, sick.file.read_text()) == ("done", GOOD)


def test_no_secret_is_told_or_audited(sick: Sick, stand: Stand) -> None:
    secret = "hunter2hunter2"
    sick.file.write_text(f"good = no\nHF_TOKEN={secret}\n")
    sick.does = (Deed("run", ("sed", "-i", "s/= no/= yes/", str(sick.file)), path=str(sick.file)),)
    plan: Plan = stand.plan("check.fix", "T01")
    outcome, journal = stand.perform(plan)
    assert outcome.word == "done"
    undo = stand.plan("undo", journal.id)
    assert undo.difference
    assert secret not in repr((plan, outcome, undo, stand.changes(), journal.lines()))
    assert sick.file.read_text() == f"{GOOD}HF_TOKEN={secret}\n"
    stand.perform(undo)
    assert sick.file.read_text() == f"good = no\nHF_TOKEN={secret}\n"


def test_do_tells_of_a_check_that_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for words in (["check.fix", "no-such-check"], ["check.unfix", "A06"], ["check.unfix", "A06", "backup=../x"]):
        assert cli.run(["do", *words, "--yes"]) == 64
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_every_action_that_a_fix_names_is_one(tmp_path: Path) -> None:
    """Of all checks, in their source: a typing error would show only on the box that is sick so."""
    source = "\n".join(one.read_text("utf-8") for one in Path(checklist.__file__).parent.glob("*.py"))
    named = {part.split('"')[0] for part in source.split('action="')[1:]} - {""}
    assert named
    assert named <= set(registry.find().by_name)
    types: Mapping[str, str] = {name: registry.find().by_name[name].TARGET for name in named}
    assert "" not in types.values()
