"""What the CDI spec that Podman takes says, against this box: device names, files, hooks, device nodes, MIG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

from console.checks import box, cdi_fixes
from console.checks.cdi_files import NO_SPEC
from console.checks.check import Answer, check, fail, ok, skip, warn
from console.checks.driver_box import MAKE_CONTROL, MAKE_UVM
from console.clients import cdi, libpod
from console.core.facts import Evidence, Facts, NotNeededError, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line

SPEC = (box.BUS, *box.CDI_NEEDS, *cdi_fixes.NEEDS)
"""Needs of each check here: the spec in force, and how it is made anew."""
_PATHS = "stat {cdi_paths}"
_CARD = re.compile(r"/dev/nvidia([0-9]{1,4})")
_INDEX = re.compile(r"(?:gpu)?[0-9]{1,4}")
_MIG = re.compile(r"(?:mig)?[0-9]{1,4}:[0-9]{1,4}")
_UVM = "/dev/nvidia-uvm"
_UVM_NODES = {_UVM, "/dev/nvidia-uvm-tools"}
_CONTROL = {"/dev/nvidiactl", *_UVM_NODES, "/dev/nvidia-modeset"}


def _specs(facts: Facts) -> tuple[cdi.SpecFile, ...] | Answer:
    if not box.gpus(facts):
        return skip(box.NO_DEVICE)
    return box.cdi_in_force(facts) or skip(NO_SPEC)


def _device_names(specs: Sequence[cdi.SpecFile]) -> tuple[str, ...]:
    full = (name for spec in specs for name in spec.devices if name.startswith(f"{box.NVIDIA_KIND}="))
    return tuple(dict.fromkeys(name.partition("=")[2] for name in full))


def _line(facts: Facts, spec: cdi.SpecFile, path: str, key: str) -> tuple[Evidence, ...]:
    """The line that names a path, that of the key first."""
    exact = facts.lines(spec.path, rf"{key}[\"']?\s*:\s*[\"']?{re.escape(path)}[\"']?,?\s*$")
    return (exact or facts.lines(spec.path, re.escape(path)))[:1]


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class _Gone:
    """Paths of one kind that specs name, sorted by whether they are there."""

    def __init__(self, facts: Facts, specs: Sequence[cdi.SpecFile], kind: str) -> None:
        self.all: list[str] = []
        self.missing: list[str] = []
        self.spec = specs[0]
        self.unknown: Unknowable | None = None
        for spec in specs:
            for one in cdi.host_paths(spec):
                if one.kind == kind and one.path not in self.all:
                    self._sort(facts, spec, one.path)

    def _sort(self, facts: Facts, spec: cdi.SpecFile, path: str) -> None:
        self.all.append(path)
        try:
            there = facts.exists(path)
        except Unknowable as missing:
            self.unknown = self.unknown or missing
            return
        except NotNeededError:  # a spec of more paths than the collector looks at
            self.unknown = self.unknown or Unknowable(f"{path} was not looked at", f"ls {path}")
            return
        if not there:
            self.spec = self.spec if self.missing else spec
            self.missing.append(path)

    def surely(self) -> None:
        """Unknowable where none is missing for sure but one could not be looked at."""
        if not self.missing and self.unknown is not None:
            raise self.unknown


# ----------------------------------------------------------------------------------------------------------------- B06


@check(
    "B06",
    "the spec names the cards of this box",
    group="cdi",
    slug="cdi-devices",
    needs=(*SPEC, "stat /sys/bus/pci/devices/{gpu}/driver", box.INSPECT),
    why="A container gets the cards that the spec named when it was written. After a card was added, removed or moved "
    "the old names no longer fit.",
    source="NVIDIA container toolkit, cdi-support; podman#18292",
)
def devices(facts: Facts) -> Answer:
    """Names that the container asks for, and the number of cards."""
    specs = _specs(facts)
    if isinstance(specs, Answer):
        return specs
    names = _device_names(specs)
    shown = one_line(", ".join(names), 60)
    fix = cdi_fixes.generate(facts, specs[0].path)
    absent = [name for name in _asked(facts) if name.partition("=")[2] not in names]
    lines = tuple(line for spec in specs for line in facts.lines(spec.path, r"^\s*[-{]?\s*[\"']?name[\"']?\s*:"))[:4]
    if absent:
        return fail(f"the container asks for {one_line(absent[0], 60)}; there are {shown}", lines, fix, asked=absent[0])
    cards = _cards(facts)
    nodes = {one.path for spec in specs for one in cdi.host_paths(spec) if _CARD.fullmatch(one.path)}
    count = len(nodes) or sum(1 for name in names if _INDEX.fullmatch(name))
    if count and count != cards:
        text = f"names {_many(count, 'card')} ({shown}), the bus has {cards} for nvidia"
        return warn(text, lines, fix, cards=str(cards))
    return ok(f"{shown}: {_many(cards, 'card')}", lines, cards=str(cards))


def _asked(facts: Facts) -> tuple[str, ...]:
    """Names of NVIDIA's devices that the container was created with; () where nothing tells."""
    try:
        words = box.at(facts.answer(box.INSPECT), "Config", "CreateCommand")
    except Unknowable:
        return ()
    found = libpod.cdi_names([str(word) for word in words]) if isinstance(words, list) else ()
    return tuple(name for name in found if name.startswith(f"{box.NVIDIA_KIND}="))


