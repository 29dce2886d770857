"""Units made from a container: what stands in them, what does not, and what systemd's own tools say about them."""

from __future__ import annotations

import configparser
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import host_files, unit_files, unit_text
from console.clients.run_words import RunWords, parse
from console.clients.unit_text import Asked, Kind, UnitImpossible, UnitText
from console.core.model import SourceError
from tests.clients.test_units import bin_folder, tool

__all__ = ["bin_folder"]

SECRETS = ("hunter2", "s3cret", "planted")
TYPED = [
    *("podman", "run", "-d", "--name", "triton", "--device", "nvidia.com/gpu=all", "--shm-size", "1g"),
    *("--ulimit", "memlock=-1", "-p", "127.0.0.1:8000:8000", "-p8001:8001", "-v", "/data/models:/models:ro,z"),
    *("-e", "HF_TOKEN=hunter2 $x", "-e", "TZ=UTC", "-e", "MY_VALUE=planted", "--label", "api-token=planted"),
    *("--restart", "always", "--cgroup-parent", "/x", "--security-opt", "label=disable", "nvcr.io/t:24.05"),
    *("tritonserver", "--model-repository=/models", '--http-restricted-api=shared-memory:admin=s3cret"$x'),
    "--log-format=100% $HOME",
]


def words(typed: list[str] = TYPED) -> RunWords:
    found = parse(typed)
    assert found is not None
    return found


def make(
    kind: Kind = "service", *, user: bool = False, version: tuple[int, int] = (5, 4), run: RunWords | None = None
) -> UnitText:
    return unit_text.make(
        Asked("triton", run or words(), kind, "triton", "/etc/gpuconsole/units", user=user, version=version)
    )


def keys(text: str) -> dict[str, list[str]]:
    """The unit's keys with their values; continuation lines joined."""
    found: dict[str, list[str]] = {}
    for line in text.replace("\\\n ", "").split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_service_is_that_of_the_design() -> None:
    made = make()
    unit = keys(made.text)
    assert (made.unit, made.file, made.stop_times) == ("triton.service", "triton.service", (30, 60, 90))
    assert unit["Wants"] == ["network-online.target nvidia-cdi-refresh.service"]
    assert unit["After"] == ["network-online.target nvidia-cdi-refresh.service nvidia-persistenced.service"]
    assert unit["RequiresMountsFor"] == ["/data/models"]
    assert unit["Environment"] == ["PODMAN_SYSTEMD_UNIT=%n"]
    run = unit["ExecStart"][0]
    own = "--replace --rm --detach --name=triton --sdnotify=conmon --cgroups=no-conmon --stop-timeout=60"
    assert run.startswith(f"/usr/bin/podman run  {own} ")
    assert " --restart" not in run
    assert "cgroup-parent" not in run
    assert unit["ExecStop"] == ["/usr/bin/podman stop --ignore -t 60 triton"]
    assert unit["ExecStopPost"] == ["/usr/bin/podman rm -f --ignore -t 10 triton"]
    assert (unit["Type"], unit["NotifyAccess"], unit["KillMode"]) == (["notify"], ["all"], ["mixed"])
    assert (unit["TimeoutStartSec"], unit["TimeoutStopSec"]) == (["900"], ["90"])
    assert unit["WantedBy"] == ["multi-user.target"]
    assert len(made.notes) == 2


def test_stop_times_stay_in_order_when_triton_drains_longer() -> None:
    run = words([*TYPED, "--exit-timeout-secs=120"])
    assert make(run=run).stop_times == (120, 150, 180)


@pytest.mark.parametrize("kind", ["service", "quadlet"])
def test_no_secret_stands_in_the_unit(kind: Kind) -> None:
    made = make(kind)
    assert not any(secret in made.text for secret in SECRETS)
    assert made.environment == "HF_TOKEN=hunter2 $x\nMY_VALUE=planted\n"
    assert made.names == ("HF_TOKEN", "MY_VALUE")
    assert 'GPUCONSOLE_SECRET_1="api-token=planted"' in made.arguments or "GPUCONSOLE_SECRET_2" in made.arguments
    assert '\\"\\$x"' in made.arguments
    assert "TZ=UTC" in made.text
    assert "${GPUCONSOLE_SECRET_1}" in made.text


def test_the_quadlet_uses_only_keys_that_this_podman_knows() -> None:
    new, old = keys(make("quadlet").text), keys(make("quadlet", version=(4, 4)).text)
    assert new["ShmSize"] == ["1g"]
    assert new["StopTimeout"] == ["60"]
    assert not {"ShmSize", "Ulimit", "StopTimeout"} & set(old)
    assert {"--shm-size=1g", "--ulimit=memlock=-1", "--stop-timeout=60"} <= set(old["PodmanArgs"])
    assert new["AddDevice"] == old["AddDevice"] == ["nvidia.com/gpu=all"]
    assert new["Exec"][0].startswith("tritonserver ")


