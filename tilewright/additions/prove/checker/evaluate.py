"""Evaluates nodes by their rules, and for each value what follows from constants and one integer input alone.

Such an integer, a token or its position, is 0 to n - 1, where n is the least number of rows of the tables that it is
the index of. Tensors of bytes that follow from it are rows of a table, whoever makes them, by numpy's arithmetic;
transcendental functions are those of float64, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.prove.checker.cells import VALUE
from tilewright.prove.checker.findings import NoRule
from tilewright.prove.checker.graph import QuantisedGraph, Step, Value
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.rules import EIGHT_BIT, ROWS, RULES, Array, Node, unknown

#: Most numbers of all values of a tensor that are computed.
_MOST_VALUES = 1 << 26
_SHAPED = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten")
_VALUES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_SHAPED, lambda node, x, *_: x.reshape(node.result.shape)),
    "Expand": lambda node, x, _: x,
    "Cast": lambda node, x: x,
    "Gather": lambda node, x, index: np.take(x, index, axis=node.attributes.get("axis", 0)),
    "Transpose": lambda node, x: x.transpose(node.attributes.get("perm")),
    "Concat": lambda node, *x: np.concatenate(x, axis=node["axis"]),
    "Cos": lambda node, x: np.cos(x.astype(np.float64)),
    "Sin": lambda node, x: np.sin(x.astype(np.float64)),
    "DequantizeLinear": lambda node, x, scale, zero_point=0: numerics.dequantize(x, scale, zero_point),
    "QuantizeLinear": lambda node, x, scale, zero_point=0: numerics.quantize(
        np.nan_to_num(x, nan=-np.inf, posinf=np.inf, neginf=-np.inf), scale, zero_point, node.result.dtype
    ),
}
_VALUES |= {
    op: lambda node, *x, function=function: function(*x)
    for op, function in {
        "Mod": np.mod, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater, "Equal": np.equal,
        "GreaterOrEqual": np.greater_equal, "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or,
        "Where": np.where, "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "MatMul": np.matmul,
    }.items()
}  # fmt: skip


def numbers(graph: QuantisedGraph) -> dict[str, int]:
    """The number of values of the inputs that are one integer and select rows of tables."""
    found: dict[str, int] = {}
    same = {n: n for n in graph.inputs if graph.values[n].dtype.kind == "i" and np.prod(graph.values[n].shape) == 1}
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
    return results
