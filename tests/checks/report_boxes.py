"""Boxes of public reports and seed cases: a recorded healthy box, changed as the report tells. REPORTS.toml names which
check each has to land on; test_reports.py keeps the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from tests.checks import fault_effects as effect
from tests.checks.tree import Tree

ROOTFUL, ROOTLESS, QUADLET, UBUNTU = "el8_rootful", "el8_rootless", "el9_quadlet", "ubuntu2204"
Change = Callable[[Tree], None]
BOXES: dict[str, tuple[str, Change]] = {}
"""Case -> recorded box and what is changed in it."""


def case(on: str) -> Callable[[Change], Change]:
    """Register a box of a report."""

    def mark(change: Change) -> Change:
        BOXES[change.__name__.replace("_", "-")] = (on, change)
        return change

    return mark


def _spec(box: Tree, by: Callable[[Any], None]) -> None:
    path = effect.spec(box)
    told = yaml.safe_load(box.text(path))
    by(told)
    box.put(path, yaml.safe_dump(told))


def _podman(box: Tree, version: str) -> None:
    box.change("@podman.ping", lambda told: told.update(version=version))
    box.run("podman --version", f"podman version {version}\n")


# ------------------------------------------------------------------------------------------------------ CDI and Podman


@case(ROOTFUL)
def spec_of_0_7(box: Tree) -> None:
    def newer(told: Any) -> None:
        told["cdiVersion"] = "0.7.0"
        told["containerEdits"]["additionalGids"] = [39]

    _spec(box, newer)
    effect.down(box, effect.UNRESOLVABLE)


@case(UBUNTU)
def podman_4_6_and_spec_of_0_6(box: Tree) -> None:
    _spec(box, lambda told: told.update(cdiVersion="0.6.0"))
    effect.down(box, effect.UNRESOLVABLE)


@case("rocky88")
def podman_4_4_and_spec_of_0_6(box: Tree) -> None:
    _spec(box, lambda told: told.update(cdiVersion="0.6.0"))
    effect.down(box, effect.UNRESOLVABLE)


@case(ROOTFUL)
def podman_4_2_and_host_path(box: Tree) -> None:
    _podman(box, "4.2.0")

    def newer(told: Any) -> None:
        told["cdiVersion"] = "0.5.0"
        for node in told["containerEdits"]["deviceNodes"]:
            node["hostPath"] = node["path"]

    _spec(box, newer)
    effect.down(box, effect.UNRESOLVABLE)


@case(ROOTFUL)
def spec_in_another_folder(box: Tree) -> None:
    text = box.text("/etc/cdi/nvidia.yaml")
    box.remove("/etc/cdi/nvidia.yaml")
    box.put("/usr/share/cdi/nvidia.yaml", text)
    effect.down(box, effect.UNRESOLVABLE)


@case(ROOTFUL)
def podman_3_takes_a_path(box: Tree) -> None:
    _podman(box, "3.4.4")
    effect.down(box, "stat nvidia.com/gpu=all: no such file or directory", 125)


@case(ROOTFUL)
def made_without_a_gpu(box: Tree) -> None:
    effect.set_container(box, "HostConfig", Devices=[])
    command = [word for word in effect.inspect(box)["Config"]["CreateCommand"] or () if "gpu=all" not in word]
    effect.set_container(box, "Config", CreateCommand=[word for word in command if word != "--device"])
    for path in box.under("/proc/4812/root/dev", "nvidia"):
        box.remove(path)
    effect.set_card(box, processes=[])
    effect.say(box, "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.")


@case(ROOTFUL)
def stale_after_a_driver_update(box: Tree) -> None:
    old = effect.upgrade(box, "570.86.15")
    effect.down(box, effect.stale_start(box, old))


@case(QUADLET)
def stale_with_crun(box: Tree) -> None:
    old = effect.upgrade(box, "570.86.15")
    effect.down(box, effect.stale_start(box, old))


@case(QUADLET)
def refresh_failed(box: Tree) -> None:
    box.remove("/run/cdi/nvidia.yaml")
    state = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainStatus": "1"}
    effect.set_unit(box, "nvidia-cdi-refresh.service", **state)
    effect.down(box, effect.UNRESOLVABLE)


@case(QUADLET)
def refresh_after_multi_user(box: Tree) -> None:
    path = "/usr/lib/systemd/system/nvidia-cdi-refresh.service"
    box.edit(path, "[Unit]\n", "[Unit]\nAfter=multi-user.target\n")


@case(QUADLET)
def hook_of_a_spec_that_is_old(box: Tree) -> None:
    effect.upgrade(box, "570.86.15")
    effect.down(box, "crun: error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: 1)")


@case(ROOTFUL)
def hook_is_gone(box: Tree) -> None:
    box.remove("/usr/bin/nvidia-cdi-hook")
    effect.down(box, "error running hook #0: fork/exec /usr/bin/nvidia-cdi-hook: no such file or directory")


@case(ROOTFUL)
def nvidia_runtime_in_containers_conf(box: Tree) -> None:
    box.put("/etc/containers/containers.conf", '[engine]\nruntime = "nvidia"\n')
    effect.down(box, 'default OCI runtime "nvidia" not found: invalid argument', 125)


# --------------------------------------------------------------------------------------------- SELinux and permissions


def _no_gpu_inside(box: Tree) -> None:
    effect.set_card(box, processes=[])
    effect.say(box, "Failed to initialize NVML: Insufficient Permissions")


@case(ROOTLESS)
def boolean_is_off(box: Tree) -> None:
    box.put("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    _no_gpu_inside(box)
    avc = (
        'type=AVC msg=audit(1796029000.1:301): avc:  denied  { read write } for  pid=4812 comm="tritonserver" '
        'path="/dev/nvidiactl" scontext=system_u:system_r:container_t:s0:c77,c911 '
        "tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file permissive=0"
    )
    box.run("ausearch -m avc,user_avc -ts recent", f"----\n{avc}\n")


@case(ROOTLESS)
def both_booleans_off(box: Tree) -> None:
    box.put("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    box.put("/sys/fs/selinux/booleans/container_use_xserver_devices", "0 0")
    _no_gpu_inside(box)


@case(ROOTLESS)
def node_of_the_group_video(box: Tree) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        box.stat(f"/dev/{name}", mode=0o660, gid=39)
    _no_gpu_inside(box)


def _label(box: Tree, label: str) -> None:
    for path in ("/data/models", *box.under("/data/models")):
        box.stat(path, label=f"system_u:object_r:{label}:s0")


def _unread(box: Tree) -> None:
    effect.say(box, "E1130 08:40:12.1 1 server.cc:1] failed to stat file /models: Permission denied")
    for index in ("index", "configs", "stats"):
        box.refuse(f"@triton.{index}", *effect.SILENT)


@case(ROOTLESS)
def mount_without_relabel(box: Tree) -> None:
    _label(box, "default_t")
    mounts = effect.inspect(box)["Mounts"]
    mounts[0]["Mode"] = ""
    effect.set_container(box, "", Mounts=mounts)
    _unread(box)


@case(ROOTFUL)
def private_relabel_of_a_big_tree(box: Tree) -> None:
    box.edit("/etc/systemd/system/triton.service", ":ro,z", ":ro,Z")
    mounts = effect.inspect(box)["Mounts"]
    mounts[0]["Mode"] = "Z"
    effect.set_container(box, "", Mounts=mounts)
    command = [word.replace(":ro,z", ":ro,Z") for word in effect.inspect(box)["Config"]["CreateCommand"]]
    effect.set_container(box, "Config", CreateCommand=command)
    for number in range(3000):
        box.put(f"/data/models/m{number}/1/model.onnx", None, label="system_u:object_r:container_file_t:s0:c1,c2")


@case(ROOTFUL)
def podman_is_bin_t(box: Tree) -> None:
    box.stat("/usr/bin/podman", label="system_u:object_r:bin_t:s0")


# -------------------------------------------------------------------------------------------------------------- driver


@case(ROOTFUL)
def module_older_than_libraries(box: Tree) -> None:
    effect.upgrade(box, "550.90.12", loaded=False)
    effect.no_nvml(box, 18, "Driver/library version mismatch")


@case(UBUNTU)
def unattended_upgrade(box: Tree) -> None:
    effect.upgrade(box, "550.127.05", loaded=False)
    effect.no_nvml(box, 18, "Driver/library version mismatch")


@case(ROOTFUL)
def packages_of_two_versions(box: Tree) -> None:
    version = effect.driver(box)
    words = effect.packages(box)
    lines = box.commands[words].out.splitlines()
    at = next(n for n, line in enumerate(lines) if "nvidia" in line and line.endswith(version))
    lines[at] = lines[at].replace(version, f"{version}.03")
    box.run(words, "\n".join(lines) + "\n")


@case(ROOTFUL)
def nouveau_still_loads(box: Tree) -> None:
    effect.unload(box)
    box.put("/proc/modules", box.text("/proc/modules") + "nouveau 2420736 1 - Live 0x0000000000000000\n")
    box.put("/sys/module/nouveau/initstate", "live\n")
    box.link(f"{effect.gpu(box)}/driver", "../../../../bus/pci/drivers/nouveau")
    box.edit("/proc/cmdline", "rd.driver.blacklist=nouveau", "")
    for path in box.under("/usr/lib/modprobe.d") + box.under("/etc/modprobe.d"):
        text = box.files[path].text
        if text and "nouveau" in text:
            box.put(path, text.replace("blacklist nouveau", "#"))


@case(QUADLET)
def secure_boot_refuses_the_module(box: Tree) -> None:
    effect.unload(box)
    effect.kernel(box, "Loading of module with unavailable key is rejected", ago=600)
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    box.put(variable, "\x06\x00\x00\x00\x01")
    box.run("mokutil --sb-state", "SecureBoot enabled\n")


@case(ROOTFUL)
def uvm_node_is_missing(box: Tree) -> None:
    effect.no_nodes(box, "nvidia-uvm", "nvidia-uvm-tools")
    effect.down(box, 'failed to stat CDI host device "/dev/nvidia-uvm": no such file or directory')


@case(ROOTFUL)
def clocks_fall_under_load(box: Tree) -> None:
    effect.set_card(box, util_pct=92.0, sm_mhz=885, throttle_now=[], pstate=0)


@case(ROOTFUL)
def governor_saves_power(box: Tree) -> None:
    for path in box.under("/sys/devices/system/cpu", r"scaling_governor$"):
        box.put(path, "ondemand\n")


# ---------------------------------------------------------------------------------------------------- Triton container


@case(ROOTFUL)
def image_wants_a_newer_driver(box: Tree) -> None:
    effect.upgrade(box, "460.91.03", respec=True)
    effect.set_card(box, processes=[])
    box.change("@nvml", lambda answer: answer["box"].update(cuda="11.2"))
    box.change("@podman.log", lambda log: log.clear())
    effect.say(
        box,
        "== Triton Inference Server ==",
        "ERROR: This container was built for NVIDIA Driver Release 550.54 or later, but",
        "       version 460.91.03 was detected and compatibility mode is UNAVAILABLE.",
        "       [[CUDA Driver UNAVAILABLE (cuInit(0) returned 803)]]",
    )


@case(ROOTFUL)
def models_of_mode_0700(box: Tree) -> None:
    effect.set_container(box, "Config", User="triton-server")
    for path in ("/data/models", *(one for one in box.under("/data/models") if box.files[one].kind == "dir")):
        box.stat(path, mode=0o700, uid=1500, gid=1500)
    _unread(box)


# ------------------------------------------------------------------------------------------------ Podman and the units


@case(ROOTFUL)
def unit_brings_it_back(box: Tree) -> None:
    """Hand-written, as the seed's: no label tells of it, only where its conmon lives."""
    box.edit("/etc/systemd/system/triton.service", "Restart=on-failure", "Restart=always")
    box.edit("/etc/systemd/system/triton.service", "Environment=PODMAN_SYSTEMD_UNIT=%n\n", "")
    labels = {k: v for k, v in effect.inspect(box)["Config"]["Labels"].items() if k != "PODMAN_SYSTEMD_UNIT"}
    effect.set_container(box, "Config", Labels=labels)
    effect.set_unit(box, "triton.service", Restart="always")


