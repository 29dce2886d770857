"""Where Podman keeps images and logs, and which cgroup version and network it has: what it can do on this box."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from console.checks import box
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.checks.container import name_of, podman
from console.checks.podman_service import is_users
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line
from console.core.units import GIB, size

_V2 = "/sys/fs/cgroup/cgroup.controllers"
_SPACE = "space {graph_root}"
_IMAGE = 20 * 10**9
"""Bytes that a Triton image takes while it is pulled and unpacked, at the least."""
_EASY = 30 * 10**9
_FEW = 100 * 10**9
"""A share of free room tells nothing of a large file system: below this many bytes only it counts."""
_PASSING = ("passthrough", "passthrough-tty")


# ----------------------------------------------------------------------------------------------------------------- D03


@check(
    "D03",
    "cgroup v2, or rootful",
    group="podman",
    slug="cgroup-version",
    needs=(_V2, "stat /sys/fs/cgroup", box.PING, *box.PODMAN_FILES, box.OS_RELEASE),
    why="On cgroup v1 rootless Podman has no figures of a container's use and leaves limits of memory and CPUs out "
    "without an error. Quadlet units need v2 in any case.",
    source="podman#11697, #23187; podman-systemd.unit(5)",
)
def cgroup_version(facts: Facts) -> Answer:
    """The unified hierarchy, or who is hurt by the old one."""
    if why := box.no_podman(facts):
        return skip(why)
    if facts.exists(_V2):
        return ok("cgroup v2", (Evidence(_V2, (facts.maybe(_V2) or "").strip()),))
    if not facts.exists("/sys/fs/cgroup"):
        raise Unknowable("no cgroup file system is mounted", "stat -f -c %T /sys/fs/cgroup")
    lines = (Evidence(_V2, "there is no such file: cgroup v1"),)
    if not is_users(facts):
        return note("cgroup v1, rootful: no Quadlet units", lines, cgroup="1")
    text = "cgroup v1 and rootless: no figures, limits are left out"
    return warn(text, lines, _unified(facts), cgroup="1")


def _unified(facts: Facts) -> Fix:
    word = "systemd.unified_cgroup_hierarchy=1"
    if box.distro(facts).is_debian:
        commands: tuple[str, ...] = (
            f"""sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&{word} /' /etc/default/grub""",
            "sudo update-grub",
        )
        undo = f"take {word} out of /etc/default/grub, then: sudo update-grub"
    else:
        commands = (f'sudo grubby --update-kernel=ALL --args="{word}"',)
        undo = f'sudo grubby --update-kernel=ALL --remove-args="{word}"'
    return Fix("R", commands, "takes effect at the next boot, for the whole box", undo, reboot=True)


# ----------------------------------------------------------------------------------------------------------------- D07


@check(
    "D07",
    "there is room for the next image",
    group="podman",
    slug="storage-room",
    needs=(box.PING, *box.CONTAINER, _SPACE, box.BUS),
    why="A Triton image takes 15 to 20 GB unpacked, and a pull needs room for its packed layers as well. A full file "
    "system also stops the container's own writes and its log.",
    source="podman-pull(1); sizes of nvcr.io/nvidia/tritonserver",
)
def storage_room(facts: Facts) -> Answer:
    """Free room where Podman keeps images."""
    if why := box.no_podman(facts):
        return skip(why)
    facts.answer(box.PING)  # where Podman is silent, that is why its folder is not known
    root = facts.one("graph_root")
    room = facts.space(root)
    if room.free is None or not room.total:
        raise Unknowable(f"{root}: its room is not told", f"df {root}")
    share = room.free / room.total
    text = f"{size(room.free)} of {size(room.total)} free in {root}"
    lines = (Evidence(f"df {root}", f"{room.device or '?'} {room.fs or '?'} on {room.mount or '?'}"),)
    data = {"free": str(room.free), "path": root}
    if room.free < GIB:
        return fail(f"{text}: full", lines, _prune(facts), **data)
    if room.inodes and room.inodes_free is not None and room.inodes_free < room.inodes / 50:
        return warn(f"{room.inodes_free} of {room.inodes} inodes free in {root}", lines, _prune(facts), **data)
    if room.free < _IMAGE and _will_pull(facts):
        return fail(f"{text}: a Triton image takes 20 GB", lines, _prune(facts), **data)
    if room.free < _EASY or (share < 0.15 and room.free < _FEW):
        return warn(text, lines, _prune(facts), **data)
    return ok(text, lines, **data)


def _will_pull(facts: Facts) -> bool:
    """A box with a card and no Triton container yet."""
    try:
        return not box.has_container(facts) and bool(box.gpus(facts))
    except Unknowable:
        return False


def _prune(facts: Facts) -> Fix:
    sudo = "" if is_users(facts) else "sudo "
    commands = (f"{sudo}podman system df", f"{sudo}podman image prune")
    return Fix(
        "S", commands, "removes images without a name, of which the first line tells; it asks before", again=("H05",)
    )


# ----------------------------------------------------------------------------------------------------------------- D08


