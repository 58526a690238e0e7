"""Tile sizes of convolutions and matrix products: what a tile needs on a machine, and how many cycles it may take.

The output is cut into bands of rows (and columns where one row is too long) and chunks of channel blocks; weights of a
chunk come in pieces of input-channel blocks so that loads overlap products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.layers.rest import Rest
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.compiler.npu.layers.tiling import Bus, bands, even_parts
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming

#: Estimated cycles one tile costs besides its work: starting four engines one after another.
_TILE_OVERHEAD = 40
#: Cycles that an instruction for a single tile costs besides its products.
_REST_OVERHEAD = 10
#: Rows of bands that hold only a part of each row, and the parts that rows are cut into.
_SHORT_BANDS = {1, 2, 3, 4, 6, 8}
_ROW_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)
_PIECE_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass
class Phase:
    """One regular convolution: input row of tap ky at output index q is q*stride - pad + ky*dilation.

    Attributes:
        weights: int8 [sets, O, C/group, kh, kw]; the sets add up (a zero point that does not fit one set).
        rest: what comes on top of them.
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

    @staticmethod
    def of(sets: np.ndarray, group: int, config: NpuConfig, pad: tuple[int, int], **geometry: Any) -> Phase:
        """A phase of sets of weights, all but the first as a rest where they are nearly all zeros.

        Args:
            geometry: `stride`, `dilation`, `out_step` and `out_start`.
        """
        rest = Rest.of(sets[1:], group, config) if len(sets) > 1 else None
        if rest is None or not rest.sparse:
            return Phase(sets, pad, **geometry)
        return Phase(sets[:1], pad, rest=rest, **geometry)

    @property
    def rest_tiles(self) -> int:
        """Tiles of the rest."""
        return 0 if self.rest is None else len(self.rest.tiles)

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weights.shape[3], self.weights.shape[4]

    @property
    def window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, self.pad, self.stride, self.dilation)

    def outputs(self, axis: int, size: int) -> int:
        """Values of q along `axis` for an output of `size`."""
        return -(-(size - self.out_start[axis]) // self.out_step[axis])


def longest(phases: list[Phase], y: View) -> tuple[int, int]:
    """Values of q along rows and columns that all phases together walk: those of the longest."""
    rows, columns = (max(p.outputs(axis, size) for p in phases) for axis, size in ((0, y.h), (1, y.w)))
    return rows, columns


class ConvTiling(NamedTuple):
    """Tiles of a convolution: band rows and columns (in q), channel blocks per chunk, input blocks per weight piece.

    Attributes:
        bands_outer: order of the two outer loops. Bands outside: an input tile stays, weights pass by; chunks outside:
            weights stay, input passes by.
        keep_input: input tiles stay while all chunks pass.
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
        x, y: input and output.
        span: rows of q (first, end) that are made, None for all.

    Attributes:
        x, y: of values of several bytes, the channel blocks of the first one.
        bytes: of a value.
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
        self.rest = sum(p.rest_tiles for p in phases)
        self.rest_sets = max((p.rest.sets for p in phases if p.rest is not None), default=0)
        self.in_blocks = self.x.cb
        if self.grouped:
            self.in_blocks = max(self.input_range(b)[1] for b in range(0, y.cb, self.unit))
        #: A result of 16 bits takes a step for each sum, and an instruction for each byte.
        self.vector_steps = self.bytes**2
        self._windows = [p.window for p in phases]

    def input_range(self, block: int) -> tuple[int, int]:
        """(first, count) of the input blocks that the unit of output blocks at `block` needs."""
        if not self.grouped:
            return 0, self.x.cb
        bi = self.config.block_in
        outs, ins = self.y.c // self.group, self.x.c // self.group
        first = (block * bi) // outs * ins // bi
        last_out = min((block + self.unit) * bi, self.y.c) - 1
        last = ((last_out // outs + 1) * ins - 1) // bi
        return first, last - first + 1

    def rows(self, blocks: int) -> int:
        """GEMM output blocks for `blocks` channel blocks."""
        return -(-blocks // self.wide) * self.narrow

    def input_span(self, first: int, end: int, axis: int) -> tuple[int, int]:
        """Input rows (axis 0) or columns (1) that q from `first` to before `end` need in any phase."""
        spans = [window.span(first, end, axis) for window in self._windows]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def input_size(self, lines: int, columns: int) -> int:
        """Input vectors per channel block that a band of q needs."""
        (top, bottom), (left, right) = self.input_span(0, lines, 0), self.input_span(0, columns, 1)
        return (bottom - top) * (right - left)


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
) -> Iterator[TilePlan[ConvTiling]]:
    """Plans that fit `budget` ACT rows: each one estimated to take fewer cycles than those before it, or all of them.

    Args:
        acc_rows: rows of ACC.
        resident_in, resident_out: input and output lie in ACT already.
        load_operand: the second operand of a fused Add comes from memory.
        memory: as the program will find it.
        row_sums: a tile has sums of its rows (`RowSums`).
    """
    best = math.inf
    config = s.config
    n, blocks = s.images, s.y.cb
    out_size = s.bytes * s.q[0] * s.step[0] * s.y.w * blocks * config.block_in
    bus = Bus.of(config, memory)
    reading, writing, latency = bus
    tile_cycles = config.tile_bytes / reading
    in_blocks = s.in_blocks
    weight_tiles = s.rows(blocks) * s.taps * in_blocks * len(s.phases) + s.rest
    weight_once = weight_tiles * config.tile_bytes
    fits_weights = weight_tiles <= config.wgt_tiles
    out_bytes = 0 if resident_out else out_size
    pieces_tried = list(_pieces(in_blocks))
    short = {lines for lines in even_parts(s.q[0]) if lines in _SHORT_BANDS}
    cuts = list(bands(*s.q, short, _ROW_PARTS))
    longer = -(-3 * s.q[0] // 4)
    if every and longer not in even_parts(s.q[0]):  # and a last band with less to do for VECTOR alone
        cuts.append((longer, s.q[1]))
    for lines, columns in cuts:
        pixels = lines * columns
        window = s.bytes * s.input_size(lines, columns)
        count_bands = -(-s.q[0] // lines) * -(-s.q[1] // columns)
        for chunk in _chunks(blocks, s.unit, s.grouped):
            chunks = -(-blocks // chunk)
            acc = s.bytes * pixels * (s.rows(chunk) + row_sums * s.narrow)
            if chunk > config.prm_rows:
                continue
            tiles_total = count_bands * chunks * n * len(s.phases)
            if acc > acc_rows // (2 if tiles_total > 1 else 1):
                continue
            out_rows = 0 if resident_out else s.bytes * pixels * math.prod(s.step) * chunk
            add_rows = pixels * math.prod(s.step) * chunk if load_operand else 2 * pixels * row_sums
            chunk_tiles = s.rows(chunk) * s.taps * in_blocks * len(s.phases) + s.rest
            weights_pass = not fits_weights and chunk_tiles > config.wgt_tiles
            in_once = 0 if resident_in else count_bands * n * window * s.x.cb * config.block_in
            others = (out_size if load_operand else 0) + blocks * config.prm_row_bytes
            products = s.bytes * n * s.q[0] * s.q[1] * s.rows(chunk) * chunks * in_blocks * s.taps * len(s.phases)
            products += n * count_bands * (pixels + _REST_OVERHEAD) * s.rest
            vectors = n * s.q[0] * s.q[1] * blocks * len(s.phases) * s.vector_steps
            end = acc + (0 if resident_out else out_rows * config.block_in / writing)
            # What no choice of pieces and order can be below: most candidates need no closer look.
            least_bytes = weight_once * (count_bands * n if weights_pass else 1) + in_once + others
            floor = bus.busiest(products, vectors, least_bytes, out_bytes) + latency + end
            if not every and floor + tiles_total * _TILE_OVERHEAD * 0.3 >= best:
                continue
            for piece in pieces_tried:
                pieces = -(-in_blocks // piece)
                if not every and floor + tiles_total * pieces * _TILE_OVERHEAD * 0.3 >= best:
                    continue
                piece_tiles = s.rows(chunk) * s.taps * piece
                several = pieces * chunks * len(s.phases) > 1
                rest = min(s.rest, piece_tiles * s.rest_sets)  # at most, whatever part of the weights it is
                if piece_tiles + rest > (config.wgt_tiles // 2 if several else config.wgt_tiles):
                    continue
                one_order = count_bands * n == 1 or chunks == 1
                for bands_outer in (True, False):
                    keep = bands_outer or pieces == 1
                    if every and not bands_outer and one_order and (resident_in or keep):
                        continue  # instructions are those of the order before
                    in_rows = 0 if resident_in else window * (in_blocks if keep else piece)
                    depth = 2 if tiles_total > 1 else 1
                    in_depth = depth if keep else 2  # pieces follow each other even within one tile
                    if in_depth * in_rows + depth * (out_rows + add_rows) > budget:
                        continue
                    # Traffic.
                    weight_bytes = weight_once
                    if weights_pass or (bands_outer and not fits_weights):
                        weight_bytes *= count_bands * n
                    in_bytes = in_once * (1 if bands_outer else chunks)
                    read = weight_bytes + in_bytes + others
                    start = latency + piece_tiles * tile_cycles
                    start += 0 if resident_in else window * piece * config.block_in / reading
                    work = bus.busiest(products, vectors, read, out_bytes)
                    cycles = work + start + end + tiles_total * pieces * _TILE_OVERHEAD * 0.3
                    if every or cycles < best:
                        best = cycles
                        pools = Pools(in_depth * in_rows, depth * out_rows, depth * add_rows)
                        yield TilePlan(ConvTiling(lines, columns, chunk, piece, bands_outer, keep), pools, cycles)


def _chunks(blocks: int, unit: int, grouped: bool) -> Iterator[int]:
    """Channel blocks per chunk, largest first: multiples of `unit`; one unit where groups have their own input."""
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
    """Input blocks per piece of weights, largest first."""
    seen = set()
    for parts in _PIECE_PARTS:
        piece = max(1, -(-blocks // parts))
        if piece not in seen:
            seen.add(piece)
            yield piece