@case(ROOTFUL)
def quadlet_on_cgroup_v1(box: Tree) -> None:
    box.remove("/etc/systemd/system/triton.service")
    box.change("@units", lambda units: units.pop("triton.service"))
    effect.down(box, "there is no such unit")
    words = (
        "[Container]\nContainerName=triton\nImage=nvcr.io/nvidia/tritonserver:24.05-py3\nAddDevice=nvidia.com/gpu=all\n"
    )
    box.put("/etc/containers/systemd/triton.container", words)


@case(ROOTFUL)
def restart_always_without_its_unit(box: Tree) -> None:
    effect.set_container(box, "HostConfig", RestartPolicy={"Name": "always", "MaximumRetryCount": 0}, AutoRemove=False)
    labels = {k: v for k, v in effect.inspect(box)["Config"]["Labels"].items() if k != "PODMAN_SYSTEMD_UNIT"}
    effect.set_container(box, "Config", Labels=labels)
    box.remove("/etc/systemd/system/triton.service")
    box.change("@units", lambda units: units.pop("triton.service"))
    box.edit("/proc/4801/cgroup", "/system.slice/triton.service", "/machine.slice/libpod-conmon.scope")
    box.change("@processes", lambda found: next(one for one in found if one["name"] == "conmon").update(cgroup="/x"))


