"""Evaluates nodes: by their rules, by where data moves, and for each value what follows from one integer input alone,
or what floats and constants for each channel make of one tensor of bytes.

Such an integer, a token or its position, is 0 to n - 1, where n is the least number of rows of the tables that it is
the index of. Tensors of bytes that follow from it and constants are rows of a table, whoever makes them, by numpy's
arithmetic; transcendental functions are those of float64, rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.prove.checker.cells import BYTES, CELL, VALUE
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array
from tilewright.prove.checker.graph import NoRule, QuantisedGraph, Step, Value
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.rules import EIGHT_BIT, ROWS, RULES, Node, rule, unknown

_OF_BYTES = ("Add", "Sub", "Mul", "Div", "PRelu", "QuantizeLinear", "DequantizeLinear")
#: Most numbers of all values of a tensor that are computed.
_MOST_VALUES = 1 << 26
_SHAPED = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten")


def _sliced(node: Node, x: Array, *given: Array) -> Array:
    for start, end, axis, step in zip(*(values.ravel().tolist() for values in given), strict=True):
        x = np.take(x, range(*slice(start, end, step).indices(x.shape[axis])), axis=axis)
    return x


def _padded(node: Node, x: Array, amounts: Array, value: Array | None = None, axes: Array | None = None) -> Array:
    amounts, mode = amounts.reshape(2, -1).T, node["mode"]
    if axes is not None or (value is None and mode == "constant"):
        raise NoRule("no rule for Pad along some axes, or without a value")
    inner = x[tuple(slice(max(0, -int(b)), n - max(0, -int(e))) for n, (b, e) in zip(x.shape, amounts, strict=True))]
    constant = {"constant_values": value.item()} if value is not None and mode == "constant" else {}
    return np.pad(inner, np.maximum(amounts, 0), mode=mode, **constant)


def _taken(node: Node, x: Array) -> Array:
    chosen = [np.arange(n) if some is None else np.array(some) for some, n in zip(node["indices"], x.shape)]
    return np.asarray(x[np.ix_(*chosen)])


def _spread(node: Node, x: Array) -> Array:
    """DepthToSpace: channels become rows and columns of blocks, the channel of the result first or last."""
    (n, c, h, w), b = x.shape, node["blocksize"]
    if node.attributes.get("mode") == "CRD":
        return x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(node.result.shape)
    return x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(node.result.shape)


def _gathered(node: Node, x: Array) -> Array:
    """SpaceToDepth: rows and columns of blocks become channels."""
    (n, c, h, w), b = x.shape, node["blocksize"]
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(node.result.shape)


#: Data movement: what a node makes of arrays, of whatever these are.
_MOVES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_SHAPED, lambda node, x, *_: x.reshape(node.result.shape)),
    "Transpose": lambda node, x: x.transpose(node.attributes.get("perm")),
    "Expand": lambda node, x, _: np.broadcast_to(x, node.result.shape),
    "Tile": lambda node, x, times: np.tile(x, times),
    "Gather": lambda node, x, index: np.take(x, index, axis=node.attributes.get("axis", 0)),
    "Concat": lambda node, *x: np.concatenate(x, axis=node["axis"]),
    "Split": lambda node, x, sizes: np.split(x, np.cumsum(sizes)[:-1], axis=node["axis"]),
    "Where": lambda node, chosen, x, other: np.where(chosen, x, other),
    "Slice": _sliced, "Pad": _padded, "QTake": _taken, "DepthToSpace": _spread, "SpaceToDepth": _gathered,
}  # fmt: skip
_VALUES: dict[str, Callable[..., Any]] = {
    **_MOVES,
    "Cast": lambda node, x: x,
    "Cos": lambda node, x: np.cos(x.astype(np.float64)),
    "Sin": lambda node, x: np.sin(x.astype(np.float64)),
    "DequantizeLinear": lambda node, x, scale, zero_point=0: numerics.dequantize(x, scale, zero_point),
    "QuantizeLinear": lambda node, x, scale, zero_point=0: numerics.quantize(
        np.nan_to_num(x, nan=-np.inf, posinf=np.inf, neginf=-np.inf), scale, zero_point, node.result.dtype),
}  # fmt: skip
_VALUES |= {
    op: lambda node, *x, function=function: function(*x)
    for op, function in {
        "Mod": np.mod, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater, "Equal": np.equal,
        "GreaterOrEqual": np.greater_equal, "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or,
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "MatMul": np.matmul,
        "Div": np.divide, "PRelu": lambda x, slope: np.where(x < 0, x * slope, x),
    }.items()
}  # fmt: skip


@rule(*_MOVES)
def move(node: Node) -> list[Array]:
    """The function is applied to numbers of the elements, which then are moved. Other operands must be constants."""
    moved = {"Concat": range(len(node.types)), "Pad": (0, 2), "Where": (1, 2)}.get(node.step.op, (0,))
    if any(t is not None and t.data is None for i, t in enumerate(node.types) if i not in moved):
        return _rows(node) or unknown(node)
    pool, operands, first = [], [], 0
    for i, (t, cells) in enumerate(zip(node.types, node.operands, strict=True)):
        if t is None or cells is None or i not in moved:
            operands.append(None if t is None else t.data)
            continue
        operands.append(np.arange(first, first := first + cells[..., 0].size).reshape(t.shape))
        pool.append(cells.reshape(-1, CELL))
    found, elements = _MOVES[node.step.op](node, *operands), pool[0] if len(pool) == 1 else np.concatenate(pool)
    return [elements[places] for places in (found if isinstance(found, list) else [found])]


def _rows(node: Node) -> list[Array] | None:
    """Rows of a table of bytes, where a Gather takes them by integers that may have these values; else None."""
    table, names = node.type().data, node.names
    if node.step.op != "Gather" or node.attributes.get("axis", 0) or table is None or table.dtype not in EIGHT_BIT:
        return None
    rows = (table.astype(np.int16) - node.result.shift).astype(np.int8)
    found = names.rows_of(node.cells(1)[..., VALUE].reshape(-1, FIELDS), rows)
    return None if found is None else [found.reshape(*node.result.shape, CELL)]


@rule("Relayout")
def relayout(node: Node) -> Array:
    """A conversion between a plain tensor and blocks: see `tables` in its attributes."""
    block, x, shape = node["block"], node.cells(), tuple(node["shape"])
    plain = shape if not block else (shape[0], *shape[2:-1], shape[1] * block)
    if (node["xor"] != 0) != (node.type().dtype != node.result.dtype):
        raise NoRule("no rule for a Relayout that does not store uint8 less 128")
    index = np.zeros((len(node["tables"]), *plain), np.int64)  # of the element on every axis of the operand
    for places, table in zip(index, node["tables"], strict=True):
        for along, values in table.items():
            places += np.reshape(values, [-1 if axis == along else 1 for axis in range(len(plain))])
    sizes = np.reshape(x.shape[:-1], (-1, *(1,) * len(plain)))
    inside = np.asarray(((index >= 0) & (index < sizes)).all(axis=0))
    found = np.where(inside[..., None], x[tuple(np.clip(index, 0, sizes - 1))], node.names.bytes[node["fill"] & 255])
    if block:
        found = np.moveaxis(found.reshape(*plain[:-1], shape[1], block, CELL), -3, 1)
    return np.ascontiguousarray(found)


@rule("PackMatMulParams")
def biases(node: Node) -> Array:
    """Rows of PRM for a product of two activations: bytes of `k * za * zb - za * sum(b)` and of the scale."""
    b, names, lanes = node.cells()[..., VALUE].astype(np.int64), node.names, node["lanes"]
    za, zb, (*batch, k, n) = node["a_zero_point"], node["b_zero_point"], node.type().shape
    sums = (k * za * zb - b.sum(axis=-3) % PRIMES * za) % PRIMES
    found = np.empty((*batch, -(-n // lanes) * lanes, 8, CELL), np.uint32)
    found[:] = names.bytes[0]
    found[..., :n, :4, :] = names.bytes_of(sums.astype(np.uint32))
    scale = np.frombuffer(np.float32(node["scale"]).tobytes(), np.int8)
    found[..., :n, 4:, :] = names.bytes[scale]
    return found


@rule("ScatterElements")
def scatter(node: Node) -> Array:
    """An element may be what it was, or one of the new ones, if their places are one integer and those behind it. Else
    it is a function of its place along the axis, of itself, and of all places and new elements of its column."""
    if node.attributes.get("reduction", "none") != "none":
        return unknown(node)[0]
    axis = node.attributes.get("axis", 0) % len(node.type().shape)
    old, places, new = (np.moveaxis(node.cells(i)[..., VALUE], axis, 0) for i in range(3))
    if old.shape[1:] != new.shape[1:]:
        return unknown(node)[0]
    places, names, (n, *rest) = node.names.modulo(places, len(old)), node.names, old.shape[:-1]
    far, first = np.arange(len(new)), places[(0,) * (places.ndim - 1)]
    if (places == (first + far.reshape(-1, *(1,) * len(rest), 1)) % PRIMES).all():
        rows, far, place = (x.ravel() for x in np.indices((n - len(new) + 1, len(new), math.prod(rest))))
        columns = new.reshape(len(new), -1, FIELDS)[far, place]
        found = names.put(old.reshape(-1, FIELDS), (rows + far) * math.prod(rest) + place, rows, first, columns)
        return np.moveaxis(names.cells(found).reshape(*old.shape[:-1], CELL), 0, axis)
    rows = np.arange(n, dtype=np.uint64).reshape(-1, *(1,) * len(rest))
    column = [part for pair in zip(places, new, strict=True) for part in pair]
    return np.moveaxis(names.cells(names.mix(("scatter",), old, rows, *column)), 0, axis)


@rule("Mod")
def modulo(node: Node) -> Array:
    """Integers modulo one positive constant; others are unknown."""
    divisor = node.type(1).data
    whole = divisor is not None and divisor.size == 1 and divisor.dtype.kind in "iu" and divisor.item() > 0
    if divisor is None or not whole or node.attributes.get("fmod", 0):
        return unknown(node)[0]
    found = node.names.modulo(node.cells()[..., VALUE], divisor.item())
    return np.broadcast_to(node.names.cells(found), (*node.result.shape, CELL))


def numbers(graph: QuantisedGraph) -> dict[str, int]:
    """The number of values of the inputs whose integers select rows of tables."""
    found: dict[str, int] = {}
    states = {begin for begin, *_ in graph.states.values()}
    integers = [n for n in graph.inputs if graph.values[n].dtype.kind == "i" and n not in states]
    same = dict(zip(integers, integers, strict=True))
    for step in graph.steps:
        if step.op in _SHAPED and step.inputs[0] in same:
            same[step.outputs[0]] = same[step.inputs[0]]
        if step.op == "Gather" and step.inputs[1] in same:
            name, rows = same[step.inputs[1]], graph.values[step.inputs[0]].shape[step.attributes.get("axis", 0)]
            found[name] = min(rows, found.get(name, rows))
    return found


def _followed(node: Node) -> tuple[Array, Array] | None:
    """The element of the integer that a result follows from, and the result's values [n, ...], if it does."""
    number, operands, y = None, [], node.result
    parts = [(t, cells) for t, cells in zip(node.types, node.operands, strict=True) if t is not None]
    if node.step.op not in _VALUES or len(node.step.outputs) > 1 or node.attributes.get("as_litert"):
        return None
    for t, cells in parts:
        assert cells is not None
        known = None if t.data is not None else node.names.follows.get(cells[..., VALUE].tobytes())
        if t.data is None and (known is None or (number is not None and (number != known[0]).any())):
            return None
        operands.append(repeat(t.data) if known is None else known[1].reshape(-1, *t.shape))
        number = number if known is None else known[0]
    if number is None:
        return None
    n = next(len(x) for x in operands if isinstance(x, np.ndarray))
    if n * np.prod(y.shape) > _MOST_VALUES:
        return None
    function = _VALUES[node.step.op]
    with np.errstate(all="ignore"):
        found = [np.broadcast_to(function(node, *x), y.shape) for x in zip(*operands, strict=False)]
        return number, np.stack(found).astype(y.dtype)


