"""Pooling layers: maximum over windows and mean over whole planes on VECTOR, mean over large planes on the array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.emit.plane_sums import emit_sums, sum_rows
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.layers.elementwise import VectorLayer
from tilewright.compiler.npu.layers.params import uniform_params
from tilewright.compiler.npu.layers.pooling_passes import between, passes_of, steps
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.compiler.npu.layers.tiling import OutputPart, PlaneTiling, even_parts
from tilewright.compiler.npu.views import View
from tilewright.isa.instructions import Source

#: The lowest int8: padding that never wins a maximum.
_MIN_INT8 = -128


@dataclass
class MaxPoolLayer(VectorLayer):
    """Maximum over windows; padding never wins.

    Attributes:
        kernel, pad, stride, dilation: (rows, columns); pad is that before the first row and column.
    """

    kernel: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    @property
    def window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, self.pad, self.stride, self.dilation)

    @property
    def passes(self) -> tuple[SlidingWindow, ...]:
        """The passes of VECTOR for each tile."""
        return passes_of(self.window, self.output.h, self.output.w)

    def input_box(self, box: Box) -> Box:
        return self.window.box(box)

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        return self.window.span(*span, 0)

    def input_border(self) -> tuple[Border, int]:
        x, y = self.inputs[0], self.output
        return self.window.border((y.h, y.w), (x.h, x.w)), _MIN_INT8

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        x = self.inputs[0]
        return self.window.taken(axis, outputs, (x.h, x.w)[axis])

    def emit_tile(self, context: Context, box: Box) -> None:
        tile = context.read_tile(self.inputs[0], self.input_box(box), _MIN_INT8)
        out = context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        *passes, last = self.passes
        first, second = self._rooms(box.lines, box.columns)
        room = context.room(box.blocks * (first + second), "operand") if passes else None
        for number, (lines, columns) in enumerate(between(self.passes, box.lines, box.columns)):
            assert room is not None
            at = room.start + number % 2 * box.blocks * first
            some = ActTile(at, lines * columns, columns)
            self._emit_pass(context, passes[number], tile, some, (lines, columns, box.blocks))
            context.release(tile)
            tile = some
        self._emit_pass(context, last, tile, out, (box.lines, box.columns, box.blocks), table)
        if room is not None:
            room.free()
        context.release(tile)
        context.finish_tile(self.output, box, out)

    def _emit_pass(
        self,
        context: Context,
        window: SlidingWindow,
        tile: ActTile,
        out: ActTile,
        size: tuple[int, int, int],
        table: int | None = None,
    ) -> None:
        """Emits VECTOR that writes the maxima over windows of a tile to another tile.

        Args:
            context: the emission.
            window: the window.
            tile, out: both tiles.
            size: rows, columns and blocks of `out`.
            table: number of a table behind the maxima, None for none.
        """
        (lines, columns, blocks), (kh, kw) = size, window.kernel
        (sy, sx), (dy, dx) = window.stride, window.dilation
        context.emitter.vector(
            Source.MAX, tile.base, out.base,
            [(columns, sx, 0, 1, 0), (lines, sy * tile.line, 0, out.line, 0), (blocks, tile.plane, 0, out.plane, 0)],
            reduce=[(kw, dx, 0, 0, 0), (kh, dy * tile.line, 0, 0, 0)], lut=table, post=self.post.fields,
        )  # fmt: skip

    def vector_steps(self, tiling: PlaneTiling) -> int:
        return tiling.blocks * steps(self.passes, tiling.lines, tiling.columns)

    def tile_room(self, tiling: PlaneTiling) -> int:
        return tiling.blocks * sum(self._rooms(tiling.lines, tiling.columns))

    def _rooms(self, lines: int, columns: int) -> tuple[int, int]:
        """Returns the rows of ACT for the results of every other pass, and of those between, of a channel block."""
        sizes = [math.prod(size) for size in between(self.passes, lines, columns)]
        return max(sizes[::2], default=0), max(sizes[1::2], default=0)


#: Least number of vectors for one VECTOR instruction of a mean: short ones start while other layers still work.
_MIN_SUM_VECTORS = 128


@dataclass
class MeanLayer(VectorLayer):
    """Mean over whole planes by VECTOR's SUM.

    Attributes:
        bias, scale: those of the requantiser, for all lanes.
    """

    whole_planes: ClassVar[bool] = True
    by_channel = True

    bias: int = 0
    scale: np.float32 = field(default_factory=lambda: np.float32(1))

    def input_box(self, box: Box) -> Box:
        x = self.inputs[0]
        return Box(box.n, box.block, box.blocks, 0, x.h, 0, x.w)

    def vector_steps(self, tiling: PlaneTiling) -> int:
        return tiling.blocks * self.inputs[0].h * self.inputs[0].w

    @property
    def summed(self) -> View | None:
        return self.inputs[0]

    def emit_summed(self, context: Context, acc: int) -> None:
        y = self.output
        with context.pools(Pools(0, y.cb, 0)):
            for n in range(y.n):
                self.divide(context, Box(n, 0, y.cb, 0, 1, 0, 1), acc + n * y.cb * sum_rows(context.config))

    def divide(self, context: Context, box: Box, acc: int) -> None:
        """Emits VECTOR for some channel blocks, whose sums are in ACC from row `acc` on."""
        config = context.config
        out = context.write_tile(self.output, box)
        step = sum_rows(config) * config.block_out // config.block_in
        context.emitter.vector(
            Source.ACC, acc * config.block_out // config.block_in, out.base, [(box.blocks, step, 0, out.plane, 0)],
            prm=uniform_params(context, self.bias, self.scale), lut=context.load_table(self.post.lut),
            rounding=self.post.rounding, post=self.post.fields,
        )  # fmt: skip
        context.finish_tile(self.output, box, out)

    def emit_tile(self, context: Context, box: Box) -> None:
        x = self.inputs[0]
        tile = context.read_tile(x, self.input_box(box))
        out = context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        some = max(1, _MIN_SUM_VECTORS // (x.h * x.w))
        for first in range(0, box.blocks, some):
            context.emitter.vector(
                Source.SUM, tile.base + first * tile.plane, out.base + first * out.plane,
                [(min(some, box.blocks - first), tile.plane, 0, out.plane, 0)],
                reduce=[(x.w, 1, 0, 0, 0), (x.h, tile.line, 0, 0, 0)],
                prm=uniform_params(context, self.bias, self.scale), lut=table, rounding=self.post.rounding,
                post=self.post.fields,
            )  # fmt: skip
        context.release(tile)
        context.finish_tile(self.output, box, out)


@dataclass
class LargeMeanLayer(MeanLayer):
    """Mean over planes that do not fit into ACT.

    The array adds up one band of rows after another, by products with a tile of the identity, and VECTOR divides.
    """

    by_channel = False

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterator[TilePlan[PlaneTiling]]:
        """Yields the plan with the largest bands of which two fit; `lines` of the tiling are rows of the input."""
        x = self.inputs[0]
        for lines in even_parts(x.h):
            pools = Pools(2 * lines * x.w, 2, 0)
            if sum(pools) <= budget:
                yield TilePlan(PlaneTiling(lines, x.w, 1), pools)
                if not every:
                    return

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        with context.pools(plan.pools):
            for n in range(self.output.n):
                for block in range(self.output.cb):
                    self._emit_plane(context, n, block, plan.tiling.lines)

    def emit_tile(self, context: Context, box: Box) -> None:
        self._emit_plane(context, box.n, box.block, self.inputs[0].h)

    def _emit_plane(self, context: Context, n: int, block: int, lines: int) -> None:
        """Emits one channel block, `lines` rows of the input at a time."""
        x = self.inputs[0]
        acc = context.accumulators.take(sum_rows(context.config))
        for first in range(0, x.h, lines):
            band = self._band(n, block, first, lines)
            tile = context.read_tile(x, band)
            emit_sums(context, acc, tile, (band.lines, x.w), 1, accumulate=first > 0)
            context.release(tile)
        self.divide(context, Box(n, block, 1, 0, 1, 0, 1), acc)

    def _band(self, n: int, block: int, first: int, lines: int) -> Box:
        """Returns the box of `lines` input rows from `first` on."""
        x = self.inputs[0]
        return Box(n, block, 1, first, min(first + lines, x.h), 0, x.w)
