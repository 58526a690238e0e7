"""Rules of functions of one and two bytes, of pools, and of concatenation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.checker.cells import BYTES, CELL
from tilewright.prove.checker.fields import PRIMES, Array
from tilewright.prove.checker.graph import Value
from tilewright.prove.checker.rules import EIGHT_BIT, Node, padded, rule, taps, unknown

#: Values of a sum that are tried one by one where a mean has another scale in the program.
_MOST_SUMS = 1 << 21


@rule("QAdd", "QMul")
def of_two_bytes(node: Node) -> Array:
    """A table of all pairs of bytes, by the values of these in the model's types."""
    (a, sa, za), (b, sb, zb) = ((BYTES.astype(np.int64) + t.shift, t.scale, int(t.zero_point))
                                for t in (node.type(0), node.type(1)))  # fmt: skip
    a, y, constants = a[:, None], node.result, node.attributes.get("constants")
    if constants is not None:
        values = (a * constants["ma"] + b * constants["mb"] + constants["c"]) >> constants["shift"]
    elif node.attributes.get("zero_point_after"):
        product = ((a - za) * (b - zb)).astype(np.float32)
        values = np.rint(product * numerics.product_scale(sa, sb, y.scale)) + int(y.zero_point)
    else:
        floats, exact = numerics.mul_floats, numerics.mul_reference
        if node.step.op == "QAdd":
            floats, exact = numerics.add_floats, numerics.add_reference
        limits = (end + y.shift for end in node.limits())
        values = (floats if node["floats"] else exact)(a, b, sa, za, sb, zb, y.scale, int(y.zero_point), *limits)
    table = np.clip(values - y.shift, *node.limits()).astype(np.int8)
    return node.names.combine(node.cells(0), node.cells(1), table)


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
        found = node.names.combine(found, node.cells(i), by(BYTES[:, None], BYTES[None]))
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


@rule("QMaxPool")
def max_pool(node: Node) -> Array:
    cells = padded(node.cells(), node.names.bytes[-128])
    found = node.names.maximum(cells[taps(node, node.type().shape, node["kernel"])])
    return np.moveaxis(found, 3, 1).reshape(*node.result.shape, CELL)


def _mean(node: Node, cells: Array, places: Array) -> Array:
    """Cells of the means of cells [m, CELL] at places [N, ..., C, n], the channels behind the first axis."""
    x, y, a, n = node.type(), node.result, node.attributes, places.shape[-1]
    info, names, sums, bounds = np.iinfo(x.dtype), node.names, node.names.window(cells, places, np.ones(n)), None
    scale: Any = numerics.mean_scale(x.scale, y.scale, n) if a.get("factor") is None else np.float32(a["factor"])
    zero, after, rounding = n * x.stored_zero_point, y.stored_zero_point, Rounding.EVEN
    if a["half_away"]:  # of the model's integers, whatever their zero points
        scale = numerics.half_away_scale(n, info.min * n, info.max * n)
        zero, after, rounding = -n * x.shift, -x.shift, Rounding.HALF_AWAY
    elif a.get("offset") is not None:
        low, high = (v + y.shift for v in node.limits())
        found = numerics.litert_mean_on_machine(n, scale, int(x.zero_point), int(y.zero_point), low, high)
        scale, rounding = found or (None, rounding)
    elif not any(a.get("pads", ())):
        least, most = bounds = tuple(n * end - zero for end in node.range(0, 1))
        if (most - least).max() < _MOST_SUMS:
            centred = (sums.astype(np.int64) - zero) % PRIMES
            names.keep_sums(centred.astype(np.uint32), least, most)
    if scale is None:  # of floats: the CPU's alone
        return unknown(node)[0]
    rule = (after, *node.limits(), int(rounding))
    result = names.requantize(sums, np.array(-zero), numerics.scale_bits(scale), rule, bounds)
    return np.moveaxis(result, -2, 1).reshape(*y.shape, CELL)


@rule("QInterpolate")
def interpolated(node: Node) -> Array:
    """Sums of the neighbours of each element, times their shares of row and column, rounded once: halves upwards, as
    (2 sum + 1) / 2 is never one, or those of the sum less its zero point to the even integer."""
    (n, c, h, w), places, shares, whole = node.type().shape, [], [], 1
    for axis in (node["rows"], node["columns"]):
        first, second, share = (np.array(axis[k]) for k in ("first", "second", "shares"))
        share = np.where(first == second, 0, share)
        places.append(np.stack([first, second], axis=1))
        shares.append(np.stack([axis["one"] - share, share], axis=1))
        whole *= axis["one"]
    planes = np.arange(n * c).reshape(n, c, 1, 1, 1, 1) * h
    at = (planes + places[0][:, None, :, None]) * w + places[1][:, None]  # [N, C, H, W, 2, 2]
    weights = shares[0][:, None, :, None] * shares[1][:, None]
    twice, zero = (1, node.result.stored_zero_point) if node["to_even"] or whole == 1 else (2, 0)
    weights = (twice * weights).reshape(*at.shape[2:4], 4)
    sums = node.names.window(node.cells().reshape(-1, CELL), at.reshape(*at.shape[:4], 4), weights)
    rule = (zero, *node.limits(), int(Rounding.EVEN))
    scale = numerics.scale_bits(np.float32(1 / (twice * whole)))
    return node.names.requantize(sums, np.array(twice - 1 - zero * whole), scale, rule)


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
    found = node.names.maximum(node.names.look_up(cells, ~BYTES))
    return node.names.look_up(found, ~BYTES).reshape(*node.result.shape, CELL)


@rule("QGlobalAveragePool")
def global_average(node: Node) -> Array:
    shape = node.type().shape
    return _mean(node, node.cells().reshape(-1, CELL), np.arange(math.prod(shape)).reshape(*shape[:2], -1))


@rule("QAveragePool")
def average(node: Node) -> Array:
    x, y, n = node.type(), node.result, math.prod(node["kernel"])
    info = np.iinfo(x.dtype)
    padding = any(node["pads"]) and (node["half_away"] or not node["count_include_pad"])
    ties = not node["half_away"] and numerics.mean_may_tie(
        x.scale, int(x.zero_point), y.scale, n, int(info.min), int(info.max)
    )
    if padding or ties:  # of floats in order: the CPU's alone
        return unknown(node)[0]
    cells = padded(node.cells(), node.names.bytes[x.stored_zero_point])
    return _mean(node, cells, taps(node, x.shape, node["kernel"]))
