"""16-bit activations as two tensors of bytes, and the 16-bit results that VECTOR_WIDE makes of the sums of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.tiles import NO_TILE
from tilewright.compiler.npu.layers.accumulators import accumulator_nests
from tilewright.compiler.npu.views import BYTE_ORDER
from tilewright.isa import wide_numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import WideByte
from tilewright.kernel.constants import Params, digest, int8_array
from tilewright.kernel.errors import KernelError, call
from tilewright.kernel.machine import Target, operation, require_field, require_size
from tilewright.kernel.places import Tile
from tilewright.kernel.sums import Sums
from tilewright.kernel.vector import VectorMachine


class WideParams(Params):
    """Biases and scales of 16-bit results, one pair for each channel.

    Args:
        config: the machine.
        weights: int8 [outputs, ...] of the products, of which low bytes lack 128 each.
        bias: integers [outputs], or one for all.
        scale: floats [outputs], or one for all.

    Attributes:
        multipliers, shifts: int64 [outputs], as LiteRT applies scales to 64-bit sums.
    """

    def __init__(self, config: NpuConfig, weights: Any, bias: Any, scale: Any) -> None:
        values = int8_array("weights", weights, (2, 3, 4)).astype(np.int64)
        count = len(values)
        try:
            whole = np.broadcast_to(np.asarray(bias, np.int64), count)
            scales = np.broadcast_to(np.asarray(scale, np.float64), count)
            pairs = [wide_numerics.wide_multiplier(float(real)) for real in scales]
            self.multipliers, self.shifts = (np.array(numbers, np.int64) for numbers in zip(*pairs, strict=True))
            lacking = 128 * values.reshape(count, -1).sum(1)
            words = wide_numerics.wide_parameters(whole + lacking, self.multipliers, self.shifts)
        except (ValueError, OverflowError) as error:
            raise KernelError(f"biases and scales of {count} channels: {error}") from None
        self.config, self.channels, (self.bias, self.scale) = config, count, words
        self.key = digest(self.bias, self.scale, "wide")


class WideMachine(VectorMachine):
    """The part of `Chip` for 16-bit results, on machines with `wide_results`."""

    @call
    def wide_params(self, weights: Any, bias: Any = 0, scale: Any = 1.0) -> WideParams:
        """Returns biases and scales of 16-bit results; see `WideParams`."""
        if not self.config.wide_results:
            raise KernelError(f"{self.config.name!r} makes no 16-bit results: wide_results = 0 in its configuration")
        return WideParams(self.config, weights, bias, scale)

    @operation
    def requantise_wide(
        self,
        high: Sums,
        low: Sums,
        params: WideParams,
        *,
        least: int = -(1 << 15),
        most: int = (1 << 15) - 1,
        into: tuple[Target, Target] = (None, None),
    ) -> tuple[Tile, Tile]:
        """Turns sums of both bytes of 16-bit activations into 16-bit results: a tile of high bytes, one of low ones.

        A value is 256 * high + low + 128, so padding of 0 is 0 in high bytes and -128 in low ones.

        Args:
            high, low: sums with the same weights.
            params: biases and scales, `wide_params(...)`.
            least, most: limits of the results.
            into: tiles, or parts of tensors in DRAM, for high and low bytes; None for new tiles.
        """
        require_size("the sums of low bytes", low.size, high.size)
        for name, value in (("least", least), ("most", most)):
            require_field("VECTOR_WIDE", "low", value, name=name)
        blocks, lines, columns = high.size
        made = []
        for byte, target in zip(BYTE_ORDER, into, strict=True):
            with self._result(target, high.size) as out:
                prm = params.load(self.context, high.first_block, blocks)
                for block, first, loops in accumulator_nests(
                    high.strides, (columns, lines, blocks), out.place, (1, 1), NO_TILE, high.slices
                ):
                    self.context.emitter.vector_wide(
                        byte, high.vector + first, out.place.base + block * out.place.plane, loops, prm=prm + block,
                        reduce=[(2, low.vector - high.vector, 0, 0, 0)], low=least, high=most,
                    )  # fmt: skip
            made.append(out)
        return made[0], made[1]


def bytes_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the high and the low bytes of int16 values as kernels have them, int8 of the same shape."""
    return wide_numerics.wide_byte(values, WideByte.HIGH), wide_numerics.wide_byte(values, WideByte.LOW)


def int16_of(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns int16 values of their high and low bytes."""
    return np.asarray(256 * high.astype(np.int32) + low + 128, np.int16)
