"""Lowers QInterpolate, linear interpolation of rows and columns."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.interpolate import Places, QInterpolate
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_zero_point
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.products import Products
from tilewright.compiler.npu.layers.take import TakeLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.compiler.npu.ops.weights import split_zero_point
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout

_MAX_FACTOR = 8
_MAX_DENOMINATOR = 256  # twice such weights need up to four int8 sets


class Upsampling(Struct, frozen=True):
    """Interpolation along one axis as convolutions of the operand, extended by its first and last element.

    Result `factor * j + p` is the sum of taps[p][k] times element j + starts[p] + k of the extended operand, for every
    j.

    Attributes:
        factor: number of phases: outputs for each input.
        taps: weights of each phase, in units of 1 / one.
        starts: first element of each phase.
        one: the integer that stands for weight 1.
    """

    factor: int
    taps: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    one: int

    @staticmethod
    def of(places: Places, size: int) -> Upsampling | None:
        """Returns the upsampling of an axis of `size` elements, None if its places are not evenly spaced."""
        outputs = len(places.first)
        factor, rest = divmod(outputs, size)
        if rest or not 1 <= factor <= _MAX_FACTOR:
            return None
        taps, starts = [], []
        for phase in range(factor):
            inner = min(phase + factor * (size // 2), outputs - factor + phase)
            first, share = places.first[inner], places.shares[inner]
            start = first - inner // factor + 1
            if share == 0 and start > 1:
                return None
            taps.append((places.one - share, share) if share else (places.one,))
            starts.append(start)
        found = Upsampling(factor, tuple(taps), tuple(starts), places.one)
        return found if found._matches(places, size) else None

    def _matches(self, places: Places, size: int) -> bool:
        """Returns True if every output has the weights of `places`, at the edges too."""
        edges = np.clip(np.arange(-1, size + 1), 0, size - 1)
        counts = np.zeros((len(places.first), size), np.int64)
        for o in range(len(places.first)):
            j, phase = divmod(o, self.factor)
            for k, tap in enumerate(self.taps[phase]):
                at = j + self.starts[phase] + k
                if not 0 <= at < len(edges):
                    return False
                counts[o, edges[at]] += tap
        return np.array_equal(counts, places.matrix(size))


@npu_op(QInterpolate)
class Interpolate(NpuOp[QInterpolate]):
    """Repeats the border of a plane, then convolves each channel by itself for every phase of the result.

    The machine rounds to even. To round halves up where sums are not whole, products are doubled and 1 is added to each
    sum: no sum is a tie then, and those that were one are rounded up.
    """

    condition = "rows and columns 1, 2, 4 or 8 times as many, always between neighbours, weights in 1/256 or coarser"
    layout = Layout.CHANNELS_FIRST
    takes_table = True

    def unsupported(self, node: TypedNode[QInterpolate], config: NpuConfig) -> str | None:
        for what, places, size in _axes(node):
            if Upsampling.of(places, size) is None:
                return f"{size} {what} become {len(places.first)} at distances that are not the same everywhere"
        if node.op.rows.one * node.op.columns.one > _MAX_DENOMINATOR:
            return (
                f"weights in units of 1/{node.op.rows.one * node.op.columns.one}; 1/{_MAX_DENOMINATOR} are the finest"
            )
        return None

    def lower(self, node: TypedNode[QInterpolate], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, c = node.x, node.x.shape[1]
        down, across = (Upsampling.of(places, size) for _, places, size in _axes(node))
        assert down is not None and across is not None
        zero = stored_zero_point(x) if node.op.to_even else 0
        post = Post(zp=zero)
        name, ops = labels([node.node, *tail])
        view = operands.view(x.name, Layout.CHANNELS_FIRST)
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.y.name))
        edges = [tuple(int(v) for v in np.clip(np.arange(-1, n + 1), 0, n - 1)) for n in x.shape[2:]]
        dims = x.shape[0], c, x.shape[2] + 2, x.shape[3] + 2
        wide = operands.temporary(f"{node.y.name}@edges", x.name, Layout.CHANNELS_FIRST, dims)
        phases, whole = [], down.one * across.one
        twice = 1 if whole == 1 or node.op.to_even else 2
        for py in range(down.factor):
            for px in range(across.factor):
                weights = twice * np.outer(down.taps[py], across.taps[px])
                sets = split_zero_point(np.broadcast_to(weights, (c, 1, *weights.shape)), np.zeros(1, np.int32))
                phases.append(Phase.of(
                    sets, c, operands.config, pad=(-down.starts[py], -across.starts[px]),
                    out_step=(down.factor, across.factor), out_start=(py, px),
                ))  # fmt: skip
        taps = [
            np.array([len(axis.taps[o % axis.factor]) for o in range(n)])
            for axis, n in ((down, made.h), (across, made.w))
        ]
        products = Products(taps[0], taps[1], 1, made.n * made.c)
        scale = np.full(c, 1 / (twice * whole), np.float32)
        return [
            TakeLayer(f"{name} (border)", ops, [view], wide, Post(), rows=edges[0], columns=edges[1]),
            ConvLayer(
                name, ops, [wide], made, post, node.graph.macs(node.node), products, phases=phases,
                bias=np.full((len(phases), c), twice - 1 - zero * whole, np.int32), scale=scale, group=c, fill=0,
            ),
        ]  # fmt: skip


def _axes(node: TypedNode[QInterpolate]) -> tuple[tuple[str, Places, int], ...]:
    """Returns the (name, places, input size) of rows and columns."""
    return ("rows", node.op.rows, node.x.shape[2]), ("columns", node.op.columns, node.x.shape[3])
