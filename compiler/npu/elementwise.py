"""Layers that VECTOR does alone: copies, tables, Add, Mul, maximum pooling, spatial means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from compiler.npu.context import Context, Part, Pools, Tile, Window
from compiler.npu.emitter import Loop
from compiler.npu.layers import ElementLayer, Layer, MaxPoolLayer, MeanLayer
from compiler.npu.views import View
from isa.instructions import Source

#: The lowest int8: padding that never wins a maximum.
_LOWEST = -128


class VectorPlan(NamedTuple):
    """Rows and columns of the output and channel blocks per tile."""

    lines: int
    columns: int
    blocks: int
    pools: Pools

    def __str__(self) -> str:
        return f"{self.lines}x{self.columns} px, {self.blocks} blocks"


def vector_plans(
    context: Context, layer: Layer, budget: int, span: tuple[int, int] | None = None, every: bool = False
) -> Iterator[VectorPlan]:
    """The plan that fits `budget` ACT rows with the largest tile, three of them if possible (load, work, store); or all
    plans that fit."""
    y = layer.output if span is None else replace(layer.output, n=1, h=span[1] - span[0])
    for depth in (3, 2, 1):
        for lines, columns, blocks in _tiles(y, isinstance(layer, MeanLayer)):
            single = (lines, columns, blocks) == (y.h, y.w, y.cb) and y.n == 1
            pools = _pools(context, layer, lines, columns, blocks, 1 if single else depth)
            # A plane in one piece leaves nothing to overlap: only where it is small.
            if sum(pools) <= (budget if not single or depth == 1 else budget // 4):
                yield VectorPlan(lines, columns, blocks, pools)
                if not every:
                    return


def _tiles(y: View, whole_planes: bool) -> Iterator[tuple[int, int, int]]:
    for parts in range(1, y.cb + 1):
        yield y.h, y.w, -(-y.cb // parts)
    if whole_planes:
        return
    for lines in sorted({-(-y.h // i) for i in range(2, y.h + 1)}, reverse=True):
        yield lines, y.w, 1
    for parts in range(2, y.w + 1):
        yield 1, -(-y.w // parts), 1


def _pools(context: Context, layer: Layer, lines: int, columns: int, blocks: int, depth: int) -> Pools:
    out = lines * columns * blocks
    view = layer.inputs[0]
    if isinstance(layer, MaxPoolLayer):
        height, width = _pool_extent(layer, lines, columns)
        first = height * width * blocks
    else:
        first = view.h * view.w * blocks if isinstance(layer, MeanLayer) else out
    others = [*layer.inputs[1:], *([layer.post.add.other] if layer.post.add is not None else [])]
    loaded = any(not context.on_chip(v) for v in others)
    return Pools(
        0 if context.on_chip(view) else depth * first,
        0 if context.on_chip(layer.output) else depth * out,
        depth * out if loaded else 0,
    )


def emit_vector(context: Context, layer: Layer, plan: VectorPlan, part: Part | None = None) -> None:
    """Emits the layer, or only `part` of it, tile by tile."""
    y = layer.output
    images = range(y.n) if part is None else (part.image,)
    first, end = (0, y.h) if part is None else part.span
    with context.pools(plan.pools):
        for n in images:
            for block in range(0, y.cb, plan.blocks):
                for y0 in range(first, end, plan.lines):
                    for x0 in range(0, y.w, plan.columns):
                        box = Window(
                            n, block, min(plan.blocks, y.cb - block), y0, min(y0 + plan.lines, end), x0,
                            min(x0 + plan.columns, y.w),
                        )  # fmt: skip
                        if isinstance(layer, ElementLayer):
                            _element(context, layer, box)
                        elif isinstance(layer, MaxPoolLayer):
                            _max_pool(context, layer, box)
                        else:
                            assert isinstance(layer, MeanLayer)
                            _mean(context, layer, box)


def _walk(box: Window, a: Tile, b: Tile, out: Tile) -> list[Loop]:
    return [
        (box.columns, a.step, b.step, out.step, 0),
        (box.lines, a.line, b.line, out.line, 0),
        (box.blocks, a.plane, b.plane, out.plane, 0),
    ]


def _uniform_params(context: Context, bias: int, scale: np.float32) -> int:
    lanes = context.config.block_in
    return context.load_params(
        ("uniform", bias, float(scale)), 1, lambda: (np.full(lanes, bias, np.int32), np.full(lanes, scale, np.float32))
    )


def _element(context: Context, layer: ElementLayer, box: Window) -> None:
    a = context.read_tile(layer.inputs[0], box)
    b = context.read_broadcast(layer.inputs[1], box) if len(layer.inputs) > 1 else None
    out = context.write_tile(layer.output, box)
    table = context.load_table(layer.post)
    mul = layer.kind == "mul"
    prm = _uniform_params(context, 0, layer.scale) if mul else 0
    other = b if b is not None else Tile(0, 0, 0, 0)
    context.emitter.vector(
        Source.MUL if mul else Source.ACT, a.base, out.base, _walk(box, a, other, out), b=other.base, prm=prm,
        add=layer.kind == "add", lut=table, rounding=layer.post.rounding, post=layer.post.fields(),
        constants=layer.post.add.constants if layer.post.add is not None else None,
    )  # fmt: skip
    context.release(a)
    context.release(b)
    context.finish_tile(layer.output, box, out)


def _pool_extent(layer: MaxPoolLayer, lines: int, columns: int) -> tuple[int, int]:
    size = [
        (count - 1) * layer.stride[i] + (layer.kernel[i] - 1) * layer.dilation[i] + 1
        for i, count in ((0, lines), (1, columns))
    ]
    return size[0], size[1]


def _max_pool(context: Context, layer: MaxPoolLayer, box: Window) -> None:
    height, width = _pool_extent(layer, box.lines, box.columns)
    iy, ix = box.y0 * layer.stride[0] - layer.pad[0], box.x0 * layer.stride[1] - layer.pad[1]
    tile = context.read_tile(
        layer.inputs[0], Window(box.n, box.block, box.blocks, iy, iy + height, ix, ix + width), _LOWEST
    )
    out = context.write_tile(layer.output, box)
    table = context.load_table(layer.post)
    (sy, sx), (dy, dx), (kh, kw) = layer.stride, layer.dilation, layer.kernel
    context.emitter.vector(
        Source.MAX, tile.base, out.base,
        [(box.columns, sx, 0, 1, 0), (box.lines, sy * tile.line, 0, out.line, 0),
         (box.blocks, tile.plane, 0, out.plane, 0)],
        reduce=[(kw, dx, 0, 0, 0), (kh, dy * tile.line, 0, 0, 0)], lut=table, post=layer.post.fields(),
    )  # fmt: skip
    context.release(tile)
    context.finish_tile(layer.output, box, out)


def _mean(context: Context, layer: MeanLayer, box: Window) -> None:
    view = layer.inputs[0]
    tile = context.read_tile(view, Window(box.n, box.block, box.blocks, 0, view.h, 0, view.w))
    out = context.write_tile(layer.output, box)
    table = context.load_table(layer.post)
    context.emitter.vector(
        Source.SUM, tile.base, out.base, [(box.blocks, tile.plane, 0, out.plane, 0)],
        reduce=[(view.w, 1, 0, 0, 0), (view.h, tile.line, 0, 0, 0)],
        prm=_uniform_params(context, layer.bias, layer.scale), lut=table, rounding=layer.post.rounding,
        post=layer.post.fields(),
    )  # fmt: skip
    context.release(tile)
    context.finish_tile(layer.output, box, out)


__all__ = ["VectorPlan", "emit_vector", "vector_plans"]
