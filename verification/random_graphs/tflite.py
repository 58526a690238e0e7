"""Random small TFLite graphs: heads of networks that find places, with whole numbers of 32 bits and floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from tests.common.tflite_models import Model, Op, T
from verification.random_graphs.builder import EXTENTS, MOST_ELEMENTS, NoOperand, split_extents

_CODES = {"float32": 0, "int32": 2}
_ARITHMETIC = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}


@dataclass
class TfliteGraph:
    """A file, and inputs for it."""

    data: bytes
    feeds: dict[str, np.ndarray]


@dataclass
class _Builder:
    random: Random
    tensors: list[T] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def tensor(self, shape: Sequence[int], dtype: str, data: Any = None) -> T:
        if math.prod(shape) > MOST_ELEMENTS:
            raise NoOperand
        array = None if data is None else np.asarray(data, dtype)
        t = T(f"t{len(self.tensors)}", tuple(shape), dtype, data=array)
        self.tensors.append(t)
        return t

    def constant(self, data: Any, dtype: str = "int32") -> T:
        return self.tensor(np.shape(data), dtype, data)

    def op(self, name: str, inputs: Sequence[T], out: T, options: Any = None) -> T:
        self.ops.append(Op(name, [t.name for t in inputs], [out.name], options))
        return out

    def pick(self, dtype: str | None = None, ranks: Sequence[int] = (1, 2, 3, 4)) -> T:
        made = [t for t in self.tensors if t.data is None and len(t.shape) in ranks and dtype in (None, t.dtype)]
        if not made:
            raise NoOperand
        return self.random.choice(made[-6:])

    def below(self, t: T, extent: int) -> T:
        """Whole numbers of t, brought below an extent."""
        return self.op("FLOOR_MOD", [t, self.constant(extent)], self.tensor(t.shape, "int32"))


def _reshape(b: _Builder) -> None:
    x = b.pick()
    shape = split_extents(b.random, math.prod(x.shape))[:4]
    if math.prod(shape) != math.prod(x.shape):
        raise NoOperand
    b.op("RESHAPE", [x, b.constant(shape)], b.tensor(shape, x.dtype))


def _arithmetic(b: _Builder) -> None:
    x = b.pick()
    if x.dtype == "int32":
        x = b.below(x, b.random.choice((7, 100)))
    shape = x.shape[b.random.randrange(len(x.shape)) :]
    y = b.constant(np.random.default_rng(b.random.randrange(1 << 30)).integers(-9, 10, shape), x.dtype)
    name = b.random.choice([*_ARITHMETIC, "MAXIMUM", "MINIMUM"])
    options: tuple[str, dict[str, Any]] | None = (_ARITHMETIC[name], {}) if name in _ARITHMETIC else None
    z = b.op(name, [x, y], b.tensor(x.shape, x.dtype), options)
    if x.dtype == "float32":  # kept small
        b.op("MINIMUM", [z, b.constant(50, "float32")], b.tensor(x.shape, "float32"))


def _place(b: _Builder) -> None:
    """The largest along an axis, as row and column of a grid."""
    x = b.pick("float32", (2, 3, 4))
    axis = b.random.randrange(len(x.shape))
    shape = [n for k, n in enumerate(x.shape) if k != axis]
    at = b.op("ARG_MAX", [x, b.constant(axis)], b.tensor(shape, "int32"), ("ArgMaxOptions", {"OutputType": 2}))
    width = b.constant(b.random.choice((2, 3, 5)))
    for name in ("FLOOR_DIV", "FLOOR_MOD"):
        b.op(name, [at, width], b.tensor(shape, "int32"))


def _cast(b: _Builder) -> None:
    x = b.pick()
    to = "int32" if x.dtype == "float32" else "float32"
    if to == "float32":
        x = b.below(x, 1000)
    options = ("CastOptions", {"InDataType": _CODES[x.dtype], "OutDataType": _CODES[to]})
    b.op("CAST", [x], b.tensor(x.shape, to), options)


def _pack(b: _Builder) -> None:
    x = b.pick(ranks=(1, 2, 3))
    parts = [t for t in b.tensors if t.data is None and (t.shape, t.dtype) == (x.shape, x.dtype)]
    parts = [b.random.choice(parts) for _ in range(b.random.randrange(1, 4))]
    axis = b.random.randrange(len(x.shape) + 1)
    shape = [*x.shape[:axis], len(parts), *x.shape[axis:]]
    b.op("PACK", parts, b.tensor(shape, x.dtype), ("PackOptions", {"ValuesCount": len(parts), "Axis": axis}))


def _concatenate(b: _Builder) -> None:
    x = b.pick()
    parts = [x, *(t for t in b.tensors if t.data is None and (t.shape, t.dtype) == (x.shape, x.dtype))][:3]
    axis = b.random.randrange(len(x.shape))
    shape = [n * len(parts) if k == axis else n for k, n in enumerate(x.shape)]
    b.op("CONCATENATION", parts, b.tensor(shape, x.dtype), ("ConcatenationOptions", {"Axis": axis}))


def _transpose(b: _Builder) -> None:
    x = b.pick(ranks=(2, 3, 4))
    perm = list(range(len(x.shape)))
    b.random.shuffle(perm)
    b.op("TRANSPOSE", [x, b.constant(perm)], b.tensor([x.shape[p] for p in perm], x.dtype))


def _gather_nd(b: _Builder) -> None:
    x, at = b.pick(), b.pick("int32", (1, 2))
    depth = b.random.randrange(1, len(x.shape) + 1)
    columns = [b.below(at, n) for n in x.shape[:depth]]
    axis = len(at.shape)
    packed = b.tensor([*at.shape, depth], "int32")
    b.op("PACK", columns, packed, ("PackOptions", {"ValuesCount": depth, "Axis": axis}))
    b.op("GATHER_ND", [x, packed], b.tensor([*at.shape, *x.shape[depth:]], x.dtype))


def _unary(b: _Builder) -> None:
    x = b.pick("float32")
    b.op(b.random.choice(("NEG", "ABS", "RELU")), [x], b.tensor(x.shape, "float32"))


_MAKERS = ((_reshape, 3), (_arithmetic, 5), (_place, 4), (_cast, 4), (_pack, 4), (_concatenate, 3), (_transpose, 3),
           (_gather_nd, 4), (_unary, 2))  # fmt: skip


def random_tflite(random: Random, ops: int) -> TfliteGraph:
    """Returns a graph of at least so many operators; its outputs are what nobody reads."""
    b = _Builder(random)
    feeds = {}
    for _ in range(random.randrange(1, 3)):
        shape = [random.choice(EXTENTS) for _ in range(random.randrange(2, 5))]
        while math.prod(shape) > MOST_ELEMENTS:
            shape = [max(1, n // 2) for n in shape]
        t = b.tensor(shape, random.choice(("float32", "float32", "int32")))
        generator = np.random.default_rng(random.randrange(1 << 30))
        feeds[t.name] = generator.integers(-20, 20, shape).astype(t.dtype)
    tries = 0
    while len(b.ops) < ops and tries < 50 * ops:
        tries += 1
        (make,) = random.choices([m for m, _ in _MAKERS], [w for _, w in _MAKERS])
        before = len(b.tensors), len(b.ops)
        try:
            make(b)
        except NoOperand:
            del b.tensors[before[0] :], b.ops[before[1] :]
    read = {name for op in b.ops for name in op.inputs}
    outputs = [name for op in b.ops for name in op.outputs if name not in read]
    return TfliteGraph(Model(b.tensors, b.ops, list(feeds), outputs).build(), feeds)
