"""Ops that read or write at computed places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from verification.random_graphs.builder import Builder, Tensor, is_number


def gather(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0)
    axis = b.random.randrange(x.rank)
    shape = [b.random.choice((1, 2, 3, 6)) for _ in range(b.random.choice((0, 1, 1, 2)))]
    at = b.indices(shape, x.shape[axis])
    out = [*x.shape[:axis], *shape, *x.shape[axis + 1 :]]
    b.add("Gather", [x.name, at], out, x.dtype, x.bound, x.exact, axis=axis)


def gather_elements(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0)
    axis = b.random.randrange(x.rank)
    shape = [b.random.choice((1, 3, 7)) if k == axis else n for k, n in enumerate(x.shape)]
    at = b.indices(shape, x.shape[axis])
    b.add("GatherElements", [x.name, at], shape, x.dtype, x.bound, x.exact, axis=axis)


def _places(b: Builder, x: Tensor, shape: Sequence[int], depth: int) -> str:
    """Indices [shape..., depth] into the first dimensions of x."""
    parts = []
    for k in range(depth):
        at = b.indices([*shape, 1], x.shape[k])
        kind = next((t.dtype for t in b.tensors if t.name == at), "int64")
        if kind != "int64":
            at = b.add("Cast", [at], [*shape, 1], "int64", x.shape[k], to=TensorProto.INT64).name
        parts.append(at)
    if depth == 1:
        return parts[0]
    return b.add("Concat", parts, [*shape, depth], "int64", max(x.shape), axis=len(shape)).name


def gather_nd(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0)
    depth = b.random.randrange(1, x.rank + 1)
    shape = [b.random.choice((1, 2, 3, 17)) for _ in range(b.random.choice((1, 1, 2)))]
    at = _places(b, x, shape, depth)
    b.add("GatherND", [x.name, at], [*shape, *x.shape[depth:]], x.dtype, x.bound, x.exact)


def scatter_nd(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.dtype in ("float32", "int32", "int64"))
    rows = b.random.randrange(1, x.shape[0] + 1)
    places = b.random.sample(range(x.shape[0]), rows)
    updates = b.pick(lambda t: t.dtype == x.dtype and t.shape == (rows, *x.shape[1:]))
    at = b.constant([[p] for p in places])
    exact = x.exact and updates.exact
    b.add("ScatterND", [x.name, at, updates.name], x.shape, x.dtype, max(x.bound, updates.bound), exact)


def scatter_elements(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.dtype in ("float32", "int32", "int64"))
    updates = b.pick(
        lambda t: t.dtype == x.dtype and t.rank == x.rank and all(n <= m for n, m in zip(t.shape, x.shape))
    )
    axis = b.random.randrange(x.rank)
    order = np.stack(
        [
            np.asarray(b.random.sample(range(x.shape[axis]), updates.shape[axis]))
            for _ in range(updates.size // max(updates.shape[axis], 1))
        ]
    )
    moved = [n for k, n in enumerate(updates.shape) if k != axis]
    at = np.moveaxis(order.reshape([*moved, updates.shape[axis]]), -1, axis)
    exact = x.exact and updates.exact
    bound = max(x.bound, updates.bound)
    b.add("ScatterElements", [x.name, b.constant(at), updates.name], x.shape, x.dtype, bound, exact, axis=axis)


def one_hot(b: Builder) -> None:
    x = b.pick(lambda t: t.dtype == "int64" and 0 < t.rank < 4)
    depth = b.random.choice((2, 5, 9))
    at = b.add("Mod", [x.name, b.constant(depth, x.dtype)], x.shape, x.dtype, depth)
    values = b.constant([0, 1], "float32")
    b.add("OneHot", [at.name, b.constant(depth), values], [*x.shape, depth], "float32", 1, axis=-1)


def arg_extremum(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.exact and t.dtype in ("float32", "int32"))
    axis, keep = b.random.randrange(x.rank), b.random.randrange(2)
    shape = [1 if k == axis else n for k, n in enumerate(x.shape) if keep or k != axis]
    op = b.random.choice(("ArgMax", "ArgMax", "ArgMin"))
    b.add(op, [x.name], shape, "int64", x.shape[axis], axis=axis, keepdims=keep)


def top_k(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.exact and t.dtype in ("float32", "int64"))
    axis = b.random.randrange(x.rank)
    k = b.random.randrange(1, x.shape[axis] + 1)
    shape = [k if d == axis else n for d, n in enumerate(x.shape)]
    outputs = [(shape, x.dtype, x.bound), (shape, "int64", x.shape[axis])]
    b.several("TopK", [x.name, b.constant([k])], outputs, True, axis=axis, largest=b.random.randrange(2))


def cumsum(b: Builder) -> None:
    x = b.small(b.pick(lambda t: t.rank > 0 and is_number(t)))
    axis = b.random.randrange(x.rank)
    attrs = {"exclusive": b.random.randrange(2), "reverse": b.random.randrange(2)}
    b.add("CumSum", [x.name, b.constant(axis)], x.shape, x.dtype, x.bound * x.shape[axis], x.exact, **attrs)


def trilu(b: Builder) -> None:
    b.like("Trilu", b.pick(lambda t: t.rank > 1 and t.dtype in ("float32", "int64")), upper=b.random.randrange(2))
