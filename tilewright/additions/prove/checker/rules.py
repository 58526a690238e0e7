"""The rules of the operators: names of results from names of operands, written from docs/numerics.md.

An 8-bit tensor is cells in the tensor's shape, of its values as the machine stores them (uint8 less 128). A tensor of
another type is cells too, one for each element; what is computed with them is an unknown function, the same for the
same operator, attributes and operands. Data movement is exact for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.checker.cells import CELL, ROOT, TABLE, VALUE
from tilewright.prove.checker.fields import PRIMES, Array, residues
from tilewright.prove.checker.graph import NoRule, Step, Value
from tilewright.prove.checker.names import Names

Rule = Callable[["Node"], Array | list[Array]]
RULES: dict[str, Rule] = {}
#: Operators of whole rows: those that the NPU runs have rules, but are not quite those of the frameworks.
ROWS = ("QSoftmax", "QNorm", "QPlaneNorm")
EIGHT_BIT = (np.dtype(np.int8), np.dtype(np.uint8))


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


class Node:
    """A node under evaluation: its operands' cells, types and attributes."""

    def __init__(self, names: Names, step: Step, values: Mapping[str, Value], cells: Mapping[str, Array]) -> None:
        self.names, self.step, self.attributes = names, step, step.attributes
        self.types = [values[n] if n else None for n in step.inputs]
        self.result = values[next(n for n in step.outputs if n)]
        self._cells = cells

    @property
    def operands(self) -> list[Array | None]:
        """Cells of all operands, None for missing ones."""
        return [self._cells[n] if n else None for n in self.step.inputs]

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def cells(self, number: int = 0) -> Array:
        return self._cells[self.step.inputs[number]]

    def type(self, number: int = 0) -> Value:
        found = self.types[number]
        assert found is not None
        return found

    def constant(self, number: int) -> Array:
        """The values of a constant operand. Raises `NoRule` for any other."""
        found = self.types[number] if number < len(self.types) else None
        if found is None or found.data is None:
            raise NoRule(f"no rule for {self.step.op} whose operand {number} is no constant")
        return found.data

    def bias(self) -> Array:
        """The values of the third operand, 0 without."""
        given = len(self.types) > 2 and self.types[2] is not None
        return self.constant(2) if given else np.zeros((), np.int64)

    def assume(self, what: str, shape: Sequence[int]) -> None:
        """Counts rows that are computed as ROW defines them, not as the frameworks do."""
        self.names.assumed[what] = self.names.assumed.get(what, 0) + int(np.prod(shape, dtype=np.int64))

    def limits(self) -> tuple[int, int]:
        """The clamp, of stored values."""
        info = np.iinfo(self.result.dtype)
        low = max(info.min, self.attributes.get("out_min", info.min))
        high = min(info.max, self.attributes.get("out_max", info.max))
        return low - self.result.shift, high - self.result.shift

    def range(self, number: int, axis: int) -> tuple[Array, Array]:
        """Least and largest value of an operand for each place along an axis, for every input of the network."""
        cells = self.cells(number)
        low, high = self.names.limits(cells[..., ROOT], cells[..., TABLE])
        others = tuple(i for i in range(low.ndim) if i != axis)
        return low.min(axis=others), high.max(axis=others)

    def requantized(self, sums: Array, bias: Any, scale: Any, bounds: tuple[Array, Array] | None = None) -> Array:
        """Cells of sums [..., FIELDS] and integers. The channels of all of these are on the last axis.

        Args:
            bounds: least and largest sums.
        """
        rule = (self.result.stored_zero_point, *self.limits(), int(Rounding.EVEN))
        return self.names.requantize(sums, np.asarray(bias), numerics.scale_bits(scale), rule, bounds)


