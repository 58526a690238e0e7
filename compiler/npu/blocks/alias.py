"""Where a Reshape or Transpose leaves the blocked bytes as they are, its result is an alias: the same bytes, read with
another shape."""

from __future__ import annotations

from dataclasses import replace

from compiler.graph import Node, Tensor
from compiler.npu.blocks.blocked import Blocked
from compiler.npu.views import View, plane_shape
from isa.program import Layout

_FIRST, _LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST


#: Ops that only rearrange a tensor: where the blocked bytes stay where they are, they cost nothing.
MOVES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"})


def alias_of(move: Node, before: Tensor, after: Tensor, source: Blocked) -> Blocked | None:
    """The result of a move as another reading of its operand's bytes, None if they have to be moved.

    Args:
        before, after: operand and result of the move.
        source: the operand's blocked form.
    """
    if before.quant is None or not before.quant.same_as(after.quant) or before.dtype != after.dtype:
        return None
    if move.op == "Transpose":
        return _transposed(move, before, after, source)
    for layout in (_FIRST, _LAST):
        planes = plane_shape(after.shape, layout)
        if planes is None or (layout is _FIRST and len(after.shape) == 2):
            continue
        if _same_vectors(before, after, source, layout, planes):
            view = _walked(source.view, planes)
            if view is not None:
                return Blocked(layout, replace(view, tensor=after.name), alias=True)
    return None


def _transposed(move: Node, before: Tensor, after: Tensor, source: Blocked) -> Blocked | None:
    perm = tuple(move.attrs.get("perm") or range(len(before.shape))[::-1])
    if perm == tuple(range(len(perm))):
        return Blocked(source.layout, replace(source.view, tensor=after.name), alias=True)
    v = source.view
    if perm == (0, 2, 1) and _rows_follow(v):  # channels change their axis, not their place
        flat = replace(v, h=1, w=v.h * v.w, sh=v.h * v.w * v.block, tensor=after.name)
        return Blocked(_LAST if source.layout is _FIRST else _FIRST, flat, alias=True)
    return None


def _same_vectors(
    before: Tensor, after: Tensor, source: Blocked, layout: Layout, planes: tuple[int, int, int, int]
) -> bool:
    """True if the result in `layout` consists of the operand's channel vectors, in the same order."""
    v, (n, c, h, w) = source.view, planes
    if c != v.c or n * h * w != v.n * v.h * v.w:
        return False
    match source.layout, layout:
        case Layout.CHANNELS_FIRST, Layout.CHANNELS_FIRST:
            return after.shape[0] == v.n
        case Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST:  # [N, C, 1, ...], C stays the last axis
            return all(d == 1 for d in before.shape[2:]) and after.shape[-1] == before.shape[1]
        case Layout.CHANNELS_LAST, Layout.CHANNELS_FIRST:  # one vector per image
            return v.n * v.h * v.w == n
    return True


def _walked(v: View, planes: tuple[int, int, int, int]) -> View | None:
    """The vectors of a view walked as N, H, W of `planes`, None if strides cannot say that."""
    n, _, h, w = planes
    if (n, h, w) == (v.n, v.h, v.w):
        return v
    if _rows_follow(v) and n == v.n and h * w == v.h * v.w:
        return replace(v, h=h, w=w, sh=w * v.block)
    if v.h * v.w == 1 and n == 1 and h == 1 and v.sn == v.block:  # images of one block become rows
        return replace(v, n=1, h=1, w=w, sn=0, sh=w * v.block)
    if v.n == 1 and v.w == 1 and h * w == 1:  # rows become images
        return replace(v, n=n, h=1, w=1, sn=v.sh, sh=v.block)
    if v.n == 1 and v.h == 1 and h * w == 1:
        return replace(v, n=n, h=1, w=1, sn=v.block, sh=v.block)
    return None


def _rows_follow(v: View) -> bool:
    """True if there is nothing between the rows of a plane."""
    return v.h == 1 or v.sh == v.w * v.block
