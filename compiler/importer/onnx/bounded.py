"""Ops whose result size depends on values, as a buffer of the largest possible size and the size that is used.

`NonZero`, `Compress` and `NonMaxSuppression` of the domain `BOUNDED_DOMAIN` have two outputs, the buffer and the count.
The part of a dynamic model that holds such a node ends with it; the next one starts from the used part.
"""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

BOUNDED_DOMAIN = "ai.tilewright.bounded"
BOUNDED_OPS = ("NonZero", "Compress", "NonMaxSuppression")


def bounded_form(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node that makes the buffer, output `NAME@all`, and the count, output `NAME@count`."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain = BOUNDED_DOMAIN
    copy.output[:] = [f"{node.output[0]}@all", f"{node.output[0]}@count"]
    return copy


@handles(*BOUNDED_OPS, domain=BOUNDED_DOMAIN)
def bounded(builder: OnnxBuilder, node: OnnxNode) -> None:
    if node.op == "Compress":
        data, condition = (builder.shape(node.input(k)) for k in range(2))
        axis = node.attrs.get("axis")
        length = int(np.prod(data, dtype=np.int64)) if axis is None else data[axis]
        if len(condition) != 1 or condition[0] > length:
            raise CompileError(f"{node.label}: the condition {list(condition)} must be up to {length} values")
    if all(builder.const(name) is not None for name in node.inputs if name):
        value = builder.const(builder.emit(node.op, node.inputs, [node.output(0)], node.attrs))
        assert value is not None
        count = value.shape[crop_axis(node.op, node.attrs.get("axis"))]
        builder.bind(builder.constant("count", count, "int64"), node.output(1))
        return
    builder.emit(f"Bounded{node.op}", node.inputs, node.outputs, node.attrs)


def crop_axis(op: str, axis: int | None) -> int:
    """The axis along which the buffer is filled from its start."""
    return 1 if op == "NonZero" else int(axis or 0)
