"""E04, E19, E22: image against driver and card, its name, its pull."""

from __future__ import annotations

from typing import Any

import pytest

from console.checks.container_image import image_floor, image_pinned, image_pull
from console.checks.image_floors import FLOORS, newest_for, verdict
from console.core.facts import AnswerFact, CommandFact
from tests.checks.container_told import IMAGE, NOTHING, OTHER, OWN, SERVICE, cards, container, finding

NO_NVML = {"@nvml": {"error": {"code": 18, "text": "Driver/library version mismatch"}, "box": None}}


def _image(release: str = "", cuda: str = "", require: str = "", name: str = "localhost/own:1") -> dict[str, Any]:
    told = {"NVIDIA_TRITON_SERVER_VERSION": release, "CUDA_VERSION": cuda, "NVIDIA_REQUIRE_CUDA": require}
    return container(Config={"Env": [f"{key}={value}" for key, value in told.items() if value]}, ImageName=name)


@pytest.mark.parametrize(
    ("driver", "release", "cuda", "supported", "consumer", "wanted"),
    [
        ((550, 90, 7), "24.05", None, (12, 4), False, "fits"),
        ((545, 23), "24.05", None, None, False, "fits"),
        ((535, 183, 1), "24.05", None, (12, 2), False, "compat"),
        ((535, 54), "24.05", None, (12, 2), False, "minor"),
        ((535, 183, 1), "24.05", None, (12, 2), True, "minor"),
        ((470, 199, 2), "24.05", None, (11, 4), False, "compat"),
        ((470, 199, 2), "24.05", None, (11, 4), True, "old"),
        ((470, 42), "24.05", None, (11, 4), False, "old"),
        ((510, 108), "24.05", None, (11, 6), False, "between"),
        ((550, 90, 7), "25.04", None, (12, 4), False, "minor"),
        ((575, 51), "25.04", None, (12, 9), False, "fits"),
        ((550, 90, 7), "25.10", None, (12, 4), False, "between"),
        ((550, 90, 7), "25.10", None, (12, 4), True, "old"),
        ((575, 57), "25.10", None, (12, 9), False, "compat"),
        ((575, 57), "25.10", None, (12, 9), True, "between"),
        ((580, 65), "25.10", None, None, True, "fits"),
        ((580, 65), "26.10", None, (13, 0), False, "minor"),
        ((570, 86), "26.10", None, (12, 8), False, "old"),
        ((550, 54), "", (12, 1), (12, 4), True, "fits"),
        ((525, 60), "", (12, 4), None, True, "minor"),
        ((470, 57), "", (12, 4), None, False, "old"),
        ((470, 57), "", (99, 0), None, False, "unknown"),
        ((470, 57), "", None, None, False, "unknown"),
    ],
)
def test_verdict(driver: Any, release: str, cuda: Any, supported: Any, consumer: bool, wanted: str) -> None:
    assert verdict(driver, FLOORS.get(release), cuda, supported, consumer) == wanted


def test_the_rows_are_ordered() -> None:
    """A later release never wants less CUDA, and no branch that it names is newer than its floor."""
    rows = [FLOORS[release] for release in sorted(FLOORS)]
    assert [row.cuda for row in rows] == sorted(row.cuda for row in rows)
    assert all(row.driver is None or max(row.branches)[0] <= row.driver for row in rows)


@pytest.mark.parametrize(
    ("driver", "compute", "wanted"),
    [
        ((550, 90), None, "24.05"),
        ((560, 35), None, "25.03"),
        ((560, 35), (7, 2), "24.12"),
        ((580, 65), None, "26.04"),
        ((470, 57), None, ""),
    ],
)
def test_the_newest_image_for_a_driver(driver: Any, compute: Any, wanted: str) -> None:
    assert newest_for(driver, compute) == wanted


@pytest.mark.parametrize(
    ("inspect", "answers", "sign", "text"),
    [
        (container(), {}, "ok", "driver 550.90.07 carries 24.05 (CUDA 12.4)"),
        (
            _image("24.10"),
            {"@nvml": cards(OWN, driver="535.183.01", cuda="12.2")},
            "note",
            "through the image's compatibility libraries (560 without)",
        ),
        (
            _image("25.04"),
            {"@nvml": cards(OWN)},
            "note",
            "550.90.07 carries 25.04 (CUDA 12.9) by CUDA's minor-version compatibility",
        ),
        (
            _image("23.05"),
            {"@nvml": cards(driver="470.199.02", cuda="11.4", name="NVIDIA GeForce RTX 3090", architecture="Ampere")},
            "fail",
            "23.05 (CUDA 12.1) wants driver 530 or later, 470.199.02 is loaded",
        ),
        (
            _image("23.05"),
            {"@nvml": cards(OWN, driver="470.199.02", cuda="11.4", name="NVIDIA GeForce RTX 3090")},
            "warn",
            "yet it uses the card now",
        ),
        (_image("25.10"), {"@nvml": cards(OTHER)}, "warn", "550.90.07 is of no branch that its notes allow"),
        (
            _image("25.04"),
            {"@nvml": cards(name="Tesla V100-SXM2-16GB", architecture="Volta", driver="580.65.06", cuda="13.0")},
            "fail",
            "Tesla V100-SXM2-16GB (Volta) has compute capability 7.2 at most, 25.04 wants 7.5 or later",
        ),
        (_image("24.11", "12.6.3"), {"@nvml": cards(cuda="12.6", driver="560.35.03")}, "ok", "24.11 (CUDA 12.6)"),
        (_image("24.11"), {}, "unknown", "release 24.11 is not in the table"),
        (_image("", "12.4.1"), {}, "ok", "carries CUDA 12.4"),
        (_image("", "", "cuda>=12.1 brand=tesla,driver>=525"), {}, "ok", "carries CUDA 12.1"),
        (_image("", "", "", "nvcr.io/nvidia/tritonserver:24.05-py3"), {}, "ok", "24.05"),
        (_image(), {}, "unknown", "names no CUDA version"),
        (_image("\x00\xff", "garbage", "cuda>=x"), {}, "unknown", "names no CUDA version"),
        (container(), NO_NVML, "ok", "driver 550.90.07 carries 24.05"),
        (container(), {"@nvml": AnswerFact(why="timed out")}, "ok", "driver 550.90.07"),
        (
            container(Config={"Env": None}, ImageName=None),
            {"@podman.image": {"Config": {"Env": ["CUDA_VERSION=12.4"]}}},
            "ok",
            "12.4",
        ),
    ],
)
def test_floor(inspect: Any, answers: Any, sign: str, text: str) -> None:
    found = finding(image_floor, inspect=inspect, answers=answers)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        *NOTHING,
        ({"variables": {"gpu": ()}}, "none", "no NVIDIA device"),
        ({"variables": {"gpu": None}}, "unknown", "the PCI bus could not be listed"),
        ({"answers": NO_NVML, "files": {"/sys/module/nvidia/version": None}}, "none", "no NVIDIA driver is loaded"),
    ],
)
def test_floor_skips(changes: Any, sign: str, text: str) -> None:
    found = finding(image_floor, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)


