"""Finds models for which onnxruntime's sums of uint8 times int8 are not exact: x86 processors without VNNI add pairs in
16 bits, which saturate. With `session.x64quantprecision` it takes exact kernels for constant weights behind uint8
activations; with int8 activations, which are exact anyway, the same setting would end the fusion to integers."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.common.installation import require


def int8_activations(proto: onnx.ModelProto) -> bool:
    """Whether any operator of the model makes or takes int8 that is no constant."""
    kinds = {x.name: x.data_type for x in proto.graph.initializer}
    constant = set(kinds)
    for value in proto.graph.input:
        if value.name not in constant:
            kinds[value.name] = value.type.tensor_type.elem_type
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            kinds[node.output[0]] = node.attribute[0].t.data_type
            constant.add(node.output[0])
    is_int8 = lambda name: kinds.get(name) == TensorProto.INT8
    for node in proto.graph.node:
        if node.op_type == "Constant" or all(name in constant for name in node.input if name):  # weights
            constant.update(node.output)
            continue
        data = [name for name in node.input if name and name not in constant]
        if node.op_type == "QuantizeLinear":
            if len(node.input) > 2 and is_int8(node.input[2]):
                return True
            if any(a.name == "output_dtype" and a.i == TensorProto.INT8 for a in node.attribute):
                return True
        elif "QLinear" in node.op_type or node.op_type in ("DequantizeLinear", "QGemm"):
            points = [node.input[k + 2] for k, name in enumerate(node.input[:-2]) if name in data]  # behind the scale
            if any(map(is_int8, (*data, *points))):
                return True
    return False


@functools.cache
def saturates() -> bool:
    """Whether onnxruntime's sums of uint8 times int8 saturate on this processor (weights of seven bits never do)."""
    onnxruntime = require("onnxruntime")

    a, b = np.full((1, 16), 255, np.uint8), np.full((16, 16), 127, np.int8)
    shapes = (("a", TensorProto.UINT8, a.shape), ("b", TensorProto.INT8, b.shape), ("y", TensorProto.INT32, (1, 16)))
    *given, y = (helper.make_tensor_value_info(*shape) for shape in shapes)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", given, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return bool((session.run(None, {"a": a, "b": b})[0] != 255 * 127 * 16).any())
