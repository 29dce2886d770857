"""Findings -> root causes: single faults and pairs, titles, trust, order of mending, sorting."""

from __future__ import annotations

import re
from typing import Any

import pytest

from console.checks.links import FELT, graph, rules
from console.checks.verdict import causes
from console.core.facts import AnswerFact, Evidence, Facts
from console.core.finding import GROUPS, Finding, Fix
from tests.checks.told import told

GROUP = dict(zip("ABCDEFGHIJKL", GROUPS, strict=True))


def finding(id_: str, sign: str, text: str = "", evidence: str = "", fix: Fix | None = None, **data: str) -> Finding:
    lines = (Evidence("x", evidence),) if evidence else ()
    return Finding(id_, f"title of {id_}", GROUP[id_[0]], sign, text or f"{id_} is {sign}", lines, fix=fix, data=data)  # type: ignore[arg-type]


def fail(id_: str, text: str = "", evidence: str = "", **data: str) -> Finding:
    return finding(id_, "fail", text, evidence, None, **data)


def warn(id_: str, text: str = "", evidence: str = "", **data: str) -> Finding:
    return finding(id_, "warn", text, evidence, None, **data)


STALE = fail(
    "B07",
    "/etc/cdi/nvidia.yaml: 31 of 44 files are not there",
    spec_version="550.90.07",
    driver="570.86.15",
    missing="31",
)
START_ERROR = "crun: error stat'ing file /usr/lib64/libEGL_nvidia.so.550.90.07: No such file or directory"
NOT_STARTED = fail("E01", "exit 126", START_ERROR, status="created", exit="126", error=START_ERROR)


def unit(**properties: str) -> Facts:
    """A box whose container triton.service manages."""
    shown: dict[str, Any] = {"ActiveState": "activating", "Restart": "always", "RestartUSec": "5000000", **properties}
    return told(
        answers={
            "@podman.ping": {"version": "4.9.4", "rootless": False},
            "@podman.inspect": {"Name": "triton"},
            "@units": {"triton.service": shown},
        },
        variables={"unit": ("triton.service",)},
    )


def by_hand(rootless: bool = False) -> Facts:
    """A box whose container nothing manages."""
    return told(
        answers={
            "@podman.ping": {"version": "4.9.4", "rootless": rootless},
            "@podman.inspect": {"Name": "triton"},
            "@units": {},
        }
    )


def test_a_stale_spec_is_told_as_drawn() -> None:
    findings = [finding("A06", "ok", driver="570.86.15"), STALE, NOT_STARTED, fail("E07", live="false"), warn("E11")]
    first, *others = causes(unit(), findings)
    assert first.title == (
        "the container cannot start: its CDI spec is older than the driver (550.90.07 against 570.86.15)"
    )
    assert first.id == "B07"
    assert first.trust == "sure, 3 of 3 signs"
    assert first.signs == (
        "B07 /etc/cdi/nvidia.yaml: 31 of 44 files are not there",
        "A06 loaded driver is 570.86.15",
        "E01 its error says: the CDI spec is older than the driver: /usr/lib64/libEGL_nvidia.so.550.90.07 is not there",
    )
    assert first.consequences == ("E01", "E07")
    assert [(step.id, step.text) for step in first.order] == [
        ("B07", "write the CDI spec anew"),
        ("", "triton.service starts by itself, within 5 s"),
    ]
    assert [one.id for one in others] == ["E11"]


def test_what_is_not_felt_is_told_of_itself() -> None:
    assert causes(by_hand(), [STALE])[0].title == "the CDI spec is older than the driver (550.90.07 against 570.86.15)"


def test_figures_that_agree_are_not_set_against_each_other() -> None:
    same = fail("B07", "3 of 44 files are not there", spec_version="570.86.15", driver="570.86.15")
    assert causes(by_hand(), [same])[0].title == "3 of 44 files are not there"


