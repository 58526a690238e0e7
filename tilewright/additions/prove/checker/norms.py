"""Rules of Softmax and norms that the NPU runs: the integers of ROW in docs/numerics.md, which the report counts.

onnxruntime and LiteRT add rows in float32, so what these rules name differs from them next to ties.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.row_bits import BIAS_FRACTION, EPSILON_FRACTION
from tilewright.isa.row_norm import FACTOR_SCALE, TRUNCATION
from tilewright.prove.checker import statistics
from tilewright.prove.checker.cells import BYTES, CELL
from tilewright.prove.checker.findings import NoRule
from tilewright.prove.checker.rules import Array, Node, rule

#: Largest exponential of a row.
_ONE = (1 << 24) - 1


@rule("QSoftmax")
def softmax(node: Node) -> Array:
    """Exponentials of 24 bits, their exact sum, and a quotient that the requantiser multiplies by."""
    x, y, levels = node.type(), node.result, node["levels"]
    assert x.scale is not None and y.scale is not None and y.zero_point is not None
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
    terms = statistics.exponentials(node.names, steps[-np.arange(256) % 256], cells, maxima)
    scales = statistics.row_scales(node.names, statistics.summed(terms), *factor)
    scales = np.broadcast_to(scales[..., None, :], terms.shape)
    found = statistics.probabilities(node.names, terms, scales, y.stored_zero_point, *node.limits())
    node.assume("Softmax", scales.shape[:-2])
    return np.moveaxis(found, -2, axis)


@rule("QNorm", "QPlaneNorm")
def norm(node: Node) -> Array:
    """Exact moments of a row, `row_norm` of these, and a multiply-add for each element."""
    x, y = node.type(), node.result
    assert x.scale is not None and y.scale is not None
    scale, centred = node.constant(1).astype(np.float64), node.attributes.get("centred", True)
    bias = node.constant(2).astype(np.float64) if len(node.types) > 2 and node.types[2] is not None else 0 * scale
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
    total = statistics.summed(statistics.moments(node.names, squares, values, cells))
    norms = statistics.row_norms(node.names, total, count, epsilon, centred)[..., None, :]
    scale = (scale * (count * 2.0**-FACTOR_SCALE * (1 + TRUNCATION) / result_step)).astype(np.float32)
    bias = np.rint(bias / result_step * 2.0**BIAS_FRACTION)
    limits = y.stored_zero_point, *node.limits()
    found = statistics.normalised(node.names, cells, norms, bias, numerics.scale_bits(scale), *limits)
    node.assume("norm", norms.shape[:-2])
    return found.reshape(*y.shape, CELL)
