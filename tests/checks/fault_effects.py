"""What a fault of a box brings with it, so that a broken tree is as consistent as a broken box: a driver that is not
loaded leaves no nodes and no NVML, a start that fails leaves no server."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from tests.checks.tree import Tree

SMI_DEAD = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)
RPMS = r"rpm -qa --qf '%{NAME}\t%{VERSION}\n'"
DEBS = r"dpkg-query -W -f='${Package}\t${Version}\t${Status}\n'"
SILENT = ("nothing answers on localhost:8000", "curl -s localhost:8000/v2/health/ready")
NODES = ("nvidia0", "nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools")
PORTS = (8000, 8001, 8002)


# ------------------------------------------------------------------------------------------------------------- reading


def inspect(box: Tree) -> Any:
    """The container as it is, to read."""
    return box.value("@podman.inspect")


def driver(box: Tree) -> str:
    """Version of the loaded driver."""
    return box.text("/sys/module/nvidia/version").strip()


def gpu(box: Tree) -> str:
    """The card's own folder below /sys/devices."""
    return next(
        path.removesuffix("/vendor")
        for path in box.under("/sys/devices", r"/vendor$")
        if box.text(path).strip() == "0x10de" and box.text(path.replace("/vendor", "/class")).startswith("0x03")
    )


def bdf(box: Tree) -> str:
    """The card's PCI address."""
    return gpu(box).rsplit("/", 1)[-1]


def spec(box: Tree) -> str:
    """Path of the CDI spec."""
    return next(path for path in ("/etc/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml") if path in box.files)


def release(box: Tree) -> str:
    """The kernel that runs."""
    return box.text("/proc/sys/kernel/osrelease").strip()


def unit(box: Tree) -> str:
    """Name in @units of what manages Triton; "" where nothing does."""
    names = ("triton.service", "container-triton.service", "user:triton.service")
    return next((name for name in names if name in box.value("@units")), "")


def models(box: Tree) -> str:
    """The model repository on the host."""
    return str(inspect(box)["Mounts"][0]["Source"])


def packages(box: Tree) -> str:
    """The command that lists packages here."""
    return RPMS if box.commands[RPMS].code == 0 else DEBS


# ------------------------------------------------------------------------------------------------------------- answers


def set_unit(box: Tree, name: str, **properties: str) -> None:
    """Other properties of a unit."""
    box.change("@units", lambda units: units.setdefault(name, {"Id": name}).update(properties))


def set_container(box: Tree, part: str, **fields: Any) -> None:
    """Other fields of State, Config or HostConfig; of the container itself for ""."""
    box.change("@podman.inspect", lambda found: (found[part] if part else found).update(fields))


def drop_words(box: Tree, *dropped: str) -> None:
    """The container was made by a command without these words."""
    words = [one for one in inspect(box)["Config"]["CreateCommand"] if one not in dropped]
    set_container(box, "Config", CreateCommand=words)


def set_card(box: Tree, **fields: Any) -> None:
    """Other figures of the card."""

    def by(answer: Any) -> None:
        card = answer["box"]["gpus"][0]
        card.update(fields)
        for name in fields:
            card.get("missing", {}).pop(name, None)

    box.change("@nvml", by)


def kernel(box: Tree, *lines: str, ago: float = 7200.0) -> None:
    """Newer lines of the kernel log."""
    stamped = [{"wall": box.wall - ago + index, "text": line} for index, line in enumerate(lines)]
    box.change("@kernel.log", lambda log: log["lines"].extend(stamped))


def say(box: Tree, *lines: str) -> None:
    """More lines of the container's log."""
    box.change("@podman.log", lambda log: log.extend(lines))


def add_engine(box: Tree) -> None:
    """One model more in the repository: `detector`, an engine of TensorRT."""
    root = f"{models(box)}/detector"
    label = box.files[models(box)].label
    for path in (root, f"{root}/1"):
        box.put(path, kind="dir", mode=0o755, label=label)
    text = 'name: "detector"\nplatform: "tensorrt_plan"\nmax_batch_size: 8\n'
    box.put(f"{root}/config.pbtxt", text, label=label)
    box.put(f"{root}/1/model.plan", None, size=41_220_112, label=label)


def swap_line(box: Tree, words: str, old: str, new: str) -> None:
    """Other words in what a program prints; KeyError where the old ones are not there."""
    fact = box.commands[words]
    if old not in fact.out:
        raise KeyError(f"{box.name}: {words} does not print {old!r}")
    box.commands[words] = replace(fact, out=fact.out.replace(old, new))


def drop_packages(box: Tree, pattern: str) -> None:
    """Packages that are not installed."""
    words = packages(box)
    kept = [line for line in box.commands[words].out.splitlines() if not re.match(pattern, line)]
    box.run(words, "\n".join(kept) + "\n")


# ------------------------------------------------------------------------------------------------------------- effects


