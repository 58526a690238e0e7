"""The VECTOR pass from accumulators to an output tile: it requantises, adds and looks up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.tile_program import Loop
from tilewright.compiler.npu.emit.tiles import NO_TILE, ActTile
from tilewright.compiler.npu.layers.layer import Post
from tilewright.compiler.npu.views import BYTE_ORDER
from tilewright.isa.instructions import Source


def read_add_operand(context: Context, post: Post, box: Box) -> ActTile | None:
    """Returns the tile of a fused Add's other operand for an output box, None without an Add."""
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
    prm_step: int = 1,
) -> None:
    """Emits VECTOR over one tile of accumulators.

    Args:
        context: the emission.
        post: operations on every value.
        acc: first ACC vector.
        acc_strides: ACC vectors from one column, row, group of channel blocks to the next.
        counts: columns, rows, channel blocks.
        out: tile of the output.
        out_steps: (rows, columns) of the output between neighbouring results.
        prm: PRM row of the first channel block.
        add: tile of a fused Add's other operand, None without an Add.
        slices: channel blocks that lie side by side in one ACC row (stride 1).
        prm_step: PRM rows from one channel block to the next; 0 if all have the same.
    """
    table = context.load_table(post.lut)
    b = add if add is not None else NO_TILE
    constants = post.add.constants if post.add is not None else None
    for block, row, loops in accumulator_nests(acc_strides, counts, out, out_steps, b, slices, prm_step):
        context.emitter.vector(
            Source.ACC, acc + row, out.base + block * out.plane, loops, b=b.base + block * b.plane,
            prm=prm + block * prm_step, add=add is not None, lut=table, rounding=post.rounding, post=post.fields,
            constants=constants,
        )  # fmt: skip


def emit_wide(
    context: Context,
    post: Post,
    acc: int,
    byte_stride: int,
    acc_strides: tuple[int, int, int],
    counts: tuple[int, int, int],
    outs: Sequence[ActTile],
    prm: int,
    slices: int,
) -> None:
    """Emits VECTOR_WIDE over one tile of accumulators: an instruction for each byte of the results.

    Args:
        acc: first ACC vector of the sums of high bytes.
        byte_stride: ACC vectors from these to the sums of low bytes.
        outs: tiles of the output's bytes. Other arguments are those of `emit_accumulators`.
    """
    for byte, out in zip(BYTE_ORDER, outs, strict=True):
        for block, row, loops in accumulator_nests(acc_strides, counts, out, (1, 1), NO_TILE, slices):
            context.emitter.vector_wide(
                byte, acc + row, out.base + block * out.plane, loops, prm=prm + block,
                reduce=[(len(outs), byte_stride, 0, 0, 0)], low=post.low, high=post.high,
            )  # fmt: skip


def accumulator_nests(
    acc_strides: tuple[int, int, int],
    counts: tuple[int, int, int],
    out: ActTile,
    out_steps: tuple[int, int],
    b: ActTile,
    slices: int,
    prm_step: int = 1,
) -> Iterator[tuple[int, int, Sequence[Loop]]]:
    """Yields the loop nests over a tile of accumulators, at most two.

    Yields:
        (first channel block, its first ACC vector counted from the tile's first, loops (count, acc, b, out, prm)).
    """
    columns, lines, blocks = counts
    groups, rest = divmod(blocks, slices)
    for block, count, side_by_side in ((0, groups, slices), (groups * slices, min(rest, 1), rest)):
        if count:
            yield (
                block,
                block // slices * acc_strides[2],
                (
                    (columns, acc_strides[0], b.step * out_steps[1], out.step * out_steps[1], 0),
                    (lines, acc_strides[1], b.line * out_steps[0], out.line * out_steps[0], 0),
                    (side_by_side, 1, b.plane, out.plane, prm_step),
                    (count, acc_strides[2], b.plane * side_by_side, out.plane * side_by_side, side_by_side * prm_step),
                ),
            )
