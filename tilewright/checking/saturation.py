"""Where onnxruntime's sums of uint8 times int8 are not exact: x86 processors without VNNI add pairs in 16 bits, which
saturate. With `session.x64quantprecision` it takes exact kernels for constant weights behind uint8 activations; with
int8 activations, which are exact anyway, the same setting would end the fusion to integers."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import TensorProto, helper


def int8_activations(proto: onnx.ModelProto) -> bool:
    """Whether any QuantizeLinear of the model makes int8."""
    kinds = {x.name: x.data_type for x in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            kinds[node.output[0]] = node.attribute[0].t.data_type
    for node in proto.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in kinds:  # none, or weights
            continue
        if len(node.input) > 2 and kinds.get(node.input[2]) == onnx.TensorProto.INT8:
            return True
        if any(a.name == "output_dtype" and a.i == onnx.TensorProto.INT8 for a in node.attribute):
            return True
    return False


@functools.cache
def saturates() -> bool:
    """Whether onnxruntime's sums of uint8 times int8 saturate on this processor (weights of seven bits never do)."""
    import onnxruntime

    a, b = np.full((1, 16), 255, np.uint8), np.full((16, 16), 127, np.int8)
    shapes = (("a", TensorProto.UINT8, a.shape), ("b", TensorProto.INT8, b.shape), ("y", TensorProto.INT32, (1, 16)))
    *given, y = (helper.make_tensor_value_info(*shape) for shape in shapes)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", given, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return bool((session.run(None, {"a": a, "b": b})[0] != 255 * 127 * 16).any())
