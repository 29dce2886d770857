"""A01, A03, A04, A14, A15, A20: the system, nouveau and Secure Boot."""

from __future__ import annotations

import pytest

from console.core.facts import CommandFact, Facts, FileFact
from console.core.finding import Finding
from tests.checks.driver_told import (
    CMDLINE,
    DEBIAN,
    FOLDER,
    GPU,
    MODULES,
    NEXT,
    NO_MODULE,
    NVML_DOWN,
    PCI,
    RELEASE,
    ROCKY,
    THERE,
    UBUNTU,
    UNLOADED,
    asked,
    box,
    driven,
    log,
    mended,
)
from tests.checks.told import ABSENT, DENIED

SECURE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
NOUVEAU = "nouveau 2367488 0 - Live 0x0000000000000000\n"
NO_RULE = {"/usr/lib/modprobe.d/nvidia.conf": "softdep nvidia post: nvidia-uvm\n"}
NO_ARGUMENT = {"/proc/cmdline": "ro quiet\n"}


def lines(found: Finding) -> str:
    return "\n".join(found.fix.commands) if found.fix else ""


@pytest.mark.parametrize(
    ("text", "sign", "said"),
    [
        (ROCKY, "ok", "Rocky Linux 8.10"),
        ('ID="rhel"\nVERSION_ID="9.4"\n', "ok", "rhel 9.4"),
        ('ID="rhel"\nVERSION_ID="8.8"\n', "ok", "rhel 8.8"),
        ('ID="rhel"\nVERSION_ID="8.6"\n', "warn", "older than 8.8"),
        ('ID="rhel"\nVERSION_ID="10.1"\n', "note", "newer"),
        ('ID="rhel"\n', "note", "its version is not told"),
        ('ID="centos"\nVERSION_ID="8"\nPRETTY_NAME="CentOS Linux 8"\n', "fail", "CentOS Linux 8 gets no updates"),
        ('ID="centos"\nVERSION_ID="9"\n', "ok", "centos 9"),
        (DEBIAN, "ok", "bookworm"),
        ('ID=debian\nVERSION_ID="11"\n', "warn", "older than 12"),
        (UBUNTU, "ok", "Ubuntu 22.04"),
        ('ID=ubuntu\nVERSION_ID="20.04"\n', "warn", "older than 22"),
        ("ID=arch\nNAME=Arch\n", "note", "not among the systems"),
        ('ID=fedora\nVERSION_ID="42"\n', "note", "not among the systems"),
        ('ID="amzn"\nID_LIKE="centos rhel fedora"\nVERSION_ID="2"\n', "note", "not among the systems"),
        ("\x00\xff garbage", "unknown", "names no system"),
    ],
)
def test_a01(text: str, sign: str, said: str) -> None:
    found = asked("A01", box({"/etc/os-release": text}))
    assert (found.sign, said in found.text) == (sign, True), found.text
    assert (found.fix is None) == (sign not in ("warn", "fail"))


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "not loaded"),
        (box(variables={"gpu": ()}), "none", "no NVIDIA device"),
        (
            box({**UNLOADED, "/proc/modules": NOUVEAU, f"{PCI}/{GPU}/driver": driven("nouveau")}),
            "fail",
            f"holds {GPU}",
        ),
        (box({"/proc/modules": MODULES + NOUVEAU}), "warn", "holds no GPU"),
        (box({"/sys/module/nouveau": FOLDER, f"{PCI}/{GPU}/driver": driven("nouveau")}), "fail", "nouveau is loaded"),
        (box({"/proc/modules": ABSENT}), "unknown", "there is no /proc/modules"),
        (box({"/proc/modules": "\x7fELF\x00" * 900}), "unknown", "lists no modules"),
        (box({"/proc/modules": ""}), "unknown", "lists no modules"),
    ],
)
def test_a03(facts: Facts, sign: str, said: str) -> None:
    found = asked("A03", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a03_blocks_nouveau_by_what_is_missing_here() -> None:
    held = {**UNLOADED, "/proc/modules": NOUVEAU, f"{PCI}/{GPU}/driver": driven("nouveau")}
    fix = mended(asked("A03", box(held)))
    assert (fix.kind, fix.reboot, fix.deeds) == ("R", True, ())
    assert fix.commands == (
        'sudo grubby --update-kernel=ALL --args="rd.driver.blacklist=nouveau modprobe.blacklist=nouveau"',
        "sudo dracut --force",
        "sudo systemctl reboot",
    ), "the driver's package brings the rule: none is written by hand"
    bare = mended(asked("A03", box({**held, **NO_RULE})))
    assert bare.commands[0] == (
        r"printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf"
    )
    debian = mended(asked("A03", box({**held, **NO_RULE, "/etc/os-release": DEBIAN})))
    assert debian.commands[1:] == ("sudo update-initramfs -u", "sudo systemctl reboot")


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "a rule of modprobe and the kernel's command line"),
        (box({**NO_ARGUMENT, "/etc/os-release": DEBIAN}), "ok", "a rule of modprobe"),
        (
            box({**NO_RULE, "/proc/cmdline": "ro modprobe.blacklist=nouveau,nova_core\n"}),
            "ok",
            "by the kernel's command",
        ),
        (box(NO_RULE), "warn", "only the initramfs"),
        (box(NO_ARGUMENT), "note", "was enough at this boot"),
        (box({**UNLOADED, **NO_ARGUMENT}), "warn", "none on the kernel's command line"),
        (box({**NO_RULE, **NO_ARGUMENT}), "warn", "nothing keeps nouveau out"),
        (box({**NO_RULE, **NO_ARGUMENT, "/proc/modules": NOUVEAU}), "fail", "nothing keeps nouveau out"),
        (
            box(
                {
                    **NO_RULE,
                    **NO_ARGUMENT,
                    f"/lib/modules/{RELEASE}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz": ABSENT,
                }
            ),
            "ok",
            "comes without nouveau",
        ),
        (box({**NO_RULE, "/etc/modprobe.d/off.conf": "install nouveau /bin/false\n"}), "ok", "a rule of modprobe"),
        (box({**NO_RULE, "/etc/modprobe.d/x.conf": "# blacklist nouveau\n"}), "warn", "only the initramfs"),
        (box({"/proc/cmdline": ABSENT}), "unknown", "/proc/cmdline"),
        (box(variables={"gpu": ()}), "none", "no NVIDIA device"),
    ],
)
def test_a04(facts: Facts, sign: str, said: str) -> None:
    found = asked("A04", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a04_shows_both_lines() -> None:
    found = asked("A04", box())
    assert [(one.where, one.text) for one in found.evidence] == [
        ("/usr/lib/modprobe.d/nvidia.conf:2", "blacklist nouveau"),
        ("/proc/cmdline", "rd.driver.blacklist=nouveau"),
    ]
    assert CMDLINE.endswith("rd.driver.blacklist=nouveau\n")


ON = {SECURE: "\x06\x00\x00\x00\x01"}
KEPT_OUT = {**UNLOADED, **ON, "/var/lib/dkms/mok.pub": THERE}
UNSIGNED = {"modinfo -F signer nvidia": "\n", "modinfo -F sig_id nvidia": "\n"}
REJECTED = log("Loading of module with unavailable key is rejected")


@pytest.mark.parametrize(
    ("facts", "sign", "said"),
    [
        (box(), "ok", "Secure Boot is off"),
        (box(ON), "ok", "on and the module is loaded"),
        (box({"/sys/firmware/efi": ABSENT}), "ok", "no UEFI"),
        (box({SECURE: FileFact("file", why="binary")}, {"mokutil --sb-state": "SecureBoot enabled\n"}), "ok", "is on"),
        (box({SECURE: DENIED}, {"mokutil --sb-state": "SecureBoot disabled\n"}), "ok", "is off"),
        (box({SECURE: ABSENT}), "unknown", "mokutil --sb-state: mokutil is not installed"),
        (box({SECURE: ABSENT}, {"mokutil --sb-state": CommandFact(1, "\x00\x01")}), "unknown", "is not told"),
        (box(KEPT_OUT, answers=REJECTED), "fail", "refuses the module, signed by DKMS module signing key"),
        (box(KEPT_OUT, UNSIGNED), "fail", "the module is not signed"),
        (box(KEPT_OUT), "fail", "nvidia is not loaded; signed by DKMS"),
        (box({**KEPT_OUT, "/proc/modules": NOUVEAU}), "warn", "nouveau is loaded, A03"),
        (box({**KEPT_OUT, "/proc/modules": ABSENT}), "fail", "nvidia is not loaded"),
        (
            box({**KEPT_OUT, f"/lib/modules/{RELEASE}/extra/nvidia.ko.xz": ABSENT}),
            "none",
            "no nvidia module is on disk",
        ),
        (box(variables={"gpu": ()}), "none", "no NVIDIA device"),
    ],
)
def test_a14(facts: Facts, sign: str, said: str) -> None:
    found = asked("A14", facts)
    assert (found.sign, said in found.text) == (sign, True), found.text
    assert "disable" not in (lines(found) + (found.fix.effect if found.fix else "")).lower()


def test_a14_enrols_the_key_that_the_module_is_signed_with() -> None:
    found = asked("A14", box(KEPT_OUT, answers=REJECTED))
    assert found.evidence[1].text == "Loading of module with unavailable key is rejected"
    fix = mended(found)
    assert (fix.kind, fix.reboot) == ("R", True)
    assert fix.commands == ("sudo mokutil --import /var/lib/dkms/mok.pub", "sudo systemctl reboot")
    assert "signs nothing" in fix.effect
    ubuntu = {**KEPT_OUT, "/var/lib/dkms/mok.pub": ABSENT, "/var/lib/shim-signed/mok/MOK.der": THERE}
    assert "MOK.der" in lines(asked("A14", box(ubuntu, answers=REJECTED)))
    nvidia = asked("A14", box(KEPT_OUT, {"modinfo -F signer nvidia": "NVIDIA\n"}, REJECTED))
    assert mended(nvidia).kind == "S"
    assert "--import /var" not in lines(nvidia)


@pytest.mark.parametrize(
    ("text", "sign", "said"),
    [
        ("[none] integrity confidentiality\n", "ok", "off"),
        ("none [integrity] confidentiality\n", "note", "integrity: only signed modules"),
        ("none integrity [confidentiality]\n", "note", "confidentiality"),
        ("\xff\x00", "unknown", "names no mode"),
        (ABSENT, "unknown", "there is no /sys/kernel/security/lockdown"),
        (DENIED, "unknown", "permission denied"),
    ],
)
def test_a15(text: str | FileFact, sign: str, said: str) -> None:
    found = asked("A15", box({"/sys/kernel/security/lockdown": text}))
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a15_does_not_apply_without_a_card() -> None:
    assert asked("A15", box(variables={"gpu": ()})).sign == "none"


@pytest.mark.parametrize(
    ("text", "sign", "said"),
    [
        ("0\n", "ok", "not tainted"),
        ("12288\n", "note", "12288: O module from outside the tree, E unsigned module"),
        ("4097", "note", "P proprietary module, O"),
        ("144", "note", "M machine check, D the kernel died once"),
        ("536870912", "note", "other flags"),
        ("x" * 9000, "unknown", "holds no number"),
        ("-1", "unknown", "holds no number"),
        (ABSENT, "unknown", "there is no"),
    ],
)
def test_a20(text: str | FileFact, sign: str, said: str) -> None:
    found = asked("A20", box({"/proc/sys/kernel/tainted": text}))
    assert (found.sign, said in found.text) == (sign, True), found.text


def test_a_card_whose_bus_is_not_seen_is_unknown_for_all_but_the_system() -> None:
    facts = box(answers=NVML_DOWN)
    blind = Facts(files=facts.files, commands=facts.commands, answers=facts.answers, variables={"release": (NEXT,)})
    for id_ in (f"A{number:02}" for number in range(1, 23) if number not in (1, 20)):
        assert asked(id_, blind).sign == "unknown", id_
    assert NO_MODULE.code == 1


@pytest.mark.parametrize(
    "facts",
    [
        box(),
        box(variables={"next_release": ()}),
        box({**UNLOADED, f"/lib/modules/{RELEASE}/extra/nvidia.ko.xz": ABSENT}, variables={"gpu": ()}),
    ],
    ids=["healthy", "no other kernel", "no card"],
)
def test_nothing_is_wrong_with_a_box_that_is_well(facts: Facts) -> None:
    signs = {id_: asked(id_, facts).sign for id_ in (f"A{number:02}" for number in range(1, 23))}
    assert {id_: sign for id_, sign in signs.items() if sign not in ("ok", "note", "none")} == {}