SINGLES = [
    # findings that are not fit -> the cause on top, and what follows from it
    ([fail("A03", holder="nouveau"), fail("A02", holder="nouveau"), fail("A05"), fail("A16"), fail("G01")], "A03"),
    ([fail("A10"), fail("A09"), fail("A07", missing="4.18"), fail("A05"), fail("G01"), fail("B03")], "A10"),
    ([fail("A14"), fail("A05"), fail("A16"), fail("G01"), fail("E03")], "A14"),
    ([fail("A06", driver="1", library="2"), warn("A07", disk="2"), fail("G01"), fail("B07")], "A06"),
    ([fail("A11"), fail("A06"), fail("G01")], "A11"),
    ([fail("A08"), fail("A19"), fail("G01"), fail("A16")], "A08"),
    ([fail("A05", missing="nvidia_uvm"), fail("A16"), fail("B09"), fail("B10"), fail("E03")], "A05"),
    ([fail("A16"), fail("B09"), fail("E01", evidence='failed to stat CDI host device "/dev/nvidia-uvm": no')], "A16"),
    ([warn("A17"), fail("E03", evidence="Failed to initialize NVML: Unknown Error")], "A17"),
    ([fail("B02"), fail("B03"), fail("B12"), fail("E01")], "B02"),
    ([fail("B05"), fail("E01", evidence="unresolvable CDI devices nvidia.com/gpu=all"), fail("K02")], "B05"),
    ([fail("B11"), fail("E01", evidence="unresolvable CDI devices nvidia.com/gpu=all")], "B11"),
    ([fail("B12"), fail("B07"), fail("E01", evidence=START_ERROR)], "B12"),
    ([fail("B15"), fail("E01", evidence='default OCI runtime "nvidia" not found')], "B15"),
    (
        [
            fail("C03"),
            fail("C08", cause="device"),
            fail("E03", evidence="Failed to initialize NVML: Insufficient Permissions"),
        ],
        "C03",
    ),
    (
        [
            fail("C07", type="default_t"),
            fail("C08", cause="label"),
            fail("E05", evidence="failed to stat file /models"),
        ],
        "C07",
    ),
    ([fail("D04"), fail("E01", evidence="no subuid ranges found for user")], "D04"),
    ([fail("I02"), fail("E01", evidence="listen tcp4 :8000: bind: address already in use"), fail("I01")], "I02"),
    ([warn("K03"), fail("E01", evidence='the container name "triton" is already in use by 5e'), fail("E02")], "K03"),
    ([fail("E09"), fail("E01", evidence="error setting rlimit type 8: operation not permitted")], "E09"),
    ([fail("E15", oom="true"), fail("E01", "exit 137", oom="true"), fail("E02")], "E15"),
    ([fail("G13", xid="79"), fail("G12"), fail("G01"), fail("E01"), fail("E07")], "G13"),
    ([fail("L05"), fail("E05", evidence="Version tag does not match."), fail("E07")], "L05"),
    ([warn("E16"), fail("E05", evidence="CUDA out of memory. Tried to allocate 2 GiB"), fail("E07")], "E16"),
    (
        [fail("E04"), fail("E05", evidence="This container was built for NVIDIA Driver Release 575 or later, but")],
        "E04",
    ),
    ([fail("K04"), fail("K02", result="x"), warn("E01", unit="triton.service")], "K04"),
    ([fail("E01", status="exited", exit="1"), fail("K02"), fail("E07")], "E01"),
    ([fail("K02", result="start-limit-hit"), warn("E01", unit="triton.service"), fail("E07")], "K02"),
    ([fail("G01"), fail("G02")], "G01"),
    ([warn("F05"), warn("F04")], "F05"),
]


@pytest.mark.parametrize(("findings", "top"), SINGLES, ids=[f"{top}-{len(one)}" for one, top in SINGLES])
def test_one_fault_is_one_cause_and_the_rest_follows(findings: list[Finding], top: str) -> None:
    found = causes(by_hand(), findings)
    assert [one.id for one in found] == [top]
    assert set(found[0].consequences) == {one.id for one in findings} - {top}


@pytest.mark.parametrize("turned", [False, True])
def test_combined_faults_are_mended_from_the_ground_up(turned: bool) -> None:
    findings = [
        fail("L05"),
        fail("E10"),
        fail("C07", type="default_t"),
        fail("C03"),
        STALE,
        NOT_STARTED,
        fail("E07", live="false"),
        fail("A14"),
        fail("A05", missing="nvidia"),
    ]
    found = causes(by_hand(), findings[::-1] if turned else findings)
    assert [step.id for step in found[0].order] == ["A14", "A05", "B07", "C03", "C07", "E01", "L05"]
    assert {one.id for one in found} == {"A14", "B07", "C03", "C07", "L05"}


