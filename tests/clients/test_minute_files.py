"""The files of a line a minute: seven days, readable by the owner alone, whatever stands beside them."""

from __future__ import annotations

import stat
from pathlib import Path

from console.clients import minute_files
from console.core.minutes import Minute

DAY = 86_400
NOW = 1_783_296_000


def lines(folder: Path, days: range) -> list[Minute]:
    made = [Minute(NOW + day * DAY + 60, 60, {"host.cpu_pct": (1.0, 2.0)}) for day in days]
    for one in made:
        minute_files.append(folder, one)
    return made


def test_seven_days_are_kept_and_read(tmp_path: Path) -> None:
    made = lines(tmp_path / "r", range(10))
    assert len(list((tmp_path / "r").iterdir())) == 7
    assert minute_files.read([tmp_path / "r"], NOW + 9 * DAY + 120) == made[3:]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "r").iterdir())
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700


def test_only_what_is_before_the_moment_is_read(tmp_path: Path) -> None:
    made = lines(tmp_path, range(3))
    assert minute_files.read([tmp_path], NOW + DAY + 120) == made[:2]


def test_two_folders_are_one_table_and_a_missing_one_is_none(tmp_path: Path) -> None:
    first = lines(tmp_path / "a", range(2))
    minute_files.append(tmp_path / "b", Minute(first[0].t, 20))
    other = Minute(NOW + 180, 60)
    minute_files.append(tmp_path / "b", other)
    found = minute_files.read([tmp_path / "b", tmp_path / "none", tmp_path / "a"], NOW + 2 * DAY)
    assert found == [first[0], other, first[1]]


def test_a_torn_line_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    (made,) = lines(tmp_path, range(1))
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes() + b'{"t":178')
    (tmp_path / "minutes-x").write_text("junk")
    (tmp_path / "other.jsonl").write_text("junk")
    (tmp_path / "minutes-99999999.jsonl").mkdir()
    assert minute_files.read([tmp_path], NOW + DAY) == [made]
    again = Minute(NOW + 120, 60)
    minute_files.append(tmp_path, again)
    assert minute_files.read([tmp_path], NOW + DAY) == [made, again]