def unknown(node: Node) -> list[Array]:
    """Results of an unknown function. A clamp is known, and is applied to what it gives without."""
    step, names = node.step, node.names
    apart = ("reason", "out_min", "out_max")
    key = (f"opaque {step.op}", *sorted((k, _plain(v)) for k, v in step.attributes.items() if k not in apart))
    described = [None if t is None else (t.shape, str(t.dtype), quantisation(t)) for t in (*node.types, node.result)]
    values, y, axis = node.cells()[..., VALUE], node.result, None
    if step.op in ("QSoftmax", "QNorm"):  # of each row alone: some rows may be computed only
        axis = step.attributes.get("axis", -1) % len(y.shape)
    elementwise = step.op in ("QuantizeLinear", "DequantizeLinear", "Cast") and y.shape == values.shape[:-1]
    elementwise &= all(c is None or c.size == CELL for c in node.operands[1:])  # not of channels
    if elementwise or axis is not None:
        rows = values[None] if axis is None else np.moveaxis(values, axis, 0)
        others = [c[..., VALUE].tobytes() for c in node.operands[1:] if c is not None]
        types = [(quantisation(t), str(t.dtype)) for t in (node.type(), y)]
        whole = names.mix((*key, *types, others), *rows)
        numbers = np.arange(len(rows), dtype=np.uint64).reshape(-1, *(1,) * (rows.ndim - 2))
        found = names.cells(names.mix(("of a row",), whole, numbers))
        return [found[0] if axis is None else names.clamp(np.moveaxis(found, 0, axis), *node.limits())]
    if len(step.outputs) > 1:
        raise NoRule(f"no rule for {step.op} ({step.name}) with {len(step.outputs)} results")
    found = names.opaque((*key, described), [c for c in node.operands if c is not None], node.result.shape)
    return [names.clamp(found, *node.limits()) if "out_min" in step.attributes else found]


def _plain(value: Any) -> str:
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def quantisation(t: Value) -> tuple[Any, ...]:
    """Scale, zero point and axis as plain numbers; () of a tensor without."""
    return () if t.scale is None or t.zero_point is None else (t.scale.tolist(), t.zero_point.tolist(), t.axis)


def centred(node: Node, number: int = 0) -> Array:
    """Elements of an operand less its zero point."""
    cells, t = node.cells(number), node.type(number)
    zero = residues(np.array(t.stored_zero_point))
    return np.asarray((cells[..., VALUE].astype(np.int64) - zero) % PRIMES, np.uint32)


def padded(cells: Array, pad: Array) -> Array:
    """Cells [..., CELL] in one row, with that of padding as the last: what number -1 of `taps` means."""
    return np.concatenate([cells.reshape(-1, CELL), pad.reshape(1, CELL)])


def taps(node: Node, shape: Sequence[int], kernel: Sequence[int], transposed: bool = False) -> Array:
    """Numbers of an operand's elements [N, C, H, W] or [N, C, L] under a kernel, [N, OH, OW, C, KH * KW]; -1 for
    padding, and for what a transposed convolution puts between elements."""
    rank = len(kernel)
    if rank > 2:
        raise NoRule(f"no rule for windows of {rank} axes")

    def both(values: Sequence[int], fill: int) -> list[int]:
        """An attribute of one or two spatial axes as that of two."""
        return [fill] * (2 - rank) + [int(v) for v in values]

    size, strides, dilations = both(kernel, 1), both(node["strides"], 1), both(node["dilations"], 1)
    begins, ends = both(node["pads"][:rank], 0), both(node["pads"][rank:], 0)
    places = np.arange(math.prod(shape)).reshape(*shape[:2], *both(shape[2:], 1))
    if transposed:
        n, c, h, w = places.shape
        spread = np.full((n, c, (h - 1) * strides[0] + 1, (w - 1) * strides[1] + 1), -1)
        spread[:, :, :: strides[0], :: strides[1]] = places
        reach, extra = [(k - 1) * d for k, d in zip(size, dilations, strict=True)], both(node["output_padding"], 0)
        begins = [r - b for r, b in zip(reach, begins, strict=True)]
        ends = [r - e + x for r, e, x in zip(reach, ends, extra, strict=True)]
        cut = [slice(max(0, -b), k - max(0, -e)) for b, e, k in zip(begins, ends, spread.shape[2:], strict=True)]
        places, strides = spread[:, :, cut[0], cut[1]], [1, 1]
    around = [(max(0, b), max(0, e)) for b, e in zip(begins, ends, strict=True)]
    places = np.pad(places, [(0, 0), (0, 0), *around], constant_values=-1)
    window = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    found = np.lib.stride_tricks.sliding_window_view(places, window, axis=(2, 3))
    found = found[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.moveaxis(found.reshape(*found.shape[:4], -1), 1, 3)