@check(
    "D08",
    "images lie in overlay storage",
    group="podman",
    slug="storage-driver",
    needs=(box.PING, *box.PODMAN_FILES, box.INFO, box.OS_RELEASE),
    why="The vfs driver copies every layer whole: a Triton image takes several times its size, and each start copies "
    "it once more.",
    source="containers-storage.conf(5)",
)
def storage_driver(facts: Facts) -> Answer:
    """overlay or vfs."""
    if why := box.no_podman(facts):
        return skip(why)
    store = box.at(facts.answer(box.INFO), "store")
    driver = box.at(store, "graphDriverName")
    if not isinstance(driver, str) or not driver:
        raise Unknowable("Podman does not tell its driver", "podman info --format '{{.Store.GraphDriverName}}'")
    lines = (Evidence("podman info", f"graphDriverName: {driver}"),)
    if driver == "vfs":
        users = is_users(facts)
        commands = (
            *((box.install(box.distro(facts), ["fuse-overlayfs"]),) if users else ()),
            f"{'' if users else 'sudo '}podman system reset",
            f"grep -n '^driver' {'~/.config/containers/storage.conf ' if users else ''}/etc/containers/storage.conf",
        )
        effect = (
            "system reset removes ALL containers and images of this store: pull and create anew afterwards. It comes "
            "first (podman-system-reset(1)); a storage.conf that still says vfs then is to say overlay"
        )
        return warn("vfs copies whole layers", lines, Fix("S", commands, effect))
    program = box.at(store, "graphOptions", "overlay.mount_program", "Executable")
    if isinstance(program, str) and program:
        return note(f"{one_line(driver, 30)} by {one_line(program, 60)}: slower to read than the kernel's", lines)
    return ok(one_line(driver, 30), lines)


# ----------------------------------------------------------------------------------------------------------------- D09


@check(
    "D09",
    "the container's log is kept and can be read",
    group="podman",
    slug="log-driver",
    needs=(*box.CONTAINER, box.PING),
    why="The server's log tells why a model does not load and why a start failed. Without one, or with one that grows "
    "without end, the next fault is harder to find or comes sooner.",
    source="podman-run(1) --log-driver",
)
def log_driver(facts: Facts) -> Answer:
    """Driver and size limit."""
    why = box.no_container(facts)
    if why:
        return skip(why)
    config = box.at(box.inspect(facts), "HostConfig", "LogConfig")
    driver = box.at(config, "Type")
    if not isinstance(driver, str) or not driver:
        raise Unknowable("the log driver is not told", "podman inspect --format '{{.HostConfig.LogConfig}}' NAME")
    limit = str(box.at(config, "Size") or "")
    lines = (Evidence("podman inspect", f"LogConfig: Type {driver}, Size {limit or 'none'}"),)
    if driver == "none":
        found = box.inspect(facts)
        command = podman(facts, "inspect --format '{{.Config.CreateCommand}}' " + quote(name_of(found)))
        fix = Fix("S", (command,), "how it was made; make it anew with --log-driver journald")
        return fail("none: nothing of what the server says is kept", lines, fix, driver=driver)
    if driver in _PASSING:
        return note(f"{driver}: the log is in the journal of its unit, Podman has none", lines, driver=driver)
    if driver in ("k8s-file", "json-file") and limit in ("", "0", "0B"):
        return warn(f"{driver} without a limit of size", lines, _limited(facts), driver=driver)
    return ok(one_line(driver, 30) + (f", up to {one_line(limit, 20)}" if limit not in ("", "0", "0B") else ""), lines)


def _limited(facts: Facts) -> Fix:
    users = box.rootless(facts)
    folder = f"{facts.one('home')}/.config/containers" if users else "/etc/containers"
    file, text = f"{folder}/containers.conf.d/50-log-size.conf", "[containers]\nlog_size_max = 52428800\n"
    sudo = "" if users else "sudo "
    return Fix(
        "P",
        (
            f"{sudo}mkdir -p {folder}/containers.conf.d",
            f"printf '[containers]\\nlog_size_max = 52428800\\n' | {sudo}tee {file}",
        ),
        "takes effect for containers that are made from now on: make Triton's anew",
        f"{sudo}rm {file}",
        deeds=(Deed("write", path=file, text=text, root=not users),),
    )


# ----------------------------------------------------------------------------------------------------------------- D10


@check(
    "D10",
    "the network backend is known",
    group="podman",
    slug="network-backend",
    needs=(box.PING, *box.PODMAN_FILES, box.INFO),
    why="Published ports are rules that the backend writes. Which one it is decides what `firewall-cmd --reload` "
    "throws away and how it comes back (I04).",
    source="podman-network(1)",
)
def network_backend(facts: Facts) -> Answer:
    """netavark or CNI."""
    if why := box.no_podman(facts):
        return skip(why)
    backend = box.at(facts.answer(box.INFO), "host", "networkBackend")
    if not isinstance(backend, str) or not backend:
        raise Unknowable("Podman does not tell its backend", "podman info --format '{{.Host.NetworkBackend}}'")
    lines: Sequence[Evidence] = (Evidence("podman info", f"networkBackend: {backend}"),)
    return note(one_line(backend, 40), lines, backend=backend)
