"""Operations element by element: on 8-bit tensors also as functions of their bytes, which RESCALE may place on the
NPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa.builder import Function, TosaBuilder, handles
from tilewright.compiler.importer.tosa.records import TosaOp
from tilewright.compiler.importer.tosa.rescale import function_of, place
from tilewright.compiler.importer.tosa.scaling import apply_scale

_BINARY: dict[str, tuple[str, Callable[[Any, Any], Any] | None]] = {
    "add": ("Add", np.add), "sub": ("Sub", np.subtract), "maximum": ("Max", np.maximum),
    "minimum": ("Min", np.minimum), "pow": ("Pow", None),
    "bitwise_and": ("BitwiseAnd", np.bitwise_and), "bitwise_or": ("BitwiseOr", np.bitwise_or),
    "bitwise_xor": ("BitwiseXor", np.bitwise_xor), "logical_and": ("And", None), "logical_or": ("Or", None),
    "logical_xor": ("Xor", None), "equal": ("Equal", None), "greater": ("Greater", None),
    "greater_equal": ("GreaterOrEqual", None),
}  # fmt: skip
_SMALL = ("add", "sub", "maximum", "minimum", "greater", "greater_equal", "equal")  # by way of int32 where narrow
_UNARY = {
    "abs": "Abs", "ceil": "Ceil", "floor": "Floor", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "reciprocal": "Reciprocal", "logical_not": "Not",
    "bitwise_not": "BitwiseNot",
}  # fmt: skip


def operands(b: TosaBuilder, count: int = 2) -> tuple[list[str], str]:
    """The first operands in one form, and that form. TOSA's operands are of one rank and broadcast."""
    form = b.layout(*range(count))
    return [b.value(k, form) for k in range(count)], form


def wrapped(values: np.ndarray, bits: int) -> np.ndarray:
    """Integers modulo 2^bits, signed."""
    half = 1 << (bits - 1)
    return np.asarray(((values + half) & ((1 << bits) - 1)) - half)


def combined(b: TosaBuilder, ks: tuple[int, int], rule: Callable[[Any, Any], Any]) -> Function | None:
    """A function of two operands as one of up to two 8-bit tensors; None where it is of more, or not known."""
    found: list[Function] = []
    for k in ks:
        data, f = b.known(b.operand(k)), function_of(b, k)
        if data is not None and data.size == 1 and data.dtype.kind in "iu":
            f = Function((), np.asarray(data.reshape(-1)[0], np.int64))
        if f is None:
            return None
        found.append(f)
    roots = tuple(dict.fromkeys(r for f in found for r in f.roots))
    shapes = {b.types[r].shape for r in roots} | {b.target().shape}
    if not 1 <= len(roots) <= 2 or len(shapes) != 1:
        return None

    def spread(f: Function) -> np.ndarray:
        if len(f.roots) == len(roots) == 2:
            return f.values if f.roots == roots else f.values.T
        if len(roots) == 2 and f.roots:
            return f.values[:, None] if f.roots[0] == roots[0] else f.values[None, :]
        return f.values

    values = np.broadcast_to(rule(*(spread(f) for f in found)), (256,) * len(roots))
    return Function(roots, np.asarray(values, np.int64))


def note(b: TosaBuilder, f: Function | None) -> bool:
    """Keeps what the op's result is of 8-bit tensors. Returns True if it was made, being of 8 bits."""
    if f is None or b.target().dtype.kind not in "iu":
        return False
    f = Function(f.roots, wrapped(f.values, 8 * b.target().dtype.itemsize))
    if b.target().dtype in EIGHT_BIT:
        return place(b, f)
    b.functions[b.op.results[0]] = f
    return False


@handles(*_BINARY)
def binary(b: TosaBuilder, op: TosaOp) -> None:
    name, rule = _BINARY[op.name]
    if rule is not None and note(b, combined(b, (0, 1), rule)):
        return
    names, form = operands(b)
    dtype = b.graph.tensor(names[0]).dtype
    inner = np.dtype(np.int32) if dtype.kind in "iu" and dtype.itemsize < 4 and op.name in _SMALL else dtype
    if dtype.kind not in "iub" and dtype != np.float32 and dtype != np.float64:
        inner = np.dtype(np.float32)
    made = b.onnx(name, [b.cast(n, inner) for n in names])
    b.finish(b.cast(made, b.target().dtype), form)


@handles("mul")
def mul(b: TosaBuilder, op: TosaOp) -> None:
    """Imports MUL: int32 products may be shifted right, rounding up ties."""
    shift = b.scalar(2, "shift") if len(op.operands) > 2 else int(op.attrs.get("shift", 0))

    def rule(x: Any, y: Any) -> Any:
        return x * y if not shift else apply_scale(np.asarray(x * y), 1, shift, False)

    if b.type(0).dtype.kind in "iu":
        if note(b, combined(b, (0, 1), rule)):
            return
        names, form = operands(b)
        inner = np.int64 if shift or b.type(0).dtype.itemsize > 4 else np.int32
        made = b.onnx("Mul", [b.cast(n, inner) for n in names])
        if shift:
            made = b.shifted_right(b.pair("Add", made, 1 << (shift - 1)), shift)
        b.finish(b.cast(made, b.target().dtype), form)
        return
    names, form = operands(b)
    b.finish(b.cast(b.onnx("Mul", [b.cast(n, np.float32) for n in names]), b.target().dtype), form)


@handles("intdiv")
def intdiv(b: TosaBuilder, op: TosaOp) -> None:
    """Imports INTDIV, which rounds towards zero like ONNX's Div of integers."""
    names, form = operands(b)
    b.finish(b.onnx("Div", names), form)


