"""Podman itself and what it runs containers with: its version, the OCI runtime, and leftovers of older GPU guides."""

from __future__ import annotations

import re
import tomllib

from console.checks import box, containers_conf
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.clients import cdi
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line

NODES = "stat /dev/nvidia*"
_HOOKS = ("/usr/share/containers/oci/hooks.d/*.json", "/etc/containers/oci/hooks.d/*.json")
_LEGACY = re.compile(r"nvidia-container-(?:toolkit|runtime-hook|cli)")
_RUNTIME = "/usr/bin/nvidia-container-runtime"
_CRUN = "/usr/bin/crun"
_NODE = re.compile(r"/dev/nvidia(?:[0-9]{1,4}|ctl|-uvm)")


# ----------------------------------------------------------------------------------------------------------------- B01


@check(
    "B01",
    "Podman is new enough for CDI",
    group="cdi",
    slug="podman-version",
    needs=(box.BUS, *box.PODMAN, *box.PODMAN_FILES, box.OS_RELEASE),
    why="Podman knows GPU names from 4.1 on and takes any other for a path. Older ones read only old CDI versions and "
    "lack what this console uses.",
    source="Podman release notes 4.1; NVIDIA container toolkit#63",
)
def podman_version(facts: Facts) -> Answer:
    """Version of the service that answers, else of the program."""
    told = box.podman_told(facts)
    cards = box.gpus(facts)
    if told is None:
        if box.podman_is_here(facts):
            why = facts.why_not(box.PING)
            raise Unknowable(f"Podman is here but does not tell its version: {why}", "podman --version")
        if not cards:
            return skip(box.NO_PODMAN)
        fix = Fix("S", (box.install(box.distro(facts), ["podman"]),), "installs Podman", again=("D01",))
        return fail(box.NO_PODMAN, fix=fix)
    version = box.version(told)
    newest = cdi.accepted(told) or (0, 0)
    text = f"Podman {one_line(told, 40)}"
    if version >= (4, 9):
        return ok(f"{text}, CDI up to {newest[0]}.{newest[1]}", version=told)
    if not cards:
        return note(f"{text}: older than 4.9", version=told)
    fix = Fix("S", (box.upgrade(box.distro(facts), "podman"),), _reach(facts), again=("B05", "D01"))
    if version < (4, 1):
        return fail(f"{text} knows no CDI names (4.1 and later do)", fix=fix, version=told)
    return warn(f"{text} is older than 4.9 and reads CDI up to {newest[0]}.{newest[1]}", fix=fix, version=told)


def _reach(facts: Facts) -> str:
    """How far the release's own packages go."""
    if box.distro(facts).is_debian:
        return (
            "as new as this release has it: Ubuntu 22.04 has 3.4, 24.04 has 4.9, Debian 12 has 4.3, 13 has 5.4; what "
            "is newer comes with a newer release"
        )
    return "a newer Podman, as far as this release has one: 8.10 and 9.4 have 4.9"


# ----------------------------------------------------------------------------------------------------------------- B14


@check(
    "B14",
    "no legacy NVIDIA hook is left",
    group="cdi",
    slug="legacy-hook",
    needs=(box.BUS, *_HOOKS),
    why="The old OCI hook sets a GPU up by NVIDIA_VISIBLE_DEVICES, which NGC images set. Beside CDI both do it, with "
    "devices twice, other libraries, or a start that fails.",
    source="NVIDIA container toolkit, cdi-support: delete it",
)
def legacy_hook(facts: Facts) -> Answer:
    """Hook files that run NVIDIA's old hook."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    found: list[Evidence] = []
    unknown: Unknowable | None = None
    for pattern in _HOOKS:
        try:
            found += [line for path in facts.glob(pattern) for line in _legacy(facts, path)]
        except Unknowable as missing:
            unknown = missing
    if not found and unknown is not None:
        raise unknown
    if not found:
        return ok("none")
    paths = [line.where.partition(":")[0] for line in found]
    deeds = tuple(Deed("move", path=path, text=f"{path}.off") for path in paths)
    fix = Fix(
        "P",
        tuple(f"sudo mv {path} {path}.off" for path in paths),
        "takes effect when a container starts next; Podman reads names that end in .json only",
        " && ".join(f"sudo mv {path}.off {path}" for path in paths),
        deeds=deeds,
    )
    return warn(f"{paths[0]} runs beside CDI", found, fix)


def _legacy(facts: Facts, path: str) -> tuple[Evidence, ...]:
    if facts.file(path).text is not None:
        return facts.lines(path, _LEGACY.pattern)[:1]
    return (Evidence(path, "it could not be read"),) if "nvidia" in path.rsplit("/", 1)[-1].casefold() else ()


# ----------------------------------------------------------------------------------------------------------------- B15


@check(
    "B15",
    "containers.conf names no nvidia runtime",
    group="cdi",
    slug="nvidia-runtime",
    needs=(box.BUS, *containers_conf.NEEDS, f"stat {_RUNTIME}"),
    why="Older guides made NVIDIA's wrapper Podman's runtime. CDI needs none; where the wrapper was removed no "
    "container starts any more, and a broken containers.conf stops Podman itself.",
    source="nvidia-docker#1544; lablup/backend.ai#13820; host.md 3.7",
)
def nvidia_runtime(facts: Facts) -> Answer:
    """The default runtime, and the table of runtimes."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    conf = containers_conf.settings(facts)
    for path, why in conf.broken.items():
        return warn(f"{path} is no TOML: {why}", (Evidence(path, why),), Fix("S", (f"sudoedit {path}",)))
    default, named = conf.get("engine", "runtime"), conf.get("engine.runtimes", "nvidia")
    if default is not None and str(default.value).rsplit("/", 1)[-1] in ("nvidia", "nvidia-container-runtime"):
        lines = containers_conf.line(facts, default)
        fix = _out(facts, default)
        if named is None or not facts.exists(_RUNTIME):
            return fail(f"{default.path}: the default runtime nvidia is not here", lines, fix)
        return warn(f"{default.path} makes nvidia the default runtime", lines, fix)
    if named is not None:
        return warn(f"{named.path} still names it", containers_conf.line(facts, named), _out(facts, named))
    conf.surely()
    return ok("none")


