"""Ops on elements."""

from __future__ import annotations

import numpy as np

from verification.random_graphs.builder import (
    ONNX_TYPES,
    Builder,
    NoOperand,
    Tensor,
    do_broadcast,
    is_exact,
    is_number,
    is_whole,
    joined,
    partner,
)


def binary(b: Builder) -> None:
    x = b.small(b.pick(is_number))
    y = partner(b, x)
    op = b.random.choice(("Add", "Add", "Sub", "Mul", "Max", "Min"))
    bound = {"Mul": x.bound * y.bound, "Add": x.bound + y.bound, "Sub": x.bound + y.bound}
    inputs = [x.name, y.name]
    b.random.shuffle(inputs)
    b.add(op, inputs, joined(x, y), x.dtype, bound.get(op, max(x.bound, y.bound)), x.exact and y.exact)


def divide(b: Builder) -> None:
    x = b.small(b.pick(is_number))
    if b.random.random() < 0.5:
        by = Tensor(b.constant(b.random.choice((2, 3, 7, -4)), x.dtype), (), x.dtype, 7)
    else:
        y = partner(b, x)
        positive = b.add("Abs", [y.name], y.shape, y.dtype, y.bound, y.exact)
        by = b.add("Max", [positive.name, b.constant(1, y.dtype)], y.shape, y.dtype, y.bound, y.exact)
    exact = x.exact and by.exact and x.dtype != "float32"
    b.add("Div", [x.name, by.name], joined(x, by), x.dtype, x.bound, exact)


def modulo(b: Builder) -> None:
    x = b.pick(lambda t: is_whole(t) or (t.dtype == "float32" and t.exact))
    by = b.random.choice((2, 3, 5, 12, 17))
    b.add("Mod", [x.name, b.constant(by, x.dtype)], x.shape, x.dtype, by, fmod=int(x.dtype == "float32"))


def unary(b: Builder) -> None:
    x = b.pick(is_number)
    op = b.random.choice(("Neg", "Abs", "Relu", "Sign"))
    b.like(op, x if op != "Sign" or x.exact else b.pick(lambda t: is_number(t) and t.exact))


def rounding(b: Builder) -> None:
    """Roots and curves: no longer exact."""
    x = b.pick(lambda t: t.dtype == "float32" and t.bound <= 1000)
    op = b.random.choice(("Sigmoid", "Tanh", "Sqrt", "Softmax", "Exp"))
    if op == "Sqrt":
        x = b.like("Abs", x)
        if not x.exact:  # next to 0 a root makes 3e-4 of what onnxruntime's Sigmoid is off by, 1e-7
            x = b.like("Max", x, b.constant(0.25, "float32"))
    if op == "Exp":
        x = b.like("Clip", x, b.constant(-3, "float32"), b.constant(3, "float32"))
    attrs = {"axis": b.random.randrange(x.rank)} if op == "Softmax" and x.rank else {}
    if op == "Softmax" and not x.rank:
        raise NoOperand
    b.add(op, [x.name], x.shape, x.dtype, max(x.bound, 21) if op in ("Sqrt", "Exp") else 1, False, **attrs)


def compare(b: Builder) -> None:
    x = b.pick(lambda t: is_number(t) and t.exact)
    y = partner(b, x)
    if not y.exact:
        raise NoOperand
    b.add(b.random.choice(("Equal", "Less", "GreaterOrEqual")), [x.name, y.name], joined(x, y), "bool", 1)


def logic(b: Builder) -> None:
    x = b.pick(lambda t: t.dtype == "bool")
    if b.random.random() < 0.3:
        b.like("Not", x)
        return
    y = partner(b, x)
    b.add(b.random.choice(("And", "Or", "Xor")), [x.name, y.name], joined(x, y), "bool", 1)


def where(b: Builder) -> None:
    c = b.pick(lambda t: t.dtype == "bool")
    x = b.pick(lambda t: is_number(t) and all(n == m or 1 in (n, m) for n, m in zip(t.shape[::-1], c.shape[::-1])))
    y = partner(b, x)
    shape = np.broadcast_shapes(c.shape, x.shape, y.shape) if do_broadcast(c, x, y) else None
    if shape is None:
        raise NoOperand
    b.add("Where", [c.name, x.name, y.name], shape, x.dtype, max(x.bound, y.bound), x.exact and y.exact)


def cast(b: Builder) -> None:
    x = b.pick(is_exact)
    to = b.random.choice(("float32", "int32", "int32", "int64", "bool", "uint8", "uint8"))
    if to == "uint8" and x.dtype not in ("bool", "uint8"):
        x = b.like("Abs", b.small(x))
        x = b.like("Clip", x, b.constant(0, x.dtype), b.constant(250, x.dtype))
    if to == "float32":
        x = b.small(x)
    bounds = {"bool": 1, "uint8": min(x.bound, 250)}
    b.add("Cast", [x.name], x.shape, to, bounds.get(to, x.bound), to=ONNX_TYPES[to])


def clip(b: Builder) -> None:
    x = b.pick(is_number)
    b.like("Clip", x, b.constant(-b.random.randrange(5), x.dtype), b.constant(b.random.randrange(1, 9), x.dtype))
