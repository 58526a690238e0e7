"""Softmax over the channels, by ROW."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.tiles import NO_TILE
from tilewright.compiler.npu.layers.elementwise import VectorLayer, element_loops
from tilewright.compiler.npu.layers.tiling import PlaneTiling
from tilewright.compiler.npu.views import View
from tilewright.isa.instructions import RowFunction, Source


@dataclass
class SoftmaxLayer(VectorLayer):
    """Softmax over the channels: for some pixels maxima, then sums of exponentials, whose quotients scale the results.

    Attributes:
        words: exponentials, 256 little-endian words of 24 bits: entry i is that of -((256 - i) mod 256) steps.
        number, exponent: factor of the quotients, in the fields of ROW.
        pixels: largest number of pixels in a tile; each has a PRM row for its maximum and its scale.
    """

    words: bytes = b""
    number: int = 0
    exponent: int = 0
    pixels: int = 1

    @property
    def dense(self) -> bool:
        return True

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        return ((self.words, len(self.words)),)

    def _tilings(self, y: View) -> Iterator[PlaneTiling]:
        for parts in range(-(-y.w // self.pixels), y.w + 1):
            yield PlaneTiling(1, -(-y.w // parts), y.cb)

    def emit_tile(self, context: Context, box: Box) -> None:
        a, out = context.read_tile(self.inputs[0], box), context.write_tile(self.output, box)
        table, prm = context.load_wide_table(self.words), context.params.take(box.columns)
        blocks, pixels = (box.blocks, a.plane, 0, out.plane, 0), (box.columns, a.step, 0, out.step, 1)
        for function in (RowFunction.MAXIMUM, RowFunction.EXP_SUM):
            context.emitter.row(
                function, a.base, [pixels], prm=prm, reduce=[blocks], tail=self.output.c % context.config.block_in,
                table=table, number=self.number, exponent=self.exponent,
            )  # fmt: skip
        context.emitter.row(
            RowFunction.EXP, a.base, [blocks, pixels], dst=out.base, prm=prm, table=table, post=self.post.fields
        )
        if self.post.lut is not None:  # in place: ROW itself has no table for results
            context.emitter.vector(
                Source.ACT, out.base, out.base, element_loops(box, out, NO_TILE, out)[::-1],
                lut=context.load_table(self.post.lut), post=self.post.fields,
            )  # fmt: skip
        context.release(a)
        context.finish_tile(self.output, box, out)
