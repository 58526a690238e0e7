"""`tilewright demo`: equal bytes end with 0, a byte that differs with 1."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tilewright.cli import cli
from tilewright.measure import demo


@pytest.mark.network
def test_digits() -> None:
    done = CliRunner().invoke(cli, ["demo", "--digits", "--json", "-"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found == {
        "digits": {"images": 360, "correct": dict.fromkeys(found["digits"]["correct"], 359), "equal": 360},
        "resnet18": None,
        "equal": True,
    }


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    right = demo.Digits(4, {"float, onnxruntime": 4, "int8, onnxruntime": 3, "int8, NPU": 3}, 4)
    once = demo.Once(2_000_000_000, 1.5, 0.5, 1000, 0)
    results = [(right, once, 0), (replace(right, equal=3), once, 1), (right, replace(once, mismatches=1), 1)]
    for digits, network, code in results:
        monkeypatch.setattr(demo, "digits", lambda step, digits=digits: digits)
        monkeypatch.setattr(demo, "resnet18", lambda tell, network=network: network)
        done = CliRunner().invoke(cli, ["demo"])
        assert done.exit_code == code and "75.00%" in done.output and "4.00" in done.output
        assert f"{digits.equal} of 4" in done.output
        assert ("Every byte equals onnxruntime's." in done.output) == (code == 0)
