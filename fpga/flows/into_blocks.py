"""Chooses memories to put into block RAMs that would be free, where LUTs are dearer. On Gowin a distributed RAM of 16
rows of 4 bits takes the room of 8 LUTs and 6 flip-flops, and each bit read into a register one more of both.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.fpga.flows.into_luts import Memory

#: Rows, and bits of a row, of a block RAM with a port for writes and one for reads; and of a tile of LUTs.
BLOCK_ROWS, BLOCK_BITS = 512, 36
TILE_ROWS, TILE_BITS, TILE_SITES = 16, 4, 8


def blocks(memory: Memory) -> int:
    """Block RAMs the memory would take."""
    return -(-memory.row_bits // BLOCK_BITS)


def sites(memory: Memory) -> int:
    """LUT sites of the memory as distributed RAM, with the register behind it."""
    tiles = -(-memory.rows // TILE_ROWS) * -(-memory.row_bits // TILE_BITS)
    return tiles * TILE_SITES + memory.row_bits


def choose(memories: Sequence[Memory], free: int) -> tuple[Memory, ...]:
    """Chooses memories that could be in block RAM and are not, those that save most for each of `free` blocks."""
    could = [m for m in memories if m.clocked and not m.blocks and m.rows <= BLOCK_ROWS]
    chosen = []
    for memory in sorted(could, key=lambda m: (-sites(m) / blocks(m), m.name)):
        if blocks(memory) <= free:
            chosen.append(memory)
            free -= blocks(memory)
    return tuple(chosen)
