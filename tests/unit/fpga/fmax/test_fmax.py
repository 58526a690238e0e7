"""The model of the clock: what is stored follows from the stored placements, and how far off it is."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tilewright.fpga import fmax
from tilewright.fpga.bare.resources import FAMILIES
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fmax.__main__ import main
from tilewright.isa.config import PRESETS


@pytest.mark.medium
def test_more_is_never_faster() -> None:
    tiny, model = PRESETS["tiny"], fmax.load("ecp5")
    for change in ({"block_in": 16}, {"block_out": 16}, {"vector_passes": 1}, {"axi_data_bits": 128}):
        assert model.mhz(tiny.with_(**change)) <= model.mhz(tiny), change
    assert model.mhz(PRESETS["large"]) < model.mhz(PRESETS["base"]) < model.mhz(PRESETS["tiny"])


def test_families_without_a_model() -> None:
    assert sorted(set(FAMILIES) - set(fmax.calibrated())) == ["xcup"]
    for family in ("xcup", "ice40"):
        with pytest.raises(FpgaError, match=f"no model of the clock for '{family}'; there are ecp5, gowin, xc7"):
            fmax.load(family)


def test_command_line() -> None:
    done = CliRunner().invoke(main, ["tiny"])
    assert done.exit_code == 0, done.output
    assert "largest error on held-back points: " in done.output
    assert f"after routing: {fmax.load('ecp5').mhz(PRESETS['tiny']):.1f} MHz" in done.output
    assert "extrapolated" not in done.output
    products = PRESETS["large"].macs_per_cycle
    assert f"the calibration has no: macs_per_cycle {products}" in CliRunner().invoke(main, ["large"]).output


def test_families_with_the_delays_of_another() -> None:
    """The clock of these is ECP5 times one factor; what is shown says by how many bitstreams, and the error."""
    machines = [PRESETS[name] for name in ("nano", "wide", "base")]
    own = fmax.load("ecp5")
    for family in ("xc7", "gowin"):
        model = fmax.load(family)
        factors = [model.mhz(machine) / own.mhz(machine) for machine in machines]
        assert max(factors) == pytest.approx(min(factors)) and 0.5 < factors[0] < 1
    done = CliRunner().invoke(main, ["wide", "--family", "xc7"])
    assert "delays of ecp5 by 4 bitstreams of xc7; largest error on held-back points: 3.1%" in done.output
    assert "after placement" not in done.output
    done = CliRunner().invoke(main, ["wide", "--family", "gowin"])
    assert "by 2 bitstreams of gowin; largest error on held-back points: 8.2%" in done.output
    assert "the calibration has no: macs_per_cycle 128" in done.output
