"""Random small ONNX graphs of movement, gather, integer, float and control ops, whose results are exact.

Floats are whole numbers small enough for every order of summation to give the same, until an op rounds: from then on
a tensor is not exact, and nothing that jumps (comparisons, conversions to integers, ArgMax, TopK) is computed from it.
So onnxruntime's results can be asked for to the bit where `Graph.exact` says so, and closely elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ONNX_TYPES = {
    "float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64, "bool": TensorProto.BOOL,
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8,
}  # fmt: skip
EXTENTS = (1, 1, 2, 3, 3, 4, 5, 6, 8, 9, 12, 17, 17, 20, 33, 57)
MOST_ELEMENTS = 3000  # elements of a tensor


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph.

    Attributes:
        bound: no element is larger, in absolute value.
        exact: every element is a whole number, the same whatever computes it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bound: int
    exact: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class RandomGraph:
    """A model, inputs for it, and which of its outputs are exact."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    exact: dict[str, bool]


class NoOperand(Exception):
    """The graph has no tensor that an op could take."""


@dataclass
class Builder:
    """A graph being built."""

    random: Random
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def pick(self, fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor:
        """Draws a tensor of the graph, rather a recent one."""
        found = [t for t in self.tensors if fits(t)]
        if not found:
            raise NoOperand
        return self.random.choice(found[-6:] if self.random.random() < 0.7 else found)

    def constant(self, data: Any, dtype: str = "int64") -> str:
        array = np.asarray(data, dtype)
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def numbers(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        low, high = (0, 2) if dtype == "bool" else (0, 9) if dtype == "uint8" else (-9, 10)
        generator = np.random.default_rng(self.random.randrange(1 << 30))
        return generator.integers(low, high, tuple(shape)).astype(dtype)

    def input(self) -> Tensor:
        rank = self.random.choice((1, 2, 3, 3, 4, 4))
        shape = tuple(self.random.choice(EXTENTS) for _ in range(rank))
        while math.prod(shape) > MOST_ELEMENTS:
            shape = tuple(max(1, n // 2) for n in shape)
        dtype = self.random.choice(("float32", "float32", "float32", "int32", "int64", "uint8", "bool"))
        t = Tensor(self.name("x"), shape, dtype, 1 if dtype == "bool" else 10)
        self.feeds[t.name] = self.numbers(shape, dtype)
        self.tensors.append(t)
        return t

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        dtype: str,
        bound: int,
        exact: bool = True,
        **attrs: Any,
    ) -> Tensor:
        """Adds a node with one output; returns it."""
        return self.several(op, inputs, [(tuple(shape), dtype, bound)], exact, **attrs)[0]

    def several(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[tuple[Sequence[int], str, int]],
        exact: bool,
        **attrs: Any,
    ) -> list[Tensor]:
        """Returns a node with several outputs, each a (shape, dtype, bound)."""
        made = [Tensor(self.name("t"), tuple(s), d, int(b), exact) for s, d, b in outputs]
        if any(t.size > MOST_ELEMENTS for t in made):
            raise NoOperand
        self.nodes.append(helper.make_node(op, list(inputs), [t.name for t in made], **attrs))
        self.tensors += made
        return made

    def like(self, op: str, x: Tensor, *more: str, **attrs: Any) -> Tensor:
        """Returns a node whose output is as its first operand."""
        return self.add(op, [x.name, *more], x.shape, x.dtype, x.bound, x.exact, **attrs)

    def small(self, x: Tensor) -> Tensor:
        """`x`, or what is left of it by Mod where its numbers are large."""
        if x.bound <= 1000 or x.dtype in ("bool", "uint8", "int8") or not x.exact:
            return x
        return self.add("Mod", [x.name, self.constant(7, x.dtype)], x.shape, x.dtype, 7, fmod=int(x.dtype == "float32"))

    def indices(self, shape: Sequence[int], below: int) -> str:
        """Indices below an extent: constant, or computed from a tensor of the graph."""
        generator = np.random.default_rng(self.random.randrange(1 << 30))
        whole = [t for t in self.tensors if t.dtype in ("int32", "int64") and t.size >= math.prod(shape) > 0]
        if not whole or self.random.random() < 0.3:
            return self.constant(generator.integers(-below, below, tuple(shape)))
        t = self.random.choice(whole)
        flat = self.add("Reshape", [t.name, self.constant([-1])], [t.size], t.dtype, t.bound)
        if t.size > math.prod(shape):
            ends = self.constant([0]), self.constant([math.prod(shape)])
            flat = self.add("Slice", [flat.name, *ends], [math.prod(shape)], t.dtype, t.bound)
        formed = self.add("Reshape", [flat.name, self.constant(list(shape))], shape, t.dtype, t.bound)
        return self.add("Mod", [formed.name, self.constant(below, t.dtype)], shape, t.dtype, below).name


def is_number(t: Tensor) -> bool:
    return t.dtype in ("float32", "int32", "int64")


def is_whole(t: Tensor) -> bool:
    return t.dtype in ("int32", "int64")


def is_exact(t: Tensor) -> bool:
    return t.exact


def split_extents(random: Random, n: int) -> list[int]:
    """Returns a number of elements as extents."""
    shape: list[int] = []
    while n > 1 and len(shape) < 4:
        divisors = [d for d in range(2, n + 1) if n % d == 0]
        d = random.choice(divisors)
        shape.append(d)
        n //= d
    if n > 1 or not shape:
        shape.append(n)
    if random.random() < 0.4:
        shape.insert(random.randrange(len(shape) + 1), 1)
    return shape


def partner(b: Builder, x: Tensor) -> Tensor:
    """Returns a tensor, or a constant, that broadcasts to or with x."""

    def fits(t: Tensor) -> bool:
        pairs = list(zip(t.shape[::-1], x.shape[::-1]))
        return t.dtype == x.dtype and all(n == m or 1 in (n, m) for n, m in pairs)

    if b.random.random() < 0.3:
        shape = [n if b.random.random() < 0.5 else 1 for n in x.shape[b.random.randrange(x.rank + 1) :]]
        data = b.numbers(shape, x.dtype)
        return Tensor(b.constant(data, x.dtype), tuple(shape), x.dtype, 10)
    return b.small(b.pick(fits))


def joined(x: Tensor, y: Tensor) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(x.shape, y.shape))


def do_broadcast(*tensors: Tensor) -> bool:
    try:
        np.broadcast_shapes(*(t.shape for t in tensors))
    except ValueError:
        return False
    return True
