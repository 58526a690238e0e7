"""The fit of the clock model: what is stored follows from the stored placements, and how far off it is."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest

from calibration.fmax import bitstreams, fit, placement
from calibration.fmax.fit import Measured
from tilewright.fpga import fmax
from tilewright.fpga.board import Board, Point
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fmax.model import FmaxModel, calibration_file, terms
from tilewright.isa.config import PRESETS, NpuConfig

#: The largest relative error that held-back placements may show.
BAR = 0.15


@pytest.mark.medium
@pytest.mark.parametrize("family", list(placement.PLACED_ON))
def test_stored_clocks_are_those_of_the_stored_points(family: str) -> None:
    """Neither coefficients nor error can be edited; the area model moves them by little."""
    stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    points = [Measured.of(entry) for entry in stored["points"]]
    coefficients = fit.fit([p for p in points if not p.held_back], family)
    again = FmaxModel(fmax.load(family).area, coefficients, stored["routed"], 0.0)
    for p in points:
        assert again.mhz(p.config) == pytest.approx(fmax.load(family).mhz(p.config), rel=0.01), (
            f"{p.config.name}: python -m calibration.fmax --fit"
        )
    held = [p for p in points if p.held_back]
    off = [abs(fmax.load(family).placed_mhz(p.config) / p.placed_mhz - 1) for p in held]
    assert max(off) == pytest.approx(stored["error"], abs=0.01)
    assert len(held) >= 2 and max(off) <= BAR
    assert len(coefficients) <= 5 and min(coefficients.values()) >= 0


@pytest.mark.parametrize("family", list(bitstreams.BUILT))
def test_stored_bitstreams_give_the_stored_factor(family: str, tmp_path: Path) -> None:
    """Neither factor nor error can be edited; bitstreams that were held back are within the bar."""
    file = tmp_path / "family.json"
    stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    file.write_text(json.dumps({"points": stored["points"]}))
    said: list[str] = []
    bitstreams.fit_again(family, said.append, file=file)
    again = json.loads(file.read_text())
    assert again["routed"] == pytest.approx(stored["routed"], rel=0.01)
    built = [(b, PRESETS[name].with_(**changes), held) for b, name, changes, held in bitstreams.BUILT[family]]
    assert [(p["board"], NpuConfig.from_dict(p["config"]), p["held_back"]) for p in stored["points"]] == built
    off = [
        fmax.load(family).mhz(NpuConfig.from_dict(p["config"])) / statistics.geometric_mean(p["routed_mhz"]) - 1
        for p in stored["points"]
        if p["held_back"]
    ]
    assert max(map(abs, off)) == pytest.approx(stored["error"], abs=0.01)
    assert stored["error"] <= BAR


def test_bitstreams_of_a_family_are_built_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor is that of the fitted bitstreams, the error that of the others; those of another design now are built
    again, and no others, and a family with more placements gets those it lacks."""
    built: list[str] = []
    own, today = fmax.load(bitstreams.DELAYS_OF), {"pynq": "1", "tiny": "1", "wide": "2"}

    def routed(config: NpuConfig, board: str, more: int) -> float:
        built.append(f"{config.name} on {board}{' again' * more}")
        return own.placed_mhz(config) * (1.0 if config.name == "wide" else 1.1)

    def calibrate() -> None:
        digest = lambda config: today[config.name]
        bitstreams.calibrate("xc7", lambda line: None, file=file, routed=routed, digest=digest)

    file = tmp_path / "xc7.json"
    calibrate()
    stored = json.loads(file.read_text())
    assert built == ["pynq on pynq_z2", "tiny on nexys_a7_100t", "wide on pynq_z2", "wide on arty_a7_100t"]
    assert stored["routed"] == pytest.approx(1.1) and stored["error"] == pytest.approx(0.1)
    today["pynq"] = "3"
    calibrate()
    assert built[4:] == ["pynq on pynq_z2"]
    assert [p["design"] for p in json.loads(file.read_text())["points"]] == ["3", "1", "2", "2"]
    monkeypatch.setitem(bitstreams.PLACEMENTS, "xc7", 2)
    calibrate()
    assert built[5:] == [f"{first} again" for first in built[:4]]
    assert [len(p["routed_mhz"]) for p in json.loads(file.read_text())["points"]] == [2, 2, 2, 2]
    with pytest.raises(FpgaError, match="cannot read"):
        bitstreams.fit_again("xc7", file=tmp_path / "none.json")


