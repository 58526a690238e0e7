"""Aliases: results of data movement that leaves the blocked bytes where they are.

An alias is a view of the operand's bytes with another shape (Reshape, Transpose), or of a part of them (Slice, Split,
Gather of one index).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from msgspec.structs import replace

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.moves import box_of, is_box, permutation, places_of
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.views import View, plane_shape, planes_of
from tilewright.isa.program import Layout

_FIRST, _LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST


#: Ops that only rearrange a tensor: they cost nothing where the blocked bytes stay in place.
MOVES = frozenset({
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Split", "Gather",
})  # fmt: skip


def alias_of(graph: Graph, move: Node, name: str, source: Blocked) -> Blocked | None:
    """Returns a move's result as a view of its operand's bytes; None if the bytes have to be moved.

    Args:
        graph: the graph of the move.
        move: a node whose op is one of `MOVES`.
        name: the move's output.
        source: the operand's blocked form.
    """
    before, after = graph.tensor(move.inputs[0]), graph.tensor(name)
    if not _same_values(source, before, after):
        return None
    if move.op == "Transpose":
        return _transposed(move, after, source)
    if move.op in ("Slice", "Split", "Gather"):
        places = places_of(graph, move, move.outputs.index(name))
        if places is None or not is_box(places) or (move.op == "Gather" and len(places[move.attrs["axis"]]) != 1):
            return None
        size = tuple(map(len, places))
        found = _cut(before, after, source, [first for first, _ in box_of(places)], size)
        if found is None or size == after.shape:
            return found
        before, source = dataclasses.replace(before, shape=size), found  # Gather of one place drops its axis
    for layout in (_FIRST, _LAST):
        planes = plane_shape(after.shape, layout)
        if planes is None or (layout is _FIRST and len(after.shape) == 2):
            continue
        if _same_vectors(before, after, source, layout, planes):
            view = _walked(source.view, planes)
            if view is not None:
                return Blocked(layout, replace(view, tensor=after.name), alias=True)
    return _heads_of_a_row(after, source)


def _same_values(source: Blocked, before: Tensor, *others: Tensor) -> bool:
    """Returns True if the tensors have one type and scale, and values of one byte.

    The blocks of a second byte would need a view of their own.
    """
    quant = before.quant
    same = quant is not None and all(quant.same_as(t.quant) and t.dtype == before.dtype for t in others)
    return same and source.view.bytes == 1


def _heads_of_a_row(after: Tensor, source: Blocked) -> Blocked | None:
    """Returns one row of channels as one row for each of several heads, or such heads joined to one row.

    A head's channels must fill whole blocks; otherwise, and for other shapes, the result is None.
    """
    v, planes = source.view, plane_shape(after.shape, _LAST)
    if source.layout is not _LAST or planes is None or (v.h, v.w) != (1, 1) or planes[2:] != (1, 1):
        return None
    n, c = planes[:2]
    if v.n == 1 and n * c == v.c and c % v.block == 0:
        return Blocked(_LAST, replace(v, tensor=after.name, n=n, c=c, sn=c // v.block * v.sc), alias=True)
    if n == 1 and v.n * v.c == c and v.c % v.block == 0 and v.sn == v.cb * v.sc:
        return Blocked(_LAST, replace(v, tensor=after.name, n=1, c=c, sn=v.n * v.sn), alias=True)
    return None


def _cut(before: Tensor, after: Tensor, source: Blocked, begin: Sequence[int], size: tuple[int, ...]) -> Blocked | None:
    """Returns the view of a box of the operand, in its layout; None where its channels do not begin with a block."""
    v, rank = source.view, len(size)
    if source.layout is _LAST:
        if size[1:-2] != before.shape[1:-2]:
            return None
        inner = math.prod(size[1:-2])  # images follow each other along the first axis
        n, h, y = size[0] * inner if rank > 2 else v.n, v.h, 0
        image = begin[0] * inner if rank > 2 else 0
        channel, column = begin[-1], begin[-2] if rank > 1 else 0
    else:
        image, channel = begin[0], begin[1]
        y, column = (begin[2] if rank == 4 else 0), (begin[-1] if rank > 2 else 0)
        n, h = size[0], size[2] if rank == 4 else v.h
    if channel % v.block or (v.h, v.w) != planes_of(before.shape, source.layout)[2:]:
        return None
    _, c, _, w = planes_of(size, source.layout)
    offset = v.address(image, channel // v.block, y, column)
    return Blocked(source.layout, replace(v, tensor=after.name, n=n, c=c, h=h, w=w, offset=offset), alias=True)


def _transposed(move: Node, after: Tensor, source: Blocked) -> Blocked | None:
    """Returns a Transpose's result as a view of its operand; None unless it swaps rows and channels, or nothing."""
    perm = permutation(move)
    if perm == sorted(perm):
        return Blocked(source.layout, replace(source.view, tensor=after.name), alias=True)
    v = source.view
    if perm == [0, 2, 1] and _rows_follow(v):  # channels change their axis, not their place
        flat = replace(v, h=1, w=v.h * v.w, sh=v.h * v.w * v.block, tensor=after.name)
        return Blocked(_LAST if source.layout is _FIRST else _FIRST, flat, alias=True)
    return None