@case(ROOTLESS)
def rootless_on_cgroup_v1(box: Tree) -> None:
    """The recorded box is one."""


@case(ROOTFUL)
def socket_is_off(box: Tree) -> None:
    effect.no_podman(box, "/run/podman/podman.sock is not there", "systemctl status podman.socket")


@case(ROOTFUL)
def conmon_keeps_the_port(box: Tree) -> None:
    effect.set_container(box, "HostConfig", AutoRemove=False)
    effect.down(box, "cannot listen on the TCP port: listen tcp4 127.0.0.1:8000: bind: address already in use", 126)
    left = {"pid": 7777, "parent": 1, "uid": 0, "user": "root", "name": "conmon", "argv": ["/usr/bin/conmon"]}
    box.change("@processes", lambda found: found.append({**left, "cgroup": "/machine.slice"}))
    port = {"address": "127.0.0.1", "port": 8000, "inode": 99, "pids": [7777], "process": "conmon"}
    box.change("@ports", lambda found: found.append(port))


@case(ROOTFUL)
def podman_service_keeps_the_port(box: Tree) -> None:
    effect.set_container(box, "HostConfig", AutoRemove=False)
    effect.down(box, "cannot listen on the TCP port: listen tcp4 127.0.0.1:8000: bind: address already in use", 126)
    port = {"address": "127.0.0.1", "port": 8000, "inode": 99, "pids": [9120], "process": "podman"}
    box.change("@ports", lambda found: found.append(port))


