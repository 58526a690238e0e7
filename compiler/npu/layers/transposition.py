"""Transposition of rows and channels by the array: the tensor becomes the weights of products with the identity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.layers.accumulators import emit_accumulators
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.params import uniform_params
from tilewright.compiler.npu.layers.tiling import OutputPart, PlaneTiling, even_parts
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory


class Widths(Struct, frozen=True):
    """Ratio of channel blocks of activations to rows of accumulators on a machine.

    Attributes:
        wide: channel blocks in a row of accumulators.
        narrow: rows of accumulators for a channel block.
    """

    wide: int
    narrow: int

    @staticmethod
    def of(config: NpuConfig) -> Widths:
        """Returns the ratio on a machine."""
        bi, bo = config.block_in, config.block_out
        return Widths(max(1, bo // bi), max(1, bi // bo))

    def rows(self, blocks: int) -> int:
        """Returns the rows of accumulators, and of weight tiles, for `blocks` channel blocks."""
        return -(-blocks // self.wide) * self.narrow


@dataclass
class TransposeLayer(Layer):
    """Transposition of x [N, C, 1, W] in external memory to [N, W, 1, C], by products with the identity.

    Channel c of pixel w becomes channel w of pixel c. Lanes behind the last channel of the result are 0. The first
    input is the identity, a vector for each lane of a block.

    Attributes:
        source_rows: view of x.
    """

    datapath = "array"

    source_rows: View = field(kw_only=True)

    @property
    def fusible(self) -> bool:
        return False

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterator[TilePlan[PlaneTiling]]:
        """Yields the plan for one channel block of x at a time, and as many of its rows as fit."""
        config, y = context.config, self.output
        widths, columns = Widths.of(config), min(config.block_in, y.w)
        for blocks in even_parts(y.cb):
            rows = widths.rows(blocks)
            pools = Pools(config.block_in, 0 if context.on_chip(y) else 2 * columns * blocks, 0)
            fits = 2 * rows * columns <= config.acc_rows and 2 * rows <= config.wgt_tiles and blocks <= config.prm_rows
            if blocks % widths.wide == 0 or blocks == y.cb:
                if fits and sum(pools) <= budget:
                    yield TilePlan(PlaneTiling(1, columns, blocks), pools)
                    if not every:
                        return

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        y, block = self.output, context.config.block_in
        with context.pools(plan.pools):
            identity = context.read_tile(self.inputs[0], Box(0, 0, 1, 0, 1, 0, block))
            for n in range(y.n):
                for column in range(0, y.w, block):
                    for first in range(0, y.cb, plan.tiling.blocks):
                        blocks = min(plan.tiling.blocks, y.cb - first)
                        box = Box(n, first, blocks, 0, 1, column, min(column + block, y.w))
                        self._tile(context, box, identity.base)
            context.release(identity)

    def _tile(self, context: Context, box: Box, identity: int) -> None:
        """Emits one box of the output; `identity` is the ACT row of the identity."""
        config, x = context.config, self.source_rows
        widths, bi, bo = Widths.of(config), config.block_in, config.block_out
        rows, columns, m = widths.rows(box.blocks), box.columns, widths.narrow
        out = context.write_tile(self.output, box)
        wgt = context.weights.take(rows)
        # Behind the last row of x lies something else: its results are multiplied by 0.
        context.emitter.load(context.place(x, box.n, box.x0 // bi, 0, box.block * bi), Memory.WGT, wgt, rows)
        acc = context.accumulators.take(columns * rows)
        outer = [(columns, 1, 0, m), (m, 0, 1, 1), (rows // m, 0, m, columns * m)]
        context.emitter.gemm(identity, wgt, acc, [], outer)
        lanes = np.arange(box.block * bi, (box.block + box.blocks) * bi)
        scale = (lanes < self.output.c).astype(np.float32)
        if scale.all():
            prm, step = uniform_params(context, 0, np.float32(1)), 0
        else:
            key = ("ones", scale.tobytes())
            prm, step = context.load_params(key, box.blocks, lambda: (np.zeros(len(lanes), np.int32), scale)), 1
        emit_accumulators(
            context, self.post, acc * bo // bi, (widths.wide, columns * widths.wide, columns * widths.wide),
            (columns, 1, box.blocks), out, (1, 1), prm, None, widths.wide, step,
        )  # fmt: skip
        context.finish_tile(self.output, box, out)
