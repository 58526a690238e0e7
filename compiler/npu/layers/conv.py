"""Convolutions and matrix products on the array.

Tiles are bands of the output times chunks of channel blocks (`conv_tiling.py`); tensors that are still in a scratchpad
are not loaded again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.emit.plan import PlanTable, Pools, TilePlan
from tilewright.compiler.npu.emit.scratch import Allocation
from tilewright.compiler.npu.emit.tile_program import Loop
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.layers.accumulators import emit_accumulators, emit_wide, read_add_operand
from tilewright.compiler.npu.layers.conv_constants import ConvConstants, DynamicWeights
from tilewright.compiler.npu.layers.conv_tiling import ConvShape, ConvTiling, Phase, conv_plans, longest
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.phase_tile import PhaseTile
from tilewright.compiler.npu.layers.products import minimum_constants
from tilewright.compiler.npu.layers.row_sums import RowSums, add_by_tiles
from tilewright.compiler.npu.layers.sampling import sampled
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.isa.config import NpuConfig


@dataclass
class ConvLayer(Layer):
    """Convolution or matrix product on the array.

    Attributes:
        phases: convolutions that interleave in the output: one, except for transposed convolutions.
        bias: int32 [O], or [phases, O].
        scale: float32 [O]. For outputs of 16 bits, bias and scale are in the format of VECTOR_WIDE.
        group: groups of channels.
        fill: the input's zero point, the value of padding.
        dynamic: place of weights made at run time, None for constants; the weights of `phases` then only have their
            shape.
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
        """Returns the sizes of the layer on a machine, or of its output rows `span`."""
        return ConvShape(config, self.phases, self.group, self.inputs[0], self.output, span)

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> PlanTable[ConvTiling]:
        return conv_plans(
            self.shape(context.config, span), budget, acc_rows=context.accumulators.rows,
            resident_in=context.on_chip(self.inputs[0]), resident_out=context.on_chip(self.output), every=every,
            load_operand=self.loads_added(context), memory=context.memory,
            row_sums=self.row_sums(context.config) is not None,
        )  # fmt: skip

    def row_sums(self, config: NpuConfig) -> RowSums | None:
        """Returns the row sums that account for a second activation's zero point; None if they are not used."""
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
            for _ in ConvEmission(context, self, plan.tiling, part, alone=True).run():
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
    def recordable(self) -> bool:
        return self.dynamic is None

    @property
    def equal_blocks(self) -> bool:
        return all(phase.rest is None for phase in self.phases)

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
            yield self.dynamic.tiles, self.dynamic.k * self.output.c * self.output.n // self.dynamic.group
        elif self.products is not None:
            yield minimum_constants(
                [p.weights for p in self.phases],
                [p.rest for p in self.phases],
                self.bias,
                self.scale,
                packed=any(p.packed for p in self.phases),
            )


#: Image, input rows and columns (first, end), first channel block and number of blocks of an input tile.
_InputKey = tuple[int, tuple[int, int], tuple[int, int], int, int]


