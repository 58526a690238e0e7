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


@pytest.mark.medium
def test_unpacking_of_weights_against_yosys() -> None:
    """LOAD_PACKED costs LUTs in front of the weights' memories and nothing else."""
    plain = PRESETS["tiny"]
    packed = plain.with_(packed_weights=1)
    found, measured = (area.estimate(packed), area.estimate(plain)), [
        count_cells(rtlil.convert(WeightScratchpad(config), name=TOP), FAMILIES["ecp5"], config.name)
        for config in (packed, plain)
    ]  # fmt: skip
    assert found[0].lut - found[1].lut == pytest.approx(measured[0].lut - measured[1].lut, rel=0.1)
    assert (found[0].ff, found[0].dsp, found[0].bram) == (found[1].ff, found[1].dsp, found[1].bram)


def test_unknown_and_uncalibrated_families() -> None:
    with pytest.raises(FpgaError, match="unknown FPGA family 'ice40'; there are ecp5"):
        area.load("ice40")
    for family in FAMILIES:
        if not model.calibration_file(family).is_file():
            with pytest.raises(FpgaError, match=f"no area model for '{family}'"):
                area.load(family)
    with pytest.raises(FpgaError, match="unknown synthesis tool 'vivado'"):
        synthesise(SMALL, tool="vivado")


def test_families_differ() -> None:
    """Cells of other kinds: LUTs of six inputs are fewer than those of four, and half a DSP block makes a product."""
    ecp5, xc7, gowin = (area.estimate(PRESETS["base"], family) for family in ("ecp5", "xc7", "gowin"))
    assert xc7.lut < 0.8 * ecp5.lut and xc7.ff < ecp5.ff
    assert gowin.dsp < 0.7 * ecp5.dsp


def test_command_line() -> None:
    done = CliRunner().invoke(main, ["tiny"])
    assert done.exit_code == 0, done.output
    assert f"lut: {area.estimate(PRESETS['tiny']).lut}" in done.output.splitlines()
    assert "extrapolated" not in done.output
    on_board = CliRunner().invoke(main, ["tiny", "--board", "tang_nano_20k"])
    assert f"lut: {area.estimate(PRESETS['tiny'], 'gowin').lut}" in on_board.output.splitlines()
    assert "the calibration has no: vector_lanes 32 (1..16)" in CliRunner().invoke(main, ["large"]).output
    for arguments, said in (
        (["tiny", "--family", "xcup"], "no area model for 'xcup'"),
        (["nowhere"], "nowhere"),
        (["tiny", "--board", "ulx4s"], "unknown board 'ulx4s'"),
        (["tiny", "--board", "pynq_z2", "--family", "xc7"], "--board says the family"),
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1 and said in done.output and done.output.count("\n") == 1


@pytest.mark.parametrize("family", area.calibrated())
def test_what_is_extrapolated(family: str) -> None:
    """Sizes outside of those of the family's machines, and no others; memories are counted from their shapes."""
    found = area.load(family)
    assert all(found.beyond(machine) == [] for machine, _ in found.designs)
    machines = [machine for machine, _ in found.designs]
    large = max(machines, key=lambda machine: (machine.block_out, machine.macs_per_cycle))
    products = [machine.macs_per_cycle for machine in machines]
    assert found.beyond(large.with_(block_out=2 * large.block_out, wgt_tiles=16384)) == [
        f"block_out {2 * large.block_out} (4..{large.block_out})",
        f"macs_per_cycle {2 * large.macs_per_cycle} ({min(products)}..{max(products)})",
    ]


@pytest.mark.parametrize("family", ["xc7", "gowin"])
def test_options_that_no_machine_of_the_family_has_are_extrapolated(family: str) -> None:
    """Combinations count, too: these families have row units of four lanes or more."""
    found = area.load(family)
    rows = PRESETS["tiny"].with_(row_unit=1, vector_passes=2)
    assert found.beyond(rows) == ["vector_lanes 2 (4..16) with row_unit 1"]
    assert found.beyond(rows.with_(vector_passes=1)) == [] == found.beyond(rows.with_(row_unit=0))
    assert area.load("ecp5").beyond(rows) == []
    assert area.load("ecp5").beyond(PRESETS["tiny"].with_(wide_results=1)) == ["wide_results 1 (0..0)"]


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