def test_a_users_unit_knows_none_of_the_systems() -> None:
    unit = keys(make(user=True).text)
    assert "Wants" not in unit
    assert "RequiresMountsFor" not in unit
    assert unit["WantedBy"] == ["default.target"]


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(UnitImpossible, match="several lines"):
        make(run=words(["podman", "run", "-e", "A=1\n2", "img"]))
    with pytest.raises(UnitImpossible, match="use kind=service"):
        make("quadlet", version=(4, 9), run=words(["podman", "--root", "/x", "run", "img"]))
    assert "/usr/bin/podman --root=/x stop" in make(run=words(["podman", "--root", "/x", "run", "img"])).text


def test_an_answer_of_the_api_says_what_it_does_not_tell() -> None:
    run = RunWords((), "triton", ("tritonserver",), told=False)
    notes = " ".join(make(run=run).notes)
    assert "CDI device names are not" in notes
    assert "names no registry" in notes


def test_masked_hides_secrets_of_any_unit() -> None:
    text = (
        "[Service]\n"
        "Environment=\"HF_TOKEN=a hunter2\" B='s3cret x' TZ=UTC\n"
        "Environment=PODMAN_SYSTEMD_UNIT=%n\n"
        'ExecStart=/usr/bin/podman run -e X=planted \\\n  -e "Y=planted two" --env=Z=planted \\\n'
        "  --label=token=planted img --http-restricted-api=a:b=s3cret\n"
    )
    shown = unit_text.masked(text)
    assert not any(secret in shown for secret in SECRETS)
    assert "TZ=UTC" in shown
    assert "PODMAN_SYSTEMD_UNIT=%n" in shown
    assert shown.count("\n") == text.count("\n")


@given(st.text(max_size=200))
def test_masked_takes_any_text(text: str) -> None:
    assert unit_text.masked(text).count("\n") == text.count("\n")


# any characters that an argument of a program can have
WORD = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(WORD, min_size=1, max_size=6))
def test_words_come_out_of_systemd_as_they_went_in(command: list[str]) -> None:
    run = words(["podman", "run", "img", *command])
    made = make(run=run)
    if made.arguments:
        return
    line = keys(made.text)["ExecStart"][0]
    assert as_systemd(line)[-len(command) - 1 :] == ["img", *command]


def as_systemd(line: str) -> list[str]:
    """Words of a command line as systemd.service(5) and systemd.syntax(7) split it; specifiers and variables undone."""
    found: list[str] = []
    word: str | None = None
    quote = ""
    rest = list(line)
    while rest:
        char = rest.pop(0)
        if char == "\\":
            code = rest.pop(0)
            text = chr(int(rest.pop(0) + rest.pop(0), 16)) if code == "x" else code
            word = (word or "") + text
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'":
            quote, word = char, word or ""
        elif char in " \t\n":
            if word is not None:
                found.append(word)
            word = None
        else:
            word = (word or "") + char
    if word is not None:
        found.append(word)
    return [one.replace("%%", "%").replace("$$", "$") for one in found]