class ConvEmission:
    """Emission of one layer (or some of its rows), tile by tile, with the input tiles that stay in ACT meanwhile.

    Args:
        context: the emission.
        layer: the layer.
        tiling: its tiling.
        part: part of its output, None for all.
        alone: True if nothing else is emitted between its chunks.
    """

    def __init__(
        self, context: Context, layer: ConvLayer, tiling: ConvTiling, part: OutputPart | None, alone: bool = False
    ) -> None:
        self.context, self.alone = context, alone
        self.layer = layer
        self.tiling = tiling
        self.s = layer.shape(context.config, None if part is None else part.span)
        self.images = range(self.s.y.n) if part is None else range(part.image, part.image + 1)
        self.constants = ConvConstants(context, layer, self.s)
        self._inputs: dict[_InputKey, ActTile] = {}
        self._row_sums = layer.row_sums(context.config)
        self._sums: dict[tuple[int, int, int], Allocation] = {}

    def run(self) -> Iterator[None]:
        """Emits all tiles in the order of the tiling, and yields wherever a chunk is complete.

        A chunk is complete at once if chunks are outside, or if there is one band.
        """
        s, tiling = self.s, self.tiling
        end, width = s.first + s.q[0], s.q[1]
        bands = [
            (n, q0, min(q0 + tiling.lines, end), r0, min(r0 + tiling.columns, width))
            for n in self.images
            for q0 in range(s.first, end, tiling.lines)
            for r0 in range(0, width, tiling.columns)
        ]
        chunks = [(b, min(tiling.blocks, s.y.cb - b)) for b in range(0, s.y.cb, tiling.blocks)]

        def alike(band: tuple[int, int, int, int, int]) -> Hashable:
            n, q0, q1, r0, r1 = band
            image = n if self.layer.dynamic is not None else 0  # which has weights of its own
            return image, q1 - q0, r1 - r0, q0 == s.first, q1 == end, r0 == 0, r1 == width

        def some_chunks() -> Iterator[tuple[int, int]]:
            equal = self.alone and self.layer.equal_blocks
            return sampled(self.context, chunks, itemgetter(1)) if equal else iter(chunks)

        if tiling.bands_outer:
            for band in sampled(self.context, bands, alike):
                for chunk in some_chunks():
                    self._tile(Box(band[0], *chunk, *band[1:]))
                    if s.grouped:  # every chunk has its own inputs
                        self._drop_inputs()
                    if len(bands) == 1:
                        yield
                self._drop_inputs()
        else:
            for chunk in some_chunks():
                for band in sampled(self.context, bands, alike):
                    self._tile(Box(band[0], *chunk, *band[1:]))
                    if len(bands) > 1:
                        self._drop_inputs()
                yield
            self._drop_inputs()

    def add_channels(self, chosen: range, acc: int) -> None:
        """Adds the products of some input blocks in ACT to the sums of one image's whole output, for a single phase.

        Args:
            chosen: the input blocks.
            acc: first row of ACC.
        """
        q = self._whole()
        self._products(q, 0, self._size(q, 0), acc, chosen)

    def finish(self, acc: int) -> None:
        """Requantises the sums that `add_channels` made in ACC from row `acc` on, some channel blocks at a time."""
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
        """Returns the box of the phases' rows and columns that all of one image's output has."""
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
        """Returns the boxes of the output that a tile makes, one for each byte of the values, and their room in ACT."""
        s = self.s
        rows, columns = s.step
        y1, x1 = min(q.y1 * rows, s.y.h), min(q.x1 * columns, s.y.w)
        box = Box(q.n, q.block, q.blocks, q.y0 * rows, y1, q.x0 * columns, x1)
        boxes = [box.behind(byte * s.y.cb) for byte in range(s.bytes)]
        return boxes, [self.context.write_tile(self.layer.output, part) for part in boxes]

    def _size(self, q: Box, index: int) -> tuple[int, int]:
        """Returns the lines and columns of a tile in a phase."""
        s, phase = self.s, self.s.phases[index]
        return min(q.y1, phase.outputs(0, s.y.h)) - q.y0, min(q.x1, phase.outputs(1, s.y.w)) - q.x0

    def _requantise(
        self, q: Box, index: int, size: tuple[int, int], acc: int, outs: list[ActTile], add: ActTile | None
    ) -> None:
        """Emits VECTOR's pass over the sums of one phase of a tile."""
        s, context, layer, (lines, columns) = self.s, self.context, self.layer, size
        acc_rows = lines * columns * s.rows(q.blocks)
        prm, prm_step = self.constants.params(q, index)
        first, byte_stride = (n * context.config.block_out // context.config.block_in for n in (acc, acc_rows))
        strides, counts = (s.wide, columns * s.wide, lines * columns * s.wide), (columns, lines, q.blocks)
        if s.bytes > 1:
            emit_wide(context, layer.post, first, byte_stride, strides, counts, outs, prm, s.wide)
            return
        start = self.s.phases[index].out_start
        emit_accumulators(
            context, layer.post, first, strides, counts, outs[0].from_vector(*start), self.s.phases[index].out_step,
            prm, add.from_vector(*start) if add is not None else None, s.wide, prm_step,
        )  # fmt: skip

    def _products(self, q: Box, index: int, size: tuple[int, int], acc: int, chosen: range | None = None) -> None:
        """Emits the GEMMs of one phase for a tile: all taps and input blocks, piece by piece of the weights.

        Each byte of the values has sums of its own, made with the same weights.

        Args:
            q: image, channel blocks, and the rows and columns of the phases.
            index: number of the phase.
            size: lines and columns of the tile in the phase.
            acc: first row of ACC, for the sums of the first byte.
            chosen: input blocks whose products are added to those of the blocks before them, None for all.
        """
        s, tiling = self.s, self.tiling
        part = PhaseTile(s, q, index, size, acc)
        fills = self.layer.inputs[0].fills(self.layer.fill)
        row_acc = self._begin_row_sums(part)
        chosen = range(len(part.inputs)) if chosen is None else chosen
        for at in chosen[:: tiling.piece]:
            blocks = part.inputs[at : min(at + tiling.piece, chosen.stop)]
            for byte in range(s.bytes):
                key = q.n, part.input_rows, part.input_columns, byte * s.x.cb + blocks.start, len(blocks)
                tile = self._input_tile(key, fills[byte])
                self._piece(part, tile, blocks, byte, row_acc)
                if not tiling.keep_input and tile.rows is not None:
                    self.context.release(self._inputs.pop(key))
        self._correct_row_sums(part, row_acc)

    def _input_tile(self, key: _InputKey, fill: int) -> ActTile:
        """Returns the input tile of (image, rows, columns, first block, blocks), read unless it is in ACT."""
        tile = self._inputs.get(key)
        if tile is None:
            n, (y0, y1), (x0, x1), block, blocks = key
            box = Box(n, block, blocks, y0, y1, x0, x1)
            tile = self._inputs[key] = self.context.read_tile(self.layer.inputs[0], box, fill)
        return tile

    def _piece(self, part: PhaseTile, tile: ActTile, blocks: range, byte: int, row_acc: int | None) -> None:
        """Emits the products of a piece of the weights: input blocks `blocks`, of which `tile` holds one byte.

        Args:
            row_acc: result of `_begin_row_sums`.
        """
        context, q = self.context, part.q
        wgt = self.constants.weights(q.n, part.index, q.block, part.rows, blocks.start, len(blocks))
        origin, outer = part.origin(tile), part.over_outputs(tile, len(blocks))
        if self._row_sums is not None and row_acc is not None:  # before the products, so that VECTOR divides meanwhile
            over_rows = part.over_pixels(tile)
            at = blocks.start - part.inputs.start
            self._row_sums.add(context, origin, tile.plane, over_rows, blocks.start, len(blocks), row_acc)
            if at + len(blocks) == len(part.inputs):
                self._row_sums.divide(context, row_acc, self._sums[part.band].start, part.pixels)
        sums = part.acc + byte * part.pixels * part.rows
        further = blocks.start > part.inputs.start
        context.emitter.gemm(origin, wgt, sums, part.over_taps(tile, len(blocks)), outer, accumulate=further)
        if part.phase.rest is not None:
            self._rest_products(part, tile, blocks, outer, wgt + part.tiles_per_row(len(blocks)) * part.rows)
        if self.layer.dynamic is not None and self._row_sums is None:
            k, zero_point = self.layer.dynamic.k, self.layer.dynamic.zero_point
            add_by_tiles(context, k, zero_point, origin, tile.plane, outer, blocks.start, len(blocks), part.acc)

    def _begin_row_sums(self, part: PhaseTile) -> int | None:
        """Returns the first row of ACC for the sums of a band's rows; None if there are no sums or they exist."""
        if self._row_sums is None or part.band in self._sums:
            return None
        acc = self.context.accumulators.take(part.pixels * self.s.narrow)
        self._sums[part.band] = self.context.room(2 * part.pixels, "operand")
        return acc

    def _correct_row_sums(self, part: PhaseTile, row_acc: int | None) -> None:
        """Adds the part of the second operand's zero point, from the sums of rows."""
        sums = self._row_sums
        if sums is None:
            return
        quotients, pixels = self._sums[part.band].start, part.pixels
        if row_acc is not None:
            sums.split(self.context, row_acc, quotients, quotients + pixels, pixels)
        m, (lines, columns) = self.s.narrow, part.size
        by_output = [(columns, 1, 0, m), (lines, columns, 0, columns * m), (m, 0, 0, 1)]
        by_output.append((part.rows // m, 0, 0, pixels * m))
        sums.correct(self.context, quotients + pixels, by_output, part.acc)

    def _rest_products(self, part: PhaseTile, tile: ActTile, blocks: range, outer: list[Loop], wgt: int) -> None:
        """Adds the products of single tiles, which are in WGT behind a piece's other tiles, from `wgt` on."""
        config, dilation, (lines, columns) = self.context.config, part.phase.dilation, part.size
        m, block, first = self.s.narrow, part.q.block, blocks.start
        singles = self.constants.rest(part.index, block, part.rows, first, len(blocks))
        for at, (_, row, ky, kx, channels) in enumerate(singles):
            row -= block * config.block_in // config.block_out
            where = part.origin(tile) + (channels - first) * tile.plane
            where += ky * dilation[0] * tile.line + kx * dilation[1]
            target = part.acc + row // m * lines * columns * m + row % m
            self.context.emitter.gemm(where, wgt + at, target, [], outer[:2], accumulate=True)

    def _drop_inputs(self) -> None:
        """Frees the input tiles and row sums in ACT."""
        for tile in self._inputs.values():
            self.context.release(tile)
        self._inputs.clear()
        for room in self._sums.values():
            room.free()
        self._sums.clear()


def finishing(context: Context, layer: ConvLayer) -> tuple[int, Pools]:
    """Returns the channel blocks whose sums are requantised at a time, and the ACT rows that they take.

    There are as many as half of PRM has biases for.
    """
    s = layer.shape(context.config)
    some = max(s.unit, min(s.y.cb, context.config.prm_rows // 2) // s.unit * s.unit)
    rows = min(2, -(-s.y.cb // some)) * min(some, s.y.cb) * s.y.h * s.y.w
    return some, Pools(0, 0 if context.on_chip(layer.output) else rows, rows * layer.loads_added(context))
