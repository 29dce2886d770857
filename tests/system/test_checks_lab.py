"""The checklist on real failures: CDI specs that real Podman stumbles over, ports that are taken, a port that leaks.

No machine here has an NVIDIA card. What only one with a card can tell (its PCI device, modules, driver's version, NVML)
is taken from the recorded box debian12 and laid over the live facts (`NvidiaBox.facts`); Podman, its container, the CDI
files and what they name, ports and processes are this machine's own. nvidia-ctk is not here either: a stand-in on PATH
writes the spec that it would, and is told to be where the toolkit's is. /dev/nvidia-uvm is made for these tests, with
the numbers of /dev/null.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from console.actions.box import Box, BoxSpec
from console.actions.fix import Apply, TakeBack
from console.checks import box as told_box
from console.checks import run as checklist
from console.clients import cdi
from console.config import Podman, Settings
from console.core.facts import CommandFact, Facts, FileFact
from console.core.finding import Finding, Report
from console.core.plan import Outcome
from console.sources import facts_host
from console.sources.facts import collect
from tests.actions.runs import Recorded, do
from tests.checks import tree
from tests.lab import lock, paths, podman
from tests.lab.fixtures import Lab
from tests.lab.own import OwnTriton, free_ports, run_words
from tests.lab.rootless import Rootless, lacking, rootless
from tests.system import headless

pytestmark = pytest.mark.lab

CARD_GROUPS = ("driver", "gpu")
"""What these groups look at comes from the recorded box."""
LIVE = ("@podman", "@triton", "@me", "@settings", "@processes", "@ports", "@units")
DEVICE = "gpuconsole-checks"
NAME = f"{told_box.NVIDIA_KIND}={DEVICE}"
FOLDER = Path("/var/run/cdi")
SPEC = FOLDER / "gpuconsole-checks.json"
TWIN = FOLDER / "gpuconsole-checks-twin.json"
STATIC = Path("/etc/cdi/nvidia.yaml")
UVM = Path("/dev/nvidia-uvm")
TOOLKIT = {
    "/usr/bin/nvidia-ctk": FileFact("file", mode=0o755, uid=0, gid=0),
    "/usr/bin/nvidia-cdi-hook": FileFact("file", mode=0o755, uid=0, gid=0),
}
CDI_CHECKS = ("B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11")


# ------------------------------------------------------------------------------------------------------------- the box


@cache
def recorded() -> Facts:
    """What the recorded box tells of its card and driver."""
    checks = [one for one in checklist.all_checks()[0] if one.group in CARD_GROUPS]
    needs = [one for one in checklist.needs(checks) if not one.startswith(LIVE) and "/cdi/" not in one]
    return tree.look(tree.tree("debian12"), needs)


def driver() -> str:
    """Version of the recorded driver."""
    found = told_box.driver(recorded())
    assert found is not None
    return found[0]


class NvidiaBox(Box):
    """This machine with the recorded card in it."""

    def facts(self, needs: Sequence[str], slow: bool = False) -> Facts:
        live, card = super().facts(needs, slow), recorded()
        return replace(
            live,
            files={**live.files, **card.files, **TOOLKIT},
            commands={**live.commands, **card.commands, **_of_toolkit(live)},
            answers={**live.answers, **card.answers},
            variables={**live.variables, **{name: card.variables[name] for name in ("gpu", "release", "next_release")}},
        )

    def report(self) -> Report:
        """All checks, and the causes."""
        return checklist.report(self.facts(checklist.needs(checklist.all_checks()[0])))


def _of_toolkit(live: Facts) -> Mapping[str, CommandFact]:
    """What the stand-in says itself."""
    words = "nvidia-ctk --version"
    return {words: live.commands[words]} if words in live.commands else {}


def box_of(own: OwnTriton, state: Path) -> NvidiaBox:
    """The box whose Triton this is."""
    return NvidiaBox(BoxSpec(Settings(podman=Podman(own.socket, own.name))), state)


def finding(report: Report, id_: str) -> Finding:
    return next(one for one in report.findings if one.id == id_)


# ----------------------------------------------------------------------------------------------------------- CDI specs


@dataclasses.dataclass
class Cdi:
    """The specs of these tests: written here and nowhere else, all gone afterwards."""

    folder: Path
    """Libraries and hooks that they name."""

    def spec(self, **changes: Any) -> dict[str, Any]:
        """One that fits the driver; `changes` of it: version, library, hook, node, gids."""
        library = self.library(changes.get("library", driver()), make="library" not in changes)
        hook = changes.get("hook", self.hook())
        edits: dict[str, Any] = {
            "env": ["GPUCONSOLE_CHECKS=1"],
            "deviceNodes": [{"path": str(UVM)}],
            "mounts": [
                {
                    "hostPath": str(library),
                    "containerPath": f"/opt/gpuconsole/{library.name}",
                    "options": ["ro", "nosuid", "nodev", "bind"],
                }
            ],
            "hooks": [{"hookName": "createContainer", "path": str(hook), "args": [Path(hook).name]}],
        }
        if "node" in changes:
            edits["deviceNodes"].append({"path": changes["node"]})
        if "gids" in changes:
            edits["additionalGids"] = changes["gids"]
        return {
            "cdiVersion": changes.get("version", "0.5.0"),
            "kind": told_box.NVIDIA_KIND,
            "devices": [{"name": DEVICE, "containerEdits": edits}],
        }

    def library(self, version: str, *, make: bool = True) -> Path:
        """A file of the driver's name."""
        path = self.folder / f"libcuda.so.{version}"
        if make:
            path.write_text("a library\n")
        return path

    def hook(self) -> Path:
        """One that does nothing."""
        path = self.folder / "hook"
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o755)
        return path

    def put(self, spec: Mapping[str, Any] | None, path: Path = SPEC) -> None:
        """Write it where Podman reads; None = take it away."""
        if spec is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec, indent=2))
        path.chmod(0o644)

    def stand_in(self, bin_folder: Path) -> None:
        """nvidia-ctk, as far as fixes call it."""
        good = self.folder / "good.json"
        good.write_text(json.dumps(self.spec(), indent=2))
        ctk = bin_folder / "nvidia-ctk"
        ctk.write_text(
            f"""#!/bin/bash
if [ "$1" = --version ]; then echo "NVIDIA Container Toolkit CLI version 1.18.2"; exit 0; fi
if [ "$1 $2" != "cdi generate" ]; then echo "unknown command $*" >&2; exit 1; fi
for word in "$@"; do
    case $word in --output=*) out=${{word#--output=}};; esac
done
mkdir -p "$(dirname "$out")" && cp {shlex.quote(str(good))} "$out"
"""
        )
        ctk.chmod(0o755)


