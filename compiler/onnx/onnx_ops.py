"""One ONNX node at a time: shape inference and evaluation of `tilewright.compiler.graph.graph.Node`s through the onnx
package.

Both work on concrete shapes, so that every tensor of an imported graph has a known shape and dtype. The graph's ops
follow the newest definitions, `OPSET`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from tilewright.compiler.errors import CompileError, StagingError, UnsupportedError
from tilewright.compiler.graph.graph import Node, Tensor

OPSET = min(28, defs.onnx_opset_version())
"""The opset of every imported graph: ops are rewritten to their newest form, see `tilewright.compiler.importer`."""

UNTRUSTED = ("RNN", "GRU", "LSTM")
"""Ops never evaluated at compile time: onnx's reference implementation ignores some of their inputs and attributes."""

RANDOM = frozenset(
    ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
)
"""Ops whose results differ between two nodes with the same inputs."""

_IR_VERSION = 10
_DATA_LIMIT = 1 << 16  # constants above this many elements never decide a shape


@lru_cache(maxsize=1024)
def schema_of(op: str) -> Any | None:
    """The newest schema of a default-domain op, None where there is none."""
    try:
        return defs.get_schema(op, OPSET, "")
    except defs.SchemaError:
        return None


def default_attributes(op: str) -> dict[str, Any]:
    """The attribute values that the ONNX schema defines for attributes left out by a model."""
    schema = schema_of(op)
    found: dict[str, Any] = {}
    for name, attr in (schema.attributes if schema else {}).items():
        if attr.default_value is not None and attr.default_value.name:
            found[name] = attribute_value(attr.default_value)
    return found


def attribute_value(attr: onnx.AttributeProto) -> Any:
    """Python value of an attribute: int, float, str, lists of them, or an array for a tensor."""
    kinds = onnx.AttributeProto
    if attr.type == kinds.TENSOR:
        return numpy_helper.to_array(attr.t)
    if attr.type == kinds.TENSORS:
        return [numpy_helper.to_array(t) for t in attr.tensors]
    value = helper.get_attribute_value(attr)
    if attr.type == kinds.STRING:
        return value.decode("utf-8", "replace")
    if attr.type == kinds.STRINGS:
        return [v.decode("utf-8", "replace") for v in value]
    return list(value) if attr.type in (kinds.INTS, kinds.FLOATS, kinds.GRAPHS) else value


def numpy_dtype(elem_type: int, what: str) -> np.dtype:
    """numpy dtype of an ONNX element type. Raises StagingError for strings and undefined types, UnsupportedError for
    unknown ones."""
    if elem_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        name = "string" if elem_type else "undefined"
        raise StagingError(f"{what} has element type {name}; a compiled program takes numbers and booleans")
    try:
        dtype: np.dtype = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
        return dtype
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedError(f"{what} has unknown element type {elem_type}") from error


def dense_of(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """Converts a sparse constant to a dense array."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
    dense.reshape(-1)[flat] = values
    return dense


def elem_type(dtype: np.dtype) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def to_proto(node: Node) -> onnx.NodeProto:
    """The node as an ONNX NodeProto; attributes whose value is None are left out."""
    proto = onnx.NodeProto(op_type=node.op, name=node.name, input=node.inputs, output=node.outputs)
    schema = schema_of(node.op)
    for key, value in node.attrs.items():
        if value is None:
            continue
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        known = schema.attributes.get(key) if schema else None
        kind = int(known.type.value) if known is not None else None
        proto.attribute.append(helper.make_attribute(key, value, attr_type=kind))
    return proto


def infer(node: Node, inputs: Sequence[Tensor | None]) -> list[tuple[tuple[int, ...] | None, np.dtype | None]]:
    """Infers shape and dtype of each output from the concrete inputs; None where onnx cannot.

    Raises:
        CompileError: the inputs do not fit the op (onnx's message, one line).
    """
    schema = schema_of(node.op)
    if schema is None:
        return [(None, None) for _ in node.outputs]
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, tensor in zip(node.inputs, inputs):
        if tensor is None:
            continue
        types[name] = helper.make_tensor_type_proto(elem_type(tensor.dtype), tensor.shape)
        if tensor.data is not None and tensor.size <= _DATA_LIMIT and tensor.dtype.kind in "iufb":
            data[name] = numpy_helper.from_array(np.asarray(tensor.data), name)
    try:
        found = shape_inference.infer_node_outputs(
            schema, to_proto(node), types, data, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION
        )
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        message = " ".join(str(error).split())
        shapes = ", ".join(f"{n}{list(t.shape)}" for n, t in zip(node.inputs, inputs) if t is not None)
        raise CompileError(f"{node.op} {node.name!r}: inputs do not fit ({shapes}): {message}") from error
    out: list[tuple[tuple[int, ...] | None, np.dtype | None]] = []
    for name in node.outputs:
        proto = found.get(name) if name else None
        if proto is None or not proto.HasField("tensor_type"):
            out.append((None, None))
            continue
        tensor_type = proto.tensor_type
        dtype = numpy_dtype(tensor_type.elem_type, f"output {name!r} of {node.op}") if tensor_type.elem_type else None
        shape: tuple[int, ...] | None = None
        if tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in tensor_type.shape.dim):
            shape = tuple(int(d.dim_value) for d in tensor_type.shape.dim)
        out.append((shape, dtype))
    return out


class Evaluator:
    """One default-domain node by onnx's reference implementation, made once and run for any number of inputs.

    Args:
        proto: the node, without subgraphs.
        version: opset version of its form.
        inputs: arrays of the types it will have, for ops whose definition as a function depends on them.
    """

    def __init__(self, proto: onnx.NodeProto, version: int = OPSET, inputs: Sequence[np.ndarray | None] = ()) -> None:
        from onnx.reference import ReferenceEvaluator  # takes as long to import as all else of onnx

        self._label = f"{proto.op_type} {proto.name or next(filter(None, proto.output), '')!r}"
        make = helper.make_tensor_value_info
        types = {n: make(n, elem_type(a.dtype), a.shape) for n, a in zip(proto.input, inputs) if n and a is not None}
        given = [types.get(n, onnx.ValueInfoProto(name=n)) for n in dict.fromkeys(proto.input) if n]
        graph = helper.make_graph([proto], "node", given, [onnx.ValueInfoProto(name=n) for n in proto.output if n])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=_IR_VERSION)
        (self._node,) = self._caught(lambda: ReferenceEvaluator(model).rt_nodes_)

    def __call__(self, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Returns the outputs in their order.

        Raises:
            CompileError: the reference implementation rejects the inputs.
        """
        return [np.asarray(value) for value in self._caught(lambda: self._node.run(*inputs))]

    def _caught(self, made: Callable[[], Any]) -> Any:
        try:
            return made()
        except Exception as error:  # the evaluator raises many kinds; all mean the same to the user
            raise CompileError(f"{self._label} cannot be evaluated: {' '.join(str(error).split())}") from error


def evaluate(node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """Evaluates one default-domain node on numpy arrays, see `Evaluator`; unwanted outputs are empty."""
    given = [None if a is None else np.asarray(a) for a in inputs]
    if node.op == "QuantizeLinear":  # onnxruntime divides halves in float32
        given = [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for a in given]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = Evaluator(to_proto(node), inputs=given)(given)
    return [value if name else np.empty(0) for name, value in zip(node.outputs, results)]
