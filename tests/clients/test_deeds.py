"""Deeds of fixes on files and programs of a test: what is refused, done, kept and put back; as root and as a user."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.clients import deeds, host_files
from console.clients.deeds import do, put_back, trouble
from console.clients.tree import MAX_TEXT
from console.core.finding import Deed, Fix
from console.core.model import SourceError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="wants root, to be several users")
NOBODY = 65534


def fix(*does: Deed, back: tuple[Deed, ...] = ()) -> Fix:
    return Fix("P", (), deeds=does, back=back)


def write(path: Path | str, text: str = "new\n", *, root: bool = True) -> Deed:
    return Deed("write", path=str(path), text=text, root=root)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def kept(folder: Path, one: Fix) -> deeds.Kept:
    """What is kept of what it touches."""
    deeds.keep(folder / "kept", "a", "T01", one)
    found = deeds.kept(folder / "kept", "a")
    assert found is not None
    return found


@pytest.fixture
def umask() -> Iterator[None]:
    """That of the runner's process."""
    before = os.umask(0o077)
    yield
    os.umask(before)


# ----------------------------------------------------------------------------------------------------------- the words


def test_what_a_person_would_type() -> None:
    assert deeds.shown(Deed("run", ("systemctl", "restart", "a b"))) == "sudo systemctl restart 'a b'"
    assert deeds.shown(Deed("run", ("true",), root=False)) == "true"
    assert deeds.shown(Deed("mode", path="/a b", mode=0o644)) == "sudo chmod 0644 '/a b'"
    assert deeds.shown(Deed("move", path="/a", text="/b", root=False)) == "mv /a /b"
    assert deeds.shown(write("/etc/x")) == "write /etc/x"


def test_each_path_once_and_both_of_a_move() -> None:
    told = (write("/a"), Deed("mode", path="/a"), Deed("move", path="/a", text="/b"), Deed("run", ("x",), path="/c"))
    assert deeds.touched(told) == ("/a", "/b", "/c")


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "deed",
    [
        Deed("run"),
        Deed("run", ("true", "a\0b")),
        Deed("run", ("true", "\udcff")),
        write("-rf"),
        write("etc/x"),
        write("/etc/../etc/x"),
        write("/etc/x/"),
        write("//etc/x"),
        write("/"),
        write("/etc/x", "\udcff"),
        Deed("mode", path="--reference=/etc/shadow"),
        Deed("move", path="/tmp/nothing", text="-t"),
    ],
    ids=str,
)
def test_a_deed_that_is_none_is_neither_planned_nor_done(deed: Deed) -> None:
    assert trouble(fix(deed))
    assert trouble(fix(back=(deed,)))
    with pytest.raises(SourceError):
        do(deed)


def test_a_program_that_is_not_here(tmp_path: Path) -> None:
    gone = Deed("run", ("gpuconsole-no-such-program", "x"))
    assert trouble(fix(write(tmp_path / "a"), gone)) == "gpuconsole-no-such-program is not installed"
    with pytest.raises(SourceError) as caught:
        do(gone)
    assert not deeds.was_started(caught.value)


def test_links_folders_and_large_files_are_left_alone(tmp_path: Path) -> None:
    link, large = tmp_path / "link", tmp_path / "large"
    link.symlink_to(tmp_path / "there")
    large.write_bytes(b"x" * (host_files.LARGEST + 1))
    assert trouble(fix(write(link))) == f"{link} is a link: change by hand what it leads to"
    assert "is a link" in trouble(fix(Deed("mode", path=str(link))))
    assert trouble(fix(Deed("move", path=str(tmp_path), text="/nowhere"))) == f"{tmp_path} is no plain file"
    assert "larger than 1024 KiB" in trouble(fix(Deed("run", ("true",), path=str(large))))
    for deed in (write(link), write(tmp_path)):
        with pytest.raises(SourceError, match="is no plain file"):
            do(deed)
    assert not (tmp_path / "there").exists()


def test_a_file_of_which_only_the_beginning_is_known(tmp_path: Path) -> None:
    """A check saw its first 256 KiB: writing these would cut it."""
    long = tmp_path / "long"
    long.write_bytes(b"x" * (MAX_TEXT + 1))
    assert "has more than 256 KiB" in trouble(fix(write(long)))
    assert trouble(fix(Deed("run", ("true",), path=str(long)))) == ""
    long.write_bytes(b"x" * MAX_TEXT)
    assert trouble(fix(write(long))) == ""