def _cards(facts: Facts) -> int:
    """NVIDIA's cards that no other driver holds."""
    count = 0
    for address in box.gpus(facts):
        try:
            target = facts.file(f"/sys/bus/pci/devices/{address}/driver").target or ""
        except Unknowable:
            target = ""
        count += target.rsplit("/", 1)[-1] in ("", "nvidia")
    return count


# ----------------------------------------------------------------------------------------------------------------- B07


@check(
    "B07",
    "the spec fits the driver that is installed",
    group="cdi",
    slug="cdi-stale",
    needs=(*SPEC, *box.DRIVER, _PATHS),
    why="Podman mounts every file that the spec names. One is missing, and no container with a GPU starts; all are of "
    "another version than the loaded driver, and CUDA fails inside.",
    source="NVIDIA container toolkit, cdi-support; podman#26233, #23935; webkit-container-sdk#23",
)
def stale(facts: Facts) -> Answer:
    """Files that the spec mounts, and the version in their names."""
    specs = _specs(facts)
    if isinstance(specs, Answer):
        return specs
    gone = _Gone(facts, specs, "mount")
    written = next((version for spec in specs if (version := cdi.driver_version(spec))), "")
    loaded = box.driver(facts)
    if loaded and not box.version(loaded[0]):
        gone.unknown = gone.unknown or Unknowable(
            "the version of the loaded driver is not understood", "modinfo nvidia"
        )
        loaded = None
    data = {
        "spec": gone.spec.path,
        "spec_version": written,
        "driver": loaded[0] if loaded else "",
        "missing": str(len(gone.missing)),
    }
    if not gone.missing and loaded and written and written != loaded[0]:
        lines = (*_named(facts, gone.spec, written), loaded[1])
        text = f"written for {written}, the loaded driver is {loaded[0]}"
        return fail(f"{gone.spec.path} is {text}", lines, cdi_fixes.generate(facts, gone.spec.path), **data)
    gone.surely()
    if not gone.missing:
        of = f", driver {written}" if written else ""
        return ok(f"{gone.spec.path}: {len(gone.all)} files are there{of}", (), **data)
    first = _line(facts, gone.spec, gone.missing[0], "hostPath")
    text = f"{gone.spec.path}: {len(gone.missing)} of {len(gone.all)} files are not there"
    if loaded and written and written != loaded[0]:
        text += f", spec of {written}, driver {loaded[0]}"
    elif len(gone.missing) == 1:
        text += f": {gone.missing[0].rsplit('/', 1)[-1]}"
    lines = (*first, loaded[1]) if loaded else first
    return fail(text, lines, _for_files(facts, gone), **data)


