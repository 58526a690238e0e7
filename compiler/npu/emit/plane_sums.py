"""Sums over the planes of a tensor, added up by the array while the tensor is written: it is not loaded again.

Every finished tile is multiplied with the identity and added up in reserved rows of ACC. Right after the tile the array
would have to wait for VECTOR, so the sums follow the products of the next tile; until then the tile keeps its rows of
ACT.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.scratch import Heap
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig


def sum_rows(config: NpuConfig) -> int:
    """Returns the ACC rows that the sums of one channel block take."""
    return max(1, config.block_in // config.block_out)


def emit_sums(
    context: Context, acc: int, tile: ActTile, size: tuple[int, int], blocks: int, *, accumulate: bool
) -> None:
    """Adds the vectors of a tile to rows of ACC, each channel block to rows of its own.

    Args:
        context: the emission.
        acc: first row of the first channel block.
        tile: the tile in ACT.
        size: rows and columns of the tile.
        blocks: channel blocks of the tile.
        accumulate: False to start the sums from 0.
    """
    config, rows = context.config, sum_rows(context.config)

    def identity() -> np.ndarray:
        return np.eye(rows * config.block_out, config.block_in, dtype=np.int8).reshape(rows, -1, config.block_in)

    wgt = context.load_weights(("identity",), rows, identity)
    lines, columns = size
    context.emitter.gemm(
        tile.base, wgt, acc, [(columns, tile.step, 0, 0), (lines, tile.line, 0, 0)],
        [(rows, 0, 1, 1), (blocks, tile.plane, 0, rows)], accumulate=accumulate,
    )  # fmt: skip


class PlaneSums:
    """The sums over the planes of one tensor, whose ACC rows are reserved until `end`.

    Attributes:
        view: the tensor.
        acc: first row of ACC; the sums follow image by image, channel block by channel block.
    """

    def __init__(self, context: Context, view: View) -> None:
        self.view = view
        self._context = context
        self._rows = self.rows(context.config, view)
        self.acc = context.accumulators.reserve(self._rows)
        self._started: set[tuple[int, int]] = set()
        self._vectors = 0
        self._pending: tuple[Box, ActTile] | None = None

    @staticmethod
    def rows(config: NpuConfig, view: View) -> int:
        """Returns the ACC rows that the sums of a tensor take."""
        return view.n * view.cb * sum_rows(config)

    def add(self, box: Box, tile: ActTile) -> None:
        """Takes over a finished tile, which stays in ACT until the next one or `flush`."""
        self.flush()
        self._pending = box, tile

    def flush(self) -> bool:
        """Adds up the pending tile and frees its rows; returns False if there is none."""
        if self._pending is None:
            return False
        (box, tile), self._pending = self._pending, None
        for started, blocks in self._block_runs(box):
            first = tile._replace(base=tile.base + (blocks[0] - box.block) * tile.plane)
            acc = self.acc + (box.n * self.view.cb + blocks[0]) * sum_rows(self._context.config)
            emit_sums(self._context, acc, first, (box.lines, box.columns), len(blocks), accumulate=started)
        self._vectors += box.vectors
        self._context.release(tile)
        return True

    def move(self, pool: Heap, heap: Heap) -> None:
        """Moves the rows of the pending tile from a pool that ends to the heap around it."""
        if self._pending is not None:
            box, tile = self._pending
            if tile.rows is not None and tile.rows.owner is pool:
                self._pending = box, tile._replace(rows=heap.take_at(tile.rows.start, tile.rows.size))

    def end(self) -> None:
        """Adds up the pending tile and ends the reservation: ACC rows may be reused once their sums have been read."""
        self.flush()
        view = self.view
        assert self._context.emitter.dry or self._vectors == view.n * view.cb * view.h * view.w, "sums of a part"
        self._context.accumulators.give_back(self._rows)

    def _block_runs(self, box: Box) -> Iterator[tuple[bool, list[int]]]:
        """Yields the channel blocks of a box in runs: (True if their sums have started, blocks)."""
        blocks = range(box.block, box.block + box.blocks)
        for started, run in itertools.groupby(blocks, key=lambda block: (box.n, block) in self._started):
            yield started, list(run)
        self._started |= {(box.n, block) for block in blocks}
