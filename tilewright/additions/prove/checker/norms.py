"""Names of what depends on a whole row, and the rules of Softmax and norms that the NPU runs: the integers of ROW.

A sum of table words is the sum of a new element for each word, so it has one name for any order of the row.

onnxruntime and LiteRT add rows in float32, so what these rules name differs from them next to ties.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.row_bits import BIAS_FRACTION, EPSILON_FRACTION
from tilewright.isa.row_norm import FACTOR_SCALE, TRUNCATION
from tilewright.prove.checker.cells import BYTES, CELL, VALUE, digest_of
from tilewright.prove.checker.fields import PRIMES, Array
from tilewright.prove.checker.graph import NoRule
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.rules import Node, rule


def _summed(elements: Array) -> Array:
    """Sums of elements [..., n, FIELDS] over n."""
    return np.asarray(elements.sum(axis=-2, dtype=np.int64) % PRIMES, np.uint32)


def exponentials(names: Names, words: Array, cells: Array, maxima: Array) -> Array:
    """Elements of `words[(byte - maximum) & 255]`, [..., n, FIELDS], of cells [..., n, CELL] and maxima [..., CELL].

    Args:
        words: int64.
    """
    return names.mix(("exponential", digest_of(words.tobytes())), cells[..., VALUE], maxima[..., None, VALUE])


def row_scales(names: Names, terms: Array, number: int, exponent: int) -> Array:
    """Elements of `isa.numerics.row_scale` of the sums of exponentials [..., n, FIELDS]."""
    return names.mix(("row_scale", number, exponent), _summed(terms))


def probabilities(names: Names, exponent: Array, scales: Array, zero_point: int, low: int, high: int) -> Array:
    """Cells of `isa.numerics.requantize` of exponentials by scales, both [..., FIELDS], broadcast."""
    return names.clamp(names.cells(names.mix(("probability", int(zero_point)), exponent, scales)), low, high)


def row_norms(
    names: Names, cells: Array, squares: Array, values: Array, count: int, epsilon: int, centred: bool
) -> Array:
    """Elements of `isa.row_norm.row_norm` of the sums of pairs `squares[byte], values[byte]` of rows [..., n, CELL].

    Args:
        squares, values: int64.
    """
    moments = names.mix(("moment", digest_of(squares.tobytes(), values.tobytes())), cells[..., VALUE])
    return names.mix(("row_norm", int(count), int(epsilon), bool(centred)), _summed(moments))


def normalised(
    names: Names, cells: Array, norms: Array, bias: Array, scale: Array, zero_point: int, low: int, high: int
) -> Array:
    """Cells of `isa.row_norm.normalise` of cells [..., CELL], norms [..., FIELDS], biases and patterns of scales."""
    words = bias.astype(np.uint64), scale.astype(np.uint64)
    found = names.mix(("normalise", int(zero_point)), cells[..., VALUE], norms, *words)
    return names.clamp(names.cells(found), low, high)


#: Largest exponential of a row.
_ONE = (1 << 24) - 1


@rule("QSoftmax")
def softmax(node: Node) -> Array:
    """Exponentials of 24 bits, their exact sum, and a quotient that the requantiser multiplies by."""
    x, y, levels = node.type(), node.result, node["levels"]
    axis = node["axis"] % len(x.shape)
    cells = np.moveaxis(node.cells(), axis, -2)
    if levels is None:
        values = numerics.litert_exponentials(np.float32(np.float32(x.scale) * np.float32(node["beta"])))
    else:
        values = numerics.softmax_exponentials(x.scale, x.shape[axis])
    factor = numerics.row_numerator(1 / float(y.scale) if levels is None else float(levels))
    if factor is None or (levels is None and y.dtype == np.uint8 and int(y.zero_point)):
        raise NoRule("no rule for this Softmax")
    steps = np.rint(values.astype(np.float64) / float(values[0]) * _ONE).astype(np.int64)
    maxima = node.names.maximum(cells)
    terms = exponentials(node.names, steps[-np.arange(256) % 256], cells, maxima)
    scales = row_scales(node.names, terms, *factor)
    found = probabilities(node.names, terms, scales[..., None, :], y.stored_zero_point, *node.limits())
    node.assume("Softmax", scales.shape[:-1])
    return np.moveaxis(found, -2, axis)


@rule("QNorm", "QPlaneNorm")
def norm(node: Node) -> Array:
    """Exact moments of a row, `row_norm` of these, and a multiply-add for each element."""
    x, y = node.type(), node.result
    scale, centred = node.constant(1).astype(np.float64), node.attributes.get("centred", True)
    bias = node.bias() + 0 * scale
    cells = node.cells()
    if node.step.op == "QPlaneNorm":  # rows are the planes of a group
        cells = cells.reshape(x.shape[0], node["groups"], -1, CELL)
        scale, bias = (np.repeat(p, math.prod(x.shape[2:])).reshape(node["groups"], -1) for p in (scale, bias))
    count, stored = cells.shape[-2], BYTES.astype(np.int64)
    if centred:
        squares, values = (stored + 128) ** 2, stored + 128
    else:
        squares, values = (stored - x.stored_zero_point) ** 2, np.full(256, x.stored_zero_point + 128)
    step, result_step = (float(np.float32(t.scale)) for t in (x, y))
    epsilon = round(math.ldexp(float(np.float32(node["epsilon"])) / step**2 * count**2, EPSILON_FRACTION))
    norms = row_norms(node.names, cells, squares, values, count, epsilon, centred)[..., None, :]
    scale = (scale * (count * 2.0**-FACTOR_SCALE * (1 + TRUNCATION) / result_step)).astype(np.float32)
    bias = np.rint(bias / result_step * 2.0**BIAS_FRACTION).astype(np.int64)
    limits = y.stored_zero_point, *node.limits()
    found = normalised(node.names, cells, norms, bias, numerics.scale_bits(scale), *limits)
    node.assume("norm", norms.shape[:-2])
    return found.reshape(*y.shape, CELL)
