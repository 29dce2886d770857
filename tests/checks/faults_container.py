"""Faults of the Triton container and the way it is run."""

from __future__ import annotations

from typing import Any

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import DEBIAN, EL8, EL9, ROCKY, ROOTLESS, UBUNTU
from tests.checks.tree import Tree

MIB = 1 << 20


def _args(box: Tree, *more: str) -> None:
    """More flags of the server."""

    def by(found: Any) -> None:
        found["Args"] += more
        found["Config"]["Cmd"] += more
        found["Config"]["CreateCommand"] += more

    box.change("@podman.inspect", by)
    box.change("@podman.containers", lambda found: found[0]["Command"].extend(more))


@fault("E15", DEBIAN, takes="container server", needs="container")
def killed_for_memory(box: Tree) -> None:
    container = effects.inspect(box)["Id"]
    effects.set_container(box, "HostConfig", Memory=4 << 30)
    effects.died(box, 137, oom=True)
    group = f"/machine.slice/libpod-{container}.scope/container"
    effects.kernel(
        box,
        "tritonserver invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={container},mems_allowed=0,oom_memcg={group},"
        f"task_memcg={group},task=tritonserver,pid=4812,uid=0",
        "Memory cgroup out of memory: Killed process 4812 (tritonserver) total-vm:41220112kB, anon-rss:4188332kB, "
        "file-rss:91223kB, shmem-rss:0kB, UID:0 pgtables:12011kB oom_score_adj:0",
        ago=1190.0,
    )


@fault("E01", DEBIAN, also=("E05",), takes="container server", needs="container")
def server_ends_at_its_start(box: Tree) -> None:
    effects.died(box, 1)
    effects.say(box, "Usage: tritonserver [options]", "tritonserver: unrecognized option '--model-repo=/models'")


@fault("E02", DEBIAN, takes="server", needs="container")
def container_starts_again_and_again(box: Tree) -> None:
    effects.set_container(box, "", RestartCount=41)
    effects.set_container(box, "State", StartedAt="2026-11-30T08:59:52.104411290Z")
    box.change("@podman.containers", lambda found: found[0].update(Restarts=41, StartedAt=int(box.wall) - 8))
    effects.no_server(box)


@fault("E03", DEBIAN, EL8, takes="server", needs="container")
def device_never_asked_for(box: Tree) -> None:
    effects.drop_words(box, "--device", "nvidia.com/gpu=all")
    effects.set_container(box, "HostConfig", Devices=[])
    pid = effects.inspect(box)["State"]["Pid"]
    for name in effects.NODES:
        box.remove(f"/proc/{pid}/root/dev/{name}")
    for path in box.under("/etc/systemd/system", r"/triton\.service$"):
        box.edit(path, "--device nvidia.com/gpu=all ", "")
    effects.set_card(box, processes=[])
    effects.say(box, "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.")
    effects.say(box, "   Use the NVIDIA Container Toolkit to start this container with GPU support.")


@fault("E04", EL8, ROCKY, DEBIAN, takes="server", needs="container driver")
def image_too_new_for_the_driver(box: Tree) -> None:
    old = effects.inspect(box)["ImageName"].rsplit(":", 1)[-1]
    new = {"CUDA_VERSION": "13.0.1.012", "CUDA_DRIVER_VERSION": "580.82.07", "NVIDIA_TRITON_SERVER_VERSION": "25.09"}
    new |= {"TRITON_SERVER_VERSION": "2.61.0"}

    def by(found: Any) -> None:
        for part in (found, found.get("Config") or {}):
            for key in ("ImageName", "Image"):
                if isinstance(part.get(key), str):
                    part[key] = part[key].replace(old, "25.09-py3")
        lines = found["Config"]["Env"]
        found["Config"]["Env"] = [
            f"{key}={new[key]}" if (key := one.partition("=")[0]) in new else one for one in lines
        ]
        found["Config"]["CreateCommand"] = [
            one.replace(old, "25.09-py3") for one in found["Config"].get("CreateCommand", ())
        ]
        found["RepoTags"] = [one.replace(old, "25.09-py3") for one in found.get("RepoTags", ())]

    for name in ("@podman.inspect", "@podman.image"):
        box.change(name, by)
    loaded = effects.driver(box)
    effects.say(
        box,
        "ERROR: This container was built for NVIDIA Driver Release 580.82 or later, but",
        f"       version {loaded} was detected and compatibility mode is UNAVAILABLE.",
        "",
        "       [[CUDA Driver UNAVAILABLE (cuInit(0) returned 803)]]",
    )
    effects.set_card(box, processes=[])
    effects.no_server(box)


