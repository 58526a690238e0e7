"""Parts of a TFLite model: the operators that can be imported at all, and some of them as a graph of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct, field

from tilewright.common.text import one_line
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.tflite import add_input, add_output, import_op
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.schema import DAMAGE, FileModel, FileOp, FileTensor
from tilewright.compiler.limits import check_nodes
from tilewright.compiler.onnx.onnx_ops import OPSET

Shapes = Mapping[int, tuple[int, ...]]
"""Shapes by index of the tensor, in the file's order of axes."""


class Survey(Struct):
    """The importable part of a model.

    Attributes:
        graph: graph of all operators but the refused ones, whose results are its inputs. Nodes name their operators in
            `origin`, by `FileOp.label`.
        refused: reason why an operator cannot be imported, by its index.
        known: values known when the model is read, by index of the tensor; constants of the file are not here.
    """

    graph: Graph
    refused: dict[int, str] = field(default_factory=dict)
    known: dict[int, np.ndarray] = field(default_factory=dict)


def survey(model: FileModel, shapes: Shapes | None = None) -> Survey:
    """Imports all supported operators of a model.

    Args:
        shapes: shapes of the model's inputs, where they are not the file's.

    Raises:
        CompileError: the model is too large.
    """
    check_nodes("the graph", len(model.ops))
    model = _reshaped(model, shapes or {})
    graph = Graph("model", OPSET)
    builder = TfliteBuilder(graph, model, checked=not shapes)
    found = Survey(graph)
    lost: dict[int, str] = {}
    for index in dict.fromkeys(model.inputs):
        _take_input(builder, model.tensors[index], lost)
    for op in model.ops:
        reason = next((f"it reads {lost[i]}" for i in op.inputs if i in lost), "") or _stateful(model, op, builder)
        reason = reason or _wide(builder, op) or _try_import(builder, op)
        if reason:
            found.refused[op.index] = reason
            for index in op.outputs:
                _take_input(builder, model.tensors[index], lost)
    for op in model.ops:
        for index in op.outputs:
            value = graph.const(builder.forms.get(index, {}).get(FILE, ""))
            if value is not None and op.index not in found.refused:
                found.known[index] = value
    made = {i for op in model.ops if op.index not in found.refused for i in op.outputs} - found.known.keys()
    read = {i for op in model.ops if op.index in found.refused for i in op.inputs}
    for index in sorted(made & {*model.outputs, *read}):
        add_output(builder, model.tensors[index])
    graph.verify("import")
    return found


def import_part(
    model: FileModel,
    ops: Iterable[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    shapes: Shapes,
    known: Mapping[int, np.ndarray],
) -> Graph:
    """Imports some operators of a model as a graph.

    Args:
        ops: their indices.
        inputs, outputs: tensors that the part reads from outside, and its results.
        shapes: shapes of the inputs.
        known: tensors made outside, whose values are known.

    Raises:
        CompileError: the operators do not fit these shapes.
    """
    wanted = set(ops)
    tensors = list(model.tensors)
    for index, value in known.items():
        tensors[index] = replace(tensors[index], data=value, shape=value.shape)
    same = all(tensors[i].shape == tuple(shapes[i]) for i in inputs)
    part = FileModel(tensors, [op for op in model.ops if op.index in wanted], list(inputs), list(outputs))
    part = _reshaped(part, {i: shapes[i] for i in inputs})
    graph = Graph("part", OPSET)
    builder = TfliteBuilder(graph, part, checked=same)
    try:
        for index in inputs:
            add_input(builder, part.tensors[index], None)
        for op in part.ops:
            import_op(builder, op)
        for index in outputs:
            add_output(builder, part.tensors[index])
        graph.verify("import")
    except CompileError:
        raise
    except DAMAGE as error:
        raise CompileError(f"damaged or inconsistent model: {type(error).__name__}: {one_line(error)}") from error
    return graph


def _reshaped(model: FileModel, shapes: Shapes) -> FileModel:
    """The model with these shapes, which may change sizes that the file fixes, like LiteRT's users may."""
    tensors = list(model.tensors)
    for index, shape in shapes.items():
        tensors[index] = replace(tensors[index], shape=tuple(shape), signature=tuple(shape))
    return replace(model, tensors=tensors)


def _take_input(builder: TfliteBuilder, t: FileTensor, lost: dict[int, str]) -> None:
    """Makes a tensor an input of the graph, or notes why it cannot be one."""
    reason = _reason(lambda: add_input(builder, t, None))
    if reason:
        lost[t.index] = f"{t.name!r}, which cannot be handed over: {reason}"


def _stateful(model: FileModel, op: FileOp, builder: TfliteBuilder) -> str:
    """The reason to refuse a stateful operator: LiteRT keeps the state from run to run, a program does not."""
    for index in op.inputs:
        t = model.tensors[index]
        if index >= 0 and t.data is None and index not in builder.forms:
            return f"{op.label}: {t.name!r} is a state that lives from one run to the next"
    return ""


def _wide(builder: TfliteBuilder, op: FileOp) -> str:
    """The reason why an operator of 16-bit activations is not imported. It would run on the CPU, by LiteRT's reference
    kernels, but the delegating application has the default ones, which round some steps otherwise.
    """
    builder.op = op
    return f"{op.label}: 16-bit activations run on the CPU" if builder.wide() else ""


def _try_import(builder: TfliteBuilder, op: FileOp) -> str:
    """Imports an operator, or leaves the graph unchanged and returns the reason."""
    graph = builder.graph
    nodes, tensors = len(graph.nodes), len(graph.tensors)
    touched = {i: dict(builder.forms[i]) for i in (*op.inputs, *op.outputs) if i in builder.forms}
    reason = _reason(lambda: import_op(builder, op))
    if reason:
        del graph.nodes[nodes:]
        for name in list(graph.tensors)[tensors:]:
            del graph.tensors[name]
        for index in (*op.inputs, *op.outputs):
            builder.forms.pop(index, None)
        builder.forms |= touched
    return reason


def _reason(step: Callable[[], None]) -> str:
    try:
        step()
    except CompileError as error:
        return one_line(error)
    except DAMAGE as error:
        return f"inconsistent: {type(error).__name__}: {one_line(error)}"
    return ""
