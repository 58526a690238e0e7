"""Elementwise operators on floats and integers, as ONNX ops. Quantised operands without a rule of their own pass
through floats: their results can differ by one step."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.elementwise import operands
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.onnx.onnx_ops import elem_type

_UNARY = {
    "ABS": "Abs", "NEG": "Neg", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "SIN": "Sin", "COS": "Cos", "SIGN": "Sign",
    "FLOOR": "Floor", "CEIL": "Ceil", "ROUND": "Round", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "RELU": "Relu",
    "ELU": "Elu", "LOGICAL_NOT": "Not",
}  # fmt: skip
_BINARY = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "POW": "Pow", "MAXIMUM": "Max", "MINIMUM": "Min"}
_COMPARE = {
    "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or",
}  # fmt: skip


def source(b: TfliteBuilder) -> tuple[str, str]:
    """Input 0 as real values in its existing form, and that form."""
    form = b.layout(0)
    return b.real(0, form), form


@handles(*_UNARY, table=PLAIN)
def unary(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    b.quantize_into(b.onnx(_UNARY[op.name], [x]), form)


@handles("RSQRT", table=PLAIN)
def rsqrt(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    b.quantize_into(b.onnx("Reciprocal", [b.onnx("Sqrt", [x])]), form)


@handles("SQUARE", table=PLAIN)
def square(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    b.quantize_into(b.onnx("Mul", [x, x]), form)


@handles("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", table=PLAIN)
def clip(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    low, high = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}[op.name]
    b.quantize_into(b.clipped(x, low, high), form)


@handles("LEAKY_RELU", table=PLAIN)
def leaky_relu(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    b.quantize_into(b.onnx("LeakyRelu", [x], {"alpha": float(op.option("Alpha", 0.0))}), form)


@handles("GELU", table=PLAIN)
def gelu(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    kind = "tanh" if op.option("Approximate", False) else "none"
    b.quantize_into(b.onnx("Gelu", [x], {"approximate": kind}), form)


@handles("HARD_SWISH", table=PLAIN)
def hard_swish(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    b.quantize_into(b.onnx("HardSwish", [x]), form)


@handles("CAST", table=PLAIN)
def cast(b: TfliteBuilder, op: FileOp) -> None:
    """Casts integers as stored: a cast ignores scales."""
    form, t = b.layout(0), b.target()
    assert t.dtype is not None
    x = b.onnx("Cast", [b.value(0, form)], {"to": elem_type(t.dtype)})
    b.onnx("Identity", [x], output=b.result(b.graph.tensor(x).shape, form))


def real_operands(b: TfliteBuilder) -> tuple[list[str], str]:
    """Both inputs as real values in one form, and that form. Raises CompileError where they do not broadcast."""
    shapes = b.shape(0), b.shape(1)
    try:
        out = np.broadcast_shapes(*shapes)
    except ValueError:
        raise b.damaged(f"shapes {list(shapes[0])} and {list(shapes[1])}") from None
    names, form = operands(b, len(out))
    return [b.dequantized(n, b.source(k)) for k, n in enumerate(names)], form


@handles(*_BINARY, table=PLAIN)
def binary(b: TfliteBuilder, op: FileOp) -> None:
    names, form = real_operands(b)
    value = b.onnx(_BINARY[op.name], names)
    if op.name in ("ADD", "SUB", "MUL", "DIV"):
        value = b.activated(value)
    b.quantize_into(value, form)


@handles("SQUARED_DIFFERENCE", table=PLAIN)
def squared_difference(b: TfliteBuilder, op: FileOp) -> None:
    names, form = real_operands(b)
    difference = b.onnx("Sub", names)
    b.quantize_into(b.onnx("Mul", [difference, difference]), form)


@handles("FLOOR_DIV", "FLOOR_MOD", table=PLAIN)
def floor_div(b: TfliteBuilder, op: FileOp) -> None:
    """Emits the quotient rounded down, or the remainder with the sign of the divisor. Bytes are plain integers,
    whatever their scale.
    """
    shapes = b.shape(0), b.shape(1)
    (x, y), form = operands(b, len(np.broadcast_shapes(*shapes)))
    dtype = b.graph.tensor(x).dtype
    if dtype.kind == "i" and dtype.itemsize < 4:  # differences need more bits
        x, y = (b.onnx("Cast", [name], {"to": elem_type(np.dtype(np.int32))}) for name in (x, y))
    floats = b.graph.tensor(x).dtype.kind == "f"
    if op.name == "FLOOR_DIV" and floats:
        b.quantize_into(b.onnx("Floor", [b.onnx("Div", [x, y])]), form)
        return
    rest = b.onnx("Mod", [x, y], {"fmod": int(floats)})
    if floats:
        zero = b.constant("zero", 0, np.float32)
        wrong = b.onnx("Less", [b.onnx("Mul", [rest, y]), zero])
        rest = b.onnx("Where", [wrong, b.onnx("Add", [rest, y]), rest])
    found = rest if op.name == "FLOOR_MOD" else b.onnx("Div", [b.onnx("Sub", [x, rest]), y])
    if b.graph.tensor(found).dtype != dtype:
        found = b.onnx("Cast", [found], {"to": elem_type(dtype)})
    b.quantize_into(found, form)


@handles(*_COMPARE, "NOT_EQUAL", table=PLAIN)
def compare(b: TfliteBuilder, op: FileOp) -> None:
    """Emits a comparison; quantised operands of one scale are compared as integers."""
    qa, qb = b.source(0).quant, b.source(1).quant
    if b.is_steps(b.source(0)) and qa is not None and qa.same_as(qb):
        names, form = operands(b, len(np.broadcast_shapes(b.shape(0), b.shape(1))))
    else:
        names, form = real_operands(b)
    found = b.onnx(_COMPARE.get(op.name, "Equal"), names)
    b.quantize_into(b.onnx("Not", [found]) if op.name == "NOT_EQUAL" else found, form)


@handles("PRELU", table=PLAIN)
def prelu(b: TfliteBuilder, op: FileOp) -> None:
    (x, slope), form = real_operands(b)
    b.quantize_into(b.onnx("PRelu", [x, slope]), form)


@handles("SELECT", "SELECT_V2", table=PLAIN)
def select(b: TfliteBuilder, op: FileOp) -> None:
    choice, names = b.value(0, FILE), [b.real(1), b.real(2)]
    shape, rank = b.shape(0), len(b.shape(1))
    if op.name == "SELECT" and len(shape) == 1 and rank > 1:
        choice = b.onnx("Reshape", [choice, b.constant("shape", [*shape, *[1] * (rank - 1)], np.int64)])
    b.quantize_into(b.onnx("Where", [choice, *names]))


@handles("ZEROS_LIKE", table=PLAIN)
def zeros_like(b: TfliteBuilder, op: FileOp) -> None:
    x, form = source(b)
    t = b.graph.tensor(x)
    b.quantize_into(b.constant("zeros", np.zeros(t.shape, t.dtype)), form)