def _remove_all() -> None:
    for path in (SPEC, TWIN, STATIC, *(Path(f"{path}.off") for path in (SPEC, TWIN))):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        STATIC.parent.rmdir()


@pytest.fixture(scope="module")
def alone_with_nvidia() -> Iterator[None]:
    """Nobody else's test has specs of nvidia.com meanwhile; /dev/nvidia-uvm is there."""
    if os.geteuid() != 0:
        pytest.skip("not root: it can write no CDI spec")
    with (paths.LOCK.with_name("gpuconsole-nvidia-cdi.lock")).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        left = [path for path in (STATIC,) if path.exists()]
        assert not left, f"{left} is not of these tests: it would be lost"
        others = [spec.path for spec in cdi.spec_files() if any("nvidia.com/" in name for name in spec.devices)]
        assert set(others) <= {str(SPEC), str(TWIN)}, f"this machine has CDI specs for NVIDIA: {others}"
        made = not UVM.exists()
        if made:
            os.mknod(UVM, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            UVM.chmod(0o666)
        try:
            yield
        finally:
            _remove_all()
            if made:
                UVM.unlink()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-checks-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def specs(alone_with_nvidia: None, public: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cdi]:
    """The stand-in is on PATH, and what a test leaves is removed."""
    made = Cdi(public / "driver")
    bin_folder = public / "bin"
    for folder in (made.folder, bin_folder):
        folder.mkdir()
        folder.chmod(0o755)
    made.stand_in(bin_folder)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    _remove_all()
    yield made
    _remove_all()


# --------------------------------------------------------------------------------------------------------- a container


def words(own: OwnTriton, *more: str) -> list[str]:
    """Makes a container of the lab's that asks for the device of these tests and is not started."""
    made = run_words(own.name, own.port, own.repository, more)
    assert made[:2] == ["run", "--detach"]
    return ["create", *(NAME if word == paths.CDI_DEVICE else word for word in made[2:])]


@contextlib.contextmanager
def created(folder: Path, *more: str, at: str = "") -> Iterator[OwnTriton]:
    """A container that was made and not started; `at`: the Podman service that is asked about it."""
    folder.mkdir()
    own = OwnTriton(f"checks-{secrets.token_hex(4)}", free_ports(), folder, at or f"unix://{paths.SOCKET}")
    with lock.shared():
        try:
            podman.run(*words(own, *more))
            yield own
        finally:
            podman.run("rm", "--force", "--time", "0", own.name, check=False)


def start(own: OwnTriton) -> str:
    """Start it; what Podman says where it fails, "" where it runs."""
    done = podman.run("start", own.name, check=False)
    if done.returncode != 0:
        return done.stderr
    state = podman.run("inspect", "--format", "{{.State.Status}}", own.name).stdout.strip()
    assert state == "running", podman.run("logs", own.name, check=False).stderr[-1000:]
    return ""


@pytest.fixture
def own(specs: Cdi, lab: Lab, tmp_path: Path) -> Iterator[OwnTriton]:
    with created(tmp_path / "models") as made:
        yield made


def mended(box: Box, id_: str) -> Outcome:
    """By the console's own action."""
    outcome = do(Apply(), box, id_, {}, Recorded())
    assert outcome.word == "done", outcome.text
    assert outcome.text.startswith(f"{id_} is mended: "), outcome.text
    return outcome


# ----------------------------------------------------------------------------------------------------- CDI, each fault


@dataclasses.dataclass(frozen=True)
class Fault:
    """One way in which a spec stops a start."""

    id: str
    make: Callable[[Cdi], None]
    error: str
    """In what Podman says."""
    text: str
    """In what the check says."""
    title: str
    """In the verdict."""


OLD = "535.161.07"


@cache
def versions() -> dict[str, str]:
    """Words of the texts: of this Podman, of a CDI version that it does not read, of the driver."""
    told = podman.run("version", "--format", "{{.Client.Version}}").stdout.strip()
    newest = cdi.accepted(told)
    assert newest is not None
    later = f"{newest[0]}.{newest[1] + 2}.0"
    return {"podman": told, "newest": f"{newest[0]}.{newest[1]}", "later": later, "driver": driver()}


def _stale(specs: Cdi) -> None:
    specs.put(specs.spec(library=OLD))


def _too_new(specs: Cdi) -> None:
    specs.put(specs.spec(version=versions()["later"]))


def _unknown_key(specs: Cdi) -> None:
    if (cdi.accepted(versions()["podman"]) or (0, 0)) >= (0, 7):
        pytest.skip("this Podman knows the key")
    specs.put(specs.spec(gids=[44]))


def _twice(specs: Cdi) -> None:
    specs.put(specs.spec())
    specs.put(specs.spec(), TWIN)
    os.utime(SPEC, (1, 1))


def _no_hook(specs: Cdi) -> None:
    specs.put(specs.spec(hook="/usr/local/bin/gpuconsole-no-hook"))


def _no_node(specs: Cdi) -> None:
    specs.put(specs.spec(node="/dev/dri/renderD1999"))


def _missing(specs: Cdi) -> None:
    specs.put(None)


UNRESOLVABLE = "unresolvable CDI devices"
FAULTS = {
    "missing": Fault(
        "B03",
        _missing,
        UNRESOLVABLE,
        "no CDI spec for nvidia.com/gpu in /etc/cdi",
        "the CDI spec is not there",
    ),
    "too new": Fault(
        "B05",
        _too_new,
        UNRESOLVABLE,
        f"{SPEC} is of CDI {{later}}, Podman {{podman}} reads up to {{newest}}",
        "the CDI spec is of version {later}, too new for Podman {podman}",
    ),
    "unknown key": Fault(
        "B05",
        _unknown_key,
        UNRESOLVABLE,
        f"{SPEC} has the key additionalGids, which Podman {{podman}}",
        "has the key additionalGids",
    ),
    "stale": Fault(
        "B07",
        _stale,
        "no such file or directory",
        f"1 of 1 files are not there, spec of {OLD}, driver {{driver}}",
        f"the CDI spec is older than the driver ({OLD} against {{driver}})",
    ),
    "no hook": Fault(
        "B08",
        _no_hook,
        "gpuconsole-no-hook",
        "/usr/local/bin/gpuconsole-no-hook is not there",
        "the CDI spec names a hook that is not there",
    ),
    "no node": Fault(
        "B09",
        _no_node,
        "/dev/dri/renderD1999",
        "/dev/dri/renderD1999 of 2 nodes not there",
        "the CDI spec names a device node that is not there",
    ),
    "twice": Fault(
        "B11",
        _twice,
        UNRESOLVABLE,
        f"both define {NAME}",
        "two CDI specs define the same devices",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_spec_that_stops_the_start_is_the_cause_and_is_mended(
    name: str, specs: Cdi, own: OwnTriton, tmp_path: Path
) -> None:
    fault = FAULTS[name]
    fault.make(specs)
    said = start(own)
    assert fault.error in said
    box = box_of(own, tmp_path / "state")
    try:
        report = box.report()
        seen = finding(report, fault.id)
        assert seen.sign == "fail"
        assert fault.text.format(**versions()) in seen.text
        cause = report.causes[0]
        assert cause.id == fault.id, [(one.id, one.title) for one in report.causes]
        assert fault.title.format(**versions()) in cause.title
        assert "E01" in cause.consequences
        assert [one.id for one in report.findings if one.id in CDI_CHECKS and one.sign == "fail"] == [fault.id]
        mended(box, fault.id)
        after = box.report()
        assert {one.id: one.text for one in after.findings if one.id in CDI_CHECKS and one.sign == "fail"} == {}
        assert fault.id not in {one.id for one in after.causes}
    finally:
        box.close()
    assert start(own) == ""


def test_a_healthy_spec_is_no_cause(specs: Cdi, own: OwnTriton, tmp_path: Path) -> None:
    specs.put(specs.spec())
    assert start(own) == ""
    box = box_of(own, tmp_path / "state")
    try:
        report = box.report()
    finally:
        box.close()
    assert {one.id: one.text for one in report.findings if one.id in CDI_CHECKS and one.sign == "fail"} == {}
    assert not [one.id for one in report.causes if one.id in CDI_CHECKS]


def test_a_mended_spec_is_taken_back_as_it_was(specs: Cdi, own: OwnTriton, tmp_path: Path) -> None:
    _stale(specs)
    SPEC.chmod(0o640)
    before = SPEC.read_bytes()
    box = box_of(own, tmp_path / "state")
    try:
        outcome = mended(box, "B07")
        assert outcome.undo is not None
        assert do(TakeBack(), box, "B07", outcome.undo.values).word == "done"
    finally:
        box.close()
    assert (SPEC.read_bytes(), stat.S_IMODE(SPEC.stat().st_mode)) == (before, 0o640)


def test_a_spec_that_its_user_may_not_read(specs: Cdi, lab: Lab, tmp_path: Path) -> None:
    """Rootless Podman says the same words as where there is none."""
    if why := lacking():
        pytest.skip(why)
    specs.put(specs.spec())
    with rootless() as user, _of_user(user) as own:
        SPEC.chmod(0o600)
        assert "unresolvable CDI devices" in user.podman("start", own.name, check=False)
        box = box_of(own, tmp_path / "state")
        try:
            report = box.report()
            seen = finding(report, "B04")
            assert (seen.sign, seen.text) == ("fail", f"{SPEC} is 0600: {user.user} may not read it")
            assert report.causes[0].id == "B04", [(one.id, one.title) for one in report.causes]
            mended(box, "B04")
            assert finding(box.report(), "B04").sign == "ok"
        finally:
            box.close()
        assert stat.S_IMODE(SPEC.stat().st_mode) == 0o644
        user.podman("start", own.name)
        assert "running" in user.podman("inspect", "--format", "{{.State.Status}}", own.name)


@contextlib.contextmanager
def _of_user(user: Rootless) -> Iterator[OwnTriton]:
    """A container of a plain user's that asks for the device."""
    own = OwnTriton(f"checks-{secrets.token_hex(4)}", free_ports(), user.home / "models", f"unix://{user.socket}")
    user.podman(
        *("create", "--name", own.name, "--pull", "never", "--device", NAME),
        *("--publish", f"127.0.0.1:{own.port}:8000", "--volume", f"{own.repository}:/models:ro", paths.IMAGE),
        *("tritonserver", "--model-repository=/models", "--exit-on-error=false", "--allow-gpu-metrics=false"),
    )
    try:
        yield own
    finally:
        user.podman("rm", "--force", "--time", "0", own.name, check=False)


# --------------------------------------------------------------------------------------------------------------- ports


def until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_port_that_another_process_has_is_named_with_it(specs: Cdi, own: OwnTriton, tmp_path: Path) -> None:
    specs.put(specs.spec())
    program = f"import socket, time; s = socket.create_server(('127.0.0.1', {own.port})); time.sleep(300)"
    box = box_of(own, tmp_path / "state")
    with subprocess.Popen([sys.executable, "-c", program]) as holder:
        try:
            until(lambda: _is_taken(own.port))
            assert "address already in use" in start(own)
            report = box.report()
            seen = finding(report, "I02")
            name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
            assert (seen.sign, seen.text) == (
                "fail",
                f"{own.port} is held by {name} ({holder.pid}): the container cannot start",
            )
            assert report.causes[0].id == "I02", [(one.id, one.title) for one in report.causes]
            assert "is done by hand" in Apply().plan(box, "I02", {}).refused
        finally:
            holder.kill()
    try:
        assert finding(box.report(), "I02").sign == "ok"
    finally:
        box.close()
    assert start(own) == ""


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def service(lab: Lab, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Podman service of the test's own on the lab's storage, and its process. Go collects no garbage in it: that is
    when a listener that nothing refers to any more is closed, sometimes at once, sometimes after two minutes."""
    at = tmp_path / "podman.sock"
    command = podman.command("system", "service", "--time=0", f"unix://{at}")
    environment = {**podman.environment(), "GOGC": "off"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(at.exists)
            yield f"unix://{at}", process
        finally:
            process.kill()


def test_a_port_that_podmans_own_service_keeps_after_a_failed_start(
    specs: Cdi, service: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """host.md 3.6: a start through the API that fails in the runtime leaves the port's listener in the service."""
    url, process = service
    _stale(specs)
    with created(tmp_path / "models", at=url) as own:
        box = box_of(own, tmp_path / "state")
        try:
            _start_by_api(own)
            specs.put(specs.spec())
            assert "address already in use" in start(own)
            seen = finding(box.report(), "I02")
            words = f"podman system service ({process.pid}) keeps it, as after a start that failed"
            assert (seen.sign, seen.text) == ("fail", f"{own.port}: {words}")
            assert seen.fix is not None
            assert seen.fix.commands == (f"kill {process.pid}",)
            assert "is in no podman.service" in seen.fix.effect
            process.kill()
            process.wait()
        finally:
            box.close()
        box = box_of(dataclasses.replace(own, socket=f"unix://{paths.SOCKET}"), tmp_path / "state")
        try:
            assert finding(box.report(), "I02").sign == "ok"
        finally:
            box.close()
        assert start(own) == ""


def _start_by_api(own: OwnTriton) -> None:
    from console.clients.podman_control import PodmanControl

    control = PodmanControl(own.socket)
    try:
        with pytest.raises(Exception, match="no such file or directory"):
            control.start(own.name)
    finally:
        control.close()


# --------------------------------------------------------------------------- the command line, whoever runs it and how


@pytest.fixture
def home(public: Path) -> Path:
    """Of a user without settings; anybody may write there."""
    made = public / "home"
    made.mkdir()
    made.chmod(0o777)
    return made


STRANGER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def checked(lab: Lab, home: Path, before: Sequence[str] = (), **environ: str) -> dict[str, Any]:
    """`gpuconsole check --json`: one object, nothing on standard error, no check with a fault of its own. It may take
    its time: other tests run beside this one."""
    words = ("check", "--json", "--within", "20s", "--socket", lab.podman_url)
    done, _ = headless.run(*words, home=home, before=before, environ=environ)
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    findings = told["report"]["findings"]
    assert len(findings) == len(checklist.all_checks()[0])
    assert [one for one in findings if "a fault of its own" in one["text"]] == []
    assert [one["id"] for one in findings if one["sign"] == "unknown" and not one["text"].strip()] == []
    return told


def signs(told: Mapping[str, Any]) -> dict[str, str]:
    return {one["id"]: one["sign"] for one in told["report"]["findings"]}


def test_as_root(lab: Lab, home: Path) -> None:
    found = signs(checked(lab, home))
    assert (found["D01"], found["E01"]) == ("ok", "ok")
    assert found["B03"] == "none", "no NVIDIA device is here"


def test_as_a_user_without_rights(lab: Lab, home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: it cannot become another user")
    found = signs(checked(lab, home, STRANGER))
    assert found["E01"] != "fail", "what may not be seen is not known to be gone"
    assert found["D01"] != "ok"


@pytest.mark.parametrize("path", ["", "/nonexistent", "."])
def test_with_path_emptied(lab: Lab, home: Path, path: str) -> None:
    assert signs(checked(lab, home, PATH=path))["E01"] == "ok"


def _programs() -> list[str]:
    """Every program that some check wants to be run, and those that sources run."""
    needs = checklist.needs(checklist.all_checks()[0])
    return sorted({shlex.split(need[2:])[0] for need in needs if need.startswith("$ ")} | {"systemctl", "journalctl"})


@pytest.mark.parametrize(
    "script",
    ["sleep 60", "head -c 300000 /dev/urandom", "head -c 3000 /dev/urandom >&2; exit 3", "yes", "kill -9 $$", ":"],
)
def test_with_every_program_hanging_or_printing_garbage(lab: Lab, home: Path, tmp_path: Path, script: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in _programs():
        (folder / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (folder / name).chmod(0o755)
    found = signs(checked(lab, home, PATH=f"{folder}:/usr/bin:/bin"))
    assert found["E01"] == "ok"


@pytest.mark.parametrize("program", _programs())
def test_with_one_program_missing(lab: Lab, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: one look for the checks that want it."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **how: None if name == program else which(name, **how))
    checks = [
        one
        for one in checklist.all_checks()[0]
        if any(need.startswith("$ ") and shlex.split(need[2:])[0] == program for need in one.needs)
    ]
    settings = Settings(podman=Podman(lab.podman_url))
    facts = collect(checklist.needs(checks), facts_host.of_box(settings))
    for one in checks:
        assert "a fault of its own" not in checklist.judged(one, facts).text
    told = [fact for words, fact in facts.commands.items() if shlex.split(words)[0] == program]
    assert all(fact.code is None and "is not installed" in fact.why for fact in told)


# ------------------------------------------------------------------------------------------------------------- secrets


def test_no_planted_secret_is_told(specs: Cdi, lab: Lab, home: Path, tmp_path: Path) -> None:
    """In the container's environment, a URL, the console's settings, a registry's credentials, a CDI spec."""
    planted = {name: f"{name}-{secrets.token_hex(12)}" for name in ("env", "flag", "header", "registry", "spec")}
    spec = specs.spec()
    spec["devices"][0]["containerEdits"]["env"].append(f"HF_TOKEN={planted['spec']}")
    specs.put(spec)
    config = home / ".config" / "gpuconsole"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'[triton.headers]\nx-api-key = "{planted["header"]}"\n')
    (config / "config.toml").chmod(0o600)
    login = base64.b64encode(f"user:{planted['registry']}".encode()).decode()
    auth = home / "auth.json"
    auth.write_text(json.dumps({"auths": {"nvcr.io": {"auth": login}}}))
    more = ("--env", f"HF_TOKEN={planted['env']}", "--env", f"DB_URL=postgres://u:{planted['flag']}@db/x")
    with created(tmp_path / "models", *more) as own:
        assert start(own) == ""
        box = box_of(own, tmp_path / "state")
        try:
            held = repr(box.facts(checklist.needs(checklist.all_checks()[0]))) + repr(box.report())
        finally:
            box.close()
        for command in (("facts", "--json"), ("facts",), ("check", "--json"), ("check", "--all")):
            words = (*command, "--socket", own.socket, "--container", own.name)
            done, _ = headless.run(*words, home=home, environ={"REGISTRY_AUTH_FILE": str(auth)})
            assert own.name in done.stdout, done.stderr
            held += done.stdout + done.stderr
    found = [name for name, value in {**planted, "login": login}.items() if value in held]
    assert found == []


def test_the_same_checks_end_when_podman_hangs(lab: Lab, home: Path) -> None:
    """A service that takes a connection and never answers."""
    at = home / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(at))
        silent.listen(8)
        done, _ = headless.run("check", "--json", "--socket", f"unix://{at}", home=home)
    told = json.loads(done.stdout)
    assert signs(told)["E01"] != "fail"
    assert done.stderr == ""


def test_it_is_ended_by_ctrl_c(lab: Lab, home: Path) -> None:
    at = home / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(at))
        silent.listen(8)
        command = [sys.executable, "-m", "console", "check", "--socket", f"unix://{at}"]
        with subprocess.Popen(
            command, cwd=headless.ROOT, env=headless.environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            time.sleep(0.7)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=20)
    assert b"Traceback" not in err
