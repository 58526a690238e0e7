"""Elementwise operators on floats and integers, as ONNX ops. Quantised operands without a rule of their own pass
through floats: their results can differ by one step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.elementwise import operands
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.tables import RELUS
from tilewright.compiler.importer.tflite.wide import one_scale

_ONE_NODE = {
    "ABS": "Abs", "NEG": "Neg", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "SIN": "Sin", "COS": "Cos", "SIGN": "Sign",
    "FLOOR": "Floor", "CEIL": "Ceil", "ROUND": "Round", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "ELU": "Elu",
    "LOGICAL_NOT": "Not", "HARD_SWISH": "HardSwish",
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[TfliteBuilder, str], str]] = {
    "RSQRT": lambda b, x: b.onnx("Reciprocal", [b.onnx("Sqrt", [x])]),
    "SQUARE": lambda b, x: b.onnx("Mul", [x, x]),
    **dict.fromkeys(RELUS, lambda b, x: b.clipped(x, *RELUS[b.op.name])),
    "LEAKY_RELU": lambda b, x: b.onnx("LeakyRelu", [x], {"alpha": float(b.op.option("Alpha", 0.0))}),
    "GELU": lambda b, x: b.onnx("Gelu", [x], {"approximate": "tanh" if b.op.option("Approximate", False) else "none"}),
    "ZEROS_LIKE": lambda b, x: b.constant("zeros", np.zeros(b.graph.tensor(x).shape, b.graph.tensor(x).dtype)),
}
"""Functions of real values that are more than one ONNX op without attributes."""
_BINARY = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "POW": "Pow", "MAXIMUM": "Max", "MINIMUM": "Min",
    "PRELU": "PRelu",
}  # fmt: skip
_COMPARE = {
    "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or",
}  # fmt: skip


@handles(*_ONE_NODE, *_FUNCTIONS, table=PLAIN)
def function(b: TfliteBuilder, op: FileOp) -> None:
    """Imports a function of real values, in the form in which they exist."""
    form = b.layout(0)
    x = b.real(0, form)
    b.quantize_into(b.onnx(_ONE_NODE[op.name], [x]) if op.name in _ONE_NODE else _FUNCTIONS[op.name](b, x), form)


@handles("CAST", table=PLAIN)
def cast(b: TfliteBuilder, op: FileOp) -> None:
    """Casts integers as stored: a cast ignores scales."""
    form, t = b.layout(0), b.target()
    b.quantize_into(b.cast(b.value(0, form), t.dtype), form)


def real_operands(b: TfliteBuilder) -> tuple[list[str], str]:
    """Both inputs as real values in one form, and that form."""
    names, form = operands(b)
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
    (x, y), form = operands(b)
    dtype = b.graph.tensor(x).dtype
    if dtype.kind == "i" and dtype.itemsize < 4:  # differences need more bits
        x, y = (b.cast(name, np.int32) for name in (x, y))
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
        found = b.cast(found, dtype)
    b.quantize_into(found, form)


@handles(*_COMPARE, "NOT_EQUAL", table=PLAIN)
def compare(b: TfliteBuilder, op: FileOp) -> None:
    """Emits a comparison; quantised operands of one scale are compared as integers."""
    qa, qb = b.source(0).quant, b.source(1).quant
    if b.is_steps(b.source(0)) and qa is not None and qa.same_as(qb):
        names, form = operands(b)
    else:
        names, form = real_operands(b)
    found = b.onnx(_COMPARE.get(op.name, "Equal"), names)
    b.quantize_into(b.onnx("Not", [found]) if op.name == "NOT_EQUAL" else found, form)


@handles("SELECT", "SELECT_V2", table=PLAIN, wide=True)
def select(b: TfliteBuilder, op: FileOp) -> None:
    wide = b.wide()
    if wide:
        one_scale(b, 1, 2)
    choice, names = b.value(0, FILE), [b.value(k, FILE) if wide else b.real(k) for k in (1, 2)]
    shape, rank = b.shape(0), len(b.shape(1))
    if op.name == "SELECT" and len(shape) == 1 and rank > 1:
        choice = b.reshaped(choice, [*shape, *[1] * (rank - 1)])
    b.quantize_into(b.onnx("Where", [choice, *names]))


@handles("ADD_N", table=PLAIN)
def add_all(b: TfliteBuilder, op: FileOp) -> None:
    """Imports the sum of all inputs, floats or integers, in their order."""
    if b.quantised():
        raise b.refuse("8-bit tensors are not supported; floats and integers are")
    total, *others = (b.value(k, FILE) for k in range(len(op.inputs)))
    for name in others:
        total = b.onnx("Add", [total, name])
    b.quantize_into(total)