def heads_of(graph: Graph, first: Node, second: Node, source: Blocked, result: Tensor | None = None) -> Blocked | None:
    """Returns the heads of attention, split or joined by a Reshape and a Transpose, as a view of the same bytes.

    Rows [.., T, H * D] and heads [B, H, T, D] are the same bytes where D fills whole blocks and each head's blocks
    follow those of the head before.

    Args:
        graph: the graph of both moves.
        first, second: the moves, one after the other.
        source: the blocked form of the first move's operand.
        result: the second move's output, if the graph does not have it.

    Returns:
        The blocked form of the second move's output; None for any other two moves.
    """
    before, between = graph.tensor(first.inputs[0]), graph.tensor(first.outputs[0])
    after = graph.tensor(second.outputs[0]) if result is None else result
    v = source.view
    if source.layout is not _LAST or v.h != 1 or len(between.shape) != 4:
        return None
    if not _same_values(source, before, between, after):
        return None
    batch, rows, heads, depth = between.shape
    transposed = second if first.op == "Reshape" else first
    if (transposed.op, transposed.attrs.get("perm")) != ("Transpose", [0, 2, 1, 3]) or depth % v.block:
        return None
    if {first.op, second.op} != {"Reshape", "Transpose"}:
        return None
    blocks = depth // v.block
    if first.op == "Reshape":
        if (v.n, v.w, v.c) != (batch, rows, heads * depth) or (batch > 1 and v.sn != heads * blocks * v.sc):
            return None
        divided = replace(v, tensor=after.name, n=batch * heads, c=depth, sn=blocks * v.sc)
        return Blocked(_LAST, divided, alias=True)
    if (v.n, v.w, v.c) != (batch * heads, rows, depth) or v.sn != blocks * v.sc:
        return None
    if planes_of(after.shape, _LAST) != (batch, heads * depth, 1, rows):
        return None
    joined = replace(v, tensor=after.name, n=batch, c=heads * depth, sn=heads * v.sn)
    return Blocked(_LAST, joined, alias=True)


def planes_of_rows(graph: Graph, first: Node, second: Node, source: Blocked) -> Blocked | None:
    """Returns rows [B, H * W, C] as planes [B, C, H, W], or planes as rows: the same vectors in the same order.

    Args:
        graph: the graph of both moves.
        first, second: a Reshape and a Transpose, or for planes a Transpose and a Reshape.
        source: the blocked form of the first move's operand.

    Returns:
        The blocked form of the second move's output; None for any other two moves.
    """
    before, between, after = (graph.tensor(n) for n in (first.inputs[0], first.outputs[0], second.outputs[0]))
    v = source.view
    if not _same_values(source, before, between, after):
        return None
    perm = [0, 3, 1, 2] if source.layout is _LAST else [0, 2, 3, 1]
    transposed, reshaped = (second, first) if source.layout is _LAST else (first, second)
    if (transposed.op, transposed.attrs.get("perm"), reshaped.op) != ("Transpose", perm, "Reshape"):
        return None
    other = after if source.layout is _LAST else before
    n, c, h, w = other.shape
    if (v.n, v.c, v.h * v.w) != (n, c, h * w) or not _rows_follow(v):
        return None
    if source.layout is _LAST:
        return Blocked(_FIRST, replace(v, tensor=after.name, h=h, w=w, sh=w * v.block), alias=True)
    if plane_shape(after.shape, _LAST) != (n, c, 1, h * w):
        return None
    return Blocked(_LAST, replace(v, tensor=after.name, h=1, w=h * w, sh=h * w * v.block), alias=True)


def _same_vectors(
    before: Tensor, after: Tensor, source: Blocked, layout: Layout, planes: tuple[int, int, int, int]
) -> bool:
    """Returns True if the result in `layout` consists of the operand's channel vectors, in the same order."""
    v, (n, c, h, w) = source.view, planes
    if c != v.c or n * h * w != v.n * v.h * v.w:
        return False
    if c == 1:
        return True  # vectors of one element lie as the elements do
    match source.layout, layout:
        case Layout.CHANNELS_FIRST, Layout.CHANNELS_FIRST:
            return after.shape[0] == v.n
        case Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST:  # [N, C, 1, ...], C stays the last axis
            return all(d == 1 for d in before.shape[2:]) and after.shape[-1] == before.shape[1]
        case Layout.CHANNELS_LAST, Layout.CHANNELS_FIRST:  # one vector per image
            return v.n * v.h * v.w == n
    return True


def _walked(v: View, planes: tuple[int, int, int, int]) -> View | None:
    """Returns the vectors of a view with the images, rows and columns of `planes`; None if no strides express that."""
    n, _, h, w = planes
    if (n, h, w) == (v.n, v.h, v.w):
        return v
    if _rows_follow(v) and n == v.n and h * w == v.h * v.w:
        return replace(v, h=h, w=w, sh=w * v.block)
    if v.h * v.w == 1 and n == 1 and h == 1 and v.sn == v.block:  # images of one block become rows
        return replace(v, n=1, h=1, w=w, sn=0, sh=w * v.block)
    if v.cb == 1 and v.sn == v.h * v.w * v.block and _rows_follow(v):  # vectors one behind the other
        return replace(v, n=n, h=h, w=w, sn=h * w * v.block, sc=h * w * v.block, sh=w * v.block)
    if v.n == 1 and v.w == 1 and h * w == 1:  # rows become images
        return replace(v, n=n, h=1, w=1, sn=v.sh, sh=v.block)
    if v.n == 1 and v.h == 1 and h * w == 1:
        return replace(v, n=n, h=1, w=1, sn=v.block, sh=v.block)
    return None


def _rows_follow(v: View) -> bool:
    """Returns True if the rows of a plane are contiguous."""
    return v.h == 1 or v.sh == v.w * v.block
