"""Biases of a product of two activations, which the machine makes in the format of PRM.

A product (a - za) * (b - zb) needs -za * sum(b - zb) for each of its outputs. The tensor b becomes the weights, a
constant vector is multiplied with them, and the sums in the accumulators are split into bytes, the highest first: a
byte is the floor of a quotient by a power of two, it is subtracted from the accumulators by products with the identity,
and the remainder gives the next byte. To get floors from a unit that rounds, the accumulators hold twice the sums, so
that an odd bias never leaves a tie. In the end products with a matrix of 0 and 1 put the bytes at their places in a row
of PRM, and those of the scale beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.emit.tile_program import PostFields
from tilewright.compiler.npu.layers.accumulators import emit_accumulators
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.params import uniform_params
from tilewright.compiler.npu.layers.tiling import OutputPart, PlaneTiling, even_parts
from tilewright.compiler.npu.layers.transposition import Widths
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory, Source

#: Bytes of a pair of bias and scale, and of its bias.
PAIR_BYTES, BIAS_BYTES = 8, 4
#: Biases from here on are left to the CPU: twice their value exceeds the 24 bits of a float.
MAX_BIAS = (1 << 23) - (1 << 15)
_AS_BYTES = Post(zp=-128)


def _byte_table(shift: int) -> bytes:
    """Returns the table that turns a byte stored minus 128 into the byte itself, shifted left by `shift` bits."""
    return bytes((np.arange(256, dtype=np.uint8) ^ 0x80) << shift)


def int8_parts(value: int) -> list[int]:
    """Returns int8 values whose sum is `value`; [0] for 0."""
    found = []
    while value:
        found.append(max(-128, min(127, value)))
        value -= found[-1]
    return found or [0]


@dataclass
class ProductParamsLayer(Layer):
    """PRM rows for every block of outputs: bias `factor * sum(b) + constant`, and one scale.

    The first input is a constant: vectors whose lanes add up to twice the factor, without its low zero bits. The output
    is the PRM rows as vectors of bytes, [N, 8 * block, blocks, 1].

    Attributes:
        rows: b, with a row for each output of the product, in external memory. Lanes without a value must be 0.
        low_zero_bits: number of low bits that are 0 in every bias.
        constant: the constant in every bias.
        max_bias: largest magnitude of the biases.
        scale: scale of all outputs.
    """

    datapath = "array"

    rows: View = field(kw_only=True)
    low_zero_bits: int = 0
    constant: int = 0
    max_bias: int = 0
    scale: np.float32 = field(default_factory=lambda: np.float32(1))

    @property
    def fusible(self) -> bool:
        return False

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterator[TilePlan[PlaneTiling]]:
        """Yields the plan with as many images at a time as fit.

        A tile has all blocks of its images; `lines` of the tiling are images.
        """
        y = self.output
        for images in even_parts(y.n):
            vectors = images * _padded(context.config, y.h)
            pools = Pools(self.inputs[0].w, 2 * PAIR_BYTES * y.h, 6 * vectors)
            if params_fit(context.config, images, y.h) and sum(pools) <= budget:
                yield TilePlan(PlaneTiling(images, y.h, PAIR_BYTES), pools)
                if not every:
                    return

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        with context.pools(plan.pools):
            constants = context.read_tile(self.inputs[0], Box(0, 0, 1, 0, 1, 0, self.inputs[0].w))
            for first in range(0, self.output.n, plan.tiling.lines):
                self._emit_images(context, range(first, min(first + plan.tiling.lines, self.output.n)), constants.base)
            context.release(constants)

    def _emit_images(self, context: Context, images: range, constants: int) -> None:
        """Emits the parameters of some images."""
        config, y = context.config, self.output
        per_image = _padded(config, y.h)
        vectors = len(images) * per_image
        rows = Widths.of(config).rows(vectors)
        acc = context.accumulators.take(rows)
        for number, n in enumerate(images):
            self._emit_sums(context, n, constants, acc + number * rows // len(images))
        room = context.room(6 * vectors, "operand")
        low, second, high, sign, part, minus = (room.start + i * vectors for i in range(6))
        extractor, zero_bits = (
            _ByteExtractor(context, acc, vectors, 2 * self.constant >> self.low_zero_bits),
            self.low_zero_bits,
        )
        # Bits 16 and more; times a power of two that still fits a byte, to be subtracted in fewer steps.
        bits = 7 - (self.max_bias >> 16).bit_length()
        extractor.floor(high, 17 - zero_bits, Post())
        extractor.floor(sign, 17 - zero_bits, Post(low=-1, high=0))
        extractor.shifted(minus, high, bits)
        extractor.subtract(minus, 17 - zero_bits - bits)
        extractor.floor(part, 9 - zero_bits, _AS_BYTES)
        extractor.floor(second, 9 - zero_bits, _AS_BYTES, _byte_table(0))
        extractor.subtract(part, 9 - zero_bits)
        extractor.bias -= 1 << 16 - zero_bits  # the subtracted byte is stored minus 128
        extractor.floor(low, 1, _AS_BYTES, _byte_table(zero_bits))
        for number, n in enumerate(images):
            self._emit_placement(context, n, low + number * per_image, vectors)
        room.free()

    def _emit_sums(self, context: Context, n: int, constants: int, acc: int) -> None:
        """Emits the products that put twice the factor times the sums of image n into ACC from row `acc` on."""
        config, x, emitter = context.config, self.rows, context.emitter
        m, rows, bo = Widths.of(config).narrow, Widths.of(config).rows(self.output.h), config.block_out
        piece = max(1, min(x.cb, config.wgt_tiles // 2 // rows))
        for first in range(0, x.cb, piece):
            count = min(piece, x.cb - first)
            wgt = context.weights.take(rows * count)
            place = context.place(x, n, first, 0, 0)
            emitter.load(place, Memory.WGT, wgt, 1, y=(rows, count, bo * x.block), z=(count, 1, x.sc))
            emitter.gemm(
                constants, wgt, acc, [(count, 0, 1, 0), (self.inputs[0].w, 1, 0, 0)],
                [(m, 0, count, 1), (rows // m, 0, count * m, m)], accumulate=first > 0,
            )  # fmt: skip

    def _emit_placement(self, context: Context, n: int, low: int, vectors: int) -> None:
        """Emits the products that put the bytes of image n at their places in PRM rows, and stores these."""
        config, y = context.config, self.output
        widths, bi = Widths.of(config), config.block_in
        m, wide, rows, blocks = widths.narrow, widths.wide, widths.rows(PAIR_BYTES), y.h
        box = Box(n, 0, PAIR_BYTES, 0, blocks, 0, 1)
        out = context.write_tile(y, box)
        wgt = context.load_weights(("bytes of PRM",), BIAS_BYTES * rows, lambda: _placement_tiles(config, rows))
        acc = context.accumulators.take(blocks * rows)
        context.emitter.gemm(
            low, wgt, acc, [(BIAS_BYTES, vectors, 1, 0)],
            [(blocks, 1, 0, m), (m, 0, BIAS_BYTES, 1), (rows // m, 0, BIAS_BYTES * m, blocks * m)],
        )  # fmt: skip
        value = np.zeros((bi, PAIR_BYTES), np.int32)
        value[:, BIAS_BYTES:] = np.frombuffer(np.float32(self.scale).tobytes(), np.int8)
        prm = context.load_params(
            ("scale", float(self.scale)), PAIR_BYTES, lambda: (value.reshape(-1), np.ones(bi * PAIR_BYTES, np.float32))
        )
        emit_accumulators(
            context, self.post, acc * config.block_out // bi, (wide, wide, blocks * wide), (1, blocks, PAIR_BYTES), out,
            (1, 1), prm, None, wide,
        )  # fmt: skip
        context.finish_tile(y, box, out)


def params_fit(config: NpuConfig, images: int, blocks: int) -> bool:
    """Returns True if a machine can make the parameters of so many images and blocks of outputs at a time."""
    widths, vectors = Widths.of(config), images * _padded(config, blocks)
    acc = widths.rows(vectors) + 2 * widths.rows(PAIR_BYTES) * blocks
    enough = (
        2 * widths.rows(blocks) <= config.wgt_tiles and 2 * BIAS_BYTES * widths.rows(PAIR_BYTES) <= config.wgt_tiles
    )
    return (
        enough
        and 2 * acc <= config.acc_rows
        and 6 * vectors <= config.act_rows // 4
        and config.prm_rows >= 2 * PAIR_BYTES
    )


def _padded(config: NpuConfig, blocks: int) -> int:
    """Returns the vectors of accumulators for `blocks` blocks of outputs, in whole ACC rows."""
    wide = Widths.of(config).wide
    return -(-blocks // wide) * wide


def _placement_tiles(config: NpuConfig, rows: int) -> np.ndarray:
    """Returns tiles that put byte j of lane i, channel i of block j, at byte 8 * i + j of a PRM row."""
    bi, bo = config.block_in, config.block_out
    found = np.zeros((rows * bo, BIAS_BYTES, bi), np.int8)
    lane, byte = np.divmod(np.arange(PAIR_BYTES * bi), PAIR_BYTES)
    chosen = np.flatnonzero(byte < BIAS_BYTES)
    found[chosen, byte[chosen], lane[chosen]] = 1
    return found.reshape(rows, bo, BIAS_BYTES, bi).transpose(0, 2, 1, 3).reshape(-1, bo, bi)


class _ByteExtractor:
    """Accumulators from which bytes are extracted and subtracted.

    Attributes:
        bias: a constant that belongs to every accumulator besides its contents.
    """

    def __init__(self, context: Context, acc: int, vectors: int, bias: int) -> None:
        self.context, self.acc, self.vectors, self.bias = context, acc, vectors, bias

    def floor(self, to: int, bits: int, post: Post, table: bytes | None = None) -> None:
        """Emits VECTOR that writes floor(accumulator / 2**bits) to rows of ACT.

        Args:
            to: first row of ACT.
            post, table: operations on the quotient.
        """
        context, config = self.context, self.context.config
        down = 1 - (1 << bits - 1)  # rounds down instead of to nearest; 0 for halves, which are exact
        prm = uniform_params(context, self.bias + down, np.float32(2**-bits))
        context.emitter.vector(
            Source.ACC, self.acc * config.block_out // config.block_in, to, [(self.vectors, 1, 0, 1, 0)], prm=prm,
            lut=context.load_table(table), rounding=post.rounding, post=post.fields,
        )  # fmt: skip

    def shifted(self, to: int, source: int, bits: int) -> None:
        """Emits VECTOR that writes rows of ACT times 2**bits to rows from `to` on."""
        constants = {"ma": 1 << bits, "mb": 0, "c": 0, "shift": 0}
        self.context.emitter.vector(
            Source.ACT, source, to, [(self.vectors, 1, 1, 1, 0)], b=source, add=True,
            post=PostFields(add_lo=-128, add_hi=127), constants=constants,
        )  # fmt: skip

    def subtract(self, source: int, bits: int) -> None:
        """Emits products that subtract rows of ACT times 2**bits from the accumulators."""
        config, widths = self.context.config, Widths.of(self.context.config)
        m, wide, factor = widths.narrow, widths.wide, -(1 << min(bits, 7))

        def identity() -> np.ndarray:
            lanes = factor * np.eye(m * config.block_out, wide * config.block_in, dtype=np.int16)
            shape = (m, config.block_out, wide, config.block_in)
            return lanes.astype(np.int8).reshape(shape).transpose(0, 2, 1, 3).reshape(m * wide, *shape[1::2])

        wgt = self.context.load_weights(("identity", factor), m * wide, identity)
        self.context.emitter.gemm(
            source, wgt, self.acc, [(wide, 1, 1, 0), (1 << max(0, bits - 7), 0, 0, 0)],
            [(m, 0, wide, 1), (self.vectors // wide, wide, 0, m)], accumulate=True,
        )  # fmt: skip
