"""Reports of the checklist as drawn (design 1.9): a box that serves with four warnings, and one that cannot start."""

from __future__ import annotations

from console.core.facts import Evidence
from console.core.finding import GROUPS, Cause, Deed, Finding, Fix, MendingStep, Report
from tests.fakes.drawn import at

SPEC = "/etc/cdi/nvidia.yaml"
STALE = f"{SPEC}:118"
GENERATE = f"sudo nvidia-ctk cdi generate --output={SPEC}"


def finding(id_: str, group: str, sign: str, title: str, text: str, **more: object) -> Finding:
    """One finding."""
    return Finding(id_, title, group, sign, text, **more)  # type: ignore[arg-type]


def fit() -> list[Finding]:
    """One good check in each group."""
    titles = list(GROUPS.items())
    return [
        finding(f"Z{number:02}", group, "ok", f"{title} is fit", "as it should be")
        for number, (group, title) in enumerate(titles)
    ]


STOP = finding(
    "E11",
    "container",
    "warn",
    "stop time over Triton's drain time",
    "10 s against 30 s: every stop becomes a kill",
    evidence=(Evidence("podman inspect triton", "StopTimeout: 10"),),
    why="Triton drains its requests for up to 30 s. Podman kills it after 10.",
    fix=Fix(
        "B",
        (),
        "the container is made anew",
        "back to the kept one",
        action="container.recreate",
        values={"stop_timeout": "60"},
    ),
    source="triton command_line_parser.h",
)
EXPOSED = finding(
    "L08", "models", "warn", "models are not changed by others", "8000 on 0.0.0.0, model control open [/x]"
)
GOVERNOR = finding(
    "F01",
    "tuning",
    "warn",
    "CPU governor",
    "powersave on 16 of 16",
    fix=Fix(
        "B",
        ("sudo cpupower frequency-set -g performance",),
        "at once; lost at a reboot",
        "the governor before",
        deeds=(Deed("run", ("cpupower", "frequency-set", "-g", "performance")),),
    ),
)
DISK = finding(
    "H02",
    "storage",
    "warn",
    "models on a local disk",
    "nfs4, from filer:/models",
    fix=Fix("S", ("copy the models to a local disk",)),
)
BLIND = finding(
    "C08",
    "selinux",
    "unknown",
    "no recent denials",
    "the audit log may not be read",
    settle="sudo ausearch -m avc -ts recent",
)


def serving_report() -> Report:
    """Four warnings, one that cannot be told."""
    wrong = [STOP, EXPOSED, GOVERNOR, DISK]
    causes = tuple(Cause(one.id, f"{one.title}: {one.text}", "sure", "warn") for one in wrong)
    return Report(at("13:39:58"), 1.8, "infer-01", (*fit(), *wrong, BLIND), causes)


def down_report() -> Report:
    """Design 1.9: the spec is older than the driver."""
    stale = finding(
        "B07",
        "cdi",
        "fail",
        "spec is not stale",
        f"{SPEC}: 31 of 44 files are not there",
        evidence=(
            Evidence(STALE, "hostPath: /usr/lib64/libEGL_nvidia.so.550.90.07"),
            Evidence("/sys/module/nvidia/version", "570.86.15"),
        ),
        why="Podman mounts every file that the spec names. One is missing, so no container with a GPU starts.",
        fix=Fix(
            "B",
            (GENERATE,),
            "takes effect at the next start; no running container is touched",
            "the old file is kept",
            deeds=(Deed("run", ("nvidia-ctk", "cdi", "generate", f"--output={SPEC}"), path=SPEC),),
            again=("E01", "E03"),
        ),
        source="NVIDIA CDI guide; podman#26233",
        data={"driver": "570.86.15", "spec": "550.90.07"},
    )
    ended = finding("E01", "container", "fail", "it runs", "exit 126, start 118")
    cause = Cause(
        "B07",
        "the container cannot start: its CDI spec is older than the driver (550.90.07 against 570.86.15)",
        "sure, 3 of 3 signs",
        "fail",
        (
            "B07 names libraries of 550.90.07",
            "A06 loaded driver is 570.86.15",
            "E01 the start error names such a library",
        ),
        ("E01",),
        (
            MendingStep("B07", "write the spec"),
            MendingStep("", "the unit starts by itself"),
            MendingStep("E11", "stop time, when you recreate"),
        ),
    )
    stop = Cause("E11", "every stop of the container is a kill", "sure", "warn")
    return Report(at("03:12:42"), 1.8, "infer-01", (*fit(), stale, ended, STOP, BLIND), (cause, stop))
