"""Sequences and optionals whose structure is known at compile time: lists of tensor names, no tensors of their own.

Their elements are computed like any tensor; positions must be constants, because lists do not exist at run time.
"""

from __future__ import annotations

import onnx

from tilewright.compiler.errors import CompileError, StagingError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.control import STAGED_UNROLLED
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.limits import check_operands


def _sequence(builder: OnnxBuilder, node: OnnxNode, index: int) -> list[str]:
    name = node.input(index)
    if name not in builder.sequences:
        raise StagingError(f"{node.label}: {name!r} is no sequence known at compile time")
    return builder.sequences[name]


def _position(builder: OnnxBuilder, node: OnnxNode, index: int, length: int, default: int = -1, last: int = -1) -> int:
    """A constant position, -length..length+last; negative ones count from the end."""
    at = default
    if node.input(index):
        value = builder.const(node.input(index))
        if value is None:
            raise StagingError(f"{node.label}: the position {node.input(index)!r} is known at run time only")
        at = int(value.reshape(-1)[0])
    if not -length <= at <= length + last:
        raise CompileError(f"{node.label}: position {at} is out of range for {length} elements")
    return at + length if at < 0 else at


@handles("SequenceConstruct")
def construct(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.sequences[node.output(0)] = list(node.inputs)


@handles("SequenceEmpty")
def empty(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.sequences[node.output(0)] = []


@handles("SequenceInsert")
def insert(builder: OnnxBuilder, node: OnnxNode) -> None:
    items = list(_sequence(builder, node, 0))
    items.insert(_position(builder, node, 2, len(items), len(items), 0), node.input(1))
    builder.sequences[node.output(0)] = items


@handles("SequenceErase")
def erase(builder: OnnxBuilder, node: OnnxNode) -> None:
    items = list(_sequence(builder, node, 0))
    del items[_position(builder, node, 1, len(items))]
    builder.sequences[node.output(0)] = items


@handles("SequenceAt")
def at(builder: OnnxBuilder, node: OnnxNode) -> None:
    items = _sequence(builder, node, 0)
    builder.bind(items[_position(builder, node, 1, len(items))], node.output(0))


@handles("SequenceLength")
def length(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.bind(builder.constant("length", len(_sequence(builder, node, 0)), "int64"), node.output(0))


@handles("SplitToSequence")
def split(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports SplitToSequence: without sizes every slice is one element long, and loses the axis with keepdims=0."""
    data = node.input(0)
    shape = builder.shape(data)
    axis = int(node.attrs.get("axis", 0)) % max(len(shape), 1)
    size, squeeze = shape[axis], False
    if not node.input(1):
        check_operands(node.label, size)
        sizes, squeeze = [1] * size, not node.attrs.get("keepdims", 1)
    else:
        given = builder.need_const(node.input(1), "split")
        step = int(given.reshape(-1)[0]) if given.size else 0
        if given.ndim == 0 and step <= 0:
            raise CompileError(f"{node.label}: split={step} must be greater than 0")
        check_operands(node.label, -(-size // step) if given.ndim == 0 else given.size)
        sizes = [min(step, size - k) for k in range(0, size, step)] if given.ndim == 0 else given.tolist()
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise CompileError(f"{node.label}: split={sizes} does not divide dimension {axis} of {list(shape)}")
    names = [builder.fresh(node.output(0)) for _ in sizes]
    attrs = {"axis": axis, "num_outputs": None}
    if names:
        builder.emit("Split", [data, builder.ints("split", sizes)], names, attrs)
    if squeeze:
        names = [builder.emit("Squeeze", [name, builder.ints("axes", [axis])]) for name in names]
    builder.sequences[node.output(0)] = names


@handles("ConcatFromSequence")
def concat(builder: OnnxBuilder, node: OnnxNode) -> None:
    items = _sequence(builder, node, 0)
    if not items:
        raise CompileError(f"{node.label}: the sequence {node.input(0)!r} is empty")
    stack = int(node.attrs.get("new_axis", 0))
    rank = len(builder.shape(items[0])) + stack
    axis = int(node.attrs["axis"])
    if not -rank <= axis < rank:
        raise CompileError(f"{node.label}: axis {axis} must be in {-rank}..{rank - 1}")
    axis %= rank
    if stack:
        items = [builder.emit("Unsqueeze", [name, builder.ints("axes", [axis])]) for name in items]
    builder.emit("Concat", items, node.outputs, {"axis": axis})


@handles("SequenceMap")
def sequence_map(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports SequenceMap: the body runs once per element; tensors beside the first sequence go to every run."""
    body: onnx.GraphProto = node.attrs["body"]
    steps = len(_sequence(builder, node, 0))
    if builder.staged and steps * len(body.node) > STAGED_UNROLLED:
        raise StagingError(f"{node.label}: unrolls to {steps * len(body.node)} nodes")
    found: list[list[str]] = [[] for _ in node.outputs]
    for step in range(steps):
        arguments = [builder.sequences[n][step] if n in builder.sequences else n for n in node.inputs]
        for row, value in zip(found, builder.inline(body, arguments)):
            row.append(value)
    builder.sequences.update(zip(node.outputs, found))


@handles("Identity")
def identity(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.bind(node.input(0), node.output(0))


@handles("Optional")
def optional(builder: OnnxBuilder, node: OnnxNode) -> None:
    if not node.input(0):
        raise StagingError(f"{node.label} makes an empty optional; a compiled program has none")
    builder.bind(node.input(0), node.output(0))


@handles("OptionalGetElement")
def optional_get(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.bind(node.input(0), node.output(0))


@handles("OptionalHasElement")
def optional_has(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.bind(builder.constant("present", bool(node.input(0))), node.output(0))
