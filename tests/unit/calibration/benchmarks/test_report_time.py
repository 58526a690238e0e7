"""The benchmark of `tilewright report` measures a report of as many points and networks as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.benchmarks import report_time
from tilewright.sweep import Database
from tilewright.sweep.report.data import load
from tilewright.sweep.report.inside import look_inside


@pytest.mark.slow
def test_a_made_up_sweep(tmp_path: Path) -> None:
    report_time.make(tmp_path, 3, ["ds_cnn"])
    with Database(tmp_path) as database:
        data = load(database)
        insides, _ = look_inside(database, data, [], lambda text, _: pytest.fail(text))
    assert len(data.points) == len(insides) == 3 and list(data.networks) == ["ds_cnn"]
    products = {p["metrics"]["cycles"] * data.machine(p["number"]).config.macs_per_cycle for p in data.points}
    assert max(products) - min(products) <= 32 * 32  # the same work


@pytest.mark.slow
def test_the_command() -> None:
    done = CliRunner().invoke(report_time.main, ["--points", "2", "autoencoder"])
    assert done.exit_code == 0, done.output
    found = re.fullmatch(r"2 points, 1 networks: ([\d.]+) CPU seconds; a page of ([\d.]+) MB\n", done.output)
    assert found and float(found[1]) > 0.5 and float(found[2]) > 0.05
