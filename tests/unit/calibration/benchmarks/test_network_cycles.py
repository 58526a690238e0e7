"""Cycles of networks beside their targets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.benchmarks import network_cycles


@pytest.mark.medium
def test_network_cycles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = network_cycles.Target("ds_cnn", 27, 20, 54, quick=True)
    monkeypatch.setattr(network_cycles, "TARGETS", (small, network_cycles.Target("resnet50", 1, 1)))
    out = tmp_path / "cycles.json"
    done = CliRunner().invoke(network_cycles.main, ["--quick", "--json", str(out)])
    assert done.exit_code == 0 and "ds_cnn" in done.output, done.output
    (entry,) = json.loads(out.read_text())
    assert 0 < entry["bound_cycles"] <= entry["cycles"] and 0 < entry["utilization"] <= 1
    assert entry["bar_cycles"] == 27000 and entry["compile_seconds"] > 0


def test_mistakes_are_one_line() -> None:
    done = CliRunner().invoke(network_cycles.main, ["--config", "nowhere"])
    assert done.exit_code == 1 and done.output.startswith("Error: ") and done.output.count("\n") == 1, done.output
