"""One phase of a convolution's output tile: the loops of its GEMMs over input, weights and sums."""

from __future__ import annotations

import math

from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.tile_program import Loop
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.layers.conv_tiling import ConvShape


class PhaseTile:
    """One phase of an output tile, with the loops of its GEMMs.

    Attributes:
        q: image, channel blocks, and the rows and columns of the phase.
        index, phase: number of the phase, and the phase.
        size: lines and columns of the tile in this phase; `pixels` is their product.
        rows: GEMM output blocks of the channel blocks.
        narrow: GEMM output blocks of one channel block.
        acc: first row of ACC, for the sums of the first byte.
        inputs: input blocks that the tile needs.
        input_rows, input_columns: (first, end) of the input that the tile needs in any phase.
    """

    def __init__(self, s: ConvShape, q: Box, index: int, size: tuple[int, int], acc: int) -> None:
        self.q, self.index, self.phase, self.size, self.acc = q, index, s.phases[index], size, acc
        self.rows, self.narrow, self.pixels = s.rows(q.blocks), s.narrow, math.prod(size)
        self._sets: int = self.phase.weights.shape[0]
        first, count = s.input_range(q.block)
        self.inputs = range(first, first + count)
        self.input_rows, self.input_columns = s.input_span(q.y0, q.y1, 0), s.input_span(q.x0, q.x1, 1)

    @property
    def band(self) -> tuple[int, int, int]:
        """The image, first row and first column: equal for tiles of the same input rows."""
        return self.q.n, self.q.y0, self.q.x0

    def origin(self, tile: ActTile) -> int:
        """Returns the ACT row that the first tap of the first pixel reads."""
        phase, q = self.phase, self.q
        y, x = q.y0 * phase.stride[0] - phase.pad[0], q.x0 * phase.stride[1] - phase.pad[1]
        return tile.base + (y - self.input_rows[0]) * tile.line + x - self.input_columns[0]

    def tiles_per_row(self, piece: int) -> int:
        """Returns the WGT tiles of a GEMM output block for `piece` input blocks."""
        return self._sets * math.prod(self.phase.kernel) * piece

    def over_taps(self, tile: ActTile, piece: int) -> list[Loop]:
        """Returns the loops of a sum: input blocks, taps and sets."""
        phase, (kh, kw) = self.phase, self.phase.kernel
        return [
            (piece, tile.plane, 1, 0),
            (kw, phase.dilation[1], piece, 0),
            (kh, phase.dilation[0] * tile.line, kw * piece, 0),
            (self._sets, 0, kh * kw * piece, 0),
        ]

    def over_pixels(self, tile: ActTile) -> list[Loop]:
        """Returns the loops over columns and lines."""
        stride, (lines, columns), m = self.phase.stride, self.size, self.narrow
        return [(columns, stride[1], 0, m), (lines, stride[0] * tile.line, 0, columns * m)]

    def over_outputs(self, tile: ActTile, piece: int) -> list[Loop]:
        """Returns the loops over pixels and GEMM output blocks."""
        m, per_row = self.narrow, self.tiles_per_row(piece)
        return [
            *self.over_pixels(tile), (m, 0, per_row, 1), (self.rows // m, 0, per_row * m, self.pixels * m),
        ]  # fmt: skip
