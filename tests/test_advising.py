"""`gpuconsole advise`: on the simulated box, and with wrong words."""

from __future__ import annotations

import json

import pytest

from console import cli


def test_the_simulated_box(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code = cli.run(["advise", "--demo", "--scene", "delay-too-long", "--window", "12s", "--json", "ranking"])
    assert code == 0
    (found,) = [one for one in json.loads(capfdbinary.readouterr().out)["advice"] if one["verdict"]["id"] == "V20"]
    proposals = found["verdict"]["proposals"]
    assert [one["values"] for one in proposals] == [{"delay_us": "500"}, {"delay_us": "0"}]
    assert [one["helps"] for one in found["effects"]] == ["yes", "yes"]


def test_for_people(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cli.run(["advise", "--demo", "--scene", "queue-bound", "--window", "12s", "--ascii"]) == 0
    out = capfdbinary.readouterr().out.decode("ascii")
    assert "run one more instance (1 > 2)" in out
    assert "gpuconsole do batching.set ranking instances=2" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--window", "soon"], "--window must be a time such as 30s"),
        (["--window", "1s"], "--window must be from 2s to 5m, not 1s"),
        (["nobody", "--window", "2s", "--demo"], "there is no model 'nobody' here; served are ranking"),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["advise", *words]) == 64
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
