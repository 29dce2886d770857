"""How a CDI spec is made anew on this box: with which program, into which file, and with the flag that an old Podman
needs. Checks of the spec share it; there is no check in this file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from console.checks import box
from console.clients import cdi
from console.core.facts import Facts, Unknowable
from console.core.finding import Deed, Fix

PACKAGE = "nvidia-container-toolkit-base"
CTK = "stat /usr/bin/nvidia-ctk"
CTK_VERSION = "$ nvidia-ctk --version"
HOOK = "/usr/bin/nvidia-cdi-hook"
"""The toolkit's own, from 1.17 on."""
REFRESH = "nvidia-cdi-refresh.service"
REFRESH_FILES = tuple(f"{folder}/systemd/system/{REFRESH}" for folder in ("/usr/lib", "/lib", "/etc"))
ENV_FILE = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
"""The only file of settings that the service reads."""
OUTPUT = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
NEEDS = (box.OS_RELEASE, *box.PODMAN, CTK, CTK_VERSION, *REFRESH_FILES, ENV_FILE)

STATIC, VOLATILE = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
_FLAGS = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"
_NO_GIDS = "no-additional-gids-for-device-nodes"
_WRITES_GIDS = (1, 19, 1)
"""From this version on nvidia-ctk writes additionalGids, which takes CDI 0.7 (docs-ctk release notes, toolkit#1860)."""
_KNOWS_GIDS = (0, 7)
_REPO = "https://nvidia.github.io/libnvidia-container"
_EFFECT = "takes effect when the container starts next; no running container is touched"
AGAIN = ("B03", "B05", "B07", "B08", "B09", "B10")
"""What a new spec may mend or break."""


def toolkit(facts: Facts) -> tuple[int, ...]:
    """Version of nvidia-ctk; () where it said something else. Unknowable where it could not be run. Needs
    CTK_VERSION."""
    said = facts.command(CTK_VERSION.removeprefix("$ ")).out
    match = re.search(r"version (\d{1,4}(?:\.\d{1,4}){1,3})", said)
    return box.version(match[1]) if match else ()


def is_installed(facts: Facts) -> bool:
    """Whether nvidia-ctk is here. Needs CTK."""
    return facts.exists(CTK.removeprefix("stat "))


def refresh_file(facts: Facts) -> str:
    """The unit file that makes the spec at every boot (toolkit 1.18 and later); "" where there is none. Needs
    REFRESH_FILES."""
    return next((path for path in REFRESH_FILES if facts.exists(path)), "")


def install(facts: Facts) -> Fix:
    """The toolkit from NVIDIA's repository. Needs box.OS_RELEASE."""
    repository: tuple[str, ...]
    if box.distro(facts).is_debian:
        keyring = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
        repository = (
            f"curl -fsSL {_REPO}/gpgkey | sudo gpg --dearmor -o {keyring}",
            f"curl -fsSL {_REPO}/stable/deb/nvidia-container-toolkit.list"
            f" | sed 's#deb https://#deb [signed-by={keyring}] https://#g'"
            " | sudo tee /etc/apt/sources.list.d/nvidia-container-toolkit.list",
            "sudo apt-get update",
        )
    else:
        file = "/etc/yum.repos.d/nvidia-container-toolkit.repo"
        repository = (f"curl -fsSL {_REPO}/stable/rpm/nvidia-container-toolkit.repo | sudo tee {file}",)
    words = box.install(box.distro(facts), [PACKAGE])
    return Fix("S", (*repository, words), effect="adds NVIDIA's repository and installs from it", again=("B02", *AGAIN))


def reinstall(facts: Facts) -> Fix:
    """The toolkit's files put back: a new spec would name the same hook. Needs box.OS_RELEASE."""
    words = f"sudo dnf -y reinstall {PACKAGE}"
    if box.distro(facts).is_debian:
        words = f"sudo apt-get install -y --reinstall {PACKAGE}"
    return Fix("S", (words,), "puts the files of the toolkit back", again=("B02", "B08"))