def no_server(box: Tree, why: str = SILENT[0]) -> None:
    """Triton does not answer."""
    for name in ("metadata", "index", "configs", "stats"):
        box.refuse(f"@triton.{name}", why, SILENT[1])


def no_podman(box: Tree, why: str, settle: str) -> None:
    """Podman's socket is off."""
    for name in ("ping", "info", "containers", "inspect", "image", "images", "log"):
        box.refuse(f"@podman.{name}", why, settle)
    box.remove("/run/podman/podman.sock")
    set_unit(box, "podman.socket", ActiveState="inactive", SubState="dead", UnitFileState="disabled")


def no_process(box: Tree) -> None:
    """The container's processes are gone, and their ports with them."""
    state = inspect(box)["State"]
    gone = {state["Pid"], state["ConmonPid"]}
    box.remove(f"/proc/{state['Pid']}")
    if f"/proc/{state['ConmonPid']}/cgroup" in box.files:
        box.remove(f"/proc/{state['ConmonPid']}")
    kept_ = ("podman", "nvidia-persistenced")
    box.tell("@processes", [one for one in box.value("@processes") if one["name"] in kept_ and one["pid"] not in gone])
    box.tell("@processes", [one for one in box.value("@processes") if "run" not in one["argv"][1:2]])
    box.tell("@ports", [one for one in box.value("@ports") if one["port"] not in PORTS])
    listening = "|".join(f"{port:04X}" for port in PORTS)
    lines = [one for one in box.text("/proc/net/tcp").splitlines() if not re.search(rf":(?:{listening}) 0{{8}}:", one)]
    box.put("/proc/net/tcp", "\n".join(lines) + "\n")
    if box.value("@nvml")["box"]:
        set_card(box, processes=[], util_pct=0.0, power_w=13.2, pstate=8, sm_mhz=300)
    no_server(box)


def without_rm(box: Tree) -> None:
    """The container was made without `--rm`."""
    drop_words(box, "--rm")
    set_container(box, "HostConfig", AutoRemove=False)
    box.change("@podman.containers", lambda found: found[0].update(AutoRemove=False))


def down(box: Tree, error: str, code: int = 126, *, kept: bool = False) -> None:
    """The start fails with this error: a container of `--rm` is gone and its unit says it, another one keeps it.

    kept: the container was made without `--rm`, as this console makes them.
    """
    if kept:
        without_rm(box)
    no_process(box)
    if inspect(box)["HostConfig"]["AutoRemove"]:
        for name in ("@podman.inspect", "@podman.image", "@podman.log"):
            box.tell(name, None)
        box.tell("@podman.containers", [])
    else:
        state = {"Status": "created", "Running": False, "Pid": 0, "ConmonPid": 0, "ExitCode": code, "Error": error}
        set_container(box, "State", **state, FinishedAt="2026-11-30T08:40:12.112233445Z")
        set_container(box, "HostConfig", Devices=[])
        listed = {"State": "created", "Pid": 0, "ExitCode": code}
        box.change("@podman.containers", lambda found: found[0].update(listed))
        box.tell("@podman.log", [])
    fail_unit(box, *([f"Error: {error}"] if error else []), code=code)


def fail_unit(box: Tree, *lines: str, code: int = 126) -> None:
    """The unit tried a few times and gave up."""
    name = unit(box)
    if not name:
        return
    set_unit(
        box,
        name,
        ActiveState="failed",
        SubState="failed",
        Result="exit-code",
        ExecMainStatus=str(code),
        ExecMainCode="1",
        NRestarts="5",
        MainPID="0",
        ExecMainExitTimestamp="Mon 2026-11-30 08:40:12 UTC",
        StateChangeTimestamp="Mon 2026-11-30 08:40:22 UTC",
    )
    said = [
        *lines,
        f"{name}: Main process exited, code=exited, status={code}/n/a",
        f"{name}: Failed with result 'exit-code'.",
        f"{name}: Service RestartSec=10s expired, scheduling restart.",
        f"{name}: Start request repeated too quickly.",
        f"{name}: Failed with result 'exit-code'.",
        "Failed to start Triton Inference Server.",
    ]
    for words in [one for one in box.commands if one.startswith("journalctl") and not name.startswith("user:")]:
        fact = box.commands[words]
        box.commands[words] = replace(fact, out=fact.out + "\n".join(said) + "\n")


def died(box: Tree, code: int, *, oom: bool = False) -> None:
    """The container ended by itself; one of `--rm` would be gone, so it is for kept ones."""
    no_process(box)
    state = {"Status": "exited", "Running": False, "Pid": 0, "ConmonPid": 0, "ExitCode": code, "OOMKilled": oom}
    set_container(box, "State", **state, FinishedAt="2026-11-30T08:40:12.112233445Z")
    listed = {"State": "exited", "Pid": 0, "ExitCode": code, "Exited": True, "ExitedAt": int(box.wall) - 1188}
    box.change("@podman.containers", lambda found: found[0].update(listed))