def _named(facts: Facts, spec: cdi.SpecFile, version: str) -> tuple[Evidence, ...]:
    return facts.lines(spec.path, rf"\.so\.{re.escape(version)}")[:1]


def _for_files(facts: Facts, gone: _Gone) -> Fix:
    """A missing socket is its service's, everything else is the spec's."""
    if all("/nvidia-persistenced/" in path for path in gone.missing):
        argv = ("systemctl", "start", "nvidia-persistenced.service")
        stop = ("systemctl", "stop", "nvidia-persistenced.service")
        return Fix(
            "B",
            (f"sudo {' '.join(argv)}",),
            "makes the socket that the spec mounts; takes effect when the container starts next",
            f"sudo {' '.join(stop)}",
            deeds=(Deed("run", argv=argv),),
            back=(Deed("run", argv=stop),),
            again=("G03",),
        )
    return cdi_fixes.generate(facts, gone.spec.path)


# ----------------------------------------------------------------------------------------------------------------- B08


@check(
    "B08",
    "the spec's hooks are there and can run",
    group="cdi",
    slug="cdi-hooks",
    needs=(*SPEC, _PATHS),
    why="The OCI runtime runs the spec's hooks at every start, to make links and the library cache inside. A hook that "
    "is not there stops the start.",
    source="NVIDIA container toolkit, cdi-support; bluefin#3454, podman#24502",
)
def hooks(facts: Facts) -> Answer:
    """Programs that the spec runs."""
    specs = _specs(facts)
    if isinstance(specs, Answer):
        return specs
    gone = _Gone(facts, specs, "hook")
    if gone.missing:
        path = gone.missing[0]
        lines = _line(facts, gone.spec, path, "path")
        again = path == cdi_fixes.HOOK and cdi_fixes.is_installed(facts)
        fix = cdi_fixes.reinstall(facts) if again else cdi_fixes.generate(facts, gone.spec.path)
        return fail(f"{path} is not there", lines, fix, missing=path)
    dull = [path for path in gone.all if _cannot_run(facts, path)]
    if dull:
        deeds = tuple(Deed("mode", path=path, mode=0o755) for path in dull)
        fix = Fix(
            "B",
            tuple(f"sudo chmod 0755 {quote(path)}" for path in dull),
            "takes effect at the next start",
            "; ".join(f"sudo chmod {facts.file(path).mode or 0:04o} {quote(path)}" for path in dull),
            deeds=deeds,
        )
        mode = facts.file(dull[0]).mode or 0
        return fail(f"{dull[0]} is {mode:04o}: it cannot run", _line(facts, gone.spec, dull[0], "path"), fix)
    gone.surely()
    return ok(one_line(", ".join(gone.all), 80) if gone.all else "the spec has none")


def _cannot_run(facts: Facts, path: str) -> bool:
    try:
        mode = facts.file(path).mode
    except (Unknowable, NotNeededError):
        return False
    return mode is not None and not mode & 0o111


# ----------------------------------------------------------------------------------------------------------------- B09


@check(
    "B09",
    "the device nodes that the spec names are there",
    group="cdi",
    slug="cdi-nodes",
    needs=(*SPEC, _PATHS),
    why="Podman looks up every device node of the spec before it starts the container. One that is missing, often "
    "nvidia-uvm after a boot or a render node after a change of cards, stops the start.",
    source="NVIDIA container toolkit#885; tried with Podman 4.3.1",
)
def nodes(facts: Facts) -> Answer:
    """Device nodes of the spec."""
    specs = _specs(facts)
    if isinstance(specs, Answer):
        return specs
    gone = _Gone(facts, specs, "node")
    gone.surely()
    if not gone.missing:
        return ok(f"{len(gone.all)} nodes are there")
    lines = _line(facts, gone.spec, gone.missing[0], "path")
    more = f" and {len(gone.missing) - 1} more" if len(gone.missing) > 1 else ""
    text = f"{gone.missing[0]}{more} of {len(gone.all)} nodes not there"
    if set(gone.missing) <= _CONTROL:
        fix = _make_nodes(set(gone.missing))
    else:
        before = MAKE_UVM if _UVM_NODES & set(gone.missing) else ()
        fix = cdi_fixes.generate(facts, gone.spec.path, before)
    return fail(text, lines, fix, missing=gone.missing[0])


