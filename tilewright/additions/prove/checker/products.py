"""Rules of convolutions and matrix products: exact sums in the fields, and the requantiser."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.prove.checker.cells import CELL
from tilewright.prove.checker.fields import FIELDS, PRIMES, field_product, matrix_product
from tilewright.prove.checker.rules import Array, Node, centred, planes, rule


def _weights(node: Node, axis: int) -> tuple[Array, Array]:
    """Integers of constant weights less their zero points, and the requantiser's scales of the channels on `axis`."""
    w, x, y = node.type(1), node.type(), node.result
    assert w.scale is not None and w.zero_point is not None and x.scale is not None and y.scale is not None
    data = node.constant(1).astype(np.int64)
    shape = [1] * data.ndim
    if w.scale.ndim:
        shape[axis if w.axis is None else w.axis] = -1
    return data - w.zero_point.reshape(shape), numerics.product_scale(x.scale, w.scale, y.scale)


def _with_bias(node: Node, acc: Array) -> Array:
    """A sum with channels on the last axis, and the bias."""
    if len(node.types) < 3 or node.types[2] is None:
        return acc
    bias = node.constant(2).astype(np.int64)
    return ((acc.astype(np.int64) + bias[:, None] % PRIMES) % PRIMES).astype(np.uint32)


def _bounds(node: Node, w: Array, axis: int, padded: bool, groups: int = 1) -> tuple[Array, Array]:
    """Least and largest sums of every output channel: of weights [O, C/groups, taps], by the range of every input
    channel (on `axis`) less the zero point, and 0 where there is padding."""
    low, high = (end - node.type().stored_zero_point for end in node.range(0, axis))
    if padded:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    low, high = (end.reshape(groups, 1, -1, 1) for end in (low, high))
    parts = w.reshape(groups, -1, *w.shape[1:])
    bias = node.constant(2).astype(np.int64) if len(node.types) > 2 and node.types[2] is not None else 0
    ends = [f(parts * low, parts * high).sum(axis=(2, 3)).ravel() + bias for f in (np.minimum, np.maximum)]
    return ends[0], ends[1]


