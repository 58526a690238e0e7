"""Rules of convolutions and matrix products: exact sums in the fields, and the requantiser."""

from __future__ import annotations

import numpy as np

from tilewright.isa import numerics
from tilewright.prove.checker.cells import CELL
from tilewright.prove.checker.fields import Array, field_product
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.rules import Node, centred, padded, rule, taps


def _weights(node: Node, axis: int) -> tuple[Array, Array]:
    """Integers of constant weights less their zero points, and the requantiser's scales of the channels on `axis`."""
    w, x, y = node.type(1), node.type(), node.result
    shape = [1] * node.constant(1).ndim
    if w.scale.ndim:
        shape[axis if w.axis is None else w.axis] = -1
    data = node.constant(1).astype(np.int64) - w.zero_point.reshape(shape)
    return data, numerics.product_scale(x.scale, w.scale, y.scale)


def _bounds(node: Node, w: Array, axis: int, groups: int, padding: bool) -> tuple[Array, Array]:
    """Least and largest sums of stored bytes by weights [O, C / groups, taps], for every output channel.

    Args:
        axis: that of the input channels.
        padding: zero points lie between the elements.
    """
    low, high = node.range(0, axis)
    zero = node.type().stored_zero_point
    if padding:
        low, high = np.minimum(low, zero), np.maximum(high, zero)
    low, high = (end.reshape(groups, 1, -1, 1) for end in (low, high))
    parts = w.reshape(groups, -1, *w.shape[1:])
    least, most = (f(parts * low, parts * high).sum(axis=(2, 3)).ravel() for f in (np.minimum, np.maximum))
    return least, most


def convolved(names: Names, cells: Array, places: Array, w: Array, group: int) -> Array:
    """Elements [N, OH, OW, O, FIELDS] of a row of cells by integers [O, C / group, taps].

    Args:
        places: numbers of the cells, as `taps` has them.
    """
    outputs, depth, size = w.shape
    each = outputs // group
    if depth == 1 and group > 1:
        return names.window(cells, np.repeat(places, each, axis=3), w[:, 0])
    parts = []
    for g in range(group):
        columns = cells[places[..., g * depth : (g + 1) * depth, :]]
        columns = columns.reshape(*places.shape[:3], depth * size, CELL)
        parts.append(names.product(columns, w[g * each : (g + 1) * each].reshape(each, -1).T))
    return np.concatenate(parts, axis=3)


@rule("QConv", "QConvTranspose")
def conv(node: Node) -> Array:
    """Sums of stored bytes, padding among them as zero points, whose share is taken off as a part of the bias."""
    transposed, group, zero = node.step.op == "QConvTranspose", node["group"], node.type().stored_zero_point
    w, scale = _weights(node, 1 if transposed else 0)
    places = taps(node, node.type().shape, w.shape[2:], transposed)
    w = w.reshape(*w.shape[:2], -1)
    if transposed:
        w = w.reshape(group, -1, *w.shape[1:]).swapaxes(1, 2)[..., ::-1].reshape(group * w.shape[1], -1, w.shape[2])
    bias = node.bias() - zero * w.sum(axis=(1, 2))
    bounds = [end + bias for end in _bounds(node, w, 1, group, transposed or any(node["pads"]))]
    sums = convolved(node.names, padded(node.cells(), node.names.bytes[zero]), places, w, group)
    found = node.requantized(sums, bias, scale, bounds=(bounds[0], bounds[1]))
    return np.moveaxis(found, 3, 1).reshape(*node.result.shape, CELL)


@rule("QMatMul")
def matmul(node: Node) -> Array:
    y, weights = node.result, node.type(1)
    if weights.data is not None and weights.data.ndim == 2:
        w, scale = _weights(node, 1)
        bias = node.bias() - node.type().stored_zero_point * w.sum(axis=0)
        least, most = _bounds(node, w.T[..., None], len(node.type().shape) - 1, 1, False)
        found = node.requantized(node.names.product(node.cells(), w), bias, scale, bounds=(least + bias, most + bias))
    else:
        a = node.type()
        scale = numerics.product_scale(a.scale, weights.scale, y.scale)
        found = node.requantized(field_product(centred(node), centred(node, 1)), node.bias(), scale)
    return found.reshape(*y.shape, CELL)
