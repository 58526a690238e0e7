"""The importer of ONNX models: handlers of operators, which emit the normal form of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from tilewright.common.text import one_line, suggest
from tilewright.compiler.errors import CompileError, StagingError
from tilewright.compiler.graph.graph import Graph, Tensor
from tilewright.compiler.graph.ops.kernel import NodeKernel
from tilewright.compiler.importer.onnx import (  # noqa: F401  (they fill the handler table)
    attention,
    bounded,
    contrib,
    contrib_norms,
    control,
    convolution,
    dynamic_quantized,
    elementwise,
    grouped_attention,
    linear,
    low_bits,
    movement,
    normalization,
    part,
    pooling,
    quantized,
    random,
    recurrent,
    reduction,
    rotary,
    sequences,
)
from tilewright.compiler.importer.onnx.builder import Handlers, OnnxBuilder
from tilewright.compiler.importer.onnx.extras import gradient, machine_learning, preview, signal, training  # noqa: F401
from tilewright.compiler.importer.onnx.handlers import HANDLERS
from tilewright.compiler.importer.onnx.inputs import batch_note, fixed_value, input_shapes
from tilewright.compiler.importer.onnx.kernel_nodes import KernelNodes
from tilewright.compiler.importer.onnx.loader import LoadedModel, import_errors, load, opset_of, source_name
from tilewright.compiler.limits import check_shape
from tilewright.compiler.onnx.onnx_ops import OPSET, numpy_dtype

__all__ = ["OPSET", "LoadedModel", "import_onnx"]


def import_onnx(
    source: str | Path | bytes | onnx.ModelProto | LoadedModel,
    shapes: dict[str, Sequence[int]] | None = None,
    constants: dict[str, Any] | None = None,
    staged: bool = False,
    batch: int | None = None,
    kernels: Sequence[NodeKernel] = (),
) -> Graph:
    """Reads an ONNX model into a graph in the normal form of `tilewright.compiler.importer`.

    Args:
        source: file name, serialised model, or ModelProto (left unchanged). External data is found beside the file.
            A model loaded before is not checked again, and takes no `kernels`.
        shapes: concrete shape per graph input, needed where the model leaves dimensions open.
        constants: values of graph inputs to fix at compile time, such as a shape or axes; these are no inputs of the
            result.
        staged: see `OnnxBuilder`.
        batch: size of batches that the model and `shapes` leave open, with a note; None to refuse them. See
            `inputs.open_batches`.
        kernels: kernels that may run nodes.

    Returns:
        A verified graph; tensors keep their ONNX names.

    Raises:
        CompileError: damaged or inconsistent model. UnsupportedError: a valid model that is not supported.
    """
    name = source_name(source)
    with import_errors(name):
        model = source.model if isinstance(source, LoadedModel) else load(source, name, kernels)
        own = KernelNodes(model, kernels)
        return _build(model, name, dict(shapes or {}), dict(constants or {}), staged, batch, own.handlers)


def _build(
    model: onnx.ModelProto,
    name: str,
    shapes: dict[str, Sequence[int]],
    constants: dict[str, Any],
    staged: bool,
    batch: int | None,
    own: Handlers,
) -> Graph:
    graph = Graph(model.graph.name or name, OPSET)
    graph.metadata = {entry.key: entry.value for entry in model.metadata_props}
    versions = {o.domain: o.version for o in model.opset_import}
    versions[""] = opset_of(model)
    builder = OnnxBuilder(graph, name, versions, {**HANDLERS, **own}, staged)
    for proto in model.graph.initializer:
        builder.initializer(proto)
    if model.graph.sparse_initializer:
        builder.sparse_initializers(model.graph.sparse_initializer)
    infos = {i.name: i for i in model.graph.input}
    for key, value in constants.items():
        if key not in infos or key in graph.tensors:
            raise CompileError(f"a value is given for {key!r}, which is no input of the model{suggest(key, infos)}")
        array = fixed_value(infos[key], value)
        graph.add(Tensor(key, tuple(array.shape), array.dtype, array))
    inputs = [i for i in model.graph.input if i.name not in graph.tensors]
    for value, shape in zip(inputs, input_shapes(inputs, shapes, batch)):
        dtype = numpy_dtype(value.type.tensor_type.elem_type, f"input {value.name!r}")
        check_shape("input", value.name, shape)
        graph.add(Tensor(value.name, shape, dtype))
        graph.inputs.append(value.name)
    note = batch_note(inputs, shapes, batch) if batch is not None else ""
    if note:
        graph.notes.append(note)
    try:
        for proto in model.graph.node:
            builder.node(proto)
    except CompileError as error:
        if note and not isinstance(error, StagingError):  # a model need not make sense with this size
            raise type(error)(f"{one_line(error)}; {note}") from error
        raise
    for value in model.graph.output:
        if value.name in builder.sequences:
            raise StagingError(f"graph output {value.name!r} is a sequence; a compiled program gives tensors")
        if value.name not in graph.tensors:
            raise CompileError(f"graph output {value.name!r} is made by no node, input or initialiser")
        graph.outputs.append(value.name)
    if not graph.outputs:
        raise CompileError("the model has no outputs")
    graph.verify("import")
    return graph
