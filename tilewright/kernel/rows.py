"""Softmax and norms over the channels by ROW, on machines with the row unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.tile_program import Loop, PostFields
from tilewright.isa import numerics
from tilewright.isa.instructions import ROW_SUM_BITS, RowFunction
from tilewright.isa.row_bits import EPSILON_FRACTION
from tilewright.isa.row_norm import MAX_COUNT
from tilewright.kernel.constants import Params
from tilewright.kernel.errors import KernelError, call
from tilewright.kernel.machine import Target, operation, require_field
from tilewright.kernel.norms import Norm
from tilewright.kernel.places import Tile
from tilewright.kernel.wide import WideMachine

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
        words: bytes = self.steps[-np.arange(256) % 256].astype("<u4").tobytes()
        return words

    def of(self, x: np.ndarray, zero_point: int = -128) -> np.ndarray:
        """Returns the softmax of the last axis in numpy, to the byte: int8 of the shape of `x`."""
        found = np.empty(x.shape, np.int8)
        for row, result in zip(x.reshape(-1, x.shape[-1]), found.reshape(-1, x.shape[-1]), strict=True):
            terms = self.steps[int(row.max()) - row.astype(np.int64)]
            scale = numerics.row_scale(int(terms.sum()), self.number, self.exponent)
            result[:] = numerics.requantize(terms, np.uint32(scale), zero_point, -128, 127)
        return found


class RowMachine(WideMachine):
    """ROW's part of `Chip`."""

    @call
    def exponentials(self, scale: float, levels: float = 255.0) -> Exponentials:
        """Returns the constants of a softmax; see `Exponentials`."""
        self._require_row_unit()
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
        self._require_channels(a, channels, _MOST)
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

    @call
    def normalisation(
        self,
        gamma: Any,
        beta: Any = None,
        *,
        epsilon: float = 1e-5,
        steps: tuple[float, float] = (1.0, 1.0),
        zero_points: tuple[int, int] = (0, 0),
        centred: bool = False,
    ) -> Norm:
        """Returns the constants of RMSNorm, or of LayerNorm with `centred`; see `Norm`."""
        self._require_row_unit()
        return Norm(self.config, gamma, beta, epsilon, steps, zero_points, centred)

    @operation
    def norm(self, a: Tile, norm: Norm, *, into: Target = None) -> Tile:
        """Normalises the channels of every pixel of a tile."""
        a = a.read("norm")
        require_field("VECTOR_POST", "zp", norm.zero_point, name="zero_point")
        self._require_channels(a, norm.channels, MAX_COUNT)
        if max(a.rows * a.columns, a.blocks) > self.config.prm_rows:
            raise KernelError(f"{a!r} has more pixels or blocks than the {self.config.prm_rows} rows of PRM")
        with self._result(into, a.size) as out:
            if a.place != out.place:
                self._require_apart(out, a)
            place, to, post = a.place, out.place, PostFields(norm.zero_point, -128, 127)
            epsilon = {"c": norm.radicand >> EPSILON_FRACTION, "ma": norm.radicand % (1 << EPSILON_FRACTION)}
            self.context.emitter.row(
                RowFunction.MOMENTS if norm.centred else RowFunction.POWER, place.base,
                [(a.columns, place.step, 0, 0, 1), (a.rows, place.line, 0, 0, a.columns)], prm=0,
                reduce=[(a.blocks, place.plane, 0, 0, 0)], tail=norm.channels % self.lanes, number=norm.channels,
                table=self.context.load_wide_table(norm.words), post=post, constants=epsilon,
            )  # fmt: skip
            params = Params.of_words(self.config, norm.bias, norm.scale)
            self.context.emitter.row(
                RowFunction.NORM, place.base,
                [(a.blocks, place.plane, 0, to.plane, 1), (a.columns, place.step, 1, to.step, 0),
                 (a.rows, place.line, a.columns, to.line, 0)],
                dst=to.base, prm=params.load(self.context, 0, a.blocks), post=post,
            )  # fmt: skip
        return out

    def _require_row_unit(self) -> None:
        """Raises `KernelError` on a machine without ROW."""
        if not self.config.row_unit:
            raise KernelError(f"{self.config.name!r} has no row unit: row_unit = 0 in its configuration")

    def _require_channels(self, a: Tile, channels: int, most: int) -> None:
        """Raises `KernelError` for channels that are not those of a tile."""
        if -(-channels // self.lanes) != a.blocks or channels > most:
            raise KernelError(f"{channels} channels do not fill the {a.blocks} blocks of {a!r}; at most {most}")
