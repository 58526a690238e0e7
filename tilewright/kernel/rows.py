"""Softmax over the channels by ROW, on machines with the row unit."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.npu.emit.tile_program import Loop, PostFields
from tilewright.isa import numerics
from tilewright.isa.instructions import ROW_SUM_BITS, RowFunction
from tilewright.kernel.errors import KernelError, call
from tilewright.kernel.machine import Target, operation, require_field
from tilewright.kernel.places import Tile
from tilewright.kernel.vector import VectorMachine

#: Bits of an exponential, and the most channels whose exponentials fit a sum of ROW.
_WORD_BITS = 24
_MOST = 1 << (ROW_SUM_BITS - _WORD_BITS)


class Exponentials:
    """Exponentials of a softmax, and the factor of its quotients.

    Args:
        scale: change of the exponent by one step of the input.
        levels: factor that turns probabilities into steps of the result.

    Attributes:
        steps: int64 [256], the exponential of 0..255 steps below the maximum, of which that of 0 is 2**24 - 1.
        number, exponent: the factor in the fields of ROW.
    """

    def __init__(self, scale: float, levels: float) -> None:
        found = numerics.row_numerator(levels)
        if found is None or not scale > 0 or not math.isfinite(scale):
            raise KernelError(
                f"scale must be above 0 and levels have up to 18 bits of precision, not {scale} and {levels}"
            )
        self.number, self.exponent = found
        values = np.exp(-float(scale) * np.arange(256))
        self.steps = np.rint(values * ((1 << _WORD_BITS) - 1)).astype(np.int64)

    @property
    def words(self) -> bytes:
        """The table of ROW: 256 words, by the distance to the maximum modulo 256."""
        return self.steps[-np.arange(256) % 256].astype("<u4").tobytes()

    def of(self, x: np.ndarray, zero_point: int = -128) -> np.ndarray:
        """Returns the softmax of the last axis in numpy, to the byte: int8 of the shape of `x`."""
        found = np.empty(x.shape, np.int8)
        for row, result in zip(x.reshape(-1, x.shape[-1]), found.reshape(-1, x.shape[-1]), strict=True):
            terms = self.steps[int(row.max()) - row.astype(np.int64)]
            scale = numerics.row_scale(int(terms.sum()), self.number, self.exponent)
            result[:] = numerics.requantize(terms, np.uint32(scale), zero_point, -128, 127)
        return found


class RowMachine(VectorMachine):
    """ROW's part of `Chip`."""

    @call
    def exponentials(self, scale: float, levels: float = 255.0) -> Exponentials:
        """Returns the constants of a softmax; see `Exponentials`."""
        if not self.config.row_unit:
            raise KernelError(f"{self.config.name!r} has no row unit: row_unit = 0 in its configuration")
        return Exponentials(scale, levels)

    @operation
    def softmax(
        self, a: Tile, channels: int, exponentials: Exponentials, *, zero_point: int = -128, into: Target = None
    ) -> Tile:
        """Takes the softmax over the channels of every pixel of a tile.

        Args:
            channels: channels of the tile; lanes behind the last one do not count.
            zero_point: probability 0 in the result.
        """
        a = a.read("softmax")
        require_field("VECTOR_POST", "zp", zero_point, name="zero_point")
        lanes, pixels = self.lanes, a.rows * a.columns
        if -(-channels // lanes) != a.blocks or channels > _MOST:
            raise KernelError(f"{channels} channels do not fill the {a.blocks} blocks of {a!r}; at most {_MOST}")
        with self._result(into, a.size) as out:
            if a.place != out.place:
                self._require_apart(out, a)
            place, to, emitter = a.place, out.place, self.context.emitter
            table, prm = self.context.load_wide_table(exponentials.words), self.context.params.take(pixels)
            blocks: Loop = (a.blocks, place.plane, 0, to.plane, 0)
            over: list[Loop] = [
                (a.columns, place.step, 0, to.step, 1), (a.rows, place.line, 0, to.line, a.columns),
            ]  # fmt: skip
            for function in (RowFunction.MAXIMUM, RowFunction.EXP_SUM):
                emitter.row(
                    function, place.base, over, prm=prm, reduce=[blocks], tail=channels % lanes, table=table,
                    number=exponentials.number, exponent=exponentials.exponent,
                )  # fmt: skip
            post = PostFields(zero_point, -128, 127)
            emitter.row(RowFunction.EXP, place.base, [blocks, *over], dst=to.base, prm=prm, table=table, post=post)
        return out
