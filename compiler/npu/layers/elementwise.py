"""Layers that VECTOR does alone: their base, and copies, tables, Add and Mul, element by element."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec.structs import replace

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.emit.tile_program import Loop
from tilewright.compiler.npu.emit.tiles import NO_TILE, ActTile
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.params import uniform_params
from tilewright.compiler.npu.layers.sampling import box_tiles
from tilewright.compiler.npu.layers.tiling import READ_OVERHEAD, Bus, OutputPart, PlaneTiling, even_parts
from tilewright.compiler.npu.views import View
from tilewright.isa.instructions import Source

#: Cycles that a tile takes besides its bytes for LOAD or STORE, and besides its steps for VECTOR.
_TRANSFER, _WORK = 24, 24


@dataclass
class VectorLayer(Layer):
    """A layer that VECTOR does alone, tile by tile: read, one VECTOR instruction or a few, store.

    A kind of such layers defines only the inputs that an output needs (`input_box`) and the instructions of one tile
    (`emit_tile`).
    """

    datapath = "vector"
    #: True if a tile has to hold whole planes of the output.
    whole_planes: ClassVar[bool] = False

    @abstractmethod
    def emit_tile(self, context: Context, box: Box) -> None:
        """Emits the instructions for one box of the output."""

    def input_box(self, box: Box) -> Box:
        """Returns the box of the first input that a box of the output needs."""
        return box

    def max_input_vectors(self, tiling: PlaneTiling) -> int:
        """Returns the largest number of vectors of the first input that a tile needs."""
        return self.input_box(Box(0, 0, tiling.blocks, 0, tiling.lines, 0, tiling.columns)).vectors

    def vector_steps(self, tiling: PlaneTiling) -> int:
        """Returns the steps of VECTOR for a tile of the output."""
        return math.prod(tiling)

    def tile_room(self, tiling: PlaneTiling) -> int:
        """Returns the rows of ACT for values between the instructions of a tile."""
        return 0

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterable[TilePlan[PlaneTiling]]:
        """Yields the plan of the fewest estimated cycles.

        For some rows of the output, which are made while other layers work, it is the one with the largest tile, three
        of them in ACT if possible (load, work, store).
        """
        y = self.output if span is None else replace(self.output, n=1, h=span[1] - span[0])
        if span is None:
            estimated = [*self._estimated(context, budget, y)]
            return estimated if every or not estimated else [min(estimated, key=attrgetter("cycles"))]
        return itertools.islice(self._largest(context, budget, y), None if every else 1)

    def _largest(self, context: Context, budget: int, y: View) -> Iterator[TilePlan[PlaneTiling]]:
        """Yields plans for an output that fit a budget of ACT rows: most tiles in ACT first, then largest."""
        for depth in (3, 2, 1):
            for tiling in self._tilings(y):
                single = tiling == (y.h, y.w, y.cb) and y.n == 1
                pools = self._pools(context, tiling, 1 if single else depth)
                # A plane in one piece leaves nothing to overlap: only where it is small.
                if sum(pools) <= (budget if not single or depth == 1 else budget // 4):
                    yield TilePlan(tiling, pools)

    def _estimated(self, context: Context, budget: int, y: View) -> Iterator[TilePlan[PlaneTiling]]:
        """Yields plans for an output that fit a budget of ACT rows, each with as many tiles in ACT as fit."""
        bus, row = Bus.of(context.config, context.memory), context.config.block_in
        inputs, writes = self.inputs, not context.on_chip(y)
        reads = [not context.on_chip(view) for view in inputs]
        for tiling in dict.fromkeys(self._tilings(y)):
            tiles = y.n * math.prod(-(-size // part) for size, part in zip((y.h, y.w, y.cb), tiling, strict=True))
            for depth in (3, 2, 1):
                pools = self._pools(context, tiling, depth if tiles > 1 else 1)
                if sum(pools) <= budget:
                    break
            else:
                continue
            lines, columns, blocks = tiling
            vectors = reads[0] * self.max_input_vectors(tiling) + sum(
                read * blocks * min(lines, view.h) * min(columns, view.w)
                for read, view in zip(reads[1:], inputs[1:], strict=True)
            )
            load = vectors * row / bus.reading * READ_OVERHEAD + _TRANSFER * sum(reads)
            store = writes * (math.prod(tiling) * row / bus.writing + _TRANSFER)
            work = self.vector_steps(tiling) * context.config.vector_passes + _WORK
            waits = max(load, work, store, (load + work) / depth, (work + store) / depth)
            yield TilePlan(tiling, pools, load + work + store + (tiles - 1) * waits)

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        with context.pools(plan.pools):
            for box in box_tiles(context, self.output, plan.tiling, part):
                self.emit_tile(context, box)

    def _tilings(self, y: View) -> Iterator[PlaneTiling]:
        """Yields tilings of an output, largest tiles first."""
        for parts in range(1, y.cb + 1):
            yield PlaneTiling(y.h, y.w, -(-y.cb // parts))
        if self.whole_planes:
            return
        for lines in even_parts(y.h):
            if lines < y.h:
                yield PlaneTiling(lines, y.w, 1)
        for parts in range(2, y.w + 1):
            yield PlaneTiling(1, -(-y.w // parts), 1)

    def _pools(self, context: Context, tiling: PlaneTiling, depth: int) -> Pools:
        """Returns the ACT rows for `depth` tiles at a time."""
        vectors = math.prod(tiling)
        return Pools(
            0 if context.on_chip(self.inputs[0]) else depth * self.max_input_vectors(tiling),
            0 if context.on_chip(self.output) else depth * vectors,
            (depth * vectors if any(not context.on_chip(v) for v in self.operands) else 0) + self.tile_room(tiling),
        )


@dataclass
class ElementLayer(VectorLayer):
    """Copies, tables, sums and products, element by element on VECTOR.

    Attributes:
        kind: "copy" (or table; one input), "add" or "mul" (two; a broadcast axis has size 1).
        scale: scale of "mul", one for all lanes.
    """

    by_channel = True

    kind: Literal["copy", "add", "mul"] = "copy"
    scale: np.float32 = field(default_factory=lambda: np.float32(1))

    def emit_tile(self, context: Context, box: Box) -> None:
        a = context.read_tile(self.inputs[0], box)
        b = context.read_broadcast(self.inputs[1], box) if len(self.inputs) > 1 else None
        out = context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        mul = self.kind == "mul"
        prm = uniform_params(context, 0, self.scale) if mul else 0
        other = b if b is not None else NO_TILE
        context.emitter.vector(
            Source.MUL if mul else Source.ACT, a.base, out.base, element_loops(box, a, other, out), b=other.base,
            prm=prm, add=self.kind == "add", lut=table, rounding=self.post.rounding, post=self.post.fields,
            constants=self.post.add.constants if self.post.add is not None else None,
        )  # fmt: skip
        context.release(a)
        context.release(b)
        context.finish_tile(self.output, box, out)


def element_loops(box: Box, a: ActTile, b: ActTile, out: ActTile) -> list[Loop]:
    """Returns the loops of VECTOR over a box, with the strides of both operands and the result."""
    return [
        (box.columns, a.step, b.step, out.step, 0),
        (box.lines, a.line, b.line, out.line, 0),
        (box.blocks, a.plane, b.plane, out.plane, 0),
    ]
