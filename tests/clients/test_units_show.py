"""`systemctl show` field by field, and any answer at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import units
from console.clients.commands import Output
from console.core.model import UnitState
from tests.clients.test_cgroup import put
from tests.clients.test_units import bin_folder, tool

__all__ = ["bin_folder"]

SHOW = """LoadState=loaded
ActiveState=failed
SubState=dead
NRestarts=5
ExecMainStatus=126
ExecMainExitTimestamp=Sat 2024-07-06 03:12:40 CST
StateChangeTimestamp=Sat 2024-07-06 03:12:41 CST
Odd=a=b
"""


def stamp(second: int) -> float:
    return datetime(2024, 7, 6, 3, 12, second).timestamp()


def test_every_field() -> None:
    assert units.parse_unit("t.service", SHOW) == UnitState(
        name="t.service",
        active="failed",
        sub="dead",
        restarts=5,
        exit_status=126,
        exit_wall=stamp(40),
        since_wall=stamp(41),
    )


def test_what_is_not_told_is_unknown() -> None:
    assert units.parse_unit("t", "LoadState=loaded\n") == UnitState(
        name="t", active="", sub="", restarts=None, exit_status=None, exit_wall=None, since_wall=None
    )
    running = units.parse_unit("t", "LoadState=loaded\nExecMainStatus=0\nExecMainExitTimestamp=\n")
    assert running is not None
    assert running.exit_status is None, "0 stands there while it runs too"
    assert units.parse_unit("t", "LoadState=not-found\nActiveState=active\n") is None
    assert units.parse_unit("t", "ActiveState=active\n") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Sat 2024-07-06 03:12:40 CST", stamp(40)),
        ("Sat 2024-07-06 03:12:40", stamp(40)),
        ("Sat 2024-07-06", None),
        ("n/a", None),
        ("a b c", None),
        ("", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert units._stamp(text) == seconds


def asked(bin_folder: Path, tmp_path: Path, name: str, answer: str = "") -> Callable[[], list[str]]:
    tool(bin_folder, name, f"echo \"$@\" > {tmp_path}/args; printf '{answer}'")
    return lambda: (tmp_path / "args").read_text().split()


def test_what_systemctl_is_asked(bin_folder: Path, tmp_path: Path) -> None:
    arguments = asked(bin_folder, tmp_path, "systemctl", "LoadState=loaded\\nActiveState=active\\n")
    wanted = (
        "--property=ActiveState,SubState,NRestarts,ExecMainStatus,ExecMainExitTimestamp,StateChangeTimestamp,LoadState,"
        "Restart,FragmentPath,SourcePath"
    )
    state = units.unit_state("t.service")
    assert state is not None
    assert state.active == "active"
    assert arguments() == ["show", "t.service", wanted]
    units.unit_state("t.service", user=True)
    assert arguments() == ["--user", "show", "t.service", wanted]


def test_what_journalctl_is_asked(bin_folder: Path, tmp_path: Path) -> None:
    arguments = asked(bin_folder, tmp_path, "journalctl", "one\\n\\nkey=hush\\nlast\\n")
    assert units.last_lines("t.service", 3) == ("key=***", "last")
    assert arguments() == ["-u", "t.service", "-n", "3", "-o", "cat", "--no-pager", "-q"]
    assert units.last_lines("t.service", 9, user=True) == ("one", "key=***", "last")
    assert arguments()[:3] == ["--user", "-u", "t.service"]


@pytest.mark.parametrize("folder", ["etc/systemd/system", "run/systemd/generator", "usr/lib/systemd/system"])
def test_units_in_each_folder(tmp_path: Path, folder: str) -> None:
    put(
        tmp_path,
        **{
            f"{folder}/a.service": "ExecStart=podman run x",
            f"{folder}/b.service": "ExecStart=tritonserver",
            f"{folder}/c.service": "ExecStart=podman run tritonserver",
            f"{folder}/d.service": "ExecStart=podman run tritonserver",
            f"{folder}/a.timer": "podman tritonserver",
        },
    )
    assert units.triton_unit(tmp_path) == "c.service"
    assert units.triton_unit(tmp_path / "nowhere") is None


@given(st.text(max_size=200))
def test_any_answer_is_survived(text: str) -> None:
    units.parse_unit("t", text)
    units.parse_unit("t", f"LoadState=loaded\nNRestarts={text}\nExecMainExitTimestamp={text}\n")


@given(st.integers(0, 10**6), st.integers(0, 255), st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)))
def test_there_and_back(restarts: int, status: int, moment: datetime) -> None:
    text = (
        f"LoadState=loaded\nNRestarts={restarts}\nExecMainStatus={status}\n"
        f"ExecMainExitTimestamp=Mon {moment:%Y-%m-%d %H:%M:%S} UTC\n"
    )
    told = units.parse_unit("t", text)
    assert told is not None
    assert (told.restarts, told.exit_status) == (restarts, status)
    assert told.exit_wall == moment.replace(microsecond=0).timestamp()


@pytest.mark.parametrize(
    ("path", "source", "head", "kind"),
    [
        ("/run/systemd/generator/t.service", "/etc/containers/systemd/t.container", "", "Quadlet"),
        ("/run/user/1000/systemd/generator.late/t.service", "", "", "Quadlet"),
        ("", "", "", None),
        ("own", "", "[Unit]\n", "hand-written"),
        ("own", "", "# t.service\n# autogenerated by Podman 4.3.1\n", "generated by Podman"),
        ("absent", "", "", None),
    ],
)
def test_where_a_units_file_comes_from(
    path: str, source: str, head: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(head)
    fragment = path if path.startswith("/") or not path else str(tmp_path / path)
    text = f"{SHOW}Restart=on-failure\nFragmentPath={fragment}\nSourcePath={source}\n"
    monkeypatch.setattr(units, "run", lambda argv: Output(0, text.encode(), b""))
    told = units.unit_state("t.service", user=True)
    assert told is not None
    assert (told.kind, told.restart, told.user) == (kind, "on-failure", True)
