"""Float TFLite models as ONNX models: the importer makes ONNX's operators of them, which are written as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.importer.tflite import import_tflite
from tilewright.errors import UsageError
from tilewright.quantize.observe import run, session
from tilewright.quantize.prepare import other_output
from tilewright.quantize.recipe import Sample

_OPSET, _IR_VERSION = 21, 10
_INSTEAD = "give a .tflite file as the output, which ai-edge-quantizer quantises"


def as_onnx(raw: bytes, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """A float TFLite model as an ONNX model with the same inputs and outputs.

    Args:
        raw: the bytes of the file.
        shapes: sizes of inputs, open in the file or not.

    Raises:
        CompileError: the model is damaged or not supported. UsageError: it has a state, or an operator that is not
            one of ONNX.
    """
    graph = import_tflite(raw, {name: list(sizes) for name, sizes in (shapes or {}).items()})
    if graph.states:
        raise UsageError(f"the model keeps a state from run to run, {graph.states[0].name!r}: {_INSTEAD}")
    nodes = [_written(graph, node) for node in graph.nodes]
    info = lambda name: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(graph.tensor(name).dtype), graph.tensor(name).shape
    )
    constants = [numpy_helper.from_array(t.data, name) for name, t in graph.tensors.items() if t.data is not None]
    body = helper.make_graph(
        nodes, graph.name, [info(name) for name in graph.inputs], [info(name) for name in graph.outputs], constants
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)


def _written(graph: Graph, node: Node) -> onnx.NodeProto:
    if node.quantized is not None or not onnx.defs.has(node.op, _OPSET):
        raise UsageError(f"{node.name or node.op!r} ({node.op}) is not one of ONNX's operators: {_INSTEAD}")
    known = onnx.defs.get_schema(node.op, _OPSET).attributes
    attributes = {name: _attribute(value) for name, value in node.attrs.items() if name in known and value is not None}
    return helper.make_node(node.op, node.inputs, node.outputs, node.name, **attributes)


def _attribute(value: Any) -> Any:
    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


def require_same(raw: bytes, made: onnx.ModelProto, sample: Sample) -> None:
    """Raises `UsageError` if the ONNX model computes something else than LiteRT does of the TFLite one."""
    name = other_output(LiteRtReference(raw).run(sample), run(session(made), sample))
    if name is not None:
        raise UsageError(f"as an ONNX model it gives another output {name!r} than in LiteRT: {_INSTEAD}")
