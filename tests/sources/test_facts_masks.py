"""No secret passes into facts, in whatever form it stands; what is none stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.facts import AnswerFact, CommandFact, Facts, FileFact
from console.sources.facts_masks import Masks, is_shown, secret_words

PLAIN = Masks()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('HF_TOKEN="hush now"', 'HF_TOKEN="***"'),
        ("password = 'hush now'", "password = '***'"),
        ('{"password": "hush"}', '{"password": "***"}'),
        ("  api-key:   hush", "  api-key:   ***"),
        ("Authorization: Basic aHVzaA==", "Authorization: ***"),
        ("curl -H 'Authorization: Bearer hush' http://x/", "curl -H 'Authorization: ***' http://x/"),
        ("https://u:hush@host/x https://hush@host/y", "https://***@host/x https://***@host/y"),
        (
            "podman run -e FOO=hush --env 'X=hush now' -e CUDA_X=1 i",
            "podman run -e FOO=*** --env 'X=***' -e CUDA_X=1 i",
        ),
        ("tool --api-key hush --model-repository /m", "tool --api-key *** --model-repository /m"),
        ("--http-restricted-api=health:admin=hush", "--http-restricted-api=health:admin=***"),
        (
            'parameters { key: "api_token" value: { string_value: "hush" } }',
            'parameters { key: "api_token" value: { string_value: "***" } }',
        ),
        ("a line\nDB_PASSWD=hush\nanother", "a line\nDB_PASSWD=***\nanother"),
    ],
)
def test_secrets_in_texts(text: str, expected: str) -> None:
    assert PLAIN.text(text) == expected
    assert PLAIN.text(expected) == expected, "what is masked stays as it is"


@pytest.mark.parametrize(
    "text",
    [
        'key: "max_batch"',
        "nvidia-open/580.95.05, 4.18.0-553.el8_10.x86_64, x86_64: installed",
        "SELINUX=enforcing",
        "scontext=system_u:system_r:container_t:s0:c1,c2 tcontext=system_u:object_r:xserver_misc_device_t:s0",
        "Loading of module with unavailable key is rejected",
        "hostPath: /usr/lib64/libcuda.so.550.90.07",
        "max_tokens=512",
        'runtime = "nvidia"',
        "token_required = false",
        "see https://docs.nvidia.com/deploy/xid-errors",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert PLAIN.text(text) == text


def test_values_known_word_for_word() -> None:
    masks = Masks(["hush-hush", "ab"])
    assert masks.text("the log says hush-hush, and ab is so") == "the log says ***, and ab is so"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NVIDIA_VISIBLE_DEVICES", True),
        ("LD_LIBRARY_PATH", True),
        ("PATH", True),
        ("PYTHONUNBUFFERED", True),
        ("NVIDIA_API_KEY", False),
        ("TRITON_AUTH_TOKEN", False),
        ("MY_SETTING", False),
        ("PATHS", False),
    ],
)
def test_variables_that_are_shown(name: str, shown: bool) -> None:
    assert is_shown(name) == shown


def of_file(path: str, text: str) -> str | None:
    return PLAIN.file(path, FileFact("file", text)).text


def test_unit_files() -> None:
    unit = (
        '[Service]\nEnvironment=PODMAN_SYSTEMD_UNIT=%n "FOO=hush now" BAR=hush CUDA_MODULE_LOADING=LAZY\n'
        "ExecStart=/usr/bin/podman run --name triton -e A=hush -p 8000:8000 \\\n  --env B=hush tritonserver\n"
        "ExecStartPost=/usr/bin/curl -H 'Authorization: Basic hush' http://127.0.0.1:8000/v2\nType=notify\n"
    )
    assert of_file("/etc/systemd/system/triton.service", unit) == (
        '[Service]\nEnvironment=PODMAN_SYSTEMD_UNIT=%n "FOO=***" BAR=*** CUDA_MODULE_LOADING=LAZY\n'
        "ExecStart=/usr/bin/podman run --name triton -e A=*** -p 8000:8000 \\\n  --env B=*** tritonserver\n"
        "ExecStartPost=/usr/bin/curl -H 'Authorization: ***' http://127.0.0.1:8000/v2\nType=notify\n"
    )


def test_environment_files_and_processes() -> None:
    flags = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes\n"
    path = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
    assert of_file(path, f"# x\n{flags}OTHER=hush\n") == f"# x\n{flags}OTHER=***\n"
    assert of_file("/proc/7/environ", "PATH=/bin\0FOO=hush\0") == "PATH=/bin\0FOO=***\0"
    assert of_file("/proc/7/cmdline", "x\0--api-key\0hush\0-e\0A=hush\0") == "x\0--api-key\0***\0-e\0A=***\0"
    assert of_file("/proc/cmdline", "rd.driver.blacklist=nouveau quiet\n") == "rd.driver.blacklist=nouveau quiet\n"


def test_inspect() -> None:
    inspect = {
        "Name": "triton",
        "Args": ["tritonserver", "--http-restricted-api=health:admin=hush-hush", "--model-repository=/models"],
        "Config": {
            "Env": ["HF_TOKEN=hush-hush", "FOO=hush-hush", "NVIDIA_VISIBLE_DEVICES=all", "BARE"],
            "Labels": {"PODMAN_SYSTEMD_UNIT": "triton.service", "api_key": "hush-hush", "note": "https://u:hush@h/"},
            "CreateCommand": [
                "podman",
                "run",
                "-e",
                "A=hush",
                "-e",
                "CUDA_X=1",
                "--env=B=hush",
                "-v",
                "/m:/m",
                "image",
            ],
            "StopTimeout": 10,
            "Password": "hush",
        },
        "State": {"Error": "with token=hush", "Pid": 7},
    }
    masked: Any = PLAIN.answer(AnswerFact(inspect)).value
    assert "hush" not in str(masked)
    assert masked["Args"][2] == "--model-repository=/models"
    assert masked["Config"]["Env"] == ["HF_TOKEN=***", "FOO=***", "NVIDIA_VISIBLE_DEVICES=all", "BARE"]
    assert masked["Config"]["Labels"]["PODMAN_SYSTEMD_UNIT"] == "triton.service"
    assert masked["Config"]["CreateCommand"][2:7] == ["-e", "A=***", "-e", "CUDA_X=1", "--env=B=***"]
    assert (masked["Config"]["StopTimeout"], masked["State"]["Pid"]) == (10, 7)
    env = [
        "A_KEY=hush-4711",
        "B_KEY=triton",
        "C_KEY=tritonserver",
        "D_KEY=/run/secrets/x1",
        "E_KEY=only-words-but-long",
    ]
    told = {"Config": {"Env": env}, "Args": ["--grpc-restricted-protocol=health:admin=hush4712", "--x=hush4713"]}
    assert set(secret_words(told)) == {"hush-4711", "hush4712", "only-words-but-long"}
    assert list(secret_words(None)) == []
    assert list(secret_words({"Config": None, "Args": None})) == []


def test_all_of_the_facts_pass_here() -> None:
    facts = Facts(
        files={"/a": FileFact("file", "token=hush"), "/b\udcff": FileFact("dir", names=("c\udcff",))},
        commands={"x": CommandFact(0, "password: hush", "--token hush")},
        answers={"@a": AnswerFact(why="http://u:hush@h failed"), "@b": AnswerFact([{"argv": ["x", "--key=hush"]}])},
    )
    masked = PLAIN.facts(facts)
    assert "hush" not in str(masked)
    assert masked.files["/b\ufffd"].names == ("c\ufffd",)


@pytest.mark.parametrize("text", ["a" * 10_000 + "key=", "key=" + "a-" * 10_000, "-e " * 5000, '-e "a=' * 5000])
def test_long_words_end(text: str) -> None:
    assert len(PLAIN.text(text)) <= len(text) + 3