def no_nvml(box: Tree, code: int, text: str) -> None:
    """NVML does not start, nor nvidia-smi."""
    box.change("@nvml", lambda answer: answer.update(error={"code": code, "text": text}, box=None))
    said = SMI_DEAD if code == 9 else f"Failed to initialize NVML: {text}\n"
    for words in ("nvidia-smi -q", "nvidia-smi nvlink --status"):
        box.run(words, said, 9 if code == 9 else 18)


def no_nodes(box: Tree, *names: str) -> None:
    """Device nodes that are not there."""
    for name in names or NODES:
        major, minor = box.files[f"/dev/{name}"].device or (0, 0)
        box.remove(f"/dev/{name}")
        if f"/dev/char/{major}:{minor}" in box.files:
            box.remove(f"/dev/char/{major}:{minor}")


def no_modinfo(box: Tree) -> None:
    """There is no module for the running kernel."""
    for words in [one for one in box.commands if one.startswith("modinfo")]:
        box.run(words, "", 1, "modinfo: ERROR: Module nvidia not found.\n")


def no_node_to_inject(box: Tree, node: str) -> None:
    """The start fails at this device node, which the spec names."""
    missing = f'failed to stat CDI host device "{node}": no such file or directory'
    down(box, f"setting up CDI devices: failed to inject devices: {missing}")


def unload(box: Tree) -> None:
    """The nvidia modules are not loaded (since the last boot), so nothing of the driver is there."""
    kept_ = [one for one in box.text("/proc/modules").splitlines() if not one.startswith("nvidia")]
    box.put("/proc/modules", "\n".join(kept_).replace("nvidia,nvidia_drm,", "") + "\n")
    box.edit("/proc/devices", "195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n", "")
    for module in ("nvidia", "nvidia_uvm", "nvidia_drm"):
        box.remove(f"/sys/module/{module}")
    box.remove("/proc/driver/nvidia")
    box.remove(f"{gpu(box)}/driver")
    no_nodes(box)
    for path in box.under("/dev/dri"):
        box.remove(path)
    box.remove("/run/nvidia-persistenced")
    set_unit(
        box, "nvidia-persistenced.service", ActiveState="failed", SubState="failed", Result="exit-code", MainPID="0"
    )
    of_driver = re.compile(r"nvidia|NVRM")
    box.change(
        "@kernel.log", lambda log: log.update(lines=[one for one in log["lines"] if not of_driver.search(one["text"])])
    )
    box.put("/proc/sys/kernel/tainted", "0\n")
    no_nvml(box, 9, "Driver Not Loaded")
    no_node_to_inject(box, "/dev/nvidia-modeset")


def upgrade(box: Tree, new: str, *, loaded: bool = True, respec: bool = False) -> str:
    """Another version of the driver on disk; loaded: the kernel runs it too (there was a reboot). Returns the old one.

    The CDI spec stays as it was unless `respec`.
    """
    old, path = driver(box), spec(box)
    running = re.compile(r"^/(?:proc|sys|dev)/|^/etc/cdi|^/run/cdi")
    for one in list(box.files):
        fact = box.files[one]
        if running.match(one):
            continue
        if fact.kind == "link" and old in str(fact.target):
            fact = replace(fact, target=str(fact.target).replace(old, new))
        if fact.text and old in fact.text:
            fact = replace(fact, text=fact.text.replace(old, new))
        box.files[one] = fact
        if old in one:
            del box.files[one]
            box.files[one.replace(old, new)] = fact
    for words, said in box.commands.items():
        if old in said.out and not words.startswith(("nvidia-smi", "journalctl")):
            box.commands[words] = replace(said, out=said.out.replace(old, new))
    if loaded:
        for one in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
            box.edit(one, old, new)
        for name in ("@nvml", "@kernel.log"):
            box.tell(name, _renamed(box.value(name), old, new))
        swap_line(box, "nvidia-smi -q", old, new)
    if respec:
        box.edit(path, old, new)
    return old


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _renamed(one, old, new) for key, one in value.items()}
    return [_renamed(one, old, new) for one in value] if isinstance(value, list) else value


def stale_start(box: Tree, old: str) -> str:
    """What the runtime says of a library that is no longer there."""
    library = next(word for word in box.text(spec(box)).split() if word.endswith(f"libEGL_nvidia.so.{old}"))
    if box.value("@podman.info")["host"]["ociRuntime"]["name"] == "crun":
        said = f"crun: error stat'ing file `{library}`: No such file or directory"
    else:
        said = (
            "runc: runc create failed: unable to start container process: error during container init: error mounting "
            f'"{library}" to rootfs at "{library}": open {library}: no such file or directory'
        )
    return f"{said}: OCI runtime attempted to invoke a command that was not found"


UNRESOLVABLE = "setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
