"""What a container is made of, and its changes: pure parts, against hand-made inspect answers."""

from __future__ import annotations

import shlex
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.actions import preflight, spec_changes
from console.actions.container_spec import capture, create_body, run_command, shown_command
from console.clients import run_words
from console.clients.run_words import options_of
from console.core import podman_errors
from console.core.plan import WrongInput

INSPECT: dict[str, Any] = {
    "Id": "ab" * 32,
    "Name": "triton",
    "ImageName": "nvcr.io/nvidia/tritonserver:24.05-py3",
    "Path": "/opt/nvidia/nvidia_entrypoint.sh",
    "Args": ["tritonserver", "--model-repository=/models"],
    "Mounts": [{"Type": "volume", "Name": "cache", "Destination": "/cache", "RW": True, "Options": ["nosuid"]}],
    "NetworkSettings": {"Networks": {"podman": {"Aliases": ["ab" * 6, "inference"]}}},
    "Config": {
        "Hostname": "ab" * 6,
        "Env": ["A=1", "container=podman", "HOME=/root", "HOSTNAME=x", "CDI=1", "OWN=2", "ASKED=image"],
        "Cmd": ["tritonserver", "--model-repository=/models"],
        "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
        "Labels": {"maintainer": "n", "team": "ads"},
        "StopSignal": "SIGINT",
        "Annotations": {"run.oci.keep_original_groups": "1", "io.podman.annotations.init": "TRUE"},
        "CreateCommand": shlex.split(
            "podman run -d --rm -p8000:8000 --secret key,type=env,target=KEY --secret=file,target=f "
            "--env ASKED=image --ip 10.88.0.9 --sysctl a.b=1 --gpus all --hooks-dir /h "
            "--mount type=bind,src=/x,target=/y,relabel=private nvcr.io/nvidia/tritonserver:24.05-py3 --rm x"
        ),
    },
    "HostConfig": {
        "NetworkMode": "bridge",
        "PortBindings": {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8000"}]},
        "Ulimits": [{"Name": "RLIMIT_MEMLOCK", "Soft": -1, "Hard": -1}],
        "SecurityOpt": ["label=type:a,label=level:b", "seccomp=/s.json", "unmask=/proc/x"],
        "AutoRemove": True,
        "Memory": 10,
    },
}
IMAGE = {
    "Config": {
        "Env": ["A=1", "ASKED=image"],
        "Cmd": ["bash"],
        "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
        "Labels": {"maintainer": "n"},
    }
}


def test_capture() -> None:
    found = capture(INSPECT, IMAGE, {"CDI"})
    body = found.body
    assert body["env"] == {"OWN": "2", "ASKED": "image"}
    assert body["labels"] == {"team": "ads"}
    assert body["annotations"] == {"run.oci.keep_original_groups": "1"}
    assert "entrypoint" not in body, "it is the image's, so a new image's own comes"
    assert "hostname" not in body
    assert body["stop_signal"] == 2
    assert body["devices"] == [{"path": "nvidia.com/gpu=all"}]
    assert body["networks"] == {"podman": {"aliases": ["inference"], "static_ips": ["10.88.0.9"]}}
    assert body["r_limits"] == [{"type": "memlock", "soft": 2**64 - 1, "hard": 2**64 - 1}]
    assert body["selinux_opts"] == ["type:a", "level:b"]
    assert body["seccomp_profile_path"] == "/s.json"
    assert body["unmask"] == ["/proc/x"]
    assert body["secret_env"] == {"KEY": "key"}
    assert body["secrets"] == [{"source": "file", "target": "f"}]
    assert body["volumes"] == [{"Name": "cache", "Dest": "/cache", "Options": []}]
    assert body["sysctl"] == {"a.b": "1"}
    assert (body["remove"], body["init"]) == (True, True)
    assert found.not_captured == ("--hooks-dir of the command that made it is not carried over",)


def test_the_command_says_the_same() -> None:
    """What is read back from the command that we record is what we made."""
    body = capture(INSPECT, IMAGE, {"CDI"}).body
    told = options_of(run_command(body))
    assert run_words.values(told, "device") == ("nvidia.com/gpu=all",)
    assert run_words.values(told, "ulimit") == ("memlock=-1",)
    assert run_words.values(told, "security-opt") == (
        "label=type:a",
        "label=level:b",
        "seccomp=/s.json",
        "unmask=/proc/x",
    )
    assert run_words.values(told, "secret") == ("file,target=f", "key,type=env,target=KEY")
    again = capture({**INSPECT, "Config": {**INSPECT["Config"], "CreateCommand": run_command(body)}}, IMAGE, {"CDI"})
    assert {**again.body, "devices": body["devices"]} == body
    assert create_body(body)["annotations"]["io.podman.annotations.label"] == "type:a,label=level:b"
    assert "ASKED=image" not in shown_command(body)


def test_made_through_the_api() -> None:
    devices = [{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0"}]
    host = {**INSPECT["HostConfig"], "Devices": devices}
    answer = {
        **INSPECT,
        "Pod": "x",
        "MountLabel": "l",
        "HostConfig": host,
        "Config": {**INSPECT["Config"], "CreateCommand": None},
    }
    found = capture(answer, IMAGE)
    assert found.body["devices"] == [{"path": "/dev/nvidia0:/dev/nvidia0:rwm"}]
    assert len(found.not_captured) == 3


def test_an_empty_answer() -> None:
    assert capture({}, {}).body.keys() <= {"annotations", "entrypoint", "command"}


SWITCHES = (("detach", "true"), ("tty", "true"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["podman", "--root", "/x", "run", "-dt", "-v", "/a", "img", "-v", "c"], (*SWITCHES, ("volume", "/a"))),
        (["podman", "create", "-e=A=1", "--init=false", "--name"], (("env", "A=1"), ("init", "false"), ("name", ""))),
        (["podman", "start", "-a", "x"], ()),
        (["podman", "run", "--", "img"], ()),
        ([], ()),
    ],
)
def test_options(words: list[str], found: tuple[tuple[str, str], ...]) -> None:
    told = ((one.name, "true" if one.value is None else one.value) for one in options_of(words))
    assert tuple(told) == found


@given(st.lists(st.text(alphabet=string.printable, max_size=8), max_size=8))
def test_options_of_anything(words: list[str]) -> None:
    for one in options_of(["podman", "run", *words]):
        assert isinstance(one.name, str)
        assert isinstance(one.value, str | None)


BODY: dict[str, Any] = {"name": "t", "image": "i", "command": ["tritonserver", "--a", "1", "--load-model=*", "--b=2"]}


def command(**values: str) -> list[str]:
    found: list[str] = spec_changes.changed(BODY, values, ())["command"]
    return found


def test_server_flags() -> None:
    assert command(flags="--a=3") == ["tritonserver", "--load-model=*", "--b=2", "--a=3"]
    assert command(drop_flags="--a,--b") == ["tritonserver", "--load-model=*"]
    assert command(mode="none") == ["tritonserver", "--a", "1", "--b=2", "--model-control-mode=none"]
    assert command(mode="explicit", drop_flags="--load-model")[-2:] == [
        "--model-control-mode=explicit",
        "--load-model=*",
    ]
    assert command(flags="--backend-config=python,x=1,--c=2")[-2:] == ["--backend-config=python,x=1", "--c=2"]
    assert BODY["command"][-1] == "--b=2", "the body given is left as it is"
    with pytest.raises(WrongInput, match="shell line"):
        spec_changes.changed({**BODY, "command": ["sh", "-c", "exec tritonserver --a"]}, {"mode": "none"}, ())
    with pytest.raises(WrongInput, match="does not name tritonserver"):
        spec_changes.changed({"name": "t", "image": "i"}, {"mode": "none"}, ["bash"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8000", {"container_port": 8000, "protocol": "tcp"}),
        ("9:8", {"container_port": 8, "protocol": "tcp", "host_port": 9}),
        ("127.0.0.1:9:8/udp", {"container_port": 8, "protocol": "udp", "host_ip": "127.0.0.1", "host_port": 9}),
        ("[::1]:9:8", {"container_port": 8, "protocol": "tcp", "host_ip": "::1", "host_port": 9}),
    ],
)
def test_ports(text: str, found: dict[str, Any]) -> None:
    assert spec_changes.port(text) == found


def _refusal(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except WrongInput as wrong:
        return str(wrong)
    return ""


@given(st.text(max_size=30))
def test_any_text_is_a_value_or_one_sentence(text: str) -> None:
    parsers: tuple[Callable[[str], object], ...] = (
        spec_changes.port,
        spec_changes.size,
        spec_changes.ulimit,
        spec_changes.image,
    )
    for parse in parsers:
        assert "\n" not in _refusal(parse, text)


def test_ports_and_shm_of_a_host_network() -> None:
    with pytest.raises(WrongInput, match="host's network"):
        spec_changes.changed({**BODY, "netns": {"nsmode": "host"}}, {"ports": "1:1"}, ())
    with pytest.raises(WrongInput, match="host's IPC"):
        spec_changes.changed({**BODY, "ipcns": {"nsmode": "host"}}, {"shm_size": "1g"}, ())


@pytest.mark.parametrize(
    ("rule", "cuda", "driver", "good"),
    [
        ("cuda>=12.4 brand=tesla,driver>=470,driver<471", "12.4", "550.90.07", True),
        ("cuda>=12.4 brand=tesla,driver>=470,driver<471", "11.4", "470.82", True),
        ("cuda>=12.4 brand=tesla,driver>=470,driver<471", "12.2", "535.161", False),
        ("cuda>=9", "12.2", None, True),
        ("driver=535", None, "535.161", True),
        ("nonsense", "1.0", "1", True),
        ("", None, None, True),
    ],
)
def test_driver_requirement(rule: str, cuda: str | None, driver: str | None, good: bool) -> None:
    assert preflight.requirement(rule, {"cuda": cuda, "driver": driver}) is good


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("setting up CDI devices: unresolvable CDI devices x", "CDI spec file"),
        ("stat nvidia.com/gpu=all: no such file or directory", "knows no CDI"),
        ('failed to stat CDI host device "/dev/nvidia-uvm"', "device node"),
        ('error mounting "/usr/lib64/libcuda.so.1"', "older than the driver"),
        ("error running hook #0", "hook"),
        ("error setting rlimit type 8: operation not permitted", "limit memlock"),
        ("error setting rlimit type 99: operation not permitted", "type 99"),
        (
            "runc create failed: error creating device nodes: mount /dev/nvidia0:/d (via /proc/self/fd/6), flags: 0x1: "
            "no such file or directory: OCI runtime attempted to invoke a command that was not found",
            "device node",
        ),
        ("renaming container x: UNIQUE constraint failed: ContainerConfig.Name", "of that name"),
        ("create mount destination for /x mount: bind mount source stat: stat /x: no such file", "CDI spec names"),
        ("rootlessport cannot expose privileged port 81, you can add", "choose 1024 or more"),
        ("lsetxattr /x: operation not supported", "no SELinux labels"),
        ("something else", ""),
    ],
)
def test_hints(text: str, words: str) -> None:
    assert words in podman_errors.hint(text)
    assert bool(podman_errors.hint(text)) is bool(words)