@fault("E06", DEBIAN, EL9, needs="container")
def only_http_is_published(box: Tree) -> None:
    kept = {"8000/tcp": effects.inspect(box)["HostConfig"]["PortBindings"]["8000/tcp"]}
    effects.set_container(box, "HostConfig", PortBindings=kept)
    effects.set_container(box, "NetworkSettings", Ports=kept)
    box.change("@podman.containers", lambda found: found[0].update(Ports=found[0]["Ports"][:1]))
    box.tell("@ports", [one for one in box.value("@ports") if one["port"] not in (8001, 8002)])
    lines = [one for one in box.text("/proc/net/tcp").splitlines() if ":1F41 " not in one and ":1F42 " not in one]
    box.put("/proc/net/tcp", "\n".join(lines) + "\n")
    words = effects.inspect(box)["Config"]["CreateCommand"]
    drop = ("127.0.0.1:8001:8001", "127.0.0.1:8002:8002")
    left = [
        one
        for index, one in enumerate(words)
        if one not in drop and not (one in ("-p", "--publish") and words[index + 1] in drop)
    ]
    effects.set_container(box, "Config", CreateCommand=left)


@fault("E08", EL8, DEBIAN, EL9, ROOTLESS, needs="container")
def shared_memory_of_64m(box: Tree) -> None:
    effects.set_container(box, "HostConfig", ShmSize=65536000)
    effects.drop_words(box, "--shm-size=1g")
    effects.say(
        box,
        "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be",
        "   insufficient for the inference server.  NVIDIA recommends the use of the following flags:",
    )


@fault("E09", EL8, DEBIAN, needs="container")
def memlock_of_64k(box: Tree) -> None:
    def by(found: Any) -> None:
        for one in found["HostConfig"]["Ulimits"]:
            if one["Name"] == "RLIMIT_MEMLOCK":
                one.update(Soft=65536, Hard=65536)

    box.change("@podman.inspect", by)
    pid = effects.inspect(box)["State"]["Pid"]
    box.edit(
        f"/proc/{pid}/limits",
        f"Max locked memory         {'unlimited':<20} {'unlimited':<20}",
        f"Max locked memory         {'65536':<20} {'65536':<20}",
    )


@fault("E11", EL8, DEBIAN, EL9, ROOTLESS, needs="container")
def stop_timeout_of_10s(box: Tree) -> None:
    effects.set_container(box, "Config", StopTimeout=10)
    effects.drop_words(box, "--stop-timeout", "60", "--stop-timeout=60")
    for path in box.under("/etc", r"(?:triton\.service|triton\.container)$"):
        if box.files[path].text and "--stop-timeout" in box.text(path):
            for text in (" --stop-timeout 60", "--stop-timeout=60 "):
                if text in box.text(path):
                    box.edit(path, text, "")
            if " -t 60" in box.text(path):
                box.edit(path, " -t 60", "")


@fault("E12", DEBIAN, needs="container")
def health_check_without_a_time_limit(box: Tree) -> None:
    test = {"Test": ["CMD-SHELL", "curl -fsS localhost:8000/v2/health/ready"], "Interval": 30_000_000_000, "Timeout": 0}
    effects.set_container(box, "Config", Healthcheck={**test, "Retries": 3})
    health = {
        "Status": "unhealthy",
        "FailingStreak": 12,
        "Log": [{"Output": "healthcheck command exceeded timeout of 0s"}],
    }
    effects.set_container(box, "State", Health=health)


@fault("E13", EL8, UBUNTU, needs="container unit")
def two_managers(box: Tree) -> None:
    effects.set_container(box, "HostConfig", RestartPolicy={"Name": "always", "MaximumRetryCount": 0}, AutoRemove=False)
    effects.set_unit(box, "podman-restart.service", ActiveState="active", SubState="exited", UnitFileState="enabled")


