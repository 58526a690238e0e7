"""From accumulators to an output tile: the VECTOR pass that requantises, adds and looks up."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.npu.emit.context import ActTile, Context
from compiler.npu.emit.geometry import Box
from compiler.npu.emit.loops import Loop
from compiler.npu.layers.layer import Post
from isa.instructions import Source


def read_add_operand(context: Context, post: Post, box: Box) -> ActTile | None:
    """The other operand of a fused Add for an output box."""
    return None if post.add is None else context.read_broadcast(post.add.other, box)


def emit_accumulators(
    context: Context,
    post: Post,
    acc: int,
    acc_strides: tuple[int, int, int],
    counts: tuple[int, int, int],
    out: ActTile,
    out_steps: tuple[int, int],
    prm: int,
    add: ActTile | None,
    slices: int,
) -> None:
    """Emits VECTOR over one tile of accumulators.

    Args:
        out, add: tiles of the output and of a fused Add's other operand.
        prm: PRM row of the first channel block.
        acc: first ACC vector.
        acc_strides: ACC vectors from one column, row, group of channel blocks to the next.
        counts: columns, rows, channel blocks.
        out_steps: (rows, columns) of the output between neighbouring results.
        slices: channel blocks that lie side by side in one ACC row (stride 1).
    """
    columns, lines, blocks = counts
    table = context.load_table(post.lut)
    b = add if add is not None else ActTile(0, 0, 0, 0)
    groups, rest = divmod(blocks, slices)
    constants = post.add.constants if post.add is not None else None

    def emit(block: int, groups: int, side_by_side: int) -> None:
        loops: Sequence[Loop] = (
            (columns, acc_strides[0], b.step * out_steps[1], out.step * out_steps[1], 0),
            (lines, acc_strides[1], b.line * out_steps[0], out.line * out_steps[0], 0),
            (side_by_side, 1, b.plane, out.plane, 1),
            (groups, acc_strides[2], b.plane * side_by_side, out.plane * side_by_side, side_by_side),
        )
        at = acc + (block // slices) * acc_strides[2]
        context.emitter.vector(
            Source.ACC, at, out.base + block * out.plane, loops, b=b.base + block * b.plane, prm=prm + block,
            add=add is not None, lut=table, rounding=post.rounding, post=post.fields, constants=constants,
        )  # fmt: skip

    if groups:
        emit(0, groups, slices)
    if rest:
        emit(groups * slices, 1, rest)
