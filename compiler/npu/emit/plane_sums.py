"""Sums over the planes of a tensor, made by the array while the tensor is made: nobody has to load it again for them.

Every finished tile is multiplied with the identity and added up in rows of ACC that are kept for it. The array would
wait for VECTOR if that came right after the tile: it comes after the products of the next one, until which the tile
keeps its rows of ACT.
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
    """Rows of ACC that a plane's sums take."""
    return max(1, config.block_in // config.block_out)


def emit_sums(
    context: Context, acc: int, tile: ActTile, size: tuple[int, int], blocks: int, *, accumulate: bool
) -> None:
    """Adds the vectors of a tile to rows of ACC, those of every channel block to rows of its own.

    Args:
        acc: first row of the first channel block.
        size: rows and columns of the tile.
        accumulate: False begins the sums.
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
    """The sums of one tensor, whose rows of ACC are kept from here to `end`.

    Attributes:
        acc: their first row of ACC: image by image, channel block by channel block.
    """

    def __init__(self, context: Context, view: View) -> None:
        self.view = view
        self._context = context
        self._rows = self.rows(context.config, view)
        self.acc = context.accumulators.reserve(self._rows)
        self._begun: set[tuple[int, int]] = set()
        self._vectors = 0
        self._waiting: tuple[Box, ActTile] | None = None

    @staticmethod
    def rows(config: NpuConfig, view: View) -> int:
        """Rows of ACC that they take."""
        return view.n * view.cb * sum_rows(config)

    def add(self, box: Box, tile: ActTile) -> None:
        """Takes over a finished tile."""
        self.flush()
        self._waiting = box, tile

    def flush(self) -> bool:
        """Adds up the tile that waits, if there is one, and frees its rows."""
        if self._waiting is None:
            return False
        (box, tile), self._waiting = self._waiting, None
        for begun, blocks in self._runs(box):
            first = tile._replace(base=tile.base + (blocks[0] - box.block) * tile.plane)
            acc = self.acc + (box.n * self.view.cb + blocks[0]) * sum_rows(self._context.config)
            emit_sums(self._context, acc, first, (box.lines, box.columns), len(blocks), accumulate=begun)
        self._vectors += box.vectors
        self._context.release(tile)
        return True

    def move(self, pool: Heap, heap: Heap) -> None:
        """The rows of the tile that waits belong to another heap now."""
        if self._waiting is not None:
            box, tile = self._waiting
            if tile.rows is not None and tile.rows.owner is pool:
                self._waiting = box, tile._replace(rows=heap.take_at(tile.rows.start, tile.rows.size))

    def end(self) -> None:
        """Adds up what is left; the rows of ACC may be handed out again once the sums have been read."""
        self.flush()
        view = self.view
        assert self._context.emitter.dry or self._vectors == view.n * view.cb * view.h * view.w, "sums of a part"
        self._context.accumulators.give_back(self._rows)

    def _runs(self, box: Box) -> Iterator[tuple[bool, list[int]]]:
        """Channel blocks of a box, by whether their sums have begun."""
        blocks = range(box.block, box.block + box.blocks)
        for begun, run in itertools.groupby(blocks, key=lambda block: (box.n, block) in self._begun):
            yield begun, list(run)
        self._begun |= {(box.n, block) for block in blocks}
