"""Rules of functions of one and two bytes, of pools, and of concatenation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.checker.cells import CELL
from tilewright.prove.checker.fields import PRIMES
from tilewright.prove.checker.findings import NoRule
from tilewright.prove.checker.graph import Value
from tilewright.prove.checker.rules import EIGHT_BIT, Array, Node, padded, rule, taps, unknown

#: Values of a sum that are tried one by one where a mean has another scale in the program.
_MOST_SUMS = 1 << 21
_BYTES = np.arange(256, dtype=np.uint8).view(np.int8)


def _scales(node: Node) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Scale and zero point of both operands and the result."""
    found: list[Any] = []
    for t in (node.type(0), node.type(1), node.result):
        assert t.scale is not None and t.zero_point is not None
        found += [t.scale, int(t.zero_point)]
    return found[0], found[1], found[2], found[3], found[4], found[5]


def _pairs(node: Node) -> tuple[Array, Array]:
    """All pairs of values of two operands, in the model's types."""
    a, b = (_BYTES.astype(np.int64) + node.type(i).shift for i in (0, 1))
    return a[:, None], b[None]


def _two_bytes(node: Node, values: Array) -> Array:
    """Cells of a function of two bytes, given by its values in the model's type, and the clamp."""
    table = np.clip(values - node.result.shift, *node.limits())
    a, b = (np.broadcast_to(node.cells(i), (*node.result.shape, CELL)) for i in (0, 1))
    return node.names.combine(a, b, table.astype(np.int8))


@rule("QAdd")
def add(node: Node) -> Array:
    a, b = _pairs(node)
    k = node["constants"]
    if k is not None:
        return _two_bytes(node, (a * k["ma"] + b * k["mb"] + k["c"]) >> k["shift"])
    low, high = (v + node.result.shift for v in node.limits())
    by = numerics.add_floats if node["floats"] else numerics.add_reference
    return _two_bytes(node, by(a, b, *_scales(node), low, high))


@rule("QMul")
def mul(node: Node) -> Array:
    a, b = _pairs(node)
    low, high = (v + node.result.shift for v in node.limits())
    if node["zero_point_after"]:
        sa, za, sb, zb, sy, zy = _scales(node)
        product = ((a - za) * (b - zb)).astype(np.float32)
        return _two_bytes(node, np.rint(product * numerics.product_scale(sa, sb, sy)) + zy)
    by = numerics.mul_floats if node["floats"] else numerics.mul_reference
    return _two_bytes(node, by(a, b, *_scales(node), low, high))


def _stored(table: bytes, before: Value, after: Value) -> Array:
    """A table of the model's bytes as one of the machine's."""
    found = np.frombuffer(table, np.uint8)
    found = found[np.arange(256) ^ before.shift] ^ after.shift
    return np.asarray(found, np.uint8).view(np.int8)


@rule("Max", "Min")
def extremum(node: Node) -> Array:
    """Integers of one type; others are unknown."""
    if any(node.type(i).dtype != node.result.dtype or node.result.dtype not in EIGHT_BIT
           for i in range(len(node.step.inputs))):  # fmt: skip
        return unknown(node)[0]
    by = np.maximum if node.step.op == "Max" else np.minimum
    found = node.cells()
    for i in range(1, len(node.step.inputs)):
        shape = np.broadcast_shapes(found.shape, node.cells(i).shape)
        a, b = np.broadcast_to(found, shape), np.broadcast_to(node.cells(i), shape)
        found = node.names.combine(a, b, by(_BYTES[:, None], _BYTES[None]))
    return found


@rule("QLut")
def lut(node: Node) -> Array:
    table = _stored(node["table"], node.type(), node.result)
    return node.names.look_up(node.cells(), table)


@rule("QConcat")
def concat(node: Node) -> Array:
    parts: list[Array] = []
    for number, table in enumerate(node["tables"]):
        cells, t = node.cells(number), node.type(number)
        given = bytes(range(256)) if table is None else table
        parts.append(node.names.look_up(cells, _stored(given, t, node.result)))
    rank = len(node.result.shape)
    return np.concatenate(parts, axis=node["axis"] % rank)


@rule("QTake")
def take(node: Node) -> Array:
    shape = node.type().shape
    places = [np.arange(n) if chosen is None else np.array(chosen) for chosen, n in zip(node["indices"], shape)]
    return np.asarray(node.cells()[np.ix_(*places)])


