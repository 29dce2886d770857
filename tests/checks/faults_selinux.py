"""Faults of SELinux."""

from __future__ import annotations

from msgspec.structs import replace

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import EL8, EL9, ROCKY, ROOTLESS
from tests.checks.tree import Tree

AVC = 'audit: type=1400 audit(1796028012.412:912): avc:  denied  {{ {what} }} for  pid=4812 comm="{comm}" {name} '
_SCONTEXT = (
    "scontext=system_u:system_r:container_t:s0:c77,c911 tcontext=system_u:object_r:{type}:s0 tclass={of} permissive=0"
)


def _denied(box: Tree, what: str, name: str, type_: str, of: str, comm: str = "tritonserver") -> None:
    line = AVC.format(what=what, comm=comm, name=name) + _SCONTEXT.format(type=type_, of=of)
    effects.kernel(box, line, ago=600.0)
    box.run(
        "ausearch -m avc,user_avc -ts recent",
        f"----\ntime->Mon Nov 30 08:50:00 2026\ntype=AVC {line.partition(': ')[2]}\n",
    )


@fault("C03", ROOTLESS, takes="server", needs="container driver")
def rootless_may_not_use_devices(box: Tree) -> None:
    box.put("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    effects.set_card(box, processes=[])
    effects.say(box, "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.")
    effects.say(box, "Failed to initialize NVML: Insufficient Permissions")
    _denied(box, "read write", 'name="nvidiactl" dev="devtmpfs" ino=812', "xserver_misc_device_t", "chr_file")
    effects.no_server(box)


@fault("C01", EL8, EL9)
def permissive(box: Tree) -> None:
    box.put("/sys/fs/selinux/enforce", "0")
    box.edit("/etc/selinux/config", "SELINUX=enforcing", "SELINUX=permissive")


@fault("C02", EL8)
def permissive_until_the_next_boot(box: Tree) -> None:
    box.edit("/etc/selinux/config", "SELINUX=enforcing", "SELINUX=disabled")


@fault("C05", ROOTLESS, needs="container driver")
def nodes_without_their_label(box: Tree) -> None:
    for name in effects.NODES:
        box.stat(f"/dev/{name}", label="system_u:object_r:device_t:s0")


@fault("C06", EL8, EL9, needs="container")
def container_is_not_confined(box: Tree) -> None:
    effects.set_container(box, "", ProcessLabel="", MountLabel="")
    pid = effects.inspect(box)["State"]["Pid"]
    box.put(f"/proc/{pid}/attr/current", "system_u:system_r:spc_t:s0\0")
    words = effects.inspect(box)["Config"]["CreateCommand"]
    at = words.index("run") + 1
    effects.set_container(box, "Config", CreateCommand=[*words[:at], "--security-opt=label=disable", *words[at:]])


@fault("C07", EL8, ROCKY, EL9, takes="server", needs="container")
def models_have_a_foreign_label(box: Tree) -> None:
    root = effects.models(box)
    for path in [root, *box.under(root)]:
        box.stat(path, label="unconfined_u:object_r:default_t:s0")
    # the relabelling `:z` was forgotten
    words = [one.replace(":ro,z", ":ro") for one in effects.inspect(box)["Config"]["CreateCommand"]]
    effects.set_container(box, "Config", CreateCommand=words)
    box.change("@podman.inspect", lambda found: found["Mounts"][0].update(Mode=""))
    for path in box.under("/etc", r"(?:triton\.service|triton\.container)$"):
        if box.files[path].text and ":ro,z" in box.text(path):
            box.edit(path, ":ro,z", ":ro")
    _denied(box, "read", 'name="models" dev="nvme0n1p1" ino=128', "default_t", "dir")
    effects.say(box, "E1130 08:40:11 1 server.cc:595] failed to stat file /models: Permission denied")
    effects.no_server(box)


@fault("C07", EL8, ROCKY, also=("C08",), needs="container")
def one_model_moved_in_without_a_label(box: Tree) -> None:
    root = f"{effects.models(box)}/resnet50"
    for path in [root, *box.under(root)]:
        box.stat(path, label="unconfined_u:object_r:user_home_t:s0")
    _denied(box, "read", 'name="resnet50" dev="nvme0n1p1" ino=140', "user_home_t", "dir")


@fault("C09", EL8, EL9)
def container_policy_missing(box: Tree) -> None:
    effects.drop_packages(box, r"container-selinux\t")
    for path in box.under("/sys/fs/selinux/booleans", "/container_"):
        box.remove(path)


@fault("C10", EL8, EL9, ROCKY)
def podman_has_the_wrong_label(box: Tree) -> None:
    box.files["/usr/bin/podman"] = replace(box.files["/usr/bin/podman"], label="system_u:object_r:bin_t:s0")
