"""Depthwise convolutions in the array's window mode.

The window is a shift register of block_in vectors. A band of input rows is pushed column by column, so one column of
h pushes yields several outputs and all of them use the same tap positions: tap (ky, kx) sits
(columns to the newest) * h + (rows to the newest) slots back. A 3x3 at stride 1 with h = 6 costs 6 pushes for 4
outputs of 16 channels. Kernels that do not fit the window are cut into groups of taps that accumulate; with a stride,
taps of one parity form a group so that only every second vector is pushed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from compiler.npu.context import Context, Part, Pools, Window
from compiler.npu.emitter import Loop
from compiler.npu.layers import DepthwiseLayer
from compiler.npu.tail import emit_accumulators, read_add_operand

_LATENCY = 100
_TILE_OVERHEAD = 15
_MAX_START, _MAX_STEP = 63, 15


@dataclass(frozen=True)
class Group:
    """Taps of one axis that share a pass: first, first + every, ... (`count` of them).

    Attributes:
        push: input positions between neighbouring pushes. lag: pushes between neighbouring taps.
        emit: pushes between neighbouring outputs.
    """

    first: int
    every: int
    count: int
    push: int
    lag: int
    emit: int

    @property
    def reach(self) -> int:
        """Pushes from the oldest to the newest tap."""
        return (self.count - 1) * self.lag

    def pushes(self, outputs: int) -> int:
        return (outputs - 1) * self.emit + self.reach + 1


@dataclass(frozen=True)
class Pass:
    """One group of rows with one group of columns; `strip` output rows per column of pushes."""

    rows: Group
    columns: Group
    strip: int

    @property
    def height(self) -> int:
        return self.rows.pushes(self.strip)


class DepthwisePlan(NamedTuple):
    """Band rows and columns of the output, channel blocks per tile."""

    lines: int
    columns: int
    blocks: int
    pools: Pools
    cycles: float = 0.0

    def __str__(self) -> str:
        return f"{self.lines}x{self.columns} px, {self.blocks} blocks (window)"


def _axis_options(kernel: int, stride: int, dilation: int) -> Iterator[list[Group]]:
    """Ways to cut the taps of one axis into groups."""
    if stride <= _MAX_STEP:
        for parts in range(1, kernel + 1):
            size = -(-kernel // parts)
            yield [Group(f, 1, min(size, kernel - f), 1, dilation, stride) for f in range(0, kernel, size)]
    if stride > 1:
        every = stride // math.gcd(stride, dilation)
        lag = every * dilation // stride
        for most in range(1, -(-kernel // every) + 1):
            groups = []
            for residue in range(min(every, kernel)):
                taps = list(range(residue, kernel, every))
                groups += [
                    Group(taps[i], every, len(taps[i : i + most]), stride, lag, 1) for i in range(0, len(taps), most)
                ]
            yield groups
    elif dilation > 1 or kernel > 1:
        yield [Group(t, 1, 1, 1, 1, 1) for t in range(kernel)]


@functools.lru_cache(maxsize=1024)
def plan_passes(
    window: int, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], out: tuple[int, int]
) -> tuple[tuple[Pass, ...], int]:
    """The cheapest passes for a band of `out` rows and columns, and their pushes per channel block."""
    best: tuple[tuple[Pass, ...], int] | None = None
    for rows in _axis_options(kernel[0], stride[0], dilation[0]):
        for columns in _axis_options(kernel[1], stride[1], dilation[1]):
            passes, total = [], 0
            for r in rows:
                for c in columns:
                    choice = _best_strip(window, r, c, out)
                    if choice is None:
                        break
                    passes.append(Pass(r, c, choice[0]))
                    total += choice[1]
                else:
                    continue
                break
            else:
                if best is None or total < best[1]:
                    best = tuple(passes), total
    assert best is not None  # single taps always fit
    return best


def _best_strip(window: int, r: Group, c: Group, out: tuple[int, int]) -> tuple[int, int] | None:
    best = None
    for strip in range(1, out[0] + 1):
        height = r.pushes(strip)
        if c.reach * height + r.reach > window - 1 or r.reach > _MAX_START or c.reach > _MAX_START:
            break
        full, rest = divmod(out[0], strip)
        pushes = (full * height + (r.pushes(rest) if rest else 0)) * c.pushes(out[1])
        pushes += 2 * (full + bool(rest))
        if best is None or pushes < best[1]:
            best = strip, pushes
    return best


def depthwise_plans(
    context: Context, layer: DepthwiseLayer, budget: int, span: tuple[int, int] | None = None, every: bool = False
) -> Iterator[DepthwisePlan]:
    """Plans that fit `budget` ACT rows, for output rows `span` (default all): each one estimated to take fewer cycles
    than those before it, or all of them."""
    best = math.inf
    config = context.config
    x, y = layer.inputs[0], layer.output
    resident_in, resident_out = context.on_chip(x), context.on_chip(y)
    height, images = (y.h, y.n) if span is None else (span[1] - span[0], 1)
    other = layer.post.add.other if layer.post.add is not None else None
    load_add = other is not None and not context.on_chip(other)
    slices = config.dw_slices
    bus = config.bus_bytes
    for lines, columns in _bands(height, y.w):
        window = math.prod(_extent(layer, (lines, columns)))
        passes, pushes = plan_passes(
            config.block_in, layer.weights.shape[1:], layer.stride, layer.dilation, (lines, columns)
        )
        bands = -(-height // lines) * -(-y.w // columns)
        for parts in range(1, y.cb + 1):
            blocks = -(-y.cb // parts)
            if parts > 1 and blocks == -(-y.cb // (parts - 1)):
                continue
            several = bands * parts * images > 1
            acc = _acc_rows(context, lines * columns, blocks)
            tiles = 2 * len(passes) * slices * blocks
            if acc > (config.acc_rows // 2 if several else config.acc_rows) or tiles > config.wgt_tiles // 2:
                continue
            if blocks > config.prm_rows:
                continue
            out_rows = 0 if resident_out else lines * columns * blocks
            add_rows = lines * columns * blocks if load_add else 0
            in_rows = 0 if resident_in else window * blocks
            depth = 2 if several else 1
            if depth * (in_rows + out_rows + add_rows) > budget:
                continue
            count = bands * -(-y.cb // blocks) * images
            read = count * (in_rows + add_rows) * config.block_in + len(passes) * slices * y.cb * config.tile_bytes
            work = max(images * bands * pushes * y.cb * slices, read / bus * 1.05, images * y.cb * height * y.w,
                       0 if resident_out else y.nbytes * height / (y.h * y.n * bus))  # fmt: skip
            start = _LATENCY + (in_rows * config.block_in + tiles * config.tile_bytes / 2) / bus
            end = lines * columns * blocks * (1 if resident_out else config.block_in / bus)
            cycles = work + start + end + count * _TILE_OVERHEAD
            if every or cycles < best:
                best = cycles
                pools = Pools(depth * in_rows, depth * out_rows, depth * add_rows)
                yield DepthwisePlan(lines, columns, blocks, pools, cycles)


def _bands(height: int, width: int) -> Iterator[tuple[int, int]]:
    for lines in sorted({-(-height // i) for i in range(1, height + 1)}, reverse=True):
        yield lines, width
    for lines in sorted({1, 2, 4, 6, 8, 12} & set(range(1, height + 1)), reverse=True):
        for parts in (2, 3, 4, 8, 16, 32, 64):
            if parts <= width:
                yield lines, -(-width // parts)


def _extent(layer: DepthwiseLayer, out: Sequence[int]) -> tuple[int, int]:
    size = [(out[a] - 1) * layer.stride[a] + (layer.weights.shape[1 + a] - 1) * layer.dilation[a] + 1 for a in (0, 1)]
    return size[0], size[1]


def _acc_rows(context: Context, pixels: int, blocks: int) -> int:
    config = context.config
    return -(-pixels * blocks * config.block_in // config.block_out)


def emit_depthwise(context: Context, layer: DepthwiseLayer, plan: DepthwisePlan, part: Part | None = None) -> None:
    """Emits the layer, or only `part` of it: channel blocks outside (their weights stay), bands inside."""
    y = layer.output
    images = range(y.n) if part is None else (part.image,)
    first, end = (0, y.h) if part is None else part.span
    with context.pools(plan.pools):
        for block in range(0, y.cb, plan.blocks):
            blocks = min(plan.blocks, y.cb - block)
            for n in images:
                for y0 in range(first, end, plan.lines):
                    for x0 in range(0, y.w, plan.columns):
                        box = Window(n, block, blocks, y0, min(y0 + plan.lines, end), x0, min(x0 + plan.columns, y.w))
                        _emit_tile(context, layer, box)


def _emit_tile(context: Context, layer: DepthwiseLayer, box: Window) -> None:
    config = context.config
    x, y = layer.inputs[0], layer.output
    slices, lanes = config.dw_slices, config.dw_lanes
    lines, columns, pixels = box.lines, box.columns, box.lines * box.columns
    height, width = _extent(layer, (lines, columns))
    iy, ix = box.y0 * layer.stride[0] - layer.pad[0], box.x0 * layer.stride[1] - layer.pad[1]
    tile = context.read_tile(x, Window(box.n, box.block, box.blocks, iy, iy + height, ix, ix + width), layer.fill)
    out = context.write_tile(y, box)
    add = read_add_operand(context, layer.post, box)
    acc = context.accumulators.take(_acc_rows(context, pixels, box.blocks))
    acc_dw = acc * config.block_out // lanes
    passes, _ = plan_passes(config.block_in, layer.weights.shape[1:], layer.stride, layer.dilation, (lines, columns))
    for number, p in enumerate(passes):
        full, rest = divmod(lines, p.strip)
        parts = [(0, full, p.strip)] if full else []
        if rest:
            parts.append((full * p.strip, 1, rest))
        for first, strips, rows_out in parts:
            wgt = _weights(context, layer, box, p, rows_out)
            origin = tile.base + (first * layer.stride[0] + p.rows.first * layer.dilation[0]) * tile.line
            origin += p.columns.first * layer.dilation[1]
            for s in range(slices):
                loops: list[Loop] = [
                    (p.rows.pushes(rows_out), p.rows.push * tile.line, 0, columns * slices),
                    (p.columns.pushes(columns), p.columns.push, 0, slices),
                    (strips, p.strip * layer.stride[0] * tile.line, 0, p.strip * columns * slices),
                    (box.blocks, tile.plane, 1, pixels * slices),
                ]
                context.emitter.depthwise(
                    origin, wgt + s * box.blocks, acc_dw + first * columns * slices + s, loops,
                    start=(p.rows.reach, p.columns.reach), step=(p.rows.emit, p.columns.emit), lanes_slice=s,
                    accumulate=number > 0,
                )  # fmt: skip
    prm = _params(context, layer, box)
    emit_accumulators(
        context, layer.post, acc * config.block_out // config.block_in, (1, columns, pixels),
        (columns, lines, box.blocks), out, (1, 1), prm, add, 1,
    )  # fmt: skip
    context.release(tile)
    context.release(add)
    context.finish_tile(y, box, out)


def _weights(context: Context, layer: DepthwiseLayer, box: Window, p: Pass, rows_out: int) -> int:
    """Tiles [slice][block] of [lane][slot] for one pass with columns of rows.pushes(rows_out) pushes."""
    config = context.config
    height = p.rows.pushes(rows_out)
    key = (id(layer), box.block, box.blocks, p.rows, p.columns, height)
    bi, bo, lanes, slices = config.block_in, config.block_out, config.dw_lanes, config.dw_slices

    def make() -> np.ndarray:
        c0, c1 = box.block * bi, min((box.block + box.blocks) * bi, layer.weights.shape[0])
        w = np.zeros((box.blocks * bi, *layer.weights.shape[1:]), np.int8)
        w[: c1 - c0] = layer.weights[c0:c1]
        tiles = np.zeros((box.blocks, slices, bo, bi), np.int8)
        per_lane = w.reshape(box.blocks, slices, lanes, *w.shape[1:])
        for i in range(p.rows.count):
            for j in range(p.columns.count):
                slot = (p.columns.count - 1 - j) * p.columns.lag * height + (p.rows.count - 1 - i) * p.rows.lag
                ky, kx = p.rows.first + i * p.rows.every, p.columns.first + j * p.columns.every
                tiles[:, :, :lanes, slot] = per_lane[:, :, :, ky, kx]
        return tiles.transpose(1, 0, 2, 3).reshape(-1, bo, bi)

    return context.load_weights(key, box.blocks * slices, make)


def _params(context: Context, layer: DepthwiseLayer, box: Window) -> int:
    bi = context.config.block_in

    def make() -> tuple[np.ndarray, np.ndarray]:
        bias = np.zeros(box.blocks * bi, np.int32)
        scale = np.zeros(box.blocks * bi, np.float32)
        c0, c1 = box.block * bi, min((box.block + box.blocks) * bi, layer.weights.shape[0])
        bias[: c1 - c0], scale[: c1 - c0] = layer.bias[c0:c1], layer.scale[c0:c1]
        return bias, scale

    return context.load_params((id(layer), box.block, box.blocks), box.blocks, make)