def convolved(x: Array, w: Array, strides: Any, pads: Any, dilations: Any, group: int) -> Array:
    """Elements x [N, C, H, W, FIELDS] by integers w [O, C/group, KH, KW]: elements [N, OH, OW, O, FIELDS]."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
    (sy, sx), (dy, dx), (outputs, depth, kh, kw) = strides, dilations, w.shape
    oh = (x.shape[2] - (kh - 1) * dy - 1) // sy + 1
    ow = (x.shape[3] - (kw - 1) * dx - 1) // sx + 1
    taps = [
        x[:, :, i * dy : i * dy + (oh - 1) * sy + 1 : sy, j * dx : j * dx + (ow - 1) * sx + 1 : sx]
        for i in range(kh) for j in range(kw)
    ]  # fmt: skip
    flat, each = w.reshape(outputs, depth, kh * kw), outputs // group
    if depth == 1 and group > 1:
        total = np.zeros((x.shape[0], outputs, oh, ow, FIELDS), np.int64)
        for t, tap in enumerate(taps):
            total += np.repeat(tap, each, axis=1).astype(np.int64) * flat[:, 0, t, None, None, None]
        return np.moveaxis((total % PRIMES).astype(np.uint32), 1, 3)
    parts = []
    for g in range(group):
        columns = np.stack([np.moveaxis(tap[:, g * depth : (g + 1) * depth], 1, 3) for tap in taps], axis=4)
        columns = columns.reshape(*columns.shape[:3], depth * kh * kw, FIELDS)
        matrix = flat[g * each : (g + 1) * each].reshape(each, -1).T
        parts.append(matrix_product(columns, matrix))
    return np.concatenate(parts, axis=3)


def _single(
    cells: Array,
    w: Array,
    strides: Any,
    pads: Any,
    dilations: Any,
    group: int,
    zero: Array,
    grid: Any = ((1, 0), (1, 0)),
) -> tuple[Array, Array] | None:
    """Cells [N, OH, OW, O, CELL] and weights of outputs that multiply one byte only; None if none does.

    Args:
        grid: every how many rows and columns of `cells` with their padding are some, and where these begin. What lies
            between counts for nothing.
    """
    n, c, h, width = cells.shape[:4]
    sizes = h + pads[0] + pads[2], width + pads[1] + pads[3]
    oh, ow = ((size - (k - 1) * d - 1) // s + 1 for size, k, d, s in zip(
        sizes, w.shape[2:], dilations, strides, strict=True))  # fmt: skip
    rows, columns = ((np.arange(size) - start) % step == 0 for size, (step, start) in zip(sizes, grid, strict=True))

    def tap(values: Array, i: int, j: int) -> Array:
        found = values[..., i * dilations[0] :: strides[0], j * dilations[1] :: strides[1]]
        return np.asarray(found[..., :oh, :ow])

    there = rows[:, None] & columns
    counts = np.zeros((len(w), oh, ow), np.int64)
    for i, j in np.ndindex(w.shape[2:]):
        counts += np.count_nonzero(w[:, :, i, j], axis=1)[:, None, None] * tap(there, i, j)
    if not (counts == 1).any():
        return None
    x = np.empty((n, c, *sizes, CELL), np.uint32)
    x[:] = zero
    x[:, :, pads[0] : pads[0] + h, pads[1] : pads[1] + width] = cells
    moved = np.moveaxis(x, 4, 0)
    found, weights = np.zeros((n, oh, ow, len(w), CELL), np.uint32), np.zeros((n, oh, ow, len(w)), np.int64)
    for o in np.flatnonzero((counts == 1).any(axis=(1, 2))):
        for depth, i, j in np.argwhere(w[o]):
            at = (counts[o] == 1) & tap(there, i, j)
            channel = o // (len(w) // group) * w.shape[1] + depth
            found[:, at, o] = np.moveaxis(tap(moved[:, :, channel], i, j), 0, 3)[:, at]
            weights[:, at, o] = w[o, depth, i, j]
    return found, weights


def _spread(x: Array, strides: Any, cut: list[int], fill: Any) -> Array:
    """Rows and columns of [N, C, H, W, ...] with `fill` between them, without `cut` of them at the ends."""
    n, c, h, w, *rest = x.shape
    found = np.empty((n, c, (h - 1) * strides[0] + 1, (w - 1) * strides[1] + 1, *rest), x.dtype)
    found[:] = fill
    found[:, :, :: strides[0], :: strides[1]] = x
    return found[:, :, cut[0] : found.shape[2] - cut[2], cut[1] : found.shape[3] - cut[3]]


@rule("QConv", "QConvTranspose")
def conv(node: Node) -> Array:
    transposed = node.step.op == "QConvTranspose"
    w, scale = _weights(node, 1 if transposed else 0)
    x, rank, group = centred(node), len(node["kernel"]), node["group"]
    bounds = None if transposed else _bounds(node, w.reshape(*w.shape[:2], -1), 1, any(node["pads"]), group)
    if rank == 1:
        x, w = x[:, :, None], w[:, :, None]
    strides, dilations = (planes(node[k], 1, rank) for k in ("strides", "dilations"))
    pads = planes(node["pads"], 0, rank)
    cells, zero, grid = node.cells(), node.names.bytes[node.type().stored_zero_point], ((1, 0), (1, 0))
    if rank == 1:
        cells = cells[:, :, None]
    if transposed:
        extra = planes(node["output_padding"], 0, rank)
        reach = [(w.shape[2 + i] - 1) * dilations[i] for i in (0, 1)]
        ends = [reach[i % 2] - pads[i] + (extra[i - 2] if i > 1 else 0) for i in range(4)]
        cut = [max(0, -e) for e in ends]
        x, cells = _spread(x, strides, cut, 0), _spread(cells, strides, cut, zero)
        grid = (strides[0], ends[0]), (strides[1], ends[1])
        outputs, depth = w.shape[1], len(w) // group
        w = w.reshape(group, depth, outputs, *w.shape[2:]).swapaxes(1, 2)[..., ::-1, ::-1]
        w = w.reshape(group * outputs, depth, *w.shape[3:])
        strides, pads = (1, 1), tuple(max(0, e) for e in ends)
    acc = _with_bias(node, convolved(x, w, strides, pads, dilations, group))
    single = _single(cells, w, strides, pads, dilations, group, zero, grid)
    found = node.requantized(acc, scale, bounds=bounds, single=single)
    return np.moveaxis(found, 3, 1).reshape(*node.result.shape, CELL)


@rule("QMatMul")
def matmul(node: Node) -> Array:
    x, y, bounds, single = centred(node), node.result, None, None
    weights = node.type(1).data
    if weights is not None and weights.ndim == 2:
        w, scale = _weights(node, 1)
        acc = matrix_product(x, w)
        bounds = _bounds(node, w.T[..., None], x.ndim - 2, False)
        if (alone := np.count_nonzero(w, axis=0) == 1).any():
            first = np.argmax(w != 0, axis=0)
            weights = np.where(alone, w[first, np.arange(w.shape[1])], 0)
            single = node.cells()[..., first, :], np.broadcast_to(weights, acc.shape[:-1])
    else:
        a, b = node.type(), node.type(1)
        assert a.scale is not None and b.scale is not None and y.scale is not None
        scale = numerics.product_scale(a.scale, b.scale, y.scale)
        acc = field_product(x, centred(node, 1))
    return node.requantized(_with_bias(node, acc), scale, bounds=bounds, axis=len(y.shape) - 1, single=single).reshape(
        *y.shape, CELL
    )
