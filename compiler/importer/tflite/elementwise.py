"""ADD, SUB, MUL, PRELU and extrema of 8-bit activations."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd, QMul
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder, planes_shape
from tilewright.compiler.importer.tflite.builtin import names_axis
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import handles
from tilewright.compiler.importer.tflite.movement import same_type
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.tables import squared
from tilewright.compiler.importer.tflite.wide import one_scale
from tilewright.isa import numerics
from tilewright.isa.numerics import litert_multiplier


def operands(b: TfliteBuilder) -> tuple[list[str], str]:
    """Both inputs in one form in which they broadcast, and that form. Raises CompileError where they do not."""
    shapes = b.shape(0), b.shape(1)
    try:
        rank = len(np.broadcast_shapes(*shapes))
    except ValueError:
        raise b.damaged(f"shapes {list(shapes[0])} and {list(shapes[1])}") from None
    form = b.layout(0, 1) if rank == 4 else FILE
    names = []
    for k, shape in enumerate(shapes):
        if form == FILE or len(shape) == 4:
            names.append(b.value(k, form))
            continue
        full = (1,) * (4 - len(shape)) + tuple(shape)
        old = b.graph.tensor(b.value(k, FILE))
        if old.data is not None:
            lifted = old.data.reshape(full).transpose(0, 3, 1, 2)
            names.append(b.graph.constant(old.name, np.ascontiguousarray(lifted), old.quant))
            continue
        # Where at most one axis is longer than 1, its elements keep their order.
        moved = sum(s != 1 for s in shape) > 1
        target = full if moved else planes_shape(full)
        name = b.moved("Reshape", [old.name, b.constant("shape", target, np.int64)], {"allowzero": 1})
        names.append(b.moved("Transpose", [name], {"perm": [0, 3, 1, 2]}) if moved else name)
    return names, form


@handles("ADD", "SUB", "MUL")
def binary(b: TfliteBuilder, op: FileOp) -> None:
    types = [b.source(0), b.source(1), b.target()]
    qa, qb, qy = (b.byte_quant(t) for t in types)
    if len({t.dtype for t in types}) != 1:
        raise b.refuse("operands and result must be of one type")
    ratio = np.float32(qa.scale) * np.float32(qb.scale) / np.float32(qy.scale)
    delegated = not names_axis(*types)
    if op.name == "MUL":
        delegated = delegated and 2.0**-16 <= float(ratio) < 2.0**8
    if op.name == "MUL" and op.inputs[0] == op.inputs[1] and delegated:
        squared(b)
        return
    names, form = operands(b)
    result = b.result(np.broadcast_shapes(*(b.graph.tensor(name).shape for name in names)), form)
    if op.name == "MUL":
        if delegated:
            b.quantized(QMul(zero_point_after=True).clamped(*b.clamp()), names, result)
            return
    else:
        pairs = [(float(q.scale), int(q.zero_point)) for q in (qa, qb, qy)]
        constants = numerics.litert_add_constants(*pairs[0], *pairs[1], *pairs[2], subtract=op.name == "SUB")
        if constants is not None and delegated:
            b.quantized(QAdd(constants=AddConstants(**constants)).clamped(*b.clamp()), names, result)
            return
    value = _builtin_arithmetic(b, names, qa, qb, qy)
    clamped = Integers(b).clamped(value, *b.clamp(builtin=True))
    b.cast(clamped, b.graph.tensor(result).dtype, result)


def _builtin_arithmetic(b: TfliteBuilder, names: list[str], qa: Quant, qb: Quant, qy: Quant) -> str:
    """Emits the built-in kernels' rule, which LiteRT takes where a scale is far from that of the result."""
    ints = Integers(b)
    x, y = (ints.sub(ints.of(n), int(q.zero_point)) for n, q in zip(names, (qa, qb)))
    sa, sb, sy = (float(q.scale) for q in (qa, qb, qy))
    away = _scalar_tail(b, b.graph.tensor(names[0]).shape)
    if b.op.name == "MUL":
        return ints.add(ints.scaled(ints.mul(x, y), *litert_multiplier(sa * sb / sy), away=away), int(qy.zero_point))
    largest = 2 * max(sa, sb)
    x, y = (
        ints.scaled(ints.mul(v, 1 << 20), *litert_multiplier(s / largest), away=away) for v, s in ((x, sa), (y, sb))
    )
    total = ints.add(x, y) if b.op.name == "ADD" else ints.sub(x, y)
    last = litert_multiplier(largest / ((1 << 20) * sy))
    return ints.add(ints.scaled(total, *last, away=True), int(qy.zero_point))


def _scalar_tail(b: TfliteBuilder, shape: tuple[int, ...]) -> np.ndarray | bool:
    """Marks elements behind the last whole vector of 16 of operands of one shape: scalar code rounds ties away."""
    size = int(np.prod(b.shape(0), dtype=np.int64))
    if b.shape(0) != b.shape(1) or size % 16 == 0:
        return False
    behind = (np.arange(size) >= size - size % 16).reshape(b.shape(0))
    return behind if behind.shape == shape else behind.transpose(0, 3, 1, 2)


@handles("PRELU")
def prelu(b: TfliteBuilder, op: FileOp) -> None:
    """Imports PRELU: below zero the product with the slope is scaled, both ways in fixed point, ties away from zero."""
    x, slope, y = b.source(0), b.source(1), b.target()
    qx, qa, qy = (b.byte_quant(t) for t in (x, slope, y))
    ints = Integers(b)
    names, form = operands(b)
    v, a = (ints.sub(ints.of(n), int(q.zero_point)) for n, q in zip(names, (qx, qa)))
    ratio = np.float32(qx.scale) / np.float32(qy.scale)
    below = np.float32(np.float32(qx.scale) * np.float32(qa.scale)) / np.float32(qy.scale)
    kept = ints.scaled(v, *litert_multiplier(float(ratio)))
    bent = ints.scaled(ints.mul(v, a), *litert_multiplier(float(below)))
    chosen = b.onnx("Where", [b.onnx("Less", [v, ints.constant(0)]), bent, kept])
    ints.finish(ints.add(chosen, int(qy.zero_point)), form)


@handles("MAXIMUM", "MINIMUM", wide=True)
def extremum(b: TfliteBuilder, op: FileOp) -> None:
    """Imports the extremum of the stored integers; LiteRT demands that all tensors have one scale."""
    (one_scale if b.wide() else same_type)(b, 0, 1)
    names, form = operands(b)
    b.quantize_into(b.onnx("Max" if op.name == "MAXIMUM" else "Min", names), form)
