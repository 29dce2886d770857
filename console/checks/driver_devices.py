"""The device nodes of the driver, and the links to them in /dev/char."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from shlex import quote

from console.checks.box import DRIVER, INFO, NO_DEVICE, OS_RELEASE, PING, at, distro, driver, install, rootless
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.driver_box import (
    MAKE_UVM,
    NOT_LOADED,
    OWNERS,
    PROBER,
    attempt,
    has_prober,
    make_cards,
    owners,
)
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix

NODES = "/dev/nvidia*"
MAJORS = "/proc/devices"
PARAMETERS = "/proc/driver/nvidia/params"
CONTROL_MAJOR = 195


def _major(facts: Facts, name: str) -> int | None:
    """Major number that the kernel gave a driver; None where that is not told."""
    try:
        found = facts.lines(MAJORS, rf"^\s*\d{{1,4}}\s+{re.escape(name)}\s*$")
    except Unknowable:
        return None
    return int(found[0].text.split()[0]) if found else None


def _cards(facts: Facts) -> int:
    """GPUs that have a node: those that nvidia drives."""
    return sum(1 for name in owners(facts).values() if name == "nvidia")


@check(
    "A16",
    "the device nodes are there and open to use",
    group="driver",
    slug="device-nodes",
    needs=(*OWNERS, *DRIVER, f"stat {NODES}", MAJORS, PARAMETERS, PROBER, PING, OS_RELEASE),
    why="A container gets the card through these nodes. nvidia-uvm is made by a helper program, not by the kernel, and "
    "is the one that is missing after a boot: nvidia-smi works then and CUDA does not.",
    source="open-gpu-kernel-modules#547; NVIDIA/nvidia-container-toolkit#50; nvidia-container-runtime#85",
)
def nodes(facts: Facts) -> Answer:
    if not owners(facts):
        return skip(NO_DEVICE)
    if driver(facts) is None:
        return skip(NOT_LOADED)
    cards = _cards(facts)
    if not cards:
        return skip("nvidia drives no card (A02)")
    there = facts.glob(NODES)
    numbered = [path for path in there if re.fullmatch(r"/dev/nvidia\d{1,3}", path)]
    wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    missing = [path for path in wanted if path not in there]
    if len(numbered) < cards:
        absent = (f"/dev/nvidia{index}" for index in range(cards) if f"/dev/nvidia{index}" not in there)
        missing = [*absent][: cards - len(numbered)] + missing
    known = [path for path in (*numbered, *wanted) if path in there]
    seen = [_shown(facts, path) for path in known]
    repair = attempt(partial(_make, facts, cards))
    for path in known:
        if wrong := _wrong_device(facts, path):
            return fail(f"{path} {wrong}", [_shown(facts, path)], _remake(path, cards), wrong=path)
    if [path for path in missing if path != "/dev/nvidia-uvm-tools"]:
        return fail(f"missing: {', '.join(missing)}", seen, repair, missing=",".join(missing))
    if missing:
        return warn(
            "/dev/nvidia-uvm-tools is missing: a CDI spec that names it fails", seen, repair, missing=missing[0]
        )
    return _permissions(facts, known, seen)


def _shown(facts: Facts, path: str) -> Evidence:
    fact = facts.file(path)
    device = f" {fact.device[0]}:{fact.device[1]}" if fact.device else ""
    mode = f" {fact.mode:04o}" if fact.mode is not None else ""
    return Evidence(path, f"{fact.kind}{device}{mode} {fact.uid}:{fact.gid}")


def _wrong_device(facts: Facts, path: str) -> str:
    """What is wrong with a node that is there; "" = nothing that can be seen."""
    fact = facts.file(path)
    if fact.kind != "char":
        return f"is a {fact.kind}, not a device"
    if fact.device is None:
        return ""
    expected = _major(facts, "nvidia-uvm") if "uvm" in path else CONTROL_MAJOR
    if expected is not None and fact.device[0] != expected:
        return f"has major {fact.device[0]}, the driver's is {expected}"
    return ""


def _open_to_all(mode: int | None) -> bool:
    return mode is None or mode & 0o006 == 0o006


def _permissions(facts: Facts, known: Sequence[str], seen: Sequence[Evidence]) -> Answer:
    closed = [path for path in known if not _open_to_all(facts.file(path).mode)]
    if not closed:
        return ok(f"{len(known)} nodes, open to all", seen, mode="0666")
    first = facts.file(closed[0])
    mode = f"{first.mode or 0:04o}"
    text = f"{closed[0]} is {mode}, group {first.gid}"
    try:
        if not rootless(facts):
            return note(f"{text}: enough for rootful Podman", seen, mode=mode)
        whose = f"{text}: rootless containers need that group"
    except Unknowable:
        whose = f"{text}: not enough for rootless Podman"
    evidence = [*seen, *_lines(facts, r"^(?:ModifyDeviceFiles|DeviceFile(?:UID|GID|Mode)):")]
    user = quote(next(iter(facts.every("user")), "USER"))
    lines = (f"sudo usermod -aG $(stat -c %G {closed[0]}) {user}", "grep -r NVreg_DeviceFile /etc/modprobe.d")
    effect = (
        "takes effect at the user's next login; the container needs crun and --group-add keep-groups (E17). The second "
        "line shows which option closes the nodes: without it they are 0666 from the next boot on"
    )
    undo = f"sudo gpasswd -d {user} $(stat -c %G {closed[0]})"
    return warn(whose, evidence, Fix("S", lines, effect, undo, again=("D06", "E17")), mode=mode)


def _lines(facts: Facts, pattern: str) -> tuple[Evidence, ...]:
    try:
        return facts.lines(PARAMETERS, pattern)
    except Unknowable:
        return ()


def _make(facts: Facts, cards: int) -> Fix:
    calls = (make_cards(cards), MAKE_UVM)
    shown = tuple(f"sudo {' '.join(argv)}" for argv in calls)
    if has_prober(facts):
        return Fix(
            "B",
            shown,
            "takes effect at once, until the next boot; no running container is touched",
            "not needed: the nodes are gone after the next boot",
            deeds=tuple(Deed("run", argv) for argv in calls),
            again=("A05", "B09", "B10"),
        )
    lines = (install(distro(facts), ("nvidia-modprobe",)), *shown)
    return Fix("S", lines, "takes effect at once, until the next boot", again=("A05", "B09", "B10"))


def _remake(path: str, cards: int) -> Fix:
    argv = MAKE_UVM if "uvm" in path else make_cards(cards)
    lines = (f"sudo rm {path}", f"sudo {' '.join(argv)}")
    return Fix("S", lines, "takes effect at once; restart the container afterwards", again=("A05", "B09"))


LINKS = "/dev/char/*"


@check(
    "A17",
    "/dev/char links to the device nodes",
    group="driver",
    slug="dev-char-links",
    needs=(*OWNERS, *DRIVER, f"stat {NODES}", f"stat {LINKS}", INFO),
    why="runc with the systemd cgroup manager names devices to systemd by these links. Where they are missing, any "
    "`systemctl daemon-reload` takes the GPU from the running container.",
    source="NVIDIA container toolkit, troubleshooting; NVIDIA/nvidia-container-toolkit#48, #251",
)
def links(facts: Facts) -> Answer:
    if not owners(facts):
        return skip(NO_DEVICE)
    if driver(facts) is None:
        return skip(NOT_LOADED)
    devices = {path: facts.file(path).device for path in facts.glob(NODES)}
    wanted = {f"/dev/char/{numbers[0]}:{numbers[1]}": path for path, numbers in devices.items() if numbers}
    if not wanted:
        return skip("there are no device nodes (A16)")
    there = facts.glob(LINKS)
    missing = {link: path for link, path in wanted.items() if link not in there}
    if not missing:
        return ok(f"all {len(wanted)}", [Evidence(link, f"-> {path}") for link, path in list(wanted.items())[:2]])
    info = facts.answer(INFO)
    runtime, manager = at(info, "host", "ociRuntime", "name"), at(info, "host", "cgroupManager")
    if not isinstance(runtime, str) or not isinstance(manager, str):
        raise Unknowable("the OCI runtime and the cgroup manager are not told", "podman info")
    seen = [Evidence(link, f"absent, for {path}") for link, path in list(missing.items())[:3]]
    seen.append(Evidence("podman info", f"ociRuntime {runtime}, cgroupManager {manager}"))
    count = f"{len(missing)} of {len(wanted)} missing"
    if runtime != "runc" or manager != "systemd":
        return ok(f"{count}; not needed with {runtime} and {manager}", seen)
    return warn(f"{count}: a daemon-reload may cut off the GPU", seen, _link(), missing=str(len(missing)))


def _link() -> Fix:
    return Fix(
        "B",
        ("sudo nvidia-ctk system create-dev-char-symlinks --create-all",),
        'takes effect at once, until the next boot; a udev rule makes it last: ACTION=="add", DEVPATH=="/bus/pci/'
        'drivers/nvidia", RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"',
        "sudo find /dev/char -lname '../nvidia*' -delete",
        deeds=(Deed("run", ("nvidia-ctk", "system", "create-dev-char-symlinks", "--create-all")),),
        back=(Deed("run", ("find", "/dev/char", "-lname", "../nvidia*", "-delete")),),
    )
