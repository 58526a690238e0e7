"""Imports TFLite models as `Graph`s, in the arithmetic of LiteRT's default interpreter (`docs/tflite.md`).

Quantised operators become `QUANTIZED_OPS` directly, data movement ONNX ops on integers. Convolutions and pools work on
[N,C,H,W]; Transposes stand only where a tensor of rank 4 enters or leaves the graph, or an operator needs the file's
own order. Tensors keep the names of the file.

Floats, 8-bit and 16-bit activations share what an operator does with shapes: `windows` and `convolution` have the
geometry, classes derived from `Products` the arithmetic. Functions whose arithmetic is all there is have a handler in
each of the tables of `handlers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.common import store
from tilewright.common.text import one_line, suggest
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.importer.tflite import (  # noqa: F401  (they fill the handler table)
    arithmetic,
    control,
    convolution,
    detection,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    recurrent,
    reduction,
    resize,
    spectrum,
    tables,
    variables,
    wide_elementwise,
    wide_functions,
)
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import import_op
from tilewright.compiler.importer.tflite.schema import DAMAGE, FileModel, FileTensor, is_tflite, read
from tilewright.compiler.importer.tflite.state_table import Variables
from tilewright.compiler.limits import check_nodes, check_shape
from tilewright.compiler.onnx.onnx_ops import OPSET

__all__ = ["add_input", "add_output", "import_op", "import_tflite", "is_tflite", "plane_tensors"]


def import_tflite(source: str | Path | bytes, shapes: dict[str, Sequence[int]] | None = None) -> Graph:
    """Reads a TFLite model.

    Args:
        source: file name or the file's bytes.
        shapes: shape per graph input that replaces the file's.

    Returns:
        A verified graph; tensors keep their TFLite names.

    Raises:
        CompileError: damaged or inconsistent model. UnsupportedError: a valid model that is not supported.
    """
    name = "model" if isinstance(source, bytes | bytearray | memoryview) else Path(source).name
    model = None
    try:
        model = read(_bytes(source))
        return _build(model, name, dict(shapes or {})).graph
    except CompileError as error:
        text = one_line(error) + (_open_sizes(model) if model is not None and not shapes else "")
        raise type(error)(text if text.startswith(f"{name}: ") else f"{name}: {text}") from error
    except DAMAGE as error:
        text = f"{name}: damaged or inconsistent model: {type(error).__name__}: {one_line(error)}"
        raise CompileError(text) from error


def _open_sizes(model: FileModel) -> str:
    """A hint about sizes that the file leaves open: it holds 1 for them, with which a model need not make sense."""
    for t in (model.tensors[i] for i in model.inputs):
        if -1 in t.signature:
            axes = ", ".join(str(k) for k, n in enumerate(t.signature) if n == -1)
            example = ",".join(str(n) if n > 0 else "..." for n in t.signature)
            return (
                f"; input {t.name!r} leaves dimension {axes} open, taken as 1: set it with --shape {t.name}={example}"
            )
    return ""


def plane_tensors(source: bytes) -> dict[str, str]:
    """The imported graph's [N,C,H,W] tensors, with their names in the file. `source` is known to be importable."""
    b = _build(read(source), "model", {})
    return {f[PLANES]: b.model.tensors[index].name for index, f in b.forms.items() if PLANES in f}


def _bytes(source: str | Path | bytes) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    try:
        return store.read(source)
    except OSError as error:
        raise CompileError(f"{source}: cannot be read: {error.strerror or error}") from error


def _build(model: FileModel, name: str, shapes: dict[str, Sequence[int]]) -> TfliteBuilder:
    graph = Graph(Path(name).stem, OPSET)
    inputs = [model.tensors[i] for i in dict.fromkeys(model.inputs)]
    names = {t.name for t in inputs}
    for key in shapes:
        if key not in names:
            raise CompileError(f"a shape is given for {key!r}, which is no input of the model{suggest(key, names)}")
    b = TfliteBuilder(graph, model, checked=not shapes)
    for t in inputs:
        add_input(b, t, shapes.get(t.name))
    check_nodes("the graph", len(model.ops))
    b.variables = Variables(variables.initial_values(model), model)
    for op in model.ops:
        import_op(b, op)
    if not model.outputs:
        raise CompileError("the model has no outputs")
    for index in dict.fromkeys(model.outputs):
        add_output(b, model.tensors[index])
    variables.add_states(b)
    graph.verify("import")
    return b


def add_input(b: TfliteBuilder, t: FileTensor, given: Sequence[int] | None) -> None:
    """Makes a tensor of the file an input of the graph, of the given shape or of the file's."""
    if t.dtype is None:
        accepted = "float32, int8, uint8, int32, int64 and bool are accepted"
        raise UnsupportedError(f"input {t.name!r} is {t.type_name}; {accepted}")
    if t.data is not None:
        raise CompileError(f"input {t.name!r} is a constant")
    shape = tuple(int(s) for s in given) if given is not None else t.shape
    if any(s < 1 for s in shape):
        raise CompileError(f"input {t.name!r} has shape {list(shape)}; sizes of 1 and above are accepted")
    if len(shape) != len(t.shape):
        raise CompileError(f"shape {list(shape)} does not fit input {t.name!r} of {list(t.shape)}")
    if any(n != s and was != -1 for n, s, was in zip(shape, t.shape, t.signature)):
        raise CompileError(f"shape {list(shape)} does not fit input {t.name!r} of {list(t.signature)}")
    check_shape("input", t.name, shape)
    quant = b.byte_quant(t) if b.is_bytes(t) else t.quant if b.is_steps(t) else None
    b.graph.add(Tensor(t.name, shape, t.dtype, None, quant))
    b.graph.inputs.append(t.name)
    b.forms[t.index] = {FILE: t.name}


def add_output(b: TfliteBuilder, t: FileTensor) -> None:
    """Makes a tensor of the file an output of the graph."""
    graph = b.graph
    found = b.form_of(t, FILE)
    if found != t.name or found in graph.inputs:
        name = t.name if t.name not in graph.tensors else graph.unique(t.name)
        old = graph.tensor(found)
        graph.add(Tensor(name, old.shape, old.dtype, None, old.quant))
        graph.nodes.append(Node("Identity", [found], [name], {}, name))
        found = name
    graph.outputs.append(found)
