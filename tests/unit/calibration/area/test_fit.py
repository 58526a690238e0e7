"""The fit of the area model: what is stored follows from the stored points, and how far off it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibration.area import fit
from tilewright.fpga.area import model
from tilewright.fpga.bare.resources import Resources
from tilewright.isa.config import NpuConfig


@pytest.mark.medium
def test_stored_error_is_that_of_the_stored_points() -> None:
    """Neither coefficients nor error can be edited: both follow from the points in the file."""
    stored = json.loads(model.calibration_file("ecp5").read_text())
    configs: dict[bool, list[NpuConfig]] = {True: [], False: []}
    counts: dict[bool, list[Resources]] = {True: [], False: []}
    for point in stored["points"]:
        configs[point["held_back"]].append(NpuConfig.from_dict(point["config"]))
        counts[point["held_back"]].append(Resources(**{count: point[count] for count in model.COUNTS}))
    coefficients = fit.fit(configs[False], counts[False], "ecp5")
    for count, values in coefficients.items():
        assert values == pytest.approx(stored["coefficients"][count], rel=1e-3, abs=1e-3)
    errors = fit.errors(coefficients, configs[True], counts[True], "ecp5")
    assert {count: max(values) for count, values in errors.items()} == pytest.approx(stored["error"], abs=1e-3)
    assert len(configs[True]) >= 3 and max(stored["error"].values()) <= 0.10


@pytest.mark.medium
def test_stored_points_are_not_synthesised_again(tmp_path: Path) -> None:
    """Points whose design is as it was measured; of others, and of all once another tool counts, counts are new."""
    path = tmp_path / "ecp5.json"
    stored = json.loads(model.calibration_file("ecp5").read_text(encoding="utf-8"))
    by_name = {point["config"]["name"]: point for point in stored["points"]}
    path.write_text(json.dumps(stored), encoding="utf-8")
    counted: list[str] = []

    def digest(config: NpuConfig) -> str:
        return "new" if config.name == "coded" else by_name[config.name]["design"]

    def synthesise(config: NpuConfig, family: str) -> Resources:
        counted.append(config.name)
        return Resources(**{count: by_name[config.name][count] for count in model.COUNTS})

    def calibrate() -> None:
        fit.calibrate("ecp5", len(by_name), lambda line: None, file=path, digest=digest, count_cells=synthesise)

    calibrate()
    again = json.loads(path.read_text(encoding="utf-8"))
    assert counted == ["coded"] and again["points"][-1]["design"] == "new"
    assert again["coefficients"] == stored["coefficients"] and again["error"] == stored["error"]
    path.write_text(json.dumps(again | {"tool": "another"}), encoding="utf-8")
    calibrate()
    assert counted[1:] == list(by_name)
