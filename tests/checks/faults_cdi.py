"""Faults of Podman, the toolkit and the CDI spec."""

from __future__ import annotations

from msgspec.structs import replace

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import DEBIAN, EL8, EL9, ROCKY, ROOTLESS, UBUNTU
from tests.checks.tree import Tree


@fault("B01", UBUNTU, takes="container unit server")
def podman_too_old(box: Tree) -> None:
    box.change("@podman.ping", lambda ping: ping.update(version="3.4.4"))
    box.change("@podman.info", lambda info: info["version"].update(Version="3.4.4", APIVersion="3.4.4"))
    effects.swap_line(box, "podman --version", "4.6.2", "3.4.4")
    effects.swap_line(box, effects.packages(box), "4:4.6.2-0ubuntu22.04+obs81.12", "3.4.4+ds1-1ubuntu1")
    effects.down(box, "stat nvidia.com/gpu=all: no such file or directory", 125)


@fault("B02", EL8, ROOTLESS, DEBIAN, takes="container unit server")
def toolkit_removed(box: Tree) -> None:
    for path in ("/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-container-runtime"):
        box.remove(path)
    box.commands["nvidia-ctk --version"] = replace(
        box.commands["nvidia-ctk --version"], code=None, out="", why="nvidia-ctk is not installed"
    )
    effects.drop_packages(box, r"(?:lib)?nvidia-container")
    effects.down(box, _no_hook(box), 127)


def _no_hook(box: Tree) -> str:
    hook = "/usr/bin/nvidia-cdi-hook"
    if box.value("@podman.info")["host"]["ociRuntime"]["name"] == "crun":
        return f"crun: error executing hook `{hook}` (exit code: 1): OCI runtime error"
    return (
        "runc: runc create failed: unable to start container process: error during container init: error running hook "
        f"#0: fork/exec {hook}: no such file or directory: OCI runtime attempted to invoke a command that was not found"
    )


@fault("B03", EL8, ROCKY, DEBIAN, takes="container unit server spec", needs="spec")
def spec_never_made(box: Tree) -> None:
    box.remove(effects.spec(box))
    effects.down(box, effects.UNRESOLVABLE)


@fault("B04", ROOTLESS, takes="container unit server spec", needs="spec")
def spec_unreadable_for_the_user(box: Tree) -> None:
    box.stat(effects.spec(box), mode=0o600)
    effects.down(box, effects.UNRESOLVABLE)


@fault("B05", EL8, ROOTLESS, EL9, takes="container unit server spec", needs="spec")
def spec_of_a_newer_cdi(box: Tree) -> None:
    path = effects.spec(box)
    box.edit(path, "cdiVersion: 0.5.0", "cdiVersion: 0.7.0")
    box.edit(path, "containerEdits:\n  deviceNodes:", "containerEdits:\n  additionalGids:\n  - 39\n  deviceNodes:")
    words = "nvidia-ctk --version"
    box.run(words, "NVIDIA Container Toolkit CLI version 1.19.1\ncommit: 1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d\n")
    list_ = box.commands[effects.packages(box)]
    box.run(effects.packages(box), list_.out.replace("1.17.8", "1.19.1").replace("1.18.2", "1.19.1"))
    effects.down(box, effects.UNRESOLVABLE)


@fault("B05", ROCKY, DEBIAN, UBUNTU, takes="container unit server spec", needs="spec")
def spec_newer_than_an_old_podman(box: Tree) -> None:
    box.edit(effects.spec(box), "cdiVersion: 0.5.0", "cdiVersion: 0.6.0")
    effects.down(box, effects.UNRESOLVABLE)


@fault("B06", DEBIAN, takes="container unit server", needs="spec")
def asks_for_a_card_that_the_spec_lacks(box: Tree) -> None:
    words = [
        one.replace("nvidia.com/gpu=all", "nvidia.com/gpu=1") for one in effects.inspect(box)["Config"]["CreateCommand"]
    ]
    effects.set_container(box, "Config", CreateCommand=words)
    effects.down(box, effects.UNRESOLVABLE.replace("all", "1"))


