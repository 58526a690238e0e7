"""Convolutions and matrix products on the array.

Tiles are bands of the output times chunks of channel blocks (`conv_tiling.py`); what is still in a scratchpad is not
loaded again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.emit.loops import Loop
from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.emit.scratch import Allocation
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.layers.accumulators import emit_accumulators, emit_wide, read_add_operand
from tilewright.compiler.npu.layers.conv_constants import ConvConstants, DynamicWeights
from tilewright.compiler.npu.layers.conv_tiling import ConvShape, ConvTiling, Phase, conv_plans, longest
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.products import least_constants
from tilewright.compiler.npu.layers.row_sums import RowSums, add_by_tiles
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.isa.config import NpuConfig


@dataclass
class ConvLayer(Layer):
    """Convolution or matrix product on the array.

    Attributes:
        phases: convolutions that interleave in the output, one but for transposed convolutions.
        bias: int32 [O], or [phases, O]. scale: float32 [O]. Of an output of 16 bits, both as VECTOR_WIDE has them.
        group: groups of channels.
        fill: the input's zero point, which padding gets.
        dynamic: where the weights are in memory if they are no constants; those of `phases` then tell the shape only.
    """

    datapath = "array"
    cheapest = True

    phases: list[Phase] = field(default_factory=list)
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    group: int = 1
    fill: int = 0
    dynamic: DynamicWeights | None = None

    def shape(self, config: NpuConfig, span: tuple[int, int] | None = None) -> ConvShape:
        """Sizes on a machine of the layer, or of its output rows `span`."""
        return ConvShape(config, self.phases, self.group, self.inputs[0], self.output, span)

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterator[TilePlan[ConvTiling]]:
        return conv_plans(
            self.shape(context.config, span), budget, acc_rows=context.accumulators.rows,
            resident_in=context.on_chip(self.inputs[0]), resident_out=context.on_chip(self.output), every=every,
            load_operand=self.loads_added(context), memory=context.memory,
            row_sums=self.row_sums(context.config) is not None,
        )  # fmt: skip

    def row_sums(self, config: NpuConfig) -> RowSums | None:
        """How the zero point of a second activation is added, None where it is 0 or by constant tiles."""
        if self.dynamic is None or self.post.add is not None:
            return None
        return RowSums.of(config, self.dynamic.k, self.dynamic.zero_point, self.shape(config).rows(self.output.cb))

    @property
    def plan_key(self) -> Hashable:
        x, y = self.inputs[0], self.output
        phases = [(p.weights.shape, p.window, p.out_step, p.out_start, p.rest_tiles) for p in self.phases]
        zero_point = 0 if self.dynamic is None else self.dynamic.zero_point
        sizes = x.c, y.n, y.c, y.h, y.w, x.block, y.bytes
        return ("conv", *phases, self.group, *sizes, self.post.add is not None, zero_point)

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        with context.pools(plan.pools):
            for _ in ConvEmission(context, self, plan.tiling, part).run():
                pass

    @property
    def fusible(self) -> bool:
        return len(self.phases) == 1 and self.dynamic is None and self.group == 1

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        return self.phases[0].window.span(*span, 0)

    def input_border(self) -> tuple[Border, int]:
        # Phases of unequal length are walked together to the longest one.
        outputs, x = longest(self.phases, self.output), self.inputs[0]
        borders = (phase.window.border(outputs, (x.h, x.w)) for phase in self.phases)
        return functools.reduce(Border.union, borders), self.fill

    @property
    def dense(self) -> bool:
        return self.group == 1

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        x = self.inputs[0]
        size = (x.h, x.w)[axis]
        found = np.zeros(size, bool)
        for p in self.phases:
            found |= p.window.taken(axis, outputs[p.out_start[axis] :: p.out_step[axis]], size)
        return found

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        if self.dynamic is not None:
            yield self.dynamic.tiles, self.dynamic.k * self.output.c * self.output.n
        elif self.products is not None:
            yield least_constants(
                [p.weights for p in self.phases], [p.rest for p in self.phases], self.bias, self.scale
            )


class ConvEmission:
    """Emission of one layer (or some of its rows), tile by tile, with the input tiles that stay in ACT meanwhile."""

    def __init__(self, context: Context, layer: ConvLayer, tiling: ConvTiling, part: OutputPart | None) -> None:
        self.context = context
        self.layer = layer
        self.tiling = tiling
        self.s = layer.shape(context.config, None if part is None else part.span)
        self.images = range(self.s.y.n) if part is None else range(part.image, part.image + 1)
        self.constants = ConvConstants(context, layer, self.s)
        self._inputs: dict[tuple[int, int, int, int, int], ActTile] = {}
        self._row_sums = layer.row_sums(context.config)
        self._sums: dict[tuple[int, int, int], Allocation] = {}

    def run(self) -> Iterator[None]:
        """Emits all tiles in the order of the tiling. Where chunks are outside, or there is one band, it stops behind
        each chunk."""
        s, tiling = self.s, self.tiling
        end, width = s.first + s.q[0], s.q[1]
        bands = [
            (n, q0, min(q0 + tiling.lines, end), r0, min(r0 + tiling.columns, width))
            for n in self.images
            for q0 in range(s.first, end, tiling.lines)
            for r0 in range(0, width, tiling.columns)
        ]
        chunks = [(b, min(tiling.blocks, s.y.cb - b)) for b in range(0, s.y.cb, tiling.blocks)]
        if tiling.bands_outer:
            for band in bands:
                for chunk in chunks:
                    self._tile(Box(band[0], *chunk, *band[1:]))
                    if s.grouped:  # every chunk has its own inputs
                        self._drop_inputs()
                    if len(bands) == 1:
                        yield
                self._drop_inputs()
        else:
            for chunk in chunks:
                for band in bands:
                    self._tile(Box(band[0], *chunk, *band[1:]))
                    if len(bands) > 1:
                        self._drop_inputs()
                yield
            self._drop_inputs()

    def add_channels(self, chosen: range, acc: int) -> None:
        """Adds the products of some input blocks, which must be in ACT, to sums of the whole output of one image, in
        ACC from row `acc` on. There is one phase."""
        q = self._whole()
        self._products(q, 0, self._size(q, 0), acc, chosen)

    def finish(self, acc: int) -> None:
        """Makes the output of such sums, some channel blocks at a time (`finishing`)."""
        s, whole = self.s, self._whole()
        size = self._size(whole, 0)
        some, pools = finishing(self.context, self.layer)
        parts = [whole._replace(block=block, blocks=min(some, s.y.cb - block)) for block in range(0, s.y.cb, some)]
        with self.context.pools(pools):
            for q in parts:
                (box,), outs = self._outputs(q)
                add = read_add_operand(self.context, self.layer.post, box)
                self._requantise(q, 0, size, acc + math.prod(size) * s.rows(q.block), outs, add)
                self.context.release(add)
                self.context.finish_tile(self.layer.output, box, outs[0])

    def _whole(self) -> Box:
        return Box(self.images[0], 0, self.s.y.cb, self.s.first, self.s.first + self.s.q[0], 0, self.s.q[1])

    def _tile(self, q: Box) -> None:
        """Emits one output tile: products of every phase, VECTOR's pass over them, and the store.

        Args:
            q: image, channel blocks, and the rows and columns of the phases.
        """
        layer = self.layer
        boxes, outs = self._outputs(q)
        add: ActTile | None = None
        for index in range(len(self.s.phases)):
            size = self._size(q, index)
            if min(size) <= 0:
                continue
            acc = self.context.accumulators.take(self.s.bytes * math.prod(size) * self.s.rows(q.blocks))
            self._products(q, index, size, acc)
            if add is None:
                # Only now: a LOAD that waits for room for the operand must not hold up the weights behind it.
                add = read_add_operand(self.context, layer.post, boxes[0])
            self._requantise(q, index, size, acc, outs, add)
        self.context.release(add)
        for part, out in zip(boxes, outs, strict=True):
            self.context.finish_tile(layer.output, part, out)

    def _outputs(self, q: Box) -> tuple[list[Box], list[ActTile]]:
        """What a tile makes, a box for each byte of the values, and room in ACT for it."""
        s = self.s
        rows, columns = s.step
        y1, x1 = min(q.y1 * rows, s.y.h), min(q.x1 * columns, s.y.w)
        box = Box(q.n, q.block, q.blocks, q.y0 * rows, y1, q.x0 * columns, x1)
        boxes = [box.behind(byte * s.y.cb) for byte in range(s.bytes)]
        return boxes, [self.context.write_tile(self.layer.output, part) for part in boxes]

    def _size(self, q: Box, index: int) -> tuple[int, int]:
        """Lines and columns of a tile that a phase has."""
        s, phase = self.s, self.s.phases[index]
        return min(q.y1, phase.outputs(0, s.y.h)) - q.y0, min(q.x1, phase.outputs(1, s.y.w)) - q.x0

    def _requantise(
        self, q: Box, index: int, size: tuple[int, int], acc: int, outs: list[ActTile], add: ActTile | None
    ) -> None:
        """Emits VECTOR's pass over the sums of one phase of a tile."""
        s, context, layer, (lines, columns) = self.s, self.context, self.layer, size
        acc_rows = lines * columns * s.rows(q.blocks)
        prm = self.constants.params(q, index)
        first, byte_stride = (n * context.config.block_out // context.config.block_in for n in (acc, acc_rows))
        strides, counts = (s.wide, columns * s.wide, lines * columns * s.wide), (columns, lines, q.blocks)
        if s.bytes > 1:
            emit_wide(context, layer.post, first, byte_stride, strides, counts, outs, prm, s.wide)
            return
        start = self.s.phases[index].out_start
        emit_accumulators(
            context, layer.post, first, strides, counts, outs[0].from_vector(*start), self.s.phases[index].out_step,
            prm, add.from_vector(*start) if add is not None else None, s.wide,
        )  # fmt: skip

    def _products(self, q: Box, index: int, size: tuple[int, int], acc: int, chosen: range | None = None) -> None:
        """Emits the GEMMs of one phase for a tile: all taps and input blocks, piece by piece of the weights. Each byte
        of the values has sums of its own, made with the same weights.

        Args:
            index: number of the phase.
            size: lines and columns of the tile that the phase has.
            acc: first row of ACC, of the sums of the first byte.
            chosen: input blocks whose products come on top of those of the blocks before them, None for all.
        """
        s, tiling, phase = self.s, self.tiling, self.s.phases[index]
        first, count = s.input_range(q.block)
        iy0, iy1 = s.input_span(q.y0, q.y1, 0)
        ix0, ix1 = s.input_span(q.x0, q.x1, 1)
        y, x = q.y0 * phase.stride[0] - phase.pad[0], q.x0 * phase.stride[1] - phase.pad[1]
        kh, kw = phase.kernel
        sets = phase.weights.shape[0]
        pixels = math.prod(size)
        rows = s.rows(q.blocks)
        fills = self.layer.inputs[0].fills(self.layer.fill)
        band, sums, sums_acc = (q.n, q.y0, q.x0), self._row_sums, 0
        new_sums = sums is not None and band not in self._sums
        if new_sums:
            sums_acc = self.context.accumulators.take(pixels * s.narrow)
            self._sums[band] = self.context.room(2 * pixels, "operand")
        lines, columns = size
        chosen = range(count) if chosen is None else chosen
        for at in chosen[:: tiling.piece]:
            piece = min(tiling.piece, chosen.stop - at)
            for byte in range(s.bytes):
                blocks_at = byte * s.x.cb + first + at
                key = (q.n, iy0, ix0, blocks_at, piece)
                tile = self._inputs.get(key)
                if tile is None:
                    box = Box(q.n, blocks_at, piece, iy0, iy1, ix0, ix1)
                    tile = self.context.read_tile(self.layer.inputs[0], box, fills[byte])
                    self._inputs[key] = tile
                per_row = sets * kh * kw * piece
                wgt = self.constants.weights(q.n, index, q.block, rows, first + at, piece)
                origin = (y - iy0) * tile.line + x - ix0
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
                if sums is not None and new_sums:  # before the products, so that VECTOR divides meanwhile
                    by_row = [(columns, phase.stride[1], 0, m), (lines, phase.stride[0] * tile.line, 0, columns * m)]
                    sums.add(self.context, tile.base + origin, tile.plane, by_row, first + at, piece, sums_acc)
                    if at + piece == count:
                        sums.divide(self.context, sums_acc, self._sums[band].start, pixels)
                sum_at = acc + byte * pixels * rows
                self.context.emitter.gemm(tile.base + origin, wgt, sum_at, reduce, outer, accumulate=at > 0)
                if phase.rest is not None:
                    behind = wgt + per_row * rows
                    self._rest_products(tile, origin, q.block, index, first + at, piece, rows, outer, behind, acc)
                if self.layer.dynamic is not None and sums is None:
                    k, zero_point = self.layer.dynamic.k, self.layer.dynamic.zero_point
                    add_by_tiles(
                        self.context, k, zero_point, tile.base + origin, tile.plane, outer, first + at, piece, acc
                    )
                if not tiling.keep_input and tile.rows is not None:
                    self.context.release(self._inputs.pop(key))
        if sums is not None:
            quotients = self._sums[band].start
            if new_sums:
                sums.split(self.context, sums_acc, quotients, quotients + pixels, pixels)
            m = s.narrow
            by_output = [(columns, 1, 0, m), (lines, columns, 0, columns * m), (m, 0, 0, 1)]
            by_output.append((rows // m, 0, 0, pixels * m))
            sums.correct(self.context, quotients + pixels, by_output, acc)

    def _rest_products(
        self,
        tile: ActTile,
        origin: int,
        block: int,
        index: int,
        first: int,
        piece: int,
        rows: int,
        outer: list[Loop],
        wgt: int,
        acc: int,
    ) -> None:
        """Adds the products of single tiles, which lie in WGT behind the others of a piece."""
        dilation = self.s.phases[index].dilation
        m, (columns, *_), (lines, *_) = self.s.narrow, *outer[:2]
        for at, (_, row, ky, kx, channels) in enumerate(self.constants.rest(index, block, rows, first, piece)):
            row -= block * self.context.config.block_in // self.context.config.block_out
            where = tile.base + origin + (channels - first) * tile.plane
            where += ky * dilation[0] * tile.line + kx * dilation[1]
            target = acc + row // m * lines * columns * m + row % m
            self.context.emitter.gemm(where, wgt + at, target, [], outer[:2], accumulate=True)

    def _drop_inputs(self) -> None:
        for tile in self._inputs.values():
            self.context.release(tile)
        self._inputs.clear()
        for room in self._sums.values():
            room.free()
        self._sums.clear()


def finishing(context: Context, layer: ConvLayer) -> tuple[int, Pools]:
    """Channel blocks that are made at a time of the sums of one image, as many as half of PRM has biases for, and the
    rows of ACT that they take."""
    s = layer.shape(context.config)
    some = max(s.unit, min(s.y.cb, context.config.prm_rows // 2) // s.unit * s.unit)
    rows = min(2, -(-s.y.cb // some)) * min(some, s.y.cb) * s.y.h * s.y.w
    return some, Pools(0, 0 if context.on_chip(layer.output) else rows, rows * layer.loads_added(context))
