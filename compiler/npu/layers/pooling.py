"""Pooling on VECTOR: maximum over windows, mean over whole planes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from compiler.npu.emit.context import Context
from compiler.npu.emit.geometry import Border, Box
from compiler.npu.layers.elementwise import VectorLayer, uniform_params
from compiler.npu.layers.sliding_window import SlidingWindow
from isa.instructions import Source

#: The lowest int8: padding that never wins a maximum.
_LOWEST = -128


@dataclass
class MaxPoolLayer(VectorLayer):
    """Maximum over windows; padding never wins. All attributes are (rows, columns)."""

    kernel: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    @property
    def window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, self.pad, self.stride, self.dilation)

    def input_box(self, box: Box) -> Box:
        return self.window.box(box)

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        return self.window.span(*span, 0)

    def input_border(self) -> tuple[Border, int]:
        x, y = self.inputs[0], self.output
        return self.window.border((y.h, y.w), (x.h, x.w)), _LOWEST

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        x = self.inputs[0]
        return self.window.taken(axis, outputs, (x.h, x.w)[axis])

    def emit_tile(self, context: Context, box: Box) -> None:
        tile = context.read_tile(self.inputs[0], self.input_box(box), _LOWEST)
        out = context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        (sy, sx), (dy, dx), (kh, kw) = self.stride, self.dilation, self.kernel
        context.emitter.vector(
            Source.MAX, tile.base, out.base,
            [(box.columns, sx, 0, 1, 0), (box.lines, sy * tile.line, 0, out.line, 0),
             (box.blocks, tile.plane, 0, out.plane, 0)],
            reduce=[(kw, dx, 0, 0, 0), (kh, dy * tile.line, 0, 0, 0)], lut=table, post=self.post.fields,
        )  # fmt: skip
        context.release(tile)
        context.finish_tile(self.output, box, out)


@dataclass
class MeanLayer(VectorLayer):
    """Mean over whole planes by VECTOR's SUM; one bias and one scale for all lanes."""

    whole_planes: ClassVar[bool] = True

    bias: int = 0
    scale: np.float32 = field(default_factory=lambda: np.float32(1))

    def input_box(self, box: Box) -> Box:
        x = self.inputs[0]
        return Box(box.n, box.block, box.blocks, 0, x.h, 0, x.w)

    def emit_tile(self, context: Context, box: Box) -> None:
        x = self.inputs[0]
        tile = context.read_tile(x, self.input_box(box))
        out = context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        context.emitter.vector(
            Source.SUM, tile.base, out.base, [(box.blocks, tile.plane, 0, out.plane, 0)],
            reduce=[(x.w, 1, 0, 0, 0), (x.h, tile.line, 0, 0, 0)],
            prm=uniform_params(context, self.bias, self.scale), lut=table, rounding=self.post.rounding,
            post=self.post.fields,
        )  # fmt: skip
        context.release(tile)
        context.finish_tile(self.output, box, out)