def test_stale_spec_boolean_off_and_wrong_label_together() -> None:
    findings = [fail("C07", type="default_t"), fail("C03"), STALE, NOT_STARTED]
    found = causes(by_hand(rootless=True), findings)
    assert [one.id for one in found] == ["B07", "C03", "C07"]
    assert [(step.id, step.text) for step in found[0].order] == [
        ("B07", "write the CDI spec anew"),
        ("C03", "set the SELinux boolean"),
        ("C07", "label the model repository"),
        ("E01", "start the container: podman start triton"),
    ]
    assert [step.id for step in found[1].order] == ["C03"]


def test_what_an_error_text_explains_needs_no_other_explanation() -> None:
    error = 'failed to stat CDI host device "/dev/nvidia-uvm": no such file or directory'
    found = causes(by_hand(), [fail("B05"), fail("B09"), fail("E01", evidence=error)])
    assert [(one.id, one.consequences) for one in found] == [("B09", ("E01",)), ("B05", ())]


def test_an_error_that_no_check_explains_is_its_own_cause_in_words() -> None:
    error = "unresolvable CDI devices nvidia.com/gpu=all"
    findings = [finding("B03", "unknown"), fail("E01", "exit 126", error, exit="126")]
    first = causes(by_hand(), findings)[0]
    assert (first.id, first.title) == (
        "E01",
        "the container cannot start: Podman finds no usable CDI spec for nvidia.com/gpu=all",
    )


def test_a_start_that_fails_for_no_known_reason_is_only_possible() -> None:
    first = causes(by_hand(), [fail("E01", "exited with 1", status="exited", exit="1")])[0]
    assert first.title == "the container does not run: exited with 1"
    assert first.trust == "possible, 1 of 1 signs"


def test_unknown_is_never_a_cause_but_follows_from_what_hides_it() -> None:
    why = "podman's socket is not there"
    facts = told(answers={"@podman.inspect": AnswerFact(None, why), "@nvml": AnswerFact(None, "no driver")})
    findings = [
        fail("D01", "podman.socket is inactive"),
        finding("E08", "unknown", why),
        finding("E09", "unknown", why),
        finding("G03", "unknown", "no driver"),
    ]
    found = causes(facts, findings)
    assert [(one.id, one.consequences) for one in found] == [("D01", ("E08", "E09"))]
    assert found[0].trust == "sure, 1 of 1 signs"


def test_links_lead_through_checks_that_could_not_be_told() -> None:
    findings = [fail("A09"), finding("A07", "unknown"), finding("A05", "none"), fail("G01")]
    found = causes(by_hand(), findings)
    assert [(one.id, one.consequences) for one in found] == [("A09", ("G01",))]
    assert found[0].trust == "likely, 1 of 2 signs"


def test_what_is_fit_ends_a_chain() -> None:
    found = causes(by_hand(), [fail("A09"), finding("A07", "ok"), finding("A05", "ok"), fail("G01")])
    assert [one.id for one in found] == ["G01", "A09"]


def test_what_stops_serving_comes_first_then_fails_then_warnings_by_weight() -> None:
    findings = [warn("F08"), warn("E08"), fail("J01"), fail("I02"), NOT_STARTED, STALE, warn("B13")]
    assert [one.id for one in causes(by_hand(), findings)] == ["B07", "I02", "J01", "B13", "E08", "F08"]


def test_a_guess_from_a_warning_gives_way_to_a_fail() -> None:
    found = causes(by_hand(), [warn("D11"), fail("E15"), fail("E01", status="exited")])
    assert [(one.id, one.consequences) for one in found] == [("E15", ("E01",)), ("D11", ())]