@fault("E14", EL9, needs="container driver")
def runs_on_both_sockets(box: Tree) -> None:
    effects.set_container(box, "HostConfig", CpusetCpus="", CpusetMems="")
    pid = effects.inspect(box)["State"]["Pid"]
    box.edit(f"/proc/{pid}/status", "Cpus_allowed_list:\t0-7,16-23", "Cpus_allowed_list:\t0-31")
    box.edit(f"/proc/{pid}/status", "Mems_allowed_list:\t0", "Mems_allowed_list:\t0-1")
    words = [one for one in effects.inspect(box)["Config"]["CreateCommand"] if "cpuset" not in one]
    effects.set_container(box, "Config", CreateCommand=words)
    for path in ("/etc/containers/systemd/triton.container", "/run/systemd/generator/triton.service"):
        box.edit(path, " --cpuset-cpus=0-7,16-23 --cpuset-mems=0", "")


@fault("E16", EL8, EL9, DEBIAN, needs="driver container")
def card_memory_nearly_full(box: Tree) -> None:
    total = box.value("@nvml")["box"]["gpus"][0]["memory_total"]
    effects.set_card(box, memory_used=int(total * 0.96), memory_free=int(total * 0.01))


@fault("E18", EL8, EL9, DEBIAN, needs="driver container")
def somebody_else_computes(box: Tree) -> None:
    def by(answer: Any) -> None:
        answer["box"]["gpus"][0]["processes"].append(
            {
                "pid": 22110,
                "kind": "C",
                "memory": 3000 * MIB,
                "user": "ops",
                "command": "python3 train.py",
                "started_wall": box.wall - 900,
                "in_container": False,
            }
        )

    box.change("@nvml", by)


@fault("E19", DEBIAN, EL9, needs="container")
def image_tag_latest(box: Tree) -> None:
    old = effects.inspect(box)["ImageName"]
    new = old.rsplit(":", 1)[0] + ":latest"

    def by(found: Any) -> None:
        if "ImageName" in found:
            found["ImageName"] = new
            found["Config"]["Image"] = new
            found["Config"]["CreateCommand"] = [new if one == old else one for one in found["Config"]["CreateCommand"]]
        else:
            found["RepoTags"] = [new]

    for name in ("@podman.inspect", "@podman.image"):
        box.change(name, by)
    box.change("@podman.containers", lambda found: found[0].update(Image=new))


@fault("L08", DEBIAN, EL8, needs="container")
def anybody_may_load_models(box: Tree) -> None:
    _args(box, "--model-control-mode=explicit", "--load-model=*")
    for key in ("HostConfig", "NetworkSettings"):
        name = "PortBindings" if key == "HostConfig" else "Ports"
        ports = effects.inspect(box)[key][name]
        effects.set_container(box, key, **{name: {one: [{"HostIp": "0.0.0.0", "HostPort": one[:4]}] for one in ports}})
    box.tell("@ports", [{**one, "address": "0.0.0.0"} for one in box.value("@ports")])


@fault("I02", DEBIAN, EL8, UBUNTU, takes="container unit server")
def port_taken_by_another_program(box: Tree) -> None:
    effects.down(box, "cannot listen on the TCP port: listen tcp4 127.0.0.1:8000: bind: address already in use")
    box.change(
        "@ports",
        lambda found: found.append(
            {"address": "0.0.0.0", "port": 8000, "inode": 91223, "pids": [20110], "process": "python3"}
        ),
    )
    box.put(
        "/proc/net/tcp",
        box.text("/proc/net/tcp")
        + "   9: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 91223 1\n",
    )


@fault("I02", DEBIAN, takes="container unit server")
def port_held_by_the_api_service(box: Tree) -> None:
    effects.down(box, "cannot listen on the TCP port: listen tcp4 127.0.0.1:8000: bind: address already in use")
    box.change(
        "@ports",
        lambda found: found.append(
            {"address": "127.0.0.1", "port": 8000, "inode": 91224, "pids": [9120], "process": "podman"}
        ),
    )


@fault("I04", EL8, EL9, ROCKY, takes="server", needs="container")
def firewall_reload_lost_the_ports(box: Tree) -> None:
    kept = [one for one in box.commands["iptables-save -t nat"].out.splitlines() if "NETAVARK" not in one]
    box.run("iptables-save -t nat", "\n".join(kept) + "\n")
    effects.no_server(box, "localhost:8000: timed out")
