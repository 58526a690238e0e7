"""Tile sizes of convolutions and matrix products: the room a tile needs on a machine, and its estimated cycles.

The output is cut into bands of rows (and columns where one row is too long) and chunks of channel blocks; weights of a
chunk come in pieces of input-channel blocks so that loads overlap products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.emit.plan import PlanTable
from tilewright.compiler.npu.layers.rest import Rest
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.compiler.npu.layers.tiling import READ_OVERHEAD, Bus, bands, even_parts
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.packing import fits
from tilewright.isa.timing import MemoryTiming

#: Estimated cycles of a part of a tile besides its work: starting engines one after another.
_PART_OVERHEAD = 12
#: Bytes of the instructions of a part of a tile: LOAD, GEMM, VECTOR, STORE.
_PART_BYTES = 64
#: Cycles of an instruction for a single tile besides its products.
_REST_OVERHEAD = 10
#: Rows of bands that hold only a part of each row, and the parts that rows are cut into.
_SHORT_BANDS = {1, 2, 3, 4, 6, 8}
_ROW_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)
_PIECE_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Phase(Struct):
    """One ordinary convolution: the input row of tap ky at output index q is q*stride - pad + ky*dilation.

    Attributes:
        weights: int8 [sets, O, C/group, kh, kw]; the sets add up (several if one does not hold weight minus zero
            point).
        rest: further weights to add, as single tiles; None without any.
        packed: True if the weights are loaded two a byte.
        pad, stride, dilation: (rows, columns).
        out_step, out_start: output row is q*out_step + out_start (transposed convolutions interleave phases).
    """

    weights: np.ndarray
    pad: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    out_step: tuple[int, int] = (1, 1)
    out_start: tuple[int, int] = (0, 0)
    rest: Rest | None = None
    packed: bool = False

    @staticmethod
    def of(sets: np.ndarray, group: int, config: NpuConfig, pad: tuple[int, int], **geometry: Any) -> Phase:
        """Returns a phase of sets of weights, with all but the first as a rest if they are nearly all zeros.

        Args:
            sets: int8 [sets, O, C/group, kh, kw].
            group: groups of channels.
            config: the machine.
            pad: (rows, columns).
            geometry: `stride`, `dilation`, `out_step` and `out_start`.
        """
        rest = Rest.of(sets[1:], group, config) if len(sets) > 1 else None
        if rest is None or not rest.sparse:
            return Phase(sets, pad, packed=bool(config.packed_weights) and fits(sets), **geometry)
        return Phase(sets[:1], pad, rest=rest, **geometry)

    @property
    def rest_tiles(self) -> int:
        """The number of tiles of the rest."""
        return 0 if self.rest is None else len(self.rest.tiles)

    @property
    def kernel(self) -> tuple[int, int]:
        """The rows and columns of the kernel."""
        return self.weights.shape[3], self.weights.shape[4]

    @property
    def window(self) -> SlidingWindow:
        """The window that slides over the input."""
        return SlidingWindow(self.kernel, self.pad, self.stride, self.dilation)

    def outputs(self, axis: int, size: int) -> int:
        """Returns the number of values of q along `axis` for an output of `size`."""
        return -(-(size - self.out_start[axis]) // self.out_step[axis])


def longest(phases: list[Phase], y: View) -> tuple[int, int]:
    """Returns the rows and columns of q in the longest phase, which all phases walk together."""
    rows, columns = (max(p.outputs(axis, size) for p in phases) for axis, size in ((0, y.h), (1, y.w)))
    return rows, columns


class ConvTiling(NamedTuple):
    """Tiles of a convolution.

    Attributes:
        lines, columns: rows and columns of a band, in q.
        blocks: channel blocks of a chunk.
        piece: input blocks of a piece of weights.
        bands_outer: order of the two outer loops. Bands outside: an input tile stays, weights pass by; chunks outside:
            weights stay, input passes by.
        keep_input: True if input tiles stay while all chunks pass.
    """

    lines: int
    columns: int
    blocks: int
    piece: int
    bands_outer: bool
    keep_input: bool

    def __str__(self) -> str:
        order = "bands, chunks" if self.bands_outer else "chunks, bands"
        return f"{self.lines}x{self.columns} px, {self.blocks} blocks, {self.piece} in ({order})"


class ConvShape:
    """Sizes of a convolution on a machine, and the rows its tiles need.

    Args:
        config: the machine.
        phases: the phases.
        group: groups of channels.
        x, y: views of input and output.
        span: rows of q (first, end) that are made, None for all.

    Attributes:
        x, y: views of the values' first byte.
        bytes: bytes of a value.
    """

    def __init__(
        self, config: NpuConfig, phases: list[Phase], group: int, x: View, y: View, span: tuple[int, int] | None = None
    ) -> None:
        self.config, self.phases, self.group = config, phases, group
        self.x, self.y, self.bytes = x.first_bytes, y.first_bytes, y.bytes
        self.images = y.n if span is None else 1
        self.q = longest(phases, y)
        self.first = 0
        if span is not None:
            self.first, self.q = span[0], (span[1] - span[0], self.q[1])
        self.step = phases[0].out_step
        self.wide = max(1, config.block_out // config.block_in)  # channel blocks per GEMM row
        self.narrow = max(1, config.block_in // config.block_out)  # GEMM rows per channel block
        self.unit = self.wide  # channel blocks a chunk is a multiple of
        self.grouped = group > 1
        self.sets = max(p.weights.shape[0] for p in phases)
        self.taps = max(p.kernel[0] * p.kernel[1] for p in phases) * self.sets
        #: Bytes of a tile of weights in memory.
        self.tile_bytes = config.packed_tile_bytes if all(p.packed for p in phases) else config.tile_bytes
        self.rest = sum(p.rest_tiles for p in phases)
        self.rest_sets = max((p.rest.sets for p in phases if p.rest is not None), default=0)
        self.in_blocks = self.x.cb
        if self.grouped:
            self.in_blocks = max(self.input_range(b)[1] for b in range(0, y.cb, self.unit))
        #: A result of 16 bits takes a step for each sum, and an instruction for each byte.
        self.vector_steps = self.bytes**2
        self._windows = [p.window for p in phases]

    def input_range(self, block: int) -> tuple[int, int]:
        """Returns the (first, count) of the input blocks that the unit of output blocks at `block` needs."""
        if not self.grouped:
            return 0, self.x.cb
        bi = self.config.block_in
        outs, ins = self.y.c // self.group, self.x.c // self.group
        first = (block * bi) // outs * ins // bi
        last_out = min((block + self.unit) * bi, self.y.c) - 1
        last = ((last_out // outs + 1) * ins - 1) // bi
        return first, last - first + 1

    def rows(self, blocks: int) -> int:
        """Returns the GEMM output blocks of `blocks` channel blocks."""
        return -(-blocks // self.wide) * self.narrow

    def input_span(self, first: int, end: int, axis: int) -> tuple[int, int]:
        """Returns the input rows (axis 0) or columns (1) that q from `first` to before `end` need in any phase."""
        spans = [window.span(first, end, axis) for window in self._windows]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def input_sizes(self, lengths: np.ndarray, axis: int) -> np.ndarray:
        """Returns the input rows (axis 0) or columns (1) that `lengths` values of q need, int64 as `lengths`."""
        ends: np.ndarray = np.max([window.span(0, lengths, axis)[1] for window in self._windows], axis=0)
        return ends - min(window.span(0, 1, axis)[0] for window in self._windows)


def conv_plans(
    s: ConvShape,
    budget: int,
    *,
    acc_rows: int,
    resident_in: bool,
    resident_out: bool,
    load_operand: bool,
    every: bool,
    memory: MemoryTiming,
    row_sums: bool = False,
) -> PlanTable[ConvTiling]:
    """Returns the plans that fit `budget` ACT rows, each estimated to take fewer cycles than those before it.

    Args:
        s: sizes of the layer.
        budget: rows of ACT.
        acc_rows: rows of ACC.
        resident_in, resident_out: True if input and output are in ACT already.
        load_operand: True if the second operand of a fused Add comes from external memory.
        every: True to return all plans that fit.
        memory: timing of the memory that the program will run with.
        row_sums: True if a tile has sums of its rows (`RowSums`).
    """
    config = s.config
    n, blocks, in_blocks, phases = s.images, s.y.cb, s.in_blocks, len(s.phases)
    bus = Bus.of(config, memory)
    reading, writing, latency = bus
    out_size = s.bytes * s.q[0] * s.step[0] * s.y.w * blocks * config.block_in
    weight_tiles = s.rows(blocks) * s.taps * in_blocks * phases + s.rest
    fits_weights = weight_tiles <= config.wgt_tiles

    # Bands and chunks: what does not depend on pieces and order.
    lines, columns, chunk, rows = _bands_and_chunks(s, every)
    pixels, out_pixels = lines * columns, lines * columns * math.prod(s.step)
    count_bands = -(-s.q[0] // lines) * -(-s.q[1] // columns)
    chunks = -(-blocks // chunk)
    tiles = count_bands * chunks * n * phases
    depth = np.where(tiles > 1, 2, 1)
    acc = s.bytes * pixels * (rows + row_sums * s.narrow)
    fits = (chunk <= config.prm_rows) & (acc <= acc_rows // depth)
    lines, columns, chunk, rows, pixels, out_pixels, count_bands, chunks, tiles, depth, acc = (
        column[fits][:, None, None]
        for column in (lines, columns, chunk, rows, pixels, out_pixels, count_bands, chunks, tiles, depth, acc)
    )

    # Pieces of weights, and the order of the two outer loops.
    piece = np.array([*_pieces(in_blocks)])[:, None]
    pieces = -(-in_blocks // piece)
    bands_outer = np.array([True, False])
    keep = bands_outer | (pieces == 1)
    several = pieces * chunks * phases > 1
    piece_tiles = rows * s.taps * piece
    rest = np.minimum(s.rest, piece_tiles * s.rest_sets)  # at most, whatever part of the weights it is
    window = s.bytes * s.input_sizes(lines, 0) * s.input_sizes(columns, 1)
    in_rows = np.where(keep, in_blocks, piece) * (0 if resident_in else window)
    out_rows = np.zeros_like(chunk) if resident_out else s.bytes * out_pixels * chunk
    add_rows = out_pixels * chunk if load_operand else 2 * pixels * row_sums
    in_depth = np.where(keep, depth, 2)  # pieces follow each other even within one tile
    pools = in_depth * in_rows, depth * out_rows, depth * add_rows
    held = piece_tiles + rest <= config.wgt_tiles // np.where(several, 2, 1)
    if not held.any():  # no piece can be loaded while the array works on another
        held = piece_tiles + rest <= config.wgt_tiles
    fits = held & (sum(pools) <= budget)
    if every:  # where there is one band or one chunk, instructions may be those of the order before
        fits &= bands_outer | ~((count_bands * n == 1) | (chunks == 1)) | ~(resident_in | keep)

    # Cycles.
    chunk_tiles = rows * s.taps * in_blocks * phases + s.rest
    weights_pass = (not fits_weights) & ((chunk_tiles > config.wgt_tiles) | bands_outer)
    weight_bytes = weight_tiles * s.tile_bytes * np.where(weights_pass, count_bands * n, 1)
    in_once = 0 if resident_in else count_bands * n * window * s.x.cb * config.block_in
    in_bytes = in_once * np.where(bands_outer, 1, chunks)
    read = weight_bytes + in_bytes + (out_size if load_operand else 0) + blocks * config.prm_row_bytes
    products = s.bytes * n * s.q[0] * s.q[1] * rows * chunks * in_blocks * s.taps * phases
    products = products + n * count_bands * (pixels + _REST_OVERHEAD) * s.rest
    vectors = n * s.q[0] * s.q[1] * blocks * phases * s.vector_steps
    written = 0 if resident_out else out_size
    parts = tiles * pieces
    fill = piece_tiles * (s.tile_bytes / reading)
    fill = fill + (0 if resident_in else window * piece * config.block_in / reading)
    # What is loaded first is waited for; but LOAD works from then on, and leaves only the last products behind it.
    made = fill + np.maximum(products, max(vectors, written / writing)) + parts * _PART_OVERHEAD
    loaded = (read + parts * _PART_BYTES) / reading * READ_OVERHEAD + products / parts
    end = acc + (0 if resident_out else out_rows * config.block_in / writing)
    cycles = latency + np.maximum(made, loaded) + end

    tiling = lines, columns, chunk, piece, bands_outer, keep
    found = PlanTable.of(ConvTiling, tiling, pools, cycles, fits)
    return found if every else found.cheaper_and_cheaper()


def _bands_and_chunks(s: ConvShape, every: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns all pairs of a band and a chunk, largest first, int64 [bands x chunks] each.

    Returns:
        (rows and columns of a band, channel blocks of a chunk, GEMM output blocks of the chunk).
    """
    short = {lines for lines in even_parts(s.q[0]) if lines in _SHORT_BANDS}
    cuts = list(bands(*s.q, short, _ROW_PARTS))
    longer = -(-3 * s.q[0] // 4)
    if every and longer not in even_parts(s.q[0]):  # and a last band with less to do for VECTOR alone
        cuts.append((longer, s.q[1]))
    chunks = [*_chunks(s.y.cb, s.unit, s.grouped)]
    lines, columns = np.repeat(np.array(cuts), len(chunks), axis=0).T
    chunk, rows = (np.tile(sizes, len(cuts)) for sizes in (chunks, [s.rows(blocks) for blocks in chunks]))
    return lines, columns, chunk, rows


def _chunks(blocks: int, unit: int, grouped: bool) -> Iterator[int]:
    """Yields the channel blocks of a chunk, largest first: multiples of `unit`, or a unit if groups have own inputs."""
    if grouped:
        yield unit
        return
    seen = set()
    for parts in range(1, blocks + 1):
        chunk = math.ceil(math.ceil(blocks / parts) / unit) * unit
        if chunk not in seen:
            seen.add(chunk)
            yield chunk


def _pieces(blocks: int) -> Iterator[int]:
    """Yields the input blocks of a piece of weights, largest first."""
    seen = set()
    for parts in _PIECE_PARTS:
        piece = max(1, -(-blocks // parts))
        if piece not in seen:
            seen.add(piece)
            yield piece
