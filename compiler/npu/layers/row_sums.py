"""Row sums of the first operand, by which a product of two activations accounts for the second one's zero point.

A product (a - za) * (b - zb) needs -zb * sum(a) for every output of a row. Constant tiles behind the others add it with
as many products as the product itself has. Here the sum of a row is made once, and split by a divisor: quotient and
remainder are bytes, which lie side by side in the lanes of one vector. One more product for each output then adds both,
times the zero point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.tile_program import Loop
from tilewright.compiler.npu.layers.layer import Post
from tilewright.compiler.npu.layers.params import uniform_params
from tilewright.compiler.npu.layers.transposition import Widths
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Source

#: Cycles of VECTOR for every row besides the products, for which the array waits in part.
_VECTOR_CYCLES = 3


class RowSums(Struct, frozen=True):
    """Sums of rows, which a machine splits into quotient and remainder.

    Attributes:
        config: the machine.
        k: elements of a row.
        zero_point: zero point of the second operand.
        divisor: odd divisor of the sums, so that no quotient is a tie.
        steps: products that add quotient and remainder to an output.
    """

    config: NpuConfig
    k: int
    zero_point: int
    divisor: int
    steps: int

    @staticmethod
    def of(config: NpuConfig, k: int, zero_point: int, rows: int) -> RowSums | None:
        """Returns the row sums of a product; None where they do not pay, or a byte does not hold the quotient.

        Args:
            config: the machine.
            k: elements of a row.
            zero_point: zero point of the second operand.
            rows: rows of accumulators for a row of the result.
        """
        lanes, blocks = config.block_in, -(-k // config.block_in)
        divisor = (128 * k // 127 + 1) | 1
        steps = -(-abs(zero_point) * divisor // (127 * (lanes - 1)))
        steps = max(steps, 1 + (zero_point == -128))  # +128 is no byte
        constant_tiles = rows * blocks * (1 + (zero_point == -128))
        pays = rows * steps + blocks + 1 + _VECTOR_CYCLES < constant_tiles
        return RowSums(config, k, zero_point, divisor, steps) if zero_point and divisor <= 255 and pays else None

    def add(
        self, context: Context, tile: int, plane: int, outer: Sequence[Loop], first: int, piece: int, acc: int
    ) -> None:
        """Emits GEMM that adds some input blocks of every row to accumulators, which start at 0 with the first block.

        Args:
            context: the emission.
            tile: ACT row of the first vector.
            plane: ACT rows from one block to the next.
            outer: loops over the rows.
            first, piece: first input block, and number of them.
            acc: first row of ACC.
        """
        m, (whole, tail) = Widths.of(self.config).narrow, divmod(self.k, self.config.block_in)
        wgt = _constant_tiles(context, 1, tail)
        loops = [*((n, a, 0, c) for n, a, _, c in outer), (m, 0, 0, 1)]
        full = max(0, min(first + piece, whole) - first)
        if full:
            context.emitter.gemm(tile, wgt, acc, [(full, plane, 0, 0)], loops, accumulate=first > 0)
        if tail and first <= whole < first + piece:
            at = tile + (whole - first) * plane
            context.emitter.gemm(at, wgt + 1, acc, [], loops, accumulate=first + full > 0)

    def divide(self, context: Context, acc: int, to: int, rows: int) -> None:
        """Emits VECTOR that writes the quotients of `rows` sums to ACT from row `to` on, in all lanes."""
        self._requantise(context, acc, to, rows, uniform_params(context, 0, np.float32(1 / self.divisor)))

    def split(self, context: Context, acc: int, quotients: int, to: int, rows: int) -> None:
        """Emits the products and the VECTOR pass that write quotients, and remainders in the last lane, to ACT.

        Args:
            context: the emission.
            acc: first row of ACC.
            quotients: ACT row of the first quotient, as `divide` writes them.
            to: first ACT row of the result.
            rows: number of sums.
        """
        config = self.config
        lanes, m = config.block_in, Widths.of(config).narrow

        def divisor_tile() -> np.ndarray:
            tile = np.zeros((1, config.block_out, lanes), np.int8)
            tile[0, (lanes - 1) % config.block_out, :2] = -min(self.divisor, 128), -max(self.divisor - 128, 0)
            return tile

        wgt = context.load_weights(("rests of row sums", self.divisor), 1, divisor_tile)
        context.emitter.gemm(quotients, wgt, acc + m - 1, [], [(rows, 1, 0, m)], accumulate=True)
        scale = np.full(lanes, 1 / self.divisor, np.float32)
        scale[-1] = 1
        prm = context.load_params(("row sums", self.divisor), 1, lambda: (np.zeros(lanes, np.int32), scale))
        self._requantise(context, acc, to, rows, prm)

    def correct(self, context: Context, parts: int, outer: Sequence[Loop], acc: int) -> None:
        """Emits GEMM that adds the zero point's part to every output.

        Args:
            context: the emission.
            parts: first ACT row of the quotients and remainders that `split` wrote.
            outer: loops over the outputs.
            acc: first row of ACC.
        """
        lanes, steps = self.config.block_in, self.steps

        def tiles() -> np.ndarray:
            quotients = _even_shares(-self.zero_point * self.divisor, steps * (lanes - 1)).reshape(steps, 1, lanes - 1)
            rests = _even_shares(-self.zero_point, steps).reshape(steps, 1, 1)
            both = np.concatenate([quotients, rests], axis=2)
            return np.broadcast_to(both, (steps, self.config.block_out, lanes)).astype(np.int8)

        wgt = context.load_weights(("zero point", self.zero_point, self.divisor), steps, tiles)
        context.emitter.gemm(parts, wgt, acc, [(steps, 0, 1, 0)], outer, accumulate=True)

    def _requantise(self, context: Context, acc: int, to: int, rows: int, prm: int) -> None:
        """Emits VECTOR that requantises `rows` sums to ACT from row `to` on, with the parameters of PRM row `prm`."""
        config, post = self.config, Post()
        context.emitter.vector(
            Source.ACC, acc * config.block_out // config.block_in, to, [(rows, Widths.of(config).wide, 0, 1, 0)],
            prm=prm, rounding=post.rounding, post=post.fields,
        )  # fmt: skip


def _even_shares(total: int, count: int) -> np.ndarray:
    """Returns `count` integers whose sum is `total`, as equal as possible."""
    return total // count + (np.arange(count) < total % count)


def add_by_tiles(
    context: Context,
    k: int,
    zero_point: int,
    tile: int,
    plane: int,
    outer: Sequence[Loop],
    first: int,
    piece: int,
    acc: int,
) -> None:
    """Emits GEMM with constant tiles that adds -zero_point times the sum of some input blocks to every output.

    Args:
        context: the emission.
        k: elements of a row.
        zero_point: zero point of the second operand, 0 for none.
        tile: ACT row of the first vector.
        plane: ACT rows from one block to the next.
        outer: loops over the outputs.
        first, piece: first input block, and number of them.
        acc: first row of ACC.
    """
    config = context.config
    whole, tail = divmod(k, config.block_in)
    still = [(n, a, 0, c) for n, a, _, c in outer]
    full = max(0, min(first + piece, whole) - first)
    rest = -zero_point
    while rest:
        value = max(-128, min(127, rest))
        rest -= value
        wgt = _constant_tiles(context, value, tail)
        if full:
            context.emitter.gemm(tile, wgt, acc, [(full, plane, 0, 0)], still, accumulate=True)
        if tail and first <= whole < first + piece:
            context.emitter.gemm(tile + (whole - first) * plane, wgt + 1, acc, [], still, accumulate=True)


def _constant_tiles(context: Context, value: int, tail: int) -> int:
    """Loads two tiles of a value into WGT, the second with only the first `tail` lanes; returns the first row."""
    config = context.config

    def tiles() -> np.ndarray:
        both = np.full((2, config.block_out, config.block_in), value, np.int8)
        both[1, :, tail:] = 0
        return both

    return context.load_weights(("constant tiles", value, tail), 2, tiles)
