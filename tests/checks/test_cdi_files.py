"""B02 to B05, B11: the toolkit, and spec files that Podman finds, may read and accepts."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks import cdi_files as checks
from console.core.facts import CommandFact, FileFact
from console.core.finding import Deed, Finding
from tests.checks import cdi_told as box
from tests.checks.cdi_told import NO_BUS, NO_GPU, NOT_ASKED, ROOT, STATIC, USER, VOLATILE, files, ping, spec
from tests.checks.needed import Judge, finding
from tests.checks.told import ABSENT, folder

GARBAGE = "\x00\x7f{ [" * 50
DENIED = FileFact("file", mode=0o600, uid=0, gid=0, why="permission denied")


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    *,
    commands: dict[str, Any] | None = None,
    podman: Any = None,
    variables: dict[str, tuple[str, ...]] | None = None,
    me: int = 0,
) -> Finding:
    answers = {"@podman.ping": ping() if podman is None else podman, "@me": {"uid": me}}
    return finding(judge, files(changes), box.CTK if commands is None else commands, answers, None, variables or ROOT)


@pytest.mark.parametrize(
    "judge",
    [checks.toolkit_installed, checks.spec_exists, checks.spec_readable, checks.spec_version, checks.defined_once],
)
def test_no_card_no_answer(judge: Judge) -> None:
    assert look(judge, variables=NO_GPU).sign == "none"
    assert look(judge, variables=NO_BUS).sign == "unknown"
    assert look(judge).sign == "ok"


# ----------------------------------------------------------------------------------------------------------------- B02


@pytest.mark.parametrize(
    ("changes", "version", "sign", "text"),
    [
        ({}, "1.17.8", "ok", "toolkit 1.17.8"),
        ({"/usr/bin/nvidia-ctk": ABSENT}, "1.17.8", "fail", "nvidia-ctk is not installed"),
        ({box.HOOK: ABSENT}, "1.17.8", "warn", "toolkit 1.17.8 without /usr/bin/nvidia-cdi-hook"),
        ({box.HOOK: ABSENT}, "1.14.3", "ok", "toolkit 1.14.3"),
        ({}, "1.17.0", "warn", "1.17.0: its hook can end with 1"),
        ({}, "", "unknown", "does not tell its version"),
        ({}, "9" * 5000, "unknown", "does not tell its version"),
    ],
)
def test_toolkit(changes: dict[str, Any], version: str, sign: str, text: str) -> None:
    found = look(checks.toolkit_installed, changes, commands={"nvidia-ctk --version": f"CLI version {version}\n"})
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_how_the_toolkit_is_installed_here() -> None:
    found = look(checks.toolkit_installed, {"/usr/bin/nvidia-ctk": ABSENT})
    assert found.fix is not None
    assert found.fix.kind == "S"
    assert found.fix.commands[-1] == "sudo dnf -y install nvidia-container-toolkit-base"
    found = look(checks.toolkit_installed, {"/usr/bin/nvidia-ctk": ABSENT, "/etc/os-release": box.DEBIAN})
    assert found.fix is not None
    assert "signed-by" in found.fix.commands[1]
    assert found.fix.commands[-1] == "sudo apt-get install -y nvidia-container-toolkit-base"


def test_a_toolkit_that_hangs() -> None:
    found = look(checks.toolkit_installed, commands={"nvidia-ctk --version": CommandFact(why="timed out")})
    assert (found.sign, found.settle) == ("unknown", "nvidia-ctk --version")


# ----------------------------------------------------------------------------------------------------------------- B03


@pytest.mark.parametrize(
    ("changes", "podman", "sign", "text"),
    [
        ({}, "4.9.4", "ok", STATIC),
        ({STATIC: None, VOLATILE: spec()}, "4.9.4", "ok", VOLATILE),
        ({STATIC: None}, "4.9.4", "fail", "no CDI spec for nvidia.com/gpu in /etc/cdi and /var/run/cdi"),
        ({STATIC: spec(kind="amd.com/gpu")}, "4.9.4", "fail", "/var/run/cdi, only for amd.com/gpu"),
        ({STATIC: GARBAGE}, "4.9.4", "fail", "nvidia.yaml is no CDI spec: it is no YAML"),
        ({STATIC: ""}, "4.9.4", "fail", "is no CDI spec: it names no kind"),
        ({STATIC: DENIED}, "4.9.4", "unknown", "could not be read"),
        ({"/etc/cdi": FileFact("dir", why="permission denied"), STATIC: None}, "4.9.4", "unknown", "permission denied"),
        ({STATIC: None, VOLATILE: spec()}, "5.5.1", "fail", "Podman 5.5.1 looks only in /etc/cdi"),
        ({STATIC: None, VOLATILE: spec()}, "5.6.0", "ok", VOLATILE),
    ],
)
def test_spec_exists(changes: dict[str, Any], podman: str, sign: str, text: str) -> None:
    found = look(checks.spec_exists, changes, podman=ping(podman))
    assert (found.sign, text in found.text) == (sign, True), found.text


@pytest.mark.parametrize(
    ("dirs", "podman", "sign", "text"),
    [
        ('["/opt/cdi"]', "5.6.0", "fail", "looks only in /opt/cdi"),
        ('["/opt/cdi"]', "5.4.2", "ok", STATIC),
        ('["/etc/cdi", "/run/cdi/"]', "5.5.2", "ok", STATIC),
        ("5", "5.6.0", "ok", STATIC),
        ("[", "5.6.0", "ok", STATIC),
    ],
)
def test_folders_that_containers_conf_names(dirs: str, podman: str, sign: str, text: str) -> None:
    conf = f"[engine]\ncdi_spec_dirs = {dirs}\n"
    found = look(checks.spec_exists, {"/etc/containers/containers.conf": conf}, podman=ping(podman))
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_folder_elsewhere_was_not_looked_at() -> None:
    conf = '[engine]\ncdi_spec_dirs = ["/opt/cdi"]\n'
    found = look(checks.spec_exists, {"/etc/containers/containers.conf": conf, STATIC: None}, podman=ping("5.6.0"))
    assert (found.sign, "sends Podman to /opt/cdi" in found.text) == ("unknown", True)


def deeds(found: Finding) -> list[tuple[str, ...]]:
    assert found.fix is not None
    return [deed.argv for deed in found.fix.deeds if deed.kind == "run"]


def test_a_spec_is_made_by_the_service_where_there_is_one() -> None:
    found = look(checks.spec_exists, {STATIC: None})
    assert deeds(found) == [("nvidia-ctk", "cdi", "generate", f"--output={STATIC}")]
    found = look(checks.spec_exists, {STATIC: None, box.REFRESH: box.REFRESH_TEXT})
    assert deeds(found) == [("systemctl", "restart", "nvidia-cdi-refresh.service")]
    assert found.fix is not None
    assert found.fix.deeds[0].path == VOLATILE
    found = look(checks.spec_exists, {STATIC: None, "/usr/bin/nvidia-ctk": ABSENT})
    assert (found.fix is not None and found.fix.kind) == "S"


def test_a_new_toolkit_is_told_to_write_what_an_old_podman_reads() -> None:
    new = {"nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.19.1"}
    found = look(checks.spec_exists, {STATIC: None}, commands=new)
    assert deeds(found)[0][3:5] == ("--feature-flag", "no-additional-gids-for-device-nodes")
    assert len(deeds(look(checks.spec_exists, {STATIC: None}, commands=new, podman=ping("5.4.0")))[0]) == 4
    found = look(checks.spec_exists, {STATIC: None, box.REFRESH: box.REFRESH_TEXT}, commands=new)
    assert found.fix is not None
    assert found.fix.kind == "P"
    assert found.fix.deeds[0].text == ("NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes\n")


# ----------------------------------------------------------------------------------------------------------------- B04


@pytest.mark.parametrize(
    ("changes", "rootless", "me", "sign", "text"),
    [
        ({}, True, 0, "ok", "/etc/cdi/nvidia.yaml is 0644"),
        ({}, None, 0, "ok", "/etc/cdi/nvidia.yaml is 0644"),
        ({STATIC: FileFact("file", spec(), mode=0o600, uid=0, gid=0)}, True, 0, "fail", "0600: ana may not read it"),
        ({STATIC: FileFact("file", spec(), mode=0o600, uid=0, gid=0)}, False, 0, "ok", "root reads any mode"),
        ({STATIC: FileFact("file", spec(), mode=0o600, uid=0, gid=0)}, None, 0, "unknown", "whether ana may read"),
        ({STATIC: FileFact("file", spec(), mode=0o600, uid=1000, gid=0)}, True, 0, "ok", "0600"),
        ({STATIC: FileFact("file", spec(), mode=0o640, uid=0, gid=44)}, True, 0, "unknown", "whether ana may read"),
        ({STATIC: FileFact("file", spec(), mode=0o640, uid=0, gid=44)}, True, 1000, "ok", "0640"),
        ({STATIC: DENIED}, True, 1000, "fail", "0600: ana may not read it"),
        ({"/etc/cdi": FileFact("dir", mode=0o700, uid=0, gid=0, why="permission denied"), STATIC: None}, True, 1000,
         "fail", "/etc/cdi is 0700: ana may not read it"),
        ({STATIC: FileFact("file", spec(), mode=0o600, uid=0, gid=0), VOLATILE: spec()}, True, 0,
         "warn", "another spec it may"),
        ({STATIC: None}, True, 0, "none", "no CDI spec"),
        ({STATIC: GARBAGE}, True, 0, "none", "no CDI spec"),
    ],
)  # fmt: skip
def test_readable(changes: dict[str, Any], rootless: bool | None, me: int, sign: str, text: str) -> None:
    found = look(checks.spec_readable, changes, podman=ping(rootless=rootless), variables=USER, me=me)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_mode_is_mended_for_file_and_folder() -> None:
    closed = {"/etc/cdi": FileFact("dir", mode=0o700, uid=0, gid=0, names=("nvidia.yaml",)), STATIC: spec()}
    found = look(checks.spec_readable, closed, podman=ping(rootless=True), variables=USER)
    assert found.fix is not None
    assert (found.fix.kind, found.fix.commands) == ("B", ("sudo chmod 0755 /etc/cdi",))
    assert found.fix.deeds == (Deed("mode", path="/etc/cdi", mode=0o755),)
    assert found.fix.undo == "sudo chmod 0700 /etc/cdi"


# ----------------------------------------------------------------------------------------------------------------- B05

ENV = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
FLAG = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"


@pytest.mark.parametrize(
    ("changes", "podman", "sign", "text"),
    [
        ({}, "4.9.4", "ok", "CDI 0.5.0, Podman 4.9.4 reads up to 0.6"),
        ({STATIC: spec(cdi="0.7.0", gids=True)}, "4.9.4", "fail", "is of CDI 0.7.0, Podman 4.9.4 reads up to 0.6"),
        ({STATIC: spec(cdi="0.7.0", gids=True)}, "5.1.0", "ok", "CDI 0.7.0, Podman 5.1.0 reads up to 0.7"),
        ({STATIC: spec(cdi="0.6.0", gids=True)}, "4.9.4", "fail", "has the key additionalGids"),
        ({STATIC: spec(cdi="0.6.0")}, "4.6.2", "fail", "is of CDI 0.6.0, Podman 4.6.2 reads up to 0.5"),
        ({STATIC: spec(cdi="0.5.0")}, "4.2.0", "fail", "Podman 4.2.0 reads up to 0.4"),
        ({STATIC: spec(cdi="")}, "4.9.4", "fail", "has no cdiVersion"),
        ({STATIC: spec(cdi="1.1.0")}, "5.5.0", "fail", "is of CDI 1.1.0"),
        ({STATIC: spec(cdi="1.1.0")}, "5.7.0", "unknown", "whether Podman 5.7.0 reads CDI 1.1.0"),
        ({STATIC: None, VOLATILE: spec(cdi="0.7.0")}, "4.9.4", "fail", f"{VOLATILE} is of CDI 0.7.0"),
        ({VOLATILE: spec(cdi="0.7.0")}, "4.9.4", "warn", "another spec is used instead"),
        ({STATIC: None}, "4.9.4", "none", "no CDI spec"),
        ({STATIC: DENIED}, "4.9.4", "unknown", "could not be read"),
        ({"/etc/nvidia-container-toolkit/cdi-refresh.env": f"{FLAG}=x\n"}, "4.9.4", "warn", "sets what nothing reads"),
        ({"/etc/nvidia-container-toolkit/cdi-refresh.env": f"# {FLAG}=x\n"}, "4.9.4", "ok", "CDI 0.5.0"),
    ],
)
def test_version(changes: dict[str, Any], podman: str, sign: str, text: str) -> None:
    found = look(checks.spec_version, changes, podman=ping(podman))
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_the_version_of_podman_is_taken_from_its_program_where_its_service_is_off() -> None:
    new = {STATIC: spec(cdi="0.7.0", gids=True)}
    commands = {"podman --version": "podman version 4.9.4-rhel\n", **box.CTK}
    found = look(checks.spec_version, new, podman=NOT_ASKED, commands=commands)
    assert (found.sign, found.data["podman"], found.data["cdi_version"]) == ("fail", "4.9.4-rhel", "0.7.0")
    assert [line.where for line in found.evidence] == [f"{STATIC}:2"]
    found = look(checks.spec_version, new, podman=NOT_ASKED)
    assert (found.sign, found.settle) == ("unknown", "podman --version")


@pytest.mark.parametrize(
    ("env", "kind", "new"),
    [
        (None, "P", f"{FLAG}=no-additional-gids-for-device-nodes\n"),
        ("# see\nA=b", "P", f"# see\nA=b\n{FLAG}=no-additional-gids-for-device-nodes\n"),
        (f"{FLAG}=one\nA=b\n", "P", f"{FLAG}=one,no-additional-gids-for-device-nodes\nA=b\n"),
        (f"{FLAG}=no-additional-gids-for-device-nodes\n", "B", None),
    ],
)
def test_the_refresh_service_is_told_once(env: str | None, kind: str, new: str | None) -> None:
    changes = {STATIC: None, VOLATILE: spec(cdi="0.7.0", gids=True), box.REFRESH: box.REFRESH_TEXT, ENV: env}
    found = look(checks.spec_version, changes)
    assert found.fix is not None
    assert found.fix.kind == kind
    assert [deed.text for deed in found.fix.deeds if deed.kind == "write"] == ([new] if new is not None else [])
    assert deeds(found) == [("systemctl", "restart", "nvidia-cdi-refresh.service")]
    assert found.fix.commands[-1] == "sudo systemctl restart nvidia-cdi-refresh.service"


def test_a_spec_by_hand_is_made_anew_by_hand_and_an_ancient_podman_is_replaced() -> None:
    new = {"nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.19.1"}
    found = look(checks.spec_version, {STATIC: spec(cdi="0.7.0")}, commands=new)
    assert found.fix is not None
    assert found.fix.commands == (
        f"sudo nvidia-ctk cdi generate --feature-flag no-additional-gids-for-device-nodes --output={STATIC}",
    )
    assert found.fix.deeds[0].path == STATIC
    found = look(checks.spec_version, {}, podman=ping("4.2.0"))
    assert (found.fix is not None and found.fix.kind) == "S"


# ----------------------------------------------------------------------------------------------------------------- B11

OTHER = "/etc/cdi/old.json"


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        ({}, "ok", "2 devices in /etc/cdi/nvidia.yaml"),
        ({OTHER: spec()}, "fail", "/etc/cdi/nvidia.yaml and old.json both define nvidia.com/gpu=0"),
        ({VOLATILE: spec()}, "warn", f"{VOLATILE} wins over {STATIC}, which goes stale"),
        ({VOLATILE: spec(names=("1",))}, "ok", "2 devices"),
        ({OTHER: GARBAGE}, "ok", "2 devices"),
        ({OTHER: spec(cdi="0.7.0")}, "ok", "2 devices"),
        ({OTHER: spec(kind="amd.com/gpu")}, "ok", "2 devices"),
        ({STATIC: None}, "none", "no CDI spec"),
        ({OTHER: DENIED}, "unknown", "old.json could not be read"),
        ({OTHER: DENIED, VOLATILE: spec()}, "warn", "wins over"),
    ],
)
def test_duplicates(changes: dict[str, Any], sign: str, text: str) -> None:
    found = look(checks.defined_once, changes)
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_the_older_of_two_is_moved_out_of_sight() -> None:
    found = look(
        checks.defined_once,
        {STATIC: FileFact("file", spec(), mtime=2.0), OTHER: FileFact("file", spec(), mtime=1.0)},
    )
    assert found.fix is not None
    assert found.fix.deeds == (Deed("move", path=OTHER, text=f"{OTHER}.off"),)
    assert len(found.evidence) == 2
    assert found.evidence[0].text == "kind: nvidia.com/gpu"
    more = look(checks.defined_once, {STATIC: spec(names=("0", "all", "GPU-1")), VOLATILE: spec()})
    assert (more.sign, more.fix) == ("warn", None)


def test_odd_folders() -> None:
    assert look(checks.spec_exists, {"/etc/cdi": folder("x"), "/etc/cdi/x": ABSENT, STATIC: None}).sign == "fail"
