"""Is SELinux on, will it be after a reboot, and is what containers need of it installed?"""

from __future__ import annotations

import re

from console.checks import selinux
from console.checks.box import NO_PODMAN, RPM_ALL, distro, rpms
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line

CONFIG = "/etc/selinux/config"
PODMAN = "/usr/bin/podman"
RUNTIME_TYPE = "container_runtime_exec_t"
NOT_BY_KERNEL = "sudo grubby --update-kernel=ALL --remove-args=selinux"
"""Takes away `selinux=0`, the one way of RHEL 9 to switch it off."""
_SETTING = re.compile(r"^\s*SELINUX\s*=\s*(\S+)", re.MULTILINE)


@check(
    "C01",
    "SELinux enforces",
    group="selinux",
    slug="selinux-mode",
    needs=selinux.NEEDS,
    why="Enforcing keeps a broken model or back end inside its container. Permissive lets all pass and only logs it, "
    "so that what is wrong now shows on the day when somebody enforces.",
    source="selinuxfs",
)
def selinux_mode(facts: Facts) -> Answer:
    """Enforcing, permissive or off."""
    now = selinux.mode(facts)
    if now == "disabled":
        if not distro(facts).is_el:
            return skip(selinux.off(facts))
        return warn(
            "off: nothing on this box is confined",
            (Evidence(selinux.ENFORCE, "absent"),),
            Fix(
                "R",
                (
                    f"sudo sed -i 's/^SELINUX=.*/SELINUX=permissive/' {CONFIG}",
                    NOT_BY_KERNEL,
                    "sudo fixfiles -F onboot",
                    "sudo systemctl reboot",
                ),
                effect="the next boot labels all files, which takes minutes, and boots once more; nothing is denied "
                "yet (an enforcing boot over files without labels may not come up). Once no denials come any more C01 "
                "says how to enforce, and C02 how that lasts",
                undo="before the reboot: put the line back as it was, sudo rm /.autorelabel",
                reboot=True,
                again=("C02",),
            ),
            mode=now,
        )
    evidence = (Evidence(selinux.ENFORCE, facts.text(selinux.ENFORCE).strip()),)
    if now == "enforcing":
        return ok("enforcing", evidence, mode=now)
    return warn(
        "permissive: what would be denied is only logged",
        evidence,
        Fix(
            "S",
            ("sudo ausearch -m avc,user_avc -ts boot", "sudo setenforce 1"),
            effect="look at the denials first: each of them holds from then on, for containers that run too. C02 then "
            "makes it last beyond a reboot",
            undo="sudo setenforce 0",
            again=("C02", "C03", "C07", "C08"),
        ),
        mode=now,
    )


@check(
    "C02",
    "SELinux is configured as it runs",
    group="selinux",
    slug="selinux-config",
    needs=(*selinux.NEEDS, CONFIG),
    why="The file says what the next boot does. A mode that was changed by hand is gone then, and Triton meets other "
    "rules than it was tried with.",
    source="selinux(8)",
)
def selinux_config(facts: Facts) -> Answer:
    """/etc/selinux/config against the running kernel."""
    now = selinux.mode(facts)
    text = facts.maybe(CONFIG)
    if now == "disabled" and (text is None or not distro(facts).is_el):
        return skip(selinux.off(facts))
    if text is None:
        return unknown(f"there is no {CONFIG}", "sestatus")
    settings = _SETTING.findall(text)
    wanted = settings[-1].lower() if settings else ""
    evidence = facts.lines(CONFIG, r"^\s*SELINUX\s*=")
    if wanted == now:
        return ok(f"{now} now and after a reboot", evidence, mode=now)
    if wanted not in ("enforcing", "permissive", "disabled"):
        named = one_line(wanted, 40) or "none"
        return warn(f"{CONFIG} names no mode that there is: {named}", evidence, _write(now), mode=now)
    return warn(f"{now} now, {wanted} after a reboot", evidence, _agree(now, wanted), mode=now, configured=wanted)