def _of_bytes(node: Node) -> tuple[Array, Array] | None:
    """Cells of bytes, and the result [256, ...] for each of their values, of places that broadcast, in the order of the
    bytes 0..255; None for what is no elementwise function of one tensor of bytes and constants."""
    op, x, others = node.step.op, None, []
    if op not in _OF_BYTES or node.attributes.get("as_litert"):
        return None
    for i, t in enumerate(node.types):
        if t is not None and t.data is not None:
            others.append(t.data)
        elif t is None or x is not None:
            return None
        else:
            x, place = t, i
    if x is None or x.shape != node.result.shape or any(c.ndim > len(x.shape) for c in others):
        return None
    if op in ("QuantizeLinear", "DequantizeLinear") and others[0].size > 1:
        return None
    if op == "DequantizeLinear":
        values = (BYTES.astype(np.int16) + x.shift).astype(x.dtype).reshape(256, *(1,) * len(x.shape))
        found = (node.cells(place), values) if x.dtype in EIGHT_BIT else None
    else:
        found = node.names.of_bytes.get(node.cells(place)[..., VALUE].tobytes())
    if found is None or found[1].size * max([c.size for c in others], default=1) > _MOST_VALUES:
        return None
    with np.errstate(all="ignore"):
        return found[0], _VALUES[op](node, *others[:place], found[1], *others[place:])


