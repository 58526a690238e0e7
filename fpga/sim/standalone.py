"""The SoC with a core, Verilated, with its flash memory and a serial line."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tilewright.common.rtl_sources import rtl_sources
from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.board_top import board_memory
from tilewright.fpga.sim import sdram as sdram_model
from tilewright.fpga.sim.line import MemoryEdges, SimulatedLine
from tilewright.fpga.sim.sdram import with_sdram_text
from tilewright.fpga.standalone import core
from tilewright.fpga.standalone.boards import StandaloneBoard, standalone_soc
from tilewright.hw.verilog import component_text
from tilewright.isa.config import NpuConfig

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("isa/link", "fpga", "fpga/bridge", "fpga/sdram", "fpga/standalone")


def standalone_line(board: StandaloneBoard, config: NpuConfig, point: Point) -> SimulatedLine:
    """The SoC of a board's bitstream, without PLL and pins. Its flash memory is erased.

    Raises:
        BuildError: it cannot be built. FpgaError: the core is not installed, or the PLL does not make the clock.
    """
    pll = board.clocks(point)
    clock_hz = pll.output_hz
    chip = board.sdram if point.memory == SDRAM else None

    def text() -> str:
        soc = standalone_soc(board, config, point, board_memory(board, config, point, pll), clock_hz)
        made = component_text(soc, "soc") if chip is None else with_sdram_text(soc, chip, pll.memory_hz, "soc")
        return made + "\n" + core.verilog()

    core.verilog()  # raises its error before anything is built
    sources = [*rtl_sources(), *(p for folder in _FOLDERS for p in (_ROOT / folder).glob("*.py"))]
    memory_name = f"{point.memory}{point.memory_kib}-{pll.memory_hz}"
    boot = hashlib.sha256(board.boot).hexdigest()[:16]
    stem = f"alone-{config.fingerprint}-{memory_name}-{clock_hz}-{point.baud}-{boot}"
    title = f"the simulation of a SoC with a core and {config.name!r}"
    sources += [Path(sdram_model.__file__), sdram_model.MODEL]
    edges = MemoryEdges.of(clock_hz, pll.memory_hz)
    return SimulatedLine(stem, title, "soc", text, sorted(sources), clock_hz=clock_hz, baud=point.baud, memory=edges)
