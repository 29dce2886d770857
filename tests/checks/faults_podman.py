"""Faults of Podman's service, its user and its storage."""

from __future__ import annotations

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import DEBIAN, EL8, EL9, ROCKY, ROOTLESS, UBUNTU
from tests.checks.tree import Tree

GIB = 1 << 30


@fault("D01", EL8, EL9, DEBIAN, ROCKY, takes="podman container unit")
def podman_socket_off(box: Tree) -> None:
    why = "/run/podman/podman.sock there is no such socket"
    effects.no_podman(box, why, "systemctl enable --now podman.socket")
    effects.set_unit(box, "podman.socket", MainPID="0")
    effects.set_unit(box, "podman.service", ActiveState="inactive", SubState="dead", MainPID="0")
    box.tell("@processes", [one for one in box.value("@processes") if one["argv"][-2:] != ["system", "service"]])


@fault("D04", ROOTLESS)
def subordinate_ids_missing(box: Tree) -> None:
    for path in ("/etc/subuid", "/etc/subgid"):
        box.edit(path, "triton:165536:65536\n", "")


@fault("D05", ROOTLESS)
def linger_missing(box: Tree) -> None:
    box.remove("/var/lib/systemd/linger/triton")


@fault("D06", ROOTLESS, takes="server", needs="container driver", also=("A16", "B16"))
def nodes_for_a_group_only(box: Tree) -> None:
    for name in effects.NODES:
        box.stat(f"/dev/{name}", mode=0o660, gid=39)
    box.edit("/proc/driver/nvidia/params", "DeviceFileMode: 438", "DeviceFileMode: 432")
    box.edit("/proc/driver/nvidia/params", "DeviceFileGID: 0", "DeviceFileGID: 39")
    box.put("/etc/modprobe.d/nvidia-perms.conf", "options nvidia NVreg_DeviceFileGID=39 NVreg_DeviceFileMode=0660\n")
    effects.set_card(box, processes=[])
    effects.say(box, "Failed to initialize NVML: Insufficient Permissions")
    effects.no_server(box)


@fault("D07", EL8, DEBIAN, EL9)
def storage_full(box: Tree) -> None:
    box.room("/var/lib/containers/storage", free=3 * GIB)


@fault("D08", DEBIAN, EL9)
def storage_of_copies(box: Tree) -> None:
    box.change("@podman.info", lambda info: info["store"].update(graphDriverName="vfs", graphStatus={}))
    box.change("@podman.inspect", lambda found: found and found.update(Driver="vfs", GraphDriver={"Name": "vfs"}))


@fault("D09", EL9, DEBIAN, needs="container")
def log_is_thrown_away(box: Tree) -> None:
    effects.set_container(
        box, "HostConfig", LogConfig={"Type": "none", "Config": None, "Path": "", "Tag": "", "Size": "0B"}
    )
    box.refuse("@podman.log", "this container is using the `none` log driver, cannot read logs", "")


@fault("D11", DEBIAN, needs="container")
def policy_without_podman_restart(box: Tree) -> None:
    effects.set_unit(box, "podman-restart.service", ActiveState="inactive", SubState="dead", UnitFileState="disabled")


@fault("K05", EL8, ROCKY, UBUNTU, needs="unit")
def unit_edited_without_reload(box: Tree) -> None:
    effects.set_unit(box, effects.unit(box), NeedDaemonReload="yes")


@fault("K02", EL8, ROCKY, needs="unit")
def unit_not_enabled(box: Tree) -> None:
    effects.set_unit(box, effects.unit(box), UnitFileState="disabled")


@fault("K02", EL8, ROCKY, takes="container unit server", needs="unit container")
def unit_gave_up(box: Tree) -> None:
    effects.down(box, "", 1)
    effects.set_unit(box, effects.unit(box), Result="start-limit-hit")


@fault("K03", EL8, needs="unit")
def unit_without_replace(box: Tree) -> None:
    box.edit("/etc/systemd/system/triton.service", "podman run --replace --rm --name", "podman run --rm --name")
    box.edit("/etc/systemd/system/triton.service", "ExecStopPost=/usr/bin/podman rm -f --ignore -t 10 triton\n", "")
    effects.drop_words(box, "--replace")


@fault("K04", EL8, ROCKY, takes="unit container server")
def quadlet_on_cgroup_v1(box: Tree) -> None:
    name = effects.unit(box)
    box.put(
        "/etc/containers/systemd/triton.container",
        "[Container]\nContainerName=triton\nImage=nvcr.io/nvidia/tritonserver:24.05-py3\nAddDevice=nvidia.com/gpu=all\n"
        "PublishPort=8000:8000\nVolume=/data/models:/models:ro,z\n"
        "Exec=tritonserver --model-repository=/models\n[Install]\nWantedBy=multi-user.target\n",
    )
    effects.down(box, "")
    box.remove(f"/etc/systemd/system/{name}")
    box.change("@units", lambda units: units.pop(name))
    said = "quadlet-generator[812]: Quadlet requires the use of cgroup v2\n"
    for words in [one for one in box.commands if one.startswith("journalctl")]:
        box.run(words, said)
    missing = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": ""}
    effects.set_unit(box, "triton.service", **missing)


@fault("K04", EL9, takes="unit container server")
def quadlet_key_that_this_podman_does_not_know(box: Tree) -> None:
    effects.down(box, "")
    box.edit("/etc/containers/systemd/triton.container", "ShmSize=1g\n", "ShmSize=1g\nStopTimeout=60\n")
    box.remove("/run/systemd/generator/triton.service")
    missing = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": ""}
    effects.set_unit(box, "triton.service", **missing, FragmentPath="", Result="success", NRestarts="0")
    said = (
        "quadlet-generator[20991]: Loading source unit file /etc/containers/systemd/triton.container\n"
        "quadlet-generator[20991]: converting \"triton.container\": unsupported key 'StopTimeout' in group 'Container' "
        "in /etc/containers/systemd/triton.container\n"
    )
    box.run("/usr/lib/systemd/system-generators/podman-system-generator --dryrun", "", 1, said)
    for words in [one for one in box.commands if one.startswith("journalctl")]:
        box.run(words, "")