# ------------------------------------------------------------------------------------------------- systemd's own tools


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
@pytest.mark.parametrize("user", [False, True])
def test_systemd_analyze_verify(user: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    asked = Asked(
        "triton", words(), "service", "triton", "/etc/gpuconsole/units", user=user, podman=shutil.which("true") or ""
    )
    assert unit_files.verify(unit_text.make(asked), user) == (True, "")
    broken = unit_text.make(asked)
    text = broken.text.replace("ExecStart=", "ExecStart=relative").replace("Type=notify", "Type=nothing")
    good, said = unit_files.verify(UnitText(broken.unit, broken.file, text), user)
    assert said, good


GENERATOR_ROOT = Path(os.environ.get("GPUCONSOLE_PODMAN5_ROOT", "/nonexistent"))


@pytest.mark.skipif(
    not (GENERATOR_ROOT / unit_files.GENERATOR).exists(),
    reason="no Podman 5 here: debootstrap trixie --include=podman and set GPUCONSOLE_PODMAN5_ROOT to that folder",
)
@pytest.mark.parametrize("version", [(4, 4), (4, 9), (5, 4)])
def test_the_quadlet_generator_takes_it(version: tuple[int, int]) -> None:
    made = make("quadlet", version=version)
    folder = GENERATOR_ROOT / "quadlet-test"
    folder.mkdir(exist_ok=True)
    try:
        (folder / made.file).write_text(made.text)
        done = subprocess.run(
            [
                "chroot",
                str(GENERATOR_ROOT),
                "env",
                "QUADLET_UNIT_DIRS=/quadlet-test",
                f"/{unit_files.GENERATOR}",
                "-dryrun",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    unit = keys(done.stdout)
    assert unit["Type"] == ["notify"]
    run = unit["ExecStart"][0]
    for word in ("--name triton", "--replace", "--sdnotify=conmon", "nvidia.com/gpu=all", "--env-file"):
        assert word in run
    assert "stop-timeout" in run
    assert "${GPUCONSOLE_SECRET_1}" in run


# ------------------------------------------------------------------------------------------------------------ the files


def test_files_are_put_in_place_and_back(tmp_path: Path) -> None:
    path, state = tmp_path / "etc/systemd/t.service", tmp_path / "state"
    unit_files.keep(state, "one", "t.service", False, [path])
    unit_files.install(path, b"new\xff", 0o640)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new\xff", 0o640)
    unit_files.keep(state, "two", "t.service", False, [path])
    assert [file.name for file in path.parent.iterdir()] == ["t.service"]
    two = unit_files.kept(state, "two")
    assert two is not None
    assert two.files[str(path)] == unit_files.KeptFile(b"new\xff", 0o640)
    one = unit_files.kept(state, "one")
    assert one is not None
    unit_files.install(path, one.files[str(path)].content, 0o644)
    assert not path.exists()
    assert unit_files.kept(state, "../one") is None
    assert stat.S_IMODE((state / "one.json").stat().st_mode) == 0o600


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "t.service").symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match="is a link to"):
        unit_files.content(tmp_path / "t.service")


def test_places(tmp_path: Path) -> None:
    system = unit_files.place(False, tmp_path)
    assert system.file("t", "service") == tmp_path / "etc/systemd/system/t.service"
    assert system.file("t", "quadlet") == tmp_path / "etc/containers/systemd/t.container"
    mine = unit_files.place(True, tmp_path)
    assert str(mine.file("t", "service")).endswith(".config/systemd/user/t.service")
    assert str(mine.file("t", "quadlet")).endswith(".config/containers/systemd/t.container")
    assert not unit_files.lingers(tmp_path)


def test_the_text_is_what_an_ini_reader_takes() -> None:
    reader = configparser.RawConfigParser(strict=False, delimiters=("=",))
    reader.read_string(make("quadlet").text)
    assert reader.sections() == ["Unit", "Container", "Service", "Install"]


def test_who_lingers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "var/lib/systemd/linger"
    folder.mkdir(parents=True)
    (folder / "root").touch()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert unit_files.lingers(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert not unit_files.lingers(tmp_path)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        unit_files.content(tmp_path)
    (tmp_path / "kept.json").write_text("{}")
    assert unit_files.kept(tmp_path, "kept") is None
    target = tmp_path / "taken"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        unit_files.install(target, b"x", 0o644)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json", "taken"]
    unit_files.install(tmp_path / "none", None, 0o644)
    assert host_files.writable(tmp_path / "new/folder/file") == os.access(tmp_path, os.W_OK)


def test_a_packages_unit(tmp_path: Path) -> None:
    path = tmp_path / "usr/lib/systemd/system/t.service"
    path.parent.mkdir(parents=True)
    path.touch()
    assert unit_files.elsewhere("t.service", False, tmp_path) == path
    assert unit_files.elsewhere("t.service", True, tmp_path) is None


@pytest.mark.parametrize(
    ("script", "kind", "expected"),
    [
        ("exit 0", "service", (True, "")),
        ('echo "triton.service:3: Unknown key" >&2', "service", (True, "triton.service:3: Unknown key")),
        ('echo "triton.service: no ExecStart" >&2; exit 1', "service", (False, "triton.service: no ExecStart")),
        ('echo "no bus" >&2; exit 1', "service", (None, "no bus")),
        ("exit 127", "quadlet", (None, "GENERATOR is not installed")),
        (
            'echo "converting triton.container: bad" >&2; exit 1',
            "quadlet",
            (False, "converting triton.container: bad"),
        ),
    ],
)
def test_what_the_tools_say(
    script: str, kind: Kind, expected: tuple[bool | None, str], bin_folder: Path, tmp_path: Path
) -> None:
    name = "systemd-analyze" if kind == "service" else "env"
    tool(bin_folder, name, script)
    found = unit_files.verify(make(kind), False, tmp_path)
    assert (found[0], found[1].replace(str(tmp_path / unit_files.GENERATOR), "GENERATOR")) == expected


def test_no_tool_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unit_files.verify(make(), False) == (None, "systemd-analyze is not installed")


def test_mounts_and_secret_words_of_their_own() -> None:
    run = words(
        [
            *("podman", "run", "--mount", "type=bind,src=/big,dst=/x", "--mount", "type=tmpfs,dst=/y", "img"),
            "--token",
            "planted",
        ]
    )
    made = make(run=run)
    assert keys(made.text)["RequiresMountsFor"] == ["/big"]
    assert made.text.count("${GPUCONSOLE_SECRET_1}") == 1
    assert made.arguments == 'GPUCONSOLE_SECRET_1="planted"\n'
