"""May a confined container use the GPU's device nodes, and no more than those?"""

from __future__ import annotations

from console.checks import selinux
from console.checks.box import BUS, CONTAINER, NO_DEVICE, NO_PODMAN, PING, gpus, no_container, rootless
from console.checks.check import Answer, check, fail, note, ok, skip, warn
from console.core.facts import Evidence, Facts

_BOTH = (selinux.USE_DEVICES, selinux.USE_XSERVER)
_CONTAINER_TYPES = ("container_t", "container_init_t")


def _does_not_apply(facts: Facts) -> str:
    if why := selinux.off(facts):
        return why
    if not gpus(facts):
        return NO_DEVICE
    why = no_container(facts)
    return why if why == NO_PODMAN else ""


def _told(facts: Facts) -> dict[str, tuple[bool, bool]]:
    """The device booleans that this policy has."""
    told = {name: selinux.boolean(facts, name) for name in _BOTH}
    return {name: value for name, value in told.items() if value is not None}


def _evidence(facts: Facts) -> tuple[Evidence, ...]:
    paths = (f"{selinux.BOOLEANS}/{name}" for name in _BOTH)
    return tuple(Evidence(path, (facts.maybe(path) or "absent").strip("\0 \n")) for path in paths)


@check(
    "C03",
    "SELinux lets the container use the GPU",
    group="selinux",
    slug="container-use-devices",
    needs=(*selinux.NEEDS, *selinux.DOMAIN, *selinux.DEVICE_BOOLEANS, PING, BUS),
    why="Rootless Podman mounts the host's device nodes, which keep their host label, and container_t may not open "
    "them. CUDA then finds no card: NVML says Insufficient Permissions.",
    source="c-selinux b3e56e2; podman device.md; ctk#210, selinux-policy#1695, jellyfin.org#1093",
)
def device_access(facts: Facts) -> Answer:
    """Rootful or rootless, the domain of the container, and the booleans (host.md C03)."""
    if why := _does_not_apply(facts):
        return skip(why)
    told, evidence = _told(facts), _evidence(facts)
    on = [name for name, (now, _) in told.items() if now]
    if not rootless(facts):
        which = f"{', '.join(on)} on, " if on else ""
        return note(
            f"{which}in general not needed: rootful nodes are made inside the container", evidence, mode="rootful"
        )
    here = selinux.domain(facts) if not no_container(facts) else None
    if here is not None and not here.is_confined:
        kind = here.type or "label separation off"
        return ok(f"not needed: {kind}", (*here.evidence, *evidence), mode="rootless", domain=kind)
    type_ = here.type if here is not None else "container_t"
    if type_ not in _CONTAINER_TYPES:
        text = f"it runs as {type_}: what that domain may open is not known here"
        return note(text, (*here.evidence, *evidence) if here else evidence, mode="rootless", domain=type_)
    if type_ != "container_t":
        on = [name for name in on if name != selinux.USE_XSERVER]
    if on and not all(told[name][1] for name in on):
        text = f"{on[0]} is on, but off is pending"
        return warn(text, evidence, selinux.set_boolean(on[0], ("C04",)), mode="rootless", boolean=on[0])
    if on:
        return ok(f"{on[0]} is on", evidence, mode="rootless", boolean=on[0])
    return _closed(facts, evidence, here)


def _closed(facts: Facts, evidence: tuple[Evidence, ...], here: selinux.Domain | None) -> Answer:
    fix = selinux.open_devices(facts, ("C04", "C08", "E03"))
    data = {"mode": "rootless", "boolean": "off"}
    if selinux.mode(facts) == "permissive":
        return note("off, and only logged: SELinux is permissive", evidence, **data)
    if here is None:
        return warn("off: a rootless container will not open the GPU", evidence, fix, **data)
    what = "off" if _told(facts) else "this policy has no such boolean"
    text = f"{what}: rootless {here.type} may not open /dev/nvidia*"
    return fail(text, (*here.evidence, *evidence), fix, domain=here.type, **data)


@check(
    "C04",
    "only the GPU's nodes are opened, not all",
    group="selinux",
    slug="narrow-boolean",
    needs=(*selinux.NEEDS, *CONTAINER, *selinux.DEVICE_BOOLEANS, BUS),
    why="container_use_devices opens every device node to any container that is given one, disks included. "
    "container_use_xserver_devices opens /dev/nvidia* alone.",
    source="c-selinux container.te, PR#306",
)
def narrow_boolean(facts: Facts) -> Answer:
    """The broad boolean where a narrow one would do."""
    if why := _does_not_apply(facts):
        return skip(why)
    told, evidence = _told(facts), _evidence(facts)
    broad, narrow = (told.get(name, (False, False))[0] for name in _BOTH)
    if not told:
        return skip("this policy has none of the booleans")
    if not broad:
        return ok(f"{selinux.USE_XSERVER if narrow else 'neither'} is on", evidence)
    if selinux.USE_XSERVER not in told:
        return note(f"{selinux.USE_DEVICES} is on: this policy has no narrower one", evidence)
    # for rootful too: it in general needs neither, but what works now is not to end by this
    wanted = {selinux.USE_XSERVER: True, selinux.USE_DEVICES: False} if not narrow else {selinux.USE_DEVICES: False}
    effect = "takes 30 s or more each; containers that use other devices than /dev/nvidia* lose them"
    return warn(
        f"{selinux.USE_DEVICES} is on: it opens every device node",
        evidence,
        selinux.switch(wanted, effect, ("C03", "E03")),
        boolean=selinux.USE_DEVICES,
    )