# --------------------------------------------------------------------------------------------------- the seed documents


@case(ROOTFUL)
def module_was_not_built(box: Tree) -> None:
    release = effect.release(box)
    effect.unload(box)
    for path in box.under(f"/usr/lib/modules/{release}", "nvidia"):
        box.remove(path)
    box.remove(f"/usr/lib/modules/{release}/build")
    box.remove(f"/usr/src/kernels/{release}")
    out = box.commands["dkms status"].out
    box.run("dkms status", "\n".join(one for one in out.splitlines() if release not in one) + "\n")
    effect.no_modinfo(box)


@case(ROOTFUL)
def no_spec_at_all(box: Tree) -> None:
    box.remove("/etc/cdi/nvidia.yaml")
    effect.down(box, effect.UNRESOLVABLE)


@case(ROOTFUL)
def only_port_8000(box: Tree) -> None:
    ports = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}
    effect.set_container(box, "HostConfig", PortBindings=ports)
    settings = effect.inspect(box)["NetworkSettings"]
    effect.set_container(box, "", NetworkSettings={**settings, "Ports": ports})
    box.edit("/etc/systemd/system/triton.service", " -p 8001:8001 -p 8002:8002", "")


@case(ROOTFUL)
def engine_of_another_tensorrt(box: Tree) -> None:
    effect.say(
        box,
        "E1130 08:40:12.1 1 logging.cc:40] The engine plan file is not compatible with this version of TensorRT, "
        "expecting library version 10.0.1.6 got 8.5.3.1, please rebuild.",
        "E1130 08:40:12.2 1 model_lifecycle.cc:630] failed to load 'resnet50' version 1: Internal: unable to load plan "
        "file to auto complete config: /models/resnet50/1/model.plan",
    )
    label = box.files["/data/models/resnet50/config.pbtxt"].label
    box.put(
        "/data/models/resnet50/config.pbtxt",
        box.text("/data/models/resnet50/config.pbtxt").replace('"onnxruntime"', '"tensorrt"'),
        label=label,
    )
    box.remove("/data/models/resnet50/1/model.onnx")
    box.put("/data/models/resnet50/1/model.plan", None, size=52_000_000, label=label)
    words = next(one for one in box.commands if one.startswith("find /data/models"))
    begin = " 66 74 72 74 00 00 00 00 01 00 00 00 00 00 00 00\n 00 00 00 00 00 00 00 00 08 05 03 01\n"
    box.run(words, f"/data/models/resnet50/1/model.plan\n{begin}")

    def failed(index: Any) -> None:
        row = next(one for one in index if one["name"] == "resnet50")
        row.update(state="UNAVAILABLE", reason="Internal: unable to load plan file to auto complete config")

    box.change("@triton.index", failed)


