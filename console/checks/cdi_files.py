"""Toolkit and CDI spec files: that they are here, that Podman may read them, accepts them, and finds each device once.

Podman says `unresolvable CDI devices` for all of these, whatever is wrong (host.md 3.2, 6.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from console.checks import box, cdi_fixes, containers_conf
from console.checks.check import Answer, check, fail, ok, skip, unknown, warn
from console.clients import cdi
from console.core.facts import Evidence, Facts, FileFact, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line

NO_SPEC = "no CDI spec for NVIDIA (B03)"
_WRONG_ENV = "/etc/nvidia-container-toolkit/cdi-refresh.env"
_FOLDERS = tuple(f"/{folder}" for folder in cdi.FOLDERS)


@check(
    "B02",
    "NVIDIA's container toolkit is installed",
    group="cdi",
    slug="toolkit-installed",
    needs=(box.BUS, box.OS_RELEASE, cdi_fixes.CTK, cdi_fixes.CTK_VERSION, f"stat {cdi_fixes.HOOK}"),
    why="nvidia-ctk writes the CDI spec that tells Podman which devices and libraries belong to a GPU, and its hook "
    "runs at every start of a container. Without them no container gets a GPU.",
    source="NVIDIA container toolkit, cdi-support; bluefin#3454",
)
def toolkit_installed(facts: Facts) -> Answer:
    """nvidia-ctk and its hook."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    if not cdi_fixes.is_installed(facts):
        return fail("nvidia-ctk is not installed", fix=cdi_fixes.install(facts))
    version = cdi_fixes.toolkit(facts)
    if not version:
        return unknown("nvidia-ctk does not tell its version", "nvidia-ctk --version")
    told = ".".join(map(str, version))
    lines = (Evidence("$ nvidia-ctk --version", f"version {told}"),)
    if version >= (1, 17) and not facts.exists(cdi_fixes.HOOK):
        return warn(f"toolkit {told} without {cdi_fixes.HOOK}", lines, cdi_fixes.reinstall(facts), toolkit=told)
    if version[:3] == (1, 17, 0):
        update = Fix(
            "S", (box.upgrade(box.distro(facts), cdi_fixes.PACKAGE),), "installs a newer toolkit", again=("B02", "B08")
        )
        return warn("toolkit 1.17.0: its hook can end with 1 and stop the start", lines, fix=update, toolkit=told)
    return ok(f"toolkit {told}", lines, toolkit=told)


# ----------------------------------------------------------------------------------------------------------------- B03