def _agree(now: selinux.Mode, wanted: str) -> Fix | None:
    """Towards more SELinux, never towards less."""
    if now == "disabled":
        effect = "shows the argument of the kernel that switches it off; C01 has the way back, permissive first"
        return Fix("S", ("grep -o 'selinux=[0-9]' /proc/cmdline",), effect=effect, again=("C01",))
    if now == "permissive" and wanted == "enforcing":
        effect = "the next boot enforces by itself: look at the denials before"
        return Fix("S", ("sudo ausearch -m avc,user_avc -ts boot", "sudo setenforce 1"), effect=effect, again=("C01",))
    return _write(now)


def _write(now: selinux.Mode) -> Fix | None:
    if now == "disabled":
        return None
    return Fix(
        "S",
        (f"sudo sed -i 's/^SELINUX=.*/SELINUX={now}/' {CONFIG}",),
        effect="takes effect at the next boot",
        undo="put the line back as it was",
    )


@check(
    "C09",
    "the container policy is installed",
    group="selinux",
    slug="container-selinux",
    needs=(*selinux.NEEDS, RPM_ALL, f"stat {PODMAN}", selinux.DEVICE_BOOLEANS[0]),
    why="container-selinux brings the domain that containers run in and the booleans for devices. Without it an "
    "enforcing host denies a container nearly everything, or confines it not at all.",
    source="c-selinux",
)
def container_policy(facts: Facts) -> Answer:
    """container-selinux by the package list, or by a boolean that only it brings."""
    if why := selinux.off(facts):
        return skip(why)
    if not facts.exists(PODMAN):
        return skip(NO_PODMAN)
    try:
        found = [version for name, version in rpms(facts) if name == "container-selinux"]
    except Unknowable:
        if selinux.boolean(facts, selinux.USE_DEVICES) is None:
            raise
        evidence = (Evidence(selinux.DEVICE_BOOLEANS[0], "is there"),)
        return ok("loaded; its version is not told", evidence)
    if found:
        evidence = (Evidence("rpm -qa", f"container-selinux {found[-1]}"),)
        return ok(f"container-selinux {found[-1]}", evidence, version=found[-1])
    answer = fail if selinux.mode(facts) == "enforcing" else warn
    return answer(
        "container-selinux is not installed",
        (Evidence("rpm -qa", "no container-selinux"),),
        Fix(
            "S",
            ("sudo dnf -y install container-selinux", f"sudo restorecon -v {PODMAN}"),
            effect="containers take it at their next start; there is no way back, since Podman's package wants it",
            again=("C03", "C10"),
        ),
    )


@check(
    "C10",
    "the podman program has its label",
    group="selinux",
    slug="podman-label",
    needs=(*selinux.NEEDS, f"stat {PODMAN}"),
    why="The label of the program decides in which domain Podman, and from there each container, runs. With another "
    "label containers end in the wrong domain, or do not start.",
    source="podman#4673",
)
def podman_label(facts: Facts) -> Answer:
    """The type of /usr/bin/podman."""
    if why := selinux.off(facts):
        return skip(why)
    found = facts.file(PODMAN)
    if not found.is_there:
        return skip(NO_PODMAN)
    label = selinux.context(found.label or "")
    if label is None:
        return unknown(f"the label of {PODMAN} is not told", f"ls -Z {PODMAN}")
    evidence = (Evidence(PODMAN, found.label or ""),)
    if label.type == RUNTIME_TYPE:
        return ok(label.type, evidence, label=label.type)
    if label.type == "unlabeled_t" or label.type.endswith("_exec_t") or label.type == "bin_t":
        return warn(f"{label.type} where {RUNTIME_TYPE} belongs", evidence, _relabel(label.type), label=label.type)
    return note(f"{label.type}: not the type of container-selinux", evidence, label=label.type)


def _relabel(before: str) -> Fix:
    return Fix(
        "B",
        (f"sudo restorecon -v {PODMAN}",),
        effect="containers take it at their next start; none is touched now",
        undo=f"sudo chcon -t {before} {PODMAN}",
        deeds=(Deed("run", ("restorecon", "-v", PODMAN)),),
        back=(Deed("run", ("chcon", "-t", before, PODMAN)),),
        again=("C06",),
    )
