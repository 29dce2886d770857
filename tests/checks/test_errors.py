"""Error texts -> diagnoses: each row of host.md 6.2, Xid chains, logs of many lines, and input that is no log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.checks.errors import Diagnosis, diagnose, rules
from console.core.finding import Finding

LOG = Path("/work/shared/cases/triton/server_log_sample.txt")


def finding(id_: str, sign: str, text: str = "") -> Finding:
    return Finding(id_, "", "cdi", sign, text)  # type: ignore[arg-type]


def only(text: str) -> Diagnosis:
    found = diagnose(text)
    assert len(found) == 1, [one.title for one in found]
    return found[0]


TEXTS = [
    # host.md 6.2, in its order; then what else start errors, logs and the kernel say
    ("setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", ["B03", "B04", "B05", "B06", "B11"]),
    ("Error: unresolvable CDI devices", ["B03", "B04", "B05", "B06", "B11"]),
    ('failed to unmarshal CDI Spec "/etc/cdi/nvidia.yaml": unknown field "additionalGids"', ["B05"]),
    ("stat nvidia.com/gpu=all: no such file or directory", ["B01"]),
    ('failed to stat CDI host device "/dev/nvidia-uvm": no such file or directory', ["B09", "A16"]),
    ("crun: error stat'ing file /usr/lib64/libEGL_nvidia.so.535.161.07: No such file or directory", ["B07"]),
    ('runc create failed: error mounting "/usr/lib64/libcuda.so.550.90.07" to rootfs at "/usr/lib64"', ["B07"]),
    ("crun: cannot stat `/usr/lib64/libEGL_nvidia.so.575.64.03`: No such file or directory: OCI runtime", ["B07"]),
    ("error running hook #0: fork/exec /usr/bin/nvidia-cdi-hook: no such file or directory", ["B08"]),
    ("error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: 1)", ["B07", "B08"]),
    ("Failed to initialize NVML: Insufficient Permissions", ["C03", "C04", "C05", "D06", "E17"]),
    ("Failed to initialize NVML: Unknown Error", ["A17"]),
    ("Failed to initialize NVML: Driver/library version mismatch", ["A06", "B07"]),
    ("NVRM: API mismatch: the client has the version 570.86.15, but this kernel module has 550.90.07", ["A06", "B07"]),
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest",
        ["A05", "A07"],
    ),
    ("No devices were found", ["A08", "A19"]),
    ("[[CUDA Driver UNAVAILABLE (cuInit(0) returned 803)]]", ["A06", "B07"]),
    ("cuInit(0) returned 802", ["A22"]),
    ("cuInit(0) returned 100", ["E03"]),
    ("cuInit(0) returned 999", ["A05", "A16", "B10"]),
    ("unable to find user triton-server: no matching entries in passwd file", ["E17"]),
    ('exec: "tritonsrv": executable file not found in $PATH', ["E19"]),
    ("listen tcp4 :8000: bind: address already in use", ["I02"]),
    ("error setting rlimit type 8: operation not permitted", ["E09"]),
    ("failed to open text file for read /models/rank/config.pbtxt: Permission denied", ["E10", "C07"]),
    ('relabel failed "/mnt/nfs": lsetxattr /mnt/nfs/models: operation not supported', ["H02"]),
    ('creating container storage: the container name "triton" is already in use by 5e1f', ["K03"]),
    ("Resource limits are not supported and ignored on cgroups V1 rootless systems", ["D03"]),
    ("cannot find UID/GID for user ana: no subuid ranges found for user", ["D04"]),
    ('default OCI runtime "nvidia" not found: invalid argument', ["B15"]),
    ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", ["A14"]),
    ("modprobe: ERROR: could not insert 'nvidia': Required key not available", ["A14"]),
    ("modprobe: ERROR: could not insert 'nvidia': Operation not permitted", ["A14"]),
    ("Loading of module with unavailable key is rejected", ["A14"]),
    ("modprobe: ERROR: could not insert 'nvidia': No such device", ["A03", "A21"]),
    ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/4.18.0-553.el8_10.x86_64", ["A07", "A09"]),
    ("Error! Bad return status for module build on kernel: 4.18.0-553.el8_10.x86_64 (x86_64)", ["A09", "A10"]),
    ("some kernel packages have been filtered due to missing precompiled modules", ["A13"]),
    ("NVRM: RmInitAdapter failed! (0x62:0x40:2393)", ["A19"]),
    ("NVRM: Cannot initialize GSP firmware RM", ["A18"]),
    (
        "NVRM: installed in this system is not supported by open nvidia.ko because it does not include the required GP",
        ["A08"],
    ),
    ("unrecognized runtime 'podman'", ["B03", "B02"]),
    ("nvidia-cdi-refresh.service: Failed with result 'exit-code'.", ["B12"]),
    ("multi-user.target: Found ordering cycle on nvidia-cdi-refresh.service/start", ["B13"]),
    ("triton.service: Start request repeated too quickly.", ["K02"]),
    ("quadlet-generator: unsupported key 'StopTimeout' in group 'Container' in /etc/containers/systemd/t", ["K04"]),
    ("Unable to make connection to UDS '/run/podman/podman.sock': [Errno 2]", ["D01"]),
    (
        "cannot connect: dial unix /run/podman/podman.sock: connect: connection refused",
        ["D01"],
    ),
    ("container stats resource only available for cgroup v2", ["D03"]),
    ("StopSignal SIGTERM failed to stop container triton in 10 seconds, resorting to SIGKILL", ["E11"]),
    ("Failed to set boolean container_use_dri_device: not defined", ["C03", "C04"]),
    ("WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.", ["E03"]),
    (
        "ERROR: This container was built for NVIDIA Driver Release 525.85 or later, but version 470.199.02 was det",
        ["E04"],
    ),
    ("NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be", ["E08"]),
    ("failed to allocate pinned system memory: no pinned memory pool, falling back", ["E09"]),
    ("failed to stat file /models", ["E10", "C07"]),
    (
        "Serialization (Serialization assertion stdVersionRead == serializationVersion failed.Version tag does not "
        "match. Note: Current Version: 236, Serialized Engine Version: 239)",
        ["L05"],
    ),
    (
        "The engine plan file is not compatible with this version of TensorRT, expecting library version 10.0.1.6 "
        "got 8.5.3.1, please rebuild.",
        ["L05"],
    ),
    (
        "The engine plan file is generated on an incompatible device, expecting compute 7.5 got compute 8.6, please",
        ["L06"],
    ),
    ("failed to load engine: Invalid engine", ["L05", "L06"]),
    ("unable to find backend library for backend 'onnxruntime', try specifying runtime on the model", ["L03"]),
    ("unable to find 'libtriton_tensorrt_plan.so' for model 'm', searched: /models/m/1", ["L03"]),
    ("[libprotobuf ERROR text_format.cc:335] Error parsing text-format inference.ModelConfig: 6:1: Expected", ["L03"]),
    ("model 'rank', tensor 'input': the model expects 2 dimensions (shape [-1,256]) but the model", ["L04"]),
    ("failed to start HTTP service: Unavailable - Socket '0.0.0.0:8000' already in use", ["I02"]),
    ("CUDA out of memory. Tried to allocate 2.00 GiB", ["E16"]),
    ("[Errno 13] Permission denied: '/models/rank/1/cache'", ["E10"]),
    ("Failed to increase the shared memory pool size for key 'triton_python_backend_shm_region_2'", ["E08"]),
    ("Out of memory: Killed process 4242 (tritonserver) total-vm:1kB", ["E15"]),
    ("bash: nvidia-smi: command not found", ["E03"]),
    ("write /var/tmp/storage: no space left on device", ["D07"]),
    (
        "avc:  denied  { read write } for  pid=1 comm=x path=/dev/nvidiactl scontext=system_u:system_r:container_t:"
        "s0:c1,c2 tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file",
        ["C03", "C04"],
    ),
    (
        "avc:  denied  { map } for  pid=1 comm=x path=/dev/nvidiactl scontext=system_u:system_r:container_t:s0:c1,c2 "
        "tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file",
        ["C09"],
    ),
    (
        "avc:  denied  { read } for  pid=1 comm=x name=config.pbtxt scontext=system_u:system_r:container_t:s0:c1,c2 "
        "tcontext=unconfined_u:object_r:default_t:s0 tclass=file",
        ["C07"],
    ),
]


@pytest.mark.parametrize(("text", "checks"), TEXTS, ids=[text[:60] for text, _ in TEXTS])
def test_each_text_leads_to_its_checks(text: str, checks: list[str]) -> None:
    found = diagnose(text)[0]
    assert list(found.checks[: len(checks)]) == checks
    assert found.evidence[0].where == "line 1"
    assert "{" not in found.title


def test_titles_name_what_the_line_names() -> None:
    assert only("crun: cannot stat `/usr/lib64/libcuda.so.1.2`: No such").title.endswith(
        "/usr/lib64/libcuda.so.1.2 is not there"
    )
    assert only("error setting rlimit type 7: operation not permitted").title == "Podman may not raise the limit nofile"
    assert only("listen tcp4 :8001: bind: address already in use").title == "port 8001 is taken"
    text = "built for NVIDIA Driver Release 525.85 or later, but version 470.199.02 was detected and"
    assert only(f"ERROR: This container was {text}").title == (
        "the image wants driver 525.85 or later, the host has 470.199.02"
    )
    text = "not compatible with this version of TensorRT, expecting library version 10.0.1 got 8.5.3, please rebuild."
    assert only(text).title == "the engine was built by TensorRT 8.5.3, this server has 10.0.1"


# --------------------------------------------------------------------------------------- the findings of a box decide


def test_findings_decide_which_check_it_is() -> None:
    findings = [
        finding("B03", "ok"),
        finding("B04", "ok"),
        finding("B05", "fail", "0.7.0, Podman 4.9.4 reads up to 0.6.0"),
        finding("B06", "unknown"),
    ]
    found = diagnose("unresolvable CDI devices nvidia.com/gpu=all", findings)[0]
    assert found.checks == ("B05", "B06", "B11", "B03", "B04")
    assert (found.decided, found.said) == ("B05", "0.7.0, Podman 4.9.4 reads up to 0.6.0")


def test_without_a_finding_that_is_not_fit_nothing_is_decided() -> None:
    found = diagnose("unresolvable CDI devices nvidia.com/gpu=all", [finding("B03", "ok"), finding("B04", "unknown")])
    assert found[0].decided == ""
    assert found[0].checks[0] == "B04"


# ----------------------------------------------------------------------------------------------------------- logs, Xids


def test_a_log_gives_each_diagnosis_once_with_its_lines_causes_first() -> None:
    log = "\n".join(
        [
            "triton.service: Main process exited, code=exited, status=126/n/a",
            "E0101 1 failed to load 'a' version 1: Internal: unable to create TensorRT engine",
            "E0101 1 Version tag does not match. Note: Current Version: 1, Serialized Engine Version: 2",
            "fine",
            "E0101 1 Version tag does not match. Note: Current Version: 1, Serialized Engine Version: 2",
            "error: creating server: Internal - failed to load all models",
        ]
    )
    found = diagnose(log)
    assert [one.rule for one in found] == ["engine-version", "unit-exit", "engine-load", "load-all"]
    assert found[0].count == 2
    assert [line.where for line in found[0].evidence] == ["line 3", "line 5"]


def test_an_xid_chain_of_one_card_is_one_diagnosis_with_the_worst_action() -> None:
    chain = "\n".join(
        [
            "[ 100.000000] NVRM: Xid (PCI:0000:3b:00): 45, pid=9, Ch 00000008",
            "[ 101.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=9, GPU has fallen off the bus.",
            "[ 110.000000] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
            "(Node Reboot Required)",
        ]
    )
    one = only(chain)
    assert one.title == ("GPU 0000:3b:00: Xid 79, the GPU has fallen off the bus (with 45, 154): Node Reboot Required")
    assert one.checks[0] == "G13"
    assert (one.sign, one.do) == ("fail", "Node Reboot Required")
    assert [line.where for line in one.evidence] == ["line 1", "line 3"]


def test_an_xid_that_only_follows_a_kill_is_no_fault() -> None:
    one = only("NVRM: Xid (PCI:0000:3b:00): 45, pid=9, Ch 00000008")
    assert (one.sign, one.checks) == ("note", ("G13", "E11"))
    assert "ordinary end" in one.do


@pytest.mark.parametrize(
    ("first", "second", "incidents"),
    [
        ("2026-11-30T23:59:50+0100 h kernel: ", "2026-12-01T00:00:10+0100 h kernel: ", 1),
        ("Nov 30 10:00:00 h kernel: ", "Nov 30 10:05:00 h kernel: ", 2),
        ("[Mon Nov 30 10:00:00 2026] ", "[Mon Nov 30 10:00:59 2026] ", 1),
        ("Feb 31 10:00:00 h kernel: ", "no time: ", 1),
    ],
)
def test_times_of_all_log_formats_part_incidents(first: str, second: str, incidents: int) -> None:
    lines = [f"{head}NVRM: Xid (PCI:0000:3b:00): {number}, x" for head, number in ((first, 31), (second, 13))]
    assert len([one for one in diagnose("\n".join(lines)) if one.rule == "xid"]) == incidents


def test_the_server_log_of_2_51_0_is_told_from_its_causes_on() -> None:
    if not LOG.exists():
        pytest.skip("the recorded cases are not on this machine")
    found = diagnose(LOG.read_text("utf-8", "replace"))
    assert {"cuda-too-old", "gpu-memory", "config-broken", "version-absent", "ensemble"} <= {one.rule for one in found}
    assert [one.rule for one in found][-2:] == ["model-failed", "pinned-memory"]


# ------------------------------------------------------------------------------------------------- input that is no log


def test_a_text_wrapped_by_a_narrow_terminal_is_still_known() -> None:
    assert only("setting up CDI devices: unresolvable\nCDI devices\nnvidia.com/gpu=all").rule == "cdi-unresolvable"


def test_what_the_image_writes_on_two_lines_is_one_message() -> None:
    text = (
        "ERROR: This container was built for NVIDIA Driver Release 525.85 or later, but\n       version 470.199.02 was"
    )
    found = only(f"{text} detected and compatibility mode is UNAVAILABLE.\n")
    assert found.title == "the image wants driver 525.85 or later, the host has 470.199.02"


def test_colours_and_two_byte_texts_are_read() -> None:
    assert only("\x1b[31mNo devices were \x1b[0mfound").rule == "nvml-no-devices"
    assert only("No devices were found".encode("utf-16-le").decode("latin-1")).rule == "nvml-no-devices"


@pytest.mark.parametrize("text", ["", " \n", "all is well\n", "\x00" * 1000, "NVRM: Xid (", "avc: denied"])
def test_what_says_nothing_says_nothing_of_the_gpu(text: str) -> None:
    assert all(one.rule == "avc-other" for one in diagnose(text))


def test_ten_megabytes_are_looked_at_in_bounds() -> None:
    line = "E0101 1 x.cc:1] Permission denied opening out of memory; nouveau registry hook # avc:  denied\n"
    found = diagnose(line * 100_000 + "unresolvable CDI devices nvidia.com/gpu=all\n")
    assert "cdi-unresolvable" in {one.rule for one in found}
    assert all(one.count <= 2000 for one in found)
    one_long_line = "Permission denied hook #1 nvidia-cdi-hook avc: denied " * 200_000
    assert len(diagnose(one_long_line)) < 10


def test_many_models_that_fail_are_bounded() -> None:
    assert len(diagnose("\n".join(f"failed to load 'm{n}' version 1: x" for n in range(500)))) == 20


@settings(deadline=None)
@given(
    st.text(max_size=300)
    | st.sampled_from([text for text, _ in TEXTS]).flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.text(max_size=5)).map(lambda cut: text[: cut[0]] + cut[1])
    )
)
def test_no_text_is_too_odd(text: str) -> None:
    for one in diagnose(text):
        assert one.title
        assert one.evidence


def test_the_table_is_sound() -> None:
    for name, rule in rules().items():
        words = set(re.findall(r"\{(\w+)\}", rule.title)) - {"limit"}
        groups = set(re.compile(rule.pattern).groupindex)
        assert words <= groups, name
        assert not words or rule.otherwise or len(words) == 1, name
        assert all(re.fullmatch(r"[A-L]\d\d", one) for one in rule.checks), name
        assert set(rule.follows) <= {*rules(), "*", "xid", "kernel-oom"}, name
        assert all(word == word.lower() for word in rule.has), name
        assert rule.why.count(".") >= 1, name