@rule("QMaxPool")
def max_pool(node: Node) -> Array:
    cells = padded(node.cells(), node.names.bytes[-128])
    found = node.names.maximum(cells[taps(node, node.type().shape, node["kernel"])])
    return np.moveaxis(found, 3, 1).reshape(*node.result.shape, CELL)


def _mean(node: Node, cells: Array) -> Array:
    """Cells of the means of cells [N, ..., C, n, CELL], the channels behind the first axis."""
    x, y, a, n = node.type(), node.result, node.attributes, cells.shape[-2]
    assert x.scale is not None and y.scale is not None and x.zero_point is not None and y.zero_point is not None
    info, zero = np.iinfo(x.dtype), n * x.stored_zero_point
    sums, bounds = node.names.window(cells, np.ones(n)), None
    factor = numerics.mean_scale(x.scale, y.scale, n) if a.get("factor") is None else np.float32(a["factor"])
    found: tuple[np.float32, Rounding] | None = None
    if a["half_away"]:  # of the stored bytes, whatever their zero points
        exact = numerics.half_away_scale(n, info.min * n, info.max * n) if x.dtype == np.int8 else None
        if exact is not None:
            clamped = (0, *node.limits(), int(Rounding.HALF_AWAY))
            result = node.names.requantize(sums, np.zeros((), np.int64), numerics.scale_bits(exact), clamped)
            return np.moveaxis(result, -2, 1).reshape(*y.shape, CELL)
    elif a.get("offset") is not None:
        low, high = (v + y.shift for v in node.limits())
        found = numerics.litert_mean_on_machine(n, factor, int(x.zero_point), int(y.zero_point), low, high)
    else:
        found = factor, Rounding.EVEN
        least, most = (n * end - zero for end in node.range(0, 1))
        if not any(a.get("pads", ())):
            bounds = least, most
        if bounds is not None and (most - least).max() < _MOST_SUMS:
            centred = (sums.astype(np.int64) - zero) % PRIMES
            node.names.keep_sums(centred.astype(np.uint32), numerics.scale_bits(factor), least, most)
    if found is None:
        raise NoRule("no rule for this mean of LiteRT")
    result = node.requantized(sums, -zero, *found, bounds)
    return np.moveaxis(result, -2, 1).reshape(*y.shape, CELL)


@rule("ReduceMax", "ReduceMin")
def reduced(node: Node) -> Array:
    """The largest integer along axes; the least one is that of all bits inverted, inverted."""
    if node.type().dtype != node.result.dtype or node.result.dtype not in EIGHT_BIT:
        return unknown(node)[0]
    rank = len(node.type().shape)
    given = node.attributes.get("axes") or (node.constant(1) if len(node.types) > 1 and node.types[1] else range(rank))
    axes = sorted(int(axis) % rank for axis in np.ravel(given))
    kept = [axis for axis in range(rank) if axis not in axes]
    cells = node.cells().transpose(*kept, *axes, rank)
    cells = cells.reshape(*cells.shape[: len(kept)], -1, CELL)
    if node.step.op == "ReduceMax":
        return node.names.maximum(cells).reshape(*node.result.shape, CELL)
    found = node.names.maximum(node.names.look_up(cells, ~_BYTES))
    return node.names.look_up(found, ~_BYTES).reshape(*node.result.shape, CELL)


@rule("QGlobalAveragePool")
def global_average(node: Node) -> Array:
    cells = node.cells()
    return _mean(node, cells.reshape(*cells.shape[:2], -1, CELL))


@rule("QAveragePool")
def average(node: Node) -> Array:
    x, y, n = node.type(), node.result, math.prod(node["kernel"])
    assert x.scale is not None and y.scale is not None and x.zero_point is not None
    info = np.iinfo(x.dtype)
    padding = any(node["pads"]) and (node["half_away"] or not node["count_include_pad"])
    ties = not node["half_away"] and numerics.mean_may_tie(
        x.scale, int(x.zero_point), y.scale, n, int(info.min), int(info.max)
    )
    if padding or ties:  # of floats in order: the CPU's alone
        return unknown(node)[0]
    cells = padded(node.cells(), node.names.bytes[x.stored_zero_point])
    return _mean(node, cells[taps(node, x.shape, node["kernel"])])
