"""Types and definitions where onnx's shape inference has none: own rules, and bodies of function ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.onnx.onnx_ops import OPSET, elem_type, schema_of, to_proto

_LIKE_FIRST_INPUT = {"GroupNormalization", "RMSNormalization", "Swish", "ReverseSequence"}
_WRITTEN_OUT = {
    "AffineGrid", "Attention", "Bernoulli", "CausalConvWithState", "CenterCropPad", "LinearAttention",
    "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU",
}  # fmt: skip
"""Function ops without a kernel of their own."""

OWN_OPS = {"DeformedColumns", "DynamicQuantizedLSTM", "IntegerLSTM", "TreeEnsemble"}
"""Ops of the compiler that have no ONNX definition, with the attribute `shape`. Results have the type of the first
input, those of `IntegerLSTM` are int8."""

Types = list[tuple[tuple[int, ...] | None, np.dtype | None]]


def own_types(node: Node, inputs: Sequence[Tensor | None]) -> Types | None:
    """Shape and dtype of the outputs by a rule of this file, None where there is no rule."""
    first = inputs[0] if inputs else None
    if node.op in _WRITTEN_OUT:
        return [(None, None)] * len(node.outputs)
    if node.op == "DynamicQuantizedLSTM" and first is not None:
        whole = tuple(node.attrs["shape"])  # every step's state, then the last state and cell
        return [(shape, first.dtype) for shape in (whole, whole[1:], whole[1:])]
    if node.op == "IntegerLSTM":
        return [(tuple(node.attrs["shape"]), np.dtype(np.int8))]
    if node.op in OWN_OPS and first is not None:
        return [(tuple(node.attrs["shape"]), first.dtype)]
    if node.op in _LIKE_FIRST_INPUT and first is not None:
        return [(first.shape, first.dtype)]
    if node.op == "MaxUnpool" and first is not None and len(inputs) > 2 and inputs[2] is not None:
        sizes = inputs[2].data
        return None if sizes is None else [(tuple(int(d) for d in sizes.reshape(-1)), first.dtype)]
    if node.op == "Resize" and first is not None:
        return _resized(node, first, inputs)
    if node.op == "Compress" and first is not None:
        condition = inputs[1].data if inputs[1] is not None else None
        if condition is not None:
            axis = node.attrs.get("axis")
            length = first.size if axis is None else first.shape[axis]
            count = int(np.count_nonzero(condition.reshape(-1)[:length]))
            shape = (
                (count,) if axis is None else (*first.shape[:axis], count, *first.shape[axis % len(first.shape) + 1 :])
            )
            return [(shape, first.dtype)]
    return _bounded_types(node, inputs)


def _resized(node: Node, first: Tensor, inputs: Sequence[Tensor | None]) -> Types | None:
    """The sizes of a Resize by scales, equal to onnxruntime's: products in float32, where onnx infers others."""
    given = inputs[2].data if len(inputs) > 2 and inputs[2] is not None else None
    if given is None or node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    rank = len(first.shape)
    axes = [a % rank for a in node.attrs.get("axes") or range(rank)]
    scales = dict(zip(axes, given.reshape(-1).astype(np.float32)))
    if len(scales) != given.size:
        return None
    shape = tuple(int(np.float32(n) * scales[k]) if k in scales else n for k, n in enumerate(first.shape))
    return [(shape, first.dtype)]


def _bounded_types(node: Node, inputs: Sequence[Tensor | None]) -> Types | None:
    """The shape and dtype of buffer and count, None for other ops."""
    first = inputs[0] if inputs else None
    if not node.op.startswith("Bounded") or first is None:
        return None
    count = ((), np.dtype(np.int64))
    if node.op == "BoundedNonZero":
        return [((len(first.shape), first.size), np.dtype(np.int64)), count]
    second = inputs[1]
    assert second is not None
    if node.op == "BoundedCompress":
        axis = node.attrs.get("axis")
        if axis is None:
            return [((second.size,), first.dtype), count]
        axis %= len(first.shape)
        return [((*first.shape[:axis], second.size, *first.shape[axis + 1 :]), first.dtype), count]
    batches, classes, boxes = second.shape
    limit = inputs[2].data if len(inputs) > 2 and inputs[2] is not None else None
    most = boxes if limit is None else min(boxes, max(int(limit.reshape(-1)[0]), 0))
    return [((batches * classes * most, 3), np.dtype(np.int64)), count]


def function_body(node: Node, inputs: Sequence[Tensor | None], schema: Any | None = None) -> onnx.FunctionProto | None:
    """The definition of a function op with its attributes filled in, None for primitive ops.

    Args:
        schema: schema of the op, where it is not of the default domain.
    """
    schema = schema or schema_of(node.op)
    if schema is None:
        return None
    body = onnx.FunctionProto()
    proto = to_proto(node)
    if schema.has_context_dependent_function:
        types = [helper.make_tensor_type_proto(elem_type(t.dtype), t.shape) if t else onnx.TypeProto() for t in inputs]
        version = max(schema.context_dependent_function_opset_versions, default=OPSET)
        data = schema.get_context_dependent_function_with_opset_version(
            version, proto.SerializeToString(), [t.SerializeToString() for t in types]
        )
        if not data:
            return None
        body.ParseFromString(data)
    elif schema.has_function:
        body.CopyFrom(schema.function_body)
    else:
        return None
    given = {a.name: a for a in proto.attribute}
    for inner in body.node:
        _fill(inner, given)
    return body


def _fill(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> None:
    """Replaces references to the function's attributes by their values; drops those that are not given."""
    kept: list[onnx.AttributeProto] = []
    for attr in node.attribute:
        if attr.ref_attr_name:
            value = given.get(attr.ref_attr_name)
            if value is None:
                continue
            copy = onnx.AttributeProto()
            copy.CopyFrom(value)
            copy.name = attr.name
            attr = copy
        for graph in (attr.g, *attr.graphs) if attr.HasField("g") or attr.graphs else ():
            for inner in graph.node:
                _fill(inner, given)
        kept.append(attr)
    filled = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(filled)
