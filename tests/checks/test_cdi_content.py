"""B06 to B10, B17: what the CDI spec says, against the cards, files, hooks and nodes of the box."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.checks import cdi_content as checks
from console.core.facts import AnswerFact, FileFact
from console.core.finding import Finding
from tests.checks import cdi_told as box
from tests.checks.cdi_told import GPU, HOOK, NO_BUS, NO_GPU, NODE, ROOT, STATIC, VOLATILE, files, inspect, ping, spec
from tests.checks.needed import Judge, finding
from tests.checks.told import ABSENT

ALL = [checks.devices, checks.stale, checks.hooks, checks.nodes, checks.uvm, checks.mig]
UNSEEN = FileFact("unknown", why="permission denied")
SECOND = "0000:af:00.0"


def card(**more: Any) -> dict[str, Any]:
    return {"index": 0, "uuid": "GPU-1", "name": "T4", **more}


def nvml(*cards: dict[str, Any]) -> dict[str, Any]:
    return {"error": None, "box": {"driver": "550.90.07", "gpus": list(cards)}}


def look(
    judge: Judge,
    changes: dict[str, Any] | None = None,
    *,
    answers: dict[str, Any] | None = None,
    variables: dict[str, tuple[str, ...]] | None = None,
) -> Finding:
    told = {"@podman.ping": ping(), "@podman.inspect": inspect(), "@nvml": nvml(card(mig_on=False)), **(answers or {})}
    return finding(judge, files(changes), box.CTK, told, None, {**ROOT, **(variables or {})})


@pytest.mark.parametrize("judge", ALL)
def test_where_it_does_not_apply(judge: Judge) -> None:
    assert look(judge, variables=NO_GPU).sign == "none"
    found = finding(judge, files(), box.CTK, {"@podman.ping": ping()}, None, NO_BUS)
    assert (found.sign, "PCI bus" in found.text) == ("unknown", True)
    assert "B03" in look(judge, {STATIC: None}).text
    assert look(judge, {STATIC: "\x00\xff[{" * 9}).sign == "none"
    assert look(judge, {STATIC: FileFact("file", mode=0o600, why="permission denied")}).sign == "unknown"
    assert look(judge, {STATIC: FileFact("file", "kind: nvidia.com/gpu", cut=True)}).sign == "unknown"


@pytest.mark.parametrize("judge", ALL[:5])
def test_fit(judge: Judge) -> None:
    assert look(judge).sign == "ok"


@pytest.mark.parametrize("judge", ALL)
@pytest.mark.parametrize(
    "text",
    [
        "kind: nvidia.com/gpu\ncdiVersion: 0.5.0\ndevices: 5\n",
        'kind: nvidia.com/gpu\ncdiVersion: 0.5.0\ndevices: [{name: {a: 1}, containerEdits: 7}, 3, {name: "0"}]\n',
        "kind: nvidia.com/gpu\ncontainerEdits: {mounts: [1, {hostPath: 2}], hooks: {}, deviceNodes: [[]]}\n",
    ],
)
def test_odd_specs(judge: Judge, text: str) -> None:
    look(judge, {STATIC: text})


# ----------------------------------------------------------------------------------------------------------------- B06

TWO: dict[str, tuple[str, ...]] = {"gpu": (GPU, SECOND)}


def driven(address: str, by: str) -> dict[str, Any]:
    return {f"/sys/bus/pci/devices/{address}/driver": FileFact("dir", target=f"../../../bus/pci/drivers/{by}")}


@pytest.mark.parametrize(
    ("changes", "variables", "asked", "sign", "text"),
    [
        ({}, ROOT, "nvidia.com/gpu=all", "ok", "0, all: 1 card"),
        ({}, ROOT, "nvidia.com/gpu=3", "fail", "asks for nvidia.com/gpu=3; there are 0, all"),
        ({}, ROOT, "/dev/fuse", "ok", "1 card"),
        ({}, TWO, "nvidia.com/gpu=all", "warn", "names 1 card (0, all), the bus has 2"),
        (driven(SECOND, "vfio-pci"), TWO, "nvidia.com/gpu=all", "ok", "1 card"),
        ({STATIC: spec(cards=2)}, TWO, "nvidia.com/gpu=all", "ok", "2 cards"),
        ({STATIC: spec(cards=0, names=("0", "1", "all"))}, TWO, "nvidia.com/gpu=all", "ok", "2 cards"),
        ({STATIC: spec(names=("GPU-1", "all"))}, ROOT, "nvidia.com/gpu=GPU-1", "ok", "GPU-1, all"),
    ],
)
def test_cards(changes: dict[str, Any], variables: dict[str, Any], asked: str, sign: str, text: str) -> None:
    words = {"CreateCommand": ["podman", "run", f"--device={asked}"]}
    found = look(checks.devices, changes, variables=variables, answers={"@podman.inspect": inspect(config=words)})
    assert (found.sign, text in found.text) == (sign, True), found.text


@pytest.mark.parametrize("answer", [None, AnswerFact(why="refused"), {"Config": {"CreateCommand": "podman"}}, []])
def test_cards_are_counted_whoever_asks(answer: Any) -> None:
    assert look(checks.devices, answers={"@podman.inspect": answer}).sign == "ok"


# ----------------------------------------------------------------------------------------------------------------- B07


def test_a_spec_of_another_driver() -> None:
    gone = dict.fromkeys(box.libraries("550.90.07"), ABSENT)
    found = look(checks.stale, {**gone, "/sys/module/nvidia/version": "570.86.15\n"})
    assert found.sign == "fail"
    assert found.text == "/etc/cdi/nvidia.yaml: 3 of 3 files are not there, spec of 550.90.07, driver 570.86.15"
    line = box.spec().splitlines().index("    hostPath: /usr/lib64/libcuda.so.550.90.07") + 1
    assert [(one.where, one.text.strip()) for one in found.evidence] == [
        (f"{STATIC}:{line}", "hostPath: /usr/lib64/libcuda.so.550.90.07"),
        ("/sys/module/nvidia/version", "570.86.15"),
    ]
    assert found.data == {"spec_version": "550.90.07", "driver": "570.86.15", "missing": "3", "spec": STATIC}
    assert found.fix is not None
    assert (found.fix.kind, found.fix.commands) == ("B", (f"sudo nvidia-ctk cdi generate --output={STATIC}",))
    assert found.fix.deeds[0].path == STATIC


SOCKET = "/run/nvidia-persistenced/socket"


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        ({}, "ok", "/etc/cdi/nvidia.yaml: 3 files are there, driver 550.90.07"),
        ({box.libraries("550.90.07")[2]: ABSENT}, "fail", "1 of 3 files are not there: libEGL_nvidia.so.550.90.07"),
        ({box.libraries("550.90.07")[2]: FileFact("link", target="x")}, "fail", "1 of 3 files are not there"),
        ({box.libraries("550.90.07")[2]: UNSEEN}, "unknown", "permission denied"),
        ({box.libraries("550.90.07")[2]: UNSEEN, box.libraries("550.90.07")[1]: ABSENT}, "fail", "1 of 3"),
        (
            {"/sys/module/nvidia/version": "560.35.03\n"},
            "fail",
            "written for 550.90.07, the loaded driver is 560.35.03",
        ),
        ({"/sys/module/nvidia/version": ABSENT}, "ok", "3 files are there"),
        ({"/sys/module/nvidia/version": "x" * 9999}, "unknown", "version of the loaded driver"),
        ({"/sys/module/nvidia/version": "x", box.libraries("550.90.07")[1]: ABSENT}, "fail", "1 of 3"),
        ({VOLATILE: spec("570.86.15")}, "fail", "/var/run/cdi/nvidia.yaml: 3 of 3 files"),
        ({VOLATILE: spec("570.86.15", "0.7.0")}, "ok", "/etc/cdi/nvidia.yaml: 3 files"),
        ({STATIC: spec(cdi="0.7.0")}, "ok", "3 files"),
    ],
)
def test_stale(changes: dict[str, Any], sign: str, text: str) -> None:
    more = (*box.paths(), *box.paths("570.86.15"))
    found = look(checks.stale, changes, variables={"cdi_paths": more})
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_more_paths_than_were_looked_at() -> None:
    assert look(checks.stale, variables={"cdi_paths": box.paths()[:4]}).sign == "unknown"
    assert look(checks.hooks, variables={"cdi_paths": ()}).sign == "unknown"


def test_a_socket_is_not_mended_by_a_new_spec() -> None:
    variables = {"cdi_paths": (*box.paths(), SOCKET)}
    found = look(checks.stale, {STATIC: spec(more=(SOCKET,))}, variables=variables)
    assert (found.sign, found.text.endswith("1 of 4 files are not there: socket")) == ("fail", True)
    assert found.fix is not None
    assert found.fix.commands == ("sudo systemctl start nvidia-persistenced.service",)


def test_a_line_of_json_is_found_too() -> None:
    path = box.libraries("550.90.07")[0]
    edits = {"mounts": [{"hostPath": path, "containerPath": path}]}
    text = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": edits}]}
    changes = {STATIC: None, "/etc/cdi/nvidia.json": json.dumps(text, indent=1), path: ABSENT}
    found = look(checks.stale, changes)
    assert '"hostPath"' in found.evidence[0].text


# ----------------------------------------------------------------------------------------------------------- B08 to B10


@pytest.mark.parametrize(
    ("hook", "sign", "text"),
    [
        (box.PROGRAM, "ok", HOOK),
        (ABSENT, "fail", f"{HOOK} is not there"),
        (FileFact("file", mode=0o644, uid=0, gid=0), "fail", f"{HOOK} is 0644: it cannot run"),
        (UNSEEN, "unknown", "permission denied"),
    ],
)
def test_hooks(hook: FileFact, sign: str, text: str) -> None:
    found = look(checks.hooks, {HOOK: hook})
    assert (found.sign, text in found.text) == (sign, True), found.text


def test_a_hook_of_the_toolkit_is_not_mended_by_a_new_spec() -> None:
    fix = look(checks.hooks, {HOOK: ABSENT}).fix
    assert (fix and (fix.kind, fix.commands)) == ("S", ("sudo dnf -y reinstall nvidia-container-toolkit-base",))
    old = {STATIC: spec().replace(HOOK, "/opt/hook")}
    fix = look(checks.hooks, old, variables={"cdi_paths": (*box.paths(), "/opt/hook")}).fix
    assert (fix and fix.commands) == (f"sudo nvidia-ctk cdi generate --output={STATIC}",)


def test_a_hook_without_its_toolkit() -> None:
    found = look(checks.hooks, {HOOK: ABSENT, "/usr/bin/nvidia-ctk": ABSENT})
    assert found.fix is not None
    assert (found.fix.kind, found.fix.commands[-1]) == ("S", "sudo dnf -y install nvidia-container-toolkit-base")
    assert found.evidence[0].text.strip() == f"path: {HOOK}"


@pytest.mark.parametrize(
    ("changes", "sign", "text", "commands"),
    [
        ({}, "ok", "3 nodes are there", ()),
        ({"/dev/nvidia-uvm": None}, "fail", "/dev/nvidia-uvm of 3 nodes not there", ("sudo nvidia-modprobe -c0 -u",)),
        ({"/dev/nvidia0": None}, "fail", "/dev/nvidia0 of 3", (f"sudo nvidia-ctk cdi generate --output={STATIC}",)),
        (
            {"/dev/nvidia0": None, "/dev/nvidia-uvm": None},
            "fail",
            "/dev/nvidia-uvm and 1 more of 3",
            ("sudo nvidia-modprobe -c0 -u", f"sudo nvidia-ctk cdi generate --output={STATIC}"),
        ),
        ({"/dev/nvidiactl": None}, "fail", "/dev/nvidiactl of 3 nodes not there", ("sudo nvidia-modprobe -c255",)),
        ({"/dev/nvidia0": UNSEEN}, "unknown", "permission denied", ()),
    ],
)
def test_nodes(changes: dict[str, Any], sign: str, text: str, commands: tuple[str, ...]) -> None:
    found = look(checks.nodes, changes)
    assert (found.sign, text in found.text) == (sign, True), found.text
    assert (found.fix.commands if found.fix else ()) == commands


@pytest.mark.parametrize(
    ("changes", "sign", "commands"),
    [
        ({}, "ok", ()),
        ({STATIC: spec(nodes=("/dev/nvidiactl",))}, "fail", (f"sudo nvidia-ctk cdi generate --output={STATIC}",)),
        (
            {STATIC: spec(nodes=("/dev/nvidiactl",)), "/dev/nvidia-uvm": None},
            "fail",
            ("sudo nvidia-modprobe -c0 -u", f"sudo nvidia-ctk cdi generate --output={STATIC}"),
        ),
    ],
)
def test_uvm(changes: dict[str, Any], sign: str, commands: tuple[str, ...]) -> None:
    found = look(checks.uvm, changes)
    assert found.sign == sign
    assert (found.fix.commands if found.fix else ()) == commands


# ----------------------------------------------------------------------------------------------------------------- B17

_SIZE = {"profile": "1g.10gb", "memory_total": 1, "memory_used": 0}
SLICES = [{"index": 0, "uuid": "MIG-1", **_SIZE}, {"index": 1, "uuid": "MIG-2", **_SIZE}]


@pytest.mark.parametrize(
    ("names", "on", "slices", "sign", "text"),
    [
        (("0", "all"), False, [], "none", "no card has MIG on"),
        (("0", "all"), None, [], "none", "no card has MIG on"),
        (("0", "all"), True, [], "fail", "MIG is on, the spec names no MIG device"),
        (("0:0", "0:1", "all"), True, SLICES, "ok", "2 MIG devices"),
        (("0:0", "MIG-1", "all"), True, [], "ok", "1 MIG device"),
        (("0:0", "all"), True, SLICES, "warn", "2 MIG devices, the spec names 1"),
        (("0:0", "all"), False, [], "fail", "names 1 MIG device, MIG is off"),
    ],
)
def test_mig(names: tuple[str, ...], on: bool | None, slices: list[Any], sign: str, text: str) -> None:
    answer = nvml(card(mig_on=on, mig=slices))
    found = look(checks.mig, {STATIC: spec(names=names)}, answers={"@nvml": answer})
    assert (found.sign, text in found.text) == (sign, True), found.text


@pytest.mark.parametrize("answer", [AnswerFact(why="not recorded"), {"error": {"text": "x"}, "box": None}, 5])
def test_mig_without_nvml(answer: Any) -> None:
    assert look(checks.mig, answers={"@nvml": answer}).sign == "unknown"


def test_a_card_that_is_not_driven_counts() -> None:
    assert look(checks.devices, driven(SECOND, ""), variables=TWO).sign == "warn"
    assert look(checks.nodes, {"/dev/nvidia0": NODE}).sign == "ok"
