"""B01, B14 to B16: Podman's version, leftovers of older guides, the OCI runtime."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from console.checks import runtime as checks
from console.core.facts import AnswerFact, FileFact
from console.core.finding import Deed, Finding
from tests.checks import cdi_told as box
from tests.checks.cdi_told import NO_BUS, NO_GPU, NOT_ASKED, ROOT, USER, files, ping
from tests.checks.needed import Judge, finding
from tests.checks.told import ABSENT

ETC, HOME = "/etc/containers/containers.conf", "/home/ana/.config/containers/containers.conf"


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    *,
    answers: dict[str, Any] | None = None,
    commands: dict[str, Any] | None = None,
    variables: dict[str, tuple[str, ...]] | None = None,
) -> Finding:
    told = {"@podman.ping": ping(), "@podman.info": info(), **(answers or {})}
    return finding(judge, files(changes), commands, told, None, variables or ROOT)


def info(runtime: Any = "runc") -> dict[str, Any]:
    return {"host": {"ociRuntime": {"name": runtime}}}


# ----------------------------------------------------------------------------------------------------------------- B01


@pytest.mark.parametrize(
    ("version", "cards", "sign", "text"),
    [
        ("4.9.4-rhel", True, "ok", "Podman 4.9.4-rhel, CDI up to 0.6"),
        ("5.4.0", True, "ok", "CDI up to 0.8"),
        ("4.3.1", True, "warn", "Podman 4.3.1 is older than 4.9 and reads CDI up to 0.5"),
        ("3.4.4", True, "fail", "Podman 3.4.4 knows no CDI names"),
        ("4.0.3", True, "fail", "knows no CDI names"),
        ("3.4.4", False, "note", "older than 4.9"),
    ],
)
def test_version(version: str, cards: bool, sign: str, text: str) -> None:
    found = look(checks.podman_version, answers={"@podman.ping": ping(version)}, variables=ROOT if cards else NO_GPU)
    assert (found.sign, text in found.text) == (sign, True), found.text
    assert found.data["version"] == version


@pytest.mark.parametrize(
    ("here", "said", "variables", "sign", "text"),
    [
        (True, {"podman --version": "podman version 4.9.4\n"}, ROOT, "ok", "Podman 4.9.4"),
        (True, {"podman --version": "\x00garbage"}, ROOT, "unknown", "does not tell its version"),
        (True, {}, ROOT, "unknown", "does not tell its version"),
        (False, {}, ROOT, "fail", "Podman is not installed"),
        (False, {}, NO_GPU, "none", "Podman is not installed"),
        (False, {}, NO_BUS, "unknown", "the PCI bus"),
    ],
)
def test_version_without_the_service(
    here: bool, said: dict[str, Any], variables: dict[str, Any], sign: str, text: str
) -> None:
    found = look(
        checks.podman_version,
        {} if here else {"/usr/bin/podman": ABSENT},
        answers={"@podman.ping": NOT_ASKED},
        commands=said,
        variables=variables,
    )
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_how_podman_is_installed_here() -> None:
    gone = {"/usr/bin/podman": ABSENT}
    fix = look(checks.podman_version, gone, answers={"@podman.ping": NOT_ASKED}).fix
    assert (fix and fix.commands) == ("sudo dnf -y install podman",)
    gone["/etc/os-release"] = box.DEBIAN  # type: ignore[assignment]
    fix = look(checks.podman_version, gone, answers={"@podman.ping": NOT_ASKED}).fix
    assert (fix and fix.commands) == ("sudo apt-get install -y podman",)


# ----------------------------------------------------------------------------------------------------------------- B14

HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
HOOK_TEXT = '{\n "hook": {\n  "path": "/usr/bin/nvidia-container-toolkit"\n }\n}\n'


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        ({}, "ok", "none"),
        ({HOOK: HOOK_TEXT}, "warn", f"{HOOK} runs beside CDI"),
        ({HOOK: '{"hook": {"path": "/usr/bin/oci-umount"}}'}, "ok", "none"),
        ({HOOK: "\x00\xff"}, "ok", "none"),
        ({HOOK: FileFact("file", why="permission denied")}, "warn", "runs beside CDI"),
        ({"/etc/containers/oci": FileFact("unknown", why="permission denied")}, "unknown", "permission denied"),
        ({"/etc/containers/oci": FileFact("unknown", why="denied"), HOOK: HOOK_TEXT}, "warn", HOOK),
    ],
)
def test_legacy_hook(changes: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.legacy_hook, changes)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_the_hook_is_moved_away() -> None:
    found = look(checks.legacy_hook, {HOOK: HOOK_TEXT})
    assert found.fix is not None
    assert found.fix.deeds == (Deed("move", path=HOOK, text=f"{HOOK}.off"),)
    assert (found.evidence[0].where, found.fix.kind) == (f"{HOOK}:3", "P")
    assert look(checks.legacy_hook, {HOOK: HOOK_TEXT}, variables=NO_GPU).sign == "none"


# ----------------------------------------------------------------------------------------------------------------- B15


@pytest.mark.parametrize(
    ("conf", "wrapper", "sign", "text"),
    [
        ('[engine]\nruntime = "crun"\n', False, "ok", "none"),
        ('[engine]\n# runtime = "nvidia"\n', False, "ok", "none"),
        ('[engine]\nruntime = "nvidia"\n', False, "fail", "the default runtime nvidia is not here"),
        ('[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["/x"]\n', False, "fail", "is not here"),
        (
            '[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["/x"]\n',
            True,
            "warn",
            "makes nvidia the default",
        ),
        ('[engine.runtimes]\nnvidia = ["/usr/bin/nvidia-container-runtime"]\n', True, "warn", "still names it"),
        ("[engine\nruntime = ", False, "warn", "is no TOML"),
        ("\x00\xff" * 99, False, "warn", "is no TOML"),
        ("engine = 5\n", False, "ok", "none"),
        (FileFact("file", why="permission denied"), False, "unknown", "permission denied"),
    ],
)
def test_nvidia_runtime(conf: Any, wrapper: bool, sign: str, text: str) -> None:
    more = {"/usr/bin/nvidia-container-runtime": box.PROGRAM} if wrapper else {}
    found = look(checks.nvidia_runtime, {ETC: conf, **more})
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_the_line_becomes_a_comment_and_nothing_else_changes() -> None:
    conf = '[containers]\nlog_size_max = 5\n[engine]\n  runtime = "nvidia" # old\nevents_logger = "journald"\n'
    found = look(checks.nvidia_runtime, {ETC: conf})
    assert found.evidence[0].where == f"{ETC}:4"
    assert found.fix is not None
    (deed,) = found.fix.deeds
    assert (deed.kind, deed.path, deed.root) == ("write", ETC, True)
    assert tomllib.loads(deed.text) == {"containers": {"log_size_max": 5}, "engine": {"events_logger": "journald"}}
    assert '#  runtime = "nvidia" # old' in deed.text
    assert (found.fix.commands[0], found.fix.undo) == (f"sudo sed -i '4s/^/#/' {ETC}", f"sudo sed -i '4s/^#//' {ETC}")
    twice = '[engine]\nruntime = "nvidia"\n[other]\nruntime = "x"\n'
    found = look(checks.nvidia_runtime, {ETC: twice})
    assert (found.fix and (found.fix.kind, found.fix.deeds)) == ("S", ())
    spread = '[engine.runtimes]\nnvidia = [\n "/usr/bin/nvidia-container-runtime",\n]\n'
    found = look(checks.nvidia_runtime, {ETC: spread})
    assert (found.fix and found.fix.kind) == "S"


def test_the_users_file_wins() -> None:
    changes = {ETC: '[engine]\nruntime = "nvidia"\n', HOME: '[engine]\nruntime = "crun"\n'}
    assert look(checks.nvidia_runtime, changes, variables=USER).sign == "ok"
    assert look(checks.nvidia_runtime, changes, variables=ROOT).sign == "fail"
    changes = {HOME: '[engine]\nruntime = "nvidia"\n'}
    fix = look(checks.nvidia_runtime, changes, variables=USER).fix
    assert fix is not None
    assert not fix.deeds[0].root
    assert look(checks.nvidia_runtime, changes, variables=NO_GPU).sign == "none"


# ----------------------------------------------------------------------------------------------------------------- B16

SHUT = {"/dev/nvidia0": FileFact("char", mode=0o660, uid=0, gid=44)}


@pytest.mark.parametrize(
    ("changes", "runtime", "rootless", "sign", "text"),
    [
        ({}, "runc", False, "ok", "runc, rootful"),
        (SHUT, "runc", False, "ok", "runc, rootful"),
        ({}, "runc", True, "ok", "runc, rootless"),
        (SHUT, "crun", True, "ok", "crun, which can keep groups"),
        (SHUT, "runc", True, "warn", "runc cannot keep groups, /dev/nvidia0 is 0660 0:44"),
        ({}, None, True, "unknown", "does not tell its runtime"),
        ({}, 5, True, "unknown", "does not tell its runtime"),
    ],
)
def test_oci_runtime(changes: dict[str, Any], runtime: Any, rootless: bool, sign: str, text: str) -> None:
    answers = {"@podman.info": info(runtime), "@podman.ping": ping(rootless=rootless)}
    found = look(checks.oci_runtime, changes, answers=answers, variables=USER)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_oci_runtime_without_an_answer() -> None:
    silent = {"@podman.ping": NOT_ASKED, "@podman.info": AnswerFact(why="refused", settle="podman info")}
    found = look(checks.oci_runtime, answers=silent)
    assert (found.sign, found.settle) == ("unknown", "podman info")
    assert look(checks.oci_runtime, {"/usr/bin/podman": ABSENT}, answers=silent).sign == "none"


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (None, '[engine]\nruntime = "crun"\n'),
        ("[engine]\nx = 1\n", '[engine]\nruntime = "crun"\nx = 1\n'),
        ("[network]\ny = 1", '[network]\ny = 1\n[engine]\nruntime = "crun"\n'),
    ],
)
def test_crun_is_set_for_the_user(text: str | None, new: str) -> None:
    answers = {"@podman.ping": ping(rootless=True)}
    changes: dict[str, Any] = {**SHUT, "/usr/bin/crun": box.PROGRAM, HOME: text}
    fix = look(checks.oci_runtime, changes, answers=answers, variables=USER).fix
    assert fix is not None
    assert (fix.kind, fix.deeds) == ("P", (Deed("write", path=HOME, text=new, root=False),))
    changes[HOME] = '[engine]\nruntime = "runc"\n'
    fix = look(checks.oci_runtime, changes, answers=answers, variables=USER).fix
    assert (fix and (fix.kind, fix.deeds)) == ("S", ())
    changes |= {HOME: text, "/usr/bin/crun": ABSENT}
    fix = look(checks.oci_runtime, changes, answers=answers, variables=USER).fix
    assert fix is not None
    assert (fix.commands[0], fix.deeds) == ("sudo dnf -y install crun", ())