def test_an_older_image_is_named() -> None:
    found = finding(image_floor, inspect=_image("25.10"), answers={"@nvml": cards()})
    assert found.fix is not None
    assert found.fix.commands == (
        "sudo podman pull nvcr.io/nvidia/tritonserver:24.05-py3",
        "sudo gpuconsole do container.recreate triton image=nvcr.io/nvidia/tritonserver:24.05-py3",
    )
    assert found.data == {"driver": "550.90.07", "release": "25.10", "cuda": "13.0"}


# ------------------------------------------------------------------------------------------------------------- its name

DIGEST = f"nvcr.io/nvidia/tritonserver@sha256:{'c' * 64}"


@pytest.mark.parametrize(
    ("name", "sign", "text"),
    [
        (IMAGE, "ok", "24.05-py3, built 2024-05-22, 18 months ago"),
        (DIGEST, "ok", "by digest"),
        ("d" * 64, "ok", "by digest"),
        ("nvcr.io/nvidia/tritonserver:latest", "warn", "tag latest: the next pull changes it"),
        ("nvcr.io/nvidia/tritonserver", "warn", "no tag: the next pull changes it"),
        ("localhost:5000/tritonserver", "warn", "no tag"),
        ("", "unknown", "is not told"),
        ("reg/x:\x1b[31m", "ok", "\\x1b"),
    ],
)
def test_name(name: str, sign: str, text: str) -> None:
    image = {"Created": "2024-05-22T00:00:00Z", "RepoDigests": [DIGEST]}
    found = finding(image_pinned, inspect=container(ImageName=name), answers={"@podman.image": image})
    assert found.sign == sign
    assert text in found.text
    if sign == "warn":
        assert found.fix is not None
        assert (found.fix.action, found.fix.values) == ("container.recreate", {"image": DIGEST})


def test_without_its_image() -> None:
    found = finding(image_pinned, inspect=container(ImageName="x:latest"), answers={"@podman.image": None})
    assert (found.sign, found.fix) == ("warn", None)


@pytest.mark.parametrize(("changes", "sign", "text"), NOTHING)
def test_name_skips(changes: Any, sign: str, text: str) -> None:
    found = finding(image_pinned, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)


# ----------------------------------------------------------------------------------------------------------------- pull

JOURNAL = "journalctl --no-pager --output=cat -n 200 -u triton.service"
DENIED = (
    "Trying to pull nvcr.io/nvidia/tritonserver:24.05-py3...\n"
    "Error: initializing source docker://nvcr.io/nvidia/tritonserver:24.05-py3: unable to retrieve auth token: "
    "invalid username/password: unauthorized: authentication required"
)
UNIT = {"variables": {"unit": ("triton.service",)}}


@pytest.mark.parametrize(
    ("journal", "sign", "text"),
    [
        (DENIED, "fail", "registry refuses"),
        ("Error: initializing source docker://nvcr.io/x: dial tcp: lookup nvcr.io: no such host", "fail", "registry"),
        ("Error: reading manifest 99.99-py3 in nvcr.io/x: manifest unknown", "fail", "not on this box"),
        ("Started Triton.\n", "ok", "no failed pull in the journal of triton.service"),
        ("", "unknown", "could not be read"),
        (
            CommandFact(1, "", "No journal files were opened due to insufficient permissions."),
            "unknown",
            "could not be",
        ),
        (CommandFact(why="timed out"), "unknown", "timed out"),
    ],
)
def test_pull(journal: Any, sign: str, text: str) -> None:
    found = finding(image_pull, inspect=None, commands={JOURNAL: journal}, **UNIT)
    assert found.sign == sign
    assert text in found.text


@pytest.mark.parametrize(
    ("changes", "sign", "text"),
    [
        ({}, "none", "no pull failed"),
        ({"inspect": None}, "none", "no pull failed"),
        ({"commands": {JOURNAL: DENIED}, **UNIT}, "none", "no pull failed"),
        NOTHING[1],
        NOTHING[2],
        (
            {"inspect": None, "answers": {"@units": {"user:triton.service": SERVICE}}, **UNIT},
            "unknown",
            "journal of its unit was not read",
        ),
    ],
)
def test_no_pull(changes: Any, sign: str, text: str) -> None:
    found = finding(image_pull, **dict(changes))
    assert (found.sign, text in found.text) == (sign, True)
