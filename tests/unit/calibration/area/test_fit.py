"""The fit of the area model: what is stored follows from the stored points, and how far off it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibration.area import fit
from tilewright.fpga import area
from tilewright.fpga.area import model
from tilewright.fpga.bare.resources import Resources
from tilewright.isa.config import NpuConfig

#: The largest relative error in LUTs that held-back syntheses may show.
LUT_BAR = 0.05


@pytest.mark.medium
@pytest.mark.parametrize("family", area.calibrated())
def test_stored_error_is_that_of_the_stored_points(family: str) -> None:
    """Neither coefficients nor error can be edited: both follow from the points in the file."""
    stored = json.loads(model.calibration_file(family).read_text())
    configs: dict[bool, list[NpuConfig]] = {True: [], False: []}
    counts: dict[bool, list[Resources]] = {True: [], False: []}
    for point in stored["points"]:
        configs[point["held_back"]].append(NpuConfig.from_dict(point["config"]))
        counts[point["held_back"]].append(Resources(**{count: point[count] for count in model.COUNTS}))
    coefficients = fit.fit(configs[False], counts[False], family)
    for count, values in coefficients.items():
        assert values == pytest.approx(stored["coefficients"][count], rel=1e-3, abs=1e-3)
    errors = fit.errors(coefficients, configs[True], counts[True], family)
    assert {count: max(values) for count, values in errors.items()} == pytest.approx(stored["error"], abs=1e-3)
    assert len(configs[True]) >= 3 * len(stored["points"]) // 10 and stored["error"]["lut"] <= LUT_BAR
    assert max(stored["error"].values()) <= 0.10


@pytest.mark.medium
@pytest.mark.parametrize("family", area.calibrated())
def test_large_arrays_do_not_move_small_ones(family: str) -> None:
    """A large array only says what products of further outputs cost more, and its own LUTs come out, or somewhat more
    where they cost nothing more."""
    stored = json.loads(model.calibration_file(family).read_text())
    points = [
        (NpuConfig.from_dict(p["config"]), Resources(**{count: p[count] for count in model.COUNTS}))
        for p in stored["points"]
        if not p["held_back"]
    ]
    large = [(config, found) for config, found in points if config.block_out > model.SMALL_OUTPUTS]
    small = [one for one in points if one not in large]
    known, alone = (fit.fit(*map(list, zip(*chosen)), family) for chosen in (points, small))
    for count in model.COUNTS:
        assert {k: v for k, v in known[count].items() if k != model.BEYOND} == {
            k: v for k, v in alone[count].items() if k != model.BEYOND
        }
    for config, found in large:
        above = area.estimate(config, family).lut / found.lut - 1
        assert -0.01 <= above <= (0.01 if known["lut"][model.BEYOND] else LUT_BAR)


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
        fit.calibrate("ecp5", None, lambda line: None, file=path, digest=digest, count_cells=synthesise)

    calibrate()
    again = json.loads(path.read_text(encoding="utf-8"))
    assert counted == ["coded"]
    assert [point["design"] for point in again["points"] if point["config"]["name"] == "coded"] == ["new"]
    assert again["coefficients"] == stored["coefficients"] and again["error"] == stored["error"]
    path.write_text(json.dumps(again | {"tool": "another"}), encoding="utf-8")
    calibrate()
    assert counted[1:] == list(by_name)


@pytest.mark.medium
def test_stored_points_are_fitted_again_without_synthesis(tmp_path: Path) -> None:
    """Counts stand with `keep` whatever the design is now, stamped with theirs; what was never counted is left out."""
    path = tmp_path / "gowin.json"
    stored = json.loads(model.calibration_file("gowin").read_text(encoding="utf-8"))
    wrong = stored | {"points": stored["points"][:-1], "coefficients": {}}
    path.write_text(json.dumps(wrong), encoding="utf-8")
    said: list[str] = []

    def never(*_: object) -> Resources:
        raise AssertionError("nothing is elaborated or synthesised")

    fit.calibrate("gowin", None, said.append, keep=True, file=path, digest=never, count_cells=never)  # type: ignore[arg-type]
    again = json.loads(path.read_text(encoding="utf-8"))
    assert again["points"] == wrong["points"] and again["coefficients"].keys() == stored["coefficients"].keys()
    assert f"left out: {stored['points'][-1]['config']['name']}, which was never counted" in said
