"""Block memories of a configuration: the shapes are the RTL's own, the choice of cells is Yosys' `memory_libmap`.

`memory_libmap` takes, for every memory, the mapping of least cost: cost of a cell times cells, and half a unit for
every bit that a multiplexer behind memories stacked in depth selects.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.fpga.cells import ECP5, GOWIN
from tilewright.hw.sizes import SCRATCHPADS
from tilewright.isa.config import NpuConfig

_MUX_COST = 0.5  # a bit of a multiplexer, in units of memory_libmap


@dataclass(frozen=True)
class Cell:
    """A memory cell of a family: width in bits, words, cost in memory_libmap; block memories or LUTs it takes."""

    width: int
    words: int
    cost: float
    blocks: int = 0
    luts: int = 0


def _block(sizes: dict[int, int], cost: float, blocks: int = 1) -> list[Cell]:
    return [Cell(width, words, cost, blocks=blocks) for width, words in sizes.items()]


_16K = {36: 512, 18: 1024, 9: 2048, 4: 4096, 2: 8192, 1: 16384}
_32K = {72: 512, 36: 1024, 18: 2048, 9: 4096, 4: 8192, 2: 16384, 1: 32768}
_XILINX = [*_block(_16K, 129), *_block(_32K, 257, 2)]
CELLS: dict[str, list[Cell]] = {
    "ecp5": [*_block(_16K, 128), Cell(4, 16, 4, luts=ECP5.luts["TRELLIS_DPR16X4"])],
    "gowin": [*_block(_16K, 128), Cell(4, 16, 4, luts=GOWIN.luts["RAM16SDP4"])],
    "xc7": [*_XILINX, Cell(6, 32, 8, luts=4), Cell(3, 64, 8, luts=4)],
    "xcup": [*_XILINX, Cell(14, 32, 16, luts=8), Cell(7, 64, 16, luts=8)],
}


def lut_cell(family: str) -> Cell:
    """The family's LUT memory cell with the fewest words."""
    return min((cell for cell in CELLS[family] if cell.luts), key=lambda cell: cell.words)


@dataclass(frozen=True)
class Memories:
    """Cells of the scratchpads: block memories, cells of LUT memory, bits of multiplexers behind stacked cells."""

    blocks: int
    lut_cells: int
    mux_bits: int


def scratchpad_shapes(config: NpuConfig, scratchpads: Iterable[str] = SCRATCHPADS) -> list[tuple[int, int]]:
    """(width in bits, words) of every memory that the named scratchpads are made of, those of the RTL."""
    shapes = (SCRATCHPADS[name](config) for name in scratchpads)
    return [(shape.width, shape.depth) for shape in shapes for _ in range(shape.number)]


def place(width: int, words: int, family: str, *, blocks: bool = False) -> Memories:
    """Chooses the cheapest cells for one memory; with `blocks` among block memories only."""

    def cost(cell: Cell) -> tuple[float, int]:
        across, deep = -(-width // cell.width), -(-words // cell.words)
        return cell.cost * across * deep + _MUX_COST * width * (deep - 1), deep

    cell = min((cell for cell in CELLS[family] if cell.blocks or not blocks), key=cost)
    across, deep = -(-width // cell.width), -(-words // cell.words)
    return Memories(across * deep * cell.blocks, across * deep * (cell.luts > 0), width * (deep - 1))


@functools.lru_cache(maxsize=1024)
def scratchpad_memories(config: NpuConfig, family: str, scratchpads: Iterable[str] = tuple(SCRATCHPADS)) -> Memories:
    """The memory cells of some scratchpads together, of all by default."""
    placed = [place(width, words, family) for width, words in scratchpad_shapes(config, scratchpads)]
    return Memories(
        sum(m.blocks for m in placed), sum(m.lut_cells for m in placed), sum(m.mux_bits for m in placed)
    )  # fmt: skip