@case(ROOTFUL)
def card_memory_is_full(box: Tree) -> None:
    effect.set_card(box, memory_used=15_900_000_000, memory_free=200_000_000)
    effect.say(box, "E1130 08:40:12.1 1 x.cc:1] CUDA out of memory. Tried to allocate 2.00 GiB")


@case("el9_quadlet")
def c_states_and_profile(box: Tree) -> None:
    box.put("/etc/tuned/active_profile", "balanced\n")


@case(ROOTFUL)
def overcommit_is_strict(box: Tree) -> None:
    box.put("/proc/sys/vm/overcommit_memory", "2\n")


@case(ROOTFUL)
def somebody_else_on_the_card(box: Tree) -> None:
    def more(answer: Any) -> None:
        own = answer["box"]["gpus"][0]["processes"][0]
        other = {**own, "pid": 22222, "memory": 3 << 30, "user": "ana", "command": "python train.py"}
        other.update(container_id=None, in_container=False)
        answer["box"]["gpus"][0]["processes"].append(other)

    box.change("@nvml", more)


@case(ROOTFUL)
def delay_for_batches_of_one(box: Tree) -> None:
    def alone(stats: Any) -> None:
        for model in stats["model_stats"]:
            model["execution_count"] = model["inference_count"]

    box.change("@triton.stats", alone)
    box.change(
        "@triton.configs",
        lambda found: found["resnet50"]["1"]["dynamic_batching"].update(max_queue_delay_microseconds=2000),
    )


@case(ROOTFUL)
def centos_8(box: Tree) -> None:
    box.put(
        "/usr/lib/os-release",
        'NAME="CentOS Linux"\nVERSION="8"\nID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="8"\n'
        'PRETTY_NAME="CentOS Linux 8"\n',
    )


@case(ROOTFUL)
def shm_of_64_mb(box: Tree) -> None:
    effect.set_container(box, "HostConfig", ShmSize=65536000)
    box.edit("/etc/systemd/system/triton.service", "--shm-size=1g ", "")


@case(ROOTFUL)
def card_fell_off_the_bus(box: Tree) -> None:
    effect.kernel(
        box,
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=4812, name=tritonserver, GPU has fallen off the bus.",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        ago=600,
    )
    effect.no_nvml(box, 15, "GPU is lost")
    effect.no_server(box)


@case(ROOTLESS)
def stale_spec_boolean_and_label(box: Tree) -> None:
    old = effect.upgrade(box, "570.86.15")
    box.put("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    _label(box, "default_t")
    effect.set_container(box, "HostConfig", AutoRemove=False)
    effect.down(box, effect.stale_start(box, old))