def _out(facts: Facts, found: containers_conf.Setting) -> Fix:
    """The line made a comment."""
    root = not found.path.startswith("/home/")
    sudo = "sudo " if root else ""
    text = containers_conf.without(facts, found)
    effect = "takes effect for containers that are made from now on"
    if text is None:
        return Fix(
            "S", (f"{'sudoedit' if root else 'vi'} {found.path}",), f"take {found.key} out of [{found.table}]; {effect}"
        )
    # by its number: a pattern would on the way back uncomment the defaults that such files show as comments
    number = containers_conf.line(facts, found)[0].where.rpartition(":")[2]
    return Fix(
        "P",
        (f"{sudo}sed -i '{number}s/^/#/' {found.path}",),
        effect,
        f"{sudo}sed -i '{number}s/^#//' {found.path}",
        deeds=(Deed("write", path=found.path, text=text, mode=facts.file(found.path).mode or 0o644, root=root),),
    )


# ----------------------------------------------------------------------------------------------------------------- B16


@check(
    "B16",
    "the OCI runtime can keep the user's groups",
    group="cdi",
    slug="oci-runtime",
    needs=(*box.PODMAN_FILES, box.PING, box.INFO, NODES, f"stat {_CRUN}", box.OS_RELEASE, *containers_conf.NEEDS),
    why="Where /dev/nvidia* is open to a group only, a rootless container needs that group inside. crun can keep it "
    "(run.oci.keep_original_groups), runc cannot.",
    source="Podman troubleshooting 20; podman#10166, PR#9955",
)
def oci_runtime(facts: Facts) -> Answer:
    """Rootless with runc and device nodes that are not for everybody."""
    if why := box.no_podman(facts):
        return skip(why)
    runtime = box.at(facts.answer(box.INFO), "host", "ociRuntime", "name")
    if not isinstance(runtime, str) or not runtime:
        raise Unknowable("Podman does not tell its runtime", "podman info --format '{{.Host.OCIRuntime.Name}}'")
    name = one_line(runtime, 40)
    if not box.rootless(facts):
        return ok(f"{name}, rootful", runtime=name)
    shut = shut_nodes(facts)
    if not shut:
        return ok(f"{name}, rootless", runtime=name)
    if runtime != "runc":
        return ok(f"{name}, which can keep groups", shut, runtime=name)
    return warn(f"runc cannot keep groups, {shut[0].where} is {shut[0].text}", shut, _crun(facts), runtime=name)


def shut_nodes(facts: Facts) -> tuple[Evidence, ...]:
    """NVIDIA's device nodes that not everybody may open, with mode and owner. Needs NODES."""
    found = []
    for path in facts.glob(NODES.removeprefix("stat ")):
        fact = facts.file(path)
        if _NODE.fullmatch(path) and fact.mode is not None and fact.mode & 0o6 != 0o6:
            found.append(Evidence(path, f"{fact.mode:04o} {fact.uid}:{fact.gid}"))
    return tuple(found)


def _crun(facts: Facts) -> Fix:
    path = f"{facts.one('home')}/.config/containers/containers.conf"
    install = () if facts.exists(_CRUN) else (box.install(box.distro(facts), ["crun"]),)
    effect = "takes effect for containers that are made from now on: make Triton's anew"
    try:
        text = facts.maybe(path) or ""
    except Unknowable:
        return Fix("S", (*install, f"vi {path}"), f'[engine] runtime = "crun"; {effect}')
    line = 'runtime = "crun"\n'
    new = re.sub(r"(?m)^(\[engine\][ \t]*)$\n?", lambda m: f"{m[1]}\n{line}", text, count=1)
    if new == text:
        new = text + ("\n" if text and not text.endswith("\n") else "") + f"[engine]\n{line}"
    try:
        good = tomllib.loads(new).get("engine", {}).get("runtime") == "crun"
    except (tomllib.TOMLDecodeError, RecursionError):
        good = False
    if not good:
        return Fix("S", (*install, f"vi {path}"), f'[engine] runtime = "crun"; {effect}')
    if re.search(r"(?m)^\[engine\]", text):
        command = f"sed -i '/^\\[engine\\]/a runtime = \"crun\"' {path}"
    else:
        end = "" if not text or text.endswith("\n") else "\\n"
        command = f"mkdir -p {path.rpartition('/')[0]} && printf '{end}[engine]\\nruntime = \"crun\"\\n' >> {path}"
    deeds = () if install else (Deed("write", path=path, text=new, root=False),)
    return Fix("P", (*install, command), effect, f"take the line out of {path}", deeds=deeds, again=("D06",))
