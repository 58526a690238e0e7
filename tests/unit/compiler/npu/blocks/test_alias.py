"""Reshapes and Transposes that leave blocked bytes in place, and those that cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.graph import Node, Quant, Tensor
from compiler.npu.blocks.alias import alias_of
from compiler.npu.blocks.blocked import Blocked
from compiler.npu.views import View, dense_view, planes_of
from isa.program import ARENA_REGION, Layout

FIRST, LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST
BLOCK = 4
Shape = tuple[int, ...]


def alias(before: Shape, source: Layout, after: Shape, perm: Shape | None = None) -> Blocked | None:
    """What becomes of a dense blocked tensor that is moved."""
    quant = Quant.of(np.float32(0.5), 1)
    x, y = (Tensor(name, shape, np.dtype(np.int8), None, quant) for name, shape in (("x", before), ("y", after)))
    move = Node("Reshape", ["x"], ["y"]) if perm is None else Node("Transpose", ["x"], ["y"], {"perm": list(perm)})
    view = dense_view("x", "buffer", ARENA_REGION, planes_of(before, source), BLOCK)
    return alias_of(move, x, y, Blocked(source, view))


def gathered(data: np.ndarray, view: View, channels_last: bool) -> np.ndarray:
    """The tensor that a view reads out of a buffer: [N, C, H, W], or [N, H, W, C]."""
    index = [
        [[[view.address(n, c // BLOCK, y, x) + c % BLOCK for x in range(view.w)] for y in range(view.h)]
         for c in range(view.c)] for n in range(view.n)
    ]  # fmt: skip
    planes = data[np.array(index)]
    return np.moveaxis(planes, 1, -1) if channels_last else planes


@pytest.mark.parametrize(
    ("before", "source", "after", "perm", "layout"),
    [
        ((1, 8, 2, 3), FIRST, (1, 8, 6), None, FIRST),  # rows join
        ((1, 8, 6), FIRST, (1, 8, 2, 3), None, FIRST),
        ((2, 4, 1, 1), FIRST, (2, 4), None, LAST),  # images of one block become rows
        ((2, 8, 1, 1), FIRST, (2, 8), None, None),  # of two blocks: they alternate
        ((1, 8, 1, 1), FIRST, (1, 8), None, LAST),
        ((3, 8), LAST, (1, 3, 8), None, LAST),
        ((6, 8), LAST, (2, 3, 8), None, None),
        ((1, 4, 8), LAST, (4, 8, 1, 1), None, FIRST),  # rows become images
        ((1, 8, 6), FIRST, (1, 6, 8), (0, 2, 1), LAST),
        ((1, 6, 8), LAST, (1, 8, 6), (0, 2, 1), FIRST),
        ((1, 8, 2, 3), FIRST, (1, 48), None, None),  # channels and pixels mix
        ((1, 8, 2, 3), FIRST, (1, 2, 3, 8), (0, 2, 3, 1), None),
        ((2, 8, 3), FIRST, (1, 16, 3), None, None),  # other channels
        ((2, 8, 1, 1), FIRST, (1, 8, 2, 1), None, None),  # images become rows of a plane
    ],
)
def test_alias(before: Shape, source: Layout, after: Shape, perm: Shape | None, layout: Layout | None) -> None:
    found = alias(before, source, after, perm)
    assert (found.layout if found is not None else None) == layout
    if found is None:
        return
    assert found.alias and found.view.tensor == "y" and found.view.buffer == "buffer"
    # Both views read the same values, each in its tensor's own order.
    first = dense_view("x", "buffer", ARENA_REGION, planes_of(before, source), BLOCK)
    data = np.arange(first.n * first.sn)
    x = gathered(data, first, source is LAST).reshape(before)
    y = gathered(data, found.view, found.layout is LAST).reshape(after)
    np.testing.assert_array_equal(y, x.reshape(after) if perm is None else x.transpose(perm))


def test_other_quantisation() -> None:
    x = Tensor("x", (1, 8, 4), np.dtype(np.int8), None, Quant.of(np.float32(0.5), 1))
    y = replace(x, name="y", quant=Quant.of(np.float32(0.25), 1))
    view = dense_view("x", "buffer", ARENA_REGION, planes_of(x.shape, FIRST), BLOCK)
    assert alias_of(Node("Identity", ["x"], ["y"]), x, y, Blocked(FIRST, view)) is None
