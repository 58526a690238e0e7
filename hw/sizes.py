"""Sizes that the RTL is made with, and models of area and energy count with: plain numbers, without Amaranth."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.timing import table_chunk_cycles


class Memories(NamedTuple):
    """Equal memories of a scratchpad: width in bits, words, and their number."""

    width: int
    depth: int
    number: int


def activations(config: NpuConfig) -> Memories:
    """ACT: banks, each in columns as wide as what LOAD writes at a time."""
    columns = max(1, config.block_in // config.bus_bytes)
    width = 8 * min(config.bus_bytes, config.block_in)
    return Memories(width, config.act_rows // config.act_banks, config.act_banks * columns)


def weights(config: NpuConfig) -> Memories:
    """WGT: the row of every output, in columns as wide as what LOAD writes at a time."""
    width = min(config.bus_bytes, config.block_in)  # bytes
    return Memories(8 * width, config.wgt_tiles, config.block_out * (config.block_in // width))


def accumulators(config: NpuConfig) -> Memories:
    """ACC: physical rows of max(block_in, block_out) lanes in columns of those of DEPTHWISE."""
    columns = max(config.block_in, config.block_out) // config.dw_lanes
    rows = config.acc_rows * config.block_out // (config.dw_lanes * columns)
    return Memories(32 * config.dw_lanes, rows, columns)


def parameters(config: NpuConfig) -> Memories:
    """PRM: bias and scale apart, in columns of the words of one kind in a chunk."""
    width = max(1, config.bus_bytes // 8)  # words
    columns = max(1, config.vector_lanes // width)
    groups = config.block_in // width // columns  # of a row in each memory
    return Memories(32 * width, config.prm_rows * groups, 2 * columns)


def tables(config: NpuConfig) -> Memories:
    """LUT: a copy per lane, in words of at most TABLE_WORD_BYTES; no memory without tables."""
    words = table_chunk_cycles(config)  # of a chunk
    depth = config.lut_tables * 256 // config.bus_bytes * words
    return Memories(config.axi_data_bits // words, depth, config.vector_lanes if config.table_lookup else 0)


#: The scratchpads by name, as the instruction set has them.
SCRATCHPADS: dict[str, Callable[[NpuConfig], Memories]] = {
    "act": activations, "wgt": weights, "acc": accumulators, "prm": parameters, "lut": tables,
}  # fmt: skip


def pc_bits(config: NpuConfig) -> int:
    """Returns the bits of an instruction's index: a program is as long as a region at most."""
    return config.offset_bits - (INSTRUCTION_BYTES - 1).bit_length()