def generate(facts: Facts, path: str, before: Sequence[str] = ()) -> Fix:
    """Make the spec in this file anew; `before` is a program to run first, as root. The toolkit's installation where it
    is not here. Needs NEEDS."""
    if not is_installed(facts):
        return install(facts)
    argv = ("nvidia-ctk", "cdi", "generate", *_flag(facts), f"--output={path}")
    deeds = [Deed("run", argv=tuple(before))] if before else []
    deeds.append(Deed("run", argv=argv, path=path))
    return Fix(
        "B",
        tuple(f"sudo {shlex.join(deed.argv)}" for deed in deeds),
        effect=_EFFECT,
        undo=f"the {path} that was there is put back",
        deeds=tuple(deeds),
        again=AGAIN,
    )


def new_spec(facts: Facts) -> Fix:
    """Make a spec where there is none. Needs NEEDS."""
    if not is_installed(facts) or not refresh_file(facts):
        return generate(facts, STATIC)
    if _flag(facts):
        return flagged(facts)
    argv = ("systemctl", "restart", REFRESH)
    return Fix(
        "B",
        (f"sudo {shlex.join(argv)}",),
        effect=_EFFECT,
        undo=f"sudo rm {output(facts)}",
        deeds=(Deed("run", argv=argv, path=output(facts)),),
        again=(*AGAIN, "B12"),
    )


def output(facts: Facts) -> str:
    """The file that the refresh service writes, as far as its settings tell. Needs ENV_FILE."""
    try:
        lines = (facts.maybe(ENV_FILE) or "").splitlines()
    except Unknowable:
        lines = []
    found = [line.partition("=")[2].strip().strip("\"'") for line in lines if line.startswith(f"{OUTPUT}=")]
    return found[-1] if found and found[-1].startswith("/") else VOLATILE


def flagged(facts: Facts) -> Fix:
    """Have the refresh service write no additionalGids, at every boot. Needs NEEDS."""
    argv = ("systemctl", "restart", REFRESH)  # which reads its settings then: no daemon-reload
    shown = (f"sudo {shlex.join(argv)}",)
    deeds = (Deed("run", argv=argv, path=output(facts)),)
    effect = "writes the spec anew now and at every boot; takes effect when the container starts next"
    undo = f"sudo sed -i '/^{_FLAGS}=/s/,\\?{_NO_GIDS}//' {ENV_FILE}; sudo systemctl restart {REFRESH}"
    try:
        text = facts.maybe(ENV_FILE) or ""
    except Unknowable:
        return Fix("P", (_append(f"{_FLAGS}={_NO_GIDS}", is_whole=False), *shown), effect, undo, again=AGAIN)
    told = re.search(rf"^{_FLAGS}=(.*)$", text, re.MULTILINE)
    if told is not None and _NO_GIDS in told[1]:
        return Fix("B", shown, effect, deeds=deeds, again=AGAIN)
    if told is not None and told[1].strip():
        new = f"{text[: told.end()]},{_NO_GIDS}{text[told.end() :]}"
        change = f"sudo sed -i 's/^{_FLAGS}=.*/&,{_NO_GIDS}/' {ENV_FILE}"
    else:
        new = text + ("\n" if text and not text.endswith("\n") else "") + f"{_FLAGS}={_NO_GIDS}\n"
        change = _append(f"{_FLAGS}={_NO_GIDS}", is_whole=not text or text.endswith("\n"))
    back = (Deed("run", argv=argv),)
    write = Deed("write", path=ENV_FILE, text=new)
    return Fix("P", (change, *shown), effect, undo, deeds=(write, *deeds), back=back, again=AGAIN)


def _append(line: str, *, is_whole: bool) -> str:
    """`is_whole`: the file's last line is ended."""
    program = "echo" if is_whole else r"printf '\n%s\n'"
    return f"{program} '{line}' | sudo tee -a {ENV_FILE}"


def _flag(facts: Facts) -> tuple[str, ...]:
    """The flag where this Podman would drop what this toolkit writes without it."""
    newest = cdi.accepted(box.podman_told(facts))
    if newest is None or newest >= _KNOWS_GIDS:
        return ()
    try:
        known = toolkit(facts)
    except Unknowable:
        known = ()
    return () if known and known < _WRITES_GIDS else ("--feature-flag", _NO_GIDS)
