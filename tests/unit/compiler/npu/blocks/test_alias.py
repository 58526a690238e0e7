"""Aliases: data movement that leaves blocked bytes in place is found, and other movement is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.npu.blocks.alias import alias_of, heads_of, planes_of_rows
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.views import View, dense_view, planes_of
from tilewright.isa.program import ARENA_REGION, Layout

FIRST, LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST
BLOCK = 4
Shape = tuple[int, ...]


def alias(before: Shape, source: Layout, after: Shape, perm: Shape | None = None) -> Blocked | None:
    """Returns the alias of a dense blocked tensor after a Reshape, or a Transpose by `perm`; None if bytes move."""
    quant = Quant.of(np.float32(0.5), 1)
    x, y = (Tensor(name, shape, np.dtype(np.int8), None, quant) for name, shape in (("x", before), ("y", after)))
    move = Node("Reshape", ["x"], ["y"]) if perm is None else Node("Transpose", ["x"], ["y"], {"perm": list(perm)})
    view = dense_view("x", "buffer", ARENA_REGION, planes_of(before, source), BLOCK)
    graph = Graph()
    graph.tensors = {"x": x, "y": y}
    return alias_of(graph, move, "y", Blocked(source, view))


def gathered(data: np.ndarray, view: View, channels_last: bool) -> np.ndarray:
    """Returns the tensor that a view reads out of a buffer: [N, C, H, W], or [N, H, W, C]."""
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
        ((2, 8, 1, 1), FIRST, (2, 8), None, None),  # images of two blocks alternate
        ((1, 8, 1, 1), FIRST, (1, 8), None, LAST),
        ((3, 8), LAST, (1, 3, 8), None, LAST),
        ((6, 8), LAST, (2, 3, 8), None, None),
        ((1, 4, 8), LAST, (4, 8, 1, 1), None, FIRST),  # rows become images
        ((1, 8, 6), FIRST, (1, 6, 8), (0, 2, 1), LAST),
        ((1, 6, 8), LAST, (1, 8, 6), (0, 2, 1), FIRST),
        ((1, 24), LAST, (1, 3, 1, 8), None, LAST),  # a row divided into heads, and joined of them
        ((1, 3, 1, 8), LAST, (1, 24), None, LAST),
        ((1, 18), LAST, (1, 3, 1, 6), None, None),  # heads that do not fill blocks
        ((2, 24), LAST, (2, 3, 1, 8), None, None),  # heads of more than one row lie apart
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


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("heads", "depth", "is_alias"), [(3, 8, True), (2, 4, True), (1, 4, True), (3, 6, False)])
def test_heads(batch: int, heads: int, depth: int, is_alias: bool) -> None:
    """Rows split into heads and heads joined to rows are aliases, although neither of the two moves alone is one."""
    rows, apart, turned = (batch, 5, heads * depth), (batch, 5, heads, depth), (batch, heads, 5, depth)
    quant = Quant.of(np.float32(0.5), 1)
    for before, after, ops in (
        (rows, turned, [Node("Reshape", ["x"], ["t"]), Node("Transpose", ["t"], ["y"], {"perm": [0, 2, 1, 3]})]),
        (turned, rows, [Node("Transpose", ["x"], ["t"], {"perm": [0, 2, 1, 3]}), Node("Reshape", ["t"], ["y"])]),
    ):
        graph = Graph()
        for name, shape in (("x", before), ("t", apart), ("y", after)):
            graph.tensors[name] = Tensor(name, shape, np.dtype(np.int8), None, quant)
        view = dense_view("x", "buffer", ARENA_REGION, planes_of(before, LAST), BLOCK)
        found = heads_of(graph, ops[0], ops[1], Blocked(LAST, view))
        assert (found is not None) == is_alias
        if found is None:
            continue
        data = np.arange(view.n * view.sn)
        x = gathered(data, view, True).reshape(before)
        moved = x.reshape(apart).transpose(0, 2, 1, 3) if before == rows else x.transpose(0, 2, 1, 3).reshape(rows)
        assert found.alias and found.layout is LAST and found.view.tensor == "y"
        np.testing.assert_array_equal(gathered(data, found.view, True).reshape(after), moved)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [8, 6])
def test_planes_of_rows(batch: int, channels: int) -> None:
    """Rows of an image's pixels as planes of channels, and planes as rows, are aliases."""
    rows, pixels, planes = (batch, 12, channels), (batch, 3, 4, channels), (batch, channels, 3, 4)
    quant = Quant.of(np.float32(0.5), 1)
    to_planes = [Node("Reshape", ["x"], ["t"]), Node("Transpose", ["t"], ["y"], {"perm": [0, 3, 1, 2]})]
    to_rows = [Node("Transpose", ["x"], ["t"], {"perm": [0, 2, 3, 1]}), Node("Reshape", ["t"], ["y"])]
    for before, after, ops, layout in ((rows, planes, to_planes, LAST), (planes, rows, to_rows, FIRST)):
        graph = Graph()
        for name, shape in (("x", before), ("t", pixels), ("y", after)):
            graph.tensors[name] = Tensor(name, shape, np.dtype(np.int8), None, quant)
        view = dense_view("x", "buffer", ARENA_REGION, planes_of(before, layout), BLOCK)
        found = planes_of_rows(graph, ops[0], ops[1], Blocked(layout, view))
        assert found is not None and found.alias and found.layout is not layout and found.view.tensor == "y"
        data = np.arange(view.n * view.sn)
        x = gathered(data, view, layout is LAST).reshape(before)
        moved = x.reshape(pixels).transpose(0, 3, 1, 2) if before == rows else x.transpose(0, 2, 3, 1).reshape(rows)
        np.testing.assert_array_equal(gathered(data, found.view, layout is FIRST).reshape(after), moved)
        assert planes_of_rows(graph, ops[1], ops[0], Blocked(layout, view)) is None