@fault("B07", EL8, ROCKY, DEBIAN, takes="container unit server spec", needs="driver spec")
def driver_upgraded_spec_stale(box: Tree) -> None:
    new = {"550.90.07": "550.127.05", "535.104.05": "535.154.05", "535.183.01": "535.216.01"}[effects.driver(box)]
    old = effects.upgrade(box, new)
    effects.down(box, effects.stale_start(box, old), 127)


@fault("B08", EL8, DEBIAN, UBUNTU, takes="container unit server", needs="spec")
def hook_missing(box: Tree) -> None:
    box.remove("/usr/bin/nvidia-cdi-hook")
    effects.down(box, _no_hook(box), 127)


@fault("B09", EL8, DEBIAN, ROCKY, takes="container unit server", needs="driver spec")
def spec_names_a_node_that_is_not_there(box: Tree) -> None:
    box.edit(effects.spec(box), "/dev/dri/renderD128\n", "/dev/dri/renderD129\n")
    missing = 'failed to stat CDI host device "/dev/dri/renderD129": no such file or directory'
    effects.down(box, f"setting up CDI devices: failed to inject devices: {missing}")


@fault("B10", EL8, DEBIAN, takes="server", needs="driver spec container")
def spec_without_uvm(box: Tree) -> None:
    box.edit(effects.spec(box), "  - path: /dev/nvidia-uvm\n  - path: /dev/nvidia-uvm-tools\n", "")
    pid = effects.inspect(box)["State"]["Pid"]
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        box.remove(f"/proc/{pid}/root/dev/{name}")
    held = [one for one in effects.inspect(box)["HostConfig"]["Devices"] if "uvm" not in one["PathOnHost"]]
    effects.set_container(box, "HostConfig", Devices=held)
    effects.set_card(box, processes=[])
    effects.say(
        box, "ERROR: The NVIDIA Driver is present, but CUDA failed to initialize.  GPU functionality will not be"
    )
    effects.say(box, "   available.", "   [[ Unknown error (error 999) ]]")
    effects.say(
        box, 'W1130 08:40:11 1 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory: unknown error"'
    )


@fault("B11", EL8, DEBIAN, takes="container unit server spec", needs="spec")
def spec_defined_twice(box: Tree) -> None:
    box.files["/etc/cdi/nvidia-gpu.yaml"] = box.files["/etc/cdi/nvidia.yaml"]
    effects.down(box, effects.UNRESOLVABLE)


@fault("B12", EL9, UBUNTU, also=("B03",), takes="container unit server spec", needs="spec")
def refresh_failed_after_boot(box: Tree) -> None:
    box.remove(effects.spec(box))
    effects.set_unit(
        box,
        "nvidia-cdi-refresh.service",
        ActiveState="failed",
        SubState="failed",
        Result="exit-code",
        ExecMainStatus="1",
    )
    effects.down(box, effects.UNRESOLVABLE)


@fault("B13", EL9, UBUNTU)
def spec_is_lost_at_the_next_boot(box: Tree) -> None:
    state = {"ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled"}
    effects.set_unit(box, "nvidia-cdi-refresh.service", **state)


@fault("B14", EL8, ROCKY, ROOTLESS)
def legacy_hook_left(box: Tree) -> None:
    box.put(
        "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
        '{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-runtime-hook", "args": '
        '["nvidia-container-runtime-hook", "prestart"]}, "when": {"always": true, "commands": [".*"]}, '
        '"stages": ["prestart"]}\n',
    )


@fault("B15", EL8, DEBIAN)
def nvidia_runtime_left(box: Tree) -> None:
    box.put(
        "/etc/containers/containers.conf",
        '[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["/usr/bin/nvidia-container-runtime"]\n',
    )
    box.remove("/usr/bin/nvidia-container-runtime")
