"""Labels of the device nodes, and how Triton's own processes are confined."""

from __future__ import annotations

import shlex

from console.checks import selinux
from console.checks.box import BUS, NO_DEVICE, PING, at, gpus, inspect, no_container
from console.checks.check import Answer, check, note, ok, skip, unknown, warn
from console.checks.container import name_of, podman, seen
from console.core.facts import Evidence, Facts
from console.core.finding import Deed, Fix

NODES = "/dev/nvidia*"
NODE_TYPE = "xserver_misc_device_t"
_UNLABELLED = frozenset({"device_t", "unlabeled_t", "default_t", "tmpfs_t", "devtmpfs_t"})
"""What a node has that was made by hand, or before the policy was loaded."""


@check(
    "C05",
    "the GPU's device nodes have their label",
    group="selinux",
    slug="device-labels",
    needs=(*selinux.NEEDS, f"stat {NODES}", BUS),
    why="The booleans open nodes by their type. A node that was made by hand, or before udev ran, is plain device_t, "
    "and a container may not open it whatever the booleans say.",
    source="selinux-policy devices.fc; nvidia-docker#640",
)
def device_labels(facts: Facts) -> Answer:
    """The type of each /dev/nvidia*."""
    if why := selinux.off(facts):
        return skip(why)
    if not gpus(facts):
        return skip(NO_DEVICE)
    nodes = [path for path in facts.glob(NODES) if facts.file(path).kind == "char"]
    if not nodes:
        return skip("no /dev/nvidia* nodes")
    labels = {path: facts.file(path).label or "" for path in nodes}
    types = {path: told.type for path, label in labels.items() if (told := selinux.context(label)) is not None}
    evidence = tuple(Evidence(path, labels[path]) for path in types)
    wrong = [path for path, type_ in types.items() if type_ in _UNLABELLED]
    if wrong:
        text = f"{wrong[0]} is {types[wrong[0]]}" + (f", {len(wrong)} of {len(nodes)} nodes" if len(wrong) > 1 else "")
        shown = tuple(Evidence(path, labels[path]) for path in wrong)
        return warn(text, shown, _restore({path: types[path] for path in wrong}), label=types[wrong[0]], node=wrong[0])
    if len(types) < len(nodes):
        return unknown(f"the labels of {len(nodes) - len(types)} nodes are not told", f"ls -Z {NODES}", evidence)
    other = sorted(set(types.values()) - {NODE_TYPE})
    if other:
        return note(f"{', '.join(other)}: not what the policy gives ({NODE_TYPE})", evidence, label=other[0])
    return ok(f"{NODE_TYPE} on {len(nodes)} nodes", evidence, label=NODE_TYPE)


def _restore(types: dict[str, str]) -> Fix:
    return Fix(
        "B",
        (f"sudo restorecon -v {' '.join(types)}",),
        effect="takes effect at once; a container that could not open them has to be started again",
        undo="; ".join(f"sudo chcon -t {type_} {path}" for path, type_ in types.items()),
        deeds=(Deed("run", ("restorecon", "-v", *types)),),
        back=tuple(Deed("run", ("chcon", "-t", type_, path)) for path, type_ in types.items()),
        again=("C03", "E03"),
    )


@check(
    "C06",
    "Triton runs confined",
    group="selinux",
    slug="container-confined",
    needs=(*selinux.NEEDS, *selinux.DOMAIN, PING),
    why="container_t keeps a process that broke out of a model or back end away from the host's files. Guides switch "
    "label separation off to make a GPU work, where one boolean is enough.",
    source="host.md C06; docs-ctk cdi-support",
)
def confined(facts: Facts) -> Answer:
    """The label of its processes."""
    if why := selinux.off(facts) or no_container(facts):
        return skip(why)
    found, here = inspect(facts), selinux.domain(facts)
    evidence = (*here.evidence, *seen(found, "HostConfig.Privileged"))
    if here.is_confined:
        return ok(here.type, here.evidence, domain=here.type)
    name = shlex.quote(name_of(found))
    command = podman(facts, "inspect --format '{{.Config.CreateCommand}}' " + name)
    cause = "it is privileged" if at(found, "HostConfig", "Privileged") is True else "label=disable"
    if here.type in ("", "spc_t"):
        text = f"label separation is off ({cause}): it works, and nothing holds it"
    else:
        text = f"{here.type}: it works, and nothing holds it"
    fix = Fix(
        "S",
        (command,),
        effect="make it anew without --privileged and without --security-opt label=disable; C03 has the boolean that a "
        "confined container may need, C07 the label of the models",
        again=("C03", "C07", "E03"),
    )
    return warn(text, evidence, fix, domain=here.type or "off")