@pytest.mark.parametrize(
    ("before", "source", "part", "is_alias"),
    [
        ((1, 8, 2, 3), FIRST, np.s_[:, 4:], True),  # channels from a block on
        ((1, 12, 2, 3), FIRST, np.s_[:, 4:7], True),
        ((1, 8, 2, 3), FIRST, np.s_[:, 2:6], False),  # within a block
        ((2, 8, 4, 3), FIRST, np.s_[1:, :, 1:3, 1:], True),
        ((2, 8, 4, 3), FIRST, np.s_[:, :, ::2], False),  # every second row
        ((2, 8, 5), FIRST, np.s_[:, 4:, 2:4], True),
        ((1, 5, 8), LAST, np.s_[:, 1:4], True),
        ((5, 8), LAST, np.s_[2:, 4:], True),
        ((2, 5, 8), LAST, np.s_[1:, :], True),  # images
        ((2, 3, 5, 8), LAST, np.s_[1:, :, 2:4], True),
        ((2, 3, 5, 8), LAST, np.s_[:, 1:], False),  # other axes than the first, rows and channels
    ],
)
def test_slices(before: Shape, source: Layout, part: tuple[slice, ...], is_alias: bool) -> None:
    x = np.zeros(before, np.int8)
    axes = [axis for axis in range(len(part)) if part[axis] != slice(None)]
    bounds = [part[axis].indices(before[axis]) for axis in axes]
    values = ([b[0] for b in bounds], [b[1] for b in bounds], axes, [b[2] for b in bounds])
    _check_cut(before, source, "Slice", {}, values, x[part].shape, part, is_alias)


def test_slice_from_the_end() -> None:
    _check_cut((1, 12, 2), FIRST, "Slice", {}, ([-8], [-4], [1], [1]), (1, 4, 2), np.s_[:, -8:-4], True)


def test_split_and_gather() -> None:
    _check_cut((1, 12, 2), FIRST, "Split", {"axis": 1}, ([4, 8],), (1, 8, 2), np.s_[:, 4:], True, ["first", "y"])
    _check_cut((1, 12, 2), FIRST, "Split", {"axis": 1}, ([5, 7],), (1, 7, 2), np.s_[:, 5:], False, ["first", "y"])
    _check_cut((1, 5, 8), LAST, "Gather", {"axis": 1}, (3,), (1, 8), np.s_[:, 3], True)  # the token of the class
    _check_cut((1, 5, 8), LAST, "Gather", {"axis": 1}, ([-1],), (1, 1, 8), np.s_[:, -1:], True)
    _check_cut((1, 5, 8), LAST, "Gather", {"axis": 1}, ([0, 2],), (1, 2, 8), np.s_[:, ::2], False)


def _check_cut(
    before: Shape, source: Layout, op: str, attrs: dict[str, object], values: tuple[object, ...], after: Shape,
    part: object, is_alias: bool, outputs: list[str] | None = None,
) -> None:  # fmt: skip
    """Checks that a part of a tensor is an alias exactly where expected, and reads the right values.

    Args:
        part: numpy index of the part.
        is_alias: True if an alias is expected.
    """
    quant = Quant.of(np.float32(0.5), 1)
    graph = Graph()
    for name, shape in (("x", before), ("y", after)):
        graph.add(Tensor(name, shape, np.dtype(np.int8), None, quant))
    names = [graph.constant("c", np.array(v, np.int64)) for v in values]
    whole = dense_view("x", "buffer", ARENA_REGION, planes_of(before, source), BLOCK)
    found = alias_of(graph, Node(op, ["x", *names], outputs or ["y"], attrs), "y", Blocked(source, whole))
    assert (found is not None) == is_alias
    if found is None:
        return
    data = np.arange(whole.n * whole.sn)
    x = gathered(data, whole, source is LAST).reshape(before)
    y = gathered(data, found.view, found.layout is LAST).reshape(after)
    np.testing.assert_array_equal(y, x[part])  # type: ignore[index]
    if found.view.nbytes < whole.nbytes:
        assert found.view.within(whole) is not None and whole.within(found.view) is None


def test_other_quantisation() -> None:
    x = Tensor("x", (1, 8, 4), np.dtype(np.int8), None, Quant.of(np.float32(0.5), 1))
    y = replace(x, name="y", quant=Quant.of(np.float32(0.25), 1))
    view = dense_view("x", "buffer", ARENA_REGION, planes_of(x.shape, FIRST), BLOCK)
    graph = Graph()
    graph.tensors = {"x": x, "y": y}
    assert alias_of(graph, Node("Identity", ["x"], ["y"]), "y", Blocked(FIRST, view)) is None
