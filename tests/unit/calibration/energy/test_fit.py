"""The fit of the energy model to its truth, and the command of the calibration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.energy import fit, liberty, points, truth
from calibration.energy.__main__ import main
from tests.common import needs
from tests.common.paths import ROOT
from tests.unit.calibration.energy import small_library
from tilewright.api.compilation import compile_program
from tilewright.energy import model
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads(model.CALIBRATION.read_text(encoding="utf-8"))


@pytest.mark.medium
def test_the_fit_is_that_of_the_stored_points(stored: dict) -> None:
    machines = {name: NpuConfig.from_dict(values) for name, values in stored["machines"].items()}
    fitted = [point for point in stored["points"] if not point["held_back"]]
    again = fit.errors(fit.fit(fitted, machines), fitted, machines)
    assert again == pytest.approx(fit.errors(stored["coefficients"], fitted, machines), abs=2e-3)


@pytest.mark.medium
def test_command_line_says_errors_and_costs() -> None:
    shown = CliRunner().invoke(main, [])
    assert shown.exit_code == 0 and "held-back points: mean" in shown.output
    shown = CliRunner().invoke(main, ["tiny"])
    assert shown.exit_code == 0 and "product" in shown.output
    assert CliRunner().invoke(main, ["nowhere"]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tiny", "--fit"], "CONFIG is for what events cost and for --today, not for --fit"),
        (["--today"], "--today needs CONFIG"),
        (["--fit", "--machines", "3"], "--machines is for --truth"),
        (["--nm", "45"], "--nm is for --truth"),
        (["--check", "--output", "x.json"], "--output is for --truth"),
        (["--truth", "--machines", "3"], "--output names a file for 3 of them"),
        (["--truth", "--nm", "45", "--output", "x.json"], "osu018_stdcells is"),
        (["--truth", "--machines", "3", "--output", "nowhere/x.json"], "no such directory"),
        (["--truth", "--machines", "3", "--output", str(DIGITS)], "is there and no model of energy"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _library(tmp_path, monkeypatch, "osu018_stdcells")
    before = model.CALIBRATION.read_bytes()
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 1 and said in shown.output and model.CALIBRATION.read_bytes() == before


def test_other_libraries_do_not_overwrite_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, monkeypatch, "round")
    for arguments, said in (
        (["--truth"], "--nm must say how many nm the process of round has"),
        (["--truth", "--nm", "90"], "--output names a file for round (90 nm, 2 V)"),
    ):
        shown = CliRunner().invoke(main, arguments)
        assert shown.exit_code == 1 and said in shown.output


def _library(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = folder / "some.lib"
    path.write_text(small_library.text().replace("library(round)", f"library({name})"), encoding="utf-8")
    monkeypatch.setenv("TILEWRIGHT_LIBERTY", str(path))


@pytest.mark.long
def test_truth_is_found_again(stored: dict) -> None:
    """Synthesis, gates and power of one program on the first machine give the stored figure."""
    try:
        library = liberty.load()
    except UsageError:
        needs.skip(needs.LIBERTY)
    config, point = points.MACHINES[0][0], next(p for p in points.POINTS if p.name == "table")
    machine = truth.Machine(config, library)
    # Raises where gates and simulator do not give the same bytes in the same cycles.
    found = machine._measure(compile_program(point.model(), config, tuning="off"), point, glitches=False)
    expected = next(p for p in stored["points"] if (p["machine"], p["program"]) == (config.name, point.name))
    if machine.digest == stored["designs"][config.name]:
        assert found["cycles"] == expected["cycles"]
        assert sum(found["pj"].values()) == pytest.approx(sum(expected["pj"].values()), rel=1e-3)
    else:  # another design since the truth was measured: much the same is what can be expected
        assert found["cycles"] == pytest.approx(expected["cycles"], rel=0.1)
        assert sum(found["pj"].values()) == pytest.approx(sum(expected["pj"].values()), rel=0.2)
