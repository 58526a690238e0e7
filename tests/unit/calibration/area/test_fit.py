"""The fit of the area model: what is stored follows from the stored points, and how far off it is."""

from __future__ import annotations

import json

import pytest

from calibration.area import fit
from tilewright.fpga.area import model
from tilewright.fpga.bare.resources import Resources
from tilewright.isa.config import NpuConfig


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