def test_fit_finds_the_delays_it_is_shown() -> None:
    """Periods made of known delays come back, also for machines the fit has not seen."""
    true = {"fixed": 6.0, "side of the area": 0.5, "bytes of the bus": 0.2, "lanes of VECTOR": 0.0, "products": 0.3}
    area = fmax.load("ecp5").area

    def measured(config: NpuConfig) -> Measured:
        period = sum(true[term] * value for term, value in terms(config, area.estimate(config).lut).items())
        return Measured(config, False, 1e3 / period)

    shown = [measured(config) for config, held_back in fit.POINTS if not held_back]
    found = fit.fit(shown, "ecp5")
    others = [measured(config) for config, held_back in fit.POINTS if held_back]
    assert max(abs(error) for error in fit.errors(found, others, "ecp5")) < 0.05
    assert not any(math.isnan(value) or value < 0 for value in found.values())


@pytest.mark.medium
def test_calibration(tmp_path: Path) -> None:
    """Every point is placed once, failures are left out, and the file is what the model reads."""
    placed: list[str] = []

    def place(config: NpuConfig, family: str) -> placement.Placed:
        placed.append(config.name)
        if config.name == fit.POINTS[-1][0].name:
            raise FpgaError("too large")
        return placement.Placed(lut=1000, mhz=100.0 - config.vector_lanes, cpu_seconds=1.0)

    file, said = tmp_path / "ecp5.json", list[str]()

    def calibrate(family: str, count: int) -> None:
        routed = lambda config, board: 1.2 * (100.0 - config.vector_lanes)
        fit.calibrate(family, count, said.append, file=file, placed=place, routed=routed)

    calibrate("ecp5", len(fit.POINTS))
    assert placed == [config.name for config, _ in fit.POINTS]
    stored = json.loads(file.read_text())
    assert len(stored["points"]) == len(placed) - 1 and stored["routed"] == 1.2
    assert any(line.startswith("left out: too large") for line in said)
    assert sum(line.startswith("held back: ") for line in said) == sum(held for _, held in fit.POINTS)
    before = file.read_text()
    fit.fit_again("ecp5", said.append, file=file)
    assert file.read_text() == before
    with pytest.raises(FpgaError, match="too few calibration points of ecp5"):
        calibrate("ecp5", 1)
    with pytest.raises(FpgaError, match="no placements for 'xc7'; there are ecp5"):
        calibrate("xc7", 1)


def test_kept_builds_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    report = SimpleNamespace(timing=SimpleNamespace(fmax_mhz=99.5))
    builds: list[tuple[str, int]] = []

    def build(board: Board, config: NpuConfig, point: Point, folder: Path) -> SimpleNamespace:
        builds.append((board.name, point.seed))
        return report

    for more in (0, 0, 1):
        assert placement.routed_mhz(PRESETS["tiny"], "ulx3s_85f", more, build=build) == 99.5  # type: ignore[arg-type]
    assert [seed - builds[0][1] for _, seed in builds] == [0, 1]


@pytest.mark.long
def test_model_against_a_placement() -> None:
    """The fit agrees with a placement of today's RTL: a change that moves the clock by more asks for a new fit."""
    config = PRESETS["nano"]
    found = placement.place(config, "ecp5").mhz
    assert fmax.load("ecp5").placed_mhz(config) == pytest.approx(found, rel=BAR), "python -m calibration.fmax"
