"""What the settings hold of secrets, names inside the bundle, and changes beside recorded events."""

from __future__ import annotations

import pytest

from console.bundle.collect import Range, _newest, _plain, harmless, known_secrets
from console.config import Alerts, Settings, Triton
from console.core.podman_frames import RawLine
from tests.fakes.boxes import drawn_box


def test_secrets_of_the_settings() -> None:
    hook = ["curl", "-s", "-H", "x-key: 8812-abc-ttq0-zz91", "https://hooks.example/T0/B0", "ab12-token-9917"]
    settings = Settings(
        triton=Triton(headers={"x-key": "letmein"}), alerts=Alerts(hook_command=hook, hook_url="https://h.example/q")
    )
    found = set(known_secrets(settings))
    assert {"letmein", "https://h.example/q", "https://hooks.example/T0/B0", "ab12-token-9917"} <= found
    assert not {"curl", "-s", "-H", ""} & found
    assert list(known_secrets(Settings())) == []


def test_names_of_the_box() -> None:
    names = set(harmless(drawn_box().snapshot))
    assert {"ranking", "triton"} <= names


@pytest.mark.parametrize(
    ("name", "plain"),
    [("rank", "rank"), ("../../etc/passwd", "_.._etc_passwd"), ("a/b\n", "a_b_"), ("..", "_"), ("", "_")],
)
def test_no_name_leads_out_of_the_bundle(name: str, plain: str) -> None:
    assert _plain(name) == plain


def test_the_newest_lines_within_a_limit() -> None:
    lines = [RawLine(float(n), "stderr", b"x" * 9) for n in range(10)]
    assert [line.wall for line in _newest(lines, 35)] == [7.0, 8.0, 9.0]


def test_the_range() -> None:
    time_range = Range(100.0, 200.0)
    assert [time_range.has(wall) for wall in (99.0, 100.0, 200.0, 259.0, 261.0, None)] == [
        False, True, True, True, False, True,
    ]  # fmt: skip
