"""The multiply-accumulates of float ops and of others without a quantised form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_WHOLE = ("LSTM", "GRU", "RNN")
BEHIND_PRODUCT = ("IntegerLSTM", "DynamicQuantizedLSTM")
"""LSTMs of integers or of weights in integers, whose products of the inputs are nodes of their own."""
_GATES_OF_LSTM = 4
#: Ops whose every step reads the state that the one before made.
RECURRENT = (*_WHOLE, *BEHIND_PRODUCT)


def macs_of(
    op: str, attrs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]], size: int, weights: np.ndarray | None = None
) -> int:
    """Multiply-accumulates of a node; 0 for ops that are no products.

    Args:
        op: of the node.
        shapes: of its operands, () for those left out.
        size: elements of its first result.
        weights: its second operand, where that is a constant.
    """
    match op:
        case "Conv" | "ConvInteger":
            return size * math.prod(shapes[1][1:])
        case "ConvTranspose":
            return math.prod(shapes[0]) * math.prod(shapes[1][1:])
        case "MatMul" | "MatMulInteger":
            return size * shapes[0][-1]
        case "Gemm":
            return size * shapes[0][0 if attrs.get("transA") else 1]
        case "Einsum" if len(shapes) > 1:
            return _of_einsum(str(attrs["equation"]), shapes)
    if op in _WHOLE:  # every step multiplies its inputs by W and its state by R, both with all gates
        inputs = 0 if weights is not None and all(map(hands_on, weights)) else math.prod(shapes[1])
        return shapes[0][0] * shapes[0][1] * (inputs + math.prod(shapes[2]))
    if op in BEHIND_PRODUCT:
        steps, batch, hidden = attrs["shape"]
        return int(steps * batch * _GATES_OF_LSTM * hidden * hidden)
    return 0


def hands_on(w: np.ndarray) -> bool:
    """Whether a direction's weights of the inputs, [gates * hidden, inputs], are the identity: the inputs are gates
    that products before have made."""
    return w.shape[0] == w.shape[1] and bool(np.array_equal(w, np.eye(len(w), dtype=w.dtype)))


def _of_einsum(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """A product for every value of all labels, for every operand but the first."""
    operands, _ = einsum_labels(equation, [len(shape) for shape in shapes])
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes):
        for label, extent in zip(labels, shape):
            sizes[label] = max(sizes.get(label, 1), extent)
    return math.prod(sizes.values()) * (len(shapes) - 1)


def einsum_labels(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Labels of every operand and of the result; an ellipsis becomes labels '.0', '.1', ... aligned at the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    widths = [r - len(t.replace("...", "")) if "..." in t else 0 for t, r in zip(terms, ranks)]
    most = max(widths, default=0)

    def labels(term: str, width: int) -> list[str]:
        head, dots, tail = term.partition("...")
        middle = [f".{k}" for k in range(most - width, most)] if dots else []
        return [*head, *middle, *tail]

    operands = [labels(t, w) for t, w in zip(terms, widths)]
    if arrow:
        return operands, labels(right, most)
    every = [l for o in operands for l in o]
    return operands, [f".{k}" for k in range(most)] + sorted(
        l for l in set(every) if every.count(l) == 1 and l[0] != "."
    )