def _make_nodes(missing: set[str]) -> Fix:
    calls: list[tuple[str, ...]] = [MAKE_CONTROL] if "/dev/nvidiactl" in missing else []
    calls += [MAKE_UVM] if _UVM_NODES & missing else []
    calls += [("nvidia-modprobe", "-m")] if "/dev/nvidia-modeset" in missing else []
    return Fix(
        "B",
        tuple(f"sudo {' '.join(argv)}" for argv in calls),
        "loads the modules and makes the nodes, until the next boot (A16)",
        deeds=tuple(Deed("run", argv=argv) for argv in calls),
        again=("A05", "A16"),
    )


# ----------------------------------------------------------------------------------------------------------------- B10


@check(
    "B10",
    "the spec names nvidia-uvm",
    group="cdi",
    slug="cdi-uvm",
    needs=(*SPEC, f"stat {_UVM}"),
    why="CUDA needs /dev/nvidia-uvm. A spec that was written before the module was loaded leaves it out: nvidia-smi "
    "works in the container, and every model fails.",
    source="NVIDIA container toolkit#50, PR#1979",
)
def uvm(facts: Facts) -> Answer:
    """/dev/nvidia-uvm for every device of the spec."""
    specs = _specs(facts)
    if isinstance(specs, Answer):
        return specs
    for spec in specs:
        without = [name for name in spec.devices if not any(one.path == _UVM for one in cdi.host_paths(spec, [name]))]
        if without:
            fix = cdi_fixes.generate(facts, spec.path, () if box.surely_there(facts, _UVM) else MAKE_UVM)
            lines = facts.lines(spec.path, r"/dev/nvidiactl")[:1]
            return fail(f"{spec.path} has no {_UVM} for {one_line(without[0], 40)}", lines, fix)
    return ok(f"{_UVM} is in it", facts.lines(specs[0].path, rf"{_UVM}[\"']?,?\s*$")[:1])


# ----------------------------------------------------------------------------------------------------------------- B17


@check(
    "B17",
    "the spec names the MIG devices",
    group="cdi",
    slug="cdi-mig",
    needs=(*SPEC, box.NVML),
    why="With MIG on, a container gets memory and compute of a MIG device only by its own name. The spec is not "
    "written anew by itself when MIG devices are made or removed.",
    source="NVIDIA container toolkit, cdi-support; toolkit#1517",
)
def mig(facts: Facts) -> Answer:
    """Cards with MIG on against names such as 0:0."""
    specs = _specs(facts)
    if isinstance(specs, Answer):
        return specs
    cards = box.nvml(facts).gpus
    names = [name for name in _device_names(specs) if _MIG.fullmatch(name)]
    uuids = [name for name in _device_names(specs) if name.startswith("MIG-")]
    listed = max(len(names), len(uuids))
    made = sum(len(card.mig) for card in cards)
    fix = cdi_fixes.generate(facts, specs[0].path)
    if not any(card.mig_on for card in cards):
        if listed:
            return fail(f"the spec names {_many(listed, 'MIG device')}, MIG is off", (), fix)
        return skip("no card has MIG on")
    if not listed:
        return fail("MIG is on, the spec names no MIG device", (), fix)
    if made and made != listed:
        return warn(f"{_many(made, 'MIG device')}, the spec names {listed}", (), fix)
    return ok(_many(listed, "MIG device"))
