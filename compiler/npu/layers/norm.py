"""Normalisation layers by ROW: over channels, and over groups of pixels with a scale for each pixel."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.layers.elementwise import VectorLayer
from tilewright.compiler.npu.layers.params import channel_params
from tilewright.compiler.npu.layers.tiling import PlaneTiling
from tilewright.compiler.npu.views import View
from tilewright.isa.instructions import RowFunction
from tilewright.isa.row_bits import EPSILON_FRACTION


@dataclass
class NormLayer(VectorLayer):
    """Normalisation over the channels: the statistics of some pixels into STAT, then their results.

    Each channel has a scale and a bias.

    Attributes:
        words: table of MOMENTS or POWER, 256 little-endian words by stored byte.
        epsilon: term that these add to the radicand, with EPSILON_FRACTION bits of a fraction.
        centred: True for MOMENTS, which subtracts the mean; False for POWER.
        scale, bias: float32 and int32 [channels], in the format of NORM.
    """

    words: bytes = b""
    epsilon: int = 0
    centred: bool = True
    scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def dense(self) -> bool:
        return True

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        parameters = self._parameters()
        return ((self.words, len(self.words)), (parameters, len(parameters)))

    def _parameters(self) -> bytes:
        """Returns the bytes of biases and scales, by which equal ones are found."""
        return self.bias.tobytes() + self.scale.tobytes()

    def _tilings(self, y: View) -> Iterator[PlaneTiling]:
        for parts in range(1, y.w + 1):
            yield PlaneTiling(1, -(-y.w // parts), y.cb)

    def emit_tile(self, context: Context, box: Box) -> None:
        a, out = context.read_tile(self.inputs[0], box), context.write_tile(self.output, box)
        config, post = context.config, self.post.fields
        table = context.load_wide_table(self.words)
        epsilon = {"c": self.epsilon >> EPSILON_FRACTION, "ma": self.epsilon % (1 << EPSILON_FRACTION)}
        most = config.prm_rows  # pixels STAT has room for
        for x in range(0, box.columns, most):
            columns = min(most, box.columns - x)
            source, target = a.from_vector(0, x), out.from_vector(0, x)
            context.emitter.row(
                RowFunction.MOMENTS if self.centred else RowFunction.POWER, source.base,
                [(columns, a.step, 0, 0, 1)], reduce=[(box.blocks, a.plane, 0, 0, 0)], prm=0,
                tail=self.output.c % config.block_in, number=self.output.c, table=table, post=post,
                constants=epsilon,
            )  # fmt: skip
            part = max(1, config.prm_rows // 2)  # half of PRM is left to what comes before and behind
            for block in range(0, box.blocks, part):
                blocks = min(part, box.blocks - block)
                prm = self._load_parameters(context, block, blocks)
                context.emitter.row(
                    RowFunction.NORM, source.base + block * a.plane,
                    [(blocks, a.plane, 0, out.plane, 1), (columns, a.step, 1, out.step, 0)],
                    dst=target.base + block * out.plane, prm=prm, post=post,
                )  # fmt: skip
        context.release(a)
        context.finish_tile(self.output, box, out)

    def _load_parameters(self, context: Context, block: int, blocks: int) -> int:
        """Loads the PRM rows of some channel blocks, 0 in lanes without a channel; returns the first row."""
        lanes = context.config.block_in
        return context.load_params(
            (self._parameters(), block, blocks), blocks,
            lambda: channel_params(self.bias, self.scale, block, blocks, lanes),
        )  # fmt: skip


@dataclass
class RowGroupNorm(NormLayer):
    """Normalisation over groups of neighbouring pixels with all their channels.

    Each pixel has a scale and a bias.

    Attributes:
        group_size: pixels of a group. If there are several, channels fill their blocks.
        scale, bias: float32 and int32 [pixels].
    """

    group_size: int = 1

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        parameters = self._parameters()
        return ((self.words, len(self.words)), (parameters, len(parameters) * self.output.block))

    def _tilings(self, y: View) -> Iterator[PlaneTiling]:
        groups = y.w // self.group_size
        for parts in range(1, groups + 1):
            yield PlaneTiling(1, -(-groups // parts) * self.group_size, y.cb)

    def emit_tile(self, context: Context, box: Box) -> None:
        a, out = context.read_tile(self.inputs[0], box), context.write_tile(self.output, box)
        config, post, group_size = context.config, self.post.fields, self.group_size
        table = context.load_wide_table(self.words)
        epsilon = {"c": self.epsilon >> EPSILON_FRACTION, "ma": self.epsilon % (1 << EPSILON_FRACTION)}
        # Half of PRM is left to what comes before and behind; STAT has as many rows.
        most = max(1, config.prm_rows // 2 // group_size) * group_size
        for x in range(0, box.columns, most):
            columns = min(most, box.columns - x)
            groups, source, target = columns // group_size, a.from_vector(0, x), out.from_vector(0, x)
            context.emitter.row(
                RowFunction.MOMENTS, source.base, [(groups, group_size * a.step, 0, 0, 1)],
                reduce=[(box.blocks, a.plane, 0, 0, 0), (group_size, a.step, 0, 0, 0)], prm=0,
                tail=self.output.c % config.block_in, number=self.output.c * group_size, table=table, post=post,
                constants=epsilon,
            )  # fmt: skip
            context.emitter.row(
                RowFunction.NORM, source.base,
                [
                    (box.blocks, a.plane, 0, out.plane, 0), (group_size, a.step, 0, out.step, 1),
                    (groups, group_size * a.step, 1, group_size * out.step, group_size),
                ],
                dst=target.base, prm=self._load_rows(context, box.x0 + x, columns), post=post,
            )  # fmt: skip
        context.release(a)
        context.finish_tile(self.output, box, out)

    def _load_rows(self, context: Context, first: int, count: int) -> int:
        """Loads the PRM rows of some pixels, all lanes alike; returns the first row."""
        lanes, rows = context.config.block_in, slice(first, first + count)

        def make() -> tuple[np.ndarray, np.ndarray]:
            return np.repeat(self.bias[rows], lanes), np.repeat(self.scale[rows], lanes)

        return context.load_params((self._parameters(), "pixels", first, count), count, make)
