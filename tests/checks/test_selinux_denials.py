"""C08: denials, by ausearch and in the kernel's log."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.selinux_denials import AUSEARCH, denial, denials
from console.core.facts import AnswerFact, CommandFact
from tests.checks.needed import finding
from tests.checks.selinux_told import DEBIAN, DEVICES, ENFORCE, box

NONE = CommandFact(1, "", "<no matches>\n")
NOT_ROOT = CommandFact(1, "", "Error opening config file (Permission denied)\nError opening /var/log/audit/audit.log\n")


def avc(
    permissions: str = "read write",
    target: str = "xserver_misc_device_t",
    kind: str = "chr_file",
    *,
    source: str = "container_t:s0:c1,c2",
    permissive: int = 0,
    name: str = "nvidia0",
) -> str:
    """A line as auditd writes it (shape: ctk#210)."""
    return (
        f"type=AVC msg=audit(1700000000.123:456): avc:  denied  {{ {permissions} }} for  pid=4711 "
        f'comm="tritonserver" name="{name}" dev="devtmpfs" ino=530 scontext=system_u:system_r:{source} '
        f"tcontext=system_u:object_r:{target}:s0 tclass={kind} permissive={permissive}"
    )


@pytest.mark.parametrize(
    ("line", "sign", "cause", "text"),
    [
        (avc(), "fail", "device", "{ read write } on xserver_misc_device_t chr_file nvidia0"),
        (avc("open"), "fail", "device", "C03"),
        (avc("ioctl", "device_t"), "fail", "device", "C05"),
        (avc("map"), "fail", "map", "container-selinux before 2.213"),
        (avc(permissive=1), "warn", "device", "C03"),
        (avc("read", "default_t", "file", name="config.pbtxt"), "fail", "label", "C07"),
        (avc("search", "user_home_t", "dir", name="models"), "fail", "label", "C07"),
        (avc("read", "container_file_t", "file"), "fail", "label", "C07"),
        (avc("read", "default_t", "file", source="container_t:s0:c9,c10"), "warn", "label", "C07"),
        (avc(source="container_t:s0:c9,c10"), "fail", "device", "C03"),
        (avc("name_connect", "http_port_t", "tcp_socket"), "warn", "other", "neither the GPU nor the models"),
    ],
)
def test_denials(line: str, sign: str, cause: str, text: str) -> None:
    found = finding(denials, **box(commands={AUSEARCH: f"----\n{line}\n"}))
    assert (found.sign, found.data["cause"]) == (sign, cause)
    assert text in found.text
    assert found.evidence[0].where == f"$ {AUSEARCH}"


@pytest.mark.parametrize(
    ("command", "sign", "text"),
    [
        (NONE, "ok", "none in the last 10 minutes"),
        (CommandFact(1, "<no matches>\n"), "ok", "none in the last 10 minutes"),
        (NOT_ROOT, "unknown", "read by root only"),
        (CommandFact(why="timed out"), "unknown", "timed out"),
        (None, "unknown", "not installed"),
        (CommandFact(0, ""), "unknown", "root only"),
        (CommandFact(0, "\x00\xff avc: denied { { {"), "ok", "none"),
        (CommandFact(0, avc(source="httpd_t:s0")), "ok", "none"),
        (CommandFact(0, avc(source="container_runtime_t:s0")), "ok", "none"),
    ],
)
def test_none(command: Any, sign: str, text: str) -> None:
    found = finding(denials, **box(commands={AUSEARCH: command} if command else {}))
    assert found.sign == sign
    assert text in found.text
    if sign == "unknown":
        assert found.settle == f"sudo {AUSEARCH}"


def _kernel(line: str, wall: float) -> Any:
    return {"@kernel.log": {"source": "journal", "lines": [{"wall": wall, "text": f"audit: type=1400 {line}"}]}}


def test_the_kernel_log_decides_where_the_audit_log_cannot_be_read() -> None:
    found = finding(denials, **box(commands={AUSEARCH: NOT_ROOT}, answers=_kernel(avc(), 1.7e9)))
    assert found.sign == "fail"
    assert found.evidence[0].where.startswith("kernel log")


def test_the_gpu_goes_before_all_else() -> None:
    lines = [avc("read", "default_t", "file"), avc("getattr", "proc_t", "file"), avc()]
    found = finding(denials, **box(commands={AUSEARCH: "\n".join(lines)}))
    assert found.data["cause"] == "device"
    assert len(found.evidence) == 1


def test_a_denial_from_before_the_boolean_was_switched_on() -> None:
    found = finding(denials, **box(files={DEVICES: "1 1"}, commands={AUSEARCH: avc()}))
    assert found.sign == "note"
    assert "before the boolean was switched on" in found.text


def test_permissive_denies_nothing() -> None:
    assert finding(denials, **box(files={ENFORCE: "0"}, commands={AUSEARCH: avc()})).sign == "warn"


@pytest.mark.parametrize(
    ("files", "text"), [({ENFORCE: None}, "SELinux is off"), ({ENFORCE: None, "/etc/os-release": DEBIAN}, "AppArmor")]
)
def test_skips(files: Any, text: str) -> None:
    found = finding(denials, **box(files=files))
    assert (found.sign, text in found.text) == ("none", True)


def test_fixes_follow_the_cause() -> None:
    def fix(line: str) -> tuple[str, str]:
        found = finding(denials, **box(commands={AUSEARCH: line})).fix
        assert found is not None
        return found.kind, found.commands[0]

    assert fix(avc()) == ("P", "sudo setsebool -P container_use_devices on")
    assert fix(avc(target="device_t")) == ("S", "sudo restorecon -v /dev/nvidia*")
    assert fix(avc("map")) == ("S", "sudo dnf -y upgrade container-selinux")
    assert fix(avc("read", "default_t", "file")) == ("S", f"sudo {AUSEARCH} | audit2why")


@pytest.mark.parametrize("line", ["", "avc:  denied  {", "avc:  denied  { read } scontext=a tcontext=b", "x" * 100_000])
def test_garbage(line: str) -> None:
    assert denial("here", line) is None


def test_a_kernel_log_that_is_none() -> None:
    answers = {"@kernel.log": AnswerFact(["garbage"])}
    assert finding(denials, **box(commands={AUSEARCH: NONE}, answers=answers)).sign == "ok"