def test_what_is_masked_in_the_facts_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "proxy.env"
    file.write_text("# *** ours ***\nHF_TOKEN=hf_1234567\n")
    assert trouble(fix(write(file, "# *** ours ***\nHF_TOKEN=***\nX=1\n"))) == (
        f"{file} holds secrets, which are masked here: change it by hand"
    )
    assert trouble(fix(write(file, "# *** ours ***\nX=1\n"))) == ""
    assert "masked" in trouble(fix(write(tmp_path / "other", "TOKEN=***\n")))
    assert "masked" in trouble(fix(Deed("run", ("true", "--password=***"))))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "latin1"
    file.write_bytes(b"gr\xfc\xdfe\n")
    assert trouble(fix(write(file))) == f"{file} is no UTF-8 text: change it by hand"


@as_root
def test_a_folder_that_another_user_can_bend(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    bent = tmp_path / "bent"
    bent.symlink_to(tmp_path / "real")
    assert trouble(fix(write(bent / "file"))) == ""
    os.chown(bent, NOBODY, NOBODY, follow_symlinks=False)
    assert trouble(fix(write(bent / "file"))).startswith(f"{bent} is a link of another user's")


# ---------------------------------------------------------------------------------------------------------------- doing


def test_a_new_file_comes_with_its_folders_open_to_all(tmp_path: Path, umask: None) -> None:
    file = tmp_path / "a" / "b" / "file.conf"
    assert do(write(file)) == ""
    assert file.read_text() == "new\n"
    assert [mode_of(one) for one in (file, file.parent, file.parent.parent)] == [0o644, 0o755, 0o755]


@as_root
def test_a_file_written_anew_keeps_mode_and_owner(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o600)
    os.chown(file, NOBODY, 12)
    do(write(file))
    assert (file.read_text(), mode_of(file), file.stat().st_uid, file.stat().st_gid) == ("new\n", 0o600, NOBODY, 12)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@as_root
def test_roots_new_file_is_roots_and_a_users_is_the_users(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, 12)
    do(write(home / ".config" / "x", root=False))
    do(write(home / "y"))
    assert [(one.stat().st_uid, one.stat().st_gid) for one in (home / ".config", home / ".config" / "x")] == [
        (NOBODY, 12),
        (NOBODY, 12),
    ]
    assert (home / "y").stat().st_uid == 0


def test_programs_run_with_the_umask_of_a_system(tmp_path: Path, umask: None) -> None:
    do(Deed("run", ("touch", str(tmp_path / "made"))))
    assert mode_of(tmp_path / "made") == 0o644


def test_modes_and_moves(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    do(Deed("mode", path=str(one), mode=0o640))
    assert mode_of(one) == 0o640
    move = Deed("move", path=str(one), text=str(two))
    assert do(move) == ""
    assert (one.exists(), two.read_text()) == (False, "1")
    assert do(move) == "it was moved already"  # as when an interrupted fix is finished
    two.unlink()
    with pytest.raises(SourceError, match=r"mv -f -T -- .* ended with 1: "):
        do(move)


def test_a_mode_is_given_to_no_link_that_came_meanwhile(tmp_path: Path) -> None:
    """Whoever may write to the folder could have root open another's file with it."""
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("secret")
    there.chmod(0o600)
    link.symlink_to(there)
    with pytest.raises(SourceError, match="is a link"):
        do(Deed("mode", path=str(link), mode=0o644))
    with pytest.raises(SourceError, match=r"none cannot be given mode 0644: No such file"):
        do(Deed("mode", path=str(tmp_path / "none"), mode=0o644))
    assert mode_of(there) == 0o600


def test_what_a_program_says_and_how_it_ends() -> None:
    assert do(Deed("run", ("sh", "-c", "echo first; echo last"))) == "last"
    with pytest.raises(SourceError, match=r"ended with 3: no good$"):
        do(Deed("run", ("sh", "-c", "echo no good >&2; exit 3")))
    with pytest.raises(SourceError, match=r"sleep did not end within 0\.1 s") as caught:
        do(Deed("run", ("sleep", "5"), seconds=0.1))
    assert deeds.was_started(caught.value)


# -------------------------------------------------------------------------------------------------- keeping, going back


def test_what_was_there_comes_back(tmp_path: Path) -> None:
    old, new, hook, folder = (tmp_path / name for name in ("old", "new", "hook", "folder"))
    old.write_bytes(b"\xff\0old")
    old.chmod(0o600)
    hook.write_bytes(b"x" * (host_files.LARGEST + 9))  # only its mode is touched: its content need not fit
    hook.chmod(0o644)
    folder.mkdir(mode=0o700)
    does = (
        Deed("move", path=str(old), text=str(tmp_path / "old.off")),
        write(new),
        Deed("mode", path=str(hook), mode=0o755),
        Deed("mode", path=str(folder), mode=0o755),
    )
    was = kept(tmp_path, fix(*does))
    assert mode_of(tmp_path / "kept" / "a.json") == 0o600
    for deed in does:
        do(deed)
    before = hook.stat().st_ino
    assert put_back(was) == ()
    assert (old.read_bytes(), mode_of(old)) == (b"\xff\0old", 0o600)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "hook", "kept", "old"]
    assert (mode_of(hook), hook.stat().st_ino, mode_of(folder)) == (0o644, before, 0o700)


def test_what_is_as_it_was_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    was = kept(tmp_path, fix(write(file)))
    before = file.stat()
    assert put_back(was) == ()
    assert (file.stat().st_ino, file.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


@as_root
def test_the_owner_comes_back_too(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    os.chown(file, NOBODY, 12)
    was = kept(tmp_path, fix(Deed("run", ("true",), path=str(file))))
    file.unlink()
    file.write_text("old")
    assert put_back(was) == ()
    assert (file.stat().st_uid, file.stat().st_gid) == (NOBODY, 12)


def test_all_is_tried_and_each_failure_told(tmp_path: Path) -> None:
    one, two, mark = tmp_path / "one", tmp_path / "two", tmp_path / "mark"
    two.write_text("old")
    back = (Deed("run", ("false",)), Deed("run", ("touch", str(mark))))
    was = kept(tmp_path, fix(write(one), write(two), back=back))
    one.mkdir()
    two.write_text("new")
    assert put_back(was) == (f"{one} is no plain file any more", "false ended with 1")
    assert (two.read_text(), mark.exists()) == ("old", True)
    moded = kept(tmp_path, fix(Deed("mode", path=str(two))))
    two.unlink()
    two.symlink_to(tmp_path)
    assert put_back(moded) == (f"{two} is a link: change by hand what it leads to",)
    mark.unlink()
    assert put_back(was, programs=False) == (f"{one} is no plain file any more",)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["", ".a", "../kept/a", "no", "a\0", "broken"])
def test_a_kept_state_that_is_none(tmp_path: Path, name: str) -> None:
    kept(tmp_path, fix(write(tmp_path / "x")))
    (tmp_path / "kept" / "broken.json").write_text("{")
    (tmp_path / "kept" / ".a.json").write_text((tmp_path / "kept" / "a.json").read_text())
    assert deeds.kept(tmp_path / "kept", name) is None


def test_the_digest_tells_content_mode_and_absence_apart(tmp_path: Path) -> None:
    file = tmp_path / "file"
    told = [deeds.digest([str(file)])]
    file.write_text("")
    told.append(deeds.digest([str(file)]))
    file.write_text("1")
    told.append(deeds.digest([str(file)]))
    file.write_text("2")
    told.append(deeds.digest([str(file)]))
    file.chmod(0o600)
    told.append(deeds.digest([str(file)]))
    file.unlink()
    file.symlink_to("/dev/null")
    told.append(deeds.digest([str(file)]))
    assert len(set(told)) == len(told)
    assert deeds.digest([str(file)]) == told[-1]


# ------------------------------------------------------------------------------------------------------ as a plain user


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-deeds-", dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def sudo(public: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `sudo` that writes down what it is asked; its file `says` in the same folder ends it with these words."""
    if os.geteuid() != 0:
        pytest.skip("wants root, to be several users")
    folder = public / "bin"
    folder.mkdir()
    # bash gives itself the rights of its real user, who is root in `user` below
    (folder / "sudo").write_text(
        f"""#!/bin/bash
echo "$*" >> {folder}/asked
test -e {folder}/says && {{ cat {folder}/says >&2; exit 1; }}
test "$1 $2" = "-n --" && shift 2 && exec "$@"
"""
    )
    (folder / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@contextlib.contextmanager
def user() -> Iterator[None]:
    """A plain user, as far as the kernel's rights go."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def asked(folder: Path) -> list[str]:
    """The commands that sudo was asked for."""
    lines = (folder / "asked").read_text().splitlines() if (folder / "asked").exists() else []
    assert all(line.startswith("-n -- timeout --kill-after=5 ") for line in lines), lines
    return [line.split(" ", 5)[5] for line in lines]


def test_sudo_is_asked_only_for_what_needs_root(sudo: Path) -> None:
    with user():
        assert trouble(fix(Deed("run", ("true",), root=False))) == ""
        assert asked(sudo) == []
        assert trouble(fix(Deed("run", ("true",)))) == ""
        assert asked(sudo) == ["true"]
        assert trouble(fix(Deed("mode", path=str(sudo / "sudo"), mode=0o755))) == ""
        do(Deed("mode", path=str(sudo / "sudo"), mode=0o755))
    assert asked(sudo) == ["true", "true", f"chmod -- 0755 {sudo / 'sudo'}"]


def test_sudo_gives_no_mode_to_a_link(sudo: Path, public: Path) -> None:
    (public / "link").symlink_to(sudo / "sudo")
    with user(), pytest.raises(SourceError, match="is a link"):
        do(Deed("mode", path=str(public / "link"), mode=0o777))
    assert mode_of(sudo / "sudo") == 0o755
    assert asked(sudo) == []


def test_sudo_that_wants_a_password_or_is_not_here(sudo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sudo / "says").write_text("sudo: a password is required\n")
    one = fix(Deed("run", ("true",)))
    with user():
        assert (
            trouble(one) == "it needs root, and sudo -n is refused here: copy the commands, or start gpuconsole as root"
        )
        assert trouble(fix(back=one.deeds)) == trouble(one)
        with pytest.raises(SourceError, match="true ended with 1: sudo: a password is required"):
            do(one.deeds[0])
    (sudo / "sudo").unlink()
    with user():
        assert "it needs root, and sudo is not installed" in trouble(one)
    assert trouble(one) == ""


def test_a_file_of_roots_is_read_kept_written_and_put_back(sudo: Path, public: Path) -> None:
    secret = public / "secret"
    secret.mkdir(mode=0o700)
    file, fresh = secret / "file", secret / "sub" / "fresh"
    file.write_text("old")
    file.chmod(0o640)
    os.chown(file, 0, 12)
    (public / "kept").mkdir(mode=0o777)
    (public / "kept").chmod(0o777)
    does = fix(write(file), write(fresh))
    with user():
        assert trouble(does) == ""
        was = kept(public, does)
        before = deeds.digest([str(file)])
        for deed in does.deeds:
            do(deed)
        assert deeds.digest([str(file)]) != before
    assert (file.read_text(), mode_of(file), file.stat().st_gid, file.stat().st_uid) == ("new\n", 0o640, 12, 0)
    assert (fresh.read_text(), mode_of(fresh), mode_of(fresh.parent)) == ("new\n", 0o644, 0o755)
    with user():
        assert put_back(was) == ()
        assert deeds.digest([str(file)]) == before
    assert (file.read_text(), mode_of(file), file.stat().st_gid, fresh.exists()) == ("old", 0o640, 12, False)
    assert sorted(one.name for one in secret.rglob("*")) == ["file", "sub"]


def test_what_cannot_be_read_even_so_is_left_alone(sudo: Path, public: Path) -> None:
    secret = public / "secret"
    secret.mkdir(mode=0o700)
    (secret / "file").write_text("old")
    (secret / "file").chmod(0o600)
    shut = public / "shut"
    shut.write_text("old")
    shut.chmod(0o600)
    (sudo / "says").write_text("sudo: not allowed\n")
    with user():
        for path in (secret / "file", shut):
            with pytest.raises(SourceError, match="Permission denied"):
                deeds.keep(public / "kept", "a", "T01", fix(write(path)))
        assert deeds.digest([str(shut)]) == deeds.digest([str(shut)])


def test_a_users_own_file_never_goes_through_sudo(sudo: Path, public: Path) -> None:
    home = public / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    roots = home / "roots"
    roots.write_text("old")
    own = write(home / ".config" / "x", root=False)
    with user():
        assert trouble(fix(own)) == ""
        do(own)
        assert trouble(fix(write(roots, root=False))) == f"you may not write to {roots}"
        with pytest.raises(SourceError, match="you may not write"):
            do(write(roots, root=False))
        with pytest.raises(SourceError, match="you may not remove"):
            host_files.remove(str(public / "nothing"), root=False)
    assert asked(sudo) == []
    assert (home / ".config" / "x").stat().st_uid == NOBODY
    assert roots.read_text() == "old"


def test_a_half_written_file_is_not_left_beside(sudo: Path, public: Path) -> None:
    file = public / "file"
    file.write_text("old")
    mv = sudo / "mv"
    mv.write_text("#!/bin/sh\nexit 1\n")
    mv.chmod(0o755)
    with user(), pytest.raises(SourceError, match=r"mv .* ended with 1"):
        do(write(file))
    assert file.read_text() == "old"
    assert [one.name for one in public.iterdir() if one.name.startswith(".")] == []


def test_roots_program_that_does_not_end(sudo: Path) -> None:
    with user(), pytest.raises(SourceError, match=r"^sleep 30 did not end within 0\.2 s$") as caught:
        do(Deed("run", ("sleep", "30"), seconds=0.2))
    assert caught.value.kind == "timeout"


def test_a_process_that_may_not_be_killed_is_told_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refused)
    with pytest.raises(SourceError, match="sleep did not end in time, and goes on"):
        do(Deed("run", ("sleep", "1"), seconds=0.05))