def test_settings_of_the_container_are_told_when_it_is_made_anew_anyway() -> None:
    fix = Fix("B", ("x",), action="container.recreate")
    late = finding("E11", "warn", "10 s against 30 s: every stop becomes a kill", "", fix)
    order = causes(by_hand(), [STALE, NOT_STARTED, late])[0].order
    assert [step.id for step in order] == ["B07", "E01", "E11"]
    assert order[-1].text == "10 s against 30 s: every stop becomes a kill: when you recreate the container"


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"Result": "start-limit-hit", "ActiveState": "failed"}, "sudo systemctl reset-failed triton.service"),
        ({"Restart": "no"}, "start it: sudo systemctl restart triton.service"),
        ({"RestartUSec": "10s"}, "triton.service starts by itself, within 10s"),
        ({"RestartUSec": ""}, "triton.service starts by itself"),
    ],
)
def test_how_the_container_comes_back(properties: dict[str, str], text: str) -> None:
    assert text in causes(unit(**properties), [STALE, NOT_STARTED])[0].order[-1].text


def test_a_container_without_the_gpu_is_restarted() -> None:
    order = causes(by_hand(), [fail("C03"), fail("E03")])[0].order
    assert [(step.id, step.text) for step in order] == [
        ("C03", "set the SELinux boolean"),
        ("E03", "restart the container: sudo podman restart triton"),
    ]


def test_a_healthy_box_has_no_cause() -> None:
    assert causes(Facts(), [finding("A06", "ok"), finding("G04", "note"), finding("E08", "unknown")]) == ()


def test_data_with_braces_and_odd_letters_is_only_text() -> None:
    odd = fail("B05", "x", cdi_version="{0.__class__}", podman="4.9\n\x1b[31m")
    assert causes(Facts(), [odd])[0].title == (
        "the CDI spec is of version {0.__class__}, too new for Podman 4.9 ⏎ \\x1b[31m"
    )


def test_the_table_names_checks_and_keys_alone() -> None:
    for id_, rule in rules().items():
        assert re.fullmatch(r"[A-L]\d\d", id_)
        for entry in rule.explains:
            assert re.fullmatch(r"[A-L]\d\d(:named|:[a-z_]+(=[\w -]+)?)?", entry), entry
            assert entry[:3] != id_
        assert len(set(rule.explains)) == len(rule.explains), id_
    assert {GROUP[id_[0]] for id_ in FELT} <= set(GROUPS)


def test_every_pair_of_findings_has_a_cause() -> None:
    """No circle of the table may swallow what is wrong."""
    ids = sorted(rules())
    for one in ids:
        for other in ids:
            if one < other:
                findings = [fail(one), fail(other)]
                assert causes(Facts(), findings), (one, other)
    everything = [fail(id_) for id_ in ids]
    assert causes(Facts(), everything)
    assert graph(Facts(), everything).ties


def test_a_text_beside_the_one_that_counts_explains_nothing() -> None:
    """Seen on the lab: limits that are too low (no pinned memory) stood over a model whose engine does not load."""
    two = (
        Evidence("podman logs, line 9", "Serialization (Serialization assertion failed. Version tag does not match. )"),
        Evidence("podman logs, line 2", "failed to allocate pinned system memory: no pinned memory pool"),
    )
    log = Finding(
        "E05", "log", "container", "fail", "engine of another version", two, data={"marker": "engine-version"}
    )
    found = causes(told(), [warn("E09", "memlock 8 MiB"), log, warn("E07")])
    assert found[0].id == "E05"
    assert "E05" not in found[1].consequences


def test_what_somebody_stopped_has_no_other_cause() -> None:
    """Seen on the lab: a container stopped by hand was said to be down for an engine of one of its models."""
    stopped = warn("E01", "stopped (0)", status="exited", exit="0", stopped="asked")
    found = causes(told(), [fail("E05", "an engine of another version"), stopped])
    assert {one.id: one.consequences for one in found} == {"E05": (), "E01": ()}
    crashed = fail("E01", "exited, 1", status="exited", exit="1")
    assert causes(told(), [fail("E05", "an engine of another version"), crashed])[0].consequences == ("E01",)


def test_a_fix_without_commands_is_told_by_what_it_does() -> None:
    does = Fix("S", (), effect="build the engine with the TensorRT of this image; L05, L06 tell the cause")
    found = causes(told(), [finding("E05", "fail", fix=does)])
    assert [step.text for step in found[0].order] == ["build the engine with the TensorRT of this image"]
