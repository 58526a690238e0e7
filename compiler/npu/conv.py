"""Convolutions and matrix products: tiling and emission.

The output is cut into bands of rows (and columns where one row is too long) and chunks of channel blocks; weights of a
chunk come in pieces of input-channel blocks so that loads overlap products. Two orders: bands outside (an input tile
stays, weights pass by) or chunks outside (weights stay, input passes by); what is still in a scratchpad is not loaded
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from compiler.npu.context import Context, Part, Pools, Tile, Window
from compiler.npu.emitter import Loop, Place
from compiler.npu.layers import ConvLayer, Phase
from compiler.npu.tail import emit_accumulators, read_add_operand
from isa.config import NpuConfig
from isa.instructions import Memory
from isa.program import ARENA_REGION

#: Estimated cycles one tile costs besides its work: starting four engines one after another.
_TILE_OVERHEAD = 40
_LATENCY = 100


class ConvPlan(NamedTuple):
    """Tile sizes: band rows and columns (in q), channel blocks per chunk, input blocks per weight piece.

    Attributes:
        bands_outer: order of the two outer loops.
        keep_input: input tiles stay while all chunks pass.
    """

    lines: int
    columns: int
    blocks: int
    piece: int
    bands_outer: bool
    keep_input: bool
    pools: Pools
    cycles: float = 0.0

    def __str__(self) -> str:
        order = "bands, chunks" if self.bands_outer else "chunks, bands"
        return f"{self.lines}x{self.columns} px, {self.blocks} blocks, {self.piece} in ({order})"


class _Shape:
    """Sizes of a layer on a machine, and the rows a tile needs."""

    def __init__(self, config: NpuConfig, layer: ConvLayer, span: tuple[int, int] | None = None) -> None:
        self.config = config
        self.layer = layer
        self.x, self.y = layer.inputs[0], layer.output
        self.phases = layer.phases
        self.q = tuple(max(p.outputs(a, (self.y.h, self.y.w)[a]) for p in self.phases) for a in (0, 1))
        self.first = 0
        if span is not None:
            self.first, self.q = span[0], (span[1] - span[0], self.q[1])
        self.step = self.phases[0].out_step
        self.wide = max(1, config.block_out // config.block_in)  # channel blocks per GEMM row
        self.narrow = max(1, config.block_in // config.block_out)  # GEMM rows per channel block
        self.unit = self.wide  # channel blocks a chunk is a multiple of
        self.grouped = layer.group > 1
        self.sets = max(p.weights.shape[0] for p in self.phases)
        self.taps = max(p.kernel[0] * p.kernel[1] for p in self.phases) * self.sets
        self.in_blocks = max(self.input_range(b)[1] for b in range(0, self.y.cb, self.unit))

    def input_range(self, block: int) -> tuple[int, int]:
        """(first, count) of the input blocks that the unit of output blocks at `block` needs."""
        if not self.grouped:
            return 0, self.x.cb
        bi = self.config.block_in
        outs, ins = self.y.c // self.layer.group, self.x.c // self.layer.group
        first = (block * bi) // outs * ins // bi
        last_out = min((block + self.unit) * bi, self.y.c) - 1
        last = ((last_out // outs + 1) * ins - 1) // bi
        return first, last - first + 1

    def rows(self, blocks: int) -> int:
        """GEMM output blocks for `blocks` channel blocks."""
        return -(-blocks // self.wide) * self.narrow

    def window(self, lines: int, columns: int) -> tuple[int, int]:
        """Input rows and columns a band of q needs."""
        size = []
        for axis, count in ((0, lines), (1, columns)):
            low = min(-p.pad[axis] for p in self.phases)
            high = max((count - 1) * p.stride[axis] - p.pad[axis] + p.extent[axis] for p in self.phases)
            size.append(high - low)
        return size[0], size[1]

    def input_box(self, q0: int, q1: int, axis: int) -> tuple[int, int]:
        low = min(q0 * p.stride[axis] - p.pad[axis] for p in self.phases)
        high = max((q1 - 1) * p.stride[axis] - p.pad[axis] + p.extent[axis] for p in self.phases)
        return low, high


def conv_plans(
    context: Context, layer: ConvLayer, budget: int, span: tuple[int, int] | None = None, every: bool = False
) -> Iterator[ConvPlan]:
    """Plans that fit `budget` ACT rows, for output rows `span` (default all): each one estimated to take fewer cycles
    than those before it, or all of them."""
    best = math.inf
    config = context.config
    s = _Shape(config, layer, span)
    resident_in, resident_out = context.on_chip(layer.inputs[0]), context.on_chip(layer.output)
    other = layer.post.add.other if layer.post.add is not None else None
    load_add = other is not None and not context.on_chip(other)
    n, blocks = (s.y.n if span is None else 1), s.y.cb
    out_size = s.q[0] * s.step[0] * s.y.w * blocks * config.block_in
    bus = config.bus_bytes
    tile_cycles = config.tile_bytes / bus
    in_blocks = s.in_blocks
    weight_tiles = s.rows(blocks) * s.taps * in_blocks * len(s.phases)
    fits_weights = weight_tiles <= config.wgt_tiles
    for lines, columns in _bands(*s.q):
        pixels = lines * columns
        window = math.prod(s.window(lines, columns))
        bands = -(-s.q[0] // lines) * -(-s.q[1] // columns)
        for chunk in _chunks(blocks, s.unit, s.grouped):
            chunks = -(-blocks // chunk)
            acc = pixels * s.rows(chunk)
            if chunk > config.prm_rows:
                continue
            tiles_total = bands * chunks * n * len(s.phases)
            if acc > (config.acc_rows // 2 if tiles_total > 1 else config.acc_rows):
                continue
            out_rows = 0 if resident_out else pixels * math.prod(s.step) * chunk
            add_rows = pixels * math.prod(s.step) * chunk if load_add else 0
            for piece in _pieces(in_blocks):
                pieces = -(-in_blocks // piece)
                piece_tiles = s.rows(chunk) * s.taps * piece
                several = pieces * chunks * len(s.phases) > 1
                if piece_tiles > (config.wgt_tiles // 2 if several else config.wgt_tiles):
                    continue
                once = bands * n == 1 or pieces == 1
                for bands_outer, keep in ((True, True), (False, True), (False, False)):
                    if keep and not bands_outer and not once:
                        continue
                    in_rows = 0 if resident_in else window * (in_blocks if keep else piece)
                    depth = 2 if tiles_total > 1 else 1
                    in_depth = depth if keep else 2  # pieces follow each other even within one tile
                    if in_depth * in_rows + depth * (out_rows + add_rows) > budget:
                        continue
                    # Traffic.
                    weight_bytes = weight_tiles * config.tile_bytes
                    chunk_tiles = s.rows(chunk) * s.taps * in_blocks * len(s.phases)
                    if not fits_weights and (bands_outer or chunk_tiles > config.wgt_tiles):
                        weight_bytes *= bands * n
                    in_bytes = 0 if resident_in else bands * n * window * s.x.cb * config.block_in
                    if not bands_outer and (bands * n != 1 or not keep):
                        in_bytes *= chunks
                    out_bytes = 0 if resident_out else out_size
                    read = weight_bytes + in_bytes + (out_size if load_add else 0)
                    read += blocks * config.prm_row_bytes
                    products = n * bands * pixels * s.rows(chunk) * chunks * in_blocks * s.taps * len(s.phases)
                    vectors = n * bands * pixels * blocks * len(s.phases)
                    start = _LATENCY + piece_tiles * tile_cycles
                    start += 0 if resident_in else window * piece * config.block_in / bus
                    end = acc + (0 if resident_out else out_rows * config.block_in / bus)
                    work = max(products, read / bus * 1.05, vectors, out_bytes / bus)
                    count = tiles_total * pieces
                    cycles = work + start + end + count * _TILE_OVERHEAD * 0.3
                    if every or cycles < best:
                        best = cycles
                        pools = Pools(in_depth * in_rows, depth * out_rows, depth * add_rows)
                        yield ConvPlan(lines, columns, chunk, piece, bands_outer, keep, pools, cycles)


def _bands(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Band sizes that cut the plane evenly: whole rows first, parts of rows where few of them fit."""
    for lines in sorted({-(-height // i) for i in range(1, height + 1)}, reverse=True):
        yield lines, width
    for lines in sorted({-(-height // i) for i in range(1, height + 1)} & {1, 2, 3, 4, 6, 8} | {1}, reverse=True):
        for parts in (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512):
            if parts <= width:
                yield lines, -(-width // parts)


def _chunks(blocks: int, unit: int, grouped: bool) -> Iterator[int]:
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
    seen = set()
    for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
        piece = max(1, -(-blocks // parts))
        if piece not in seen:
            seen.add(piece)
            yield piece


def emit_conv(context: Context, layer: ConvLayer, plan: ConvPlan, part: Part | None = None) -> None:
    """Emits the layer, or only `part` of it, by `plan`."""
    with context.pools(plan.pools):
        _ConvEmission(context, layer, plan, part).run()


class _ConvEmission:
    def __init__(self, context: Context, layer: ConvLayer, plan: ConvPlan, part: Part | None) -> None:
        self.c = context
        self.layer = layer
        self.plan = plan
        self.s = _Shape(context.config, layer, None if part is None else part.span)
        self.images = range(self.s.y.n) if part is None else (part.image,)
        self._inputs: dict[tuple[int, int, int, int, int], Tile] = {}

    def run(self) -> None:
        s, plan = self.s, self.plan
        bands = [
            (n, q0, min(q0 + plan.lines, s.first + s.q[0]), r0, min(r0 + plan.columns, s.q[1]))
            for n in self.images
            for q0 in range(s.first, s.first + s.q[0], plan.lines)
            for r0 in range(0, s.q[1], plan.columns)
        ]
        chunks = [(b, min(plan.blocks, s.y.cb - b)) for b in range(0, s.y.cb, plan.blocks)]
        if plan.bands_outer:
            for band in bands:
                for chunk in chunks:
                    self._tile(band, chunk)
                    if s.grouped:  # every chunk has its own inputs
                        self._drop_inputs()
                self._drop_inputs()
        else:
            for chunk in chunks:
                for band in bands:
                    self._tile(band, chunk)
                    if len(bands) > 1:
                        self._drop_inputs()
            self._drop_inputs()

    def _tile(self, band: tuple[int, int, int, int, int], chunk: tuple[int, int]) -> None:
        s, context, layer = self.s, self.c, self.layer
        n, q0, q1, r0, r1 = band
        block, blocks = chunk
        y0, y1 = q0 * s.step[0], min(q1 * s.step[0], s.y.h)
        x0, x1 = r0 * s.step[1], min(r1 * s.step[1], s.y.w)
        box = Window(n, block, blocks, y0, y1, x0, x1)
        out = context.write_tile(s.y, box)
        add: Tile | None = None
        for index, phase in enumerate(s.phases):
            lines = min(q1, phase.outputs(0, s.y.h)) - q0
            columns = min(r1, phase.outputs(1, s.y.w)) - r0
            if lines <= 0 or columns <= 0:
                continue
            acc = context.accumulators.take(lines * columns * s.rows(blocks))
            self._products(band, chunk, index, phase, lines, columns, acc)
            if add is None:  # behind the weights: LOAD must not hold them up for room that is freed later
                add = read_add_operand(context, layer.post, box)
            prm = self._params(n, index, block, blocks)
            config = context.config
            vector = acc * config.block_out // config.block_in
            start = phase.out_start
            shift = start[0] * out.line + start[1] * out.step
            moved = Tile(out.base + shift, out.plane, out.line, out.step)
            other = None
            if add is not None:
                other = Tile(add.base + start[0] * add.line + start[1] * add.step, add.plane, add.line, add.step)
            emit_accumulators(
                context, layer.post, vector, (s.wide, columns * s.wide, lines * columns * s.wide),
                (columns, lines, blocks), moved, phase.out_step, prm, other, s.wide,
            )  # fmt: skip
        context.release(add)
        context.finish_tile(s.y, box, out)

    def _products(
        self, band: tuple[int, int, int, int, int], chunk: tuple[int, int], index: int, phase: Phase, lines: int,
        columns: int, acc: int,
    ) -> None:  # fmt: skip
        s, plan = self.s, self.plan
        n, q0, q1, r0, r1 = band
        block, blocks = chunk
        first, count = s.input_range(block)
        iy0, iy1 = s.input_box(q0, q1, 0)
        ix0, ix1 = s.input_box(r0, r1, 1)
        kh, kw = phase.kernel
        sets = phase.weights.shape[0]
        pixels = lines * columns
        rows = s.rows(blocks)
        for at in range(0, count, plan.piece):
            piece = min(plan.piece, count - at)
            key = (n, iy0, ix0, first + at, piece)
            tile = self._inputs.get(key)
            if tile is None:
                box = Window(n, first + at, piece, iy0, iy1, ix0, ix1)
                tile = self.c.read_tile(s.x, box, self.layer.fill)
                self._inputs[key] = tile
            per_row = sets * kh * kw * piece
            wgt = self._weights(n, index, block, rows, first + at, piece)
            origin = (q0 * phase.stride[0] - phase.pad[0] - iy0) * tile.line + r0 * phase.stride[1] - phase.pad[1] - ix0
            reduce: list[Loop] = [
                (piece, tile.plane, 1, 0),
                (kw, phase.dilation[1], piece, 0),
                (kh, phase.dilation[0] * tile.line, kw * piece, 0),
                (sets, 0, kh * kw * piece, 0),
            ]
            m = s.narrow
            outer: list[Loop] = [
                (columns, phase.stride[1], 0, m),
                (lines, phase.stride[0] * tile.line, 0, columns * m),
                (m, 0, per_row, 1),
                (rows // m, 0, per_row * m, pixels * m),
            ]
            self.c.emitter.gemm(tile.base + origin, wgt, acc, reduce, outer, accumulate=at > 0)
            self._zero_point_products(tile, origin, first + at, piece, outer, acc)
            if not plan.keep_input and tile.rows is not None:
                self.c.release(self._inputs.pop(key))

    def _zero_point_products(
        self, tile: Tile, origin: int, first: int, piece: int, outer: list[Loop], acc: int
    ) -> None:
        """Adds -zero_point of a second activation operand times the sum of the first, by constant tiles."""
        dynamic = self.layer.dynamic
        if dynamic is None or dynamic.zero_point == 0:
            return
        config = self.c.config
        rest = -dynamic.zero_point
        while rest:
            value = max(-128, min(127, rest))
            rest -= value
            whole = dynamic.k // config.block_in
            tail = dynamic.k % config.block_in

            def tiles(value: int = value, tail: int = tail) -> np.ndarray:
                both = np.full((2, config.block_out, config.block_in), value, np.int8)
                both[1, :, tail:] = 0
                return both

            wgt = self.c.load_weights(("zero point", value, tail), 2, tiles)
            still = [(n, a, 0, c) for n, a, _, c in outer]
            full = max(0, min(first + piece, whole) - first)
            if full:
                self.c.emitter.gemm(tile.base + origin, wgt, acc, [(full, tile.plane, 0, 0)], still, accumulate=True)
            if tail and first <= whole < first + piece:
                at = tile.base + origin + (whole - first) * tile.plane
                self.c.emitter.gemm(at, wgt + 1, acc, [], still, accumulate=True)

    def _weights(self, n: int, index: int, block: int, rows: int, first: int, piece: int) -> int:
        dynamic = self.layer.dynamic
        key = (id(self.layer), index, block, rows, first, piece)
        if dynamic is None:
            taps = self.s.phases[index].weights.shape
            count = rows * taps[0] * taps[3] * taps[4] * piece
            return self.c.load_weights(key, count, lambda: self._pack(index, block, rows, first, piece))
        at = self.c.weights.find((*key, n))
        if at is None:
            config = self.c.config
            kb = self.s.x.cb
            row = block * config.block_in // config.block_out
            at = self.c.weights.take(rows * piece, (*key, n))
            total = max(-(-self.s.y.c // config.block_out), self.s.y.cb * config.block_in // config.block_out)
            offset = self.c.offsets[dynamic.tiles] + ((n * total + row) * kb + first) * config.tile_bytes
            self.c.emitter.load(
                Place(ARENA_REGION, offset), Memory.WGT, at, piece, y=(rows, piece, kb * config.tile_bytes)
            )
        return at

    def _pack(self, index: int, block: int, rows: int, first: int, piece: int) -> np.ndarray:
        """Tiles [row][set][ky][kx][input block] of block_out x block_in."""
        config, s = self.c.config, self.s
        bi, bo = config.block_in, config.block_out
        w = s.phases[index].weights
        sets, _, _, kh, kw = w.shape
        o0, o1 = block * bi, min(block * bi + rows * bo, s.y.c)
        dense = np.zeros((sets, rows * bo, piece * bi, kh, kw), np.int8)
        if not s.grouped:
            c0, c1 = first * bi, min((first + piece) * bi, w.shape[2])
            dense[:, : o1 - o0, : c1 - c0] = w[:, o0:o1, c0:c1]
        else:
            outs, ins = s.y.c // self.layer.group, s.x.c // self.layer.group
            for o in range(o0, o1):
                base = o // outs * ins - first * bi
                lo, hi = max(0, -base), min(ins, piece * bi - base)
                if hi > lo:
                    dense[:, o - o0, base + lo : base + hi] = w[:, o, lo:hi]
        split = dense.reshape(sets, rows, bo, piece, bi, kh, kw)
        return split.transpose(1, 0, 5, 6, 3, 2, 4).reshape(-1, bo, bi)

    def _params(self, n: int, index: int, block: int, blocks: int) -> int:
        config, dynamic = self.c.config, self.layer.dynamic
        bi = config.block_in
        if dynamic is not None:
            key = (id(self.layer), "dynamic", n, block, blocks)
            at = self.c.params.find(key)
            if at is None:
                at = self.c.params.take(blocks, key)
                row = n * self.s.y.cb + block
                place = Place(ARENA_REGION, self.c.offsets[dynamic.params] + row * config.prm_row_bytes)
                self.c.emitter.load(place, Memory.PRM, at, blocks)
            return at

        def make() -> tuple[np.ndarray, np.ndarray]:
            bias = np.zeros(blocks * bi, np.int32)
            scale = np.zeros(blocks * bi, np.float32)
            o0, o1 = block * bi, min((block + blocks) * bi, self.s.y.c)
            biases = np.atleast_2d(self.layer.bias)
            bias[: o1 - o0] = biases[index if len(biases) > 1 else 0, o0:o1]
            scale[: o1 - o0] = self.layer.scale[o0:o1]
            return bias, scale

        return self.c.load_params((id(self.layer), index, block, blocks), blocks, make)

    def _drop_inputs(self) -> None:
        for tile in self._inputs.values():
            self.c.release(tile)
        self._inputs.clear()


__all__ = ["ConvPlan", "conv_plans", "emit_conv"]
