"""The machine in a bitstream gives the driver's bytes, and those of the RTL, after placement and routing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.verification.netlists.smallest_network import (
    BOARD,
    LEAST,
    check_bytes_and_cycles,
    check_random_values,
    check_wrong_bits,
)
from tilewright.fpga.board import BLOCK_RAM, SDRAM, Point
from tilewright.fpga.flows.ecp5 import CONFIGURATION, CONSTRAINTS, ROUTED
from tilewright.fpga.points import point_of
from tilewright.isa.program import Program
from verification.netlists.compared import changed, differences, lost
from verification.netlists.netlist import NetlistLine, read_netlist
from verification.netlists.routed_runs import UNPACKED, cells_in, routed, routed_cells
from verification.netlists.runs import NetworkRecording, Pair, pair, placed_cells, replay
from verification.netlists.trellis import Configuration

#: Routing takes four CPU minutes, once for the sources.
pytestmark = [pytest.mark.cosim, pytest.mark.long]
#: A slow clock has fewer cycles for each byte of the line, a small memory fewer cells to place.
SLOW: dict[str, dict[str, int | float]] = {
    BLOCK_RAM: {"clock_mhz": 25, "memory_kib": 16},
    SDRAM: {"clock_mhz": 25, "baud": 3_000_000},
}


@pytest.fixture(scope="module", params=SLOW)
def point(request: pytest.FixtureRequest) -> Point:
    """Returns a point with each kind of memory."""
    return replace(point_of(BOARD, LEAST, memory=request.param), **SLOW[request.param])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(point: Point) -> Path:
    return routed(BOARD, LEAST, point)


@pytest.fixture(scope="module")
def both(point: Point) -> Iterator[Pair]:
    made = pair(BOARD, LEAST, routed_cells, memory=point.memory, **SLOW[point.memory])
    yield made
    made.netlist.close()
    made.rtl.close()


def test_bytes_and_cycles(point: Point, both: Pair, network: Program, recording: NetworkRecording) -> None:
    commands = both.netlist.sdram_commands
    check_bytes_and_cycles(both, network, recording)
    assert not both.netlist.sdram_fault
    assert bool(sum(commands.values())) == (point.memory == SDRAM)


def test_random_values_in_what_is_not_reset(both: Pair, recording: NetworkRecording) -> None:
    check_random_values(both, recording)


def test_wrong_bits_of_luts_are_found(both: Pair, recording: NetworkRecording) -> None:
    check_wrong_bits(both, recording)


def test_multipliers_without_their_register_are_found(
    folder: Path, tmp_path: Path, point: Point, both: Pair, recording: NetworkRecording
) -> None:
    text = (folder / CONFIGURATION).read_text(encoding="utf-8")
    assert "REG_OUTPUT_CLK CLK0" in text
    (tmp_path / CONFIGURATION).write_text(text.replace("REG_OUTPUT_CLK CLK0", "REG_OUTPUT_CLK NONE"), encoding="utf-8")
    shutil.copy(folder / CONSTRAINTS, tmp_path)
    hz, sdram = BOARD.clocks(point).output_hz, BOARD.sdram if point.memory == SDRAM else None
    with closing(NetlistLine(cells_in(tmp_path), clock_hz=hz, baud=both.baud, sdram=sdram)) as line:
        assert replay(line, recording, recording.answers) != recording.answers


def test_the_configuration_is_that_of_the_netlist(folder: Path, point: Point) -> None:
    module, written = read_netlist(folder, ROUTED), Configuration(folder / CONFIGURATION)
    assert len(module["cells"]) > 10_000
    assert list(differences(module, written)) == []
    assert list(changed(placed_cells(BOARD, LEAST, point), module)) == []


def test_the_bitstream_has_all_of_the_configuration(folder: Path, tmp_path: Path) -> None:
    assert list(lost(Configuration(folder / CONFIGURATION), Configuration(folder / UNPACKED))) == []
    shutil.copy(folder / UNPACKED, tmp_path / CONFIGURATION)
    flow = BOARD.flow()
    flow.pack(tmp_path)
    assert (tmp_path / flow.images[0]).read_bytes() == (folder / flow.images[0]).read_bytes()


@pytest.mark.parametrize(
    "setting, other",
    [("REGMODE_A NOREG", "REGMODE_A OUTREG"), ("MODE PDPW16KD", "MODE DP16KD"), ("REGSET RESET", "REGSET SET")],
)
def test_another_setting_is_a_difference(folder: Path, tmp_path: Path, setting: str, other: str) -> None:
    text = (folder / CONFIGURATION).read_text(encoding="utf-8")
    (tmp_path / CONFIGURATION).write_text(text.replace(setting, other, 1), encoding="utf-8")
    lines = list(differences(read_netlist(folder, ROUTED), Configuration(tmp_path / CONFIGURATION)))
    assert len(lines) == 1 and other.split()[0].split("_")[0] in lines[0]
