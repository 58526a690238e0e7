"""The model of the clock: what is stored follows from the stored placements, and how far off it is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.fmax import fit as calibration
from calibration.fmax import placement
from calibration.fmax.fit import Measured
from tilewright.fpga import fmax
from tilewright.fpga.bare.kept import write_json
from tilewright.fpga.bare.resources import FAMILIES
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fmax.__main__ import main
from tilewright.fpga.fmax.model import FmaxModel, calibration_file, terms
from tilewright.isa.config import PRESETS, NpuConfig

#: Of held-back placements, relative.
BAR = 0.15


@pytest.mark.parametrize("family", fmax.calibrated())
def test_stored_clocks_are_those_of_the_stored_points(family: str) -> None:
    """Neither coefficients nor error can be edited; the area model moves them by little."""
    stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    points = [Measured.of(entry) for entry in stored["points"]]
    coefficients = calibration.fit([p for p in points if not p.held_back], family)
    again = FmaxModel(fmax.load(family).area, coefficients, stored["routed"], 0.0)
    for p in points:
        assert again.mhz(p.config) == pytest.approx(fmax.load(family).mhz(p.config), rel=0.01), (
            f"{p.config.name}: python -m tilewright.fpga.fmax --fit"
        )
    held = [p for p in points if p.held_back]
    off = [abs(fmax.load(family).placed_mhz(p.config) / p.placed_mhz - 1) for p in held]
    assert max(off) == pytest.approx(stored["error"], abs=0.01)
    assert len(held) >= 2 and max(off) <= BAR
    assert len(coefficients) <= 5 and min(coefficients.values()) >= 0


def test_more_is_never_faster() -> None:
    tiny, model = PRESETS["tiny"], fmax.load("ecp5")
    for change in ({"block_in": 16}, {"block_out": 16}, {"vector_passes": 1}, {"axi_data_bits": 128}):
        assert model.mhz(tiny.with_(**change)) <= model.mhz(tiny), change
    assert model.mhz(PRESETS["large"]) < model.mhz(PRESETS["base"]) < model.mhz(PRESETS["tiny"])


def test_fit_finds_the_delays_it_is_shown() -> None:
    """Periods made of known delays come back, also for machines the fit has not seen."""
    true = {"fixed": 6.0, "side of the area": 0.5, "bytes of the bus": 0.2, "lanes of VECTOR": 0.0, "products": 0.3}
    area = fmax.load("ecp5").area

    def measured(config: NpuConfig) -> Measured:
        period = sum(true[term] * value for term, value in terms(config, area.estimate(config).lut).items())
        return Measured(config, False, 1e3 / period)

    shown = [measured(config) for config, held_back in calibration.POINTS if not held_back]
    found = calibration.fit(shown, "ecp5")
    others = [measured(config) for config, held_back in calibration.POINTS if held_back]
    assert max(abs(error) for error in calibration.errors(found, others, "ecp5")) < 0.05
    assert not any(math.isnan(value) or value < 0 for value in found.values())


def test_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point is placed once, failures are left out, and the file is what the model reads."""
    placed: list[str] = []

    def place(config: NpuConfig, family: str) -> placement.Placed:
        placed.append(config.name)
        if config.name == calibration.POINTS[-1][0].name:
            raise FpgaError("too large")
        return placement.Placed(lut=1000, mhz=100.0 - config.vector_lanes, cpu_seconds=1.0)

    monkeypatch.setattr(calibration, "place", place)
    monkeypatch.setattr(calibration, "routed_mhz", lambda config, family: 1.2 * (100.0 - config.vector_lanes))
    monkeypatch.setattr(calibration, "calibration_file", lambda family: tmp_path / f"{family}.json")
    said: list[str] = []
    calibration.calibrate("ecp5", len(calibration.POINTS), said.append)
    assert placed == [config.name for config, _ in calibration.POINTS]
    stored = json.loads((tmp_path / "ecp5.json").read_text())
    assert len(stored["points"]) == len(placed) - 1 and stored["routed"] == 1.2
    assert any(line.startswith("left out: too large") for line in said)
    assert sum(line.startswith("held back: ") for line in said) == sum(held for _, held in calibration.POINTS)
    before = (tmp_path / "ecp5.json").read_text()
    calibration.fit_again("ecp5", said.append)
    assert (tmp_path / "ecp5.json").read_text() == before
    with pytest.raises(FpgaError, match="too few calibration points of ecp5"):
        calibration.calibrate("ecp5", 1, said.append)
    with pytest.raises(FpgaError, match="no placements for 'xc7'; there are ecp5"):
        calibration.calibrate("xc7", 1, said.append)


def test_kept_builds_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "cache_file", lambda *content: tmp_path / "kept.json")
    monkeypatch.setattr(placement, "build", None)
    write_json(tmp_path / "kept.json", {"mhz": 99.5})
    assert placement.routed_mhz(PRESETS["tiny"], "ecp5") == 99.5


def test_families_without_a_model() -> None:
    missing = sorted(set(FAMILIES) - set(fmax.calibrated()))
    assert missing
    for family in missing:
        with pytest.raises(FpgaError, match=f"no model of the clock for '{family}'; there are ecp5"):
            fmax.load(family)


def test_command_line() -> None:
    done = CliRunner().invoke(main, ["tiny"])
    assert done.exit_code == 0, done.output
    assert "largest error on held-back points: " in done.output
    assert f"after routing: {fmax.load('ecp5').mhz(PRESETS['tiny']):.1f} MHz" in done.output


@pytest.mark.long
def test_model_against_a_placement() -> None:
    """As the RTL is today: a change that moves the clock by more asks for a new calibration."""
    config = PRESETS["nano"]
    found = placement.place(config, "ecp5").mhz
    assert fmax.load("ecp5").placed_mhz(config) == pytest.approx(found, rel=BAR), (
        "python -m tilewright.fpga.fmax --calibrate"
    )