def _by_places(names: Names, cells: Array, tables: Array) -> Array:
    """Cells of tables int8[256, ...], one for each place, of cells [..., CELL]."""
    columns, numbers = np.unique(tables.reshape(256, -1), axis=1, return_inverse=True)
    numbers = np.broadcast_to(numbers.reshape(tables.shape[1:]), cells.shape[:-1])
    found = cells.copy()
    for number, table in enumerate(columns.T):
        found[numbers == number] = names.look_up(cells[numbers == number], table)
    return found


def evaluate(
    names: Names, step: Step, values: Mapping[str, Value], cells: Mapping[str, Array],
    on_cpu: Container[tuple[str, str]],
) -> list[Array]:  # fmt: skip
    """Cells of every result of a node. Operators without a rule of their own are unknown functions of their operands.

    Args:
        on_cpu: operator and name of the nodes of CPU steps, where Softmax, norms and what has no rule are unknown
            functions.

    Raises:
        NoRule: a quantised operator without a rule.
    """
    node = Node(names, step, values, cells)
    if step.op in RULES and (step.op not in ROWS or (step.op, step.name) not in on_cpu):
        found = RULES[step.op](node)
        results = found if isinstance(found, list) else [found]
    elif "reason" in step.attributes and (step.op, step.name) not in on_cpu:
        raise NoRule(f"no rule for {step.op} ({step.name})")
    else:
        results = unknown(node)
    if (follows := _followed(node)) is not None:
        number, table = follows
        if node.result.dtype in EIGHT_BIT:
            results = [names.rows(number, (table.astype(np.int16) - node.result.shift).astype(np.int8))]
        names.follows[results[0][..., VALUE].tobytes()] = follows
    elif (known := _of_bytes(node)) is not None and node.result.dtype in EIGHT_BIT:
        results = [_by_places(names, known[0], (known[1].astype(np.int16) - node.result.shift).astype(np.int8))]
    elif known is not None:
        names.of_bytes[results[0][..., VALUE].tobytes()] = known
    return results