@handles(*_UNARY, "rsqrt")
def unary(b: TosaBuilder, op: TosaOp) -> None:
    dtype = b.type(0).dtype
    if op.name in ("abs", "bitwise_not") and dtype.kind in "iu":
        f = function_of(b, 0)
        values = None if f is None else np.abs(f.values) if op.name == "abs" else ~f.values
        if f is not None and values is not None and note(b, Function(f.roots, values)):
            return
    form = b.layout(0)
    x = b.value(0, form)
    x = b.cast(x, np.float32) if dtype.kind not in "iub" else x
    made = b.onnx("Reciprocal", [b.onnx("Sqrt", [x])]) if op.name == "rsqrt" else b.onnx(_UNARY[op.name], [x])
    b.finish(b.cast(made, b.target().dtype), form)


@handles("negate")
def negate(b: TosaBuilder, op: TosaOp) -> None:
    """Imports NEGATE: of 8 bits between two zero points, clamped to the type."""
    form = b.layout(0)
    dtype = b.type(0).dtype
    if dtype.kind not in "iu":
        b.finish(b.cast(b.onnx("Neg", [b.cast(b.value(0, form), np.float32)]), dtype), form)
        return
    total = b.scalar(1, "input1_zp") + b.scalar(2, "output_zp")
    info = np.iinfo(dtype)
    f = function_of(b, 0)
    if f is not None and note(b, Function(f.roots, np.clip(total - f.values, info.min, info.max))):
        return
    y = b.pair("Sub", b.constant(total, np.int64), b.wide(b.value(0, form)))
    b.finish(b.cast(b.clipped(y, int(info.min), int(info.max)), dtype), form)


@handles("logical_left_shift", "logical_right_shift", "arithmetic_right_shift")
def shift(b: TosaBuilder, op: TosaOp) -> None:
    """Imports shifts by amounts per element; the arithmetic one may round up ties."""
    names, form = operands(b)
    dtype = b.type(0).dtype
    bits = 8 * dtype.itemsize
    x, amount = (b.wide(n) for n in names)
    if op.name == "arithmetic_right_shift":
        lifted = b.cast(b.pair("Add", x, 1 << 62), np.uint64)
        power = b.onnx("BitShift", [b.constant(1 << 62, np.uint64), b.cast(amount, np.uint64)], {"direction": "RIGHT"})
        moved = b.onnx("BitShift", [lifted, b.cast(amount, np.uint64)], {"direction": "RIGHT"})
        y = b.pair("Sub", b.wide(moved), b.wide(power))
        if op.attrs.get("round", False):
            before = b.pair("Max", b.pair("Sub", amount, 1), 0)
            bit = b.onnx("BitShift", [lifted, b.cast(before, np.uint64)], {"direction": "RIGHT"})
            one = b.onnx("Mod", [b.wide(bit), b.constant(2, np.int64)])
            y = b.pair("Add", y, b.pair("Mul", one, b.pair("Min", amount, 1)))
        b.finish(b.cast(y, dtype), form)
        return
    plain = b.onnx("Mod", [x, b.constant(1 << bits, np.int64)])
    direction = "LEFT" if op.name == "logical_left_shift" else "RIGHT"
    moved = b.onnx("BitShift", [b.cast(plain, np.uint64), b.cast(amount, np.uint64)], {"direction": direction})
    low = b.onnx("Mod", [b.wide(moved), b.constant(1 << bits, np.int64)])
    half = 1 << (bits - 1)
    signed = b.pair("Sub", b.onnx("Mod", [b.pair("Add", low, half), b.constant(1 << bits, np.int64)]), half)
    b.finish(b.cast(signed, dtype), form)


@handles("clz")
def leading_zeros(b: TosaBuilder, op: TosaOp) -> None:
    """Imports CLZ of int32: 32 less the number of powers of two that the value, without a sign, reaches."""
    form = b.layout(0)
    plain = b.onnx("Mod", [b.wide(b.value(0, form)), b.constant(1 << 32, np.int64)])
    count = b.constant(32, np.int64)
    for k in range(32):
        count = b.pair("Sub", count, b.wide(b.onnx("GreaterOrEqual", [plain, b.constant(1 << k, np.int64)])))
    b.finish(b.cast(count, np.int32), form)


@handles("select")
def select(b: TosaBuilder, op: TosaOp) -> None:
    names, form = operands(b, 3)
    b.finish(b.onnx("Where", names), form)


@handles("cast")
def cast(b: TosaBuilder, op: TosaOp) -> None:
    """Imports CAST: floats to integers round ties to even and saturate."""
    form = b.layout(0)
    source, target, x = b.type(0).dtype, b.target().dtype, b.value(0, form)
    if source.kind in "iu" and target.kind in "iu":
        f = function_of(b, 0)
        if f is not None and note(b, f):
            return
    if source.kind not in "iub" and target.kind in "iu":
        info = np.iinfo(target)
        whole = b.onnx("Round", [b.cast(x, np.float64 if source == np.float32 else np.float32)])
        inner = b.graph.tensor(whole).dtype
        x = b.onnx("Clip", [whole, b.constant(float(info.min), inner), b.constant(float(info.max), inner)])
    elif target == np.bool_ and source.kind in "iu":
        x = b.onnx("Not", [b.onnx("Equal", [x, b.constant(0, source)])])
    b.finish(b.cast(x, target), form)


@handles("identity")
def identity(b: TosaBuilder, op: TosaOp) -> None:
    number = op.operands[0]
    b.form_of(number)
    b.forms[op.results[0]] = dict(b.forms[number])
    facts: tuple[dict[int, Any], ...] = (b.functions, b.sums, b.scaled, b.zeros)
    for known in facts:
        if number in known:
            known[op.results[0]] = known[number]
