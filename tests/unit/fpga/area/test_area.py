"""The area model against Yosys: block memories, multipliers and flip-flops of small designs, and the stated error."""

from __future__ import annotations

import pytest
from amaranth.back import rtlil
from click.testing import CliRunner

from tilewright.fpga import area
from tilewright.fpga.area import model
from tilewright.fpga.area.__main__ import main
from tilewright.fpga.area.memories import scratchpad_memories
from tilewright.fpga.bare.designs import TOP
from tilewright.fpga.bare.resources import FAMILIES, count_cells, synthesise
from tilewright.fpga.errors import FpgaError
from tilewright.hw.memory.scratchpads import ParameterScratchpad, WeightScratchpad
from tilewright.isa.config import PRESETS, NpuConfig

SMALL = NpuConfig(
    name="small", block_in=4, block_out=4, act_rows=1024, act_banks=2, wgt_tiles=256, acc_rows=256, prm_rows=32,
    lut_tables=1, gemm_loops=5, vector_loops=4, semaphores=12, queue_depth=8, axi_data_bits=32, read_outstanding=4,
    write_outstanding=4, vector_passes=4,
)  # fmt: skip


@pytest.mark.medium
def test_area_grows_with_every_field_that_costs() -> None:
    """Nothing is free: more of anything that takes cells never takes fewer."""
    base = area.estimate(PRESETS["base"])
    for field, value in (("block_out", 32), ("semaphores", 63), ("gemm_loops", 8), ("act_banks", 8),
                         ("axi_data_bits", 128)):  # fmt: skip
        more = area.estimate(PRESETS["base"].with_(**{field: value}))
        assert more.lut > base.lut, field
    assert area.estimate(PRESETS["base"].with_(act_rows=16384)).bram > base.bram


def test_unknown_and_uncalibrated_families() -> None:
    with pytest.raises(FpgaError, match="unknown FPGA family 'ice40'; there are ecp5"):
        area.load("ice40")
    for family in FAMILIES:
        if not model.calibration_file(family).is_file():
            with pytest.raises(FpgaError, match=f"no area model for '{family}'"):
                area.load(family)
    with pytest.raises(FpgaError, match="unknown synthesis tool 'vivado'"):
        synthesise(SMALL, tool="vivado")


def test_command_line() -> None:
    done = CliRunner().invoke(main, ["tiny"])
    assert done.exit_code == 0, done.output
    assert f"lut: {area.estimate(PRESETS['tiny']).lut}" in done.output.splitlines()
    assert "extrapolated" not in done.output and "extrapolated" in CliRunner().invoke(main, ["large"]).output
    for arguments, said in ((["tiny", "--family", "xc7"], "no area model for 'xc7'"), (["nowhere"], "nowhere")):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1 and said in done.output and done.output.count("\n") == 1


def test_what_is_extrapolated() -> None:
    """Sizes outside of those of the calibrated machines, and no others; memories are counted from their shapes."""
    found = area.load("ecp5")
    assert all(found.beyond(machine) == [] for machine, _ in found.designs)
    largest = max(machine.block_out for machine, _ in found.designs)
    wide = PRESETS["base"].with_(block_out=2 * largest, wgt_tiles=16384)
    assert found.beyond(wide) == [f"block_out {2 * largest}", f"macs_per_cycle {2 * largest * 16}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family, scratchpad, name, changes",
    [
        ("ecp5", ParameterScratchpad, "prm", {"prm_rows": 16}),  # in LUTs
        ("ecp5", WeightScratchpad, "wgt", {"wgt_tiles": 1500}),  # stacked, or narrower cells
        ("xc7", WeightScratchpad, "wgt", {"wgt_tiles": 300}),
        ("gowin", ParameterScratchpad, "prm", {"prm_rows": 600}),
    ],
)
def test_block_memories_are_those_of_yosys(family: str, scratchpad: type, name: str, changes: dict[str, int]) -> None:
    """One scratchpad alone, mapped by Yosys."""
    config = SMALL.with_(**changes)
    counted = count_cells(rtlil.convert(scratchpad(config), name=TOP, emit_src=False), FAMILIES[family], "part")
    assert counted.bram == scratchpad_memories(config, family, (name,)).blocks


@pytest.mark.slow
@pytest.mark.long
def test_model_against_yosys() -> None:
    """A whole design, as the RTL is today: a change that moves it by more than 10 % asks for a new calibration."""
    counted, said = synthesise(SMALL), area.estimate(SMALL)
    for count in model.COUNTS:
        assert getattr(said, count) == pytest.approx(getattr(counted, count), rel=0.10), (
            f"{count}: python -m calibration.area"
        )