@check(
    "B03",
    "a CDI spec for NVIDIA is where Podman looks",
    group="cdi",
    slug="cdi-spec",
    needs=(box.BUS, *box.CDI_NEEDS, *cdi_fixes.NEEDS, *containers_conf.NEEDS),
    why="Podman knows the name nvidia.com/gpu=all only from a CDI spec file. Without one every start that asks for a "
    "GPU ends with `unresolvable CDI devices`.",
    source="NVIDIA container toolkit, cdi-support; podman#26569, #25691; nixpkgs#420638",
)
def spec_exists(facts: Facts) -> Answer:
    """A spec of kind nvidia.com/gpu in a folder that this Podman reads."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    specs = box.cdi_specs(facts)
    found = [spec for spec in specs if box.defines_nvidia(spec)]
    folders, told = _searched(facts)
    good = [spec for spec in found if _folder(spec.path) in folders]
    if good:
        return ok(", ".join(spec.path for spec in good))
    where = " and ".join(folders)
    if found:
        fix = cdi_fixes.generate(facts, f"{folders[0]}/nvidia.yaml")
        podman = f"Podman {box.podman_told(facts)}"
        return fail(f"{found[0].path} is there, {podman} looks only in {where}", told, fix, spec=found[0].path)
    elsewhere = [folder for folder in folders if folder not in _FOLDERS]
    if elsewhere:
        return unknown(f"containers.conf sends Podman to {one_line(elsewhere[0], 80)}, not looked at here", "", told)
    box.cdi_surely(facts)
    broken = next((spec for spec in specs if spec.error), None)
    if broken is not None:
        lines = (Evidence(broken.path, broken.error),)
        return fail(f"{broken.path} is no CDI spec: {broken.error}", lines, cdi_fixes.generate(facts, broken.path))
    others = sorted({name.partition("=")[0] for spec in specs for name in spec.devices})
    but = f", only for {one_line(', '.join(others), 60)}" if others else ""
    return fail(f"no CDI spec for {box.NVIDIA_KIND} in {where}{but}", fix=cdi_fixes.new_spec(facts))


def _folder(path: str) -> str:
    folder = path.rsplit("/", 1)[0]
    return folder if folder != "/run/cdi" else "/var/run/cdi"


def _searched(facts: Facts) -> tuple[tuple[str, ...], tuple[Evidence, ...]]:
    """Folders that this Podman reads, and the line that says so. Podman reads cdi_spec_dirs from 5.5 on; 5.5 itself
    looks in /etc/cdi alone where nothing is set (podman#26569)."""
    version = box.version(box.podman_told(facts) or "")
    if version < (5, 5):
        return _FOLDERS, ()
    told = containers_conf.settings(facts).get("engine", "cdi_spec_dirs")
    if told is not None and isinstance(told.value, list):
        named = tuple(_folder(f"{one.rstrip('/')}/x") for one in told.value if isinstance(one, str))
        if named:
            return named, containers_conf.line(facts, told)
    return (_FOLDERS[:1] if version[:2] == (5, 5) else _FOLDERS), ()


# ----------------------------------------------------------------------------------------------------------------- B04


@check(
    "B04",
    "the Podman user may read the CDI spec",
    group="cdi",
    slug="cdi-readable",
    needs=(box.BUS, *box.CDI_NEEDS, *_FOLDERS, box.PING, "@me"),
    why="Rootless Podman reads the spec as its user. A file that it may not read counts as none, and the error text is "
    "the same as for a missing spec.",
    source="podman#17539; NVIDIA container toolkit writes 0644 since 2024",
)
def spec_readable(facts: Facts) -> Answer:
    """Modes of the spec files and their folders, for the user whose containers these are."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    rootless: bool | None
    try:
        rootless = box.rootless(facts)
    except Unknowable:
        rootless = None
    if rootless is False:
        return ok("rootful: root reads any mode")
    uid = int(facts.one("uid")) if facts.every("uid") and facts.one("uid").isdecimal() else None
    looks = rootless is True and uid is not None and box.at(facts.answer("@me"), "uid") == uid
    found = {path: facts.file(path) for path in _FOLDERS if facts.exists(path)}
    closed = {path: fact for path, fact in found.items() if _may_read(fact, uid, looks) is False}
    files: Mapping[str, FileFact] = {}
    if not any(fact.names is None for fact in found.values()):
        files = _spec_files(facts)
    if not files and not closed:
        return skip(NO_SPEC)
    closed |= {path: fact for path, fact in files.items() if _may_read(fact, uid, looks) is False}
    if closed and rootless is True:
        return _closed(facts, closed, bool(files.keys() - closed.keys()))
    doubtful = [path for path, fact in {**found, **files}.items() if _may_read(fact, uid, looks) is not True]
    if doubtful:
        user = facts.one("user")
        raise Unknowable(f"whether {user} may read {doubtful[0]}", f"sudo -u {user} cat {doubtful[0]}")
    return ok(", ".join(f"{path} is {_mode(fact)}" for path, fact in files.items()))


def _spec_files(facts: Facts) -> Mapping[str, FileFact]:
    """Those of NVIDIA, and those whose text is not known but that are named so."""
    specs = box.cdi_specs(facts)
    unread = [path for path in box.cdi_unread(facts) if "nvidia" in path.rsplit("/", 1)[-1].casefold()]
    paths = [spec.path for spec in specs if box.defines_nvidia(spec)] + unread
    return {path: facts.file(path) for path in paths}


def _may_read(fact: FileFact, uid: int | None, looks: bool) -> bool | None:
    """None where the mode leaves it to groups; `looks`: this user collected the facts."""
    if looks and fact.kind == "dir":
        return fact.names is not None
    if looks and fact.kind == "file":
        return fact.text is not None
    if fact.mode is None:
        return None
    bits = 0o5 if fact.kind == "dir" else 0o4
    if fact.uid == uid:
        return fact.mode >> 6 & bits == bits
    if fact.mode & bits == bits:
        return True
    return None if fact.mode >> 3 & bits == bits and fact.gid != 0 else False


def _mode(fact: FileFact) -> str:
    return "of unknown mode" if fact.mode is None else f"{fact.mode:04o}"


def _closed(facts: Facts, closed: Mapping[str, FileFact], others: bool) -> Answer:
    user = facts.one("user")
    deeds = tuple(Deed("mode", path=path, mode=0o755 if fact.kind == "dir" else 0o644) for path, fact in closed.items())
    fix = Fix(
        "B",
        tuple(f"sudo chmod {deed.mode:04o} {quote(deed.path)}" for deed in deeds),
        "takes effect at once; the file holds no secret",
        "; ".join(f"sudo chmod {_mode(fact)} {quote(path)}" for path, fact in closed.items() if fact.mode is not None),
        deeds=deeds,
        again=("B03",),
    )
    path, fact = next(iter(closed.items()))
    lines = [Evidence(one, f"mode {_mode(f)}, owner {f.uid}:{f.gid}") for one, f in closed.items()]
    text = f"{path} is {_mode(fact)}: {user} may not read it"
    if others:
        return warn(f"{text}, another spec it may", lines, fix, user=user)
    return fail(text, lines, fix, user=user)


# ----------------------------------------------------------------------------------------------------------------- B05


@check(
    "B05",
    "this Podman accepts the spec's CDI version",
    group="cdi",
    slug="cdi-version",
    needs=(box.BUS, *box.CDI_NEEDS, *cdi_fixes.NEEDS, _WRONG_ENV),
    why="Podman drops a spec of a newer CDI version, or with a key that it does not know, without a word, and says "
    "`unresolvable CDI devices`. `nvidia-ctk cdi list` still lists the devices: it reads more than Podman does.",
    source="NVIDIA container toolkit 1.19.1 release notes; toolkit#1860, #1940, #1853, #146, #38",
)
def spec_version(facts: Facts) -> Answer:
    """cdiVersion and keys against what this Podman's CDI library reads."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    specs = [spec for spec in box.cdi_specs(facts) if box.defines_nvidia(spec)]
    if not specs:
        box.cdi_surely(facts)
        return skip(NO_SPEC)
    podman = box.podman_told(facts)
    dropped = [(spec, why) for spec in specs if (why := cdi.skipped(spec, podman))]
    if dropped:
        return _dropped(facts, specs, dropped, podman)
    if podman is None:
        why = facts.why_not(box.PING)
        raise Unknowable(f"Podman's version is not known: {why}", "podman --version")
    newest = cdi.accepted(podman) or (0, 0)
    newer = [spec for spec in specs if box.version(spec.version)[:2] > newest]
    if newer:
        raise Unknowable(f"whether Podman {podman} reads CDI {newer[0].version} is not known here")
    flags = facts.lines(_WRONG_ENV, r"^\s*NVIDIA_CTK_")
    if flags:
        return warn(f"{_WRONG_ENV} sets what nothing reads", flags, _right_file())
    limit = ".".join(map(str, newest))
    versions = ", ".join(dict.fromkeys(spec.version for spec in specs))
    return ok(f"CDI {versions}, Podman {podman} reads up to {limit}", cdi_version=specs[-1].version, podman=podman)


def _right_file() -> Fix:
    argv = f"sudo systemctl restart {cdi_fixes.REFRESH}"
    commands = (f"sudo sh -c 'cat {_WRONG_ENV} >> {cdi_fixes.ENV_FILE}'", f"sudo rm {_WRONG_ENV}", argv)
    return Fix("S", commands, "the service reads the settings at its next start", again=cdi_fixes.AGAIN)


def _dropped(
    facts: Facts, specs: Sequence[cdi.SpecFile], dropped: Sequence[tuple[cdi.SpecFile, str]], podman: str | None
) -> Answer:
    spec, why = dropped[0]
    key = next((name for name in spec.keys if f"key {name}," in why), "")
    lines = facts.lines(spec.path, rf"^\s*[\"']?{key}[\"']?\s*:")[:1] if key else ()
    lines = (*facts.lines(spec.path, r"cdiVersion")[:1], *lines)
    if box.version(podman or "") < (4, 3) and podman is not None:
        fix = Fix("S", (_newer_podman(facts),), "Podman 4.3 and later read what nvidia-ctk writes", again=("B01",))
    elif spec.path.startswith(_FOLDERS[1]) and cdi_fixes.refresh_file(facts):
        fix = cdi_fixes.flagged(facts)
    else:
        fix = cdi_fixes.generate(facts, spec.path)
    data = {"podman": podman or "", "spec": spec.path}
    if not key and spec.version:
        data["cdi_version"] = spec.version
    left = {name for other in specs if all(other is not bad for bad, _ in dropped) for name in other.devices}
    text = f"{spec.path} {why}"
    if set(spec.devices) <= left:
        return warn(f"{text}: another spec is used instead", lines, fix, **data)
    return fail(text, lines, fix, **data)


def _newer_podman(facts: Facts) -> str:
    return "sudo dnf -y upgrade podman" if not box.distro(facts).is_debian else "sudo apt-get install -y podman"


# ----------------------------------------------------------------------------------------------------------------- B11


@check(
    "B11",
    "each CDI device is defined once",
    group="cdi",
    slug="cdi-duplicates",
    needs=(box.BUS, *box.CDI_NEEDS, *box.PODMAN),
    why="Two files of one folder that define the same device make Podman take neither. In /etc/cdi and /var/run/cdi "
    "the latter wins, and the other goes stale unseen until it is the only one left.",
    source="CDI specification, conflict resolution; tried with Podman 4.3.1",
)
def defined_once(facts: Facts) -> Answer:
    """The same device name in two files that Podman reads."""
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    podman = box.podman_told(facts)
    specs = [spec for spec in box.cdi_specs(facts) if box.defines_nvidia(spec) and not cdi.skipped(spec, podman)]
    pairs = [(one, two) for i, one in enumerate(specs) for two in specs[i + 1 :] if set(one.devices) & set(two.devices)]
    near = [pair for pair in pairs if _folder(pair[0].path) == _folder(pair[1].path)]
    if near:
        older, newer = sorted(near[0], key=lambda spec: facts.file(spec.path).mtime or 0.0)
        name = min(set(older.devices) & set(newer.devices))
        names = f"{near[0][0].path} and {near[0][1].path.rsplit('/', 1)[-1]}"
        return fail(f"{names} both define {one_line(name, 40)}", _names(facts, near[0]), _aside(older, newer))
    if pairs:
        old, new = pairs[0]
        text = f"{new.path} wins over {old.path}, which goes stale"
        return warn(text, _names(facts, pairs[0]), _aside(old, new), spec=new.path)
    box.cdi_surely(facts)
    if not specs:
        return skip("no CDI spec for NVIDIA that Podman takes (B03, B05)")
    return ok(f"{len(specs[0].devices)} devices in {specs[0].path}")


def _names(facts: Facts, specs: Sequence[cdi.SpecFile]) -> list[Evidence]:
    return [line for spec in specs for line in facts.lines(spec.path, r"^\s*[-{]?\s*[\"']?kind[\"']?\s*:")[:1]]


def _aside(old: cdi.SpecFile, new: cdi.SpecFile) -> Fix | None:
    """Put one out of Podman's sight, where the other defines all that it does."""
    if not set(old.devices) <= set(new.devices):
        return None
    away = f"{old.path}.off"
    return Fix(
        "P",
        (f"sudo mv {quote(old.path)} {quote(away)}",),
        "takes effect when the container starts next; Podman reads names that end in .yaml and .json only",
        f"sudo mv {quote(away)} {quote(old.path)}",
        deeds=(Deed("move", path=old.path, text=away),),
        again=cdi_fixes.AGAIN,
    )
