"""Rules of functions of one and two bytes, of pools, and of concatenation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.checker.cells import CELL
from tilewright.prove.checker.fields import FIELDS, PRIMES, residues
from tilewright.prove.checker.findings import NoRule
from tilewright.prove.checker.graph import Value
from tilewright.prove.checker.rules import EIGHT_BIT, Array, Node, centred, planes, rule, unknown

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
    low, high = node.limits()
    table = np.clip(values - node.result.shift, low, high)
    shape = node.result.shape
    if all(node.type(i).shape == shape for i in (0, 1)) and len(shape) > 1:
        _keep_pairs(node, table.astype(np.int8))
    a, b = (np.broadcast_to(node.cells(i), (*shape, CELL)) for i in (0, 1))
    return node.names.combine(a, b, table.astype(np.int8))


def _keep_pairs(node: Node, table: Array) -> None:
    """Keeps the range of a function of two bytes of one shape."""
    ends = np.stack([*node.range(0, 1), *node.range(1, 1)])
    order = np.roll(table, (128, 128), axis=(0, 1))  # by value
    pairs, which = np.unique(ends, axis=1, return_inverse=True)
    parts = [order[a + 128 : b + 129, c + 128 : d + 129] for a, b, c, d in pairs.T]
    low, high = (np.array([f(part) for part in parts])[which.ravel()] for f in (np.min, np.max))
    node.keep(1, low, high)


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
    if len(node.result.shape) > 1:
        order, ends = np.roll(table, 128), node.range(0, 1)
        parts = [order[a + 128 : b + 129] for a, b in zip(*ends, strict=True)]
        node.keep(1, np.array([p.min() for p in parts]), np.array([p.max() for p in parts]))
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


def _windows(x: Array, node: Node, fill: Array) -> Array:
    """Cells [N, C, OH, OW, taps, ...] of an operand [N, C, H, W, ...]."""
    rank = len(node["kernel"])
    kernel, strides, dilations = (planes(node[k], 1, rank) for k in ("kernel", "strides", "dilations"))
    pads = planes(node["pads"], 0, rank)
    if rank == 1:
        x = x[:, :, None]
    n, c, h, w = x.shape[:4]
    padded = np.empty((n, c, h + pads[0] + pads[2], w + pads[1] + pads[3], x.shape[4]), x.dtype)
    padded[:] = fill
    padded[:, :, pads[0] : pads[0] + h, pads[1] : pads[1] + w] = x
    rows, columns = ((size - (k - 1) * d - 1) // s + 1 for size, k, d, s in zip(
        padded.shape[2:4], kernel, dilations, strides, strict=True))  # fmt: skip
    return np.stack([
        padded[:, :, i * dilations[0] :: strides[0], j * dilations[1] :: strides[1]][:, :, :rows, :columns]
        for i in range(kernel[0]) for j in range(kernel[1])
    ], axis=4)  # fmt: skip


@rule("QMaxPool")
def max_pool(node: Node) -> Array:
    pads, kernel = node["pads"], node["kernel"]
    if not any(pads) or (max(node["dilations"]) == 1 and all(p < k for p, k in zip(pads, (*kernel, *kernel)))):
        node.keep(1, *node.range(0, 1))  # no window lies on padding alone
    taps = _windows(node.cells(), node, node.names.bytes[-128])
    return node.names.maximum(taps).reshape(*node.result.shape, CELL)


def _mean(node: Node, total: Array, n: int) -> Array:
    """Cells of a mean, from the sum of n elements less their zero points [..., FIELDS]; channels on the last axis."""
    single = None
    if n == 1:
        cells = np.moveaxis(node.cells(), 1, -2).reshape(*total.shape[:-1], CELL)
        single = cells, np.ones(total.shape[:-1], np.int64)
    x, y, a = node.type(), node.result, node.attributes
    assert x.scale is not None and y.scale is not None and x.zero_point is not None
    info = np.iinfo(x.dtype)
    if a["half_away"]:
        factor = numerics.half_away_scale(n, info.min * n, info.max * n)
        zero = residues(np.array(n * x.stored_zero_point)) if x.dtype == np.int8 else None
        if factor is None or zero is None:
            raise NoRule("no rule for this mean of LiteRT")
        stored = ((total.astype(np.int64) + zero) % PRIMES).astype(np.uint32)
        return node.names.requantize(stored, numerics.scale_bits(factor), 0, *node.limits(), Rounding.HALF_AWAY)
    factor = numerics.mean_scale(x.scale, y.scale, n) if a.get("factor") is None else np.float32(a["factor"])
    if a.get("offset") is not None:
        assert y.zero_point is not None
        low, high = (v + y.shift for v in node.limits())
        found = numerics.litert_mean_on_machine(n, factor, int(x.zero_point), int(y.zero_point), low, high)
        if found is None:
            raise NoRule("no rule for this mean of LiteRT")
        return node.requantized(total, *found)
    least, most = (n * (end - x.stored_zero_point) for end in node.range(0, 1))
    bounds = None if any(a.get("pads", ())) else (least, most)
    if bounds is not None and (most - least).max() < _MOST_SUMS:
        node.names.keep_sums(total, numerics.scale_bits(factor), least, most)
    return node.requantized(total, factor, bounds=bounds, single=single)


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
    x = centred(node)
    flat = x.reshape(*x.shape[:2], -1, FIELDS)
    total = (flat.astype(np.int64).sum(axis=2) % PRIMES).astype(np.uint32)  # [N, C]
    return _mean(node, total, flat.shape[2]).reshape(*node.result.shape, CELL)


@rule("QAveragePool")
def average(node: Node) -> Array:
    x, y, n = node.type(), node.result, int(np.prod(node["kernel"]))
    assert x.scale is not None and y.scale is not None and x.zero_point is not None
    info = np.iinfo(x.dtype)
    padded = any(node["pads"]) and (node["half_away"] or not node["count_include_pad"])
    ties = not node["half_away"] and numerics.mean_may_tie(
        x.scale, int(x.zero_point), y.scale, n, int(info.min), int(info.max)
    )
    if padded or ties:  # of floats in order: the CPU's alone
        return unknown(node)[0]
    taps = _windows(centred(node), node, np.zeros(FIELDS, np.uint32))
    total = np.moveaxis(taps.astype(np.int64).sum(axis=4) % PRIMES, 1, 3).astype(np.uint32)
    return np.moveaxis(_mean(node, total, n), 3, 1).reshape(*y.shape, CELL)
